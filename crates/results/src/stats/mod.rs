//! Statistics over seeds: means, intervals, rank correlation.

mod correlation;
mod estimate;

pub use correlation::{Correlation, MOST_EXACT, spearman};
pub use estimate::{
    Estimate, INTERVAL, SHARE_INTERVAL, half_width_95, mean, mean_over_log2, sample_sd,
};
