//! Formula: RoPE by the distance `m - n` below `window` w; from w on by `floor(m/G) - floor(n/G) +
//! w - floor(w/G)`, G = `group`. Source: Jin et al. 2024, Self-Extend (arXiv 2401.01325), section 3
//! and the authors' code. Deviations: none.
//! Parameters: none.
//! Limits: causal only; none of length by construction; two products of queries and keys instead of
//! one. Groups begin at fixed positions, so that logits depend on more than the distance.

use crate::catalogue::{About, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::rotation::RotaryLayout;
use crate::zones::{PreparedZones, Zones};
use crate::{ConfigError, Init, PositionalEncoding, Positions, Prepared, RopeConfig};
use burn::module::Module;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// Configuration of [`SelfExtend`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelfExtendConfig {
    /// theta_base.
    pub base: f64,
    /// Which dimensions form a pair.
    pub layout: RotaryLayout,
    /// Dimensions of each head that turn; the whole head unless given.
    pub rotary_dim: Option<usize>,
    /// w, the neighbours that keep their distances; half the training length unless given.
    pub window: Option<usize>,
    /// G, tokens per group beyond; as many as bring the test length back into the training length
    /// unless given.
    pub group: Option<usize>,
}

impl Default for SelfExtendConfig {
    fn default() -> Self {
        Self {
            base: 10_000.0,
            layout: RotaryLayout::Half,
            rotary_dim: None,
            window: None,
            group: None,
        }
    }
}

impl SelfExtendConfig {
    /// The distance that a query at m and a key at n are turned by.
    pub fn distance(&self, m: f64, n: f64) -> f64 {
        let (window, group) = (
            self.window.unwrap_or(1) as f64,
            self.group.unwrap_or(1) as f64,
        );
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
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let config = &self.config;
        let frequencies = RopeConfig {
            base: config.base,
            rotary_dim: config.rotary_dim,
            ..RopeConfig::default()
        };
        let (window, group) = (
            config.window.unwrap_or(1) as f64,
            config.group.unwrap_or(1) as f64,
        );
        let grouped = |p: f64| (p / group).floor();
        let zones = Zones {
            frequencies: frequencies.frequencies(self.head_dim, positions.length()),
            layout: config.layout,
            outer_queries: positions
                .queries()
                .iter()
                .map(|p| grouped(*p) + window - grouped(window))
                .collect(),
            outer_keys: positions.keys().iter().map(|p| grouped(*p)).collect(),
            from: window,
        };
        Box::new(PreparedZones::new(zones, positions, device))
    }
}

impl Spec for SelfExtendConfig {
    type Module = SelfExtend;
    const ABOUT: About = About {
        summary: "rotary attention with exact distances in a window and distances between groups \
                  of tokens beyond it",
        formula: "RoPE by m - n below w, else by floor(m/G) - floor(n/G) + w - floor(w/G)",
        source: "Jin et al. 2024, arXiv 2401.01325",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range(
            "base",
            self.base,
            1.0 + 1e-9,
            1e15,
            "RoPE's paper uses 10000",
        )?;
        if let Some(window) = self.window {
            in_range(
                "window",
                window as f64,
                1.0,
                1e9,
                "leave it out for half the training length",
            )?;
        }
        if let Some(group) = self.group {
            in_range(
                "group",
                group as f64,
                1.0,
                1e9,
                "leave it out for the smallest that fits the test length",
            )?;
        }
        crate::rotation::rotated(self.rotary_dim, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        let window = *self.window.get_or_insert((lengths.train_len / 2).max(1));
        // The smallest that keeps the largest distance, from the last token to the first, inside
        // what training saw.
        let (last, longest) = (
            lengths.test_len.saturating_sub(1),
            lengths.train_len.saturating_sub(1),
        );
        let fits = |group: &usize| last / group + window - window / group <= longest;
        self.group.get_or_insert_with(|| {
            (1..=lengths.test_len.max(1))
                .find(fits)
                .unwrap_or(lengths.test_len.max(1))
        });
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        let hooks = Hooks {
            transform_qk: true,
            content_bias: true,
            ..Hooks::default()
        };
        Facts {
            hooks,
            relative: self.group == Some(1),
            causal: true,
            turns: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, _init: &Init<'_>) -> SelfExtend {
        SelfExtend {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
