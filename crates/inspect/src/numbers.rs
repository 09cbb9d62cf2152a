//! Numbers of an encoding: host tables in f64 as they are before rounding, and what the hooks give.

use crate::checks::{Check, checks};
use crate::subject::Subject;
use burn::tensor::Device;
use experiment::plan::blind::{Blind, blind};
use posenc::rotary;
use posenc::spec::NumberTable;
use posenc::{Encoding, Facts};
use serde::Serialize;
use std::collections::BTreeMap;
use std::f64::consts::PI;
use support::exit::Failure;

/// Most points of the decay curve.
const DECAY_POINTS: usize = 4096;

/// What an encoding is made of. Tables named as in the literature; rows are the positions asked
/// for.
#[derive(Debug, Serialize)]
pub struct Numbers {
    /// Key of its table inside the encoding it is a part of; empty for the whole.
    #[serde(skip)]
    pub key: String,
    pub kind: &'static str,
    pub summary: &'static str,
    pub formula: &'static str,
    pub source: &'static str,
    /// Every key, resolved for these lengths.
    pub config: serde_json::Value,
    pub facts: Facts,
    #[serde(flatten)]
    pub rotary: Option<Rotary>,
    /// Per head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slopes: Option<Vec<f64>>,
    /// What its bias leaves without weight at the test length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blind: Option<Blind>,
    /// Further numbers that define it: buckets, mapped distances, frequencies of other rotations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<NumberTable>,
    /// Parameters of at most 64 numbers as training with seed 0 starts with them, row-major.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub initial: BTreeMap<String, Vec<f64>>,
    /// `[position][d_model]`: what the hook adds to the input, in f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Vec<Vec<f32>>>,
    /// `[head][query][key]` of layer 0, in f32, null for -infinity; keys after the query as the
    /// encoding has them, before any mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits_bias: Option<Vec<Vec<Vec<f32>>>>,
    /// What attention makes of it, whichever hooks it uses.
    pub response: Response,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Numbers>,
}

/// Logits before the softmax of a sequence of equal tokens, so that they differ by position only:
/// all hooks on random inputs, queries and keys, mean over the draws. Parameters are those of
/// seed 0.
#[derive(Debug, Serialize)]
pub struct Response {
    /// Distances between the last query and its keys.
    pub distance: Vec<usize>,
    /// `[head][distance]` of layer 0; null where a key is hidden from the head.
    pub logits: Vec<Vec<Option<f64>>>,
}

/// Length of the sequence of [`Response`], unless the encoding has a shorter limit.
pub const RESPONSE_LENGTH: usize = 256;

/// The rotation of a rotary encoding.
#[derive(Debug, Serialize)]
pub struct Rotary {
    /// Radians per token of each pair, scaled.
    pub inv_freq: Vec<f64>,
    /// The same without scaling.
    pub plain_inv_freq: Vec<f64>,
    /// Tokens per turn of each pair, scaled.
    pub wavelengths: Vec<f64>,
    pub attention_factor: f64,
    /// `[position][pair]`, times the attention factor, as at Hugging Face.
    pub cos: Vec<Vec<f64>>,
    /// `[position][pair]`, times the attention factor.
    pub sin: Vec<Vec<f64>>,
    pub bounds: Bounds,
    pub decay: Decay,
    pub checks: Vec<Check>,
}

/// What the base means for the training length.
#[derive(Debug, Serialize)]
pub struct Bounds {
    /// Of the plain frequencies, in tokens.
    pub longest_wavelength: f64,
    /// Pairs that never complete a turn in training.
    pub pairs_beyond_train_len: usize,
    /// The same under the scaling.
    pub scaled_pairs_beyond_train_len: usize,
    /// Dimensions whose pairs complete a turn in training: `2 ceil(d/2 log_base(L / 2 pi))`. Liu
    /// et al. 2023 (arXiv 2310.05209).
    pub critical_dimension: usize,
    /// Smallest base whose longest wavelength covers the training length; none for a single pair,
    /// whose base does not matter.
    pub smallest_base: Option<f64>,
}

/// Mean over `j = 1..=d/2` of `|S_j|`, `S_j = sum over i < j of exp(i distance theta_i)`: the bound
/// of RoFormer, section 3.4.3.
#[derive(Debug, Serialize)]
pub struct Decay {
    pub distance: Vec<usize>,
    pub value: Vec<f64>,
}

/// Everything about the encoding at these positions.
///
/// # Errors
///
/// A bug: a hook gave a tensor that cannot be read.
pub fn gather(subject: &Subject, positions: &[f64], device: &Device) -> Result<Numbers, Failure> {
    let encoding = subject.encoding(device)?;
    let about = subject.config.about();
    let rotary = match subject.config.rotary(&subject.shape) {
        Some(rotation) => Some(rotary(subject, &rotation, &encoding, positions, device)?),
        None => None,
    };
    let inner = subject.parts();
    let parts = inner.iter().zip(subject.config.parts());
    let parts = parts.map(|(inner, part)| {
        let numbers = gather(inner, positions, device)?;
        Ok(Numbers {
            key: part.key,
            ..numbers
        })
    });
    let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
    Ok(Numbers {
        key: String::new(),
        kind: subject.config.kind(),
        summary: about.summary,
        formula: about.formula,
        source: about.source,
        config: serde_json::to_value(&subject.config).map_err(Failure::bug)?,
        facts: subject.facts(),
        rotary,
        slopes: subject.config.slopes(&subject.shape),
        blind: blind(&subject.config, &subject.shape, subject.lengths.test_len),
        tables: subject.config.numbers(&subject.shape, &subject.lengths),
        initial: if parts.is_empty() {
            subject.small_parameters()
        } else {
            BTreeMap::new()
        },
        embedding: subject.embedding(&encoding, positions, device)?,
        logits_bias: subject.bias(&encoding, positions, positions, device)?,
        response: response(subject, &encoding, device)?,
        parts,
    })
}

fn response(subject: &Subject, encoding: &Encoding, device: &Device) -> Result<Response, Failure> {
    let length = subject.reach(RESPONSE_LENGTH);
    let logits = subject.logits(encoding, length, device)?;
    let of_head = |head: &Vec<Vec<f64>>| {
        // The row of the last query, from its own position back: distance 0 comes first.
        head[length - 1]
            .iter()
            .rev()
            .map(|logit| logit.is_finite().then_some(*logit))
            .collect()
    };
    Ok(Response {
        distance: (0..length).collect(),
        logits: logits.iter().map(of_head).collect(),
    })
}

fn rotary(
    subject: &Subject,
    rotation: &rotary::Rotary,
    encoding: &Encoding,
    positions: &[f64],
    device: &Device,
) -> Result<Rotary, Failure> {
    let frequencies = rotation
        .frequencies(subject.lengths.test_len as f64)
        .map_err(Failure::bug)?;
    let factor = frequencies.attention_factor;
    // Angles in f64: in f32 a large position leaves few digits for the part of a turn.
    let table = |of: fn(f64) -> f64| -> Vec<Vec<f64>> {
        positions
            .iter()
            .map(|p| {
                frequencies
                    .inv_freq
                    .iter()
                    .map(|theta| of(p * theta) * factor)
                    .collect()
            })
            .collect()
    };
    let plain = rotation.unscaled().inv_freq;
    Ok(Rotary {
        cos: table(libm::cos),
        sin: table(libm::sin),
        wavelengths: frequencies.wavelengths(),
        bounds: bounds(
            rotation.base,
            &plain,
            &frequencies.inv_freq,
            subject.lengths.train_len as f64,
        ),
        decay: decay(&frequencies.inv_freq, subject.lengths.test_len),
        checks: if subject.only_rotates() {
            checks(subject, encoding, 2 * plain.len(), factor, device)?
        } else {
            Vec::new()
        },
        inv_freq: frequencies.inv_freq,
        plain_inv_freq: plain,
        attention_factor: factor,
    })
}

fn bounds(base: f64, plain: &[f64], scaled: &[f64], train_len: f64) -> Bounds {
    let beyond = |inv_freq: &[f64]| {
        inv_freq
            .iter()
            .filter(|theta| 2.0 * PI / **theta > train_len)
            .count()
    };
    // Pair i turns once in 2 pi base^(2i/d) tokens. Set equal to L, this gives i and the base.
    let (dim, turns) = (2.0 * plain.len() as f64, train_len / (2.0 * PI));
    let critical = 2.0 * (dim / 2.0 * libm::log(turns) / libm::log(base)).ceil();
    Bounds {
        longest_wavelength: plain.last().map_or(0.0, |theta| 2.0 * PI / theta),
        pairs_beyond_train_len: beyond(plain),
        scaled_pairs_beyond_train_len: beyond(scaled),
        critical_dimension: critical.clamp(0.0, dim) as usize,
        // The slowest pair is i = d/2 - 1; with a single pair the exponent has no value.
        smallest_base: (plain.len() > 1).then(|| libm::pow(turns, dim / (dim - 2.0)).max(1.0)),
    }
}

/// The score of two equal vectors, of one length in every pair, by distance.
pub struct Scores {
    /// `sum over i of cos(distance theta_i) / n`.
    pub score: Vec<f64>,
    /// Its mean over the distances from half of this one to three halves.
    pub smooth: Vec<f64>,
    /// What no vector exceeds from a distance on: the largest `|sum over i of exp(i distance
    /// theta_i)| / n` of that and all longer distances, on a line from one such peak to the next.
    pub bound: Vec<f64>,
}

/// The scores at `length` distances from 0 on.
pub fn scores(inv_freq: &[f64], length: usize) -> Scores {
    let mean = |of: &dyn Fn(f64) -> f64| {
        inv_freq.iter().map(|theta| of(*theta)).sum::<f64>() / inv_freq.len() as f64
    };
    let cos = |distance: usize| mean(&|theta| libm::cos(distance as f64 * theta));
    let sin = |distance: usize| mean(&|theta| libm::sin(distance as f64 * theta));
    let smooth = |distance: usize| {
        mean(&|theta| match distance as f64 * theta {
            0.0 => 1.0,
            turn => (libm::sin(1.5 * turn) - libm::sin(0.5 * turn)) / turn,
        })
    };
    // From the end: peaks that no longer distance exceeds. Those past `length` bound the last too.
    let mut peaks: Vec<(usize, f64)> = Vec::new();
    for at in (0..4 * length).rev() {
        let size = libm::hypot(cos(at), sin(at));
        if peaks.last().is_none_or(|(_, peak)| size >= *peak) {
            peaks.push((at, size));
        }
    }
    peaks.reverse();
    let between = peaks.windows(2).flat_map(|pair| {
        let ((from, high), (to, low)) = (pair[0], pair[1]);
        (from..to).map(move |at| {
            let share = (at - from) as f64 / (to - from) as f64;
            high + share * (low - high)
        })
    });
    Scores {
        score: (0..length).map(cos).collect(),
        smooth: (0..length).map(smooth).collect(),
        bound: between.take(length).collect(),
    }
}

/// The curve of [`Decay`] over the distances of a sequence, of 256 at least.
pub fn decay(inv_freq: &[f64], seq_len: usize) -> Decay {
    let end = seq_len.max(256);
    let distance: Vec<usize> = (0..end).step_by(end.div_ceil(DECAY_POINTS)).collect();
    let mean = |distance: &usize| {
        // S_j adds one term to S_(j-1), so all of them take one pass over the pairs.
        let (mut re, mut im, mut sum) = (0.0, 0.0, 0.0);
        for theta in inv_freq {
            let (sin, cos) = libm::sincos(*distance as f64 * theta);
            (re, im) = (re + cos, im + sin);
            sum += libm::hypot(re, im);
        }
        sum / inv_freq.len() as f64
    };
    let value = distance.iter().map(mean).collect();
    Decay { distance, value }
}
