//! Evaluation: the trained weights under each variant at each test length, scored in host f64.

use crate::memory::{self, MemoryLimit};
use crate::signals;
use crate::spec::{EvalSpec, RunSpec};
use crate::train::upload;
use anyhow::Result;
use burn::tensor::{Device, Int, Tensor};
use posenc::{EncodingConfig, Init, Positions, PositionsConfig};
use results::record::{EvalRow, EvalStatus, Metric, PositionBin};
use rundir::Weights;
use std::collections::BTreeMap;
use std::time::Instant;
use tasks::{Batch, Scoring, Stream, Task, TestSet};
use tiny_transformer::{Pass, Transformer};

/// Bins that loss by position is stored in at most.
const POSITION_BINS: usize = 64;

/// Attention logits held at once, in numbers; 16 MiB each for the few tensors of a block.
pub const MAX_LOGITS: usize = 1 << 22;

/// What one evaluation cost.
pub struct Cost {
    /// Seconds.
    pub secs: f64,
    /// Bytes of memory that were expected to be needed.
    pub memory_bytes: u64,
}

/// Sums over a test set, by position and by row.
struct Sums {
    nll: Vec<f64>,
    counted: Vec<u64>,
    right: u64,
    exact_rows: u64,
    rows: u64,
}

/// Evaluates every variant at every length that fits into `limit`; `progress(row, cost)` hears of each result. `None` if a signal asked to
/// stop before the end.
///
/// # Errors
///
/// If a variant asks for a parameter the weights do not have, which validation rules out.
pub fn evaluate(
    spec: &RunSpec,
    eval: &EvalSpec,
    task: &dyn Task,
    weights: &Weights,
    device: &Device,
    limit: MemoryLimit,
    mut progress: impl FnMut(&EvalRow, &Cost),
) -> Result<Option<Vec<EvalRow>>> {
    let mut rows = Vec::new();
    let mut model = rebuild(spec, &spec.encoding, weights, device)?;
    for variant in &eval.variants {
        for (index, (test_len, encoding)) in eval.test_lens.iter().zip(&variant.encodings).enumerate() {
            let started = Instant::now();
            let positions = variant.positions.get(index).unwrap_or(&spec.positions);
            let seq_len = task.seq_len(*test_len);
            let memory_bytes = memory::evaluation(spec, encoding, weights.count(""), eval.batch_tokens, seq_len);
            let row = match (unsupported(spec, encoding, positions, seq_len), limit.excess(memory_bytes)) {
                (Some(reason), _) => empty_row(&variant.name, *test_len, EvalStatus::Unsupported, reason),
                (None, Some(reason)) => empty_row(&variant.name, *test_len, EvalStatus::Skipped, reason),
                (None, None) => {
                    memory::forget_peak();
                    let encoding = rebuild_encoding(spec, encoding, weights, device)?;
                    model = model.with_encoding(encoding);
                    let test =
                        Test { variant: &variant.name, test_len: *test_len, batch_tokens: eval.batch_tokens, positions, seed: spec.seed };
                    let Some(row) = score(&test, task, &model, device) else { return Ok(None) };
                    row
                }
            };
            progress(&row, &Cost { secs: started.elapsed().as_secs_f64(), memory_bytes });
            rows.push(row);
        }
    }
    Ok(Some(rows))
}

/// The model of a spec with saved weights, under `encoding`.
///
/// # Errors
///
/// If the weights lack a parameter or have another shape for it.
pub fn rebuild(spec: &RunSpec, encoding: &EncodingConfig, weights: &Weights, device: &Device) -> Result<Transformer> {
    with_saved(weights, device, |init| Transformer::new(&spec.model, encoding, init))
}

fn rebuild_encoding(spec: &RunSpec, encoding: &EncodingConfig, weights: &Weights, device: &Device) -> Result<posenc::Encoding> {
    with_saved(weights, device, |init| encoding.init(&spec.model.shape(), &init.scope("encoding")))
}

/// Builds a module whose parameters are asked for by path from saved weights.
fn with_saved<T>(weights: &Weights, device: &Device, build: impl FnOnce(&Init<'_>) -> T) -> Result<T> {
    let missing = std::cell::RefCell::new(None);
    let source = |path: &str, shape: &[usize], _| {
        weights.values(path, shape).unwrap_or_else(|error| {
            missing.borrow_mut().get_or_insert(error);
            vec![0.0; shape.iter().product()]
        })
    };
    let built = build(&Init::new(device, &source));
    missing.take().map_or(Ok(built), Err)
}

/// Rows for a model that diverged: there is nothing to evaluate.
pub fn diverged_rows(eval: &EvalSpec, reason: &str) -> Vec<EvalRow> {
    let row = |name: &str, test_len| empty_row(name, test_len, EvalStatus::Diverged, reason.to_owned());
    eval.variants.iter().flat_map(|variant| eval.test_lens.iter().map(|test_len| row(&variant.name, *test_len))).collect()
}

fn unsupported(spec: &RunSpec, encoding: &EncodingConfig, positions: &PositionsConfig, seq_len: usize) -> Option<String> {
    if let Some(longest) = positions.max_seq_len().filter(|longest| seq_len > *longest) {
        return Some(format!("{seq_len} tokens, but {} positions are drawn out of {longest}", positions.kind()));
    }
    let (rows, limit) = (positions.rows(seq_len), encoding.facts(&spec.model.shape()).max_position?);
    let reach = if rows == seq_len { String::new() } else { format!(" at positions up to {}", rows - 1) };
    (rows > limit).then(|| format!("{seq_len} tokens{reach}, but the {} encoding ends at max_position = {limit}", encoding.kind()))
}

fn empty_row(variant: &str, test_len: usize, status: EvalStatus, reason: String) -> EvalRow {
    let (metrics, loss_by_position) = (BTreeMap::new(), Vec::new());
    EvalRow { variant: variant.to_owned(), test_len, status, reason: Some(reason), metrics, loss_by_position }
}

/// One cell of a run's table: a variant at a length.
struct Test<'a> {
    variant: &'a str,
    test_len: usize,
    batch_tokens: usize,
    positions: &'a PositionsConfig,
    seed: u64,
}

/// `None` if a signal asked to stop.
fn score(test: &Test<'_>, task: &dyn Task, model: &Transformer, device: &Device) -> Option<EvalRow> {
    let Test { variant, test_len, batch_tokens, .. } = *test;
    let seq_len = task.seq_len(test_len);
    let mut sums = Sums { nll: vec![0.0; seq_len], counted: vec![0; seq_len], right: 0, exact_rows: 0, rows: 0 };
    let scoring = task.scoring();
    for (index, batch) in TestSet::new(task, test_len).batches((batch_tokens / seq_len).max(1)).enumerate() {
        if signals::asked().is_some() {
            return None;
        }
        // Sampled positions are drawn anew for every batch, from a stream of this length alone.
        let mut stream = Stream::new(test.seed, &format!("test-positions {test_len}"), index as u64);
        let positions = test.positions.sample(batch.seq_len, &mut |bound| stream.below(bound));
        sums.add(&batch, &positions, model, device, scoring);
    }
    let tokens: u64 = sums.counted.iter().sum();
    let loss_nats = sums.nll.iter().sum::<f64>() / tokens as f64;
    if !loss_nats.is_finite() {
        return Some(empty_row(variant, test_len, EvalStatus::Diverged, format!("the loss at length {test_len} is not finite")));
    }
    let mut metrics = BTreeMap::from([("loss_nats".to_owned(), Metric { value: loss_nats, n: tokens })]);
    let share = |part: u64, n: u64| Metric { value: part as f64 / n as f64, n };
    if scoring != Scoring::LanguageModel {
        metrics.insert("token_accuracy".to_owned(), share(sums.right, tokens));
    }
    if scoring == Scoring::Answer {
        metrics.insert("exact_match".to_owned(), share(sums.exact_rows, sums.rows));
    }
    let loss_by_position = if scoring == Scoring::Answer { Vec::new() } else { sums.by_position() };
    Some(EvalRow { variant: variant.to_owned(), test_len, status: EvalStatus::Ok, reason: None, metrics, loss_by_position })
}

impl Sums {
    fn add(&mut self, batch: &Batch, positions: &Positions, model: &Transformer, device: &Device, scoring: Scoring) {
        let (inputs, targets) = upload(batch, device);
        let (nll, logits) = model.nll(inputs, targets, positions, &Pass { max_logits: MAX_LOGITS, ..Pass::default() });
        let nll = nll.into_data().convert::<f64>().try_to_vec::<f64>().expect("data was just converted to f64");
        let guesses = (scoring != Scoring::LanguageModel).then(|| {
            let guesses: Tensor<2, Int> = logits.argmax(2).squeeze_dim(2);
            guesses.into_data().convert::<i64>().try_to_vec::<i64>().expect("data was just converted to i64")
        });
        for row in 0..batch.rows {
            let mut exact = true;
            for position in 0..batch.seq_len {
                let at = row * batch.seq_len + position;
                if !batch.counted[at] {
                    continue;
                }
                self.nll[position] += nll[at];
                self.counted[position] += 1;
                if let Some(guesses) = &guesses {
                    let right = guesses[at] == i64::from(batch.targets[at]);
                    self.right += u64::from(right);
                    exact &= right;
                }
            }
            self.exact_rows += u64::from(exact);
            self.rows += 1;
        }
    }

    /// Means over bins of equal width; bins in which nothing counts are left out.
    fn by_position(&self) -> Vec<PositionBin> {
        let width = self.nll.len().div_ceil(POSITION_BINS);
        let bins = (0..self.nll.len()).step_by(width).filter_map(|from| {
            let to = (from + width).min(self.nll.len());
            let counted: u64 = self.counted[from..to].iter().sum();
            let loss_nats = self.nll[from..to].iter().sum::<f64>() / counted as f64;
            (counted > 0).then_some(PositionBin { from, to, loss_nats })
        });
        bins.collect()
    }
}
