//! A curve of any length, kept thinned, as a line of characters.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Points that are kept; of more, neighbours are averaged.
pub const MOST_POINTS: usize = 2048;

/// A curve that grows without bound and is kept thinned.
#[derive(Debug, Default)]
pub struct Curve {
    points: Vec<f32>,
    /// Values behind each point, less one.
    more: usize,
    /// Sum and number of values that are not a point yet.
    pending: (f32, usize),
}

impl Curve {
    /// Adds a value.
    pub fn push(&mut self, value: f32) {
        self.pending.0 += value;
        self.pending.1 += 1;
        if self.pending.1 <= self.more {
            return;
        }
        self.points.push(self.pending.0 / self.pending.1 as f32);
        self.pending = (0.0, 0);
        if self.points.len() == MOST_POINTS {
            let halves = self.points.chunks(2).map(|pair| (pair[0] + pair[1]) / 2.0);
            self.points = halves.collect();
            self.more = 2 * self.more + 1;
        }
    }

    /// Means of equally many values, first to last.
    pub fn points(&self) -> &[f32] {
        &self.points
    }
}

/// Values as at most `width` characters, the smallest lowest: means of equal parts of the values,
/// which need not be finite. Empty for no value.
pub fn sparkline(values: &[f32], width: usize) -> String {
    let finite: Vec<f64> = values
        .iter()
        .map(|v| f64::from(*v))
        .filter(|v| v.is_finite())
        .collect();
    if finite.is_empty() || width == 0 {
        return String::new();
    }
    let parts = width.min(finite.len());
    let mean = |part: usize| {
        let (from, to) = (
            part * finite.len() / parts,
            (part + 1) * finite.len() / parts,
        );
        finite[from..to].iter().sum::<f64>() / (to - from) as f64
    };
    let means: Vec<f64> = (0..parts).map(mean).collect();
    let (low, high) = means
        .iter()
        .fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
    let level = |value: &f64| {
        // A flat curve lies at the bottom.
        let share = if high > low {
            (value - low) / (high - low)
        } else {
            0.0
        };
        LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    means.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::sparkline;

    #[test]
    fn curves() {
        assert_eq!(sparkline(&[], 5), "");
        assert_eq!(sparkline(&[1.0], 5), "▁");
        assert_eq!(sparkline(&[3.0; 9], 4), "▁▁▁▁");
        assert_eq!(
            sparkline(&[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 8),
            "█▇▆▅▄▃▂▁"
        );
        assert_eq!(sparkline(&[4.0, 4.0, 1.0, 1.0], 2), "█▁");
        assert_eq!(sparkline(&[f32::NAN, 2.0, f32::INFINITY, 1.0], 9), "█▁");
        assert_eq!(sparkline(&[1.0, 2.0], 0), "");
    }
}
