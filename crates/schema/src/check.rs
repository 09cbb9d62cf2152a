//! Checks of single values, so that every message words the same problem the same way.

use crate::Invalid;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

/// A number that can be checked against a range.
pub trait Number: Copy + PartialOrd + Display {
    /// What it is, with its article.
    const NAME: &'static str;

    /// The shortest text of the number.
    fn text(self) -> String {
        self.to_string()
    }

    /// Whether it is a number at all, and not an infinity.
    fn is_finite(self) -> bool {
        true
    }
}

impl Number for u32 {
    const NAME: &'static str = "a whole number";
}

impl Number for u64 {
    const NAME: &'static str = "a whole number";
}

impl Number for usize {
    const NAME: &'static str = "a whole number";
}

impl Number for f64 {
    const NAME: &'static str = "a number";

    fn text(self) -> String {
        // `Display` of a float writes out every zero of 1e-20 or 1e20.
        match self.abs() {
            size if size == 0.0 || (1e-4..1e7).contains(&size) => self.to_string(),
            _ => format!("{self:e}"),
        }
    }

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

/// A range in words: `a whole number from 2 to 64`, `a number above 0, at most 1`.
pub fn allowed<T: Number>(range: &impl RangeBounds<T>) -> String {
    use Bound::{Excluded, Included, Unbounded};
    let bounds = match (range.start_bound(), range.end_bound()) {
        (Included(low), Included(high)) if low == high => format!(", {}", low.text()),
        (Included(low), Included(high)) => format!(" from {} to {}", low.text(), high.text()),
        (Included(low), Unbounded) => format!(" of at least {}", low.text()),
        (Included(low), Excluded(high)) => {
            format!(" of at least {} and below {}", low.text(), high.text())
        }
        (Excluded(low), Included(high)) => {
            format!(" above {} and at most {}", low.text(), high.text())
        }
        (Excluded(low), Excluded(high)) => {
            format!(" above {} and below {}", low.text(), high.text())
        }
        (Excluded(low), Unbounded) => format!(" above {}", low.text()),
        (Unbounded, Included(high)) => format!(" of at most {}", high.text()),
        (Unbounded, Excluded(high)) => format!(" below {}", high.text()),
        (Unbounded, Unbounded) => String::new(),
    };
    T::NAME.to_owned() + &bounds
}

/// Checks that a number is finite and lies in a range: `2..=64`, `1.0..`, or a pair of
/// [`Bound`]s where the lower end is excluded.
///
/// # Errors
///
/// [`Invalid`] with the range in words under `allowed`.
///
/// ```
/// use longreach_schema::in_range;
/// let error = in_range("alphabet", 1_u64, 2..=4096, "one symbol says nothing").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`alphabet` = 1: is out of range; allowed: a whole number from 2 to 4096; \
///      one symbol says nothing"
/// );
/// ```
pub fn in_range<T: Number>(
    key: &str,
    value: T,
    range: impl RangeBounds<T>,
    hint: &str,
) -> Result<(), Invalid> {
    // A range such as `1.0..` contains infinity, so that is checked apart.
    let problem = if !value.is_finite() {
        "is not a finite number"
    } else if !range.contains(&value) {
        "is out of range"
    } else {
        return Ok(());
    };
    Err(Invalid::new(
        key,
        value.text(),
        problem,
        allowed(&range),
        hint,
    ))
}

/// Checks that a name is one of a list.
///
/// # Errors
///
/// [`Invalid`] with the list under `allowed`.
pub fn one_of(key: &str, value: &str, names: &[&str], hint: &str) -> Result<(), Invalid> {
    if names.contains(&value) {
        return Ok(());
    }
    let problem = "is not one of the names that are allowed";
    Err(Invalid::new(key, value, problem, names.join(", "), hint))
}
