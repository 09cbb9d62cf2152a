//! Mistakes in a configuration, told so that they can be mended: file, line, key, value, what is
//! allowed, the likely fix.
//!
//! [`deserialize`] runs the strict serde types of an experiment over a raw table and turns serde's
//! message into a [`Diagnostic`] that points at the line, the axis or the argument the offending
//! value came from.

use super::source::{AXES, Found, KeyPath, Origins};
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::{Deref, DerefMut};
use toml::{Table, Value};

/// Exit code of a mistake in the configuration or the command line.
pub const EXIT_CONFIG: u8 = 2;

/// Where a mistake was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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

/// The parts of a [`Diagnostic`]; those that are empty are not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Code to leave the process with: 2 configuration, 3 input file, 7 device, ...
    pub exit: u8,
    /// What is wrong, in one line.
    pub problem: String,
    /// Where.
    pub place: Place,
    /// Dotted key concerned.
    pub key: Option<String>,
    /// The value found there.
    pub value: Option<String>,
    /// What may stand there.
    pub allowed: Option<String>,
    /// Further facts, one line each.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
}

/// A user's mistake. Shown as several lines without a line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic(Box<Parts>);

impl Deref for Diagnostic {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Diagnostic {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl std::error::Error for Diagnostic {}

impl Diagnostic {
    /// A mistake in the configuration.
    pub fn new(place: Place, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self(Box::new(Parts {
            exit: EXIT_CONFIG,
            problem,
            place,
            key: None,
            value: None,
            allowed: None,
            notes: vec![],
            help: None,
        }))
    }

    /// A mistake in the value of `key`, which is looked up in `table`. `problem` continues the
    /// key's name: "must divide 64". Empty texts are left out.
    pub fn at(
        table: &Table,
        origins: &Origins,
        key: &str,
        problem: &str,
        allowed: &str,
        help: &str,
    ) -> Self {
        let path = KeyPath::parse(key).unwrap_or_else(|_| KeyPath::new([key]));
        let found = origins.find(&path);
        let (place, value) = match path.find(table) {
            Some(value) => (origins.value_place(&found), describe_value(value)),
            None => (origins.table_place(&found), "(default value)".to_owned()),
        };
        let diagnostic = Self::new(place, format!("`{path}` {problem}"))
            .with_key(path.to_string())
            .with_value(value);
        diagnostic
            .with_axis(&found)
            .with_allowed(allowed)
            .with_help(help)
    }

    /// Sets the exit code.
    pub fn with_exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    /// Names the key.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = filled(key.into());
        self
    }

    /// Tells the value; one that stood for a default keeps saying so.
    pub fn with_value(mut self, value: impl fmt::Display) -> Self {
        let default = self
            .value
            .as_deref()
            .is_some_and(|v| v.ends_with("(default value)"));
        self.value = filled(if default {
            format!("{value} (default value)")
        } else {
            value.to_string()
        });
        self
    }

    /// Tells what may stand there.
    pub fn with_allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = filled(allowed.into());
        self
    }

    /// Adds a fact.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.extend(filled(note.into()));
        self
    }

    /// Tells what to do.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = filled(help.into());
        self
    }

    fn with_axis(self, found: &Found) -> Self {
        match &found.axis {
            Some((axis, number, count)) => {
                self.with_note(format!("from axis `{axis}`, value {number} of {count}"))
            }
            None => self,
        }
    }
}

fn filled(text: String) -> Option<String> {
    Some(text).filter(|text| !text.trim().is_empty())
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", visible(&self.problem, 400))?;
        let mut pad = "  ".to_owned();
        match &self.place {
            Place::Nowhere => {}
            Place::File { file } => write!(f, "\n{pad}--> {}", visible(file, 400))?,
            Place::CommandLine { argument } => {
                write!(f, "\n{pad}--> command line: {}", visible(argument, 200))?
            }
            Place::Line {
                file,
                line,
                column,
                text,
                width,
            } => {
                pad = " ".repeat(line.to_string().len());
                let (text, before, width) = window(text, *column, *width);
                write!(f, "\n{pad}--> {}:{line}:{column}", visible(file, 400))?;
                write!(
                    f,
                    "\n{pad} |\n{line} | {text}\n{pad} | {}{}",
                    " ".repeat(before),
                    "^".repeat(width)
                )?;
            }
        }
        let allowed = self.allowed.as_deref().map(|text| ("allowed", text, 1000));
        let lines = [
            self.key.as_deref().map(|text| ("key", text, 200)),
            self.value.as_deref().map(|text| ("value", text, 200)),
            allowed,
        ];
        let notes = self.notes.iter().map(|text| ("note", text.as_str(), 400));
        let help = self.help.as_deref().map(|text| ("help", text, 400));
        for (name, text, longest) in lines.into_iter().flatten().chain(notes).chain(help) {
            write!(f, "\n{pad} = {name}: {}", visible(text, longest))?;
        }
        Ok(())
    }
}

/// Text that can neither break the layout nor deceive: no control or direction characters, at most
/// `longest` characters.
fn visible(text: &str, longest: usize) -> String {
    let mut out = text
        .chars()
        .take(longest)
        .map(visible_char)
        .collect::<String>();
    if text.chars().nth(longest).is_some() {
        out.push_str("...");
    }
    out
}

fn visible_char(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => ' ',
        '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}'
        | '\u{FEFF}' => '\u{FFFD}',
        c if c.is_control() => '\u{FFFD}',
        c => c,
    }
}

/// The part of a line around a column, the characters before the column in it, and how many to
/// underline.
fn window(text: &str, column: usize, width: usize) -> (String, usize, usize) {
    const SHOWN: usize = 120;
    const LEAD: usize = 40;
    let column = column.saturating_sub(1);
    let skipped = if column >= SHOWN - LEAD {
        column - LEAD
    } else {
        0
    };
    let mut out = String::from(if skipped > 0 { "..." } else { "" });
    let before = column - skipped + out.len();
    out.extend(text.chars().skip(skipped).take(SHOWN).map(visible_char));
    if text.chars().nth(skipped + SHOWN).is_some() {
        out.push_str("...");
    }
    let room = out.chars().count().saturating_sub(before).max(1);
    (out, before, width.clamp(1, room))
}

/// Text as a TOML string in double quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A value on one line, cut where it gets long.
pub fn describe_value(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out, 60);
    out
}

fn write_value(value: &Value, out: &mut String, longest: usize) {
    let room = |out: &mut String, i: usize| {
        out.push_str(if i > 0 { ", " } else { "" });
        let room = out.len() <= longest;
        out.push_str(if room { "" } else { "..." });
        room
    };
    match value {
        Value::String(text) => out.push_str(&quoted(&visible(text, longest))),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&float_as_toml(*number)),
        Value::Boolean(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Datetime(date) => out.push_str(&date.to_string()),
        Value::Array(array) => {
            out.push('[');
            for (i, element) in array.iter().enumerate() {
                if !room(out, i) {
                    break;
                }
                write_value(element, out, longest);
            }
            out.push(']');
        }
        Value::Table(table) => {
            out.push_str(if table.is_empty() { "{" } else { "{ " });
            for (i, (key, element)) in table.iter().enumerate() {
                if !room(out, i) {
                    break;
                }
                out.push_str(&visible(key, longest));
                out.push_str(" = ");
                write_value(element, out, longest);
            }
            out.push_str(if table.is_empty() { "}" } else { " }" });
        }
    }
}

/// The shortest text of a number; whole numbers have no point.
pub fn float_text(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if (1e-4..1e16).contains(&size) || !number.is_finite() {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// Like [`float_text`], but never taken for a whole number.
fn float_as_toml(number: f64) -> String {
    let text = float_text(number).to_lowercase();
    if text.chars().all(|c| c.is_ascii_digit() || c == '-') {
        format!("{text}.0")
    } else {
        text
    }
}

/// What a value is, with its article.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a decimal number",
        Value::Boolean(_) => "a truth value",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// Names used elsewhere for what is called otherwise here: suggested only where the second is
/// allowed.
const ALSO_KNOWN_AS: &[(&str, &str)] = &[
    ("theta", "base"),
    ("rope_theta", "base"),
    ("theta_base", "base"),
    ("type", "kind"),
    ("learning_rate", "lr"),
    ("batch", "batch_size"),
    ("n_embd", "d_model"),
    ("dim", "d_model"),
    ("hidden_size", "d_model"),
    ("intermediate_size", "d_ff"),
    ("num_heads", "n_heads"),
    ("num_layers", "n_layers"),
    ("d_head", "head_dim"),
    ("max_seq_len", "train_len"),
    ("context_length", "train_len"),
    ("seq_len", "train_len"),
    ("iters", "steps"),
    ("max_steps", "steps"),
    ("warmup", "warmup_steps"),
    ("clip", "grad_clip"),
    ("wd", "weight_decay"),
    ("append", "add"),
    ("plus", "add"),
    ("with", "add"),
];

/// Longest name that is compared with others: the comparison is quadratic.
const COMPARED: usize = 64;

/// The allowed name that was probably meant, if one is close enough.
pub fn closest<'a>(word: &str, allowed: &'a [String]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', ' '], "");
    let word = word.to_lowercase();
    if word.chars().count() > COMPARED || word.is_empty() {
        return None;
    }
    let near = |name: &str| {
        let edits = strsim::damerau_levenshtein(&word, &name.to_lowercase());
        (edits * 3 <= word.chars().count().max(name.chars().count())).then_some(edits)
    };
    let spelled = allowed.iter().find(|name| plain(name) == plain(&word));
    let alias = |exact: bool| {
        let mut known = ALSO_KNOWN_AS.iter().filter(|(other, _)| {
            if exact {
                *other == word
            } else {
                near(other).is_some()
            }
        });
        known.find_map(|(_, name)| allowed.iter().find(|a| a == name))
    };
    let misspelt = || {
        allowed
            .iter()
            .filter_map(|name| Some((near(name)?, name)))
            .min_by_key(|(edits, _)| *edits)
            .map(|(_, name)| name)
    };
    let part = || {
        allowed.iter().find(|name| {
            word.len() >= 4
                && (name.contains(&word) || word.contains(name.as_str()) && name.len() >= 4)
        })
    };
    spelled
        .or_else(|| alias(true))
        .or_else(misspelt)
        .or_else(|| alias(false))
        .or_else(part)
        .map(String::as_str)
}

/// Sorts names by their likeness to `word`, the most alike first; ties stay as they were.
pub(crate) fn closest_first(word: &str, names: &mut [String]) {
    if !word.is_empty() && word.chars().count() <= 255 {
        names.sort_by_cached_key(|name| strsim::damerau_levenshtein(word, name));
    }
}

/// Keys that say which type a table has.
const TAGS: [&str; 2] = ["kind", "by"];

/// Moves `kind`, or else `by`, to the front of every table, in place and at any depth: types tagged
/// by it are read as a stream.
pub fn normalise(table: &mut Table) {
    for (_, value) in table.iter_mut() {
        normalise_value(value);
    }
    let Some(tag) = TAGS.into_iter().find(|tag| table.contains_key(*tag)) else {
        return;
    };
    if table.keys().next().is_some_and(|first| first == tag) {
        return;
    }
    if let Some(kind) = table.remove(tag) {
        let rest = std::mem::take(table);
        table.insert(tag.to_owned(), kind);
        table.extend(rest);
    }
}

fn normalise_value(value: &mut Value) {
    match value {
        Value::Table(table) => normalise(table),
        Value::Array(array) => array.iter_mut().for_each(normalise_value),
        _ => {}
    }
}

/// Reads a table into a strict type, after [`normalise`].
pub fn deserialize<T: DeserializeOwned>(table: &Table, origins: &Origins) -> Result<T, Diagnostic> {
    deserialize_at(table, &KeyPath::default(), origins)
}

/// Like [`deserialize`] for the value at a path of the table, which must be there.
pub fn deserialize_at<T: DeserializeOwned>(
    table: &Table,
    at: &KeyPath,
    origins: &Origins,
) -> Result<T, Diagnostic> {
    let mut table = table.clone();
    normalise(&mut table);
    let value = if at.is_root() {
        Some(Value::Table(table.clone()))
    } else {
        at.find(&table).cloned()
    };
    let read =
        serde_path_to_error::deserialize(value.unwrap_or_else(|| Value::Table(Table::new())));
    read.map_err(|error| {
        Refusal {
            path: resolve(&table, at, error.path()),
            table: &table,
            origins,
        }
        .explain(error.inner().message())
    })
}

/// The part of serde's path below `at` that exists in the table.
fn resolve(table: &Table, at: &KeyPath, path: &serde_path_to_error::Path) -> KeyPath {
    let mut out = at.clone();
    for segment in path.iter() {
        let next = match segment {
            serde_path_to_error::Segment::Seq { index } => out.child(index.to_string()),
            serde_path_to_error::Segment::Map { key } => out.child(key),
            serde_path_to_error::Segment::Enum { variant } => out.child(variant),
            serde_path_to_error::Segment::Unknown => continue,
        };
        if next.find(table).is_some() {
            out = next;
        }
    }
    out
}

/// A table that serde refused, and how far it got.
struct Refusal<'a> {
    path: KeyPath,
    table: &'a Table,
    origins: &'a Origins,
}

impl Refusal<'_> {
    fn explain(&self, message: &str) -> Diagnostic {
        let after = |start: &str| message.strip_prefix(start);
        if let Some((name, expected)) = after("unknown field `").and_then(name_and_expected) {
            return self.unknown_key(name, &ticked(expected));
        }
        if let Some((name, expected)) = after("unknown variant `").and_then(name_and_expected) {
            return self.unknown_variant(name, &ticked(expected));
        }
        if let Some(name) = after("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            return self.missing_key(name);
        }
        if let Some(expected) =
            after("invalid type: ").and_then(|rest| Some(rest.rsplit_once(", expected ")?.1))
        {
            return self.wrong_type(expected);
        }
        if let Some(expected) =
            after("invalid value: ").and_then(|rest| Some(rest.rsplit_once(", expected ")?.1))
        {
            return self
                .value_error(|key, value| format!("{key} cannot be {value}"))
                .with_allowed(friendly(expected));
        }
        if let Some((len, expected)) =
            after("invalid length ").and_then(|rest| rest.rsplit_once(", expected "))
        {
            return self
                .value_error(|key, _| format!("{key} has the wrong length {len}"))
                .with_allowed(friendly(expected));
        }
        if message.starts_with("wanted exactly 1 element") {
            return self.wrong_type("a string");
        }
        self.value_error(|key, _| format!("{key}: {message}"))
    }

    fn name_of(&self, path: &KeyPath) -> String {
        if path.is_root() {
            "the configuration".to_owned()
        } else {
            format!("`{path}`")
        }
    }

    fn value_error(&self, problem: impl FnOnce(&str, &str) -> String) -> Diagnostic {
        let found = self.origins.find(&self.path);
        let value = self
            .path
            .find(self.table)
            .map(describe_value)
            .unwrap_or_default();
        let diagnostic = Diagnostic::new(
            self.origins.value_place(&found),
            problem(&self.name_of(&self.path), &value),
        );
        diagnostic
            .with_key(self.path.to_string())
            .with_value(value)
            .with_axis(&found)
    }

    fn unknown_key(&self, name: &str, allowed: &[String]) -> Diagnostic {
        let own = self.path.last() == name
            && self
                .path
                .parent()
                .find_table(self.table)
                .is_some_and(|t| t.contains_key(name));
        let path = if own {
            self.path.clone()
        } else {
            self.path.child(name)
        };
        let above = path.parent();
        let place = if above.is_root() {
            "at the top level".to_owned()
        } else {
            format!("in `{above}`")
        };
        let found = self.origins.find(&path);
        let diagnostic = Diagnostic::new(
            self.origins.key_place(&found),
            format!("unknown key `{name}` {place}"),
        );
        let list = if allowed.is_empty() {
            "no keys".to_owned()
        } else {
            allowed.join(", ")
        };
        let help = self
            .stale_kind(&above, &path)
            .or_else(|| Some(format!("did you mean `{}`?", closest(name, allowed)?)));
        let help = help.or_else(|| self.uneven_axis(&above, &found));
        diagnostic
            .with_key(path.to_string())
            .with_allowed(list)
            .with_axis(&found)
            .with_help(help.unwrap_or_default())
    }

    /// A hint for a table whose `kind` alone was set by an override or an axis, so that other keys
    /// of it belong to another kind.
    fn stale_kind(&self, table: &KeyPath, key: &KeyPath) -> Option<String> {
        let kind = self.origins.find(&table.child("kind"));
        let whole = self.origins.find(table);
        let key = self.origins.find(key);
        let value = describe_value(table.child("kind").find(self.table)?);
        if table.is_root() || !kind.exact {
            return None;
        }
        if kind.axis.is_some() && kind.axis != whole.axis {
            return Some(format!(
                "`kind` is set by an axis; use whole tables: {AXES}.{} = [{{ kind = {value} }}, \
                 ...]",
                quoted(&table.to_string())
            ));
        }
        let argument = kind.argument.filter(|argument| {
            whole.argument.as_ref() != Some(argument) && key.argument.as_ref() != Some(argument)
        })?;
        Some(format!(
            "`{argument}` sets `kind` only; replace the whole table: {table}={{kind={value}}}"
        ))
    }

    /// A hint for an axis inside the tables of another one, some of which have no such key.
    fn uneven_axis(&self, table: &KeyPath, key: &Found) -> Option<String> {
        let (outer, ..) = self.origins.find(table).axis?;
        let (inner, ..) = key.axis.as_ref().filter(|(inner, ..)| *inner != outer)?;
        Some(format!(
            "axis `{inner}` does not fit every value of axis `{outer}`: write its values inside \
             those that have the key"
        ))
    }

    fn missing_key(&self, name: &str) -> Diagnostic {
        let found = self.origins.find(&self.path);
        let place = if self.path.is_root() {
            self.origins.document().whole()
        } else {
            self.origins.table_place(&found)
        };
        let diagnostic = Diagnostic::new(
            place,
            format!("missing key `{name}` in {}", self.name_of(&self.path)),
        );
        let siblings = self
            .path
            .find_table(self.table)
            .map(|table| table.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default();
        let help = match (closest(name, &siblings), self.path.is_root()) {
            (Some(sibling), _) => format!("is `{sibling}` meant to be `{name}`?"),
            (None, true) => {
                format!("add `{name} = ...` above the first table, or a table [{name}]")
            }
            (None, false) => format!("add `{name} = ...` to `{}`", self.path),
        };
        let help = self
            .stale_kind(&self.path, &self.path.child(name))
            .unwrap_or(help);
        diagnostic
            .with_key(self.path.child(name).to_string())
            .with_axis(&found)
            .with_help(help)
    }

    fn unknown_variant(&self, name: &str, allowed: &[String]) -> Diagnostic {
        let kind = self.path.child("kind");
        let tagged = kind.find(self.table).and_then(Value::as_str) == Some(name);
        let refusal = Refusal {
            path: if tagged { kind } else { self.path.clone() },
            ..*self
        };
        let above = refusal.path.parent();
        let is_kind = refusal.path.last() == "kind" && !above.is_root();
        let problem = |key: &str, _: &str| match is_kind {
            true => format!("unknown kind `{name}` in `{above}`"),
            false => format!("{key} cannot be `{name}`"),
        };
        let help = closest(name, allowed)
            .map(|meant| format!("did you mean `{meant}`?"))
            .unwrap_or_default();
        refusal
            .value_error(problem)
            .with_allowed(allowed.join(", "))
            .with_help(help)
    }

    fn wrong_type(&self, expected: &str) -> Diagnostic {
        let wanted = friendly(expected);
        let Some(value) = self.path.find(self.table) else {
            return self.value_error(|key, _| format!("{key} must be {wanted}"));
        };
        let help = mend(value, expected, self.path.last()).unwrap_or_default();
        let problem = |key: &str, _: &str| {
            format!(
                "{key} must be {}, not {}",
                wanted.split(',').next().unwrap_or(&wanted),
                type_name(value)
            )
        };
        self.value_error(problem)
            .with_allowed(wanted.as_str())
            .with_help(help)
    }
}

/// `x`, expected one of `a`, `b`  ->  x and the rest. The name comes first and may hold anything,
/// so the last match counts.
fn name_and_expected(rest: &str) -> Option<(&str, &str)> {
    rest.rsplit_once("`, expected ")
        .or_else(|| rest.rsplit_once("`, there are no "))
}

/// The names in backticks.
fn ticked(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Rust's name of a type in words.
fn friendly(expected: &str) -> String {
    let words = match expected {
        "u8" => "a whole number, 0 to 255",
        "u16" => "a whole number, 0 to 65535",
        "u32" => "a whole number, 0 to 4294967295",
        "u64" | "usize" | "u128" => "a whole number, 0 or more",
        "i8" => "a whole number, -128 to 127",
        "i16" => "a whole number, -32768 to 32767",
        "i32" => "a whole number, -2147483648 to 2147483647",
        "i64" | "isize" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" | "string only" | "string or table" => "a text",
        "fewer elements in array" => "a shorter list",
        "fewer elements in map" => "fewer keys",
        "a sequence" => "a list",
        "a map" => "a table",
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.starts_with("a nonzero ") => "a whole number, 1 or more",
        _ => "",
    };
    let counted = expected
        .strip_prefix("an array of length ")
        .or_else(|| expected.strip_prefix("a tuple of size "));
    match counted {
        Some(count) => format!("a list of {count}"),
        None if words.is_empty() => expected.to_owned(),
        None => words.to_owned(),
    }
}

/// How to write a value of the wrong type.
fn mend(value: &Value, expected: &str, key: &str) -> Option<String> {
    let wanted = friendly(expected);
    let whole = wanted.starts_with("a whole number");
    let set = if key.parse::<usize>().is_ok() {
        String::new()
    } else {
        format!("{key} = ")
    };
    match value {
        Value::String(text) if whole || wanted == "a number" => {
            let number = text.trim().replace('_', "");
            let fits = if whole {
                number.parse::<i64>().is_ok()
            } else {
                number.parse::<f64>().is_ok_and(f64::is_finite)
            };
            fits.then(|| format!("remove the quotes: {set}{number}"))
        }
        Value::String(text) if wanted == "true or false" => {
            let truth = text.trim().to_lowercase();
            matches!(truth.as_str(), "true" | "false").then(|| format!("write {set}{truth}"))
        }
        Value::String(text) if expected.contains("kind") => Some(format!(
            "write {set}{{ kind = {} }}",
            quoted(&visible(text, 60))
        )),
        Value::Float(number) if whole && number.fract() == 0.0 && number.abs() < 1e15 => {
            Some(format!("write {set}{}", *number as i64))
        }
        Value::Table(_) | Value::Array(_) => None,
        other if wanted.starts_with("a list") => {
            Some(format!("write a list: {set}[{}]", describe_value(other)))
        }
        other if wanted == "a text" && key != "kind" => {
            Some(format!("write {set}{}", quoted(&describe_value(other))))
        }
        _ => None,
    }
}
