//! The model in `f32`: against a slow reference on the host, and the promises it makes.

mod bidirectional;
mod blocks;
mod by_row;
mod causality;
mod common;
mod decoding;
mod memorising;
mod model;
mod models;
mod side_by_side;
