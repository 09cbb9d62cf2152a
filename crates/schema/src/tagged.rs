//! Tables tagged by `kind`: `{ kind = "copy", alphabet = 4 }`.
//!
//! Serde's internally tagged enums collect the table first and replay it, and an error inside then
//! has lost its key. [`tagged!`](crate::tagged!) requires the tag to be the first key of its table
//! and streams all later entries into the type that the tag names, so errors keep their full path.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::fmt;

/// Reads the first entry of `map`, whose key must be `tag`, and returns its index in `names`.
///
/// # Errors
///
/// `missing_field` if the first key is another one, `unknown_variant` for a name not in the list.
pub fn read_tag<'de, A: MapAccess<'de>>(
    map: &mut A,
    tag: &'static str,
    names: &'static [&'static str],
) -> Result<usize, A::Error> {
    match map.next_key::<String>()? {
        Some(key) if key == tag => map.next_value_seed(Names(names)),
        // Readers move the tag to the front where there is one, so another first key means that
        // the tag is missing.
        _ => Err(A::Error::missing_field(tag)),
    }
}

struct Names(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Names {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Names {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of `{}`", self.0.join("`, `"))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let found = self.0.iter().position(|known| *known == name);
        found.ok_or_else(|| E::unknown_variant(name, self.0))
    }
}

/// Declares an enum that is read from and written as a table tagged by its first key.
///
/// The tag is `kind` unless the enum's name is followed by `by "TAG"`. Variants hold strict structs
/// (`#[serde(deny_unknown_fields)]`). The enum implements `Serialize` and `Deserialize`, so the
/// calling crate must depend on `serde`, and has
///
/// - `KINDS`: every tag, in the order of the list,
/// - `kind(&self)`: the tag of a value,
/// - `default_of(kind)`: the value of a table that holds its tag only, or `None` if there is no
///   such kind or one of its keys has no default.
///
/// ```
/// longreach_schema::tagged! {
///     /// How a learning rate falls.
///     #[derive(Clone, Debug, PartialEq)]
///     pub enum Schedule {
///         "constant" => Constant(Constant),
///         /// A straight line.
///         "linear" => Linear(Linear),
///     }
/// }
///
/// #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
/// #[serde(deny_unknown_fields)]
/// pub struct Constant {}
///
/// #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
/// #[serde(deny_unknown_fields, default)]
/// pub struct Linear {
///     to: f64,
/// }
///
/// let linear: Schedule = serde_json::from_str(r#"{ "kind": "linear", "to": 0.5 }"#).unwrap();
/// assert_eq!((linear.kind(), Schedule::KINDS), ("linear", &["constant", "linear"][..]));
/// assert_eq!(Schedule::default_of("linear"), Some(Schedule::Linear(Linear { to: 0.0 })));
/// ```
#[macro_export]
macro_rules! tagged {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($variants:tt)+ }) => {
        $crate::tagged! { $(#[$meta])* $vis enum $name by "kind" { $($variants)+ } }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident by $tag:literal {
            $($(#[$variant_meta:meta])* $kind:literal => $variant:ident($config:ty)),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(serde::Serialize)]
        #[serde(tag = $tag)]
        $vis enum $name {
            $(
                #[doc = concat!("`", $tag, " = \"", $kind, "\"`")]
                #[doc = ""]
                $(#[$variant_meta])*
                #[serde(rename = $kind)]
                $variant($config),
            )+
        }

        impl $name {
            #[doc = concat!("Every `", $tag, "`, in the order of the list.")]
            pub const KINDS: &'static [&'static str] = &[$($kind),+];

            #[doc = concat!("The `", $tag, "` of this table.")]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)+
                }
            }

            #[doc = concat!("The table of this `", $tag, "` with every other key left out.")]
            ///
            /// `None` if there is no such kind, or if one of its keys has no default.
            pub fn default_of(kind: &str) -> Option<Self> {
                let entries = std::iter::once(($tag, kind));
                let table = serde::de::value::MapDeserializer::<_, serde::de::value::Error>::new(
                    entries,
                );
                <Self as serde::Deserialize>::deserialize(table).ok()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Table;

                impl<'de> serde::de::Visitor<'de> for Table {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a table with `", $tag, "`"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        type Read<A, E> = fn(A) -> Result<$name, E>;
                        // In the order of KINDS, so that the index of a tag is that of its reader.
                        let readers: &[Read<A, A::Error>] = &[$(
                            |rest| {
                                let rest = serde::de::value::MapAccessDeserializer::new(rest);
                                <$config as serde::Deserialize>::deserialize(rest)
                                    .map($name::$variant)
                            }
                        ),+];
                        let index = $crate::tagged::read_tag(&mut map, $tag, $name::KINDS)?;
                        readers[index](map)
                    }
                }

                deserializer.deserialize_map(Table)
            }
        }
    };
}
