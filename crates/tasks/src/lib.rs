//! Synthetic tasks and text corpora of Longreach: training batches, fixed test sets, and the random
//! streams behind both.
//!
//! ```text
//! task.rs         Task and TaskSpec, the two traits of every task; Batch, TestSet
//! tasks/          the one list of tasks; one file per task in symbols
//! symbols/        the frame of tasks in symbols: rules, row layouts, held-out test rows
//! text/           corpora: finding, reading and splitting files, windows, masking
//! stream.rs       named streams of random numbers
//! permutation.rs  random permutations that need no memory
//! error.rs        TaskError
//! ```
//!
//! Every batch is a pure function of its arguments. The batch of step `s` never depends on which
//! batches were drawn before, on threads or on a resumed run. Test sets depend on (task, length,
//! evaluation seed) only, so all methods are tested on the same rows.
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

mod error;
mod permutation;
mod stream;
mod symbols;
mod task;
mod tasks;
mod text;

pub use error::TaskError;
pub use permutation::Permutation;
pub use stream::Stream;
pub use task::{
    AxisFacts, Batch, BuildContext, CarriedText, CorpusFacts, Rows, ScoredText, Scoring,
    TEACHER_FORCED, Task, TaskSpec, TestSet,
};
pub use tasks::*;
pub use text::{
    CorpusKind, DEFAULT_CRATES, EveryFile, Haystack, HeldOutFiles, HeldOutRange, Level,
    NonOverlapping, Published, Sliding, Split, Windows, WordKind, begins_as,
};
