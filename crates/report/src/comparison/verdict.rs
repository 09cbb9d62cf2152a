//! Whether a score became better, worse, or neither.

use records::analysis::point::Point;
use records::metric::{self, better_first};
use records::stats::{Estimate, Scale};
use serde::Serialize;
use std::cmp::Ordering;
use std::fmt;

/// What became of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Worse: the interval of the difference excludes 0, and the difference exceeds the tolerance.
    Worse,
    /// The first set has a number, the second has none: for all seeds, or for some that were tested.
    Lost,
    /// Better, by the same rule as worse.
    Better,
    /// The second set has a number, the first has none.
    Gained,
    /// The interval includes 0, or is too wide for numbers.
    NotShown,
    /// The difference is within the tolerance.
    Within,
    /// One seed in common has no interval.
    OneSeed,
    /// No seed in common.
    NoSeed,
    /// The same number for every seed in common.
    Equal,
}

impl Verdict {
    /// All of them, in the order of a summary.
    pub(super) const ALL: [Self; 9] = [
        Self::Worse,
        Self::Lost,
        Self::Better,
        Self::Gained,
        Self::NotShown,
        Self::Within,
        Self::OneSeed,
        Self::NoSeed,
        Self::Equal,
    ];

    /// Of a score, from the points of both sets and the difference of the second from the first;
    /// none where neither has a number.
    pub(super) fn of(
        metric: &str,
        [first, second]: [&Point; 2],
        difference: Option<&Estimate>,
        tolerance: Option<f64>,
    ) -> Option<Self> {
        let before = match (&first.estimate, &second.estimate) {
            (None, None) => return None,
            (Some(_), None) => return Some(Self::Lost),
            (None, Some(_)) => return Some(Self::Gained),
            (Some(before), Some(_)) => before,
        };
        let Some(difference) = difference else {
            return Some(Self::NoSeed);
        };
        let is_zero = difference.mean == 0.0 && difference.sd.unwrap_or(0.0) == 0.0;
        if is_zero {
            return Some(Self::Equal);
        }
        let per = match metric::scale(metric) {
            Scale::Linear => before.mean.abs().max(1.0),
            // A relative change already.
            Scale::Log => 1.0,
        };
        let relative = difference.mean.abs() / per;
        if tolerance.is_some_and(|tolerance| relative <= tolerance) {
            return Some(Self::Within);
        }
        let side = match better_first(metric, difference.mean, 0.0) {
            Ordering::Less => Self::Better,
            _ => Self::Worse,
        };
        Some(match difference.interval {
            Some((low, high)) if low > 0.0 || high < 0.0 => side,
            Some(_) => Self::NotShown,
            // Without an interval only a tolerance can tell.
            None if tolerance.is_some() => side,
            // Its ends are too large to be numbers.
            None if difference.n > 1 => Self::NotShown,
            None => Self::OneSeed,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Worse => "WORSE",
            Self::Lost => "LOST",
            Self::Better => "better",
            Self::Gained => "gained",
            Self::NotShown => "no difference shown",
            Self::Within => "within the tolerance",
            Self::OneSeed => "one seed: no test",
            Self::NoSeed => "no seed in common",
            Self::Equal => "equal",
        })
    }
}
