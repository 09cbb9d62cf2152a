//! The text that every build of Longreach carries: `rust-2026`, the `.rs` files of twelve crates in
//! the versions of `rust-2026.txt`.
//!
//! The build script packs the sources that Cargo has unpacked. Nothing of them is committed, and
//! their hashes are: the text stays what it is when dependencies move on.

use flate2::read::DeflateDecoder;
use std::io::Read;

/// Index and text, deflated.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rust-2026"));

include!(concat!(env!("OUT_DIR"), "/sizes.rs"));

/// A text of many files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its crates as `NAME VERSION`, sorted.
    pub packages: Vec<String>,
    /// Names of its files, `NAME-VERSION/src/lib.rs`, and their sizes in bytes, sorted by name.
    pub files: Vec<(String, usize)>,
    /// The files one after the other.
    pub bytes: Vec<u8>,
}

/// The text `rust-2026`.
///
/// # Panics
///
/// Never: the build script wrote what is read here.
pub fn rust_2026() -> Text {
    let mut decoder = DeflateDecoder::new(PACKED);
    let mut read = |size: usize| {
        let mut bytes = vec![0; size];
        decoder
            .read_exact(&mut bytes)
            .expect("packed by the build script");
        bytes
    };
    let (index, bytes) = (read(INDEX), read(BYTES));
    let index = String::from_utf8(index).expect("written as text");
    let files = index.lines().map(|line| {
        let (size, name) = line.split_once(' ').expect("size and name");
        (name.to_owned(), size.parse().expect("a size"))
    });
    let list = include_str!("../rust-2026.txt").lines();
    let packages = list.filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        format!("{} {}", words[0], words[1])
    });
    Text {
        packages: packages.collect(),
        files: files.collect(),
        bytes,
    }
}
