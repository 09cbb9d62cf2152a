//! GELU and SwiGLU, over whole tensors and for rows inside other operations.

use super::simd::{Lanes, dispatch};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use super::twice::Twice;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Elements per task.
const CHUNK: usize = 1 << 13;

/// `y = gelu(x)`, and the derivative if `slope` is not empty.
struct Gelu<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    slope: &'a mut [f32],
}

#[inline(always)]
fn gelu_and_slope<L: Lanes>(s: L, x: L::V) -> (L::V, L::V) {
    let (below, e) = s.normal(x);
    // 1 / sqrt(2 pi). The derivative of x cdf(x) is cdf(x) + x pdf(x).
    let density = s.mul(e, s.splat(0.398_942_3));
    (s.mul(x, below), s.fma(x, density, below))
}

impl WithSimd for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (x, x_tail) = S::as_simd_f32s(self.x);
        let (y, y_tail) = S::as_mut_simd_f32s(self.y);
        // No backward pass, or one that computes the derivative again.
        if self.slope.is_empty() {
            let ((pairs, last), (y_pairs, y_last)) = (x.as_chunks::<2>(), y.as_chunks_mut::<2>());
            for (x, y) in pairs.iter().zip(y_pairs) {
                *y = gelu_and_slope(Twice(s), *x).0;
            }
            for (x, y) in last.iter().zip(y_last) {
                *y = gelu_and_slope(s, *x).0;
            }
            s.partial_store_f32s(y_tail, gelu_and_slope(s, s.partial_load_f32s(x_tail)).0);
        } else {
            let (slope, slope_tail) = S::as_mut_simd_f32s(self.slope);
            for ((x, y), slope) in x.iter().zip(y).zip(slope) {
                (*y, *slope) = gelu_and_slope(s, *x);
            }
            let (y, slope) = gelu_and_slope(s, s.partial_load_f32s(x_tail));
            s.partial_store_f32s(y_tail, y);
            s.partial_store_f32s(slope_tail, slope);
        }
    }
}

/// Turns the gradient of `y = gelu(x)` into that of `x`, and recomputes `y`.
struct GeluBackward<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    grad: &'a mut [f32],
}

impl WithSimd for GeluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (x, x_tail) = S::as_simd_f32s(self.x);
        let (y, y_tail) = S::as_mut_simd_f32s(self.y);
        let (grad, grad_tail) = S::as_mut_simd_f32s(self.grad);
        let ((x, x_last), (y, y_last)) = (x.as_chunks::<2>(), y.as_chunks_mut::<2>());
        let (grad, grad_last) = grad.as_chunks_mut::<2>();
        for ((x, y), grad) in x.iter().zip(y).zip(grad) {
            let (value, slope) = gelu_and_slope(Twice(s), *x);
            (*y, *grad) = (value, Twice(s).mul(*grad, slope));
        }
        for ((x, y), grad) in x_last.iter().zip(y_last).zip(grad_last) {
            let (value, slope) = gelu_and_slope(s, *x);
            (*y, *grad) = (value, s.mul(*grad, slope));
        }
        let (value, slope) = gelu_and_slope(s, s.partial_load_f32s(x_tail));
        s.partial_store_f32s(y_tail, value);
        let grad = s.mul(s.partial_load_f32s(grad_tail), slope);
        s.partial_store_f32s(grad_tail, grad);
    }
}

/// `y = gelu(x)` on one thread.
pub(super) fn gelu_forward(x: &[f32], y: &mut [f32]) {
    dispatch(Gelu {
        x,
        y,
        slope: &mut [],
    });
}

/// `y = gelu(x)` and `grad *= gelu'(x)` on one thread.
pub(super) fn gelu_backward(x: &[f32], y: &mut [f32], grad: &mut [f32]) {
    dispatch(GeluBackward { x, y, grad });
}

/// `y = silu(gate) up` on one thread.
pub(super) fn swiglu_forward(gate: &[f32], up: &[f32], y: &mut [f32]) {
    dispatch(Swiglu { gate, up, y });
}

/// Turns the gradient of `silu(gate) up` into that of `up`, and writes that of `gate`, on one
/// thread.
pub(super) fn swiglu_backward(gate: &[f32], up: &[f32], grad: &mut [f32], grad_gate: &mut [f32]) {
    dispatch(SwigluBackward {
        gate,
        up,
        grad,
        grad_gate,
    });
}

/// `x *= y`.
struct Multiply<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (x, y) in self.x.iter_mut().zip(self.y) {
            *x *= y;
        }
    }
}

/// [`crate::gelu`].
pub(super) struct GeluOp;

impl FusedOp<1> for GeluOp {
    type Backend = burn::backend::Flex;
    /// The derivative at every element, if tracked.
    type Saved = Vec<f32>;

    fn forward(&self, inputs: PerInput<1>, tracked: bool) -> (FlexTensor, Vec<f32>) {
        let [x] = inputs.map(required);
        let shape = x.shape();
        let x = contiguous(x);
        let n = shape.num_elements();
        let (mut y, mut slope) = (vec![0.0; n], vec![0.0; if tracked { n } else { 0 }]);
        let mut slopes = slope.chunks_mut(CHUNK);
        let chunks = x.storage::<f32>().chunks(CHUNK).zip(y.chunks_mut(CHUNK));
        let tasks = chunks
            .map(|(x, y)| Gelu {
                x,
                y,
                slope: slopes.next().unwrap_or_default(),
            })
            .collect();
        for_each(tasks, n * 4, dispatch);
        (tensor(y, shape.dims::<2>()), slope)
    }

    fn backward(&self, slope: &Vec<f32>, grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        let mut grad = contiguous(grad);
        let chunks = grad
            .storage_mut::<f32>()
            .chunks_mut(CHUNK)
            .zip(slope.chunks(CHUNK));
        let tasks = chunks.map(|(x, y)| Multiply { x, y }).collect();
        for_each(tasks, slope.len(), dispatch);
        [Some(grad)]
    }
}

/// `y = silu(gate) up`.
struct Swiglu<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    y: &'a mut [f32],
}

#[inline(always)]
fn swiglu<S: Simd>(s: S, gate: S::f32s, up: S::f32s) -> S::f32s {
    s.mul(s.mul(gate, s.sigmoid(gate)), up)
}

impl WithSimd for Swiglu<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (gate, gate_tail) = S::as_simd_f32s(self.gate);
        let (up, up_tail) = S::as_simd_f32s(self.up);
        let (y, y_tail) = S::as_mut_simd_f32s(self.y);
        for ((gate, up), y) in gate.iter().zip(up).zip(y) {
            *y = swiglu(s, *gate, *up);
        }
        s.partial_store_f32s(
            y_tail,
            swiglu(
                s,
                s.partial_load_f32s(gate_tail),
                s.partial_load_f32s(up_tail),
            ),
        );
    }
}

/// Turns the gradient of `y = silu(gate) up` into that of `up`, and writes that of `gate`.
struct SwigluBackward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    grad: &'a mut [f32],
    grad_gate: &'a mut [f32],
}

/// Gradients of `up` and `gate`.
#[inline(always)]
fn swiglu_grads<S: Simd>(s: S, gate: S::f32s, up: S::f32s, grad: S::f32s) -> (S::f32s, S::f32s) {
    let sigmoid = s.sigmoid(gate);
    let silu = s.mul(gate, sigmoid);
    // silu' = sigmoid + silu (1 - sigmoid).
    let slope = s.fma(silu, s.sub(s.splat(1.0), sigmoid), sigmoid);
    (s.mul(grad, silu), s.mul(s.mul(grad, up), slope))
}

impl WithSimd for SwigluBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (gate, gate_tail) = S::as_simd_f32s(self.gate);
        let (up, up_tail) = S::as_simd_f32s(self.up);
        let (grad, grad_tail) = S::as_mut_simd_f32s(self.grad);
        let (grad_gate, grad_gate_tail) = S::as_mut_simd_f32s(self.grad_gate);
        for (((gate, up), grad), grad_gate) in gate.iter().zip(up).zip(grad).zip(grad_gate) {
            (*grad, *grad_gate) = swiglu_grads(s, *gate, *up, *grad);
        }
        let (up, gate) = swiglu_grads(
            s,
            s.partial_load_f32s(gate_tail),
            s.partial_load_f32s(up_tail),
            s.partial_load_f32s(grad_tail),
        );
        s.partial_store_f32s(grad_tail, up);
        s.partial_store_f32s(grad_gate_tail, gate);
    }
}

/// [`crate::swiglu`].
pub(super) struct SwigluOp;

impl FusedOp<2> for SwigluOp {
    type Backend = burn::backend::Flex;
    /// Gate and up.
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: PerInput<2>, _: bool) -> (FlexTensor, Self::Saved) {
        let [gate, up] = inputs.map(required);
        let shape = gate.shape();
        let (gate, up) = (contiguous(gate), contiguous(up));
        let n = shape.num_elements();
        let mut y = vec![0.0; n];
        let inputs = gate
            .storage::<f32>()
            .chunks(CHUNK)
            .zip(up.storage::<f32>().chunks(CHUNK));
        let tasks = inputs
            .zip(y.chunks_mut(CHUNK))
            .map(|((gate, up), y)| Swiglu { gate, up, y })
            .collect();
        for_each(tasks, n * 2, dispatch);
        (tensor(y, shape.dims::<2>()), [gate, up])
    }

    fn backward(&self, [gate, up]: &Self::Saved, grad: FlexTensor, _: [bool; 2]) -> PerInput<2> {
        let shape = grad.shape();
        let mut grad = contiguous(grad);
        let n = shape.num_elements();
        let mut grad_gate = vec![0.0; n];
        let inputs = gate
            .storage::<f32>()
            .chunks(CHUNK)
            .zip(up.storage::<f32>().chunks(CHUNK));
        let outputs = grad
            .storage_mut::<f32>()
            .chunks_mut(CHUNK)
            .zip(grad_gate.chunks_mut(CHUNK));
        let tasks = inputs
            .zip(outputs)
            .map(|((gate, up), (grad, grad_gate))| SwigluBackward {
                gate,
                up,
                grad,
                grad_gate,
            });
        for_each(tasks.collect(), n * 3, dispatch);
        [Some(tensor(grad_gate, shape.dims::<2>())), Some(grad)]
    }
}
