//! Names at the right ends of lines.

use super::page;
use super::pen::{Font, Pen, Spot, TO_BASELINE};
use super::series::Series;
use super::style::{DOTS, INK, LineStyle, MUTED, TEXT, text_width};

/// Most names beside a figure, and the longest one, in characters.
const MOST: usize = 16;
const LONGEST: usize = 36;
/// From name to name.
const STEP: f64 = 15.0;
/// From the axes to a name, across which a thin line leads to it.
const LEAD: (f64, f64) = (6.0, 22.0);

/// The names of the lines that end at the right side of the axes.
#[derive(Default)]
pub(super) struct Ends<'a> {
    /// The line and its place in the plot, and the height at which it ends.
    named: Vec<(usize, &'a Series, f64)>,
    /// Name and height of the horizontal reference, in files.
    reference: Option<(&'a str, f64)>,
}

impl<'a> Ends<'a> {
    /// `last`: for each line its last point. No names where they are too many or too long: the
    /// legend has all of them.
    pub(super) fn new(series: &'a [Series], last: &[Option<Spot>], right: f64) -> Self {
        let all = series.iter().zip(last).enumerate();
        let ending = all.filter_map(|(index, (series, last))| {
            let (x, y) = last.filter(|(x, _)| *x > right - 40.0)?;
            (x <= right + 1.0).then_some((index, series, y))
        });
        let named: Vec<(usize, &Series, f64)> = ending.collect();
        let fits = named.len() <= MOST
            && (named.iter()).all(|(_, series, _)| series.name.chars().count() <= LONGEST);
        match fits {
            true => Self {
                named,
                reference: None,
            },
            false => Self::default(),
        }
    }

    /// With the name of the horizontal reference, if other names are there.
    pub(super) fn with_reference(self, reference: Option<(&'a str, f64)>) -> Self {
        let reference = reference.filter(|(name, _)| !self.named.is_empty() && !name.is_empty());
        Self { reference, ..self }
    }

    /// Whether the reference has its name there.
    pub(super) fn names_reference(&self) -> bool {
        self.reference.is_some()
    }

    /// Whether a line has its name at its end.
    pub(super) fn names(&self, line: usize) -> bool {
        self.named.iter().any(|(index, ..)| *index == line)
    }

    /// The width of names and of what leads to them.
    pub(super) fn width(&self) -> f64 {
        let names = self.named.iter().map(|(_, series, _)| series.name.as_str());
        let names = names.chain(self.reference.map(|(name, _)| name));
        let widths = names.map(|name| LEAD.1 + text_width(name, TEXT));
        widths.fold(0.0, f64::max)
    }

    /// The attribute by which the style sheet leaves room for the names beside a figure of a page:
    /// its share of the width of both.
    pub(super) fn beside(&self, width: f64) -> String {
        let names = (self.width() - 12.0).max(0.0);
        format!(" style=\"--share:{:.3}\"", width / (width + names))
    }

    /// Draws the names as near to the ends as they can stand, between `top` and `bottom`. The
    /// script places them again where the lines move.
    pub(super) fn draw(&self, pen: &mut Pen, right: f64, (top, bottom): Spot) {
        let lines = self.named.iter();
        let lines =
            lines.map(|(index, series, y)| (Some((index, series)), series.name.as_str(), *y));
        let reference = self.reference.map(|(name, y)| (None, name, y));
        let mut named: Vec<_> = lines.chain(reference).collect();
        named.sort_by(|a, b| a.2.total_cmp(&b.2));
        let heights: Vec<f64> = named.iter().map(|(.., y)| *y).collect();
        for ((line, name, y), at) in named.into_iter().zip(spread(&heights, top, bottom)) {
            let is_empty = line.is_none_or(|(_, series)| series.points.is_empty());
            let font = Font {
                color: if is_empty { MUTED } else { INK },
                ..Font::START
            };
            let lead = [(right + LEAD.0, y), (right + LEAD.1 - 5.0, at)];
            let place = (right + LEAD.1, at + TO_BASELINE);
            match line {
                Some((index, series)) => {
                    let key = page::key(series, *index);
                    let classes = page::classes(series.style);
                    pen.begin(&format!("class=\"end {classes}\" data-m=\"{key}\""));
                    pen.polyline(&lead, LineStyle::of(series.style).color, 1.0, &[]);
                    pen.text(place, name, &font);
                    pen.end();
                }
                None => {
                    pen.polyline(&lead, MUTED, 1.0, &DOTS);
                    pen.text(place, name, &font);
                }
            }
        }
    }
}

/// Ascending heights moved apart to at least [`STEP`], half upwards and half downwards.
fn spread(heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let pushed = |heights: &mut dyn Iterator<Item = f64>, step: f64, first: f64| {
        let mut last = first;
        let each = heights.map(|y| {
            last = if step > 0.0 {
                y.max(last + step)
            } else {
                y.min(last + step)
            };
            last
        });
        each.collect::<Vec<f64>>()
    };
    let down = pushed(&mut heights.iter().copied(), STEP, f64::NEG_INFINITY);
    let mut up = pushed(&mut heights.iter().rev().copied(), -STEP, f64::INFINITY);
    up.reverse();
    let middle = down.iter().zip(&up).map(|(a, b)| f64::midpoint(*a, *b));
    let below_top = pushed(&mut middle.into_iter(), STEP, top - STEP);
    let mut inside = pushed(&mut below_top.into_iter().rev(), -STEP, bottom + STEP);
    inside.reverse();
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_apart_near_their_lines_and_inside() {
        let placed = spread(&[10.0, 100.0, 100.0, 104.0, 330.0], 0.0, 320.0);
        assert_eq!(placed[0], 10.0);
        assert_eq!(placed[4], 320.0);
        assert!(
            placed.windows(2).all(|pair| pair[1] - pair[0] >= STEP),
            "{placed:?}"
        );
        assert!((placed[2] - 101.3).abs() < 3.0, "{placed:?}");
    }
}
