//! `train.start_from` with a file: weights that another program wrote, such as PyTorch.

use crate::spec::{ModelSpec, WarmStart};
use posenc::{ConfigError, EncodingConfig, Init};
use rundir::Weights;
use rundir::weights::MAX_HEADER_BYTES;
use schema::text::excerpt;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tiny_transformer::Transformer;

/// Tensors that an error names; it counts the others.
const MOST_NAMED: usize = 3;

/// Whether a value of `train.start_from` names a file of weights, not a directory of runs.
pub(super) fn is_file(place: &Path) -> bool {
    place.extension().is_some_and(|end| end == "safetensors") || place.is_file()
}

/// The weights of a file and where it lies, if they are those of this model under the encoding
/// `first`: the tensors of its weights.safetensors, no more and no fewer. Every seed starts from
/// them.
///
/// # Errors
///
/// What is wrong with the file.
pub(super) fn read(
    place: &Path,
    model: &ModelSpec,
    first: &EncodingConfig,
) -> Result<(WarmStart, PathBuf), String> {
    // Downloads are links into a cache.
    let file = place.canonicalize();
    let file = file.map_err(|error| format!("names {}: {error}", place.display()))?;
    let wanted = shapes(model, first).map_err(|error| error.to_string())?;
    let numbers: usize = wanted
        .values()
        .map(|shape| shape.iter().product::<usize>())
        .sum();
    // Room for tensors that are wrong, so that they are named.
    let most = (numbers as u64).saturating_mul(16) + MAX_HEADER_BYTES;
    let weights = rundir::read::bounded(&file, most).and_then(|bytes| Weights::from_bytes(&bytes));
    let weights = weights.map_err(|error| format!("names {}: {error:#}", place.display()))?;
    let wrong = wrong(&weights, &wanted);
    if !wrong.is_empty() {
        let others = match wrong.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let named = wrong.iter().take(MOST_NAMED).map(String::as_str);
        let named = named.collect::<Vec<_>>().join("; ");
        return Err(format!("names {}: {named}{others}", place.display()));
    }
    let start = WarmStart {
        run_id: None,
        weights_blake3: weights.digest(),
        parameters: numbers as u64,
        pe: true,
    };
    Ok((start, file))
}

/// The tensors of a model's weights, by name.
fn shapes(
    model: &ModelSpec,
    encoding: &EncodingConfig,
) -> Result<BTreeMap<String, Vec<usize>>, ConfigError> {
    let asked = RefCell::new(BTreeMap::new());
    let source = |path: &str, shape: &[usize], _| {
        asked.borrow_mut().insert(path.to_owned(), shape.to_vec());
        vec![0.0; shape.iter().product()]
    };
    let device = super::blind::host();
    Transformer::new(&model.transformer, encoding, &Init::new(&device, &source))?;
    Ok(asked.take())
}

/// What differs between the tensors of a file and those of the model.
fn wrong(weights: &Weights, wanted: &BTreeMap<String, Vec<usize>>) -> Vec<String> {
    let lacking = wanted.iter().filter_map(|(name, shape)| {
        match weights.0.get(name).map(|tensor| &tensor.shape) {
            Some(found) if found == shape => None,
            Some(found) => Some(format!(
                "{name} has shape {found:?}; the model has {shape:?}"
            )),
            None => Some(format!("{name} {shape:?} is not there")),
        }
    });
    let unknown = weights
        .0
        .iter()
        .filter(|(name, _)| !wanted.contains_key(*name));
    let unknown = unknown.map(|(name, tensor)| {
        format!(
            "{:?} {:?} is none of the model's",
            excerpt(name),
            tensor.shape
        )
    });
    lacking.chain(unknown).collect()
}
