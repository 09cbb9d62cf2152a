//! `train.start_from`: the run, or the file, whose weights a training starts from.

use super::before::StartingRun;
use super::sections::Experiment;
use super::start_file;
use crate::spec::{Job, ModelSpec, WarmStart};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::EncodingConfig;
use records::RunRecord;
use std::io;
use std::path::{Path, PathBuf};
use support::exit::Exit;
use tiny_transformer::TransformerConfig;

/// A recorded run, its directory and its job.
pub type RecordedRun = (PathBuf, Job, RunRecord);

/// Recorded runs of a seed that ended well, below a directory.
pub type RunsOfSeed = fn(&Path, u64) -> io::Result<Vec<RecordedRun>>;

/// A run or a file to start from.
pub(super) struct FoundStart {
    pub(super) start: WarmStart,
    pub(super) place: PathBuf,
    /// The method that a run is a seed of, for the record.
    pub(super) method: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What defaults need of the runs that a training starts from: one for each seed, all of one length
/// and one encoding.
pub(super) fn start(
    cell: &Cell,
    written: &Experiment,
    (directory, runs): (&Path, RunsOfSeed),
) -> Result<Option<StartingRun>, Diagnostic> {
    let place = written.train.start_from.as_ref();
    // A file does not say what its model was trained on.
    let place = place.map(|place| directory.join(place));
    let Some(place) = place.filter(|place| !start_file::is_file(place)) else {
        return Ok(None);
    };
    let mut found: Option<StartingRun> = None;
    for seed in &written.seeds {
        let (_, Job { spec, .. }, _) = recorded_run(cell, &place, runs, *seed)?;
        let own = StartingRun {
            seq_len: spec.train.seq_len,
            pe: spec.model.pe,
        };
        match &found {
            Some(first) if *first != own => {
                let problem = format!(
                    "leads to runs that differ in more than the seed: trained on {} and {} tokens, \
                     under `{}` and `{}`",
                    first.seq_len,
                    own.seq_len,
                    first.pe.kind(),
                    own.pe.kind()
                );
                let help = "name a directory with runs of one method";
                return Err(refuse(cell, &problem, "seeds of one method", help));
            }
            _ => found = Some(own),
        }
    }
    Ok(found)
}

/// The run below `train.start_from` that was trained with this seed and a model of the same shape,
/// or the file of such weights. `first` is the encoding that training begins with.
pub(super) fn warm_start(
    cell: &Cell,
    written: &Experiment,
    (directory, runs): (&Path, RunsOfSeed),
    model: &ModelSpec,
    first: &EncodingConfig,
    seed: u64,
) -> Result<Option<FoundStart>, Diagnostic> {
    let Some(place) = &written.train.start_from else {
        return Ok(None);
    };
    let place = directory.join(place);
    if start_file::is_file(&place) {
        let (start, place) = start_file::read(&place, model, first).map_err(|problem| {
            let allowed = "the tensors of this model's weights.safetensors, as F32";
            let help = "docs/interop.md has their names and shapes; it is relative to the config";
            refuse(cell, &problem, allowed, help).with_exit(Exit::Input)
        })?;
        return Ok(Some(FoundStart {
            start,
            place,
            method: None,
        }));
    }
    let (run, job, record) = recorded_run(cell, &place, runs, seed)?;
    let theirs = &job.spec.model;
    check_shape(cell, &theirs.transformer, &model.transformer)?;
    let shape = model.transformer.shape();
    let parameters = |pe: &EncodingConfig| pe.facts(&shape).parameters;
    // Options of one kind may change its parameters, so the kind is not enough.
    let same_encoding =
        theirs.pe.kind() == first.kind() && parameters(&theirs.pe) == parameters(first);
    let start = WarmStart {
        run_id: Some(record.run_id.clone()),
        weights_blake3: record.model.weights_blake3.clone(),
        parameters: record.model.parameters,
        pe: same_encoding,
    };
    Ok(Some(FoundStart {
        start,
        place: run,
        method: Some(record.method_spec()),
    }))
}

fn refuse(cell: &Cell, problem: &str, allowed: &str, help: &str) -> Diagnostic {
    cell.error("train.start_from", problem, allowed, help)
}

/// The one recorded run of a seed below a directory.
fn recorded_run(
    cell: &Cell,
    place: &Path,
    runs: RunsOfSeed,
    seed: u64,
) -> Result<RecordedRun, Diagnostic> {
    let mut found = runs(place, seed).map_err(|error| {
        let problem = format!("gives no weights: {error}");
        let allowed = "a directory of runs of the program, or a .safetensors file";
        let help = "it is relative to the config; docs/from-pytorch.md says what a file must have";
        refuse(cell, &problem, allowed, help).with_exit(Exit::Input)
    })?;
    // What started from one of them lies beside it if it is of the same experiment.
    let ids: Vec<String> = found
        .iter()
        .map(|(.., record)| record.run_id.clone())
        .collect();
    found.retain(|(_, job, _)| {
        let start = job.spec.train.start_from.as_ref();
        let id = start.and_then(|start| start.run_id.as_ref());
        id.is_none_or(|id| !ids.contains(id))
    });
    // With `half_seeds` a seed has two runs, and the weights of the whole one are meant.
    if found.len() > 1 {
        found.retain(|(.., record)| record.half_of.is_none());
    }
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    let help = match found.is_empty() {
        true => "train that seed, leave it out of `seeds`, or name a .safetensors file for all",
        false => "name a directory with one of each seed, or one run for one seed",
    };
    let names = found.iter().map(|(run, ..)| run.display().to_string());
    let names: Vec<String> = names.take(5).collect();
    let (count, names) = (found.len(), names.join(", "));
    let problem = format!("holds {count} recorded runs of seed {seed}: {names}");
    let problem = problem.trim_end_matches(": ");
    Err(refuse(cell, problem, "one run of each seed", help))
}

/// Refuses weights whose shapes are not those of this model.
fn check_shape(
    cell: &Cell,
    theirs: &TransformerConfig,
    ours: &TransformerConfig,
) -> Result<(), Diagnostic> {
    // What decides the shapes of the parameters.
    let sizes = [
        ("d_model", theirs.d_model, ours.d_model),
        ("n_layers", theirs.n_layers, ours.n_layers),
        ("n_heads", theirs.n_heads, ours.n_heads),
        ("head_dim", theirs.head_dim, ours.head_dim),
        ("d_ff", theirs.d_ff, ours.d_ff),
        ("vocab_size", theirs.vocab_size, ours.vocab_size),
    ];
    let size = sizes.iter().find(|(_, theirs, ours)| theirs != ours);
    // What decides which parameters there are, and the feed-forward block. Attention and its mask
    // may differ: a model may be trained on under another one.
    let kinds = [
        ("norm", theirs.norm == ours.norm),
        ("qk_norm", theirs.qk_norm == ours.qk_norm),
        ("mlp", theirs.mlp == ours.mlp),
        ("activation", theirs.activation == ours.activation),
        ("tied_head", theirs.tied_head == ours.tied_head),
        ("biases", theirs.biases == ours.biases),
    ];
    let kind = kinds.iter().find(|(_, same)| !same);
    let (name, difference, allowed) = match (kind, size) {
        (Some((name, _)), _) => (
            name,
            format!("{name} is different there"),
            format!("a run with the same model.{name}"),
        ),
        (None, Some((name, theirs, ours))) => (
            name,
            format!("{name} is {theirs} there and {ours} here"),
            format!("a run with {name} = {ours}"),
        ),
        (None, None) => return Ok(()),
    };
    let problem = format!("leads to weights of another model: {difference}");
    let help = match *name {
        // It follows from the task.
        "vocab_size" => "train on the task of that run, or name another run".to_owned(),
        name => format!("set model.{name}, or name another run"),
    };
    Err(refuse(cell, &problem, &allowed, &help))
}
