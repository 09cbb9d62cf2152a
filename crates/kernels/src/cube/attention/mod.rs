//! Attention by tiles, forward and backward, without a matrix of logits in memory.

mod backward;
mod bias;
mod call;
mod forward;
mod launch;
mod op;
mod settings;
mod tables;
mod tiles;

pub(super) use op::{Attention, Rotated, shared_bytes};
pub(super) use settings::BiasShape;
pub(crate) use tables::pack;
