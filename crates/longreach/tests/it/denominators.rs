//! Counts of the denominators of linear attention in records, reports and later evaluations.

use crate::common::{Scratch, TINY, command, exits, has, shows};
use records::RunRecord;
use records::record::{Denominators, EvalRow};

/// Linear attention whose features are often all 0, scored while training too.
const LINEAR: [&str; 6] = [
    "seeds=[0]",
    "axes.\"model.pe\"=[{kind=\"rope\"}]",
    "eval.variants=[]",
    "model.attention=\"linear\"",
    "model.feature_map=\"relu\"",
    "eval.every=3",
];

fn records(scratch: &Scratch) -> Vec<RunRecord> {
    let records = scratch.records().into_iter();
    records
        .map(|(_, bytes)| serde_json::from_slice(&bytes).unwrap())
        .collect()
}

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&LINEAR[..], more].concat()
}

/// Tests of a row of `TINY`: 8 rows of `2 length + 2` tokens, two heads, one layer.
fn expected(row: &EvalRow) -> u64 {
    8 * (2 * row.test_len as u64 + 2) * 2
}

#[test]
fn rotated_denominators_are_counted_in_records_and_reports() {
    let scratch = Scratch::with(TINY);
    let rotated = with(&["model.normalizer=\"rotated\""]);
    scratch.trains(&rotated);
    let record = records(&scratch).remove(0);
    let scores = record.train.scores.iter().flat_map(|at| &at.rows);
    for row in record.evals.iter().chain(scores) {
        let counted = row.denominators.expect("counts");
        assert_eq!(counted.count, expected(row));
        // Features that are all 0 make denominators of 0.
        assert!(counted.clamped > 0 && counted.clamped < counted.count);
    }
    let all: Vec<Denominators> = record
        .evals
        .iter()
        .filter_map(|row| row.denominators)
        .collect();
    let report = std::fs::read_to_string(scratch.runs().join("tiny/report/report.md")).unwrap();
    let cells = |name: &str, of: fn(&Denominators) -> u64| {
        format!("| RoPE | {name} | {} | {} |", of(&all[0]), of(&all[1]))
    };
    for line in [
        "### Denominators of linear attention".to_owned(),
        cells("all", |of| of.count),
        cells("negative", |of| of.negative),
        cells("clamped", |of| of.clamped),
        format!(
            "Denominators of linear attention that are not sums of weights: RoPE: {} negative and \
             {} clamped of {}.",
            all[0].negative + all[1].negative,
            all[0].clamped + all[1].clamped,
            all[0].count + all[1].count
        ),
    ] {
        has(&report, &line);
    }
    // A later evaluation counts too, and says so.
    let experiment = scratch.runs().join("tiny");
    let later = command("eval", &experiment, &["--lengths", "12"]);
    exits(&later, 0);
    shows(&later, "clamped of 416.");
    let verified = command("verify", &experiment, &["--reevaluate", "--retrain"]);
    exits(&verified, 0);
    // The same counts on any number of threads.
    let other = Scratch::with(TINY);
    let mut alone = other.program("run", &rotated);
    exits(&alone.env("RAYON_NUM_THREADS", "1").output().unwrap(), 0);
    assert_eq!(records(&other).remove(0).evals, record.evals);
}

#[test]
fn denominators_of_a_range_are_those_of_its_rows() {
    let scratch = Scratch::with(TINY);
    let range = [
        "model.normalizer=\"rotated\"",
        "eval.test_lens=[4,\"5..9\"]",
    ];
    scratch.trains(&with(&range));
    let row = records(&scratch).remove(0).evals.remove(1);
    let counted = row.denominators.expect("counts").count;
    assert!(counted > 0 && counted < expected(&row), "{counted}");
    exits(&command("verify", &scratch.runs().join("tiny"), &[]), 0);
}

#[test]
fn other_denominators_are_not_counted() {
    for more in [
        &["model.normalizer=\"cosine\"", "model.feature_map=\"elu\""][..],
        &["model.normalizer=\"unrotated\""],
    ] {
        let scratch = Scratch::with(TINY);
        scratch.trains(&with(more));
        let (_, bytes) = scratch.records().remove(0);
        assert!(
            !String::from_utf8(bytes).unwrap().contains("denominators"),
            "{more:?}"
        );
        let report = std::fs::read_to_string(scratch.runs().join("tiny/report/report.md"));
        assert!(
            !report.unwrap().to_lowercase().contains("denominator"),
            "{more:?}"
        );
    }
}
