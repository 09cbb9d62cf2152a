//! Files that were edited after a run, or that are not those of their run: what `verify`, `eval`,
//! `worker`, `run` and `report` believe.
#![cfg(unix)]

use crate::common::{
    ONE, Scratch, TINY, command, exits, fails, has, lacks, one, read_json, says, shows, stderr,
    stdout,
};
use experiment::plan;
use experiment::run::task::build_task;
use experiment::spec::{Job, RunSpec};
use serde_json::{Value, json};
use std::path::Path;

fn write(path: &Path, value: &Value) {
    std::fs::write(path, serde_json::to_vec_pretty(value).unwrap()).unwrap();
}

/// `verify` of the run finds this.
#[track_caller]
fn is_wrong(run: &Path, said: &str, what: &str) {
    let found = command("verify", run, &[]);
    exits(&found, 1);
    assert!(stdout(&found).contains(said), "{what}: {}", stdout(&found));
}

#[test]
fn a_digit_changed_anywhere_in_the_record_or_the_log_is_noticed() {
    let (_scratch, run) = one();
    for name in ["record.json", "steps.jsonl"] {
        let path = run.join(name);
        let whole = std::fs::read(&path).unwrap();
        let digits: Vec<usize> = (0..whole.len())
            .filter(|at| whole[*at].is_ascii_digit())
            .collect();
        // Spread over the whole file, with every place in a number met.
        let step = (digits.len() / 40).max(1) | 1;
        for at in digits.into_iter().step_by(step) {
            let mut bytes = whole.clone();
            bytes[at] = if bytes[at] == b'9' {
                b'1'
            } else {
                bytes[at] + 1
            };
            // The last digits of a number may be more than it needs.
            if name == "record.json" && same_content(&whole, &bytes) {
                continue;
            }
            std::fs::write(&path, bytes).unwrap();
            let found = command("verify", &run, &[]);
            assert_eq!(found.status.code(), Some(1), "{name}, byte {at}");
        }
        std::fs::write(&path, whole).unwrap();
    }
    exits(&command("verify", &run, &[]), 0);
}

/// Whether two texts of records hold the same.
fn same_content(one: &[u8], other: &[u8]) -> bool {
    let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    parse(other).is_some() && parse(one) == parse(other)
}

/// An edit of a record, and what `verify` says of it.
type Edit = (&'static str, fn(&mut Value), &'static str);

/// Edits that show without a seal.
const EDITS: [Edit; 22] = [
    (
        "a share of 7.5",
        |r| metric(r, "exact_match")["value"] = json!(7.5),
        "not a share from 0 to 1",
    ),
    (
        "a share of -3",
        |r| metric(r, "token_accuracy")["value"] = json!(-3.0),
        "not a share from 0 to 1",
    ),
    (
        "a loss of -5",
        |r| metric(r, "loss_nats")["value"] = json!(-5.0),
        "which is below 0",
    ),
    (
        "a count of 1e18",
        |r| metric(r, "loss_nats")["n"] = json!(10_u64.pow(18)),
        "is a mean over",
    ),
    (
        "no item",
        |r| metric(r, "loss_nats")["n"] = json!(0),
        "is a mean over 0 items",
    ),
    (
        "more rows",
        |r| metric(r, "exact_match")["n"] = json!(9),
        "exact_match is over 9 rows, the test has 8",
    ),
    (
        "more tokens",
        |r| metric(r, "loss_nats")["n"] = json!(999_999),
        "the test has at most",
    ),
    (
        "a metric more",
        |r| {
            r["evals"][0]["metrics"]["novelty"] = json!({ "value": 1.0, "n": 1 });
        },
        "has novelty, which is not scored here",
    ),
    (
        "a metric less",
        |r| {
            r["evals"][0]["metrics"]
                .as_object_mut()
                .unwrap()
                .remove("exact_match");
        },
        "has no exact_match",
    ),
    (
        "a row less",
        |r| drop(rows(r).remove(1)),
        "the row of trained at 8 is not in the record",
    ),
    (
        "no rows",
        |r| rows(r).clear(),
        "is not in the record, and 3 more",
    ),
    (
        "a row more",
        |r| {
            let mut row = rows(r)[0].clone();
            row["test_len"] = json!(5);
            rows(r).push(row);
        },
        "the row of trained at 5 is in the record and was not asked for",
    ),
    (
        "rows swapped",
        |r| rows(r).swap(0, 1),
        "the rows of the record are in another order",
    ),
    (
        "another seed",
        |r| r["seed"] = json!(77),
        "record.json names seed 77",
    ),
    (
        "another experiment",
        |r| r["experiment"] = json!("../../etc"),
        "belongs to experiment ../../etc",
    ),
    (
        "a status",
        |r| {
            r["status"] = json!("diverged");
            r["diverged"] = json!({ "step": 6, "what": "loss" });
        },
        "the training diverged, and the record has scores",
    ),
    (
        "the final loss",
        |r| r["train"]["final_loss_nats"] = json!(0.01),
        "the final loss of the record is not that of",
    ),
    (
        "a definition",
        |r| r["task"]["definitions"]["exact_match"] = json!("ours"),
        "what the record says of its task",
    ),
    (
        "chance",
        |r| r["task"]["chance"]["token_accuracy"] = json!(0.5),
        "what the record says of its task",
    ),
    (
        "the encoding's facts",
        |r| r["encoding_facts"]["rotary_pairs"] = json!(1.0),
        "what the record says of its encoding",
    ),
    (
        "parameters",
        |r| r["model"]["encoding_parameters"] = json!(1),
        "1 of them the encoding's",
    ),
    (
        "unsupported",
        |r| {
            let row = &mut rows(r)[0];
            row["status"] = json!("unsupported");
            row["metrics"] = json!({});
        },
        "is unsupported where the encoding has a value",
    ),
];

fn rows(record: &mut Value) -> &mut Vec<Value> {
    record["evals"].as_array_mut().unwrap()
}

fn metric<'a>(record: &'a mut Value, name: &str) -> &'a mut Value {
    &mut record["evals"][0]["metrics"][name]
}

#[test]
fn numbers_are_held_against_the_plan_where_there_is_no_seal() {
    let (_scratch, run) = one();
    let path = run.join("record.json");
    let mut record = read_json(&path);
    record.as_object_mut().unwrap().remove("seal").unwrap();
    write(&path, &record);
    let fine = command("verify", &run, &[]);
    exits(&fine, 0);
    shows(&fine, "note: record.json has no seal");
    for (what, edit, said) in EDITS {
        let mut edited = record.clone();
        edit(&mut edited);
        assert_ne!(edited, record, "{what}");
        write(&path, &edited);
        is_wrong(&run, said, what);
    }
    write(&path, &record);
    let log = run.join("steps.jsonl");
    let whole = std::fs::read_to_string(&log).unwrap();
    for (key, value, said) in [
        (
            "lr",
            json!(0.5),
            "has a learning rate of 0.5, the spec gives",
        ),
        ("tokens", json!(1), "counts 1 tokens, the spec gives"),
        (
            "grad_norm",
            json!(-1.0),
            "a loss or a gradient norm below 0",
        ),
        (
            "loss_nats",
            json!(1.5),
            "the loss curve of the record is not that of",
        ),
    ] {
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        let mut step: Value = serde_json::from_str(&lines[2]).unwrap();
        step[key] = value;
        lines[2] = step.to_string();
        std::fs::write(&log, lines.join("\n") + "\n").unwrap();
        is_wrong(&run, said, key);
    }
    std::fs::write(&log, whole).unwrap();
    exits(&command("verify", &run, &[]), 0);
}

#[test]
fn weights_are_scored_again_on_request() {
    let (_scratch, run) = one();
    exits(&command("eval", &run, &["--lengths", "6"]), 0);
    let evaluation = std::fs::read_dir(run.join("evals"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let fine = command("verify", &run, &["--reevaluate"]);
    exits(&fine, 0);
    shows(&fine, "1 later evaluation, scored again");
    // Possible numbers, and no seal: only the weights know better.
    for path in [run.join("record.json"), evaluation] {
        let whole = read_json(&path);
        let mut record = whole.clone();
        record.as_object_mut().unwrap().remove("seal").unwrap();
        metric(&mut record, "loss_nats")["value"] = json!(1.25);
        write(&path, &record);
        exits(&command("verify", &run, &[]), 0);
        let found = command("verify", &run, &["--reevaluate"]);
        exits(&found, 1);
        shows(&found, "trained at ");
        shows(&found, ", not 1.25\n");
        write(&path, &whole);
    }
    exits(&command("verify", &run, &["--reevaluate"]), 0);
}

#[test]
fn later_evaluations_are_verified_and_an_edited_one_is_made_again() {
    let (scratch, run) = one();
    let eval = || command("eval", &run, &["--lengths", "6"]);
    exits(&eval(), 0);
    let path = std::fs::read_dir(run.join("evals"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let whole = std::fs::read(&path).unwrap();
    let mut record = read_json(&path);
    metric(&mut record, "loss_nats")["value"] = json!(1.25);
    write(&path, &record);
    is_wrong(&run, "evals/", "an evaluation");
    is_wrong(&run, "it does not match its seal", "an evaluation");
    let report = command("report", &scratch.runs(), &[]);
    let part = "warning: records that were changed after they were written";
    says(&report, part);
    let again = eval();
    exits(&again, 0);
    lacks(&stderr(&again), "evaluated already");
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    // Of another run, or under another name.
    let other = path.with_file_name("0123456789abcdef.json");
    std::fs::rename(&path, &other).unwrap();
    is_wrong(
        &run,
        "its name, its run id and its spec do not belong to one evaluation",
        "a name",
    );
}

#[test]
fn a_seal_goes_with_the_record_into_a_file_of_many() {
    let (scratch, _run) = one();
    let gathered = scratch.directory.path().join("all.jsonl");
    let gather = |bins: &[&str]| {
        let out = gathered.to_str().unwrap();
        let ended = command("gather", &scratch.runs(), &[&["--out", out], bins].concat());
        exits(&ended, 0);
        std::fs::read_to_string(&gathered).unwrap()
    };
    let out = scratch.directory.path().join("report");
    let report = || command("report", &gathered, &["--out", out.to_str().unwrap()]);
    for bins in [&[][..], &["--bins", "1"]] {
        let text = gather(bins);
        let fine = report();
        exits(&fine, 0);
        lacks(&stderr(&fine), "warning");
        // The order of keys and spaces mean nothing; a number does.
        let mut record: Value = serde_json::from_str(&text).unwrap();
        record.sort_all_objects();
        std::fs::write(&gathered, record.to_string()).unwrap();
        lacks(&stderr(&report()), "changed after they were written");
        metric(&mut record, "loss_nats")["value"] = json!(1.25);
        std::fs::write(&gathered, record.to_string()).unwrap();
        let said = stderr(&report());
        let part = "warning: records that were changed after they were written";
        has(&said, part);
    }
}

#[test]
fn what_reads_a_record_says_that_its_seal_is_missing_or_does_not_fit() {
    let (scratch, run) = one();
    let path = run.join("record.json");
    let whole = read_json(&path);
    // Half the loss, with the seal and without.
    let mut halved = whole.clone();
    let value = &mut metric(&mut halved, "loss_nats")["value"];
    *value = json!(value.as_f64().unwrap() / 2.0);
    write(&path, &halved);
    let refused = command("eval", &run, &["--lengths", "6"]);
    fails(&refused, 3, "does not match its seal");
    assert!(!run.join("evals").exists());
    let copy = scratch.directory.path().join("copy.jsonl");
    let of_config = |runs: &str| {
        let arguments = [&["--runs", runs], &ONE[..]].concat();
        command("check", &scratch.config, &arguments)
    };
    let runs = scratch.directory.path().join("runs");
    let runs = runs.to_str().unwrap();
    let mut said = vec![stderr(&of_config(runs))];
    let copy = copy.to_str().unwrap();
    let gathered = command("gather", &scratch.runs(), &["--out", copy]);
    said.push(stderr(&gathered));
    said.push(stderr(&command("compare", &scratch.runs(), &[copy])));
    said.push(stdout(&command("status", &scratch.runs(), &[])));
    let logits = scratch.directory.path().join("logits");
    let logits = ["--format", "logits", "--out", logits.to_str().unwrap()];
    let refused = command("export", &run, &logits);
    exits(&refused, 3);
    said.push(stderr(&refused));
    for said in said {
        has(&said, "does not match its seal");
    }
    halved.as_object_mut().unwrap().remove("seal").unwrap();
    write(&path, &halved);
    let scored = command("eval", &run, &["--lengths", "6"]);
    exits(&scored, 0);
    says(&scored, "has no seal");
    std::fs::remove_dir_all(run.join("evals")).unwrap();
    let out = scratch.directory.path().join("out");
    let out = out.to_str().unwrap();
    let said = "1 of 1 record without a seal";
    for (name, arguments) in [
        ("report", ["--out", out]),
        ("gather", ["--out", "/dev/null"]),
    ] {
        let read = command(name, &scratch.runs(), &arguments);
        exits(&read, 0);
        assert!(stderr(&read).contains(said), "{name}: {}", stderr(&read));
    }
    let exported = command("export", &run, &logits);
    exits(&exported, 0);
    says(&exported, "has no seal");
    says(&of_config(runs), said);
    says(&scratch.trains(&ONE), said);
    shows(&command("status", &scratch.runs(), &[]), "has no seal");
}

#[test]
fn eval_refuses_a_job_and_a_record_that_are_not_those_of_the_run() {
    let (_scratch, run) = one();
    let files = |run: &Path| run.join("evals").exists();
    let (job, record) = (run.join("job.json"), run.join("record.json"));
    let whole = read_json(&job);
    let mut changed = whole.clone();
    changed["spec"]["model"]["pe"]["base"] = json!(10.0);
    write(&job, &changed);
    let output = command("eval", &run, &["--lengths", "6"]);
    fails(&output, 3, "its spec is not that of run");
    write(&job, &whole);
    let mut changed = read_json(&record);
    changed["run_id"] = json!("0123456789abcdef");
    write(&record, &changed);
    let output = command("eval", &run, &["--lengths", "6"]);
    fails(&output, 3, "record.json belongs to run 0123456789abcdef");
    assert!(!files(&run), "something was evaluated");
}

/// Values that no config can have, at places in a spec.
const IMPOSSIBLE: [(&str, &str); 19] = [
    ("/model/n_heads", "0"),
    ("/model/head_dim", "0"),
    ("/model/head_dim", "7"),
    ("/model/vocab_size", "5"),
    ("/model/vocab_size", "1000000000000"),
    ("/model/n_layers", "1000000"),
    ("/model/d_model", "1000000000"),
    ("/model/d_ff", "1099511627776"),
    ("/model/pe/base", "-1.0"),
    ("/train/batch_size", "0"),
    ("/train/train_len", "0"),
    ("/train/train_len", "1099511627776"),
    ("/train/seq_len", "1099511627776"),
    ("/train/steps", "0"),
    ("/train/lr", "1e300"),
    ("/eval/test_lens", "[0, 8]"),
    ("/eval/test_lens", "[4]"),
    ("/eval/batch_tokens", "0"),
    ("/eval/variants", "[]"),
];

#[test]
fn a_job_that_no_config_can_ask_for_is_refused_by_every_command() {
    let (_scratch, run) = one();
    let path = run.join("job.json");
    let whole = read_json(&path);
    for (place, value) in IMPOSSIBLE {
        let mut job = whole.clone();
        *job["spec"].pointer_mut(place).unwrap() = serde_json::from_str(value).unwrap();
        let spec: RunSpec = serde_json::from_value(job["spec"].clone()).unwrap();
        let id = spec.run_id().unwrap();
        job["run_id"] = json!(id);
        write(&path, &job);
        // The record stays that of another run, so the worker has something to do.
        let worker = command("worker", &run, &[]);
        assert_eq!(
            worker.status.code(),
            Some(3),
            "{place} = {value}: {}",
            stderr(&worker)
        );
        assert!(
            stderr(&worker).contains(&format!("the job of run {id} cannot be run: ")),
            "{place} = {value}: {}",
            stderr(&worker)
        );
        is_wrong(&run, "cannot be run: ", place);
        let record = run.join("record.json");
        let own = std::fs::read(&record).unwrap();
        let mut forged = read_json(&record);
        forged["run_id"] = json!(id);
        write(&record, &forged);
        let eval = command("eval", &run, &["--lengths", "6"]);
        assert_eq!(
            eval.status.code(),
            Some(3),
            "{place} = {value}: {}",
            stderr(&eval)
        );
        std::fs::write(record, own).unwrap();
    }
}

#[test]
fn every_job_of_a_plan_passes_the_checks_of_jobs() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut configs: Vec<_> = std::fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    configs.sort();
    let mut jobs = 0;
    for config in configs {
        let plan = plan(&config, &["seeds=[0]".to_owned()]).unwrap();
        // Runs that differ in a number on an axis are checked alike.
        let every = plan.runs.len().div_ceil(24);
        for run in plan.runs.iter().step_by(every) {
            // As a worker reads it: through JSON.
            let job: Job = serde_json::from_slice(&serde_json::to_vec(&run.job).unwrap()).unwrap();
            build_task(&job, &job.spec.eval.test_lens)
                .unwrap_or_else(|failure| panic!("{}: {failure}", config.display()));
            jobs += 1;
        }
    }
    assert!(jobs > 50, "{jobs} jobs");
}

#[test]
fn a_record_of_a_newer_version_is_never_replaced_and_a_damaged_one_not_in_silence() {
    let (scratch, run) = one();
    let path = run.join("record.json");
    let whole = std::fs::read(&path).unwrap();
    let mut newer = read_json(&path);
    newer["schema"] = json!(2);
    write(&path, &newer);
    let kept = std::fs::read(&path).unwrap();
    let sweep = || scratch.longreach("run", &ONE);
    for output in [
        sweep(),
        command("worker", &run, &[]),
        command("eval", &run, &["--lengths", "6"]),
    ] {
        fails(&output, 3, "schema 2 is newer than this binary's 1");
    }
    assert_eq!(std::fs::read(&path).unwrap(), kept);
    let status = command("status", &scratch.runs(), &["--json"]);
    shows(&status, "\"state\": \"unreadable\"");
    std::fs::write(&path, "{").unwrap();
    shows(&command("status", &scratch.runs(), &[]), "1 unreadable");
    let again = sweep();
    exits(&again, 0);
    says(&again, "note: RoPE, seed 0 is trained again: ");
    assert_eq!(std::fs::read(&path).unwrap(), whole);
}

#[test]
fn a_run_without_its_job_is_reported_and_mended() {
    let (scratch, run) = one();
    let job = std::fs::read(run.join("job.json")).unwrap();
    std::fs::remove_file(run.join("job.json")).unwrap();
    is_wrong(
        &scratch.runs(),
        "job.json is missing; `longreach run`",
        "verify",
    );
    let status = command("status", &scratch.runs(), &[]);
    exits(&status, 0);
    shows(&status, "1 stale");
    says(&scratch.trains(&ONE), "0 to do");
    assert_eq!(std::fs::read(run.join("job.json")).unwrap(), job);
    exits(&command("verify", &scratch.runs(), &[]), 0);
}

#[test]
fn a_run_that_pytorch_trained_is_called_that() {
    let (scratch, run) = one();
    let mut record = read_json(&run.join("record.json"));
    record["environment"]["burn"] = json!("none: pytorch 2.9.0");
    record["spec"]["model"]["pe"] = json!({"kind": "Slope", "source": "pytorch 2.9.0"});
    for key in ["text", "value"] {
        record["labels"][0][key] = json!("Slope (pytorch 2.9.0)");
    }
    record.as_object_mut().unwrap().remove("seal");
    for name in ["job.json", "weights.safetensors", "steps.jsonl"] {
        std::fs::remove_file(run.join(name)).unwrap();
    }
    write(&run.join("record.json"), &record);
    let verified = command("verify", &scratch.runs(), &[]);
    exits(&verified, 0);
    shows(&verified, "note: trained in PyTorch by longreach.bench");
    let report = command("report", &scratch.runs(), &[]);
    exits(&report, 0);
    let told = stderr(&report);
    let said = "1 of 1 record trained in PyTorch by longreach.bench";
    has(&told, said);
    lacks(&told, "edited by hand");
    lacks(&told, "before seals");
    let status = stdout(&command("status", &scratch.runs(), &[]));
    for said in ["Slope (pytorch 2.9.0)", "trained in PyTorch", "1 done"] {
        has(&status, said);
    }
    exits(&command("status", &scratch.runs(), &["--watch"]), 0);
    let id = run.file_name().unwrap().to_str().unwrap();
    for place in [
        &run,
        &run.with_file_name(&id[..3]),
        &scratch.runs().join("tiny"),
    ] {
        let eval = command("eval", place, &["--lengths", "16"]);
        fails(&eval, 3, "was trained in PyTorch");
        if !place.exists() {
            continue;
        }
        let from = format!("train.start_from={:?}", place.display().to_string());
        let check = scratch.longreach("check", &["seeds=[0]", &from]);
        fails(&check, 3, "longreach.bench, which keeps no weights");
    }
    let renamed = run.with_file_name("0123456789abcdef");
    std::fs::rename(&run, &renamed).unwrap();
    is_wrong(&renamed, "record.json belongs to run", "renamed");
}

#[test]
fn an_experiment_that_moved_is_evaluated_and_verified() {
    let text = TINY.replace(
        "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
        "kind = \"text\"\nfiles = [\"corpus.txt\"]",
    );
    let scratch = Scratch::with(&text);
    let corpus: String = (0..4000).map(|line| format!("{line} and more\n")).collect();
    scratch.write("corpus.txt", corpus);
    scratch.trains(&ONE);
    let moved = Scratch::with("");
    let new = moved.directory.path();
    for name in ["x.toml", "corpus.txt", "runs"] {
        std::fs::remove_file(new.join(name)).ok();
        std::fs::rename(scratch.directory.path().join(name), new.join(name)).unwrap();
    }
    let run = moved.first_run();
    let eval = |more: &[&str]| command("eval", &run, &[&["--lengths", "6"], more].concat());
    fails(&eval(&[]), 3, "also take --config-dir");
    is_wrong(&run, "also take --config-dir", "moved");
    let here = new.to_str().unwrap();
    let ended = command("verify", &run, &["--config-dir", here, "--retrain"]);
    exits(&ended, 0);
    exits(&eval(&["--config-dir", here]), 0);
    // A sweep from the new place writes it down, and trains nothing.
    says(&moved.trains(&ONE), "0 to do");
    exits(&command("verify", &run, &[]), 0);
    exits(&command("eval", &run, &["--lengths", "7"]), 0);
}

#[test]
fn lost_weights_are_noticed_and_the_way_back_is_named() {
    let (scratch, run) = one();
    std::fs::remove_file(run.join("weights.safetensors")).unwrap();
    let said = stderr(&scratch.longreach("run", &ONE));
    let note = "note: 1 recorded run without weights, which `eval` and `export` need: RoPE, seed 0";
    has(&said, "0 to do");
    has(&said, note);
    shows(&command("status", &run, &[]), "its weights are missing");
    let help = format!(
        "to train the run again, remove {} and run its config",
        run.display()
    );
    is_wrong(&run, &help, "lost weights");
    fails(&command("eval", &run, &["--lengths", "5"]), 3, &help);
    // It leads there.
    std::fs::remove_dir_all(&run).unwrap();
    let said = stderr(&scratch.longreach("run", &ONE));
    has(&said, "1 to do");
    lacks(&said, "without weights");
    assert!(run.join("weights.safetensors").exists());
}
