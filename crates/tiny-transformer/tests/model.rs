//! The model against a slow f64 reference on the host, and the promises it makes: paths, causality,
//! blocks, dropout sites.

mod common;

use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Tensor};
use common::reference::{Host, Part, nll_of};
use common::{
    AllHooks, Call, ContentOnly, VARIANTS, Weights, config, draw, encodings, gradients, host, ints,
    largest_difference, linear, model, noise, reach, seed_of, small, tokens, weights,
};
use posenc::{Encoding, EncodingConfig, Init, PositionalEncoding, Positions};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tiny_transformer::{
    Activation, FeatureMap, NormKind, Normalizer, Pass, QkNorm, Transformer, TransformerConfig,
};

const BATCH: usize = 2;
const LENGTH: usize = 12;

fn device() -> Device {
    Device::flex()
}

fn all_variants() -> impl Iterator<Item = TransformerConfig> {
    let norms = [NormKind::LayerNorm, NormKind::RmsNorm];
    let activations = [Activation::Gelu, Activation::Swiglu];
    let each = norms.into_iter().flat_map(move |norm| {
        activations
            .into_iter()
            .map(move |activation| (norm, activation))
    });
    let all =
        each.flat_map(|(norm, activation)| [false, true].map(|tied| small(norm, activation, tied)));
    let first = small(NormKind::LayerNorm, Activation::Gelu, false);
    all.chain(
        [QkNorm::LayerNorm, QkNorm::RmsNorm].map(|qk_norm| TransformerConfig {
            qk_norm,
            ..first.clone()
        }),
    )
}

fn forward<E: Module + PositionalEncoding>(
    model: &Transformer<E>,
    tokens: &[i64],
    batch: usize,
    pass: &Pass<'_>,
) -> Vec<f64> {
    let length = tokens.len() / batch;
    host(model.forward(
        ints(tokens, batch, &device()),
        &Positions::contiguous(length),
        pass,
    ))
}

fn blocks_of(max_logits: usize) -> Pass<'static> {
    Pass {
        max_logits,
        ..Pass::default()
    }
}

/// Encodings that the reference knows, each on its own.
fn references() -> Vec<(&'static str, Vec<Part>)> {
    vec![
        ("nope", vec![]),
        ("sinusoidal", vec![Part::Sinusoidal]),
        ("learned", vec![Part::Learned]),
        ("rope", vec![Part::RopeHalf]),
        ("xpos", vec![Part::Xpos]),
        ("alibi", vec![Part::Alibi]),
        ("pope", vec![Part::Pope]),
        ("shaw", vec![Part::Shaw]),
        ("fox", vec![Part::Fox]),
    ]
}

fn of_kind(kind: &str) -> EncodingConfig {
    match kind {
        "learned" => config(json!({"kind": "learned", "max_position": 32, "init_std": 0.5})),
        "shaw" => config(json!({"kind": "shaw", "init_std": 0.5})),
        _ => config(json!({"kind": kind})),
    }
}

fn all_hooks(config: &TransformerConfig) -> Transformer<AllHooks> {
    let device = device();
    let init = Init::new(&device, &draw);
    Transformer::with(config, AllHooks::new(&init.scope("encoding")), &init)
}

fn content_only(config: &TransformerConfig) -> Transformer<ContentOnly> {
    let device = device();
    let init = Init::new(&device, &draw);
    Transformer::with(config, ContentOnly::new(&init.scope("encoding")), &init)
}

#[test]
fn the_model_equals_a_slow_reference_in_f64() {
    let tokens = tokens(1, BATCH, LENGTH, 11);
    for config in all_variants() {
        for (kind, encoding) in references() {
            let model = model(&config, &of_kind(kind), &device());
            let weights = weights(&model);
            let host = Host {
                config: &config,
                weights: &weights,
                encoding: &encoding,
                factors: None,
            };
            let difference = largest_difference(
                &forward(&model, &tokens, BATCH, &Pass::default()),
                &host.logits(&tokens, BATCH),
            );
            assert!(difference < 1e-5, "{kind} in {config:?}: {difference}");
        }
    }
}

#[test]
fn every_hook_enters_where_it_is_said_to() {
    let tokens = tokens(2, BATCH, LENGTH, 11);
    for (norm, activation, tied) in VARIANTS {
        let config = small(norm, activation, tied);
        let model = all_hooks(&config);
        let weights = weights(&model);
        let host = Host {
            config: &config,
            weights: &weights,
            encoding: &[Part::AllHooks],
            factors: None,
        };
        let expected = host.logits(&tokens, BATCH);
        for rows in [1, 5, LENGTH] {
            let got = forward(
                &model,
                &tokens,
                BATCH,
                &blocks_of(BATCH * 3 * LENGTH * rows),
            );
            assert!(
                largest_difference(&got, &expected) < 1e-5,
                "{rows} rows at a time"
            );
        }
    }
}

/// Gradients of the f32 model, fused where the device has fused operations, against differences of
/// the f64 reference.
#[test]
fn gradients_in_f32_are_those_of_the_reference() {
    fn agrees<E: Module + ModuleDisplay + PositionalEncoding>(
        name: &str,
        config: &TransformerConfig,
        encoding: &[Part],
        build: &dyn Fn(&Init<'_>) -> Transformer<E>,
    ) {
        let device = device().autodiff();
        let (inputs, targets) = (tokens(2, BATCH, LENGTH, 11), tokens(3, BATCH, LENGTH, 11));
        let model = build(&Init::new(&device, &draw));
        let positions = Positions::contiguous(LENGTH);
        let pass = blocks_of(BATCH * 3 * LENGTH * 7);
        let (nll, _) = model.nll(
            ints(&inputs, BATCH, &device),
            ints(&targets, BATCH, &device),
            &positions,
            &pass,
        );
        let found = gradients(&model, &nll.mean());
        let start = weights(&model);
        for (path, (_, values)) in &start {
            for pick in noise(seed_of(path), 2) {
                let entry = ((pick + 1.0) / 2.0 * values.len() as f64) as usize;
                let at = |delta: f64| {
                    let mut weights = start.clone();
                    weights.get_mut(path).expect("one of them").1[entry] += delta;
                    let host = Host {
                        config,
                        weights: &weights,
                        encoding,
                        factors: None,
                    };
                    nll_of(&host.logits(&inputs, BATCH), &targets)
                        .iter()
                        .sum::<f64>()
                        / (BATCH * LENGTH) as f64
                };
                let (got, expected) = (found[path].1[entry], (at(1e-5) - at(-1e-5)) / 2e-5);
                assert!(
                    (got - expected).abs() < 1e-6 + 1e-4 * expected.abs(),
                    "{name}: {path}[{entry}]: {got:e} for {expected:e}"
                );
            }
        }
    }
    for (norm, activation, tied) in VARIANTS {
        let config = small(norm, activation, tied);
        for (kind, reference) in references() {
            agrees(kind, &config, &reference, &|init| {
                Transformer::new(&config, &of_kind(kind), init)
            });
        }
        agrees("all hooks", &config, &[Part::AllHooks], &|init| {
            Transformer::with(&config, AllHooks::new(&init.scope("encoding")), init)
        });
    }
}

#[test]
fn dropout_factors_enter_at_their_sites() {
    let tokens = tokens(3, BATCH, LENGTH, 11);
    let factors = |site: usize, count: usize| -> Vec<f32> {
        common::noise(site as u64, count)
            .iter()
            .map(|v| if *v < -0.5 { 0.0 } else { 1.0 / 0.75 })
            .collect()
    };
    for (norm, activation, tied) in VARIANTS {
        let config = small(norm, activation, tied);
        let model = model(&config, &of_kind("rope"), &device());
        let weights = weights(&model);
        let host = Host {
            config: &config,
            weights: &weights,
            encoding: &[Part::RopeHalf],
            factors: Some(&factors),
        };
        let got = forward(
            &model,
            &tokens,
            BATCH,
            &Pass {
                dropout: Some(&factors),
                ..Pass::default()
            },
        );
        assert!(largest_difference(&got, &host.logits(&tokens, BATCH)) < 1e-5);
        let asked = RefCell::new(Vec::new());
        let ones = |site: usize, count: usize| {
            asked.borrow_mut().push((site, count));
            vec![1.0; count]
        };
        let with_ones = forward(
            &model,
            &tokens,
            BATCH,
            &Pass {
                dropout: Some(&ones),
                ..Pass::default()
            },
        );
        let without = forward(&model, &tokens, BATCH, &Pass::default());
        assert!(
            largest_difference(&with_ones, &without) < 1e-5,
            "factors of 1 change nothing but the last bits"
        );
        let expected: Vec<_> = (0..2 * config.n_layers + 1)
            .map(|site| (site, BATCH * LENGTH * config.d_model))
            .collect();
        assert_eq!(*asked.borrow(), expected, "each site once, in order");
        let zeros = |_: usize, count: usize| vec![0.0; count];
        let silent = forward(
            &model,
            &tokens,
            BATCH,
            &Pass {
                dropout: Some(&zeros),
                ..Pass::default()
            },
        );
        assert!(
            silent.chunks(11).all(|row| row == &silent[..11]),
            "nothing is left to tell one row from another"
        );
    }
}

// Parameters

#[test]
fn the_number_of_parameters_is_known_before_the_model_is() {
    for config in all_variants() {
        for (name, encoding) in encodings() {
            let model = model(&config, &encoding, &device());
            let expected = config.num_params(&encoding.facts(&config.shape()));
            assert_eq!(model.num_params() as u64, expected, "{name} in {config:?}");
            let counted: usize = weights(&model)
                .values()
                .map(|(_, values)| values.len())
                .sum();
            assert_eq!(counted as u64, expected, "{name} in {config:?}");
        }
    }
}

#[test]
fn every_parameter_is_drawn_once_by_the_path_it_is_found_at() {
    for config in all_variants() {
        for (name, encoding) in encodings() {
            let asked = RefCell::new(Vec::new());
            let source = |path: &str, shape: &[usize], distribution| {
                asked.borrow_mut().push((path.to_owned(), shape.to_vec()));
                draw(path, shape, distribution)
            };
            let device = device();
            let model = Transformer::new(&config, &encoding, &Init::new(&device, &source));
            let mut asked = asked.into_inner();
            asked.sort();
            let found: Vec<_> = weights(&model)
                .into_iter()
                .map(|(path, (shape, _))| (path, shape))
                .collect();
            assert_eq!(asked, found, "{name} in {config:?}");
            let under = found.iter().filter_map(|(path, shape)| {
                Some((path.strip_prefix("encoding.")?.to_owned(), shape.clone()))
            });
            let mut declared = encoding.facts(&config.shape()).parameters;
            declared.sort();
            assert_eq!(under.collect::<Vec<_>>(), declared, "{name}");
        }
    }
}

#[test]
fn models_that_differ_in_their_encoding_share_all_other_weights() {
    let config = small(NormKind::LayerNorm, Activation::Swiglu, false);
    let common = |weights: Weights| -> Weights {
        weights
            .into_iter()
            .filter(|(path, _)| !path.starts_with("encoding."))
            .collect()
    };
    let expected = common(weights(&model(&config, &of_kind("nope"), &device())));
    assert!(expected.len() > 20);
    for (name, encoding) in encodings() {
        assert_eq!(
            common(weights(&model(&config, &encoding, &device()))),
            expected,
            "{name}"
        );
    }
    assert_eq!(common(weights(&all_hooks(&config))), expected);
}

#[test]
fn another_encoding_keeps_the_weights() {
    let config = small(NormKind::RmsNorm, Activation::Gelu, true);
    let trained = model(&config, &of_kind("rope"), &device());
    for (name, encoding) in encodings() {
        let tokens = tokens(4, BATCH, reach(&encoding, LENGTH), 11);
        let fresh = model(&config, &encoding, &device());
        let moved = trained.clone().with_encoding(fresh.encoding().clone());
        assert_eq!(weights(&moved), weights(&fresh), "{name}");
        let pass = Pass::default();
        assert_eq!(
            forward(&moved, &tokens, BATCH, &pass),
            forward(&fresh, &tokens, BATCH, &pass),
            "{name}"
        );
    }
    let (tokens, hooked) = (tokens(4, BATCH, LENGTH, 11), all_hooks(&config));
    let moved = trained.with_encoding(hooked.encoding().clone());
    assert_eq!(
        forward(&moved, &tokens, BATCH, &Pass::default()),
        forward(&hooked, &tokens, BATCH, &Pass::default())
    );
}

#[test]
fn sizes_that_make_no_model_are_refused_by_key() {
    let good = small(NormKind::LayerNorm, Activation::Gelu, true);
    good.check().expect("the small model works");
    let text = serde_json::to_string(&good).expect("plain data");
    assert_eq!(
        serde_json::from_str::<TransformerConfig>(&text).expect("what was written"),
        good
    );
    let changed = |key: &str, value: serde_json::Value| {
        let mut table = serde_json::to_value(&good).expect("plain data");
        table[key] = value;
        serde_json::from_value::<TransformerConfig>(table)
    };
    for key in [
        "vocab_size",
        "d_model",
        "n_layers",
        "n_heads",
        "head_dim",
        "d_ff",
    ] {
        for bad in [0u64, 1 << 40] {
            let config = changed(key, json!(bad)).expect("a whole number");
            assert_eq!(config.check().expect_err(key).key, key);
        }
    }
    for (key, bad) in [
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("embedding_std", 0.0),
        ("embedding_std", 11.0),
    ] {
        assert_eq!(
            changed(key, json!(bad))
                .expect("a number")
                .check()
                .expect_err(key)
                .key,
            key
        );
    }
    assert_eq!(
        TransformerConfig {
            dropout: f64::NAN,
            ..good.clone()
        }
        .check()
        .expect_err("nan")
        .key,
        "dropout"
    );
    assert!(
        changed("heads", json!(1))
            .expect_err("unknown key")
            .to_string()
            .contains("unknown field `heads`")
    );
    assert!(
        changed("norm", json!("batch_norm")).is_err()
            && changed("activation", json!("relu")).is_err()
    );
}

// Time

/// Logits with one token changed differ from the original at no earlier row, and do differ at that
/// row.
fn no_row_sees_the_future<E: Module + PositionalEncoding>(
    name: &str,
    model: &Transformer<E>,
    length: usize,
) {
    let original = tokens(5, BATCH, length, 11);
    for pass in [Pass::default(), blocks_of(BATCH * 3 * length * 5)] {
        let before = forward(model, &original, BATCH, &pass);
        for t in [1, 4, 5, length - 3, length - 1] {
            let mut changed = original.clone();
            for row in changed.chunks_mut(length) {
                row[t] = (row[t] + 1) % 11;
            }
            let after = forward(model, &changed, BATCH, &pass);
            for (before, after) in before.chunks(length * 11).zip(after.chunks(length * 11)) {
                assert_eq!(
                    before[..t * 11],
                    after[..t * 11],
                    "{name}: a row before {t} changed"
                );
                assert_ne!(
                    before[t * 11..],
                    after[t * 11..],
                    "{name}: rows from {t} on are the same"
                );
            }
        }
    }
}

#[test]
fn attention_is_causal_bit_for_bit() {
    for (norm, activation, tied) in VARIANTS {
        let config = small(norm, activation, tied);
        for (name, encoding) in encodings() {
            let length = reach(&encoding, LENGTH);
            no_row_sees_the_future(&name, &model(&config, &encoding, &device()), length);
            if encoding.facts(&config.shape()).linear {
                for normalizer in [
                    Normalizer::Rotated,
                    Normalizer::Unrotated,
                    Normalizer::Cosine,
                ] {
                    let config = linear(config.clone(), FeatureMap::Elu, normalizer);
                    no_row_sees_the_future(
                        &format!("{name}, {normalizer:?}"),
                        &model(&config, &encoding, &device()),
                        length,
                    );
                }
            }
        }
        no_row_sees_the_future("all hooks", &all_hooks(&config), LENGTH);
        no_row_sees_the_future("content only", &content_only(&config), LENGTH);
    }
}

#[test]
fn a_prefix_has_the_same_logits_in_a_longer_context() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, true);
    let mut exempt = 0;
    for (name, encoding) in encodings() {
        // The shorter one lies within the training length, the longer one beyond it where there are
        // positions.
        let (short, long) = (6, reach(&encoding, 30));
        let whole = tokens(6, BATCH, long, 11);
        let prefix: Vec<i64> = whole
            .chunks(long)
            .flat_map(|row| row[..short].to_vec())
            .collect();
        let model = model(&config, &encoding, &device());
        let within = forward(&model, &whole, BATCH, &Pass::default());
        let within: Vec<f64> = within
            .chunks(long * 11)
            .flat_map(|rows| rows[..short * 11].to_vec())
            .collect();
        let difference =
            largest_difference(&within, &forward(&model, &prefix, BATCH, &Pass::default()));
        if encoding.facts(&config.shape()).reads_length {
            exempt += 1;
            assert!(difference > 1e-5, "{name} is said to read the length");
        } else {
            assert!(difference < 1e-5, "{name}: {difference}");
        }
    }
    assert!(exempt > 0, "some read the length");
}

/// Nothing of a longer sequence stays behind in a model.
#[test]
fn a_long_sequence_leaves_no_trace_on_a_short_one() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, true);
    for (name, encoding) in encodings() {
        let variant = |config: &TransformerConfig| {
            let (long, short) = (
                tokens(6, BATCH, reach(&encoding, 32), 11),
                tokens(7, BATCH, 8, 11),
            );
            let [fresh, used] = [(); 2].map(|()| model(config, &encoding, &device()));
            forward(&used, &long, BATCH, &Pass::default());
            assert_eq!(
                forward(&used, &short, BATCH, &Pass::default()),
                forward(&fresh, &short, BATCH, &Pass::default()),
                "{name}"
            );
        };
        variant(&config);
        if encoding.facts(&config.shape()).linear {
            variant(&linear(
                config.clone(),
                FeatureMap::Elu,
                Normalizer::Unrotated,
            ));
        }
    }
}

#[test]
fn without_an_encoding_the_last_row_sees_a_set() {
    let config = TransformerConfig {
        n_layers: 1,
        ..small(NormKind::LayerNorm, Activation::Gelu, true)
    };
    let original = tokens(7, 1, LENGTH, 11);
    let mut shuffled = original.clone();
    shuffled[..LENGTH - 1].reverse();
    for (kind, sees_order) in [
        ("nope", false),
        ("rope", true),
        ("alibi", true),
        ("learned", true),
        ("sinusoidal", true),
    ] {
        let model = model(&config, &of_kind(kind), &device());
        let last = |tokens: &[i64]| {
            forward(&model, tokens, 1, &Pass::default())[(LENGTH - 1) * 11..].to_vec()
        };
        let difference = largest_difference(&last(&original), &last(&shuffled));
        assert_eq!(difference > 1e-5, sees_order, "{kind}: {difference}");
    }
}

/// Whatever two encodings are stacked: they are refused, or the model runs and sees no future.
#[test]
fn no_pair_of_encodings_breaks_a_model() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, true);
    let kinds: Vec<&str> = EncodingConfig::KINDS
        .iter()
        .copied()
        .filter(|kind| EncodingConfig::default_of(kind).is_some())
        .collect();
    let (mut ran, mut refused) = (0, 0);
    for (first, second) in kinds
        .iter()
        .flat_map(|first| kinds.iter().map(move |second| (first, second)))
    {
        let stack =
            common::config(json!({"kind": "stack", "parts": [{"kind": first}, {"kind": second}]}));
        if stack.check(&config.shape()).is_err() {
            refused += 1;
            continue;
        }
        ran += 1;
        let facts = stack.facts(&config.shape());
        let length = reach(&stack, LENGTH);
        let whole = tokens(16, BATCH, length, 11);
        let prefix: Vec<i64> = whole
            .chunks(length)
            .flat_map(|row| row[..5].to_vec())
            .collect();
        let variants = [
            config.clone(),
            linear(config.clone(), FeatureMap::Elu, Normalizer::Unrotated),
        ];
        for config in variants.into_iter().take(1 + usize::from(facts.linear)) {
            let model = model(&config, &stack, &device());
            let within = forward(&model, &whole, BATCH, &Pass::default());
            assert!(
                within.iter().all(|logit| logit.is_finite()),
                "{first} and {second}"
            );
            let within: Vec<f64> = within
                .chunks(length * 11)
                .flat_map(|rows| rows[..5 * 11].to_vec())
                .collect();
            let difference =
                largest_difference(&within, &forward(&model, &prefix, BATCH, &Pass::default()));
            assert!(
                facts.reads_length || difference < 1e-5,
                "{first} and {second}: {difference}"
            );
        }
    }
    assert!(
        ran > 400 && refused > 30,
        "{ran} ran, {refused} were refused"
    );
}

// Blocks

fn blocks_change_nothing<E: Module + PositionalEncoding>(
    name: &str,
    model: &Transformer<E>,
    length: usize,
) {
    let tokens = tokens(8, BATCH, length, 11);
    let whole = forward(model, &tokens, BATCH, &blocks_of(usize::MAX));
    let row = BATCH * 3 * length;
    for max_logits in [0, row, row * 5, row * 7 + 1, row * length] {
        let difference = largest_difference(
            &whole,
            &forward(model, &tokens, BATCH, &blocks_of(max_logits)),
        );
        assert!(
            difference < 1e-5,
            "{name} with {max_logits} logits at once: {difference}"
        );
    }
}

#[test]
fn block_by_block_is_all_at_once() {
    let config = small(NormKind::RmsNorm, Activation::Swiglu, false);
    for (name, encoding) in encodings() {
        blocks_change_nothing(
            &name,
            &model(&config, &encoding, &device()),
            reach(&encoding, LENGTH),
        );
    }
    blocks_change_nothing("all hooks", &all_hooks(&config), LENGTH);
    blocks_change_nothing("content only", &content_only(&config), LENGTH);
}

#[test]
fn each_hook_is_called_for_its_layer_and_its_block() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, true);
    let model = all_hooks(&config);
    let max_logits = BATCH * 3 * LENGTH * 5;
    forward(
        &model,
        &tokens(9, BATCH, LENGTH, 11),
        BATCH,
        &blocks_of(max_logits),
    );
    let calls = model
        .encoding()
        .calls
        .lock()
        .expect("no panic while noting")
        .clone();
    assert_eq!(
        calls[..2],
        [Call::Prepare, Call::Embed],
        "prepared once, embedded once"
    );
    let per_layer = calls[2..].chunks((calls.len() - 2) / 2);
    assert_eq!(per_layer.len(), 2);
    for (layer, calls) in per_layer.enumerate() {
        assert_eq!(calls[0], Call::TransformQk(layer), "once for all blocks");
        let of = |pick: &dyn Fn(&Call) -> bool| {
            calls
                .iter()
                .filter(|call| pick(call))
                .cloned()
                .collect::<Vec<_>>()
        };
        let blocks = [(0..5, 0..5), (5..10, 0..10), (10..12, 0..12)];
        let expected = |call: fn(usize, std::ops::Range<usize>, std::ops::Range<usize>) -> Call| {
            blocks
                .clone()
                .map(|(queries, keys)| call(layer, queries, keys))
                .to_vec()
        };
        assert_eq!(
            of(&|call| matches!(call, Call::ContentBias(..))),
            expected(Call::ContentBias)
        );
        assert_eq!(
            of(&|call| matches!(call, Call::OutputBias(..))),
            expected(Call::OutputBias)
        );
        assert_eq!(
            of(&|call| matches!(call, Call::Block(..))),
            expected(Call::Block)
        );
        assert!(
            of(&|call| matches!(call, Call::LogitsBias(_)))
                .iter()
                .all(|call| *call == Call::LogitsBias(layer))
        );
        assert_eq!(of(&|call| matches!(call, Call::TransformQk(_))).len(), 1);
        assert!(
            blocks
                .iter()
                .all(|(queries, keys)| BATCH * 3 * queries.len() * keys.len() <= max_logits)
        );
    }
}

// Loss

#[test]
fn nll_is_a_log_softmax_in_nats() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, false);
    let (inputs, targets) = (tokens(10, BATCH, LENGTH, 11), tokens(11, BATCH, LENGTH, 11));
    let model = model(&config, &of_kind("alibi"), &device());
    let device = device();
    let positions = Positions::contiguous(LENGTH);
    let (nll, logits) = model.nll(
        ints(&inputs, BATCH, &device),
        ints(&targets, BATCH, &device),
        &positions,
        &Pass::default(),
    );
    assert_eq!(
        (nll.dims(), logits.dims()),
        ([BATCH, LENGTH], [BATCH, LENGTH, 11])
    );
    let logits = host(logits);
    assert_eq!(logits, forward(&model, &inputs, BATCH, &Pass::default()));
    assert!(largest_difference(&host(nll), &nll_of(&logits, &targets)) < 1e-5);
}

#[test]
fn positions_that_do_not_fit_are_a_broken_promise() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, true);
    let works = |kind: &str, positions: Positions| {
        let model = model(&config, &of_kind(kind), &device());
        let tokens = ints(&tokens(12, 1, 6, 11), 1, &device());
        catch_unwind(AssertUnwindSafe(|| {
            model.forward(tokens, &positions, &Pass::default())
        }))
        .is_ok()
    };
    assert!(
        works("rope", Positions::contiguous(6))
            && works("rope", Positions::from_offset(100_000, 6))
    );
    assert!(!works("rope", Positions::contiguous(5)) && !works("rope", Positions::contiguous(7)));
    assert!(!works(
        "rope",
        Positions::new(vec![5.0], (0..6).map(f64::from).collect())
    ));
    assert!(
        works("learned", Positions::from_offset(26, 6))
            && !works("learned", Positions::from_offset(27, 6))
    );
}

#[test]
fn a_half_in_one_operation_gives_what_its_parts_give() {
    let device = device().autodiff();
    // Short enough for every limit in the list.
    let length = 8;
    let tokens = tokens(1, BATCH, length, 11);
    // Dropout keeps the halves apart, and factors of 1 keep what it multiplies.
    let ones = |_: usize, count: usize| vec![1.0; count];
    for (norm, activation, tied) in VARIANTS {
        let config = small(norm, activation, tied);
        for (name, encoding) in encodings() {
            let model = model(&config, &encoding, &device);
            let run = |pass: &Pass<'_>| {
                let inputs = || ints(&tokens, BATCH, &device);
                let (nll, logits) =
                    model.nll(inputs(), inputs(), &Positions::contiguous(length), pass);
                (host(logits), gradients(&model, &nll.mean()))
            };
            let (whole, whole_gradients) = run(&Pass::default());
            let (parts, part_gradients) = run(&Pass {
                dropout: Some(&ones),
                ..Pass::default()
            });
            assert!(largest_difference(&whole, &parts) < 1e-5, "{name}: logits");
            for (path, (_, gradient)) in &whole_gradients {
                let difference = largest_difference(gradient, &part_gradients[path].1);
                assert!(
                    difference < 1e-5,
                    "{name}: gradient of {path}: {difference}"
                );
            }
        }
    }
}

// Training

/// Nats at which four sequences count as memorised.
const MEMORISED: f64 = 0.05;

/// Adam on the host, the model rebuilt from its weights at every step, until the sequences are
/// memorised. Returns the last loss and the weights. (How many steps it takes depends on the last
/// bits, and so on the machine.)
fn memorise(
    config: &TransformerConfig,
    encoding: &EncodingConfig,
    most_steps: i32,
) -> (f64, Weights) {
    let device = device().autodiff();
    let (batch, length) = (4, 8);
    let mut sequences = tokens(13, batch, length + 1, config.vocab_size);
    sequences
        .chunks_mut(length + 1)
        .enumerate()
        .for_each(|(i, row)| row[0] = i as i64);
    let cut = |from: usize| {
        sequences
            .chunks(length + 1)
            .flat_map(|row| row[from..from + length].to_vec())
            .collect::<Vec<i64>>()
    };
    let (inputs, targets) = (cut(0), cut(1));
    let mut current = weights(&model(config, encoding, &device));
    let mut moments: BTreeMap<String, Vec<(f64, f64)>> = current
        .iter()
        .map(|(path, (_, values))| (path.clone(), vec![(0.0, 0.0); values.len()]))
        .collect();
    let mut last = f64::NAN;
    for step in 1..=most_steps {
        let source = |path: &str, _: &[usize], _| current[path].1.clone();
        let model: Transformer<Encoding> =
            Transformer::new(config, encoding, &Init::new(&device, &source));
        let (inputs, targets) = (
            ints(&inputs, batch, &device),
            ints(&targets, batch, &device),
        );
        let (nll, _) = model.nll(
            inputs,
            targets,
            &Positions::contiguous(length),
            &Pass::default(),
        );
        let loss: Tensor<1> = nll.mean();
        let gradients = gradients(&model, &loss);
        last = host(loss)[0];
        if last < MEMORISED {
            break;
        }
        for (path, (_, values)) in &mut current {
            let moments = moments.get_mut(path).expect("one for each parameter");
            for ((value, (first, second)), gradient) in
                values.iter_mut().zip(moments).zip(&gradients[path].1)
            {
                *first = 0.9 * *first + 0.1 * gradient;
                *second = 0.99 * *second + 0.01 * gradient * gradient;
                let (unbiased, root) = (
                    *first / (1.0 - 0.9f64.powi(step)),
                    (*second / (1.0 - 0.99f64.powi(step))).sqrt(),
                );
                *value -= 0.02 * unbiased / (root + 1e-8);
            }
        }
    }
    (last, current)
}

/// Memorises four sequences with every other encoding of the list, then looks eight times as far.
fn memorises_and_survives(every_other: usize) {
    let config = TransformerConfig {
        d_model: 16,
        d_ff: 32,
        embedding_std: 0.3,
        ..small(NormKind::LayerNorm, Activation::Gelu, false)
    };
    for (name, encoding) in encodings().into_iter().skip(every_other).step_by(2) {
        let (loss, trained) = memorise(&config, &encoding, 150);
        assert!(loss < MEMORISED, "{name}: {loss} nats after 150 steps");
        let length = 8 * 8;
        if encoding
            .facts(&config.shape())
            .max_position
            .is_some_and(|limit| limit < length)
        {
            continue;
        }
        let (device, source) = (device(), |path: &str, _: &[usize], _| {
            trained[path].1.clone()
        });
        let model: Transformer<Encoding> =
            Transformer::new(&config, &encoding, &Init::new(&device, &source));
        let [inputs, targets] =
            [14, 15].map(|seed| ints(&tokens(seed, 4, length, config.vocab_size), 4, &device));
        let (nll, _) = model.nll(
            inputs,
            targets,
            &Positions::contiguous(length),
            &Pass::default(),
        );
        let nll = host(nll);
        assert!(
            nll.iter().all(|nll| nll.is_finite() && *nll < 100.0),
            "{name} at eight times the training length"
        );
    }
}

#[test]
fn four_sequences_are_memorised_with_every_encoding() {
    memorises_and_survives(0);
}

#[test]
fn four_sequences_are_memorised_with_every_other_encoding() {
    memorises_and_survives(1);
}
