//! Settings and methods of one set with those of the other.

use records::analysis::groups::Group;
use records::analysis::setting::{Method, Setting};
use records::spec::canonical_text;
use serde_json::Value;
use std::collections::BTreeSet;

/// Settings that are compared, and those that only one set has.
pub(super) struct SettingPairs<'s, 'a> {
    pub pairs: Vec<(&'s Setting<'a>, &'s Setting<'a>)>,
    pub only_first: Vec<&'s Setting<'a>>,
    pub only_second: Vec<&'s Setting<'a>>,
}

/// Methods that are compared, and those that only one set has.
pub(super) struct MethodPairs<'s, 'a> {
    /// Pairs of methods.
    pub pairs: Vec<(&'s Method, &'s Method)>,
    /// The groups behind them, each pair once.
    pub groups: Vec<(&'s Group<'a>, &'s Group<'a>)>,
    pub only_first: Vec<String>,
    pub only_second: Vec<String>,
}

/// Pairs settings of the same kind of task and text, each once: those of equal tasks, training
/// lengths and names, then those without the same name; then, where that leaves one on each side,
/// those of the same training length, and those of any.
pub(super) fn setting_pairs<'s, 'a>(
    first: &'s [Setting<'a>],
    second: &'s [Setting<'a>],
) -> SettingPairs<'s, 'a> {
    type Rule<'r> = &'r dyn Fn(&Setting<'_>, &Setting<'_>) -> bool;
    let corpus = |s: &Setting<'_>| s.task.corpus.as_ref().map(|c| c.blake3.clone());
    let is_comparable = |a: &Setting<'_>, b: &Setting<'_>| {
        (&a.task.kind, &a.task.unit) == (&b.task.kind, &b.task.unit)
            && a.task.primary_metric == b.task.primary_metric
            && corpus(a) == corpus(b)
    };
    let of_length = |a: &Setting<'_>, b: &Setting<'_>| {
        is_comparable(a, b) && a.task.train_len == b.task.train_len
    };
    let of_task = |a: &Setting<'_>, b: &Setting<'_>| of_length(a, b) && tasks(a) == tasks(b);
    let of_name = |a: &Setting<'_>, b: &Setting<'_>| of_task(a, b) && a.name == b.name;
    // Two of one task differ in their budget, as the config shows; two tasks say nothing of each
    // other where there are more.
    let rules: [(Rule<'_>, bool); 4] = [
        (&of_name, false),
        (&of_task, false),
        (&of_length, true),
        (&is_comparable, true),
    ];
    let mut partner: Vec<Option<usize>> = vec![None; first.len()];
    for (rule, is_only) in rules {
        for (at, a) in first.iter().enumerate() {
            let free = |b: usize| !partner.contains(&Some(b));
            let mut found = (0..second.len()).filter(|&b| free(b) && rule(a, &second[b]));
            let next = found.next().filter(|&b| {
                let rivals = first.iter().zip(&partner);
                let rivals = rivals.filter(|(a, p)| p.is_none() && rule(a, &second[b]));
                !is_only || found.next().is_none() && rivals.count() == 1
            });
            if partner[at].is_none() {
                partner[at] = next;
            }
        }
    }
    let left = |settings: &'s [Setting<'a>], is_left: &dyn Fn(usize) -> bool| {
        let left = settings.iter().enumerate().filter(|(at, _)| is_left(*at));
        left.map(|(_, setting)| setting).collect()
    };
    let pairs = first.iter().zip(&partner);
    SettingPairs {
        pairs: pairs
            .filter_map(|(a, b)| Some((a, &second[(*b)?])))
            .collect(),
        only_first: left(first, &|at| partner[at].is_none()),
        only_second: left(second, &|at| !partner.contains(&Some(at))),
    }
}

/// The tasks of a setting as their specs have them.
fn tasks(setting: &Setting<'_>) -> BTreeSet<String> {
    let tasks = setting
        .groups
        .iter()
        .filter_map(|group| group.spec.get("task"));
    tasks.map(Value::to_string).collect()
}

/// Pairs methods: those with equal specs, then those with equal names, then those with equal
/// values on the axes, then what is left if that is one on each side.
pub(super) fn method_pairs<'s, 'a>(
    first: &'s Setting<'a>,
    second: &'s Setting<'a>,
) -> MethodPairs<'s, 'a> {
    let spec = |group: &Group<'_>| canonical_text(&group.spec);
    let rules: [&dyn Fn(&Group<'_>) -> String; 3] =
        [&spec, &|group| group.named.name.clone(), &|group| {
            group.named.plain.clone()
        }];
    let mut partner: Vec<Option<usize>> = vec![None; first.groups.len()];
    for key in rules {
        let keys = |groups: &[Group<'_>]| groups.iter().map(key).collect::<Vec<String>>();
        let (ours, theirs) = (keys(&first.groups), keys(&second.groups));
        // A name that two methods share pairs neither.
        let is_unique =
            |all: &[String], key: &String| all.iter().filter(|k| *k == key).count() == 1;
        for (at, key) in ours.iter().enumerate() {
            let other = theirs.iter().position(|other| other == key);
            let Some(other) = other.filter(|other| !partner.contains(&Some(*other))) else {
                continue;
            };
            if partner[at].is_none() && is_unique(&ours, key) && is_unique(&theirs, key) {
                partner[at] = Some(other);
            }
        }
    }
    let left = (0..second.groups.len()).filter(|at| !partner.contains(&Some(*at)));
    if let [last] = left.collect::<Vec<usize>>()[..]
        && partner.iter().filter(|other| other.is_none()).count() == 1
    {
        let at = partner.iter().position(Option::is_none);
        partner[at.unwrap_or_default()] = Some(last);
    }
    let twin = |method: &Method| -> Option<&'s Method> {
        let group = partner[method.group]?;
        let is_twin = |m: &&Method| m.group == group && m.variant == method.variant;
        second.methods.iter().find(is_twin)
    };
    let pairs: Vec<(&Method, &Method)> = first
        .methods
        .iter()
        .filter_map(|method| Some((method, twin(method)?)))
        .collect();
    let title = |method: &Method| method.title.clone();
    let only_first = first.methods.iter().filter(|m| twin(m).is_none());
    let is_alone = |m: &&Method| !pairs.iter().any(|(_, b)| b.name == m.name);
    MethodPairs {
        groups: first
            .groups
            .iter()
            .zip(&partner)
            .filter_map(|(a, b)| Some((a, &second.groups[(*b)?])))
            .collect(),
        only_first: only_first.map(title).collect(),
        only_second: second.methods.iter().filter(is_alone).map(title).collect(),
        pairs,
    }
}
