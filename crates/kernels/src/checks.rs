//! The shape checks of the larger operations, the same for fused versions and definitions.

use crate::groups::is_per_group;
use crate::{
    AdamWStep, AttentionWeights, Bias, CellNetwork, DiagonalNetwork, Linear, MlpWeights, Norm,
    Rotation,
};
use burn::tensor::{Int, Tensor};

/// How many groups there are in parameters with so many `rows`, of which a group has `of`, for
/// `parts` rows or sequences of the input.
fn groups(rows: usize, of: usize, parts: usize, what: &str) -> usize {
    let groups = rows / of.max(1);
    assert!(
        groups > 0 && rows == groups * of && parts.is_multiple_of(groups),
        "{what}: {rows} for {of}, and {parts} of the input"
    );
    groups
}

pub(crate) fn norm(x: &Tensor<2>, scale: &Tensor<1>, shift: Option<&Tensor<1>>) -> usize {
    let ([rows, width], [count]) = (x.dims(), scale.dims());
    assert!(
        shift.is_none_or(|shift| shift.dims() == [count]),
        "one scale and shift per column"
    );
    groups(count, width, rows, "one scale per column")
}

pub(crate) fn linear(x: &Tensor<2>, norm: Option<&Norm>, w: &Tensor<2>) {
    let [rows, width] = x.dims();
    let groups = groups(w.dims()[0], width, rows, "one row of weights per column");
    if let Some(norm) = norm {
        norm_fits(x, norm, groups);
    }
}

fn norm_fits(x: &Tensor<2>, Norm { scale, shift, .. }: &Norm, groups: usize) {
    let normed = norm(x, scale, shift.as_ref());
    assert_eq!(normed, groups, "as many groups of norms as of weights");
}

pub(crate) fn mlp(x: &Tensor<2>, norm: &Norm, weights: &MlpWeights) {
    let ([rows, d], [up, ff]) = (x.dims(), weights.up.w.dims());
    let groups = groups(up, d, rows, "one row of weights per column");
    assert_eq!(weights.down.w.dims(), [groups * ff, d], "weights fit");
    let shape = |layer: &Linear| (layer.w.dims(), layer.bias.is_some());
    let gate = weights.gate.as_ref();
    assert!(
        gate.is_none_or(|gate| shape(gate) == shape(&weights.up)),
        "gate and up have one shape"
    );
    let layers = [&weights.up, &weights.down].into_iter().chain(gate);
    layers.for_each(|layer| bias_fits(layer, groups));
    norm_fits(x, norm, groups);
}

fn bias_fits(Linear { w, bias }: &Linear, groups: usize) {
    let columns = groups * w.dims()[1];
    let fits = |bias: &Tensor<1>| bias.dims() == [columns];
    assert!(bias.as_ref().is_none_or(fits), "one bias per column");
}

pub(crate) fn attention_block(
    x: &Tensor<3>,
    norm: &Norm,
    weights: &AttentionWeights,
    rotation: Option<&Rotation>,
    bias: Option<&Bias>,
) {
    let ([batch, length, d], heads) = (x.dims(), weights.heads);
    let [rows, columns] = weights.qkv.w.dims();
    let groups = groups(rows, d, batch, "one row of weights per column");
    let inner = weights.inner();
    assert_eq!(
        (columns, weights.output.w.dims(), inner % heads),
        (3 * inner, [groups * inner, d], 0),
        "weights fit"
    );
    bias_fits(&weights.qkv, groups);
    bias_fits(&weights.output, groups);
    norm_fits(&x.clone().reshape([batch * length, d]), norm, groups);
    if let Some(rotation) = rotation {
        let tables = rotation.queries.iter().chain(&rotation.keys);
        let [of, _, _, pairs] = rotation.keys[0].dims();
        assert!(
            tables
                .map(Tensor::dims)
                .all(|dims| dims == [of, 1, length, pairs])
                && [1, groups].contains(&of)
                && 2 * pairs <= inner / heads,
            "one angle per position and pair"
        );
    }
    match bias {
        None => {}
        Some(Bias::Network(network)) => {
            diagonal_network(network);
            let [outputs] = network.biases.dims();
            assert!(
                network.units.dims() == [length]
                    && network.diagonals.dims() == [2 * length - 1]
                    && [1, heads].contains(&outputs),
                "bias fits logits"
            );
        }
        Some(Bias::Dense(bias)) => {
            let [of, ..] = bias.dims();
            assert!([1, groups, batch].contains(&of), "bias fits logits");
            dense_bias(bias, [batch, heads, length, length]);
        }
        Some(Bias::Decays(sums)) => {
            assert_eq!(sums.dims(), [batch, heads, length], "bias fits logits");
        }
        Some(Bias::ByDistance(bias)) => {
            // Causal queries see distances from 0 to length - 1.
            let [of, h, count] = bias.dims();
            assert!(
                [1, groups].contains(&of) && (h == 1 || h == heads) && count >= length,
                "bias fits logits"
            );
        }
    }
}

fn dense_bias(bias: &Tensor<4>, [batch, heads, queries, keys]: [usize; 4]) {
    let [b, h, rows, columns] = bias.dims();
    assert!(
        is_per_group(b, batch) && (h == 1 || h == heads) && [rows, columns] == [queries, keys],
        "bias fits logits"
    );
}

pub(crate) fn attention(q: &Tensor<4>, k: &Tensor<4>, v: &Tensor<4>, bias: Option<&Tensor<4>>) {
    let [batch, heads, queries, head_dim] = q.dims();
    let keys = k.dims()[2];
    assert_eq!(k.dims(), [batch, heads, keys, head_dim], "keys fit queries");
    assert_eq!(v.dims(), k.dims(), "values fit keys");
    assert!(keys > 0, "a key to attend to");
    if let Some(bias) = bias {
        dense_bias(bias, [batch, heads, queries, keys]);
    }
}

pub(crate) fn rotate(x: &Tensor<4>, cos: &Tensor<4>, sin: &Tensor<4>) {
    let [batch, heads, length, head_dim] = x.dims();
    let [of, h, rows, pairs] = cos.dims();
    assert!(
        rows == length && is_per_group(of, batch) && (h == 1 || h == heads),
        "one angle per position and pair"
    );
    assert_eq!(sin.dims(), cos.dims(), "cos and sin of the same angles");
    assert!(
        2 * pairs <= head_dim,
        "{pairs} pairs in a head of {head_dim}"
    );
}

pub(crate) fn columns(x: [usize; 3], columns: &Tensor<4, Int>) {
    let ([batch, heads, rows], [b, h, r, _]) = (x, columns.dims());
    assert!(
        (b == 1 || b == batch) && (h == 1 || h == heads) && r == rows,
        "columns fit rows"
    );
}

pub(crate) fn cell_network(x: &Tensor<4>, network: &CellNetwork) {
    let [batch, inputs, ..] = x.dims();
    let ([rows, hidden], [outputs]) = (network.w1.dims(), network.b2.dims());
    let groups = rows / inputs.max(1);
    assert!(
        is_per_group(groups, batch) && rows == groups * inputs,
        "weights fit inputs"
    );
    assert_eq!(
        (network.b1.dims(), network.w2.dims()),
        ([groups * hidden], [groups * hidden, outputs / groups]),
        "weights and biases of one network"
    );
}

pub(crate) fn diagonal_network(network: &DiagonalNetwork) {
    let [hidden, heads] = network.weights.dims();
    let layers = network.hidden.each_ref().map(Tensor::dims);
    assert_eq!(
        (layers, network.biases.dims()),
        ([[hidden]; 2], [heads]),
        "weights and biases of one network"
    );
    let [rows] = network.units.dims();
    assert!(
        rows > 0 && network.diagonals.dims()[0] >= rows,
        "a diagonal for every row"
    );
}

/// Every part of a parameter has one step, and all have one length.
pub(crate) fn adamw(theta: &Tensor<1>, steps: &[AdamWStep]) {
    let length = theta.dims()[0];
    assert!(!steps.is_empty(), "a step for every part");
    assert_eq!(length % steps.len(), 0, "parts of the same length");
}

pub(crate) fn square_sums(vectors: &[Tensor<1>], parts: usize) {
    assert!(!vectors.is_empty() && parts > 0, "a sum for every part");
    let whole = |x: &Tensor<1>| x.dims()[0].is_multiple_of(parts);
    assert!(vectors.iter().all(whole), "parts of the same length");
}
