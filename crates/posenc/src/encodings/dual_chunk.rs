//! `dual_chunk`: rotary attention whose positions start anew in every chunk.
//!
//! - Formula: with chunks of `c = chunk_size - local_window` tokens a key stands at `n mod c`. A
//!   query reads its own chunk from `m mod c`, the chunk before from `min(m mod c + c,
//!   chunk_size)`, and all older ones from `min(2 c - 1, chunk_size)`.
//! - Source: Dual Chunk Attention, An et al. 2024 (arXiv 2402.17463), and the authors'
//!   `chunkllama_attn_replace.py`; chunk_size is 3/4 and local_window 1/8 of the training length.
//! - Parameters: none.
//! - Limits: causal only; none of length by construction; three products of queries and keys
//!   instead of one. Chunks begin at fixed positions, so that logits depend on more than the
//!   distance.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::rotary::{BASES, Rotary, RotaryLayout};
use crate::rotary_tables::check_rotary_dim;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::values::{in_range_if_set, resolved, unset};
use crate::zones::{PreparedZones, Zone, mapped_distances};
use burn::module::Module;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "dual_chunk"`: configuration of [`DualChunk`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DualChunkConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
    /// The largest mapped position in tokens, 1 to 1000000000; three quarters of the training
    /// length unless given.
    pub chunk_size: Option<usize>,
    /// Number of tokens before a chunk that its first query sees at their true distance, 0 to
    /// `chunk_size - 1`; an eighth of the training length unless given.
    pub local_window: Option<usize>,
}

impl DualChunkConfig {
    /// The largest mapped position, and c.
    fn sizes(&self) -> [f64; 2] {
        let (largest, local) = (resolved(self.chunk_size), resolved(self.local_window));
        [largest as f64, (largest - local) as f64]
    }

    /// The distance that a query at m and a key at n <= m are rotated by.
    ///
    /// # Panics
    ///
    /// If `chunk_size` or `local_window` is not resolved.
    pub fn distance(&self, m: f64, n: f64) -> f64 {
        let [largest, c] = self.sizes();
        let (inside, key) = (m.rem_euclid(c), n.rem_euclid(c));
        match (m / c).floor() - (n / c).floor() {
            0.0 => inside - key,
            1.0 => (inside + c).min(largest) - key,
            _ => (2.0 * c - 1.0).min(largest) - key,
        }
    }
}

/// Rotation by positions inside chunks.
#[derive(Module, Debug)]
pub struct DualChunk {
    head_dim: usize,
    #[module(skip)]
    config: DualChunkConfig,
}

impl PositionalEncoding for DualChunk {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let config = &self.config;
        let [largest, c] = config.sizes();
        let (queries, keys) = (positions.queries(), positions.keys());
        let keys: Vec<f64> = keys.iter().map(|n| n.rem_euclid(c)).collect();
        let before = queries.iter().map(|m| (m.rem_euclid(c) + c).min(largest));
        let oldest = (2.0 * c - 1.0).min(largest);
        let between = move |m: f64, n: f64| (m / c).floor() - (n / c).floor();
        let zones = vec![
            Zone {
                queries: before.collect(),
                keys: keys.clone(),
                holds: Box::new(move |m, n| between(m, n) == 1.0),
            },
            Zone {
                queries: vec![oldest; queries.len()],
                keys,
                holds: Box::new(move |m, n| between(m, n) > 1.0),
            },
        ];
        // Inside a chunk the difference of two positions is the distance.
        let near = Rotary::of_head(config.base, config.rotary_dim, self.head_dim).unscaled();
        let zones = PreparedZones::new(&near, config.layout, zones, positions, context);
        Ok(Box::new(zones))
    }
}

impl EncodingSpec for DualChunkConfig {
    type Module = DualChunk;
    const NAME: Option<&'static str> = Some("Dual Chunk");
    const ABOUT: About = About {
        summary: "rotary attention whose positions start anew in every chunk",
        formula: "RoPE by m mod c - n mod c; from the chunk before min(m mod c + c, s) - n mod c, \
                  from older ones min(2c - 1, s) - n mod c",
        source: "An et al. 2024, arXiv 2402.17463",
        deviations: "the last index is chunk_size, as in the authors' code. No factor on cos and \
                     sin; that code has YaRN's with half its strength, and says that the paper's \
                     results are without",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        let hint = "leave it out for three quarters of the training length";
        in_range_if_set("chunk_size", self.chunk_size, 1..=1_000_000_000, hint)?;
        let most = self.chunk_size.unwrap_or(1_000_000_000) - 1;
        let hint = "below chunk_size; leave it out for an eighth of the training length";
        in_range_if_set("local_window", self.local_window, 0..=most, hint)?;
        check_rotary_dim(self.rotary_dim, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        let length = lengths.trained_len;
        let size = *self.chunk_size.get_or_insert((3 * length / 4).max(1));
        self.local_window.get_or_insert((length / 8).min(size - 1));
    }

    fn unresolved(&self) -> Option<String> {
        let local = unset("local_window", self.local_window);
        unset("chunk_size", self.chunk_size).or(local)
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            causal_only: true,
            rotates_qk: true,
            bias_workspace: 6.0,
            bias_kept: 4.5,
            bias_work: 5.0,
            ..Facts::new(Hooks::TRANSFORM_QK | Hooks::CONTENT_BIAS)
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

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> DualChunk {
        DualChunk {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
