//! A run as a TensorBoard event file.
//!
//! A file is a sequence of records: the length as a little-endian u64, its checksum, the message,
//! its checksum. Checksums are CRC-32C, masked. A message is an `Event` of `event.proto` with a
//! `Summary` of `summary.proto`, in protobuf's wire format; three kinds of fields are needed.
//!
//! Source: TensorFlow, `record_writer.cc`, `event.proto`, `summary.proto`, `tensor.proto`.

use crate::metric::{self, BITS_PER_BYTE, PERPLEXITY};
use crate::record::{EvalRow, Label, RunRecord, label_texts};
use serde_json::Value;

/// The first message of every file.
const VERSION: &str = "brain.Event:2";

/// An event file being written.
#[derive(Clone, Debug, PartialEq)]
pub struct EventFile {
    bytes: Vec<u8>,
}

impl EventFile {
    /// A file that begins at a time, in seconds since 1970.
    pub fn new(time: f64) -> Self {
        let mut file = Self { bytes: Vec::new() };
        let mut event = Message::default();
        event.double(1, time).bytes(3, VERSION.as_bytes());
        file.record(&event.0);
        file
    }

    /// Adds a number to the curve `tag`. TensorBoard keeps f32.
    pub fn scalar(&mut self, time: f64, step: u64, tag: &str, value: f64) {
        let mut point = Message::default();
        point.bytes(1, tag.as_bytes()).float(2, value as f32);
        self.event(time, step, &point);
    }

    /// Adds a text in Markdown.
    pub fn text(&mut self, time: f64, step: u64, tag: &str, markdown: &str) {
        let (mut plugin, mut metadata) = (Message::default(), Message::default());
        plugin.bytes(1, b"text");
        metadata.bytes(1, &plugin.0);
        let (mut shape, mut dimension) = (Message::default(), Message::default());
        dimension.int(1, 1);
        shape.bytes(2, &dimension.0);
        let mut tensor = Message::default();
        // 7 is DT_STRING.
        tensor
            .int(1, 7)
            .bytes(2, &shape.0)
            .bytes(8, markdown.as_bytes());
        let mut value = Message::default();
        value
            .bytes(1, tag.as_bytes())
            .bytes(8, &tensor.0)
            .bytes(9, &metadata.0);
        self.event(time, step, &value);
    }

    /// The bytes of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes since the last call, to append to a file that is being read.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds a step of a training.
    pub fn step(&mut self, time: f64, step: &TrainStep) {
        self.scalar(time, step.step, "train/loss_nats", step.loss_nats);
        if let Some((rate, norm)) = step.rate_and_norm {
            self.scalar(time, step.step, "train/lr", rate);
            self.scalar(time, step.step, "train/grad_norm", norm);
        }
    }

    /// Adds the scores of a run: those while training at the time of their step, the others at that
    /// of the last one.
    pub fn scores(&mut self, record: &RunRecord, time: impl Fn(u64) -> f64, last: u64) {
        for scores in &record.train.scores {
            for row in &scores.rows {
                for (name, value) in numbers(record, row) {
                    let tag = format!("by_step/{name}/at_{}", row.test_len);
                    self.scalar(time(scores.step), scores.step, &tag, value);
                }
            }
        }
        let last = time(last);
        for row in &record.evals {
            for (name, value) in numbers(record, row) {
                let tag = format!("by_test_length/{name}/{}", row.variant);
                self.scalar(last, row.test_len as u64, &tag, value);
            }
        }
    }

    fn event(&mut self, time: f64, step: u64, value: &Message) {
        let mut summary = Message::default();
        summary.bytes(1, &value.0);
        let mut event = Message::default();
        event.double(1, time).int(2, step).bytes(5, &summary.0);
        self.record(&event.0);
    }

    fn record(&mut self, message: &[u8]) {
        let length = (message.len() as u64).to_le_bytes();
        self.bytes.extend(length);
        self.bytes.extend(masked_crc(&length).to_le_bytes());
        self.bytes.extend(message);
        self.bytes.extend(masked_crc(message).to_le_bytes());
    }
}

/// A step of a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainStep {
    /// Its number, counted from 1.
    pub step: u64,
    /// Loss of its batch, nats per counted token.
    pub loss_nats: f64,
    /// Learning rate and norm of the gradient, where they are known.
    pub rate_and_norm: Option<(f64, f64)>,
}

/// The events of a run: the curves of its training and its scores while training by step, its
/// scores by test length, which takes the place of the step, and its spec as a text.
///
/// `steps` is its step log; the loss curve of the record if it is empty. `secs` is the time of the
/// whole training, by which steps are spread; one second a step if it is unknown. Times start at
/// 0: records hold no dates.
pub fn run_events(record: &RunRecord, steps: &[TrainStep], secs: Option<f64>) -> EventFile {
    let curve = record.train.loss_curve.iter().map(|point| TrainStep {
        step: point.step,
        loss_nats: point.loss_nats,
        rate_and_norm: None,
    });
    let steps = if steps.is_empty() {
        curve.collect()
    } else {
        steps.to_vec()
    };
    let last = steps.last().map_or(1, |step| step.step.max(1));
    let per_step = secs.map_or(1.0, |secs| secs / last as f64);
    let time = |step: u64| step as f64 * per_step;
    let mut file = EventFile::new(0.0);
    let spec = serde_json::to_string_pretty(&Value::Object(record.spec.clone()));
    let about = format!(
        "{}, seed {}, run {}\n\n```json\n{}\n```",
        label_texts(&record.labels).join(", "),
        record.seed,
        record.run_id,
        spec.unwrap_or_default()
    );
    file.text(0.0, 0, "config", &about);
    for step in &steps {
        file.step(time(step.step), step);
    }
    file.scores(record, time, last);
    file
}

/// The stored and derived metrics of an evaluation that are finite.
fn numbers<'a>(record: &RunRecord, row: &'a EvalRow) -> Vec<(&'a str, f64)> {
    let stored = row.metrics.keys().map(String::as_str);
    let value = |name| metric::value(&record.task, row, name).map(|(value, _)| (name, value));
    let all = stored.chain([PERPLEXITY, BITS_PER_BYTE]).filter_map(value);
    all.filter(|(_, value)| value.is_finite()).collect()
}

/// A protobuf message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn int(&mut self, field: u8, value: u64) -> &mut Self {
        self.0.push(field << 3);
        varint(&mut self.0, value);
        self
    }

    fn double(&mut self, field: u8, value: f64) -> &mut Self {
        self.0.push(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(&mut self, field: u8, value: f32) -> &mut Self {
        self.0.push(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u8, value: &[u8]) -> &mut Self {
        self.0.push(field << 3 | 2);
        varint(&mut self.0, value.len() as u64);
        self.0.extend(value);
        self
    }
}

/// Seven bits to a byte, the lowest first; all bytes but the last have their highest bit set.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// CRC-32C, rotated and shifted: the checksum of bytes that may themselves hold checksums.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit from a table of 256 bytes' remainders.
fn crc32c(bytes: &[u8]) -> u32 {
    /// The polynomial, its bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut remainder = at as u32;
            let mut bit = 0;
            while bit < 8 {
                let carry = remainder & 1;
                remainder >>= 1;
                if carry == 1 {
                    remainder ^= POLYNOMIAL;
                }
                bit += 1;
            }
            table[at] = remainder;
            at += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8;
    !bytes.iter().fold(!0, step)
}

/// `METHOD-seed-N-RUN_ID`: the directory of a run, by which TensorBoard names it.
pub fn run_directory(labels: &[Label], seed: u64, run_id: &str) -> String {
    let run = format!("{}-seed-{seed}", label_texts(labels).join("-"));
    let name = format!("{}-{run_id}", plain_name(&run));
    name.trim_start_matches('-').to_owned()
}

/// A name without what a path or a shell would read: letters, digits, `-`, `_`, `.` and `=`, at
/// most 80, and not hidden.
pub fn plain_name(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=');
    let text: String = text
        .chars()
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    let text: String = text.trim_start_matches('.').chars().take(80).collect();
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_rfc_3720() {
        // Appendix B.4: 32 bytes of zeros, of ones, ascending and descending.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&descending), 0x113f_db5c);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn names_stay_below_their_directory() {
        assert_eq!(plain_name("rope(base=100), x"), "rope-base=100---x");
        assert_eq!(plain_name("../../etc"), "-..-etc");
        assert_eq!(plain_name(".."), "-");
        assert_eq!(plain_name("a\u{1b}[2Jb"), "a--2Jb");
        assert!(plain_name(&"x".repeat(500)).len() <= 80);
    }
}
