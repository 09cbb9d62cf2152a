//! `fire`: a trained function of the distance over the query's position, as a bias per head.
//!
//! - Formula: `f(psi(m - n) / psi(max(threshold, m)))` added to the logits, `psi(x) = ln(|c x| +
//!   1)`, f a network of one hidden layer of ReLU units, threshold = `|multiplier L|`, L =
//!   `threshold`.
//! - Source: Li et al. 2023 (arXiv 2310.04418), section 3 and appendix; mcleish7/arithmetic.
//! - Parameters: `c` and `multiplier`, `[1]`; `w1`, `b1`, `[hidden]`; `w2`, `[hidden, H]`; `b2`,
//!   `[H]`; one set for all layers (FIRE-S) or, with `shared = false`, one per layer.
//! - Limits: causal only. The bias of a key depends on the query's position, not on the distance
//!   only.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{
    Bias, BiasBlocks, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared,
};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::DiagonalNetwork;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::upload;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// Added to the denominator, as in the public code.
const EPSILON: f64 = 1e-6;

/// `kind = "fire"`: configuration of [`Fire`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FireConfig {
    /// Number of units of the hidden layer, 1 to 4096.
    #[default = 32]
    pub hidden: usize,
    /// c at start, 1e-6 to 1000.
    #[default = 0.1]
    pub init_c: f64,
    /// Initial L in tokens, 0.001 to 1e9: queries before L are normalized by psi(L); the paper uses
    /// 512.
    #[default = 512.0]
    pub threshold: f64,
    /// Whether all layers share one function.
    #[default = true]
    pub shared: bool,
}

/// A trained function of the distance relative to the query's position.
#[derive(Module, Debug)]
pub struct Fire {
    functions: Vec<FireFunction>,
}

/// The function of one layer, or of all layers.
#[derive(Module, Debug)]
pub struct FireFunction {
    c: Param<Tensor<1>>,
    multiplier: Param<Tensor<1>>,
    w1: Param<Tensor<1>>,
    b1: Param<Tensor<1>>,
    w2: Param<Tensor<2>>,
    b2: Param<Tensor<1>>,
    threshold: f64,
}

struct PreparedFire<'a> {
    functions: &'a [FireFunction],
    positions: Positions,
    context: Context,
}

struct Layer<'a> {
    function: &'a FireFunction,
    prepared: &'a PreparedFire<'a>,
}

impl PositionalEncoding for Fire {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedFire {
            functions: &self.functions,
            positions: positions.clone(),
            context: context.clone(),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedFire<'_> {
    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::default())
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let function = self.functions.get(layer).unwrap_or(&self.functions[0]);
        Some(Bias::new(Layer {
            function,
            prepared: self,
        }))
    }

    fn bias_layer(&self, layer: usize) -> usize {
        layer.min(self.functions.len() - 1)
    }
}

impl Layer<'_> {
    /// `ln(|c x| + 1)`.
    fn psi(&self, x: Tensor<1>) -> Tensor<1> {
        (x * self.function.c.val()).abs().log1p()
    }

    /// How far each query could look, at least the threshold, `[q_len]`.
    fn units(&self, queries: &[f64]) -> Tensor<1> {
        let threshold = (self.function.multiplier.val() * self.function.threshold).abs();
        let query = self.upload(queries.to_vec());
        let reach = query.max_pair(threshold.expand([queries.len()]));
        self.psi(reach) + EPSILON
    }

    fn upload(&self, values: Vec<f64>) -> Tensor<1> {
        let n = values.len();
        upload(values, [n], &self.prepared.context.device)
    }

    /// The trained function.
    fn apply(&self, diagonals: Tensor<1>, units: Tensor<1>) -> DiagonalNetwork {
        let f = self.function;
        DiagonalNetwork {
            diagonals,
            units,
            hidden: [f.w1.val(), f.b1.val()],
            weights: f.w2.val(),
            biases: f.b2.val(),
        }
    }

    /// The functions of all models at every cell, `[G, H, q_len, k_len]`.
    fn of_all_models(&self, q: &[f64], k: &[f64]) -> Tensor<4> {
        let f = self.function;
        let (groups, heads) = (self.prepared.context.groups, f.b2.val().dims()[0]);
        let ([rows, columns], heads) = ([q.len(), k.len()], heads / groups);
        let each = |x: Tensor<1>| {
            let count = x.dims()[0] / groups;
            x.reshape([groups, 1, 1, count])
        };
        let psi = |x: Tensor<4>| (x * each(f.c.val())).abs().log1p();
        let threshold = each((f.multiplier.val() * f.threshold).abs());
        let query = self.upload(q.to_vec()).reshape([1, 1, rows, 1]);
        let reach = query.expand([groups, 1, rows, 1]);
        let units = psi(reach.max_pair(threshold.expand([groups, 1, rows, 1]))) + EPSILON;
        let distances = q.iter().flat_map(|q| k.iter().map(move |k| q - k));
        let distances = self.upload(distances.collect());
        let relative = psi(distances.reshape([1, 1, rows, columns])) / units;
        // One row per cell, for a network of one input.
        let cells = relative.reshape([groups, 1, rows * columns, 1]);
        let hidden = activation::relu(cells * each(f.w1.val()) + each(f.b1.val()));
        let width = hidden.dims()[3];
        let weights = f.w2.val().reshape([groups, 1, width, heads]);
        let outputs = self.prepared.context.ops.matmul(hidden, weights) + each(f.b2.val());
        let outputs = outputs.reshape([groups, rows, columns, heads]);
        outputs.permute([0, 3, 1, 2])
    }

    /// As one network of one model, where positions step by one.
    fn on_diagonals(&self, q: &[f64], k: &[f64]) -> Option<DiagonalNetwork> {
        if self.prepared.context.groups > 1 {
            return None;
        }
        let steps = |x: &[f64]| x.windows(2).all(|pair| pair[1] - pair[0] == 1.0);
        if !(steps(q) && steps(k)) {
            return None;
        }
        // One distance per diagonal, the largest at the lower left.
        let largest = q.last()? - k.first()?;
        let distances = (0..q.len() + k.len() - 1).map(|i| largest - i as f64);
        let diagonals = self.psi(self.upload(distances.collect()));
        Some(self.apply(diagonals, self.units(q)))
    }
}

impl BiasBlocks for Layer<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let (positions, ops) = (&self.prepared.positions, self.prepared.context.ops);
        let (q, k) = (&positions.queries()[queries], &positions.keys()[keys]);
        if self.prepared.context.groups > 1 {
            return self.of_all_models(q, k);
        }
        if let Some(network) = self.on_diagonals(q, k) {
            return ops.diagonal_network(network);
        }
        // Elsewhere all cells are one row.
        let cells = [q.len() * k.len()];
        let distances = q.iter().flat_map(|q| k.iter().map(move |k| q - k));
        let units: Tensor<2> = self.units(q).reshape([q.len(), 1]);
        let units = units.expand([q.len(), k.len()]).reshape(cells);
        let relative = self.psi(self.upload(distances.collect())) / units;
        let bias = ops.diagonal_network(self.apply(relative, self.upload(vec![1.0])));
        let heads = bias.dims()[1];
        bias.reshape([1, heads, q.len(), k.len()])
    }

    fn network(&self) -> Option<DiagonalNetwork> {
        let positions = &self.prepared.positions;
        self.on_diagonals(positions.queries(), positions.keys())
    }
}

impl EncodingSpec for FireConfig {
    type Module = Fire;
    const NAME: Option<&'static str> = Some("FIRE");
    const ABOUT: About = About {
        summary: "a trained function of the distance over the query's position, as a bias per head",
        formula: "logits + f(psi(m - n)/psi(max(threshold, m))), psi(x) = ln(c x + 1)",
        source: "Li et al. 2023, arXiv 2310.04418",
        deviations: "none; the quotient has 1e-6 added to its denominator as in the public code",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("hidden", self.hidden, 1..=4096, "the paper uses 32")?;
        in_range("init_c", self.init_c, 1e-6..=1e3, "the paper uses 0.1")?;
        in_range(
            "threshold",
            self.threshold,
            1e-3..=1e9,
            "the paper uses 512",
        )
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (hidden, heads) = (self.hidden, shape.n_heads);
        // PyTorch's default for a linear layer: within 1/sqrt(inputs).
        let inner = 1.0 / (hidden as f64).sqrt();
        let (outer, inner) = (
            Distribution::Uniform(-1.0, 1.0),
            Distribution::Uniform(-inner, inner),
        );
        let of = |i: usize| {
            [
                ("c", vec![1], Distribution::Constant(self.init_c)),
                ("multiplier", vec![1], Distribution::Constant(1.0)),
                ("w1", vec![hidden], outer),
                ("b1", vec![hidden], outer),
                ("w2", vec![hidden, heads], inner),
                ("b2", vec![heads], inner),
            ]
            .map(|(name, shape, init)| ParamSpec::new(format!("functions.{i}.{name}"), shape, init))
        };
        let functions = if self.shared { 1 } else { shape.n_layers };
        (0..functions).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            causal_only: true,
            diagonal_network: true,
            // The hidden layer, which is computed and never held.
            bias_work: self.hidden as f64 / 8.0,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Fire {
        Fire {
            functions: parameters.take_groups("functions", |function| FireFunction {
                c: function.take("c"),
                multiplier: function.take("multiplier"),
                w1: function.take("w1"),
                b1: function.take("b1"),
                w2: function.take("w2"),
                b2: function.take("b2"),
                threshold: self.threshold,
            }),
        }
    }
}
