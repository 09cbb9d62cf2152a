//! `longreach submit`: a sweep as tasks for Slurm, HyperQueue or GNU parallel.

use crate::commands::check;
use crate::commands::numbers::whole;
use crate::commands::records::{find, why};
use config::shipped::Shipped;
use experiment::device::{self, DeviceName};
use experiment::plan;
use experiment::plan::memory::MemoryLimit;
use experiment::plan::planner::Plan;
use experiment::run::protocol::CheckpointEvery;
use records::store::SELECTION_FILE;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use support::units::{count, duration, quoted};
use sweep::cluster::directory::{Scheduler, Submission, TaskHow};
use sweep::cluster::manifest::{Task, longest_secs};
use sweep::cluster::pack::PerTask;
use sweep::cluster::resubmit::{Again, Only, again};
use sweep::cluster::scheduler::{self, clock};
use sweep::cluster::submit::{Request, Submitted, submit};
use sweep::prepare::check_memory;
use sweep::selected::{self, refuse_changed};

/// Write a sweep as tasks for Slurm, HyperQueue or GNU parallel, and print how to submit it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The experiment, a TOML file
    #[arg(required_unless_present = "again", conflicts_with = "again")]
    config: Option<PathBuf>,
    /// Values that replace those of the file, as dotted keys: train.steps=500 seeds=[0,1]
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// The scheduler that starts the tasks
    #[arg(long, required_unless_present = "again", value_name = "SCHEDULER")]
    cluster: Option<Scheduler>,
    /// Directory for the sweep, which all nodes see
    #[arg(long, required_unless_present = "again", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where a config has [select]: the records of its selection runs, as a directory or a file;
    /// the result is submitted, at the values that they choose. Without this, the selection runs
    /// are submitted
    #[arg(long, value_name = "PATH", conflicts_with = "again")]
    chosen_by: Option<PathBuf>,
    /// Submit, instead of only printing how
    #[arg(long)]
    go: bool,
    /// Runs in a task; auto makes tasks of 30 to 60 minutes for Slurm, and of one run elsewhere
    #[arg(
        long,
        value_name = "N|auto",
        default_value = "auto",
        conflicts_with = "again"
    )]
    runs_per_task: PerTask,
    /// CPUs of a task: without GPUs, this many runs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1..=1024), conflicts_with = "again")]
    cpus_per_task: u16,
    /// GPUs of a task
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u16>(0..=64), conflicts_with = "again")]
    gpus_per_task: u16,
    /// Runs at a time on each GPU
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = whole::<u16>(1..=64), conflicts_with = "again")]
    runs_per_gpu: u16,
    /// Train up to N runs of one shape together in each of these, as one batched model: for GPUs,
    /// see `longreach run`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1..=1024), conflicts_with = "again")]
    runs_per_worker: u16,
    /// Time that Slurm gives to a task, as HH:MM:SS [default: four times what the longest is
    /// expected to take, at least an hour]. With hq and parallel, which set no limit without it, a
    /// task saves and stops by itself before that time is over; their script, started again,
    /// continues it
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "again")]
    time: Option<u64>,
    /// Tasks at a time
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000_000), conflicts_with = "again")]
    max_parallel: Option<u32>,
    /// cpu, wgpu, vulkan, metal, cuda or rocm
    #[arg(long, default_value = "cpu", conflicts_with = "again")]
    device: DeviceName,
    /// Steps (500) or seconds (30s) between the checkpoints of a run
    #[arg(long, value_name = "N|Ns", default_value_t = CheckpointEvery::default(), conflicts_with = "again")]
    checkpoint_every: CheckpointEvery,
    /// Skip, and record as skipped, lengths whose estimated memory exceeds this per process
    #[arg(long, value_name = "SIZE", conflicts_with = "again")]
    memory_limit: Option<MemoryLimit>,
    /// Seconds between two heartbeats of a lease; three missed ones end it
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole::<u16>(1..=3600), conflicts_with = "again")]
    heartbeat: u16,
    /// Count the runs of these files as done, as `run --recorded` does; give CONFIG and KEY=VALUE
    /// before it
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "again")]
    recorded: Vec<PathBuf>,
    /// Submit the unfinished runs of a directory again
    #[arg(long, value_name = "DIR", conflicts_with_all = ["cluster", "out"])]
    again: Option<PathBuf>,
    /// Of those, only the ones in this state
    #[arg(long, value_name = "STATE", requires = "again", conflicts_with_all = ["cluster", "out"])]
    only: Option<Only>,
    /// Continue the submitted runs although their config has changed since
    #[arg(long, requires = "again", conflicts_with_all = ["cluster", "out"])]
    as_submitted: bool,
    /// Options for the scheduler, after --
    #[arg(last = true, value_name = "SCHEDULER OPTION", conflicts_with = "again")]
    scheduler_options: Vec<String>,
}

const EXAMPLES: &str = r#"Examples:
  longreach submit configs/theta-base.toml --cluster slurm --out /shared/theta
  longreach submit x.toml --cluster slurm --out DIR --max-parallel 32 --go -- -p main
  longreach submit x.toml --cluster slurm --out DIR --device cuda --gpus-per-task 1 --runs-per-gpu 2
  longreach submit x.toml --cluster parallel --out DIR --go  # all cores of this machine
  longreach submit x.toml --cluster slurm --out RESULT --chosen-by SWEEP
  longreach submit --again DIR --only failed --go            # the failed runs once more
  longreach status DIR                                       # what became of all runs

Nothing is submitted without --go. The scheduler supplies an index; everything else is in DIR."#;

fn time(text: &str) -> Result<u64, String> {
    let seconds = sweep::cluster::allocation::seconds(text);
    match seconds.filter(|seconds| *seconds >= 60) {
        Some(seconds) => Ok(seconds),
        None => Err(format!(
            "`{text}` is not a time of a minute or more; write 04:00:00 or 1-12:00:00, minutes and \
             seconds below 60, hours behind days below 24"
        )),
    }
}

/// Writes a sweep for a scheduler, or another array for its unfinished runs.
///
/// # Errors
///
/// Those of planning, of [`submit`] and of [`again`]; [`Exit::Config`] if `--go` needs a scheduler
/// that is not installed; [`Exit::Resources`] for a training that `--memory-limit` leaves no room.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    if let Some(directory) = &arguments.again {
        return run_again(directory, arguments);
    }
    let missing = || Failure::bug("clap requires it");
    let scheduler = arguments.cluster.ok_or_else(missing)?;
    let out = arguments.out.clone().ok_or_else(missing)?;
    let config = arguments.config.clone().ok_or_else(missing)?;
    if let Some(shipped) = Shipped::named(&config) {
        let name = shipped.name;
        let problem = format!("{name} comes with longreach, and a submitted sweep keeps its file");
        let help = format!("longreach new --from {name}; longreach submit {name}.toml ...");
        return Err(Failure::config(problem).with_help(help));
    }
    // The script of the scheduler is text.
    if out.to_str().is_none() {
        return Err(Failure::config(format!(
            "--out {}: the path is not UTF-8, and the scheduler's script names it",
            out.display()
        ))
        .with_help("choose another directory"));
    }
    if arguments.go {
        scheduler::installed(scheduler)?;
    }
    let how = how(arguments)?;
    let plan = plan(&config, &arguments.overrides)?;
    console::notes(&plan.notes);
    let plan = part(plan, arguments.chosen_by.as_deref())?;
    let recorded = experiment::recorded(&arguments.recorded)?;
    if let Some(limit) = arguments.memory_limit {
        let mut to_do = plan.runs.iter().filter(|run| recorded.of(run).is_none());
        let limit = limit.of(arguments.device.memory());
        to_do.try_for_each(|run| check_memory(run, limit))?;
    }
    console::notes(&doubts(arguments, &plan));
    let request = Request {
        out: out.clone(),
        scheduler,
        per_task: arguments.runs_per_task,
        overrides: arguments.overrides.clone(),
        recorded,
        how,
    };
    let submitted = submit(&plan, request)?;
    console::notes(&submitted.notes);
    console::print(&summary(&submitted, &out));
    finish(scheduler, &out, 0, arguments.go)
}

/// The part of an experiment with `[select]` that is submitted: the sweep, or the result at the
/// values that the records of the sweep choose. Any other experiment as a whole.
fn part(plan: Plan, chosen_by: Option<&Path>) -> Result<Plan, Failure> {
    let refuse = |problem: String, help: &str| {
        Err(Failure::config(format!("--chosen-by: {problem}")).with_help(help))
    };
    match (plan.sweep(), chosen_by) {
        (None, None) => Ok(plan),
        (None, Some(_)) => {
            let problem = format!("{} has no [select]", plan.path.display());
            refuse(problem, "leave it out to submit the experiment")
        }
        (Some(sweep), None) => {
            let note = "these are the selection runs; once they have ended, the same command with \
                        --chosen-by DIR and another --out submits the result";
            console::notes(&[note.to_owned()]);
            Ok(sweep)
        }
        (Some(sweep), Some(path)) => {
            // `gather` writes the records of a sweep beside those of its result.
            let kept = Some(path.join(SELECTION_FILE)).filter(|file| file.is_file());
            let roots: Vec<PathBuf> = kept.into_iter().chain([path.to_owned()]).collect();
            let found = find(&roots, true)?;
            let methods = sweep
                .selection
                .as_ref()
                .map_or(0, |swept| swept.methods.len());
            refuse_changed(&found.records, path)?;
            let chosen = plan.chosen(&found.records);
            let undecided = chosen.undecided;
            if undecided == 0 && chosen.plan.runs.is_empty() {
                let problem = "no combination of any method has a score".to_owned();
                return refuse(problem, "look at the selection runs: `longreach status`");
            }
            if undecided == 0 {
                selected::tell_unscored(&chosen.unscored);
                return Ok(chosen.plan);
            }
            if let Some(excluded) = found.excluded.first() {
                return Err(Failure::input(format!("--chosen-by: {}", why(excluded))));
            }
            let problem = format!(
                "{undecided} of {} cannot choose: runs of their sweep have no record in {}",
                count(methods, "method"),
                path.display()
            );
            refuse(
                problem,
                "`longreach submit --again DIR` continues the sweep",
            )
        }
    }
}

/// What tasks would not use, and runs that would not fit.
fn doubts(arguments: &Args, plan: &Plan) -> Vec<String> {
    let of = arguments.device.memory();
    let limit = arguments.memory_limit.map(|limit| limit.of(of));
    let rows = check::rows(plan, of, |_| false);
    let mut notes: Vec<String> = limit
        .iter()
        .flat_map(|limit| check::beyond(*limit, &rows))
        .collect();
    if arguments.device.kind == "cpu" && arguments.gpus_per_task > 0 {
        notes.push("--device cpu uses none of the GPUs of --gpus-per-task".into());
    }
    if arguments.runs_per_gpu > 1 && arguments.gpus_per_task == 0 {
        notes.push("--runs-per-gpu does nothing without --gpus-per-task".into());
    }
    if arguments.runs_per_worker > 1 && arguments.device.is_cpu() {
        notes.push(sweep::ONE_BY_ONE.into());
    }
    notes
}

/// Refuses a device that tasks cannot have.
fn check_device(arguments: &Args) -> Result<(), Failure> {
    device::check_compiled(&arguments.device)?;
    let (device, kind) = (&arguments.device, arguments.device.kind);
    let gpus = arguments.gpus_per_task;
    let (problem, help) = if device.index.is_some() {
        (
            format!("--device {device}: a task uses the GPUs that the scheduler gives it"),
            format!("leave out the number: --device {kind}"),
        )
    } else if matches!(kind, "cuda" | "rocm") && gpus == 0 {
        let problem = format!("--device {device} needs GPUs");
        (problem, "--gpus-per-task 1".to_owned())
    } else if matches!(kind, "wgpu" | "vulkan" | "metal") && gpus > 1 {
        (
            format!(
                "--gpus-per-task {gpus}: no variable binds runs to GPUs on {device}\n  = allowed: 1"
            ),
            "--device cuda or rocm divides several among its runs".to_owned(),
        )
    } else if kind == "rocm" && arguments.cluster == Some(Scheduler::Parallel) {
        (
            "--device rocm: --cluster parallel divides only NVIDIA's GPUs among tasks".to_owned(),
            "--cluster slurm or hq, or `longreach run` on one machine".to_owned(),
        )
    } else {
        return Ok(());
    };
    Err(Failure::config(problem).with_help(help))
}

/// Options of `sbatch` that the script depends on, and what to give instead.
const OWN_OPTIONS: [(&[&str], &str); 5] = [
    (
        &["--array", "-a"],
        "--runs-per-task and --max-parallel divide the runs",
    ),
    (&["--output", "-o", "--error", "-e"], "logs are in DIR/logs"),
    (
        &["--no-requeue"],
        "leave it out: stopped tasks are requeued, and continue",
    ),
    (
        &["--signal"],
        "a task saves when it gets USR1, before its time ends",
    ),
    (&["--time", "-t"], "write `--time` before the `--`"),
];

/// Refuses options for the scheduler that a script cannot hold or that would break it.
fn check_options(arguments: &Args) -> Result<(), Failure> {
    for option in &arguments.scheduler_options {
        if option.contains(|c: char| c.is_control()) {
            return Err(Failure::config(format!(
                "scheduler option {option:?}: control characters cannot stand in a script"
            )));
        }
        // A long option may be cut, and a short one is followed by its value.
        let name = option.split('=').next().unwrap_or(option);
        let is_meant = |own: &&str| match own.starts_with("--") {
            true => name.len() > 3 && own.starts_with(name),
            false => !option.starts_with("--") && option.starts_with(*own),
        };
        let own = OWN_OPTIONS
            .iter()
            .find(|(names, _)| names.iter().any(is_meant));
        if let (Some(Scheduler::Slurm), Some((names, help))) = (arguments.cluster, own) {
            return Err(Failure::config(format!(
                "scheduler option {option} would replace {} of the script",
                names[0].replace("--no-", "--")
            ))
            .with_help(help));
        }
    }
    Ok(())
}

/// How tasks run, as far as the arguments say.
fn how(arguments: &Args) -> Result<TaskHow, Failure> {
    check_device(arguments)?;
    if let (Some(Scheduler::Hq), Some(most)) = (arguments.cluster, arguments.max_parallel) {
        return Err(Failure::config(format!(
            "--max-parallel {most}: hq starts every task that there is room for"
        ))
        .with_help("leave it out; --cpus-per-task says how much room a task takes"));
    }
    check_options(arguments)?;
    Ok(TaskHow {
        device: arguments.device.to_string(),
        checkpoint_every: arguments.checkpoint_every.to_string(),
        memory_limit: arguments.memory_limit.map(|limit| limit.to_string()),
        cpus_per_task: arguments.cpus_per_task.into(),
        task_mib: 0,
        gpus_per_task: arguments.gpus_per_task.into(),
        runs_per_gpu: arguments.runs_per_gpu.into(),
        runs_per_worker: arguments.runs_per_worker.into(),
        max_parallel: arguments.max_parallel.map(|most| most as usize),
        time_secs: arguments.time.unwrap_or(0),
        lead_secs: 0,
        heartbeat_ms: 1000 * u64::from(arguments.heartbeat),
        scheduler_options: arguments.scheduler_options.clone(),
    })
}

fn summary(submitted: &Submitted, out: &Path) -> String {
    let Submitted {
        submission, tasks, ..
    } = submitted;
    let how = &submission.how;
    let runs = |task: &Task| task.runs.len();
    let (most, least) = (tasks.iter().map(runs).max(), tasks.iter().map(runs).min());
    let each = match (least.unwrap_or(0), most.unwrap_or(0)) {
        (least, most) if least == most => most.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    let longest = longest_secs(tasks);
    let of_time = match how.time_secs {
        0 => String::new(),
        secs => format!(" of {}", clock(secs)),
    };
    let at_once = how
        .max_parallel
        .map_or_else(String::new, |most| format!(", {most} at a time"));
    let gpus = match how.gpus_per_task {
        0 => String::new(),
        n => format!(
            ", {}, {} at a time on each",
            count(n, "GPU"),
            match how.runs_per_worker {
                1 => count(how.runs_per_gpu, "run"),
                most => format!("{} of up to {most} runs", count(how.runs_per_gpu, "worker")),
            }
        ),
    };
    format!(
        "{}: {} in {} of {each}{at_once}; the longest is expected to take {}{of_time}\nof a task: \
         {}, {} MiB{gpus}\nwritten: {}",
        submission.experiment,
        count(tasks.iter().map(runs).sum(), "run"),
        count(tasks.len(), "task"),
        duration(longest),
        count(how.cpus_per_task, "CPU"),
        how.task_mib,
        out.display()
    )
}

/// Submits, or says how.
fn finish(
    scheduler: Scheduler,
    directory: &Path,
    generation: usize,
    go: bool,
) -> Result<Exit, Failure> {
    if go {
        let ids = scheduler.go(directory, generation)?;
        let word = quoted(&directory.to_string_lossy());
        console::print(&format!(
            "submitted: {}\n`longreach status {word}` says what becomes of it",
            ids.join(", then the report as ")
        ));
        return Ok(Exit::Done);
    }
    let directory = quoted(&directory.to_string_lossy());
    let commands = scheduler.commands(generation).join("\n  ");
    console::print(&format!("to submit it:\n  cd {directory}\n  {commands}"));
    Ok(Exit::Done)
}

fn run_again(directory: &Path, arguments: &Args) -> Result<Exit, Failure> {
    let submission = Submission::read(directory)?;
    if arguments.go {
        scheduler::installed(submission.scheduler)?;
    }
    submission.check_program(directory)?;
    let found = again(
        directory,
        &submission,
        arguments.only,
        arguments.as_submitted,
    )?;
    let Some(Again {
        generation,
        tasks,
        runs,
    }) = found
    else {
        console::print(&format!(
            "{}: no run {}",
            submission.experiment,
            match arguments.only {
                None => "is failed, stopped or planned",
                Some(Only::Failed) => "has failed",
                Some(Only::Stopped) => "was stopped",
                Some(Only::Planned) => "is planned",
            }
        ));
        return Ok(Exit::Done);
    };
    console::print(&format!(
        "{}: {} in {} again: {}",
        submission.experiment,
        count(runs, "run"),
        count(tasks.len(), "task"),
        sweep::cluster::manifest::ranges(tasks.iter().map(|task| task.task))
    ));
    finish(submission.scheduler, directory, generation, arguments.go)
}
