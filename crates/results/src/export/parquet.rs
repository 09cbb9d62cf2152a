//! A table as a Parquet file: uncompressed; numbers plain, texts by dictionaries, every column
//! optional.
//!
//! The `parquet` crate would write the same and more, at 48 CPU seconds of every first
//! build; what is needed of the format is this file and `thrift.rs`.
//!
//! Source: Apache Parquet, `parquet.thrift` and `Encodings.md`. A file is the column chunks of all
//! row groups, each one or two pages behind their headers, then the metadata, its length, and the
//! magic bytes that also begin the file.

use super::columns::{Column, ColumnTable, Values};
use super::thrift::{Struct, varint};
use std::collections::HashMap;

const MAGIC: &[u8; 4] = b"PAR1";
/// Rows of a row group. Pages must stay below 2 GiB.
const GROUP_ROWS: usize = 1 << 17;

// Numbers of parquet.thrift.
const INT64: i32 = 2;
const DOUBLE: i32 = 5;
const BYTE_ARRAY: i32 = 6;
const OPTIONAL: i32 = 1;
const UTF8: i32 = 0;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const RLE_DICTIONARY: i32 = 8;
const UNCOMPRESSED: i32 = 0;
const DATA_PAGE: i32 = 0;
const DICTIONARY_PAGE: i32 = 2;

/// The bytes of a Parquet file. `created_by` names the program and its version.
pub fn parquet(table: &ColumnTable, created_by: &str) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    let rows = table.rows();
    let starts = (0..rows).step_by(GROUP_ROWS);
    let groups: Vec<Struct> = starts
        .map(|start| group(&mut file, table, start, (start + GROUP_ROWS).min(rows)))
        .collect();
    let metadata = Struct::default()
        .i32(1, 1)
        .structs(2, schema(table))
        .i64(3, rows as i64)
        .structs(4, groups)
        .text(6, created_by)
        .end();
    file.extend(&metadata);
    file.extend((metadata.len() as u32).to_le_bytes());
    file.extend(MAGIC);
    file
}

/// The root, then a leaf for each column.
fn schema(table: &ColumnTable) -> Vec<Struct> {
    let root = Struct::default()
        .text(4, &table.name)
        .i32(5, table.columns.len() as i32);
    let leaf = |column: &Column| {
        let leaf = Struct::default()
            .i32(1, physical(column))
            .i32(3, OPTIONAL)
            .text(4, &column.name);
        match column.values {
            // The converted type for older readers, the logical type for newer ones.
            Values::Text(_) => {
                let text = Struct::default().inner(1, Struct::default());
                leaf.i32(6, UTF8).inner(10, text)
            }
            _ => leaf,
        }
    };
    std::iter::once(root)
        .chain(table.columns.iter().map(leaf))
        .collect()
}

fn physical(column: &Column) -> i32 {
    match column.values {
        Values::Int(_) => INT64,
        Values::Float(_) => DOUBLE,
        Values::Text(_) => BYTE_ARRAY,
    }
}

/// Appends the columns of some rows to the file and returns the group's metadata.
fn group(file: &mut Vec<u8>, table: &ColumnTable, start: usize, end: usize) -> Struct {
    let before = file.len();
    let chunks: Vec<Struct> = table
        .columns
        .iter()
        .map(|column| chunk(file, column, start, end))
        .collect();
    Struct::default()
        .structs(1, chunks)
        .i64(2, (file.len() - before) as i64)
        .i64(3, (end - start) as i64)
}

/// Appends one column of a group and returns its metadata.
fn chunk(file: &mut Vec<u8>, column: &Column, start: usize, end: usize) -> Struct {
    let offset = file.len();
    let mut data_offset = offset;
    let rows = end - start;
    let encoding = match &column.values {
        Values::Int(values) => data_page(file, &values[start..end], PLAIN, |values| {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        }),
        Values::Float(values) => data_page(file, &values[start..end], PLAIN, |values| {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        }),
        Values::Text(values) => {
            let values = &values[start..end];
            let mut places: HashMap<&str, u32> = HashMap::new();
            let mut dictionary = Vec::new();
            for text in values.iter().flatten() {
                if !places.contains_key(text.as_str()) {
                    places.insert(text, places.len() as u32);
                    dictionary.extend((text.len() as u32).to_le_bytes());
                    dictionary.extend(text.as_bytes());
                }
            }
            let header = Struct::default().i32(1, places.len() as i32).i32(2, PLAIN);
            page(file, DICTIONARY_PAGE, (7, header), &dictionary);
            data_offset = file.len();
            data_page(file, values, RLE_DICTIONARY, |texts| {
                let indices = texts.iter().map(|text| places[text.as_str()]);
                // Every index fits into 32 bits.
                let width = 32 - (places.len().max(2) as u32 - 1).leading_zeros();
                let mut out = vec![width as u8];
                runs(&mut out, indices, width);
                out
            })
        }
    };
    let size = (file.len() - offset) as i64;
    let metadata = Struct::default()
        .i32(1, physical(column))
        .i32s(2, &[PLAIN, RLE, encoding])
        .texts(3, &[&column.name])
        .i32(4, UNCOMPRESSED)
        .i64(5, rows as i64)
        .i64(6, size)
        .i64(7, size)
        .i64(9, data_offset as i64);
    let metadata = if data_offset > offset {
        metadata.i64(11, offset as i64)
    } else {
        metadata
    };
    Struct::default().i64(2, offset as i64).inner(3, metadata)
}

/// Appends a data page: which rows have a value, then the values. Returns the encoding.
fn data_page<T: Clone>(
    file: &mut Vec<u8>,
    rows: &[Option<T>],
    encoding: i32,
    encode: impl Fn(&[T]) -> Vec<u8>,
) -> i32 {
    let mut levels = Vec::new();
    runs(
        &mut levels,
        rows.iter().map(|row| u32::from(row.is_some())),
        1,
    );
    let values: Vec<T> = rows.iter().flatten().cloned().collect();
    let mut content = (levels.len() as u32).to_le_bytes().to_vec();
    content.extend(levels);
    content.extend(encode(&values));
    let header = Struct::default()
        .i32(1, rows.len() as i32)
        .i32(2, encoding)
        .i32(3, RLE)
        .i32(4, RLE);
    page(file, DATA_PAGE, (5, header), &content);
    encoding
}

/// Appends a page behind its header. `specific`: the field and the header of this type of page.
fn page(file: &mut Vec<u8>, kind: i32, specific: (u8, Struct), content: &[u8]) {
    let size = content.len() as i32;
    let header = Struct::default()
        .i32(1, kind)
        .i32(2, size)
        .i32(3, size)
        .inner(specific.0, specific.1);
    file.extend(header.end());
    file.extend(content);
}

/// Numbers of `width` bits as runs of equal ones: twice the length of the run, then the number in
/// whole bytes.
fn runs(out: &mut Vec<u8>, numbers: impl Iterator<Item = u32>, width: u32) {
    let bytes = width.div_ceil(8) as usize;
    let mut run: Option<(u32, u64)> = None;
    let mut end = |run: Option<(u32, u64)>| {
        if let Some((number, count)) = run {
            varint(out, count << 1);
            out.extend(&number.to_le_bytes()[..bytes]);
        }
    };
    for number in numbers {
        run = Some(match run {
            Some((same, count)) if same == number => (same, count + 1),
            other => {
                end(other);
                (number, 1)
            }
        });
    }
    end(run);
}
