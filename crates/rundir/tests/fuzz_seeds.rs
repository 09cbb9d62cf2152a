//! The seeds of the fuzz targets `manifest`, `steplog` and `checkpoint`, among them every input
//! that ever crashed, without a fuzzer.

#[path = "../../../fuzz/src/checkpoints.rs"]
mod checkpoints;

use checkpoints::{Ground, log, manifest, tensors};
use std::path::PathBuf;

fn seeds(target: &str) -> PathBuf {
    PathBuf::from(format!(
        "{}/../../fuzz/seeds/{target}",
        env!("CARGO_MANIFEST_DIR")
    ))
}

/// Replays every seed of a target, and counts those of use.
fn replay(target: &str, check: fn(&[u8], &Ground) -> bool) -> usize {
    let ground = Ground::new();
    let mut paths = std::fs::read_dir(seeds(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect::<Vec<_>>();
    paths.sort();
    let replayed = paths.iter().map(|path| {
        println!("{}", path.display());
        usize::from(check(&std::fs::read(path).unwrap(), &ground))
    });
    replayed.sum()
}

#[test]
fn manifests_are_loaded_right_or_passed_over() {
    let used = replay("manifest", manifest);
    assert!(used >= 15, "{used} seeds of use");
}

#[test]
fn logs_are_gone_on_with_or_refused() {
    let used = replay("steplog", log);
    assert!(used >= 15, "{used} seeds of use");
}

#[test]
fn tensors_are_the_models_or_passed_over() {
    let used = replay("checkpoint", tensors);
    assert!(used >= 15, "{used} seeds of use");
}

/// Writes the seeds that come of a good checkpoint; the others are written by hand or were found.
#[test]
#[ignore = "writes files of the repository"]
fn write_good_seeds() {
    for (target, name, bytes) in Ground::new().good() {
        std::fs::write(seeds(target).join(name), bytes).unwrap();
    }
}
