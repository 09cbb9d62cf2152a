//! Published numbers of single seeds beside ours.

use super::claim::{Claims, Published, PublishedNumber};
use super::experiment_setting::{ExperimentSetting, find_method, is_experiment, is_task};
use crate::analysis::groups::Run;
use crate::record::TestLength;
use crate::stats;
use std::collections::{BTreeMap, BTreeSet};

/// A published number whose seeds are known, and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// Where it is published.
    pub source: String,
    /// The experiment, and the setting where it has several.
    pub place: String,
    /// The method, by our name for people.
    pub method: String,
    /// The metric.
    pub metric: String,
    /// The published length and ours.
    pub lengths: (TestLength, TestLength),
    /// The published score of each seed.
    pub theirs: Vec<f64>,
    /// Our score of each seed that counts; at least one.
    pub ours: Vec<f64>,
    /// Our seeds that do not count, as the source counts only those that fit.
    pub unfitted: usize,
}

impl Beside {
    /// Our mean, and that of the source.
    pub fn means(&self) -> (f64, f64) {
        let mean = |values| stats::mean(values).unwrap_or(f64::NAN);
        (mean(&self.ours), mean(&self.theirs))
    }

    /// Whether our mean lies within the source's seeds.
    pub fn is_met(&self) -> bool {
        let (low, high) = range(&self.theirs);
        let (ours, _) = self.means();
        // Means of equal scores may differ from them in the last bit.
        (low - 1e-9..=high + 1e-9).contains(&ours)
    }
}

/// The smallest and the largest.
pub fn range(values: &[f64]) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    let widen = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
    values.iter().fold(start, widen)
}

impl Claims {
    /// Every published number that lists its seeds beside ours, in every experiment and setting
    /// that has its method at its length.
    pub fn beside(&self, settings: &[ExperimentSetting<'_>]) -> Vec<Beside> {
        let of_table = |table: &'_ Published| {
            let places = settings.iter().filter(|place| table.is_compared(place));
            let all = places.flat_map(|place| {
                let numbers = table.numbers.iter();
                numbers.filter_map(|number| beside(table, number, place, &self.aliases))
            });
            all.collect::<Vec<_>>()
        };
        self.published.iter().flat_map(of_table).collect()
    }
}

impl Published {
    /// Whether its numbers are compared with those of this setting.
    pub(super) fn is_of(&self, place: &ExperimentSetting<'_>) -> bool {
        is_task(&self.tasks, &place.setting)
            && is_experiment(self.experiment.as_ref(), &place.setting)
    }

    /// Whether such a setting also has its metric.
    pub(super) fn is_compared(&self, place: &ExperimentSetting<'_>) -> bool {
        self.is_of(place) && place.setting.all_metrics.contains(&self.metric)
    }

    /// Our test length for one of its lengths.
    pub(super) fn our_length(&self, length: TestLength, train_len: usize) -> TestLength {
        self.train_len.map_or(length, |theirs| {
            length.times(train_len as f64 / theirs.max(1) as f64)
        })
    }
}

fn beside(
    table: &Published,
    number: &PublishedNumber,
    place: &ExperimentSetting<'_>,
    aliases: &BTreeMap<String, Vec<String>>,
) -> Option<Beside> {
    let setting = &place.setting;
    let method = find_method(setting, &number.method, aliases)?;
    let length = table.our_length(number.length, setting.task.train_len);
    if !setting.is_tested_at(length) {
        return None;
    }
    let scores = |len: usize| setting.point(method, &table.metric, len).values;
    let runs = setting.groups[method.group].runs.iter();
    let final_scores: BTreeMap<u64, f64> = scores(setting.task.train_len).into_iter().collect();
    let stop = |run: &Run<'_>| {
        let train = run.spec.get("train")?;
        let by = train.get("stop")?.get("metric")?.as_str()?;
        let score = run.train.stop_scores.last()?.value?;
        (run.is_ended_early() && by == table.metric).then_some(score)
    };
    // A training that its stop did not end learned after the last of its scores, or not at all.
    let in_length = runs.filter_map(|run| {
        let score = stop(run).or_else(|| final_scores.get(&run.seed).copied())?;
        Some((run.seed, score))
    });
    let fit = in_length.filter(|(_, score)| Some(*score) >= table.fitted);
    let fit: BTreeSet<u64> = fit.map(|(seed, _)| seed).collect();
    let all = scores(length.to);
    let counts = |seed: &u64| table.fitted.is_none() || fit.contains(seed);
    let ours = all.iter().filter(|(seed, _)| counts(seed));
    let ours: Vec<f64> = ours.map(|(_, score)| *score).collect();
    (!ours.is_empty() && !number.seeds.is_empty()).then(|| Beside {
        source: table.source.clone(),
        place: place.name.clone(),
        method: method.title.clone(),
        metric: table.metric.clone(),
        lengths: (number.length, length),
        theirs: number.seeds.clone(),
        unfitted: all.len() - ours.len(),
        ours,
    })
}
