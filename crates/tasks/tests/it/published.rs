//! How published settings draw their rows: frequencies against slow definitions, and mistakes.

use crate::common::{self, build};
use longreach_tasks::{Task, TaskConfig};
use std::collections::BTreeMap;

/// How often each question stands among batches of 100 training rows of length `n`.
fn questions(table: &str, n: usize, steps: u64) -> BTreeMap<Vec<i32>, u32> {
    let task = build(table).expect(table);
    let mut counts = BTreeMap::new();
    for step in 0..steps {
        let batch = task.train_batch(n, 100, 1, step);
        for row in batch.inputs.chunks(batch.seq_len) {
            let question = row[1..=n].iter().map(|id| id - 3).collect();
            *counts.entry(question).or_default() += 1;
        }
    }
    counts
}

/// Whether counts may come from equal chances: four standard deviations of chi squared.
fn is_even(counts: &[u32]) -> bool {
    let (classes, total) = (counts.len() as f64, counts.iter().sum::<u32>());
    let mean = f64::from(total) / classes;
    let chi2: f64 = counts
        .iter()
        .map(|&count| (f64::from(count) - mean).powi(2) / mean)
        .sum();
    let degrees = classes - 1.0;
    chi2 < degrees + 4.0 * (2.0 * degrees).sqrt()
}

#[test]
fn a_uniform_count_is_told_from_another() {
    assert!(is_even(&[100, 110, 95, 105]));
    assert!(!is_even(&[100, 180, 95, 105]));
}

#[test]
fn balanced_bits_have_any_number_of_zeros_but_half() {
    for (kind, n) in [("majority", 9), ("majority", 12), ("parity", 12)] {
        let mut zeros = vec![0; n + 1];
        let table = format!("kind = \"{kind}\"\ndraw = \"balanced\"");
        for (question, count) in questions(&table, n, 200) {
            zeros[question.iter().filter(|bit| **bit == 0).count()] += count;
        }
        // The questions held out are a quarter of each number; of few questions more or fewer.
        if n % 2 == 0 && kind == "majority" {
            assert_eq!(zeros.remove(n / 2), 0, "a tie");
        }
        assert!(zeros.iter().all(|&count| count > 0), "{zeros:?}");
        let inner = &zeros[2..zeros.len() - 2];
        let mean = inner.iter().sum::<u32>() / inner.len() as u32;
        assert!(
            inner.iter().all(|count| count.abs_diff(mean) < mean / 3),
            "{zeros:?}"
        );
    }
}

#[test]
fn places_of_zeros_are_even() {
    // Long strings: what is held out does not show.
    let mut at = vec![0; 24];
    for (question, count) in questions("kind = \"majority\"\ndraw = \"balanced\"", 24, 200) {
        for (place, _) in question.iter().enumerate().filter(|(_, bit)| **bit == 0) {
            at[place] += count;
        }
    }
    let mean = at.iter().sum::<u32>() / 24;
    assert!(
        at.iter().all(|count| count.abs_diff(mean) < mean / 20),
        "{at:?}"
    );
}

#[test]
fn strings_without_a_tie_are_equally_likely() {
    let counts = questions("kind = \"majority\"\nalphabet = 4", 4, 200);
    let counts: Vec<u32> = counts.values().copied().collect();
    // 4 of one symbol, 48 with three equal ones, 144 with a pair and two others; a quarter is held
    // out.
    assert!((120..=175).contains(&counts.len()), "{}", counts.len());
    assert!(is_even(&counts), "{counts:?}");
}

#[test]
fn distinct_symbols_are_equally_likely_in_any_order() {
    for kind in ["copy", "sort"] {
        let table = format!("kind = \"{kind}\"\nalphabet = 128\ndistinct = true");
        let mut first = vec![0; 128];
        let mut last = vec![0; 128];
        for (question, count) in questions(&table, 100, 20) {
            first[question[0] as usize] += count;
            last[question[99] as usize] += count;
        }
        assert!(is_even(&first) && is_even(&last), "{kind}");
    }
}

/// Tables, `; ` for a line break, the key at fault, and a part of what is wrong or allowed.
const REFUSED: &str = r#"
kind = "copy"; alphabet = 100; distinct = true | alphabet | strings of 128 distinct ones
kind = "sort"; distinct = true | alphabet | strings of 128 distinct ones
kind = "majority"; alphabet = 26; draw = "balanced" | draw | `alphabet` is 26
kind = "majority"; interleaved = 0 | interleaved | 1 to 16
kind = "majority"; alphabet = 1 | alphabet | 2 to 4096
"#;

#[test]
fn settings_that_cannot_be_are_refused_by_key() {
    for row in common::lines(REFUSED) {
        let [table, key, words] = common::cells(row);
        let error = common::invalid(table, build(&common::by_lines(table)));
        assert_eq!(error.key, key, "{table}");
        let text = format!("{} {}", error.problem, error.allowed);
        assert!(text.contains(words), "{table}: {text}");
    }
    assert!(build("kind = \"copy\"\nalphabet = 128\ndistinct = true").is_ok());
}

/// Inputs, targets and what counts of training and test rows.
fn rows(task: &dyn Task, n: usize) -> Vec<(Vec<i32>, Vec<i32>, Vec<bool>)> {
    let test = task.test_batch(n, 0, task.test_rows(n).min(64));
    let batches = [task.train_batch(n, 64, 3, 5), test];
    let rows = batches.iter().flat_map(|batch| {
        let inputs = batch.inputs.chunks(batch.seq_len);
        let targets = batch.targets.chunks(batch.seq_len);
        let counted = batch.counted.chunks(batch.seq_len);
        inputs
            .zip(targets)
            .zip(counted)
            .map(|((a, b), c)| (a.to_vec(), b.to_vec(), c.to_vec()))
    });
    rows.collect()
}

/// Walks along the text of a row with one bit of memory.
#[test]
fn reads_give_back_what_was_written() {
    let task = build("kind = \"flip_flop\"\nignore = 0.3").unwrap();
    for n in [1, 2, 3, 10, 64] {
        for (inputs, targets, counted) in rows(&*task, n) {
            assert_eq!(inputs.len(), 2 * n.max(2) - 1);
            let mut written = -1;
            for (place, &token) in inputs.iter().enumerate() {
                assert_eq!(counted[place], token == 3, "reads count, and nothing else");
                if place % 2 == 0 {
                    assert!((2..5).contains(&token), "an instruction");
                    continue;
                }
                let instruction = inputs[place - 1];
                match instruction {
                    2 => written = token,
                    3 => assert_eq!(token, written, "{inputs:?}"),
                    _ => assert!([0, 1].contains(&token)),
                }
                if instruction == 3 {
                    assert_eq!(targets[place - 1], written);
                }
            }
            assert_eq!((inputs[0], *inputs.last().unwrap()), (2, 3));
            assert_eq!(*targets.last().unwrap(), written, "the last read");
        }
    }
    let last = build("kind = \"flip_flop\"\nignore = 0.3\nanswer = \"last\"").unwrap();
    for (inputs, targets, counted) in rows(&*last, 10) {
        // BOS, 19 symbols, SEP, the bit; targets are one later and end with EOS.
        assert_eq!((inputs.len(), inputs[0], inputs[20]), (22, 0, 1));
        let written = (1..20)
            .rev()
            .find(|place| inputs[*place] == 2 + 3)
            .map(|place| inputs[place + 1]);
        assert_eq!(Some(targets[20]), written);
        assert_eq!((targets[21], counted[20], counted[21]), (2, true, true));
        assert_eq!(counted.iter().filter(|c| **c).count(), 2);
    }
}

#[test]
fn instructions_have_the_published_frequencies() {
    for ignore in [0.8, 0.98, 0.1] {
        let task = build(&format!("kind = \"flip_flop\"\nignore = {ignore}")).unwrap();
        let batch = task.train_batch(256, 200, 1, 0);
        let mut counts = [0u32; 3];
        for row in batch.inputs.chunks(batch.seq_len) {
            for instruction in row[2..row.len() - 1].iter().step_by(2) {
                counts[*instruction as usize - 2] += 1;
            }
        }
        let total = f64::from(counts.iter().sum::<u32>());
        assert_eq!(total, 200.0 * 254.0);
        let other = (1.0 - ignore) / 2.0;
        for (count, share) in counts.iter().zip([other, other, ignore]) {
            let deviation = (share * (1.0 - share) / total).sqrt();
            let found = f64::from(*count) / total;
            assert!(
                (found - share).abs() < 4.0 * deviation,
                "{found} for {share}"
            );
        }
        let bits = batch.inputs.chunks(batch.seq_len).flat_map(|row| {
            let pairs = row.chunks_exact(2).filter(|pair| pair[0] != 3);
            pairs.map(|pair| f64::from(pair[1])).collect::<Vec<_>>()
        });
        let bits: Vec<f64> = bits.collect();
        let mean = bits.iter().sum::<f64>() / bits.len() as f64;
        assert!(
            (mean - 0.5).abs() < 2.0 / (bits.len() as f64).sqrt(),
            "{mean}"
        );
    }
}

#[test]
fn roots_are_those_of_whole_numbers() {
    let task = build("kind = \"compute_sqrt\"").unwrap();
    for n in [1, 2, 3, 8, 25, 64, 100] {
        for (inputs, targets, _) in rows(&*task, n) {
            let value = |ids: &[i32]| ids.iter().fold(0u128, |sum, id| 2 * sum + (id - 3) as u128);
            let number = value(&inputs[1..=n]);
            let answer = &targets[n + 1..targets.len() - 1];
            assert_eq!(answer.len(), n.div_ceil(2));
            // Bisection.
            let (mut low, mut high) = (0u128, 1u128 << 51);
            while high - low > 1 {
                let middle = u128::midpoint(low, high);
                if middle * middle <= number {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            assert_eq!(value(answer), low, "{number}");
        }
    }
    // The examples of `compute_sqrt.py`; its docstring has 101 for the first, which is 5.
    let info = TaskConfig::kinds()
        .into_iter()
        .find(|info| info.kind == "compute_sqrt")
        .unwrap();
    assert_eq!(info.examples[0], "BOS 1 0 0 1 0 1 SEP | 1 1 0 EOS");
    assert_eq!(info.examples[1], "BOS 1 1 1 SEP | 1 0 EOS");
}

/// The value of an expression modulo `modulus`, by recursive descent: `(a+b)`, `(a-b)` or a digit.
/// Symbols: digits, plus, minus, open, close.
fn value(symbols: &mut impl Iterator<Item = i32>, modulus: i32) -> i32 {
    let first = symbols.next().expect("an expression");
    if first < modulus {
        return first;
    }
    assert_eq!(first, modulus + 2, "an opening bracket");
    let left = value(symbols, modulus);
    let operation = symbols.next().expect("an operation");
    let right = value(symbols, modulus);
    assert_eq!(symbols.next(), Some(modulus + 3), "a closing bracket");
    match operation - modulus {
        0 => (left + right).rem_euclid(modulus),
        1 => (left - right).rem_euclid(modulus),
        other => panic!("operation {other}"),
    }
}

#[test]
fn one_digit_solves_an_equation() {
    for modulus in [5, 3] {
        let task = build(&format!("kind = \"solve_equation\"\nmodulus = {modulus}")).unwrap();
        let mut unknown_at = BTreeMap::<usize, u32>::new();
        for n in [1, 2, 3, 9, 30] {
            for (inputs, targets, _) in rows(&*task, n) {
                let question: Vec<i32> = inputs[1..4 * n].iter().map(|id| id - 3).collect();
                let (x, equals) = (modulus + 4, modulus + 5);
                let (left, right) = question.split_at(4 * n - 3);
                assert_eq!(right[0], equals);
                assert_eq!(left.iter().filter(|s| **s == x).count(), 1);
                let solves = |digit: &i32| {
                    let replaced = left.iter().map(|s| if *s == x { *digit } else { *s });
                    let mut symbols = replaced;
                    let found = value(&mut symbols, modulus);
                    assert_eq!(symbols.next(), None, "brackets close");
                    found == right[1]
                };
                let solutions: Vec<i32> = (0..modulus).filter(solves).collect();
                assert_eq!(solutions, [targets[4 * n] - 3]);
                if n == 9 {
                    let digits = left.iter().filter(|s| **s < modulus || **s == x);
                    let place = digits.into_iter().position(|s| *s == x).unwrap();
                    *unknown_at.entry(place).or_default() += 1;
                }
            }
        }
        assert_eq!(
            unknown_at.len(),
            9,
            "every digit is unknown somewhere: {unknown_at:?}"
        );
    }
}

/// The fifteen tasks of `experiments/constants.py` of google-deepmind/randomized_positional_encodings
/// and google-deepmind/neural_networks_chomsky_hierarchy, by their names there, the table
/// here, `; ` for a line break, and the length of its answer at length 10.
const FIFTEEN: &str = r#"
even_pairs | kind = "even_pairs" | 1
modular_arithmetic | kind = "modular_arithmetic" | 1
parity_check | kind = "parity" | 1
cycle_navigation | kind = "cycle_navigation" | 1
stack_manipulation | kind = "stack_manipulation" | 11
reverse_string | kind = "reverse"; alphabet = 2 | 10
modular_arithmetic_brackets | kind = "modular_arithmetic"; brackets = true | 1
solve_equation | kind = "solve_equation" | 1
duplicate_string | kind = "duplicate"; alphabet = 2 | 20
missing_duplicate_string | kind = "missing_duplicate" | 1
odds_first | kind = "odds_first"; alphabet = 2 | 10
binary_addition | kind = "addition"; base = 2; digits = "lsd_first" | 10
binary_multiplication | kind = "multiplication"; base = 2; digits = "lsd_first" | 20
compute_sqrt | kind = "compute_sqrt" | 5
bucket_sort | kind = "bucket_sort"; alphabet = 5 | 10
"#;

#[test]
fn the_fifteen_tasks_are_complete() {
    let fifteen: Vec<[&str; 3]> = common::lines(FIFTEEN).map(common::cells).collect();
    let names: std::collections::BTreeSet<_> = fifteen.iter().map(|[name, ..]| name).collect();
    assert_eq!(names.len(), 15);
    for [name, table, answer_len] in fifteen {
        let ctx = longreach_tasks::BuildContext {
            bidirectional: true,
            ..common::ctx("", 64, &[64, 128], 0)
        };
        let task = toml::from_str::<TaskConfig>(&common::by_lines(table)).expect(name);
        let task = task
            .build(&ctx)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // As they are trained: the question, then a blank for every answer token.
        let batch = task.train_batch(10, 4, 0, 0);
        let blank = task.vocab_size() as i32 - 1;
        for row in batch.inputs.chunks(batch.seq_len) {
            let blanks = row.iter().filter(|id| **id == blank).count();
            assert_eq!(blanks.to_string(), answer_len, "{name}");
            assert!(row[row.len() - blanks..].iter().all(|id| *id == blank));
        }
    }
}
