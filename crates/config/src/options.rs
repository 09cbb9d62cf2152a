//! The one declaration of the keys of a table of a config.

use crate::axes::Cell;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;

/// Declares a table of a config, key by key: its struct as written, the strict reader with every
/// default, the list of keys (`KEYS`) that documentation, schema, completions and hints are made
/// of, and the check of every range (`check_ranges`).
///
/// A line reads `NAME: TYPE = DEFAULT => KIND, EXAMPLE, MEANING, HELP;`. Without a default the key
/// must be there. `= or("TEXT")` is a key that may be missing, with a text for what holds then;
/// `= unset("TEXT")` is the default of its type, and `= needed("TEXT")` a key that must be there if
/// the table is. `HELP` ends the error of a value out of range. Tables inside the table follow in
/// `tables { .. }`, `= required` if they must be there; their keys are declared elsewhere.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        [$path:literal] $vis:vis struct $name:ident {
            $($(#[$attribute:meta])* $field:ident: $type:ty $(= $default:tt $(($text:tt))?)?
                => $kind:ident $(($($range:tt)*))?, $example:literal, $meaning:literal
                $(, $help:literal)?;)*
        }
        $(tables { $($table:ident: $inner:ty $(= $need:ident)?;)* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[$attribute])* #[doc = $meaning] $vis $field: $type,)*
            $($(
                #[doc = concat!("The table `", stringify!($table), "`.")]
                $vis $table: $inner,
            )*)?
        }

        impl $name {
            /// Its keys in the order of a file.
            pub const KEYS: &[$crate::key::Key] = &[$($crate::key::Key {
                path: concat!($path, stringify!($field)),
                kind: $crate::key::Kind::$kind $(($($range)*))?,
                default: $crate::options!(@text $($default $(($text))?)?),
                example: $example,
                meaning: $meaning,
            },)*];

            /// Refuses the first number outside its range.
            ///
            /// # Errors
            ///
            /// The number, at its key.
            #[allow(unused_variables, reason = "tables without numbers")]
            $vis fn check_ranges(
                &self,
                cell: &$crate::axes::Cell,
            ) -> Result<(), $crate::diagnostic::Diagnostic> {
                $($crate::options!(
                    @check $kind, cell, concat!($path, stringify!($field)), self.$field,
                    $crate::key::Kind::$kind $(($($range)*))?,
                    $crate::options!(@help [$($help)?] [$($default $(($text))?)?])
                );)*
                Ok(())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Written {
                    $(#[serde(default)] $field: Option<$type>,)*
                    $($(#[serde(default)] $table: Option<$inner>,)*)?
                }
                let written = Written::deserialize(deserializer)?;
                Ok(Self {
                    $($field: $crate::options!(
                        @value D, written.$field, $field, $type $(, $default $(($text))?)?
                    ),)*
                    $($($table: $crate::options!(@table written.$table, $table $(, $need)?),)*)?
                })
            }
        }
    };

    (@text) => { None };
    (@text or($text:literal)) => { Some($text) };
    (@text unset($text:literal)) => { Some($text) };
    (@text needed($text:literal)) => { Some($text) };
    (@text list($list:tt)) => { Some(stringify!($list)) };
    (@text $default:literal) => { Some(stringify!($default)) };

    (@value $de:ident, $raw:expr, $field:ident, $type:ty) => {
        match $raw {
            Some(value) => value,
            None => return Err(serde::de::Error::missing_field(stringify!($field))),
        }
    };
    (@value $de:ident, $raw:expr, $field:ident, $type:ty, needed($text:literal)) => {
        $crate::options!(@value $de, $raw, $field, $type)
    };
    (@value $de:ident, $raw:expr, $field:ident, $type:ty, or($text:literal)) => {
        $raw.unwrap_or_default()
    };
    (@value $de:ident, $raw:expr, $field:ident, $type:ty, unset($text:literal)) => {
        $raw.unwrap_or_default()
    };
    (@value $de:ident, $raw:expr, $field:ident, $type:ty, list($list:tt)) => {
        $raw.unwrap_or_else(|| $list.into())
    };
    (@value $de:ident, $raw:expr, $field:ident, $type:ty, $default:literal) => {{
        let default: $type = $default;
        $raw.unwrap_or(default)
    }};

    (@table $raw:expr, $table:ident) => { $raw.unwrap_or_default() };
    (@table $raw:expr, $table:ident, required) => {
        match $raw {
            Some(value) => value,
            None => return Err(serde::de::Error::missing_field(stringify!($table))),
        }
    };

    (@help [$help:literal] [$($default:tt)*]) => { $help };
    (@help [] [$default:literal]) => { concat!("the default is ", stringify!($default)) };
    (@help [] [$($default:tt)*]) => { "" };

    (@check Whole, $cell:ident, $path:expr, $value:expr, $kind:expr, $help:expr) => {
        $crate::options::check_range(&$value, $cell, $path, $kind, $help)?
    };
    (@check Number, $cell:ident, $path:expr, $value:expr, $kind:expr, $help:expr) => {
        $crate::options::check_range(&$value, $cell, $path, $kind, $help)?
    };
    (@check $other:ident, $($rest:tt)*) => {};
}

/// A table without a key.
///
/// # Panics
///
/// If a key of it has no default.
pub fn defaults<T: serde::de::DeserializeOwned>() -> T {
    T::deserialize(toml::Table::new()).expect("every key has a default")
}

/// A number of a table, as its range is written.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
}

/// What may be a number of a table.
pub trait MayBeNumber {
    /// The number, if there is one.
    fn number(&self) -> Option<Number>;
}

impl MayBeNumber for u64 {
    fn number(&self) -> Option<Number> {
        Some(Number::Whole(*self))
    }
}

impl MayBeNumber for usize {
    fn number(&self) -> Option<Number> {
        Some(Number::Whole(*self as u64))
    }
}

impl MayBeNumber for f64 {
    fn number(&self) -> Option<Number> {
        Some(Number::Real(*self))
    }
}

impl<T: MayBeNumber> MayBeNumber for Option<T> {
    fn number(&self) -> Option<Number> {
        self.as_ref().and_then(T::number)
    }
}

/// Refuses a number outside the range of its kind.
///
/// # Errors
///
/// The number, at its key.
pub fn check_range(
    value: &impl MayBeNumber,
    cell: &Cell,
    key: &str,
    kind: Kind,
    help: &str,
) -> Result<(), Diagnostic> {
    let refused = || {
        let allowed = kind.range().unwrap_or_default();
        cell.error(key, "is out of range", &allowed, help)
    };
    match (value.number(), kind) {
        (Some(Number::Whole(value)), Kind::Whole(low, high)) if !(low..=high).contains(&value) => {
            Err(refused().with_value(value))
        }
        (Some(Number::Real(value)), Kind::Number(low, high))
            if !value.is_finite() || !(low..=high).contains(&value) =>
        {
            Err(refused().with_value(value))
        }
        _ => Ok(()),
    }
}
