//! `longreach catalogue`: the catalogue of encodings as a page with pictures and measured
//! perplexities.
//!
//! Descriptions come from the list of encodings, measured values from records. A test compares the
//! committed page with the output of this module for the committed records.

use crate::commands::inspect;
use crate::console;
use crate::exit::{Exit, Failure};
use posenc::{EncodingConfig, Facts, ModelShape, PositionsConfig, RopeScaling};
use results::record::EvalStatus;
use results::stats::{INTERVAL, half_width_95, mean};
use results::{RunRecord, find_records};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The model and the lengths for which shapes and pictures are shown.
const SHAPE: ModelShape = ModelShape {
    d_model: 64,
    n_layers: 2,
    n_heads: 4,
    head_dim: 16,
};
const TRAIN_LEN: usize = 64;

/// What was measured for one configuration: its name and, by test length, the perplexity of every
/// seed.
struct Measured {
    name: String,
    kind: String,
    perplexities: BTreeMap<usize, Vec<f64>>,
}

/// Write the catalogue of encodings as a page with pictures and measured perplexities
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Records of an experiment with an axis over kinds of encodings: a directory or a .jsonl file
    records: PathBuf,
    /// Directory to write to
    #[arg(long, value_name = "DIR", default_value = "catalogue")]
    out: PathBuf,
}

const EXAMPLES: &str = r#"Example:
  longreach catalogue experiments/002-catalogue/results.jsonl --out docs/catalogue"#;

/// Writes the page and its pictures.
///
/// # Errors
///
/// [`Exit::Input`] if the records cannot be read, [`Exit::Resources`] if the directory cannot be
/// written.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let written = write(&arguments.records, &arguments.out)?;
    console::print(&format!(
        "wrote {} and {} pictures",
        written[0].display(),
        written.len() - 1
    ));
    Ok(Exit::Done)
}

/// Writes `README.md` and a picture per kind into `out`; returns what was written.
///
/// # Errors
///
/// [`Exit::Input`] if the records cannot be read, [`Exit::Resources`] if the directory cannot be
/// written.
fn write(records: &Path, out: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = vec![("README.md".to_owned(), page(records)?)];
    for kind in EncodingConfig::KINDS {
        files.push((format!("{kind}.svg"), picture(kind)?));
    }
    fs_err::create_dir_all(out).map_err(Failure::resources)?;
    let write = |(name, text): (String, String)| {
        let path = out.join(name);
        rundir::system()
            .write_whole(&path, text.as_bytes())
            .map_err(Failure::resources)?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
}

/// The page, in Markdown.
///
/// # Errors
///
/// [`Exit::Input`] if the records cannot be read.
pub fn page(records: &Path) -> Result<String, Failure> {
    let mut found = find_records(&[records.to_owned()]).map_err(Failure::input)?;
    found
        .records
        // A later evaluation may repeat rows of its run: its seed would count twice.
        .retain(|record| record.evaluation_of.is_none());
    let measured = measured(&found.records);
    let (near, far) = (TRAIN_LEN, 8 * TRAIN_LEN);
    let mut out = String::new();
    let seeds: std::collections::BTreeSet<u64> =
        found.records.iter().map(|record| record.seed).collect();
    let experiment = found
        .records
        .first()
        .map_or("no experiment", |record| record.experiment.as_str());
    let _ = write!(
        out,
        "<!-- Written by `longreach catalogue`; a test compares. Do not edit. -->\n\n# Catalogue \
         of encodings\n\n{} kinds, each a line of TOML: `pe = {{ kind = \"rope\" }}`. Shapes and \
         pictures are those of a model of width {} with {} layers and {} heads, trained at {near} \
         tokens.\n\nPerplexities are those of the experiment `{experiment}`: byte text, trained \
         at {near} bytes and tested at {near} and at {far}, mean ± {INTERVAL}, {} seeds under one \
         small budget. They order encodings at this size and say nothing about a large model. \
         Where a kind was measured in several configurations the first table shows the one that \
         is best at {near}; its own section shows all.\n\n| kind | what it does | hooks | \
         perplexity at {near} | at {far} |\n|---|---|---|---|---|\n",
        EncodingConfig::KINDS.len(),
        SHAPE.d_model,
        SHAPE.n_layers,
        SHAPE.n_heads,
        seeds.len(),
    );
    for kind in EncodingConfig::KINDS {
        let config = example(kind)?;
        let best = of_kind(&measured, kind)
            .filter(|m| m.at(near).is_some())
            .min_by(|a, b| a.mean(near).total_cmp(&b.mean(near)));
        let cell = |length| {
            best.and_then(|m| m.at(length))
                .unwrap_or_else(|| "-".to_owned())
        };
        let about = config.about();
        let _ = writeln!(
            out,
            "| [`{kind}`](#{kind}) | {} | {} | {} | {} |",
            escaped(about.summary),
            config.facts(&SHAPE).hooks,
            cell(near),
            cell(far)
        );
    }
    let _ = write!(
        out,
        "\nScalings of `rope`: {}. Positions, for every encoding: {}.\n",
        quoted(RopeScaling::KINDS),
        quoted(PositionsConfig::KINDS)
    );
    for kind in EncodingConfig::KINDS {
        section(&mut out, kind, &measured, [near, far])?;
    }
    Ok(out)
}

fn section(
    out: &mut String,
    kind: &str,
    measured: &[Measured],
    lengths: [usize; 2],
) -> Result<(), Failure> {
    let mut config = example(kind)?;
    // Read before the lengths fill in what the defaults leave open.
    let defaults = serde_json::to_value(&config)
        .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    config.resolve(&posenc::Lengths {
        train_len: TRAIN_LEN,
        test_len: TRAIN_LEN,
    });
    let (about, facts) = (config.about(), config.facts(&SHAPE));
    let _ = write!(
        out,
        "\n## {kind}\n\n{}.\n\n![logits of equal tokens by distance under {kind}]({kind}.svg)\n\n",
        sentence(about.summary)
    );
    let lines = [
        ("formula", format!("`{}`", about.formula)),
        ("source", about.source.to_owned()),
        ("hooks", facts.hooks.to_string()),
        ("parameters", parameters(&facts)),
        (
            "limit",
            facts.max_position_without_axes().map_or_else(
                || "none".to_owned(),
                |limit| format!("positions 0 to {}", limit.saturating_sub(1)),
            ),
        ),
        ("properties", properties(&facts)),
        (
            "keys and defaults",
            format!("`{}`", inspect::keys(&defaults)),
        ),
    ];
    for (name, line) in lines {
        let _ = writeln!(out, "- {name}: {line}");
    }
    let rows: Vec<&Measured> = of_kind(measured, kind).collect();
    if !rows.is_empty() {
        let _ = write!(
            out,
            "\n| measured | perplexity at {} | at {} |\n|---|---|---|\n",
            lengths[0], lengths[1]
        );
        for row in rows {
            let cell = |length| row.at(length).unwrap_or_else(|| "-".to_owned());
            let _ = writeln!(
                out,
                "| {} | {} | {} |",
                escaped(&row.name),
                cell(lengths[0]),
                cell(lengths[1])
            );
        }
    }
    Ok(())
}

/// What the kind does to the logits. Tables that start near 0 are drawn wide, since a picture of
/// nothing shows nothing.
fn picture(kind: &str) -> Result<String, Failure> {
    let broken = |error: serde_json::Error| Failure::new(Exit::Bug, error.to_string());
    let mut keys = serde_json::to_value(example(kind)?).map_err(broken)?;
    let mut command = format!("inspect {kind}");
    if let Some(init_std) = keys.get_mut("init_std") {
        *init_std = 0.5.into();
        command += " init_std=0.5";
    }
    inspect::response_svg(
        serde_json::from_value(keys).map_err(broken)?,
        SHAPE,
        TRAIN_LEN,
        &command,
    )
}

fn example(kind: &str) -> Result<EncodingConfig, Failure> {
    EncodingConfig::example(kind)
        .ok_or_else(|| Failure::new(Exit::Bug, format!("`{kind}` has no example")))
}

fn of_kind<'a>(measured: &'a [Measured], kind: &'a str) -> impl Iterator<Item = &'a Measured> {
    measured.iter().filter(move |m| m.kind == kind)
}

impl Measured {
    fn mean(&self, length: usize) -> f64 {
        self.perplexities
            .get(&length)
            .and_then(|values| mean(values))
            .unwrap_or(f64::INFINITY)
    }

    fn at(&self, length: usize) -> Option<String> {
        let values = self.perplexities.get(&length)?;
        let interval =
            half_width_95(values).map_or_else(String::new, |half| format!(" ± {half:.2}"));
        Some(format!("{:.2}{interval}", mean(values)?))
    }
}

/// Every configuration of the records with its variants, trained ones first, in the order of their
/// names.
fn measured(records: &[RunRecord]) -> Vec<Measured> {
    let mut all: BTreeMap<(String, String), Measured> = BTreeMap::new();
    for record in records {
        let label = record
            .labels
            .iter()
            .map(|label| label.text.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        for row in record
            .evals
            .iter()
            .filter(|row| row.status == EvalStatus::Ok)
        {
            let Some(loss) = row.metrics.get("loss_nats") else {
                continue;
            };
            let trained = row.variant == crate::plan::spec::TRAINED;
            let name = if trained {
                label.clone()
            } else {
                format!("{label} + {}", row.variant)
            };
            // The empty text sorts the trained encoding before its variants.
            let entry = all.entry((
                label.clone(),
                if trained {
                    String::new()
                } else {
                    row.variant.clone()
                },
            ));
            let kind = || kind_of(record, &row.variant).unwrap_or_default();
            let measured = entry.or_insert_with(|| Measured {
                name,
                kind: kind(),
                perplexities: BTreeMap::new(),
            });
            measured
                .perplexities
                .entry(row.test_len)
                .or_default()
                // Perplexity is exp of the loss in nats.
                .push(loss.value.exp());
        }
    }
    all.into_values().collect()
}

/// The kind a row was evaluated under. A stack that adds a mask to what was trained counts as the
/// mask.
fn kind_of(record: &RunRecord, variant: &str) -> Option<String> {
    let variants = record.spec.get("eval")?.get("variants")?.as_array()?;
    let spec = variants
        .iter()
        .find(|spec| spec.get("name").and_then(serde_json::Value::as_str) == Some(variant))?;
    // A variant has one encoding per test length, all of one kind.
    let encoding = spec.get("pe")?.get(0)?;
    let kind = encoding.get("kind")?.as_str()?;
    let config: EncodingConfig = serde_json::from_value(encoding.clone()).ok()?;
    if let Some(parts) = config.stacked_parts()
        && variant != crate::plan::spec::TRAINED
    {
        let trained = record.spec.get("model")?.get("pe")?.get("kind")?.as_str()?;
        let mut kinds = parts.iter().map(EncodingConfig::kind);
        return kinds.find(|kind| *kind != trained).map(str::to_owned);
    }
    Some(kind.to_owned())
}

fn parameters(facts: &Facts) -> String {
    if facts.parameters.is_empty() {
        return "none".to_owned();
    }
    let shown = facts
        .parameters
        .iter()
        .map(|(path, shape)| format!("`{path}` {shape:?}"))
        .collect::<Vec<_>>()
        .join(", ");
    format!("{shown}: {} numbers", facts.num_params())
}

fn properties(facts: &Facts) -> String {
    let properties = [
        (
            facts.relative,
            "logits depend on key - query alone",
            "logits depend on more than key - query",
        ),
        (facts.by_distance, "distances may be drawn at random", ""),
        (facts.reads_length, "reads the length of the sequence", ""),
        (
            facts.linear,
            "linear attention can host it",
            "linear attention cannot host it",
        ),
        (facts.causal_only, "only a causal mask can host it", ""),
    ];
    let names = properties
        .iter()
        .map(|(holds, yes, no)| if *holds { *yes } else { *no })
        .filter(|text| !text.is_empty());
    names.collect::<Vec<_>>().join("; ")
}

fn quoted(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Bars would end a cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
