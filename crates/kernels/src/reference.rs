//! The definitions: each operation of this crate in plain tensor operations, for any backend and
//! float type.
//!
//! On CubeCL the definitions of blocks take products, norms, activations and attention from there:
//! these are fused one by one, not the blocks.

use crate::cube;
use crate::groups::{affine, grouped, multiplied, product, spread};
use crate::{
    AdamWStep, AdamWUpdate, AttentionWeights, Bias, CellNetwork, DiagonalNetwork, Matmul,
    MlpWeights, Norm, Rotation,
};
use burn::tensor::{Int, Tensor, TensorData, activation, module};
pub use ops::{
    break_stick, count_open_keys, gather_columns, interpolate_columns, rotate, scatter_columns,
};

/// Definition of [`nll`](crate::nll).
pub fn nll(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    activation::log_softmax(logits, 1)
        .gather(1, targets.unsqueeze_dim(1))
        .squeeze_dim::<1>(1)
        .neg()
}

/// Definition of [`embedding`](crate::embedding).
pub fn embedding(table: Tensor<2>, tokens: Tensor<2, Int>, groups: usize) -> Tensor<3> {
    if groups == 1 {
        return module::embedding(table, tokens);
    }
    let ([rows, _], [batch, length]) = (table.dims(), tokens.dims());
    let first = (0..groups).map(|g| (g * rows / groups) as i32).collect();
    let first = TensorData::new::<i32, _>(first, [groups, 1]);
    let first = Tensor::<2, Int>::from_data(first, &tokens.device()).cast(tokens.dtype());
    let tokens = tokens.reshape([groups, batch / groups * length]) + first;
    module::embedding(table, tokens.reshape([batch, length]))
}

/// Definition of [`layer_norm`](crate::layer_norm).
pub fn layer_norm(x: Tensor<2>, scale: Tensor<1>, shift: Tensor<1>, eps: f64) -> Tensor<2> {
    let ([rows, width], [count]) = (x.dims(), scale.dims());
    if count == width {
        return module::layer_norm(x, scale, Some(shift), eps);
    }
    let [scale, shift] = [scale, shift].map(|p| p.reshape([count / width, 1, width]));
    let x = grouped(x, count / width);
    let centred = x.clone() - x.mean_dim(2);
    let variance = centred.clone().square().mean_dim(2);
    (centred / (variance + eps).sqrt() * scale + shift).reshape([rows, width])
}

/// Definition of [`rms_norm`](crate::rms_norm).
pub fn rms_norm(x: Tensor<2>, scale: Tensor<1>, eps: f64) -> Tensor<2> {
    let ([rows, width], [count]) = (x.dims(), scale.dims());
    let mean_square = x.clone().square().mean_dim(1);
    let normed = x / (mean_square + eps).sqrt();
    if count == width {
        return normed * scale.unsqueeze();
    }
    let scaled = grouped(normed, count / width) * scale.reshape([count / width, 1, width]);
    scaled.reshape([rows, width])
}

/// A norm inside a larger operation: on CubeCL, which runs the definition of that, the fused one.
pub(crate) fn normed(x: Tensor<2>, norm: Norm) -> Tensor<2> {
    if let Some(y) = cube::norm(&x, &norm.scale, norm.shift.as_ref(), norm.eps) {
        return y;
    }
    match norm.shift {
        Some(shift) => layer_norm(x, norm.scale, shift, norm.eps),
        None => rms_norm(x, norm.scale, norm.eps),
    }
}

/// Definition of [`matmul`](crate::matmul).
pub fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    a.matmul(b)
}

/// Definition of [`linear`](crate::linear).
pub fn linear(x: Tensor<2>, norm: Option<Norm>, w: Tensor<2>) -> Tensor<2> {
    linear_in(x, norm, w, Matmul::F32)
}

/// [`linear`] with the products of CubeCL.
pub(crate) fn linear_in(
    x: Tensor<2>,
    norm: Option<Norm>,
    w: Tensor<2>,
    matmul: Matmul,
) -> Tensor<2> {
    let x = match norm {
        Some(norm) => normed(x, norm),
        None => x,
    };
    product(x, w, matmul)
}

/// Definition of [`mlp`](crate::mlp).
pub fn mlp(x: Tensor<2>, norm: Norm, weights: MlpWeights) -> Tensor<2> {
    let rows = normed(x.clone(), norm);
    let matmul = weights.matmul;
    let up = affine(rows.clone(), weights.up, matmul);
    let inner = match weights.gate {
        None => inner_gelu(up),
        Some(gate) => inner_swiglu(affine(rows, gate, matmul), up),
    };
    x + affine(inner, weights.down, matmul)
}

/// As [`normed`].
fn inner_gelu(x: Tensor<2>) -> Tensor<2> {
    cube::gelu(&x).unwrap_or_else(|| gelu(x))
}

/// As [`normed`].
fn inner_swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    cube::swiglu(&gate, &up).unwrap_or_else(|| swiglu(gate, up))
}

/// Definition of [`gelu`](crate::gelu).
pub fn gelu(x: Tensor<2>) -> Tensor<2> {
    activation::gelu(x)
}

/// Definition of [`swiglu`](crate::swiglu).
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    activation::silu(gate) * up
}

/// Definition of [`attention`](crate::attention).
pub fn attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    let visible = (first_query + q.dims()[2]).min(v.dims()[2]);
    // The weights cover the visible keys only.
    let v = v.slice_dim(2, 0..visible);
    let weights = attention_weights(q, k, bias, scale, first_query);
    multiplied(weights, v, Matmul::F32)
}

/// Definition of [`attention_weights`](crate::attention_weights).
pub fn attention_weights(
    q: Tensor<4>,
    k: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    let [batch, _, queries, _] = q.dims();
    let visible = (first_query + queries).min(k.dims()[2]);
    let k = k.slice_dim(2, 0..visible);
    let mut hidden = vec![0.0f32; queries * visible];
    for (row, hidden) in hidden.chunks_mut(visible).enumerate() {
        // A query sees the keys up to its own, `first_query + row`.
        hidden[(first_query + row + 1).min(visible)..].fill(f32::NEG_INFINITY);
    }
    let options = (&q.device(), q.dtype());
    let mut logits = multiplied(q * scale, k.swap_dims(2, 3), Matmul::F32);
    if let Some(bias) = bias {
        logits = logits + spread(bias.slice_dim(3, 0..visible), batch);
    }
    let logits =
        logits + Tensor::from_data(TensorData::new(hidden, [1, 1, queries, visible]), options);
    // A softmax that gives 0 where nothing is visible. The largest logit only shifts the range, so
    // it needs no gradient.
    let largest = logits.clone().detach().max_dim(3);
    let empty = largest.clone().equal_elem(f32::NEG_INFINITY);
    let weights = (logits - largest.mask_fill(empty.clone(), 0.0)).exp();
    // 1 instead of a sum of 0, so that 0 / 0 does not occur.
    let sum = weights.clone().sum_dim(3).mask_fill(empty, 1.0);
    weights / sum
}

/// Definition of [`attention_block`](crate::attention_block).
pub fn attention_block(
    x: Tensor<3>,
    norm: Norm,
    weights: AttentionWeights,
    rotation: Option<Rotation>,
    bias: Option<Bias>,
    scale: f64,
) -> Tensor<3> {
    let [batch, length, d] = x.dims();
    let inner = weights.inner();
    let rows = normed(x.clone().reshape([batch * length, d]), norm);
    let projected = affine(rows, weights.qkv, weights.matmul);
    let shape = [batch, weights.heads, length, inner / weights.heads];
    let attended = cube::projected_attention(&projected, shape, &rotation, &bias, scale)
        .unwrap_or_else(|| projected_attention(projected, shape, rotation, bias, scale))
        .swap_dims(1, 2)
        .reshape([batch * length, inner]);
    x + affine(attended, weights.output, weights.matmul).reshape([batch, length, d])
}

/// Attention, `[B, H, L, E]`, of queries, keys and values, the columns of `projected`,
/// `[B L, 3 H E]`.
fn projected_attention(
    projected: Tensor<2>,
    [batch, heads, length, head_dim]: [usize; 4],
    rotation: Option<Rotation>,
    bias: Option<Bias>,
    scale: f64,
) -> Tensor<4> {
    let inner = heads * head_dim;
    let [q, k, v] = [0, 1, 2].map(|part| {
        let part = projected
            .clone()
            .slice_dim(1, part * inner..(part + 1) * inner);
        part.reshape([batch, length, heads, head_dim])
            .swap_dims(1, 2)
    });
    let rotated = |x, tables: fn(&Rotation) -> &[Tensor<4>; 2]| match &rotation {
        None => x,
        Some(rotation) => {
            let [cos, sin] = tables(rotation).clone();
            cube::rotate([&x, &cos, &sin], rotation.interleaved)
                .unwrap_or_else(|| rotate(x, cos, sin, rotation.interleaved))
        }
    };
    let (q, k) = (
        rotated(q, |rotation| &rotation.queries),
        rotated(k, |rotation| &rotation.keys),
    );
    let bias = bias.map(|bias| match bias {
        Bias::Dense(bias) => bias,
        Bias::ByDistance(bias) => dense_bias(bias, length),
        Bias::Decays(sums) => sums.clone().unsqueeze_dim(3) - sums.unsqueeze_dim(2),
        Bias::Network(network) => diagonal_network(*network),
    });
    cube::attention([&q, &k, &v], &bias, scale, 0)
        .unwrap_or_else(|| attention(q, k, v, bias, scale, 0))
}

/// A bias by distance, `[G, H, n]`, as one value per query and key, `[G, H, L, L]`. Keys after the
/// query, which are hidden, get the first value.
fn dense_bias(values: Tensor<3>, length: usize) -> Tensor<4> {
    let [groups, heads, _] = values.dims();
    let cells =
        (0..length).flat_map(|query| (0..length).map(move |key| query.saturating_sub(key) as i32));
    let cells = Tensor::<1, Int>::from_data(
        TensorData::new(cells.collect(), [length * length]),
        &values.device(),
    );
    values
        .select(2, cells)
        .reshape([groups, heads, length, length])
}

/// Definition of [`cell_network`](crate::cell_network).
pub fn cell_network(x: Tensor<4>, network: CellNetwork) -> Tensor<4> {
    ops::cell_network(x, network, |x, w| multiplied(x, w, Matmul::F32))
}

/// Definition of [`diagonal_network`](crate::diagonal_network).
pub fn diagonal_network(network: DiagonalNetwork) -> Tensor<4> {
    ops::diagonal_network(network, |x, w| multiplied(x, w, Matmul::F32))
}

/// Definition of [`adamw`](crate::adamw): part by part.
pub fn adamw(
    theta: Tensor<1>,
    grad: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    steps: &[AdamWStep],
) -> [Tensor<1>; 3] {
    if let [step] = steps {
        return adamw_part(theta, grad, moments, step);
    }
    let length = theta.dims()[0] / steps.len();
    let parts: Vec<[Tensor<1>; 3]> = steps
        .iter()
        .enumerate()
        .map(|(i, step)| {
            let part = |x: &Tensor<1>| x.clone().slice_dim(0, i * length..(i + 1) * length);
            let moments = moments.as_ref().map(|pair| pair.each_ref().map(part));
            adamw_part(part(&theta), part(&grad), moments, step)
        })
        .collect();
    [0, 1, 2].map(|i| Tensor::cat(parts.iter().map(|part| part[i].clone()).collect(), 0))
}

/// Definition of [`adamw_all`](crate::adamw_all): one after the other.
pub fn adamw_all(updates: Vec<AdamWUpdate>) -> Vec<[Tensor<1>; 3]> {
    let updates = updates.into_iter();
    updates
        .map(|update| adamw(update.theta, update.grad, update.moments, &update.steps))
        .collect()
}

fn adamw_part(
    theta: Tensor<1>,
    grad: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: &AdamWStep,
) -> [Tensor<1>; 3] {
    let AdamWStep {
        grad_scale,
        beta1,
        beta2,
        root,
        eps,
        rate,
        keep,
    } = *step;
    let grad = grad * grad_scale;
    let [first, second] =
        [(grad.clone(), beta1), (grad.square(), beta2)].map(|(x, beta)| x * (1.0 - beta));
    // Before the first step both moments are 0.
    let [first, second] = match moments {
        Some([old_first, old_second]) => [old_first * beta1 + first, old_second * beta2 + second],
        None => [first, second],
    };
    let update = first.clone() / (second.clone().sqrt() / root + eps) * rate;
    [theta * keep - update, first, second]
}

/// Definition of [`square_sums`](crate::square_sums): part by part.
pub fn square_sums(vectors: Vec<Tensor<1>>, parts: usize) -> Tensor<1> {
    let sums = vectors.into_iter().flat_map(|x| {
        let length = x.dims()[0] / parts;
        (0..parts).map(move |part| {
            let part = x.clone().slice_dim(0, part * length..(part + 1) * length);
            // A sum over one dimension is reproducible for any number of threads; a full `sum()`
            // of a large tensor is not.
            part.square().sum_dim(0)
        })
    });
    Tensor::cat(sums.collect(), 0)
}
