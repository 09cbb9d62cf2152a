//! Runs without a number: what was not tested, what diverged, and what is too large for one.

use crate::common::*;
use crate::report::{cells, spec, text};
use longreach_report::{ComparisonSpec, ReportSpec, ScoreComparison, Verdict as Change, report};
use records::RunRecord;
use records::claims::{Claims, Verdict};
use records::record::{Divergence, EvalRow, EvalStatus, RunStatus, TestLength};
use serde_json::{Value, json};

/// Two methods that copy well everywhere, three seeds each.
fn copying() -> Vec<RunRecord> {
    let good = [[1.0, 0.99, 0.98, 0.96]; 3];
    let worse = [[1.0, 0.99, 0.50, 0.40]; 3];
    scores(&[("a", &good), ("b", &worse)])
}

/// Two methods on text.
fn on_text() -> Vec<RunRecord> {
    let run = |pe: &str, seed: u64, losses: [f64; 2]| {
        let mut run = record("text", &[("model.pe", json!(pe))], seed, text_task(64));
        run.evals = [64, 128]
            .into_iter()
            .zip(losses)
            .map(|(len, nats)| ok_row("trained", len, &[("loss_nats", nats + 0.001 * seed as f64)]))
            .collect();
        run
    };
    let seeds = |pe, losses| (0..3).map(move |seed| run(pe, seed, losses));
    let all = seeds("a", [1.0, 1.1]).chain(seeds("b", [2.0, 2.1]));
    all.collect()
}

fn of<'r>(records: &'r mut [RunRecord], method: &str, seed: u64) -> &'r mut RunRecord {
    let mut all = records.iter_mut();
    all.find(|run| run.labels[0].text == method && run.seed == seed)
        .unwrap()
}

fn row(run: &mut RunRecord, len: usize) -> &mut EvalRow {
    let mut rows = run.evals.iter_mut();
    rows.find(|row| row.test_len == len).unwrap()
}

fn diverge(run: &mut RunRecord) {
    run.status = RunStatus::Diverged;
    run.diverged = Some(Divergence {
        step: 4,
        what: "loss".into(),
        batch: None,
    });
    run.evals.clear();
}

fn markdown(records: &[RunRecord]) -> String {
    text(&report(records, &[], &spec()).unwrap(), "report.md")
}

fn reach(records: &[RunRecord], method: &str) -> String {
    let table = cells(&markdown(records), "Reach");
    table.iter().find(|row| row[0] == method).unwrap()[1].clone()
}

fn claim(value: Value) -> Claims {
    let mut claim = json!({ "source": "s", "text": "t", "metric": "exact_match" });
    claim
        .as_object_mut()
        .unwrap()
        .extend(value.as_object().unwrap().clone());
    serde_json::from_value(json!({ "claim": [claim] })).unwrap()
}

fn verdict(value: Value, records: &[RunRecord]) -> Verdict {
    claim(value).evaluate_records(records)[0].verdict
}

#[test]
fn a_length_that_memory_left_out_was_not_tested() {
    let mut records = copying();
    for seed in 0..3 {
        let run = of(&mut records, "a", seed);
        *row(run, 64) = absent_row("trained", 64, EvalStatus::Skipped, "memory");
    }
    assert_eq!(reach(&records, "a"), "≥ 2x (32)");
    markdown(&records).must_have("a (not tested further) holds up to 32 symbols (2x that length)");
    // One that diverged there was tested.
    for seed in 0..3 {
        let run = of(&mut records, "a", seed);
        *row(run, 64) = absent_row("trained", 64, EvalStatus::Diverged, "");
    }
    assert_eq!(reach(&records, "a"), "2x (32)");
}

#[test]
fn a_seed_without_a_score_in_length_does_not_end_the_reach_of_the_others() {
    let mut records = copying();
    let run = of(&mut records, "a", 1);
    *row(run, 16) = absent_row("trained", 16, EvalStatus::Diverged, "");
    let whole = reach(&copying(), "a");
    assert_eq!(reach(&records, "a"), whole);
}

#[test]
fn a_training_that_diverged_has_not_learned() {
    let mut records = copying();
    diverge(of(&mut records, "a", 1));
    let page = markdown(&records);
    page.must_have("a: 2 of 3 seeds learned: training diverged (seed 1)");
    diverge(of(&mut records, "a", 2));
    assert_eq!(reach(&records, "a"), "not converged");
    diverge(of(&mut records, "a", 0));
    assert_eq!(reach(&records, "a"), "not converged");
}

/// It says nothing of its method where the other seeds were not tested in length.
#[test]
fn a_training_that_diverged_is_no_seed_where_nothing_was_tested_in_length() {
    let mut records = copying();
    for run in &mut records {
        run.evals.retain(|row| row.test_len > run.task.train_len);
    }
    diverge(of(&mut records, "a", 1));
    let page = markdown(&records);
    assert!(!page.contains("seeds learned"), "{page}");
}

#[test]
fn seeds_whose_score_is_not_finite_are_not_passed_over() {
    let better = json!({ "kind": "better", "methods": ["a"], "than": ["b"], "lengths": [128],
        "metric": "perplexity" });
    let mut records = on_text();
    assert_eq!(verdict(better.clone(), &records), Verdict::Agrees);
    let before = records.clone();
    row(of(&mut records, "a", 2), 128)
        .metrics
        .get_mut("loss_nats")
        .unwrap()
        .value = 900.0;
    let outcome = claim(better).evaluate_records(&records).remove(0);
    assert_eq!(outcome.verdict, Verdict::Undecided);
    let said = outcome.numbers[0].text();
    assert!(
        said.ends_with("at 128: 2 of 3 seeds have a finite score"),
        "{said}"
    );
    // Where it would be on the claim's side it changes nothing.
    let worse = json!({ "kind": "ratio_above", "methods": ["a"], "lengths": [128], "value": 1.05,
        "metric": "perplexity" });
    assert_eq!(verdict(worse, &records), Verdict::Agrees);
    let against = json!({ "kind": "ratio_above", "methods": ["a"], "lengths": [128], "value": 1.5,
        "metric": "perplexity" });
    assert_eq!(verdict(against, &records), Verdict::Undecided);
    // Nor is the rest of the seeds equal to what they were.
    let spec = ComparisonSpec::default();
    let sides = ScoreComparison::of(("before", &before), ("after", &records), &spec).unwrap();
    assert_eq!(
        (sides.count(Change::Lost), sides.count(Change::Equal)),
        (1, 3)
    );
    assert!(sides.has_regressed());
}

#[test]
fn intervals_too_wide_for_numbers_end_no_report() {
    let mut records = on_text();
    records.retain(|run| run.seed < 2);
    for (seed, loss) in [(0, 5.0), (1, 140.0)] {
        row(of(&mut records, "a", seed), 128)
            .metrics
            .get_mut("loss_nats")
            .unwrap()
            .value = loss;
    }
    let spec = ReportSpec {
        claims: claim(
            json!({ "kind": "below", "methods": ["a"], "lengths": [128], "value": 4.0,
            "metric": "perplexity" }),
        ),
        ..spec()
    };
    let page = text(&report(&records, &[], &spec).unwrap(), "report.md");
    page.must_have("n = 2, too wide an interval, the mean does not");
    assert!(!page.contains("one seed"), "{page}");
}

#[test]
fn every_run_has_the_bytes_of_its_own_tokens() {
    let mut records = on_text();
    for seed in 0..3 {
        let run = of(&mut records, "b", seed);
        run.task.bytes_per_token = Some(2.0);
    }
    let csv = text(&report(&records, &[], &spec()).unwrap(), "results.csv");
    let line = csv
        .lines()
        .find(|l| l.contains(",b,") && l.contains(",64,bits_per_byte,"));
    let value = 2.0 / std::f64::consts::LN_2 / 2.0;
    let digits = format!(",{}", value.to_string().split_at(8).0);
    line.unwrap().must_have(&digits);
}

#[test]
fn an_evaluation_by_itself_does_not_move_the_length_of_others() {
    let mut records = on_text();
    let before = reach(&records, "a");
    let mut later = records[0].clone();
    later.evaluation_of = Some(hex("elsewhere")[..16].to_owned());
    later.run_id = hex("later")[..16].to_owned();
    later.spec["eval"]["seed"] = json!(99);
    later.evals = vec![ok_row("trained", 32, &[("loss_nats", 1.0)])];
    records.push(later);
    let page = markdown(&records);
    let table = cells(&page, "Reach");
    let own = table
        .iter()
        .find(|row| row[0].starts_with('a') && row[1] == before);
    assert!(own.is_some() && table[0][2].ends_with("/64"), "{table:?}");
}

#[test]
fn a_diverged_seed_stays_with_its_method_where_ranges_clash() {
    let mut records = copying();
    let mut others = copying();
    for run in &mut others {
        run.run_id = hex(&format!("other {}", run.run_id));
        run.experiment = "ranged".into();
        run.seed += 3;
        row(run, 64).from_len = Some(33);
    }
    diverge(of(&mut others, "a", 4));
    records.extend(others);
    let page = markdown(&records);
    assert!(!page.contains("not tested there"), "{page}");
    page.must_have("2 of 3 seeds learned: training diverged (seed 4)");
}

#[test]
fn a_length_and_a_range_that_ends_there_are_not_compared() {
    let (before, mut after) = (copying(), copying());
    for run in &mut after {
        row(run, 64).from_len = Some(33);
    }
    let spec = ComparisonSpec::default();
    let sides = ScoreComparison::of(("before", &before), ("after", &after), &spec).unwrap();
    assert_eq!(
        sides.settings[0].lengths_only_first,
        [TestLength { to: 64, from: None }]
    );
    assert!(!sides.covers_first());
}

/// As after `longreach eval` of some methods at a longer length.
fn drop_row(run: &mut RunRecord, len: usize) {
    run.evals.retain(|row| row.test_len != len);
}

#[test]
fn the_best_of_the_methods_tested_is_not_called_the_best_of_all() {
    let mut records = [copying(), scores(&[("c", &[[1.0, 0.99, 0.97, 0.45]; 3])])].concat();
    markdown(&records).must_have("At 64 the best exact match is that of a (0.960");
    for seed in 0..3 {
        drop_row(of(&mut records, "c", seed), 64);
    }
    let page = markdown(&records);
    page.must_have("At 64 (2 of 3 methods tested) the highest exact match is that of a (0.960");
    let table = cells(&page, "exact_match by test length");
    assert!(table.iter().all(|row| !row[4].contains('*')), "{table:?}");
}

#[test]
fn methods_that_may_hold_further_than_the_next_one_are_named() {
    let next = [[1.0, 0.99, 0.98, 0.30]; 3];
    let mut records = [copying(), scores(&[("c", &[[1.0, 0.99, 0.97, 0.95]; 3])])].concat();
    for (seed, values) in next.iter().enumerate() {
        let run = of(&mut records, "b", seed as u64);
        for (len, value) in [8, 16, 32, 64].into_iter().zip(values) {
            row(run, len).metrics.get_mut("exact_match").unwrap().value = *value;
        }
        // Not tested past the training length but at 24.
        let run = of(&mut records, "c", seed as u64);
        row(run, 32).test_len = 24;
        drop_row(run, 64);
    }
    let page = markdown(&records);
    page.must_have("Next is b, up to 2x");
    page.must_have(". c (tested to 1.5x) may hold further. At 64");
    let file = text(&report(&records, &[], &spec()).unwrap(), "summaries.csv");
    let bound = |method: &str| {
        let mut lines = file.lines();
        let line = lines.find(|line| line.contains(&format!(",{method},,reach,")));
        line.unwrap().rsplit(',').next().unwrap().to_owned()
    };
    assert_eq!(["a", "b", "c"].map(bound), ["at least", "", "at least"]);
}

#[test]
fn no_line_joins_a_mean_over_some_seeds_that_were_tested() {
    let figure = |records: &[RunRecord]| {
        let made = report(records, &[], &spec()).unwrap();
        let has_64 = text(&made, "exact-match-by-length.svg").contains(">64<");
        let not_drawn = "Not drawn: points for which some seeds of a method were not tested.";
        (has_64, text(&made, "report.md").contains(not_drawn))
    };
    let mut records = copying();
    assert_eq!(figure(&records), (true, false));
    // One that diverged was tested.
    for method in ["a", "b"] {
        let run = of(&mut records, method, 0);
        *row(run, 64) = absent_row("trained", 64, EvalStatus::Diverged, "");
    }
    assert_eq!(figure(&records), (true, false));
    for method in ["a", "b"] {
        drop_row(of(&mut records, method, 1), 64);
    }
    assert_eq!(figure(&records), (false, true));
}

#[test]
fn a_claim_is_about_the_lengths_that_its_methods_were_tested_at() {
    let mut records = copying();
    for seed in 0..3 {
        drop_row(of(&mut records, "a", seed), 64);
    }
    let past = |kind: &str, methods: Value| json!({ "kind": kind, "methods": methods, "lengths": [">1x"], "value": 0.9 });
    assert_eq!(
        verdict(past("above", json!(["a"])), &records),
        Verdict::Agrees
    );
    assert_eq!(
        verdict(past("holds_to", json!(["a"])), &records),
        Verdict::Agrees
    );
    assert_eq!(
        verdict(past("above", json!(["b"])), &records),
        Verdict::Disagrees
    );
    // A length that is named must be tested.
    let named = json!({ "kind": "above", "methods": ["a"], "lengths": [64], "value": 0.9 });
    assert_eq!(verdict(named, &records), Verdict::NotTested);
}

#[test]
fn a_baseline_that_a_setting_lacks_is_told() {
    let mut records = copying();
    for run in records.iter_mut().filter(|run| run.labels[0].text == "b") {
        run.task.train_len = 8;
        run.spec["train"]["train_len"] = json!(8);
    }
    let spec = ReportSpec {
        baseline: Some("a".into()),
        ..spec()
    };
    let page = text(&report(&records, &[], &spec).unwrap(), "report.md");
    page.must_have("No method here is named \"a\": no differences.");
}
