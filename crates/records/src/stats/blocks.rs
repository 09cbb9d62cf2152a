//! How much a mean over a text depends on which text it was.

/// Fewest blocks from which a standard error is computed.
const FEWEST: usize = 16;

/// The standard error of a mean over consecutive blocks of a text, with its degrees of freedom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverText {
    /// Standard error of the mean.
    pub error: f64,
    /// Degrees of freedom: runs of blocks less 1.
    pub freedom: f64,
}

impl OverText {
    /// By the circular block bootstrap (Politis and Romano 1992), which resamples runs of
    /// consecutive blocks, because neighbours are alike. The variance of a mean is known: no
    /// resamples are drawn. For k runs it is that of the means of all runs over k - 1, which makes
    /// up for the mean being estimated too; with runs of one block this is the usual standard
    /// error. None for few blocks.
    pub fn of(blocks: &[f64]) -> Option<Self> {
        let n = blocks.len();
        if n < FEWEST {
            return None;
        }
        let run = run_length(n);
        let mean = blocks.iter().sum::<f64>() / n as f64;
        let mean_of_run = |start: usize| {
            let values = (start..start + run).map(|at| blocks[at % n]);
            values.sum::<f64>() / run as f64
        };
        let squares = (0..n).map(|start| (mean_of_run(start) - mean).powi(2));
        let freedom = n as f64 / run as f64 - 1.0;
        let error = (squares.sum::<f64>() / n as f64 / freedom).sqrt();
        error.is_finite().then_some(Self { error, freedom })
    }
}

/// Blocks of a run: the cube root of their number, the rate at which the error of the variance is
/// least.
pub fn run_length(blocks: usize) -> usize {
    (blocks as f64).cbrt().round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bootstrap that draws: means of resampled runs, by a linear congruential generator.
    fn drawn(blocks: &[f64], resamples: usize) -> f64 {
        let (n, run) = (blocks.len(), run_length(blocks.len()));
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let means: Vec<f64> = (0..resamples)
            .map(|_| {
                let starts = (0..n / run).map(|_| next());
                let all = starts.flat_map(|start| (0..run).map(move |i| (start + i) % n));
                let all: Vec<f64> = all.map(|at| blocks[at]).collect();
                all.iter().sum::<f64>() / all.len() as f64
            })
            .collect();
        crate::stats::sample_sd(&means).unwrap()
    }

    #[test]
    fn it_is_what_a_bootstrap_draws() {
        let wave = |i: usize| (i as f64 / 5.0).sin() + (i * 7 % 11) as f64 / 11.0;
        let blocks: Vec<f64> = (0..64).map(wave).collect();
        let got = OverText::of(&blocks).unwrap();
        assert_eq!((run_length(64), got.freedom), (4, 15.0));
        // The bootstrap has the divisor k, where an unbiased variance has k - 1.
        let expected = drawn(&blocks, 20_000) * (16.0f64 / 15.0).sqrt();
        assert!(
            (got.error / expected - 1.0).abs() < 0.02,
            "{got:?} {expected}"
        );
        // Neighbours that are alike say less than as many strangers.
        let strangers: Vec<f64> = (0..64).map(|i| blocks[i * 27 % 64]).collect();
        assert!(got.error > 1.3 * OverText::of(&strangers).unwrap().error);
        assert_eq!(OverText::of(&blocks[..15]), None);
        assert_eq!(OverText::of(&[1.0; 64]).unwrap().error, 0.0);
    }
}
