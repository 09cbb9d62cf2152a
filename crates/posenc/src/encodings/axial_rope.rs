//! `axial_rope`: rotation of queries and keys by two or three coordinates.
//!
//! - Formula: RoPE over several coordinates. `split`: the head is cut into one block per axis, each
//!   an ordinary RoPE of that coordinate. `sectioned`: one set of frequencies over the whole head,
//!   whose pairs belong to the axes by consecutive sections; `interleaved`: alternating. `mixed`:
//!   pair i of head h rotates by `p_0 f_hi0 + p_1 f_hi1` with trained frequencies.
//! - Source: RoPE-ViT, Heo et al. 2024 (arXiv 2403.13298), axial and mixed; sections as in Qwen2-VL
//!   (arXiv 2409.12191), alternating as in Qwen3-VL.
//! - Parameters: none; `mixed`: `frequency_offset`, `[axes, H, head_dim/2]`, added to the initial
//!   frequencies and 0 at start.
//! - Limits: none by construction. Positions without axes have the same coordinate on every axis,
//!   as text in Qwen2-VL.

use crate::ConfigError;
use crate::by_part;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, RotaryLayout, inv_freq};
use crate::rotary_tables::{RotaryTables, angles};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::{straight_through, to_host, upload};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::f64::consts::PI;

/// How the pairs of a head are shared out among the axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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

/// `kind = "axial_rope"`: configuration of [`AxialRope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AxialRopeConfig {
    /// Number of coordinates, 2 or 3; 2 in `mixed`.
    #[default = 2]
    pub axes: usize,
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair; in `split` within a block, else in the whole head.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// How the pairs are shared out.
    #[default(AxialMode::Split)]
    pub mode: AxialMode,
    /// In `split`, dimensions per axis, even numbers that add up to those of a head; in
    /// `sectioned`, pairs per axis, which add up to half of them. As even as can be unless given;
    /// not for the other modes.
    pub sections: Option<Vec<usize>>,
}

impl AxialRopeConfig {
    /// Sizes of the sections: dimensions per axis in `split`, pairs per axis else.
    fn sections(&self, head_dim: usize) -> Vec<usize> {
        self.sections.clone().unwrap_or_else(|| {
            let pairs = head_dim / 2;
            // Pairs that do not divide evenly go to the first axes.
            let share = |axis: usize| pairs / self.axes + usize::from(axis < pairs % self.axes);
            let unit = if self.mode == AxialMode::Split { 2 } else { 1 };
            (0..self.axes).map(|axis| unit * share(axis)).collect()
        })
    }

    /// Axis and frequency of each pair, in the order of the head, unless the axes are mixed.
    fn pairs(&self, head_dim: usize) -> Vec<(usize, f64)> {
        let sections = self.sections(head_dim);
        let axes: Vec<usize> = match self.mode {
            AxialMode::Split => {
                let block = |(axis, width): (usize, &usize)| {
                    let theta = inv_freq(*width, self.base).into_iter();
                    theta.map(move |theta| (axis, theta))
                };
                return sections.iter().enumerate().flat_map(block).collect();
            }
            AxialMode::Sectioned => {
                let owner = |(axis, pairs): (usize, &usize)| vec![axis; *pairs];
                sections.iter().enumerate().flat_map(owner).collect()
            }
            _ => (0..head_dim / 2).map(|pair| pair % self.axes).collect(),
        };
        axes.into_iter()
            .zip(inv_freq(head_dim, self.base))
            .collect()
    }

    /// What the frequencies of both axes start from.
    fn mixed_numbers(&self, shape: &ModelShape) -> NumberTable {
        let theta = inv_freq(shape.head_dim, self.base);
        let row = |head: usize, pair: usize| {
            let (sin, cos) = libm::sincos(PI * head as f64 / shape.n_heads as f64);
            vec![
                head as f64,
                pair as f64,
                theta[pair] * cos,
                theta[pair] * sin,
            ]
        };
        let rows =
            (0..shape.n_heads).flat_map(|head| (0..theta.len()).map(move |pair| (head, pair)));
        NumberTable::new(
            "frequencies of both axes at the start of training",
            ["head", "pair", "axis 0", "axis 1"],
            rows.map(|(head, pair)| row(head, pair)),
        )
    }

    /// Refuses sections that do not share out a head of `dim` dimensions.
    fn check_sections(&self, sections: &[usize], dim: usize) -> Result<(), ConfigError> {
        let axes = self.axes;
        // Saturating: a sum past usize is too large, not a panic.
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
        match self.mode {
            AxialMode::Interleaved | AxialMode::Mixed => fail(
                "has no effect in this mode".to_owned(),
                "nothing".to_owned(),
            ),
            _ if sections.len() != axes => fail(
                format!("has {} sections for {axes} axes", sections.len()),
                format!("{axes} numbers"),
            ),
            AxialMode::Split if sections.iter().any(|width| width % 2 == 1 || *width == 0) => fail(
                "must form pairs of dimensions inside each block".to_owned(),
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
    /// Width of each block of the head, and its tables; one for the whole head unless `split`.
    queries: Vec<(usize, RotaryTables)>,
    keys: Vec<(usize, RotaryTables)>,
}

impl AxialRope {
    /// The tables of one side; `coordinates[axis]` has an entry per position.
    fn tables(&self, coordinates: &[&[f64]], context: &Context) -> Vec<(usize, RotaryTables)> {
        let (dim, base, length) = (self.head_dim, self.config.base, coordinates[0].len());
        let sections = self.config.sections(dim);
        match self.config.mode {
            AxialMode::Split => {
                let block = |(axis, width): (usize, &usize)| {
                    let theta = inv_freq(*width, base);
                    let angles = angles(coordinates[axis], &theta);
                    let shape = [1, 1, length, width / 2];
                    (*width, RotaryTables::of_angles(angles, 1.0, shape, context))
                };
                sections.iter().enumerate().map(block).collect()
            }
            AxialMode::Sectioned | AxialMode::Interleaved => {
                let pairs = self.config.pairs(dim);
                let angles = (0..length).flat_map(|p| {
                    let pairs = pairs.iter();
                    pairs.map(move |(axis, theta)| coordinates[*axis][p] * theta)
                });
                let shape = [1, 1, length, dim / 2];
                vec![(dim, RotaryTables::of_angles(angles, 1.0, shape, context))]
            }
            AxialMode::Mixed => vec![(dim, self.mixed(coordinates, context))],
        }
    }

    fn mixed(&self, coordinates: &[&[f64]], context: &Context) -> RotaryTables {
        let offset = self
            .frequency_offset
            .as_ref()
            .expect("mixed has frequencies")
            .val();
        let (heads, pairs, length) = (self.n_heads, self.head_dim / 2, coordinates[0].len());
        let groups = context.groups;
        let theta = inv_freq(self.head_dim, self.config.base);
        let frequency: Vec<f64> = to_host(offset.clone())
            .iter()
            .enumerate()
            .map(|(at, offset)| {
                // Row-major [G, axes, H, pairs].
                let (axis, head, pair) = (at / (heads * pairs) % 2, at / pairs % heads, at % pairs);
                // Directions cover half a turn: opposite ones differ in sign of the rotation only.
                let (sin, cos) = libm::sincos(PI * head as f64 / heads as f64);
                theta[pair] * if axis == 0 { cos } else { sin } + offset
            })
            .collect();
        let of = |group: usize, axis: usize, head: usize, pair: usize| {
            frequency[((2 * group + axis) * heads + head) * pairs + pair]
        };
        // In the order of [G, H, positions, pairs].
        let angles = (0..groups * heads).flat_map(|row| {
            (0..length).flat_map(move |p| {
                (0..pairs).map(move |pair| {
                    (0..2)
                        .map(|axis| coordinates[axis][p] * of(row / heads, axis, row % heads, pair))
                        .sum()
                })
            })
        });
        let shape = [groups, heads, length, pairs];
        // The angle moves by each coordinate times its frequency's change.
        let moved = straight_through(offset).reshape([groups, 2, heads, pairs]);
        let change = (0..2).map(|axis| {
            let coordinate: Tensor<4> = upload(
                coordinates[axis].to_vec(),
                [1, 1, length, 1],
                &context.device,
            );
            coordinate
                * moved
                    .clone()
                    .slice_dim(1, axis..axis + 1)
                    .reshape([groups, heads, 1, pairs])
        });
        let change = change.reduce(|sum, change| sum + change).expect("two axes");
        RotaryTables::of_angles(
            angles.collect::<Vec<f64>>().into_iter(),
            1.0,
            shape,
            context,
        )
        .with_gradient(change)
    }
}

impl PositionalEncoding for AxialRope {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        by_part::prepare(positions, |positions| {
            let (queries, keys): (Vec<&[f64]>, Vec<&[f64]>) = (0..self.config.axes)
                .map(|axis| positions.axis(axis))
                .unzip();
            Ok(Box::new(PreparedAxialRope {
                layout: self.config.layout,
                queries: self.tables(&queries, context),
                keys: self.tables(&keys, context),
            }))
        })
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedAxialRope {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let apply = |blocks: &[(usize, RotaryTables)], x: Tensor<4>| {
            let mut from = 0;
            let rotated = blocks.iter().map(|(width, tables)| {
                from += width;
                tables.apply(x.clone().slice_dim(3, from - width..from), self.layout)
            });
            let mut rotated: Vec<Tensor<4>> = rotated.collect();
            if rotated.len() == 1 {
                rotated.remove(0)
            } else {
                Tensor::cat(rotated, 3)
            }
        };
        (apply(&self.queries, q), apply(&self.keys, k))
    }
}

impl EncodingSpec for AxialRopeConfig {
    type Module = AxialRope;
    const NAME: Option<&'static str> = Some("axial RoPE");
    const ABOUT: About = About {
        summary: "rotation of queries and keys by two or three coordinates",
        formula: "pair i rotates by p_a(i) theta_i, a(i) the axis it belongs to; mixed: by p_0 f_i0 \
                  + p_1 f_i1",
        source: "Heo et al. 2024, arXiv 2403.13298; Wang et al. 2024, arXiv 2409.12191",
        deviations: "`mixed` starts from directions evenly spread over the heads, RoPE-ViT draws \
                     them; it shares frequencies between layers. `interleaved` alternates to the \
                     last pair; Qwen3-VL leaves the last few pairs to the first axis",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "RoPE-ViT uses 100 for images, Qwen2-VL 1000000";
        in_range("base", self.base, BASES, hint)?;
        in_range("axes", self.axes, 2..=3, "use kind = \"rope\" for one axis")?;
        let (dim, axes, mode) = (shape.head_dim, self.axes, self.mode);
        if dim % 2 == 1 || dim / 2 < axes {
            let problem =
                format!("needs a pair of dimensions each, which head_dim = {dim} does not have");
            let allowed = format!("an even head_dim of at least {}", 2 * axes);
            return Err(ConfigError::new(
                "axes",
                axes,
                problem,
                allowed,
                "make head_dim even and larger: it is d_model / n_heads where it is not given",
            ));
        }
        if mode == AxialMode::Mixed && axes != 2 {
            let hint = "use mode = \"split\", \"sectioned\" or \"interleaved\"";
            return Err(ConfigError::new(
                "axes",
                axes,
                "must be 2 in mode `mixed`",
                "2",
                hint,
            ));
        }
        let given = self.sections.as_deref();
        given.map_or(Ok(()), |sections| self.check_sections(sections, dim))
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let sizes = [2, shape.n_heads, shape.head_dim / 2];
        let trained = ParamSpec::new("frequency_offset", sizes, Distribution::Constant(0.0));
        let mixed = self.mode == AxialMode::Mixed;
        mixed.then_some(trained).into_iter().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            linear: true,
            rotates_qk: true,
            axes: self.axes,
            transform_workspace: 4.0,
            transform_kept: 5.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        // Both axes turn every pair, by trained frequencies.
        if self.mode == AxialMode::Mixed {
            return vec![self.mixed_numbers(shape)];
        }
        let pairs = self.pairs(shape.head_dim);
        let row = |(i, (axis, theta)): (usize, &(usize, f64))| {
            vec![i as f64, *axis as f64, *theta, 2.0 * PI / theta]
        };
        let columns = ["pair", "axis", "inv_freq", "wavelength"];
        let rows = pairs.iter().enumerate().map(row);
        vec![NumberTable::new(
            "pairs of dimensions by axis",
            columns,
            rows,
        )]
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> AxialRope {
        AxialRope {
            frequency_offset: parameters.take_optional("frequency_offset"),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
