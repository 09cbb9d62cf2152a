//! `train.stop` ends a run that has learned: where scores taken by other means say so, with the bits
//! of the whole training up to there, and with the same bytes after any stop.

use crate::common::{Scratch, TINY, command, exits, fails, has, lacks, says, stderr, stdout};
use experiment::plan;
use experiment::run::step_scores::check_stop_scores;
use experiment::spec::{RunSpec, StopSpec};
use records::RunRecord;
use records::record::StopScore;
use std::path::{Path, PathBuf};

/// One run of rope that learns to copy, long enough to be met in the middle.
const LEARNING: [&str; 5] = [
    "seeds=[0]",
    "axes.\"model.pe\"=[{kind=\"rope\"}]",
    "train.steps=240",
    "train.lr=1e-2",
    "task.test_rows=64",
];

fn recorded(scratch: &Scratch) -> (PathBuf, RunRecord) {
    let record = serde_json::from_slice(&scratch.records()[0].1);
    (scratch.first_run(), record.unwrap())
}

fn run(arguments: &[&str]) -> (Scratch, PathBuf, RunRecord) {
    let scratch = Scratch::with(TINY);
    scratch.trains(&[&LEARNING[..], arguments].concat());
    let (directory, record) = recorded(&scratch);
    (scratch, directory, record)
}

/// The losses at the training length on selection rows every 10 steps, as an evaluation takes them.
fn losses_on_selection_rows(test_lens: &str) -> (PathBuf, Scratch, Vec<(u64, f64)>) {
    let (scratch, directory, record) =
        run(&["eval.rows=\"selection\"", test_lens, "eval.every=10"]);
    let scores = record.train.scores.iter();
    let losses = scores.map(|at| (at.step, at.rows[0].metrics["loss_nats"].value));
    (directory, scratch, losses.collect())
}

fn file(directory: &Path, name: &str) -> Vec<u8> {
    std::fs::read(directory.join(name)).unwrap()
}

#[test]
fn a_run_ends_at_the_first_score_that_is_good_enough() {
    let (whole, _kept, losses) = losses_on_selection_rows("eval.test_lens=[4]");
    // What the middle of the training comes to, so that later steps are left out.
    let bound = losses[11].1;
    let (first, _) = *losses.iter().find(|(_, loss)| *loss <= bound).unwrap();
    assert!((10..240).contains(&first), "{losses:?}");
    let stop = format!("train.stop={{metric=\"loss_nats\",at_most={bound:?},every=10}}");
    let (scratch, directory, record) = run(&[&stop, "eval.every=20"]);
    assert_eq!(
        (record.train.steps, record.train.tokens),
        (first, first * 4 * 10)
    );
    assert_eq!(record.spec["train"]["steps"], 240);
    let taken: Vec<(u64, f64)> = record
        .train
        .stop_scores
        .iter()
        .map(|at| (at.step, at.value.unwrap()))
        .collect();
    let expected = losses.iter().filter(|(step, _)| *step <= first);
    assert_eq!(taken, expected.copied().collect::<Vec<_>>());
    // The steps, rates included, are those of the whole training.
    let log = file(&directory, "steps.jsonl");
    assert!(file(&whole, "steps.jsonl").starts_with(&log));
    assert_eq!(
        log.iter().filter(|byte| **byte == b'\n').count() as u64,
        first
    );
    // The last scores while training are those of the evaluation.
    let last = record.train.scores.last().unwrap();
    assert_eq!(last.step, first);
    assert_eq!(last.rows[0], record.evals[0]);
    // Over the last tenth of the steps that were taken.
    let lines: Vec<f64> = String::from_utf8(log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss_nats"].clone())
        .map(|loss| loss.as_f64().unwrap())
        .collect();
    let tail = &lines[lines.len() - (lines.len() / 10).max(1)..];
    let mean = tail.iter().sum::<f64>() / tail.len() as f64;
    assert_eq!(record.train.final_loss_nats, Some(mean));
    for more in [&["--reevaluate"][..], &["--retrain"]] {
        exits(&command("verify", &scratch.runs(), more), 0);
    }
    let status = command("status", &directory, &["--json"]);
    let status: serde_json::Value = serde_json::from_str(&stdout(&status)).unwrap();
    assert_eq!(
        (&status[0]["state"], &status[0]["step"]),
        (&"done".into(), &first.into())
    );
}

#[test]
fn a_run_that_never_gets_there_takes_all_its_steps() {
    let (_kept, _, record) = run(&[
        "train.steps=12",
        "train.stop={metric=\"exact_match\",at_least=1.0,every=5}",
    ]);
    assert_eq!(record.train.steps, 12);
    let steps: Vec<u64> = record.train.stop_scores.iter().map(|at| at.step).collect();
    assert_eq!(steps, [5, 10]);
}

#[cfg(unix)]
#[test]
fn stopped_at_any_instant_it_ends_at_the_same_step_with_the_same_bytes() {
    use crate::step_scores::same_if_stopped;
    let (_kept, _, losses) = losses_on_selection_rows("eval.test_lens=[4]");
    let bound = losses[17].1;
    let stop = format!("train.stop={{metric=\"loss_nats\",at_most={bound:?},every=10}}");
    let (scratch, calm, record) = run(&[&stop, "eval.every=15", "eval.batch_tokens=64"]);
    assert!(record.train.steps < 240);
    for signal in ["-KILL", "-INT"] {
        same_if_stopped(&scratch, &calm, signal);
    }
}

#[test]
fn runs_of_one_worker_end_each_at_its_own_step() {
    let stop = "train.stop={metric=\"token_accuracy\",at_least=0.55,every=10}";
    let scratch = |more: &[&str]| {
        let scratch = Scratch::with(TINY);
        let arguments = [&LEARNING[1..], &["seeds=[0,1,2]", stop], more].concat();
        scratch.trains(&arguments);
        scratch
    };
    let (alone, together) = (scratch(&[]), scratch(&["--runs-per-worker", "3"]));
    assert!(alone.records() == together.records());
    let steps = alone.records().into_iter().map(|(_, bytes)| {
        let record: RunRecord = serde_json::from_slice(&bytes).unwrap();
        record.train.steps
    });
    let steps: Vec<u64> = steps.collect();
    assert!(steps.iter().any(|steps| *steps < 240), "{steps:?}");
}

fn spec() -> RunSpec {
    let scratch = Scratch::with(TINY);
    let stop = "train.stop={metric=\"loss_nats\",at_most=0.5,every=2}".to_owned();
    plan(&scratch.config, &[stop]).unwrap().runs[0]
        .job
        .spec
        .clone()
}

#[test]
fn the_scores_of_a_stop_are_those_of_its_steps() {
    let spec = spec();
    let scores = |values: &[(u64, f64)]| -> Vec<StopScore> {
        let score = |(step, value): &(u64, f64)| StopScore {
            step: *step,
            value: Some(*value),
        };
        values.iter().map(score).collect()
    };
    // The score of the last step may be missing, and it alone may end the training.
    for (step, taken) in [
        (1, &[][..]),
        (2, &[(2, 0.9)]),
        (2, &[]),
        (2, &[(2, 0.5)]),
        (6, &[(2, 0.9), (4, 0.8)]),
    ] {
        check_stop_scores(&spec, &scores(taken), step).unwrap();
    }
    for (step, taken) in [
        (3, &[][..]),
        (3, &[(1, 0.9)]),
        (3, &[(2, 0.5)]),
        (4, &[(2, 0.4), (4, 0.9)]),
        (6, &[(2, 0.9), (4, 0.8), (6, 0.4)]),
    ] {
        check_stop_scores(&spec, &scores(taken), step).unwrap_err();
    }
}

#[test]
fn a_stop_may_read_rows_of_all_lengths() {
    let (.., losses) = losses_on_selection_rows("eval.test_lens=[\"1..4\"]");
    let bound = losses[11].1;
    let stop = "train.stop={metric=\"loss_nats\",at_most=";
    let stop = format!("{stop}{bound:?},every=10,min_len=1}}");
    let (.., record) = run(&[&stop]);
    let taken = record.train.stop_scores.iter();
    let taken: Vec<(u64, f64)> = taken.map(|at| (at.step, at.value.unwrap())).collect();
    assert_eq!(taken, losses[..taken.len()]);
    assert!((1..=12).contains(&taken.len()) && record.train.steps < 240);
    let scratch = Scratch::with(TINY);
    for (stop, words) in [
        ("min_len=4", "a whole number from 1 to 3"),
        ("min_len=0", "a whole number from 1"),
    ] {
        let stop = format!("train.stop={{metric=\"exact_match\",at_least=1.0,every=1,{stop}}}");
        fails(&scratch.longreach("check", &[&stop]), 2, words);
    }
    let text = [
        "task={kind=\"text\"}",
        "train.train_len=64",
        "eval.test_lens=[64]",
    ];
    let stop = "train.stop={metric=\"loss_nats\",at_most=1.0,every=1,min_len=1}";
    let refused = scratch.longreach("check", &[&text[..], &[stop]].concat());
    fails(&refused, 2, "for tasks that generate their rows");
}

#[test]
fn a_score_without_a_value_ends_nothing() {
    let stop = StopSpec {
        metric: "exact_match".to_owned(),
        at_least: Some(0.5),
        at_most: None,
        min_len: None,
        every: 1,
    };
    for (score, met) in [
        (None, false),
        (Some(0.4), false),
        (Some(0.5), true),
        (Some(1.0), true),
    ] {
        assert_eq!(stop.is_met(score), met, "{score:?}");
    }
}

#[test]
fn in_stages_only_the_last_one_is_ended() {
    let scratch = Scratch::with(TINY);
    let staged = [
        "train.length=staged",
        "train.stages=[{steps=3,train_len=2},{steps=3,train_len=4}]",
        "train.stop={metric=\"exact_match\",at_least=1.0,every=1}",
    ];
    let plan = plan(&scratch.config, &staged.map(str::to_owned)).unwrap();
    let spec = &plan.runs[0].job.spec;
    let due: Vec<u64> = (1..=6).filter(|step| spec.may_stop_after(*step)).collect();
    assert_eq!(due, [4, 5]);
    let stop = "train.stop={metric=\"exact_match\",at_least=1.0,every=3}";
    let noted = scratch.longreach("check", &[staged[0], staged[1], stop]);
    exits(&noted, 0);
    says(
        &noted,
        "no multiple of every = 3 lies in the last stage and before step 6",
    );
}

#[test]
fn the_cost_of_a_run_that_may_end_early_is_an_upper_bound() {
    let scratch = Scratch::with(TINY);
    let stop = "train.stop={metric=\"exact_match\",at_least=1.0,every=2}";
    let check = |arguments: &[&str]| {
        let output = scratch.longreach("check", arguments);
        exits(&output, 0);
        stdout(&output)
    };
    let text = check(&[stop]);
    has(&text, "up to 960 tokens trained on, at most about");
    lacks(&check(&[]), "up to");
    let runs = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let (with, without) = (runs(&check(&[stop, "--json"])), runs(&check(&["--json"])));
    let run = |plan: &serde_json::Value, key: &str| plan["runs"][0][key].as_u64().unwrap();
    assert_eq!(with["runs"][0]["may_end_early"], true);
    assert!(without["runs"][0].get("may_end_early").is_none());
    assert_eq!(run(&with, "train_tokens"), run(&without, "train_tokens"));
    // Scores after steps 2 and 4, of 8 rows of 10 tokens each.
    assert_eq!(
        run(&with, "eval_tokens"),
        run(&without, "eval_tokens") + 2 * 80
    );
    assert!(run(&with, "train_memory_bytes") > run(&without, "train_memory_bytes"));
}

#[test]
fn mistakes_in_a_stop() {
    let scratch = Scratch::with(TINY);
    let printed = |stop: &str| {
        let argument = format!("train.stop={stop}");
        let output = scratch.longreach("check", &[&argument]);
        exits(&output, 2);
        format!("# {argument}\n{}", stderr(&output))
    };
    let all = [
        printed("{metric=\"perplexity\",at_most=2.0,every=2}"),
        printed("{metric=\"exact_match\",every=2}"),
        printed("{metric=\"exact_match\",at_least=1.0,at_most=1.0,every=2}"),
        printed("{metric=\"exact_match\",at_most=1.0,every=2}"),
        printed("{metric=\"loss_nats\",at_least=0.5,every=2}"),
        printed("{metric=\"exact_match\",at_least=1.5,every=2}"),
        printed("{metric=\"exact_match\",at_least=1.0,every=7}"),
        printed("{metric=\"exact_match\",at_least=1.0}"),
        printed("{metric=\"exact_match\",at_least=1.0,evry=7}"),
        printed("[\"exact_match\", 1.0]"),
        printed("\"exact_match\""),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
