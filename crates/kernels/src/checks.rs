//! The shape checks of the larger operations, the same for fused versions and definitions.

use crate::{AttentionWeights, Bias, DiagonalNetwork, MlpWeights, Rotation};
use burn::tensor::{Int, Tensor};

pub(crate) fn mlp(x: &Tensor<2>, weights: &MlpWeights) {
    let [d, ff] = weights.up.dims();
    assert_eq!(
        (x.dims()[1], weights.down.dims()),
        (d, [ff, d]),
        "weights fit"
    );
    let gate = weights.gate.as_ref();
    assert!(
        gate.is_none_or(|gate| gate.dims() == [d, ff]),
        "gate and up have one shape"
    );
}

pub(crate) fn attention_block(
    x: &Tensor<3>,
    weights: &AttentionWeights,
    rotation: Option<&Rotation>,
    bias: Option<&Bias>,
) {
    let ([batch, length, d], heads) = (x.dims(), weights.heads);
    let inner = weights.output.dims()[0];
    assert_eq!(
        (weights.qkv.dims(), weights.output.dims(), inner % heads),
        ([d, 3 * inner], [inner, d], 0),
        "weights fit"
    );
    if let Some(rotation) = rotation {
        let tables = rotation.queries.iter().chain(&rotation.keys);
        let pairs = rotation.keys[0].dims()[3];
        assert!(
            tables
                .map(Tensor::dims)
                .all(|dims| dims == [1, 1, length, pairs])
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
        Some(Bias::Dense(bias)) => dense_bias(bias, [batch, heads, length, length]),
        Some(Bias::ByDistance(bias)) => {
            // Causal queries see distances from 0 to length - 1.
            let [h, count] = bias.dims();
            assert!(
                (h == 1 || h == heads) && count >= length,
                "bias fits logits"
            );
        }
    }
}

fn dense_bias(bias: &Tensor<4>, [batch, heads, queries, keys]: [usize; 4]) {
    let [b, h, rows, columns] = bias.dims();
    assert!(
        (b == 1 || b == batch) && (h == 1 || h == heads) && [rows, columns] == [queries, keys],
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
    let [_, _, length, head_dim] = x.dims();
    let pairs = cos.dims()[3];
    assert_eq!(
        cos.dims(),
        [1, 1, length, pairs],
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
