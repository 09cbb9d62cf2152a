//! Numbers of an inspection as text.

/// Six significant digits.
pub fn number(value: f64) -> String {
    number_of(value, 6)
}

/// A number with this many significant digits.
pub fn number_of(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return value.to_string();
    }
    // The exponent after rounding: 9.9999999 is 10.
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..=7).contains(&power) {
        let decimals = (digits as i32 - 1 - power).max(0) as usize;
        return trim(&format!("{value:.decimals$}"));
    }
    format!("{}e{power}", trim(mantissa))
}
