//! `longreach inspect`: the numbers that define an encoding, and pictures of them.

use crate::commands::completions;
use clap_complete::engine::ArgValueCandidates;
use inspect::request::Request;
use std::path::PathBuf;
use support::console;
use support::exit::{Exit, Failure};

/// Show the numbers that define an encoding, and pictures of them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// An encoding of `longreach list encodings`
    #[arg(add = ArgValueCandidates::new(completions::encodings))]
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
    /// Write pictures (SVG) into this directory
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
    let request = Request {
        kind: arguments.kind.clone(),
        keys: arguments.keys.clone(),
        positions: arguments.positions.clone(),
        seq_len: arguments.seq_len,
        train_len: arguments.train_len,
    };
    let inspection = inspect::inspect(&request, arguments.out.as_deref())?;
    let text = if arguments.json {
        console::json(&inspection)?
    } else {
        inspect::text(&inspection)
    };
    console::print(&text);
    Ok(Exit::Done)
}
