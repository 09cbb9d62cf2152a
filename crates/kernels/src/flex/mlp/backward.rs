//! The backward pass of the feed-forward block.

use super::panel_grads::{Chunk, PanelGrads, PreparedWeights};
use super::two_rounds::backward_in_two_rounds;
use super::weights::{Saved, Weights, inputs, sizes, widest};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Lhs, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use crate::flex::live_rows::{LiveRows, unsign_zero_rows};
use crate::flex::norm::Norm;
use crate::flex::partial_sums::{CHUNK, NormPartialSums, PartialSums, slab_rows, store};
use crate::flex::tensors::PerInput;
use crate::flex::threads::for_each;
use crate::flex::two_rounds;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// The gradients of x, scale, shift, up, gate and down. `grad` is contiguous.
pub(super) fn backward(saved: &Saved, mut grad: FlexTensor) -> PerInput<6> {
    let ([d, ff], inputs) = (sizes(&saved.weights), inputs(&saved.weights));
    let shape: [usize; 2] = saved.x.shape().dims();
    let norm = saved.norm.view();
    let weights = PreparedWeights::new(&saved.weights, [d, ff]);
    let rows = slab_rows(shape[0]);
    let slabs = shape[0].div_ceil(rows.max(1));
    let sum = || PartialSums::new(slabs, [inputs, ff]);
    let mut sums = Weights {
        up: sum(),
        gate: saved.weights.gate.as_ref().map(|_| sum()),
        down: PartialSums::new(slabs, [ff, d]),
    };
    let mut norm_sums = NormPartialSums::new(slabs, Some(norm));
    let all = (&mut sums, &mut norm_sums);
    if two_rounds::pay(slabs) {
        backward_in_two_rounds(saved, grad.storage_mut(), &weights, rows, all);
    } else {
        backward_by_slabs(saved, grad.storage_mut(), &weights, rows, all);
    }
    unsign_zero_rows(grad.storage_mut(), d);
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

/// One task per slab of `rows` rows. `grad`, that of the output, becomes that of x.
fn backward_by_slabs(
    saved: &Saved,
    grad: &mut [f32],
    weights: &PreparedWeights<'_>,
    rows: usize,
    (sums, norm_sums): (&mut Weights<PartialSums>, &mut NormPartialSums),
) {
    let ([d, ff], work) = (sizes(&saved.weights), grad.len());
    let block = Block {
        norm: saved.norm.view(),
        weights,
        sizes: [d, ff],
        inputs: inputs(&saved.weights),
    };
    let mut gate_sums = sums.gate.as_mut().map(PartialSums::slabs);
    let rows_of_x = saved.x.storage::<f32>().chunks(rows * d);
    let outputs = grad
        .chunks_mut(rows * d)
        .zip(sums.up.slabs())
        .zip(sums.down.slabs())
        .zip(norm_sums.slabs());
    let task = |((x, inner), (((grad, up_sum), down_sum), norm_sum))| Slab {
        x,
        inner,
        grad,
        sums: Weights {
            up: up_sum,
            gate: gate_sums.as_mut().and_then(Iterator::next),
            down: down_sum,
        },
        norm_sum,
    };
    let tasks = rows_of_x.zip(saved.inner(rows, ff)).zip(outputs).map(task);
    for_each(tasks.collect(), work * ff / 8, |slab: Slab<'_>| {
        slab.run(block);
    });
}

/// A task: the rows that share one partial sum of every weight.
struct Slab<'a> {
    x: &'a [f32],
    /// Inputs of the activation from `up` and, where there is one, `gate`.
    inner: [Option<&'a [f32]>; 2],
    /// The gradient of the output before, of `x` after.
    grad: &'a mut [f32],
    sums: Weights<&'a mut [f32]>,
    norm_sum: &'a mut [f32],
}

/// What is common to all rows.
#[derive(Clone, Copy)]
struct Block<'a> {
    norm: Norm<'a>,
    weights: &'a PreparedWeights<'a>,
    /// D and the inner width.
    sizes: [usize; 2],
    /// Columns of what up and gate multiply.
    inputs: usize,
}

/// A chunk of the rows of a slab.
struct Rows<'a> {
    x: &'a [f32],
    grad: &'a mut [f32],
    inner: [Option<&'a [f32]>; 2],
}

impl Rows<'_> {
    /// Calls `f` with the live rows alone; the gradients of the others stay zero.
    fn of_live(self, live: &LiveRows, [d, ff]: [usize; 2], mut f: impl FnMut(Rows<'_>)) {
        let (all, count) = (self.x.len() / d, live.count());
        let mut x = Buffer::new(count * d);
        let mut grad = Buffer::new(count * d);
        live.gather(Matrix::row_major(self.x, all, d, d), &mut x);
        live.gather(Matrix::row_major(&*self.grad, all, d, d), &mut grad);
        let inner = self.inner.map(|inner| {
            let inner = Matrix::packed(inner?, all, ff);
            let mut gathered = Buffer::new(count * padded(ff));
            live.gather(inner, &mut gathered);
            Some(gathered)
        });
        f(Rows {
            x: &x,
            grad: &mut grad,
            inner: inner
                .each_ref()
                .map(|inner| inner.as_ref().map(|inner| &inner[..])),
        });
        live.scatter(&grad, d, self.grad);
    }
}

/// Scratch of a task, for one chunk of rows or one panel of the activation.
struct Scratch {
    normed: Buffer,
    grad_normed: Buffer,
    active: Buffer,
    /// Gradients of the inputs of the activation.
    grad_up: Buffer,
    grad_gate: Buffer,
}

impl Scratch {
    fn new(weights: &PreparedWeights<'_>, [d, ff]: [usize; 2], inputs: usize) -> Self {
        let panel = |needed: bool| Buffer::new(if needed { widest(CHUNK, ff) } else { 0 });
        Self {
            normed: Buffer::new(CHUNK * inputs),
            grad_normed: Buffer::new(CHUNK * d),
            active: panel(true),
            grad_up: panel(true),
            grad_gate: panel(!weights.gate.is_empty()),
        }
    }
}

/// The operands of a chunk of rows for the gradients of the weights.
struct SumOperands<'a> {
    rows: usize,
    /// Columns of `grad`.
    width: usize,
    normed_transposed: Lhs<'a>,
    grad: Rhs<'a>,
    /// Whether this is the first chunk of its slab.
    accumulate: Accumulate,
}

impl Slab<'_> {
    fn run(mut self, block: Block<'_>) {
        let [d, ff] = block.sizes;
        let mut scratch = Scratch::new(block.weights, block.sizes, block.inputs);
        let mut inner = self
            .inner
            .map(|inner| inner.map(|inner| inner.chunks(CHUNK * padded(ff))));
        let mut accumulate = Accumulate::Overwrite;
        let grad = std::mem::take(&mut self.grad);
        for (x, grad) in self.x.chunks(CHUNK * d).zip(grad.chunks_mut(CHUNK * d)) {
            let inner = inner.each_mut().map(|inner| inner.as_mut()?.next());
            let rows = Rows { x, grad, inner };
            let mut chunk = |rows: Rows<'_>| self.chunk(rows, block, accumulate, &mut scratch);
            match LiveRows::of(rows.grad, d) {
                None => chunk(rows),
                Some(live) => rows.of_live(&live, block.sizes, chunk),
            }
            // Only the first chunk of the slab replaces what the buffers held.
            accumulate = Accumulate::Add;
        }
    }

    /// The backward pass of a chunk of rows.
    fn chunk(
        &mut self,
        Rows { x, grad, inner }: Rows<'_>,
        block: Block<'_>,
        accumulate: Accumulate,
        scratch: &mut Scratch,
    ) {
        let Block {
            norm,
            weights,
            sizes: [d, ff],
            inputs,
        } = block;
        let rows = x.len() / d;
        let mut stats = [[0.0; 2]; CHUNK];
        let normed = &mut scratch.normed[..rows * inputs];
        // norm(x) is not saved but computed again.
        norm.forward(x, normed, &mut stats[..rows]);
        let grad_normed = &mut scratch.grad_normed[..x.len()];
        {
            let normed = Matrix::row_major(&*normed, rows, inputs, inputs);
            let grad = Matrix::row_major(&*grad, rows, d, d);
            let chunk = Chunk::new(grad, inner);
            let operands = SumOperands {
                rows,
                width: d,
                normed_transposed: normed.as_lhs_transposed(),
                grad: grad.as_rhs(d),
                accumulate,
            };
            // Panel by panel, so that the result of one step is still in L1 for the next.
            for (i, panel) in Panel::steps(ff).enumerate() {
                let length = panel.range(rows).len();
                let mut grads = PanelGrads {
                    active: &mut scratch.active[..length],
                    up: &mut scratch.grad_up[..length],
                    gate: scratch.grad_gate.get_mut(..length).unwrap_or_default(),
                };
                chunk.panel((i, &panel), weights, &mut grads, grad_normed);
                self.add(&panel, &operands, &grads, [inputs, ff]);
            }
        }
        norm.backward(x, &stats[..rows], grad_normed, self.norm_sum);
        // The residual sum: `grad` also reaches x directly.
        store(grad, grad_normed, Accumulate::Add);
    }

    /// Adds a panel of a chunk to the gradients of the weights.
    fn add(
        &mut self,
        panel: &Panel,
        chunk: &SumOperands<'_>,
        grads: &PanelGrads<'_>,
        [inputs, ff]: [usize; 2],
    ) {
        let [rows, cols] = [chunk.rows, panel.count];
        let range = panel.range(inputs);
        // grad weight = norm(x)^T grad, [inputs, cols].
        let add = |grad: &[f32], sum: &mut [f32]| {
            multiply(
                &chunk.normed_transposed,
                &Matrix::packed(grad, rows, cols).as_rhs(cols),
                MatrixMut::packed(&mut sum[range.clone()], inputs, cols),
                chunk.accumulate,
            );
        };
        add(grads.up, self.sums.up);
        if let Some(gate) = &mut self.sums.gate {
            add(grads.gate, gate);
        }
        // grad down = activation^T grad, the rows of this panel.
        multiply(
            &Matrix::packed(&*grads.active, rows, cols).as_lhs_transposed(),
            &chunk.grad,
            MatrixMut::packed(&mut *self.sums.down, ff, chunk.width).row_range(panel.columns()),
            chunk.accumulate,
        );
    }
}
