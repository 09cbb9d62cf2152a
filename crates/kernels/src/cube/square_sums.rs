//! Sums of squares of many vectors in one launch.

use super::rows::{CUBE, Rows, row_sum};
use super::tensors::{Primitive, count, empty, in_order, run};
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// All units of a cube work on one sum.
const ALL: Rows = Rows {
    width: CUBE,
    lanes: CUBE,
};

/// The most vectors of one launch: the kernel is compiled for their number.
const MOST_VECTORS: usize = 64;

/// One cube computes the sum of one part (x) of one vector (y). `first` is the index of the first
/// vector in `sums`, `[n, parts]`.
#[cube(launch)]
fn square_sums_kernel(
    vectors: &Sequence<OwnedTensor<f32>>,
    sums: &mut Tensor<f32>,
    first: u32,
    parts: u32,
) {
    let mut scratch = Shared::<[f32]>::new_slice(CUBE);
    let (part, parts) = (CUBE_POS_X as usize, parts as usize);
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    #[unroll]
    for index in 0..vectors.len() {
        if CUBE_POS_Y as usize == index {
            let vector = vectors.index(index);
            let length = vector.len() / parts;
            for step in 0..length.div_ceil(CUBE) {
                let i = step * CUBE + unit;
                if i < length {
                    let x = vector[part * length + i];
                    sum += x * x;
                }
            }
        }
    }
    let total = row_sum(&mut scratch, sum, ALL);
    if unit == 0 {
        sums[(first as usize + CUBE_POS_Y as usize) * parts + part] = total;
    }
}

/// The sums, `[n parts]`, of `n` vectors.
pub(super) fn square_sums(vectors: Vec<Primitive>, parts: usize) -> Primitive {
    let sums = vectors.len() * parts;
    let outputs = run(vectors, vec![Shape::new([sums])], move |vectors| {
        let output = empty(&vectors[0], [sums]);
        let client = output.client.clone();
        // Less the sums, and what the runtime tells the kernel of all these.
        let bindings = client.properties().hardware.max_bindings as usize - 2;
        let vectors: Vec<CubeTensor> = vectors.into_iter().map(in_order).collect();
        let mut first = 0;
        for some in vectors.chunks(bindings.min(MOST_VECTORS)) {
            square_sums_kernel::launch(
                &client,
                count([parts, some.len(), 1]),
                CubeDim::new_1d(CUBE as u32),
                some.iter().map(|x| x.clone().into_tensor_arg()).collect(),
                output.clone().into_tensor_arg(),
                first as u32,
                parts as u32,
            );
            first += some.len();
        }
        vec![output]
    });
    outputs.into_iter().next().expect("one output")
}
