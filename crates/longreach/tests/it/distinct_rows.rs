//! Test sets count their distinct rows, where some repeat.

use crate::common::{Scratch, TINY, command, exits};
use experiment::plan;
use experiment::run::task::build_task;
use experiment::run::test_rows::TestRows;
use records::RunRecord;
use std::collections::BTreeSet;

const NEEDLES: [&str; 3] = [
    "seeds=[0]",
    "task={kind=\"needles\",keys=1,digits=1}",
    "eval.test_lens=[1,40]",
];

#[test]
fn rows_that_repeat_are_counted_once() {
    let scratch = Scratch::with(TINY);
    for (task, fewer) in [
        (NEEDLES[1], true),
        ("task={kind=\"copy\",alphabet=2,test_rows=300}", false),
        ("task={kind=\"flip_flop\",test_rows=60}", true),
        ("task={kind=\"addition\",test_rows=40}", false),
    ] {
        let arguments = [NEEDLES[0], task, "eval.test_lens=[2,4]"].map(str::to_owned);
        let plan = plan(&scratch.config, &arguments).unwrap();
        let task = build_task(&plan.runs[0].job, &[2, 4]).unwrap();
        for length in [2, 4] {
            let rows = task.test_rows(length);
            let batch = task.test_batch(length, 0, rows);
            let each = |ids: &[i32]| -> Vec<Vec<i32>> {
                ids.chunks(batch.seq_len).map(<[i32]>::to_vec).collect()
            };
            let both = each(&batch.inputs).into_iter().zip(each(&batch.targets));
            let distinct = both.collect::<BTreeSet<_>>().len();
            let expected = (distinct < rows).then_some(distinct as u64);
            assert_eq!(
                TestRows::new(task.as_ref(), (None, length), 0).distinct(task.as_ref()),
                expected
            );
            assert!(
                length > 2 || expected.is_some() == fewer,
                "{distinct} of {rows}"
            );
        }
    }
}

#[test]
fn a_record_says_how_many_rows_of_a_small_test_differ() {
    let scratch = Scratch::with(TINY);
    let rope = "axes.\"model.pe\"=[{kind=\"rope\"}]";
    scratch.trains(&[&NEEDLES[..], &[rope]].concat());
    let record: RunRecord = serde_json::from_slice(&scratch.records()[0].1).unwrap();
    let counts = record
        .evals
        .iter()
        .map(|row| (row.test_len, row.distinct_rows));
    let counts: Vec<_> = counts.filter(|(length, _)| *length == 1).collect();
    // Counted outside of this program.
    assert!(!counts.is_empty() && counts.iter().all(|count| *count == (1, Some(173))));
    let longer = record.evals.iter().filter(|row| row.test_len == 40);
    assert!(longer.clone().count() > 0);
    assert!(
        longer
            .into_iter()
            .all(|row| row.distinct_rows.is_none_or(|rows| rows > 173))
    );
    exits(&command("verify", &scratch.runs(), &[]), 0);
}
