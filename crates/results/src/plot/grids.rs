//! Small matrices side by side, one for each method, their numbers written into the cells.

use super::{
    Color, FRAME, GAP, Head, INK, LEGEND_CHARS, MUTED, Pen, PlotError, Scene, TEXT, TextAnchor,
    WHITE, described, shade, text_width, to_png, to_svg,
};
use crate::metric;
use crate::text::name;

/// Matrices of the same rows and columns, the first row of each on top. Values are shares: 0 and 1
/// are the ends of the colours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grids {
    /// What they show.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// Name of the columns.
    pub x_label: String,
    /// Name of the rows.
    pub y_label: String,
    /// The column each stands for.
    pub columns: Vec<String>,
    /// The row each stands for.
    pub rows: Vec<String>,
    /// The matrices.
    pub grids: Vec<Grid>,
    /// A vertical dashed line before this column, and its name.
    pub reference: Option<(usize, String)>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// What it is of.
    pub name: String,
    /// By row and column; what is missing or not finite is drawn grey.
    pub values: Vec<Vec<f64>>,
}

const CELL: (f64, f64) = (42.0, 24.0);
const GUTTER: (f64, f64) = (30.0, 62.0);
/// Matrices beside each other.
const ACROSS: usize = 3;

impl Grids {
    /// The figure as a self-contained SVG document.
    pub fn to_svg(&self) -> String {
        to_svg(&self.scene(false), &described(&self.title, &self.subtitle))
    }

    /// The figure as a PNG, from the same drawing.
    ///
    /// # Errors
    ///
    /// When the image cannot be encoded.
    pub fn to_png(&self) -> Result<Vec<u8>, PlotError> {
        to_png(&self.scene(true), &self.title)
    }

    fn scene(&self, raster: bool) -> Scene {
        let across = self.grids.len().clamp(1, ACROSS);
        let down = self.grids.len().div_ceil(across).max(1);
        let (width, height) = (
            CELL.0 * self.columns.len().max(1) as f64,
            CELL.1 * self.rows.len().max(1) as f64,
        );
        let head = Head {
            title: &self.title,
            subtitle: &self.subtitle,
            y_label: &self.y_label,
            above: true,
        };
        let left = 14.0
            + self
                .rows
                .iter()
                .map(|row| text_width(row, TEXT))
                .fold(24.0, f64::max)
            + 8.0;
        let top = head.height();
        let whole = (
            (left + across as f64 * (width + GUTTER.0))
                .max(text_width(&self.title, 15) * 1.1 + 28.0)
                .ceil(),
            (top + down as f64 * (height + GUTTER.1) + 16.0).ceil(),
        );
        let mut pen = Pen::new(whole.0, whole.1, raster);
        head.draw(&mut pen, left);
        for (index, grid) in self.grids.iter().enumerate() {
            let at = (
                left + (index % across) as f64 * (width + GUTTER.0),
                top + (index / across) as f64 * (height + GUTTER.1),
            );
            let is_lowest = index + across >= self.grids.len();
            self.grid(&mut pen, grid, at, index % across == 0, is_lowest);
        }
        let centre = left + (across as f64 * (width + GUTTER.0) - GUTTER.0) / 2.0;
        pen.text(
            centre,
            whole.1 - 14.0,
            &self.x_label,
            TEXT,
            TextAnchor::Middle,
            &INK,
        );
        pen.scene
    }

    fn grid(
        &self,
        pen: &mut Pen,
        grid: &Grid,
        (x, y): (f64, f64),
        is_first: bool,
        is_lowest: bool,
    ) {
        let width = CELL.0 * self.columns.len() as f64;
        pen.text(
            x,
            y - 8.0,
            &name(&grid.name, LEGEND_CHARS),
            TEXT,
            TextAnchor::Start,
            &INK,
        );
        for (row, label) in self.rows.iter().enumerate() {
            let top = y + row as f64 * CELL.1;
            if is_first {
                pen.text(
                    x - 8.0,
                    top + CELL.1 / 2.0 + 4.2,
                    label,
                    TEXT,
                    TextAnchor::End,
                    &INK,
                );
            }
            for column in 0..self.columns.len() {
                let value = grid
                    .values
                    .get(row)
                    .and_then(|values| values.get(column))
                    .copied()
                    .filter(|value| value.is_finite());
                let left = x + column as f64 * CELL.0;
                pen.rect(
                    left,
                    top,
                    CELL.0,
                    CELL.1,
                    value.map_or(GAP, |value| shade(value.clamp(0.0, 1.0))),
                    1.0,
                );
                if let Some(value) = value {
                    let text = metric::number(value, 2);
                    pen.text(
                        left + CELL.0 / 2.0,
                        top + CELL.1 / 2.0 + 4.0,
                        &text,
                        TEXT - 1,
                        TextAnchor::Middle,
                        &ink_on(value),
                    );
                }
            }
        }
        let bottom = y + CELL.1 * self.rows.len() as f64;
        for (column, label) in self.columns.iter().enumerate() {
            pen.text(
                x + (column as f64 + 0.5) * CELL.0,
                bottom + 17.0,
                label,
                TEXT - 1,
                TextAnchor::Middle,
                &INK,
            );
        }
        pen.line((x, bottom), (x + width, bottom), &FRAME, 1.0, &[]);
        if let Some((at, text)) = self
            .reference
            .as_ref()
            .filter(|(at, _)| *at <= self.columns.len())
        {
            let line = x + *at as f64 * CELL.0;
            pen.line(
                (line, y - 4.0),
                (line, bottom + 5.0),
                &INK,
                1.4,
                &[5.0, 4.0],
            );
            if is_lowest {
                pen.text(
                    line,
                    bottom + 32.0,
                    text,
                    TEXT - 1,
                    TextAnchor::Middle,
                    &MUTED,
                );
            }
        }
    }
}

/// What can be read on a cell.
fn ink_on(value: f64) -> Color {
    let Color::Rgb(r, g, b) = shade(value.clamp(0.0, 1.0)) else {
        return INK;
    };
    let light = 0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b);
    if light > 140.0 { INK } else { WHITE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_gaps_and_the_reference_are_drawn() {
        let grid = |name: &str| Grid {
            name: name.into(),
            values: vec![vec![0.0, 0.25], vec![f64::NAN, 1.0]],
        };
        let grids = Grids {
            title: "by depth".into(),
            columns: vec!["8".into(), "16".into()],
            rows: vec!["0 to 50 %".into(), "50 to 100 %".into()],
            grids: ["a", "b", "c", "d"].map(grid).to_vec(),
            reference: Some((1, "train length".into())),
            ..Grids::default()
        };
        let svg = grids.to_svg();
        assert_eq!(svg.matches(">0.25<").count(), 4);
        assert_eq!(svg.matches("#dddddd").count(), 4, "a gap in each");
        assert_eq!(
            svg.matches("train length").count(),
            3,
            "under the lowest of every column of matrices"
        );
        assert!(!svg.contains("NaN"));
        assert!(grids.to_png().unwrap().starts_with(b"\x89PNG"));
        assert!(Grids::default().to_svg().starts_with("<svg"));
    }

    #[test]
    fn ink_differs_from_its_ground() {
        for value in [0.0, 0.3, 0.6, 1.0] {
            let luma = |color: Color| match color {
                Color::Rgb(r, g, b) => {
                    0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b)
                }
                _ => panic!("not a colour by its parts"),
            };
            assert!(
                (luma(ink_on(value)) - luma(shade(value))).abs() > 90.0,
                "{value}"
            );
        }
    }
}
