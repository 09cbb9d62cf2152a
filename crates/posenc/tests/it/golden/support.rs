//! What the golden tests share: cases, comparisons, and one pass of attention's hooks with
//! parameters given by path.

pub use crate::common::{config, host, tensor};
use burn::tensor::{Device, Tensor};
use posenc::{
    Block, Content, Context, Distribution, Encoding, EncodingConfig, Init, ModelShape,
    PositionalEncoding, Positions, Prepared,
};
use serde_json::{Value, json};
use std::cell::RefCell;

pub struct Case {
    pub name: String,
    pub kind: String,
    pub inputs: Value,
    pub expected: Value,
}

impl Case {
    pub fn number(&self, key: &str) -> f64 {
        self.inputs[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{}: no number {key}", self.name))
    }
    pub fn size(&self, key: &str) -> usize {
        self.number(key) as usize
    }
    pub fn list(&self, key: &str) -> Vec<f64> {
        numbers(&self.inputs[key])
    }
    pub fn pairs(&self) -> Vec<[f64; 2]> {
        self.list("pairs")
            .chunks(2)
            .map(|pair| [pair[0], pair[1]])
            .collect()
    }
    pub fn wanted(&self) -> Vec<f64> {
        numbers(&self.expected)
    }
    pub fn other_kind(&self) -> ! {
        panic!("{}: nothing tests kind {}", self.name, self.kind)
    }
}

pub fn cases(text: &str, count: usize) -> Vec<Case> {
    let file: Value = serde_json::from_str(text).expect("golden files are JSON");
    for key in ["topic", "source", "verified_against", "tolerance"] {
        assert!(file[key].is_string(), "a golden file says its {key}");
    }
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let cases = file["cases"]
        .as_array()
        .expect("a list of cases")
        .iter()
        .map(|case| Case {
            name: text(&case["name"]),
            kind: text(&case["kind"]),
            inputs: case["inputs"].clone(),
            expected: case["expected"].clone(),
        });
    let cases: Vec<Case> = cases.collect();
    assert_eq!(cases.len(), count, "every case is read");
    cases
}

/// All numbers below a value, row-major.
pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![
            other
                .as_f64()
                .unwrap_or_else(|| panic!("{other} is no number")),
        ],
    }
}

/// Relative error at most `tolerance`, absolute below 1.
pub fn close(name: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    close_to(name, got, expected, |expected| {
        tolerance * expected.abs().max(1.0)
    });
}

/// Absolute error at most `tolerance` times the lengths of two vectors whose products these are.
pub fn close_products(
    name: &str,
    got: &[f64],
    expected: &[f64],
    q: &[f64],
    k: &[f64],
    tolerance: f64,
) {
    let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    close_to(name, got, expected, |_| tolerance * length(q) * length(k));
}

fn close_to(name: &str, got: &[f64], expected: &[f64], allowed: impl Fn(f64) -> f64) {
    assert_eq!(got.len(), expected.len(), "{name}: lengths");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            (got - expected).abs() <= allowed(*expected),
            "{name}[{i}]: {got} instead of {expected}"
        );
    }
}

/// Relative error at most 1e-12 at any magnitude.
pub fn exact(name: &str, got: &[f64], expected: &[f64]) {
    close_to(name, got, expected, |expected| 1e-12 * expected.abs());
}

/// Equal to the f64 reference rounded to f32, or one of its two neighbours; within 1e-10 where a
/// far angle ends at a whole turn.
pub fn one_ulp(name: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{name}: lengths");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let rounded = *expected as f32;
        let neighbours = [rounded.next_down(), rounded, rounded.next_up()].map(f64::from);
        assert!(
            neighbours.contains(got) || (got - expected).abs() < 1e-10,
            "{name}[{i}]: {got:e} instead of {expected:e}"
        );
    }
}

/// 0, 1, 2, ...
pub fn count(n: usize) -> Vec<f64> {
    (0..n).map(|p| p as f64).collect()
}

pub fn shape(d_model: usize, n_heads: usize, head_dim: usize) -> ModelShape {
    ModelShape {
        d_model,
        n_layers: 1,
        n_heads,
        head_dim,
    }
}

/// A module whose parameters have these values; those that start constant may be left out.
pub fn build(
    config: &EncodingConfig,
    shape: &ModelShape,
    parameters: &[(&str, Vec<f64>)],
) -> Encoding {
    build_on(&Device::flex(), config, shape, parameters)
}

pub fn build_on(
    device: &Device,
    config: &EncodingConfig,
    shape: &ModelShape,
    parameters: &[(&str, Vec<f64>)],
) -> Encoding {
    config
        .check(shape)
        .unwrap_or_else(|error| panic!("{config:?}: {error}"));
    let asked = RefCell::new(Vec::new());
    let source = |path: &str, shape: &[usize], distribution: Distribution| {
        asked.borrow_mut().push(path.to_owned());
        match (
            parameters.iter().find(|(name, _)| *name == path),
            distribution,
        ) {
            (Some((_, values)), _) => values.clone(),
            (None, Distribution::Constant(value)) => vec![value; shape.iter().product()],
            (None, _) => panic!("{config:?}: no value for {path}"),
        }
    };
    let encoding = config
        .init(shape, &Init::new(device, &source))
        .expect("a resolved configuration");
    for (path, _) in parameters {
        assert!(
            asked.borrow().iter().any(|asked| asked == path),
            "{config:?}: there is no {path}"
        );
    }
    encoding
}

/// FIRE with the case's function.
pub fn fire_of(case: &Case) -> Encoding {
    let layers = ["c", "multiplier", "w1", "b1", "w2", "b2"];
    let paths = layers.map(|layer| format!("functions.0.{layer}"));
    let parameters: Vec<(&str, Vec<f64>)> = paths
        .iter()
        .zip(layers)
        .map(|(path, layer)| (path.as_str(), case.list(layer)))
        .collect();
    let fire = config(
        json!({"kind": "fire", "hidden": case.list("w1").len(), "threshold": case.inputs["threshold"]}),
    );
    build(&fire, &shape(8, case.list("b2").len(), 8), &parameters)
}

/// `[H, Q, K]` of a position-only bias.
pub fn position_bias(encoding: &Encoding, queries: Vec<f64>, keys: Vec<f64>) -> Vec<f64> {
    let (q_len, k_len) = (queries.len(), keys.len());
    let prepared = encoding
        .prepare(
            &Positions::new(queries, keys),
            &Context::new(&Device::flex()),
        )
        .expect("positions in range");
    let bias = prepared
        .logits_bias(0)
        .expect("a bias")
        .block(0..q_len, 0..k_len);
    assert_eq!(bias.dims()[2..], [q_len, k_len]);
    host(bias)
}

/// Of `[.., length, length]` what a causal mask leaves over, row by row.
pub fn visible(values: &[f64], length: usize) -> Vec<f64> {
    let seen = |i: &usize| i % length <= i / length % length;
    (0..values.len()).filter(seen).map(|i| values[i]).collect()
}

/// Softmax over the keys up to each query, 0 at the others.
pub fn causal_softmax(logits: &[f64], length: usize) -> Vec<f64> {
    let mut weights = Vec::new();
    for (row, values) in logits.chunks(length).enumerate() {
        let seen = &values[..=row % length];
        let top = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = seen.iter().map(|v| (v - top).exp()).sum();
        weights.extend(seen.iter().map(|v| (v - top).exp() / sum));
        weights.extend(vec![0.0; length - seen.len()]);
    }
    weights
}

/// Queries and keys of an encoding that transforms them, `[H, positions, width]` each, for inputs
/// of that shape.
pub fn transformed(
    encoding: &Encoding,
    positions: &Positions,
    q: Tensor<4>,
    k: Tensor<4>,
) -> (Vec<f64>, Vec<f64>) {
    // No encoding of these cases reads it.
    let hidden = Tensor::zeros([1, k.dims()[2], 1], &Device::flex());
    let (q, k) = encoding
        .prepare(positions, &Context::new(&Device::flex()))
        .expect("positions in range")
        .transform_qk(0, q, k, &hidden);
    (host(q), host(k))
}

/// Products of `q` at the first and `k` at the second position of each pair.
pub fn scores(encoding: &Encoding, case: &Case) -> Vec<f64> {
    let (q, k) = (case.list("q"), case.list("k"));
    let row = |x: &Vec<f64>| tensor(x.clone(), [1, 1, 1, x.len()]);
    let product = |[m, n]: [f64; 2]| {
        let (q, k) = transformed(
            encoding,
            &Positions::new(vec![m], vec![n]),
            row(&q),
            row(&k),
        );
        q.iter().zip(k).map(|(a, b)| a * b).sum()
    };
    case.pairs().into_iter().map(product).collect()
}

/// `x` turned as if it stood at each of the positions.
pub fn turned(config: &EncodingConfig, x: &[f64], positions: &[f64]) -> Vec<f64> {
    let encoding = build(config, &shape(x.len(), 1, x.len()), &[]);
    let rows = || tensor(x.repeat(positions.len()), [1, 1, positions.len(), x.len()]);
    let (q, k) = transformed(
        &encoding,
        &Positions::same(positions.to_vec()),
        rows(),
        rows(),
    );
    assert_eq!(q, k, "queries and keys turn alike");
    q
}

/// One pass of attention without a mask, `[H, Q, K]` each: the product of queries and keys, and all
/// that is added to it.
pub struct Pass {
    pub products: Vec<f64>,
    pub bias: Vec<f64>,
}

impl Pass {
    pub fn logits(&self) -> Vec<f64> {
        self.products
            .iter()
            .zip(&self.bias)
            .map(|(product, bias)| product + bias)
            .collect()
    }
}

/// Inputs of one head's or several heads' attention: queries and keys `[1, H, *, E]`, and what they
/// are projected from, if it matters.
pub struct Inputs {
    pub q: Tensor<4>,
    pub k: Tensor<4>,
    pub hidden: Option<Tensor<3>>,
    /// Whether every query sees every key, as references do that compute all cells. Otherwise the
    /// last query sees all keys, and those before it fewer.
    pub all_keys: bool,
}

impl Inputs {
    /// One head.
    pub fn rows(q: Vec<f64>, k: Vec<f64>, head_dim: usize) -> Self {
        let rows = |x: Vec<f64>| {
            let length = x.len() / head_dim;
            tensor(x, [1, 1, length, head_dim])
        };
        Self {
            q: rows(q),
            k: rows(k),
            hidden: None,
            all_keys: false,
        }
    }

    /// The same, with every query seeing every key.
    pub fn seeing_all_keys(self) -> Self {
        Self {
            all_keys: true,
            ..self
        }
    }

    /// Calls `of` with the prepared encoding and what the whole block is made of.
    fn with_content<R>(
        &self,
        encoding: &Encoding,
        positions: &Positions,
        of: impl FnOnce(&dyn Prepared, &Content<'_>) -> R,
    ) -> R {
        let prepared = encoding
            .prepare(positions, &Context::new(&Device::flex()))
            .expect("positions in range");
        let [_, _, q_len, head_dim] = self.q.dims();
        let k_len = self.k.dims()[2];
        let hidden = self
            .hidden
            .clone()
            .unwrap_or_else(|| Tensor::zeros([1, k_len, 1], &Device::flex()));
        let (q, k) = prepared.transform_qk(0, self.q.clone(), self.k.clone(), &hidden);
        let raw = || (self.q.clone(), self.k.clone());
        let (queries, keys) = (0..q_len, 0..k_len);
        let first_query = if self.all_keys { k_len } else { k_len - q_len };
        let scale = 1.0 / (head_dim as f64).sqrt();
        of(
            &*prepared,
            &Content::new(
                [&q, &k],
                &raw,
                &hidden,
                Block {
                    queries,
                    keys,
                    first_query,
                },
                scale,
            ),
        )
    }

    pub fn pass(&self, encoding: &Encoding, positions: &Positions) -> Pass {
        self.with_content(encoding, positions, |prepared, content| {
            let products = content.logits();
            let [_, _, q_len, k_len] = products.dims();
            let mut bias = Tensor::zeros(products.dims(), &Device::flex());
            if let Some(by_position) = prepared.logits_bias(0) {
                bias = bias + by_position.block(0..q_len, 0..k_len);
            }
            if let Some(by_content) = prepared.content_bias(0, content) {
                bias = bias + by_content;
            }
            Pass {
                products: host(products),
                bias: host(bias),
            }
        })
    }

    /// What the encoding adds to attention's output, `[H, Q, E]`, for these weights.
    pub fn output(
        &self,
        encoding: &Encoding,
        positions: &Positions,
        weights: Tensor<4>,
    ) -> Vec<f64> {
        self.with_content(encoding, positions, |prepared, content| {
            host(
                prepared
                    .output_bias(0, content, &|| weights.clone())
                    .expect("a term of the output"),
            )
        })
    }
}
