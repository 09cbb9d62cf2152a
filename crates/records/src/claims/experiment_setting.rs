//! The settings of each experiment: within one, everything but the axes is equal.

use super::length::Length;
use crate::analysis::groups::{Run, TRAINED};
use crate::analysis::identity::MethodSpecs;
use crate::analysis::setting::{Method, Setting, settings};
use crate::names::Names;
use crate::order;
use crate::record::RunRecord;
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

/// A setting of one experiment.
pub struct ExperimentSetting<'a> {
    /// `quickstart: text, trained at 64 bytes`
    pub name: String,
    /// `quickstart`
    pub experiment: String,
    /// The setting.
    pub setting: Setting<'a>,
}

/// Every setting of every experiment, by the name of the experiment, then in canonical order.
/// `names`: those of kinds, for people.
pub fn experiment_settings(records: &[RunRecord], names: Names) -> Vec<ExperimentSetting<'_>> {
    let mut by_experiment: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    sorted.sort_by(|a, b| order::canonical(a, b));
    for run in sorted
        .into_iter()
        .filter(|run| seen.insert((&run.experiment, &run.run_id, &run.evaluation_of)))
    {
        by_experiment.entry(&run.experiment).or_default().push(run);
    }
    let all: Vec<&RunRecord> = records.iter().collect();
    let specs = MethodSpecs::new(&all).named(names);
    let mut by_experiment: Vec<_> = by_experiment.into_iter().collect();
    by_experiment.sort_by(|a, b| order::names(a.0, b.0));
    let mut out = Vec::new();
    for (experiment, runs) in by_experiment {
        let experiment = text::name(experiment, 60);
        for setting in settings(&runs, &[], &specs) {
            out.push(ExperimentSetting {
                name: format!("{experiment}: {}", setting.name),
                experiment: experiment.clone(),
                setting,
            });
        }
    }
    out
}

/// The method of that name, or of the first of its other names that is there. A method with one
/// label also goes by the whole label, which a long name is shortened from, if no other has it.
pub(super) fn find_method<'s>(
    setting: &'s Setting<'_>,
    name: &str,
    aliases: &BTreeMap<String, Vec<String>>,
) -> Option<&'s Method> {
    let names =
        std::iter::once(name).chain(aliases.get(name).into_iter().flatten().map(String::as_str));
    let is_only_label = |method: &Method, name: &str| {
        let of_run = |run: &Run<'_>| {
            matches!(&run.labels[..], [one] if one.text == name
                || format!("{}={}", one.key, one.text) == name)
        };
        let runs = &setting.groups[method.group].runs;
        method.variant == TRAINED && runs.iter().any(of_run)
    };
    for name in names {
        if let Some(method) = setting.method(name) {
            return Some(method);
        }
        let mut labelled = setting.methods.iter().filter(|m| is_only_label(m, name));
        if let Some(method) = labelled.next() {
            return labelled.next().is_none().then_some(method);
        }
    }
    None
}

/// Whether an experiment of this name, or no name, is meant.
pub(super) fn is_experiment(name: Option<&String>, setting: &Setting<'_>) -> bool {
    let mut runs = setting.groups.iter().flat_map(|group| &group.runs);
    name.is_none_or(|name| runs.any(|run| run.experiment == *name))
}

pub(super) fn is_task(tasks: &[String], setting: &Setting<'_>) -> bool {
    tasks.is_empty() || tasks.contains(&setting.task.kind)
}

/// The tested lengths that a length of a claim names.
pub(super) fn tested(length: Length, setting: &Setting<'_>) -> Vec<usize> {
    let train = setting.task.train_len as f64;
    let tested =
        |is: &dyn Fn(usize) -> bool| setting.lengths.iter().copied().filter(|&l| is(l)).collect();
    match length {
        // At the upper end of a range no single length was tested.
        Length::At(length) => tested(&|l| l == length.to && setting.is_tested_at(length)),
        Length::In => setting.in_length.into_iter().collect(),
        Length::Times(x) => tested(&|l| l as f64 == (x * train).round()),
        Length::Beyond(x) => tested(&|l| l as f64 > x * train),
        Length::From(x) => tested(&|l| l as f64 >= x * train),
        Length::UpTo(x) => tested(&|l| l as f64 <= x * train),
    }
}
