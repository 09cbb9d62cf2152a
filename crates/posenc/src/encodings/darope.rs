//! `darope`: rotation whose slow pairs turn by a coordinate that content sets.
//!
//! - Formula: pair i of head h turns by `p theta_i`, `theta_i = base^(-2i/E)`, if it completes a
//!   turn in L tokens, `theta_i >= 2 pi / L`. A slower one turns by `c theta_i`, `c = L
//!   sigmoid(w_h.x + alpha_h beta)`, `beta = logit((p + 1/2) / L)`; `(p + 1/2) / L` is clipped to
//!   `1e-6..1 - 1e-6`, and x is what q and k are projected from.
//! - Source: Levy et al. 2026, DaRoPE (arXiv 2609.34556), equations 2 to 6, method 1 and, for the
//!   initial values, appendix A.2.
//! - Parameters: per layer L: `layers.L.weight`, w, `[D, H]`, and `layers.L.alpha`, `[H]`; none if
//!   every pair completes a turn.
//! - Limits: none. Coordinates stay in 0..L; the fast pairs keep turning.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, RotaryLayout, inv_freq};
use crate::rotary_tables::{RotaryTables, angles, check_rotary_dim};
use crate::sequence::{by_head, per_channel, projected};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::{cut, upload};
use crate::values::OriginalLength as _;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::f64::consts::TAU;

/// `kind = "darope"`: configuration of [`Darope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DaropeConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// L in tokens, 1 to 1000000000: pairs that do not complete a turn within it turn by content;
    /// the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

impl DaropeConfig {
    /// The frequencies of the fast pairs and those of the slow ones.
    fn bands(&self, head_dim: usize) -> [Vec<f64>; 2] {
        let least = TAU / self.length();
        let fast = |theta: &f64| *theta >= least;
        let (fast, slow): (Vec<f64>, Vec<f64>) =
            inv_freq(head_dim, self.base).into_iter().partition(fast);
        [fast, slow]
    }

    /// L.
    fn length(&self) -> f64 {
        self.original_max_position_embeddings.value()
    }

    /// beta at a position.
    fn prior(&self, position: f64) -> f64 {
        let share = (position + 0.5) / self.length();
        let share = share.clamp(CLIPPED, 1.0 - CLIPPED);
        libm::log(share / (1.0 - share))
    }
}

/// How near to 0 and 1 a share of L may come before its logit.
const CLIPPED: f64 = 1e-6;

/// Rotation by position and, in slow pairs, by content.
#[derive(Module, Debug)]
pub struct Darope {
    layers: Vec<DaropeLayer>,
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    config: DaropeConfig,
}

/// The coordinates of one layer.
#[derive(Module, Debug)]
pub struct DaropeLayer {
    weight: Param<Tensor<2>>,
    alpha: Param<Tensor<1>>,
}

struct PreparedDarope<'a> {
    encoding: &'a Darope,
    context: Context,
    queries: Side,
    keys: Side,
    /// Frequencies of the slow pairs, `[1, 1, 1, slow]`.
    slow: Tensor<4>,
}

/// What the positions of the queries, or of the keys, say.
struct Side {
    /// cos and sin of the fast pairs, `[1, 1, positions, fast]`; `None` if there are none.
    fast: Option<[Tensor<4>; 2]>,
    /// beta, `[1, positions, 1]`.
    prior: Tensor<3>,
}

impl Side {
    fn new(positions: &[f64], fast: &[f64], config: &DaropeConfig, context: &Context) -> Self {
        let (sin, cos): (Vec<f64>, Vec<f64>) = angles(positions, fast).map(libm::sincos).unzip();
        let shape = [1, 1, positions.len(), fast.len()];
        let table = |values| upload(values, shape, &context.device);
        let prior = positions.iter().map(|p| config.prior(*p)).collect();
        Self {
            fast: (!fast.is_empty()).then(|| [cos, sin].map(table)),
            prior: upload(prior, [1, positions.len(), 1], &context.device),
        }
    }

    /// Tables of all pairs, the slow ones turned by `angles`, `[B, H, positions, slow]`.
    fn tables(&self, angles: Tensor<4>, context: &Context) -> RotaryTables {
        let [batch, heads, positions, _] = angles.dims();
        let mut tables = [angles.clone().cos(), angles.sin()];
        if let Some(fast) = &self.fast {
            let of_all = |table: &Tensor<4>| {
                let pairs = table.dims()[3];
                table.clone().expand([batch, heads, positions, pairs])
            };
            let [cos, sin] = tables;
            tables = [
                Tensor::cat(vec![of_all(&fast[0]), cos], 3),
                Tensor::cat(vec![of_all(&fast[1]), sin], 3),
            ];
        }
        let [cos, sin] = tables;
        RotaryTables::of_tables(cos, sin, context.ops)
    }
}

impl PositionalEncoding for Darope {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let [fast, slow] = self.config.bands(self.head_dim);
        let side = |positions: &[f64]| Side::new(positions, &fast, &self.config, context);
        let shape = [1, 1, 1, slow.len()];
        Ok(Box::new(PreparedDarope {
            encoding: self,
            context: context.clone(),
            queries: side(positions.queries()),
            keys: side(positions.keys()),
            slow: upload(slow, shape, &context.device),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl PreparedDarope<'_> {
    /// The angles of the slow pairs at positions of this `prior` where content gives `shifts`,
    /// `[B, positions, H]`.
    fn angles(&self, layer: &DaropeLayer, shifts: Tensor<3>, prior: &Tensor<3>) -> Tensor<4> {
        let batch = shifts.dims()[0];
        let alpha = per_channel(layer.alpha.val(), batch, self.context.groups);
        let share = activation::sigmoid(shifts + alpha * prior.clone());
        let coordinates = share * self.encoding.config.length();
        by_head(coordinates, self.encoding.n_heads) * self.slow.clone()
    }
}

impl Prepared for PreparedDarope<'_> {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        let turned = |x: Tensor<4>, tables: RotaryTables| tables.apply(x, RotaryLayout::Half);
        let Some(layer) = self.encoding.layers.get(layer) else {
            let tables = |side: &Side| {
                let [cos, sin] = side.fast.clone().expect("a pair is fast or slow");
                RotaryTables::of_tables(cos, sin, self.context.ops)
            };
            return (
                turned(q, tables(&self.queries)),
                turned(k, tables(&self.keys)),
            );
        };
        let Context { groups, ops, .. } = self.context;
        let shifts = projected(ops, hidden.clone(), layer.weight.val(), groups);
        // Queries are the last of the keys.
        let length = shifts.dims()[1];
        let of_queries = cut(&shifts, 1, length - q.dims()[2]..length);
        let tables = |side: &Side, shifts: Tensor<3>| {
            side.tables(self.angles(layer, shifts, &side.prior), &self.context)
        };
        (
            turned(q, tables(&self.queries, of_queries)),
            turned(k, tables(&self.keys, shifts)),
        )
    }
}

impl EncodingSpec for DaropeConfig {
    type Module = Darope;
    const NAME: Option<&'static str> = Some("DaRoPE");
    const ABOUT: About = About {
        summary: "rotation by position in fast pairs, and by a coordinate that content sets in \
                  pairs that training does not turn once",
        formula: "pair i rotates by p theta_i if theta_i >= 2 pi / L, else by c theta_i, \
                  c = L sigmoid(w_h.x + alpha_h logit((p + 1/2) / L)), \
                  the share (p + 1/2) / L kept within 1e-6..1 - 1e-6",
        source: "Levy et al. 2026, arXiv 2609.34556",
        deviations: "none known; no code was found. The base is that of the paper's largest \
                     model, 10000; its others have 500000. x is the layer's normalised input, \
                     which q and k are projected from",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the paper uses 10000 and 500000")?;
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

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        if self.unresolved().is_some() || self.bands(shape.head_dim)[1].is_empty() {
            return Vec::new();
        }
        let of = |layer: usize| {
            let path = |name: &str| format!("layers.{layer}.{name}");
            let weight = [shape.d_model, shape.n_heads];
            [
                ParamSpec::new(path("weight"), weight, Distribution::Normal(0.1)),
                ParamSpec::new(path("alpha"), [shape.n_heads], Distribution::Constant(0.5)),
            ]
        };
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            linear: true,
            rotates_qk: true,
            transform_workspace: 6.0,
            transform_kept: 10.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let [fast, slow] = self.bands(shape.head_dim);
        let row = |(pair, theta): (usize, &f64)| {
            let by_content = f64::from(u8::from(pair >= fast.len()));
            vec![pair as f64, *theta, TAU / theta, by_content]
        };
        let rows = fast.iter().chain(&slow).enumerate().map(row);
        let columns = ["pair", "inv_freq", "wavelength", "by content"];
        let title = "pairs that turn by position, and by content";
        vec![NumberTable::new(title, columns, rows)]
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Darope {
        Darope {
            layers: parameters.take_groups("layers", |layer| DaropeLayer {
                weight: layer.take("weight"),
                alpha: layer.take("alpha"),
            }),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
