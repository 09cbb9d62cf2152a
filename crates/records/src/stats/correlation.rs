//! Spearman's rank correlation.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Spearman's rank correlation and its p-value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// Number of pairs.
    pub n: usize,
    /// From -1 (reversed) to 1 (same order).
    pub rho: f64,
    /// Two-sided p-value: over all orders of the pairs for at most [`MOST_EXACT`] of them, else
    /// Student's t with n - 2 degrees of freedom.
    pub p: f64,
}

impl Correlation {
    /// A 95 % interval on Fisher's scale with the standard error of Bonett and Wright (2000),
    /// sqrt((1 + rho^2 / 2) / (n - 3)). None for fewer than four pairs, and for a perfect order,
    /// which has no finite place on that scale.
    pub fn interval_95(&self) -> Option<(f64, f64)> {
        if self.n < 4 || self.rho.abs() >= 1.0 {
            return None;
        }
        let error = ((1.0 + self.rho * self.rho / 2.0) / (self.n - 3) as f64).sqrt();
        let half = Normal::standard().inverse_cdf(0.975) * error;
        let z = self.rho.atanh();
        Some(((z - half).tanh(), (z + half).tanh()))
    }
}

/// Pairs up to which the p-value of a rank correlation is counted over every permutation.
pub const MOST_EXACT: usize = 8;

/// Spearman's rank correlation of two lists, equal values sharing the mean of their ranks. None for
/// lists of different lengths, fewer than two pairs, a value that is not finite, or a list whose
/// values are all equal.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<Correlation> {
    let n = a.len();
    if n != b.len() || n < 2 || a.iter().chain(b).any(|v| !v.is_finite()) {
        return None;
    }
    let (x, mut y) = (centred_ranks(a), centred_ranks(b));
    let squares = |ranks: &[f64]| ranks.iter().map(|r| r * r).sum::<f64>();
    let norm = (squares(&x) * squares(&y)).sqrt();
    // All values of a list are equal: there is no order to compare.
    if norm == 0.0 {
        return None;
    }
    let product = |y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let observed = product(&y);
    // Rounding may carry the quotient past 1.
    let rho = (observed / norm).clamp(-1.0, 1.0);
    let p = if n <= MOST_EXACT {
        // The norm is the same for every order, so products are compared, not correlations.
        let (mut as_large, mut all) = (0u64, 0u64);
        permutations(&mut y, &mut |y| {
            all += 1;
            // Products are sums of quarters: different ones differ by far more than this.
            as_large += u64::from(product(y).abs() >= observed.abs() - 1e-9);
        });
        as_large as f64 / all as f64
    } else if rho.abs() == 1.0 {
        // The t of a perfect order is infinite.
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
        // Ties take the ranks from below + 1 to below + equal, of which this is the mean.
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
    fn spearman_by_hand() {
        // Ranks 1 2 3 4 5 against 2 1 4 3 5: d^2 sums to 4, rho = 1 - 24 / 120 = 0.8; tables:
        // two-sided p = 16 / 120.
        let c = spearman(&[1.0, 2.0, 3.0, 4.0, 5.0], &[20.0, 10.0, 40.0, 30.0, 50.0]).unwrap();
        assert!((c.rho - 0.8).abs() < 1e-12 && (c.p - 16.0 / 120.0).abs() < 1e-12 && c.n == 5);
        // Ranks 1 2.5 2.5 4 against 1 2 3 4: 4.5 / sqrt(4.5 * 5).
        let tied = spearman(&[1.0, 2.0, 2.0, 4.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((tied.rho - 4.5 / 22.5f64.sqrt()).abs() < 1e-12);
        let perfect = spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]).unwrap();
        assert!(perfect.rho == -1.0 && (perfect.p - 2.0 / 6.0).abs() < 1e-12);
        // Ten pairs with d^2 summing to 54: rho = 1 - 324 / 990; t = 2.5717 with 8 degrees of
        // freedom, two-sided p = 0.03304.
        let a: Vec<f64> = (1..=10).map(f64::from).collect();
        let b = [3.0, 1.0, 2.0, 8.0, 5.0, 4.0, 9.0, 10.0, 7.0, 6.0];
        let ten = spearman(&a, &b).unwrap();
        assert!((ten.rho - (1.0 - 324.0 / 990.0)).abs() < 1e-12);
        assert!((ten.p - 0.033_041).abs() < 1e-6, "{}", ten.p);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(spearman(&[1.0, f64::NAN], &[1.0, 2.0]), None);
        assert_eq!(spearman(&a, &a).unwrap().p, 0.0);
    }

    #[test]
    fn intervals_by_hand() {
        // z = 1.098612, error = sqrt(1.32 / 7) = 0.434248, half = 0.851112: tanh of 0.247500 and
        // 1.949724.
        let c = Correlation {
            n: 10,
            rho: 0.8,
            p: 0.0,
        };
        let (low, high) = c.interval_95().unwrap();
        assert!((low - 0.242569).abs() < 1e-5 && (high - 0.960298).abs() < 1e-5);
        assert_eq!(Correlation { rho: 1.0, ..c }.interval_95(), None);
        assert_eq!(Correlation { n: 3, ..c }.interval_95(), None);
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
    }
}
