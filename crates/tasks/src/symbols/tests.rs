//! Draws, splits and test sets of symbol tasks.

use super::*;
use crate::{BuildContext, Task};
use std::collections::BTreeSet;

fn task(alphabet: u64, test_rows: u64, held_out: HeldOut) -> SymbolTask<StringRule> {
    let ctx = BuildContext {
        config_dir: "".into(),
        lock: "",
        cargo_home: None,
        train_len: 4,
        test_lens: vec![4],
        eval_seed: 1,
        rows: crate::Rows::Test,
        bidirectional: false,
        carried: None,
    };
    let copy = StringRule {
        kind: "copy",
        alphabet,
        answers: alphabet,
        answer: Box::new(<[i32]>::to_vec),
        answer_len: |n| n,
        held_out,
        distinct: false,
    };
    SymbolTask::new(copy, test_rows, &ctx).unwrap()
}

fn questions(task: &SymbolTask<StringRule>, length: usize, rows: u64) -> Vec<Vec<i32>> {
    let plan = task.plan(length);
    (0..rows)
        .map(|row| task.test_row(length, &plan, row).question)
        .collect()
}

#[test]
fn test_strings_are_distinct_also_where_the_permuted_prefix_is_shorter() {
    for held_out in [HeldOut::No, HeldOut::ByChoices] {
        for (alphabet, length) in [
            (2, 3),
            (2, 8),
            (2, 61),
            (2, 62),
            (2, 63),
            (3, 50),
            (16, 15),
            (16, 16),
            (16, 40),
            (4096, 1),
            (4096, 6),
        ] {
            let task = task(alphabet, 300, held_out);
            let rows = task.test_rows(length);
            assert_eq!(
                rows as u64,
                300.min(alphabet.saturating_pow(length as u32)),
                "{alphabet}^{length}"
            );
            let strings: BTreeSet<_> = questions(&task, length, rows as u64).into_iter().collect();
            assert_eq!(strings.len(), rows);
            assert!(
                strings.iter().all(
                    |s| s.len() == length && s.iter().all(|t| (0..alphabet as i32).contains(t))
                )
            );
        }
    }
}

#[test]
fn test_strings_use_all_symbols_everywhere() {
    for held_out in [HeldOut::No, HeldOut::ByChoices, HeldOut::ByHash] {
        let strings = questions(&task(16, 4000, held_out), 21, 4000);
        for position in [0, 7, 14, 15, 20] {
            let mut counts = [0u32; 16];
            strings
                .iter()
                .for_each(|string| counts[string[position] as usize] += 1);
            let chi2: f64 = counts
                .iter()
                .map(|&c| (f64::from(c) - 250.0).powi(2) / 250.0)
                .sum();
            assert!(chi2 < 42.0, "{held_out:?}, position {position}: {chi2}");
        }
    }
}

#[test]
fn training_never_meets_the_test_part() {
    for held_out in [HeldOut::ByChoices, HeldOut::ByHash] {
        // 2^10 strings, of which every one is seen in 40 batches of 1000 rows; both sides of
        // the split together are all strings.
        let task = task(2, 256, held_out);
        let trained: BTreeSet<Vec<i32>> = (0..40)
            .flat_map(|step| {
                task.train_batch(10, 1000, 0, step)
                    .inputs
                    .chunks(22)
                    .map(|r| r[1..11].to_vec())
                    .collect::<Vec<_>>()
            })
            .collect();
        let tested: BTreeSet<Vec<i32>> = task
            .test_batch(10, 0, 256)
            .inputs
            .chunks(22)
            .map(|r| r[1..11].to_vec())
            .collect();
        assert!(trained.is_disjoint(&tested), "{held_out:?}");
        if held_out == HeldOut::ByChoices {
            assert_eq!((trained.len(), tested.len()), (768, 256));
        } else {
            assert!(
                trained.len() > 700 && tested.len() > 120,
                "{} {}",
                trained.len(),
                tested.len()
            );
        }
    }
}

#[test]
fn lengths_with_few_questions_still_have_rows() {
    for held_out in [HeldOut::No, HeldOut::ByChoices, HeldOut::ByHash] {
        let task = task(2, 256, held_out);
        assert_eq!(task.train_batch(1, 50, 0, 0).rows, 50);
        assert_eq!(
            task.test_rows(1),
            if held_out == HeldOut::ByHash { 256 } else { 2 }
        );
        assert_eq!(task.test_batch(1, 0, task.test_rows(1)).seq_len, 4);
    }
}

#[test]
fn distinct_numbers_are_every_arrangement_once() {
    let mut seen = BTreeSet::new();
    for number in 0..5 * 4 * 3 {
        let picked = distinct(&[number % 5, number / 5 % 4, number / 20]);
        assert_eq!(picked.iter().collect::<BTreeSet<_>>().len(), 3);
        assert!(picked.iter().all(|p| *p < 5) && seen.insert(picked));
    }
}

#[test]
fn digits_are_decimal() {
    assert_eq!(
        (digits(7, 1), digits(907, 5), digits(0, 2)),
        (vec![7], vec![0, 0, 9, 0, 7], vec![0, 0])
    );
    assert_eq!([0, 9, 10, 999, 1000].map(digits_len), [1, 1, 2, 3, 4]);
}
