//! Encodings made of others: `stack` and `nope_layers`.

use super::{bias_block, device, prepare};
use crate::common::{
    Attention, SHAPE, all_configs, build, build_stirred, config, draw, host, largest_difference,
    logits, random,
};
use posenc::{Encoding, EncodingConfig, Init, PositionalEncoding, Positions, Prepared};
use serde_json::{Value, json};

/// All five hooks of an encoding on fixed inputs.
fn all_hooks(encoding: &Encoding, positions: &Positions, layer: usize) -> Vec<Vec<f64>> {
    let length = positions.queries().len();
    let attention = Attention::new(encoding, positions, layer, 0);
    let bias = attention
        .prepared
        .logits_bias(layer)
        .map(|bias| bias_block(&bias, 0..length, 0..length));
    let content = attention.content_bias(0..length, 0..length).map(host);
    let output = attention.output_bias(0..length, 0..length).map(host);
    let turned = [
        host(attention.turned.0.clone()),
        host(attention.turned.1.clone()),
    ];
    [bias, content, output]
        .map(Option::unwrap_or_default)
        .into_iter()
        .chain(turned)
        .collect()
}

#[test]
fn nope_is_the_unit_of_stack() {
    let positions = Positions::from_offset(5, 7);
    for (name, part) in all_configs() {
        let part_value = serde_json::to_value(&part).expect("plain data");
        let alone = all_hooks(&build(&part, &SHAPE), &positions, 0);
        let nope = json!({"kind": "nope"});
        for (parts, index) in [
            (vec![part_value.clone()], 0),
            (vec![nope.clone(), part_value.clone()], 1),
            (vec![part_value, nope], 0),
        ] {
            let stack = config(json!({"kind": "stack", "parts": parts}));
            // The same values whatever the path.
            let draw_part = |path: &str, shape: &[usize], distribution| {
                draw(
                    path.strip_prefix(&format!("parts.{index}."))
                        .expect("a part's path"),
                    shape,
                    distribution,
                )
            };
            let device = device();
            let stacked = stack
                .init(&SHAPE, &Init::new(&device, &draw_part))
                .expect("a resolved configuration");
            assert_eq!(all_hooks(&stacked, &positions, 0), alone, "{name}");
            let (facts, of_part) = (stack.facts(&SHAPE), part.facts(&SHAPE));
            assert_eq!(
                (facts.hooks, facts.relative, facts.by_distance),
                (of_part.hooks, of_part.relative, of_part.by_distance),
                "{name}"
            );
        }
    }
}

#[test]
fn hooks_of_a_stack_compose_in_order() {
    let parts = [
        json!({"kind": "sinusoidal"}),
        json!({"kind": "rope", "layout": "half"}),
        json!({"kind": "rope", "layout": "interleaved", "base": 50.0}),
        json!({"kind": "alibi"}),
        json!({"kind": "sinusoidal", "order": "half", "scale": 0.3}),
        json!({"kind": "alibi"}),
    ];
    let stack = build(&config(json!({"kind": "stack", "parts": parts})), &SHAPE);
    let parts: Vec<Encoding> = parts
        .into_iter()
        .map(|part| build(&config(part), &SHAPE))
        .collect();
    let positions = Positions::from_offset(3, 5);
    let whole = prepare(&stack, &positions);
    let prepared: Vec<Box<dyn Prepared + '_>> =
        parts.iter().map(|part| prepare(part, &positions)).collect();
    let (x, q, k) = (
        random(1, [2, 5, 32]),
        random(2, [2, 4, 5, 8]),
        random(3, [2, 4, 5, 8]),
    );

    let embedded = prepared[4].embed(prepared[0].embed(x.clone()));
    assert_eq!(host(whole.embed(x.clone())), host(embedded));
    let in_turn = |order: [usize; 2]| {
        let (q, k) = prepared[order[0]].transform_qk(0, q.clone(), k.clone(), &x);
        let (q, k) = prepared[order[1]].transform_qk(0, q, k, &x);
        (host(q), host(k))
    };
    let (turned_q, turned_k) = whole.transform_qk(0, q.clone(), k.clone(), &x);
    let turned = (host(turned_q), host(turned_k));
    assert_eq!(turned, in_turn([1, 2]), "first part first");
    assert!(
        largest_difference(&turned.0, &in_turn([2, 1]).0) > 1e-3,
        "these two do not commute, so the order shows"
    );
    let one = bias_block(&prepared[3].logits_bias(0).expect("ALiBi"), 1..5, 0..4);
    let both = bias_block(&whole.logits_bias(0).expect("ALiBi twice"), 1..5, 0..4);
    assert_eq!(
        both,
        one.iter().map(|bias| 2.0 * bias).collect::<Vec<f64>>()
    );
}

fn stack(parts: &[Value]) -> EncodingConfig {
    config(json!({"kind": "stack", "parts": parts}))
}

#[test]
fn a_bias_that_replaces_a_rotation_keeps_what_the_other_parts_did() {
    let rerope = json!({"kind": "rerope", "window": 3, "leak": 5.0});
    let log = json!({"kind": "log_scaling", "original_max_position_embeddings": 4});
    let EncodingConfig::LogScaling(scaling) = config(log.clone()) else {
        unreachable!()
    };
    let positions = Positions::from_offset(2, 12);
    let alone = logits(&config(rerope.clone()), &positions);
    let factors: Vec<f64> = positions
        .queries()
        .iter()
        .map(|p| scaling.factor(*p))
        .collect();
    assert!(factors[0] == 1.0 && factors[11] > 1.5);
    let expected: Vec<f64> = alone
        .iter()
        .enumerate()
        .map(|(at, logit)| logit * factors[at / 12 % 12])
        .collect();
    for parts in [[rerope.clone(), log.clone()], [log, rerope]] {
        let difference = largest_difference(&logits(&stack(&parts), &positions), &expected);
        assert!(
            difference < 1e-5,
            "{parts:?}: far logits differ by {difference}"
        );
    }
}

#[test]
fn what_turns_or_meets_queries_is_refused_beside_a_part_that_fits_nothing_else() {
    let pope = json!({"kind": "pope"});
    for kind in ["shaw", "transformer_xl", "deberta", "cope"] {
        let part = json!({"kind": kind});
        for parts in [
            vec![part.clone(), pope.clone()],
            vec![json!({"kind": "nope_layers", "part": pope}), part.clone()],
        ] {
            let error = stack(&parts).check(&SHAPE).expect_err("refused");
            assert_eq!(error.key, "parts", "{error}");
        }
        stack(&[json!({"kind": "rope"}), part])
            .check(&SHAPE)
            .expect("rotations leave the width alone");
    }
    for alone in [json!({"kind": "pope"}), json!({"kind": "xpos"})] {
        for other in [
            "pope",
            "xpos",
            "rope",
            "axial_rope",
            "rerope",
            "self_extend",
        ] {
            let error = stack(&[json!({"kind": other}), alone.clone()])
                .check(&SHAPE)
                .expect_err(other);
            assert_eq!(error.key, "parts", "{error}");
        }
        stack(&[alone, json!({"kind": "log_scaling"}), json!({"kind": "t5"})])
            .check(&SHAPE)
            .expect("a factor and a bias fit everything");
    }
    stack(&[
        pope.clone(),
        json!({"kind": "fox"}),
        json!({"kind": "alibi"}),
    ])
    .check(&SHAPE)
    .expect("these meet no query");
    // T5's factor is that of the model's heads, not of wider ones.
    let t5 = json!({"kind": "t5", "scaled": false});
    let positions = Positions::contiguous(5);
    let turned = |config: EncodingConfig| {
        host(
            Attention::new(&build(&config, &SHAPE), &positions, 0, 0)
                .turned
                .0,
        )
    };
    let expected: Vec<f64> = turned(config(pope.clone()))
        .iter()
        .map(|q| q * 8f64.sqrt())
        .collect();
    assert!(largest_difference(&turned(stack(&[pope, t5])), &expected) < 1e-6);
}

#[test]
fn a_rotation_makes_what_queries_meet_depend_on_more_than_distance() {
    // A turned query meets the vector of a distance differently at every position.
    for kind in ["shaw", "transformer_xl", "deberta", "cope"] {
        let part = json!({"kind": kind, "init_std": 0.5});
        let both = |rotation: Value| stack(&[part.clone(), rotation]).facts(&SHAPE).relative;
        assert!(!both(json!({"kind": "rope"})), "{kind}");
        assert!(both(json!({"kind": "alibi"})), "{kind}");
    }
    assert!(
        stack(&[json!({"kind": "rope"}), json!({"kind": "fox"})])
            .facts(&SHAPE)
            .relative
    );
    let twice = [
        json!({"kind": "rope", "layout": "half"}),
        json!({"kind": "rope", "layout": "interleaved"}),
    ];
    assert!(
        !stack(&twice).facts(&SHAPE).relative,
        "rotations of different pairs do not commute"
    );
}

#[test]
fn every_nth_layer_goes_without() {
    let shape = posenc::ModelShape {
        n_layers: 9,
        ..SHAPE
    };
    for part in [
        json!({"kind": "rope"}),
        json!({"kind": "alibi"}),
        json!({"kind": "shaw", "init_std": 0.5, "max_distance": 1}),
        json!({"kind": "pope"}),
    ] {
        for every in [2, 3, 4] {
            let layered = build_stirred(
                &config(json!({"kind": "nope_layers", "every": every, "part": part})),
                &shape,
            );
            let nope = build(&config(json!({"kind": "nope"})), &shape);
            let device = device();
            let draw_part = |path: &str, shape: &[usize], distribution| {
                crate::common::stirred(&format!("part.0.{path}"), shape, distribution)
            };
            let alone = config(part.clone())
                .init(&shape, &Init::new(&device, &draw_part))
                .expect("a resolved configuration");
            let positions = Positions::contiguous(6);
            for layer in 0..9 {
                let expected = if (layer + 1) % every == 0 {
                    &nope
                } else {
                    &alone
                };
                assert_eq!(
                    all_hooks(&layered, &positions, layer),
                    all_hooks(expected, &positions, layer),
                    "{part}: layer {layer}"
                );
            }
        }
    }
    let limited = build(
        &config(json!({"kind": "nope_layers", "part": {"kind": "learned", "max_position": 9}})),
        &SHAPE,
    );
    assert_eq!(limited.max_position(), Some(9));
}
