//! LongRoPE: one searched factor per pair.

use super::{Factor, OriginalLength, Scaling, Unscaled};
use crate::ConfigError;
use crate::facts::Lengths;
use crate::frequencies::Frequencies;
use crate::values::in_range_if_set;
use schema::in_range;
use serde::{Deserialize, Serialize};

/// LongRoPE: `theta_i / f_i` with one searched factor per pair, `short_factor` up to `L` and
/// `long_factor` beyond; attention factor `sqrt(1 + ln s / ln L)` at every length. Ding et al. 2024
/// (arXiv 2402.13753); Hugging Face `longrope`. Reads the length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LongropeScaling {
    /// Factor `s`, 1 to 1000000, the length aimed at over `L`, for the attention factor only, and
    /// not read beside `attention_factor`; `"auto"`: test length over `L`, at least 1; in
    /// `model.pe` training length over `L`.
    #[serde(default)]
    pub factor: Factor,
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    #[serde(default)]
    pub original_max_position_embeddings: Option<usize>,
    /// Divisors of the frequencies up to `L`, 0.001 to 1e6, one per pair, fastest first.
    pub short_factor: Vec<f64>,
    /// Divisors of the frequencies beyond `L`, 0.001 to 1e6, one per pair, fastest first.
    pub long_factor: Vec<f64>,
    /// Factor on cos and sin, 0.001 to 1000, instead of the formula.
    #[serde(default)]
    pub attention_factor: Option<f64>,
}

impl Scaling for LongropeScaling {
    const NAME: Option<&'static str> = Some("LongRoPE");
    const READS_LENGTH: bool = true;

    fn scale(&self, plain: &Unscaled, length: f64) -> Frequencies {
        let original = self.original_max_position_embeddings.value();
        // The whole sequence goes by one list: its length decides, not each position.
        let factors = if length <= original {
            &self.short_factor
        } else {
            &self.long_factor
        };
        let scaled = plain.inv_freq.iter().zip(factors);
        let formula = || match self.factor.value() {
            s if s <= 1.0 => 1.0,
            // ln(1) = 0 must not be a denominator: L = 1 counts as 2.
            s => (1.0 + libm::log(s) / libm::log(original.max(2.0))).sqrt(),
        };
        Frequencies {
            inv_freq: scaled.map(|(theta, factor)| theta / factor).collect(),
            attention_factor: self.attention_factor.unwrap_or_else(formula),
        }
    }

    fn check(&self, dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")?;
        let hint = "leave it out for sqrt(1 + ln(factor) / ln(L))";
        in_range_if_set("attention_factor", self.attention_factor, 1e-3..=1e3, hint)?;
        check_factors("short_factor", &self.short_factor, dim / 2)?;
        check_factors("long_factor", &self.long_factor, dim / 2)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        let original = self.original_max_position_embeddings.resolve(lengths);
        self.factor.resolve(original, lengths);
    }

    fn unresolved(&self) -> Option<&'static str> {
        let original = self.original_max_position_embeddings.unresolved();
        // The factor matters to the formula of the attention factor only.
        original.or_else(|| match self.attention_factor {
            Some(_) => None,
            None => self.factor.unresolved(),
        })
    }
}

fn check_factors(key: &str, factors: &[f64], pairs: usize) -> Result<(), ConfigError> {
    if factors.len() != pairs {
        return Err(ConfigError::new(
            key,
            format!("{factors:?}"),
            format!(
                "has {} factors for {pairs} pairs of dimensions",
                factors.len()
            ),
            format!("{pairs} numbers"),
            "give one factor per pair, fastest first",
        ));
    }
    factors.iter().enumerate().try_for_each(|(i, factor)| {
        let hint = "1 leaves a pair unchanged";
        in_range(&format!("{key}.{i}"), *factor, 1e-3..=1e6, hint)
    })
}
