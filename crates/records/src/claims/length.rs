//! Test lengths as claims write them: absolute, or as multiples of the training length.

use crate::record::{TestLength, length_range};
use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A test length: `512`, a range of them `"51..100"`, or in multiples of the training length
/// `"2x"`, `">1x"` (every one beyond at which the compared methods were tested), `">=4x"`,
/// `"<=1x"`, where the upper end of a range counts; `"in"` is the length at which the in-length
/// score is taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawLength", into = "RawLength")]
pub enum Length {
    /// A length or a range of lengths, as it was tested.
    At(TestLength),
    /// The training length, or the longest one tested below it.
    In,
    /// A multiple of the training length.
    Times(f64),
    /// Every length longer than a multiple of the training length that the compared methods were
    /// tested at.
    Beyond(f64),
    /// The same of at least a multiple.
    From(f64),
    /// The same of at most a multiple.
    UpTo(f64),
}

impl Length {
    /// Whether it may stand for more than one test length.
    pub(super) fn may_be_several(self) -> bool {
        matches!(self, Length::Beyond(_) | Length::From(_) | Length::UpTo(_))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "is not a length; allowed: 512, `51..100`, `in`, `2x`, `>1x`, `>=4x`, `<=1x`"
)]
enum RawLength {
    Number(usize),
    Text(String),
}

impl TryFrom<RawLength> for Length {
    type Error = String;

    fn try_from(raw: RawLength) -> Result<Self, String> {
        let text = match raw {
            RawLength::Number(to) => return TestLength::new(None, to).map(Length::At),
            RawLength::Text(text) => text,
        };
        let wrong = || {
            format!(
                "{:?} is not a length; allowed: 512, \"51..100\", \"in\", \"2x\", \">1x\", \
                 \">=4x\", \"<=1x\"",
                text::name(&text, 40)
            )
        };
        if text == "in" {
            return Ok(Length::In);
        }
        if let Some((from, to)) = length_range(&text) {
            let range = TestLength::new(Some(from), to);
            return range.map(Length::At).map_err(|_| wrong());
        }
        type Form = fn(f64) -> Length;
        let forms: [(&str, Form); 4] = [
            (">=", Length::From),
            ("<=", Length::UpTo),
            (">", Length::Beyond),
            ("", Length::Times),
        ];
        let (rest, form) = forms
            .iter()
            .find_map(|(prefix, form)| Some((text.strip_prefix(prefix)?, form)))
            .ok_or_else(wrong)?;
        let times = rest
            .strip_suffix('x')
            .and_then(|n| n.parse::<f64>().ok())
            .filter(|n| n.is_finite() && *n > 0.0);
        times.map(form).ok_or_else(wrong)
    }
}

impl From<Length> for RawLength {
    fn from(length: Length) -> Self {
        match length {
            Length::At(TestLength { to, from: None }) => RawLength::Number(to),
            other => RawLength::Text(other.to_string()),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::At(length) => write!(f, "{length}"),
            Length::In => write!(f, "in"),
            Length::Times(x) => write!(f, "{x}x"),
            Length::Beyond(x) => write!(f, ">{x}x"),
            Length::From(x) => write!(f, ">={x}x"),
            Length::UpTo(x) => write!(f, "<={x}x"),
        }
    }
}
