//! What intervals are computed from, at any level.

use super::blocks::OverText;
use super::interval::{share_interval, student_t};

/// What the interval of an estimate is computed from, beside the number of seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Basis {
    /// A mean and its standard deviation between seeds, before they are `shown`.
    Mean {
        mean: f64,
        sd: Option<f64>,
        shown: Shown,
        /// How much it depends on the text, on the scale of `mean`.
        text: Option<OverText>,
    },
    /// A share of test rows.
    Share { mean: f64, sd: f64, rows: u64 },
    /// A difference of the shares `of`, each over `rows` test rows.
    ShareDifference {
        mean: f64,
        sd: f64,
        of: (f64, f64),
        rows: (u64, u64),
    },
    /// A ratio of the shares `of`, each over `rows` test rows.
    ShareRatio {
        mean: f64,
        sd: f64,
        of: (f64, f64),
        rows: (u64, u64),
    },
}

/// What becomes of a mean and of the ends of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shown {
    AsIs,
    /// exp: a mean of logarithms as a geometric mean.
    Exp,
    /// exp - 1: a difference of logarithms as a relative change.
    Change,
}

impl Shown {
    pub(super) fn of(self, value: f64) -> f64 {
        match self {
            Shown::AsIs => value,
            Shown::Exp => value.exp(),
            Shown::Change => value.exp_m1(),
        }
    }
}

impl Basis {
    /// Half-width of the interval of a mean, before it is shown; none for shares.
    pub(super) fn half_width(&self, alpha: f64, seeds: usize) -> Option<f64> {
        let Basis::Mean { sd, text, .. } = *self else {
            return None;
        };
        let between = half_width(alpha, sd?, seeds)?;
        // Variances of seeds and of the text add up.
        match text {
            Some(text) => Some(between.hypot(text.half_width(alpha)?)),
            None => Some(between),
        }
    }

    /// The two-sided interval that leaves out `alpha`.
    pub(super) fn interval(&self, alpha: f64, seeds: usize) -> Option<(f64, f64)> {
        match *self {
            Basis::Mean { mean, shown, .. } => {
                let half = self.half_width(alpha, seeds)?;
                let ends = (shown.of(mean - half), shown.of(mean + half));
                Some(ends).filter(|(_, high)| high.is_finite())
            }
            Basis::Share { mean, sd, rows } => share_interval(alpha, (mean, sd), seeds, rows),
            Basis::ShareDifference { mean, sd, of, rows } => {
                let between = half_width(alpha, sd, seeds)?;
                let (first, second) = by_rows(alpha, of, seeds, rows)?;
                // The difference is smallest at a low first share and a high second one, so these
                // ends bound it below.
                let below = joined([between, of.0 - first.0, second.1 - of.1]);
                let above = joined([between, first.1 - of.0, of.1 - second.0]);
                Some(((mean - below).max(-1.0), (mean + above).min(1.0)))
            }
            Basis::ShareRatio { mean, sd, of, rows } => {
                let between = half_width(alpha, sd, seeds)?;
                let (first, second) = by_rows(alpha, of, seeds, rows)?;
                let ratio = of.0 / of.1;
                let lows = [(of.0 - first.0) / of.1, ratio - of.0 / second.1];
                let highs = [(first.1 - of.0) / of.1, of.0 / second.0 - ratio];
                let below = joined([between, lows[0], lows[1]]);
                let above = joined([between, highs[0], highs[1]]);
                Some(((mean - below).max(0.0), mean + above)).filter(|ends| ends.1.is_finite())
            }
        }
    }
}

/// The intervals of two shares over their test rows. Without a standard deviation: what seeds
/// differ by enters once, as the half-width of the paired values.
fn by_rows(
    alpha: f64,
    of: (f64, f64),
    seeds: usize,
    rows: (u64, u64),
) -> Option<((f64, f64), (f64, f64))> {
    let first = share_interval(alpha, (of.0, 0.0), seeds, rows.0)?;
    Some((first, share_interval(alpha, (of.1, 0.0), seeds, rows.1)?))
}

/// Half-widths whose variances add up.
fn joined(halves: [f64; 3]) -> f64 {
    halves.iter().map(|half| half.powi(2)).sum::<f64>().sqrt()
}

impl Basis {
    /// The intervals over seeds alone and over the text alone, of a mean over both.
    pub(super) fn apart(&self, alpha: f64, seeds: usize) -> Option<[(f64, f64); 2]> {
        let Basis::Mean {
            mean,
            sd,
            shown,
            text: Some(text),
        } = *self
        else {
            return None;
        };
        let ends = |half: f64| (shown.of(mean - half), shown.of(mean + half));
        let between = half_width(alpha, sd?, seeds)?;
        Some([ends(between), ends(text.half_width(alpha)?)])
    }
}

impl OverText {
    fn half_width(&self, alpha: f64) -> Option<f64> {
        Some(student_t(alpha, self.freedom)? * self.error)
    }
}

/// Half-width of Student's t interval.
fn half_width(alpha: f64, sd: f64, seeds: usize) -> Option<f64> {
    let n = seeds as f64;
    Some(student_t(alpha, n - 1.0)? * sd / n.sqrt()).filter(|half| half.is_finite())
}
