//! Comparisons of `spread_below`.

use super::{Evaluation, Limits};
use crate::analysis::point::Absent;
use crate::analysis::setting::Method;
use crate::claims::needed::Needed;
use crate::claims::verdict::Comparison;

impl Evaluation<'_, '_> {
    /// Each pair of methods, the higher score over the lower one: the larger of both ratios.
    pub(super) fn spread(&self, bound: f64) -> Vec<Comparison> {
        let names = &self.claim.methods;
        let pairs = names.iter().enumerate().flat_map(|(at, first)| {
            let others = names[at + 1..].iter();
            others.map(move |second| (first.as_str(), second.as_str()))
        });
        self.pairs(pairs, |a, b, len| {
            // One to a score of 0 is larger than any number.
            let size = |a: &Method, b: &Method| {
                let ratio = self.setting.over(a, b, &self.claim.metric, len);
                match ratio.absent.contains(&Absent::Undefined) {
                    true => f64::INFINITY,
                    false => ratio.estimate.map_or(0.0, |estimate| estimate.mean),
                }
            };
            let (high, low) = match size(b, a) > size(a, b) {
                true => (b, a),
                false => (a, b),
            };
            // A seed without a finite score is far from any other, whichever method it is of.
            let lost = self.limits(a, b, len).lost.map(|_| f64::INFINITY);
            let limits = Limits {
                lost,
                unsupported: None,
            };
            self.ratio_at(high, low, len, Needed::AtMost(bound), limits)
        })
    }
}
