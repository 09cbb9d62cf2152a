//! Faults are noticed, reported, and repaired by the same command: disks, memory, divergence, other
//! processes, changed files.
#![cfg(unix)]

use crate::common::{
    ONE, Scratch, TINY, command, exits, fails, has, lacks, longreach, one, read_json, says, shows,
    stderr, stdout, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn verify(arguments: &[&str]) -> Output {
    longreach().arg("verify").args(arguments).output().unwrap()
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn verify_finds_what_was_changed_and_trains_again() {
    let (scratch, run) = one();
    let runs = scratch.runs().display().to_string();
    let fine = verify(&[&runs, "--retrain"]);
    exits(&fine, 0);
    shows(&fine, "step log, numbers, trained again");
    shows(&fine, "nothing wrong");
    for (name, damage, said) in [
        (
            "weights.safetensors",
            (|bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1) as fn(&mut Vec<u8>),
            "does not hold the weights",
        ),
        (
            "weights.safetensors",
            |bytes| bytes.truncate(100),
            "not a safetensors file",
        ),
        (
            "steps.jsonl",
            |bytes| bytes.truncate(bytes.len() - 5),
            "torn",
        ),
        (
            "steps.jsonl",
            |bytes| replace(bytes, "\"loss_nats\":1", "\"loss_nats\":2"),
            "loss curve",
        ),
        (
            "job.json",
            |bytes| replace(bytes, "\"steps\": 6", "\"steps\": 7"),
            "job.json was changed",
        ),
        (
            "record.json",
            |bytes| replace(bytes, "\"steps\": 6", "\"steps\": 5"),
            "the record 5",
        ),
        (
            "record.json",
            |bytes| replace(bytes, "\"batch_size\": 4", "\"batch_size\": 5"),
            "is not that of job.json: train.batch_size",
        ),
        ("record.json", |bytes| bytes.truncate(1000), "record.json"),
    ] {
        let path = run.join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        damage(&mut bytes);
        assert_ne!(whole, bytes, "{name}: {said}");
        std::fs::write(&path, &bytes).unwrap();
        let found = verify(&[&runs]);
        exits(&found, 1);
        assert!(stdout(&found).contains(said), "{name}: {}", stdout(&found));
        std::fs::write(&path, whole).unwrap();
    }
    exits(&verify(&[&runs]), 0);
    // Whole in itself, and not what the training gives.
    let path = run.join("record.json");
    let mut record = read_json(&path);
    record["evals"][0]["metrics"]["loss_nats"]["value"] = 1.25.into();
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    let found = verify(&[&runs]);
    exits(&found, 1);
    shows(&found, "record.json was changed after it was written");
    // A run of an older version has no seal.
    record
        .as_object_mut()
        .unwrap()
        .remove("seal")
        .expect("the seal of the record");
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    exits(&verify(&[&runs]), 0);
    let found = verify(&[&runs, "--retrain"]);
    exits(&found, 1);
    shows(&found, "the record differs in evals");
    exits(
        &verify(&[&scratch
            .directory
            .path()
            .join("nothing")
            .display()
            .to_string()]),
        3,
    );
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    *bytes = String::from_utf8(bytes.clone())
        .unwrap()
        .replacen(from, to, 1)
        .into_bytes();
}

#[test]
fn failed_runs_can_be_tried_again_alone() {
    let scratch = Scratch::with(TINY);
    exits(&scratch.longreach("run", &["--retry", "failed"]), 2);
    assert!(scratch.records().is_empty(), "nothing has failed yet");
    scratch.trains(&[]);
    let all = scratch.records();
    let run = |index: usize| scratch.runs().join(all[index].0.parent().unwrap());
    for index in [0, 1] {
        std::fs::remove_file(run(index).join("record.json")).unwrap();
    }
    std::fs::write(run(1).join("error.txt"), "something").unwrap();
    let again = scratch.trains(&["--retry", "failed"]);
    says(&again, "4 runs, 1 to do");
    says(&again, "the other 3 are not selected by --retry");
    assert!(
        !run(0).join("record.json").exists()
            && run(1).join("record.json").exists()
            && !run(1).join("error.txt").exists()
    );
    scratch.trains(&[]);
    assert_eq!(scratch.records(), all);
}

#[test]
fn a_run_that_diverges_says_where_and_keeps_its_batch() {
    let scratch = Scratch::with(TINY);
    let diverging = [
        "seeds=[0]",
        "axes.\"model.pe\"=[{kind=\"rope\"}]",
        "train.lr=1e9",
        "train.grad_clip=0.0",
        "train.warmup_steps=0",
    ];
    let output = scratch.longreach("run", &diverging);
    exits(&output, 5);
    let records = scratch.records();
    let run = scratch.runs().join(records[0].0.parent().unwrap());
    let record = read_json(&run.join("record.json"));
    let diverged = &record["diverged"];
    let what = diverged["what"].as_str().unwrap();
    assert!(
        what.starts_with("output of ") || what.starts_with("gradient of ") || what == "loss",
        "{what}"
    );
    let (batch, step) = (
        read_json(&run.join("diverged.json")),
        diverged["step"].as_u64().unwrap(),
    );
    assert_eq!(
        (batch["step"].as_u64(), batch["rows"].as_u64()),
        (Some(step), Some(4))
    );
    // The hash in the record is that of this batch.
    let mut hasher = blake3::Hasher::new();
    [&batch["rows"], &batch["seq_len"]]
        .into_iter()
        .for_each(|n| {
            hasher.update(&n.as_u64().unwrap().to_le_bytes());
        });
    for ids in [&batch["inputs"], &batch["targets"]] {
        ids.as_array().unwrap().iter().for_each(|id| {
            hasher.update(&(id.as_i64().unwrap() as i32).to_le_bytes());
        });
    }
    assert_eq!(diverged["batch"], hasher.finalize().to_hex().as_str());
    // The message counts the steps before it, and the weights are those after them: finite.
    assert_eq!(
        std::fs::read_to_string(run.join("steps.jsonl"))
            .unwrap()
            .lines()
            .count() as u64,
        step
    );
    exits(&verify(&[&run.display().to_string()]), 0);
    // Recorded: not tried again, unless asked for.
    says(&scratch.longreach("run", &diverging), "0 to do");
    let again = scratch.longreach("run", &[&diverging[..], &["--retry", "diverged"]].concat());
    fails(&again, 5, "1 to do");
    assert_eq!(scratch.records(), records);
}

#[test]
fn lengths_that_do_not_fit_are_left_out_and_evaluated_when_they_do() {
    let scratch = Scratch::with(TINY);
    let lens = [&ONE[..], &["eval.test_lens=[4,16000]", "task.test_rows=1"]].concat();
    let limited = [&lens[..], &["--memory-limit", "71MiB"]].concat();
    scratch.trains(&limited);
    let path = scratch.runs().join(&scratch.records()[0].0);
    let record = read_json(&path);
    let row = |record: &serde_json::Value, test_len: u64| {
        record["evals"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["test_len"] == test_len)
            .unwrap()
            .clone()
    };
    assert_eq!(row(&record, 4)["status"], "ok");
    let left_out = row(&record, 16_000);
    assert_eq!(left_out["status"], "skipped");
    let reason = left_out["reason"].as_str().unwrap();
    has(reason, "more than the limit of 71 MiB");
    // The same limit, the same record; a larger one, the rest of it, from the weights that are
    // there.
    says(&scratch.longreach("run", &limited), "0 to do");
    let left = |limit: &str| {
        let limit = ["--json", "--memory-limit", limit];
        let checked = scratch.longreach("check", &[&lens[..], &limit].concat());
        let plan: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        plan["runs"][0]["recorded"] == false
    };
    assert_eq!((left("71MiB"), left("none")), (false, true));
    let steps = std::fs::metadata(path.with_file_name("steps.jsonl"))
        .unwrap()
        .modified()
        .unwrap();
    scratch.trains(&[&lens[..], &["--memory-limit", "none"]].concat());
    assert_eq!(row(&read_json(&path), 16_000)["status"], "ok");
    assert_eq!(
        std::fs::metadata(path.with_file_name("steps.jsonl"))
            .unwrap()
            .modified()
            .unwrap(),
        steps,
        "it was not trained again"
    );
    // A training that does not fit is refused before any work.
    let nothing = Scratch::with(TINY);
    let refused = nothing.longreach("run", &[&ONE[..], &["--memory-limit", "1MiB"]].concat());
    fails(&refused, 6, "training needs about");
    says(&refused, "--memory-limit");
    assert!(nothing.records().is_empty());
    // The record was replaced, and its hash with it.
    exits(&verify(&[&scratch.runs().display().to_string()]), 0);
    for text in ["lots", "-1", "0"] {
        let limit = format!("--memory-limit={text}");
        fails(&command("run", "x.toml".as_ref(), &[&limit]), 2, "512MiB");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_found_before_any_work() {
    let scratch = Scratch::with(TINY);
    std::fs::write(scratch.runs(), "a file").unwrap();
    let output = scratch.longreach("run", &ONE);
    fails(&output, 2, "cannot create");
    says(&output, "runs");
}

#[test]
fn a_limit_on_the_size_of_files_is_named_and_nothing_is_lost() {
    let (calm, run) = one();
    let scratch = Scratch::with(TINY);
    // 8 blocks of 512 bytes or 8 KiB, as the shell counts: too little for a checkpoint.
    let script = "ulimit -f 8; exec \"$@\"";
    let program = longreach();
    let output = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(program.get_program())
        .arg("run")
        .arg(&scratch.config)
        .args(ONE)
        .arg("--runs")
        .arg(scratch.runs())
        .output()
        .unwrap();
    fails(&output, 6, "ulimit -f");
    says(&output, "continues from it");
    scratch.trains(&ONE);
    assert_eq!(
        scratch.records()[0].1,
        std::fs::read(run.join("record.json")).unwrap()
    );
    drop(calm);
}

#[test]
fn two_sweeps_over_one_directory_share_the_work() {
    let scratch = Scratch::with(TINY);
    let start = || {
        let mut program = scratch.program("run", &["train.steps=300", "--jobs", "2"]);
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        program.spawn().unwrap()
    };
    let sweeps = [start(), start(), start()];
    let outputs: Vec<Output> = sweeps
        .into_iter()
        .map(|sweep| sweep.wait_with_output().unwrap())
        .collect();
    let said: String = outputs.iter().map(stderr).collect();
    outputs.iter().for_each(|output| exits(output, 0));
    assert_eq!(said.matches(": done").count(), 4, "{said}");
    assert_eq!(scratch.records().len(), 4);
}

#[test]
fn links_in_the_place_of_a_run_are_refused() {
    let (scratch, run) = one();
    let elsewhere = scratch.directory.path().join("elsewhere");
    std::fs::rename(&run, &elsewhere).unwrap();
    std::fs::remove_file(elsewhere.join("record.json")).unwrap();
    symlink(&elsewhere, &run).unwrap();
    fails(&scratch.longreach("run", &ONE), 3, "is a link");
    assert!(!elsewhere.join("record.json").exists());
}

#[test]
fn another_config_in_the_same_place_is_reported_key_by_key() {
    let (scratch, _) = one();
    let output = scratch.trains(&[&ONE[..], &["train.steps=7", "train.lr=2e-3"]].concat());
    says(&output, "holds 1 run of another config");
    says(&output, "train.steps = 6 (here 7)");
    says(&output, "train.lr");
}

#[test]
fn runs_that_lack_a_test_length_are_named_with_how_to_test_them() {
    let (scratch, _) = one();
    let run = |more: &[&str]| {
        let output = scratch.trains(&[&ONE[..], more].concat());
        stderr(&output)
    };
    let said = run(&["eval.test_lens=[4,8,12]"]);
    let part = "eval.test_lens = [4,8] (here [4,8,12]); `longreach eval ";
    has(&said, part);
    let part = "runs/tiny --lengths 12` tests the trained runs there";
    has(&said, part);
    lacks(&said, "eval.variants");
    // Another variant is one for itself, and no length.
    let said = run(&["eval.variants=[{name=\"far\",set={base=9e9}}]"]);
    let part = "differs in variant `far` (only here), variant `yarn` (not here)\n";
    has(&said, part);
}

#[test]
fn a_renamed_run_is_called_that() {
    let (scratch, run) = one();
    let place = scratch.runs().join("tiny");
    std::fs::rename(&run, place.join("best")).unwrap();
    let again = scratch.trains(&ONE);
    let said = stderr(&again);
    has(&said, "1 to do");
    let part = "directories that are not named after their run: tiny/best (";
    has(&said, part);
    lacks(&said, "of another config");
    let status = |place: &Path| {
        let output = command("status", place, &[]);
        stdout(&output)
    };
    let said = status(&place);
    assert_eq!(said.matches("directory is not named").count(), 1, "{said}");
    // An experiment's directory may have another name too.
    lacks(&said, "tiny in");
    std::fs::rename(&place, scratch.runs().join("moved")).unwrap();
    let said = status(&scratch.runs());
    assert_eq!(said.matches("tiny in moved").count(), 2, "{said}");
}

#[test]
fn a_changed_job_is_refused_with_what_to_do() {
    let (scratch, run) = one();
    std::fs::remove_file(run.join("record.json")).unwrap();
    let path = run.join("job.json");
    let mut job = read_json(&path);
    job["spec"]["model"]["n_heads"] = 0.into();
    std::fs::write(&path, serde_json::to_vec(&job).unwrap()).unwrap();
    let worker = || command("worker", &run, &[]);
    let changed = worker();
    fails(&changed, 3, "job.json was changed");
    // With a fitting hash it gets past that, and is held against what a config can say.
    let spec: experiment::spec::RunSpec = serde_json::from_value(job["spec"].clone()).unwrap();
    job["run_id"] = spec.run_id().unwrap().into();
    std::fs::write(&path, serde_json::to_vec(&job).unwrap()).unwrap();
    let refused = worker();
    let part = "cannot be run: `model.n_heads` is out of range";
    fails(&refused, 3, part);
    says(&refused, "`longreach run` with its config writes it anew");
    // The sweep writes the job anew and goes on.
    scratch.trains(&ONE);
}

#[test]
fn nobody_listening_ends_no_run() {
    let scratch = Scratch::with(TINY);
    let mut program = scratch.program("run", &ONE);
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    drop(child.stdout.take());
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(scratch.records().len(), 1);
}

/// In a report on several experiments a method's name begins with its experiment. `--baseline`
/// finds it without, where one experiment has it.
#[test]
fn a_baseline_is_named_without_its_experiment() {
    let (scratch, run) = one();
    scratch.trains(&[
        "name=\"other\"",
        "seeds=[0]",
        "axes.\"model.pe\"=[{kind=\"alibi\"}]",
    ]);
    let other = scratch.runs().join("other");
    let out = scratch.directory.path().join("out");
    let arguments = [&other, &out].map(|path| path.to_str().unwrap());
    let arguments = [arguments[0], "--baseline", "rope", "--out", arguments[1]];
    let output = command("report", run.parent().unwrap(), &arguments);
    exits(&output, 0);
    let page = std::fs::read_to_string(out.join("report.md")).unwrap();
    has(&page, "difference to tiny: RoPE");
}

/// As in reports, the methods of an evaluation come in the order of the config.
#[test]
fn evaluations_have_the_order_of_the_config() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&["seeds=[0]"]);
    let output = command("eval", &scratch.runs().join("tiny"), &["--lengths", "6"]);
    exits(&output, 0);
    let table = stdout(&output);
    let place = |name: &str| {
        table
            .rfind(&format!("\n {name} "))
            .unwrap_or_else(|| panic!("{table}"))
    };
    assert!(place("RoPE") < place("learned positions"), "{table}");
}

#[test]
fn records_are_gathered_into_one_file_and_reported_from_it() {
    let (scratch, run) = one();
    let file = scratch.directory.path().join("results.jsonl");
    let gather = |from: &Path| command("gather", from, &["--out", file.to_str().unwrap()]);
    let output = gather(&scratch.runs());
    exits(&output, 0);
    shows(&output, "1 record");
    let line = std::fs::read_to_string(&file).unwrap();
    assert_eq!(line.lines().count(), 1);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&line).unwrap(),
        read_json(&run.join("record.json"))
    );
    exits(&command("report", &file, &["--baseline", "rope"]), 0);
    let named = file.with_extension("csv");
    let refused = command(
        "gather",
        &scratch.runs(),
        &["--out", named.to_str().unwrap()],
    );
    fails(&refused, 2, "results.jsonl");
    assert!(!named.exists());
    let unknown = command("report", &file, &["--baseline", "rpoe"]);
    fails(&unknown, 2, "--baseline");
    says(&unknown, "rope");
    exits(&gather(&scratch.directory.path().join("x.toml")), 3);
}

/// Every command that reads files of records says what is wrong with one, and what to do.
#[test]
fn files_of_records_under_another_name_or_packed_are_named() {
    let (scratch, run) = one();
    let place = scratch.directory.path();
    let record = std::fs::read_to_string(run.join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    for name in ["r.json", "r", "r.JSONL"] {
        std::fs::write(place.join(name), format!("{record}\n{record}\n")).unwrap();
    }
    for name in ["r.jsonl", "r.jsonl.gz"] {
        std::fs::write(place.join(name), b"\x1f\x8b\x08\0rest").unwrap();
    }
    let lines = "has a record per line; name such a file *.jsonl";
    let gzip = "begins as a gzip file, not as records\n  = help: `gunzip FILE` unpacks it";
    let named = [("r.json", lines), ("r", lines), ("r.JSONL", lines)];
    for (name, says) in named
        .into_iter()
        .chain([("r.jsonl", gzip), ("r.jsonl.gz", gzip)])
    {
        for (command, says) in [
            (&["report", name][..], says),
            (&["gather", name, "--out", "all.jsonl"], says),
            (&["compare", name, name], says),
            (&["verify", name], "is a file"),
        ] {
            let output = longreach().args(command).current_dir(place).output();
            let output = output.unwrap();
            exits(&output, 3);
            assert!(
                stderr(&output).contains(says),
                "{command:?}: {}",
                stderr(&output)
            );
        }
    }
}

#[test]
fn a_batch_that_takes_long_does_not_hold_up_a_signal() {
    let (scratch, run) = one();
    let mut program = longreach();
    program
        .arg("eval")
        .arg(&run)
        .args(["--lengths", "400000", "--memory-limit", "none"])
        .env("RAYON_NUM_THREADS", "1");
    let mut child = program
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Reading the run takes a small part of two seconds of its processor time; the batch takes
    // minutes.
    let begun = Instant::now();
    wait_for("it computes", || {
        rundir::process::activity(child.id()).map_or_else(
            || begun.elapsed() > Duration::from_secs(10),
            |seen| seen.used > 200,
        )
    });
    assert!(child.try_wait().unwrap().is_none(), "it takes minutes");
    let asked = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    exits(&child.wait_with_output().unwrap(), 143);
    assert!(
        asked.elapsed() < Duration::from_secs(60),
        "{:?}",
        asked.elapsed()
    );
    drop(scratch);
}

#[test]
fn labels_of_another_config_keep_the_hash_of_the_record_true() {
    let (scratch, run) = one();
    let labels = |run: &Path| read_json(&run.join("record.json"))["labels"].clone();
    let before = labels(&run);
    // The same run under other axes.
    scratch.trains(&[&ONE[..], &["axes.\"train.lr\"=[1e-3]"]].concat());
    assert_ne!(labels(&run), before);
    exits(&verify(&[&run.display().to_string()]), 0);
    // An edit by hand stays an edit, whatever is written after it.
    let path = run.join("record.json");
    let mut record = read_json(&path);
    record["evals"][0]["metrics"]["loss_nats"]["value"] = 1.25.into();
    std::fs::write(&path, serde_json::to_vec_pretty(&record).unwrap()).unwrap();
    scratch.trains(&ONE);
    assert_eq!(labels(&run), before);
    let found = verify(&[&run.display().to_string()]);
    exits(&found, 1);
    shows(&found, "was changed after it was written");
    let report = command("report", &scratch.runs(), &[]);
    exits(&report, 0);
    let id = run.file_name().unwrap().to_string_lossy().into_owned();
    let part = "warning: records that were changed after they were written";
    says(&report, part);
    says(&report, &id);
}

#[test]
fn records_that_do_not_fit_their_run_are_named() {
    let (_scratch, run) = one();
    let record = records::read_record(&run.join("record.json")).unwrap();
    let notes = |edit: fn(&mut records::RunRecord)| {
        let mut record = record.clone();
        edit(&mut record);
        experiment::runs_on_disk::integrity::integrity_notes(&[record]).join("\n")
    };
    assert_eq!(notes(|_| ()), "");
    for (edit, said) in [
        (
            (|record| record.seed = 7) as fn(&mut records::RunRecord),
            "it names seed 7, its spec seed 0",
        ),
        (
            |record| drop(record.spec.insert("seed".to_owned(), 7.into())),
            "its spec is that of run ",
        ),
        (
            |record| drop(record.spec.insert("novelty".to_owned(), 1.into())),
            "unknown field `novelty`",
        ),
        (
            |record| record.run_id = "0123456789abcdef".to_owned(),
            "0123456789abcdef (its spec is that of run ",
        ),
    ] {
        let found = notes(edit);
        has(&found, said);
        assert!(
            found.starts_with("records edited by hand or by another version: "),
            "{found}"
        );
    }
    let many: Vec<_> = std::iter::repeat_n(record, 8)
        .map(|record| records::RunRecord { seed: 9, ..record })
        .collect();
    assert!(
        experiment::runs_on_disk::integrity::integrity_notes(&many)[0].ends_with(", and 3 more")
    );
    // What is committed fits.
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let files = std::fs::read_dir(experiments)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("results.jsonl"));
    let mut count = 0;
    for file in files.filter(|file| file.exists()) {
        let found = records::read_jsonl(&file).unwrap();
        count += found.records.len();
        assert_eq!(
            experiment::runs_on_disk::integrity::integrity_notes(&found.records),
            [] as [String; 0],
            "{}",
            file.display()
        );
    }
    assert!(count > 100, "{count} records");
}

/// What was removed while other runs trained is not recorded, and the exit code says so.
#[test]
fn a_run_removed_while_others_train_is_missing() {
    let scratch = Scratch::with(TINY);
    let long = ["train.steps=3000", "--jobs", "1"];
    let mut program = scratch.program("run", &long);
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = program.spawn().unwrap();
    wait_for("the first run is recorded", || {
        !scratch.records().is_empty()
    });
    let first = scratch.first_run();
    // Then its worker is done with the directory, and two runs are left.
    wait_for("the second run is recorded", || scratch.records().len() > 1);
    std::fs::remove_dir_all(first).unwrap();
    let output = child.wait_with_output().unwrap();
    fails(&output, 1, "1 run of 4 not recorded, or removed since");
    scratch.trains(&long);
    assert_eq!(scratch.records().len(), 4);
}
