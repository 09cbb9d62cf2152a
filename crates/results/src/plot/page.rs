//! Figures inside a page: the drawing, and the entries of a legend that the page sets as text.

use super::compact::sample;
use super::series::Series;

/// A figure of a page.
pub(crate) struct PageFigure {
    /// The drawing.
    pub svg: String,
    /// The scale of y, and the other one that the script can give it.
    pub scales: Vec<&'static str>,
    /// What the names of the lines are values of; may be empty.
    pub heading: String,
    /// The legend; empty for figures without one.
    pub entries: Vec<PageEntry>,
}

/// One line of a legend.
pub(crate) struct PageEntry {
    /// As in `data-m` of the line's groups; empty for a reference.
    pub key: String,
    pub name: String,
    /// A drawing of a piece of the line.
    pub sample: String,
}

/// The name of a line for the script.
pub(super) fn key(series: &Series, index: usize) -> String {
    if series.key.is_empty() {
        format!("s{index}")
    } else {
        series.key.clone()
    }
}

/// The legend of a figure: its lines and the horizontal reference.
pub(super) fn entries(series: &[Series], reference: Option<&str>) -> Vec<PageEntry> {
    let line = |(index, series): (usize, &Series)| PageEntry {
        key: key(series, index),
        name: series.name.clone(),
        sample: sample(Some(series.style)),
    };
    let reference = reference.map(|name| PageEntry {
        key: String::new(),
        name: name.into(),
        sample: sample(None),
    });
    series
        .iter()
        .enumerate()
        .map(line)
        .chain(reference)
        .collect()
}
