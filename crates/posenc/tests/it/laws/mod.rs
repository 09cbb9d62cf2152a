//! Laws over the whole list of encodings: what each declares is what is observed, and the
//! identities of the papers hold. `declared` and `blocks` hold for all of them; the other files
//! have the laws of each family.

mod axes;
mod between;
mod biases;
mod blocks;
mod configurations;
mod contents;
mod declared;
mod formulas;
mod heads;
mod hosts;
mod positions;
mod refusals;
mod rotation_variants;
mod rotations;
mod scalings;
mod stacks;

use crate::common::{config, host, tensor};
use burn::tensor::{Device, Tensor};
use posenc::encodings::RopeConfig;
use posenc::{Bias, Context, Encoding, EncodingConfig, PositionalEncoding, Positions, Prepared};
use serde_json::Value;
use std::ops::Range;

pub fn device() -> Device {
    Device::flex()
}

pub fn prepare<'a>(encoding: &'a Encoding, positions: &Positions) -> Box<dyn Prepared + 'a> {
    encoding
        .prepare(positions, &Context::new(&device()))
        .expect("positions in range")
}

pub fn bias_block(bias: &Bias<'_>, queries: Range<usize>, keys: Range<usize>) -> Vec<f64> {
    host(bias.block(queries, keys))
}

pub fn rope(value: Value) -> RopeConfig {
    match config(value) {
        EncodingConfig::Rope(rope) => rope,
        other => panic!("{other:?}"),
    }
}

/// What queries and keys are projected from, where no encoding of the test reads it.
pub fn input(length: usize) -> Tensor<3> {
    Tensor::zeros([1, length, crate::common::SHAPE.d_model], &device())
}

/// The position-only bias of layer 0 for these positions, `[H or 1, Q, K]`.
pub fn bias_of(encoding: &Encoding, positions: &Positions) -> Vec<f64> {
    let prepared = prepare(encoding, positions);
    bias_block(
        &prepared.logits_bias(0).expect("a bias"),
        0..positions.queries().len(),
        0..positions.keys().len(),
    )
}

/// One vector of a model with one head, as it is turned at a position.
pub fn turn(encoding: &Encoding, x: &[f64], position: f64) -> Vec<f64> {
    let prepared = prepare(encoding, &Positions::new(vec![position], vec![position]));
    let x = || tensor(x.to_vec(), [1, 1, 1, x.len()]);
    host(prepared.transform_qk(0, x(), x(), &input(1)).0)
}

/// The part of a list `[H, rows, columns]` in these rows and columns.
pub fn cut(
    values: &[f64],
    [rows, columns]: [usize; 2],
    queries: Range<usize>,
    keys: Range<usize>,
) -> Vec<f64> {
    let heads = values.len() / (rows * columns);
    let row = |head: usize, row: usize| &values[(head * rows + row) * columns..][keys.clone()];
    (0..heads)
        .flat_map(|head| queries.clone().flat_map(move |i| row(head, i).to_vec()))
        .collect()
}
