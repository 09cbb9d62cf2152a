//! Formula: RoPE over several coordinates. `split`: the head is cut into one block per axis, each
//! an ordinary RoPE of that coordinate. `sectioned`: one set of frequencies over the whole head,
//! whose pairs belong to the axes by consecutive sections; `interleaved`: by turns. `mixed`: pair i
//! of head h turns by `p_0 f_hi0 + p_1 f_hi1` with trained frequencies. Source: RoPE-ViT, Heo et
//! al. 2024 (arXiv 2403.13298), axial and mixed; sections as in Qwen2-VL (arXiv 2409.12191), by
//! turns as in Qwen3-VL.
//! Deviations: `mixed` starts from directions evenly spread over the heads, RoPE-ViT draws them; it
//! shares frequencies between layers. `interleaved` takes turns to the last pair; Qwen3-VL leaves
//! the last few pairs to the first axis. Parameters: none; `mixed`: `frequency_offset`, `[axes, H,
//! head_dim/2]`, added to the initial frequencies and 0 at start. Limits: none by construction.
//! Positions without axes stand at the same coordinate on every axis, as text does in Qwen2-VL.

use super::upload;
use crate::catalogue::{About, Facts, Hooks, ModelShape, Spec};
use crate::error::in_range;
use crate::frequencies::inv_freq;
use crate::rotation::{RotaryLayout, Turn, moved, to_host};
use crate::{ConfigError, Distribution, Init, PositionalEncoding, Positions, Prepared};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How the pairs of a head are shared out among the axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AxialMode {
    /// One block of the head per axis, each with all frequencies of a head of that width:
    /// RoPE-ViT's axial form.
    #[default]
    Split,
    /// Consecutive sections of the pairs of the whole head: Qwen2-VL.
    Sectioned,
    /// Pair i belongs to axis `i mod axes`: Qwen3-VL.
    Interleaved,
    /// Every pair sees both axes, with trained frequencies: RoPE-ViT's mixed form.
    Mixed,
}

/// Configuration of [`AxialRope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AxialRopeConfig {
    /// Number of coordinates, 2 or 3.
    pub axes: usize,
    /// theta_base.
    pub base: f64,
    /// Which dimensions form a pair; in `split` within a block, else in the whole head.
    pub layout: RotaryLayout,
    /// How the pairs are shared out.
    pub mode: AxialMode,
    /// In `split`, dimensions per axis; in `sectioned`, pairs per axis; as even as can be unless
    /// given.
    pub sections: Option<Vec<usize>>,
}

impl Default for AxialRopeConfig {
    fn default() -> Self {
        Self {
            axes: 2,
            base: 10_000.0,
            layout: RotaryLayout::Half,
            mode: AxialMode::Split,
            sections: None,
        }
    }
}

impl AxialRopeConfig {
    /// What the sections have to add up to, in units of what, and the sections.
    fn sections(&self, head_dim: usize) -> Vec<usize> {
        self.sections.clone().unwrap_or_else(|| {
            let pairs = head_dim / 2;
            let share = |axis: usize| pairs / self.axes + usize::from(axis < pairs % self.axes);
            let unit = if self.mode == AxialMode::Split { 2 } else { 1 };
            (0..self.axes).map(|axis| unit * share(axis)).collect()
        })
    }
}

/// Rotation by several coordinates at once.
#[derive(Module, Debug)]
pub struct AxialRope {
    frequency_offset: Option<Param<Tensor<3>>>,
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    config: AxialRopeConfig,
}

struct PreparedAxialRope {
    layout: RotaryLayout,
    /// Width of each block of the head, and how it turns; one for the whole head unless `split`.
    queries: Vec<(usize, Turn)>,
    keys: Vec<(usize, Turn)>,
}

impl AxialRope {
    /// The tables of one side; `coordinates[axis]` has an entry per position.
    fn turns(&self, coordinates: &[&[f64]], device: &Device) -> Vec<(usize, Turn)> {
        let (dim, base, length) = (self.head_dim, self.config.base, coordinates[0].len());
        let sections = self.config.sections(dim);
        let of_axes = |axis_of: &dyn Fn(usize) -> usize| {
            let theta = inv_freq(dim, base);
            let angles = (0..length).flat_map(|p| {
                theta
                    .iter()
                    .enumerate()
                    .map(move |(i, theta)| coordinates[axis_of(i)][p] * theta)
            });
            vec![(
                dim,
                Turn::of_angles(angles, 1.0, [1, 1, length, dim / 2], device),
            )]
        };
        match self.config.mode {
            AxialMode::Split => {
                let block = |(axis, width): (usize, &usize)| {
                    let theta = inv_freq(*width, base);
                    let angles = coordinates[axis]
                        .iter()
                        .flat_map(|p| theta.iter().map(move |theta| p * theta));
                    (
                        *width,
                        Turn::of_angles(angles, 1.0, [1, 1, length, width / 2], device),
                    )
                };
                sections.iter().enumerate().map(block).collect()
            }
            AxialMode::Sectioned => {
                let owners: Vec<usize> = sections
                    .iter()
                    .enumerate()
                    .flat_map(|(axis, pairs)| vec![axis; *pairs])
                    .collect();
                of_axes(&|i| owners[i])
            }
            AxialMode::Interleaved => of_axes(&|i| i % self.config.axes),
            AxialMode::Mixed => vec![(dim, self.mixed(coordinates, device))],
        }
    }

    fn mixed(&self, coordinates: &[&[f64]], device: &Device) -> Turn {
        let offset = self
            .frequency_offset
            .as_ref()
            .expect("mixed has frequencies")
            .val();
        let (heads, pairs, length) = (self.n_heads, self.head_dim / 2, coordinates[0].len());
        let theta = inv_freq(self.head_dim, self.config.base);
        let frequency: Vec<f64> = to_host(offset.clone())
            .iter()
            .enumerate()
            .map(|(at, offset)| {
                let (axis, head, pair) = (at / (heads * pairs), at / pairs % heads, at % pairs);
                let (sin, cos) = libm::sincos(PI * head as f64 / heads as f64);
                theta[pair] * if axis == 0 { cos } else { sin } + offset
            })
            .collect();
        let of =
            |axis: usize, head: usize, pair: usize| frequency[(axis * heads + head) * pairs + pair];
        let angles = (0..heads).flat_map(|head| {
            (0..length).flat_map(move |p| {
                (0..pairs).map(move |pair| {
                    (0..2)
                        .map(|axis| coordinates[axis][p] * of(axis, head, pair))
                        .sum()
                })
            })
        });
        let shape = [1, heads, length, pairs];
        // The angle moves by each coordinate times its frequency's change.
        let moved = moved(offset);
        let change = (0..2).map(|axis| {
            let coordinate: Tensor<4> =
                upload(coordinates[axis].to_vec(), [1, 1, length, 1], device);
            coordinate
                * moved
                    .clone()
                    .slice_dim(0, axis..axis + 1)
                    .reshape([1, heads, 1, pairs])
        });
        let change = change.reduce(|sum, change| sum + change).expect("two axes");
        Turn::of_angles(angles.collect::<Vec<f64>>().into_iter(), 1.0, shape, device)
            .following(change)
    }
}

impl PositionalEncoding for AxialRope {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let (queries, keys): (Vec<&[f64]>, Vec<&[f64]>) = (0..self.config.axes)
            .map(|axis| positions.axis(axis))
            .unzip();
        Box::new(PreparedAxialRope {
            layout: self.config.layout,
            queries: self.turns(&queries, device),
            keys: self.turns(&keys, device),
        })
    }
}

impl Prepared for PreparedAxialRope {
    fn transform_qk(&self, _layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let apply = |blocks: &[(usize, Turn)], x: Tensor<4>| {
            let mut from = 0;
            let turned = blocks.iter().map(|(width, turn)| {
                from += width;
                turn.apply(x.clone().slice_dim(3, from - width..from), self.layout)
            });
            let mut turned: Vec<Tensor<4>> = turned.collect();
            if turned.len() == 1 {
                turned.remove(0)
            } else {
                Tensor::cat(turned, 3)
            }
        };
        (apply(&self.queries, q), apply(&self.keys, k))
    }
}

impl Spec for AxialRopeConfig {
    type Module = AxialRope;
    const ABOUT: About = About {
        summary: "rotation of queries and keys by two or three coordinates",
        formula: "pair i turns by p_a(i) theta_i, a(i) the axis it belongs to; mixed: by p_0 f_i0 \
                  + p_1 f_i1",
        source: "Heo et al. 2024, arXiv 2403.13298; Wang et al. 2024, arXiv 2409.12191",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range(
            "base",
            self.base,
            1.0 + 1e-9,
            1e15,
            "RoPE-ViT uses 100 for images, Qwen2-VL 1000000",
        )?;
        in_range(
            "axes",
            self.axes as f64,
            2.0,
            3.0,
            "use kind = \"rope\" for one axis",
        )?;
        let (dim, axes, mode) = (shape.head_dim, self.axes, self.mode);
        if dim % 2 == 1 || dim / 2 < axes {
            let problem = format!("head_dim = {dim} has no pair of dimensions for each axis");
            let allowed = format!("an even head_dim of at least {}", 2 * axes);
            return Err(ConfigError::new(
                "axes",
                axes,
                problem,
                allowed,
                "change d_model or n_heads",
            ));
        }
        if mode == AxialMode::Mixed && axes != 2 {
            let hint = "use mode = \"split\", \"sectioned\" or \"interleaved\"";
            return Err(ConfigError::new(
                "axes",
                axes,
                "mixed frequencies are defined for two axes",
                "2",
                hint,
            ));
        }
        let Some(sections) = &self.sections else {
            return Ok(());
        };
        let total = sections
            .iter()
            .fold(0usize, |sum, width| sum.saturating_add(*width));
        let fail = |problem: String, allowed: String| {
            Err(ConfigError::new(
                "sections",
                format!("{sections:?}"),
                problem,
                allowed,
                "leave it out for even shares",
            ))
        };
        match mode {
            AxialMode::Interleaved | AxialMode::Mixed => fail(
                "has no effect in this mode".to_owned(),
                "nothing".to_owned(),
            ),
            _ if sections.len() != axes => fail(
                format!("{} sections for {axes} axes", sections.len()),
                format!("{axes} numbers"),
            ),
            AxialMode::Split if sections.iter().any(|width| width % 2 == 1 || *width == 0) => fail(
                "pairs of dimensions must turn inside each block".to_owned(),
                "even numbers of at least 2".to_owned(),
            ),
            AxialMode::Split if total != dim => fail(
                format!("adds up to {}", total),
                format!("dimensions that add up to head_dim = {dim}"),
            ),
            AxialMode::Sectioned if sections.contains(&0) || total != dim / 2 => fail(
                format!("adds up to {}", total),
                format!("pairs that add up to head_dim/2 = {}", dim / 2),
            ),
            _ => Ok(()),
        }
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let trained = (
            "frequency_offset".to_owned(),
            vec![2, shape.n_heads, shape.head_dim / 2],
        );
        Facts {
            hooks: Hooks {
                transform_qk: true,
                ..Hooks::default()
            },
            parameters: if self.mode == AxialMode::Mixed {
                vec![trained]
            } else {
                vec![]
            },
            relative: true,
            linear: true,
            turns: true,
            axes: self.axes,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> AxialRope {
        let sizes = [2, shape.n_heads, shape.head_dim / 2];
        let mixed = self.mode == AxialMode::Mixed;
        let frequency_offset =
            mixed.then(|| init.param("frequency_offset", sizes, Distribution::Constant(0.0)));
        AxialRope {
            frequency_offset,
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
