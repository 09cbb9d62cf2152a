//! Biases and outputs that see queries, keys or hidden states, against slow loops over the papers'
//! formulas.

use crate::common::{
    Attention, SHAPE, all_configs, build_recorded, config, dot, host, largest_difference, random,
};
use posenc::{EncodingConfig, Positions};
use std::collections::HashMap;

const LENGTH: usize = 11;
const QUERIES: usize = 7;
const FIRST: usize = LENGTH - QUERIES;

/// What a formula may read, in f64.
struct Slow<'a> {
    q: Vec<f64>,
    k: Vec<f64>,
    hidden: Vec<f64>,
    weights: Vec<f64>,
    values: &'a HashMap<String, Vec<f64>>,
    layer: usize,
}

impl Slow<'_> {
    /// The projected query of a row, before any transformation; row i stands at key `FIRST + i`.
    fn q(&self, head: usize, i: usize) -> &[f64] {
        &self.q[(head * QUERIES + i) * SHAPE.head_dim..][..SHAPE.head_dim]
    }
    fn k(&self, head: usize, j: usize) -> &[f64] {
        &self.k[(head * LENGTH + j) * SHAPE.head_dim..][..SHAPE.head_dim]
    }
    fn hidden(&self, j: usize) -> &[f64] {
        &self.hidden[j * SHAPE.d_model..][..SHAPE.d_model]
    }
    /// A parameter of the layer: the layer stands where the path has `{}`.
    fn of(&self, path: &str) -> &[f64] {
        &self.values[&path.replace("{}", &self.layer.to_string())]
    }
    /// `row W`, of which a head's part.
    fn projected(&self, row: &[f64], matrix: &[f64], head: usize) -> Vec<f64> {
        let columns = SHAPE.n_heads * SHAPE.head_dim;
        let entry = |e: usize| {
            (0..row.len())
                .map(|i| row[i] * matrix[i * columns + head * SHAPE.head_dim + e])
                .sum()
        };
        (0..SHAPE.head_dim).map(entry).collect()
    }
    /// The sum over the terms of all cells that a query sees, `[H, Q, K]`, and 0 in the rest.
    fn cells(&self, cell: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        let all = (0..SHAPE.n_heads)
            .flat_map(|h| (0..QUERIES).flat_map(move |i| (0..LENGTH).map(move |j| (h, i, j))));
        all.map(|(h, i, j)| if j > FIRST + i { 0.0 } else { cell(h, i, j) })
            .collect()
    }
}

/// A number for a head, a row and a key or a dimension.
type Formula<'a> = dyn Fn(&Slow<'_>, usize, usize, usize) -> f64 + 'a;

/// Compares what the hooks make of queries `FIRST..LENGTH` with `logits`, the formula of the whole
/// logit of (head, row, key), and `output`, that of dimension e of the term added to the output of
/// (head, row).
fn agrees(name: &str, config: &EncodingConfig, logits: &Formula<'_>, output: Option<&Formula<'_>>) {
    let (encoding, values) = build_recorded(config, &SHAPE);
    for layer in 0..SHAPE.n_layers {
        for offset in [0, 1000] {
            let positions = Positions::from_offset(offset, LENGTH).last(QUERIES);
            let shape = |length: usize| [1, SHAPE.n_heads, length, SHAPE.head_dim];
            let raw = (random(1, shape(QUERIES)), random(2, shape(LENGTH)));
            let hidden = random(3, [1, LENGTH, SHAPE.d_model]);
            let attention = Attention::of(
                &encoding,
                &positions,
                layer,
                FIRST,
                raw.clone(),
                hidden.clone(),
            );
            let weights = host(attention.weights(0..QUERIES, 0..LENGTH));
            let slow = Slow {
                q: host(raw.0),
                k: host(raw.1),
                hidden: host(hidden),
                weights,
                values: &values,
                layer,
            };
            let found = attention.logits();
            let found = slow.cells(|h, i, j| found[(h * QUERIES + i) * LENGTH + j]);
            let expected = slow.cells(|h, i, j| logits(&slow, h, i, j));
            let difference = largest_difference(&found, &expected);
            assert!(
                difference < 1e-5,
                "{name}: layer {layer} from {offset}: logits differ by {difference}"
            );
            let term = attention.output_bias(0..QUERIES, 0..LENGTH);
            assert_eq!(term.is_some(), output.is_some(), "{name}");
            let (Some(term), Some(output)) = (term, output) else {
                continue;
            };
            let rows = (0..SHAPE.n_heads * QUERIES).flat_map(|row| {
                (0..SHAPE.head_dim).map(move |e| (row / QUERIES, row % QUERIES, e))
            });
            let expected: Vec<f64> = rows.map(|(h, i, e)| output(&slow, h, i, e)).collect();
            let difference = largest_difference(&host(term), &expected);
            assert!(
                difference < 1e-5,
                "{name}: layer {layer} from {offset}: output differs by {difference}"
            );
        }
    }
}

fn scale() -> f64 {
    1.0 / (SHAPE.head_dim as f64).sqrt()
}

/// Runs `test` on every configuration of a kind in the list.
fn each(kind: &str, test: impl Fn(&str, &EncodingConfig)) {
    let configs = all_configs()
        .into_iter()
        .filter(|(_, config)| config.kind() == kind);
    assert!(
        configs.map(|(name, config)| test(&name, &config)).count() > 1,
        "{kind}"
    );
}

#[test]
fn shaw_equals_a_loop_over_pairs() {
    let test = |name: &str, config: &EncodingConfig| {
        let EncodingConfig::Shaw(shaw) = config else {
            unreachable!()
        };
        let k = shaw.max_distance.expect("resolved") as f64;
        let row = |i: usize, j: usize| ((j as f64 - (FIRST + i) as f64).clamp(-k, k) + k) as usize;
        let logits = |slow: &Slow<'_>, h: usize, i: usize, j: usize| {
            let added = &slow.of("keys.{}")[row(i, j) * SHAPE.head_dim..][..SHAPE.head_dim];
            let key: Vec<f64> = slow.k(h, j).iter().zip(added).map(|(k, a)| k + a).collect();
            dot(slow.q(h, i), &key) * scale()
        };
        let output = |slow: &Slow<'_>, h: usize, i: usize, e: usize| {
            let weight = |j: usize| slow.weights[(h * QUERIES + i) * LENGTH + j];
            (0..LENGTH)
                .map(|j| weight(j) * slow.of("values.{}")[row(i, j) * SHAPE.head_dim + e])
                .sum()
        };
        agrees(name, config, &logits, shaw.values.then_some(&output));
    };
    each("shaw", test);
    // Keys that share a row of the tables add up.
    let clipped = config(serde_json::json!({"kind": "shaw", "max_distance": 2, "init_std": 0.5}));
    test("clipped", &clipped);
}

#[test]
fn transformer_xl_equals_a_loop_over_pairs() {
    each("transformer_xl", |name, config| {
        let EncodingConfig::TransformerXl(xl) = config else {
            unreachable!()
        };
        let sinusoid = |distance: f64| -> Vec<f64> {
            let angle = |i: usize| distance * xl.base.powf(-2.0 * i as f64 / SHAPE.d_model as f64);
            let half = SHAPE.d_model / 2;
            (0..half)
                .map(|i| angle(i).sin())
                .chain((0..half).map(|i| angle(i).cos()))
                .collect()
        };
        let logits = |slow: &Slow<'_>, h: usize, i: usize, j: usize| {
            let r = slow.projected(
                &sinusoid((FIRST + i) as f64 - j as f64),
                slow.of("layers.{}.projection"),
                h,
            );
            let plus = |bias: &[f64]| -> Vec<f64> {
                slow.q(h, i)
                    .iter()
                    .zip(&bias[h * SHAPE.head_dim..][..SHAPE.head_dim])
                    .map(|(q, bias)| q + bias)
                    .collect()
            };
            (dot(&plus(slow.of("layers.{}.u")), slow.k(h, j))
                + dot(&plus(slow.of("layers.{}.v")), &r))
                * scale()
        };
        agrees(name, config, &logits, None);
    });
}

#[test]
fn deberta_equals_a_loop_over_pairs() {
    each("deberta", |name, config| {
        let EncodingConfig::Deberta(deberta) = config else {
            unreachable!()
        };
        let k = deberta.buckets.or(deberta.max_distance).expect("resolved") as f64;
        let (c2p, p2c) = match deberta.terms {
            posenc::encodings::deberta::DebertaTerms::C2p => (true, false),
            posenc::encodings::deberta::DebertaTerms::P2c => (false, true),
            _ => (true, true),
        };
        // delta(a, b) = clip(a - b + k, 0, 2k - 1)
        let delta = |a: f64, b: f64| (deberta.bucket(a - b) + k).clamp(0.0, 2.0 * k - 1.0) as usize;
        let logits = |slow: &Slow<'_>, h: usize, i: usize, j: usize| {
            let (m, n) = ((FIRST + i) as f64, j as f64);
            let read = match deberta.form {
                posenc::encodings::deberta::DebertaForm::Code => delta(m, n),
                _ => delta(n, m),
            };
            let table = |row: usize| &slow.of("table")[row * SHAPE.d_model..][..SHAPE.d_model];
            let mut sum = dot(slow.q(h, i), slow.k(h, j));
            if c2p {
                sum += dot(
                    slow.q(h, i),
                    &slow.projected(table(delta(m, n)), slow.of("c2p.{}"), h),
                );
            }
            if p2c {
                sum += dot(
                    slow.k(h, j),
                    &slow.projected(table(read), slow.of("p2c.{}"), h),
                );
            }
            sum * scale() / (1.0 + f64::from(u8::from(c2p)) + f64::from(u8::from(p2c))).sqrt()
        };
        agrees(name, config, &logits, None);
    });
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn cope_equals_a_loop_over_pairs() {
    each("cope", |name, config| {
        let EncodingConfig::Cope(cope) = config else {
            unreachable!()
        };
        let positions = cope.max_position.expect("resolved");
        let logits = |slow: &Slow<'_>, h: usize, i: usize, j: usize| {
            let gate = |key: usize| {
                let product = dot(slow.q(h, i), slow.k(h, key));
                sigmoid(if cope.scaled_gates {
                    product * scale()
                } else {
                    product
                })
            };
            let counted = (j..=FIRST + i)
                .map(gate)
                .sum::<f64>()
                .min((positions - 1) as f64);
            let embedding = |at: usize| {
                (0..SHAPE.head_dim)
                    .map(|e| slow.of("tables.{}")[e * positions + at])
                    .collect::<Vec<f64>>()
            };
            let (below, above) = (counted.floor(), counted.ceil());
            let [below, above] =
                [below, above].map(|at| dot(slow.q(h, i), &embedding(at as usize)));
            dot(slow.q(h, i), slow.k(h, j)) * scale()
                + below
                + (above - below) * (counted - counted.floor())
        };
        agrees(name, config, &logits, None);
    });
}

#[test]
fn fox_equals_a_loop_over_pairs() {
    each("fox", |name, config| {
        let logits = |slow: &Slow<'_>, h: usize, i: usize, j: usize| {
            let forget = |l: usize| {
                let weight = slow
                    .of("layers.{}.weight")
                    .iter()
                    .skip(h)
                    .step_by(SHAPE.n_heads)
                    .copied()
                    .collect::<Vec<f64>>();
                sigmoid(dot(slow.hidden(l), &weight) + slow.of("layers.{}.bias")[h]).ln()
            };
            dot(slow.q(h, i), slow.k(h, j)) * scale() + (j + 1..=FIRST + i).map(forget).sum::<f64>()
        };
        agrees(name, config, &logits, None);
    });
}
