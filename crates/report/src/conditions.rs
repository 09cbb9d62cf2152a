//! The conditions of a report: the facts that all its numbers depend on.

use records::analysis::setting::Setting;
use records::order;
use records::record::{RunRecord, RunStatus};
use records::text::{list, thousands};
use std::collections::BTreeSet;

/// Names and values of the facts.
#[expect(clippy::too_many_lines, reason = "one block per fact")]
pub(crate) fn facts(records: &[&RunRecord], settings: &[Setting<'_>]) -> Vec<(String, String)> {
    let each = |value: &dyn Fn(&RunRecord) -> Option<String>| -> String {
        let mut seen: Vec<String> = Vec::new();
        for text in records.iter().filter_map(|r| value(r)) {
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        list(&seen, 6)
    };
    let span = |value: &dyn Fn(&RunRecord) -> u64| -> String {
        let (low, high) = records
            .iter()
            .map(|r| value(r))
            .fold((u64::MAX, 0), |(a, b), v| (a.min(v), b.max(v)));
        if low == high {
            thousands(low)
        } else {
            format!("{} to {}", thousands(low), thousands(high))
        }
    };
    let experiments: BTreeSet<&String> = records.iter().map(|r| &r.experiment).collect();
    let mut experiments: Vec<String> = experiments.into_iter().cloned().collect();
    experiments.sort_by(|a, b| order::names(a, b));
    let mut seeds: Vec<u64> = records.iter().map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let names = settings.iter().flat_map(|s| &s.methods).map(|m| &m.title);
    let names: BTreeSet<&String> = names.collect();
    let methods = match settings.len() {
        0 | 1 => format!("{} methods", names.len()),
        count => format!("{} methods in {count} settings", names.len()),
    };
    let runs = records.iter().filter(|r| r.evaluation_of.is_none()).count();
    let later = records.len() - runs;
    let later = if later == 0 {
        String::new()
    } else {
        format!(", {later} later evaluations")
    };
    let diverged = records
        .iter()
        .filter(|r| r.status == RunStatus::Diverged)
        .count();
    let unsealed = records.iter().filter(|r| r.seal.is_none()).count();
    let seals = match unsealed {
        0 => String::new(),
        n => format!(
            "{n} of {} records have none, so that an edit would not show",
            records.len()
        ),
    };
    let corpus = each(&|r| {
        let c = r.task.corpus.as_ref()?;
        Some(format!(
            "{}: {} file{}, {} bytes to train on, {} to test on, blake3 {}",
            c.source,
            thousands(c.files as u64),
            if c.files == 1 { "" } else { "s" },
            thousands(c.train_bytes),
            thousands(c.valid_bytes),
            c.blake3
        ))
    });
    let scored = each(&|r| {
        let scored = r.task.scored?;
        let tokens = thousands(scored.tokens);
        let bytes = match scored.bytes {
            Some(bytes) if bytes != scored.tokens => format!(" ({} bytes)", thousands(bytes)),
            _ => String::new(),
        };
        let unit = &r.task.unit;
        Some(format!(
            "{tokens} {unit}{bytes} of the validation split, each once at every length"
        ))
    });
    let with_scored = records.iter().filter(|r| r.task.scored.is_some());
    let kinds: BTreeSet<&String> = with_scored.map(|r| &r.task.kind).collect();
    let mut of_kinds = records.iter().filter(|r| kinds.contains(&r.task.kind));
    let scored = match of_kinds.any(|r| r.task.scored.is_none()) {
        true => format!("{scored}; not recorded for the other runs"),
        false => scored,
    };
    let rows = [
        ("experiments", list(&experiments, 6)),
        (
            "runs",
            format!("{runs} ({diverged} diverged), {methods}{later}"),
        ),
        ("seeds", list(&seeds, 12)),
        ("steps", span(&|r| r.train.steps)),
        ("tokens trained on", span(&|r| r.train.tokens)),
        ("parameters", span(&|r| r.model.parameters)),
        ("corpus", corpus),
        ("scored text", scored),
        ("seals", seals),
        ("device", each(&|r| Some(r.environment.device.clone()))),
        (
            "trained together",
            each(&|r| Some(format!("up to {} runs", r.environment.runs_together?))),
        ),
        ("commit", each(&|r| Some(r.environment.commit.clone()))),
        (
            "version",
            each(&|r| {
                Some(format!(
                    "longreach {}, burn {}",
                    r.environment.version, r.environment.burn
                ))
            }),
        ),
    ];
    rows.into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| (name.into(), text))
        .collect()
}
