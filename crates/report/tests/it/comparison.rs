//! Two sets of records compared: pairs, differences of configs, and verdicts.

use crate::common::*;
use longreach_report::{ComparisonSpec, ReportError, ScoreComparison, Verdict};
use records::RunRecord;
use records::record::TestLength;
use serde_json::json;

fn compare(a: &[RunRecord], b: &[RunRecord], spec: &ComparisonSpec) -> ScoreComparison {
    ScoreComparison::of(("runs/before", a), ("runs/after", b), spec).unwrap()
}

/// The records of another experiment: other ids, other specs.
fn wider(mut records: Vec<RunRecord>) -> Vec<RunRecord> {
    for record in &mut records {
        record.run_id = hex(&format!("wider {}", record.run_id));
        record.experiment = "wider".into();
        record.spec["model"]["d_model"] = json!(128);
        record.spec["model"]["d_ff"] = json!(512);
        record.environment.commit = "4567def".into();
    }
    records
}

/// Adds `by` plus a share of the seed to the loss of a method at a length.
fn shift(records: &mut [RunRecord], method: &str, len: usize, by: f64, per_seed: f64) {
    for record in records.iter_mut().filter(|r| r.labels[0].text == method) {
        let seed = record.seed as f64;
        for row in record.evals.iter_mut().filter(|row| row.test_len == len) {
            let loss = row.metrics.get_mut("loss_nats").unwrap();
            loss.value += by + per_seed * seed;
        }
    }
}

fn verdict(sides: &ScoreComparison, method: &str, len: usize) -> Verdict {
    let scores = &sides.settings[0].scores;
    let is_it = |s: &&longreach_report::Score| s.method == method && s.test_len == len;
    scores.iter().find(is_it).unwrap().verdict
}

#[test]
fn a_set_beside_itself_is_equal_throughout() {
    let records = text_experiment();
    let sides = compare(&records, &records, &ComparisonSpec::default());
    let total: usize = sides.settings.iter().map(|s| s.scores.len()).sum();
    assert!(total > 0);
    assert_eq!(sides.count(Verdict::Equal), total);
    assert!(sides.config.is_empty() && sides.environment.is_empty());
    assert!(!sides.has_regressed() && sides.covers_first());
    assert_eq!(
        sides.runs_in_both,
        records.iter().filter(|r| r.evaluation_of.is_none()).count()
    );
}

#[test]
fn regressions_are_distinguished_from_noise_and_gains() {
    let before = text_experiment();
    let (near, far) = (before[0].evals[0].test_len, before[0].evals[1].test_len);
    let mut after = wider(before.clone());
    shift(&mut after, "rope", near, 0.5, 0.01);
    shift(&mut after, "rope", far, -0.5, 0.01);
    shift(&mut after, "alibi", near, 0.01, -0.01);
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert_eq!(verdict(&sides, "rope", near), Verdict::Worse);
    assert_eq!(verdict(&sides, "rope", far), Verdict::Better);
    assert_eq!(verdict(&sides, "alibi", near), Verdict::NotShown);
    assert_eq!(sides.runs_in_both, 0);
    assert!(sides.has_regressed() && sides.covers_first());
    insta::assert_snapshot!("text", sides.text(false));

    // The other way round what was worse is better.
    let back = compare(&after, &before, &ComparisonSpec::default());
    assert_eq!(verdict(&back, "rope", near), Verdict::Better);
    assert_eq!(verdict(&back, "rope", far), Verdict::Worse);

    // A generous tolerance accepts all of it, a narrow one none of it.
    for (tolerance, regressed) in [(10.0, false), (1e-6, true)] {
        let spec = ComparisonSpec {
            tolerance: Some(tolerance),
            ..ComparisonSpec::default()
        };
        assert_eq!(
            compare(&before, &after, &spec).has_regressed(),
            regressed,
            "{tolerance}"
        );
    }
}

#[test]
fn configs_are_compared_by_method() {
    let before = text_experiment();
    let mut after = wider(before.clone());
    for record in after.iter_mut().filter(|r| r.labels[0].text == "rope") {
        record.spec["train"]["lr"] = json!(3e-3);
    }
    let sides = compare(&before, &after, &ComparisonSpec::default());
    let keys: Vec<(&str, bool)> = sides
        .config
        .iter()
        .map(|change| (change.key.as_str(), change.methods.is_empty()))
        .collect();
    // What follows from another setting is left out.
    assert_eq!(keys, [("model.d_model", true), ("train.lr", false)]);
    assert_eq!(sides.config[1].first.as_deref(), Some("0.001"));
    assert!(sides.equal_settings > 5);
}

#[test]
fn what_only_one_set_has_is_named() {
    let before = text_experiment();
    let mut after = wider(before.clone());
    after.retain(|r| r.labels[0].text != "alibi");
    let last = before[0]
        .evals
        .iter()
        .map(|row| row.test_len)
        .max()
        .unwrap();
    for record in &mut after {
        record.evals.retain(|row| row.test_len != last);
    }
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert!(!sides.covers_first());
    let setting = &sides.settings[0];
    assert_eq!(setting.only_first, ["alibi"]);
    assert_eq!(
        setting.lengths_only_first,
        [TestLength {
            to: last,
            from: None
        }]
    );
    let back = compare(&after, &before, &ComparisonSpec::default());
    assert!(back.covers_first());
    assert_eq!(back.settings[0].only_second, ["alibi"]);
}

#[test]
fn a_number_that_is_gone_is_a_regression() {
    let before = text_experiment();
    let mut after = wider(before.clone());
    let len = before[0].evals[0].test_len;
    for record in after.iter_mut().filter(|r| r.labels[0].text == "rope") {
        for row in record.evals.iter_mut().filter(|row| row.test_len == len) {
            row.status = records::record::EvalStatus::Diverged;
            row.metrics.clear();
        }
    }
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert_eq!(verdict(&sides, "rope", len), Verdict::Lost);
    assert!(sides.has_regressed());
    assert_eq!(
        verdict(
            &compare(&after, &before, &ComparisonSpec::default()),
            "rope",
            len
        ),
        Verdict::Gained
    );
}

#[test]
fn one_seed_is_judged_by_tolerance_only() {
    let all = text_experiment();
    let before: Vec<RunRecord> = all
        .iter()
        .filter(|r| r.seed == all[0].seed)
        .cloned()
        .collect();
    let len = before[0].evals[0].test_len;
    let mut after = wider(before.clone());
    shift(&mut after, "rope", len, 0.5, 0.0);
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert_eq!(verdict(&sides, "rope", len), Verdict::OneSeed);
    assert!(!sides.has_regressed());
    let spec = ComparisonSpec {
        tolerance: Some(1e-3),
        ..ComparisonSpec::default()
    };
    assert!(compare(&before, &after, &spec).has_regressed());
    for record in &mut after {
        record.seed = 7;
        record.spec["seed"] = json!(7);
    }
    let other = compare(&before, &after, &ComparisonSpec::default());
    assert_eq!(verdict(&other, "rope", len), Verdict::NoSeed);
}

#[test]
fn another_text_is_not_compared() {
    let before = text_experiment();
    let mut after = wider(before.clone());
    for record in &mut after {
        let corpus = record.task.corpus.as_mut().unwrap();
        corpus.blake3 = hex("another text");
    }
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert!(sides.settings.is_empty() && !sides.covers_first());
    assert_eq!((sides.only_first.len(), sides.only_second.len()), (1, 1));
    insta::assert_snapshot!("another_text", sides.text(false));
}

#[test]
fn shares_and_other_metrics() {
    let before = copy_experiment(3);
    let after = wider(before.clone());
    let spec = ComparisonSpec {
        metric: Some("token_accuracy".into()),
        ..ComparisonSpec::default()
    };
    let sides = compare(&before, &after, &spec);
    assert_eq!(sides.settings[0].metric, "token_accuracy");
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert_eq!(sides.settings[0].metric, "exact_match");
    let empty = ScoreComparison::of(("a", &before), ("b", &[]), &ComparisonSpec::default());
    assert!(matches!(empty, Err(ReportError::Empty { .. })));

    // Without a seed in common nothing is compared.
    let mut others = before.clone();
    for record in &mut others {
        record.seed += 10;
        record.run_id = hex(&format!("other {}", record.run_id));
    }
    let sides = compare(&before, &others, &ComparisonSpec::default());
    let scores: usize = sides.settings.iter().map(|s| s.scores.len()).sum();
    assert!(scores > 0 && sides.count(Verdict::NoSeed) == scores);
    assert!(!sides.covers_first());
}

/// A range and its upper end are two tests, and are named as they were written.
#[test]
fn lengths_of_one_side_are_named_with_their_lower_ends() {
    let before = copy_experiment(2);
    let mut after = wider(before.clone());
    for row in after.iter_mut().flat_map(|run| &mut run.evals) {
        row.from_len = (row.test_len == 32).then_some(17);
    }
    let sides = compare(&before, &after, &ComparisonSpec::default());
    let text = sides.text(false);
    text.must_have("only in the first: length 32");
    text.must_have("only in the second: length 17..32");
}

/// Variants that `longreach eval` added are no part of a config, and are compared by what they are.
#[test]
fn variants_of_later_evaluations_are_compared() {
    let with = |mut records: Vec<RunRecord>, factor: f64| -> Vec<RunRecord> {
        records.iter_mut().for_each(describe);
        let later = records.iter().map(|run| {
            let mut later = run.clone();
            later.evaluation_of = Some(run.run_id.clone());
            later.run_id = hex(&format!("{} ntk", run.run_id));
            later.evals.retain(|row| row.test_len == 64);
            later.evals[0].variant = "ntk".into();
            let scaling = json!({ "kind": "ntk", "factor": factor });
            let encoding = json!({ "kind": "rope", "scaling": scaling });
            later.spec["eval"]["test_lens"] = json!([64]);
            later.spec["eval"]["variants"] = json!([{ "name": "ntk", "pe": [encoding] }]);
            later
        });
        let later: Vec<RunRecord> = later.collect();
        [records, later].concat()
    };
    let runs = copy_experiment(2);
    let sides = |factor| {
        let first = with(runs.clone(), 2.0);
        compare(
            &first,
            &with(runs.clone(), factor),
            &ComparisonSpec::default(),
        )
        .text(false)
    };
    sides(8.0).must_have("eval.variants.ntk.scaling.factor");
    assert!(!sides(2.0).contains("eval.variants.ntk"));
    // A variant of the config that has the name of a later one stays what it is.
    let of_config = |records: &[RunRecord]| -> Vec<RunRecord> {
        let mut records = records.to_vec();
        for run in records.iter_mut().filter(|run| run.evaluation_of.is_none()) {
            run.evals.push(ok_row(
                "ntk",
                64,
                &[("exact_match", 0.5), ("loss_nats", 0.1)],
            ));
            describe(run);
        }
        records
    };
    let first = of_config(&with(runs.clone(), 2.0));
    let plain = of_config(&runs);
    let text = compare(&first, &plain, &ComparisonSpec::default()).text(false);
    assert!(
        !text.contains("eval.variants.ntk.scaling.factor ="),
        "{text}"
    );
}

/// Settings of one kind of task are paired by their task, each once; where only one is left on each
/// side, the comparison says that the task is another.
#[test]
fn other_tasks_are_paired_once_or_said() {
    let of = |name: &str, bits: u64| -> Vec<RunRecord> {
        let mut records = copy_experiment(3);
        for record in &mut records {
            record.run_id = hex(&format!("{name} {bits} {}", record.run_id));
            record.experiment = name.into();
            record.spec["task"]["alphabet"] = json!(bits);
            // Settings of their own.
            record.spec["train"]["steps"] = json!(1000 + bits);
        }
        records
    };
    let both = [of("two", 2), of("four", 4)].concat();
    let again = [of("two again", 2), of("four again", 4)].concat();
    let sides = compare(&both, &again, &ComparisonSpec::default());
    assert_eq!(sides.settings.len(), 2);
    assert!(
        sides.settings.iter().all(|s| s.task.is_empty()),
        "{sides:?}"
    );
    let total: usize = sides.settings.iter().map(|s| s.scores.len()).sum();
    assert_eq!(sides.count(Verdict::Equal), total);

    // One task less: the other one is not compared with what is left.
    let less = compare(&both, &of("four again", 4), &ComparisonSpec::default());
    assert_eq!((less.settings.len(), less.only_first.len()), (1, 1));
    assert!(!less.covers_first() && less.settings[0].task.is_empty());
    // Two tasks of which the other set has neither.
    let neither = compare(&both, &of("eight", 8), &ComparisonSpec::default());
    assert!(neither.settings.is_empty(), "{neither:?}");

    let other = compare(&of("two", 2), &of("four", 4), &ComparisonSpec::default());
    let task = &other.settings[0].task;
    assert_eq!((task.len(), task[0].key.as_str()), (1, "task.alphabet"));
    let text = other.text(false);
    text.must_have("another task: task.alphabet is 2 in the first, 4 in the second");
}

/// The same text under both: the interval of a difference also covers its blocks.
#[test]
fn differences_cover_the_text() {
    let blocks = |seed: u64, size: f64| -> Vec<f64> {
        (0..64)
            .map(|at| 2.0 + size * ((at * 37 + seed) as f64 / 9.0).sin())
            .collect()
    };
    let of = |size: f64, count: usize| {
        let mut records = wider(text_experiment());
        for record in &mut records {
            let seed = record.seed;
            for row in &mut record.evals {
                row.loss_by_block = blocks(seed, size)[..count].to_vec();
            }
        }
        shift(&mut records, "rope", 64, 0.1, 0.01);
        records
    };
    let mut before = of(0.5, 64);
    for record in &mut before {
        record.run_id = hex(&format!("before {}", record.run_id));
    }
    shift(&mut before, "rope", 64, -0.2, 0.0);
    let half = |after: &[RunRecord]| {
        let sides = compare(&before, after, &ComparisonSpec::default());
        let scores = &sides.settings[0].scores;
        let score = scores
            .iter()
            .find(|s| s.method == "rope" && s.test_len == 64)
            .unwrap();
        let (low, high) = score.interval.unwrap();
        (
            (high.ln_1p() - low.ln_1p()) / 2.0,
            score.over_text,
            sides.text(false),
        )
    };
    let (wide, is_over_text, text) = half(&of(0.9, 64));
    let (narrow, is_over_seeds_only, plain) = half(&of(0.9, 63));
    assert!(
        is_over_text && !is_over_seeds_only && wide > 1.5 * narrow,
        "{wide} {narrow}"
    );
    text.must_have("that of a difference 95 % CI over seeds and text");
    assert!(!plain.contains("seeds and text"), "{plain}");
    // What changes nothing but the mean leaves the interval over seeds.
    let (same, ..) = half(&of(0.5, 64));
    assert!((same - narrow).abs() < 1e-9, "{same} {narrow}");
}

#[test]
fn seeds_that_did_not_learn_are_counted() {
    let before = copy_experiment(3);
    let mut after = wider(before.clone());
    let name = before[0].labels[0].text.clone();
    let sides = compare(&before, &after, &ComparisonSpec::default());
    assert!(sides.settings[0].learned.is_empty(), "{sides:?}");
    let is_one = |r: &&mut RunRecord| r.labels[0].text == name && r.seed == before[0].seed;
    let run = after.iter_mut().find(is_one).unwrap();
    for row in run.evals.iter_mut() {
        row.metrics.get_mut("exact_match").unwrap().value = 0.0;
    }
    let sides = compare(&before, &after, &ComparisonSpec::default());
    let learned = &sides.settings[0].learned;
    assert_eq!((learned.len(), &learned[0].method), (1, &name));
    assert_eq!(
        (learned[0].first.as_str(), learned[0].second.as_str()),
        ("3 of 3", "2 of 3")
    );
    let wanted = format!("seeds that learned the task in length: {name} 3 of 3 -> 2 of 3");
    assert!(sides.text(false).contains(&wanted));
}
