//! Bounds of claims.

use crate::metric;

/// A bound on a number, and the side of it on which the claim agrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Needed {
    AtMost(f64),
    AtLeast(f64),
    /// Strictly below 0, with the smallest difference that counts: smaller gains are none.
    Negative(f64),
    /// Strictly above 0, in the same way.
    Positive(f64),
}

impl Needed {
    /// A difference of a metric that is strictly on its better side.
    pub(super) fn better(metric: &str) -> Self {
        let smallest = metric::smallest_difference(metric);
        match metric::lower_is_better(metric) {
            true => Needed::Negative(smallest),
            false => Needed::Positive(smallest),
        }
    }

    pub(super) fn holds(self, value: f64) -> bool {
        // The mean of equal scores may differ from them by a rounding error.
        let rounding = |bound: f64| 1e-12 * bound.abs().max(1.0);
        match self {
            Needed::AtMost(bound) => value <= bound + rounding(bound),
            Needed::AtLeast(bound) => value >= bound - rounding(bound),
            Needed::Negative(_) => value < 0.0,
            Needed::Positive(_) => value > 0.0,
        }
    }
}

impl Needed {
    /// `at most 1.1`, `at most 5 %`; `metric`: what the number is.
    pub(super) fn text(self, metric: &str) -> String {
        let (times, unit) = metric::unit(metric);
        // 0.07 is 7 %, not 7.000000000000001 %.
        let shown = |bound: f64| (times * bound * 1e9).round() / 1e9;
        match self {
            Needed::AtMost(bound) => format!("at most {}{unit}", shown(bound)),
            Needed::AtLeast(bound) => format!("at least {}{unit}", shown(bound)),
            Needed::Negative(_) => "below 0".into(),
            Needed::Positive(_) => "above 0".into(),
        }
    }

    /// Whether an interval is on the claim's side: both ends on one side of the bound decide, a
    /// bound within it does not. An interval whose gains are all too small to count is on the
    /// other side.
    pub(super) fn side(self, (low, high): (f64, f64)) -> Option<bool> {
        let is_against = match self {
            Needed::AtMost(_) | Needed::AtLeast(_) => !self.holds(low) && !self.holds(high),
            Needed::Negative(smallest) => low > -smallest,
            Needed::Positive(smallest) => high < smallest,
        };
        match self.holds(low) && self.holds(high) {
            true => Some(true),
            false => is_against.then_some(false),
        }
    }

    /// The smallest difference that counts as text, where an interval is against the claim only by
    /// it; `metric`: what the number is.
    pub(super) fn too_small(self, (low, high): (f64, f64), metric: &str) -> Option<String> {
        let (times, unit) = metric::unit(metric);
        match self {
            Needed::Negative(smallest) if low <= 0.0 => Some(smallest),
            Needed::Positive(smallest) if high >= 0.0 => Some(smallest),
            _ => None,
        }
        .map(|smallest| {
            let rounded = (1e4 * times * smallest).round() / 1e4;
            format!("{rounded}{unit}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_that_are_too_small_are_against_a_claim() {
        let lower = Needed::Negative(0.01);
        let cases = [
            ((-0.03, -0.02), Some(true)),
            // A gain whose sign is sure agrees, however small it is.
            ((-0.004, -0.001), Some(true)),
            ((-0.02, 0.001), None),
            ((-0.008, 0.005), Some(false)),
            ((0.0, 0.0), Some(false)),
            ((0.02, 0.03), Some(false)),
        ];
        for ((low, high), side) in cases {
            assert_eq!(lower.side((low, high)), side, "{low} to {high}");
            assert_eq!(Needed::Positive(0.01).side((-high, -low)), side);
        }
        let small = |interval| lower.too_small(interval, metric::CHANGE);
        assert_eq!(small((-0.008, 0.005)), Some("1 %".into()));
        assert_eq!(small((0.02, 0.03)), None);
        // Where any difference counts, equal scores decide nothing.
        assert_eq!(Needed::Positive(0.0).side((0.0, 0.0)), None);
        assert_eq!(Needed::Positive(0.0).side((-0.2, -0.1)), Some(false));
        assert_eq!(Needed::Positive(0.0).side((-0.2, 0.1)), None);
    }
}
