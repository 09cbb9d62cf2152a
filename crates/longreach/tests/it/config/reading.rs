//! What a valid file, its axes and the overrides mean.

use super::toy::{GOOD, axes, cells, read};
use config::diagnostic::{closest, normalise};
use config::key_path::KeyPath;
use config::source::Source;

fn labels(text: &str, overrides: &[&str]) -> Vec<String> {
    let cells = cells(text.as_bytes(), overrides).expect("valid axes");
    cells
        .iter()
        .map(|cell| {
            cell.labels
                .iter()
                .map(|l| l.text.clone())
                .collect::<Vec<_>>()
                .join(" | ")
        })
        .collect()
}

#[test]
fn labels_are_as_short_as_tells_values_apart() {
    let kinds = "\"model.pe\" = [{ kind = \"nope\" }, { kind = \"rope\", base = 1e4, layout = \
                 \"half\" }, { kind = \"rope\", base = 5e5, layout = \"half\" }, { kind = \
                 \"alibi\", slopes = [1] }, { kind = \"rope\" }]";
    let expected = [
        "nope",
        "rope(base=10000, layout=half)",
        "rope(base=500000, layout=half)",
        "alibi",
        "rope",
    ];
    assert_eq!(labels(&axes(kinds), &[]), expected);
    let bases = "\"model.pe\" = [{ base = 1e4, kind = \"rope\", scaling = 2 }, { base = 5e5, kind \
                 = \"rope\", scaling = 2 }]";
    assert_eq!(
        labels(&axes(bases), &[]),
        ["rope(base=10000)", "rope(base=500000)"]
    );
    let numbers = "\"train.lr\" = [1e-3, 3e-5, 1.0, 20000.0, 2.5e20, 7, \"7\", true]";
    assert_eq!(
        labels(&axes(numbers), &[]),
        [
            "0.001", "3e-5", "1", "20000", "2.5e20", "7", "\"7\"", "true"
        ]
    );
    let stack = "\"model.pe\" = [{ kind = \"stack\", parts = [{ kind = \"rope\", base = 7 }, { \
                 kind = \"alibi\" }] }, { kind = \"stack\", parts = [] }]";
    assert_eq!(
        labels(&axes(stack), &[]),
        ["stack(parts=[rope(base=7), alibi])", "stack(parts=[])"]
    );
}

#[test]
fn first_axis_varies_slowest_and_cells_hold_their_values() {
    let text = axes(
        "\"model.pe\" = [{ kind = \"rope\", base = 3 }, { kind = \"nope\" }]\n\"train.lr\" = [1, \
         2]\n\"model.n_heads\" = [4, 8]",
    );
    let cells = read(text.as_bytes(), &[]).expect("valid");
    let shown = cells.iter().map(|(cell, toy)| {
        let texts = cell
            .labels
            .iter()
            .map(|label| label.text.as_str())
            .collect::<Vec<_>>();
        format!(
            "{} lr={} heads={}",
            texts.join(" "),
            toy.train.lr,
            toy.model.n_heads
        )
    });
    let expected = [
        "rope 1 4 lr=1 heads=4",
        "rope 1 8 lr=1 heads=8",
        "rope 2 4 lr=2 heads=4",
        "rope 2 8 lr=2 heads=8",
    ];
    assert_eq!(shown.take(4).collect::<Vec<_>>(), expected);
    let (first, _) = &cells[0];
    assert!(!first.table.contains_key("axes"));
    assert_eq!(first.origin("model.pe.base"), "x.toml:20 (axis model.pe)");
    assert_eq!(first.origin("train.steps"), "x.toml:13");
    assert_eq!(first.origin("model.pe.scaling"), "default");
}

#[test]
fn overrides_win_over_the_file_and_the_axes() {
    let text = axes(
        "\"model.pe\" = [{ kind = \"rope\" }, { kind = \"rope\", base = 2 }]\n\"model.pe.layout\" \
         = [\"a\", \"b\"]\n\"train.lr\" = [1, 2]",
    );
    assert_eq!(labels(&text, &[]).len(), 8);
    assert_eq!(
        labels(&text, &["train.lr=3"]),
        [
            "rope | a",
            "rope | b",
            "rope(base=2) | a",
            "rope(base=2) | b"
        ],
        "an equal key removes the axis"
    );
    assert_eq!(
        labels(&text, &["model.pe={base=2, kind=\"rope\"}", "train.lr=1"]),
        ["rope(base=2) | a | 1", "rope(base=2) | b | 1"],
        "one of its values keeps its label among them"
    );
    let fixed = [
        "model.pe.base=7",
        "model.pe={kind=\"rope\"}",
        "train.lr=1",
        "model.pe.layout=a",
        "train.lr=2",
    ];
    assert_eq!(labels(&text, &fixed), ["rope | a | 2"], "the last one wins");
    let later = [
        "model.pe={kind=\"rope\"}",
        "axes.model.pe=[{kind=\"nope\"}]",
    ];
    assert_eq!(labels(&text, &later)[0], "nope | a | 1");
    assert_eq!(
        labels(&text, &["model.pe={kind=\"nope\"}"]),
        ["1", "2"],
        "a table above removes the axes inside it"
    );
    assert_eq!(labels(&text, &["train={steps=1, lr=1}"]).len(), 4);
    let scaled = cells(text.as_bytes(), &["model.pe.scaling=2", "train.lr=1"]).expect("valid");
    assert!(
        scaled
            .iter()
            .all(|cell| cell.table["model"]["pe"]["scaling"].as_integer() == Some(2)),
        "a key inside is set in every value"
    );
    assert_eq!(
        scaled[0].origin("model.pe.scaling"),
        "command line: model.pe.scaling=2 (axis model.pe)"
    );
    assert_eq!(
        labels(
            &text,
            &["axes.train.lr=[5]", "axes.model.pe.layout=[\"c\"]"]
        ),
        ["rope | c | 5", "rope(base=2) | c | 5"]
    );
    assert_eq!(
        labels(
            &text,
            &[
                "axes.\"model.pe\".0.base=9",
                "train.lr=1",
                "model.pe.layout=c"
            ]
        ),
        ["rope(base=9) | 1", "rope(base=2) | 1"]
    );
    assert_eq!(labels(&text, &["axes={}"]), [""]);
    assert_eq!(
        labels(GOOD, &["train.lr=3", "axes.train.lr=[1, 2]"]),
        ["1", "2"],
        "later overrides win"
    );
    assert_eq!(labels(GOOD, &["axes.train.lr=[1, 2]", "train.lr=3"]), [""]);
}

#[test]
fn override_values_are_toml_or_plain_words() {
    let given = |text: &str| {
        let mut source = Source::parse("x.toml", b"name = 1").expect("valid");
        source.apply_override(text).expect("valid override");
        source.get("k").expect("set").to_string()
    };
    let cases = [
        ("k=1", "1"),
        ("k = [0, 1, 2]", "[0, 1, 2]"),
        ("k=rope", "\"rope\""),
        ("k=data/*.txt", "\"data/*.txt\""),
    ];
    let more = [
        ("k=\"a=b\"", "\"a=b\""),
        ("\"k\"=true", "true"),
        ("k={kind=\"alibi\"}", "{ kind = \"alibi\" }"),
        ("k=two words", "\"two words\""),
    ];
    for (text, value) in cases.into_iter().chain(more) {
        assert_eq!(given(text), value, "{text}");
    }
    let mut source = Source::parse("x.toml", GOOD.as_bytes()).expect("valid");
    source
        .apply_override("eval.0.\"test_len\".1=256")
        .expect("valid override");
    assert_eq!(
        source
            .get("eval.0.test_len")
            .map(ToString::to_string)
            .as_deref(),
        Some("[64, 256]")
    );
    assert_eq!(
        source.overrides().collect::<Vec<_>>(),
        ["eval.0.\"test_len\".1=256"]
    );
}

#[test]
fn kind_comes_first_at_every_depth() {
    let mut table: toml::Table =
        toml::from_str("b = 1\nkind = 2\nx = [{ a = 1, kind = 2, c = 3 }]\n[y]\nz = 1\nkind = 0")
            .expect("valid");
    normalise(&mut table);
    let keys = |table: &toml::Table| table.keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&table), "kind b x y");
    assert_eq!(
        table["x"][0].as_table().map(keys).as_deref(),
        Some("kind a c")
    );
    assert_eq!(table["y"].as_table().map(keys).as_deref(), Some("kind z"));
}

#[test]
fn suggestions_only_when_close() {
    let allowed = ["base", "layout", "n_heads", "warmup_steps", "lr"].map(String::from);
    let cases = [
        ("bsae", Some("base")),
        ("N-Heads", Some("n_heads")),
        ("warmup", Some("warmup_steps")),
        ("rope_theta", Some("base")),
    ];
    for (word, meant) in cases.into_iter().chain([
        ("xyz", None),
        ("br", None),
        ("", None),
        ("learning_rate", Some("lr")),
    ]) {
        assert_eq!(closest(word, &allowed), meant, "{word}");
    }
}

#[test]
fn paths_round_trip() {
    for text in [
        "model.pe.parts.1.base",
        "axes.\"model.pe\".0",
        "\"\".\"a\\\"b\\\\\\n\"",
    ] {
        let path = KeyPath::parse(text).expect("a path");
        assert_eq!(KeyPath::parse(&path.to_string()), Ok(path));
    }
}
