//! GELU and SwiGLU: one launch forward, one backward.

use super::tensors::{PerInput, Primitive, elements, empty, in_order, run};
use crate::op::FusedOp;
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use std::f32::consts::FRAC_1_SQRT_2;

/// The density of the normal distribution at 0: 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;

/// The normal distribution function.
#[cube]
fn normal(x: f32) -> f32 {
    (1.0 + Erf::erf(x * FRAC_1_SQRT_2)) * 0.5
}

#[cube(launch)]
fn gelu_kernel(x: &Tensor<f32>, y: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        y[i] = x[i] * normal(x[i]);
    }
}

#[cube(launch)]
fn gelu_grad_kernel(x: &Tensor<f32>, grad: &Tensor<f32>, x_grad: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < x_grad.len() {
        let x = x[i];
        let density = (x * x * -0.5f32).exp() * DENSITY;
        x_grad[i] = grad[i] * (normal(x) + x * density);
    }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cube(launch)]
fn swiglu_kernel(gate: &Tensor<f32>, up: &Tensor<f32>, y: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        y[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
}

#[cube(launch)]
fn swiglu_grad_kernel(
    gate: &Tensor<f32>,
    up: &Tensor<f32>,
    grad: &Tensor<f32>,
    gate_grad: &mut Tensor<f32>,
    up_grad: &mut Tensor<f32>,
) {
    let i = ABSOLUTE_POS;
    if i < up_grad.len() {
        let (x, dy) = (gate[i], grad[i]);
        let share = sigmoid(x);
        up_grad[i] = dy * x * share;
        gate_grad[i] = dy * up[i] * share * (1.0 + x * (1.0 - share));
    }
}

/// GELU of `[N, W]`.
#[derive(Clone, Copy)]
pub(super) struct Gelu {
    pub(super) shape: [usize; 2],
}

impl FusedOp<1> for Gelu {
    type Backend = burn::backend::Cube;
    type Saved = Primitive;

    fn forward(&self, [x]: PerInput<1>, _: bool) -> (Primitive, Primitive) {
        let x = x.expect("an input");
        let [y] = map(self.shape, vec![x.clone()], |inputs, [y]| {
            let (cubes, dim) = elements(y, y.meta.num_elements());
            let client = y.client.clone();
            let [x] = arguments(inputs);
            gelu_kernel::launch(&client, cubes, dim, x, y.clone().into_tensor_arg());
        });
        (y, x)
    }

    fn backward(&self, x: &Primitive, grad: Primitive, _: [bool; 1]) -> PerInput<1> {
        map(self.shape, vec![x.clone(), grad], |inputs, [y]| {
            let (cubes, dim) = elements(y, y.meta.num_elements());
            let client = y.client.clone();
            let [x, grad] = arguments(inputs);
            let y = y.clone().into_tensor_arg();
            gelu_grad_kernel::launch(&client, cubes, dim, x, grad, y);
        })
        .map(Some)
    }
}

/// SwiGLU of gate and up, `[N, W]`.
#[derive(Clone, Copy)]
pub(super) struct Swiglu {
    pub(super) shape: [usize; 2],
}

impl FusedOp<2> for Swiglu {
    type Backend = burn::backend::Cube;
    type Saved = [Primitive; 2];

    fn forward(&self, inputs: PerInput<2>, _: bool) -> (Primitive, [Primitive; 2]) {
        let inputs = inputs.map(|x| x.expect("an input"));
        let [y] = map(self.shape, inputs.to_vec(), |inputs, [y]| {
            let (cubes, dim) = elements(y, y.meta.num_elements());
            let client = y.client.clone();
            let [gate, up] = arguments(inputs);
            swiglu_kernel::launch(&client, cubes, dim, gate, up, y.clone().into_tensor_arg());
        });
        (y, inputs)
    }

    fn backward(&self, [gate, up]: &[Primitive; 2], grad: Primitive, _: [bool; 2]) -> PerInput<2> {
        let inputs = vec![gate.clone(), up.clone(), grad];
        map(self.shape, inputs, |inputs, outputs: &[CubeTensor; 2]| {
            let (cubes, dim) = elements(&outputs[0], outputs[0].meta.num_elements());
            let client = outputs[0].client.clone();
            let [gate, up, grad] = arguments(inputs);
            let [gate_grad, up_grad] = outputs.clone().map(CubeTensor::into_tensor_arg);
            swiglu_grad_kernel::launch(&client, cubes, dim, gate, up, grad, gate_grad, up_grad);
        })
        .map(Some)
    }
}

/// Runs `kernel` on tensors of one shape. It makes `N` others of that shape.
fn map<const N: usize>(
    shape: [usize; 2],
    inputs: Vec<Primitive>,
    kernel: fn(Vec<CubeTensor>, &[CubeTensor; N]),
) -> [Primitive; N] {
    let outputs = run(inputs, vec![Shape::new(shape); N], move |inputs| {
        let outputs = [(); N].map(|()| empty(&inputs[0], shape));
        kernel(inputs, &outputs);
        outputs.into()
    });
    outputs.try_into().expect("as many outputs as shapes")
}

fn arguments<const N: usize>(inputs: Vec<CubeTensor>) -> [TensorArg; N] {
    let mut inputs = inputs.into_iter();
    [(); N].map(|()| in_order(inputs.next().expect("an input")).into_tensor_arg())
}
