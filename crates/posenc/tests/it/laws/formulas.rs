//! A formula that says what an encoding of the list does gives its numbers.

use super::{bias_block, prepare};
use crate::common::{SHAPE, build, build_recorded, cells, config, host, lines, random};
use posenc::encodings::alibi::slopes;
use posenc::{EncodingConfig, Positions};
use serde_json::{Value, json};

fn formula(bias: &str, values: Value) -> EncodingConfig {
    config(json!({"kind": "formula", "bias": bias, "values": values}))
}

/// The bias of all pairs of positions with a gap.
fn bias(config: &EncodingConfig) -> Vec<f64> {
    let encoding = build(config, &SHAPE);
    let positions = Positions::same(vec![0.0, 1.0, 2.0, 5.0, 900.0]);
    let prepared = prepare(&encoding, &positions);
    bias_block(&prepared.logits_bias(1).unwrap(), 0..5, 0..5)
}

fn check(ours: &[f64], theirs: &[f64], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{what}: {a}, {b}");
    }
}

#[test]
fn alibi_is_a_formula() {
    let alibi = bias(&config(json!({"kind": "alibi"})));
    let given = formula("-m * d", json!({"m": slopes(SHAPE.n_heads)}));
    assert_eq!(bias(&given), alibi);
    check(
        &bias(&formula("-d * 2^(-8*h/H)", json!({}))),
        &alibi,
        "slopes from the head",
    );
}

#[test]
fn the_kernels_of_kerple_are_formulas() {
    for (form, text) in [
        ("log", "-r1 * log(1 + r2*d)"),
        ("power", "-r1 * d^r2"),
        ("log3", "-r1 * log(1 + r2 * d^r3)"),
    ] {
        let kerple = config(json!({"kind": "kerple", "form": form}));
        let (encoding, values) = build_recorded(&kerple, &SHAPE);
        let positions = Positions::same(vec![0.0, 1.0, 2.0, 5.0, 900.0]);
        let prepared = prepare(&encoding, &positions);
        let theirs = bias_block(&prepared.logits_bias(0).unwrap(), 0..5, 0..5);
        let values: serde_json::Map<String, Value> = values
            .iter()
            // Inside the range that KERPLE clamps to.
            .map(|(name, values)| {
                (
                    name.clone(),
                    json!(
                        values
                            .iter()
                            .map(|v| v.clamp(0.01, 2.0))
                            .collect::<Vec<_>>()
                    ),
                )
            })
            .collect();
        check(&bias(&formula(text, Value::Object(values))), &theirs, form);
    }
}

#[test]
fn rope_is_a_formula_bit_for_bit() {
    let rope = config(json!({"kind": "rope", "base": 500.0}));
    let values = json!({"base": 500.0});
    let ours = config(json!({"kind": "formula", "inv_freq": "base^(-2*i/E)", "values": values}));
    let x = random(1, [1, SHAPE.n_heads, 3, SHAPE.head_dim]);
    let hidden = random(2, [1, 3, SHAPE.d_model]);
    let positions = Positions::same(vec![0.0, 3.0, 65_537.0]);
    let turned = [rope, ours].map(|config| {
        let encoding = build(&config, &SHAPE);
        let prepared = prepare(&encoding, &positions);
        let (q, k) = prepared.transform_qk(0, x.clone(), x.clone(), &hidden);
        (host(q), host(k))
    });
    assert_eq!(turned[0], turned[1]);
}

#[test]
fn heads_layers_and_positions_are_counted_as_the_page_says() {
    let of = |text: &str| bias(&formula(text, json!({})));
    let heads = of("h + 10 * H + 100 * l + 1000 * N");
    for (at, value) in heads.iter().enumerate() {
        // Layer 1 is the second.
        let head = at / 25 + 1;
        let right = head + 10 * SHAPE.n_heads + 200 + 1000 * SHAPE.n_layers;
        assert_eq!(*value, right as f64);
    }
    let rows = of("t");
    assert_eq!((rows[24], rows[5]), (900.0, 1.0));
}

#[test]
fn layers_share_a_bias_that_does_not_read_them() {
    for (text, shared) in [("-d", true), ("-d / l", false)] {
        let encoding = build(&formula(text, json!({})), &SHAPE);
        let positions = Positions::contiguous(3);
        let prepared = prepare(&encoding, &positions);
        assert_eq!(prepared.bias_layer(1) == 0, shared, "{text}");
    }
}

#[test]
fn operators_bind_as_in_mathematics() {
    for (text, right) in [
        ("1 + 2 * 3 + 0*d", 7.0),
        ("1 - 2 - d", -4.0),
        ("8 / 4 / 2 + d - d", 1.0),
        ("-d^2", -9.0),
        ("(-d)^2", 9.0),
        ("0.5^d^2", 0.001953125),
        ("2^-1 * d", 1.5),
        ("- -d", 3.0),
        ("2 * -d", -6.0),
        ("1e-3 * 2.5E2 * d", 0.75),
        (".5*d", 1.5),
        ("max(d, 5) - min(d, 5)", 2.0),
        ("sqrt(d + 6) * m", 1.5),
        ("log(exp(-d)) + ln(1)", -3.0),
        ("sigmoid(0*d) + tanh(0) + abs(-1)", 1.5),
        ("softplus(d - 3) / log(2)", 1.0),
        ("sin(0*d) + cos(0)", 1.0),
    ] {
        let values = if text.contains("* m") {
            json!({"m": 0.5})
        } else {
            json!({})
        };
        let encoding = build(&formula(text, values), &SHAPE);
        let prepared = prepare(&encoding, &Positions::new(vec![3.0], vec![0.0]));
        let found = bias_block(&prepared.logits_bias(0).unwrap(), 0..1, 0..1)[0];
        assert!((found - right).abs() < 1e-5, "{text}: {found}");
    }
}

/// What is no formula, the first being empty, and a part of the error.
const NO_FORMULAS: &str = "
 | ends where a value is expected, at character 1
1 + | ends where a value is expected, at character 4
1 + * d | has `*` where a value is expected, at character 5
(d | lacks a `)`, at character 3
d) | not opened, at character 2
2 d | has `d` where an operator is expected, at character 3
sgn(d) | calls `sgn`, which is not a function, at character 1
min(d) | gives `min` 1 arguments, it takes 2
exp(d, 2) | gives `exp` 2 arguments, it takes 1
1.2.3 | has `1.2.3`, which is not a number, at character 1
d % 2 | has `%` where an operator
k * d | reads `k`
";

#[test]
fn what_is_no_formula_is_refused_with_its_place() {
    for row in lines(NO_FORMULAS) {
        let [text, said] = cells(row);
        let error = formula(text, json!({})).check(&SHAPE).unwrap_err();
        assert!(error.problem.contains(said), "{text}: {}", error.problem);
        assert_eq!(error.value, format!("{text:?}"));
    }
    // The value is that of the key: a number, or numbers.
    for (name, given, said) in [
        ("m", json!(1.5), "1.5"),
        ("m", json!([0.5, 2.0]), "[0.5, 2.0]"),
        ("d", json!(3.0), "3"),
    ] {
        let error = formula("-1 * H", json!({ name: given })).check(&SHAPE);
        assert_eq!(error.unwrap_err().value, said, "{name}");
    }
    let deep = [
        format!("{}d", "(".repeat(400)),
        "-".repeat(400),
        "d+".repeat(300),
    ];
    for text in deep {
        assert!(formula(&text, json!({})).check(&SHAPE).is_err());
    }
    assert!(
        formula(&["d"; 200].join("+"), json!({}))
            .check(&SHAPE)
            .is_ok()
    );
}
