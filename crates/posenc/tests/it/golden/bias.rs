//! Golden numbers of biases that depend on positions alone; the module above says how they are compared.

use super::support::*;
use posenc::Lengths;
use posenc::encodings::alibi::slopes;
use serde_json::json;

/// `[H, Q, K]` bias of ALiBi.
fn alibi_bias(n_heads: usize, queries: Vec<f64>, keys: Vec<f64>) -> Vec<f64> {
    position_bias(
        &build(
            &config(json!({"kind": "alibi"})),
            &shape(8, n_heads, 8),
            &[],
        ),
        queries,
        keys,
    )
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a case for each kind of its golden file"
)]
fn alibi() {
    for case in cases(include_str!("../../golden/alibi.json"), 22) {
        let (name, heads, expected) = (&case.name, case.size("n_heads"), case.wanted());
        let negated = |bias: Vec<f64>| bias.iter().map(|bias| -bias).collect::<Vec<f64>>();
        match case.kind.as_str() {
            "slopes" => {
                exact(name, &slopes(heads), &expected);
                one_ulp(
                    name,
                    &negated(alibi_bias(heads, vec![1.0], vec![0.0])),
                    &expected,
                );
            }
            "interpolated_slopes" => {
                let mut interpolated = config(json!({"kind": "alibi", "factor": "auto"}));
                interpolated.resolve(&Lengths {
                    train_len: case.size("train_len"),
                    trained_len: case.size("train_len"),
                    test_len: case.size("test_len"),
                });
                let encoding = build(&interpolated, &shape(8, heads, 8), &[]);
                one_ulp(
                    name,
                    &negated(position_bias(&encoding, vec![1.0], vec![0.0])),
                    &expected,
                );
            }
            "causal_bias" => {
                let length = case.size("length");
                let bias = alibi_bias(heads, count(length), count(length));
                close(
                    name,
                    &visible(&bias, length),
                    &visible(&expected, length),
                    1e-6,
                );
            }
            "symmetric_bias" => {
                let length = case.size("length");
                close(
                    name,
                    &alibi_bias(heads, count(length), count(length)),
                    &expected,
                    1e-6,
                );
            }
            "decode_bias" => close(
                name,
                &alibi_bias(heads, vec![case.number("query")], count(case.size("keys"))),
                &expected,
                1e-6,
            ),
            "key_index_bias" => {
                let length = case.size("length");
                let bias = alibi_bias(heads, count(length), count(length));
                close(
                    name,
                    &causal_softmax(&bias, length),
                    &causal_softmax(&expected, length),
                    1e-6,
                );
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn t5() {
    for case in cases(include_str!("../../golden/t5.json"), 6) {
        let (name, expected) = (&case.name, case.wanted());
        match case.kind.as_str() {
            "buckets" => {
                let [buckets, farthest, both] =
                    ["num_buckets", "max_distance", "bidirectional"].map(|key| &case.inputs[key]);
                let t5 = config(
                    json!({"kind": "t5", "num_buckets": buckets, "max_distance": farthest, "bidirectional": both}),
                );
                // A table whose row r holds r.
                let encoding = build(
                    &t5,
                    &shape(8, 1, 8),
                    &[("table", count(case.size("num_buckets")))],
                );
                let (first, last) = (case.number("first") as i64, case.number("last") as i64);
                let keys = (first..=last)
                    .map(|relative| (1000 + relative) as f64)
                    .collect();
                close(
                    name,
                    &position_bias(&encoding, vec![1000.0], keys),
                    &expected,
                    0.0,
                );
            }
            "bias" => {
                let (table, length) = (case.list("table"), case.size("length"));
                let heads = table.len() / 32;
                let encoding = build(
                    &config(json!({"kind": "t5"})),
                    &shape(8, heads, 8),
                    &[("table", table)],
                );
                let bias = position_bias(&encoding, count(length), count(length));
                close(name, &visible(&bias, length), &expected, 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
fn kerple() {
    for case in cases(include_str!("../../golden/kerple.json"), 5) {
        let parameters = [("r1", case.list("r1")), ("r2", case.list("r2"))];
        let encoding = build(
            &config(json!({"kind": "kerple", "form": case.kind})),
            &shape(8, 1, 8),
            &parameters,
        );
        let distances = case.list("distance");
        let query = 5000.0;
        let bias = position_bias(
            &encoding,
            vec![query],
            distances.iter().map(|d| query - d).collect(),
        );
        close(&case.name, &bias, &case.wanted(), 1e-6);
    }
}

#[test]
fn sandwich() {
    for case in cases(include_str!("../../golden/sandwich.json"), 2) {
        assert_eq!(case.kind, "bias");
        let sandwich = config(json!({"kind": "sandwich", "width": case.inputs["width"]}));
        let encoding = build(&sandwich, &shape(8, case.size("n_heads"), 8), &[]);
        let query = 5000.0;
        let bias = position_bias(
            &encoding,
            vec![query],
            case.list("distance").iter().map(|d| query - d).collect(),
        );
        one_ulp(&case.name, &bias, &case.wanted());
    }
}

#[test]
fn fire() {
    for case in cases(include_str!("../../golden/fire.json"), 3) {
        assert_eq!(case.kind, "bias");
        let positions = case.list("positions");
        let bias = position_bias(&fire_of(&case), positions.clone(), positions.clone());
        close(
            &case.name,
            &visible(&bias, positions.len()),
            &case.wanted(),
            1e-6,
        );
    }
}

#[test]
fn hard_alibi() {
    for case in cases(include_str!("../../golden/hard_alibi.json"), 1) {
        assert_eq!(case.kind, "seen");
        let hard =
            config(json!({"kind": "hard_alibi", "masked_heads": case.inputs["masked_heads"]}));
        let encoding = build(&hard, &shape(8, case.size("n_heads"), 8), &[]);
        let length = case.size("length");
        let bias = position_bias(&encoding, count(length), count(length));
        assert!(
            bias.iter()
                .all(|bias| *bias == 0.0 || *bias == f64::NEG_INFINITY),
            "{}: {bias:?}",
            case.name
        );
        assert_eq!(
            bias.iter()
                .map(|bias| f64::from(u8::from(*bias == 0.0)))
                .collect::<Vec<f64>>(),
            case.wanted(),
            "{}",
            case.name
        );
    }
}
