//! `window`: a sliding window: each query sees the keys just before it, and the first few of the
//! sequence (attention sinks).
//!
//! - Formula: a query sees the last `size` keys, itself among them, and those at the first `sinks`
//!   positions; logits of others are -infinity.
//! - Source: sliding windows, Beltagy et al. 2020 (arXiv 2004.05150); attention sinks, Xiao et al.
//!   2023, StreamingLLM (arXiv 2309.17453).
//! - Parameters: none.
//! - Limits: none. Meant for a `stack`, at training or at test time. A sequence whose positions
//!   start at `sinks` or later (`random_offset`, `randomized`) has no sinks.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{BiasAlone, Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::mask::Window as Mask;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::values::{in_range_if_set, resolved, unset};
use burn::module::Module;
use schema::in_range;
use serde::{Deserialize, Serialize};

/// `kind = "window"`: configuration of [`Window`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct WindowConfig {
    /// Number of keys that a query sees, counted back from itself, and as many after it with a
    /// bidirectional mask, 1 to 1000000000; the training length unless given.
    pub size: Option<usize>,
    /// Keys at positions below this are seen by every query, 0 to 1000000000.
    pub sinks: usize,
}

/// A sliding window over the keys, with attention sinks.
#[derive(Module, Debug)]
pub struct Window {
    size: usize,
    sinks: usize,
}

impl PositionalEncoding for Window {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let (size, sinks) = (self.size as f64, self.sinks as f64);
        let mask = Mask::new(positions, &context.device, move |query, key| {
            (query - key).abs() < size || key < sinks
        });
        Ok(Box::new(BiasAlone(mask)))
    }
}

impl EncodingSpec for WindowConfig {
    type Module = Window;
    const NAME: Option<&'static str> = Some("window of {size}");
    const ABOUT: About = About {
        summary: "a sliding window: each query sees the keys just before it, and the first few of \
                  the sequence (attention sinks)",
        formula: "logits - infinity where |query - key| >= size and key >= sinks",
        source: "Beltagy et al. 2020, arXiv 2004.05150; Xiao et al. 2023, arXiv 2309.17453",
        deviations: "sinks keep their own positions; StreamingLLM renumbers what the cache holds",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "leave it out for the training length";
        in_range_if_set("size", self.size, 1..=1_000_000_000, hint)?;
        in_range(
            "sinks",
            self.sinks,
            0..=1_000_000_000,
            "StreamingLLM uses 4",
        )
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.size.get_or_insert(lengths.trained_len);
    }

    fn unresolved(&self) -> Option<String> {
        unset("size", self.size)
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: self.sinks == 0,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, _parameters: &mut Parameters) -> Window {
        Window {
            size: resolved(self.size),
            sinks: self.sinks,
        }
    }
}
