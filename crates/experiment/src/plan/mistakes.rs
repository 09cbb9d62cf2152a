//! All mistakes of a configuration at once.
//!
//! The reader stops at the first mistake. In a copy, the wrong key gets its default or an example,
//! and the copy is read again. A mistake that such a replacement may have caused is left out: each
//! reported one would remain if the others were corrected.

use super::keys::{KEYS, Key, key_at};
use config::axes::Cell;
use config::diagnostic::{Diagnostic, Location, Problem, closest};
use config::key_path::{KeyPath, set};
use config::source::count_values;
use std::fmt;
use std::ops::Deref;
use support::exit::{Exit, Failure};
use toml::{Table, Value};

/// Most mistakes that are reported together.
const MOST: usize = 20;

/// Most values of a configuration that is read again and again.
const SMALL: usize = 5_000;

/// Most combinations of the axes that are read again.
const MOST_CELLS: usize = 12;

/// One mistake or more, in the order of the file. Dereferences to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Diagnostic>);

impl From<Diagnostic> for Mistakes {
    fn from(mistake: Diagnostic) -> Self {
        Self(vec![mistake])
    }
}

impl Deref for Mistakes {
    type Target = Diagnostic;

    fn deref(&self) -> &Diagnostic {
        // There is at least one: made from one, or from a collection that holds one.
        &self.0[0]
    }
}

impl Mistakes {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }

    /// Those that were collected; `None` if there are none.
    pub(super) fn of(mut mistakes: Vec<Diagnostic>) -> Option<Self> {
        let line = |mistake: &Diagnostic| match mistake.place {
            Location::Nowhere | Location::File { .. } => (0, 0),
            Location::CommandLine { .. } => (2, 0),
            Location::Line { line, .. } => (1, line),
        };
        mistakes.sort_by_key(line);
        mistakes.truncate(MOST);
        (!mistakes.is_empty()).then_some(Self(mistakes))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            // The program writes `error:` before the first.
            f.write_str(if index > 0 { "\n\nerror: " } else { "" })?;
            mistake.fmt(f)?;
        }
        match self.0.len() {
            1 => Ok(()),
            MOST => write!(f, "\n\n{MOST} mistakes, and there may be more"),
            count => write!(f, "\n\n{count} mistakes"),
        }
    }
}

impl std::error::Error for Mistakes {}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        let first = mistakes.exit;
        let same = mistakes.iter().all(|mistake| mistake.exit == first);
        let exit = if same { first } else { Exit::Config };
        Self::new(exit, mistakes.to_string())
    }
}

/// Collects the mistakes of a configuration and its combinations of axes.
#[derive(Default)]
pub(super) struct Collection {
    found: Vec<Diagnostic>,
    cells: usize,
    /// Keys of axes that were taken out.
    axes: Vec<KeyPath>,
    /// What other combinations needed: a value, or none where the key was taken out.
    repairs: Vec<(KeyPath, Option<Value>)>,
}

impl Collection {
    /// Adds a mistake unless it is known from another combination.
    pub(super) fn add(&mut self, mistake: Diagnostic) {
        let known = |other: &Diagnostic| {
            (&other.problem, &other.place) == (&mistake.problem, &mistake.place)
        };
        if !self.found.iter().any(known) {
            self.found.push(mistake);
        }
    }

    /// An axis whose mistake was added and which the rest is read without.
    pub(super) fn without_axis(&mut self, axis: KeyPath) {
        self.axes.push(axis);
    }

    /// Whether it is of use to look for more.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= MOST || self.cells >= MOST_CELLS
    }

    /// The mistakes. A missing key is none where another key is a misspelling of it.
    pub(super) fn finish(mut self) -> Option<Mistakes> {
        let misspelt = |known: &Diagnostic| match &known.problem {
            Problem::UnknownKey { name, table, known } => {
                Some((closest(name, known)?.to_owned(), table.clone()))
            }
            _ => None,
        };
        let meant: Vec<_> = self.found.iter().filter_map(misspelt).collect();
        self.found.retain(|mistake| match &mistake.problem {
            Problem::MissingKey { name, table } => !meant.contains(&(name.clone(), table.clone())),
            _ => true,
        });
        Mistakes::of(self.found)
    }

    /// Adds the mistake that reading a cell ended with, and those that `read` finds after it.
    pub(super) fn add_cell(
        &mut self,
        cell: &Cell,
        first: Diagnostic,
        read: impl Fn(&Cell) -> Result<(), Diagnostic>,
    ) {
        self.cells += 1;
        let mut repairs = Repairs {
            written: &cell.table,
            paths: self.axes.clone(),
            table: cell.table.clone(),
        };
        let is_small = cell.table.values().map(count_values).sum::<usize>() <= SMALL;
        // Files are not repaired, and long texts are not read twice.
        let can_repair = |mistake: &Diagnostic| is_small && mistake.exit == Exit::Config;
        let read = |table: &Table| {
            read(&Cell {
                table: table.clone(),
                ..cell.clone()
            })
        };
        let mut mistake = first;
        // What is wrong in the file itself is wrong in every combination.
        let shared = self.repairs.iter();
        let mut shared = shared
            .filter(|(path, _)| cell.origins.find(path).axis.is_none())
            .peekable();
        if can_repair(&mistake) && shared.peek().is_some() {
            shared.for_each(|(path, value)| {
                repairs.put(path.clone(), value.clone());
            });
            match read(&repairs.table) {
                Ok(()) => return,
                Err(next) => mistake = next,
            }
        }
        // Each round corrects another key.
        for _ in 0..MOST {
            if !repairs.caused(&mistake) {
                self.add(mistake.clone());
            }
            if !can_repair(&mistake) {
                return;
            }
            let Some(repair) = repairs.apply(&mistake) else {
                return;
            };
            self.repairs.push(repair);
            match read(&repairs.table) {
                Ok(()) => return,
                Err(next) => mistake = next,
            }
        }
    }
}

/// Keys that were given another value than the file does.
struct Repairs<'a> {
    /// The configuration before.
    written: &'a Table,
    paths: Vec<KeyPath>,
    /// The configuration with these values.
    table: Table,
}

impl Repairs<'_> {
    /// Whether a repair may have caused a mistake.
    fn caused(&self, mistake: &Diagnostic) -> bool {
        let Some(path) = mistake
            .key
            .as_deref()
            .and_then(|key| KeyPath::parse(key).ok())
        else {
            return !self.paths.is_empty();
        };
        if self
            .paths
            .iter()
            .any(|repaired| path.below(repaired).is_some())
        {
            return true;
        }
        match &mistake.problem {
            Problem::Value { .. } | Problem::Other(_) => {
                let section = section(&path);
                !self.is_out_of_range(&path)
                    && self
                        .paths
                        .iter()
                        .any(|repaired| depends(section, self::section(repaired)))
            }
            // What serde refuses depends on nothing else in the file.
            _ => false,
        }
    }

    /// Whether the value of a key is outside the range that the key has whatever else is written.
    fn is_out_of_range(&self, path: &KeyPath) -> bool {
        let found = key_at(path).zip(path.find(self.written));
        found.is_some_and(|(key, value)| !key.kind.admits(value))
    }

    /// Gives the key of a mistake another value; `None` if that cannot help.
    fn apply(&mut self, mistake: &Diagnostic) -> Option<(KeyPath, Option<Value>)> {
        let path = KeyPath::parse(mistake.key.as_deref()?).ok()?;
        let (path, example) = match listed(&path) {
            _ if matches!(mistake.problem, Problem::UnknownKey { .. }) => (path, None),
            Some((path, key)) => {
                let needed = key.default.is_none();
                (path, needed.then(|| key.example_value()).flatten())
            }
            None => {
                let example = section_example(&path)?;
                (path, Some(example))
            }
        };
        let again = self.paths.contains(&path);
        (!again && self.put(path.clone(), example.clone())).then_some((path, example))
    }

    /// Sets or removes a value; false if that cannot be.
    fn put(&mut self, path: KeyPath, value: Option<Value>) -> bool {
        let done = match value {
            Some(value) => set(&mut self.table, path.parts(), value).is_ok(),
            None => remove(&mut self.table, path.parts()),
        };
        self.paths.push(path);
        done
    }
}

/// The key of the list that a path lies at or below, with its own path.
fn listed(path: &KeyPath) -> Option<(KeyPath, &'static Key)> {
    let depths = 1..=path.parts().len();
    let mut above = depths.map(|depth| KeyPath::new(path.parts()[..depth].to_vec()));
    above.find_map(|above| key_at(&above).map(|key| (above, key)))
}

/// The table of a section, with an example for each key that it must have.
fn section_example(path: &KeyPath) -> Option<Value> {
    let prefix = format!("{path}.");
    let mut table = Table::new();
    for key in KEYS.iter() {
        if let Some(own) = key
            .path
            .strip_prefix(&prefix)
            .filter(|own| !own.contains('.'))
            && key.default.is_none()
        {
            table.insert(own.to_owned(), key.example_value()?);
        }
    }
    (!table.is_empty()).then_some(Value::Table(table))
}

/// Removes a value, or the element of a list; false if there is none.
fn remove(table: &mut Table, parts: &[String]) -> bool {
    let Some((last, above)) = parts.split_last() else {
        return false;
    };
    let Some((first, rest)) = above.split_first() else {
        return table.remove(last).is_some();
    };
    let Some(mut at) = table.get_mut(first) else {
        return false;
    };
    for part in rest {
        let next = match at {
            Value::Table(table) => table.get_mut(part),
            Value::Array(array) => part.parse::<usize>().ok().and_then(|i| array.get_mut(i)),
            _ => None,
        };
        let Some(next) = next else { return false };
        at = next;
    }
    match at {
        Value::Table(table) => table.remove(last).is_some(),
        _ => false,
    }
}

fn section(path: &KeyPath) -> &str {
    path.parts().first().map_or("", String::as_str)
}

/// Whether checks of one section read values of another.
fn depends(section: &str, other: &str) -> bool {
    match section {
        "model" | "eval" => matches!(other, "task" | "model" | "train" | "eval"),
        "train" => matches!(other, "task" | "train" | "model"),
        "task" => matches!(other, "task" | "train" | "eval"),
        "half_seeds" => matches!(other, "seeds" | "train" | "eval"),
        "select" => matches!(other, "select" | "seeds" | "task" | "train" | "eval"),
        // Names, seeds and the report stand by themselves.
        _ => section == other,
    }
}
