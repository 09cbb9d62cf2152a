//! The tables of a configuration as written, read strictly. Values are checked against each other
//! later, by the module of their section. `[model]` is declared in `model.rs`, `[train]` in
//! `spec/train.rs`, beside what they become.

use super::model::ModelSection;
use crate::spec::train::TrainSection;
use crate::spec::{Decode, LONGEST, TestLens};
use posenc::PositionsConfig;
use std::path::PathBuf;
use tasks::{Rows, TaskConfig};
use toml::{Table, Value};

config::options! {
/// One cell of an experiment as written.
[""] pub(crate) struct Experiment {
    name: String
        => Text, r#""theta-base""#, "Names the experiment: its directory below `runs/`. 1 to 100 of `a-z`, `0-9`, `.`, `_`, `-`, beginning with a letter or digit.";
    title: Option<String> = or("the name")
        => Text, r#""RoPE by base""#, "Headline of the report, at most 200 characters.";
    seeds: Vec<u64> = list([0])
        => Wholes(0, u64::MAX >> 1), "[0, 1, 2]", "Seeds of weights, batches, lengths, positions and dropout; each is a run.";
    half_seeds: Vec<u64> = unset("[]")
        => Wholes(0, u64::MAX >> 1), "[0, 1, 2]", "Seeds that are also run for half the steps, to mark scores that still move.";
    task: TaskConfig
        => Task, r#"{ kind = "copy" }"#, "What the model learns; the keys of every kind are in [tasks](tasks.md).";
}
tables {
    select: Option<SelectSection>;
    model: ModelSection = required;
    train: TrainSection = required;
    eval: EvalSection = required;
    report: ReportSection;
}
}

config::options! {
/// `[select]`.
["select."] pub(crate) struct SelectSection {
    over: Table
        => Axes, r#"{ "train.lr" = [1e-3, 3e-3, 1e-2] }"#, "What is tried for each method: lists of values by quoted dotted key.";
    by: Option<String> = or("the task's first metric")
        => Text, r#""loss_nats""#, "The metric that chooses, at the training length on rows that no result is scored on.";
    seeds: Vec<u64> = list([100, 101])
        => Wholes(0, u64::MAX >> 1), "[100, 101, 102]", "Seeds of the selection runs, none of them in `seeds`.";
    steps: f64 = 0.3333333333333333
        => Number(1e-3, 1.0), "0.5", "Share of train.steps that a selection run has.", "it is a share of train.steps";
}
}

config::options! {
/// `[eval]`.
["eval."] pub(crate) struct EvalSection {
    test_lens: TestLens
        => Lengths(1, LONGEST), "[64, 128, \"129..256\"]", "1 to 1000 lengths to test at, in the task's unit; `\"51..100\"`: every row draws its own.";
    seed: u64 = 0
        => Whole(0, u64::MAX >> 1), "1", "Seed of the test sets.";
    rows: Rows = unset(r#""test""#)
        => Name(&["test", "selection"]), r#""selection""#, "Which rows are scored: those of results, or those that `[select]` chooses by.";
    batch_tokens: usize = 4096
        => Whole(1, 1 << 24), "16384", "Tokens per batch of evaluation; a longer sequence is a batch by itself.";
    decode: Decode = unset(r#""teacher_forced""#)
        => Name(&["teacher_forced", "greedy", "auto"]), r#""greedy""#, "How answers are read off the model; `auto` decodes greedily where the result differs.";
    last_tokens: Option<usize> = or("none")
        => Whole(1, LONGEST), "16", "Also report the loss over the last predictions of every window of text; at most the shortest test length.";
    attention_distance: bool = false
        => Truth, "true", "Whether the attention of every head is measured: mean distance, share of pairs without weight, scores of rotary heads.";
    every: Option<u64> = or("none")
        => Whole(1, 100_000_000), "200", "Steps between two scores taken while training; at most `train.steps`.", "the steps of the training from one scoring to the next";
    during: Option<TestLens> = or("eval.test_lens")
        => Lengths(1, LONGEST), "[64, 256]", "The test lengths scored while training, under the trained encoding; some of `test_lens`.";
}
tables {
    variants: Vec<VariantSection>;
}
}

config::options! {
/// `[[eval.variants]]`: the trained weights under a changed encoding.
["eval.variants.N."] pub struct VariantSection {
    name: String
        => Text, r#""yarn""#, "Names the variant in tables and plots.";
    when: Table = unset("every encoding")
        => EncodingKeys, r#"{ kind = "rope" }"#, "Keys and values that the trained encoding must be written with for the variant to apply.";
    set: Table = unset("{}")
        => EncodingKeys, r#"{ scaling = { kind = "yarn" } }"#, "Keys to change in the trained encoding; with `kind`, another encoding.";
    add: Option<Value> = or("none")
        => Encodings, r#"{ kind = "window" }"#, "Encodings to stack on the trained one, after `set`.";
    positions: Option<PositionsConfig> = or("model.positions")
        => Positions, r#"{ kind = "interpolated" }"#, "Where tests put their tokens under this variant.";
}
}

config::options! {
/// `[report]`: what the report holds the records against. No part of a run's identity.
["report."] pub(crate) struct ReportSection {
    claims: Option<PathBuf> = or("none")
        => Text, r#""claims.toml""#, "A file of a source's claims that the report checks the records against.";
    assertions: bool = false
        => Truth, "true", "Whether the report checks the records against expectations from the literature.";
}
}

impl Default for ReportSection {
    fn default() -> Self {
        config::options::defaults()
    }
}
