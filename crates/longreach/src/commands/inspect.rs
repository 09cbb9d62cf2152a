//! `longreach inspect`: the numbers that define an encoding, and pictures of them.

use crate::commands::completions;
use crate::commands::numbers::whole;
use clap_complete::engine::ArgValueCandidates;
use inspect::published::{self, Published};
use inspect::request::{MAX_LENGTH, Request};
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};

/// Show the numbers that define an encoding, and pictures of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// An encoding of `longreach list encodings`
    #[arg(add = ArgValueCandidates::new(completions::encodings))]
    #[arg(required_unless_present = "model_config")]
    kind: Option<String>,
    /// Keys of the encoding, and d_model, n_heads, head_dim or n_layers of the model: base=500000
    /// n_heads=12
    #[arg(value_name = "KEY=VALUE")]
    keys: Vec<String>,
    /// Read the encoding and the sizes from the config.json of a published model
    #[arg(long, value_name = "FILE", conflicts_with = "kind")]
    model_config: Option<PathBuf>,
    /// Positions to show; fractions are allowed where the encoding has them [default: 0,1,2,3]
    #[arg(long, value_name = "N,N,...", allow_hyphen_values = true)]
    positions: Option<String>,
    /// Length of the sequence, for encodings that read it and for factor = "auto"; at least the
    /// largest position plus one [default: the training length, or what the positions need]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MAX_LENGTH as u64))]
    seq_len: Option<usize>,
    /// Training length, for scalings and pictures [default: that of --model-config, or 512]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MAX_LENGTH as u64))]
    train_len: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write pictures (SVG) into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = r#"Examples:
  longreach inspect rope base=500000 --positions 0,1,4095 --json
  longreach inspect rope 'scaling={kind="yarn",factor=8}' --seq-len 4096 --out pictures
  longreach inspect alibi n_heads=12
  longreach inspect sinusoidal d_model=128 --positions 0,1,2
  longreach inspect --model-config config.json --seq-len 131072"#;

/// Computes and prints the numbers, and writes pictures if asked to.
///
/// # Errors
///
/// [`Exit::Config`] for an unknown encoding, a key, position or length that cannot work, or a file
/// of a model that cannot be used; [`Exit::Resources`] if the pictures cannot be written.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let published = match &arguments.model_config {
        Some(path) => Some(model_config(path)?),
        None => None,
    };
    let (kind, mut keys) = published.as_ref().map_or_else(
        || (arguments.kind.clone().unwrap_or_default(), Vec::new()),
        Published::arguments,
    );
    keys.extend(arguments.keys.iter().cloned());
    let trained = published.as_ref().and_then(|model| model.train_len);
    let request = Request {
        kind,
        keys,
        positions: arguments.positions.clone(),
        seq_len: arguments.seq_len,
        train_len: arguments.train_len.or(trained).unwrap_or(512),
    };
    let inspection = inspect::inspect(&request, arguments.out.as_deref())?;
    if let Some(model) = &published {
        console::notes(&model.notes);
    }
    let text = match (arguments.json, &published) {
        (true, _) => console::json(&inspection)?,
        (false, Some(model)) => model.line() + "\n\n" + &inspect::text(&inspection),
        (false, None) => inspect::text(&inspection),
    };
    console::print(&text);
    Ok(Exit::Done)
}

/// The largest file that is read; published ones have a few KB.
const LARGEST: u64 = 1 << 22;

fn model_config(path: &Path) -> Result<Published, Failure> {
    let place = path.display();
    let refuse = |problem: String| {
        let help = "give the config.json of a model, as transformers writes it";
        Failure::config(format!("{place} {problem}")).with_help(help)
    };
    // Files of a hub's cache are links.
    let path = path
        .canonicalize()
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let bytes = rundir::read::bounded(&path, LARGEST);
    let bytes = bytes.map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let file: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| refuse(format!("is not JSON: {error}")))?;
    published::read(&file).map_err(refuse)
}
