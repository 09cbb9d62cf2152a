//! The one list of encodings. One file each, which opens with the same four lines: formula, source,
//! parameters, limits. What deviates from the source is data, in `ABOUT`: the catalogue prints it.
//!
//! A new encoding is a file here, its `mod` line and its line in the list.

pub mod alibi;
pub mod axial_rope;
pub mod by_head;
pub mod by_layer;
pub mod cable;
pub mod cope;
pub mod dape;
pub mod darope;
pub mod deberta;
pub mod dual_chunk;
pub mod fire;
pub mod fope;
pub mod formula;
pub mod fox;
pub mod grape_a;
pub mod grape_ap;
pub mod grape_m;
pub mod hard_alibi;
pub mod kerple;
pub mod learned;
pub mod learned_bias;
pub mod log_scaling;
pub mod mobius;
pub mod nope;
pub mod nope_layers;
pub mod on_axis;
pub mod path;
pub mod pope;
pub mod relative_projection;
pub mod repo;
pub mod rerope;
pub mod rope;
pub mod sandwich;
pub mod selective_rope;
pub mod self_extend;
pub mod shaw;
pub mod sinusoidal;
pub mod stack;
pub mod stick_breaking;
pub mod string;
pub mod t5;
pub mod transformer_xl;
pub mod wall;
pub mod waveprune;
pub mod window;
pub mod xpos;

use crate::ConfigError;
use crate::by_part;
use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult};
use crate::init::{Init, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::Rotary;
use crate::spec::{About, EncodingSpec, NumberTable, Part};
use crate::values::refuse_unresolved;
use burn::module::Module;
use std::collections::BTreeMap;

/// Generates the configuration enum, the module enum and their plumbing from one list.
macro_rules! encodings {
    ($($kind:literal => $file:ident::{$module:ident, $config:ident};)+) => {
        $(pub use $file::{$config, $module};)+

        schema::tagged! {
            /// The configuration of any encoding; in TOML a table with `kind`.
            #[derive(Clone, Debug, PartialEq)]
            #[non_exhaustive]
            pub enum EncodingConfig { $($kind => $module($config)),+ }
        }

        /// Any encoding of the catalogue.
        #[derive(Module, Debug)]
        #[non_exhaustive]
        pub enum Encoding {
            $(#[doc = concat!("`kind = \"", $kind, "\"`")] $module($module)),+
        }

        $(impl From<$config> for EncodingConfig {
            fn from(config: $config) -> Self {
                Self::$module(config)
            }
        })+

        impl EncodingConfig {
            /// Names for people by kind, where a kind declares one.
            pub const NAMES: &[(&str, Option<&str>)] = &[$(($kind, $config::NAME)),+];

            /// The configuration of `kind` with its defaults, or, if a key has none, with the
            /// simplest value of that key. `None` if there is no such kind.
            pub fn example(kind: &str) -> Option<Self> {
                let simplest = || match kind {
                    $($kind => $config::example().map(Self::$module),)+
                    _ => None,
                };
                Self::default_of(kind).or_else(simplest)
            }

            /// Refuses values that have no meaning for this model, naming the key.
            ///
            /// # Errors
            ///
            /// The first key that cannot work, with what is allowed.
            pub fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
                match self { $(Self::$module(config) => config.check(shape)),+ }
            }

            /// Refuses values that have no effect on a model that was trained under `trained`.
            ///
            /// # Errors
            ///
            /// The first key whose value is not the trained one.
            pub fn check_trained(&self, trained: &Self) -> Result<(), ConfigError> {
                match (self, trained) {
                    $((Self::$module(own), Self::$module(theirs)) => own.check_trained(theirs),)+
                    _ => Ok(()),
                }
            }

            /// Replaces defaults that depend on lengths by their values.
            pub fn resolve(&mut self, lengths: &Lengths) {
                match self { $(Self::$module(config) => config.resolve(lengths)),+ }
            }

            /// The first key whose value still depends on lengths.
            pub fn unresolved(&self) -> Option<String> {
                match self { $(Self::$module(config) => config.unresolved()),+ }
            }

            /// Path, shape and initial distribution of every parameter.
            pub fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
                match self { $(Self::$module(config) => config.parameters(shape)),+ }
            }

            /// What the configured encoding declares about itself.
            pub fn facts(&self, shape: &ModelShape) -> Facts {
                match self { $(Self::$module(config) => config.facts(shape)),+ }
            }

            pub(crate) fn properties(&self, shape: &ModelShape) -> Facts {
                match self { $(Self::$module(config) => config.properties(shape)),+ }
            }

            pub(crate) fn build(
                &self,
                shape: &ModelShape,
                parameters: &mut Parameters,
            ) -> Encoding {
                match self {
                    $(Self::$module(config) => Encoding::$module(config.build(shape, parameters))),+
                }
            }

            /// The catalogue's line for this kind.
            pub fn about(&self) -> About {
                match self { $(Self::$module(_) => $config::ABOUT),+ }
            }

            /// The rotation it is built on, if queries and keys are rotated by one set of
            /// frequencies.
            pub fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
                match self { $(Self::$module(config) => config.rotary(shape)),+ }
            }

            /// Slopes of a linear penalty on distance, one per head, if that is what it is.
            pub fn slopes(&self, shape: &ModelShape) -> Option<Vec<f64>> {
                match self { $(Self::$module(config) => config.slopes(shape)),+ }
            }

            /// Further numbers that define it, at these lengths.
            pub fn numbers(&self, shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
                match self { $(Self::$module(config) => config.numbers(shape, lengths)),+ }
            }

            /// The encodings that it is made of.
            pub fn parts(&self) -> Vec<Part<'_>> {
                match self { $(Self::$module(config) => config.parts()),+ }
            }

            /// What is of no effect in a model of so few layers, one sentence each.
            pub fn idle(&self, n_layers: usize) -> Vec<String> {
                match self { $(Self::$module(config) => config.idle(n_layers)),+ }
            }

            /// Which trained numbers tests read although training never reaches them, or hardly.
            pub fn untrained(&self, train_len: usize, test_len: usize) -> Option<String> {
                match self { $(Self::$module(config) => config.untrained(train_len, test_len)),+ }
            }

            /// What a part is built for in a model of this shape: fewer heads, or the same.
            pub fn part_shape(&self, part: usize, shape: &ModelShape) -> ModelShape {
                match self { $(Self::$module(config) => config.part_shape(part, shape)),+ }
            }
        }

        impl PositionalEncoding for Encoding {
            fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
                let read = |positions: &Positions| match self {
                    $(Self::$module(encoding) => encoding.prepare(positions, context)),+
                };
                // Rows that differ in their axes alone are left to the encodings that read axes.
                if positions.places_differ() && !self.reads_rows() {
                    by_part::prepare(positions, read)
                } else {
                    read(positions)
                }
            }

            fn max_position(&self) -> Option<usize> {
                match self { $(Self::$module(encoding) => encoding.max_position()),+ }
            }

            fn reads_rows(&self) -> bool {
                match self { $(Self::$module(encoding) => encoding.reads_rows()),+ }
            }

            fn acts_in_groups(&self) -> bool {
                match self { $(Self::$module(encoding) => encoding.acts_in_groups()),+ }
            }
        }
    };
}

// rustfmt does not look into macros, so the `mod` lines come first.
encodings! {
    "nope" => nope::{Nope, NopeConfig};
    "sinusoidal" => sinusoidal::{Sinusoidal, SinusoidalConfig};
    "learned" => learned::{Learned, LearnedConfig};
    "rope" => rope::{Rope, RopeConfig};
    "xpos" => xpos::{Xpos, XposConfig};
    "axial_rope" => axial_rope::{AxialRope, AxialRopeConfig};
    "pope" => pope::{Pope, PopeConfig};
    "mobius" => mobius::{Mobius, MobiusConfig};
    "fope" => fope::{Fope, FopeConfig};
    "darope" => darope::{Darope, DaropeConfig};
    "repo" => repo::{Repo, RepoConfig};
    "selective_rope" => selective_rope::{SelectiveRope, SelectiveRopeConfig};
    "grape_m" => grape_m::{GrapeM, GrapeMConfig};
    "rerope" => rerope::{Rerope, ReropeConfig};
    "self_extend" => self_extend::{SelfExtend, SelfExtendConfig};
    "string" => string::{Shifted, ShiftedConfig};
    "dual_chunk" => dual_chunk::{DualChunk, DualChunkConfig};
    "waveprune" => waveprune::{WavePrune, WavePruneConfig};
    "log_scaling" => log_scaling::{LogScaling, LogScalingConfig};
    "alibi" => alibi::{Alibi, AlibiConfig};
    "t5" => t5::{T5, T5Config};
    "kerple" => kerple::{Kerple, KerpleConfig};
    "fire" => fire::{Fire, FireConfig};
    "sandwich" => sandwich::{Sandwich, SandwichConfig};
    "learned_bias" => learned_bias::{LearnedBias, LearnedBiasConfig};
    "hard_alibi" => hard_alibi::{HardAlibi, HardAlibiConfig};
    "window" => window::{Window, WindowConfig};
    "shaw" => shaw::{Shaw, ShawConfig};
    "transformer_xl" => transformer_xl::{TransformerXl, TransformerXlConfig};
    "deberta" => deberta::{Deberta, DebertaConfig};
    "cope" => cope::{Cope, CopeConfig};
    "fox" => fox::{Fox, FoxConfig};
    "cable" => cable::{Cable, CableConfig};
    "grape_a" => grape_a::{GrapeA, GrapeAConfig};
    "grape_ap" => grape_ap::{GrapeAp, GrapeApConfig};
    "path" => path::{PathProduct, PathProductConfig};
    "wall" => wall::{Wall, WallConfig};
    "relative_projection" => relative_projection::{RelativeProjection, RelativeProjectionConfig};
    "stick_breaking" => stick_breaking::{StickBreaking, StickBreakingConfig};
    "formula" => formula::{Formula, FormulaConfig};
    "dape" => dape::{Dape, DapeConfig};
    "nope_layers" => nope_layers::{NopeLayers, NopeLayersConfig};
    "on_axis" => on_axis::{OnAxis, OnAxisConfig};
    "by_head" => by_head::{ByHead, ByHeadConfig};
    "by_layer" => by_layer::{ByLayer, ByLayerConfig};
    "stack" => stack::{Stack, StackConfig};
}

/// The encoding that examples of compounds hold where any will do.
fn simplest() -> EncodingConfig {
    NopeConfig::default().into()
}

/// The encoding that examples of compounds hold where one must act.
fn usual() -> EncodingConfig {
    RopeConfig::default().into()
}

impl EncodingConfig {
    /// Builds the module.
    ///
    /// # Errors
    ///
    /// If [`check`](Self::check) fails, or a key is [unresolved](Self::unresolved).
    pub fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Result<Encoding, ConfigError> {
        self.check(shape)?;
        refuse_unresolved(self.unresolved())?;
        Ok(self.build(shape, &mut init.draw(self.parameters(shape))))
    }

    /// Numbers that follow from a resolved configuration and a training length in tokens, by name.
    ///
    /// Rotary encodings have `longest_wavelength` (tokens, before any scaling), `rotary_pairs`,
    /// and `pairs_beyond_training`: how many of them turn less than once in training. Those of a
    /// part are listed under its key: `parts.0.longest_wavelength`.
    pub fn derived(&self, shape: &ModelShape, train_len: usize) -> BTreeMap<String, f64> {
        let mut facts = BTreeMap::new();
        if let Some(rotary) = self.rotary(shape) {
            let wavelengths = rotary.unscaled().wavelengths();
            let beyond = wavelengths
                .iter()
                .filter(|tokens| **tokens > train_len as f64);
            facts.insert("pairs_beyond_training".to_owned(), beyond.count() as f64);
            facts.insert("rotary_pairs".to_owned(), wavelengths.len() as f64);
            if let Some(longest) = wavelengths.last() {
                facts.insert("longest_wavelength".to_owned(), *longest);
            }
        }
        for (i, part) in self.parts().into_iter().enumerate() {
            let own = self.part_shape(i, shape);
            let inner = part.config.derived(&own, train_len).into_iter();
            facts.extend(inner.map(|(name, value)| (format!("{}.{name}", part.key), value)));
        }
        facts
    }
}
