//! From the typed tables of a configuration to resolved runs and their cost.
//!
//! ```text
//! planner.rs       every cell of the axes becomes the runs of its seeds
//! planned.rs       the runs of an experiment
//! runs.rs          from a cell to its runs
//! sections.rs      the tables of a configuration as written, key by key
//! keys.rs          every key, from the declarations of its table
//! mistakes.rs      all mistakes of a configuration at once
//! hints.rs         hints that need the list of all keys
//! check.rs         names, seeds, lengths, tables
//! ranges.rs        values out of range, errors of other crates at their key
//! resolve.rs       training and model of a cell, for configurations and for jobs
//! task.rs          what is wrong with a task, by the key that names it
//! coordinates.rs   model.coordinates and model.coordinate_shift
//! model.rs         [model]: sizes, the encoding, positions
//! train.rs         [train]: steps, batches, the optimizer, stages
//! stopping.rs      train.stop: when its scores are taken, what they cost, and mistakes
//! stages.rs        positions and encodings of stages
//! warm_start.rs    train.start_from
//! start_file.rs    a file of weights to start from
//! job_check.rs     the checks of a configuration on a job
//! record_size.rs   the size of the record that a run will have
//! eval.rs          [eval]: scores and the tokens they cost
//! variation.rs     [[eval.variants]]: the trained weights under changed encodings
//! variant_rules.rs what every variant must satisfy, whoever asks for it
//! variants.rs      what variants add to the trained encoding and drop of it
//! notes.rs         what the author of a config may not expect
//! before.rs        the length that was trained on before an encoding came in
//! frozen.rs        what tests of the trained encoding keep of the training length
//! blind.rs         where a fixed bias by distance leaves pairs without weight
//! select.rs        [select] and half_seeds: configurations derived from a cell
//! selection.rs     the sweep of [select] as runs, and the choice by their records
//! surroundings.rs  where tasks find their texts
//! cost.rs          arithmetic and time of a run
//! memory.rs        memory of a run
//! together.rs      which runs may be trained together
//! ```

mod before;
pub mod blind;
mod check;
mod coordinates;
pub mod cost;
pub mod eval;
mod frozen;
pub mod hints;
pub mod job_check;
pub mod keys;
pub mod memory;
pub mod mistakes;
mod model;
mod notes;
pub mod planned;
pub mod planner;
mod ranges;
mod record_size;
mod resolve;
mod runs;
mod sections;
mod select;
pub mod selection;
pub mod stages;
mod start_file;
mod stopping;
pub mod surroundings;
mod task;
pub mod together;
mod train;
pub mod variant_rules;
pub mod variants;
pub mod variation;
pub mod warm_start;
