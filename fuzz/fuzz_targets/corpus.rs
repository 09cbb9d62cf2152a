//! Bytes as the files of a text corpus; see `longreach_fuzz::corpus`.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use longreach_fuzz::corpus::{Scratch, check};
use std::sync::LazyLock;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(|| Scratch::new("corpus"));

fuzz_target!(|data: &[u8]| -> Corpus { if check(data, &SCRATCH) { Corpus::Keep } else { Corpus::Reject } });
