//! Synthetic tasks and text corpora of Longreach: batches to train on, fixed test sets, and the
//! random streams behind both.
//!
//! Every batch is a pure function of its arguments: the batch of step `s` never depends on which
//! batches were drawn before, on threads or on a resumed run. Test sets depend on (task, length,
//! evaluation seed) only, so all methods see the same rows.
//!
//! To add a task: write one file with a config type that implements [`TaskSpec`], name its module
//! here, and add one line to the list in `catalogue.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod addition;
mod bucket_sort;
mod catalogue;
mod copy;
mod count;
mod cycle_navigation;
mod duplicate;
mod dyck;
mod error;
mod even_pairs;
mod grid;
mod induction;
mod majority;
mod missing_duplicate;
mod modular_arithmetic;
mod mqar;
mod odds_first;
mod parity;
mod passkey;
mod permutation;
mod reverse;
mod selective_copy;
mod sort;
mod stack_manipulation;
mod stream;
mod summation;
mod symbols;
mod tagged;
mod task;
mod text;

pub use addition::{AdditionConfig, DigitOrder};
pub use bucket_sort::BucketSortConfig;
pub use catalogue::{KindInfo, TaskConfig};
pub use copy::CopyConfig;
pub use count::CountConfig;
pub use cycle_navigation::CycleNavigationConfig;
pub use duplicate::DuplicateConfig;
pub use dyck::{DyckAnswer, DyckConfig};
pub use error::TaskError;
pub use even_pairs::EvenPairsConfig;
pub use grid::{GridAnswer, GridConfig};
pub use induction::InductionConfig;
pub use majority::MajorityConfig;
pub use missing_duplicate::MissingDuplicateConfig;
pub use modular_arithmetic::ModularArithmeticConfig;
pub use mqar::MqarConfig;
pub use odds_first::OddsFirstConfig;
pub use parity::ParityConfig;
pub use passkey::PasskeyConfig;
pub use permutation::Permutation;
pub use reverse::ReverseConfig;
pub use selective_copy::SelectiveCopyConfig;
pub use sort::SortConfig;
pub use stack_manipulation::StackManipulationConfig;
pub use stream::Stream;
pub use summation::{SumAnswer, SummationConfig};
pub use task::{Batch, BuildContext, CorpusFacts, Scoring, Task, TaskSpec, TestSet};
pub use text::{
    CorpusKind, DEFAULT_CRATES, EveryFile, HeldOutFiles, HeldOutRange, Level, MaskedTextConfig,
    NonOverlapping, Sliding, Split, TextConfig, Windows,
};
