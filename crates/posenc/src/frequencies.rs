//! Inverse frequencies of rotary encodings and everything that rescales them, in host f64.
//!
//! Notation: `d` rotated dimension, pair index `i = 0..d/2`, training length `L`, test length `T`,
//! factor `s`. A scaling is a function from plain frequencies to scaled ones plus an attention
//! factor; adding one is one variant and one function in this file.

use crate::catalogue::Lengths;
use crate::error::{ConfigError, in_range};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::f64::consts::PI;
use std::fmt;

/// Plain inverse frequencies `base^(-2i/d)`, radians per token; pair 0 is the fastest. RoFormer
/// (arXiv 2104.09864), section 3.2.2.
///
/// An odd `dim` rounds up to whole pairs, as DeepMind's sinusoidal tables do.
pub fn inv_freq(dim: usize, base: f64) -> Vec<f64> {
    (0..dim.div_ceil(2))
        .map(|i| libm::pow(base, -(2.0 * i as f64) / dim as f64))
        .collect()
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
    /// `plain` frequencies, those of `base` over `dim` dimensions, under `scaling` for a sequence
    /// of `length` tokens.
    pub(crate) fn new(
        plain: Vec<f64>,
        dim: usize,
        base: f64,
        scaling: Option<&RopeScaling>,
        length: f64,
    ) -> Self {
        let plain = Self {
            inv_freq: plain,
            attention_factor: 1.0,
        };
        let of_base = |base| Self {
            inv_freq: inv_freq(dim, base),
            attention_factor: 1.0,
        };
        match scaling {
            None => plain,
            Some(RopeScaling::Linear(config)) => linear(plain, config.factor.value()),
            Some(RopeScaling::Ntk(config)) => of_base(ntk_base(base, dim, config.factor.value())),
            Some(RopeScaling::NtkByParts(config)) => ntk_by_parts(plain, config),
            Some(RopeScaling::DynamicNtk(config)) => {
                of_base(dynamic_ntk_base(base, dim, config, length))
            }
            Some(RopeScaling::Yarn(config)) => yarn(plain, dim, base, config),
            Some(RopeScaling::DynamicYarn(config)) => yarn(plain, dim, base, &config.at(length)),
            Some(RopeScaling::Longrope(config)) => longrope(plain, config, length),
            Some(RopeScaling::Llama3(config)) => llama3(plain, config),
            Some(RopeScaling::Proportional(config)) => proportional(plain, config.fraction),
            Some(RopeScaling::Resonance(_)) => resonance(plain),
        }
    }

    /// Wavelength of each pair in tokens, `2 pi / inv_freq`.
    pub fn wavelengths(&self) -> Vec<f64> {
        self.inv_freq.iter().map(|f| 2.0 * PI / f).collect()
    }
}

/// A number, or `"auto"`: test length over training length, never below 1.
///
/// `auto` is replaced by [`RopeScaling::resolve`] before an encoding is built; nothing here reads a
/// length behind the scenes.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Factor {
    /// Test length over training length.
    #[default]
    Auto,
    /// This factor at every length.
    Fixed(f64),
}

impl Factor {
    pub(crate) fn resolve(&mut self, original: usize, lengths: &Lengths) {
        if *self == Self::Auto {
            *self = Self::Fixed((lengths.test_len as f64 / original as f64).max(1.0));
        }
    }

    pub(crate) fn check(self, key: &str) -> Result<(), ConfigError> {
        match self {
            Self::Auto => Ok(()),
            Self::Fixed(factor) => in_range(
                key,
                factor,
                1.0,
                1e6,
                "use \"auto\" for test length over training length",
            ),
        }
    }

    /// The factor; `auto` that was never resolved scales nothing.
    pub(crate) fn value(self) -> f64 {
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
                if value == "auto" {
                    Ok(Factor::Auto)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(value), &self))
                }
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
        "ntk_by_parts" => NtkByParts(NtkByPartsScaling),
        "dynamic_ntk" => DynamicNtk(DynamicNtkScaling),
        "yarn" => Yarn(YarnScaling),
        "dynamic_yarn" => DynamicYarn(DynamicYarnScaling),
        "longrope" => Longrope(LongropeScaling),
        "llama3" => Llama3(Llama3Scaling),
        "proportional" => Proportional(ProportionalScaling),
        "resonance" => Resonance(ResonanceScaling),
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

/// NTK-aware: `base' = base s^(d/(d-2))`, which stretches the slowest pair by `s` and leaves the
/// fastest alone. bloc97 2023; Hugging Face and jquesnelle/yarn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NtkScaling {
    /// `s`.
    pub factor: Factor,
    /// `L`, for `factor = "auto"`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

/// Dynamic NTK: `base' = base (s T/L - (s - 1))^(d/(d-2))` for `T > L`, plain otherwise. Reads the
/// length of every forward pass and keeps no state between them. Hugging Face `dynamic`.
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
        Self {
            factor: 1.0,
            original_max_position_embeddings: None,
        }
    }
}

/// NTK by parts: pairs that turn more than `beta` times within `L` keep their frequency, pairs that
/// turn less than `alpha` times are interpolated, with a ramp linear in the number of turns
/// between. Peng et al. 2023 (arXiv 2309.00071), eq. 17 to 19, as the paper has it; YaRN's code has
/// a ramp linear in the pair index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NtkByPartsScaling {
    /// `s`.
    pub factor: Factor,
    /// `L`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Turns within `L` below which a pair is interpolated in full.
    pub alpha: f64,
    /// Turns within `L` above which a pair is left alone.
    pub beta: f64,
}

impl Default for NtkByPartsScaling {
    fn default() -> Self {
        Self {
            factor: Factor::Auto,
            original_max_position_embeddings: None,
            alpha: 1.0,
            beta: 32.0,
        }
    }
}

/// YaRN with `s = max(1, T/L)` taken from the length of every forward pass, without state between
/// them. jquesnelle/yarn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicYarnScaling {
    /// `L`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Turns within `L` above which a pair is left alone.
    pub beta_fast: f64,
    /// Turns within `L` below which a pair is interpolated in full.
    pub beta_slow: f64,
    /// Factor on cos and sin; `0.1 ln s + 1` unless given.
    pub attention_factor: Option<f64>,
    /// Whether the ramp's ends are rounded to whole dimensions.
    pub truncate: bool,
}

impl Default for DynamicYarnScaling {
    fn default() -> Self {
        let YarnScaling {
            beta_fast,
            beta_slow,
            truncate,
            ..
        } = YarnScaling::default();
        Self {
            original_max_position_embeddings: None,
            beta_fast,
            beta_slow,
            attention_factor: None,
            truncate,
        }
    }
}

impl DynamicYarnScaling {
    /// What YaRN does at this length.
    fn at(&self, length: f64) -> YarnScaling {
        let original = self
            .original_max_position_embeddings
            .map_or(length, |l| l as f64);
        YarnScaling {
            factor: Factor::Fixed((length / original).max(1.0)),
            original_max_position_embeddings: self.original_max_position_embeddings,
            beta_fast: self.beta_fast,
            beta_slow: self.beta_slow,
            attention_factor: self.attention_factor,
            truncate: self.truncate,
            ..YarnScaling::default()
        }
    }
}

/// LongRoPE: `theta_i / f_i` with one searched factor per pair, `short_factor` up to `L` and
/// `long_factor` beyond; attention factor `sqrt(1 + ln s / ln L)` at every length. Ding et al. 2024
/// (arXiv 2402.13753); Hugging Face `longrope`. Reads the length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongropeScaling {
    /// `s`, the length aimed at over `L`, for the attention factor alone.
    #[serde(default)]
    pub factor: Factor,
    /// `L`; the training length unless given.
    #[serde(default)]
    pub original_max_position_embeddings: Option<usize>,
    /// Divisors of the frequencies up to `L`, one per pair.
    pub short_factor: Vec<f64>,
    /// Divisors of the frequencies beyond `L`, one per pair.
    pub long_factor: Vec<f64>,
    /// Factor on cos and sin, instead of the formula.
    #[serde(default)]
    pub attention_factor: Option<f64>,
}

/// Llama 3: wavelengths over `L / low_freq_factor` are stretched by `s`, those under `L /
/// high_freq_factor` are left alone, with a ramp between. Meta's code for Llama 3.1; Hugging Face
/// `llama3`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Llama3Scaling {
    /// `s`.
    pub factor: Factor,
    /// `L`; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Turns within `L` below which a pair is interpolated in full.
    pub low_freq_factor: f64,
    /// Turns within `L` above which a pair is left alone.
    pub high_freq_factor: f64,
}

impl Default for Llama3Scaling {
    fn default() -> Self {
        Self {
            factor: Factor::Auto,
            original_max_position_embeddings: None,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
        }
    }
}

/// p-RoPE: only the fastest share `fraction` of the pairs turns, with the frequencies they have in
/// the full head; the rest stand still. 1 is plain RoPE, 0 no encoding. Barbero et al. 2024 (arXiv
/// 2410.06205), appendix D; Hugging Face `proportional`.
///
/// Not partial rotation (`rotary_dim`), which pairs inside a slice of the head and spreads all
/// frequencies over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProportionalScaling {
    /// p; rounded down to whole pairs.
    pub fraction: f64,
}

impl Default for ProportionalScaling {
    fn default() -> Self {
        Self { fraction: 0.75 }
    }
}

/// Resonance RoPE: every wavelength rounded to a whole number of tokens, so that a pair repeats
/// exactly. Wang et al. 2024 (arXiv 2403.00071).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResonanceScaling {}

/// YaRN: pairs that turn often in training keep their frequency, pairs that never complete a turn
/// are interpolated, a linear ramp over the pair index lies between, and cos and sin carry an
/// attention factor. Peng et al. 2023 (arXiv 2309.00071), in the form of the authors' code and
/// Hugging Face (the paper's ramp is linear in the number of turns instead).
///
/// With `L` under about 201 and `beta_fast = 32` the ramp starts at pair 0: nearly plain
/// interpolation.
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
    /// Numerator's multiplier where the attention factor is a ratio (DeepSeek); only together with
    /// `mscale_all_dim`.
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
    /// Replaces every default that depends on lengths: `original_max_position_embeddings` and
    /// `factor = "auto"`.
    pub fn resolve(&mut self, lengths: &Lengths) {
        let (factor, original) = match self {
            Self::Linear(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::Ntk(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::NtkByParts(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::DynamicNtk(c) => (None, &mut c.original_max_position_embeddings),
            Self::Yarn(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::DynamicYarn(c) => (None, &mut c.original_max_position_embeddings),
            Self::Longrope(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::Llama3(c) => (Some(&mut c.factor), &mut c.original_max_position_embeddings),
            Self::Proportional(_) | Self::Resonance(_) => return,
        };
        let original = *original.get_or_insert(lengths.train_len);
        if let Some(factor) = factor {
            factor.resolve(original.max(1), lengths);
        }
    }

    /// Whether the frequencies depend on the length of the forward pass.
    pub(crate) fn reads_length(&self) -> bool {
        matches!(
            self,
            Self::DynamicNtk(_) | Self::DynamicYarn(_) | Self::Longrope(_)
        )
    }

    /// Whether the formula reads `base` and not only the frequencies.
    pub(crate) fn needs_base(&self) -> bool {
        matches!(
            self,
            Self::Ntk(_) | Self::DynamicNtk(_) | Self::Yarn(_) | Self::DynamicYarn(_)
        )
    }

    /// Refuses what the formula has no meaning for; `dim` is the rotated dimension.
    pub(crate) fn check(&self, dim: usize) -> Result<(), ConfigError> {
        let original = match self {
            Self::Linear(c) => c.original_max_position_embeddings,
            Self::Ntk(c) => c.original_max_position_embeddings,
            Self::NtkByParts(c) => c.original_max_position_embeddings,
            Self::DynamicNtk(c) => c.original_max_position_embeddings,
            Self::Yarn(c) => c.original_max_position_embeddings,
            Self::DynamicYarn(c) => c.original_max_position_embeddings,
            Self::Longrope(c) => c.original_max_position_embeddings,
            Self::Llama3(c) => c.original_max_position_embeddings,
            Self::Proportional(_) | Self::Resonance(_) => None,
        };
        if let Some(original) = original {
            in_range(
                "original_max_position_embeddings",
                original as f64,
                1.0,
                1e9,
                "leave it out for the training length",
            )?;
        }
        match self {
            Self::Linear(c) => c.factor.check("factor"),
            Self::Ntk(c) => c
                .factor
                .check("factor")
                .and_then(|()| ntk_dim(self.kind(), dim)),
            Self::NtkByParts(c) => {
                c.factor.check("factor")?;
                ordered(
                    ("alpha", c.alpha),
                    ("beta", c.beta),
                    1e-6..=1e6,
                    "the paper uses 1 and 32",
                )
            }
            Self::DynamicNtk(c) => in_range(
                "factor",
                c.factor,
                1.0,
                1e6,
                "1 scales by test length over training length",
            )
            .and_then(|()| ntk_dim(self.kind(), dim)),
            Self::Yarn(c) => c.check(),
            Self::DynamicYarn(c) => c.at(1.0).check(),
            Self::Longrope(c) => c.check(dim),
            Self::Llama3(c) => {
                c.factor.check("factor")?;
                let (low, high) = (
                    ("low_freq_factor", c.low_freq_factor),
                    ("high_freq_factor", c.high_freq_factor),
                );
                ordered(low, high, 1e-6..=1e6, "Llama 3.1 uses 1 and 4")
            }
            Self::Proportional(c) => {
                in_range("fraction", c.fraction, 0.0, 1.0, "the paper uses 0.75")
            }
            Self::Resonance(_) => Ok(()),
        }
    }
}

/// Refuses two numbers that are out of range or do not rise.
fn ordered(
    low: (&str, f64),
    high: (&str, f64),
    range: std::ops::RangeInclusive<f64>,
    hint: &str,
) -> Result<(), ConfigError> {
    for (key, value) in [low, high] {
        in_range(key, value, *range.start(), *range.end(), hint)?;
    }
    if high.1 > low.1 {
        return Ok(());
    }
    let problem = format!("must be larger than {}", low.0);
    let hint = format!("swap {} and {}; {hint}", low.0, high.0);
    Err(ConfigError::new(
        high.0,
        high.1,
        problem,
        format!("above {}", low.1),
        hint,
    ))
}

impl LongropeScaling {
    fn check(&self, dim: usize) -> Result<(), ConfigError> {
        self.factor.check("factor")?;
        if let Some(factor) = self.attention_factor {
            in_range(
                "attention_factor",
                factor,
                1e-3,
                1e3,
                "leave it out for sqrt(1 + ln(factor) / ln(L))",
            )?;
        }
        for (key, factors) in [
            ("short_factor", &self.short_factor),
            ("long_factor", &self.long_factor),
        ] {
            let pairs = dim / 2;
            if factors.len() != pairs {
                let problem = format!("{} factors for {pairs} pairs of dimensions", factors.len());
                let hint = "give one factor per pair, fastest first";
                return Err(ConfigError::new(
                    key,
                    format!("{factors:?}"),
                    problem,
                    format!("{pairs} numbers"),
                    hint,
                ));
            }
            for (i, factor) in factors.iter().enumerate() {
                in_range(
                    &format!("{key}.{i}"),
                    *factor,
                    1e-3,
                    1e6,
                    "1 leaves a pair alone",
                )?;
            }
        }
        Ok(())
    }
}

impl YarnScaling {
    fn check(&self) -> Result<(), ConfigError> {
        self.factor.check("factor")?;
        ordered(
            ("beta_slow", self.beta_slow),
            ("beta_fast", self.beta_fast),
            1e-6..=1e6,
            "the paper uses 1 and 32",
        )?;
        if let Some(factor) = self.attention_factor {
            in_range(
                "attention_factor",
                factor,
                1e-3,
                1e3,
                "leave it out for 0.1 ln(factor) + 1",
            )?;
        }
        for (key, value) in [
            ("mscale", self.mscale),
            ("mscale_all_dim", self.mscale_all_dim),
        ] {
            if let Some(value) = value {
                in_range(
                    key,
                    value,
                    0.0,
                    1e3,
                    "leave both mscale keys out for 0.1 ln(factor) + 1",
                )?;
            }
        }
        if self.mscale.is_some() != self.mscale_all_dim.is_some() {
            let (given, missing) = if self.mscale.is_some() {
                ("mscale", "mscale_all_dim")
            } else {
                ("mscale_all_dim", "mscale")
            };
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
        let mscale = |m: f64| {
            if s <= 1.0 {
                1.0
            } else {
                0.1 * m * libm::log(s) + 1.0
            }
        };
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
    Err(ConfigError::new(
        "kind",
        kind,
        format!("the exponent d/(d-2) has no value for {dim} rotated dimensions"),
        "4 or more",
        hint,
    ))
}

fn ntk_base(base: f64, dim: usize, factor: f64) -> f64 {
    base * libm::pow(factor, dim as f64 / (dim as f64 - 2.0))
}

fn dynamic_ntk_base(base: f64, dim: usize, config: &DynamicNtkScaling, length: f64) -> f64 {
    let original = config
        .original_max_position_embeddings
        .map_or(length, |l| l as f64);
    ntk_base(
        base,
        dim,
        config.factor * length.max(original) / original - (config.factor - 1.0),
    )
}

fn yarn(plain: Frequencies, dim: usize, base: f64, config: &YarnScaling) -> Frequencies {
    let (s, d) = (config.factor.value(), dim as f64);
    let original = config.original_max_position_embeddings.unwrap_or(1) as f64;
    // The dimension whose pair completes `turns` turns within the training length.
    let dimension =
        |turns: f64| d * libm::log(original / (turns * 2.0 * PI)) / (2.0 * libm::log(base));
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
    Frequencies {
        inv_freq: inv_freq.collect(),
        attention_factor: config.attention_factor(),
    }
}

/// Blends interpolated and plain frequencies; `kept(theta)` is the share of the plain one.
fn blend(mut plain: Frequencies, factor: f64, kept: impl Fn(f64) -> f64) -> Frequencies {
    plain.inv_freq.iter_mut().for_each(|theta| {
        let kept = kept(*theta);
        *theta = (1.0 - kept) * *theta / factor + kept * *theta;
    });
    plain
}

/// Turns a pair of this frequency completes within `original` tokens.
fn turns(theta: f64, original: f64) -> f64 {
    original * theta / (2.0 * PI)
}

fn ntk_by_parts(plain: Frequencies, config: &NtkByPartsScaling) -> Frequencies {
    let original = config.original_max_position_embeddings.unwrap_or(1) as f64;
    let ramp = |theta| {
        ((turns(theta, original) - config.alpha) / (config.beta - config.alpha)).clamp(0.0, 1.0)
    };
    blend(plain, config.factor.value(), ramp)
}

fn llama3(plain: Frequencies, config: &Llama3Scaling) -> Frequencies {
    let original = config.original_max_position_embeddings.unwrap_or(1) as f64;
    let (low, high) = (config.low_freq_factor, config.high_freq_factor);
    blend(plain, config.factor.value(), |theta| {
        ((turns(theta, original) - low) / (high - low)).clamp(0.0, 1.0)
    })
}

fn longrope(mut plain: Frequencies, config: &LongropeScaling, length: f64) -> Frequencies {
    let original = config
        .original_max_position_embeddings
        .map_or(length, |l| l as f64);
    let factors = if length <= original {
        &config.short_factor
    } else {
        &config.long_factor
    };
    plain
        .inv_freq
        .iter_mut()
        .zip(factors)
        .for_each(|(theta, factor)| *theta /= factor);
    let s = config.factor.value();
    // ln(1) = 0 has no place under a fraction: L = 1 counts as 2.
    let formula = if s <= 1.0 {
        1.0
    } else {
        (1.0 + libm::log(s) / libm::log(original.max(2.0))).sqrt()
    };
    plain.attention_factor = config.attention_factor.unwrap_or(formula);
    plain
}

fn proportional(mut plain: Frequencies, fraction: f64) -> Frequencies {
    let turning = (fraction * plain.inv_freq.len() as f64).floor() as usize;
    plain.inv_freq[turning..].fill(0.0);
    plain
}

fn resonance(mut plain: Frequencies) -> Frequencies {
    plain
        .inv_freq
        .iter_mut()
        .for_each(|theta| *theta = 2.0 * PI / (2.0 * PI / *theta).round());
    plain
}
