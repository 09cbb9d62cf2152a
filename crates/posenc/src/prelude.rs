//! The names that a host of encodings needs: `use posenc::prelude::*;`.

pub use crate::encodings::{Encoding, EncodingConfig};
pub use crate::facts::{Facts, Hooks, Lengths, ModelShape};
pub use crate::hooks::{
    Bias, Block, Content, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk,
};
pub use crate::init::{Distribution, Init};
pub use crate::ops::{Ops, PlainOps};
pub use crate::positions::{Positions, PositionsConfig};
pub use crate::spec::EncodingSpec;
