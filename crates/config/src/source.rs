//! A configuration file, read under bounds, with the overrides applied so far.

use super::diagnostic::{Diagnostic, Location, closest, closest_first, describe_value};
use super::key_path::KeyPath;
use super::origins::{Document, Origins, Spot, convert_table};
use super::shipped::{SHIPPED, Shipped};
use super::syntax::syntax_error;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use support::exit::Exit;
use support::limits;
use toml::{Table, Value};

/// Largest configuration file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Most values that a file may hold, tables and lists counted as one each.
pub const MAX_FILE_VALUES: usize = 100_000;

/// Most dots that a file may hold: each may open another table, which the parser pays for
/// before anything can be counted.
const MAX_DOTS: usize = 50_000;

/// Longest text that a configuration may hold, in bytes: what fits into a path.
pub const MAX_TEXT: usize = 4096;

/// An override that could not be applied to the file because an axis will replace the table it
/// belongs to.
#[derive(Clone, Debug)]
pub(super) struct Deferred {
    pub(super) path: KeyPath,
    pub(super) problem: Diagnostic,
}

/// One `key=value` of the command line.
#[derive(Clone, Debug)]
pub(super) struct Override {
    pub(super) text: Arc<str>,
    pub(super) path: KeyPath,
    pub(super) value: Value,
    /// Whether it fixed an axis: values of other axes around its key stay as they are.
    pub(super) is_of_axis: bool,
}

/// An axis that overrides reduced to some of its entries. The runs keep the labels that they have
/// among all of them.
#[derive(Clone, Debug)]
pub(super) struct FixedAxis {
    /// The entries as they were.
    pub(super) entries: Vec<Value>,
    /// Which of them are left.
    pub(super) kept: Vec<usize>,
    /// The value of each key that was overridden, and how many overrides there were before: it
    /// overrides them too.
    pub(super) values: BTreeMap<KeyPath, (Value, usize)>,
}

/// A configuration file with the overrides applied so far.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) table: Table,
    pub(super) origins: Origins,
    pub(super) overrides: Vec<Override>,
    pub(super) deferred: Vec<Deferred>,
    /// By the key of the axis.
    pub(super) fixed: BTreeMap<String, FixedAxis>,
}

impl Source {
    /// Reads a file of at most [`MAX_BYTES`], or the config of that name which comes with the
    /// program.
    pub fn read(path: &Path) -> Result<Self, Diagnostic> {
        let name = path.display().to_string();
        let refuse = |problem: String, help: String| {
            Diagnostic::new(Location::File { file: name.clone() }, problem).with_help(help)
        };
        if let Some(shipped) = Shipped::named(path) {
            return Self::parse(&shipped.shown(), shipped.text.as_bytes());
        }
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                return Err(refuse(
                    "this is a folder, not a configuration file".into(),
                    nearby(path, None),
                ));
            }
            // Opening a pipe that nobody writes to would wait for ever. One that the shell has
            // opened for this process, as `<(command)`, ends.
            Ok(meta) if !meta.is_file() && !is_own_descriptor(path) => {
                return Err(refuse(
                    "this is not a regular file".into(),
                    "name a file, `<(command)` of a shell or /dev/stdin".into(),
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
        let unread = |error: std::io::Error| {
            let help = limits::too_many_files(&error).unwrap_or_default();
            let refused = refuse(format!("cannot be read: {error}"), help.into());
            match help {
                "" => refused,
                _ => refused.with_exit(Exit::Resources),
            }
        };
        let mut bytes = Vec::new();
        // One byte more than allowed shows that a file is too large; the rest is never read.
        let read = schema::file::open(path)
            .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
        read.map_err(unread)?;
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
            fixed: BTreeMap::new(),
        })
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

    pub(super) fn parsed_overrides(&self, from: usize) -> impl Iterator<Item = &Override> {
        let overrides = self.overrides.iter().skip(from);
        overrides.filter(|given| !given.is_of_axis)
    }

    /// Refuses an override that waited for an axis which is no longer there.
    pub(super) fn check_deferred(&self, axes: &[KeyPath]) -> Result<(), Diagnostic> {
        // No axis replaces the table now, so the override fails as it did when it was applied.
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

/// Number of values at and below one.
pub fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(array) => array.iter().map(count_values).sum(),
        Value::Table(table) => table.values().map(count_values).sum(),
        _ => 0,
    }
}

/// Whether a path names something that this process has open already.
fn is_own_descriptor(path: &Path) -> bool {
    ["/dev/fd/", "/proc/self/fd/", "/dev/stdin"]
        .iter()
        .any(|own| path.to_str().is_some_and(|path| path.starts_with(own)))
}

fn checked_text<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Diagnostic> {
    let refuse = |problem: String, help: &str| {
        Err(Diagnostic::new(
            Location::File {
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
    // UTF-16 without a byte order mark is valid UTF-8 where it is ASCII: every other byte is NUL.
    if let Some(at) = text.bytes().position(|b| b == 0) {
        return refuse(
            format!("the file holds a NUL byte at byte offset {at}"),
            "is it UTF-16 or binary? save it as UTF-8",
        );
    }
    // Dots in texts and comments count too: nothing is parsed yet.
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

/// The first value at or below `value` that no configuration may hold: nan, a number infinite in
/// single precision, a date, a text that is too long or that no terminal shows as it is.
pub(super) fn unusable<'a>(value: &'a Value, path: &KeyPath) -> Option<(KeyPath, &'a Value)> {
    match value {
        // The cast also makes infinity of f64 numbers that f32 cannot hold.
        Value::Float(x) if !(*x as f32).is_finite() => Some((path.clone(), value)),
        Value::Datetime(_) => Some((path.clone(), value)),
        Value::String(text) if text.len() > MAX_TEXT => Some((path.clone(), value)),
        Value::String(text) => {
            // Ends of lines and tabs end segments of a text.
            let ends = path.parent().last() == "segment_ends";
            let allowed = |c: char| ends && matches!(c, '\n' | '\r' | '\t');
            let deceiving = text.chars().any(|c| deceives(c) && !allowed(c));
            deceiving.then(|| (path.clone(), value))
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

pub(super) fn unusable_error(place: Location, path: &KeyPath, value: &Value) -> Diagnostic {
    let text = describe_value(value);
    let (problem, allowed, help) = match value {
        Value::Float(x) if x.is_finite() => (
            "is too large",
            "numbers from -3.4e38 to 3.4e38; the range of a key may be smaller",
            String::new(),
        ),
        Value::Float(_) => ("is not a finite number", "a finite number", String::new()),
        Value::String(text) if text.len() > MAX_TEXT => (
            "is too long",
            "strings of at most 4096 bytes",
            format!("it has {} bytes", text.len()),
        ),
        Value::String(_) => (
            "holds a control character",
            "strings of one line that can be seen",
            "remove it".to_owned(),
        ),
        _ => (
            "is a date",
            "numbers, strings, true, false, lists and tables",
            format!("write \"{text}\" for a string"),
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
    let stem = wanted.map(|wanted| wanted.trim_end_matches(".toml"));
    let bare = wanted.filter(|wanted| Some(*wanted) == stem);
    let file = bare.map(|bare| folder.join(format!("{bare}.toml")));
    if let Some(file) = file.filter(|file| file.is_file()) {
        let file = file.strip_prefix(".").unwrap_or(&file);
        return format!("did you mean {}?", file.display());
    }
    if let Some(shipped) = SHIPPED.iter().find(|shipped| Some(shipped.name) == stem) {
        let name = shipped.name;
        return format!(
            "`{name}` without a folder and `.toml` is the config of that name which comes with \
             longreach; `longreach new --from {name}` writes it to a file"
        );
    }
    // A name without `.toml` may be that of such a config, misspelt.
    let known: Vec<String> = SHIPPED
        .iter()
        .map(|shipped| shipped.name.to_owned())
        .collect();
    if let Some(name) = bare.and_then(|bare| closest(bare, &known)) {
        return format!("did you mean `{name}`, the config that comes with longreach?");
    }
    const SHOWN: usize = 8;
    const LOOKED_AT: usize = 1000;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return format!("there is no folder {}", folder.display());
    };
    // A folder may hold millions of files: a hint is not worth reading them all.
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
