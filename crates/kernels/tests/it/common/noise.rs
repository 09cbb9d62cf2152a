//! Reproducible random numbers, shared with the benchmarks.

/// Independent numbers, about standard normal, that depend on the seed alone.
pub fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..n)
        .map(|_| (0..6).map(|_| uniform() - 0.5).sum::<f64>() * 2f64.sqrt())
        .collect()
}
