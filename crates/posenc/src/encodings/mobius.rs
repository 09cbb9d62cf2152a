//! `mobius`: rotary attention in which some heads turn by odd multiples of a half turn over the
//! training length.
//!
//! - Formula: in the first `fraction` of the heads pair i turns by `p pi (2i + 1) / N`, N the
//!   training length, so that the whole head is reversed after N tokens; the others are RoPE.
//! - Source: Anti-Periodic Positional Encoding, 2026 (arXiv 2607.21405), by public summaries that
//!   agree on the formula and on a quarter of the heads; neither the paper's text nor authors' code
//!   was found.
//! - Parameters: none.
//! - Limits: none by construction; a reversed head repeats after 2 N tokens.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::rotary::{BASES, RotaryLayout, inv_freq};
use crate::rotary_tables::{RotaryTables, angles, check_rotary_dim};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::values::OriginalLength as _;
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::f64::consts::PI;
use std::ops::Bound;

/// `kind = "mobius"`: configuration of [`Mobius`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MobiusConfig {
    /// Base of the frequencies of the other heads, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Share of the heads that are reversed after N tokens, above 0 and at most 1; at least one
    /// head is.
    #[default = 0.25]
    pub fraction: f64,
    /// N in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

impl MobiusConfig {
    /// How many heads are reversed after N tokens.
    fn reversed(&self, n_heads: usize) -> usize {
        ((self.fraction * n_heads as f64).round() as usize).clamp(1, n_heads)
    }

    /// Radians per token of each pair of a head that is reversed after N tokens.
    fn odd(&self, head_dim: usize) -> Vec<f64> {
        let length = self.original_max_position_embeddings.value();
        let theta = |i: usize| PI * (2.0 * i as f64 + 1.0) / length;
        (0..head_dim / 2).map(theta).collect()
    }
}

/// Heads that are reversed after the training length beside heads under RoPE.
#[derive(Module, Debug)]
pub struct Mobius {
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    config: MobiusConfig,
}

struct PreparedMobius {
    layout: RotaryLayout,
    queries: RotaryTables,
    keys: RotaryTables,
}

impl PositionalEncoding for Mobius {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let reversed = self.config.reversed(self.n_heads);
        let odd = self.config.odd(self.head_dim);
        let plain = inv_freq(self.head_dim, self.config.base);
        let tables = |positions: &[f64]| {
            let of_head = |head: usize| if head < reversed { &odd } else { &plain };
            let angles = (0..self.n_heads).flat_map(|head| angles(positions, of_head(head)));
            let shape = [1, self.n_heads, positions.len(), self.head_dim / 2];
            RotaryTables::of_angles(angles, 1.0, shape, context)
        };
        Ok(Box::new(PreparedMobius {
            layout: self.config.layout,
            queries: tables(positions.queries()),
            keys: tables(positions.keys()),
        }))
    }
}

impl Prepared for PreparedMobius {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        (
            self.queries.apply(q, self.layout),
            self.keys.apply(k, self.layout),
        )
    }
}

impl EncodingSpec for MobiusConfig {
    type Module = Mobius;
    const NAME: Option<&'static str> = Some("Möbius");
    const ABOUT: About = About {
        summary: "rotary attention in which some heads turn by odd multiples of a half turn over \
                  the training length",
        formula: "pair i of the first heads rotates by p pi (2i + 1) / N, of the others by RoPE",
        source: "Anti-Periodic Positional Encoding, 2026, arXiv 2607.21405",
        deviations: "which quarter of the heads is not said; here the first",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        let hint = "the paper uses 0.25; kind = \"rope\" has none";
        let some = (Bound::Excluded(0.0), Bound::Included(1.0));
        in_range("fraction", self.fraction, some, hint)?;
        self.original_max_position_embeddings.check()?;
        check_rotary_dim(None, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.original_max_position_embeddings.resolve(lengths);
    }

    fn unresolved(&self) -> Option<String> {
        let key = self.original_max_position_embeddings.unresolved();
        key.map(str::to_owned)
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            linear: true,
            rotates_qk: true,
            transform_workspace: 5.0,
            transform_kept: 4.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let (odd, plain) = (
            self.odd(shape.head_dim),
            inv_freq(shape.head_dim, self.base),
        );
        let of = |title, theta: &[f64]| NumberTable::of_frequencies(title, "pair", theta);
        let mut tables = vec![of("frequencies of the heads that are reversed", &odd)];
        if self.reversed(shape.n_heads) < shape.n_heads {
            tables.push(of("frequencies of the other heads", &plain));
        }
        tables
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> Mobius {
        Mobius {
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
