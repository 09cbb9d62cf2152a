//! Checks of names, seeds, lengths and tables.

use super::ranges::whole;
use super::sections::Experiment;
use crate::spec::{LONGEST, TestLen};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use config::key_path::KeyPath;
use std::collections::BTreeSet;
use toml::Value;

/// Longest sequence, in tokens: positions are exact in f32 up to here.
pub(super) const MAX_LENGTH: usize = 1 << 24;

/// Most tokens of a batch, in training and in evaluation.
pub(super) const MAX_BATCH_TOKENS: usize = 1 << 24;

/// Tables that are read as lists of their values if they are written as lists.
const TABLES: [&str; 6] = [
    "model",
    "train",
    "train.adamw",
    "train.stop",
    "eval",
    "report",
];

/// Refuses a list where a table belongs: it would be read as the table's values in their order.
pub(super) fn check_tables(cell: &Cell) -> Result<(), Diagnostic> {
    let variants = KeyPath::new(["eval", "variants"]);
    let count = variants
        .find(&cell.table)
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let elements = (0..count).map(|index| variants.child(index.to_string()));
    let tables = TABLES
        .iter()
        .map(|key| KeyPath::parse(key).unwrap_or_default());
    match tables
        .chain(elements)
        .find(|path| path.find(&cell.table).is_some_and(Value::is_array))
    {
        Some(path) => Err(cell.error(
            &path.to_string(),
            "must be a table, not a list",
            "a table",
            "write { key = value, ... }",
        )),
        None => Ok(()),
    }
}

/// Names become directories and file names on every system.
pub(super) fn check_name(cell: &Cell, key: &str, name: &str) -> Result<(), Diagnostic> {
    // Lower case only, because some file systems do not tell cases apart.
    let first = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
    // Windows has devices under these names, with any ending, and drops a dot at the end.
    let stem = name.split('.').next().unwrap_or("");
    let numbered = stem
        .strip_prefix("com")
        .or_else(|| stem.strip_prefix("lpt"));
    let device = matches!(stem, "con" | "prn" | "aux" | "nul")
        || numbered.is_some_and(|n| n.len() == 1 && n.bytes().all(|b| b.is_ascii_digit()));
    if first && rest && name.len() <= 100 && !name.contains("..") && !name.ends_with('.') && !device
    {
        return Ok(());
    }
    let allowed = "1 to 100 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter or a digit, \
                   not ending in a dot, no reserved name such as `con`";
    Err(cell.error(
        key,
        "must be usable as the name of directories and files",
        allowed,
        "choose a short lower-case name such as \"theta-base\"",
    ))
}

fn check_title(cell: &Cell, title: Option<&str>) -> Result<(), Diagnostic> {
    const LONGEST: usize = 200;
    match title {
        Some(title) if title.trim().is_empty() || title.chars().count() > LONGEST => {
            let allowed = format!("a text of 1 to {LONGEST} characters");
            Err(cell.error(
                "title",
                "must be a heading for the report",
                &allowed,
                "leave it out for the name",
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses a list of seeds without one or with one twice. `example`: seeds to write instead.
pub(super) fn check_seeds(
    cell: &Cell,
    key: &str,
    seeds: &[u64],
    example: &str,
) -> Result<(), Diagnostic> {
    if seeds.is_empty() {
        return Err(cell.error(
            key,
            "is empty, so there is nothing to run",
            "one whole number or more",
            &format!("write {key} = {example}"),
        ));
    }
    let mut seen = BTreeSet::new();
    match seeds.iter().position(|seed| !seen.insert(*seed)) {
        Some(index) => Err(cell.error(
            &format!("{key}.{index}"),
            "is listed twice",
            "different seeds",
            "remove one of the two",
        )),
        None => Ok(()),
    }
}

pub(super) fn check_lengths(cell: &Cell, written: &Experiment) -> Result<(), Diagnostic> {
    written.train.check_ranges(cell)?;
    written.eval.check_ranges(cell)?;
    let test_lens = &written.eval.test_lens;
    if test_lens.is_empty() || test_lens.len() > 1000 {
        let help = "write eval.test_lens = [64, 128, 256]";
        let problem = "must name the lengths to test at";
        return Err(cell.error("eval.test_lens", problem, "1 to 1000 lengths", help));
    }
    let mut seen = BTreeSet::new();
    for (index, test_len) in test_lens.written().iter().enumerate() {
        let key = format!("eval.test_lens.{index}");
        if let Some((problem, allowed, help)) = test_len.mistake() {
            return Err(cell.error(&key, problem, &allowed, &help));
        }
        let help = "lengths are in the task's unit, such as 256";
        whole(cell, &key, test_len.to() as u64, 1, LONGEST, help)?;
        if !seen.insert(test_len.to()) {
            let twice = |other: &TestLen| other == test_len;
            let (problem, allowed) = match test_lens.written()[..index].iter().any(twice) {
                true => ("is listed twice", "different lengths"),
                false => (
                    "ends where another one does, and a table has one column for both",
                    "different lengths, and ranges with different upper ends",
                ),
            };
            return Err(cell.error(&key, problem, allowed, "remove one of the two"));
        }
    }
    let train_len = written.train.train_len as u64;
    let min_len = written.train.min_len as u64;
    let help = "it is the shortest length of `length = \"uniform\"` and `\"mixed\"`";
    whole(cell, "train.min_len", min_len, 1, train_len, help)
}

/// Checks what names and numbers the runs of an experiment.
pub(super) fn check_names(cell: &Cell, written: &Experiment) -> Result<(), Diagnostic> {
    check_name(cell, "name", &written.name)?;
    check_title(cell, written.title.as_deref())?;
    check_seeds(cell, "seeds", &written.seeds, "[0, 1, 2]")
}
