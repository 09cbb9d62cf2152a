//! `[axes]`: quoted dotted keys with lists of values, expanded to one table per combination.
//!
//! ```toml
//! [axes]
//! "model.pe" = [{ kind = "rope" }, { kind = "alibi" }]
//! "train.lr" = [1e-3, 3e-4]
//! ```
//! The first axis varies slowest. A value that is a table replaces the table at its key. How
//! overrides apply to axes is described in [`super::overrides`].

use super::diagnostic::{
    Diagnostic, Place, Problem, describe_value, deserialize, normalise, quoted, type_name,
};
use super::key_path::{AXES, Blocked, KeyPath, set, set_below};
use super::labels::{canonical, label};
use super::origins::{Origins, Patch};
use super::source::{Source, count_values};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;
use toml::{Table, Value};

/// Top-level key that bounds the number of runs.
pub const MAX_RUNS: &str = "max_runs";

/// Number of runs an experiment may have unless it says otherwise.
pub const DEFAULT_MAX_RUNS: u64 = 1000;

/// Largest `max_runs`: a plan is held in memory.
const MOST_RUNS: i64 = 100_000;

/// Keys that no axis may vary.
const FIXED: [&str; 4] = ["seeds", "name", AXES, MAX_RUNS];

/// Whether no axis may vary a key.
fn is_fixed(key: &str) -> bool {
    FIXED.contains(&key.split('.').next().unwrap_or_default())
}

/// Values that all cells together may hold: a bound on memory, far above any real experiment.
const MAX_VALUES: usize = 4_000_000;

/// What a cell weighs besides its values, counted in values.
const CELL: usize = 16;

/// One axis's value in a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The axis's key as it was written, such as `model.pe`.
    pub key: String,
    /// The value as shown to people; unique within the axis.
    pub text: String,
    /// The value itself.
    pub value: Value,
}

/// One combination of the axes' values.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The whole configuration without `axes` and `max_runs`; `kind` comes first in every table.
    pub table: Table,
    /// One label for each axis, in the order of the file.
    pub labels: Vec<Label>,
    /// Where the values came from.
    pub origins: Origins,
}

impl Cell {
    /// Reads the configuration into a strict type.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, Diagnostic> {
        deserialize(&self.table, &self.origins)
    }

    /// A mistake in the value of `key`; `problem` continues the key's name: "must divide 64". Empty
    /// texts are left out.
    pub fn error(&self, key: &str, problem: &str, allowed: &str, help: &str) -> Diagnostic {
        let diagnostic = Diagnostic::at(&self.table, &self.origins, key, problem, allowed, help);
        let labels = self
            .labels
            .iter()
            .map(|label| format!("{} = {}", label.key, label.text))
            .collect::<Vec<_>>();
        // What no axis varies is wrong in every run.
        if is_fixed(key) || labels.len() <= diagnostic.notes.len() {
            diagnostic
        } else {
            diagnostic.with_note(format!("in the run with {}", labels.join(", ")))
        }
    }

    /// Origin of a key in one line, such as `x.toml:14` or `command line: train.lr=1e-3`.
    pub fn origin(&self, key: &str) -> String {
        self.origins
            .describe(&self.table, &KeyPath::parse(key).unwrap_or_default())
    }
}

/// An axis that has been checked.
struct Axis {
    key: String,
    path: KeyPath,
    values: Vec<Value>,
    labels: Vec<String>,
    patches: Vec<Arc<Patch>>,
}

/// Expands the axes. `seeds` is the number of runs per cell, which counts towards `max_runs`.
pub fn expand(source: &Source, seeds: usize) -> Result<Vec<Cell>, Diagnostic> {
    let mut base = source.table().clone();
    let max_runs = max_runs(source)?;
    let axes = read_axes(source, seeds.max(1), max_runs)?;
    base.remove(AXES);
    base.remove(MAX_RUNS);
    let cells = axes.iter().map(|axis| axis.values.len()).product::<usize>();
    check_size(source, &base, &axes, cells)?;

    let mut out = Vec::with_capacity(cells);
    for cell in 0..cells {
        let mut table = base.clone();
        let (mut labels, mut patches) = (Vec::new(), Vec::new());
        // The indices are the digits of the cell's number; the first axis is the highest.
        let mut block = cells;
        for axis in &axes {
            block /= axis.values.len().max(1);
            let index = cell / block.max(1) % axis.values.len().max(1);
            let (Some(value), Some(text), Some(patch)) = (
                axis.values.get(index),
                axis.labels.get(index),
                axis.patches.get(index),
            ) else {
                continue;
            };
            set(&mut table, axis.path.parts(), value.clone())
                .map_err(|blocked| axis_blocked(source, axis, &blocked))?;
            labels.push(Label {
                key: axis.key.clone(),
                text: text.clone(),
                value: value.clone(),
            });
            patches.push(patch.clone());
        }
        // Axes may have put `kind` behind keys that were there before.
        normalise(&mut table);
        out.push(Cell {
            table,
            labels,
            origins: source.origins().with_patches(patches),
        });
    }
    Ok(out)
}

impl Source {
    /// Takes out the axis that a mistake's key lies in and returns the key that it varies; `None`
    /// if the mistake is not that of one axis.
    pub fn drop_axis(&mut self, key: &str) -> Option<KeyPath> {
        let path = KeyPath::parse(key).ok()?;
        let [root, axis, ..] = path.parts() else {
            return None;
        };
        let axes = self.table.get_mut(AXES).filter(|_| root == AXES)?;
        axes.as_table_mut()?.remove(axis)?;
        Some(KeyPath::parse(axis).unwrap_or_else(|_| KeyPath::new([axis])))
    }
}

fn max_runs(source: &Source) -> Result<u64, Diagnostic> {
    match source.table().get(MAX_RUNS) {
        None => Ok(DEFAULT_MAX_RUNS),
        Some(Value::Integer(n)) if (1..=MOST_RUNS).contains(n) => Ok(n.unsigned_abs()),
        Some(_) => {
            let allowed = format!("a whole number from 1 to {MOST_RUNS}");
            Err(source.error(MAX_RUNS, &format!("must be {allowed}"), &allowed, ""))
        }
    }
}

/// The place of a key below `axes`.
fn axis_path(parts: &[&str]) -> KeyPath {
    KeyPath::new(std::iter::once(AXES).chain(parts.iter().copied()))
}

fn key_error(source: &Source, key: &str, problem: impl Into<Problem>) -> Diagnostic {
    let path = axis_path(&[key]);
    Diagnostic::new(
        source.origins().key_place(&source.origins().find(&path)),
        problem,
    )
    .with_key(path.to_string())
}

fn value_error(source: &Source, path: &KeyPath, problem: String) -> Diagnostic {
    let value = path
        .find(source.table())
        .map(describe_value)
        .unwrap_or_default();
    Diagnostic::new(
        source.origins().value_place(&source.origins().find(path)),
        problem,
    )
    .with_key(path.to_string())
    .with_value(value)
}

fn read_axes(source: &Source, seeds: usize, max_runs: u64) -> Result<Vec<Axis>, Diagnostic> {
    let table = match source.table().get(AXES) {
        None => &Table::new(),
        Some(Value::Table(table)) => table,
        Some(_) => {
            let problem = format!("`{AXES}` must be a table of lists");
            return Err(value_error(source, &axis_path(&[]), problem)
                .with_help("write [axes] and below it \"train.lr\" = [1e-3, 3e-4]"));
        }
    };
    let mut paths: Vec<(&String, KeyPath, &Vec<Value>)> = Vec::new();
    for (key, value) in table {
        let path = check_key(source, key)?;
        let array = check_list(source, key, value)?;
        for (earlier, other, _) in &paths {
            if *other == path {
                return Err(key_error(
                    source,
                    key,
                    format!("axis `{key}` is the same as axis `{earlier}`"),
                )
                .with_help("keep one of the two"));
            }
            // Axes are set in the order of the file: the later, outer one would win.
            if other.below(&path).is_some() {
                let problem =
                    format!("axis `{key}` would overwrite the values of axis `{earlier}`");
                return Err(key_error(source, key, problem).with_help(format!(
                    "put `{key}` before `{earlier}`, or keep one of the two"
                )));
            }
        }
        paths.push((key, path, array));
    }
    check_product(source, &paths, seeds, max_runs)?;
    let only_paths = paths
        .iter()
        .map(|(_, path, _)| path.clone())
        .collect::<Vec<_>>();
    source.check_deferred(&only_paths)?;
    paths
        .into_iter()
        .map(|(key, path, array)| finish(source, key, path, array))
        .collect()
}

fn check_key(source: &Source, key: &str) -> Result<KeyPath, Diagnostic> {
    let path = KeyPath::parse(key).map_err(|message| {
        let problem = format!("axis `{key}` is not a dotted key: {message}");
        key_error(source, key, problem).with_help("name the key that varies, such as \"train.lr\"")
    })?;
    match path.parts().first() {
        Some(first) if FIXED.contains(&first.as_str()) => {
            let help = match first.as_str() {
                "seeds" => "every cell is run with every seed of `seeds`",
                _ => "",
            };
            Err(key_error(source, key, format!("`{first}` cannot be an axis")).with_help(help))
        }
        _ => Ok(path),
    }
}

fn check_list<'a>(
    source: &Source,
    key: &str,
    value: &'a Value,
) -> Result<&'a Vec<Value>, Diagnostic> {
    let path = axis_path(&[key]);
    match value {
        Value::Array(array) if array.is_empty() => {
            let error = value_error(source, &path, format!("axis `{key}` has no values"));
            Err(error
                .with_allowed("a list of one value or more")
                .with_help("remove the axis or give it values"))
        }
        Value::Array(array) => Ok(array),
        other => {
            let help = match other {
                Value::Table(table) => {
                    let inner = table.keys().next().map_or("...", String::as_str);
                    format!(
                        "quote the whole key: {} = [...]",
                        quoted(&format!("{key}.{inner}"))
                    )
                }
                other => format!("write {} = [{}]", quoted(key), describe_value(other)),
            };
            let error = value_error(
                source,
                &path,
                format!("axis `{key}` must be a list, not {}", type_name(other)),
            );
            Err(error
                .with_allowed("a list of one value or more")
                .with_help(help))
        }
    }
}

fn check_product(
    source: &Source,
    axes: &[(&String, KeyPath, &Vec<Value>)],
    seeds: usize,
    max_runs: u64,
) -> Result<(), Diagnostic> {
    let lens = axes.iter().map(|(.., array)| array.len()).chain([seeds]);
    // The product of many axes may not fit even 128 bits.
    let runs = lens
        .clone()
        .try_fold(1_u128, |product, len| product.checked_mul(len as u128));
    if runs.is_some_and(|runs| runs <= u128::from(max_runs)) {
        return Ok(());
    }
    const SHOWN: usize = 6;
    let count = runs.map_or("over 10^38".to_owned(), |runs| runs.to_string());
    // The longest factor, if it came from an argument; the table otherwise.
    let factors = axes
        .iter()
        .map(|(key, _, array)| (array.len(), axis_path(&[key.as_str()])));
    let longest = factors
        .chain([(seeds, KeyPath::new(["seeds"]))])
        .max_by_key(|(len, _)| *len);
    let given = longest
        .map(|(_, path)| source.origins().find(&path))
        .filter(|found| found.exact && found.argument.is_some());
    let place = match given {
        Some(found) => source.origins().value_place(&found),
        None if axes.is_empty() => source.document().whole(),
        None => source
            .origins()
            .table_place(&source.origins().find(&axis_path(&[]))),
    };
    let mut factors = axes
        .iter()
        .take(SHOWN)
        .map(|(key, _, array)| format!("{} ({key})", array.len()))
        .collect::<Vec<_>>();
    factors.extend((axes.len() > SHOWN).then(|| format!("... ({} more axes)", axes.len() - SHOWN)));
    factors.push(format!("{seeds} (seeds)"));
    let error = Diagnostic::new(
        place,
        format!("{count} runs are more than `{MAX_RUNS}` = {max_runs}"),
    );
    let error = error
        .with_key(AXES)
        .with_note(factors.join(" x "))
        .with_allowed(format!("at most {max_runs} runs"));
    Err(error.with_help(format!(
        "shorten an axis, or set `{MAX_RUNS}` above the first table or by an override"
    )))
}

fn check_size(
    source: &Source,
    base: &Table,
    axes: &[Axis],
    cells: usize,
) -> Result<(), Diagnostic> {
    let own = base.values().map(count_values).sum::<usize>();
    // An upper bound: every cell is counted with the largest value of each axis.
    let largest = axes
        .iter()
        .map(|axis| axis.values.iter().map(count_values).max().unwrap_or(0))
        .sum::<usize>();
    if (own + largest + CELL).saturating_mul(cells) <= MAX_VALUES {
        return Ok(());
    }
    let problem = format!(
        "{cells} cells of {} values each are too many to hold",
        own + largest
    );
    Err(Diagnostic::new(source.document().whole(), problem)
        .with_key(AXES)
        .with_help("shorten an axis or the file"))
}

/// Applies the overrides inside the axis's key to its values, refuses repeated values and labels
/// the rest.
fn finish(source: &Source, key: &str, path: KeyPath, array: &[Value]) -> Result<Axis, Diagnostic> {
    let origins = source.origins();
    let fixed = source.fixed.get(key);
    let (mut values, mut patches) = (Vec::new(), Vec::new());
    for (i, value) in array.iter().enumerate() {
        let mut value = value.clone();
        // Places of the value in the list; below they stand for the axis's key.
        let mut spot = origins
            .base()
            .element(axis_path(&[key, &i.to_string()]).parts());
        let from = fixed.map_or(0, |fixed| fixed.from);
        for given in source.parsed_overrides(from) {
            let Some(below) = given.path.below(&path).filter(|below| !below.is_empty()) else {
                continue;
            };
            set_below(
                &mut value,
                given.path.parts(),
                path.parts().len(),
                given.value.clone(),
            )
            .map_err(|blocked| {
                let error = blocked.diagnose(&given.text, &given.path);
                error.with_note(format!(
                    "in value {} of {} of axis `{key}`",
                    i + 1,
                    array.len()
                ))
            })?;
            spot.plant(below, &given.text);
        }
        values.push(value);
        patches.push(Arc::new(Patch {
            path: path.clone(),
            axis: key.to_owned(),
            number: i + 1,
            count: array.len(),
            spot,
        }));
    }
    refuse_repeated(source, key, &path, &values)?;
    let labels = match (fixed, values.first()) {
        (Some(fixed), Some(value)) => {
            let mut all = fixed.values.clone();
            all[fixed.index] = value.clone();
            vec![label(&all).swap_remove(fixed.index)]
        }
        _ => label(&values),
    };
    Ok(Axis {
        key: key.to_owned(),
        path,
        values,
        labels,
        patches,
    })
}

/// Refuses an axis with two equal values.
fn refuse_repeated(
    source: &Source,
    key: &str,
    path: &KeyPath,
    values: &[Value],
) -> Result<(), Diagnostic> {
    let mut seen = HashMap::new();
    for (i, value) in values.iter().enumerate() {
        let mut text = String::new();
        canonical(value, &mut text);
        if let Some(first) = seen.insert(text, i) {
            let at = axis_path(&[key, &i.to_string()]);
            let error = value_error(
                source,
                &at,
                format!("axis `{key}` holds {} twice", describe_value(value)),
            )
            .with_value(describe_value(value));
            // Values that differ in the file may be equal once an override is applied to each.
            let inside = source
                .parsed_overrides(0)
                .find(|o| o.path.below(path).is_some_and(|below| !below.is_empty()));
            let note = inside
                .map(|o| {
                    format!(
                        "after the override {} is applied to every value of the axis",
                        o.text
                    )
                })
                .unwrap_or_default();
            return Err(error
                .with_note(format!("values {} and {} are equal", first + 1, i + 1))
                .with_note(note)
                .with_help("keep one of the two"));
        }
    }
    Ok(())
}

fn axis_blocked(source: &Source, axis: &Axis, blocked: &Blocked) -> Diagnostic {
    let inner = blocked.diagnose("", &axis.path);
    let error = key_error(source, &axis.key, inner.problem.clone())
        .with_help(inner.help.clone().unwrap_or_default());
    match error.place {
        Place::CommandLine { .. } => error,
        _ => error.with_note("an axis sets its key in the tables of the file"),
    }
}
