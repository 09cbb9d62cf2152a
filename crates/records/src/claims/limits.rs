//! What no score could show: bounds that are out of reach of the seeds and test rows, and tasks
//! that are too easy to tell two methods apart.

use super::needed::Needed;
use crate::analysis::point::{Point, estimate_text};
use crate::metric;
use crate::stats::Estimate;

/// Why even a perfect score of a share, at as many seeds and test rows, has an interval that
/// does not agree; none where it agrees. `of`: the metric and its test rows; `chance`: where
/// distances to guessing are compared.
pub(super) fn impossible(
    of: (&str, u64),
    point: &Point,
    needed: Needed,
    chance: Option<f64>,
) -> Option<String> {
    let (metric, rows) = of;
    let seeds = Some(point.values.len()).filter(|n| *n > 1 && metric::is_share(metric))?;
    let perfect = match needed {
        Needed::AtMost(_) => chance.unwrap_or(0.0),
        Needed::AtLeast(_) => 1.0,
        Needed::Negative(_) | Needed::Positive(_) => return None,
    };
    let score = Estimate::of_share(&vec![perfect; seeds], rows)?;
    let best = chance.map_or(score, |chance| score.distance_to(chance));
    let agrees = needed.side(best.interval?) == Some(true);
    (!agrees).then(|| {
        format!(
            "{} cannot be shown with {seeds} seeds of {rows} test rows: a perfect score has \
             the number {}",
            needed.text(metric),
            estimate_text(metric, &best)
        )
    })
}

/// Whether a share is so near to 1 that not even a perfect score would be shown to be above it,
/// with as many seeds that do not differ, and as many test rows.
pub(super) fn is_at_ceiling(metric: &str, point: &Point, rows: u64) -> bool {
    let Some(mean) = point.estimate.map(|estimate| estimate.mean) else {
        return false;
    };
    let pairs = vec![(1.0, mean); point.values.len()];
    let best = Estimate::of_share_difference(&pairs, (rows, rows));
    let interval = best.and_then(|estimate| estimate.interval);
    metric::is_share(metric) && interval.is_some_and(|interval| interval.0 <= 0.0)
}
