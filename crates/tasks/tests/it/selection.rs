//! Rows to choose values by: no result is scored on them, nothing is trained on them where test
//! rows are held out, and test rows are what they are without them.

use crate::common::{self, MustHave};
use crate::laws;
use longreach_tasks::{Batch, BuildContext, Rows, Task, TaskConfig, TaskError};
use std::collections::BTreeSet;
use std::path::Path;

fn context(directory: &Path, rows: Rows, lengths: [usize; 2]) -> BuildContext<'static> {
    BuildContext {
        rows,
        ..common::ctx(directory, lengths[0], &lengths, 0)
    }
}

fn build(table: &str, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
    toml::from_str::<TaskConfig>(table).expect(table).build(ctx)
}

fn both(table: &str, eval_seed: u64) -> [Box<dyn Task>; 2] {
    [Rows::Test, Rows::Selection].map(|rows| {
        let ctx = BuildContext {
            rows,
            ..common::ctx("", 64, &[64, 128], eval_seed)
        };
        build(table, &ctx).unwrap_or_else(|error| panic!("{table}: {error}"))
    })
}

fn rows(batch: &Batch) -> BTreeSet<Vec<i32>> {
    batch
        .inputs
        .chunks(batch.seq_len)
        .map(<[i32]>::to_vec)
        .collect()
}

fn all(task: &dyn Task, length: usize) -> BTreeSet<Vec<i32>> {
    rows(&task.test_batch(length, 0, task.test_rows(length)))
}

#[test]
fn no_row_both_chooses_and_scores() {
    for table in laws::tables() {
        let [test, selection] = both(&table, 5);
        for n in [10, 40] {
            let (scored, chosen) = (all(&*test, n), all(&*selection, n));
            assert!(
                scored.is_disjoint(&chosen) && !chosen.is_empty(),
                "{table}, length {n}"
            );
        }
        assert_eq!(selection.test_rows(40), test.test_rows(40), "{table}");
    }
}

/// At short lengths, too, unless there is no other row.
#[test]
fn rows_for_selection_are_other_rows_where_there_are_any() {
    for (table, held_out) in [
        ("kind = \"copy\"\nalphabet = 3\ntest_rows = 20", false),
        ("kind = \"parity\"\ntest_rows = 20", true),
        ("kind = \"duplicate\"\nalphabet = 3\ntest_rows = 20", true),
    ] {
        let [test, selection] = both(table, 0);
        let alphabet = if table.contains("parity") { 2usize } else { 3 };
        for n in 1..8u32 {
            let strings = alphabet.pow(n);
            let (scored, chosen) = (all(&*test, n as usize), all(&*selection, n as usize));
            let left = strings.saturating_sub(20);
            let expected = if left == 0 { strings } else { left.min(20) };
            assert_eq!(chosen.len(), expected, "{table}, length {n}");
            assert_eq!(scored.is_disjoint(&chosen), left > 0, "{table}, length {n}");
            let trained = rows(&selection.train_batch(n as usize, 6000, 0, 0));
            if held_out && strings >= 80 {
                assert!(trained.is_disjoint(&chosen), "{table}, length {n}");
                assert!(trained.is_disjoint(&scored), "{table}, length {n}");
            }
        }
    }
}

#[test]
fn no_selection_row_is_trained_on() {
    // copy and reverse keep no rows apart.
    let kept = |table: &String| !table.contains("\"copy\"") && !table.contains("\"reverse\"");
    for table in laws::tables().into_iter().filter(kept) {
        let [test, selection] = both(&table, 0);
        let chosen = all(&*selection, 10);
        // Nearly all 1024 strings of bits are met in 4000 rows.
        for step in 0..4 {
            let trained = rows(&selection.train_batch(10, 1000, 0, step));
            assert!(trained.is_disjoint(&chosen), "{table}");
        }
        let trained = [&test, &selection].map(|task| task.train_batch(40, 9, 1, 2));
        assert_eq!(
            trained[0], trained[1],
            "{table}: the same training where there is room"
        );
    }
}

#[test]
fn rows_for_selection_do_not_depend_on_grouping_and_follow_the_evaluation_seed() {
    for table in laws::tables() {
        let ([_, task], [_, again]) = (both(&table, 3), both(&table, 3));
        let whole = task.test_batch(12, 0, task.test_rows(12));
        for row in (0..whole.rows).rev().step_by(17) {
            let one = again.test_batch(12, row, 1).inputs;
            assert_eq!(
                one,
                whole.inputs[row * whole.seq_len..][..whole.seq_len],
                "{table}"
            );
        }
        let [_, other] = both(&table, 4);
        assert_ne!(
            other.test_batch(40, 0, 8),
            task.test_batch(40, 0, 8),
            "{table}"
        );
    }
}

/// A file of the ids from 0 on: a token says where it stands.
fn places(directory: &Path, count: u16) {
    let ids: Vec<u8> = (0..count).flat_map(u16::to_le_bytes).collect();
    std::fs::write(directory.join("ids"), ids).expect("a file");
}

/// Tokens that a task reads or scores in its test, and those that count, each as often as it does.
fn read_and_scored(task: &dyn Task, length: usize) -> (BTreeSet<i32>, Vec<i32>) {
    let batch = task.test_batch(length, 0, task.test_rows(length));
    let read = batch.inputs.iter().chain(&batch.targets).copied().collect();
    let targets = batch.targets.iter().zip(&batch.counted);
    let scored = targets
        .filter(|(_, counted)| **counted)
        .map(|(target, _)| *target);
    (read, scored.collect())
}

#[test]
fn the_end_of_the_validation_split_is_kept_for_selection() {
    let directory = tempfile::tempdir().expect("a directory");
    places(directory.path(), 50_000);
    let table = "kind = \"text\"\nlevel = \"u16\"\nvocab = 50000\nfiles = [\"ids\"]\n\
                 split = { by = \"range\", valid_fraction = 0.8 }";
    // 40,000 tokens are held out, from 10,000 on; the last 5000 are kept.
    for windows in ["", "\nwindows = { kind = \"sliding\", stride = 48 }"] {
        let at = |rows, lengths| {
            let ctx = context(directory.path(), rows, lengths);
            build(&format!("{table}{windows}"), &ctx).expect("a corpus")
        };
        for lengths in [[64, 96], [64, 1000], [50, 64]] {
            for length in lengths {
                let (read, mut scored) = read_and_scored(&*at(Rows::Test, lengths), length);
                scored.sort_unstable();
                // 34,999 can be scored, 34,944 are in whole blocks of 64.
                let expected: Vec<i32> = (10_001..10_001 + 34_944).collect();
                assert_eq!(
                    scored, expected,
                    "each once, whatever the other lengths are"
                );
                let selection = at(Rows::Selection, lengths);
                let (chosen_by, mut scored) = read_and_scored(&*selection, length);
                scored.sort_unstable();
                let expected: Vec<i32> = (45_001..45_001 + 4992).collect();
                assert_eq!(scored, expected);
                assert!(read.is_disjoint(&chosen_by));
                assert_eq!((read.first(), read.last()), (Some(&10_000), Some(&44_944)));
                assert_eq!(chosen_by.first(), Some(&45_000));
            }
        }
        let training = |rows| at(rows, [64, 96]).train_batch(64, 5, 0, 0);
        assert_eq!(training(Rows::Test), training(Rows::Selection));
        assert!(
            training(Rows::Test)
                .targets
                .iter()
                .all(|place| *place < 10_000)
        );
    }
}

#[test]
fn eval_tokens_that_reach_into_what_is_kept_are_refused_for_selection_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    places(directory.path(), 50_000);
    let attempt = |rows, tokens: usize| {
        let table = format!(
            "kind = \"text\"\nlevel = \"u16\"\nvocab = 50000\nfiles = [\"ids\"]\neval_tokens = \
             {tokens}\nsplit = {{ by = \"range\", valid_fraction = 0.8 }}"
        );
        build(&table, &context(directory.path(), rows, [50, 100]))
    };
    // 34,999 tokens are predicted without a look at the last 5000.
    assert!(attempt(Rows::Selection, 34_999).is_ok());
    let error = common::invalid("35000", attempt(Rows::Selection, 35_000));
    assert_eq!((&*error.key, &*error.value), ("eval_tokens", "35000"));
    assert_eq!(error.allowed, "a whole number from 1 to 34999");
    error.problem.must_have("last 5000 of the 40000 tokens");
    error.hint.must_have("remove it");
    let test = attempt(Rows::Test, 35_000).expect("what is scored stays");
    let (_, scored) = read_and_scored(&*test, 100);
    assert_eq!(scored, (10_001..45_001).collect::<Vec<i32>>());
}

#[test]
fn masked_text_chooses_by_the_end_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut stream = longreach_tasks::Stream::new(0, "text", 0);
    let text: Vec<u8> = (0..20_000).map(|_| stream.below(256) as u8).collect();
    std::fs::write(directory.path().join("x"), &text).expect("a file");
    let table = "kind = \"masked_text\"\nfiles = [\"x\"]\n\
                 split = { by = \"range\", valid_fraction = 0.5 }";
    let hidden = |rows, lengths, length| {
        let ctx = context(directory.path(), rows, lengths);
        let task = build(table, &ctx).expect("a corpus");
        let batch = task.test_batch(length, 0, task.test_rows(length));
        // Bytes in their order: 20 in a row are found in one place only.
        let mut found = Vec::new();
        for row in 0..batch.rows {
            let span = row * length..(row + 1) * length;
            let window: Vec<u8> = batch.targets[span.clone()]
                .iter()
                .map(|&b| b as u8)
                .collect();
            let place = text
                .windows(length)
                .position(|at| at == window)
                .expect("a window");
            let counted = span.zip(place..).filter(|(at, _)| batch.counted[*at]);
            found.extend(counted.map(|(at, place)| (place, batch.inputs[at])));
        }
        found
    };
    let scored = hidden(Rows::Test, [64, 96], 64);
    // 8704 are scored, in whole blocks, and the last 1250 are kept.
    assert!(
        scored
            .iter()
            .all(|(place, _)| (10_000..18_704).contains(place))
    );
    assert!(scored.iter().any(|(place, _)| *place > 18_650));
    assert_eq!(
        hidden(Rows::Test, [64, 96], 96),
        scored,
        "the same bytes at every length"
    );
    assert_eq!(hidden(Rows::Test, [50, 64], 64), scored);
    let chosen_by = hidden(Rows::Selection, [64, 96], 64);
    assert!(chosen_by.len() > 100);
    assert!(
        chosen_by
            .iter()
            .all(|(place, _)| (18_750..20_000).contains(place))
    );
    assert_eq!(hidden(Rows::Selection, [64, 96], 96), chosen_by);
}

#[test]
fn a_stretch_without_a_window_says_what_it_has() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("x.txt"), [b'a'; 1000]).expect("a file");
    let table = "kind = \"text\"\nfiles = [\"x.txt\"]";
    // 100 bytes are held out: 88 score, 12 choose.
    let message = |rows, lengths| {
        let built = build(table, &context(directory.path(), rows, lengths));
        built
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert_eq!(message(Rows::Test, [20, 87]), "");
    let problem = message(Rows::Test, [20, 88]);
    problem.must_have("has 88 of 100 bytes");
    problem.must_have("needs 89");
    assert_eq!(message(Rows::Selection, [10, 11]), "");
    let problem = message(Rows::Selection, [10, 12]);
    problem.must_have("has 12 of 100 bytes");
    problem.must_have("needs 13");
}

#[test]
fn jsonl_chooses_by_files_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = |prompt: &str| format!("{{\"prompt\": \"{prompt}\", \"answer\": \"a\"}}\n");
    let write = |name: &str, prompts: &[&str]| {
        let text: String = prompts.iter().map(|prompt| line(prompt)).collect();
        std::fs::write(directory.path().join(name), text).expect("a file");
    };
    write("train.jsonl", &["abc", "acb", "bac"]);
    write("test.jsonl", &["bca", "cab"]);
    write("select.jsonl", &["cba"]);
    let attempt = |more: &str, rows| {
        let ctx = context(directory.path(), rows, [3, 3]);
        build(&format!("kind = \"jsonl\"\n{more}"), &ctx)
    };
    let error = common::invalid("", attempt("", Rows::Selection));
    assert_eq!(error.key, "select");
    error.hint.must_have("task.select = [\"select.jsonl\"]");
    let with = "select = [\"select.jsonl\"]";
    let plain = attempt("", Rows::Test).expect("two files");
    let [test, select] =
        [Rows::Test, Rows::Selection].map(|rows| attempt(with, rows).expect("three files"));
    let every = |task: &dyn Task| task.test_batch(3, 0, task.test_rows(3));
    assert_eq!(every(&*plain), every(&*test));
    assert_eq!((test.test_rows(3), select.test_rows(3)), (2, 1));
    assert!(rows(&every(&*test)).is_disjoint(&rows(&every(&*select))));
    assert_eq!(test.train_batch(3, 9, 0, 0), select.train_batch(3, 9, 0, 0));
    let hash = |task: &dyn Task| task.corpus().map(|corpus| corpus.blake3.clone());
    assert_eq!(
        hash(&*test),
        hash(&*select),
        "one identity, whichever rows are asked for"
    );
    assert_ne!(hash(&*plain), hash(&*test));
    for (prompt, what) in [("acb", "is trained on"), ("cab", "is tested on")] {
        write("select.jsonl", &["cba", prompt]);
        for rows in [Rows::Test, Rows::Selection] {
            let error = attempt(with, rows).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            error.must_have(&format!("the prompt of select.jsonl:2 {what}"));
        }
    }
}
