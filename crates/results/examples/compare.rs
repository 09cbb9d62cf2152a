//! Compares two directories of runs number by number: `compare A B TOLERANCE`. Ends with 1 if a
//! number differs by more than TOLERANCE relative to its size (to 1 for sizes below 1), or if a run
//! is on one side only.
//!
//! `scripts/device-check` uses it to hold a device against the CPU.

use longreach_results::{RunRecord, find_records};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Every number of a record that a device could get wrong, by name.
fn numbers(record: &RunRecord) -> BTreeMap<String, f64> {
    let curve = record.train.loss_curve.iter().map(|point| {
        (
            format!("training loss at step {}", point.step),
            point.loss_nats,
        )
    });
    let evals = record.evals.iter().flat_map(|row| {
        let metrics = row.metrics.iter().map(|(name, metric)| {
            (
                format!("{name} of {} at {}", row.variant, row.test_len),
                metric.value,
            )
        });
        metrics.collect::<Vec<_>>()
    });
    curve.chain(evals).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [a, b, tolerance] = arguments.as_slice() else {
        eprintln!("usage: compare A B TOLERANCE");
        return ExitCode::from(2);
    };
    let Ok(tolerance) = tolerance.parse::<f64>() else {
        eprintln!("TOLERANCE {tolerance}: not a number");
        return ExitCode::from(2);
    };
    let [a, b] = [a, b].map(|directory| {
        let found = find_records(&[PathBuf::from(directory)]).map_or_else(
            |error| {
                eprintln!("{error}");
                Vec::new()
            },
            |found| found.records,
        );
        found
            .into_iter()
            .map(|record| (record.run_id.clone(), record))
            .collect::<BTreeMap<_, _>>()
    });
    let mut worst = 0.0_f64;
    let mut compared = 0;
    let mut unpaired = a
        .keys()
        .filter(|id| !b.contains_key(*id))
        .chain(b.keys().filter(|id| !a.contains_key(*id)))
        .count();
    for (id, record) in &a {
        let Some(other) = b.get(id) else { continue };
        let (ours, theirs) = (numbers(record), numbers(other));
        let (mut largest, mut place) = (0.0_f64, "nothing");
        for (name, value) in &ours {
            let Some(their) = theirs.get(name) else {
                unpaired += 1;
                continue;
            };
            compared += 1;
            let difference = (value - their).abs() / value.abs().max(1.0);
            if difference >= largest {
                (largest, place) = (difference, name);
            }
        }
        let labels: Vec<&str> = record
            .labels
            .iter()
            .map(|label| label.text.as_str())
            .collect();
        println!(
            "{} seed {}: largest difference {largest:.1e} ({place})",
            labels.join(", "),
            record.seed
        );
        worst = worst.max(largest);
    }
    println!(
        "{compared} numbers of {} runs, largest relative difference {worst:.1e}, allowed \
         {tolerance:.1e}",
        a.len()
    );
    if unpaired > 0 {
        println!("{unpaired} runs or numbers are on one side only");
    }
    if compared > 0 && unpaired == 0 && worst <= tolerance {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
