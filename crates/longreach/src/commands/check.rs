//! `longreach check`: what a config would run, and what it would cost.

use crate::plan::memory;
use crate::plan::planner::{Plan, PlannedRun};
use serde::Serialize;

/// Arithmetic rate of one process that time estimates assume, in FLOP/s: about what the
/// quickstart's workers reach on the machine of `docs/performance.md`.
pub const ASSUMED_FLOPS: f64 = 8e10;

/// A run of the plan, as printed.
#[derive(Debug, Serialize)]
pub struct PlanRow {
    /// Hash of the resolved spec.
    pub run_id: String,
    /// Values on the axes.
    pub labels: Vec<String>,
    /// Seed.
    pub seed: u64,
    /// Whether a record is there already.
    pub recorded: bool,
    /// Trainable numbers.
    pub parameters: u64,
    /// Tokens trained on.
    pub train_tokens: u64,
    /// Tokens read in evaluation.
    pub eval_tokens: u64,
    /// Variants evaluated, `trained` first.
    pub variants: Vec<String>,
    /// Estimated peak memory.
    pub memory_bytes: u64,
    /// Estimated peak memory of the training.
    pub train_memory_bytes: u64,
    /// The same of each evaluation.
    pub evaluations: Vec<PlannedEvaluation>,
    /// Estimated seconds on one CPU process.
    pub estimated_secs: f64,
}

/// What one evaluation would need.
#[derive(Debug, Serialize)]
pub struct PlannedEvaluation {
    /// The variant.
    pub variant: String,
    /// The length, in the task's unit.
    pub test_len: usize,
    /// Estimated peak memory of a process that does nothing else.
    pub memory_bytes: u64,
}

/// The rows of a plan; `recorded` tells which runs are done.
pub fn rows(plan: &Plan, recorded: impl Fn(&str) -> bool) -> Vec<PlanRow> {
    let row = |run: &PlannedRun| PlanRow {
        run_id: run.job.run_id.clone(),
        labels: run
            .job
            .labels
            .iter()
            .map(|label| label.text.clone())
            .collect(),
        seed: run.job.spec.seed,
        recorded: recorded(&run.job.run_id),
        parameters: run.parameters,
        train_tokens: run.train_tokens,
        eval_tokens: run.eval_tokens,
        variants: run
            .job
            .spec
            .eval
            .variants
            .iter()
            .map(|variant| variant.name.clone())
            .collect(),
        memory_bytes: memory_bytes(run),
        train_memory_bytes: memory::training(&run.job.spec, run.parameters),
        evaluations: evaluations(run),
        estimated_secs: flops(run) / ASSUMED_FLOPS,
    };
    plan.runs.iter().map(row).collect()
}

/// Floating-point operations of a run: 6 per parameter and token in training, 2 in evaluation, plus
/// attention.
pub fn flops(run: &PlannedRun) -> f64 {
    let spec = &run.job.spec;
    let attention = |length: usize| {
        let inner = (spec.model.transformer.n_heads
            * spec.model.transformer.head_dim
            * spec.model.transformer.n_layers) as f64;
        4.0 * inner * length as f64
    };
    let dense = run.parameters as f64;
    let train = run.train_tokens as f64 * (6.0 * dense + 3.0 * attention(spec.train.seq_len));
    let longest = spec.eval.test_lens.iter().copied().max().unwrap_or(1);
    let eval = run.eval_tokens as f64 * (2.0 * dense + 0.5 * attention(longest));
    train + eval
}

/// Peak memory of a run: the larger of its training and its largest evaluation.
pub fn memory_bytes(run: &PlannedRun) -> u64 {
    let evaluations = evaluations(run)
        .into_iter()
        .map(|evaluation| evaluation.memory_bytes);
    evaluations
        .chain([memory::training(&run.job.spec, run.parameters)])
        .max()
        .unwrap_or(0)
}

fn evaluations(run: &PlannedRun) -> Vec<PlannedEvaluation> {
    let spec = &run.job.spec;
    let cells = spec.eval.variants.iter().flat_map(|variant| {
        let lengths = spec
            .eval
            .test_lens
            .iter()
            .zip(&run.test_seq_lens)
            .zip(&variant.pe);
        lengths.map(|((test_len, seq_len), encoding)| PlannedEvaluation {
            variant: variant.name.clone(),
            test_len: *test_len,
            memory_bytes: memory::evaluation(
                spec,
                encoding,
                run.parameters,
                spec.eval.batch_tokens,
                *seq_len,
            ),
        })
    });
    cells.collect()
}

/// The plan as a table with totals, for a terminal.
pub fn render(plan: &Plan, rows: &[PlanRow]) -> String {
    let mut table = crate::commands::list::table([
        "run",
        "method",
        "seed",
        "parameters",
        "train tokens",
        "eval tokens",
        "memory",
        "time",
        "",
    ]);
    for row in rows {
        table.add_row([
            row.run_id[..8].to_owned(),
            row.labels.join(", "),
            row.seed.to_string(),
            short(row.parameters as f64),
            short(row.train_tokens as f64),
            format!(
                "{} ({})",
                short(row.eval_tokens as f64),
                row.variants.join(", ")
            ),
            bytes(row.memory_bytes as f64),
            duration(row.estimated_secs),
            if row.recorded {
                "recorded".to_owned()
            } else {
                String::new()
            },
        ]);
    }
    let left: Vec<&PlanRow> = rows.iter().filter(|row| !row.recorded).collect();
    // An empty sum of floats is -0.
    let seconds = left
        .iter()
        .map(|row| row.estimated_secs)
        .fold(0.0, |sum, secs| sum + secs);
    let tokens = left
        .iter()
        .map(|row| row.train_tokens)
        .fold(0, u64::saturating_add);
    let largest = rows.iter().map(|row| row.memory_bytes).max().unwrap_or(0);
    let recorded = rows.len() - left.len();
    format!(
        "{}: {} ({} recorded)\n{table}\nto do: {}, {} trained on, about {} of CPU time in one \
         process, {} of memory per process\n(time assumes {:.0} GFLOP/s; memory is an estimate; \
         {} prints measured figures in timings.json)",
        plan.name,
        count(rows.len(), "run"),
        recorded,
        count(left.len(), "run"),
        short(tokens as f64) + " tokens",
        duration(seconds),
        bytes(largest as f64),
        ASSUMED_FLOPS / 1e9,
        "every run",
    )
}

/// `1 run`, `2 runs`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `117 k`, `4.1 M`.
pub fn short(n: f64) -> String {
    let (value, unit) = match n {
        n if n >= 1e9 => (n / 1e9, " G"),
        n if n >= 1e6 => (n / 1e6, " M"),
        n if n >= 1e3 => (n / 1e3, " k"),
        n => return format!("{n:.0}"),
    };
    if value < 10.0 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// `512 MiB`, `1.5 GiB`.
pub fn bytes(n: f64) -> String {
    let gib = n / f64::from(1 << 30);
    if gib >= 1.0 {
        format!("{gib:.1} GiB")
    } else {
        format!("{:.0} MiB", gib * 1024.0)
    }
}

/// `8 s`, `2 min`, `1.5 h`.
pub fn duration(secs: f64) -> String {
    match secs {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
