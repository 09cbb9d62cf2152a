//! What a training step asks the allocator for. Counts do not depend on the machine's load, so that
//! a change that gives up reuse of memory or takes an operation apart again shows here and not in a
//! noisy time.

mod common;

use burn::tensor::Device;
use common::{Scratch, TINY};
use longreach::plan::planner::{Surroundings, plan};
use longreach::run::train::train;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations and bytes of each step but the first two of a model of two layers, with the bytes of
/// one residual stream.
fn per_step(encoding: &str) -> (Vec<[usize; 2]>, usize) {
    let scratch = Scratch::with(TINY);
    let overrides = [
        &format!("axes.\"model.pe\"=[{encoding}]"),
        "seeds=[0]",
        "model.d_model=64",
        "model.n_layers=2",
        "train.train_len=40",
        "train.batch_size=32",
    ];
    let plan = plan(&scratch.config, &overrides.map(str::to_owned)).unwrap();
    let spec = &plan.runs[0].job.spec;
    let task = Surroundings::of(scratch.directory.path())
        .build(&spec.task, spec.train.train_len, &spec.eval.test_lens, 0)
        .unwrap();
    let mut seen = Vec::new();
    let mut before = ALLOCATOR.stats();
    train(spec, task.as_ref(), &Device::flex(), None, &mut |_, _| {
        let now = ALLOCATOR.stats();
        seen.push([
            now.allocations - before.allocations,
            now.bytes_allocated - before.bytes_allocated,
        ]);
        before = now;
        Ok(true)
    })
    .unwrap_or_else(|_| panic!("trained"));
    (
        seen.split_off(2),
        spec.train.batch_size * spec.train.seq_len * spec.model.d_model * 4,
    )
}

#[test]
fn a_step_allocates_little_and_always_the_same() {
    for encoding in ["{kind=\"rope\"}", "{kind=\"alibi\"}", "{kind=\"t5\"}"] {
        let (steps, stream) = per_step(encoding);
        let most = steps.iter().fold([0, 0], |most, step| {
            [most[0].max(step[0]), most[1].max(step[1])]
        });
        println!(
            "{encoding}: {} allocations, {:.1} residual streams",
            most[0],
            most[1] as f64 / stream as f64
        );
        assert!(
            most[0] < 5_000,
            "{encoding}: {} allocations in a step",
            most[0]
        );
        assert!(
            most[1] < 12 * stream,
            "{encoding}: {} bytes in a step, {stream} in a residual stream",
            most[1]
        );
    }
}
