//! From the gradient of the block's output to those of the activation and of the normalised input,
//! panel by panel of the activation.

use super::weights::{Saved, Share, Weights, by_panel};
use crate::flex::activation::{gelu_backward, swiglu_backward, swiglu_forward};
use crate::flex::gemm::{Accumulate, Lhs, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use burn_flex::FlexTensor;

/// The transposed weights of the backward pass, panel by panel.
pub(super) struct PreparedWeights<'a> {
    up: Vec<Rhs<'a>>,
    pub(super) gate: Vec<Rhs<'a>>,
    down: Vec<Rhs<'a>>,
}

impl<'a> PreparedWeights<'a> {
    pub(super) fn new(weights: &'a Weights<FlexTensor>, sizes: [usize; 2]) -> Self {
        let gate = weights.gate.as_ref();
        let shares = [
            Some((&weights.up, Share::ColumnsTransposed)),
            gate.map(|gate| (gate, Share::ColumnsTransposed)),
            Some((&weights.down, Share::RowsTransposed)),
        ];
        let [up, gate, down] = by_panel(shares, sizes);
        Self { up, gate, down }
    }
}

/// A chunk of rows: its operands, prepared once for all panels.
pub(super) struct Chunk<'a> {
    rows: usize,
    d: usize,
    grad: Lhs<'a>,
    /// The inputs of the activation from `up` and, where there is one, `gate`.
    inner: [Option<&'a [f32]>; 2],
}

/// Panels of what the gradients of the weights are made of.
pub(super) struct PanelGrads<'a> {
    /// The output of the activation.
    pub(super) active: &'a mut [f32],
    /// Gradients of its inputs; the gate's is empty without one.
    pub(super) up: &'a mut [f32],
    pub(super) gate: &'a mut [f32],
}

impl<'a> Chunk<'a> {
    /// `grad` is `[rows, d]`.
    pub(super) fn new(grad: Matrix<'a>, inner: [Option<&'a [f32]>; 2]) -> Self {
        let [rows, d] = grad.shape();
        Self {
            rows,
            d,
            grad: grad.as_lhs(),
            inner,
        }
    }

    /// Fills the panel `i` of the gradients, and adds to `grad_normed`, that of `norm(x)`, what
    /// flows back through it; the first panel replaces what was there.
    pub(super) fn panel(
        &self,
        (i, panel): (usize, &Panel),
        weights: &PreparedWeights<'_>,
        grads: &mut PanelGrads<'_>,
        grad_normed: &mut [f32],
    ) {
        let [rows, cols] = [self.rows, panel.count];
        // The gradient of the activation's output, replaced below by that of its input.
        multiply(
            &self.grad,
            &weights.down[i],
            MatrixMut::packed(&mut *grads.up, rows, cols),
            Accumulate::Overwrite,
        );
        let [up, gate] = self
            .inner
            .map(|inner| inner.map(|inner| &inner[panel.range(rows)]));
        let up = up.expect("there is always one");
        // grad norm(x) += grad weight^T, [rows, d].
        let mut project_back = |grad: &[f32], transposed: &Rhs<'_>, accumulate: Accumulate| {
            let grad = Matrix::packed(grad, rows, cols).as_lhs();
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
    /// The saved inputs of the activation, from `up` and, where there is one, `gate`, of every
    /// `rows` rows.
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
