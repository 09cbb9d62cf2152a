//! What surrounds the drawing: title, subtitle, name of the y axis and legend.

use super::pen::{Font, Pen, TO_BASELINE};
use super::series::Series;
use super::style::{DOTS, LineStyle, MUTED, TEXT, text_width};
use records::text::name;

/// The left edge of titles, and free space at the right.
pub(super) const MARGIN: f64 = 14.0;
/// Longest name in the legend, in characters.
pub(crate) const LEGEND_CHARS: usize = 100;
/// Longest line of a name in the legend, in characters.
const LEGEND_LINE: usize = 40;
/// From entry to entry.
const LINE_STEP: f64 = 19.0;
/// From line to line of one name.
const LEGEND_WRAP: f64 = 14.0;
/// Length of a sample of a line.
const LEGEND_SAMPLE: f64 = 30.0;

/// What a figure shows, in one line, for those who do not see it.
pub(crate) fn described(title: &str, subtitle: &str) -> String {
    if subtitle.is_empty() {
        title.into()
    } else {
        format!("{title}: {subtitle}")
    }
}

/// Title, subtitle, the name of y and the name of a vertical reference, stacked above the axes.
pub(super) struct Head<'a> {
    pub title: &'a str,
    pub subtitle: &'a str,
    pub y_label: &'a str,
    /// Whether the name of a reference needs room.
    pub has_reference: bool,
}

impl Head<'_> {
    /// Baselines of subtitle and y label.
    fn baselines(&self) -> (f64, f64) {
        // Pages have titles of their own.
        let title = if self.title.is_empty() { -8.0 } else { 26.0 };
        let subtitle = title + if self.subtitle.is_empty() { 0.0 } else { 19.0 };
        let y_label = subtitle + if self.y_label.is_empty() { 0.0 } else { 26.0 };
        (subtitle, y_label)
    }

    pub(super) fn height(&self) -> f64 {
        self.baselines().1 + if self.has_reference { 32.0 } else { 14.0 }
    }

    pub(super) fn draw(&self, pen: &mut Pen, left: f64) {
        let (subtitle, y_label) = self.baselines();
        if !self.title.is_empty() {
            pen.title((MARGIN, 26.0), self.title);
        }
        if !self.subtitle.is_empty() {
            pen.text((MARGIN, subtitle), self.subtitle, &Font::MUTED);
        }
        if !self.y_label.is_empty() && !pen.is_page() {
            pen.text((left.min(MARGIN), y_label), self.y_label, &Font::START);
        }
    }

    /// The name of y in a page, where it belongs to one of two scales.
    pub(super) fn name_y(&self, pen: &mut Pen, left: f64, name: &str) {
        pen.text((left.min(MARGIN), self.baselines().1), name, &Font::START);
    }
}

/// The names of the lines, right of the axes: a heading, the lines, and the horizontal reference.
pub(super) struct Legend<'a> {
    heading: String,
    /// Name, broken into lines, and the line; none for the reference.
    rows: Vec<(Vec<String>, Option<&'a Series>)>,
}

impl<'a> Legend<'a> {
    pub(super) fn new(heading: &str, series: Vec<&'a Series>, reference: Option<&str>) -> Self {
        let broken = |text: &str| wrapped(&name(text, LEGEND_CHARS), LEGEND_LINE);
        let series = series.into_iter().map(|s| (broken(&s.name), Some(s)));
        let reference = reference
            .filter(|name| !name.is_empty())
            .map(|name| (broken(name), None));
        Self {
            heading: name(heading, LEGEND_LINE),
            rows: series.chain(reference).collect(),
        }
    }

    pub(super) fn width(&self) -> f64 {
        let names = self
            .rows
            .iter()
            .flat_map(|(lines, _)| lines)
            .map(|line| LEGEND_SAMPLE + 8.0 + text_width(line, TEXT));
        let widest = names
            .chain([text_width(&self.heading, TEXT)])
            .fold(0.0, f64::max);
        if self.rows.is_empty() {
            0.0
        } else {
            22.0 + widest
        }
    }

    pub(super) fn height(&self) -> f64 {
        let heading = if self.heading.is_empty() {
            0.0
        } else {
            LINE_STEP
        };
        let rows: f64 = self.rows.iter().map(|(lines, _)| row_height(lines)).sum();
        heading + rows
    }

    pub(super) fn draw(&self, pen: &mut Pen, x: f64, mut y: f64) {
        if !self.heading.is_empty() && !self.rows.is_empty() {
            pen.text((x, y + TO_BASELINE), &self.heading, &Font::MUTED);
            y += LINE_STEP;
        }
        for (lines, series) in &self.rows {
            let sample = [(x, y), (x + LEGEND_SAMPLE, y)];
            match series.map(|s| LineStyle::of(s.style)) {
                Some(look) => {
                    pen.polyline(&sample, look.color, 2.0, look.dash);
                    pen.markers(&[(x + LEGEND_SAMPLE / 2.0, y)], &look);
                }
                None => pen.polyline(&sample, MUTED, 1.2, &DOTS),
            }
            let font = match series {
                Some(_) => &Font::START,
                None => &Font::MUTED,
            };
            for (at, line) in lines.iter().enumerate() {
                let baseline = y + TO_BASELINE + at as f64 * LEGEND_WRAP;
                pen.text((x + LEGEND_SAMPLE + 8.0, baseline), line, font);
            }
            y += row_height(lines);
        }
    }
}

fn row_height(lines: &[String]) -> f64 {
    LINE_STEP + lines.len().saturating_sub(1) as f64 * LEGEND_WRAP
}

/// A text in lines of at most `most` characters, broken after a comma, a bracket or a space where
/// there is one.
pub(super) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > most {
        let at = rest[..most]
            .iter()
            .rposition(|c| matches!(c, ',' | '(' | '[' | ' '))
            .map_or(most, |at| at + 1);
        let tail = rest.split_off(at);
        lines.push(rest.into_iter().collect::<String>().trim().to_string());
        rest = tail;
    }
    lines.push(rest.into_iter().collect::<String>().trim().to_string());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_wrapped_whole() {
        let name = "rope(scaling=yarn(factor=4, original_max_position_embeddings=64))";
        assert_eq!(
            wrapped(name, 40),
            [
                "rope(scaling=yarn(factor=4,",
                "original_max_position_embeddings=64))"
            ]
        );
        assert_eq!(wrapped("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
