//! Golden numbers of biases that see queries, keys or the layer's input; the module above says how they
//! are compared.

use super::support::*;
use posenc::Positions;
use posenc::encodings::{DebertaConfig, TransformerXlConfig};
use posenc::spec::EncodingSpec;
use serde_json::json;

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a case for each kind of its golden file"
)]
fn shaw() {
    for case in cases(include_str!("../../golden/shaw.json"), 2) {
        let (name, max_distance) = (&case.name, &case.inputs["max_distance"]);
        match case.kind.as_str() {
            "rows" => {
                // A table whose row r holds r, times queries of 1.
                let shaw =
                    config(json!({"kind": "shaw", "max_distance": max_distance, "values": false}));
                let encoding = build(
                    &shaw,
                    &shape(1, 1, 1),
                    &[("keys.0", count(2 * case.size("max_distance") + 1))],
                );
                let length = case.size("length");
                let inputs =
                    Inputs::rows(vec![1.0; length], vec![0.0; length], 1).seeing_all_keys();
                assert_eq!(
                    inputs.pass(&encoding, &Positions::contiguous(length)).bias,
                    case.wanted(),
                    "{name}"
                );
            }
            "attention" => {
                let shaw = config(json!({"kind": "shaw", "max_distance": max_distance}));
                let encoding = build(
                    &shaw,
                    &shape(2, 1, 2),
                    &[
                        ("keys.0", case.list("keys")),
                        ("values.0", case.list("values")),
                    ],
                );
                let (inputs, v) = (
                    Inputs::rows(case.list("q"), case.list("k"), 2).seeing_all_keys(),
                    case.list("v"),
                );
                let length = v.len() / 2;
                let positions = Positions::contiguous(length);
                let logits = inputs.pass(&encoding, &positions).logits();
                close(name, &logits, &numbers(&case.expected["logits"]), 1e-6);
                let weights = causal_softmax(&logits, length);
                close(
                    name,
                    &visible(&weights, length),
                    &numbers(&case.expected["weights"]),
                    1e-6,
                );
                let added = inputs.output(
                    &encoding,
                    &positions,
                    tensor(weights.clone(), [1, 1, length, length]),
                );
                let weighed = |m: usize, e: usize| {
                    (0..length)
                        .map(|n| weights[m * length + n] * v[2 * n + e])
                        .sum::<f64>()
                };
                let output: Vec<f64> = (0..2 * length)
                    .map(|i| weighed(i / 2, i % 2) + added[i])
                    .collect();
                close(name, &output, &numbers(&case.expected["output"]), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a case for each kind of its golden file"
)]
fn transformer_xl() {
    let xl = config(json!({"kind": "transformer_xl"}));
    for case in cases(include_str!("../../golden/transformer_xl.json"), 4) {
        let name = &case.name;
        match case.kind.as_str() {
            "table" => {
                let row = |distance: &f64| {
                    TransformerXlConfig::default().row(*distance, case.size("d_model"))
                };
                exact(
                    name,
                    &case
                        .list("distances")
                        .iter()
                        .flat_map(row)
                        .collect::<Vec<f64>>(),
                    &case.wanted(),
                );
            }
            "logits" => {
                let (q, k) = (case.list("q"), case.list("k"));
                let length = q.len() / 4;
                let parameters = [
                    ("projection", case.list("projection")),
                    ("u", case.list("u")),
                    ("v", case.list("v")),
                ];
                let parameters =
                    parameters.map(|(path, values)| (format!("layers.0.{path}"), values));
                let parameters: Vec<(&str, Vec<f64>)> = parameters
                    .iter()
                    .map(|(path, values)| (path.as_str(), values.clone()))
                    .collect();
                let encoding = build(&xl, &shape(4, 1, 4), &parameters);
                let logits = Inputs::rows(q, k, 4)
                    .pass(&encoding, &Positions::contiguous(length))
                    .logits();
                // The division by sqrt(head_dim) is not in the reference.
                let undivided: Vec<f64> = visible(&logits, length)
                    .iter()
                    .map(|logit| 2.0 * logit)
                    .collect();
                close(name, &undivided, &case.wanted(), 1e-6);
            }
            "distances" => {
                // Only v meets the table here, [sin | cos] of the distance itself: its first and
                // its second number show both.
                let (queries, keys) = (case.list("queries"), case.size("keys"));
                let inputs = Inputs::rows(vec![0.0; 2 * queries.len()], vec![1.0; 2 * keys], 2)
                    .seeing_all_keys();
                for (v, side) in [
                    ([1.0, 0.0], f64::sin as fn(f64) -> f64),
                    ([0.0, 1.0], f64::cos),
                ] {
                    let identity = ("layers.0.projection", vec![1.0, 0.0, 0.0, 1.0]);
                    let encoding = build(
                        &xl,
                        &shape(2, 1, 2),
                        &[
                            identity,
                            ("layers.0.u", vec![0.0; 2]),
                            ("layers.0.v", v.to_vec()),
                        ],
                    );
                    let bias = inputs
                        .pass(&encoding, &Positions::new(queries.clone(), count(keys)))
                        .bias;
                    let expected: Vec<f64> = case
                        .wanted()
                        .iter()
                        .map(|distance| side(*distance) / 2f64.sqrt())
                        .collect();
                    close(name, &bias, &expected, 1e-6);
                }
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a case for each kind of its golden file"
)]
fn deberta() {
    for case in cases(include_str!("../../golden/deberta.json"), 5) {
        let (name, expected) = (&case.name, case.wanted());
        match case.kind.as_str() {
            "buckets" => {
                let (buckets, max_distance, distances) = (
                    case.size("buckets"),
                    case.size("max_distance"),
                    case.list("distances"),
                );
                let deberta = DebertaConfig::default().with(|config| {
                    config.buckets = Some(buckets);
                    config.max_distance = Some(max_distance);
                });
                assert_eq!(
                    distances
                        .iter()
                        .map(|distance| deberta.bucket(*distance))
                        .collect::<Vec<f64>>(),
                    expected,
                    "{name}"
                );
                // A table whose row r holds r, times a query of 1 over sqrt(2 terms).
                let deberta = json!({"kind": "deberta", "terms": "c2p", "buckets": buckets, "max_distance": max_distance});
                let parameters = [("table", count(2 * buckets)), ("c2p.0", vec![1.0])];
                let encoding = build(&config(deberta), &shape(1, 1, 1), &parameters);
                let keys: Vec<f64> = distances.iter().map(|distance| 1000.0 - distance).collect();
                let inputs = Inputs::rows(vec![1.0], vec![0.0; keys.len()], 1);
                let bias = inputs
                    .pass(&encoding, &Positions::new(vec![1000.0], keys))
                    .bias;
                let k = buckets as f64;
                let rows: Vec<f64> = expected
                    .iter()
                    .map(|bucket| (bucket + k).clamp(0.0, 2.0 * k - 1.0) / 2f64.sqrt())
                    .collect();
                close(name, &bias, &rows, 1e-6);
            }
            "logits" => {
                let (heads, terms) = (
                    case.size("n_heads"),
                    case.inputs["terms"].as_str().expect("a name"),
                );
                let deberta = config(
                    json!({"kind": "deberta", "terms": terms, "max_distance": case.inputs["max_distance"]}),
                );
                let all = [("table", "table"), ("c2p.0", "c2p"), ("p2c.0", "p2c")];
                let there = all
                    .into_iter()
                    .filter(|(_, name)| *name == "table" || terms == "both" || *name == terms);
                let parameters: Vec<(&str, Vec<f64>)> =
                    there.map(|(path, name)| (path, case.list(name))).collect();
                let d_model = case.inputs["c2p"].as_array().expect("rows").len();
                let (head_dim, length) = (d_model / heads, case.list("q").len() / d_model);
                let encoding = build(&deberta, &shape(d_model, heads, head_dim), &parameters);
                let by_head = |key: &str| {
                    tensor(case.list(key), [1, length, heads, head_dim]).swap_dims(1, 2)
                };
                let inputs = Inputs {
                    q: by_head("q"),
                    k: by_head("k"),
                    hidden: None,
                    all_keys: true,
                };
                close(
                    name,
                    &inputs
                        .pass(&encoding, &Positions::contiguous(length))
                        .logits(),
                    &expected,
                    1e-6,
                );
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn cope() {
    for case in cases(include_str!("../../golden/cope.json"), 1) {
        assert_eq!(case.kind, "logits");
        let cope = config(
            json!({"kind": "cope", "max_position": case.inputs["max_position"], "scaled_gates": false}),
        );
        let encoding = build(&cope, &shape(2, 1, 2), &[("tables.0", case.list("table"))]);
        let (q, k) = (case.list("q"), case.list("k"));
        let length = q.len() / 2;
        let pass = Inputs::rows(q, k, 2).pass(&encoding, &Positions::contiguous(length));
        close(
            &case.name,
            &visible(&pass.bias, length),
            &numbers(&case.expected["bias"]),
            1e-6,
        );
        // The division by sqrt(head_dim) is not in the reference.
        let logits: Vec<f64> = pass
            .products
            .iter()
            .zip(&pass.bias)
            .map(|(product, bias)| product * 2f64.sqrt() + bias)
            .collect();
        close(
            &case.name,
            &visible(&logits, length),
            &numbers(&case.expected["logits"]),
            1e-6,
        );
    }
}

#[test]
fn fox() {
    for case in cases(include_str!("../../golden/fox.json"), 1) {
        assert_eq!(case.kind, "bias");
        let gates = case.list("gates");
        let (heads, length) = (2, gates.len() / 2);
        // One dimension of the input per head, whose sigmoid is the gate.
        let opened = |token: usize, head: usize| {
            let gate = gates[head * length + token];
            (gate / (1.0 - gate)).ln()
        };
        let hidden = (0..length)
            .flat_map(|token| (0..heads).map(move |head| opened(token, head)))
            .collect();
        let parameters = [
            ("layers.0.weight", vec![1.0, 0.0, 0.0, 1.0]),
            ("layers.0.bias", vec![0.0; heads]),
        ];
        let encoding = build(
            &config(json!({"kind": "fox"})),
            &shape(heads, heads, 1),
            &parameters,
        );
        let zeros = || tensor(vec![0.0; heads * length], [1, heads, length, 1]);
        let inputs = Inputs {
            q: zeros(),
            k: zeros(),
            hidden: Some(tensor(hidden, [1, length, heads])),
            all_keys: false,
        };
        let bias = inputs.pass(&encoding, &Positions::contiguous(length)).bias;
        close(&case.name, &visible(&bias, length), &case.wanted(), 1e-6);
    }
}
