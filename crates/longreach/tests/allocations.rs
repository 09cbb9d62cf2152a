//! What a training step and an evaluation ask the allocator for. Counts do not depend on the load
//! of the machine: a change that gives up reuse of memory, or splits a fused operation, shows here
//! and not in a noisy time. A separate program, because it replaces the global allocator.

use burn::tensor::{Device, Tensor};
use experiment::plan;
use experiment::plan::planner::Plan;
use experiment::plan::surroundings::Surroundings;
use experiment::run::model::initial_model;
use experiment::run::train::train;
use posenc::Positions;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Mutex;
use tiny_transformer::Pass;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held while a test counts: the counters belong to the whole process.
static COUNTING: Mutex<()> = Mutex::new(());

/// One run of a tiny model on the copy task.
const CONFIG: &str = r#"name = "tiny"

[task]
kind = "copy"
alphabet = 4
test_rows = 8

[model]
d_model = 16
n_layers = 1
n_heads = 2

[train]
train_len = 4
steps = 6
batch_size = 4
lr = 1e-3

[eval]
test_lens = [4, 8]
"#;

/// The plan of [`CONFIG`] with an encoding and other overrides.
fn planned(encoding: &str, overrides: &[&str]) -> Plan {
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("x.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let overrides: Vec<String> = std::iter::once(format!("model.pe={encoding}"))
        .chain(overrides.iter().map(|&text| text.to_owned()))
        .collect();
    plan(&config, &overrides).unwrap_or_else(|error| panic!("{error}"))
}

/// Allocations and bytes of each step but the first two of a model of two layers, with the bytes of
/// one residual stream.
fn per_step(encoding: &str) -> (Vec<[usize; 2]>, usize) {
    let larger = [
        "model.d_model=64",
        "model.n_layers=2",
        "train.train_len=40",
        "train.batch_size=32",
    ];
    let plan = planned(encoding, &larger);
    let spec = &plan.runs[0].job.spec;
    let task = Surroundings::of(std::env::temp_dir().as_path())
        .build(
            &spec.task,
            spec.train.train_len,
            &spec.eval.test_lens,
            0,
            spec.eval.rows,
            spec.model.transformer.mask,
        )
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
        spec.train.batch_size * spec.train.seq_len * spec.model.transformer.d_model * 4,
    )
}

#[test]
fn a_step_allocates_little_and_always_the_same() {
    let _counting = COUNTING.lock().unwrap();
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
            most[0] < 6_000,
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

/// Bytes allocated by one pass over a sequence of each length, after a short pass that fills the
/// pools.
fn per_pass(encoding: &str, lengths: [usize; 2]) -> [usize; 2] {
    let plan = planned(encoding, &["model.n_heads=4"]);
    let device = Device::flex();
    let model = initial_model(&plan.runs[0].job.spec, &device).expect("a planned spec");
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

/// Nothing is held for every pair of query and key.
#[test]
fn memory_of_an_evaluation_grows_with_the_length_and_not_with_its_square() {
    let _counting = COUNTING.lock().unwrap();
    for encoding in ["{kind=\"rope\"}", "{kind=\"alibi\"}", "{kind=\"nope\"}"] {
        let [short, long] = per_pass(encoding, [2048, 8192]);
        println!("{encoding}: {short} bytes, {long} bytes for four times the length");
        assert!(
            long < 5 * short,
            "{encoding}: {short} bytes, {long} for four times the length"
        );
    }
}
