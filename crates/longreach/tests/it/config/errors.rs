//! Every mistake names its place, key, value, what is allowed and the fix. Most cases are in
//! `tests/cases/config.toml`; those whose input is computed are here.

use super::toy::{GOOD, axes, message, read, refused_as, with};
use config::source::{MAX_BYTES, Source};
use serde::Deserialize;
use std::collections::BTreeMap;
use support::exit::Exit;

/// A change of the good file, or another text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    replace: Option<[String; 2]>,
    #[serde(default)]
    axes: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    overrides: Vec<String>,
}

impl Case {
    fn input(&self) -> String {
        match (&self.replace, &self.axes, &self.text) {
            (Some([from, to]), None, None) => with(from, to),
            (None, Some(lines), None) => axes(lines),
            (None, None, Some(text)) => text.clone(),
            (None, None, None) => GOOD.to_owned(),
            _ => panic!("one of replace, axes and text"),
        }
    }

    fn title(&self) -> String {
        let what = match (&self.replace, &self.axes, &self.text) {
            (Some([from, to]), ..) => format!("{from:?} becomes {to:?}"),
            (_, Some(lines), _) => format!("[axes] {lines:?}"),
            (_, _, Some(text)) => format!("{text:?}"),
            _ => "the good file".to_owned(),
        };
        let overrides = self.overrides.iter().map(|text| format!(", {text}"));
        format!("## {what}{}", overrides.collect::<String>())
    }
}

#[test]
fn mistakes_are_explained() {
    let groups: BTreeMap<String, Vec<Case>> =
        toml::from_str(include_str!("../../cases/config.toml")).unwrap();
    for (group, cases) in groups {
        let shown = cases.iter().map(|case| {
            let overrides: Vec<&str> = case.overrides.iter().map(String::as_str).collect();
            let message = message(case.input().as_bytes(), &overrides);
            format!("{}\n\n{message}", case.title())
        });
        let shown: Vec<String> = shown.collect();
        insta::assert_snapshot!(group, shown.join("\n\n"));
    }
}

#[test]
fn mistakes_that_only_the_experiment_knows() {
    refused_as(
        with("n_heads = 4\n", "").replace("d_model = 64", "d_model = 60"),
        &[],
        r#"
error: `model.n_heads` must divide d_model = 60
 --> x.toml:4:1
  |
4 | [model]
  | ^^^^^^^
  = key: model.n_heads
  = value: 8 (default value)
  = allowed: 1, 2, 4, ...
  = help: set model.n_heads to 4
"#,
    );
}

#[test]
fn unclosed_lists_are_shown_where_they_begin() {
    refused_as(
        format!("{}x = [{}", " ".repeat(300), "1, ".repeat(300)),
        &[],
        r#"
error: not valid TOML: unclosed array, expected `]`
 --> x.toml:1:1205
  |
1 | ..., 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
  |                                            ^
  = key: x
"#,
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "whole messages beside their inputs")]
fn products_of_axes_are_bounded() {
    refused_as(
        format!("max_runs = 0\n{GOOD}"),
        &[],
        r#"
error: `max_runs` must be a whole number from 1 to 100000
 --> x.toml:1:12
  |
1 | max_runs = 0
  |            ^
  = key: max_runs
  = value: 0
  = allowed: a whole number from 1 to 100000
"#,
    );
    let list = (0..100)
        .map(|i| i.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let many = |n: usize| {
        axes(
            &(0..n)
                .map(|i| format!("\"train.x{i}\" = [{list}]\n"))
                .collect::<String>(),
        )
    };
    refused_as(
        many(12),
        &[],
        r#"
error: 2000000000000000000000000 runs are more than `max_runs` = 1000
  --> x.toml:19:1
   |
19 | [axes]
   | ^^^^^^
   = key: axes
   = allowed: at most 1000 runs
   = note: 100 (train.x0) x 100 (train.x1) x 100 (train.x2) x 100 (train.x3) x 100 (train.x4) x 100 (train.x5) x ... (6 more axes) x 2 (seeds)
   = help: shorten an axis, or set `max_runs` above the first table or by an override
"#,
    );
    refused_as(
        many(24),
        &[],
        r#"
error: over 10^38 runs are more than `max_runs` = 1000
  --> x.toml:19:1
   |
19 | [axes]
   | ^^^^^^
   = key: axes
   = allowed: at most 1000 runs
   = note: 100 (train.x0) x 100 (train.x1) x 100 (train.x2) x 100 (train.x3) x 100 (train.x4) x 100 (train.x5) x ... (18 more axes) x 2 (seeds)
   = help: shorten an axis, or set `max_runs` above the first table or by an override
"#,
    );
    refused_as(
        format!("max_runs = 1000000000\n{}", many(4)),
        &[],
        r#"
error: `max_runs` must be a whole number from 1 to 100000
 --> x.toml:1:12
  |
1 | max_runs = 1000000000
  |            ^^^^^^^^^^
  = key: max_runs
  = value: 1000000000
  = allowed: a whole number from 1 to 100000
"#,
    );
    refused_as(
        format!(
            "max_runs = 100000\npad = [{}0]\n{}",
            "0, ".repeat(499),
            many(2)
        ),
        &[],
        r#"
error: 10000 cells of 521 values each are too many to hold
  --> x.toml
   = key: axes
   = help: shorten an axis or the file
"#,
    );
}

#[test]
fn bytes_that_are_no_text() {
    refused_as(
        b"a = 1\nb = \"\xff\"\n",
        &[],
        r#"
error: the file is not UTF-8: byte 0xFF at byte offset 11, line 2
  --> x.toml
   = help: save it as UTF-8
"#,
    );
    refused_as(
        b"\xff\xfea\0=\0",
        &[],
        r#"
error: the file is UTF-16, not UTF-8 (byte order mark at byte 0)
  --> x.toml
   = help: save it as UTF-8
"#,
    );
    refused_as(
        b"a\0=\0",
        &[],
        r#"
error: the file holds a NUL byte at byte offset 1
  --> x.toml
   = help: is it UTF-16 or binary? save it as UTF-8
"#,
    );
    refused_as(
        vec![b'#'; MAX_BYTES + 1],
        &[],
        r#"
error: the file is larger than 1048576 bytes
  --> x.toml
   = help: a configuration is a short text; is this the right file?
"#,
    );
}

#[test]
fn marks_and_line_ends_are_accepted() {
    assert!(read(GOOD.replace('\n', "\r\n").as_bytes(), &[]).is_ok());
    assert!(read(format!("\u{FEFF}{GOOD}").as_bytes(), &[]).is_ok());
    let both = format!(
        "\u{FEFF}{}",
        with("steps = 100", "\tsteps = -1").replace('\n', "\r\n")
    );
    refused_as(
        both,
        &[],
        r#"
error: `train.steps` cannot be -1
  --> x.toml:13:10
   |
13 |  steps = -1
   |          ^^
   = key: train.steps
   = value: -1
   = allowed: a whole number, 0 to 4294967295
"#,
    );
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for name in ["alibi.toml", "rope.toml", "notes.txt"] {
        std::fs::write(folder.path().join(name), GOOD).expect("a scratch file");
    }
    let message = |path: &std::path::Path| {
        let error = Source::read(path).expect_err("a mistake must be refused");
        assert_eq!(error.exit, Exit::Config);
        format!("error: {error}").replace(&folder.path().display().to_string(), "DIR")
    };
    assert!(Source::read(&folder.path().join("rope.toml")).is_ok());
    let missing = "error: no such file\n  --> DIR/rop.toml\n   = help: configurations in DIR: \
                   rope.toml, alibi.toml";
    assert_eq!(message(&folder.path().join("rop.toml")), missing);
    let misspelt = "error: no such file\n  --> DIR/quickstrt\n   = help: did you mean \
                    `quickstart`, the config that comes with longreach?";
    assert_eq!(message(&folder.path().join("quickstrt")), misspelt);
    // `rope` is like no config that comes with longreach, `copy` is one: its file lies here all the
    // same.
    std::fs::write(folder.path().join("copy.toml"), GOOD).expect("a scratch file");
    for name in ["rope", "copy"] {
        let unended = format!(
            "error: no such file\n  --> DIR/{name}\n   = help: did you mean DIR/{name}.toml?"
        );
        assert_eq!(message(&folder.path().join(name)), unended);
    }
    std::fs::remove_file(folder.path().join("copy.toml")).expect("a scratch file");
    let nowhere = "error: no such file\n  --> DIR/no/x.toml\n   = help: there is no folder DIR/no";
    assert_eq!(message(&folder.path().join("no/x.toml")), nowhere);
    let given = "error: this is a folder, not a configuration file\n  --> DIR\n   = help: \
                 configurations in DIR: alibi.toml, rope.toml";
    assert_eq!(message(folder.path()), given);
}
