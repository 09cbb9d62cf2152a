//! Parquet and event files, read back by readers written for these tests from the formats'
//! descriptions. `scripts/interop` reads both with the programs they are for.

use crate::common::*;
use longreach_results::RunRecord;
use longreach_results::export::{
    Column, ColumnTable, EventFile, TrainStep, Values, parquet, run_events, tables,
};
use longreach_results::record::StepScores;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A value of Thrift's compact protocol, structures by field number.
#[derive(Clone, Debug, PartialEq)]
enum Thrift {
    Int(i64),
    Bytes(Vec<u8>),
    List(Vec<Thrift>),
    Struct(BTreeMap<u8, Thrift>),
}

impl Thrift {
    fn int(&self) -> i64 {
        match self {
            Self::Int(value) => *value,
            other => panic!("{other:?} is no number"),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?} is no text"),
        }
    }

    fn list(&self) -> &[Thrift] {
        match self {
            Self::List(items) => items,
            other => panic!("{other:?} is no list"),
        }
    }

    fn at(&self, field: u8) -> &Thrift {
        self.get(field)
            .unwrap_or_else(|| panic!("no field {field} in {self:?}"))
    }

    fn get(&self, field: u8) -> Option<&Thrift> {
        match self {
            Self::Struct(fields) => fields.get(&field),
            other => panic!("{other:?} is no structure"),
        }
    }
}

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

    fn thrift(&mut self, kind: u8) -> Thrift {
        match kind {
            5 | 6 => {
                let raw = self.varint();
                Thrift::Int((raw >> 1) as i64 ^ -((raw & 1) as i64))
            }
            8 => {
                let len = self.varint() as usize;
                Thrift::Bytes(self.take(len))
            }
            9 => {
                let head = self.byte();
                let len = match head >> 4 {
                    15 => self.varint() as usize,
                    short => usize::from(short),
                };
                Thrift::List((0..len).map(|_| self.thrift(head & 15)).collect())
            }
            12 => {
                let (mut fields, mut last) = (BTreeMap::new(), 0);
                loop {
                    let head = self.byte();
                    if head == 0 {
                        return Thrift::Struct(fields);
                    }
                    assert!(head >> 4 > 0, "a long field header");
                    last += head >> 4;
                    fields.insert(last, self.thrift(head & 15));
                }
            }
            other => panic!("type {other}"),
        }
    }

    /// Runs of equal numbers, in all `count`; none of them packed.
    fn runs(&mut self, count: usize, width: usize) -> Vec<u32> {
        let mut out = Vec::new();
        while out.len() < count {
            let head = self.varint();
            assert_eq!(head & 1, 0, "a bit-packed run");
            let mut bytes = self.take(width.div_ceil(8));
            bytes.resize(4, 0);
            let value = u32::from_le_bytes(bytes.try_into().unwrap());
            out.extend(std::iter::repeat_n(value, (head >> 1) as usize));
        }
        assert_eq!(out.len(), count);
        out
    }
}

/// The table of a Parquet file.
fn read_parquet(file: &[u8]) -> ColumnTable {
    assert_eq!(
        (&file[..4], &file[file.len() - 4..]),
        (&b"PAR1"[..], &b"PAR1"[..])
    );
    let length = &file[file.len() - 8..file.len() - 4];
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    let footer = &file[file.len() - 8 - length..file.len() - 8];
    let mut footer = Reader(footer);
    let metadata = footer.thrift(12);
    assert!(footer.0.is_empty());
    let schema = metadata.at(2).list();
    assert_eq!(schema[0].at(5).int() as usize, schema.len() - 1);
    let mut table = ColumnTable {
        name: schema[0].at(4).text(),
        columns: Vec::new(),
    };
    let mut rows = 0;
    for (at, leaf) in schema[1..].iter().enumerate() {
        assert_eq!(leaf.at(3).int(), 1);
        let kind = leaf.at(1).int();
        let mut values = match kind {
            2 => Values::Int(Vec::new()),
            5 => Values::Float(Vec::new()),
            6 => Values::Text(Vec::new()),
            other => panic!("physical type {other}"),
        };
        for group in metadata.at(4).list() {
            let chunk = group.at(1).list()[at].at(3);
            assert_eq!(chunk.at(3).list()[0].text(), leaf.at(4).text());
            assert_eq!((chunk.at(1).int(), chunk.at(4).int()), (kind, 0));
            assert_eq!(chunk.at(5).int(), group.at(3).int());
            read_chunk(file, chunk, &mut values);
        }
        rows = values.len();
        table.columns.push(Column {
            name: leaf.at(4).text(),
            values,
        });
    }
    assert_eq!(metadata.at(3).int() as usize, rows);
    table
}

/// Header and content of the page at an offset.
fn page(file: &[u8], offset: i64) -> (Thrift, Vec<u8>, usize) {
    let mut reader = Reader(&file[offset as usize..]);
    let header = reader.thrift(12);
    assert_eq!(header.at(2), header.at(3));
    let content = reader.take(header.at(3).int() as usize);
    (header, content, file.len() - reader.0.len())
}

fn read_chunk(file: &[u8], chunk: &Thrift, values: &mut Values) {
    let mut dictionary = Vec::new();
    if let Some(offset) = chunk.get(11) {
        let (header, content, end) = page(file, offset.int());
        assert_eq!((header.at(1).int(), end as i64), (2, chunk.at(9).int()));
        let mut reader = Reader(&content);
        for _ in 0..header.at(7).at(1).int() {
            let len = u32::from_le_bytes(reader.take(4).try_into().unwrap());
            dictionary.push(String::from_utf8(reader.take(len as usize)).unwrap());
        }
        assert!(reader.0.is_empty());
    }
    let (header, content, end) = page(file, chunk.at(9).int());
    assert_eq!(header.at(1).int(), 0);
    let start = chunk.get(11).unwrap_or(chunk.at(9)).int();
    assert_eq!(end as i64 - start, chunk.at(7).int());
    let count = header.at(5).at(1).int() as usize;
    let mut reader = Reader(&content);
    let levels = u32::from_le_bytes(reader.take(4).try_into().unwrap()) as usize;
    let levels = reader.take(levels);
    let present = Reader(&levels).runs(count, 1);
    let some = present.iter().filter(|level| **level == 1).count();
    let mut indices = match values {
        Values::Text(_) => {
            let width = usize::from(reader.byte());
            reader.runs(some, width)
        }
        _ => Vec::new(),
    };
    indices.reverse();
    for level in present {
        let mut eight = || -> [u8; 8] { reader.take(8).try_into().unwrap() };
        match values {
            Values::Int(out) => out.push((level == 1).then(|| i64::from_le_bytes(eight()))),
            Values::Float(out) => out.push((level == 1).then(|| f64::from_le_bytes(eight()))),
            Values::Text(out) => {
                let text = || dictionary[indices.pop().unwrap() as usize].clone();
                out.push((level == 1).then(text));
            }
        }
    }
    assert!(reader.0.is_empty());
}

proptest! {
    #[test]
    fn a_table_survives_its_file(
        rows in proptest::collection::vec(
            (any::<Option<i64>>(), proptest::option::of(-1e300..1e300_f64), proptest::option::of("[a-c]{0,2}|\\PC{0,9}")),
            0..300,
        )
    ) {
        let table = ColumnTable {
            name: "scores".into(),
            columns: vec![
                Column { name: "whole".into(), values: Values::Int(rows.iter().map(|row| row.0).collect()) },
                Column { name: "text, ü".into(), values: Values::Text(rows.iter().map(|row| row.2.clone()).collect()) },
                Column { name: "number".into(), values: Values::Float(rows.iter().map(|row| row.1).collect()) },
            ],
        };
        prop_assert_eq!(read_parquet(&parquet(&table, "a test")), table);
    }
}

#[test]
fn long_tables_have_several_groups_and_wide_dictionaries() {
    let rows = 0..(1_u32 << 17) + 100;
    let table = ColumnTable {
        name: "long".into(),
        columns: vec![
            Column {
                name: "name".into(),
                values: Values::Text(
                    rows.clone()
                        .map(|row| Some((row % 70_000).to_string()))
                        .collect(),
                ),
            },
            Column {
                name: "none".into(),
                values: Values::Text(rows.map(|_| None).collect()),
            },
        ],
    };
    let file = parquet(&table, "a test");
    assert_eq!(read_parquet(&file), table);
}

#[test]
fn tables_hold_every_number_of_the_records() {
    let mut records = text_experiment();
    // Two rows of one stored metric, and two derived ones.
    let rows = records[0].evals[..2].to_vec();
    records[0].train.scores = vec![StepScores { step: 7, rows }];
    let tables = tables(&records);
    let rows: Vec<(&str, usize)> = tables.iter().map(|t| (t.name.as_str(), t.rows())).collect();
    let bins: usize = records
        .iter()
        .map(|r| {
            r.evals
                .iter()
                .map(|e| e.loss_by_position.len())
                .sum::<usize>()
        })
        .sum();
    let points: usize = records.iter().map(|r| r.train.loss_curve.len()).sum();
    let scores = records
        .iter()
        .flat_map(|r| &r.evals)
        .map(|row| match row.metrics.len() {
            0 => 1,
            stored => stored + 2, // perplexity and bits per byte
        });
    let expected = [
        ("runs", records.len()),
        ("scores", scores.sum()),
        ("during", 6),
        ("curves", points),
        ("positions", bins),
    ];
    assert_eq!(rows, expected);
    let names = |table: &ColumnTable| -> Vec<String> {
        table
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    };
    insta::assert_snapshot!(
        "columns",
        tables
            .iter()
            .map(|t| format!("{}: {}", t.name, names(t).join(", ")))
            .collect::<Vec<_>>()
            .join("\n")
    );
    for table in &tables {
        assert_eq!(read_parquet(&parquet(table, "a test")), *table);
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
    run.train.loss_curve = vec![longreach_results::record::CurvePoint {
        step: 40,
        loss_nats: 3.0,
    }];
    let found = points(&run_events(&run, &[], None).into_bytes());
    assert!(found.contains(&(40.0, 40, "train/loss_nats".to_owned(), 3.0)));
}
