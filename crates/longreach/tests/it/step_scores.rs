//! Scores while training: they change nothing of the training, survive every stop bit for bit, and
//! end with the final evaluation.

use crate::common::{Scratch, TINY, command, exits, has, longreach, stderr, stdout};
use experiment::plan;
use experiment::run::step_scores::restored;
use records::RunRecord;
use records::record::{EvalStatus, StepScores};
use rundir::Weights;
use rundir::checkpoint::State;
use std::path::{Path, PathBuf};

/// One run of rope that is scored every two steps, at one of its two lengths.
const SCORED: [&str; 5] = [
    "seeds=[0]",
    "axes.\"model.pe\"=[{kind=\"rope\"}]",
    "eval.every=2",
    "eval.during=[8]",
    "train.steps=7",
];

fn records(scratch: &Scratch) -> Vec<(PathBuf, RunRecord)> {
    let read = |(path, bytes): (PathBuf, Vec<u8>)| (path, serde_json::from_slice(&bytes).unwrap());
    scratch.records().into_iter().map(read).collect()
}

fn steps(record: &RunRecord) -> Vec<u64> {
    record.train.scores.iter().map(|at| at.step).collect()
}

#[test]
fn scores_leave_the_training_as_it_is_and_end_with_the_evaluation() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&SCORED);
    let (_, scored) = records(&scratch).remove(0);
    assert_eq!(steps(&scored), [2, 4, 6, 7]);
    for at in &scored.train.scores {
        let rows: Vec<_> = at
            .rows
            .iter()
            .map(|row| (&*row.variant, row.test_len))
            .collect();
        assert_eq!(rows, [("trained", 8)]);
        assert!(at.rows[0].metrics.contains_key("exact_match"));
    }
    // The last scores are those of the evaluation of the trained encoding, and others are not.
    let last = &scored.train.scores[3].rows[0];
    let evaluated = scored
        .evals
        .iter()
        .find(|row| row.variant == "trained" && row.test_len == 8);
    assert_eq!(Some(last), evaluated);
    assert_ne!(last, &scored.train.scores[0].rows[0]);
    assert_eq!(
        (
            &scored.spec["eval"]["every"],
            &scored.spec["eval"]["during"]
        ),
        (&2.into(), &serde_json::json!([8]))
    );

    // Without scores: another run of the same training.
    let plain = Scratch::with(TINY);
    plain.trains(&[SCORED[0], SCORED[1], SCORED[4]]);
    let (_, without) = records(&plain).remove(0);
    assert_eq!(without.model, scored.model);
    assert_eq!(without.evals, scored.evals);
    assert_eq!(without.train.loss_curve, scored.train.loss_curve);
    assert_ne!(without.run_id, scored.run_id);
    assert!(without.train.scores.is_empty());
    let keys = without.spec["eval"].as_object().unwrap();
    assert!(
        !keys.contains_key("every") && !keys.contains_key("during"),
        "{keys:?}"
    );

    // Scored at a step, the weights are those of a training that ends there, up to the schedule.
    exits(&command("verify", &scratch.runs(), &["--retrain"]), 0);
}

#[test]
fn all_test_lengths_unless_some_are_named() {
    let scratch = Scratch::with(TINY);
    let arguments = ["seeds=[0]", "eval.every=3"];
    scratch.trains(&arguments);
    for (_, record) in records(&scratch) {
        assert_eq!(steps(&record), [3, 6]);
        let rows = &record.train.scores[0].rows;
        let learned = record.labels[0].text == "learned";
        let status: Vec<_> = rows.iter().map(|row| (row.test_len, row.status)).collect();
        // A learned table ends at the training length, while training as after it.
        let longer = if learned {
            EvalStatus::Unsupported
        } else {
            EvalStatus::Ok
        };
        assert_eq!(status, [(4, EvalStatus::Ok), (8, longer)]);
        assert_eq!(rows[1].reason.is_some(), learned);
    }
}

#[test]
fn the_weights_that_a_run_starts_from_are_not_scored() {
    let scratch = Scratch::with(TINY);
    let one = ["seeds=[0]", "axes.\"model.pe\"=[{kind=\"learned\"}]"];
    scratch.trains(&one);
    let started = [
        one[0],
        one[1],
        "name=\"started\"",
        "train.start_from=\"runs/tiny\"",
        "eval.every=3",
    ];
    scratch.trains(&started);
    let started = records(&scratch)
        .into_iter()
        .filter(|(_, record)| record.experiment == "started");
    let scored: Vec<_> = started.map(|(_, record)| steps(&record)).collect();
    assert_eq!(scored, [[3, 6]]);
}

/// The job of a run gives the same files where a signal meets it on its way.
pub fn same_if_stopped(scratch: &Scratch, calm: &Path, signal: &str) {
    // Again where every run ended before its signal, as after a pause of the machine.
    let met = |tries: usize| {
        let copy = scratch.directory.path().join(format!("{signal}{tries}"));
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(calm.join("job.json"), copy.join("job.json")).unwrap();
        (stopped_again_and_again(&copy, signal) > 0).then_some(copy)
    };
    let copy = (0..20).find_map(met).expect("the signal meets the run");
    for file in ["record.json", "weights.safetensors", "steps.jsonl"] {
        let [ours, theirs] = [calm, &copy].map(|run| std::fs::read(run.join(file)).unwrap());
        assert!(ours == theirs, "{file} differs after {signal}");
    }
}

/// A run killed, or asked to stop, again and again, until it is recorded.
fn stopped_again_and_again(run: &Path, signal: &str) -> u32 {
    let mut stops = 0;
    for round in 0_u64.. {
        let mut child = longreach()
            .arg("worker")
            .arg(run)
            .args(["--checkpoint-every", "7"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        if round < 14 {
            std::thread::sleep(std::time::Duration::from_millis(15 + 31 * (round % 7)));
            let id = child.id().to_string();
            let _ = std::process::Command::new("kill")
                .args([signal, &id])
                .status();
        }
        if child.wait().unwrap().success() {
            break;
        }
        stops += 1;
    }
    stops
}

#[cfg(unix)]
#[test]
fn stopped_at_any_instant_the_scores_are_the_same() {
    // Long evaluations, so that a stop often meets one.
    let arguments = [
        SCORED[0],
        SCORED[1],
        "eval.every=10",
        "train.steps=200",
        "task.test_rows=300",
        "eval.batch_tokens=64",
    ];
    let scratch = Scratch::with(TINY);
    scratch.trains(&arguments);
    let calm = scratch.first_run();
    for signal in ["-KILL", "-INT"] {
        same_if_stopped(&scratch, &calm, signal);
    }
}

#[test]
fn scores_that_do_not_fit_beside_the_training_are_skipped() {
    let scratch = Scratch::with(TINY);
    let check = |more: &[&str]| {
        let output = scratch.longreach("check", &[&SCORED[..], &["--json"], more].concat());
        exits(&output, 0);
        let plan: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        plan["runs"][0].clone()
    };
    let run = check(&[]);
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let training = number(&run["train_memory_bytes"]);
    let longest = run["evaluations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| number(&one["memory_bytes"]));
    let longest = longest.max().unwrap();
    // What is scored while training needs room beside it.
    let together = number(&run["memory_bytes"]);
    assert!(together > training.max(longest) && together < training + longest);
    let limit = training.max(longest) + 4096;
    let limited = ["--memory-limit", &limit.to_string()];
    scratch.trains(&[&SCORED[..], &limited].concat());
    let (path, record) = records(&scratch).remove(0);
    let status: Vec<_> = record
        .train
        .scores
        .iter()
        .map(|at| (at.step, at.rows[0].status))
        .collect();
    let skipped = EvalStatus::Skipped;
    assert_eq!(
        status,
        [
            (2, skipped),
            (4, skipped),
            (6, skipped),
            (7, EvalStatus::Ok)
        ]
    );
    let reason = record.train.scores[0].rows[0].reason.as_ref();
    has(reason.unwrap(), "memory");
    assert!(record.evals.iter().all(|row| row.status == EvalStatus::Ok));
    // With more memory the training is the same.
    let run = scratch.runs().join(path.parent().unwrap());
    exits(&command("verify", &run, &["--retrain"]), 0);
}

#[test]
fn the_scores_of_a_checkpoint_are_those_of_its_steps() {
    let scratch = Scratch::with(TINY);
    let overrides = SCORED.map(str::to_owned);
    let plan = plan(&scratch.config, &overrides).unwrap();
    let spec = &plan.runs[0].job.spec;
    let state = |step: u64, scored: &[u64]| {
        let at = |step: &u64| StepScores {
            step: *step,
            rows: Vec::new(),
        };
        State {
            step,
            tokens: 0,
            weights: Weights::default(),
            moments: [Weights::default(), Weights::default()],
            log_bytes: 0,
            log_blake3: String::new(),
            scores: serde_json::to_vec(&scored.iter().map(at).collect::<Vec<_>>()).unwrap(),
        }
    };
    // Those of the checkpoint's own step may be missing: a signal came first.
    for (step, scored) in [
        (1, &[][..]),
        (2, &[]),
        (2, &[2]),
        (5, &[2, 4]),
        (6, &[2, 4]),
        (7, &[2, 4, 6]),
    ] {
        assert_eq!(
            restored(spec, &state(step, scored)).unwrap().scores.len(),
            scored.len(),
            "{step}"
        );
    }
    for (step, scored) in [
        (4, &[][..]),
        (5, &[2]),
        (5, &[2, 6]),
        (5, &[2, 4, 5]),
        (7, &[2, 4]),
        (7, &[4, 2, 6]),
    ] {
        let error = restored(spec, &state(step, scored))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            format!("its scores are not those of every 2 steps up to {step}")
        );
    }
    let mut torn = state(2, &[2]);
    torn.scores.pop();
    let error = restored(spec, &torn).unwrap_err().to_string();
    has(&error, "cannot be read");
}

#[test]
fn mistakes_in_every_and_during() {
    let scratch = Scratch::with(TINY);
    let printed = |arguments: &[&str]| {
        let output = scratch.longreach("check", arguments);
        exits(&output, 2);
        format!("# {}\n{}", arguments.join(" "), stderr(&output))
    };
    let all = [
        printed(&["eval.during=[8]"]),
        printed(&["eval.every=0"]),
        printed(&["eval.every=7"]),
        printed(&["eval.every=2", "eval.during=[]"]),
        printed(&["eval.every=2", "eval.during=[8, 16]"]),
        printed(&["eval.every=2", "eval.during=[8, 8]"]),
        printed(&["eval.every=1", "train.steps=1000000"]),
        printed(&["eval.every=\"often\""]),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_later_evaluation_at_other_lengths_is_verified() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&SCORED);
    let experiment = scratch.runs().join("tiny");
    exits(&command("eval", &experiment, &["--lengths", "12"]), 0);
    exits(&command("verify", &experiment, &["--reevaluate"]), 0);
}
