//! Bytes as a step log; see `longreach_fuzz::checkpoints`.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use longreach_fuzz::checkpoints::{Ground, log};
use longreach_fuzz::memory::{Meter, bounded};
use std::sync::LazyLock;

#[global_allocator]
static METER: Meter = Meter;

static GROUND: LazyLock<Ground> = LazyLock::new(Ground::new);

fuzz_target!(
    init: {
        LazyLock::force(&GROUND);
    },
    |data: &[u8]| -> Corpus { if bounded(data, || log(data, &GROUND)) { Corpus::Keep } else { Corpus::Reject } }
);
