//! The figures of a section.
//!
//! A new figure is a file beside this one with `fn figures`, and one line in [`FIGURES`].

mod attention;
mod base;
mod depth;
mod position;
mod scores;
mod shared;
mod steps;
mod training;

use super::document::Figure;
use crate::analysis::setting::Setting;

/// The figures, in the order of the report.
const FIGURES: [fn(&Setting<'_>) -> Vec<Figure>; 7] = [
    scores::figures,
    depth::figures,
    position::figures,
    attention::figures,
    training::figures,
    steps::figures,
    base::figures,
];

/// Every figure of a setting. Slugs are not yet file names.
pub(super) fn figures(setting: &Setting<'_>) -> Vec<Figure> {
    FIGURES
        .iter()
        .flat_map(|figures| figures(setting))
        .collect()
}
