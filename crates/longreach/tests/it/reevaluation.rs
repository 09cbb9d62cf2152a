//! `eval` over experiments, and `report` of directories: which runs are meant, what is read, and
//! where the report goes.

use crate::common::{
    Scratch, TINY, cases, command, exits, fails, has, lacks, longreach, says, shows, stderr,
    stdout, words,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], place: &Path) -> Output {
    longreach()
        .args(arguments)
        .current_dir(place)
        .output()
        .unwrap()
}

/// A scratch directory with the four tiny runs in `runs/tiny`.
fn trained() -> Scratch {
    let scratch = Scratch::with(TINY);
    scratch.trains(&[]);
    scratch
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Run ids with their kind of encoding and seed, as the records say.
fn ids(scratch: &Scratch) -> Vec<(String, String, u64)> {
    let id = |(path, bytes): &(PathBuf, Vec<u8>)| {
        let record: Value = serde_json::from_slice(bytes).unwrap();
        let kind = record["spec"]["model"]["pe"]["kind"]
            .as_str()
            .unwrap()
            .to_owned();
        (
            path.parent()
                .unwrap()
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned(),
            kind,
            record["seed"].as_u64().unwrap(),
        )
    };
    scratch.records().iter().map(id).collect()
}

/// Every file of a directory by name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect()
}

/// Filters that no run passes, and what the message says.
const FILTERS: &str = "
--where pe=alibi -> model.pe.kind = learned, rope
--where model.pe.bsae=1 -> none of the runs has this key | model.pe.base
--where pe=rope --where label=learned -> no run has all of them | pe=rope (2 runs)
--where rope -> KEY=VALUE
--lengths 0 -> --lengths
";

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn an_experiment_is_evaluated_with_filters_and_what_is_there_is_skipped() {
    let scratch = trained();
    let place = scratch.directory.path();
    let before = scratch.records();
    let eval = |more: &[&str]| {
        run(
            &[&["eval", "runs/tiny", "--lengths", "8,12"], more].concat(),
            place,
        )
    };
    let rope = eval(&["--where", "pe=rope"]);
    exits(&rope, 0);
    // Runs come in the order of their ids.
    for part in [
        "[run 1/2] RoPE, seed ",
        "[run 2/2] RoPE, seed ",
        "seed 0: ",
        "seed 1: ",
    ] {
        says(&rope, part);
    }
    shows(&rope, "2 records: runs/tiny/RUN_ID/evals");
    // All four; the two that are there stay as they are.
    let all = eval(&["--json"]);
    exits(&all, 0);
    assert_eq!(
        stderr(&all).matches("evaluated already").count(),
        2,
        "{}",
        stderr(&all)
    );
    let records: Vec<Value> = serde_json::from_str(&stdout(&all)).unwrap();
    assert_eq!(records.len(), 4);
    let ids = ids(&scratch);
    for record in &records {
        let of = record["evaluation_of"].as_str().unwrap();
        let (_, kind, seed) = ids.iter().find(|(id, ..)| id == of).unwrap();
        assert_eq!(
            (kind.as_str(), *seed),
            (
                record["spec"]["model"]["pe"]["kind"].as_str().unwrap(),
                record["seed"].as_u64().unwrap()
            )
        );
        assert_eq!(
            json(&place.join(format!(
                "runs/tiny/{of}/evals/{}.json",
                record["run_id"].as_str().unwrap()
            ))),
            *record
        );
    }
    assert_eq!(
        scratch.records(),
        before,
        "evaluating must not touch the records of the runs"
    );
    // Filters: by dotted key, by label, and all of them at once.
    for filters in [
        &["--where", "model.pe.kind=rope", "--where", "seed=1"][..],
        &["--where", "label=rope", "--where", "seed=1"],
        &[
            "--where",
            "model.pe.base=1e4",
            "--where",
            "model.d_model=16",
            "--where",
            "seed=1",
        ],
        &["--where", "model.pe={kind=\"rope\"}", "--where", "seed=1"],
        // At their default, which a spec leaves out.
        &[
            "--where",
            "model.mask=causal",
            "--where",
            "eval.decode=teacher_forced",
            "--where",
            "model.positions={kind=\"contiguous\"}",
            "--where",
            "pe=rope",
            "--where",
            "seed=1",
        ],
    ] {
        let one = eval(&[filters, &["--json"]].concat());
        exits(&one, 0);
        let record: Value = serde_json::from_str(&stdout(&one)).unwrap();
        assert_eq!(
            (&record["spec"]["model"]["pe"]["kind"], &record["seed"]),
            (&Value::from("rope"), &Value::from(1)),
            "{filters:?}"
        );
    }
    for (filters, parts) in cases(FILTERS) {
        let arguments = format!("eval runs/tiny {filters}");
        let refused = run(&words(&arguments), place);
        exits(&refused, 2);
        parts.iter().for_each(|part| says(&refused, part));
    }
}

#[test]
fn what_a_task_refuses_names_the_flag_that_asked_for_it() {
    let scratch = Scratch::with(TINY);
    let distinct = ["task.alphabet=8", "task.distinct=true", "seeds=[0]"];
    scratch.trains(&distinct);
    let place = scratch.directory.path();
    let refused = run(&["eval", "runs/tiny", "--lengths", "12"], place);
    exits(&refused, 2);
    let said = stderr(&refused);
    has(&said, "--lengths 12: ");
    has(&said, "strings of 12 distinct ones");
    lacks(&said, "eval.test_lens");

    std::fs::write(place.join("a.txt"), "to be or not to be ".repeat(50)).unwrap();
    let text = "task={kind=\"text\",files=[\"a.txt\"],split={by=\"range\",valid_fraction=0.2}}";
    let words = [text, "name=\"words\"", "seeds=[0]"];
    scratch.trains(&words);
    let refused = run(&["eval", "runs/words", "--lengths", "100000"], place);
    exits(&refused, 2);
    let said = stderr(&refused);
    let part = "--lengths 100000: the validation split is too short: it has 190 bytes";
    has(&said, part);
    has(&said, "= help: give shorter lengths");
    lacks(&said, "a.txt");
}

#[test]
fn runs_that_read_one_task_in_two_ways_are_evaluated_as_each_alone() {
    let scratch = Scratch::with(TINY);
    let masks = "axes={\"model.mask\"=[\"causal\",\"bidirectional\"]}";
    let more = ["task.kind=\"reverse\"", masks, "eval.variants=[]"];
    scratch.trains(&more);
    let place = scratch.directory.path();
    let runs: Vec<String> = ids(&scratch)
        .iter()
        .map(|(id, ..)| format!("runs/tiny/{id}"))
        .collect();
    // What `eval` makes of the runs; nothing of it stays.
    let evaluated = |runs: &[&str]| -> BTreeMap<String, Value> {
        let output = run(
            &[&["eval"], runs, &["--lengths", "5,7", "--json"]].concat(),
            place,
        );
        exits(&output, 0);
        runs.iter()
            .for_each(|run| std::fs::remove_dir_all(place.join(run).join("evals")).unwrap());
        let records = match serde_json::from_str(&stdout(&output)).unwrap() {
            Value::Array(several) => several,
            one => vec![one],
        };
        let of = |record: &Value| (record["evaluation_of"].to_string(), record["evals"].clone());
        records.iter().map(of).collect()
    };
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    let alone: BTreeMap<String, Value> = runs.iter().flat_map(|run| evaluated(&[run])).collect();
    assert_eq!(alone.len(), 4);
    assert_eq!(evaluated(&runs), alone);
    let back: Vec<&str> = runs.iter().rev().copied().collect();
    assert_eq!(evaluated(&back), alone);
}

/// A setting of `self_extend` follows the length, and a report has one curve of it.
#[test]
fn a_variant_is_one_method_whether_evaluated_at_once_or_length_by_length() {
    let table = |calls: &[&str]| {
        let scratch = Scratch::with(TINY);
        let pe = "axes={\"model.pe\"=[{kind=\"rope\"}]}";
        scratch.trains(&["seeds=[0]", pe]);
        let place = scratch.runs();
        let variant = "kind = \"self_extend\"";
        for lengths in calls {
            let eval = ["eval", "tiny", "--lengths", lengths, "--variant", variant];
            exits(&run(&eval, &place), 0);
        }
        let report = run(&["report", "tiny"], &place);
        exits(&report, 0);
        let shown = stdout(&report);
        shown.split("\n\n").next().unwrap().to_owned()
    };
    let apart = table(&["16", "64", "32"]);
    assert_eq!(apart.matches("SelfExtend").count(), 1, "{apart}");
    let table = table(&["16,32,64"]);
    assert_eq!(apart.split("report:").next(), table.split("report:").next());
}

#[test]
fn a_run_is_named_by_the_beginning_of_its_id() {
    let scratch = trained();
    let place = scratch.directory.path();
    let ids: Vec<String> = ids(&scratch).into_iter().map(|(id, ..)| id).collect();
    let mut length = 1;
    while ids
        .iter()
        .filter(|id| id[..length] == ids[0][..length])
        .count()
        > 1
    {
        length += 1;
    }
    let eval = |path: &str| run(&["eval", path, "--lengths", "12", "--json"], place);
    let done = eval(&format!("runs/tiny/{}", &ids[0][..length]));
    exits(&done, 0);
    let record: Value = serde_json::from_str(&stdout(&done)).unwrap();
    assert_eq!(record["evaluation_of"].as_str().unwrap(), ids[0]);
    // A beginning that two runs share: a copy of the first under an id that differs in its last
    // digit.
    let other = format!(
        "{}{}",
        &ids[0][..15],
        if ids[0].ends_with('0') { '1' } else { '0' }
    );
    std::fs::create_dir(place.join("runs/tiny").join(&other)).unwrap();
    std::fs::copy(
        place.join("runs/tiny").join(&ids[0]).join("job.json"),
        place.join("runs/tiny").join(&other).join("job.json"),
    )
    .unwrap();
    let ambiguous = eval(&format!("runs/tiny/{}", &ids[0][..15]));
    fails(&ambiguous, 2, &ids[0]);
    says(&ambiguous, &other);
    let none = eval("runs/tiny/xyz");
    fails(&none, 3, "no run id begins with xyz");
    says(&none, &ids[1]);
    let above = eval("runs");
    fails(&above, 2, "holds experiments");
    says(&above, "runs/tiny");
    exits(&eval("nowhere/at/all"), 3);
}

#[test]
fn a_variant_of_some_of_the_encodings_is_refused_with_how_to_select_their_runs() {
    let scratch = trained();
    let place = scratch.directory.path();
    let scaled = ["eval", "runs/tiny", "--lengths", "16", "--variant"];
    let scaled = [&scaled[..], &["scaling={kind=\"ntk\"}"]].concat();
    let refused = run(&scaled, place);
    exits(&refused, 2);
    for part in ["`learned`", "2 of 4 runs", "--where pe=rope"] {
        says(&refused, part);
    }
    let is_evaluated = |(path, _): &(PathBuf, Vec<u8>)| {
        let run = scratch.runs().join(path.parent().unwrap());
        run.join("evals").exists()
    };
    assert!(!scratch.records().iter().any(is_evaluated));
    let ended = run(&[&scaled[..], &["--where", "pe=rope"]].concat(), place);
    exits(&ended, 0);
    let evaluated = scratch.records();
    assert_eq!(evaluated.iter().filter(|run| is_evaluated(run)).count(), 2);
}

#[test]
fn runs_without_a_job_are_named_and_places_are_tried_before_any_work() {
    let scratch = trained();
    let place = scratch.directory.path();
    let runs: Vec<PathBuf> = scratch
        .records()
        .iter()
        .map(|(path, _)| scratch.runs().join(path.parent().unwrap()))
        .collect();
    std::fs::write(runs[0].join("job.json"), "{").unwrap();
    let status = run(&["status", "runs/tiny", "--json"], place);
    let lines: Value = serde_json::from_slice(&status.stdout).unwrap();
    let unread = |line: &&Value| line["name"] == "?";
    assert!(lines.as_array().unwrap().iter().find(unread).unwrap()["seed"].is_null());
    // All have ended, so watching ends too: one of them without a result.
    for more in [&[][..], &["--json"]] {
        let watch = [&["status", "runs/tiny", "--watch"], more].concat();
        exits(&run(&watch, place), 1);
    }
    std::fs::remove_file(runs[0].join("job.json")).unwrap();
    let mut eval = Command::new("sh");
    eval.args(["-c", "ulimit -f 1; exec \"$@\"", "sh"]);
    eval.arg(longreach().get_program());
    eval.args(["eval", "runs/tiny", "--lengths", "6"]);
    let refused = eval.current_dir(place).output().unwrap();
    exits(&refused, 6);
    let said = stderr(&refused);
    has(&said, "1 run left out, recorded without job.json");
    has(&said, "evals");
    lacks(&said, "loss");
    let by_name = command("eval", &runs[0], &["--lengths", "6"]);
    fails(&by_name, 3, "job.json is missing");
}

/// Variants with a mistake, and what the message says.
const VARIANTS: &str = r#"
scaling={kind="yrn"} -> unknown kind `yrn` in `scaling` | did you mean `yarn`?
max_position=3 -> unknown key `max_position` of the trained encoding `rope` | `max_position` is a key of | `--where pe=NAME` evaluates runs of one
bse=3 -> unknown key `bse` of the trained encoding `rope` | did you mean `base`?
base="x" -> `base` must be a number | = key: base
add={kind="alibbi"} -> unknown kind `alibbi` in `add` | did you mean `alibi`?
positions={kind="rndomized"} -> `rndomized` | did you mean `randomized`?
"#;

#[test]
fn a_run_that_cannot_be_evaluated_does_not_stop_the_others() {
    let scratch = Scratch::with(TINY);
    let sweep = [
        "axes.\"train.lr\"=[1e9,1e-3]",
        "train.warmup_steps=0",
        "train.grad_clip=0",
        "train.steps=30",
        "model.norm=\"rms_norm\"",
    ];
    scratch.trains(&[&sweep[..], &["model.pe={kind=\"rope\"}"]].concat());
    let place = scratch.directory.path();
    let ok = |(path, bytes): &(PathBuf, Vec<u8>)| {
        let record: Value = serde_json::from_slice(bytes).unwrap();
        (record["status"] == "ok").then(|| scratch.runs().join(path.parent().unwrap()))
    };
    let ok: Vec<PathBuf> = scratch.records().iter().filter_map(ok).collect();
    assert_eq!(
        ok.len(),
        2,
        "one learning rate diverges, the other does not"
    );
    std::fs::remove_file(ok[0].join("weights.safetensors")).unwrap();
    let output = run(&["eval", "runs/tiny", "--lengths", "12"], place);
    exits(&output, 1);
    let said = stderr(&output);
    assert_eq!(
        said.matches("diverged in training, skipped").count(),
        2,
        "{said}"
    );
    has(&said, "1 of 4 runs failed");
    has(&said, "weights.safetensors");
    assert!(!ok[0].join("evals").exists());
    assert_eq!(files(&ok[1].join("evals")).len(), 1);
    // What holds for every run is refused before any of them.
    let variant = words("eval runs/tiny --lengths 16 --variant base=-1");
    let variant = run(&variant, place);
    fails(&variant, 2, "--variant base=-1");
    lacks(&stderr(&variant), "[run ");
    // Mistakes in an encoding are explained as those of a config.
    for (text, parts) in cases(VARIANTS) {
        let refused = run(&["eval", "runs/tiny", "--variant", &text], place);
        fails(&refused, 2, &format!("--variant {text}"));
        parts.iter().for_each(|part| says(&refused, part));
    }
    // Where there is nothing but diverged runs, the code says so.
    let diverged = words("eval runs/tiny --where train.lr=1e9 --lengths 16");
    exits(&run(&diverged, place), 5);
    assert_eq!(files(&ok[1].join("evals")).len(), 1);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn a_report_of_an_experiment_is_the_one_that_run_wrote() {
    let scratch = trained();
    let place = scratch.directory.path();
    let report = place.join("runs/tiny/report");
    let written = files(&report);
    assert!(written.len() > 4);
    std::fs::remove_dir_all(&report).unwrap();
    let again = run(&["report", "runs/tiny"], place);
    exits(&again, 0);
    says(&again, "reading 1 experiment: tiny (4 runs)");
    says(&again, "(x.toml): 4 of 4 runs recorded");
    says(&again, "writing to runs/tiny/report");
    shows(&again, "4 records read, 0 left out");
    assert_eq!(
        files(&report).keys().collect::<Vec<_>>(),
        written.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in files(&report) {
        assert!(bytes == written[&name], "{name} differs");
    }
    // The config that is kept plans the same runs.
    let kept: Vec<PathBuf> = std::fs::read_dir(place.join("runs/tiny/configs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let config = kept
        .iter()
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .unwrap();
    std::fs::copy(config, place.join("again.toml")).unwrap();
    let plan = run(&["check", "again.toml", "--json"], place);
    exits(&plan, 0);
    let plan: Value = serde_json::from_str(&stdout(&plan)).unwrap();
    assert!(
        plan["runs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|run| run["recorded"] == true),
        "{plan}"
    );
    // Nothing else takes the directory for a run.
    let status = run(&["status", "runs", "--json"], place);
    exits(&status, 0);
    assert_eq!(
        serde_json::from_str::<Vec<Value>>(&stdout(&status))
            .unwrap()
            .len(),
        4
    );
    exits(&run(&["verify", "runs"], place), 0);
    // A part of it that was run under other overrides is named, and the config that has all the
    // runs counts.
    scratch.trains(&["seeds=[1]"]);
    assert!(files(&report) != written);
    let both = run(&["report", "runs/tiny"], place);
    exits(&both, 0);
    says(&both, "2 of 2 runs recorded; differs from");
    says(&both, "seeds = [1]");
    assert!(files(&report) == written);
    // A list that was lost is written again by the next run, and its absence is not an error.
    let list = config.with_extension("json");
    let bytes = std::fs::read(&list).unwrap();
    std::fs::remove_file(&list).unwrap();
    exits(&run(&["report", "runs/tiny"], place), 0);
    assert!(
        place.join("runs/tiny/report-all").exists(),
        "two of the runs are of no config"
    );
    scratch.trains(&[]);
    assert_eq!(std::fs::read(&list).unwrap(), bytes);
}

#[test]
fn a_report_on_two_experiments_replaces_that_of_neither() {
    let scratch = trained();
    let place = scratch.directory.path();
    scratch.trains(&["name=\"other\""]);
    let before = files(&place.join("runs/tiny/report"));
    let both = run(&["report", "runs/tiny", "runs/other"], place);
    exits(&both, 0);
    says(&both, "writing to runs/tiny/report-all");
    assert_eq!(files(&place.join("runs/tiny/report")), before);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn reports_of_two_configs_do_not_replace_each_other() {
    let scratch = trained();
    let place = scratch.directory.path();
    let first = files(&place.join("runs/tiny/report"));
    let sweep = [
        "train.steps=7",
        "title=\"Seven\"",
        "axes.\"model.pe\"=[{kind=\"rope\"}]",
    ];
    scratch.trains(&sweep);
    let second = files(&place.join("runs/tiny/report"));
    assert_ne!(first["report.md"], second["report.md"]);
    let both = run(&["report", "runs/tiny"], place);
    exits(&both, 0);
    for part in [
        "4 of 4 runs recorded",
        "2 of 2 runs recorded",
        "train.steps = 7 (there 6)",
        "writing to runs/tiny/report-all",
        "(x.toml)",
    ] {
        says(&both, part);
    }
    assert_eq!(
        files(&place.join("runs/tiny/report")),
        second,
        "the report of `run` was replaced"
    );
    let all = String::from_utf8(
        files(&place.join("runs/tiny/report-all"))
            .remove("report.md")
            .unwrap(),
    )
    .unwrap();
    has(&all, "train.steps = 7");
    has(&all, "4 of 4 runs recorded");
    // One of them by its id, by the beginning of it, and by its file: the report that `run` wrote.
    let configs: Vec<PathBuf> = std::fs::read_dir(place.join("runs/tiny/configs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let id = |title: &str| {
        let list = configs
            .iter()
            .find(|path| {
                path.extension().is_some_and(|e| e == "json") && json(path)["title"] == title
            })
            .unwrap();
        json(list)["id"].as_str().unwrap().to_owned()
    };
    let (six, seven) = (id("tiny"), id("Seven"));
    says(&both, &six);
    says(&both, &seven);
    for (name, expected) in [
        (six.as_str(), &first),
        (seven.as_str(), &second),
        ("x.toml", &first),
    ] {
        // Beside the first, since links to runs are relative.
        let report = format!("report runs/tiny --config {name} --out runs/tiny/one");
        exits(&run(&words(&report), place), 0);
        assert!(
            files(&place.join("runs/tiny/one")) == *expected,
            "--config {name}"
        );
        std::fs::remove_dir_all(place.join("runs/tiny/one")).unwrap();
    }
    let unknown = run(&["report", "runs/tiny", "--config", "nonsense"], place);
    fails(&unknown, 2, &six);
    exits(&run(&["report", "runs", "--config", &six], place), 2);
    // A config that was changed by hand is not believed.
    let changed = place.join(format!("runs/tiny/configs/{six}.toml"));
    std::fs::write(&changed, "name = \"tiny\"\n").unwrap();
    let printed = run(&["report", "runs/tiny"], place);
    exits(&printed, 0);
    says(&printed, "was changed");
}

#[test]
fn a_report_of_an_incomplete_config_says_that_runs_are_missing() {
    let scratch = trained();
    let place = scratch.directory.path();
    let report = || files(&place.join("runs/tiny/report"));
    let markdown = || String::from_utf8(report().remove("report.md").unwrap()).unwrap();
    lacks(&markdown(), "runs are missing");
    let gone = scratch.records().remove(0).0;
    let gone = scratch.runs().join(gone.parent().unwrap());
    std::fs::remove_dir_all(&gone).unwrap();
    std::fs::create_dir_all(&gone).unwrap();
    std::fs::write(gone.join("checkpoints"), "in the way").unwrap();
    let said = "runs are missing: 3 of 4 runs recorded; scores are of these";
    let ran = scratch.longreach("run", &["--checkpoint-every", "2"]);
    fails(&ran, 6, said);
    has(&markdown(), said);
    let written = report();
    for more in [&[][..], &["--config", "x.toml"]] {
        let again = run(&[&["report", "runs/tiny"], more].concat(), place);
        exits(&again, 0);
        says(&again, said);
        assert!(report() == written, "{more:?}");
    }
}

#[test]
fn an_evaluation_says_that_it_scored_other_bytes_than_the_run() {
    let task = "kind = \"copy\"\nalphabet = 4\ntest_rows = 8\n";
    let text = TINY.replace(
        task,
        "kind = \"text\"\nfiles = [\"a.txt\"]\neval_tokens = 64\n",
    );
    let scratch = Scratch::with(&text);
    let place = scratch.directory.path();
    std::fs::write(place.join("a.txt"), "one two. ".repeat(400)).unwrap();
    scratch.trains(&["seeds=[0]"]);
    let eval = |lengths: &str| {
        let evaluated = run(&["eval", "runs/tiny", "--lengths", lengths], place);
        exits(&evaluated, 0);
        evaluated
    };
    // The largest multiple of 12 up to 64, and that of 16.
    let note = "note: scores here are over 60 tokens, and those of the run over 64";
    for lengths in ["12", "16", "12"] {
        let evaluated = eval(lengths);
        let said = stderr(&evaluated).matches(note).count();
        assert_eq!(said, usize::from(lengths == "12"), "{evaluated:?}");
        let said = "which this evaluation leaves out";
        assert!(stdout(&evaluated).contains(said), "{evaluated:?}");
    }
    exits(&run(&["report", "runs/tiny"], place), 0);
    let report = std::fs::read_to_string(place.join("runs/tiny/report/report.md")).unwrap();
    for said in [
        "at 4, 8, 16: ",
        "over the same 64 bytes",
        "at 12, evaluated later: ",
        "over the same 60 bytes",
    ] {
        has(&report, said);
    }
}

#[test]
fn a_config_in_the_place_of_records_is_called_that() {
    let scratch = Scratch::with(TINY);
    for command in [&["report"][..], &["gather", "--out", "o.jsonl"]] {
        let refused = run(&[command, &["x.toml"]].concat(), scratch.directory.path());
        fails(&refused, 3, "x.toml is a config, not records");
        says(&refused, "to runs/tiny:");
    }
}

#[test]
fn a_config_whose_corpus_changed_keeps_its_first_runs() {
    let task = "kind = \"copy\"\nalphabet = 4\ntest_rows = 8\n";
    let text = TINY.replace(
        task,
        "kind = \"text\"\nfiles = [\"a.txt\"]\neval_tokens = 64\n",
    );
    let scratch = Scratch::with(&text.replace("name = \"tiny\"", "name = \"tiny\"\ntitle = \"T\""));
    let place = scratch.directory.path();
    let corpus = |words: &str| std::fs::write(place.join("a.txt"), words.repeat(400)).unwrap();
    let mut reports = Vec::new();
    // The third sweep has nothing to do, and is of the first config.
    for words in ["one two. ", "three four. ", "one two. "] {
        corpus(words);
        scratch.trains(&[]);
        reports.push(files(&place.join("runs/tiny/report")));
    }
    assert!(reports[0] != reports[1] && reports[0] == reports[2]);
    let both = run(&["report", "runs/tiny"], place);
    exits(&both, 0);
    let said = stderr(&both);
    lacks(&said, "of no config");
    assert_eq!(said.matches("4 of 4 runs recorded").count(), 2, "{said}");
    has(&said, "of other contents of the files that it names");
    let entries = std::fs::read_dir(place.join("runs/tiny/configs")).unwrap();
    let kept = entries.map(|entry| entry.unwrap().path());
    let lists = kept.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let ids: Vec<String> = lists
        .map(|path| json(&path)["id"].as_str().unwrap().into())
        .collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    let report = |config: &str| {
        let out = ["--config", config, "--out", "runs/tiny/one"];
        let ended = run(&[&["report", "runs/tiny"], &out[..]].concat(), place);
        exits(&ended, 0);
        let written = files(&place.join("runs/tiny/one"));
        std::fs::remove_dir_all(place.join("runs/tiny/one")).unwrap();
        written
    };
    let [a, b] = [&ids[0], &ids[1]].map(|id| report(id));
    assert!((a == reports[0] && b == reports[1]) || (a == reports[1] && b == reports[0]));
    // The file is what it is now.
    assert!(report("x.toml") == reports[0]);
    corpus("three four. ");
    assert!(report("x.toml") == reports[1]);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn later_evaluations_are_in_the_report_unless_they_are_not_wanted() {
    let scratch = trained();
    let place = scratch.directory.path();
    let rope = words("eval runs/tiny --where pe=rope --lengths 12,24");
    exits(&run(&rope, place), 0);
    let csv = |arguments: &[&str]| {
        let output = run(
            &[&["report"], arguments, &["--format", "csv", "--out", "out"]].concat(),
            place,
        );
        exits(&output, 0);
        (
            stderr(&output),
            std::fs::read_to_string(place.join("out/results.csv")).unwrap(),
        )
    };
    let (said, with) = csv(&["runs/tiny"]);
    has(&said, "tiny (4 runs, 2 evaluations)");
    let (said, without) = csv(&["runs/tiny", "--no-evals"]);
    has(&said, "tiny (4 runs)");
    let at = |csv: &str, length: &str| {
        csv.lines()
            .filter(|line| line.split(',').any(|cell| cell == length))
            .count()
    };
    assert!(at(&with, "24") > 0 && at(&without, "24") == 0, "{with}");
    // A file of records keeps them, and a report of it has them too.
    let gathered = run(&["gather", "runs/tiny", "--out", "all.jsonl"], place);
    exits(&gathered, 0);
    shows(&gathered, "6 records read, 0 left out");
    let (_, from_file) = csv(&["all.jsonl"]);
    assert_eq!(at(&from_file, "24"), at(&with, "24"));
    exits(&run(&["compare", "all.jsonl", "runs/tiny"], place), 0);
    // Only records of the same experiments are replaced.
    scratch.trains(&["name=\"other\"", "seeds=[0]"]);
    std::fs::write(place.join("x.toml"), "name = \"x\"\n").unwrap();
    for (source, file) in [("runs/other", "all.jsonl"), ("runs/tiny", "x.toml")] {
        let before = std::fs::read(place.join(file)).unwrap();
        let refused = run(&["gather", source, "--out", file], place);
        exits(&refused, 2);
        let said = format!("{file} already exists, and holds something other");
        says(&refused, &said);
        assert!(std::fs::read(place.join(file)).unwrap() == before);
    }
    let ended = run(&["gather", "runs/tiny", "--out", "all.jsonl"], place);
    exits(&ended, 0);
    // Those of versions that did not write whose weights they are belong to the run they lie in.
    let id = ids(&scratch)
        .into_iter()
        .find(|(_, kind, _)| kind == "rope")
        .unwrap()
        .0;
    let evals = place.join("runs/tiny").join(&id).join("evals");
    let (name, bytes) = files(&evals).pop_first().unwrap();
    let mut old: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        old.as_object_mut().unwrap().remove("evaluation_of"),
        Some(Value::from(id.as_str()))
    );
    std::fs::write(evals.join(&name), serde_json::to_vec(&old).unwrap()).unwrap();
    let ended = run(&["gather", "runs/tiny", "--out", "old.jsonl"], place);
    exits(&ended, 0);
    assert_eq!(
        std::fs::read(place.join("old.jsonl")).unwrap(),
        std::fs::read(place.join("all.jsonl")).unwrap()
    );
    // The report counts what cannot be read.
    std::fs::write(evals.join("broken.json"), "{").unwrap();
    let printed = run(&["report", "runs/tiny", "--out", "out"], place);
    exits(&printed, 0);
    shows(&printed, "6 records read, 1 left out");
    shows(&printed, "broken.json");
}

#[test]
fn a_directory_far_above_is_read_only_on_request() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&["seeds=[0]", "model.pe={kind=\"rope\"}"]);
    let place = scratch.directory.path();
    let other = place.join("projects/old/runs");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::rename(place.join("runs/tiny"), other.join("tiny")).unwrap();
    scratch.trains(&["seeds=[1]", "model.pe={kind=\"rope\"}"]);
    for command in [&["report", "."][..], &["gather", ".", "--out", "all.jsonl"]] {
        let refused = run(command, place);
        exits(&refused, 2);
        for part in [
            "runs/tiny: 1 run",
            "projects/old/runs/tiny: 1 run",
            "--recursive",
        ] {
            says(&refused, part);
        }
    }
    assert!(
        !place.join("report").exists() && !place.join("all.jsonl").exists(),
        "nothing may be written"
    );
    let asked = run(&["report", ".", "--recursive"], place);
    exits(&asked, 0);
    says(&asked, "reading 1 experiment: tiny (2 runs)");
    assert!(place.join("report/report.md").exists());
    let ended = run(&["gather", ".", "--recursive", "--out", "all.jsonl"], place);
    exits(&ended, 0);
    // The plain cases need no flag: a directory of experiments, an experiment, a run, a file.
    let run_directory = scratch.records()[0].0.parent().unwrap().to_owned();
    let run_directory = Path::new("runs").join(run_directory);
    for plain in [
        "runs",
        "runs/tiny",
        run_directory.to_str().unwrap(),
        "all.jsonl",
    ] {
        let ended = run(&["report", plain, "--format", "md", "--out", "out"], place);
        exits(&ended, 0);
    }
}

#[test]
fn a_long_evaluation_says_what_it_takes_and_a_stop_what_is_left() {
    let scratch = trained();
    let mut program = longreach();
    program.args(words("eval runs/tiny --where pe=rope --where seed=0"));
    program.args(["--lengths", "400000", "--memory-limit", "none"]);
    program.current_dir(scratch.directory.path());
    let pipes = program.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let ends = " min of CPU time; nothing is written before the end";
    has(&first, "note: about ");
    assert!(first.ends_with(ends), "{first}");
    // It is in the middle of a batch of minutes by now, and leaves.
    std::thread::sleep(std::time::Duration::from_secs(3));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let last = lines.last().unwrap().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "{last}");
    let left = "nothing was written of the run that was being evaluated";
    assert!(last.ends_with(left), "{last}");
    // What cannot be read takes no time.
    let unread = words("--where pe=learned --lengths 400000");
    let unread = run(
        &[&["eval", "runs/tiny"], &unread[..]].concat(),
        scratch.directory.path(),
    );
    exits(&unread, 0);
    lacks(&stderr(&unread), "CPU time");
}

#[test]
fn a_signal_ends_the_evaluation_of_many_runs_cleanly() {
    let scratch = trained();
    // The signal comes long before the last of them, and each is short.
    let mut lengths = "100".to_owned();
    (0..60).for_each(|more| lengths.push_str(&format!(",{}", 4000 + more)));
    let mut program = longreach();
    program.args([
        "eval",
        "runs/tiny",
        "--where",
        "pe=rope",
        "--lengths",
        &lengths,
        "--memory-limit",
        "none",
    ]);
    program
        .env("RAYON_NUM_THREADS", "1")
        .current_dir(scratch.directory.path());
    let mut child = program
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    has(&first, ": [1/61] length 100, trained: loss");
    assert!(first.starts_with("[run 1/2] RoPE, seed "), "{first}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    assert!(
        said.iter()
            .any(|line| line.starts_with("stopped: ") && line.contains("of 2 runs evaluated")),
        "{said:?}"
    );
    // Nothing half written, and the same command goes on.
    for (id, kind, _) in ids(&scratch) {
        let evals = scratch.runs().join("tiny").join(id).join("evals");
        assert!(kind != "learned" || !evals.exists());
        assert!(
            !evals.exists() || files(&evals).keys().all(|name| !name.starts_with('.')),
            "{}",
            evals.display()
        );
    }
}
