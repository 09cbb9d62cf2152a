//! Statistics over seeds.
//!
//! The interval is the two-sided 95 % confidence interval of a mean of n independent runs under the Student t distribution with
//! n - 1 degrees of freedom. It covers the choice of seed (weights, batches, positions) and nothing else: not the choice of
//! corpus, model size or hyperparameters.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How every caption names the interval.
pub const INTERVAL: &str = "95 % CI over n seeds (Student t)";

/// Mean over seeds, with its interval where there are at least two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Number of seeds.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Sample standard deviation (n - 1); none for one seed.
    pub sd: Option<f64>,
    /// Half-width of the 95 % confidence interval; none for one seed.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Estimate from one value per seed; none if there is no value, or the mean is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = mean(values).filter(|mean| mean.is_finite())?;
        Some(Self { n: values.len(), mean, sd: sample_sd(values), half_width: half_width_95(values) })
    }

    /// Lower and upper end of the interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.half_width.map(|h| (self.mean - h, self.mean + h))
    }

    /// Whether both have intervals and these share no point.
    pub fn is_separated_from(&self, other: &Self) -> bool {
        match (self.interval(), other.interval()) {
            (Some((a, b)), Some((c, d))) => b < c || d < a,
            _ => false,
        }
    }
}

/// Arithmetic mean; none for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    // A sum may overflow where the mean does not.
    (!values.is_empty()).then(|| if mean.is_infinite() { values.iter().map(|v| v / n).sum() } else { mean })
}

/// Sample standard deviation (divisor n - 1); none for fewer than two values, or where it is too large for a number.
pub fn sample_sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt()).filter(|sd| sd.is_finite())
}

/// Half-width of the two-sided 95 % confidence interval of the mean (Student t); none for fewer than two values.
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    let sd = sample_sd(values)?;
    let n = values.len() as f64;
    let t = StudentsT::new(0.0, 1.0, n - 1.0).ok()?.inverse_cdf(0.975);
    Some(t * sd / n.sqrt()).filter(|half| half.is_finite())
}

/// Mean of a curve over log2 of its x, by the trapezoid rule: the area under it, divided by its width. `points` by ascending x;
/// none for fewer than two, for an x that is not above 0, or where the mean is not finite.
pub fn mean_over_log2(points: &[(f64, f64)]) -> Option<f64> {
    let width = |a: f64, b: f64| (b / a).log2();
    let (first, last) = (points.first()?.0, points.last()?.0);
    if first <= 0.0 || points.windows(2).any(|p| p[0].0 >= p[1].0) {
        return None;
    }
    let area: f64 = points.windows(2).map(|p| width(p[0].0, p[1].0) * (p[0].1 + p[1].1) / 2.0).sum();
    Some(area / width(first, last)).filter(|mean| mean.is_finite())
}

/// Spearman's rank correlation and how often chance alone would give one as large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// Number of pairs.
    pub n: usize,
    /// From -1 (reversed) to 1 (same order).
    pub rho: f64,
    /// Two-sided p-value: over all orders of the pairs for at most [`MOST_EXACT`] of them, else Student's t with n - 2 degrees of freedom.
    pub p: f64,
}

/// Pairs up to which the p-value of a rank correlation is counted over every permutation.
pub const MOST_EXACT: usize = 8;

/// Spearman's rank correlation of two lists, equal values sharing the mean of their ranks. None for lists of different lengths, fewer
/// than two pairs, a value that is not finite, or a list whose values are all equal.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<Correlation> {
    let n = a.len();
    if n != b.len() || n < 2 || a.iter().chain(b).any(|v| !v.is_finite()) {
        return None;
    }
    let (x, mut y) = (centred_ranks(a), centred_ranks(b));
    let squares = |ranks: &[f64]| ranks.iter().map(|r| r * r).sum::<f64>();
    let norm = (squares(&x) * squares(&y)).sqrt();
    if norm == 0.0 {
        return None;
    }
    let product = |y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let observed = product(&y);
    let rho = (observed / norm).clamp(-1.0, 1.0);
    let p = if n <= MOST_EXACT {
        let (mut as_large, mut all) = (0u64, 0u64);
        permutations(&mut y, &mut |y| {
            all += 1;
            // Products are sums of quarters: what differs, differs by far more than this.
            as_large += u64::from(product(y).abs() >= observed.abs() - 1e-9);
        });
        as_large as f64 / all as f64
    } else if rho.abs() == 1.0 {
        0.0
    } else {
        let freedom = (n - 2) as f64;
        let t = rho.abs() * (freedom / (1.0 - rho * rho)).sqrt();
        (2.0 * StudentsT::new(0.0, 1.0, freedom).ok()?.sf(t)).min(1.0)
    };
    Some(Correlation { n, rho, p })
}

/// Ranks from 1, ties sharing their mean, minus the mean of all.
fn centred_ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| {
        let below = values.iter().filter(|other| *other < v).count() as f64;
        let equal = values.iter().filter(|other| *other == v).count() as f64;
        below + (equal + 1.0) / 2.0 - (values.len() as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Every order of the items, each once, by Heap's algorithm.
fn permutations(items: &mut [f64], each: &mut impl FnMut(&[f64])) {
    let mut count = vec![0; items.len()];
    each(items);
    let mut i = 1;
    while i < items.len() {
        if count[i] < i {
            items.swap(if i % 2 == 0 { 0 } else { count[i] }, i);
            each(items);
            count[i] += 1;
            i = 1;
        } else {
            count[i] = 0;
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mean_over_log2_by_hand() {
        // One doubling from 1 to 0.5 (area 0.75), two more down to 0 (area 0.5): 1.25 over three doublings.
        assert!((mean_over_log2(&[(64.0, 1.0), (128.0, 0.5), (512.0, 0.0)]).unwrap() - 1.25 / 3.0).abs() < 1e-15);
        assert_eq!(mean_over_log2(&[(64.0, 1.0)]), None);
        assert_eq!(mean_over_log2(&[]), None);
        assert_eq!(mean_over_log2(&[(0.0, 1.0), (1.0, 1.0)]), None);
        assert_eq!(mean_over_log2(&[(2.0, 1.0), (2.0, 1.0)]), None);
    }

    #[test]
    fn spearman_by_hand() {
        // Ranks 1 2 3 4 5 against 2 1 4 3 5: d^2 sums to 4, rho = 1 - 24 / 120 = 0.8; tables: two-sided p = 16 / 120.
        let c = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[20.0, 10.0, 40.0, 30.0, 50.0]).unwrap();
        assert!((c.rho - 0.8).abs() < 1e-12 && (c.p - 16.0 / 120.0).abs() < 1e-12 && c.n == 5);
        // Ranks 1 2.5 2.5 4 against 1 2 3 4: 4.5 / sqrt(4.5 * 5).
        let tied = spearman(&[1.0, 2.0, 2.0, 4.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((tied.rho - 4.5 / 22.5f64.sqrt()).abs() < 1e-12);
        let perfect = spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]).unwrap();
        assert!(perfect.rho == -1.0 && (perfect.p - 2.0 / 6.0).abs() < 1e-12);
        // Ten pairs with d^2 summing to 60: rho = 1 - 360 / 990; t = 2.1106 with 8 degrees of freedom, p = 0.0679.
        let a: Vec<f64> = (1..=10).map(f64::from).collect();
        let b = [3.0, 1.0, 2.0, 8.0, 5.0, 4.0, 9.0, 10.0, 7.0, 6.0];
        let squares: f64 = a.iter().zip(&b).map(|(x, y)| (x - y) * (x - y)).sum();
        let ten = spearman(&a, &b).unwrap();
        assert!((ten.rho - (1.0 - 6.0 * squares / 990.0)).abs() < 1e-12);
        let t = ten.rho * (8.0 / (1.0 - ten.rho * ten.rho)).sqrt();
        // t(0.975) = 2.306, t(0.95) = 1.860 with 8 degrees of freedom.
        assert_eq!(t > 2.306, ten.p < 0.05);
        assert_eq!(t > 1.860, ten.p < 0.10);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, f64::NAN], &[1.0, 2.0]), None);
        assert_eq!(spearman(&a, &a).unwrap().p, 0.0);
    }

    proptest! {
        #[test]
        fn spearman_knows_ranks_alone(pairs in proptest::collection::vec((0..6_i32, 0..6_i32), 2..12), turn in 0..12_usize) {
            let split = |pairs: &[(i32, i32)]| -> (Vec<f64>, Vec<f64>) { pairs.iter().map(|p| (f64::from(p.0), f64::from(p.1))).unzip() };
            let (a, b) = split(&pairs);
            if let Some(c) = spearman(&a, &b) {
                prop_assert!((-1.0..=1.0).contains(&c.rho) && (0.0..=1.0).contains(&c.p) && c.n == pairs.len());
                let mut turned = pairs.clone();
                turned.rotate_left(turn % pairs.len());
                let (x, y) = split(&turned);
                let grown: Vec<f64> = x.iter().map(|v| v.exp()).collect();
                let other = spearman(&grown, &y).unwrap();
                prop_assert!((other.rho - c.rho).abs() < 1e-12 && (other.p - c.p).abs() < 1e-12);
                let back = spearman(&b, &a).unwrap();
                prop_assert!((back.rho - c.rho).abs() < 1e-12 && (back.p - c.p).abs() < 1e-12);
                let negated: Vec<f64> = b.iter().map(|v| -v).collect();
                prop_assert!((spearman(&a, &negated).unwrap().rho + c.rho).abs() < 1e-12);
            }
        }

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
            let before = Estimate::of(&values).unwrap();
            values.reverse();
            let after = Estimate::of(&values).unwrap();
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
    fn one_seed_has_no_interval() {
        let one = Estimate::of(&[4.0]).unwrap();
        assert_eq!((one.n, one.mean, one.sd, one.half_width), (1, 4.0, None, None));
        assert_eq!(Estimate::of(&[]), None);
        let huge = Estimate::of(&[1.7e308, 1.7e308, 1.0]).unwrap();
        assert!(huge.mean.is_finite() && huge.half_width.is_none());
        assert!(!one.is_separated_from(&Estimate::of(&[9.0, 9.0]).unwrap()));
    }

    #[test]
    fn separation_is_strict() {
        let a = Estimate::of(&[1.0, 1.0]).unwrap();
        assert!(!a.is_separated_from(&a));
        assert!(a.is_separated_from(&Estimate::of(&[2.0, 2.0]).unwrap()));
    }
}
