//! Encodings of position for transformers, as [Burn](burn) modules: one interface, one list, one file for each.
//!
//! An encoding is *prepared* for the positions of one forward pass and then hooks in at four places: it may add to the embedded
//! input, transform queries and keys, add a position-only bias to the logits, or add a bias that sees the queries and keys.
//! The attention that hosts it never needs to know which encoding it is.
//!
//! ```
//! use burn::tensor::Device;
//! use posenc::{EncodingConfig, Init, ModelShape, PositionalEncoding, Positions, RopeConfig};
//!
//! let device = Device::flex();
//! let shape = ModelShape { d_model: 64, n_layers: 2, n_heads: 4, head_dim: 16 };
//! let config = EncodingConfig::Rope(RopeConfig { base: 500_000.0, ..Default::default() });
//! config.check(&shape)?;
//! let encoding = config.init(&shape, &Init::zeros(&device));
//! let prepared = encoding.prepare(&Positions::contiguous(128), &device);
//! # let _ = prepared;
//! # Ok::<(), posenc::ConfigError>(())
//! ```
//!
//! Every angle, slope and frequency is computed on the host in f64 and rounded once to the device's float type: in f32 an angle
//! at position 131,072 is already off by 5e-3.
//!
//! How each family of encodings fits the hooks, walked through before any was written, is in `DESIGN.md` beside this crate.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod catalogue;
mod encodings;
mod error;
mod frequencies;
mod hooks;
mod init;
mod positions;

pub use catalogue::{About, Encoding, EncodingConfig, Facts, Hooks, Lengths, ModelShape, Spec};
pub use encodings::{
    alibi::{Alibi, AlibiConfig, slopes},
    learned::{Learned, LearnedConfig},
    nope::{Nope, NopeConfig},
    rope::{Rope, RopeConfig, RotaryLayout},
    sinusoidal::{Sinusoidal, SinusoidalConfig, SinusoidalOrder},
    stack::{Stack, StackConfig},
};
pub use error::ConfigError;
pub use frequencies::{DynamicNtkScaling, Factor, Frequencies, LinearScaling, NtkScaling, RopeScaling, YarnScaling, inv_freq};
pub use hooks::{Bias, BiasBlocks, Content, PositionalEncoding, Prepared};
pub use init::{Distribution, Init};
pub use positions::Positions;
