//! Tries damaged and hostile checkpoints by the thousand: `mutate_checkpoints [N] [FIRST]`. Ends
//! with 1 on a panic or a silent load.

#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../tests/it/common/mod.rs"]
mod common;

use common::mutants::{Outcome, Target};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib / 1024)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<u64>().expect("a number"));
    let (count, first) = (
        arguments.next().unwrap_or(50_000),
        arguments.next().unwrap_or(0),
    );
    let target = Target::new();
    let mut outcomes: BTreeMap<&str, BTreeMap<Outcome, u64>> = BTreeMap::new();
    let (mut bad, mut slowest) = (0, Duration::ZERO);
    // The panics that are looked for need no backtrace each.
    std::panic::set_hook(Box::new(|_| {}));
    for number in first..first + count {
        let started = Instant::now();
        let (name, outcome) = target.attempt(number);
        slowest = slowest.max(started.elapsed());
        if matches!(outcome, Outcome::Panic | Outcome::SilentLoad) {
            bad += 1;
            println!("mutant {number} ({name}): {outcome:?}");
        }
        *outcomes
            .entry(name)
            .or_default()
            .entry(outcome)
            .or_default() += 1;
    }
    println!(
        "| mutation | refused | still says the same | loaded in silence | panics \
         |\n|---|---|---|---|---|"
    );
    for (name, by) in &outcomes {
        let count = |outcome| by.get(&outcome).copied().unwrap_or(0);
        let [refused, same, silent, panics] = [
            Outcome::Refused,
            Outcome::Same,
            Outcome::SilentLoad,
            Outcome::Panic,
        ]
        .map(count);
        println!("| {name} | {refused} | {same} | {silent} | {panics} |");
    }
    let memory = peak_mib().map_or_else(String::new, |mib| {
        format!(", peak memory of the process {mib} MiB")
    });
    println!(
        "\n{count} mutants, {bad} bad, the slowest took {} ms{memory}",
        slowest.as_millis()
    );
    if bad == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
