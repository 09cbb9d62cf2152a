//! A matrix as colours, with a colour bar.

use super::axis::{Axis, index_ticks, with_room};
use super::frame::{Head, MARGIN, described};
use super::pen::{Font, Pen, TO_BASELINE, Target};
use super::style::{Color, FRAME, GAP, INK, REFERENCE, TEXT, TITLE, shade, text_width};
use std::collections::BTreeMap;

/// Rows or columns beyond this are averaged in blocks: more cells than pixels help nobody.
const MOST_CELLS: usize = 128;
/// Longest side of the matrix and largest cell, in pixels.
const SIDE: f64 = 420.0;
const LARGEST_CELL: f64 = 48.0;
/// Width of the colour bar, and the rectangles it is made of.
const BAR: f64 = 14.0;
const BAR_STEPS: usize = 64;
/// Room for the labels of the columns.
const BELOW: f64 = 58.0;

/// A matrix as colours, first row on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heatmap {
    /// What it shows.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// Name of the columns.
    pub x_label: String,
    /// Name of the rows.
    pub y_label: String,
    /// Name of the values, beside the colour bar.
    pub value_label: String,
    /// Rows of equal length; values that are not finite are drawn grey.
    pub values: Vec<Vec<f64>>,
    /// What grey means.
    pub gap_label: String,
    /// Values at the two ends of the colours; the extremes of the finite values if none.
    pub range: Option<(f64, f64)>,
    /// A vertical and a horizontal dashed line before this column and row, and their name.
    pub reference: Option<(usize, String)>,
    /// Width and height of the file; as its parts need where it is none.
    pub size: Option<(f64, f64)>,
}

impl Heatmap {
    /// The figure as a self-contained SVG document.
    pub fn to_svg(&self) -> String {
        let cells = Cells::of(self);
        let subtitle = match (cells.block, self.subtitle.as_str()) {
            (1, s) => s.to_string(),
            (b, "") => format!("mean over blocks of {b} x {b}"),
            (b, s) => format!("{s}; mean over blocks of {b} x {b}"),
        };
        let head = Head {
            title: &self.title,
            subtitle: &subtitle,
            y_label: &self.y_label,
            has_reference: self.reference.is_some(),
        };
        let left = MARGIN + text_width(&self.values.len().to_string(), TEXT).max(24.0) + 8.0;
        let top = head.height();
        let range = value_range(self.range, &cells.values);
        let gaps = cells.values.iter().any(|value| !value.is_finite());
        let scale = Axis::linear(range, 5);
        let bar_labels = scale
            .ticks
            .iter()
            .map(|t| text_width(&t.label, TEXT))
            .chain(gaps.then(|| text_width(&self.gap_label, TEXT)))
            .fold(text_width(&self.value_label, TEXT) - MARGIN, f64::max);
        let bar = 24.0 + BAR + 8.0 + bar_labels + MARGIN;
        let [rows, cols] = [cells.rows, cells.cols].map(|count| count.max(1) as f64);
        let side = match self.size {
            None => SIDE / rows.max(cols),
            Some((width, height)) => {
                ((width - left - bar) / cols).min((height - top - BELOW) / rows)
            }
        };
        let side = side.min(LARGEST_CELL);
        let area = Area {
            side,
            left,
            top,
            right: left + side * cells.cols as f64,
            bottom: top + side * cells.rows as f64,
        };
        let width = (area.right + bar)
            .max(left + text_width(&self.title, TITLE) * 1.1 + MARGIN)
            .ceil();
        let height = (area.bottom + BELOW).max(top + 120.0).ceil();

        let mut pen = Pen::new(Target::File);
        head.draw(&mut pen, left);
        area.draw_cells(&mut pen, &cells, range);
        self.draw_labels(&mut pen, &area, cells.block);
        self.draw_reference(&mut pen, &area, cells.block);
        self.draw_bar(&mut pen, &area, &scale, range);
        if gaps {
            self.draw_gap(&mut pen, &area);
        }
        let name = described(&self.title, &self.subtitle);
        pen.svg(self.size.unwrap_or((width, height)), &name, "")
    }

    /// What grey means, below the colour bar.
    fn draw_gap(&self, pen: &mut Pen, area: &Area) {
        let (left, top) = (area.right + 24.0, area.bottom.max(area.top + 100.0) + 14.0);
        pen.rect((left, top), (BAR, BAR), GAP);
        let at = (left + BAR + 8.0, top + BAR / 2.0 + TO_BASELINE);
        pen.text(at, &self.gap_label, &Font::START);
    }

    fn columns(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn draw_labels(&self, pen: &mut Pen, area: &Area, block: usize) {
        let per = area.side / block as f64;
        let columns = index_ticks(self.columns());
        let x_of = |at: f64| area.left + (at + 0.5) * per;
        for tick in with_room(&columns, None, &x_of) {
            let at = (x_of(tick.at), area.bottom + 18.0);
            pen.text(at, &tick.label, &Font::MIDDLE);
        }
        for tick in index_ticks(self.values.len()) {
            let y = area.top + (tick.at + 0.5) * per + TO_BASELINE;
            pen.text((area.left - 8.0, y), &tick.label, &Font::END);
        }
        let below = ((area.left + area.right) / 2.0, area.bottom + 42.0);
        pen.text(below, &self.x_label, &Font::MIDDLE);
    }

    fn draw_reference(&self, pen: &mut Pen, area: &Area, block: usize) {
        let most = self.columns().max(self.values.len());
        let Some((at, name)) = self.reference.as_ref().filter(|(at, _)| *at < most) else {
            return;
        };
        // A cell of `area.side` stands for `block` columns and rows.
        let at = *at as f64 * area.side / block as f64;
        let (x, y) = (area.left + at, area.top + at);
        if x < area.right {
            pen.line((x, area.top - 6.0), (x, area.bottom), INK, 1.4, &REFERENCE);
            // The name does not begin left of the matrix.
            let centre = x.max(area.left + text_width(name, TEXT - 1) / 2.0);
            pen.text((centre, area.top - 10.0), name, &Font::NOTE);
        }
        if y < area.bottom {
            pen.line((area.left, y), (area.right, y), INK, 1.4, &REFERENCE);
        }
    }

    /// The colour bar, its ticks and its name.
    fn draw_bar(&self, pen: &mut Pen, area: &Area, scale: &Axis, (low, high): (f64, f64)) {
        let left = area.right + 24.0;
        let height = (area.bottom - area.top).max(100.0);
        let step = height / BAR_STEPS as f64;
        for i in 0..BAR_STEPS {
            // The bar is drawn from the top, where the largest value is.
            let share = 1.0 - (i as f64 + 0.5) / BAR_STEPS as f64;
            let at = (left, area.top + height * i as f64 / BAR_STEPS as f64);
            pen.rect(at, (BAR, step + 0.3), shade(share));
        }
        for tick in &scale.ticks {
            let y = area.top + height * (1.0 - (tick.at - low) / (high - low));
            pen.line((left + BAR, y), (left + BAR + 4.0, y), FRAME, 1.0, &[]);
            pen.text(
                (left + BAR + 8.0, y + TO_BASELINE),
                &tick.label,
                &Font::START,
            );
        }
        pen.text((left, area.top - 10.0), &self.value_label, &Font::START);
    }
}

/// The rectangle of the matrix and the side of a cell, in pixels.
struct Area {
    side: f64,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn draw_cells(&self, pen: &mut Pen, cells: &Cells, (low, high): (f64, f64)) {
        let fill = |value: f64| {
            if value.is_finite() {
                shade((value - low) / (high - low))
            } else {
                GAP
            }
        };
        // Slightly larger than the cells: no seams between neighbours.
        let height = self.side + 0.3;
        let mut bars: BTreeMap<Color, Vec<_>> = BTreeMap::new();
        for (row, values) in cells.values.chunks(cells.cols.max(1)).enumerate() {
            let y = self.top + row as f64 * self.side;
            let fills: Vec<Color> = values.iter().map(|value| fill(*value)).collect();
            let mut at = 0;
            // Neighbours of one colour are one bar.
            for run in fills.chunk_by(|a, b| a == b) {
                let x = self.left + at as f64 * self.side;
                let width = run.len() as f64 * self.side + 0.3;
                bars.entry(run[0]).or_default().push(((x, y), width));
                at += run.len();
            }
        }
        for (color, bars) in bars {
            pen.bars(&bars, height, color);
        }
    }
}

/// The values as drawn, row by row: blocks of `block` by `block` averaged.
struct Cells {
    rows: usize,
    cols: usize,
    block: usize,
    values: Vec<f64>,
}

impl Cells {
    fn of(map: &Heatmap) -> Self {
        let (n_rows, n_cols) = (map.values.len(), map.columns());
        let block = n_rows.max(n_cols).div_ceil(MOST_CELLS).max(1);
        let (rows, cols) = (n_rows.div_ceil(block), n_cols.div_ceil(block));
        let mean = |row: usize, col: usize| {
            let rows = map.values.iter().skip(row).take(block);
            let values = rows.flat_map(|r| r.iter().skip(col).take(block));
            let (sum, n) = values
                .filter(|v| v.is_finite())
                .fold((0.0, 0usize), |(sum, n), v| (sum + v, n + 1));
            if n == 0 { f64::NAN } else { sum / n as f64 }
        };
        // Row-major; blocks at the lower and right edge may hold fewer values.
        let values = (0..rows * cols).map(|i| mean(i / cols * block, i % cols * block));
        Self {
            rows,
            cols,
            block,
            values: values.collect(),
        }
    }
}

/// The two ends of the colours, never equal.
fn value_range(given: Option<(f64, f64)>, cells: &[f64]) -> (f64, f64) {
    let finite = || cells.iter().copied().filter(|v| v.is_finite());
    let (low, high) = given.unwrap_or((
        finite().fold(f64::INFINITY, f64::min),
        finite().fold(f64::NEG_INFINITY, f64::max),
    ));
    if low < high {
        (low, high)
    } else if low.is_finite() {
        (low - 0.5, low + 0.5)
    } else {
        (0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_maps_are_averaged() {
        let map = Heatmap {
            values: (0..300)
                .map(|row| (0..300).map(|at| (row * at) as f64).collect())
                .collect(),
            ..Default::default()
        };
        let svg = map.to_svg();
        assert!(svg.contains("mean over blocks of 3 x 3"));
        // A path for each colour, and not an element for each cell.
        assert!(svg.matches("<path").count() < 1000 && svg.len() < 250_000);
    }

    #[test]
    fn a_map_without_values_is_a_figure() {
        assert!(Heatmap::default().to_svg().starts_with("<svg"));
    }
}
