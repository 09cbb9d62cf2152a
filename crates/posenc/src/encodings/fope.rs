//! `fope`: rotation in which each pair mixes several frequencies.
//!
//! - Formula: pairs turn by the tables `Sin_h = sin(p Theta) (I + W_h)` and `Cos_h = cos(p Theta)
//!   (I + V_h)` of head h. Theta are RoPE's frequencies that complete a turn within L, W and V
//!   random; at most half of the pairs get a column, the others no position.
//! - Source: Hua et al. 2024, Fourier Position Embedding (arXiv 2412.17739); `FourierEmbedding` in
//!   the authors' `olmo/model.py`. I spreads over the rows where there are more frequencies than
//!   columns.
//! - Parameters: `cos` and `sin`, V and W, `[H, frequencies, columns]`, shared by layers, drawn
//!   from the seed. Trained where `learnable`, else kept as drawn; saved with the weights in any
//!   case.
//! - Limits: none by construction.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, RotaryLayout, inv_freq};
use crate::rotary_tables::{RotaryTables, angles};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::upload;
use crate::values::OriginalLength as _;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::f64::consts::TAU;

/// What pairs without a column of the tables get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FopePad {
    /// cos = 1, sin = 0: the frequency 0.
    #[default]
    Paper,
    /// cos = sin = 1.
    Code,
}

/// `kind = "fope"`: configuration of [`Fope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FopeConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// L in tokens, 1 to 1000000000: frequencies that do not complete a turn within it are dropped;
    /// the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Spread of W and V, times that of Xavier's initialisation, 0 to 10.
    #[default = 0.3]
    pub gain: f64,
    /// What pairs without a column get.
    #[default(FopePad::Paper)]
    pub pad: FopePad,
    /// Whether W and V are trained; else they stay as the seed draws them.
    pub learnable: bool,
}

impl FopeConfig {
    /// The frequencies that are kept, fastest first.
    fn kept(&self, head_dim: usize) -> Vec<f64> {
        let least = TAU / self.original_max_position_embeddings.value();
        let mut theta = inv_freq(head_dim, self.base);
        theta.retain(|theta| *theta >= least);
        theta
    }

    /// Shape of W and V.
    fn sizes(&self, n_heads: usize, head_dim: usize) -> [usize; 3] {
        let kept = self.kept(head_dim).len();
        [n_heads, kept, kept.min((head_dim / 4).max(1))]
    }

    /// Standard deviation of W and V. PyTorch counts fans of three dimensions so.
    fn spread(&self, [heads, rows, columns]: [usize; 3]) -> f64 {
        self.gain * (2.0 / (columns * (rows + heads)).max(1) as f64).sqrt()
    }
}

/// Rotation by sums of frequencies.
#[derive(Module, Debug)]
pub struct Fope {
    cos: Option<Param<Tensor<3>>>,
    sin: Option<Param<Tensor<3>>>,
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    config: FopeConfig,
}

struct PreparedFope {
    queries: RotaryTables,
    keys: RotaryTables,
}

impl Fope {
    /// The table of these `waves`, `[positions, frequencies]`, mixed by `random`, of every head:
    /// `[1, H, positions, pairs]`, or `[G, ..]` of G models. Pairs without a column get `rest`.
    fn table(
        &self,
        waves: Vec<f64>,
        random: Option<&Param<Tensor<3>>>,
        rest: f64,
        context: &Context,
    ) -> Tensor<4> {
        let pairs = self.head_dim / 2;
        let [heads, rows, columns] = self.config.sizes(self.n_heads, self.head_dim);
        let (device, groups) = (&context.device, context.groups);
        let count = waves.len() / rows;
        let step = rows.div_ceil(columns);
        let one = |at: usize| f64::from(u8::from(at / columns == at % columns * step));
        let identity = (0..rows * columns).map(one).collect();
        let identity: Tensor<4> = upload(identity, [1, 1, rows, columns], device);
        let waves: Tensor<4> = upload(waves, [1, 1, count, rows], device);
        let random = random.expect("declared where a frequency is kept").val();
        let random = if self.config.learnable {
            random
        } else {
            random.detach()
        };
        let mixed = identity + random.reshape([groups, heads, rows, columns]);
        let table = context.ops.matmul(waves.repeat_dim(1, heads), mixed);
        if columns == pairs {
            return table;
        }
        let padding = Tensor::full([groups, heads, count, pairs - columns], rest, device);
        Tensor::cat(vec![table, padding], 3)
    }

    fn tables(&self, positions: &[f64], theta: &[f64], context: &Context) -> RotaryTables {
        let sine = if self.config.pad == FopePad::Code {
            1.0
        } else {
            0.0
        };
        let [cos, sin] = if theta.is_empty() {
            // No frequency completes a turn.
            let shape = [1, self.n_heads, positions.len(), self.head_dim / 2];
            [1.0, sine].map(|rest| Tensor::full(shape, rest, &context.device))
        } else {
            let (sin, cos): (Vec<f64>, Vec<f64>) =
                angles(positions, theta).map(libm::sincos).unzip();
            [
                self.table(cos, self.cos.as_ref(), 1.0, context),
                self.table(sin, self.sin.as_ref(), sine, context),
            ]
        };
        RotaryTables::of_tables(cos, sin, context.ops)
    }
}

impl PositionalEncoding for Fope {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let theta = self.config.kept(self.head_dim);
        Ok(Box::new(PreparedFope {
            queries: self.tables(positions.queries(), &theta, context),
            keys: self.tables(positions.keys(), &theta, context),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedFope {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let layout = RotaryLayout::Half;
        (self.queries.apply(q, layout), self.keys.apply(k, layout))
    }
}

impl EncodingSpec for FopeConfig {
    type Module = Fope;
    const NAME: Option<&'static str> = Some("FoPE");
    const ABOUT: About = About {
        summary: "rotation in which each pair mixes several frequencies",
        formula: "Sin = sin(p Theta) (I + W), Cos = cos(p Theta) (I + V), theta >= 2 pi / L",
        source: "Hua et al. 2024, arXiv 2412.17739",
        deviations: "`pad = \"paper\"`, the default, leaves pairs without a column alone; `pad = \
                     \"code\"` gives them cos = sin = 1 as the released code does, which doubles \
                     their share of the logits",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        self.original_max_position_embeddings.check()?;
        let hint = "the authors use 0.3 for 60M parameters, 0.4 and 0.6 for larger models";
        in_range("gain", self.gain, 0.0..=10.0, hint)?;
        crate::rotary_tables::check_rotary_dim(None, shape).map(drop)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.original_max_position_embeddings.resolve(lengths);
    }

    fn unresolved(&self) -> Option<String> {
        let key = self.original_max_position_embeddings.unresolved();
        key.map(str::to_owned)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        // Their sizes depend on L, and there are none where every frequency is dropped.
        if self.original_max_position_embeddings.is_none() {
            return Vec::new();
        }
        let sizes = self.sizes(shape.n_heads, shape.head_dim);
        let spread = Distribution::Normal(self.spread(sizes));
        let names = ["cos", "sin"].into_iter().filter(|_| sizes[1] > 0);
        names
            .map(|name| ParamSpec::new(name, sizes, spread).trained(self.learnable))
            .collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            linear: true,
            rotates_qk: true,
            transform_workspace: 3.0,
            transform_kept: 4.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let kept = self.kept(shape.head_dim);
        vec![NumberTable::of_frequencies(
            "frequencies that are mixed",
            "row",
            &kept,
        )]
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Fope {
        Fope {
            cos: parameters.take_optional("cos"),
            sin: parameters.take_optional("sin"),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
