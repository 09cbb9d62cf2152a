//! What the axes of a line plot hold.

use super::axis::{Axis, Tick, extent, is_drawable};
use super::series::LinePlot;

pub(super) fn x_axis(plot: &LinePlot) -> Axis {
    let usable = |v: &f64| is_drawable(*v, plot.log_x);
    let points = plot.series.iter().flat_map(|s| &s.points).map(|p| p.0);
    let reference = plot.reference_x.iter().map(|r| r.0);
    let all = points.chain(plot.x_ticks.iter().copied()).chain(reference);
    let Some((low, high)) = extent(all.filter(usable)) else {
        return Axis::linear((0.0, 1.0), 5);
    };
    let mut axis = if plot.log_x {
        Axis::log((low, high), 0.03)
    } else {
        // A count that starts near 0 starts at 0.
        let low = if low > 0.0 && low < 0.2 * high {
            0.0
        } else {
            low
        };
        let pad = if low == high {
            0.5
        } else {
            0.02 * (high - low)
        };
        Axis {
            low: low - pad,
            high: high + pad,
            ..Axis::linear((low, high), 6)
        }
    };
    if !plot.x_ticks.is_empty() {
        let given = plot.x_ticks.iter().copied().filter(usable);
        axis.ticks = given.map(Tick::new).collect();
    }
    axis.ticks.retain(|t| t.at >= axis.low && t.at <= axis.high);
    axis
}

/// `with_seeds`: whether it also holds the lines of seeds.
pub(super) fn y_axis(plot: &LinePlot, with_seeds: bool) -> Axis {
    let usable = |v: &f64| is_drawable(*v, plot.log_y);
    let of_seeds = plot.series.iter().filter(|_| with_seeds);
    let of_seeds = of_seeds.flat_map(|s| &s.seeds);
    let of_seeds = of_seeds.flat_map(|(_, points)| points);
    let points = plot.series.iter().flat_map(|s| &s.points);
    let points = points.chain(of_seeds).map(|p| p.1);
    let fixed = plot.y_range.iter().flat_map(|r| [r.0, r.1]);
    let reference = plot.reference_y.iter().map(|r| r.0);
    let Some((low, high)) = extent(points.chain(fixed).chain(reference).filter(usable)) else {
        return Axis::linear((0.0, 1.0), 5);
    };
    // The wide interval of few seeds may extend the axis only this far beyond the means.
    let bands = || plot.series.iter().flat_map(|s| &s.band).flatten();
    let ends = bands().flat_map(|b| [b.0, b.1]).filter(usable);
    let (band_low, band_high) = extent(ends).unwrap_or((low, high));
    let held = |low: f64, high: f64| {
        let all: Vec<_> = bands().filter(|b| usable(&b.0) && usable(&b.1)).collect();
        let narrowest = all
            .iter()
            .min_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
        let fills = |band: &&(f64, f64)| band.0 < low && band.1 > high;
        // Bands wider than the axis are left out. If all are, it would show no uncertainty at all.
        narrowest
            .filter(|_| all.iter().copied().all(|b| fills(&b)))
            .map_or((low, high), |band| **band)
    };
    if plot.log_y {
        let slack = (high / low).powf(0.15).max(1.2);
        let low_end = band_low.clamp(low / slack, low);
        let high_end = band_high.clamp(high, high * slack);
        return Axis::log(held(low_end, high_end), 0.04);
    }
    let slack = 0.25 * (high - low).max(0.02 * high.abs());
    let (low, high) = match plot.y_range {
        Some((a, b)) if low >= a && high <= b => (a, b),
        _ => held(
            band_low.clamp(low - slack, low),
            band_high.clamp(high, high + slack),
        ),
    };
    let pad = if high > low {
        0.04 * (high - low)
    } else {
        0.05 * high.abs().max(1.0)
    };
    let mut axis = Axis::linear((low - pad, high + pad), 6);
    // Ticks outside a fixed range would suggest scores above 1.
    if plot.y_range.is_some() {
        axis.ticks
            .retain(|t| t.at >= low - 1e-9 && t.at <= high + 1e-9);
    }
    axis
}

/// The name of a scale.
pub(super) fn scale(log: bool) -> &'static str {
    if log { "log" } else { "linear" }
}

/// The axis of the other scale of y, where both make sense. It ends where `own` does, so that what
/// is cut off is cut off in both.
pub(super) fn other_axis(plot: &LinePlot, own: &Axis) -> Option<Axis> {
    let means = plot.series.iter().flat_map(|s| &s.points).map(|p| p.1);
    if plot.log_y {
        return Some(Axis::linear((own.low, own.high), 6));
    }
    let (least, _) = extent(means.filter(|y| y.is_finite()))?;
    if plot.y_range.is_some() || least <= 0.0 || !is_drawable(least, true) {
        return None;
    }
    let low = if own.low > 0.3 * least {
        own.low
    } else {
        0.9 * least
    };
    Some(Axis::log((low, own.high), 0.0))
}

#[cfg(test)]
mod tests {
    use super::super::series::Series;
    use super::*;

    #[test]
    fn an_axis_holds_a_band_where_every_band_is_wider_than_it() {
        let plot = |bands: &[(f64, f64)], log_y| LinePlot {
            series: vec![Series {
                points: vec![(8.0, 113.0), (16.0, 116.0)],
                band: bands.iter().copied().map(Some).collect(),
                ..Series::default()
            }],
            log_y,
            ..LinePlot::default()
        };
        for log_y in [false, true] {
            let wide = y_axis(&plot(&[(80.0, 150.0), (90.0, 145.0)], log_y), false);
            assert!(wide.low <= 90.0 && wide.high >= 145.0, "{log_y}");
            assert!(wide.low > 80.0 && wide.high < 150.0, "{log_y}");
            // One that fits is enough.
            let one = y_axis(&plot(&[(112.5, 113.5), (80.0, 150.0)], log_y), false);
            assert!(one.low > 90.0 && one.high < 145.0, "{log_y}");
        }
    }
}
