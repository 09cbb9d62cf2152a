//! Values an encoding cannot work with are refused, with the key that is wrong.

use crate::common::{LENGTHS, SHAPE, all_configs, cells, config, lines};
use posenc::{EncodingConfig, ModelShape};
use serde_json::{Value, json};

/// Refused at heads of 8 dimensions: a table, and the key at fault.
const REFUSED: &str = "
kind = 'sinusoidal', scale = 0.0 | scale
kind = 'sinusoidal', scale = -1.0 | scale
kind = 'learned', max_position = 0 | max_position
kind = 'learned', max_position = 100000000 | max_position
kind = 'xpos', gamma = 0.0 | gamma
kind = 'xpos', gamma = 10000.0 | gamma
kind = 'xpos', scale_base = 0.0 | scale_base
kind = 'xpos', block_size = 0 | block_size
kind = 'axial_rope', axes = 1 | axes
kind = 'axial_rope', axes = 4 | axes
kind = 'axial_rope', axes = 3, mode = 'mixed' | axes
kind = 'axial_rope', sections = [3, 5] | sections
kind = 'axial_rope', sections = [0, 8] | sections
kind = 'axial_rope', sections = [2, 4] | sections
kind = 'axial_rope', sections = [2, 2, 4] | sections
kind = 'axial_rope', mode = 'sectioned', sections = [4, 4] | sections
kind = 'axial_rope', mode = 'sectioned', sections = [0, 4] | sections
kind = 'axial_rope', mode = 'interleaved', sections = [2, 2] | sections
kind = 'axial_rope', mode = 'mixed', sections = [2, 2] | sections
kind = 'rerope', window = 0 | window
kind = 'rerope', leak = 0.5 | leak
kind = 'self_extend', window = 0 | window
kind = 'self_extend', group = 0 | group
kind = 'rope', scaling = {kind = 'resonance', periods = [2]}, base = 7.0 | base
kind = 'rope', scaling = {kind = 'resonance', periods = [2]}, spacing = 'linear' | spacing
kind = 'darope', original_max_position_embeddings = 0 | original_max_position_embeddings
kind = 'darope', base = 1.0 | base
kind = 'waveprune', base = 1.0 | base
kind = 'waveprune', rotary_dim = 3 | rotary_dim
kind = 'repo', width = 0 | width
kind = 'repo', base = 1.0 | base
kind = 'log_scaling', original_max_position_embeddings = 1 | original_max_position_embeddings
kind = 'log_scaling', strength = -0.1 | strength
kind = 'alibi', factor = 0.5 | factor
kind = 'alibi', slope_scale = 0.0 | slope_scale
kind = 'alibi', log_distance = true, asymmetric = true | log_distance
kind = 't5', num_buckets = 0 | num_buckets
kind = 't5', num_buckets = 31 | num_buckets
kind = 't5', num_buckets = 2, bidirectional = true | num_buckets
kind = 't5', num_buckets = 30, bidirectional = true | num_buckets
kind = 't5', max_distance = 0 | max_distance
kind = 't5', max_distance = 16 | max_distance
kind = 't5', max_distance = 8, bidirectional = true | max_distance
kind = 'fire', hidden = 0 | hidden
kind = 'fire', hidden = 5000 | hidden
kind = 'fire', init_c = 0.0 | init_c
kind = 'fire', threshold = 0.0 | threshold
kind = 'sandwich', width = 0 | width
kind = 'sandwich', width = 7 | width
kind = 'learned_bias', max_distance = 0 | max_distance
kind = 'hard_alibi', masked_heads = 0 | masked_heads
kind = 'hard_alibi', masked_heads = 5 | masked_heads
kind = 'formula', bias = '-m * d' | bias
kind = 'formula', bias = '-(d' | bias
kind = 'formula', bias = '-log(d)' | bias
kind = 'formula', bias = '-q * d' | bias
# Undefined at a layer, a distance or a query, or beyond f32.
kind = 'formula', bias = '-d / (2 - l)' | bias
kind = 'formula', bias = '1 / (d - 5)' | bias
kind = 'formula', bias = 'log(d - t + 1)' | bias
kind = 'formula', bias = '1e37 * d' | bias
kind = 'formula', bias = '1e39 - d' | bias
kind = 'formula', bias = '(0 - 1)^d' | bias
kind = 'formula', bias = '(0 - d)^17 / 1e9' | bias
kind = 'formula', bias = 'log(0)' | bias
kind = 'formula', bias = 'log(h - 1)' | bias
kind = 'formula', bias = '-m * d', train = {d = 1.0} | train.d
kind = 'formula', bias = 'd', inv_freq = '1 / i' | inv_freq
kind = 'formula', bias = '-m * d', values = {m = [1.0, 2.0]} | values.m
kind = 'formula', bias = '-d', values = {m = 1.0} | values.m
kind = 'formula', bias = '-d', values = {exp = 1.0} | values.exp
kind = 'formula', bias = '-m*d', values = {m = 1.0}, train = {m = 1.0} | values.m
kind = 'formula', inv_freq = 'b^-i', train = {b = 2.0} | train.b
kind = 'window', size = 0 | size
kind = 'window', sinks = 10000000000 | sinks
kind = 'shaw', max_distance = 0 | max_distance
kind = 'deberta', max_distance = 1 | max_distance
kind = 'deberta', buckets = 3 | buckets
kind = 'deberta', buckets = 8, max_distance = 5 | buckets
kind = 'cope', max_position = 1 | max_position
kind = 'fox', init_bias = 30.0 | init_bias
kind = 'nope_layers', every = 1, part = {kind = 'rope'} | every
kind = 'nope_layers', every = 2000, part = {kind = 'rope'} | every
kind = 'nope_layers', part = {kind = 'rope', base = 0.0} | part.base
kind = 'stack', parts = [] | parts
kind = 'stack', parts = [{kind = 'nope'}, {kind = 'rope', base = 0.0}] | parts.1.base
kind = 'rope', rotary_dim = 2, scaling = {kind = 'ntk'} | scaling.kind
kind = 'rope', spacing = 'linear', base = 500.0 | base
kind = 'mobius', fraction = 0.0 | fraction
kind = 'log_scaling', strength = 0.2 | strength
kind = 'alibi', slopes = [0.5] | slopes
kind = 'alibi', slopes = [0.5, -0.5, 0.5, 0.5] | slopes.1
kind = 'rope', spacing = 'linear', scaling = {kind = 'ntk'} | spacing
kind = 'rope', spacing = 'linear', scaling = {kind = 'dynamic_ntk'} | spacing
kind = 'rope', spacing = 'linear', scaling = {kind = 'yarn'} | spacing
kind = 'rope', spacing = 'linear', scaling = {kind = 'dynamic_yarn'} | spacing
";

/// The same, after the dimensions of a head.
const AT_HEADS: &str = "
7 | kind = 'rope', rotary_dim = 8 | rotary_dim
7 | kind = 'axial_rope' | axes
2 | kind = 'axial_rope' | axes
4 | kind = 'axial_rope', axes = 3 | axes
7 | kind = 'formula', inv_freq = '2^-i' | inv_freq
2 | kind = 'rope', scaling = {kind = 'ntk'} | scaling.kind
2 | kind = 'rope', scaling = {kind = 'dynamic_ntk'} | scaling.kind
7 | kind = 'rope' | rotary_dim
7 | kind = 'xpos' | rotary_dim
7 | kind = 'rerope' | rotary_dim
7 | kind = 'self_extend' | rotary_dim
";

/// Scalings of RoPE, the factors of LongRoPE as [`ONES`], and the key at fault, of the scaling.
const SCALINGS: &str = "
kind = 'hope', original_max_position_embeddings = 0 | original_max_position_embeddings
kind = 'resonance', periods = [] | periods
kind = 'resonance', periods = [2, 3, 4, 5, 6] | periods
kind = 'resonance', periods = [2, 0] | periods.1
kind = 'dynamic_ntk', factor = 0.5 | factor
kind = 'yarn', attention_factor = 1.2, mscale = 1.0, mscale_all_dim = 1.0 | mscale
kind = 'yarn', mscale = 1.0 | mscale
kind = 'yarn', scale_logits = true | scale_logits
kind = 'yarn', mscale_all_dim = 1.0 | mscale_all_dim
kind = 'yarn', mscale = -1.0, mscale_all_dim = 1.0 | mscale
kind = 'yarn', mscale = 1.0, mscale_all_dim = -1.0 | mscale_all_dim
kind = 'longrope', ONES, factor = 0.5 | factor
kind = 'longrope', ONES, original_max_position_embeddings = 0 | original_max_position_embeddings
kind = 'longrope', ONES, attention_factor = 0.0 | attention_factor
kind = 'longrope', short_factor = [1, 1, 1], long_factor = [1, 1, 1, 1] | short_factor
kind = 'longrope', short_factor = [1, 1, 1, 1], long_factor = [1, 1, 1, 1, 1] | long_factor
kind = 'longrope', short_factor = [1, 1, 1, 1], long_factor = [1, 1, 0, 1] | long_factor.2
kind = 'proportional', fraction = -0.1 | fraction
kind = 'proportional', fraction = 1.1 | fraction
# YaRN widens a ramp of no width, and Llama 3 has none then.
kind = 'ntk_by_parts', alpha = 2.0, beta = 2.0 | beta
";

/// Four factors, for both lengths.
const ONES: &str = "short_factor = [1, 1, 1, 1], long_factor = [1, 1, 1, 1]";

/// Values that several kinds refuse: the kinds, the key and the values.
const SHARED: &str = "
rope xpos rerope self_extend | rotary_dim | 3 0 10
rope sinusoidal xpos axial_rope pope rerope self_extend transformer_xl | base | 1.0 -10.0 1e16
learned t5 learned_bias shaw transformer_xl deberta cope | init_std | -0.1 11.0
";

/// The same of scalings.
const OF_SCALINGS: &str = "
linear ntk ntk_by_parts yarn llama3 | factor | 0.0 0.99 1e7
linear ntk ntk_by_parts dynamic_ntk yarn dynamic_yarn llama3 | original_max_position_embeddings | 0
yarn dynamic_yarn | attention_factor | 0.0
";

/// A configuration in TOML.
fn read(table: &str) -> EncodingConfig {
    let all: toml::Table = toml::from_str(&format!("x = {{{table}}}")).expect(table);
    all["x"].clone().try_into().expect(table)
}

fn scaled(scaling: &str) -> String {
    format!("kind = 'rope', scaling = {{{scaling}}}")
}

/// Refuses a table for a given head dimension, and names the key at fault.
fn refused(head_dim: usize, table: &str, key: &str) {
    let shape = ModelShape {
        d_model: 4 * head_dim,
        n_layers: 2,
        n_heads: 4,
        head_dim,
    };
    let error = read(table).check(&shape).expect_err(table);
    assert_eq!(error.key, key, "{table}: {error}");
    let parts = [&error.value, &error.problem, &error.allowed, &error.hint];
    assert!(
        parts
            .iter()
            .all(|part| !part.is_empty() && error.to_string().contains(part.as_str())),
        "{error}"
    );
}

fn refused_scaling(scaling: &str, key: &str) {
    refused(8, &scaled(scaling), &format!("scaling.{key}"));
}

/// For the tables of one key each that the rows of [`SHARED`] mean, and that key.
fn each_of(rows: &str, refused: impl Fn(&str, &str)) {
    for row in lines(rows) {
        let [kinds, key, values] = cells(row);
        for kind in kinds.split(' ') {
            for value in values.split(' ') {
                refused(&format!("kind = '{kind}', {key} = {value}"), key);
            }
        }
    }
}

#[test]
fn every_refusal_names_its_key() {
    for row in lines(REFUSED) {
        let [table, key] = cells(row);
        refused(8, table, key);
    }
    for row in lines(AT_HEADS) {
        let [head_dim, table, key] = cells(row);
        refused(head_dim.parse().expect(row), table, key);
    }
    for row in lines(SCALINGS) {
        let [scaling, key] = cells(row);
        refused_scaling(&scaling.replace("ONES", ONES), key);
    }
    each_of(SHARED, |table, key| refused(8, table, key));
    each_of(OF_SCALINGS, refused_scaling);
    for (kind, low, high) in [
        ("yarn", "beta_slow", "beta_fast"),
        ("dynamic_yarn", "beta_slow", "beta_fast"),
        ("ntk_by_parts", "alpha", "beta"),
        ("llama3", "low_freq_factor", "high_freq_factor"),
    ] {
        let of = |a: f64, b: f64| format!("kind = '{kind}', {low} = {a:?}, {high} = {b:?}");
        refused_scaling(&of(32.0, 1.0), high);
        refused_scaling(&of(0.0, 8.0), low);
        refused_scaling(&of(1.0, 1e9), high);
    }
    let many = format!(
        "kind = 'stack', parts = [{}]",
        "{kind = 'nope'},".repeat(17)
    );
    refused(8, &many, "parts");
    let inner = scaled("kind = 'linear', factor = 0.5");
    let deep = format!("kind = 'stack', parts = [{{kind = 'stack', parts = [{{{inner}}}]}}]");
    refused(8, &deep, "parts.0.parts.0.scaling.factor");
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

/// `config` with another number at `path`, via TOML, which unlike JSON has NaN and infinities.
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
fn nan_and_infinity_are_refused() {
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
    let longrope = format!("kind = 'longrope', {ONES}");
    for scaling in ["kind = 'yarn'", "kind = 'dynamic_yarn'", &longrope] {
        refused(&read(&scaled(scaling)), "scaling.attention_factor");
    }
    refused(&read("kind = 'rerope'"), "leak");
    assert!(tried > 300, "{tried}");
}

#[test]
fn the_refusal_of_two_dimensions_names_the_scaling_that_was_asked_for() {
    for kind in ["ntk", "dynamic_ntk"] {
        let rope = config(json!({"kind": "rope", "rotary_dim": 2, "scaling": {"kind": kind}}));
        assert_eq!(rope.check(&SHAPE).expect_err(kind).value, kind);
    }
}
