//! All tests of this crate: golden numbers against the authors' code, and laws over the list.

mod common;
mod golden;
mod laws;
