//! The model written out again on the host, in f64, one number at a time.

use super::{AllHooks, Weights};
use posenc::encodings::alibi::slopes;
use posenc::rotary::inv_freq;
use std::f64::consts::PI;
use tiny_transformer::{
    Activation, AttentionKind, FeatureMap, Mask, NormKind, Normalizer, QkNorm, TransformerConfig,
};

/// Encodings written out again for the reference; several stand for a stack, nothing for `nope`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    Sinusoidal,
    Learned,
    RopeHalf,
    Xpos,
    Alibi,
    Pope,
    Shaw,
    Fox,
    AllHooks,
}

/// What stands for the encodings of these kinds, stacked.
pub fn parts(kinds: &[&str]) -> Vec<Part> {
    let part = |kind: &&str| match *kind {
        "sinusoidal" => Part::Sinusoidal,
        "learned" => Part::Learned,
        "rope" => Part::RopeHalf,
        "xpos" => Part::Xpos,
        "alibi" => Part::Alibi,
        "pope" => Part::Pope,
        "shaw" => Part::Shaw,
        "fox" => Part::Fox,
        "all hooks" => Part::AllHooks,
        other => panic!("the reference does not know {other}"),
    };
    kinds.iter().map(part).collect()
}

pub type Factors<'a> = &'a dyn Fn(usize, usize) -> Vec<f32>;

pub struct Host<'a> {
    pub config: &'a TransformerConfig,
    pub weights: &'a Weights,
    pub encoding: &'a [Part],
    pub factors: Option<Factors<'a>>,
}

/// A query and a key of one head, before and after they are turned, with what the layer sees.
struct Cell<'a> {
    layer: usize,
    head: usize,
    i: usize,
    j: usize,
    raw_q: &'a [f64],
    raw_k: &'a [f64],
    q: &'a [f64],
    k: &'a [f64],
    hidden: &'a [Vec<f64>],
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn ln_sigmoid(x: f64) -> f64 {
    -(-x).exp().ln_1p()
}

impl Host<'_> {
    fn weight(&self, path: &str) -> &[f64] {
        &self
            .weights
            .get(path)
            .unwrap_or_else(|| panic!("no parameter {path}"))
            .1
    }

    /// `x W` for one row.
    fn product(&self, x: &[f64], path: &str) -> Vec<f64> {
        let w = self.weight(path);
        let width = w.len() / x.len();
        (0..width)
            .map(|j| {
                x.iter()
                    .enumerate()
                    .map(|(i, x)| x * w[i * width + j])
                    .sum()
            })
            .collect()
    }

    /// The same, with the bias of a layer where it has one.
    fn layer(&self, x: &[f64], path: &str) -> Vec<f64> {
        let mut y = self.product(x, path);
        if self.config.biases {
            let bias = self.weight(&format!("{path}_bias"));
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }
        y
    }

    fn norm(&self, x: &[f64], path: &str) -> Vec<f64> {
        let scale = self.weight(&format!("{path}.scale"));
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        // A shift is there for a LayerNorm alone.
        let kind = if self.weights.contains_key(&format!("{path}.shift")) {
            NormKind::LayerNorm
        } else {
            NormKind::RmsNorm
        };
        match kind {
            NormKind::LayerNorm => {
                let shift = self.weight(&format!("{path}.shift"));
                let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
                let each = x.iter().zip(scale).zip(shift);
                each.map(|((v, scale), shift)| {
                    (v - mean) / (variance + 1e-5).sqrt() * scale + shift
                })
                .collect()
            }
            NormKind::RmsNorm => {
                let mean_square = x.iter().map(|v| v * v).sum::<f64>() / count;
                x.iter()
                    .zip(scale)
                    .map(|(v, scale)| v / (mean_square + 1e-5).sqrt() * scale)
                    .collect()
            }
        }
    }

    fn mlp(&self, x: &[f64], path: &str) -> Vec<f64> {
        let up = self.layer(x, &format!("{path}.up"));
        let inner: Vec<f64> = match self.config.activation {
            Activation::Gelu => up
                .iter()
                .map(|v| 0.5 * v * (1.0 + libm::erf(v / 2f64.sqrt())))
                .collect(),
            Activation::Swiglu => {
                let gate = self.layer(x, &format!("{path}.gate"));
                gate.iter()
                    .zip(&up)
                    .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
                    .collect()
            }
        };
        self.layer(&inner, &format!("{path}.down"))
    }

    fn embed(&self, x: &mut [f64], position: usize) {
        let (p, width) = (position as f64, x.len());
        for part in self.encoding {
            match part {
                Part::Sinusoidal => {
                    for (i, theta) in inv_freq(width, 10_000.0).iter().enumerate() {
                        x[2 * i] += (p * theta).sin();
                        x[2 * i + 1] += (p * theta).cos();
                    }
                }
                Part::Learned => {
                    x.iter_mut()
                        .zip(&self.weight("encoding.table")[position * width..])
                        .for_each(|(x, row)| *x += row);
                }
                Part::AllHooks => x.iter_mut().for_each(|x| *x += AllHooks::added(p)),
                _ => {}
            }
        }
    }

    /// One head of a query or key; it may come back wider.
    fn turn(&self, x: &[f64], layer: usize, head: usize, position: usize, query: bool) -> Vec<f64> {
        let p = position as f64;
        self.encoding.iter().fold(x.to_vec(), |x, part| match part {
            Part::RopeHalf | Part::Xpos => {
                let half = x.len() / 2;
                let mut out = x.clone();
                for (i, theta) in inv_freq(x.len(), 10_000.0).iter().enumerate() {
                    let (s, c) = (p * theta).sin_cos();
                    let zeta = (i as f64 / half as f64 + 0.4) / 1.4;
                    let grown = if query { p } else { -p } / 512.0;
                    let factor = if *part == Part::Xpos {
                        zeta.powf(grown)
                    } else {
                        1.0
                    };
                    out[i] = (x[i] * c - x[i + half] * s) * factor;
                    out[i + half] = (x[i + half] * c + x[i] * s) * factor;
                }
                out
            }
            Part::Pope => {
                let width = x.len();
                let mut out = vec![0.0; 2 * width];
                for (j, x) in x.iter().enumerate() {
                    let delta =
                        self.weight("encoding.delta")[head * width + j].clamp(-2.0 * PI, 0.0);
                    let angle = p * 10_000f64.powf(-(j as f64) / width as f64)
                        + if query { 0.0 } else { delta };
                    let length = x.exp().ln_1p();
                    out[j] = length * angle.cos();
                    out[j + width] = length * angle.sin();
                }
                out
            }
            Part::AllHooks => x
                .iter()
                .map(|v| v * AllHooks::turn(layer, p, query))
                .collect(),
            _ => x,
        })
    }

    /// What depends on positions alone.
    fn bias(&self, layer: usize, head: usize, i: usize, j: usize) -> f64 {
        let of = |part: &Part| match part {
            Part::Alibi => -slopes(self.config.n_heads)[head] * i.abs_diff(j) as f64,
            Part::AllHooks => AllHooks::slope(layer) * (i as f64 - j as f64),
            _ => 0.0,
        };
        self.encoding.iter().map(of).sum()
    }

    fn shaw_row(&self, table: &str, cell: &Cell<'_>) -> &[f64] {
        let (table, width) = (
            self.weight(&format!("encoding.{table}.{}", cell.layer)),
            self.config.head_dim,
        );
        let farthest = (table.len() / width - 1) / 2;
        let row = if cell.j > cell.i {
            farthest + (cell.j - cell.i).min(farthest)
        } else {
            farthest - (cell.i - cell.j).min(farthest)
        };
        &table[row * width..][..width]
    }

    fn content_bias(&self, cell: &Cell<'_>, logit: f64) -> f64 {
        let heads = self.config.n_heads;
        let of = |part: &Part| match part {
            Part::Shaw => {
                dot(cell.q, self.shaw_row("keys", cell)) / (self.config.head_dim as f64).sqrt()
            }
            Part::Fox => {
                let path = format!("encoding.layers.{}", cell.layer);
                let gate = |l: usize| {
                    let opened =
                        self.product(&cell.hidden[l], &format!("{path}.weight"))[cell.head];
                    ln_sigmoid(opened + self.weight(&format!("{path}.bias"))[cell.head])
                };
                (cell.j + 1..=cell.i).map(gate).sum()
            }
            Part::AllHooks => {
                assert!(cell.head < heads);
                let sum = |x: &[f64]| x.iter().sum::<f64>();
                let turned = 0.1 * sum(cell.q) + 0.2 * sum(cell.k);
                let before = 0.05 * sum(cell.raw_q) - 0.03 * sum(cell.raw_k)
                    + 0.02 * sum(&cell.hidden[cell.j]);
                let of_index = 0.01 * cell.i as f64 - 0.03 * cell.j as f64;
                (logit.tanh() * 0.5 * (cell.layer + 1) as f64 + turned + before + of_index)
                    * self.weight("encoding.gain")[0]
            }
            _ => 0.0,
        };
        self.encoding.iter().map(of).sum()
    }

    /// What a key adds to the output beside its value, per unit of its weight.
    fn output_bias(&self, cell: &Cell<'_>) -> Vec<f64> {
        let mut out = vec![0.0; self.config.head_dim];
        for part in self.encoding {
            match part {
                Part::Shaw => out
                    .iter_mut()
                    .zip(self.shaw_row("values", cell))
                    .for_each(|(out, v)| *out += v),
                Part::AllHooks => {
                    let gain = self.weight("encoding.gain")[0];
                    let distance = 0.1 * (cell.layer + 1) as f64 * (cell.i as f64 - cell.j as f64);
                    // Weights add up to 1.
                    out.iter_mut()
                        .zip(cell.q)
                        .for_each(|(out, q)| *out += gain * (distance + 0.05 * q));
                }
                _ => {}
            }
        }
        out
    }

    /// Features of linear attention.
    fn features(&self, x: &[f64]) -> Vec<f64> {
        match (
            self.config.attention,
            self.config.normalizer,
            self.config.feature_map,
        ) {
            (AttentionKind::Softmax, ..) => x.to_vec(),
            (_, Normalizer::Cosine, _) => {
                x.iter().map(|v| v / (dot(x, x) + 1e-12).sqrt()).collect()
            }
            (_, _, FeatureMap::Elu) => x
                .iter()
                .map(|v| if *v > 0.0 { v + 1.0 } else { v.exp() })
                .collect(),
            (_, _, FeatureMap::Relu) => x.iter().map(|v| v.max(0.0)).collect(),
        }
    }

    /// Weight of each key a query sees, by the definition of either kind of attention.
    fn weights_of(&self, cells: &[Cell<'_>]) -> Vec<f64> {
        let decay = |cell: &Cell<'_>| self.bias(cell.layer, cell.head, cell.i, cell.j);
        if self.config.attention == AttentionKind::Softmax {
            let logits = cells.iter().map(|cell| {
                let logit = dot(cell.q, cell.k) / (self.config.head_dim as f64).sqrt();
                logit + decay(cell) + self.content_bias(cell, logit)
            });
            let logits: Vec<f64> = logits.collect();
            let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|logit| (logit - top).exp()).sum();
            return logits
                .iter()
                .map(|logit| (logit - top).exp() / sum)
                .collect();
        }
        let one = f64::from(u8::from(self.config.normalizer == Normalizer::Cosine));
        let turned: Vec<f64> = cells
            .iter()
            .map(|cell| decay(cell).exp() * (one + dot(cell.q, cell.k)))
            .collect();
        let sum: f64 = match self.config.normalizer {
            Normalizer::Unrotated => cells
                .iter()
                .map(|cell| decay(cell).exp() * dot(cell.raw_q, cell.raw_k))
                .sum(),
            Normalizer::Rotated | Normalizer::Cosine => turned.iter().sum(),
        };
        let sum = if sum < 0.0 {
            sum.min(-1e-6)
        } else {
            sum.max(1e-6)
        };
        turned.iter().map(|weight| weight / sum).collect()
    }

    /// Three loops: heads, queries, the keys each query sees.
    fn attention(&self, rows: &[Vec<f64>], layer: usize) -> Vec<Vec<f64>> {
        let path = format!("blocks.{layer}.attention");
        let (heads, width) = (self.config.n_heads, self.config.head_dim);
        let projected: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| self.layer(row, &format!("{path}.qkv")))
            .collect();
        let part = |i: usize, which: usize, head: usize| {
            &projected[i][(which * heads + head) * width..][..width]
        };
        let mut out = vec![vec![0.0; heads * width]; rows.len()];
        for head in 0..heads {
            let normed = |x: &[f64], side: usize| match self.config.qk_norm {
                QkNorm::None => x.to_vec(),
                _ => self.norm(x, &format!("{path}.{}", ["q_norm", "k_norm"][side])),
            };
            let [raw_q, raw_k] = [0, 1].map(|side| {
                (0..rows.len())
                    .map(|i| self.features(&normed(part(i, side, head), side)))
                    .collect::<Vec<_>>()
            });
            let turned = |raw: &[Vec<f64>], query: bool| -> Vec<Vec<f64>> {
                raw.iter()
                    .enumerate()
                    .map(|(i, x)| self.turn(x, layer, head, i, query))
                    .collect()
            };
            let (q, k) = (turned(&raw_q, true), turned(&raw_k, false));
            for (i, out) in out.iter_mut().enumerate() {
                let cell = |j| Cell {
                    layer,
                    head,
                    i,
                    j,
                    raw_q: &raw_q[i],
                    raw_k: &raw_k[j],
                    q: &q[i],
                    k: &k[j],
                    hidden: rows,
                };
                let seen = if self.config.mask == Mask::Causal {
                    i + 1
                } else {
                    rows.len()
                };
                let cells: Vec<Cell<'_>> = (0..seen).map(cell).collect();
                for (cell, weight) in cells.iter().zip(self.weights_of(&cells)) {
                    let sums = out[head * width..][..width].iter_mut();
                    let added = part(cell.j, 2, head)
                        .iter()
                        .zip(self.output_bias(cell))
                        .map(|(v, term)| v + term);
                    sums.zip(added).for_each(|(out, v)| *out += weight * v);
                }
            }
        }
        out.iter()
            .map(|row| self.layer(row, &format!("{path}.output")))
            .collect()
    }

    /// Logits of every row of every sequence, flattened.
    pub fn logits(&self, tokens: &[i64], batch: usize) -> Vec<f64> {
        let (d, length) = (self.config.d_model, tokens.len() / batch);
        let mut streams: Vec<Vec<Vec<f64>>> = tokens
            .chunks(length)
            .map(|row| {
                row.iter()
                    .enumerate()
                    .map(|(p, token)| {
                        let mut x = self.weight("embedding")[*token as usize * d..][..d].to_vec();
                        self.embed(&mut x, p);
                        x
                    })
                    .collect()
            })
            .collect();
        self.drop(0, &mut streams);
        let add =
            |streams: &mut Vec<Vec<Vec<f64>>>, mut update: Vec<Vec<Vec<f64>>>, site: usize| {
                self.drop(site, &mut update);
                streams
                    .iter_mut()
                    .flatten()
                    .flatten()
                    .zip(update.iter().flatten().flatten())
                    .for_each(|(x, u)| *x += u);
            };
        for layer in 0..self.config.n_layers {
            let normed = |rows: &Vec<Vec<f64>>, half: &str| -> Vec<Vec<f64>> {
                rows.iter()
                    .map(|row| self.norm(row, &format!("blocks.{layer}.{half}_norm")))
                    .collect()
            };
            let attended = streams
                .iter()
                .map(|rows| self.attention(&normed(rows, "attention"), layer))
                .collect();
            add(&mut streams, attended, 2 * layer + 1);
            if !self.config.has_mlp() {
                continue;
            }
            let fed = streams.iter().map(|rows| {
                normed(rows, "mlp")
                    .iter()
                    .map(|row| self.mlp(row, &format!("blocks.{layer}.mlp")))
                    .collect()
            });
            let fed = fed.collect();
            add(&mut streams, fed, 2 * layer + 2);
        }
        let last = streams.iter().flatten().flat_map(|row| {
            let row = self.norm(row, "final_norm");
            if self.config.tied_head {
                self.weight("embedding")
                    .chunks(d)
                    .map(|token| token.iter().zip(&row).map(|(a, b)| a * b).sum())
                    .collect()
            } else {
                self.product(&row, "head")
            }
        });
        last.collect()
    }

    fn drop(&self, site: usize, x: &mut [Vec<Vec<f64>>]) {
        if let Some(factors) = self.factors {
            let count = x.iter().flatten().map(Vec::len).sum();
            x.iter_mut()
                .flatten()
                .flatten()
                .zip(factors(site, count))
                .for_each(|(x, factor)| *x *= f64::from(factor));
        }
    }
}
