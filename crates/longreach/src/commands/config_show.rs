//! `longreach config show`: the resolved config of a run, and where every value comes from.

use crate::commands::completions;
use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use config::axes::{Cell, Choices, expand};
use config::key_path::KeyPath;
use config::source::Source;
use experiment::plan;
use experiment::plan::keys::add_defaults;
use experiment::plan::planner::{Plan, PlannedRun};
use experiment::plan::stages::last_encoding_key;
use records::toml_text::{inline, key as toml_key};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::PathBuf;
use support::console;
use support::exit::{Exit, Failure};

/// Show the resolved config
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print every value of a config, defaults filled in, and where it comes from
    #[command(after_help = EXAMPLES)]
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The experiment, a TOML file
    config: PathBuf,
    /// Values that replace those of the file
    #[arg(value_name = "KEY=VALUE", add = ArgValueCompleter::new(completions::overrides))]
    overrides: Vec<String>,
    /// The run to show, by the beginning of its id; the first unless given
    #[arg(long, value_name = "RUN_ID")]
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach config show configs/quickstart.toml
  longreach config show configs/copy.toml train.lr=1e-3 --json

The output is a config: `longreach run` with it trains the run shown."#;

/// One value of a resolved config.
#[derive(Debug, Serialize)]
struct Shown {
    key: String,
    value: Value,
    /// `x.toml:14`, `command line: train.lr=1e-3`, `default`, with the axis in brackets.
    origin: String,
}

/// Prints the config of one run.
///
/// # Errors
///
/// Those of planning; [`Exit::Config`] if no run has the id.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let Action::Show(show) = &arguments.action;
    let plan = plan(&show.config, &show.overrides)?;
    let all = all(&plan, cells(show)?);
    let index = chosen(&plan, &all, show.run.as_deref())?;
    let (run, cell) = &all[index];
    let values = values(cell, run);
    if show.json {
        let runs = all.len();
        let shown = serde_json::json!({
            "run_id": run.job.run_id, "run": index + 1, "runs": runs, "values": values,
        });
        console::print(&console::json(&shown)?);
    } else {
        let runs = match (all.len(), &plan.selection) {
            (1, _) => String::new(),
            (count, None) => format!("{} of {count} runs", index + 1),
            (count, Some(_)) => format!("{} of {count} runs that [select] may need", index + 1),
        };
        console::print(&text(run, &runs, &values));
    }
    Ok(Exit::Done)
}

/// The combinations of the axes, in the order of the runs, each under every combination of what
/// `[select]` tries.
fn cells(show: &Show) -> Result<Vec<Vec<Cell>>, Failure> {
    let mut source = Source::read(&show.config)?;
    for text in &show.overrides {
        source.apply_override(text)?;
    }
    let cells = expand(&source, 1)?;
    let choices = Choices::read(&source)?;
    let tried = |cell: Cell| match &choices {
        None => Ok(vec![cell]),
        Some(choices) => {
            let tried = choices.of(&source, &cell)?.into_iter();
            Ok(tried.map(|(_, tried)| tried).collect())
        }
    };
    cells.into_iter().map(tried).collect()
}

/// Every run that the plan may ask for, with its config.
fn all(plan: &Plan, cells: Vec<Vec<Cell>>) -> Vec<(&PlannedRun, Cell)> {
    let Some(selection) = &plan.selection else {
        // The runs of a cell are next to each other.
        let each = (plan.runs.len() / cells.len().max(1)).max(1);
        let cells = cells.iter().flatten();
        let both = plan.runs.chunks(each).zip(cells);
        return both
            .flat_map(|(runs, cell)| runs.iter().map(|run| (run, cell.clone())))
            .collect();
    };
    let methods = selection.methods.iter().zip(&cells);
    let tried = methods.flat_map(|(method, cells)| method.tried.iter().zip(cells));
    tried
        .flat_map(|(tried, cell)| {
            let swept = tried.sweep.iter().map(|index| &selection.runs[*index]);
            let runs = swept.chain(&tried.runs);
            runs.map(|run| (run, cell.clone()))
        })
        .collect()
}

/// The run that is asked for; the first of the result unless one is.
fn chosen(
    plan: &Plan,
    all: &[(&PlannedRun, Cell)],
    wanted: Option<&str>,
) -> Result<usize, Failure> {
    let first = plan.runs.first().map(|run| run.job.run_id.as_str());
    let wanted = wanted.or(first).unwrap_or_default();
    let fits = |run: &PlannedRun| run.job.run_id.starts_with(wanted);
    let found: Vec<usize> = (0..all.len()).filter(|index| fits(all[*index].0)).collect();
    match found[..] {
        [one] => Ok(one),
        _ => {
            let problem = match found.len() {
                0 => "is not the beginning of a run id of this config".to_owned(),
                count => format!("is the beginning of {count} run ids"),
            };
            let help = "`longreach check` lists them";
            Err(Failure::config(format!("--run {wanted}: {problem}")).with_help(help))
        }
    }
}

/// Every value of the run's config in the order of a file.
fn values(cell: &Cell, run: &PlannedRun) -> Vec<Shown> {
    let mut out = Vec::new();
    let mut add = |path: KeyPath, value: Value| {
        let origin = cell.origins.describe(&cell.table, &source(cell, &path));
        out.push(Shown {
            key: path.to_string(),
            value,
            origin,
        });
    };
    let written = |key: &str| {
        let value = KeyPath::parse(key).ok()?.find(&cell.table)?.clone();
        serde_json::to_value(value).ok()
    };
    add(KeyPath::new(["name"]), run.job.experiment.clone().into());
    if let Some(title) = written("title") {
        add(KeyPath::new(["title"]), title);
    }
    add(KeyPath::new(["seeds"]), vec![run.job.spec.seed].into());
    let spec = serde_json::to_value(&run.job.spec).unwrap_or_default();
    for section in ["task", "model", "train", "eval"] {
        let Some(Value::Object(mut table)) = spec.get(section).cloned() else {
            continue;
        };
        // What follows from other keys, or was resolved for each length, is as in the file.
        for derived in ["vocab_size", "seq_len", "variants"] {
            table.shift_remove(derived);
        }
        // Runs of the sweep and halves are scored under the trained encoding alone.
        let has_variants = run.job.spec.eval.variants.len() > 1;
        for (key, value) in [
            ("start_from", section == "train"),
            ("variants", section == "eval" && has_variants),
        ]
        .into_iter()
        .filter_map(|(key, here)| {
            Some((key, written(&format!("{section}.{key}")).filter(|_| here)?))
        }) {
            table.insert(key.to_owned(), value);
        }
        add_defaults(section, &mut table);
        leaves(&KeyPath::new([section]), table, &mut add);
    }
    for key in ["report.claims", "report.assertions"] {
        if let (Some(value), Ok(path)) = (written(key), KeyPath::parse(key)) {
            add(path, value);
        }
    }
    out
}

/// Where a value of the resolved config was written: the encoding of the last stage, if it has its
/// own, has become that of the model.
fn source(cell: &Cell, path: &KeyPath) -> KeyPath {
    match path.below(&KeyPath::new(["model", "pe"])) {
        Some(rest) => {
            let written = last_encoding_key(&cell.table);
            rest.iter()
                .fold(written, |path, part| path.child(part.clone()))
        }
        None => path.clone(),
    }
}

/// Calls `add` for every value that is not a table.
fn leaves(path: &KeyPath, table: Map<String, Value>, add: &mut impl FnMut(KeyPath, Value)) {
    // In a file, the keys of a table come before its inner tables.
    let (tables, plain): (Vec<_>, Vec<_>) = table
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .partition(|(_, value)| value.is_object());
    for (key, mut value) in plain {
        if key == "stages" {
            for stage in value.as_array_mut().into_iter().flatten() {
                if let Value::Object(stage) = stage {
                    stage.shift_remove("seq_len");
                }
            }
        }
        add(path.child(key), value);
    }
    for (key, value) in tables {
        match value {
            Value::Object(inner) => leaves(&path.child(key), inner, add),
            value => add(path.child(key), value),
        }
    }
}

/// The values as a config with their origins in comments. `runs`: which of how many runs it is,
/// empty for the only one.
fn text(run: &PlannedRun, runs: &str, values: &[Shown]) -> String {
    let mut out = format!("# run {}: {}", run.job.run_id, run.job.name());
    if !runs.is_empty() {
        let help = "--run RUN_ID shows another, `longreach check` lists them";
        let _ = write!(out, "\n# {runs}; {help}");
    }
    let mut section = String::new();
    for shown in values {
        let path = KeyPath::parse(&shown.key).unwrap_or_default();
        let (own, key) = (path.parent().to_string(), path.last());
        if own != section {
            let _ = write!(out, "\n\n[{own}]");
            section = own;
        }
        let written = format!("{} = {}", toml_key(key), inline(&shown.value));
        let _ = write!(out, "\n{written:<35} # {}", shown.origin);
    }
    out
}
