//! Sweeps beyond one machine. `longreach submit` writes a directory that says everything; a
//! scheduler (Slurm, HyperQueue, GNU parallel, anything that counts) starts `longreach worker` with
//! an index. Nothing here schedules.
//!
//! ```text
//! DIR/submit.json      what was submitted, written last: with it the directory is complete
//! DIR/manifest.jsonl   a line for each run: its job, and what it is expected to cost
//! DIR/tasks.jsonl      a line for each task: which lines of the manifest it runs
//! DIR/longreach        the program, which a later build does not change; its hash beside it
//! DIR/sweep.sbatch     or hq.sh, parallel.sh: the scheduler's script
//! DIR/events/I.N.jsonl what the Nth process of task I did; one writer for each file
//! DIR/again/N.jsonl    the tasks of the Nth `submit --again`
//! DIR/runs/EXPERIMENT  as `longreach run` writes it
//! ```
//!
//! A task is a sweep over its part of the plan: `crate::work`, the same workers, the same records.

pub mod allocation;
pub mod array_task;
pub mod attempts;
pub mod directory;
pub mod events;
pub mod gpu_memory;
pub mod manifest;
pub mod pack;
pub mod resubmit;
pub mod scheduler;
pub mod slurm;
pub mod states;
pub mod submit;
