//! The configs of an experiment, kept beside its runs: `runs/NAME/configs/ID.toml` is a config as
//! it was run, and `ID.json` lists its runs and the options of its report. `longreach report
//! runs/NAME` finds in them the config that the records belong to. A config whose files have other
//! contents by now has other runs: it is kept again, under another id.
//!
//! Both files are written atomically. A crash between them leaves a config without a list, which
//! readers ignore and the next `run` completes.

use crate::plan::planner::Plan;
use config::key_path::AXES;
use records::record::{Label, Selected};
use records::{Claims, RunRecord};
use rundir::Disk;
use schema::text::excerpt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use support::exit::Failure;
use support::units::{first_of, quoted};
use toml::Table;

/// Directory inside an experiment's directory.
pub const CONFIGS_DIR: &str = "configs";

/// Hex digits of a config's id.
const ID_DIGITS: usize = 8;
/// Configs of one experiment that are read.
const MAX_CONFIGS: usize = 1000;
/// Largest list of runs that is read, in bytes.
const MAX_LIST_BYTES: u64 = 1 << 26;
/// Largest config that is read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 24;
/// Configs that are listed.
pub(super) const MAX_LISTED: usize = 10;

/// A config that was run: its runs, and how its report is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The first hex digits of the BLAKE3 hash of `ID.toml`.
    pub id: String,
    /// Name of the config file.
    pub file: String,
    /// Heading of the report.
    pub title: String,
    /// Label texts, in the order of lines and rows.
    pub order: Vec<String>,
    /// Names of the variants, in order.
    pub variants: Vec<String>,
    /// Claims that the report checks.
    pub claims: Claims,
    /// Whether the report checks expectations from the literature.
    pub assertions: bool,
    /// The runs, by run id, with their labels in this config.
    pub runs: BTreeMap<String, Vec<Label>>,
    /// What `[select]` chose for runs of the result, by run id; none in lists of versions before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<BTreeMap<String, Selected>>,
    /// Of runs with half the steps, the run that they are half of, by run id; none in lists of
    /// versions before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halves: Option<BTreeMap<String, String>>,
    /// How many of the runs are the result under values that will not be chosen: until `[select]`
    /// has chosen, the runs under all values are listed.
    #[serde(default, skip_serializing_if = "schema::is_default")]
    pub surplus: usize,
    /// The config as it was run.
    #[serde(skip)]
    pub table: Value,
}

/// A config as TOML that reads as the same table, its axes in the same order.
fn body(table: &Table) -> Result<String, toml::ser::Error> {
    let whole = toml::to_string(table)?;
    // The writer puts lists of tables behind other values, and tables within them last.
    let read = toml::from_str::<Table>(&whole).unwrap_or_default();
    let axes = |table: &Table| table.get(AXES).map(toml::Value::to_string);
    if axes(&read) == axes(table) {
        return Ok(whole);
    }
    let mut rest = table.clone();
    let mut text = String::new();
    if let Some(toml::Value::Table(axes)) = rest.remove(AXES) {
        text = format!("\n[{AXES}]\n");
        for (key, values) in axes {
            let _ = writeln!(text, "{} = {values}", toml::Value::String(key));
        }
    }
    Ok(toml::to_string(&rest)? + &text)
}

impl Config {
    /// The config of a plan as an experiment's directory keeps it, and the text of its `ID.toml`.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](support::exit::Exit::Bug) if the table cannot be written as TOML, which no
    /// table read from TOML can cause.
    pub fn of(experiment: &Path, plan: &Plan) -> Result<(Self, String), Failure> {
        let body = body(&plan.table).map_err(Failure::bug)?;
        let directory = excerpt(&plan.directory.display().to_string());
        let mut text =
            format!("# written by longreach run; paths are relative to {directory}\n\n{body}");
        // What `[select]` chooses does not follow from the config.
        let own = plan.selection.as_ref().map(|swept| &swept.runs);
        let own = own.unwrap_or(&plan.runs).iter();
        let own: Vec<&str> = own.map(|run| run.job.run_id.as_str()).collect();
        let first = id_of(&text);
        if let Ok(kept) = read_one(&experiment.join(CONFIGS_DIR), &first)
            && own.iter().any(|run| !kept.runs.contains_key(*run))
        {
            let runs = id_of(&own.join(" "));
            text = format!("# {first} again, of other files: runs {runs}\n{text}");
        }
        let name = plan.path.file_name().unwrap_or_default().to_string_lossy();
        let selected = plan.runs.iter().map(|run| &run.job);
        let selected = selected.filter_map(|job| Some((job.run_id.clone(), job.selected.clone()?)));
        let halves = plan.all_runs().map(|run| &run.job);
        let halves = halves.filter_map(|job| Some((job.run_id.clone(), job.half_of.clone()?)));
        let methods = plan.selection.iter().flat_map(|swept| &swept.methods);
        let unchosen = methods.flat_map(|method| method.tried.iter().skip(1));
        let config = Self {
            id: id_of(&text),
            file: excerpt(&name),
            title: plan.title.clone(),
            order: plan.order.clone(),
            variants: plan.variants.clone(),
            claims: plan.claims.clone(),
            assertions: plan.assertions,
            runs: plan
                .all_runs()
                .map(|run| (run.job.run_id.clone(), run.job.labels.clone()))
                .collect(),
            selected: Some(selected.collect()),
            halves: Some(halves.collect()),
            surplus: unchosen.map(|tried| tried.runs.len()).sum(),
            table: serde_json::to_value(&plan.table).unwrap_or_default(),
        };
        Ok((config, text))
    }

    /// What of it a report depends on: title, order of rows, claims and assertions.
    pub fn reads(&self) -> (&str, Vec<String>, &Claims, bool) {
        let order = self.order.iter().chain(&self.variants).cloned().collect();
        (&self.title, order, &self.claims, self.assertions)
    }

    /// Whether a record is of one of the runs, or evaluates one of them.
    pub fn has(&self, record: &RunRecord) -> bool {
        self.runs.contains_key(run_of(record))
    }

    /// Gives records the labels they have in this config, of which run they are half, and what it
    /// chose: a run shared by two configs may be recorded with those of the other.
    pub fn label(&self, records: &mut [RunRecord]) {
        for record in records {
            let halves = self.halves.as_ref();
            let half_of = halves.map(|all| all.get(run_of(record)).cloned());
            if let Some(half_of) = half_of.filter(|half_of| *half_of != record.half_of) {
                record.change(|record| record.half_of = half_of);
            }
            let selected = self.selected.as_ref();
            let selected = selected.filter(|_| record.evaluation_of.is_none());
            let selected = selected.map(|all| all.get(&record.run_id).cloned());
            if let Some(selected) = selected.filter(|selected| *selected != record.selected) {
                record.change(|record| record.selected = selected);
            }
            let mut labels = self.runs.get(run_of(record)).cloned();
            // A later evaluation may have been asked for other values of [eval].
            let own = record
                .labels
                .iter()
                .filter(|own| own.key.starts_with("eval."));
            for own in own.filter(|_| record.evaluation_of.is_some()) {
                let mut labels = labels.iter_mut().flatten();
                let label = labels.find(|label| label.key == own.key);
                label.into_iter().for_each(|label| label.clone_from(own));
            }
            if let Some(labels) = labels.filter(|labels| *labels != record.labels) {
                record.change(|record| record.labels = labels);
            }
        }
    }

    /// `1a2b3c4d (x.toml)`.
    pub(super) fn name(&self) -> String {
        format!("{} ({})", self.id, self.file)
    }
}

/// The run a record is of; for a later evaluation, the run it evaluates.
pub(super) fn run_of(record: &RunRecord) -> &str {
    record.evaluation_of.as_deref().unwrap_or(&record.run_id)
}

fn id_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..ID_DIGITS].to_owned()
}

/// Writes the config of a plan beside the runs of its experiment. Files that are there already stay
/// as they are.
///
/// # Errors
///
/// [`Exit::Resources`](support::exit::Exit::Resources) if they cannot be written.
pub fn write(disk: &dyn Disk, experiment: &Path, plan: &Plan) -> Result<(), Failure> {
    let (config, text) = Config::of(experiment, plan)?;
    let list = serde_json::to_vec_pretty(&config).map_err(Failure::bug)?;
    let directory = experiment.join(CONFIGS_DIR);
    disk.create_dirs(&directory)?;
    disk.remove_abandoned(&directory);
    for (extension, bytes) in [("toml", text.as_bytes()), ("json", &list)] {
        let path = directory.join(format!("{}.{extension}", config.id));
        let known = rundir::read::bounded(&path, bytes.len() as u64).ok();
        if known.as_deref() != Some(bytes) {
            disk.write_whole(&path, bytes)?;
        }
    }
    Ok(())
}

/// The file of a config kept in an experiment's directory.
pub fn path(experiment: &Path, id: &str) -> PathBuf {
    experiment.join(CONFIGS_DIR).join(format!("{id}.toml"))
}

/// The order of lines and rows in the report of an experiment of one config; empty for several.
pub fn order(experiment: &Path) -> Vec<String> {
    match read(experiment).0.as_slice() {
        [config] => config.reads().1,
        _ => Vec::new(),
    }
}

/// The configs kept in an experiment's directory, by id, and notes on those that cannot be used.
pub fn read(experiment: &Path) -> (Vec<Config>, Vec<String>) {
    let directory = experiment.join(CONFIGS_DIR);
    let is_id =
        |stem: &str| stem.len() == ID_DIGITS && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    let entries = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // By their lists: a config without one was cut off by a crash.
    let stems = names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()));
    let mut ids: Vec<String> = stems.filter(|stem| is_id(stem)).collect();
    ids.sort();
    let mut unusable = Vec::new();
    if ids.len() > MAX_CONFIGS {
        unusable.push(format!(
            "{} holds {} configs; the first {MAX_CONFIGS} are read",
            directory.display(),
            ids.len()
        ));
        ids.truncate(MAX_CONFIGS);
    }
    let mut configs = Vec::new();
    for id in ids {
        match read_one(&directory, &id) {
            Ok(config) => configs.push(config),
            Err(reason) => unusable.push(format!(
                "config {id} in {} cannot be used: {reason}",
                directory.display()
            )),
        }
    }
    (configs, unusable)
}

fn read_one(directory: &Path, id: &str) -> Result<Config, String> {
    let bounded = |extension: &str, most| {
        let path = directory.join(format!("{id}.{extension}"));
        rundir::read::bounded(&path, most).map_err(|error| format!("{error:#}"))
    };
    let list = bounded("json", MAX_LIST_BYTES)?;
    let mut config: Config =
        serde_json::from_slice(&list).map_err(|error| format!("{id}.json: {error}"))?;
    let text = String::from_utf8(bounded("toml", MAX_CONFIG_BYTES)?)
        .map_err(|_| format!("{id}.toml is not UTF-8"))?;
    if config.id != id || id_of(&text) != id {
        return Err(format!(
            "{id}.toml was changed: its hash is {}",
            id_of(&text)
        ));
    }
    let table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("{id}.toml: {}", error.message()))?;
    config.table = serde_json::to_value(table).unwrap_or_default();
    Ok(config)
}

/// The config that `--config` names: an id, or the beginning of one, of those kept in the
/// experiment's directory, or a config file.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if it names none or several of them, or a file
/// that cannot be planned.
pub fn named(experiment: &Path, name: &str) -> Result<Config, Failure> {
    let (mut configs, unusable) = read(experiment);
    // A kept config is read with its list: its relative paths do not start from where it is kept.
    let path = Path::new(name);
    let kept = path
        .parent()
        .is_some_and(|directory| directory.ends_with(CONFIGS_DIR));
    let stem = path
        .file_stem()
        .filter(|_| kept)
        .map(|stem| stem.to_string_lossy().into_owned());
    let wanted = stem
        .filter(|stem| configs.iter().any(|config| config.id == *stem))
        .unwrap_or_else(|| name.to_owned());
    let matches = configs
        .iter()
        .filter(|config| !wanted.is_empty() && config.id.starts_with(&wanted))
        .count();
    if matches == 1 {
        configs.retain(|config| config.id.starts_with(&wanted));
        return Ok(configs.remove(0));
    }
    if matches == 0 && path.is_file() {
        let plan = crate::plan(path, &[])?;
        let config = Config::of(experiment, &plan)?.0;
        // The kept one knows what `[select]` chose.
        let kept = configs.iter().position(|kept| kept.id == config.id);
        return match (kept, &plan.selection) {
            (Some(kept), _) => Ok(configs.remove(kept)),
            (None, None) => Ok(config),
            (None, Some(_)) => Err(never_chosen(name, &configs)),
        };
    }
    let problem = if matches > 1 {
        format!("is the beginning of {matches} ids")
    } else {
        "names neither a config kept there nor a file".into()
    };
    let allowed = match kept_names(&configs) {
        None => "a config file".to_owned(),
        Some(names) => format!("a config file, or one of {names}"),
    };
    let notes: String = unusable
        .iter()
        .map(|note| format!("\n  = note: {note}"))
        .collect();
    let help = format!(
        "`longreach report {}` lists the configs its records belong to",
        quoted(&experiment.to_string_lossy())
    );
    Err(Failure::config(format!("--config {name}: {problem}"))
        .with_allowed(format!("{allowed}{notes}"))
        .with_help(help))
}

/// The first names of some configs; none of none.
fn kept_names(configs: &[Config]) -> Option<String> {
    let names: Vec<String> = configs.iter().map(Config::name).collect();
    (!names.is_empty()).then(|| first_of(&names, MAX_LISTED))
}

/// A config with `[select]` that was not run here: which of its runs are the result is not known.
fn never_chosen(name: &str, configs: &[Config]) -> Failure {
    let allowed = kept_names(configs).unwrap_or_else(|| "none: no config is kept here".to_owned());
    Failure::config(format!(
        "--config {name}: it has [select] and was not run here as it is, so that its chosen values \
         are not known"
    ))
    .with_allowed(allowed)
    .with_help(format!(
        "`longreach run {}` chooses them, or name the id of a config with overrides",
        quoted(name)
    ))
}
