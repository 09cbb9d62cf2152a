//! Values an encoding cannot work with are refused, with the key that is wrong.

use crate::common::{LENGTHS, SHAPE, all_configs, config};
use posenc::{EncodingConfig, ModelShape};
use serde_json::{Value, json};

/// `value` with other options.
fn with(mut value: Value, options: Value) -> Value {
    value
        .as_object_mut()
        .expect("a table")
        .extend(options.as_object().expect("a table").clone());
    value
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of values and keys")]
fn every_refusal_names_its_key() {
    let shape = |head_dim: usize| ModelShape {
        d_model: 4 * head_dim,
        n_layers: 2,
        n_heads: 4,
        head_dim,
    };
    let of = |kind: &str, options: Value| with(json!({"kind": kind}), options);
    let scaled = |kind: &str, options: Value| json!({"kind": "rope", "scaling": with(json!({"kind": kind}), options)});
    let original = "original_max_position_embeddings";
    let ones = json!([1.0, 1.0, 1.0, 1.0]);
    let longrope = |options: Value| {
        scaled(
            "longrope",
            with(json!({"short_factor": ones, "long_factor": ones}), options),
        )
    };
    let mut refused: Vec<(Value, usize, &str)> = vec![
        (of("rope", json!({"rotary_dim": 8})), 7, "rotary_dim"),
        (of("sinusoidal", json!({"scale": 0.0})), 8, "scale"),
        (of("sinusoidal", json!({"scale": -1.0})), 8, "scale"),
        (of("learned", json!({"max_position": 0})), 8, "max_position"),
        (
            of("learned", json!({"max_position": 100_000_000})),
            8,
            "max_position",
        ),
        (of("xpos", json!({"gamma": 0.0})), 8, "gamma"),
        (of("xpos", json!({"gamma": 1e4})), 8, "gamma"),
        (of("xpos", json!({"scale_base": 0.0})), 8, "scale_base"),
        (of("xpos", json!({"block_size": 0})), 8, "block_size"),
        (of("axial_rope", json!({"axes": 1})), 8, "axes"),
        (of("axial_rope", json!({"axes": 4})), 8, "axes"),
        (of("axial_rope", json!({})), 7, "axes"),
        (of("axial_rope", json!({})), 2, "axes"),
        (of("axial_rope", json!({"axes": 3})), 4, "axes"),
        (
            of("axial_rope", json!({"axes": 3, "mode": "mixed"})),
            8,
            "axes",
        ),
        (of("axial_rope", json!({"sections": [3, 5]})), 8, "sections"),
        (of("axial_rope", json!({"sections": [0, 8]})), 8, "sections"),
        (of("axial_rope", json!({"sections": [2, 4]})), 8, "sections"),
        (
            of("axial_rope", json!({"sections": [2, 2, 4]})),
            8,
            "sections",
        ),
        (
            of(
                "axial_rope",
                json!({"mode": "sectioned", "sections": [4, 4]}),
            ),
            8,
            "sections",
        ),
        (
            of(
                "axial_rope",
                json!({"mode": "sectioned", "sections": [0, 4]}),
            ),
            8,
            "sections",
        ),
        (
            of(
                "axial_rope",
                json!({"mode": "interleaved", "sections": [2, 2]}),
            ),
            8,
            "sections",
        ),
        (
            of("axial_rope", json!({"mode": "mixed", "sections": [2, 2]})),
            8,
            "sections",
        ),
        (of("rerope", json!({"window": 0})), 8, "window"),
        (of("rerope", json!({"leak": 0.5})), 8, "leak"),
        (of("self_extend", json!({"window": 0})), 8, "window"),
        (of("self_extend", json!({"group": 0})), 8, "group"),
        (
            scaled("hope", json!({original: 0})),
            8,
            "scaling.original_max_position_embeddings",
        ),
        (
            scaled("resonance", json!({"periods": []})),
            8,
            "scaling.periods",
        ),
        (
            scaled("resonance", json!({"periods": [2, 3, 4, 5, 6]})),
            8,
            "scaling.periods",
        ),
        (
            scaled("resonance", json!({"periods": [2, 0]})),
            8,
            "scaling.periods.1",
        ),
        (
            with(
                scaled("resonance", json!({"periods": [2]})),
                json!({"base": 7.0}),
            ),
            8,
            "base",
        ),
        (
            with(
                scaled("resonance", json!({"periods": [2]})),
                json!({"spacing": "linear"}),
            ),
            8,
            "spacing",
        ),
        (of("darope", json!({original: 0})), 8, original),
        (of("darope", json!({"base": 1.0})), 8, "base"),
        (of("waveprune", json!({"base": 1.0})), 8, "base"),
        (of("waveprune", json!({"rotary_dim": 3})), 8, "rotary_dim"),
        (of("repo", json!({"width": 0})), 8, "width"),
        (of("repo", json!({"base": 1.0})), 8, "base"),
        (of("log_scaling", json!({original: 1})), 8, original),
        (of("log_scaling", json!({"strength": -0.1})), 8, "strength"),
        (of("alibi", json!({"factor": 0.5})), 8, "factor"),
        (of("alibi", json!({"slope_scale": 0.0})), 8, "slope_scale"),
        (
            of("alibi", json!({"log_distance": true, "asymmetric": true})),
            8,
            "log_distance",
        ),
        (of("t5", json!({"num_buckets": 0})), 8, "num_buckets"),
        (of("t5", json!({"num_buckets": 31})), 8, "num_buckets"),
        (
            of("t5", json!({"num_buckets": 2, "bidirectional": true})),
            8,
            "num_buckets",
        ),
        (
            of("t5", json!({"num_buckets": 30, "bidirectional": true})),
            8,
            "num_buckets",
        ),
        (of("t5", json!({"max_distance": 0})), 8, "max_distance"),
        (of("t5", json!({"max_distance": 16})), 8, "max_distance"),
        (
            of("t5", json!({"max_distance": 8, "bidirectional": true})),
            8,
            "max_distance",
        ),
        (of("fire", json!({"hidden": 0})), 8, "hidden"),
        (of("fire", json!({"hidden": 5000})), 8, "hidden"),
        (of("fire", json!({"init_c": 0.0})), 8, "init_c"),
        (of("fire", json!({"threshold": 0.0})), 8, "threshold"),
        (of("sandwich", json!({"width": 0})), 8, "width"),
        (of("sandwich", json!({"width": 7})), 8, "width"),
        (
            of("learned_bias", json!({"max_distance": 0})),
            8,
            "max_distance",
        ),
        (
            of("hard_alibi", json!({"masked_heads": 0})),
            8,
            "masked_heads",
        ),
        (
            of("hard_alibi", json!({"masked_heads": 5})),
            8,
            "masked_heads",
        ),
        (of("formula", json!({"bias": "-m * d"})), 8, "bias"),
        (of("formula", json!({"bias": "-(d"})), 8, "bias"),
        (of("formula", json!({"bias": "-log(d)"})), 8, "bias"),
        (of("formula", json!({"bias": "-q * d"})), 8, "bias"),
        // Undefined at a layer, a distance or a query, or beyond f32.
        (of("formula", json!({"bias": "-d / (2 - l)"})), 8, "bias"),
        (of("formula", json!({"bias": "1 / (d - 5)"})), 8, "bias"),
        (of("formula", json!({"bias": "log(d - t + 1)"})), 8, "bias"),
        (of("formula", json!({"bias": "1e37 * d"})), 8, "bias"),
        (of("formula", json!({"bias": "1e39 - d"})), 8, "bias"),
        (of("formula", json!({"bias": "(0 - 1)^d"})), 8, "bias"),
        (
            of("formula", json!({"bias": "(0 - d)^17 / 1e9"})),
            8,
            "bias",
        ),
        (of("formula", json!({"bias": "log(0)"})), 8, "bias"),
        (of("formula", json!({"bias": "log(h - 1)"})), 8, "bias"),
        (
            of("formula", json!({"bias": "-m * d", "train": {"d": 1.0}})),
            8,
            "train.d",
        ),
        (
            of("formula", json!({"bias": "d", "inv_freq": "1 / i"})),
            8,
            "inv_freq",
        ),
        (of("formula", json!({"inv_freq": "2^-i"})), 7, "inv_freq"),
        (
            of(
                "formula",
                json!({"bias": "-m * d", "values": {"m": [1.0, 2.0]}}),
            ),
            8,
            "values.m",
        ),
        (
            of("formula", json!({"bias": "-d", "values": {"m": 1.0}})),
            8,
            "values.m",
        ),
        (
            of("formula", json!({"bias": "-d", "values": {"exp": 1.0}})),
            8,
            "values.exp",
        ),
        (
            of(
                "formula",
                json!({"bias": "-m*d", "values": {"m": 1.0}, "train": {"m": 1.0}}),
            ),
            8,
            "values.m",
        ),
        (
            of("formula", json!({"inv_freq": "b^-i", "train": {"b": 2.0}})),
            8,
            "train.b",
        ),
        (of("window", json!({"size": 0})), 8, "size"),
        (
            of("window", json!({"sinks": 10_000_000_000u64})),
            8,
            "sinks",
        ),
        (of("shaw", json!({"max_distance": 0})), 8, "max_distance"),
        (of("deberta", json!({"max_distance": 1})), 8, "max_distance"),
        (of("deberta", json!({"buckets": 3})), 8, "buckets"),
        (
            of("deberta", json!({"buckets": 8, "max_distance": 5})),
            8,
            "buckets",
        ),
        (of("cope", json!({"max_position": 1})), 8, "max_position"),
        (of("fox", json!({"init_bias": 30.0})), 8, "init_bias"),
        (
            of("nope_layers", json!({"every": 1, "part": {"kind": "rope"}})),
            8,
            "every",
        ),
        (
            of(
                "nope_layers",
                json!({"every": 2000, "part": {"kind": "rope"}}),
            ),
            8,
            "every",
        ),
        (
            of(
                "nope_layers",
                json!({"part": {"kind": "rope", "base": 0.0}}),
            ),
            8,
            "part.base",
        ),
        (of("stack", json!({"parts": []})), 8, "parts"),
        (
            of("stack", json!({"parts": vec![json!({"kind": "nope"}); 17]})),
            8,
            "parts",
        ),
        (
            of(
                "stack",
                json!({"parts": [{"kind": "nope"}, {"kind": "rope", "base": 0.0}]}),
            ),
            8,
            "parts.1.base",
        ),
        (
            of(
                "stack",
                json!({"parts": [of("stack", json!({"parts": [scaled("linear", json!({"factor": 0.5}))]}))]}),
            ),
            8,
            "parts.0.parts.0.scaling.factor",
        ),
        (scaled("ntk", json!({})), 2, "scaling.kind"),
        (scaled("dynamic_ntk", json!({})), 2, "scaling.kind"),
        (
            json!({"kind": "rope", "rotary_dim": 2, "scaling": {"kind": "ntk"}}),
            8,
            "scaling.kind",
        ),
        (
            scaled("dynamic_ntk", json!({"factor": 0.5})),
            8,
            "scaling.factor",
        ),
        (
            scaled(
                "yarn",
                json!({"attention_factor": 1.2, "mscale": 1.0, "mscale_all_dim": 1.0}),
            ),
            8,
            "scaling.mscale",
        ),
        (
            json!({"kind": "rope", "spacing": "linear", "base": 500.0}),
            8,
            "base",
        ),
        (of("mobius", json!({"fraction": 0.0})), 8, "fraction"),
        (of("log_scaling", json!({"strength": 0.2})), 8, "strength"),
        (scaled("yarn", json!({"mscale": 1.0})), 8, "scaling.mscale"),
        (
            scaled("yarn", json!({"scale_logits": true})),
            8,
            "scaling.scale_logits",
        ),
        (of("alibi", json!({"slopes": [0.5]})), 8, "slopes"),
        (
            of("alibi", json!({"slopes": [0.5, -0.5, 0.5, 0.5]})),
            8,
            "slopes.1",
        ),
        (
            scaled("yarn", json!({"mscale_all_dim": 1.0})),
            8,
            "scaling.mscale_all_dim",
        ),
        (
            scaled("yarn", json!({"mscale": -1.0, "mscale_all_dim": 1.0})),
            8,
            "scaling.mscale",
        ),
        (
            scaled("yarn", json!({"mscale": 1.0, "mscale_all_dim": -1.0})),
            8,
            "scaling.mscale_all_dim",
        ),
        (longrope(json!({"factor": 0.5})), 8, "scaling.factor"),
        (
            longrope(json!({original: 0})),
            8,
            "scaling.original_max_position_embeddings",
        ),
        (
            longrope(json!({"attention_factor": 0.0})),
            8,
            "scaling.attention_factor",
        ),
        (
            longrope(json!({"short_factor": [1.0, 1.0, 1.0]})),
            8,
            "scaling.short_factor",
        ),
        (
            longrope(json!({"long_factor": [1.0, 1.0, 1.0, 1.0, 1.0]})),
            8,
            "scaling.long_factor",
        ),
        (
            longrope(json!({"long_factor": [1.0, 1.0, 0.0, 1.0]})),
            8,
            "scaling.long_factor.2",
        ),
        (
            scaled("proportional", json!({"fraction": -0.1})),
            8,
            "scaling.fraction",
        ),
        (
            scaled("proportional", json!({"fraction": 1.1})),
            8,
            "scaling.fraction",
        ),
    ];
    for kind in ["rope", "xpos", "rerope", "self_extend"] {
        refused.push((of(kind, json!({})), 7, "rotary_dim"));
        refused
            .extend([3, 0, 10].map(|dim| (of(kind, json!({"rotary_dim": dim})), 8, "rotary_dim")));
    }
    for kind in [
        "rope",
        "sinusoidal",
        "xpos",
        "axial_rope",
        "pope",
        "rerope",
        "self_extend",
        "transformer_xl",
    ] {
        refused.extend([1.0, -10.0, 1e16].map(|base| (of(kind, json!({"base": base})), 8, "base")));
    }
    for kind in [
        "learned",
        "t5",
        "learned_bias",
        "shaw",
        "transformer_xl",
        "deberta",
        "cope",
    ] {
        refused.extend([-0.1, 11.0].map(|std| (of(kind, json!({"init_std": std})), 8, "init_std")));
    }
    for kind in ["linear", "ntk", "ntk_by_parts", "yarn", "llama3"] {
        refused.extend(
            [0.0, 0.99, 1e7]
                .map(|factor| (scaled(kind, json!({"factor": factor})), 8, "scaling.factor")),
        );
    }
    for kind in [
        "linear",
        "ntk",
        "ntk_by_parts",
        "dynamic_ntk",
        "yarn",
        "dynamic_yarn",
        "llama3",
    ] {
        refused.push((
            scaled(kind, json!({original: 0})),
            8,
            "scaling.original_max_position_embeddings",
        ));
    }
    for (kind, low, high) in [
        ("yarn", "scaling.beta_slow", "scaling.beta_fast"),
        ("dynamic_yarn", "scaling.beta_slow", "scaling.beta_fast"),
        ("ntk_by_parts", "scaling.alpha", "scaling.beta"),
        (
            "llama3",
            "scaling.low_freq_factor",
            "scaling.high_freq_factor",
        ),
    ] {
        let of = |(a, b): (f64, f64)| {
            scaled(
                kind,
                json!({low["scaling.".len()..]: a, high["scaling.".len()..]: b}),
            )
        };
        refused.extend(
            [((32.0, 1.0), high), ((0.0, 8.0), low), ((1.0, 1e9), high)]
                .map(|(x, key)| (of(x), 8, key)),
        );
        // YaRN widens a ramp of no width, and Llama 3 has none then.
        if kind == "ntk_by_parts" {
            refused.push((of((2.0, 2.0)), 8, high));
        }
    }
    for kind in ["yarn", "dynamic_yarn"] {
        refused.push((
            scaled(kind, json!({"attention_factor": 0.0})),
            8,
            "scaling.attention_factor",
        ));
    }
    for kind in ["ntk", "dynamic_ntk", "yarn", "dynamic_yarn"] {
        refused.push((
            json!({"kind": "rope", "spacing": "linear", "scaling": {"kind": kind}}),
            8,
            "spacing",
        ));
    }
    for (value, head_dim, key) in refused {
        let config = config(value.clone());
        let error = config
            .check(&shape(head_dim))
            .expect_err(&value.to_string());
        assert_eq!(error.key, key, "{value}: {error}");
        let parts = [&error.value, &error.problem, &error.allowed, &error.hint];
        assert!(
            parts
                .iter()
                .all(|part| !part.is_empty() && error.to_string().contains(part.as_str())),
            "{error}"
        );
    }
}

#[test]
fn the_ends_of_ranges_are_inside() {
    for value in [
        json!({"kind": "t5", "num_buckets": 2, "max_distance": 2}),
        json!({"kind": "t5", "num_buckets": 4, "max_distance": 2, "bidirectional": true}),
        json!({"kind": "hard_alibi", "masked_heads": 4}),
        json!({"kind": "deberta", "buckets": 8, "max_distance": 6}),
        json!({"kind": "rerope", "leak": 1.0, "window": 1}),
        json!({"kind": "cope", "max_position": 2}),
        json!({"kind": "fire", "hidden": 1}),
        json!({"kind": "sandwich", "width": 2}),
        json!({"kind": "axial_rope", "axes": 3, "sections": [2, 2, 4]}),
        json!({"kind": "rope", "spacing": "linear", "scaling": {"kind": "llama3"}}),
        json!({"kind": "rope", "scaling": {"kind": "proportional", "fraction": 0.0}}),
        json!({"kind": "shaw", "max_distance": 1, "init_std": 0.0}),
    ] {
        let mut config = config(value.clone());
        config
            .check(&SHAPE)
            .unwrap_or_else(|error| panic!("{value}: {error}"));
        config.resolve(&LENGTHS);
        let encoding = crate::common::build_stirred(&config, &SHAPE);
        let logits =
            crate::common::Attention::new(&encoding, &posenc::Positions::contiguous(7), 0, 0)
                .logits();
        assert!(logits.iter().all(|logit| !logit.is_nan()), "{value}");
    }
}

/// `config` with another number at `path`, by way of TOML, which unlike JSON has a word for numbers
/// that are none.
fn with_number(config: &EncodingConfig, path: &str, number: f64) -> EncodingConfig {
    let mut table = toml::Value::try_from(config).expect("plain data");
    let (last, parents) = path
        .rsplit_once('.')
        .map_or((path, ""), |(parents, last)| (last, parents));
    let mut inner = &mut table;
    for key in parents.split('.').filter(|key| !key.is_empty()) {
        inner = match key.parse::<usize>() {
            Ok(index) => &mut inner[index],
            Err(_) => &mut inner[key],
        };
    }
    match inner {
        toml::Value::Array(items) => {
            items[last.parse::<usize>().expect("an index")] = number.into()
        }
        table => drop(
            table
                .as_table_mut()
                .expect("a table")
                .insert(last.to_owned(), number.into()),
        ),
    }
    table
        .try_into()
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Paths of all numbers that need not be whole.
fn fractions(value: &Value, path: &str, found: &mut Vec<String>) {
    let under = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    match value {
        Value::Number(number) if number.is_f64() => found.push(path.to_owned()),
        Value::Object(table) => table
            .iter()
            .for_each(|(key, value)| fractions(value, &under(key), found)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, value)| fractions(value, &under(&i.to_string()), found)),
        _ => {}
    }
}

#[test]
fn numbers_that_are_not_numbers_are_refused() {
    let mut tried = 0;
    let mut refused = |config: &EncodingConfig, path: &str| {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = with_number(config, path, bad)
                .check(&SHAPE)
                .expect_err(path);
            assert_eq!(error.key, path, "{config:?}: {error}");
            tried += 1;
        }
    };
    for (name, config) in all_configs() {
        let value = serde_json::to_value(&config).expect("plain data");
        let mut paths = Vec::new();
        fractions(&value, "", &mut paths);
        for path in paths {
            let same = value
                .pointer(&format!("/{}", path.replace('.', "/")))
                .and_then(Value::as_f64)
                .expect("a number");
            assert_eq!(
                with_number(&config, &path, same),
                config,
                "{name}: nothing else changes"
            );
            refused(&config, &path);
        }
    }
    // Numbers without a default.
    for (value, path) in [
        (
            json!({"kind": "rope", "scaling": {"kind": "yarn"}}),
            "scaling.attention_factor",
        ),
        (
            json!({"kind": "rope", "scaling": {"kind": "dynamic_yarn"}}),
            "scaling.attention_factor",
        ),
        (
            json!({"kind": "rope", "scaling": {"kind": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1]}}),
            "scaling.attention_factor",
        ),
        (json!({"kind": "rerope"}), "leak"),
    ] {
        refused(&config(value), path);
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn the_refusal_of_two_dimensions_names_the_scaling_that_was_asked_for() {
    for kind in ["ntk", "dynamic_ntk"] {
        let rope = config(json!({"kind": "rope", "rotary_dim": 2, "scaling": {"kind": kind}}));
        assert_eq!(rope.check(&SHAPE).expect_err(kind).value, kind);
    }
}
