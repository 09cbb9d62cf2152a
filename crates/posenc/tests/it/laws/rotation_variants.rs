//! xPos, ReRoPE, Self-Extend, log scaling, WavePrune, DaRoPE and PoPE against their formulas.

use super::rotations::{pairwise, rotated};
use super::{bias_of, device};
use crate::common::{
    Attention, LENGTHS, SHAPE, all_configs, build, build_recorded, config, dot, largest_difference,
    logits,
};
use posenc::rotary::RotaryLayout;
use posenc::spec::EncodingSpec;
use posenc::{Encoding, EncodingConfig, Init, Positions};
use serde_json::{Value, json};
use std::f64::consts::TAU;

// xPos

#[test]
fn xpos_is_rope_times_a_power_of_zeta() {
    for (name, config) in all_configs() {
        let EncodingConfig::Xpos(xpos) = &config else {
            continue;
        };
        let encoding = build(
            &EncodingConfig::Xpos(xpos.clone().with(|config| config.block_size = None)),
            &SHAPE,
        );
        let dim = xpos.rotary_dim.unwrap_or(SHAPE.head_dim);
        let theta = posenc::rotary::inv_freq(dim, xpos.base);
        let gamma = xpos.gamma;
        let zeta: Vec<f64> = (0..dim / 2)
            .map(|i| (2.0 * i as f64 / dim as f64 + gamma) / (1.0 + gamma))
            .collect();
        for offset in [0, 1000, 9000] {
            let positions = Positions::from_offset(offset, 9);
            let attention = Attention::new(&encoding, &positions, 0, 0);
            let expected = pairwise(&attention, &positions, |_, q, k, m, n| {
                let turned = rotated(q, m - n, &theta, xpos.layout);
                let power = |i: usize| match xpos.layout {
                    _ if i >= dim => 1.0,
                    RotaryLayout::Half => zeta[i % (dim / 2)].powf((m - n) / xpos.scale_base),
                    RotaryLayout::Interleaved => zeta[i / 2].powf((m - n) / xpos.scale_base),
                };
                turned
                    .iter()
                    .zip(k)
                    .enumerate()
                    .map(|(i, (q, k))| q * k * power(i))
                    .sum()
            });
            let difference = largest_difference(&attention.logits(), &expected);
            assert!(difference < 1e-5, "{name}: {difference}");
        }
    }
}

#[test]
fn blocks_of_xpos_hide_all_but_their_own_and_the_one_before() {
    let encoding = build(&config(json!({"kind": "xpos", "block_size": 4})), &SHAPE);
    let bias = bias_of(&encoding, &Positions::contiguous(20));
    for m in 0..20 {
        for n in 0..=m {
            let seen = m / 4 == n / 4 || m / 4 == n / 4 + 1;
            assert_eq!(
                bias[m * 20 + n],
                if seen { 0.0 } else { f64::NEG_INFINITY },
                "{m} and {n}"
            );
        }
    }
}

// Rotations whose distances are replaced

#[test]
fn rerope_and_self_extend_turn_every_pair_by_the_distance_they_name() {
    for (name, config) in all_configs() {
        let (base, layout, rotary_dim) = match &config {
            EncodingConfig::Rerope(c) => (c.base, c.layout, c.rotary_dim),
            EncodingConfig::SelfExtend(c) => (c.base, c.layout, c.rotary_dim),
            _ => continue,
        };
        let theta = posenc::rotary::inv_freq(rotary_dim.unwrap_or(SHAPE.head_dim), base);
        let encoding = build(&config, &SHAPE);
        for positions in [
            Positions::contiguous(90),
            Positions::from_offset(1003, 20),
            Positions::same(vec![0.0, 2.0, 3.0, 40.0, 900.0]),
        ] {
            let attention = Attention::new(&encoding, &positions, 0, 0);
            let expected = pairwise(&attention, &positions, |_, q, k, m, n| {
                let distance = match &config {
                    EncodingConfig::Rerope(c) if m >= n => c.distance(m - n),
                    EncodingConfig::SelfExtend(c) if m >= n => c.distance(m, n),
                    _ => m - n,
                };
                dot(&rotated(q, distance, &theta, layout), k)
            });
            let difference = largest_difference(&attention.logits(), &expected);
            assert!(difference < 1e-5, "{name}: {difference}");
        }
    }
}

#[test]
fn distances_are_those_of_the_papers() {
    let rerope = |value: Value| match config(value) {
        EncodingConfig::Rerope(rerope) => rerope,
        other => panic!("{other:?}"),
    };
    let (hard, leaky) = (
        rerope(json!({"kind": "rerope", "window": 8})),
        rerope(json!({"kind": "rerope", "window": 8, "leak": 4.0})),
    );
    let at = [0.0, 7.0, 8.0, 9.0, 16.0, 1000.0];
    assert_eq!(at.map(|d| hard.distance(d)), [0.0, 7.0, 8.0, 8.0, 8.0, 8.0]);
    assert_eq!(
        at.map(|d| leaky.distance(d)),
        [0.0, 7.0, 8.0, 8.25, 10.0, 256.0]
    );
    let EncodingConfig::SelfExtend(extend) =
        config(json!({"kind": "self_extend", "window": 5, "group": 3}))
    else {
        unreachable!()
    };
    for m in 0u32..40 {
        for n in 0..=m {
            let expected = if m - n < 5 {
                m - n
            } else {
                m / 3 - n / 3 + 5 - 5 / 3
            };
            assert_eq!(
                extend.distance(f64::from(m), f64::from(n)),
                f64::from(expected),
                "{m} and {n}"
            );
        }
    }
}

#[test]
fn replaced_distances_that_replace_nothing_are_rope() {
    let positions = Positions::contiguous(24);
    for options in [
        json!({}),
        json!({"layout": "interleaved", "rotary_dim": 4, "base": 50.0}),
    ] {
        let of = |mut value: Value| {
            value
                .as_object_mut()
                .expect("a table")
                .extend(options.as_object().expect("a table").clone());
            logits(&config(value), &positions)
        };
        let rope = of(json!({"kind": "rope"}));
        for same in [
            json!({"kind": "rerope", "window": 24}),
            json!({"kind": "rerope", "window": 5, "leak": 1.0}),
            json!({"kind": "self_extend", "window": 24, "group": 4}),
            json!({"kind": "self_extend", "window": 5, "group": 1}),
        ] {
            let difference = largest_difference(&of(same.clone()), &rope);
            assert!(difference < 2e-6, "{same}: {difference}");
        }
        for other in [
            json!({"kind": "rerope", "window": 5}),
            json!({"kind": "self_extend", "window": 5, "group": 4}),
        ] {
            assert!(
                largest_difference(&of(other.clone()), &rope) > 1e-2,
                "{other}"
            );
        }
    }
}

#[test]
fn the_default_group_is_the_smallest_whose_distances_training_saw() {
    for (train_len, test_len) in [
        (64, 64),
        (64, 65),
        (64, 96),
        (64, 256),
        (64, 1000),
        (128, 4096),
        (2, 100),
    ] {
        let mut config = config(json!({"kind": "self_extend"}));
        config.resolve(&posenc::Lengths {
            train_len,
            trained_len: train_len,
            test_len,
        });
        let EncodingConfig::SelfExtend(resolved) = config else {
            unreachable!()
        };
        let (window, group) = (
            resolved.window.expect("resolved"),
            resolved.group.expect("resolved"),
        );
        assert_eq!(window, (train_len / 2).max(1));
        let largest = |group: usize| {
            let config = resolved.clone().with(|config| config.group = Some(group));
            (0..test_len)
                .map(|n| config.distance(test_len as f64 - 1.0, n as f64))
                .fold(0.0, f64::max)
        };
        let seen = train_len as f64 - 1.0;
        assert!(largest(group) <= seen, "{train_len} to {test_len}: {group}");
        assert!(
            group == 1 || largest(group - 1) > seen,
            "{train_len} to {test_len}: {group}"
        );
    }
}

// What grows logits

#[test]
fn log_scaling_starts_where_training_ended_and_grows() {
    for form in ["log_n", "llama4"] {
        let value = json!({"kind": "log_scaling", "form": form, "original_max_position_embeddings": 32, "strength": 0.3});
        let EncodingConfig::LogScaling(scaling) = config(value) else {
            unreachable!()
        };
        let factors: Vec<f64> = (0..2000).map(|p| scaling.factor(f64::from(p))).collect();
        assert!(
            factors[..31].iter().all(|factor| *factor == 1.0),
            "{form}: position 30 is the 31st"
        );
        assert!(factors[32..].iter().all(|factor| *factor > 1.0), "{form}");
        assert!(factors.windows(2).all(|pair| pair[1] >= pair[0]), "{form}");
        let expected = if form == "log_n" {
            1024f64.ln() / 32f64.ln()
        } else {
            1.0 + 0.3 * 33f64.ln()
        };
        assert!((factors[1023] - expected).abs() < 1e-15, "{form}");
    }
}

// WavePrune

#[test]
fn pairs_of_waveprune_end_with_their_first_turn() {
    let mut found = 0;
    for (name, config) in all_configs() {
        let EncodingConfig::WavePrune(c) = &config else {
            continue;
        };
        found += 1;
        let dim = c.rotary_dim.unwrap_or(SHAPE.head_dim);
        let theta = posenc::rotary::inv_freq(dim, c.base);
        let encoding = build(&config, &SHAPE);
        for positions in [
            Positions::contiguous(90),
            Positions::from_offset(1003, 20),
            Positions::same(vec![0.0, 2.0, 3.5, 40.0, 900.0, 7000.0]),
        ] {
            let attention = Attention::new(&encoding, &positions, 0, 0);
            let expected = pairwise(&attention, &positions, |_, q, k, m, n| {
                let turned = rotated(q, m - n, &theta, c.layout);
                let pair = |i: usize| match c.layout {
                    RotaryLayout::Half => [i, i + dim / 2],
                    RotaryLayout::Interleaved => [2 * i, 2 * i + 1],
                };
                let counted = (0..dim / 2).filter(|i| theta[*i] * (m - n).abs() < TAU);
                let counted = counted.flat_map(pair).chain(dim..SHAPE.head_dim);
                counted.map(|at| turned[at] * k[at]).sum()
            });
            let difference = largest_difference(&attention.logits(), &expected);
            assert!(difference < 1e-5, "{name}: {difference}");
        }
        // Within 2 pi tokens nothing has turned once.
        let rope = json!({"kind": "rope", "base": c.base, "layout": c.layout, "rotary_dim": dim});
        let rope = crate::common::config(rope);
        let short = Positions::from_offset(50, 7);
        assert_eq!(logits(&config, &short), logits(&rope, &short), "{name}");
    }
    assert_eq!(found, 2);
}

// DaRoPE

/// DaRoPE of one layer and head whose content says nothing and whose prior counts `alpha` times.
fn without_content(alpha: f64) -> Encoding {
    let constants = |path: &str, shape: &[usize], _| {
        let value = if path.ends_with("alpha") { alpha } else { 0.0 };
        vec![value; shape.iter().product()]
    };
    let device = device();
    let mut darope = config(json!({"kind": "darope"}));
    darope.resolve(&LENGTHS);
    darope
        .init(&SHAPE, &Init::new(&device, &constants))
        .expect("a resolved configuration")
}

#[test]
fn without_content_darope_is_rope_in_training_and_without_its_prior_hope() {
    let apart = |encoding: &Encoding, other: Value, positions: &Positions| {
        let mut other = config(other);
        other.resolve(&LENGTHS);
        let logits = |encoding: &Encoding| Attention::new(encoding, positions, 0, 0).logits();
        largest_difference(&logits(encoding), &logits(&build(&other, &SHAPE)))
    };
    let hope = json!({"kind": "rope", "scaling": {"kind": "hope"}});
    let (inside, beyond) = (Positions::contiguous(64), Positions::from_offset(1000, 64));
    for positions in [&inside, &beyond] {
        assert!(apart(&without_content(0.0), hope.clone(), positions) < 1e-5);
    }
    let rope = json!({"kind": "rope"});
    assert!(apart(&without_content(1.0), rope.clone(), &inside) < 1e-5);
    // Beyond the training length the prior has no more room: slow pairs stand still.
    assert!(apart(&without_content(1.0), hope, &beyond) < 1e-5);
    assert!(apart(&without_content(1.0), rope, &beyond) > 1e-3);
}

#[test]
fn darope_that_turns_every_pair_by_position_has_no_parameters() {
    let of = |length: usize| {
        config(json!({"kind": "darope", "base": 100.0, "original_max_position_embeddings": length}))
    };
    // Wavelengths are 2 pi times 1 to 100 to the power of 3/4: 199 tokens.
    let (some, none) = (of(198), of(199));
    assert_eq!(some.parameters(&SHAPE).len(), 4);
    assert!(none.parameters(&SHAPE).is_empty());
    let rope = config(json!({"kind": "rope", "base": 100.0}));
    let positions = Positions::contiguous(300);
    let difference = largest_difference(&logits(&none, &positions), &logits(&rope, &positions));
    assert!(difference < 1e-6, "{difference}");
}

// RePo

#[test]
fn repo_turns_by_no_position_and_without_weights_by_nothing() {
    let of = |value: f64| {
        let constants = |_: &str, shape: &[usize], _| vec![value; shape.iter().product()];
        let (device, repo) = (device(), config(json!({"kind": "repo"})));
        repo.init(&SHAPE, &Init::new(&device, &constants))
            .expect("a configuration")
    };
    let nope = build(&config(json!({"kind": "nope"})), &SHAPE);
    let positions = Positions::from_offset(1000, 24);
    let logits = |encoding: &Encoding| Attention::new(encoding, &positions, 0, 0).logits();
    let apart = |value: f64| largest_difference(&logits(&of(value)), &logits(&nope));
    assert_eq!(apart(0.0), 0.0);
    assert!(apart(0.3) > 1e-3);
}

// PoPE

#[test]
fn polar_logits_are_cosines_of_the_distance() {
    for (name, config) in all_configs() {
        let EncodingConfig::Pope(pope) = &config else {
            continue;
        };
        let (encoding, values) = build_recorded(&config, &SHAPE);
        let dim = SHAPE.head_dim;
        let softplus = |x: f64| x.exp().ln_1p();
        for offset in [0, 50_000] {
            let positions = Positions::from_offset(offset, 7);
            let attention = Attention::new(&encoding, &positions, 0, 0);
            assert_eq!(attention.turned.0.dims()[3], 2 * dim);
            let expected = pairwise(&attention, &positions, |head, q, k, m, n| {
                let term = |j: usize| {
                    let delta = values.get("delta").map_or(0.0, |delta| {
                        delta[head * dim + j].clamp(-std::f64::consts::TAU, 0.0)
                    });
                    let theta = pope.base.powf(-(j as f64) / dim as f64);
                    softplus(q[j]) * softplus(k[j]) * ((m - n) * theta - delta).cos()
                };
                (0..dim).map(term).sum()
            });
            let difference = largest_difference(&attention.logits(), &expected);
            assert!(difference < 1e-5, "{name}: {difference}");
        }
    }
}
