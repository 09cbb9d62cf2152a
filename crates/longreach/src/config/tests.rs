//! Every mistake is told with its place, key, value, what is allowed and the fix; and no input
//! brings the reader down.

#![allow(dead_code, reason = "the toy types are read into, not read")]

use super::axes::{Cell, expand};
use super::diagnose::{Diagnostic, closest, normalise};
use super::source::{KeyPath, MAX_BYTES, Source};
use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use std::fmt;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toy {
    name: String,
    #[serde(default)]
    seeds: Vec<u64>,
    model: Model,
    train: Train,
    #[serde(default)]
    eval: Vec<Eval>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    d_model: usize,
    #[serde(default = "eight")]
    n_heads: usize,
    pe: Encoding,
}

fn eight() -> usize {
    8
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Train {
    steps: u32,
    lr: f64,
    #[serde(default)]
    compile: bool,
    #[serde(default)]
    betas: Option<[f64; 2]>,
    #[serde(default)]
    schedule: Schedule,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Schedule {
    #[default]
    Cosine,
    Constant,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Eval {
    test_len: Vec<u32>,
}

#[derive(Debug)]
enum Encoding {
    Nope(Nope),
    Rope(Rope),
    Alibi(Alibi),
    Stack(Stack),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nope {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rope {
    #[serde(default)]
    base: f64,
    #[serde(default)]
    layout: Option<String>,
    #[serde(default)]
    rotary_dim: Option<usize>,
    #[serde(default)]
    scaling: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alibi {
    #[serde(default)]
    slopes: Vec<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stack {
    parts: Vec<Encoding>,
}

const KINDS: &[&str] = &["nope", "rope", "alibi", "stack"];

/// Streams: `kind` first, the rest straight into the strict struct, so that paths stay known.
impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tagged;
        impl<'de> Visitor<'de> for Tagged {
            type Value = Encoding;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with `kind`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Encoding, A::Error> {
                if map.next_key::<String>()?.as_deref() != Some("kind") {
                    return Err(de::Error::missing_field("kind"));
                }
                let kind = map.next_value::<String>()?;
                let rest = MapAccessDeserializer::new(map);
                match kind.as_str() {
                    "nope" => Nope::deserialize(rest).map(Encoding::Nope),
                    "rope" => Rope::deserialize(rest).map(Encoding::Rope),
                    "alibi" => Alibi::deserialize(rest).map(Encoding::Alibi),
                    "stack" => Stack::deserialize(rest).map(Encoding::Stack),
                    other => Err(de::Error::unknown_variant(other, KINDS)),
                }
            }
        }
        deserializer.deserialize_map(Tagged)
    }
}

const GOOD: &str = r#"name = "toy"
seeds = [0, 1]

[model]
d_model = 64
n_heads = 4

[model.pe]
base = 1e4
kind = "rope"

[train]
steps = 100
lr = 1e-3

[[eval]]
test_len = [64, 128]
"#;

fn cells(text: &[u8], overrides: &[&str]) -> Result<Vec<Cell>, Diagnostic> {
    let mut source = Source::parse("x.toml", text)?;
    for given in overrides {
        source.apply_override(given)?;
    }
    let seeds = source
        .get("seeds")
        .and_then(toml::Value::as_array)
        .map_or(1, Vec::len);
    expand(&source, seeds)
}

fn read(text: &[u8], overrides: &[&str]) -> Result<Vec<(Cell, Toy)>, Diagnostic> {
    let mut out = Vec::new();
    for cell in cells(text, overrides)? {
        let toy: Toy = cell.deserialize()?;
        if toy.model.n_heads == 0 || !toy.model.d_model.is_multiple_of(toy.model.n_heads) {
            let problem = format!("must divide d_model = {}", toy.model.d_model);
            return Err(cell
                .error(
                    "model.n_heads",
                    &problem,
                    "1, 2, 4, ...",
                    "set model.n_heads to 4",
                )
                .with_value(toy.model.n_heads));
        }
        out.push((cell, toy));
    }
    Ok(out)
}

#[track_caller]
fn told(text: impl AsRef<[u8]>, overrides: &[&str], expected: &str) {
    let error = read(text.as_ref(), overrides).expect_err("a mistake must be refused");
    assert_eq!(error.exit, 2);
    let shown = error
        .to_string()
        .lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(shown, expected.trim_matches('\n'));
}

/// The good file with one text replaced.
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the good file has no {from:?}");
    GOOD.replacen(from, to, 1)
}

/// The good file with `[axes]` after it.
fn axes(lines: &str) -> String {
    format!("{GOOD}\n[axes]\n{lines}\n")
}

#[test]
fn unknown_keys() {
    told(
        with("base = 1e4", "tehta = 1e4"),
        &[],
        r#"
error: unknown key `tehta` in `model.pe`
 --> x.toml:9:1
  |
9 | tehta = 1e4
  | ^^^^^
  = key: model.pe.tehta
  = allowed: base, layout, rotary_dim, scaling
  = help: did you mean `base`?
"#,
    );
    told(
        with("steps = 100", "setps = 100"),
        &[],
        r#"
error: unknown key `setps` in `train`
  --> x.toml:13:1
   |
13 | setps = 100
   | ^^^^^
   = key: train.setps
   = allowed: steps, lr, compile, betas, schedule
   = help: did you mean `steps`?
"#,
    );
    told(
        with("[model.pe]", "[model.p]"),
        &[],
        r#"
error: unknown key `p` in `model`
 --> x.toml:8:8
  |
8 | [model.p]
  |        ^
  = key: model.p
  = allowed: d_model, n_heads, pe
"#,
    );
    let parts = "kind = \"stack\"\n[[model.pe.parts]]\nkind = \"alibi\"\n[[model.pe.parts]]\nkind \
                 = \"rope\"\nbsae = 1";
    told(
        with("base = 1e4\nkind = \"rope\"", parts),
        &[],
        r#"
error: unknown key `bsae` in `model.pe.parts.1`
  --> x.toml:14:1
   |
14 | bsae = 1
   | ^^^^
   = key: model.pe.parts.1.bsae
   = allowed: base, layout, rotary_dim, scaling
   = help: did you mean `base`?
"#,
    );
}

#[test]
fn repeated_keys() {
    told(
        with("lr = 1e-3", "lr = 1e-3\nsteps = 2"),
        &[],
        r#"
error: `steps` is set twice
  --> x.toml:15:1
   |
15 | steps = 2
   | ^^^^^
   = key: train.steps
   = note: `train.steps` was first set in line 13
   = help: keep one of the two
"#,
    );
    told(
        with("[train]", "[model.pe]\nscaling = 1\n[train]"),
        &[],
        r#"
error: `pe` is set twice
  --> x.toml:12:8
   |
12 | [model.pe]
   |        ^^
   = key: model.pe
   = note: `model.pe` was first set in line 8
   = help: keep one of the two
"#,
    );
    told(
        "[[p]]\na = 1\n[[p]]\na = 1\na = 2",
        &[],
        r#"
error: `a` is set twice
 --> x.toml:5:1
  |
5 | a = 2
  | ^
  = key: p.1.a
  = note: `p.1.a` was first set in line 4
  = help: keep one of the two
"#,
    );
    told(
        "x = { a = 1, a = 2 }\n",
        &[],
        r#"
error: `a` is set twice
 --> x.toml:1:14
  |
1 | x = { a = 1, a = 2 }
  |              ^
  = help: keep one of the two
"#,
    );
}

#[test]
fn wrong_types() {
    told(
        with("base = 1e4", "base = \"10000\""),
        &[],
        r#"
error: `model.pe.base` must be a number, not a text
 --> x.toml:9:8
  |
9 | base = "10000"
  |        ^^^^^^^
  = key: model.pe.base
  = value: "10000"
  = allowed: a number
  = help: remove the quotes: base = 10000
"#,
    );
    let parts = "kind = \"stack\"\nparts = [\n  { kind = \"alibi\" },\n  { base = \"big\", kind = \
                 \"rope\" },\n]";
    told(
        with("base = 1e4\nkind = \"rope\"", parts),
        &[],
        r#"
error: `model.pe.parts.1.base` must be a number, not a text
  --> x.toml:12:12
   |
12 |   { base = "big", kind = "rope" },
   |            ^^^^^
   = key: model.pe.parts.1.base
   = value: "big"
   = allowed: a number
"#,
    );
    told(
        with("steps = 100", "steps = 1e2"),
        &[],
        r#"
error: `train.steps` must be a whole number, not a decimal number
  --> x.toml:13:9
   |
13 | steps = 1e2
   |         ^^^
   = key: train.steps
   = value: 100.0
   = allowed: a whole number, 0 to 4294967295
   = help: write steps = 100
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e-3\nbetas = [0.9]"),
        &[],
        r#"
error: `train.betas` has the wrong length 1
  --> x.toml:15:9
   |
15 | betas = [0.9]
   |         ^^^^^
   = key: train.betas
   = value: [0.9]
   = allowed: a list of 2
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e-3\nbetas = [0.9, 0.9, 0.9]"),
        &[],
        r#"
error: `train.betas` has the wrong length 3
  --> x.toml:15:9
   |
15 | betas = [0.9, 0.9, 0.9]
   |         ^^^^^^^^^^^^^^^
   = key: train.betas
   = value: [0.9, 0.9, 0.9]
   = allowed: a shorter list
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e-3\ncompile = \"True\""),
        &[],
        r#"
error: `train.compile` must be true or false, not a text
  --> x.toml:15:11
   |
15 | compile = "True"
   |           ^^^^^^
   = key: train.compile
   = value: "True"
   = allowed: true or false
   = help: write compile = true
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e-3\nschedule = 3"),
        &[],
        r#"
error: `train.schedule` must be a text, not a whole number
  --> x.toml:15:12
   |
15 | schedule = 3
   |            ^
   = key: train.schedule
   = value: 3
   = allowed: a text
   = help: write schedule = "3"
"#,
    );
    told(
        with("seeds = [0, 1]", "seeds = 3"),
        &[],
        r#"
error: `seeds` must be a list, not a whole number
 --> x.toml:2:9
  |
2 | seeds = 3
  |         ^
  = key: seeds
  = value: 3
  = allowed: a list
  = help: write a list: seeds = [3]
"#,
    );
    told(
        with("seeds = [0, 1]", "seeds = [0, \"1\"]"),
        &[],
        r#"
error: `seeds.1` must be a whole number, not a text
 --> x.toml:2:13
  |
2 | seeds = [0, "1"]
  |             ^^^
  = key: seeds.1
  = value: "1"
  = allowed: a whole number, 0 or more
  = help: remove the quotes: 1
"#,
    );
    told(
        with("name = \"toy\"", "name = 2026-01-01"),
        &[],
        r#"
error: `name` is a date
 --> x.toml:1:8
  |
1 | name = 2026-01-01
  |        ^^^^^^^^^^
  = key: name
  = value: 2026-01-01
  = allowed: numbers, texts, true, false, lists and tables
  = help: write "2026-01-01" for a text
"#,
    );
    told(
        with("[model.pe]\nbase = 1e4\nkind = \"rope\"", "pe = \"rope\""),
        &[],
        r#"
error: `model.pe` must be a table with `kind`, not a text
 --> x.toml:8:6
  |
8 | pe = "rope"
  |      ^^^^^^
  = key: model.pe
  = value: "rope"
  = allowed: a table with `kind`
  = help: write pe = { kind = "rope" }
"#,
    );
}

#[test]
fn missing_keys_and_unknown_kinds() {
    told(
        with("steps = 100\n", ""),
        &[],
        r#"
error: missing key `steps` in `train`
  --> x.toml:12:1
   |
12 | [train]
   | ^^^^^^^
   = key: train.steps
   = help: add `steps = ...` to `train`
"#,
    );
    told(
        with("[train]\nsteps = 100\nlr = 1e-3\n", ""),
        &[],
        r#"
error: missing key `train` in the configuration
  --> x.toml
   = key: train
   = help: add `train = ...` above the first table, or a table [train]
"#,
    );
    told(
        with("kind = \"rope\"", "knid = \"rope\""),
        &[],
        r#"
error: missing key `kind` in `model.pe`
 --> x.toml:8:1
  |
8 | [model.pe]
  | ^^^^^^^^^^
  = key: model.pe.kind
  = help: is `knid` meant to be `kind`?
"#,
    );
    told(
        with("kind = \"rope\"", "kind = \"roep\""),
        &[],
        r#"
error: unknown kind `roep` in `model.pe`
  --> x.toml:10:8
   |
10 | kind = "roep"
   |        ^^^^^^
   = key: model.pe.kind
   = value: "roep"
   = allowed: nope, rope, alibi, stack
   = help: did you mean `rope`?
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e-3\nschedule = \"cosin\""),
        &[],
        r#"
error: `train.schedule` cannot be `cosin`
  --> x.toml:15:12
   |
15 | schedule = "cosin"
   |            ^^^^^^^
   = key: train.schedule
   = value: "cosin"
   = allowed: cosine, constant
   = help: did you mean `cosine`?
"#,
    );
}

#[test]
fn numbers_out_of_range() {
    told(
        with("steps = 100", "steps = -1"),
        &[],
        r#"
error: `train.steps` cannot be -1
  --> x.toml:13:9
   |
13 | steps = -1
   |         ^^
   = key: train.steps
   = value: -1
   = allowed: a whole number, 0 to 4294967295
"#,
    );
    told(
        with("steps = 100", "steps = 5000000000"),
        &[],
        r#"
error: `train.steps` cannot be 5000000000
  --> x.toml:13:9
   |
13 | steps = 5000000000
   |         ^^^^^^^^^^
   = key: train.steps
   = value: 5000000000
   = allowed: a whole number, 0 to 4294967295
"#,
    );
    told(
        with("steps = 100", "steps = 99999999999999999999"),
        &[],
        r#"
error: this whole number is too large
  --> x.toml:13:9
   |
13 | steps = 99999999999999999999
   |         ^^^^^^^^^^^^^^^^^^^^
   = key: train.steps
   = value: 99999999999999999999
   = help: whole numbers go from -9223372036854775808 to 9223372036854775807
"#,
    );
    told(
        with("lr = 1e-3", "lr = nan"),
        &[],
        r#"
error: `train.lr` is not a finite number
  --> x.toml:14:6
   |
14 | lr = nan
   |      ^^^
   = key: train.lr
   = value: nan
   = allowed: numbers from -3.4e38 to 3.4e38
"#,
    );
    told(
        with("[64, 128]", "[64, -inf]"),
        &[],
        r#"
error: `eval.0.test_len.1` is not a finite number
  --> x.toml:17:17
   |
17 | test_len = [64, -inf]
   |                 ^^^^
   = key: eval.0.test_len.1
   = value: -inf
   = allowed: numbers from -3.4e38 to 3.4e38
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e300"),
        &[],
        r#"
error: `train.lr` is too large
  --> x.toml:14:6
   |
14 | lr = 1e300
   |      ^^^^^
   = key: train.lr
   = value: 1e300
   = allowed: numbers from -3.4e38 to 3.4e38
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e999"),
        &[],
        r#"
error: this number is too large
  --> x.toml:14:6
   |
14 | lr = 1e999
   |      ^^^^^
   = key: train.lr
   = value: 1e999
   = help: write a finite number
"#,
    );
}

#[test]
fn mistakes_that_only_the_experiment_knows() {
    told(
        with("n_heads = 4", "n_heads = 5"),
        &[],
        r#"
error: `model.n_heads` must divide d_model = 64
 --> x.toml:6:11
  |
6 | n_heads = 5
  |           ^
  = key: model.n_heads
  = value: 5
  = allowed: 1, 2, 4, ...
  = help: set model.n_heads to 4
"#,
    );
    told(
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
    told(
        GOOD,
        &["model.n_heads=3"],
        r#"
error: `model.n_heads` must divide d_model = 64
  --> command line: model.n_heads=3
   = key: model.n_heads
   = value: 3
   = allowed: 1, 2, 4, ...
   = help: set model.n_heads to 4
"#,
    );
    told(
        axes("\"model.n_heads\" = [4, 5]\n\"train.lr\" = [1, 2]"),
        &[],
        r#"
error: `model.n_heads` must divide d_model = 64
  --> x.toml:20:23
   |
20 | "model.n_heads" = [4, 5]
   |                       ^
   = key: model.n_heads
   = value: 5
   = allowed: 1, 2, 4, ...
   = note: from axis `model.n_heads`, value 2 of 2
   = note: in the run with model.n_heads = 5, train.lr = 1
   = help: set model.n_heads to 4
"#,
    );
}

#[test]
fn syntax() {
    told(
        "a 1\n",
        &[],
        r#"
error: not valid TOML: key with no value, expected `=`
 --> x.toml:1:3
  |
1 | a 1
  |   ^
"#,
    );
    told(
        "x = [1,\n",
        &[],
        r#"
error: not valid TOML: unclosed array, expected `]`
 --> x.toml:1:8
  |
1 | x = [1,
  |        ^
  = key: x
"#,
    );
    told(
        with("name = \"toy\"", "name = toy"),
        &[],
        r#"
error: `toy` is not a TOML value
 --> x.toml:1:8
  |
1 | name = toy
  |        ^^^
  = key: name
  = value: toy
  = help: texts need quotes: "text"
"#,
    );
    told(
        with("name = \"toy\"", "name = \"toy"),
        &[],
        r#"
error: not valid TOML: invalid basic string, expected `"`
 --> x.toml:1:12
  |
1 | name = "toy
  |            ^
  = key: name
  = help: close the text with " on the line it began
"#,
    );
    told(
        with("lr = 1e-3", "lr = 1e-3\ncompile = True"),
        &[],
        r#"
error: `True` is not a TOML value
  --> x.toml:15:11
   |
15 | compile = True
   |           ^^^^
   = key: train.compile
   = value: True
   = help: write true or false in small letters
"#,
    );
    told(
        "a = 1\rb = 2",
        &[],
        r#"
error: a carriage return without a line feed
 --> x.toml:1:7
  |
1 | a = 1 b = 2
  |       ^
  = key: a
  = help: save the file with Unix or Windows line ends
"#,
    );
    told(
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
fn axes_that_cannot_be() {
    told(
        axes("\"train.lr\" = []"),
        &[],
        r#"
error: axis `train.lr` has no values
  --> x.toml:20:14
   |
20 | "train.lr" = []
   |              ^^
   = key: axes."train.lr"
   = value: []
   = allowed: a list of one value or more
   = help: remove the axis or give it values
"#,
    );
    told(
        axes("\"train.lr\" = 1"),
        &[],
        r#"
error: axis `train.lr` must be a list, not a whole number
  --> x.toml:20:14
   |
20 | "train.lr" = 1
   |              ^
   = key: axes."train.lr"
   = value: 1
   = allowed: a list of one value or more
   = help: write "train.lr" = [1]
"#,
    );
    told(
        axes("train.lr = [1, 2]"),
        &[],
        r#"
error: axis `train` must be a list, not a table
  --> x.toml:20:1
   |
20 | train.lr = [1, 2]
   | ^^^^^
   = key: axes.train
   = value: { lr = [1, 2] }
   = allowed: a list of one value or more
   = help: quote the whole key: "train.lr" = [...]
"#,
    );
    told(
        axes("seeds = [[1], [2]]"),
        &[],
        r#"
error: `seeds` cannot be an axis
  --> x.toml:20:1
   |
20 | seeds = [[1], [2]]
   | ^^^^^
   = key: axes.seeds
   = help: every cell is run with every seed of `seeds`
"#,
    );
    told(
        axes("\"train.lr\" = [1e-3, 0.001]"),
        &[],
        r#"
error: axis `train.lr` holds 0.001 twice
  --> x.toml:20:21
   |
20 | "train.lr" = [1e-3, 0.001]
   |                     ^^^^^
   = key: axes."train.lr".1
   = value: 0.001
   = note: values 1 and 2 are equal
   = help: keep one of the two
"#,
    );
    told(
        axes("\"train..lr\" = [1]"),
        &[],
        r#"
error: axis `train..lr` is not a dotted key: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`
  --> x.toml:20:1
   |
20 | "train..lr" = [1]
   | ^^^^^^^^^^^
   = key: axes."train..lr"
   = help: name the key that varies, such as "train.lr"
"#,
    );
    told(
        axes("\"train.lr\" = [1]\n'train.\"lr\"' = [2]"),
        &[],
        r#"
error: axis `train."lr"` is the same as axis `train.lr`
  --> x.toml:21:1
   |
21 | 'train."lr"' = [2]
   | ^^^^^^^^^^^^
   = key: axes."train.\"lr\""
   = help: keep one of the two
"#,
    );
    told(
        axes("\"model.pe.base\" = [1, 2]\n\"model.pe\" = [{ kind = \"alibi\" }]"),
        &[],
        r#"
error: axis `model.pe` would overwrite the values of axis `model.pe.base`
  --> x.toml:21:1
   |
21 | "model.pe" = [{ kind = "alibi" }]
   | ^^^^^^^^^^
   = key: axes."model.pe"
   = help: put `model.pe` before `model.pe.base`, or keep one of the two
"#,
    );
    told(
        axes("\"eval.3.test_len\" = [[1]]"),
        &[],
        r#"
error: `eval.3.test_len` cannot be set: `eval` is a list of 1
  --> x.toml:20:1
   |
20 | "eval.3.test_len" = [[1]]
   | ^^^^^^^^^^^^^^^^^
   = key: axes."eval.3.test_len"
   = note: an axis sets its key in the tables of the file
   = help: its only element is number 0
"#,
    );
    told(
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
    told(
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
    told(
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
    told(
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
    told(
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
fn mistakes_inside_axis_values() {
    told(
        axes("\"model.pe\" = [{ kind = \"alibi\" }, { kind = \"rope\", tehta = 2 }]"),
        &[],
        r#"
error: unknown key `tehta` in `model.pe`
  --> x.toml:20:52
   |
20 | "model.pe" = [{ kind = "alibi" }, { kind = "rope", tehta = 2 }]
   |                                                    ^^^^^
   = key: model.pe.tehta
   = allowed: base, layout, rotary_dim, scaling
   = note: from axis `model.pe`, value 2 of 2
   = help: did you mean `base`?
"#,
    );
    told(
        axes(
            "\"model.pe\" = [{ kind = \"rope\" }, { kind = \"alibi\" }]\n\"model.pe.base\" = [1, \
             2]",
        ),
        &[],
        r#"
error: unknown key `base` in `model.pe`
  --> x.toml:21:20
   |
21 | "model.pe.base" = [1, 2]
   |                    ^
   = key: model.pe.base
   = allowed: slopes
   = note: from axis `model.pe.base`, value 1 of 2
   = help: axis `model.pe.base` does not fit every value of axis `model.pe`: write its values inside those that have the key
"#,
    );
    told(
        axes("\"model.pe.kind\" = [\"rope\", \"alibi\"]"),
        &[],
        r#"
error: unknown key `base` in `model.pe`
 --> x.toml:9:1
  |
9 | base = 1e4
  | ^^^^
  = key: model.pe.base
  = allowed: slopes
  = help: `kind` is set by an axis; use whole tables: axes."model.pe" = [{ kind = "alibi" }, ...]
"#,
    );
}

#[test]
fn overrides_that_cannot_be() {
    told(
        GOOD,
        &["train.steps"],
        r#"
error: an override needs `=` between key and value
  --> command line: train.steps
   = help: write key=value, such as train.steps=100
"#,
    );
    told(
        GOOD,
        &["=3"],
        r#"
error: an override needs a key before `=`
  --> command line: =3
   = help: write key=value, such as train.steps=100
"#,
    );
    told(
        GOOD,
        &["train.steps="],
        r#"
error: the value of `train.steps` is missing
  --> command line: train.steps=
   = help: write key="" for an empty text
"#,
    );
    told(
        GOOD,
        &["train.setps=3"],
        r#"
error: unknown key `setps` in `train`
  --> command line: train.setps=3
   = key: train.setps
   = allowed: steps, lr, compile, betas, schedule
   = help: did you mean `steps`?
"#,
    );
    told(
        GOOD,
        &["train.steps=abc"],
        r#"
error: `train.steps` must be a whole number, not a text
  --> command line: train.steps=abc
   = key: train.steps
   = value: "abc"
   = allowed: a whole number, 0 to 4294967295
"#,
    );
    told(
        GOOD,
        &["modl.pe.base=3"],
        r#"
error: unknown key `modl` at the top level
  --> command line: modl.pe.base=3
   = key: modl
   = allowed: name, seeds, model, train, eval
   = help: did you mean `model`?
"#,
    );
    told(
        GOOD,
        &["model.pe.kind=alibi"],
        r#"
error: unknown key `base` in `model.pe`
 --> x.toml:9:1
  |
9 | base = 1e4
  | ^^^^
  = key: model.pe.base
  = allowed: slopes
  = help: `model.pe.kind=alibi` sets `kind` only; replace the whole table: model.pe={kind="alibi"}
"#,
    );
    told(
        GOOD,
        &["model.pe.kind=ropee"],
        r#"
error: unknown kind `ropee` in `model.pe`
  --> command line: model.pe.kind=ropee
   = key: model.pe.kind
   = value: "ropee"
   = allowed: nope, rope, alibi, stack
   = help: did you mean `rope`?
"#,
    );
    told(
        GOOD,
        &["model.pe={kind=\"alibi\", slops=[1]}"],
        r#"
error: unknown key `slops` in `model.pe`
  --> command line: model.pe={kind="alibi", slops=[1]}
   = key: model.pe.slops
   = allowed: slopes
   = help: did you mean `slopes`?
"#,
    );
    told(
        GOOD,
        &["eval[0].test_len=[3]"],
        r#"
error: the key `eval[0].test_len` is not valid: unexpected content, expected nothing
  --> command line: eval[0].test_len=[3]
   = help: elements of a list are named by their number: parts.0.base
"#,
    );
    told(
        GOOD,
        &["eval.4.test_len=[3]"],
        r#"
error: `eval.4.test_len` cannot be set: `eval` is a list of 1
  --> command line: eval.4.test_len=[3]
   = key: eval.4.test_len
   = help: its only element is number 0
"#,
    );
    told(
        GOOD,
        &["eval.0.test_len=[3, \"a\"]"],
        r#"
error: `eval.0.test_len.1` must be a whole number, not a text
  --> command line: eval.0.test_len=[3, "a"]
   = key: eval.0.test_len.1
   = value: "a"
   = allowed: a whole number, 0 to 4294967295
"#,
    );
    told(
        GOOD,
        &["train.steps.x=3"],
        r#"
error: `train.steps.x` cannot be set: `train.steps` is a whole number (100)
  --> command line: train.steps.x=3
   = key: train.steps.x
   = help: replace it by a table: train.steps={...}
"#,
    );
    told(
        GOOD,
        &["seeds=0,1"],
        r#"
error: the value of `seeds` looks like a list without brackets
  --> command line: seeds=0,1
   = help: write [0,1], or "0,1" for a text
"#,
    );
    told(
        GOOD,
        &["seeds=[0,1"],
        r#"
error: the value of `seeds` is neither a TOML value nor a plain word: unclosed array, expected `]`
  --> command line: seeds=[0,1
   = help: quote the whole argument for the shell: 'model.pe={kind="alibi"}'
"#,
    );
    told(
        GOOD,
        &["train.lr=nan"],
        r#"
error: `train.lr` is not a finite number
  --> command line: train.lr=nan
   = key: train.lr
   = value: nan
   = allowed: numbers from -3.4e38 to 3.4e38
"#,
    );
    told(
        GOOD,
        &["train.steps=99999999999999999999"],
        r#"
error: the value of `train.steps` is too large: 99999999999999999999
  --> command line: train.steps=99999999999999999999
   = help: whole numbers go up to 9223372036854775807, others to 1e308
"#,
    );
    told(
        GOOD,
        &["axes.train.lr=[]"],
        r#"
error: axis `train.lr` has no values
  --> command line: axes.train.lr=[]
   = key: axes."train.lr"
   = value: []
   = allowed: a list of one value or more
   = help: remove the axis or give it values
"#,
    );
    told(
        GOOD,
        &["axes=3"],
        r#"
error: `axes` must be a table of lists
  --> command line: axes=3
   = key: axes
   = value: 3
   = help: write [axes] and below it "train.lr" = [1e-3, 3e-4]
"#,
    );
    let two = axes("\"model.pe\" = [{ kind = \"rope\", base = 1 }, { kind = \"rope\", base = 2 }]");
    told(
        &two,
        &["model.pe.base=5"],
        r#"
error: axis `model.pe` holds { kind = "rope", base = 5 } twice
  --> x.toml:20:44
   |
20 | "model.pe" = [{ kind = "rope", base = 1 }, { kind = "rope", base = 2 }]
   |                                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
   = key: axes."model.pe".1
   = value: { kind = "rope", base = 5 }
   = note: values 1 and 2 are equal
   = note: after the override model.pe.base=5 is applied to every value of the axis
   = help: keep one of the two
"#,
    );
    told(
        &two,
        &["model.pe.bse=5"],
        r#"
error: unknown key `bse` in `model.pe`
  --> command line: model.pe.bse=5
   = key: model.pe.bse
   = allowed: base, layout, rotary_dim, scaling
   = note: from axis `model.pe`, value 1 of 2
   = help: did you mean `base`?
"#,
    );
    told(
        &two,
        &["model.pe.base.x=5"],
        r#"
error: `model.pe.base.x` cannot be set: `model.pe.base` is a whole number (1)
  --> command line: model.pe.base.x=5
   = key: model.pe.base.x
   = note: in value 1 of 2 of axis `model.pe`
   = help: replace it by a table: model.pe.base={...}
"#,
    );
    told(
        &two,
        &["axes.\"model.pe\".2.base=5"],
        r#"
error: `axes."model.pe".2.base` cannot be set: `axes."model.pe"` is a list of 2
  --> command line: axes."model.pe".2.base=5
   = key: axes."model.pe".2.base
   = help: elements are numbered from 0 to 1
"#,
    );
}

#[test]
fn bytes_that_are_no_text() {
    told(
        "",
        &[],
        r#"
error: the file is empty
  --> x.toml
   = help: write at least one `key = value`
"#,
    );
    told(
        " \n# only a comment\n",
        &[],
        r#"
error: the file is empty
  --> x.toml
   = help: write at least one `key = value`
"#,
    );
    told(
        b"a = 1\nb = \"\xff\"\n",
        &[],
        r#"
error: the file is not UTF-8: byte 0xFF at byte offset 11, line 2
  --> x.toml
   = help: save it as UTF-8
"#,
    );
    told(
        b"\xff\xfea\0=\0",
        &[],
        r#"
error: the file is UTF-16, not UTF-8 (byte order mark at byte 0)
  --> x.toml
   = help: save it as UTF-8
"#,
    );
    told(
        b"a\0=\0",
        &[],
        r#"
error: the file holds a NUL byte at byte offset 1
  --> x.toml
   = help: is it UTF-16 or binary? save it as UTF-8
"#,
    );
    told(
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
    told(
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
    let told = |path: &std::path::Path| {
        let error = Source::read(path).expect_err("a mistake must be refused");
        assert_eq!(error.exit, 2);
        error
            .to_string()
            .replace(&folder.path().display().to_string(), "DIR")
    };
    assert!(Source::read(&folder.path().join("rope.toml")).is_ok());
    let missing = "error: no such file\n  --> DIR/rop.toml\n   = help: configurations in DIR: \
                   rope.toml, alibi.toml";
    assert_eq!(told(&folder.path().join("rop.toml")), missing);
    let nowhere = "error: no such file\n  --> DIR/no/x.toml\n   = help: there is no folder DIR/no";
    assert_eq!(told(&folder.path().join("no/x.toml")), nowhere);
    let given = "error: this is a folder, not a configuration file\n  --> DIR\n   = help: \
                 configurations in DIR: alibi.toml, rope.toml";
    assert_eq!(told(folder.path()), given);
}

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
        ["rope(base=9)", "rope(base=2)"]
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

/// Deterministic numbers for the test below.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

const TOKENS: &[&str] = &[
    "=",
    ".",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\"\"\"",
    "\n",
    "\r",
    "\t",
    ",",
    "#",
    "nan",
    "-inf",
    "1e400",
    "-1",
    "0",
    "99999999999999999999",
    "true",
    "[axes]\n",
    "[[",
    "]]",
    "kind",
    "\"model.pe\" = [",
    "\u{FEFF}",
    "\u{0}",
    "\u{202E}",
    "é",
    "漢",
    "\u{1F600}",
    "\\u0000",
    "2026-01-01",
    "seeds",
    "axes.",
    ".0.",
    "max_runs = 3\n",
    "model.pe",
    "{kind=\"rope\"}",
    "[model]\n",
    "x",
    "[1,2]",
];

fn mutate(random: &mut Random, text: &mut Vec<u8>) {
    let (from, to) = (random.below(text.len() + 1), random.below(text.len() + 1));
    let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 12));
    match random.below(5) {
        0 => drop(text.drain(from..to)),
        1 => drop(text.splice(to..to, text[from..to].to_vec())),
        2 if from < text.len() => text[from] = random.below(256) as u8,
        _ => drop(text.splice(from..from, TOKENS[random.below(TOKENS.len())].bytes())),
    }
}

/// Mutates the file and the overrides; whatever comes of it is an answer or a diagnostic with the
/// right exit code.
fn storm(seed: u64, rounds: usize) -> usize {
    let full = axes(
        "\"model.pe\" = [{ kind = \"rope\", base = 1 }, { kind = \"alibi\" }]\n\"train.lr\" = \
         [1e-3, 3e-4]\n\"train.steps\" = [1, 2]",
    );
    let given = [
        "model.pe.base=5",
        "axes.train.lr=[1,2]",
        "model.pe={kind=\"nope\"}",
        "eval.0.test_len=[3]",
        "train.steps=7",
    ];
    let mut random = Random(seed);
    let mut refused = 0;
    for _ in 0..rounds {
        let mut text = full.clone().into_bytes();
        let mut arguments = Vec::new();
        for _ in 0..random.below(3) {
            let mut argument = given[random.below(given.len())].as_bytes().to_vec();
            (0..random.below(4)).for_each(|_| mutate(&mut random, &mut argument));
            arguments.push(String::from_utf8_lossy(&argument).into_owned());
        }
        (0..random.below(4)).for_each(|_| mutate(&mut random, &mut text));
        let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
        if let Err(error) = read(&text, &arguments) {
            refused += 1;
            let shown = error.to_string();
            assert!(shown.starts_with("error: ") && error.exit == 2, "{shown}");
            assert!(
                !shown.contains('\r') && !shown.contains('\u{202E}') && !shown.contains('\0'),
                "{shown:?}"
            );
        }
    }
    refused
}

#[test]
fn no_mutation_brings_the_reader_down() {
    let refused = storm(7, 3000);
    assert!((1000..3000).contains(&refused), "{refused} of 3000 refused");
    for end in 0..GOOD.len() {
        let _ = read(&GOOD.as_bytes()[..end], &[]);
    }
}

#[test]
fn bombs_are_refused_quickly() {
    let lines = |n: usize, line: fn(usize) -> String| (0..n).map(line).collect::<String>();
    let key = vec!["k"; 79].join(".");
    let bombs = [
        "[".repeat(MAX_BYTES),
        format!("a = {}", "{a=".repeat(300_000)),
        format!("{} = 1", vec!["a"; 400_000].join(".")),
        lines(100_000, |i| format!("k{i}=1\n")),
        lines(60_000, |i| format!("[t{i}]\n")),
        lines(6_000, |i| format!("t{i}.{}=1\n", vec!["a"; 78].join("."))),
        "a=[],".repeat(200_000),
        format!("a = [{}]", "1,".repeat(500_000)),
        lines(630, |i| format!("t{i}.{}=1\n", vec!["a"; 78].join("."))),
        format!("[{key}]\n{key} = {}1{}", "{k=".repeat(70), "}".repeat(70)),
        format!(
            "max_runs = 100000\na = [{}]\n[axes]\nx = [{}]",
            "1,".repeat(100_000),
            lines(60_000, |i| format!("{i},"))
        ),
        format!(
            "max_runs = 100000\n[axes]\n{}",
            lines(500, |i| format!("\"{}k{i}\" = [0]\n", "k.".repeat(60)))
        ),
        format!("name = \"{}\"", "x".repeat(1_000_000)),
        format!("{} = 1", "x".repeat(1_000_000)),
    ];
    let start = std::time::Instant::now();
    for bomb in bombs {
        let error = read(bomb.as_bytes(), &["a.b.c=1"]).expect_err("not a valid experiment");
        assert!(error.to_string().len() < 4000);
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Found by fuzzing: every key was in its range, and their product was not.
#[test]
fn batches_of_absurd_sizes_are_refused() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("x.toml");
    std::fs::write(
        &path,
        include_str!("../../../../fuzz/seeds/config/huge-products.toml"),
    )
    .expect("a scratch file");
    let error = crate::plan::planner::plan(&path, &[])
        .err()
        .expect("a refusal");
    assert_eq!(
        (error.exit, error.key.as_deref()),
        (2, Some("train.batch_size"))
    );
}

/// Found beside fuzzing: the line was lost, and the value called a default.
#[test]
fn an_element_of_a_task_s_list_keeps_its_line() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("x.toml");
    std::fs::write(
        &path,
        include_str!("../../../../fuzz/seeds/config/text-bad-glob.toml"),
    )
    .expect("a scratch file");
    let error = crate::plan::planner::plan(&path, &[])
        .err()
        .expect("a refusal");
    assert_eq!(
        (error.key.as_deref(), error.value.as_deref()),
        (Some("task.files.0"), Some("\"[\""))
    );
    assert!(
        matches!(error.place, super::diagnose::Place::Line { line: 4, .. }),
        "{error}"
    );
}

/// Found beside fuzzing: five kilobytes of text asked for 26 million encodings, which took 4.6 GB.
#[test]
fn more_evaluations_than_memory_are_refused() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("x.toml");
    let list = |numbers: std::ops::Range<u32>| {
        numbers
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut text = include_str!("../../../../fuzz/seeds/config/least.toml")
        .replace("[6, 12]", &format!("[{}]", list(1..1001)));
    for base in 2..27 {
        text += &format!("[[eval.variants]]\nname = \"v{base}\"\nset = {{ base = {base}.0 }}\n");
    }
    text += &format!("[axes]\n\"train.steps\" = [{}]\n", list(1..1001));
    std::fs::write(&path, text).expect("a scratch file");
    let error = crate::plan::planner::plan(&path, &[])
        .err()
        .expect("a refusal");
    assert_eq!(
        (error.key.as_deref(), error.exit),
        (Some("eval.test_lens"), 2),
        "{error}"
    );
    assert!(error.problem.contains("1000000 evaluations"), "{error}");
}
