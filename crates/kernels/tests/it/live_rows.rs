//! Rows without a gradient, which the backward passes of blocks leave out: gradients are those of
//! the definition, with the bits of the passes that leave nothing out.

use crate::blocks::{Op, halves, operations};
use crate::common::{compare, same_for_any_threads};
use burn::tensor::{Tensor, TensorData};
use longreach_kernels::reference;

/// An operation whose output is read in the rows alone that `is_live` names, so that the gradients
/// of all others are zero. `width`: columns of the output.
fn read_in(op: Op, is_live: fn(usize) -> bool, width: usize) -> Op {
    Box::new(move |x| {
        let y = op(x);
        let mask = |at: usize| if is_live(at / width) { 1.0 } else { 0.0 };
        let mask: Vec<f64> = (0..y.dims()[0]).map(mask).collect();
        let data = TensorData::new(mask, y.dims());
        let mask = Tensor::<1>::from_data(data, (&y.device(), y.dtype()));
        y * mask
    })
}

/// Some of a chunk, few, all of one and none of others, and every row but a few.
const LIVE: [fn(usize) -> bool; 4] = [
    |row| row % 53 < 30,
    |row| row % 53 == 29,
    |row| !(128..=900).contains(&row),
    |row| row % 9 > 0,
];

#[test]
fn rows_without_a_gradient_are_left_out_and_nothing_changes() {
    for is_live in LIVE {
        let fused = operations(300, 19, 70).into_iter();
        for (name, inputs, fused, definition) in fused {
            let width = if name.starts_with("linear") { 70 } else { 19 };
            let [fused, definition] = [fused, definition].map(|op| read_in(op, is_live, width));
            compare(1.0, &name, &inputs, &*fused, &*definition);
        }
        // More threads than slabs of rows leave nothing out.
        for (name, inputs, fused, _) in operations(1030, 35, 67) {
            let width = if name.starts_with("linear") { 67 } else { 35 };
            same_for_any_threads(&name, &inputs, &*read_in(fused, is_live, width));
        }
        for half in halves([20, 2, 53, 8, 12]) {
            let inputs = half.inputs();
            let fused = read_in(half.op(longreach_kernels::attention_block), is_live, 12);
            same_for_any_threads(&format!("{half:?}"), &inputs, &*fused);
        }
        for half in halves([5, 2, 64, 4, 6]) {
            let (fused, definition) = (
                half.op(longreach_kernels::attention_block),
                half.op(reference::attention_block),
            );
            let [fused, definition] = [fused, definition].map(|op| read_in(op, is_live, 6));
            let name = format!("{half:?}");
            compare(1.0, &name, &half.inputs(), &*fused, &*definition);
        }
    }
}
