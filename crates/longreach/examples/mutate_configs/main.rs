//! `scripts/mutate-configs [N]`: N mutated configs, and a table of what became of them. Ends with 1
//! if any answer is wrong.

mod harness;

use harness::{Harness, Report};
use std::process::ExitCode;

/// One in this many is a file damaged as bytes; the others are mutated keys.
const DAMAGED: usize = 5;

/// Wrong answers that are shown in full.
const SHOWN: usize = 40;

fn main() -> ExitCode {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(20_000), |text| text.parse::<usize>());
    let Ok(count) = count else {
        eprintln!("usage: mutate-configs [NUMBER]");
        return ExitCode::from(2);
    };
    // Panics are counted; their texts come with the answers.
    std::panic::set_hook(Box::new(|_| {}));
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let harness = Harness::new(scratch.path());
    let (known, held) = harness::bases::known_and_held(&harness.bases, scratch.path());
    let mut report = Report::default();
    let elsewhere = harness::bases::ELSEWHERE;
    for key in known.difference(&held) {
        if elsewhere.contains(&key.as_str()) {
            continue;
        }
        report
            .violations
            .push(format!("no base holds `{key}`, so nothing mutates it"));
    }
    harness.keys(count - count / DAMAGED, &mut report);
    harness.texts(count / DAMAGED, &mut report);

    println!(
        "{} valid configs with {} different keys; answers of `longreach check`:\n",
        harness.bases.len(),
        held.len()
    );
    println!(
        "| mutation | tried | refused, key named | valid and accepted | wrong \
         |\n|---|---|---|---|---|"
    );
    let sum = report.sum();
    for (name, tally) in report
        .tallies
        .iter()
        .map(|(name, tally)| (*name, tally))
        .chain([("all", &sum)])
    {
        println!(
            "| {name} | {} | {} | {} | {} |",
            tally.tried, tally.refused, tally.accepted, tally.wrong
        );
    }
    println!("\nslowest answer: {:.2} s", report.slowest);
    for violation in report.violations.iter().take(SHOWN) {
        println!("\nwrong: {violation}");
    }
    if report.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
