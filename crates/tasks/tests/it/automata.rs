//! Automata: every word of short lengths, shares of long words against exact counts, and mistakes.

use crate::common::{self, MustHave};
use longreach_tasks::{Batch, Rows, Task, TaskConfig, TaskError};
use std::collections::{BTreeMap, BTreeSet};

fn try_task(table: &str, lengths: &[usize]) -> Result<Box<dyn Task>, TaskError> {
    let table = format!("kind = \"automaton\"\n{table}");
    let task: TaskConfig = toml::from_str(&table).unwrap_or_else(|e| panic!("{table}: {e}"));
    task.build(&common::ctx("", lengths[0], lengths, 0))
}

fn task(table: &str, lengths: &[usize]) -> Box<dyn Task> {
    try_task(table, lengths).unwrap_or_else(|error| panic!("{table}: {error}"))
}

/// The words of a batch and their answers: 0 and 1, or the states, all but the one of BOS.
fn words(batch: &Batch) -> Vec<(Vec<i32>, Vec<i32>)> {
    let rows = batch.inputs.chunks(batch.seq_len);
    let of = |(inputs, targets): (&[i32], &[i32])| match inputs.split_first() {
        Some((0, rest))
            if rest.last().is_some_and(|last| *last >= 3) && targets.ends_with(&[2]) =>
        {
            let sep = rest.len() - 2;
            assert_eq!((rest[sep], rest[sep + 1]), (1, targets[sep + 1]));
            let word = rest[..sep].iter().map(|id| id - 3).collect();
            (word, vec![targets[sep + 1] - 3])
        }
        _ => (inputs[1..].to_vec(), targets[1..].to_vec()),
    };
    rows.zip(batch.targets.chunks(batch.seq_len))
        .map(of)
        .collect()
}

fn tested(task: &dyn Task, n: usize) -> Vec<(Vec<i32>, Vec<i32>)> {
    words(&task.test_batch(n, 0, task.test_rows(n)))
}

type Language = (&'static str, i32, fn(&[i32]) -> bool);

fn runs(w: &[i32]) -> Vec<(i32, usize)> {
    let runs = w.chunk_by(|a, b| a == b);
    runs.map(|run| (run[0], run.len())).collect()
}

fn ones(w: &[i32]) -> usize {
    w.iter().filter(|s| **s == 1).count()
}

/// Name, number of symbols, and the language by its words.
const LANGUAGES: &[Language] = &[
    ("aa_star", 1, |w| w.len() % 2 == 0),
    ("ab_star", 2, |w| {
        w.len() % 2 == 0 && w.chunks(2).all(|pair| pair == [0, 1])
    }),
    ("ends_in_a", 2, |w| w.last() == Some(&0)),
    ("begins_with_a", 2, |w| w.first() == Some(&0)),
    ("contains_ab", 2, |w| {
        w.windows(2).any(|pair| pair == [0, 1])
    }),
    ("a_first", 3, |w| w.iter().find(|s| **s < 2) == Some(&0)),
    ("flip_flop", 3, |w| w.iter().rfind(|s| **s < 2) == Some(&1)),
    ("tomita_1", 2, |w| !w.contains(&0)),
    ("tomita_2", 2, |w| {
        w.len() % 2 == 0 && w.chunks(2).all(|pair| pair == [1, 0])
    }),
    ("tomita_3", 2, |w| {
        let odd = |of| move |run: &(i32, usize)| run.0 == of && run.1 % 2 == 1;
        let mut runs = runs(w).into_iter();
        runs.find(odd(1))
            .is_none_or(|_| !runs.any(|run| odd(0)(&run)))
    }),
    ("tomita_4", 2, |w| {
        !w.windows(3).any(|three| three == [0; 3])
    }),
    ("tomita_5", 2, |w| {
        ones(w).is_multiple_of(2) && (w.len() - ones(w)).is_multiple_of(2)
    }),
    ("tomita_6", 2, |w| {
        (w.len() + 3 * w.len() - 2 * ones(w)).is_multiple_of(3)
    }),
    ("tomita_7", 2, |w| {
        let runs = runs(w);
        runs.len() <= 4 - usize::from(runs.first().is_some_and(|run| run.0 == 1))
    }),
];

fn all_words(symbols: i32, n: usize) -> BTreeSet<Vec<i32>> {
    let mut words = BTreeSet::from([vec![]]);
    for _ in 0..n {
        let longer = words
            .iter()
            .flat_map(|word| (0..symbols).map(move |symbol| [word.as_slice(), &[symbol]].concat()));
        words = longer.collect();
    }
    words
}

/// At short lengths the test set has every word of either answer, equally often, and as many
/// accepted as rejected ones where there are both.
#[test]
fn every_word_of_short_lengths() {
    for (name, symbols, accepts) in LANGUAGES {
        let table = format!("language = \"{name}\"\nanswer = \"states\"\ntest_rows = 10000");
        let states = task(&table, &[8]);
        // Which states have been seen after accepted and after rejected words.
        let mut after = BTreeMap::new();
        for n in 1..=7 {
            let all = all_words(*symbols, n);
            let rows = tested(&*states, n);
            let found: BTreeSet<_> = rows.iter().map(|(word, _)| word.clone()).collect();
            assert_eq!(found, all, "{name}, length {n}");
            let of = |accepted| rows.iter().filter(move |(w, _)| accepts(w) == accepted);
            let distinct = |accepted| all.iter().filter(|w| accepts(w) == accepted).count();
            let most = distinct(true).max(distinct(false));
            for accepted in [true, false] {
                let expected = if distinct(accepted) > 0 { most } else { 0 };
                assert_eq!(of(accepted).count(), expected, "{name}, length {n}");
                let mut times = BTreeMap::<_, usize>::new();
                of(accepted).for_each(|(word, _)| *times.entry(word).or_default() += 1);
                let (least, most) = (times.values().min(), times.values().max());
                assert!(
                    least.zip(most).is_none_or(|(l, m)| m - l <= 1),
                    "{name}, {n}"
                );
            }
            for (word, states) in rows {
                for (end, state) in states.into_iter().enumerate() {
                    let accepted = accepts(&word[..=end]);
                    let before = after.insert(state, accepted);
                    assert!(before.is_none_or(|b| b == accepted), "{name}: {word:?}");
                }
            }
            let both = distinct(true) * distinct(false) > 0;
            let asked = try_task(&table.replace("states", "accept"), &[n]);
            assert_eq!(asked.is_ok(), both, "{name}, length {n}");
            for (word, answer) in asked.iter().flat_map(|task| tested(&**task, n)) {
                assert_eq!(answer, [i32::from(accepts(&word))], "{name}: {word:?}");
            }
        }
    }
}

const OWN: &str = r#"
language = "own"
answer = "states"
symbols = ["x", "y", "z"]
states = ["p", "q", "r"]
start = "q"
accepting = ["p", "r"]
transitions.p = { x = "q", y = "p", z = "r" }
transitions.q = { x = "r", y = "r", z = "q" }
transitions.r = { x = "p", y = "q", z = "q" }
"#;

#[test]
fn a_table_of_its_own_passes_its_states() {
    let table = ["qpr", "rrq", "pqq"];
    let task = task(OWN, &[20, 70]);
    // Its symbols and BOS.
    assert_eq!((task.vocab_size(), task.seq_len(20)), (4, 21));
    assert!((task.chance()["token_accuracy"] - 1.0 / 3.0).abs() < 1e-15);
    assert_eq!(task.primary_metric(), "token_accuracy");
    for n in [1, 2, 20, 70] {
        let batch = task.train_batch(n, 200, 1, 1);
        for (i, counted) in batch.counted.iter().enumerate() {
            let is_bos = i % (n + 1) == 0;
            assert_eq!((*counted, batch.inputs[i] == 3), (!is_bos, is_bos));
        }
        let mut accepted = 0;
        for (word, states) in words(&batch) {
            let mut state = 'q';
            for (symbol, found) in word.iter().zip(&states) {
                let row = table["pqr".find(state).unwrap()];
                state = row.chars().nth(*symbol as usize).unwrap();
                assert_eq!(*found as usize, "pqr".find(state).unwrap());
            }
            accepted += usize::from(state != 'q');
        }
        assert!(
            (70..130).contains(&accepted),
            "{n}: {accepted} of 200 accepted"
        );
    }
}

/// By number of symbols left and state, exact.
fn counts(next: &[[usize; 2]], accepting: &[usize], n: usize) -> Vec<Vec<u128>> {
    let ends = (0..next.len()).map(|q| u128::from(accepting.contains(&q)));
    let mut by_left: Vec<Vec<u128>> = vec![ends.collect()];
    for left in 0..n {
        let of = |to: &[usize; 2]| to.iter().map(|q| by_left[left][*q]).sum();
        by_left.push(next.iter().map(of).collect());
    }
    by_left
}

/// Words that are too many to be numbered are uniform all the same.
#[test]
fn long_words_have_their_shares() {
    // No 000: states count zeros.
    let next = [[1, 0], [2, 0], [3, 0], [3, 3]];
    let n = 110;
    let by_left = counts(&next, &[0, 1, 2], n);
    assert!(by_left[n][0] > 1 << 90);
    let rows = 20_000;
    let batch = task("language = \"tomita_4\"", &[n]).train_batch(n, rows, 0, 0);
    let accepted: Vec<Vec<i32>> = words(&batch)
        .into_iter()
        .filter(|(_, answer)| answer == &[1])
        .map(|(word, _)| word)
        .collect();
    let within = |found: f64, expected: f64, of: usize, what: &str| {
        let error = (expected * (1.0 - expected) / of as f64).sqrt();
        assert!(
            (found - expected).abs() < 4.0 * error,
            "{what}: {found}, not {expected}"
        );
    };
    within(
        accepted.len() as f64 / rows as f64,
        0.5,
        rows,
        "accepted words",
    );
    for place in [0, 1, n / 2, n - 2, n - 1] {
        // Words with a 0 at `place`, by the states before it.
        let mut before = vec![1_u128, 0, 0, 0];
        for _ in 0..place {
            let mut after = vec![0; 4];
            for (state, to) in next.iter().enumerate() {
                to.iter().for_each(|q| after[*q] += before[state]);
            }
            before = after;
        }
        let zero: f64 = (0..4)
            .map(|q| before[q] as f64 * by_left[n - 1 - place][next[q][0]] as f64)
            .sum();
        let expected = zero / by_left[n][0] as f64;
        let found = accepted.iter().filter(|word| word[place] == 0).count();
        let found = found as f64 / accepted.len() as f64;
        within(found, expected, accepted.len(), &format!("a 0 at {place}"));
    }
}

/// Numbers far beyond those of f64, in either direction.
#[test]
fn one_word_among_very_many() {
    let task = task("language = \"ab_star\"\ntest_rows = 40", &[3000]);
    for (row, (word, answer)) in tested(&*task, 3000).into_iter().enumerate() {
        let is_it = word.chunks(2).all(|pair| pair == [0, 1]);
        assert_eq!((is_it, answer[0] == 1), (row % 2 == 0, is_it));
    }
    // All words of even lengths; of odd ones those without b.
    let table = r#"
        language = "own"
        symbols = ["a", "b"]
        states = ["even", "odd", "even_b", "odd_b"]
        start = "even"
        accepting = ["even", "odd", "even_b"]
        transitions.even = { a = "odd", b = "odd_b" }
        transitions.odd = { a = "even", b = "even_b" }
        transitions.even_b = { a = "odd_b", b = "odd_b" }
        transitions.odd_b = { a = "even_b", b = "even_b" }
        test_rows = 40
    "#;
    let task = self::task(table, &[2601]);
    for (row, (word, answer)) in tested(&*task, 2601).into_iter().enumerate() {
        assert_eq!(!word.contains(&1), row % 2 == 0, "row {row}");
        assert_eq!(answer[0] == 1, row % 2 == 0);
    }
}

#[test]
fn a_length_of_one_answer_has_half_of_the_test_rows() {
    // No word of odd length is accepted.
    let task = task(
        "language = \"ab_star\"\nanswer = \"states\"\ntest_rows = 40",
        &[9],
    );
    assert_eq!((task.test_rows(8), task.test_rows(9)), (40, 20));
}

#[test]
fn words_of_either_answer_differ_and_are_held_out() {
    // 2^52 words of an answer are numbered, 2^53 are drawn.
    for n in [12, 53, 54, 200] {
        let task = task("language = \"ends_in_a\"\ntest_rows = 300", &[n]);
        let rows: BTreeSet<_> = tested(&*task, n).into_iter().collect();
        assert_eq!(rows.len(), 300, "length {n}");
        let accepted = rows.iter().filter(|(_, answer)| answer == &[1]).count();
        assert_eq!(accepted, 150, "length {n}");
        assert!(
            rows.iter()
                .all(|(word, answer)| (word[n - 1] == 0) == (answer[0] == 1))
        );
        let trained = words(&task.train_batch(n, 20_000, 0, 0));
        assert!(trained.iter().all(|row| !rows.contains(row)), "length {n}");
        if n == 12 {
            // All other words: 2048 of an answer, of which a quarter is kept.
            let trained: BTreeSet<_> = trained.into_iter().collect();
            assert!(trained.len() > 3 * 1024 - 60, "{} words", trained.len());
        }
    }
    // An odd number of test rows, and rows to choose by.
    let ctx = |rows| longreach_tasks::BuildContext {
        rows,
        ..common::ctx("", 12, &[12], 0)
    };
    let table: TaskConfig = toml::from_str("kind = \"automaton\"\ntest_rows = 31").unwrap();
    let [test, selection] =
        [Rows::Test, Rows::Selection].map(|rows| table.build(&ctx(rows)).unwrap());
    let [test, selection] = [test, selection].map(|task| tested(&*task, 12));
    assert_eq!((test.len(), selection.len()), (31, 31));
    assert!(selection.iter().all(|row| !test.contains(row)));
}

/// What is changed in [`OWN`] without its `answer`, or another table; the key at fault, its value,
/// `-` where there is none, and parts of what is wrong and of what is allowed or helps.
const MISTAKES: &str = r#"
"own" -> "tomita_1" | symbols | - | `language` is "tomita_1" | write language = "own"
, z = "r" } -> } | transitions.p.z | - | is missing | every symbol
transitions.r = -> # | transitions.r | - | is missing | add transitions.r = {
y = "r", z = "q" -> y = "s", z = "q" | transitions.q.y | s | not one of the names | p, q, r
x = "p" -> a = "p" | transitions.r.a | a | not one of the names | x, y, z
transitions.r = -> transitions.s = | transitions.s | s | not one of the names | p, q, r
start = "q" -> start = "0" | start | 0 | not one of the names | p, q, r
start = "q" -> # | start | - | not one of the names | p, q, r
["p", "r"] -> ["p", "t"] | accepting.1 | t | not one of the names | p, q, r
["p", "r"] -> ["p", "p"] | accepting.1 | p | occurs twice | different names
["x", "y", "z"] -> ["x", "y", "z", "y"] | symbols.3 | y | occurs twice | different names
["p", "q", "r"] -> ["p", "q", "r", "p"] | states.3 | p | occurs twice | different names
["x", "y", "z"] -> ["x", "y", "a b"] | symbols.2 | a b | is not a name | letters
symbols = ["x", "y", "z"] -> # | symbols | 0 names | out of range | 1 to 64
["p", "r"] -> [] | answer | accept | length 20, where every word is rejected | "states"
["p", "r"] -> ["p", "q", "r"] | answer | accept | length 20, where every word is accepted | "states"
language = "ab_star" | answer | accept | length 41, where every word is rejected | test_lens
test_rows = 0 | test_rows | 0 | out of range | 1 to 1000000
test_rows = 1000001 | test_rows | 1000001 | out of range | 1 to 1000000
"#;

#[test]
fn mistakes_name_their_key() {
    let own = OWN.replace("answer = \"states\"\n", "");
    let changed = |from: &str, to: &str| {
        assert!(own.contains(from), "{from}");
        own.replace(from, to)
    };
    let refused = |table: &str, [key, value, problem, rest]: [&str; 4]| {
        let error = common::invalid(table, try_task(table, &[20, 41]));
        let found = (&*error.key, &*error.value);
        assert_eq!(found, (key, value), "{table}\n{error}");
        error.problem.must_have(problem);
        format!("{} {}", error.allowed, error.hint).must_have(rest);
    };
    for row in common::lines(MISTAKES) {
        let [table, key, value, problem, rest] = common::cells(row);
        let change = table.split_once(" -> ");
        let table = change.map_or(table.to_owned(), |(from, to)| changed(from, to));
        let value = if value == "-" { "" } else { value };
        refused(&table, [key, value, problem, rest]);
    }
    let unreached = changed("\"r\", y = \"r\"", "\"q\", y = \"q\"");
    let unreached = unreached.replace("[\"p\", \"r\"]", "[\"q\"]");
    let rest = "states that some word leads to";
    refused(&unreached, ["states.0", "p", "cannot be reached", rest]);
    let single = "language = \"own\"\nanswer = \"states\"\nsymbols = [\"a\"]\n\
                  states = [\"q\"]\nstart = \"q\"\ntransitions.q.a = \"q\"";
    refused(single, ["states", "1", "out of range", "at least 2"]);
    task(OWN, &[20, 41]);
    task(&own, &[20, 41]);
}
