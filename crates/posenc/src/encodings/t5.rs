//! `t5`: a trained bias per head and bucket of distance, buckets growing with the logarithm.
//!
//! - Formula: a trained bias per head and bucket of distance d = query - key. Of `num_buckets` N
//!   buckets the first half hold one distance each; the rest grow with the logarithm up to
//!   `max_distance` M: `N/2 + floor(ln(d/(N/2)) / ln(M/(N/2)) N/2)`, capped.
//! - Source: Raffel et al. 2019 (arXiv 1910.10683), section 2.1; mesh-tensorflow; Hugging Face
//!   `T5Attention`.
//! - Parameters: `table`, `[num_buckets, H]`, shared by layers.
//! - Limits: causal only unless `bidirectional`; none of length: the last bucket has no end.
//!   Buckets that training never reached keep their initial values.

use crate::ConfigError;
use crate::distances::{Distances, by_head};
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{
    Bias, BiasBlocks, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk,
};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, NumberTable};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// `kind = "t5"`: configuration of [`T5`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct T5Config {
    /// Number of buckets of distances, 2 to 1000000; a multiple of 2, or of 4 with `bidirectional`.
    #[default = 32]
    pub num_buckets: usize,
    /// Distances in tokens from this one on share the last bucket, up to 1000000000; more than half
    /// of the buckets, or a quarter with `bidirectional`. Buckets beyond the training length are
    /// never trained.
    #[default = 128]
    pub max_distance: usize,
    /// Whether keys after the query have their own buckets, half of all.
    pub bidirectional: bool,
    /// Whether logits keep their division by sqrt(head_dim), which T5 itself does not have.
    #[default = true]
    pub scaled: bool,
    /// Standard deviation of the initial biases, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
}

impl T5Config {
    /// Bucket of `relative = key - query`.
    pub fn bucket(&self, relative: f64) -> usize {
        let buckets = if self.bidirectional {
            self.num_buckets / 2
        } else {
            self.num_buckets
        };
        let (first, distance) = match self.bidirectional {
            // Keys after the query read the second half of the table.
            true => (if relative > 0.0 { buckets } else { 0 }, relative.abs()),
            // Causal: keys after the query are hidden, and count as distance 0.
            false => (0, (-relative).max(0.0)),
        };
        let exact = buckets / 2;
        if distance < exact as f64 {
            return first + distance as usize;
        }
        let ratio =
            libm::log(distance / exact as f64) / libm::log(self.max_distance as f64 / exact as f64);
        let beyond = (ratio * (buckets - exact) as f64).floor() as usize;
        first + (exact + beyond).min(buckets - 1)
    }
}

/// A trained bias per bucket of distance.
#[derive(Module, Debug)]
pub struct T5 {
    table: Param<Tensor<2>>,
    head_dim: usize,
    #[module(skip)]
    config: T5Config,
}

struct PreparedT5<'a> {
    /// Per model, head and bucket.
    table: Tensor<3>,
    distances: Distances,
    encoding: &'a T5,
}

impl PositionalEncoding for T5 {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedT5 {
            table: by_head(self.table.val(), context.groups),
            distances: Distances::new(positions, &context.device),
            encoding: self,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedT5<'_> {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        // The model's head_dim: beside PoPE, heads are wider, but logits are divided by its root.
        (
            if self.encoding.config.scaled {
                q
            } else {
                q * (self.encoding.head_dim as f64).sqrt()
            },
            k,
        )
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        let factor = if self.encoding.config.scaled {
            1.0
        } else {
            (self.encoding.head_dim as f64).sqrt()
        };
        Some(FusedQk::new(None, factor))
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(self))
    }

    fn bias_layer(&self, _layer: usize) -> usize {
        0
    }
}

impl BiasBlocks for &PreparedT5<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distinct = self.distances.distinct(queries, keys);
        let buckets = distinct.rows(&self.table.device(), |distance| {
            self.encoding.config.bucket(-distance)
        });
        distinct.spread(self.table.clone().select(2, buckets))
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for T5Config {
    type Module = T5;
    const NAME: Option<&'static str> = Some("T5 bias");
    const ABOUT: About = About {
        summary: "a trained bias per head and bucket of distance, buckets growing with the \
                  logarithm",
        formula: "logits + table[bucket(query - key), h]",
        source: "Raffel et al. 2019, arXiv 1910.10683",
        deviations: "T5 does not divide logits by sqrt(head_dim); with `scaled = false` queries \
                     are multiplied by it, else not",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let step = if self.bidirectional { 4 } else { 2 };
        in_range(
            "num_buckets",
            self.num_buckets,
            step..=1_000_000,
            "T5 uses 32",
        )?;
        if !self.num_buckets.is_multiple_of(step) {
            let share = if self.bidirectional {
                "a quarter"
            } else {
                "half"
            };
            return Err(ConfigError::new(
                "num_buckets",
                self.num_buckets,
                format!("must be a multiple of {step}: {share} of them hold one distance each"),
                format!("a multiple of {step}"),
                "T5 uses 32",
            ));
        }
        let exact = self.num_buckets / step;
        in_range(
            "max_distance",
            self.max_distance,
            1..=1_000_000_000,
            "T5 uses 128",
        )?;
        if self.max_distance <= exact {
            return Err(ConfigError::new(
                "max_distance",
                self.max_distance,
                format!("is already reached by the {exact} buckets of one distance each"),
                format!("above {exact}"),
                "raise max_distance or lower num_buckets",
            ));
        }
        in_range("init_std", self.init_std, 0.0..=10.0, "0.02 by default")
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let init = Distribution::Normal(self.init_std);
        vec![ParamSpec::new(
            "table",
            [self.num_buckets, shape.n_heads],
            init,
        )]
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            // Without buckets for keys after the query, all of those are at distance 0.
            causal_only: !self.bidirectional,
            bias_workspace: 4.0,
            ..Facts::new(Hooks::LOGITS_BIAS | Hooks::TRANSFORM_QK.when(!self.scaled))
        }
    }

    fn numbers(&self, _shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
        let last = lengths.test_len.saturating_sub(1);
        let bucket = |distance: f64| self.bucket(-distance) as f64;
        let columns = ["distance", "bucket"];
        vec![NumberTable::of_function(
            "buckets of keys before the query",
            columns,
            last,
            bucket,
        )]
    }

    fn untrained(&self, train_len: usize, test_len: usize) -> Option<String> {
        let last = |length: usize| self.bucket(-(length.saturating_sub(1) as f64));
        let exact = if self.bidirectional {
            self.num_buckets / 4
        } else {
            self.num_buckets / 2
        };
        let half = train_len / 2;
        let help = if half > exact {
            format!("`max_distance = {half}`, half the training length, trains all")
        } else {
            "fewer buckets or a smaller `max_distance` train all".to_owned()
        };
        (last(test_len) > last(train_len)).then(|| {
            format!(
                "training never reads its buckets for distances of {train_len} tokens and more, \
                 and tests do: {help}"
            )
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> T5 {
        T5 {
            table: parameters.take("table"),
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
