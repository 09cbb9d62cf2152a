#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | [`encodings`] | the list: [`EncodingConfig`], [`Encoding`], and a module for each kind |
//! | [`hooks`] | the interface to attention: [`PositionalEncoding`], [`Prepared`], [`Bias`] |
//! | [`facts`] | what an encoding declares: [`Facts`], [`Hooks`], [`ModelShape`], [`Lengths`] |
//! | [`spec`] | the interface of a configuration: [`EncodingSpec`](spec::EncodingSpec) |
//! | [`ops`] | operations that a host may have in a faster form |
//! | [`positions`] | [`Positions`] and the samplers that draw them: [`PositionsConfig`] |
//! | [`rotary`] | layouts and frequencies that rotary encodings share |
//! | [`scaling`] | rescalings of rotary frequencies: [`RopeScaling`] |
//! | [`init`] | parameters and where their initial values come from |
//! | [`prelude`] | the names that a host of encodings needs |
//!
//! How each family of encodings fits the hooks, and what the hooks cannot express: [`design`].
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

#[doc = include_str!("../DESIGN.md")]
pub mod design {}
pub mod encodings;
pub mod facts;
pub mod hooks;
pub mod init;
pub mod positions;
pub mod prelude;
pub mod rotary;
pub mod scaling;
pub mod spec;

mod by_part;
mod distances;
mod expression;
mod frequencies;
mod halves;
mod mask;
mod named;
mod rotary_tables;
mod sequence;
mod tensors;
mod values;
mod zones;

pub use ::ops;
pub use by_part::{acts_for_all, side_by_side};
pub use encodings::{Encoding, EncodingConfig};
pub use facts::{AxisRead, Facts, Hooks, Lengths, ModelShape};
pub use hooks::{
    Bias, BiasBlocks, Block, Content, Context, FusedQk, PositionalEncoding, PrepareError,
    PrepareResult, Prepared, Qk, RotaryZones,
};
pub use init::{Distribution, Init};
pub use ops::{DiagonalNetwork, Ops, PlainOps, Rotation};
pub use positions::{Axis, Positions, PositionsConfig};
pub use scaling::RopeScaling;
pub use schema::Invalid as ConfigError;
