//! Encodings of position for transformers, as [Burn](burn) modules: one interface, one list, one
//! file for each.
//!
//! An encoding is *prepared* for the positions of one forward pass and then hooks in at five
//! places: it may add to the embedded input, transform queries and keys, add a position-only bias
//! to the logits, add a bias that sees the queries and keys, or add a term to attention's output.
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
//! Every angle, slope and frequency is computed on the host in f64 and rounded once to the device's
//! float type: in f32 an angle at position 131,072 is already off by 5e-3.
//!
//! How each family of encodings fits the hooks, walked through before any was written, is in
//! `DESIGN.md` beside this crate.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod catalogue;
mod distances;
mod encodings;
mod error;
mod frequencies;
mod hooks;
mod init;
mod mask;
mod positions;
mod rotation;
mod samplers;
mod zones;

pub use catalogue::{About, Encoding, EncodingConfig, Facts, Hooks, Lengths, ModelShape, Spec};
pub use encodings::{
    alibi::{Alibi, AlibiConfig, slopes},
    axial_rope::{AxialMode, AxialRope, AxialRopeConfig},
    cope::{Cope, CopeConfig},
    deberta::{Deberta, DebertaConfig, DebertaTerms},
    fire::{Fire, FireConfig, FireFunction},
    fox::{Fox, FoxConfig, FoxLayer},
    hard_alibi::{HardAlibi, HardAlibiConfig},
    kerple::{Kerple, KerpleConfig, KerpleForm},
    learned::{Learned, LearnedConfig},
    learned_bias::{LearnedBias, LearnedBiasConfig},
    log_scaling::{LogScaling, LogScalingConfig, LogScalingForm},
    nope::{Nope, NopeConfig},
    nope_layers::{NopeLayers, NopeLayersConfig},
    pope::{Pope, PopeConfig},
    rerope::{Rerope, ReropeConfig},
    rope::{FrequencySpacing, Rope, RopeConfig},
    sandwich::{Sandwich, SandwichConfig},
    self_extend::{SelfExtend, SelfExtendConfig},
    shaw::{Shaw, ShawConfig},
    sinusoidal::{Sinusoidal, SinusoidalConfig, SinusoidalOrder},
    stack::{Stack, StackConfig},
    t5::{T5, T5Config},
    transformer_xl::{TransformerXl, TransformerXlConfig, TransformerXlLayer},
    window::{Window, WindowConfig},
    xpos::{Xpos, XposConfig},
};
pub use error::ConfigError;
pub use frequencies::{
    DynamicNtkScaling, DynamicYarnScaling, Factor, Frequencies, LinearScaling, Llama3Scaling,
    LongropeScaling, NtkByPartsScaling, NtkScaling, ProportionalScaling, ResonanceScaling,
    RopeScaling, YarnScaling, inv_freq,
};
pub use hooks::{Bias, BiasBlocks, Content, Plain, PositionalEncoding, Prepared, Rotation};
pub use init::{Distribution, Init};
pub use positions::{Axis, Positions};
pub use rotation::RotaryLayout;
pub use samplers::{
    ContiguousPositions, GridPositions, InterpolatedPositions, PositionsConfig,
    RandomOffsetPositions, RandomizedDistances, RandomizedPositions,
};
