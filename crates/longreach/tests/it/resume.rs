//! Runs that are killed, stopped or damaged go on and end in the same bytes.
#![cfg(unix)]

use crate::common::{
    Scratch, TINY, command, exits, fails, hangup_is_ignored, has, lacks, longreach, says, stderr,
    wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Long enough to be met in the middle.
const LONG: [&str; 3] = [
    "train.steps=1500",
    "seeds=[0]",
    "axes.\"model.pe\"=[{kind=\"rope\"}]",
];

/// A calm run: its directory, and what has to come out again.
struct Calm {
    scratch: Scratch,
    run: PathBuf,
}

fn calm() -> Calm {
    let scratch = Scratch::with(TINY);
    scratch.trains(&LONG);
    let run = scratch.first_run();
    Calm { scratch, run }
}

impl Calm {
    /// An unfinished copy: the job and nothing else.
    fn fresh(&self, name: &str) -> PathBuf {
        let copy = self.scratch.directory.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(self.run.join("job.json"), copy.join("job.json")).unwrap();
        copy
    }

    #[track_caller]
    fn same(&self, other: &Path) {
        for file in ["record.json", "weights.safetensors", "steps.jsonl"] {
            assert!(
                std::fs::read(self.run.join(file)).unwrap()
                    == std::fs::read(other.join(file)).unwrap(),
                "{file} differs"
            );
        }
        assert!(
            !other.join("checkpoints").exists(),
            "a recorded run keeps no checkpoint"
        );
    }
}

fn worker(run: &Path, threads: usize) -> Command {
    let mut command = longreach();
    command
        .arg("worker")
        .arg(run)
        .args(["--checkpoint-every", "20"])
        .env("RAYON_NUM_THREADS", threads.to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(run.join("checkpoints"))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("step-")
        })
        .collect();
    found.sort();
    found
}

/// Starts a run, waits until it has written its second checkpoint, and stops its worker there:
/// however long this process is kept from running, the worker does not end before it is met.
/// `start` starts it in a fresh directory. Returns the process that was started, and the worker.
#[track_caller]
fn met<T>(mut start: impl FnMut() -> (T, PathBuf, Child)) -> (T, PathBuf, Child, Pid) {
    for _ in 0..20 {
        let (scratch, run, mut child) = start();
        let mut ended = false;
        wait_for("a second checkpoint", || {
            ended = child.try_wait().unwrap().is_some();
            ended || checkpoints(&run).len() >= 2
        });
        if let Some(worker) = holder(&run).filter(|_| !ended) {
            kill_process(worker, Signal::STOP).unwrap();
            let process = worker.as_raw_nonzero().get().unsigned_abs();
            wait_for("it is stopped", || {
                rundir::process::activity(process).is_none_or(|seen| seen.stopped)
            });
            if !run.join("weights.safetensors").exists() && holder(&run) == Some(worker) {
                return (scratch, run, child, worker);
            }
            let _ = kill_process(worker, Signal::CONT);
        }
        child.wait().unwrap();
    }
    panic!("every run ended before it could be met");
}

/// A worker without a sweep, met at work and stopped.
fn alone(calm: &Calm, name: &str) -> (PathBuf, Child, Pid) {
    let mut tries = 0;
    let ((), run, child, worker) = met(|| {
        tries += 1;
        let run = calm.fresh(&format!("{name}-{tries}"));
        let child = worker(&run, 1).spawn().unwrap();
        ((), run, child)
    });
    (run, child, worker)
}

/// A run that was killed with two checkpoints behind it.
fn killed(calm: &Calm, name: &str) -> PathBuf {
    let (run, mut child, _) = alone(calm, name);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!run.join("record.json").exists());
    run
}

fn finish(run: &Path) -> (Output, String) {
    let output = worker(run, 1).arg("--events").output().unwrap();
    exits(&output, 0);
    // Its speed is that of this process alone.
    let timings = std::fs::read(run.join("timings.json")).unwrap();
    let timings: serde_json::Value = serde_json::from_slice(&timings).unwrap();
    let record = std::fs::read(run.join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let [first, steps] = [
        timings["resumed_at_step"].as_f64().unwrap_or_default(),
        record["train"]["steps"].as_f64().unwrap(),
    ];
    let seconds = timings["train_secs"].as_f64().unwrap();
    let trained = timings["train_tokens_per_sec"].as_f64().unwrap() * seconds;
    let tokens = record["train"]["tokens"].as_f64().unwrap();
    assert!(
        trained < 1.001 * tokens && (first > 0.0) == (trained < 0.999 * tokens),
        "{trained} of {tokens} tokens from step {first} of {steps}"
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

#[test]
fn killed_at_any_instant_and_on_any_number_of_threads() {
    let calm = calm();
    let run = calm.fresh("killed");
    for round in 0.. {
        let mut child = worker(&run, 1 + round % 3).spawn().unwrap();
        if round < 12 {
            std::thread::sleep(Duration::from_millis(20 + 37 * (round as u64 % 7)));
            let _ = child.kill();
        }
        if child.wait().unwrap().success() {
            break;
        }
    }
    calm.same(&run);
}

#[test]
fn a_signal_saves_leaves_and_says_how() {
    let calm = calm();
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::USR1, 75)] {
        let (scratch, run, child, _) = sweep(&calm, &[]);
        // The sweep passes the signal on, and continues its worker.
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        fails(&output, exit, "run the same command again to continue");
        assert!(!checkpoints(&run).is_empty() && !run.join("record.json").exists());
        says(&scratch.trains(&LONG), "resumes at step");
        calm.same(&run);
    }
}

/// A sweep of one long run, met at work: its worker is stopped.
fn sweep(calm: &Calm, arguments: &[&str]) -> (Scratch, PathBuf, Child, Pid) {
    met(|| {
        let scratch = Scratch::with(TINY);
        let runs = scratch.runs();
        let every = ["--checkpoint-every", "20"];
        let mut program = scratch.program("run", &[&LONG[..], arguments, &every].concat());
        program.stderr(Stdio::piped()).stdout(Stdio::piped());
        let child = program.spawn().unwrap();
        let run = runs.join("tiny").join(calm.run.file_name().unwrap());
        (scratch, run, child)
    })
}

/// Waits until nobody holds a run.
#[track_caller]
fn released(run: &Path) {
    wait_for("the run is released", || holder(run).is_none());
}

/// The process that holds a run.
fn holder(run: &Path) -> Option<Pid> {
    let who = rundir::lock::holder(run)?.who;
    Pid::from_raw(who.split(' ').nth(1)?.parse().ok()?)
}

#[test]
fn signals_that_follow_each_other_at_once_are_one_request() {
    let calm = calm();
    for (signals, exit) in [
        (&[Signal::INT, Signal::INT][..], 130),
        (&[Signal::HUP], 143),
        (&[Signal::HUP, Signal::TERM, Signal::HUP], 143),
        (&[Signal::INT, Signal::TERM], 130),
    ] {
        if signals.contains(&Signal::HUP) && hangup_is_ignored() {
            continue;
        }
        let once = || {
            let (scratch, run, child, _) = sweep(&calm, &[]);
            let asked = Instant::now();
            for signal in signals {
                kill_process(Pid::from_child(&child), *signal).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            let output = child.wait_with_output().unwrap();
            // A pause of the machine can make two requests of them.
            let late = asked.elapsed() >= Duration::from_secs(1)
                && stderr(&output).contains("stopped at once");
            (!late).then_some((scratch, run, output))
        };
        let (scratch, run, output) = (0..20).find_map(|_| once()).expect("a second is enough");
        fails(&output, exit, "stopped after step");
        lacks(&stderr(&output), "FAILED");
        assert!(
            rundir::lock::holder(&run).is_none(),
            "a worker is left after {signals:?}"
        );
        assert!(!run.join("record.json").exists() && !checkpoints(&run).is_empty());
        says(&scratch.trains(&LONG), "resumes at step");
        calm.same(&run);
    }
}

/// Sends a sweep a signal, and stops its worker again and again until it is gone, so that it can
/// neither save nor leave. `more` is done meanwhile. On a loaded machine a worker may save between
/// two stops: then all is done again.
#[track_caller]
fn without_its_worker(calm: &Calm, signal: Signal, more: fn(&mut Child)) -> (PathBuf, Output) {
    for _ in 0..20 {
        let (scratch, run, mut child, worker) = sweep(calm, &[]);
        let stopping = std::thread::spawn(move || {
            while kill_process(worker, Signal::STOP).is_ok() {
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        more(&mut child);
        let output = child.wait_with_output().unwrap();
        stopping.join().unwrap();
        if !stderr(&output).contains("stopped after step") {
            // Kept when the directory of the sweep goes.
            let kept = calm.scratch.directory.path().join("without");
            std::fs::rename(&run, &kept).unwrap();
            drop(scratch);
            return (kept, output);
        }
    }
    panic!("the worker always left");
}

#[test]
fn a_second_request_ends_sweep_and_workers_at_once() {
    let calm = calm();
    let (run, output) = without_its_worker(&calm, Signal::INT, |child| {
        // Those of the first second are the same request.
        while child.try_wait().unwrap().is_none() {
            let _ = kill_process(Pid::from_child(child), Signal::INT);
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    exits(&output, 130);
    let said = stderr(&output);
    has(&said, "stopped at once");
    lacks(&said, "did not leave in time");
    released(&run);
    let (_, said) = finish(&run);
    has(&said, "resumed");
    calm.same(&run);
}

#[test]
fn a_worker_that_cannot_leave_is_killed() {
    let calm = calm();
    let (run, output) = without_its_worker(&calm, Signal::TERM, |_| ());
    exits(&output, 143);
    let said = stderr(&output);
    has(&said, "did not leave in time and was killed");
    lacks(&said, "FAILED");
    assert!(!run.join("error.txt").exists(), "{said}");
}

#[test]
fn workers_leave_when_their_sweep_is_killed_unless_asked_to_stay() {
    let calm = calm();
    // Continued first: the system sends HUP to stopped processes that lose their parent.
    let orphaned = |arguments| {
        let (scratch, run, mut child, worker) = sweep(&calm, arguments);
        kill_process(worker, Signal::CONT).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        (!run.join("weights.safetensors").exists()).then_some((scratch, run))
    };
    let orphaned = |arguments| {
        (0..20)
            .find_map(|_| orphaned(arguments))
            .expect("it is met")
    };
    let (_scratch, run) = orphaned(&[]);
    released(&run);
    assert!(
        !run.join("record.json").exists() && !checkpoints(&run).is_empty(),
        "it saved and left"
    );
    let (_, said) = finish(&run);
    has(&said, "resumed");
    calm.same(&run);
    let (_scratch, run) = orphaned(&["--keep-workers"]);
    released(&run);
    calm.same(&run);
    // By hand, standard input says nothing about a parent.
    let run = calm.fresh("by hand");
    exits(&worker(&run, 1).output().unwrap(), 0);
    calm.same(&run);
}

#[test]
fn a_worker_that_alone_was_asked_to_stop_is_named() {
    let calm = calm();
    let (_scratch, run, child, worker) = sweep(&calm, &[]);
    kill_process(worker, Signal::TERM).unwrap();
    kill_process(worker, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    fails(&output, 1, "1 of 1 run failed");
    assert!(!run.join("error.txt").exists(), "{}", stderr(&output));
}

#[test]
#[cfg(target_os = "linux")]
fn who_holds_a_run_and_for_how_long_is_printed_while_a_sweep_waits() {
    let calm = calm();
    let (scratch, run, first, stopped) = sweep(&calm, &[]);
    let mut second = scratch.program("run", &LONG);
    second.stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut second = second.spawn().unwrap();
    let hint = format!(
        "stopped (SIGSTOP); `kill -CONT {}` continues it",
        stopped.as_raw_nonzero()
    );
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines();
    let printed = lines.find(|line| line.as_ref().unwrap().contains(&hint));
    let printed = printed.expect("it says so while it waits").unwrap();
    has(&printed, "; waiting for");
    // Read to its end, or the sweep would find nobody listening.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let (running, _, note) = state(&run);
    kill_process(stopped, Signal::CONT).unwrap();
    assert!(
        running == "running" && note.contains(&hint) && note.contains(" s, stopped"),
        "{running}: {note}"
    );
    exits(&second.wait_with_output().unwrap(), 0);
    rest.join().unwrap();
    exits(&first.wait_with_output().unwrap(), 0);
    calm.same(&run);
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_an_older_one() {
    let calm = calm();
    for (name, damage) in [
        (
            "cut",
            (|path: &Path| std::fs::write(path.join("model.safetensors"), b"short").unwrap())
                as fn(&Path),
        ),
        ("gone", |path| {
            std::fs::remove_file(path.join("optimizer.safetensors")).unwrap()
        }),
        ("empty", |path| {
            std::fs::write(path.join("manifest.json"), b"{}").unwrap()
        }),
    ] {
        let run = killed(&calm, name);
        damage(checkpoints(&run).last().unwrap());
        let (_, said) = finish(&run);
        has(&said, "skipped");
        has(&said, "\"resumed\"");
        calm.same(&run);
    }
}

#[test]
fn a_changed_step_log_restarts_the_run() {
    let calm = calm();
    let run = killed(&calm, "log");
    let log = run.join("steps.jsonl");
    let mut text = std::fs::read(&log).unwrap();
    text[20] ^= 1;
    std::fs::write(&log, text).unwrap();
    let (_, said) = finish(&run);
    has(&said, "not the one that the checkpoint belongs to");
    calm.same(&run);
}

#[test]
fn the_step_log_tells_every_step() {
    let calm = calm();
    let text = std::fs::read_to_string(calm.run.join("steps.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 1500);
    for (index, line) in text.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["step"], index + 1);
        assert_eq!(line["tokens"], (index + 1) * 4 * 10);
        assert!(
            line["loss_nats"].as_f64().unwrap() > 0.0
                && line["lr"].as_f64().unwrap() > 0.0
                && line["grad_norm"].as_f64().unwrap() > 0.0
        );
    }
}

#[test]
fn one_run_is_never_trained_by_two() {
    let calm = calm();
    let (run, mut first, stopped) = alone(&calm, "two");
    let second = worker(&run, 1).output().unwrap();
    // Who holds it is named.
    fails(&second, 4, &first.id().to_string());
    kill_process(stopped, Signal::CONT).unwrap();
    assert!(first.wait().unwrap().success());
    calm.same(&run);
}

/// State, steps and note of one run.
fn state(run: &Path) -> (String, u64, String) {
    let output = command("status", run, &["--json"]);
    exits(&output, 0);
    let lines: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let line = &lines[0];
    let note = line["note"].as_str().unwrap_or_default().to_owned();
    (
        line["state"].as_str().unwrap().to_owned(),
        line["step"].as_u64().unwrap(),
        note,
    )
}

#[test]
fn the_state_of_a_run_follows_from_its_directory_alone() {
    let calm = calm();
    assert_eq!(state(&calm.run), ("done".to_owned(), 1500, String::new()));
    assert_eq!(state(&calm.fresh("states")).0, "planned");
    let (run, mut child, _) = alone(&calm, "met");
    let (running, step, holder) = state(&run);
    assert_eq!(running, "running");
    assert!(
        step > 0 && holder.contains(&child.id().to_string()),
        "{step} {holder}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let (stopped, step, _) = state(&run);
    assert!(
        stopped == "stopped" && step >= 40 && step % 20 == 0,
        "{stopped} at {step}"
    );
    std::fs::write(run.join("error.txt"), "the disk is full").unwrap();
    assert_eq!(
        state(&run),
        ("failed".to_owned(), step, "the disk is full".to_owned())
    );
    let job = std::fs::read_to_string(run.join("job.json")).unwrap();
    std::fs::write(
        run.join("job.json"),
        job.replace("\"steps\": 1500", "\"steps\": 1501"),
    )
    .unwrap();
    assert_eq!(state(&run).0, "stale");
    let table = command("status", &calm.scratch.runs(), &[]);
    exits(&table, 0);
    assert!(
        String::from_utf8_lossy(&table.stdout).contains("1 run: 1 done"),
        "{table:?}"
    );
    exits(&command("status", &run.join("nowhere"), &[]), 3);
}

#[test]
fn invalid_intervals_are_refused() {
    for text in ["0", "0s", "soon", "-5", "1.5s"] {
        let interval = format!("--checkpoint-every={text}");
        let output = command("run", "x.toml".as_ref(), &[&interval]);
        fails(&output, 2, "neither a number of steps");
    }
}
