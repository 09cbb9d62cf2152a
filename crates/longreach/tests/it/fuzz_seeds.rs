//! The seeds of the fuzz targets `config` and `overrides`, among them every input that ever
//! crashed, without a fuzzer.

#[path = "../../../../fuzz/src/plans.rs"]
#[allow(
    dead_code,
    reason = "the made-up Cargo home is for speed, which seeds do not need"
)]
mod plans;

use plans::Ground;

/// Replays every seed of a target, and counts those of use.
fn replay(target: &str, check: fn(&[u8], &Ground) -> bool) -> usize {
    let ground = Ground::new(&format!("{target}-seeds"));
    let seeds = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut paths = std::fs::read_dir(seeds)
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
fn configurations_are_planned_or_refused() {
    let used = replay("config", plans::config);
    assert!(used >= 30, "{used} seeds of use");
}

#[test]
fn overrides_are_applied_or_refused() {
    let used = replay("overrides", plans::overrides);
    assert!(used >= 40, "{used} seeds of use");
}
