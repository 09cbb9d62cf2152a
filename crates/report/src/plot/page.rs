//! Figures inside a page: the drawing, the entries of a legend that the page sets as text, and the
//! markers and samples that all figures share.

use super::pen::{Pen, Spot, Target};
use super::series::Series;
use super::style::{DOTS, LineStyle, MUTED, STYLES};
use std::fmt::Write as _;

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

/// The classes of the group of a line: colour and dash, which the style sheet knows.
pub(super) fn classes(style: usize) -> String {
    let style = style % STYLES;
    let (color, dash) = (style % 8, style / 8);
    match dash {
        0 => format!("c{color}"),
        _ => format!("c{color} d{dash}"),
    }
}

/// The class of the group of a line's markers.
pub(super) fn marker_class(style: usize) -> String {
    format!("k{}", style % 8)
}

/// Size of the sample of a line, in pixels.
const SAMPLE: Spot = (30.0, 14.0);

/// Markers, dots and samples of all lines, once in a page. Their names have an underscore, which no
/// anchor has.
pub(crate) fn definitions() -> String {
    let mut out =
        String::from("<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"defs\"><defs>");
    for index in 0..8 {
        let look = LineStyle::of(index);
        let marker = drawn(|pen| pen.marker((6.0, 6.0), &look));
        let dot = drawn(|pen| pen.circle((2.0, 2.0), 1.8, look.color, (look.color, 0.0)));
        for (id, size, drawing) in [("k", 12, marker), ("d", 4, dot)] {
            let _ = write!(
                out,
                "<marker id=\"{id}_{index}\" markerUnits=\"userSpaceOnUse\" \
                 markerWidth=\"{size}\" markerHeight=\"{size}\" refX=\"{0}\" refY=\"{0}\">\
                 {drawing}</marker>",
                size / 2
            );
        }
    }
    let middle = SAMPLE.1 / 2.0;
    let ends = [(0.0, middle), (SAMPLE.0, middle)];
    for style in 0..STYLES {
        let look = LineStyle::of(style);
        let sample = drawn(|pen| {
            pen.polyline(&ends, look.color, 2.0, look.dash);
            pen.flush();
            pen.marker((SAMPLE.0 / 2.0, middle), &look);
        });
        let _ = write!(out, "<g id=\"l_{style}\">{sample}</g>");
    }
    let reference = drawn(|pen| pen.polyline(&ends, MUTED, 1.2, &DOTS));
    let _ = write!(out, "<g id=\"l_r\">{reference}</g></defs></svg>");
    out
}

fn drawn(draw: impl FnOnce(&mut Pen)) -> String {
    let mut pen = Pen::new(Target::Page);
    draw(&mut pen);
    pen.elements()
}

/// A piece of the line of a style, for a legend; of the horizontal reference where it is none.
pub(super) fn sample(style: Option<usize>) -> String {
    let name = style.map_or("r".to_owned(), |style| (style % STYLES).to_string());
    format!("<svg class=\"k\" aria-hidden=\"true\"><use href=\"#l_{name}\"/></svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_style_has_a_sample_and_a_marker() {
        let definitions = definitions();
        for style in 0..STYLES {
            assert!(
                definitions.contains(&format!("id=\"l_{style}\"")),
                "{style}"
            );
        }
        assert_eq!(definitions.matches("<marker ").count(), 16);
        assert_eq!(sample(Some(STYLES)), sample(Some(0)));
    }
}
