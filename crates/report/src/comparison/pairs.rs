//! Settings and methods of one set with those of the other.

use records::analysis::groups::Group;
use records::analysis::setting::{Method, Setting};
use records::spec::canonical_text;

/// Settings that are compared, and those that only one set has.
pub(super) struct SettingPairs<'s, 'a> {
    pub pairs: Vec<(&'s Setting<'a>, &'s Setting<'a>)>,
    pub only_first: Vec<String>,
    pub only_second: Vec<String>,
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

/// Pairs settings of the same task, text and training length; then, where that leaves one of a
/// task and text on each side, settings of different training lengths.
pub(super) fn setting_pairs<'s, 'a>(
    first: &'s [Setting<'a>],
    second: &'s [Setting<'a>],
) -> SettingPairs<'s, 'a> {
    let corpus = |s: &Setting<'_>| s.task.corpus.as_ref().map(|c| c.blake3.clone());
    let is_comparable = |a: &Setting<'_>, b: &Setting<'_>| {
        (&a.task.kind, &a.task.unit) == (&b.task.kind, &b.task.unit)
            && a.task.primary_metric == b.task.primary_metric
            && corpus(a) == corpus(b)
    };
    let mut partner: Vec<Option<usize>> = first
        .iter()
        .map(|a| {
            let same = |b: &Setting<'_>| a.task.train_len == b.task.train_len;
            second.iter().position(|b| is_comparable(a, b) && same(b))
        })
        .collect();
    for (at, a) in first.iter().enumerate() {
        let rivals = first
            .iter()
            .zip(&partner)
            .filter(|(other, partner)| partner.is_none() && is_comparable(a, other))
            .count();
        let mut free = second
            .iter()
            .enumerate()
            .filter(|(index, b)| is_comparable(a, b) && !partner.contains(&Some(*index)));
        if let (None, 1, Some((index, _)), None) = (partner[at], rivals, free.next(), free.next()) {
            partner[at] = Some(index);
        }
    }
    let names = |settings: &[Setting<'_>], is_left: &dyn Fn(usize) -> bool| -> Vec<String> {
        let left = settings.iter().enumerate().filter(|(at, _)| is_left(*at));
        left.map(|(_, setting)| setting.name.clone()).collect()
    };
    let pairs = first.iter().zip(&partner);
    SettingPairs {
        pairs: pairs
            .filter_map(|(a, b)| Some((a, &second[(*b)?])))
            .collect(),
        only_first: names(first, &|at| partner[at].is_none()),
        only_second: names(second, &|at| !partner.contains(&Some(at))),
    }
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
    let name = |method: &Method| method.name.clone();
    let only_first = first.methods.iter().filter(|m| twin(m).is_none());
    let is_alone = |m: &&Method| !pairs.iter().any(|(_, b)| b.name == m.name);
    MethodPairs {
        groups: first
            .groups
            .iter()
            .zip(&partner)
            .filter_map(|(a, b)| Some((a, &second.groups[(*b)?])))
            .collect(),
        only_first: only_first.map(name).collect(),
        only_second: second.methods.iter().filter(is_alone).map(name).collect(),
        pairs,
    }
}
