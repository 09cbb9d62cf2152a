//! What people type, and what they get back.

use crate::commands::catalogue_page as catalogue;
use crate::commands::{
    check as planning, eval as reevaluate, inspect, list, report as reporting, status, verify,
};
use crate::config::claims;
use crate::config::diagnose::Diagnostic;
use crate::device::{self, DeviceName};
use crate::exit::{Exit, Failure};
use crate::plan::memory::MemoryLimit;
use crate::plan::planner::{self as experiment, Plan, plan};
use crate::plan::spec::Decode;
use crate::run::protocol::{CheckpointEvery, How};
use crate::run::worker;
use crate::run_dir::kept_configs::Config;
use crate::units::count;
use crate::{console, signals, sweep};
use clap::{Args, CommandFactory, Parser, Subcommand};
use results::{Format, ReportSpec};
use std::path::PathBuf;
use std::process::ExitCode;

/// Which encoding of position still works past the length a transformer was trained on?
///
/// Longreach trains tiny transformers short, tests them long, and turns many such runs into tables
/// and figures.
#[derive(Debug, Parser)]
#[command(name = "longreach", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  longreach run configs/quickstart.toml                          train, test long, report
  longreach run configs/copy.toml train.steps=500 seeds=[0,1,2]  the same with other values
  longreach check configs/theta-base.toml                        what would run, and what it would \
                        cost
  longreach inspect rope base=500000 --positions 0,1,4095        the numbers that define an \
                        encoding
  longreach list encodings                                       what there is

Exit codes:
  0 done   1 some runs failed   2 config or argument   3 input file   4 run is busy   5 every run \
                        diverged
  6 disk or memory   7 device   70 a bug, please report it   75 stopped by USR1, start it again
  130 stopped by INT   143 stopped by TERM or HUP";

#[derive(Debug, Subcommand)]
enum Command {
    /// Train and evaluate every run of a config that is not recorded yet, then write the report
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Validate a config and print its plan without running anything
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Evaluate trained runs at other lengths or under other encodings, without retraining
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(EvalArgs),
    /// Turn records into tables, figures and one self-contained HTML page
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Write the records of many runs into one file, a line each, as experiments keep them
    #[command(
        after_help = "Examples:\n  longreach gather runs/quickstart --out results.jsonl\n  \
                      longreach gather runs/a runs/b --out both.jsonl --bins 16"
    )]
    Gather {
        /// Directories with runs, records, or .jsonl files of records
        #[arg(required = true, value_name = "DIR")]
        directories: Vec<PathBuf>,
        /// The file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Keep at most so many bins of the loss by position
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        bins: Option<u16>,
        /// Read experiments at any level below a directory
        #[arg(long)]
        recursive: bool,
    },
    /// Tell whether two sets of records came out the same: weights, losses, every score
    #[command(after_help = "Example:\n  longreach compare \
                            experiments/001-quickstart/results.jsonl runs/quickstart\n\nEnds \
                            with 0 if every run is in both and identical, else with 1.")]
    Compare {
        /// A directory with runs, a record, or a .jsonl file of records
        first: PathBuf,
        /// Another
        second: PathBuf,
    },
    /// Show the numbers that define an encoding, and pictures of them
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Write the catalogue of encodings as a page with pictures and measured perplexities
    #[command(after_help = "Example:\n  longreach catalogue \
                            experiments/002-catalogue/results.jsonl --out docs/catalogue")]
    Catalogue {
        /// Records of an experiment with the kinds of encodings on its axis: a directory or a
        /// .jsonl file
        records: PathBuf,
        /// Where to
        #[arg(long, value_name = "DIR", default_value = "catalogue")]
        out: PathBuf,
    },
    /// Tell the state of every run below a directory: planned, running, stopped, done, diverged,
    /// failed or stale
    #[command(after_help = "Examples:\n  longreach status runs\n  longreach status \
                            runs/quickstart --json")]
    Status {
        /// Where runs are kept, an experiment's directory, or a run's
        #[arg(default_value = "runs")]
        directory: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check what runs left against their hashes and against each other; on request train them
    /// again and compare
    #[command(
        after_help = "Examples:\n  longreach verify runs/quickstart\n  longreach verify \
                      runs/quickstart/0123456789abcdef --retrain"
    )]
    Verify {
        /// Directories of runs, of experiments, or of many
        #[arg(default_value = "runs")]
        directories: Vec<PathBuf>,
        /// Train every run again, elsewhere, and compare weights, step log and record
        #[arg(long)]
        retrain: bool,
        /// The device to train on
        #[arg(long, default_value = "cpu")]
        device: DeviceName,
        /// As in `run`
        #[arg(long, value_name = "SIZE")]
        memory_limit: Option<MemoryLimit>,
    },
    /// List encodings, tasks or devices
    List(ListArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  longreach completions bash > \
                            ~/.local/share/bash-completion/completions/longreach")]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Run one prepared job: what `run` starts for each run
    #[command(hide = true)]
    Worker {
        /// The run's directory, with its job.json.
        directory: PathBuf,
        #[arg(long, default_value = "cpu")]
        device: DeviceName,
        /// Steps, or seconds with an s
        #[arg(long, default_value_t = CheckpointEvery::default())]
        checkpoint_every: CheckpointEvery,
        /// Bytes
        #[arg(long, default_value_t = MemoryLimit::NONE)]
        memory_limit: MemoryLimit,
        /// Save and leave when standard input ends, as it does when the sweep that started this
        /// process ends
        #[arg(long, hide = true)]
        stop_with_parent: bool,
    },
}

const RUN_EXAMPLES: &str = "\
Examples:
  longreach run configs/quickstart.toml
  longreach run configs/text-lengths.toml model.d_model=128 'model.pe={kind=\"alibi\"}' --jobs 1
  longreach run configs/theta-base.toml 'axes.\"model.pe.base\"=[100,10000]' --runs /tmp/runs

What wins: built-in defaults < the file < its [axes] < key=value on the command line.
A key=value for a key that is an axis fixes that axis. Recorded runs are skipped; their config \
                            decides what is the same run.";

const CHECK_EXAMPLES: &str = "\
Examples:
  longreach check configs/quickstart.toml
  longreach check configs/copy.toml train.steps=20000 --json";

const EVAL_EXAMPLES: &str = "\
Examples:
  longreach eval runs/quickstart/0123456789abcdef --lengths 128,256,32768
  longreach eval runs/quickstart --where pe=rope --lengths 4096  every RoPE run of an experiment
  longreach eval runs/quickstart/0123456789abcdef --variant 'scaling = { kind = \"yarn\" }' \
                             --variant 'scaling = { kind = \"ntk\", factor = 8 }'
  longreach eval runs/quickstart/0123456789abcdef --variant 'add = { kind = \"window\", size = 64, \
                             sinks = 4 }'
  longreach eval runs/randomized/0123456789abcdef --decode auto  answers token by token where \
                             teacher forcing would give others";

const REPORT_EXAMPLES: &str = "\
Examples:
  longreach report runs/quickstart
  longreach report runs/quickstart --config configs/quickstart.toml   the runs of one config, if \
                               there are several
  longreach report runs/a runs/b --format tex,csv --out paper/tables
  longreach report runs/quickstart --baseline rope               differences to rope, seed by seed
  longreach report results.jsonl --claims claims.toml            agrees, disagrees or undecided, \
                               claim by claim
  longreach report results.jsonl --order experiment.toml         rows as the config lists them, \
                               not by name";

const INSPECT_EXAMPLES: &str = "\
Examples:
  longreach inspect rope base=500000 --positions 0,1,4095 --json
  longreach inspect rope 'scaling={kind=\"yarn\",factor=8}' --seq-len 4096 --out pictures
  longreach inspect alibi n_heads=12
  longreach inspect sinusoidal d_model=128 --positions 0,1,2";

#[derive(Debug, Args)]
struct RunArgs {
    /// The experiment, a TOML file
    config: PathBuf,
    /// Values that replace those of the file, as dotted keys: train.steps=500 seeds=[0,1]
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where runs are kept: RUNS/EXPERIMENT/RUN_ID
    #[arg(long, default_value = "runs", value_name = "DIR")]
    runs: PathBuf,
    /// cpu, wgpu, vulkan, metal, cuda, rocm or ndarray, with :N for the Nth of several
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// Runs at a time, each in a process of its own; one per core on a CPU and 1 elsewhere unless
    /// given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Start no further run after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// When each run saves a checkpoint to go on from: after so many steps (500) or seconds (30s)
    #[arg(long, value_name = "N|Ns", default_value_t = CheckpointEvery::default())]
    checkpoint_every: CheckpointEvery,
    /// Leave out, and record as left out, lengths expected to need more memory than this in one
    /// process (512MiB, 4GiB, none); the machine's memory shared by the workers unless given,
    /// none on devices with a memory of their own
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
    /// Run only those that failed, or those that diverged (anew)
    #[arg(long, value_name = "WHICH")]
    retry: Option<sweep::Retry>,
    /// Let workers finish their runs even if this process is killed (kill -9); without it they
    /// save and leave
    #[arg(long)]
    keep_workers: bool,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The experiment, a TOML file
    config: PathBuf,
    /// Values that replace those of the file
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where runs are kept, to tell which are recorded
    #[arg(long, default_value = "runs", value_name = "DIR")]
    runs: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct EvalArgs {
    /// Directories of trained runs or of experiments; the end of a run's id may be left out:
    /// runs/quickstart/13e1
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only runs with this value, such as pe=rope, seed=0, model.pe.base=10000 or label=TEXT;
    /// several must all hold
    #[arg(long = "where", value_name = "KEY=VALUE")]
    filters: Vec<String>,
    /// Test lengths in the task's unit; those of the run unless given
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    lengths: Option<Vec<usize>>,
    /// An encoding to evaluate under, as TOML or the path of a .toml file: keys to change in the
    /// trained encoding, a whole encoding with `kind`, or add = { kind = ... } for one stacked
    /// on the trained encoding
    #[arg(long = "variant", value_name = "TOML")]
    variants: Vec<String>,
    /// How answers are read off the model, `eval.decode` of a config; as in the run unless given
    #[arg(long, value_name = "WAY")]
    decode: Option<Decode>,
    /// Score so many predictions at the end of every window of text also on their own,
    /// `eval.last_tokens`; as in the run unless given
    #[arg(long, value_name = "N")]
    last_tokens: Option<usize>,
    /// Record the mean attention distance of every head, `eval.attention_distance`; as in the run
    /// unless given
    #[arg(long)]
    attention_distance: bool,
    /// The device
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// As in `run`
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
    /// Print the record as JSON, a list of records for several runs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Directories with runs, records, or .jsonl files of records
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Which files to write
    #[arg(long, value_delimiter = ',', value_parser = reporting::format, default_value = "md,html,csv,tex", value_name = "FORMAT,...")]
    format: Vec<Format>,
    /// Where to; DIR/report unless given, DIR/report-all if the runs of an experiment belong to
    /// several configs
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Heading of the report; the config's or the experiments' names unless given
    #[arg(long)]
    title: Option<String>,
    /// The method that others are compared with, seed by seed; `first` for the first of each
    /// setting
    #[arg(long, value_name = "METHOD")]
    baseline: Option<String>,
    /// Claims of a source to hold the records against, with its published numbers: a TOML file
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// Hold the records against what a correct suite must show: 22 assertions, each with its
    /// numbers
    #[arg(long)]
    assertions: bool,
    /// Lines and rows in the order of this config's axes and variants; several times for several
    /// configs. What no config names follows
    #[arg(long, value_name = "CONFIG")]
    order: Vec<PathBuf>,
    /// Report on the runs of one config: an id of those in EXPERIMENT/configs, or a config file
    #[arg(long, value_name = "ID|FILE")]
    config: Option<String>,
    /// Read experiments at any level below a directory
    #[arg(long)]
    recursive: bool,
    /// Leave out what `longreach eval` evaluated later
    #[arg(long)]
    no_evals: bool,
}

/// `longreach inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// An encoding of `longreach list encodings`
    pub kind: String,
    /// Keys of the encoding, and d_model, n_heads, head_dim or n_layers of the model: base=500000
    /// n_heads=12
    #[arg(value_name = "KEY=VALUE")]
    pub keys: Vec<String>,
    /// Positions to show; 0,1,2,3 unless given. Fractions are allowed where the encoding has them
    #[arg(long, value_name = "N,N,...", allow_hyphen_values = true)]
    pub positions: Option<String>,
    /// Length of the sequence: what length-reading encodings see and factor = "auto" is taken
    /// from. The training length unless given; never shorter than the largest position asks
    /// for
    #[arg(long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// Length trained on, for scalings and pictures
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub train_len: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write pictures (SVG and PNG) into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(subcommand)]
    what: ListWhat,
}

#[derive(Debug, Subcommand)]
enum ListWhat {
    /// Every encoding: what it does, its parameters, limits and source
    Encodings {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Every task, with examples
    Tasks {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Every kind of device: compiled in or not, working or not
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    signals::survive_file_size_limit();
    // Before anything that takes time: a request during the planning of many runs, or at a worker's
    // start, is not lost.
    if matches!(cli.command, Command::Run(_) | Command::Worker { .. }) {
        signals::listen();
    }
    // Whatever goes wrong inside ends as two lines and one code, never as a backtrace, unless one
    // is asked for.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        console::tell(&format!(
            "longreach {} ({}) {panic}",
            env!("CARGO_PKG_VERSION"),
            env!("LONGREACH_COMMIT")
        ));
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            hook(panic);
        }
    }));
    let device = match &cli.command {
        Command::Worker { device, .. } if !on_cpu(device) => Some(device.clone()),
        _ => None,
    };
    let done = std::panic::catch_unwind(|| run(cli.command));
    let done = done.unwrap_or_else(|_| {
        // Drivers that lose their device say so by a panic, and a process that has seen it cannot
        // go on.
        if let Some(device) = device {
            let help = "the last checkpoint is whole; the same command goes on from it";
            return Err(Failure::new(
                Exit::Device,
                format!("{device} failed, by the lines above\n  = help: {help}"),
            ));
        }
        let hint = "this is a bug of longreach: please report the lines above, the command, and \
                    the config or the run's job.json";
        Err(Failure::new(
            Exit::Bug,
            format!("a broken promise inside longreach\n  = help: {hint}"),
        ))
    });
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            console::tell(&failure.to_string());
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn on_cpu(device: &DeviceName) -> bool {
    matches!(device.kind, "cpu" | "ndarray")
}

/// What was asked for, or what the machine has for each of so many processes; a device's own memory
/// is not known.
fn memory_limit(asked: Option<MemoryLimit>, device: &DeviceName, processes: usize) -> MemoryLimit {
    asked.unwrap_or_else(|| {
        if on_cpu(device) {
            MemoryLimit::of_machine(processes)
        } else {
            MemoryLimit::NONE
        }
    })
}

fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(arguments) => run_experiment(&arguments),
        Command::Check(arguments) => check(&arguments),
        Command::Eval(arguments) => eval(arguments),
        Command::Report(arguments) => {
            let ReportArgs {
                directories,
                format,
                out,
                title,
                baseline,
                claims,
                assertions,
                order,
                config,
                recursive,
                no_evals,
            } = arguments;
            let claims = claims
                .map(|path| claims::read(&path))
                .transpose()?
                .unwrap_or_default();
            let formats = format.into_iter().collect();
            let orders = order
                .iter()
                .map(|path| experiment::order(path))
                .collect::<Result<Vec<_>, _>>()?;
            let spec = ReportSpec {
                formats,
                baseline,
                claims,
                assertions,
                order: orders.concat(),
                ..ReportSpec::default()
            };
            let request = reporting::Request {
                roots: directories,
                out,
                title,
                config,
                recursive,
                no_evals,
            };
            print(&reporting::from_directories(&request, spec)?)
        }
        Command::Gather {
            directories,
            out,
            bins,
            recursive,
        } => print(&reporting::gather(
            &directories,
            &out,
            bins.map(usize::from),
            recursive,
        )?),
        Command::Compare { first, second } => {
            let compared = reporting::compare(&first, &second)?;
            console::print(&compared.to_string());
            Ok(if compared.is_identical() {
                Exit::Done
            } else {
                Exit::SomeFailed
            })
        }
        Command::Inspect(arguments) => print(&inspect::run(&arguments)?),
        Command::Catalogue { records, out } => {
            let written = catalogue::write(&records, &out)?;
            print(&format!(
                "wrote {} and {} pictures",
                written[0].display(),
                written.len() - 1
            ))
        }
        Command::Status { directory, json } => print(&status::status(&directory, json)?),
        Command::List(ListArgs { what }) => print(&match what {
            ListWhat::Encodings { json } => list::encodings(json)?,
            ListWhat::Tasks { json } => list::tasks(json)?,
            ListWhat::Devices { json } => list::devices(json)?,
        }),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "longreach", &mut script);
            print(String::from_utf8_lossy(&script).trim_end())
        }
        Command::Verify {
            directories,
            retrain,
            device,
            memory_limit: limit,
        } => {
            let memory_limit = memory_limit(limit, &device, 1);
            verify::run(&verify::Request {
                directories,
                retrain,
                device,
                memory_limit,
            })
        }
        Command::Worker {
            directory,
            device,
            checkpoint_every,
            memory_limit,
            stop_with_parent,
        } => {
            if stop_with_parent {
                signals::stop_with_parent();
            }
            let how = How {
                device,
                checkpoint_every,
                memory_limit,
            };
            kernels::on_threads(|| worker::run(&directory, &how)).map(|()| Exit::Done)
        }
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        let exit = if diagnostic.exit == Exit::Input as u8 {
            Exit::Input
        } else {
            Exit::Config
        };
        let text = diagnostic.to_string();
        Failure::new(exit, text.strip_prefix("error: ").unwrap_or(&text))
    }
}

fn run_experiment(arguments: &RunArgs) -> Result<Exit, Failure> {
    let plan = plan(&arguments.config, &arguments.overrides)?;
    tell_notes(&plan);
    device::open(&arguments.device)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(
        if on_cpu(&arguments.device) { cores } else { 1 },
        usize::from,
    );
    let how = How {
        device: arguments.device.clone(),
        checkpoint_every: arguments.checkpoint_every.clone(),
        memory_limit: memory_limit(
            arguments.memory_limit,
            &arguments.device,
            jobs.min(plan.runs.len()),
        ),
    };
    let RunArgs {
        fail_fast,
        retry,
        keep_workers,
        ..
    } = *arguments;
    let options = sweep::Options {
        runs: arguments.runs.clone(),
        how,
        jobs,
        fail_fast,
        retry,
        keep_workers,
    };
    let outcome = sweep::run(&plan, &options)?;
    if !outcome.records.is_empty() {
        let config = Config::of(&plan)?.0;
        print(&reporting::of_sweep(
            outcome.records.clone(),
            &config,
            &arguments.runs.join(&plan.name),
        )?)?;
    }
    for (name, directory, failure) in &outcome.failed {
        console::tell(&format!(
            "\nfailed: {name} ({})\n  {}",
            directory.display(),
            failure.message.replace('\n', "\n  ")
        ));
    }
    if outcome.stopped.is_some() {
        let runs = count(plan.runs.len(), "run");
        console::tell(&format!(
            "\nstopped: {} of {runs} recorded; run the same command again to go on",
            outcome.records.len()
        ));
    } else if !outcome.failed.is_empty() {
        let not_started = if outcome.not_started > 0 {
            format!(", {} not started", outcome.not_started)
        } else {
            String::new()
        };
        let runs = count(plan.runs.len(), "run");
        console::tell(&format!(
            "\n{} of {runs} failed{not_started}; run the same command again to retry them",
            outcome.failed.len()
        ));
    }
    Ok(sweep::exit(&outcome))
}

fn check(arguments: &CheckArgs) -> Result<Exit, Failure> {
    let plan = plan(&arguments.config, &arguments.overrides)?;
    let recorded: Vec<&str> = plan
        .runs
        .iter()
        .filter(|run| {
            sweep::directory(&arguments.runs, run)
                .join("record.json")
                .exists()
        })
        .map(|run| run.job.run_id.as_str())
        .collect();
    let rows = planning::rows(&plan, |run_id| recorded.contains(&run_id));
    if arguments.json {
        let json = serde_json::json!({ "name": plan.name, "title": plan.title, "notes": plan.notes, "runs": rows });
        return print(
            &serde_json::to_string_pretty(&json)
                .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?,
        );
    }
    tell_notes(&plan);
    print(&planning::render(&plan, &rows))
}

fn tell_notes(plan: &Plan) {
    plan.notes
        .iter()
        .for_each(|note| console::tell(&format!("note: {note}")));
}

fn eval(arguments: EvalArgs) -> Result<Exit, Failure> {
    let EvalArgs {
        paths,
        filters,
        lengths,
        variants,
        decode,
        last_tokens,
        attention_distance,
        device,
        memory_limit: limit,
        json,
    } = arguments;
    let memory_limit = memory_limit(limit, &device, 1);
    let request = reevaluate::Request {
        paths,
        filters,
        lengths,
        variants,
        decode,
        last_tokens,
        attention_distance,
        device,
        memory_limit,
    };
    let done = reevaluate::run(&request, console::tell)?;
    let text = |json: serde_json::Result<String>| {
        json.map_err(|error| Failure::new(Exit::Bug, error.to_string()))
    };
    match (json, done.evaluated.as_slice()) {
        (true, [(record, _)]) if done.selected == 1 => {
            print(&text(serde_json::to_string_pretty(record))?)?
        }
        (true, evaluated) => {
            let records: Vec<_> = evaluated.iter().map(|(record, _)| record).collect();
            print(&text(serde_json::to_string_pretty(&records))?)?
        }
        (false, []) => Exit::Done,
        (false, _) => print(&done.told()?)?,
    };
    for (name, directory, failure) in &done.failed {
        console::tell(&format!(
            "\nfailed: {name} ({})\n  {}",
            directory.display(),
            failure.message.replace('\n', "\n  ")
        ));
    }
    if !done.failed.is_empty() {
        let runs = count(done.selected, "run");
        console::tell(&format!(
            "\n{} of {runs} failed; the same command tries them again",
            done.failed.len()
        ));
    }
    if done.stopped.is_some() {
        let runs = count(done.selected, "run");
        console::tell(&format!(
            "\nstopped: {} of {runs} evaluated; the same command goes on",
            done.evaluated.len()
        ));
    }
    Ok(done.exit())
}

/// Prints to standard output; a reader that left early (`| head`) is no error.
fn print(text: &str) -> Result<Exit, Failure> {
    console::print(text);
    Ok(Exit::Done)
}
