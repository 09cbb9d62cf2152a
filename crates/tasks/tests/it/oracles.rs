//! Rows of the synthetic tasks against slow, obvious versions, and against published examples.

use crate::common::{self, rows, task};
use longreach_tasks::TaskConfig;
use std::collections::{BTreeMap, BTreeSet};

const LENGTHS: [usize; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 23, 40, 101];

/// The rows of every length in `LENGTHS` against an oracle of (length, question).
fn check(
    table: &str,
    question_len: impl Fn(usize) -> usize,
    oracle: impl Fn(usize, &[i32]) -> Vec<i32>,
) {
    let task = task(table);
    for n in LENGTHS {
        let rows = rows(&*task, n);
        for (question, answer) in &rows {
            assert_eq!(question.len(), question_len(n), "{table}, {n}");
            assert_eq!(answer, &oracle(n, question), "{table}: {question:?}");
        }
        let distinct: BTreeSet<_> = rows.iter().map(|(question, _)| question).collect();
        assert!(
            n < 16 || distinct.len() > 100,
            "{table}, {n}: {} different questions",
            distinct.len()
        );
    }
}

fn example(kind: &str, number: usize) -> String {
    TaskConfig::kinds()
        .into_iter()
        .find(|k| k.kind == kind)
        .unwrap()
        .examples[number]
        .clone()
}

/// The published examples, by kind and number. Provenance: collected by this project from the task
/// files of google-deepmind/randomized_positional_encodings (Ruoss et al. 2023) unless said; rows
/// written as `longreach list tasks` does.
const EXAMPLES: &str = "
copy 0: BOS 1 0 1 1 0 0 1 SEP | 1 0 1 1 0 0 1 EOS
reverse 0: BOS 0 1 1 0 1 0 SEP | 0 1 0 1 1 0 EOS
duplicate 0: BOS 1 0 1 SEP | 1 0 1 1 0 1 EOS
bucket_sort 0: BOS 1 0 2 0 4 1 1 2 SEP | 0 0 1 1 1 2 2 4 EOS
# Their code's order, which their docstring contradicts.
odds_first 0: BOS 0 0 1 1 0 1 0 1 SEP | 0 1 1 1 0 1 0 0 EOS
parity 0: BOS 1 0 1 0 1 0 0 SEP | 1 EOS
even_pairs 0: BOS 0 0 1 1 1 0 SEP | 0 EOS
cycle_navigation 0: BOS 2 0 1 0 0 SEP | 3 EOS
missing_duplicate 0: BOS 0 1 1 0 0 2 1 0 SEP | 1 EOS
stack_manipulation 0: BOS 0 1 1 0 4 2 2 SEP | 1 1 0 2 0 0 0 0 EOS
modular_arithmetic 0: BOS 1 - 1 - 1 SEP | 4 EOS
parity 1: BOS 0 1 1 1 1 SEP | 0 EOS
# Theirs is `1 0 1 1 2 1 3` with the filler 3, which lengths of w do not need.
missing_duplicate 1: BOS 1 0 1 1 2 1 SEP | 0 EOS
stack_manipulation 1: BOS 1 1 0 2 2 2 2 SEP | 2 0 0 0 0 0 0 0 EOS
modular_arithmetic 1: BOS 1 + 2 * 3 SEP | 2 EOS
modular_arithmetic 2: BOS ( ( 1 - 2 ) * ( 3 + 4 ) ) SEP | 3 EOS
# The golden file's rule: the token that followed the previous occurrence of the last token.
induction 0: BOS 5 9 2 7 9 SEP | 2 EOS
# McGill-NLP/length-generalization: `Compute 5 3 7 2 6 + 1 9 1 7 7 ? ` -> `The answer is 7 2 9
# 0 3.`, here with its zeros.
addition 1: BOS 5 3 7 2 6 + 1 9 1 7 7 SEP | 0 0 0 0 0 7 2 9 0 3 EOS
# Theirs is `001 2 01101` -> `01011 2 0 0 0` (4 + 22 = 26, least significant bit first).
addition 3: BOS 0 0 1 + 0 1 1 0 1 SEP | 0 1 0 1 1 0 0 0 EOS
";

#[test]
fn published_examples() {
    for line in common::lines(EXAMPLES) {
        let (name, row) = line.split_once(": ").expect(line);
        let (kind, number) = name.split_once(' ').expect(line);
        assert_eq!(example(kind, number.parse().unwrap()), row, "{name}");
    }
}

#[test]
fn strings_to_strings() {
    check("kind = \"duplicate\"", |n| n, |_, w| [w, w].concat());
    // Selection: the smallest symbol left, over and over.
    let sorted = |_: usize, w: &[i32]| {
        let (mut left, mut sorted) = (w.to_vec(), vec![]);
        while let Some(smallest) = left.iter().min().copied() {
            left.remove(left.iter().position(|s| *s == smallest).unwrap());
            sorted.push(smallest);
        }
        sorted
    };
    check("kind = \"sort\"", |n| n, sorted);
    let all_distinct = |w: &[i32]| {
        let symbols: BTreeSet<_> = w.iter().collect();
        assert_eq!(symbols.len(), w.len(), "a symbol occurs twice in {w:?}");
    };
    let of_distinct = "alphabet = 150\ndistinct = true";
    let sorted_distinct = |n: usize, w: &[i32]| {
        all_distinct(w);
        sorted(n, w)
    };
    check(
        &format!("kind = \"sort\"\n{of_distinct}"),
        |n| n,
        sorted_distinct,
    );
    let copied_distinct = |_: usize, w: &[i32]| {
        all_distinct(w);
        w.to_vec()
    };
    check(
        &format!("kind = \"copy\"\n{of_distinct}"),
        |n| n,
        copied_distinct,
    );
    check("kind = \"bucket_sort\"", |n| n, sorted);
    let odds_first = |_: usize, w: &[i32]| {
        let mut answer = vec![];
        for parity in [1, 0] {
            for (i, symbol) in w.iter().enumerate() {
                if i % 2 == parity {
                    answer.push(*symbol);
                }
            }
        }
        answer
    };
    check("kind = \"odds_first\"\nalphabet = 3", |n| n, odds_first);
    let running = |_: usize, w: &[i32]| {
        (1..=w.len())
            .map(|end| w[..end].iter().sum::<i32>() % 10)
            .collect()
    };
    check("kind = \"summation\"\nanswer = \"running\"", |n| n, running);
}

#[test]
fn strings_to_one_symbol() {
    let parity = |_: usize, w: &[i32]| {
        vec![
            w.iter()
                .fold(0, |odd, bit| if *bit == 1 { 1 - odd } else { odd }),
        ]
    };
    check("kind = \"parity\"", |n| n, parity);
    check("kind = \"parity\"\ndraw = \"balanced\"", |n| n, parity);
    let even_pairs = |_: usize, w: &[i32]| {
        vec![(w.windows(2).filter(|pair| pair[0] != pair[1]).count() % 2) as i32]
    };
    check("kind = \"even_pairs\"", |n| n, even_pairs);
    let majority = |_: usize, w: &[i32]| {
        let margin: i32 = w.iter().map(|bit| if *bit == 1 { 1 } else { -1 }).sum();
        vec![i32::from(margin > 0)]
    };
    check("kind = \"majority\"", |n| n, majority);
    // Counts each symbol; strings without one that is alone at the top are never drawn.
    let winner = |w: &[i32]| {
        let counts: Vec<usize> = (0..26)
            .map(|symbol| w.iter().filter(|s| **s == symbol).count())
            .collect();
        let most = *counts.iter().max().unwrap();
        let first: Vec<usize> = (0..26).filter(|s| counts[*s] == most).collect();
        assert_eq!(first.len(), 1, "a tie in {w:?}");
        first[0] as i32
    };
    for table in ["alphabet = 26", "draw = \"balanced\""] {
        let table = format!("kind = \"majority\"\n{table}");
        check(&table, |n| n, |_, w| vec![winner(w)]);
    }
    let in_turn = |_: usize, w: &[i32]| {
        let string = |first: usize| w[first..].iter().step_by(3).copied().collect::<Vec<_>>();
        (0..3).map(|first| winner(&string(first))).collect()
    };
    let table = "kind = \"majority\"\ndraw = \"balanced\"\ninterleaved = 3";
    check(table, |n| 3 * n, in_turn);
    for cycle in [5, 2, 9] {
        let walk = |_: usize, w: &[i32]| {
            let mut place = 0;
            for step in w {
                place = match step {
                    0 if place == 0 => cycle - 1,
                    0 => place - 1,
                    2 if place == cycle - 1 => 0,
                    2 => place + 1,
                    _ => place,
                };
            }
            vec![place]
        };
        check(
            &format!("kind = \"cycle_navigation\"\ncycle = {cycle}"),
            |n| n,
            walk,
        );
    }
    let sum = |_: usize, w: &[i32]| vec![w.iter().sum::<i32>() % 10];
    check("kind = \"summation\"", |n| n, sum);
}

#[test]
fn masked_and_stacked() {
    let missing = |n: usize, w: &[i32]| {
        assert_eq!(w.iter().filter(|s| **s == 2).count(), 1);
        let place = w.iter().position(|s| *s == 2).unwrap();
        assert!((0..2 * n).all(|i| i % n == place % n || w[i] == w[(i + n) % (2 * n)]));
        vec![w[(place + n) % (2 * n)]]
    };
    check("kind = \"missing_duplicate\"", |n| 2 * n, missing);
    let stack = |n: usize, w: &[i32]| {
        let mut text = String::new();
        for (i, symbol) in w.iter().enumerate() {
            match symbol {
                0 | 1 => {
                    assert!(
                        w[..i].iter().all(|s| *s < 2),
                        "bits stand before all actions"
                    );
                    text.push(char::from(b'0' + *symbol as u8));
                }
                2 => drop(text.pop()),
                3 => text.push('0'),
                4 => text.push('1'),
                _ => unreachable!(),
            }
        }
        let mut answer: Vec<i32> = text.chars().rev().map(|c| i32::from(c == '1')).collect();
        answer.push(2);
        while answer.len() < n + 1 {
            answer.push(0);
        }
        answer
    };
    check("kind = \"stack_manipulation\"", |n| n, stack);
}

#[test]
fn recall() {
    for alphabet in [3, 16, 100] {
        let follower = |n: usize, w: &[i32]| {
            let places: Vec<usize> = (0..n).filter(|i| w[*i] == w[n]).collect();
            assert_eq!(places.len(), 1, "the last symbol stood once before");
            vec![w[places[0] + 1]]
        };
        check(
            &format!("kind = \"induction\"\nalphabet = {alphabet}"),
            |n| n + 1,
            follower,
        );
    }
    for data in [1, 5, 16] {
        let copied = |n: usize, w: &[i32]| {
            let found: Vec<i32> = w.iter().copied().filter(|s| *s != 9).collect();
            assert_eq!(found.len(), n.min(data));
            found
        };
        let table = format!("kind = \"selective_copy\"\nalphabet = 9\ndata = {data}");
        let task = task(&table);
        for n in LENGTHS {
            rows(&*task, n)
                .iter()
                .for_each(|(w, answer)| assert_eq!((w.len(), answer), (n, &copied(n, w))));
        }
    }
    for (random, filler) in [(false, 5), (true, 5), (false, 1)] {
        let task = task(&format!(
            "kind = \"passkey\"\nfiller = {filler}\nrandom_filler = {random}"
        ));
        for n in LENGTHS {
            let mut depths = BTreeSet::new();
            for (w, answer) in rows(&*task, n) {
                assert_eq!(w.len(), n + 6);
                let depth = w.iter().position(|s| *s == 10).unwrap();
                assert_eq!(w[depth + 1..depth + 6], answer);
                assert!(answer.iter().all(|digit| (0..10).contains(digit)));
                let around = [&w[..depth], &w[depth + 6..]].concat();
                assert!(around.iter().enumerate().all(|(i, s)| if random {
                    (11..11 + filler).contains(s)
                } else {
                    *s == 11 + i as i32 % filler
                }));
                depths.insert(depth);
            }
            assert!(depths.len() > (n + 1).min(20) / 2, "{n}: {depths:?}");
        }
    }
}

#[expect(clippy::too_many_lines, reason = "three oracles that share their grid")]
#[test]
fn squares() {
    let transposed = |n: usize, w: &[i32]| {
        let mut answer = vec![];
        for column in 0..n {
            for row in 0..n {
                answer.push(w[row * n + column]);
            }
        }
        answer
    };
    // Spreading the mark to neighbours until nothing changes.
    let flooded = |n: usize, w: &[i32]| {
        let mut marked = vec![false; n * n];
        marked[0] = true;
        loop {
            let before = marked.clone();
            for a in 0..n * n {
                for b in [a.wrapping_sub(n), a + n, a.wrapping_sub(1), a + 1] {
                    let joined = b < n * n && (a / n == b / n || a % n == b % n);
                    marked[a] |= joined && before[b] && w[a] == w[0];
                }
            }
            if marked == before {
                return w
                    .iter()
                    .zip(marked)
                    .map(|(s, m)| if m { 3 } else { *s })
                    .collect::<Vec<_>>();
            }
        }
    };
    for (answer, n) in [
        ("transpose", 1),
        ("transpose", 2),
        ("transpose", 7),
        ("flood", 1),
        ("flood", 2),
        ("flood", 3),
        ("flood", 8),
        ("cell", 1),
        ("cell", 3),
        ("cell", 12),
    ] {
        let task = task(&format!(
            "kind = \"grid\"\nalphabet = 3\nanswer = \"{answer}\""
        ));
        for (w, found) in rows(&*task, n) {
            let expected = match answer {
                "transpose" => transposed(n, &w),
                "flood" => flooded(n, &w),
                _ => {
                    let number = |digits: &[i32]| {
                        digits
                            .iter()
                            .fold(0, |value, digit| value * 10 + *digit as usize)
                    };
                    let width = n.to_string().len();
                    assert_eq!(w.len(), n * n + 2 * width);
                    let (row, column) = w[n * n..].split_at(width);
                    vec![w[number(row) * n + number(column)]]
                }
            };
            assert_eq!(found, expected, "{w:?}");
        }
    }
}

/// Layout of zoology's `multiquery_ar`: pairs first, every key asked for once at an even distance,
/// its value labelled there.
#[test]
fn queries_name_the_values_of_their_keys() {
    assert_eq!(
        example("mqar", 0),
        "5 14 3 11 0 0 3 0 5 0 | _ _ _ _ _ _ 11 _ 14 _"
    );
    for (vocab, pairs, random) in [
        (8192, 4, false),
        (64, 16, false),
        (64, 16, true),
        (9, 3, false),
    ] {
        let task = task(&format!(
            "kind = \"mqar\"\nvocab = {vocab}\npairs = {pairs}\nrandom_filler = {random}"
        ));
        for n in LENGTHS.into_iter().chain([64, 128]) {
            let pairs = (n / 4).clamp(1, pairs);
            let tested = task.test_rows(n).min(64);
            for batch in [task.train_batch(n, 64, 3, 5), task.test_batch(n, 0, tested)] {
                for row in 0..batch.rows {
                    let (read, labels, counted) = common::row(&batch, row);
                    assert_eq!(read.len(), n.max(3));
                    let values: BTreeMap<i32, i32> = read[..2 * pairs]
                        .chunks(2)
                        .map(|pair| (pair[0], pair[1]))
                        .collect();
                    assert_eq!(
                        (values.len(), values.values().collect::<BTreeSet<_>>().len()),
                        (pairs, pairs)
                    );
                    assert!(
                        values
                            .iter()
                            .all(|(k, v)| (1..vocab / 2).contains(k)
                                && (vocab / 2..vocab).contains(v))
                    );
                    let mut asked = BTreeSet::new();
                    for place in 0..read.len() {
                        if counted[place] {
                            assert!(
                                place >= 2 * pairs && place % 2 == 0 && asked.insert(read[place])
                            );
                            assert_eq!(labels[place], values[&read[place]]);
                        } else {
                            assert!(place < 2 * pairs || random || read[place] == 0);
                        }
                    }
                    assert_eq!(asked.len(), pairs);
                }
            }
        }
    }
}

/// The value of a flat or bracketed expression modulo `modulus`, by recursive descent over its
/// text.
fn value(text: &[u8], at: &mut usize, modulus: i64) -> i64 {
    fn factor(text: &[u8], at: &mut usize, modulus: i64) -> i64 {
        *at += 1;
        match text[*at - 1] {
            b'(' => {
                let inner = value(text, at, modulus);
                assert_eq!(text[*at], b')');
                *at += 1;
                inner
            }
            digit => i64::from(digit - b'0'),
        }
    }
    fn product(text: &[u8], at: &mut usize, modulus: i64) -> i64 {
        let mut left = factor(text, at, modulus);
        while text.get(*at) == Some(&b'*') {
            *at += 1;
            left = left * factor(text, at, modulus) % modulus;
        }
        left
    }
    let mut left = product(text, at, modulus);
    while let Some(sign @ (b'+' | b'-')) = text.get(*at) {
        *at += 1;
        let right = product(text, at, modulus);
        left = if *sign == b'+' {
            left + right
        } else {
            left - right
        };
    }
    left.rem_euclid(modulus)
}

#[test]
fn expressions() {
    for modulus in [5, 2, 10] {
        let oracle = |_: usize, w: &[i32]| {
            let text: String = w
                .iter()
                .map(|s| {
                    if *s < modulus {
                        char::from(b'0' + *s as u8)
                    } else {
                        b"+-*()"[(*s - modulus) as usize].into()
                    }
                })
                .collect();
            let mut at = 0;
            let value = value(text.as_bytes(), &mut at, i64::from(modulus));
            assert_eq!(at, text.len(), "{text}");
            vec![value as i32]
        };
        check(
            &format!("kind = \"modular_arithmetic\"\nmodulus = {modulus}"),
            |n| 2 * n - 1,
            oracle,
        );
        check(
            &format!("kind = \"modular_arithmetic\"\nmodulus = {modulus}\nbrackets = true"),
            |n| 4 * n - 3,
            oracle,
        );
    }
}

#[test]
fn sums_of_numbers() {
    for (base, reversed) in [(10, false), (10, true), (2, true), (7, false)] {
        let table = format!(
            "kind = \"addition\"\nbase = {base}\ndigits = \"{}\"",
            if reversed { "lsd_first" } else { "msd_first" }
        );
        let task = task(&table);
        // u128 holds every sum of at most 36 digits.
        for n in LENGTHS.into_iter().filter(|n| *n <= 23) {
            let mut splits = BTreeSet::new();
            for (question, answer) in rows(&*task, n) {
                assert_eq!((question.len(), answer.len()), (n + 1, n));
                let parts: Vec<&[i32]> = question.split(|s| *s == base).collect();
                assert_eq!(parts.len(), 2);
                splits.insert(parts[0].len());
                let number = |digits: &[i32]| {
                    let msd_first: Vec<i32> = if reversed {
                        digits.iter().rev().copied().collect()
                    } else {
                        digits.to_vec()
                    };
                    msd_first
                        .iter()
                        .fold(0u128, |value, digit| value * base as u128 + *digit as u128)
                };
                assert_eq!(
                    number(parts[0]) + number(parts[1]),
                    number(&answer),
                    "{question:?}"
                );
            }
            let short = splits.contains(&1) || n > 10;
            let inside = splits.iter().all(|split| (1..n.max(2)).contains(split));
            assert!(short && inside, "{splits:?}");
        }
    }
}

/// Answers of one symbol are about as often one as the other, so that guessing is worth no more
/// than chance says.
#[test]
fn answers_are_balanced() {
    for (table, n) in [
        ("kind = \"parity\"", 20),
        ("kind = \"even_pairs\"", 20),
        ("kind = \"majority\"", 21),
        ("kind = \"cycle_navigation\"", 30),
        ("kind = \"summation\"", 12),
    ] {
        let task = task(table);
        let batch = task.train_batch(n, 4000, 0, 0);
        let mut counts = BTreeMap::new();
        batch
            .targets
            .chunks(batch.seq_len)
            .for_each(|row| *counts.entry(row[batch.seq_len - 2]).or_insert(0) += 1);
        let mean = 4000.0 * task.chance()["exact_match"];
        assert_eq!(
            counts.len(),
            (1.0 / task.chance()["exact_match"]).round() as usize,
            "{table}"
        );
        assert!(
            counts
                .values()
                .all(|c| (f64::from(*c) - mean).abs() < 6.0 * mean.sqrt()),
            "{table}: {counts:?}"
        );
    }
}
