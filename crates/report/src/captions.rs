//! Parts of captions and anchors that tables and figures share.

use records::analysis::setting::Setting;
use records::metric;
use records::stats::{INTERVAL, LOG_INTERVAL, SHARE_INTERVAL, Scale, TEXT_INTERVAL};
use records::text::and;

/// Names that a sentence has room for.
pub(super) const MOST_NAMED: usize = 3;

/// `exact_match` as `exact match`.
pub(super) fn words(metric: &str) -> String {
    metric.replace('_', " ")
}

/// A few names, and how many more there are; `a; b; and c` where they hold commas themselves.
pub(super) fn several(names: &[String]) -> String {
    let (shown, more) = match names.len().saturating_sub(MOST_NAMED) {
        0 | 1 => (names.to_vec(), None),
        more => (names[..MOST_NAMED].to_vec(), Some(format!("{more} others"))),
    };
    let all: Vec<String> = shown.into_iter().chain(more).collect();
    let holds = |text: &'static str| move |name: &String| name.contains(text);
    let is_list = |front: &[String]| {
        front.len() > 1 && all.iter().any(holds(", ")) || all.iter().any(holds(" and "))
    };
    match all.split_last() {
        Some((last, front)) if !front.is_empty() && is_list(front) => {
            format!("{}; and {last}", front.join("; "))
        }
        _ => and(&all),
    }
}

/// What a cell is: a mean with which interval over how many seeds.
pub(super) fn seeds_sentence(setting: &Setting<'_>, metric: &str) -> String {
    let interval = match (metric::is_share(metric), metric::scale(metric)) {
        (false, Scale::Linear) => "± 95 % CI",
        (true, _) | (_, Scale::Log) => "[95 % CI]",
    };
    match setting.seeds() {
        (1, 1) => "Single seed: no interval, no ranking.".into(),
        _ => format!("Mean {interval}, {}.", seeds_text(setting)),
    }
}

/// The rule behind [`seeds_sentence`], with a space before it; empty for single seeds.
pub(super) fn seeds_notes(setting: &Setting<'_>, metric: &str) -> String {
    match setting.seeds() {
        (1, 1) => String::new(),
        _ => format!(
            " Mean {}; k/N: only k of N seeds have a number.",
            interval_text(metric)
        ),
    }
}

/// How the interval of a metric is written, and what it is.
pub(super) fn interval_text(metric: &str) -> String {
    match (metric::is_share(metric), metric::scale(metric)) {
        (true, _) => format!("[{SHARE_INTERVAL}]"),
        (false, Scale::Linear) => format!("± {INTERVAL}"),
        (false, Scale::Log) => format!("[{LOG_INTERVAL}]"),
    }
}

/// What the interval of a ratio to the score in length is, at any of these lengths.
pub(super) fn ratio_interval(setting: &Setting<'_>, lengths: &[usize]) -> &'static str {
    let lead = setting.lead();
    let ratios = |len: &usize| {
        let ratio = |method| setting.ratio(method, lead, *len).estimate;
        setting.methods.iter().filter_map(ratio).collect::<Vec<_>>()
    };
    let is_over_text = lengths.iter().flat_map(ratios).any(|e| e.apart().is_some());
    match metric::scale(lead) {
        _ if metric::is_share(lead) => SHARE_INTERVAL,
        Scale::Log if is_over_text => TEXT_INTERVAL,
        Scale::Log => LOG_INTERVAL,
        Scale::Linear => INTERVAL,
    }
}

/// What a difference of a metric to that of another method is.
pub(super) fn difference(metric: &str, than: &str) -> String {
    match metric::scale(metric) {
        Scale::Linear => format!("{metric} minus that of {than}"),
        Scale::Log => format!("{metric} relative to that of {than}"),
    }
}

/// `n = 3`
pub(super) fn seeds_text(setting: &Setting<'_>) -> String {
    match setting.seeds() {
        (a, b) if a == b => format!("n = {a}"),
        (a, b) => format!("n = {a} to {b}"),
    }
}

/// What counts as keeping a score: the one wording of [`metric::KEPT`].
pub(super) fn kept(metric: &str, whose: &str) -> String {
    let percent = kept_percent(metric);
    match metric::lower_is_better(metric) {
        true => format!("{whose} {metric} at most {percent} above the in-length value"),
        false => format!("at least {percent} of {whose} in-length {metric}"),
    }
}

/// By how much a metric may rise, or how much of it has to be left, to be kept: [`metric::KEPT`].
pub(super) fn kept_percent(metric: &str) -> String {
    let percent = match metric::lower_is_better(metric) {
        true => 100.0 / metric::KEPT - 100.0,
        false => 100.0 * metric::KEPT,
    };
    format!("{percent:.0} %")
}

/// [`kept`] for each of these metrics, once.
pub(super) fn kept_rules<'a>(metrics: impl Iterator<Item = &'a str>) -> String {
    let mut rules: Vec<String> = Vec::new();
    for rule in metrics.map(|metric| kept(metric, "its")) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules.join(", or ")
}

/// What a metric is and what guessing scores, for a table that stands alone.
pub(super) fn definition(setting: &Setting<'_>, metric: &str) -> String {
    let definition = setting.definition(metric);
    let chance = setting.chance(metric);
    let chance = chance.map_or(String::new(), |c| {
        format!(
            " Chance: {}.",
            metric::number(c, metric::decimals(metric, c))
        )
    });
    format!("{metric}: {}.{chance}", definition.trim_end_matches('.'))
}

/// Which values of a metric are better.
pub(super) fn direction(metric: &str) -> &'static str {
    if metric::lower_is_better(metric) {
        "lower is better"
    } else {
        "higher is better"
    }
}

/// The anchor of a table: a name, after that of the setting where there are several.
pub(super) fn slug(setting: &Setting<'_>, name: &str) -> String {
    if setting.slug.is_empty() {
        name.into()
    } else {
        format!("{}-{name}", setting.slug)
    }
}

/// What the scores of variants are measured against; empty where there are none.
pub(super) fn variants_note(setting: &Setting<'_>) -> &'static str {
    if setting.has_variants() {
        " Variants (+) count against the in-length score of the trained encoding, whose weights \
         they are."
    } else {
        ""
    }
}

/// What `not converged` in a cell means.
pub(super) const UNCONVERGED: &str = "Not converged: fewer than half of the seeds learned the task in length, so nothing is said \
     about longer lengths.";

/// A name, numbered from 1 where there are several.
pub(super) fn numbered(name: &str, index: usize, count: usize) -> String {
    if count == 1 {
        name.into()
    } else {
        format!("{name}-{}", index + 1)
    }
}

/// A method for each row, in their order.
pub(super) fn methods(setting: &Setting<'_>) -> Vec<Option<usize>> {
    (0..setting.methods.len()).map(Some).collect()
}

/// The key of a method's line in every figure of its setting.
pub(super) fn key(method: usize) -> String {
    format!("m{method}")
}
