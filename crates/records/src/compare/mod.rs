//! Two sets of records compared: run by run for equality, or number by number within a tolerance.

mod exact;
mod tolerance;

pub use exact::disagreement;
pub use exact::fuller_first;
pub use exact::{Comparison, Difference};
pub use tolerance::{Closeness, LargestDifference};
