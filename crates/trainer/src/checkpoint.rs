//! Checkpoints of a training: all that the next step depends on, whole or not at all.
//!
//! `checkpoints/step-N/` holds `model.safetensors`, `optimizer.safetensors` and, written last, `manifest.json` with the size and BLAKE3 of
//! both and the place in the step log up to which the log belongs to it. A directory is written under another name, synced and renamed, so
//! that what has its name is complete; what does not verify is passed over, and said to be.

use crate::weights::Weights;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Directory of a run's checkpoints.
pub const CHECKPOINTS_DIR: &str = "checkpoints";
/// How many are kept: the newest, and one to fall back on.
const KEPT: usize = 2;
/// Layout version of the manifest.
const SCHEMA: u32 = 1;
/// No manifest is larger.
const MAX_MANIFEST_BYTES: u64 = 1 << 16;
const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const MANIFEST: &str = "manifest.json";

/// Everything the next step depends on but the spec.
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
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    schema: u32,
    run_id: String,
    /// The program that wrote it.
    commit: String,
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
        self.seal = blake3::hash(&serde_json::to_vec(&self)?).to_hex().to_string();
        Ok(self)
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFacts {
    bytes: u64,
    blake3: String,
}

/// What was found to go on from.
#[derive(Debug, Default)]
pub struct Found {
    /// The newest state that verifies.
    pub state: Option<State>,
    /// What is worth saying: checkpoints that were passed over and why, a program that has changed.
    pub notes: Vec<String>,
}

/// Writes a checkpoint and drops the oldest ones.
///
/// # Errors
///
/// If the directory cannot be written; what was there before is untouched then.
pub fn save(run_directory: &Path, run_id: &str, state: &State) -> Result<()> {
    let root = run_directory.join(CHECKPOINTS_DIR);
    fs_err::create_dir_all(&root)?;
    clear_scratch(&root);
    let [first, second] = &state.moments;
    let moments = Weights(first.prefixed("first.").chain(second.prefixed("second.")).collect());
    let files = [(MODEL, state.weights.to_bytes()?), (OPTIMIZER, moments.to_bytes()?)];
    let scratch = root.join(format!(".step-{}.{}", state.step, std::process::id()));
    fs_err::create_dir(&scratch)?;
    let mut facts = BTreeMap::new();
    for (name, bytes) in &files {
        write_synced(&scratch.join(name), bytes)?;
        facts.insert((*name).to_owned(), FileFacts { bytes: bytes.len() as u64, blake3: blake3::hash(bytes).to_hex().to_string() });
    }
    let manifest = Manifest {
        schema: SCHEMA,
        run_id: run_id.to_owned(),
        commit: env!("LONGREACH_COMMIT").to_owned(),
        step: state.step,
        tokens: state.tokens,
        log_bytes: state.log_bytes,
        log_blake3: state.log_blake3.clone(),
        files: facts,
        seal: String::new(),
    };
    write_synced(&scratch.join(MANIFEST), &serde_json::to_vec_pretty(&manifest.sealed()?)?)?;
    sync_directory(&scratch)?;
    let place = place(&root, state.step);
    // A checkpoint of this step that was passed over makes way for a whole one.
    if place.exists() {
        fs_err::remove_dir_all(&place)?;
    }
    fs_err::rename(&scratch, &place)?;
    sync_directory(&root)?;
    for (_, old) in steps(&root).into_iter().rev().skip(KEPT) {
        let _ = std::fs::remove_dir_all(old);
    }
    Ok(())
}

/// The newest checkpoint of a run that verifies, against a model of the same shape.
pub fn latest(run_directory: &Path, run_id: &str, model: &Weights) -> Found {
    let root = run_directory.join(CHECKPOINTS_DIR);
    clear_scratch(&root);
    let mut found = Found::default();
    for (step, directory) in steps(&root).into_iter().rev() {
        match load(&directory, run_id, step, model) {
            Ok((state, commit)) => {
                if commit != env!("LONGREACH_COMMIT") {
                    let ours = env!("LONGREACH_COMMIT");
                    found.notes.push(format!("the checkpoint at step {step} was written by commit {commit}, this program is {ours}"));
                }
                found.state = Some(state);
                break;
            }
            Err(error) => found.notes.push(format!("passed over {}: {error:#}", directory.display())),
        }
    }
    found
}

/// The step of the newest complete checkpoint, unverified.
pub fn newest_step(run_directory: &Path) -> Option<u64> {
    steps(&run_directory.join(CHECKPOINTS_DIR)).last().map(|(step, _)| *step)
}

/// Removes all checkpoints of a run that is recorded.
pub fn clear(run_directory: &Path) {
    let _ = std::fs::remove_dir_all(run_directory.join(CHECKPOINTS_DIR));
}

fn load(directory: &Path, run_id: &str, step: u64, model: &Weights) -> Result<(State, String)> {
    let path = directory.join(MANIFEST);
    ensure!(fs_err::metadata(&path)?.len() <= MAX_MANIFEST_BYTES, "its manifest is too large");
    let manifest: Manifest = serde_json::from_slice(&fs_err::read(&path)?).context("its manifest cannot be read")?;
    let seal = manifest.seal.clone();
    let manifest = manifest.sealed()?;
    ensure!(manifest.seal == seal, "its manifest was changed");
    ensure!(manifest.schema == SCHEMA, "its manifest has layout {}, not {SCHEMA}", manifest.schema);
    ensure!(manifest.run_id == run_id, "it belongs to run {}", manifest.run_id);
    ensure!(manifest.step == step, "its manifest is of step {}", manifest.step);
    // Twice the model is moments; names and shapes take a header. Nothing larger is read.
    let largest = 16 * model.count("") + (1 << 20);
    let read = |name: &str| -> Result<Weights> {
        let facts = manifest.files.get(name).with_context(|| format!("its manifest names no {name}"))?;
        let path = directory.join(name);
        let length = fs_err::metadata(&path)?.len();
        ensure!(length == facts.bytes && length <= largest, "{name} has {length} bytes, {} in the manifest", facts.bytes);
        let bytes = fs_err::read(&path)?;
        ensure!(blake3::hash(&bytes).to_hex().as_str() == facts.blake3, "{name} does not have the hash of the manifest");
        Weights::from_bytes(&bytes).with_context(|| name.to_owned())
    };
    let weights = read(MODEL)?;
    let shapes = |weights: &Weights| weights.0.iter().map(|(path, tensor)| (path.clone(), tensor.shape.clone())).collect::<Vec<_>>();
    ensure!(shapes(&weights) == shapes(model), "its parameters are not those of the model");
    let mut moments = [Weights::default(), Weights::default()];
    for (name, tensor) in read(OPTIMIZER)?.0 {
        let (which, path) = match (name.strip_prefix("first."), name.strip_prefix("second.")) {
            (Some(path), _) => (0, path),
            (_, Some(path)) => (1, path),
            _ => bail!("the optimizer has a tensor {name}"),
        };
        let count =
            model.0.get(path).with_context(|| format!("the optimizer has moments of {path}, which the model has not"))?.values.len();
        ensure!(tensor.shape == [count], "the moments of {path} have shape {:?}", tensor.shape);
        moments[which].0.insert(path.to_owned(), tensor);
    }
    ensure!(moments[0].0.keys().eq(moments[1].0.keys()), "the optimizer's two moments are of different parameters");
    let Manifest { tokens, log_bytes, log_blake3, commit, .. } = manifest;
    Ok((State { step, tokens, weights, moments, log_bytes, log_blake3 }, commit))
}

fn place(root: &Path, step: u64) -> PathBuf {
    root.join(format!("step-{step:09}"))
}

/// Complete checkpoints by step, oldest first.
fn steps(root: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    let mut steps: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            let step = entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
            // A link could lead anywhere.
            entry.file_type().ok()?.is_dir().then(|| (step, entry.path()))
        })
        .collect();
    steps.sort();
    steps
}

/// Removes what a process that died left half written. Only the holder of the run's lock gets here.
fn clear_scratch(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(".step-") {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs_err::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(())
}

/// Makes names in a directory survive a power cut, where the system can.
fn sync_directory(path: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(path).and_then(|directory| directory.sync_all()).with_context(|| format!("cannot sync {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::HostTensor;

    fn weights(seed: f32) -> Weights {
        let tensor = |shape: Vec<usize>, from: f32| {
            let count = shape.iter().product::<usize>();
            HostTensor { shape, values: (0..count).map(|i| from + i as f32 / 7.0).collect() }
        };
        Weights([("a".to_owned(), tensor(vec![3, 2], seed)), ("b.c".to_owned(), tensor(vec![4], -seed))].into())
    }

    fn state(step: u64) -> State {
        let flat = |weights: Weights| {
            Weights(weights.0.into_iter().map(|(path, t)| (path, HostTensor { shape: vec![t.values.len()], ..t })).collect())
        };
        let moments = [flat(weights(step as f32 + 0.5)), flat(weights(step as f32 + 0.25))];
        State { step, tokens: 7 * step, weights: weights(step as f32), moments, log_bytes: 11 * step, log_blake3: "x".to_owned() }
    }

    fn found(directory: &Path) -> Found {
        latest(directory, "run", &weights(0.0))
    }

    #[test]
    fn what_is_saved_is_found_and_two_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(found(directory.path()).state.is_none());
        for step in [10, 20, 30] {
            save(directory.path(), "run", &state(step)).expect("saved");
            assert_eq!(found(directory.path()).state, Some(state(step)));
        }
        let kept: Vec<u64> = steps(&directory.path().join(CHECKPOINTS_DIR)).into_iter().map(|(step, _)| step).collect();
        assert_eq!(kept, [20, 30]);
        clear(directory.path());
        assert!(found(directory.path()).state.is_none());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        save(directory.path(), "run", &state(10)).expect("saved");
        save(directory.path(), "run", &state(20)).expect("saved");
        let newest = directory.path().join(CHECKPOINTS_DIR).join("step-000000020");
        for name in [MODEL, OPTIMIZER, MANIFEST] {
            let path = newest.join(name);
            let whole = std::fs::read(&path).expect("written");
            for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
                let mut broken = whole.clone();
                broken[at] ^= 1 << (at % 8);
                for bytes in [broken, whole[..at].to_vec()] {
                    std::fs::write(&path, bytes).expect("writable");
                    let found = found(directory.path());
                    // A changed space in the manifest changes nothing.
                    let used = found.state.expect("the older one is there");
                    assert!(used == state(10) && found.notes.len() == 1 || used == state(20) && name == MANIFEST, "{name} at {at}");
                }
            }
            std::fs::write(&path, whole).expect("writable");
        }
        assert_eq!(found(directory.path()).state, Some(state(20)));
    }

    #[test]
    fn checkpoints_of_others_and_half_written_ones_are_passed_over() {
        let directory = tempfile::tempdir().expect("a directory");
        save(directory.path(), "another", &state(10)).expect("saved");
        let other = found(directory.path());
        assert!(other.state.is_none() && other.notes[0].contains("another"));
        let scratch = directory.path().join(CHECKPOINTS_DIR).join(".step-30.1");
        std::fs::create_dir_all(&scratch).expect("a directory");
        assert!(found(directory.path()).state.is_none());
        assert!(!scratch.exists(), "what a dead process left is removed");
        save(directory.path(), "run", &state(20)).expect("saved");
        let larger =
            Weights(weights(0.0).0.into_iter().chain([("d".to_owned(), HostTensor { shape: vec![1], values: vec![0.0] })]).collect());
        let misfit = latest(directory.path(), "run", &larger);
        assert!(misfit.state.is_none() && misfit.notes.iter().any(|note| note.contains("not those of the model")));
    }

    #[test]
    fn numbers_that_are_not_finite_are_never_loaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut bad = state(10);
        bad.weights.0.get_mut("a").expect("there").values[1] = f32::NAN;
        save(directory.path(), "run", &bad).expect("saved");
        let found = found(directory.path());
        assert!(found.state.is_none() && found.notes[0].contains("not finite"), "{:?}", found.notes);
    }
}
