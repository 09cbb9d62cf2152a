//! Event files, read back by a reader written for these tests from the format's description.
//! `scripts/interop` reads them with TensorBoard.

use crate::common::*;
use records::RunRecord;
use records::record::StepScores;
use records::tensorboard::{EventFile, TrainStep, run_events};

/// Reads from the front of some bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap();
        self.0 = rest;
        *first
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let (front, rest) = self.0.split_at(count);
        self.0 = rest;
        front.to_vec()
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
}

/// CRC-32C, a bit at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

/// Fields of a protobuf message: number, then a varint, eight or four bytes, or a length and bytes.
fn fields(message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (mut reader, mut out) = (Reader(message), Vec::new());
    while !reader.0.is_empty() {
        let key = reader.varint();
        let value = match key & 7 {
            0 => reader.varint().to_le_bytes().to_vec(),
            1 => reader.take(8),
            5 => reader.take(4),
            2 => {
                let len = reader.varint() as usize;
                reader.take(len)
            }
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, value));
    }
    out
}

fn field(message: &[u8], number: u64) -> Option<Vec<u8>> {
    let found = fields(message)
        .into_iter()
        .find(|(field, _)| *field == number);
    found.map(|(_, value)| value)
}

/// The messages of an event file; every checksum must hold.
fn messages(file: &[u8]) -> Vec<Vec<u8>> {
    let masked = |bytes: &[u8]| {
        let crc = crc32c(bytes);
        crc.rotate_right(15)
            .wrapping_add(0xa282_ead8)
            .to_le_bytes()
            .to_vec()
    };
    let (mut reader, mut out) = (Reader(file), Vec::new());
    while !reader.0.is_empty() {
        let length = reader.take(8);
        assert_eq!(reader.take(4), masked(&length));
        let message = reader.take(u64::from_le_bytes(length.try_into().unwrap()) as usize);
        assert_eq!(reader.take(4), masked(&message));
        out.push(message);
    }
    out
}

/// Time, step, tag and number of every point of a curve.
fn points(file: &[u8]) -> Vec<(f64, u64, String, f32)> {
    let eight = |bytes: Vec<u8>| -> [u8; 8] { bytes.try_into().unwrap() };
    let point = |event: &Vec<u8>| {
        let value = field(&field(event, 5)?, 1)?;
        let number = field(&value, 2)?;
        Some((
            f64::from_le_bytes(eight(field(event, 1)?)),
            u64::from_le_bytes(eight(field(event, 2)?)),
            String::from_utf8(field(&value, 1)?).unwrap(),
            f32::from_le_bytes(number.try_into().unwrap()),
        ))
    };
    messages(file).iter().filter_map(point).collect()
}

#[test]
fn event_files_hold_what_was_written() {
    let mut file = EventFile::new(1.5);
    file.scalar(2.5, 300, "train/loss_nats", 0.1);
    file.text(2.5, 1, "config", "# heading");
    let bytes = file.into_bytes();
    let all = messages(&bytes);
    assert_eq!(all.len(), 3);
    assert_eq!(field(&all[0], 3).unwrap(), b"brain.Event:2");
    assert_eq!(
        points(&bytes),
        [(2.5, 300, "train/loss_nats".to_owned(), 0.1)]
    );
    let value = field(&field(&all[2], 5).unwrap(), 1).unwrap();
    let plugin = field(&field(&value, 9).unwrap(), 1).unwrap();
    assert_eq!(field(&plugin, 1).unwrap(), b"text");
    let tensor = field(&value, 8).unwrap();
    assert_eq!(field(&tensor, 8).unwrap(), b"# heading");
    assert_eq!(field(&tensor, 1).unwrap()[0], 7);
    // Frozen; `scripts/interop` has TensorBoard's own reader read such files.
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    insta::assert_snapshot!("events", hex);
}

fn row_len(run: &RunRecord) -> usize {
    run.evals[0].test_len
}

#[test]
fn runs_become_curves_by_step_and_by_test_length() {
    let run: RunRecord = text_experiment().remove(0);
    let step = |step, loss_nats| TrainStep {
        step,
        loss_nats,
        rate_and_norm: Some((1e-3, 2.0)),
    };
    let steps = [step(1, 5.5), step(2, 4.5)];
    let found = points(&run_events(&run, &steps, Some(10.0)).into_bytes());
    let of = |tag: &str| -> Vec<(f64, u64, f32)> {
        let own = found.iter().filter(|point| point.2 == tag);
        own.map(|(time, step, _, value)| (*time, *step, *value))
            .collect()
    };
    assert_eq!(of("train/loss_nats"), [(5.0, 1, 5.5), (10.0, 2, 4.5)]);
    assert_eq!(of("train/lr").len(), 2);
    let row = &run.evals[0];
    let loss = row.metrics["loss_nats"].value as f32;
    assert_eq!(
        of("by_test_length/loss_nats/trained")[0],
        (10.0, row.test_len as u64, loss)
    );
    assert!(!of("by_test_length/perplexity/trained").is_empty());
    assert!(of("by_step/loss_nats/at_64").is_empty());
    let mut run = run;
    run.train.scores = vec![StepScores {
        step: 2,
        rows: vec![run.evals[0].clone()],
    }];
    let found = points(&run_events(&run, &steps, Some(10.0)).into_bytes());
    let tag = format!("by_step/loss_nats/at_{}", row_len(&run));
    assert!(found.contains(&(10.0, 2, tag, loss)));
    // Without a step log the record's curve stands in, a second a step.
    run.train.loss_curve = vec![records::record::CurvePoint {
        step: 40,
        loss_nats: 3.0,
    }];
    let found = points(&run_events(&run, &[], None).into_bytes());
    assert!(found.contains(&(40.0, 40, "train/loss_nats".to_owned(), 3.0)));
}
