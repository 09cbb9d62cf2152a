//! Means and standard deviations, and the mean of a curve over log2.

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
    }
}
