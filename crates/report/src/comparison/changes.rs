//! How configs and builds differ.

use records::analysis::groups::Group;
use records::record::RunRecord;
use records::spec::{definitions, follows, settings};
use records::text;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of variants start with this.
const VARIANTS: &str = "eval.variants.";

/// A setting with different values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its key in a config, or a fact about the build.
    pub key: String,
    /// Its value in the first set; none where it is unset.
    pub first: Option<String>,
    /// Its value in the second set.
    pub second: Option<String>,
    /// The methods that it is about; empty for all.
    pub methods: Vec<String>,
}

/// The number of settings that are equal for every pair of methods, and those that differ. Settings
/// that follow from others are left out where others differ too.
pub(super) fn config_changes(pairs: &[(&Group<'_>, &Group<'_>)]) -> (usize, Vec<Change>) {
    let mut equal: Option<BTreeSet<String>> = None;
    let mut changes: Vec<Change> = Vec::new();
    for (first, second) in pairs {
        let (mut ours, mut theirs) = (leaves(first), leaves(second));
        fold_lone_variants(&mut ours, &mut theirs);
        let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        let (same, differ): (Vec<&String>, Vec<&String>) = keys
            .into_iter()
            .partition(|key| ours.get(*key) == theirs.get(*key));
        let same: BTreeSet<String> = same.into_iter().cloned().collect();
        equal = Some(match equal {
            None => same,
            Some(before) => before.intersection(&same).cloned().collect(),
        });
        let all = || differ.iter().map(|key| key.as_str());
        for key in differ.iter().filter(|key| !follows(key, all())) {
            let value = |side: &BTreeMap<String, String>| {
                side.get(*key).map(|value| text::name(value, 120))
            };
            let (a, b) = (value(&ours), value(&theirs));
            let known = changes
                .iter_mut()
                .find(|c| c.key == **key && (&c.first, &c.second) == (&a, &b));
            match known {
                Some(change) => change.methods.push(first.named.title.clone()),
                None => changes.push(Change {
                    key: text::name(key, 120),
                    first: a,
                    second: b,
                    methods: vec![first.named.title.clone()],
                }),
            }
        }
    }
    for change in &mut changes {
        if change.methods.len() == pairs.len() {
            change.methods.clear();
        }
    }
    // What all methods share first.
    changes.sort_by(|a, b| {
        let of = |c: &Change| (!c.methods.is_empty(), c.methods.clone(), c.key.clone());
        of(a).cmp(&of(b))
    });
    (equal.map_or(0, |equal| equal.len()), changes)
}

/// The settings of a method, with those of the variants of later evaluations. What a variant changes
/// is named once, without its test length, and only where it is not what the trained encoding has.
fn leaves(group: &Group<'_>) -> BTreeMap<String, String> {
    let all = settings(&group.spec);
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, value) in all.iter().filter(|(key, _)| !key.starts_with(VARIANTS)) {
        out.entry(key.clone()).or_default().insert(value.clone());
    }
    let eval = group.spec.get("eval").and_then(Value::as_object);
    let own = eval.map(definitions).unwrap_or_default().into_iter();
    let own = own.map(|definition| (definition.variant, definition));
    let later = group.variants.iter().filter(|variant| variant.is_later);
    let later = later.flat_map(|variant| {
        let of_lengths = variant.by_len.values();
        of_lengths.map(|definition| (variant.name.as_str(), *definition))
    });
    for (name, definition) in own.chain(later) {
        let start = format!("{VARIANTS}{name}.{}.", definition.test_len);
        for (key, value) in definition.settings(name) {
            let path = key.strip_prefix(&start).unwrap_or_default();
            if all.get(&format!("model.pe.{path}")) != Some(&value) {
                let key = format!("{VARIANTS}{name}.{path}");
                out.entry(key).or_default().insert(value);
            }
        }
    }
    out.into_iter()
        .map(|(key, values)| {
            let values: Vec<String> = values.into_iter().collect();
            (key, values.join(", "))
        })
        .collect()
}

/// Makes one setting of each variant that only one side has: its keys would each be unset on the
/// other.
fn fold_lone_variants(ours: &mut BTreeMap<String, String>, theirs: &mut BTreeMap<String, String>) {
    let names = |side: &BTreeMap<String, String>| -> BTreeSet<String> {
        side.keys().filter_map(|key| variant(key)).collect()
    };
    let (first, second) = (names(ours), names(theirs));
    for name in first.symmetric_difference(&second) {
        for side in [&mut *ours, &mut *theirs] {
            let is_own = |key: &String| variant(key).as_ref() == Some(name);
            let own = side.iter().filter(|(key, _)| is_own(key));
            let own = own.map(|(key, value)| format!("{} = {value}", &key[name.len() + 1..]));
            let own: Vec<String> = own.collect();
            if !own.is_empty() {
                side.retain(|key, _| !is_own(key));
                side.insert(name.clone(), own.join("; "));
            }
        }
    }
}

/// `eval.variants.NAME` of a key below it.
fn variant(key: &str) -> Option<String> {
    let (name, _) = key.strip_prefix(VARIANTS)?.split_once('.')?;
    Some(format!("{VARIANTS}{name}"))
}

/// What the records of two sets say about their builds and devices, where that differs.
pub(super) fn environment_changes(first: &[&RunRecord], second: &[&RunRecord]) -> Vec<Change> {
    type Fact = (&'static str, fn(&RunRecord) -> String);
    let facts: [Fact; 5] = [
        ("commit", |r| r.environment.commit.clone()),
        ("version", |r| r.environment.version.clone()),
        ("burn", |r| r.environment.burn.clone()),
        ("device", |r| r.environment.device.clone()),
        ("runs trained together", |r| {
            r.environment.runs_together.unwrap_or(1).to_string()
        }),
    ];
    let values = |records: &[&RunRecord], of: fn(&RunRecord) -> String| -> String {
        let all: BTreeSet<String> = records.iter().map(|r| text::name(&of(r), 40)).collect();
        text::list(&all.into_iter().collect::<Vec<String>>(), 6)
    };
    let changes = facts.into_iter().map(|(key, of)| Change {
        key: key.to_owned(),
        first: Some(values(first, of)),
        second: Some(values(second, of)),
        methods: Vec::new(),
    });
    changes.filter(|c| c.first != c.second).collect()
}
