//! The "Conditions" of a report: facts that hold for all runs, and the config of each experiment as
//! TOML that `longreach run` accepts.
//!
//! The config is put together from resolved specs: what all runs share is written out, what they
//! differ in becomes the axes that their labels name. Settings that differ without being an axis
//! follow from the axes (a table's size from the training length) and are left out. A variant's
//! settings that depend on the test length were `"auto"`. Where runs of an experiment are not one
//! product of axes, comments say so.

use crate::analysis::Setting;
use crate::groups::TRAINED;
use crate::identity::{definitions, trained_encoding, warm_start};
use crate::record::{RunRecord, RunStatus};
use crate::{table, text, toml_text};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Values of one axis, and axes: configs of ours have a tenth of it.
const MOST_VALUES: usize = 1000;

/// Keys whose numbers depend on the test length where a config says `"auto"`.
const AUTOMATIC: [&str; 1] = ["factor"];

/// The config of one experiment.
pub(crate) struct Config {
    pub experiment: String,
    /// TOML, with comments on what it leaves out at its top.
    pub toml: String,
    /// Whether it leaves out nothing.
    pub is_whole: bool,
}

impl Config {
    /// What the TOML is, in a sentence or two.
    pub(crate) fn about(&self) -> String {
        let rest = if self.is_whole {
            "longreach run accepts it and plans the same runs."
        } else {
            "Its first lines say what it leaves out."
        };
        format!("Put together from the records, every default filled in. {rest}")
    }
}

/// What the numbers depend on, each thing once.
pub(crate) fn facts(records: &[&RunRecord], settings: &[Setting<'_>]) -> Vec<(String, String)> {
    let each = |value: &dyn Fn(&RunRecord) -> Option<String>| -> String {
        let mut seen: Vec<String> = Vec::new();
        for text in records.iter().filter_map(|r| value(r)) {
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        table::list(&seen, 6)
    };
    let span = |value: &dyn Fn(&RunRecord) -> u64| -> String {
        let (low, high) = records
            .iter()
            .map(|r| value(r))
            .fold((u64::MAX, 0), |(a, b), v| (a.min(v), b.max(v)));
        if low == high {
            table::thousands(low)
        } else {
            format!("{} to {}", table::thousands(low), table::thousands(high))
        }
    };
    let mut seeds: Vec<u64> = records.iter().map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let methods: usize = settings.iter().map(|s| s.methods.len()).sum();
    let runs = records.iter().filter(|r| r.evaluation_of.is_none()).count();
    let later = records.len() - runs;
    let later = if later == 0 {
        String::new()
    } else {
        format!(", {later} later evaluations")
    };
    let diverged = records
        .iter()
        .filter(|r| r.status == RunStatus::Diverged)
        .count();
    let corpus = each(&|r| {
        let c = r.task.corpus.as_ref()?;
        Some(format!(
            "{}: {} files, {} bytes to train on, {} to test on, blake3 {}",
            c.source,
            table::thousands(c.files as u64),
            table::thousands(c.train_bytes),
            table::thousands(c.valid_bytes),
            c.blake3
        ))
    });
    let rows = [
        ("experiments", each(&|r| Some(r.experiment.clone()))),
        (
            "runs",
            format!("{runs} ({diverged} diverged), {methods} methods{later}"),
        ),
        ("seeds", table::list(&seeds, 12)),
        ("steps", span(&|r| r.train.steps)),
        ("tokens trained on", span(&|r| r.train.tokens)),
        ("parameters", span(&|r| r.model.parameters)),
        ("corpus", corpus),
        ("device", each(&|r| Some(r.environment.device.clone()))),
        ("commit", each(&|r| Some(r.environment.commit.clone()))),
        (
            "version",
            each(&|r| {
                Some(format!(
                    "longreach {}, burn {}",
                    r.environment.version, r.environment.burn
                ))
            }),
        ),
    ];
    rows.into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| (name.into(), text))
        .collect()
}

/// The config of every experiment that has a spec.
pub(crate) fn configs(records: &[&RunRecord]) -> Vec<Config> {
    let mut by_experiment: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for run in records.iter().filter(|run| run.evaluation_of.is_none()) {
        by_experiment.entry(&run.experiment).or_default().push(run);
    }
    let one = |(name, runs): (&str, Vec<&RunRecord>)| {
        let (toml, is_whole) = config(name, &runs);
        Config {
            experiment: text::name(name, 60),
            toml,
            is_whole,
        }
    };
    by_experiment.into_iter().map(one).collect()
}

/// One experiment's config, and whether it leaves out nothing. `runs`: not empty.
fn config(name: &str, runs: &[&RunRecord]) -> (String, bool) {
    let mut comments = Vec::new();
    let specs: Vec<Map<String, Value>> = runs.iter().map(|run| run.method_spec()).collect();
    let sections: Vec<Value> = specs.iter().map(config_shape).collect();
    let mut base =
        common(&sections.iter().collect::<Vec<_>>()).unwrap_or_else(|| Value::Object(Map::new()));
    let axes = axes(runs, &sections, &mut comments);
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
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let methods: BTreeSet<String> = sections.iter().map(Value::to_string).collect();
    if methods.len() * seeds.len() > runs.len() {
        comments.push("Not every method was run with every seed.".into());
    }
    (
        print(name, &seeds, &base, &axes, &variants, &comments),
        comments.is_empty(),
    )
}

/// A resolved spec in the shape of a config, without variants and what follows from other keys.
fn config_shape(spec: &Map<String, Value>) -> Value {
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

/// A variant as a config writes it.
struct Written {
    name: String,
    when: Option<Value>,
    set: Option<Value>,
    positions: Option<Value>,
}

fn variants(
    runs: &[&RunRecord],
    specs: &[Map<String, Value>],
    comments: &mut Vec<String>,
) -> Vec<Written> {
    let mut names: Vec<&str> = Vec::new();
    let defined: Vec<_> = specs
        .iter()
        .map(|spec| {
            spec.get("eval")
                .and_then(Value::as_object)
                .map(definitions)
                .unwrap_or_default()
        })
        .collect();
    for own in &defined {
        // Every method's variants keep their order.
        let mut at = 0;
        for name in own
            .iter()
            .map(|d| d.variant)
            .filter(|name| *name != TRAINED)
        {
            let known = names.iter().position(|known| *known == name);
            at = known.unwrap_or_else(|| {
                names.insert(at, name);
                at
            }) + 1;
        }
    }
    let mut out = Vec::new();
    for name in names {
        let (mut wholes, mut sets, mut positions, mut with, mut without) =
            (vec![], vec![], vec![], vec![], vec![]);
        let mut is_whole = false;
        for ((run, spec), defined) in runs.iter().zip(specs).zip(&defined) {
            let own: Vec<_> = defined.iter().filter(|d| d.variant == name).collect();
            let raw = raw_encoding(run, spec);
            if own.is_empty() {
                without.push(raw);
                continue;
            }
            with.push(raw);
            let trained = trained_encoding(spec).cloned().unwrap_or(Value::Null);
            let whole = merged(&own.iter().map(|d| d.encoding).collect::<Vec<_>>());
            match whole.as_ref().map(|whole| change(&trained, whole)) {
                Some(Some(set)) => sets.push(set),
                _ => is_whole = true,
            }
            wholes.extend(whole);
            positions.extend(merged(
                &own.iter().filter_map(|d| d.positions).collect::<Vec<_>>(),
            ));
        }
        let chosen = if is_whole { &wholes } else { &sets };
        let set = merged(&chosen.iter().collect::<Vec<_>>());
        let when = when(&with, &without);
        if set.is_none() || when.is_none() {
            comments.push(format!(
                "The variant {} differs by method: see the methods table.",
                text::name(name, 60)
            ));
            continue;
        }
        out.push(Written {
            name: name.to_owned(),
            when: when.flatten(),
            set: set.filter(|set| set.as_object().is_some_and(|set| !set.is_empty())),
            positions: merged(&positions.iter().collect::<Vec<_>>()),
        });
    }
    out
}

/// The encoding's table as the config wrote it, which `when` is compared with.
fn raw_encoding(run: &RunRecord, spec: &Map<String, Value>) -> Map<String, Value> {
    let mut out = match trained_encoding(spec) {
        Some(Value::Object(map)) => map.clone(),
        _ => Map::new(),
    };
    for label in &run.labels {
        if let ("model.pe", Value::Object(map)) = (label.key.as_str(), &label.value) {
            out = map.clone();
        }
    }
    for label in &run.labels {
        if let Some(key) = label
            .key
            .strip_prefix("model.pe.")
            .filter(|key| !key.contains('.'))
        {
            out.insert(key.into(), label.value.clone());
        }
    }
    out.retain(|_, value| !value.is_null());
    out
}

/// Keys and values that the encodings with a variant have in common and none of the others has:
/// `Some(None)` where all have the variant, none where nothing tells them apart.
fn when(with: &[Map<String, Value>], without: &[Map<String, Value>]) -> Option<Option<Value>> {
    if without.is_empty() {
        return Some(None);
    }
    let (first, others) = with.split_first()?;
    let shared = first
        .iter()
        .filter(|(key, value)| others.iter().all(|other| other.get(*key) == Some(value)));
    let shared: Map<String, Value> = shared
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let applies = |when: &Map<String, Value>, pe: &Map<String, Value>| {
        when.iter().all(|(key, value)| pe.get(key) == Some(value))
    };
    let kind: Map<String, Value> = shared
        .iter()
        .filter(|(key, _)| *key == "kind")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let fits =
        |when: &Map<String, Value>| !when.is_empty() && without.iter().all(|pe| !applies(when, pe));
    [kind, shared]
        .into_iter()
        .find(fits)
        .map(|when| Some(Value::Object(when)))
}

/// One table for the values at all lengths and of all methods: what differs was `"auto"` or follows
/// from another key. None where there is none or the shapes differ.
fn merged(values: &[&Value]) -> Option<Value> {
    let (first, others) = values.split_first()?;
    match first {
        Value::Object(map) => {
            if map.contains_key("kind")
                && others
                    .iter()
                    .any(|other| other.get("kind") != map.get("kind"))
            {
                return None;
            }
            let mut keys: Vec<&String> = Vec::new();
            for key in values
                .iter()
                .filter_map(|value| value.as_object())
                .flat_map(Map::keys)
            {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            let mut out = Map::new();
            for key in keys {
                let all: Vec<&Value> = values.iter().filter_map(|value| value.get(key)).collect();
                let is_same = all.len() == values.len() && all.iter().all(|value| *value == all[0]);
                let value = match all[0] {
                    value if is_same => Some(value.clone()),
                    // A factor of 1 may be left out as the default.
                    Value::Number(_) if AUTOMATIC.contains(&key.as_str()) => Some("auto".into()),
                    Value::Object(_) | Value::Array(_) if all.len() == values.len() => {
                        Some(merged(&all)?)
                    }
                    _ => None,
                };
                out.extend(value.map(|value| (key.clone(), value)));
            }
            Some(Value::Object(out))
        }
        Value::Array(items) => {
            let lists: Option<Vec<&Vec<Value>>> = others
                .iter()
                .map(|other| other.as_array().filter(|o| o.len() == items.len()))
                .collect();
            let lists = lists?;
            let each = items.iter().enumerate().map(|(i, item)| {
                let all: Vec<&Value> = std::iter::once(item)
                    .chain(lists.iter().map(|list| &list[i]))
                    .collect();
                if all.iter().all(|value| *value == item) {
                    Some(item.clone())
                } else {
                    merged(&all)
                }
            });
            each.collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        _ => others
            .iter()
            .all(|other| other == first)
            .then(|| (*first).clone()),
    }
}

/// The keys of an encoding that a variant changes; none if it replaces the encoding.
fn change(trained: &Value, variant: &Value) -> Option<Value> {
    let (Value::Object(own), Value::Object(theirs)) = (trained, variant) else {
        return None;
    };
    if own.get("kind") != theirs.get("kind")
        || own
            .iter()
            .any(|(key, value)| !value.is_null() && !theirs.contains_key(key))
    {
        return None;
    }
    let changed = theirs
        .iter()
        .filter(|(key, value)| own.get(*key) != Some(value));
    Some(Value::Object(
        changed
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    ))
}

fn print(
    name: &str,
    seeds: &BTreeSet<u64>,
    base: &Value,
    axes: &[(String, Vec<Value>)],
    variants: &[Written],
    comments: &[String],
) -> String {
    let mut out = String::new();
    for comment in comments {
        let _ = writeln!(out, "# {}", text::printable(comment));
    }
    let list = seeds
        .iter()
        .map(u64::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let _ = write!(
        out,
        "name = {}\nseeds = [{list}]\n",
        toml_text::string(name)
    );
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
