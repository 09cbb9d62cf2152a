//! Selects the runs of a command: by directories of runs and experiments, prefixes of run ids, and
//! filters on resolved values.

use crate::plan::keys::add_defaults;
use crate::runs_on_disk::files::read_job;
pub use crate::runs_on_disk::named::{Run, distinct};
use crate::runs_on_disk::named::{list, named};
use crate::spec::{Job, RunSpec};
use config::diagnostic::closest_first;
use schema::text::excerpt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use support::exit::Failure;
use support::units::{count, first_of};

/// Values of a key in a list of possible ones.
const MAX_VALUES: usize = 20;

/// The runs that some paths name and that all filters let through, in the order of the paths, each
/// once. `note` receives a line about runs that are left out because they are not recorded yet.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if a path names nothing or an experiment without a
/// recorded run; [`Exit::Config`](support::exit::Exit::Config) if it names several runs or
/// experiments at once, or a filter is not `key=value`, names no key, or no run passes.
pub fn select(
    paths: &[PathBuf],
    filters: &[String],
    mut note: impl FnMut(&str),
) -> Result<Vec<Run>, Failure> {
    let filters = filters
        .iter()
        .map(|text| Filter::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let mut directories = Vec::new();
    for path in paths {
        directories.extend(named(path, &mut note)?);
    }
    // Two spellings of a path may name one run.
    let mut seen = BTreeSet::new();
    directories.retain(|directory| {
        seen.insert(
            directory
                .canonicalize()
                .unwrap_or_else(|_| directory.clone()),
        )
    });
    let runs = directories.into_iter().map(|directory| Run {
        job: read_job(&directory),
        directory,
    });
    filtered(runs.collect(), &filters, &mut note)
}

/// A `key=value` that a run must have.
struct Filter {
    text: String,
    key: String,
    /// The value as TOML, if it is that.
    value: Option<Value>,
    /// The value as it was written.
    raw: String,
}

impl Filter {
    fn parse(text: &str) -> Result<Self, Failure> {
        let (key, raw) = text
            .split_once('=')
            .map(|(key, raw)| (key.trim(), raw.trim()))
            .unwrap_or_default();
        if key.is_empty() || raw.is_empty() {
            let help = "write --where pe=rope, --where seed=0 or --where model.pe.base=10000";
            return Err(
                Failure::config(format!("--where {text}: is not a key with a value"))
                    .with_allowed("KEY=VALUE")
                    .with_help(help),
            );
        }
        let key = match key {
            "pe" => "model.pe.kind",
            "seeds" => "seed",
            key => key,
        };
        // A bare word is no TOML value: it is compared as text.
        let parsed = format!("value = {raw}").parse::<toml::Table>().ok();
        let value = parsed.and_then(|table| serde_json::to_value(table.get("value")?).ok());
        Ok(Self {
            text: text.to_owned(),
            key: key.to_owned(),
            value,
            raw: raw.to_owned(),
        })
    }

    /// Checks that some run has the key, and some run the value.
    fn check(&self, known: &[&Value]) -> Result<(), Failure> {
        let refuse = |problem: &str, allowed: &str, help: &str| {
            Err(Failure::config(format!("--where {}: {problem}", self.text))
                .with_allowed(allowed)
                .with_help(help))
        };
        let values: BTreeSet<String> = known
            .iter()
            .flat_map(|view| self.found(view))
            .map(plain)
            .collect();
        if values.is_empty() {
            let keys: BTreeSet<String> = known.iter().flat_map(|view| keys(view)).collect();
            let mut keys: Vec<String> = keys.into_iter().collect();
            closest_first(&self.key, &mut keys);
            let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
            // Stable: keys that end as the one asked for come first, each group by closeness.
            keys.sort_by_key(|key| last(key) != last(&self.key));
            let help = "keys are those of a config, such as model.pe.base; `pe` is short for \
                        model.pe.kind";
            return refuse("none of the runs has this key", &list(&keys), help);
        }
        if !known.iter().any(|view| self.passes(view)) {
            let values: Vec<String> = values.into_iter().collect();
            let allowed = format!("{} = {}", self.key, first_of(&values, MAX_VALUES));
            let problem = "none of the runs has this value";
            return refuse(problem, &allowed, "write one of these values");
        }
        Ok(())
    }

    /// The values of a run at the key; more than one only for labels.
    fn found<'a>(&self, view: &'a Value) -> Vec<&'a Value> {
        if self.key == "label" {
            return view
                .get("label")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .collect();
        }
        self.key
            .split('.')
            .try_fold(view, |value, part| value.get(part))
            .filter(|value| !value.is_null())
            .into_iter()
            .collect()
    }

    fn passes(&self, view: &Value) -> bool {
        self.found(view).into_iter().any(|found| {
            self.value.as_ref().is_some_and(|value| same(value, found)) || self.is_text(found)
        })
    }

    /// Whether a text, or the kind of a table, is what was written.
    fn is_text(&self, found: &Value) -> bool {
        let text = found.as_str().or_else(|| found.get("kind")?.as_str());
        let wanted = self
            .value
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or(&self.raw);
        text.is_some_and(|text| text == wanted || text == self.raw)
    }
}

/// Whether a value is the one asked for: numbers by size, of tables the keys that were given.
fn same(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        // 1 and 1.0 are different numbers in JSON, and one to the user.
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => a
            .iter()
            .all(|(key, value)| b.get(key).is_some_and(|found| same(value, found))),
        (a, b) => a == b,
    }
}

/// The resolved values of a run under the keys of a config, defaults included.
fn view(job: &Job) -> Value {
    let RunSpec {
        task,
        model,
        train,
        eval,
        seed,
        ..
    } = &job.spec;
    let mut view = json!({
        "experiment": job.experiment, "seed": seed, "task": task, "model": model, "train": train,
        "eval": eval,
        "label": job.labels.iter().map(|label| &label.text).collect::<Vec<_>>(),
    });
    let variants = eval.variants.iter().map(|variant| &variant.name);
    view["eval"]["variants"] = json!(variants.collect::<Vec<_>>());
    for section in ["model", "train", "eval"] {
        if let Some(table) = view[section].as_object_mut() {
            add_defaults(section, table);
        }
    }
    view
}

/// The runs that pass all filters; those whose job cannot be read do not.
fn filtered(
    runs: Vec<Run>,
    filters: &[Filter],
    note: &mut impl FnMut(&str),
) -> Result<Vec<Run>, Failure> {
    if filters.is_empty() {
        return Ok(runs);
    }
    for failure in runs.iter().filter_map(|run| run.job.as_ref().err()) {
        note(&format!("note: left out: {}", failure.message));
    }
    let views: Vec<Option<Value>> = runs
        .iter()
        .map(|run| run.job.as_ref().ok().map(view))
        .collect();
    let known: Vec<&Value> = views.iter().flatten().collect();
    for filter in filters {
        filter.check(&known)?;
    }
    let passes = |view: &Option<Value>| {
        view.as_ref()
            .is_some_and(|view| filters.iter().all(|filter| filter.passes(view)))
    };
    let passing: Vec<Run> = runs
        .into_iter()
        .zip(&views)
        .filter(|(_, view)| passes(view))
        .map(|(run, _)| run)
        .collect();
    if passing.is_empty() {
        return Err(none_has_all(filters, &known));
    }
    Ok(passing)
}

/// Every filter selects runs, but no run passes all of them.
fn none_has_all(filters: &[Filter], known: &[&Value]) -> Failure {
    let passing = |filter: &Filter| known.iter().filter(|view| filter.passes(view)).count();
    let numbers: BTreeMap<&str, usize> = filters
        .iter()
        .map(|filter| (filter.text.as_str(), passing(filter)))
        .collect();
    let each: Vec<String> = numbers
        .iter()
        .map(|(text, n)| format!("{text} ({})", count(*n, "run")))
        .collect();
    let help = "all filters must hold; give fewer, or call the command once for each";
    Failure::config(format!(
        "--where: each of these selects runs, but no run has all of them\n  = note: {}\n  = \
             help: {help}",
        each.join(", ")
    ))
}

/// A value in a list of possible ones.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => excerpt(text),
        other => crate::spec::differences::short(&other.to_string()),
    }
}

/// Dotted keys of all values that are not tables.
fn keys(view: &Value) -> Vec<String> {
    let Value::Object(map) = view else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        match value {
            Value::Object(_) => keys.extend(
                self::keys(value)
                    .into_iter()
                    .map(|inner| format!("{key}.{inner}")),
            ),
            _ => keys.push(key.clone()),
        }
    }
    keys
}
