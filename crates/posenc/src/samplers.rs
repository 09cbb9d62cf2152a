//! Where positions come from: contiguous, shifted, drawn at random, squeezed, or on a grid, for any
//! encoding.
//!
//! A sampler draws one set of positions per batch, shared by its rows and by queries and keys, from
//! whole numbers it asks the caller for, so that this crate holds no generator.

use crate::catalogue::{Facts, Lengths, tagged};
use crate::error::{ConfigError, in_range};
use crate::frequencies::Factor;
use crate::positions::{Axis, Positions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

tagged! {
    /// A rule for positions; in TOML a table with `kind`.
    #[derive(Clone, Debug, PartialEq)]
    pub enum PositionsConfig {
        "contiguous" => Contiguous(ContiguousPositions),
        "random_offset" => RandomOffset(RandomOffsetPositions),
        "randomized" => Randomized(RandomizedPositions),
        "randomized_distances" => RandomizedDistances(RandomizedDistances),
        "interpolated" => Interpolated(InterpolatedPositions),
        "grid" => Grid(GridPositions),
    }
}

/// 0, 1, 2, ...
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContiguousPositions {}

/// u, u + 1, u + 2, ... with u uniform over what leaves room. SHAPE, Kiyono et al. 2021 (arXiv
/// 2109.05644).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomOffsetPositions {
    /// One more than the largest position; four times the training length, or the longest test
    /// length if that is more, unless given.
    pub max_position: Option<usize>,
}

/// A sorted sample without replacement of 0..`max_position`, at training and at test. Ruoss et al.
/// 2023 (arXiv 2305.16843).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomizedPositions {
    /// L_max; four times the training length, or the longest test length if that is more, unless
    /// given.
    pub max_position: Option<usize>,
}

/// Contiguous positions whose distances 1, 2, 3, ... are replaced by a sorted sample without
/// replacement of 1..`max_distance`, alike everywhere in the sequence: the randomized form of
/// relative encodings in Ruoss et al. 2023 (arXiv 2305.16843). Not the same as `randomized`, under
/// which equal distances of the sequence become different distances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomizedDistances {
    /// One more than the largest distance; four times the training length, or the longest test
    /// length if that is more, unless given.
    pub max_distance: Option<usize>,
}

/// p / `factor`. Chen et al. 2023 (arXiv 2306.15595).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterpolatedPositions {
    /// `"auto"`: test length over training length, 1 in training.
    pub factor: Factor,
}

/// Token p of the sequence at the coordinates of cell p of a grid, row by row: `[w]` gives (p / w,
/// p mod w), `[h, w]` a third axis before. The position itself stays p, for encodings that see no
/// axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridPositions {
    /// Sizes of all axes but the first, whose size has no end.
    pub sizes: Vec<usize>,
}

impl Default for PositionsConfig {
    fn default() -> Self {
        Self::Contiguous(ContiguousPositions {})
    }
}

impl PositionsConfig {
    /// Replaces the defaults that depend on lengths; `longest` is the longest sequence a run will
    /// see, in training or in a test.
    pub fn resolve(&mut self, lengths: &Lengths, longest: usize) {
        let room = (4 * lengths.train_len).max(longest);
        match self {
            Self::RandomOffset(c) => drop(c.max_position.get_or_insert(room)),
            Self::Randomized(c) => drop(c.max_position.get_or_insert(room)),
            Self::RandomizedDistances(c) => drop(c.max_distance.get_or_insert(room)),
            Self::Interpolated(c) => c.factor.resolve(lengths.train_len.max(1), lengths),
            Self::Contiguous(_) | Self::Grid(_) => {}
        }
    }

    /// Refuses values without a meaning, and encodings that could not see what is drawn.
    ///
    /// # Errors
    ///
    /// The key that cannot work, relative to the table of the positions.
    pub fn check(&self, encoding: &Facts) -> Result<(), ConfigError> {
        let room = |key: &str, value: Option<usize>| {
            in_range(
                key,
                value.unwrap_or(1) as f64,
                1.0,
                1e9,
                "leave it out for four times the training length",
            )
        };
        match self {
            Self::Contiguous(_) => Ok(()),
            Self::RandomOffset(c) => room("max_position", c.max_position),
            Self::Randomized(c) => room("max_position", c.max_position),
            Self::RandomizedDistances(c) if encoding.by_distance => {
                room("max_distance", c.max_distance)
            }
            Self::RandomizedDistances(_) => Err(ConfigError::new(
                "kind",
                self.kind(),
                "the encoding does not see positions through distances alone",
                "encodings whose facts say so: alibi, t5, kerple, sandwich, learned_bias, \
                 hard_alibi, shaw, transformer_xl, deberta",
                "use kind = \"randomized\" for this encoding",
            )),
            Self::Interpolated(c) => c.factor.check("factor"),
            Self::Grid(c) => {
                if c.sizes.is_empty() || c.sizes.len() > 2 {
                    let (shown, allowed) = (
                        format!("{:?}", c.sizes),
                        "one size for two axes, two sizes for three",
                    );
                    return Err(ConfigError::new(
                        "sizes",
                        shown,
                        "a grid has two or three axes",
                        allowed,
                        "write sizes = [8]",
                    ));
                }
                c.sizes.iter().enumerate().try_for_each(|(i, size)| {
                    in_range(
                        &format!("sizes.{i}"),
                        *size as f64,
                        1.0,
                        1e6,
                        "cells per row",
                    )
                })
            }
        }
    }

    /// The longest sequence positions can be drawn for.
    pub fn max_seq_len(&self) -> Option<usize> {
        match self {
            Self::RandomOffset(c) => c.max_position,
            Self::Randomized(c) => c.max_position,
            Self::RandomizedDistances(c) => c.max_distance,
            Self::Contiguous(_) | Self::Interpolated(_) | Self::Grid(_) => None,
        }
    }

    /// One more than the largest position that a sequence of this length may be given, as a number
    /// of table rows.
    pub fn rows(&self, seq_len: usize) -> usize {
        match self {
            Self::RandomOffset(c) => c.max_position.unwrap_or(seq_len),
            Self::Randomized(c) => c.max_position.unwrap_or(seq_len),
            Self::Interpolated(c) => {
                ((seq_len - 1) as f64 / c.factor.value() + 1.0).ceil() as usize
            }
            Self::Contiguous(_) | Self::RandomizedDistances(_) | Self::Grid(_) => seq_len,
        }
    }

    /// Positions of a sequence; `below(n)` gives a whole number under n, uniformly.
    ///
    /// # Panics
    ///
    /// If the sequence is longer than [`max_seq_len`](Self::max_seq_len).
    pub fn sample(&self, seq_len: usize, below: &mut dyn FnMut(u64) -> u64) -> Positions {
        let longest = self.max_seq_len().unwrap_or(seq_len);
        assert!(seq_len <= longest, "{seq_len} positions out of {longest}");
        match self {
            Self::Contiguous(_) => Positions::contiguous(seq_len),
            Self::RandomOffset(_) => {
                Positions::from_offset(below((longest - seq_len + 1) as u64) as usize, seq_len)
            }
            Self::Randomized(_) => Positions::same(
                subsample(seq_len, longest, below)
                    .iter()
                    .map(|p| *p as f64)
                    .collect(),
            ),
            Self::RandomizedDistances(_) => {
                let drawn = subsample(seq_len - 1, longest - 1, below);
                let distances = std::iter::once(0.0)
                    .chain(drawn.iter().map(|d| (*d + 1) as f64))
                    .collect();
                Positions::contiguous(seq_len).with_distances(distances)
            }
            Self::Interpolated(c) => {
                Positions::same((0..seq_len).map(|p| p as f64 / c.factor.value()).collect())
            }
            Self::Grid(c) => {
                let coordinate = |axis: usize| {
                    let stride: usize = c.sizes[axis..].iter().product();
                    let size = if axis == 0 {
                        usize::MAX
                    } else {
                        c.sizes[axis - 1]
                    };
                    let all: Vec<f64> = (0..seq_len).map(|p| (p / stride % size) as f64).collect();
                    Axis {
                        queries: all.clone(),
                        keys: all,
                    }
                };
                Positions::contiguous(seq_len)
                    .with_axes((0..=c.sizes.len()).map(coordinate).collect())
            }
        }
    }
}

/// `count` different numbers below `bound` in rising order, every set as likely as any other
/// (Floyd's algorithm).
fn subsample(count: usize, bound: usize, below: &mut dyn FnMut(u64) -> u64) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    for last in bound - count..bound {
        let candidate = below(last as u64 + 1) as usize;
        if !chosen.insert(candidate) {
            chosen.insert(last);
        }
    }
    chosen
}
