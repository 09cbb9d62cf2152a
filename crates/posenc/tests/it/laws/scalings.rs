//! Frequencies of rotary encodings and what rescales them.

use super::rope;
use posenc::rotary::Frequencies;
use posenc::spec::EncodingSpec;
use posenc::{EncodingConfig, Lengths, RopeScaling};
use serde_json::{Value, json};

fn scaled(scaling: &Value, head_dim: usize, length: f64) -> Frequencies {
    let mut rope = rope(json!({"kind": "rope", "scaling": scaling}));
    // At the training length, where `auto` is 1 and nothing is stretched.
    rope.resolve(&Lengths {
        train_len: length as usize,
        trained_len: length as usize,
        test_len: length as usize,
    });
    rope.frequencies(head_dim, length)
        .expect("a resolved scaling")
}

fn plain(head_dim: usize) -> Vec<f64> {
    rope(json!({"kind": "rope"}))
        .frequencies(head_dim, 1.0)
        .expect("a resolved scaling")
        .inv_freq
}

#[test]
fn factor_1_is_no_scaling() {
    let ones = vec![1.0; 32];
    let cases = [
        json!({"kind": "linear", "factor": 1.0}),
        json!({"kind": "ntk", "factor": 1.0}),
        json!({"kind": "ntk_by_parts", "factor": 1.0, "original_max_position_embeddings": 100}),
        json!({"kind": "dynamic_ntk", "factor": 1.0, "original_max_position_embeddings": 100}),
        json!({"kind": "yarn", "factor": 1.0, "original_max_position_embeddings": 100}),
        json!({"kind": "yarn", "factor": 1.0, "original_max_position_embeddings": 4096, "mscale": 0.7, "mscale_all_dim": 1.0}),
        json!({"kind": "dynamic_yarn", "original_max_position_embeddings": 100}),
        json!({"kind": "dynamic_yarn", "original_max_position_embeddings": 4096, "truncate": false}),
        json!({"kind": "longrope", "factor": 1.0, "original_max_position_embeddings": 64, "short_factor": ones, "long_factor": ones}),
        json!({"kind": "llama3", "factor": 1.0, "original_max_position_embeddings": 100}),
        json!({"kind": "proportional", "fraction": 1.0}),
        json!({"kind": "mrrope", "factor": 1.0, "original_max_position_embeddings": 100}),
        // At its training length `auto` scales nothing.
        json!({"kind": "linear"}),
        json!({"kind": "ntk"}),
        json!({"kind": "ntk_by_parts"}),
        json!({"kind": "dynamic_ntk", "factor": 4.0}),
        json!({"kind": "yarn"}),
        json!({"kind": "dynamic_yarn"}),
        json!({"kind": "longrope", "short_factor": ones, "long_factor": ones}),
        json!({"kind": "llama3"}),
    ];
    let kinds: Vec<&str> = cases
        .iter()
        .filter_map(|case| case["kind"].as_str())
        .collect();
    let left_out: Vec<&&str> = RopeScaling::KINDS
        .iter()
        .filter(|kind| !kinds.contains(kind))
        .collect();
    assert_eq!(
        left_out,
        [&"hope", &"resonance", &"evq_cosh"],
        "these have no factor"
    );
    for scaling in cases {
        let scaled = scaled(&scaling, 64, 100.0);
        assert_eq!(scaled.attention_factor, 1.0, "{scaling}");
        for (scaled, plain) in scaled.inv_freq.iter().zip(plain(64)) {
            assert!((scaled / plain - 1.0).abs() < 1e-15, "{scaling}");
        }
    }
}

#[test]
fn scalings_keep_frequencies_between_plain_and_interpolated() {
    let plain = plain(64);
    let with_factor = ["linear", "ntk", "ntk_by_parts", "yarn", "llama3"];
    for factor in [1.5, 4.0, 64.0] {
        let fixed = with_factor.map(|kind| json!({"kind": kind, "factor": factor, "original_max_position_embeddings": 2048}));
        let dynamic = ["dynamic_ntk", "dynamic_yarn"]
            .map(|kind| json!({"kind": kind, "original_max_position_embeddings": 2048}));
        for scaling in fixed.iter().chain(&dynamic) {
            let scaled = scaled(scaling, 64, 2048.0 * factor).inv_freq;
            let ratios: Vec<f64> = plain
                .iter()
                .zip(&scaled)
                .map(|(plain, scaled)| plain / scaled)
                .collect();
            for (i, ratio) in ratios.iter().enumerate() {
                assert!(
                    (1.0 - 1e-12..=factor * (1.0 + 1e-12)).contains(ratio),
                    "{scaling}: pair {i} divided by {ratio}"
                );
            }
            assert!(
                ratios.windows(2).all(|pair| pair[1] > pair[0] - 1e-12),
                "{scaling}: slower pairs are divided by more"
            );
            assert!(
                (ratios[31] / factor - 1.0).abs() < 1e-12,
                "{scaling}: the slowest pair is interpolated in full"
            );
            assert_eq!(
                ratios[0] == 1.0,
                scaling["kind"] != "linear",
                "{scaling}: the fastest pair is left alone"
            );
        }
    }
}

#[test]
fn ramps_of_ntk_by_parts_and_llama3_are_linear_in_the_number_of_turns() {
    let plain = plain(128);
    for (kind, low, high) in [
        ("ntk_by_parts", "alpha", "beta"),
        ("llama3", "low_freq_factor", "high_freq_factor"),
    ] {
        let scaling = json!({"kind": kind, "factor": 8.0, "original_max_position_embeddings": 1024, low: 2.0, high: 20.0});
        let mut between = 0;
        for (scaled, plain) in scaled(&scaling, 128, 1.0).inv_freq.iter().zip(&plain) {
            let turns = 1024.0 * plain / std::f64::consts::TAU;
            let kept = ((turns - 2.0) / 18.0).clamp(0.0, 1.0);
            between += usize::from(kept > 0.0 && kept < 1.0);
            assert!(
                (scaled - plain * (kept + (1.0 - kept) / 8.0)).abs() < 1e-15,
                "{kind}"
            );
        }
        assert!(between > 5);
    }
}

#[test]
fn llama3_with_equal_bounds_has_no_ramp() {
    // Llama 4 Scout: what turns less than once within 8192 tokens is divided by 16.
    let scaling = json!({"kind": "llama3", "factor": 16.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 1.0});
    let scaled = scaled(&scaling, 128, 1.0).inv_freq;
    for (scaled, plain) in scaled.iter().zip(&plain(128)) {
        let turns = 8192.0 * plain / std::f64::consts::TAU;
        let by = if turns < 1.0 { 16.0 } else { 1.0 };
        assert!((scaled * by - plain).abs() < 1e-15, "{turns}");
    }
    assert!(scaled[63] < plain(128)[63] && scaled[0] == 1.0);
}

#[test]
fn the_logits_of_deepseek_have_their_own_factor() {
    let scaling = json!({"kind": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0, "scale_logits": true});
    let scaling: RopeScaling = serde_json::from_value(scaling).unwrap();
    assert!((scaling.logits_factor() - 1.873_854_207_1).abs() < 1e-9);
    let RopeScaling::Yarn(mut yarn) = scaling else {
        unreachable!("it is yarn");
    };
    assert_eq!(yarn.left_out(), None);
    yarn.scale_logits = false;
    assert!((yarn.left_out().unwrap() - 1.873_854_207_1).abs() < 1e-9);
    assert_eq!(RopeScaling::Yarn(yarn).logits_factor(), 1.0);
}

#[test]
fn scalings_that_read_the_length_read_that_of_this_pass() {
    let dynamic = |length: f64| {
        scaled(
            &json!({"kind": "dynamic_yarn", "original_max_position_embeddings": 512}),
            64,
            length,
        )
    };
    for length in [1.0, 511.0, 512.0] {
        assert_eq!(
            dynamic(length),
            dynamic(512.0),
            "plain up to the training length"
        );
    }
    for factor in [1.5, 4.0] {
        let fixed =
            json!({"kind": "yarn", "factor": factor, "original_max_position_embeddings": 512});
        assert_eq!(dynamic(512.0 * factor), scaled(&fixed, 64, 1.0));
    }
    let (short, long) = (json!([1.0, 1.1, 1.2, 1.3]), json!([1.0, 2.0, 4.0, 7.5]));
    let longrope = json!({"kind": "longrope", "factor": 8.0, "original_max_position_embeddings": 512, "short_factor": short, "long_factor": long});
    for (length, factors) in [(512.0, short), (513.0, long)] {
        let scaled = scaled(&longrope, 8, length);
        for ((scaled, plain), factor) in scaled
            .inv_freq
            .iter()
            .zip(plain(8))
            .zip(factors.as_array().expect("a list"))
        {
            assert!((scaled * factor.as_f64().expect("a number") / plain - 1.0).abs() < 1e-15);
        }
        assert!(
            (scaled.attention_factor - (1.0 + 8f64.ln() / 512f64.ln()).sqrt()).abs() < 1e-15,
            "also where nothing is long"
        );
    }
    let mut given = longrope.clone();
    given["attention_factor"] = json!(1.25);
    assert_eq!(scaled(&given, 8, 600.0).attention_factor, 1.25);
}

#[test]
fn auto_is_the_ratio_of_the_test_length_and_at_least_1() {
    for kind in ["linear", "ntk", "ntk_by_parts", "yarn", "llama3"] {
        let with = |factor: Value, test_len: usize| {
            let scaling = json!({"kind": kind, "factor": factor});
            let mut config = crate::common::config(json!({"kind": "rope", "scaling": scaling}));
            config.resolve(&Lengths {
                train_len: 64,
                trained_len: 64,
                test_len,
            });
            let EncodingConfig::Rope(rope) = config else {
                unreachable!()
            };
            rope.frequencies(64, test_len as f64)
                .expect("a resolved scaling")
        };
        let of = |test_len| with(json!("auto"), test_len);
        assert_eq!(of(128), with(json!(2.0), 128));
        let attention = if kind == "yarn" {
            0.1 * 2f64.ln() + 1.0
        } else {
            1.0
        };
        assert!((of(128).attention_factor - attention).abs() < 1e-15);
        let (short, plain) = (of(32), plain(64));
        assert!(
            short
                .inv_freq
                .iter()
                .zip(&plain)
                .all(|(scaled, plain)| (scaled / plain - 1.0).abs() < 1e-15),
            "{kind}"
        );
    }
}

#[test]
fn proportional_rotation_keeps_the_fastest_pairs_as_they_are_in_the_full_head() {
    let plain = plain(64);
    for (fraction, turning) in [(0.0, 0), (0.25, 8), (0.5, 16), (0.99, 31), (1.0, 32)] {
        let scaled = scaled(
            &json!({"kind": "proportional", "fraction": fraction}),
            64,
            1.0,
        )
        .inv_freq;
        assert_eq!(scaled[..turning], plain[..turning]);
        assert!(scaled[turning..].iter().all(|theta| *theta == 0.0));
    }
    let partial = rope(json!({"kind": "rope", "rotary_dim": 32}))
        .frequencies(64, 1.0)
        .expect("a resolved scaling")
        .inv_freq;
    assert!(
        (partial[1] - plain[1]).abs() > 1e-3,
        "not to be confused with rotary_dim, whose frequencies spread over the part"
    );
}

#[test]
fn hope_is_proportional_with_the_share_of_pairs_that_turn_in_training() {
    let pairs = plain(64);
    for length in [1, 6, 7, 64, 1000, 40_000, 100_000] {
        let of = |scaling: Value| scaled(&scaling, 64, 1.0).inv_freq;
        let hope = of(json!({"kind": "hope", "original_max_position_embeddings": length}));
        let turning = pairs
            .iter()
            .filter(|theta| *theta * f64::from(length) >= std::f64::consts::TAU);
        let fraction = turning.count() as f64 / 32.0;
        let proportional = of(json!({"kind": "proportional", "fraction": fraction}));
        assert_eq!(hope, proportional, "{length}");
    }
    // The training length unless given; a later test changes nothing.
    let at = |length: f64| scaled(&json!({"kind": "hope"}), 64, length).inv_freq;
    let moving = |inv_freq: Vec<f64>| inv_freq.iter().filter(|theta| **theta > 0.0).count();
    assert_eq!(moving(at(6.0)), 0);
    assert_eq!(moving(at(7.0)), 1);
    assert_eq!(moving(at(1e6)), 32);
}

#[test]
fn resonant_wavelengths_are_the_nearest_whole_numbers() {
    let plain: Vec<f64> = plain(64)
        .iter()
        .map(|theta| std::f64::consts::TAU / theta)
        .collect();
    let resonant = scaled(&json!({"kind": "resonance"}), 64, 1.0).wavelengths();
    for (resonant, plain) in resonant.iter().zip(plain) {
        assert!(
            (resonant - plain.round()).abs() < 1e-9 * plain,
            "{resonant} for {plain}"
        );
    }
}

#[test]
fn linear_spacing_falls_off_as_the_odd_numbers() {
    let linear = rope(json!({"kind": "rope", "spacing": "linear", "base": 7.0}))
        .frequencies(8, 1.0)
        .expect("a resolved scaling");
    assert_eq!(linear.inv_freq, [1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0]);
    let scaled = rope(
        json!({"kind": "rope", "spacing": "linear", "scaling": {"kind": "linear", "factor": 2.0}}),
    )
    .frequencies(8, 1.0)
    .expect("a resolved scaling");
    assert_eq!(scaled.inv_freq, [0.5, 0.5 / 3.0, 0.5 / 5.0, 0.5 / 7.0]);
}
