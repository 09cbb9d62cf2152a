//! Text by tokens of a byte-pair encoding that is trained on it.

use crate::common;
use longreach_tasks::{Task, TaskConfig, TaskError};

const TEXT: &str = "the cat sat on the mat, and the rat sat on the cat; 1984 was 1984.\n";

fn build(name: &str, text: &[u8], table: &str) -> Result<Box<dyn Task>, TaskError> {
    let folder = std::env::temp_dir().join(format!("longreach-bpe-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch directory");
    std::fs::write(folder.join("a.txt"), text).expect("a file");
    let mut ctx = common::ctx("", 8, &[8, 16], 0);
    ctx.config_dir.clone_from(&folder);
    let table = format!(
        "kind = \"text\"\nfiles = [\"a.txt\"]\neval_tokens = 64\nsplit = {{ by = \"range\", \
         valid_fraction = 0.5 }}\n{table}"
    );
    let built = toml::from_str::<TaskConfig>(&table)
        .expect(&table)
        .build(&ctx);
    std::fs::remove_dir_all(folder).expect("a scratch directory");
    built
}

#[test]
fn tokens_are_words_of_the_text_and_count_its_bytes() {
    let text = TEXT.repeat(40);
    let task = build("words", text.as_bytes(), "level = \"bpe\"\nvocab = 275").unwrap();
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
    assert!(
        definition.contains("byte-pair encoding of 275 tokens"),
        "{definition}"
    );
    let chance = task.chance();
    assert!((chance["perplexity"] - 275.0).abs() < 1e-9);
    assert!((chance["bits_per_byte"] - 275f64.log2() / bytes).abs() < 1e-9);
    // Once more, and nothing differs.
    let again = build("again", text.as_bytes(), "level = \"bpe\"\nvocab = 275").unwrap();
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
        let task = build(word.trim(), text.as_bytes(), "level = \"bpe\"\nvocab = 280").unwrap();
        task.tokenizer().unwrap()["model"]["merges"].clone()
    });
    assert_eq!(one, two);
}

#[test]
fn other_levels_have_no_tokenizer() {
    let task = build("bytes", TEXT.repeat(9).as_bytes(), "").unwrap();
    assert_eq!(task.tokenizer(), None);
}

#[test]
fn mistakes_are_named() {
    let text = TEXT.repeat(9);
    for (name, table, said) in [
        ("missing", "level = \"bpe\"", "is missing"),
        ("small", "level = \"bpe\"\nvocab = 256", "257 to 65536"),
        ("large", "level = \"bpe\"\nvocab = 65537", "257 to 65536"),
        (
            "beyond",
            "level = \"bpe\"\nvocab = 60000",
            "is more than the training split gives",
        ),
        (
            "bytes",
            "level = \"bpe\"\nvocab = 260\nbytes_per_token = 4.0",
            "bytes_per_token",
        ),
        (
            "else",
            "vocab = 260",
            "is for files of token ids, and for byte pairs",
        ),
    ] {
        let error = build(name, text.as_bytes(), table).err();
        let text = format!("{:?}", error.unwrap_or_else(|| panic!("{name} is refused")));
        assert!(
            text.contains(said) && (text.contains("vocab") || name == "bytes"),
            "{text}"
        );
    }
    // No pair of bytes occurs twice.
    let letters: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').collect();
    let error = build("few", &letters, "level = \"bpe\"\nvocab = 300").err();
    let text = format!("{error:?}");
    assert!(text.contains("none for this text"), "{text}");
}
