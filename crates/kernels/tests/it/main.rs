//! Fused operations against their definitions: values, gradients, threads.

mod attention;
mod blocks;
mod columns;
mod common;
mod groups;
mod live_rows;
mod rotation;
mod rows;
mod weights;
