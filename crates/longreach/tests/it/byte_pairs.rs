//! Runs on the tokens of a byte-pair encoding: their scores, and the tokenizer for others.

use crate::common::{Scratch, command, exits, fails, shows};
use records::RunRecord;

const WORDS: &str = r#"name = "words"
seeds = [0]
[task]
kind = "text"
level = "bpe"
vocab = 280
files = ["a.txt"]
eval_tokens = 64
[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 8
steps = 2
batch_size = 2
[eval]
test_lens = [8]
"#;

#[test]
fn the_tokenizer_of_a_run_is_written_for_others() {
    let scratch = Scratch::with(WORDS);
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(60);
    scratch.write("a.txt", text);
    scratch.trains(&[]);
    let record: RunRecord = serde_json::from_slice(&scratch.records()[0].1).unwrap();
    assert_eq!(record.task.unit, "tokens");
    assert!(record.task.definitions.contains_key("bits_per_byte"));
    let out = scratch.directory.path().join("tokenizer.json");
    let arguments = ["--format", "tokenizer", "--out", out.to_str().unwrap()];
    let export = || command("export", &scratch.first_run(), &arguments);
    let output = export();
    exits(&output, 0);
    shows(&output, "280 tokens");
    let first = std::fs::read(&out).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(json["model"]["type"], "BPE");
    assert_eq!(json["model"]["vocab"].as_object().unwrap().len(), 280);
    exits(&export(), 0);
    assert!(
        first == std::fs::read(&out).unwrap(),
        "the same bytes again"
    );
}

#[test]
fn runs_without_a_tokenizer_have_none_to_write() {
    let config = WORDS.replace("level = \"bpe\"\nvocab = 280\n", "");
    let scratch = Scratch::with(&config);
    scratch.write("a.txt", "some text ".repeat(60));
    scratch.trains(&[]);
    let arguments = ["--format", "tokenizer", "--out", "x.json"];
    let output = command("export", &scratch.first_run(), &arguments);
    fails(&output, 3, "trains no tokenizer");
}
