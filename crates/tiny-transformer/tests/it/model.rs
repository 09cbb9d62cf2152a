//! The model against a slow f64 reference on the host: logits, gradients, dropout, parameters.

use crate::common::reference::{Host, Part};
use crate::common::{
    AllHooks, VARIANTS, Weights, attention_only, draw, encodings, gradients, host, ints,
    largest_difference, model, noise, reach, seed_of, small, tokens, weights,
};
use crate::models::{
    BATCH, LENGTH, all_hooks, all_variants, blocks_of, device, forward, nll_of, of_kind,
    references, variants,
};
use burn::module::{Module, ModuleDisplay};
use posenc::{Init, PositionalEncoding, Positions};
use serde_json::json;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tiny_transformer::{Activation, NormKind, Pass, Transformer, TransformerConfig};

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
    for config in variants() {
        for (kind, reference) in references() {
            agrees(kind, &config, &reference, &|init| {
                Transformer::new(&config, &of_kind(kind), init).expect("a resolved encoding")
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
        noise(site as u64, count)
            .iter()
            .map(|v| if *v < -0.5 { 0.0 } else { 1.0 / 0.75 })
            .collect()
    };
    for config in variants() {
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
        // Even sites past the embedding are those of MLPs.
        let expected: Vec<_> = (0..2 * config.n_layers + 1)
            .filter(|site| config.has_mlp() || *site == 0 || site % 2 == 1)
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
            let model = Transformer::new(&config, &encoding, &Init::new(&device, &source))
                .expect("a resolved encoding");
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
fn matrices_start_with_the_deviation_that_is_asked_for() {
    let config = small(NormKind::LayerNorm, Activation::Swiglu, false);
    let of = |config: &TransformerConfig| weights(&model(config, &of_kind("nope"), &device()));
    let (default, asked) = (of(&config), of(&config.clone().with_matrix_std(Some(0.02))));
    let mut scaled = 0;
    for (path, values) in &default {
        let fan_in = match path.rsplit('.').next() {
            Some("qkv" | "up" | "gate" | "head") => config.d_model,
            Some("output") => config.n_heads * config.head_dim,
            Some("down") => config.d_ff,
            _ => {
                assert_eq!(values, &asked[path], "{path}");
                continue;
            }
        };
        scaled += 1;
        let ratio = 0.02 * (3.0 * fan_in as f64).sqrt();
        for (value, other) in values.1.iter().zip(&asked[path].1) {
            let wanted = value * ratio;
            assert!((other - wanted).abs() < 1e-6 * wanted.abs(), "{path}");
        }
    }
    assert_eq!(scaled, 5 * config.n_layers + 1);
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
        ("matrix_std", 0.0),
        ("matrix_std", 11.0),
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
        good.clone()
            .with_dropout(f64::NAN)
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
    let attention_alone = attention_only();
    attention_alone.check().expect("blocks without an MLP");
    let refused = |config: TransformerConfig| config.check().expect_err("an MLP's key").key;
    assert_eq!(refused(attention_alone.clone().with_d_ff(14)), "d_ff");
    let swiglu = attention_alone.with_activation(Activation::Swiglu);
    assert_eq!(refused(swiglu), "activation");
    assert!(
        changed("norm", json!("batch_norm")).is_err()
            && changed("activation", json!("relu")).is_err()
    );
}

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
fn positions_that_do_not_fit_panic() {
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
