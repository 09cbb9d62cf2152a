//! Named streams of random numbers whose values never change: the one source of chance in
//! Longreach.
//!
//! Generator: ChaCha8 (64-bit block counter, 64-bit stream number), key = BLAKE3 of the domain tag,
//! the seed and the purpose, stream number = index. Draws are defined here and not by a
//! distribution library, whose values may change between releases.

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use std::f64::consts::TAU;

/// Separates these streams from any other use of BLAKE3 and ChaCha8; a change of any rule in this
/// file needs a new version here.
const DOMAIN: &[u8] = b"longreach stream v1";

/// A stream of random numbers named by (seed, purpose, index). Streams with different names are
/// independent; every method consumes whole 64-bit words, so the position in a stream is the number
/// of words drawn.
///
/// ```
/// let mut dropout = longreach_tasks::Stream::new(7, "dropout", 1200); // seed 7, step 1200
/// assert!(dropout.below(6) < 6);
/// ```
#[derive(Debug)]
pub struct Stream {
    rng: ChaCha8Rng,
}

impl Stream {
    /// The stream of `seed` for `purpose` (say `"train-data"` or the path of a parameter) with
    /// number `index` (say the step).
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        // Tag and seed have fixed lengths, so the concatenation is unambiguous.
        hasher
            .update(DOMAIN)
            .update(&seed.to_le_bytes())
            .update(purpose.as_bytes());
        let mut rng = ChaCha8Rng::from_seed(*hasher.finalize().as_bytes());
        rng.set_stream(index);
        Self { rng }
    }

    /// 64 uniform bits: two consecutive 32-bit words of the keystream, low word first.
    pub fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform in `0..n`, exactly: Lemire's multiplication with rejection (arXiv 1805.10941,
    /// algorithm 5).
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "below(0) has no value to return");
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            // 2^64 mod n. It is below n, so most draws never come to this division.
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Uniform in `[0, 1)` on the grid of 2^-53.
    pub fn unit_f64(&mut self) -> f64 {
        // The top 53 bits: each value is exact in f64, and 1 is never reached.
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal: the cosine half of Box-Muller in f64, so every call takes exactly two
    /// words. At most 8.6 in magnitude.
    pub fn normal(&mut self) -> f64 {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit_f64()));
        radius * libm::cos(TAU * self.unit_f64())
    }

    /// True with probability `p`: always for 1, never for 0.
    pub fn bernoulli(&mut self, p: f64) -> bool {
        self.unit_f64() < p
    }

    /// A uniform permutation in place (Fisher-Yates from the end).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ChaCha with 8 rounds written out from the definition (Bernstein 2008), as an oracle for the
    /// crate in use.
    fn chacha8_words(key: [u8; 32], stream: u64, counter: u64) -> [u32; 16] {
        let mut state = [0u32; 16];
        state[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        for (word, bytes) in state[4..12].iter_mut().zip(key.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
        (state[12], state[13], state[14], state[15]) = (
            counter as u32,
            (counter >> 32) as u32,
            stream as u32,
            (stream >> 32) as u32,
        );
        let mut x = state;
        let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
            for (left, right) in [(16, 12), (8, 7)] {
                x[a] = x[a].wrapping_add(x[b]);
                x[d] = (x[d] ^ x[a]).rotate_left(left);
                x[c] = x[c].wrapping_add(x[d]);
                x[b] = (x[b] ^ x[c]).rotate_left(right);
            }
        };
        for _ in 0..4 {
            (0..4).for_each(|i| quarter(i, 4 + i, 8 + i, 12 + i));
            (0..4).for_each(|i| quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4));
        }
        std::array::from_fn(|i| x[i].wrapping_add(state[i]))
    }

    #[test]
    fn words_are_chacha8_under_the_documented_key() {
        for (seed, purpose, index) in [
            (0u64, "", 0u64),
            (7, "train-data", 3),
            (u64::MAX, "weights", u64::MAX),
            (1, "x", 1 << 40),
        ] {
            let message = [
                b"longreach stream v1".as_slice(),
                &seed.to_le_bytes(),
                purpose.as_bytes(),
            ]
            .concat();
            let key = *blake3::hash(&message).as_bytes();
            let mut stream = Stream::new(seed, purpose, index);
            for block in 0..9 {
                for pair in chacha8_words(key, index, block).chunks_exact(2) {
                    assert_eq!(
                        stream.next_u64(),
                        u64::from(pair[1]) << 32 | u64::from(pair[0])
                    );
                }
            }
        }
    }

    #[test]
    fn golden_values() {
        // Recorded from this code once `words_are_chacha8_under_the_documented_key` held; they must
        // never change.
        let first = |seed, purpose, index| Stream::new(seed, purpose, index).next_u64();
        assert_eq!(first(0, "init", 0), 13001932545964257865);
        assert_eq!(first(0, "init", 1), 1859201035776220795);
        assert_eq!(first(1, "init", 0), 17053463162271580346);
        assert_eq!(first(0, "train-data", 0), 14342162950846105734);
        assert_eq!(first(42, "dropout", 123_456_789_012), 15181866287873468647);
        assert_eq!(first(u64::MAX, "positions", u64::MAX), 7156735868924437656);
        let mut s = Stream::new(3, "golden", 5);
        let below: Vec<u64> = (0..8).map(|_| s.below(10)).collect();
        assert_eq!(below, [7, 0, 6, 0, 6, 1, 6, 9]);
        assert_eq!(s.below(u64::MAX / 2 + 2), 6469122674084806069);
        assert_eq!(s.unit_f64().to_bits(), 4604247825964991051);
        s.next_u64();
        assert_eq!(s.normal().to_bits(), 13827862174311016826);
        assert_eq!(
            (0..8).map(|_| s.bernoulli(0.3) as u8).collect::<Vec<_>>(),
            [0, 0, 0, 0, 0, 0, 1, 0]
        );
        let mut items: Vec<u8> = (0..10).collect();
        s.shuffle(&mut items);
        assert_eq!(items, [2, 3, 0, 5, 8, 9, 1, 7, 4, 6]);
    }

    #[test]
    fn streams_do_not_depend_on_each_other_or_on_order() {
        let draw = |index| -> Vec<u64> {
            let mut s = Stream::new(9, "order", index);
            (0..20).map(|_| s.next_u64()).collect()
        };
        let forward: Vec<_> = (0..8).map(draw).collect();
        let mut backward: Vec<_> = (0..8).rev().map(draw).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        let (mut a, mut b) = (Stream::new(9, "order", 0), Stream::new(9, "order", 1));
        for (x, y) in forward[0].iter().zip(&forward[1]) {
            assert_eq!((a.next_u64(), b.next_u64()), (*x, *y));
        }
        let threads: Vec<_> = (0..8)
            .map(|i| std::thread::spawn(move || Stream::new(9, "order", i).next_u64()))
            .collect();
        for (i, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), forward[i][0]);
        }
    }

    #[test]
    fn below_is_uniform() {
        for n in [2u64, 3, 10, 37] {
            let mut s = Stream::new(1, "chi-square", n);
            let draws = 100_000;
            let mut counts = vec![0u32; n as usize];
            for _ in 0..draws {
                counts[s.below(n) as usize] += 1;
            }
            let expected = draws as f64 / n as f64;
            let chi2: f64 = counts
                .iter()
                .map(|&c| (f64::from(c) - expected).powi(2) / expected)
                .sum();
            let df = (n - 1) as f64;
            assert!(
                chi2 < df + 5.0 * (2.0 * df).sqrt(),
                "n = {n}: chi-square {chi2} on {df} degrees of freedom"
            );
        }
    }

    #[test]
    fn below_rejects_when_n_does_not_divide_2_to_64() {
        // Without the rejection, half of all draws from 3 * 2^62 would be multiples of 3.
        let mut s = Stream::new(1, "rejection", 0);
        let mut counts = [0i32; 3];
        (0..30_000).for_each(|_| counts[(s.below(3 << 62) % 3) as usize] += 1);
        assert!(
            counts.iter().all(|c| (c - 10_000).abs() < 400),
            "{counts:?}"
        );
        assert_eq!(s.below(1), 0);
    }

    #[test]
    fn units_normals_and_coins_have_their_moments() {
        let mut s = Stream::new(2, "moments", 0);
        let n = 200_000;
        let moments = |values: &mut dyn FnMut() -> f64| {
            let all: Vec<f64> = (0..n).map(|_| values()).collect();
            let mean = all.iter().sum::<f64>() / n as f64;
            let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            let fourth = all.iter().map(|v| (v - mean).powi(4)).sum::<f64>() / n as f64;
            (mean, variance, fourth)
        };
        let (mean, variance, fourth) = moments(&mut || s.normal());
        assert!(
            mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02 && (fourth - 3.0).abs() < 0.15,
            "{mean} {variance} {fourth}"
        );
        let (mean, variance, _) = moments(&mut || s.unit_f64());
        assert!((mean - 0.5).abs() < 0.004 && (variance - 1.0 / 12.0).abs() < 0.002);
        let (mean, _, _) = moments(&mut || f64::from(u8::from(s.bernoulli(0.1))));
        assert!((mean - 0.1).abs() < 0.004);
        assert!((0..1000).all(|_| s.bernoulli(1.0) && !s.bernoulli(0.0)));
    }

    #[test]
    fn shuffle_reaches_every_permutation_equally() {
        let mut counts = std::collections::BTreeMap::new();
        let mut s = Stream::new(4, "shuffle", 0);
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            s.shuffle(&mut items);
            *counts.entry(items).or_insert(0i32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(
            counts.values().all(|c| (c - 1000).abs() < 170),
            "{counts:?}"
        );
    }
}
