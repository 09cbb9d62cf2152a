//! The compact protocol of Thrift, in which Parquet writes its metadata: structures of numbered
//! fields, whole numbers, texts and lists.
//!
//! Source: Apache Thrift, `thrift-compact-protocol.md`.

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A structure being written. Fields are added by ascending number.
#[derive(Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    pub(super) fn i32(mut self, field: u8, value: i32) -> Self {
        self.field(field, I32);
        zigzag(&mut self.bytes, i64::from(value));
        self
    }

    pub(super) fn i64(mut self, field: u8, value: i64) -> Self {
        self.field(field, I64);
        zigzag(&mut self.bytes, value);
        self
    }

    pub(super) fn text(mut self, field: u8, text: &str) -> Self {
        self.field(field, BINARY);
        varint(&mut self.bytes, text.len() as u64);
        self.bytes.extend(text.as_bytes());
        self
    }

    pub(super) fn inner(mut self, field: u8, inner: Self) -> Self {
        self.field(field, STRUCT);
        self.bytes.extend(inner.end());
        self
    }

    pub(super) fn structs(mut self, field: u8, items: Vec<Self>) -> Self {
        self.list(field, STRUCT, items.len());
        items
            .into_iter()
            .for_each(|item| self.bytes.extend(item.end()));
        self
    }

    pub(super) fn i32s(mut self, field: u8, items: &[i32]) -> Self {
        self.list(field, I32, items.len());
        items
            .iter()
            .for_each(|item| zigzag(&mut self.bytes, i64::from(*item)));
        self
    }

    pub(super) fn texts(mut self, field: u8, items: &[&str]) -> Self {
        self.list(field, BINARY, items.len());
        for item in items {
            varint(&mut self.bytes, item.len() as u64);
            self.bytes.extend(item.as_bytes());
        }
        self
    }

    /// The bytes of the finished structure.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }

    /// The header of a field: the step from the last number, and the type. Every structure of
    /// Parquet has fewer than 15 fields between two that are written.
    fn field(&mut self, number: u8, kind: u8) {
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    fn list(&mut self, field: u8, kind: u8, len: usize) {
        self.field(field, LIST);
        if len < 15 {
            self.bytes.push((len as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            varint(&mut self.bytes, len as u64);
        }
    }
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small numbers of either sign become small numbers.
fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_hand() {
        let mut out = Vec::new();
        for value in [0, 127, 128, 300] {
            varint(&mut out, value);
        }
        assert_eq!(out, [0, 0x7f, 0x80, 1, 0xac, 2]);
        out.clear();
        for value in [0, -1, 1, -64, 64] {
            zigzag(&mut out, value);
        }
        assert_eq!(out, [0, 1, 2, 127, 0x80, 1]);
        let inner = Struct::default().text(2, "ab");
        let bytes = Struct::default()
            .i32(1, 1)
            .i64(3, -2)
            .inner(4, inner)
            .i32s(5, &[3])
            .end();
        let expected = [
            0x15, 2, // field 1, i32, 1
            0x26, 3, // field 3, i64, -2
            0x1c, 0x28, 2, b'a', b'b', 0, // field 4, a structure with text field 2
            0x19, 0x15, 6, // field 5, a list of one i32, 3
            0,
        ];
        assert_eq!(bytes, expected);
        let long = Struct::default().i32s(1, &[0; 20]).end();
        assert_eq!(long[..3], [0x19, 0xf5, 20]);
    }
}
