//! Synthetic tasks and text corpora of Longreach: batches to train on, fixed test sets, and the random streams behind both.
//!
//! Every batch is a pure function of its arguments: the batch of step `s` never depends on which batches were drawn before, on
//! threads or on a resumed run. Test sets depend on (task, length, evaluation seed) only, so all methods see the same rows.
//!
//! To add a task: write one file with a config type that implements [`TaskSpec`], name its module here, and add one line to
//! the list in `catalogue.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod catalogue;
mod copy;
mod error;
mod permutation;
mod reverse;
mod stream;
mod symbols;
mod tagged;
mod task;
mod text;

pub use catalogue::{KindInfo, TaskConfig};
pub use copy::CopyConfig;
pub use error::TaskError;
pub use permutation::Permutation;
pub use reverse::ReverseConfig;
pub use stream::Stream;
pub use task::{Batch, BuildContext, CorpusFacts, Scoring, Task, TaskSpec, TestSet};
pub use text::{CorpusKind, DEFAULT_CRATES, EveryFile, HeldOutFiles, HeldOutRange, NonOverlapping, Sliding, Split, TextConfig, Windows};
