//! The one list of encodings, and what is declared about each.

use crate::error::ConfigError;
use crate::hooks::{PositionalEncoding, Prepared};
use crate::init::Init;
use crate::positions::Positions;
use burn::module::Module;
use burn::tensor::Device;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sizes of the model that hosts an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Attention heads per block.
    pub n_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

/// Lengths in tokens that defaults such as `factor = "auto"` are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Longest sequence trained on.
    pub train_len: usize,
    /// Sequence length the encoding is about to be used at.
    pub test_len: usize,
}

/// Which of the five hooks an encoding uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hooks {
    /// Adds to the embedded input.
    pub embed: bool,
    /// Transforms queries and keys.
    pub transform_qk: bool,
    /// Adds a position-only bias to the logits.
    pub logits_bias: bool,
    /// Adds a bias that sees queries and keys.
    pub content_bias: bool,
    /// Adds a term to attention's output that sees the weights.
    pub output_bias: bool,
}

impl std::fmt::Display for Hooks {
    /// The names of the hooks in use, or `none`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = [
            (self.embed, "embed"),
            (self.transform_qk, "transform_qk"),
            (self.logits_bias, "logits_bias"),
            (self.content_bias, "content_bias"),
            (self.output_bias, "output_bias"),
        ];
        let used: Vec<&str> = named
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| name)
            .collect();
        f.write_str(
            if used.is_empty() {
                "none".to_owned()
            } else {
                used.join(", ")
            }
            .as_str(),
        )
    }
}

impl Hooks {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            embed: self.embed || other.embed,
            transform_qk: self.transform_qk || other.transform_qk,
            logits_bias: self.logits_bias || other.logits_bias,
            content_bias: self.content_bias || other.content_bias,
            output_bias: self.output_bias || other.output_bias,
        }
    }
}

/// What a configured encoding declares about itself; tests compare each line with what is observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Hooks that are not the identity.
    pub hooks: Hooks,
    /// Path inside the encoding and shape of every parameter.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// First position without a value.
    pub max_position: Option<usize>,
    /// Whether the same position is encoded differently in sequences of different length.
    pub reads_length: bool,
    /// Whether logits depend on `key - query` alone; where `reads_length` holds, at one length.
    pub relative: bool,
    /// Whether positions are seen through the distances between queries and keys alone, so that
    /// distances may be drawn at random.
    pub by_distance: bool,
    /// Whether linear attention can host it.
    pub linear: bool,
    /// Whether it has a meaning under a causal mask alone: what it makes of a pair goes by the
    /// keys up to the query.
    pub causal: bool,
    /// Whether queries and keys turn with their positions, so that whatever meets them in a
    /// `stack` meets turned ones.
    pub turns: bool,
    /// Whether trained vectors of head_dim meet queries or keys as `transform_qk` left them.
    pub meets: bool,
    /// Whether no other part of a `stack` may turn or meet queries and keys: PoPE makes heads
    /// wider, xPos's two factors only fit each other.
    pub alone: bool,
    /// Axes of [`Positions`] it reads; 0 where it reads the position alone.
    pub axes: usize,
}

impl Facts {
    /// Number of trainable numbers.
    pub fn num_params(&self) -> usize {
        self.parameters
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum()
    }
}

/// A line of the catalogue, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// One line: what it does to which tensor.
    pub summary: &'static str,
    /// The formula, in plain text.
    pub formula: &'static str,
    /// First author, year and identifier.
    pub source: &'static str,
}

/// What a configuration knows about the encoding it describes. One implementation per file under
/// `encodings/`.
pub trait Spec {
    /// The module built from it.
    type Module: PositionalEncoding + Module;
    /// The catalogue's line.
    const ABOUT: About;
    /// Refuses values that have no meaning for this model, naming the key.
    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError>;
    /// Replaces the defaults that depend on lengths, so that nothing is left to guess.
    fn resolve(&mut self, lengths: &Lengths) {
        let _ = lengths;
    }
    /// What it declares; meaningful once `check` passed.
    fn facts(&self, shape: &ModelShape) -> Facts;
    /// Builds the module; `check` must have passed.
    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Self::Module;
}

/// A serde enum tagged by `kind`, whose errors keep the path to the key.
///
/// Serde's own internally tagged enums buffer the table and lose the path of an error inside it.
/// This one reads `kind`, which must come first, and streams the rest into the variant's strict
/// struct.
macro_rules! tagged {
    ($(#[$meta:meta])* pub enum $name:ident { $($kind:literal => $variant:ident($config:ty)),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(serde::Serialize)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`kind = \"", $kind, "\"`")] #[serde(rename = $kind)] $variant($config)),+
        }

        impl $name {
            /// Every `kind`, in the order of the list.
            pub const KINDS: &'static [&'static str] = &[$($kind),+];

            /// The `kind` of this value.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind),+ }
            }

            /// The configuration of `kind` with every key left out, or `None` if there is no such kind or a key has no default.
            pub fn default_of(kind: &str) -> Option<Self> {
                Self::KINDS.contains(&kind).then(|| {
                    let entries = std::iter::once(("kind", kind));
                    let table = serde::de::value::MapDeserializer::<_, serde::de::value::Error>::new(entries);
                    <Self as serde::Deserialize>::deserialize(table).ok()
                }).flatten()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TableVisitor;
                impl<'de> serde::de::Visitor<'de> for TableVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a table with `kind`")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        use serde::de::Error;
                        match map.next_key::<String>()?.as_deref() {
                            Some("kind") => {}
                            // Readers put `kind` first where there is one, so another first key means that it is missing.
                            _ => return Err(A::Error::missing_field("kind")),
                        }
                        let kind = map.next_value::<String>()?;
                        let rest = serde::de::value::MapAccessDeserializer::new(map);
                        match kind.as_str() {
                            $($kind => <$config as serde::Deserialize>::deserialize(rest).map($name::$variant),)+
                            other => Err(A::Error::unknown_variant(other, $name::KINDS)),
                        }
                    }
                }
                deserializer.deserialize_map(TableVisitor)
            }
        }
    };
}
pub(crate) use tagged;

/// Generates the configuration enum, the module enum and their plumbing from one list.
macro_rules! encodings {
    ($($kind:literal => $module:ident, $config:ident;)+) => {
        tagged! {
            /// The configuration of any encoding; in TOML a table with `kind`.
            #[derive(Clone, Debug, PartialEq)]
            pub enum EncodingConfig { $($kind => $module($config)),+ }
        }

        /// Any encoding of the catalogue.
        #[derive(Module, Debug)]
        #[allow(clippy::large_enum_variant)]
        pub enum Encoding {
            $(#[doc = concat!("`kind = \"", $kind, "\"`")] $module($module)),+
        }

        impl EncodingConfig {
            /// Builds the module; [`check`](Self::check) must have passed.
            pub fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Encoding {
                match self { $(Self::$module(config) => Encoding::$module(config.init(shape, init))),+ }
            }

            /// Refuses values that have no meaning for this model, naming the key.
            ///
            /// # Errors
            ///
            /// The first key that cannot work, with what is allowed.
            pub fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
                match self { $(Self::$module(config) => config.check(shape)),+ }
            }

            /// Replaces the defaults that depend on lengths, so that nothing is left to guess.
            pub fn resolve(&mut self, lengths: &Lengths) {
                match self { $(Self::$module(config) => config.resolve(lengths)),+ }
            }

            /// What the configured encoding declares about itself.
            pub fn facts(&self, shape: &ModelShape) -> Facts {
                match self { $(Self::$module(config) => config.facts(shape)),+ }
            }

            /// The catalogue's line for this kind.
            pub fn about(&self) -> About {
                match self { $(Self::$module(_) => <$config as Spec>::ABOUT),+ }
            }
        }

        impl PositionalEncoding for Encoding {
            fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
                match self { $(Self::$module(encoding) => encoding.prepare(positions, device)),+ }
            }

            fn max_position(&self) -> Option<usize> {
                match self { $(Self::$module(encoding) => encoding.max_position()),+ }
            }
        }
    };
}

use crate::encodings::{
    alibi::*, axial_rope::*, cope::*, deberta::*, fire::*, fox::*, hard_alibi::*, kerple::*,
    learned::*, learned_bias::*, log_scaling::*, nope::*, nope_layers::*, pope::*, rerope::*,
    rope::*, sandwich::*, self_extend::*, shaw::*, sinusoidal::*, stack::*, t5::*,
    transformer_xl::*, window::*, xpos::*,
};

encodings! {
    "nope" => Nope, NopeConfig;
    "sinusoidal" => Sinusoidal, SinusoidalConfig;
    "learned" => Learned, LearnedConfig;
    "rope" => Rope, RopeConfig;
    "xpos" => Xpos, XposConfig;
    "axial_rope" => AxialRope, AxialRopeConfig;
    "pope" => Pope, PopeConfig;
    "rerope" => Rerope, ReropeConfig;
    "self_extend" => SelfExtend, SelfExtendConfig;
    "log_scaling" => LogScaling, LogScalingConfig;
    "alibi" => Alibi, AlibiConfig;
    "t5" => T5, T5Config;
    "kerple" => Kerple, KerpleConfig;
    "fire" => Fire, FireConfig;
    "sandwich" => Sandwich, SandwichConfig;
    "learned_bias" => LearnedBias, LearnedBiasConfig;
    "hard_alibi" => HardAlibi, HardAlibiConfig;
    "window" => Window, WindowConfig;
    "shaw" => Shaw, ShawConfig;
    "transformer_xl" => TransformerXl, TransformerXlConfig;
    "deberta" => Deberta, DebertaConfig;
    "cope" => Cope, CopeConfig;
    "fox" => Fox, FoxConfig;
    "nope_layers" => NopeLayers, NopeLayersConfig;
    "stack" => Stack, StackConfig;
}

impl EncodingConfig {
    /// The plain rotation that a rotary encoding is built on: its base, layout, rotated dimensions
    /// and scaling. `None` where queries and keys are not rotated by one set of frequencies.
    pub fn rotary(&self) -> Option<RopeConfig> {
        let plain = |base, layout, rotary_dim| RopeConfig {
            base,
            layout,
            rotary_dim,
            ..RopeConfig::default()
        };
        match self {
            Self::Rope(config) => Some(config.clone()),
            Self::Xpos(config) => Some(plain(config.base, config.layout, config.rotary_dim)),
            Self::Rerope(config) => Some(plain(config.base, config.layout, config.rotary_dim)),
            Self::SelfExtend(config) => Some(plain(config.base, config.layout, config.rotary_dim)),
            _ => None,
        }
    }

    /// Numbers that follow from a resolved configuration and a training length in tokens, by name.
    ///
    /// Rotary encodings have `longest_wavelength` (tokens, before any scaling), `rotary_pairs`,
    /// and `pairs_beyond_training`: how many of them turn less than once in training. Those of a
    /// part stand under its key: `parts.0.longest_wavelength`.
    pub fn derived(&self, shape: &ModelShape, train_len: usize) -> BTreeMap<String, f64> {
        let mut facts = BTreeMap::new();
        if let Some(rope) = self.rotary() {
            let plain = RopeConfig {
                scaling: None,
                ..rope
            };
            let wavelengths = plain.frequencies(shape.head_dim, 1.0).wavelengths();
            let beyond = wavelengths
                .iter()
                .filter(|tokens| **tokens > train_len as f64);
            facts.insert("pairs_beyond_training".to_owned(), beyond.count() as f64);
            facts.insert("rotary_pairs".to_owned(), wavelengths.len() as f64);
            if let Some(longest) = wavelengths.last() {
                facts.insert("longest_wavelength".to_owned(), *longest);
            }
        }
        for (key, part) in self.parts() {
            let inner = part.derived(shape, train_len);
            facts.extend(
                inner
                    .into_iter()
                    .map(|(name, value)| (format!("{key}.{name}"), value)),
            );
        }
        facts
    }

    /// The encodings that this one is made of, each with its key: `parts.0` or `part`.
    pub fn parts(&self) -> Vec<(String, &Self)> {
        match self {
            Self::Stack(stack) => stack
                .parts
                .iter()
                .enumerate()
                .map(|(i, part)| (format!("parts.{i}"), part))
                .collect(),
            Self::NopeLayers(layers) => vec![("part".to_owned(), &layers.part)],
            _ => Vec::new(),
        }
    }
}
