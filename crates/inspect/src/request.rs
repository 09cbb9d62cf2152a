//! What to show, read and checked like a config.

use crate::subject::Subject;
use config::diagnostic::{Diagnostic, Location, Problem, TableName, closest, deserialize};
use config::key_path::KeyPath;
use config::source::Source;

use experiment::plan::hints::other_kind;
use posenc::{ConfigError, EncodingConfig, Lengths, ModelShape, RopeScaling};
use serde::Deserialize;
use support::exit::Failure;
use tiny_transformer::TransformerConfig;
use toml::{Table, Value};

/// Keys that belong to the model; all others belong to the encoding.
const MODEL_KEYS: [&str; 4] = ["d_model", "n_heads", "head_dim", "n_layers"];

/// Largest position and length: angles in f64 keep seven digits up to here.
pub const MAX_LENGTH: usize = 1_000_000_000;

/// Most positions shown.
const MAX_POSITIONS: usize = 4096;

/// Most numbers of one result.
const MAX_NUMBERS: usize = 1 << 24;

/// Most numbers of one parameter table.
const MAX_PARAMETERS: usize = 1 << 26;

/// What to show, as typed.
#[derive(Clone, Debug)]
pub struct Request {
    /// An encoding of `longreach list encodings`.
    pub kind: String,
    /// Keys of the encoding and of the model, `KEY=VALUE`.
    pub keys: Vec<String>,
    /// Positions to show, with commas between them; 0 to 3 unless given.
    pub positions: Option<String>,
    /// Length of the sequence, in tokens; the training length unless given.
    pub seq_len: Option<usize>,
    /// Training length, in tokens.
    pub train_len: usize,
}

/// Parses `--positions`; every mistake is named.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for anything that is not a list of positions.
pub fn positions(typed: Option<&str>) -> Result<Vec<f64>, Failure> {
    let Some(typed) = typed else {
        return Ok(vec![0.0, 1.0, 2.0, 3.0]);
    };
    let refuse = |problem: String, value: &str| {
        let place = Location::argument(format!("--positions {typed}"));
        let allowed = format!(
            "1 to {MAX_POSITIONS} numbers from 0 to {MAX_LENGTH}, with commas between them"
        );
        Err(Diagnostic::new(place, problem)
            .with_key("--positions")
            .with_value(value)
            .with_allowed(allowed)
            .with_help("write --positions 0,1,4095")
            .into())
    };
    if typed.trim().is_empty() {
        return refuse("no positions to show".to_owned(), "an empty list");
    }
    let count = typed.split(',').count();
    if count > MAX_POSITIONS {
        return refuse(
            "too many positions".to_owned(),
            &format!("{count} positions"),
        );
    }
    let mut positions = Vec::with_capacity(count);
    for word in typed.split(',').map(str::trim) {
        match word.parse::<f64>() {
            Ok(position)
                if position.is_finite() && (0.0..=MAX_LENGTH as f64).contains(&position) =>
            {
                // -0 is in range and shown as 0.
                positions.push(position.abs())
            }
            Ok(_) => return refuse(format!("position {word} is out of range"), word),
            Err(_) if word.is_empty() => {
                return refuse("a position is missing between two commas".to_owned(), typed);
            }
            Err(_) => return refuse(format!("`{word}` is not a number"), word),
        }
    }
    Ok(positions)
}

/// Checks a length.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if it is out of range.
pub fn length(name: &str, value: usize) -> Result<(), Failure> {
    if (1..=MAX_LENGTH).contains(&value) {
        return Ok(());
    }
    let place = Location::argument(format!("{name} {value}"));
    let diagnostic = Diagnostic::new(place, format!("{name} is out of range"))
        .with_key(name)
        .with_value(value);
    Err(diagnostic
        .with_allowed(format!("a whole number from 1 to {MAX_LENGTH}"))
        .with_help(format!("write {name} 512"))
        .into())
}

/// Sizes of the model from the command line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    d_model: Option<usize>,
    #[serde(default = "four")]
    n_heads: usize,
    head_dim: Option<usize>,
    #[serde(default = "two")]
    n_layers: usize,
}

fn four() -> usize {
    4
}

fn two() -> usize {
    2
}

/// The command line, which errors point at.
pub struct Command<'a>(pub &'a Request);

impl Command<'_> {
    /// The command as it was typed.
    pub fn shown(&self) -> String {
        let words = [&self.0.kind].into_iter().chain(&self.0.keys);
        words.fold("inspect".to_owned(), |line, word| line + " " + word)
    }

    /// The encoding and the sizes, with every default filled in and checked.
    ///
    /// # Errors
    ///
    /// [`Exit::Config`](support::exit::Exit::Config) for a key that cannot work.
    pub fn subject(&self, positions: &[f64]) -> Result<Subject, Failure> {
        let source = self.source()?;
        let mut table = source.table().clone();
        // Sizes are taken out of the table; what is left must be keys of the encoding.
        let sizes: Table = MODEL_KEYS
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), table.remove(*key)?)))
            .collect();
        let sizes: Sizes =
            deserialize(&sizes, source.origins()).map_err(|error| self.adapt(error))?;
        let mut config: EncodingConfig =
            deserialize(&table, source.origins()).map_err(|error| self.adapt(error))?;
        let shape = self.shape(&source, &sizes)?;
        let seq_len = self.seq_len(positions)?;
        let lengths = Lengths {
            train_len: self.0.train_len,
            trained_len: self.0.train_len,
            test_len: seq_len,
        };
        // Values such as factor = "auto" follow from the lengths, so they come before the check.
        config.resolve(&lengths);
        config
            .check(&shape)
            .map_err(|error| self.refused(&source, &error))?;
        let subject = Subject {
            config,
            shape,
            lengths,
            path: vec!["encoding".to_owned()],
        };
        self.check_limits(&subject, positions)?;
        Ok(subject)
    }

    /// The keys as a table of this kind.
    fn source(&self) -> Result<Source, Failure> {
        let kind = self.0.kind.as_str();
        if !EncodingConfig::KINDS.contains(&kind) {
            let kinds: Vec<String> = EncodingConfig::KINDS
                .iter()
                .map(|kind| (*kind).to_owned())
                .collect();
            let inspected = || match RopeScaling::KINDS.contains(&kind) {
                true => Some(format!(
                    "`{kind}` is a scaling of rope: longreach inspect rope 'scaling={{kind=\"{kind}\"}}'"
                )),
                false if kind.ends_with(".json") => Some(format!(
                    "for the file of a published model: longreach inspect --model-config {kind}"
                )),
                false => other_kind(kind, &KeyPath::default()),
            };
            let near = || closest(kind, &kinds).map(|meant| format!("did you mean `{meant}`?"));
            let help = inspected().or_else(near);
            let help =
                help.unwrap_or_else(|| "`longreach list encodings` describes them".to_owned());
            let place = Location::argument(self.shown());
            let diagnostic = Diagnostic::new(place, format!("unknown encoding `{kind}`"))
                .with_key("kind")
                .with_value(kind);
            return Err(diagnostic
                .with_allowed(kinds.join(", "))
                .with_help(help)
                .into());
        }
        let mut source = Source::parse("inspect", format!("kind = \"{kind}\"\n").as_bytes())?;
        for text in &self.0.keys {
            // Keys may be written as in a config.
            let bare = ["model.pe.", "pe.", "model."]
                .iter()
                .find_map(|prefix| text.strip_prefix(prefix))
                .unwrap_or(text);
            source.apply_override_such_as(bare, "base=500000")?;
        }
        if source.get("kind").and_then(Value::as_str) != Some(kind) {
            let error = source.error(
                "kind",
                "is set twice",
                "the first argument alone",
                "write the encoding once: longreach inspect KIND",
            );
            return Err(self.adapt(error));
        }
        Ok(source)
    }

    fn shape(&self, source: &Source, sizes: &Sizes) -> Result<ModelShape, Failure> {
        let Sizes {
            n_heads, n_layers, ..
        } = *sizes;
        // What is 0 is refused below, under its own name.
        let by_heads = |head_dim: usize| n_heads.max(1).saturating_mul(head_dim.max(1));
        let (d_model, head_dim) = match (sizes.d_model, sizes.head_dim) {
            (Some(d_model), Some(head_dim)) => (d_model, head_dim),
            (None, Some(head_dim)) => (by_heads(head_dim), head_dim),
            // A width of 64 if the heads divide it, else 16 per head.
            (None, None) if 64usize.is_multiple_of(n_heads.max(1)) => (64, 64 / n_heads.max(1)),
            (None, None) => (by_heads(16), 16),
            (Some(d_model), None) => (d_model, (d_model / n_heads.max(1)).max(1)),
        };
        // Only the sizes an encoding sees matter here.
        let model = TransformerConfig::new(1)
            .with_d_model(d_model)
            .with_heads(n_heads)
            .with_layers(n_layers)
            .with_head_dim(head_dim)
            .with_d_ff(1);
        model
            .check()
            .map_err(|error| self.refused(source, &error))?;
        if sizes.head_dim.is_none() && !d_model.is_multiple_of(n_heads) {
            let divisors = || (1..=d_model.min(1024)).filter(|n| d_model.is_multiple_of(*n));
            let nearest = divisors().min_by_key(|n| n.abs_diff(n_heads)).unwrap_or(1);
            let allowed = divisors()
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            let problem = format!("must divide d_model = {d_model}");
            let help = format!("set n_heads={nearest}, or give head_dim");
            return Err(self.adapt(
                source
                    .error("n_heads", &problem, &allowed, &help)
                    .with_value(n_heads),
            ));
        }
        Ok(model.shape())
    }

    /// Checks the limits of the encoding and of one result.
    fn check_limits(&self, subject: &Subject, positions: &[f64]) -> Result<(), Failure> {
        let facts = subject.facts();
        if let Some(limit) = facts.max_position_without_axes() {
            self.check_table(limit, facts.reads_length, subject, positions)?;
        }
        let parameters = facts.num_params();
        if parameters > MAX_PARAMETERS {
            let largest = facts
                .parameters
                .iter()
                .max_by_key(|(_, shape)| shape.iter().product::<usize>());
            let (path, shape) = largest.map_or_else(Default::default, |(path, shape)| {
                (path.clone(), format!("{shape:?}"))
            });
            let place = Location::argument(self.shown());
            return Err(
                Diagnostic::new(place, format!("`{path}` is too large to show"))
                    .with_key(&path)
                    .with_value(shape)
                    .with_allowed(format!("at most {MAX_PARAMETERS} numbers"))
                    .with_help("choose a smaller max_position or d_model")
                    .into(),
            );
        }
        let numbers = subject.count(positions.len());
        if numbers > MAX_NUMBERS {
            let value = format!("{} positions, {numbers} numbers", positions.len());
            let problem = "the result is too large to show";
            return Err(Diagnostic::new(self.typed_positions(), problem)
                .with_key("--positions")
                .with_value(value)
                .with_allowed(format!("at most {MAX_NUMBERS} numbers"))
                .with_help("ask for fewer positions, or set a smaller n_heads or d_model")
                .into());
        }
        Ok(())
    }

    /// Checks positions and length against a table of `limit` rows.
    fn check_table(
        &self,
        limit: usize,
        reads_length: bool,
        subject: &Subject,
        positions: &[f64],
    ) -> Result<(), Failure> {
        // A table has one row for each whole position below its limit.
        let past = |p: &&f64| p.fract() != 0.0 || **p >= limit as f64;
        if let Some(position) = positions.iter().find(past) {
            let (problem, help) = if position.fract() == 0.0 {
                (
                    format!("position {position} is past the table: max_position = {limit}"),
                    format!("set max_position={}", position + 1.0),
                )
            } else {
                (
                    format!("position {position} has no row in a table of whole positions"),
                    "round it".to_owned(),
                )
            };
            let allowed = format!(
                "whole numbers from 0 to {} (max_position = {limit})",
                limit.saturating_sub(1)
            );
            return Err(Diagnostic::new(self.typed_positions(), problem)
                .with_key("--positions")
                .with_value(position)
                .with_allowed(allowed)
                .with_help(help)
                .into());
        }
        let seq_len = subject.lengths.test_len;
        if reads_length && seq_len > limit {
            let place = Location::argument(format!("--seq-len {seq_len}"));
            let problem =
                format!("a sequence of {seq_len} tokens is past the table: max_position = {limit}");
            return Err(Diagnostic::new(place, problem)
                .with_key("--seq-len")
                .with_value(seq_len)
                .with_allowed(format!("1 to {limit}"))
                .with_help(format!("set max_position={seq_len}"))
                .into());
        }
        Ok(())
    }

    /// The length of the sequence, which holds all positions.
    fn seq_len(&self, positions: &[f64]) -> Result<usize, Failure> {
        let largest = positions.iter().copied().fold(0.0, f64::max);
        let least = (largest + 1.0).ceil() as usize;
        match self.0.seq_len {
            Some(seq_len) if seq_len < least => {
                let place = Location::argument(format!("--seq-len {seq_len}"));
                let problem = format!("position {largest} is past the end of the sequence");
                let help = format!("write --seq-len {least}, or smaller --positions");
                Err(Diagnostic::new(place, problem)
                    .with_key("--seq-len")
                    .with_value(seq_len)
                    .with_allowed(format!("at least {least}, the largest position plus one"))
                    .with_help(help)
                    .into())
            }
            Some(seq_len) => Ok(seq_len),
            None => Ok(self.0.train_len.max(least)),
        }
    }

    fn typed_positions(&self) -> Location {
        let positions = self.0.positions.as_deref().unwrap_or("0,1,2,3");
        Location::argument(format!("--positions {positions}"))
    }

    fn refused(&self, source: &Source, error: &ConfigError) -> Failure {
        self.adapt(
            source
                .error(&error.key, &error.problem, &error.allowed, &error.hint)
                .with_value(&error.value),
        )
    }

    /// Turns an error of the config reader into one of this command line.
    fn adapt(&self, mut diagnostic: Diagnostic) -> Failure {
        if !matches!(diagnostic.place, Location::CommandLine { .. }) {
            diagnostic.place = Location::argument(self.shown());
        }
        let encoding = || TableName::Named(format!("encoding `{}`", self.0.kind));
        match &mut diagnostic.problem {
            Problem::UnknownKey { name, table, known } if *table == TableName::Document => {
                *table = encoding();
                let keys: Vec<String> = known
                    .iter()
                    .cloned()
                    .chain(MODEL_KEYS.map(str::to_owned))
                    .collect();
                let own = known.join(", ");
                let model = format!("of the model: {}", MODEL_KEYS.join(", "));
                let meant = closest(name, &keys).map(|meant| format!("did you mean `{meant}`?"));
                diagnostic.help = diagnostic.help.take().or(meant);
                diagnostic.allowed = Some(if own.is_empty() {
                    model
                } else {
                    format!("{own}; {model}")
                });
            }
            Problem::MissingKey { name, table } if *table == TableName::Document => {
                *table = encoding();
                let example = if name == "parts" {
                    "'parts=[{kind=\"rope\"},{kind=\"alibi\"}]'".to_owned()
                } else {
                    format!("{name}=...")
                };
                diagnostic.help = Some(format!("write {example} after `inspect {}`", self.0.kind));
            }
            _ => {}
        }
        diagnostic.into()
    }
}
