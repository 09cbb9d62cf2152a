//! The numbers behind a cell of a table: one value per seed, their estimate, and why some are
//! missing.

use super::groups::Run;
use crate::metric;
use crate::number::rounds_to_zero;
use crate::record::{EvalRow, EvalStatus, RunRecord, RunStatus};
use crate::stats::Estimate;
use std::collections::BTreeSet;

/// Why a run has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absent {
    /// The training diverged.
    Diverged,
    /// The loss is a number, but what follows from it is too large to be one.
    TooLarge,
    /// A ratio to 0.
    Undefined,
    /// The encoding has no value at this length.
    Unsupported,
    /// A limit of memory left it out.
    Skipped,
    /// There is a number, but it is none of extrapolation: the task was not learned in length.
    Unconverged,
    /// No run has the row.
    Missing,
}

impl Absent {
    /// The word for a table.
    pub fn name(self) -> &'static str {
        match self {
            Absent::Diverged => "diverged",
            Absent::TooLarge => "too large",
            Absent::Undefined => "undefined",
            Absent::Unsupported => "unsupported",
            Absent::Skipped => "skipped",
            Absent::Unconverged => "not converged",
            Absent::Missing => "-",
        }
    }

    /// Whether there was no test that could have given a number.
    pub fn is_untested(self) -> bool {
        matches!(self, Absent::Missing | Absent::Skipped)
    }

    /// Whether there was a test that gave no number.
    pub fn is_lost(self) -> bool {
        matches!(
            self,
            Absent::Diverged | Absent::TooLarge | Absent::Undefined
        )
    }

    /// Why a metric of a row that was scored is no number: a perplexity may overflow where the loss
    /// does not.
    pub fn of_infinite(row: &EvalRow) -> Self {
        match row.metrics.values().all(|m| m.value.is_finite()) {
            true => Absent::TooLarge,
            false => Absent::Diverged,
        }
    }

    /// Why a row of this status has no number.
    pub fn of(status: EvalStatus) -> Option<Self> {
        match status {
            EvalStatus::Ok => None,
            EvalStatus::Diverged => Some(Absent::Diverged),
            EvalStatus::Unsupported => Some(Absent::Unsupported),
            EvalStatus::Skipped => Some(Absent::Skipped),
        }
    }
}

/// One method at one test length.
#[derive(Default)]
pub struct Point {
    /// Seed and value, by seed.
    pub values: Vec<(u64, f64)>,
    /// Mean and interval, of at least one value.
    pub estimate: Option<Estimate>,
    /// Runs that could have a value.
    pub runs: usize,
    /// Further runs, left out because they did not learn the task.
    pub failed: usize,
    /// Why runs have no number.
    pub absent: BTreeSet<Absent>,
}

impl Point {
    /// Without a value, and with an untested run.
    pub fn is_untested(&self) -> bool {
        // A run that diverged has no row at lengths that were tested later.
        self.values.is_empty() && self.absent.iter().any(|absent| absent.is_untested())
    }

    /// Whether every run has a value, of those that learned the task where others are left out.
    pub fn is_whole(&self) -> bool {
        self.estimate.is_some() && self.values.len() == self.runs
    }
}

/// A run's value for a metric of a variant at a length, or why there is none.
pub fn value_at(run: &Run<'_>, variant: &str, metric: &str, len: usize) -> Result<f64, Absent> {
    let Some(row) = run.row(variant, len) else {
        return Err(if run.status == RunStatus::Diverged {
            Absent::Diverged
        } else {
            Absent::Missing
        });
    };
    value_of(run, row, metric)
}

/// The same of a record by itself.
pub(super) fn value_in(
    record: &RunRecord,
    variant: &str,
    metric: &str,
    len: usize,
) -> Result<f64, Absent> {
    match row_in(record, variant, len) {
        Some(row) => value_of(record, row, metric),
        None if record.status == RunStatus::Diverged => Err(Absent::Diverged),
        None => Err(Absent::Missing),
    }
}

/// The row of a variant at a length that a record has by itself.
pub(super) fn row_in<'a>(record: &'a RunRecord, variant: &str, len: usize) -> Option<&'a EvalRow> {
    let mut rows = record.evals.iter();
    rows.find(|row| row.variant == variant && row.test_len == len)
}

fn value_of(run: &RunRecord, row: &EvalRow, metric: &str) -> Result<f64, Absent> {
    match (
        Absent::of(row.status),
        metric::value(&run.task, row, metric),
    ) {
        (Some(absent), _) => Err(absent),
        (None, Some((value, _))) if value.is_finite() => Ok(value),
        (None, Some(_)) => Err(Absent::of_infinite(row)),
        (None, None) => Err(Absent::Missing),
    }
}

/// A mean with its interval: `4.63 ± 0.05`, `0.67 [0.09, 0.99]` for shares, `4.24 [4.10, 4.39]` for
/// perplexities, or `4.63` for one seed. The mean has no more digits than its interval supports.
pub fn estimate_text(metric: &str, estimate: &Estimate) -> String {
    let (mean, interval) = estimate_parts(metric, estimate);
    mean + &interval
}

/// The mean, and its interval with the space before it.
fn estimate_parts(metric: &str, estimate: &Estimate) -> (String, String) {
    parts_at(metric, estimate, decimals(metric, estimate))
}

fn parts_at(metric: &str, estimate: &Estimate, decimals: usize) -> (String, String) {
    let (times, unit) = metric::unit(metric);
    let number = |value: f64| metric::number(times * value, decimals);
    let mean = number(estimate.mean) + unit;
    let interval = match (estimate.half_width, estimate.interval) {
        (Some(half), _) => format!(" ± {}", number(half)),
        (None, Some((low, high))) => {
            // Rounded outwards, so that what is printed holds the mean and all of the interval.
            let decimals = if metric::is_share(metric) {
                2
            } else {
                decimals
            };
            let end = |value: f64, round: fn(f64) -> f64| {
                let per = 10f64.powi(decimals as i32);
                let value = times * value;
                let rounded = round(value * per) / per;
                // Numbers this large are printed in powers of ten.
                let is_large = value.abs() >= 1e6;
                metric::number(if is_large { value } else { rounded }, decimals)
            };
            format!(" [{}, {}]", end(low, f64::floor), end(high, f64::ceil))
        }
        (None, None) => String::new(),
    };
    (mean, interval)
}

/// Decimals of a mean: no more than its interval supports.
fn decimals(metric: &str, estimate: &Estimate) -> usize {
    let most = metric::decimals(metric, estimate.mean);
    let (times, _) = metric::unit(metric);
    let half = |(low, high): (f64, f64)| times * (high - low) / 2.0;
    let interval = estimate.interval.map(half);
    interval.map_or(most, |half| most.min(supported(half)))
}

/// A difference by [`metric::of_difference`], as mean and interval: `+0.12` and ` ± 0.05`. One
/// above 0 has its sign, one that rounds to 0 has none.
pub fn difference_parts(metric: &str, difference: &Estimate) -> (String, String) {
    let (mean, interval) = estimate_parts(metric::of_difference(metric), difference);
    let sign = if difference.mean > 0.0 && !difference_is_zero(metric, difference) {
        "+"
    } else {
        ""
    };
    (format!("{sign}{mean}"), interval)
}

/// Whether a difference rounds to 0.
pub fn difference_is_zero(metric: &str, difference: &Estimate) -> bool {
    let metric = metric::of_difference(metric);
    let (times, _) = metric::unit(metric);
    rounds_to_zero(times * difference.mean, decimals(metric, difference))
}

/// Decimals at which a half-width has two significant digits.
fn supported(half_width: f64) -> usize {
    if half_width <= 0.0 || !half_width.is_finite() {
        return usize::MAX;
    }
    // 0.05 has its first digit at the second decimal, 14 has both before the point.
    let first = -half_width.log10().floor();
    (first + 1.0).max(0.0) as usize
}

/// Decimals that a mean beside a bound may have more than by itself.
const MORE_BESIDE_BOUND: usize = 2;

/// [`point_text`] beside a bound: with more decimals where the mean would print as the bound.
pub fn point_text_beside(metric: &str, point: &Point, bound: f64) -> String {
    let (times, _) = metric::unit(metric);
    let (mean, interval) = parts(point, |estimate| {
        let fewest = decimals(metric, estimate);
        let is_apart = |decimals: &usize| {
            let text = |value: f64| metric::number(times * value, *decimals);
            text(estimate.mean) != text(bound)
        };
        let apart = (fewest..=fewest + MORE_BESIDE_BOUND).find(is_apart);
        parts_at(metric, estimate, apart.unwrap_or(fewest))
    });
    mean + &interval
}

/// Mean and interval, as a table shows them.
pub fn point_text(metric: &str, point: &Point) -> String {
    let (mean, interval) = point_parts(metric, point);
    mean + &interval
}

/// The mean or why there is none, and the interval with the count of seeds that gave a number.
pub fn point_parts(metric: &str, point: &Point) -> (String, String) {
    parts(point, |estimate| estimate_parts(metric, estimate))
}

/// The same of a difference, by [`difference_parts`].
pub fn difference_point_parts(metric: &str, point: &Point) -> (String, String) {
    parts(point, |estimate| difference_parts(metric, estimate))
}

fn parts(point: &Point, of: impl Fn(&Estimate) -> (String, String)) -> (String, String) {
    let Some(estimate) = &point.estimate else {
        return (absent_text(&point.absent), String::new());
    };
    let (mean, interval) = of(estimate);
    let (given, all) = (point.values.len(), point.runs + point.failed);
    if given == all {
        (mean, interval)
    } else {
        (mean, format!("{interval} ({given}/{all})"))
    }
}

/// The reasons, each once.
pub fn absent_text(absent: &BTreeSet<Absent>) -> String {
    let named: Vec<&str> = absent
        .iter()
        .filter(|a| **a != Absent::Missing)
        .map(|a| a.name())
        .collect();
    if named.is_empty() {
        Absent::Missing.name().into()
    } else {
        named.join(" / ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Scale;

    fn ratio(values: &[f64]) -> Point {
        Point {
            values: (0..).zip(values.iter().copied()).collect(),
            estimate: Estimate::of(Scale::Log, values),
            runs: values.len(),
            ..Point::default()
        }
    }

    #[test]
    fn a_mean_that_prints_as_the_bound_has_more_decimals_beside_it() {
        let point = ratio(&[1.092, 1.098, 1.104]);
        assert!(point_text(metric::RATIO, &point).starts_with("1.10 ["));
        assert!(point_text_beside(metric::RATIO, &point, 1.1).starts_with("1.098 ["));
        assert_eq!(
            point_text_beside(metric::RATIO, &point, 1.2),
            point_text(metric::RATIO, &point)
        );
        // Equal to the bound to the last decimal that is tried.
        let equal = ratio(&[1.1, 1.1, 1.1]);
        assert_eq!(
            point_text_beside(metric::RATIO, &equal, 1.1),
            point_text(metric::RATIO, &equal)
        );
    }
}
