//! What others check tasks and trainings with: rows as JSON lines, and the weights before training.

use crate::common::{Scratch, TINY, exits, fails, longreach, read_json, says, stdout, words};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tasks::{BuildContext, Rows, Task, TaskConfig};

/// The head and the rows that a command prints.
fn exported(typed: &[&str]) -> (Value, Vec<Value>) {
    let output = longreach().arg("export-rows").args(typed).output().unwrap();
    exits(&output, 0);
    let text = stdout(&output);
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().expect("a head"), lines.collect())
}

#[test]
fn rows_to_train_masked_text_on_are_exported() {
    let (head, rows) = exported(&["masked_text", "--length", "16", "--rows", "2"]);
    assert_eq!((head["split"].as_str(), rows.len()), (Some("train"), 2));
    assert_eq!(rows[0]["counted"].as_array().unwrap().len(), 16);
}

fn task(config: &Value, length: usize, eval_seed: u64, rows: Rows) -> Box<dyn Task> {
    let config: TaskConfig = serde_json::from_value(config.clone()).unwrap();
    let context = BuildContext {
        config_dir: PathBuf::new(),
        lock: "",
        cargo_home: None,
        train_len: length,
        test_lens: vec![length],
        eval_seed,
        rows,
        bidirectional: false,
        carried: None,
    };
    config.build(&context).unwrap()
}

#[test]
fn exported_rows_are_those_that_training_and_tests_read() {
    let typed = words("copy alphabet=5 --length 7 --rows 3 --seed 9");
    let config = json!({"kind": "copy", "alphabet": 5});
    let copy = task(&config, 7, 9, Rows::Test);
    let select = task(&config, 7, 9, Rows::Selection);
    let step = [&typed[..], &["--step", "11"]].concat();
    let test = [&typed[..], &["--test"]].concat();
    let selection = [&typed[..], &["--selection"]].concat();
    assert_ne!(
        copy.test_batch(7, 0, 3).inputs,
        select.test_batch(7, 0, 3).inputs
    );
    for (arguments, split, batch) in [
        (&step, "train", copy.train_batch(7, 3, 9, 11)),
        (&test, "test", copy.test_batch(7, 0, 3)),
        (&selection, "selection", select.test_batch(7, 0, 3)),
    ] {
        let (head, rows) = exported(arguments);
        assert_eq!(head["split"], split);
        assert_eq!(head["task"]["alphabet"], 5);
        let names = ["BOS", "SEP", "EOS", "0", "1", "2", "3", "4"];
        assert_eq!(head["tokens"], json!(names));
        assert_eq!(head["seq_len"], batch.seq_len);
        assert_eq!(head["vocab_size"], copy.vocab_size());
        assert_eq!(head.get("step").is_some(), split == "train");
        assert_eq!(rows.len(), 3);
        for (i, row) in rows.iter().enumerate() {
            let at = i * batch.seq_len..(i + 1) * batch.seq_len;
            assert_eq!(row["inputs"], json!(batch.inputs[at.clone()]));
            assert_eq!(row["targets"], json!(batch.targets[at.clone()]));
            assert_eq!(row["counted"], json!(batch.counted[at]));
        }
    }
}

#[test]
fn batches_of_several_steps_follow_each_other() {
    let step = |step: &str, steps: &str| {
        let place = ["--step", step, "--steps", steps];
        exported(&[&["copy", "--length", "7", "--rows", "2"][..], &place].concat()).1
    };
    let all = step("3", "3");
    let each = ["3", "4", "5"].map(|at| step(at, "1"));
    assert_eq!(all, each.concat());
    assert_ne!(each[0], each[1]);
}

#[test]
fn all_rows_of_a_set_are_those_that_a_run_scores() {
    let typed = ["copy", "test_rows=20", "--length", "7", "--all"];
    for which in ["--test", "--selection"] {
        let rows = exported(&[&typed[..], &[which]].concat()).1;
        assert_eq!(rows.len(), 20, "{which}");
        assert!(!rows[1..].contains(&rows[0]));
    }
    let refused = longreach().arg("export-rows").args(typed).output().unwrap();
    fails(&refused, 2, "<--test|--selection>");
}

fn files(directory: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path().join(name));
    paths.filter(|path| path.exists()).collect()
}

#[test]
fn initial_weights_are_kept_on_request_and_do_not_depend_on_training() {
    let scratch = Scratch::with(TINY);
    let runs = scratch.directory.path().join("runs/tiny");
    scratch.trains(&["seeds=[0]"]);
    assert!(files(&runs, "initial_weights.safetensors").is_empty());
    for steps in ["train.steps=3", "train.steps=4"] {
        scratch.trains(&["seeds=[0]", steps, "--initial-weights"]);
    }
    let initial = files(&runs, "initial_weights.safetensors");
    assert_eq!(initial.len(), 4, "one for each run that was trained then");
    let mut distinct = std::collections::BTreeSet::new();
    for path in initial {
        let (before, after) = (
            std::fs::read(&path).unwrap(),
            std::fs::read(path.with_file_name("weights.safetensors")).unwrap(),
        );
        assert!(before.len() == after.len() && before != after);
        distinct.insert(before);
    }
    assert_eq!(
        distinct.len(),
        2,
        "one for each encoding, whatever the steps"
    );
}

/// Batches and rows that follow from the whole config, not from the task alone.
#[test]
fn the_rows_of_a_run_are_those_that_its_config_draws() {
    let scratch = Scratch::with(TINY);
    let one = ["seeds=[0]", "axes.\"model.pe\"=[{kind=\"rope\"}]"];
    let more = [
        "train.length=\"mixed\"",
        "train.min_len=2",
        "train.stop={metric=\"exact_match\", at_least=1.0, every=3, min_len=1}",
    ];
    scratch.trains(&[&one[..], &more[..]].concat());
    let run = scratch.first_run();
    let place = run.to_str().unwrap();
    let (head, rows) = exported(&["--run", place, "--step", "1", "--steps", "9"]);
    assert_eq!(
        (&head["split"], &head["train_len"]),
        (&json!("train"), &json!(4))
    );
    // Four rows for each of the five steps that are left of six, padded to those of four symbols.
    let steps: Vec<&Value> = rows.iter().map(|row| &row["step"]).collect();
    let all: Vec<Value> = (1..6)
        .flat_map(|step| [(); 4].map(|()| json!(step)))
        .collect();
    assert_eq!(steps, all.iter().collect::<Vec<_>>());
    let width = |row: &Value| row["inputs"].as_array().unwrap().len();
    let widest = head["seq_len"].as_u64().unwrap();
    assert!(rows.iter().all(|row| width(row) as u64 == widest));
    let trained = read_json(&run.join("record.json"));
    let (_, first) = exported(&["--run", place]);
    let tokens = |row: &Value| row["tokens"].as_u64().unwrap();
    let total: u64 = [&first[..], &rows]
        .concat()
        .iter()
        .step_by(4)
        .map(tokens)
        .sum();
    assert_eq!(json!(total), trained["train"]["tokens"]);
    assert!(total < 6 * 4 * widest, "none is shorter");
    let (_, rows) = exported(&["--run", place, "--selection"]);
    let mut lengths: Vec<usize> = rows.iter().map(width).collect();
    assert_eq!(lengths.len(), 8);
    lengths.dedup();
    assert!(lengths.len() > 1 && lengths.is_sorted(), "{lengths:?}");
    for (typed, code) in [
        (vec!["--run", place, "--length", "8"], 2),
        (vec!["copy", "--run", place], 2),
        (vec!["--run", place, "--step", "6"], 2),
        (vec!["--run", "nowhere"], 3),
    ] {
        let output = longreach().arg("export-rows").args(typed).output().unwrap();
        exits(&output, code);
    }
}

#[test]
fn keys_of_other_tasks_are_said_to_be_theirs() {
    let mut command = longreach();
    let output = command
        .args(["export-rows", "parity", "alphabet=3"])
        .output()
        .unwrap();
    fails(&output, 2, "task `parity`");
    says(&output, "`alphabet` is a key of copy, ");
    says(&output, ", not of parity");
}
