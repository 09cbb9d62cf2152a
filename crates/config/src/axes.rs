//! `[axes]`: quoted dotted keys with lists of values, expanded to one table per combination.
//!
//! ```toml
//! [axes]
//! "model.pe" = [{ kind = "rope" }, { kind = "alibi" }]
//! "train.lr" = [1e-3, 3e-4]
//! ```
//! The first axis varies slowest. A value that is a table replaces the table at its key. An axis of
//! several keys varies them together (`zipped.rs`). How overrides apply to axes is described
//! in [`super::overrides`].

pub use super::key_path::{MAX_RUNS, OVER, SELECT};
pub use super::labels::Label;

use super::axis::{Axis, CHOICES, Entry, Family, Lists, METHODS, is_fixed};
use super::diagnostic::{Diagnostic, deserialize, normalise};

use super::key_path::{AXES, KeyPath, set};
use super::origins::Origins;
use super::source::{Source, count_values};
use super::zipped;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Number of runs an experiment may have unless it says otherwise.
pub const DEFAULT_MAX_RUNS: u64 = 1000;

/// Largest `max_runs`: a plan is held in memory.
const MOST_RUNS: i64 = 100_000;

/// Values that all cells together may hold: a bound on memory, far above any real experiment.
const MAX_VALUES: usize = 4_000_000;

/// What a cell weighs besides its values, counted in values.
const CELL: usize = 16;

/// One combination of the axes' values.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The whole configuration without `axes` and `max_runs`; `kind` comes first in every table.
    pub table: Table,
    /// One label or more for each axis, in the order of the file.
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

/// Expands the axes. `runs` is the number of runs per cell, which counts towards `max_runs`.
pub fn expand(source: &Source, runs: usize) -> Result<Vec<Cell>, Diagnostic> {
    let mut base = source.table().clone();
    let max_runs = max_runs(source)?;
    let lists = METHODS.lists(source)?;
    check_product(source, &lists, runs.max(1), max_runs)?;
    let paths: Vec<KeyPath> = lists
        .iter()
        .flat_map(|(_, paths, _)| paths.clone())
        .collect();
    source.check_deferred(&paths)?;
    let axes = finish(source, METHODS, lists)?;
    base.remove(AXES);
    base.remove(MAX_RUNS);
    check_size(source, &base, &axes, combinations(&axes))?;
    let whole = Cell {
        table: base,
        labels: Vec::new(),
        origins: source.origins().clone(),
    };
    combine(source, METHODS, &whole, &axes)
}

/// What `select.over` tries in every cell.
pub struct Choices(Vec<Axis>);

impl Choices {
    /// Reads `select.over`; `None` where there is none.
    ///
    /// # Errors
    ///
    /// A key that an axis varies, and all that is wrong with an axis.
    pub fn read(source: &Source) -> Result<Option<Self>, Diagnostic> {
        if CHOICES.table(source)?.is_none() {
            return Ok(None);
        }
        let axes = source.get(AXES).and_then(Value::as_table);
        let axes: Vec<KeyPath> = axes
            .into_iter()
            .flat_map(|axes| axes.keys().flat_map(|key| zipped::known_keys(key)))
            .collect();
        let lists = CHOICES.lists(source)?;
        for (key, paths, _) in &lists {
            let taken = axes
                .iter()
                .find(|axis| paths.iter().any(|path| axis.below(path).is_some()));
            if let Some(axis) = taken {
                let problem = format!("`{key}` is chosen by [select], and `{axis}` is an axis");
                return Err(CHOICES
                    .key_error(source, key, problem)
                    .with_allowed("keys that no axis varies")
                    .with_help("take it out of one of the two"));
            }
        }
        Ok(Some(Self(finish(source, CHOICES, lists)?)))
    }

    /// How many combinations there are.
    pub fn count(&self) -> usize {
        combinations(&self.0)
    }

    /// The cell under every combination: the values that were tried, and the configuration with
    /// them under the labels of the cell.
    ///
    /// # Errors
    ///
    /// If a key cannot be set in the cell's tables.
    pub fn of(&self, source: &Source, cell: &Cell) -> Result<Vec<(Vec<Label>, Cell)>, Diagnostic> {
        let unlabelled = Cell {
            labels: Vec::new(),
            ..cell.clone()
        };
        let tried = combine(source, CHOICES, &unlabelled, &self.0)?;
        let split = tried.into_iter().map(|mut tried| {
            let values = std::mem::replace(&mut tried.labels, cell.labels.clone());
            (values, tried)
        });
        Ok(split.collect())
    }
}

fn finish(source: &Source, family: Family, lists: Lists<'_>) -> Result<Vec<Axis>, Diagnostic> {
    let axis =
        |(key, paths, array): (&String, _, &Vec<Value>)| family.finish(source, key, paths, array);
    lists.into_iter().map(axis).collect()
}

fn combinations(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.entries.len()).product()
}

/// A cell under every combination of axes.
fn combine(
    source: &Source,
    family: Family,
    base: &Cell,
    axes: &[Axis],
) -> Result<Vec<Cell>, Diagnostic> {
    let cells = combinations(axes);
    let mut out = Vec::with_capacity(cells);
    for number in 0..cells {
        let mut cell = base.clone();
        // The indices are the digits of the cell's number; the first axis is the highest.
        let mut block = cells;
        for axis in axes {
            block /= axis.entries.len().max(1);
            let index = number / block.max(1) % axis.entries.len().max(1);
            let Some(entry) = axis.entries.get(index) else {
                continue;
            };
            for (path, value) in axis.paths.iter().zip(&entry.values) {
                set(&mut cell.table, path.parts(), value.clone())
                    .map_err(|blocked| family.blocked(source, axis, path, &blocked))?;
            }
            cell.labels.extend(entry.labels.iter().cloned());
            cell.origins.patches.extend(entry.patches.iter().cloned());
        }
        // Axes may have put `kind` behind keys that were there before.
        normalise(&mut cell.table);
        out.push(cell);
    }
    Ok(out)
}

impl Source {
    /// Takes out the axis that a mistake's key lies in and returns the keys that it varies; `None`
    /// if the mistake is not that of one axis.
    pub fn drop_axis(&mut self, key: &str) -> Option<Vec<KeyPath>> {
        let path = KeyPath::parse(key).ok()?;
        let [root, axis, ..] = path.parts() else {
            return None;
        };
        let axes = self.table.get_mut(AXES).filter(|_| root == AXES)?;
        axes.as_table_mut()?.remove(axis)?;
        Some(zipped::known_keys(axis))
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

/// The lists of `select.over`: how many values, and where.
fn tried(source: &Source) -> Vec<(usize, KeyPath)> {
    let over = source.get(SELECT).and_then(|select| select.get(OVER));
    let lists = over.and_then(Value::as_table).into_iter().flatten();
    let lists = lists.filter_map(|(key, list)| {
        let path = KeyPath::new([SELECT, OVER, key.as_str()]);
        Some((list.as_array()?.len(), path))
    });
    lists.collect()
}

fn check_product(
    source: &Source,
    axes: &[(&String, Vec<KeyPath>, &Vec<Value>)],
    runs: usize,
    max_runs: u64,
) -> Result<(), Diagnostic> {
    let lens = axes.iter().map(|(.., array)| array.len()).chain([runs]);
    // The product of many axes may not fit even 128 bits.
    let all = lens
        .clone()
        .try_fold(1_u128, |product, len| product.checked_mul(len as u128));
    if all.is_some_and(|all| all <= u128::from(max_runs)) {
        return Ok(());
    }
    const SHOWN: usize = 6;
    let count = all.map_or("over 10^38".to_owned(), |all| all.to_string());
    // The longest factor, if it came from an argument or is tried by the selection; the table
    // otherwise.
    let factors = axes
        .iter()
        .map(|(key, _, array)| (array.len(), METHODS.path(&[key.as_str()])));
    let seeds = source.get("seeds").and_then(Value::as_array);
    let tried = tried(source);
    let is_tried = |path: &KeyPath| tried.iter().any(|(_, key)| key == path);
    let (_, longest) = factors
        .chain([(seeds.map_or(runs, Vec::len), KeyPath::new(["seeds"]))])
        .chain(tried.clone())
        .max_by_key(|(len, _)| *len)
        .unwrap_or_default();
    let found = source.origins().find(&longest);
    let given = (found.exact && (found.argument.is_some() || is_tried(&longest))).then_some(found);
    let key = if is_tried(&longest) {
        longest.to_string()
    } else {
        AXES.to_owned()
    };
    let place = match given {
        Some(found) => source.origins().value_place(&found),
        None if axes.is_empty() => source.document().whole(),
        None => source
            .origins()
            .table_place(&source.origins().find(&METHODS.path(&[]))),
    };
    let mut factors = axes
        .iter()
        .take(SHOWN)
        .map(|(key, _, array)| format!("{} ({key})", array.len()))
        .collect::<Vec<_>>();
    factors.extend((axes.len() > SHOWN).then(|| format!("... ({} more axes)", axes.len() - SHOWN)));
    let each = if source.get(SELECT).is_some() || source.get("half_seeds").is_some() {
        "seeds, half steps and selection"
    } else {
        "seeds"
    };
    factors.push(format!("{runs} ({each})"));
    let error = Diagnostic::new(
        place,
        format!("{count} runs are more than `{MAX_RUNS}` = {max_runs}"),
    );
    let error = error
        .with_key(key)
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
        .flat_map(|axis| {
            let size = |entry: &Entry| entry.values.iter().map(count_values).sum::<usize>();
            axis.entries.iter().map(size).max()
        })
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
