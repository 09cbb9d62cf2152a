//! Rotary encodings of one coordinate, and what replaces their distances.

use super::{input, prepare, rope, turn};
use crate::common::{
    Attention, SHAPE, all_configs, build, build_recorded, build_stirred, config, dot, gradients,
    host, largest_difference, logits, noise, random,
};
use burn::nn::RotaryEncodingConfig;
use burn::tensor::{Device, Tensor, TensorData};
use posenc::rotary::RotaryLayout;
use posenc::spec::EncodingSpec;
use posenc::{Encoding, EncodingConfig, Init, ModelShape, Positions};
use proptest::prelude::*;
use serde_json::{Value, json};

pub fn heads_of(dim: usize) -> ModelShape {
    ModelShape {
        d_model: dim,
        n_layers: 1,
        n_heads: 1,
        head_dim: dim,
    }
}

/// Turns pair i of the first `2 theta.len()` dimensions by `position theta[i]`, in f64.
pub fn rotated(x: &[f64], position: f64, theta: &[f64], layout: RotaryLayout) -> Vec<f64> {
    let (mut turned, pairs) = (x.to_vec(), theta.len());
    for (i, theta) in theta.iter().enumerate() {
        let (a, b) = match layout {
            RotaryLayout::Interleaved => (2 * i, 2 * i + 1),
            RotaryLayout::Half => (i, i + pairs),
        };
        let (sin, cos) = (position * theta).sin_cos();
        (turned[a], turned[b]) = (x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin);
    }
    turned
}

/// The logits of layer 0 for all pairs, `[H, Q, K]`, where a pair's logit is `score(q, k, m, n)` of
/// its vectors and positions.
pub fn pairwise(
    attention: &Attention<'_>,
    positions: &Positions,
    score: impl Fn(usize, &[f64], &[f64], f64, f64) -> f64,
) -> Vec<f64> {
    let (q, k) = (host(attention.raw.0.clone()), host(attention.raw.1.clone()));
    let (rows, columns, width) = (attention.q_len(), attention.k_len(), SHAPE.head_dim);
    let mut logits = Vec::new();
    for head in 0..SHAPE.n_heads {
        for (i, m) in positions.queries().iter().enumerate() {
            for (j, n) in positions.keys().iter().enumerate() {
                let (q, k) = (
                    &q[(head * rows + i) * width..][..width],
                    &k[(head * columns + j) * width..][..width],
                );
                logits.push(score(head, q, k, *m, *n) * attention.scale);
            }
        }
    }
    logits
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rotations_keep_the_norm_and_add_up(
        m in 0u32..100_000, n in 0u32..100_000, seed: u64, half: bool, pairs in 1usize..9, base in 2.0f64..1e6,
    ) {
        let dim = 2 * pairs;
        let layout = if half { "half" } else { "interleaved" };
        let rope = build(&config(json!({"kind": "rope", "layout": layout, "base": base})), &heads_of(dim));
        let x = noise(seed, dim);
        let (m, n) = (f64::from(m), f64::from(n));
        let once = turn(&rope, &x, m);
        prop_assert!((dot(&once, &once).sqrt() - dot(&x, &x).sqrt()).abs() < 1e-5);
        let twice = turn(&rope, &once, n);
        prop_assert!(largest_difference(&twice, &turn(&rope, &x, m + n)) < 1e-5);
    }

    #[test]
    fn scores_of_rotations_see_the_difference_alone(near in 0u32..2000, seed: u64, index in 0usize..1000) {
        // Every rotary encoding of the list that has no bias and reads no length, in heads of 8.
        let rotary: Vec<(String, EncodingConfig)> = all_configs().into_iter().filter(|(_, config)| {
            let facts = config.facts(&SHAPE);
            let only = posenc::Hooks::TRANSFORM_QK;
            facts.hooks == only && facts.relative && !facts.reads_length && facts.max_position.is_none()
        }).collect();
        let (name, config) = &rotary[index % rotary.len()];
        let encoding = build_stirred(config, &SHAPE);
        let one = |seed: u64| random(seed, [1, SHAPE.n_heads, 1, SHAPE.head_dim]);
        let score = |m: f64, n: f64| {
            let (q, k) = prepare(&encoding, &Positions::new(vec![m], vec![n])).transform_qk(0, one(seed), one(!seed), &input(1));
            let width = q.dims()[3];
            let (q, k) = (host(q), host(k));
            q.chunks(width).zip(k.chunks(width)).map(|(q, k)| dot(q, k)).collect::<Vec<f64>>()
        };
        let (far, near) = (65_536.0, f64::from(near));
        for (there, here) in [(score(far + near, far), score(near, 0.0)), (score(far, far + near), score(0.0, near))] {
            let difference = largest_difference(&there, &here);
            prop_assert!(difference < 2e-5, "{name}: {difference}");
        }
    }

    #[test]
    fn dimensions_past_the_rotated_ones_pass_through_bit_for_bit(p in 0u32..1_000_000, seed: u64, half: bool, rotary in 1usize..8) {
        let (rotary, position) = (2 * rotary, f64::from(p));
        let layout = if half { "half" } else { "interleaved" };
        let of = |dim: usize, rotary: Value| {
            build(&config(json!({"kind": "rope", "layout": layout, "rotary_dim": rotary})), &heads_of(dim))
        };
        let x = host(random(seed, [16]));
        let partly = turn(&of(16, json!(rotary)), &x, position);
        prop_assert_eq!(&partly[rotary..], &x[rotary..]);
        prop_assert_eq!(&partly[..rotary], &turn(&of(rotary, Value::Null), &x[..rotary], position)[..], "frequencies use rotary_dim");
    }
}

#[test]
fn position_0_does_not_turn() {
    for (name, config) in all_configs() {
        let EncodingConfig::Rope(rope) = &config else {
            continue;
        };
        let factor = rope
            .frequencies(SHAPE.head_dim, 1.0)
            .expect("a resolved scaling")
            .attention_factor;
        // A factor on the logits is one on queries at every position.
        if rope
            .scaling
            .iter()
            .any(|scaling| scaling.logits_factor() != 1.0)
        {
            continue;
        }
        let x = host(random(9, [SHAPE.head_dim]));
        let rounded = f64::from(factor as f32);
        let rotary = rope.rotary_dim.unwrap_or(SHAPE.head_dim);
        let scaled = |(i, v): (usize, &f64)| {
            if i < rotary {
                f64::from((v * rounded) as f32)
            } else {
                *v
            }
        };
        let expected: Vec<f64> = x.iter().enumerate().map(scaled).collect();
        assert_eq!(
            turn(&build_stirred(&config, &SHAPE), &x, 0.0),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_rotation_turns_counterclockwise() {
    for layout in ["half", "interleaved"] {
        let rope = build(
            &config(json!({"kind": "rope", "layout": layout})),
            &heads_of(2),
        );
        let turned = turn(&rope, &[1.0, 0.0], 1.0);
        assert!(
            largest_difference(&turned, &[1f64.cos(), 1f64.sin()]) < 1e-7,
            "{turned:?}"
        );
        let fractional = turn(&rope, &[1.0, 0.0], 0.5);
        assert!(
            largest_difference(&fractional, &[0.5f64.cos(), 0.5f64.sin()]) < 1e-7,
            "positions need not be whole"
        );
    }
}

#[test]
fn the_layouts_are_one_rotation_of_permuted_dimensions() {
    let (x, position) = (noise(5, 8), 12_345.0);
    let of = |layout: &str| {
        build(
            &config(json!({"kind": "rope", "layout": layout})),
            &heads_of(8),
        )
    };
    // Dimension i of the half layout is this one of the interleaved.
    let from = |i: usize| if i < 4 { 2 * i } else { 2 * (i - 4) + 1 };
    let permuted = |x: &[f64]| (0..8).map(|i| x[from(i)]).collect::<Vec<f64>>();
    assert_eq!(
        turn(&of("half"), &permuted(&x), position),
        permuted(&turn(&of("interleaved"), &x, position))
    );
}

#[test]
fn yarn_and_longrope_multiply_the_logits_by_the_square_of_their_factor() {
    let ones = vec![1.0; 4];
    let longrope = json!({"kind": "longrope", "short_factor": ones, "long_factor": ones});
    let yarn_factor = 0.1 * 4f64.ln() + 1.0;
    for (mut scaling, factor) in [
        (json!({"kind": "yarn"}), yarn_factor),
        (longrope, (1.0 + 4f64.ln() / 64f64.ln()).sqrt()),
    ] {
        let logits = |scaling: &Value| {
            logits(
                &config(json!({"kind": "rope", "scaling": scaling})),
                &Positions::from_offset(70, 6),
            )
        };
        scaling["factor"] = json!(4.0);
        scaling["original_max_position_embeddings"] = json!(64);
        let with = logits(&scaling);
        scaling["attention_factor"] = json!(1.0);
        let expected: Vec<f64> = logits(&scaling)
            .iter()
            .map(|logit| logit * factor * factor)
            .collect();
        assert!(largest_difference(&with, &expected) < 1e-5, "{scaling}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table and the passes over it")]
fn scalings_that_read_the_length_keep_nothing_between_passes() {
    let long = json!([1.0, 2.0, 3.0, 4.0]);
    for scaling in [
        json!({"kind": "dynamic_ntk", "factor": 2.0}),
        json!({"kind": "dynamic_yarn"}),
        json!({"kind": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": long, "attention_factor": 1.0}),
    ] {
        let mut scaling = scaling;
        scaling["original_max_position_embeddings"] = json!(512);
        let dynamic = config(json!({"kind": "rope", "scaling": scaling}));
        let [fresh, used] = [build(&dynamic, &SHAPE), build(&dynamic, &SHAPE)];
        let x = || random(1, [1, 1, 1024, SHAPE.head_dim]);
        let run = |encoding: &Encoding, length: usize| {
            let prepared = prepare(encoding, &Positions::contiguous(length));
            let cut = || {
                if length < 1024 {
                    x().slice_dim(2, 0..length)
                } else {
                    x().repeat_dim(2, length / 1024)
                }
            };
            host(prepared.transform_qk(0, cut(), cut(), &input(1)).0)
        };
        let first = run(&fresh, 1024);
        run(&used, 4096);
        assert_eq!(
            first,
            run(&used, 1024),
            "{scaling}: 1024 after 4096 is 1024"
        );
        let plain = build(&config(json!({"kind": "rope"})), &SHAPE);
        assert_eq!(
            run(&used, 512),
            run(&plain, 512),
            "{scaling}: plain up to the training length"
        );
        assert_ne!(first, run(&plain, 1024), "{scaling}: scaled past it");
        let EncodingConfig::Rope(dynamic) = &dynamic else {
            unreachable!()
        };
        let plain = rope(json!({"kind": "rope"}))
            .frequencies(8, 1.0)
            .expect("a resolved scaling");
        for length in [1.0, 2.0, 511.0, 512.0] {
            assert_eq!(
                dynamic.frequencies(8, length).expect("a resolved scaling"),
                plain
            );
        }
        let slowest: Vec<f64> = [512.0, 513.0, 1024.0, 4096.0, 65_536.0]
            .map(|length| {
                dynamic
                    .frequencies(8, length)
                    .expect("a resolved scaling")
                    .inv_freq[3]
            })
            .to_vec();
        assert!(
            slowest.windows(2).all(|pair| pair[0] >= pair[1]) && slowest[0] > slowest[4],
            "longer is slower: {slowest:?}"
        );
    }
}

#[test]
fn proportional_rotation_of_nothing_is_no_encoding() {
    let nothing = build(
        &config(json!({"kind": "rope", "scaling": {"kind": "proportional", "fraction": 0.0}})),
        &SHAPE,
    );
    let x = host(random(1, [8]));
    assert_eq!(turn(&nothing, &x, 4711.0), x);
    // Half of the pairs, in the pairing of the whole head: 0 with 4 and 1 with 5.
    let half = build(
        &config(json!({"kind": "rope", "scaling": {"kind": "proportional", "fraction": 0.5}})),
        &SHAPE,
    );
    let whole = build(&config(json!({"kind": "rope"})), &SHAPE);
    let (turned, turned_whole) = (turn(&half, &x, 4711.0), turn(&whole, &x, 4711.0));
    for i in 0..8 {
        assert_eq!(
            turned[i],
            if i % 4 < 2 { turned_whole[i] } else { x[i] },
            "dimension {i}"
        );
    }
}

#[test]
fn a_resonant_pair_repeats_after_its_wavelength() {
    let resonant = config(json!({"kind": "rope", "scaling": {"kind": "resonance"}}));
    let EncodingConfig::Rope(frequencies) = &resonant else {
        unreachable!()
    };
    let encoding = build(&resonant, &heads_of(8));
    for (pair, wavelength) in frequencies
        .frequencies(8, 1.0)
        .expect("a resolved scaling")
        .wavelengths()
        .into_iter()
        .enumerate()
    {
        let unit: Vec<f64> = (0..8).map(|i| f64::from(u8::from(i == pair))).collect();
        let difference = largest_difference(
            &turn(&encoding, &unit, 3.0),
            &turn(&encoding, &unit, 3.0 + 50.0 * wavelength.round()),
        );
        assert!(difference < 1e-6, "pair {pair}: {difference}");
    }
}

#[test]
fn given_periods_are_those_of_the_logits() {
    let repeats = |periods: Value, step: f64| {
        let scaling = json!({"kind": "resonance", "periods": periods});
        let encoding = build(
            &config(json!({"kind": "rope", "scaling": scaling})),
            &heads_of(8),
        );
        let x = host(random(5, [8]));
        let at = |position: f64| turn(&encoding, &x, position);
        let far = (0..50).map(|i| largest_difference(&at(3.0), &at(3.0 + step * f64::from(i))));
        far.fold(0.0, f64::max)
    };
    // The least common multiple of all, and of no fewer.
    assert!(repeats(json!([2, 3, 5, 1]), 30.0) < 1e-6);
    assert!(repeats(json!([2, 3, 5, 1]), 1e5 * 30.0) < 1e-6);
    assert!(repeats(json!([2, 3, 5, 1]), 15.0) > 0.1);
    // A shorter list is repeated.
    assert!(repeats(json!([2]), 2.0) < 1e-6 && repeats(json!([2]), 1.0) > 0.1);
    assert!(
        repeats(json!([1]), 1.0) == 0.0,
        "a turn for every token is not a rotation"
    );
}

#[test]
fn hd_rope_is_rope_in_another_basis() {
    // Blocks of four dimensions turn by cos(a) I + sin(a) G, where the generator G is the skew
    // Paley matrix over the root of 3 (arXiv 2608.29715, algorithm 2).
    const PALEY: [[f64; 4]; 4] = [
        [0.0, 1.0, 1.0, 1.0],
        [-1.0, 0.0, 1.0, -1.0],
        [-1.0, -1.0, 0.0, 1.0],
        [-1.0, 1.0, -1.0, 0.0],
    ];
    let generated = |x: &[f64]| PALEY.map(|row| dot(&row, x) / 3f64.sqrt());
    let turned = |x: &[f64], position: f64| -> Vec<f64> {
        let blocks = x.chunks(4).zip([1.0, 0.01]);
        let turn = |(block, theta): (&[f64], f64)| {
            let (sin, cos) = (position * theta).sin_cos();
            let of = block.iter().zip(generated(block));
            of.map(|(x, g)| cos * x + sin * g).collect::<Vec<f64>>()
        };
        blocks.flat_map(turn).collect()
    };
    // G squared is -I, so that each of two planes, a vector and what G makes of it, turns alone.
    let first = [1.0, 0.0, 0.0, 0.0];
    let second = [0.0, 1.0, -1.0, 0.0].map(|x| x / 2f64.sqrt());
    let planes = [first, generated(&first), second, generated(&second)];
    for (i, a) in planes.iter().enumerate() {
        let back = generated(&generated(a));
        assert!(largest_difference(&back, &a.map(|x| -x)) < 1e-15);
        for (j, b) in planes.iter().enumerate() {
            let expected = f64::from(u8::from(i == j));
            assert!((dot(a, b) - expected).abs() < 1e-15, "{i} and {j}");
        }
    }
    // RoPE of frequencies 1, 1, 1/100, 1/100: pair i is dimensions i and i + 4.
    let log_frequency = [0.0, 10f64.ln(), 0.0, 10f64.ln()];
    let rope = config(json!({"kind": "rope", "learnable": true}))
        .init(
            &heads_of(8),
            &Init::new(&Device::flex(), &|_, _, _| log_frequency.to_vec()),
        )
        .expect("a resolved configuration");
    let in_basis = |x: &[f64]| -> Vec<f64> {
        let of = |block: &[f64], from: usize| [0, 2].map(|i| dot(&planes[from + i], block));
        let (a, b) = x.split_at(4);
        [of(a, 0), of(b, 0), of(a, 1), of(b, 1)].concat()
    };
    let (q, k) = (noise(11, 8), noise(12, 8));
    for (m, n) in [(0.0, 0.0), (5.0, 2.0), (40.0, 7.0), (90.0, 0.0)] {
        let theirs = dot(&turned(&q, m), &turned(&k, n));
        let ours = dot(
            &turn(&rope, &in_basis(&q), m),
            &turn(&rope, &in_basis(&k), n),
        );
        assert!(
            (ours - theirs).abs() < 1e-4,
            "{m} and {n}: {ours}, {theirs}"
        );
    }
}

#[test]
fn rope_plus_plus_is_rope_where_heads_share_nothing() {
    // An imaginary head has queries `q sin - rotate_half(q) cos` and keys of RoPE, as the authors'
    // code (arXiv 2512.07525): those of RoPE after a quarter turn back in every pair. A head with
    // its own query projection can learn that turn.
    let rope = build(
        &config(json!({"kind": "rope", "base": 100.0})),
        &heads_of(8),
    );
    let (q, k) = (noise(13, 8), noise(14, 8));
    let half: Vec<f64> = q[4..].iter().map(|x| -x).chain(q[..4].to_vec()).collect();
    let back: Vec<f64> = half.iter().map(|x| -x).collect();
    for (m, n) in [(0.0, 0.0), (5.0, 2.0), (40.0, 7.0), (90.0, 0.0)] {
        let imaginary = |i: usize| {
            let (sin, cos) = (m * 100f64.powf(-((i % 4) as f64) / 4.0)).sin_cos();
            q[i] * sin - half[i] * cos
        };
        let imaginary: Vec<f64> = (0..8).map(imaginary).collect();
        let keys = turn(&rope, &k, n);
        let (theirs, ours) = (dot(&imaginary, &keys), dot(&turn(&rope, &back, m), &keys));
        assert!((ours - theirs).abs() < 1e-5, "{m}, {n}: {ours}, {theirs}");
    }
}

#[test]
fn learnable_frequencies_start_as_the_fixed_ones_bit_for_bit() {
    for (name, learnable) in all_configs() {
        let EncodingConfig::Rope(rope) = &learnable else {
            continue;
        };
        if !rope.learnable {
            continue;
        }
        let fixed = EncodingConfig::Rope(rope.clone().with(|config| config.learnable = false));
        for position in [0.0, 1.0, 77.0, 65_537.0] {
            let x = host(random(1, [8]));
            assert_eq!(
                turn(&build(&learnable, &SHAPE), &x, position),
                turn(&build(&fixed, &SHAPE), &x, position),
                "{name}"
            );
        }
        // Trained, they are the frequencies times e^alpha.
        let (trained, values) = build_recorded(&learnable, &SHAPE);
        let alpha = &values["log_frequency"];
        let theta = rope
            .frequencies(SHAPE.head_dim, 1.0)
            .expect("a resolved scaling")
            .inv_freq;
        let theta: Vec<f64> = theta
            .iter()
            .zip(alpha)
            .map(|(theta, alpha)| theta * alpha.exp())
            .collect();
        let x = host(random(1, [8]));
        let difference = largest_difference(
            &turn(&trained, &x, 40_000.0),
            &rotated(&x, 40_000.0, &theta, rope.layout),
        );
        assert!(difference < 1e-6, "{name}: {difference}");
    }
}

#[test]
fn the_gradient_of_a_frequency_is_that_of_its_angle() {
    let learnable = config(json!({"kind": "rope", "learnable": true}));
    let device = Device::flex().autodiff();
    let alpha = [0.2, -0.1, 0.05, 0.3];
    let source = |_: &str, _: &[usize], _: posenc::Distribution| alpha.to_vec();
    let encoding = learnable
        .init(&SHAPE, &Init::new(&device, &source))
        .expect("a resolved configuration");
    let (x, weight, position) = (noise(1, 8), noise(2, 8), 9.0);
    let tracked = |values: &[f64]| {
        Tensor::<4>::from_data(TensorData::new(values.to_vec(), [1, 1, 1, 8]), &device)
    };
    let prepared = posenc::PositionalEncoding::prepare(
        &encoding,
        &Positions::new(vec![position], vec![position]),
        &posenc::Context::new(&device),
    )
    .expect("positions in range");
    let (q, _) = prepared.transform_qk(0, tracked(&x), tracked(&x), &input(1));
    let found = gradients(&encoding, &(q * tracked(&weight)).sum())
        .remove("log_frequency")
        .expect("the one parameter");
    let theta = super::rope(json!({"kind": "rope"}))
        .frequencies(8, 1.0)
        .expect("a resolved scaling")
        .inv_freq;
    for i in 0..4 {
        let angle = position * theta[i] * alpha[i].exp();
        let (sin, cos) = angle.sin_cos();
        // d/d alpha of what the pair contributes; the angle's own derivative by alpha is the angle.
        let (a, b) = (x[i], x[i + 4]);
        let expected =
            angle * (weight[i] * (-a * sin - b * cos) + weight[i + 4] * (a * cos - b * sin));
        assert!(
            (found[i] - expected).abs() < 1e-4,
            "pair {i}: {} is not {expected}",
            found[i]
        );
    }
}

// Burn's own module, where its f32 angles are still good

#[test]
fn interleaved_rope_agrees_with_burn_at_small_positions() {
    let device = Device::flex();
    let theirs = RotaryEncodingConfig::new(64, 16).init(&device);
    let x = random(1, [1, 2, 64, 16]);
    let shape = ModelShape {
        d_model: 32,
        n_layers: 1,
        n_heads: 2,
        head_dim: 16,
    };
    let ours = build(
        &config(json!({"kind": "rope", "layout": "interleaved"})),
        &shape,
    );
    let (turned, _) = prepare(&ours, &Positions::contiguous(64)).transform_qk(
        0,
        x.clone(),
        x.clone(),
        &input(64),
    );
    assert!(largest_difference(&host(turned), &host(theirs.forward(x))) < 2e-5);
}

#[test]
fn angles_formed_in_f32_would_be_caught() {
    let ours = build(&config(json!({"kind": "rope"})), &heads_of(64));
    let unit: Vec<f64> = (0..64).map(|i| f64::from(i < 32)).collect();
    let position = 131_071.0;
    let cos = &turn(&ours, &unit, position)[..32];
    let single = |i: usize| f64::from((position as f32 * 10_000f32.powf(-(i as f32) / 32.0)).cos());
    let double = |i: usize| (position * 10_000f64.powf(-(i as f64) / 32.0)).cos();
    assert!(largest_difference(cos, &(0..32).map(double).collect::<Vec<_>>()) < 1e-7);
    assert!(largest_difference(cos, &(0..32).map(single).collect::<Vec<_>>()) > 1e-3);
}
