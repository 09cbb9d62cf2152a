//! Options that are whole numbers.

use std::ops::RangeBounds;

/// Reads a whole number of a range; an error says which.
pub fn whole<T: TryFrom<u64>>(
    range: impl RangeBounds<u64> + Clone,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("must be {}", schema::allowed(&range)))
    }
}
