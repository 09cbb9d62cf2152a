//! A set of records of any size for measuring reports: `many OUT.jsonl COUNT ROOT...` repeats the
//! records under the roots, each time under other seeds and run ids and with losses moved by up to
//! a hundredth, until there are COUNT.

use records::record::{Metric, RunRecord};
use records::{find_records, write_jsonl};
use std::path::PathBuf;
use std::process::ExitCode;

/// The record under another seed: no two rounds give the same numbers, and no round changes a
/// status.
fn again(record: &RunRecord, round: u64) -> RunRecord {
    let mut other = record.clone();
    other.seed += 1000 * round;
    other.run_id = format!("{round:x}{}", record.run_id);
    let moved = |value: f64, salt: u64| {
        let share = ((round * 7919 + record.seed * 104_729 + salt) % 1000) as f64 / 1000.0;
        value * (1.0 + 0.01 * (share - 0.5))
    };
    for (salt, row) in other.evals.iter_mut().enumerate() {
        let losses = row
            .metrics
            .iter_mut()
            .filter(|(name, _)| name.contains("loss"));
        losses.for_each(|(_, Metric { value, .. })| *value = moved(*value, salt as u64));
        row.loss_by_position
            .iter_mut()
            .for_each(|bin| bin.loss_nats = moved(bin.loss_nats, salt as u64));
    }
    other
        .train
        .loss_curve
        .iter_mut()
        .for_each(|point| point.loss_nats = moved(point.loss_nats, point.step));
    other
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, count, roots @ ..] = arguments.as_slice() else {
        eprintln!("usage: many OUT.jsonl COUNT ROOT...");
        return ExitCode::from(2);
    };
    let Ok(count) = count.parse::<usize>() else {
        eprintln!("COUNT {count}: not a number");
        return ExitCode::from(2);
    };
    let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
    let found = match find_records(&roots) {
        Ok(found) if !found.records.is_empty() => found.records,
        Ok(_) => {
            eprintln!("no records under the roots");
            return ExitCode::FAILURE;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let rounds = (0..).flat_map(|round| {
        found.iter().map(move |record| {
            if round == 0 {
                record.clone()
            } else {
                again(record, round)
            }
        })
    });
    let records: Vec<RunRecord> = rounds.take(count).collect();
    match write_jsonl(out.as_ref(), &records) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
