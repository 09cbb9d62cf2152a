//! Numbers as people read them.

/// How many decimals a value is printed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimals {
    /// Three below 10, about three significant digits above.
    Three,
    /// About three significant digits.
    Significant,
    /// In percent, about two significant digits.
    Percent,
}

impl Decimals {
    /// Those of a value, in its [`unit`](Self::unit).
    pub fn of(self, value: f64) -> usize {
        match self {
            Decimals::Significant => significant(value),
            Decimals::Percent => match 100.0 * value.abs() {
                v if v < 1.0 => 2,
                v if v < 100.0 => 1,
                _ => 0,
            },
            Decimals::Three if value.abs() < 10.0 => 3,
            Decimals::Three => significant(value),
        }
    }

    /// The factor of values in print, and the text after them.
    pub fn unit(self) -> (f64, &'static str) {
        match self {
            Decimals::Percent => (100.0, " %"),
            Decimals::Three | Decimals::Significant => (1.0, ""),
        }
    }
}

/// About three significant digits, at least.
pub fn significant(value: f64) -> usize {
    match value.abs() {
        v if v < 10.0 => 2,
        v if v < 1000.0 => 1,
        _ => 0,
    }
}

/// A number for people: fixed decimals, powers of ten from a million on.
pub fn number(value: f64, decimals: usize) -> String {
    if value.abs() >= 1e6 {
        return format!("{value:.1e}");
    }
    // "-0.00" is a rounding artefact, not a sign.
    let value = if rounds_to_zero(value, decimals) {
        0.0
    } else {
        value
    };
    format!("{value:.decimals$}")
}

/// Whether a value has no digit but 0 at these decimals. Decided by what is printed: halves round
/// to even there, by the exact binary value.
pub fn rounds_to_zero(value: f64, decimals: usize) -> bool {
    let digits = format!("{:.decimals$}", value.abs());
    digits.bytes().all(|byte| matches!(byte, b'0' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(-0.001, 2), "0.00");
        assert_eq!(number(-0.01, 2), "-0.01");
        assert_eq!(number(2_345_678.0, 0), "2.3e6");
        assert!(rounds_to_zero(0.004, 2) && !rounds_to_zero(-0.006, 2));
        assert!(rounds_to_zero(0.5, 0) && !rounds_to_zero(1.5, 0));
    }

    #[test]
    fn percents() {
        let of = |value| Decimals::Percent.of(value);
        assert_eq!((of(0.005), of(-0.05), of(4.0)), (2, 1, 0));
        assert_eq!(Decimals::Percent.unit(), (100.0, " %"));
    }
}
