//! A number that may be `"auto"`.

use crate::ConfigError;
use crate::facts::Lengths;
use schema::in_range;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A number, or `"auto"`: for the key `factor`, test length over training length, never below 1.
///
/// That `auto` has no value until it is resolved; a configuration that still holds it is not built.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Factor {
    /// Test length over training length.
    #[default]
    Auto,
    /// This factor at every length.
    Fixed(f64),
}

impl Factor {
    /// Replaces `auto`: the test length over `original`, at least 1.
    pub(crate) fn resolve(&mut self, original: usize, lengths: &Lengths) {
        if *self == Self::Auto {
            *self = Self::Fixed((lengths.test_len as f64 / original.max(1) as f64).max(1.0));
        }
    }

    pub(crate) fn check(self, key: &str) -> Result<(), ConfigError> {
        match self {
            Self::Auto => Ok(()),
            Self::Fixed(factor) => {
                let hint = "use \"auto\" for test length over training length";
                in_range(key, factor, 1.0..=1e6, hint)
            }
        }
    }

    /// The factor, if it is resolved.
    pub(crate) fn fixed(self) -> Option<f64> {
        match self {
            Self::Auto => None,
            Self::Fixed(factor) => Some(factor),
        }
    }

    pub(crate) fn unresolved(self) -> Option<&'static str> {
        (self == Self::Auto).then_some("factor")
    }

    /// The factor, once it is resolved.
    pub(crate) fn value(self) -> f64 {
        crate::values::resolved(self.fixed())
    }
}
impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(factor) => serializer.serialize_f64(*factor),
        }
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FactorVisitor;
        impl de::Visitor<'_> for FactorVisitor {
            type Value = Factor;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"auto\"")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Factor, E> {
                Ok(Factor::Fixed(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Factor, E> {
                Ok(Factor::Fixed(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Factor, E> {
                Ok(Factor::Fixed(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Factor, E> {
                if value == "auto" {
                    Ok(Factor::Auto)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(value), &self))
                }
            }
        }
        deserializer.deserialize_any(FactorVisitor)
    }
}
