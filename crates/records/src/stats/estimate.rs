//! Means over seeds and their intervals.
//!
//! Every interval is two-sided, at 95 % unless another level is asked for. Means of unbounded
//! metrics get Student's t over seeds, perplexities that of their logarithms. Shares of test rows,
//! and differences and ratios of such shares, get intervals over seeds and test rows that stay
//! where these can be. What an interval covers, its source and its simulated coverage:
//! `docs/evaluation.md`. No interval covers the choice of corpus, model size or hyperparameters.

use super::basis::{Basis, Shown};
use super::blocks::OverText;
use super::interval::ALPHA;
use super::mean::{mean, sample_sd};

/// The interval of a mean, written `4.63 ± 0.05`, as captions name it.
pub const INTERVAL: &str = "95 % CI over seeds (Student t)";
/// The interval of a mean on [`Scale::Log`], written `4.24 [4.10, 4.39]`, as captions name it.
pub const LOG_INTERVAL: &str = "95 % CI over seeds (Student t in nats)";
/// The interval of a difference between two methods on the same text, as captions name it.
pub const TEXT_INTERVAL: &str = "95 % CI over seeds and text";
/// The interval of a share, written `0.667 [0.09, 0.99]`, as captions name it.
pub const SHARE_INTERVAL: &str = "95 % CI over seeds and test rows";

/// The scale on which values are averaged and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As they are.
    Linear,
    /// By their logarithms: means are geometric, and a difference is a relative change.
    Log,
}

/// Mean over seeds, with its interval where there are at least two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Number of seeds.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1), that of the logarithms on [`Scale::Log`]; none for one
    /// seed.
    pub sd: Option<f64>,
    /// Half-width of the interval where it is symmetric (Student t); none for shares, on
    /// [`Scale::Log`] and for one seed.
    pub half_width: Option<f64>,
    /// Lower and upper end of the 95 % interval; none for one seed.
    pub interval: Option<(f64, f64)>,
    /// What intervals are computed from.
    basis: Basis,
    /// The value whose distance to the mean this is; see [`distance_to`](Self::distance_to).
    distance_to: Option<f64>,
}

impl Estimate {
    fn new(n: usize, mean: f64, sd: Option<f64>, basis: Basis) -> Self {
        let interval = basis.interval(ALPHA, n);
        let half_width = match basis {
            Basis::Mean {
                shown: Shown::AsIs, ..
            } => basis.half_width(ALPHA, n),
            _ => None,
        };
        Self {
            n,
            mean,
            sd,
            half_width,
            interval,
            basis,
            distance_to: None,
        }
    }

    fn of_values(values: &[f64], shown: Shown) -> Option<Self> {
        let mean = mean(values).filter(|mean| mean.is_finite())?;
        let sd = sample_sd(values);
        let basis = Basis::Mean {
            mean,
            sd,
            shown,
            text: None,
        };
        let estimate = Self::new(values.len(), shown.of(mean), sd, basis);
        Some(estimate).filter(|estimate| estimate.mean.is_finite())
    }

    /// Mean on a scale, one value per seed: [`of_mean`](Self::of_mean), or the geometric mean with
    /// Student's t interval of the logarithms. Values that have no logarithm are averaged as they
    /// are.
    pub fn of(scale: Scale, values: &[f64]) -> Option<Self> {
        match logarithms(scale, values) {
            Some(logs) => Self::of_values(&logs, Shown::Exp),
            None => Self::of_mean(values),
        }
    }

    /// Mean difference on a scale, one pair of values per seed: of the first less the second, or on
    /// [`Scale::Log`] the relative change from the second to the first, `exp(mean) - 1` of the
    /// differences of the logarithms.
    pub fn of_difference(scale: Scale, pairs: &[(f64, f64)]) -> Option<Self> {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let differences = |a: &[f64], b: &[f64]| -> Vec<f64> {
            let both = a.iter().zip(b);
            both.map(|(a, b)| a - b).collect()
        };
        match logarithms(scale, &first).zip(logarithms(scale, &second)) {
            Some((a, b)) => Self::of_values(&differences(&a, &b), Shown::Change),
            None => Self::of_mean(&differences(&first, &second)),
        }
    }

    /// Mean of an unbounded metric, one value per seed, with Student's t interval. None if there is
    /// no value, or the mean is not finite.
    pub fn of_mean(values: &[f64]) -> Option<Self> {
        Self::of_values(values, Shown::AsIs)
    }

    /// Mean of shares, one per seed, each taken over the same `rows` test rows: the exact binomial
    /// interval of Clopper and Pearson at an effective number of rows, after Korn and Graubard
    /// (1998). As [`of_mean`](Self::of_mean) if a value is not a share.
    pub fn of_share(values: &[f64], rows: u64) -> Option<Self> {
        let estimate = Self::of_mean(values)?;
        let Some(sd) = estimate.sd.filter(|_| are_shares(values)) else {
            return Some(estimate);
        };
        let mean = estimate.mean;
        let basis = Basis::Share { mean, sd, rows };
        Some(Self::new(values.len(), mean, Some(sd), basis))
    }

    /// Mean difference of shares, paired by seed, of which the first are taken over `rows.0` test
    /// rows and the second over `rows.1`. The variance between seeds is that of the differences;
    /// the test rows add theirs by the method of variance estimates recovery (Zou and Donner 2008).
    /// As [`of_mean`](Self::of_mean) of the differences if a value is not a share.
    pub fn of_share_difference(pairs: &[(f64, f64)], rows: (u64, u64)) -> Option<Self> {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let estimate = Self::of_difference(Scale::Linear, pairs)?;
        let are_shares = are_shares(&first) && are_shares(&second);
        let Some(sd) = estimate.sd.filter(|_| are_shares) else {
            return Some(estimate);
        };
        let (mean, of) = (estimate.mean, (self::mean(&first)?, self::mean(&second)?));
        let basis = Basis::ShareDifference { mean, sd, of, rows };
        Some(Self::new(pairs.len(), mean, Some(sd), basis))
    }

    /// Mean ratio of shares, paired by seed, of which the first are taken over `rows.0` test rows
    /// and the second over `rows.1`: the seeds and the rows of both sides enter the interval as in
    /// [`of_share_difference`](Self::of_share_difference). None where a second share is 0. As
    /// [`of_mean`](Self::of_mean) of the ratios if a value is not a share.
    pub fn of_share_ratio(pairs: &[(f64, f64)], rows: (u64, u64)) -> Option<Self> {
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
        let estimate = Self::of_mean(&ratios)?;
        let are_shares = are_shares(&first) && are_shares(&second);
        let Some(sd) = estimate.sd.filter(|_| are_shares) else {
            return Some(estimate);
        };
        let (mean, of) = (estimate.mean, (self::mean(&first)?, self::mean(&second)?));
        let basis = Basis::ShareRatio { mean, sd, of, rows };
        Some(Self::new(pairs.len(), mean, Some(sd), basis))
    }

    /// The same mean with an interval over seeds and the text, whose variances add up. Shares stay
    /// as they are.
    #[must_use]
    pub fn over(self, over_text: OverText) -> Self {
        match self.basis {
            Basis::Mean {
                mean, sd, shown, ..
            } => {
                let text = Some(over_text);
                let basis = Basis::Mean {
                    mean,
                    sd,
                    shown,
                    text,
                };
                Self::new(self.n, self.mean, self.sd, basis)
            }
            Basis::Share { .. } | Basis::ShareDifference { .. } | Basis::ShareRatio { .. } => self,
        }
    }

    /// The 95 % intervals over seeds alone and over the text alone, of an estimate
    /// [`over`](Self::over) a text.
    pub fn apart(&self) -> Option<[(f64, f64); 2]> {
        self.basis.apart(ALPHA, self.n)
    }

    /// The two-sided interval that leaves out `alpha`, 0.05 for one of 95 %; none for one seed.
    pub fn interval_at(&self, alpha: f64) -> Option<(f64, f64)> {
        self.interval_with(alpha, self.n)
    }

    /// The same if it were of another number of seeds, with the same mean and spread.
    pub fn interval_with(&self, alpha: f64, seeds: usize) -> Option<(f64, f64)> {
        let interval = self.basis.interval(alpha, seeds)?;
        Some(match self.distance_to {
            Some(value) => distances(interval, value),
            None => interval,
        })
    }

    /// Distance of the mean to a fixed value, with the interval of the distances that the interval
    /// of the mean holds.
    pub fn distance_to(&self, value: f64) -> Self {
        Self {
            mean: (self.mean - value).abs(),
            half_width: None,
            interval: self.interval.map(|interval| distances(interval, value)),
            distance_to: Some(value),
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

/// The logarithms of values on [`Scale::Log`]; none on another scale, or where one has none.
fn logarithms(scale: Scale, values: &[f64]) -> Option<Vec<f64>> {
    let logs = || values.iter().map(|v| v.ln());
    (scale == Scale::Log && logs().all(f64::is_finite)).then(|| logs().collect())
}

/// The smallest and largest distance to a value from a point of an interval.
fn distances((low, high): (f64, f64), value: f64) -> (f64, f64) {
    let far = (low - value).abs().max((high - value).abs());
    let near = if low <= value && value <= high {
        0.0
    } else {
        (low - value).abs().min((high - value).abs())
    };
    (near, far)
}

fn are_shares(values: &[f64]) -> bool {
    values.iter().all(|v| (0.0..=1.0).contains(v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval(estimate: Option<Estimate>) -> (f64, f64) {
        estimate.unwrap().interval.unwrap()
    }

    #[test]
    fn intervals_of_means_match_tables_of_student_t() {
        let half_width = |values: &[f64]| Estimate::of_mean(values).unwrap().half_width.unwrap();
        // t(0.975): 12.706 (1), 4.3027 (2), 2.7764 (4), 2.2622 (9) degrees of freedom.
        assert!((half_width(&[1.0, 2.0, 3.0]) - 2.484).abs() < 5e-4);
        assert!((half_width(&[0.0, 2.0]) - 12.706).abs() < 1e-3);
        let five = [2.0, 4.0, 4.0, 5.0, 5.0];
        assert!((half_width(&five) - 2.7764 * 1.224_745 / 5f64.sqrt()).abs() < 1e-3);
        let ten: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((half_width(&ten) - 2.2622 * 3.027_650 / 10f64.sqrt()).abs() < 1e-3);
    }

    proptest! {
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
        let none = interval(Estimate::of_share(&[0.0; 3], 200));
        assert!(none.0 == 0.0 && (none.1 - (1.0 - low)).abs() < 1e-9);
        // Two right seeds and a wrong one: Student's t gave 0.667 ± 1.434.
        let (low, high) = interval(Estimate::of_share(&[1.0, 1.0, 0.0], 200));
        assert!(
            0.0 < low && low < 0.15 && 0.95 < high && high < 1.0,
            "{low} {high}"
        );
        // What is not a share has the interval of a mean.
        assert_eq!(
            Estimate::of_share(&[1.5, 0.5], 10),
            Estimate::of_mean(&[1.5, 0.5])
        );
        assert_eq!(Estimate::of_share(&[0.5], 10).unwrap().interval, None);
        // A count that no test set has is not a reason to take long.
        let (low, high) = interval(Estimate::of_share(&[0.5, 0.5], u64::MAX));
        assert!(
            0.498 < low && low < 0.5 && 0.5 < high && high < 0.502,
            "{low} {high}"
        );
    }

    #[test]
    fn differences_of_shares_by_hand() {
        // No spread between seeds leaves the rows: each side as wide as its own interval, joined as
        // the sides of a right triangle.
        let (low, _) = interval(Estimate::of_share(&[1.0; 3], 200));
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
        let t = interval(Estimate::of_mean(&[0.1, 0.2, 0.05]));
        let both = interval(Estimate::of_share_difference(&pairs, (1000, 1000)));
        assert!(both.0 < t.0 && both.1 > t.1);
        // A ratio of equal shares is as uncertain as each of them.
        let same = interval(Estimate::of_share_ratio(&[(1.0, 1.0); 3], (200, 200)));
        assert!((same.0 - low).abs() < 1e-12 && (same.1 - 1.0 / low).abs() < 1e-12);
        let t = interval(Estimate::of_mean(&[1.25, 1.4, 12.0 / 11.0]));
        let both = interval(Estimate::of_share_ratio(&pairs, (1000, 1000)));
        assert!(both.0 < t.0 && both.1 > t.1);
        assert_eq!(Estimate::of_share_ratio(&[(0.5, 0.0); 2], (9, 9)), None);
        let single = Estimate::of_share_difference(&[(0.5, 0.4)], (10, 10));
        assert_eq!(single.unwrap().interval, None);
        assert_eq!(Estimate::of_share_difference(&[], (10, 10)), None);
        // Where one side is no share, rows add nothing.
        let pairs = [(1.5, 0.5), (1.25, 0.25), (1.75, 0.5)];
        let difference = Estimate::of_share_difference(&pairs, (10, 10));
        assert_eq!(difference, Estimate::of_difference(Scale::Linear, &pairs));
        let ratio = Estimate::of_share_ratio(&pairs, (10, 10));
        assert_eq!(ratio, Estimate::of_mean(&[3.0, 5.0, 3.5]));
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
            let (narrow, wide) = (interval(Estimate::of_share(&values, 10 * rows)), high - low);
            prop_assert!(narrow.1 - narrow.0 <= wide + 1e-9);
            let wrong: Vec<f64> = values.iter().map(|v| 1.0 - v).collect();
            let mirrored = interval(Estimate::of_share(&wrong, rows));
            prop_assert!((mirrored.0 - (1.0 - high)).abs() < 1e-7 && (mirrored.1 - (1.0 - low)).abs() < 1e-7);
            let pairs: Vec<(f64, f64)> = values.iter().zip(&other).map(|(a, b)| (*a, *b as f64 / 50.0)).collect();
            let estimate = Estimate::of_share_difference(&pairs, (rows, rows)).unwrap();
            let (low, high) = estimate.interval.unwrap();
            prop_assert!(-1.0 <= low && low <= estimate.mean && estimate.mean <= high && high <= 1.0 && low < high);
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let back = interval(Estimate::of_share_difference(&swapped, (rows, rows)));
            prop_assert!((back.0 + high).abs() < 1e-7 && (back.1 + low).abs() < 1e-7);
        }
    }

    #[test]
    fn perplexities_by_hand() {
        // Losses 1, 2 and 3: mean 2, standard deviation 1, t(0.975; 2) = 4.3027.
        let values = [1f64.exp(), 2f64.exp(), 3f64.exp()];
        let log = Estimate::of(Scale::Log, &values).unwrap();
        let half = 4.302_652_73 / 3f64.sqrt();
        let (low, high) = log.interval.unwrap();
        assert!((log.mean - 2f64.exp()).abs() < 1e-12 && log.half_width.is_none());
        assert!((low.ln() - (2.0 - half)).abs() < 1e-7 && (high.ln() - (2.0 + half)).abs() < 1e-7);
        // The interval of perplexities themselves reaches below 0, where none is.
        assert!(low > 0.0 && interval(Estimate::of_mean(&values)).0 < 0.0);
        // The change from a half to the double: each loss is 0.5 higher, whatever the perplexity.
        let pairs = values.map(|v| (v * 0.5f64.exp(), v));
        let change = Estimate::of_difference(Scale::Log, &pairs).unwrap();
        assert!((change.mean - 0.5f64.exp_m1()).abs() < 1e-12 && change.sd.unwrap() < 1e-12);
        // Values without a logarithm are averaged as they are.
        let (zero, pair) = ([0.0, 2.0], [(0.0, 1.0), (2.0, 1.0)]);
        assert_eq!(Estimate::of(Scale::Log, &zero), Estimate::of_mean(&zero));
        assert_eq!(
            Estimate::of_difference(Scale::Log, &pair),
            Estimate::of_mean(&[-1.0, 1.0])
        );
        // An end that is not a number leaves no interval.
        let apart = Estimate::of(Scale::Log, &[1.0, 1e300]).unwrap();
        assert!(apart.mean.is_finite() && apart.interval.is_none());
        let one = Estimate::of(Scale::Log, &[4.0]).unwrap();
        assert!((one.mean - 4.0).abs() < 1e-12 && one.interval.is_none());
    }

    #[test]
    fn seeds_and_text_add_up() {
        let seeds = Estimate::of_mean(&[1.0, 2.0, 3.0]).unwrap();
        let over_text = OverText {
            error: 1.5,
            freedom: 15.0,
        };
        // t(0.975; 2) = 4.3027 times 1 / sqrt(3), t(0.975; 15) = 2.1314 times 1.5.
        let both = seeds.over(over_text);
        let half = (4.302_653f64 / 3f64.sqrt()).hypot(2.131_450 * 1.5);
        assert!((both.half_width.unwrap() - half).abs() < 1e-5 && both.mean == 2.0);
        let [alone, text] = both.apart().unwrap();
        assert_eq!((Some(alone), seeds.apart()), (seeds.interval, None));
        assert!((text.1 - 2.0 - 2.131_450 * 1.5).abs() < 1e-5);
        let share = Estimate::of_share(&[0.5, 0.6], 100).unwrap();
        assert_eq!(share.over(over_text), share);
        let one = Estimate::of_mean(&[1.0]).unwrap().over(over_text);
        assert_eq!((one.interval, one.apart()), (None, None));
    }

    #[test]
    fn intervals_at_other_levels() {
        // t(0.995; 2) = 9.9248.
        let mean = Estimate::of_mean(&[1.0, 2.0, 3.0]).unwrap();
        let (low, high) = mean.interval_at(0.01).unwrap();
        assert!(
            (high - 2.0 - 9.924_843 / 3f64.sqrt()).abs() < 1e-5 && (low + high - 4.0).abs() < 1e-9
        );
        let share = Estimate::of_share(&[0.5, 0.52, 0.54], 200).unwrap();
        let difference =
            Estimate::of_share_difference(&[(0.5, 0.4), (0.7, 0.5)], (200, 200)).unwrap();
        let log = Estimate::of(Scale::Log, &[4.0, 5.0]).unwrap();
        for estimate in [mean, share, difference, log, share.distance_to(0.3)] {
            assert_eq!(estimate.interval_at(0.05), estimate.interval);
            let (narrow, wide) = (
                estimate.interval.unwrap(),
                estimate.interval_at(0.01).unwrap(),
            );
            assert!(wide.0 < narrow.0 && narrow.1 < wide.1, "{estimate:?}");
        }
        assert_eq!(Estimate::of_mean(&[1.0]).unwrap().interval_at(0.5), None);
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
        // An interval of distances may end at 0, so it is not printed with one half-width.
        let mean = Estimate::of_mean(&[1.0, 2.0]).unwrap();
        assert!(mean.half_width.is_some() && mean.distance_to(1.0).half_width.is_none());
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
        let b = Estimate::of_mean(&[2.0, 2.0]).unwrap();
        assert!(a.is_separated_from(&b) && b.is_separated_from(&a));
        let wide = Estimate::of_mean(&[1.0, 2.0, 3.0]).unwrap();
        assert!(!b.is_separated_from(&wide) && !wide.is_separated_from(&b));
    }
}
