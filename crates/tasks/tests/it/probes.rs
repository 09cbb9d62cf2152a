//! Positional probes and frequent words, against slow versions.

use crate::common::{self, rows, task};
use longreach_tasks::{Task, TaskConfig, TaskError};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::PI;

fn try_build(table: &str, lengths: &[usize]) -> Result<Box<dyn Task>, TaskError> {
    let ctx = common::ctx("", lengths[0], lengths, 0);
    toml::from_str::<TaskConfig>(table)
        .unwrap_or_else(|error| panic!("{table}: {error}"))
        .build(&ctx)
}

/// By counting, taking the largest count again and again, of equal ones the first in the text.
fn most_frequent(text: &[i32], top: usize) -> Vec<i32> {
    let mut left: Vec<i32> = text.to_vec();
    let mut found = vec![];
    for _ in 0..top {
        let mut best = 0;
        for &word in text {
            let count = |word: i32| left.iter().filter(|other| **other == word).count();
            let counts = word != 0 && count(word) > 0;
            if counts && (best == 0 || count(word) > count(best)) {
                best = word;
            }
        }
        left.retain(|word| *word != best);
        found.push(best);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn offsets_count_from_the_end(alphabet in 2i32..30, max_offset in 1usize..40, n in 1usize..60) {
        let task = task(&format!(
            "kind = \"fixed_offset\"\nalphabet = {alphabet}\nmax_offset = {max_offset}"
        ));
        let mut offsets = BTreeSet::new();
        for (question, answer) in rows(&*task, n) {
            let parts: Vec<&[i32]> = question.split(|s| *s == alphabet.max(10)).collect();
            prop_assert_eq!((parts.len(), parts[0].len(), parts[1].len()), (2, n, 4));
            prop_assert!(parts[0].iter().all(|symbol| (0..alphabet).contains(symbol)));
            let offset = parts[1].iter().fold(0, |value, digit| 10 * value + *digit as usize);
            let expected = parts[0].iter().rev().nth(offset.checked_sub(1).unwrap());
            prop_assert_eq!(Some(&answer[0]), expected);
            offsets.insert(offset);
        }
        let most = max_offset.min(n);
        prop_assert!(offsets.iter().all(|offset| (1..=most).contains(offset)));
        prop_assert!(most > 2 || offsets.len() == most, "{:?}", offsets);
        prop_assert!(offsets.len() > most.min(20) / 3, "{:?}", offsets);
    }

    #[test]
    fn the_last_value_of_a_key_is_asked_for(
        keys in 2i32..30, values in 4i32..20, occurrences in 1usize..5, n in 1usize..50,
    ) {
        let task = task(&format!(
            "kind = \"dup_key_recall\"\nkeys = {keys}\nvalues = {values}\n\
             occurrences = {occurrences}"
        ));
        prop_assert_eq!(task.chance()["exact_match"], 1.0 / f64::from(values));
        let (mut asked_for, mut places) = (BTreeSet::new(), BTreeSet::new());
        for (question, answer) in rows(&*task, n) {
            let (pairs, end) = question.split_at(2 * n);
            prop_assert_eq!(end[0], values + keys, "the mark");
            let mut own = vec![];
            for (place, pair) in pairs.chunks(2).enumerate() {
                prop_assert!((values..values + keys).contains(&pair[0]));
                prop_assert!((0..values).contains(&pair[1]));
                if pair[0] == end[1] {
                    own.push(pair[1]);
                    places.insert(place);
                }
            }
            prop_assert_eq!(own.len(), occurrences.min(n));
            prop_assert_eq!(own.last(), answer.last());
            prop_assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), own.len());
            asked_for.insert(end[1]);
        }
        prop_assert!(asked_for.len() > 1 && places.len() > n.min(20) / 2);
    }

    #[test]
    fn the_words_of_an_answer_stand_most_often(
        words in 3usize..60, top in 1usize..4, is_square: bool, n in 1usize..120,
    ) {
        let (alpha, zeta) = if is_square { (2, PI.powi(2) / 6.0) } else { (4, PI.powi(4) / 90.0) };
        let lengths = if is_square { [64, 128] } else { [512, 1024] };
        let table = format!(
            "kind = \"frequent_words\"\nwords = {words}\ntop = {top}\nalpha = {alpha}"
        );
        let task = try_build(&table, &lengths).unwrap();
        for (text, answer) in rows(&*task, n) {
            prop_assert_eq!(text.len(), n);
            prop_assert!(text.iter().all(|word| (0..=words as i32).contains(word)));
            let mut counts = BTreeMap::<i32, usize>::new();
            for word in text.iter().filter(|word| **word != 0) {
                *counts.entry(*word).or_default() += 1;
            }
            let mut found: Vec<usize> = counts.into_values().collect();
            found.sort_unstable_by(|a, b| b.cmp(a));
            let expected: Vec<usize> = (2..=words + 1)
                .map(|rank| (n as f64 / (rank as f64).powi(alpha) / zeta).floor() as usize)
                .filter(|count| *count > 0)
                .collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(answer, most_frequent(&text, top));
        }
    }
}

/// With one value each, content alone is enough, and every value is as likely.
#[test]
fn answers_are_balanced() {
    for table in [
        "kind = \"fixed_offset\"",
        "kind = \"dup_key_recall\"",
        "kind = \"dup_key_recall\"\noccurrences = 1",
    ] {
        let task = task(table);
        let batch = task.train_batch(20, 4000, 0, 0);
        let mut counts = BTreeMap::new();
        for row in batch.targets.chunks(batch.seq_len) {
            *counts.entry(row[batch.seq_len - 2]).or_insert(0) += 1;
        }
        assert_eq!((counts.len(), task.chance()["exact_match"]), (10, 0.1));
        assert!(
            counts.values().all(|c| (300..500).contains(c)),
            "{counts:?}"
        );
    }
}

/// Tables, `; ` for a line break, the lengths of training and test, the key at fault, and a part of
/// what is allowed.
const REFUSED: &str = r#"
kind = "fixed_offset"; alphabet = 1 | 8 8 | alphabet | 2 to 4096
kind = "fixed_offset"; max_offset = 0 | 8 8 | max_offset | 1 to 9999
kind = "fixed_offset"; max_offset = 10000 | 8 8 | max_offset | 1 to 9999
kind = "dup_key_recall"; keys = 1 | 8 8 | keys | 2 to 4096
kind = "dup_key_recall"; values = 1 | 8 8 | values | 2 to 4096
kind = "dup_key_recall"; occurrences = 0 | 8 8 | occurrences | 1 to 10
kind = "dup_key_recall"; values = 3; occurrences = 4 | 8 8 | occurrences | 1 to 3
kind = "dup_key_recall"; occurrences = 4 | 8 3 | occurrences | 1 to 3, or lengths of at least 4
kind = "flip_flop" | 8 1 | kind | lengths of at least 2
kind = "induction" | 8 1 | kind | lengths of at least 2
kind = "frequent_words"; words = 1 | 64 64 | words | 2 to 4096
kind = "frequent_words"; alpha = 1 | 64 64 | alpha | above 1
kind = "frequent_words"; alpha = nan | 64 64 | alpha | above 1
kind = "frequent_words"; words = 2 | 64 64 | top | 1 to 2
kind = "frequent_words"; top = 17 | 64 64 | top | 1 to 16
# Ranks 2 to 4 stand 4, 1 and 1 times.
kind = "frequent_words" | 64 27 | top | told apart at length 27; 3 words can be told apart at length 30
kind = "frequent_words" | 8 64 | top | told apart at length 8; 3 words can be told apart at length 30
"#;

#[test]
fn values_that_do_not_fit_are_refused_by_their_key() {
    for row in common::lines(REFUSED) {
        let [table, lengths, key, part] = common::cells(row);
        let lengths: Vec<usize> = lengths.split(' ').map(|n| n.parse().unwrap()).collect();
        let error = common::invalid(row, try_build(&common::by_lines(table), &lengths));
        assert_eq!(error.key, key, "{table}");
        assert!(error.allowed.contains(part), "{table}: {error:?}");
    }
}
