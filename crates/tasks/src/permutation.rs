//! A pseudo-random permutation of `0..n` that needs no memory: element `i` is computed on its own.
//!
//! Balanced Feistel network on the smallest even number of bits that holds `n`, rounds keyed by
//! BLAKE3, with cycle walking (the scheme of Black and Rogaway 2002). Used where draws must be
//! distinct and still independent of order.

const ROUNDS: u8 = 8;

/// A permutation of `0..n` fixed by (seed, purpose, index).
#[derive(Debug, Clone)]
pub struct Permutation {
    key: [u8; 32],
    half_bits: u32,
    n: u64,
}

impl Permutation {
    /// The permutation of `0..n` named by seed, purpose and index.
    ///
    /// # Panics
    /// If `n` is 0 or above 2^62.
    pub fn new(seed: u64, purpose: &str, index: u64, n: u64) -> Self {
        assert!((1..=1 << 62).contains(&n), "a permutation of {n} elements");
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(b"longreach permutation v1")
            .update(&seed.to_le_bytes())
            .update(&index.to_le_bytes())
            .update(purpose.as_bytes());
        // At least 2 bits, so that either half of the network has one.
        let bits = (u64::BITS - (n - 1).leading_zeros()).max(2);
        Self {
            key: *hasher.finalize().as_bytes(),
            half_bits: bits.div_ceil(2),
            n,
        }
    }

    /// Where `i` goes.
    ///
    /// # Panics
    /// If `i` is not below `n`.
    pub fn get(&self, i: u64) -> u64 {
        assert!(i < self.n, "element {i} of a permutation of {}", self.n);
        let mut x = self.encrypt(i);
        // The network permutes at most 4 n numbers, so a walk takes few steps on average.
        while x >= self.n {
            x = self.encrypt(x);
        }
        x
    }

    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..ROUNDS {
            // The round's number, then the half: no two rounds share their function.
            let mut message = [round; 9];
            message[1..].copy_from_slice(&right.to_le_bytes());
            let digest = blake3::keyed_hash(&self.key, &message);
            let word =
                u64::from_le_bytes(digest.as_bytes()[..8].try_into().expect("8 of 32 bytes"));
            (left, right) = (right, left ^ (word & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn is_a_bijection_for_every_small_n() {
        for n in (1..70).chain([255, 256, 257, 1000]) {
            let permutation = Permutation::new(5, "test", 1, n);
            let image: BTreeSet<u64> = (0..n).map(|i| permutation.get(i)).collect();
            assert_eq!(image, (0..n).collect());
        }
    }

    #[test]
    fn is_fixed_by_its_name() {
        let values = |seed, purpose, index| -> Vec<u64> {
            let p = Permutation::new(seed, purpose, index, 1 << 62);
            (0..4).map(|i| p.get(i)).collect()
        };
        assert_eq!(
            values(0, "a", 0),
            [
                1180848193847185989,
                4462889476753352450,
                4336913132646264337,
                2138614944049045503
            ]
        );
        let all: BTreeSet<_> = [
            values(0, "a", 0),
            values(1, "a", 0),
            values(0, "b", 0),
            values(0, "a", 1),
        ]
        .into();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn first_images_look_uniform() {
        let n = 1000u64;
        let mut counts = [0u32; 10];
        for seed in 0..2000 {
            counts[(Permutation::new(seed, "uniform", 0, n).get(0) / 100) as usize] += 1;
        }
        let chi2: f64 = counts
            .iter()
            .map(|&c| (f64::from(c) - 200.0).powi(2) / 200.0)
            .sum();
        assert!(chi2 < 30.0, "{chi2}");
    }
}
