//! Numeric axes: their range, their ticks and which labels have room.

use super::style::{TEXT, text_width};
use records::metric;

/// A labelled position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub at: f64,
    pub label: String,
}

impl Tick {
    pub(super) fn new(at: f64) -> Self {
        Self {
            at,
            label: plain(at),
        }
    }
}

/// A range of values with its ticks.
pub(super) struct Axis {
    pub low: f64,
    pub high: f64,
    pub log: bool,
    pub ticks: Vec<Tick>,
}

impl Axis {
    /// About `count` ticks at round numbers within the range.
    pub(super) fn linear((low, high): (f64, f64), count: usize) -> Self {
        // Ends that agree in all their digits would leave no step between them.
        let least = 1e-9 * low.abs().max(high.abs()).max(1e-100);
        let (low, high) = if high - low > least {
            (low, high)
        } else {
            (low - least.max(0.5), high + least.max(0.5))
        };
        // The smallest round step that gives at most about `count` intervals.
        let rough = (high - low) / count as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * magnitude)
            .find(|s| *s >= rough * 0.999)
            .unwrap_or(rough);
        let is_whole = |x: f64| x.fract().abs() < 1e-9 || x.fract() > 1.0 - 1e-9;
        let decimals = (0..12)
            .find(|&d| is_whole(step * 10f64.powi(d)))
            .unwrap_or(12) as usize;
        // Ticks are multiples of the step: a running sum would add up rounding errors.
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let tick = |i: i64| {
            let at = i as f64 * step;
            let label = if at.abs() >= 1e5 {
                plain(at)
            } else {
                metric::number(at, decimals)
            };
            Tick { at, label }
        };
        Self {
            low,
            high,
            log: false,
            ticks: (first..=last).take(1000).map(tick).collect(),
        }
    }

    /// Ends at the data, not at decades; ticks at 1-2-5, or at more digits or decades only where
    /// the span is short or long. `pad`: free space at both ends, as a share of the span.
    pub(super) fn log((low, high): (f64, f64), pad: f64) -> Self {
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low / 1.5, high * 1.5)
        };
        // On a logarithmic axis a margin is a factor.
        let spread = (high / low).powf(pad);
        let (low, high) = (low / spread, high * spread);
        let decades = (high / low).log10();
        let digits: &[f64] = match decades {
            d if d > 4.0 => &[1.0],
            d if d > 1.0 => &[1.0, 2.0, 5.0],
            d if d > 0.5 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            _ => &[],
        };
        // Half a decade or less holds too few of these numbers, so ticks are at equal steps.
        let ticks = if digits.is_empty() {
            let mut ticks = Self::linear((low, high), 6).ticks;
            ticks.retain(|t| t.at > 0.0);
            ticks
        } else {
            // Beyond eight decades, every second or third.
            let every = match digits {
                [_] => (decades / 8.0).ceil().max(1.0) as usize,
                _ => 1,
            };
            (low.log10().floor() as i32..=high.log10().ceil() as i32)
                .flat_map(|exponent| digits.iter().map(move |d| d * 10f64.powi(exponent)))
                .filter(|t| *t >= low * 0.999_999 && *t <= high * 1.000_001)
                .step_by(every)
                .map(Tick::new)
                .collect()
        };
        Self {
            low,
            high,
            log: true,
            ticks,
        }
    }

    /// Where a value lies, 0 at the low end and 1 at the high end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        value >= self.low && value <= self.high
    }
}

/// Whether an axis can hold a value. Differences and quotients of two such values are finite, even
/// at the ends of an axis with room for bands.
pub(super) fn is_drawable(value: f64, log: bool) -> bool {
    if log {
        (1e-100..=1e100).contains(&value)
    } else {
        value.abs() <= 1e150
    }
}

/// Smallest and largest value.
pub(super) fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((a, b)) => Some((a.min(v), b.max(v))),
    })
}

/// A tick's number without noise: 64, 0.5, 1e6.
fn plain(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let text = format!("{value:.1e}");
        return text.replace(".0e", "e");
    }
    let text = format!("{value:.4}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

/// The ticks whose labels have room: the ends and the reference first, then its doublings, then
/// the rest from left to right. `place`: the page's x of a value.
pub(super) fn with_room<'t>(
    ticks: &'t [Tick],
    reference: Option<f64>,
    place: &dyn Fn(f64) -> f64,
) -> Vec<&'t Tick> {
    let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else {
        return Vec::new();
    };
    let origin = reference.unwrap_or(first.at);
    let rank = |tick: &Tick| match (tick.at / origin).log2() {
        _ if tick == first || tick == last => 0,
        0.0 => 1,
        doublings if doublings.is_finite() && doublings.fract().abs() < 1e-9 => 2,
        _ => 3,
    };
    let mut ranked: Vec<&Tick> = ticks.iter().collect();
    ranked.sort_by_key(|t| rank(t));
    let collides = |a: &Tick, b: &Tick| {
        let room = (text_width(&a.label, TEXT) + text_width(&b.label, TEXT)) / 2.0 + 6.0;
        (place(a.at) - place(b.at)).abs() < room
    };
    // In the order of rank: a label has no room beside one that matters more.
    let mut kept: Vec<&Tick> = Vec::new();
    for tick in ranked {
        if !kept.iter().any(|k| collides(k, tick)) {
            kept.push(tick);
        }
    }
    kept
}

/// At most nine round indices of rows or columns, counted from 0.
pub(super) fn index_ticks(count: usize) -> Vec<Tick> {
    const STEPS: [usize; 12] = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100];
    let step = STEPS
        .into_iter()
        .find(|step| count.div_ceil(*step) <= 9)
        .unwrap_or_else(|| count.div_ceil(8).next_power_of_two());
    (0..count)
        .step_by(step)
        .map(|i| Tick {
            at: i as f64,
            label: i.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_axis_ends_at_the_data() {
        let axis = Axis::log((4.0, 60.0), 0.04);
        assert!((3.0..=4.0).contains(&axis.low) && (60.0..80.0).contains(&axis.high));
        let labels: Vec<&str> = axis.ticks.iter().map(|t| t.label.as_str()).collect();
        assert_eq!(labels, ["5", "10", "20", "50"]);
        assert!(axis.share(axis.low).abs() < 1e-12);
        assert!((axis.share(axis.high) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn narrow_and_wide_log_axes_have_ticks() {
        assert!(Axis::log((4.0, 4.4), 0.04).ticks.len() >= 3);
        let wide = Axis::log((1.0, 1e30), 0.04).ticks.len();
        assert!((3..=10).contains(&wide), "{wide}");
    }
}
