//! Where raw configuration values come from: one TOML file and the overrides of the command line.
//!
//! Precedence, lowest first: defaults of the types < the file < the values of `[axes]` < overrides,
//! later overrides last.
//! * `key=value` sets a key of the file before the axes are expanded.
//! * An override of an axis's own key, or of a table that holds it, fixes that axis: the axis is
//!   removed.
//! * An override of a key inside an axis's key (axis `model.pe`, override `model.pe.base=5`) is
//!   applied to every value of the axis.
//! * An override of `axes."model.pe.base"` (or `axes.model.pe.base`) replaces or adds an axis.
//!
//! Spans are kept in a tree beside the values, so that every later error can name the line or the
//! argument a value came from.

use super::diagnose::{Diagnostic, Place, closest_first, describe_value, quoted, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::{Table, Value};
use toml_edit::{Item, TableLike};

/// Largest configuration file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Most values that a file may hold, tables and lists counted as one each.
pub const MAX_FILE_VALUES: usize = 100_000;

/// Most dots that a file may hold: each may open a table of its own, which the parser pays for
/// before anything can be counted.
const MAX_DOTS: usize = 50_000;

/// Most parts of a dotted key: deeper values would have to be walked, copied and dropped by deep
/// recursion.
pub const MAX_PARTS: usize = 64;

/// Longest text that a configuration may hold, in bytes: what fits into a path.
pub const MAX_TEXT: usize = 4096;

/// Name of the top-level table of axes.
pub const AXES: &str = "axes";

/// Path to a value: keys, and decimal indices into arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// Reads a dotted TOML key such as `model.pe.parts.1.base` or `axes."model.pe"`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys = toml_edit::Key::parse(text).map_err(|error| error.message().to_owned())?;
        if keys.len() > MAX_PARTS {
            return Err(format!(
                "it has {} parts, more than {MAX_PARTS}",
                keys.len()
            ));
        }
        Ok(Self(keys.iter().map(|key| key.get().to_owned()).collect()))
    }

    /// Path of these parts.
    pub fn new<S: Into<String>>(parts: impl IntoIterator<Item = S>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    /// Keys and indices from the root down.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// Whether this is the whole document.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Path one step further down.
    pub fn child(&self, part: impl Into<String>) -> Self {
        let mut parts = self.0.clone();
        parts.push(part.into());
        Self(parts)
    }

    /// Path one step up; the root is its own parent.
    pub fn parent(&self) -> Self {
        Self(
            self.0
                .split_last()
                .map(|(_, rest)| rest.to_vec())
                .unwrap_or_default(),
        )
    }

    /// Last key or index, empty at the root.
    pub fn last(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// The rest of this path below `prefix`, if it lies at or below it.
    pub fn below(&self, prefix: &Self) -> Option<&[String]> {
        self.0.strip_prefix(prefix.0.as_slice())
    }

    /// Value at this path.
    pub fn find<'a>(&self, table: &'a Table) -> Option<&'a Value> {
        let (first, rest) = self.0.split_first()?;
        rest.iter()
            .try_fold(table.get(first)?, |value, part| match value {
                Value::Table(table) => table.get(part),
                Value::Array(array) => part
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| array.get(index)),
                _ => None,
            })
    }

    /// Table at this path; the root is the table itself.
    pub fn find_table<'a>(&self, table: &'a Table) -> Option<&'a Table> {
        if self.is_root() {
            Some(table)
        } else {
            self.find(table)?.as_table()
        }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            let bare = !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if bare {
                write!(f, "{dot}{part}")?
            } else {
                write!(f, "{dot}{}", quoted(part))?
            }
        }
        Ok(())
    }
}

/// The text of a configuration file and the starts of its lines.
#[derive(Debug)]
pub struct Document {
    name: String,
    text: String,
    starts: Vec<usize>,
}

impl Document {
    fn new(name: &str, text: &str) -> Self {
        let starts = std::iter::once(0)
            .chain(
                text.bytes()
                    .enumerate()
                    .filter(|(_, b)| *b == b'\n')
                    .map(|(i, _)| i + 1),
            )
            .collect();
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            starts,
        }
    }

    /// Name to show for the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file's text without a byte order mark.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line number of a byte, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).max(1)
    }

    /// Place of a range of bytes, as shown to people.
    pub fn place(&self, span: &Range<usize>) -> Place {
        let line = self.line(span.start);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let end = self.starts.get(line).copied().unwrap_or(self.text.len());
        let text = self
            .text
            .get(start..end)
            .unwrap_or("")
            .trim_end_matches(['\n', '\r']);
        let chars = |from: usize, to: usize| {
            self.text
                .get(from..to.max(from))
                .map_or(0, |part| part.chars().count())
        };
        let from = span.start.clamp(start, start + text.len());
        let width = chars(from, span.end.min(start + text.len())).max(1);
        Place::Line {
            file: self.name.clone(),
            line,
            column: chars(start, from) + 1,
            text: text.to_owned(),
            width,
        }
    }

    /// The file without a line.
    pub fn whole(&self) -> Place {
        Place::File {
            file: self.name.clone(),
        }
    }
}

/// Where the values of one table were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Spot {
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    /// The override that set this, unless it came from the file.
    argument: Option<Arc<str>>,
    children: BTreeMap<String, Spot>,
}

impl Spot {
    fn of_argument(argument: &Arc<str>) -> Self {
        Self {
            argument: Some(argument.clone()),
            ..Self::default()
        }
    }

    /// Deepest spot at or above `parts`, and how many parts it took to get there.
    fn walk(&self, parts: &[String]) -> (Found, &Self) {
        let (mut spot, mut argument, mut depth) = (self, self.argument.clone(), 0);
        for part in parts {
            let Some(child) = spot.children.get(part) else {
                break;
            };
            argument = child.argument.clone().or(argument);
            (spot, depth) = (child, depth + 1);
        }
        let found = Found {
            exact: depth == parts.len(),
            depth,
            key: spot.key.clone(),
            value: spot.value.clone(),
            argument,
            axis: None,
        };
        (found, spot)
    }

    /// The override that set an element of the list written here, if this is a list.
    fn changed_element(&self, exact: bool) -> Option<Arc<str>> {
        let list = exact && self.children.keys().all(|key| key.parse::<usize>().is_ok());
        self.children
            .values()
            .filter(|_| list)
            .find_map(|child| child.argument.clone())
    }

    pub(super) fn plant(&mut self, parts: &[String], argument: &Arc<str>) {
        let mut spot = self;
        for part in parts {
            spot = spot
                .children
                .entry(part.clone())
                .or_insert_with(|| Self::of_argument(argument));
        }
        *spot = Self {
            key: None,
            ..Self::of_argument(argument)
        };
    }

    /// The spots of one element of an array, standing on their own.
    pub(super) fn element(&self, parts: &[String]) -> Self {
        let (found, spot) = self.walk(parts);
        if found.exact {
            Self {
                argument: found.argument,
                ..spot.clone()
            }
        } else {
            Self {
                argument: found.argument,
                ..Self::default()
            }
        }
    }

    fn remove(&mut self, parts: &[String]) {
        let Some((last, above)) = parts.split_last() else {
            return;
        };
        let mut spot = self;
        for part in above {
            let Some(child) = spot.children.get_mut(part) else {
                return;
            };
            spot = child;
        }
        spot.children.remove(last);
    }
}

/// What is known about where a key came from.
#[derive(Clone, Debug)]
pub struct Found {
    /// Whether the key itself was written; otherwise the rest describes the nearest table above
    /// it.
    pub exact: bool,
    depth: usize,
    /// The key in the file.
    pub key: Option<Range<usize>>,
    /// The value in the file.
    pub value: Option<Range<usize>>,
    /// The override that set it.
    pub argument: Option<Arc<str>>,
    /// The axis it was taken from: its key, the number of the value from 1, and how many there
    /// are.
    pub axis: Option<(String, usize, usize)>,
}

/// One value of one axis, put at its key.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) path: KeyPath,
    pub(super) axis: String,
    pub(super) number: usize,
    pub(super) count: usize,
    pub(super) spot: Spot,
}

/// Where every value of a table came from: the file, an override, or an axis.
#[derive(Clone, Debug)]
pub struct Origins {
    document: Arc<Document>,
    base: Arc<Spot>,
    patches: Vec<Arc<Patch>>,
}

impl Origins {
    /// The file.
    pub fn document(&self) -> &Document {
        &self.document
    }

    pub(super) fn base(&self) -> &Spot {
        &self.base
    }

    pub(super) fn with_patches(&self, patches: Vec<Arc<Patch>>) -> Self {
        Self {
            patches,
            ..self.clone()
        }
    }

    /// Origin of a key, or of the nearest table above it.
    pub fn find(&self, path: &KeyPath) -> Found {
        let axis = |patch: &Patch| Some((patch.axis.clone(), patch.number, patch.count));
        for patch in self.patches.iter().rev() {
            if let Some(rest) = path.below(&patch.path) {
                let (found, spot) = patch.spot.walk(rest);
                let argument = found
                    .argument
                    .clone()
                    .or_else(|| spot.changed_element(found.exact));
                return Found {
                    axis: axis(patch),
                    depth: found.depth + patch.path.parts().len(),
                    argument,
                    ..found
                };
            }
        }
        let (found, spot) = self.base.walk(path.parts());
        let argument = found
            .argument
            .clone()
            .or_else(|| spot.changed_element(found.exact));
        let found = Found { argument, ..found };
        let inside = self
            .patches
            .iter()
            .find(|patch| !found.exact && patch.path.below(path).is_some());
        match inside {
            Some(patch) => Found {
                axis: axis(patch),
                exact: true,
                ..patch.spot.walk(&[]).0
            },
            None => found,
        }
    }

    /// Place of a key's value.
    pub fn value_place(&self, found: &Found) -> Place {
        self.place(found, found.value.as_ref().or(found.key.as_ref()))
    }

    /// Place of a key.
    pub fn key_place(&self, found: &Found) -> Place {
        self.place(found, found.key.as_ref().or(found.value.as_ref()))
    }

    /// Place of a table: its header if it has one.
    pub fn table_place(&self, found: &Found) -> Place {
        let header = found.value.as_ref().filter(|span| {
            self.document
                .text
                .get((*span).clone())
                .is_some_and(|t| t.starts_with('['))
        });
        self.place(
            found,
            header.or(found.key.as_ref()).or(found.value.as_ref()),
        )
    }

    fn place(&self, found: &Found, span: Option<&Range<usize>>) -> Place {
        match (&found.argument, span) {
            (Some(argument), _) => Place::CommandLine {
                argument: argument.to_string(),
            },
            (None, Some(span)) if found.depth > 0 || found.axis.is_some() => {
                self.document.place(span)
            }
            _ => self.document.whole(),
        }
    }

    /// Origin of a key of `table` in one line: `x.toml:14`, `command line: a=1`, `default`, with
    /// the axis in brackets.
    pub fn describe(&self, table: &Table, path: &KeyPath) -> String {
        let found = self.find(path);
        if path.find(table).is_none() {
            return "default".to_owned();
        }
        let place = match self.value_place(&found) {
            Place::CommandLine { argument } => format!("command line: {argument}"),
            _ if !found.exact => return "default".to_owned(),
            Place::Line { file, line, .. } => format!("{file}:{line}"),
            Place::File { file } => file,
            Place::Nowhere => "default".to_owned(),
        };
        match found.axis {
            Some((axis, ..)) => format!("{place} (axis {axis})"),
            None => place,
        }
    }
}

/// An override that could not be applied to the file because an axis will replace the table it
/// belongs to.
#[derive(Clone, Debug)]
struct Deferred {
    path: KeyPath,
    problem: Diagnostic,
}

/// One `key=value` of the command line.
#[derive(Clone, Debug)]
pub(super) struct Override {
    pub(super) text: Arc<str>,
    pub(super) path: KeyPath,
    pub(super) value: Value,
}

/// A configuration file with the overrides applied so far.
#[derive(Clone, Debug)]
pub struct Source {
    table: Table,
    origins: Origins,
    overrides: Vec<Override>,
    deferred: Vec<Deferred>,
}

impl Source {
    /// Reads a file of at most [`MAX_BYTES`].
    pub fn read(path: &Path) -> Result<Self, Diagnostic> {
        let name = path.display().to_string();
        let refuse = |problem: String, help: String| {
            Diagnostic::new(Place::File { file: name.clone() }, problem).with_help(help)
        };
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                return Err(refuse(
                    "this is a folder, not a configuration file".into(),
                    nearby(path, None),
                ));
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let folder = path
                    .parent()
                    .filter(|p| !p.as_os_str().is_empty())
                    .unwrap_or(Path::new("."));
                return Err(refuse(
                    "no such file".into(),
                    nearby(folder, path.file_name().and_then(|n| n.to_str())),
                ));
            }
            Err(error) => return Err(refuse(format!("cannot be read: {error}"), String::new())),
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
        read.map_err(|error| refuse(format!("cannot be read: {error}"), String::new()))?;
        Self::parse(&name, &bytes)
    }

    /// Reads the contents of a file; `name` is what errors call it.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, Diagnostic> {
        let document = Arc::new(Document::new(name, checked_text(name, bytes)?));
        let parsed = toml_edit::Document::parse(document.text())
            .map_err(|error| syntax_error(&document, &error))?;
        let mut spot = Spot::default();
        let table = convert_table(parsed.as_table(), &mut spot);
        if table.is_empty() {
            return Err(Diagnostic::new(document.whole(), "the file is empty")
                .with_help("write at least one `key = value`"));
        }
        let values = table.values().map(count_values).sum::<usize>();
        if values > MAX_FILE_VALUES {
            let problem = format!("the file holds {values} values, more than {MAX_FILE_VALUES}");
            return Err(Diagnostic::new(document.whole(), problem)
                .with_help("a configuration is a short text; is this the right file?"));
        }
        let origins = Origins {
            document,
            base: Arc::new(spot),
            patches: Vec::new(),
        };
        refuse_unusable(&table, &origins)?;
        Ok(Self {
            table,
            origins,
            overrides: Vec::new(),
            deferred: Vec::new(),
        })
    }

    /// Applies one `key=value`; see the module's text for what wins over what.
    pub fn apply_override(&mut self, text: &str) -> Result<(), Diagnostic> {
        let Override {
            text,
            mut path,
            value,
        } = parse_override(text)?;
        let mut covered = false;
        if path.parts().first().is_some_and(|first| first == AXES) {
            path = self.axis_path(path);
        } else if let Some(Value::Table(axes)) = self.table.get_mut(AXES) {
            let paths = axes
                .keys()
                .filter_map(|key| Some((key.clone(), KeyPath::parse(key).ok()?)))
                .collect::<Vec<_>>();
            for (key, axis) in paths {
                if axis.below(&path).is_some() {
                    axes.remove(&key);
                    Arc::make_mut(&mut self.origins.base).remove(&[AXES.to_owned(), key]);
                } else {
                    covered |= path.below(&axis).is_some();
                }
            }
        }
        match set(&mut self.table, path.parts(), value.clone()) {
            Ok(()) => Arc::make_mut(&mut self.origins.base).plant(path.parts(), &text),
            Err(blocked) => {
                let problem = blocked.diagnose(&text, &path);
                if !covered {
                    return Err(problem);
                }
                self.deferred.push(Deferred {
                    path: path.clone(),
                    problem,
                });
            }
        }
        self.overrides.push(Override { text, path, value });
        Ok(())
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
        KeyPath::new([root.clone(), wanted.to_string()])
    }

    /// The file's table with the overrides in it, `axes` and `max_runs` included.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// A value before the axes are expanded.
    pub fn get(&self, key: &str) -> Option<&Value> {
        KeyPath::parse(key).ok()?.find(&self.table)
    }

    /// The file's name and text.
    pub fn document(&self) -> &Document {
        self.origins.document()
    }

    /// The overrides as they were written, in order.
    pub fn overrides(&self) -> impl Iterator<Item = &str> {
        self.overrides.iter().map(|o| &*o.text)
    }

    /// Where the values came from.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    pub(super) fn parsed_overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Refuses an override that waited for an axis which is no longer there.
    pub(super) fn check_deferred(&self, axes: &[KeyPath]) -> Result<(), Diagnostic> {
        let lost = self
            .deferred
            .iter()
            .find(|d| !axes.iter().any(|axis| d.path.below(axis).is_some()));
        lost.map_or(Ok(()), |deferred| Err(deferred.problem.clone()))
    }

    /// A mistake in the value of `key`, before the axes are expanded. Empty texts are left out.
    pub fn error(&self, key: &str, problem: &str, allowed: &str, help: &str) -> Diagnostic {
        Diagnostic::at(&self.table, &self.origins, key, problem, allowed, help)
    }
}

/// Why a value could not be put at a path.
#[derive(Debug)]
pub(crate) enum Blocked {
    NotATable { at: Vec<String>, found: String },
    NoElement { at: Vec<String>, len: usize },
    Nothing,
}

impl Blocked {
    pub(super) fn diagnose(&self, argument: &str, path: &KeyPath) -> Diagnostic {
        let place = Place::CommandLine {
            argument: argument.to_owned(),
        };
        let (problem, help) = match self {
            Self::NotATable { at, found } => {
                let at = KeyPath(at.clone());
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
                        KeyPath(at.clone())
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

/// Puts a value at a path, making the tables above it where there is nothing yet.
pub(crate) fn set(table: &mut Table, path: &[String], value: Value) -> Result<(), Blocked> {
    let Some((first, rest)) = path.split_first() else {
        return Err(Blocked::Nothing);
    };
    if rest.is_empty() {
        table.insert(first.clone(), value);
        return Ok(());
    }
    let slot = table
        .entry(first.clone())
        .or_insert_with(|| Value::Table(Table::new()));
    set_below(slot, path, 1, value)
}

/// Like [`set`] inside a value that stands at the first `done` parts of `path`.
pub(super) fn set_below(
    slot: &mut Value,
    path: &[String],
    done: usize,
    value: Value,
) -> Result<(), Blocked> {
    let (above, rest) = path.split_at(done.min(path.len()));
    let Some(part) = rest.first() else {
        *slot = value;
        return Ok(());
    };
    let child = match slot {
        Value::Table(table) if rest.len() == 1 => {
            table.insert(part.clone(), value);
            return Ok(());
        }
        Value::Table(table) => table
            .entry(part.clone())
            .or_insert_with(|| Value::Table(Table::new())),
        Value::Array(array) => {
            let len = array.len();
            let element = part
                .parse::<usize>()
                .ok()
                .and_then(|index| array.get_mut(index));
            element.ok_or_else(|| Blocked::NoElement {
                at: above.to_vec(),
                len,
            })?
        }
        other => {
            let found = format!("{} ({})", type_name(other), describe_value(other));
            return Err(Blocked::NotATable {
                at: above.to_vec(),
                found,
            });
        }
    };
    set_below(child, path, done + 1, value)
}

/// Number of values at and below one.
pub(super) fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(array) => array.iter().map(count_values).sum(),
        Value::Table(table) => table.values().map(count_values).sum(),
        _ => 0,
    }
}

fn parse_override(text: &str) -> Result<Override, Diagnostic> {
    let refuse = |problem: String, help: &str| {
        Err(Diagnostic::new(
            Place::CommandLine {
                argument: text.to_owned(),
            },
            problem,
        )
        .with_help(help))
    };
    let Some((key, raw)) = split_argument(text) else {
        return refuse(
            "an override needs `=` between key and value".into(),
            "write key=value, such as train.steps=100",
        );
    };
    if key.trim().is_empty() {
        return refuse(
            "an override needs a key before `=`".into(),
            "write key=value, such as train.steps=100",
        );
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
        return Err(unusable_error(
            Place::CommandLine {
                argument: text.to_owned(),
            },
            &at,
            bad,
        ));
    }
    Ok(Override {
        text: text.into(),
        path,
        value,
    })
}

/// Splits at the first `=` that is not inside quotes.
fn split_argument(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), c) if c == open && !escaped => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '=') => return Some((text.get(..i)?, text.get(i + 1..)?)),
            _ => {}
        }
        escaped = false;
    }
    None
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
            "write key=\"\" for an empty text".into(),
        ));
    }
    if error.contains("overflowed") {
        return Err((
            format!("is too large: {raw}"),
            "whole numbers go up to 9223372036854775807, others to 1e308".into(),
        ));
    }
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
            format!("write [{raw}], or \"{raw}\" for a text"),
        ));
    }
    Ok(Value::String(raw.to_owned()))
}

fn checked_text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Diagnostic> {
    let refuse = |problem: String, help: &str| {
        Err(Diagnostic::new(
            Place::File {
                file: name.to_owned(),
            },
            problem,
        )
        .with_help(help))
    };
    if bytes.len() > MAX_BYTES {
        return refuse(
            format!("the file is larger than {MAX_BYTES} bytes"),
            "a configuration is a short text; is this the right file?",
        );
    }
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return refuse(
            "the file is UTF-16, not UTF-8 (byte order mark at byte 0)".into(),
            "save it as UTF-8",
        );
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let line = bytes.iter().take(at).filter(|b| **b == b'\n').count() + 1;
            let byte = bytes.get(at).copied().unwrap_or(0);
            return refuse(
                format!(
                    "the file is not UTF-8: byte 0x{byte:02X} at byte offset {at}, line {line}"
                ),
                "save it as UTF-8",
            );
        }
    };
    if let Some(at) = text.bytes().position(|b| b == 0) {
        return refuse(
            format!("the file holds a NUL byte at byte offset {at}"),
            "is it UTF-16 or binary? save it as UTF-8",
        );
    }
    let dots = text.bytes().filter(|b| *b == b'.').count();
    if dots > MAX_DOTS {
        let problem =
            format!("the file holds {dots} dots in keys and numbers, more than {MAX_DOTS}");
        return refuse(
            problem,
            "a configuration is a short text; is this the right file?",
        );
    }
    Ok(text.strip_prefix('\u{FEFF}').unwrap_or(text))
}

fn syntax_error(document: &Document, error: &toml_edit::TomlError) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let place = document.place(&span);
    let word = document.text().get(span.clone()).unwrap_or("");
    let message = error.message();
    if message.starts_with("duplicate key") {
        let problem = Diagnostic::new(place, format!("`{word}` is set twice"));
        let first = first_definition(document, &span);
        let note = first.map(|(path, line)| {
            (
                format!("`{path}` was first set in line {line}"),
                path.to_string(),
            )
        });
        let diagnostic = match note {
            Some((note, key)) => problem.with_key(key).with_note(note),
            None => problem,
        };
        return diagnostic.with_help("keep one of the two");
    }
    let (problem, help) = if message.starts_with("integer number overflowed") {
        (
            "this whole number is too large".to_owned(),
            "whole numbers go from -9223372036854775808 to 9223372036854775807",
        )
    } else if message.starts_with("floating-point number overflowed") {
        (
            "this number is too large".to_owned(),
            "write a finite number",
        )
    } else if message.starts_with("string values must be quoted") {
        match word {
            "" => (
                "a value is missing or not written as TOML".to_owned(),
                "write a number, true, false, \"text\", [list] or { table }",
            ),
            _ => (
                format!("`{word}` is not a TOML value"),
                "texts need quotes: \"text\"",
            ),
        }
    } else if message.starts_with("invalid boolean") {
        let truth = matches!(word.to_ascii_lowercase().as_str(), "true" | "false");
        let help = if truth {
            "write true or false in small letters"
        } else {
            "texts need quotes: \"text\""
        };
        (format!("`{word}` is not a TOML value"), help)
    } else if message.starts_with("invalid basic string") && word.is_empty() {
        (
            format!("not valid TOML: {message}"),
            "close the text with \" on the line it began",
        )
    } else if message.starts_with("carriage return") {
        (
            "a carriage return without a line feed".to_owned(),
            "save the file with Unix or Windows line ends",
        )
    } else {
        (format!("not valid TOML: {message}"), "")
    };
    let key = key_at(document, span.start)
        .map(|path| path.to_string())
        .unwrap_or_default();
    Diagnostic::new(place, problem)
        .with_key(key)
        .with_value(word)
        .with_help(help)
}

/// The key whose value, or the table whose header, stands around `offset` in a file that cannot be
/// parsed: the text before the line it began in is valid, so it can be asked.
fn key_at(document: &Document, offset: usize) -> Option<KeyPath> {
    /// Lines that a list may have gone on for, and the longest file that is parsed once for each of
    /// them.
    const LINES: usize = 100;
    const SMALL: usize = 1 << 16;
    let last = document.line(offset);
    let looked_at = if document.text.len() <= SMALL {
        LINES
    } else {
        1
    };
    (1..=last).rev().take(looked_at).find_map(|number| {
        let start = document.starts.get(number - 1).copied()?;
        let (before, line) = document.text.split_at_checked(start)?;
        let line = line.lines().next()?.trim();
        if let Some(header) = line.strip_prefix('[') {
            probe_path(before, PROBE)?;
            return KeyPath::parse(header.trim_start_matches('[').split(']').next()?).ok();
        }
        let key = KeyPath::parse(split_argument(line).map_or(line, |(key, _)| key)).ok()?;
        let above = probe_path(before, PROBE)?;
        Some(KeyPath(above.0.into_iter().chain(key.0).collect()))
    })
}

/// A key that no file holds.
const PROBE: &str = "\u{1}probe";

/// Where the key that is repeated at `span` was set first: the text before its line is valid, so it
/// can be asked.
fn first_definition(document: &Document, span: &Range<usize>) -> Option<(KeyPath, usize)> {
    let start = document
        .starts
        .get(document.line(span.start) - 1)
        .copied()?;
    let before = document.text.get(..start)?;
    let line = document.text.get(start..)?.lines().next()?;
    let prefix = document.text.get(start..span.end)?;
    let (above, written) = match prefix.trim_start().trim_start_matches('[') {
        header if line.trim_start().starts_with('[') => (KeyPath::default(), header),
        key => (probe_path(before, PROBE)?, key),
    };
    let key = KeyPath::parse(written).ok()?;
    let path = KeyPath(above.0.into_iter().chain(key.0).collect());
    let parsed = toml_edit::Document::parse(before).ok()?;
    let mut spot = Spot::default();
    convert_table(parsed.as_table(), &mut spot);
    let (found, _) = spot.walk(path.parts());
    let at = found.key.filter(|_| found.exact)?;
    Some((path, document.line(at.start)))
}

/// The table that a key written after `before` belongs to.
fn probe_path(before: &str, probe: &str) -> Option<KeyPath> {
    let text = format!("{before}{} = 0\n", quoted(probe));
    let parsed = toml_edit::Document::parse(text.as_str()).ok()?;
    let mut spot = Spot::default();
    convert_table(parsed.as_table(), &mut spot);
    let mut path = KeyPath::default();
    while !spot.children.contains_key(probe) {
        let latest = spot
            .children
            .into_iter()
            .max_by_key(|(_, child)| last_offset(child))?;
        path = path.child(latest.0);
        spot = latest.1;
    }
    Some(path)
}

fn last_offset(spot: &Spot) -> usize {
    let own = spot
        .key
        .as_ref()
        .or(spot.value.as_ref())
        .map_or(0, |span| span.start);
    spot.children
        .values()
        .map(last_offset)
        .fold(own, usize::max)
}

fn convert_table(table: &dyn TableLike, spot: &mut Spot) -> Table {
    let mut out = Table::new();
    for (name, item) in table.iter() {
        let mut child = Spot {
            key: table.key(name).and_then(toml_edit::Key::span),
            ..Spot::default()
        };
        out.insert(name.to_owned(), convert(item, &mut child));
        spot.children.insert(name.to_owned(), child);
    }
    out
}

fn convert(item: &Item, spot: &mut Spot) -> Value {
    spot.value = item.span();
    match item {
        Item::Value(value) => convert_value(value, spot),
        Item::Table(table) => Value::Table(convert_table(table, spot)),
        Item::ArrayOfTables(array) => convert_array(array.iter(), spot, |table, child| {
            child.value = table.span();
            Value::Table(convert_table(table, child))
        }),
        Item::None => Value::Table(Table::new()),
    }
}

fn convert_value(value: &toml_edit::Value, spot: &mut Spot) -> Value {
    spot.value = value.span();
    match value {
        toml_edit::Value::String(v) => Value::String(v.value().clone()),
        toml_edit::Value::Integer(v) => Value::Integer(*v.value()),
        toml_edit::Value::Float(v) => Value::Float(*v.value()),
        toml_edit::Value::Boolean(v) => Value::Boolean(*v.value()),
        toml_edit::Value::Datetime(v) => Value::Datetime(*v.value()),
        toml_edit::Value::Array(array) => convert_array(array.iter(), spot, convert_value),
        toml_edit::Value::InlineTable(table) => Value::Table(convert_table(table, spot)),
    }
}

fn convert_array<T>(
    elements: impl Iterator<Item = T>,
    spot: &mut Spot,
    convert: impl Fn(T, &mut Spot) -> Value,
) -> Value {
    let mut array = Vec::new();
    for (i, element) in elements.enumerate() {
        let mut child = Spot::default();
        array.push(convert(element, &mut child));
        spot.children.insert(i.to_string(), child);
    }
    Value::Array(array)
}

/// The first value at or below `value` that no configuration may hold: nan, a number infinite in
/// single precision, a date, a text that is too long or that no terminal shows as it is.
fn unusable<'a>(value: &'a Value, path: &KeyPath) -> Option<(KeyPath, &'a Value)> {
    match value {
        Value::Float(x) if !(*x as f32).is_finite() => Some((path.clone(), value)),
        Value::Datetime(_) => Some((path.clone(), value)),
        Value::String(text) if text.len() > MAX_TEXT || text.chars().any(deceives) => {
            Some((path.clone(), value))
        }
        Value::Array(array) => array
            .iter()
            .enumerate()
            .find_map(|(i, v)| unusable(v, &path.child(i.to_string()))),
        Value::Table(table) => table
            .iter()
            .find_map(|(key, v)| unusable(v, &path.child(key))),
        _ => None,
    }
}

/// Characters that break lines, steer terminals or turn the direction of text.
fn deceives(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn refuse_unusable(table: &Table, origins: &Origins) -> Result<(), Diagnostic> {
    let bad = table
        .iter()
        .find_map(|(key, value)| unusable(value, &KeyPath::new([key])));
    bad.map_or(Ok(()), |(path, value)| {
        Err(unusable_error(
            origins.value_place(&origins.find(&path)),
            &path,
            value,
        ))
    })
}

fn unusable_error(place: Place, path: &KeyPath, value: &Value) -> Diagnostic {
    let text = describe_value(value);
    let (problem, allowed, help) = match value {
        Value::Float(x) if x.is_finite() => (
            "is too large",
            "numbers from -3.4e38 to 3.4e38",
            String::new(),
        ),
        Value::Float(_) => (
            "is not a finite number",
            "numbers from -3.4e38 to 3.4e38",
            String::new(),
        ),
        Value::String(text) if text.len() > MAX_TEXT => (
            "is too long",
            "texts of at most 4096 bytes",
            format!("it has {} bytes", text.len()),
        ),
        Value::String(_) => (
            "holds a control character",
            "texts of one line that can be seen",
            "remove it".to_owned(),
        ),
        _ => (
            "is a date",
            "numbers, texts, true, false, lists and tables",
            format!("write \"{text}\" for a text"),
        ),
    };
    let diagnostic =
        Diagnostic::new(place, format!("`{path}` {problem}")).with_key(path.to_string());
    diagnostic
        .with_value(text)
        .with_allowed(allowed)
        .with_help(help)
}

/// A hint that lists the configuration files of a folder, those with a name like `wanted` first.
fn nearby(folder: &Path, wanted: Option<&str>) -> String {
    const SHOWN: usize = 8;
    const LOOKED_AT: usize = 1000;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return format!("there is no folder {}", folder.display());
    };
    let names = entries
        .take(LOOKED_AT)
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names = names
        .filter(|name| name.ends_with(".toml"))
        .collect::<Vec<_>>();
    names.sort();
    closest_first(wanted.unwrap_or(""), &mut names);
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    names.truncate(SHOWN);
    match names.is_empty() {
        true => format!("there are no *.toml files in {}", folder.display()),
        false => format!(
            "configurations in {}: {}{more}",
            folder.display(),
            names.join(", ")
        ),
    }
}
