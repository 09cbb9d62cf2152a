//! Encodings by head: each head has what its part has alone, with as many heads as the part.

use super::{bias_block, device, prepare};
use crate::common::{
    Attention, SHAPE, all_configs, build_stirred, config, host, largest_difference, random, stirred,
};
use burn::tensor::Tensor;
use posenc::{Encoding, EncodingConfig, Init, ModelShape, Positions};
use serde_json::{Value, json};
use std::ops::Range;

/// `parts` with equal numbers of heads, whose parameters have the values that they have alone.
fn by_head(parts: &[&EncodingConfig]) -> Encoding {
    let parts: Vec<Value> = parts
        .iter()
        .map(|part| serde_json::to_value(part).expect("plain data"))
        .collect();
    let config = config(json!({"kind": "by_head", "parts": parts}));
    config.check(&SHAPE).expect("a part without an embedding");
    let own = |path: &str, shape: &[usize], distribution| {
        let inner = path.splitn(3, '.').nth(2).expect("parts, a number, a path");
        stirred(inner, shape, distribution)
    };
    let device = device();
    let init = Init::new(&device, &own);
    config.init(&SHAPE, &init).expect("resolved")
}

fn embeds(config: &EncodingConfig) -> bool {
    config.facts(&SHAPE).hooks.embed
}

/// Logits of all pairs and the output's bias of some heads, for the same queries and keys.
fn of_heads(
    encoding: &Encoding,
    given: Range<usize>,
    asked: Range<usize>,
    layer: usize,
) -> [Vec<f64>; 2] {
    let positions = Positions::from_offset(3, 9);
    let heads = |seed| random(seed, [1, 4, 9, 8]).slice_dim(1, given.clone());
    let raw = (heads(1), heads(2));
    let attention = Attention::of(encoding, &positions, layer, 0, raw, random(3, [1, 9, 32]));
    let own = |x: Tensor<4>| {
        let of = |range: &Range<usize>| range.start - given.start..range.end - given.start;
        match x.dims()[1] {
            1 => host(x),
            _ => host(x.slice_dim(1, of(&asked))),
        }
    };
    let output = attention.output_bias(0..9, 0..9).map(own);
    [
        own(attention.scores(0..9, 0..9)),
        output.unwrap_or_default(),
    ]
}

#[test]
fn heads_of_a_part_are_those_of_the_part_alone() {
    let two = ModelShape {
        n_heads: 2,
        ..SHAPE
    };
    let alibi = config(json!({"kind": "alibi"}));
    let mut tried = 0;
    for (name, part) in all_configs() {
        if embeds(&part) || part.check(&two).is_err() {
            continue;
        }
        tried += 1;
        let alone = build_stirred(&part, &two);
        for (parts, heads) in [([&part, &alibi], 0..2), ([&alibi, &part], 2..4)] {
            let mixed = by_head(&parts);
            for layer in 0..SHAPE.n_layers {
                let expected = of_heads(&alone, heads.clone(), heads.clone(), layer);
                let found = of_heads(&mixed, 0..4, heads.clone(), layer);
                let [logits, output] = [0, 1].map(|i: usize| {
                    // A part that has no output bias adds 0.
                    let zeros = vec![0.0; found[i].len()];
                    let is_none = expected[i].is_empty();
                    largest_difference(&found[i], if is_none { &zeros } else { &expected[i] })
                });
                assert!(
                    logits < 2e-6 && output < 2e-6,
                    "{name}, heads {heads:?}, layer {layer}: {logits:e}, {output:e}"
                );
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn one_part_with_all_heads_is_the_part() {
    for (name, part) in all_configs() {
        if embeds(&part) {
            continue;
        }
        let (alone, all) = (build_stirred(&part, &SHAPE), by_head(&[&part]));
        for layer in 0..SHAPE.n_layers {
            let [one, other] = [&alone, &all].map(|e| of_heads(e, 0..4, 0..4, layer));
            assert_eq!(one, other, "{name}, layer {layer}");
        }
        let value = json!({"kind": "by_head", "parts": [part]});
        let facts = config(value).facts(&SHAPE);
        let own = part.facts(&SHAPE);
        assert_eq!(facts.hooks, own.hooks, "{name}");
        assert_eq!(facts.bias_workspace, own.bias_workspace, "{name}");
    }
}

#[test]
fn what_adds_to_the_input_is_refused_by_name() {
    let mut kinds = vec![];
    for (_, part) in all_configs().into_iter().filter(|(_, part)| embeds(part)) {
        let value = json!({"kind": "by_head", "parts": [{"kind": "nope"}, part]});
        let error = config(value).check(&SHAPE).expect_err("no embedding");
        assert_eq!((&*error.key, &*error.value), ("parts.1.kind", part.kind()));
        assert!(error.problem.contains("all heads read"), "{error}");
        kinds.push(part.kind());
    }
    assert!(kinds.contains(&"sinusoidal") && kinds.contains(&"learned"));
}

#[test]
fn heads_that_do_not_add_up_are_refused_with_both_numbers() {
    let parts = json!([{"kind": "nope"}, {"kind": "alibi"}]);
    for (heads, key, problem) in [
        (
            json!([2, 3]),
            "heads",
            "adds up to 5, and the model has 4 heads",
        ),
        (
            json!([1, 2]),
            "heads",
            "adds up to 3, and the model has 4 heads",
        ),
        (json!([4]), "heads", "has 1 numbers for 2 parts"),
        (json!([4, 0]), "heads.1", "is out of range"),
        (json!([u64::MAX, 5]), "heads", "and the model has 4 heads"),
    ] {
        let config = config(json!({"kind": "by_head", "parts": parts, "heads": heads}));
        let error = config.check(&SHAPE).expect_err("a sum");
        assert_eq!(error.key, key, "{error}");
        assert!(error.problem.contains(problem), "{error}");
    }
    for (count, key) in [(0, "parts"), (5, "parts")] {
        let parts = vec![json!({"kind": "nope"}); count];
        let config = config(json!({"kind": "by_head", "parts": parts}));
        assert_eq!(config.check(&SHAPE).expect_err("a count").key, key);
    }
    // Numbers of a part are those of its heads.
    let slopes = json!([{"kind": "nope"}, {"kind": "alibi", "slopes": [0.5, 0.25, 0.125]}]);
    let with = |heads: Value| json!({"kind": "by_head", "parts": slopes, "heads": heads});
    assert!(config(with(json!([1, 3]))).check(&SHAPE).is_ok());
    let error = config(with(json!([2, 2])))
        .check(&SHAPE)
        .expect_err("three slopes");
    assert_eq!(error.key, "parts.1.slopes");
}

/// NAPE stays in fused attention, with one bias by distance; a rotation of some heads does not.
#[test]
fn halves_without_a_rotation_are_fused() {
    let positions = Positions::contiguous(7);
    let of =
        |parts: Value| build_stirred(&config(json!({"kind": "by_head", "parts": parts})), &SHAPE);
    let nape = of(json!([{"kind": "nope"}, {"kind": "alibi"}]));
    let prepared = prepare(&nape, &positions);
    let fused = prepared.fused_qk(0).expect("no transform at all");
    assert!(fused.rotation.is_none() && fused.factor == 1.0);
    let bias = prepared.logits_bias(0).expect("that of half of the heads");
    assert!(bias.is_by_distance() && bias.is_decay());
    assert_eq!(
        (prepared.bias_layer(1), bias.network().is_none()),
        (0, true)
    );
    let row = bias_block(&bias, 6..7, 0..7);
    // Slopes of two heads: 1/16 and 1/256.
    let expected = |slope: f64| (0..7).map(move |key| -slope * f64::from(6 - key));
    let zeros = vec![0.0; 14];
    let penalised: Vec<f64> = expected(0.0625).chain(expected(0.003_906_25)).collect();
    assert_eq!(row, [zeros, penalised].concat());
    for parts in [
        json!([{"kind": "rope"}, {"kind": "nope"}]),
        json!([{"kind": "rope"}, {"kind": "rope", "base": 100.0}]),
        json!([{"kind": "nope"}, {"kind": "shaw", "max_distance": 4}]),
    ] {
        let encoding = of(parts);
        assert!(prepare(&encoding, &positions).fused_qk(0).is_none());
    }
}
