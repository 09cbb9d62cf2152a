//! What an encoding declares is what is observed: hooks, parameters, limits, properties.

use super::{bias_block, cut, device, input, prepare};
use crate::common::{
    Attention, LENGTHS, SHAPE, all_configs, all_values, build, build_stirred, config, draw, host,
    largest_difference, logits, parameters, random,
};
use burn::module::Module;
use burn::tensor::Tensor;
use posenc::encodings::RopeConfig;
use posenc::{
    Bias, Context, EncodingConfig, Facts, Hooks, Init, Ops, PlainOps, PositionalEncoding,
    Positions, PositionsConfig, PrepareError, RopeScaling,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn the_list_names_every_kind_once() {
    let mut kinds: Vec<String> = EncodingConfig::KINDS
        .iter()
        .map(|k| (*k).to_owned())
        .collect();
    kinds.sort();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/encodings");
    let files = std::fs::read_dir(folder).expect("the encodings' files");
    let stem = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        path.file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let mut files: Vec<String> = files.map(stem).filter(|name| name != "mod").collect();
    files.sort();
    assert_eq!(files, kinds, "one file for each kind, named like it");
    for (_, config) in all_configs() {
        let about = config.about();
        assert!(!about.summary.is_empty() && !about.formula.is_empty() && !about.source.is_empty());
    }
    for kind in EncodingConfig::KINDS {
        let example = EncodingConfig::example(kind).expect("every kind has an example");
        assert_eq!(example.kind(), *kind);
        assert_eq!(
            EncodingConfig::default_of(kind).is_none(),
            !example.parts().is_empty() || *kind == "formula",
            "{kind}: only parts and formulas have no default"
        );
    }
    assert!(EncodingConfig::example("rpoe").is_none());
    assert!(EncodingConfig::default_of("rpoe").is_none());
    assert_eq!(
        EncodingConfig::default_of("rope"),
        Some(EncodingConfig::Rope(RopeConfig::default()))
    );
}

/// Every table in a configuration, with what tells its kind: `kind` alone, or that of the scaling
/// inside a rope.
fn tables<'a>(value: &'a Value, under: &str, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| tables(item, under, found)),
        Value::Object(table) => {
            // Numbers by name, as `formula` has them, are not a table of their own.
            let Some(kind) = table.get("kind").and_then(Value::as_str) else {
                return;
            };
            let kind = format!("{under}{kind}");
            for (key, inner) in table {
                tables(inner, if key == "scaling" { "scaling." } else { "" }, found);
            }
            found.push((kind, value));
        }
        _ => {}
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one walk over the list")]
fn every_kind_and_every_variant_of_an_option_is_in_the_list() {
    let values = all_values();
    let mut found = Vec::new();
    values
        .iter()
        .for_each(|value| tables(value, "", &mut found));
    let scalings = RopeScaling::KINDS
        .iter()
        .map(|kind| format!("scaling.{kind}"));
    for kind in EncodingConfig::KINDS
        .iter()
        .map(|kind| (*kind).to_owned())
        .chain(scalings)
    {
        assert!(
            found.iter().any(|(of, _)| *of == kind),
            "no configuration of {kind} is tested"
        );
    }
    // The names of an option's variants are what serde lists when it meets another.
    let variants = |table: &Value, key: &str| {
        let mut table = table.clone();
        table[key] = json!("?");
        let error = match table["kind"].as_str() {
            Some(kind) if RopeScaling::KINDS.contains(&kind) => {
                serde_json::from_value::<RopeScaling>(table).err()
            }
            _ => serde_json::from_value::<EncodingConfig>(table).err(),
        };
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        let names = error.split_once("expected").map(|(_, names)| {
            names
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        });
        if error.contains("unknown variant `?`") {
            names.unwrap_or_default()
        } else {
            BTreeSet::new()
        }
    };
    let mut options: BTreeMap<(String, String), (BTreeSet<String>, BTreeSet<String>)> =
        BTreeMap::new();
    // Options that a serialized configuration has at their default too.
    let mut serialized: BTreeSet<(String, String)> = BTreeSet::new();
    for (kind, table) in &found {
        let defaults = match kind.split_once('.') {
            Some((_, kind)) => {
                RopeScaling::default_of(kind).and_then(|scaling| serde_json::to_value(scaling).ok())
            }
            None => EncodingConfig::default_of(kind)
                .and_then(|config| serde_json::to_value(config).ok()),
        };
        let given = table.as_object().expect("a table");
        let defaults = defaults
            .iter()
            .flat_map(|table| table.as_object().expect("a table"));
        serialized.extend(defaults.clone().map(|(key, _)| (kind.clone(), key.clone())));
        let keys = given.iter().chain(defaults);
        for (key, value) in keys.filter(|(key, _)| *key != "kind") {
            let (seen, possible) = options.entry((kind.clone(), key.clone())).or_default();
            possible.extend(match value {
                Value::Bool(_) => BTreeSet::from(["false".to_owned(), "true".to_owned()]),
                Value::String(_) => variants(table, key),
                _ => BTreeSet::new(),
            });
            let actual = given.get(key).unwrap_or(value);
            seen.insert(
                actual
                    .as_str()
                    .map_or_else(|| actual.to_string(), str::to_owned),
            );
        }
    }
    let mut untested = Vec::new();
    for ((kind, key), (mut seen, possible)) in options {
        // A table without a key that is serialized only at other values has its default.
        let at_default = found
            .iter()
            .any(|(of, table)| *of == kind && table.get(&key).is_none())
            && !serialized.contains(&(kind.clone(), key.clone()));
        if possible.len() == seen.len() + 1 && at_default {
            seen = possible.clone();
        }
        if !possible.is_subset(&seen) {
            untested.push(format!("{kind}.{key}: only {seen:?} of {possible:?}"));
        }
    }
    assert!(untested.is_empty(), "{untested:#?}");
}

/// Positions at which every hook shows: neighbours, and one far away where there is room.
fn telling(facts: &Facts) -> Positions {
    let far = facts
        .max_position_without_axes()
        .map_or(100, |limit| limit.min(101) - 1);
    Positions::same([3, 4, 5, 6, 7, far].map(|p| p as f64).to_vec())
}

#[test]
fn declared_hooks_are_the_ones_that_act() {
    for (name, config) in all_configs() {
        let (encoding, facts) = (build_stirred(&config, &SHAPE), config.facts(&SHAPE));
        let mut observed = Hooks::default();
        for layer in 0..SHAPE.n_layers {
            let attention = Attention::new(&encoding, &telling(&facts), layer, 0);
            let (raw, turned) = (&attention.raw, &attention.turned);
            assert_eq!(turned.0.dims()[..3], raw.0.dims()[..3], "{name}");
            assert_eq!(
                turned.0.dims(),
                turned.1.dims(),
                "{name}: q and k stay as wide as each other"
            );
            observed.transform_qk |=
                turned.0.dims() != raw.0.dims() || host(turned.0.clone()) != host(raw.0.clone());
            observed.transform_qk |=
                turned.1.dims() != raw.1.dims() || host(turned.1.clone()) != host(raw.1.clone());
            let x = random(3, [2, 6, SHAPE.d_model]);
            let embedded = attention.prepared.embed(x.clone());
            assert_eq!(embedded.dims(), x.dims(), "{name}");
            observed.embed |= host(embedded) != host(x);
            let acts = |hook: Option<Vec<f64>>| {
                let empty = hook
                    .as_ref()
                    .is_some_and(|values| values.iter().all(|value| *value == 0.0));
                assert!(!empty, "{name}: a hook without an effect");
                hook.is_some()
            };
            observed.logits_bias |= acts(
                attention
                    .prepared
                    .logits_bias(layer)
                    .map(|bias| bias_block(&bias, 0..6, 0..6)),
            );
            observed.content_bias |= acts(attention.content_bias(0..6, 0..6).map(host));
            observed.output_bias |= acts(attention.output_bias(0..6, 0..6).map(host));
        }
        assert_eq!(facts.hooks, observed, "{name}");
    }
}

#[test]
fn a_declared_network_is_the_bias() {
    let mut found = 0;
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let prepared = prepare(&encoding, &Positions::contiguous(9));
        let biases = (0..SHAPE.n_layers).filter_map(|layer| prepared.logits_bias(layer));
        let mut observed = false;
        for bias in biases {
            let Some(network) = bias.network() else {
                continue;
            };
            observed = true;
            let values = host(PlainOps.diagonal_network(network));
            let expected = bias_block(&bias, 0..9, 0..9);
            assert!(largest_difference(&values, &expected) < 1e-12, "{name}");
        }
        assert_eq!(config.facts(&SHAPE).diagonal_network, observed, "{name}");
        found += usize::from(observed);
    }
    assert!(found > 0, "an encoding with a network");
}

#[test]
fn shapes_of_biases_are_those_of_the_block() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let positions = Positions::contiguous(7).last(4);
        let (q, k) = (random(1, [2, 4, 4, 8]), random(2, [2, 4, 7, 8]));
        let attention = Attention::of(&encoding, &positions, 0, 3, (q, k), random(3, [2, 7, 32]));
        if let Some(bias) = attention.prepared.logits_bias(0) {
            let [batch, heads, rows, columns] = bias.block(1..3, 0..6).dims();
            assert!(
                batch == 1 && (heads == 1 || heads == 4) && (rows, columns) == (2, 6),
                "{name}"
            );
        }
        if let Some(bias) = attention.content_bias(1..3, 0..6) {
            assert_eq!(bias.dims(), [2, 4, 2, 6], "{name}");
        }
        if let Some(term) = attention.output_bias(1..3, 0..6) {
            assert_eq!(term.dims(), [2, 4, 2, SHAPE.head_dim], "{name}");
        }
    }
}

#[test]
fn declared_parameters_are_the_ones_visited_and_drawn() {
    for (name, config) in all_configs() {
        let asked = RefCell::new(Vec::new());
        let source = |path: &str, shape: &[usize], distribution| {
            asked.borrow_mut().push((path.to_owned(), shape.to_vec()));
            draw(path, shape, distribution)
        };
        let device = device();
        let encoding = config
            .init(&SHAPE, &Init::new(&device, &source))
            .expect("a resolved configuration");
        let facts = config.facts(&SHAPE);
        assert_eq!(facts.parameters, parameters(&encoding), "{name}: visited");
        assert_eq!(facts.parameters, *asked.borrow(), "{name}: drawn");
        assert_eq!(facts.num_params(), encoding.num_params(), "{name}: counted");
    }
}

#[test]
fn values_come_from_the_source_by_path() {
    let device = device();
    let stack = config(
        json!({"kind": "stack", "parts": [{"kind": "nope"}, {"kind": "learned", "max_position": 4}]}),
    );
    let scoped = Init::new(&device, &draw).scope("model").scope("encoding");
    let encoding = stack.init(&SHAPE, &scoped).expect("resolved");
    let rows = host(
        prepare(&encoding, &Positions::contiguous(4))
            .embed(Tensor::zeros([1, 4, SHAPE.d_model], &device)),
    );
    let expected = draw(
        "model.encoding.parts.1.table",
        &[4, SHAPE.d_model],
        posenc::Distribution::Normal(0.02),
    );
    assert!(largest_difference(&rows, &expected) < 1e-8);
    let empty = host(
        prepare(
            &stack
                .init(&SHAPE, &Init::zeros(&device))
                .expect("a resolved configuration"),
            &Positions::contiguous(4),
        )
        .embed(Tensor::zeros([1, 4, 32], &device)),
    );
    assert!(empty.iter().all(|v| *v == 0.0));
}

#[test]
fn a_limit_is_declared_and_is_where_values_end() {
    for (name, config) in all_configs() {
        let encoding = build(&config, &SHAPE);
        assert_eq!(
            config.facts(&SHAPE).max_position_without_axes(),
            encoding.max_position(),
            "{name}"
        );
        let prepare = |position: usize| {
            let positions = Positions::from_offset(position, 1);
            encoding
                .prepare(&positions, &Context::new(&device()))
                .map(drop)
        };
        match encoding.max_position() {
            Some(limit) => {
                assert_eq!(
                    prepare(limit - 1),
                    Ok(()),
                    "{name}: the last position has a value"
                );
                let refused = PrepareError::PastMaxPosition {
                    position: limit as f64,
                    max_position: limit,
                };
                assert_eq!(prepare(limit), Err(refused), "{name}: refused, not clamped");
            }
            None => assert_eq!(prepare(16_000_000), Ok(()), "{name}"),
        }
    }
    let limits = [
        ("learned", Some(64)),
        ("rope", None),
        ("xpos", Some(65_391)),
    ];
    for (kind, limit) in limits {
        let mut config = EncodingConfig::default_of(kind).expect("a kind with defaults");
        config.resolve(&LENGTHS);
        assert_eq!(config.facts(&SHAPE).max_position_without_axes(), limit);
    }
}

/// Logits of queries and keys at `steps` from `offset`, in a sequence whose last key stands at
/// `end`.
fn window(config: &EncodingConfig, steps: &[usize], offset: usize, end: usize) -> Vec<f64> {
    let at: Vec<f64> = steps.iter().map(|step| (offset + step) as f64).collect();
    let (rows, columns) = (at.len(), at.len() + 1);
    let logits = logits(
        config,
        &Positions::new(at.clone(), at.into_iter().chain([end as f64]).collect()),
    );
    cut(&logits, [rows, columns], 0..rows, 0..rows)
}

#[test]
fn relative_encodings_do_not_see_a_shift_and_others_do() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        // Near steps, and far ones for what happens at a distance.
        let far = facts
            .max_position_without_axes()
            .map_or(200, |limit| (limit / 3).min(200));
        let steps: Vec<usize> = (0..9).chain([far / 2 + 3, far]).collect();
        // No multiple of the sizes of groups and blocks in the list.
        let shift = facts
            .max_position_without_axes()
            .map_or(1005, |limit| limit - far - 2);
        let shift = shift - (shift % 4 + 3) % 4;
        let moved = |from: usize| {
            let end = from + shift + far + 1;
            largest_difference(
                &window(&config, &steps, from, end),
                &window(&config, &steps, from + shift, end),
            )
        };
        if facts.relative {
            let moved = if facts.max_position_without_axes().is_some() {
                moved(0)
            } else {
                moved(0).max(moved(65_536))
            };
            assert!(moved < 2e-5, "{name}: logits moved by {moved}");
        } else {
            let moved = moved(0);
            assert!(
                moved > 1e-3,
                "{name}: declared absolute, yet logits moved by {moved} only"
            );
        }
    }
}

#[test]
fn encodings_that_read_the_length_and_only_those_change_with_it() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        let far = facts
            .max_position_without_axes()
            .map_or(9000, |limit| limit - 1);
        let steps = [0, 1, 2, 3, 4];
        let changed = largest_difference(
            &window(&config, &steps, 7, 12),
            &window(&config, &steps, 7, far),
        );
        if facts.reads_length {
            assert!(changed > 1e-4, "{name}: logits changed by {changed} only");
        } else {
            assert!(changed < 1e-5, "{name}: logits changed by {changed}");
        }
    }
}

#[test]
fn replaced_distances_are_seen_by_the_encodings_that_say_so() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        let stretch = facts
            .max_position_without_axes()
            .map_or(50, |limit| ((limit - 1) / 5).min(50)) as f64;
        let distances = |stretch: f64| (0..6).map(|d| f64::from(d) * stretch).collect::<Vec<f64>>();
        let plain = logits(&config, &Positions::contiguous(6));
        assert_eq!(
            plain,
            logits(
                &config,
                &Positions::contiguous(6).with_distances(distances(1.0))
            ),
            "{name}: each replaced by itself"
        );
        // To stretch every distance is to stretch the positions, for who sees nothing else.
        let replaced = logits(
            &config,
            &Positions::contiguous(6).with_distances(distances(stretch)),
        );
        let stretched = logits(&config, &Positions::same(distances(stretch)));
        let difference = largest_difference(&replaced, &stretched);
        assert_eq!(facts.by_distance, difference < 1e-5, "{name}: {difference}");
        if !facts.by_distance && !["stack", "by_head"].contains(&config.kind()) {
            assert_eq!(
                replaced, plain,
                "{name}: what is not announced has no effect"
            );
        }
        let uneven = logits(
            &config,
            &Positions::contiguous(6).with_distances(vec![0.0, 2.0, 3.0, 17.0, 30.0, 31.0]),
        );
        let sees = largest_difference(&plain, &stretched) > 0.0;
        assert_eq!(facts.ignores_positions, !sees, "{name}");
        if facts.by_distance {
            assert_eq!(sees, largest_difference(&plain, &uneven) > 0.0, "{name}");
        }
    }
}

#[test]
fn a_decay_adds_up_and_linear_attention_can_host_what_it_can_carry() {
    for (name, config) in all_configs() {
        let (encoding, facts) = (build_stirred(&config, &SHAPE), config.facts(&SHAPE));
        let places: Vec<f64> = [0.0, 1.0, 2.0, 3.0, 5.0, 9.0, 40.0, 100.0, 300.0].to_vec();
        let places: Vec<f64> = places
            .into_iter()
            .filter(|p| {
                facts
                    .max_position_without_axes()
                    .is_none_or(|limit| *p < limit as f64)
            })
            .collect();
        let count = places.len();
        let prepared = prepare(&encoding, &Positions::same(places));
        let bias = prepared.logits_bias(0);
        let decays = bias.as_ref().is_none_or(Bias::is_decay);
        if let Some(bias) = bias {
            let values = bias_block(&bias, 0..count, 0..count);
            let at = |head: usize, m: usize, n: usize| values[(head * count + m) * count + n];
            let triples =
                (0..count).flat_map(|m| (0..=m).flat_map(move |c| (0..=c).map(move |n| (m, c, n))));
            let adds_up = triples.flat_map(|(m, c, n)| {
                (0..values.len() / (count * count)).map(move |head| (head, m, c, n))
            });
            let adds_up = adds_up.map(|(head, m, c, n)| {
                largest_difference(&[at(head, m, n)], &[at(head, m, c) + at(head, c, n)])
            });
            let off = adds_up.fold(0.0, f64::max);
            assert_eq!(decays, off < 1e-4, "{name}: {off}");
        }
        let drawn = Positions::contiguous(3).with_distances(vec![0.0, 2.0, 3.0]);
        let unevenly = prepare(&encoding, &drawn)
            .logits_bias(0)
            .is_some_and(|bias| bias.is_decay());
        // Coordinates are not drawn.
        let unevenly = unevenly && !facts.needs_axes();
        assert!(!unevenly, "{name}: distances drawn at random do not add up");
        let (q, k) = (random(1, [1, 4, count, 8]), random(2, [1, 4, count, 8]));
        let widens = prepared.transform_qk(0, q, k, &input(count)).0.dims()[3] != SHAPE.head_dim;
        let carried = decays && !facts.hooks.content_bias && !facts.hooks.output_bias && !widens;
        assert_eq!(facts.linear, carried, "{name}");
    }
}

#[test]
fn nope_is_the_identity() {
    let nope = build(&config(json!({"kind": "nope"})), &SHAPE);
    let attention = Attention::new(&nope, &Positions::from_offset(17, 3), 0, 0);
    let x = random(1, [1, 3, 32]);
    assert_eq!(host(attention.prepared.embed(x.clone())), host(x));
    assert_eq!(
        host(attention.turned.0.clone()),
        host(attention.raw.0.clone())
    );
    assert_eq!(
        host(attention.turned.1.clone()),
        host(attention.raw.1.clone())
    );
    assert!(attention.prepared.logits_bias(0).is_none());
    assert!(
        attention.content_bias(0..3, 0..3).is_none() && attention.output_bias(0..3, 0..3).is_none()
    );
}

#[test]
fn derived_facts_are_those_of_the_frequencies_and_stand_under_the_key_of_their_part() {
    let rotation = |base: f64| json!({"kind": "rope", "base": base, "rotary_dim": 4});
    let derived = |value: Value| {
        let mut config = config(value);
        config.resolve(&LENGTHS);
        config.derived(&SHAPE, 64)
    };
    // Two pairs: wavelengths of 2 pi and of 2 pi times the root of the base.
    let facts = derived(rotation(10_000.0));
    let wavelength = 200.0 * std::f64::consts::PI;
    assert!((facts["longest_wavelength"] - wavelength).abs() < 1e-9 * wavelength);
    assert_eq!(
        (facts["rotary_pairs"], facts["pairs_beyond_training"]),
        (2.0, 1.0)
    );
    assert_eq!(derived(rotation(100.0))["pairs_beyond_training"], 0.0);
    let scaled = json!({"kind": "rope", "rotary_dim": 4, "scaling": {"kind": "linear"}});
    assert_eq!(
        derived(scaled),
        facts,
        "wavelengths are those before scaling"
    );
    for (value, key) in [
        (
            json!({"kind": "stack", "parts": [{"kind": "alibi"}, rotation(1e4)]}),
            "parts.1",
        ),
        (
            json!({"kind": "nope_layers", "part": rotation(1e4)}),
            "part",
        ),
    ] {
        let inner = facts
            .iter()
            .map(|(name, number)| (format!("{key}.{name}"), *number));
        assert_eq!(derived(value), inner.collect());
    }
    fn rotates(config: &EncodingConfig) -> bool {
        let parts = config.parts();
        config.rotary(&SHAPE).is_some() || parts.iter().any(|part| rotates(part.config))
    }
    for (name, config) in all_configs() {
        let empty = config.derived(&SHAPE, 64).is_empty();
        assert_eq!(empty, !rotates(&config), "{name}");
    }
}

#[test]
fn every_kind_says_what_deviates_from_its_source() {
    for kind in EncodingConfig::KINDS {
        let about = EncodingConfig::example(kind).unwrap().about();
        let text = about.deviations;
        assert!(!text.is_empty() && !text.ends_with('.'), "{kind}: {text}");
    }
    for (kind, text) in posenc::scaling::DEVIATIONS {
        assert!(
            RopeScaling::KINDS.contains(kind) && !text.is_empty(),
            "{kind}"
        );
    }
    for (kind, text) in posenc::positions::DEVIATIONS {
        assert!(
            PositionsConfig::KINDS.contains(kind) && !text.is_empty(),
            "{kind}"
        );
    }
}
