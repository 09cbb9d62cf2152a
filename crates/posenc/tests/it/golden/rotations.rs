//! Golden numbers of rotations of queries and keys.

use super::support::*;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use posenc::encodings::{RopeConfig, XposConfig};
use posenc::rotary::inv_freq;
use posenc::spec::EncodingSpec;
use posenc::{Axis, Context, EncodingConfig, Lengths, PositionalEncoding, Positions};
use serde_json::json;

#[test]
fn rope() {
    for case in cases(include_str!("../../golden/rope.json"), 29) {
        let (name, expected, base) = (&case.name, case.wanted(), case.number("base"));
        match case.kind.as_str() {
            "inv_freq" => {
                let dim = case.size("dim");
                exact(name, &inv_freq(dim, base), &expected);
                let frequencies = RopeConfig::default()
                    .with(|config| config.base = base)
                    .frequencies(dim, 1.0)
                    .expect("a resolved scaling");
                exact(name, &frequencies.inv_freq, &expected);
                let wavelengths: Vec<f64> =
                    expected.iter().map(|f| std::f64::consts::TAU / f).collect();
                exact(name, &frequencies.wavelengths(), &wavelengths);
            }
            "rotate" => {
                let (layout, rotary_dim) = (&case.inputs["layout"], &case.inputs["rotary_dim"]);
                let rope = config(
                    json!({"kind": "rope", "layout": layout, "base": base, "rotary_dim": rotary_dim}),
                );
                close(
                    name,
                    &turned(&rope, &case.list("x"), &case.list("positions")),
                    &expected,
                    1e-6,
                );
            }
            "scores" => {
                let rope =
                    config(json!({"kind": "rope", "layout": case.inputs["layout"], "base": base}));
                close(name, &head_scores(&rope, &case), &expected, 1e-6);
            }
            "layout_permutation" => {
                let permutation: Vec<usize> = case
                    .list("permutation")
                    .iter()
                    .map(|i| *i as usize)
                    .collect();
                let permuted = |x: &[f64]| permutation.iter().map(|i| x[*i]).collect::<Vec<f64>>();
                let (x, at) = (case.list("x"), [case.number("position")]);
                let [half, interleaved] = ["half", "interleaved"]
                    .map(|layout| config(json!({"kind": "rope", "layout": layout, "base": base})));
                close(name, &turned(&half, &permuted(&x), &at), &expected, 1e-6);
                close(
                    name,
                    &permuted(&turned(&interleaved, &x, &at)),
                    &expected,
                    1e-6,
                );
            }
            _ => case.other_kind(),
        }
    }
}

/// Scores of the case's vectors in one head of their width, without parameters.
fn head_scores(config: &EncodingConfig, case: &Case) -> Vec<f64> {
    let width = case.list("q").len();
    scores(&build(config, &shape(width, 1, width), &[]), case)
}

#[test]
fn rope_scaling() {
    let imported = cases(include_str!("../../golden/rope_scaling.json"), 138);
    let more = include_str!("../../golden/rope_scaling_2.json");
    let more = cases(more, more.matches("\"frequencies\"").count());
    for case in imported.into_iter().chain(more) {
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
                scaled.scaling.as_mut().expect("scaled").resolve(&Lengths {
                    train_len: 99,
                    trained_len: 99,
                    test_len,
                });
                EncodingConfig::Rope(scaled.clone())
                    .check(&shape(dim, 1, dim))
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                let got = scaled
                    .frequencies(dim, length.unwrap_or(123.0))
                    .expect("a resolved scaling");
                exact(name, &got.inv_freq, &numbers(&case.expected["inv_freq"]));
                exact(
                    name,
                    &[got.attention_factor],
                    &numbers(&case.expected["attention_factor"]),
                );
            }
            "scores" => {
                let mut scaled = config(
                    json!({"kind": "rope", "layout": case.inputs["layout"], "base": base, "scaling": scaling}),
                );
                scaled.resolve(&Lengths {
                    train_len: 99,
                    trained_len: 99,
                    test_len: 99,
                });
                close(name, &head_scores(&scaled, &case), &case.wanted(), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

/// The gradient of the only parameter.
struct OnlyGradient<'a>(&'a Gradients, Vec<Vec<f64>>);

impl ModuleVisitor for OnlyGradient<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.1
            .push(host(param.val().grad(self.0).expect("a gradient")));
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a case for each kind of its golden file"
)]
fn rope_combinations() {
    for case in cases(include_str!("../../golden/rope_combinations.json"), 2) {
        let (name, layout, base) = (&case.name, &case.inputs["layout"], case.number("base"));
        let (q, k) = (case.list("q"), case.list("k"));
        match case.kind.as_str() {
            "gradient" => {
                let (width, theta) = (q.len(), inv_freq(q.len(), base));
                let by_frequency = numbers(&case.expected["grad_wrt_inv_freq"]);
                let by_alpha: Vec<f64> = by_frequency
                    .iter()
                    .zip(&theta)
                    .map(|(slope, theta)| slope * theta)
                    .collect();
                // From the base itself, and from another one whose frequencies alpha brings to the
                // same values.
                for other in [base, 100.0] {
                    let alpha: Vec<f64> = theta
                        .iter()
                        .zip(inv_freq(width, other))
                        .map(|(theta, start)| (theta / start).ln())
                        .collect();
                    let learnable = config(
                        json!({"kind": "rope", "layout": layout, "base": other, "learnable": true}),
                    );
                    let device = Device::flex().autodiff();
                    let encoding = build_on(
                        &device,
                        &learnable,
                        &shape(width, 1, width),
                        &[("log_frequency", alpha)],
                    );
                    let positions =
                        Positions::new(vec![case.number("query")], vec![case.number("key")]);
                    let row = |x: &Vec<f64>| {
                        Tensor::from_data(TensorData::new(x.clone(), [1, 1, 1, width]), &device)
                    };
                    let (turned_q, turned_k) = encoding
                        .prepare(&positions, &Context::new(&device))
                        .expect("positions in range")
                        .transform_qk(0, row(&q), row(&k), &Tensor::zeros([1, 1, 1], &device));
                    let score: Tensor<1> = (turned_q * turned_k).sum();
                    close(
                        name,
                        &host(score.clone()),
                        &numbers(&case.expected["score"]),
                        1e-6,
                    );
                    let gradients = score.backward();
                    let mut found = OnlyGradient(&gradients, vec![]);
                    encoding.visit(&mut found);
                    assert_eq!(found.1.len(), 1, "one parameter");
                    close(name, &found.1[0], &by_alpha, 1e-6);
                }
            }
            "alibi" => {
                let (heads, head, length) = (case.size("n_heads"), case.size("head"), q.len() / 4);
                let both = config(
                    json!({"kind": "stack", "parts": [{"kind": "rope", "layout": layout, "base": base}, {"kind": "alibi"}]}),
                );
                let encoding = build(&both, &shape(4 * heads, heads, 4), &[]);
                let repeated = |x: &Vec<f64>| tensor(x.repeat(heads), [1, heads, length, 4]);
                let inputs = Inputs {
                    q: repeated(&q),
                    k: repeated(&k),
                    hidden: None,
                    all_keys: false,
                };
                let logits = inputs
                    .pass(&encoding, &Positions::contiguous(length))
                    .logits();
                let logits = &logits[head * length * length..][..length * length];
                close(
                    name,
                    &visible(logits, length),
                    &numbers(&case.expected["logits"]),
                    1e-6,
                );
                let weights = causal_softmax(logits, length);
                close(
                    name,
                    &visible(&weights, length),
                    &numbers(&case.expected["weights"]),
                    1e-6,
                );
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn xpos() {
    for case in cases(include_str!("../../golden/xpos.json"), 5) {
        let name = &case.name;
        if case.kind == "zeta" {
            let zeta = XposConfig::default()
                .with(|config| config.gamma = case.number("gamma"))
                .zeta(case.size("dim"));
            exact(name, &zeta, &case.wanted());
            continue;
        }
        let (base, scale_base, layout) = (
            case.number("base"),
            case.number("scale_base"),
            &case.inputs["layout"],
        );
        let xpos = config(
            json!({"kind": "xpos", "layout": layout, "base": base, "scale_base": scale_base}),
        );
        match case.kind.as_str() {
            "scores" => close(name, &head_scores(&xpos, &case), &case.wanted(), 1e-6),
            "rotate" => {
                let (q, k, length) = (case.list("q"), case.list("k"), case.size("length"));
                let width = q.len();
                let encoding = build(&xpos, &shape(width, 1, width), &[]);
                let rows = |x: &Vec<f64>| tensor(x.repeat(length), [1, 1, length, width]);
                let (q, k) = transformed(
                    &encoding,
                    &Positions::contiguous(length),
                    rows(&q),
                    rows(&k),
                );
                // Our vectors have no factor in the middle of the positions, the reference's at
                // another place.
                let shift = (length - 1) as f64 / 2.0 - case.number("center");
                let zeta = XposConfig::default().zeta(width);
                let moved = |x: &[f64], sign: f64| -> Vec<f64> {
                    x.iter()
                        .enumerate()
                        .map(|(i, x)| x * zeta[i % width / 2].powf(sign * shift / scale_base))
                        .collect()
                };
                close(name, &moved(&q, 1.0), &numbers(&case.expected["q"]), 1e-6);
                close(name, &moved(&k, -1.0), &numbers(&case.expected["k"]), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

/// `x` turned as if it stood at each of the coordinates, `[positions, axes]`.
fn turned_by_axes(config: &EncodingConfig, x: &[f64], coordinates: &[Vec<f64>]) -> Vec<f64> {
    let (width, length) = (x.len(), coordinates.len());
    let axis = |a: usize| coordinates.iter().map(|at| at[a]).collect::<Vec<f64>>();
    let axes = (0..coordinates[0].len())
        .map(|a| Axis {
            queries: axis(a),
            keys: axis(a),
        })
        .collect();
    let rows = || tensor(x.repeat(length), [1, 1, length, width]);
    let encoding = build(config, &shape(width, 1, width), &[]);
    let (q, k) = transformed(
        &encoding,
        &Positions::contiguous(length).with_axes(axes),
        rows(),
        rows(),
    );
    assert_eq!(q, k, "queries and keys turn alike");
    q
}

#[test]
fn axial_rope() {
    for case in cases(include_str!("../../golden/axial_rope.json"), 6) {
        let (name, base) = (&case.name, case.number("base"));
        match case.kind.as_str() {
            "rotate" => {
                let (layout, sections) = (&case.inputs["layout"], case.list("sections"));
                let whole: Vec<usize> = sections.iter().map(|width| *width as usize).collect();
                let axes = whole.len();
                let coordinates: Vec<Vec<f64>> = case
                    .list("coordinates")
                    .chunks(axes)
                    .map(<[f64]>::to_vec)
                    .collect();
                let axial = config(
                    json!({"kind": "axial_rope", "axes": axes, "base": base, "layout": layout, "sections": whole}),
                );
                close(
                    name,
                    &turned_by_axes(&axial, &case.list("x"), &coordinates),
                    &case.wanted(),
                    1e-6,
                );
            }
            "whole_head_angles" => {
                let (dim, angles) = (case.size("head_dim"), case.wanted());
                let axial = config(json!({"kind": "axial_rope", "base": base}));
                let x: Vec<f64> = (0..dim).map(|i| (i as f64 - 2.5) / 4.0).collect();
                // One rotation of halves over the whole head: x cos + (-x2 | x1) sin.
                let other = |i: usize| {
                    if i < dim / 2 {
                        -x[i + dim / 2]
                    } else {
                        x[i - dim / 2]
                    }
                };
                let whole: Vec<f64> = (0..dim)
                    .map(|i| x[i] * angles[i].cos() + other(i) * angles[i].sin())
                    .collect();
                // Blocks of a quarter: in the head they are [h1 w1 h2 w2], in ours [h1 h2 w1 w2].
                let quarter = dim / 4;
                let regrouped = |x: &[f64]| {
                    [0, 2, 1, 3]
                        .iter()
                        .flat_map(|b| x[b * quarter..][..quarter].to_vec())
                        .collect::<Vec<f64>>()
                };
                close(
                    name,
                    &turned_by_axes(&axial, &regrouped(&x), &[case.list("coordinates")]),
                    &regrouped(&whole),
                    1e-6,
                );
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn pope() {
    for case in cases(include_str!("../../golden/pope.json"), 1) {
        let width = case.list("q").len();
        let encoding = build(
            &config(json!({"kind": "pope", "base": case.number("base")})),
            &shape(width, 1, width),
            &[("delta", case.list("delta"))],
        );
        close(&case.name, &scores(&encoding, &case), &case.wanted(), 1e-6);
    }
}
