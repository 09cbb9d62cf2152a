//! Statistics over seeds: means, intervals, rank correlation.
//!
//! ```text
//! mean.rs         means and standard deviations
//! interval.rs     ends of intervals at any level
//! estimate.rs     a mean with its interval
//! correlation.rs  rank correlation
//! ```

mod correlation;
mod estimate;
mod interval;
mod mean;

pub use correlation::{Correlation, MOST_EXACT, spearman};
pub use estimate::{Estimate, INTERVAL, LOG_INTERVAL, SHARE_INTERVAL, Scale};
pub(crate) use interval::ALPHA;
pub use mean::{half_width_95, mean, mean_over_log2, sample_sd};
