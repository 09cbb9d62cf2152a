//! Needles, variable tracking and arithmetic on numbers of equal length, against slow versions.

use crate::common::{self, rows, task};
use longreach_tasks::{Batch, TaskConfig};
use std::collections::BTreeSet;

const LENGTHS: [usize; 6] = [1, 2, 5, 8, 16, 40];

/// Names are symbols 10 to 73, filler from 74 on.
fn is_name(symbol: i32) -> bool {
    (10..74).contains(&symbol)
}

#[test]
fn needles_are_found_by_reading_from_the_start() {
    for (keys, values, queries, digits) in [(4, 1, 1, 4), (3, 2, 2, 1), (1, 3, 1, 2), (5, 1, 5, 3)]
    {
        for random in [false, true] {
            let task = task(&format!(
                "kind = \"needles\"\nkeys = {keys}\nvalues = {values}\nqueries = {queries}\n\
                 digits = {digits}\nrandom_filler = {random}"
            ));
            for n in LENGTHS {
                for (question, answer) in rows(&*task, n) {
                    let (text, asked) = question.split_at(question.len() - queries);
                    // A name with its digits is taken out; filler is left.
                    let (mut found, mut filler, mut at) = (Vec::new(), Vec::new(), 0);
                    while at < text.len() {
                        if is_name(text[at]) {
                            let number = text[at + 1..at + 1 + digits].to_vec();
                            assert!(number.iter().all(|digit| (0..10).contains(digit)));
                            found.push((text[at], number));
                            at += 1 + digits;
                        } else {
                            filler.push(text[at] - 74);
                            at += 1;
                        }
                    }
                    assert_eq!((found.len(), filler.len()), (keys * values, n));
                    let plain = filler.iter().enumerate().all(|(i, f)| *f == i as i32 % 5);
                    assert!(random || plain, "{filler:?}");
                    let mut expected = Vec::<i32>::new();
                    for name in asked {
                        let own = found.iter().filter(|(other, _)| other == name);
                        let numbers: Vec<&Vec<i32>> = own.map(|(_, number)| number).collect();
                        assert_eq!(numbers.len(), values, "the numbers of a name");
                        numbers
                            .into_iter()
                            .for_each(|number| expected.extend(number));
                    }
                    assert_eq!(answer, expected, "{question:?}");
                    let mut distinct = asked.to_vec();
                    distinct.sort_unstable();
                    distinct.dedup();
                    assert_eq!(distinct.len(), queries, "no name is asked for twice");
                }
            }
        }
    }
}

#[test]
fn needles_stand_everywhere() {
    let task = task("kind = \"needles\"\nkeys = 1\ndigits = 1");
    let places: std::collections::BTreeSet<_> = rows(&*task, 16)
        .iter()
        .filter_map(|(question, _)| question.iter().position(|symbol| is_name(*symbol)))
        .collect();
    assert!(
        places.len() > 12 && *places.last().expect("a needle") > 12,
        "{places:?}"
    );
}

#[test]
fn variables_are_followed_statement_by_statement() {
    for (chains, hops, digits) in [(1, 4, 5), (2, 1, 2), (4, 3, 2)] {
        let task = task(&format!(
            "kind = \"variable_tracking\"\nchains = {chains}\nhops = {hops}\ndigits = {digits}\n\
             random_filler = true"
        ));
        for n in LENGTHS {
            for (question, answer) in rows(&*task, n) {
                let (text, asked) = question.split_at(question.len() - digits);
                // What each variable holds, in the order of the statements.
                let mut values: Vec<(i32, Vec<i32>)> = Vec::new();
                let mut at = 0;
                let mut filler = 0;
                while at < text.len() {
                    if text[at] != 10 {
                        assert!((75..80).contains(&text[at]), "filler: {question:?}");
                        (at, filler) = (at + 1, filler + 1);
                        continue;
                    }
                    let variable = text[at + 1];
                    assert!(
                        values.iter().all(|(other, _)| *other != variable),
                        "set once"
                    );
                    let copied = values.iter().find(|(other, _)| *other == text[at + 2]);
                    if let Some((_, value)) = copied {
                        values.push((variable, value.clone()));
                        at += 3;
                    } else {
                        values.push((variable, text[at + 2..at + 2 + digits].to_vec()));
                        at += 2 + digits;
                    }
                }
                assert_eq!((values.len(), filler), (chains * (hops + 1), n));
                let having = values.iter().filter(|(_, value)| value == asked);
                let expected: Vec<i32> = having.map(|(variable, _)| *variable).collect();
                assert_eq!(
                    (expected.len(), &answer),
                    (hops + 1, &expected),
                    "{question:?}"
                );
            }
        }
    }
}

#[test]
fn numbers_of_equal_length_are_added_and_multiplied() {
    for (base, order) in [
        (10, "msd_first"),
        (10, "lsd_first"),
        (2, "lsd_first"),
        (7, "msd_first"),
    ] {
        let number = |digits: &[i32]| {
            let add = |value: u128, digit: &i32| value * base as u128 + *digit as u128;
            if order == "lsd_first" {
                digits.iter().rev().fold(0, add)
            } else {
                digits.iter().fold(0, add)
            }
        };
        for (table, added) in [
            ("kind = \"addition\"\noperands = \"equal\"", true),
            ("kind = \"multiplication\"", false),
        ] {
            let task = task(&format!("{table}\nbase = {base}\ndigits = \"{order}\""));
            for n in [1, 2, 5, 16] {
                for (question, answer) in rows(&*task, n) {
                    let parts: Vec<&[i32]> = question.split(|s| *s == base).collect();
                    assert_eq!((parts.len(), parts[0].len(), parts[1].len()), (2, n, n));
                    let (a, b) = (number(parts[0]), number(parts[1]));
                    let (length, expected) = if added {
                        (n + 1, a + b)
                    } else {
                        (2 * n, a * b)
                    };
                    assert_eq!((answer.len(), number(&answer)), (length, expected));
                }
            }
        }
    }
}

/// A number as it is written, from digits that begin with the ones.
fn written(mut from_ones: Vec<i32>, order: &str) -> Vec<i32> {
    if order == "msd_first" {
        from_ones.reverse();
    }
    from_ones
}

/// The `len` digits of a number, the ones first.
fn ones_first(number: u128, base: u128, len: usize) -> Vec<i32> {
    let weight = |place| number / base.pow(place as u32) % base;
    (0..len).map(|place| weight(place) as i32).collect()
}

#[test]
fn scratchpads_hold_the_steps_of_the_answer() {
    for (base, order) in [
        (10, "msd_first"),
        (10, "lsd_first"),
        (2, "lsd_first"),
        (3, "msd_first"),
    ] {
        let keys = format!("base = {base}\ndigits = \"{order}\"\nscratchpad = true");
        let added = task(&format!(
            "kind = \"addition\"\noperands = \"equal\"\n{keys}"
        ));
        let multiplied = task(&format!("kind = \"multiplication\"\n{keys}"));
        assert!(added.axes(5).is_empty() && multiplied.axes(5).is_empty());
        assert_eq!(added.vocab_size(), 3 + base as usize + 2);
        let ones = |digits: &[i32]| written(digits.to_vec(), order);
        let number = |digits: &[i32]| {
            let add = |value: u128, digit: &i32| value * base as u128 + *digit as u128;
            ones(digits).iter().rev().fold(0, add)
        };
        let digits = |value: u128, len: usize| written(ones_first(value, base as u128, len), order);
        for n in [1, 2, 3, 5, 9] {
            for (question, answer) in rows(&*added, n) {
                let [a, b] = [0, n + 1].map(|at| &question[at..at + n]);
                assert_eq!(question[n], base);
                let power = |i: usize| (base as u128).pow(i as u32);
                let mut expected = vec![];
                for i in 0..n {
                    let below = (number(a) % power(i), number(b) % power(i));
                    let carry = (below.0 + below.1) / power(i);
                    let sum = (number(a) + number(b)) / power(i) % base as u128;
                    expected.extend([ones(a)[i], ones(b)[i], carry as i32, sum as i32]);
                }
                expected.push(base + 1);
                expected.extend(digits(number(a) + number(b), n + 1));
                assert_eq!(answer, expected, "{question:?}");
            }
            for (question, answer) in rows(&*multiplied, n) {
                let [a, b] = [0, n + 1].map(|at| &question[at..at + n]);
                let (mut expected, mut sum) = (vec![], 0);
                for (i, digit) in ones(b).into_iter().enumerate() {
                    let product = number(a) * digit as u128;
                    sum += product * (base as u128).pow(i as u32);
                    expected.push(digit);
                    expected.extend(digits(product, n + 1));
                    expected.extend(digits(sum, n + i + 1));
                }
                assert_eq!(sum, number(a) * number(b));
                expected.push(base + 1);
                expected.extend(digits(sum, 2 * n));
                assert_eq!(answer, expected, "{question:?}");
            }
        }
    }
}

#[test]
fn hints_name_digits_of_equal_weight() {
    for order in ["msd_first", "lsd_first"] {
        let table = format!("kind = \"addition\"\noperands = \"equal\"\ndigits = \"{order}\"");
        let (plain, hinted) = (task(&table), task(&format!("{table}\nhints = 140")));
        assert!(hinted.axes(5).is_empty() && !plain.axes(5).is_empty());
        let mut firsts = std::collections::BTreeSet::new();
        for (question, answer) in rows(&*hinted, 5) {
            let numbers: Vec<&[i32]> = question.split(|s| *s == 10).chain([&answer[..]]).collect();
            let mut ones = Vec::new();
            for number in &numbers {
                let hints: Vec<i32> = number.iter().step_by(2).copied().collect();
                let step = if order == "lsd_first" { 1 } else { -1 };
                assert!(hints.windows(2).all(|pair| pair[1] - pair[0] == step));
                assert!(hints.iter().all(|hint| (11..151).contains(hint)));
                ones.push(*hints.iter().min().unwrap());
            }
            assert_eq!((numbers.len(), answer.len()), (3, 12));
            assert!(ones.iter().all(|one| *one == ones[0]), "{ones:?}");
            firsts.insert(ones[0]);
            let value = |number: &[i32]| {
                let digits = number.chunks(2).map(|pair| i128::from(pair[1]));
                let add = |value: i128, digit: i128| value * 10 + digit;
                if order == "lsd_first" {
                    digits.rev().fold(0, add)
                } else {
                    digits.fold(0, add)
                }
            };
            assert_eq!(value(numbers[0]) + value(numbers[1]), value(numbers[2]));
        }
        assert!(firsts.len() > 12, "hints are drawn: {firsts:?}");
    }
}

#[test]
fn no_tested_sum_is_trained_on_with_other_hints() {
    for order in ["msd_first", "lsd_first"] {
        let table = format!(
            "kind = \"addition\"\noperands = \"equal\"\ndigits = \"{order}\"\nhints = 140\n\
             test_rows = 200"
        );
        let task = task(&table);
        // The first is too short for a quarter of its sums to be enough test rows.
        for (n, is_held_out) in [(1, false), (2, true), (3, true), (11, true)] {
            let sums = |batch: Batch| -> Vec<Vec<i32>> {
                let rows = batch.inputs.chunks(batch.seq_len);
                // Symbols above the sign of plus are hints.
                let digits = |row: &[i32]| row.iter().copied().filter(|id| *id <= 3 + 10).collect();
                let question = |row: &[i32]| digits(&row[..4 * n + 2]);
                rows.map(question).collect()
            };
            let tested: BTreeSet<_> = sums(task.test_batch(n, 0, task.test_rows(n)))
                .into_iter()
                .collect();
            // Each sum once, with one of its hints.
            assert_eq!(tested.len(), if n == 1 { 100 } else { 200 });
            let trained = (0..80).flat_map(|step| sums(task.train_batch(n, 256, 0, step)));
            let met = trained.filter(|sum| tested.contains(sum)).count();
            assert_eq!(met == 0, is_held_out, "{n} digits: {met} of 20480");
        }
    }
}

/// Tables, `; ` for a line break, and the key at fault.
const REFUSED: &str = r#"
kind = "addition"; hints = 200 | hints
kind = "addition"; operands = "equal"; hints = 128 | hints
kind = "addition"; operands = "equal"; hints = 65537 | hints
kind = "addition"; scratchpad = true | scratchpad
kind = "addition"; operands = "equal"; hints = 140; scratchpad = true | scratchpad
kind = "needles"; names = 0 | names
kind = "needles"; names = 3; keys = 4 | keys
kind = "needles"; values = 17 | values
kind = "needles"; keys = 2; queries = 3 | queries
kind = "needles"; digits = 0 | digits
kind = "needles"; filler = 0 | filler
kind = "variable_tracking"; variables = 1 | variables
kind = "variable_tracking"; chains = 17 | chains
kind = "variable_tracking"; variables = 4; hops = 4 | hops
kind = "variable_tracking"; variables = 8; chains = 16; hops = 1 | chains
kind = "variable_tracking"; digits = 1 | digits
kind = "variable_tracking"; filler = 5000 | filler
kind = "multiplication"; base = 1 | base
"#;

#[test]
fn values_that_do_not_fit_are_refused_by_their_key() {
    let ctx = common::ctx("", 64, &[64, 128], 0);
    for row in common::lines(REFUSED) {
        let [table, key] = common::cells(row);
        let config = toml::from_str::<TaskConfig>(&common::by_lines(table)).expect(table);
        let error = common::invalid(table, config.build(&ctx));
        assert_eq!(error.key, key, "{table}");
    }
}
