//! Sums over parts that were computed by different cubes.

use super::tensors::{elements, empty};
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// `out`, of n numbers, from `parts`, of S n, in their order. One unit for each sum.
#[cube(launch)]
fn sum_kernel(parts: &Tensor<f32>, out: &mut Tensor<f32>) {
    let i = ABSOLUTE_POS;
    let n = out.len();
    if i < n {
        let mut sum = 0.0f32;
        for part in 0..parts.len() / n {
            sum += parts[part * n + i];
        }
        out[i] = sum;
    }
}

/// A tensor of this shape from one that holds several of them one after the other, row by row.
pub(super) fn sum_of_parts(parts: CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let shape = shape.into();
    if parts.meta.num_elements() == shape.num_elements() {
        let (client, device, handle) = (parts.client, parts.device, parts.handle);
        return CubeTensor::new_contiguous(client, device, shape, handle, parts.dtype);
    }
    let output = empty(&parts, shape);
    let (cubes, dim) = elements(&output, output.meta.num_elements());
    let client = output.client.clone();
    let sums = output.clone().into_tensor_arg();
    sum_kernel::launch(&client, cubes, dim, parts.into_tensor_arg(), sums);
    output
}
