//! From the gradient of the block's output to those of the activation and of the normalised input,
//! panel by panel of the activation.

use super::weights::{Saved, Share, Weights, by_panel, saves_inner, widest};
use crate::Matmul;
use crate::flex::activation::{gelu_backward, swiglu_backward, swiglu_forward};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Lhs, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use crate::flex::partial_sums::CHUNK;
use burn_flex::FlexTensor;

/// The weights of the backward pass, panel by panel.
pub(super) struct PreparedWeights<'a> {
    /// `up` and `gate` themselves, if the inputs of the activation are recomputed.
    recompute: [Vec<Rhs<'a>>; 2],
    /// Transposed, as the others.
    up: Vec<Rhs<'a>>,
    pub(super) gate: Vec<Rhs<'a>>,
    down: Vec<Rhs<'a>>,
}

impl<'a> PreparedWeights<'a> {
    pub(super) fn new(weights: &'a Weights<FlexTensor>, sizes: [usize; 2], matmul: Matmul) -> Self {
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

/// A chunk of rows: its operands, prepared once for all panels.
pub(super) struct Chunk<'a> {
    rows: usize,
    d: usize,
    /// `norm(x)`, if the inputs of the activation are recomputed.
    normed: Option<Lhs<'a>>,
    grad: Lhs<'a>,
    inner: [Option<&'a [f32]>; 2],
    matmul: Matmul,
}

/// Panels of what the gradients of the weights are made of.
pub(super) struct PanelGrads<'a> {
    /// The output of the activation.
    pub(super) active: &'a mut [f32],
    /// Gradients of its inputs; the gate's is empty without one.
    pub(super) up: &'a mut [f32],
    pub(super) gate: &'a mut [f32],
}

/// Recomputed inputs of the activation, empty where they were saved.
pub(super) struct Recomputed([Buffer; 2]);

impl Recomputed {
    pub(super) fn new(weights: &PreparedWeights<'_>, ff: usize, matmul: Matmul) -> Self {
        let panel = |weights: &Vec<Rhs<'_>>| {
            let length = widest(CHUNK, ff, matmul);
            Buffer::new(if weights.is_empty() { 0 } else { length })
        };
        Self(weights.recompute.each_ref().map(panel))
    }
}

impl<'a> Chunk<'a> {
    /// `normed` and `grad` are `[rows, d]`; `inner` are the inputs of the activation from `up` and
    /// `gate`, if they were saved.
    pub(super) fn new(
        normed: Matrix<'a>,
        grad: Matrix<'a>,
        inner: [Option<&'a [f32]>; 2],
        matmul: Matmul,
    ) -> Self {
        let [rows, d] = grad.shape();
        Self {
            rows,
            d,
            normed: (!saves_inner(matmul)).then(|| normed.as_lhs(matmul).prepared()),
            grad: grad.as_lhs(matmul).prepared(),
            inner,
            matmul,
        }
    }

    /// Fills the panel `i` of the gradients, and adds to `grad_normed`, that of `norm(x)`, what
    /// flows back through it; the first panel replaces what was there.
    pub(super) fn panel(
        &self,
        (i, panel): (usize, &Panel),
        weights: &PreparedWeights<'_>,
        grads: &mut PanelGrads<'_>,
        Recomputed([up_scratch, gate_scratch]): &mut Recomputed,
        grad_normed: &mut [f32],
    ) {
        let shape @ [rows, cols] = [self.rows, panel.count];
        // The gradient of the activation's output, replaced below by that of its input.
        multiply(
            &self.grad,
            &weights.down[i],
            MatrixMut::packed(&mut *grads.up, rows, cols),
            Accumulate::Overwrite,
        );
        let saved = self
            .inner
            .map(|inner| inner.map(|inner| &inner[panel.range(rows)]));
        let recompute = |which: usize| (self.normed.as_ref(), weights.recompute[which].get(i));
        let up = saved[0].or_else(|| {
            let (normed, weight) = recompute(0);
            recompute_preactivation(normed, weight, up_scratch, shape)
        });
        let gate = saved[1].or_else(|| {
            let (normed, weight) = recompute(1);
            recompute_preactivation(normed, weight, gate_scratch, shape)
        });
        let up = up.expect("there is always one");
        // grad norm(x) += grad weight^T, [rows, d].
        let mut project_back = |grad: &[f32], transposed: &Rhs<'_>, accumulate: Accumulate| {
            let grad = Matrix::packed(grad, rows, cols).as_lhs(self.matmul);
            let grad_normed = MatrixMut::row_major(&mut *grad_normed, rows, self.d, self.d);
            multiply(&grad, transposed, grad_normed, accumulate);
        };
        let accumulate = if i == 0 {
            Accumulate::Overwrite
        } else {
            Accumulate::Add
        };
        match gate {
            None => {
                gelu_backward(up, grads.active, grads.up);
                project_back(grads.up, &weights.up[i], accumulate);
            }
            Some(gate) => {
                swiglu_forward(gate, up, grads.active);
                swiglu_backward(gate, up, grads.up, grads.gate);
                project_back(grads.up, &weights.up[i], accumulate);
                // `up` has written `grad_normed` for this panel already, so the gate adds.
                project_back(grads.gate, &weights.gate[i], Accumulate::Add);
            }
        }
    }
}

impl Saved {
    /// The saved inputs of the activation, from `up` and `gate`, of every `rows` rows; `None` where
    /// they are recomputed.
    pub(super) fn inner(
        &self,
        rows: usize,
        ff: usize,
    ) -> impl Iterator<Item = [Option<&[f32]>; 2]> {
        let [mut up, mut gate] = [0, 1].map(|which| {
            let inner: &[f32] = self.inner.get(which).map_or(&[], |inner| inner);
            inner.chunks((rows * padded(ff)).max(1))
        });
        std::iter::from_fn(move || Some([up.next(), gate.next()]))
    }
}
