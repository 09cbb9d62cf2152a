//! Which experiments share a table.

use crate::common::*;
use longreach_report::{Format, ReportSpec, report};
use records::record::RunRecord;
use serde_json::{Value, json};

/// An experiment on copying with these methods, one seed each.
fn copying(experiment: &str, methods: &[&str]) -> Vec<RunRecord> {
    let run = |pe: &&str| {
        let mut run = record(experiment, &[("model.pe", json!(pe))], 0, copy_task(16));
        for (len, value) in [(16, 0.9), (32, 0.5)] {
            let row = ok_row("trained", len, &[("exact_match", value)]);
            run.evals.push(row);
        }
        run
    };
    methods.iter().map(run).collect()
}

/// The same with another value of its spec.
fn with(mut runs: Vec<RunRecord>, section: &str, key: &str, value: &Value) -> Vec<RunRecord> {
    for run in &mut runs {
        run.spec[section][key] = value.clone();
        run.run_id = hex(&format!("{} {key} {value}", run.run_id));
    }
    runs
}

/// What names the tables of all these experiments beside task and training length.
fn tables(experiments: &[Vec<RunRecord>]) -> Vec<String> {
    let spec = ReportSpec {
        formats: [Format::Md].into(),
        ..Default::default()
    };
    let report = report(&experiments.concat(), &[], &spec).unwrap();
    let page = String::from_utf8(report.file("report.md").unwrap().to_vec()).unwrap();
    let named = |line: &str| {
        let line = line.strip_prefix("## ")?;
        let rest = line.strip_prefix("copy, trained at 16 symbols")?;
        Some(rest.trim_start_matches(", ").to_owned())
    };
    page.lines().filter_map(named).collect()
}

#[test]
fn experiments_of_one_budget_and_task_share_a_table() {
    let (a, b) = (copying("a", &["rope", "t5"]), copying("b", &["alibi"]));
    assert_eq!(tables(&[a.clone(), b.clone()]), [""]);
    let steps = with(b.clone(), "train", "steps", &json!(500));
    assert_eq!(tables(&[a.clone(), steps]), ["500 steps", "2,000 steps"]);
    let rows = with(b.clone(), "train", "batch_size", &json!(8));
    let named = ["2,000 steps of 8 rows", "2,000 steps of 32 rows"];
    assert_eq!(tables(&[a.clone(), rows]), named);
    let alphabet = with(b.clone(), "task", "alphabet", &json!(26));
    assert_eq!(tables(&[a.clone(), alphabet]), ["", "experiment b"]);
    // How many rows are tested changes no row.
    let tested = with(b, "task", "test_rows", &json!(100));
    assert_eq!(tables(&[a, tested]), [""]);
}

#[test]
fn an_experiment_that_varies_its_budget_joins_those_of_each() {
    let [a, b, c] =
        [("a", "rope"), ("b", "t5"), ("c", "fire")].map(|(name, pe)| copying(name, &[pe]));
    let short = with(b, "train", "steps", &json!(500));
    let both = [c.clone(), with(c, "train", "steps", &json!(500))].concat();
    assert_eq!(tables(&[a.clone(), short.clone()]).len(), 2);
    assert_eq!(tables(&[a.clone(), short, both.clone()]), [""]);
    // Alone it is one table too.
    assert_eq!(tables(&[both]), [""]);
    // Another budget and another task at once are apart as one with either is.
    let task = with(copying("d", &["fox"]), "task", "alphabet", &json!(26));
    let other = with(task, "train", "steps", &json!(500));
    assert_eq!(tables(&[a, other]), ["500 steps", "2,000 steps"]);
}

#[test]
fn experiments_with_more_methods_than_a_table_compares_are_apart() {
    let names: Vec<String> = (0..33).map(|at| format!("pe{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let of = |first: usize, to: usize| copying(&format!("from{first}"), &names[first..to]);
    assert_eq!(tables(&[of(0, 16), of(16, 32)]), [""]);
    let apart = ["experiment from0", "experiment from16"];
    assert_eq!(tables(&[of(0, 16), of(16, 33)]), apart);
    // One experiment is one table whatever it has.
    assert_eq!(tables(&[of(0, 33)]), [""]);
}
