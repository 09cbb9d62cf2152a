//! Small matrices side by side, one for each method, with their numbers in the cells.

use super::frame::{Head, LEGEND_CHARS, MARGIN, described, wrapped};
use super::page::PageFigure;
use super::pen::{FIXED, Font, Pen, Spot, TO_BASELINE, Target, xml_text};
use super::style::{FRAME, GAP, INK, REFERENCE, TEXT, TITLE, ink_on, shade, text_width};
use records::metric;
use records::text::name;

/// Least width and height of a cell, and of the space between matrices.
const CELL: (f64, f64) = (42.0, 24.0);
const GUTTER: (f64, f64) = (30.0, 62.0);
/// Least distance from matrix to matrix: narrower ones have no room for their names.
const PITCH: f64 = 190.0;
/// From line to line of a name.
const LINE: f64 = 14.0;
/// Widths of texts are estimates.
const RESERVE: f64 = 1.06;
/// Matrices beside each other.
const ACROSS: usize = 3;

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
    /// Label of each column.
    pub columns: Vec<String>,
    /// Label of each row.
    pub rows: Vec<String>,
    /// The matrices.
    pub grids: Vec<Grid>,
    /// A vertical dashed line before this column, and its name.
    pub reference: Option<(usize, String)>,
}

/// One of the matrices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// Name above the matrix.
    pub name: String,
    /// By row and column; missing values and those that are not finite are drawn grey.
    pub values: Vec<Vec<f64>>,
    /// What stands in each cell; empty: the value.
    pub texts: Vec<Vec<String>>,
}

impl Grids {
    /// The figure as a self-contained SVG document.
    pub fn to_svg(&self) -> String {
        let name = described(&self.title, &self.subtitle);
        let (pen, size) = self.drawn(Target::File);
        pen.svg(size, &name, "")
    }

    /// The figure for a page; it has no legend.
    pub(crate) fn to_page(&self) -> PageFigure {
        let name = described(&self.title, &self.subtitle);
        // What the script tells of a cell: its row and column.
        let all = |labels: &[String]| {
            let plain = labels.iter().map(|label| xml_text(label).replace('|', "/"));
            plain.collect::<Vec<_>>().join("|")
        };
        let (rows, columns) = (all(&self.rows), all(&self.columns));
        let attributes = format!(" data-r=\"{rows}\" data-c=\"{columns}\"");
        let (pen, size) = self.drawn(Target::Page);
        PageFigure {
            svg: pen.svg(size, &name, &attributes),
            scales: vec!["linear"],
            heading: String::new(),
            entries: Vec::new(),
        }
    }

    /// The drawing and its size.
    fn drawn(&self, target: Target) -> (Pen, Spot) {
        let across = self.grids.len().clamp(1, ACROSS);
        let down = self.grids.len().div_ceil(across).max(1);
        let cell = self.cell();
        let width = cell * self.columns.len().max(1) as f64;
        let height = CELL.1 * self.rows.len().max(1) as f64;
        let pitch = (width + GUTTER.0).max(PITCH);
        let names = self.names(pitch);
        // The first line of a name has its place in the space between matrices.
        let lines = names.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let above = (lines - 1) as f64 * LINE;
        let is_page = target == Target::Page;
        let head = Head {
            title: if is_page { "" } else { &self.title },
            subtitle: if is_page { "" } else { &self.subtitle },
            y_label: &self.y_label,
            has_reference: true,
        };
        let labels = self.rows.iter().map(|row| text_width(row, TEXT) * RESERVE);
        let left = MARGIN + labels.fold(24.0, f64::max) + 8.0;
        let top = head.height() + above;
        let centre = left + ((across - 1) as f64 * pitch + width) / 2.0;
        let below = text_width(&self.x_label, TEXT) * RESERVE;
        let page_width = (left + across as f64 * pitch)
            .max(text_width(head.title, TITLE) * 1.1 + 28.0)
            .max(text_width(head.subtitle, TEXT) * RESERVE + 28.0)
            .max(text_width(head.y_label, TEXT) * RESERVE + 28.0)
            .max(centre + below / 2.0 + MARGIN)
            .ceil();
        let step = height + GUTTER.1 + above;
        let page_height = (top + down as f64 * step - above + 16.0).ceil();

        let mut pen = Pen::new(target);
        head.draw(&mut pen, left);
        if is_page {
            head.name_y(&mut pen, left, &self.y_label);
        }
        for (index, grid) in self.grids.iter().enumerate() {
            let at = (
                left + (index % across) as f64 * pitch,
                top + (index / across) as f64 * step,
            );
            let is_lowest = index + across >= self.grids.len();
            for (line, text) in names[index].iter().rev().enumerate() {
                let spot = (at.0, at.1 - 8.0 - line as f64 * LINE);
                pen.text(spot, text, &Font::START);
            }
            self.draw_grid(&mut pen, grid, at, index % across == 0);
            self.draw_below(&mut pen, at, is_lowest);
        }
        let x_label = (centre.max(MARGIN + below / 2.0), page_height - 14.0);
        pen.text(x_label, &self.x_label, &Font::MIDDLE);
        (pen, (page_width, page_height))
    }

    /// Width of a cell: that of the widest label of a column or text of a cell.
    fn cell(&self) -> f64 {
        let texts = self
            .grids
            .iter()
            .flat_map(|grid| grid.texts.iter().flatten());
        let all = self.columns.iter().chain(texts);
        let widths = all.map(|text| text_width(text, TEXT - 1) * RESERVE + 8.0);
        widths.fold(CELL.0, f64::max)
    }

    /// The name of each matrix, in lines that fit above it.
    fn names(&self, pitch: f64) -> Vec<Vec<String>> {
        let most = ((pitch - 8.0) / (RESERVE * text_width("n", TEXT))) as usize;
        let broken = |grid: &Grid| wrapped(&name(&grid.name, LEGEND_CHARS), most.max(8));
        self.grids.iter().map(broken).collect()
    }

    /// The cells of a matrix with their numbers; labels of the rows where it is the first.
    fn draw_grid(&self, pen: &mut Pen, grid: &Grid, (x, y): Spot, is_first: bool) {
        let cell = self.cell();
        for (row, label) in self.rows.iter().enumerate().filter(|_| is_first) {
            let at = (x - 8.0, y + (row as f64 + 0.5) * CELL.1 + TO_BASELINE);
            pen.text(at, label, &Font::END);
        }
        let group = format!("{FIXED} data-g=\"{}\"", xml_text(&grid.name));
        pen.begin(&group);
        for row in 0..self.rows.len() {
            let top = y + row as f64 * CELL.1;
            for column in 0..self.columns.len() {
                let value = grid.values.get(row).and_then(|values| values.get(column));
                let value = value.copied().filter(|value| value.is_finite());
                let left = x + column as f64 * cell;
                pen.rect((left, top), (cell, CELL.1), value.map_or(GAP, shade));
                let Some(value) = value else { continue };
                let font = Font {
                    size: TEXT - 1,
                    color: ink_on(value),
                    ..Font::MIDDLE
                };
                let centre = (left + cell / 2.0, top + CELL.1 / 2.0 + 4.0);
                let own = grid.texts.get(row).and_then(|texts| texts.get(column));
                let text = own.cloned().unwrap_or_else(|| metric::number(value, 2));
                pen.text(centre, &text, &font);
            }
        }
        pen.end();
    }

    /// Labels of the columns and the reference, which is named under the lowest matrices.
    fn draw_below(&self, pen: &mut Pen, (x, y): Spot, is_lowest: bool) {
        let bottom = y + CELL.1 * self.rows.len() as f64;
        let cell = self.cell();
        for (column, label) in self.columns.iter().enumerate() {
            let centre = x + (column as f64 + 0.5) * cell;
            let font = Font {
                size: TEXT - 1,
                ..Font::MIDDLE
            };
            pen.text((centre, bottom + 17.0), label, &font);
        }
        let right = x + cell * self.columns.len() as f64;
        pen.line((x, bottom), (right, bottom), FRAME, 1.0, &[]);
        let reference = self.reference.as_ref();
        if let Some((at, text)) = reference.filter(|(at, _)| *at <= self.columns.len()) {
            let line = x + *at as f64 * cell;
            pen.line((line, y - 4.0), (line, bottom + 5.0), INK, 1.4, &REFERENCE);
            if is_lowest {
                pen.text((line, bottom + 32.0), text, &Font::NOTE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_gaps_and_the_reference_are_drawn() {
        let grid = |name: &str| Grid {
            name: name.into(),
            values: vec![vec![0.0, 0.25], vec![f64::NAN, 1.0]],
            texts: Vec::new(),
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
        assert!(Grids::default().to_svg().starts_with("<svg"));
    }
}
