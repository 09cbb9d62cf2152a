//! The store: whole records or none, and one bad file hides no other.

use crate::common::*;
use records::record::*;
use records::store::{read_record, run_dir, write_jsonl};
use records::{Found, StoreError, find_records};
use std::fs;
use std::path::Path;

fn written(root: &Path, records: &[RunRecord]) {
    for r in records {
        write_record(&run_dir(root, &r.experiment, &r.run_id), r).unwrap();
    }
}

fn find(roots: &[&Path]) -> Found {
    find_records(&roots.iter().map(|p| p.to_path_buf()).collect::<Vec<_>>()).unwrap()
}

#[test]
fn records_survive_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut record = text_experiment().remove(3);
    record.train.final_loss_nats = Some(0.1 + 0.2);
    record.evals[0].metrics.get_mut("loss_nats").unwrap().value = f64::MIN_POSITIVE;
    let path = write_record(dir.path(), &record).unwrap();
    assert_eq!(read_record(&path).unwrap(), record);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("}\n") && text.contains("0.30000000000000004"));
    write_record(dir.path(), &record).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["record.json"]);
}

#[test]
fn every_kind_of_root_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    let all = [text_experiment(), copy_experiment(2)].concat();
    written(dir.path(), &all);
    let whole = find(&[dir.path()]);
    assert_eq!((whole.records.len(), whole.excluded.len()), (all.len(), 0));
    assert_eq!(find(&[&dir.path().join("copy")]).records.len(), 6);
    let run = run_dir(dir.path(), "copy", &whole.records[0].run_id);
    assert_eq!(
        find(&[&run]).records,
        find(&[&run.join("record.json")]).records
    );

    let lines = dir.path().join("experiments/001-x/results.jsonl");
    write_jsonl(&lines, &all).unwrap();
    assert_eq!(find(&[&lines]).records, whole.records);
    // The same runs twice: once.
    assert_eq!(find(&[dir.path(), &lines, &run]), whole);
}

#[test]
fn found_records_are_in_canonical_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = base_experiment();
    all.reverse();
    written(dir.path(), &all);
    let order: Vec<(u64, u64)> = find(&[dir.path()])
        .records
        .iter()
        .map(|r| (r.labels[1].value.as_u64().unwrap(), r.seed))
        .collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(order, sorted);
    assert_eq!(order.len(), 15);
}

#[test]
fn bad_files_are_left_out_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let good = copy_experiment(1);
    written(dir.path(), &good);
    let json = serde_json::to_string(&good[0]).unwrap();
    let bad = [
        ("corrupt", "{ not json".to_string(), "not a record"),
        ("empty", String::new(), "not a record"),
        (
            "truncated",
            json[..json.len() / 2].to_string(),
            "not a record",
        ),
        (
            "newer",
            json.replace("\"schema\":1", "\"schema\":2")
                .replace("\"seed\"", "\"sead\""),
            "schema 2 is newer than this binary's 1",
        ),
        (
            "older",
            json.replace("\"schema\":1", "\"schema\":0"),
            "schema 0 is unknown",
        ),
        (
            "unknown-field",
            json.replacen("\"seed\":", "\"tehta\":1,\"seed\":", 1),
            "unknown field `tehta`",
        ),
        (
            "null",
            json.replacen("\"value\":0.993", "\"value\":null", 1),
            "not a record of schema 1",
        ),
    ];
    for (name, text, _) in &bad {
        let run = dir.path().join("zzz").join(name);
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join("record.json"), text).unwrap();
    }
    let found = find(&[dir.path()]);
    assert_eq!(found.records, find(&[&dir.path().join("copy")]).records);
    assert_eq!(found.excluded.len(), bad.len());
    for (name, _, reason) in &bad {
        let entry = found
            .excluded
            .iter()
            .find(|e| e.path.ends_with(format!("{name}/record.json")))
            .unwrap();
        assert!(entry.reason.contains(reason), "{name}: {}", entry.reason);
    }

    let lines = dir.path().join("mixed.jsonl");
    let line = serde_json::to_string(&good[1]).unwrap();
    fs::write(
        &lines,
        format!("{json}\n\n{{\"schema\":7}}\n{line}\n{}", &line[..40]),
    )
    .unwrap();
    let found = find(&[&lines]);
    assert_eq!(found.records.len(), 2);
    assert_eq!(
        found.excluded.iter().map(|e| e.line).collect::<Vec<_>>(),
        [Some(3), Some(5)]
    );
    read_record(&dir.path().join("zzz/newer/record.json"))
        .unwrap_err()
        .to_string()
        .must_have("newer");
}

#[test]
fn one_run_with_two_sets_of_numbers_is_an_error_that_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let good = copy_experiment(1);
    written(dir.path(), &good);
    let mut other = good[0].clone();
    other.evals[0].metrics.get_mut("exact_match").unwrap().value = 0.5;
    let lines = dir.path().join("results.jsonl");
    write_jsonl(&lines, &[good[1].clone(), other]).unwrap();
    let error = find_records(&[dir.path().to_owned()]).unwrap_err();
    let StoreError::Conflicts(twins) = &error else {
        panic!("{error}")
    };
    assert_eq!((twins.len(), &twins[0].run_id), (1, &good[0].run_id));
    let text = error.to_string();
    let own = run_dir(dir.path(), "copy", &good[0].run_id).join("record.json");
    for part in [
        &own.to_string_lossy(),
        "results.jsonl:2",
        "trained at 8",
        "help:",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // The same from a single file of many, and in whatever order the places are named.
    let mut twice = good.clone();
    twice.push({
        let mut other = good[0].clone();
        other.model.weights_blake3 = hex("other");
        other
    });
    let alone = dir.path().join("alone/results.jsonl");
    write_jsonl(&alone, &twice).unwrap();
    assert!(matches!(
        find_records(std::slice::from_ref(&alone)),
        Err(StoreError::Conflicts(_))
    ));
    assert!(
        gather_records(
            std::slice::from_ref(&alone),
            &dir.path().join("g.jsonl"),
            None
        )
        .is_err()
    );
    assert!(!dir.path().join("g.jsonl").exists());
}

#[test]
fn a_run_of_several_experiments_is_kept_in_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = copy_experiment(1);
    other.iter_mut().for_each(|r| {
        r.experiment = "other".into();
        r.environment.commit = "fedcba9".into();
        r.labels[0].text.push('!');
    });
    let all = [copy_experiment(1), other].concat();
    written(dir.path(), &all);
    let found = find(&[dir.path()]);
    assert_eq!((found.records.len(), found.excluded.len()), (6, 0));
    let [one, two] = ["copy", "other"].map(|name| dir.path().join(name));
    assert_eq!(find(&[&one, &two]).records, find(&[&two, &one]).records);
    assert_eq!(
        found.directories[5],
        Some(run_dir(dir.path(), "other", &found.records[5].run_id))
    );
    let lines = dir.path().join("lines.jsonl");
    assert_eq!(
        gather_records(&[one, two], &lines, None)
            .unwrap()
            .records
            .len(),
        6
    );
    assert_eq!(fs::read_to_string(&lines).unwrap().lines().count(), 6);
}

#[test]
fn a_record_with_more_results_replaces_one_with_fewer() {
    let dir = tempfile::tempdir().unwrap();
    let whole = copy_experiment(1);
    written(dir.path(), &whole);
    let mut less = whole.clone();
    less[0].evals[3] = absent_row("trained", 64, EvalStatus::Skipped, "memory");
    let lines = dir.path().join("a.jsonl");
    write_jsonl(&lines, &less).unwrap();
    for roots in [[dir.path(), &lines], [&lines, dir.path()]] {
        assert_eq!(find(&roots).records, whole_order(&whole), "{roots:?}");
    }
}

fn whole_order(records: &[RunRecord]) -> Vec<RunRecord> {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), records);
    find(&[dir.path()]).records
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut RunRecord)| {
        let mut record = copy_experiment(1).remove(0);
        change(&mut record);
        let error = write_record(&dir.path().join("run"), &record)
            .unwrap_err()
            .to_string();
        error.must_have("not finite");
        assert!(write_jsonl(&dir.path().join("r.jsonl"), &[record]).is_err());
    };
    refused(&|r| r.evals[0].metrics.get_mut("exact_match").unwrap().value = f64::NAN);
    refused(&|r| r.train.final_loss_nats = Some(f64::NAN));
    refused(&|r| r.train.loss_curve[0].loss_nats = f64::INFINITY);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_missing_root_is_an_error_that_names_it() {
    let error = find_records(&["no/such/runs".into()])
        .unwrap_err()
        .to_string();
    error.must_have("no/such/runs");
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_and_depth_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    written(&dir.path().join("runs"), &copy_experiment(1));
    std::os::unix::fs::symlink(dir.path(), dir.path().join("runs/loop")).unwrap();
    let deep = dir.path().join("runs/1/2/3/4/5/6/7/8");
    let other = text_experiment().remove(0);
    write_record(&deep, &other).unwrap();
    write_record(&dir.path().join("runs/.hidden/x"), &other).unwrap();
    let found = find(&[&dir.path().join("runs")]);
    assert_eq!((found.records.len(), found.excluded.len()), (3, 0));
}

#[test]
fn later_evaluations_are_found_beside_the_record_of_their_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = record(
        "x",
        &[("model.pe", serde_json::json!("rope"))],
        0,
        copy_task(8),
    );
    let place = dir.path().join("x").join(&run.run_id);
    write_record(&place, &run).unwrap();
    let evals = place.join("evals");
    fs::create_dir(&evals).unwrap();
    let put = |name: &str, record: &RunRecord| {
        fs::write(evals.join(name), serde_json::to_vec(record).unwrap()).unwrap()
    };
    let evaluation = |id: &str, of: Option<&str>| {
        let mut record = run.clone();
        record.run_id = hex(id);
        record.evaluation_of = of.map(str::to_owned);
        record
    };
    let (new, old) = (
        evaluation("new", Some(&run.run_id)),
        evaluation("old", None),
    );
    put("new.json", &new);
    put("old.json", &old);
    put(".half.json", &evaluation("half", None));
    put("notes.txt", &evaluation("notes", None));
    let found = find(&[dir.path()]);
    assert_eq!(found.excluded, []);
    assert_eq!(found.records.len(), 3);
    let of = |id: &str| {
        found
            .records
            .iter()
            .find(|record| record.run_id == id)
            .unwrap()
            .evaluation_of
            .clone()
    };
    assert_eq!(of(&run.run_id), None);
    assert_eq!(
        [of(&new.run_id), of(&old.run_id)],
        [Some(run.run_id.clone()), Some(run.run_id.clone())]
    );
    // The same wherever the search begins.
    assert_eq!(find(&[&evals, &place.join("record.json")]), found);
    assert_eq!(
        find(&[&evals.join("old.json")]).records[0]
            .evaluation_of
            .as_ref(),
        Some(&run.run_id)
    );
    // The search lists evaluations of other weights, copies of the run's own record, and broken
    // files.
    let mut other = evaluation("other", Some(&run.run_id));
    other.model.weights_blake3 = "00".into();
    put("other.json", &other);
    put(
        "same.json",
        &RunRecord {
            evaluation_of: Some(run.run_id.clone()),
            ..run.clone()
        },
    );
    fs::write(evals.join("broken.json"), "{").unwrap();
    let printed = find(&[dir.path()]);
    assert_eq!(printed.records, found.records);
    let reasons: Vec<&str> = printed
        .excluded
        .iter()
        .map(|excluded| excluded.reason.as_str())
        .collect();
    assert_eq!(reasons.len(), 3);
    reasons[0].must_have("not a record");
    reasons[1].must_have("other weights");
    reasons[2].must_have("own record");
    // No deeper than asked for.
    assert_eq!(
        records::find_records_within(&[dir.path().into()], 1)
            .unwrap()
            .records,
        []
    );
}

#[test]
fn evaluations_of_a_damaged_record_are_left_out_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let labels = [("model.pe", serde_json::json!("rope"))];
    let run = record("x", &labels, 0, copy_task(8));
    let place = dir.path().join("x").join(&run.run_id);
    write_record(&place, &run).unwrap();
    let mut later = run.clone();
    later.run_id = hex("later");
    later.evaluation_of = Some(run.run_id.clone());
    fs::create_dir(place.join("evals")).unwrap();
    let bytes = serde_json::to_vec(&later).unwrap();
    fs::write(place.join("evals/later.json"), bytes).unwrap();
    assert_eq!(find(&[dir.path()]).records.len(), 2);
    fs::write(place.join("record.json"), "{}").unwrap();
    let found = find(&[dir.path()]);
    assert_eq!(found.records, []);
    let reasons = found.excluded.iter().map(|excluded| &excluded.reason);
    let of_evaluations = reasons.filter(|reason| reason.contains("no readable record"));
    assert_eq!((found.excluded.len(), of_evaluations.count()), (2, 1));
}
