//! Tagged tables: `{ kind = "copy", alphabet = 4 }` read without a buffer, so that errors keep the
//! exact path of their key.
//!
//! serde's own internally tagged enums collect the table first and replay it, and an error inside
//! then has no key. Here the tag must be the first key of its table, and all later entries stream
//! straight into the type that the tag names.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// Reads the first entry of `map`, which must be `tag`, and returns which of `names` it holds.
pub(crate) fn read_tag<'de, A: MapAccess<'de>>(
    map: &mut A,
    tag: &'static str,
    names: &'static [&'static str],
) -> Result<&'static str, A::Error> {
    match map.next_key::<String>()? {
        Some(key) if key == tag => map.next_value_seed(Names(names)),
        // Readers put the tag first where there is one, so another first key means that it is
        // missing.
        _ => Err(A::Error::missing_field(tag)),
    }
}

fn list(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

struct Names(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Names {
    type Value = &'static str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Names {
    type Value = &'static str;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", list(self.0))
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.0
            .iter()
            .find(|known| **known == name)
            .copied()
            .ok_or_else(|| E::unknown_variant(name, self.0))
    }
}

/// `tagged!(Type, "tag", "name" => Variant, ...)` implements `Deserialize` for an enum of newtype
/// variants over strict structs.
macro_rules! tagged {
    ($enum:ident, $tag:literal, $($name:literal => $variant:ident),+ $(,)?) => {
        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Table;
                impl<'de> serde::de::Visitor<'de> for Table {
                    type Value = $enum;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a table whose first key is `", $tag, "`"))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$enum, A::Error> {
                        let name = $crate::tagged::read_tag(&mut map, $tag, &[$($name),+])?;
                        let rest = serde::de::value::MapAccessDeserializer::new(map);
                        match name {
                            $($name => serde::Deserialize::deserialize(rest).map($enum::$variant),)+
                            _ => unreachable!("read_tag returns a listed name"),
                        }
                    }
                }
                deserializer.deserialize_map(Table)
            }
        }
    };
}
pub(crate) use tagged;
