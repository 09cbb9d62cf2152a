//! Overrides of the command line: `key=value`.
//!
//! Precedence, lowest first: defaults of the types < the file < the values of `[axes]` < overrides,
//! later overrides last.
//! * `key=value` sets a key of the file before the axes are expanded.
//! * An override of an axis's own key by one of its values keeps that value alone, under its label.
//! * An override of an axis's own key by another value, or of a table that holds it, removes the
//!   axis.
//! * An override of a key inside an axis's key (axis `model.pe`, override `model.pe.base=5`) is
//!   applied to every value of the axis.
//! * An override of one of several keys that an axis varies together keeps the entries with that
//!   value; where none has it, it is refused.
//! * An override of a key of `select.over`, or of a table that holds it, takes it out of the sweep;
//!   of several keys that vary together it keeps the entries with that value.
//! * An override of `axes."model.pe.base"` (or `axes.model.pe.base`) replaces or adds an axis.

use super::axes::{OVER, SELECT};
use super::diagnostic::{Diagnostic, Location, describe_value, quoted};
use super::key_path::{AXES, Blocked, KeyPath, set, split_argument};

use super::origins::{Spot, convert_value};
use super::source::{Deferred, FixedAxis, Override, Source, unusable, unusable_error};
use super::zipped;
use std::collections::BTreeMap;
use std::sync::Arc;
use toml::{Table, Value};

/// The table of what a selection tries, as a key.
const SELECT_OVER: &str = "select.over";

impl Source {
    /// Applies one `key=value`; see the module's text for what wins over what.
    pub fn apply_override(&mut self, text: &str) -> Result<(), Diagnostic> {
        self.apply_override_such_as(text, "train.steps=100")
    }

    /// As [`apply_override`](Self::apply_override), with another example for the error of a text
    /// that is not an override.
    pub fn apply_override_such_as(&mut self, text: &str, example: &str) -> Result<(), Diagnostic> {
        let Override {
            text,
            mut path,
            value,
            ..
        } = parse_override(text, example)?;
        // Whether the key lies inside the key of an axis.
        let mut covered = false;
        if path.parts().first().is_some_and(|first| first == AXES) {
            path = self.axis_path(path);
            if let [_, key] = path.parts() {
                self.fixed.remove(key);
            }
        } else if self.fix_axis(&text, &path, &value) {
            self.overrides.push(Override {
                text,
                path,
                value,
                is_of_axis: true,
            });
            return Ok(());
        } else if let Some(Value::Table(axes)) = self.table.get_mut(AXES) {
            let paths = axes
                .keys()
                .filter_map(|key| Some((key.clone(), zipped::keys(key).ok()?)))
                .collect::<Vec<_>>();
            for (key, axis) in paths {
                let is_fixed = axis.iter().any(|axis| axis.below(&path).is_some());
                if is_fixed && axis.len() > 1 {
                    return Err(self.of_several_keys(&text, &path, &value, &key));
                }
                // An override of the axis's key, or of a table around it, fixes the axis.
                if is_fixed {
                    axes.remove(&key);
                    self.fixed.remove(&key);
                    Arc::make_mut(&mut self.origins.base).remove(&[AXES.to_owned(), key]);
                } else {
                    covered |= axis.iter().any(|axis| path.below(axis).is_some());
                }
            }
        }
        self.leave_sweep(&text, &path, &value)?;
        match set(&mut self.table, path.parts(), value.clone()) {
            Ok(()) => Arc::make_mut(&mut self.origins.base).plant(path.parts(), &text),
            Err(blocked) => {
                let problem = blocked.diagnose(&text, &path);
                if !covered {
                    return Err(problem);
                }
                // The axis will replace the table that is in the way; its values are tried later.
                self.deferred.push(Deferred {
                    path: path.clone(),
                    problem,
                });
            }
        }
        self.overrides.push(Override {
            text,
            path,
            value,
            is_of_axis: false,
        });
        Ok(())
    }

    /// Takes a key that is set, or lies in a table that is set, out of `select.over`; of several
    /// keys that vary together it keeps the entries with the value. Without any key left there is
    /// no `[select]`.
    fn leave_sweep(
        &mut self,
        text: &Arc<str>,
        path: &KeyPath,
        value: &Value,
    ) -> Result<(), Diagnostic> {
        let Some(Value::Table(select)) = self.table.get_mut(SELECT) else {
            return Ok(());
        };
        let Some(Value::Table(over)) = select.get_mut(OVER) else {
            return Ok(());
        };
        let before = over.len();
        let (mut left, mut rest) = (Table::new(), Vec::new());
        for (key, list) in std::mem::take(over) {
            let paths = zipped::known_keys(&key);
            let set = paths.iter().filter(|known| known.below(path).is_some());
            match (set.count(), list) {
                (0, list) => _ = left.insert(key, list),
                (all, _) if all == paths.len() => {}
                (_, Value::Array(entries)) => {
                    let asked = BTreeMap::from([(path.clone(), (value.clone(), 0))]);
                    let at = |entry: &Value| zipped::value_at(entry, &paths, path);
                    let known: Vec<Value> = entries.iter().filter_map(at).collect();
                    let fits = |entry: &Value| zipped::fits(entry, &paths, &asked);
                    let kept: Vec<Value> = entries.into_iter().filter(fits).collect();
                    match &kept[..] {
                        _ if !paths.contains(path) => {
                            return Err(of_several(text, path, value, (SELECT_OVER, &key), &[]));
                        }
                        [] => {
                            return Err(of_several(text, path, value, (SELECT_OVER, &key), &known));
                        }
                        [one] => {
                            rest.extend(paths.iter().cloned().zip(zipped::values(one, paths.len())))
                        }
                        _ => _ = left.insert(key, Value::Array(kept)),
                    }
                }
                (_, list) => _ = left.insert(key, list),
            }
        }
        let is_empty = left.is_empty() && before > 0;
        *over = left;
        if is_empty {
            self.table.remove(SELECT);
            Arc::make_mut(&mut self.origins.base).remove(&[SELECT.to_owned()]);
        }
        // The other values of the one entry that is left.
        for (path, value) in rest {
            set(&mut self.table, path.parts(), value)
                .map_err(|found| found.diagnose(text, &path))?;
            Arc::make_mut(&mut self.origins.base).plant(path.parts(), text);
        }
        Ok(())
    }

    /// Leaves an axis the entries that have the value at that key, and those of earlier overrides
    /// at its other keys, if there are any.
    fn fix_axis(&mut self, text: &Arc<str>, path: &KeyPath, value: &Value) -> bool {
        let Some(Value::Table(axes)) = self.table.get_mut(AXES) else {
            return false;
        };
        let found = axes.iter_mut().find_map(|(key, left)| {
            let paths = zipped::keys(key).ok()?;
            let column = paths.iter().position(|known| known == path)?;
            Some((key.clone(), paths, column, left.as_array_mut()?))
        });
        let Some((key, paths, column, left)) = found else {
            return false;
        };
        let mut axis = self.fixed.get(&key).cloned().unwrap_or_else(|| FixedAxis {
            entries: left.clone(),
            kept: (0..left.len()).collect(),
            values: BTreeMap::new(),
        });
        let asked = (value.clone(), self.overrides.len());
        axis.values.insert(path.clone(), asked);
        let before = std::mem::take(&mut axis.kept);
        let fits = |index: &usize| zipped::fits(&axis.entries[*index], &paths, &axis.values);
        axis.kept = (0..axis.entries.len()).filter(fits).collect();
        if axis.kept.is_empty() {
            return false;
        }
        let kept = axis.kept.iter().map(|index| axis.entries[*index].clone());
        *left = kept.collect();
        let base = Arc::make_mut(&mut self.origins.base);
        let at = [AXES.to_owned(), key.clone()];
        let spot = |index: &usize| {
            let known = before.iter().position(|other| other == index);
            let known = known.filter(|_| paths.len() > 1);
            let mut spot = Spot::default();
            let mut below = Vec::new();
            if let Some(number) = known {
                spot = base.element(&[&at[..], &[number.to_string()]].concat());
                below.push(column.to_string());
            }
            spot.plant(&below, text);
            spot
        };
        let spots = axis.kept.iter().map(spot).collect();
        base.replace_elements(&at, spots);
        self.fixed.insert(key, axis);
        true
    }

    /// The mistake of a value that no entry of an axis of several keys has, among those that fit
    /// the overrides of its other keys.
    fn of_several_keys(&self, text: &str, path: &KeyPath, value: &Value, axis: &str) -> Diagnostic {
        let paths = zipped::known_keys(axis);
        let written = self.table.get(AXES).and_then(|axes| axes.get(axis));
        let written = written.and_then(Value::as_array);
        let (entries, mut values) = match self.fixed.get(axis) {
            Some(fixed) => (fixed.entries.clone(), fixed.values.clone()),
            None => (written.cloned().unwrap_or_default(), BTreeMap::new()),
        };
        values.remove(path);
        let mut fitting = entries;
        fitting.retain(|entry| zipped::fits(entry, &paths, &values));
        let at = |entry: &Value| zipped::value_at(entry, &paths, path);
        let known: Vec<Value> = fitting.iter().filter_map(at).collect();
        of_several(text, path, value, (AXES, axis), &known)
    }

    /// `axes.a.b.c` means the axis `a.b.c`, and `axes.a.b.0.c` the key `c` of the first value of
    /// the axis `a.b` if there is one.
    fn axis_path(&self, path: KeyPath) -> KeyPath {
        let axes = match self.table.get(AXES) {
            Some(Value::Table(axes)) => axes,
            _ => &Table::new(),
        };
        let [root, first, rest @ ..] = path.parts() else {
            return path;
        };
        // `axes."a.b"` and `axes.a.b` are the same axis.
        let first = KeyPath::parse(first).unwrap_or_else(|_| KeyPath::new([first]));
        let wanted = KeyPath::new(first.parts().iter().chain(rest).cloned());
        for key in axes.keys() {
            let known = KeyPath::parse(key).unwrap_or_else(|_| KeyPath::new([key]));
            match wanted.below(&known) {
                Some([]) => return KeyPath::new([root, key]),
                Some(below @ [index, ..]) if index.parse::<usize>().is_ok() => {
                    return KeyPath::new([root, key].into_iter().chain(below).cloned());
                }
                _ => {}
            }
        }
        // An axis of several keys, `axes."a.b,c"`.
        match rest.is_empty() && path.parts()[1].contains(',') {
            true => path,
            false => KeyPath::new([root.clone(), wanted.to_string()]),
        }
    }
}

fn parse_override(text: &str, example: &str) -> Result<Override, Diagnostic> {
    let example = format!("write key=value, such as {example}");
    let refuse = |problem: String, help: &str| {
        Err(Diagnostic::new(Location::argument(text), problem).with_help(help))
    };
    let Some((key, raw)) = split_argument(text) else {
        return refuse(
            "an override needs `=` between key and value".into(),
            &example,
        );
    };
    if key.trim().is_empty() {
        return refuse("an override needs a key before `=`".into(), &example);
    }
    let path = match KeyPath::parse(key) {
        Ok(path) => path,
        Err(message) => {
            let help = if key.contains('[') {
                "elements of a list are named by their number: parts.0.base"
            } else {
                ""
            };
            return refuse(
                format!("the key `{}` is not valid: {message}", key.trim()),
                help,
            );
        }
    };
    let value = match parse_value(raw.trim()) {
        Ok(value) => value,
        Err((problem, help)) => return refuse(format!("the value of `{path}` {problem}"), &help),
    };
    if let Some((at, bad)) = unusable(&value, &path) {
        return Err(unusable_error(Location::argument(text), &at, bad));
    }
    Ok(Override {
        text: text.into(),
        path,
        value,
        is_of_axis: false,
    })
}

/// An override of one of the keys that an axis or a choice varies together, whose entries have the
/// values `known`.
fn of_several(
    text: &str,
    path: &KeyPath,
    value: &Value,
    (table, key): (&str, &str),
    known: &[Value],
) -> Diagnostic {
    let place = Location::argument(text);
    let problem =
        format!("no entry of `{key}`, which varies several keys together, has this value");
    let mut allowed: Vec<String> = known.iter().map(describe_value).collect();
    allowed.dedup();
    Diagnostic::new(place, problem)
        .with_key(path.to_string())
        .with_value(describe_value(value))
        .with_allowed(allowed.join(", "))
        .with_help(format!(
            "replace all entries: '{table}.{}=[[...], ...]'",
            quoted(key)
        ))
}

/// A TOML value, or a string for a word that is none; otherwise what is wrong and what to do.
fn parse_value(raw: &str) -> Result<Value, (String, String)> {
    let parsed = raw.parse::<toml_edit::Value>();
    let error = match parsed {
        Ok(value) => return Ok(convert_value(&value, &mut Spot::default())),
        Err(error) => error.message().to_owned(),
    };
    if raw.is_empty() {
        return Err((
            "is missing".into(),
            "write key=\"\" for an empty string".into(),
        ));
    }
    if error.contains("overflowed") {
        return Err((
            format!("is too large: {raw}"),
            "whole numbers go up to 9223372036854775807, others to 1e308".into(),
        ));
    }
    // Such a text was meant as TOML: taken as a word it would hide the mistake.
    if raw.contains(['[', ']', '{', '}', '"', '\'', '=', '#']) || raw.chars().any(char::is_control)
    {
        let help = "quote the whole argument for the shell: 'model.pe={kind=\"alibi\"}'";
        return Err((
            format!("is neither a TOML value nor a plain word: {error}"),
            help.into(),
        ));
    }
    if raw.contains(',') {
        return Err((
            "looks like a list without brackets".into(),
            format!("write [{raw}], or \"{raw}\" for a string"),
        ));
    }
    Ok(Value::String(raw.to_owned()))
}

impl Blocked {
    pub(super) fn diagnose(&self, argument: &str, path: &KeyPath) -> Diagnostic {
        let place = Location::argument(argument);
        let (problem, help) = match self {
            Self::NotATable { at, found } => {
                let at = KeyPath::new(at.clone());
                (
                    format!("`{path}` cannot be set: `{at}` is {found}"),
                    format!("replace it by a table: {at}={{...}}"),
                )
            }
            Self::NoElement { at, len } => {
                let help = match len {
                    0 => "the list is empty".to_owned(),
                    1 => "its only element is number 0".to_owned(),
                    _ => format!("elements are numbered from 0 to {}", len - 1),
                };
                (
                    format!(
                        "`{path}` cannot be set: `{}` is a list of {len}",
                        KeyPath::new(at.clone())
                    ),
                    help,
                )
            }
            Self::Nothing => ("an override needs a key".to_owned(), String::new()),
        };
        Diagnostic::new(place, problem)
            .with_key(path.to_string())
            .with_help(help)
    }
}
