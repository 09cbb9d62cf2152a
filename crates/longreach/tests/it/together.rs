//! Runs of one worker end in the bytes of runs of a worker each, however they are killed, stopped,
//! held or fail beside each other. How they train as one model: `side_by_side`.
#![cfg(unix)]

use crate::common::{
    Scratch, TINY, exits, fails, has, lacks, longreach, says, stderr, stdout, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Two runs of one shape, long enough to be met in the middle.
const LONG: [&str; 3] = [
    "train.steps=1200",
    "seeds=[0,1]",
    "axes.\"model.pe\"=[{kind=\"rope\"}]",
];
const TOGETHER: [&str; 2] = ["--runs-per-worker", "3"];

/// Runs of a scratch directory, in the order of their paths.
fn runs(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(scratch.runs().join("tiny"));
    let paths = entries.into_iter().flatten();
    let mut found: Vec<PathBuf> = paths
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("job.json").exists())
        .collect();
    found.sort();
    found
}

/// A sweep whose runs are trained alone.
fn alone(config: &str, overrides: &[&str]) -> Scratch {
    let scratch = Scratch::with(config);
    scratch.trains(overrides);
    scratch
}

/// Compares all runs of two sweeps.
#[track_caller]
fn same(one: &Scratch, other: &Scratch) {
    let (one, other) = (runs(one), runs(other));
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one.file_name(), other.file_name());
        for file in ["record.json", "weights.safetensors", "steps.jsonl"] {
            let [one, other] = [one, other].map(|run| std::fs::read(run.join(file)).unwrap());
            assert!(one == other, "{file} differs");
        }
        assert!(!other.join("error.txt").exists());
    }
}

/// Starts a sweep whose runs are trained together.
fn start(scratch: &Scratch, overrides: &[&str]) -> Child {
    let every = ["--checkpoint-every", "20"];
    let mut program = scratch.program("run", &[overrides, &TOGETHER, &every].concat());
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    program.spawn().unwrap()
}

/// The process that holds a run.
fn holder(run: &Path) -> Option<Pid> {
    let who = rundir::lock::holder(run)?.who;
    Pid::from_raw(who.split(' ').nth(1)?.parse().ok()?)
}

fn has_checkpoint(run: &Path) -> bool {
    let entries = std::fs::read_dir(run.join("checkpoints"));
    let mut names = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_string_lossy().starts_with("step-"))
}

/// Starts a sweep and stops its worker when a run has saved and none has ended. Returns the sweep
/// and its worker.
#[track_caller]
fn met(overrides: &[&str]) -> (Scratch, Child, Pid) {
    for _ in 0..20 {
        let scratch = Scratch::with(TINY);
        let mut sweep = start(&scratch, overrides);
        wait_for("a checkpoint", || {
            sweep.try_wait().unwrap().is_some()
                || runs(&scratch).iter().any(|run| has_checkpoint(run))
        });
        let found = runs(&scratch);
        if let Some(worker) = found.iter().find_map(|run| holder(run)) {
            let _ = kill_process(worker, Signal::STOP);
            let process = worker.as_raw_nonzero().get().unsigned_abs();
            wait_for("it is stopped", || {
                rundir::process::activity(process).is_none_or(|seen| seen.stopped)
            });
            if found.iter().all(|run| holder(run) == Some(worker))
                && !found
                    .iter()
                    .any(|run| run.join("weights.safetensors").exists())
            {
                return (scratch, sweep, worker);
            }
            let _ = kill_process(worker, Signal::CONT);
        }
        sweep.wait().unwrap();
    }
    panic!("every sweep ended before it could be met");
}

/// Runs the same command again, to its end.
#[track_caller]
fn finish(scratch: &Scratch, overrides: &[&str]) -> Output {
    let again = start(scratch, overrides).wait_with_output().unwrap();
    exits(&again, 0);
    again
}

#[test]
fn records_are_those_of_runs_alone() {
    let overrides = [
        "seeds=[0,1,2]",
        "axes.\"model.pe\"=[{kind=\"rope\"},{kind=\"rope\",base=100},{kind=\"learned\"}]",
        "eval.every=2",
        "model.dropout=0.1",
    ];
    let calm = alone(TINY, &overrides);
    let scratch = Scratch::with(TINY);
    let output = scratch.trains(&[&overrides[..], &TOGETHER].concat());
    same(&calm, &scratch);
    let said = stderr(&output);
    // Two groups of three rotary runs, and one of the learned ones.
    assert_eq!(
        said.matches("on a CPU a worker trains its runs one by one")
            .count(),
        1,
        "{said}"
    );
    assert_eq!(runs(&scratch).len(), 9);
    // What is recorded is left as it is.
    let again = scratch.longreach("run", &[&overrides[..], &TOGETHER].concat());
    says(&again, "9 recorded already");
}

#[test]
fn runs_of_a_text_share_it() {
    let config = TINY.replace(
        "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
        "kind = \"text\"\nfiles = [\"*.txt\"]\neval_tokens = 64\nsplit = { by = \"range\", \
         valid_fraction = 0.2 }",
    );
    let overrides = ["eval.test_lens=[16]", "train.train_len=16"];
    let sweep = |arguments: &[&str]| {
        let scratch = Scratch::with(&config);
        let text: String = (0..200)
            .map(|i| format!("line {} of {}\n", i % 7, i % 5))
            .collect();
        scratch.write("a.txt", text);
        scratch.trains(&[&overrides[..], arguments].concat());
        scratch
    };
    same(&sweep(&[]), &sweep(&TOGETHER));
}

#[test]
fn a_killed_worker_fails_all_its_runs_and_each_resumes() {
    let calm = alone(TINY, &LONG);
    let (scratch, sweep, worker) = met(&LONG);
    kill_process(worker, Signal::KILL).unwrap();
    fails(&sweep.wait_with_output().unwrap(), 1, "2 of 2 runs failed");
    for run in runs(&scratch) {
        assert!(!run.join("record.json").exists() && run.join("error.txt").exists());
    }
    let again = finish(&scratch, &[&LONG[..], &["--retry", "failed"]].concat());
    says(&again, "resumes at step");
    same(&calm, &scratch);
}

#[test]
fn a_signal_saves_every_run_that_has_begun() {
    let calm = alone(TINY, &LONG);
    for (signal, exit) in [(Signal::TERM, 143), (Signal::USR1, 75)] {
        let (scratch, sweep, _) = met(&LONG);
        // The sweep passes the signal on, and continues its worker.
        kill_process(Pid::from_child(&sweep), signal).unwrap();
        let output = sweep.wait_with_output().unwrap();
        exits(&output, exit);
        let said = stderr(&output);
        // On a CPU one run of a worker follows the other.
        let [begun, waiting] = ["stopped after step", "stopped before training"]
            .map(|what| said.matches(what).count());
        assert!(begun > 0 && begun + waiting == 2, "{said}");
        lacks(&said, "FAILED");
        let saved = runs(&scratch)
            .iter()
            .filter(|run| has_checkpoint(run))
            .count();
        assert_eq!(saved, begun);
        for run in runs(&scratch) {
            assert!(!run.join("record.json").exists() && !run.join("error.txt").exists());
        }
        let again = finish(&scratch, &LONG);
        let said = stderr(&again);
        assert_eq!(said.matches("resumes at step").count(), begun, "{said}");
        same(&calm, &scratch);
    }
}

#[test]
fn a_signal_during_evaluation_leaves_runs_trained() {
    let overrides = [
        LONG[1],
        LONG[2],
        "eval.test_lens=[4,300]",
        "task.test_rows=400",
    ];
    let calm = alone(TINY, &overrides);
    let scratch = Scratch::with(TINY);
    let sweep = start(&scratch, &overrides);
    let is_trained = |run: &PathBuf| run.join("weights.safetensors").exists();
    wait_for("an evaluation", || runs(&scratch).iter().any(is_trained));
    kill_process(Pid::from_child(&sweep), Signal::TERM).unwrap();
    let output = sweep.wait_with_output().unwrap();
    exits(&output, 143);
    let said = stderr(&output);
    has(&said, "stopped during evaluation");
    lacks(&said, "FAILED");
    assert!(runs(&scratch).iter().any(|run| has_checkpoint(run)));
    says(&finish(&scratch, &overrides), "resumes at step 6 of 6");
    same(&calm, &scratch);
}

#[test]
fn a_run_that_diverges_leaves_the_others_going_on() {
    let overrides = [
        "axes.\"train.lr\"=[1e9,1e-3]",
        "axes.\"model.pe\"=[{kind=\"rope\"}]",
        "train.warmup_steps=0",
        "train.grad_clip=0",
        "train.steps=30",
        "model.norm=\"rms_norm\"",
    ];
    let calm = alone(TINY, &overrides);
    let scratch = Scratch::with(TINY);
    let together = [&overrides[..], &["--runs-per-worker", "4"]].concat();
    scratch.trains(&together);
    same(&calm, &scratch);
    let diverged = || {
        let of = |run: &PathBuf| run.join("diverged.json").exists();
        runs(&scratch).iter().filter(|run| of(run)).count()
    };
    assert_eq!(diverged(), 2, "a learning rate of 1e9 must diverge");
    let output = scratch.trains(&[&together[..], &["--retry", "diverged"]].concat());
    says(&output, "2 to do");
    assert_eq!(diverged(), 2);
    same(&calm, &scratch);
}

#[test]
fn the_others_go_on_without_a_run_that_is_held() {
    let overrides = ["seeds=[0,1,2]", LONG[2]];
    let calm = alone(TINY, &overrides);
    let scratch = Scratch::with(TINY);
    let held = scratch
        .runs()
        .join("tiny")
        .join(runs(&calm)[1].file_name().unwrap());
    std::fs::create_dir_all(&held).unwrap();
    let lock = rundir::lock::take(&held).expect("nobody holds it");
    let sweep = start(&scratch, &overrides);
    wait_for("the others are recorded", || scratch.records().len() == 2);
    assert!(!held.join("record.json").exists());
    drop(lock);
    let output = sweep.wait_with_output().unwrap();
    exits(&output, 0);
    lacks(&stderr(&output), "FAILED");
    same(&calm, &scratch);
}

/// A worker of several runs without a sweep.
fn worker(runs: &[PathBuf]) -> Command {
    let mut command = longreach();
    command.arg("worker").args(runs).arg("--events");
    command
}

#[test]
fn a_worker_names_the_runs_that_it_cannot_run_and_records_the_others() {
    let calm = alone(TINY, &["seeds=[0,1,2]", LONG[2]]);
    let scratch = Scratch::with(TINY);
    let fresh = |from: &PathBuf| {
        let copy = scratch.runs().join("tiny").join(from.file_name().unwrap());
        std::fs::create_dir_all(&copy).unwrap();
        std::fs::copy(from.join("job.json"), copy.join("job.json")).unwrap();
        copy
    };
    let fresh: Vec<PathBuf> = runs(&calm).iter().map(fresh).collect();
    let lock = rundir::lock::take(&fresh[0]).expect("nobody holds it");
    let job = fresh[1].join("job.json");
    let text = std::fs::read_to_string(&job).unwrap();
    std::fs::write(&job, text.replace("\"steps\": 6", "\"steps\": 7")).unwrap();
    let output = worker(&fresh).output().unwrap();
    // The failure of the first: another process holds it.
    exits(&output, 4);
    let said = stdout(&output);
    let left = |line: &&str| line.contains("\"event\":\"left\"");
    let left: Vec<&str> = said.lines().filter(left).collect();
    assert_eq!(left.len(), 2, "{said}");
    has(left[0], "\"exit\":4");
    has(left[0], "is held by");
    has(left[1], "\"exit\":3");
    assert!(left[1].starts_with("{\"run\":1"), "{said}");
    assert!(fresh[2].join("record.json").exists());
    drop(lock);
    std::fs::write(&job, text).unwrap();
    exits(&worker(&fresh).output().unwrap(), 0);
    same(&calm, &scratch);
}

#[test]
fn runs_that_do_not_fit_together_are_trained_in_smaller_groups() {
    let overrides = ["seeds=[0,1,2]", LONG[2]];
    let calm = alone(TINY, &overrides);
    // A training needs 30 MiB beside a process of 36 MiB.
    for limit in ["none", "100MiB"] {
        let scratch = Scratch::with(TINY);
        let more = ["--memory-limit", limit, "--jobs", "1"];
        let arguments = [&overrides[..], &TOGETHER, &more].concat();
        scratch.trains(&arguments);
        same(&calm, &scratch);
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_ends_its_run_and_says_why() {
    let overrides = ["seeds=[0,1,2]", LONG[2]];
    let calm = alone(TINY, &overrides);
    let scratch = Scratch::with(TINY);
    let broken = scratch
        .runs()
        .join("tiny")
        .join(runs(&calm)[1].file_name().unwrap());
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("checkpoints"), "in the way").unwrap();
    let output = start(&scratch, &overrides).wait_with_output().unwrap();
    fails(&output, 6, "1 of 3 runs failed");
    let error = std::fs::read_to_string(broken.join("error.txt")).unwrap();
    has(&error, "checkpoints");
    assert_eq!(
        scratch.records().len(),
        2,
        "on a CPU runs are trained apart"
    );
    std::fs::remove_file(broken.join("checkpoints")).unwrap();
    finish(&scratch, &overrides);
    same(&calm, &scratch);
}
