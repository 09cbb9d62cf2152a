//! `longreach list`: encodings, tasks, devices and configs as a table or as JSON.

use crate::commands::schema::schema;
use clap::Subcommand;
use comfy_table::{ColumnConstraint, Table};
use config::shipped::SHIPPED;
use experiment::device;
use posenc::{EncodingConfig, Facts, Hooks, ModelShape, PositionsConfig, RopeScaling};
use serde::Serialize;
use support::console::{self, json as to_json, table};
use support::exit::{Exit, Failure};

/// The model that facts are shown for.
pub const SHAPE: ModelShape = ModelShape {
    d_model: 64,
    n_layers: 2,
    n_heads: 4,
    head_dim: 16,
};

/// A line of `longreach list encodings`.
#[derive(Debug, Serialize)]
struct EncodingLine {
    kind: &'static str,
    summary: &'static str,
    formula: &'static str,
    source: &'static str,
    deviations: &'static str,
    hooks: Hooks,
    /// Path and shape of every parameter, in a model of width 64 trained at length 64.
    parameters: Vec<(String, Vec<usize>)>,
    max_position: Option<usize>,
    reads_length: bool,
    relative: bool,
    /// Whether positions are seen through distances alone, so that `randomized_distances` apply.
    by_distance: bool,
    /// Whether linear attention can host it.
    linear: bool,
    /// Whether only a causal mask can host it.
    causal: bool,
    /// Kinds of `scaling` it takes.
    scalings: &'static [&'static str],
    /// Every key with its default.
    defaults: serde_json::Value,
}

/// List encodings, tasks, devices or configs
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: Listed,
}

#[derive(Debug, Subcommand)]
enum Listed {
    /// Every encoding: what it does, its parameters, limits and source
    Encodings {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Every task, with examples
    Tasks {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Every kind of device: whether it is compiled in, and whether it works
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The configs that come with longreach, for `longreach run NAME` and `new --from NAME`
    Configs {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Every key of a config as a JSON schema, for completion in editors
    Schema,
}

/// Prints one of the lists.
///
/// # Errors
///
/// [`Exit::Bug`] if a line cannot be serialized.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let text = match arguments.what {
        Listed::Encodings { json } => encodings(json)?,
        Listed::Tasks { json } => tasks(json)?,
        Listed::Devices { json } => devices(json)?,
        Listed::Configs { json } => configs(json)?,
        Listed::Schema => to_json(&schema())?,
    };
    console::print(&text);
    Ok(Exit::Done)
}

/// The configs that come with the program.
fn configs(json: bool) -> Result<String, Failure> {
    if json {
        let line = |name: &str, title: String| serde_json::json!({"name": name, "title": title});
        let lines: Vec<_> = SHIPPED.iter().map(|c| line(c.name, c.title())).collect();
        return to_json(&lines);
    }
    let mut table = table(["name", "title of its report"]);
    for config in SHIPPED {
        table.add_row([config.name.to_owned(), config.title()]);
    }
    Ok(table.to_string())
}

/// The catalogue.
///
/// # Errors
///
/// Never for the catalogue as it is; a bug otherwise.
pub fn encodings(json: bool) -> Result<String, Failure> {
    let lines: Vec<EncodingLine> = EncodingConfig::KINDS
        .iter()
        .filter_map(|kind| line(kind))
        .collect();
    if json {
        return to_json(&lines);
    }
    let mut table = table([
        "kind",
        "what it does",
        "hooks",
        "parameters",
        "properties",
        "source",
    ]);
    unbroken(&mut table);
    for line in &lines {
        let limit = line
            .max_position
            .map(|limit| format!("up to position {limit}"));
        let properties = [
            (line.relative, "relative"),
            (line.by_distance, "by distance"),
            (line.reads_length, "reads length"),
            (line.linear, "linear attention"),
            (line.causal, "causal only"),
            (!line.scalings.is_empty(), "scalings"),
        ];
        let properties = properties
            .iter()
            .filter(|(holds, _)| *holds)
            .map(|(_, name)| (*name).to_owned())
            .chain(limit);
        table.add_row([
            line.kind.to_owned(),
            line.summary.to_owned(),
            line.hooks.to_string(),
            parameters(&line.parameters),
            properties.collect::<Vec<_>>().join(", "),
            line.source.to_owned(),
        ]);
    }
    let scalings = format!("scalings of rope: {}", RopeScaling::KINDS.join(", "));
    let positions = format!(
        "positions, for every encoding: {}",
        PositionsConfig::KINDS.join(", ")
    );
    let note = "shapes and limits in a model of width 64 with 2 layers and 4 heads, trained at \
                length 64; formulas, deviations from the sources, and every key with its default: \
                --json";
    Ok(format!("{table}\n{scalings}\n{positions}\n({note})"))
}

/// Keeps the names in the first column on one line, where people and `grep` look for them.
fn unbroken(table: &mut Table) {
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// The parameters by name and shape where they are few, else their numbers.
fn parameters(parameters: &[(String, Vec<usize>)]) -> String {
    let total: usize = parameters
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>())
        .sum();
    match parameters {
        [] => "none".to_owned(),
        [..] if parameters.len() <= 2 => parameters
            .iter()
            .map(|(path, shape)| format!("{path} {shape:?}"))
            .collect::<Vec<_>>()
            .join(", "),
        [..] => format!("{total} in {} tensors", parameters.len()),
    }
}

fn line(kind: &str) -> Option<EncodingLine> {
    let mut config = EncodingConfig::example(kind)?;
    // Read before the lengths fill in what the defaults leave open.
    let defaults = serde_json::to_value(&config).unwrap_or_default();
    config.resolve(&posenc::Lengths {
        train_len: 64,
        trained_len: 64,
        test_len: 64,
    });
    let Facts {
        hooks,
        parameters,
        max_position,
        reads_length,
        relative,
        by_distance,
        linear,
        causal_only,
        ..
    } = config.facts(&SHAPE);
    let about = config.about();
    // Types are strict: only an encoding that takes scalings accepts the key.
    let scaled = serde_json::from_value::<EncodingConfig>(
        serde_json::json!({ "kind": kind, "scaling": { "kind": "linear" } }),
    );
    Some(EncodingLine {
        kind: config.kind(),
        summary: about.summary,
        formula: about.formula,
        source: about.source,
        deviations: about.deviations,
        hooks,
        parameters,
        max_position,
        reads_length,
        relative,
        by_distance,
        linear,
        causal: causal_only,
        scalings: if scaled.is_ok() {
            RopeScaling::KINDS
        } else {
            &[]
        },
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
            defaults: serde_json::to_value(tasks::TaskConfig::default_of(info.kind))
                .unwrap_or_default(),
            examples: info.examples,
        };
        return to_json(&kinds.into_iter().map(line).collect::<Vec<_>>());
    }
    let mut table = table(["kind", "what it asks", "examples"]);
    unbroken(&mut table);
    for info in kinds {
        table.add_row([
            info.kind.to_string(),
            info.summary.to_string(),
            info.examples.join("\n"),
        ]);
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
        let compiled = if facts.compiled_in {
            "yes".to_owned()
        } else {
            format!("no (--features {})", facts.feature)
        };
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
