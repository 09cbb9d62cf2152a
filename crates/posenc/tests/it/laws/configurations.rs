//! Configurations: what is read, what is refused and how, what is resolved.

use super::rope;
use crate::common::{LENGTHS, SHAPE, all_configs, all_values, cells, config, lines};
use posenc::scaling::Factor;
use posenc::{EncodingConfig, Lengths, ModelShape, RopeScaling};
use serde_json::{Value, json};

#[test]
fn every_configuration_survives_json() {
    for (name, config) in all_configs() {
        let text = serde_json::to_string(&config).expect("plain data");
        assert!(
            text.starts_with(&format!("{{\"kind\":\"{}\"", config.kind())),
            "{text}"
        );
        let back: EncodingConfig =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(back, config, "{name}");
    }
    for kind in RopeScaling::KINDS {
        let Some(scaling) = RopeScaling::default_of(kind) else {
            assert_eq!(*kind, "longrope", "only LongRoPE has factors to give");
            continue;
        };
        assert_eq!(scaling.kind(), *kind);
        let value = json!({"kind": "rope", "scaling": scaling});
        assert_eq!(rope(value).scaling, Some(scaling));
    }
}

#[test]
fn options_added_later_leave_the_text_of_older_configurations_alone() {
    // This text identifies a run: later options are left out at their default.
    for (kind, text) in [
        ("nope", json!({"kind": "nope"})),
        (
            "sinusoidal",
            json!({"kind": "sinusoidal", "base": 10000.0, "order": "interleaved", "scale": 1.0}),
        ),
        (
            "learned",
            json!({"kind": "learned", "max_position": 64, "init_std": 0.02}),
        ),
        (
            "rope",
            json!({"kind": "rope", "base": 10000.0, "layout": "half", "rotary_dim": null}),
        ),
        ("alibi", json!({"kind": "alibi"})),
        ("kerple", json!({"kind": "kerple", "form": "log"})),
        (
            "deberta",
            json!({"kind": "deberta", "terms": "both", "max_distance": 64, "buckets": null,
                "init_std": 0.02}),
        ),
    ] {
        let mut config = EncodingConfig::default_of(kind).expect("has defaults");
        config.resolve(&LENGTHS);
        assert_eq!(
            serde_json::to_string(&config).expect("plain data"),
            text.to_string()
        );
    }
}

/// JSON that is no configuration, and a part of the error.
const NOT_UNDERSTOOD: &str = r#"
{"base": 10.0, "kind": "rope"} | missing field `kind`
{} | missing field `kind`
{"kind": "rope", "base": "big"} | invalid type
{"kind": "rope", "rotary_dim": -2} | invalid value
{"kind": "alibi", "factor": "automatic"} | a number or "auto"
{"kind": "stack"} | missing field `parts`
{"kind": "stack", "parts": [{"kind": "rope", "x": 1}]} | unknown field `x`
{"kind": "nope_layers"} | missing field `part`
{"kind": "nope_layers", "part": {"kind": "rope", "x": 1}} | unknown field `x`
{"kind": "rope", "scaling": {"kind": "ntk", "betas": 1}} | unknown field `betas`
{"kind": "rope", "scaling": {"factor": 2.0, "kind": "ntk"}} | missing field `kind`
{"kind": "rope", "scaling": {"kind": "linear", "factor": "automatic"}} | a number or "auto"
{"kind": "rope", "scaling": {"kind": "dynamic_ntk", "factor": "auto"}} | invalid type
{"kind":"rope", "scaling":{"kind":"longrope", "short_factor":[1.0]}} | missing field `long_factor`
"rope" | a table with `kind`
"#;

#[test]
fn what_is_not_understood_is_refused() {
    let kinds: Vec<String> = EncodingConfig::KINDS
        .iter()
        .map(|kind| format!("`{kind}`"))
        .collect();
    let scalings: Vec<String> = RopeScaling::KINDS
        .iter()
        .map(|kind| format!("`{kind}`"))
        .collect();
    let no_kind = format!(
        "unknown variant `rpoe`, expected one of {}",
        kinds.join(", ")
    );
    let no_scaling = format!(
        "unknown variant `pi`, expected one of {}",
        scalings.join(", ")
    );
    let refused = |text: &str, says: &str| {
        let error = serde_json::from_str::<EncodingConfig>(text).expect_err(text);
        assert!(error.to_string().contains(says), "{text}: {error}");
    };
    for row in lines(NOT_UNDERSTOOD) {
        let [text, says] = cells(row);
        refused(text, says);
    }
    refused(r#"{"kind": "rpoe"}"#, &no_kind);
    refused(
        r#"{"kind": "rope", "scaling": {"kind": "pi"}}"#,
        &no_scaling,
    );
}

#[test]
fn no_table_takes_a_key_it_does_not_know() {
    for mut value in all_values() {
        value["bsae"] = json!(1);
        let error = serde_json::from_value::<EncodingConfig>(value.clone())
            .expect_err("a typo")
            .to_string();
        assert!(error.contains("unknown field `bsae`"), "{value}: {error}");
    }
}

#[test]
fn factors_are_numbers_or_auto() {
    for (text, expected) in [
        ("4", Factor::Fixed(4.0)),
        ("4.5", Factor::Fixed(4.5)),
        ("\"auto\"", Factor::Auto),
    ] {
        let factor: Factor = serde_json::from_str(text).expect(text);
        assert_eq!(factor, expected);
        let again: Factor =
            serde_json::from_str(&serde_json::to_string(&factor).expect("plain data"))
                .expect("what was written");
        assert_eq!(again, expected);
    }
}

#[test]
fn defaults_pass_their_own_check_before_and_after_resolving() {
    for kind in EncodingConfig::KINDS {
        let Some(mut config) = EncodingConfig::default_of(kind) else {
            continue;
        };
        for _ in 0..2 {
            config
                .check(&SHAPE)
                .unwrap_or_else(|error| panic!("{kind}: {error}"));
            config.resolve(&LENGTHS);
        }
    }
    // Only what turns pairs of dimensions needs an even head.
    let odd = ModelShape {
        d_model: 35,
        n_layers: 1,
        n_heads: 5,
        head_dim: 7,
    };
    for kind in EncodingConfig::KINDS {
        let Some(config) = EncodingConfig::default_of(kind) else {
            continue;
        };
        // PoPE turns single dimensions.
        let pairs = config.facts(&SHAPE).rotates_qk && *kind != "pope";
        assert_eq!(config.check(&odd).is_err(), pairs, "{kind}");
    }
}

#[test]
fn what_is_resolved_passes_its_check_at_every_length() {
    for value in all_values() {
        for (train_len, test_len) in [(1, 1), (2, 2), (3, 4096), (40, 40), (512, 131_072)] {
            let mut config = config(value.clone());
            config.resolve(&Lengths {
                train_len,
                trained_len: train_len,
                test_len,
            });
            config
                .check(&SHAPE)
                .unwrap_or_else(|error| panic!("{value} at {train_len} and {test_len}: {error}"));
        }
    }
}

/// Configurations, a key of each, and its value trained at 64 and at 2 and tested at 256.
const BY_LENGTH: &str = r#"
{"kind": "rerope"} | window | 32 | 1
{"kind": "self_extend"} | window | 32 | 1
{"kind": "self_extend"} | group | 8 | 256
{"kind": "log_scaling"} | original_max_position_embeddings | 64 | 2
{"kind": "alibi", "factor": "auto"} | factor | 4.0 | 128.0
{"kind": "learned_bias"} | max_distance | 63 | 1
{"kind": "window"} | size | 64 | 2
{"kind": "shaw"} | max_distance | 16 | 1
{"kind": "deberta"} | max_distance | 64 | 2
{"kind": "cope"} | max_position | 64 | 2
"#;

#[test]
#[expect(clippy::too_many_lines, reason = "a table of keys and values")]
fn resolving_replaces_what_depends_on_lengths_and_nothing_else() {
    let resolved = |value: Value, train_len: usize, test_len: usize| {
        let mut config = config(value);
        config.resolve(&Lengths {
            train_len,
            trained_len: train_len,
            test_len,
        });
        let once = config.clone();
        config.resolve(&Lengths {
            train_len: 7,
            trained_len: 7,
            test_len: 7777,
        });
        assert_eq!(config, once, "resolving twice changes nothing");
        serde_json::to_value(&config).expect("plain data")
    };
    for kind in ["linear", "ntk", "ntk_by_parts", "yarn", "llama3"] {
        let factor_of = |scaling: Value, train_len: usize, test_len: usize| {
            let scaling = resolved(
                json!({"kind": "rope", "scaling": scaling}),
                train_len,
                test_len,
            )["scaling"]
                .clone();
            (
                scaling["factor"].as_f64().expect("a number"),
                scaling["original_max_position_embeddings"]
                    .as_u64()
                    .expect("a length"),
            )
        };
        assert_eq!(
            factor_of(json!({"kind": kind}), 64, 256),
            (4.0, 64),
            "{kind}"
        );
        assert_eq!(
            factor_of(json!({"kind": kind}), 64, 96),
            (1.5, 64),
            "{kind}: not rounded"
        );
        assert_eq!(
            factor_of(json!({"kind": kind}), 64, 32),
            (1.0, 64),
            "{kind}: never below 1"
        );
        assert_eq!(
            factor_of(json!({"kind": kind, "factor": 3.0}), 64, 256),
            (3.0, 64),
            "{kind}: a given factor stays"
        );
        let original = json!({"kind": kind, "original_max_position_embeddings": 128});
        assert_eq!(
            factor_of(original, 64, 256),
            (2.0, 128),
            "{kind}: a given length counts"
        );
    }
    let dynamic = resolved(
        json!({"kind": "rope", "scaling": {"kind": "dynamic_ntk"}}),
        64,
        256,
    );
    assert_eq!(
        dynamic["scaling"],
        json!({"kind": "dynamic_ntk", "factor": 1.0, "original_max_position_embeddings": 64})
    );
    assert_eq!(
        resolved(json!({"kind": "learned"}), 64, 256)["max_position"],
        64
    );
    assert_eq!(
        resolved(json!({"kind": "learned", "max_position": 9}), 64, 256)["max_position"],
        9
    );
    let stack = resolved(
        json!({"kind": "stack", "parts": [{"kind": "learned"}, {"kind": "rope", "scaling": {"kind": "yarn"}}]}),
        64,
        256,
    );
    assert_eq!(
        (
            stack["parts"][0]["max_position"].clone(),
            stack["parts"][1]["scaling"]["factor"].clone()
        ),
        (json!(64), json!(4.0))
    );
    let layers = resolved(
        json!({"kind": "nope_layers", "part": {"kind": "learned"}}),
        64,
        256,
    );
    assert_eq!(
        (
            layers["every"].clone(),
            layers["part"]["max_position"].clone()
        ),
        (json!(4), json!(64))
    );
    for row in lines(BY_LENGTH) {
        let [value, key, at_64, at_2] = cells(row);
        let [value, at_64, at_2] =
            [value, at_64, at_2].map(|text| serde_json::from_str::<Value>(text).expect(text));
        assert_eq!(
            resolved(value.clone(), 64, 256)[key],
            at_64,
            "{value}: {key}"
        );
        assert_eq!(resolved(value.clone(), 2, 256)[key], at_2, "{value}: {key}");
    }
    for plain in [
        json!({"kind": "nope"}),
        json!({"kind": "alibi"}),
        json!({"kind": "rope"}),
        json!({"kind": "sinusoidal"}),
    ] {
        assert_eq!(
            resolved(plain.clone(), 64, 256),
            serde_json::to_value(config(plain)).expect("plain data")
        );
    }
}

#[test]
fn lengths_that_are_left_out_mean_those_trained_on_before() {
    // A model of 32 tokens that is trained on at 128.
    let resolved = |config: Value, trained_len: usize| {
        let mut config: EncodingConfig = serde_json::from_value(config).expect("a config");
        config.resolve(&Lengths {
            train_len: 128,
            trained_len,
            test_len: 128,
        });
        serde_json::to_value(&config).expect("plain data")
    };
    for kind in ["yarn", "linear", "ntk", "ntk_by_parts"] {
        let scaling = json!({"kind": "rope", "scaling": {"kind": kind}});
        let scaling = &resolved(scaling, 32)["scaling"];
        assert_eq!(scaling["factor"], 4.0, "{kind}: 128 / 32");
        if kind != "linear" && kind != "ntk" {
            assert_eq!(scaling["original_max_position_embeddings"], 32, "{kind}");
        }
    }
    assert_eq!(
        resolved(json!({"kind": "alibi", "factor": "auto"}), 32)["factor"],
        4.0
    );
    // With a factor given, the length of these changes nothing, and stays that of the training.
    for kind in ["linear", "ntk"] {
        let scaling = json!({"kind": "rope", "scaling": {"kind": kind, "factor": 4}});
        let scaling = &resolved(scaling, 32)["scaling"];
        assert_eq!(scaling["original_max_position_embeddings"], 128, "{kind}");
    }
    let lengths = [
        ("string", "shift", 10),
        ("dual_chunk", "chunk_size", 24),
        ("rerope", "window", 16),
        ("self_extend", "window", 16),
        ("window", "size", 32),
    ];
    for (kind, key, expected) in lengths {
        let found = &resolved(json!({ "kind": kind }), 32)[key];
        assert_eq!(found, &json!(expected), "{kind}");
    }
    for kind in ["log_scaling", "fope", "mobius"] {
        let of = |trained: usize| resolved(json!({ "kind": kind }), trained);
        assert_ne!(of(32), of(128), "{kind}");
    }
    // Tables are trained in the training that has them, and are as long as its sequences.
    for kind in [
        "learned",
        "deberta",
        "shaw",
        "learned_bias",
        "relative_projection",
        "cope",
    ] {
        let of = |trained: usize| resolved(json!({ "kind": kind }), trained);
        assert_eq!(of(32), of(128), "{kind}");
    }
}
