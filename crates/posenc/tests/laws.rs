//! Laws over the whole list of encodings: what each declares is what is observed, and the identities of the papers hold.

mod common;

use burn::module::Module;
use burn::nn::{PositionalEncodingConfig, RotaryEncodingConfig};
use burn::tensor::{Device, Tensor};
use common::{LENGTHS, SHAPE, all_configs, build, config, draw, host, largest_difference, logits, noise, parameters, random, tensor};
use posenc::{
    Bias, BiasBlocks, Content, Encoding, EncodingConfig, Factor, Hooks, Init, Lengths, ModelShape, PositionalEncoding, Positions, Prepared,
    RopeConfig, RopeScaling, YarnScaling, slopes,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn device() -> Device {
    Device::flex()
}

fn prepare<'a>(encoding: &'a Encoding, positions: &Positions) -> Box<dyn Prepared + 'a> {
    encoding.prepare(positions, &device())
}

fn content_bias(prepared: &dyn Prepared, q: &Tensor<4>, k: &Tensor<4>) -> Option<Tensor<4>> {
    prepared.content_bias(0, &Content { q, k, queries: 0..q.dims()[2], keys: 0..k.dims()[2] })
}

fn bias_block(bias: &Bias<'_>, queries: std::ops::Range<usize>, keys: std::ops::Range<usize>) -> Vec<f64> {
    host(bias.block(queries, keys))
}

fn rope(value: Value) -> RopeConfig {
    match config(value) {
        EncodingConfig::Rope(rope) => rope,
        other => panic!("{other:?}"),
    }
}

/// One vector as it is turned at a position.
fn turn(encoding: &Encoding, x: &[f64], position: f64) -> Vec<f64> {
    let prepared = prepare(encoding, &Positions::new(vec![position], vec![position]));
    let x = || tensor(x.to_vec(), [1, 1, 1, x.len()]);
    host(prepared.transform_qk(0, x(), x()).0)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

// What is declared

#[test]
fn the_list_names_every_kind_once() {
    let kinds = EncodingConfig::KINDS;
    assert_eq!(kinds, ["nope", "sinusoidal", "learned", "rope", "alibi", "stack"]);
    for kind in kinds {
        let configs: Vec<EncodingConfig> = all_configs().into_iter().map(|(_, config)| config).filter(|c| c.kind() == *kind).collect();
        assert!(!configs.is_empty(), "no configuration of {kind} is tested");
        for about in configs.iter().map(EncodingConfig::about) {
            assert!(!about.summary.is_empty() && !about.formula.is_empty() && !about.source.is_empty());
        }
    }
    assert!(EncodingConfig::default_of("stack").is_none(), "a stack has no default parts");
    assert!(EncodingConfig::default_of("rpoe").is_none());
    assert_eq!(EncodingConfig::default_of("rope"), Some(EncodingConfig::Rope(RopeConfig::default())));
}

#[test]
fn declared_hooks_are_the_ones_that_act() {
    for (name, config) in all_configs() {
        let encoding = build(&config, &SHAPE);
        let prepared = prepare(&encoding, &Positions::from_offset(3, 6));
        let x = random(3, [2, 6, SHAPE.d_model]);
        let (q, k) = (random(4, [2, SHAPE.n_heads, 6, SHAPE.head_dim]), random(5, [2, SHAPE.n_heads, 6, SHAPE.head_dim]));
        let (turned_q, turned_k) = prepared.transform_qk(1, q.clone(), k.clone());
        assert_eq!((turned_q.dims(), turned_k.dims()), (q.dims(), k.dims()), "{name}");
        let embedded = prepared.embed(x.clone());
        assert_eq!(embedded.dims(), x.dims(), "{name}");
        let observed = Hooks {
            embed: host(embedded) != host(x),
            transform_qk: host(turned_q) != host(q.clone()) || host(turned_k) != host(k.clone()),
            logits_bias: prepared.logits_bias(1).is_some_and(|bias| bias_block(&bias, 0..6, 0..6).iter().any(|b| *b != 0.0)),
            content_bias: content_bias(prepared.as_ref(), &q, &k).is_some(),
        };
        assert_eq!(config.facts(&SHAPE).hooks, observed, "{name}");
        assert_eq!(prepared.logits_bias(1).is_some(), observed.logits_bias, "{name}: no empty bias");
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
    let stack = config(json!({"kind": "stack", "parts": [{"kind": "nope"}, {"kind": "learned", "max_position": 4}]}));
    let scoped = Init::new(&device, &draw).scope("model").scope("encoding");
    let encoding = stack.init(&SHAPE, &scoped);
    let rows = host(prepare(&encoding, &Positions::contiguous(4)).embed(Tensor::zeros([1, 4, SHAPE.d_model], &device)));
    let expected = draw("model.encoding.parts.1.table", &[4, SHAPE.d_model], posenc::Distribution::Normal(0.02));
    assert!(largest_difference(&rows, &expected) < 1e-8);
    let empty =
        host(prepare(&stack.init(&SHAPE, &Init::zeros(&device)), &Positions::contiguous(4)).embed(Tensor::zeros([1, 4, 32], &device)));
    assert!(empty.iter().all(|v| *v == 0.0));
}

#[test]
fn a_limit_is_declared_and_is_where_the_table_ends() {
    for (name, config) in all_configs() {
        let encoding = build(&config, &SHAPE);
        assert_eq!(config.facts(&SHAPE).max_position, encoding.max_position(), "{name}");
        let works =
            |position: usize| catch_unwind(AssertUnwindSafe(|| drop(prepare(&encoding, &Positions::from_offset(position, 1))))).is_ok();
        match encoding.max_position() {
            Some(limit) => {
                assert!(works(limit - 1), "{name}: the last position has a value");
                assert!(!works(limit), "{name}: one further is refused, not clamped");
            }
            None => assert!(works(16_000_000), "{name}"),
        }
    }
    let limits = [("learned", Some(64)), ("rope", None)];
    for (kind, limit) in limits {
        let mut config = EncodingConfig::default_of(kind).expect("a kind with defaults");
        config.resolve(&LENGTHS);
        assert_eq!(config.facts(&SHAPE).max_position, limit);
    }
}

/// Logits of 5 queries and keys at `offset`, in a sequence whose last key stands at `end`.
fn window(config: &EncodingConfig, offset: f64, end: f64) -> Vec<f64> {
    let at = |p: usize| offset + p as f64;
    let logits = logits(config, &Positions::new((0..5).map(at).collect(), (0..5).map(at).chain([end]).collect()));
    logits.chunks(6).flat_map(|row| row[..5].to_vec()).collect()
}

#[test]
fn relative_encodings_do_not_see_a_shift_and_others_do() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        let (far, shift) = match facts.max_position {
            Some(limit) => (0.0, limit as f64 - 6.0),
            None => (65_536.0, 1000.0),
        };
        let end = far + shift + 5.0;
        let moved = largest_difference(&window(&config, far, end), &window(&config, far + shift, end));
        if facts.relative {
            assert!(moved < 1e-5, "{name}: logits moved by {moved}");
        } else {
            assert!(moved > 1e-3, "{name}: declared absolute, yet logits moved by {moved} only");
        }
    }
}

#[test]
fn encodings_that_read_the_length_and_only_those_change_with_it() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        let far = facts.max_position.map_or(9000.0, |limit| limit as f64 - 1.0);
        let changed = largest_difference(&window(&config, 7.0, 12.0), &window(&config, 7.0, far));
        assert_eq!(facts.reads_length, changed > 0.0, "{name}: logits changed by {changed}");
    }
}

#[test]
fn nope_is_the_identity() {
    let nope = build(&config(json!({"kind": "nope"})), &SHAPE);
    let prepared = prepare(&nope, &Positions::from_offset(17, 3));
    let (x, q) = (random(1, [1, 3, 32]), random(2, [1, 4, 3, 8]));
    assert_eq!(host(prepared.embed(x.clone())), host(x));
    let (a, b) = prepared.transform_qk(0, q.clone(), q.clone());
    assert_eq!((host(a), host(b)), (host(q.clone()), host(q.clone())));
    assert!(prepared.logits_bias(0).is_none() && content_bias(prepared.as_ref(), &q, &q).is_none());
}

// Rotations

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rotations_keep_the_norm_and_add_up(
        m in 0u32..100_000, n in 0u32..100_000, seed: u64, half: bool, pairs in 1usize..9, base in 2.0f64..1e6,
    ) {
        let dim = 2 * pairs;
        let layout = if half { "half" } else { "interleaved" };
        let shape = ModelShape { d_model: dim, n_layers: 1, n_heads: 1, head_dim: dim };
        let rope = build(&config(json!({"kind": "rope", "layout": layout, "base": base})), &shape);
        let x = noise(seed, dim);
        let (m, n) = (f64::from(m), f64::from(n));
        let once = turn(&rope, &x, m);
        prop_assert!((dot(&once, &once).sqrt() - dot(&x, &x).sqrt()).abs() < 1e-5);
        let twice = turn(&rope, &once, n);
        prop_assert!(largest_difference(&twice, &turn(&rope, &x, m + n)) < 1e-5);
    }

    #[test]
    fn scores_of_rotations_see_the_difference_alone(
        near in 0u32..2000, seed: u64, half: bool, scaling in 0usize..5,
    ) {
        let layout = if half { "half" } else { "interleaved" };
        let scaling = [
            Value::Null,
            json!({"kind": "linear", "factor": 4.0}),
            json!({"kind": "ntk", "factor": 4.0}),
            json!({"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.0}),
            json!({"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "truncate": false, "attention_factor": 1.0}),
        ][scaling].clone();
        let shape = ModelShape { d_model: 16, n_layers: 1, n_heads: 1, head_dim: 16 };
        let rope = build(&config(json!({"kind": "rope", "layout": layout, "scaling": scaling})), &shape);
        let (q, k) = (noise(seed, 16), noise(!seed, 16));
        let n = 65_536.0;
        let score = dot(&turn(&rope, &q, n + f64::from(near)), &turn(&rope, &k, n));
        prop_assert!((score - dot(&turn(&rope, &q, f64::from(near)), &k)).abs() < 1e-5);
        let mirrored = dot(&turn(&rope, &q, n), &turn(&rope, &k, n + f64::from(near)));
        prop_assert!((mirrored - dot(&q, &turn(&rope, &k, f64::from(near)))).abs() < 1e-5);
    }

    #[test]
    fn dimensions_past_the_rotated_ones_pass_through_bit_for_bit(p in 0u32..1_000_000, seed: u64, half: bool, rotary in 1usize..8) {
        let (rotary, position) = (2 * rotary, f64::from(p));
        let layout = if half { "half" } else { "interleaved" };
        let of = |dim: usize, rotary: Value| {
            let shape = ModelShape { d_model: dim, n_layers: 1, n_heads: 1, head_dim: dim };
            build(&config(json!({"kind": "rope", "layout": layout, "rotary_dim": rotary})), &shape)
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
        let EncodingConfig::Rope(rope) = &config else { continue };
        let factor = rope.frequencies(SHAPE.head_dim, 1.0).attention_factor;
        let x = host(random(9, [SHAPE.head_dim]));
        let rounded = f64::from(factor as f32);
        let expected: Vec<f64> = x.iter().map(|v| f64::from((v * rounded) as f32)).collect();
        assert_eq!(turn(&build(&config, &SHAPE), &x, 0.0), expected, "{name}");
    }
}

#[test]
fn a_rotation_turns_counterclockwise() {
    let shape = ModelShape { d_model: 2, n_layers: 1, n_heads: 1, head_dim: 2 };
    for layout in ["half", "interleaved"] {
        let rope = build(&config(json!({"kind": "rope", "layout": layout})), &shape);
        let turned = turn(&rope, &[1.0, 0.0], 1.0);
        assert!(largest_difference(&turned, &[1f64.cos(), 1f64.sin()]) < 1e-7, "{turned:?}");
        let fractional = turn(&rope, &[1.0, 0.0], 0.5);
        assert!(largest_difference(&fractional, &[0.5f64.cos(), 0.5f64.sin()]) < 1e-7, "positions need not be whole");
    }
}

#[test]
fn factor_1_is_no_scaling() {
    let plain = rope(json!({"kind": "rope"})).frequencies(64, 100.0);
    for scaling in [
        json!({"kind": "linear", "factor": 1.0}),
        json!({"kind": "ntk", "factor": 1.0}),
        json!({"kind": "dynamic_ntk", "factor": 1.0, "original_max_position_embeddings": 100}),
        json!({"kind": "yarn", "factor": 1.0, "original_max_position_embeddings": 100}),
        json!({"kind": "yarn", "factor": 1.0, "original_max_position_embeddings": 4096, "mscale": 0.7, "mscale_all_dim": 1.0}),
        // What was never resolved scales nothing.
        json!({"kind": "linear"}),
        json!({"kind": "ntk"}),
        json!({"kind": "dynamic_ntk", "factor": 4.0}),
        json!({"kind": "yarn"}),
    ] {
        let scaled = rope(json!({"kind": "rope", "scaling": scaling})).frequencies(64, 100.0);
        assert_eq!(scaled.attention_factor, 1.0, "{scaling}");
        for (scaled, plain) in scaled.inv_freq.iter().zip(&plain.inv_freq) {
            assert!((scaled / plain - 1.0).abs() < 1e-15, "{scaling}");
        }
    }
}

#[test]
fn scalings_keep_frequencies_between_plain_and_interpolated() {
    let plain = rope(json!({"kind": "rope"})).frequencies(64, 1.0).inv_freq;
    for kind in ["linear", "ntk", "yarn"] {
        for factor in [1.5, 4.0, 64.0] {
            let scaling = json!({"kind": kind, "factor": factor, "original_max_position_embeddings": 2048});
            let scaled = rope(json!({"kind": "rope", "scaling": scaling})).frequencies(64, 1.0).inv_freq;
            for (i, (scaled, plain)) in scaled.iter().zip(&plain).enumerate() {
                let ratio = plain / scaled;
                assert!((1.0 - 1e-12..=factor * (1.0 + 1e-12)).contains(&ratio), "{scaling}: pair {i} divided by {ratio}");
            }
            let (first, last) = (plain[0] / scaled[0], plain[31] / scaled[31]);
            assert!((last / factor - 1.0).abs() < 1e-12, "{kind}: the slowest pair is interpolated in full");
            assert_eq!(first == 1.0, kind != "linear", "{kind}: the fastest pair is left alone");
        }
    }
}

#[test]
fn yarn_multiplies_the_logits_by_the_square_of_its_factor() {
    let yarn = |attention: Value| {
        let scaling = json!({"kind": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": attention});
        logits(&config(json!({"kind": "rope", "scaling": scaling})), &Positions::from_offset(70, 6))
    };
    let (with, without) = (yarn(Value::Null), yarn(json!(1.0)));
    let square = (0.1 * 4f64.ln() + 1.0).powi(2);
    let expected: Vec<f64> = without.iter().map(|logit| logit * square).collect();
    assert!(largest_difference(&with, &expected) < 1e-5);
}

#[test]
fn dynamic_ntk_reads_the_length_of_this_pass_alone() {
    let scaling = json!({"kind": "dynamic_ntk", "factor": 2.0, "original_max_position_embeddings": 512});
    let dynamic = config(json!({"kind": "rope", "scaling": scaling}));
    let [fresh, used] = [build(&dynamic, &SHAPE), build(&dynamic, &SHAPE)];
    let x = || random(1, [1, 1, 1024, SHAPE.head_dim]);
    let run = |encoding: &Encoding, length: usize| {
        let prepared = prepare(encoding, &Positions::contiguous(length));
        let cut = || if length < 1024 { x().slice_dim(2, 0..length) } else { x().repeat_dim(2, length / 1024) };
        host(prepared.transform_qk(0, cut(), cut()).0)
    };
    let first = run(&fresh, 1024);
    run(&used, 4096);
    assert_eq!(first, run(&used, 1024), "1024 after 4096 is 1024");
    let plain = build(&config(json!({"kind": "rope"})), &SHAPE);
    assert_eq!(run(&used, 512), run(&plain, 512), "plain up to the training length");
    assert_ne!(first, run(&plain, 1024), "scaled past it");
    let EncodingConfig::Rope(dynamic) = &dynamic else { unreachable!() };
    let plain = rope(json!({"kind": "rope"})).frequencies(8, 1.0);
    for length in [1.0, 2.0, 511.0, 512.0] {
        assert_eq!(dynamic.frequencies(8, length), plain);
    }
    let slowest: Vec<f64> = [512.0, 513.0, 1024.0, 4096.0, 65_536.0].map(|length| dynamic.frequencies(8, length).inv_freq[3]).to_vec();
    assert!(slowest.windows(2).all(|pair| pair[0] > pair[1]), "longer is slower: {slowest:?}");
}

#[test]
fn decoding_one_token_equals_the_last_row() {
    for (name, config) in all_configs() {
        let encoding = build(&config, &SHAPE);
        let positions = Positions::new(vec![10.0], (2..11).map(f64::from).collect());
        let (all, one) = (prepare(&encoding, &Positions::from_offset(2, 9)), prepare(&encoding, &positions));
        let (q, k) = (random(1, [1, 4, 9, 8]), random(2, [1, 4, 9, 8]));
        let (q_all, k_all) = all.transform_qk(0, q.clone(), k.clone());
        let (q_one, k_one) = one.transform_qk(0, q.slice_dim(2, 8..9), k);
        assert_eq!(host(q_all.slice_dim(2, 8..9)), host(q_one), "{name}: query");
        assert_eq!(host(k_all), host(k_one), "{name}: keys");
        match (all.logits_bias(0), one.logits_bias(0)) {
            (Some(all), Some(one)) => assert_eq!(bias_block(&all, 8..9, 0..9), bias_block(&one, 0..1, 0..9), "{name}: bias"),
            (all, one) => assert!(all.is_none() && one.is_none(), "{name}"),
        }
        let x = random(3, [1, 9, 32]);
        let (embedded, last) = (all.embed(x.clone()), one.embed(x.slice_dim(1, 8..9)));
        assert_eq!(host(embedded.slice_dim(1, 8..9)), host(last), "{name}: input");
    }
}

// Bias

#[test]
fn slopes_of_a_power_of_two_fall_and_interleave_with_those_of_the_next() {
    for heads in [1, 2, 4, 8, 16, 32, 64] {
        let (these, next) = (slopes(heads), slopes(2 * heads));
        assert!(these.windows(2).all(|pair| pair[0] > pair[1]), "{heads} heads");
        assert!((these[heads - 1] - 1.0 / 256.0).abs() < 1e-15);
        let every_other: Vec<f64> = next.iter().skip(1).step_by(2).copied().collect();
        assert!(largest_difference(&these, &every_other) < 1e-15);
    }
    for heads in 1..=80 {
        let mut these = slopes(heads);
        assert_eq!(these.len(), heads);
        assert!(these.iter().all(|slope| *slope > 0.0 && *slope < 1.0));
        these.sort_by(f64::total_cmp);
        assert!(these.windows(2).all(|pair| pair[1] / pair[0] > 1.0 + 1e-9), "{heads} heads: two share a slope");
    }
    assert!(slopes(0).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_penalty_grows_with_distance(query in 0usize..60_000, steps in prop::collection::vec(1usize..1000, 1..20), heads in 1usize..20) {
        let shape = ModelShape { d_model: 8, n_layers: 1, n_heads: heads, head_dim: 8 };
        let alibi = build(&config(json!({"kind": "alibi"})), &shape);
        let keys: Vec<f64> = steps.iter().scan(query, |key, step| { *key += step; Some(*key as f64) }).collect();
        let length = keys.len();
        for (queries, keys) in [(vec![query as f64], keys.clone()), (keys.iter().rev().copied().collect(), vec![query as f64])] {
            let (q_len, k_len) = (queries.len(), keys.len());
            let prepared = prepare(&alibi, &Positions::new(queries.clone(), keys));
            let bias = bias_block(&prepared.logits_bias(0).expect("ALiBi has a bias"), 0..q_len, 0..k_len);
            for head in bias.chunks(length) {
                let nearest_first: Vec<f64> = if q_len == 1 { head.to_vec() } else { head.iter().rev().copied().collect() };
                prop_assert!(nearest_first[0] < 0.0);
                prop_assert!(nearest_first.windows(2).all(|pair| pair[1] < pair[0]), "{nearest_first:?}");
            }
        }
    }

    #[test]
    fn a_block_is_a_slice_of_the_whole(
        index in 0usize..1000, offset in 0usize..20, q0 in 0usize..12, q_len in 1usize..8, k0 in 0usize..12, k_len in 1usize..8, layer in 0usize..2,
    ) {
        let biased: Vec<(String, EncodingConfig)> =
            all_configs().into_iter().filter(|(_, config)| config.facts(&SHAPE).hooks.logits_bias).collect();
        let (name, config) = &biased[index % biased.len()];
        let encoding = build(config, &SHAPE);
        let prepared = prepare(&encoding, &Positions::from_offset(offset, 20));
        let bias = prepared.logits_bias(layer).expect("declared");
        let whole = bias.block(0..20, 0..20);
        let block = bias.block(q0..q0 + q_len, k0..k0 + k_len);
        let [batch, heads, rows, columns] = block.dims();
        prop_assert!(batch == 1 && (heads == 1 || heads == SHAPE.n_heads) && (rows, columns) == (q_len, k_len), "{}: shape", name);
        let slice = whole.slice_dim(2, q0..q0 + q_len).slice_dim(3, k0..k0 + k_len);
        prop_assert_eq!(host(block), host(slice), "{}", name);
    }
}

// Stacks

/// All four hooks of a configuration on fixed inputs, concatenated.
fn all_hooks(encoding: &Encoding, positions: &Positions) -> Vec<f64> {
    let prepared = prepare(encoding, positions);
    let length = positions.queries().len();
    let mut out = host(prepared.embed(random(1, [1, length, 32])));
    let (q, k) = prepared.transform_qk(0, random(2, [1, 4, length, 8]), random(3, [1, 4, length, 8]));
    if let Some(bias) = prepared.logits_bias(0) {
        out.extend(bias_block(&bias, 0..length, 0..length));
    }
    if let Some(bias) = content_bias(prepared.as_ref(), &q, &k) {
        out.extend(host(bias));
    }
    out.extend(host(q));
    out.extend(host(k));
    out
}

#[test]
fn nope_is_the_unit_of_stack() {
    let positions = Positions::from_offset(5, 7);
    for (name, part) in all_configs() {
        let part_value = serde_json::to_value(&part).expect("plain data");
        let alone = all_hooks(&build(&part, &SHAPE), &positions);
        let nope = json!({"kind": "nope"});
        for (parts, index) in [(vec![part_value.clone()], 0), (vec![nope.clone(), part_value.clone()], 1), (vec![part_value, nope], 0)] {
            let stack = config(json!({"kind": "stack", "parts": parts}));
            // The same values whatever the path.
            let draw_part = |path: &str, shape: &[usize], distribution| {
                draw(path.strip_prefix(&format!("parts.{index}.")).expect("a part's path"), shape, distribution)
            };
            let device = device();
            let stacked = stack.init(&SHAPE, &Init::new(&device, &draw_part));
            assert_eq!(all_hooks(&stacked, &positions), alone, "{name}");
            assert_eq!(stack.facts(&SHAPE).hooks, part.facts(&SHAPE).hooks, "{name}");
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
    let parts: Vec<Encoding> = parts.into_iter().map(|part| build(&config(part), &SHAPE)).collect();
    let positions = Positions::from_offset(3, 5);
    let whole = prepare(&stack, &positions);
    let prepared: Vec<Box<dyn Prepared + '_>> = parts.iter().map(|part| prepare(part, &positions)).collect();
    let (x, q, k) = (random(1, [2, 5, 32]), random(2, [2, 4, 5, 8]), random(3, [2, 4, 5, 8]));

    let embedded = prepared[4].embed(prepared[0].embed(x.clone()));
    assert_eq!(host(whole.embed(x)), host(embedded));
    let in_turn = |order: [usize; 2]| {
        let (q, k) = prepared[order[0]].transform_qk(0, q.clone(), k.clone());
        let (q, k) = prepared[order[1]].transform_qk(0, q, k);
        (host(q), host(k))
    };
    let (turned_q, turned_k) = whole.transform_qk(0, q.clone(), k.clone());
    let turned = (host(turned_q), host(turned_k));
    assert_eq!(turned, in_turn([1, 2]), "first part first");
    assert!(largest_difference(&turned.0, &in_turn([2, 1]).0) > 1e-3, "these two do not commute, so the order shows");
    let one = bias_block(&prepared[3].logits_bias(0).expect("ALiBi"), 1..5, 0..4);
    let both = bias_block(&whole.logits_bias(0).expect("ALiBi twice"), 1..5, 0..4);
    assert_eq!(both, one.iter().map(|bias| 2.0 * bias).collect::<Vec<f64>>());
}

#[test]
fn a_bias_of_no_term_is_a_broken_promise() {
    struct Ones;
    impl BiasBlocks for Ones {
        fn block(&self, queries: std::ops::Range<usize>, keys: std::ops::Range<usize>) -> Tensor<4> {
            Tensor::ones([1, 1, queries.len(), keys.len()], &device())
        }
    }
    assert_eq!(bias_block(&Bias::new(Ones).plus(Bias::new(Ones)), 0..2, 1..2), [2.0, 2.0]);
    assert!(catch_unwind(|| Bias::default().block(0..1, 0..1)).is_err());
}

#[test]
fn content_gives_logits_on_request() {
    let (q, k) = (random(1, [2, 3, 4, 8]), random(2, [2, 3, 6, 8]));
    let logits = Content { q: &q, k: &k, queries: 2..6, keys: 0..6 }.logits();
    assert_eq!(logits.dims(), [2, 3, 4, 6]);
    let (q, k) = (host(q), host(k));
    let pairs = (0..6).flat_map(|bh| (0..4).flat_map(move |i| (0..6).map(move |j| (bh, i, j))));
    let expected = pairs.map(|(bh, i, j)| dot(&q[(bh * 4 + i) * 8..][..8], &k[(bh * 6 + j) * 8..][..8]) / 8f64.sqrt());
    assert!(largest_difference(&host(logits), &expected.collect::<Vec<_>>()) < 1e-6);
}

// Configurations

#[test]
fn every_configuration_survives_json() {
    for (name, config) in all_configs() {
        let text = serde_json::to_string(&config).expect("plain data");
        assert!(text.starts_with(&format!("{{\"kind\":\"{}\"", config.kind())), "{text}");
        let back: EncodingConfig = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(back, config, "{name}");
    }
    for kind in RopeScaling::KINDS {
        let scaling = RopeScaling::default_of(kind).expect("every scaling has defaults");
        assert_eq!(scaling.kind(), *kind);
        let value = json!({"kind": "rope", "scaling": scaling});
        assert_eq!(rope(value).scaling, Some(scaling));
    }
    assert!(!serde_json::to_string(&RopeConfig::default()).expect("plain data").contains("scaling"), "no scaling is no key");
}

#[test]
fn what_is_not_understood_is_refused() {
    for (text, says) in [
        (r#"{"kind": "rpoe"}"#, "unknown variant `rpoe`, expected one of `nope`, `sinusoidal`, `learned`, `rope`, `alibi`, `stack`"),
        (r#"{"base": 10.0, "kind": "rope"}"#, "missing field `kind`"),
        (r#"{}"#, "missing field `kind`"),
        (r#"{"kind": "rope", "bsae": 10.0}"#, "unknown field `bsae`"),
        (r#"{"kind": "nope", "base": 10.0}"#, "unknown field `base`"),
        (r#"{"kind": "alibi", "slopes": []}"#, "unknown field `slopes`"),
        (r#"{"kind": "learned", "rows": 1}"#, "unknown field `rows`"),
        (r#"{"kind": "sinusoidal", "layout": "half"}"#, "unknown field `layout`"),
        (r#"{"kind": "sinusoidal", "order": "halves"}"#, "unknown variant `halves`"),
        (r#"{"kind": "rope", "layout": "neox"}"#, "unknown variant `neox`"),
        (r#"{"kind": "rope", "base": "big"}"#, "invalid type"),
        (r#"{"kind": "rope", "rotary_dim": -2}"#, "invalid value"),
        (r#"{"kind": "stack"}"#, "missing field `parts`"),
        (r#"{"kind": "stack", "parts": [{"kind": "rope", "x": 1}]}"#, "unknown field `x`"),
        (r#"{"kind": "stack", "parts": [], "kinds": 1}"#, "unknown field `kinds`"),
        (r#"{"kind": "rope", "scaling": {"kind": "ntk", "betas": 1}}"#, "unknown field `betas`"),
        (r#"{"kind": "rope", "scaling": {"factor": 2.0, "kind": "ntk"}}"#, "missing field `kind`"),
        (r#"{"kind": "rope", "scaling": {"kind": "pi"}}"#, "unknown variant `pi`"),
        (r#"{"kind": "rope", "scaling": {"kind": "linear", "factor": "automatic"}}"#, "a number of at least 1 or \"auto\""),
        (r#"{"kind": "rope", "scaling": {"kind": "dynamic_ntk", "factor": "auto"}}"#, "invalid type"),
        (r#""rope""#, "a table with `kind`"),
    ] {
        let error = serde_json::from_str::<EncodingConfig>(text).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn factors_are_numbers_or_auto() {
    for (text, expected) in [("4", Factor::Fixed(4.0)), ("4.5", Factor::Fixed(4.5)), ("\"auto\"", Factor::Auto)] {
        let factor: Factor = serde_json::from_str(text).expect(text);
        assert_eq!(factor, expected);
        let again: Factor = serde_json::from_str(&serde_json::to_string(&factor).expect("plain data")).expect("what was written");
        assert_eq!(again, expected);
    }
}

#[test]
fn every_refusal_names_its_key() {
    let shape = |head_dim: usize| ModelShape { d_model: 4 * head_dim, n_layers: 2, n_heads: 4, head_dim };
    let scaled = |scaling: Value| json!({"kind": "rope", "scaling": scaling});
    let yarn = |options: Value| {
        let mut scaling = json!({"kind": "yarn"});
        scaling.as_object_mut().expect("a table").extend(options.as_object().expect("a table").clone());
        scaled(scaling)
    };
    let refused: Vec<(Value, usize, &str)> = vec![
        (json!({"kind": "rope"}), 7, "rotary_dim"),
        (json!({"kind": "rope", "rotary_dim": 3}), 8, "rotary_dim"),
        (json!({"kind": "rope", "rotary_dim": 0}), 8, "rotary_dim"),
        (json!({"kind": "rope", "rotary_dim": 10}), 8, "rotary_dim"),
        (json!({"kind": "rope", "rotary_dim": 8}), 7, "rotary_dim"),
        (json!({"kind": "rope", "base": 1.0}), 8, "base"),
        (json!({"kind": "rope", "base": -10.0}), 8, "base"),
        (json!({"kind": "rope", "base": 1e16}), 8, "base"),
        (json!({"kind": "sinusoidal", "base": 0.5}), 8, "base"),
        (json!({"kind": "sinusoidal", "scale": 0.0}), 8, "scale"),
        (json!({"kind": "sinusoidal", "scale": -1.0}), 8, "scale"),
        (json!({"kind": "learned", "max_position": 0}), 8, "max_position"),
        (json!({"kind": "learned", "max_position": 100_000_000}), 8, "max_position"),
        (json!({"kind": "learned", "init_std": -0.1}), 8, "init_std"),
        (json!({"kind": "stack", "parts": []}), 8, "parts"),
        (json!({"kind": "stack", "parts": vec![json!({"kind": "nope"}); 17]}), 8, "parts"),
        (json!({"kind": "stack", "parts": [{"kind": "nope"}, {"kind": "rope", "base": 0.0}]}), 8, "parts.1.base"),
        (
            json!({"kind": "stack", "parts": [{"kind": "stack", "parts": [{"kind": "rope", "scaling": {"kind": "linear", "factor": 0.5}}]}]}),
            8,
            "parts.0.parts.0.scaling.factor",
        ),
        (scaled(json!({"kind": "linear", "factor": 0.99})), 8, "scaling.factor"),
        (scaled(json!({"kind": "linear", "factor": 1e7})), 8, "scaling.factor"),
        (scaled(json!({"kind": "linear", "original_max_position_embeddings": 0})), 8, "scaling.original_max_position_embeddings"),
        (scaled(json!({"kind": "ntk", "factor": 0.0})), 8, "scaling.factor"),
        (scaled(json!({"kind": "ntk", "original_max_position_embeddings": 0})), 8, "scaling.original_max_position_embeddings"),
        (scaled(json!({"kind": "ntk"})), 2, "scaling.kind"),
        (scaled(json!({"kind": "dynamic_ntk"})), 2, "scaling.kind"),
        (json!({"kind": "rope", "rotary_dim": 2, "scaling": {"kind": "ntk"}}), 8, "scaling.kind"),
        (scaled(json!({"kind": "dynamic_ntk", "factor": 0.5})), 8, "scaling.factor"),
        (scaled(json!({"kind": "dynamic_ntk", "original_max_position_embeddings": 0})), 8, "scaling.original_max_position_embeddings"),
        (yarn(json!({"factor": 0.5})), 8, "scaling.factor"),
        (yarn(json!({"original_max_position_embeddings": 0})), 8, "scaling.original_max_position_embeddings"),
        (yarn(json!({"beta_fast": 1.0, "beta_slow": 32.0})), 8, "scaling.beta_fast"),
        (yarn(json!({"beta_fast": 2.0, "beta_slow": 2.0})), 8, "scaling.beta_fast"),
        (yarn(json!({"beta_slow": 0.0})), 8, "scaling.beta_slow"),
        (yarn(json!({"beta_fast": 1e9})), 8, "scaling.beta_fast"),
        (yarn(json!({"attention_factor": 0.0})), 8, "scaling.attention_factor"),
        (yarn(json!({"mscale": 1.0})), 8, "scaling.mscale"),
        (yarn(json!({"mscale_all_dim": 1.0})), 8, "scaling.mscale_all_dim"),
        (yarn(json!({"mscale": -1.0, "mscale_all_dim": 1.0})), 8, "scaling.mscale"),
        (yarn(json!({"mscale": 1.0, "mscale_all_dim": -1.0})), 8, "scaling.mscale_all_dim"),
    ];
    for (value, head_dim, key) in refused {
        let config = config(value.clone());
        let error = config.check(&shape(head_dim)).expect_err(&value.to_string());
        assert_eq!(error.key, key, "{value}: {error}");
        let parts = [&error.value, &error.problem, &error.allowed, &error.hint];
        assert!(parts.iter().all(|part| !part.is_empty() && error.to_string().contains(part.as_str())), "{error}");
    }
}

#[test]
fn numbers_that_are_not_numbers_are_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let yarn = |change: &dyn Fn(&mut YarnScaling)| {
            let mut yarn = YarnScaling::default();
            change(&mut yarn);
            EncodingConfig::Rope(RopeConfig { scaling: Some(RopeScaling::Yarn(yarn)), ..Default::default() })
        };
        for (config, key) in [
            (EncodingConfig::Rope(RopeConfig { base: bad, ..Default::default() }), "base"),
            (EncodingConfig::Sinusoidal(posenc::SinusoidalConfig { base: bad, ..Default::default() }), "base"),
            (EncodingConfig::Sinusoidal(posenc::SinusoidalConfig { scale: bad, ..Default::default() }), "scale"),
            (EncodingConfig::Learned(posenc::LearnedConfig { init_std: bad, ..Default::default() }), "init_std"),
            (yarn(&|yarn| yarn.factor = Factor::Fixed(bad)), "scaling.factor"),
            (yarn(&|yarn| yarn.beta_fast = bad), "scaling.beta_fast"),
            (yarn(&|yarn| yarn.beta_slow = bad), "scaling.beta_slow"),
            (yarn(&|yarn| yarn.attention_factor = Some(bad)), "scaling.attention_factor"),
            (yarn(&|yarn| (yarn.mscale, yarn.mscale_all_dim) = (Some(bad), Some(1.0))), "scaling.mscale"),
            (yarn(&|yarn| (yarn.mscale, yarn.mscale_all_dim) = (Some(1.0), Some(bad))), "scaling.mscale_all_dim"),
        ] {
            assert_eq!(config.check(&SHAPE).expect_err(key).key, key);
        }
    }
}

#[test]
fn the_refusal_of_two_dimensions_names_the_scaling_that_was_asked_for() {
    for kind in ["ntk", "dynamic_ntk"] {
        let rope = config(json!({"kind": "rope", "rotary_dim": 2, "scaling": {"kind": kind}}));
        assert_eq!(rope.check(&SHAPE).expect_err(kind).value, kind);
    }
}

#[test]
fn defaults_pass_their_own_check_before_and_after_resolving() {
    for kind in EncodingConfig::KINDS {
        let Some(mut config) = EncodingConfig::default_of(kind) else { continue };
        for _ in 0..2 {
            config.check(&SHAPE).unwrap_or_else(|error| panic!("{kind}: {error}"));
            config.resolve(&LENGTHS);
        }
    }
    let odd = ModelShape { d_model: 35, n_layers: 1, n_heads: 5, head_dim: 7 };
    for kind in ["nope", "sinusoidal", "learned", "alibi"] {
        EncodingConfig::default_of(kind).expect("has defaults").check(&odd).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

#[test]
fn resolving_replaces_what_depends_on_lengths_and_nothing_else() {
    let resolved = |value: Value, train_len: usize, test_len: usize| {
        let mut config = config(value);
        config.resolve(&Lengths { train_len, test_len });
        let once = config.clone();
        config.resolve(&Lengths { train_len: 7, test_len: 7777 });
        assert_eq!(config, once, "resolving twice changes nothing");
        serde_json::to_value(&config).expect("plain data")
    };
    for kind in ["linear", "ntk", "yarn"] {
        let factor_of = |scaling: Value, train_len: usize, test_len: usize| {
            let scaling = resolved(json!({"kind": "rope", "scaling": scaling}), train_len, test_len)["scaling"].clone();
            (scaling["factor"].as_f64().expect("a number"), scaling["original_max_position_embeddings"].as_u64().expect("a length"))
        };
        assert_eq!(factor_of(json!({"kind": kind}), 64, 256), (4.0, 64), "{kind}");
        assert_eq!(factor_of(json!({"kind": kind}), 64, 96), (1.5, 64), "{kind}: not rounded");
        assert_eq!(factor_of(json!({"kind": kind}), 64, 32), (1.0, 64), "{kind}: never below 1");
        assert_eq!(factor_of(json!({"kind": kind, "factor": 3.0}), 64, 256), (3.0, 64), "{kind}: a given factor stays");
        let original = json!({"kind": kind, "original_max_position_embeddings": 128});
        assert_eq!(factor_of(original, 64, 256), (2.0, 128), "{kind}: a given length counts");
    }
    let dynamic = resolved(json!({"kind": "rope", "scaling": {"kind": "dynamic_ntk"}}), 64, 256);
    assert_eq!(dynamic["scaling"], json!({"kind": "dynamic_ntk", "factor": 1.0, "original_max_position_embeddings": 64}));
    assert_eq!(resolved(json!({"kind": "learned"}), 64, 256)["max_position"], 64);
    assert_eq!(resolved(json!({"kind": "learned", "max_position": 9}), 64, 256)["max_position"], 9);
    let stack = resolved(json!({"kind": "stack", "parts": [{"kind": "learned"}, {"kind": "rope", "scaling": {"kind": "yarn"}}]}), 64, 256);
    assert_eq!((stack["parts"][0]["max_position"].clone(), stack["parts"][1]["scaling"]["factor"].clone()), (json!(64), json!(4.0)));
    for plain in [json!({"kind": "nope"}), json!({"kind": "alibi"}), json!({"kind": "rope"}), json!({"kind": "sinusoidal"})] {
        assert_eq!(resolved(plain.clone(), 64, 256), serde_json::to_value(config(plain)).expect("plain data"));
    }
}

#[test]
fn a_longer_test_never_changes_a_shorter_one() {
    // `factor = "auto"` is resolved per test length: the encoding of one length is a function of that length alone.
    let of = |test_len: usize| {
        let mut yarn = config(json!({"kind": "rope", "scaling": {"kind": "yarn"}}));
        yarn.resolve(&Lengths { train_len: 64, test_len });
        let EncodingConfig::Rope(rope) = yarn else { unreachable!() };
        rope.frequencies(64, test_len as f64)
    };
    let first = of(128);
    of(4096);
    assert_eq!(of(128), first);
    assert!((of(128).attention_factor - (0.1 * 2f64.ln() + 1.0)).abs() < 1e-15);
    assert_eq!(of(32), rope(json!({"kind": "rope"})).frequencies(64, 32.0));
}

// Positions

#[test]
fn positions_hold_what_they_are_given() {
    let contiguous = Positions::contiguous(4);
    assert_eq!((contiguous.queries(), contiguous.keys()), (&[0.0, 1.0, 2.0, 3.0][..], &[0.0, 1.0, 2.0, 3.0][..]));
    assert_eq!((contiguous.length(), contiguous.rows()), (4.0, 4));
    assert_eq!(Positions::from_offset(3, 2).queries(), [3.0, 4.0]);
    let decode = Positions::new(vec![7.0], (0..8).map(f64::from).collect());
    assert_eq!((decode.queries().len(), decode.keys().len(), decode.length()), (1, 8, 8.0));
    assert_eq!(Positions::new(vec![0.0], vec![2.5]).rows(), 4, "a position between two rows needs both");
    for (queries, keys) in [(vec![1.0], vec![]), (vec![-1.0], vec![0.0]), (vec![0.0], vec![f64::NAN]), (vec![f64::INFINITY], vec![0.0])] {
        assert!(catch_unwind(|| Positions::new(queries, keys)).is_err());
    }
}

#[test]
fn any_order_and_repetition_of_positions_is_allowed() {
    for (name, config) in all_configs() {
        let shuffled = [5.0, 0.0, 3.0, 3.0];
        let encoding = build(&config, &SHAPE);
        let whole = prepare(&encoding, &Positions::contiguous(6));
        let some = prepare(&encoding, &Positions::new(shuffled.to_vec(), shuffled.to_vec()));
        let x = random(1, [1, 1, 32]);
        let whole_rows = host(whole.embed(x.clone().repeat_dim(1, 6)));
        let rows = host(some.embed(x.repeat_dim(1, 4)));
        let q = random(2, [1, 4, 1, 8]);
        let (whole_q, _) = whole.transform_qk(0, q.clone().repeat_dim(2, 6), q.clone().repeat_dim(2, 6));
        let (turned_q, _) = some.transform_qk(0, q.clone().repeat_dim(2, 4), q.repeat_dim(2, 4));
        for (i, p) in shuffled.map(|p| p as usize).into_iter().enumerate() {
            assert_eq!(rows[i * 32..][..32], whole_rows[p * 32..][..32], "{name}");
            let (turned, whole) = (turned_q.clone().slice_dim(2, i..i + 1), whole_q.clone().slice_dim(2, p..p + 1));
            assert_eq!(host(turned), host(whole), "{name}");
        }
    }
}

// Burn's own modules, where their f32 angles are still good

#[test]
fn interleaved_rope_agrees_with_burn_at_small_positions() {
    let theirs = RotaryEncodingConfig::new(64, 16).init(&device());
    let x = random(1, [1, 2, 64, 16]);
    let shape = ModelShape { d_model: 32, n_layers: 1, n_heads: 2, head_dim: 16 };
    let ours = build(&config(json!({"kind": "rope", "layout": "interleaved"})), &shape);
    let (turned, _) = prepare(&ours, &Positions::contiguous(64)).transform_qk(0, x.clone(), x.clone());
    assert!(largest_difference(&host(turned), &host(theirs.forward(x))) < 2e-5);
}

#[test]
fn interleaved_sinusoidal_agrees_with_burn_at_small_positions() {
    let theirs = PositionalEncodingConfig::new(32).init(&device());
    let x = random(1, [1, 64, 32]);
    let ours = build(&config(json!({"kind": "sinusoidal"})), &SHAPE);
    let added = prepare(&ours, &Positions::contiguous(64)).embed(x.clone());
    assert!(largest_difference(&host(added), &host(theirs.forward(x))) < 2e-5);
}

#[test]
fn angles_formed_in_f32_would_be_caught() {
    let shape = ModelShape { d_model: 64, n_layers: 1, n_heads: 1, head_dim: 64 };
    let ours = build(&config(json!({"kind": "rope"})), &shape);
    let unit: Vec<f64> = (0..64).map(|i| f64::from(i < 32)).collect();
    let position = 131_071.0;
    let cos = &turn(&ours, &unit, position)[..32];
    let single = |i: usize| f64::from((position as f32 * 10_000f32.powf(-(i as f32) / 32.0)).cos());
    let double = |i: usize| (position * 10_000f64.powf(-(i as f64) / 32.0)).cos();
    assert!(largest_difference(cos, &(0..32).map(double).collect::<Vec<_>>()) < 1e-7);
    assert!(largest_difference(cos, &(0..32).map(single).collect::<Vec<_>>()) > 1e-3);
}
