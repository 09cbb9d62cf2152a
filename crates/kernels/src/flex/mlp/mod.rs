//! The feed-forward block: norm, product, activation, product and the residual sum, chunk by chunk.
//!
//! The intermediate values of a chunk of rows stay in L2. In `f32` the inputs of the activation are
//! saved for the backward pass, packed; with bfloat16 parts they are recomputed, as everything else
//! is, which costs less than reading it from memory.

mod backward;

use super::activation::{gelu_forward, swiglu_forward};
use super::buffer_pool::Buffer;
use super::gemm::{Accumulate, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use super::norm::Norm;
use super::op::{FusedOp, required};
use super::partial_sums::{CHUNK, NormTensors, weight};
use super::tensors::{contiguous, tensor};
use super::threads::{copy_of, for_each, map};
use crate::Matmul;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// `x + down(activation(up(norm(x))))` of x, scale, shift, up, gate and down, of which shift and gate
/// are optional.
pub(super) struct Mlp {
    pub(super) eps: f64,
    pub(super) matmul: Matmul,
}

impl FusedOp<6> for Mlp {
    type Saved = Saved;

    fn forward(&self, inputs: [Option<FlexTensor>; 6], tracked: bool) -> (FlexTensor, Saved) {
        let [x, scale, shift, up, gate, down] = inputs.map(|x| x.map(contiguous));
        let norm = NormTensors {
            scale: required(scale),
            shift,
            eps: self.eps,
        };
        let weights = Weights {
            up: required(up),
            gate,
            down: required(down),
        };
        forward(required(x), norm, weights, tracked, self.matmul)
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, _: [bool; 6]) -> [Option<FlexTensor>; 6] {
        backward::backward(saved, grad)
    }
}

/// What the backward pass needs.
pub(crate) struct Saved {
    x: FlexTensor,
    norm: NormTensors,
    weights: Weights<FlexTensor>,
    /// `norm(x) up` and, with a gate, `norm(x) gate`, each chunk of rows packed. Empty where they
    /// are recomputed.
    inner: Vec<Buffer>,
    matmul: Matmul,
}

/// One value per weight.
struct Weights<T> {
    up: T,
    gate: Option<T>,
    down: T,
}

/// Whether the inputs of the activation are saved for the backward pass: reading them back is faster
/// than recomputing them with `f32` products, but slower than with bfloat16 parts.
fn saves_inner(matmul: Matmul) -> bool {
    matmul == Matmul::F32
}

/// `[d, ff]`.
fn sizes(weights: &Weights<FlexTensor>) -> [usize; 2] {
    weights.up.shape().dims()
}

/// The share of a weight in the product for one panel of the activation.
#[derive(Clone, Copy)]
enum Share {
    /// Columns of `up` and `gate`.
    Columns,
    ColumnsTransposed,
    /// Rows of `down`.
    Rows,
    RowsTransposed,
}

/// Prepares these weights panel by panel, in parallel; a missing weight gives no panels.
fn by_panel<'a, const N: usize>(
    weights: [Option<(&'a FlexTensor, Share)>; N],
    [d, ff]: [usize; 2],
    matmul: Matmul,
) -> [Vec<Rhs<'a>>; N] {
    let tasks = |(w, share)| Panel::steps(ff, matmul).map(move |panel| (w, share, panel));
    let made = map(
        weights.into_iter().flatten().flat_map(tasks).collect(),
        N * d * ff,
        |(w, share, panel): (&'a FlexTensor, Share, Panel)| {
            let (matrix, columns) = (weight(w), panel.columns());
            match share {
                Share::Columns => matrix
                    .column_range(columns)
                    .as_rhs(panel.count, matmul)
                    .prepared(),
                Share::ColumnsTransposed => {
                    matrix.column_range(columns).as_rhs_transposed(d, matmul)
                }
                Share::Rows => matrix.row_range(columns).as_rhs(d, matmul).prepared(),
                Share::RowsTransposed => matrix
                    .row_range(columns)
                    .as_rhs_transposed(panel.count, matmul),
            }
        },
    );
    let (mut made, panels) = (made.into_iter(), Panel::steps(ff, matmul).count());
    weights.map(|weight| {
        made.by_ref()
            .take(if weight.is_some() { panels } else { 0 })
            .collect()
    })
}

/// Length of the widest panel.
fn widest(rows: usize, cols: usize, matmul: Matmul) -> usize {
    Panel::steps(cols, matmul)
        .next()
        .map_or(0, |panel| panel.range(rows).len())
}

/// The forward pass of a chunk of rows.
struct Chunk<'a> {
    x: &'a [f32],
    /// Holds `x` before, the output after.
    y: &'a mut [f32],
    /// Receive the inputs of the activation, if they are saved.
    up: Option<&'a mut [f32]>,
    gate: Option<&'a mut [f32]>,
}

impl Chunk<'_> {
    /// `panels` are those of up, gate and down.
    fn forward(
        mut self,
        norm: Norm<'_>,
        panels: &[Vec<Rhs<'_>>; 3],
        [d, ff]: [usize; 2],
        matmul: Matmul,
    ) {
        let [up_panels, gate_panels, down_panels] = panels;
        let rows = self.x.len() / d;
        let longest = widest(rows, ff, matmul);
        let (mut normed, mut active) = (Buffer::new(self.x.len()), Buffer::new(longest));
        // What is not saved needs room for one panel.
        let missing = [
            self.up.is_none(),
            self.gate.is_none() && !gate_panels.is_empty(),
        ];
        let [mut up_scratch, mut gate_scratch] =
            missing.map(|needed| Buffer::new(if needed { longest } else { 0 }));
        norm.forward(self.x, &mut normed, &mut [[0.0; 2]; CHUNK][..rows]);
        let normed = Matrix::row_major(&normed, rows, d, d)
            .as_lhs(matmul)
            .prepared();
        // Panel by panel, so that the activation is still in L1 for the second product.
        for (i, panel) in Panel::steps(ff, matmul).enumerate() {
            let range = panel.range(rows);
            let project = |weight: &Rhs<'_>, target: &mut [f32]| {
                multiply(
                    &normed,
                    weight,
                    MatrixMut::packed(target, rows, panel.count),
                    Accumulate::Overwrite,
                );
            };
            let (scratch, active) = (0..range.len(), &mut active[..range.len()]);
            let up = match &mut self.up {
                Some(up) => &mut up[range.clone()],
                None => &mut up_scratch[scratch.clone()],
            };
            project(&up_panels[i], up);
            match gate_panels.get(i) {
                Some(weight) => {
                    let gate = match &mut self.gate {
                        Some(gate) => &mut gate[range],
                        None => &mut gate_scratch[scratch],
                    };
                    project(weight, gate);
                    swiglu_forward(gate, up, active);
                }
                None => gelu_forward(up, active),
            }
            let active = Matrix::packed(&*active, rows, panel.count).as_lhs(matmul);
            multiply(
                &active,
                &down_panels[i],
                MatrixMut::row_major(self.y, rows, d, d),
                Accumulate::Add,
            );
        }
    }
}

fn forward(
    x: FlexTensor,
    norm: NormTensors,
    weights: Weights<FlexTensor>,
    tracked: bool,
    matmul: Matmul,
) -> (FlexTensor, Saved) {
    let [d, ff] = sizes(&weights);
    let shape: [usize; 2] = x.shape().dims();
    let gate = weights.gate.as_ref().map(|gate| (gate, Share::Columns));
    let shares = [
        Some((&weights.up, Share::Columns)),
        gate,
        Some((&weights.down, Share::Rows)),
    ];
    let panels = by_panel(shares, [d, ff], matmul);
    let mut y = copy_of(x.storage());
    let saved = if tracked && saves_inner(matmul) {
        shape[0] * padded(ff)
    } else {
        0
    };
    let mut inner: Vec<Buffer> = (0..if gate.is_some() { 2 } else { 1 })
        .map(|_| Buffer::new(saved))
        .collect();
    let mut parts = inner
        .iter_mut()
        .map(|buffer| buffer.chunks_mut((CHUNK * padded(ff)).max(1)));
    let (mut up, mut gate) = (parts.next().expect("there is always one"), parts.next());
    let tasks = x
        .storage::<f32>()
        .chunks(CHUNK * d)
        .zip(y.chunks_mut(CHUNK * d))
        .map(|(x, y)| Chunk {
            x,
            y,
            up: up.next(),
            gate: gate.as_mut().and_then(Iterator::next),
        })
        .collect();
    for_each(tasks, shape[0] * d * ff / 16, |chunk: Chunk<'_>| {
        chunk.forward(norm.view(), &panels, [d, ff], matmul);
    });
    drop(panels);
    let saved = Saved {
        x,
        norm,
        weights,
        inner,
        matmul,
    };
    (tensor(y, shape), saved)
}
