//! Runs whose tokens have coordinates in the segments of a text.

use crate::common::{Scratch, TINY, command, exits, fails, has, says, stderr};
use records::RunRecord;
use records::record::EvalStatus;

/// BiPE: a table of places in a segment, and a rotation by its number.
const SEGMENTS: &str = r#"name = "segments"
seeds = [0]
[task]
kind = "text"
files = ["a.txt"]
segment_ends = [".", "\n"]
eval_tokens = 96
[model]
d_model = 16
n_layers = 1
n_heads = 2
coordinates = "task"
[[model.pe.parts]]
kind = "on_axis"
part = { kind = "learned", max_position = 10, clamp = true }
[[model.pe.parts]]
kind = "on_axis"
axis = 1
part = { kind = "rope" }
[model.pe]
kind = "stack"
[train]
train_len = 16
steps = 12
batch_size = 4
[eval]
test_lens = [16, 48]
"#;

/// Segments of 4 to 14 bytes, none of which is as long as a window.
const TEXT: &str = "one two. three\nfour five six. seven. eight nine.\nten. eleven\ntwelve too. ";

fn scratch(config: &str) -> Scratch {
    let scratch = Scratch::with(config);
    let text = scratch.directory.path().join("a.txt");
    std::fs::write(text, TEXT.repeat(40)).unwrap();
    scratch
}

fn record(scratch: &Scratch) -> RunRecord {
    let (_, bytes) = scratch.records().remove(0);
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn places_in_segments_are_read_row_by_row() {
    let found = scratch(SEGMENTS);
    found.trains(&[]);
    let placed = record(&found);
    assert!(placed.evals.iter().all(|row| row.status == EvalStatus::Ok));
    // Trained anew, tested and exported alike.
    let run = found.first_run();
    exits(&command("verify", &run, &["--retrain"]), 0);
    let out = found.directory.path().join("logits.safetensors");
    let arguments = ["--format", "logits", "--out", out.to_str().unwrap()];
    exits(&command("export", &run, &arguments), 0);
    // Other ends make other segments, and the loss shows it.
    let other = scratch(&SEGMENTS.replace(r#"[".", "\n"]"#, r#"["e"]"#));
    other.trains(&[]);
    assert_ne!(
        placed.evals[0].metrics["loss_nats"].value,
        record(&other).evals[0].metrics["loss_nats"].value
    );
}

#[test]
fn a_bias_on_the_number_of_the_segment_trains() {
    let alibi = SEGMENTS.replace(
        r#"part = { kind = "rope" }"#,
        r#"part = { kind = "alibi" }"#,
    );
    let scratch = scratch(&alibi);
    scratch.trains(&[]);
    assert!(
        record(&scratch)
            .evals
            .iter()
            .all(|row| row.status == EvalStatus::Ok)
    );
}

#[test]
fn a_table_that_ends_before_a_segment_does_is_refused_or_unsupported() {
    let with = |rows: usize| {
        let table = format!("max_position = {rows}");
        SEGMENTS.replace("max_position = 10, clamp = true", &table)
    };
    // The longest segment has 15 bytes with its end: "four five six." after a line.
    let output = scratch(&with(13)).longreach("check", &[]);
    exits(&output, 2);
    for part in ["model.pe", "axis 0", "reach 13", "max_position = 14"] {
        says(&output, part);
    }
    let whole = scratch(&with(14));
    whole.trains(&[]);
    assert!(
        record(&whole)
            .evals
            .iter()
            .all(|row| row.status == EvalStatus::Ok)
    );
    // Short windows in training, and a longer segment in the test.
    let short = scratch(&with(8).replace("train_len = 16", "train_len = 8"));
    let check = short.longreach("check", &[]);
    exits(&check, 0);
    says(&check, "`learned` has no value at 16, 48");
    short.trains(&["eval.test_lens=[8,16]"]);
    let record = record(&short);
    let status: Vec<EvalStatus> = record.evals.iter().map(|row| row.status).collect();
    assert_eq!(status, [EvalStatus::Ok, EvalStatus::Unsupported]);
    let reason = record.evals[1].reason.clone().unwrap();
    has(&reason, "coordinates up to 13 on axis 0");
    has(&reason, "max_position = 8");
}

#[test]
fn columns_of_a_grid_fall_from_two_cells_on() {
    let scratch = Scratch::with(TINY);
    let columns = "axes.\"model.pe\"=[{kind=\"on_axis\",axis=1,part={kind=\"alibi\"}}]";
    let arguments = [
        "task={kind=\"grid\",test_rows=8}",
        "model.coordinates=\"task\"",
        columns,
    ];
    let output = scratch.longreach("check", &arguments);
    fails(&output, 2, "fall along the sequence on axis 1");
}

#[test]
fn coordinates_that_have_no_meaning_are_refused() {
    for (change, key, said) in [
        // Places in a segment fall where the next one starts.
        (
            (
                "kind = \"learned\", max_position = 10, clamp = true",
                "kind = \"alibi\"",
            ),
            "model.coordinates",
            "fall along the sequence on axis 0",
        ),
        (
            ("axis = 1", "axis = 2"),
            "model.coordinates",
            "the encoding reads 3",
        ),
        (
            ("segment_ends = [\".\", \"\\n\"]\n", ""),
            "model.coordinates",
            "`text` has none",
        ),
        (
            (
                "coordinates = \"task\"",
                "coordinates = \"task\"\ncoordinate_shift = 3",
            ),
            "model.coordinate_shift",
            "of another kind",
        ),
    ] {
        let config = SEGMENTS.replace(change.0, change.1);
        assert_ne!(config, SEGMENTS, "{change:?}");
        let output = scratch(&config).longreach("check", &[]);
        exits(&output, 2);
        let text = stderr(&output);
        assert!(
            text.contains(key) && text.contains(said),
            "{change:?}\n{text}"
        );
    }
}
