//! One record from bytes of unknown origin: bounded, strict, and without duplicate keys.

use super::found::{MAX_RECORD_BYTES, StoreError, invalid};
use crate::record::{RunRecord, SCHEMA};
use fs_err as fs;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

/// Reads one `record.json`: a regular file of at most [`MAX_RECORD_BYTES`].
///
/// # Errors
///
/// When the file cannot be read, is too large, or holds no record of this schema.
pub fn read_record(path: &Path) -> Result<RunRecord, StoreError> {
    let mut bytes = Vec::new();
    open(path, MAX_RECORD_BYTES)?.read_to_end(&mut bytes)?;
    parse(&bytes).map_err(|unfit| match unfit {
        Unfit::Newer(reason) => StoreError::Newer {
            path: path.into(),
            reason,
        },
        Unfit::Other(reason) => {
            let first = bytes.split(|byte| *byte == b'\n').next();
            match first.map(parse) {
                Some(Ok(_)) => invalid(path, "has a record per line; name such a file *.jsonl"),
                _ => invalid(path, reason),
            }
        }
    })
}

/// Opens a regular file for reading at most `most` bytes, so that neither a device nor a growing
/// file fills the memory.
pub(super) fn open(path: &Path, most: u64) -> Result<io::Take<fs::File>, StoreError> {
    // Before opening, because opening a pipe waits for its writer.
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(invalid(path, "not a regular file"));
    }
    if meta.len() > most {
        return Err(invalid(
            path,
            format!("has {} bytes; at most {most} are read", meta.len()),
        ));
    }
    let file = fs::File::from_parts(schema::file::open(path)?, path);
    Ok(file.take(most))
}

/// Why some bytes are not a record.
#[derive(Debug)]
pub(super) enum Unfit {
    /// They are of a newer version.
    Newer(String),
    /// They are damaged, or something else.
    Other(String),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Newer(reason) | Self::Other(reason)) = self;
        f.write_str(reason)
    }
}

impl From<String> for Unfit {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<RunRecord, Unfit> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u32,
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err("is a JSON array, not one record per line".to_owned().into());
    }
    // The version first: of a newer layout the error says so, not that a field is unknown.
    let version: Version =
        serde_json::from_slice(bytes).map_err(|e| format!("not a record: {e}"))?;
    let wrong = |e: &dyn std::fmt::Display| format!("not a record of schema {SCHEMA}: {e}");
    match version.schema {
        SCHEMA => {}
        newer if newer > SCHEMA => {
            return Err(Unfit::Newer(format!(
                "schema {newer} is newer than this binary's {SCHEMA}; a newer longreach reads it"
            )));
        }
        other => {
            let reason = format!("schema {other} is unknown; this binary reads {SCHEMA}");
            return Err(reason.into());
        }
    }
    let record: RunRecord = serde_json::from_slice(bytes).map_err(|e| wrong(&e))?;
    serde_json::from_slice::<UniqueKeys>(bytes).map_err(|e| wrong(&e))?;
    record.check().map_err(|e| wrong(&e))?;
    Ok(record)
}

/// Any JSON in which no object has a key twice. A map would silently keep the last value.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeys)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<UniqueKeys>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(serde::de::Error::custom(format_args!(
                    "duplicate key {key:?}"
                )));
            }
            keys.insert(key);
            map.next_value::<UniqueKeys>()?;
        }
        Ok(self)
    }
}
