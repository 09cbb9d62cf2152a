//! What a file is by its first bytes, where it is not the text that a configuration says.

/// UTF-8's byte order mark.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A format with a signature, and how a text is made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FirstBytes {
    signature: &'static [u8],
    /// What such a file is.
    pub what: &'static str,
    /// How to make a text of it.
    pub fix: &'static str,
}

const fn format(signature: &'static [u8], what: &'static str, fix: &'static str) -> FirstBytes {
    FirstBytes {
        signature,
        what,
        fix,
    }
}

const IDS: &str = "level = \"u16\", \"u32\" or \"u64\" reads token ids";
/// How many bytes tell numbers from text, where there is no signature.
const START: usize = 4096;
const BINARY: FirstBytes = format(
    b"",
    "binary data",
    "level = \"u16\", \"u32\" or \"u64\" reads token ids, `iconv -f LATIN1 -t UTF-8 FILE` prints Latin-1 text as UTF-8",
);
const TO_UTF_8: &str = "`iconv -f UTF-16 -t UTF-8 FILE` prints it as UTF-8";

const FORMATS: &[FirstBytes] = &[
    format(b"\x1f\x8b\x08", "a gzip file", "`gunzip FILE` unpacks it"),
    format(
        b"\x28\xb5\x2f\xfd",
        "a Zstandard file",
        "`unzstd FILE` unpacks it",
    ),
    format(b"\xfd7zXZ\0", "an xz file", "`unxz FILE` unpacks it"),
    format(b"BZh91AY&SY", "a bzip2 file", "`bunzip2 FILE` unpacks it"),
    format(b"PK\x03\x04", "a zip archive", "`unzip FILE` unpacks it"),
    format(
        b"PAR1",
        "a Parquet file",
        "write its column of texts to a text file",
    ),
    format(b"\x93NUMPY", "a NumPy array", IDS),
    format(&20_240_520u32.to_le_bytes(), "a shard of llm.c", IDS),
    format(&20_240_801u32.to_le_bytes(), "a shard of llm.c", IDS),
    // Before UTF-16: its mark begins with the same two bytes.
    format(
        b"\xff\xfe\0\0",
        "text in UTF-32",
        "`iconv -f UTF-32 -t UTF-8 FILE` prints it as UTF-8",
    ),
    format(b"\xff\xfe", "text in UTF-16", TO_UTF_8),
    format(b"\xfe\xff", "text in UTF-16", TO_UTF_8),
    format(
        BYTE_ORDER_MARK,
        "text with a byte order mark",
        "`tail -c +4 FILE` prints it without its mark",
    ),
];

impl FirstBytes {
    /// What these bytes begin as, if they do not begin as plain text does.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut formats = FORMATS.iter();
        let found = formats.find(|format| bytes.starts_with(format.signature));
        found.copied().or_else(|| without_signature(bytes))
    }

    /// Whether the file may still be read as text. Invalid characters are reported later.
    pub fn is_text(self) -> bool {
        self.signature == BYTE_ORDER_MARK || self == BINARY
    }

    /// Whether its first bytes say that it holds ids.
    pub fn is_ids(self) -> bool {
        !self.signature.is_empty() && self.fix == IDS
    }

    /// Whether nothing else begins so: numbers may begin as a mark of UTF-16.
    pub fn is_packed(self) -> bool {
        self.signature.len() > BYTE_ORDER_MARK.len() || self.fix.contains("unpacks")
    }

    /// What is wrong with it as `wanted`, and what to do.
    pub fn refused(self, wanted: &str) -> (String, String) {
        let problem = format!("begins as {}, not as {wanted}", self.what);
        (problem, self.fix.to_owned())
    }
}

/// What is wrong with a file of lines that begins with these bytes, and what to do; `None` if it
/// begins as text does.
pub fn begins_as(bytes: &[u8], wanted: &str) -> Option<(String, String)> {
    let found = FirstBytes::of(bytes).filter(|found| !found.is_text() && found.fix != IDS)?;
    Some(found.refused(wanted))
}

/// Whether a file begins with UTF-8 text that has no control characters. Token ids hardly ever do.
pub(super) fn is_plain_text(bytes: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
    let start = &bytes[..bytes.len().min(START)];
    start.len() >= 64 && is_utf_8(start) && !start.iter().any(is_control)
}

/// Whether `start` is valid UTF-8 without zero bytes. Its last character may be incomplete.
fn is_utf_8(start: &[u8]) -> bool {
    let error = std::str::from_utf8(start).err();
    error.is_none_or(|error| error.error_len().is_none()) && !start.contains(&0)
}

/// Numbers have zeros in the same places: text of mostly Latin letters in UTF-16 in every second
/// byte, ids of 32 bits in every fourth.
fn without_signature(bytes: &[u8]) -> Option<FirstBytes> {
    let start = &bytes[..bytes.len().min(START)];
    let is = |size: usize, fits: &dyn Fn(&[u8]) -> bool| {
        let numbers = start.chunks_exact(size);
        let all = numbers.len();
        all >= 32 && 20 * numbers.filter(|number| fits(number)).count() >= 19 * all
    };
    let is_ascii = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    let in_utf_16 = |fix| Some(format(b"", "text in UTF-16", fix));
    if is(2, &|pair| pair[1] == 0 && is_ascii(pair[0])) {
        return in_utf_16("`iconv -f UTF-16LE -t UTF-8 FILE` prints it as UTF-8");
    }
    if is(2, &|pair| pair[0] == 0 && is_ascii(pair[1])) {
        return in_utf_16("`iconv -f UTF-16BE -t UTF-8 FILE` prints it as UTF-8");
    }
    let is_id = |number: &[u8]| number[3] == 0 && number[2] <= 2 && number[..2] != [0, 0];
    if is(4, &is_id) {
        return Some(format(b"", "numbers of 32 bits", IDS));
    }
    (!is_utf_8(start)).then_some(BINARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_first_bytes() {
        let utf_16 = |text: &str, order: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(order).collect()
        };
        let text = "Plain letters, one after the other.\n".repeat(3);
        for (bytes, what) in [
            (b"\x1f\x8b\x08rest".to_vec(), Some("a gzip file")),
            (b"\x28\xb5\x2f\xfdrest".to_vec(), Some("a Zstandard file")),
            (
                b"\xef\xbb\xbfx".to_vec(),
                Some("text with a byte order mark"),
            ),
            (b"\x93NUMPY\x01\0".to_vec(), Some("a NumPy array")),
            (
                utf_16("\u{feff}a", u16::to_le_bytes),
                Some("text in UTF-16"),
            ),
            (utf_16(&text, u16::to_le_bytes), Some("text in UTF-16")),
            (utf_16(&text, u16::to_be_bytes), Some("text in UTF-16")),
            (b"\xff\xfe\0\0a\0\0\0".to_vec(), Some("text in UTF-32")),
            (text.into_bytes(), None),
            ("汉字".repeat(99).into_bytes(), None),
            ("a汉字".repeat(999).into_bytes(), None),
            (vec![0; 999], Some("binary data")),
            (
                (300..400u32).flat_map(u32::to_le_bytes).collect(),
                Some("numbers of 32 bits"),
            ),
            (
                (300..400u16).flat_map(u16::to_le_bytes).collect(),
                Some("binary data"),
            ),
            (Vec::new(), None),
        ] {
            assert_eq!(
                FirstBytes::of(&bytes).map(|found| found.what),
                what,
                "{bytes:?}"
            );
        }
    }
}
