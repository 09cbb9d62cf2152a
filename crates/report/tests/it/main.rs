//! All integration tests of the crate in one program.

mod board;
mod claims;
mod common;
mod compare;
mod comparison;
mod coverage;
mod damage;
mod hostile;
mod identity;
mod labels;
mod learning;
mod missing;
mod plots;
mod pooling;
mod prediction;
mod reference;
mod remarks;
mod report;
mod store;
mod tensorboard;
