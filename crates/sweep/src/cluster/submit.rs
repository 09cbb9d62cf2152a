//! Writes the directory of a sweep that schedulers run: everything is checked first, and
//! `submit.json` is written last.

use crate::cluster::directory::{
    EVENTS_DIR, HASH_FILE, LAYOUT, LOGS_DIR, MANIFEST_FILE, PROGRAM_FILE, RUNS_DIR, SUBMIT_FILE,
    Scheduler, Submission, TASKS_FILE, TaskHow, hash_of, is_cluster,
};
use crate::cluster::manifest::{self, Line, ManifestEntry, Task, longest_secs};
use crate::cluster::pack::{PerTask, pack};
use crate::cluster::scheduler::task_mib;
use experiment::plan::cost::{ASSUMED_FLOPS, flops, memory_bytes};
use experiment::plan::memory::Memory;
use experiment::plan::planned::PlannedRun;
use experiment::plan::planner::Plan;
use experiment::runs_on_disk::files::Runs;
use experiment::runs_on_disk::hold::LiveLease;
use experiment::runs_on_disk::kept_configs;
use experiment::runs_on_disk::recorded::Recorded;
use rundir::Disk;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use support::exit::Failure;
use support::program::running_program;
use support::units::{count, quoted};

/// Shortest time that a task is given where none was asked for.
const LEAST_SECS: u64 = 3600;
/// Longest time between the scheduler's signal and the end of a task.
const MOST_LEAD_SECS: u64 = 120;

/// What to write.
pub struct Request {
    /// The directory.
    pub out: PathBuf,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// How runs are divided.
    pub per_task: PerTask,
    /// Values that replaced those of the config.
    pub overrides: Vec<String>,
    /// Records whose runs count as done.
    pub recorded: Recorded,
    /// How tasks run; `time_secs` 0 is a time that suits the longest task of Slurm, and no limit
    /// elsewhere.
    pub how: TaskHow,
}

/// What was written.
#[derive(Debug)]
pub struct Submitted {
    /// What was submitted.
    pub submission: Submission,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// What its author may not expect.
    pub notes: Vec<String>,
}

/// Plans the tasks of a sweep, and writes its directory.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if the directory holds a sweep already, if every
/// run is recorded, or an array would be too large; [`Exit::Busy`](support::exit::Exit::Busy) if
/// another `submit` writes to it; [`Exit::Resources`](support::exit::Exit::Resources) if it cannot
/// be written.
pub fn submit(plan: &Plan, request: Request) -> Result<Submitted, Failure> {
    let Request {
        out,
        scheduler,
        per_task,
        overrides,
        recorded,
        mut how,
    } = request;
    refuse_second(&out)?;
    recorded.check(plan, &out.join(RUNS_DIR))?;
    let lines: Vec<Line> = plan_lines(plan, &recorded);
    let (text, starts) = manifest::text(&lines)?;
    let per_task = match (scheduler, per_task) {
        // Starting a task costs these schedulers nothing.
        (Scheduler::Hq | Scheduler::Parallel, PerTask::Auto) => PerTask::Fixed(how.runs_per_worker),
        (_, asked) => asked,
    };
    let to_do: Vec<(&Line, u64)> = plan
        .runs
        .iter()
        .zip(lines.iter().zip(starts))
        .filter_map(|(run, line)| recorded.of(run).is_none().then_some(line))
        .collect();
    if to_do.is_empty() {
        return Err(none_to_do(plan));
    }
    let tasks = plan_tasks(&to_do, (scheduler, per_task), &how)?;
    let mut notes = complete(&mut how, &lines, &tasks, &out, scheduler);
    let disk = rundir::system();
    disk.probe(&out).map_err(|refused| {
        let failure = Failure::from(refused);
        Failure::new(failure.exit, format!("--out: {failure}"))
    })?;
    // If two `submit` start at the same time, the second one fails and names the first.
    let _lease = LiveLease::for_a_moment(&out)?;
    refuse_second(&out)?;
    notes.extend(recorded.copy(disk, plan, &out.join(RUNS_DIR))?);
    let submission = write(plan, &out, &text, &tasks, (scheduler, overrides, how))?;
    Ok(Submitted {
        submission,
        tasks,
        notes,
    })
}

/// Whether the runs of a plan are its sweep of `[select]`.
fn is_sweep(plan: &Plan) -> bool {
    let swept = plan.selection.iter().flat_map(|found| &found.runs).next();
    let first = plan.runs.first();
    swept
        .zip(first)
        .is_some_and(|(swept, first)| swept.job.run_id == first.job.run_id)
}

/// Writes all files, `submit.json` last.
fn write(
    plan: &Plan,
    out: &Path,
    manifest: &[u8],
    tasks: &[Task],
    (scheduler, overrides, how): (Scheduler, Vec<String>, TaskHow),
) -> Result<Submission, Failure> {
    let disk = rundir::system();
    for name in [LOGS_DIR, EVENTS_DIR, RUNS_DIR] {
        disk.create_dirs(&out.join(name))?;
    }
    let write = |name: &str, bytes: &[u8]| disk.write_whole(&out.join(name), bytes);
    write(MANIFEST_FILE, manifest)?;
    write(TASKS_FILE, &manifest::text(tasks)?.0)?;
    let program_blake3 = copy_program(disk, out)?;
    write(
        HASH_FILE,
        format!("{program_blake3}  {PROGRAM_FILE}\n").as_bytes(),
    )?;
    // The result is submitted into another directory.
    let own = is_sweep(plan).then(|| Plan {
        selection: None,
        ..plan.clone()
    });
    let experiment = out.join(RUNS_DIR).join(&plan.name);
    kept_configs::write(disk, &experiment, own.as_ref().unwrap_or(plan))?;

    let config = std::path::absolute(&plan.path).unwrap_or_else(|_| plan.path.clone());
    let submission = Submission {
        layout: LAYOUT,
        version: support::build::VERSION.to_owned(),
        commit: support::build::COMMIT.to_owned(),
        program_blake3,
        experiment: plan.name.clone(),
        config_blake3: hash_of(&config)?,
        config,
        overrides,
        scheduler,
        runs: plan.runs.len(),
        tasks: tasks.len(),
        submitted: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        is_sweep: is_sweep(plan),
        how,
    };
    for (name, text) in scheduler.files(&submission, tasks, 0, false) {
        write(&name, text.as_bytes())?;
    }
    let json = serde_json::to_vec_pretty(&submission).map_err(Failure::bug)?;
    write(SUBMIT_FILE, &json)?;
    Ok(submission)
}

/// A directory holds one sweep: its manifest says which runs its records are.
fn refuse_second(out: &Path) -> Result<(), Failure> {
    if !is_cluster(out) {
        return refuse_runs(out);
    }
    let holds = Submission::read(out).map_or_else(
        |_| "a submitted sweep".to_owned(),
        |known| {
            let runs = count(known.runs, "run");
            format!(
                "{runs} of {}, submitted from {}",
                known.experiment,
                known.config.display()
            )
        },
    );
    Err(
        Failure::config(format!("--out: {} holds {holds}", out.display())).with_help(format!(
            "`longreach submit --again {}` continues it; another sweep needs another directory",
            quoted(&out.to_string_lossy())
        )),
    )
}

/// Refuses a run, an experiment, or a directory of experiments: of a submitted sweep, commands look
/// at its own runs only.
fn refuse_runs(out: &Path) -> Result<(), Failure> {
    let below = Runs::below(out).map(|found| found.runs);
    let Some(found) = below.unwrap_or_default().into_iter().next() else {
        return Ok(());
    };
    Err(Failure::config(format!(
        "--out: {} holds runs that are not of this sweep: {}",
        out.display(),
        found.display()
    ))
    .with_note("`status` and `report` of the directory would not show them any more")
    .with_help("give the sweep a directory of its own, which need not be there yet"))
}

fn plan_lines(plan: &Plan, recorded: &Recorded) -> Vec<Line> {
    let line = |run: &PlannedRun| Line {
        run_id: run.job.run_id.clone(),
        expected_secs: match recorded.of(run) {
            Some(_) => 0.0,
            None => flops(run) / ASSUMED_FLOPS,
        },
        // Of the node, which the scheduler is asked for.
        expected_mib: memory_bytes(Memory::Host, run).div_ceil(1 << 20),
        parameters: run.parameters,
        train_tokens: run.train_tokens,
        eval_tokens: run.eval_tokens,
        test_seq_lens: run.sizes.seq_lens.clone(),
        test_rows: run.sizes.rows.clone(),
        task_bytes: run.sizes.bytes,
        job: run.job.clone(),
    };
    plan.runs.iter().map(line).collect()
}

fn none_to_do(plan: &Plan) -> Failure {
    let help = match is_sweep(plan) {
        true => "the same command with --chosen-by FILE and another --out submits the result",
        false => "`longreach run` with the same --recorded writes the report",
    };
    Failure::config(format!(
        "--recorded: the files hold {} of {}: nothing is left to submit",
        match plan.runs.len() {
            1 => "the only run".to_owned(),
            runs => format!("all {runs} runs"),
        },
        plan.name
    ))
    .with_help(help)
}

/// Seconds that starting a worker takes: most of a short run.
const START_SECS: f64 = 1.0;

/// Divides runs, with their places in the manifest, among tasks.
fn plan_tasks(
    runs: &[(&Line, u64)],

    (scheduler, per_task): (Scheduler, PerTask),
    how: &TaskHow,
) -> Result<Vec<Task>, Failure> {
    let (most, who) = scheduler.most_tasks(&how.scheduler_options);
    let secs: Vec<f64> = runs
        .iter()
        .map(|(line, _)| line.expected_secs + START_SECS)
        .collect();
    let at_once = how.workers_at_once();
    let packed = pack(&secs, per_task, at_once, most);
    if packed.len() > most {
        let least = runs.len().div_ceil(most);
        return Err(Failure::config(format!(
            "--runs-per-task: {} make an array of {}",
            count(runs.len(), "run"),
            count(packed.len(), "task")
        ))
        .with_allowed(format!("at most {most} tasks ({who})"))
        .with_help(format!("--runs-per-task {least} or more, or auto")));
    }
    let entry = |index: &usize| ManifestEntry {
        run: runs[*index].0.run_id.clone(),
        at: runs[*index].1,
    };
    let task = |(task, packed): (usize, Vec<usize>)| Task {
        task,
        expected_secs: packed.iter().map(|index| secs[*index]).sum::<f64>()
            / at_once.min(packed.len()).max(1) as f64,
        runs: packed.iter().map(entry).collect(),
    };
    Ok(packed.into_iter().enumerate().map(task).collect())
}

/// Fills in time and memory of a task, and says what they mean.
fn complete(
    how: &mut TaskHow,
    lines: &[Line],
    tasks: &[Task],
    out: &Path,
    scheduler: Scheduler,
) -> Vec<String> {
    let mut notes = Vec::new();
    let longest = longest_secs(tasks);
    if how.time_secs == 0 && scheduler == Scheduler::Slurm {
        // Estimates are of another machine; a task that needs longer is requeued and continues.
        let hours = (4.0 * longest / 3600.0).ceil() as u64;
        how.time_secs = (3600 * hours).max(LEAST_SECS);
    } else if how.time_secs > 0 && longest > how.time_secs as f64 {
        let then = match scheduler {
            Scheduler::Slurm => "it is requeued and continues from its checkpoints",
            Scheduler::Hq | Scheduler::Parallel => {
                "it saves and stops then, and the same script, started again, continues it"
            }
        };
        notes.push(format!(
            "the longest task is expected to take {}, longer than --time: {then}",
            support::units::duration(longest)
        ));
    }
    how.lead_secs = match how.time_secs {
        // For the end of an allocation.
        0 => MOST_LEAD_SECS,
        secs => (secs / 4).clamp(1, MOST_LEAD_SECS),
    };
    let run_mib = lines
        .iter()
        .map(|line| line.expected_mib)
        .max()
        .unwrap_or(0);
    let runs = tasks.iter().map(|task| task.runs.len()).max().unwrap_or(1);
    how.task_mib = task_mib(how, run_mib, runs);
    if scheduler == Scheduler::Slurm
        && let Some(kind) = memory_file_system(out)
    {
        notes.push(format!(
            "{} is on {kind}, which other machines do not see; nodes need a shared directory \
             (`srun -N2 longreach probe DIR` tests one)",
            out.display()
        ));
    }
    notes
}

/// The kind of a file system in the memory of this machine, if a directory is on one.
fn memory_file_system(directory: &Path) -> Option<String> {
    let mut place = std::path::absolute(directory).ok()?;
    while !place.exists() {
        place = place.parent()?.to_owned();
    }
    let place = place.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let of = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (at, kind) = (words.nth(1)?, words.next()?);
        place.starts_with(at).then_some((at.len(), kind))
    });
    let (_, kind) = of.max_by_key(|(length, _)| *length)?;
    matches!(kind, "tmpfs" | "ramfs").then(|| kind.to_owned())
}

/// Copies this program; returns its hash. The copy is complete before it has its name.
fn copy_program(disk: &dyn Disk, out: &Path) -> Result<String, Failure> {
    let from = running_program()?;
    let bytes = fs_err::read(&from).map_err(Failure::input)?;
    let hash = blake3::hash(&bytes).to_hex().to_string();
    let path = out.join(PROGRAM_FILE);
    disk.write_whole(&path, &bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(&path, mode).map_err(Failure::resources)?;
    }
    Ok(hash)
}
