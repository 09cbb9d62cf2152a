//! A small strict schema, its good file, and how a test reads a variation of it.

#![expect(dead_code, reason = "the toy types are read into, not read")]

use config::axes::{Cell, expand};
use config::diagnostic::Diagnostic;
use config::source::Source;
use serde::Deserialize;
use support::exit::Exit;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toy {
    pub name: String,
    #[serde(default)]
    pub seeds: Vec<u64>,
    pub model: Model,
    pub train: Train,
    #[serde(default)]
    pub eval: Vec<Eval>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub d_model: usize,
    #[serde(default = "eight")]
    pub n_heads: usize,
    pub pe: Encoding,
}

fn eight() -> usize {
    8
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    pub steps: u32,
    pub lr: f64,
    #[serde(default)]
    compile: bool,
    #[serde(default)]
    betas: Option<[f64; 2]>,
    #[serde(default)]
    schedule: Schedule,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    #[default]
    Cosine,
    Constant,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    test_len: Vec<u32>,
}

schema::tagged! {
    /// As `posenc` declares its kinds.
    #[derive(Debug)]
    pub enum Encoding {
        "nope" => Nope(Nope),
        "rope" => Rope(Rope),
        "alibi" => Alibi(Alibi),
        "stack" => Stack(Stack),
    }
}

#[derive(Debug, serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nope {}

#[derive(Debug, serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    #[serde(default)]
    base: f64,
    #[serde(default)]
    layout: Option<String>,
    #[serde(default)]
    rotary_dim: Option<usize>,
    #[serde(default)]
    scaling: Option<f64>,
}

#[derive(Debug, serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alibi {
    #[serde(default)]
    slopes: Vec<f64>,
}

#[derive(Debug, serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    parts: Vec<Encoding>,
}

pub const GOOD: &str = r#"name = "toy"
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

pub fn cells(text: &[u8], overrides: &[&str]) -> Result<Vec<Cell>, Diagnostic> {
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

pub fn read(text: &[u8], overrides: &[&str]) -> Result<Vec<(Cell, Toy)>, Diagnostic> {
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

/// The message of a mistake, as printed.
#[track_caller]
pub fn message(text: &[u8], overrides: &[&str]) -> String {
    let error = read(text, overrides).expect_err("a mistake must be refused");
    assert_eq!(error.exit, Exit::Config);
    let shown = format!("error: {error}");
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[track_caller]
pub fn refused_as(text: impl AsRef<[u8]>, overrides: &[&str], expected: &str) {
    assert_eq!(
        message(text.as_ref(), overrides),
        expected.trim_matches('\n')
    );
}

/// The good file with one text replaced.
pub fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the good file has no {from:?}");
    GOOD.replacen(from, to, 1)
}

/// The good file with `[axes]` after it.
pub fn axes(lines: &str) -> String {
    format!("{GOOD}\n[axes]\n{lines}\n")
}
