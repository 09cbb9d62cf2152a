//! Simulated test results of models whose true score is known, and how often an interval holds it.
//!
//! Shares follow the crossed model that test results have: seeds by rows, every seed tested on the
//! same rows. With the standard normal distribution function Phi, the probability that seed s
//! answers row r right is Phi(a + b_s + c_r), b_s normal over seeds and c_r over rows (in 64
//! equally likely levels), and a such that the mean over seeds and rows is the wanted share.

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

/// Levels of difficulty of a row.
const LEVELS: usize = 64;

/// Seeds tested on rows.
#[derive(Clone, Copy, Debug)]
pub struct Crossed {
    /// Number of seeds.
    pub seeds: usize,
    /// Number of test rows.
    pub rows: u64,
    /// Correlation, on the probit scale, of two answers of one seed to different rows. 1: each
    /// seed answers all rows right, or all wrong.
    pub correlation: f64,
    /// Whether rows differ in difficulty, with a standard deviation of 1 on the probit scale.
    pub hard_rows: bool,
}

/// How often an interval held the true value, and its mean width.
#[derive(Clone, Copy, Debug)]
pub struct Coverage {
    /// Share of the replicates.
    pub covered: f64,
    /// Mean width of the intervals.
    pub width: f64,
}

/// An interval of shares, one per seed, over a number of rows.
pub type ShareInterval = fn(&[f64], u64) -> Option<(f64, f64)>;
/// An interval of differences of shares, one pair per seed, over a number of rows.
pub type DifferenceInterval = fn(&[(f64, f64)], u64) -> Option<(f64, f64)>;

fn normal() -> Normal {
    Normal::new(0.0, 1.0).expect("a standard deviation of 1")
}

/// Random numbers of one stream.
pub struct Draws(ChaCha8Rng);

impl Draws {
    /// Equal streams give equal numbers.
    pub fn new(stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(0x10_96_ea_c4);
        rng.set_stream(stream);
        Self(rng)
    }

    /// In (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        normal().inverse_cdf(self.uniform())
    }
}

/// The crossed model at one share.
struct Model {
    all_or_nothing: Option<f64>,
    intercept: f64,
    /// Standard deviation over seeds.
    over_seeds: f64,
    /// By level of difficulty.
    difficulty: [f64; LEVELS],
}

impl Model {
    fn new(crossed: &Crossed, share: f64) -> Self {
        let of_rows = if crossed.hard_rows { 1.0 } else { 0.0 };
        let all_or_nothing = (crossed.correlation >= 1.0).then_some(share);
        let of_seeds = if all_or_nothing.is_some() {
            0.0
        } else {
            crossed.correlation / (1.0 - crossed.correlation) * (1.0 + of_rows)
        };
        let difficulty = std::array::from_fn(|level| {
            of_rows * normal().inverse_cdf((level as f64 + 0.5) / LEVELS as f64)
        });
        // The mean of Phi(x + b) over a normal b of variance v is Phi(x / sqrt(1 + v)).
        let mean = |a: f64| {
            difficulty
                .iter()
                .map(|c| normal().cdf((a + c) / (1.0 + of_seeds).sqrt()))
                .sum::<f64>()
                / LEVELS as f64
        };
        let (mut low, mut high) = (-60.0, 60.0);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if mean(middle) < share {
                low = middle
            } else {
                high = middle
            }
        }
        Self {
            all_or_nothing,
            intercept: low,
            over_seeds: of_seeds.sqrt(),
            difficulty,
        }
    }

    /// The share of the rows that a seed answers right; `seed`: its normal deviate.
    fn test(&self, seed: f64, rows: &[usize], draws: &mut Draws) -> f64 {
        if let Some(share) = self.all_or_nothing {
            return if normal().cdf(seed) < share { 1.0 } else { 0.0 };
        }
        let probability = |c: f64| normal().cdf(self.intercept + self.over_seeds * seed + c);
        let below: [u64; LEVELS] = std::array::from_fn(|level| {
            (probability(self.difficulty[level]) * 2f64.powi(32)) as u64
        });
        let right = rows
            .iter()
            .filter(|level| u64::from(draws.0.next_u32()) < below[**level])
            .count();
        right as f64 / rows.len() as f64
    }
}

fn rows(crossed: &Crossed, draws: &mut Draws) -> Vec<usize> {
    (0..crossed.rows)
        .map(|_| (draws.0.next_u32() >> 26) as usize)
        .collect()
}

fn coverage(
    replicates: usize,
    truth: f64,
    mut interval: impl FnMut() -> Option<(f64, f64)>,
) -> Coverage {
    let (mut held, mut width) = (0, 0.0);
    for _ in 0..replicates {
        if let Some((low, high)) = interval() {
            // The truth may be an end of the interval, except for rounding.
            held += usize::from(low - 1e-9 <= truth && truth <= high + 1e-9);
            width += high - low;
        }
    }
    Coverage {
        covered: held as f64 / replicates as f64,
        width: width / replicates as f64,
    }
}

/// Coverage of an interval of a share. Equal `stream`s give equal numbers.
pub fn share(
    crossed: &Crossed,
    share: f64,
    replicates: usize,
    stream: u64,
    interval: ShareInterval,
) -> Coverage {
    let (model, mut draws) = (Model::new(crossed, share), Draws::new(stream));
    coverage(replicates, share, || {
        let rows = rows(crossed, &mut draws);
        let seeds: Vec<f64> = (0..crossed.seeds).map(|_| draws.normal()).collect();
        let values: Vec<f64> = seeds
            .into_iter()
            .map(|seed| model.test(seed, &rows, &mut draws))
            .collect();
        interval(&values, crossed.rows)
    })
}

/// Coverage of an interval of the difference of two shares on the same rows, paired by seed.
/// `pairing`: the correlation of the deviates of a seed under the two methods.
pub fn difference(
    crossed: &Crossed,
    shares: (f64, f64),
    pairing: f64,
    replicates: usize,
    stream: u64,
    interval: DifferenceInterval,
) -> Coverage {
    let truth = shares.0 - shares.1;
    paired(
        crossed,
        (shares, truth),
        pairing,
        replicates,
        stream,
        interval,
    )
}

/// The same of the ratio of two shares.
pub fn ratio(
    crossed: &Crossed,
    shares: (f64, f64),
    pairing: f64,
    replicates: usize,
    stream: u64,
    interval: DifferenceInterval,
) -> Coverage {
    let truth = shares.0 / shares.1;
    paired(
        crossed,
        (shares, truth),
        pairing,
        replicates,
        stream,
        interval,
    )
}

/// Coverage of the `truth` about two shares.
fn paired(
    crossed: &Crossed,
    (shares, truth): ((f64, f64), f64),
    pairing: f64,
    replicates: usize,
    stream: u64,
    interval: DifferenceInterval,
) -> Coverage {
    let (first, second) = (Model::new(crossed, shares.0), Model::new(crossed, shares.1));
    let mut draws = Draws::new(stream);
    coverage(replicates, truth, || {
        let rows = rows(crossed, &mut draws);
        let mut pair = || {
            let own = draws.normal();
            let other = pairing * own + (1.0 - pairing * pairing).sqrt() * draws.normal();
            (
                first.test(own, &rows, &mut draws),
                second.test(other, &rows, &mut draws),
            )
        };
        let pairs: Vec<(f64, f64)> = (0..crossed.seeds).map(|_| pair()).collect();
        interval(&pairs, crossed.rows)
    })
}

/// Coverage of an interval of a mean of `seeds` values: normal ones, or those whose logarithm is
/// normal with the standard deviation `log_sd`.
pub fn mean(
    seeds: usize,
    log_sd: Option<f64>,
    replicates: usize,
    stream: u64,
    interval: fn(&[f64]) -> Option<(f64, f64)>,
) -> Coverage {
    let mut draws = Draws::new(stream);
    let truth = log_sd.map_or(0.0, |sd| (sd * sd / 2.0).exp());
    coverage(replicates, truth, || {
        let value = |z: f64| log_sd.map_or(z, |sd| (sd * z).exp());
        let values: Vec<f64> = (0..seeds).map(|_| value(draws.normal())).collect();
        interval(&values)
    })
}

/// Coverage of an interval of the geometric mean of `seeds` values whose logarithm is normal.
pub fn geometric(
    seeds: usize,
    log_sd: f64,
    replicates: usize,
    stream: u64,
    interval: fn(&[f64]) -> Option<(f64, f64)>,
) -> Coverage {
    let mut draws = Draws::new(stream);
    coverage(replicates, 1.0, || {
        let values: Vec<f64> = (0..seeds)
            .map(|_| (log_sd * draws.normal()).exp())
            .collect();
        interval(&values)
    })
}

/// Differences between two methods by seed and by block of a text: one part by seed, one by block,
/// which neighbouring blocks share, and one of both.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Number of seeds.
    pub seeds: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Correlation of the parts of neighbouring blocks (first-order autoregressive).
    pub correlation: f64,
    /// The text's share of the variance of the mean; the rest is that of the seeds.
    pub share: f64,
}

/// An interval of a mean difference, from one list of differences by block for each seed.
pub type TextInterval = fn(&[Vec<f64>]) -> Option<(f64, f64)>;

/// Coverage of an interval of the mean difference over all seeds and texts, whose variance is 1.
pub fn text(text: &Text, replicates: usize, stream: u64, interval: TextInterval) -> Coverage {
    let mut draws = Draws::new(stream);
    let n = text.blocks as f64;
    // The variance of a mean of blocks that are correlated, for blocks of variance 1.
    let lags = (1..text.blocks).map(|lag| {
        let lag = lag as f64;
        (1.0 - lag / n) * text.correlation.powf(lag)
    });
    let of_mean = (1.0 + 2.0 * lags.sum::<f64>()) / n;
    let by_seed = ((1.0 - text.share) * text.seeds as f64).sqrt();
    let by_block = (text.share / of_mean).sqrt();
    let innovation = (1.0 - text.correlation.powi(2)).sqrt();
    coverage(replicates, 0.0, || {
        let mut own = draws.normal();
        let blocks: Vec<f64> = (0..text.blocks)
            .map(|_| {
                let now = own;
                own = text.correlation * own + innovation * draws.normal();
                by_block * now
            })
            .collect();
        let mut seed = || {
            let own = by_seed * draws.normal();
            // A part of each seed and block, a fifth as large as that of blocks.
            let mut both = || own + 0.2 * by_block * draws.normal();
            blocks
                .iter()
                .map(|block| block + both())
                .collect::<Vec<f64>>()
        };
        let values: Vec<Vec<f64>> = (0..text.seeds).map(|_| seed()).collect();
        interval(&values)
    })
}

/// How often at least one of `count` true comparisons of a mean of `seeds` normal values with its
/// bound is rejected. `rejects`: whether one of `count` comparisons is rejected by its values; the
/// true mean is the bound, 0. `correlation`: of the values of one seed.
pub fn any_rejected(
    count: usize,
    seeds: usize,
    correlation: f64,
    replicates: usize,
    stream: u64,
    rejects: fn(&[f64], usize) -> bool,
) -> f64 {
    let mut draws = Draws::new(stream);
    let (shared, own) = (correlation.sqrt(), (1.0 - correlation).sqrt());
    let mut found = 0;
    for _ in 0..replicates {
        let common: Vec<f64> = (0..seeds).map(|_| shared * draws.normal()).collect();
        let mut is_any = false;
        for _ in 0..count {
            let values: Vec<f64> = common.iter().map(|c| c + own * draws.normal()).collect();
            is_any |= rejects(&values, count);
        }
        found += usize::from(is_any);
    }
    found as f64 / replicates as f64
}
