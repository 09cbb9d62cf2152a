//! `dape`: a network over the heads' logits and biases that corrects both.
//!
//! - Formula: `A + B + f(A, B)` with the logits A and the biases B of `part`. For each pair of a
//!   query and a key the network `f = W2 leaky_relu(W1 [A; B] + b1) + b2` reads all heads; it reads
//!   A alone where `part` has no bias. With `kernel` k it reads the k keys around each key, 0 past
//!   the query and where a mask hides a key.
//! - Source: DAPE, Zheng et al. 2024 (arXiv 2405.14722), kernel 1; DAPE V2 (arXiv 2410.04798),
//!   kernel 3; chuanyang-Zheng/DAPE.
//! - Parameters: those of `part`, under `part.0`; per layer L: `functions.L.w1`, `[k inputs,
//!   hidden]`, row-major by key and head, `functions.L.b1`, `functions.L.w2`, `functions.L.b2`.
//! - Limits: those of its part. Linear attention cannot host it. A larger kernel is causal only.

use super::{Encoding, EncodingConfig};
use crate::ConfigError;
use crate::by_part::acts_for_all;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Bias, Content, Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::{CellNetwork, Ops};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, Part};
use crate::tensors::for_batch;
use burn::module::{Module, Param};
use burn::tensor::{Bool, Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};

/// `kind = "dape"`: configuration of [`Dape`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DapeConfig {
    /// The encoding that is corrected.
    pub part: Box<EncodingConfig>,
    /// Width of the network in units, 1 to 4096.
    #[serde(default = "usual_width")]
    pub hidden: usize,
    /// Number of keys it reads around each key, odd, 1 to 63: 1 in the first version, 3 in the
    /// second.
    #[serde(default = "one")]
    pub kernel: usize,
}

fn usual_width() -> usize {
    32
}

fn one() -> usize {
    1
}

/// A network over logits and biases.
#[derive(Module, Debug)]
pub struct Dape {
    /// One; a list because a module cannot hold itself otherwise.
    part: Vec<Encoding>,
    functions: Vec<DapeFunction>,
    kernel: usize,
    reads_bias: bool,
}

/// The network of one layer.
#[derive(Module, Debug)]
pub struct DapeFunction {
    w1: Param<Tensor<2>>,
    b1: Param<Tensor<1>>,
    w2: Param<Tensor<2>>,
    b2: Param<Tensor<1>>,
}

struct PreparedDape<'a> {
    part: Box<dyn Prepared + 'a>,
    encoding: &'a Dape,
    groups: usize,
}

/// Slope of the activation below 0: PyTorch's default.
const LEAK: f64 = 0.01;

/// A bias below this is a mask.
const MASKED: f64 = -1e30;

/// `x`, `[B, q_len, k_len, C]`, through a layer that reads `kernel` keys around each.
///
/// A layer that widens copies the inputs of each key side by side before its product. One that
/// narrows multiplies first and adds shifted outputs, which are fewer.
fn convolved(
    ops: &dyn Ops,
    x: Tensor<4>,
    kernel: usize,
    [weight, bias]: [Tensor<4>; 2],
) -> Tensor<4> {
    let [batch, rows, keys, channels] = x.dims();
    let [groups, .., width] = weight.dims();
    let cells = batch / groups * rows * keys;
    // At each key what `kernel` keys around it have.
    let shifts = |x: Tensor<4>| {
        let [.., last] = x.dims();
        let zeros = Tensor::zeros([batch, rows, kernel / 2, last], (&x.device(), x.dtype()));
        let padded = Tensor::cat(vec![zeros.clone(), x, zeros], 2);
        (0..kernel).map(move |by| padded.clone().slice_dim(2, by..by + keys))
    };
    let out = if width < channels {
        let weight = weight
            .reshape([groups, kernel, channels, width])
            .permute([0, 2, 1, 3])
            .reshape([groups, 1, channels, kernel * width]);
        let out = ops.matmul(x.reshape([groups, 1, cells, channels]), weight);
        shifts(out.reshape([batch, rows, keys, kernel * width]))
            .enumerate()
            .map(|(by, out)| out.slice_dim(3, by * width..(by + 1) * width))
            .reduce(|sum, out| sum + out)
            .expect("at least one key")
            .reshape([groups, 1, cells, width])
    } else {
        let around = Tensor::cat(shifts(x).collect(), 3);
        ops.matmul(
            around.reshape([groups, 1, cells, kernel * channels]),
            weight,
        )
    };
    (out + bias).reshape([batch, rows, keys, width])
}

impl DapeFunction {
    /// The correction of inputs `[B, C, q_len, k_len]`: `[B, H, q_len, k_len]`.
    fn of(
        &self,
        ops: &dyn Ops,
        inputs: Tensor<4>,
        kernel: usize,
        later: Option<Tensor<4, Bool>>,
        groups: usize,
    ) -> Tensor<4> {
        if kernel == 1 {
            let network = CellNetwork {
                w1: self.w1.val(),
                b1: self.b1.val(),
                slope: LEAK,
                w2: self.w2.val(),
                b2: self.b2.val(),
            };
            return ops.cell_network(inputs, network);
        }
        // Weights and biases of all models.
        let layer = |weight: &Param<Tensor<2>>, bias: &Param<Tensor<1>>| {
            let [rows, columns] = weight.val().dims();
            let weight = weight.val().reshape([groups, 1, rows / groups, columns]);
            [weight, bias.val().reshape([groups, 1, 1, columns])]
        };
        let shown = |x: Tensor<4>| match &later {
            Some(later) => {
                let shape = x.dims();
                x.mask_fill(later.clone().expand(shape), 0.0)
            }
            None => x,
        };
        let inputs = shown(inputs.permute([0, 2, 3, 1]));
        let hidden = convolved(ops, inputs, kernel, layer(&self.w1, &self.b1));
        let hidden = shown(activation::leaky_relu(hidden, LEAK));
        convolved(ops, hidden, kernel, layer(&self.w2, &self.b2)).permute([0, 3, 1, 2])
    }
}

impl PositionalEncoding for Dape {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedDape {
            part: self.part[0].prepare(positions, context)?,
            encoding: self,
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        acts_for_all(&self.part[0])
    }

    fn max_position(&self) -> Option<usize> {
        self.part[0].max_position()
    }
}

impl Prepared for PreparedDape<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.part.embed(x)
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        self.part.transform_qk(layer, q, k, hidden)
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.part.logits_bias(layer)
    }

    fn bias_layer(&self, layer: usize) -> usize {
        self.part.bias_layer(layer)
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let encoding = self.encoding;
        let logits = content.logits();
        let shape = logits.dims();
        let by_position = self.part.logits_bias(layer);
        let by_position =
            by_position.map(|bias| bias.block(content.queries.clone(), content.keys.clone()));
        let by_position = by_position.map(|bias| for_batch(bias, shape[0]));
        let by_content = self.part.content_bias(layer, content);
        let inputs = if encoding.reads_bias {
            let biases = [by_position, by_content.clone()].into_iter().flatten();
            let bias = biases
                .map(|bias| bias.expand(shape))
                .reduce(|sum, bias| sum + bias)
                .unwrap_or_else(|| logits.zeros_like());
            // A pair that a mask hides reads as 0, as one past the query does.
            let masked = bias.clone().lower_elem(MASKED);
            let read = [logits, bias].map(|x| x.mask_fill(masked.clone(), 0.0));
            Tensor::cat(read.to_vec(), 1)
        } else {
            logits
        };
        let later = (encoding.kernel > 1).then(|| content.causal_mask().permute([0, 2, 3, 1]));
        let correction =
            encoding.functions[layer].of(content.ops, inputs, encoding.kernel, later, self.groups);
        Some(match by_content {
            Some(bias) => bias + correction,
            None => correction,
        })
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        self.part.output_bias(layer, content, weights)
    }
}

impl DapeConfig {
    fn reads_bias(&self, shape: &ModelShape) -> bool {
        let hooks = self.part.properties(shape).hooks;
        hooks.logits_bias || hooks.content_bias
    }
}

impl EncodingSpec for DapeConfig {
    type Module = Dape;
    const NAME: Option<&'static str> = Some("DAPE");
    const ABOUT: About = About {
        summary: "a network over the heads' logits and biases that corrects both",
        formula: "A + B + W2 leaky_relu(W1 [A; B] + b1) + b2, over heads; B the biases of the part",
        source: "Zheng et al. 2024, arXiv 2405.14722; version 2, arXiv 2410.04798",
        deviations: "with a kernel the hidden layer is 0 past the query as well; in the released \
                     code it is not, so that a row depends on whether a token follows it. `part` \
                     is as it is here: KERPLE's and FIRE's numbers are shared by layers, where \
                     the released code has a set per layer, and FIRE's own network has ReLU, \
                     where that code has leaky ReLU",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("hidden", self.hidden, 1..=4096, "the authors use 32")?;
        let hint = "1 is the first version, 3 the second";
        in_range("kernel", self.kernel, 1..=63, hint)?;
        if self.kernel.is_multiple_of(2) {
            return Err(ConfigError::new(
                "kernel",
                self.kernel,
                "must be odd, with as many keys on either side",
                "an odd number from 1 to 63",
                hint,
            ));
        }
        self.check_parts(shape)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.part.resolve(lengths);
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let heads = shape.n_heads;
        let inputs = if self.reads_bias(shape) {
            2 * heads
        } else {
            heads
        };
        let layer = |rows: usize, columns: usize, layer: usize, name: usize| {
            let rows = self.kernel * rows;
            let most = 1.0 / (rows as f64).sqrt();
            let uniform = Distribution::Uniform(-most, most);
            let path = |of: &str| format!("functions.{layer}.{of}{name}");
            [
                ParamSpec::new(path("w"), [rows, columns], uniform),
                ParamSpec::new(path("b"), [columns], uniform),
            ]
        };
        let part = self.part.parameters(shape).into_iter();
        let functions = (0..shape.n_layers).flat_map(|at| {
            let first = layer(inputs, self.hidden, at, 1);
            first.into_iter().chain(layer(self.hidden, heads, at, 2))
        });
        part.map(|spec| spec.within("part.0"))
            .chain(functions)
            .collect()
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        let part = self.part.properties(shape);
        // Inputs and the correction. A kernel over several keys also holds masked and padded
        // inputs, their copies by key, the hidden layer and its activation; the factor of the
        // hidden layer is measured (`scripts/memory target/release/longreach dape`).
        let (heads, width, kernel) = (shape.n_heads as f64, self.hidden as f64, self.kernel as f64);
        let numbers = match self.kernel {
            1 if self.reads_bias(shape) => 6.0,
            1 => 4.5,
            _ => 2.0 * (1.0 + kernel) + 8.0 + 2.8 * width / heads,
        };
        Facts {
            hooks: part.hooks | Hooks::CONTENT_BIAS,
            linear: false,
            // Its network reads the bias of the part at every logit, whatever made it.
            decays: false,
            causal_only: part.causal_only || self.kernel > 1,
            bias_workspace: part.bias_workspace + numbers,
            bias_kept: part.bias_kept + numbers,
            bias_work: part.bias_work
                + match self.kernel {
                    1 => 5.0,
                    _ => 4.0 * width / heads,
                },
            ..part
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::only(&self.part)]
    }

    fn example() -> Option<Self> {
        Some(Self {
            part: Box::new(super::AlibiConfig::default().into()),
            hidden: usual_width(),
            kernel: one(),
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Dape {
        Dape {
            part: vec![parameters.scoped("part.0", |part| self.part.build(shape, part))],
            functions: parameters.take_groups("functions", |layer| DapeFunction {
                w1: layer.take("w1"),
                b1: layer.take("b1"),
                w2: layer.take("w2"),
                b2: layer.take("b2"),
            }),
            kernel: self.kernel,
            reads_bias: self.reads_bias(shape),
        }
    }
}
