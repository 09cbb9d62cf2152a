//! Logits on which the tokens between key and query act, against slow loops over these tokens, at
//! lengths of several chunks and for blocks of queries with keys before them.

use crate::common::{Attention, SHAPE, build_recorded, config, dot, host, random};
use posenc::{EncodingConfig, Positions};
use std::collections::HashMap;

const LONG: usize = 75;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Parameters and the input of the layer, in f64.
struct Layer {
    values: HashMap<String, Vec<f64>>,
    hidden: Vec<f64>,
}

impl Layer {
    /// `x W`, of an input or of what another projection made of it.
    fn projected(&self, x: &[f64], path: &str) -> Vec<f64> {
        let (rows, matrix) = (x.len() / LONG, &self.values[path]);
        let columns = matrix.len() / rows;
        let row = |at: usize| &x[at * rows..][..rows];
        let column = |c: usize| matrix.iter().skip(c).step_by(columns).copied();
        let entry = |at: usize, c: usize| row(at).iter().zip(column(c)).map(|(x, w)| x * w).sum();
        (0..LONG)
            .flat_map(|at| (0..columns).map(move |c| (at, c)))
            .map(|(at, c)| entry(at, c))
            .collect()
    }
}

/// What the tokens `earlier + 1..=later` make of a key's row, in a head.
type Between<'a> = Box<dyn Fn(usize, &[f64], std::ops::RangeInclusive<usize>) -> Vec<f64> + 'a>;

/// Compares the logits of layer 0 with a loop over all tokens between a key and its query.
fn agrees(config: &EncodingConfig, between: impl Fn(&Layer) -> Between<'_>) {
    let width = SHAPE.head_dim;
    let (encoding, values) = build_recorded(config, &SHAPE);
    let [q, k] = [1, 2].map(|seed| random(seed, [1, SHAPE.n_heads, LONG, width]));
    let hidden = random(3, [1, LONG, SHAPE.d_model]);
    let layer = Layer {
        values,
        hidden: host(hidden.clone()),
    };
    let between = between(&layer);
    let [queries, keys] = [q.clone(), k.clone()].map(host);
    let row = |x: &[f64], h: usize, at: usize| x[(h * LONG + at) * width..][..width].to_vec();
    for count in [LONG, 70, 36, 20, 3, 1] {
        let first = LONG - count;
        let raw = (q.clone().slice_dim(2, first..LONG), k.clone());
        let positions = Positions::from_offset(0, LONG).last(count);
        let attention = Attention::of(&encoding, &positions, 0, first, raw, hidden.clone());
        let found = attention.logits();
        for h in 0..SHAPE.n_heads {
            for i in first..LONG {
                let query = row(&queries, h, i);
                for j in 0..=i {
                    let key = between(h, &row(&keys, h, j), j + 1..=i);
                    let expected = dot(&query, &key) / (width as f64).sqrt();
                    let found = found[(h * count + i - first) * LONG + j];
                    assert!(
                        (found - expected).abs() < 1e-5,
                        "{config:?}, last {count} queries, head {h}, query {i}, key {j}: {found} \
                         is not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn wall_equals_a_loop_over_tokens_and_never_overflows() {
    // At -20 the sums of gates reach -1500: no factor may grow back.
    for init_bias in [0.0, -20.0] {
        let wall = config(serde_json::json!({"kind": "wall", "init_bias": init_bias}));
        agrees(&wall, |layer| {
            let opened = layer.projected(&layer.hidden, "layers.0.weight");
            let (bias, columns) = (&layer.values["layers.0.bias"], opened.len() / LONG);
            Box::new(move |h, key, tokens| {
                let step = |l: usize, column: usize| {
                    sigmoid(opened[l * columns + column] + bias[column]).ln()
                };
                let decayed = key.iter().enumerate().map(|(e, x)| {
                    let column = h * SHAPE.head_dim + e;
                    x * tokens.clone().map(|l| step(l, column)).sum::<f64>().exp()
                });
                decayed.collect()
            })
        });
    }
}

#[test]
fn path_equals_a_loop_over_tokens() {
    for kernel in [0, 3] {
        let path = config(serde_json::json!({"kind": "path", "kernel": kernel}));
        agrees(&path, |layer| {
            let down = layer.projected(&layer.hidden, "layers.0.down");
            let w = layer.projected(&down, "layers.0.up");
            let opened = layer.projected(&layer.hidden, "layers.0.beta_weight");
            let (bias, columns) = (&layer.values["layers.0.beta_bias"], w.len() / LONG);
            let convolved = |at: usize, column: usize| {
                if kernel == 0 {
                    return w[at * columns + column];
                }
                let weight = &layer.values["layers.0.convolution"];
                let seen = (0..kernel).filter(|s| at + s + 1 >= kernel);
                let terms = seen.map(|s| {
                    weight[s * columns + column] * w[(at + s + 1 - kernel) * columns + column]
                });
                let sum: f64 = terms.sum();
                sum * sigmoid(sum)
            };
            let reflector = |h: usize, at: usize| {
                let row = (0..SHAPE.head_dim).map(|e| convolved(at, h * SHAPE.head_dim + e));
                let row: Vec<f64> = row.collect();
                let length = (dot(&row, &row) + 1e-6).sqrt();
                row.iter().map(|x| x / length).collect::<Vec<f64>>()
            };
            let reflectors: Vec<Vec<f64>> = (0..SHAPE.n_heads * LONG)
                .map(|row| reflector(row / LONG, row % LONG))
                .collect();
            Box::new(move |h, key, tokens| {
                let reflect = |key: Vec<f64>, l: usize| {
                    let w = &reflectors[h * LONG + l];
                    let beta = 2.0 * sigmoid(opened[l * SHAPE.n_heads + h] + bias[h]);
                    let share = beta * dot(w, &key);
                    key.iter().zip(w).map(|(x, w)| x - share * w).collect()
                };
                tokens.fold(key.to_vec(), reflect)
            })
        });
    }
}
