//! `longreach export`: records and runs in the formats of other programs.

mod logits;
mod tables;
mod tensorboard;
mod tokenizer;
mod trained;

use crate::commands::numbers::whole;
use crate::commands::records::{edit_notes, find, print_sources, read_and_left_out};
use crate::commands::replace::check_replaced;
use clap::ValueEnum;
use experiment::device::DeviceName;
use experiment::runs_on_disk::selection::{self, Run};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use support::units::count;

/// Write the curves of runs for TensorBoard, or the logits, tables or tokenizer of a run
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories with runs, records, or .jsonl files of records; for logits, tables and tokenizer
    /// the directory of a run
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What to write
    #[arg(long, value_name = "FORMAT")]
    format: Format,
    /// The directory to write to; for logits, tables and tokenizer the file
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Read experiments at any level below a directory, for tensorboard
    #[arg(long)]
    recursive: bool,
    /// Rows of each test set that are written, for logits [default: 2]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    rows: Option<u16>,
    /// Only this variant, for logits and tables
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Only these test lengths, for logits and tables; a range of lengths counts as its upper end
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',')]
    lengths: Vec<usize>,
    /// The device that computes logits and tables [default: cpu]
    #[arg(long)]
    device: Option<DeviceName>,
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A TensorBoard event file for each run: its training by step, its scores by test length
    Tensorboard,
    /// Tokens and logits of a trained run at each test length, as safetensors: to check a model
    /// rebuilt elsewhere
    Logits,
    /// What the encoding of a run does at each test length, as safetensors: what is added to the
    /// input, cos and sin, biases, by layer and head
    Tables,
    /// The tokenizer of a run on text with level = "bpe", as Hugging Face's tokenizer.json
    Tokenizer,
}

impl Format {
    /// Whether a file is of this format, as far as it is one file.
    fn is_of(self, path: &Path) -> bool {
        let bytes = std::fs::read(path).unwrap_or_default();
        let has = |key: &str| {
            let read = SafeTensors::read_metadata(&bytes);
            let (_, about) = read.ok()?;
            about.metadata().as_ref()?.get(key).map(drop)
        };
        match self {
            Self::Tensorboard => false,
            Self::Logits => has(logits::ABOUT).is_some(),
            Self::Tables => has(tables::ABOUT).is_some(),
            Self::Tokenizer => serde_json::from_slice(&bytes)
                .is_ok_and(|json: serde_json::Value| json["model"]["type"] == "BPE"),
        }
    }
}

const EXAMPLES: &str = r#"Examples:
  longreach export runs/quickstart --format tensorboard --out logs && tensorboard --logdir logs
  longreach export runs/quickstart/0123 --format logits --out logits.safetensors
  longreach export runs/quickstart/0123 --format tables --out tables.safetensors --lengths 1024
  longreach export runs/words/0123 --format tokenizer --out tokenizer.json

What the files hold, and how to read them in Python: docs/interop.md"#;

/// Writes the files and prints where they are.
///
/// # Errors
///
/// [`Exit::Input`] if a path cannot be read or holds no record, [`Exit::Config`] if an option is
/// not one of the format, `--out` is not such a file, or a path holds more than one level of
/// experiments or, for all but tensorboard, more than one run; [`Exit::Device`];
/// [`Exit::Resources`] if a file cannot be written.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    check_options(arguments)?;
    check_replaced(&arguments.out, |path| arguments.format.is_of(path))?;
    let written = match arguments.format {
        Format::Tensorboard => write_events(arguments)?,
        Format::Logits => logits::write(arguments)?,
        Format::Tables => tables::write(arguments)?,
        Format::Tokenizer => tokenizer::write(arguments)?,
    };
    console::print(&written);
    Ok(Exit::Done)
}

/// Refuses an option that the format does not read.
fn check_options(arguments: &Args) -> Result<(), Failure> {
    let computed = [Format::Logits, Format::Tables];
    let given: [(&str, bool, &[Format]); 5] = [
        ("--recursive", arguments.recursive, &[Format::Tensorboard]),
        ("--rows", arguments.rows.is_some(), &[Format::Logits]),
        ("--variant", arguments.variant.is_some(), &computed),
        ("--lengths", !arguments.lengths.is_empty(), &computed),
        ("--device", arguments.device.is_some(), &computed),
    ];
    let unread = |(_, is_given, formats): &&(_, bool, &[Format])| {
        *is_given && !formats.contains(&arguments.format)
    };
    let Some((option, ..)) = given.iter().find(unread) else {
        return Ok(());
    };
    Err(
        Failure::config(format!("{option} has no effect on this format"))
            .with_help("leave it out; `longreach export --help` says which format reads it"),
    )
}

/// Writes an event file for each record and says what was written.
fn write_events(arguments: &Args) -> Result<String, Failure> {
    let found = find(&arguments.paths, arguments.recursive)?;
    print_sources(&found.records);
    edit_notes(&found.records, found.directories.iter().flatten().cloned());
    let out = &arguments.out;
    let files = tensorboard::write(&found, out)?;
    Ok(format!(
        "wrote {} to {}: {}",
        count(files, "file"),
        out.display(),
        read_and_left_out(&found)
    ))
}

/// Tensors of one file: name, type, shape and little-endian bytes.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Writes tensors with one value of metadata: the format keeps no order of several.
fn write_tensors(
    request: &Args,
    tensors: &Tensors,
    (key, value): (&str, String),
) -> Result<(), Failure> {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(Failure::bug)?;
        Ok((name.clone(), view))
    });
    let views = views.collect::<Result<Vec<_>, Failure>>()?;
    let metadata = HashMap::from([(key.to_owned(), value)]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(Failure::bug)?;
    Ok(rundir::system().write_named(&request.out, &bytes)?)
}

/// The run that the paths name.
fn only_run(request: &Args, format: &str) -> Result<Run, Failure> {
    let mut selected = selection::select(&request.paths, &[], |_| ())?;
    if selected.len() == 1 {
        return Ok(selected.remove(0));
    }
    Err(Failure::config(format!(
        "--format {format}: {} named",
        count(selected.len(), "run")
    ))
    .with_allowed("one run")
    .with_help("name the directory of a run, such as runs/quickstart/0123"))
}
