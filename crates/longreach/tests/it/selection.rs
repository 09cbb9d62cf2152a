//! `[select]` and `half_seeds`: what is run, what is chosen, and what the result says of it.

use crate::common::{
    Scratch, command, exits, fails, has, lacks, longreach, says, shows, stderr, stdout,
};
use experiment::plan;
use experiment::plan::planner::Plan;
use records::store::write_jsonl;
use records::{RunRecord, read_jsonl, read_record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CONFIG: &str = r#"name = "chosen"
seeds = [0, 1]
half_seeds = [1]

[task]
kind = "copy"
alphabet = 4
test_rows = 8

[select]
by = "loss_nats"
seeds = [7, 8]
steps = 0.5

[select.over]
"train.lr" = [1e-4, 3e-2, 1e-3]

[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }

[train]
train_len = 4
steps = 12
batch_size = 4
warmup_steps = 2

[eval]
test_lens = [4, 8]

[axes]
"model.pe" = [{ kind = "rope" }, { kind = "alibi" }]
"#;

fn records(scratch: &Scratch) -> Vec<RunRecord> {
    let paths = scratch.records().into_iter();
    let paths = paths.map(|(path, _)| scratch.runs().join(path));
    paths.map(|path| read_record(&path).unwrap()).collect()
}

fn selection_file(scratch: &Scratch) -> PathBuf {
    scratch.runs().join("chosen/selection.jsonl")
}

fn label(record: &RunRecord) -> &str {
    &record.labels[0].text
}

/// The mean loss of each rate of a method over the runs of the sweep, from their records alone.
fn losses(swept: &[&RunRecord], method: &str) -> BTreeMap<String, f64> {
    let mut losses: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for record in swept.iter().filter(|record| label(record) == method) {
        let rate = record.spec["train"]["lr"].to_string();
        let loss = record.evals[0].metrics["loss_nats"].value;
        losses.entry(rate).or_default().push(loss);
    }
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    losses
        .into_iter()
        .map(|(rate, values)| (rate, mean(values)))
        .collect()
}

#[test]
fn every_method_is_run_at_the_rate_with_the_lowest_loss() {
    let scratch = Scratch::with(CONFIG);
    scratch.trains(&["--jobs", "2"]);
    let all = records(&scratch);
    let (swept, result): (Vec<&RunRecord>, Vec<&RunRecord>) =
        all.iter().partition(|record| record.is_of_sweep());
    // Three rates of two methods with two seeds; two seeds and a half of the result.
    assert_eq!((swept.len(), result.len()), (12, 6));
    for record in &swept {
        assert!([7, 8].contains(&record.seed) && record.selected.is_none());
        assert_eq!((record.train.steps, record.evals.len()), (6, 1));
        assert_eq!(record.spec["train"]["warmup_steps"], 1);
    }
    for record in &result {
        let losses = losses(&swept, label(record));
        let lowest = losses.iter().min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        assert_eq!(record.spec["train"]["lr"].to_string(), *lowest.0);
        let selected = record.selected.as_ref().unwrap();
        assert_eq!((selected.steps, &selected.seeds[..]), (6, &[7, 8][..]));
        let mean = selected.chosen().unwrap().mean().unwrap();
        assert!((mean - lowest.1).abs() < 1e-12, "{mean} and {lowest:?}");
        for candidate in &selected.candidates {
            let rate = candidate.values[0].value.to_string();
            assert!((candidate.mean().unwrap() - losses[&rate]).abs() < 1e-12);
        }
    }
    // A run with half the steps names its whole run, which has the same seed and rate.
    let halves = result.iter().filter(|record| record.half_of.is_some());
    for half in halves.clone() {
        let whole = result
            .iter()
            .find(|whole| half.half_of.as_ref() == Some(&whole.run_id));
        let whole = whole.unwrap();
        assert_eq!((half.seed, whole.seed, half.train.steps), (1, 1, 6));
        assert_eq!(half.spec["train"]["lr"], whole.spec["train"]["lr"]);
        assert_eq!(half.spec["eval"]["test_lens"], serde_json::json!([4]));
    }
    assert_eq!(halves.count(), 2);
    let listed = stdout(&command("status", &scratch.runs(), &[]));
    let rows: Vec<&str> = listed
        .lines()
        .filter(|row| row.contains("half steps"))
        .collect();
    let is_half = |(row, run): (&&str, &str)| row.contains(run) && row.contains("6 of 6");
    let runs = ["ALiBi, half steps", "RoPE, half steps"];
    assert!(
        rows.len() == 2 && rows.iter().zip(runs).all(is_half),
        "{listed}"
    );
    let file = read_jsonl(&selection_file(&scratch)).unwrap().records;
    assert_eq!(file.len(), 12);
    assert!(file.iter().all(RunRecord::is_of_sweep));
    let report = std::fs::read_to_string(scratch.runs().join("chosen/report/report.md")).unwrap();
    for word in ["Chosen values", "Everything tried", "[lr = ", "edge"] {
        has(&report, word);
    }
}

#[test]
fn a_method_without_any_score_has_no_result() {
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let result = |scratch: &Scratch| -> Vec<RunRecord> {
        let all = records(scratch).into_iter();
        all.filter(|record| !record.is_of_sweep()).collect()
    };
    // Of two methods that differ in their rates one diverges.
    let axes = CONFIG.split("[axes]").next().unwrap();
    let config = axes.replace(
        "\"train.lr\" = [1e-4, 3e-2, 1e-3]",
        "\"train.grad_clip\" = [1.0, 2.0]",
    );
    let scratch = Scratch::with(&format!("{config}[axes]\n\"train.lr\" = [1e-3, 1e9]\n"));
    let output = scratch.longreach("run", &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines = told(&output);
    let line = "none of 2 combinations has a score in loss_nats: its result is not trained";
    has(&lines, line);
    let trained = result(&scratch);
    assert_eq!(trained.len(), 3);
    assert!(
        trained
            .iter()
            .all(|record| record.spec["train"]["lr"] == 1e-3)
    );
    let report = std::fs::read_to_string(scratch.runs().join("chosen/report/report.md")).unwrap();
    let note = "1000000000: no value that \\[select\\] tried has a score, so its result was not";
    has(&report.replace('\n', " "), note);
    // The same once more, when all is recorded.
    assert_eq!(scratch.longreach("run", &[]).status.code(), Some(1));
    assert!(read_jsonl(&selection_file(&scratch)).unwrap().records.len() == 8);

    let scratch = Scratch::with(&CONFIG.replace("[1e-4, 3e-2, 1e-3]", "[1e9, 1e8]"));
    let output = scratch.longreach("run", &[]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(told(&output).matches(line).count(), 2, "{output:?}");
    assert!(result(&scratch).is_empty());
}

#[test]
fn of_equal_scores_the_line_says_that_the_loss_decided() {
    let scratch = Scratch::with(CONFIG);
    let untrained = [
        "select.by=\"exact_match\"",
        "train.steps=2",
        "axes.\"model.pe\"=[{kind=\"rope\"}]",
    ];
    let said = stderr(&scratch.longreach("run", &untrained));
    let lines: Vec<&str> = said
        .lines()
        .filter(|l| l.contains("(exact_match"))
        .collect();
    assert_eq!(lines.len(), 1, "{said}");
    has(lines[0], "exact_match 0.0000, as at train.lr = ");
    has(lines[0], ": the lower loss decided");
}

#[test]
fn what_was_lost_is_run_again_and_chosen_the_same() {
    let scratch = Scratch::with(CONFIG);
    scratch.trains(&[]);
    let (before, file) = (
        scratch.records(),
        std::fs::read(selection_file(&scratch)).unwrap(),
    );
    // One run of the sweep and one of the result.
    let of = |swept: bool| {
        let path = before.iter().map(|(path, _)| scratch.runs().join(path));
        path.clone()
            .find(|path| read_record(path).unwrap().is_of_sweep() == swept)
            .unwrap()
    };
    for path in [of(true), of(false), selection_file(&scratch)] {
        std::fs::remove_file(path).unwrap();
    }
    scratch.trains(&[]);
    assert_eq!(scratch.records(), before);
    assert_eq!(std::fs::read(selection_file(&scratch)).unwrap(), file);
    // Everything is recorded: nothing is run.
    let output = scratch.longreach("run", &[]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    has(&told, "0 to do");
    lacks(&told, "comes first");
}

/// Changes the loss of one run of the sweep and leaves its seal.
fn forge(scratch: &Scratch) -> PathBuf {
    let paths = scratch.records().into_iter();
    let mut paths = paths.map(|(path, _)| scratch.runs().join(path));
    let path = paths.find(|path| read_record(path).unwrap().is_of_sweep());
    let path = path.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["evals"][0]["metrics"]["loss_nats"]["value"] = 0.5.into();
    std::fs::write(&path, record.to_string()).unwrap();
    path
}

#[test]
fn nothing_is_chosen_by_records_that_were_changed() {
    let scratch = Scratch::with(CONFIG);
    scratch.trains(&[]);
    let before = std::fs::read(selection_file(&scratch)).unwrap();
    let forged = forge(&scratch);
    let output = scratch.longreach("run", &["seeds=[0,1,2]"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    has(&told, "does not match its seal");
    assert_eq!(std::fs::read(selection_file(&scratch)).unwrap(), before);
    // The fix that the error names.
    std::fs::remove_file(forged).unwrap();
    scratch.trains(&[]);
    assert_eq!(std::fs::read(selection_file(&scratch)).unwrap(), before);
}

#[test]
fn a_chosen_encoding_is_named_and_no_edge() {
    let config = CONFIG
        .replace(
            "\"train.lr\" = [1e-4, 3e-2, 1e-3]",
            "\"model.pe\" = [{ kind = \"rope\" }, { kind = \"alibi\" }]",
        )
        .split("[axes]")
        .next()
        .unwrap()
        .to_owned();
    let scratch = Scratch::with(&config);
    scratch.trains(&["half_seeds=[]"]);
    let report = std::fs::read_to_string(scratch.runs().join("chosen/report/report.md")).unwrap();
    lacks(&report, "not set");
    lacks(&report, "edge]");
}

#[test]
fn a_later_evaluation_leaves_the_comparison_with_half_the_steps() {
    let scratch = Scratch::with(CONFIG);
    scratch.trains(&[]);
    let runs = scratch.runs().join("chosen");
    let halves = || {
        let out = scratch.directory.path().join("report");
        let arguments = ["--format", "csv", "--out", out.to_str().unwrap()];
        exits(&command("report", &runs, &arguments), 0);
        let text = std::fs::read_to_string(out.join("summaries.csv")).unwrap();
        let is_half = |line: &&str| line.contains("half_to_all") || line.contains("still_learning");
        let lines = text.lines().filter(is_half).map(String::from);
        lines.collect::<Vec<_>>()
    };
    let before = halves();
    assert_eq!(before.len(), 2);
    let eval = command("eval", &runs, &["--lengths", "16"]);
    exits(&eval, 0);
    says(&eval, "14 runs of [select] or of half the steps left out");
    assert_eq!(halves(), before);
    // A half by its own name, which no table has.
    let is_half = |record: &RunRecord| record.half_of.is_some();
    let half = records(&scratch).into_iter().find(is_half).unwrap();
    // There is no table of halves alone; the evaluation is recorded.
    let output = command("eval", &runs.join(half.run_id), &["--lengths", "16"]);
    exits(&output, 0);
    let part = "no table: these are selection runs or runs with half the steps";
    shows(&output, part);
    assert_eq!(halves(), before);
}

#[test]
fn verify_reads_the_records_that_values_were_chosen_by() {
    let scratch = Scratch::with(CONFIG);
    scratch.trains(&[]);
    let file = selection_file(&scratch);
    let whole = std::fs::read_to_string(&file).unwrap();
    let verify = |code, said: &str| {
        let verified = command("verify", &scratch.runs(), &[]);
        exits(&verified, code);
        shows(&verified, said);
    };
    verify(0, "selection.jsonl: 12 records");
    let at = whole.find("\"loss_nats\":{\"value\":").unwrap() + 21;
    let edited = format!("{}9{}", &whole[..at], &whole[at + 1..]);
    std::fs::write(&file, &edited).unwrap();
    verify(1, "wrong: line 1: the record of run");
    verify(1, "0 with something wrong, and 1 file beside the runs");
    // Without its seal, the record of the run itself tells.
    let mut first: serde_json::Value =
        serde_json::from_str(edited.lines().next().unwrap()).unwrap();
    first.as_object_mut().unwrap().remove("seal");
    std::fs::write(&file, first.to_string()).unwrap();
    verify(1, "is not that of its directory: they differ in the scores");
    // The spec of a run that PyTorch trained is none of the program.
    let mut foreign = first.clone();
    foreign["run_id"] = serde_json::json!("0123456789abcdef");
    foreign["environment"]["burn"] = serde_json::json!("none: pytorch 2.9.0");
    std::fs::write(&file, foreign.to_string()).unwrap();
    verify(0, "nothing wrong");
    std::fs::write(&file, &whole[..whole.len() - 10]).unwrap();
    verify(1, "wrong: line 12: not a record");
    std::fs::write(&file, format!("{whole}{first}\n")).unwrap();
    verify(1, "selection.jsonl:1 and");
    std::fs::write(&file, &whole).unwrap();
    verify(0, "nothing wrong");
}

#[test]
fn gathered_records_of_the_sweep_lie_beside_those_of_the_result() {
    let scratch = Scratch::with(CONFIG);
    scratch.trains(&[]);
    let out = scratch.directory.path().join("gathered/results.jsonl");
    let gather = |out: &Path| {
        let arguments = ["--out", out.to_str().unwrap()];
        command("gather", &scratch.runs().join("chosen"), &arguments)
    };
    exits(&gather(&out), 0);
    let result = read_jsonl(&out).unwrap().records;
    assert_eq!(result.len(), 6);
    assert!(!result.iter().any(RunRecord::is_of_sweep));
    let beside = out.with_file_name("selection.jsonl");
    let swept = read_jsonl(&beside).unwrap();
    assert_eq!(swept.records.len(), 12);
    // `compare` reads both files, and `--recorded` whichever of them are named.
    let other = [out.to_str().unwrap()];
    let compared = command("compare", &scratch.runs().join("chosen"), &other);
    exits(&compared, 0);
    let there = Scratch::with(CONFIG);
    let alone = scratch.directory.path().join("alone.jsonl");
    std::fs::copy(&out, &alone).unwrap();
    for (file, lacking) in [(&out, 0), (&alone, 1)] {
        let checked = there.longreach("check", &["--recorded", file.to_str().unwrap()]);
        exits(&checked, 0);
        let note = "alone.jsonl has results that 12 runs chose, whose records are in none";
        let told = stdout(&checked) + &stderr(&checked);
        assert_eq!(told.matches(note).count(), lacking, "{told}");
    }
    for files in [vec![&out], vec![&out, &beside]] {
        let mut arguments = vec!["--json", "--recorded"];
        arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
        let output = there.longreach("check", &arguments);
        exits(&output, 0);
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut runs = plan["runs"].as_array().unwrap().iter();
        assert!(runs.all(|run| run["recorded"] == true), "{plan}");
    }
    // Selection runs beside a file of records go along with it.
    let moved = scratch.directory.path().join("moved/results.jsonl");
    let arguments = ["--out", moved.to_str().unwrap()];
    exits(&command("gather", &out, &arguments), 0);
    let along = moved.with_file_name("selection.jsonl");
    assert_eq!(read_jsonl(&along).unwrap().records, swept.records);
    // Those that other results there are chosen by are kept, also of an experiment of that name.
    let kept = |name: &str| {
        let others = Scratch::with(&CONFIG.replace("\"chosen\"", &format!("{name:?}")));
        others.trains(&["seeds=[0]", "select.seeds=[9]"]);
        let mut gather = longreach();
        gather.arg("gather").arg(others.runs().join(name));
        gather.args(["--out", "mine.jsonl"]);
        let gathered = gather.current_dir(out.parent().unwrap()).output().unwrap();
        exits(&gathered, 0);
        shows(&gathered, ", and 12 that were there");
        let all = read_jsonl(&beside).unwrap().records;
        std::fs::remove_file(out.with_file_name("mine.jsonl")).unwrap();
        std::fs::copy(&along, &beside).unwrap();
        let is_kept = |record: &&RunRecord| swept.records.contains(*record);
        (all.len(), all.iter().filter(is_kept).count())
    };
    assert_eq!((kept("others"), kept("chosen")), ((18, 12), (18, 12)));
    // Six new ones. Those that no result is chosen by are of a sweep that was changed.
    std::fs::write(&out, "").unwrap();
    let changed = Scratch::with(CONFIG);
    changed.trains(&["seeds=[0]", "select.seeds=[9]"]);
    let arguments = ["--out", out.to_str().unwrap()];
    exits(
        &command("gather", &changed.runs().join("chosen"), &arguments),
        0,
    );
    assert_eq!(read_jsonl(&beside).unwrap().records.len(), 6);
    // Other numbers of a run are not written beside it.
    let mut other = swept.records[0].clone();
    let rerun = scratch.directory.path().join("rerun.jsonl");
    other.change(|record| record.evals[0].metrics.get_mut("loss_nats").unwrap().value += 1.0);
    write_jsonl(&rerun, &[other]).unwrap();
    std::fs::copy(&along, &beside).unwrap();
    let refused = command("gather", &rerun, &arguments);
    fails(&refused, 3, "is there with other numbers");
    assert_eq!(read_jsonl(&beside).unwrap().records, swept.records);
    std::fs::remove_file(&beside).unwrap();
    // The same again, the results under the name of the sweep, and a file of something else.
    exits(&gather(&out), 0);
    exits(&gather(&beside), 2);
    // Of an experiment without a result, the sweep alone.
    for record in records(&scratch)
        .iter()
        .filter(|record| !record.is_of_sweep())
    {
        std::fs::remove_dir_all(scratch.runs().join("chosen").join(&record.run_id)).unwrap();
    }
    let first = scratch.directory.path().join("first/results.jsonl");
    exits(&gather(&first), 0);
    let swept = read_jsonl(&first.with_file_name("selection.jsonl")).unwrap();
    assert_eq!((swept.records.len(), first.exists()), (12, false));
    // What cannot be read may have been a result.
    let damaged = scratch.runs().join("chosen/0123456789abcdef");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("record.json"), "{").unwrap();
    let again = gather(&first);
    shows(&again, "no result is recorded yet");
    shows(&again, "12 records read, 1 left out");
    std::fs::write(&beside, "mine\n").unwrap();
    exits(&gather(&out), 2);
    assert_eq!(std::fs::read(&beside).unwrap(), b"mine\n");
}

#[test]
fn check_counts_the_sweep_and_the_result() {
    let scratch = Scratch::with(CONFIG);
    let output = scratch.longreach("check", &["--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let parts = plan["runs"].as_array().unwrap().iter();
    let count = |part: &str| parts.clone().filter(|run| run["part"] == part).count();
    assert_eq!(
        [count("selection"), count("result"), count("half_steps")],
        [12, 4, 2]
    );
}

/// The result of a method whose sweep is not done is not planned yet, and counts all the same.
#[test]
fn a_sweep_that_ends_early_counts_all_runs_that_there_will_be() {
    let scratch = Scratch::with(CONFIG);
    let plan = planned(CONFIG, &[]).unwrap();
    let first = &plan.selection.unwrap().runs[0].job.run_id;
    let broken = scratch.runs().join("chosen").join(first);
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("checkpoints"), "in the way").unwrap();
    let output = scratch.longreach("run", &["--checkpoint-every", "2"]);
    fails(&output, 6, "1 of 18 runs failed");
    let place = scratch.runs().join("chosen");
    says(&command("report", &place, &[]), " of 18 runs recorded");
}

fn planned(config: &str, overrides: &[&str]) -> Result<Plan, String> {
    let scratch = Scratch::with(config);
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    plan(&scratch.config, &overrides).map_err(|mistakes| mistakes.to_string())
}

#[track_caller]
fn refused(config: &str, overrides: &[&str], texts: &[&str]) {
    let error = planned(config, overrides).err().expect("a mistake");
    for text in texts {
        has(&error, text);
    }
}

#[test]
fn mistakes_of_a_selection_are_named() {
    let rate = r#"select.over={"train.lr"=[1e-3]}"#;
    refused(
        CONFIG,
        &[rate],
        &["select.over", "nothing to choose from", "command line"],
    );
    let axis = CONFIG.replace("\"train.lr\" =", "\"model.pe\" =");
    refused(
        &axis,
        &[],
        &[
            "x.toml:16",
            "`model.pe` is an axis",
            "keys that no axis varies",
        ],
    );
    // A list has no key `over`, so nothing would be chosen and nothing run.
    refused(
        &CONFIG
            .replace("[select]", "[[select]]")
            .replace("[select.over]", "[other]"),
        &[],
        &["`select` must be a table", "x.toml:", "single brackets"],
    );
    refused(
        CONFIG,
        &["select.seeds=[7,1]"],
        &["select.seeds.1", "a seed of the result too"],
    );
    refused(
        CONFIG,
        &["select.seeds=[7,7]"],
        &["select.seeds.1", "listed twice"],
    );
    refused(CONFIG, &["select.seeds=[]"], &["select.seeds", "is empty"]);
    let metrics = [
        "select.by",
        "perplexity",
        "not a metric of this task",
        "exact_match",
    ];
    refused(CONFIG, &["select.by=perplexity"], &metrics);
    refused(
        CONFIG,
        &["select.steps=0"],
        &["select.steps", "from 0.001 to 1"],
    );
    refused(CONFIG, &["select.stepz=1"], &["stepz", "steps"]);
    refused(
        CONFIG,
        &[r#"select.over.seeds=[[3],[4]]"#],
        &["`seeds` cannot be chosen"],
    );
    // What changes the rows, the length or the task that is scored.
    for over in [
        r#""eval.seed"=[1,2]"#,
        r#""train.train_len"=[4,8]"#,
        r#""task.alphabet"=[4,8]"#,
        r#""train.lr, eval.rows"=[[1e-3,"test"],[3e-3,"test"]]"#,
    ] {
        let over = format!("select.over={{{over}}}");
        refused(CONFIG, &[&over], &["cannot be chosen", "put it on [axes]"]);
    }
    refused(
        CONFIG,
        &["eval.rows=selection"],
        &["eval.rows", "on the rows that it is chosen by", "remove it"],
    );
    refused(
        CONFIG,
        &[r#"train.stop={metric="exact_match",at_least=0,every=3}"#],
        &["train.stop.at_least", "at its first score"],
    );
    refused(
        CONFIG,
        &["half_seeds=[5]"],
        &["half_seeds.0", "not a seed of the result"],
    );
    refused(
        CONFIG,
        &["half_seeds=[1,1]"],
        &["half_seeds.1", "listed twice"],
    );
    // Fewer seeds in an argument have fewer halves.
    let halves = |seeds: &str| {
        let plan = planned(CONFIG, &[seeds, "train.lr=1e-3"]).unwrap();
        let halves = plan.runs.iter().filter(|run| run.job.half_of.is_some());
        halves.count()
    };
    assert_eq!([halves("seeds=[1]"), halves("seeds=[0]")], [2, 0]);
    let longer = ["eval.test_lens=[8]"];
    refused(
        CONFIG,
        &longer,
        &["half_seeds", "at or below the training length"],
    );
    // A key that changes nothing would choose between equal runs.
    let same = r#"select.over={"train.min_len"=[1,2]}"#;
    assert!(planned(CONFIG, &[same]).is_ok());
    let equal = r#"select.over={"model.norm"=["pre_layer","layer_norm"]}"#;
    assert!(planned(CONFIG, &[equal]).is_err());
}

#[test]
fn help_with_a_selection_is_about_what_was_written() {
    refused(
        CONFIG,
        &["seeds=[0,7,100]", "half_seeds=[0]"],
        &["select.seeds.0", "write seeds = [101, 102] in [select]"],
    );
    let staged = "train.length=staged";
    let stages = "train.stages=[{steps=1,train_len=2},{steps=11,train_len=4}]";
    refused(
        CONFIG,
        &[staged, stages, "train.warmup_steps=0", "half_seeds=[]"],
        &[
            "train.stages.0.steps",
            "none is left when select.steps shortens the training to 6 of 12 steps",
        ],
    );
    let twice = "axes.\"model.pe\"=[{kind=\"rope\"},{kind=\"rope\",base=10000}]";
    let same = ["= key: model.pe", "two runs are the same"];
    refused(CONFIG, &[twice], &same);
    let swapped = "axes.\"model.pe\"=[{kind=\"rope\",base=10000},{kind=\"rope\"}]";
    refused(CONFIG, &[swapped], &same);
}

#[test]
fn an_override_of_one_of_several_chosen_keys_keeps_the_entries_with_its_value() {
    let over = r#"select.over={"train.lr, train.batch_size"=[[1e-3, 4], [1e-2, 4], [1e-2, 8]]}"#;
    let tried = |overrides: &[&str]| {
        let plan = planned(CONFIG, &[&[over], overrides].concat()).unwrap();
        let swept = plan
            .selection
            .as_ref()
            .map_or(&plan.runs, |found| &found.runs);
        let train = swept.iter().map(|run| &run.job.spec.train);
        let values: BTreeSet<String> = train
            .map(|train| format!("{} {}", train.lr, train.batch_size))
            .collect();
        (
            plan.selection.is_some(),
            values.into_iter().collect::<Vec<_>>().join(", "),
        )
    };
    let [all, larger, smaller] = [&[][..], &["train.lr=1e-2"], &["train.lr=1e-3"]].map(tried);
    assert_eq!(all, (true, "0.001 4, 0.01 4, 0.01 8".into()));
    assert_eq!(larger, (true, "0.01 4, 0.01 8".into()));
    assert_eq!(smaller, (false, "0.001 4".into()));
    let texts = [
        "train.lr",
        "no entry of",
        "allowed: 0.001, 0.01",
        "select.over.",
    ];
    refused(CONFIG, &[over, "train.lr=5e-3"], &texts);
}

#[test]
fn a_mistake_in_test_lengths_is_one_mistake() {
    let error = planned(CONFIG, &["eval.test_lens=[4, 4]"]).err().unwrap();
    has(&error, "is listed twice");
    lacks(&error, "half_seeds");
}

#[test]
fn a_sweep_and_halves_have_the_positions_of_the_result() {
    // The room for positions follows the longest test, 40 of 4 tokens: the sweep has none.
    let plan = planned(
        CONFIG,
        &[
            r#"model.positions={kind="randomized"}"#,
            "eval.test_lens=[4, 40]",
        ],
    )
    .unwrap();
    let swept = &plan.selection.as_ref().unwrap().runs;
    let all = swept.iter().chain(&plan.runs);
    let positions: BTreeSet<String> = all
        .map(|run| format!("{:?}", run.job.spec.model.positions))
        .collect();
    assert_eq!(positions.len(), 1, "{positions:?}");
    assert!(plan.runs.iter().any(|run| run.job.half_of.is_some()));
}

#[test]
fn the_config_of_every_run_is_shown_as_one_that_is_this_run() {
    let scratch = Scratch::with(CONFIG);
    let plan = planned(CONFIG, &[]).unwrap();
    let found = plan.selection.as_ref().unwrap();
    let last = &found.methods.last().unwrap().tried.last().unwrap().runs;
    let half = last.iter().find(|run| run.job.half_of.is_some()).unwrap();
    for run in [found.runs.last().unwrap(), half, &plan.runs[0]] {
        let mut show = crate::common::longreach();
        show.args(["config", "show"]).arg(&scratch.config);
        let shown = show.arg("--run").arg(&run.job.run_id).output().unwrap();
        exits(&shown, 0);
        let shown = String::from_utf8(shown.stdout).unwrap();
        let again = planned(&shown, &[]).unwrap();
        assert_eq!(again.runs[0].job.run_id, run.job.run_id, "{shown}");
    }
}

#[test]
fn a_report_of_one_config_has_what_this_config_chose() {
    let scratch = Scratch::with(CONFIG);
    let other = r#"select.over={"train.lr"=[3e-3, 1e-5]}"#;
    for overrides in [&[][..], &[other]] {
        let run = [&["seeds=[0]", "half_seeds=[]"], overrides].concat();
        scratch.trains(&run);
    }
    let place = scratch.runs().join("chosen");
    let configs = std::fs::read_dir(place.join("configs")).unwrap();
    let mut tried = BTreeSet::new();
    for config in configs.map(|entry| entry.unwrap().path()) {
        if config
            .extension()
            .is_none_or(|extension| extension != "toml")
        {
            continue;
        }
        let out = scratch.directory.path().join("report");
        let id = config.file_stem().unwrap().to_str().unwrap();
        let arguments = ["--out", out.to_str().unwrap(), "--config", id];
        exits(&command("report", &place, &arguments), 0);
        let text = std::fs::read_to_string(out.join("report.md")).unwrap();
        tried.insert(text.contains("1e-5") || text.contains("0.00001"));
    }
    assert_eq!(tried, BTreeSet::from([false, true]));
}

#[test]
fn a_run_is_a_result_of_one_config_and_half_of_another() {
    let (head, rest) = CONFIG.split_once("[select]").unwrap();
    let plain = format!("{head}{}", &rest[rest.find("[model]").unwrap()..]);
    let plain = plain.replace("[4, 8]", "[4]");
    let short = plain.replace("half_seeds = [1]\n", "");
    let short = short.replace("steps = 12", "steps = 6");
    let short = short.replace("warmup_steps = 2", "warmup_steps = 1");
    let scratch = Scratch::with(&short);
    let long = scratch.config.with_file_name("long.toml");
    std::fs::write(&long, plain).unwrap();
    let run = |config: &Path| {
        let runs = scratch.runs();
        let output = command("run", config, &["--runs", runs.to_str().unwrap()]);
        exits(&output, 0);
    };
    let (ours, half) = (
        plan(&scratch.config, &[]).unwrap(),
        plan(&long, &[]).unwrap(),
    );
    let halves = half.runs.iter().filter(|run| run.job.half_of.is_some());
    let shared = halves.filter(|run| ours.runs.iter().any(|own| own.job.run_id == run.job.run_id));
    assert_eq!(shared.count(), 2);
    let report = || {
        let out = scratch.directory.path().join("report");
        let config = scratch.config.to_str().unwrap();
        let arguments = ["--config", config, "--out", out.to_str().unwrap()];
        let report = command("report", &scratch.runs().join("chosen"), &arguments);
        exits(&report, 0);
        std::fs::read_to_string(out.join("results.csv")).unwrap()
    };
    run(&scratch.config);
    let before = report();
    run(&long);
    assert_eq!(report(), before);
}

#[test]
fn a_config_file_and_its_id_give_the_same_report() {
    let scratch = Scratch::with(CONFIG);
    let place = scratch.runs().join("chosen");
    let report = |config: &std::path::Path| {
        let out = scratch.directory.path().join("report");
        let config = config.to_str().unwrap();
        let arguments = ["--config", config, "--out", out.to_str().unwrap()];
        (command("report", &place, &arguments), out.join("report.md"))
    };
    scratch.trains(&["seeds=[0]", "half_seeds=[]"]);
    // What was run here is the file with overrides.
    let (refused, _) = report(&scratch.config);
    fails(&refused, 2, "its chosen values are not known");
    scratch.trains(&[]);
    let planned = plan(&scratch.config, &[]).unwrap();
    let own = experiment::runs_on_disk::kept_configs::Config::of(&place, &planned);
    let id = own.unwrap().0.id;
    let [of_file, of_id] = [scratch.config.as_path(), id.as_ref()].map(|config| {
        let (output, page) = report(config);
        exits(&output, 0);
        std::fs::read_to_string(page).unwrap()
    });
    has(&of_file, "Chosen values");
    assert_eq!(of_file, of_id);
}

#[test]
fn an_override_of_a_chosen_key_takes_it_out_of_the_sweep() {
    let plan = planned(CONFIG, &["train.lr=2e-3"]).unwrap();
    assert!(plan.selection.is_none());
    assert_eq!(plan.runs.len(), 6);
    assert!(plan.runs.iter().all(|run| run.job.spec.train.lr == 2e-3));
    // The same runs as those of the config without `[select]`.
    let (head, rest) = CONFIG.split_once("[select]").unwrap();
    let plain = format!("{head}{}", &rest[rest.find("[model]").unwrap()..]);
    let plain = planned(&plain, &["train.lr=2e-3"]).unwrap();
    let ids = |plan: &Plan| -> Vec<String> {
        plan.runs.iter().map(|run| run.job.run_id.clone()).collect()
    };
    assert_eq!(ids(&plan), ids(&plain));
}

#[test]
fn several_keys_vary_together() {
    let entries = r#""model.pe, train.lr" = [[{ kind = "rope" }, 3e-3], [{ kind = "t5" }, 1e-2]]"#;
    let (head, _) = CONFIG.split_once("[axes]").unwrap();
    let (top, rest) = head.split_once("[select]").unwrap();
    let config = format!(
        "{top}{}[axes]\n{entries}\n",
        &rest[rest.find("[model]").unwrap()..]
    );
    let plan = planned(&config, &["half_seeds=[]"]).unwrap();
    let runs = plan.runs.iter().map(|run| {
        let label = &run.job.labels[0];
        (
            label.key.as_str(),
            label.text.as_str(),
            run.job.spec.train.lr,
        )
    });
    let mut runs: Vec<_> = runs.collect();
    runs.dedup();
    assert_eq!(runs, [("model.pe", "rope", 3e-3), ("model.pe", "t5", 1e-2)]);
    // An override inside a value is applied to every entry.
    refused(
        &config,
        &["half_seeds=[]", "model.pe.max_distance=16"],
        &["max_distance", "command line"],
    );
    refused(
        &config,
        &["train.lr=1e-3"],
        &[
            "no entry of `model.pe, train.lr`",
            "allowed: 0.003, 0.01",
            "axes.\"model.pe, train.lr\"",
            "command line",
        ],
    );
    let uneven = config.replace("}, 3e-3]", "}]");
    let texts = ["varies 2 keys together", "a list of 2 values", "x.toml:"];
    refused(&uneven, &[], &texts);
    let twice = config.replace("[axes]", "[axes]\n\"train.lr\" = [1e-3, 2e-3]");
    refused(&twice, &[], &["is the same as axis"]);
    let within = config.replace(
        "[axes]",
        "[axes]\n\"train.batch_size, train.batch_size\" = [[4, 8]]",
    );
    let texts = [
        "names `train.batch_size` twice",
        "name each key of an axis once",
    ];
    refused(&within, &[], &texts);
}

/// The page of a run shows its labels as overrides that train this run alone.
#[test]
fn overrides_of_keys_that_vary_together_keep_the_entries_with_their_values() {
    let entries = r#""model.pe, train.lr, train.batch_size" = [
        [{ kind = "rope" }, 3e-3, 8], [{ kind = "t5" }, 3e-3, 8], [{ kind = "t5" }, 1e-2, 8]]"#;
    let (head, _) = CONFIG.split_once("[axes]").unwrap();
    let (top, rest) = head.split_once("[select]").unwrap();
    let config = format!(
        "{top}{}[axes]\n{entries}\n",
        &rest[rest.find("[model]").unwrap()..]
    );
    let runs = |overrides: &[&str]| {
        let overrides = [&["half_seeds=[]", "seeds=[0]"], overrides].concat();
        let plan = planned(&config, &overrides).unwrap();
        let run = plan.runs.iter().map(|run| {
            let labels = run.job.labels.iter();
            let labels = labels.map(|label| format!("{}={}", label.key, label.text));
            (labels.collect::<Vec<_>>().join(" "), run.job.run_id.clone())
        });
        run.collect::<Vec<_>>()
    };
    let all = runs(&[]);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "rope train.lr=0.003",
        "t5 train.lr=0.003",
        "t5 train.lr=0.01",
    ];
    assert_eq!(names, expected.map(|name| format!("model.pe={name}")));
    let t5 = r#"model.pe={kind="t5"}"#;
    assert_eq!(runs(&[t5]), all[1..]);
    assert_eq!(runs(&["train.lr=0.003"]), all[..2]);
    assert_eq!(runs(&[t5, "train.lr=0.01"]), all[2..]);
    let texts = ["train.lr", "varies several keys together", "allowed: 0.003"];
    refused(
        &config,
        &[r#"model.pe={kind="rope"}"#, "train.lr=0.01"],
        &texts,
    );
    // What is left of the axis is still known by its line in the file.
    let wrong = config.replace("1e-2, 8", "1e-2, 0");
    refused(
        &wrong,
        &["half_seeds=[]", "train.lr=0.01"],
        &["train.batch_size", "x.toml:"],
    );
}

#[test]
fn submit_takes_the_sweep_and_then_the_result() {
    let scratch = Scratch::with(CONFIG);
    let submit = |out: &str, chosen_by: Option<&std::path::Path>| {
        let mut program = crate::common::longreach();
        program.arg("submit").arg(&scratch.config);
        program.args(["--cluster", "parallel", "--out"]);
        program.arg(scratch.directory.path().join(out));
        if let Some(path) = chosen_by {
            program.arg("--chosen-by").arg(path);
        }
        program.output().unwrap()
    };
    let lines = |out: &str| {
        let manifest = scratch.directory.path().join(out).join("manifest.jsonl");
        std::fs::read_to_string(manifest).unwrap().lines().count()
    };
    let sweep = submit("sweep", None);
    assert!(sweep.status.success(), "{sweep:?}");
    assert!(String::from_utf8_lossy(&sweep.stderr).contains("--chosen-by"));
    assert_eq!(lines("sweep"), 12);
    let script = |out: &str| {
        let script = scratch.directory.path().join(out).join("parallel.sh");
        std::fs::read_to_string(script).unwrap()
    };
    // A sweep has no report.
    let text = script("sweep");
    let end = text.rsplit("./longreach status").next().unwrap();
    has(end, "--chosen-by");
    lacks(end, "longreach report");
    scratch.trains(&["seeds=[0]", "half_seeds=[]"]);
    let runs = scratch.runs().join("chosen");
    // The sweep is the same for every seed of the result.
    let result = submit("result", Some(&runs));
    assert!(result.status.success(), "{result:?}");
    assert_eq!(lines("result"), 6);
    has(&script("result"), "\n./longreach report . ");
    // A gathered experiment keeps the records of its sweep beside those of its result.
    let kept = scratch.directory.path().join("kept");
    let mut gather = crate::common::longreach();
    gather.arg("gather").arg(&runs).arg("--out");
    let gathered = gather.arg(kept.join("results.jsonl")).output().unwrap();
    assert!(gathered.status.success(), "{gathered:?}");
    let again = submit("again", Some(&kept));
    assert!(again.status.success(), "{again:?}");
    assert_eq!(lines("again"), 6);
    std::fs::remove_file(selection_file(&scratch)).unwrap();
    let swept = records(&scratch)
        .into_iter()
        .find(RunRecord::is_of_sweep)
        .unwrap();
    std::fs::remove_dir_all(runs.join(&swept.run_id)).unwrap();
    let cut = scratch.directory.path().join("cut.jsonl");
    std::fs::write(&cut, "{\"schema\":1,").unwrap();
    let damaged = submit("damaged", Some(&cut));
    let told = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert_eq!(damaged.status.code(), Some(3), "{told}");
    has(&told, "cut.jsonl:1: ");
    let open = submit("open", Some(&runs));
    let told = String::from_utf8_lossy(&open.stderr).into_owned();
    assert_eq!(open.status.code(), Some(2), "{told}");
    has(&told, "1 of 2 methods cannot choose");
    // The directory of a result has no sweep.
    for run in records(&scratch).iter().filter(|run| run.is_of_sweep()) {
        std::fs::remove_dir_all(runs.join(&run.run_id)).unwrap();
    }
    let report = crate::common::longreach().arg("report").arg(&runs).output();
    let told = stderr(&report.unwrap());
    let said = "2 of 2 runs recorded, chosen by 12 runs elsewhere";
    has(&told, said);
}

/// A text is cut into windows of the tested lengths, which are checked before.
#[test]
fn a_length_in_quotes_is_refused_on_text_too() {
    let scratch = Scratch::with(CONFIG);
    let text = "task={kind=\"text\",eval_tokens=1024}";
    let output = scratch.longreach("check", &[text, "eval.test_lens=[\"4\"]"]);
    fails(&output, 2, "`eval.test_lens.0` is not a length");
}

#[test]
fn selection_rows_that_are_few_or_test_rows_are_noted() {
    let scratch = Scratch::with(CONFIG);
    let noted = |task: &str, part: &str| {
        let output = scratch.longreach("check", &[task]);
        exits(&output, 0);
        match part {
            "" => lacks(&stderr(&output), "selection rows"),
            part => says(&output, part),
        }
    };
    noted("max_runs=20", "");
    noted(
        "task={kind=\"parity\"}",
        "task `parity` at 4 symbols: 16 distinct selection rows, of which 16 are test rows too",
    );
    noted("task={kind=\"parity\",test_rows=8}", "");
    noted(
        "task={kind=\"stack_manipulation\"}",
        "23 distinct selection rows, of which 23 are test rows too",
    );
}

#[test]
fn a_retry_before_the_selection_says_that_nothing_is_recorded() {
    let scratch = Scratch::with(CONFIG);
    for which in ["failed", "diverged"] {
        let output = scratch.longreach("run", &["--retry", which]);
        fails(&output, 2, "none of the 12 runs has");
        says(&output, "12 are not recorded yet");
    }
}
