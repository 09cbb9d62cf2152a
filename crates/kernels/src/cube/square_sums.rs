//! Sums of squares of many vectors, in one launch and one more for long vectors.

use super::rows::{CUBE, Rows, row_sum};
use super::sums::sum_of_parts;
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

/// The fewest numbers of a chunk, which one cube adds up.
const LEAST_CHUNK: usize = 64 * CUBE;
/// The most chunks of a part of a vector.
const MOST_CHUNKS: usize = 256;

/// Numbers of the chunks of a part of `length` numbers. It depends on nothing else, so that a
/// vector has the same bits whichever others it comes with.
fn chunk(length: usize) -> usize {
    length.div_ceil(MOST_CHUNKS).max(LEAST_CHUNK)
}

/// One cube computes the sum of one chunk (x) of one part (z) of one vector (y). `first` is the
/// index of the first vector in `sums`, `[chunks, n, parts]`.
#[cube(launch)]
fn square_sums_kernel(
    vectors: &Sequence<OwnedTensor<f32>>,
    sums: &mut Tensor<f32>,
    first: u32,
    vectors_in_all: u32,
) {
    let mut scratch = Shared::<[f32]>::new_slice(CUBE);
    let (part, parts) = (CUBE_POS_Z as usize, CUBE_COUNT_Z as usize);
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    #[unroll]
    for index in 0..vectors.len() {
        if CUBE_POS_Y as usize == index {
            let vector = vectors.index(index);
            let length = vector.len() / parts;
            let own = max(length.div_ceil(MOST_CHUNKS), LEAST_CHUNK);
            let start = CUBE_POS_X as usize * own;
            let end = select(start + own < length, start + own, length);
            if start < end {
                for step in 0..(end - start).div_ceil(CUBE) {
                    let i = start + step * CUBE + unit;
                    if i < end {
                        let x = vector[part * length + i];
                        sum += x * x;
                    }
                }
            }
        }
    }
    let total = row_sum(&mut scratch, sum, ALL);
    if unit == 0 {
        let vector =
            CUBE_POS_X as usize * vectors_in_all as usize + first as usize + CUBE_POS_Y as usize;
        sums[vector * parts + part] = total;
    }
}

/// The sums, `[n parts]`, of `n` vectors.
pub(super) fn square_sums(vectors: Vec<Primitive>, parts: usize) -> Primitive {
    let n = vectors.len();
    let outputs = run(vectors, vec![Shape::new([n * parts])], move |vectors| {
        let longest = vectors.iter().map(|x| x.meta.num_elements() / parts).max();
        let chunks = |length: usize| length.div_ceil(chunk(length));
        // Never fewer for a longer vector.
        let chunks = longest.map_or(1, chunks).max(1);
        let output = empty(&vectors[0], [chunks * n * parts]);
        let client = output.client.clone();
        // Less the sums, and what the runtime tells the kernel of all these.
        let bindings = client.properties().hardware.max_bindings as usize - 2;
        let vectors: Vec<CubeTensor> = vectors.into_iter().map(in_order).collect();
        let mut first = 0;
        for some in vectors.chunks(bindings.min(MOST_VECTORS)) {
            square_sums_kernel::launch(
                &client,
                count([chunks, some.len(), parts]),
                CubeDim::new_1d(CUBE as u32),
                some.iter().map(|x| x.clone().into_tensor_arg()).collect(),
                output.clone().into_tensor_arg(),
                first as u32,
                n as u32,
            );
            first += some.len();
        }
        vec![sum_of_parts(output, [n * parts])]
    });
    outputs.into_iter().next().expect("one output")
}
