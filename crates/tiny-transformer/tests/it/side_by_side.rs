//! Models side by side: each has the losses and gradients that it has alone.

use crate::common::side_by_side::{
    MODELS, alone, compare, compare_at, compare_encodings, compare_mixes, model, pass, together,
};
use crate::common::{config as encoding_of, encodings, ints, linear, reach, small, tokens};
use crate::models::{LENGTH, all_variants, device, of_kind};
use posenc::{Axis, Encoding, EncodingConfig, Positions};
use serde_json::json;
use tiny_transformer::{
    Activation, FeatureMap, Mask, NormKind, Normalizer, Transformer, TransformerConfig,
};

/// Rounding, relative to the largest number of a gradient.
const OFF: f64 = 2e-5;

fn same(what: &str, config: &TransformerConfig, encoding: &EncodingConfig, length: usize) {
    let configs = [(config, encoding); MODELS];
    compare(&device(), OFF, what, &configs, length);
}

#[test]
fn every_encoding_acts_on_its_own_model() {
    compare_encodings(&device(), OFF);
}

#[test]
fn models_may_have_encodings_of_other_numbers_or_another_kind() {
    compare_mixes(&device(), OFF);
}

#[test]
fn every_kind_of_model_can_be_joined() {
    for (i, config) in all_variants().enumerate() {
        for kind in ["rope", "alibi", "fox"] {
            same(&format!("{i}, {kind}"), &config, &of_kind(kind), LENGTH);
        }
    }
    let plain = small(NormKind::LayerNorm, Activation::Gelu, false);
    let both_ways = plain.clone().with_mask(Mask::Bidirectional);
    for kind in ["rope", "alibi", "shaw"] {
        same(
            &format!("{kind}, both ways"),
            &both_ways,
            &of_kind(kind),
            LENGTH,
        );
    }
    for normalizer in [
        Normalizer::Rotated,
        Normalizer::Unrotated,
        Normalizer::Cosine,
    ] {
        let config = linear(plain.clone(), FeatureMap::Elu, normalizer);
        for kind in ["rope", "alibi", "learned"] {
            let what = format!("{kind}, {normalizer:?}");
            same(
                &what,
                &config,
                &of_kind(kind),
                32.min(reach(&of_kind(kind), 80)),
            );
        }
    }
}

#[test]
fn sequences_may_have_coordinates_of_their_own() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, false);
    let device = device().autodiff();
    // Two sequences of each model; the coordinates of the second are three times as far apart.
    let axes = |step: usize| {
        let coordinates: Vec<f64> = (0..LENGTH).map(|i| (step * i) as f64).collect();
        let (queries, keys) = (coordinates.clone(), coordinates);
        vec![Axis { queries, keys }]
    };
    let rows = vec![axes(1), axes(3)];
    let positions = [Positions::contiguous(LENGTH).with_axes_by_row(rows)];
    for kind in ["rope", "alibi", "t5", "kerple"] {
        let encoding = encoding_of(json!({"kind": "on_axis", "part": {"kind": kind}}));
        let models = (0..MODELS).map(|g| model(&config, &encoding, g, &device));
        let models: Vec<Transformer> = models.collect();
        let cases = [(&positions[..], false), (&positions[..], true)];
        compare_at(&device, OFF, kind, &models, LENGTH, &cases);
    }
}

#[test]
fn one_encoding_acts_for_models_of_one_configuration() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, false);
    let is_joined = |encoding: &EncodingConfig, equal: bool| {
        let models = (0..MODELS).map(|g| model(&config, encoding, g, &device()));
        let joined = Transformer::join(&models.collect::<Vec<_>>(), equal);
        joined.encoding().is_joined()
    };
    for (name, encoding) in encodings() {
        assert!(is_joined(&encoding, true), "{name}");
        assert!(!is_joined(&encoding, false), "{name}");
    }
}

#[test]
fn one_model_alone_has_the_same_bits() {
    let config = small(NormKind::RmsNorm, Activation::Swiglu, true);
    let device = device().autodiff();
    let positions = [Positions::contiguous(LENGTH)];
    for (name, encoding) in encodings() {
        let length = reach(&encoding, LENGTH);
        let positions = [Positions::contiguous(
            length.min(positions[0].queries().len()),
        )];
        let models = [model(&config, &encoding, 0, &device)];
        let alone = alone(&device, &models, &positions, length);
        assert_eq!(
            together(&device, &models, &positions, length, false),
            alone,
            "{name}"
        );
    }
}

#[test]
#[should_panic(expected = "rows and positions for 3 models")]
fn positions_of_some_models_are_refused() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, false);
    let models: Vec<Transformer<Encoding>> = (0..MODELS)
        .map(|g| model(&config, &of_kind("rope"), g, &device()))
        .collect();
    let positions = vec![Positions::contiguous(4); 2];
    let ids = ints(&tokens(1, 6, 4, 11), 6, &device());
    Transformer::join(&models, false).nll_of_each(ids.clone(), ids, &positions, &pass());
}
