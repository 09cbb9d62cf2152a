//! One pre-norm block: attention and a feed-forward network, each added to the residual stream. The
//! network may be absent.

use crate::attention::Attention;
use crate::config::{Activation, TransformerConfig};
use crate::init::matrix_std;
use crate::layer_biases::LayerBiases;
use crate::linear::{affine, bias, linear};
use crate::norm::Norm;
use crate::pass::{Pass, Past};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use kernels::Matmul;
use posenc::{Distribution, Init, Prepared};

/// `x + attention(norm(x))`, then `x + mlp(norm(x))` where blocks have an MLP.
#[derive(Module, Debug)]
pub struct Block {
    attention_norm: Norm,
    attention: Attention,
    /// There with an MLP.
    mlp_norm: Option<Norm>,
    mlp: Option<Mlp>,
}

/// The feed-forward network of a block.
#[derive(Module, Debug)]
pub struct Mlp {
    up: Param<Tensor<2>>,
    up_bias: Option<Param<Tensor<1>>>,
    /// Present for gated activations.
    gate: Option<Param<Tensor<2>>>,
    gate_bias: Option<Param<Tensor<1>>>,
    down: Param<Tensor<2>>,
    down_bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    matmul: Matmul,
}

impl Block {
    pub(crate) fn new(config: &TransformerConfig, init: &Init<'_>) -> Self {
        Self {
            attention_norm: Norm::new(config.norm, config.d_model, &init.scope("attention_norm")),
            attention: Attention::new(config, &init.scope("attention")),
            mlp_norm: config
                .has_mlp()
                .then(|| Norm::new(config.norm, config.d_model, &init.scope("mlp_norm"))),
            mlp: config
                .has_mlp()
                .then(|| Mlp::new(config, &init.scope("mlp"))),
        }
    }

    /// The residual stream `[B, L, d_model]` after this block. `past` holds the earlier tokens;
    /// these are appended. `biases` are those of the pass.
    pub fn forward(
        &self,
        x: Tensor<3>,
        layer: usize,
        encoding: &dyn Prepared,
        biases: &LayerBiases,
        pass: &Pass<'_>,
        past: Option<&mut Past>,
    ) -> Tensor<3> {
        // Dropout lies between a network and its residual sum, and a cache needs the keys: both
        // rule the fused operation out.
        let fused = pass.dropout.is_none();
        let attended = match past {
            None if fused => self.attention.forward_residual(
                &x,
                &self.attention_norm,
                layer,
                encoding,
                biases,
                pass.max_logits,
            ),
            _ => None,
        };
        let x = attended.unwrap_or_else(|| {
            let attended = self.attention.forward(
                self.attention_norm.forward(x.clone()),
                layer,
                encoding,
                pass,
                past,
            );
            x + pass.apply_dropout(2 * layer + 1, attended)
        });
        let (Some(mlp), Some(norm)) = (&self.mlp, &self.mlp_norm) else {
            return x;
        };
        if fused {
            return mlp.forward_residual(x, norm);
        }
        // Dropout sites: 0 is the embedding, then two per layer.
        let fed = mlp.forward(x.clone(), norm);
        x + pass.apply_dropout(2 * layer + 2, fed)
    }
}

impl Mlp {
    fn new(config: &TransformerConfig, init: &Init<'_>) -> Self {
        let (d, ff) = (config.d_model, config.d_ff);
        // As for the output of attention: the same variance of the residual stream at any depth.
        let depth = (config.residual_sums() as f64).sqrt();
        let gated = config.activation == Activation::Swiglu;
        Self {
            up: init.param("up", [d, ff], Distribution::Normal(matrix_std(config, d))),
            up_bias: bias(config, "up_bias", ff, init),
            gate: gated
                .then(|| init.param("gate", [d, ff], Distribution::Normal(matrix_std(config, d)))),
            gate_bias: gated.then(|| bias(config, "gate_bias", ff, init)).flatten(),
            down: init.param(
                "down",
                [ff, d],
                Distribution::Normal(matrix_std(config, ff) / depth),
            ),
            down_bias: bias(config, "down_bias", d, init),
            matmul: config.matmul,
        }
    }

    /// The output for `x`, `[B, L, d_model]`, without the residual sum.
    pub fn forward(&self, x: Tensor<3>, norm: &Norm) -> Tensor<3> {
        let shape = x.dims();
        let [batch, length, d_model] = shape;
        let x = norm.forward(x).reshape([batch * length, d_model]);
        let up = linear(x.clone(), &self.up, self.up_bias.as_ref(), self.matmul);
        let inner = match &self.gate {
            None => kernels::gelu(up),
            Some(gate) => {
                let gate = linear(x, gate, self.gate_bias.as_ref(), self.matmul);
                kernels::swiglu(gate, up)
            }
        };
        linear(inner, &self.down, self.down_bias.as_ref(), self.matmul).reshape(shape)
    }

    /// `x` plus the output of [`forward`](Self::forward), as one fused operation.
    pub fn forward_residual(&self, x: Tensor<3>, norm: &Norm) -> Tensor<3> {
        let shape = x.dims();
        let [batch, length, d_model] = shape;
        let gate = self.gate.as_ref();
        let weights = kernels::MlpWeights {
            up: affine(&self.up, self.up_bias.as_ref()),
            gate: gate.map(|gate| affine(gate, self.gate_bias.as_ref())),
            down: affine(&self.down, self.down_bias.as_ref()),
            matmul: self.matmul,
        };
        kernels::mlp(
            x.reshape([batch * length, d_model]),
            norm.parameters(),
            weights,
        )
        .reshape(shape)
    }
}
