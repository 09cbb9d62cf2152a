//! Where the values of a configuration were written. Spans are kept in a tree beside the values, so
//! that every later error can name the line or the argument a value came from.

use super::key_path::KeyPath;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use toml::{Table, Value};
use toml_edit::{Item, TableLike};

/// Where a value or a mistake is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// No place is known.
    Nowhere,
    /// A file as a whole.
    File {
        /// The file.
        file: String,
    },
    /// A part of a line of a file.
    Line {
        /// The file.
        file: String,
        /// Line, counted from 1.
        line: usize,
        /// Character in the line, counted from 1.
        column: usize,
        /// The whole line.
        text: String,
        /// Characters to underline.
        width: usize,
    },
    /// An argument of the command line.
    CommandLine {
        /// The argument as it was written.
        argument: String,
    },
}

impl Location {
    /// An argument of the command line, as it was written.
    pub fn argument(argument: impl Into<String>) -> Self {
        let argument = argument.into();
        Self::CommandLine { argument }
    }
}

/// The text of a configuration file and the starts of its lines.
#[derive(Debug)]
pub struct Document {
    name: String,
    pub(super) text: String,
    pub(super) starts: Vec<usize>,
}

impl Document {
    pub(super) fn new(name: &str, text: &str) -> Self {
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
    pub fn place(&self, span: &Range<usize>) -> Location {
        let line = self.line(span.start);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        // The last line may end without a line feed.
        let end = self.starts.get(line).copied().unwrap_or(self.text.len());
        let text = self
            .text
            .get(start..end)
            .unwrap_or("")
            .trim_end_matches(['\n', '\r']);
        // Spans are bytes; people count characters.
        let chars = |from: usize, to: usize| {
            self.text
                .get(from..to.max(from))
                .map_or(0, |part| part.chars().count())
        };
        // A span of several lines is underlined to the end of its first.
        let from = span.start.clamp(start, start + text.len());
        let width = chars(from, span.end.min(start + text.len())).max(1);
        Location::Line {
            file: self.name.clone(),
            line,
            column: chars(start, from) + 1,
            text: text.to_owned(),
            width,
        }
    }

    /// The file without a line.
    pub fn whole(&self) -> Location {
        Location::File {
            file: self.name.clone(),
        }
    }
}

/// Where the values of one table were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Spot {
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
    /// The override that set this, unless it came from the file.
    argument: Option<Arc<str>>,
    pub(super) children: BTreeMap<String, Spot>,
}

impl Spot {
    fn of_argument(argument: &Arc<str>) -> Self {
        Self {
            argument: Some(argument.clone()),
            ..Self::default()
        }
    }

    /// Deepest spot at or above `parts`, and how many parts it took to get there.
    pub(super) fn walk(&self, parts: &[String]) -> (Origin, &Self) {
        let (mut spot, mut argument, mut depth) = (self, self.argument.clone(), 0);
        for part in parts {
            let Some(child) = spot.children.get(part) else {
                break;
            };
            // What an override sets, it sets with everything below it.
            argument = child.argument.clone().or(argument);
            (spot, depth) = (child, depth + 1);
        }
        let found = Origin {
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
        // The value is replaced as a whole: places below it no longer hold.
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

    /// Replaces what is known of the elements of an array in this tree.
    pub(super) fn replace_elements(&mut self, parts: &[String], elements: Vec<Self>) {
        let mut spot = self;
        for part in parts {
            spot = spot.children.entry(part.clone()).or_default();
        }
        let numbered = elements.into_iter().enumerate();
        spot.children = numbered
            .map(|(number, element)| (number.to_string(), element))
            .collect();
    }

    pub(super) fn remove(&mut self, parts: &[String]) {
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
pub struct Origin {
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
    pub(super) document: Arc<Document>,
    pub(super) base: Arc<Spot>,
    pub(super) patches: Vec<Arc<Patch>>,
}

impl Origins {
    /// Those of values that all come from one file, at places that are not known.
    pub fn of_whole(file: &str) -> Self {
        Self {
            document: Arc::new(Document::new(file, "")),
            base: Arc::new(Spot::default()),
            patches: Vec::new(),
        }
    }

    /// The file.
    pub fn document(&self) -> &Document {
        &self.document
    }

    pub(super) fn base(&self) -> &Spot {
        &self.base
    }

    /// Origin of a key, or of the nearest table above it.
    pub fn find(&self, path: &KeyPath) -> Origin {
        let axis = |patch: &Patch| Some((patch.axis.clone(), patch.number, patch.count));
        // A later axis may have set a key inside the value of an earlier one.
        for patch in self.patches.iter().rev() {
            if let Some(rest) = path.below(&patch.path) {
                let (found, spot) = patch.spot.walk(rest);
                let argument = found
                    .argument
                    .clone()
                    .or_else(|| spot.changed_element(found.exact));
                return Origin {
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
        let found = Origin { argument, ..found };
        // A table that the file lacks may be there because an axis sets a key inside it.
        let inside = self
            .patches
            .iter()
            .find(|patch| !found.exact && patch.path.below(path).is_some());
        match inside {
            Some(patch) => Origin {
                axis: axis(patch),
                exact: true,
                ..patch.spot.walk(&[]).0
            },
            None => found,
        }
    }

    /// Place of a key's value.
    pub fn value_place(&self, found: &Origin) -> Location {
        self.place(found, found.value.as_ref().or(found.key.as_ref()))
    }

    /// Place of a key.
    pub fn key_place(&self, found: &Origin) -> Location {
        self.place(found, found.key.as_ref().or(found.value.as_ref()))
    }

    /// Place of a table: its header if it has one.
    pub fn table_place(&self, found: &Origin) -> Location {
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

    fn place(&self, found: &Origin, span: Option<&Range<usize>>) -> Location {
        match (&found.argument, span) {
            (Some(argument), _) => Location::argument(argument.to_string()),
            // At depth 0 nothing of the key was written: no line of the file is to blame.
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
            Location::CommandLine { argument } => format!("command line: {argument}"),
            _ if !found.exact => return "default".to_owned(),
            Location::Line { file, line, .. } => format!("{file}:{line}"),
            Location::File { file } => file,
            Location::Nowhere => "default".to_owned(),
        };
        match found.axis {
            Some((axis, ..)) => format!("{place} (axis {axis})"),
            None => place,
        }
    }
}

/// Values and their places.
pub(super) fn convert_table(table: &dyn TableLike, spot: &mut Spot) -> Table {
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

pub(super) fn convert_value(value: &toml_edit::Value, spot: &mut Spot) -> Value {
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
