//! The catalogue of encodings as a page with pictures and measured perplexities.
//!
//! Descriptions come from the list of encodings, measured values from records. A test compares the
//! committed page with the output of this module for the committed records.

mod difference;

use crate::keys_of_kinds::KeysOfKinds;
use crate::markdown::{escaped, quoted};
use crate::sources::Sources;
use difference::{difference, is_default};
use posenc::{EncodingConfig, Facts, Lengths, ModelShape, PositionsConfig, RopeScaling};
use records::analysis::point::estimate_text;
use records::record::{EvalRow, EvalStatus};
use records::stats::{Estimate, LOG_INTERVAL, Scale};
use records::{RunRecord, find_records, metric};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use support::exit::Failure;

/// The model and the lengths for which shapes and pictures are shown.
const SHAPE: ModelShape = ModelShape {
    d_model: 64,
    n_layers: 2,
    n_heads: 4,
    head_dim: 16,
};
const TRAIN_LEN: usize = 64;

/// What was measured for one configuration: by test length, the perplexity of every seed.
struct Measured {
    kind: String,
    /// The configuration that was trained, by its difference from the defaults.
    trained: String,
    /// The one that was tested, where it is another.
    tested: Option<String>,
    /// Whether what was tested is the kind with its defaults.
    is_default: bool,
    /// The learning rate it was trained at, and whether that is the smallest or largest tried.
    rate: String,
    perplexities: BTreeMap<usize, Vec<f64>>,
}

/// Writes `README.md` and a picture per kind into `out`; returns what was written.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the records cannot be read,
/// [`Exit::Resources`](support::exit::Exit::Resources) if the directory cannot be written.
pub fn write(records: &Path, out: &Path) -> Result<Vec<PathBuf>, Failure> {
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
/// [`Exit::Input`](support::exit::Exit::Input) if the records cannot be read.
pub fn page(records: &Path) -> Result<String, Failure> {
    let found = find_records(&[records.to_owned()]).map_err(Failure::input)?;
    // A later evaluation may repeat rows of its run: its seed would count twice.
    let own = found
        .records
        .into_iter()
        .filter(|r| r.evaluation_of.is_none());
    let (halves, results): (Vec<_>, Vec<_>) = own.partition(|r| r.half_of.is_some());
    let measured = measured(&results);
    let lengths = [TRAIN_LEN, 8 * TRAIN_LEN];
    let mut out = introduction(&results, &halves, lengths);
    for kind in EncodingConfig::KINDS {
        summary_rows(&mut out, kind, &measured, lengths)?;
    }
    let _ = write!(
        out,
        "\nScalings of `rope`: {}; see [their keys](#scalings-of-rope). {}\n\nPositions, for every \
         encoding: {}; see [their keys](../config.md#positions). {}\n",
        quoted(RopeScaling::KINDS),
        deviations(posenc::scaling::DEVIATIONS),
        quoted(PositionsConfig::KINDS),
        deviations(posenc::positions::DEVIATIONS),
    );
    let sources = Sources::of("posenc")?;
    let keys = KeysOfKinds::new(&sources, "EncodingConfig");
    for kind in EncodingConfig::KINDS {
        section(&mut out, kind, &keys, &measured, lengths)?;
    }
    scalings(&mut out, &sources)?;
    Ok(out)
}

/// The page up to the head of its first table.
fn introduction(records: &[RunRecord], halves: &[RunRecord], [near, far]: [usize; 2]) -> String {
    let seeds: BTreeSet<u64> = records.iter().map(|record| record.seed).collect();
    let experiment = records
        .first()
        .map_or("no experiment", |record| record.experiment.as_str());
    format!(
        "<!-- Written by `scripts/pages`; a test compares. Do not edit. -->\n\n# Catalogue \
         of encodings\n\n{} kinds, each a line of TOML: `pe = {{ kind = \"rope\" }}`. Shapes and \
         pictures are those of a model of width {} with {} layers and {} heads, trained at {near} \
         tokens. The pictures show\n\n\
         - for rotations: the wavelength of each pair, and the score of two equal vectors by \
         distance;\n\
         - for biases: the bias by distance, and for every pair of tokens;\n\
         - for tables added to the input: the table, and the similarity of positions;\n\
         - for all others: the score of two equal vectors, and the change of the logits of a text \
         whose middle token changes.\n\nPerplexities are those of the experiment \
         `{experiment}`: byte text, trained at {near} bytes and tested at {near} and at {far}, \
         mean [{LOG_INTERVAL}], {} seeds under one small budget, {}. \
         {}They order encodings at this size and budget and say nothing about a large model. \
         A kind's row is its default configuration; \
         rows below it are other configurations, named by their whole difference from the \
         defaults. `-`: not measured, or no default to measure. A kind that only changes the \
         test was measured on weights trained as another kind, named in its row; its section \
         lists every such test.\n\n| kind | what it \
         does | hooks | perplexity at {near} | at {far} | rate |\n|---|---|---|---|---|---|\n",
        EncodingConfig::KINDS.len(),
        SHAPE.d_model,
        SHAPE.n_layers,
        SHAPE.n_heads,
        seeds.len(),
        rates(records),
        learning(records, halves, near),
    )
}

/// How far perplexities at a length still move from half to all steps.
fn learning(records: &[RunRecord], halves: &[RunRecord], length: usize) -> String {
    let loss = |record: &RunRecord| {
        let is_it =
            |row: &&EvalRow| row.variant == experiment::spec::TRAINED && row.test_len == length;
        let row = record.evals.iter().find(is_it)?;
        Some(row.metrics.get("loss_nats")?.value)
    };
    let falls = halves.iter().filter_map(|half| {
        let all = records
            .iter()
            .find(|r| Some(&r.run_id) == half.half_of.as_ref())?;
        Some(1.0 - (loss(all)? - loss(half)?).exp())
    });
    let percent = falls.map(|fall| (100.0 * fall).round() as i64);
    let percent: BTreeSet<i64> = percent.collect();
    match (percent.first(), percent.last()) {
        (Some(least), Some(most)) => format!(
            "From half to all steps every perplexity at {length} falls by {least} to {most} %: \
             encodings that rank high there learn fast. "
        ),
        _ => String::new(),
    }
}

/// How the learning rates were found.
fn rates(records: &[RunRecord]) -> String {
    let Some(selected) = records.iter().find_map(|record| record.selected.as_ref()) else {
        return "at one learning rate for all, which was not chosen per encoding".to_owned();
    };
    let tried = selected.candidates.iter().flat_map(|tried| &tried.values);
    let tried: Vec<&str> = tried.map(|label| label.text.as_str()).collect();
    format!(
        "each at the best of the learning rates {}, chosen by {} other seeds on bytes that no \
         score uses (edge: the smallest or the largest tried)",
        tried.join(", "),
        selected.seeds.len()
    )
}

/// The learning rate of a record: `0.003`, or `0.01, edge`.
fn rate(record: &RunRecord) -> Option<String> {
    let rate = record.spec.get("train")?.get("lr")?;
    let at_edge = record
        .selected
        .as_ref()
        .is_some_and(|s| !s.at_edge().is_empty());
    Some(format!("{rate}{}", if at_edge { ", edge" } else { "" }))
}

/// The kind with its defaults, and its other configurations that were trained.
fn summary_rows(
    out: &mut String,
    kind: &str,
    measured: &[Measured],
    lengths: [usize; 2],
) -> Result<(), Failure> {
    let config = example(kind)?;
    let trained = |m: &&Measured| m.tested.is_none();
    let default = of_kind(measured, kind).filter(|m| m.is_default);
    // Trained as it was tested, where there is such a row.
    let default = default.min_by_key(|m| m.tested.is_some());
    let [near, far] = cells(default, lengths);
    let rate = default.map_or("-", |m| &m.rate);
    let how = default.filter(|m| m.tested.is_some());
    let how = how.map_or_else(String::new, |m| {
        format!(", on weights trained as `{}`", m.trained)
    });
    let _ = writeln!(
        out,
        "| [`{kind}`](#{kind}) | {}{how} | {} | {near} | {far} | {rate} |",
        escaped(config.about().summary),
        config.facts(&SHAPE).hooks,
    );
    for row in of_kind(measured, kind)
        .filter(trained)
        .filter(|m| !m.is_default)
    {
        let [near, far] = cells(Some(row), lengths);
        let _ = writeln!(
            out,
            "| `{}` | | | {near} | {far} | {} |",
            row.trained, row.rate
        );
    }
    Ok(())
}

/// `a`: ...; `b`: ...
fn deviations(of: &[(&str, &str)]) -> String {
    let each = of.iter().map(|(kind, text)| format!("`{kind}`: {text}."));
    each.collect::<Vec<_>>().join(" ")
}

/// What each rescaling of rotary frequencies does, with its keys.
fn scalings(out: &mut String, sources: &Sources) -> Result<(), Failure> {
    out.push_str(
        "\n## Scalings of rope\n\nValues of `scaling`: `pe = { kind = \"rope\", scaling = { kind \
         = \"yarn\" } }`. `L` is the length that the model was trained at and `T` the test length, \
         both in tokens, `s` is the factor, and `d` is the number of rotated dimensions of a \
         head.\n",
    );
    let keys = KeysOfKinds::new(sources, "RopeScaling");
    for kind in RopeScaling::KINDS {
        let example = keys.example::<RopeScaling>(kind)?;
        let table = keys.markdown(kind, example.as_ref())?;
        let _ = write!(out, "\n### {kind}\n\n{}\n\n{table}", keys.doc(kind)?);
    }
    Ok(())
}

fn section(
    out: &mut String,
    kind: &str,
    keys: &KeysOfKinds<'_>,
    measured: &[Measured],
    lengths: [usize; 2],
) -> Result<(), Failure> {
    let mut config = example(kind)?;
    // Read before the lengths fill in what the defaults leave open.
    // Keys of which any may be left out, but not all: the example's are no defaults.
    let has_defaults = EncodingConfig::default_of(kind).is_some() || keys.requires_some(kind)?;
    let table = keys.markdown(kind, has_defaults.then_some(&config))?;
    config.resolve(&posenc::Lengths {
        train_len: TRAIN_LEN,
        trained_len: TRAIN_LEN,
        test_len: TRAIN_LEN,
    });
    let (about, facts) = (config.about(), config.facts(&SHAPE));
    let _ = write!(
        out,
        "\n## {kind}\n\n{}.\n\n![what {kind} does]({kind}.svg)\n\n",
        sentence(about.summary)
    );
    let lines = [
        ("formula", format!("`{}`", about.formula)),
        ("source", about.source.to_owned()),
        ("deviations", about.deviations.to_owned()),
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
    ];
    for (name, line) in lines {
        let _ = writeln!(out, "- {name}: {line}");
    }
    let _ = write!(out, "\n{table}");
    let rows: Vec<&Measured> = of_kind(measured, kind).collect();
    if !rows.is_empty() {
        let _ = write!(
            out,
            "\n| trained as | tested as | perplexity at {} | at {} |\n|---|---|---|---|\n",
            lengths[0], lengths[1]
        );
        for row in rows {
            let tested = row.tested.as_ref();
            let tested = tested.map_or_else(|| "the same".to_owned(), |name| format!("`{name}`"));
            let [near, far] = cells(Some(row), lengths);
            let _ = writeln!(out, "| `{}` | {tested} | {near} | {far} |", row.trained);
        }
    }
    Ok(())
}

/// What was measured at the two lengths.
fn cells(row: Option<&Measured>, lengths: [usize; 2]) -> [String; 2] {
    let cell = |length| row.and_then(|m| m.at(length));
    lengths.map(|length| cell(length).unwrap_or_else(|| "-".to_owned()))
}

/// What is particular to the kind. Tables that start near 0 are drawn wide, since a picture of
/// nothing shows nothing.
fn picture(kind: &str) -> Result<String, Failure> {
    let broken = |error: serde_json::Error| Failure::bug(error);
    let mut keys = serde_json::to_value(example(kind)?).map_err(broken)?;
    let mut command = format!("inspect {kind}");
    if let Some(init_std) = keys.get_mut("init_std") {
        *init_std = 0.5.into();
        command += " init_std=0.5";
    }
    inspect::catalogue_svg(
        serde_json::from_value(keys).map_err(broken)?,
        SHAPE,
        TRAIN_LEN,
        &command,
    )
}

fn example(kind: &str) -> Result<EncodingConfig, Failure> {
    EncodingConfig::example(kind).ok_or_else(|| Failure::bug(format!("`{kind}` has no example")))
}

fn of_kind<'a>(measured: &'a [Measured], kind: &'a str) -> impl Iterator<Item = &'a Measured> {
    measured.iter().filter(move |m| m.kind == kind)
}

impl Measured {
    fn at(&self, length: usize) -> Option<String> {
        let estimate = Estimate::of(Scale::Log, self.perplexities.get(&length)?)?;
        Some(estimate_text(metric::PERPLEXITY, &estimate))
    }
}

/// Every configuration of the records with its variants: those with all their defaults first, then
/// those that were trained, in the order of their names.
fn measured(records: &[RunRecord]) -> Vec<Measured> {
    let mut all: BTreeMap<(bool, bool, String, Option<String>), Measured> = BTreeMap::new();
    let rows = records
        .iter()
        .flat_map(|record| record.evals.iter().map(move |row| (record, row)))
        .filter(|(_, row)| row.status == EvalStatus::Ok);
    for (record, row) in rows {
        let Some(loss) = row.metrics.get("loss_nats") else {
            continue;
        };
        let Some(of) = variant(record, &row.variant) else {
            continue;
        };
        let key = (
            !of.is_default,
            of.tested.is_some(),
            of.trained.clone(),
            of.tested.clone(),
        );
        let of = all.entry(key).or_insert(of);
        // Perplexity is exp of the loss in nats.
        let perplexities = of.perplexities.entry(row.test_len).or_default();
        perplexities.push(loss.value.exp());
    }
    all.into_values().collect()
}

/// The configuration that a variant of a record was tested under, without its numbers.
fn variant(record: &RunRecord, name: &str) -> Option<Measured> {
    let eval = record.spec.get("eval")?;
    let named = |name: &str| {
        let variants = eval.get("variants")?.as_array()?;
        let is = |spec: &&Value| spec.get("name").and_then(Value::as_str) == Some(name);
        variants.iter().find(is)
    };
    let test_lens = eval.get("test_lens")?.as_array()?.iter();
    let test_lens: Vec<usize> = test_lens
        .filter_map(|l| Some(l.as_u64()? as usize))
        .collect();
    let lengths = |test_len| Lengths {
        train_len: record.task.train_len,
        trained_len: record.task.train_len,
        test_len,
    };
    // A variant has one encoding per test length, all of one kind.
    let difference = |spec: &Value| {
        let each = test_lens.iter().zip(spec.get("pe")?.as_array()?);
        let each: Vec<(Lengths, &Value)> = each.map(|(len, pe)| (lengths(*len), pe)).collect();
        difference(&each)
    };
    let trained = difference(named(experiment::spec::TRAINED)?)?;
    let spec = named(name)?;
    let mut tested = difference(spec)?;
    let positions = spec
        .get("positions")
        .and_then(|p| p.get(0)?.get("kind")?.as_str());
    if let Some(positions) = positions {
        let _ = write!(tested, ", positions={positions}");
    }
    let pe = part_that_counts(record, name, spec.get("pe")?.get(0)?)?;
    Some(Measured {
        kind: pe.get("kind")?.as_str()?.to_owned(),
        is_default: positions.is_none() && is_default(&lengths(*test_lens.first()?), &pe),
        tested: (name != experiment::spec::TRAINED).then_some(tested),
        trained,
        rate: rate(record)?,
        perplexities: BTreeMap::new(),
    })
}

/// The encoding that a row is of: of a stack that adds a mask to what was trained, the mask.
fn part_that_counts(record: &RunRecord, variant: &str, encoding: &Value) -> Option<Value> {
    let config: EncodingConfig = serde_json::from_value(encoding.clone()).ok()?;
    if let Some(parts) = config.stacked_parts()
        && variant != experiment::spec::TRAINED
    {
        let trained = record.spec.get("model")?.get("pe")?.get("kind")?.as_str()?;
        let part = parts.iter().find(|part| part.kind() != trained)?;
        return serde_json::to_value(part).ok();
    }
    Some(encoding.clone())
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
            "position enters only as the distance between query and key",
            "not only the distance between query and key matters",
        ),
        (
            facts.by_distance && !facts.ignores_positions,
            "works with `randomized_distances`",
            "",
        ),
        (facts.reads_length, "reads the length of the sequence", ""),
        (
            facts.linear,
            "works with linear attention",
            "does not work with linear attention",
        ),
        (facts.causal_only, "needs a causal mask", ""),
    ];
    let names = properties
        .iter()
        .map(|(holds, yes, no)| if *holds { *yes } else { *no })
        .filter(|text| !text.is_empty());
    names.collect::<Vec<_>>().join("; ")
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
