//! Ends of intervals at any level: quantiles, and the interval of a share.

use statrs::distribution::{Beta, ContinuousCDF, Normal, StudentsT};

/// Share of the cases that an interval of a report does not cover, both sides together.
pub const ALPHA: f64 = 0.05;
/// 97.5 % point of the standard normal distribution.
const Z_975: f64 = 1.959_963_984_540_054;
/// Variance between seeds, relative to that of one row, that is added to the one observed at a
/// share of 0 or 1; at p it is this times (1 - 2p)^4. Near the ends seeds agree because there is no
/// room, which does not show that seeds do not differ. The value is chosen by simulation,
/// `docs/evidence/coverage.md`.
const ADDED_AT_THE_ENDS: f64 = 0.05;
/// Rows beyond which an interval changes by less than what is printed, and beta quantiles converge
/// slowly.
const MOST_ROWS: u64 = 1_000_000;

/// Point that Student's t exceeds in `alpha / 2` of the cases.
pub(super) fn student_t(alpha: f64, freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(1.0 - alpha / 2.0)).filter(|t| t.is_finite())
}

/// The same of a standard normal variable.
fn normal(alpha: f64) -> Option<f64> {
    if alpha == ALPHA {
        return Some(Z_975);
    }
    Some(Normal::new(0.0, 1.0).ok()?.inverse_cdf(1.0 - alpha / 2.0))
}

/// Interval of a mean share by its standard deviation between seeds. The inverse of the effective
/// number of rows is the sum of three variances of the mean, each divided by that of one row:
/// between seeds as observed, an added one between seeds, and that between test rows, which all
/// seeds share. The first is raised by the square of t over z for its few degrees of freedom.
pub(super) fn share_interval(
    alpha: f64,
    (mean, sd): (f64, f64),
    seeds: usize,
    rows: u64,
) -> Option<(f64, f64)> {
    let m = seeds as f64;
    let freedom = (student_t(alpha, m - 1.0)? / normal(alpha)?).powi(2);
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
    clopper_pearson(alpha, mean, effective)
}

/// The exact binomial interval, for a number of rows that need not be whole.
pub(super) fn clopper_pearson(alpha: f64, share: f64, rows: f64) -> Option<(f64, f64)> {
    let (right, wrong) = (share * rows, (1.0 - share) * rows);
    // Below this the quantile is 0 or 1 to within 0.025^100, and its series converges slowly.
    let is_none = |count: f64| count < 0.01;
    let low = if is_none(right) {
        0.0
    } else {
        Beta::new(right, wrong + 1.0).ok()?.inverse_cdf(alpha / 2.0)
    };
    let high = if is_none(wrong) {
        1.0
    } else {
        let beta = Beta::new(right + 1.0, wrong).ok()?;
        beta.inverse_cdf(1.0 - alpha / 2.0)
    };
    // Quantiles are numerical; the interval holds the share in any case.
    Some((low.min(share), high.max(share)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_tables() {
        // What reports print at 95 % does not depend on how the level is written.
        assert_eq!(1.0 - ALPHA / 2.0, 0.975);
        assert!((normal(0.05 + 1e-12).unwrap() - Z_975).abs() < 1e-9);
        // z and t (2 and 9 degrees of freedom) at 99 %.
        assert!((normal(0.01).unwrap() - 2.575_829).abs() < 1e-6);
        assert!((student_t(0.01, 2.0).unwrap() - 9.924_843).abs() < 1e-5);
        assert!((student_t(0.01, 9.0).unwrap() - 3.249_836).abs() < 1e-5);
        assert_eq!(student_t(0.05, 0.0), None);
    }

    #[test]
    fn the_binomial_interval_by_hand() {
        // Clopper and Pearson (1934), 5 of 10: 0.1871 to 0.8129, at 99 % 0.1283 to 0.8717.
        let (low, high) = clopper_pearson(0.05, 0.5, 10.0).unwrap();
        assert!((low - 0.1871).abs() < 1e-4 && (high - 0.8129).abs() < 1e-4);
        let (low, high) = clopper_pearson(0.01, 0.5, 10.0).unwrap();
        assert!((low - 0.1283).abs() < 1e-4 && (high - 0.8717).abs() < 1e-4);
    }
}
