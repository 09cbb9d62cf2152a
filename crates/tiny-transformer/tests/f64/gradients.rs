//! Gradients of the whole model against central differences, in f64.

use crate::DEVICE;
use crate::common::{
    AllHooks, ContentOnly, VARIANTS, Weights, attention_only, config, draw, encodings, gradients,
    host, ints, linear, noise, reach, seed_of, small, tokens, weights,
};
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Tensor, TensorData};
use posenc::{EncodingConfig, Init, PositionalEncoding, Positions};
use serde_json::json;
use std::collections::BTreeMap;
use tiny_transformer::{FeatureMap, Normalizer, Pass, QkNorm, Transformer, TransformerConfig};

const BATCH: usize = 2;

/// Steps of the differences. A smaller one is tried where a kink (a ReLU, a count rounded down, the
/// end of a range) lies within the first: no wrong gradient agrees with either.
const STEPS: [f64; 2] = [1e-5, 1e-7];

/// Parameters that no loss depends on: softmax ignores what is added to all logits of a row.
fn cancels(path: &str) -> bool {
    path.starts_with("encoding.functions.") && path.ends_with(".b2")
}

/// A weighted mean of the nll: every position counts differently.
fn loss<E: Module + PositionalEncoding>(
    model: &Transformer<E>,
    length: usize,
    pass: &Pass<'_>,
    device: &Device,
) -> Tensor<1> {
    let count = BATCH * length;
    let [inputs, targets] =
        [1, 2].map(|seed| ints(&tokens(seed, BATCH, length, 11), BATCH, device));
    let (nll, _) = model.nll(inputs, targets, &Positions::contiguous(length), pass);
    let weights: Vec<f64> = noise(3, count)
        .iter()
        .map(|v| (1.0 + 0.5 * v) / count as f64)
        .collect();
    (nll * Tensor::<2>::from_data(TensorData::new(weights, [BATCH, length]), device)).sum()
}

/// Paths of the parameters that an encoding declares as not trained.
fn kept(encoding: &EncodingConfig, config: &TransformerConfig) -> Vec<String> {
    let declared = encoding.parameters(&config.shape()).into_iter();
    let kept = declared.filter(|parameter| !parameter.trained);
    kept.map(|parameter| format!("encoding.{}", parameter.path))
        .collect()
}

/// Compares three entries of every parameter at each length; every parameter gets a gradient at one
/// of them.
fn agrees<E: Module + ModuleDisplay + PositionalEncoding>(
    name: &str,
    lengths: &[usize],
    pass: &Pass<'_>,
    build: &dyn Fn(&Init<'_>) -> Transformer<E>,
) {
    agrees_but_for(&[], name, lengths, pass, build);
}

/// The same, where the parameters `kept` get no gradient.
fn agrees_but_for<E: Module + ModuleDisplay + PositionalEncoding>(
    kept: &[String],
    name: &str,
    lengths: &[usize],
    pass: &Pass<'_>,
    build: &dyn Fn(&Init<'_>) -> Transformer<E>,
) {
    let tracked = DEVICE.clone().autodiff();
    let model = build(&Init::new(&tracked, &draw));
    let start: Weights = weights(&model);
    let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
    for length in lengths.iter().copied() {
        let exact = gradients(&model, &loss(&model, length, pass, &tracked));
        let trained = start.iter().filter(|(path, _)| !kept.contains(path));
        assert!(
            trained.clone().map(|(path, _)| path).eq(exact.keys()),
            "{name}: a gradient for every parameter that is trained, and for no other"
        );
        for (path, (_, values)) in trained {
            for pick in noise(seed_of(path) ^ length as u64, 3) {
                let entry = ((pick + 1.0) / 2.0 * values.len() as f64) as usize;
                let at = |delta: f64| {
                    let source = |asked: &str, _: &[usize], _| {
                        let mut values = start[asked].1.clone();
                        if asked == path {
                            values[entry] += delta;
                        }
                        values
                    };
                    host(loss(
                        &build(&Init::new(&DEVICE, &source)),
                        length,
                        pass,
                        &DEVICE,
                    ))[0]
                };
                let gradient = exact[path].1[entry];
                let slope = |step: f64| (at(step) - at(-step)) / (2.0 * step);
                let close =
                    |step: f64| (gradient - slope(step)).abs() <= 1e-8 + 1e-6 * gradient.abs();
                let agrees = STEPS.into_iter().any(close);
                assert!(
                    agrees,
                    "{name}: {path}[{entry}] has {gradient:e}, differences say {:?}",
                    STEPS.map(slope)
                );
            }
            *totals.entry(path).or_default() += exact[path].1.iter().map(|g| g.abs()).sum::<f64>();
        }
    }
    for (path, total) in totals {
        if cancels(path) {
            assert!(total < 1e-12, "{name}: {path} has an effect");
        } else {
            assert!(
                total > 1e-9 && total.is_finite(),
                "{name}: {path} never gets a gradient"
            );
        }
    }
}

fn of_variant(index: usize) -> TransformerConfig {
    let (norm, activation, tied) = VARIANTS[index];
    small(norm, activation, tied)
}

/// Every other encoding of the list, at lengths on both sides of the training length.
fn every_other_encoding(skip: usize, variant: usize, lengths: &[usize]) {
    let config = of_variant(variant);
    for (name, encoding) in encodings().into_iter().skip(skip).step_by(2) {
        let mut lengths: Vec<usize> = lengths
            .iter()
            .map(|length| reach(&encoding, *length))
            .collect();
        lengths.dedup();
        let kept = kept(&encoding, &config);
        agrees_but_for(&kept, &name, &lengths, &Pass::default(), &|init| {
            Transformer::new(&config, &encoding, init).expect("a resolved encoding")
        });
    }
}

#[test]
fn gradients_with_layer_norm_and_gelu() {
    every_other_encoding(0, 0, &[3, 7, 17]);
}

#[test]
fn gradients_with_layer_norm_and_gelu_for_the_rest() {
    every_other_encoding(1, 0, &[3, 7, 17]);
}

#[test]
fn gradients_with_rms_norm_and_swiglu() {
    every_other_encoding(0, 1, &[13]);
}

#[test]
fn gradients_with_rms_norm_and_swiglu_for_the_rest() {
    every_other_encoding(1, 1, &[13]);
}

#[test]
fn gradients_through_normalised_queries_and_keys() {
    // A shift of all keys alike adds the same to every logit of a row, unless keys are rotated
    // afterwards.
    for (qk_norm, kinds) in [
        (QkNorm::LayerNorm, ["rope"].as_slice()),
        (QkNorm::RmsNorm, &["nope", "rope", "shaw"]),
    ] {
        let config = of_variant(0).with_qk_norm(qk_norm);
        for (name, encoding) in encodings()
            .into_iter()
            .filter(|(_, encoding)| kinds.contains(&encoding.kind()))
        {
            agrees(
                &format!("{name}, {qk_norm:?}"),
                &[7],
                &Pass::default(),
                &|init| Transformer::new(&config, &encoding, init).expect("a resolved encoding"),
            );
        }
    }
}

#[test]
fn gradients_with_biases() {
    for (variant, kind) in [(0, "nope"), (0, "rope"), (1, "alibi")] {
        let config = of_variant(variant).with_biases(true);
        for (name, encoding) in encodings() {
            if encoding.kind() == kind {
                agrees(&name, &[7], &Pass::default(), &|init| {
                    Transformer::new(&config, &encoding, init).expect("a resolved encoding")
                });
            }
        }
    }
}

#[test]
fn gradients_of_attention_alone() {
    for (name, encoding) in encodings() {
        if ["nope", "rope", "alibi", "learned"].contains(&encoding.kind()) {
            agrees(&name, &[7], &Pass::default(), &|init| {
                Transformer::new(&attention_only(), &encoding, init).expect("a resolved encoding")
            });
        }
    }
}

#[test]
fn gradients_of_linear_attention() {
    let config = linear(of_variant(0), FeatureMap::Elu, Normalizer::Unrotated);
    for (name, encoding) in encodings() {
        if encoding.facts(&config.shape()).linear {
            let (kept, length) = (kept(&encoding, &config), reach(&encoding, 13));
            agrees_but_for(&kept, &name, &[length], &Pass::default(), &|init| {
                Transformer::new(&config, &encoding, init).expect("a resolved encoding")
            });
        }
    }
}

#[test]
fn gradients_of_linear_attention_through_its_state() {
    let stack = config(
        json!({"kind": "stack", "parts": [{"kind": "rope", "learnable": true}, {"kind": "alibi"}]}),
    );
    let normalizers = [
        Normalizer::Rotated,
        Normalizer::Unrotated,
        Normalizer::Cosine,
    ];
    for (map, normalizer) in normalizers
        .map(|normalizer| (FeatureMap::Elu, normalizer))
        .into_iter()
        .chain([(FeatureMap::Relu, Normalizer::Unrotated)])
    {
        let config = linear(of_variant(1), map, normalizer);
        let name = format!("{map:?}, {normalizer:?}");
        agrees(&name, &[67], &Pass::default(), &|init| {
            Transformer::new(&config, &stack, init).expect("a resolved encoding")
        });
    }
}

#[test]
fn gradients_through_every_hook_and_through_blocks() {
    let config = of_variant(0);
    let length = 17;
    for rows in [4, length] {
        let pass = Pass {
            max_logits: BATCH * config.n_heads * length * rows,
            ..Pass::default()
        };
        agrees("all hooks", &[length], &pass, &|init| {
            Transformer::with(&config, AllHooks::new(&init.scope("encoding")), init)
        });
        agrees("content only", &[length], &pass, &|init| {
            Transformer::with(&config, ContentOnly::new(&init.scope("encoding")), init)
        });
    }
    let (_, stack) = encodings().pop().expect("the last is a stack");
    let pass = Pass {
        max_logits: 1,
        ..Pass::default()
    };
    agrees("stack, row by row", &[7], &pass, &|init| {
        Transformer::new(&config, &stack, init).expect("a resolved encoding")
    });
}

/// Tokens between key and query act in chunks, and in blocks of twice as many.
#[test]
fn gradients_through_several_chunks() {
    let encodings = ["path", "wall"].map(|kind| config(json!({ "kind": kind })));
    let (config, length) = (of_variant(0), 75);
    for encoding in encodings {
        for rows in [20, length] {
            let pass = Pass {
                max_logits: BATCH * config.n_heads * length * rows,
                ..Pass::default()
            };
            agrees(encoding.kind(), &[length], &pass, &|init| {
                Transformer::new(&config, &encoding, init).expect("a resolved encoding")
            });
        }
    }
}

#[test]
fn gradients_through_dropout() {
    let config = of_variant(1);
    let factors = |site: usize, count: usize| -> Vec<f32> {
        noise(site as u64, count)
            .iter()
            .map(|v| if *v < -0.5 { 0.0 } else { 1.25 })
            .collect()
    };
    let pass = Pass {
        dropout: Some(&factors),
        ..Pass::default()
    };
    let (_, rope) = encodings()
        .into_iter()
        .find(|(_, encoding)| encoding.kind() == "rope")
        .expect("rope");
    agrees("rope", &[7], &pass, &|init| {
        Transformer::new(&config, &rope, init).expect("a resolved encoding")
    });
}
