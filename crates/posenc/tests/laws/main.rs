//! Laws over the whole list of encodings: what each declares is what is observed, and the
//! identities of the papers hold.
//!
//! Here is what holds for all of them; the other files have the laws of each family.

#[path = "../common/mod.rs"]
mod common;

mod axes;
mod biases;
mod configurations;
mod contents;
mod positions;
mod rotations;
mod scalings;
mod stacks;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use common::{
    Attention, LENGTHS, SHAPE, all_configs, all_values, build, build_stirred, config, draw, host,
    largest_difference, logits, parameters, random, tensor,
};
use posenc::{
    Bias, BiasBlocks, Content, Encoding, EncodingConfig, Facts, Hooks, Init, ModelShape,
    PositionalEncoding, Positions, Prepared, RopeConfig, RopeScaling,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn device() -> Device {
    Device::flex()
}

fn prepare<'a>(encoding: &'a Encoding, positions: &Positions) -> Box<dyn Prepared + 'a> {
    encoding.prepare(positions, &device())
}

fn bias_block(bias: &Bias<'_>, queries: Range<usize>, keys: Range<usize>) -> Vec<f64> {
    host(bias.block(queries, keys))
}

fn rope(value: Value) -> RopeConfig {
    match config(value) {
        EncodingConfig::Rope(rope) => rope,
        other => panic!("{other:?}"),
    }
}

/// The position-only bias of layer 0 for these positions, `[H or 1, Q, K]`.
fn bias_of(encoding: &Encoding, positions: &Positions) -> Vec<f64> {
    let prepared = prepare(encoding, positions);
    bias_block(
        &prepared.logits_bias(0).expect("a bias"),
        0..positions.queries().len(),
        0..positions.keys().len(),
    )
}

/// One vector of a model with one head, as it is turned at a position.
fn turn(encoding: &Encoding, x: &[f64], position: f64) -> Vec<f64> {
    let prepared = prepare(encoding, &Positions::new(vec![position], vec![position]));
    let x = || tensor(x.to_vec(), [1, 1, 1, x.len()]);
    host(prepared.transform_qk(0, x(), x()).0)
}

/// The part of a list `[H, rows, columns]` in these rows and columns.
fn cut(
    values: &[f64],
    [rows, columns]: [usize; 2],
    queries: Range<usize>,
    keys: Range<usize>,
) -> Vec<f64> {
    let heads = values.len() / (rows * columns);
    let row = |head: usize, row: usize| &values[(head * rows + row) * columns..][keys.clone()];
    (0..heads)
        .flat_map(|head| queries.clone().flat_map(move |i| row(head, i).to_vec()))
        .collect()
}

// What is declared

#[test]
fn the_list_names_every_kind_once() {
    let kinds: BTreeSet<&str> = EncodingConfig::KINDS.iter().copied().collect();
    assert_eq!(kinds.len(), EncodingConfig::KINDS.len());
    assert_eq!(
        kinds.len(),
        25,
        "a new kind is a new line here, and its laws"
    );
    for (_, config) in all_configs() {
        let about = config.about();
        assert!(!about.summary.is_empty() && !about.formula.is_empty() && !about.source.is_empty());
    }
    for kind in ["stack", "nope_layers"] {
        assert!(
            EncodingConfig::default_of(kind).is_none(),
            "{kind} has no default parts"
        );
    }
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
            let kind = format!(
                "{under}{}",
                table["kind"].as_str().expect("a table has a kind")
            );
            for (key, inner) in table {
                tables(inner, if key == "scaling" { "scaling." } else { "" }, found);
            }
            found.push((kind, value));
        }
        _ => {}
    }
}

#[test]
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
    for (kind, table) in &found {
        let defaults = match kind.split_once('.') {
            Some((_, kind)) => {
                RopeScaling::default_of(kind).and_then(|scaling| serde_json::to_value(scaling).ok())
            }
            None => EncodingConfig::default_of(kind)
                .and_then(|config| serde_json::to_value(config).ok()),
        };
        let given = table.as_object().expect("a table");
        let keys = given.iter().chain(
            defaults
                .iter()
                .flat_map(|table| table.as_object().expect("a table")),
        );
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
    for ((kind, key), (mut seen, possible)) in options {
        // A key that is left out of a serialized configuration has its default there.
        let left_out = found
            .iter()
            .any(|(of, table)| *of == kind && table.get(&key).is_none());
        if possible.len() == seen.len() + 1 && left_out {
            seen = possible.clone();
        }
        assert!(
            possible.is_subset(&seen),
            "{kind}.{key}: only {seen:?} of {possible:?} is tested"
        );
    }
}

/// Positions at which every hook shows: neighbours, and one far away where there is room.
fn telling(facts: &Facts) -> Positions {
    let far = facts.max_position.map_or(100, |limit| limit.min(101) - 1);
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
        let encoding = config.init(&SHAPE, &Init::new(&device, &source));
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
    let encoding = stack.init(&SHAPE, &scoped);
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
            &stack.init(&SHAPE, &Init::zeros(&device)),
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
            config.facts(&SHAPE).max_position,
            encoding.max_position(),
            "{name}"
        );
        let works = |position: usize| {
            catch_unwind(AssertUnwindSafe(|| {
                drop(prepare(&encoding, &Positions::from_offset(position, 1)))
            }))
            .is_ok()
        };
        match encoding.max_position() {
            Some(limit) => {
                assert!(works(limit - 1), "{name}: the last position has a value");
                assert!(!works(limit), "{name}: one further is refused, not clamped");
            }
            None => assert!(works(16_000_000), "{name}"),
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
        assert_eq!(config.facts(&SHAPE).max_position, limit);
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
        let far = facts.max_position.map_or(200, |limit| (limit / 3).min(200));
        let steps: Vec<usize> = (0..9).chain([far / 2 + 3, far]).collect();
        // No multiple of the sizes of groups and blocks in the list.
        let shift = facts.max_position.map_or(1005, |limit| limit - far - 2);
        let shift = shift - (shift % 4 + 3) % 4;
        let moved = |from: usize| {
            let end = from + shift + far + 1;
            largest_difference(
                &window(&config, &steps, from, end),
                &window(&config, &steps, from + shift, end),
            )
        };
        if facts.relative {
            let moved = if facts.max_position.is_some() {
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
        let far = facts.max_position.map_or(9000, |limit| limit - 1);
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
            .max_position
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
        if !facts.by_distance && config.kind() != "stack" {
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
            .filter(|p| facts.max_position.is_none_or(|limit| *p < limit as f64))
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
        assert!(!unevenly, "{name}: distances drawn at random do not add up");
        let (q, k) = (random(1, [1, 4, count, 8]), random(2, [1, 4, count, 8]));
        let widens = prepared.transform_qk(0, q, k).0.dims()[3] != SHAPE.head_dim;
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

// Blocks, rows and what comes later

#[test]
fn decoding_one_token_equals_the_last_row() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let positions = Positions::from_offset(2, 9);
        let all = Attention::new(&encoding, &positions, 0, 0);
        let (q, k) = all.raw.clone();
        let one = Attention::of(
            &encoding,
            &positions.last(1),
            0,
            8,
            (q.slice_dim(2, 8..9), k),
            all.hidden.clone(),
        );
        assert_eq!(
            host(all.turned.0.clone().slice_dim(2, 8..9)),
            host(one.turned.0.clone()),
            "{name}: query"
        );
        assert_eq!(
            host(all.turned.1.clone()),
            host(one.turned.1.clone()),
            "{name}: keys"
        );
        let x = random(3, [1, 9, 32]);
        let (embedded, last) = (
            all.prepared.embed(x.clone()),
            one.prepared.embed(x.slice_dim(1, 8..9)),
        );
        assert_eq!(
            host(embedded.slice_dim(1, 8..9)),
            host(last),
            "{name}: input"
        );
        let same = |all: Option<Vec<f64>>, one: Option<Vec<f64>>, hook: &str| match (all, one) {
            (Some(all), Some(one)) => {
                let difference = largest_difference(&all, &one);
                assert!(difference < 2e-6, "{name}: {hook} differs by {difference}");
            }
            (all, one) => assert!(all.is_none() && one.is_none(), "{name}: {hook}"),
        };
        let bias = |attention: &Attention<'_>, row: usize| {
            attention
                .prepared
                .logits_bias(0)
                .map(|b| bias_block(&b, row..row + 1, 0..9))
        };
        same(bias(&all, 8), bias(&one, 0), "bias");
        same(
            all.content_bias(8..9, 0..9).map(host),
            one.content_bias(0..1, 0..9).map(host),
            "content bias",
        );
        same(
            all.output_bias(8..9, 0..9).map(host),
            one.output_bias(0..1, 0..9).map(host),
            "output",
        );
    }
}

#[test]
fn a_block_of_queries_is_a_slice_of_the_whole() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        // Eight queries that end four keys before the last, as a block of a long sequence does.
        let positions = Positions::contiguous(16).last(12);
        let attention = Attention::new(&encoding, &positions, 0, 4);
        let whole_bias = attention.content_bias(0..12, 0..16);
        let whole_output = attention.output_bias(0..12, 0..16);
        for queries in [0..12, 0..1, 3..7, 7..12] {
            let seen = 0..attention.first_query + queries.end;
            let block = attention.content_bias(queries.clone(), seen.clone());
            assert_eq!(block.is_some(), whole_bias.is_some(), "{name}");
            if let (Some(whole), Some(block)) = (&whole_bias, block) {
                let slice = whole
                    .clone()
                    .slice_dim(2, queries.clone())
                    .slice_dim(3, seen.clone());
                let difference = largest_difference(&host(slice), &host(block));
                assert!(
                    difference < 5e-6,
                    "{name}: {queries:?} differs by {difference}"
                );
            }
            if let Some(whole) = &whole_output {
                let block = attention
                    .output_bias(queries.clone(), seen)
                    .expect("whatever the block");
                let difference = largest_difference(
                    &host(whole.clone().slice_dim(2, queries.clone())),
                    &host(block),
                );
                assert!(
                    difference < 5e-6,
                    "{name}: output of {queries:?} differs by {difference}"
                );
            }
        }
        let Some(bias) = attention.prepared.logits_bias(0) else {
            continue;
        };
        let whole = bias_block(&bias, 0..12, 0..16);
        for (queries, keys) in [
            (0..12, 0..16),
            (0..1, 0..1),
            (2..9, 5..6),
            (11..12, 0..16),
            (3..7, 8..15),
        ] {
            let block = bias_block(&bias, queries.clone(), keys.clone());
            let difference = largest_difference(
                &cut(&whole, [12, 16], queries.clone(), keys.clone()),
                &block,
            );
            assert!(
                difference < 1e-6,
                "{name}: bias of {queries:?}, {keys:?} differs by {difference}"
            );
        }
    }
}

#[test]
fn a_row_does_not_see_the_keys_after_it() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let positions = Positions::contiguous(9);
        let with_later = |seed: u64, row: usize| {
            let replaced = |x: Tensor<4>| {
                Tensor::cat(
                    vec![x.slice_dim(2, 0..row + 1), random(seed, [1, 4, 8 - row, 8])],
                    2,
                )
            };
            let raw = (random(1, [1, 4, 9, 8]), replaced(random(2, [1, 4, 9, 8])));
            let hidden = Tensor::cat(
                vec![random(3, [1, row + 1, 32]), random(seed, [1, 8 - row, 32])],
                1,
            );
            Attention::of(&encoding, &positions, 0, 0, raw, hidden)
        };
        for row in [0, 3, 7] {
            let (one, other) = (with_later(11, row), with_later(12, row));
            let seen = |attention: &Attention<'_>| {
                let scores = attention
                    .scores(0..9, 0..9)
                    .slice_dim(2, row..row + 1)
                    .slice_dim(3, 0..row + 1);
                let output = attention
                    .output_bias(0..9, 0..9)
                    .map(|term| host(term.slice_dim(2, row..row + 1)));
                (host(scores), output)
            };
            assert_eq!(seen(&one), seen(&other), "{name}: row {row}");
            assert_ne!(
                host(one.turned.1.clone()),
                host(other.turned.1.clone()),
                "the later keys differ"
            );
        }
    }
}

#[test]
fn layers_without_tables_of_their_own_are_alike_and_those_with_are_not() {
    for (name, config) in all_configs() {
        if config.kind() == "nope_layers" {
            continue;
        }
        let (encoding, facts) = (build_stirred(&config, &SHAPE), config.facts(&SHAPE));
        let positions = Positions::contiguous(6);
        let [first, second] = [0, 1].map(|layer| {
            let attention = Attention::new(&encoding, &positions, layer, 0);
            (
                attention.logits(),
                attention.output_bias(0..6, 0..6).map(host),
            )
        });
        let names = [
            "tables.1",
            "c2p.1",
            "p2c.1",
            "keys.1",
            "values.1",
            "layers.1",
            "functions.1",
        ];
        let per_layer = facts
            .parameters
            .iter()
            .any(|(path, _)| names.iter().any(|name| path.contains(name)));
        assert_eq!(per_layer, first != second, "{name}");
    }
}

#[test]
fn any_order_and_repetition_of_positions_is_allowed() {
    for (name, config) in all_configs() {
        let shuffled = [5.0, 0.0, 3.0, 3.0];
        let encoding = build_stirred(&config, &SHAPE);
        let whole = prepare(&encoding, &Positions::contiguous(6));
        let some = prepare(
            &encoding,
            &Positions::new(shuffled.to_vec(), shuffled.to_vec()),
        );
        let x = random(1, [1, 1, 32]);
        let whole_rows = host(whole.embed(x.clone().repeat_dim(1, 6)));
        let rows = host(some.embed(x.repeat_dim(1, 4)));
        let q = random(2, [1, 4, 1, 8]);
        let (whole_q, whole_k) =
            whole.transform_qk(0, q.clone().repeat_dim(2, 6), q.clone().repeat_dim(2, 6));
        let (turned_q, turned_k) =
            some.transform_qk(0, q.clone().repeat_dim(2, 4), q.repeat_dim(2, 4));
        for (i, p) in shuffled.map(|p| p as usize).into_iter().enumerate() {
            assert_eq!(rows[i * 32..][..32], whole_rows[p * 32..][..32], "{name}");
            for (turned, whole) in [(&turned_q, &whole_q), (&turned_k, &whole_k)] {
                let (turned, whole) = (
                    turned.clone().slice_dim(2, i..i + 1),
                    whole.clone().slice_dim(2, p..p + 1),
                );
                assert_eq!(host(turned), host(whole), "{name}");
            }
        }
        let Some(bias) = whole.logits_bias(0) else {
            continue;
        };
        let (whole, some) = (
            bias_block(&bias, 0..6, 0..6),
            bias_block(&some.logits_bias(0).expect("as before"), 0..4, 0..4),
        );
        for (i, m) in shuffled.map(|p| p as usize).into_iter().enumerate() {
            for (j, n) in shuffled.map(|p| p as usize).into_iter().enumerate() {
                let difference = largest_difference(
                    &cut(&whole, [6, 6], m..m + 1, n..n + 1),
                    &cut(&some, [4, 4], i..i + 1, j..j + 1),
                );
                assert!(
                    difference < 1e-6,
                    "{name}: bias of {m}, {n} differs by {difference}"
                );
            }
        }
    }
}

#[test]
fn a_bias_of_no_term_is_a_broken_promise() {
    struct Ones;
    impl BiasBlocks for Ones {
        fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
            Tensor::ones([1, 1, queries.len(), keys.len()], &device())
        }
    }
    assert_eq!(
        bias_block(&Bias::new(Ones).plus(Bias::new(Ones)), 0..2, 1..2),
        [2.0, 2.0]
    );
    assert!(catch_unwind(|| Bias::default().block(0..1, 0..1)).is_err());
}

#[test]
fn content_gives_logits_and_the_causal_mask_on_request() {
    let (q, k, hidden) = (
        random(1, [2, 3, 4, 8]),
        random(2, [2, 3, 6, 8]),
        random(3, [2, 6, 24]),
    );
    let raw = || unreachable!("nobody asks");
    let scale = 1.0 / 8f64.sqrt();
    let content = Content {
        q: &q,
        k: &k,
        raw: &raw,
        hidden: &hidden,
        queries: 2..6,
        keys: 0..6,
        first_query: 2,
        scale,
    };
    let logits = content.logits();
    assert_eq!(logits.dims(), [2, 3, 4, 6]);
    let mask: Vec<bool> = content
        .causal_mask()
        .into_data()
        .try_to_vec()
        .expect("booleans");
    assert_eq!(
        mask,
        (0..4)
            .flat_map(|row| (0..6).map(move |key| key > 2 + row))
            .collect::<Vec<bool>>()
    );
    let (q, k) = (host(q), host(k));
    let pairs = (0..6).flat_map(|bh| (0..4).flat_map(move |i| (0..6).map(move |j| (bh, i, j))));
    let expected = pairs.map(|(bh, i, j)| {
        common::dot(&q[(bh * 4 + i) * 8..][..8], &k[(bh * 6 + j) * 8..][..8]) * scale
    });
    assert!(largest_difference(&host(logits), &expected.collect::<Vec<_>>()) < 1e-6);
}

#[test]
fn one_layer_of_a_model_is_enough_for_every_encoding() {
    let shape = ModelShape {
        n_layers: 1,
        ..SHAPE
    };
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &shape);
        let logits = Attention::new(&encoding, &Positions::contiguous(5), 0, 0).logits();
        assert!(logits.iter().all(|logit| !logit.is_nan()), "{name}");
    }
}
