//! Samplers: one rule per kind for the positions of a sequence, for any encoding.
//!
//! A sampler draws one set of positions per batch, shared by its rows and by queries and keys. It
//! takes random numbers from the caller, so this crate holds no generator.

use super::{Axis, Positions};
use crate::ConfigError;
use crate::facts::{Facts, Lengths};
use crate::scaling::Factor;
use crate::values::{in_range_if_set, resolved, unset};
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

schema::tagged! {
    /// A rule for positions; in TOML a table with `kind`.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub enum PositionsConfig {
        "contiguous" => Contiguous(ContiguousPositions),
        "random_offset" => RandomOffset(RandomOffsetPositions),
        "randomized" => Randomized(RandomizedPositions),
        "randomized_distances" => RandomizedDistances(RandomizedDistances),
        "interpolated" => Interpolated(InterpolatedPositions),
        "grid" => Grid(GridPositions),
        "pose" => Pose(PosePositions),
    }
}

/// 0, 1, 2, ...
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ContiguousPositions {}

/// u, u + 1, u + 2, ... with u uniform over what leaves room. SHAPE, Kiyono et al. 2021 (arXiv
/// 2109.05644).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RandomOffsetPositions {
    /// One more than the largest position, 1 to 1000000000; four times the training length, or the
    /// longest test length if that is more, unless given.
    pub max_position: Option<usize>,
}

/// A sorted sample without replacement of 0..`max_position`, at training and at test. Ruoss et al.
/// 2023 (arXiv 2305.16843).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RandomizedPositions {
    /// One more than the largest position (L_max), 1 to 1000000000; four times the training length,
    /// or the longest test length if that is more, unless given.
    pub max_position: Option<usize>,
}

/// Contiguous positions whose distances 1, 2, 3, ... are replaced by a sorted sample without
/// replacement of 1..`max_distance`, alike everywhere in the sequence: the randomized form of
/// relative encodings in Ruoss et al. 2023 (arXiv 2305.16843). Not the same as `randomized`, under
/// which equal distances of the sequence become different distances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RandomizedDistances {
    /// One more than the largest distance, 1 to 1000000000; four times the training length, or the
    /// longest test length if that is more, unless given.
    pub max_distance: Option<usize>,
}

/// p / `factor`. Chen et al. 2023 (arXiv 2306.15595).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct InterpolatedPositions {
    /// Divides the positions, 1 to 1000000; `"auto"`: in a variant test length over
    /// training length, in `model.positions` 1.
    pub factor: Factor,
}

/// Token p of the sequence at the coordinates of cell p of a grid, row by row: `[w]` gives (p / w,
/// p mod w), `[h, w]` a third axis before. The position itself stays p, for encodings that see no
/// axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GridPositions {
    /// Sizes of all axes but the first, whose size has no end: one or two numbers, 1 to 1000000.
    pub sizes: Vec<usize>,
}

/// In training, contiguous positions with one jump: the first tokens, from one to half of them,
/// start at 0, and the others continue after a gap that is uniform over what leaves room. In tests
/// contiguous. PoSE, Zhu et al. 2023 (arXiv 2309.10400), with two chunks as released; its second
/// chunk is text from later in the document, here the text goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PosePositions {
    /// One more than the largest position in training, 1 to 1000000000; four times the training
    /// length, or the longest test length if that is more, unless given.
    pub max_position: Option<usize>,
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
            Self::Interpolated(c) => c.factor.resolve(lengths.trained_len, lengths),
            Self::Pose(c) => drop(c.max_position.get_or_insert(room)),
            Self::Contiguous(_) | Self::Grid(_) => {}
        }
    }

    /// The first key whose value still depends on lengths.
    pub fn unresolved(&self) -> Option<String> {
        match self {
            Self::RandomOffset(c) => unset("max_position", c.max_position),
            Self::Randomized(c) => unset("max_position", c.max_position),
            Self::RandomizedDistances(c) => unset("max_distance", c.max_distance),
            Self::Interpolated(c) => c.factor.unresolved().map(str::to_owned),
            Self::Pose(c) => unset("max_position", c.max_position),
            Self::Contiguous(_) | Self::Grid(_) => None,
        }
    }

    /// Refuses values that have no meaning, and encodings that do not read what is drawn.
    ///
    /// # Errors
    ///
    /// The key that cannot work, relative to the table of the positions.
    pub fn check(&self, encoding: &Facts) -> Result<(), ConfigError> {
        let room = |key: &str, value: Option<usize>| {
            let hint = "leave it out for four times the training length";
            in_range_if_set(key, value, 1..=1_000_000_000, hint)
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
                "does not apply: the encoding does not read positions through distances only",
                "an encoding that does, such as `alibi`, `t5`, `kerple` or `shaw`",
                "use kind = \"randomized\" for this encoding",
            )),
            Self::Interpolated(c) => c.factor.check("factor"),
            Self::Pose(c) => room("max_position", c.max_position),
            Self::Grid(c) => {
                if c.sizes.is_empty() || c.sizes.len() > 2 {
                    return Err(ConfigError::new(
                        "sizes",
                        format!("{:?}", c.sizes),
                        "must make a grid of two or three axes",
                        "one size for two axes, two sizes for three",
                        "write sizes = [8]",
                    ));
                }
                let mut sizes = c.sizes.iter().enumerate();
                sizes.try_for_each(|(i, size)| {
                    in_range(&format!("sizes.{i}"), *size, 1..=1_000_000, "cells per row")
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
            Self::Contiguous(_) | Self::Interpolated(_) | Self::Grid(_) | Self::Pose(_) => None,
        }
    }

    /// Whether an encoding with these facts may see other positions at every draw.
    pub fn varies(&self, encoding: &Facts) -> bool {
        match self {
            Self::Contiguous(_) | Self::Interpolated(_) | Self::Grid(_) => false,
            // Distances are the same from any start, the length is not.
            Self::RandomOffset(_) => {
                encoding.reads_length || !(encoding.relative || encoding.ignores_positions)
            }
            _ => !encoding.ignores_positions,
        }
    }

    /// The longest sequence that can be trained on.
    pub fn max_train_len(&self) -> Option<usize> {
        match self {
            Self::Pose(c) => c.max_position,
            _ => self.max_seq_len(),
        }
    }

    /// One more than the largest position that a sequence of this length may get, as a number of
    /// table rows.
    ///
    /// # Panics
    ///
    /// If a key is [unresolved](Self::unresolved).
    pub fn rows(&self, seq_len: usize) -> usize {
        match self {
            Self::RandomOffset(c) => resolved(c.max_position),
            Self::Randomized(c) => resolved(c.max_position),
            Self::Pose(c) => resolved(c.max_position).max(seq_len),
            Self::Interpolated(c) => {
                ((seq_len - 1) as f64 / c.factor.value() + 1.0).ceil() as usize
            }
            Self::Contiguous(_) | Self::RandomizedDistances(_) | Self::Grid(_) => seq_len,
        }
    }

    /// As [`rows`](Self::rows), of a test sequence.
    ///
    /// # Panics
    ///
    /// As [`rows`](Self::rows).
    pub fn test_rows(&self, seq_len: usize) -> usize {
        match self {
            Self::Pose(_) => seq_len,
            _ => self.rows(seq_len),
        }
    }

    /// Positions of a test sequence: [`sample`](Self::sample), unless tests differ from training.
    ///
    /// # Panics
    ///
    /// As [`sample`](Self::sample).
    pub fn sample_test(&self, seq_len: usize, below: &mut dyn FnMut(u64) -> u64) -> Positions {
        match self {
            Self::Pose(_) => Positions::contiguous(seq_len),
            _ => self.sample(seq_len, below),
        }
    }

    /// Positions of a training sequence; `below(n)` returns a uniform whole number under n.
    ///
    /// # Panics
    ///
    /// If the sequence is longer than [`max_train_len`](Self::max_train_len), or a key is
    /// [unresolved](Self::unresolved).
    pub fn sample(&self, seq_len: usize, below: &mut dyn FnMut(u64) -> u64) -> Positions {
        assert_eq!(
            self.unresolved(),
            None,
            "positions are resolved before they are drawn"
        );
        let longest = self.max_train_len().unwrap_or(seq_len);
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
                // Distance 0 stays 0; the others are a sample of 1..max_distance.
                let drawn = subsample(seq_len - 1, longest - 1, below);
                let distances = std::iter::once(0.0)
                    .chain(drawn.iter().map(|d| (*d + 1) as f64))
                    .collect();
                Positions::contiguous(seq_len).with_distances(distances)
            }
            Self::Interpolated(c) => {
                Positions::same((0..seq_len).map(|p| p as f64 / c.factor.value()).collect())
            }
            Self::Pose(_) => {
                let first = 1 + below(seq_len.div_ceil(2) as u64) as usize;
                let gap = below((longest - seq_len + 1) as u64) as usize;
                let place = |i: usize| (if i < first { i } else { i + gap }) as f64;
                Positions::same((0..seq_len).map(place).collect())
            }
            Self::Grid(c) => {
                let coordinate = |axis: usize| {
                    // `sizes[i]` belongs to axis i + 1, because axis 0 has no end.
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

/// A uniform sample without replacement of `count` numbers below `bound`, ascending (Floyd's
/// algorithm).
fn subsample(count: usize, bound: usize, below: &mut dyn FnMut(u64) -> u64) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    for last in bound - count..bound {
        let candidate = below(last as u64 + 1) as usize;
        // Earlier draws are all below `last`, so it is free.
        if !chosen.insert(candidate) {
            chosen.insert(last);
        }
    }
    chosen
}
