//! What claims name and no record has.

use super::claim::{Claim, Claims};
use super::experiment_setting::{ExperimentSetting, find_method, is_experiment, is_task, tested};
use super::length::Length;
use crate::analysis::setting::Setting;
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

impl Claims {
    /// What claims name and no setting has, with their places in the list.
    pub fn lacking(&self, settings: &[ExperimentSetting<'_>]) -> Vec<(usize, String)> {
        let claims = self.claims.iter().enumerate();
        let found = claims.map(|(at, claim)| Some((at, claim.lacks(settings, &self.aliases)?)));
        found.flatten().collect()
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
        let all = || settings.iter().map(|place| &place.setting);
        let there = |names: BTreeSet<String>| {
            let names: Vec<String> = names.into_iter().collect();
            format!("; the records have {}", text::list(&names, 12))
        };
        if let Some(name) = &self.experiment
            && !all().any(|s| is_experiment(Some(name), s))
        {
            let known = settings.iter().map(|place| place.experiment.clone());
            return Some(format!("no experiment {name:?}{}", there(known.collect())));
        }
        if !all().any(|s| is_task(&self.tasks, s)) {
            let known = all().map(|s| s.task.kind.clone());
            return Some(format!(
                "no task {:?}{}",
                self.tasks,
                there(known.collect())
            ));
        }
        let about: Vec<&Setting<'_>> = all().filter(|s| self.is_about(s)).collect();
        if about.is_empty() {
            let known = all().map(|s| s.task.train_len.to_string());
            let lens = &self.train_lens;
            return Some(format!("not trained at {lens:?}{}", there(known.collect())));
        }
        if !about.iter().any(|s| s.all_metrics.contains(&self.metric)) {
            let known = about.iter().flat_map(|s| s.all_metrics.clone());
            return Some(format!(
                "no metric {:?}{}",
                self.metric,
                there(known.collect())
            ));
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
            let known: BTreeSet<usize> = about.iter().flat_map(|s| s.lengths.clone()).collect();
            let known: Vec<String> = known.iter().map(usize::to_string).collect();
            let known = text::list(&known, 12);
            return Some(format!("not tested at {length}; tested at {known}"));
        }
        None
    }
}
