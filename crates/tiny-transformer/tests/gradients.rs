//! Gradients of the whole model against central differences, in f64.
//!
//! A test binary of its own: the float type of a device is set once per process, before its first tensor.

mod common;

use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use common::{AllHooks, ContentOnly, VARIANTS, Weights, draw, encodings, gradients, host, ints, noise, seed_of, small, tokens, weights};
use posenc::{Init, PositionalEncoding, Positions};
use std::sync::LazyLock;
use tiny_transformer::{Pass, Transformer, TransformerConfig};

const BATCH: usize = 2;
const STEP: f64 = 1e-5;

static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let mut device = Device::flex();
    device.configure(FloatDType::F64).expect("no tensor yet");
    device
});

/// A weighted mean of the nll: every position counts differently.
fn loss<E: Module + PositionalEncoding>(model: &Transformer<E>, length: usize, pass: &Pass<'_>, device: &Device) -> Tensor<1> {
    let count = BATCH * length;
    let [inputs, targets] = [1, 2].map(|seed| ints(&tokens(seed, BATCH, length, 11), BATCH, device));
    let (nll, _) = model.nll(inputs, targets, &Positions::contiguous(length), pass);
    let weights: Vec<f64> = noise(3, count).iter().map(|v| (1.0 + 0.5 * v) / count as f64).collect();
    (nll * Tensor::<2>::from_data(TensorData::new(weights, [BATCH, length]), device)).sum()
}

/// Compares three entries of every parameter.
fn agrees<E: Module + ModuleDisplay + PositionalEncoding>(
    name: &str,
    length: usize,
    pass: &Pass<'_>,
    build: &dyn Fn(&Init<'_>) -> Transformer<E>,
) {
    let tracked = DEVICE.clone().autodiff();
    let model = build(&Init::new(&tracked, &draw));
    let start: Weights = weights(&model);
    let exact = gradients(&model, &loss(&model, length, pass, &tracked));
    assert!(start.keys().eq(exact.keys()), "{name}: a gradient for every parameter");
    for (path, (_, values)) in &start {
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
                host(loss(&build(&Init::new(&DEVICE, &source)), length, pass, &DEVICE))[0]
            };
            let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let gradient = exact[path].1[entry];
            let allowed = 1e-8 + 1e-6 * difference.abs();
            assert!((gradient - difference).abs() <= allowed, "{name}: {path}[{entry}] has {gradient:e}, differences say {difference:e}");
        }
        let total: f64 = exact[path].1.iter().map(|g| g.abs()).sum();
        assert!(total > 0.0 && total.is_finite(), "{name}: {path} never gets a gradient");
    }
}

fn of_variant(index: usize) -> TransformerConfig {
    let (norm, activation, tied) = VARIANTS[index];
    small(norm, activation, tied)
}

fn every_encoding(variant: usize) {
    let config = of_variant(variant);
    for (name, encoding) in encodings() {
        for length in [3, 7, 17] {
            agrees(&name, length, &Pass::default(), &|init| Transformer::new(&config, &encoding, init));
        }
    }
}

#[test]
fn gradients_with_layer_norm_and_gelu() {
    every_encoding(0);
}

#[test]
fn gradients_with_rms_norm_and_swiglu() {
    every_encoding(1);
}

#[test]
fn gradients_through_every_hook_and_through_blocks() {
    let config = of_variant(0);
    let length = 17;
    for rows in [4, length] {
        let pass = Pass { max_logits: BATCH * config.n_heads * length * rows, ..Pass::default() };
        agrees("all hooks", length, &pass, &|init| Transformer::with(&config, AllHooks::new(&init.scope("encoding")), init));
        agrees("content only", length, &pass, &|init| Transformer::with(&config, ContentOnly::new(&init.scope("encoding")), init));
    }
    let (_, stack) = encodings().pop().expect("the last is a stack");
    let pass = Pass { max_logits: 1, ..Pass::default() };
    agrees("stack, row by row", 7, &pass, &|init| Transformer::new(&config, &stack, init));
}

#[test]
fn gradients_through_dropout() {
    let config = of_variant(1);
    let factors =
        |site: usize, count: usize| -> Vec<f32> { noise(site as u64, count).iter().map(|v| if *v < -0.5 { 0.0 } else { 1.25 }).collect() };
    let pass = Pass { dropout: Some(&factors), ..Pass::default() };
    let (_, rope) = encodings().into_iter().find(|(_, encoding)| encoding.kind() == "rope").expect("rope");
    agrees("rope", 7, &pass, &|init| Transformer::new(&config, &rope, init));
}
