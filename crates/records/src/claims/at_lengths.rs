//! The test lengths that a claim is about in a setting.

use super::evaluate::{Evaluation, untested};
use super::experiment_setting::tested;
use super::length::Length;
use super::verdict::Comparison;
use crate::analysis::setting::Method;
use std::collections::BTreeSet;

impl Evaluation<'_, '_> {
    /// Whether all runs of a method were tested at a length, also where that gave no number.
    pub(super) fn is_tested(&self, method: &Method, len: usize) -> bool {
        let mut runs = self.setting.groups[method.group].runs.iter();
        runs.all(|run| run.row(&method.variant, len).is_some())
    }

    /// A test length, or the range that ends there.
    pub(super) fn at(&self, len: usize) -> String {
        self.setting.length(len)
    }

    /// The claim's lengths in the order they are written in. One such as `>1x` stands for those at
    /// which all of these methods were tested, or for all if there are none.
    pub(super) fn written(&self, methods: &[&Method]) -> Vec<usize> {
        let of = |length: &Length| {
            let all = tested(*length, self.setting);
            let is_own = |len: &usize| methods.iter().all(|method| self.is_tested(method, *len));
            let own: Vec<usize> = all.iter().copied().filter(is_own).collect();
            match length.may_be_several() && !own.is_empty() {
                true => own,
                false => all,
            }
        };
        let mut lengths: Vec<usize> = self.claim.lengths.iter().flat_map(of).collect();
        let mut seen = BTreeSet::new();
        lengths.retain(|length| seen.insert(*length));
        lengths
    }

    /// [`written`](Self::written), ascending.
    pub(super) fn lengths(&self, methods: &[&Method]) -> Vec<usize> {
        let mut lengths = self.written(methods);
        lengths.sort_unstable();
        lengths
    }

    /// The claim's lengths that were not tested.
    pub(super) fn missing_lengths(&self) -> Vec<Comparison> {
        let missing = self
            .claim
            .lengths
            .iter()
            .filter(|l| tested(**l, self.setting).is_empty());
        missing
            .map(|l| untested(&format!("length {l}"), ""))
            .collect()
    }
}
