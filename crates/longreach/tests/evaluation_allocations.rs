//! What an evaluation asks the allocator for grows as the length does: nothing is held for every
//! pair of query and key, or of blocks of them.

mod common;

use burn::tensor::{Device, Tensor};
use common::{Scratch, TINY};
use longreach::plan::planner::plan;
use longreach::run::train::initial_model;
use posenc::Positions;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use tiny_transformer::Pass;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes allocated by one pass over a sequence of each length, after a short one that made what is
/// made once.
fn per_pass(encoding: &str, lengths: [usize; 2]) -> [usize; 2] {
    let scratch = Scratch::with(TINY);
    let overrides = [
        format!("axes.\"model.pe\"=[{encoding}]"),
        "seeds=[0]".to_owned(),
        "model.n_heads=4".to_owned(),
    ];
    let plan = plan(&scratch.config, &overrides).unwrap();
    let device = Device::flex();
    let model = initial_model(&plan.runs[0].job.spec, &device);
    let pass = |length: usize| {
        let before = ALLOCATOR.stats().bytes_allocated;
        let tokens = || Tensor::zeros([1, length], &device);
        drop(
            model
                .nll(
                    tokens(),
                    tokens(),
                    &Positions::contiguous(length),
                    &Pass::default(),
                )
                .0
                .into_data(),
        );
        ALLOCATOR.stats().bytes_allocated - before
    };
    pass(64);
    lengths.map(pass)
}

#[test]
fn memory_of_an_evaluation_grows_with_the_length_and_not_with_its_square() {
    for encoding in ["{kind=\"rope\"}", "{kind=\"alibi\"}", "{kind=\"nope\"}"] {
        let [short, long] = per_pass(encoding, [2048, 8192]);
        println!("{encoding}: {short} bytes, {long} bytes for four times the length");
        assert!(
            long < 5 * short,
            "{encoding}: {short} bytes, {long} for four times the length"
        );
    }
}
