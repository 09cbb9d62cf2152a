//! Runs on the tokens of a byte-pair encoding: their scores, and the tokenizer for others.

use crate::common::{Scratch, exits, longreach, stderr, stdout};
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
    std::fs::write(scratch.directory.path().join("a.txt"), text).unwrap();
    exits(&scratch.longreach("run", &[]), 0);
    let (path, bytes) = scratch.records().remove(0);
    let record: RunRecord = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(record.task.unit, "tokens");
    assert!(record.task.definitions.contains_key("bits_per_byte"));
    let run = scratch.runs().join(path.parent().unwrap());
    let out = scratch.directory.path().join("tokenizer.json");
    let export = || {
        let mut export = longreach();
        export
            .arg("export")
            .arg(&run)
            .args(["--format", "tokenizer", "--out"])
            .arg(&out);
        export.output().unwrap()
    };
    let output = export();
    exits(&output, 0);
    assert!(
        stdout(&output).contains("280 tokens"),
        "{}",
        stdout(&output)
    );
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
    std::fs::write(
        scratch.directory.path().join("a.txt"),
        "some text ".repeat(60),
    )
    .unwrap();
    exits(&scratch.longreach("run", &[]), 0);
    let (path, _) = scratch.records().remove(0);
    let mut export = longreach();
    export
        .arg("export")
        .arg(scratch.runs().join(path.parent().unwrap()))
        .args(["--format", "tokenizer", "--out", "x.json"]);
    let output = export.output().unwrap();
    exits(&output, 3);
    assert!(
        stderr(&output).contains("trains no tokenizer"),
        "{}",
        stderr(&output)
    );
}
