//! Golden numbers of every encoding. The head of every `tests/golden/*.json` says where its numbers
//! come from and what confirmed them.
//!
//! Tables are compared with f64 references to one unit in the last place of f32, values that stay
//! on the host to 1e-12, results of f32 arithmetic to 1e-6. A case whose kind is not known here
//! fails; cases of features this crate does not have are named in `left_out` of each file.

mod bias;
mod content;
mod far;
mod logits;
mod positions;
mod rotations;
mod support;
