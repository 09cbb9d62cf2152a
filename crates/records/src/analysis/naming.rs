//! Names of methods: their values on the axes, and where those are equal the settings that differ.

use crate::names::{Detail, Names};
use crate::record::{Label, RunRecord};
use crate::spec::{Spec, flatten, is_derived, settings};
use crate::text::{self, short_hash};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Longest name of a method before its variant, in characters.
const LONGEST_NAME: usize = 120;

/// The names of a method.
#[derive(Clone, Debug)]
pub struct Named {
    /// In files for programs: values on the axes, and what differs where those are equal.
    pub name: String,
    /// The values on the axes without their keys, as claims and baselines may name the method.
    pub plain: String,
    /// For people: `RoPE, YaRN`.
    pub title: String,
    /// What the title is made of, uncut: the words of each label.
    pub parts: Vec<String>,
    /// The title without the base of the rotary angles, for a sweep over it.
    pub besides_base: String,
    /// What follows the title where labels are equal: ` [train.lr = 0.01]`, or nothing.
    pub apart: String,
}

/// The names of every group of a setting. `first`: a run of each group; `specs`: their identities,
/// all different within an experiment; `kinds`: names of kinds.
pub fn groups(
    first: &[&RunRecord],
    specs: &[Spec],
    kinds: Names,
    notes: &mut Vec<String>,
) -> Vec<Named> {
    let shared = shared_task_labels(first);
    let several_experiments = first
        .iter()
        .any(|run| run.experiment != first[0].experiment);
    let own = |run: &RunRecord, text: &dyn Fn(&[&Label]) -> String| {
        let labels = naming(run, &shared);
        if labels.is_empty() {
            text::name(&run.experiment, 60)
        } else {
            text(&labels)
        }
    };
    let named = |run: &RunRecord, text: &dyn Fn(&[&Label]) -> String| {
        let name = own(run, text);
        if several_experiments {
            format!("{}: {name}", text::name(&run.experiment, 60))
        } else {
            name
        }
    };
    let exactly = |labels: &[&Label]| with_keys(labels, None);
    let mut names: Vec<String> = first.iter().map(|run| named(run, &exactly)).collect();
    let plain = first.iter().map(|run| own(run, &without_keys));
    let plain: Vec<String> = plain.collect();
    let exact = names.clone();
    tell_apart(&mut names, first, specs, notes);
    // What tells equal names apart follows them.
    let apart = |at: usize| names[at].strip_prefix(exact[at].as_str());
    let titled = |at: usize, detail: Detail<'_>| {
        let words = |labels: &[&Label]| with_keys(labels, Some((kinds, detail)));
        named(first[at], &words) + apart(at).unwrap_or_default()
    };
    let each = 0..first.len();
    let brief: Vec<String> = each.clone().map(|at| titled(at, Detail::Brief)).collect();
    let told = told_paths(first, &brief);
    let detail = |at: usize| Detail::With(&told[at]);
    let titles: Vec<String> = each.map(|at| titled(at, detail(at))).collect();
    let is_alone = |title: &String| titles.iter().filter(|other| *other == title).count() == 1;
    let all = names.iter().zip(plain).zip(&titles).enumerate();
    let all = all.map(|(at, ((name, plain), title))| {
        let experiment = several_experiments.then(|| text::name(&first[at].experiment, 60));
        let labels = naming(first[at], &shared);
        let parts = words(&labels, Some((kinds, detail(at))));
        let besides: Vec<&Label> = labels.iter().copied().filter(|l| !is_base(l)).collect();
        Named {
            besides_base: with_keys(&besides, Some((kinds, detail(at)))),
            name: name.clone(),
            plain,
            // Names that words do not tell apart are exact.
            title: if is_alone(title) { title } else { name }.clone(),
            parts: experiment.into_iter().chain(parts).collect(),
            apart: apart(at).unwrap_or_default().to_owned(),
        }
    });
    all.collect()
}

/// Values on the axes in words, for lists of runs: `RoPE, base 100, lr = 0.001`.
pub fn in_words(labels: &[Label], kinds: Names) -> String {
    let labels: Vec<&Label> = labels.iter().collect();
    with_keys(&labels, Some((kinds, Detail::Told)))
}

/// For every run the settings that its title tells: those that differ where brief titles are equal.
fn told_paths(first: &[&RunRecord], brief: &[String]) -> Vec<BTreeSet<String>> {
    let leaves = |run: &&RunRecord| {
        let mut all = BTreeMap::new();
        let labels = run.labels.iter();
        labels.for_each(|label| flatten("", &label.value, &mut all));
        all
    };
    let leaves: Vec<BTreeMap<String, String>> = first.iter().map(leaves).collect();
    let told = brief.iter().zip(&leaves).map(|(title, own)| {
        let alike = brief.iter().zip(&leaves);
        let alike = alike.filter(|(other, leaves)| *other == title && *leaves != own);
        let alike: Vec<&BTreeMap<String, String>> = alike.map(|(_, leaves)| leaves).collect();
        let differs = |(path, value): &(&String, &String)| {
            alike.iter().any(|other| other.get(*path) != Some(*value))
        };
        let paths = own.iter().filter(differs).map(|(path, _)| path.clone());
        paths.collect()
    });
    told.collect()
}

/// The keys of the labels that name the methods, such as `pe` or `base, steps`; `method` where the
/// names carry their keys or the methods have different ones.
pub fn axes(runs: &[&RunRecord]) -> String {
    let shared = shared_task_labels(runs);
    let keys = |run: &RunRecord| -> Vec<String> {
        naming(run, &shared)
            .iter()
            .take(8)
            .map(|l| text::name(last(&l.key), 20))
            .collect()
    };
    let first = keys(runs[0]);
    let is_bare = |run: &RunRecord| naming(run, &shared).iter().all(|label| is_bare(label));
    let is_all = runs
        .iter()
        .all(|run| is_bare(run) && keys(run) == first && run.experiment == runs[0].experiment);
    if is_all && !first.is_empty() {
        first.join(", ")
    } else {
        "method".into()
    }
}

/// Labels of the task and of its training length that all runs of the setting share: they name the
/// setting, not the method.
fn shared_task_labels<'a>(runs: &[&'a RunRecord]) -> BTreeSet<(&'a str, &'a str)> {
    let of = |run: &'a RunRecord| {
        let is_of_task = |l: &&Label| {
            let key = l.key.as_str();
            key.starts_with("task.") || matches!(key, "task" | "train.train_len")
        };
        let labels = run.labels.iter().filter(is_of_task);
        labels
            .map(|l| (l.key.as_str(), l.text.as_str()))
            .collect::<BTreeSet<_>>()
    };
    let mut shared = runs.first().map(|run| of(run)).unwrap_or_default();
    for run in runs {
        let here = of(run);
        shared.retain(|label| here.contains(label));
    }
    shared
}

/// The labels that name a run's method: those that do not name the setting, or all if there are no
/// others.
fn naming<'r>(run: &'r RunRecord, shared: &BTreeSet<(&str, &str)>) -> Vec<&'r Label> {
    let is_shared = |l: &Label| shared.contains(&(l.key.as_str(), l.text.as_str()));
    let own: Vec<&Label> = run.labels.iter().filter(|l| !is_shared(l)).collect();
    if own.is_empty() {
        run.labels.iter().collect()
    } else {
        own
    }
}

/// Whether a label is the base of the rotary angles.
pub(super) fn is_base(label: &Label) -> bool {
    label.key.ends_with(".base")
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// Whether a value says by itself what it is: the name of an encoding, a task or another kind.
fn is_bare(label: &Label) -> bool {
    let is_table = label.value.is_object()
        || label
            .value
            .as_array()
            .is_some_and(|all| all.iter().any(|v| v.is_object()));
    is_table
        || last(&label.key) == "kind"
        || matches!(label.key.as_str(), "model.pe" | "model.positions" | "task")
}

/// `rope, base = 100`; with names of kinds `RoPE, base = 100`.
fn with_keys(labels: &[&Label], kinds: Option<(Names, Detail<'_>)>) -> String {
    schema::text::shorten(&words(labels, kinds).join(", "), LONGEST_NAME)
}

/// Each label of [`with_keys`].
fn words(labels: &[&Label], kinds: Option<(Names, Detail<'_>)>) -> Vec<String> {
    let shown = |label: &&Label| {
        let value = match kinds {
            Some((kinds, detail)) => kinds.label(label, detail),
            None => text::name(&label.text, 80),
        };
        if is_bare(label) {
            return value;
        }
        let is_unique = labels
            .iter()
            .filter(|other| last(&other.key) == last(&label.key))
            .count()
            == 1;
        let key = if is_unique {
            last(&label.key)
        } else {
            &label.key
        };
        format!("{} = {value}", text::name(key, 60))
    };
    labels.iter().take(32).map(shown).collect()
}

/// `rope, 100`
fn without_keys(labels: &[&Label]) -> String {
    let texts: Vec<String> = labels
        .iter()
        .take(32)
        .map(|l| text::name(&l.text, 80))
        .collect();
    schema::text::shorten(&texts.join(", "), LONGEST_NAME)
}

/// Gives equal names the settings that differ: the fewest that tell all of them apart, settings
/// that follow from others last.
fn tell_apart(names: &mut [String], first: &[&RunRecord], specs: &[Spec], notes: &mut Vec<String>) {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        by_name.entry(name.clone()).or_default().push(index);
    }
    for (name, members) in by_name.into_iter().filter(|(_, members)| members.len() > 1) {
        let settings: Vec<BTreeMap<String, String>> =
            members.iter().map(|&m| settings(&specs[m])).collect();
        let keys = distinguishing(&settings);
        for (at, &member) in members.iter().enumerate() {
            let part = |key: &String| {
                // A value that a spec leaves out at its default is that of the axis.
                let mut labels = first[member].labels.iter();
                let label = labels.find(|label| label.key == *key);
                let value = settings[at].get(key).or(label.map(|label| &label.text));
                // A method keeps its name beside later evaluations of other settings.
                if value.is_none() && key.starts_with("eval.") {
                    return None;
                }
                let value = value.map_or("not set", String::as_str);
                // A hash tells corpora apart by its first digits.
                let value = if last(key).ends_with("blake3") {
                    short_hash(value)
                } else {
                    value
                };
                Some(format!(
                    "{} = {}",
                    text::name(key, 80),
                    text::name(value, 60)
                ))
            };
            let parts: Vec<String> = keys.iter().filter_map(part).collect();
            if !parts.is_empty() {
                names[member] = format!("{name} [{}]", parts.join(", "));
            }
        }
        let shown: Vec<String> = keys.iter().map(|key| text::name(key, 80)).collect();
        notes.push(format!(
            "{} methods are labelled \"{name}\". They differ in {} and are shown apart.",
            members.len(),
            if shown.is_empty() {
                "their specs".into()
            } else {
                shown.join(", ")
            }
        ));
    }
    // What is left differs only in what was cut from it, or in how a number is written.
    let mut taken = BTreeSet::new();
    for (name, run) in names.iter_mut().zip(first) {
        if !taken.insert(name.clone()) {
            *name = format!("{name} [run {}]", short_hash(&run.run_id));
            taken.insert(name.clone());
        }
    }
}

/// A small set of keys, chosen greedily, whose values distinguish all settings that differ.
fn distinguishing(settings: &[BTreeMap<String, String>]) -> Vec<String> {
    let all: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&String| {
        settings
            .iter()
            .any(|s| s.get(*key) != settings[0].get(*key))
    };
    let mut keys: Vec<&String> = all.into_iter().filter(differs).collect();
    // What was chosen before what follows from it: a kind before its keys, the training before the
    // evaluation, which names encodings again.
    let below = |key: &str, table: &str| {
        // The run that a training started from has a whole spec.
        key.strip_prefix("train.start_from.")
            .unwrap_or(key)
            .starts_with(table)
    };
    keys.sort_by_key(|key| {
        (
            is_derived(key),
            below(key, "eval.variants."),
            below(key, "eval."),
            Reverse(last(key) == "kind"),
            *key,
        )
    });
    let mut chosen: Vec<String> = Vec::new();
    let classes = |chosen: &[String]| {
        let value = |s: &BTreeMap<String, String>| -> Vec<Option<String>> {
            chosen.iter().map(|key| s.get(key).cloned()).collect()
        };
        settings.iter().map(value).collect::<BTreeSet<_>>().len()
    };
    let mut count = 1;
    for key in keys {
        chosen.push(key.clone());
        let with = classes(&chosen);
        // A key is kept only if it separates methods that those before it do not.
        if with > count {
            count = with;
        } else {
            chosen.pop();
        }
        if count == settings.len() {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn derived_settings_are_named_last() {
        let a = of(&[
            ("model.d_ff", "256"),
            ("model.d_model", "64"),
            ("train.steps", "10"),
        ]);
        let b = of(&[
            ("model.d_ff", "512"),
            ("model.d_model", "128"),
            ("train.steps", "10"),
        ]);
        assert_eq!(distinguishing(&[a.clone(), b]), ["model.d_model"]);
        let c = of(&[
            ("model.d_ff", "512"),
            ("model.d_model", "64"),
            ("train.steps", "10"),
        ]);
        assert_eq!(distinguishing(&[a, c]), ["model.d_ff"]);
    }

    #[test]
    fn a_start_is_named_by_its_training() {
        let start = |kind: &str| {
            of(&[
                ("train.start_from.eval.variants.trained.64.kind", kind),
                ("train.start_from.train.steps", &kind.len().to_string()),
            ])
        };
        assert_eq!(
            distinguishing(&[start("rope"), start("alibi")]),
            ["train.start_from.train.steps"]
        );
    }

    #[test]
    fn every_pair_has_different_names() {
        let a = of(&[
            ("model.pe.kind", "rope"),
            ("model.pe.base", "10"),
            ("train.lr", "1"),
        ]);
        let b = of(&[
            ("model.pe.kind", "rope"),
            ("model.pe.base", "99"),
            ("train.lr", "1"),
        ]);
        let c = of(&[("model.pe.kind", "alibi"), ("train.lr", "1")]);
        assert_eq!(
            distinguishing(&[a, b, c]),
            ["model.pe.kind", "model.pe.base"]
        );
    }
}
