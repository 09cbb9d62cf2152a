//! The backward pass of the feed-forward block.

use super::weights::{Saved, Share, Weights, by_panel, saves_inner, sizes, widest};
use crate::Matmul;
use crate::flex::activation::{gelu_backward, swiglu_backward, swiglu_forward};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Lhs, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use crate::flex::norm::Norm;
use crate::flex::partial_sums::{CHUNK, NormPartialSums, PartialSums, group_rows, store};
use crate::flex::tensors::contiguous;
use crate::flex::threads::for_each;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// The gradients of x, scale, shift, up, gate and down.
#[expect(
    clippy::too_many_lines,
    reason = "cuts ten buffers into the tasks' shares"
)]
pub(super) fn backward(saved: &Saved, grad: FlexTensor) -> [Option<FlexTensor>; 6] {
    let [d, ff] = sizes(&saved.weights);
    let shape: [usize; 2] = saved.x.shape().dims();
    let norm = saved.norm.view();
    let matmul = saved.matmul;
    let weights = PreparedWeights::new(&saved.weights, [d, ff], matmul);
    let rows = group_rows(shape[0]);
    let groups = shape[0].div_ceil(rows.max(1));
    let mut grad = contiguous(grad);
    let mut sums = Weights {
        up: PartialSums::new(groups, [d, ff]),
        gate: saved
            .weights
            .gate
            .as_ref()
            .map(|_| PartialSums::new(groups, [d, ff])),
        down: PartialSums::new(groups, [ff, d]),
    };
    let mut norm_sums = NormPartialSums::new(groups, Some(norm));
    {
        // Empty where nothing is saved.
        let inner = |which: usize| {
            saved
                .inner
                .get(which)
                .map_or(&[][..], |inner| inner)
                .chunks((rows * padded(ff)).max(1))
        };
        let (mut up, mut gate) = (inner(0), inner(1));
        let mut gate_sums = sums.gate.as_mut().map(PartialSums::groups);
        let inputs = saved.x.storage::<f32>().chunks(rows * d);
        let outputs = grad
            .storage_mut::<f32>()
            .chunks_mut(rows * d)
            .zip(sums.up.groups())
            .zip(sums.down.groups())
            .zip(norm_sums.groups());
        let task = |(x, (((grad, up_sum), down_sum), norm_sum))| {
            let sums = Weights {
                up: up_sum,
                gate: gate_sums.as_mut().and_then(Iterator::next),
                down: down_sum,
            };
            Group {
                x,
                inner: [up.next(), gate.next()],
                grad,
                sums,
                norm_sum,
            }
        };
        let tasks = inputs.zip(outputs).map(task).collect();
        for_each(tasks, shape[0] * d * ff / 8, |group: Group<'_>| {
            group.run(norm, &weights, [d, ff], matmul)
        });
    }
    let [scale, shift] = norm_sums.totals();
    [
        Some(grad),
        scale,
        shift,
        Some(sums.up.total()),
        sums.gate.map(PartialSums::total),
        Some(sums.down.total()),
    ]
}

/// The weights of the backward pass, panel by panel.
struct PreparedWeights<'a> {
    /// `up` and `gate` themselves, if the inputs of the activation are recomputed.
    recompute: [Vec<Rhs<'a>>; 2],
    /// Transposed, as the others.
    up: Vec<Rhs<'a>>,
    gate: Vec<Rhs<'a>>,
    down: Vec<Rhs<'a>>,
}

impl<'a> PreparedWeights<'a> {
    fn new(weights: &'a Weights<FlexTensor>, sizes: [usize; 2], matmul: Matmul) -> Self {
        let (up, gate) = (Some(&weights.up), weights.gate.as_ref());
        let share = |w: Option<_>, share| w.map(|w| (w, share));
        let recompute = [up, gate].map(|w| {
            let w = w.filter(|_| !saves_inner(matmul));
            share(w, Share::Columns)
        });
        let shares = [
            recompute[0],
            recompute[1],
            share(up, Share::ColumnsTransposed),
            share(gate, Share::ColumnsTransposed),
            share(Some(&weights.down), Share::RowsTransposed),
        ];
        let [up_again, gate_again, up, gate, down] = by_panel(shares, sizes, matmul);
        Self {
            recompute: [up_again, gate_again],
            up,
            gate,
            down,
        }
    }
}

/// Recomputes one panel of the input of the activation in `scratch`, if there is such a weight.
fn recompute_preactivation<'b>(
    normed: Option<&Lhs<'_>>,
    weight: Option<&Rhs<'_>>,
    scratch: &'b mut [f32],
    [rows, cols]: [usize; 2],
) -> Option<&'b [f32]> {
    let (normed, weight) = normed.zip(weight)?;
    let scratch = &mut scratch[..rows * padded(cols)];
    multiply(
        normed,
        weight,
        MatrixMut::packed(&mut *scratch, rows, cols),
        Accumulate::Overwrite,
    );
    Some(scratch)
}

/// A task: the rows that share one partial sum of every weight.
struct Group<'a> {
    x: &'a [f32],
    /// Inputs of the activation from `up` and `gate`, if they were saved.
    inner: [Option<&'a [f32]>; 2],
    /// The gradient of the output before, of `x` after.
    grad: &'a mut [f32],
    sums: Weights<&'a mut [f32]>,
    norm_sum: &'a mut [f32],
}

/// Scratch of a task, for one chunk of rows or one panel of the activation.
struct Scratch {
    grad_normed: Buffer,
    active: Buffer,
    /// Gradients of the inputs of the activation.
    grad_up: Buffer,
    grad_gate: Buffer,
    /// Recomputed inputs of the activation.
    recomputed: [Buffer; 2],
}

impl Scratch {
    fn new(weights: &PreparedWeights<'_>, [d, ff]: [usize; 2], matmul: Matmul) -> Self {
        let panel = |needed: bool| Buffer::new(if needed { widest(CHUNK, ff, matmul) } else { 0 });
        Self {
            grad_normed: Buffer::new(CHUNK * d),
            active: panel(true),
            grad_up: panel(true),
            grad_gate: panel(!weights.gate.is_empty()),
            recomputed: weights
                .recompute
                .each_ref()
                .map(|weights| panel(!weights.is_empty())),
        }
    }
}

/// A chunk of rows: its operands, prepared once for all panels.
struct Chunk<'a> {
    rows: usize,
    /// `norm(x)`, if the inputs of the activation are recomputed.
    normed: Option<Lhs<'a>>,
    normed_transposed: Lhs<'a>,
    grad_lhs: Lhs<'a>,
    grad_rhs: Rhs<'a>,
    inner: [Option<&'a [f32]>; 2],
    /// Whether this is the first chunk of its group.
    accumulate: Accumulate,
}

impl Group<'_> {
    fn run(
        mut self,
        norm: Norm<'_>,
        weights: &PreparedWeights<'_>,
        [d, ff]: [usize; 2],
        matmul: Matmul,
    ) {
        let mut scratch = Scratch::new(weights, [d, ff], matmul);
        let mut normed = Buffer::new(CHUNK * d);
        let mut inner = self
            .inner
            .map(|inner| inner.unwrap_or_default().chunks(CHUNK * padded(ff)));
        let mut accumulate = Accumulate::Overwrite;
        let grad = std::mem::take(&mut self.grad);
        for (x, grad) in self.x.chunks(CHUNK * d).zip(grad.chunks_mut(CHUNK * d)) {
            let rows = x.len() / d;
            let mut stats = [[0.0; 2]; CHUNK];
            let normed = &mut normed[..x.len()];
            // norm(x) is not saved but computed again.
            norm.forward(x, normed, &mut stats[..rows]);
            {
                let normed = Matrix::row_major(&*normed, rows, d, d);
                let grad = Matrix::row_major(&*grad, rows, d, d);
                let chunk = Chunk {
                    rows,
                    normed: (!saves_inner(matmul)).then(|| normed.as_lhs(matmul).prepared()),
                    normed_transposed: normed.as_lhs_transposed(matmul).prepared(),
                    grad_lhs: grad.as_lhs(matmul).prepared(),
                    grad_rhs: grad.as_rhs(d, matmul).prepared(),
                    inner: inner.each_mut().map(Iterator::next),
                    accumulate,
                };
                // Panel by panel, so that the result of one step is still in L1 for the next.
                for (i, panel) in Panel::steps(ff, matmul).enumerate() {
                    self.panel(i, &panel, &chunk, weights, [d, ff], matmul, &mut scratch);
                }
            }
            let grad_normed = &mut scratch.grad_normed[..x.len()];
            norm.backward(x, &stats[..rows], grad_normed, self.norm_sum);
            // The residual sum: `grad` also reaches x directly.
            store(grad, grad_normed, Accumulate::Add);
            // Only the first chunk of the group replaces what the buffers held.
            accumulate = Accumulate::Add;
        }
    }

    /// One panel of the activation for one chunk of rows.
    #[expect(
        clippy::too_many_arguments,
        clippy::too_many_lines,
        reason = "the loop body of `run`: five products that share their operands"
    )]
    fn panel(
        &mut self,
        i: usize,
        panel: &Panel,
        chunk: &Chunk<'_>,
        weights: &PreparedWeights<'_>,
        [d, ff]: [usize; 2],
        matmul: Matmul,
        scratch: &mut Scratch,
    ) {
        let shape @ [rows, cols] = [chunk.rows, panel.count];
        let (range, weight_range) = (panel.range(rows), panel.range(d));
        let active = &mut scratch.active[..range.len()];
        let grad_up = &mut scratch.grad_up[..range.len()];
        // The gradient of the activation's output, replaced below by that of its input.
        multiply(
            &chunk.grad_lhs,
            &weights.down[i],
            MatrixMut::packed(&mut *grad_up, rows, cols),
            Accumulate::Overwrite,
        );
        let [up_scratch, gate_scratch] = &mut scratch.recomputed;
        let saved = chunk
            .inner
            .map(|inner| inner.map(|inner| &inner[range.clone()]));
        let recompute = |which: usize| (chunk.normed.as_ref(), weights.recompute[which].get(i));
        let up = saved[0].or_else(|| {
            let (normed, weight) = recompute(0);
            recompute_preactivation(normed, weight, up_scratch, shape)
        });
        let gate = saved[1].or_else(|| {
            let (normed, weight) = recompute(1);
            recompute_preactivation(normed, weight, gate_scratch, shape)
        });
        let up = up.expect("there is always one");
        let grad_normed = &mut scratch.grad_normed[..rows * d];
        // From the gradient of one input of the activation to those of its weight and of `normed`.
        let mut project_back =
            |grad: &[f32], sum: &mut [f32], transposed: &Rhs<'_>, accumulate: Accumulate| {
                let grad = Matrix::packed(grad, rows, cols);
                // grad weight = norm(x)^T grad, [d, cols].
                multiply(
                    &chunk.normed_transposed,
                    &grad.as_rhs(cols, matmul),
                    MatrixMut::packed(&mut sum[weight_range.clone()], d, cols),
                    chunk.accumulate,
                );
                // grad norm(x) += grad weight^T, [rows, d].
                let grad_normed = MatrixMut::row_major(&mut *grad_normed, rows, d, d);
                multiply(&grad.as_lhs(matmul), transposed, grad_normed, accumulate);
            };
        // The first panel replaces the numbers of the chunk before.
        let accumulate = if i == 0 {
            Accumulate::Overwrite
        } else {
            Accumulate::Add
        };
        match gate {
            None => {
                // Also fills `active`, which the gradient of down needs below.
                gelu_backward(up, active, grad_up);
                project_back(grad_up, self.sums.up, &weights.up[i], accumulate);
            }
            Some(gate) => {
                let grad_gate = &mut scratch.grad_gate[..range.len()];
                swiglu_forward(gate, up, active);
                swiglu_backward(gate, up, grad_up, grad_gate);
                project_back(grad_up, self.sums.up, &weights.up[i], accumulate);
                let sum = self.sums.gate.as_mut().expect("a gate takes a gradient");
                // `up` has written `grad_normed` for this panel already, so the gate adds.
                project_back(grad_gate, sum, &weights.gate[i], Accumulate::Add);
            }
        }
        // grad down = activation^T grad, the rows of this panel.
        multiply(
            &Matrix::packed(&*active, rows, cols).as_lhs_transposed(matmul),
            &chunk.grad_rhs,
            MatrixMut::packed(&mut *self.sums.down, ff, d).row_range(panel.columns()),
            chunk.accumulate,
        );
    }
}
