//! Formula: RoPE by the distance `d = m - n` up to `window` w; beyond it by w (ReRoPE), or by `w +
//! (d - w)/leak` (leaky ReRoPE). Source: bojone/rerope; Su 2023 (kexue.fm 9708, 9728).
//! Deviations: keys after the query, which a causal mask hides, follow plain RoPE.
//! Parameters: none.
//! Limits: causal only; none of length by construction; two products of queries and keys instead of
//! one.

use crate::catalogue::{About, Facts, Hooks, ModelShape, Spec};
use crate::error::in_range;
use crate::rotation::RotaryLayout;
use crate::zones::{PreparedZones, Zones};
use crate::{ConfigError, Init, PositionalEncoding, Positions, Prepared, RopeConfig};
use burn::module::Module;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// Configuration of [`Rerope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReropeConfig {
    /// theta_base.
    pub base: f64,
    /// Which dimensions form a pair.
    pub layout: RotaryLayout,
    /// Dimensions of each head that turn; the whole head unless given.
    pub rotary_dim: Option<usize>,
    /// w; half the training length unless given.
    pub window: Option<usize>,
    /// How many tokens beyond the window count as one; endlessly many unless given.
    pub leak: Option<f64>,
}

impl Default for ReropeConfig {
    fn default() -> Self {
        Self {
            base: 10_000.0,
            layout: RotaryLayout::Half,
            rotary_dim: None,
            window: None,
            leak: None,
        }
    }
}

impl ReropeConfig {
    /// The distance that a pair at `distance >= 0` is turned by.
    pub fn distance(&self, distance: f64) -> f64 {
        let window = self.window.unwrap_or(1) as f64;
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
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let config = &self.config;
        let frequencies = RopeConfig {
            base: config.base,
            rotary_dim: config.rotary_dim,
            ..RopeConfig::default()
        };
        let window = config.window.unwrap_or(1) as f64;
        // Distances from here: the difference of two positions slowed down, and what the window is
        // ahead of it.
        let slow = |p: f64| config.leak.map_or(0.0, |leak| p / leak);
        let zones = Zones {
            frequencies: frequencies.frequencies(self.head_dim, positions.length()),
            layout: config.layout,
            outer_queries: positions
                .queries()
                .iter()
                .map(|p| slow(*p) + window - slow(window))
                .collect(),
            outer_keys: positions.keys().iter().map(|p| slow(*p)).collect(),
            from: window,
        };
        Box::new(PreparedZones::new(zones, positions, device))
    }
}

impl Spec for ReropeConfig {
    type Module = Rerope;
    const ABOUT: About = About {
        summary: "rotary attention whose distance stops growing, or grows slower, beyond a window",
        formula: "RoPE by d for d <= w, else by w; leaky: by w + (d - w)/leak",
        source: "Su 2023, kexue.fm 9708; bojone/rerope",
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
        if let Some(leak) = self.leak {
            in_range(
                "leak",
                leak,
                1.0,
                1e9,
                "leave it out for ReRoPE, which never grows beyond the window",
            )?;
        }
        crate::rotation::rotated(self.rotary_dim, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &crate::Lengths) {
        self.window.get_or_insert((lengths.train_len / 2).max(1));
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        let hooks = Hooks {
            transform_qk: true,
            content_bias: true,
            ..Hooks::default()
        };
        Facts {
            hooks,
            relative: true,
            causal: true,
            turns: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, _init: &Init<'_>) -> Rerope {
        Rerope {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
