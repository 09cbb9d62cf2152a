//! `docs/tasks.md`: every task with its rule, its keys, its unit, its first metric and examples.

use crate::keys_of_kinds::{KeysOfKinds, NOT_SET, markdown};
use crate::markdown::GENERATED;
use crate::sources::{Sources, bug};
use experiment::plan::surroundings::Surroundings;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use support::exit::Failure;
use tasks::{Rows, TaskConfig};
use tiny_transformer::Mask;

/// The page.
///
/// # Errors
///
/// If the sources cannot be read or say too little, or if a task cannot be built.
pub fn page() -> Result<String, Failure> {
    let sources = Sources::of("tasks")?;
    let keys = KeysOfKinds::new(&sources, "TaskConfig");
    let mut page = format!(
        "# Tasks\n\n{GENERATED}\n\nA config chooses a task with `[task]` and `kind`. All other keys \
         may be left out; each task\nlists its own. The unit of lengths and the first metric of a \
         report are those of the\ndefaults. *Held out* says how test questions are kept out of \
         training\n([evaluation](evaluation.md#what-is-measured)): by choices, a fixed quarter of \
         the draws that\nmake a question; by hash, a quarter of the questions by their hash, where \
         different draws can\nmake the same question.\n"
    );
    for info in TaskConfig::kinds() {
        let config = TaskConfig::default_of(info.kind)
            .ok_or_else(|| bug(format!("`{}` has no defaults", info.kind)))?;
        let rows = keys.rows(info.kind, Some(&config))?;
        let scored = scored(&config)?;
        let mut table = toml::Table::try_from(config).map_err(Failure::bug)?;
        // What stands in for a key that is not set is no default to write.
        table.retain(|key, _| {
            !rows
                .iter()
                .any(|row| row.key == *key && row.default == NOT_SET)
        });
        let toml = toml::to_string(&BTreeMap::from([("task", table)])).map_err(Failure::bug)?;
        let table = markdown(rows);
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n{}\n\n{scored}\n\n```toml\n{}\n```\n\n{table}\nExamples:\n\n```text\n{}\n```\n",
            info.kind,
            info.summary,
            keys.module(info.kind)?.join("\n\n"),
            toml.trim(),
            info.examples.join("\n")
        );
    }
    Ok(page)
}

/// What a length counts, and what a report shows first.
fn scored(config: &TaskConfig) -> Result<String, Failure> {
    // A length that every task can have with its defaults.
    const LENGTH: usize = 64;
    let folder = tempfile::tempdir().map_err(Failure::resources)?;
    // What the defaults of `jsonl` read.
    for (file, symbol) in [("train.jsonl", "a"), ("test.jsonl", "b")] {
        let prompt = symbol.repeat(LENGTH);
        let line = format!("{{\"prompt\": \"{prompt}\", \"answer\": \"a\"}}\n");
        fs_err::write(folder.path().join(file), line).map_err(Failure::resources)?;
    }
    let mask = match config.kind() {
        "masked_text" => Mask::Bidirectional,
        _ => Mask::Causal,
    };
    let surroundings = Surroundings::of(folder.path());
    let task = surroundings
        .build(config, LENGTH, &[LENGTH], 0, Rows::Test, mask)
        .map_err(|error| bug(format!("`{}`: {error}", config.kind())))?;
    let (unit, metric) = (task.unit(), task.primary_metric());
    Ok(format!("A length counts {unit}. First metric: `{metric}`."))
}
