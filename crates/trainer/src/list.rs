//! `longreach list`: what there is to choose from, as a table or as JSON.

use crate::device;
use crate::exit::{Exit, Failure};
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use posenc::{EncodingConfig, Facts, Hooks, ModelShape, RopeScaling};
use serde::Serialize;

/// The model that facts are shown for.
const SHAPE: ModelShape = ModelShape { d_model: 64, n_layers: 2, n_heads: 4, head_dim: 16 };

/// A line of `longreach list encodings`.
#[derive(Debug, Serialize)]
struct EncodingLine {
    kind: &'static str,
    summary: &'static str,
    formula: &'static str,
    source: &'static str,
    hooks: Hooks,
    /// Path and shape of every parameter, in a model of width 64 trained at length 64.
    parameters: Vec<(String, Vec<usize>)>,
    max_position: Option<usize>,
    reads_length: bool,
    relative: bool,
    /// Kinds of `scaling` it takes.
    scalings: &'static [&'static str],
    /// Every key with its default.
    defaults: serde_json::Value,
}

/// The catalogue.
///
/// # Errors
///
/// Never for the catalogue as it is; a bug otherwise.
pub fn encodings(json: bool) -> Result<String, Failure> {
    let lines: Vec<EncodingLine> = EncodingConfig::KINDS.iter().filter_map(|kind| line(kind)).collect();
    if json {
        return to_json(&lines);
    }
    let mut table = table(["kind", "what it does", "hooks", "parameters", "limit", "scalings", "source"]);
    for line in &lines {
        let parameters: usize = line.parameters.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        table.add_row([
            line.kind.to_owned(),
            line.summary.to_owned(),
            line.hooks.to_string(),
            if parameters == 0 {
                "none".to_owned()
            } else {
                line.parameters.iter().map(|(path, shape)| format!("{path} {shape:?}")).collect::<Vec<_>>().join(", ")
            },
            line.max_position.map_or_else(|| "none".to_owned(), |limit| format!("max_position = {limit}")),
            line.scalings.join(", "),
            line.source.to_owned(),
        ]);
    }
    Ok(format!("{table}\n(shapes in a model of width 64 with 4 heads, trained at length 64)"))
}

fn line(kind: &str) -> Option<EncodingLine> {
    // A stack has no default; show the smallest one.
    let mut config =
        EncodingConfig::default_of(kind).or_else(|| serde_json::from_str(r#"{"kind":"stack","parts":[{"kind":"nope"}]}"#).ok())?;
    let defaults = serde_json::to_value(&config).unwrap_or_default();
    config.resolve(&posenc::Lengths { train_len: 64, test_len: 64 });
    let Facts { hooks, parameters, max_position, reads_length, relative } = config.facts(&SHAPE);
    let about = config.about();
    let scalings: &[&str] = if defaults.get("rotary_dim").is_some() { RopeScaling::KINDS } else { &[] };
    Some(EncodingLine {
        kind: config.kind(),
        summary: about.summary,
        formula: about.formula,
        source: about.source,
        hooks,
        parameters,
        max_position,
        reads_length,
        relative,
        scalings,
        defaults,
    })
}

/// The tasks.
///
/// # Errors
///
/// Never for the list as it is; a bug otherwise.
pub fn tasks(json: bool) -> Result<String, Failure> {
    let kinds = tasks::TaskConfig::kinds();
    if json {
        #[derive(Serialize)]
        struct TaskLine {
            kind: String,
            summary: String,
            examples: Vec<String>,
            defaults: serde_json::Value,
        }
        let line = |info: tasks::KindInfo| TaskLine {
            kind: info.kind.to_string(),
            summary: info.summary.to_string(),
            defaults: serde_json::to_value(tasks::TaskConfig::default_of(info.kind)).unwrap_or_default(),
            examples: info.examples,
        };
        return to_json(&kinds.into_iter().map(line).collect::<Vec<_>>());
    }
    let mut table = table(["kind", "what it asks", "examples"]);
    for info in kinds {
        table.add_row([info.kind.to_string(), info.summary.to_string(), info.examples.join("\n")]);
    }
    Ok(table.to_string())
}

/// The devices of this binary, each tried out.
///
/// # Errors
///
/// Never for the list as it is; a bug otherwise.
pub fn devices(json: bool) -> Result<String, Failure> {
    let devices = device::list();
    if json {
        return to_json(&devices);
    }
    let mut table = table(["--device", "compiled in", "works"]);
    for facts in devices {
        let compiled = if facts.compiled_in { "yes".to_owned() } else { format!("no (--features {})", facts.feature) };
        let works = if facts.works {
            "yes".to_owned()
        } else if facts.compiled_in {
            facts.problem.unwrap_or_default()
        } else {
            "-".to_owned()
        };
        table.add_row([facts.device.to_owned(), compiled, works]);
    }
    Ok(table.to_string())
}

/// A table with rules above, below and under the header, as wide as the terminal.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table
}

fn to_json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|error| Failure::new(Exit::Bug, error.to_string()))
}
