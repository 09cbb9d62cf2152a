//! Sweeps as tasks of an engine: what `submit` writes, what `worker` makes of it, and how every
//! mistake is answered. `scripts/cluster-check` runs the same against Slurm's daemons.

use crate::common::{
    ONE, Scratch, TINY, command, exits, fails, has, lacks, longreach, says, shows, stderr, stdout,
    wait_for, words,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A scratch directory with a config and a directory for a submitted sweep.
pub struct Sweep {
    pub scratch: Scratch,
    pub out: PathBuf,
}

impl Sweep {
    pub fn with(config: &str) -> Self {
        let scratch = Scratch::with(config);
        let out = scratch.directory.path().join("out");
        Self { scratch, out }
    }

    /// A sweep of four runs in two tasks, submitted for GNU parallel.
    pub fn submitted() -> Self {
        let sweep = Self::with(TINY);
        exits(&sweep.submit("parallel", &["--runs-per-task", "2"]), 0);
        sweep
    }

    pub fn submit(&self, engine: &str, arguments: &[&str]) -> Output {
        let mut program = bare();
        program.arg("submit").arg(&self.scratch.config);
        program
            .args(["--cluster", engine, "--out"])
            .arg(&self.out)
            .args(arguments);
        program.output().unwrap()
    }

    pub fn again(&self, arguments: &[&str]) -> Output {
        let mut program = bare();
        program
            .args(["submit", "--again"])
            .arg(&self.out)
            .args(arguments);
        program.output().unwrap()
    }

    pub fn worker(&self, arguments: &[&str]) -> Command {
        let mut program = bare();
        program
            .args(["worker", "--manifest"])
            .arg(self.out.join("manifest.jsonl"));
        program.args(arguments);
        program
    }

    fn task(&self, task: &str) -> Output {
        self.worker(&["--task", task]).output().unwrap()
    }

    pub fn status(&self) -> String {
        let output = bare().arg("status").arg(&self.out).output().unwrap();
        exits(&output, 0);
        stdout(&output)
    }

    pub fn counts(&self) -> String {
        self.status().lines().last().unwrap_or_default().to_owned()
    }

    fn logs(&self, arguments: &[&str]) -> Output {
        bare()
            .arg("logs")
            .arg(&self.out)
            .args(arguments)
            .output()
            .unwrap()
    }

    /// The directories of the runs, in the order of the manifest.
    pub fn runs(&self) -> Vec<PathBuf> {
        let manifest = std::fs::read_to_string(self.out.join("manifest.jsonl")).unwrap();
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            self.out
                .join("runs/tiny")
                .join(line["run_id"].as_str().unwrap())
        };
        manifest.lines().map(line).collect()
    }

    pub fn events(&self) -> String {
        let mut files: Vec<_> = std::fs::read_dir(self.out.join("events"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect()
    }
}

/// The program without the variables of an engine, and without one on its path.
pub fn bare() -> Command {
    let mut program = longreach();
    program.env("PATH", "/nowhere");
    for name in [
        "SLURM_ARRAY_TASK_ID",
        "SLURM_JOB_ID",
        "HQ_TASK_ID",
        "PARALLEL_SEQ",
        "JOB_COMPLETION_INDEX",
        "CUDA_VISIBLE_DEVICES",
    ] {
        program.env_remove(name);
    }
    program
}

#[test]
fn tasks_write_the_records_of_a_sweep_on_one_machine() {
    let sweep = Sweep::submitted();
    has(&sweep.counts(), "4 planned");
    sweep.scratch.trains(&[]);
    let ended = sweep.worker(&[]).env("PARALLEL_SEQ", "1").output().unwrap();
    exits(&ended, 0);
    has(&sweep.counts(), "2 planned, 2 done");
    exits(
        &sweep
            .worker(&[])
            .env("SLURM_ARRAY_TASK_ID", "1")
            .output()
            .unwrap(),
        0,
    );
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
    for run in sweep.runs() {
        let id = run.file_name().unwrap();
        let plain = sweep.scratch.runs().join("tiny").join(id);
        for name in ["record.json", "weights.safetensors", "steps.jsonl"] {
            let read = |run: &Path| std::fs::read(run.join(name)).unwrap();
            assert_eq!(read(&run), read(&plain), "{name} of {}", run.display());
        }
        // The directory itself is one more: seven inodes a run.
        assert_eq!(
            std::fs::read_dir(&run).unwrap().count(),
            6,
            "{}",
            run.display()
        );
    }
    // Starting a task again changes nothing.
    let before = sweep.events().matches("\"event\":\"start\"").count();
    exits(&sweep.task("0"), 0);
    assert_eq!(
        sweep.events().matches("\"event\":\"start\"").count(),
        before
    );
    // Where each report belongs, so that its links to runs are the same.
    let report = |directory: &Path, experiment: &Path| {
        exits(&bare().arg("report").arg(directory).output().unwrap(), 0);
        std::fs::read_to_string(experiment.join("report/report.md")).unwrap()
    };
    let (ours, plain) = (
        sweep.out.join("runs/tiny"),
        sweep.scratch.runs().join("tiny"),
    );
    assert!(
        report(&sweep.out, &ours) == report(&plain, &plain),
        "the reports differ"
    );
}

#[test]
fn a_task_trains_its_runs_of_one_shape_together_and_each_has_its_lease() {
    let sweep = Sweep::with(TINY);
    let arguments = ["--runs-per-task", "4", "--runs-per-worker", "2"];
    exits(&sweep.submit("parallel", &arguments), 0);
    sweep.scratch.trains(&[]);
    exits(&sweep.task("0"), 0);
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
    for run in sweep.runs() {
        let plain = sweep.scratch.runs().join("tiny");
        let plain = plain.join(run.file_name().unwrap());
        for name in ["record.json", "weights.safetensors", "steps.jsonl"] {
            let read = |run: &Path| std::fs::read(run.join(name)).unwrap();
            assert_eq!(read(&run), read(&plain), "{name} of {}", run.display());
        }
        assert!(!run.join("lease").exists());
    }
    for what in ["start", "done"] {
        let event = format!("\"event\":\"{what}\"");
        assert_eq!(sweep.events().matches(&event).count(), 4, "{what}");
    }
    // Without the option, files are those of versions that did not have it.
    let plain = Sweep::submitted();
    let text = std::fs::read_to_string(plain.out.join("submit.json")).unwrap();
    lacks(&text, "runs_per_worker");
}

#[test]
fn scripts_of_the_engines() {
    let mut shown = String::new();
    for (engine, name, arguments) in [
        (
            "slurm",
            "sweep.sbatch",
            &[
                "--max-parallel",
                "3",
                "--gpus-per-task",
                "2",
                "--runs-per-gpu",
                "4",
                "--time",
                "04:00:00",
                "--",
                "-p",
                "main",
                "--comment=it's",
            ][..],
        ),
        ("slurm", "report.sbatch", &[]),
        (
            "hq",
            "hq.sh",
            &["--gpus-per-task", "1", "--runs-per-gpu", "2"],
        ),
        ("parallel", "parallel.sh", &["--cpus-per-task", "2"]),
        ("parallel", "parallel.sh", &["--gpus-per-task", "1"]),
    ] {
        let sweep = Sweep::with(TINY);
        exits(&sweep.submit(engine, arguments), 0);
        let script = std::fs::read_to_string(sweep.out.join(name)).unwrap();
        let (script, arguments) = (script, arguments.join(" "));
        shown.push_str(&format!("== {engine} {arguments}: {name}\n{script}\n"));
    }
    insta::assert_snapshot!(shown);
}

/// What commands print and how they end, without what differs between machines.
fn printed(sweep: &Sweep, command: &str, output: &Output) -> String {
    let mut text = format!("$ {command}\n{}{}", stdout(output), stderr(output));
    for (name, path) in [
        ("DIR", sweep.out.clone()),
        ("CONFIG", sweep.scratch.config.clone()),
    ] {
        let path = path.display().to_string();
        // `logs` groups by messages with N for every number, those of this path included.
        let grouped = path.chars().fold(String::new(), |mut text, c| {
            match c.is_ascii_digit() {
                false => text.push(c),
                true if !text.ends_with('N') => text.push('N'),
                true => {}
            }
            text
        });
        text = text.replace(&path, name).replace(&grouped, name);
    }
    for (index, run) in sweep.runs().iter().enumerate() {
        let id = run.file_name().unwrap().to_str().unwrap();
        text = text
            .replace(id, &format!("RUN{index}"))
            .replace(&id[..8], &format!("RUN{index}"));
    }
    let code = output.status.code().unwrap_or(-1);
    format!("{text}[exit code {code}]\n\n")
}

#[test]
fn mistakes_are_answered_and_nothing_is_lost() {
    let sweep = Sweep::submitted();
    exits(&sweep.task("0"), 0);
    let mut shown = String::new();
    let mut tell =
        |command: &str, output: Output| shown.push_str(&printed(&sweep, command, &output));
    tell(
        "submit x.toml --cluster slurm --out DIR",
        sweep.submit("slurm", &[]),
    );
    tell("worker", sweep.worker(&[]).output().unwrap());
    tell("worker --task 2", sweep.task("2"));
    tell(
        "HQ_TASK_ID=7 worker",
        sweep.worker(&[]).env("HQ_TASK_ID", "7").output().unwrap(),
    );
    tell(
        "HQ_TASK_ID=x worker",
        sweep.worker(&[]).env("HQ_TASK_ID", "x").output().unwrap(),
    );
    tell(
        "worker --again 3 --task 0",
        sweep
            .worker(&["--again", "3", "--task", "0"])
            .output()
            .unwrap(),
    );
    let other = bare()
        .args(["worker", "--manifest", "/nowhere/x.jsonl"])
        .output()
        .unwrap();
    tell("worker --manifest /nowhere/x.jsonl", other);
    let missing = bare()
        .args(["worker", "--manifest", "/nowhere/manifest.jsonl"])
        .output();
    tell(
        "worker --manifest /nowhere/manifest.jsonl",
        missing.unwrap(),
    );
    tell(
        "submit --again DIR --only failed",
        sweep.again(&["--only", "failed"]),
    );
    tell("submit --again DIR --go", sweep.again(&["--go"]));
    tell("logs DIR --run zz", sweep.logs(&["--run", "zz"]));

    let fresh = Sweep::with(TINY);
    let out = fresh.scratch.directory.path().join("file");
    std::fs::write(&out, "").unwrap();
    let submit = |arguments: &[&str]| {
        let mut program = bare();
        program
            .arg("submit")
            .arg(&fresh.scratch.config)
            .args(["--cluster", "slurm", "--out"]);
        let output = program.args(arguments).output().unwrap();
        let printed = printed(
            &sweep,
            &format!(
                "submit x.toml --cluster slurm --out {}",
                arguments.join(" ")
            ),
            &output,
        );
        printed.replace(
            &fresh.scratch.directory.path().display().to_string(),
            "SCRATCH",
        )
    };
    for arguments in [
        &[out.join("below").to_str().unwrap()][..],
        &["DIR2", "--go"],
        &["DIR2", "--device", "cuda"],
        &["DIR2", "--runs-per-task", "0"],
        &["DIR2", "--time", "soon"],
        &["DIR2", "--time", "99:99:99"],
        &["DIR2", "--runs-per-task", "1", "seeds=[]"],
    ] {
        shown.push_str(&submit(arguments));
    }
    let seeds: Vec<String> = (0..501).map(|seed| seed.to_string()).collect();
    let seeds = format!("seeds=[{}]", seeds.join(","));
    let large = submit(&["DIR2", "--runs-per-task", "1", "max_runs=2000", &seeds]);
    shown.push_str(&large.replace(&seeds, "seeds=[0,..500]"));
    assert!(!fresh.out.exists());
    insta::assert_snapshot!(shown);
    has(&sweep.counts(), "2 planned, 2 done");
}

#[test]
fn a_sweep_of_another_program_or_config_is_refused() {
    let sweep = Sweep::submitted();
    let mut shown = String::new();
    let path = sweep.out.join("submit.json");
    let written = std::fs::read_to_string(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&written).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut json = json.clone();
        json[key] = value;
        std::fs::write(&path, json.to_string()).unwrap();
    };
    let neutral = |text: String| {
        let hash = json["program_blake3"].as_str().unwrap();
        let commit = json["commit"].as_str().unwrap();
        text.replace(&hash[..12], "HASH")
            .replace(commit, "COMMIT")
            .replace(env!("CARGO_PKG_VERSION"), "VERSION")
    };
    with("commit", "0123456789ab".into());
    shown.push_str(&neutral(printed(
        &sweep,
        "worker, of another commit",
        &sweep.task("0"),
    )));
    with("program_blake3", "0123456789abcdef".into());
    shown.push_str(&neutral(printed(
        &sweep,
        "worker, of another build",
        &sweep.task("0"),
    )));
    with("layout", 2.into());
    shown.push_str(&neutral(printed(
        &sweep,
        "worker, of another layout",
        &sweep.task("0"),
    )));
    std::fs::write(&path, &written).unwrap();

    std::fs::write(
        &sweep.scratch.config,
        TINY.replace("steps = 6", "steps = 7"),
    )
    .unwrap();
    let again = sweep.again(&[]);
    shown.push_str(&printed(
        &sweep,
        "submit --again DIR, after an edit",
        &again,
    ));
    let again = sweep.again(&["--as-submitted"]);
    shown.push_str(&printed(
        &sweep,
        "submit --again DIR --as-submitted",
        &again,
    ));

    let manifest = sweep.out.join("manifest.jsonl");
    let lines = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, lines.replace("\"steps\":6", "\"steps\":9")).unwrap();
    shown.push_str(&printed(
        &sweep,
        "worker, after an edit of the manifest",
        &sweep.task("0"),
    ));
    insta::assert_snapshot!(shown);
}

/// A file in place of a directory lets a run fail at its first checkpoint.
pub fn spoil(run: &Path) {
    std::fs::create_dir_all(run).unwrap();
    std::fs::write(run.join("checkpoints"), "").unwrap();
}

#[test]
fn a_failed_run_is_tried_again_only_if_it_is_submitted_again() {
    let sweep = Sweep::submitted();
    // Two of the four fail alike; the others of their tasks are not affected.
    let task: serde_json::Value = {
        let tasks = std::fs::read_to_string(sweep.out.join("tasks.jsonl")).unwrap();
        serde_json::from_str(tasks.lines().next().unwrap()).unwrap()
    };
    let first = task["runs"][0]["run"].as_str().unwrap();
    let spoiled = sweep.out.join("runs/tiny").join(first);
    spoil(&spoiled);
    let mut shown = String::new();
    shown.push_str(&printed(&sweep, "worker --task 0", &sweep.task("0")));
    shown.push_str(&printed(
        &sweep,
        "worker --task 0, requeued",
        &sweep.task("0"),
    ));
    exits(&sweep.task("1"), 0);
    let status = bare().arg("status").arg(&sweep.out).output().unwrap();
    shown.push_str(&printed(&sweep, "status DIR", &status));
    shown.push_str(&printed(
        &sweep,
        "logs DIR --failed",
        &sweep.logs(&["--failed"]),
    ));
    std::fs::remove_file(spoiled.join("checkpoints")).unwrap();
    shown.push_str(&printed(
        &sweep,
        "submit --again DIR --only failed",
        &sweep.again(&["--only", "failed"]),
    ));
    let again = sweep
        .worker(&["--again", "1", "--task", "0"])
        .output()
        .unwrap();
    shown.push_str(&printed(&sweep, "worker --again 1 --task 0", &again));
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
    // Trained again: that run and no other.
    let starts = |run: &Path| {
        let id = run.file_name().unwrap().to_str().unwrap().to_owned();
        let events = sweep.events();
        let is_start = |line: &&str| line.contains("\"event\":\"start\"") && line.contains(&id);
        events.lines().filter(is_start).count()
    };
    for run in sweep.runs() {
        assert_eq!(starts(&run), if run == spoiled { 2 } else { 1 });
    }
    insta::assert_snapshot!(without_times(&shown));
}

#[test]
fn the_log_of_a_run_is_that_of_its_own_task() {
    let sweep = Sweep::submitted();
    for task in ["0", "1"] {
        let mut worker = sweep.worker(&["--task", task]);
        worker.env("SLURM_ARRAY_JOB_ID", "12");
        let output = worker.env("SLURM_ARRAY_TASK_ID", task).output();
        exits(&output.unwrap(), 0);
        let log = sweep.out.join(format!("logs/12_{task}.log"));
        std::fs::write(log, format!("printed by task {task}\n")).unwrap();
    }
    let tasks = std::fs::read_to_string(sweep.out.join("tasks.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(tasks.lines().next().unwrap()).unwrap();
    let run = first["runs"][0]["run"].as_str().unwrap();
    let shown = stdout(&sweep.logs(&["--run", run]));
    has(&shown, "printed by task 0");
    lacks(&shown, "printed by task 1");
    // Of a large log the end is shown.
    let log = std::fs::File::create(sweep.out.join("logs/12_0.log")).unwrap();
    log.set_len(1 << 27).unwrap();
    let end = "progress\n".repeat(30) + "the last line\n";
    std::os::unix::fs::FileExt::write_at(&log, end.as_bytes(), 1 << 27).unwrap();
    let shown = stdout(&sweep.logs(&["--run", run]));
    has(&shown, "the last line");
    assert!(!shown.contains('\0'), "{shown}");
}

/// A text with `N` for the seconds in `after 0 s` and `about 1 s left`.
fn without_times(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for index in 1..words.len() {
        let unit = words[index]
            .trim_end_matches([':', ',', '\n'])
            .split('\n')
            .next();
        if unit == Some("s") && words[index - 1].parse::<f64>().is_ok() {
            words[index - 1] = "N".to_owned();
        }
    }
    let text = words.join(" ");
    let lines = text.lines().filter(|line| !line.contains("grad_norm"));
    lines
        .map(|line| line.replace(", about N s left", "").trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn five_attempts_without_a_checkpoint_are_the_last() {
    let sweep = Sweep::submitted();
    // As five processes of both tasks would leave it that were killed before a checkpoint.
    let run = &sweep.runs()[0];
    let id = run.file_name().unwrap().to_str().unwrap();
    let start = format!(r#"{{"time":1,"event":"start","run":"{id}","attempt":1,"step":0}}"#);
    for (task, number) in (0..2).flat_map(|task| (0..5).map(move |number| (task, number))) {
        let path = sweep.out.join(format!("events/{task}.{number}.jsonl"));
        std::fs::write(path, format!("{start}\n")).unwrap();
    }
    for task in ["0", "1"] {
        exits(&sweep.task(task), 0);
    }
    let status = sweep.status();
    has(&sweep.counts(), "3 done, 1 failed");
    has(&status, "no progress: 5 attempts began at step 0");
    exits(&sweep.again(&["--only", "failed"]), 0);
    for task in ["0", "1"] {
        let output = sweep
            .worker(&["--again", "1", "--task", task])
            .output()
            .unwrap();
        assert!(
            matches!(output.status.code(), Some(0 | 2)),
            "{}",
            stderr(&output)
        );
    }
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
}

#[test]
fn a_damaged_record_is_seen_and_submitted_again() {
    let sweep = Sweep::submitted();
    for task in ["0", "1"] {
        exits(&sweep.task(task), 0);
    }
    let record = sweep.runs()[0].join("record.json");
    let whole = std::fs::read(&record).unwrap();
    let half = &whole[..=whole.iter().rposition(|byte| *byte == b':').unwrap()];
    // `status` looks at the end of a record; what is to run again is decided by all of it.
    let patched = [half, b"}\n"].concat();
    for (bytes, counts) in [
        (&b""[..], "3 done, 1 unreadable"),
        (half, "3 done, 1 unreadable"),
        (&patched, "4 done"),
    ] {
        std::fs::write(&record, bytes).unwrap();
        let shown = sweep.counts();
        assert!(shown.ends_with(counts), "{shown}");
        for arguments in [&[][..], &["--only", "failed"]] {
            let again = sweep.again(arguments);
            exits(&again, 0);
            shows(&again, "1 run in 1 task again");
        }
    }
    for task in ["0", "1"] {
        let mut worker = sweep.worker(&["--again", "1", "--task", task]);
        let ended = worker.output().unwrap();
        assert!(
            matches!(ended.status.code(), Some(0 | 2)),
            "{}",
            stderr(&ended)
        );
    }
    assert!(std::fs::read(&record).unwrap() == whole);
    shows(&sweep.again(&[]), "no run is failed");
}

/// Commands look at the runs of a submitted sweep only, so that it would hide others.
#[test]
fn a_sweep_gets_a_directory_of_its_own() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    for out in [
        scratch.runs(),
        scratch.runs().join("tiny"),
        scratch.first_run(),
        scratch.directory.path().to_owned(),
    ] {
        let mut program = bare();
        program.arg("submit").arg(&scratch.config);
        program.args(["--cluster", "slurm", "--out"]).arg(&out);
        let refused = program.output().unwrap();
        fails(&refused, 2, "holds runs that are not of this sweep");
        says(&refused, "a directory of its own");
        assert!(!out.join("submit.json").exists());
    }
}

/// `longreach run` would train all of them anew, elsewhere.
#[test]
fn what_continues_a_submitted_sweep_is_named_where_none_is_recorded() {
    let sweep = Sweep::submitted();
    for place in [&sweep.out, &sweep.out.join("runs/tiny")] {
        let report = command("report", place, &[]);
        fails(&report, 3, "none of its 4 runs is recorded");
        let again = format!("`longreach submit --again {}`", sweep.out.display());
        says(&report, &again);
        lacks(&stderr(&report), "longreach run");
    }
}

#[test]
fn a_time_limit_is_set_by_slurm_or_by_a_person() {
    let long = TINY.replace("steps = 6", "steps = 1000000");
    for (engine, said) in [
        ("slurm", "longer than --time: it is requeued"),
        ("hq", "the same script, started again, continues it"),
        ("parallel", "the same script, started again, continues it"),
    ] {
        let sweep = Sweep::with(&long);
        let submitted = sweep.submit(engine, &["--time", "00:01:00"]);
        exits(&submitted, 0);
        says(&submitted, said);
        let free = Sweep::with(TINY);
        let submitted = free.submit(engine, &[]);
        let is_limited = stdout(&submitted).contains(" of 01:00:00");
        assert_eq!(is_limited, engine == "slurm", "{}", stdout(&submitted));
        let task = free.task("0");
        exits(&task, 0);
        assert_eq!(
            stderr(&task).contains(" at a time, 60 min left"),
            is_limited
        );
    }
}

/// As `run` refuses it: every task would fail.
#[test]
fn a_training_beyond_the_limit_on_memory_is_not_submitted() {
    let sweep = Sweep::with(TINY);
    let output = sweep.submit("slurm", &["--memory-limit", "1MiB"]);
    fails(&output, 6, "more than the limit of 1 MiB");
    assert!(!sweep.out.exists());
}

#[test]
fn what_does_nothing_without_gpus_is_noted() {
    let sweep = Sweep::with(TINY);
    let output = sweep.submit("slurm", &["--runs-per-gpu", "2"]);
    exits(&output, 0);
    let part = "--runs-per-gpu does nothing without --gpus-per-task";
    says(&output, part);
}

/// Options that the script depends on, and those that an engine cannot obey.
#[test]
fn options_that_would_break_a_script_are_refused() {
    let sweep = Sweep::with(TINY);
    for (engine, arguments, part) in [
        (
            "hq",
            "--max-parallel 3",
            "hq starts every task that there is room for",
        ),
        (
            "slurm",
            "-- --array=5-9",
            "--array=5-9 would replace --array",
        ),
        ("slurm", "-- --arr 5-9", "--arr would replace --array"),
        ("slurm", "-- -a5-9", "-a5-9 would replace --array"),
        ("slurm", "-- -t 00:10:00", "write `--time` before the `--`"),
        (
            "slurm",
            "-- --no-requeue",
            "--no-requeue would replace --requeue",
        ),
    ] {
        fails(&sweep.submit(engine, &words(arguments)), 2, part);
    }
    assert!(!sweep.out.exists());
    std::fs::create_dir(&sweep.out).unwrap();
    std::fs::write(sweep.out.join("logs"), "").unwrap();
    fails(&sweep.submit("slurm", &[]), 2, "logs");
    std::fs::remove_file(sweep.out.join("logs")).unwrap();
    let harmless = words("-- -p main --exclusive --nodes 1 --export=ALL --time-min=1");
    exits(&sweep.submit("slurm", &harmless), 0);
}

/// GNU parallel gives a slot beyond the GPUs none, and 0 slots are as many as there are tasks.
#[test]
fn there_are_no_more_slots_than_gpus() {
    for (arguments, gpus, slots) in [
        ("--gpus-per-task 1 --max-parallel 5", "0,1,2", "3"),
        ("--gpus-per-task 1 --max-parallel 2", "0,1,2", "2"),
        ("--gpus-per-task 2", "0,1,2", "1"),
        ("--gpus-per-task 4", "0,1,2", "1"),
    ] {
        let sweep = Sweep::with(TINY);
        exits(&sweep.submit("parallel", &words(arguments)), 0);
        let script = std::fs::read_to_string(sweep.out.join("parallel.sh")).unwrap();
        has(&script, "parallel --jobs $slots ");
        let is_count = |line: &&str| line.starts_with("export gpus=") || line.starts_with("slots=");
        let lines: Vec<&str> = script.lines().filter(is_count).collect();
        let shown = Command::new("bash")
            .args(["-c", &format!("{}; echo $slots", lines.join("\n"))])
            .env("CUDA_VISIBLE_DEVICES", gpus)
            .output();
        assert_eq!(stdout(&shown.unwrap()).trim(), slots, "{arguments}");
    }
}

#[test]
fn gpus_are_shared_among_the_runs_of_a_task_and_none_is_refused() {
    let sweep = Sweep::with(TINY);
    let arguments = words("--gpus-per-task 2 --runs-per-gpu 1 --runs-per-task 4");
    exits(&sweep.submit("slurm", &arguments), 0);
    fails(&sweep.task("0"), 7, "got no GPU");
    let few = sweep
        .worker(&["--task", "0"])
        .env("CUDA_VISIBLE_DEVICES", "3")
        .output()
        .unwrap();
    fails(&few, 7, "got 1 of 2 GPUs");
    let given = sweep
        .worker(&["--task", "0"])
        .env("CUDA_VISIBLE_DEVICES", "3,5")
        .output();
    exits(&given.unwrap(), 0);
    let events = sweep.events();
    for gpu in ["3", "5"] {
        has(&events, &format!("\"gpu\":\"{gpu}\""));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_task_that_is_asked_to_stop_saves_and_ends_with_75() {
    let sweep = Sweep::with(&TINY.replace("steps = 6", "steps = 1000000"));
    exits(&sweep.submit("slurm", &["--runs-per-task", "4"]), 0);
    for signal in ["-USR1", "-TERM"] {
        let mut task = sweep.worker(&["--task", "0"]);
        task.env("SLURM_JOB_ID", "12").stderr(Stdio::piped());
        let task = task.spawn().unwrap();
        wait_for("a run is running", || sweep.status().contains("running"));
        let id = task.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
        let ended = task.wait_with_output().unwrap();
        exits(&ended, 75);
        // Three of its runs are planned and not stopped.
        let again = format!(
            "`longreach submit --again {}` continues",
            sweep.out.display()
        );
        says(&ended, &again);
        lacks(&sweep.status(), "running");
    }
    let again = sweep.again(&["--only", "stopped"]);
    exits(&again, 0);
    shows(&again, "1 run in 1 task again: 0");
}

/// A lease as a process of another machine would leave it, without a heartbeat.
fn silent_lease(run: &Path, interval_ms: u64) {
    std::fs::create_dir_all(run).unwrap();
    let lease = format!(
        r#"{{"nonce":"f00d","host":"node9","process":12,"ticks":5,"kernel":"another boot",
        "since":1,"interval_ms":{interval_ms},"beat":3}}"#
    );
    std::fs::write(run.join("lease"), lease).unwrap();
}

#[test]
fn a_lease_without_heartbeats_is_taken_over_and_others_are_respected() {
    let sweep = Sweep::submitted();
    let run = &sweep.runs()[0];
    // `status` cannot wait for a heartbeat: a lease that was written just now may be alive.
    silent_lease(run, 600_000);
    has(&sweep.counts(), "1 running");
    silent_lease(run, 200);
    for task in ["0", "1"] {
        exits(&sweep.task(task), 0);
    }
    assert!(sweep.counts().ends_with("4 done"), "{}", sweep.counts());
    assert!(!run.join("lease").exists());
    // A local command respects it as well, and says whose it is.
    let fresh = Sweep::submitted();
    let run = &fresh.runs()[0];
    fresh.scratch.trains(&["--jobs", "1"]);
    let plain = fresh
        .scratch
        .runs()
        .join("tiny")
        .join(run.file_name().unwrap());
    silent_lease(&plain, 200);
    let worker = bare().arg("worker").arg(&plain).output().unwrap();
    fails(&worker, 4, "leased by process 12 on node9");
}
