//! `string`: rotary attention that reads far pairs by the distances that training saw most.
//!
//! - Formula: RoPE by the distance `d = m - n` below `shift` S; from S on by `d - S + W`, W =
//!   `window`.
//! - Source: STRING, An et al. 2024 (arXiv 2410.18745), and the authors' `string_for_llama.py`. S
//!   is about a third of the training length.
//! - Parameters: none.
//! - Limits: causal only; none of length by construction; two products of queries and keys instead
//!   of one. Not DeepMind's encoding of coordinates of the same name.

use crate::ConfigError;
use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::rotary::{BASES, Rotary, RotaryLayout};
use crate::rotary_tables::check_rotary_dim;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::values::{in_range_if_set, resolved, unset};
use crate::zones::{PreparedZones, Zone, mapped_distances, two_zones};
use burn::module::Module;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "string"`: configuration of [`Shifted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ShiftedConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
    /// Distance S in tokens from which on positions are shifted, 1 to 1000000000; a third of the
    /// training length unless given.
    pub shift: Option<usize>,
    /// Distance W in tokens that S is read as, 0 to `shift`; 128 unless given, and at most half of
    /// S.
    pub window: Option<usize>,
}

impl ShiftedConfig {
    /// The distance by which a query and a key are rotated that are `distance` apart.
    ///
    /// # Panics
    ///
    /// If `shift` or `window` is not resolved.
    pub fn distance(&self, distance: f64) -> f64 {
        let (shift, window) = (resolved(self.shift) as f64, resolved(self.window) as f64);
        if distance < shift {
            distance
        } else {
            distance - shift + window
        }
    }
}

/// Rotation by distances that are shifted back from a certain one on.
#[derive(Module, Debug)]
pub struct Shifted {
    head_dim: usize,
    #[module(skip)]
    config: ShiftedConfig,
}

impl PositionalEncoding for Shifted {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let config = &self.config;
        let (shift, window) = (
            resolved(config.shift) as f64,
            resolved(config.window) as f64,
        );
        let queries = positions.queries().iter().map(|p| p - shift + window);
        let far = Zone::far(queries.collect(), positions.keys().to_vec(), shift);
        let near = Rotary::of_head(config.base, config.rotary_dim, self.head_dim).unscaled();
        let zones = PreparedZones::new(&near, config.layout, vec![far], positions, context);
        Ok(Box::new(zones))
    }
}

impl EncodingSpec for ShiftedConfig {
    type Module = Shifted;
    const NAME: Option<&'static str> = Some("STRING");
    const ABOUT: About = About {
        summary: "rotary attention that reads far pairs by the distances that training saw most",
        formula: "RoPE by d for d < S, else by d - S + W",
        source: "An et al. 2024, STRING, arXiv 2410.18745",
        deviations: "W defaults to 128, the authors' value, or half of S if less. Decoding as in \
                     the authors' code; its prefill counts distance S twice, once in the \
                     window and once beyond it",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        let hint = "leave it out for a third of the training length";
        in_range_if_set("shift", self.shift, 1..=1_000_000_000, hint)?;
        let most = self.shift.unwrap_or(1_000_000_000);
        let hint = "at most shift: distances may not grow; the authors use 128";
        in_range_if_set("window", self.window, 0..=most, hint)?;
        check_rotary_dim(self.rotary_dim, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        let shift = *self.shift.get_or_insert((lengths.trained_len / 3).max(1));
        self.window.get_or_insert((shift / 2).min(128));
    }

    fn unresolved(&self) -> Option<String> {
        unset("shift", self.shift).or(unset("window", self.window))
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            ..two_zones()
        }
    }

    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        Some(Rotary::of_head(self.base, self.rotary_dim, shape.head_dim))
    }

    fn numbers(&self, _shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
        let title = "distances that pairs are rotated by";
        mapped_distances(title, lengths, |_, distance| self.distance(distance))
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> Shifted {
        Shifted {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
