//! Text scored on all there is: the same tokens at every length, and the losses of its blocks.

use crate::common::{Scratch, exits, has};
use records::record::{EvalRow, ScoredText, TaskFacts};
use records::{RunRecord, metric::LOSS_NATS};
use tasks::Stream;

const WHOLE: &str = r#"name = "whole"
seeds = [0]
[task]
kind = "text"
files = ["a.txt"]
split = { by = "range", valid_fraction = 0.5 }
[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 8
steps = 30
batch_size = 4
lr = 3e-3
[eval]
test_lens = [8, 17, 100]
"#;

/// The task and the rows of a config's only run.
fn scored(config: &str) -> (TaskFacts, Vec<EvalRow>) {
    let scratch = Scratch::with(config);
    // 10,000 bytes are held out, whose first half has other letters than the second.
    let mut stream = Stream::new(0, "letters", 0);
    let letters = (0..20_000u64).map(|at| {
        let first = if at % 10_000 < 5000 { b'a' } else { b'n' };
        first + stream.below(13) as u8
    });
    let text: Vec<u8> = letters.collect();
    scratch.write("a.txt", text);
    let output = scratch.longreach("run", &[]);
    // Rows for selection give no result to print, which is an error.
    if !config.contains("selection") {
        exits(&output, 0);
    }
    let (_, bytes) = scratch.records().remove(0);
    let record: RunRecord = serde_json::from_slice(&bytes).unwrap();
    (record.task, record.evals)
}

fn loss(row: &EvalRow) -> (f64, u64) {
    let loss = row.metrics[LOSS_NATS];
    (loss.value, loss.n)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn one_model_has_one_number_at_a_length_and_blocks_that_make_it() {
    let (task, rows) = scored(WHOLE);
    // 1250 bytes are kept for selection; of 8749 that can be scored 8704 are in whole blocks.
    let expected = ScoredText {
        tokens: 8704,
        bytes: Some(8704),
    };
    assert_eq!(task.scored, Some(expected));
    let at = "over the same 8704 bytes at every test length";
    has(&task.definitions[LOSS_NATS], at);
    for row in &rows {
        let (value, n) = loss(row);
        assert_eq!((n, row.loss_by_block.len()), (8704, 64), "{}", row.test_len);
        assert!((mean(&row.loss_by_block) - value).abs() < 1e-12);
    }
    let (_, other) = scored(&WHOLE.replace("[8, 17, 100]", "[17, 30]"));
    assert_eq!(
        loss(&other[0]),
        loss(&rows[1]),
        "whatever the other lengths are"
    );
    assert_eq!(other[0].loss_by_block, rows[1].loss_by_block);

    // The oracle: runs that score the first blocks alone. Their windows are the same, because 17
    // divides the 136 bytes of a block.
    for blocks in [1, 5, 40] {
        let keys = format!("kind = \"text\"\neval_tokens = {}", 136 * blocks);
        let cut = WHOLE.replace("kind = \"text\"", &keys);
        let (task, cut) = scored(&cut.replace("[8, 17, 100]", "[17]"));
        assert_eq!((task.scored, cut[0].loss_by_block.len()), (None, 0));
        let (value, n) = loss(&cut[0]);
        assert_eq!(n, 136 * blocks);
        let first = mean(&rows[1].loss_by_block[..blocks as usize]);
        // Rows share batches with others, which changes the last bits of f32.
        assert!((first - value).abs() < 1e-6, "{blocks}: {first} {value}");
    }
}

#[test]
fn scores_of_selection_rows_are_of_other_bytes_and_leave_no_blocks_unsaid() {
    let (task, rows) = scored(&WHOLE.replace("[eval]", "[eval]\nrows = \"selection\""));
    // 1249 bytes are too few for blocks.
    assert_eq!(task.scored.map(|text| text.tokens), Some(1249));
    assert!(
        rows.iter()
            .all(|row| loss(row).1 == 1249 && row.loss_by_block.is_empty())
    );
    let definition = &task.definitions[LOSS_NATS];
    has(definition, "the first scored byte is number 8752");
}

#[test]
fn short_texts_are_scored_to_their_end() {
    let (task, rows) = scored(&WHOLE.replace("valid_fraction = 0.5", "valid_fraction = 0.1"));
    // Of 2000 bytes 250 are kept.
    assert_eq!(task.scored.map(|text| text.tokens), Some(1749));
    assert!(
        rows.iter()
            .all(|row| loss(row).1 == 1749 && row.loss_by_block.is_empty())
    );
}
