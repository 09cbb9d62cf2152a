//! The reader of configurations: messages, meaning, and hostile input.

mod errors;
mod foreign;
mod keys;
mod mistakes;
mod reading;
mod storm;
mod toy;
