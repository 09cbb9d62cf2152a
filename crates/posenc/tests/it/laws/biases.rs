//! Biases that depend on positions alone.

use super::{bias_block, bias_of, input, prepare};
use crate::common::{
    SHAPE, all_configs, build, build_recorded, build_stirred, config, dot, gradients, host,
    largest_difference, random,
};
use burn::nn::PositionalEncodingConfig;
use burn::tensor::Device;
use posenc::encodings::alibi::slopes;
use posenc::encodings::{DebertaConfig, SandwichConfig, SinusoidalConfig, T5Config};
use posenc::spec::EncodingSpec;
use posenc::{Context, EncodingConfig, ModelShape, PositionalEncoding, Positions};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn slopes_of_a_power_of_two_fall_and_interleave_with_those_of_the_next() {
    for heads in [1, 2, 4, 8, 16, 32, 64] {
        let (these, next) = (slopes(heads), slopes(2 * heads));
        assert!(
            these.windows(2).all(|pair| pair[0] > pair[1]),
            "{heads} heads"
        );
        assert!((these[heads - 1] - 1.0 / 256.0).abs() < 1e-15);
        let every_other: Vec<f64> = next.iter().skip(1).step_by(2).copied().collect();
        assert!(largest_difference(&these, &every_other) < 1e-15);
    }
    for heads in 1..=80 {
        let mut these = slopes(heads);
        assert_eq!(these.len(), heads);
        assert!(these.iter().all(|slope| *slope > 0.0 && *slope < 1.0));
        these.sort_by(f64::total_cmp);
        assert!(
            these.windows(2).all(|pair| pair[1] / pair[0] > 1.0 + 1e-9),
            "{heads} heads: two share a slope"
        );
    }
    assert!(slopes(0).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn penalties_grow_with_distance(
        query in 0usize..60_000, steps in prop::collection::vec(1usize..1000, 1..20), heads in 1usize..20, index in 0usize..1000,
    ) {
        let penalties = [
            json!({"kind": "alibi"}),
            json!({"kind": "alibi", "factor": 4.0}),
            json!({"kind": "alibi", "log_distance": true}),
            json!({"kind": "kerple"}),
            json!({"kind": "kerple", "form": "power"}),
            json!({"kind": "hard_alibi"}),
            json!({"kind": "window", "size": 300}),
        ];
        let value = &penalties[index % penalties.len()];
        let shape = ModelShape { d_model: 8, n_layers: 1, n_heads: heads, head_dim: 8 };
        let encoding = build_stirred(&config(value.clone()), &shape);
        let keys: Vec<f64> = steps.iter().scan(query, |key, step| { *key += step; Some(*key as f64) }).collect();
        let length = keys.len();
        let strictly = value["kind"] == "alibi";
        for (queries, keys) in [(vec![query as f64], keys.clone()), (keys.iter().rev().copied().collect(), vec![query as f64])] {
            let q_len = queries.len();
            let bias = bias_of(&encoding, &Positions::new(queries, keys));
            for head in bias.chunks(length) {
                let nearest_first: Vec<f64> = if q_len == 1 { head.to_vec() } else { head.iter().rev().copied().collect() };
                prop_assert!(nearest_first[0] <= 0.0);
                // Functions of f32 may err by a unit in the last place where the distance hardly counts.
                let falls = |pair: &[f64]| pair[1] < pair[0] || !strictly && pair[1] <= pair[0] + 1e-6 * pair[0].abs().min(1e30);
                prop_assert!(nearest_first.windows(2).all(falls), "{value}: {nearest_first:?}");
            }
        }
    }
}

#[test]
fn alibi_is_a_product_of_slope_and_distance_whose_factor_divides() {
    let positions = Positions::new(vec![3.0, 70_000.0], vec![0.0, 3.0, 69_990.0]);
    let of = |factor: f64| {
        bias_of(
            &build(&config(json!({"kind": "alibi", "factor": factor})), &SHAPE),
            &positions,
        )
    };
    let expected: Vec<f64> = slopes(4)
        .iter()
        .flat_map(|slope| {
            [3.0, 0.0, 69_987.0, 70_000.0, 69_997.0, 10.0].map(|distance| -slope * distance)
        })
        .collect();
    assert_eq!(of(1.0), expected);
    assert_eq!(
        of(8.0),
        expected.iter().map(|bias| bias / 8.0).collect::<Vec<f64>>()
    );
    let steep = config(json!({"kind": "alibi", "slope_scale": 96.0}));
    assert_eq!(
        bias_of(&build(&steep, &SHAPE), &positions),
        expected
            .iter()
            .map(|bias| bias * 96.0)
            .collect::<Vec<f64>>()
    );
    // The paper's slopes in another order, and a head without a penalty.
    let own = json!({"kind": "alibi", "slopes": [0.0625, 0.25, 0.0, 1.5], "factor": 2.0});
    let found = bias_of(&build(&config(own), &SHAPE), &positions);
    let distances = [3.0, 0.0, 69_987.0, 70_000.0, 69_997.0, 10.0];
    let own = [0.0625, 0.25, 0.0, 1.5].iter();
    let own = own.flat_map(|slope| distances.map(|distance| -slope * distance / 2.0));
    assert_eq!(found, own.collect::<Vec<f64>>());
    let mut auto = config(json!({"kind": "alibi", "factor": "auto"}));
    auto.resolve(&posenc::Lengths {
        train_len: 64,
        trained_len: 64,
        test_len: 512,
    });
    assert_eq!(bias_of(&build(&auto, &SHAPE), &positions), of(8.0));
}

#[test]
fn with_logarithms_of_distances_alibi_keeps_a_weight_where_it_is_blind() {
    let of = |options: Value| {
        let mut table = json!({"kind": "alibi"});
        table
            .as_object_mut()
            .unwrap()
            .extend(options.as_object().unwrap().clone());
        bias_of(
            &build(&config(table), &SHAPE),
            &Positions::new(vec![8191.0], vec![0.0, 7778.0, 8191.0]),
        )
    };
    let log = of(json!({"log_distance": true, "slope_scale": 2.0}));
    let expected = slopes(4).into_iter().flat_map(|slope| {
        [8191.0, 413.0, 0.0].map(|distance: f64| -2.0 * slope * distance.ln_1p())
    });
    assert!(largest_difference(&log, &expected.collect::<Vec<f64>>()) < 1e-5);
    // Slope 1/4: in f32, -103.25 is a weight above 0 and -2047.75 is not.
    let weight = |bias: f64| (bias as f32).exp();
    let linear = of(json!({}));
    assert!(
        weight(linear[1]) > 0.0 && weight(linear[0]) == 0.0,
        "{linear:?}"
    );
    assert!(log.iter().all(|bias| weight(*bias) > 0.0));
    let logarithmic = config(json!({"kind": "alibi", "log_distance": true}));
    assert_eq!(
        logarithmic.slopes(&SHAPE),
        None,
        "it is not linear in distance"
    );
    assert!(!logarithmic.facts(&SHAPE).linear);
}

// T5

proptest! {
    #[test]
    fn untrained_buckets_are_those_that_only_tests_read(
        exact in 1_usize..20,
        above in 1_usize..300,
        bidirectional: bool,
        train_len in 2_usize..200,
        test_len in 2_usize..600,
    ) {
        let config = |max_distance: usize| T5Config::default().with(|config| {
            config.num_buckets = exact * if bidirectional { 4 } else { 2 };
            config.max_distance = max_distance;
            config.bidirectional = bidirectional;
        });
        let t5 = config(exact + above);
        let read = |length: usize| -> BTreeSet<usize> {
            (0..length).map(|distance| t5.bucket(-(distance as f64))).collect()
        };
        let untrained = read(test_len).difference(&read(train_len)).count();
        let said = t5.untrained(train_len, test_len);
        prop_assert_eq!(said.is_some(), untrained > 0);
        let half = train_len / 2;
        if said.is_some_and(|said| said.contains(&format!("`max_distance = {half}`"))) {
            prop_assert_eq!(config(half).untrained(train_len, test_len), None);
        }
    }
}

#[test]
fn buckets_rise_with_distance_and_every_one_is_reached() {
    for (num_buckets, max_distance) in [(32, 128), (8, 20), (2, 2), (16, 16), (64, 4096)] {
        let t5 = T5Config::default().with(|config| {
            config.num_buckets = num_buckets;
            config.max_distance = max_distance;
        });
        let buckets: Vec<usize> = (0..=2 * max_distance)
            .map(|distance| t5.bucket(-(distance as f64)))
            .collect();
        assert!(
            buckets.windows(2).all(|pair| pair[1] >= pair[0]),
            "{num_buckets} to {max_distance}"
        );
        assert_eq!(
            buckets[..num_buckets / 2],
            (0..num_buckets / 2).collect::<Vec<usize>>(),
            "one distance each at first"
        );
        let reached: BTreeSet<usize> = buckets.iter().copied().collect();
        assert_eq!(
            reached,
            (0..num_buckets).collect(),
            "{num_buckets} to {max_distance}"
        );
        assert!(
            buckets[max_distance..]
                .iter()
                .all(|bucket| *bucket == num_buckets - 1),
            "from max_distance on all share the last"
        );
        assert!(
            (1..100).all(|ahead| t5.bucket(f64::from(ahead)) == 0),
            "keys after the query are in bucket 0"
        );

        let both = t5.clone().with(|config| {
            config.num_buckets = 2 * num_buckets;
            config.bidirectional = true;
        });
        for (distance, bucket) in buckets.iter().enumerate().skip(1) {
            assert_eq!(
                both.bucket(-(distance as f64)),
                *bucket,
                "half of the buckets for keys before the query"
            );
            assert_eq!(
                both.bucket(distance as f64),
                num_buckets + bucket,
                "and half for those after"
            );
        }
        assert_eq!(both.bucket(0.0), 0);
    }
}

#[test]
fn tables_are_read_at_the_bucket_or_distance_and_head() {
    let positions = Positions::from_offset(5, 30);
    for (name, config) in all_configs() {
        let (encoding, values) = build_recorded(&config, &SHAPE);
        let row = |m: usize, n: usize| match &config {
            EncodingConfig::T5(t5) => Some(t5.bucket(n as f64 - m as f64)),
            EncodingConfig::LearnedBias(bias) => {
                Some(m.abs_diff(n).min(bias.max_distance.expect("resolved")))
            }
            _ => None,
        };
        if row(0, 0).is_none() {
            continue;
        }
        let bias = bias_of(&encoding, &positions);
        for (at, bias) in bias.iter().enumerate() {
            let (head, m, n) = (at / 900, at / 30 % 30, at % 30);
            assert_eq!(
                *bias,
                values["table"][row(m, n).expect("as before") * SHAPE.n_heads + head],
                "{name}: {m} and {n}"
            );
        }
    }
}

#[test]
fn t5_without_scaling_takes_back_the_division_by_the_root_of_the_head() {
    let encoding = build(&config(json!({"kind": "t5", "scaled": false})), &SHAPE);
    let (q, k) = (random(1, [1, 4, 3, 8]), random(2, [1, 4, 3, 8]));
    let (turned, same) = prepare(&encoding, &Positions::contiguous(3)).transform_qk(
        0,
        q.clone(),
        k.clone(),
        &input(3),
    );
    let expected: Vec<f64> = host(q).iter().map(|q| q * 8f64.sqrt()).collect();
    assert!(largest_difference(&host(turned), &expected) < 1e-6);
    assert_eq!(host(same), host(k));
}

#[test]
fn logarithmic_buckets_of_deberta_are_distances_at_first_and_end_in_the_last_row() {
    for (buckets, max_distance) in [(8, 40), (256, 512), (32, 64)] {
        let deberta = DebertaConfig::default().with(|config| {
            config.buckets = Some(buckets);
            config.max_distance = Some(max_distance);
        });
        let half = buckets / 2;
        let rows: Vec<f64> = (0..max_distance)
            .map(|distance| deberta.bucket(distance as f64))
            .collect();
        assert!(rows.windows(2).all(|pair| pair[1] >= pair[0]));
        assert!((0..=half).all(|distance| rows[distance] == distance as f64));
        assert_eq!(rows[max_distance - 1], (buckets - 1) as f64);
        assert!(
            (1..max_distance).all(|distance| deberta.bucket(-(distance as f64)) == -rows[distance]),
            "odd"
        );
        // The authors' code, in its own words.
        for (distance, row) in rows.iter().enumerate().skip(half + 1) {
            let mid = half as f64;
            let log_pos = ((distance as f64 / mid).ln() / ((max_distance as f64 - 1.0) / mid).ln()
                * (mid - 1.0))
                .ceil()
                + mid;
            assert_eq!(*row, log_pos);
        }
    }
    assert_eq!(
        DebertaConfig::default()
            .with(|config| config.max_distance = Some(5))
            .bucket(-70.0),
        -70.0,
        "clipped later"
    );
}

// KERPLE, Sandwich, FIRE

#[test]
fn kernels_are_those_of_kerple() {
    let positions = Positions::new(vec![0.0, 7.0, 65_000.0], vec![0.0, 6.0, 7.0, 64_000.0]);
    let distances = [
        0.0, 6.0, 7.0, 64_000.0, 7.0, 1.0, 0.0, 63_993.0, 65_000.0, 64_994.0, 64_993.0, 1000.0,
    ];
    let device = Device::flex();
    for form in ["log", "power"] {
        // The first two heads start out of range and are read as its ends.
        let (r1, r2) = ([-1.0, 1.0, 0.5, 2.0], [0.0, 5.0, 1.0, 0.5]);
        let source = |path: &str, _: &[usize], _: posenc::Distribution| {
            if path == "r1" {
                r1.to_vec()
            } else {
                r2.to_vec()
            }
        };
        let kerple = config(json!({"kind": "kerple", "form": form}));
        let bias = bias_of(
            &kerple
                .init(&SHAPE, &posenc::Init::new(&device, &source))
                .expect("a resolved configuration"),
            &positions,
        );
        let most = if form == "log" { f64::INFINITY } else { 2.0 };
        for (at, bias) in bias.iter().enumerate() {
            let (head, distance) = (at / 12, distances[at % 12]);
            let (r1, r2) = (r1[head].max(0.01), r2[head].clamp(0.01, most));
            let expected = if form == "log" {
                -r1 * (r2 * distance).ln_1p()
            } else {
                -r1 * distance.powf(r2)
            };
            assert!(
                (bias - expected).abs() <= 1e-5 * (1.0 + expected.abs()),
                "{form}: head {head} at {distance}: {bias} for {expected}"
            );
        }
        if form == "power" {
            let alibi_like: Vec<f64> = distances.iter().map(|distance| -0.5 * distance).collect();
            let error = largest_difference(&bias[24..36], &alibi_like);
            assert!(
                error < 0.1,
                "the third head is linear in distance, off by {error}"
            );
        }
    }
}

#[test]
fn a_parameter_out_of_range_keeps_its_gradient() {
    let device = Device::flex().autodiff();
    for form in ["log", "power"] {
        let source = |path: &str, _: &[usize], _: posenc::Distribution| {
            if path == "r1" {
                vec![-1.0; 4]
            } else {
                vec![-2.0; 4]
            }
        };
        let kerple = config(json!({"kind": "kerple", "form": form}));
        let encoding = kerple
            .init(&SHAPE, &posenc::Init::new(&device, &source))
            .expect("a resolved configuration");
        let prepared = encoding
            .prepare(&Positions::contiguous(5), &Context::new(&device))
            .expect("positions in range");
        let bias = prepared.logits_bias(0).expect("a bias").block(0..5, 0..5);
        for (path, gradient) in gradients(&encoding, &bias.sum()) {
            assert!(
                gradient.iter().all(|g| g.is_finite() && *g < 0.0),
                "{form}: {path} could not come back: {gradient:?}"
            );
        }
    }
}

#[test]
fn sandwich_is_the_product_of_two_sinusoidal_encodings() {
    for width in [8, 64, 128] {
        let sandwich = SandwichConfig::default().with(|config| config.width = width);
        assert_eq!(sandwich.value(0.0), 0.0);
        let row = |position: f64| -> Vec<f64> {
            let theta = |i: usize| 10_000f64.powf(-2.0 * i as f64 / width as f64);
            (1..=width / 2)
                .flat_map(|i| [(position * theta(i)).sin(), (position * theta(i)).cos()])
                .collect()
        };
        for (m, n) in [(3.0, 3.0), (9.0, 2.0), (500.0, 17.0), (4096.0, 1.0)] {
            let expected = dot(&row(m), &row(n)) - (width / 2) as f64;
            assert!(
                (sandwich.value(m - n) - expected).abs() < 1e-9,
                "{width}: {m} and {n}"
            );
        }
        let encoding = build(&config(json!({"kind": "sandwich", "width": width})), &SHAPE);
        let bias = bias_of(
            &encoding,
            &Positions::new(vec![100.0], vec![0.0, 99.0, 100.0]),
        );
        for (at, bias) in bias.iter().enumerate() {
            // Divided by the compression ratio 8h/H of the head.
            let expected =
                sandwich.value([100.0, 1.0, 0.0][at % 3]) / (8.0 * (at / 3 + 1) as f64 / 4.0);
            assert!(
                (bias - expected).abs() < 1e-6 * (1.0 + expected.abs()),
                "{width}"
            );
        }
    }
}

#[test]
fn fire_is_a_network_of_the_distance_in_units_of_the_query() {
    for (name, config) in all_configs() {
        let EncodingConfig::Fire(fire) = &config else {
            continue;
        };
        let (encoding, values) = build_recorded(&config, &SHAPE);
        for layer in 0..2 {
            let of = |key: &str| {
                &values[&format!("functions.{}.{key}", if fire.shared { 0 } else { layer })]
            };
            let psi = |x: f64| (of("c")[0] * x).abs().ln_1p();
            let threshold = (of("multiplier")[0] * fire.threshold).abs();
            for offset in [0, 3, 2000] {
                let positions = Positions::from_offset(offset, 9);
                let prepared = prepare(&encoding, &positions);
                let bias = bias_block(&prepared.logits_bias(layer).expect("a bias"), 0..9, 0..9);
                for (at, bias) in bias.iter().enumerate() {
                    let (head, i, j) = (at / 81, at / 9 % 9, at % 9);
                    let m = (offset + i) as f64;
                    let x = psi(i as f64 - j as f64) / (psi(m.max(threshold)) + 1e-6);
                    let unit = |u: usize| {
                        (of("w1")[u] * x + of("b1")[u]).max(0.0)
                            * of("w2")[u * SHAPE.n_heads + head]
                    };
                    let expected: f64 = (0..fire.hidden).map(unit).sum::<f64>() + of("b2")[head];
                    assert!(
                        (bias - expected).abs() < 1e-5,
                        "{name}: layer {layer}, {i} and {j} from {offset}: {bias} for {expected}"
                    );
                }
            }
        }
    }
}

// Minus infinity

#[test]
fn masks_hide_what_they_say_and_add_nothing_elsewhere() {
    let of = |value: serde_json::Value| {
        bias_of(
            &build(&config(value), &SHAPE),
            &Positions::from_offset(1, 20),
        )
    };
    let seen = |visible: bool| if visible { 0.0 } else { f64::NEG_INFINITY };
    let window = of(json!({"kind": "window", "size": 3, "sinks": 3}));
    for (at, bias) in window.iter().enumerate() {
        let (i, j) = (at / 20, at % 20);
        // Position 1 comes first here, so that two of three sinks are left.
        assert_eq!(*bias, seen(i.abs_diff(j) < 3 || j < 2), "{i} and {j}");
    }
    for (masked, value) in [
        (2, json!({"kind": "hard_alibi"})),
        (3, json!({"kind": "hard_alibi", "masked_heads": 3})),
    ] {
        for (at, bias) in of(value).iter().enumerate() {
            let (head, i, j) = (at / 400, at / 20 % 20, at % 20);
            assert_eq!(
                *bias,
                seen(head >= masked || i.abs_diff(j) <= head),
                "{masked}: head {head}, {i} and {j}"
            );
        }
    }
    let everything = of(json!({"kind": "window", "size": 20}));
    assert!(everything.iter().all(|bias| *bias == 0.0));
}

// What is added to the input

#[test]
fn interleaved_sinusoidal_agrees_with_burn_at_small_positions() {
    let theirs = PositionalEncodingConfig::new(32).init(&Device::flex());
    let x = random(1, [1, 64, 32]);
    let ours = build(&config(json!({"kind": "sinusoidal"})), &SHAPE);
    let added = prepare(&ours, &Positions::contiguous(64)).embed(x.clone());
    assert!(largest_difference(&host(added), &host(theirs.forward(x))) < 2e-5);
}

#[test]
fn a_learned_scale_starts_as_the_fixed_one() {
    let of = |learnable_scale: bool| {
        let config = EncodingConfig::Sinusoidal(SinusoidalConfig::default().with(|config| {
            config.scale = 0.3;
            config.learnable_scale = learnable_scale;
        }));
        host(
            prepare(&build(&config, &SHAPE), &Positions::contiguous(9))
                .embed(random(1, [1, 9, 32])),
        )
    };
    assert!(largest_difference(&of(true), &of(false)) < 2e-7);
}

#[test]
fn a_table_that_interpolates_is_itself_up_to_its_end_and_squeezed_beyond() {
    let value = |interpolate: bool| json!({"kind": "learned", "max_position": 9, "init_std": 0.5, "interpolate": interpolate});
    let (encoding, values) = build_recorded(&config(value(true)), &SHAPE);
    let fixed = build_stirred(&config(value(false)), &SHAPE);
    let zeros = |length: usize| burn::tensor::Tensor::zeros([1, length, 32], &Device::flex());
    let rows = |positions: &Positions| {
        host(prepare(&encoding, positions).embed(zeros(positions.queries().len())))
    };
    for length in [1, 5, 9] {
        let positions = Positions::contiguous(length);
        assert_eq!(
            rows(&positions),
            host(prepare(&fixed, &positions).embed(zeros(length))),
            "{length} fit"
        );
    }
    for length in [10, 17, 100] {
        let found = rows(&Positions::contiguous(length));
        assert_eq!(
            found[..32],
            values["table"][..32],
            "the first row stays the first"
        );
        assert!(
            largest_difference(&found[32 * (length - 1)..], &values["table"][32 * 8..]) < 1e-6,
            "the last stays the last"
        );
        for (at, found) in found.iter().enumerate() {
            let place = (at / 32) as f64 * 8.0 / (length - 1) as f64;
            let (below, share) = (place.floor().min(7.0), place - place.floor().min(7.0));
            let row = |row: f64| values["table"][row as usize * 32 + at % 32];
            let expected = row(below) * (1.0 - share) + row(below + 1.0) * share;
            assert!((found - expected).abs() < 1e-6, "{length}: row {}", at / 32);
        }
    }
    // Rows of the table show at every other position of a sequence almost twice as long.
    let found = rows(&Positions::contiguous(17));
    let every_other: Vec<f64> = found.chunks(32).step_by(2).flatten().copied().collect();
    assert!(largest_difference(&every_other, &values["table"]) < 1e-6);
    assert_eq!(
        rows(&Positions::contiguous(17).last(1)),
        found[32 * 16..],
        "a row is the same when it is asked for alone"
    );
}
