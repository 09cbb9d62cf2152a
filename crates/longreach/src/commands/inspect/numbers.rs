//! Numbers of an encoding: host tables in f64 as they are before rounding, and what the hooks give.

use crate::exit::{Exit, Failure};
use crate::run::parameters::draw;
use burn::tensor::{DType, Device, Tensor, TensorData};
use posenc::rotary;
use posenc::{
    Block, Content, Encoding, EncodingConfig, Facts, Hooks, Init, Lengths, ModelShape,
    PositionalEncoding, Positions, Prepared,
};
use serde::Serialize;
use std::f64::consts::PI;
use tasks::Stream;

/// Seed of initial values and of the vectors that checks turn.
const SEED: u64 = 0;
/// Largest relative error of a check: about a hundred roundings of f32.
const ALLOWED: f64 = 1e-5;
/// Most points of the decay curve.
const DECAY_POINTS: usize = 4096;

/// An encoding and what it is built for.
pub struct Subject {
    pub config: EncodingConfig,
    pub shape: ModelShape,
    pub lengths: Lengths,
    /// Steps from the model down to the encoding: initial values are drawn by path, so these are
    /// the ones that training starts from.
    pub path: Vec<String>,
}

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

/// Logits before the softmax of a sequence in which every token is the same, so that only position
/// tells them apart: all hooks on random inputs, queries and keys, mean over the draws. Parameters
/// as drawn by seed 0.
#[derive(Debug, Serialize)]
pub struct Response {
    /// Distances between the last query and its keys.
    pub distance: Vec<usize>,
    /// `[head][distance]` of layer 0; null where a key is hidden from the head.
    pub logits: Vec<Vec<Option<f64>>>,
}

/// Length of the sequence [`Response`] is told for, where the encoding reaches so far.
const RESPONSE_LENGTH: usize = 256;
/// Random inputs it is the mean of.
const RESPONSE_DRAWS: usize = 16;

/// What a rotary encoding turns by.
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

/// A law of rotations, measured on the hooks in f32.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub worst_relative_error: f64,
    pub allowed: f64,
    pub ok: bool,
}

impl Subject {
    /// What the configured encoding declares.
    pub fn facts(&self) -> Facts {
        self.config.facts(&self.shape)
    }

    /// Whether it rotates queries and keys by one set of frequencies and does nothing else with
    /// them, so that the laws of rotations hold.
    pub fn only_rotates(&self) -> bool {
        let facts = self.facts();
        self.config.rotary(&self.shape).is_some()
            && facts.hooks == Hooks::TRANSFORM_QK
            && !facts.exclusive_in_stack
    }

    /// About how many numbers so many positions are.
    pub fn count(&self, positions: usize) -> usize {
        let hooks = self.facts().hooks;
        let times = |on: bool, n: usize| if on { positions.saturating_mul(n) } else { 0 };
        let own = times(hooks.embed, self.shape.d_model)
            .saturating_add(times(hooks.transform_qk, self.shape.head_dim))
            .saturating_add(times(
                hooks.logits_bias,
                positions.saturating_mul(self.shape.n_heads),
            ));
        self.parts()
            .iter()
            .fold(own, |sum, part| sum.saturating_add(part.count(positions)))
    }

    /// The parts of an encoding made of others; nothing otherwise.
    pub fn parts(&self) -> Vec<Subject> {
        let subject = |part: posenc::spec::Part<'_>| {
            let steps = part.path.split('.').map(str::to_owned);
            Subject {
                config: part.config.clone(),
                path: self.path.iter().cloned().chain(steps).collect(),
                ..*self
            }
        };
        self.config.parts().into_iter().map(subject).collect()
    }

    /// The module that training with seed 0 starts from.
    ///
    /// # Errors
    ///
    /// A bug: the configuration was resolved and checked when it was read.
    pub fn encoding(&self, device: &Device) -> Result<Encoding, Failure> {
        let source =
            |path: &str, shape: &[usize], distribution| draw(SEED, path, shape, distribution);
        let init = self
            .path
            .iter()
            .fold(Init::new(device, &source), |init, step| init.scope(step));
        let encoding = self.config.init(&self.shape, &init);
        encoding.map_err(|error| Failure::new(Exit::Bug, error.to_string()))
    }

    /// Positions that also tell the length of the sequence, by a last key of its own, to encodings
    /// that read it.
    fn positions(&self, queries: &[f64], keys: &[f64]) -> Positions {
        let mut keys = keys.to_vec();
        if self.facts().reads_length {
            keys.push((self.lengths.test_len as f64 - 1.0).max(0.0));
        }
        Positions::new(queries.to_vec(), keys)
    }

    /// What the first hook adds to an input of zeros.
    pub fn embedding(
        &self,
        encoding: &Encoding,
        positions: &[f64],
        device: &Device,
    ) -> Result<Option<Vec<Vec<f32>>>, Failure> {
        if !self.facts().hooks.embed {
            return Ok(None);
        }
        let zeros = Tensor::<3>::zeros([1, positions.len(), self.shape.d_model], device);
        let added =
            host(prepared(encoding, &self.positions(positions, positions), device)?.embed(zeros))?;
        Ok(Some(
            added
                .chunks(self.shape.d_model)
                .map(<[f32]>::to_vec)
                .collect(),
        ))
    }

    /// The bias of layer 0, `[head][query][key]`.
    pub fn bias(
        &self,
        encoding: &Encoding,
        queries: &[f64],
        keys: &[f64],
        device: &Device,
    ) -> Result<Option<Vec<Vec<Vec<f32>>>>, Failure> {
        let prepared = prepared(encoding, &self.positions(queries, keys), device)?;
        let Some(bias) = prepared.logits_bias(0) else {
            return Ok(None);
        };
        let values = host(bias.block(0..queries.len(), 0..keys.len()))?;
        let head = |head: &[f32]| head.chunks(keys.len()).map(<[f32]>::to_vec).collect();
        let mut heads: Vec<Vec<Vec<f32>>> = values
            .chunks(queries.len() * keys.len())
            .map(head)
            .collect();
        if let [shared] = heads.as_slice() {
            heads = vec![shared.clone(); self.shape.n_heads];
        }
        Ok(Some(heads))
    }

    /// Mean logits of layer 0, `[head][query][key]`, of sequences of `length` equal tokens;
    /// -infinity where a key is hidden.
    pub fn logits(
        &self,
        encoding: &Encoding,
        length: usize,
        device: &Device,
    ) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
        let ModelShape {
            d_model,
            n_heads,
            head_dim,
            ..
        } = self.shape;
        let prepared = prepared(encoding, &Positions::contiguous(length), device)?;
        let mut stream = Stream::new(SEED, "inspect response", 0);
        let mut draw = |width: usize| {
            let values: Vec<f32> = (0..RESPONSE_DRAWS * width)
                .map(|_| stream.normal() as f32)
                .collect();
            Tensor::<2>::from_data(TensorData::new(values, [RESPONSE_DRAWS, width]), device)
        };
        let (token, content) = (draw(d_model), draw(n_heads * head_dim));
        // A table meets itself where the encoding adds to the input; everywhere else queries and
        // keys are one vector.
        let token = token.unsqueeze_dim::<3>(1).repeat_dim(1, length);
        let hidden = prepared.embed(token.clone());
        let added = hidden.clone() - token;
        let inner = n_heads * head_dim;
        let added = if d_model < inner {
            let rest = Tensor::zeros([RESPONSE_DRAWS, length, inner - d_model], device);
            Tensor::cat(vec![added, rest], 2)
        } else {
            added.slice_dim(2, 0..inner)
        };
        let x = content.unsqueeze_dim::<3>(1).repeat_dim(1, length) + added;
        let x = x
            .reshape([RESPONSE_DRAWS, length, n_heads, head_dim])
            .swap_dims(1, 2);
        let raw = || (x.clone(), x.clone());
        let (q, k) = prepared.transform_qk(0, x.clone(), x.clone());
        let scale = 1.0 / (head_dim as f64).sqrt();
        let block = Block {
            queries: 0..length,
            keys: 0..length,
            first_query: 0,
        };
        let content = Content::new([&q, &k], &raw, &hidden, block, scale);
        let mut logits = content.logits();
        if let Some(bias) = prepared.content_bias(0, &content) {
            logits = logits + bias;
        }
        let mut mean = logits.mean_dim(0);
        if let Some(bias) = prepared.logits_bias(0) {
            mean = mean + bias.block(0..length, 0..length);
        }
        let values = host(mean)?;
        let row = |row: &[f32]| row.iter().map(|v| f64::from(*v)).collect();
        Ok(values
            .chunks(length * length)
            .map(|head| head.chunks(length).map(row).collect())
            .collect())
    }

    /// The longest sequence up to `most` that the encoding reaches.
    pub fn reach(&self, most: usize) -> usize {
        self.facts().max_position.unwrap_or(most).clamp(1, most)
    }

    /// Turns `x`, row-major `[vectors, positions, head_dim]`, by the hook for queries or the one
    /// for keys. The other side is one vector at `top`, which sets the length that
    /// length-reading scalings see.
    pub fn turn(
        &self,
        encoding: &Encoding,
        side: Side,
        x: &[f32],
        positions: &[f64],
        top: f64,
        device: &Device,
    ) -> Result<Vec<f32>, Failure> {
        let head_dim = self.shape.head_dim;
        let vectors = x.len() / (positions.len() * head_dim);
        let x = Tensor::<4>::from_data(
            TensorData::new(x.to_vec(), [vectors, 1, positions.len(), head_dim]),
            device,
        );
        let other = Tensor::<4>::zeros([vectors, 1, 1, head_dim], device);
        let (mine, other_positions) = (positions.to_vec(), vec![top]);
        match side {
            Side::Query => host(
                prepared(encoding, &Positions::new(mine, other_positions), device)?
                    .transform_qk(0, x, other)
                    .0,
            ),
            Side::Key => host(
                prepared(encoding, &Positions::new(other_positions, mine), device)?
                    .transform_qk(0, other, x)
                    .1,
            ),
        }
    }
}

/// The encoding at these positions.
fn prepared<'a>(
    encoding: &'a Encoding,
    positions: &Positions,
    device: &Device,
) -> Result<Box<dyn Prepared + 'a>, Failure> {
    let prepared = encoding.prepare(positions, device);
    prepared.map_err(|error| Failure::new(Exit::Bug, error.to_string()))
}

/// Which of the two a vector is.
#[derive(Clone, Copy)]
pub enum Side {
    Query,
    Key,
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
    let parts = parts.collect::<Result<_, Failure>>()?;
    Ok(Numbers {
        key: String::new(),
        kind: subject.config.kind(),
        summary: about.summary,
        formula: about.formula,
        source: about.source,
        config: serde_json::to_value(&subject.config)
            .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?,
        facts: subject.facts(),
        rotary,
        slopes: subject.config.slopes(&subject.shape),
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
        .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    let factor = frequencies.attention_factor;
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
    let (dim, turns) = (2.0 * plain.len() as f64, train_len / (2.0 * PI));
    let critical = 2.0 * (dim / 2.0 * libm::log(turns) / libm::log(base)).ceil();
    Bounds {
        longest_wavelength: plain.last().map_or(0.0, |theta| 2.0 * PI / theta),
        pairs_beyond_train_len: beyond(plain),
        scaled_pairs_beyond_train_len: beyond(scaled),
        critical_dimension: critical.clamp(0.0, dim) as usize,
        smallest_base: (plain.len() > 1).then(|| libm::pow(turns, dim / (dim - 2.0)).max(1.0)),
    }
}

/// The curve of [`Decay`] over the distances of a sequence, of 256 at least.
pub fn decay(inv_freq: &[f64], seq_len: usize) -> Decay {
    let end = seq_len.max(256);
    let distance: Vec<usize> = (0..end).step_by(end.div_ceil(DECAY_POINTS)).collect();
    let mean = |distance: &usize| {
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

/// Rotations preserve norms, compose by adding positions, and leave dot products to the difference
/// of positions.
fn checks(
    subject: &Subject,
    encoding: &Encoding,
    turned: usize,
    factor: f64,
    device: &Device,
) -> Result<Vec<Check>, Failure> {
    const VECTORS: usize = 4;
    const FIRST: [f64; 5] = [0.0, 1.0, 7.0, 100.0, 511.0];
    const SHIFTS: [f64; 6] = [0.0, 1.0, 37.0, 1000.0, 65_025.0, 65_536.0];
    const OUTER: [f64; 5] = [1.0, 7.0, 511.0, 4096.0, 65_536.0];
    const INNER: [f64; 5] = [2.0, 100.0, 1023.0, 65_000.0, 511.0];
    let head_dim = subject.shape.head_dim;
    let places: Vec<f64> = SHIFTS
        .iter()
        .flat_map(|shift| FIRST.iter().map(move |first| first + shift))
        .collect();
    let sums: Vec<f64> = OUTER.iter().zip(INNER).map(|(m, n)| m + n).collect();
    // One length for all of it, so that scalings that read the length turn by the same frequencies
    // everywhere.
    let top = places
        .iter()
        .chain(&sums)
        .copied()
        .fold(subject.lengths.test_len as f64 - 1.0, f64::max);
    let turn = |side, x: &[f32], positions: &[f64]| {
        subject.turn(encoding, side, x, positions, top, device)
    };
    let mut stream = Stream::new(SEED, "inspect", 0);
    let mut draw = || -> Vec<f32> {
        (0..VECTORS * head_dim)
            .map(|_| stream.normal() as f32)
            .collect()
    };
    let everywhere = |vectors: &[f32], count: usize| -> Vec<f32> {
        vectors
            .chunks(head_dim)
            .flat_map(|v| v.repeat(count))
            .collect()
    };
    let (q, k) = (draw(), draw());

    let (many_q, many_k) = (everywhere(&q, places.len()), everywhere(&k, places.len()));
    let (turned_q, turned_k) = (
        turn(Side::Query, &many_q, &places)?,
        turn(Side::Key, &many_k, &places)?,
    );
    let (mut relative, mut norm) = (0f64, 0f64);
    let rows = |all: &[f32], vector: usize| -> Vec<Vec<f32>> {
        all[vector * places.len() * head_dim..][..places.len() * head_dim]
            .chunks(head_dim)
            .map(<[f32]>::to_vec)
            .collect()
    };
    for vector in 0..VECTORS {
        let (q_rows, k_rows) = (rows(&turned_q, vector), rows(&turned_k, vector));
        let scale = dot(&q_rows[0], &q_rows[0]).sqrt() * dot(&k_rows[0], &k_rows[0]).sqrt();
        for (i, j) in (0..FIRST.len()).flat_map(|i| (0..FIRST.len()).map(move |j| (i, j))) {
            let at = |shift: usize| {
                dot(
                    &q_rows[shift * FIRST.len() + i],
                    &k_rows[shift * FIRST.len() + j],
                )
            };
            relative = (1..SHIFTS.len())
                .map(|shift| (at(shift) - at(0)).abs() / scale)
                .fold(relative, f64::max);
        }
        for (rows, vectors) in [(&q_rows, &q), (&k_rows, &k)] {
            let before = &vectors[vector * head_dim..][..turned];
            let length = dot(before, before).sqrt() * factor;
            norm = rows
                .iter()
                .map(|row| (dot(&row[..turned], &row[..turned]).sqrt() / length - 1.0).abs())
                .fold(norm, f64::max);
        }
    }

    let start = everywhere(&q, INNER.len());
    let twice = turn(Side::Query, &turn(Side::Query, &start, &INNER)?, &OUTER)?;
    let once = turn(Side::Query, &start, &sums)?;
    let mut group = 0f64;
    for ((twice, once), start) in twice
        .chunks(head_dim)
        .zip(once.chunks(head_dim))
        .zip(start.chunks(head_dim))
    {
        let apart = twice[..turned]
            .iter()
            .zip(&once[..turned])
            .map(|(a, b)| f64::from(*a) / (factor * factor) - f64::from(*b) / factor);
        let apart = apart.map(|d| d * d).sum::<f64>().sqrt();
        group = group.max(apart / dot(&start[..turned], &start[..turned]).sqrt());
    }
    let check = |name, worst: f64| Check {
        name,
        worst_relative_error: worst,
        allowed: ALLOWED,
        ok: worst <= ALLOWED,
    };
    Ok(vec![
        check("relative-position identity", relative),
        check("norm preservation", norm),
        check("group property R_m R_n = R_(m+n)", group),
    ])
}

/// The product of two vectors, summed in f64.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum()
}

fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, Failure> {
    let data = tensor.into_data_dtype(DType::F32).try_to_vec::<f32>();
    data.map_err(|error| {
        Failure::new(
            Exit::Bug,
            format!("a tensor cannot be read back: {error:?}"),
        )
    })
}
