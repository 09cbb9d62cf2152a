//! One axis: its keys, its entries, and what is wrong with them. `[axes]` and `select.over` hold
//! axes: tables of lists by dotted key.

use super::diagnostic::{Diagnostic, Location, Problem, describe_value, quoted, type_name};
use super::key_path::{AXES, Blocked, KeyPath, MAX_RUNS, OVER, SELECT, set_below};
use super::labels::{Label, canonical};
use super::origins::Patch;
use super::source::Source;
use super::zipped;
use std::collections::HashMap;
use std::sync::Arc;
use toml::{Table, Value};

/// Top-level keys that no axis may vary.
const FIXED: [&str; 7] = [
    "seeds",
    "name",
    AXES,
    MAX_RUNS,
    SELECT,
    "half_seeds",
    "report",
];

/// Whether no axis may vary a key.
pub(super) fn is_fixed(key: &str) -> bool {
    FIXED.contains(&key.split('.').next().unwrap_or_default())
}

/// A table of axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// Keys from the root of the document to the table.
    root: &'static [&'static str],
    /// What an entry of the table is called in errors.
    noun: &'static str,
    /// How the table is begun, for hints.
    header: &'static str,
    /// Tables and keys that it may not vary, beside [`FIXED`].
    fixed: &'static [&'static str],
}

/// `[axes]`: every combination is a method.
pub(super) const METHODS: Family = Family {
    root: &[AXES],
    noun: "axis",
    header: "[axes]",
    fixed: &[],
};

/// `select.over`: of all combinations each method keeps the one that scores best.
pub(super) const CHOICES: Family = Family {
    root: &[SELECT, OVER],
    noun: "choice",
    header: "[select.over]",
    // Scores of other rows, lengths or tasks do not compare.
    fixed: &["eval", "task", "train.train_len"],
};

/// An axis that has been checked.
pub(super) struct Axis {
    /// Its keys as written.
    pub key: String,
    /// What it varies: one key, or several together.
    pub paths: Vec<KeyPath>,
    pub entries: Vec<Entry>,
}

/// One entry of an axis: a value for each key, and how the entry is shown.
pub(super) struct Entry {
    pub values: Vec<Value>,
    pub labels: Vec<Label>,
    pub patches: Vec<Arc<Patch>>,
}

/// Axes as written: key, keys that it varies, and list of values.
pub(super) type Lists<'a> = Vec<(&'a String, Vec<KeyPath>, &'a Vec<Value>)>;

impl Family {
    /// The place of a key below the table.
    pub fn path(&self, parts: &[&str]) -> KeyPath {
        KeyPath::new(self.root.iter().chain(parts).copied())
    }

    /// The table as written; empty where there is none.
    ///
    /// # Errors
    ///
    /// If it is not a table.
    pub fn table<'a>(&self, source: &'a Source) -> Result<Option<&'a Table>, Diagnostic> {
        let path = self.path(&[]);
        let above = path.parent();
        let held = above.find(source.table());
        if !above.is_root() && held.is_some_and(|held| !held.is_table()) {
            let error = self.value_error(source, &above, format!("`{above}` must be a table"));
            let help = format!("write [{above}] and {}, in single brackets", self.header);
            return Err(error.with_help(help));
        }
        match path.find(source.table()) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(_) => {
                let problem = format!("`{path}` must be a table of lists");
                let help = format!(
                    "write {} and below it \"train.lr\" = [1e-3, 3e-4]",
                    self.header
                );
                Err(self.value_error(source, &path, problem).with_help(help))
            }
        }
    }

    /// Reads the keys and lists of all axes; the values are read by [`Self::finish`].
    pub fn lists<'a>(&self, source: &'a Source) -> Result<Lists<'a>, Diagnostic> {
        let noun = self.noun;
        let mut lists: Lists<'_> = Vec::new();
        for (key, value) in self.table(source)?.into_iter().flatten() {
            let paths = self.check_key(source, key)?;
            let array = self.check_list(source, key, value)?;
            let earlier = lists
                .iter()
                .flat_map(|(earlier, others, _)| others.iter().map(move |other| (*earlier, other)));
            let within = paths
                .iter()
                .enumerate()
                .flat_map(|(at, path)| paths[..at].iter().map(move |other| (key, other, path)));
            let pairs = earlier
                .flat_map(|(earlier, other)| paths.iter().map(move |path| (earlier, other, path)));
            for (earlier, other, path) in pairs.chain(within) {
                if other == path && earlier == key {
                    let problem = format!("{noun} `{key}` names `{path}` twice");
                    let error = self.key_error(source, key, problem);
                    return Err(error.with_help("name each key of an axis once"));
                }
                if other == path {
                    let problem = format!("{noun} `{key}` is the same as {noun} `{earlier}`");
                    return Err(self
                        .key_error(source, key, problem)
                        .with_help("keep one of the two"));
                }
                // Axes are set in the order of the file: the later, outer one would win.
                if other.below(path).is_some() {
                    let problem =
                        format!("{noun} `{key}` would overwrite the values of {noun} `{earlier}`");
                    let help = format!("put `{path}` before `{other}`, or keep one of the two");
                    return Err(self.key_error(source, key, problem).with_help(help));
                }
            }
            lists.push((key, paths, array));
        }
        Ok(lists)
    }

    pub fn key_error(&self, source: &Source, key: &str, problem: impl Into<Problem>) -> Diagnostic {
        let path = self.path(&[key]);
        Diagnostic::new(
            source.origins().key_place(&source.origins().find(&path)),
            problem,
        )
        .with_key(path.to_string())
    }

    pub fn value_error(&self, source: &Source, path: &KeyPath, problem: String) -> Diagnostic {
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

    fn check_key(&self, source: &Source, key: &str) -> Result<Vec<KeyPath>, Diagnostic> {
        let noun = self.noun;
        let paths = zipped::keys(key).map_err(|message| {
            let problem = format!("{noun} `{key}` is not a dotted key: {message}");
            self.key_error(source, key, problem)
                .with_help("name the key that varies, such as \"train.lr\"")
        })?;
        let is_below = |path: &KeyPath, table: &&&str| {
            let path = path.to_string();
            path == **table || path.starts_with(&format!("{table}."))
        };
        let fixed = paths.iter().find_map(|path| {
            let known = FIXED.iter().chain(self.fixed);
            Some((
                path,
                *known.into_iter().find(|table| is_below(path, table))?,
            ))
        });
        match fixed {
            Some((path, table)) => {
                let (allowed, help) = match table {
                    "seeds" => ("", "every cell is run with every seed of `seeds`"),
                    "report" => (
                        "a single value",
                        "there is one report: take it out of the table",
                    ),
                    table if self.fixed.contains(&table) => (
                        "keys of model and train, but train.train_len",
                        "scores on different rows, lengths or tasks are not comparable: put it on \
                         [axes]",
                    ),
                    _ => ("keys of model, train, task and eval", "give it one value"),
                };
                let shown = match self.fixed.contains(&table) {
                    true => path.to_string(),
                    false => table.to_owned(),
                };
                let problem = format!("`{shown}` cannot be {}", self.as_object());
                Err(self
                    .key_error(source, key, problem)
                    .with_allowed(allowed)
                    .with_help(help))
            }
            None => Ok(paths),
        }
    }

    /// An axis as origins name it.
    fn shown(&self, key: &str) -> String {
        match self.root {
            [AXES] => key.to_owned(),
            _ => self.path(&[key]).to_string(),
        }
    }

    fn as_object(&self) -> &'static str {
        if self.noun == METHODS.noun {
            "an axis"
        } else {
            "chosen"
        }
    }

    fn check_list<'a>(
        &self,
        source: &Source,
        key: &str,
        value: &'a Value,
    ) -> Result<&'a Vec<Value>, Diagnostic> {
        let (path, noun) = (self.path(&[key]), self.noun);
        match value {
            Value::Array(array) if array.is_empty() => {
                let problem = format!("{noun} `{key}` has no values");
                Err(self
                    .value_error(source, &path, problem)
                    .with_allowed("a list of one value or more")
                    .with_help(format!("remove the {noun} or give it values")))
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
                let problem = format!("{noun} `{key}` must be a list, not {}", type_name(other));
                Err(self
                    .value_error(source, &path, problem)
                    .with_allowed("a list of one value or more")
                    .with_help(help))
            }
        }
    }

    /// Applies the overrides inside the axis's keys to its values, refuses repeated entries and
    /// labels the rest.
    pub fn finish(
        &self,
        source: &Source,
        key: &str,
        paths: Vec<KeyPath>,
        array: &[Value],
    ) -> Result<Axis, Diagnostic> {
        let mut entries = Vec::new();
        for index in 0..array.len() {
            entries.push(self.entry(source, key, &paths, array, index)?);
        }
        self.refuse_repeated(source, key, &paths, &entries)?;
        let of_entries = entries.iter().map(|entry| entry.values.clone());
        // The labels are those among all entries of the file.
        let (all, kept) = match source.fixed.get(key) {
            None => (of_entries.collect(), (0..entries.len()).collect()),
            Some(fixed) => {
                let written = fixed.entries.iter();
                let mut all: Vec<Vec<Value>> = written
                    .map(|entry| zipped::values(entry, paths.len()))
                    .collect();
                for (index, values) in fixed.kept.iter().zip(of_entries) {
                    all[*index] = values;
                }
                (all, fixed.kept.clone())
            }
        };
        let names = match &paths[..] {
            [_] => vec![key.to_owned()],
            _ => paths.iter().map(KeyPath::to_string).collect(),
        };
        let mut labels = zipped::labels(&all, &names, self.noun == METHODS.noun);
        for (entry, index) in entries.iter_mut().zip(kept) {
            entry.labels = std::mem::take(&mut labels[index]);
        }
        Ok(Axis {
            key: key.to_owned(),
            paths,
            entries,
        })
    }

    /// The values of one entry, with the overrides inside them.
    fn entry(
        &self,
        source: &Source,
        key: &str,
        paths: &[KeyPath],
        array: &[Value],
        index: usize,
    ) -> Result<Entry, Diagnostic> {
        let number = index.to_string();
        let written = match (paths, &array[index]) {
            ([_], value) => vec![value.clone()],
            (_, Value::Array(values)) if values.len() == paths.len() => values.clone(),
            _ => {
                let problem = format!(
                    "{} `{key}` varies {} keys together, and an entry gives one value for each",
                    self.noun,
                    paths.len()
                );
                let error = self.value_error(source, &self.path(&[key, &number]), problem);
                return Err(error
                    .with_allowed(format!("a list of {} values", paths.len()))
                    .with_help("write [[{ kind = \"rope\" }, 3e-3], [{ kind = \"t5\" }, 1e-2]]"));
            }
        };
        let fixed = source.fixed.get(key);
        let (mut values, mut patches) = (Vec::new(), Vec::new());
        for (column, (path, mut value)) in paths.iter().zip(written).enumerate() {
            // Places of the value in the list; below they stand for the axis's key.
            let column = column.to_string();
            let mut at = vec![key, &number];
            at.extend((paths.len() > 1).then_some(column.as_str()));
            let mut spot = source.origins().base().element(self.path(&at).parts());
            let value_of = fixed.and_then(|fixed| fixed.values.get(path));
            let from = value_of.map_or(0, |(_, before)| *before);
            for given in source.parsed_overrides(from) {
                let Some(below) = given.path.below(path).filter(|below| !below.is_empty()) else {
                    continue;
                };
                let (parts, depth) = (given.path.parts(), path.parts().len());
                set_below(&mut value, parts, depth, given.value.clone()).map_err(|blocked| {
                    let error = blocked.diagnose(&given.text, &given.path);
                    error.with_note(format!(
                        "in value {} of {} of {} `{key}`",
                        index + 1,
                        array.len(),
                        self.noun
                    ))
                })?;
                spot.plant(below, &given.text);
            }
            values.push(value);
            patches.push(Arc::new(Patch {
                path: path.clone(),
                axis: self.shown(key),
                number: index + 1,
                count: array.len(),
                spot,
            }));
        }
        Ok(Entry {
            values,
            labels: Vec::new(),
            patches,
        })
    }

    /// Refuses an axis with two equal entries.
    fn refuse_repeated(
        &self,
        source: &Source,
        key: &str,
        paths: &[KeyPath],
        entries: &[Entry],
    ) -> Result<(), Diagnostic> {
        let mut seen = HashMap::new();
        for (i, entry) in entries.iter().enumerate() {
            let text = canonical(&Value::Array(entry.values.clone()));
            let Some(first) = seen.insert(text, i) else {
                continue;
            };
            let shown = match &entry.values[..] {
                [value] => describe_value(value),
                values => describe_value(&Value::Array(values.to_vec())),
            };
            let at = self.path(&[key, &i.to_string()]);
            let problem = format!("{} `{key}` holds {shown} twice", self.noun);
            // Values that differ in the file may be equal once an override is applied to each.
            let is_inside = |given: &KeyPath| {
                let mut below = paths.iter().filter_map(|path| given.below(path));
                below.any(|below| !below.is_empty())
            };
            let inside = source.parsed_overrides(0).find(|o| is_inside(&o.path));
            let note = inside
                .map(|o| {
                    format!(
                        "after the override {} is applied to every value of the {}",
                        o.text, self.noun
                    )
                })
                .unwrap_or_default();
            let help = match inside {
                Some(_) if key.contains(',') => {
                    let whole = format!("'axes.\"{key}\"=[[...], ...]'");
                    format!("to set one of them for all runs, override the whole of it: {whole}")
                }
                Some(_) => {
                    format!("to set `{key}` for all runs, override the whole of it: {key}=...")
                }
                None => "keep one of the two".to_owned(),
            };
            return Err(self
                .value_error(source, &at, problem)
                .with_value(shown)
                .with_note(format!("values {} and {} are equal", first + 1, i + 1))
                .with_note(note)
                .with_help(help));
        }
        Ok(())
    }

    /// The mistake of an axis whose key cannot be set in the tables of the file.
    pub fn blocked(
        &self,
        source: &Source,
        axis: &Axis,
        path: &KeyPath,
        blocked: &Blocked,
    ) -> Diagnostic {
        let inner = blocked.diagnose("", path);
        let error = self
            .key_error(source, &axis.key, inner.problem.clone())
            .with_help(inner.help.clone().unwrap_or_default());
        match error.place {
            Location::CommandLine { .. } => error,
            _ => error.with_note(format!(
                "{} sets its key in the tables of the file",
                if self.noun == METHODS.noun {
                    "an axis"
                } else {
                    "a choice"
                }
            )),
        }
    }
}
