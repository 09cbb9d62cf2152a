//! The end of a step log that grows.

use rundir::steplog::{LOG_FILE, Step};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of the log that one look reads.
const MOST_BYTES: u64 = 4 << 20;

/// A step log as far as it was read.
#[derive(Default)]
pub struct Tail {
    /// Bytes read: whole lines.
    read: u64,
    /// Whether the last look left whole lines unread.
    is_behind: bool,
}

impl Tail {
    /// The steps that are new, and whether the log was cut, as a resumed run does, so that they
    /// begin anew. A log that is missing or damaged has no new steps.
    pub fn look(&mut self, run: &Path) -> (Vec<Step>, bool) {
        let Ok(mut file) = rundir::read::open(&run.join(LOG_FILE)) else {
            return (Vec::new(), false);
        };
        let length = file.metadata().map_or(self.read, |metadata| metadata.len());
        let is_cut = length < self.read;
        if is_cut {
            self.read = 0;
        }
        let mut text = Vec::new();
        let read = file
            .seek(SeekFrom::Start(self.read))
            .and_then(|_| file.take(MOST_BYTES).read_to_end(&mut text));
        // The last line may be half written.
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if read.is_err() {
            return (Vec::new(), is_cut);
        }
        self.is_behind = text.len() as u64 == MOST_BYTES;
        self.read += whole as u64;
        let lines = text[..whole].split(|byte| *byte == b'\n');
        let steps = lines.filter_map(|line| serde_json::from_slice::<Step>(line).ok());
        (steps.collect(), is_cut)
    }

    /// Whether the last look left whole lines unread.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }
}
