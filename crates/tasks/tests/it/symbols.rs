//! Copy and reverse against slow oracles, published examples, and the laws every symbol task keeps.

use crate::common;
use longreach_tasks::{
    Batch, BuildContext, CopyConfig, ReverseConfig, Scoring, TEACHER_FORCED, Task, TaskSpec,
    TestSet,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn ctx(eval_seed: u64) -> BuildContext<'static> {
    common::ctx("", 8, &[8, 16], eval_seed)
}

fn task(kind: &str, alphabet: u64, test_rows: u64) -> Box<dyn Task> {
    match kind {
        "copy" => CopyConfig {
            alphabet,
            test_rows,
            ..CopyConfig::default()
        }
        .build(&ctx(0)),
        _ => ReverseConfig {
            alphabet,
            test_rows,
        }
        .build(&ctx(0)),
    }
    .unwrap()
}

/// One row split into (full token sequence, counted flags of the tokens after the first).
fn row(batch: &Batch, r: usize) -> (Vec<i32>, Vec<bool>) {
    let (inputs, targets, counted) = common::causal_row(batch, r);
    ([&inputs[..1], targets].concat(), counted.to_vec())
}

/// The layout written out token by token.
fn check_row(kind: &str, batch: &Batch, r: usize, n: usize, alphabet: i32) {
    let (tokens, counted) = row(batch, r);
    assert_eq!(tokens.len(), 2 * n + 3);
    assert_eq!(
        (tokens[0], tokens[n + 1], tokens[2 * n + 2]),
        (0, 1, 2),
        "BOS, SEP, EOS"
    );
    for i in 0..n {
        let symbol = tokens[1 + i];
        assert!(symbol >= 3 && symbol < 3 + alphabet);
        let answered = if kind == "copy" {
            tokens[n + 2 + i]
        } else {
            tokens[2 * n + 1 - i]
        };
        assert_eq!(symbol, answered);
    }
    for (i, counted) in counted.into_iter().enumerate() {
        assert_eq!(
            counted,
            i + 1 >= n + 2,
            "the target at input {i} is token {}",
            i + 1
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_follow_the_oracle(reverse: bool, alphabet in 2u64..40, n in 1usize..40, rows in 1usize..9, seed: u64, step: u64) {
        let kind = if reverse { "reverse" } else { "copy" };
        let task = task(kind, alphabet, 20);
        prop_assert_eq!(task.seq_len(n), 2 * n + 2);
        let train = task.train_batch(n, rows, seed, step);
        let tested = task.test_batch(n, 0, task.test_rows(n));
        for batch in [&train, &tested] {
            prop_assert_eq!(batch.inputs.len(), batch.rows * batch.seq_len);
            prop_assert_eq!(batch.seq_len, task.seq_len(n));
            (0..batch.rows).for_each(|r| check_row(kind, batch, r, n, alphabet as i32));
            prop_assert!(batch.inputs.iter().all(|&t| (t as usize) < task.vocab_size()));
        }
    }
}

#[test]
fn train_and_test_streams_differ_and_seeds_matter() {
    let task = task("copy", 16, 64);
    let tested = task.test_batch(20, 0, 64);
    let trained = task.train_batch(20, 64, 0, 0);
    let strings = |b: &Batch| -> BTreeSet<Vec<i32>> {
        b.inputs.chunks(b.seq_len).map(<[i32]>::to_vec).collect()
    };
    assert!(
        strings(&tested).is_disjoint(&strings(&trained)),
        "eval seed 0 and training seed 0"
    );
    assert_ne!(task.train_batch(20, 64, 1, 0), trained);
    let other = CopyConfig::default().build(&ctx(1)).unwrap();
    assert!(strings(&other.test_batch(20, 0, 64)).is_disjoint(&strings(&tested)));
}

#[test]
fn short_lengths_test_every_string_once() {
    let task = task("copy", 3, 256);
    assert_eq!(
        (
            task.test_rows(1),
            task.test_rows(2),
            task.test_rows(5),
            task.test_rows(6)
        ),
        (3, 9, 243, 256)
    );
    assert_eq!(task.test_rows(100_000), 256);
    let sizes: Vec<usize> = TestSet::new(&*task, 5)
        .batches(100)
        .map(|b| b.rows)
        .collect();
    assert_eq!(sizes, [100, 100, 43]);
    let every = task.test_batch(5, 0, 243);
    let distinct: BTreeSet<_> = every.inputs.chunks(every.seq_len).collect();
    assert_eq!(distinct.len(), 243);
}

#[test]
#[should_panic(expected = "test rows 3..4 of 3")]
fn rows_past_the_end_are_a_bug_of_the_caller() {
    task("copy", 3, 256).test_batch(1, 3, 1);
}

#[test]
fn counted_tokens_agree_with_repeat_after_me() {
    // Provenance: sjelassi/transformers_ssm_copy, data_utils.py: "$abcab|abcab." with the loss on
    // "abcab." only. `$` is BOS, `|` is SEP and `.` is EOS here.
    let mask = [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1];
    let batch = task("copy", 26, 1).train_batch(5, 1, 0, 0);
    let (tokens, counted) = row(&batch, 0);
    assert_eq!(tokens.len(), "$abcab|abcab.".len());
    assert_eq!(
        counted,
        mask[1..].iter().map(|&m| m == 1).collect::<Vec<_>>()
    );
}

/// Runs are named by their configuration alone, so the rows behind a name must stay what they were.
#[test]
fn rows_of_the_first_release() {
    let mut hasher = blake3::Hasher::new();
    for kind in ["copy", "reverse"] {
        for alphabet in [2, 3, 16, 100, 4096] {
            let task = task(kind, alphabet, 64);
            for n in [1, 2, 3, 5, 8, 15, 16, 17, 31, 40, 62, 63, 64, 100, 300] {
                common::hash(&mut hasher, &task.train_batch(n, 7, 3, n as u64 + alphabet));
                common::hash(&mut hasher, &task.test_batch(n, 0, task.test_rows(n)));
            }
        }
    }
    let hash = hasher.finalize().to_hex();
    // Recorded from the code of commit fa396cc, before other tasks shared it.
    assert_eq!(
        hash.as_str(),
        "2e0937046e02ef417898438e833c92db35e0b92cd337c253ed1d7f4289b9560f"
    );
    let definitions = task("copy", 16, 256).definitions(TEACHER_FORCED);
    assert_eq!(
        definitions["token_accuracy"],
        "share of answer tokens, EOS included, predicted right, every token of every row weighing \
         the same; teacher-forced, first scored token is the one after SEP; 256 distinct test \
         strings per length (all strings where there are fewer), not kept out of training, so \
         short ones repeat there."
    );
    assert!(definitions["exact_match"].starts_with(
        "share of test rows whose answer and EOS are all predicted right; teacher-forced, "
    ));
    let loss = "mean negative log-likelihood in nats of the answer tokens, EOS included, every \
                token weighing the same; teacher-forced";
    assert!(definitions["loss_nats"].starts_with(loss));
}

#[test]
fn says_what_it_measures() {
    for kind in ["copy", "reverse"] {
        let task = task(kind, 16, 256);
        assert_eq!(
            (task.kind(), task.unit(), task.vocab_size(), task.scoring()),
            (kind, "symbols", 19, Scoring::Answer)
        );
        assert_eq!(task.chance()["token_accuracy"], 1.0 / 16.0);
        assert!((task.chance()["loss_nats"] - 19f64.ln()).abs() < 1e-12);
    }
}
