//! The figures of a section.
//!
//! A new figure is a file beside this one with `fn figures`, and one line in [`FIGURES`].

mod attention;
mod base;
mod depth;
mod farthest;
mod lengths;
mod position;
mod scores;
mod shared;
mod steps;
mod training;

use super::document::Figure;
use super::spec::ReportSpec;
use records::analysis::setting::Setting;

/// Makes the figures of a kind for one setting; none where it has nothing to show.
type Figures = fn(&Setting<'_>, &ReportSpec) -> Vec<Figure>;

/// The figures, in the order of the report.
const FIGURES: [Figures; 9] = [
    scores::figures,
    lengths::figures,
    farthest::figures,
    depth::figures,
    position::figures,
    attention::figures,
    training::figures,
    steps::figures,
    base::figures,
];

/// Every figure of a setting. Slugs are not yet file names.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    FIGURES
        .iter()
        .flat_map(|figures| figures(setting, spec))
        .collect()
}
