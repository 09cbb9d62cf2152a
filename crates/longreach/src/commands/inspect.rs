//! `longreach inspect`: the numbers that define an encoding, computed by the code that trains, and
//! pictures of them.
//!
//! Keys are read as in a config and refused in the same words. `seq_len` is what length-reading
//! encodings see and what `factor = "auto"` is taken from; where `--seq-len` is shorter than the
//! largest position asked for, that position rules.

mod numbers;
mod pictures;
mod text;

use crate::config::diagnostic::{Diagnostic, Place, Problem, TableName, closest, deserialize};
use crate::config::source::Source;
use crate::console;
use crate::device::{self, DeviceName};
use crate::exit::{Exit, Failure};
use numbers::{Numbers, Subject};
use posenc::{ConfigError, EncodingConfig, Lengths, ModelShape};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tiny_transformer::{
    Activation, AttentionKind, FeatureMap, Mask, Matmul, NormKind, Normalizer, QkNorm,
    TransformerConfig,
};
use toml::{Table, Value};

/// Keys that belong to the model; all others belong to the encoding.
const MODEL_KEYS: [&str; 4] = ["d_model", "n_heads", "head_dim", "n_layers"];

/// Positions and lengths: angles in f64 keep seven digits up to here.
const MAX_LENGTH: usize = 1_000_000_000;
const MAX_POSITIONS: usize = 4096;
/// Numbers of one answer: a screen, a notebook, a test; not a data set.
const MAX_NUMBERS: usize = 1 << 24;
const MAX_PARAMETERS: usize = 1 << 26;

/// What is printed with `--json`.
#[derive(Debug, Serialize)]
struct Inspection {
    #[serde(flatten)]
    numbers: Numbers,
    positions: Vec<f64>,
    train_len: usize,
    seq_len: usize,
    model: Model,
    /// Pictures written, if any were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Model {
    d_model: usize,
    n_heads: usize,
    head_dim: usize,
    n_layers: usize,
}

/// Show the numbers that define an encoding, and pictures of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// An encoding of `longreach list encodings`
    kind: String,
    /// Keys of the encoding, and d_model, n_heads, head_dim or n_layers of the model: base=500000
    /// n_heads=12
    #[arg(value_name = "KEY=VALUE")]
    keys: Vec<String>,
    /// Positions to show; fractions are allowed where the encoding has them [default: 0,1,2,3]
    #[arg(long, value_name = "N,N,...", allow_hyphen_values = true)]
    positions: Option<String>,
    /// Length of the sequence, for encodings that read it and for factor = "auto"; at least the
    /// largest position plus one [default: the training length]
    #[arg(long, value_name = "N")]
    seq_len: Option<usize>,
    /// Training length, for scalings and pictures
    #[arg(long, value_name = "N", default_value_t = 512)]
    train_len: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write pictures (SVG and PNG) into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = r#"Examples:
  longreach inspect rope base=500000 --positions 0,1,4095 --json
  longreach inspect rope 'scaling={kind="yarn",factor=8}' --seq-len 4096 --out pictures
  longreach inspect alibi n_heads=12
  longreach inspect sinusoidal d_model=128 --positions 0,1,2"#;

/// Computes and prints the numbers, and writes pictures if asked to.
///
/// # Errors
///
/// [`Exit::Config`] for an unknown encoding or a key, position or length that cannot work;
/// [`Exit::Resources`] if the pictures cannot be written.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let command = Command(arguments);
    let positions = positions(arguments.positions.as_deref())?;
    length("--train-len", arguments.train_len)?;
    arguments
        .seq_len
        .map_or(Ok(()), |seq_len| length("--seq-len", seq_len))?;
    let subject = command.subject(&positions)?;
    let device = device::open(&DeviceName {
        kind: "cpu",
        index: None,
    })?;
    let numbers = numbers::gather(&subject, &positions, &device)?;
    let files = match &arguments.out {
        None => None,
        Some(directory) => Some(pictures::write(
            &subject,
            &numbers,
            &command.shown(),
            directory,
            &device,
        )?),
    };
    let ModelShape {
        d_model,
        n_layers,
        n_heads,
        head_dim,
    } = subject.shape;
    let Lengths {
        train_len,
        test_len: seq_len,
    } = subject.lengths;
    let model = Model {
        d_model,
        n_heads,
        head_dim,
        n_layers,
    };
    let inspection = Inspection {
        numbers,
        positions,
        train_len,
        seq_len,
        model,
        files,
    };
    let text = if arguments.json {
        console::json(&inspection)?
    } else {
        text::render(&inspection)
    };
    console::print(&text);
    Ok(Exit::Done)
}

/// Logits of equal tokens by distance under an encoding with the initial values of seed 0: one of
/// its pictures, as SVG.
///
/// # Errors
///
/// [`Exit::Bug`]: a hook gave a tensor that cannot be read.
pub fn response_svg(
    mut config: EncodingConfig,
    shape: ModelShape,
    train_len: usize,
    command: &str,
) -> Result<String, Failure> {
    let lengths = Lengths {
        train_len,
        test_len: train_len,
    };
    config.resolve(&lengths);
    let subject = Subject {
        config,
        shape,
        lengths,
        path: vec!["encoding".to_owned()],
    };
    let device = device::open(&DeviceName {
        kind: "cpu",
        index: None,
    })?;
    let numbers = numbers::gather(&subject, &[0.0], &device)?;
    Ok(pictures::response_svg(&subject, &numbers, command, &device))
}

/// The keys of an encoding as TOML would have them, without those that stand for nothing.
pub fn keys(config: &serde_json::Value) -> String {
    text::keys(config)
}

/// The positions as typed: distinct from a list of numbers in that every mistake can be named.
fn positions(typed: Option<&str>) -> Result<Vec<f64>, Failure> {
    let Some(typed) = typed else {
        return Ok(vec![0.0, 1.0, 2.0, 3.0]);
    };
    let refuse = |problem: String, value: &str| {
        let place = Place::CommandLine {
            argument: format!("--positions {typed}"),
        };
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

fn length(name: &str, value: usize) -> Result<(), Failure> {
    if (1..=MAX_LENGTH).contains(&value) {
        return Ok(());
    }
    let place = Place::CommandLine {
        argument: format!("{name} {value}"),
    };
    let diagnostic = Diagnostic::new(place, format!("{name} is out of range"))
        .with_key(name)
        .with_value(value);
    Err(diagnostic
        .with_allowed(format!("a whole number from 1 to {MAX_LENGTH}"))
        .with_help(format!("write {name} 512"))
        .into())
}

/// Sizes of the model as typed.
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

/// The command line, which every error points at.
struct Command<'a>(&'a Args);

impl Command<'_> {
    fn shown(&self) -> String {
        let words = [&self.0.kind].into_iter().chain(&self.0.keys);
        words.fold("inspect".to_owned(), |line, word| line + " " + word)
    }

    /// What to compute, with every default filled in and checked.
    fn subject(&self, positions: &[f64]) -> Result<Subject, Failure> {
        let source = self.source()?;
        let mut table = source.table().clone();
        let sizes: Table = MODEL_KEYS
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), table.remove(*key)?)))
            .collect();
        let sizes: Sizes =
            deserialize(&sizes, source.origins()).map_err(|error| self.told(error))?;
        let mut config: EncodingConfig =
            deserialize(&table, source.origins()).map_err(|error| self.told(error))?;
        let shape = self.shape(&source, &sizes)?;
        let largest = positions.iter().copied().fold(0.0, f64::max);
        let seq_len = self
            .0
            .seq_len
            .unwrap_or(self.0.train_len)
            .max((largest + 1.0).ceil() as usize);
        let lengths = Lengths {
            train_len: self.0.train_len,
            test_len: seq_len,
        };
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

    /// The keys over an otherwise empty table of this kind.
    fn source(&self) -> Result<Source, Failure> {
        let kind = self.0.kind.as_str();
        if !EncodingConfig::KINDS.contains(&kind) {
            let kinds: Vec<String> = EncodingConfig::KINDS
                .iter()
                .map(|kind| (*kind).to_owned())
                .collect();
            let help = closest(kind, &kinds).map(|meant| format!("did you mean `{meant}`?"));
            let help = help
                .unwrap_or_else(|| "`longreach list encodings` tells what each does".to_owned());
            let place = Place::CommandLine {
                argument: self.shown(),
            };
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
            let bare = ["model.pe.", "pe.", "model."]
                .iter()
                .find_map(|prefix| text.strip_prefix(prefix))
                .unwrap_or(text);
            source.apply_override(bare).map_err(|mut error| {
                error.help = error
                    .help
                    .take()
                    .map(|help| help.replace("train.steps=100", "base=500000"));
                error
            })?;
        }
        if source.get("kind").and_then(Value::as_str) != Some(kind) {
            let error = source.error(
                "kind",
                "is set twice",
                "the first argument alone",
                "write the encoding once: longreach inspect KIND",
            );
            return Err(self.told(error));
        }
        Ok(source)
    }

    fn shape(&self, source: &Source, sizes: &Sizes) -> Result<ModelShape, Failure> {
        let Sizes {
            n_heads, n_layers, ..
        } = *sizes;
        // No heads at all are refused below, under their own name.
        let by_heads = |head_dim: usize| n_heads.max(1).saturating_mul(head_dim);
        let (d_model, head_dim) = match (sizes.d_model, sizes.head_dim) {
            (Some(d_model), Some(head_dim)) => (d_model, head_dim),
            (None, Some(head_dim)) => (by_heads(head_dim), head_dim),
            (None, None) if 64usize.is_multiple_of(n_heads.max(1)) => (64, 64 / n_heads.max(1)),
            (None, None) => (by_heads(16), 16),
            (Some(d_model), None) => (d_model, (d_model / n_heads.max(1)).max(1)),
        };
        let model = TransformerConfig {
            vocab_size: 1,
            d_model,
            n_layers,
            n_heads,
            head_dim,
            d_ff: 1,
            norm: NormKind::default(),
            activation: Activation::default(),
            tied_head: false,
            dropout: 0.0,
            embedding_std: 0.02,
            attention: AttentionKind::default(),
            mask: Mask::default(),
            feature_map: FeatureMap::default(),
            normalizer: Normalizer::default(),
            qk_norm: QkNorm::default(),
            matmul: Matmul::default(),
        };
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
            return Err(self.told(
                source
                    .error("n_heads", &problem, &allowed, &help)
                    .with_value(n_heads),
            ));
        }
        Ok(model.shape())
    }

    /// Limits of the encoding and of an answer that can be read.
    fn check_limits(&self, subject: &Subject, positions: &[f64]) -> Result<(), Failure> {
        let facts = subject.facts();
        let refuse = |argument: String,
                      key: &str,
                      value: String,
                      problem: String,
                      allowed: String,
                      help: String| {
            let diagnostic = Diagnostic::new(Place::CommandLine { argument }, problem)
                .with_key(key)
                .with_value(value);
            Err(diagnostic.with_allowed(allowed).with_help(help).into())
        };
        let typed = || {
            format!(
                "--positions {}",
                self.0.positions.as_deref().unwrap_or("0,1,2,3")
            )
        };
        if let Some(limit) = facts.max_position {
            let allowed = format!(
                "whole numbers from 0 to {} (max_position = {limit})",
                limit.saturating_sub(1)
            );
            if let Some(position) = positions
                .iter()
                .find(|p| p.fract() != 0.0 || **p >= limit as f64)
            {
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
                return refuse(
                    typed(),
                    "--positions",
                    position.to_string(),
                    problem,
                    allowed,
                    help,
                );
            }
            if facts.reads_length && subject.lengths.test_len > limit {
                let seq_len = subject.lengths.test_len;
                let problem = format!(
                    "a sequence of {seq_len} tokens is past the table: max_position = {limit}"
                );
                let (argument, help) = (
                    format!("--seq-len {seq_len}"),
                    format!("set max_position={seq_len}"),
                );
                return refuse(
                    argument,
                    "--seq-len",
                    seq_len.to_string(),
                    problem,
                    format!("1 to {limit}"),
                    help,
                );
            }
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
            let problem = format!("`{path}` is too large to show");
            let help = "choose a smaller max_position or d_model".to_owned();
            return refuse(
                self.shown(),
                &path,
                shape,
                problem,
                format!("at most {MAX_PARAMETERS} numbers"),
                help,
            );
        }
        let numbers = subject.count(positions.len());
        if numbers > MAX_NUMBERS {
            let problem = "the answer is too large to show".to_owned();
            let value = format!("{} positions, {numbers} numbers", positions.len());
            let help = "ask for fewer positions, or set a smaller n_heads or d_model".to_owned();
            return refuse(
                typed(),
                "--positions",
                value,
                problem,
                format!("at most {MAX_NUMBERS} numbers"),
                help,
            );
        }
        Ok(())
    }

    fn refused(&self, source: &Source, error: &ConfigError) -> Failure {
        self.told(
            source
                .error(&error.key, &error.problem, &error.allowed, &error.hint)
                .with_value(&error.value),
        )
    }

    /// A mistake found by the reader of config files, in the words of a command line.
    fn told(&self, mut diagnostic: Diagnostic) -> Failure {
        if !matches!(diagnostic.place, Place::CommandLine { .. }) {
            diagnostic.place = Place::CommandLine {
                argument: self.shown(),
            };
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
