//! Tokens and logits of a trained run: what a model rebuilt elsewhere must reproduce.

use crate::commands::export::trained::Trained;
use crate::commands::export::{Args, Tensors, write_tensors};
use experiment::host::values;
use experiment::run::model::{rebuild, upload};
use experiment::spec::MAX_LOGITS;
use safetensors::tensor::Dtype;
use support::exit::Failure;
use support::units::count;
use tiny_transformer::Pass;

/// Key of the metadata that distinguishes such a file.
pub(super) const ABOUT: &str = "run_id";

/// Writes `VARIANT.LENGTH.tokens`, `[rows, tokens]`, and `VARIANT.LENGTH.logits`, `[rows, tokens,
/// vocab_size]`, for the first rows of every test set, of a range of lengths rows of its upper end;
/// returns a line about the file.
///
/// # Errors
///
/// As [`Trained::open`], and [`Exit::Resources`](support::exit::Exit::Resources).
pub fn write(request: &Args) -> Result<String, Failure> {
    let trained = Trained::open(request, "logits")?;
    let (spec, device) = (&trained.spec, &trained.device);
    let mut model = rebuild(spec, &spec.model.pe, &trained.weights, device)
        .map_err(|error| Failure::bug(format!("{error:#}")))?;
    let mut tensors = Tensors::new();
    for set in trained.test_sets(request.rows.unwrap_or(2)) {
        let set = set?;
        let batch = &set.part.batch;
        model = model.with_encoding(set.encoding);
        let pass = Pass {
            max_logits: MAX_LOGITS,
            ..Pass::default()
        };
        let logits = model.forward(upload(batch, device).0, &set.part.positions, &pass);
        let shape = logits.dims().to_vec();
        let logits = values::<f32>(logits.into_data());
        let bytes = batch.inputs.iter().flat_map(|id| id.to_le_bytes());
        let rows = vec![batch.rows, batch.seq_len];
        let tokens = (Dtype::I32, rows, bytes.collect());
        tensors.insert(format!("{}.tokens", set.name), tokens);
        let bytes = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.insert(format!("{}.logits", set.name), (Dtype::F32, shape, bytes));
    }
    write_tensors(request, &tensors, (ABOUT, trained.run_id.clone()))?;
    Ok(format!(
        "wrote {}: tokens and logits of {}, {}",
        request.out.display(),
        trained.run.name(),
        count(tensors.len() / 2, "test set")
    ))
}
