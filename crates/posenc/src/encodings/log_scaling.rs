//! `log_scaling`: logits that grow with the logarithm of the query's position, against attention
//! spreading thin.
//!
//! - Formula: queries are multiplied by `max(1, ln(p + 1) / ln L)`, or, in the form of Llama 4, by
//!   `1 + strength ln(floor((p + 1) / L) + 1)`, or, in that of Scalable-Softmax, by `s ln(p + 1)`
//!   with a trained s per head and layer.
//! - Source: entropy-invariant attention, Su 2021 (kexue.fm 8823) and bojone/rerope; Chiang and
//!   Cholak 2022 (arXiv 2202.12172). `llama4`: Hugging Face's Llama 4, layers without RoPE.
//!   `ssmax`: Nakanishi 2025 (arXiv 2501.19399), without its bias, which the paper finds to harm
//!   longer sequences.
//! - Parameters: none; in the form `ssmax` `scale.L`, `[H]`, per layer L.
//! - Limits: causal only: p + 1 is the number of keys a query sees, where positions are contiguous.
//!   Drawn and interpolated positions are taken as they are. Meant for a `stack`, at training or at
//!   test time.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::{for_batch, upload};
use crate::values::{in_range_if_set, resolved, unset};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// How the logits grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogScalingForm {
    /// `max(1, ln(p + 1) / ln L)`.
    #[default]
    LogN,
    /// `1 + strength ln(floor((p + 1) / L) + 1)`.
    Llama4,
    /// `s ln(p + 1)`, s trained.
    Ssmax,
}

/// `kind = "log_scaling"`: configuration of [`LogScaling`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LogScalingConfig {
    /// How the logits grow.
    #[default(LogScalingForm::LogN)]
    pub form: LogScalingForm,
    /// `L` in tokens, 2 to 1000000000, up to which nothing changes; the training length unless
    /// given. Llama 4's `floor_scale`. The form `ssmax` does not read it.
    pub original_max_position_embeddings: Option<usize>,
    /// Factor on the logarithm in the form `llama4`, 0 to 100; Llama 4's `attn_scale`.
    #[default(STRENGTH)]
    pub strength: f64,
    /// What s starts from in the form `ssmax`, 0 to 100.
    #[serde(skip_serializing_if = "is_default_scale")]
    #[default(INIT_SCALE)]
    pub init_scale: f64,
}

/// Defaults of the keys above.
const STRENGTH: f64 = 0.1;
const INIT_SCALE: f64 = 0.43;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_default_scale(scale: &f64) -> bool {
    *scale == INIT_SCALE
}

impl LogScalingConfig {
    /// The factor on a query at `position`, without the trained one.
    ///
    /// # Panics
    ///
    /// If `original_max_position_embeddings` is not resolved.
    pub fn factor(&self, position: f64) -> f64 {
        let original = resolved(self.original_max_position_embeddings) as f64;
        match self.form {
            LogScalingForm::LogN => (libm::log(position + 1.0) / libm::log(original)).max(1.0),
            LogScalingForm::Llama4 => {
                1.0 + self.strength * libm::log(((position + 1.0) / original).floor() + 1.0)
            }
            LogScalingForm::Ssmax => libm::log(position + 1.0),
        }
    }
}

/// Logits that grow with the logarithm of the query's position.
#[derive(Module, Debug)]
pub struct LogScaling {
    /// Per layer, if trained.
    scale: Vec<Param<Tensor<1>>>,
    #[module(skip)]
    config: LogScalingConfig,
}

struct PreparedLogScaling<'a> {
    factors: Tensor<4>,
    scale: &'a [Param<Tensor<1>>],
}

impl PositionalEncoding for LogScaling {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let factors: Vec<f64> = positions
            .queries()
            .iter()
            .map(|p| self.config.factor(*p))
            .collect();
        let shape = [1, 1, factors.len(), 1];
        Ok(Box::new(PreparedLogScaling {
            factors: upload(factors, shape, &context.device),
            scale: &self.scale,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedLogScaling<'_> {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let q = q * self.factors.clone();
        let Some(scale) = self.scale.get(layer) else {
            return (q, k);
        };
        let ([batch, heads, ..], [all_heads]) = (q.dims(), scale.val().dims());
        let scale = scale.val().reshape([all_heads / heads, heads, 1, 1]);
        (q * for_batch(scale, batch), k)
    }
}

impl EncodingSpec for LogScalingConfig {
    type Module = LogScaling;
    const ABOUT: About = About {
        summary: "logits that grow with the logarithm of the query's position, against attention \
                  spreading thin",
        formula: "q_p max(1, ln(p + 1) / ln L); ssmax: q_p s_h ln(p + 1) with a trained s",
        source: "Su 2021, kexue.fm 8823; Chiang and Cholak 2022, arXiv 2202.12172",
        deviations: "none",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "leave it out for the training length";
        let original = self.original_max_position_embeddings;
        in_range_if_set(
            "original_max_position_embeddings",
            original,
            2..=1_000_000_000,
            hint,
        )?;
        in_range("strength", self.strength, 0.0..=100.0, "Llama 4 uses 0.1")?;
        if self.form != LogScalingForm::Llama4 && self.strength != STRENGTH {
            return Err(ConfigError::new(
                "strength",
                self.strength,
                "has no effect: only the form `llama4` reads it",
                "nothing",
                "use form = \"llama4\" or remove strength",
            ));
        }
        if self.form != LogScalingForm::Ssmax && self.init_scale != INIT_SCALE {
            return Err(ConfigError::new(
                "init_scale",
                self.init_scale,
                "has no effect: only the form `ssmax` has a trained factor",
                "nothing",
                "use form = \"ssmax\" or remove init_scale",
            ));
        }
        in_range(
            "init_scale",
            self.init_scale,
            0.0..=100.0,
            "the paper's is 0.43 on average",
        )
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let start = Distribution::Constant(self.init_scale);
        let trained = self.form == LogScalingForm::Ssmax;
        let layers = (0..shape.n_layers).filter(|_| trained);
        let scale = |layer| ParamSpec::new(format!("scale.{layer}"), [shape.n_heads], start);
        layers.map(scale).collect()
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.original_max_position_embeddings
            .get_or_insert(lengths.trained_len.max(2));
    }

    fn unresolved(&self) -> Option<String> {
        unset(
            "original_max_position_embeddings",
            self.original_max_position_embeddings,
        )
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            linear: true,
            causal_only: true,
            transform_workspace: 3.0,
            transform_kept: 3.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, _shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
        let (last, columns) = (lengths.test_len.saturating_sub(1), ["position", "factor"]);
        let factor = |position| self.factor(position);
        vec![NumberTable::of_function(
            "factors on queries",
            columns,
            last,
            factor,
        )]
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> LogScaling {
        LogScaling {
            scale: parameters.take_list("scale"),
            config: self.clone(),
        }
    }
}
