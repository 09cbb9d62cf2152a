//! Figures as data, drawn the same way everywhere: lines over seeds and heat maps, to SVG and PNG.
//!
//! The layout (axes, ticks at the tested lengths, legend) is ours; kuva holds the scene and writes
//! both formats from it, the PNG with its bundled font, so a machine without fonts draws the same
//! picture. Lines differ in colour (Okabe-Ito), marker and dash, so that they can be told apart in
//! print and without colour vision.

mod grids;

pub use grids::{Grid, Grids};

use crate::text::{name, shorten, shown};
use kuva::RasterBackend;
use kuva::backend::svg::SvgBackend;
use kuva::render::color::Color;
use kuva::render::render::{PathData, Primitive, Scene, TextAnchor};
use std::fmt::Write as _;

/// Lines over a numeric axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinePlot {
    /// What it shows.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// Name of the x axis, drawn below it.
    pub x_label: String,
    /// Name of the y axis, drawn above it, upright.
    pub y_label: String,
    /// Logarithmic x; points at or below 0 are left out.
    pub log_x: bool,
    /// Logarithmic y; points at or below 0 are left out.
    pub log_y: bool,
    /// Tick positions of x; empty for round numbers.
    pub x_ticks: Vec<f64>,
    /// Range of y that is shown whatever the data are.
    pub y_range: Option<(f64, f64)>,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
    /// A vertical dashed line and its name.
    pub reference_x: Option<(f64, String)>,
    /// A horizontal dotted line and its name in the legend.
    pub reference_y: Option<(f64, String)>,
    /// What the names of the lines are values of, above the legend; may be empty.
    pub legend: String,
    /// Markers at every point; otherwise a few along the line.
    pub mark_points: bool,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points by ascending x. Those that are not finite, or beyond 1e150, are left out.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper end around each point, where known; as long as `points`, or empty.
    pub band: Vec<Option<(f64, f64)>>,
    /// Look of the line: the same number looks the same in every figure. Up to 24 differ.
    pub style: usize,
}

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
    /// Rows of equal length; what is not finite is drawn grey.
    pub values: Vec<Vec<f64>>,
    /// Values of the two ends of the colours; the finite data's if none.
    pub range: Option<(f64, f64)>,
    /// A vertical and a horizontal dashed line before this column and row, and their name.
    pub reference: Option<(usize, String)>,
}

/// The figure could not be turned into an image.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the figure \"{title}\": {reason}")]
pub struct PlotError {
    title: String,
    reason: String,
}

/// Pixels per unit of the PNG: sharp on dense displays and in print at column width.
const PNG_SCALE: f32 = 2.0;
const FONTS: &str = "DejaVu Sans, Verdana, Segoe UI, Helvetica, Arial, sans-serif";

const INK: Color = Color::Rgb(0x22, 0x22, 0x22);
const MUTED: Color = Color::Rgb(0x5a, 0x5a, 0x5a);
const FRAME: Color = Color::Rgb(0x8a, 0x8a, 0x8a);
const GRID: Color = Color::Rgb(0xe6, 0xe6, 0xe6);
const GAP: Color = Color::Rgb(0xdd, 0xdd, 0xdd);
const WHITE: Color = Color::Rgb(0xff, 0xff, 0xff);

/// Okabe and Ito's palette, its yellow (illegible as a line on white) replaced by grey.
const PALETTE: [(u8, u8, u8); 8] = [
    (0x00, 0x72, 0xb2),
    (0xd5, 0x5e, 0x00),
    (0x00, 0x9e, 0x73),
    (0xe6, 0x9f, 0x00),
    (0xcc, 0x79, 0xa7),
    (0x56, 0xb4, 0xe9),
    (0x00, 0x00, 0x00),
    (0x80, 0x80, 0x80),
];
const DOTS: [f64; 2] = [2.0, 3.0];
const DASHES: [&[f64]; 3] = [&[], &[7.0, 3.5], &DOTS];

const TITLE: u32 = 15;
const TEXT: u32 = 12;
const PLOT_WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 330.0;
const LINE_STEP: f64 = 19.0;
const LEGEND_SAMPLE: f64 = 30.0;
/// Longest name in the legend, and longest line of one, in characters.
const LEGEND_CHARS: usize = 100;
const LEGEND_LINE: usize = 40;
/// From line to line of one name.
const LEGEND_WRAP: f64 = 14.0;
/// Longest title, subtitle and name of an axis, in characters: their width makes the picture's.
const LONGEST: usize = 120;

impl LinePlot {
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
        let x_axis = Axis::x(self);
        let y_axis = Axis::y(self);
        let left = 14.0
            + y_axis
                .ticks
                .iter()
                .map(|t| text_width(&t.label, TEXT))
                .fold(24.0, f64::max)
            + 8.0;
        let head = Head {
            title: &self.title,
            subtitle: &self.subtitle,
            y_label: &self.y_label,
            above: self.reference_x.is_some(),
        };
        let top = head.height();
        let right = left + PLOT_WIDTH;
        let bottom = top + PLOT_HEIGHT;
        let reference_y = self
            .reference_y
            .as_ref()
            .filter(|(at, _)| y_axis.holds(*at));
        let legend = Legend::of(self, reference_y);
        let width = (right + legend.width() + 24.0)
            .max(left + text_width(&self.title, TITLE) * 1.1 + 14.0)
            .ceil();
        let height = (bottom + 58.0)
            .max(top + 12.0 + legend.height() + 12.0)
            .ceil();

        let mut pen = Pen::new(width, height, raster);
        head.draw(&mut pen, left);
        let x_of = |v: f64| left + x_axis.share(v) * PLOT_WIDTH;
        let y_of = |v: f64| bottom - y_axis.share(v) * PLOT_HEIGHT;

        for tick in &y_axis.ticks {
            let y = y_of(tick.at);
            pen.line((left, y), (right, y), &GRID, 1.0, &[]);
            pen.text(
                left - 8.0,
                y + 4.2,
                &tick.label,
                TEXT,
                TextAnchor::End,
                &INK,
            );
        }
        for tick in &x_axis.ticks {
            pen.line(
                (x_of(tick.at), top),
                (x_of(tick.at), bottom),
                &GRID,
                1.0,
                &[],
            );
            pen.line(
                (x_of(tick.at), bottom),
                (x_of(tick.at), bottom + 5.0),
                &FRAME,
                1.0,
                &[],
            );
        }
        for tick in spread(&x_axis.ticks, self.reference_x.as_ref().map(|r| r.0), &x_of) {
            pen.text(
                x_of(tick.at),
                bottom + 20.0,
                &tick.label,
                TEXT,
                TextAnchor::Middle,
                &INK,
            );
        }
        pen.text(
            (left + right) / 2.0,
            bottom + 44.0,
            &self.x_label,
            TEXT,
            TextAnchor::Middle,
            &INK,
        );

        if let Some((at, _)) = reference_y {
            pen.line((left, y_of(*at)), (right, y_of(*at)), &MUTED, 1.2, &DOTS);
        }
        if let Some((at, name)) = self
            .reference_x
            .as_ref()
            .filter(|(at, _)| x_axis.holds(*at))
        {
            let x = x_of(*at);
            pen.line((x, top - 6.0), (x, bottom), &MUTED, 1.4, &[5.0, 4.0]);
            let half = text_width(name, TEXT - 1) / 2.0;
            let centre = x.clamp(left + half, (right - half).max(left + half));
            pen.text(
                centre,
                top - 10.0,
                name,
                TEXT - 1,
                TextAnchor::Middle,
                &MUTED,
            );
        }

        let drawn: Vec<Vec<Vec<Dot>>> = self
            .series
            .iter()
            .map(|s| runs(s, &x_axis, &y_axis, &x_of, &y_of))
            .collect();
        for (series, runs) in self.series.iter().zip(&drawn) {
            runs.iter()
                .for_each(|run| pen.band(run, &Look::of(series.style)));
        }
        for (series, runs) in self.series.iter().zip(&drawn) {
            let look = Look::of(series.style);
            for run in runs {
                let line: Vec<(f64, f64)> = run.iter().map(|d| d.at).collect();
                pen.polyline(&line, &look.color, 2.0, look.dash);
            }
        }
        // Markers last: no line hides the points it is drawn through.
        for (index, (series, runs)) in self.series.iter().zip(&drawn).enumerate() {
            let look = Look::of(series.style);
            let dots: Vec<(f64, f64)> = runs.iter().flatten().map(|d| d.at).collect();
            if self.mark_points || dots.len() <= 12 {
                dots.iter().for_each(|&at| pen.marker(at, &look));
            } else {
                // Staggered, so that lines that lie upon each other show whose they are.
                let step = PLOT_WIDTH / 4.0;
                let mut next = left + step * (0.15 + 0.7 * (index as f64 * 0.381_966).fract());
                for &at in &dots {
                    if at.0 >= next {
                        pen.marker(at, &look);
                        next += step;
                    }
                }
            }
        }
        pen.line((left, bottom), (right, bottom), &FRAME, 1.2, &[]);
        pen.line((left, top), (left, bottom), &FRAME, 1.2, &[]);

        legend.draw(&mut pen, right + 22.0, top + 10.0);
        if self.series.iter().all(|s| s.points.is_empty()) {
            pen.text(
                (left + right) / 2.0,
                (top + bottom) / 2.0,
                "no numbers",
                TITLE,
                TextAnchor::Middle,
                &MUTED,
            );
        }
        pen.scene
    }
}

impl Heatmap {
    /// Rows or columns beyond this are averaged in blocks: more cells than pixels help nobody.
    const MOST_CELLS: usize = 128;

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
        let (n_rows, n_cols) = (
            self.values.len(),
            self.values.iter().map(Vec::len).max().unwrap_or(0),
        );
        let block = n_rows.max(n_cols).div_ceil(Self::MOST_CELLS).max(1);
        let (rows, cols) = (n_rows.div_ceil(block), n_cols.div_ceil(block));
        let cells: Vec<f64> = (0..rows * cols)
            .map(|i| self.block_mean(i / cols * block, i % cols * block, block))
            .collect();
        let finite = || cells.iter().copied().filter(|v| v.is_finite());
        let (low, high) = self.range.unwrap_or((
            finite().fold(f64::INFINITY, f64::min),
            finite().fold(f64::NEG_INFINITY, f64::max),
        ));
        let (low, high) = if low < high {
            (low, high)
        } else if low.is_finite() {
            (low - 0.5, low + 0.5)
        } else {
            (0.0, 1.0)
        };

        let cell = (420.0 / rows.max(cols).max(1) as f64).min(48.0);
        let (plot_width, plot_height) = (cell * cols as f64, cell * rows as f64);
        let subtitle = match (block, self.subtitle.as_str()) {
            (1, s) => s.to_string(),
            (b, "") => format!("mean over blocks of {b} x {b}"),
            (b, s) => format!("{s}; mean over blocks of {b} x {b}"),
        };
        let head = Head {
            title: &self.title,
            subtitle: &subtitle,
            y_label: &self.y_label,
            above: self.reference.is_some(),
        };
        let left = 14.0 + text_width(&n_rows.to_string(), TEXT).max(24.0) + 8.0;
        let (top, right) = (head.height(), left + plot_width);
        let bottom = top + plot_height;
        let scale = Axis::linear((low, high), 5);
        let bar_labels = scale
            .ticks
            .iter()
            .map(|t| text_width(&t.label, TEXT))
            .fold(text_width(&self.value_label, TEXT) - 14.0, f64::max);
        let width = (right + 24.0 + 14.0 + 8.0 + bar_labels + 14.0)
            .max(left + text_width(&self.title, TITLE) * 1.1 + 14.0)
            .ceil();
        let height = (bottom + 58.0).max(top + 120.0).ceil();

        let mut pen = Pen::new(width, height, raster);
        head.draw(&mut pen, left);
        let mut batch = (Vec::new(), Vec::new(), Vec::new());
        for (i, &value) in cells.iter().enumerate() {
            batch.0.push(left + (i % cols) as f64 * cell);
            batch.1.push(top + (i / cols) as f64 * cell);
            batch.2.push(if value.is_finite() {
                shade((value - low) / (high - low))
            } else {
                GAP
            });
        }
        // A hair wider than the cell: no seams between neighbours.
        let size = vec![cell + 0.3; cells.len()];
        pen.scene.elements.push(Primitive::RectBatch {
            x: batch.0,
            y: batch.1,
            w: size.clone(),
            h: size,
            fills: batch.2,
        });
        let per = cell / block as f64;
        let columns = index_ticks(n_cols);
        let x_of = |at: f64| left + (at + 0.5) * per;
        for tick in spread(&columns, None, &x_of) {
            pen.text(
                x_of(tick.at),
                bottom + 18.0,
                &tick.label,
                TEXT,
                TextAnchor::Middle,
                &INK,
            );
        }
        for tick in index_ticks(n_rows) {
            pen.text(
                left - 8.0,
                top + (tick.at + 0.5) * per + 4.2,
                &tick.label,
                TEXT,
                TextAnchor::End,
                &INK,
            );
        }
        pen.text(
            (left + right) / 2.0,
            bottom + 42.0,
            &self.x_label,
            TEXT,
            TextAnchor::Middle,
            &INK,
        );
        if let Some((at, name)) = self
            .reference
            .as_ref()
            .filter(|(at, _)| *at < n_cols.max(n_rows))
        {
            let at = *at as f64 * per;
            if left + at < right {
                pen.line(
                    (left + at, top - 6.0),
                    (left + at, bottom),
                    &INK,
                    1.4,
                    &[5.0, 4.0],
                );
                pen.text(
                    (left + at).max(left + text_width(name, TEXT - 1) / 2.0),
                    top - 10.0,
                    name,
                    TEXT - 1,
                    TextAnchor::Middle,
                    &MUTED,
                );
            }
            if top + at < bottom {
                pen.line((left, top + at), (right, top + at), &INK, 1.4, &[5.0, 4.0]);
            }
        }

        let bar = right + 24.0;
        let bar_height = plot_height.max(100.0);
        const STEPS: usize = 64;
        for i in 0..STEPS {
            let share = 1.0 - (i as f64 + 0.5) / STEPS as f64;
            pen.rect(
                bar,
                top + bar_height * i as f64 / STEPS as f64,
                14.0,
                bar_height / STEPS as f64 + 0.3,
                shade(share),
                1.0,
            );
        }
        for tick in &scale.ticks {
            let y = top + bar_height * (1.0 - (tick.at - low) / (high - low));
            pen.line((bar + 14.0, y), (bar + 18.0, y), &FRAME, 1.0, &[]);
            pen.text(
                bar + 22.0,
                y + 4.2,
                &tick.label,
                TEXT,
                TextAnchor::Start,
                &INK,
            );
        }
        pen.text(
            bar,
            top - 10.0,
            &self.value_label,
            TEXT,
            TextAnchor::Start,
            &INK,
        );
        pen.scene
    }

    fn block_mean(&self, row: usize, col: usize, block: usize) -> f64 {
        let values = self
            .values
            .iter()
            .skip(row)
            .take(block)
            .flat_map(|r| r.iter().skip(col).take(block));
        let (sum, n) = values
            .filter(|v| v.is_finite())
            .fold((0.0, 0usize), |(sum, n), v| (sum + v, n + 1));
        if n == 0 { f64::NAN } else { sum / n as f64 }
    }
}

/// The names of the lines, right of the axes: what they are values of, the lines, and the
/// horizontal reference.
struct Legend<'a> {
    heading: String,
    /// Name, broken into lines, and look; none for the reference.
    rows: Vec<(Vec<String>, Option<&'a Series>)>,
}

impl<'a> Legend<'a> {
    fn of(plot: &'a LinePlot, reference: Option<&(f64, String)>) -> Self {
        let broken = |text: &str| wrapped(&name(text, LEGEND_CHARS), LEGEND_LINE);
        let series = plot.series.iter().map(|s| (broken(&s.name), Some(s)));
        let reference = reference
            .filter(|(_, name)| !name.is_empty())
            .map(|(_, name)| (broken(name), None));
        Self {
            heading: name(&plot.legend, LEGEND_LINE),
            rows: series.chain(reference).collect(),
        }
    }

    fn width(&self) -> f64 {
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

    fn height(&self) -> f64 {
        let heading = if self.heading.is_empty() {
            0.0
        } else {
            LINE_STEP
        };
        heading
            + self
                .rows
                .iter()
                .map(|(lines, _)| row_height(lines))
                .sum::<f64>()
    }

    fn draw(&self, pen: &mut Pen, x: f64, mut y: f64) {
        if !self.heading.is_empty() && !self.rows.is_empty() {
            pen.text(x, y + 4.2, &self.heading, TEXT, TextAnchor::Start, &MUTED);
            y += LINE_STEP;
        }
        for (lines, series) in &self.rows {
            let sample = [(x, y), (x + LEGEND_SAMPLE, y)];
            match series.map(|s| Look::of(s.style)) {
                Some(look) => {
                    pen.polyline(&sample, &look.color, 2.0, look.dash);
                    pen.marker((x + LEGEND_SAMPLE / 2.0, y), &look);
                }
                None => pen.polyline(&sample, &MUTED, 1.2, &DOTS),
            }
            let ink = if series.is_some_and(|s| !s.points.is_empty()) {
                &INK
            } else {
                &MUTED
            };
            for (at, line) in lines.iter().enumerate() {
                pen.text(
                    x + LEGEND_SAMPLE + 8.0,
                    y + 4.2 + at as f64 * LEGEND_WRAP,
                    line,
                    TEXT,
                    TextAnchor::Start,
                    ink,
                );
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
fn wrapped(text: &str, most: usize) -> Vec<String> {
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

/// Title, subtitle, the name of y and the name of the reference line, stacked above the axes.
struct Head<'a> {
    title: &'a str,
    subtitle: &'a str,
    y_label: &'a str,
    above: bool,
}

impl Head<'_> {
    fn rows(&self) -> (f64, f64, f64) {
        let subtitle = 26.0 + if self.subtitle.is_empty() { 0.0 } else { 19.0 };
        let y_label = subtitle + if self.y_label.is_empty() { 0.0 } else { 26.0 };
        (
            subtitle,
            y_label,
            y_label + if self.above { 32.0 } else { 14.0 },
        )
    }

    fn height(&self) -> f64 {
        self.rows().2
    }

    fn draw(&self, pen: &mut Pen, left: f64) {
        let (subtitle, y_label, _) = self.rows();
        pen.bold(14.0, 26.0, self.title, TITLE);
        if !self.subtitle.is_empty() {
            pen.text(
                14.0,
                subtitle,
                self.subtitle,
                TEXT,
                TextAnchor::Start,
                &MUTED,
            );
        }
        if !self.y_label.is_empty() {
            pen.text(
                left.min(14.0),
                y_label,
                self.y_label,
                TEXT,
                TextAnchor::Start,
                &INK,
            );
        }
    }
}

/// Colour, marker and dash of a line.
struct Look {
    color: Color,
    marker: usize,
    dash: &'static [f64],
}

impl Look {
    fn of(style: usize) -> Self {
        let (r, g, b) = PALETTE[style % PALETTE.len()];
        Self {
            color: Color::Rgb(r, g, b),
            marker: style % 8,
            dash: DASHES[style / PALETTE.len() % DASHES.len()],
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Tick {
    at: f64,
    label: String,
}

struct Axis {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<Tick>,
}

impl Axis {
    fn x(plot: &LinePlot) -> Self {
        let usable = |v: &f64| is_drawable(*v, plot.log_x);
        let points = plot.series.iter().flat_map(|s| &s.points).map(|p| p.0);
        let reference = plot.reference_x.iter().map(|r| r.0);
        let Some((low, high)) = extent(
            points
                .chain(plot.x_ticks.iter().copied())
                .chain(reference)
                .filter(usable),
        ) else {
            return Self::linear((0.0, 1.0), 5);
        };
        // A count that starts near nothing starts at nothing.
        let low = if !plot.log_x && low > 0.0 && low < 0.2 * high {
            0.0
        } else {
            low
        };
        let mut axis = if plot.log_x {
            Self::log((low, high), 0.03)
        } else {
            Self::linear((low, high), 6)
        };
        if !plot.log_x {
            let pad = 0.02 * (high - low);
            axis = Self {
                low: low - pad,
                high: high + pad,
                ..axis
            };
            if low == high {
                axis = Self {
                    low: low - 0.5,
                    high: high + 0.5,
                    ..axis
                };
            }
        }
        if !plot.x_ticks.is_empty() {
            axis.ticks = plot
                .x_ticks
                .iter()
                .copied()
                .filter(usable)
                .map(|at| Tick {
                    at,
                    label: plain(at),
                })
                .collect();
        }
        axis.ticks.retain(|t| t.at >= axis.low && t.at <= axis.high);
        axis
    }

    fn y(plot: &LinePlot) -> Self {
        let usable = |v: &f64| is_drawable(*v, plot.log_y);
        let points = plot.series.iter().flat_map(|s| &s.points).map(|p| p.1);
        let fixed = plot.y_range.iter().flat_map(|r| [r.0, r.1]);
        let reference = plot.reference_y.iter().map(|r| r.0);
        let Some((low, high)) = extent(points.chain(fixed).chain(reference).filter(usable)) else {
            return Self::linear((0.0, 1.0), 5);
        };
        // A wide interval of few seeds may widen the axis, not rule it.
        let ends = plot
            .series
            .iter()
            .flat_map(|s| &s.band)
            .flatten()
            .flat_map(|b| [b.0, b.1])
            .filter(usable);
        let (band_low, band_high) = extent(ends).unwrap_or((low, high));
        if plot.log_y {
            let slack = (high / low).powf(0.15).max(1.2);
            return Self::log(
                (
                    band_low.clamp(low / slack, low),
                    band_high.clamp(high, high * slack),
                ),
                0.04,
            );
        }
        let slack = 0.25 * (high - low).max(0.02 * high.abs());
        let (low, high) = match plot.y_range {
            Some((a, b)) if low >= a && high <= b => (a, b),
            _ => (
                band_low.clamp(low - slack, low),
                band_high.clamp(high, high + slack),
            ),
        };
        let pad = if high > low {
            0.04 * (high - low)
        } else {
            0.05 * high.abs().max(1.0)
        };
        let axis = Self::linear((low - pad, high + pad), 6);
        // Ticks outside the data's own range would suggest scores above 1.
        let ticks = axis
            .ticks
            .iter()
            .filter(|t| plot.y_range.is_none() || (t.at >= low - 1e-9 && t.at <= high + 1e-9))
            .cloned()
            .collect();
        Self { ticks, ..axis }
    }

    /// About `count` round ticks within the range.
    fn linear((low, high): (f64, f64), count: usize) -> Self {
        // Ends too close for their own digits would leave no step between them.
        let least = 1e-9 * low.abs().max(high.abs()).max(1e-100);
        let (low, high) = if high - low > least {
            (low, high)
        } else {
            (low - least.max(0.5), high + least.max(0.5))
        };
        let rough = (high - low) / count as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * magnitude)
            .find(|s| *s >= rough * 0.999)
            .unwrap_or(rough);
        let decimals = (0..12).find(|&d| {
            (step * 10f64.powi(d)).fract().abs() < 1e-9
                || (step * 10f64.powi(d)).fract() > 1.0 - 1e-9
        });
        let decimals = decimals.unwrap_or(12) as usize;
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let ticks = (first..=last).take(1000).map(|i| {
            let at = i as f64 * step;
            let label = if at.abs() >= 1e5 {
                plain(at)
            } else {
                crate::metric::number(at, decimals)
            };
            Tick { at, label }
        });
        Self {
            low,
            high,
            log: false,
            ticks: ticks.collect(),
        }
    }

    /// Ends at the data, not at decades; ticks at 1-2-5, or at every digit or decade where that
    /// suits the span.
    fn log((low, high): (f64, f64), pad: f64) -> Self {
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low / 1.5, high * 1.5)
        };
        let spread = (high / low).powf(pad);
        let (low, high) = (low / spread, high * spread);
        let decades = (high / low).log10();
        let digits: &[f64] = match decades {
            d if d > 4.0 => &[1.0],
            d if d > 1.0 => &[1.0, 2.0, 5.0],
            d if d > 0.5 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            _ => &[],
        };
        let mut ticks = Vec::new();
        for exponent in low.log10().floor() as i32..=high.log10().ceil() as i32 {
            ticks.extend(digits.iter().map(|d| d * 10f64.powi(exponent)));
        }
        // Beyond eight decades, every second or third.
        let every = if digits.len() == 1 {
            (decades / 8.0).ceil().max(1.0) as usize
        } else {
            1
        };
        let mut ticks: Vec<Tick> = ticks
            .into_iter()
            .filter(|t| *t >= low * 0.999_999 && *t <= high * 1.000_001)
            .step_by(every)
            .map(|at| Tick {
                at,
                label: plain(at),
            })
            .collect();
        if digits.is_empty() {
            ticks = Self::linear((low, high), 6).ticks;
            ticks.retain(|t| t.at > 0.0);
        }
        Self {
            low,
            high,
            log: true,
            ticks,
        }
    }

    fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    fn holds(&self, value: f64) -> bool {
        value >= self.low && value <= self.high
    }
}

/// Whether an axis can hold a value: differences of two such values are finite, and so are
/// quotients, those of the ends of an axis with room for bands and at both ends included.
fn is_drawable(value: f64, log: bool) -> bool {
    if log {
        (1e-100..=1e100).contains(&value)
    } else {
        value.abs() <= 1e150
    }
}

/// A point on the page with its band.
struct Dot {
    at: (f64, f64),
    band: Option<(f64, f64)>,
}

/// The stretches of a line without a gap.
fn runs(
    series: &Series,
    x_axis: &Axis,
    y_axis: &Axis,
    x_of: &dyn Fn(f64) -> f64,
    y_of: &dyn Fn(f64) -> f64,
) -> Vec<Vec<Dot>> {
    let drawable = |(x, y): (f64, f64)| is_drawable(x, x_axis.log) && is_drawable(y, y_axis.log);
    let mut out: Vec<Vec<Dot>> = vec![Vec::new()];
    for (i, &(x, y)) in series.points.iter().enumerate() {
        if !drawable((x, y)) {
            out.push(Vec::new());
            continue;
        }
        let end = |v: f64| {
            if y_axis.log && v <= 0.0 {
                y_of(y_axis.low)
            } else {
                y_of(v)
            }
        };
        let band = series
            .band
            .get(i)
            .copied()
            .flatten()
            .filter(|b| b.0.is_finite() && b.1.is_finite());
        let dot = Dot {
            at: (x_of(x), y_of(y)),
            band: band.map(|(a, b)| (end(a), end(b))),
        };
        if let Some(run) = out.last_mut() {
            run.push(dot);
        }
    }
    out.retain(|run| !run.is_empty());
    out
}

struct Pen {
    scene: Scene,
    /// The raster backend restarts a dash at every segment; it is given the dashes as lines.
    raster: bool,
}

impl Pen {
    fn new(width: f64, height: f64, raster: bool) -> Self {
        let mut scene = Scene::new(width, height);
        scene.font_family = Some(FONTS.into());
        scene.text_color = Some("#222222".into());
        Self { scene, raster }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &Color, width: f64, dash: &[f64]) {
        self.polyline(&[from, to], color, width, dash);
    }

    fn polyline(&mut self, points: &[(f64, f64)], color: &Color, width: f64, dash: &[f64]) {
        if points.len() < 2 {
            return;
        }
        let one = |points: Vec<(f64, f64)>, dash: Option<String>| Primitive::PolyLine {
            points,
            stroke: color.clone(),
            stroke_width: width,
            stroke_dasharray: dash,
        };
        if dash.is_empty() {
            self.scene.elements.push(one(points.to_vec(), None));
        } else if self.raster {
            self.scene.elements.extend(
                dashes(points, dash)
                    .into_iter()
                    .map(|piece| one(piece, None)),
            );
        } else {
            let text: Vec<String> = dash.iter().map(f64::to_string).collect();
            self.scene
                .elements
                .push(one(points.to_vec(), Some(text.join(" "))));
        }
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: Color, opacity: f64) {
        let opacity = (opacity < 1.0).then_some(opacity);
        self.scene.elements.push(Primitive::Rect {
            x,
            y,
            width,
            height,
            fill,
            stroke: None,
            stroke_width: None,
            opacity,
        });
    }

    fn text(&mut self, x: f64, y: f64, text: &str, size: u32, anchor: TextAnchor, color: &Color) {
        self.write(x, y, text, size, anchor, color, false);
    }

    fn bold(&mut self, x: f64, y: f64, text: &str, size: u32) {
        self.write(x, y, text, size, TextAnchor::Start, &INK, true);
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        x: f64,
        y: f64,
        text: &str,
        size: u32,
        anchor: TextAnchor,
        color: &Color,
        bold: bool,
    ) {
        self.scene.elements.push(Primitive::Text {
            x,
            y,
            content: literal(&shorten(text, LONGEST)),
            size,
            anchor,
            rotate: None,
            bold,
            color: Some(color.clone()),
        });
    }

    /// The interval: an area between neighbours, a bar at a point that stands alone.
    fn band(&mut self, run: &[Dot], look: &Look) {
        for piece in run.split(|dot| dot.band.is_none()) {
            if let [alone] = piece
                && let Some((a, b)) = alone.band
            {
                self.line((alone.at.0, a), (alone.at.0, b), &look.color, 1.4, &[]);
            }
            if piece.len() < 2 {
                continue;
            }
            let lower = piece.iter().filter_map(|d| Some((d.at.0, d.band?.0)));
            let upper = piece.iter().rev().filter_map(|d| Some((d.at.0, d.band?.1)));
            let mut path = String::new();
            for (i, (x, y)) in lower.chain(upper).enumerate() {
                let _ = write!(path, "{}{x:.2} {y:.2} ", if i == 0 { 'M' } else { 'L' });
            }
            path.push('Z');
            self.path(path, look.color.clone(), Color::None, 0.0, Some(0.14));
        }
    }

    fn path(
        &mut self,
        d: String,
        fill: Color,
        stroke: Color,
        stroke_width: f64,
        opacity: Option<f64>,
    ) {
        let data = PathData {
            d,
            fill: Some(fill),
            stroke,
            stroke_width,
            opacity,
            stroke_dasharray: None,
        };
        self.scene.elements.push(Primitive::Path(Box::new(data)));
    }

    fn marker(&mut self, (x, y): (f64, f64), look: &Look) {
        let polygon = |corners: &[(f64, f64)]| {
            let mut d = String::new();
            for (i, (dx, dy)) in corners.iter().enumerate() {
                let _ = write!(
                    d,
                    "{}{:.2} {:.2} ",
                    if i == 0 { 'M' } else { 'L' },
                    x + dx,
                    y + dy
                );
            }
            d + "Z"
        };
        let r = 4.2;
        let shape = match look.marker {
            1 => polygon(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
            2 => polygon(&[(0.0, -5.0), (4.6, 3.6), (-4.6, 3.6)]),
            3 => polygon(&[(0.0, -5.4), (5.0, 0.0), (0.0, 5.4), (-5.0, 0.0)]),
            4 => polygon(&[(0.0, 5.0), (4.6, -3.6), (-4.6, -3.6)]),
            6 => polygon(&[
                (-1.7, -5.0),
                (1.7, -5.0),
                (1.7, -1.7),
                (5.0, -1.7),
                (5.0, 1.7),
                (1.7, 1.7),
                (1.7, 5.0),
                (-1.7, 5.0),
                (-1.7, 1.7),
                (-5.0, 1.7),
                (-5.0, -1.7),
                (-1.7, -1.7),
            ]),
            7 => polygon(&[(-5.0, 0.0), (3.6, -4.6), (3.6, 4.6)]),
            _ => String::new(),
        };
        let hollow = look.marker == 5;
        if shape.is_empty() {
            self.scene.elements.push(Primitive::Circle {
                cx: x,
                cy: y,
                r: if hollow { r - 0.4 } else { r },
                fill: if hollow { WHITE } else { look.color.clone() },
                fill_opacity: None,
                stroke: Some(if hollow { look.color.clone() } else { WHITE }),
                stroke_width: Some(if hollow { 1.8 } else { 1.0 }),
            });
        } else {
            self.path(shape, look.color.clone(), WHITE, 0.9, None);
        }
    }
}

/// The drawn pieces of a dashed line, the pattern carried across its corners.
fn dashes(points: &[(f64, f64)], pattern: &[f64]) -> Vec<Vec<(f64, f64)>> {
    let mut out = Vec::new();
    let (mut index, mut left) = (0, pattern[0]);
    let mut piece = vec![points[0]];
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let draws = index % 2 == 0;
            if length <= left {
                left -= length;
                if draws {
                    piece.push(to);
                }
                break;
            }
            let share = left / length;
            from = (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            );
            if draws {
                piece.push(from);
                out.push(std::mem::take(&mut piece));
            } else {
                piece = vec![from];
            }
            index += 1;
            left = pattern[index % pattern.len()];
        }
    }
    if piece.len() > 1 {
        out.push(piece);
    }
    out
}

/// What a figure is, in one line, for those who do not see it.
pub(crate) fn described(title: &str, subtitle: &str) -> String {
    if subtitle.is_empty() {
        title.into()
    } else {
        format!("{title}: {subtitle}")
    }
}

fn to_svg(scene: &Scene, title: &str) -> String {
    let svg = SvgBackend::new().render_scene(scene);
    // Scalable in a page, named to a screen reader, and without the version stamp that would change
    // with the library.
    let stamp_end = svg.find("-->").map_or(0, |at| at + 3);
    let open_end = svg.find('>').map_or(0, |at| at + 1);
    let (open, rest) = (&svg[..open_end], &svg[stamp_end.max(open_end)..]);
    let view = format!(
        " viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        scene.width,
        scene.height,
        xml_attribute(title)
    );
    format!("{}{view}{rest}\n", open.trim_end_matches('>'))
}

fn to_png(scene: &Scene, title: &str) -> Result<Vec<u8>, PlotError> {
    RasterBackend::new()
        .with_scale(PNG_SCALE)
        .render_scene(scene)
        .map_err(|reason| PlotError {
            title: title.into(),
            reason,
        })
}

fn xml_attribute(text: &str) -> String {
    let mut out = String::new();
    for c in name(text, LONGEST).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
    out
}

/// kuva reads `$...$` as mathematics; a name is a name.
fn literal(text: &str) -> String {
    shown(text).replace('$', "\\$")
}

/// Estimated width in DejaVu Sans, the widest of the families asked for.
fn text_width(text: &str, size: u32) -> f64 {
    let em: f64 = text
        .chars()
        .take(LONGEST)
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.32,
            'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' | 'I' => 0.40,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
            c if c.is_ascii_digit() => 0.64,
            c if c.is_ascii_uppercase() => 0.70,
            c if c.is_ascii() => 0.62,
            _ => 0.85,
        })
        .sum();
    em * f64::from(size)
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, v| match range {
        None => Some((v, v)),
        Some((a, b)) => Some((a.min(v), b.max(v))),
    })
}

/// A tick's number without noise: 64, 0.5, 1e6.
fn plain(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        let text = format!("{value:.1e}");
        return text.replace(".0e", "e");
    }
    let text = format!("{value:.4}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

/// The ticks whose labels fit: the ends and the reference first, then its doublings, then the rest
/// from left to right.
fn spread<'t>(
    ticks: &'t [Tick],
    reference: Option<f64>,
    place: &dyn Fn(f64) -> f64,
) -> Vec<&'t Tick> {
    let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else {
        return Vec::new();
    };
    let origin = reference.unwrap_or(first.at);
    let rank = |tick: &Tick| match (tick.at / origin).log2() {
        _ if tick == first || tick == last => 0,
        0.0 => 1,
        doublings if doublings.is_finite() && doublings.fract().abs() < 1e-9 => 2,
        _ => 3,
    };
    let mut ranked: Vec<&Tick> = ticks.iter().collect();
    ranked.sort_by_key(|t| rank(t));
    let collides = |a: &Tick, b: &Tick| {
        let room = (text_width(&a.label, TEXT) + text_width(&b.label, TEXT)) / 2.0 + 6.0;
        (place(a.at) - place(b.at)).abs() < room
    };
    let mut kept: Vec<&Tick> = Vec::new();
    for tick in ranked {
        if !kept.iter().any(|k| collides(k, tick)) {
            kept.push(tick);
        }
    }
    kept
}

/// Whole numbers for rows and columns, counted from 0.
fn index_ticks(count: usize) -> Vec<Tick> {
    let step = (1..)
        .find(|s| {
            count.div_ceil(*s) <= 9 && [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100].contains(s)
                || *s > 100
        })
        .unwrap_or(1);
    let step = if step > 100 {
        count.div_ceil(8).next_power_of_two()
    } else {
        step
    };
    (0..count)
        .step_by(step)
        .map(|i| Tick {
            at: i as f64,
            label: i.to_string(),
        })
        .collect()
}

/// Viridis, by its corner colours.
fn shade(share: f64) -> Color {
    const STOPS: [(f64, f64, f64); 9] = [
        (68.0, 1.0, 84.0),
        (71.0, 44.0, 122.0),
        (59.0, 81.0, 139.0),
        (44.0, 113.0, 142.0),
        (33.0, 144.0, 141.0),
        (39.0, 173.0, 129.0),
        (92.0, 200.0, 99.0),
        (170.0, 220.0, 50.0),
        (253.0, 231.0, 37.0),
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let i = (at.floor() as usize).min(STOPS.len() - 2);
    let mix = |a: f64, b: f64| (a + (b - a) * (at - i as f64)).round() as u8;
    let (a, b) = (STOPS[i], STOPS[i + 1]);
    Color::Rgb(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_axis_ends_at_the_data() {
        let axis = Axis::log((4.0, 60.0), 0.04);
        assert!(axis.low > 3.0 && axis.high < 80.0);
        let labels: Vec<&str> = axis.ticks.iter().map(|t| t.label.as_str()).collect();
        assert_eq!(labels, ["5", "10", "20", "50"]);
        assert!(
            (axis.share(axis.low)).abs() < 1e-12 && (axis.share(axis.high) - 1.0).abs() < 1e-12
        );
    }

    #[test]
    fn narrow_and_wide_log_axes_have_ticks() {
        assert!(Axis::log((4.0, 4.4), 0.04).ticks.len() >= 3);
        let wide = Axis::log((1.0, 1e30), 0.04).ticks.len();
        assert!((3..=10).contains(&wide), "{wide}");
    }

    #[test]
    fn dash_pattern_runs_across_corners() {
        let pieces = dashes(&[(0.0, 0.0), (5.0, 0.0), (5.0, 9.0)], &[4.0, 2.0]);
        let starts: Vec<(f64, f64)> = pieces.iter().map(|p| p[0]).collect();
        assert_eq!(starts, [(0.0, 0.0), (5.0, 1.0), (5.0, 7.0)]);
    }

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

    #[test]
    fn the_legend_names_what_varies_and_the_reference() {
        let series = ["100", "1000"].map(|name| Series {
            name: name.into(),
            points: vec![(1.0, 0.2), (2.0, 0.9)],
            ..Default::default()
        });
        let mut plot = LinePlot {
            legend: "base".into(),
            reference_y: Some((0.5, "chance: 0.500".into())),
            series: series.into(),
            ..Default::default()
        };
        let svg = plot.to_svg();
        let place = |text: &str| {
            svg.find(&format!(">{text}<"))
                .unwrap_or_else(|| panic!("{text} is missing"))
        };
        assert!(place("base") < place("100") && place("1000") < place("chance: 0.500"));
        plot.reference_y = Some((7.0, "chance: 7.000".into()));
        plot.y_range = Some((0.0, 1.0));
        assert!(
            plot.to_svg().contains("chance: 7.000"),
            "the axis holds its reference"
        );
    }

    #[test]
    fn sixteen_looks_differ_without_colour() {
        let looks: std::collections::BTreeSet<_> = (0..16)
            .map(|i| {
                (
                    Look::of(i).marker,
                    DASHES.iter().position(|d| *d == Look::of(i).dash),
                )
            })
            .collect();
        assert_eq!(looks.len(), 16);
    }

    #[test]
    fn hostile_names_and_numbers_are_harmless() {
        let series = Series {
            name: "<script>$x$ & \u{1}".into(),
            points: vec![(1.0, f64::NAN), (0.0, 2.0), (2.0, 3.0)],
            ..Default::default()
        };
        let plot = LinePlot {
            title: "a \"<b>".into(),
            log_x: true,
            log_y: true,
            series: vec![series],
            ..Default::default()
        };
        let svg = plot.to_svg();
        assert!(
            !svg.contains("<script>")
                && svg.contains("&lt;script&gt;$x$ &amp;")
                && !svg.contains('\u{1}')
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(plot.to_png().unwrap().starts_with(b"\x89PNG"));
        assert!(LinePlot::default().to_svg().contains("no numbers"));
        assert!(Heatmap::default().to_svg().starts_with("<svg"));
    }

    #[test]
    fn large_maps_are_averaged() {
        let map = Heatmap {
            values: vec![vec![1.0; 300]; 300],
            ..Default::default()
        };
        let svg = map.to_svg();
        assert!(svg.contains("mean over blocks of 3 x 3"));
        assert!(svg.matches("<rect").count() < 11_000);
    }
}
