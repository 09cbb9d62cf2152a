//! `alibi`: a penalty on the logits linear in distance, one fixed slope per head.
//!
//! - Formula: `-slope_scale slope_h / factor |query - key|` added to the logits after the division
//!   by sqrt(head_dim); `log_distance`: `ln(1 + |query - key|)` in place of the distance.
//! - Source: Press et al. 2021 (arXiv 2108.12409), section 3; the authors' code for head counts
//!   that are not powers of two. `factor`: slopes interpolated at test time, Al-Khateeb et al.
//!   2023 (arXiv 2310.13017). `slope_scale`: BiPE, He et al. 2024 (arXiv 2401.16421), whose code
//!   multiplies the slopes by 96, for distances in segments. `slopes`: those of other programs, as
//!   MPT's, whose `alibi_bias_max` b gives `2^(-b h/H)`. `log_distance`: Schroeder et al. 2026
//!   (arXiv 2608.03994), the mitigation that a digest of the paper gives with this formula.
//! - Parameters: none.
//! - Limits: none; distances are exact below 2^24.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{BiasAlone, BiasBlocks, Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::scaling::Factor;
use crate::spec::{About, EncodingSpec};
use crate::tensors::upload;
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// `kind = "alibi"`: configuration of [`Alibi`]; any number of heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AlibiConfig {
    /// Divides the slopes, 1 to 1000000; `"auto"` is test length over training length, at least 1,
    /// and 1 in `model.pe`.
    #[serde(skip_serializing_if = "is_one")]
    #[default(Factor::Fixed(1.0))]
    pub factor: Factor,
    /// One slope per head, 0 to 1000000, instead of those of the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slopes: Option<Vec<f64>>,
    /// Multiplies the slopes, 1e-6 to 1e6; BiPE has 96 for distances in segments.
    #[serde(skip_serializing_if = "is_unit")]
    #[default = 1.0]
    pub slope_scale: f64,
    /// Whether keys before the query are penalised as if half a token nearer (DeepMind).
    #[serde(skip_serializing_if = "schema::is_default")]
    pub asymmetric: bool,
    /// Whether the penalty is linear in `ln(1 + distance)`, so that far keys keep a weight.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub log_distance: bool,
}

impl AlibiConfig {
    fn check_log_distance(&self) -> Result<(), ConfigError> {
        if !(self.log_distance && self.asymmetric) {
            return Ok(());
        }
        Err(ConfigError::new(
            "log_distance",
            true,
            "is not defined for distances that are half a token short",
            "false where asymmetric = true",
            "remove one of the two",
        ))
    }

    /// The slopes of the heads, times `slope_scale` and over the factor.
    fn scaled(&self, n_heads: usize, factor: f64) -> Vec<f64> {
        let own = self.slopes.clone();
        let slopes = own.unwrap_or_else(|| slopes(n_heads)).into_iter();
        slopes
            .map(|slope| slope * self.slope_scale / factor)
            .collect()
    }

    fn check_slopes(&self, n_heads: usize) -> Result<(), ConfigError> {
        let given = self.slopes.iter().flatten().enumerate();
        for (head, slope) in given {
            let hint = "0 leaves a head without a penalty; the paper has 2^(-8h/H)";
            in_range(&format!("slopes.{head}"), *slope, 0.0..=1e6, hint)?;
        }
        match &self.slopes {
            Some(slopes) if slopes.len() != n_heads => Err(ConfigError::new(
                "slopes",
                format!("{slopes:?}"),
                format!("has {} slopes for {n_heads} heads", slopes.len()),
                format!("{n_heads} numbers"),
                "give one slope per head, or leave it out for 2^(-8h/H)",
            )),
            _ => Ok(()),
        }
    }
}

fn is_one(factor: &Factor) -> bool {
    *factor == Factor::Fixed(1.0)
}

fn is_unit(scale: &f64) -> bool {
    *scale == 1.0
}

/// Linear penalty on distance, one fixed slope per head.
#[derive(Module, Debug)]
pub struct Alibi {
    #[module(skip)]
    slopes: Vec<f64>,
    asymmetric: bool,
    log_distance: bool,
}

struct PreparedAlibi {
    slopes: Tensor<4>,
    distances: Distances,
    asymmetric: bool,
    log_distance: bool,
    decays: bool,
}

/// Slopes of the heads: `2^(-8h/H)` for `h = 1..=H` where `H` is a power of two; otherwise those of
/// the largest power of two `P < H`, followed by every other slope of `2P`, in that order and
/// unsorted.
pub fn slopes(n_heads: usize) -> Vec<f64> {
    let of_power = |p: usize| (1..=p).map(move |h| libm::exp2(-8.0 * h as f64 / p as f64));
    let power = if n_heads == 0 {
        0
    } else {
        1 << n_heads.ilog2()
    };
    of_power(power)
        .chain(of_power(2 * power).step_by(2))
        .take(n_heads)
        .collect()
}

impl PositionalEncoding for Alibi {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let slopes: Vec<f64> = self.slopes.iter().map(|slope| -slope).collect();
        let shape = [1, slopes.len(), 1, 1];
        Ok(Box::new(BiasAlone(PreparedAlibi {
            slopes: upload(slopes, shape, &context.device),
            distances: Distances::new(positions, &context.device),
            asymmetric: self.asymmetric,
            log_distance: self.log_distance,
            // Replaced distances do not add up along a path, as a decay must, nor do logarithms,
            // nor distances that are all half a token short.
            decays: !positions.replaces_distances() && !self.asymmetric && !self.log_distance,
        })))
    }
}

impl BiasBlocks for &PreparedAlibi {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distance = self.distances.block(queries, keys);
        let penalised = if self.asymmetric {
            distance.clone().abs() - distance.greater_elem(0.0).float() * 0.5
        } else if self.log_distance {
            distance.abs().log1p()
        } else {
            distance.abs()
        };
        penalised * self.slopes.clone()
    }

    fn is_decay(&self) -> bool {
        self.decays
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for AlibiConfig {
    type Module = Alibi;
    const NAME: Option<&'static str> = Some("ALiBi");
    const ABOUT: About = About {
        summary: "a penalty on the logits linear in distance, one fixed slope per head",
        formula: "logits - slope_h |query - key|, slope_h = 2^(-8h/H) where H is a power of two",
        source: "Press et al. 2021, arXiv 2108.12409",
        deviations: "the symmetric form for keys after the query, which a causal mask hides; the \
                     authors add `slope_h key`, equal up to a constant per row, which cancels in \
                     the softmax. `asymmetric` is DeepMind's form for bidirectional attention \
                     (Ruoss et al. 2023, arXiv 2305.16843): half a slope less for keys before the \
                     query, so that left and right differ. `log_distance` is the mitigation of \
                     Schroeder et al. 2026 (arXiv 2608.03994) for weights that f32 rounds to 0, \
                     `slope_h ln(1 + |query - key|)`; its formula is from second hand. It is \
                     KERPLE (log) with r1 = slope_h and r2 = 1, not trained",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        self.check_slopes(shape.n_heads)?;
        let hint = "BiPE has 96 for distances in segments";
        in_range("slope_scale", self.slope_scale, 1e-6..=1e6, hint)?;
        self.check_log_distance()?;
        self.factor.check("factor")
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.factor.resolve(lengths.trained_len, lengths);
    }

    fn unresolved(&self) -> Option<String> {
        self.factor.unresolved().map(str::to_owned)
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            linear: !self.asymmetric && !self.log_distance,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn slopes(&self, shape: &ModelShape) -> Option<Vec<f64>> {
        let factor = self.factor.fixed().filter(|_| !self.log_distance)?;
        Some(self.scaled(shape.n_heads, factor))
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> Alibi {
        Alibi {
            slopes: self.scaled(shape.n_heads, self.factor.value()),
            asymmetric: self.asymmetric,
            log_distance: self.log_distance,
        }
    }
}
