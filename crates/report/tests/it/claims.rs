//! Claims and assertions: what the records say to each is what a reader would compute by hand.

use crate::common::*;
use longreach_report::{ReportSpec, report};
use proptest::prelude::*;
use records::RunRecord;
use records::claims::{
    AssertionResult, Assertions, Claim, Claims, ExperimentSetting, Outcome, Power, Verdict,
    experiment_settings,
};
use records::names::Names;
use records::record::EvalStatus;
use serde_json::{Value, json};

/// `value` with more fields, or others.
fn with(mut value: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    value.as_object_mut().unwrap().extend(more);
    value
}

fn claim(value: Value) -> Claim {
    let all = json!({ "source": "Somebody, table 1", "text": "a claim", "metric": "exact_match" });
    serde_json::from_value(with(all, value)).unwrap()
}

fn claims(list: Vec<Claim>) -> Claims {
    Claims {
        claims: list,
        ..Claims::default()
    }
}

fn outcome(value: Value, records: &[RunRecord]) -> Outcome {
    let mut outcomes = claims(vec![claim(value)]).evaluate_records(records);
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

fn verdict(value: Value, records: &[RunRecord]) -> Verdict {
    outcome(value, records).verdict
}

fn spec_of(claims: Claims) -> ReportSpec {
    ReportSpec {
        claims,
        ..ReportSpec::default()
    }
}

/// Trained at 16, tested at 8, 16, 32 and 64. The seeds of a and b differ more than a and b do; c
/// did not learn the task.
fn three() -> Vec<RunRecord> {
    scores(&[
        (
            "a",
            &[
                [1.0, 1.0, 0.95, 0.80],
                [1.0, 1.0, 0.75, 0.60],
                [1.0, 0.98, 0.85, 0.70],
            ],
        ),
        (
            "b",
            &[
                [1.0, 1.0, 0.90, 0.10],
                [1.0, 1.0, 0.70, 0.10],
                [1.0, 0.98, 0.80, 0.10],
            ],
        ),
        (
            "c",
            &[
                [0.9, 0.7, 0.10, 0.00],
                [0.9, 0.6, 0.10, 0.00],
                [0.9, 0.8, 0.10, 0.00],
            ],
        ),
    ])
}

/// Numbers of one table, each with its seeds, beside ours of [`three`].
fn seeds_of(fitted: Option<f64>) -> Claims {
    let number = |method: &str, length: usize, value: f64, seeds: [f64; 2]| json!({ "method": method, "length": length, "value": value, "seeds": seeds });
    let mut table = json!({ "source": "s, table 1", "metric": "exact_match", "fitted": fitted, "numbers": [
        number("a", 32, 0.8, [0.7, 0.9]), number("b", 32, 0.91, [0.9, 0.92]), number("d", 32, 0.5, [0.5, 0.5]),
        { "method": "c", "length": 16, "value": 0.7 }
    ] });
    table["experiment"] = three()[0].experiment.clone().into();
    let mut other = table.clone();
    other["experiment"] = "another".into();
    let published = [table, other].map(|table| serde_json::from_value(table).unwrap());
    Claims {
        published: published.into(),
        ..Claims::default()
    }
}

fn places(records: &[RunRecord]) -> Vec<ExperimentSetting<'_>> {
    experiment_settings(records, Names::default())
}

#[test]
fn a_claim_finds_a_method_by_a_label_that_some_of_its_seeds_have() {
    let mut records = three();
    let ours = records.iter_mut().filter(|run| run.labels[0].text == "a");
    for run in ours.filter(|run| run.seed > 0) {
        // Of a longer axis, and too long for a name.
        run.labels[0].text = format!("a(part={})", "x".repeat(200));
    }
    let long = records.iter().find(|run| run.labels[0].text.len() > 1);
    let long = long.unwrap().labels[0].text.clone();
    for name in [long.as_str(), "a"] {
        let better = json!({ "kind": "better", "methods": [name], "than": ["b"], "lengths": [64] });
        assert_eq!(verdict(better, &records), Verdict::Agrees, "{name}");
    }
    let none = json!({ "kind": "better", "methods": ["d"], "than": ["c"], "lengths": [64] });
    assert_eq!(verdict(none, &records), Verdict::NotTested);
}

#[test]
fn a_name_that_no_record_has_is_told_though_the_claim_is_tested() {
    let claim =
        claim(json!({ "kind": "better", "methods": ["a"], "than": ["c", "d"], "lengths": [32] }));
    let spec = spec_of(claims(vec![claim]));
    let page = text(&three(), &spec, "report.md");
    page.must_have("0 not tested");
    page.must_have("no method \"d\"; the records have a, b, c.");
}

#[test]
fn a_claim_counts_every_seed_beside_later_evaluations_in_any_order() {
    let mut records = three();
    // Evaluated later at lengths with which another seed was trained: the ids are equal.
    let mut later = records[0].clone();
    later.evaluation_of = Some(later.run_id.clone());
    later.run_id.clone_from(&records[1].run_id);
    later.evals = vec![ok_row("trained", 128, &[("exact_match", 0.5)])];
    records.push(later);
    let value = json!({ "kind": "above", "methods": ["a"], "lengths": [64], "value": 0.3 });
    for _ in 0..2 {
        let found = outcome(value.clone(), &records);
        assert_eq!(found.numbers[0].estimate.unwrap().n, 3);
        records.reverse();
    }
}

#[test]
fn a_claim_without_a_number_says_what_is_missing() {
    let mut records = three();
    records.iter_mut().for_each(|run| run.task.chance.clear());
    let value = json!({ "kind": "near_chance", "methods": ["a"], "lengths": [64], "value": 0.1 });
    let found = outcome(value, &records);
    assert_eq!(found.verdict, Verdict::NotTested);
    found.numbers[0].text().must_have("guessing has no score");
}

#[test]
fn two_names_of_one_method_are_not_compared() {
    let mut aliased = claims(vec![claim(
        json!({ "kind": "better", "methods": ["one"], "than": ["a", "b"], "lengths": [32] }),
    )]);
    aliased.aliases.insert("one".into(), vec!["a".into()]);
    let records = three();
    let outcomes = aliased.evaluate(&experiment_settings(&records, Names(&[])));
    let texts: Vec<String> = outcomes[0].numbers.iter().map(|n| n.text()).collect();
    assert_eq!(texts[0], "one and a: both names are of one method");
    assert!(texts[1].starts_with("exact_match of a minus that of b at 32: "));
}

#[test]
fn published_numbers_that_match_nothing_are_told() {
    let records = three();
    let settings = experiment_settings(&records, Names(&[]));
    let numbers = json!([{ "method": "a", "length": 32, "value": 0.5 }]);
    let unmatched = |more: Value| {
        let table = json!({ "source": "s", "metric": "exact_match", "numbers": numbers });
        let table = with(table, more);
        let claims: Claims = serde_json::from_value(json!({ "published": [table] })).unwrap();
        claims.unmatched(&settings).pop().map(|(_, what)| what)
    };
    assert_eq!(unmatched(json!({})), None);
    let cases = cases! {
        json!({ "experiment": "x" }), "no experiment \"x\"; the records have";
        json!({ "tasks": ["x"] }), "no task [\"x\"]; the records have";
        json!({ "metric": "x" }), "no metric \"x\"; the records have";
        json!({ "numbers": [{ "method": "x", "length": 32, "value": 1 }] }),
            "none of its methods; the records have a, b, c";
        json!({ "numbers": [{ "method": "a", "length": 33, "value": 1 }] }),
            "not tested at 33; tested at 8, 16, 32, 64";
        json!({ "numbers": [{ "method": "a", "length": "501..1000", "value": 1 }], "train_len": 500 }),
            "not tested at 501..1000 (16..32 here); tested at 8, 16, 32, 64";
    };
    for (more, said) in cases {
        let found = unmatched(more.clone()).unwrap_or_default();
        let said = format!("are compared with nothing: {said}");
        assert!(found.starts_with(&said), "{more}: {found}");
    }
    // Some of the numbers are of a method that is there.
    let part = json!({ "numbers": [
        { "method": "a", "length": 32, "value": 1 }, { "method": "x", "length": 32, "value": 1 }
    ] });
    assert_eq!(
        unmatched(part).unwrap(),
        "for \"x\" are compared with nothing; the records have a, b, c"
    );
    // Some are at lengths that were not tested.
    let part = json!({ "numbers": [
        { "method": "a", "length": 32, "value": 1 }, { "method": "a", "length": 128, "value": 1 },
        { "method": "b", "length": "17..32", "value": 1 }
    ] });
    assert_eq!(
        unmatched(part).unwrap(),
        "at 17..32, 128 are compared with nothing; tested at 8, 16, 32, 64"
    );
    let claims = serde_json::from_value(json!({ "published": [
        { "source": "Press et al.", "metric": "x", "numbers": numbers }
    ] }));
    let spec = spec_of(claims.unwrap());
    let page = text(&records, &spec, "report.md");
    page.must_have("Numbers of Press et al. are compared with nothing: no metric");
}

#[test]
fn claims_name_methods_in_words_and_their_file_does_not() {
    let claim = claim(json!({ "kind": "better", "methods": ["a", "b"], "lengths": [32] }));
    let names = Names(&[&[("a", Some("Alpha")), ("b", Some("Beta"))]]);
    let records = three();
    let outcomes = claims(vec![claim]).evaluate(&experiment_settings(&records, names));
    let number = &outcomes[0].numbers[0];
    assert_eq!(number.what, "exact_match of a minus that of b at 32");
    let words = "exact_match of Alpha minus that of Beta at 32: ";
    assert!(number.text().starts_with(words), "{}", number.text());
}

#[test]
fn published_seeds_stand_beside_ours() {
    let found = seeds_of(None).beside(&places(&three()));
    let short: Vec<_> = found
        .iter()
        .map(|b| {
            (
                b.method.as_str(),
                (b.lengths.0.to, b.lengths.1.to),
                b.ours.clone(),
                b.unfitted,
                b.is_met(),
            )
        })
        .collect();
    // The means of ours are 0.85 and 0.8. The other experiment and method d have no records, and c
    // lists no seeds.
    assert_eq!(
        short,
        [
            ("a", (32, 32), vec![0.95, 0.75, 0.85], 0, true),
            ("b", (32, 32), vec![0.90, 0.70, 0.80], 0, false),
        ]
    );
    // A seed counts that its stop ended, or that fits at the end: of a the first two, and all of b.
    let mut records = three();
    for run in &mut records {
        let of_a = run.labels[0].text == "a";
        let [stop, end] = match run.seed {
            1 if of_a => [1.0, 0.99],
            2 if of_a => [0.99, 0.99],
            _ => [0.99, 1.0],
        };
        let score = json!({ "step": 1, "value": stop });
        run.train.stop_scores = vec![serde_json::from_value(score).unwrap()];
        run.spec["train"]["stop"] = json!({ "metric": "exact_match", "at_least": 1.0, "every": 1 });
        if stop == 1.0 {
            run.train.steps /= 2;
        }
        let train_len = run.task.train_len;
        let in_length = run.evals.iter_mut().find(|row| row.test_len == train_len);
        let metrics = &mut in_length.unwrap().metrics;
        metrics.get_mut("exact_match").unwrap().value = end;
    }
    let found = seeds_of(Some(1.0)).beside(&places(&records));
    assert_eq!(
        (found[0].ours.clone(), found[0].unfitted, found[0].is_met()),
        (vec![0.95, 0.75], 1, true)
    );
    assert_eq!((found[1].ours.len(), found[1].unfitted), (3, 0));
    // One that its stop ended counts by that score alone.
    let ended = records.iter().position(|run| run.labels[0].text == "b");
    let ended = &mut records[ended.unwrap()];
    ended.train.steps /= 2;
    let found = seeds_of(Some(1.0)).beside(&places(&records));
    assert_eq!((found[1].ours.len(), found[1].unfitted), (2, 1));
    // A stop by another metric says nothing of this one: of a one seed fits at the end.
    for run in &mut records {
        run.spec["train"]["stop"]["metric"] = json!("loss_nats");
    }
    let found = seeds_of(Some(1.0)).beside(&places(&records));
    assert_eq!((found[0].ours.len(), found[0].unfitted), (1, 2));
    // A mean outside its seeds is a slip of who copied it.
    let mut wrong = seeds_of(None);
    wrong.published[1].numbers[0].value = 0.95;
    let error = wrong.check().unwrap_err();
    assert_eq!(error.key, "published.1.numbers.0.seeds");
    // One that is rounded is none, and a share in percent is.
    let numbers = |value: f64, seeds: [f64; 3]| {
        let number = json!({ "method": "a", "length": 32, "value": value, "seeds": seeds });
        let table = json!({ "source": "s", "metric": "exact_match", "numbers": [number] });
        let claims: Claims = serde_json::from_value(json!({ "published": [table] })).unwrap();
        claims.check().map_err(|error| error.key)
    };
    assert_eq!(numbers(1.0, [0.9995, 0.9996, 0.9998]), Ok(()));
    assert_eq!(
        numbers(0.1, [0.1, 0.1, 0.16]),
        Err("published.0.numbers.0.seeds".into())
    );
    assert_eq!(
        numbers(99.9, [99.8, 99.9, 100.0]),
        Err("published.0.numbers.0.value".into())
    );
    let spec = spec_of(seeds_of(None));
    let page = text(&three(), &spec, "report.md");
    page.must_have("### Published numbers met (1 of 2)");
    page.must_have(
        "| a | 32 / 32 | 0.8000, 0.7000 to 0.9000 | 2 | 0.8500, 0.7500 to 0.9500 | 3 | met |",
    );
}

#[test]
fn methods_go_by_their_whole_labels() {
    let label = format!(
        "stack(parts=[{}])",
        "on_axis(axis=1, part=rope), ".repeat(9)
    );
    let mut records = three();
    for label_of_a in records.iter_mut().flat_map(|run| &mut run.labels) {
        if label_of_a.text == "a" {
            label_of_a.text.clone_from(&label);
        }
    }
    let above = |method: &str| {
        let value = json!({ "kind": "above", "methods": [method], "lengths": [8], "value": 0.5 });
        verdict(value, &records)
    };
    assert_eq!(above(&label), Verdict::Agrees);
    assert_eq!(above(&label[..40]), Verdict::NotTested);
}

/// What is claimed, and its verdict: `Verdict: kind [methods] at [lengths] { more };` each.
macro_rules! verdicts {
    ($($verdict:ident: $kind:ident $methods:tt at $lengths:tt $({ $($more:tt)* })?;)*) => {
        [$((
            json!({
                "kind": stringify!($kind), "methods": $methods, "lengths": $lengths
                $(, $($more)*)?
            }),
            $verdict,
        )),*]
    };
}

#[test]
fn every_kind_by_hand() {
    use Verdict::*;
    let records = three();
    let cases = verdicts! {
        // Differences are 0.7, 0.5 and 0.6 at 64, and 0.05 for each seed at 32: three seeds that
        // agree do not exclude that others differ.
        Agrees: order ["a", "b"] at [64];
        Undecided: order ["a", "b"] at [32, 64];
        Disagrees: order ["b", "a"] at [64];
        Agrees: better ["a"] at ["4x"] { "than": ["b"] };
        Disagrees: best_of ["b", "a"] at ["4x"];
        // Against every method: c has not converged, so nothing is said.
        Undecided: best_of ["a"] at ["4x"];
        // In length both are the same, seed by seed: 0 with an interval about 0.07 to each side,
        // above which not even 1 would be shown to be.
        NotTested: better ["a"] at ["in"] { "than": ["b"] };
        Undecided: better ["b"] at ["in"] { "than": ["a"], "value": 0.01 };
        Agrees: better ["b"] at ["in"] { "than": ["a"], "value": 0.1 };
        Agrees: better ["a", "b"] at [8] { "than": ["c"] };
        // Ratios of b at 64: 0.1, 0.1, 0.102; of a at 32: 0.95, 0.75, 0.867 with an interval from
        // 0.61 to 1.10.
        Agrees: ratio_below ["b"] at [64] { "value": 0.2 };
        Disagrees: ratio_above ["b"] at [64] { "value": 0.2 };
        Undecided: ratio_below ["a"] at [32] { "value": 1.0 };
        // a over b at 64: 8, 6, 7, an interval from 4.5 to 9.5 over seeds alone; the 200 test
        // rows widen it.
        Agrees: ratio_above ["a"] at [64] { "than": ["b"], "value": 2.0 };
        Undecided: ratio_above ["a"] at [64] { "than": ["b"], "value": 5.0 };
        Disagrees: holds_to ["b"] at [64];
        Agrees: holds_to ["b"] at [32] { "value": 0.5 };
        // A length that was not tested leaves it open.
        Undecided: holds_to ["b"] at [32, 4096] { "value": 0.5 };
        // 0.1 for each seed has an interval that holds 0.1 and ends below 0.2; 0.8, 0.6 and 0.7
        // one that holds 0.4 and not 0.3.
        Agrees: below ["b"] at [64] { "value": 0.2 };
        Undecided: below ["b"] at [64] { "value": 0.1 };
        Agrees: above ["a"] at [64] { "value": 0.3 };
        Undecided: above ["a"] at [64] { "value": 0.4 };
        NotTested: near_chance ["a"] at [64] { "metric": "token_accuracy", "value": 0.1 };
        Agrees: spread_below ["a", "b"] at ["<=1x"] { "value": 1.2 };
        Undecided: spread_below ["a", "b"] at ["<=1x"] { "value": 1.01 };
        Disagrees: spread_below ["a", "b"] at [64] { "value": 2.0 };
        Disagrees: improves ["b"] at [32, 64];
        NotTested: near_chance ["a"] at [64] { "value": 0.1 };
        // What is not there, or not asked for in full.
        NotTested: order ["a", "d"] at [32];
        Undecided: order ["a", "b", "d"] at [32];
        NotTested: order ["a", "b"] at [48];
        Undecided: order ["a", "b"] at [32, "3x"];
        NotTested: order ["a", "b"] at [32] { "tasks": ["reverse"] };
        NotTested: order ["a", "b"] at [32] { "train_lens": [17] };
        NotTested: order ["a", "b"] at [32] { "experiment": "other" };
        NotTested: below ["a"] at [32];
        Undecided: below ["c"] at [64] { "value": 0.5 };
        Undecided: below ["c"] at [16] { "value": 0.9 };
    };
    for (value, expected) in cases {
        let got = verdict(value.clone(), &records);
        assert_eq!(got, expected, "{value}");
    }
}

#[test]
fn a_label_that_two_methods_have_names_neither() {
    let mut records = three();
    for run in &mut records {
        describe(run);
        run.spec["train"]["steps"] = json!(1000);
    }
    let longer: Vec<RunRecord> = records
        .iter()
        .filter(|run| run.labels[0].text == "a")
        .map(|run| {
            let mut longer = run.clone();
            longer.run_id = hex(&format!("{} longer", run.run_id));
            longer.spec["train"]["steps"] = json!(2000);
            longer
        })
        .collect();
    let better = json!({ "kind": "better", "methods": ["a"], "than": ["b"], "lengths": [64] });
    assert_eq!(verdict(better.clone(), &records), Verdict::Agrees);
    records.extend(longer);
    assert_eq!(verdict(better.clone(), &records), Verdict::NotTested);
    // Nor does another name of it.
    let mut claims = claims(vec![claim(better)]);
    claims.aliases = [("a".to_owned(), vec!["c".to_owned()])].into();
    assert_eq!(
        claims.evaluate_records(&records)[0].verdict,
        Verdict::NotTested
    );
}

#[test]
fn a_spread_is_not_small_where_a_seed_diverged() {
    let spread = json!({ "kind": "spread_below", "methods": ["a", "b"], "lengths": [32],
        "value": 1.5 });
    assert_eq!(verdict(spread.clone(), &three()), Verdict::Agrees);
    for method in ["a", "b"] {
        let mut records = three();
        let mut runs = records.iter_mut();
        let run = runs.find(|run| run.labels[0].text == method && run.seed == 2);
        let row = &mut run.unwrap().evals[2];
        *row = absent_row("trained", 32, EvalStatus::Diverged, "");
        assert_eq!(verdict(spread.clone(), &records), Verdict::Undecided);
    }
}

#[test]
fn a_seed_that_diverged_leaves_open_only_what_it_could_change() {
    let better = json!({ "kind": "better", "methods": ["a"], "than": ["b"], "lengths": [64] });
    let worse = with(better.clone(), json!({ "methods": ["b"], "than": ["a"] }));
    for (diverged, expected) in [
        ("", [Verdict::Agrees, Verdict::Disagrees]),
        ("a", [Verdict::Undecided; 2]),
        ("b", [Verdict::Agrees, Verdict::Disagrees]),
    ] {
        let mut records = scores(&[
            ("a", &[[1.0, 1.0, 0.9, 0.8]; 4]),
            ("b", &[[1.0, 1.0, 0.8, 0.1]; 4]),
        ]);
        for run in &mut records {
            if run.labels[0].text == diverged && run.seed == 3 {
                run.evals[3] = absent_row("trained", 64, EvalStatus::Diverged, "");
            }
        }
        let found = [&better, &worse].map(|claim| verdict(claim.clone(), &records));
        assert_eq!(found, expected, "{diverged}");
    }
}

#[test]
fn a_ratio_to_0_decides_nothing() {
    let seeds = |last: [f64; 4]| last.map(|score| [1.0, 1.0, 0.9, score]);
    let records = scores(&[
        ("a", &seeds([0.05, 0.05, 0.4, 0.5])),
        ("b", &seeds([0.5, 0.5, 0.0, 0.0])),
    ]);
    let ratio = json!({ "kind": "ratio_below", "methods": ["a"], "than": ["b"], "lengths": [64],
        "value": 0.5 });
    assert_eq!(verdict(ratio, &records), Verdict::Undecided);
    // Also of a spread, in any order of the names.
    for names in [["a", "b"], ["b", "a"]] {
        let spread = json!({ "kind": "spread_below", "methods": names, "lengths": [64],
            "value": 9.0 });
        assert_eq!(verdict(spread, &records), Verdict::Undecided, "{names:?}");
    }
}

#[test]
fn a_spread_is_judged_by_the_larger_ratio() {
    // By the means a is ahead, by the mean of the ratios of seeds b.
    let seeds = |last: [f64; 2]| -> Vec<[f64; 4]> {
        let both = last.map(|score| [1.0, 1.0, 0.9, score]);
        both.into_iter().cycle().take(20).collect()
    };
    let (a, b) = (seeds([0.9, 0.1]), seeds([0.6, 0.3]));
    let records = scores(&[("a", &a[..]), ("b", &b[..])]);
    for names in [["a", "b"], ["b", "a"]] {
        let spread = json!({ "kind": "spread_below", "methods": names, "lengths": [64],
            "value": 1.25 });
        assert_ne!(verdict(spread, &records), Verdict::Agrees, "{names:?}");
    }
}

#[test]
fn a_variant_with_the_same_scores_is_another_test() {
    let mut records = scores(&[("a", &[[1.0; 4], [1.0; 4], [1.0; 4]])]);
    for run in &mut records {
        run.evals.push(ok_row("yarn", 64, &[("exact_match", 1.0)]));
        describe(run);
    }
    let ratio = json!({ "kind": "ratio_above", "methods": ["a + yarn"], "than": ["a"],
        "lengths": [64], "value": 0.99 });
    assert_eq!(verdict(ratio.clone(), &records), Verdict::Undecided);
    for run in &mut records {
        let plain = run.spec["model"]["pe"].clone();
        for variant in run.spec["eval"]["variants"].as_array_mut().unwrap() {
            let encodings = variant["pe"].as_array_mut().unwrap();
            encodings.fill(plain.clone());
        }
    }
    assert_eq!(verdict(ratio, &records), Verdict::Agrees);
}

#[test]
fn no_value_is_not_near_chance() {
    let mut records = copy_experiment(3);
    for row in records.iter_mut().flat_map(|run| &mut run.evals) {
        if row.test_len == 64 {
            *row = absent_row("trained", 64, EvalStatus::Unsupported, "the table ends");
        }
    }
    let near = json!({ "kind": "near_chance", "metric": "token_accuracy", "methods": ["rope"],
        "lengths": [64], "value": 0.05, "or_unsupported": true });
    assert_eq!(verdict(near, &records), Verdict::NotTested);
}

#[test]
fn shares_that_are_kept_are_no_surer_than_their_test_rows() {
    let records = scores(&[("a", &[[1.0; 4], [1.0; 4], [1.0; 4]])]);
    let holds = |length: Value, value: f64| {
        let claim = json!({ "kind": "holds_to", "methods": ["a"], "lengths": [length],
            "value": value });
        verdict(claim, &records)
    };
    assert_eq!(holds(json!(64), 0.8), Verdict::Agrees);
    assert_eq!(holds(json!(64), 0.99), Verdict::Undecided);
    // A score over itself.
    let own = json!({ "kind": "ratio_above", "methods": ["a"], "lengths": ["in"], "value": 1.0 });
    assert_eq!(verdict(own, &records), Verdict::Agrees);
}

#[test]
fn a_method_that_has_not_learned_is_named_once() {
    let value =
        json!({ "kind": "better", "methods": ["a"], "than": ["b", "c"], "lengths": [32, 64] });
    let spec = spec_of(claims(vec![claim(value)]));
    let page = text(&three(), &spec, "report.md");
    page.must_have("; c learned in 0 of 3 seeds (2 comparisons); agrees: ");
    assert!(!page.contains("minus that of c"), "{page}");
}

/// Three methods of equal means: in every seed the largest score is 1.29 times the smallest, each
/// time of other methods.
#[test]
fn a_spread_is_that_of_methods_and_not_of_seeds() {
    let at = |values: [f64; 3]| values.map(|value| [value, value, 0.0, 0.0]);
    let (a, b, c) = (
        at([0.9, 0.8, 0.7]),
        at([0.8, 0.7, 0.9]),
        at([0.7, 0.9, 0.8]),
    );
    let records = scores(&[("a", &a), ("b", &b), ("c", &c)]);
    let spread = |bound: f64| {
        let value = json!({ "kind": "spread_below", "methods": ["a", "b", "c"], "lengths": [16], "value": bound });
        outcome(value, &records)
    };
    let tight = spread(1.2);
    assert_eq!(tight.verdict, Verdict::Undecided);
    let texts: Vec<String> = tight.numbers.iter().map(|n| n.text()).collect();
    assert_eq!(texts.len(), 3, "one for each pair: {texts:?}");
    assert!(texts[0].starts_with("exact_match of b over that of a at 16: 1.0"));
    assert_eq!(spread(2.0).verdict, Verdict::Agrees);
    // The higher over the lower one, whatever their order.
    let high = scores(&[("a", &at([0.5, 0.5, 0.5])), ("b", &at([0.9, 0.9, 0.9]))]);
    let value =
        json!({ "kind": "spread_below", "methods": ["a", "b"], "lengths": [16], "value": 1.2 });
    assert_eq!(verdict(value, &high), Verdict::Disagrees);
}

/// All seeds lose 0.1 nats from 256 to 512 bytes, some blocks of the text far more than others.
#[test]
fn a_ratio_to_the_in_length_score_depends_on_the_text_too() {
    let runs = |blocks: bool| -> Vec<RunRecord> {
        let run = |seed: u64| {
            let mut run = record("x", &[("model.pe", json!("a"))], seed, text_task(256));
            for (len, loss) in [(256, 1.0), (512, 1.1)] {
                let mut row = ok_row("trained", len, &[("loss_nats", loss)]);
                if blocks {
                    let block = |at: usize| match (len, at % 2) {
                        (512, 0) => loss + 0.1,
                        (512, _) => loss - 0.1,
                        _ => loss,
                    };
                    row.loss_by_block = (0..63).map(block).collect();
                }
                run.evals.push(row);
            }
            run
        };
        (0..3).map(run).collect()
    };
    let number = |blocks: bool| {
        let value = json!({ "metric": "perplexity", "kind": "ratio_below", "methods": ["a"], "lengths": ["2x"], "value": 1.2 });
        let number = outcome(value, &runs(blocks)).numbers[0].clone();
        let (low, high) = number.estimate.unwrap().interval.unwrap();
        (high - low, number.rule().unwrap())
    };
    let ((seeds, rule), (both, rule_of_both)) = (number(false), number(true));
    assert!(seeds < 1e-9 && both > 0.01, "{seeds} {both}");
    assert_eq!(rule, "needed at most 1.2 (n = 3)");
    assert_eq!(
        rule_of_both,
        "needed at most 1.2 (n = 3, over seeds and text)"
    );
}

/// Runs of one method with the given losses at 64, 128, 256, one list for each seed.
fn losses(seeds: [[f64; 3]; 3]) -> Vec<RunRecord> {
    let of = |(seed, values): (usize, [f64; 3])| {
        let mut run = record(
            "x",
            &[("model.pe", json!("a"))],
            seed as u64,
            text_task(256),
        );
        for (len, value) in [64, 128, 256].into_iter().zip(values) {
            run.evals
                .push(ok_row("trained", len, &[("loss_nats", value)]));
        }
        run
    };
    seeds.into_iter().enumerate().map(of).collect()
}

/// With three seeds 0.01 apart, a mean above the bound by 0.03 has t = 5.20: p is 0.035. One above
/// it by 0.06 has t = 10.4: p is 0.009.
#[test]
fn many_comparisons_find_one_that_disagrees_by_chance() {
    use Verdict::*;
    let at = |means: [f64; 3]| losses([-0.01, 0.0, 0.01].map(|d| means.map(|m| m + d)));
    let below = |lengths: &[usize], records: &[RunRecord]| {
        let value = json!({ "metric": "loss_nats", "kind": "below", "methods": ["a"], "lengths": lengths, "value": 1.0 });
        outcome(value, records)
    };
    // Two of three would disagree alone, none at 0.05 / 3.
    let weak = at([1.03, 1.03, 0.9]);
    assert_eq!(below(&[64], &weak).verdict, Disagrees);
    let all = below(&[64, 128, 256], &weak);
    let verdicts =
        |found: &Outcome| -> Vec<Verdict> { found.numbers.iter().map(|n| n.verdict).collect() };
    assert_eq!(
        (all.verdict, verdicts(&all)),
        (Undecided, vec![Undecided, Undecided, Agrees])
    );
    assert_eq!(all.numbers[0].text(), "loss_nats of a at 64: 1.030 ± 0.025");
    assert_eq!(
        all.numbers[0].rule().unwrap(),
        "needed at most 1 (n = 3, would disagree alone, not as one of 3 (Holm))"
    );
    // One is rejected at 0.05 / 2, and then the other at 0.05.
    let strong = below(&[64, 128], &at([1.03, 1.06, 0.9]));
    assert_eq!(
        (strong.verdict, verdicts(&strong)),
        (Disagrees, vec![Disagrees; 2])
    );
    // To agree, each comparison needs its own interval only.
    assert_eq!(
        below(&[64, 128, 256], &at([0.97, 0.97, 0.97])).verdict,
        Agrees
    );
}

/// Three seeds 0.01 apart and means 0.01 from the bound: t at n - 1 degrees of freedom over sqrt(n)
/// falls below 1 from n = 6 to 7 at 5 %, and from n = 8 to 9 at 2.5 % (2.447 / 2.646, 2.752 / 3).
#[test]
fn seeds_that_would_decide_by_hand() {
    let power = |means: [f64; 3], lengths: &[usize]| {
        let records = losses([-0.01, 0.0, 0.01].map(|d| means.map(|m| m + d)));
        let value = json!({ "metric": "loss_nats", "kind": "below", "methods": ["a"],
            "lengths": lengths, "value": 1.0 });
        outcome(value, &records).power()
    };
    let seeds = |n: usize, verdict| Some(Power::Seeds(n, verdict));
    let (agrees, disagrees) = (Verdict::Agrees, Verdict::Disagrees);
    assert_eq!(power([0.99, 0.9, 0.9], &[64]), seeds(7, agrees));
    assert_eq!(power([0.99, 0.99, 0.9], &[64, 128]), seeds(7, agrees));
    assert_eq!(power([1.01, 0.9, 0.9], &[64]), seeds(7, disagrees));
    // One of two disagrees: at 5 % / 2.
    assert_eq!(power([1.01, 0.9, 0.9], &[64, 128]), seeds(9, disagrees));
    assert_eq!(power([0.9999, 0.9, 0.9], &[64]), Some(Power::More));
    // Decided already.
    assert_eq!(power([0.9, 0.9, 0.9], &[64]), None);
    // A length without a value, which agrees, needs no seeds.
    let mut records = losses([-0.01, 0.0, 0.01].map(|d| [0.99 + d; 3]));
    for row in records.iter_mut().flat_map(|run| &mut run.evals) {
        if row.test_len == 128 {
            *row = absent_row("trained", 128, EvalStatus::Unsupported, "the table ends");
        }
    }
    let value = json!({ "metric": "loss_nats", "kind": "above", "methods": ["a"],
        "lengths": [64, 128], "value": 0.98, "or_unsupported": true });
    assert_eq!(outcome(value, &records).power(), seeds(7, agrees));
    let one: Vec<RunRecord> = three().into_iter().filter(|r| r.seed == 0).collect();
    let value = json!({ "kind": "order", "methods": ["a", "b"], "lengths": [64] });
    assert_eq!(outcome(value, &one).power(), None);
}

#[test]
fn a_method_without_a_value_loses_whatever_seeds_it_has() {
    let mut records = three();
    for row in records
        .iter_mut()
        .filter(|r| r.labels[0].text == "b")
        .flat_map(|r| &mut r.evals)
    {
        if row.test_len == 32 {
            *row = absent_row("trained", 32, EvalStatus::Unsupported, "the table ends");
        }
    }
    let better = json!({ "kind": "better", "methods": ["a"], "than": ["b"], "lengths": [32],
        "or_unsupported": true });
    assert_eq!(verdict(better.clone(), &records), Verdict::Agrees);
    records.retain(|run| run.labels[0].text == "b" || run.seed > 0);
    assert_eq!(verdict(better, &records), Verdict::Agrees);
    // It does not win, either.
    let better = json!({ "kind": "better", "methods": ["b"], "than": ["a"], "lengths": [32],
        "or_unsupported": true });
    assert_eq!(verdict(better, &records), Verdict::NotTested);
    for (kind, value) in [("above", 0.1), ("ratio_above", 0.1), ("below", 0.9)] {
        let own = json!({ "kind": kind, "methods": ["b"], "lengths": [32], "value": value,
            "or_unsupported": true });
        let expected = match kind {
            "below" => Verdict::Agrees,
            _ => Verdict::NotTested,
        };
        assert_eq!(verdict(own, &records), expected, "{kind}");
    }
    // A share without a value is as far from guessing as 0 is.
    for run in &mut records {
        run.task.chance.insert("exact_match".into(), 0.25);
    }
    for (value, expected) in [(0.3, Verdict::Agrees), (0.2, Verdict::NotTested)] {
        let near = json!({ "kind": "near_chance", "methods": ["b"], "lengths": [32],
            "value": value, "or_unsupported": true });
        assert_eq!(verdict(near, &records), expected, "{value}");
    }
    // A seed that diverged there is no seed without a value.
    let below = json!({ "kind": "below", "methods": ["b"], "lengths": [32], "value": 0.9,
        "or_unsupported": true });
    assert_eq!(verdict(below.clone(), &records), Verdict::Agrees);
    let mut of_b = records.iter_mut().filter(|r| r.labels[0].text == "b");
    of_b.next().unwrap().evals[2] = absent_row("trained", 32, EvalStatus::Diverged, "");
    assert_eq!(verdict(below, &records), Verdict::NotTested);
    let holds = json!({ "kind": "holds_to", "methods": ["b"], "lengths": [32],
        "or_unsupported": true });
    let error = claims(vec![claim(holds)]).check().unwrap_err();
    assert_eq!(error.key, "claim.0.or_unsupported");
}

#[test]
fn improvement_goes_from_length_to_length_as_written() {
    let records = three();
    let improves =
        |lengths: Value| json!({ "kind": "improves", "methods": ["b"], "lengths": lengths });
    assert_eq!(
        verdict(improves(json!([32, 64])), &records),
        Verdict::Disagrees
    );
    let outcome = outcome(improves(json!([64, 32])), &records);
    assert_eq!(outcome.verdict, Verdict::Agrees);
    assert_eq!(
        outcome.numbers[0].what,
        "exact_match of b at 32 minus that at 64"
    );
}

/// The losses of a and b at three seeds differ by about nothing, then by 0.03.
#[test]
fn a_gain_below_a_hundredth_of_a_nat_is_none() {
    use Verdict::*;
    let better = |metric: &str, seeds: [[f64; 2]; 3]| {
        let mut records = Vec::new();
        for (seed, values) in seeds.into_iter().enumerate() {
            for (pe, value) in ["a", "b"].into_iter().zip(values) {
                let axis = [("model.pe", json!(pe))];
                let mut run = record("x", &axis, seed as u64, text_task(64));
                run.evals
                    .push(ok_row("trained", 64, &[("loss_nats", value)]));
                records.push(run);
            }
        }
        let value =
            json!({ "metric": metric, "kind": "better", "methods": ["a", "b"], "lengths": [64] });
        outcome(value, &records)
    };
    let none = [[1.000, 1.001], [1.101, 1.100], [0.900, 0.902]];
    for (metric, gain) in [("loss_nats", "0.01"), ("perplexity", "1 %")] {
        let outcome = better(metric, none);
        let rule = format!("needed below 0 (n = 3, any gain is below {gain})");
        assert_eq!(outcome.verdict, Disagrees);
        assert_eq!(outcome.numbers[0].rule(), Some(rule));
    }
    // The means are as near to each other, but the interval holds gains that count.
    let wide = [[1.00, 1.02], [1.11, 1.10], [0.90, 0.90]];
    assert_eq!(better("loss_nats", wide).verdict, Undecided);
    let gain = [[1.00, 1.03], [1.10, 1.132], [0.90, 0.929]];
    assert_eq!(better("loss_nats", gain).verdict, Agrees);
    let worse = better("loss_nats", gain.map(|[a, b]| [b, a]));
    let rule = worse.numbers[0].rule();
    assert_eq!(rule.as_deref(), Some("needed below 0 (n = 3)"));
}

/// Trained at 16, where a and b are right at every seed and c at none; at 32 one seed of b fails.
#[test]
fn what_a_task_is_too_easy_for_is_not_tested() {
    use Verdict::*;
    let right = [1.0, 1.0, 1.0, 0.0];
    let records = scores(&[
        ("a", &[right; 3]),
        ("b", &[right, right, [1.0, 1.0, 0.1, 0.0]]),
    ]);
    let better = |length: usize, slack: Option<f64>| {
        let value =
            json!({ "kind": "better", "methods": ["a", "b"], "lengths": [length], "value": slack });
        outcome(value, &records)
    };
    let easy = better(16, None);
    assert_eq!(easy.verdict, NotTested);
    assert_eq!(easy.place, "copy: copy, trained at 16 symbols");
    assert_eq!(
        easy.numbers[0].rule().unwrap(),
        "needed above 0 (both do the task too well to be told apart)"
    );
    // More seeds can tell whether one is better: at 32 b is not at the ceiling, at 64 neither is.
    assert_eq!(better(32, None).verdict, Undecided);
    assert_eq!(better(64, None).verdict, Undecided);
    // To be as good is not a question of a ceiling.
    assert_eq!(better(16, Some(0.1)).verdict, Agrees);
}

/// Three seeds of 4096 rows, all 0: no more than 1 - 0.025^(0.05 / 3 + 1 / 4096) = 0.0606 is shown.
#[test]
fn bounds_that_no_score_can_meet_are_named() {
    let records = scores(&[("a", &[[1.0, 1.0, 0.0, 0.0]; 3])]);
    let of = |kind: &str, length: usize, bound: f64| {
        let value = json!({ "kind": kind, "methods": ["a"], "lengths": [length], "value": bound });
        claims(vec![claim(value)])
    };
    let impossible = |claims: &Claims| {
        claims.evaluate_records(&records)[0].numbers[0]
            .impossible
            .clone()
    };
    assert_eq!(
        impossible(&of("below", 64, 0.02)).unwrap(),
        "at most 0.02 cannot be shown with 3 seeds of 4096 test rows: a perfect score has the \
         number 0.000 [0.00, 0.07]"
    );
    assert_eq!(impossible(&of("below", 64, 0.061)), None);
    // The note is about what any score could show, not about this one.
    assert!(impossible(&of("below", 8, 0.02)).is_some());
    assert!(impossible(&of("above", 8, 0.95)).is_some());
    assert_eq!(impossible(&of("above", 64, 0.9)), None);
    let spec = spec_of(of("below", 64, 0.02));
    let report = report(&records, &[], &spec).unwrap();
    let markdown = report.files.iter().find(|f| f.name == "report.md").unwrap();
    let markdown = String::from_utf8(markdown.bytes.clone()).unwrap();
    markdown.must_have("Claim 1 (\"a claim\") in copy: copy, trained at 16 symbols: at most");
}

#[test]
fn a_single_seed_decides_nothing() {
    let records: Vec<RunRecord> = three().into_iter().filter(|r| r.seed == 0).collect();
    let order = json!({ "kind": "order", "methods": ["a", "b"], "lengths": [64] });
    let found = outcome(order, &records);
    let number = &found.numbers[0];
    assert_eq!(found.verdict, Verdict::Undecided);
    let text = "exact_match of a minus that of b at 64: 0.700";
    assert_eq!(number.text(), text);
    let rule = "needed above 0 (a single seed, which agrees)";
    assert_eq!(number.rule().unwrap(), rule);
}

#[test]
fn perplexity_is_better_when_lower_and_chance_is_near() {
    let mut records = text_experiment();
    let order = json!({ "metric": "perplexity", "kind": "order", "methods": ["alibi", "rope + yarn", "rope"], "lengths": [">4x"] });
    assert_eq!(verdict(order, &records), Verdict::Agrees);
    let past_the_table = json!({ "metric": "perplexity", "kind": "ratio_above", "methods": ["learned"], "lengths": ["2x"], "value": 2.0 });
    assert_eq!(
        verdict(past_the_table.clone(), &records),
        Verdict::NotTested
    );
    let mut allowed = past_the_table;
    allowed["or_unsupported"] = true.into();
    assert_eq!(verdict(allowed, &records), Verdict::Agrees);
    records.retain(|r| r.labels[0].text == "alibi");
    let near = |value: f64| json!({ "metric": "perplexity", "kind": "near_chance", "methods": ["alibi"], "lengths": ["in"], "value": value });
    assert_eq!(verdict(near(0.15), &records), Verdict::Disagrees);
    assert_eq!(verdict(near(252.0), &records), Verdict::Agrees);
}

#[test]
fn a_range_is_named_by_its_ends_and_no_length_by_its_upper_end() {
    let mut records = three();
    let above = |length: Value, records: &[RunRecord]| {
        let value = json!({ "kind": "above", "methods": ["a"], "lengths": [length], "value": 0.1 });
        verdict(value, records)
    };
    assert_eq!(above(json!(32), &records), Verdict::Agrees);
    assert_eq!(above(json!("17..32"), &records), Verdict::NotTested);
    for row in records.iter_mut().flat_map(|run| &mut run.evals) {
        row.from_len = (row.test_len == 32).then_some(17);
    }
    assert_eq!(above(json!("17..32"), &records), Verdict::Agrees);
    for other in [json!(32), json!("16..32"), json!("17..64")] {
        assert_eq!(above(other, &records), Verdict::NotTested);
    }
    // Multiples of the training length go by the upper end.
    assert_eq!(above(json!("2x"), &records), Verdict::Agrees);
}

#[test]
fn published_numbers_of_a_range_are_beside_that_range_only() {
    let mut records = three();
    for row in records.iter_mut().flat_map(|run| &mut run.evals) {
        row.from_len = (row.test_len == 16).then_some(9);
    }
    let beside = |length: Value, train_len: Option<usize>| {
        let names = ["a", "b", "c"];
        let numbers: Vec<Value> = (names.iter().zip(1..))
            .map(|(name, n)| json!({ "method": name, "length": length, "value": n, "seeds": [n] }))
            .collect();
        let table = json!({
            "source": "s", "metric": "exact_match", "train_len": train_len, "numbers": numbers
        });
        let claims = Claims {
            published: vec![serde_json::from_value(table).unwrap()],
            ..Claims::default()
        };
        let places = places(&records);
        let found = claims.beside(&places);
        assert_eq!(claims.correlate(&places).is_empty(), found.is_empty());
        assert_eq!(claims.unmatched(&places).is_empty(), !found.is_empty());
        let lengths = found.iter().map(|b| b.lengths.1.to_string());
        lengths.collect::<Vec<_>>()
    };
    assert_eq!(beside(json!("9..16"), None), ["9..16"; 3]);
    // Trained at 48 there and at 16 here, both ends are a third.
    assert_eq!(beside(json!("27..48"), Some(48)), ["9..16"; 3]);
    for other in [json!(16), json!("8..16"), json!("9..32")] {
        assert_eq!(beside(other, None), [""; 0]);
    }
}

#[test]
fn claims_are_read_strictly() {
    let read = |text: &str| serde_json::from_str::<Claims>(text).map_err(|e| e.to_string());
    let of = |lengths: &str| {
        read(&format!(
            r#"{{ "claim": [{{ "metric": "m", "kind": "below", "methods": ["a"], "lengths": {lengths}, "value": 1 }}] }}"#
        ))
    };
    let good = of(r#"[512, "51..100", "in", "1.5x", ">1x", ">=4x", "<=1x"]"#).unwrap();
    let again = read(&serde_json::to_string(&good).unwrap()).unwrap();
    assert_eq!(again, good);
    for bad in [
        r#"["x"]"#,
        r#"["-1x"]"#,
        r#"["2"]"#,
        r#"["100..51"]"#,
        r#"["0..51"]"#,
        r#"["51..51"]"#,
        r#"["51.."]"#,
        "[0]",
        r#"[">infx"]"#,
        r#"["NaNx"]"#,
        "[-4]",
        "[1.5]",
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
    assert!(of(r#"["twice"]"#).unwrap_err().contains("allowed: 512"));
    assert!(
        read(r#"{ "claim": [{ "metric": "m", "kind": "worse", "methods": [], "lengths": [] }] }"#)
            .is_err()
    );
    assert!(read(r#"{ "claims": [] }"#).is_err());
    let check = |value: Value| claims(vec![claim(value)]).check().unwrap_err();
    assert_eq!(
        check(json!({ "kind": "below", "methods": ["a"], "lengths": [1] })).key,
        "claim.0.value"
    );
    assert_eq!(
        check(json!({ "kind": "order", "methods": ["a"], "lengths": [1] })).key,
        "claim.0.methods"
    );
    for (kind, metric, value) in [
        ("above", "exact_match", 2.0),
        ("below", "exact_match", -0.1),
        ("below", "perplexity", -1.0),
    ] {
        let bound = json!({ "kind": kind, "metric": metric, "methods": ["a"], "lengths": [1], "value": value });
        let error = check(bound);
        let problem = (error.key.as_str(), error.problem.as_str());
        assert_eq!(problem, ("claim.0.value", "is out of range"));
    }
    let error = check(json!({ "kind": "holds_to", "methods": ["a"], "lengths": [] }));
    assert_eq!(
        (error.key.as_str(), error.problem.as_str()),
        ("claim.0.lengths", "is empty")
    );
    assert_eq!(good.check(), Ok(()));
    // Keys that a kind does not use, names given twice, bounds that mean nothing.
    let of = |more: Value| {
        let all = json!({ "kind": "below", "methods": ["a"], "lengths": [1], "value": 1 });
        check(with(all, more)).key
    };
    for (more, key) in [
        (json!({ "than": ["b"] }), "than"),
        (json!({ "methods": ["a", "b", "a"] }), "methods"),
        (json!({ "kind": "better", "than": ["b", "a"] }), "than"),
        (json!({ "kind": "better", "than": ["b", "b"] }), "than"),
        (json!({ "kind": "ratio_below", "value": -3 }), "value"),
        (json!({ "kind": "holds_to", "value": 3 }), "value"),
        (json!({ "kind": "improves" }), "lengths"),
        (json!({ "kind": "improves", "lengths": [1, 2] }), "value"),
        (json!({ "kind": "near_chance", "value": -5 }), "value"),
        (
            json!({ "kind": "spread_below", "methods": ["a", "b"], "value": 0.5 }),
            "value",
        ),
    ] {
        assert_eq!(of(more.clone()), format!("claim.0.{key}"), "{more}");
    }
    // Published tables.
    for (metric, more, key) in [
        ("exact_match", json!({ "train_len": 0 }), "train_len"),
        ("exact_match", json!({ "fitted": 5 }), "fitted"),
        ("perplexity", json!({ "fitted": 1 }), "fitted"),
    ] {
        let numbers = json!([{ "method": "a", "length": 1, "value": 0.5 }]);
        let table = json!({ "source": "s", "metric": metric, "numbers": numbers });
        let table = with(table, more);
        let claims: Claims = serde_json::from_value(json!({ "published": [table] })).unwrap();
        assert_eq!(
            claims.check().unwrap_err().key,
            format!("published.0.{key}")
        );
    }
    let one = check(json!({ "kind": "better", "methods": ["a"], "lengths": [1] }));
    assert_eq!(
        one.allowed,
        "two or more names, or one and `than` with others"
    );
    let mut twice = published();
    let number = twice.published[0].numbers[0].clone();
    twice.published[0].numbers.push(number);
    let key = twice.check().unwrap_err().key;
    assert!(
        key.starts_with("published.0.numbers.") && key.ends_with(".method"),
        "{key}"
    );
    twice.published[0].numbers.clear();
    assert_eq!(twice.check().unwrap_err().key, "published.0.numbers");
}

#[test]
fn a_claim_that_is_not_tested_says_what_is_missing() {
    let records = three();
    let missing = |more: Value| {
        let all = json!({ "kind": "below", "methods": ["a"], "lengths": [32], "value": 1 });
        let found = outcome(with(all, more), &records);
        assert_eq!(found.verdict, Verdict::NotTested);
        found.numbers[0].text()
    };
    let (experiment, task) = (&records[0].experiment, &records[0].task.kind);
    let cases = cases! {
        json!({ "experiment": "other" }),
            format!("no experiment \"other\"; the records have {experiment}");
        json!({ "tasks": ["texts"] }), format!("no task [\"texts\"]; the records have {task}");
        json!({ "experiment": experiment, "tasks": ["texts"] }),
            format!("no task [\"texts\"] in experiment {experiment:?}; the records have {task}");
        json!({ "train_lens": [99] }), "not trained at [99]; the records have 16".into();
        json!({ "metric": "perplexities" }),
            "no metric \"perplexities\"; the records have exact_match".into();
        json!({ "methods": ["a", "aa"] , "kind": "spread_below" }),
            "no method \"aa\"; the records have a, b, c".into();
        json!({ "lengths": ["3.5x"] }), "not tested at 3.5x; tested at 8, 16, 32, 64".into();
    };
    for (more, text) in cases {
        assert_eq!(missing(more.clone()), text, "{more}");
    }
}

fn published() -> Claims {
    serde_json::from_value(json!({
        "claim": [
            { "source": "Press et al., table 2", "text": "ALiBi holds | far <past> training", "metric": "perplexity", "kind": "holds_to",
              "methods": ["ALiBi"], "lengths": [">1x"] },
            { "source": "Press et al., table 2", "text": "rotary holds to twice the length", "metric": "perplexity", "kind": "holds_to",
              "methods": ["rotary"], "lengths": ["2x"] },
            { "source": "Chen et al.", "text": "YaRN is best in length", "metric": "perplexity", "kind": "best_of",
              "methods": ["rope + yarn", "rotary"], "lengths": ["in"] },
            { "source": "Chen et al.", "text": "something about T5", "metric": "perplexity", "kind": "holds_to",
              "methods": ["t5"], "lengths": ["2x"] }
        ],
        "published": [{ "source": "Press et al., table 2", "metric": "perplexity", "train_len": 512, "numbers": [
            { "method": "ALiBi", "length": 512, "value": 19.73 }, { "method": "rotary", "length": 512, "value": 20.07 },
            { "method": "t5", "length": 512, "value": 19.65 }, { "method": "nope", "length": 512, "value": 21.0 },
            { "method": "ALiBi", "length": 2048, "value": 18.5 }, { "method": "rotary", "length": 2048, "value": 40.0 },
            { "method": "nope", "length": 2048, "value": 30.0 }, { "method": "ALiBi", "length": 700, "value": 1.0 }
        ] }],
        "aliases": { "ALiBi": ["alibi"], "rotary": ["rotary embeddings", "rope"] }
    }))
    .unwrap()
}

#[test]
fn correlations_by_hand() {
    let columns = published().correlate(&places(&text_experiment()));
    let short: Vec<_> = columns
        .iter()
        .map(|c| {
            (
                (c.lengths.0.to, c.lengths.1.to),
                c.methods.len(),
                c.correlation.unwrap().rho,
                c.correlation.unwrap().p,
            )
        })
        .collect();
    // At 64: published ALiBi < rotary < nope, ours rope 4.51 < alibi 4.63 < nope 5.07: d^2 sums to
    // 2, rho = 1 - 12 / 24. At 256: the same order. Of 3! orders all are at least as far from 0
    // as 0.5, and 2 as 1.
    assert_eq!(
        short,
        [((512, 64), 3, 0.5, 1.0), ((2048, 256), 3, 1.0, 2.0 / 6.0)]
    );
    // What has not converged has no place beyond the training length: two methods are left at 32,
    // too few for a rank correlation.
    let table = json!({ "source": "s", "metric": "exact_match", "numbers": [
        { "method": "a", "length": 16, "value": 3.0 }, { "method": "b", "length": 16, "value": 2.0 }, { "method": "c", "length": 16, "value": 1.0 },
        { "method": "a", "length": 32, "value": 3.0 }, { "method": "b", "length": 32, "value": 2.0 }, { "method": "c", "length": 32, "value": 1.0 }
    ] });
    let claims = Claims {
        published: vec![serde_json::from_value(table).unwrap()],
        ..Claims::default()
    };
    let columns = claims.correlate(&places(&three()));
    assert_eq!(
        columns.iter().map(|c| c.methods.len()).collect::<Vec<_>>(),
        [3]
    );
    // a and b tie at 16: ranks 2.5, 2.5, 1 against 3, 2, 1.
    assert!((columns[0].correlation.unwrap().rho - 1.5 / 3f64.sqrt()).abs() < 1e-12);
}

fn text(records: &[RunRecord], spec: &ReportSpec, name: &str) -> String {
    String::from_utf8(
        report(records, &[], spec)
            .unwrap()
            .file(name)
            .unwrap_or_else(|| panic!("no {name}"))
            .to_vec(),
    )
    .unwrap()
}

#[test]
fn the_chapter_against_the_source() {
    let spec = spec_of(published());
    let records = text_experiment();
    let markdown = text(&records, &spec, "report.md");
    let part = |from: &str, to: &str| {
        let chapter = markdown
            .split(from)
            .nth(1)
            .unwrap_or_else(|| panic!("no {from}"));
        chapter.split(to).next().unwrap().to_string()
    };
    insta::assert_snapshot!("source.md", part("## Against the source\n", "\n## text, "));
    insta::assert_snapshot!("claims.csv", text(&records, &spec, "claims.csv"));
    insta::assert_snapshot!(
        "correlations.csv",
        text(&records, &spec, "correlations.csv")
    );
    let tex = text(&records, &spec, "tables.tex");
    insta::assert_snapshot!(
        "source.tex",
        tex.split("% Against the source\n").nth(1).unwrap()
    );
    let page = text(&records, &spec, "report.html");
    page.must_have("far &lt;past&gt; training");
    page.must_have("<table class=\"prose\">");
    assert!(!page.contains("<past>"));
    page.must_have("<a href=\"#against-the-source\">");
    page.must_have("<section id=\"against-the-source\"");
    report(&records, &[], &spec).unwrap().summary.must_have(
        "Claims of the source: 1 agree, 1 disagree, 1 undecided (by their means alone 1 would \
         agree), 1 not tested.",
    );
    // Without claims a report is what it was.
    let spec = ReportSpec::default();
    let none = report(&records, &[], &spec).unwrap();
    assert!(none.file("claims.csv").is_none() && none.file("assertions.csv").is_none());
    assert!(!text(&records, &spec, "report.md").contains("Against the source"));
}

#[test]
fn hostile_claims_are_text() {
    let evil = "=cmd|' /C calc'!A0 <script>x</script> $x$ \\input{y}\u{1b}[31m\n# heading";
    let mut claims = published();
    for claim in &mut claims.claims {
        (claim.text, claim.source) = (evil.into(), evil.into());
    }
    claims.claims[3].methods = vec![evil.repeat(100)];
    claims.published[0].source = evil.into();
    let spec = ReportSpec {
        claims,
        ..ReportSpec::default()
    };
    let records = text_experiment();
    for name in [
        "report.md",
        "report.html",
        "tables.tex",
        "claims.csv",
        "correlations.csv",
    ] {
        let text = text(&records, &spec, name);
        assert!(
            !text.contains('\u{1b}') && !text.contains("\n# heading"),
            "{name}"
        );
        match name {
            "tables.tex" => assert!(!text.contains("\\input{")),
            "claims.csv" | "correlations.csv" => {
                for row in csv::Reader::from_reader(text.as_bytes()).records() {
                    assert!(row.unwrap().iter().all(|c| !c.starts_with(['=', '@', '+'])));
                }
            }
            _ => assert!(!without_own_script(&text).contains("<script")),
        }
    }
}

#[test]
fn the_committed_assertions_are_whole() {
    let committed = Assertions::committed().unwrap();
    assert_eq!(
        committed
            .assertions
            .iter()
            .map(|a| a.id)
            .collect::<Vec<_>>(),
        (1..=22).collect::<Vec<_>>()
    );
    for assertion in &committed.assertions {
        let checks: Vec<Claim> = assertion
            .checks
            .iter()
            .chain(&assertion.fragile_checks)
            .cloned()
            .collect();
        assert_ne!(
            checks.is_empty(),
            assertion.elsewhere.is_none(),
            "{}: checks or a place where it is covered",
            assertion.id
        );
        assert_eq!(claims(checks).check(), Ok(()), "{}", assertion.id);
        assert!(!assertion.text.is_empty() && !assertion.basis.is_empty());
    }
    let covered: Vec<u32> = committed
        .assertions
        .iter()
        .filter(|a| a.elsewhere.is_some())
        .map(|a| a.id)
        .collect();
    assert_eq!(covered, [10, 19, 20, 22]);
}

#[test]
fn assertions_hold_fail_and_wait_for_records() {
    let committed = Assertions::committed().unwrap();
    let standing = |records: &[RunRecord], id: u32| {
        committed
            .evaluate(&places(records))
            .into_iter()
            .find(|s| s.id == id)
            .unwrap()
            .result
    };
    let records = text_experiment();
    for (id, expected) in [
        (2, AssertionResult::Holds),
        (3, AssertionResult::Holds),
        (4, AssertionResult::Holds),
        (5, AssertionResult::NoRecords),
        (6, AssertionResult::Holds),
        (10, AssertionResult::Elsewhere),
        // Of FIRE one training diverged, which is worse than any score.
        (11, AssertionResult::Undecided),
        (12, AssertionResult::NoRecords),
    ] {
        assert_eq!(standing(&records, id), expected, "{id}");
    }
    let with = |pe: &str, change: &dyn Fn(usize) -> f64| {
        let mut records = text_experiment();
        for row in records
            .iter_mut()
            .filter(|r| r.labels[0].text == pe)
            .flat_map(|r| &mut r.evals)
        {
            let len = row.test_len;
            row.metrics
                .values_mut()
                .for_each(|m| m.value += change(len));
        }
        records
    };
    assert_eq!(
        standing(&with("alibi", &|len| if len > 64 { 0.5 } else { 0.0 }), 3),
        AssertionResult::Fails
    );
    assert_eq!(
        standing(&with("alibi", &|_| -0.5), 4),
        AssertionResult::FragileFails
    );
    let single: Vec<RunRecord> = records.into_iter().filter(|r| r.seed == 1).collect();
    assert_eq!(standing(&single, 3), AssertionResult::Undecided);
    assert!(committed.evaluate(&[]).iter().all(|s| matches!(
        s.result,
        AssertionResult::NoRecords | AssertionResult::Elsewhere
    )));
}

#[test]
fn the_chapter_on_assertions() {
    let spec = ReportSpec {
        assertions: true,
        ..ReportSpec::default()
    };
    let markdown = text(&text_experiment(), &spec, "report.md");
    let chapter = markdown
        .split("## Expectations from the literature\n")
        .nth(1)
        .unwrap()
        .split("\n## Conditions")
        .next()
        .unwrap();
    insta::assert_snapshot!("assertions.md", chapter);
    assert!(
        text(&text_experiment(), &spec, "assertions.csv")
            .lines()
            .count()
            > 22
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn neither_order_nor_repetition_of_records_matters(turn in 0..40_usize, doubled in 0..9_usize) {
        let all = [text_experiment(), three()].concat();
        let mut other = all.clone();
        other.rotate_left(turn % all.len());
        other.extend(all.iter().take(doubled).cloned());
        let claims = published();
        prop_assert_eq!(claims.evaluate_records(&all), claims.evaluate_records(&other));
        prop_assert_eq!(claims.correlate(&places(&all)), claims.correlate(&places(&other)));
    }

    /// No score disagrees with a bound and with its opposite, and a looser bound never loses agreement.
    #[test]
    fn verdicts_are_monotone_in_the_bound(bound in 0.0..1.2_f64, slack in 0.0..0.5_f64, len in 0..4_usize, method in 0..3_usize) {
        let records = three();
        let (method, len) = (["a", "b", "c"][method], [8, 16, 32, 64][len]);
        let ask =
            |kind: &str, value: f64| verdict(json!({ "kind": kind, "methods": [method], "lengths": [len], "value": value }), &records);
        let (below, above) = (ask("below", bound), ask("above", bound));
        prop_assert!(!(below == Verdict::Disagrees && above == Verdict::Disagrees));
        if below == Verdict::Agrees {
            prop_assert_eq!(ask("below", bound + slack), Verdict::Agrees);
        }
        if above == Verdict::Disagrees {
            prop_assert_eq!(ask("above", bound + slack), Verdict::Disagrees);
        }
    }
}

#[test]
fn a_variant_with_the_scores_of_its_training_is_not_a_rival() {
    let mut records = scores(&[
        ("a", &[[1.0, 1.0, 0.9, 0.8]; 3]),
        ("b", &[[1.0, 0.5, 0.1, 0.0]; 3]),
    ]);
    for run in records.iter_mut().filter(|run| run.labels[0].text == "a") {
        let at_16 = ok_row("yarn", 16, &[("exact_match", 1.0)]);
        let at_32 = ok_row("yarn", 32, &[("exact_match", 0.2)]);
        run.evals.extend([at_16, at_32]);
        describe(run);
    }
    let rivals = |length: Value| {
        let best = json!({ "kind": "best_of", "methods": ["a"], "lengths": [length] });
        outcome(best, &records).numbers.len()
    };
    // b alone, where YaRN does not scale; both, where it does.
    assert_eq!((rivals(json!("in")), rivals(json!("2x"))), (1, 2));
}
