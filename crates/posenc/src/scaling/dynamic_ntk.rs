//! NTK-aware scaling by the length of every forward pass.

use super::ntk::{check_dim, stretched_base};
use super::{OriginalLength, Scaling, Unscaled};
use crate::ConfigError;
use crate::frequencies::{Frequencies, inv_freq};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Dynamic NTK: `base' = base (s T/L - (s - 1))^(d/(d-2))` for `T > L`, plain otherwise. Reads the
/// length of every forward pass and keeps no state between them. Hugging Face `dynamic`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DynamicNtkScaling {
    /// Factor `s`, 1 to 1000000; 1 already scales with the length.
    #[default = 1.0]
    pub factor: f64,
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

impl Scaling for DynamicNtkScaling {
    const NAME: Option<&'static str> = Some("dynamic NTK");
    const READS_LENGTH: bool = true;
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, length: f64) -> Frequencies {
        let original = self.original_max_position_embeddings.value();
        // 1 up to L, whatever `factor` is, and linear in the length beyond.
        let factor = self.factor * length.max(original) / original - (self.factor - 1.0);
        let base = stretched_base(plain.base, plain.dim, factor);
        Frequencies::new(inv_freq(plain.dim, base))
    }

    fn check(&self, dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        let hint = "1 scales by test length over training length";
        in_range("factor", self.factor, 1.0..=1e6, hint)?;
        check_dim("dynamic_ntk", dim)
    }

    resolved_by_lengths!();
}
