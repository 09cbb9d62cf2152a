//! Settings besides the method in which the rows of one table differ, such as a learning rate.

use super::groups::Group;
use crate::record::Selected;
use crate::spec::{follows, is_in, settings};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

/// Settings that a row names.
const MOST: usize = 3;

/// What a row says after the name of each group: ` [lr = 0.003]`; empty where nothing differs and
/// nothing was chosen. A chosen value that is the smallest or largest tried is marked.
pub fn suffixes(groups: &[Group<'_>]) -> Vec<String> {
    let all: Vec<BTreeMap<String, String>> =
        groups.iter().map(|group| settings(&group.spec)).collect();
    let chosen: BTreeSet<&str> = groups
        .iter()
        .filter_map(|group| group.runs.first()?.selected.as_ref()?.chosen())
        .flat_map(|chosen| chosen.values.iter().map(|label| label.key.as_str()))
        .collect();
    let first = groups.iter().filter_map(|group| group.runs.first());
    let labels = first.flat_map(|run| &run.labels);
    let named: BTreeSet<&str> = labels.map(|label| label.key.as_str()).collect();
    let differs = |key: &str| all.iter().any(|other| other.get(key) != all[0].get(key));
    let known: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let differing = || {
        known
            .iter()
            .map(|key| key.as_str())
            .filter(|key| differs(key))
    };
    // The table of methods has what a training starts from.
    let tables = ["model.pe", "eval", "train.start_from"];
    let is_method = |key: &str| {
        let mut tables = tables.iter().chain(&named);
        tables.any(|table| is_in(key, table)) || follows(key, differing())
    };
    let mut keys: Vec<&str> = chosen.iter().copied().collect();
    keys.extend(differing().filter(|key| !chosen.contains(key) && !is_method(key)));
    let more = keys.len().saturating_sub(MOST);
    keys.truncate(MOST);
    // A name that tells equal ones apart has the key and its value: then only the edge is added.
    let is_named = |group: &Group<'_>, key: &str| group.named.name.contains(&format!("{key} = "));
    let suffix = |(group, settings): (&Group<'_>, &BTreeMap<String, String>)| {
        let selected = group.runs.first().and_then(|run| run.selected.as_ref());
        let at_edge = selected.map_or(Vec::new(), |selected| selected.at_edge());
        let labels = selected.and_then(Selected::chosen);
        let labels = labels.map_or(&[][..], |chosen| &chosen.values);
        let part = |key: &&str| {
            // A table that was chosen, such as an encoding, is not a setting of one value.
            let label = labels.iter().find(|label| label.key == **key);
            let value = settings.get(*key).or(label.map(|label| &label.text));
            let value = value.map_or("not set", String::as_str);
            let edge = if at_edge.contains(key) { ", edge" } else { "" };
            let is_whole =
                is_in(key, "train.stages") || groups.iter().any(|group| is_named(group, key));
            let last = key.rsplit('.').next().filter(|_| !is_whole);
            format!(
                "{} = {}{edge}",
                text::name(last.unwrap_or(key), 40),
                text::name(value, 40)
            )
        };
        let unnamed = keys.iter().filter(|key| !is_named(group, key));
        let named = keys
            .iter()
            .filter(|key| is_named(group, key) && at_edge.contains(key))
            .map(|key| format!("{}: edge", text::name(key, 40)));
        let mut parts: Vec<String> = named.chain(unnamed.map(part)).collect();
        parts.extend((more > 0).then(|| format!("{more} more")));
        match parts[..] {
            [] => String::new(),
            _ => format!(" [{}]", parts.join("; ")),
        }
    };
    groups.iter().zip(&all).map(suffix).collect()
}

/// A sentence for each encoding that is in the table with several trainings, none of them chosen on
/// other rows: the best of them by the score of the table is better than it would be elsewhere.
/// Evaluations of one training in other ways, such as greedy, are not trainings.
pub fn tried_notes(groups: &[Group<'_>], setting: &str) -> Vec<String> {
    let mut by_model: BTreeMap<String, (BTreeSet<String>, BTreeSet<&str>)> = BTreeMap::new();
    for group in groups {
        let of = |key: &str| group.spec.get(key).map(ToString::to_string);
        let same = format!("{:?} {:?}", of("model"), of("task"));
        let (trainings, experiments) = by_model.entry(same).or_default();
        trainings.insert(format!("{:?}", of("train")));
        experiments.extend(group.runs.first().map(|run| run.experiment.as_str()));
    }
    let several: Vec<usize> = by_model
        .values()
        .filter(|(_, experiments)| experiments.len() == 1)
        .map(|(trainings, _)| trainings.len())
        .filter(|trainings| *trainings > 1)
        .collect();
    let most = several.iter().max();
    let Some(most) = most else {
        return Vec::new();
    };
    let methods = several.len();
    vec![format!(
        "{setting}: {} with up to {most} trainings each. The best of several by the score of this \
         table is better than it would be on other rows; `[select]` chooses on rows that no result \
         is scored on.",
        if methods == 1 {
            "1 model is here".to_owned()
        } else {
            format!("{methods} models are here")
        }
    )]
}

/// A sentence where the methods of a table read tokens of different sizes.
pub fn tokens_note(groups: &[Group<'_>], setting: &str) -> Option<String> {
    let sizes = groups
        .iter()
        .map(|group| group.runs[0].task.bytes_per_token);
    let mut sizes: Vec<f64> = sizes.flatten().collect();
    sizes.sort_by(f64::total_cmp);
    let [least, .., most] = sizes[..] else {
        return None;
    };
    (least < most).then(|| {
        format!(
            "{setting}: methods read tokens of {least:.3} to {most:.3} bytes. Losses and perplexities \
             are per token, so only bits_per_byte compares them."
        )
    })
}
