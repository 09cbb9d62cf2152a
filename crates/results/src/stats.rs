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

#[cfg(test)]
mod tests {
    use super::*;

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
