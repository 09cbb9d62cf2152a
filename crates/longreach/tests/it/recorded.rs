//! `--recorded`: an experiment that continues from the records of another machine.

use crate::common::{Scratch, TINY, command, exits, fails, has, longreach, says, shows, stdout};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;

/// A run of [`TINY`], and its records as `gather` writes them.
fn whole() -> (Scratch, Vec<String>) {
    let scratch = Scratch::with(TINY);
    scratch.trains(&[]);
    let lines = gathered(&scratch);
    assert_eq!(lines.len(), 4);
    (scratch, lines)
}

fn gathered(scratch: &Scratch) -> Vec<String> {
    let out = scratch.directory.path().join("gathered.jsonl");
    let arguments = ["--out", out.to_str().unwrap()];
    let output = command("gather", &scratch.runs().join("tiny"), &arguments);
    exits(&output, 0);
    let text = std::fs::read_to_string(out).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A file of lines beside a config.
fn file(scratch: &Scratch, name: &str, lines: &[impl AsRef<str>]) -> PathBuf {
    let path = scratch.directory.path().join(name);
    let lines = lines.iter().map(|line| format!("{}\n", line.as_ref()));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    path
}

fn recorded(scratch: &Scratch, command: &str, files: &[&Path], more: &[&str]) -> Output {
    let mut arguments = more.to_vec();
    arguments.push("--recorded");
    arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
    scratch.longreach(command, &arguments)
}

/// A record with a change, and with a seal or without.
fn changed(line: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut record: Value = serde_json::from_str(line).unwrap();
    change(&mut record);
    record.to_string()
}

fn id(line: &str) -> String {
    let record: Value = serde_json::from_str(line).unwrap();
    record["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn an_experiment_continues_from_records_to_the_same_bytes() {
    let (_first, lines) = whole();
    let there = Scratch::with(TINY);
    let part = file(&there, "part.jsonl", &lines[1..3]);
    let planned = recorded(&there, "check", &[&part], &["--json"]);
    exits(&planned, 0);
    let plan: Value = serde_json::from_str(&stdout(&planned)).unwrap();
    let remain = plan["runs"].as_array().unwrap().iter();
    let remain: Vec<&str> = remain
        .filter(|run| run["recorded"] == false)
        .map(|run| run["run_id"].as_str().unwrap())
        .collect();
    let mut expected = [id(&lines[0]), id(&lines[3])];
    expected.sort();
    let mut found = remain.clone();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert!(!there.runs().exists(), "check writes nothing");

    let ran = recorded(&there, "run", &[&part], &[]);
    exits(&ran, 0);
    says(&ran, "4 runs, 2 to do");
    says(&ran, "--recorded: 2 of 4 runs count as done");
    assert_eq!(gathered(&there), lines);
    let trained = |line: &String| {
        let run = there.runs().join("tiny").join(id(line));
        run.join("weights.safetensors").exists()
    };
    let trained: Vec<bool> = lines.iter().map(trained).collect();
    assert_eq!(trained, [true, false, false, true]);
    // The report has all runs, those that were not trained here too.
    let report = there.runs().join("tiny/report/report.md");
    let report = std::fs::read_to_string(report).unwrap();
    has(&report, "n = 2");

    // The records stay: without the file there is nothing left to do, and all files fit.
    says(&there.trains(&[]), "4 runs, 0 to do");
    exits(&recorded(&there, "run", &[&part], &[]), 0);
    assert_eq!(gathered(&there), lines);
    let verified = command("verify", &there.runs(), &[]);
    exits(&verified, 0);
    let copies = stdout(&verified)
        .matches("the record was copied from")
        .count();
    assert_eq!(copies, 2, "{}", stdout(&verified));
    let status = command("status", &there.runs(), &[]);
    shows(&status, "4 runs: 4 done");
    shows(&status, "part.jsonl:1");
    let run = there.runs().join("tiny").join(id(&lines[1]));
    let scored = command("eval", &run, &["--lengths", "16"]);
    fails(&scored, 3, "part.jsonl:1, without weights");
    exits(&command("verify", &run, &["--retrain"]), 0);
}

#[test]
fn a_run_that_was_begun_here_takes_the_record_of_the_file() {
    let (first, lines) = whole();
    let run = first.runs().join("tiny").join(id(&lines[0]));
    let part = file(&first, "part.jsonl", &lines[..1]);
    let before = std::fs::read(run.join("record.json")).unwrap();
    // Nothing of a run that is recorded here changes.
    exits(&recorded(&first, "run", &[&part], &[]), 0);
    assert_eq!(std::fs::read(run.join("record.json")).unwrap(), before);
    assert!(!run.join("recorded.json").exists());
    // Of one that has its weights and lost its record, the record comes back; the weights stay.
    std::fs::remove_file(run.join("record.json")).unwrap();
    exits(&recorded(&first, "run", &[&part], &[]), 0);
    assert!(run.join("weights.safetensors").exists());
    exits(&command("verify", &run, &[]), 0);
    // A log and weights of another training do not stay beside the record.
    std::fs::remove_file(run.join("record.json")).unwrap();
    std::fs::write(run.join("weights.safetensors"), "half").unwrap();
    std::fs::write(run.join("error.txt"), "no").unwrap();
    exits(&recorded(&first, "run", &[&part], &[]), 0);
    for name in ["weights.safetensors", "steps.jsonl", "error.txt"] {
        assert!(!run.join(name).exists(), "{name}");
    }
    assert_eq!(gathered(&first), lines);
}

/// A file, by its lines, and what is said of it. `L` stands for a good line.
#[test]
fn files_that_cannot_be_believed_are_refused_with_their_line() {
    let (first, lines) = whole();
    let newer = changed(&lines[1], |record| record["schema"] = json!(2));
    let broken = changed(&lines[1], |record| record["train"]["tokens"] = json!(1));
    let edited = changed(&lines[1], |record| {
        record["spec"]["train"]["steps"] = json!(7);
        record.as_object_mut().unwrap().remove("seal");
    });
    let halved = changed(&lines[1], |record| {
        let loss = &mut record["evals"][0]["metrics"]["loss_nats"]["value"];
        *loss = json!(loss.as_f64().unwrap() / 2.0);
        record.as_object_mut().unwrap().remove("seal");
    });
    let damaged = lines[1][..lines[1].len() / 2].to_owned();
    let there = Scratch::with(TINY);
    let first_line = &lines[0];
    let refused = |lines: &[&str], said: &str| {
        let part = file(&there, "part.jsonl", lines);
        for command in ["run", "check"] {
            let refused = recorded(&there, command, &[&part], &[]);
            fails(&refused, 3, said);
            says(&refused, "= allowed:");
            says(&refused, "= help:");
        }
        assert!(!there.runs().join("tiny").join(id(first_line)).exists());
    };
    refused(
        &[&lines[0], &newer],
        "part.jsonl:2: schema 2 is newer than this binary's 1",
    );
    refused(&[&lines[0], &damaged], "part.jsonl:2: not a record");
    refused(&[&lines[0], &broken], "part.jsonl:2: the record of run");
    refused(&[&lines[0], &broken], "does not match its seal");
    refused(&[&lines[0], &edited], "part.jsonl:2: the record of run");
    refused(&[&lines[1], &halved], "part.jsonl:1 and ");
    refused(
        &[&lines[1], &halved],
        "differ in the scores of trained at 4",
    );
    refused(&["what = 1"], "part.jsonl:1: not a record");
    let array = format!("[{},{}]", lines[0], lines[1]);
    refused(&[&array], "part.jsonl:1: is a JSON array, not one record");
    refused(&[], "part.jsonl: no record in it");

    // Two files, and a file and the directory of the run.
    let [one, other] = [("one.jsonl", &lines[1]), ("other.jsonl", &halved)]
        .map(|(name, line)| file(&there, name, std::slice::from_ref(line)));
    let twice = recorded(&there, "run", &[&one, &other], &[]);
    fails(&twice, 3, "one.jsonl:1 and ");
    says(&twice, "other.jsonl:1 differ");
    let local = recorded(&first, "run", &[&other], &[]);
    fails(&local, 3, "other.jsonl:1 and ");
    says(&local, "record.json differ");

    let missing = there.directory.path().join("missing.jsonl");
    let absent = recorded(&there, "run", &[&missing], &[]);
    fails(&absent, 3, "missing.jsonl: there is no such file");
    let directory = recorded(&there, "run", &[there.directory.path()], &[]);
    fails(&directory, 3, "not a regular file");
    let key = recorded(&there, "run", &[&one, Path::new("train.steps=9")], &[]);
    fails(&key, 2, "write key=value before");
}

#[test]
fn records_without_a_seal_and_with_skipped_lengths_count_and_are_named() {
    let (_first, lines) = whole();
    let there = Scratch::with(TINY);
    let skipped = changed(&lines[0], |record| {
        record.as_object_mut().unwrap().remove("seal");
        let row = &mut record["evals"][1];
        row["status"] = json!("skipped");
        row["reason"] = json!("no memory");
        row["metrics"] = json!({});
        row.as_object_mut().unwrap().remove("loss_by_position");
    });
    let part = file(
        &there,
        "part.jsonl",
        &[&skipped, &lines[1], &lines[2], &lines[3]],
    );
    let ran = recorded(&there, "run", &[&part], &[]);
    exits(&ran, 0);
    says(&ran, "1 record without a seal");
    says(&ran, "part.jsonl:1");
    says(&ran, "1 recorded run skipped lengths");
    says(&ran, "4 runs, 0 to do");
    // `run` does not score them either.
    let run = there.runs().join("tiny").join(id(&lines[0]));
    let scored = command("eval", &run, &[]);
    fails(&scored, 2, "they fit now");
    says(&scored, "part.jsonl:1, without weights");
    // A file that has the length completes the record.
    let full = file(&there, "full.jsonl", &lines);
    exits(&recorded(&there, "run", &[&full], &[]), 0);
    assert_eq!(gathered(&there), lines);
}

#[test]
fn files_that_are_packed_are_called_that_and_a_byte_order_mark_is_read() {
    let (_first, lines) = whole();
    let there = Scratch::with(TINY);
    let path = there.directory.path().join("part.jsonl");
    let text = lines.join("\n");
    let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (bytes, said) in [
        (&b"\x1f\x8b\x08\0\0\0"[..], "begins as a gzip file"),
        (&utf_16, "begins as text in UTF-16"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        fails(&recorded(&there, "run", &[&path], &[]), 3, said);
    }
    std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
    let checked = recorded(&there, "check", &[&path], &[]);
    exits(&checked, 0);
    says(&checked, "4 of 4 runs count as done");
}

type Edit = fn(&mut Value);

#[test]
fn records_without_a_seal_have_the_numbers_of_the_plan() {
    let (_first, lines) = whole();
    let there = Scratch::with(TINY);
    let edits: [(Edit, &str); 4] = [
        (|record| record["evals"] = json!([]), "is not in the record"),
        (
            |record| record["status"] = json!("diverged"),
            "the training diverged, and the record has scores",
        ),
        (
            |record| record["evals"][0]["metrics"]["loss_nats"]["n"] = json!(999_999),
            "is over 999999 items",
        ),
        (
            |record| record["train"]["steps"] = json!(1),
            "the record holds 1 steps, its spec asks for",
        ),
    ];
    let unsealed = |edit: Edit| {
        changed(&lines[0], |record| {
            record.as_object_mut().unwrap().remove("seal");
            edit(record);
        })
    };
    for (edit, said) in edits {
        let part = file(&there, "part.jsonl", &[unsealed(edit)]);
        let refused = recorded(&there, "run", &[&part], &[]);
        fails(&refused, 3, "part.jsonl:1");
        says(&refused, said);
    }
    // A copied record has no step log that would say so.
    let part = file(&there, "part.jsonl", &lines);
    exits(&recorded(&there, "run", &[&part], &[]), 0);
    let run = there.runs().join("tiny").join(id(&lines[0]));
    for format in ["logits", "tables"] {
        let out = there.directory.path().join("out.safetensors");
        let arguments = ["--format", format, "--out", out.to_str().unwrap()];
        let exported = command("export", &run, &arguments);
        fails(&exported, 3, "copied from");
        says(&exported, "part.jsonl:1, without");
    }
    for (edit, said) in edits {
        std::fs::write(run.join("record.json"), unsealed(edit)).unwrap();
        let verified = command("verify", &run, &[]);
        exits(&verified, 1);
        shows(&verified, said);
    }
}

#[test]
fn a_training_that_starts_from_a_copied_record_needs_its_weights() {
    let (_first, lines) = whole();
    let there = Scratch::with(TINY);
    let part = file(&there, "part.jsonl", &lines);
    exits(&recorded(&there, "run", &[&part], &[]), 0);
    let base = there.runs().join("tiny").join(id(&lines[0]));
    let start = format!("train.start_from=\"{}\"", base.display());
    let (seed, kind) = ("seeds=[0]", "axes.\"model.pe\"=[{kind=\"nope\"}]");
    let refused = there.longreach("run", &["name=\"next\"", &start, seed, kind]);
    fails(&refused, 3, "part.jsonl:1 without weights");
    assert!(!there.runs().join("next").join("report").exists());
}

#[test]
fn later_evaluations_come_along() {
    let (first, lines) = whole();
    let run = first.runs().join("tiny").join(id(&lines[0]));
    exits(&command("eval", &run, &["--lengths", "16"]), 0);
    let all = gathered(&first);
    assert_eq!(all.len(), 5);
    let there = Scratch::with(TINY);
    let part = file(&there, "part.jsonl", &all);
    exits(&recorded(&there, "run", &[&part], &[]), 0);
    assert_eq!(gathered(&there), all);
}

#[cfg(unix)]
#[test]
fn a_submitted_sweep_finds_its_records() {
    let (_first, lines) = whole();
    let there = Scratch::with(TINY);
    let part = file(&there, "part.jsonl", &lines[..3]);
    let out = there.directory.path().join("sweep");
    let submit = |out: &Path, file: &Path| {
        let mut arguments = vec!["--cluster", "parallel", "--out", out.to_str().unwrap()];
        arguments.extend(["--recorded", file.to_str().unwrap()]);
        command("submit", &there.config, &arguments)
    };
    let submitted = submit(&out, &part);
    exits(&submitted, 0);
    // Only the run that is not recorded has a task.
    shows(&submitted, "1 run in 1 task of 1");
    let status = command("status", &out, &[]);
    shows(&status, "3 done");
    shows(&status, "1 planned");
    // A recorded run whose record is gone has no task to submit again.
    let lost: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    let lost = out.join("runs/tiny").join(lost["run_id"].as_str().unwrap());
    std::fs::remove_dir_all(lost).unwrap();
    let mut again = longreach();
    let again = again.args(["submit", "--again"]).arg(&out);
    let again = again.output().unwrap();
    fails(&again, 3, "1 run of --recorded lost its record");
    // Nothing is written where every run is recorded.
    let other = out.with_file_name("other");
    let refused = submit(&other, &file(&there, "all.jsonl", &lines));
    fails(&refused, 2, "the files hold all 4 runs of tiny");
    assert!(!other.exists());
}

#[test]
fn a_damaged_record_is_neither_recorded_nor_identical() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&["seeds=[0,1]"]);
    let whole = scratch.runs();
    let damaged = scratch.directory.path().join("damaged");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([&whole, &damaged])
        .status();
    assert!(copied.unwrap().success());
    let compare = |one: &Path, two: &Path| command("compare", one, &[two.to_str().unwrap()]);
    exits(&compare(&whole, &damaged), 0);
    let (record, _) = scratch.records().remove(0);
    std::fs::write(damaged.join(&record), "{bad").unwrap();
    for (first, second) in [(&whole, &damaged), (&damaged, &whole), (&damaged, &damaged)] {
        let output = compare(first, second);
        fails(&output, 1, "left out");
        says(&output, "not a record");
    }
    let arguments = ["seeds=[0,1]", "--runs", damaged.to_str().unwrap()];
    let checked = command("check", &scratch.config, &arguments);
    let runs = scratch.records().len();
    shows(&checked, &format!("({} recorded)", runs - 1));
    shows(&checked, "to do: 1 run");
}
