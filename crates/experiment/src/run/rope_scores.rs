//! Semantic and positional score of a rotary head: how stable its order of two keys is while their
//! distance varies, and how far one token moves a logit.
//!
//! Wu, Du and Peng 2026 (arXiv 2609.39929), by the code of their RoPE Profiler 0.1.0. A logit at
//! distance d is `S(d) = sum of Re(c_j e^(i w_j d))`, `c_j = q_j conj(k_j)` over rotated pairs j,
//! plus the product of dimensions that are not rotated. With d uniform over a window of W tokens:
//!
//! - semantic: 1 minus the probability that the sign of `S_1 - S_2` differs from its sign at d = 0,
//!   for a Gaussian of its mean and variance;
//! - positional: the mean of `|S(d + 1) - S(d)|` over the norm of c.

use std::f64::consts::{FRAC_1_SQRT_2, PI};
use tasks::Stream;

/// Rows of a test that are read.
pub const ROWS: usize = 32;
const QUERIES: usize = 4;
const KEYS: usize = 16;
/// Most distances that the positional score averages over.
const DISTANCES: usize = 256;

/// Real and imaginary part.
type Complex = [f64; 2];

/// The rotation of a layer.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Angle of each pair from one token to the next.
    pub inv_freq: Vec<f64>,
    /// What rotated queries and keys are each multiplied by.
    pub factor: f64,
    /// Whether pair i is `(2i, 2i + 1)` instead of `(i, i + pairs)`.
    pub interleaved: bool,
}

/// The tokens and distances that are read of a window.
#[derive(Clone, Debug)]
pub struct Sample {
    /// W, in tokens.
    pub window: usize,
    /// Positions of queries.
    pub queries: Vec<usize>,
    /// Positions of keys, all before the first query.
    pub keys: Vec<usize>,
    /// Indices of a query and of two keys that it compares.
    pub triplets: Vec<[usize; 3]>,
    /// Distances whose logit is compared with that of the next one.
    pub distances: Vec<usize>,
}

/// Means over the valid samples of one head in one row; `None` where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Over triplets whose keys are not tied at distance 0.
    pub semantic: Option<f64>,
    /// Over pairs with a product.
    pub positional: Option<f64>,
}

impl Sample {
    /// Draws from a window; `None` if it is too short for two keys and a query.
    pub fn draw(window: usize, stream: &mut Stream) -> Option<Self> {
        let first = KEYS.min((window / 2).max(2));
        let mut drawn = |from: usize, to: usize, count: usize| {
            let mut all: Vec<usize> = (from..to).collect();
            stream.shuffle(&mut all);
            all.truncate(count);
            all
        };
        let mut queries = drawn(first, window, QUERIES);
        queries.sort_unstable();
        // In the order drawn: neighbours are compared.
        let keys = drawn(0, *queries.first()?, KEYS);
        let of = |query| {
            let compared = (0..keys.len() / 2).map(|i| [2 * i, 2 * i + 1]);
            compared.map(move |[one, other]| [query, one, other])
        };
        let mut distances: Vec<usize> = (0..window - 1).collect();
        if distances.len() > DISTANCES {
            let at = |_| stream.below(window as u64 - 1) as usize;
            distances = (0..DISTANCES).map(at).collect();
        }
        Some(Self {
            window,
            triplets: (0..queries.len()).flat_map(of).collect(),
            queries,
            keys,
            distances,
        })
    }
}

fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

fn minus([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a - c, b - d]
}

fn conjugate([a, b]: Complex) -> Complex {
    [a, -b]
}

fn turn(angle: f64) -> Complex {
    let (sin, cos) = libm::sincos(angle);
    [cos, sin]
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// The mean of `e^(i angle d)` over d from 0 to `window - 1`.
fn mean_turn(angle: f64, window: usize) -> Complex {
    let n = window as f64;
    // Into -pi..pi, where half the angle has no sine of 0 but at 0. Small angles keep their digits.
    let angle = match angle.abs() <= PI {
        true => angle,
        false => (angle + PI).rem_euclid(2.0 * PI) - PI,
    };
    let half = angle / 2.0;
    let size = match half == 0.0 {
        true => 1.0,
        false => libm::sin(n * half) / (n * libm::sin(half)),
    };
    turn((n - 1.0) * half).map(|part| part * size)
}

/// Moments of turns over the distances of a window.
struct Moments {
    mean: Vec<Complex>,
    /// `E[e_j conj(e_k)]` and `E[e_j e_k]` less the products of the means.
    covariances: Vec<[Complex; 2]>,
}

impl Moments {
    fn new(inv_freq: &[f64], window: usize) -> Self {
        let mean: Vec<Complex> = inv_freq.iter().map(|w| mean_turn(*w, window)).collect();
        let of = |(j, one): (usize, &f64)| {
            let mean = &mean;
            let pairs = inv_freq.iter().enumerate();
            let one = *one;
            pairs.map(move |(k, other)| {
                let (difference, sum) = (one - other, one + other);
                [
                    minus(
                        mean_turn(difference, window),
                        times(mean[j], conjugate(mean[k])),
                    ),
                    minus(mean_turn(sum, window), times(mean[j], mean[k])),
                ]
            })
        };
        let covariances = inv_freq.iter().enumerate().flat_map(of).collect();
        Self { mean, covariances }
    }

    /// Mean and variance of `sum of Re(c_j e_j)`.
    fn of(&self, c: &[Complex]) -> [f64; 2] {
        let mean = c.iter().zip(&self.mean).map(|(c, m)| times(*c, *m)[0]);
        let rows = c.iter().zip(self.covariances.chunks(c.len()));
        let variance = rows.flat_map(|(one, row)| {
            row.iter().zip(c).map(|([minus, plus], other)| {
                let minus = times(times(*one, *minus), conjugate(*other))[0];
                minus + times(times(*one, *plus), *other)[0]
            })
        });
        [mean.sum(), variance.sum::<f64>() / 2.0]
    }
}

/// Scores of a head in windows that are sampled alike.
pub struct Scorer<'a> {
    turns: &'a Turns,
    sample: &'a Sample,
    moments: Moments,
    /// `e^(i w_j (d + 1)) - e^(i w_j d)` for each distance.
    steps: Vec<Vec<Complex>>,
}

impl<'a> Scorer<'a> {
    /// What all rows and heads share.
    pub fn new(turns: &'a Turns, sample: &'a Sample) -> Self {
        let step = |d: &usize| {
            let of = |w: &f64| minus(turn(w * (*d as f64 + 1.0)), turn(w * *d as f64));
            turns.inv_freq.iter().map(of).collect()
        };
        Self {
            turns,
            sample,
            moments: Moments::new(&turns.inv_freq, sample.window),
            steps: sample.distances.iter().map(step).collect(),
        }
    }

    /// Of the sampled queries and keys of one head, before they are rotated.
    pub fn scores(&self, queries: &[Vec<f64>], keys: &[Vec<f64>]) -> Scores {
        let triplets = self.sample.triplets.iter();
        let kept = triplets.filter_map(|[query, one, other]| {
            self.kept(&queries[*query], &keys[*one], &keys[*other])
        });
        let pairs = queries
            .iter()
            .flat_map(|q| keys.iter().map(move |k| (q, k)));
        Scores {
            semantic: mean(kept),
            positional: mean(pairs.filter_map(|(q, k)| self.moved(&self.products(q, k)))),
        }
    }

    /// c, of rotated pairs.
    fn products(&self, q: &[f64], k: &[f64]) -> Vec<Complex> {
        let (pairs, factor) = (self.turns.inv_freq.len(), self.turns.factor);
        let of = |x: &[f64], j: usize| match self.turns.interleaved {
            true => [x[2 * j], x[2 * j + 1]],
            false => [x[j], x[j + pairs]],
        };
        let product = |j| times(of(q, j), conjugate(of(k, j))).map(|part| part * factor * factor);
        (0..pairs).map(product).collect()
    }

    /// Probability that the order of two keys is that at distance 0; `None` where they are tied
    /// there.
    fn kept(&self, q: &[f64], one: &[f64], other: &[f64]) -> Option<f64> {
        let pair = |(one, other): (&Complex, &Complex)| minus(*one, *other);
        let (first, second) = (self.products(q, one), self.products(q, other));
        let c: Vec<Complex> = first.iter().zip(&second).map(pair).collect();
        let rotated = 2 * c.len();
        let rest = q[rotated..]
            .iter()
            .zip(one[rotated..].iter().zip(&other[rotated..]));
        let rest: f64 = rest.map(|(q, (one, other))| q * (one - other)).sum();
        let reference = c.iter().map(|c| c[0]).sum::<f64>() + rest;
        let mass: f64 = c.iter().map(|[a, b]| libm::hypot(*a, *b)).sum();
        if reference.abs() <= 64.0 * f64::EPSILON * (mass + rest.abs()) {
            return None;
        }
        let [mean, variance] = self.moments.of(&c);
        let oriented = (mean + rest) * reference.signum();
        // Below this the variance is a rounding of 0.
        if variance <= 128.0 * f64::EPSILON * mass * mass {
            return Some(f64::from(u8::from(oriented >= 0.0)));
        }
        Some(1.0 - 0.5 * libm::erfc(oriented / variance.sqrt() * FRAC_1_SQRT_2))
    }

    /// Mean change of a logit from one distance to the next over the norm of its products.
    fn moved(&self, c: &[Complex]) -> Option<f64> {
        let norm = c.iter().map(|[a, b]| a * a + b * b).sum::<f64>().sqrt();
        let change = |step: &Vec<Complex>| {
            let parts = c.iter().zip(step).map(|(c, step)| times(*c, *step)[0]);
            parts.sum::<f64>().abs()
        };
        mean(self.steps.iter().map(change))
            .filter(|_| norm > 0.0)
            .map(|mean| mean / norm)
    }
}
