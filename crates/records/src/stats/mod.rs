//! Statistics over seeds: means, intervals, rank correlation.
//!
//! ```text
//! mean.rs         means and standard deviations
//! interval.rs     ends of intervals at any level
//! estimate.rs     a mean with its interval
//! basis.rs        what intervals are computed from
//! blocks.rs       the standard error of a mean over a text
//! correlation.rs  rank correlation
//! ```

mod basis;
mod blocks;
mod correlation;
mod estimate;
mod interval;
mod mean;

pub use blocks::{OverText, run_length};
pub use correlation::{Correlation, MOST_EXACT, spearman};
pub use estimate::{Estimate, INTERVAL, LOG_INTERVAL, SHARE_INTERVAL, Scale, TEXT_INTERVAL};
pub use interval::ALPHA;
pub use mean::{mean, mean_over_log2, sample_sd};
