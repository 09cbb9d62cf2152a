//! `rerope`: rotary attention whose distance stops growing, or grows slower, beyond a window.
//!
//! - Formula: RoPE by the distance `d = m - n` up to `window` w; beyond it by w (ReRoPE), or by `w
//!   + (d - w)/leak` (leaky ReRoPE).
//! - Source: bojone/rerope; Su 2023 (kexue.fm 9708, 9728).
//! - Parameters: none.
//! - Limits: causal only; none of length by construction; two products of queries and keys instead
//!   of one.

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

/// `kind = "rerope"`: configuration of [`Rerope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ReropeConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
    /// Distance w in tokens up to which distances are exact, 1 to 1000000000; half the training
    /// length unless given.
    pub window: Option<usize>,
    /// Number of tokens beyond the window that count as one, 1 to 1e9; infinitely many unless
    /// given.
    pub leak: Option<f64>,
}

impl ReropeConfig {
    /// The distance by which a query and a key are rotated that are `distance >= 0` apart.
    ///
    /// # Panics
    ///
    /// If `window` is not resolved.
    pub fn distance(&self, distance: f64) -> f64 {
        let window = resolved(self.window) as f64;
        if distance <= window {
            distance
        } else {
            window + self.leak.map_or(0.0, |leak| (distance - window) / leak)
        }
    }
}

/// Rotation by a distance that is cut off, or slowed down, beyond a window.
#[derive(Module, Debug)]
pub struct Rerope {
    head_dim: usize,
    #[module(skip)]
    config: ReropeConfig,
}

impl PositionalEncoding for Rerope {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let config = &self.config;
        let window = resolved(config.window) as f64;
        // A far distance is the difference of two slowed positions plus the head start of the
        // window.
        let slow = |p: f64| config.leak.map_or(0.0, |leak| p / leak);
        let ahead = |p: &f64| slow(*p) + window - slow(window);
        let queries = positions.queries().iter().map(ahead).collect();
        let keys = positions.keys().iter().map(|p| slow(*p)).collect();
        let far = Zone::far(queries, keys, window);
        let near = Rotary::of_head(config.base, config.rotary_dim, self.head_dim).unscaled();
        let zones = PreparedZones::new(&near, config.layout, vec![far], positions, context);
        Ok(Box::new(zones))
    }
}

impl EncodingSpec for ReropeConfig {
    type Module = Rerope;
    const NAME: Option<&'static str> = Some("ReRoPE");
    const ABOUT: About = About {
        summary: "rotary attention whose distance stops growing, or grows slower, beyond a window",
        formula: "RoPE by d for d <= w, else by w; leaky: by w + (d - w)/leak",
        source: "Su 2023, kexue.fm 9708; bojone/rerope",
        deviations: "keys after the query, which a causal mask hides, follow plain RoPE",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        let hint = "leave it out for half the training length";
        in_range_if_set("window", self.window, 1..=1_000_000_000, hint)?;
        let hint = "leave it out for ReRoPE, which never grows beyond the window";
        in_range_if_set("leak", self.leak, 1.0..=1e9, hint)?;
        check_rotary_dim(self.rotary_dim, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.window.get_or_insert((lengths.trained_len / 2).max(1));
    }

    fn unresolved(&self) -> Option<String> {
        unset("window", self.window)
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

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> Rerope {
        Rerope {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
