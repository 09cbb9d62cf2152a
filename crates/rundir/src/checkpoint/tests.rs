//! Saving, verifying and falling back.

use super::*;
use crate::disk::System;
use crate::weights::HostTensor;

fn weights(seed: f32) -> Weights {
    let tensor = |shape: Vec<usize>, from: f32| {
        let count = shape.iter().product::<usize>();
        HostTensor {
            shape,
            values: (0..count).map(|i| from + i as f32 / 7.0).collect(),
        }
    };
    Weights(
        [
            ("a".to_owned(), tensor(vec![3, 2], seed)),
            ("b.c".to_owned(), tensor(vec![4], -seed)),
        ]
        .into(),
    )
}

fn state(step: u64) -> State {
    let flat = |weights: Weights| {
        Weights(
            weights
                .0
                .into_iter()
                .map(|(path, t)| {
                    (
                        path,
                        HostTensor {
                            shape: vec![t.values.len()],
                            ..t
                        },
                    )
                })
                .collect(),
        )
    };
    let mut moments = [0.5, 0.25].map(|more| flat(weights(step as f32 + more)));
    // Means of squares.
    moments[1]
        .0
        .values_mut()
        .flat_map(|tensor| &mut tensor.values)
        .for_each(|value| *value *= *value);
    State {
        step,
        tokens: 7 * step,
        weights: weights(step as f32),
        moments,
        log_bytes: 11 * step,
        log_blake3: "x".to_owned(),
        // A checkpoint with scores, and one of a training without.
        scores: format!("{{\"step\":{step}}}")
            .repeat(usize::from(step == 20))
            .into_bytes(),
    }
}

struct Seen {
    state: Option<State>,
    notes: Vec<String>,
}

fn look(directory: &Path, commit: &str, model: &Weights) -> Seen {
    let Found { state, notes } = latest(
        &System,
        directory,
        "run",
        &origin(commit),
        |_| Ok(Cow::Borrowed(model)),
        |_| Ok(()),
    );
    Seen {
        state: state.map(|(state, ())| state),
        notes,
    }
}

fn found(directory: &Path) -> Seen {
    look(directory, "a", &weights(0.0))
}

fn origin(commit: &str) -> Origin {
    Origin {
        commit: commit.to_owned(),
        machine: "m".to_owned(),
    }
}

fn save(directory: &Path, run_id: &str, state: &State) -> Result<()> {
    super::save(&System, directory, run_id, &origin("a"), state)
}

#[test]
fn what_is_saved_is_found_and_two_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    assert!(found(directory.path()).state.is_none());
    for step in [10, 20, 30] {
        save(directory.path(), "run", &state(step)).expect("saved");
        assert_eq!(found(directory.path()).state, Some(state(step)));
    }
    let kept: Vec<u64> = steps(&directory.path().join(CHECKPOINTS_DIR))
        .into_iter()
        .map(|(step, _)| step)
        .collect();
    assert_eq!(kept, [20, 30]);
    clear(&System, directory.path());
    assert!(found(directory.path()).state.is_none());
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    save(directory.path(), "run", &state(10)).expect("saved");
    save(directory.path(), "run", &state(20)).expect("saved");
    let newest = directory
        .path()
        .join(CHECKPOINTS_DIR)
        .join("step-000000020");
    for name in [MODEL, OPTIMIZER, SCORES, MANIFEST] {
        let path = newest.join(name);
        let whole = std::fs::read(&path).expect("written");
        for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
            let mut broken = whole.clone();
            broken[at] ^= 1 << (at % 8);
            for bytes in [broken, whole[..at].to_vec()] {
                if !newest.exists() {
                    save(directory.path(), "run", &state(20)).expect("saved");
                }
                std::fs::write(&path, bytes).expect("writable");
                let found = found(directory.path());
                // A changed space in the manifest changes nothing.
                let used = found.state.expect("the older one is there");
                assert!(
                    used == state(10) && found.notes.len() == 1
                        || used == state(20) && name == MANIFEST,
                    "{name} at {at}"
                );
                // A damaged one does not keep the place of a good one.
                assert_eq!(newest.exists(), used == state(20), "{name} at {at}");
            }
        }
        save(directory.path(), "run", &state(20)).expect("saved");
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
    let larger = Weights(
        weights(0.0)
            .0
            .into_iter()
            .chain([(
                "d".to_owned(),
                HostTensor {
                    shape: vec![1],
                    values: vec![0.0],
                },
            )])
            .collect(),
    );
    let misfit = look(directory.path(), "a", &larger);
    assert!(
        misfit.state.is_none()
            && misfit
                .notes
                .iter()
                .any(|note| note.contains("not those of the model"))
    );
}

#[test]
fn numbers_that_are_not_finite_are_never_loaded() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut bad = state(10);
    bad.weights.0.get_mut("a").expect("there").values[1] = f32::NAN;
    save(directory.path(), "run", &bad).expect("saved");
    let found = found(directory.path());
    assert!(
        found.state.is_none() && found.notes[0].contains("not finite"),
        "{:?}",
        found.notes
    );
}

#[test]
fn another_program_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    save(directory.path(), "run", &state(10)).expect("saved");
    assert!(found(directory.path()).notes.is_empty());
    let found = look(directory.path(), "b", &weights(0.0));
    assert_eq!(found.state, Some(state(10)));
    assert!(
        found.notes.len() == 1 && found.notes[0].contains("commit, a; this is b"),
        "{:?}",
        found.notes
    );
}

#[test]
#[cfg(unix)]
fn links_are_neither_followed_nor_written_through() {
    let directory = tempfile::tempdir().expect("a directory");
    let outside = tempfile::tempdir().expect("a directory");
    save(outside.path(), "run", &state(10)).expect("saved");
    let theirs = outside.path().join(CHECKPOINTS_DIR);
    std::os::unix::fs::symlink(&theirs, directory.path().join(CHECKPOINTS_DIR)).expect("a link");
    assert!(found(directory.path()).state.is_none());
    save(directory.path(), "run", &state(20)).expect_err("it is a link");
    clear(&System, directory.path());
    assert!(
        theirs.join("step-000000010").join(MANIFEST).exists()
            && !directory.path().join(CHECKPOINTS_DIR).exists()
    );
    // A step, then a file of it.
    std::fs::create_dir(directory.path().join(CHECKPOINTS_DIR)).expect("a directory");
    let step = directory
        .path()
        .join(CHECKPOINTS_DIR)
        .join("step-000000010");
    std::os::unix::fs::symlink(theirs.join("step-000000010"), &step).expect("a link");
    assert!(found(directory.path()).state.is_none());
    std::fs::remove_file(&step).expect("a link");
    save(directory.path(), "run", &state(10)).expect("saved");
    std::fs::remove_file(step.join(MODEL)).expect("there");
    std::os::unix::fs::symlink(theirs.join("step-000000010").join(MODEL), step.join(MODEL))
        .expect("a link");
    assert!(found(directory.path()).notes[0].contains("not a plain file"));
}

#[test]
fn what_cannot_be_gone_on_from_gives_way_to_the_one_before() {
    let directory = tempfile::tempdir().expect("a directory");
    for step in [10, 20] {
        save(directory.path(), "run", &state(step)).expect("saved");
    }
    let found = latest(
        &System,
        directory.path(),
        "run",
        &origin("a"),
        |_| Ok(Cow::Owned(weights(0.0))),
        |state| {
            ensure!(state.step < 20, "no log for it");
            Ok(state.step)
        },
    );
    assert_eq!(found.state, Some((state(10), 10)));
    assert!(
        found.notes[0].contains("no log for it"),
        "{:?}",
        found.notes
    );
}
