//! One training step up to its gradients: batches, dropout, losses, and where a number that is not
//! finite began. Everything depends on the weights and (spec, step) alone.

use crate::host::values;
use crate::run::optimizer::SquaredNorms;
use crate::run::side_by_side::Models;
use crate::spec::{LengthCurriculum, RunSpec};
use burn::tensor::{Device, Int, Tensor, TensorData};
use posenc::Positions;
use std::cell::RefCell;
use tasks::{Batch, Stream, Task};
use tiny_transformer::{Observe, Pass};

/// Length of the batch of a step, in the task's unit; of rows of several lengths the longest that
/// may be drawn, to which the others are padded.
fn batch_length(spec: &RunSpec, step: u64) -> usize {
    let train = &spec.train;
    match train.length {
        LengthCurriculum::Fixed | LengthCurriculum::Mixed => train.train_len,
        LengthCurriculum::Uniform => {
            let span = (train.train_len - train.min_len + 1) as u64;
            train.min_len + Stream::new(spec.seed, "train-length", step).below(span) as usize
        }
        LengthCurriculum::Staged => train
            .stage(step)
            .map_or(train.train_len, |stage| stage.train_len),
    }
}

/// Length of each row of a step of `length = "mixed"`, in the task's unit.
pub fn row_lengths(spec: &RunSpec, step: u64) -> Vec<usize> {
    let train = &spec.train;
    let span = (train.train_len - train.min_len + 1) as u64;
    let mut stream = Stream::new(spec.seed, "train-row-lengths", step);
    let length = |_| train.min_len + stream.below(span) as usize;
    (0..train.batch_size).map(length).collect()
}

/// Tokens of a step, without padding.
pub fn tokens(spec: &RunSpec, task: &dyn Task, step: u64) -> u64 {
    if spec.train.length == LengthCurriculum::Mixed {
        let lengths = row_lengths(spec, step).into_iter();
        return lengths.map(|length| task.seq_len(length) as u64).sum();
    }
    let stage = spec.train.stage(step);
    let rows = stage.map_or(spec.train.batch_size, |stage| stage.batch_size);
    (rows * task.seq_len(batch_length(spec, step))) as u64
}

/// The rows of a step of `length = "mixed"` with their lengths, each a batch of one row. Each row
/// is drawn as the first row of a separate step: rows of one step have equal draws at any length.
fn mixed_rows(spec: &RunSpec, task: &dyn Task, step: u64) -> Vec<(usize, Batch)> {
    let first = step * spec.train.batch_size as u64;
    let lengths = row_lengths(spec, step).into_iter().zip(first..);
    let row = |(length, index)| (length, task.train_batch(length, 1, spec.seed, index));
    lengths.map(row).collect()
}

/// Rows in one batch, padded at their end; what is added is not counted.
fn padded(rows: &[(usize, Batch)], seq_len: usize) -> Batch {
    let mut batch = Batch {
        rows: rows.len(),
        seq_len,
        inputs: Vec::with_capacity(rows.len() * seq_len),
        targets: Vec::with_capacity(rows.len() * seq_len),
        counted: Vec::with_capacity(rows.len() * seq_len),
    };
    for (place, (_, row)) in rows.iter().enumerate() {
        let end = (place + 1) * seq_len;
        batch.inputs.extend(&row.inputs);
        batch.inputs.resize(end, PADDING);
        batch.targets.extend(&row.targets);
        batch.targets.resize(end, PADDING);
        batch.counted.extend(&row.counted);
        batch.counted.resize(end, false);
    }
    batch
}

/// The token that rows are padded with: every vocabulary has it.
const PADDING: i32 = 0;

/// The batch of a step of a run.
pub struct StepBatch<'a> {
    spec: &'a RunSpec,
    /// The step, counted from 0.
    step: u64,
    /// Its tokens.
    pub batch: Batch,
    /// How many of its tokens are not padding.
    pub tokens: u64,
    positions: Positions,
}

impl<'a> StepBatch<'a> {
    /// A function of the spec and the step.
    pub fn new(spec: &'a RunSpec, task: &dyn Task, step: u64) -> Self {
        let length = batch_length(spec, step);
        let (coordinates, shift) = (spec.model.coordinates, spec.coordinate_shift(step));
        let (batch, positions) = if spec.train.length == LengthCurriculum::Mixed {
            let rows = mixed_rows(spec, task, step);
            let batch = padded(&rows, task.seq_len(length));
            let lengths: Vec<usize> = rows.iter().map(|(_, row)| row.seq_len).collect();
            let positions = spec.padded_positions(&lengths, batch.seq_len, step);
            (batch, coordinates.of_padded(task, &rows, positions, shift))
        } else {
            let stage = spec.train.stage(step);
            let rows = stage.map_or(spec.train.batch_size, |stage| stage.batch_size);
            let batch = task.train_batch(length, rows, spec.seed, step);
            let positions = spec.train_positions(batch.seq_len, step);
            let positions = coordinates.moved(task, length, &batch, positions, shift);
            (batch, positions)
        };
        Self {
            spec,
            step,
            batch,
            tokens: tokens(spec, task, step),
            positions,
        }
    }

    /// Rows and tokens of a row.
    pub fn shape(&self) -> [usize; 2] {
        [self.batch.rows, self.batch.seq_len]
    }

    /// How many targets count.
    fn counted(&self) -> usize {
        let counted = self.batch.counted.iter();
        counted.filter(|counted| **counted).count()
    }

    /// Factors of one place of dropout: 0 for what is dropped.
    fn dropout(&self, site: usize, count: usize) -> Vec<f32> {
        let keep = 1.0 - self.spec.model.transformer.dropout;
        // A stream for each place of dropout: adding one does not change the draws of the others.
        let mut stream = Stream::new(self.spec.seed, &format!("dropout {site}"), self.step);
        let factor = |kept| {
            if kept {
                // Inverted dropout: the expectation is unchanged, and evaluation needs no factor.
                (1.0 / keep) as f32
            } else {
                0.0
            }
        };
        (0..count).map(|_| factor(stream.bernoulli(keep))).collect()
    }
}

/// The mean loss over the counted targets of the batch of every model, `[G]`, on the device.
pub fn losses(
    models: &Models,
    batches: &[StepBatch<'_>],
    device: &Device,
    observe: Option<&Observe<'_>>,
) -> Tensor<1> {
    let count = batches.len();
    let [rows, length] = batches[0].shape();
    let dropout = |site: usize, numbers: usize| {
        let each = batches.iter();
        each.flat_map(|batch| batch.dropout(site, numbers / count))
            .collect()
    };
    let drops = batches[0].spec.model.transformer.dropout > 0.0;
    let pass = Pass {
        // Without a limit the fused attention block also takes a materialised bias.
        max_logits: usize::MAX,
        dropout: drops.then_some(&dropout),
        observe,
        ..Pass::default()
    };
    let tokens = |of: fn(&Batch) -> &Vec<i32>| -> Tensor<2, Int> {
        let all = batches.iter().flat_map(|batch| of(&batch.batch).iter());
        let all = TensorData::new(all.copied().collect(), [count * rows, length]);
        Tensor::from_data(all, device)
    };
    let (inputs, targets) = (
        tokens(|batch| &batch.inputs),
        tokens(|batch| &batch.targets),
    );
    let shared = batches[1..]
        .iter()
        .all(|batch| batch.positions == batches[0].positions);
    let positions = batches.iter().map(|batch| batch.positions.clone());
    let positions: Vec<Positions> = positions.take(if shared { 1 } else { count }).collect();
    let nll = models.nll_of_each(inputs, targets, &positions, &pass);
    let counts: Vec<usize> = batches.iter().map(StepBatch::counted).collect();
    // All targets count, as in text: no mask is needed.
    let nll = if counts.iter().all(|counted| *counted == rows * length) {
        nll
    } else {
        let counted = batches.iter().flat_map(|batch| batch.batch.counted.iter());
        let mask = counted.map(|counted| f32::from(u8::from(*counted)));
        let mask = TensorData::new(mask.collect(), [count * rows, length]);
        nll * Tensor::<2>::from_data(mask, device)
    };
    // Over one dimension, as in the squared norms: reproducible for any number of threads.
    let sums = nll
        .reshape([count, rows * length])
        .sum_dim(1)
        .reshape([count]);
    if counts.iter().all(|counted| *counted == counts[0]) {
        return sums / counts[0] as f64;
    }
    let counts = counts.iter().map(|counted| *counted as f32);
    sums / Tensor::<1>::from_data(TensorData::new(counts.collect(), [count]), device)
}

/// The loss and the squared norm of every gradient of every model, in one transfer from the device.
pub fn to_host(losses: &Tensor<1>, norms: &SquaredNorms) -> Vec<(f64, Vec<f64>)> {
    let count = losses.dims()[0];
    // Detached: nothing here is differentiated.
    let numbers = std::iter::once(losses.clone().inner()).chain(norms.sums());
    let numbers = values::<f64>(Tensor::cat(numbers.collect(), 0).into_data());
    let (losses, squares) = numbers.split_at(count);
    let each = losses.iter().enumerate();
    each.map(|(g, loss)| (*loss, norms.of(g, squares)))
        .collect()
}

/// The first tensor of a step of model `g` of `count` that is not finite, in the order they are
/// computed: forward, then backward. `forward` runs the forward pass again.
pub fn first_not_finite(
    (g, count): (usize, usize),
    (loss, squares): &(f64, Vec<f64>),
    norms: &SquaredNorms,
    forward: impl FnOnce(&Observe<'_>),
) -> String {
    if loss.is_finite() {
        // The backward pass goes from the head to the embedding, against the order of the
        // parameters.
        let last = squares.iter().rposition(|square| !square.is_finite());
        return format!("gradient of {}", norms.names(g)[last.unwrap_or(0)]);
    }
    let first = RefCell::new(None);
    let observe = |name: &str, x: &Tensor<3>| {
        let rows = x.dims()[0] / count;
        let own = x.clone().slice_dim(0, g * rows..(g + 1) * rows);
        let values = values::<f32>(own.into_data());
        // Only the first: everything after it is not finite either.
        if first.borrow().is_none() && values.iter().any(|value| !value.is_finite()) {
            *first.borrow_mut() = Some(format!("output of {name}"));
        }
    };
    forward(&observe);
    first.into_inner().unwrap_or_else(|| "loss".to_owned())
}

/// BLAKE3 hash of a batch.
pub fn identity(batch: &Batch) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher
        // The shape first: batches of the same tokens in other rows differ.
        .update(&(batch.rows as u64).to_le_bytes())
        .update(&(batch.seq_len as u64).to_le_bytes());
    for ids in [&batch.inputs, &batch.targets] {
        ids.iter().for_each(|id| {
            hasher.update(&id.to_le_bytes());
        });
    }
    hasher.finalize().to_hex().to_string()
}
