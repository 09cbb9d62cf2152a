//! `longreach new`: a commented config to start from, with the schema by which editors complete it.

use crate::commands::list::SHAPE;
use crate::commands::schema::schema;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use config::diagnostic::{Diagnostic, Location};
use config::key_path::KeyPath;
use config::shipped::{SHIPPED, Shipped};
use experiment::plan;
use experiment::plan::hints::other_kind;
use experiment::plan::keys::{KEYS, Key, Kind};
use posenc::EncodingConfig;
use records::toml_text::{inline, key as toml_key};
use schema::text::excerpt;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use support::temporary;
use support::units::quoted;
use tasks::TaskConfig;

/// The schema beside a config.
pub const SCHEMA_FILE: &str = "longreach.schema.json";

/// Characters before a comment, where there is room.
const COMMENT: usize = 35;

/// Write a commented config to start from
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the experiment; the file is NAME.toml
    #[arg(required_unless_present = "from")]
    name: Option<String>,
    /// A config that comes with longreach (`longreach list configs`) in place of a blank one
    #[arg(long, value_name = "CONFIG", conflicts_with_all = ["task", "pe"],
          value_parser = PossibleValuesParser::new(SHIPPED.iter().map(|shipped| shipped.name)))]
    from: Option<String>,
    /// What the model learns
    #[arg(long, default_value = "text", value_name = "KIND",
          value_parser = PossibleValuesParser::new(TaskConfig::KINDS), hide_possible_values = true)]
    task: String,
    /// Encodings to compare; several become an axis
    #[arg(long, default_value = "rope", value_name = "KINDS", value_delimiter = ',',
          value_parser = Encodings,
          hide_possible_values = true)]
    pe: Vec<String>,
    /// Directory to write to
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

const EXAMPLES: &str = r#"Examples:
  longreach new theta                                   # text and rope
  longreach new digits --task addition --pe rope,alibi  # two encodings on a task
  longreach new --from quickstart                       # a config that comes with longreach

The kinds are those of `longreach list tasks` and `longreach list encodings`. A schema,
longreach.schema.json, is written beside the config: editors with a TOML language server (Even
Better TOML, Taplo) complete and explain keys by it."#;

/// Kinds of encodings; what is a kind of something else is refused with a hint.
#[derive(Clone)]
struct Encodings;

impl TypedValueParser for Encodings {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let name = excerpt(&value.to_string_lossy());
        if let Some(hint) = other_kind(&name, &KeyPath::new(["model", "pe"])) {
            let message = format!("unknown encoding `{name}` in '--pe'\n  = help: {hint}\n");
            return Err(clap::Error::raw(ErrorKind::InvalidValue, message));
        }
        PossibleValuesParser::new(EncodingConfig::KINDS).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            EncodingConfig::KINDS
                .iter()
                .copied()
                .map(PossibleValue::new),
        ))
    }
}

/// Writes the config and its schema, both whole or not at all.
///
/// # Errors
///
/// [`Exit::Config`] for an invalid name, encodings that do not fit the task, or a file that
/// is there already; [`Exit::Resources`] if the directory cannot be written.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let Args {
        name,
        from,
        task,
        pe,
        dir,
    } = arguments;
    let shipped = from
        .as_deref()
        .and_then(|from| Shipped::named(from.as_ref()));
    let name = name.as_deref().or(from.as_deref()).unwrap_or_default();
    // Some give the name of the file.
    let name = name.strip_suffix(".toml").unwrap_or(name);
    let text = match shipped {
        Some(shipped) => renamed(shipped, name)?,
        None => fitting(name, task, pe)?,
    };
    let file = format!("{name}.toml");
    let path = match dir.as_path() == Path::new(".") {
        true => PathBuf::from(file),
        false => dir.join(file),
    };
    if path.symlink_metadata().is_ok() {
        return Err(
            Failure::config(format!("{} is there already", path.display()))
                .with_help("choose another name, or remove it"),
        );
    }
    let disk = rundir::system();
    disk.create_dirs(dir)?;
    let schema = console::json(&schema())? + "\n";
    for (path, text) in [(dir.join(SCHEMA_FILE), &schema), (path.clone(), &text)] {
        disk.write_whole(&path, text.as_bytes())?;
    }
    let word = quoted(&path.to_string_lossy());
    console::print(&format!(
        "wrote {}\n\n  longreach check {word}  # what would run, and at what cost\n  longreach \
         run {word}    # train, test long, report",
        path.display()
    ));
    Ok(Exit::Done)
}

/// A config that comes with the program, under another name.
fn renamed(shipped: &Shipped, name: &str) -> Result<String, Failure> {
    let key = |name: &str| format!("name = {}\n", inline(&name.into()));
    let text = shipped.text.replacen(&key(shipped.name), &key(name), 1);
    check(&text)?;
    Ok(format!("#:schema ./{SCHEMA_FILE}\n{text}"))
}

/// The config with the first lengths that the task has rows of.
fn fitting(name: &str, task: &str, pe: &[String]) -> Result<String, Failure> {
    let mut configs = LENGTHS
        .iter()
        .map(|lengths| config(name, task, pe, lengths));
    let first = configs.next().unwrap_or_default();
    let Err(failure) = check(&first) else {
        return Ok(first);
    };
    let fits = |text: &String| check(text).is_ok();
    configs.find(fits).ok_or(failure)
}

/// Plans the config elsewhere, so that nothing is written that could not run.
fn check(text: &str) -> Result<(), Failure> {
    let scratch = temporary::directory()?;
    let path = scratch.path().join("new.toml");
    std::fs::write(&path, text).map_err(Failure::resources)?;
    match plan(&path, &[]) {
        // The files of a task are for its author to write.
        Err(mistakes) if mistakes.exit == Exit::Input => Ok(()),
        Err(mistakes) => {
            let mut mistake = Diagnostic::clone(&mistakes);
            // Nobody has seen the file that it is in.
            mistake.place = Location::Nowhere;
            if mistake.key.take().as_deref() == Some("model.coordinates") {
                (mistake.value, mistake.allowed) = (None, None);
                // It names the first run, whose encoding need not be the one that reads them.
                mistake.notes.clear();
                mistake.help = Some("name a task that has them: --task grid".to_owned());
            }
            Err(mistake.into())
        }
        Ok(_) => Ok(()),
    }
}

/// The shortest and the longest length to train on, and those to test at; text has others.
type Lengths = [&'static str; 3];

/// Lengths to try, since some tasks have no short rows.
pub const LENGTHS: [Lengths; 4] = [
    ["1", "16", "[8, 16, 32, 64]"],
    ["2", "16", "[8, 16, 32, 64]"],
    ["16", "32", "[16, 32, 64, 128]"],
    ["53", "64", "[64, 128, 256]"],
];

/// The config: what must be there, and every other key with its default in a comment.
pub fn config(name: &str, task: &str, pe: &[String], lengths: &Lengths) -> String {
    let chosen = Chosen {
        name,
        task,
        pe,
        lengths,
    };
    let mut out = format!(
        "#:schema ./{SCHEMA_FILE}\n\
         # longreach check {name}.toml        # what would run, and at what cost\n\
         # longreach run {name}.toml          # train, test long, report\n\
         # longreach config show {name}.toml  # every value, and where it comes from\n\
         #\n\
         # A key in a comment shows its default, or an example where no value is the default.\n\n"
    );
    for section in ["", "task", "model", "train", "eval", "report"] {
        if section == "task" {
            out.push_str(&task_section(task));
            continue;
        }
        if section == "report" {
            // As the other tables, but nothing in it is needed.
            out.push_str("\n# [report]\n");
        } else if !section.is_empty() {
            let _ = writeln!(out, "\n[{section}]");
        }
        for key in KEYS.iter() {
            if let Some(line) = chosen.line(key, section) {
                out.push_str(&line);
            }
        }
        if section == "eval" {
            out.push_str(VARIANTS);
        }
    }
    out.push_str(&chosen.axes());
    out
}

const VARIANTS: &str = r#"
# [[eval.variants]]                 # the trained weights under a changed encoding
# name = "yarn"
# when = { kind = "rope" }
# set = { scaling = { kind = "yarn" } }
"#;

/// What was asked for.
struct Chosen<'a> {
    name: &'a str,
    task: &'a str,
    pe: &'a [String],
    lengths: &'a Lengths,
}

impl Chosen<'_> {
    /// The line of a key in its section; `None` for a key of another one.
    fn line(&self, key: &Key, section: &str) -> Option<String> {
        let own = match section {
            "" => Some(key.path).filter(|path| !path.contains('.')),
            _ => key.path.strip_prefix(section)?.strip_prefix('.'),
        }?;
        let is_table = matches!(key.kind, Kind::Task | Kind::Axes);
        if is_table || own.split('.').any(|part| part == "N") {
            return None;
        }
        let value = self.value(key.path);
        let comment = if value.is_some() { "" } else { "# " };
        let default = key.default.unwrap_or(key.example);
        let is_words = key.default.is_some() && key.default_value().is_none();
        let shown = if is_words { key.example } else { default };
        let written = format!("{comment}{own} = {}", value.as_deref().unwrap_or(shown));
        Some(format!(
            "{written:<COMMENT$} # {}\n",
            key.meaning.replace('`', "")
        ))
    }

    /// The value of a key that is not left at its default.
    fn value(&self, path: &str) -> Option<String> {
        let is_text = self.task.ends_with("text");
        Some(match path {
            "name" => inline(&self.name.into()),
            "seeds" => "[0, 1, 2]".to_owned(),
            "model.d_model" => "64".to_owned(),
            "model.n_layers" => self.layers().to_string(),
            "model.n_heads" => "4".to_owned(),
            "model.pe" => encoding(self.pe.first()?),
            "model.mask" if self.task == "masked_text" => "\"bidirectional\"".to_owned(),
            "model.coordinates" if self.needs_axes() => "\"task\"".to_owned(),
            "train.train_len" if is_text => "64".to_owned(),
            "train.train_len" => self.lengths[1].to_owned(),
            // One length would teach the length.
            "train.length" if !is_text => "\"uniform\"".to_owned(),
            "train.min_len" if !is_text && self.lengths[0] != "1" => self.lengths[0].to_owned(),
            "train.steps" => "2000".to_owned(),
            "eval.test_lens" if is_text => "[64, 128, 256, 512]".to_owned(),
            "eval.test_lens" => self.lengths[2].to_owned(),
            _ => return None,
        })
    }

    fn examples(&self) -> impl Iterator<Item = EncodingConfig> {
        self.pe
            .iter()
            .filter_map(|kind| EncodingConfig::example(kind))
    }

    /// Layers enough for every part of encodings by layer.
    fn layers(&self) -> usize {
        let is_enough = |layers: &usize| self.examples().all(|pe| pe.idle(*layers).is_empty());
        (2..8).find(is_enough).unwrap_or(2)
    }

    /// Whether an encoding has no meaning without coordinates, which only a task can give.
    fn needs_axes(&self) -> bool {
        self.examples().any(|mut config| {
            config.resolve(&posenc::Lengths {
                train_len: 16,
                trained_len: 16,
                test_len: 16,
            });
            config.facts(&SHAPE).needs_axes()
        })
    }

    fn axes(&self) -> String {
        if self.pe.len() < 2 {
            let axis = "# \"train.lr\" = [1e-3, 3e-3]";
            return format!("\n# [axes]  every combination is a run\n{axis}\n");
        }
        let values: Vec<String> = self
            .pe
            .iter()
            .map(|kind| format!("  {},\n", encoding(kind)))
            .collect();
        let lists = values.concat();
        format!("\n[axes]  # every combination is a run\n\"model.pe\" = [\n{lists}]\n")
    }
}

/// A table of this kind, with the keys that have no default.
fn encoding(kind: &str) -> String {
    let plain = format!("{{ kind = \"{kind}\" }}");
    if EncodingConfig::default_of(kind).is_some() {
        return plain;
    }
    let example = EncodingConfig::example(kind);
    example
        .and_then(|example| serde_json::to_value(example).ok())
        .map_or(plain, |table| inline(&table))
}

/// `[task]` with the keys of its kind.
fn task_section(kind: &str) -> String {
    let info = TaskConfig::kinds()
        .into_iter()
        .find(|info| info.kind == kind);
    let summary = info.map(|info| info.summary).unwrap_or_default();
    let written = format!("kind = \"{kind}\"");
    let mut out = format!("\n[task]\n{written:<COMMENT$} # {summary}\n");
    if kind.ends_with("text") {
        let files = "# files = [\"my/*.txt\"]";
        let what = "your own text; without it, the Rust sources that the program carries";
        let _ = writeln!(out, "{files:<COMMENT$} # {what}");
    }
    if kind == "jsonl" {
        out.push_str("train = [\"train.jsonl\"]\ntest = [\"test.jsonl\"]\n");
    }
    let defaults = TaskConfig::default_of(kind).and_then(|task| serde_json::to_value(task).ok());
    let Some(serde_json::Value::Object(keys)) = defaults else {
        return out;
    };
    for (key, value) in keys {
        // Lists of names would fill the page, and follow from other keys.
        if key != "kind" && !value.is_null() && !value.is_array() && key != "corpus" {
            let _ = writeln!(out, "# {} = {}", toml_key(&key), inline(&value));
        }
    }
    out
}
