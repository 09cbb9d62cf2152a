//! Every key of a configuration, from the declarations of its tables. `docs/config.md`, the JSON
//! schema and completions are made of this list.

use super::model::ModelSection;
use super::sections::{EvalSection, Experiment, ReportSection, SelectSection, VariantSection};
use crate::spec::train::{AdamWConfig, StageSection, StopSpec, TrainSection};
use config::diagnostic::{Diagnostic, Problem, TableName};
pub use config::key::{Key, Kind};
use config::key_path::KeyPath;
use std::sync::LazyLock;

/// Every key, in the order of a file.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    [
        Experiment::KEYS,
        SelectSection::KEYS,
        EXPANDED,
        ModelSection::KEYS,
        TrainSection::KEYS,
        StageSection::KEYS,
        StopSpec::KEYS,
        AdamWConfig::KEYS,
        EvalSection::KEYS,
        VariantSection::KEYS,
        ReportSection::KEYS,
    ]
    .concat()
});

/// Adds the keys that a spec leaves out at their default to the table of a section.
pub fn add_defaults(section: &str, table: &mut serde_json::Map<String, serde_json::Value>) {
    for key in KEYS.iter() {
        let own = key
            .path
            .strip_prefix(section)
            .and_then(|rest| rest.strip_prefix('.'))
            .filter(|own| !own.contains('.') && !table.contains_key(*own));
        if let Some(own) = own
            && let Some(default) = key.default_value()
        {
            table.insert(own.to_owned(), serde_json::json!(default));
        }
    }
}

/// The key at a path of a config, where a number is a place in a list.
pub(super) fn key_at(path: &KeyPath) -> Option<&'static Key> {
    let is_at = |key: &&Key| {
        let known: Vec<&str> = key.path.split('.').collect();
        let fits = |(known, part): (&&str, &String)| {
            known == part || *known == "N" && part.parse::<usize>().is_ok()
        };
        known.len() == path.parts().len() && known.iter().zip(path.parts()).all(fits)
    };
    KEYS.iter().find(is_at)
}

/// An error of a value of another type with the range of its key, where a number is allowed there.
pub(super) fn with_range(error: Diagnostic) -> Diagnostic {
    let Problem::WrongType {
        key: TableName::Key(path),
        ..
    } = &error.problem
    else {
        return error;
    };
    match key_at(path).and_then(|key| key.kind.range()) {
        Some(range) => error.with_allowed(range),
        None => error,
    }
}

/// Keys that are read before the tables are: what they hold becomes cells.
const EXPANDED: &[Key] = &[
    Key {
        path: "max_runs",
        kind: Kind::Whole(1, 100_000),
        default: Some("1000"),
        example: "5000",
        meaning: "Most runs that `[axes]` and `seeds` may make together.",
    },
    Key {
        path: "axes",
        kind: Kind::Axes,
        default: Some("none"),
        example: r#"{ "train.lr" = [1e-3, 3e-4] }"#,
        meaning: "Lists of values by quoted dotted key; every combination is a run for each seed.",
    },
];
