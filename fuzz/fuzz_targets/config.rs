//! Bytes as the text of an experiment; see `longreach_fuzz::plans`.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use longreach_fuzz::plans::{Ground, config};
use std::sync::LazyLock;

static GROUND: LazyLock<Ground> = LazyLock::new(|| Ground::new("config"));

fuzz_target!(
    init: {
        // SAFETY: nothing else runs yet.
        unsafe { std::env::set_var("CARGO_HOME", GROUND.cargo_home()) };
    },
    |data: &[u8]| -> Corpus { if config(data, &GROUND) { Corpus::Keep } else { Corpus::Reject } }
);
