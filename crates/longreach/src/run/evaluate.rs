//! Evaluation: the trained weights under each variant at each test length, scored in host f64.

use crate::plan::memory::{self, MemoryLimit};
use crate::plan::spec::{Coordinates, EvalSpec, RunSpec, changes_with_length, trained_path};
use crate::run::attention_distance::Profile;
use crate::run::greedy::greedy;
use crate::run::train::upload;
use crate::signals;
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

/// Mean loss over the last predictions of every window of text.
pub const LAST_LOSS_NATS: &str = "last_loss_nats";

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
    /// Whether each row of the batch just added is exact.
    exact: Vec<bool>,
    /// Exact rows and rows of each group.
    groups: Vec<(u64, u64)>,
}

/// Evaluates every variant at every length that fits into `limit`; `progress(row, cost)` hears of
/// each result. `None` if a signal asked to stop before the end.
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
    let mut model = rebuild(spec, &spec.model.pe, weights, device)?;
    for variant in &eval.variants {
        for (index, (test_len, encoding)) in eval.test_lens.iter().zip(&variant.pe).enumerate() {
            let started = Instant::now();
            let positions = variant
                .positions
                .get(index)
                .unwrap_or(&spec.model.positions);
            let seq_len = task.seq_len(*test_len);
            let memory_bytes = memory::evaluation(
                spec,
                encoding,
                weights.count(""),
                eval.batch_tokens,
                seq_len,
            );
            let row = match (
                unsupported(spec, encoding, positions, seq_len),
                limit.excess(memory_bytes),
            ) {
                (Some(reason), _) => {
                    empty_row(&variant.name, *test_len, EvalStatus::Unsupported, reason)
                }
                (None, Some(reason)) => {
                    empty_row(&variant.name, *test_len, EvalStatus::Skipped, reason)
                }
                (None, None) => {
                    memory::forget_peak();
                    let facts = encoding.facts(&spec.model.transformer.shape());
                    let named = encoding;
                    model = model.with_encoding(rebuild_encoding(spec, named, weights, device)?);
                    let test = Test {
                        variant: &variant.name,
                        test_len: *test_len,
                        eval,
                        positions,
                        seed: spec.seed,
                        coordinates: spec.model.coordinates,
                        greedy: eval.decode.is_greedy(&facts, positions),
                        cached: !changes_with_length(&facts, positions),
                    };
                    let Some(mut row) = score(&test, task, &model, device) else {
                        return Ok(None);
                    };
                    if eval.attention_distance && row.status == EvalStatus::Ok {
                        let [watched, plain] =
                            [(); 2].map(|()| rebuild_encoding(spec, named, weights, device));
                        let mut profile = Profile::new(model, watched?);
                        let all = test.batches(task).try_for_each(|(batch, positions)| {
                            profile.add(upload(&batch, device).0, &positions);
                            signals::asked().map_or(Ok(()), Err)
                        });
                        if all.is_err() {
                            return Ok(None);
                        }
                        row.metrics.extend(profile.metrics());
                        model = profile.into_model(plain?);
                    }
                    row
                }
            };
            progress(
                &row,
                &Cost {
                    secs: started.elapsed().as_secs_f64(),
                    memory_bytes,
                },
            );
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
pub fn rebuild(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    weights: &Weights,
    device: &Device,
) -> Result<Transformer> {
    with_saved(weights, device, |init| {
        Transformer::new(&spec.model.transformer, encoding, init)
    })
}

fn rebuild_encoding(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    weights: &Weights,
    device: &Device,
) -> Result<posenc::Encoding> {
    let trained = |path: &str| match path.strip_prefix("encoding.") {
        Some(inner) => format!("encoding.{}", trained_path(&spec.model.pe, encoding, inner)),
        None => path.to_owned(),
    };
    with_saved_at(weights, device, trained, |init| {
        encoding.init(&spec.model.transformer.shape(), &init.scope("encoding"))
    })
}

/// Builds a module whose parameters are asked for by path from saved weights.
fn with_saved<T>(
    weights: &Weights,
    device: &Device,
    build: impl FnOnce(&Init<'_>) -> T,
) -> Result<T> {
    with_saved_at(weights, device, str::to_owned, build)
}

/// Like [`with_saved`]; `place` gives the path that a parameter has in the saved weights.
fn with_saved_at<T>(
    weights: &Weights,
    device: &Device,
    place: impl Fn(&str) -> String,
    build: impl FnOnce(&Init<'_>) -> T,
) -> Result<T> {
    let missing = std::cell::RefCell::new(None);
    let source = |path: &str, shape: &[usize], _| {
        weights.values(&place(path), shape).unwrap_or_else(|error| {
            missing.borrow_mut().get_or_insert(error);
            vec![0.0; shape.iter().product()]
        })
    };
    let built = build(&Init::new(device, &source));
    missing.take().map_or(Ok(built), Err)
}

/// Rows for a model that diverged: there is nothing to evaluate.
pub fn diverged_rows(eval: &EvalSpec, reason: &str) -> Vec<EvalRow> {
    let row =
        |name: &str, test_len| empty_row(name, test_len, EvalStatus::Diverged, reason.to_owned());
    eval.variants
        .iter()
        .flat_map(|variant| {
            eval.test_lens
                .iter()
                .map(|test_len| row(&variant.name, *test_len))
        })
        .collect()
}

/// Why an encoding cannot be evaluated at a length, if its positions or those drawn end before it.
pub fn unsupported(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    positions: &PositionsConfig,
    seq_len: usize,
) -> Option<String> {
    if let Some(longest) = positions.max_seq_len().filter(|longest| seq_len > *longest) {
        return Some(format!(
            "{seq_len} tokens, but {} positions are drawn out of {longest}",
            positions.kind()
        ));
    }
    let (rows, limit) = (
        positions.rows(seq_len),
        encoding
            .facts(&spec.model.transformer.shape())
            .max_position?,
    );
    let reach = if rows == seq_len {
        String::new()
    } else {
        format!(" at positions up to {}", rows - 1)
    };
    (rows > limit).then(|| {
        format!(
            "{seq_len} tokens{reach}, but the {} encoding ends at max_position = {limit}",
            encoding.kind()
        )
    })
}

fn empty_row(variant: &str, test_len: usize, status: EvalStatus, reason: String) -> EvalRow {
    let (metrics, loss_by_position) = (BTreeMap::new(), Vec::new());
    EvalRow {
        variant: variant.to_owned(),
        test_len,
        status,
        reason: Some(reason),
        metrics,
        loss_by_position,
    }
}

/// One cell of a run's table: a variant at a length.
struct Test<'a> {
    variant: &'a str,
    test_len: usize,
    eval: &'a EvalSpec,
    positions: &'a PositionsConfig,
    seed: u64,
    coordinates: Coordinates,
    /// Whether answers are decoded token by token.
    greedy: bool,
    /// Whether what a model has made of earlier tokens stays right when more come.
    cached: bool,
}

impl Test<'_> {
    /// The test set, with its positions.
    fn batches(&self, task: &dyn Task) -> impl Iterator<Item = (Batch, Positions)> {
        let batches = TestSet::new(task, self.test_len)
            .batches((self.eval.batch_tokens / task.seq_len(self.test_len)).max(1));
        batches.enumerate().map(|(index, batch)| {
            // Sampled positions are drawn anew for every batch, from a stream of this length alone.
            let mut stream = Stream::new(
                self.seed,
                &format!("test-positions {}", self.test_len),
                index as u64,
            );
            let positions = self
                .positions
                .sample(batch.seq_len, &mut |bound| stream.below(bound));
            (batch, self.coordinates.of(task, self.test_len, positions))
        })
    }
}

/// `None` if a signal asked to stop.
fn score(
    test: &Test<'_>,
    task: &dyn Task,
    model: &Transformer,
    device: &Device,
) -> Option<EvalRow> {
    let Test {
        variant,
        test_len,
        eval,
        ..
    } = *test;
    let seq_len = task.seq_len(test_len);
    let mut sums = Sums {
        nll: vec![0.0; seq_len],
        counted: vec![0; seq_len],
        right: 0,
        exact_rows: 0,
        rows: 0,
        exact: Vec::new(),
        groups: vec![(0, 0); task.groups().len()],
    };
    let scoring = task.scoring();
    for (index, (batch, positions)) in test.batches(task).enumerate() {
        if signals::asked().is_some() {
            return None;
        }
        let decoded = if test.greedy {
            // Where positions are drawn, a decoder that does not know how long the sequence will be
            // draws them anew for every token.
            let mut stream = Stream::new(
                test.seed,
                &format!("decode-positions {test_len}"),
                index as u64,
            );
            let mut positions = |seq_len: usize| {
                let positions = test
                    .positions
                    .sample(seq_len, &mut |bound| stream.below(bound));
                test.coordinates.of(task, test_len, positions)
            };
            Some(greedy(
                model,
                &batch,
                task.reads_its_answers(),
                &mut positions,
                test.cached,
                device,
            )?)
        } else {
            None
        };
        let first_row = sums.rows as usize;
        sums.add(&batch, &positions, model, device, scoring, decoded);
        for (row, exact) in std::mem::take(&mut sums.exact).into_iter().enumerate() {
            if let Some(group) = task.group(test_len, first_row + row) {
                sums.groups[group].0 += u64::from(exact);
                sums.groups[group].1 += 1;
            }
        }
    }
    let tokens: u64 = sums.counted.iter().sum();
    let loss_nats = sums.nll.iter().sum::<f64>() / tokens as f64;
    if !loss_nats.is_finite() {
        return Some(empty_row(
            variant,
            test_len,
            EvalStatus::Diverged,
            format!("the loss at length {test_len} is not finite"),
        ));
    }
    let mut metrics = BTreeMap::from([(
        "loss_nats".to_owned(),
        Metric {
            value: loss_nats,
            n: tokens,
        },
    )]);
    let share = |part: u64, n: u64| Metric {
        value: part as f64 / n as f64,
        n,
    };
    if scoring != Scoring::LanguageModel {
        metrics.insert("token_accuracy".to_owned(), share(sums.right, tokens));
    }
    if scoring == Scoring::Answer {
        metrics.insert("exact_match".to_owned(), share(sums.exact_rows, sums.rows));
    }
    for ((name, _), (exact, rows)) in task
        .groups()
        .iter()
        .zip(&sums.groups)
        .filter(|(_, (_, rows))| *rows > 0)
    {
        metrics.insert(format!("exact_match_{name}"), share(*exact, *rows));
    }
    if let Some(last) = eval.last_tokens {
        let end = seq_len - last.min(seq_len)..seq_len;
        let n: u64 = sums.counted[end.clone()].iter().sum();
        metrics.insert(
            LAST_LOSS_NATS.to_owned(),
            Metric {
                value: sums.nll[end].iter().sum::<f64>() / n as f64,
                n,
            },
        );
    }
    let loss_by_position = if scoring == Scoring::Answer {
        Vec::new()
    } else {
        sums.by_position()
    };
    Some(EvalRow {
        variant: variant.to_owned(),
        test_len,
        status: EvalStatus::Ok,
        reason: None,
        metrics,
        loss_by_position,
    })
}

/// The most likely token at every place, row by row.
pub fn likeliest(logits: Tensor<3>) -> Vec<i64> {
    let guesses: Tensor<2, Int> = logits.argmax(2).squeeze_dim(2);
    guesses
        .into_data()
        .convert::<i64>()
        .try_to_vec::<i64>()
        .expect("data was just converted to i64")
}

impl Sums {
    /// `decoded` holds the answers where they are not those of this pass.
    fn add(
        &mut self,
        batch: &Batch,
        positions: &Positions,
        model: &Transformer,
        device: &Device,
        scoring: Scoring,
        decoded: Option<Vec<i64>>,
    ) {
        let (inputs, targets) = upload(batch, device);
        let (nll, logits) = model.nll(
            inputs,
            targets,
            positions,
            &Pass {
                max_logits: MAX_LOGITS,
                ..Pass::default()
            },
        );
        let nll = nll
            .into_data()
            .convert::<f64>()
            .try_to_vec::<f64>()
            .expect("data was just converted to f64");
        let guesses =
            decoded.or_else(|| (scoring != Scoring::LanguageModel).then(|| likeliest(logits)));
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
            self.exact.push(exact);
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
            (counted > 0).then_some(PositionBin {
                from,
                to,
                loss_nats,
            })
        });
        bins.collect()
    }
}
