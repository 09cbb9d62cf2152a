//! Means over seeds and their intervals.
//!
//! Every interval is two-sided at 95 %. Means of unbounded metrics get Student's t over seeds.
//! Shares of test rows, and differences of such shares, get intervals over seeds and test rows that
//! stay where shares and their differences can be. What an interval covers, its source and its
//! simulated coverage: `docs/evaluation.md`. No interval covers the choice of corpus, model size or
//! hyperparameters.

use statrs::distribution::{Beta, ContinuousCDF, StudentsT};

/// The interval of a mean, written `4.63 ± 0.05`, as captions name it.
pub const INTERVAL: &str = "95 % CI over seeds (Student t)";
/// The interval of a share, written `0.667 [0.09, 0.99]`, as captions name it.
pub const SHARE_INTERVAL: &str = "95 % CI over seeds and test rows";
/// 97.5 % point of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;
/// Variance between seeds, relative to that of one row, that is added to the one observed at a
/// share of 0 or 1; at p it is this times (1 - 2p)^4. Near the ends seeds agree because there is no
/// room, which does not show that seeds do not differ. The value is chosen by simulation,
/// `docs/coverage.md`.
const ADDED_AT_THE_ENDS: f64 = 0.05;

/// Rows beyond which an interval changes by less than what is printed, and beta quantiles converge
/// slowly.
const MOST_ROWS: u64 = 1_000_000;

/// Mean over seeds, with its interval where there are at least two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Number of seeds.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); none for one seed.
    pub sd: Option<f64>,
    /// Half-width of the interval where it is symmetric (Student t); none for shares and for one
    /// seed.
    pub half_width: Option<f64>,
    /// Lower and upper end of the 95 % interval; none for one seed.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Mean of an unbounded metric, one value per seed, with Student's t interval. None if there is
    /// no value, or the mean is not finite.
    pub fn of_mean(values: &[f64]) -> Option<Self> {
        let mean = mean(values).filter(|mean| mean.is_finite())?;
        let half_width = half_width_95(values);
        let interval = half_width.map(|half| (mean - half, mean + half));
        Some(Self {
            n: values.len(),
            mean,
            sd: sample_sd(values),
            half_width,
            interval,
        })
    }

    /// Mean of shares, one per seed, each taken over the same `rows` test rows: the exact binomial
    /// interval of Clopper and Pearson at an effective number of rows, after Korn and Graubard
    /// (1998). As [`of_mean`](Self::of_mean) if a value is no share.
    pub fn of_share(values: &[f64], rows: u64) -> Option<Self> {
        let mut estimate = Self::of_mean(values)?;
        if !are_shares(values) {
            return Some(estimate);
        }
        // The interval of a share is not symmetric about its mean.
        estimate.half_width = None;
        estimate.interval = estimate
            .sd
            .and_then(|sd| share_interval(estimate.mean, sd, values.len(), rows));
        Some(estimate)
    }

    /// Mean difference of shares, paired by seed, of which the first are taken over `rows.0` test
    /// rows and the second over `rows.1`. The variance between seeds is that of the differences;
    /// the test rows add theirs by the method of variance estimates recovery (Zou and Donner 2008).
    /// As [`of_mean`](Self::of_mean) of the differences if a value is no share.
    pub fn of_share_difference(pairs: &[(f64, f64)], rows: (u64, u64)) -> Option<Self> {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
        let mut estimate = Self::of_mean(&differences)?;
        if !are_shares(&first) || !are_shares(&second) {
            return Some(estimate);
        }
        let interval = |seeds: f64| {
            let (a, b) = (mean(&first)?, mean(&second)?);
            // No standard deviation here: what seeds differ by enters once, as the half-width of
            // the paired differences.
            let (low_a, high_a) = share_interval(a, 0.0, pairs.len(), rows.0)?;
            let (low_b, high_b) = share_interval(b, 0.0, pairs.len(), rows.1)?;
            // The difference is smallest at a low `a` and a high `b`, so these ends bound it below.
            let below = (seeds.powi(2) + (a - low_a).powi(2) + (high_b - b).powi(2)).sqrt();
            let above = (seeds.powi(2) + (high_a - a).powi(2) + (b - low_b).powi(2)).sqrt();
            Some((
                (estimate.mean - below).max(-1.0),
                (estimate.mean + above).min(1.0),
            ))
        };
        estimate.interval = estimate.half_width.and_then(interval);
        estimate.half_width = None;
        Some(estimate)
    }

    /// Distance of the mean to a fixed value, with the interval of the distances that the interval
    /// of the mean holds.
    pub(crate) fn distance_to(&self, value: f64) -> Self {
        let interval = self.interval.map(|(low, high)| {
            let far = (low - value).abs().max((high - value).abs());
            let near = if low <= value && value <= high {
                0.0
            } else {
                (low - value).abs().min((high - value).abs())
            };
            (near, far)
        });
        Self {
            mean: (self.mean - value).abs(),
            half_width: None,
            interval,
            ..*self
        }
    }

    /// Whether both have intervals and these share no point.
    pub fn is_separated_from(&self, other: &Self) -> bool {
        match (self.interval, other.interval) {
            (Some((a, b)), Some((c, d))) => b < c || d < a,
            _ => false,
        }
    }
}

fn are_shares(values: &[f64]) -> bool {
    values.iter().all(|v| (0.0..=1.0).contains(v))
}

/// 97.5 % point of Student's t.
fn t_975(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975))
}

/// Interval of a mean share by its standard deviation between seeds. The inverse of the effective
/// number of rows is the sum of three variances of the mean, each divided by that of one row:
/// between seeds as observed, an added one between seeds, and that between test rows, which all
/// seeds share. The first is raised by the square of t over z for its few degrees of freedom.
fn share_interval(mean: f64, sd: f64, seeds: usize, rows: u64) -> Option<(f64, f64)> {
    let m = seeds as f64;
    let freedom = (t_975(m - 1.0)? / Z).powi(2);
    let of_a_row = mean * (1.0 - mean);
    // A mean of 0 or 1 leaves no room: all seeds are equal there.
    let correlation = if of_a_row > 0.0 {
        sd * sd / of_a_row
    } else {
        0.0
    };
    let added = ADDED_AT_THE_ENDS * (1.0 - 2.0 * mean).powi(4);
    // Seeds are tested on the same rows, so more seeds reduce the first two terms only.
    let effective =
        1.0 / (freedom * correlation / m + added / m + 1.0 / rows.clamp(1, MOST_ROWS) as f64);
    clopper_pearson(mean, effective)
}

/// The exact binomial interval, for a number of rows that need not be whole.
fn clopper_pearson(share: f64, rows: f64) -> Option<(f64, f64)> {
    let (right, wrong) = (share * rows, (1.0 - share) * rows);
    // Below this the quantile is 0 or 1 to within 0.025^100, and its series converges slowly.
    let is_none = |count: f64| count < 0.01;
    let low = if is_none(right) {
        0.0
    } else {
        Beta::new(right, wrong + 1.0).ok()?.inverse_cdf(0.025)
    };
    let high = if is_none(wrong) {
        1.0
    } else {
        Beta::new(right + 1.0, wrong).ok()?.inverse_cdf(0.975)
    };
    // Quantiles are numerical; the interval holds the share in any case.
    Some((low.min(share), high.max(share)))
}

/// Arithmetic mean; none for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    // A sum may overflow where the mean does not.
    (!values.is_empty()).then(|| {
        if mean.is_infinite() {
            values.iter().map(|v| v / n).sum()
        } else {
            mean
        }
    })
}

/// Sample standard deviation (divisor n - 1); none for fewer than two values, or where it is too
/// large for a number.
pub fn sample_sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values)?;
    // In two passes: the mean of squares minus the square of the mean cancels.
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt()).filter(|sd| sd.is_finite())
}

/// Half-width of the two-sided 95 % confidence interval of the mean (Student t); none for fewer
/// than two values.
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    let sd = sample_sd(values)?;
    let n = values.len() as f64;
    Some(t_975(n - 1.0)? * sd / n.sqrt()).filter(|half| half.is_finite())
}

/// Mean of a curve over log2 of its x, by the trapezoid rule: the area under it, divided by its
/// width. `points` by ascending x; none for fewer than two, for an x that is not above 0, or where
/// the mean is not finite.
pub fn mean_over_log2(points: &[(f64, f64)]) -> Option<f64> {
    let width = |a: f64, b: f64| (b / a).log2();
    let (first, last) = (points.first()?.0, points.last()?.0);
    if first <= 0.0 || points.windows(2).any(|p| p[0].0 >= p[1].0) {
        return None;
    }
    let area: f64 = points
        .windows(2)
        .map(|p| width(p[0].0, p[1].0) * (p[0].1 + p[1].1) / 2.0)
        .sum();
    // A single point has no width, and 0 / 0 is not finite.
    Some(area / width(first, last)).filter(|mean| mean.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mean_over_log2_by_hand() {
        // One doubling from 1 to 0.5 (area 0.75), two more down to 0 (area 0.5): 1.25 over three
        // doublings.
        assert!(
            (mean_over_log2(&[(64.0, 1.0), (128.0, 0.5), (512.0, 0.0)]).unwrap() - 1.25 / 3.0)
                .abs()
                < 1e-15
        );
        assert_eq!(mean_over_log2(&[(64.0, 1.0)]), None);
        assert_eq!(mean_over_log2(&[]), None);
        assert_eq!(mean_over_log2(&[(0.0, 1.0), (1.0, 1.0)]), None);
        assert_eq!(mean_over_log2(&[(2.0, 1.0), (2.0, 1.0)]), None);
    }

    proptest! {
        #[test]
        fn mean_over_log2_is_a_mean(shares in proptest::collection::vec(0.0..2.0_f64, 2..12), scale in 0.5..4.0_f64) {
            let points: Vec<(f64, f64)> = shares.iter().enumerate().map(|(i, s)| (16.0 * 1.5f64.powi(i as i32), *s)).collect();
            let mean = mean_over_log2(&points).unwrap();
            let (low, high) = shares.iter().fold((f64::MAX, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
            prop_assert!((low - 1e-12..=high + 1e-12).contains(&mean));
            // The unit of length does not matter, and a point on the line between two others adds nothing.
            let other: Vec<(f64, f64)> = points.iter().map(|p| (p.0 * scale, p.1)).collect();
            prop_assert!((mean_over_log2(&other).unwrap() - mean).abs() < 1e-9);
            let mut between = points.clone();
            between.insert(1, ((points[0].0 * points[1].0).sqrt(), (points[0].1 + points[1].1) / 2.0));
            prop_assert!((mean_over_log2(&between).unwrap() - mean).abs() < 1e-9);
        }

        #[test]
        fn an_estimate_does_not_depend_on_the_order_of_seeds(mut values in proptest::collection::vec(-1e3..1e3_f64, 1..8)) {
            let before = Estimate::of_mean(&values).unwrap();
            values.reverse();
            let after = Estimate::of_mean(&values).unwrap();
            prop_assert!((before.mean - after.mean).abs() < 1e-9 && before.n == after.n);
            let (a, b) = (before.half_width.unwrap_or(0.0), after.half_width.unwrap_or(0.0));
            prop_assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0) && a >= 0.0);
        }
    }

    #[test]
    fn student_t_matches_tables() {
        // t(0.975): 12.706 (1), 4.3027 (2), 2.7764 (4), 2.2622 (9) degrees of freedom.
        assert!((half_width_95(&[1.0, 2.0, 3.0]).unwrap() - 2.484).abs() < 5e-4);
        assert!((half_width_95(&[0.0, 2.0]).unwrap() - 12.706).abs() < 1e-3);
        let five = [2.0, 4.0, 4.0, 5.0, 5.0];
        assert!((half_width_95(&five).unwrap() - 2.7764 * 1.224_745 / 5f64.sqrt()).abs() < 1e-3);
        let ten: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((half_width_95(&ten).unwrap() - 2.2622 * 3.027_650 / 10f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn shares_by_hand() {
        // Three seeds of 200 rows, all right: effective rows 1 / (0.05 / 3 + 1 / 200) = 46.15, low
        // end 0.025^(1 / 46.15).
        let all = Estimate::of_share(&[1.0; 3], 200).unwrap();
        let (low, high) = all.interval.unwrap();
        assert!(
            (low - 0.025f64.powf(0.05 / 3.0 + 0.005)).abs() < 1e-9
                && high == 1.0
                && all.half_width.is_none(),
            "{all:?}"
        );
        let none = Estimate::of_share(&[0.0; 3], 200)
            .unwrap()
            .interval
            .unwrap();
        assert!(none.0 == 0.0 && (none.1 - (1.0 - low)).abs() < 1e-9);
        // Clopper and Pearson (1934), 5 of 10: 0.1871 to 0.8129.
        let (low, high) = clopper_pearson(0.5, 10.0).unwrap();
        assert!((low - 0.1871).abs() < 1e-4 && (high - 0.8129).abs() < 1e-4);
        // Two right seeds and a wrong one: Student's t gave 0.667 ± 1.434.
        let (low, high) = Estimate::of_share(&[1.0, 1.0, 0.0], 200)
            .unwrap()
            .interval
            .unwrap();
        assert!(
            0.0 < low && low < 0.15 && 0.95 < high && high < 1.0,
            "{low} {high}"
        );
        // What is no share has the interval of a mean.
        assert_eq!(
            Estimate::of_share(&[1.5, 0.5], 10),
            Estimate::of_mean(&[1.5, 0.5])
        );
        assert_eq!(Estimate::of_share(&[0.5], 10).unwrap().interval, None);
        // A count that no test set has is no reason to take long.
        let (low, high) = Estimate::of_share(&[0.5, 0.5], u64::MAX)
            .unwrap()
            .interval
            .unwrap();
        assert!(
            0.498 < low && low < 0.5 && 0.5 < high && high < 0.502,
            "{low} {high}"
        );
    }

    #[test]
    fn differences_of_shares_by_hand() {
        // No spread between seeds leaves the rows: each side as wide as its own interval, joined as
        // the sides of a right triangle.
        let (low, _) = Estimate::of_share(&[1.0; 3], 200)
            .unwrap()
            .interval
            .unwrap();
        let same = Estimate::of_share_difference(&[(1.0, 1.0); 3], (200, 200)).unwrap();
        let (below, above) = same.interval.unwrap();
        assert!(
            (below - (low - 1.0)).abs() < 1e-12 && (above - (1.0 - low)).abs() < 1e-12,
            "{same:?}"
        );
        let most = Estimate::of_share_difference(&[(1.0, 0.0); 3], (200, 200)).unwrap();
        let (below, above) = most.interval.unwrap();
        assert!(
            (below - (1.0 - 2f64.sqrt() * (1.0 - low))).abs() < 1e-12 && above == 1.0,
            "{most:?}"
        );
        // The interval is never narrower than Student's t of the differences.
        let pairs = [(0.5, 0.4), (0.7, 0.5), (0.6, 0.55)];
        let t = Estimate::of_mean(&[0.1, 0.2, 0.05])
            .unwrap()
            .interval
            .unwrap();
        let both = Estimate::of_share_difference(&pairs, (1000, 1000))
            .unwrap()
            .interval
            .unwrap();
        assert!(both.0 < t.0 && both.1 > t.1);
        assert_eq!(
            Estimate::of_share_difference(&[(0.5, 0.4)], (10, 10))
                .unwrap()
                .interval,
            None
        );
        assert_eq!(Estimate::of_share_difference(&[], (10, 10)), None);
    }

    proptest! {
        #[test]
        fn intervals_of_shares_stay_where_shares_are(
            counts in proptest::collection::vec(0..=50_u64, 2..12), other in proptest::collection::vec(0..=50_u64, 12), rows in 50..5000_u64
        ) {
            let values: Vec<f64> = counts.iter().map(|c| *c as f64 / 50.0).collect();
            let estimate = Estimate::of_share(&values, rows).unwrap();
            let (low, high) = estimate.interval.unwrap();
            prop_assert!(0.0 <= low && low <= estimate.mean && estimate.mean <= high && high <= 1.0 && low < high);
            // More rows never widen it, and what is wrong mirrors what is right.
            let (narrow, wide) = (Estimate::of_share(&values, 10 * rows).unwrap().interval.unwrap(), high - low);
            prop_assert!(narrow.1 - narrow.0 <= wide + 1e-9);
            let wrong: Vec<f64> = values.iter().map(|v| 1.0 - v).collect();
            let mirrored = Estimate::of_share(&wrong, rows).unwrap().interval.unwrap();
            prop_assert!((mirrored.0 - (1.0 - high)).abs() < 1e-7 && (mirrored.1 - (1.0 - low)).abs() < 1e-7);
            let pairs: Vec<(f64, f64)> = values.iter().zip(&other).map(|(a, b)| (*a, *b as f64 / 50.0)).collect();
            let estimate = Estimate::of_share_difference(&pairs, (rows, rows)).unwrap();
            let (low, high) = estimate.interval.unwrap();
            prop_assert!(-1.0 <= low && low <= estimate.mean && estimate.mean <= high && high <= 1.0 && low < high);
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let back = Estimate::of_share_difference(&swapped, (rows, rows)).unwrap().interval.unwrap();
            prop_assert!((back.0 + high).abs() < 1e-7 && (back.1 + low).abs() < 1e-7);
        }
    }

    #[test]
    fn distances_keep_the_interval() {
        let estimate = Estimate::of_share(&[0.5, 0.52, 0.54], 200).unwrap();
        let (low, high) = estimate.interval.unwrap();
        assert_eq!(estimate.distance_to(0.0).interval, Some((low, high)));
        let inside = estimate.distance_to(0.5);
        assert!((inside.mean - 0.02).abs() < 1e-12 && inside.interval.unwrap().0 == 0.0);
        assert_eq!(
            estimate.distance_to(1.0).interval,
            Some((1.0 - high, 1.0 - low))
        );
    }

    #[test]
    fn one_seed_has_no_interval() {
        let one = Estimate::of_mean(&[4.0]).unwrap();
        assert_eq!(
            (one.n, one.mean, one.sd, one.half_width),
            (1, 4.0, None, None)
        );
        assert_eq!(Estimate::of_mean(&[]), None);
        let huge = Estimate::of_mean(&[1.7e308, 1.7e308, 1.0]).unwrap();
        assert!(huge.mean.is_finite() && huge.half_width.is_none());
        assert!(!one.is_separated_from(&Estimate::of_mean(&[9.0, 9.0]).unwrap()));
    }

    #[test]
    fn separation_is_strict() {
        let a = Estimate::of_mean(&[1.0, 1.0]).unwrap();
        assert!(!a.is_separated_from(&a));
        assert!(a.is_separated_from(&Estimate::of_mean(&[2.0, 2.0]).unwrap()));
    }
}
