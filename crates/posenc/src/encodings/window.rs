//! Formula: a query sees the last `size` keys, itself among them, and the first `sinks` of the
//! sequence; logits of others are -infinity. Source: sliding windows, Beltagy et al. 2020 (arXiv
//! 2004.05150); attention sinks, Xiao et al. 2023, StreamingLLM (arXiv 2309.17453). Deviations:
//! sinks keep their own positions; StreamingLLM renumbers what the cache holds. Parameters: none.
//! Limits: none. Meant for a `stack`, at training or at test time.

use crate::catalogue::{About, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::mask::Window as Mask;
use crate::{Bias, ConfigError, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// Configuration of [`Window`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WindowConfig {
    /// Keys a query sees, counted back from itself; the training length unless given.
    pub size: Option<usize>,
    /// Keys at the start of the sequence that every query sees.
    pub sinks: usize,
}

/// A sliding window over the keys, with attention sinks.
#[derive(Module, Debug)]
pub struct Window {
    size: usize,
    sinks: usize,
}

struct PreparedWindow {
    mask: Mask,
}

impl PositionalEncoding for Window {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let (size, sinks) = (self.size as f64, self.sinks as f64);
        let mask = Mask::new(positions, device, move |query, key| {
            (query - key).abs() < size || key < sinks
        });
        Box::new(PreparedWindow { mask })
    }
}

impl Prepared for PreparedWindow {
    fn plain(&self, _layer: usize) -> Option<Plain> {
        Some(Plain::default())
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(&self.mask))
    }
}

impl Spec for WindowConfig {
    type Module = Window;
    const ABOUT: About = About {
        summary: "a sliding window: each query sees the keys just before it, and the first few of \
                  the sequence (attention sinks)",
        formula: "logits - infinity where query - key >= size and key >= sinks",
        source: "Beltagy et al. 2020, arXiv 2004.05150; Xiao et al. 2023, arXiv 2309.17453",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range(
            "size",
            self.size.unwrap_or(1) as f64,
            1.0,
            1e9,
            "leave it out for the training length",
        )?;
        in_range("sinks", self.sinks as f64, 0.0, 1e9, "StreamingLLM uses 4")
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.size.get_or_insert(lengths.train_len);
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        Facts {
            hooks: Hooks {
                logits_bias: true,
                ..Hooks::default()
            },
            relative: self.sinks == 0,
            ..Facts::default()
        }
    }

    fn init(&self, _shape: &ModelShape, _init: &Init<'_>) -> Window {
        Window {
            size: self.size.unwrap_or(1),
            sinks: self.sinks,
        }
    }
}
