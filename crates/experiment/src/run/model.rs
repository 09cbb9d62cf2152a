//! Builds models, from a seed or from saved weights, and moves batches to and predictions from the
//! device.

use crate::host::values;
use crate::run::parameters::{self, draw};
use crate::spec::{RunSpec, trained_path};
use anyhow::Result;
use burn::tensor::{Device, Int, Tensor, TensorData};
use posenc::{ConfigError, EncodingConfig, Init};
use rundir::Weights;
use support::exit::Failure;
use tasks::Batch;
use tiny_transformer::Transformer;

/// Draws the model of a spec on `device`, with the encoding that training begins with.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the encoding of a spec that was edited by hand is
/// not resolved, or fails its check.
pub fn initial_model(spec: &RunSpec, device: &Device) -> Result<Transformer, Failure> {
    drawn(spec, spec.encoding_at(0), device).map_err(Failure::input)
}

fn drawn(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    device: &Device,
) -> Result<Transformer, ConfigError> {
    let source =
        |path: &str, shape: &[usize], distribution| draw(spec.seed, path, shape, distribution);
    let init = Init::new(device, &source);
    Transformer::new(&spec.model.transformer, encoding, &init)
}

/// Drawn weights of the model of a spec under `encoding`.
///
/// # Errors
///
/// As [`initial_model`].
pub fn drawn_weights(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    device: &Device,
) -> Result<Weights> {
    Ok(parameters::of(&drawn(spec, encoding, device)?))
}

/// The model of a spec with saved weights, under `encoding`.
///
/// # Errors
///
/// If the weights lack a parameter or have another shape for it.
pub fn rebuild(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    weights: &Weights,
    device: &Device,
) -> Result<Transformer> {
    Ok(with_saved(weights, device, |init| {
        Transformer::new(&spec.model.transformer, encoding, init)
    })??)
}

/// The encoding of a variant with the parameters that were trained.
///
/// # Errors
///
/// As [`rebuild`].
pub fn rebuild_encoding(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    weights: &Weights,
    device: &Device,
) -> Result<posenc::Encoding> {
    // Only a stack around the trained encoding moves its parameters to other paths.
    let trained = |path: &str| match path.strip_prefix("encoding.") {
        Some(inner) => format!("encoding.{}", trained_path(&spec.model.pe, encoding, inner)),
        None => path.to_owned(),
    };
    Ok(with_saved_at(weights, device, trained, |init| {
        encoding.init(&spec.model.transformer.shape(), &init.scope("encoding"))
    })??)
}

/// Builds a module whose parameters are asked for by path from saved weights.
fn with_saved<T>(
    weights: &Weights,
    device: &Device,
    build: impl FnOnce(&Init<'_>) -> T,
) -> Result<T> {
    with_saved_at(weights, device, str::to_owned, build)
}

/// Like [`with_saved`]; `place` gives the path that a parameter has in the saved weights.
fn with_saved_at<T>(
    weights: &Weights,
    device: &Device,
    place: impl Fn(&str) -> String,
    build: impl FnOnce(&Init<'_>) -> T,
) -> Result<T> {
    // A source cannot fail: zeros stand in, and the first error discards what was built of them.
    let missing = std::cell::RefCell::new(None);
    let source = |path: &str, shape: &[usize], _| {
        weights.values(&place(path), shape).unwrap_or_else(|error| {
            missing.borrow_mut().get_or_insert(error);
            vec![0.0; shape.iter().product()]
        })
    };
    let built = build(&Init::new(device, &source));
    missing.take().map_or(Ok(built), Err)
}

/// Inputs and targets of a batch on the device, `[rows, seq_len]`.
pub fn upload(batch: &Batch, device: &Device) -> (Tensor<2, Int>, Tensor<2, Int>) {
    let tensor = |ids: &[i32]| {
        Tensor::from_data(
            TensorData::new(ids.to_vec(), [batch.rows, batch.seq_len]),
            device,
        )
    };
    (tensor(&batch.inputs), tensor(&batch.targets))
}

/// The most likely token at every place, row by row.
pub fn greedy_tokens(logits: Tensor<3>) -> Vec<i64> {
    // [rows, seq_len, 1] -> [rows, seq_len]
    let guesses: Tensor<2, Int> = logits.argmax(2).squeeze_dim(2);
    values(guesses.into_data())
}
