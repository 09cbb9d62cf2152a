//! The scores of a pair of settings.

use super::changes::{Change, config_changes};
use super::pairs::MethodPairs;
use super::spec::ComparisonSpec;
use super::verdict::Verdict;
use records::analysis::measure::{difference_of, over_text};
use records::analysis::point::{Point, difference_is_zero, difference_parts, point_text, value_at};
use records::analysis::setting::{Method, Setting};
use records::metric;
use records::record::TestLength;
use records::stats::Estimate;
use serde::Serialize;

/// The scores of one setting in both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedSetting {
    /// `text, trained at 64 bytes`; both names where they differ.
    pub name: String,
    /// The metric of the scores.
    pub metric: String,
    /// What the metric is.
    pub definition: String,
    /// Whether a smaller value is a better one.
    pub lower_is_better: bool,
    /// What a length counts.
    pub unit: String,
    /// Settings of the task that differ: then both were not tested on the same rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task: Vec<Change>,
    /// Methods of which not every seed learned the task in length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<SeedsLearned>,
    /// Test lengths in both, ascending.
    pub lengths: Vec<usize>,
    /// Test lengths that only the first set has.
    pub lengths_only_first: Vec<TestLength>,
    /// Test lengths that only the second set has.
    pub lengths_only_second: Vec<TestLength>,
    /// Method by method, by length.
    pub scores: Vec<Score>,
    /// Methods that only the first set has.
    pub only_first: Vec<String>,
    /// Methods that only the second set has.
    pub only_second: Vec<String>,
}

/// How many seeds of a method learned its task in length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeedsLearned {
    /// Its name in words; both where they differ.
    pub method: String,
    /// `3 of 5` in the first set: of the seeds with a score in length.
    pub first: String,
    /// The same in the second set.
    pub second: String,
}

/// A method at a test length in both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Its name in words; both where they differ.
    pub method: String,
    /// Test length.
    pub test_len: usize,
    /// The lower end of a range of lengths, whose upper end `test_len` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_len: Option<usize>,
    /// The mean with its interval in the first set, or why there is none.
    pub first: String,
    /// The same in the second set.
    pub second: String,
    /// The second minus the first, paired by seed, with its interval; of perplexities the relative
    /// change. Empty where there is none.
    pub difference: String,
    /// Mean of the difference; of perplexities the relative change, 0.05 for 5 % more.
    pub mean_difference: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Whether the interval covers the text that is scored, beside the seeds.
    pub over_text: bool,
    /// Seeds in both.
    pub seeds: usize,
    /// What became of it.
    pub verdict: Verdict,
}

/// Compares two settings.
pub(super) fn compare(
    first: &Setting<'_>,
    second: &Setting<'_>,
    methods: &MethodPairs<'_, '_>,
    spec: &ComparisonSpec,
) -> ComparedSetting {
    let metric = spec.metric.as_deref().unwrap_or(first.lead());
    // A length and a range that ends there are two tests.
    let is_shared = |len: &usize| second.is_tested_at(first.test_length(*len));
    let (lengths, only_first): (Vec<usize>, Vec<usize>) =
        first.lengths.iter().copied().partition(is_shared);
    let of_second = second.lengths.iter().map(|len| second.test_length(*len));
    let only_second = of_second.filter(|len| !first.is_tested_at(*len));
    let mut scores = Vec::new();
    for (ours, theirs) in &methods.pairs {
        for &len in &lengths {
            scores.extend(score((first, *ours), (second, *theirs), metric, len, spec));
        }
    }
    ComparedSetting {
        name: either(&first.name, &second.name),
        metric: metric.to_owned(),
        definition: first.definition(metric),
        lower_is_better: metric::lower_is_better(metric),
        unit: first.task.unit.clone(),
        task: task_changes(first, second, methods),
        learned: learned(first, second, methods),
        lengths,
        lengths_only_first: only_first
            .into_iter()
            .map(|len| first.test_length(len))
            .collect(),
        lengths_only_second: only_second.collect(),
        scores,
        only_first: methods.only_first.clone(),
        only_second: methods.only_second.clone(),
    }
}

/// Settings of the task that differ for any pair of methods, and how much text was scored.
fn task_changes(
    first: &Setting<'_>,
    second: &Setting<'_>,
    methods: &MethodPairs<'_, '_>,
) -> Vec<Change> {
    let (_, mut changes) = config_changes(&methods.groups);
    changes.retain(|change| change.key.starts_with("task."));
    let texts = [first, second].map(|setting| setting.texts());
    if texts[0] != texts[1] {
        let [first, second] = texts.map(|tokens| {
            let tokens: Vec<String> = tokens.iter().map(u64::to_string).collect();
            (!tokens.is_empty()).then(|| tokens.join(" or "))
        });
        changes.push(Change {
            key: "number of tokens scored".into(),
            first,
            second,
            methods: Vec::new(),
        });
    }
    changes
}

/// Of the trained encodings, those that a seed of either set did not learn.
fn learned(
    first: &Setting<'_>,
    second: &Setting<'_>,
    methods: &MethodPairs<'_, '_>,
) -> Vec<SeedsLearned> {
    let pairs = methods.pairs.iter();
    let trained = pairs.filter(|(a, _)| !first.is_variant(a));
    let each = trained.map(|(a, b)| (a, b, first.learned(a), second.learned(b)));
    let partial = each.filter(|(.., a, b)| a.why_not().or(b.why_not()).is_some());
    let counted = partial.map(|(a, b, before, after)| SeedsLearned {
        method: either(&a.title, &b.title),
        first: before.ratio(),
        second: after.ratio(),
    });
    counted.collect()
}

type Of<'s, 'a> = (&'s Setting<'a>, &'s Method);

/// One score; none where neither set has a number.
fn score(
    first: Of<'_, '_>,
    second: Of<'_, '_>,
    metric: &str,
    len: usize,
    spec: &ComparisonSpec,
) -> Option<Score> {
    let point = |(setting, method): Of<'_, '_>| setting.point(method, metric, len);
    let (before, after) = (point(first), point(second));
    let difference = difference(metric, (second, first), (&after, &before), len);
    let (group, variant) = (&second.0.groups[second.1.group], &second.1.variant);
    let is_lost = |(seed, _): &(u64, f64)| {
        let run = group.run_of(*seed);
        let absent = run.and_then(|run| value_at(run, variant, metric, len).err());
        absent.is_some_and(|absent| !absent.is_untested())
    };
    let verdict = match before.values.iter().any(is_lost) {
        true => Verdict::Lost,
        false => Verdict::of(
            metric,
            [&before, &after],
            difference.as_ref(),
            spec.tolerance,
        )?,
    };
    Some(Score {
        method: either(&first.1.title, &second.1.title),
        test_len: len,
        from_len: first.0.ranges.get(&len).copied(),
        first: point_text(metric, &before),
        second: point_text(metric, &after),
        difference: difference.map_or_else(String::new, |d| signed(metric, &d)),
        mean_difference: difference.map(|d| d.mean),
        interval: difference.and_then(|d| d.interval),
        over_text: difference.is_some_and(|d| d.apart().is_some()),
        seeds: pairs(&after, &before).len(),
        verdict,
    })
}

/// The difference of two points, paired by seed; of losses on the same text also over the text.
fn difference(
    metric: &str,
    (of, than): (Of<'_, '_>, Of<'_, '_>),
    (a, b): (&Point, &Point),
    len: usize,
) -> Option<Estimate> {
    let pairs = pairs(a, b);
    let rows = |(setting, method): Of<'_, '_>| setting.rows(method, metric, len);
    let scores: Vec<(f64, f64)> = pairs.iter().map(|&(_, a, b)| (a, b)).collect();
    let mut point = Point {
        values: pairs.iter().map(|&(seed, a, b)| (seed, a - b)).collect(),
        estimate: difference_of(metric, &scores, (rows(of), rows(than))),
        runs: pairs.len(),
        ..Point::default()
    };
    // A definition says which text was scored.
    if of.0.definition(metric) == than.0.definition(metric) {
        over_text(&mut point, metric, (of.0, of.1, len), (than.0, than.1, len));
    }
    point.estimate
}

/// The seeds that both points have, with the value of each.
fn pairs(a: &Point, b: &Point) -> Vec<(u64, f64, f64)> {
    let beside = |seed: u64| b.values.iter().find(|(other, _)| *other == seed);
    let values = a.values.iter();
    values
        .filter_map(|&(seed, value)| Some((seed, value, beside(seed)?.1)))
        .collect()
}

/// A difference with its sign; in powers of ten where the usual decimals would show zero, and no
/// interval that is wider.
fn signed(metric: &str, difference: &Estimate) -> String {
    let (mean, interval) = difference_parts(metric, difference);
    let is_wide = interval.contains(|c: char| ('1'..='9').contains(&c));
    if difference_is_zero(metric, difference) && difference.mean != 0.0 && !is_wide {
        let (times, unit) = metric::unit(metric::of_difference(metric));
        return format!("{:+.1e}{unit}", times * difference.mean);
    }
    mean + &interval
}

/// A name, or both where they differ.
fn either(first: &str, second: &str) -> String {
    if first == second {
        first.to_owned()
    } else {
        format!("{first} -> {second}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::metric::EXACT_MATCH;

    #[test]
    fn a_difference_that_is_small_against_its_interval_has_the_interval() {
        let of = |values: &[f64]| signed(EXACT_MATCH, &Estimate::of_mean(values).unwrap());
        let wide = of(&[-0.5, 0.4, 0.04]);
        assert!(wide.starts_with("0.0 ") && wide.contains("1."), "{wide}");
        assert_eq!(of(&[1e-7]), "+1.0e-7");
    }
}
