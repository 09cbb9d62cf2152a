//! Names at the right ends of lines, in pages.

use super::page;
use super::pen::{Font, Pen, Spot, TO_BASELINE};
use super::series::Series;
use super::style::{LineStyle, MUTED, TEXT, text_width};

/// Most names beside a figure, and the longest one, in characters.
const MOST: usize = 14;
const LONGEST: usize = 30;
/// From name to name.
const STEP: f64 = 15.0;
/// From the axes to a name, across which a thin line leads to it.
const LEAD: (f64, f64) = (6.0, 22.0);

/// The names of the lines that end at the right side of the axes.
#[derive(Default)]
pub(super) struct Ends<'a> {
    /// The line and its place in the plot, and the height at which it ends.
    named: Vec<(usize, &'a Series, f64)>,
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
            true => Self { named },
            false => Self::default(),
        }
    }

    /// The width of names and of what leads to them.
    pub(super) fn width(&self) -> f64 {
        let names = self.named.iter();
        let widths = names.map(|(_, series, _)| LEAD.1 + text_width(&series.name, TEXT));
        widths.fold(0.0, f64::max)
    }

    /// Draws the names as near to the ends as they can stand, between `top` and `bottom`. The
    /// script places them again where the lines move.
    pub(super) fn draw(&self, pen: &mut Pen, right: f64, (top, bottom): Spot) {
        let mut named: Vec<_> = self.named.iter().collect();
        named.sort_by(|a, b| a.2.total_cmp(&b.2));
        let heights: Vec<f64> = named.iter().map(|(_, _, y)| *y).collect();
        for ((index, series, y), at) in named.into_iter().zip(spread(&heights, top, bottom)) {
            let look = LineStyle::of(series.style);
            let key = page::key(series, *index);
            let classes = page::classes(series.style);
            pen.begin(&format!("class=\"end {classes}\" data-m=\"{key}\""));
            let lead = [(right + LEAD.0, *y), (right + LEAD.1 - 5.0, at)];
            pen.polyline(&lead, look.color, 1.0, &[]);
            let font = match series.points.is_empty() {
                true => Font {
                    color: MUTED,
                    ..Font::START
                },
                false => Font::START,
            };
            pen.text((right + LEAD.1, at + TO_BASELINE), &series.name, &font);
            pen.end();
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
