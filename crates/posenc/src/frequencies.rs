//! Inverse frequencies of rotary encodings and everything that rescales them, in host f64.
//!
//! Notation: `d` rotated dimension, pair index `i = 0..d/2`, training length `L`, test length `T`, factor `s`.
//! A scaling is a function from plain frequencies to scaled ones plus an attention factor; adding one is one variant and one
//! function in this file.

use crate::catalogue::Lengths;
use crate::error::{ConfigError, in_range};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::f64::consts::PI;
use std::fmt;

/// Plain inverse frequencies `base^(-2i/d)`, radians per token; pair 0 is the fastest. RoFormer (arXiv 2104.09864), section 3.2.2.
///
/// An odd `dim` rounds up to whole pairs, as DeepMind's sinusoidal tables do.
pub fn inv_freq(dim: usize, base: f64) -> Vec<f64> {
    (0..dim.div_ceil(2)).map(|i| libm::pow(base, -(2.0 * i as f64) / dim as f64)).collect()
}

/// What a rotary encoding turns by: frequencies, and the factor on cos and sin.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequencies {
    /// Radians per token of each pair, fastest first.
    pub inv_freq: Vec<f64>,
    /// Multiplies cos and sin, hence the logits by its square.
    pub attention_factor: f64,
}

impl Frequencies {
    /// Frequencies of `base` over `dim` dimensions under `scaling` for a sequence of `length` tokens.
    pub(crate) fn new(dim: usize, base: f64, scaling: Option<&RopeScaling>, length: f64) -> Self {
        let plain = |base| Self { inv_freq: inv_freq(dim, base), attention_factor: 1.0 };
        match scaling {
            None => plain(base),
            Some(RopeScaling::Linear(config)) => linear(plain(base), config.factor.value()),
            Some(RopeScaling::Ntk(config)) => plain(ntk_base(base, dim, config.factor.value())),
            Some(RopeScaling::DynamicNtk(config)) => plain(dynamic_ntk_base(base, dim, config, length)),
            Some(RopeScaling::Yarn(config)) => yarn(plain(base), dim, base, config),
        }
    }

    /// Wavelength of each pair in tokens, `2 pi / inv_freq`.
    pub fn wavelengths(&self) -> Vec<f64> {
        self.inv_freq.iter().map(|f| 2.0 * PI / f).collect()
    }
}

/// A number, or `"auto"`: test length over training length, never below 1.
///
/// `auto` is replaced by [`RopeScaling::resolve`] before an encoding is built; nothing here reads a length behind the scenes.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Factor {
    /// Test length over training length.
    #[default]
    Auto,
    /// This factor at every length.
    Fixed(f64),
}

impl Factor {
    fn resolve(&mut self, original: usize, lengths: &Lengths) {
        if *self == Self::Auto {
            *self = Self::Fixed((lengths.test_len as f64 / original as f64).max(1.0));
        }
    }

    fn check(self, key: &str) -> Result<(), ConfigError> {
        match self {
            Self::Auto => Ok(()),
            Self::Fixed(factor) => in_range(key, factor, 1.0, 1e6, "use \"auto\" for test length over training length"),
        }
    }

    /// The factor; `auto` that was never resolved scales nothing.
    fn value(self) -> f64 {
        match self {
            Self::Auto => 1.0,
            Self::Fixed(factor) => factor,
        }
    }
}

impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(factor) => serializer.serialize_f64(*factor),
        }
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FactorVisitor;
        impl de::Visitor<'_> for FactorVisitor {
            type Value = Factor;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of at least 1 or \"auto\"")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Factor, E> {
                Ok(Factor::Fixed(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Factor, E> {
                Ok(Factor::Fixed(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Factor, E> {
                Ok(Factor::Fixed(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Factor, E> {
                if value == "auto" { Ok(Factor::Auto) } else { Err(E::invalid_value(de::Unexpected::Str(value), &self)) }
            }
        }
        deserializer.deserialize_any(FactorVisitor)
    }
}

crate::catalogue::tagged! {
    /// A rescaling of rotary frequencies, at training or at test time.
    #[derive(Clone, Debug, PartialEq)]
    pub enum RopeScaling {
        "linear" => Linear(LinearScaling),
        "ntk" => Ntk(NtkScaling),
        "dynamic_ntk" => DynamicNtk(DynamicNtkScaling),
        "yarn" => Yarn(YarnScaling),
    }
}

/// Position interpolation: `theta_i / s`. Chen et al. 2023 (arXiv 2306.15595).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinearScaling {
    /// `s`.
    pub factor: Factor,
    /// `L`, for `factor = "auto"`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

/// NTK-aware: `base' = base s^(d/(d-2))`, which stretches the slowest pair by `s` and leaves the fastest alone.
/// bloc97 2023; Hugging Face and jquesnelle/yarn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NtkScaling {
    /// `s`.
    pub factor: Factor,
    /// `L`, for `factor = "auto"`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

/// Dynamic NTK: `base' = base (s T/L - (s - 1))^(d/(d-2))` for `T > L`, plain otherwise. Reads the length of every forward pass
/// and keeps no state between them. Hugging Face `dynamic`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicNtkScaling {
    /// `s`; 1 already scales with the length.
    pub factor: f64,
    /// `L`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

impl Default for DynamicNtkScaling {
    fn default() -> Self {
        Self { factor: 1.0, original_max_position_embeddings: None }
    }
}

/// YaRN: pairs that turn often in training keep their frequency, pairs that never complete a turn are interpolated, a linear ramp
/// over the pair index lies between, and cos and sin carry an attention factor. Peng et al. 2023 (arXiv 2309.00071), in the
/// form of the authors' code and Hugging Face (the paper's ramp is linear in the number of turns instead).
///
/// With `L` under about 201 and `beta_fast = 32` the ramp starts at pair 0: nearly plain interpolation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct YarnScaling {
    /// `s`.
    pub factor: Factor,
    /// `L`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Turns within `L` above which a pair is left alone.
    pub beta_fast: f64,
    /// Turns within `L` below which a pair is interpolated in full.
    pub beta_slow: f64,
    /// Factor on cos and sin; `0.1 ln s + 1` unless given.
    pub attention_factor: Option<f64>,
    /// Numerator's multiplier where the attention factor is a ratio (DeepSeek); only together with `mscale_all_dim`.
    pub mscale: Option<f64>,
    /// Denominator's multiplier of that ratio.
    pub mscale_all_dim: Option<f64>,
    /// Whether the ramp's ends are rounded to whole dimensions.
    pub truncate: bool,
}

impl Default for YarnScaling {
    fn default() -> Self {
        Self {
            factor: Factor::Auto,
            original_max_position_embeddings: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: true,
        }
    }
}

impl RopeScaling {
    /// Replaces every default that depends on lengths: `original_max_position_embeddings` and `factor = "auto"`.
    pub fn resolve(&mut self, lengths: &Lengths) {
        let (factor, original) = match self {
            Self::Linear(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::Ntk(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::DynamicNtk(c) => (None, &mut c.original_max_position_embeddings),
            Self::Yarn(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
        };
        let original = *original.get_or_insert(lengths.train_len);
        if let Some(factor) = factor {
            factor.resolve(original.max(1), lengths);
        }
    }

    /// Whether the frequencies depend on the length of the forward pass.
    pub(crate) fn reads_length(&self) -> bool {
        matches!(self, Self::DynamicNtk(_))
    }

    /// Refuses what the formula has no meaning for; `dim` is the rotated dimension.
    pub(crate) fn check(&self, dim: usize) -> Result<(), ConfigError> {
        let original = match self {
            Self::Linear(c) => c.original_max_position_embeddings,
            Self::Ntk(c) => c.original_max_position_embeddings,
            Self::DynamicNtk(c) => c.original_max_position_embeddings,
            Self::Yarn(c) => c.original_max_position_embeddings,
        };
        if let Some(original) = original {
            in_range("original_max_position_embeddings", original as f64, 1.0, 1e9, "leave it out for the training length")?;
        }
        match self {
            Self::Linear(c) => c.factor.check("factor"),
            Self::Ntk(c) => c.factor.check("factor").and_then(|()| ntk_dim(self.kind(), dim)),
            Self::DynamicNtk(c) => in_range("factor", c.factor, 1.0, 1e6, "1 scales by test length over training length")
                .and_then(|()| ntk_dim(self.kind(), dim)),
            Self::Yarn(c) => c.check(),
        }
    }
}

impl YarnScaling {
    fn check(&self) -> Result<(), ConfigError> {
        self.factor.check("factor")?;
        in_range("beta_slow", self.beta_slow, 1e-6, 1e6, "the paper uses 1")?;
        in_range("beta_fast", self.beta_fast, 1e-6, 1e6, "the paper uses 32")?;
        if self.beta_fast <= self.beta_slow {
            let hint = "swap beta_fast and beta_slow; the paper uses 32 and 1";
            return Err(ConfigError::new(
                "beta_fast",
                self.beta_fast,
                "must be larger than beta_slow",
                format!("above {}", self.beta_slow),
                hint,
            ));
        }
        if let Some(factor) = self.attention_factor {
            in_range("attention_factor", factor, 1e-3, 1e3, "leave it out for 0.1 ln(factor) + 1")?;
        }
        for (key, value) in [("mscale", self.mscale), ("mscale_all_dim", self.mscale_all_dim)] {
            if let Some(value) = value {
                in_range(key, value, 0.0, 1e3, "leave both mscale keys out for 0.1 ln(factor) + 1")?;
            }
        }
        if self.mscale.is_some() != self.mscale_all_dim.is_some() {
            let (given, missing) = if self.mscale.is_some() { ("mscale", "mscale_all_dim") } else { ("mscale_all_dim", "mscale") };
            let value = self.mscale.or(self.mscale_all_dim).unwrap_or_default();
            return Err(ConfigError::new(
                given,
                value,
                format!("has no effect without {missing}"),
                "both or neither",
                format!("add {missing} or remove {given}"),
            ));
        }
        Ok(())
    }

    /// `0.1 m ln s + 1`, or what the options ask for.
    fn attention_factor(&self) -> f64 {
        let s = self.factor.value();
        let mscale = |m: f64| if s <= 1.0 { 1.0 } else { 0.1 * m * libm::log(s) + 1.0 };
        match (self.attention_factor, self.mscale, self.mscale_all_dim) {
            (Some(factor), _, _) => factor,
            (None, Some(m), Some(all)) if m != 0.0 && all != 0.0 => mscale(m) / mscale(all),
            _ => mscale(1.0),
        }
    }
}

fn linear(mut plain: Frequencies, factor: f64) -> Frequencies {
    plain.inv_freq.iter_mut().for_each(|f| *f /= factor);
    plain
}

fn ntk_dim(kind: &str, dim: usize) -> Result<(), ConfigError> {
    if dim > 2 {
        return Ok(());
    }
    let hint = "use a larger head_dim or rotary_dim, or linear scaling";
    Err(ConfigError::new("kind", kind, format!("the exponent d/(d-2) has no value for {dim} rotated dimensions"), "4 or more", hint))
}

fn ntk_base(base: f64, dim: usize, factor: f64) -> f64 {
    base * libm::pow(factor, dim as f64 / (dim as f64 - 2.0))
}

fn dynamic_ntk_base(base: f64, dim: usize, config: &DynamicNtkScaling, length: f64) -> f64 {
    let original = config.original_max_position_embeddings.map_or(length, |l| l as f64);
    ntk_base(base, dim, config.factor * length.max(original) / original - (config.factor - 1.0))
}

fn yarn(plain: Frequencies, dim: usize, base: f64, config: &YarnScaling) -> Frequencies {
    let (s, d) = (config.factor.value(), dim as f64);
    let original = config.original_max_position_embeddings.unwrap_or(1) as f64;
    // The dimension whose pair completes `turns` turns within the training length.
    let dimension = |turns: f64| d * libm::log(original / (turns * 2.0 * PI)) / (2.0 * libm::log(base));
    let (mut low, mut high) = (dimension(config.beta_fast), dimension(config.beta_slow));
    if config.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    // `high` stops at d - 1, not d/2 - 1, in every public implementation.
    (low, high) = (low.max(0.0), high.min(d - 1.0));
    if low == high {
        high += 0.001;
    }
    let inv_freq = plain.inv_freq.iter().enumerate().map(|(i, theta)| {
        let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        theta / s * ramp + theta * (1.0 - ramp)
    });
    Frequencies { inv_freq: inv_freq.collect(), attention_factor: config.attention_factor() }
}
