//! Initial values of weights.

use crate::TransformerConfig;

/// Standard deviation of an initial matrix with this fan-in: the configured one, or PyTorch's
/// default for linear layers, which keeps the variance of products with unit-variance inputs below
/// 1.
pub(crate) fn matrix_std(config: &TransformerConfig, fan_in: usize) -> f64 {
    let default = || 1.0 / (3.0 * fan_in as f64).sqrt();
    config.matrix_std.unwrap_or_else(default)
}
