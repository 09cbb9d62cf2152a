//! Arguments of `longreach eval`.

use crate::commands::completions;
use crate::commands::numbers::whole;
use burn::tensor::Device;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap_complete::engine::ArgValueCandidates;
use experiment::device::DeviceName;
use experiment::plan::memory::MemoryLimit;
use experiment::spec::{Decode, TestLen};
use std::path::PathBuf;

/// Evaluate trained runs at other lengths or under other encodings, without retraining
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories of trained runs or of experiments; the end of a run's id may be left out:
    /// runs/quickstart/13e1
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only runs with this value, such as pe=rope, seed=0, model.pe.base=10000 or label=TEXT;
    /// repeat to require several
    #[arg(long = "where", value_name = "KEY=VALUE")]
    pub filters: Vec<String>,
    /// Test lengths in the task's unit, and ranges of them such as 51..100 [default: those of the
    /// run]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    pub lengths: Option<Vec<TestLen>>,
    /// An encoding to evaluate under, as TOML or the path of a .toml file: keys to change in the
    /// trained encoding, a whole encoding with `kind`, or add = { kind = ... } to stack one on the
    /// trained encoding
    #[arg(long = "variant", value_name = "TOML")]
    pub variants: Vec<String>,
    /// How answers are decoded, `eval.decode` of a config [default: as in the run]
    #[arg(long, value_name = "WAY", value_parser = decode())]
    pub decode: Option<Decode>,
    /// Also report the loss over the last N predictions of each window, `eval.last_tokens`
    /// [default: as in the run]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..))]
    pub last_tokens: Option<usize>,
    /// Record attention distances and more of every head, `eval.attention_distance` [default: as in
    /// the run]
    #[arg(long)]
    pub attention_distance: bool,
    /// Directory that relative paths of a corpus start from, if the config has been moved since the
    /// run
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// The device
    #[arg(long, default_value = "cpu", add = ArgValueCandidates::new(completions::devices))]
    pub device: DeviceName,
    /// As in `run`
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
    /// Print the record as JSON, or a list of records for several runs
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach eval runs/quickstart/0123456789abcdef --lengths 128,256,32768

  every RoPE run of an experiment:
  longreach eval runs/quickstart --where pe=rope --lengths 4096

  under other scalings, and with a mask added:
  longreach eval runs/quickstart/0123 --variant 'scaling = { kind = "yarn" }'
  longreach eval runs/quickstart/0123 --variant 'scaling = { kind = "ntk", factor = 8 }'
  longreach eval runs/quickstart/0123 --variant 'add = { kind = "window", size = 64, sinks = 4 }'

  token by token where teacher forcing would give other answers:
  longreach eval runs/randomized/0123 --decode auto"#;

impl Args {
    /// The limit that was given, or the memory of the machine or of the open device.
    pub fn memory_limit(&self, device: &Device) -> MemoryLimit {
        self.device.memory_limit(self.memory_limit, device)
    }
}

/// The ways to decode answers, under their names in a config.
fn decode() -> impl TypedValueParser<Value = Decode> {
    let ways = [
        (
            "teacher_forced",
            "Every token given the right ones before it",
        ),
        ("greedy", "Every token given the model's own before it"),
        (
            "auto",
            "Greedy where it is not the same, else teacher-forced",
        ),
    ];
    let values = ways.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "greedy" => Decode::Greedy,
        "auto" => Decode::Auto,
        _ => Decode::TeacherForced,
    })
}
