//! Linear attention, which goes chunk by chunk through a state, against its definition, which sees
//! every pair.

use crate::DEVICE;
use crate::common::reference::{Host, Part, parts};
use crate::common::{
    config, encodings, host, ints, largest_difference, linear, model, noise, small, tokens, weights,
};
use burn::tensor::{Tensor, TensorData};
use posenc::{Context, Encoding, Init, ModelShape, PositionalEncoding, Positions};
use serde_json::{Value, json};
use tiny_transformer::{
    Activation, AttentionKind, Cache, Denominators, FeatureMap, NormKind, Normalizer, Pass,
    TransformerConfig, feature_map, linear_attention,
};

const VOCAB: usize = 11;

/// Every choice of features and of what is divided by.
const FORMS: [(FeatureMap, Normalizer); 5] = [
    (FeatureMap::Elu, Normalizer::Unrotated),
    (FeatureMap::Elu, Normalizer::Rotated),
    (FeatureMap::Relu, Normalizer::Unrotated),
    (FeatureMap::Relu, Normalizer::Rotated),
    (FeatureMap::Elu, Normalizer::Cosine),
];

fn softmax() -> TransformerConfig {
    small(NormKind::LayerNorm, Activation::Gelu, false)
}

pub fn tensor(values: Vec<f64>, shape: [usize; 4]) -> Tensor<4> {
    Tensor::from_data(TensorData::new(values, shape), &*DEVICE)
}

pub fn build(value: Value, shape: &ModelShape) -> Encoding {
    let config = config(value);
    config.check(shape).expect("an encoding that works");
    config
        .init(shape, &Init::zeros(&DEVICE))
        .expect("a resolved configuration")
}

/// Weights of all keys, `[heads, length, length]`: what comes out where value n is the n-th unit
/// vector.
pub fn weights_of(
    q: Tensor<4>,
    k: Tensor<4>,
    encoding: &Encoding,
    map: FeatureMap,
    normalizer: Normalizer,
) -> Vec<f64> {
    let [_, heads, length, _] = q.dims();
    let units = (0..heads * length * length)
        .map(|at| f64::from(u8::from(at / length % length == at % length)))
        .collect();
    let [q, k] = [q, k].map(|x| feature_map(x, map, normalizer));
    let prepared = encoding
        .prepare(&Positions::contiguous(length), &Context::new(&DEVICE))
        .expect("positions in range");
    let units = tensor(units, [1, heads, length, length]);
    host(linear_attention(
        [q, k, units],
        &Tensor::zeros([1, length, 1], &*DEVICE),
        0,
        prepared.as_ref(),
        normalizer,
        0,
        None,
    ))
}

/// What stands in the configuration, and the same written out for the reference.
fn written_out() -> Vec<(Value, Vec<Part>)> {
    let stack = |parts: Value| json!({"kind": "stack", "parts": parts});
    vec![
        (json!({"kind": "nope"}), parts(&[])),
        (json!({"kind": "sinusoidal"}), parts(&["sinusoidal"])),
        (json!({"kind": "rope"}), parts(&["rope"])),
        (json!({"kind": "xpos"}), parts(&["xpos"])),
        (json!({"kind": "alibi"}), parts(&["alibi"])),
        (
            stack(json!([{"kind": "rope"}, {"kind": "alibi"}])),
            parts(&["rope", "alibi"]),
        ),
    ]
}

#[test]
fn chunks_and_states_give_what_every_pair_gives() {
    for (value, parts) in written_out() {
        let encoding = config(value.clone());
        for (map, normalizer) in FORMS {
            let config = linear(softmax(), map, normalizer);
            let model = model(&config, &encoding, &DEVICE);
            let weights = weights(&model);
            let reference = Host {
                config: &config,
                weights: &weights,
                encoding: &parts,
                factors: None,
            };
            // Of sequences that start alike, the longest has the logits of all.
            let sequence = tokens(41, 1, 150, VOCAB);
            let expected = reference.logits(&sequence, 1);
            let same = |got: &[f64], from: usize, what: &str| {
                let difference =
                    largest_difference(got, &expected[from * VOCAB..from * VOCAB + got.len()]);
                assert!(
                    difference < 1e-9,
                    "{value}, {map:?}, {normalizer:?}: {what}: {difference}"
                );
            };
            for length in [1, 5, 64, 65, 150] {
                let logits = model.forward(
                    ints(&sequence[..length], 1, &DEVICE),
                    &Positions::contiguous(length),
                    &Pass::default(),
                );
                same(&host(logits), 0, &format!("{length} tokens"));
            }
            // A first query that is not the first key.
            for chunks in [vec![5, 64, 81], vec![64, 65, 1, 20], vec![149, 1]] {
                let mut cache = Cache::default();
                for chunk in &chunks {
                    let (from, to) = (cache.len(), cache.len() + chunk);
                    let tokens = ints(&sequence[from..to], 1, &DEVICE);
                    let logits = model.extend(
                        tokens,
                        &Positions::contiguous(to),
                        &mut cache,
                        &Pass::default(),
                    );
                    same(&host(logits), from, &format!("{from}..{to} of {chunks:?}"));
                }
            }
        }
    }
}

#[test]
fn cosine_weights_are_never_negative_and_sum_to_one() {
    let (heads, length) = (3, 140);
    let shape = softmax().shape();
    let [q, k] =
        [51, 52].map(|seed| tensor(noise(seed, heads * length * 8), [1, heads, length, 8]));
    for (value, _) in written_out()
        .into_iter()
        .filter(|(value, _)| value["kind"] != "xpos")
    {
        let got = weights_of(
            q.clone(),
            k.clone(),
            &build(value.clone(), &shape),
            FeatureMap::Elu,
            Normalizer::Cosine,
        );
        for (at, row) in got.chunks(length).enumerate() {
            assert!(
                row.iter().all(|weight| *weight >= -1e-12),
                "{value}: a negative weight in row {at}"
            );
            assert!(
                (row.iter().sum::<f64>() - 1.0).abs() < 1e-9,
                "{value}: row {at}"
            );
            assert!(
                row[at % length + 1..].iter().all(|weight| *weight == 0.0),
                "{value}: row {at} sees the future"
            );
        }
    }
    // Why the others need a guard: theirs do go below 0 once features turn, and need not sum to 1.
    let rope = build(json!({"kind": "rope"}), &shape);
    let got = weights_of(q, k, &rope, FeatureMap::Elu, Normalizer::Unrotated);
    assert!(got.iter().any(|weight| *weight < -1e-6));
    assert!(
        got.chunks(length)
            .any(|row| (row.iter().sum::<f64>() - 1.0).abs() > 0.01)
    );
}

#[test]
fn without_rotation_all_weights_of_positive_features_are_a_mean() {
    let (heads, length) = (3, 70);
    let [q, k] =
        [53, 54].map(|seed| tensor(noise(seed, heads * length * 8), [1, heads, length, 8]));
    for value in [json!({"kind": "nope"}), json!({"kind": "alibi"})] {
        for normalizer in [Normalizer::Unrotated, Normalizer::Rotated] {
            let got = weights_of(
                q.clone(),
                k.clone(),
                &build(value.clone(), &softmax().shape()),
                FeatureMap::Elu,
                normalizer,
            );
            assert!(got.iter().all(|weight| *weight >= 0.0));
            assert!(
                got.chunks(length)
                    .all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-12),
                "{value}"
            );
        }
    }
}

/// Features that are all 0, and rotated sums that cross 0, divide by something small instead of by
/// nothing.
#[test]
fn denominators_are_kept_away_from_zero() {
    let (heads, length) = (3, 70);
    let shape = softmax().shape();
    let count = heads * length * 8;
    let size = [1, heads, length, 8];
    let rope = build(json!({"kind": "rope"}), &shape);
    let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
    for (map, normalizer) in FORMS {
        for (what, q, k) in [
            (
                "negative",
                tensor(vec![-1.0; count], size),
                tensor(vec![-1.0; count], size),
            ),
            (
                "zero",
                tensor(vec![0.0; count], size),
                tensor(vec![0.0; count], size),
            ),
            (
                "opposite",
                tensor(vec![1e3; count], size),
                tensor(vec![-1e3; count], size),
            ),
        ] {
            let got = weights_of(q, k, &rope, map, normalizer);
            assert!(finite(&got), "{map:?}, {normalizer:?} with {what} products");
            if map == FeatureMap::Relu {
                assert!(
                    got.iter().all(|weight| *weight == 0.0),
                    "no feature, no weight"
                );
            }
        }
    }
    // Two keys whose rotated similarities cancel: a quarter turn apart in one pair.
    let shape = ModelShape {
        d_model: 2,
        n_layers: 1,
        n_heads: 1,
        head_dim: 2,
    };
    let rope = build(json!({"kind": "rope"}), &shape);
    let positions = Positions::same(vec![0.0, std::f64::consts::PI]);
    let prepared = rope
        .prepare(&positions, &Context::new(&DEVICE))
        .expect("positions in range");
    let one = tensor(vec![1.0, 0.0, 1.0, 0.0], [1, 1, 2, 2]);
    for (normalizer, clamped) in [
        (Normalizer::Rotated, 1),
        (Normalizer::Unrotated, 0),
        (Normalizer::Cosine, 0),
    ] {
        let counts = Denominators::default();
        let out = host(linear_attention(
            [one.clone(), one.clone(), one.clone()],
            &Tensor::zeros([1, 2, 1], &*DEVICE),
            0,
            prepared.as_ref(),
            normalizer,
            0,
            Some(&counts),
        ));
        assert!(finite(&out), "{normalizer:?}: {out:?}");
        assert_eq!((counts.count(), counts.clamped()), (2, clamped));
    }
}

#[test]
fn denominators_that_are_no_sums_of_weights_are_counted() {
    let shape = ModelShape {
        d_model: 2,
        n_layers: 1,
        n_heads: 1,
        head_dim: 2,
    };
    let nope = build(json!({"kind": "nope"}), &shape);
    // The first heads sum to 1, 0, -1, 1, -5e-7 and 1; the second ones to 1, 2, 3, 4, 5 and 6.
    let signed = [1.0, -1.0, -1.0, 2.0, -1.0 - 5e-7, 1.0 + 5e-7];
    let length = signed.len();
    let prepared = nope
        .prepare(&Positions::contiguous(length), &Context::new(&DEVICE))
        .expect("positions in range");
    let heads = [signed, [1.0; 6], signed, [1.0; 6]].concat();
    let one = || tensor(vec![1.0; 4 * length], [2, 2, length, 1]);
    let counts = Denominators::default();
    let attend = |counts| {
        host(linear_attention(
            [one(), tensor(heads.clone(), [2, 2, length, 1]), one()],
            &Tensor::zeros([2, length, 1], &*DEVICE),
            0,
            prepared.as_ref(),
            Normalizer::Rotated,
            0,
            counts,
        ))
    };
    let counted = |counts: &Denominators| (counts.count(), counts.negative(), counts.clamped());
    let out = attend(Some(&counts));
    assert_eq!(counted(&counts), (24, 4, 4));
    // Clamped to 1e-6 with their sign: sums of 0 and of -5e-7.
    assert!(largest_difference(&out[..4], &[1.0, 0.0, 1.0, 1.0]) < 1e-12);
    assert!((out[4] - 0.5).abs() < 1e-3, "{out:?}");
    // Counting changes nothing, and goes on over passes.
    assert_eq!(attend(None), out);
    attend(Some(&counts));
    assert_eq!(counted(&counts), (48, 8, 8));
}

#[test]
fn a_model_counts_the_denominators_of_all_its_layers() {
    let sequence = tokens(61, 3, 40, VOCAB);
    for (normalizer, may_meet_zero) in [
        (Normalizer::Rotated, true),
        (Normalizer::Unrotated, false),
        (Normalizer::Cosine, false),
    ] {
        let config = linear(softmax(), FeatureMap::Elu, normalizer).with_layers(2);
        assert_eq!(config.may_divide_by_zero(), may_meet_zero);
        assert!(!softmax().may_divide_by_zero());
        let encoding = crate::common::config(json!({"kind": "rope"}));
        let model = model(&config, &encoding, &DEVICE);
        let logits = |denominators: Option<&Denominators>| {
            let pass = Pass {
                denominators,
                ..Pass::default()
            };
            let tokens = ints(&sequence, 3, &DEVICE);
            host(model.forward(tokens, &Positions::contiguous(40), &pass))
        };
        let counts = Denominators::default();
        assert_eq!(logits(Some(&counts)), logits(None));
        assert_eq!(counts.count(), (2 * config.n_heads * 3 * 40) as u64);
        if !may_meet_zero {
            assert_eq!((counts.negative(), counts.clamped()), (0, 0));
        }
    }
}

#[test]
fn long_sequences_go_through_the_state() {
    let length = 2048;
    for (value, normalizer) in [
        (json!({"kind": "rope"}), Normalizer::Unrotated),
        (json!({"kind": "alibi"}), Normalizer::Rotated),
        (json!({"kind": "rope"}), Normalizer::Cosine),
    ] {
        let encoding = config(value.clone());
        let config = linear(softmax(), FeatureMap::Elu, normalizer).with_layers(1);
        let model = model(&config, &encoding, &DEVICE);
        let sequence = tokens(61, 1, length, VOCAB);
        let whole = host(model.forward(
            ints(&sequence, 1, &DEVICE),
            &Positions::contiguous(length),
            &Pass::default(),
        ));
        assert!(whole.iter().all(|logit| logit.is_finite()), "{value}");
        let mut cache = Cache::default();
        let extend = |from: usize, to: usize, cache: &mut Cache| {
            host(model.extend(
                ints(&sequence[from..to], 1, &DEVICE),
                &Positions::contiguous(to),
                cache,
                &Pass::default(),
            ))
        };
        extend(0, length - 1, &mut cache);
        let last = extend(length - 1, length, &mut cache);
        assert!(
            largest_difference(&last, &whole[(length - 1) * VOCAB..]) < 1e-9,
            "{value}"
        );
    }
}

#[test]
fn encodings_are_hosted_or_refused_as_they_declare() {
    let linear = linear(softmax(), FeatureMap::Elu, Normalizer::Unrotated);
    let shape = linear.shape();
    let (mut hosted, mut refused) = (0, 0);
    for (name, encoding) in encodings() {
        let facts = encoding.facts(&shape);
        softmax()
            .check_encoding(&facts)
            .expect("softmax attention hosts everything");
        let built = encoding
            .init(&shape, &Init::zeros(&DEVICE))
            .expect("a resolved configuration");
        let prepared = built
            .prepare(&Positions::contiguous(6), &Context::new(&DEVICE))
            .expect("positions in range");
        let decays = (0..shape.n_layers).all(|layer| {
            prepared
                .logits_bias(layer)
                .is_none_or(|bias| bias.is_decay())
        });
        let sees_content = facts.hooks.content_bias || facts.hooks.output_bias;
        match linear.check_encoding(&facts) {
            Ok(()) => {
                hosted += 1;
                assert!(facts.linear && decays && !sees_content, "{name} is hosted");
            }
            Err(error) => {
                refused += 1;
                assert!(!facts.linear, "{name} is refused");
                assert_eq!(error.key, "attention");
                let text = error.to_string();
                assert!(
                    text.contains(&facts.hooks.to_string()) && text.contains("softmax"),
                    "{text}"
                );
                // The others make feature maps of their own, which only a wider head shows.
                let width = |x: Tensor<4>| x.dims()[3];
                let x = tensor(noise(1, 3 * 6 * 8), [1, 3, 6, 8]);
                let input = Tensor::zeros([1, 6, 24], &x.device());
                let widens = width(prepared.transform_qk(0, x.clone(), x, &input).0) != 8;
                assert!(sees_content || !decays || widens, "{name} could be hosted");
            }
        }
    }
    assert!(
        hosted > 20 && refused > 20,
        "{hosted} hosted, {refused} refused"
    );
}

/// A model never runs with a bias that its state cannot carry.
#[test]
fn linear_attention_panics_on_a_bias_that_is_not_a_decay() {
    let linear = linear(softmax(), FeatureMap::Elu, Normalizer::Unrotated);
    let runs = |value: Value, positions: Positions| {
        let encoding = config(value);
        let model = model(&linear, &encoding, &DEVICE);
        let tokens = ints(&tokens(1, 1, 6, VOCAB), 1, &DEVICE);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            model.forward(tokens, &positions, &Pass::default())
        }))
        .is_ok()
    };
    assert!(runs(json!({"kind": "alibi"}), Positions::contiguous(6)));
    assert!(!runs(json!({"kind": "t5"}), Positions::contiguous(6)));
    let drawn = Positions::contiguous(6).with_distances(vec![0.0, 2.0, 3.0, 7.0, 8.0, 9.0]);
    assert!(
        !runs(json!({"kind": "alibi"}), drawn),
        "distances that do not add up"
    );
}

#[test]
fn the_keys_of_linear_attention_are_refused_by_softmax() {
    let good = softmax();
    assert!(
        linear(good.clone(), FeatureMap::Relu, Normalizer::Rotated)
            .check()
            .is_ok()
    );
    let cosine = |map| linear(good.clone(), map, Normalizer::Cosine).check();
    assert!(cosine(FeatureMap::Elu).is_ok());
    let unused = cosine(FeatureMap::Relu).expect_err("unit vectors");
    assert_eq!(unused.key, "feature_map");
    let refused =
        |config: TransformerConfig| config.check().expect_err("softmax has no features").key;
    assert_eq!(
        refused(good.clone().with_feature_map(FeatureMap::Relu)),
        "feature_map"
    );
    assert_eq!(
        refused(good.clone().with_normalizer(Normalizer::Rotated)),
        "normalizer"
    );
    let text = serde_json::to_value(&good).expect("plain data");
    for key in ["attention", "feature_map", "normalizer"] {
        assert!(
            text.get(key).is_none(),
            "{key} is left out where it is the default, so that older runs keep their identity"
        );
    }
    let config = linear(good, FeatureMap::Relu, Normalizer::Rotated);
    let text = serde_json::to_value(&config).expect("plain data");
    assert_eq!(
        (
            &text["attention"],
            &text["feature_map"],
            &text["normalizer"]
        ),
        (&json!("linear"), &json!("relu"), &json!("rotated"))
    );
    let read: TransformerConfig = serde_json::from_value(text).expect("what was written");
    assert_eq!((read.attention, &read), (AttentionKind::Linear, &config));
}
