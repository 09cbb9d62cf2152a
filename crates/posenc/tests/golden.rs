//! Golden numbers: every case of `golden/*.json`, whose heads say where the numbers come from and what confirmed them.
//!
//! Tables are compared with f64 references to one unit in the last place of f32, values that stay on the host to 1e-12, results of
//! f32 arithmetic to 1e-6. A case whose kind is not known here fails; cases of features this crate does not have are named in
//! `left_out` of each file.

mod common;

use burn::tensor::{Device, Tensor};
use common::{build, config, host, tensor};
use posenc::{EncodingConfig, Lengths, ModelShape, PositionalEncoding, Positions, RopeConfig, inv_freq, slopes};
use serde_json::{Value, json};

struct Case {
    name: String,
    kind: String,
    inputs: Value,
    expected: Value,
}

impl Case {
    fn number(&self, key: &str) -> f64 {
        self.inputs[key].as_f64().unwrap_or_else(|| panic!("{}: no number {key}", self.name))
    }
    fn size(&self, key: &str) -> usize {
        self.number(key) as usize
    }
    fn list(&self, key: &str) -> Vec<f64> {
        numbers(&self.inputs[key])
    }
    fn other_kind(&self) -> ! {
        panic!("{}: nothing tests kind {}", self.name, self.kind)
    }
}

fn cases(text: &str, count: usize) -> Vec<Case> {
    let file: Value = serde_json::from_str(text).expect("golden files are JSON");
    for key in ["topic", "source", "verified_against", "tolerance"] {
        assert!(file[key].is_string(), "a golden file says its {key}");
    }
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let cases = file["cases"].as_array().expect("a list of cases").iter().map(|case| Case {
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
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap_or_else(|| panic!("{other} is no number"))],
    }
}

/// Relative error at most `tolerance`, absolute below 1.
fn close(name: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{name}: lengths");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= tolerance * expected.abs().max(1.0), "{name}[{i}]: {got} instead of {expected}");
    }
}

/// Relative error at most 1e-12 at any magnitude.
fn exact(name: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{name}: lengths");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= 1e-12 * expected.abs(), "{name}[{i}]: {got} instead of {expected}");
    }
}

/// Equal to the f64 reference rounded to f32, or one of its two neighbours.
fn one_ulp(name: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{name}: lengths");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let rounded = *expected as f32;
        let neighbours = [rounded.next_down(), rounded, rounded.next_up()].map(f64::from);
        assert!(neighbours.contains(got), "{name}[{i}]: {got:e} instead of {expected:e}");
    }
}

fn shape(d_model: usize, n_heads: usize, head_dim: usize) -> ModelShape {
    ModelShape { d_model, n_layers: 1, n_heads, head_dim }
}

/// `[H, Q, K]` bias of ALiBi.
fn alibi_bias(n_heads: usize, queries: Vec<f64>, keys: Vec<f64>) -> Vec<f64> {
    let encoding = build(&config(json!({"kind": "alibi"})), &shape(8, n_heads, 8));
    let (q_len, k_len) = (queries.len(), keys.len());
    let prepared = encoding.prepare(&Positions::new(queries, keys), &Device::flex());
    let bias = prepared.logits_bias(0).expect("ALiBi has a bias").block(0..q_len, 0..k_len);
    assert_eq!(bias.dims(), [1, n_heads, q_len, k_len]);
    host(bias)
}

fn count(n: usize) -> Vec<f64> {
    (0..n).map(|p| p as f64).collect()
}

/// Softmax over the keys up to each query.
fn causal_softmax(bias: &[f64], length: usize) -> Vec<f64> {
    let mut weights = Vec::new();
    for (row, values) in bias.chunks(length).enumerate() {
        let visible = &values[..=row % length];
        let top = visible.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = visible.iter().map(|v| (v - top).exp()).sum();
        weights.extend(visible.iter().map(|v| (v - top).exp() / sum));
    }
    weights
}

#[test]
fn alibi() {
    for case in cases(include_str!("golden/alibi.json"), 21) {
        let (name, heads, expected) = (&case.name, case.size("n_heads"), numbers(&case.expected));
        match case.kind.as_str() {
            "slopes" => {
                exact(name, &slopes(heads), &expected);
                let at_distance_one = alibi_bias(heads, vec![1.0], vec![0.0]);
                one_ulp(name, &at_distance_one.iter().map(|bias| -bias).collect::<Vec<_>>(), &expected);
            }
            "causal_bias" => {
                let length = case.size("length");
                let bias = alibi_bias(heads, count(length), count(length));
                let visible = |i: &usize| i % length <= (i / length) % length;
                let pick = |from: &[f64]| (0..from.len()).filter(visible).map(|i| from[i]).collect::<Vec<f64>>();
                close(name, &pick(&bias), &pick(&expected), 1e-6);
            }
            "symmetric_bias" => {
                let length = case.size("length");
                close(name, &alibi_bias(heads, count(length), count(length)), &expected, 1e-6);
            }
            "decode_bias" => close(name, &alibi_bias(heads, vec![case.number("query")], count(case.size("keys"))), &expected, 1e-6),
            "key_index_bias" => {
                let length = case.size("length");
                let bias = alibi_bias(heads, count(length), count(length));
                close(name, &causal_softmax(&bias, length), &causal_softmax(&expected, length), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

/// The table of an encoding that adds to the input: what it makes of zeros.
fn added(config: &EncodingConfig, d_model: usize, positions: Vec<f64>) -> Vec<f64> {
    let encoding = build(config, &shape(d_model, 1, d_model));
    let length = positions.len();
    let prepared = encoding.prepare(&Positions::new(positions.clone(), positions), &Device::flex());
    host(prepared.embed(Tensor::zeros([1, length, d_model], &Device::flex())))
}

#[test]
fn sinusoidal() {
    for case in cases(include_str!("golden/sinusoidal.json"), 8) {
        let sinusoidal = config(json!({"kind": "sinusoidal", "order": case.kind, "base": case.number("base")}));
        one_ulp(&case.name, &added(&sinusoidal, case.size("d_model"), case.list("positions")), &numbers(&case.expected));
    }
}

/// `x` turned as if it stood at each of the positions.
fn turned(config: &EncodingConfig, x: &[f64], positions: &[f64]) -> Vec<f64> {
    let encoding = build(config, &shape(x.len(), 1, x.len()));
    let prepared = encoding.prepare(&Positions::new(positions.to_vec(), positions.to_vec()), &Device::flex());
    let x = || tensor(x.repeat(positions.len()), [1, 1, positions.len(), x.len()]);
    let (q, k) = prepared.transform_qk(0, x(), x());
    let (q, k) = (host(q), host(k));
    assert_eq!(q, k, "queries and keys turn alike");
    q
}

fn scores(config: &EncodingConfig, case: &Case) -> Vec<f64> {
    let (q, k) = (case.list("q"), case.list("k"));
    let pairs = case.list("pairs");
    let dot = |pair: &[f64]| turned(config, &q, &pair[..1]).iter().zip(turned(config, &k, &pair[1..])).map(|(a, b)| a * b).sum();
    pairs.chunks(2).map(dot).collect()
}

#[test]
fn rope() {
    for case in cases(include_str!("golden/rope.json"), 29) {
        let (name, expected, base) = (&case.name, numbers(&case.expected), case.number("base"));
        match case.kind.as_str() {
            "inv_freq" => {
                let dim = case.size("dim");
                exact(name, &inv_freq(dim, base), &expected);
                let frequencies = RopeConfig { base, ..Default::default() }.frequencies(dim, 1.0);
                exact(name, &frequencies.inv_freq, &expected);
                let wavelengths: Vec<f64> = expected.iter().map(|f| std::f64::consts::TAU / f).collect();
                exact(name, &frequencies.wavelengths(), &wavelengths);
            }
            "rotate" => {
                let (layout, rotary_dim) = (&case.inputs["layout"], &case.inputs["rotary_dim"]);
                let rope = config(json!({"kind": "rope", "layout": layout, "base": base, "rotary_dim": rotary_dim}));
                close(name, &turned(&rope, &case.list("x"), &case.list("positions")), &expected, 1e-6);
            }
            "scores" => {
                let rope = config(json!({"kind": "rope", "layout": case.inputs["layout"], "base": base}));
                close(name, &scores(&rope, &case), &expected, 1e-6);
            }
            "layout_permutation" => {
                let permutation: Vec<usize> = case.list("permutation").iter().map(|i| *i as usize).collect();
                let permuted = |x: &[f64]| permutation.iter().map(|i| x[*i]).collect::<Vec<f64>>();
                let (x, at) = (case.list("x"), [case.number("position")]);
                let [half, interleaved] =
                    ["half", "interleaved"].map(|layout| config(json!({"kind": "rope", "layout": layout, "base": base})));
                close(name, &turned(&half, &permuted(&x), &at), &expected, 1e-6);
                close(name, &permuted(&turned(&interleaved, &x, &at)), &expected, 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn rope_scaling() {
    for case in cases(include_str!("golden/rope_scaling.json"), 100) {
        let (name, base, scaling) = (&case.name, case.number("base"), &case.inputs["scaling"]);
        let scaled = json!({"kind": "rope", "base": base, "scaling": scaling});
        match case.kind.as_str() {
            "frequencies" => {
                let (dim, length) = (case.size("dim"), case.inputs["length"].as_f64());
                let mut scaled: RopeConfig = match config(scaled) {
                    EncodingConfig::Rope(rope) => rope,
                    other => panic!("{other:?}"),
                };
                let test_len = length.map_or(1, |length| length as usize);
                scaled.scaling.as_mut().expect("scaled").resolve(&Lengths { train_len: 99, test_len });
                EncodingConfig::Rope(scaled.clone()).check(&shape(dim, 1, dim)).unwrap_or_else(|error| panic!("{name}: {error}"));
                let got = scaled.frequencies(dim, length.unwrap_or(123.0));
                exact(name, &got.inv_freq, &numbers(&case.expected["inv_freq"]));
                exact(name, &[got.attention_factor], &numbers(&case.expected["attention_factor"]));
            }
            "scores" => {
                let mut scaled = config(json!({"kind": "rope", "layout": case.inputs["layout"], "base": base, "scaling": scaling}));
                scaled.resolve(&Lengths { train_len: 99, test_len: 99 });
                close(name, &scores(&scaled, &case), &numbers(&case.expected), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn far_positions() {
    let text = include_str!("golden/positions.json");
    let file: Value = serde_json::from_str(text).expect("golden files are JSON");
    let positions = numbers(&file["positions"]);
    assert_eq!(positions, [0.0, 1.0, 2.0, 127.0, 1023.0, 4095.0, 65535.0, 1e6]);
    for case in cases(text, 28) {
        let name = &case.name;
        match case.kind.as_str() {
            "rope" => {
                let (dim, base, scaling) = (case.size("dim"), case.number("base"), &case.inputs["scaling"]);
                for layout in ["half", "interleaved"] {
                    let rope = config(json!({"kind": "rope", "layout": layout, "base": base, "scaling": scaling}));
                    let EncodingConfig::Rope(of_length) = &rope else { panic!("{rope:?}") };
                    let frequencies = of_length.frequencies(dim, 1_000_001.0);
                    exact(name, &frequencies.inv_freq, &numbers(&case.expected["inv_freq"]));
                    exact(name, &[frequencies.attention_factor], &numbers(&case.expected["attention_factor"]));
                    // The first of each pair 1 and the second 0: what comes out is the tables themselves.
                    let first = |i: usize| if layout == "half" { i < dim / 2 } else { i.is_multiple_of(2) };
                    let unit: Vec<f64> = (0..dim).map(|i| f64::from(first(i))).collect();
                    let table = turned(&rope, &unit, &positions);
                    let side = |want: bool| (0..table.len()).filter(|i| first(i % dim) == want).map(|i| table[i]).collect::<Vec<f64>>();
                    one_ulp(name, &side(true), &numbers(&case.expected["cos"]));
                    one_ulp(name, &side(false), &numbers(&case.expected["sin"]));
                }
            }
            "sinusoidal" => {
                let sinusoidal = config(json!({"kind": "sinusoidal", "order": case.inputs["order"], "base": case.number("base")}));
                one_ulp(name, &added(&sinusoidal, case.size("d_model"), positions.clone()), &numbers(&case.expected));
            }
            "alibi" => {
                let bias = alibi_bias(case.size("n_heads"), vec![case.number("query")], positions.clone());
                close(name, &bias, &numbers(&case.expected), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}
