//! `docs/config.md`, from the list of keys.

use crate::keys_of_kinds::KeysOfKinds;
use crate::sources::Sources;
use experiment::plan::keys::{KEYS, Key, Kind};
use posenc::{EncodingConfig, PositionsConfig};
use schema::Number;
use std::fmt::Write as _;
use support::exit::Failure;
use tasks::TaskConfig;

/// The part of the page that is written by hand.
const INTRODUCTION: &str = include_str!("config_page.md");

/// The page: the introduction, then every key with type, default, example and meaning.
///
/// # Errors
///
/// If the sources cannot be read, or say too little.
pub fn page() -> Result<String, Failure> {
    let mut page = INTRODUCTION.trim_end().to_owned();
    page.push_str("\n\n## Every key\n\n");
    page.push_str(
        "Keys without a default are required. `N` is a place in a list. `longreach list schema` \
         prints\nthe same as a JSON schema, for completion in editors.\n",
    );
    let mut section = None;
    for key in KEYS.iter() {
        let own = section_of(key);
        if section != Some(own) {
            section = Some(own);
            let title = if own.is_empty() {
                "Top level".to_owned()
            } else {
                format!("`[{own}]`")
            };
            let _ = write!(
                page,
                "\n### {title}\n\n| key | type | default | example | meaning |\n|---|---|---|---|---|\n"
            );
        }
        let name = key.path.strip_prefix(own).unwrap_or(key.path);
        let default = key.default.map_or("required".to_owned(), |text| {
            if is_toml(text) {
                format!("`{text}`")
            } else {
                text.to_owned()
            }
        });
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | `{}` | {} |",
            name.trim_start_matches('.'),
            type_in_words(key.kind),
            key.example,
            key.meaning
        );
    }
    page.push_str("\n### Kinds\n\n| table | kinds | keys of each |\n|---|---|---|\n");
    for (table, kinds, link) in [
        ("task", TaskConfig::KINDS, "[tasks](tasks.md)"),
        (
            "model.pe",
            EncodingConfig::KINDS,
            "[catalogue](catalogue/README.md)",
        ),
        (
            "model.positions",
            PositionsConfig::KINDS,
            "[below](#positions)",
        ),
    ] {
        let _ = writeln!(page, "| `{table}` | {} | {link} |", kinds.join(", "));
    }
    page.push_str(&positions()?);
    Ok(page)
}

/// A section on what each kind of positions is, with its keys.
fn positions() -> Result<String, Failure> {
    let mut out =
        "\n### Positions\n\nValues of `model.positions`, for any encoding: `positions = { \
                   kind = \"randomized\" }`.\nPositions and lengths count tokens.\n"
            .to_owned();
    let sources = Sources::of("posenc")?;
    let keys = KeysOfKinds::new(&sources, "PositionsConfig");
    for kind in PositionsConfig::KINDS {
        let example = keys.example::<PositionsConfig>(kind)?;
        let table = keys.markdown(kind, example.as_ref())?;
        let _ = write!(out, "\n#### {kind}\n\n{}\n\n{table}", keys.doc(kind)?);
    }
    Ok(out)
}

/// The table of a file that a key belongs to.
fn section_of(key: &Key) -> &'static str {
    let sections = ["model", "train", "eval", "report"];
    let in_section = |section: &&&str| {
        let rest = key.path.strip_prefix(**section);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    sections.iter().find(in_section).copied().unwrap_or("")
}

/// Whether a text is a TOML value, and not words.
fn is_toml(text: &str) -> bool {
    text.parse::<toml::Value>().is_ok() || format!("x = {text}").parse::<toml::Table>().is_ok()
}

fn type_in_words(kind: Kind) -> String {
    match kind {
        Kind::Text => "string".to_owned(),
        Kind::Truth => "true or false".to_owned(),
        // The largest whole number of TOML is not a limit of the key.
        Kind::Whole(low, high) if high == u64::MAX >> 1 => format!("whole number from {low}"),
        Kind::Whole(low, high) => format!("whole number, {low} to {high}"),
        Kind::Number(low, high) => format!("number, {} to {}", low.text(), high.text()),
        Kind::Name(names) => names.join(", "),
        Kind::Wholes(low, high) if high == u64::MAX >> 1 => {
            format!("list of whole numbers from {low}")
        }
        Kind::Wholes(low, high) => format!("list of whole numbers, {low} to {high}"),
        Kind::Lengths(low, high) => {
            format!("list of whole numbers or ranges `\"51..100\"`, {low} to {high}")
        }
        Kind::Task | Kind::Encoding | Kind::Positions => "table with `kind`".to_owned(),
        Kind::EncodingKeys => "table of keys of an encoding".to_owned(),
        Kind::Encodings => "table as `model.pe`, or a list of them".to_owned(),
        Kind::Axes => "table of lists".to_owned(),
    }
}
