//! `longreach run`: trains and evaluates every run of a config, then reports.

use crate::commands::completions;
use crate::commands::numbers::whole;
use crate::commands::report;
use burn::tensor::Device;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use experiment::device::{self, DeviceName};
use experiment::plan;
use experiment::plan::memory::MemoryLimit;
use experiment::plan::planned::PlannedRun;
use experiment::plan::planner::Plan;
use experiment::run::protocol::{CheckpointEvery, How};
use experiment::runs_on_disk::kept_configs::Config;
use experiment::runs_on_disk::recorded::Recorded;
use records::RunRecord;
use std::path::PathBuf;
use support::console;
use support::exit::{Exit, Failure};
use support::units::count;
use sweep::live::tensorboard::Logger;
use sweep::options::{Options, Retry, Share};
use sweep::{self, Outcome, selected};

/// Train and evaluate every run of a config that is not recorded yet, then write the report
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "longreach run <CONFIG> [KEY=VALUE]... [OPTIONS]"
)]
pub struct Args {
    /// The experiment, a TOML file, or the name of one that comes with longreach (`list configs`)
    #[arg(add = ArgValueCompleter::new(completions::configs))]
    config: PathBuf,
    /// Values that replace those of the file, as dotted keys: train.steps=500 seeds=[0,1]
    #[arg(value_name = "KEY=VALUE", add = ArgValueCompleter::new(completions::overrides))]
    overrides: Vec<String>,
    /// Directory of all runs: RUNS/EXPERIMENT/RUN_ID
    #[arg(long, default_value = "runs", value_name = "DIR")]
    runs: PathBuf,
    /// cpu, wgpu, vulkan, metal, cuda or rocm; :N selects the Nth of several
    #[arg(long, default_value = "cpu", add = ArgValueCandidates::new(completions::devices))]
    device: DeviceName,
    /// Workers at a time: processes with one run each, unless --runs-per-worker is given [default:
    /// one per core on a CPU, 1 elsewhere]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    jobs: Option<u16>,
    /// Train up to N runs of one shape together in each worker, as one batched model: for GPUs,
    /// where tiny runs are bound by kernel launches. Runs of one shape may differ in seed, steps,
    /// optimizer, numbers of their encoding, and evaluation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1..=1024))]
    runs_per_worker: u16,
    /// Start no further run after the first failure
    #[arg(long)]
    fail_fast: bool,
    /// Steps (500) or seconds (30s) between the checkpoints of a run
    #[arg(long, value_name = "N|Ns", default_value_t = CheckpointEvery::default())]
    checkpoint_every: CheckpointEvery,
    /// Skip, and record as skipped, lengths whose estimated memory exceeds this per process
    /// (512MiB, 4GiB, none) [default: the memory of the machine, or of the device, divided among
    /// the workers]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
    /// Count the runs of these files as done: records of other machines, as `longreach gather`
    /// writes them, with the selection.jsonl beside them. Everything else is trained. Arguments
    /// after it, up to the next option, are files: give CONFIG and KEY=VALUE before it
    #[arg(long, value_name = "FILE", num_args = 1..)]
    recorded: Vec<PathBuf>,
    /// Run only the runs that failed, or again those that diverged
    #[arg(long, value_name = "WHICH")]
    retry: Option<Retry>,
    /// Let workers finish their runs even if this process is killed (kill -9) [default: they save
    /// and leave]
    #[arg(long)]
    keep_workers: bool,
    /// Also keep the weights before the first step of every run that is trained now, as
    /// initial_weights.safetensors
    #[arg(long)]
    initial_weights: bool,
    /// Also write what runs log while they train, for another program: tensorboard, into
    /// RUNS/EXPERIMENT/tensorboard
    #[arg(long, value_name = "FORMAT")]
    log: Option<LogFormat>,
}

/// A format of logs for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// Event files of TensorBoard
    Tensorboard,
}

const EXAMPLES: &str = r#"Examples:
  longreach run quickstart
  longreach run configs/text-lengths.toml model.d_model=128 'model.pe={kind="alibi"}' --jobs 1
  longreach run configs/quickstart.toml --log tensorboard
  longreach run configs/quickstart.toml --recorded results.jsonl  # trains what is not in there
  longreach run configs/theta-base.toml 'axes."model.pe.base"=[100,10000]' --runs /tmp/runs

Precedence, lowest first: built-in defaults, the file, its [axes], key=value arguments.
A key=value for a key with an axis replaces that axis.
Runs that are recorded with the same resolved config are skipped."#;

/// Runs the sweep and prints its report.
///
/// # Errors
///
/// Those of planning, of opening the device, and of [`sweep::run`].
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let plan = plan(&arguments.config, &arguments.overrides)?;
    console::notes(&plan.notes);
    let recorded = experiment::recorded(&arguments.recorded)?;
    // A device that does not work is refused once, before any worker starts.
    let device = device::open(&arguments.device)?;
    let options = Options {
        recorded,
        ..options(arguments, &plan, &device)
    };
    let log = |runs: &[PlannedRun]| {
        arguments.log.map(|LogFormat::Tensorboard| {
            let of = |run: &PlannedRun| (run.job.clone(), options.directory(run));
            let runs = runs.iter().map(of).collect();
            Logger::start(runs, &arguments.runs.join(&plan.name))
        })
    };
    let swept = plan.selection.as_ref().map_or(&[][..], |swept| &swept.runs);
    // What `check` counts: the chosen plan lacks methods whose sweep is not done.
    let runs = swept.len() + plan.runs.len();
    let logger = log(swept);
    let chosen = selected::choose(&plan, &options);
    logger.into_iter().for_each(Logger::end);
    let (plan, swept) = chosen?;
    // Without all of the sweep there may be no method to run, and a request to stop ends both.
    let ends = swept.as_ref().is_some_and(|swept| {
        plan.runs.is_empty() || swept.stopped.is_some() || options.fail_fast && swept.has_failed()
    });
    let mut outcome = if ends {
        Outcome::of(Vec::new())
    } else {
        let logger = log(&plan.runs);
        let outcome = sweep::run(&plan, &options);
        logger.into_iter().for_each(Logger::end);
        outcome?
    };
    let mut done = outcome.records.len();
    if let Some(swept) = swept {
        done += swept.records.len();
        outcome.add_failures(swept);
    }
    let is_result = |record: &RunRecord| !record.is_of_sweep() && record.half_of.is_none();
    if !outcome.records.is_empty() && !outcome.records.iter().any(is_result) {
        let note = "no report: every run is scored on selection rows (eval.rows), or is one of half \
                    the steps";
        console::notes(&[note.to_owned()]);
    } else if !outcome.records.is_empty() {
        let experiment = arguments.runs.join(&plan.name);
        let config = Config::of(&experiment, &plan)?.0;
        let records = outcome.tried().cloned().collect();
        let report = report::of_sweep(records, &config, &experiment)?;
        console::print_colored(&report);
    }
    print_failures(&outcome, done, runs);
    match outcome.exit() {
        // Directories of runs were removed while others trained.
        Exit::Done if done < runs && options.retry.is_none() => {
            let missing = count(runs - done, "run");
            console::tell(&format!(
                "\n{missing} of {runs} not recorded, or removed since; run the same command again"
            ));
            Ok(Exit::SomeFailed)
        }
        exit => Ok(exit),
    }
}

fn options(arguments: &Args, plan: &Plan, device: &Device) -> Options {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let default_jobs = if arguments.device.is_cpu() { cores } else { 1 };
    let jobs = arguments.jobs.map_or(default_jobs, usize::from);
    // Memory is divided among the processes that there can be, not among idle jobs.
    let swept = plan.selection.as_ref().map_or(0, |swept| swept.runs.len());
    let processes = jobs.min(plan.runs.len().max(swept));
    Options {
        runs: arguments.runs.clone(),
        how: How {
            device: arguments.device.clone(),
            checkpoint_every: arguments.checkpoint_every.clone(),
            memory_limit: arguments
                .device
                .worker_limit(arguments.memory_limit, device, processes),
            initial_weights: arguments.initial_weights,
            runs_per_worker: arguments.runs_per_worker.into(),
        },
        jobs,
        fail_fast: arguments.fail_fast,
        retry: arguments.retry,
        keep_workers: arguments.keep_workers,
        recorded: Recorded::default(),
        share: Share::default(),
    }
}

fn print_failures(outcome: &Outcome, done: usize, runs: usize) {
    for (name, directory, failure) in &outcome.failed {
        console::failed(name, directory, failure);
    }
    let runs = count(runs, "run");
    if outcome.stopped.is_some() {
        console::tell(&format!(
            "\nstopped: {done} of {runs} recorded; run the same command again to continue"
        ));
    } else if !outcome.failed.is_empty() {
        let not_started = if outcome.not_started > 0 {
            format!(", {} not started", outcome.not_started)
        } else {
            String::new()
        };
        console::tell(&format!(
            "\n{} of {runs} failed{not_started}; run the same command again to retry them",
            outcome.failed.len()
        ));
    } else if outcome.exit() == Exit::Diverged {
        console::tell("\nevery run diverged; try a lower train.lr");
    }
}
