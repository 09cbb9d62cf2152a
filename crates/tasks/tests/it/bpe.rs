//! Text by tokens of a byte-pair encoding that is trained on it.

use crate::common::{self, MustHave, corpus};
use longreach_tasks::{Task, TaskConfig, TaskError};

const TEXT: &str = "the cat sat on the mat, and the rat sat on the cat; 1984 was 1984.\n";

fn build(text: &[u8], table: &str) -> Result<Box<dyn Task>, TaskError> {
    let folder = corpus(&[("a.txt", text)]);
    let table = format!(
        "kind = \"text\"\nfiles = [\"a.txt\"]\neval_tokens = 64\nsplit = {{ by = \"range\", \
         valid_fraction = 0.5 }}\n{table}"
    );
    let ctx = common::ctx(folder.path(), 8, &[8, 16], 0);
    let config = toml::from_str::<TaskConfig>(&table).expect(&table);
    config.build(&ctx)
}

#[test]
fn tokens_are_words_of_the_text_and_count_its_bytes() {
    let text = TEXT.repeat(40);
    let task = build(text.as_bytes(), "level = \"bpe\"\nvocab = 275").unwrap();
    assert_eq!((task.vocab_size(), task.unit()), (275, "tokens"));
    let json = task.tokenizer().expect("it was trained here");
    let vocab = json["model"]["vocab"].as_object().unwrap();
    assert_eq!(vocab.len(), 275);
    assert_eq!(json["model"]["merges"].as_array().unwrap().len(), 275 - 256);
    // U+0120 is a space.
    assert_eq!(vocab["A"], 65);
    assert_eq!(vocab["\u{120}"], 32);
    assert!(vocab.contains_key("\u{120}the") && vocab.contains_key("\u{120}sat"));
    // The scored tokens with their bytes: the validation split from its second token on.
    let mut names: Vec<(u64, &String)> = vocab
        .iter()
        .map(|(name, id)| (id.as_u64().unwrap(), name))
        .collect();
    names.sort();
    let batch = task.test_batch(16, 0, task.test_rows(16));
    let said: String = batch
        .targets
        .iter()
        .map(|id| &**names[*id as usize].1)
        .collect();
    let said = said.replace('\u{120}', " ").replace('\u{10a}', "\n");
    let valid = &text[text.len() / 2..];
    let at = valid.find(&said).expect("tokens spell the text");
    assert!(at < 8, "{at}");
    let bytes = said.len() as f64 / batch.targets.len() as f64;
    assert!((task.bytes_per_token().unwrap() - bytes).abs() < 1e-9);
    let definition = &task.definitions("")["perplexity"];
    definition.must_have("byte-pair encoding of 275 tokens");
    let chance = task.chance();
    assert!((chance["perplexity"] - 275.0).abs() < 1e-9);
    assert!((chance["bits_per_byte"] - 275f64.log2() / bytes).abs() < 1e-9);
    // Once more, and nothing differs.
    let again = build(text.as_bytes(), "level = \"bpe\"\nvocab = 275").unwrap();
    assert_eq!(again.tokenizer(), task.tokenizer());
    assert_eq!(
        again.train_batch(8, 4, 1, 2).inputs,
        task.train_batch(8, 4, 1, 2).inputs
    );
}

#[test]
fn the_validation_split_teaches_nothing() {
    let [one, two] = ["xyzzy ", "plugh "].map(|word| {
        let text = format!("{}{}", TEXT.repeat(20), word.repeat(TEXT.len() * 20 / 6));
        let task = build(text.as_bytes(), "level = \"bpe\"\nvocab = 280").unwrap();
        task.tokenizer().unwrap()["model"]["merges"].clone()
    });
    assert_eq!(one, two);
}

#[test]
fn other_levels_have_no_tokenizer() {
    let task = build(TEXT.repeat(9).as_bytes(), "").unwrap();
    assert_eq!(task.tokenizer(), None);
}

/// Tables, `; ` for a line break, and a part of the error.
const MISTAKES: &str = r#"
level = "bpe" | is missing
level = "bpe"; vocab = 256 | 257 to 65536
level = "bpe"; vocab = 65537 | 257 to 65536
level = "bpe"; vocab = 60000 | is more than the training split gives
level = "bpe"; vocab = 260; bytes_per_token = 4.0 | bytes_per_token
vocab = 260 | is for files of token ids, and for byte pairs
"#;

#[test]
fn mistakes_are_named() {
    let text = TEXT.repeat(9);
    for row in common::lines(MISTAKES) {
        let [table, said] = common::cells(row);
        let error = build(text.as_bytes(), &common::by_lines(table)).err();
        let text = format!("{:?}", error.unwrap_or_else(|| panic!("{row} is refused")));
        text.must_have(said);
        assert!(
            text.contains("vocab") || said == "bytes_per_token",
            "{text}"
        );
    }
    // No pair of bytes occurs twice.
    let letters: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').collect();
    let error = build(&letters, "level = \"bpe\"\nvocab = 300").err();
    let text = format!("{error:?}");
    text.must_have("none for this text");
}

#[test]
fn texts_without_spaces_are_read_in_any_script() {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) % below
    };
    let dna: String = (0..4000)
        .map(|_| b"ACGT"[next(4) as usize] as char)
        .collect();
    let sign = |n: u64| char::from_u32(0x4e00 + n as u32).unwrap();
    let chinese: String = (0..3000).map(|_| sign(next(37))).collect();
    for (name, text) in [("dna", dna), ("chinese", chinese)] {
        for words in ["ascii", "unicode"] {
            let table = format!("level = \"bpe\"\nvocab = 300\nwords = \"{words}\"");
            let task = build(text.as_bytes(), &table).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(task.vocab_size(), 300);
            assert!(task.bytes_per_token().unwrap() > 1.5, "{name} {words}");
        }
    }
    let table = "level = \"bpe\"\nvocab = 258\nwords = \"unicode\"";
    let error = build(&b"ab\xff ".repeat(99), table).err().unwrap();
    error.to_string().must_have("is not UTF-8");
}

#[test]
fn a_tokenizer_of_others_reads_a_text() {
    let golden: serde_json::Value =
        serde_json::from_slice(include_bytes!("../golden/tokenizers.json")).unwrap();
    let text = golden["texts"]["all"].as_str().unwrap();
    let ids: Vec<i32> = serde_json::from_value(golden["read"]["all"].clone()).unwrap();
    let json = golden["read"]["json"].to_string();
    let folder = corpus(&[
        ("a.txt", text.as_bytes()),
        ("tokenizer.json", json.as_bytes()),
    ]);
    let file = folder.path().join("tokenizer.json");
    let ctx = common::ctx(folder.path(), 8, &[8], 0);
    let read = |more: &str| {
        let table = format!("kind = \"text\"\nfiles = [\"a.txt\"]\nlevel = \"tokenizer\"\n{more}");
        toml::from_str::<TaskConfig>(&table).unwrap().build(&ctx)
    };
    let named = "tokenizer = \"tokenizer.json\"";
    let task = read(named).unwrap_or_else(|error| panic!("{error}"));
    let vocab = golden["read"]["json"]["model"]["vocab"]
        .as_object()
        .unwrap()
        .len();
    assert_eq!((task.vocab_size(), task.unit()), (vocab + 1, "tokens"));
    // The validation split is the end of the text.
    // From its second window on: the split begins inside a word.
    let batch = task.test_batch(8, 1, 1);
    assert!(ids.windows(8).any(|window| window == batch.inputs));
    assert!(task.definitions("")["perplexity"].contains("a tokenizer.json"));
    assert_eq!(task.tokenizer(), None, "it is not trained here");
    // Another tokenizer is another text.
    let hash = |task: &dyn Task| task.corpus().unwrap().blake3.clone();
    let before = hash(task.as_ref());
    std::fs::write(&file, format!("{json}\n")).unwrap();
    assert_ne!(
        hash(read(named).unwrap_or_else(|e| panic!("{e}")).as_ref()),
        before
    );
    for (more, said) in [
        ("", "`tokenizer`: is missing"),
        ("tokenizer = \"none.json\"", "none.json"),
        (
            &*format!("{named}\nvocab = 300"),
            "is for files of token ids",
        ),
        (
            &*format!("{named}\nwords = \"unicode\""),
            "byte pairs that are trained here",
        ),
    ] {
        let error = read(more)
            .err()
            .unwrap_or_else(|| panic!("{more}"))
            .to_string();
        error.must_have(said);
    }
    // Without merges it would be read as bytes; other models are named first.
    for (kind, said) in [
        ("BPE", "has no `merges`"),
        ("Unigram", "has the model `Unigram`"),
    ] {
        let mut without: serde_json::Value = serde_json::from_str(&json).unwrap();
        without["model"].as_object_mut().unwrap().remove("merges");
        without["model"]["type"] = kind.into();
        std::fs::write(&file, without.to_string()).unwrap();
        read(named).err().unwrap().to_string().must_have(said);
    }
    std::fs::write(&file, "{}").unwrap();
    let error = read(named).err().unwrap().to_string();
    error.must_have("is not a tokenizer.json");
    error.must_have("level = \"u32\"");
}
