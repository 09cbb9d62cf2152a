//! The models and inputs that several tests share.

use crate::common::reference::{Part, parts};
use crate::common::{
    AllHooks, ContentOnly, VARIANTS, attention_only, config, draw, host, ints, small,
};
use burn::module::Module;
use burn::tensor::Device;
use posenc::{EncodingConfig, Init, PositionalEncoding, Positions};
use serde_json::json;
use tiny_transformer::{Activation, NormKind, Pass, QkNorm, Transformer, TransformerConfig};

pub const BATCH: usize = 2;
pub const LENGTH: usize = 12;

pub fn device() -> Device {
    Device::flex()
}

pub fn all_variants() -> impl Iterator<Item = TransformerConfig> {
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
        [QkNorm::LayerNorm, QkNorm::RmsNorm].map(|qk_norm| first.clone().with_qk_norm(qk_norm)),
    )
    .chain([attention_only()])
    .chain(biased())
}

/// Models whose linear layers have biases.
fn biased() -> impl Iterator<Item = TransformerConfig> {
    variants().map(|config| config.with_biases(true))
}

/// The small models that most tests run over.
pub fn variants() -> impl Iterator<Item = TransformerConfig> {
    let dense = VARIANTS.map(|(norm, activation, tied)| small(norm, activation, tied));
    dense.into_iter().chain([attention_only()])
}

pub fn forward<E: Module + PositionalEncoding>(
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

pub fn blocks_of(max_logits: usize) -> Pass<'static> {
    Pass {
        max_logits,
        ..Pass::default()
    }
}

/// Encodings that the reference knows, each on its own.
pub fn references() -> Vec<(&'static str, Vec<Part>)> {
    let kinds = [
        "sinusoidal",
        "learned",
        "rope",
        "xpos",
        "alibi",
        "pope",
        "shaw",
        "fox",
    ];
    let mut references = vec![("nope", vec![])];
    references.extend(kinds.map(|kind| (kind, parts(&[kind]))));
    references
}

pub fn of_kind(kind: &str) -> EncodingConfig {
    match kind {
        "learned" => config(json!({"kind": "learned", "max_position": 32, "init_std": 0.5})),
        "shaw" => config(json!({"kind": "shaw", "init_std": 0.5})),
        _ => config(json!({"kind": kind})),
    }
}

pub fn all_hooks(config: &TransformerConfig) -> Transformer<AllHooks> {
    let device = device();
    let init = Init::new(&device, &draw);
    Transformer::with(config, AllHooks::new(&init.scope("encoding")), &init)
}

pub fn content_only(config: &TransformerConfig) -> Transformer<ContentOnly> {
    let device = device();
    let init = Init::new(&device, &draw);
    Transformer::with(config, ContentOnly::new(&init.scope("encoding")), &init)
}

/// Negative log-likelihood of each target in nats.
pub fn nll_of(logits: &[f64], targets: &[i64]) -> Vec<f64> {
    let each = logits
        .chunks(logits.len() / targets.len())
        .zip(targets)
        .map(|(row, target)| {
            let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            top + row.iter().map(|v| (v - top).exp()).sum::<f64>().ln() - row[*target as usize]
        });
    each.collect()
}
