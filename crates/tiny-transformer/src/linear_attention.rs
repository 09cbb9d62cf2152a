//! Linear attention: similarities are products of features, so that all earlier tokens fit into a
//! state of fixed size.
//!
//! Katharopoulos et al. 2020 (arXiv 2006.16236); with rotation, RoFormer (arXiv 2104.09864), eq.
//! 19.

use crate::config::{FeatureMap, Normalizer};
use crate::denominators::{Denominators, kept_from_zero};
use crate::heads::transform_qk;
use burn::tensor::{Tensor, TensorData, activation};
use kernels::Matmul;
use posenc::{Bias, Prepared};
use std::ops::Range;

/// Rows per chunk. Within a chunk every pair is computed; earlier chunks are in the state.
const CHUNK: usize = 64;

/// The features of queries or keys, `[B, H, L, E]`, before an encoding transforms them.
pub fn feature_map(x: Tensor<4>, map: FeatureMap, normalizer: Normalizer) -> Tensor<4> {
    match (normalizer, map) {
        // A unit vector: 1 + cosine needs no other map to stay non-negative.
        (Normalizer::Cosine, _) => {
            let norm = (x.clone().square().sum_dim(3) + 1e-12).sqrt();
            x / norm
        }
        (_, FeatureMap::Elu) => activation::elu(x, 1.0) + 1.0,
        (_, FeatureMap::Relu) => activation::relu(x),
    }
}

/// Attention with features `q` and `k`, `[B, H, *, E]`, and values `v`; query row i sees the keys
/// `0..=first_query + i`. `hidden`, `[B, K, D]`, is what they are projected from.
/// Denominators that were negative or almost 0 are counted in `counts`.
///
/// # Panics
///
/// If the encoding's bias by position is not a decay. Content and output biases are not read:
/// [`TransformerConfig::check_encoding`](crate::TransformerConfig::check_encoding) refuses
/// encodings that have them.
pub fn linear_attention(
    [q, k, v]: [Tensor<4>; 3],
    hidden: &Tensor<3>,
    layer: usize,
    encoding: &dyn Prepared,
    normalizer: Normalizer,
    first_query: usize,
    counts: Option<&Denominators>,
) -> Tensor<4> {
    let decay = encoding.logits_bias(layer);
    assert!(
        decay.as_ref().is_none_or(Bias::is_decay),
        "linear attention can only host biases that are decays"
    );
    let decay = decay.as_ref();
    let [batch, heads, keys, width] = v.dims();
    let ones = |width: usize, length: usize| {
        Tensor::<4>::ones([batch, heads, length, width], (&v.device(), v.dtype()))
    };
    let (rotated_q, rotated_k) = transform_qk(encoding, layer, q.clone(), k.clone(), hidden);
    let (numerator, denominator) = match normalizer {
        Normalizer::Unrotated => {
            // RoFormer, eq. 19: only the numerator is rotated. The denominator stays non-negative.
            let numerator = prefix_sums(rotated_q, rotated_k, v.clone(), decay, first_query);
            (
                numerator,
                prefix_sums(q, k, ones(1, keys), decay, first_query),
            )
        }
        Normalizer::Rotated | Normalizer::Cosine => {
            let (rotated_q, rotated_k) = if normalizer == Normalizer::Cosine {
                // The 1 in 1 + cosine is one more feature.
                let queries = rotated_q.dims()[2];
                (
                    Tensor::cat(vec![ones(1, queries), rotated_q], 3),
                    Tensor::cat(vec![ones(1, keys), rotated_k], 3),
                )
            } else {
                (rotated_q, rotated_k)
            };
            // A column of ones beside the values gives the denominator in the same pass.
            let sums = prefix_sums(
                rotated_q,
                rotated_k,
                Tensor::cat(vec![v.clone(), ones(1, keys)], 3),
                decay,
                first_query,
            );
            (
                sums.clone().slice_dim(3, 0..width),
                sums.slice_dim(3, width..width + 1),
            )
        }
    };
    numerator / kept_from_zero(denominator, counts)
}

/// `sum over keys n <= m of exp(decay(m, n)) (q_m . k_n) v_n`, `[B, H, Q, V]`, in time and memory
/// linear in the length.
///
/// The state at row a is the factor of `q_m` in that sum over the keys before a, with decays
/// relative to row a.
fn prefix_sums(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    decay: Option<&Bias<'_>>,
    first_query: usize,
) -> Tensor<4> {
    let [batch, _, queries, _] = q.dims();
    let factor = |rows: Range<usize>, keys: Range<usize>| {
        decay.map(|bias| kernels::per_sequence(bias.block(rows, keys), batch).exp())
    };
    let scale = |x: Tensor<4>, by: Option<Tensor<4>>| match by {
        Some(by) => x * by,
        None => x,
    };
    // Keys, decayed relative to row `anchor`, times values.
    let gathered = |keys: Range<usize>, anchor: usize| {
        let k = k.clone().slice_dim(2, keys.clone()).swap_dims(2, 3);
        let k = scale(k, factor(anchor..anchor + 1, keys.clone()));
        kernels::matmul(k, v.clone().slice_dim(2, keys), Matmul::F32)
    };
    // Cached tokens precede row 0: their sum is the first state.
    let mut state = (first_query > 0).then(|| gathered(0..first_query, 0));
    let mut sums = Vec::new();
    for start in (0..queries).step_by(CHUNK) {
        let rows = start..(start + CHUNK).min(queries);
        let keys = first_query + rows.start..first_query + rows.end;
        let q = q.clone().slice_dim(2, rows.clone());
        // Inside the chunk every pair is computed, then later keys are masked.
        let own = k.clone().slice_dim(2, keys.clone()).swap_dims(2, 3);
        let similar = kernels::matmul(q.clone(), own, Matmul::F32);
        let similar = scale(similar, factor(rows.clone(), keys.clone())) * visible(rows.len(), &q);
        let mut sum = kernels::matmul(similar, v.clone().slice_dim(2, keys.clone()), Matmul::F32);
        // Earlier keys: the state, decayed from the first row of the chunk to each row.
        if let Some(state) = &state {
            sum = sum
                + scale(
                    kernels::matmul(q, state.clone(), Matmul::F32),
                    factor(rows.clone(), keys.start..keys.start + 1),
                );
        }
        sums.push(sum);
        // No chunk reads a state after the last.
        if rows.end < queries {
            let next = gathered(keys.clone(), rows.end);
            // The state becomes relative to the first row of the next chunk.
            let carried = state.map(|state| {
                scale(
                    state,
                    factor(rows.end..rows.end + 1, keys.start..keys.start + 1),
                )
            });
            state = Some(match carried {
                Some(carried) => carried + next,
                None => next,
            });
        }
    }
    if sums.len() == 1 {
        sums.remove(0)
    } else {
        Tensor::cat(sums, 2)
    }
}

/// The causal mask of a chunk, `[1, 1, rows, rows]`: 1 for visible keys.
fn visible(rows: usize, like: &Tensor<4>) -> Tensor<4> {
    let cells = (0..rows).flat_map(|row| (0..rows).map(move |key| f32::from(u8::from(key <= row))));
    Tensor::from_data(
        TensorData::new(cells.collect::<Vec<f32>>(), [1, 1, rows, rows]),
        (&like.device(), like.dtype()),
    )
}
