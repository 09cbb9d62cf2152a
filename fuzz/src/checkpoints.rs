//! Bytes as a file of a run directory: read correctly or refused with a reason; never a panic, and
//! never silently wrong.

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../../crates/rundir/tests/it/common/mod.rs"]
mod common;

use common::mutants::seal;
use common::{EVERY, Quick, moments, origin, resume, save, step, weights};
use longreach_rundir::checkpoint::{CHECKPOINTS_DIR, MANIFEST, MODEL, OPTIMIZER, SCORES, State};
use longreach_rundir::steplog::{self, LOG_FILE, Step, StepLog};
use longreach_rundir::{HostTensor, Weights};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Longest input: files are written at every run, and longer ones reach no other code.
const MAX_LEN: usize = 8 << 10;

/// A run's directory with a good checkpoint and its log, in which each check replaces files and
/// puts them back.
pub struct Ground {
    directory: tempfile::TempDir,
    place: PathBuf,
    manifest: Vec<u8>,
    state: State,
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

impl Ground {
    /// A new directory below the system's temporary directory; a RAM disk is best.
    ///
    /// # Panics
    /// If it cannot be made, or a good checkpoint is not loaded.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let mut log = StepLog::create(&Quick, directory.path()).expect("a log");
        (1..=EVERY).for_each(|done| log.append(&step(done)).expect("appended"));
        let state = save(&Quick, directory.path(), &mut log, EVERY).expect("saved");
        let place = directory
            .path()
            .join(CHECKPOINTS_DIR)
            .join(format!("step-{EVERY:09}"));
        let manifest = std::fs::read(place.join(MANIFEST)).expect("written");
        let ground = Self {
            directory,
            place,
            manifest,
            state,
        };
        assert_eq!(
            ground.load().0.as_ref(),
            Some(&ground.state),
            "a good checkpoint"
        );
        ground
    }

    /// Seeds: the files of the good checkpoint as inputs, by target and name.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn good(&self) -> Vec<(&'static str, &'static str, Vec<u8>)> {
        let read = |path: PathBuf| std::fs::read(path).expect("a file");
        vec![
            ("manifest", "good.json", self.manifest.clone()),
            (
                "steplog",
                "good.jsonl",
                read(self.directory.path().join(LOG_FILE)),
            ),
            (
                "checkpoint",
                "good-model",
                [vec![0], read(self.place.join(MODEL))].concat(),
            ),
            (
                "checkpoint",
                "good-optimizer",
                [vec![1], read(self.place.join(OPTIMIZER))].concat(),
            ),
        ]
    }

    /// The state that is found, and what is said.
    fn load(&self) -> (Option<State>, Vec<String>) {
        let found = resume(&Quick, self.directory.path());
        assert!(
            found.state.is_some() || !found.notes.is_empty(),
            "a skipped checkpoint has a note"
        );
        found.notes.iter().for_each(|note| plain(note));
        (found.state.map(|(state, _)| state), found.notes)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.place.join(name), bytes).expect("scratch files can be written");
    }
}

/// A message has nothing that a terminal would obey, and an end.
fn plain(message: &str) {
    assert!(
        !message.contains(char::is_control) && message.len() < 16 << 10,
        "{message:?}"
    );
}

fn refusal_is_plain<T>(result: anyhow::Result<T>) -> Option<T> {
    result
        .inspect_err(|error| plain(&format!("{error:#}")))
        .ok()
}

/// The input is the manifest of a checkpoint whose other files are good: as it is, and with a seal
/// that fits where it can have one. Returns whether the input was of use.
///
/// # Panics
/// If a promise is broken.
pub fn manifest(data: &[u8], ground: &Ground) -> bool {
    if data.len() > MAX_LEN {
        return false;
    }
    ground.put(MANIFEST, data);
    printed(ground, data);
    if let Ok(Value::Object(object)) = serde_json::from_slice(data) {
        let sealed = serde_json::to_vec(&fitting(object)).expect("JSON");
        ground.put(MANIFEST, &sealed);
        printed(ground, &sealed);
    }
    ground.put(MANIFEST, &ground.manifest);
    true
}

/// The loaded state is the saved one, without scores if the manifest lists none, and another origin
/// has a note.
fn printed(ground: &Ground, manifest: &[u8]) {
    let (state, notes) = ground.load();
    let Some(mut state) = state else { return };
    let manifest: Value = serde_json::from_slice(manifest).expect("what was loaded can be read");
    if manifest["files"].get(SCORES).is_none() {
        assert!(state.scores.is_empty(), "scores that no manifest lists");
        state.scores.clone_from(&ground.state.scores);
    }
    assert_eq!(state, ground.state);
    let same = manifest["origin"] == serde_json::to_value(origin()).expect("JSON");
    assert_eq!(notes.is_empty(), same, "{notes:?}");
}

/// The object as the program would have written it, with its seal: keys in their order, so that
/// order is not a reason to refuse.
fn fitting(mut object: Map<String, Value>) -> Value {
    let mut ordered = take(
        &mut object,
        &[
            "schema",
            "run_id",
            "origin",
            "step",
            "tokens",
            "log_bytes",
            "log_blake3",
            "files",
            "seal",
        ],
    );
    if let Some(Value::Object(origin)) = ordered.get_mut("origin") {
        *origin = take(origin, &["commit", "machine"]);
    }
    if let Some(Value::Object(files)) = ordered.get_mut("files") {
        files.sort_keys();
        for facts in files.values_mut().filter_map(Value::as_object_mut) {
            *facts = take(facts, &["bytes", "blake3"]);
        }
    }
    let mut manifest = Value::Object(ordered);
    seal(&mut manifest);
    manifest
}

/// The named keys first, then the others.
fn take(from: &mut Map<String, Value>, keys: &[&str]) -> Map<String, Value> {
    let mut taken: Map<String, Value> = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), from.shift_remove(*key)?)))
        .collect();
    taken.append(from);
    taken
}

/// The input is a step log; checkpoints belong to parts of it. Returns whether the input was of
/// use.
///
/// # Panics
/// If a promise is broken.
pub fn log(data: &[u8], ground: &Ground) -> bool {
    if data.len() > MAX_LEN {
        return false;
    }
    let path = ground.directory.path().join(LOG_FILE);
    let before = std::fs::read(&path).expect("a log");
    let write = |bytes: &[u8]| std::fs::write(&path, bytes).expect("scratch files can be written");
    write(data);
    let ends: Vec<usize> = data
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at + 1)
        .collect();
    let lines = ends.len() as u64;
    let whole = refusal_is_plain(steplog::parse(data)).inspect(|steps| counted(steps));
    let read = steplog::read_whole(ground.directory.path(), lines).ok();
    assert_eq!(read, whole.filter(|_| data.len() as u64 <= 256 * lines));
    // Where a checkpoint would have been written, and where none ever is.
    let last = ends.last().copied().unwrap_or(0);
    let middle = ends.get(ends.len() / 2).copied().unwrap_or(0);
    for cut in [data.len(), last, middle, data.len() / 2, 0] {
        belongs(data, cut, ground);
        write(data);
    }
    write(&before);
    true
}

/// Steps are 1, 2, 3, ...
fn counted(steps: &[Step]) {
    assert!(
        steps
            .iter()
            .map(|step| step.step)
            .eq(1..=steps.len() as u64)
    );
}

/// A checkpoint whose part of the log is the first `cut` bytes resumes exactly if they
/// are a log of its steps.
#[expect(clippy::too_many_lines, reason = "one assertion per field")]
fn belongs(data: &[u8], cut: usize, ground: &Ground) {
    let (directory, part) = (ground.directory.path(), &data[..cut]);
    let printed = steplog::parse(part).ok();
    let steps = printed.as_ref().map_or(1, Vec::len) as u64;
    let tokens = printed
        .as_ref()
        .and_then(|printed| printed.last())
        .map_or(0, |last| last.tokens);
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let state = State {
        step: steps,
        tokens,
        log_bytes: cut as u64,
        log_blake3: hash(part),
        ..State::clone(&ground.state)
    };
    // Checkpoints of something else, tried once per input.
    let other = [
        State {
            log_blake3: hash(&[part, b"\n"].concat()),
            ..state.clone()
        },
        State {
            step: steps + 1,
            ..state.clone()
        },
        State {
            tokens: tokens.wrapping_add(1),
            ..state.clone()
        },
        State {
            log_bytes: data.len() as u64 + 1,
            ..state.clone()
        },
        State {
            log_bytes: u64::MAX,
            step: u64::MAX,
            ..state.clone()
        },
    ];
    for state in other.into_iter().filter(|_| cut == data.len()) {
        assert!(
            StepLog::resume(&Quick, directory, &state).is_err(),
            "{} bytes of {state:?}",
            data.len()
        );
    }
    let path = directory.join(LOG_FILE);
    let resumed = StepLog::resume(&Quick, directory, &state).ok();
    assert_eq!(
        resumed.is_some(),
        printed.is_some() && cut as u64 <= 256 * steps,
        "cut at {cut} of {}",
        data.len()
    );
    let left = std::fs::read(&path).expect("a log");
    let Some((mut log, found)) = resumed else {
        return assert_eq!(left, data, "a refused log is left unchanged");
    };
    assert_eq!(left, part);
    counted(&found);
    // It resumes, and new lines are read back.
    let mut all = found;
    for more in 1..=2 {
        let next = Step {
            step: steps + more,
            loss_nats: f64::MIN_POSITIVE / 3.0,
            lr: f64::MAX,
            grad_norm: -0.1,
            tokens: u64::MAX,
        };
        log.append(&next).expect("appended");
        all.push(next);
    }
    let (bytes, blake3) = log.sync().expect("written");
    let text = std::fs::read(&path).expect("a log");
    assert_eq!((text.len() as u64, hash(&text)), (bytes, blake3));
    assert_eq!(
        steplog::read_whole(directory, steps + 2).expect("a log"),
        all
    );
}

/// The input is a tensor file of a checkpoint, the model's if its first byte is even and the
/// optimizer's if it is odd, and the manifest fits it. Returns whether the input was of use.
///
/// # Panics
/// If a promise is broken.
pub fn tensors(data: &[u8], ground: &Ground) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    if data.len() > MAX_LEN {
        return false;
    }
    let read = refusal_is_plain(Weights::from_bytes(bytes));
    if let Some(read) = &read {
        assert!(read.count("") * 4 <= bytes.len() as u64);
        read.0.values().for_each(filled);
        // What can be read can be written, and is the same then.
        let again = Weights::from_bytes(&read.to_bytes().expect("values fill their shapes"))
            .expect("written here");
        assert_eq!((&again, again.digest()), (read, read.digest()));
    }
    let name = [MODEL, OPTIMIZER][usize::from(which % 2)];
    let good = std::fs::read(ground.place.join(name)).expect("a file");
    let mut manifest: Value = serde_json::from_slice(&ground.manifest).expect("a manifest");
    manifest["files"][name] =
        json!({ "bytes": bytes.len(), "blake3": blake3::hash(bytes).to_hex().to_string() });
    seal(&mut manifest);
    ground.put(name, bytes);
    ground.put(MANIFEST, &serde_json::to_vec(&manifest).expect("JSON"));
    let (state, notes) = ground.load();
    if let Some(state) = state {
        assert!(notes.is_empty(), "{notes:?}");
        let read = read.expect("what cannot be read is not loaded");
        let good = &ground.state;
        assert_eq!(
            (state.step, state.tokens, state.log_bytes, &state.log_blake3),
            (good.step, good.tokens, good.log_bytes, &good.log_blake3)
        );
        if name == MODEL {
            assert_eq!((&state.weights, &state.moments), (&read, &good.moments));
            assert_eq!(shapes(&state.weights), shapes(&weights(0)));
        } else {
            assert_eq!(state.weights, good.weights);
            second_moments(&state.moments, &read);
        }
    }
    ground.put(name, &good);
    ground.put(MANIFEST, &ground.manifest);
    true
}

/// A tensor's values are as many as its shape says, and finite.
fn filled(tensor: &HostTensor) {
    assert_eq!(tensor.shape.iter().product::<usize>(), tensor.values.len());
    assert!(tensor.values.iter().all(|value| value.is_finite()));
}

fn shapes(weights: &Weights) -> Vec<(&String, &Vec<usize>)> {
    weights
        .0
        .iter()
        .map(|(path, tensor)| (path, &tensor.shape))
        .collect()
}

/// Every tensor of the file is a moment of a parameter, each parameter has both or none, and no
/// mean of squares is negative.
fn second_moments(loaded: &[Weights; 2], file: &Weights) {
    let [first, second] = loaded;
    assert_eq!(first.0.len() + second.0.len(), file.0.len());
    assert_eq!(shapes(first), shapes(second));
    let all = moments(0);
    for (path, shape) in shapes(first) {
        assert_eq!(*shape, all[0].0[path].shape, "{path}");
        assert_eq!(
            (first.0[path].clone(), second.0[path].clone()),
            (at(file, "first", path), at(file, "second", path))
        );
    }
    assert!(
        second
            .0
            .values()
            .flat_map(|tensor| &tensor.values)
            .all(|value| *value >= 0.0)
    );
}

fn at(file: &Weights, which: &str, path: &str) -> HostTensor {
    file.0[&format!("{which}.{path}")].clone()
}
