//! The reader of configurations: messages, meaning, and hostile input.

mod errors;
mod keys;
mod reading;
mod storm;
mod toy;
