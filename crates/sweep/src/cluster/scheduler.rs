//! The schedulers: their scripts, the commands that submit them, and what they allow. A scheduler
//! supplies an index and a time limit; all else is in files.

use crate::cluster::directory::{EVENTS_DIR, Scheduler, Submission, TaskHow};
use crate::cluster::manifest::{Task, longest_secs, ranges};
use crate::cluster::slurm;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::exit::{Exit, Failure};
use support::units::quoted;

/// Tasks of schedulers without such a limit.
const NO_LIMIT: usize = 10_000_000;

/// A file that a scheduler needs: its name in the directory, and its text.
pub type File = (String, String);

impl Scheduler {
    /// The program that `--go` calls.
    fn program(self) -> &'static str {
        match self {
            Self::Slurm => "sbatch",
            Self::Hq => "hq",
            Self::Parallel => "parallel",
        }
    }

    /// The script of a submission.
    pub fn script(self, generation: usize) -> String {
        let (name, extension) = match self {
            Self::Slurm => ("sweep", "sbatch"),
            Self::Hq => ("hq", "sh"),
            Self::Parallel => ("parallel", "sh"),
        };
        match generation {
            0 => format!("{name}.{extension}"),
            n => format!("again/{n}.{extension}"),
        }
    }

    /// Tasks that an array may have, and who says so; `options` are those for the scheduler.
    pub fn most_tasks(self, options: &[String]) -> (usize, String) {
        match self {
            Self::Slurm => slurm::most_tasks(options),
            Self::Hq | Self::Parallel => (NO_LIMIT, "this program".to_owned()),
        }
    }

    /// The scheduler's files for some tasks; `is_part`: others are left on purpose.
    pub fn files(
        self,
        submission: &Submission,
        tasks: &[Task],
        generation: usize,
        is_part: bool,
    ) -> Vec<File> {
        let end = end_of_all(submission, is_part);
        let script = self.script(generation);
        match self {
            Self::Slurm => {
                let mut files = vec![(script, sweep_sbatch(submission, tasks, generation))];
                if generation == 0 {
                    files.push(("report.sbatch".to_owned(), report_sbatch(submission)));
                }
                files
            }
            Self::Hq => vec![(script, hq(submission, tasks, generation, &end))],
            Self::Parallel => vec![(script, parallel(submission, tasks, generation, &end))],
        }
    }

    /// The commands that submit the files, to be given inside the directory.
    pub fn commands(self, generation: usize) -> Vec<String> {
        let script = self.script(generation);
        match self {
            Self::Slurm => vec![
                format!("sbatch --parsable {script}"),
                "sbatch --parsable --dependency=afterany:ID report.sbatch".to_owned(),
            ],
            Self::Hq | Self::Parallel => vec![format!("bash {script}")],
        }
    }

    /// Submits; returns what the scheduler answered. HyperQueue and GNU parallel run in place of
    /// this process, and end with their own exit code.
    ///
    /// # Errors
    ///
    /// [`Exit::SomeFailed`] if the scheduler refuses.
    pub fn go(self, directory: &Path, generation: usize) -> Result<Vec<String>, Failure> {
        let script = self.script(generation);
        if self != Self::Slurm {
            return Err(replace_process(
                Command::new("bash").arg(&script).current_dir(directory),
            ));
        }
        let id = sbatch(directory, &[&script])?;
        let after = format!("--dependency=afterany:{id}");
        let report = sbatch(directory, &[&after, "report.sbatch"])?;
        Ok(vec![id, report])
    }
}

/// Checks that the program of a scheduler is on the search path.
///
/// # Errors
///
/// [`Exit::Config`] if it is not.
pub fn installed(scheduler: Scheduler) -> Result<(), Failure> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let program = scheduler.program();
    let mut directories = std::env::split_paths(&paths);
    if directories.any(|directory: PathBuf| directory.join(program).is_file()) {
        return Ok(());
    }
    Err(Failure::config(format!(
        "--go: `{program}` is not on the PATH of this machine"
    ))
    .with_note("nothing was written or submitted")
    .with_help(format!(
        "leave out --go, and give the printed commands where `{program}` is installed"
    )))
}

fn sbatch(directory: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let failed = |why: String| {
        Failure::new(
            Exit::SomeFailed,
            format!("sbatch {}: {why}", arguments.join(" ")),
        )
        .with_help(format!(
            "nothing is lost: correct what sbatch names, such as an option in the script, and give \
             the commands inside {}",
            directory.display()
        ))
    };
    let answer = Command::new("sbatch")
        .arg("--parsable")
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !answer.status.success() {
        return Err(failed(text(&answer.stderr)));
    }
    // `ID`, or `ID;CLUSTER`.
    let id = text(&answer.stdout);
    Ok(id.split(';').next().unwrap_or_default().to_owned())
}

/// Continues as another program; returns only if it cannot be started.
fn replace_process(command: &mut Command) -> Failure {
    #[cfg(unix)]
    let error = std::os::unix::process::CommandExt::exec(command);
    #[cfg(not(unix))]
    let error = std::io::Error::other("no such scheduler on this system");
    Failure::new(
        Exit::SomeFailed,
        format!("cannot start the script: {error}"),
    )
}

/// `04:00:00`.
pub fn clock(seconds: u64) -> String {
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The command that every scheduler starts.
fn worker(generation: usize) -> String {
    let again = if generation > 0 {
        format!(" --again {generation}")
    } else {
        String::new()
    };
    format!("./longreach worker --manifest manifest.jsonl{again}")
}

/// A name for the scheduler's lists: what else a name may hold would end an option.
fn job_name(submission: &Submission) -> String {
    let name = submission.experiment.chars();
    name.map(|c| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    })
    .collect()
}

/// Memory of a task in MiB: all its processes, half as much again, and room for this program.
pub fn task_mib(how: &TaskHow, run_mib: u64, runs: usize) -> u64 {
    let of_worker = match how.device.as_str() {
        "cpu" => 1,
        _ => how.runs_per_worker,
    };
    let at_once = (how.workers_at_once() * of_worker).min(runs.max(1)) as u64;
    256 + at_once * (run_mib + run_mib / 2)
}

/// What a script says first if it is started elsewhere.
const GUARD: &str = r#"[ -x ./longreach ] || {
  echo "error: $(hostname) does not see this sweep in $PWD" >&2
  echo "  = help: submit inside its directory; if you did, this node does not share it:" >&2
  echo "  = help: srun -N2 ./longreach probe . tells what two nodes share" >&2
  exit 6
}
"#;

/// The options that were given for the scheduler, as words of a shell, each after a space.
fn options(how: &TaskHow) -> String {
    let options = how.scheduler_options.iter();
    options
        .map(|option| format!(" {}", quoted(option)))
        .collect()
}

/// The line of the options that were given, if there are any.
fn directive(how: &TaskHow) -> Option<String> {
    let options = options(how);
    (!options.is_empty()).then(|| format!("#SBATCH{options}"))
}

fn sweep_sbatch(submission: &Submission, tasks: &[Task], generation: usize) -> String {
    let how = &submission.how;
    let at_once = how
        .max_parallel
        .map_or_else(String::new, |most| format!("%{most}"));
    let indices = ranges(tasks.iter().map(|task| task.task));
    let mut lines = vec![
        "#!/bin/bash".to_owned(),
        "# Written by `longreach submit`. Submit it inside this directory.".to_owned(),
        format!("#SBATCH --job-name={}", job_name(submission)),
        format!("#SBATCH --array={indices}{at_once}"),
        format!("#SBATCH --time={}", clock(how.time_secs)),
        format!("#SBATCH --cpus-per-task={}", how.cpus_per_task),
        format!("#SBATCH --mem={}M", how.task_mib),
    ];
    if how.gpus_per_task > 0 {
        lines.push(format!("#SBATCH --gres=gpu:{}", how.gpus_per_task));
    }
    lines.push("# Preempted, timed out and stopped tasks come back and continue.".to_owned());
    lines.push("#SBATCH --requeue --open-mode=append".to_owned());
    lines.push(format!("#SBATCH --signal=B:USR1@{}", how.lead_secs));
    lines.push("#SBATCH --output=logs/%A_%a.log".to_owned());
    lines.extend(directive(how));
    lines.push(GUARD.trim_end().to_owned());
    lines.push("# exec: signals reach the worker, and its exit code is the job's.".to_owned());
    lines.push(format!("exec {}", worker(generation)));
    lines.join("\n") + "\n"
}

fn report_sbatch(submission: &Submission) -> String {
    let mut lines = vec![
        "#!/bin/bash".to_owned(),
        "# Written by `longreach submit`: reports the records that exist, however the tasks ended."
            .to_owned(),
        format!("#SBATCH --job-name={}-report", job_name(submission)),
        "#SBATCH --time=00:30:00 --cpus-per-task=1".to_owned(),
        "#SBATCH --output=logs/report-%j.log".to_owned(),
    ];
    // Last: of two options that differ, Slurm takes the later.
    lines.extend(directive(&submission.how));
    lines.push(GUARD.trim_end().to_owned());
    lines.push("./longreach status .".to_owned());
    lines.push(format!("exec {}", end(submission)));
    lines.join("\n") + "\n"
}

/// The last command of a script: the report, or what follows a sweep, which has none.
fn end(submission: &Submission) -> String {
    match submission.is_sweep {
        false => "./longreach report .".to_owned(),
        true => {
            "/bin/echo \"these were the selection runs: longreach submit CONFIG --chosen-by $PWD \
                 --out ANOTHER submits the result\""
                .to_owned()
        }
    }
}

/// The end of a script that waits for all tasks: their states, [`end`], and the exit code.
fn end_of_all(submission: &Submission, is_part: bool) -> String {
    let end = end(submission);
    // The states are those of all runs, also of those that a part leaves.
    if is_part {
        return format!("./longreach status .\n{end}\nexit $code");
    }
    // Without records there is no report: the states say more than its failure.
    format!(
        "./longreach status . --exit-code\ncode=$?\n{end} || code=$((code ? code : $?))\nexit \
         $code"
    )
}

fn hq(submission: &Submission, tasks: &[Task], generation: usize, end: &str) -> String {
    let how = &submission.how;
    let indices = ranges(tasks.iter().map(|task| task.task));
    let longest = longest_secs(tasks);
    // The resource decides which variable names the GPUs of a task.
    let vendor = match how.device.as_str() {
        "rocm" => "gpus/amd",
        _ => "gpus/nvidia",
    };
    let is_one_worker = |task: &Task| task.runs.len() <= how.runs_per_worker;
    let gpus = match (how.gpus_per_task, tasks.iter().all(is_one_worker)) {
        (0, _) => String::new(),
        (1, true) => format!(" --resource {vendor}={:.4}", 1.0 / how.runs_per_gpu as f64),
        (gpus, _) => format!(" --resource {vendor}={gpus}"),
    };
    format!(
        r#"#!/bin/bash
# Written by `longreach submit`. All tasks in one allocation: `sbatch -N4 --exclusive {script}`
# inside this directory; or `bash {script}` on a machine of your own. Again after a stop:
# tasks whose runs are recorded end at once.
#SBATCH --job-name={name} --requeue --open-mode=append --output=logs/allocation-%j.log
{GUARD}export HQ_SERVER_DIR=$PWD/hq/${{SLURM_JOB_ID:-$$}}
mkdir -p logs "$HQ_SERVER_DIR"
# In the allocation: a server on a login node leaves idle nodes behind when it dies. Without a
# journal: the files of the runs say what is left, and tasks of a journal would run beside the new.
hq server start > logs/hq-server.log 2>&1 &
server=$!
trap 'hq server stop > /dev/null 2>&1; rm -rf "$HQ_SERVER_DIR"' EXIT
until hq server info > /dev/null 2>&1; do
  kill -0 $server 2> /dev/null || {{
    echo "error: the server of HyperQueue did not start; logs/hq-server.log:" >&2
    cat logs/hq-server.log >&2
    exit 6
  }}
  sleep 0.5
done
if [ -n "${{SLURM_JOB_ID:-}}" ]; then
  srun --overlap --ntasks-per-node=1 hq worker start --on-server-lost=finish-running \
    > logs/hq-workers.log 2>&1 &
else
  hq worker start --on-server-lost=finish-running > logs/hq-workers.log 2>&1 &
fi
touch logs/asked
hq submit --wait --name {name} --array {indices} --cpus {cpus}{gpus} \
  --time-request {request}s --crash-limit 5 --stdout 'logs/hq-%{{TASK_ID}}.log' \
  --stderr 'logs/hq-%{{TASK_ID}}.log'{options} {worker}
code=$?
[ $code = 0 ] ||
  [ -n "$(find {EVENTS_DIR} logs/hq-[0-9]*.log -newer logs/asked -print -quit 2> /dev/null)" ] || {{
    echo "error: HyperQueue started no task" >&2
    exit 1
  }}
{end}
"#,
        script = submission.scheduler.script(generation),
        name = job_name(submission),
        cpus = how.cpus_per_task,
        request = ((3.0 * longest) as u64).max(60),
        options = options(how),
        worker = worker(generation),
    )
}

fn parallel(submission: &Submission, tasks: &[Task], generation: usize, end: &str) -> String {
    let how = &submission.how;
    let indices: Vec<String> = tasks.iter().map(|task| task.task.to_string()).collect();
    let (jobs, gpus) = if how.gpus_per_task > 0 {
        let each = how.gpus_per_task;
        // A slot beyond the GPUs would get none, and 0 slots are as many as there are tasks.
        let most = how.max_parallel.map_or_else(String::new, |most| {
            format!("slots=$((slots < {most} ? slots : {most}))\n")
        });
        let gpus = format!(
            "export gpus=${{CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index \
             --format=csv,noheader | paste -sd,)}}\n\
             slots=$(($(tr , '\\n' <<< \"$gpus\" | wc -l) / {each}))\n\
             slots=$((slots > 0 ? slots : 1))\n{most}# The slot of a task chooses its GPUs.\n\
             bind='CUDA_VISIBLE_DEVICES=$(cut -d, -f$((({{%}}-1)*{each}+1))-$(({{%}}*{each})) <<< \
             \"$gpus\")'\n"
        );
        ("$slots".to_owned(), gpus)
    } else {
        let jobs = how.max_parallel.map_or_else(
            || {
                format!(
                    "$(($(nproc) / {0} > 0 ? $(nproc) / {0} : 1))",
                    how.cpus_per_task
                )
            },
            |most| most.to_string(),
        );
        (jobs, "bind=\n".to_owned())
    };
    format!(
        r#"#!/bin/bash
# Written by `longreach submit`. Run it inside this directory, again after a stop: tasks whose runs
# are recorded end at once.
{GUARD}command -v parallel > /dev/null || {{
  echo "error: GNU parallel is not on the PATH of $(hostname)" >&2
  exit 2
}}
mkdir -p logs
{gpus}printf '%s\n' {indices} |
  SHELL=/bin/bash parallel --jobs {jobs} --halt never --joblog logs/parallel{suffix}.tsv{options} \
    "$bind {worker} --task {{}} >> logs/{{}}.log 2>&1"
code=$?
{end}
"#,
        indices = indices.join(" "),
        options = options(how),
        suffix = if generation > 0 {
            format!("-{generation}")
        } else {
            String::new()
        },
        worker = worker(generation),
    )
}
