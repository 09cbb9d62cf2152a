//! Bidirectional models: masked text, from a config to a report, and tasks in symbols.

use crate::common::{Scratch, command, exits, fails, has, says, shows, stderr};
use serde_json::Value;

const MASKED: &str = r#"name = "masked"

[task]
kind = "masked_text"
files = ["text.txt"]
eval_tokens = 512

[model]
mask = "bidirectional"
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }

[train]
train_len = 32
steps = 240
batch_size = 8
length = "staged"
stages = [{ steps = 160, train_len = 16, batch_size = 16 }, { steps = 80, train_len = 32 }]
lr = 1e-2

[eval]
test_lens = [16, 32, 64]

[axes]
"model.pe" = [{ kind = "rope" }, { kind = "alibi" }]
"#;

fn scratch() -> Scratch {
    let scratch = Scratch::with(MASKED);
    // Every byte is decided by the one before it and by the one after it.
    scratch.write("text.txt", "abcdefgh".repeat(1000));
    scratch
}

fn records(scratch: &Scratch) -> Vec<Value> {
    scratch
        .records()
        .iter()
        .map(|(_, bytes)| serde_json::from_slice(bytes).unwrap())
        .collect()
}

#[test]
fn a_staged_masked_run_learns_and_is_reported() {
    let scratch = scratch();
    let output = scratch.trains(&[]);
    for part in ["RoPE", "ALiBi"] {
        shows(&output, part);
    }
    let records = records(&scratch);
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record["spec"]["model"]["mask"], "bidirectional");
        assert_eq!(
            (&record["task"]["kind"], &record["task"]["unit"]),
            (&"masked_text".into(), &"bytes".into())
        );
        assert_eq!(record["train"]["tokens"], 160 * 16 * 16 + 80 * 8 * 32);
        for row in record["evals"].as_array().unwrap() {
            assert_eq!(row["status"], "ok", "{row}");
            let metric = |name: &str| {
                (
                    row["metrics"][name]["value"].as_f64().unwrap(),
                    row["metrics"][name]["n"].as_u64().unwrap(),
                )
            };
            let ((loss, chosen), (accuracy, counted)) =
                (metric("loss_nats"), metric("token_accuracy"));
            assert_eq!(chosen, counted);
            assert!((40..120).contains(&chosen), "{chosen} of 512 bytes at 15 %");
            assert!(row["metrics"].get("exact_match").is_none());
            assert!(!row["loss_by_position"].as_array().unwrap().is_empty());
            // A byte and where it stands say all others; guessing gets one in eight right. A
            // symmetric bias does not tell before from after.
            if record["labels"][0]["text"] == "rope" {
                assert!(loss < 1.0 && accuracy > 0.6, "{loss} nats, {accuracy}");
            }
        }
        // The same bytes are hidden at every length.
        let chosen: Vec<&Value> = record["evals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row["metrics"]["loss_nats"]["n"])
            .collect();
        assert!(
            chosen.windows(2).all(|pair| pair[0] == pair[1]),
            "{chosen:?}"
        );
    }
    let report = std::fs::read_to_string(scratch.runs().join("masked/report/report.md")).unwrap();
    for part in [
        "masked_text",
        "token_accuracy",
        "perplexity",
        "probability 0.15",
        "0.8 are read as a mask",
    ] {
        has(&report, part);
    }
    // What was trained can be evaluated again, at other lengths.
    let run = scratch.first_run();
    exits(&command("eval", &run, &["--lengths", "8,128"]), 0);
    exits(&command("verify", &run, &["--retrain"]), 0);
}

#[test]
fn a_causal_model_of_the_same_text_is_another_run() {
    let scratch = scratch();
    scratch.trains(&[
        "axes.\"model.mask\"=[\"bidirectional\",\"causal\"]",
        "train.steps=40",
        "train.stages=[{steps=40,train_len=32}]",
    ]);
    let records = records(&scratch);
    assert_eq!(records.len(), 4);
    let causal: Vec<&Value> = records
        .iter()
        .filter(|record| record["spec"]["model"].get("mask").is_none())
        .collect();
    assert_eq!(causal.len(), 2, "the default is left out of a spec");
}

/// A task in symbols, for a model that reads both ways.
const SYMBOLS: &str = r#"name = "symbols"

[task]
kind = "reverse"
alphabet = 3
test_rows = 64

[model]
mask = "bidirectional"
d_model = 32
n_layers = 2
n_heads = 2
pe = { kind = "learned", max_position = 32 }

[train]
train_len = 3
steps = 300
batch_size = 32
lr = 1e-2

[eval]
test_lens = [3, 6]
"#;

#[test]
fn a_model_that_reads_both_ways_answers_in_blanks() {
    let scratch = Scratch::with(SYMBOLS);
    scratch.trains(&[]);
    let records = records(&scratch);
    assert_eq!(records.len(), 1);
    let record = &records[0];
    // Three symbols and the blank; three of the question and three blanks.
    assert_eq!(record["spec"]["model"]["vocab_size"], 4);
    assert_eq!(record["spec"]["train"]["seq_len"], 6);
    let metrics = &record["evals"][0]["metrics"];
    // All 27 rows, each of 3 answer tokens, without EOS.
    assert_eq!(metrics["token_accuracy"]["n"], 3 * 27);
    let learned = metrics["exact_match"]["value"].as_f64().unwrap();
    assert!(learned > 0.9, "reversing three symbols: {learned}");
    exits(&command("verify", &scratch.first_run(), &["--retrain"]), 0);
}

#[test]
fn answers_that_a_model_would_see_are_refused_by_name() {
    let scratch = Scratch::with(SYMBOLS);
    let shown = "task={kind=\"flip_flop\"}";
    for (overrides, parts) in [
        (
            vec![shown],
            ["model.mask", "answers of task `flip_flop`", "blanks"],
        ),
        (
            vec!["eval.decode=\"greedy\""],
            ["eval.decode", "all answers at once", "teacher_forced"],
        ),
        (
            vec!["model.pe={kind=\"fox\"}"],
            [
                "model.mask",
                "no meaning for keys after the query",
                "causal",
            ],
        ),
    ] {
        let output = scratch.longreach("check", &overrides);
        exits(&output, 2);
        for part in parts {
            says(&output, part);
        }
    }
    let last = "task={kind=\"flip_flop\",answer=\"last\"}";
    exits(&scratch.longreach("check", &[last]), 0);
    exits(
        &scratch.longreach(
            "check",
            &[
                "task={kind=\"mqar\",pairs=1,vocab=16}",
                "eval.test_lens=[8]",
                "train.train_len=8",
            ],
        ),
        0,
    );
}

#[test]
fn encodings_of_causal_models_are_refused_by_name() {
    let scratch = scratch();
    for pe in [
        "{kind=\"xpos\"}",
        "{kind=\"cope\"}",
        "{kind=\"fox\"}",
        "{kind=\"fire\"}",
        "{kind=\"rerope\"}",
        "{kind=\"self_extend\"}",
        "{kind=\"log_scaling\"}",
        "{kind=\"t5\"}",
        "{kind=\"stack\",parts=[{kind=\"rope\"},{kind=\"fire\"}]}",
        "{kind=\"nope_layers\",part={kind=\"t5\"}}",
    ] {
        let output = scratch.longreach("check", &[&format!("axes.\"model.pe\"=[{pe}]")]);
        exits(&output, 2);
        for part in [
            "model.mask",
            "no meaning for keys after the query",
            "bidirectional form",
            "x.toml:9:8",
        ] {
            assert!(
                stderr(&output).contains(part),
                "{pe}: {part} is missing from {}",
                stderr(&output)
            );
        }
    }
    let linear = scratch.longreach("check", &["model.attention=\"linear\""]);
    fails(&linear, 2, "model.mask");
    says(&linear, "linear attention is causal");
    let variant = "eval.variants=[{name=\"leaky\",set={kind=\"rerope\"}}]";
    fails(&scratch.longreach("check", &[variant]), 2, "model.mask");
    let t5 = "axes.\"model.pe\"=[{kind=\"t5\",bidirectional=true},{kind=\"shaw\"},{kind=\"\
              transformer_xl\"},{kind=\"deberta\"},{kind=\"pope\"}]";
    exits(&scratch.longreach("check", &[t5]), 0);
}
