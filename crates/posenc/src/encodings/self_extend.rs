//! `self_extend`: rotary attention with exact distances in a window and distances between groups of
//! tokens beyond it.
//!
//! - Formula: RoPE by the distance `m - n` below `window` w; from w on by `floor(m/G) - floor(n/G)
//!   + w - floor(w/G)`, G = `group`.
//! - Source: Jin et al. 2024, Self-Extend (arXiv 2401.01325), section 3 and the authors' code.
//! - Parameters: none.
//! - Limits: causal only; none of length by construction; two products of queries and keys instead
//!   of one. Groups begin at fixed positions, so that logits depend on more than the distance.

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

/// `kind = "self_extend"`: configuration of [`SelfExtend`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SelfExtendConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
    /// Number w of neighbours that keep their distances, 1 to 1000000000; half the training length
    /// unless given.
    pub window: Option<usize>,
    /// Number G of tokens per group beyond, 1 to 1000000000; as many as bring the test length back
    /// into the training length unless given, and 1 in `model.pe`.
    pub group: Option<usize>,
}

impl SelfExtendConfig {
    /// The distance that a query at m and a key at n are rotated by.
    ///
    /// # Panics
    ///
    /// If `window` or `group` is not resolved.
    pub fn distance(&self, m: f64, n: f64) -> f64 {
        let (window, group) = (resolved(self.window) as f64, resolved(self.group) as f64);
        let grouped = |p: f64| (p / group).floor();
        if m - n < window {
            m - n
        } else {
            grouped(m) - grouped(n) + window - grouped(window)
        }
    }
}

/// Rotation by exact distances near and by distances of groups far away.
#[derive(Module, Debug)]
pub struct SelfExtend {
    head_dim: usize,
    #[module(skip)]
    config: SelfExtendConfig,
}

impl PositionalEncoding for SelfExtend {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let config = &self.config;
        let (window, group) = (
            resolved(config.window) as f64,
            resolved(config.group) as f64,
        );
        let grouped = |p: f64| (p / group).floor();
        // Far queries are shifted, so that far distances go on where the near ones end.
        let ahead = |p: &f64| grouped(*p) + window - grouped(window);
        let queries = positions.queries().iter().map(ahead).collect();
        let keys = positions.keys().iter().map(|p| grouped(*p)).collect();
        let far = Zone::far(queries, keys, window);
        let near = Rotary::of_head(config.base, config.rotary_dim, self.head_dim).unscaled();
        let zones = PreparedZones::new(&near, config.layout, vec![far], positions, context);
        Ok(Box::new(zones))
    }
}

impl EncodingSpec for SelfExtendConfig {
    type Module = SelfExtend;
    const NAME: Option<&'static str> = Some("SelfExtend");
    const ABOUT: About = About {
        summary: "rotary attention with exact distances in a window and distances between groups \
                  of tokens beyond it",
        formula: "RoPE by m - n below w, else by floor(m/G) - floor(n/G) + w - floor(w/G)",
        source: "Jin et al. 2024, arXiv 2401.01325",
        deviations: "none",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        let hint = "leave it out for half the training length";
        in_range_if_set("window", self.window, 1..=1_000_000_000, hint)?;
        let hint = "leave it out for the smallest that fits the test length";
        in_range_if_set("group", self.group, 1..=1_000_000_000, hint)?;
        check_rotary_dim(self.rotary_dim, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        let window = *self.window.get_or_insert((lengths.trained_len / 2).max(1));
        // The smallest that keeps the largest distance, from the last token to the first, inside
        // what training saw.
        let (last, longest) = (
            lengths.test_len.saturating_sub(1),
            lengths.trained_len.saturating_sub(1),
        );
        let fits = |group: &usize| last / group + window - window / group <= longest;
        self.group.get_or_insert_with(|| {
            (1..=lengths.test_len.max(1))
                .find(fits)
                .unwrap_or(lengths.test_len.max(1))
        });
    }

    fn unresolved(&self) -> Option<String> {
        unset("window", self.window).or(unset("group", self.group))
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: self.group == Some(1),
            ..two_zones()
        }
    }

    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        Some(Rotary::of_head(self.base, self.rotary_dim, shape.head_dim))
    }

    fn numbers(&self, _shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
        let title = "distances that pairs of the last query are rotated by";
        mapped_distances(title, lengths, |last, distance| {
            self.distance(last, last - distance)
        })
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> SelfExtend {
        SelfExtend {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
