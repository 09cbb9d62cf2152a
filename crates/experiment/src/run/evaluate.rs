//! Evaluation: the trained weights under each variant at each test length, scored in host f64.

use crate::plan::memory::{self, MemoryLimit, TaskSizes};
use crate::run::attention_distance::Profile;
use crate::run::model::{rebuild, rebuild_encoding, upload};
use crate::run::score::{Test, score};
use crate::spec::eval::changes_with_length;
use crate::spec::scores::{empty_row, unsupported};
use crate::spec::{EvalSpec, RunSpec, TestLen};
use anyhow::Result;
use burn::tensor::Device;
use posenc::EncodingConfig;
use records::record::{EvalRow, EvalStatus};
use rundir::Weights;
use std::time::Instant;
use support::signals;
use tasks::Task;
use tiny_transformer::Transformer;

/// What one evaluation cost.
pub struct Cost {
    /// Seconds.
    pub secs: f64,
    /// Bytes of memory that were expected to be needed.
    pub memory_bytes: u64,
}

/// Evaluates every variant at every length that fits into `limit` and calls `progress(row, cost)`
/// after each. `None` if a signal asked to stop before the end.
///
/// # Errors
///
/// If a variant needs a parameter that the weights lack, which validation rules out.
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
    let mut trained = TrainedModel {
        spec,
        weights,
        device,
        model: Some(rebuild(spec, &spec.model.pe, weights, device)?),
    };
    let sizes = TaskSizes::of(task, &eval.test_lens);
    let parameters = weights.count("");
    for variant in &eval.variants {
        for (index, (test_len, encoding)) in eval.test_lens.iter().zip(&variant.pe).enumerate() {
            let started = Instant::now();
            let positions = variant
                .positions
                .get(index)
                .unwrap_or(&spec.model.positions);
            // Lengths of a config count the task's units, positions and memory count tokens.
            let seq_len = task.seq_len(*test_len);
            let memory_bytes =
                memory::evaluation(limit.memory, spec, eval, variant, index, parameters, &sizes);
            let left_out = |status, reason| empty_row(&variant.name, *test_len, status, reason);
            // Unsupported first: it holds on every machine, while a skipped row is tried again with
            // more memory.
            let largest = spec.model.coordinates.largest(task, *test_len, positions);
            let reason = unsupported(spec, encoding, positions, seq_len, &largest);
            let mut row = if let Some(reason) = reason {
                left_out(EvalStatus::Unsupported, reason)
            } else if let Some(reason) = limit.excess(memory_bytes) {
                left_out(EvalStatus::Skipped, reason)
            } else {
                // What this evaluation needs, and the peak reported with it, are its own.
                kernels::free_buffers();
                memory::forget_peak(limit.memory, device);
                let facts = encoding.facts(&spec.model.transformer.shape());
                let test = Test {
                    variant: &variant.name,
                    test_len: *test_len,
                    from_len: eval.test_lens.from(index),
                    eval,
                    positions,
                    seed: spec.seed,
                    coordinates: spec.model.coordinates,
                    denominators: spec.model.transformer.may_divide_by_zero(),
                    greedy: eval.decode.is_greedy(&facts, positions),
                    cached: !changes_with_length(&facts, positions),
                };
                match trained.row(encoding, &test, task)? {
                    Some(row) => row,
                    None => return Ok(None),
                }
            };
            row.from_len = eval.test_lens.from(index);
            let secs = started.elapsed().as_secs_f64();
            progress(&row, &Cost { secs, memory_bytes });
            rows.push(row);
        }
    }
    Ok(Some(rows))
}

/// The trained weights as a model, whose encoding changes from one evaluation to the next.
struct TrainedModel<'a> {
    spec: &'a RunSpec,
    weights: &'a Weights,
    device: &'a Device,
    /// `None` only after an error, which ends the evaluation.
    model: Option<Transformer>,
}

impl TrainedModel<'_> {
    /// Scores one variant at one length; `None` if a signal asked to stop.
    fn row(
        &mut self,
        encoding: &EncodingConfig,
        test: &Test<'_>,
        task: &dyn Task,
    ) -> Result<Option<EvalRow>> {
        let rebuilt = || rebuild_encoding(self.spec, encoding, self.weights, self.device);
        let Some(model) = self.model.take() else {
            return Ok(None);
        };
        // The blocks stay on the device; only the encoding is another.
        let model = model.with_encoding(rebuilt()?);
        let Some(mut row) = score(test, task, &model, self.device) else {
            return Ok(None);
        };
        if !test.eval.attention_distance || row.status != EvalStatus::Ok {
            self.model = Some(model);
            return Ok(Some(row));
        }
        // Reading the weights needs the unfused path, so the distances take a second pass.
        let plain = rebuilt()?;
        let mut profile = Profile::new(model, rebuilt()?);
        for part in test.parts(task) {
            let rows = part.first_row..part.first_row + part.batch.rows;
            let lengths = rows.map(|row| task.row_len(part.length, row)).collect();
            let tokens = upload(&part.batch, self.device).0;
            profile.add(tokens, lengths, &part.positions);
            if signals::asked().is_some() {
                return Ok(None);
            }
        }
        row.metrics.extend(profile.metrics());
        self.model = Some(profile.into_model(plain));
        Ok(Some(row))
    }
}

/// Rows for a model that diverged: there is nothing to evaluate.
pub fn diverged_rows(eval: &EvalSpec, reason: &str) -> Vec<EvalRow> {
    let row = |name: &str, length: &TestLen| EvalRow {
        from_len: length.from(),
        ..empty_row(name, length.to(), EvalStatus::Diverged, reason.to_owned())
    };
    eval.variants
        .iter()
        .flat_map(|variant| {
            let lengths = eval.test_lens.written().iter();
            lengths.map(|length| row(&variant.name, length))
        })
        .collect()
}
