//! What claims and published tables name and no record has.

use super::claim::{Claim, Claims, Published, PublishedNumber};
use super::experiment_setting::{ExperimentSetting, find_method, is_experiment, is_task, tested};
use super::length::Length;
use crate::analysis::setting::Setting;
use crate::record::TestLength;
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

impl Claims {
    /// What claims name and no setting has, with their places in the list.
    pub fn lacking(&self, settings: &[ExperimentSetting<'_>]) -> Vec<(usize, String)> {
        let claims = self.claims.iter().enumerate();
        let found = claims.map(|(at, claim)| Some((at, claim.lacks(settings, &self.aliases)?)));
        found.flatten().collect()
    }

    /// Why published tables, or some of their numbers, are compared with nothing, with their places
    /// in the list.
    pub fn unmatched(&self, settings: &[ExperimentSetting<'_>]) -> Vec<(usize, String)> {
        let tables = self.published.iter().enumerate();
        let found = tables.flat_map(|(at, table)| {
            let of_some = || {
                let methods = table.unknown_methods(settings, &self.aliases);
                let lengths = table.untested_lengths(settings, &self.aliases);
                methods.into_iter().chain(lengths).collect()
            };
            let what = match table.lacks(settings, &self.aliases) {
                Some(lacks) => vec![format!("are compared with nothing: {lacks}")],
                None => of_some(),
            };
            what.into_iter().map(move |what| (at, what))
        });
        found.collect()
    }
}

/// Names of what the records have, for the end of a message.
fn there(names: BTreeSet<String>) -> String {
    let names: Vec<String> = names.into_iter().collect();
    format!("; the records have {}", text::list(&names, 12))
}

/// What some setting was tested at, as people write it.
fn tested_lengths(about: &[&Setting<'_>]) -> String {
    let of = about
        .iter()
        .flat_map(|s| s.lengths.iter().map(|&to| s.test_length(to)));
    let all: BTreeSet<TestLength> = of.collect();
    let all: Vec<String> = all.iter().map(TestLength::to_string).collect();
    text::list(&all, 12)
}

/// The experiment or the kinds of task that no setting is of.
fn no_place(
    experiment: Option<&String>,
    tasks: &[String],
    settings: &[ExperimentSetting<'_>],
) -> Option<String> {
    let all = || settings.iter().map(|place| &place.setting);
    if let Some(name) = experiment
        && !all().any(|s| is_experiment(Some(name), s))
    {
        let known = settings.iter().map(|place| place.experiment.clone());
        return Some(format!("no experiment {name:?}{}", there(known.collect())));
    }
    let here = || all().filter(|s| is_experiment(experiment, s));
    if !here().any(|s| is_task(tasks, s)) {
        let known = here().map(|s| s.task.kind.clone());
        let of = experiment.map_or(String::new(), |name| format!(" in experiment {name:?}"));
        return Some(format!("no task {tasks:?}{of}{}", there(known.collect())));
    }
    None
}

/// The metric that no setting has.
fn no_metric(metric: &str, about: &[&Setting<'_>]) -> Option<String> {
    if about
        .iter()
        .any(|s| s.all_metrics.iter().any(|known| known == metric))
    {
        return None;
    }
    let known = about.iter().flat_map(|s| s.all_metrics.clone());
    Some(format!("no metric {metric:?}{}", there(known.collect())))
}

impl Published {
    /// The settings that it is about.
    fn about<'s, 'r>(&self, settings: &'s [ExperimentSetting<'r>]) -> Vec<&'s Setting<'r>> {
        let about = settings.iter().filter(|place| self.is_of(place));
        about.map(|place| &place.setting).collect()
    }

    /// Why none of its numbers is beside one of the settings: the first of its experiment, task,
    /// metric, methods and lengths.
    fn lacks(
        &self,
        settings: &[ExperimentSetting<'_>],
        aliases: &BTreeMap<String, Vec<String>>,
    ) -> Option<String> {
        if let Some(lacks) = no_place(self.experiment.as_ref(), &self.tasks, settings) {
            return Some(lacks);
        }
        let about = self.about(settings);
        if let Some(lacks) = no_metric(&self.metric, &about) {
            return Some(lacks);
        }
        let numbers = || {
            about
                .iter()
                .flat_map(|s| self.numbers.iter().map(move |n| (s, n)))
        };
        let has_method = |s: &Setting<'_>, name: &str| find_method(s, name, aliases).is_some();
        if !numbers().any(|(s, number)| has_method(s, &number.method)) {
            let known = about.iter().flat_map(|s| &s.methods);
            let known = there(known.map(|m| m.name.clone()).collect());
            return Some(format!("none of its methods{known}"));
        }
        let ours = |s: &Setting<'_>, length| self.our_length(length, s.task.train_len);
        if !numbers().any(|(s, n)| has_method(s, &n.method) && s.is_tested_at(ours(s, n.length))) {
            let here = about.first().map_or(0, |s| s.task.train_len);
            let lengths = self.numbers.iter().map(|number| number.length);
            let lengths = self.lengths_in_words(lengths, here);
            let tested = tested_lengths(&about);
            return Some(format!("not tested at {lengths}; tested at {tested}"));
        }
        None
    }

    /// Its lengths, with those that stand for them here.
    fn lengths_in_words(
        &self,
        lengths: impl Iterator<Item = TestLength>,
        train_len: usize,
    ) -> String {
        let words = |length: TestLength| match self.our_length(length, train_len) {
            ours if ours == length => length.to_string(),
            ours => format!("{length} ({ours} here)"),
        };
        let all: BTreeSet<TestLength> = lengths.collect();
        let all: Vec<String> = all.into_iter().map(words).collect();
        text::list(&all, 12)
    }

    /// Lengths of some of its numbers, of known methods, at which no setting was tested.
    fn untested_lengths(
        &self,
        settings: &[ExperimentSetting<'_>],
        aliases: &BTreeMap<String, Vec<String>>,
    ) -> Option<String> {
        let about = self.about(settings);
        let is_untested = |number: &&PublishedNumber| {
            let has_method = |s: &&&Setting<'_>| find_method(s, &number.method, aliases).is_some();
            let mut known = about.iter().filter(has_method).peekable();
            let ours = |s: &Setting<'_>| self.our_length(number.length, s.task.train_len);
            known.peek().is_some() && known.all(|s| !s.is_tested_at(ours(s)))
        };
        let numbers = self.numbers.iter().filter(is_untested);
        let here = about.first().map_or(0, |s| s.task.train_len);
        let lengths = self.lengths_in_words(numbers.map(|number| number.length), here);
        let tested = tested_lengths(&about);
        (!lengths.is_empty())
            .then(|| format!("at {lengths} are compared with nothing; tested at {tested}"))
    }

    /// Methods of some of its numbers that no setting has.
    fn unknown_methods(
        &self,
        settings: &[ExperimentSetting<'_>],
        aliases: &BTreeMap<String, Vec<String>>,
    ) -> Option<String> {
        let about = self.about(settings);
        let is_known = |name: &str| {
            about
                .iter()
                .any(|s| find_method(s, name, aliases).is_some())
        };
        let names = self.numbers.iter().map(|number| &number.method);
        let unknown: BTreeSet<&String> = names.filter(|name| !is_known(name)).collect();
        let unknown: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let known = about.iter().flat_map(|s| &s.methods);
        let known = there(known.map(|m| m.name.clone()).collect());
        let names = text::list(&unknown, 12);
        (!unknown.is_empty()).then(|| format!("for {names} are compared with nothing{known}"))
    }
}

impl Claim {
    /// What a claim names and the settings lack: the first of its experiment, task, training
    /// length, metric, methods and lengths.
    pub(super) fn lacks(
        &self,
        settings: &[ExperimentSetting<'_>],
        aliases: &BTreeMap<String, Vec<String>>,
    ) -> Option<String> {
        if let Some(lacks) = no_place(self.experiment.as_ref(), &self.tasks, settings) {
            return Some(lacks);
        }
        let all = || settings.iter().map(|place| &place.setting);
        let about: Vec<&Setting<'_>> = all().filter(|s| self.is_about(s)).collect();
        if about.is_empty() {
            let here = all().filter(|s| is_experiment(self.experiment.as_ref(), s));
            let known = here
                .filter(|s| is_task(&self.tasks, s))
                .map(|s| s.task.train_len.to_string());
            let lens = &self.train_lens;
            return Some(format!("not trained at {lens:?}{}", there(known.collect())));
        }
        if let Some(lacks) = no_metric(&self.metric, &about) {
            return Some(lacks);
        }
        let is_missing = |name: &&String| {
            let mut found = about.iter().map(|s| find_method(s, name, aliases));
            found.all(|method| method.is_none())
        };
        if let Some(name) = self.methods.iter().chain(&self.than).find(is_missing) {
            let known = about.iter().flat_map(|s| &s.methods);
            return Some(format!(
                "no method {name:?}{}",
                there(known.map(|m| m.name.clone()).collect())
            ));
        }
        let is_missing = |length: &&Length| about.iter().all(|s| tested(**length, s).is_empty());
        if let Some(length) = self.lengths.iter().find(is_missing) {
            let known = tested_lengths(&about);
            return Some(format!("not tested at {length}; tested at {known}"));
        }
        None
    }
}
