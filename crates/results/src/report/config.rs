//! The config of an experiment, reconstructed from the resolved specs of its records as TOML that
//! `longreach run` accepts.
//!
//! Settings that all runs share are written out. Settings that differ become the axes that the
//! labels name; those that differ without being an axis follow from the axes (a table's size from
//! the training length) and are left out. Where the runs of an experiment are not one product of
//! axes, comments say so.

use super::config_variants::{Written, variants};
use super::document::Config;
use crate::analysis::roles::Roles;
use crate::record::RunRecord;
use crate::spec::{Spec, warm_start};
use crate::text;
use crate::toml_text;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Values of one axis. Real axes have a tenth of it.
const MOST_VALUES: usize = 1000;

/// The config of every experiment that has a spec.
pub(crate) fn configs(roles: &Roles<'_>) -> Vec<Config> {
    let mut by_experiment: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    let trained = roles.results.iter();
    for run in trained.filter(|run| run.evaluation_of.is_none()) {
        by_experiment.entry(&run.experiment).or_default().push(run);
    }
    let one = |(name, runs): (&str, Vec<&RunRecord>)| {
        let halves = roles.halves.iter().filter(|half| half.experiment == name);
        let halves = halves.map(|half| half.seed).collect();
        let (toml, is_whole) = config(name, &runs, &halves);
        Config {
            experiment: text::name(name, 60),
            toml,
            is_whole,
        }
    };
    by_experiment.into_iter().map(one).collect()
}

/// One experiment's config, and whether it leaves out nothing. `runs`: not empty.
/// `halves`: seeds that were also run for half the steps.
fn config(name: &str, runs: &[&RunRecord], halves: &BTreeSet<u64>) -> (String, bool) {
    let mut comments = Vec::new();
    let specs: Vec<Spec> = runs.iter().map(|run| run.method_spec()).collect();
    let sections: Vec<Value> = specs.iter().map(config_shape).collect();
    let mut base =
        common(&sections.iter().collect::<Vec<_>>()).unwrap_or_else(|| Value::Object(Map::new()));
    let axes = axes(runs, &sections, &mut comments);
    // A key that an axis sets is no part of the base.
    for (key, values) in &axes {
        remove(&mut base, &key.split('.').collect::<Vec<_>>());
        if !values.iter().all(toml_text::is_possible) {
            comments.push(format!("TOML cannot hold a value of the axis {key}."));
        }
    }
    let variants = variants(runs, &specs, &mut comments);
    if specs.iter().any(|spec| warm_start(spec).is_some()) {
        comments.push(
            "Trainings started from weights of other runs: add train.start_from, as the methods \
             table says."
                .into(),
        );
    }
    if runs.iter().any(|run| run.selected.is_some()) {
        comments.push("Values were chosen for each method; the table of choices has them.".into());
    }
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let methods: BTreeSet<String> = sections.iter().map(Value::to_string).collect();
    if methods.len() * seeds.len() > runs.len() {
        comments.push("Not every method was run with every seed.".into());
    }
    (
        print(name, [&seeds, halves], &base, &axes, &variants, &comments),
        comments.is_empty(),
    )
}

/// A resolved spec in the shape of a config, without variants and what follows from other keys.
fn config_shape(spec: &Spec) -> Value {
    let mut out = spec.clone();
    out.shift_remove("corpus_blake3");
    if let Some(Value::Object(model)) = out.get_mut("model") {
        model.shift_remove("vocab_size");
    }
    if let Some(Value::Object(train)) = out.get_mut("train") {
        train.shift_remove("seq_len");
        train.shift_remove("start_from");
        for stage in train
            .get_mut("stages")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Value::Object(stage) = stage {
                stage.shift_remove("seq_len");
            }
        }
    }
    if let Some(Value::Object(eval)) = out.get_mut("eval") {
        eval.shift_remove("variants");
    }
    Value::Object(out)
}

/// What all values share: tables key by key, everything else whole.
fn common(values: &[&Value]) -> Option<Value> {
    let (first, others) = values.split_first()?;
    if let Value::Object(map) = first {
        let mut out = Map::new();
        for (key, value) in map {
            let beside: Option<Vec<&Value>> = others.iter().map(|other| other.get(key)).collect();
            let Some(beside) = beside else { continue };
            let all: Vec<&Value> = std::iter::once(value).chain(beside).collect();
            if let Some(value) = common(&all) {
                out.insert(key.clone(), value);
            }
        }
        // A table whose kinds differ has nothing to share: keys without their kind mean nothing.
        let has_kind = map.contains_key("kind");
        return (!has_kind || out.contains_key("kind")).then_some(Value::Object(out));
    }
    others
        .iter()
        .all(|other| other == first)
        .then(|| (*first).clone())
}

fn find<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}

fn remove(value: &mut Value, path: &[&str]) {
    match path {
        [] => {}
        [last] => {
            if let Value::Object(map) = value {
                map.shift_remove(*last);
            }
        }
        [first, rest @ ..] => {
            if let Some(inner) = value.get_mut(first) {
                remove(inner, rest);
            }
        }
    }
}

/// The axes by key, with their values as written, if the labels make them up; none where all runs
/// are seeds of one method.
fn axes(
    runs: &[&RunRecord],
    sections: &[Value],
    comments: &mut Vec<String>,
) -> Vec<(String, Vec<Value>)> {
    let methods: BTreeSet<String> = sections.iter().map(Value::to_string).collect();
    if methods.len() < 2 {
        return Vec::new();
    }
    let several = "The runs are of several configs. Settings that differ are left out; the \
                   methods table has them.";
    let keys: Vec<&str> = runs[0]
        .labels
        .iter()
        .map(|label| label.key.as_str())
        .collect();
    let is_same = |run: &&RunRecord| {
        run.labels
            .iter()
            .map(|label| label.key.as_str())
            .eq(keys.iter().copied())
    };
    // Without axes a run is labelled by the kind of its encoding, which is no value of a config.
    let is_kind = |run: &&RunRecord| matches!(&run.labels[..], [one] if one.key == "model.pe" && one.value.is_string());
    if !runs.iter().all(is_same) || keys.is_empty() || runs.iter().any(is_kind) {
        comments.push(several.into());
        return Vec::new();
    }
    let mut axes: Vec<(String, Vec<Value>)> = keys
        .iter()
        .map(|key| ((*key).to_owned(), Vec::new()))
        .collect();
    let mut combinations: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (run, section) in runs.iter().zip(sections) {
        let values: Vec<&Value> = run.labels.iter().map(|label| &label.value).collect();
        let text = values
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ");
        combinations
            .entry(text)
            .or_default()
            .insert(section.to_string());
        for ((_, known), value) in axes.iter_mut().zip(values) {
            if !known.contains(value) && known.len() < MOST_VALUES {
                known.push(value.clone());
            }
        }
    }
    // Methods with equal labels differ in something that is no axis.
    if combinations.values().any(|methods| methods.len() > 1) {
        comments.push(several.into());
    }
    let product = axes
        .iter()
        .map(|(_, values)| values.len())
        .product::<usize>();
    if product != combinations.len() {
        comments.push(format!(
            "The runs are {} of the {product} combinations of the axes.",
            combinations.len()
        ));
    }
    axes
}

fn print(
    name: &str,
    [seeds, halves]: [&BTreeSet<u64>; 2],
    base: &Value,
    axes: &[(String, Vec<Value>)],
    variants: &[Written],
    comments: &[String],
) -> String {
    let mut out = String::new();
    for comment in comments {
        let _ = writeln!(out, "# {}", text::printable(comment));
    }
    let _ = write!(
        out,
        "name = {}\nseeds = [{}]\n",
        toml_text::string(name),
        list(seeds)
    );
    if !halves.is_empty() {
        let _ = writeln!(out, "half_seeds = [{}]", list(halves));
    }
    for section in ["task", "model", "train", "eval"] {
        let Some(Value::Object(map)) = find(base, &[section]) else {
            continue;
        };
        let _ = write!(out, "\n[{section}]\n");
        for (key, value) in map
            .iter()
            .filter(|(_, value)| toml_text::is_possible(value))
        {
            let _ = writeln!(
                out,
                "{} = {}",
                toml_text::key(key),
                toml_text::inline(value)
            );
        }
    }
    for variant in variants {
        let _ = write!(
            out,
            "\n[[eval.variants]]\nname = {}\n",
            toml_text::string(&variant.name)
        );
        for (key, value) in [
            ("when", &variant.when),
            ("set", &variant.set),
            ("positions", &variant.positions),
        ] {
            if let Some(value) = value {
                let _ = writeln!(out, "{key} = {}", toml_text::inline(value));
            }
        }
    }
    if !axes.is_empty() {
        let _ = write!(out, "\n[axes]\n");
        for (key, values) in axes {
            let lines: Vec<String> = values
                .iter()
                .map(|value| format!("  {},\n", toml_text::inline(value)))
                .collect();
            let _ = write!(out, "{} = [\n{}]\n", toml_text::string(key), lines.concat());
        }
    }
    out
}

fn list(seeds: &BTreeSet<u64>) -> String {
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    seeds.join(", ")
}
