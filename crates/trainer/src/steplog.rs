//! The step log: a JSON line per applied step, append-only, cut back to a checkpoint's place when a run goes on from there.

use crate::train::Step;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Name of the file.
pub const LOG_FILE: &str = "steps.jsonl";
/// No line is longer.
const MAX_LINE_BYTES: u64 = 256;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    step: u64,
    loss_nats: f64,
    lr: f64,
    grad_norm: f64,
    tokens: u64,
}

/// A log that is being written.
pub struct StepLog {
    file: BufWriter<std::fs::File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl StepLog {
    /// Begins anew.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn create(directory: &Path) -> Result<Self> {
        let file = fs_err::File::create(directory.join(LOG_FILE))?.into_parts().0;
        Ok(Self { file: BufWriter::new(file), hasher: blake3::Hasher::new(), bytes: 0 })
    }

    /// Goes on after the first `bytes` of the log, whose hash must be `blake3`; gives the losses they tell.
    ///
    /// # Errors
    ///
    /// If the file is shorter or another one, or does not tell `steps` steps.
    pub fn resume(directory: &Path, steps: u64, bytes: u64, blake3: &str) -> Result<(Self, Vec<f64>)> {
        let path = directory.join(LOG_FILE);
        ensure!(bytes <= steps.saturating_mul(MAX_LINE_BYTES), "the step log is said to have {bytes} bytes for {steps} steps");
        let mut file = fs_err::OpenOptions::new().read(true).write(true).open(&path)?.into_parts().0;
        let mut text = Vec::new();
        (&mut file).take(bytes).read_to_end(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(text.len() as u64 == bytes, "the step log is shorter than the checkpoint");
        let mut hasher = blake3::Hasher::new();
        hasher.update(&text);
        ensure!(hasher.finalize().to_hex().as_str() == blake3, "the step log is not the one that the checkpoint belongs to");
        let mut losses = Vec::new();
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let line: Line = serde_json::from_slice(line).with_context(|| format!("line {} of the step log", index + 1))?;
            ensure!(line.step == index as u64 + 1, "line {} of the step log is of step {}", index + 1, line.step);
            losses.push(line.loss_nats);
        }
        ensure!(losses.len() as u64 == steps, "the step log tells {} steps, the checkpoint {steps}", losses.len());
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        Ok((Self { file: BufWriter::new(file), hasher, bytes }, losses))
    }

    /// Appends a step.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn append(&mut self, step: &Step) -> Result<()> {
        let Step { step, loss_nats, lr, grad_norm, tokens } = *step;
        let mut line = serde_json::to_vec(&Line { step, loss_nats, lr, grad_norm, tokens })?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.hasher.update(&line);
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Makes everything so far survive, and gives its size and hash.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn sync(&mut self) -> Result<(u64, String)> {
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        Ok((self.bytes, self.hasher.finalize().to_hex().to_string()))
    }
}
