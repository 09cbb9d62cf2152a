//! No row sees a later one.

use crate::common::{VARIANTS, encodings, largest_difference, linear, model, reach, small, tokens};
use crate::models::{BATCH, LENGTH, all_hooks, blocks_of, content_only, device, forward, of_kind};
use burn::module::Module;
use posenc::{EncodingConfig, PositionalEncoding};
use serde_json::json;
use tiny_transformer::{
    Activation, FeatureMap, NormKind, Normalizer, Pass, Transformer, TransformerConfig,
};

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
    let config = small(NormKind::LayerNorm, Activation::Gelu, true).with_layers(1);
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
        let stack = crate::common::config(
            json!({"kind": "stack", "parts": [{"kind": first}, {"kind": second}]}),
        );
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
