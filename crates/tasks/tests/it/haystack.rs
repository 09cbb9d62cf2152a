//! Needles in real text: rows against the text that they were cut from.

use crate::common::{self, MustHave};
use longreach_tasks::{Batch, BuildContext, Rows, TEACHER_FORCED, Task, TaskConfig, TaskError};
use std::collections::BTreeSet;
use std::path::Path;
use tempfile::TempDir;

const SPLIT: &str = "files = [\"*.txt\"], split = { by = \"files\", valid = [\"b.txt\"] }";
const LENGTHS: [usize; 5] = [1, 2, 7, 20, 60];

/// A text of words over these letters, with digits.
fn words(letters: &[u8], bytes: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut text = Vec::new();
    while text.len() < bytes {
        text.push(match next(8) {
            0 => b' ',
            1 => b'0' + next(10) as u8,
            _ => letters[next(letters.len() as u64) as usize],
        });
    }
    text
}

/// `a.txt`, which is trained on, and `b.txt`.
fn dir(train: &[u8], valid: &[u8]) -> TempDir {
    common::corpus(&[("a.txt", train), ("b.txt", valid)])
}

fn try_build(table: &str, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
    toml::from_str::<TaskConfig>(table)
        .unwrap_or_else(|error| panic!("{table}: {error}"))
        .build(ctx)
}

fn build(table: &str, dir: &Path) -> Box<dyn Task> {
    let ctx = common::ctx(dir, 60, &[60, 64], 0);
    try_build(table, &ctx).unwrap_or_else(|error| panic!("{table}: {error}"))
}

/// Questions and answers, symbol 0 as 0, without BOS, SEP and EOS.
fn rows(batch: &Batch) -> Vec<(Vec<i32>, Vec<i32>)> {
    let symbols = |tokens: &[i32]| tokens.iter().map(|t| t - 3).collect::<Vec<i32>>();
    let rows = batch.inputs.chunks(batch.seq_len);
    rows.zip(batch.targets.chunks(batch.seq_len))
        .map(|(inputs, targets)| {
            let sep = inputs.iter().position(|token| *token == 1).expect("SEP");
            let answer = &targets[sep..targets.len() - 1];
            (symbols(&inputs[1..sep]), symbols(answer))
        })
        .collect()
}

/// The bytes of filler, whose own symbols begin at `first`.
fn bytes(filler: &[i32], first: i32) -> Vec<u8> {
    let byte = |&symbol: &i32| match symbol {
        0..10 => b'0' + symbol as u8,
        _ => u8::try_from(symbol - first).expect("a byte"),
    };
    filler.iter().map(byte).collect()
}

fn is_within(text: &[u8], piece: &[u8]) -> bool {
    text.windows(piece.len()).any(|window| window == piece)
}

/// A kind, the first symbol of its filler, and how it is read: the filler and the answer.
type Reader = fn(&[i32]) -> (Vec<i32>, Vec<i32>);

fn passkey(question: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let key = question.iter().position(|symbol| *symbol == 10).unwrap();
    let filler = [&question[..key], &question[key + 4..]].concat();
    (filler, question[key + 1..key + 4].to_vec())
}

/// Two names of 8 with numbers of two digits, one asked for at the end.
fn needles(question: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let (asked, text) = question.split_last().unwrap();
    let (mut filler, mut answer, mut at) = (vec![], vec![], 0);
    while at < text.len() {
        if (10..18).contains(&text[at]) {
            if text[at] == *asked {
                answer.extend(&text[at + 1..at + 3]);
            }
            at += 3;
        } else {
            filler.push(text[at]);
            at += 1;
        }
    }
    (filler, answer)
}

/// A variable of 8 with a number of two digits, and a copy of it; the number stands at the end.
fn variable_tracking(question: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let text = &question[..question.len() - 2];
    let (mut filler, mut answer, mut at) = (vec![], vec![], 0);
    while at < text.len() {
        if text[at] == 10 {
            answer.push(text[at + 1]);
            at += if answer.len() == 1 { 4 } else { 3 };
        } else {
            filler.push(text[at]);
            at += 1;
        }
    }
    (filler, answer)
}

fn kinds() -> [(String, i32, Reader); 3] {
    let table = |keys: &str| format!("{keys}\ntext = {{ {SPLIT} }}\ntest_rows = 50");
    let needles_of = "kind = \"needles\"\nnames = 8\nkeys = 2\ndigits = 2";
    let tracked = "kind = \"variable_tracking\"\nvariables = 8\nhops = 1\ndigits = 2";
    [
        (table("kind = \"passkey\"\ndigits = 3"), 11, passkey),
        (table(needles_of), 18, needles),
        (table(tracked), 19, variable_tracking),
    ]
}

#[test]
fn needles_stand_in_passages_of_the_split_they_belong_to() {
    let (train, valid) = (words(b"abcdef(){}", 3000), words(b"uvwxyz+-;\xff", 2000));
    let dir = dir(&train, &valid);
    for (table, first, read) in kinds() {
        let task = build(&table, dir.path());
        assert_eq!(task.vocab_size(), 3 + first as usize + 256, "{table}");
        assert_eq!(task.unit(), "bytes of text");
        for n in LENGTHS {
            let tested = task.test_batch(n, 0, task.test_rows(n));
            // The last eighth is kept for selection.
            let scored = &valid[..1750];
            for (batch, text) in [
                (task.train_batch(n, 50, 3, 5), &train[..]),
                (tested, scored),
            ] {
                let mut passages = BTreeSet::new();
                for (question, answer) in rows(&batch) {
                    let (filler, expected) = read(&question);
                    assert_eq!((filler.len(), &answer), (n, &expected), "{question:?}");
                    let passage = bytes(&filler, first);
                    assert!(is_within(text, &passage), "{passage:?}");
                    passages.insert(passage);
                }
                assert!(n < 7 || passages.len() > 40, "passages are drawn");
            }
        }
        let facts = task.corpus().expect("a text");
        assert_eq!((facts.train_bytes, facts.valid_bytes), (3000, 2000));
        task.definitions(TEACHER_FORCED)["exact_match"].must_have("of its validation split");
    }
}

#[test]
fn rows_for_selection_read_what_is_not_tested() {
    let valid = [words(b"abc", 1750), words(b"xyz", 250)].concat();
    let dir = dir(&words(b"abc", 500), &valid);
    let mut ctx = common::ctx(dir.path(), 60, &[60], 0);
    ctx.rows = Rows::Selection;
    for (table, first, read) in kinds() {
        let task = try_build(&table, &ctx).unwrap();
        for (question, _) in rows(&task.test_batch(40, 0, 50)) {
            let passage = bytes(&read(&question).0, first);
            assert!(is_within(&valid[1750..], &passage), "{passage:?}");
        }
    }
}

#[test]
fn no_tested_row_is_trained_on_where_both_splits_are_one_text() {
    let text = words(b"ab", 80);
    let dir = dir(&text, &text);
    let table = format!("kind = \"passkey\"\ndigits = 1\ntext = {{ {SPLIT} }}\ntest_rows = 400");
    let ctx = common::ctx(dir.path(), 8, &[8], 0);
    let task = try_build(&table, &ctx).unwrap();
    let questions = |batch: Batch| -> BTreeSet<Vec<i32>> {
        rows(&batch)
            .into_iter()
            .map(|(question, _)| question)
            .collect()
    };
    let tested = questions(task.test_batch(8, 0, 400));
    let trained: BTreeSet<_> = (0..30)
        .flat_map(|step| questions(task.train_batch(8, 1000, 0, step)))
        .collect();
    // 73 places, 10 numbers and 9 depths: most rows are met.
    assert!(trained.len() > 4000 && tested.len() > 150);
    assert!(trained.is_disjoint(&tested));
}

/// Keys of a passkey, `; ` for a line break, and the one at fault.
const REFUSED: &str = r#"
text = { files = [] } | text.files
text = { corpus = "cargo", crates = [] } | text.crates
text = { files = ["a.txt"], crates = ["x"] } | text.crates
text = { files = ["*.txt"], split = {by = "range", valid_fraction = 1} } | text.split.valid_fraction
text = { files = ["*.txt"], max_bytes = 0 } | text.max_bytes
text = { files = ["*.txt"], max_bytes = 9 } | text.max_bytes
text = { corpus = "text8" } | text.files
random_filler = true; text = { files = ["*.txt"] } | random_filler
filler = 7; text = { files = ["*.txt"] } | filler
"#;

#[test]
fn tables_that_cannot_be_are_refused_by_key() {
    let dir = dir(&words(b"ab", 50), &words(b"ab", 50));
    let refused = |keys: &str, train_len, test_len| {
        let ctx = common::ctx(dir.path(), train_len, &[test_len], 0);
        let error = try_build(&format!("kind = \"passkey\"\n{keys}"), &ctx).err();
        error.unwrap_or_else(|| panic!("{keys} is refused"))
    };
    for row in common::lines(REFUSED) {
        let [keys, key] = common::cells(row);
        match refused(&common::by_lines(keys), 4, 4) {
            TaskError::Config(error) => assert_eq!(error.key, key, "{keys}"),
            error @ TaskError::Input { .. } => panic!("{keys}: {error}"),
        }
    }
    let both = format!("text = {{ {SPLIT} }}");
    for (keys, train_len, test_len, problem) in [
        ("text = { files = [\"c.txt\"] }", 4, 4, "cannot be read"),
        (&both, 50, 4, "the training split is too short"),
        (&both, 4, 50, "the validation split is too short"),
        (&both, 4, 45, "has 44 of 50 bytes"),
    ] {
        let error = refused(keys, train_len, test_len);
        assert!(matches!(error, TaskError::Input { .. }), "{keys}: {error}");
        assert!(error.to_string().contains(problem), "{keys}: {error}");
    }
    for key in ["level", "windows", "eval_tokens", "segment_ends"] {
        let written = format!("kind = \"passkey\"\ntext = {{ {key} = \"bpe\" }}");
        let error = toml::from_str::<TaskConfig>(&written).unwrap_err();
        error.message().must_have(&format!("unknown field `{key}`"));
    }
}

#[test]
fn a_table_is_written_as_it_was_resolved() {
    for written in ["{}", "{ corpus = \"rust-2026\" }", "{ corpus = \"cargo\" }"] {
        let table = format!("kind = \"needles\"\ntext = {written}");
        let config: TaskConfig = toml::from_str(&table).unwrap();
        let resolved = serde_json::to_value(&config).unwrap();
        assert_eq!(resolved["text"]["corpus"], "cargo");
        assert_eq!(resolved["text"]["split"]["every"], 10);
        assert_eq!(resolved["text"].as_object().unwrap().len(), 4);
        assert_eq!(
            serde_json::from_value::<TaskConfig>(resolved).unwrap(),
            config
        );
    }
    let plain: TaskConfig = toml::from_str("kind = \"passkey\"").unwrap();
    assert!(serde_json::to_value(plain).unwrap().get("text").is_none());
}

#[test]
fn every_token_has_a_name_of_its_own() {
    let dir = dir(&words(b"abc_", 500), &words(b"xyz", 500));
    for kind in ["passkey", "needles", "variable_tracking"] {
        let task = build(
            &format!("kind = \"{kind}\"\ntext = {{ {SPLIT} }}"),
            dir.path(),
        );
        let names = task.tokens();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(
            (names.len(), distinct.len()),
            (task.vocab_size(), names.len())
        );
        let names = names.join(" ");
        for name in ["EOS 0 1 2 ", " _ ", " byte 48 ", r" \_ "] {
            names.must_have(name);
        }
    }
}
