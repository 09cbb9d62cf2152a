//! Records in the formats of other programs.
//!
//! ```text
//! tables.rs       records as tables of runs, scores, curves and positions
//! columns.rs      a table by columns
//! parquet.rs      a table as a Parquet file
//! thrift.rs       the encoding of Parquet's metadata
//! tensorboard.rs  a run as a TensorBoard event file
//! ```

mod columns;
mod parquet;
mod tables;
mod tensorboard;
mod thrift;

pub use columns::{Column, ColumnTable, Values};
pub use parquet::parquet;
pub use tables::tables;
pub use tensorboard::{EventFile, TrainStep, plain_name, run_directory, run_events};
