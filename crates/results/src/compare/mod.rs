//! Two sets of records compared: run by run for equality, or number by number within a tolerance.

mod exact;
mod tolerance;

pub use exact::{Comparison, Difference};
pub(crate) use exact::{disagreement, fuller_first};
pub use tolerance::{Closeness, LargestDifference};
