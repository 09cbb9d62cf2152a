//! What a planned run costs: arithmetic, memory and time.

use crate::plan::memory::{self, Memory, MemoryLimit, TaskSizes};
use crate::plan::planned::PlannedRun;
use crate::spec::scores::unsupported;
use crate::spec::{RunSpec, VariantSpec};
use serde::Serialize;
use tasks::Task;

/// Speed of one process that time estimates assume, in FLOP/s: about that of the quickstart's
/// workers on the machine of `docs/performance.md`.
pub const ASSUMED_FLOPS: f64 = 8e10;

/// Memory of one evaluation.
#[derive(Debug, Serialize)]
pub struct PlannedEvaluation {
    /// The variant.
    pub variant: String,
    /// The length, in the task's unit.
    pub test_len: usize,
    /// Estimated peak memory of a process that does nothing else.
    pub memory_bytes: u64,
}

/// Floating-point operations of a matrix product that take as long as one number of a bias in a
/// forward pass. They are many because elementwise operations are bound by memory. Measured over
/// the biases of `configs/catalogue.toml`.
const BIAS_NUMBER: f64 = 75.0;

/// Floating-point operations that take as long as a training step spends outside its products: 0.7
/// ms. Measured on copying with 8 rows of 17 tokens, width 16, one layer.
const STEP: f64 = 5.6e7;

/// Floating-point operations of a run: 6 per parameter and token in training, 2 in evaluation, plus
/// attention and, in as many operations as their time takes, the bias of the encoding and the rest
/// of the steps.
pub fn flops(run: &PlannedRun) -> f64 {
    let spec = &run.job.spec;
    let (seq_len, rows) = (spec.train.seq_len, spec.train.batch_size);
    let per_token = 6.0 * run.parameters as f64 + 3.0 * attention(spec, seq_len, rows);
    let eval = run.eval_tokens as f64 * read_on_average(spec, run);
    run.train_tokens as f64 * per_token + spec.train.steps as f64 * STEP + eval
}

/// Operations of attention for each token of a batch of `rows` rows.
fn attention(spec: &RunSpec, length: usize, rows: usize) -> f64 {
    let model = &spec.model.transformer;
    // Two products for each key, Q K^T and weights V, of two operations per dimension.
    let products = 4.0 * model.head_dim as f64;
    let bias = BIAS_NUMBER * bias_numbers(spec, rows);
    (model.n_heads * model.n_layers * length) as f64 * (products + bias)
}

/// Operations for each token that an evaluation at a length reads.
fn read(spec: &RunSpec, parameters: u64, length: usize) -> f64 {
    let rows = spec.eval.batch_tokens / length.max(1);
    2.0 * parameters as f64 + 0.5 * attention(spec, length, rows)
}

/// Operations for each token that the evaluations of a run read, over its test lengths.
fn read_on_average(spec: &RunSpec, run: &PlannedRun) -> f64 {
    let (mut operations, mut all) = (0.0, 0.0);
    for (&length, &rows) in run.sizes.seq_lens.iter().zip(&run.sizes.rows) {
        let tokens = rows as f64 * length as f64;
        operations += tokens * read(spec, run.parameters, length);
        all += tokens;
    }
    if all > 0.0 { operations / all } else { 0.0 }
}

/// Estimated seconds of an evaluation on one CPU process, without decoding: under each variant, one
/// pass over the test rows of each length that it can read and that fits into `limit`.
pub fn evaluation_secs(
    spec: &RunSpec,
    task: &dyn Task,
    parameters: u64,
    limit: MemoryLimit,
) -> f64 {
    let (eval, sizes) = (&spec.eval, TaskSizes::of(task, &spec.eval.test_lens));
    let of_row = |variant: &VariantSpec, index: usize, length: usize| {
        let (seq_len, encoding) = (task.seq_len(length), &variant.pe[index]);
        let positions = variant.positions.get(index);
        let positions = positions.unwrap_or(&spec.model.positions);
        let largest = spec.model.coordinates.largest(task, length, positions);
        let of = limit.memory;
        let bytes = memory::evaluation(of, spec, eval, variant, index, parameters, &sizes);
        let is_left_out = limit.excess(bytes).is_some()
            || unsupported(spec, encoding, positions, seq_len, &largest).is_some();
        let tokens = task.test_rows(length) as f64 * seq_len as f64;
        if is_left_out {
            0.0
        } else {
            tokens * read(spec, parameters, seq_len)
        }
    };
    let rows = eval.variants.iter().flat_map(|variant| {
        let lengths = eval.test_lens.iter().enumerate();
        lengths.map(move |(index, length)| of_row(variant, index, *length))
    });
    rows.sum::<f64>() / ASSUMED_FLOPS
}

/// Numbers that the bias of the trained encoding takes for each logit. One that reads positions
/// only is computed once for all rows of a batch.
fn bias_numbers(spec: &RunSpec, rows: usize) -> f64 {
    let model = &spec.model.transformer;
    let facts = memory::facts_in(model, &spec.model.pe, model.dropout == 0.0);
    let numbers = facts.bias_workspace + facts.bias_work;
    if facts.hooks.content_bias || facts.hooks.output_bias {
        numbers
    } else if memory::is_materialised(&facts, &spec.model.positions) {
        numbers / rows.max(1) as f64
    } else {
        0.0
    }
}

/// Peak memory of a run: the larger of its training, with the largest of the scores taken on the
/// way, and its largest evaluation.
pub fn memory_bytes(of: Memory, run: &PlannedRun) -> u64 {
    let evaluations = evaluations(of, run);
    let training = memory::training(of, &run.job.spec, run.parameters, &run.sizes);
    // The program and the corpus are there once.
    let beside = training - memory::resident(of, &run.sizes).min(training);
    let eval = &run.job.spec.eval;
    // The trained encoding is the first variant.
    let trained = eval.variants.first().map(|variant| variant.name.as_str());
    let bytes = evaluations.iter().map(|evaluation| {
        let during = Some(evaluation.variant.as_str()) == trained
            && eval.during.contains(&evaluation.test_len);
        evaluation.memory_bytes + if during { beside } else { 0 }
    });
    let scored = scored_in_stages(of, run).map(|bytes| bytes + beside);
    bytes.chain(scored).chain([training]).max().unwrap_or(0)
}

/// Memory of the scores that stages with other encodings take while training.
fn scored_in_stages(of: Memory, run: &PlannedRun) -> impl Iterator<Item = u64> {
    let spec = &run.job.spec;
    let mut steps = 0;
    let ends = spec.train.stages.iter().map(move |stage| {
        steps += stage.steps;
        (steps, stage)
    });
    let changed = ends.filter(|(_, stage)| stage.pe.is_some());
    changed.flat_map(move |(end, _)| {
        let spec = spec.after(end);
        let eval = spec.eval.while_training();
        let bytes = eval.iter().flat_map(|eval| {
            let sizes = &run.sizes;
            let lengths = spec.eval.test_lens.iter().enumerate();
            let scored = lengths.filter(|(_, length)| eval.during.contains(length));
            let trained = spec.eval.variants.first();
            scored.filter_map(move |(index, _)| Some((trained?, index, sizes)))
        });
        let bytes = bytes.map(|(variant, index, sizes)| {
            memory::evaluation(of, &spec, &spec.eval, variant, index, run.parameters, sizes)
        });
        bytes.collect::<Vec<u64>>()
    })
}

/// The evaluations of a run, each with its memory.
pub fn evaluations(of: Memory, run: &PlannedRun) -> Vec<PlannedEvaluation> {
    let spec = &run.job.spec;
    let cells = spec.eval.variants.iter().flat_map(|variant| {
        let lengths = spec.eval.test_lens.iter().enumerate();
        lengths.map(|(index, test_len)| PlannedEvaluation {
            variant: variant.name.clone(),
            test_len: *test_len,
            memory_bytes: memory::evaluation(
                of,
                spec,
                &spec.eval,
                variant,
                index,
                run.parameters,
                &run.sizes,
            ),
        })
    });
    cells.collect()
}
