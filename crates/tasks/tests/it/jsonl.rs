//! Prompts and answers from files: rows against an obvious reading, laws, and mistakes with file and
//! line.

use crate::common::{self, MustHave, cases};
use longreach_tasks::{Batch, Scoring, TEACHER_FORCED, Task, TaskConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}

fn line(prompt: &str, answer: &str) -> String {
    format!(
        "{}\n",
        serde_json::json!({ "prompt": prompt, "answer": answer, "id": 7 })
    )
}

/// Sums in words, 2 to 9 words long.
fn sums(directory: &Path) {
    let prompt = |n: usize, word: &str| vec![word; n].join(" plus ");
    let train: String = (1..=5)
        .map(|n| line(&prompt(n, "one"), &n.to_string()))
        .collect();
    let test: String = (1..=5)
        .map(|n| line(&prompt(n, "two"), &format!("{n} {n}")))
        .collect();
    write(
        directory,
        "train.jsonl",
        &format!("{train}\n{}", line("two", "1 2")),
    );
    write(
        directory,
        "test.jsonl",
        &test.replace("\"two\"", "\"two plus\""),
    );
}

fn build(
    directory: &Path,
    more: &str,
    train_len: usize,
    test_lens: &[usize],
) -> Result<Box<dyn Task>, String> {
    let table =
        format!("kind = \"jsonl\"\ntrain = [\"train.jsonl\"]\ntest = [\"test.jsonl\"]\n{more}");
    let config: TaskConfig = toml::from_str(&table).map_err(|error| error.to_string())?;
    let ctx = common::ctx(directory, train_len, test_lens, 0);
    config.build(&ctx).map_err(|error| {
        error
            .to_string()
            .replace(&*directory.to_string_lossy(), "DIR")
    })
}

/// A row read back: what comes before SEP, what is scored, and how much fills the row.
fn read(batch: &Batch, row: usize) -> (Vec<i32>, Vec<i32>, usize) {
    let (inputs, targets, counted) = common::causal_row(batch, row);
    assert_eq!(inputs[0], 0, "BOS");
    let sep = inputs.iter().position(|token| *token == 1).unwrap();
    let end = sep + targets[sep..].iter().position(|token| *token == 2).unwrap();
    assert!(
        counted
            .iter()
            .enumerate()
            .all(|(i, c)| *c == (sep..=end).contains(&i)),
        "the answer and EOS count"
    );
    assert!(
        targets[end..].iter().all(|token| *token == 2),
        "EOS fills the row"
    );
    (
        inputs[1..sep].to_vec(),
        targets[sep..end].to_vec(),
        targets.len() - 1 - end,
    )
}

#[test]
fn rows_are_the_lines_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    sums(directory.path());
    let task = build(directory.path(), "tokens = \"words\"", 9, &[2, 3, 5, 7, 9]).unwrap();
    // In order of code points: 1 2 3 4 5 one plus two, from id 4 on; 3 is any other.
    let ids: BTreeMap<&str, i32> = ["1", "2", "3", "4", "5", "one", "plus", "two"]
        .into_iter()
        .zip(4..)
        .collect();
    assert_eq!(task.vocab_size(), 12);
    for (n, words) in [
        (2, "two plus"),
        (3, "two plus two"),
        (9, "two plus two plus two plus two plus two"),
    ] {
        assert_eq!(task.test_rows(n), 1, "{n}");
        let (prompt, answer, padding) = read(&task.test_batch(n, 0, 1), 0);
        let expected: Vec<i32> = words.split(' ').map(|word| ids[word]).collect();
        assert_eq!(prompt, expected);
        let count = n.div_ceil(2).to_string();
        assert_eq!(answer, [ids[&*count]; 2]);
        // The longest row up to this length is the test row itself.
        assert_eq!((task.seq_len(n), padding), (n + 4, 0));
    }
    assert_eq!(task.test_rows(4), 0);
    // Training at a length draws every prompt that is no longer.
    let drawn = |n: usize| -> BTreeSet<usize> {
        let batch = task.train_batch(n, 200, 0, 0);
        (0..200).map(|row| read(&batch, row).0.len()).collect()
    };
    assert_eq!(drawn(9), [1, 3, 5, 7, 9].into());
    assert_eq!(drawn(4), [1, 3].into());
    assert_eq!(drawn(1), [1].into());
}

#[test]
fn characters_and_tokens_that_training_lacks() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "train.jsonl", &line("añb", "b"));
    write(directory.path(), "test.jsonl", &line("azb", "z"));
    let task = build(directory.path(), "", 3, &[3]).unwrap();
    // a b ñ
    assert_eq!(task.vocab_size(), 7);
    assert_eq!(read(&task.train_batch(3, 1, 0, 0), 0).0, [4, 6, 5]);
    let (prompt, answer, _) = read(&task.test_batch(3, 0, 1), 0);
    assert_eq!((prompt, answer), (vec![4, 3, 5], vec![3]));
    let definitions = task.definitions(TEACHER_FORCED);
    definitions["exact_match"].must_have("1 tokens of the test answers");
}

#[test]
fn batches_are_functions_of_their_arguments() {
    let directory = tempfile::tempdir().unwrap();
    sums(directory.path());
    let build = || build(directory.path(), "tokens = \"words\"\nbucket = 9", 9, &[9]).unwrap();
    let task = build();
    let batch = task.train_batch(9, 6, 3, 4);
    task.train_batch(5, 2, 8, 1);
    assert_eq!(build().train_batch(9, 6, 3, 4), batch);
    let more = task.train_batch(9, 9, 3, 4);
    assert_eq!(
        more.inputs[..batch.inputs.len()],
        batch.inputs,
        "a larger batch only appends rows"
    );
    assert!(task.train_batch(9, 20, 3, 5) != task.train_batch(9, 20, 3, 4));
    assert!(task.train_batch(9, 20, 4, 4) != task.train_batch(9, 20, 3, 4));
    // A bucket of all lengths is all rows, one by one or together.
    assert_eq!(task.test_rows(9), 5);
    let whole = task.test_batch(9, 0, 5);
    for row in 0..5 {
        assert_eq!(read(&task.test_batch(9, row, 1), 0), read(&whole, row));
        let padding = read(&whole, row).2;
        assert_eq!(task.row_len(9, row), whole.seq_len - padding);
    }
    assert!(task.has_rows(9) && !task.has_rows(0));
    // Longer never takes fewer tokens.
    assert!((1..20).map(|n| task.seq_len(n)).is_sorted());
    assert_eq!(
        (task.unit(), task.scoring(), task.primary_metric()),
        ("words", Scoring::Answer, "exact_match")
    );
    let chance = task.chance();
    assert!((chance["loss_nats"] - (task.vocab_size() as f64).ln()).abs() < 1e-12);
    assert!((chance["token_accuracy"] - 1.0 / 8.0).abs() < 1e-12);
    assert!(task.definitions(TEACHER_FORCED).contains_key("exact_match"));
}

#[test]
fn the_identity_is_that_of_the_bytes() {
    let directory = tempfile::tempdir().unwrap();
    sums(directory.path());
    let facts = |more: &str| {
        build(directory.path(), more, 9, &[2]).map(|task| task.corpus().unwrap().clone())
    };
    let words = "tokens = \"words\"";
    let before = facts(words).unwrap();
    assert_eq!(
        (before.files, before.source.as_str()),
        (2, "files: train.jsonl, test.jsonl")
    );
    assert_eq!(facts(words).unwrap(), before);
    let text = std::fs::read_to_string(directory.path().join("train.jsonl")).unwrap();
    write(directory.path(), "train.jsonl", &format!("{text}\n"));
    assert_ne!(facts(words).unwrap().blake3, before.blake3);
}

#[test]
fn mistakes_name_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let good = line("ab", "c");
    let printed = |train: &[u8], test: &str, more: &str, test_len: usize| {
        std::fs::write(directory.path().join("train.jsonl"), train).unwrap();
        write(directory.path(), "test.jsonl", test);
        match build(directory.path(), more, 2, &[test_len]) {
            Ok(_) => panic!("it was accepted"),
            Err(error) => error,
        }
    };
    let with = |second: &str| printed(format!("{good}{second}").as_bytes(), &line("x", "y"), "", 1);
    let errors = cases! {
        with(r#"{"prompt": 1"#), "DIR/train.jsonl: line 2: is not a JSON object";
        with("[1]"), "line 2: is not a JSON object";
        with(r#"{"prompt": "a"}"#), "line 2: has no `answer`; it has: prompt";
        with(r#"{"question": "a", "answer": "b"}"#), "set task.prompt and task.answer";
        with(r#"{"prompt": "", "answer": "b"}"#), "line 2: `prompt` is empty";
        with("\n\n{\"prompt\": \"a\", \"answer\": {}}"),
            "line 4: `answer` is an object; write a text, a number, or a list of them";
        printed(b"{\"prompt\": \"\xff\"}", &good, "", 1), "line 1: is not UTF-8";
        printed(b"\n\n", &good, "", 1), "DIR/train.jsonl: holds no line";
        printed(good.as_bytes(), &good, "", 2),
            "`test`: the prompt of test.jsonl:1 is trained on: it is also train.jsonl:1; 1 of 1 \
             prompts in all (1 of length 2)";
        printed(good.as_bytes(), &line("abcd", "x"), "", 3),
            "`test`: holds no prompt of 3 characters, a test length; allowed: prompts of 4 \
             characters";
        printed(good.as_bytes(), &line("abcd", "x"), "bucket = 2", 3), "of 2 to 3 characters";
        printed(line("abc", "c").as_bytes(), &line("x", "y"), "", 1),
            "`train`: holds no prompt of at most 2 characters, the training length";
        printed(good.as_bytes(), &good, "prompt = \"\"", 1),
            "`prompt` = \"\": is empty; allowed: a key of your lines";
        printed(good.as_bytes(), &good, "length = \"\"", 1), "`length` = \"\": is empty";
        printed(good.as_bytes(), &good, "bucket = 0", 1), "`bucket` = 0: is out of range";
        printed(good.as_bytes(), &good, "max_bytes = 3", 1), "`max_bytes` = 3: is too small";
        printed(good.as_bytes(), &good, "tokens = \"bytes\"", 1), "chars";
    };
    for (error, wanted) in errors {
        error.must_have(wanted);
    }
    std::fs::remove_file(directory.path().join("test.jsonl")).unwrap();
    let error = build(directory.path(), "", 2, &[2]).err().unwrap();
    error.must_have("test.jsonl");
    let none: TaskConfig = toml::from_str("kind = \"jsonl\"\ntrain = []").unwrap();
    let error = none
        .build(&common::ctx("", 2, &[2], 0))
        .err()
        .unwrap()
        .to_string();
    error.must_have("`train` = []: names no file");
}

#[test]
fn trainings_that_do_not_measure_what_is_expected_are_noted() {
    let directory = tempfile::tempdir().unwrap();
    let notes = |train: &str, test: &str, train_len: usize| {
        write(directory.path(), "train.jsonl", train);
        write(directory.path(), "test.jsonl", test);
        let task = build(directory.path(), "", train_len, &[2]).unwrap();
        task.corpus().unwrap().notes.clone()
    };
    let (train, test) = (line("abc", "c") + &line("ab", "c"), line("ba", "c"));
    assert!(notes(&train, &test, 3).is_empty());
    assert!(notes(&train, &test, 2).is_empty());
    assert_eq!(
        notes(&train, &test, 9),
        [
            "train.train_len is 9, and the longest prompt to train on has 3 characters: reports count \
          longer prompts, up to 9, as trained on"
        ]
    );
    assert_eq!(
        notes(&train, &(test.clone() + &line("bb", "ax")), 3),
        [
            "1 of 2 answers to test have a token that no line to train on has, the first at \
          test.jsonl:2: no model can get them right"
        ]
    );
    // The same answer again is no other one.
    let twice = train.clone() + &line("ab", "c") + &line("abc", "d");
    assert_eq!(
        notes(&twice, &test, 3),
        [
            "the prompt of train.jsonl:4 has another answer at train.jsonl:1: a model can learn one of \
          them at most"
        ]
    );
}

/// Prompts and answers of all training rows as their words, in the order of the files.
fn texts(directory: &Path, train: &[u8], more: &str) -> Result<Vec<String>, String> {
    std::fs::write(directory.join("train.jsonl"), train).unwrap();
    let test = r#"{"prompt": "!", "values": "!", "answer": "!", "outputs": "!"}"#;
    write(directory, "test.jsonl", test);
    let task = build(directory, &format!("tokens = \"words\"\n{more}"), 9, &[1])?;
    let mut known: BTreeSet<String> = BTreeSet::new();
    let text = String::from_utf8_lossy(train).into_owned();
    let is_word = |c: char| c.is_alphanumeric() || "+-.".contains(c);
    known.extend(
        text.split(|c| !is_word(c))
            .filter(|word| !word.is_empty())
            .map(str::to_owned),
    );
    for key in ["prompt", "answer", "values", "outputs", "cat"] {
        known.remove(key);
    }
    let known: Vec<String> = known.into_iter().collect();
    let batch = task.train_batch(9, 400, 0, 0);
    let shown =
        |ids: Vec<i32>| -> Vec<&str> { ids.iter().map(|id| &*known[*id as usize - 4]).collect() };
    let rows: BTreeSet<String> = (0..400)
        .map(|row| read(&batch, row))
        .map(|(prompt, answer, _)| {
            format!("{} = {}", shown(prompt).join(" "), shown(answer).join(" "))
        })
        .collect();
    Ok(rows.into_iter().collect())
}

#[test]
fn benchmarks_are_read_as_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mark = "\u{feff}";
    let big = "123456789012345678901234567890";
    let as_written = format!("a = {big}");
    let files = cases! {
        // A byte order mark, a number, and digits as they are written.
        mark.to_owned() + "{\"prompt\": \"a b\", \"answer\": 7}\n", "", "a b = 7";
        r#"{"prompt": "a", "answer": 1.5}"#.into(), "", "a = 1.5";
        format!("{{\"prompt\": \"a\", \"answer\": \"{big}\"}}"), "", &*as_written;
        r#"{"prompt": "a", "answer": true}"#.into(), "", "a = true";
        // Lists of texts, as RULER has them, and of numbers.
        r#"{"prompt": "q", "outputs": ["x", "y"]}"#.into(), "answer = \"outputs\"", "q = x y";
        r#"{"values": [1, 0, 1], "answer": 1, "cat": 6}"#.into(), "prompt = \"values\"",
            "1 0 1 = 1";
        // A whole file as one array.
        mark.to_owned() + "\n[\n {\"prompt\": \"a\",\n \"answer\": 2},\n \
                           {\"prompt\": \"b\", \"answer\": 3}]\n", "", "a = 2|b = 3";
    };
    for (train, more, expected) in files {
        let read = texts(directory, train.as_bytes(), more);
        assert_eq!(
            read.map(|rows| rows.join("|")),
            Ok(expected.to_owned()),
            "{train}"
        );
    }
    let wide: Vec<u8> = "\u{feff}{}"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let refused = cases! {
        &br#"[{"prompt": "a", "answer": "b"}, 3]"#[..], "not a JSON array of objects: row 2";
        br#"[{"prompt": "a", "answer": "b"}"#, "no `,` or `]` after row 1";
        br#"[{"prompt": "a"}]"#, "row 1: has no `answer`";
        b"[]", "holds no line";
        b"[\"a\", \"b\"]\n", "write one on each line: {\"prompt\"";
        b"{\n\"prompt\": \"a\"\n}", "`jq -c .` does";
        br#"{"prompt": "a", "answer": null}"#, "`answer` is null";
        br#"{"prompt": "a", "answer": [[1]]}"#, "`answer` is a list of lists";
        br#"{"prompt": "a", "answer": 0.10}"#, "a number that needs quotes";
        br#"{"prompt": "a", "answer": 123456789012345678901234567890}"#,
            "a number that needs quotes";
        b"\x1f\x8b\x08", "begins as a gzip file, not as JSON lines; `gunzip FILE` unpacks it";
        &wide, "begins as text in UTF-16, not as JSON lines";
    };
    for (train, said) in refused {
        texts(directory, train, "").expect_err(said).must_have(said);
    }
}

/// Ten questions of categories 2 and 3; the test repeats one of each and has one that is new.
fn categories(directory: &Path) {
    let row = |n: usize, cat: usize| {
        format!("{{\"prompt\": [{n}, {n}], \"answer\": {n}, \"cat\": {cat}}}\n")
    };
    let rows = |ns: &[usize]| -> String { ns.iter().map(|n| row(*n, 2 + n % 2)).collect() };
    write(
        directory,
        "train.jsonl",
        &rows(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    );
    write(directory, "test.jsonl", &rows(&[0, 1, 11]));
}

#[test]
fn a_field_groups_the_results() {
    let directory = tempfile::tempdir().unwrap();
    categories(directory.path());
    let more = "tokens = \"words\"\nlength = \"cat\"\noverlap = \"drop\"";
    let task = build(directory.path(), more, 3, &[2, 3]).unwrap();
    assert_eq!(
        (task.unit(), task.test_rows(2), task.test_rows(3)),
        ("cat", 1, 2)
    );
    // Training at 2 never sees category 3; tokens are counted all the same.
    assert_eq!((task.seq_len(2), task.seq_len(3)), (5, 5));
    let drawn = |n: usize| -> BTreeSet<i32> {
        let batch = task.train_batch(n, 200, 0, 0);
        (0..200).map(|row| read(&batch, row).1[0]).collect()
    };
    // 0 and 1 are tested, so that 2 to 9 are the tokens from 4 on.
    assert_eq!(drawn(2), [4, 6, 8, 10].into());
    assert_eq!(drawn(3), (4..12).collect());
    let definition = &task.definitions(TEACHER_FORCED)["exact_match"];
    definition.must_have("whose cat is the length");
    definition.must_have("2 lines of the training files");
    let error = build(directory.path(), "length = \"cat\"", 3, &[4])
        .err()
        .unwrap();
    error.must_have("(1 of length 2, 1 of length 3)");
    let error = build(directory.path(), "length = \"dog\"", 3, &[3])
        .err()
        .unwrap();
    error.must_have("line 1: has no `dog`");
    let error = build(directory.path(), "length = \"prompt\"", 3, &[3])
        .err()
        .unwrap();
    error.must_have("`prompt` is not a whole number: 0 0");
}

#[test]
fn words_are_the_same_whatever_lies_between_them() {
    let directory = tempfile::tempdir().unwrap();
    let part = |prompts: [&str; 2]| prompts.map(|prompt| line(prompt, "x")).concat();
    write(directory.path(), "train.jsonl", &part(["1 2 +", "3 4 +"]));
    write(directory.path(), "test.jsonl", &part(["1  2 + ", "5 6 +"]));
    let words = "tokens = \"words\"";
    let error = build(directory.path(), words, 3, &[3]).err().unwrap();
    error.must_have("1 of 2 prompts in all");
}

#[test]
fn an_overlap_is_counted_and_can_be_left_out() {
    let directory = tempfile::tempdir().unwrap();
    categories(directory.path());
    let words = "tokens = \"words\"";
    let error = build(directory.path(), words, 3, &[2]).err().unwrap();
    error.must_have("2 of 3 prompts in all (2 of length 2)");
    error.must_have("overlap = \"drop\"");
    // What chooses is in neither: 1 is tested too, 2 and 3 are no longer trained on.
    let rows =
        |ns: &[usize]| -> String { ns.iter().map(|n| line(&format!("{n} {n}"), "x")).collect() };
    write(directory.path(), "select.jsonl", &rows(&[1, 2, 3, 20]));
    let more = format!("{words}\noverlap = \"drop\"\nselect = [\"select.jsonl\"]");
    let task = build(directory.path(), &more, 3, &[2]).unwrap();
    let definition = &task.definitions(TEACHER_FORCED)["exact_match"];
    definition.must_have("4 lines of the training files");
    assert_eq!(task.test_rows(2), 3);
    let error = build(directory.path(), &more.replace("drop", "refuse"), 3, &[2])
        .err()
        .unwrap();
    error.must_have("of select.jsonl:1 is trained on");
    // Nothing is left to train on.
    let all = std::fs::read_to_string(directory.path().join("train.jsonl")).unwrap();
    write(directory.path(), "test.jsonl", &all);
    let error = build(
        directory.path(),
        &format!("{words}\noverlap = \"drop\""),
        3,
        &[2],
    );
    let error = error.err().unwrap();
    error.must_have("holds no prompt that is not tested too");
}
