//! A run without a model: the protocol of a worker on states that are a function of their step.

pub mod mutants;

use longreach_rundir::checkpoint::{self, CHECKPOINTS_DIR, Found, Origin, State};
use longreach_rundir::steplog::{Step, StepLog};
use longreach_rundir::{Disk, HostTensor, Op, Weights};
use std::path::{Path, PathBuf};

pub const RUN_ID: &str = "run";
pub const STEPS: u64 = 12;
pub const EVERY: u64 = 4;
pub const RECORD: &str = "record.json";
pub const WEIGHTS: &str = "weights.safetensors";

/// The file system, but for syncing, which takes time and changes nothing a test can see.
pub struct Quick;

impl Disk for Quick {
    fn apply(&self, op: &Op<'_>) -> std::io::Result<()> {
        match op {
            Op::Sync(_) | Op::SyncDir(_) => Ok(()),
            op => longreach_rundir::System.apply(op),
        }
    }
}

pub fn origin() -> Origin {
    Origin {
        commit: "c".to_owned(),
        machine: "m".to_owned(),
    }
}

pub fn weights(step: u64) -> Weights {
    let tensor = |shape: Vec<usize>| {
        let count = shape.iter().product::<usize>();
        HostTensor {
            shape,
            values: (0..count).map(|i| step as f32 + i as f32 / 7.0).collect(),
        }
    };
    Weights(
        [
            ("a".to_owned(), tensor(vec![3, 2])),
            ("b.c".to_owned(), tensor(vec![4])),
        ]
        .into(),
    )
}

pub fn moments(step: u64) -> [Weights; 2] {
    let flat = |more: f32| {
        let flat = |tensor: HostTensor| HostTensor {
            shape: vec![tensor.values.len()],
            values: tensor.values.iter().map(|value| value + more).collect(),
        };
        Weights(
            weights(step)
                .0
                .into_iter()
                .map(|(path, tensor)| (path, flat(tensor)))
                .collect(),
        )
    };
    [flat(0.5), flat(0.25)]
}

pub fn step(step: u64) -> Step {
    Step {
        step,
        loss_nats: 3.0 / step as f64,
        lr: 1e-3,
        grad_norm: 1.0 + step as f64,
        tokens: 7 * step,
    }
}

/// The newest state to go on from, with its log.
pub fn resume<'a>(disk: &'a dyn Disk, directory: &Path) -> Found<StepLog<'a>> {
    let model = |_| Ok(std::borrow::Cow::Owned(weights(0)));
    checkpoint::latest(disk, directory, RUN_ID, &origin(), model, |state| {
        Ok(StepLog::resume(disk, directory, state)?.0)
    })
}

/// Saves what a step left.
pub fn save(
    disk: &dyn Disk,
    directory: &Path,
    log: &mut StepLog<'_>,
    step: u64,
) -> anyhow::Result<State> {
    let (log_bytes, log_blake3) = log.sync()?;
    let state = State {
        step,
        tokens: 7 * step,
        weights: weights(step),
        moments: moments(step),
        log_bytes,
        log_blake3,
        scores: format!("[{step}]").into_bytes(),
    };
    checkpoint::save(disk, directory, RUN_ID, &origin(), &state)?;
    Ok(state)
}

/// Trains to the end from whatever is there, as a worker does; `saved` hears of every commit.
pub fn train(disk: &dyn Disk, directory: &Path, saved: &mut dyn FnMut(u64)) -> anyhow::Result<u64> {
    disk.create_dirs(directory)?;
    disk.remove_scratch(directory);
    if directory.join(RECORD).exists() {
        checkpoint::clear(disk, directory);
        return Ok(STEPS);
    }
    let (first, mut log) = match resume(disk, directory).state {
        Some((state, log)) => {
            assert_eq!(
                (&state.weights, &state.moments, state.tokens),
                (&weights(state.step), &moments(state.step), 7 * state.step)
            );
            (state.step, log)
        }
        None => (0, StepLog::create(disk, directory)?),
    };
    for done in first + 1..=STEPS {
        log.append(&step(done))?;
        if done % EVERY == 0 {
            save(disk, directory, &mut log, done)?;
            saved(done);
        }
    }
    weights(STEPS).save(disk, &directory.join(WEIGHTS))?;
    disk.write_whole(&directory.join(RECORD), b"the numbers")?;
    saved(u64::MAX);
    checkpoint::clear(disk, directory);
    Ok(first)
}

/// All files below a directory with their bytes.
pub fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
        {
            if entry.is_dir() {
                collect(&entry, found)
            } else {
                found.push(entry)
            }
        }
    }
    let mut paths = Vec::new();
    collect(directory, &mut paths);
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            (
                path.strip_prefix(directory).expect("below").to_owned(),
                std::fs::read(&path).expect("a file"),
            )
        })
        .collect()
}

/// What a calm run leaves.
pub fn calm() -> Vec<(PathBuf, Vec<u8>)> {
    let directory = tempfile::tempdir().expect("a directory");
    train(&Quick, directory.path(), &mut |_| ()).expect("a calm run");
    let files = files(directory.path());
    let names: Vec<String> = files
        .iter()
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert_eq!(names, [RECORD, "steps.jsonl", WEIGHTS]);
    assert!(!directory.path().join(CHECKPOINTS_DIR).exists());
    files
}
