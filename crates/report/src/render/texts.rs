//! Texts of a document as every template prints them.

use records::text::printable;

pub(super) fn each(list: &[String]) -> Vec<String> {
    list.iter().map(|text| printable(text)).collect()
}

pub(super) fn pairs(list: &[(String, String)]) -> Vec<[String; 2]> {
    list.iter()
        .map(|(a, b)| [printable(a), printable(b)])
        .collect()
}

/// Whether a cell says that there is no number.
pub(super) fn cell_reason(text: &str) -> bool {
    let reasons = ["diverged", "unsupported", "skipped", "not converged"];
    matches!(text, "-" | "none") || reasons.iter().any(|reason| text.starts_with(reason))
}
