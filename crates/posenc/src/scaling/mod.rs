//! Rescalings of rotary frequencies: one file each, one line each in the list.
//!
//! Notation: `d` rotated dimensions, pair index `i = 0..d/2`, training length `L`, test length `T`,
//! factor `s`. A scaling maps plain frequencies to scaled ones and an attention factor.

/// `resolve` and `unresolved` of a scaling whose keys `original_max_position_embeddings` and, if
/// named, `factor` depend on lengths. Before the `mod` lines, so that all files see it.
macro_rules! resolved_by_lengths {
    ($($factor:ident)?) => {
        fn resolve(&mut self, lengths: &crate::facts::Lengths) {
            let original = self.original_max_position_embeddings.resolve(lengths);
            $(self.$factor.resolve(original, lengths);)?
            let _ = original;
        }

        fn unresolved(&self) -> Option<&'static str> {
            let original = self.original_max_position_embeddings.unresolved();
            $(let original = original.or(self.$factor.unresolved());)?
            original
        }
    };
}

mod dynamic_ntk;
mod dynamic_yarn;
mod evq_cosh;
mod factor;
mod hope;
mod linear;
mod llama3;
mod longrope;
mod mrrope;
mod ntk;
mod ntk_by_parts;
mod proportional;
mod resonance;
mod yarn;

use crate::ConfigError;
use crate::facts::Lengths;
use crate::frequencies::Frequencies;
use crate::values::OriginalLength;
pub use factor::Factor;
use schema::in_range;
use std::f64::consts::PI;
use std::ops::RangeInclusive;

/// What differs from the source, by kind; as [`About::deviations`](crate::spec::About).
pub const DEVIATIONS: &[(&str, &str)] = &[
    (
        "evq_cosh",
        "tau is 1.5 unless given; the authors' notes have a rule for it, which is `tau = \"auto\"`",
    ),
    (
        "hope",
        "as the paper of DaRoPE defines it; that of HoPE was not read",
    ),
];

/// Frequencies before any scaling.
#[derive(Clone, Debug, PartialEq)]
pub struct Unscaled {
    /// Radians per token of each pair, fastest first.
    pub inv_freq: Vec<f64>,
    /// Rotated dimensions of a head.
    pub dim: usize,
    /// The base that `inv_freq` was computed from, if its spacing is geometric.
    pub base: f64,
}

/// A rescaling of rotary frequencies.
pub trait Scaling {
    /// Its name for people, as [`EncodingSpec::NAME`](crate::spec::EncodingSpec::NAME).
    const NAME: Option<&'static str> = None;
    /// Whether the frequencies depend on the length of the forward pass.
    const READS_LENGTH: bool = false;
    /// Whether the formula reads the base and not only the frequencies.
    const READS_BASE: bool = false;

    /// Scaled frequencies for a sequence of `length` tokens; `check` must have passed and every
    /// key be resolved.
    fn scale(&self, plain: &Unscaled, length: f64) -> Frequencies;

    /// Whether it sets the frequencies itself, so that `base` and `spacing` have no effect.
    fn replaces_plain(&self) -> bool {
        false
    }

    /// Multiplies the logits, beside the factor on cos and sin.
    fn logits_factor(&self) -> f64 {
        1.0
    }

    /// Refuses values for which the formula has no meaning; `dim` is the number of rotated
    /// dimensions.
    ///
    /// # Errors
    ///
    /// The first key that cannot work, with what is allowed.
    fn check(&self, dim: usize) -> Result<(), ConfigError>;

    /// Replaces defaults that depend on lengths by their values.
    fn resolve(&mut self, lengths: &Lengths) {
        let _ = lengths;
    }

    /// The first key whose value still depends on lengths.
    fn unresolved(&self) -> Option<&'static str> {
        None
    }
}

/// Generates [`RopeScaling`] and its plumbing from one list.
macro_rules! scalings {
    ($($kind:literal => $module:ident::$config:ident as $variant:ident;)+) => {
        $(pub use $module::$config;)+

        schema::tagged! {
            /// A rescaling of rotary frequencies, at training or at test time.
            #[derive(Clone, Debug, PartialEq)]
            #[non_exhaustive]
            pub enum RopeScaling { $($kind => $variant($config)),+ }
        }

        impl RopeScaling {
            /// Names for people by kind, where a kind declares one.
            pub const NAMES: &[(&str, Option<&str>)] = &[$(($kind, $config::NAME)),+];

            /// Replaces every default that depends on lengths: `original_max_position_embeddings`
            /// and `factor = "auto"`.
            pub fn resolve(&mut self, lengths: &Lengths) {
                match self { $(Self::$variant(config) => config.resolve(lengths)),+ }
            }

            /// The first key whose value still depends on lengths.
            pub fn unresolved(&self) -> Option<&'static str> {
                match self { $(Self::$variant(config) => config.unresolved()),+ }
            }

            pub(crate) fn reads_length(&self) -> bool {
                match self { $(Self::$variant(_) => $config::READS_LENGTH),+ }
            }

            pub(crate) fn reads_base(&self) -> bool {
                match self { $(Self::$variant(_) => $config::READS_BASE),+ }
            }

            pub(crate) fn replaces_plain(&self) -> bool {
                match self { $(Self::$variant(config) => config.replaces_plain()),+ }
            }

            pub(crate) fn check(&self, dim: usize) -> Result<(), ConfigError> {
                match self { $(Self::$variant(config) => config.check(dim)),+ }
            }

            /// Multiplies the logits, beside the factor on cos and sin.
            pub fn logits_factor(&self) -> f64 {
                match self { $(Self::$variant(config) => config.logits_factor()),+ }
            }

            pub(crate) fn scale(&self, plain: &Unscaled, length: f64) -> Frequencies {
                match self { $(Self::$variant(config) => config.scale(plain, length)),+ }
            }
        }
    };
}

// rustfmt does not look into macros, so the `mod` lines come first.
scalings! {
    "linear" => linear::LinearScaling as Linear;
    "ntk" => ntk::NtkScaling as Ntk;
    "ntk_by_parts" => ntk_by_parts::NtkByPartsScaling as NtkByParts;
    "dynamic_ntk" => dynamic_ntk::DynamicNtkScaling as DynamicNtk;
    "yarn" => yarn::YarnScaling as Yarn;
    "dynamic_yarn" => dynamic_yarn::DynamicYarnScaling as DynamicYarn;
    "mrrope" => mrrope::MrropeScaling as Mrrope;
    "longrope" => longrope::LongropeScaling as Longrope;
    "llama3" => llama3::Llama3Scaling as Llama3;
    "proportional" => proportional::ProportionalScaling as Proportional;
    "hope" => hope::HopeScaling as Hope;
    "resonance" => resonance::ResonanceScaling as Resonance;
    "evq_cosh" => evq_cosh::EvqCoshScaling as EvqCosh;
}

/// Resolves a factor that is all that depends on `L`. Where it is given, `L` changes no number and
/// is the training length, so that equal trainings have equal configurations.
fn resolve_factor(factor: &mut Factor, original: &mut Option<usize>, lengths: &Lengths) {
    let unless_given = match factor {
        Factor::Auto => lengths.trained_len,
        Factor::Fixed(_) => lengths.train_len,
    };
    factor.resolve(*original.get_or_insert(unless_given), lengths);
}

/// Refuses two numbers that are out of range or do not rise.
fn check_rising(low: (&str, f64), high: (&str, f64), hint: &str) -> Result<(), ConfigError> {
    check_order(low, high, hint, high.1 > low.1, ["be larger than", "above"])
}

/// Refuses two numbers that are out of range or fall.
fn check_not_falling(low: (&str, f64), high: (&str, f64), hint: &str) -> Result<(), ConfigError> {
    let words = ["not be below", "at least"];
    check_order(low, high, hint, high.1 >= low.1, words)
}

fn check_order(
    low: (&str, f64),
    high: (&str, f64),
    hint: &str,
    in_order: bool,
    [must, allowed]: [&str; 2],
) -> Result<(), ConfigError> {
    const RANGE: RangeInclusive<f64> = 1e-6..=1e6;
    for (key, value) in [low, high] {
        in_range(key, value, RANGE, hint)?;
    }
    if in_order {
        return Ok(());
    }
    Err(ConfigError::new(
        high.0,
        high.1,
        format!("must {must} {}", low.0),
        format!("{allowed} {}", low.1),
        format!("swap {} and {}; {hint}", low.0, high.0),
    ))
}

/// The pairs between which YaRN's ramp lies: those that complete `fast` and `slow` turns within
/// `original` tokens, rounded outwards if `whole`.
fn ramp_ends(plain: &Unscaled, original: f64, [fast, slow]: [f64; 2], whole: bool) -> (f64, f64) {
    let d = plain.dim as f64;
    let pair =
        |turns: f64| d * libm::log(original / (turns * 2.0 * PI)) / (2.0 * libm::log(plain.base));
    let (mut low, mut high) = (pair(fast), pair(slow));
    if whole {
        (low, high) = (low.floor(), high.ceil());
    }
    // `high` stops at d - 1, not d/2 - 1, in every public implementation.
    (low.max(0.0), high.min(d - 1.0))
}

/// Blends interpolated and plain frequencies; `kept(theta)` is the share of the plain one.
fn blend(plain: &Unscaled, factor: f64, kept: impl Fn(f64) -> f64) -> Frequencies {
    let blended = |theta: &f64| {
        let kept = kept(*theta);
        (1.0 - kept) * *theta / factor + kept * *theta
    };
    Frequencies::new(plain.inv_freq.iter().map(blended).collect())
}

/// Turns a pair of this frequency completes within `original` tokens.
fn turns(theta: f64, original: f64) -> f64 {
    original * theta / (2.0 * PI)
}
