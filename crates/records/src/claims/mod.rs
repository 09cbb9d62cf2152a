//! Claims of published sources as data, and whether the records agree with them.
//!
//! A [`Claim`] is one sentence of a source with a check of it in terms of methods, lengths and a
//! metric. Each check becomes [`Comparison`]s, each of one number with a 95 % interval over
//! seeds and the bound for it. A comparison *agrees* if the whole interval is on the
//! claim's side of the bound, *disagrees* if the whole interval is on the other side, and is
//! *undecided* if the bound lies inside the interval, if there is a single seed, if a method has
//! not learned its task in length, or if it agrees without a seed whose score is not finite. Where
//! a method is to have a lower loss than another, an interval
//! that covers zero and reaches no gain of 0.01 nats disagrees too: otherwise a claim of a
//! difference that is not there could never be refuted. In a setting a claim
//! agrees if all its comparisons do, disagrees if Holm's step-down procedure over them finds one
//! that disagrees, and is undecided otherwise: one counterexample settles what no example can, and
//! among many comparisons one is found by chance.
//!
//! Methods are compared within one experiment and setting, where everything but the axes is the
//! same.
//!
//! ```text
//! claim.rs               claims and published numbers as data
//! length.rs              lengths as claims write them
//! experiment_setting.rs  the settings of each experiment, and methods by name
//! needed.rs              bounds
//! evaluate.rs            comparisons of numbers with bounds
//! judged.rs              the verdict on one number and its bound
//! limits.rs              what no score could show
//! lacks.rs               what is missing where no record tests a claim
//! verdict.rs             verdicts and outcomes
//! power.rs               seeds that would decide a claim
//! beside.rs              published numbers of single seeds beside ours
//! correlation.rs         rank correlation with published numbers
//! assertions.rs          expectations from the literature
//! ```

mod assertions;
mod at_lengths;
mod beside;
mod claim;
mod correlation;
mod evaluate;
mod experiment_setting;
mod judged;
mod lacks;
mod length;
mod limits;
mod needed;
mod power;
mod verdict;

pub use assertions::{Assertion, AssertionOutcome, AssertionResult, Assertions};
pub use beside::{Beside, range};
pub use claim::{Claim, Claims, Kind, Published, PublishedNumber};
pub use correlation::Column;
pub use experiment_setting::{ExperimentSetting, experiment_settings};
pub use length::Length;
pub use power::{MOST_SEEDS, Power};
pub use verdict::counts;
pub use verdict::{Comparison, Outcome, Verdict};
