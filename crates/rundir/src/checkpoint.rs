//! Checkpoints: everything the next training step depends on, written atomically.
//!
//! `checkpoints/step-N/` holds `model.safetensors`, `optimizer.safetensors` and, written last,
//! `manifest.json` with the size and BLAKE3 of both and the length of the step log at that step.
//! Where scores are taken while training, `scores.json` holds those so far. A directory is written
//! under another name, synced and renamed, so that `step-N` is complete.
//! Checkpoints that do not verify are skipped with a note.

use crate::disk::{Disk, Op};
use crate::read;
use crate::scratch;
use crate::weights::{MAX_HEADER_BYTES, Weights};
use anyhow::{Context, Result, bail, ensure};
use schema::text::excerpt;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directory of a run's checkpoints.
pub const CHECKPOINTS_DIR: &str = "checkpoints";
/// Number of checkpoints kept: the newest, and one to fall back on.
const KEPT: usize = 2;
/// Layout version of the manifest.
const SCHEMA: u32 = 2;
/// Largest manifest.
const MAX_MANIFEST_BYTES: u64 = 1 << 16;
/// The model's parameters.
pub const MODEL: &str = "model.safetensors";
/// The optimizer's moments.
pub const OPTIMIZER: &str = "optimizer.safetensors";
/// The scores taken while training, if there are any.
pub const SCORES: &str = "scores.json";
/// Most bytes of scores.
const MAX_SCORES_BYTES: u64 = 1 << 24;
/// Sizes and hashes of these files, and the length of the log.
pub const MANIFEST: &str = "manifest.json";

/// Everything the next step depends on besides the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Steps applied.
    pub step: u64,
    /// Tokens trained on.
    pub tokens: u64,
    /// The model's parameters.
    pub weights: Weights,
    /// First and second moments of the optimizer, flattened, by the path of their parameter.
    pub moments: [Weights; 2],
    /// Bytes of the step log that belong to these steps.
    pub log_bytes: u64,
    /// BLAKE3 of those bytes.
    pub log_blake3: String,
    /// The scores taken so far, as the caller writes them; no bytes where none are taken.
    pub scores: Vec<u8>,
}

/// Build and machine that wrote a checkpoint; resuming elsewhere may differ in the last bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Commit of the program.
    pub commit: String,
    /// Processor and device.
    pub machine: String,
}

/// The manifest of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    schema: u32,
    run_id: String,
    origin: Origin,
    step: u64,
    tokens: u64,
    log_bytes: u64,
    log_blake3: String,
    files: BTreeMap<String, FileFacts>,
    /// BLAKE3 of the manifest with this left empty.
    seal: String,
}

impl Manifest {
    fn sealed(mut self) -> Result<Self> {
        self.seal = String::new();
        self.seal = blake3::hash(&serde_json::to_vec(&self)?)
            .to_hex()
            .to_string();
        Ok(self)
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFacts {
    bytes: u64,
    blake3: String,
}

/// The result of looking for a checkpoint.
#[derive(Debug)]
pub struct Found<T> {
    /// The newest state that verifies, and what `accept` returned for it.
    pub state: Option<(State, T)>,
    /// Checkpoints that were skipped and why, and a changed program or machine.
    pub notes: Vec<String>,
}

/// Writes a checkpoint and removes the oldest ones.
///
/// # Errors
///
/// If the directory cannot be written; earlier checkpoints are unchanged then.
pub fn save(
    disk: &dyn Disk,
    run_directory: &Path,
    run_id: &str,
    origin: &Origin,
    state: &State,
) -> Result<()> {
    let root = run_directory.join(CHECKPOINTS_DIR);
    // A link could lead anywhere.
    ensure!(!root.is_symlink(), "{} is a link", root.display());
    disk.create_dirs(&root)?;
    // The caller holds the run's lock, so what is half written here is of a dead process.
    disk.remove_scratch(&root);
    let place = place(&root, state.step);
    let scratch = scratch::beside(&place);
    let written = write(disk, &scratch, run_id, origin, state);
    if let Err(error) = written {
        // Free the space for another attempt.
        let _ = disk.remove_tree(&scratch);
        return Err(error);
    }
    // Replace a checkpoint of this step that did not verify.
    discard(disk, &place)?;
    // The rename shows a complete directory; syncing its parent makes the name survive.
    disk.run(Op::Rename(&scratch, &place))?;
    disk.run(Op::SyncDir(&root))?;
    // Only now: until the new checkpoint survives, the old ones are what a run falls back on.
    for (_, old) in steps(&root).into_iter().rev().skip(KEPT) {
        let _ = discard(disk, &old);
    }
    Ok(())
}

fn write(
    disk: &dyn Disk,
    scratch: &Path,
    run_id: &str,
    origin: &Origin,
    state: &State,
) -> Result<()> {
    // Both moments are in one file, distinguished by the prefix of their paths.
    let [first, second] = &state.moments;
    let moments = Weights(
        first
            .prefixed("first.")
            .chain(second.prefixed("second."))
            .collect(),
    );
    let mut facts = BTreeMap::new();
    disk.run(Op::CreateDir(scratch))?;
    let mut contents = vec![
        (MODEL, state.weights.to_bytes()?),
        (OPTIMIZER, moments.to_bytes()?),
    ];
    if !state.scores.is_empty() {
        contents.push((SCORES, state.scores.clone()));
    }
    for (name, bytes) in contents {
        disk.write_synced(&scratch.join(name), &bytes)?;
        facts.insert(
            name.to_owned(),
            FileFacts {
                bytes: bytes.len() as u64,
                blake3: blake3::hash(&bytes).to_hex().to_string(),
            },
        );
    }
    // Written last, because it states the sizes and hashes of the others.
    let manifest = Manifest {
        schema: SCHEMA,
        run_id: run_id.to_owned(),
        origin: origin.clone(),
        step: state.step,
        tokens: state.tokens,
        log_bytes: state.log_bytes,
        log_blake3: state.log_blake3.clone(),
        files: facts,
        seal: String::new(),
    };
    disk.write_synced(
        &scratch.join(MANIFEST),
        &serde_json::to_vec_pretty(&manifest.sealed()?)?,
    )?;
    Ok(disk.run(Op::SyncDir(scratch))?)
}

/// Renames a directory before removing its files, so that a directory with its name is complete.
fn discard(disk: &dyn Disk, path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let scratch = scratch::beside(path);
    disk.run(Op::Rename(path, &scratch))?;
    Ok(disk.remove_tree(&scratch)?)
}

/// The newest checkpoint of a run that verifies against a model of the same shape and that `accept`
/// accepts. `model` gives the parameters of the model after a number of steps.
pub fn latest<'a, T>(
    disk: &dyn Disk,
    run_directory: &Path,
    run_id: &str,
    origin: &Origin,
    model: impl Fn(u64) -> Result<Cow<'a, Weights>>,
    mut accept: impl FnMut(&State) -> Result<T>,
) -> Found<T> {
    let root = run_directory.join(CHECKPOINTS_DIR);
    let mut found = Found {
        state: None,
        notes: Vec::new(),
    };
    if root.is_symlink() {
        found
            .notes
            .push(format!("skipped {}: it is a link", root.display()));
        return found;
    }
    disk.remove_scratch(&root);
    // Newest first: one that does not verify or is not accepted makes way for the one before.
    let mut skipped = Vec::new();
    for (step, directory) in steps(&root).into_iter().rev() {
        let loaded = model(step)
            .and_then(|model| load(&directory, run_id, step, &model))
            .and_then(|(state, theirs)| Ok((accept(&state)?, state, theirs)));
        match loaded {
            Ok((accepted, state, theirs)) => {
                for (what, theirs, ours) in [
                    ("commit", &theirs.commit, &origin.commit),
                    ("machine", &theirs.machine, &origin.machine),
                ] {
                    if theirs != ours {
                        found.notes.push(format!(
                            "the checkpoint at step {step} was written by another {what}, {}; \
                             this is {ours}: results may differ in the last bits",
                            excerpt(theirs)
                        ));
                    }
                }
                found.state = Some((state, accepted));
                break;
            }
            Err(error) => {
                found.notes.push(format!(
                    "skipped {}: {}",
                    directory.display(),
                    excerpt(&format!("{error:#}"))
                ));
                skipped.push(directory);
            }
        }
    }
    // They would take the places of good ones until training passes their steps.
    if found.state.is_some() {
        for directory in skipped {
            let _ = discard(disk, &directory);
        }
    }
    found
}

/// The step of the newest complete checkpoint, unverified.
pub fn newest_step(run_directory: &Path) -> Option<u64> {
    steps(&run_directory.join(CHECKPOINTS_DIR))
        .last()
        .map(|(step, _)| *step)
}

/// Removes all checkpoints of a recorded run, as far as possible.
pub fn clear(disk: &dyn Disk, run_directory: &Path) {
    let _ = discard(disk, &run_directory.join(CHECKPOINTS_DIR));
}

/// Reads the manifest of a checkpoint and checks that it is whole and of this run and step.
fn manifest(directory: &Path, run_id: &str, step: u64) -> Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(&read::bounded(
        &directory.join(MANIFEST),
        MAX_MANIFEST_BYTES,
    )?)
    .context("its manifest cannot be read")?;
    ensure!(
        manifest.schema == SCHEMA,
        "its manifest has layout {}, not {SCHEMA}",
        manifest.schema
    );
    // The seal covers the manifest with an empty seal, so it is computed again without it.
    let seal = manifest.seal.clone();
    let manifest = manifest.sealed()?;
    ensure!(manifest.seal == seal, "its manifest was changed");
    ensure!(
        manifest.run_id == run_id,
        "it belongs to run {}",
        manifest.run_id
    );
    ensure!(
        manifest.step == step,
        "its manifest is of step {}",
        manifest.step
    );
    Ok(manifest)
}

fn load(directory: &Path, run_id: &str, step: u64, model: &Weights) -> Result<(State, Origin)> {
    let manifest = manifest(directory, run_id, step)?;
    // The two moments take twice the bytes of the model, names and shapes a header.
    let largest = 8 * model.count("") + MAX_HEADER_BYTES + 8;
    let read = |name: &str, largest: u64| -> Result<Vec<u8>> {
        let facts = manifest
            .files
            .get(name)
            .with_context(|| format!("its manifest names no {name}"))?;
        let bytes = read::bounded(&directory.join(name), largest)?;
        ensure!(
            bytes.len() as u64 == facts.bytes,
            "{name} has {} bytes, {} in the manifest",
            bytes.len(),
            facts.bytes
        );
        ensure!(
            blake3::hash(&bytes).to_hex().as_str() == facts.blake3,
            "{name} does not have the hash of the manifest"
        );
        Ok(bytes)
    };
    let tensors =
        |name: &str| Weights::from_bytes(&read(name, largest)?).with_context(|| name.to_owned());
    let weights = tensors(MODEL)?;
    check_shapes(&weights, model)?;
    let moments = moments(tensors(OPTIMIZER)?, model)?;
    // Only trainings that take scores have this file.
    let scores = match manifest.files.contains_key(SCORES) {
        true => read(SCORES, MAX_SCORES_BYTES)?,
        false => Vec::new(),
    };
    let Manifest {
        tokens,
        log_bytes,
        log_blake3,
        origin,
        ..
    } = manifest;
    Ok((
        State {
            step,
            tokens,
            weights,
            moments,
            log_bytes,
            log_blake3,
            scores,
        },
        origin,
    ))
}

/// Checks that loaded parameters have the paths and shapes of the model.
fn check_shapes(weights: &Weights, model: &Weights) -> Result<()> {
    ensure!(
        weights.0.len() == model.0.len(),
        "its parameters are not those of the model: {} tensors, not {}",
        weights.0.len(),
        model.0.len()
    );
    for (path, tensor) in &model.0 {
        let found = weights.0.get(path).with_context(|| {
            format!("its parameters are not those of the model: there is no {path}")
        })?;
        ensure!(
            found.shape == tensor.shape,
            "its parameters are not those of the model: {path} has shape {:?}, not {:?}",
            found.shape,
            tensor.shape
        );
    }
    Ok(())
}

/// Divides the optimizer's tensors into first and second moments of the model's parameters.
fn moments(optimizer: Weights, model: &Weights) -> Result<[Weights; 2]> {
    let mut moments = [Weights::default(), Weights::default()];
    for (name, tensor) in optimizer.0 {
        let (which, path) = match (name.strip_prefix("first."), name.strip_prefix("second.")) {
            (Some(path), _) => (0, path),
            (_, Some(path)) => (1, path),
            _ => bail!("the optimizer has a tensor {name:?}"),
        };
        let of = model.0.get(path).with_context(|| {
            format!("the optimizer has moments of {path:?}, which the model does not have")
        })?;
        // Moments are stored flat: one dimension, row-major as the parameter's values.
        ensure!(
            tensor.shape == [of.values.len()],
            "the moments of {path} have shape {:?}",
            tensor.shape
        );
        // A second moment is a mean of squares.
        ensure!(
            which == 0 || tensor.values.iter().all(|value| *value >= 0.0),
            "a second moment of {path} is negative"
        );
        moments[which].0.insert(path.to_owned(), tensor);
    }
    ensure!(
        moments[0].0.keys().eq(moments[1].0.keys()),
        "the optimizer's two moments are of different parameters"
    );
    Ok(moments)
}

fn place(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step-{step:09}"))
}

/// Complete checkpoints by step, oldest first.
fn steps(root: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut steps: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let step = entry
                .file_name()
                .to_str()?
                .strip_prefix("step-")?
                .parse()
                .ok()?;
            // A link could lead anywhere.
            entry
                .file_type()
                .ok()?
                .is_dir()
                .then(|| (step, entry.path()))
        })
        .collect();
    steps.sort();
    steps
}

#[cfg(test)]
mod tests;
