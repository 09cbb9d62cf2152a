//! Fused operations against their definitions: values, gradients, threads.

mod attention;
mod blocks;
mod common;
mod rotation;
mod rows;
