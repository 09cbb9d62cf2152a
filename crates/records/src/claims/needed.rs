//! Bounds of claims.

use crate::metric;

/// A bound on a number, and the side of it on which the claim agrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Needed {
    AtMost(f64),
    AtLeast(f64),
    /// Strictly below 0; a difference of exactly 0 decides nothing.
    Negative,
    Positive,
}

impl Needed {
    pub(super) fn holds(self, value: f64) -> bool {
        // The mean of equal scores may differ from them by a rounding error.
        let rounding = |bound: f64| 1e-12 * bound.abs().max(1.0);
        match self {
            Needed::AtMost(bound) => value <= bound + rounding(bound),
            Needed::AtLeast(bound) => value >= bound - rounding(bound),
            Needed::Negative => value < 0.0,
            Needed::Positive => value > 0.0,
        }
    }
}

impl Needed {
    /// `at most 1.1`, `at most 5 %`; `metric`: what the number is.
    pub(super) fn text(self, metric: &str) -> String {
        let (times, unit) = metric::unit(metric);
        match self {
            Needed::AtMost(bound) => format!("at most {}{unit}", times * bound),
            Needed::AtLeast(bound) => format!("at least {}{unit}", times * bound),
            Needed::Negative => "below 0".into(),
            Needed::Positive => "above 0".into(),
        }
    }

    /// Whether an interval is on the claim's side: both ends on one side of the bound decide, a
    /// bound within it does not.
    pub(super) fn side(self, (low, high): (f64, f64)) -> Option<bool> {
        let holds = self.holds(low);
        (holds == self.holds(high)).then_some(holds)
    }
}
