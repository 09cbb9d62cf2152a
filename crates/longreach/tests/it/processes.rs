//! Processes that share a directory: what they are named by, what dead ones leave, and what one does
//! while another one holds a run.
#![cfg(unix)]

use crate::common::{
    ONE, Scratch, TINY, command, exits, fails, hangup_is_ignored, has, lacks, longreach, one, says,
    stderr, wait_for,
};
use experiment::device::DeviceName;
use experiment::plan;
use experiment::plan::memory::MemoryLimit;
use experiment::run::protocol::{CheckpointEvery, How};
use experiment::runs_on_disk::recorded::Recorded;
use experiment::runs_on_disk::state::RunState;
use rundir::scratch;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sweep::live::board::Board;
use sweep::live::screen::state_counts;
use sweep::options::{Options, Share};

/// A sweep in the background.
fn start(scratch: &Scratch, arguments: &[&str]) -> Child {
    let mut program = longreach();
    program.arg("run").arg(&scratch.config).args(arguments);
    program.arg("--runs").arg(scratch.runs());
    program.stderr(Stdio::piped()).stdout(Stdio::piped());
    program.spawn().unwrap()
}

/// The name of a scratch file beside `path` whose process has ended, or lives: this one.
fn left(path: &Path, ended: bool) -> PathBuf {
    let own = scratch::beside(path);
    let name = own.file_name().unwrap().to_string_lossy().into_owned();
    let mut words: Vec<String> = name.split('-').map(str::to_owned).collect();
    // Another process with the id of this one would have started at another time.
    if ended {
        let ticks: u64 = words[3].parse().unwrap();
        words[3] = (ticks + 1).to_string();
    }
    words[4] = "another".to_owned();
    own.with_file_name(words.join("-"))
}

#[test]
#[cfg(target_os = "linux")]
fn sweeps_of_several_containers_do_not_disturb_each_other() {
    let namespace = ["--user", "--map-root-user", "--pid", "--fork"];
    let made = Command::new("unshare").args(namespace).arg("true").output();
    if !made.is_ok_and(|made| made.status.success()) {
        println!("skipped: no namespaces can be made here");
        return;
    }
    let records = one().0.records();
    for _ in 0..3 {
        let scratch = Scratch::with(TINY);
        let sweep = || {
            let mut program = Command::new("unshare");
            program.args(namespace).arg(longreach().get_program());
            program.arg("run").arg(&scratch.config).args(ONE);
            program.args(["--jobs", "1", "--runs"]).arg(scratch.runs());
            program.stderr(Stdio::piped()).stdout(Stdio::piped());
            program.spawn().unwrap()
        };
        let sweeps: Vec<Child> = (0..8).map(|_| sweep()).collect();
        for sweep in sweeps {
            exits(&sweep.wait_with_output().unwrap(), 0);
        }
        assert_eq!(scratch.records(), records);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_killed_processes_left_is_removed_and_nothing_of_living_ones() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let run = scratch.first_run();
    let eval = || command("eval", &run, &["--lengths", "6"]);
    exits(&eval(), 0);
    let experiment = scratch.runs().join("tiny");
    let places = [
        experiment.join("probe"),
        experiment.join("report/report.md"),
        experiment.join("configs/c.toml"),
        run.join("evals/e.json"),
    ];
    let dead = places.each_ref().map(|place| left(place, true));
    let alive = places.each_ref().map(|place| left(place, false));
    let other = experiment.join("report/.mine");
    for path in dead.iter().chain(&alive).chain([&other]) {
        std::fs::write(path, "half").unwrap();
    }
    // Under the lock of the run everything is abandoned.
    let in_run = left(&run.join("record.json"), false);
    std::fs::write(&in_run, "half").unwrap();
    // Two runs, so that the experiment's directory is probed.
    scratch.trains(&["seeds=[0,1]", ONE[1]]);
    let evals = std::fs::read_dir(run.join("evals")).unwrap().flatten();
    for entry in evals.filter(|entry| entry.path().extension().is_some()) {
        if !entry.file_name().to_string_lossy().starts_with('.') {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    exits(&eval(), 0);
    for path in dead.iter().chain([&in_run]) {
        assert!(!path.exists(), "{}", path.display());
    }
    for path in alive.iter().chain([&other]) {
        assert!(path.exists(), "{}", path.display());
    }
    // Trainings for `verify` lie in the place for temporary files.
    let place = scratch.directory.path().join("temporary");
    let dead = left(&place.join("longreach"), true);
    std::fs::create_dir_all(dead.join("run")).unwrap();
    std::fs::write(dead.join("run/job.json"), "{}").unwrap();
    let mut verify = longreach();
    verify.arg("verify").arg(&run).arg("--retrain");
    exits(&verify.env("TMPDIR", &place).output().unwrap(), 0);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn lengths_that_a_worker_adds_while_labels_are_written_are_kept() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let run = scratch.first_run();
    let overrides = ["seeds=[0]", ONE[1], "axes.\"train.lr\"=[1e-3]"].map(str::to_owned);
    let renamed = plan(&scratch.config, &overrides).unwrap();
    let options = Options {
        runs: scratch.runs(),
        how: How {
            device: "cpu".parse::<DeviceName>().unwrap(),
            checkpoint_every: CheckpointEvery::default(),
            memory_limit: MemoryLimit::NONE,
            initial_weights: false,
            runs_per_worker: 1,
        },
        jobs: 1,
        fail_fast: false,
        retry: None,
        keep_workers: false,
        recorded: Recorded::default(),
        share: Share::default(),
    };
    let path = run.join("record.json");
    let before = std::fs::read(&path).unwrap();
    let written = records::read_record(&path).unwrap();
    let mut longer = written.clone();
    longer.change(|record| {
        let mut row = record.evals[0].clone();
        row.test_len = 5;
        record.evals.push(row);
    });
    let mut met = 0;
    for _ in 0..50 {
        std::fs::write(&path, &before).unwrap();
        let held = rundir::lock::take(&run).expect("nobody holds it");
        let renaming = std::thread::scope(|scope| {
            let renaming = scope.spawn(|| options.recorded(&renamed.runs[0]));
            // It has read the record and waits for the lock.
            std::thread::sleep(Duration::from_millis(40));
            let text = records::store::record_text(&path, &longer).unwrap();
            std::fs::write(&path, text).unwrap();
            drop(held);
            renaming.join().unwrap()
        });
        assert!(renaming.is_some());
        let now = records::read_record(&path).unwrap();
        assert_eq!(now.evals, longer.evals, "a length is gone");
        if now.labels != written.labels {
            met += 1;
        }
        if met == 5 {
            return;
        }
    }
    panic!("the labels were never written");
}

#[test]
fn a_retry_that_does_not_fit_discards_no_record() {
    let scratch = Scratch::with(TINY);
    let diverging = [
        "seeds=[0]",
        "axes={\"train.batch_size\"=[4,4096]}",
        "train.lr=1e9",
        "train.grad_clip=0.0",
        "train.warmup_steps=0",
    ];
    exits(&scratch.longreach("run", &diverging), 5);
    let before = scratch.records();
    assert_eq!(before.len(), 2);
    let retry = ["--retry", "diverged", "--memory-limit", "70MiB"];
    let output = scratch.longreach("run", &[&diverging[..], &retry].concat());
    fails(&output, 6, "4096");
    says(&output, "training needs about");
    assert_eq!(scratch.records(), before);
}

#[test]
fn a_run_whose_job_is_missing_while_it_is_held_is_waited_for() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let (run, before) = (scratch.first_run(), scratch.records());
    std::fs::remove_dir_all(&run).unwrap();
    std::fs::create_dir(&run).unwrap();
    // As a sweep that was killed between taking the lock and writing the job, or is slow at it; and
    // as anybody who may read the file.
    for shared in [false, true] {
        let held = rundir::lock::take(&run).expect("nobody holds it");
        if shared {
            held.lock_shared().unwrap();
        }
        let mut sweep = start(&scratch, &ONE);
        let mut said = until(&mut sweep, "; waiting for");
        if shared && cfg!(target_os = "linux") {
            let own = format!("is held by process {} (", std::process::id());
            has(&said, &own);
            has(&said, "which shares the lock of `lock`");
        }
        drop(held);
        said.push_str(&rest(sweep, 0));
        lacks(&said, "FAILED");
        assert_eq!(scratch.records(), before);
        std::fs::remove_dir_all(&run).unwrap();
        std::fs::create_dir(&run).unwrap();
    }
}

/// What a sweep prints on standard error until a line contains `text`.
#[track_caller]
fn until(sweep: &mut Child, text: &str) -> String {
    let (stderr, mut said) = (sweep.stderr.as_mut().unwrap(), Vec::new());
    let mut byte = [0];
    while !String::from_utf8_lossy(&said).contains(text) {
        assert_eq!(
            stderr.read(&mut byte).unwrap(),
            1,
            "it ended: {}",
            String::from_utf8_lossy(&said)
        );
        said.push(byte[0]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// What else it prints there until it ends with a code.
#[track_caller]
fn rest(sweep: Child, code: i32) -> String {
    let output = sweep.wait_with_output().unwrap();
    exits(&output, code);
    stderr(&output)
}

#[test]
#[cfg(target_os = "linux")]
fn a_request_while_runs_are_planned_ends_with_its_code() {
    let scratch = Scratch::with(TINY);
    for (signal, code) in [
        (Signal::USR1, 75),
        (Signal::TERM, 143),
        (Signal::HUP, 143),
        (Signal::INT, 130),
    ] {
        if signal == Signal::HUP && hangup_is_ignored() {
            continue;
        }
        // A config from a pipe that stays open: planning cannot end before the signal.
        let (config, mut open) = std::io::pipe().unwrap();
        open.write_all(TINY.as_bytes()).unwrap();
        let mut program = longreach();
        program.args(["run", "/dev/stdin", "--runs"]);
        program.arg(scratch.runs()).stdin(config);
        program.stderr(Stdio::piped()).stdout(Stdio::piped());
        let sweep = program.spawn().unwrap();
        // Sent as soon as it is caught. The handlers are installed one after the other; the mask of
        // caught signals has the bit `signal - 1`.
        let status = format!("/proc/{}/status", sweep.id());
        let bit = 1 << (signal.as_raw() - 1);
        let catches = || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & bit != 0)
        };
        wait_for("the signal is caught", catches);
        kill_process(Pid::from_child(&sweep), signal).unwrap();
        let said = rest(sweep, code);
        drop(open);
        has(&said, "stopped while planning");
        assert!(!scratch.runs().exists(), "nothing was written");
    }
}

/// The workers of a sweep.
#[cfg(target_os = "linux")]
fn workers(sweep: &Child) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", sweep.id()));
    let lists = threads.into_iter().flatten().flatten();
    let lists =
        lists.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let words: String = lists.collect();
    let ids = words.split_whitespace().filter_map(|id| id.parse().ok());
    ids.filter_map(Pid::from_raw).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn a_request_at_the_first_instants_of_a_worker_stops_its_run() {
    for round in 0..24_u64 {
        let (signal, code) =
            [(Signal::TERM, 143), (Signal::INT, 130), (Signal::USR1, 75)][round as usize % 3];
        let scratch = Scratch::with(TINY);
        let sweep = start(&scratch, &["train.steps=1000000", "--jobs", "2"]);
        let started = Instant::now();
        while workers(&sweep).is_empty() {
            assert!(started.elapsed() < Duration::from_secs(300), "no worker");
        }
        std::thread::sleep(Duration::from_micros(500 * (round / 3)));
        // A scheduler may signal every process, and the sweep passes it on as well.
        if round % 2 == 0 {
            for worker in workers(&sweep) {
                let _ = kill_process(worker, signal);
            }
        }
        kill_process(Pid::from_child(&sweep), signal).unwrap();
        let said = rest(sweep, code);
        lacks(&said, "FAILED");
        let run = |entry: std::fs::DirEntry| entry.path().join("error.txt").exists();
        let mut runs = std::fs::read_dir(scratch.runs().join("tiny"))
            .unwrap()
            .flatten();
        assert!(!runs.any(run), "a run has failed: {said}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_sweep_goes_on_when_its_program_is_replaced() {
    let scratch = Scratch::with(TINY);
    let program = scratch.config.with_file_name("program");
    std::fs::copy(longreach().get_program(), &program).unwrap();
    let mut sweep = Command::new(&program);
    sweep.arg("run").arg(&scratch.config).arg("--runs");
    sweep.arg(scratch.runs()).args(["--jobs", "1"]);
    let sweep = sweep
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A process is a child before it executes the program.
    let executes = |worker: &Pid| {
        let words = std::fs::read(format!("/proc/{}/cmdline", worker.as_raw_nonzero()));
        words.is_ok_and(|words| words.split(|byte| *byte == 0).any(|word| word == b"worker"))
    };
    wait_for("the first worker", || workers(&sweep).iter().any(executes));
    // As a build does it: another file, under the name of this one.
    let other = program.with_file_name("other");
    std::fs::write(&other, "not a program").unwrap();
    std::fs::rename(&other, &program).unwrap();
    rest(sweep, 0);
    assert_eq!(scratch.records().len(), 4);
}

#[test]
fn a_live_view_tells_runs_apart_and_shows_those_that_cannot_be_read() {
    let scratch = Scratch::with(TINY);
    for steps in ["train.steps=2", "train.steps=3"] {
        scratch.trains(&[ONE[0], ONE[1], steps]);
    }
    let damaged = scratch.first_run();
    std::fs::write(damaged.join("record.json"), "{").unwrap();
    let mut board = Board::new(&scratch.runs());
    board.look(Instant::now()).unwrap();
    let views = board.views();
    let id = damaged.file_name().unwrap().to_str().unwrap();
    assert_eq!(views[0].name, format!("RoPE, seed 0 ({id})"));
    assert_ne!(views[0].name, views[1].name);
    let states = [views[0].state, views[1].state];
    assert_eq!(states, [RunState::Unreadable, RunState::Done]);
    assert_eq!(state_counts(&views), "1 done, 1 unreadable");
}

#[test]
#[cfg(target_os = "linux")]
fn a_stopped_worker_is_named_and_saves_when_its_sweep_is_asked_to_stop() {
    let scratch = Scratch::with(TINY);
    let mut sweep = start(
        &scratch,
        &[
            ONE[0],
            ONE[1],
            "train.steps=1000000",
            "--checkpoint-every",
            "100000",
        ],
    );
    let trains = || {
        let runs = std::fs::read_dir(scratch.runs().join("tiny"));
        let mut runs = runs.into_iter().flatten().flatten();
        runs.any(|run| {
            let log = run.path().join("steps.jsonl").metadata();
            log.is_ok_and(|log| log.len() > 0)
        })
    };
    wait_for("a step is written", trains);
    let worker = workers(&sweep)[0];
    kill_process(worker, Signal::STOP).unwrap();
    let hint = format!("`kill -CONT {}` continues it", worker.as_raw_nonzero());
    let said = until(&mut sweep, &hint);
    has(&said, "has been stopped (SIGSTOP)");
    kill_process(Pid::from_child(&sweep), Signal::TERM).unwrap();
    let said = rest(sweep, 143);
    has(&said, "stopped after step");
}

#[test]
#[cfg(target_os = "linux")]
fn a_limit_on_memory_ends_a_sweep_with_its_code_wherever_it_is_met() {
    let scratch = Scratch::with(TINY);
    let limited = |kib: u64, arguments: &[&str]| {
        let mut program = Command::new("sh");
        program.args(["-c", "ulimit -v $0; exec \"$@\"", &kib.to_string()]);
        program.arg(longreach().get_program()).args(arguments);
        program.env_remove("RUST_BACKTRACE").output().unwrap()
    };
    // What the program itself maps: below that the system cannot start it.
    let steps = (0..200).map(|step| 20_000 + 5_000 * step);
    let fits = |kib: &u64| limited(*kib, &["list", "tasks"]).status.success();
    let least = steps.into_iter().find(fits).expect("it starts");
    let (config, runs) = (scratch.config.display(), scratch.runs());
    let (config, place) = (config.to_string(), runs.display().to_string());
    let mut ended = std::collections::BTreeMap::new();
    for more in (0..26).map(|step| step * 3_000) {
        let output = limited(
            least + more,
            &["run", &config, ONE[0], ONE[1], "--runs", &place],
        );
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 6)),
            "{} KiB: {code:?} {}",
            least + more,
            stderr(&output)
        );
        *ended.entry(code).or_insert(0) += 1;
        let _ = std::fs::remove_dir_all(&runs);
    }
    assert!(ended.contains_key(&Some(6)), "{ended:?}");
}
