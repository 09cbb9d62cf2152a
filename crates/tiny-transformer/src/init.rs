//! Initial values of weights.

/// Standard deviation of a weight with this fan-in: PyTorch's default for linear layers, which
/// keeps the variance of products with unit-variance inputs below 1.
pub(crate) fn fan_in(width: usize) -> f64 {
    1.0 / (3.0 * width as f64).sqrt()
}
