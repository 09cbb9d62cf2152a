//! Where a fixed bias by distance leaves pairs without weight: f32 rounds their softmax to 0.
//!
//! This is a lower bound: kernels that flush numbers below 2^-126 to 0, such as those of this
//! program on the CPU, lose pairs at distances from `87.3 / slope`, not from about `102 / slope`.

use burn::tensor::Device;
use posenc::{Context, EncodingConfig, Init, ModelShape, PositionalEncoding, Positions};
use serde::Serialize;
use std::fmt;

/// Longest sequence that is looked at.
const LONGEST: usize = 1 << 17;
/// Share of pairs from which on a note is worth its line.
const WORTH_A_NOTE: f64 = 0.05;

/// What heads do not see at a length, if content is alike everywhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blind {
    /// The head that sees least far, from 0.
    pub head: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// The largest distance at which that head's last query still gives weight.
    pub beyond: usize,
    /// Tokens of the sequence.
    pub seq_len: usize,
    /// Share of all pairs of all heads and layers whose weight is 0.
    pub share: f64,
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            head,
            heads,
            beyond,
            seq_len,
            share,
        } = self;
        write!(
            f,
            "head {head} (of 0 to {}) gives exactly 0 to pairs more than {beyond} tokens apart \
             where content is alike; at {seq_len} tokens at least {:.0} % of all \
             pairs have weight 0",
            heads - 1,
            100.0 * share
        )
    }
}

/// The host's own device, on which nothing is computed that a run records.
pub(super) fn host() -> Device {
    #[cfg(feature = "flex")]
    return Device::flex();
    #[cfg(not(feature = "flex"))]
    Device::default()
}

/// The first query of a sequence that gives weight 0 to each distance, under one head's bias by
/// distance: the number of queries where none does, or where the bias masks the distance.
///
/// With every further key a query's largest logit and its sum grow, so a distance that has lost its
/// weight does not get it back.
fn first_blind(bias: &[f32]) -> Vec<usize> {
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0f32);
    let add = |b: &f32| {
        if *b > max {
            sum *= (max - b).exp();
            max = *b;
        }
        if max > f32::NEG_INFINITY {
            sum += (b - max).exp();
        }
        (max, sum)
    };
    let totals: Vec<(f32, f32)> = bias.iter().map(add).collect();
    let first = |(distance, b): (usize, &f32)| {
        let sees = |(max, sum): &(f32, f32)| b.is_infinite() || (b - max).exp() / sum > 0.0;
        distance + totals[distance..].partition_point(sees)
    };
    bias.iter().enumerate().map(first).collect()
}

/// What the bias of a configuration hides at a length, by its tables; `None` where it is trained,
/// depends on more than the distance, or hides less than a share worth saying. Pairs that it masks
/// do not count.
pub fn blind(pe: &EncodingConfig, shape: &ModelShape, seq_len: usize) -> Option<Blind> {
    let (facts, seq_len) = (pe.facts(shape), seq_len.min(LONGEST));
    let by_distance = facts.by_distance || facts.bias_by_distance;
    if !facts.hooks.logits_bias || !by_distance || !facts.parameters.is_empty() {
        return None;
    }
    let device = host();
    let encoding = pe.init(shape, &Init::zeros(&device)).ok()?;
    let positions = Positions::contiguous(seq_len);
    let prepared = encoding.prepare(&positions, &Context::new(&device)).ok()?;
    let (mut hidden, mut nearest) = (0, None);
    for layer in 0..shape.n_layers {
        let Some(bias) = prepared.logits_bias(layer) else {
            continue;
        };
        let rows = bias.by_distance(seq_len)?;
        let [_, rows_of_heads, _] = rows.dims();
        let rows: Vec<f32> = rows.into_data().try_to_vec().ok()?;
        for (head, row) in rows.chunks(seq_len).take(rows_of_heads).enumerate() {
            let first = first_blind(row);
            let pairs: usize = first.iter().map(|first| seq_len - first).sum();
            // One row may be that of all heads.
            hidden += pairs * (shape.n_heads / rows_of_heads);
            let sees = |at: &usize| first[*at] == seq_len && row[*at].is_finite();
            if let Some(beyond) = (0..seq_len).rev().find(sees).filter(|_| pairs > 0) {
                nearest = nearest.into_iter().chain([(beyond, head)]).min();
            }
        }
    }
    let all = shape.n_layers * shape.n_heads * seq_len * (seq_len + 1) / 2;
    let (beyond, head) = nearest?;
    let share = hidden as f64 / all as f64;
    (share >= WORTH_A_NOTE).then_some(Blind {
        head,
        heads: shape.n_heads,
        beyond,
        seq_len,
        share,
    })
}
