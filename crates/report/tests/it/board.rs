//! The board: ranks of methods over tasks, and how far each seed reaches.

use crate::common::{MustHave, absent_row, copy_task, hex, ok_row, record, text_task};
use crate::report::{cells, spec, text};
use longreach_report::report;
use records::RunRecord;
use records::record::{EvalStatus, TaskFacts};
use serde_json::json;

/// Exact matches in length and past it, one pair for each seed.
pub fn scored(kind: &str, pe: &str, by_seed: &[(f64, f64)]) -> Vec<RunRecord> {
    let of_seed = |(seed, &(here, past)): (usize, &(f64, f64))| {
        let task = TaskFacts {
            kind: kind.into(),
            ..copy_task(16)
        };
        let mut run = record(
            &format!("task-{kind}"),
            &[("model.pe", json!(pe))],
            seed as u64,
            task,
        );
        run.evals = [(16, here), (24, past), (32, past / 2.0)]
            .map(|(len, v)| ok_row("trained", len, &[("exact_match", v)]))
            .to_vec();
        run
    };
    by_seed.iter().enumerate().map(of_seed).collect()
}

#[test]
fn methods_are_ranked_over_tasks() {
    let mut records = Vec::new();
    for (kind, pe, by_seed) in [
        ("copy", "alibi", [(1.0, 0.9), (1.0, 0.8)]),
        ("copy", "nope", [(1.0, 0.5), (1.0, 0.9)]),
        ("copy", "rope", [(1.0, 0.0), (1.0, 0.0)]),
        // Not learned: last, whatever it scores past the training length.
        ("sort", "alibi", [(0.5, 1.0), (0.5, 1.0)]),
        ("sort", "nope", [(1.0, 0.7), (1.0, 0.7)]),
        ("sort", "rope", [(1.0, 0.7), (1.0, 0.7)]),
        // Learned by nobody: does not count.
        ("parity", "alibi", [(0.5, 0.5), (0.5, 0.5)]),
        ("parity", "nope", [(0.5, 0.6), (0.5, 0.5)]),
        ("parity", "rope", [(0.5, 0.7), (0.5, 0.5)]),
    ] {
        records.extend(scored(kind, pe, &by_seed));
    }
    // The same task at another length with fewer methods does not count either.
    records.extend(
        scored("copy", "alibi", &[(1.0, 0.1), (1.0, 0.1)])
            .into_iter()
            .map(|mut run| {
                run.run_id = hex(&format!("another {}", run.seed));
                run.task.train_len = 8;
                run.spec["train"]["train_len"] = json!(8);
                run
            }),
    );
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    let rows = cells(&markdown, "Methods over all tasks");
    // Ranks at copy and sort by the means over seeds: 1 and 3; 2 and 1.5; 3 and 1.5.
    assert_eq!(
        rows[0],
        [
            "method",
            "group",
            "P(best)",
            "MRR",
            "[copy, trained at 16 symbols](#copy-16)",
            "[sort, trained at 16 symbols](#sort-16)"
        ]
    );
    let without_best: Vec<Vec<String>> = rows[1..]
        .iter()
        .map(|row| [&row[..2], &row[3..]].concat())
        .collect();
    assert_eq!(
        without_best,
        [
            [
                "alibi",
                "A",
                "0.67",
                "1x \\[1x, 1.5x\\]",
                "not converged (0 of 2)"
            ],
            ["nope", "A", "0.58", "1x \\[1x, 1.5x\\]", "1x"],
            ["rope", "A", "0.50", "1x", "1x"],
        ]
    );
    // Of copy alone alibi is first unless both seeds drawn are the second, so with 3/4. Two tasks
    // are drawn: both copy (a tie where they say different things), one of each, or both sort.
    let best = [9.0 / 16.0, 5.0 / 16.0, 1.0 / 8.0];
    for (row, best) in rows[1..].iter().zip(best) {
        let got: f64 = row[2].parse().unwrap();
        assert!((got - best).abs() < 0.02, "{row:?}, {best}");
    }
    markdown.must_have("Over 2 tasks: all methods are in one group.");
    // One task is not a mean, and one method no rank.
    for few in [
        scored("copy", "alibi", &[(1.0, 0.9)]),
        [
            scored("copy", "alibi", &[(1.0, 0.9)]),
            scored("sort", "alibi", &[(1.0, 0.9)]),
        ]
        .concat(),
    ] {
        assert!(!text(&report(&few, &[], &spec()).unwrap(), "report.md").contains("P(best)"));
    }
}

#[test]
fn a_text_on_the_board_has_bits_per_byte_in_length_and_ratios_past_it() {
    let mut records = [
        scored("copy", "alibi", &[(1.0, 0.9); 2]),
        scored("copy", "rope", &[(1.0, 0.0); 2]),
    ]
    .concat();
    for (pe, bits, at_4x) in [("alibi", 2.0, 2.0), ("rope", 1.5, 3.0)] {
        for seed in 0..2 {
            let labels = [("model.pe", json!(pe))];
            let mut run = record("text", &labels, seed, text_task(32));
            run.evals = [(32, bits), (128, at_4x)]
                .map(|(len, bits)| {
                    let nats = bits * std::f64::consts::LN_2;
                    ok_row("trained", len, &[("loss_nats", nats)])
                })
                .to_vec();
            records.push(run);
        }
    }
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    let rows = cells(&markdown, "Methods over all tasks");
    assert!(rows[0][5].starts_with("[bits_per_byte, "), "{:?}", rows[0]);
    // The ratio is of perplexities: 2 to the difference in bits.
    let both = [
        ("alibi", "2.000 ± 0.000", "1.00 ", "≥ 4x"),
        ("rope", "1.500 ± 0.000", "2.83 ", "1x"),
    ];
    for (row, (method, bits, ratio, reach)) in rows[1..].iter().zip(both) {
        assert_eq!([&row[0], &row[5], &row[7]], [method, bits, reach]);
        assert!(row[6].starts_with(ratio), "{row:?}");
    }
}

/// The cells of the board, without its head.
fn board(records: &[RunRecord]) -> Vec<Vec<String>> {
    let markdown = text(&report(records, &[], &spec()).unwrap(), "report.md");
    cells(&markdown, "Methods over all tasks").split_off(1)
}

#[test]
fn a_length_that_one_method_lacks_does_not_change_ranks() {
    let mut records = [
        scored("copy", "alibi", &[(1.0, 0.9); 2]),
        scored("copy", "rope", &[(1.0, 0.1); 2]),
        scored("sort", "alibi", &[(1.0, 0.8); 2]),
        scored("sort", "rope", &[(1.0, 0.2); 2]),
    ]
    .concat();
    let before = board(&records);
    assert_eq!([&before[0][0], &before[0][2]], ["alibi", "1.00"]);
    // RoPE is also tested at another length, by a later evaluation.
    for run in records
        .iter_mut()
        .filter(|run| run.labels[0].text == "rope")
    {
        let more = ok_row("trained", 48, &[("exact_match", 0.05)]);
        run.evals.insert(2, more);
    }
    assert_eq!(board(&records), before);
}

#[test]
fn a_task_that_no_ranked_method_learned_does_not_count() {
    let mut records = [
        scored("copy", "alibi", &[(1.0, 0.9); 2]),
        scored("copy", "rope", &[(1.0, 0.1); 2]),
        scored("sort", "alibi", &[(1.0, 0.8); 2]),
        scored("sort", "rope", &[(1.0, 0.2); 2]),
    ]
    .concat();
    // Parity lacks it, which does not count.
    records.extend(scored("copy", "fire", &[(1.0, 0.5); 2]));
    records.extend(scored("sort", "fire", &[(1.0, 0.5); 2]));
    let before = board(&records);
    assert_eq!(before.len(), 3);
    // Learned by a method that the other tasks lack.
    records.extend(scored("parity", "nope", &[(1.0, 0.9); 2]));
    records.extend(scored("parity", "alibi", &[(0.5, 0.1); 2]));
    records.extend(scored("parity", "rope", &[(0.5, 0.2); 2]));
    assert_eq!(board(&records), before);
}

#[test]
fn a_seed_that_diverges_at_a_length_ranks_last_there() {
    let mut records = [
        scored("copy", "alibi", &[(1.0, 0.9); 2]),
        scored("copy", "rope", &[(1.0, 0.8); 2]),
        scored("sort", "alibi", &[(1.0, 0.9); 2]),
        scored("sort", "rope", &[(1.0, 0.8); 2]),
    ]
    .concat();
    let first = |records: &[RunRecord]| board(records)[0][0].clone();
    assert_eq!(first(&records), "alibi");
    for run in records
        .iter_mut()
        .filter(|run| run.labels[0].text == "alibi" && run.seed == 0)
    {
        run.evals[1] = absent_row("trained", 24, EvalStatus::Diverged, "");
    }
    assert_eq!(first(&records), "rope");
    // Where all diverged in length, nothing was learned: with what was not, that is last.
    records.extend(scored("copy", "nope", &[(0.5, 0.1); 2]));
    records.extend(scored("sort", "nope", &[(0.5, 0.1); 2]));
    records.extend(scored("copy", "t5", &[(1.0, 0.9); 2]));
    records.extend(scored("sort", "t5", &[(1.0, 0.9); 2]));
    let t5 = records.iter_mut().filter(|run| run.labels[0].text == "t5");
    for row in t5.flat_map(|run| &mut run.evals) {
        *row = absent_row("trained", row.test_len, EvalStatus::Diverged, "");
    }
    let rows = board(&records);
    let mrr = |pe: &str| rows.iter().find(|row| row[0] == pe).unwrap()[2].clone();
    assert_eq!(mrr("t5"), mrr("nope"));
}

#[test]
fn a_method_that_lacks_a_task_is_named_below_the_board() {
    let mut records = Vec::new();
    for (kind, pe) in [
        ("copy", "alibi"),
        ("copy", "nope"),
        ("copy", "rope"),
        ("sort", "alibi"),
    ] {
        records.extend(scored(kind, pe, &[(1.0, 0.9), (1.0, 0.8)]));
    }
    records.extend(scored("sort", "nope", &[(1.0, 0.9)]));
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    markdown.must_have("Not ranked: rope (not tested at sort).");
    assert!(markdown.contains("over the seeds that all of them have at a task (1 to 2)"));
    records.extend(scored("sort", "rope", &[(1.0, 0.9)]));
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    assert!(!markdown.contains("Not ranked"));
}

#[test]
fn few_tasks_show_no_order_on_others() {
    let summary = |tasks: usize| {
        let records: Vec<RunRecord> = (0..tasks)
            .flat_map(|task| {
                let kind = format!("task{task}");
                [("alibi", 0.9), ("rope", 0.1)]
                    .map(|(pe, past)| scored(&kind, pe, &[(1.0, past); 2]))
            })
            .flatten()
            .collect();
        report(&records, &[], &spec()).unwrap().summary
    };
    let five = summary(5);
    let few = "Over 5 tasks: alibi comes first. With so few tasks this holds for these tasks only.";
    five.must_have(few);
    let six = summary(6);
    six.must_have("Over 6 tasks: alibi is clearly ahead of every other method.");
}

#[test]
fn a_seed_that_diverges_past_the_training_length_has_lost_it() {
    let mut records = [
        scored("copy", "alibi", &[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]),
        scored("copy", "rope", &[(1.0, 0.1); 3]),
        scored("sort", "alibi", &[(1.0, 1.0); 3]),
        scored("sort", "rope", &[(1.0, 0.1); 3]),
    ]
    .concat();
    let at_24 = |run: &mut RunRecord, status| {
        run.evals[1].status = status;
        run.evals[1].metrics.clear();
    };
    for run in &mut records[..2] {
        at_24(run, EvalStatus::Diverged);
    }
    assert_eq!(board(&records)[0][4], "1x \\[1x, 1.5x\\]");
    for run in &mut records[..3] {
        at_24(run, EvalStatus::Unsupported);
    }
    let rows = board(&records);
    let alibi = rows.iter().find(|row| row[0] == "alibi").unwrap();
    assert_eq!(alibi[4], "1x");
}
