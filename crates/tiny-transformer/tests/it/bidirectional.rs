//! Models that see both sides: against a slow f64 reference, in any blocks, and what they refuse.

use crate::common::reference::{Host, Part};
use crate::common::{
    VARIANTS, config, encodings, host, ints, largest_difference, model, reach, small, tokens,
    weights,
};
use burn::tensor::Device;
use posenc::{EncodingConfig, Positions};
use serde_json::json;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tiny_transformer::{
    Activation, AttentionKind, Cache, Mask, NormKind, Pass, Transformer, TransformerConfig,
};

const BATCH: usize = 2;
const LENGTH: usize = 12;

fn device() -> Device {
    Device::flex()
}

fn bidirectional() -> TransformerConfig {
    small(NormKind::LayerNorm, Activation::Gelu, false).with_mask(Mask::Bidirectional)
}

fn forward(model: &Transformer, sequences: &[i64], max_logits: usize) -> Vec<f64> {
    let positions = Positions::contiguous(sequences.len() / BATCH);
    host(model.forward(
        ints(sequences, BATCH, &device()),
        &positions,
        &Pass {
            max_logits,
            ..Pass::default()
        },
    ))
}

/// Encodings of the list that a bidirectional model hosts.
fn hosted() -> Vec<(String, EncodingConfig)> {
    let config = bidirectional();
    encodings()
        .into_iter()
        .filter(|(_, encoding)| {
            config
                .check_encoding(&encoding.facts(&config.shape()))
                .is_ok()
        })
        .collect()
}

#[test]
fn a_bidirectional_model_equals_a_slow_reference_in_f64() {
    let sequences = tokens(1, BATCH, LENGTH, 11);
    for (norm, activation, tied) in VARIANTS {
        let model_config = small(norm, activation, tied).with_mask(Mask::Bidirectional);
        for (encoding, parts) in [
            (json!({"kind": "nope"}), vec![]),
            (json!({"kind": "sinusoidal"}), vec![Part::Sinusoidal]),
            (
                json!({"kind": "learned", "max_position": 32, "init_std": 0.5}),
                vec![Part::Learned],
            ),
            (json!({"kind": "rope"}), vec![Part::RopeHalf]),
            (json!({"kind": "alibi"}), vec![Part::Alibi]),
            (json!({"kind": "pope"}), vec![Part::Pope]),
            (json!({"kind": "shaw", "init_std": 0.5}), vec![Part::Shaw]),
            (
                json!({"kind": "stack", "parts": [{"kind": "rope"}, {"kind": "alibi"}]}),
                vec![Part::RopeHalf, Part::Alibi],
            ),
        ] {
            let model = model(&model_config, &config(encoding.clone()), &device());
            let weights = weights(&model);
            let expected = Host {
                config: &model_config,
                weights: &weights,
                encoding: &parts,
                factors: None,
            }
            .logits(&sequences, BATCH);
            for max_logits in [usize::MAX, BATCH * 3 * LENGTH * 5] {
                let difference =
                    largest_difference(&forward(&model, &sequences, max_logits), &expected);
                assert!(
                    difference < 1e-5,
                    "{encoding} in {model_config:?}: {difference}"
                );
            }
        }
    }
}

#[test]
fn every_token_sees_every_other_and_blocks_change_nothing() {
    for (name, encoding) in hosted() {
        let length = reach(&encoding, 20);
        let model = model(&bidirectional(), &encoding, &device());
        let sequences = tokens(2, BATCH, length, 11);
        let whole = forward(&model, &sequences, usize::MAX);
        assert!(whole.iter().all(|logit| logit.is_finite()), "{name}");
        for rows in [1, 7] {
            let parts = forward(&model, &sequences, BATCH * 3 * length * rows);
            let difference = largest_difference(&parts, &whole);
            assert!(
                difference < 1e-5,
                "{name}: {difference} in blocks of {rows}"
            );
        }
        // A window may be narrower than the sequence; its neighbour every token sees.
        for changed in 1..length {
            let mut other = sequences.clone();
            other[changed] = (other[changed] + 1) % 11;
            let row = (changed - 1) * 11..changed * 11;
            let before_it = largest_difference(
                &forward(&model, &other, usize::MAX)[row.clone()],
                &whole[row],
            );
            assert!(
                before_it > 0.0,
                "{name}: token {} does not see token {changed}",
                changed - 1
            );
        }
    }
}

#[test]
fn encodings_of_causal_models_are_known_by_their_facts() {
    let config = bidirectional();
    let all: BTreeSet<&str> = EncodingConfig::KINDS.iter().copied().collect();
    let hosts: BTreeSet<&str> = hosted()
        .iter()
        .map(|(_, encoding)| encoding.kind())
        .collect();
    let refused: BTreeSet<&str> = all.difference(&hosts).copied().collect();
    let declared = encodings();
    let shape = config.shape();
    let in_both: BTreeSet<&str> = declared
        .iter()
        .filter(|(_, encoding)| !encoding.facts(&shape).causal_only)
        .map(|(_, encoding)| encoding.kind())
        .collect();
    assert_eq!(refused, all.difference(&in_both).copied().collect());
    for causal in [
        "cope",
        "fire",
        "fox",
        "log_scaling",
        "rerope",
        "self_extend",
        "xpos",
    ] {
        assert!(refused.contains(causal), "{causal}");
    }
    for (name, encoding) in encodings() {
        let facts = encoding.facts(&config.shape());
        match config.check_encoding(&facts) {
            Ok(()) => assert!(!facts.causal_only, "{name}"),
            Err(error) => assert!(facts.causal_only && error.key == "mask", "{name}: {error}"),
        }
        assert!(
            small(NormKind::LayerNorm, Activation::Gelu, false)
                .check_encoding(&facts)
                .is_ok(),
            "{name} under a causal mask"
        );
    }
}

#[test]
fn linear_attention_and_a_cache_are_causal() {
    let linear = bidirectional().with_attention(AttentionKind::Linear);
    assert_eq!(linear.check().expect_err("no such thing").key, "mask");
    let model = model(
        &bidirectional(),
        &config(json!({"kind": "rope"})),
        &device(),
    );
    let extend = || {
        let next = ints(&tokens(1, BATCH, 4, 11), BATCH, &device());
        model.extend(
            next,
            &Positions::contiguous(4),
            &mut Cache::default(),
            &Pass::default(),
        )
    };
    assert!(catch_unwind(AssertUnwindSafe(extend)).is_err());
}
