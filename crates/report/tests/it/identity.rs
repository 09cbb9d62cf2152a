//! What counts as one method: everything in the resolved spec but the seed, on the specs of real
//! runs.

use crate::common::*;
use longreach_report::{ReportError, ReportSpec, report};
use records::analysis::identity::MethodSpecs;
use records::analysis::setting::settings;
use records::find_records;
use records::record::*;
use records::store::{run_dir, write_jsonl};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Records of committed experiments whose specs have every section: variants, stages, warm starts,
/// drawn positions, coordinates, decoding.
fn real() -> Vec<RunRecord> {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut out = Vec::new();
    for name in [
        "001-quickstart",
        "004-rope-scaling",
        "007-randomized",
        "010-staged-masked",
        "022-board",
    ] {
        let records = find_records(&[experiments.join(name).join("results.jsonl")])
            .unwrap()
            .records;
        let mut seen = BTreeSet::new();
        // Runs with half the steps are not results.
        let results = records.into_iter().filter(|r| r.half_of.is_none());
        // One record of every shape that a spec has in the experiment.
        out.extend(results.filter(|r| {
            let shape: Vec<String> = r.spec.keys().cloned().collect();
            let variants = r.spec["eval"]["variants"].as_array().map_or(0, Vec::len);
            seen.insert((shape, variants))
        }));
    }
    assert!(out.len() >= 5, "{} records", out.len());
    out
}

/// Paths of every leaf of a document.
fn leaves(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(k, v)| leaves(v, &format!("{path}/{k}"), out)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, v)| leaves(v, &format!("{path}/{i}"), out)),
        _ => out.push(path.to_owned()),
    }
}

/// Another value of the same type.
fn changed(value: &Value) -> Value {
    match value {
        Value::Bool(b) => json!(!b),
        Value::Number(n) if n.is_f64() => json!(n.as_f64().unwrap() * 2.0 + 1.0),
        Value::Number(n) => json!(n.as_u64().unwrap_or(0) + 1),
        Value::String(s) => json!(format!("{s}x")),
        _ => json!(7),
    }
}

fn spec() -> ReportSpec {
    ReportSpec {
        formats: [longreach_report::Format::Md].into(),
        ..ReportSpec::default()
    }
}

/// Methods of a report: names in the "Methods" tables.
fn methods(records: &[RunRecord]) -> Vec<String> {
    let report = report(records, &[], &spec()).unwrap();
    let markdown = String::from_utf8(report.file("report.md").unwrap().to_vec()).unwrap();
    let tables = markdown.split("### Methods\n").skip(1);
    let rows = tables.flat_map(|table| {
        table
            .trim_start()
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
    });
    rows.map(|row| {
        row.split(" | ")
            .next()
            .unwrap()
            .trim_start_matches("| ")
            .replace('\\', "")
    })
    .collect()
}

#[test]
fn a_change_of_any_leaf_but_the_seed_is_another_method() {
    let mut tried = 0;
    for run in real() {
        let before = methods(std::slice::from_ref(&run));
        let mut paths = Vec::new();
        leaves(&Value::Object(run.spec.clone()), "", &mut paths);
        for path in paths {
            let mut spec = Value::Object(run.spec.clone());
            let leaf = spec.pointer_mut(&path).unwrap();
            *leaf = changed(leaf);
            let mut other = run.clone();
            other.spec = spec.as_object().unwrap().clone();
            other.run_id = hex(&path);
            // Other seeds of one method are pooled; so is what differs between seeds by
            // construction.
            if path != "/seed" {
                other.seed += 1;
                other.spec["seed"] = json!(other.seed);
            } else {
                other.seed = other.spec["seed"].as_u64().unwrap();
            }
            let after = methods(&[run.clone(), other.clone()]);
            let by_seed = [
                "/seed",
                "/train/start_from/run_id",
                "/train/start_from/weights_blake3",
            ]
            .contains(&path.as_str());
            let expected = if by_seed {
                before.len()
            } else {
                2 * before.len()
            };
            // A training length names another setting, in which the same names are used again.
            let distinct = after.iter().collect::<BTreeSet<_>>().len();
            assert_eq!(
                after.len(),
                expected,
                "{}: {path}: {after:?}",
                run.experiment
            );
            assert!(
                distinct == expected,
                "{}: {path}: {after:?}",
                run.experiment
            );
            assert!(
                after.iter().all(|name| !name.contains('#')),
                "{path}: {after:?}"
            );
            // The name says which setting differs, by the key of a config.
            if !by_seed {
                let key = path.trim_start_matches('/').replace('/', ".");
                let last = key
                    .rsplit('.')
                    .find(|part| part.parse::<usize>().is_err())
                    .unwrap();
                // A variant's own name, and the encoding lists, stand in the key under other words.
                let is_listed = key.starts_with("eval.variants.");
                // Beside later evaluations with such a key its methods keep their names.
                let named = after.iter().filter(|name| name.contains(last)).count();
                assert!(is_listed || named >= before.len(), "{path}: {after:?}");
            }
            // The order of records does not matter.
            assert_eq!(after, methods(&[other, run.clone()]), "{path}");
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried} leaves");
}

#[test]
fn a_warm_start_counts_by_its_method() {
    let started = |seed: u64, from: &str, steps: u64| {
        let mut run = record("warm", &[("model.pe", json!("rope"))], seed, copy_task(16));
        run.run_id = hex(&format!("{from} {steps} {seed}"));
        run.spec["train"]["start_from"] = json!({ "run_id": hex(&format!("{from}{seed}")), "weights_blake3": hex(from), "pe": true });
        run.started_from =
            json!({ "model": { "pe": { "kind": from } }, "train": { "steps": steps, "train_len": 8 } })
                .as_object()
                .cloned();
        run.evals
            .push(ok_row("trained", 16, &[("exact_match", 1.0)]));
        run
    };
    // Two seeds of one start are one method.
    assert_eq!(
        methods(&[started(0, "rope", 10), started(1, "rope", 10)]),
        ["rope"]
    );
    let other = methods(&[started(0, "rope", 10), started(1, "alibi", 10)]);
    assert_eq!(
        other,
        [
            "rope [train.start_from.model.pe.kind = alibi]",
            "rope [train.start_from.model.pe.kind = rope]"
        ]
    );
    let longer = methods(&[started(0, "rope", 10), started(1, "rope", 20)]);
    assert_eq!(
        longer,
        [
            "rope [train.start_from.train.steps = 10]",
            "rope [train.start_from.train.steps = 20]"
        ]
    );
    // Records of versions that did not keep the start's method: it is found among the records.
    let old = |mut run: RunRecord| {
        run.started_from = None;
        run
    };
    let mut all = vec![old(started(0, "rope", 10)), old(started(1, "alibi", 10))];
    for (seed, kind) in [(0, "rope"), (1, "alibi")] {
        let mut start = record("first", &[("model.pe", json!(kind))], seed, copy_task(8));
        start.run_id = hex(&format!("{kind}{seed}"));
        all.push(start);
    }
    let found = methods(&all);
    assert!(
        found
            .iter()
            .any(|name| name.contains("train.start_from.model.pe.kind = alibi")),
        "{found:?}"
    );
    let without = report(&all[..2], &[], &spec()).unwrap();
    let markdown = String::from_utf8(without.file("report.md").unwrap().to_vec()).unwrap();
    markdown.must_have("not among the records");
}

/// A run with an axis label, as a config edited between two sweeps leaves it.
fn edited(seed: u64, change: &[(&str, Value)], score: f64) -> RunRecord {
    let mut run = record("edited", &[("train.lr", json!(0.003))], seed, copy_task(16));
    run.spec["model"]["pe"] = json!({ "kind": "rope", "base": 10000.0 });
    for (path, value) in change {
        let (section, keys) = path.split_once('/').unwrap();
        let leaf = keys
            .split('/')
            .fold(&mut run.spec[section], |table, key| &mut table[key]);
        *leaf = value.clone();
    }
    run.run_id = hex(&format!(
        "{seed} {}",
        serde_json::to_string(&run.spec).unwrap()
    ));
    run.evals
        .push(ok_row("trained", 16, &[("exact_match", score)]));
    run
}

#[test]
fn configs_edited_between_sweeps_are_shown_apart_and_named_by_what_differs() {
    let names = |change: &[(&str, Value)]| {
        let first: Vec<RunRecord> = (0..2).map(|seed| edited(seed, &[], 0.98)).collect();
        // The same seeds and other ones: neither is pooled, dropped or hidden.
        let same: Vec<RunRecord> = (0..2).map(|seed| edited(seed, change, 0.0)).collect();
        let others: Vec<RunRecord> = (2..4).map(|seed| edited(seed, change, 0.0)).collect();
        let found = methods(&[first.clone(), same].concat());
        assert_eq!(found, methods(&[others, first].concat()));
        found
    };
    let kind = [("model/pe/kind", json!("alibi"))];
    assert_eq!(
        names(&kind),
        [
            "lr = 0.003 [model.pe.kind = alibi]",
            "lr = 0.003 [model.pe.kind = rope]"
        ]
    );
    let base = [("model/pe/base", json!(100.0))];
    assert_eq!(
        names(&base),
        [
            "lr = 0.003 [model.pe.base = 100]",
            "lr = 0.003 [model.pe.base = 10000]"
        ]
    );
    let positions = [("model/positions/kind", json!("randomized"))];
    assert_eq!(
        names(&positions),
        [
            "lr = 0.003 [model.positions.kind = randomized]",
            "lr = 0.003 [model.positions.kind = not set]"
        ]
    );
    let decode = [("eval/decode", json!("greedy"))];
    assert_eq!(
        names(&decode),
        ["lr = 0.003 [eval.decode = greedy]", "lr = 0.003"]
    );
    let seed = [("eval/seed", json!(7))];
    assert_eq!(
        names(&seed),
        ["lr = 0.003 [eval.seed = 0]", "lr = 0.003 [eval.seed = 7]"]
    );
    // What follows from another setting is not what a name says.
    let size = [
        ("model/d_model", json!(32)),
        ("model/d_ff", json!(128)),
        ("model/head_dim", json!(8)),
    ];
    assert_eq!(
        names(&size),
        [
            "lr = 0.003 [model.d_model = 32]",
            "lr = 0.003 [model.d_model = 64]"
        ]
    );
}

#[test]
fn more_seeds_from_a_shorter_axis_keep_the_name_of_the_method() {
    let labelled = |seed: u64, text: &str, kept: usize| {
        let mut run = edited(seed, &[], 0.9);
        run.labels[0].text = text.into();
        run.evals[0].loss_by_position = bins(64, 1.0, 0.1, seed);
        run.evals[0].loss_by_position.truncate(kept);
        run
    };
    let recorded: Vec<RunRecord> = (0..2)
        .map(|seed| labelled(seed, "by_layer(pattern=[0, 1])", 4))
        .collect();
    // The sweep of more seeds has all of them, in full and named as its axis needs.
    let more: Vec<RunRecord> = (0..4).map(|seed| labelled(seed, "by_layer", 16)).collect();
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("results.jsonl");
    write_jsonl(&lines, &recorded).unwrap();
    let runs = dir.path().join("runs");
    for run in &more {
        write_record(&run_dir(&runs, &run.experiment, &run.run_id), run).unwrap();
    }
    for roots in [[&lines, &runs], [&runs, &lines]] {
        let found = find_records(&roots.map(Clone::clone)).unwrap().records;
        assert_eq!(found.len(), 4);
        assert_eq!(methods(&found), ["lr = by_layer(pattern=[0, 1])"]);
    }
    assert_eq!(methods(&more), ["lr = by_layer"]);
}

#[test]
fn a_variant_redefined_under_its_name_is_another_method() {
    let run = |seed: u64, scaling: Value| {
        let mut run = record(
            "variants",
            &[("model.pe", json!("rope"))],
            seed,
            copy_task(16),
        );
        run.evals = [("trained", 1.0), ("scaled", 0.5)]
            .map(|(v, s)| ok_row(v, 32, &[("exact_match", s)]))
            .to_vec();
        let rope = json!({ "kind": "rope" });
        let scaled = json!({ "kind": "rope", "scaling": scaling });
        run.spec["eval"]["test_lens"] = json!([32]);
        run.spec["eval"]["variants"] =
            json!([{ "name": "trained", "pe": [rope] }, { "name": "scaled", "pe": [scaled] }]);
        run.run_id = hex(&run.spec["eval"].to_string());
        run
    };
    let found = methods(&[
        run(0, json!({ "kind": "ntk" })),
        run(1, json!({ "kind": "linear", "factor": 8.0 })),
    ]);
    let key = "eval.variants.scaled.32.scaling.kind";
    let expected = ["linear", "ntk"]
        .map(|kind| {
            [
                format!("rope [{key} = {kind}]"),
                format!("rope [{key} = {kind}] + scaled"),
            ]
        })
        .concat();
    assert_eq!(found, expected);
}

#[test]
fn a_run_of_two_experiments_is_in_each() {
    let of = |experiment: &str, pe: &str| {
        let mut runs = scores(&[(pe, &[[1.0, 1.0, 0.5, 0.1], [1.0, 1.0, 0.4, 0.2]])]);
        runs.iter_mut()
            .for_each(|run| run.experiment = experiment.into());
        runs
    };
    let all = [
        of("one", "rope"),
        of("one", "alibi"),
        of("two", "rope"),
        of("two", "kerple"),
    ]
    .concat();
    let expected = ["one: alibi", "one: rope", "two: kerple", "two: rope"];
    assert_eq!(methods(&all), expected);
    let mut turned = all.clone();
    turned.reverse();
    assert_eq!(methods(&turned), expected);
    let [a, b] = [&all, &turned].map(|records| report(records, &[], &spec()).unwrap());
    assert_eq!(a, b);
    let markdown = String::from_utf8(a.file("report.md").unwrap().to_vec()).unwrap();
    markdown.must_have("2 runs are part of several experiments and shown in each: one, two.");
    // Both seeds of rope are there, under both names.
    for name in ["one: rope", "two: rope"] {
        let runs = markdown
            .split("### Methods\n")
            .nth(1)
            .unwrap()
            .lines()
            .find(|line| line.starts_with(&format!("| {name} |")))
            .unwrap();
        runs.must_have("| 0: ");
        runs.must_have(", 1: ");
    }
}

#[test]
fn one_run_with_other_numbers_is_an_error_that_names_it() {
    let mut records = copy_experiment(2);
    let mut other = records[0].clone();
    other.evals[1].metrics.get_mut("exact_match").unwrap().value = 0.25;
    records.push(other.clone());
    let error = report(&records, &[], &spec()).unwrap_err();
    assert!(matches!(error, ReportError::Conflict { .. }));
    let text = error.to_string();
    text.must_have(&other.run_id);
    text.must_have("trained at 16");
    // So it is in another experiment, and under another id with the same spec and seed.
    other.experiment = "elsewhere".into();
    *records.last_mut().unwrap() = other.clone();
    report(&records, &[], &spec())
        .unwrap_err()
        .to_string()
        .must_have("copy and elsewhere");
    other.run_id = hex("another id");
    *records.last_mut().unwrap() = other;
    assert!(report(&records, &[], &spec()).is_err());
}

/// A later evaluation of a run at one length under one variant.
fn evaluated(run: &RunRecord, variant: &str, len: usize, encoding: Value, score: f64) -> RunRecord {
    let mut later = run.clone();
    later.evaluation_of = Some(run.run_id.clone());
    later.run_id = hex(&format!("{} {variant} {len} {encoding}", run.run_id));
    later.evals = vec![ok_row(
        variant,
        len,
        &[
            ("exact_match", score),
            ("token_accuracy", score),
            ("loss_nats", 0.1),
        ],
    )];
    later.spec["eval"]["test_lens"] = json!([len]);
    later.spec["eval"]["variants"] = json!([{ "name": variant, "pe": [encoding] }]);
    later
}

fn first_table(records: &[RunRecord]) -> Vec<Vec<String>> {
    let report = report(records, &[], &spec()).unwrap();
    let markdown = String::from_utf8(report.file("report.md").unwrap().to_vec()).unwrap();
    let table = markdown
        .split("### exact_match by test length\n")
        .nth(1)
        .unwrap();
    let rows = table
        .trim_start()
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split(" | ")
            .map(|c| c.trim().replace('\\', ""))
            .collect()
    };
    rows.filter(|row| !row.contains("---")).map(cells).collect()
}

#[test]
fn later_evaluations_add_rows_to_their_runs() {
    let mut records: Vec<RunRecord> = copy_experiment(1)
        .into_iter()
        .filter(|r| r.labels[0].text == "rope")
        .collect();
    records.iter_mut().for_each(describe);
    let trained = records[0].spec["model"]["pe"].clone();
    records.push(evaluated(&records[0], "trained", 256, trained, 0.125));
    let yarn =
        |factor: f64| json!({ "kind": "rope", "scaling": { "kind": "yarn", "factor": factor } });
    records.push(evaluated(&records[0], "yarn", 64, yarn(4.0), 0.5));
    records.push(evaluated(&records[0], "yarn", 256, yarn(16.0), 0.25));
    // Another encoding under the name of one that is there is another method.
    let ntk = json!({ "kind": "rope", "scaling": { "kind": "ntk", "factor": 8.0 } });
    records.push(evaluated(&records[0], "yarn", 128, ntk, 0.75));
    let table = first_table(&records);
    let rows: Vec<(&str, &str, &str)> = table
        .iter()
        .map(|r| (r[0].as_str(), r[4].as_str(), r[6].as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            ("method", "64", "256"),
            ("rope", "0.000", "0.125"),
            ("rope + yarn", "0.500", "0.250"),
            ("rope + yarn [scaling.kind = ntk]", "-", "-")
        ]
    );
    records.reverse();
    assert_eq!(first_table(&records), table);
    // A number that follows the length in no simple way is of one method where a record says that
    // it was computed for the length. A fixed one is of another.
    let grouped = |len: usize, group: usize, computed: bool| {
        let encoding = json!({ "kind": "self_extend", "window": 16, "group": group });
        let run = records.iter().find(|r| r.evaluation_of.is_none()).unwrap();
        let mut later = evaluated(run, "self_extend", len, encoding, 0.5);
        if computed {
            let keys = [("self_extend".to_owned(), vec!["group".to_owned()])];
            later.by_length = keys.into();
        }
        later
    };
    let with = |later: [RunRecord; 3]| {
        let table = first_table(&[&records[..], &later].concat());
        let rows = table.into_iter().map(|mut row| row.remove(0));
        let rows = rows.filter(|name| name.contains("self extend"));
        rows.collect::<Vec<_>>()
    };
    let [short, long] = [grouped(64, 3, true), grouped(128, 7, true)];
    let name = "rope + self extend";
    assert_eq!(
        with([short.clone(), long.clone(), grouped(256, 14, true)]),
        [name]
    );
    let fixed = with([short, long, grouped(256, 7, false)]);
    assert_eq!(fixed.len(), 2, "{fixed:?}");
    // Records of versions before say nothing.
    let before = [(64, 3), (128, 7), (256, 14)].map(|(len, group)| grouped(len, group, false));
    assert_eq!(with(before).len(), 3);
    // One that measures more is of the same method, and its row is shown.
    let run = records.iter().find(|r| r.evaluation_of.is_none()).unwrap();
    let mut measured = run.clone();
    measured.evaluation_of = Some(run.run_id.clone());
    measured.run_id = hex("measured");
    measured.spec["eval"]["attention_distance"] = json!(true);
    let metric = *measured.evals[0].metrics.values().next().unwrap();
    measured.evals.retain(|row| row.test_len <= 64);
    for row in &mut measured.evals {
        row.metrics.insert("attention_distance_1_1".into(), metric);
    }
    let with = [records.clone(), vec![measured]].concat();
    assert_eq!(first_table(&with), table);
    let shown = report(&with, &[], &spec()).unwrap();
    let shown = String::from_utf8(shown.file("report.md").unwrap().to_vec()).unwrap();
    // At the longest length where it is recorded, which is not the longest that was tested.
    assert!(shown.contains("mean attention distance by head at 64"));
    assert!(shown.contains("Mean attention distance by test length"));
    assert!(!shown.contains("by head at 256"));
    // An evaluation with another decoding is a separate method. An evaluation of other weights is
    // left out.
    let mut greedy = evaluated(&records[3], "trained", 64, json!({ "kind": "rope" }), 0.9);
    records
        .iter()
        .find(|r| r.evaluation_of.is_none())
        .unwrap()
        .clone_into(&mut greedy);
    greedy.evaluation_of = Some(greedy.run_id.clone());
    greedy.run_id = hex("greedy");
    greedy.spec["eval"]["decode"] = json!("greedy");
    let with = methods(&[records.clone(), vec![greedy.clone()]].concat());
    assert!(
        with.contains(&"rope [eval.decode = greedy]".into()) && with.contains(&"rope".into()),
        "{with:?}"
    );
    greedy.model.weights_blake3 = hex("other weights");
    greedy.spec["eval"]
        .as_object_mut()
        .unwrap()
        .remove("decode");
    assert_eq!(first_table(&[records, vec![greedy]].concat()), table);
}

#[test]
fn later_scores_of_other_numbers_of_last_tokens_are_other_methods() {
    let mut runs = copy_experiment(2);
    runs.truncate(2);
    runs.iter_mut().for_each(describe);
    let trained = runs[0].spec["model"]["pe"].clone();
    let methods = |ours: Option<u64>, counts: &[u64]| -> usize {
        let mut records = Vec::new();
        for run in &runs {
            let mut run = run.clone();
            run.spec["eval"]["last_tokens"] = json!(ours);
            for count in counts {
                let len = 64 * *count as usize;
                let mut later = evaluated(&run, "trained", len, trained.clone(), 0.25);
                // The ids of the two seeds put their evaluations in opposite orders.
                let is_first = (*count == 4) == (run.seed == 1);
                let start = if is_first { "0" } else { "f" };
                later.run_id.replace_range(..1, start);
                later.spec["eval"]["last_tokens"] = json!(count);
                records.push(later);
            }
            records.push(run);
        }
        first_table(&records).len() - 1
    };
    assert_eq!((methods(Some(4), &[4]), methods(None, &[4])), (1, 1));
    assert_eq!((methods(Some(4), &[8]), methods(None, &[4, 8])), (2, 2));
    // One of other weights decides nothing.
    let mut records = runs.clone();
    for (run, count) in [(0, 8), (1, 8), (0, 4)] {
        let mut later = evaluated(&runs[run], "trained", 64 * count, trained.clone(), 0.25);
        later.spec["eval"]["last_tokens"] = json!(count);
        if count == 4 {
            later.model.weights_blake3 = hex("other weights");
        }
        records.push(later);
    }
    assert_eq!(first_table(&records).len(), 2);
}

#[test]
fn experiments_on_other_tasks_have_tables_of_their_own() {
    let experiments = |key: &str, value: Value| -> Vec<RunRecord> {
        let mut first = copy_experiment(2);
        first.iter_mut().for_each(describe);
        let mut second = first.clone();
        for run in &mut second {
            run.experiment = "second".into();
            run.run_id = hex(&format!("second {}", run.run_id));
            run.spec["task"][key] = value.clone();
        }
        [first, second].concat()
    };
    let page = |records: &[RunRecord]| {
        let report = report(records, &[], &spec()).unwrap();
        String::from_utf8(report.file("report.md").unwrap().to_vec()).unwrap()
    };
    page(&experiments("hints", json!(24))).must_have("experiment second\n");
    // How much of a task is tested is no other task.
    for key in ["test_rows", "max_bytes"] {
        let page = page(&experiments(key, json!(512)));
        assert!(!page.contains("experiment second\n"), "{key}");
    }
}

#[test]
fn a_later_factor_off_the_line_of_the_others_is_another_method() {
    let mut run = copy_experiment(1).remove(0);
    describe(&mut run);
    let yarn =
        |factor: f64| json!({ "kind": "rope", "scaling": { "kind": "yarn", "factor": factor } });
    run.spec["eval"]["test_lens"] = json!([8, 16, 32]);
    run.spec["eval"]["variants"] =
        json!([{ "name": "yarn", "pe": [yarn(1.0), yarn(1.0), yarn(2.0)] }]);
    run.evals
        .iter_mut()
        .for_each(|row| row.variant = "yarn".into());
    let methods = |factor: f64| -> Vec<String> {
        let later = evaluated(&run, "yarn", 64, yarn(factor), 0.25);
        let table = first_table(&[run.clone(), later]);
        table.into_iter().map(|row| row[0].clone()).collect()
    };
    assert_eq!(methods(4.0), ["method", "rope + yarn"]);
    assert_eq!(
        methods(2.0),
        ["method", "rope + yarn", "rope + yarn [scaling.factor = 2]"]
    );
    // A later factor that follows the length, beside a fixed one in the config.
    run.spec["eval"]["variants"] =
        json!([{ "name": "yarn", "pe": [yarn(8.0), yarn(8.0), yarn(8.0)] }]);
    let mut later = evaluated(&run, "yarn", 32, yarn(2.0), 0.25);
    let mut row = later.evals[0].clone();
    row.test_len = 64;
    later.evals.push(row);
    later.spec["eval"]["test_lens"] = json!([32, 64]);
    later.spec["eval"]["variants"] = json!([{ "name": "yarn", "pe": [yarn(2.0), yarn(4.0)] }]);
    let table = first_table(&[run.clone(), later]);
    let names: Vec<&str> = table.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(
        names,
        [
            "method",
            "rope + yarn",
            "rope + yarn [scaling.factor by length]"
        ]
    );
}

#[test]
fn a_task_on_an_axis_names_the_setting_and_not_the_method() {
    let run = |task: &str, of: TaskFacts| {
        let labels = [
            ("task", json!({ "kind": task })),
            ("model.pe", json!("rope")),
        ];
        let mut run = record("tasks", &labels, 0, of);
        run.run_id = hex(task);
        run.evals.push(ok_row("trained", 64, &[("loss_nats", 1.0)]));
        run
    };
    let mut other = text_task(64);
    other.kind = "other".into();
    assert_eq!(
        methods(&[run("text", text_task(64)), run("other", other)]),
        ["rope", "rope"]
    );
}

#[test]
fn two_corpora_are_named_by_their_experiments_or_else_by_their_hashes() {
    let run = |corpus: &str| {
        let mut run = record("corpora", &[("model.pe", json!("rope"))], 0, text_task(64));
        run.task.corpus.as_mut().unwrap().blake3 = hex(corpus);
        run.task.corpus.as_mut().unwrap().source = "files: g.txt".into();
        run.spec["corpus_blake3"] = json!(hex(corpus));
        run.run_id = hex(&format!("run {corpus}"));
        run.evals.push(ok_row("trained", 64, &[("loss_nats", 1.0)]));
        run
    };
    let report = report(&[run("a"), run("b")], &[], &spec()).unwrap();
    for corpus in ["a", "b"] {
        let name = format!(
            "text, trained at 64 bytes (files: g.txt, {})",
            &hex(corpus)[..8]
        );
        assert!(report.summary.contains(&name), "{name}: {}", report.summary);
    }
    let in_experiment = |corpus: &str, experiment: &str| {
        let mut run = run(corpus);
        run.experiment = experiment.into();
        run
    };
    let names = |runs: &[RunRecord]| {
        let all: Vec<&RunRecord> = runs.iter().collect();
        let specs = MethodSpecs::new(&all);
        let found = settings(&all, &[], &specs).into_iter().map(|s| s.name);
        found.collect::<Vec<_>>()
    };
    let mut found = names(&[in_experiment("a", "code"), in_experiment("b", "prose")]);
    found.sort();
    let expected = ["code", "prose"].map(|name| format!("text, trained at 64 bytes ({name})"));
    assert_eq!(found, expected);
    // The packages of a corpus of crates are counted: there may be dozens.
    let crates = ["a", "b"].map(|corpus| {
        let mut run = run(corpus);
        run.task.corpus.as_mut().unwrap().source = "cargo: alpha 1.0.0, beta 2.0.0".into();
        run
    });
    let expected = |corpus: &str| {
        let hash = &hex(corpus)[..8];
        format!("text, trained at 64 bytes (2 Rust crates, {hash})")
    };
    let mut found = names(&crates);
    found.sort();
    let mut all = ["a", "b"].map(expected);
    all.sort();
    assert_eq!(found, all);
    // An experiment with both corpora names neither.
    let both = [
        in_experiment("a", "code"),
        in_experiment("b", "code"),
        in_experiment("b", "prose"),
    ];
    assert!(
        names(&both)
            .iter()
            .all(|name| name.contains("files: g.txt"))
    );
}

#[test]
fn a_sweep_over_the_base_holds_nothing_else() {
    let run = |base: f64, layout: &str| {
        let mut run = record("sweep", &[("model.pe.base", json!(base))], 0, copy_task(16));
        run.spec["model"]["pe"] = json!({ "kind": "rope", "base": base, "layout": layout });
        run.run_id = hex(&format!("{base} {layout}"));
        run.evals
            .push(ok_row("trained", 16, &[("exact_match", 1.0)]));
        run
    };
    let sweeps = |records: &[RunRecord]| {
        let report = report(records, &[], &spec()).unwrap();
        let markdown = String::from_utf8(report.file("report.md").unwrap().to_vec()).unwrap();
        markdown.matches("\n### model.pe.base").count()
    };
    assert_eq!(sweeps(&[run(100.0, "half"), run(1000.0, "half")]), 1);
    // The config was edited between the two, so more than the base differs.
    assert_eq!(sweeps(&[run(100.0, "half"), run(1000.0, "interleaved")]), 0);
    let both = ["half", "interleaved"]
        .map(|layout| [run(100.0, layout), run(1000.0, layout)])
        .concat();
    assert_eq!(sweeps(&both), 2);
}
