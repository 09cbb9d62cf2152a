//! Lines with bands over a numeric axis.

use super::axis::{Axis, Tick, extent, is_drawable, with_room};
use super::frame::{Head, Legend, MARGIN, described};
use super::page::{self, PageFigure};
use super::pen::{Font, Pen, PlotError, Spot, TO_BASELINE, Target, to_png, to_svg};
use super::series::Series;
use super::style::{DOTS, FRAME, GRID, Look, MUTED, REFERENCE, TEXT, TITLE, text_width};
use kuva::render::color::Color;
use kuva::render::render::Scene;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;
/// Points of a line in a page, which holds many figures.
const MOST_PAGE_POINTS: usize = 48;
/// Lines with at most this many points have a marker at each.
const MOST_MARKERS: usize = 12;

/// Lines over a numeric axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinePlot {
    /// What it shows.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// Name of the x axis, drawn below it.
    pub x_label: String,
    /// Name of the y axis, drawn above it, horizontally.
    pub y_label: String,
    /// What follows the name in brackets, with the scale. May be empty.
    pub y_note: String,
    /// Logarithmic x; points at or below 0 are left out.
    pub log_x: bool,
    /// Logarithmic y; points at or below 0 are left out.
    pub log_y: bool,
    /// Tick positions of x; empty for round numbers.
    pub x_ticks: Vec<f64>,
    /// Range of y that is always shown.
    pub y_range: Option<(f64, f64)>,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
    /// A vertical dashed line and its name.
    pub reference_x: Option<(f64, String)>,
    /// A horizontal dotted line and its name in the legend.
    pub reference_y: Option<(f64, String)>,
    /// Heading of the legend: what the names of the lines are values of. May be empty.
    pub legend: String,
    /// Markers at every point; otherwise a few along the line.
    pub mark_points: bool,
    /// Dots at every point of a seed's line, in pages.
    pub seed_dots: bool,
}

impl LinePlot {
    /// The figure as a self-contained SVG document.
    pub fn to_svg(&self) -> String {
        let name = described(&self.title, &self.subtitle);
        to_svg(&self.scene(Target::Svg), &name)
    }

    /// The figure as a PNG, from the same drawing.
    ///
    /// # Errors
    ///
    /// When the image cannot be encoded.
    pub fn to_png(&self) -> Result<Vec<u8>, PlotError> {
        to_png(&self.scene(Target::Png), &self.title)
    }

    /// The figure for a page, with its legend. `is_small`: as few numbers as still show the lines,
    /// for pages with many figures.
    pub(crate) fn to_page(&self, is_small: bool) -> PageFigure {
        let most = if is_small { 24 } else { MOST_PAGE_POINTS };
        let thinned = self.series.iter().map(|s| {
            let mut line = s.thinned(most);
            if is_small && !self.mark_points {
                line.seeds.clear();
            }
            line
        });
        let plot = Self {
            seed_dots: !is_small && self.mark_points,
            series: thinned.collect(),
            ..self.clone()
        };
        let reference = plot
            .reference_y
            .as_ref()
            .map(|(at, name)| (*at, name.as_str()));
        let axis = y_axis(&plot, true);
        let reference = reference.filter(|(at, _)| axis.holds(*at));
        let name = described(&self.title, &self.subtitle);
        let scale = if self.log_y { "; log scale" } else { "" };
        PageFigure {
            svg: page::svg(&plot.scene(Target::Page), &(name + scale)),
            heading: self.legend.clone(),
            entries: page::entries(&plot.series, reference.map(|(_, name)| name)),
        }
    }

    /// The same figure with the other scale of y, where both make sense.
    pub(crate) fn other_scale(&self) -> Option<Self> {
        let mut ys = self.series.iter().flat_map(|s| &s.points).map(|p| p.1);
        let fits = self.log_y || self.y_range.is_none() && ys.all(|y| y > 0.0);
        fits.then(|| Self {
            log_y: !self.log_y,
            ..self.clone()
        })
    }

    /// Name of the y axis with its note.
    fn y_name(&self) -> String {
        match (self.y_note.as_str(), self.log_y) {
            ("", _) => self.y_label.clone(),
            (note, false) => format!("{} ({note})", self.y_label),
            (note, true) => format!("{} ({note}, log scale)", self.y_label),
        }
    }

    fn scene(&self, target: Target) -> Scene {
        let (x, y) = (x_axis(self), y_axis(self, target == Target::Page));
        let y_name = self.y_name();
        let is_page = target == Target::Page;
        let head = Head {
            title: if is_page { "" } else { &self.title },
            subtitle: if is_page { "" } else { &self.subtitle },
            y_label: &y_name,
            has_reference: self.reference_x.is_some(),
        };
        let labels = y.ticks.iter().map(|t| text_width(&t.label, TEXT));
        let left = MARGIN + labels.fold(24.0, f64::max) + 8.0;
        let top = head.height();
        let area = Area {
            plot: self,
            x,
            y,
            left,
            right: left + WIDTH,
            top,
            bottom: top + HEIGHT,
        };
        let reference = area.reference_y().map(|(_, name)| name);
        let series = if is_page { &[][..] } else { &self.series };
        let legend = Legend::new(&self.legend, series, reference.filter(|_| !is_page));
        let width = (area.right + legend.width() + 24.0)
            .max(left + text_width(head.title, TITLE) * 1.1 + MARGIN)
            .ceil();
        let height = (area.bottom + 58.0)
            .max(top + 12.0 + legend.height() + 12.0)
            .ceil();

        let mut pen = Pen::new(width, height, target);
        head.draw(&mut pen, left);
        area.draw_grid(&mut pen);
        area.draw_references(&mut pen);
        area.draw_series(&mut pen);
        legend.draw(&mut pen, area.right + 22.0, top + 10.0);
        if self.series.iter().all(|s| s.points.is_empty()) {
            let middle = ((left + area.right) / 2.0, (top + area.bottom) / 2.0);
            let font = Font {
                size: TITLE,
                color: &MUTED,
                ..Font::MIDDLE
            };
            pen.text(middle, "no numbers", &font);
        }
        pen.into_scene()
    }
}

/// The rectangle that the lines are drawn in, in pixels, and its axes.
struct Area<'a> {
    plot: &'a LinePlot,
    x: Axis,
    y: Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// A point of a line on the page, with its band's ends.
struct Dot {
    /// Its place in the series.
    index: usize,
    at: Spot,
    band: Option<(f64, f64)>,
}

impl Area<'_> {
    fn x_of(&self, value: f64) -> f64 {
        self.left + self.x.share(value) * WIDTH
    }

    fn y_of(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * HEIGHT
    }

    fn reference_y(&self) -> Option<(f64, &str)> {
        let (at, name) = self.plot.reference_y.as_ref()?;
        self.y.holds(*at).then_some((*at, name.as_str()))
    }

    fn draw_grid(&self, pen: &mut Pen) {
        for tick in &self.y.ticks {
            let y = self.y_of(tick.at);
            pen.line((self.left, y), (self.right, y), &GRID, 1.0, &[]);
            pen.text((self.left - 8.0, y + TO_BASELINE), &tick.label, &Font::END);
        }
        for tick in &self.x.ticks {
            let x = self.x_of(tick.at);
            pen.line((x, self.top), (x, self.bottom), &GRID, 1.0, &[]);
            pen.line((x, self.bottom), (x, self.bottom + 5.0), &FRAME, 1.0, &[]);
        }
        let reference = self.plot.reference_x.as_ref().map(|r| r.0);
        for tick in with_room(&self.x.ticks, reference, &|v| self.x_of(v)) {
            let at = (self.x_of(tick.at), self.bottom + 20.0);
            pen.text(at, &tick.label, &Font::MIDDLE);
        }
        let below = ((self.left + self.right) / 2.0, self.bottom + 44.0);
        pen.text(below, &self.plot.x_label, &Font::MIDDLE);
    }

    fn draw_references(&self, pen: &mut Pen) {
        if let Some((at, _)) = self.reference_y() {
            let y = self.y_of(at);
            pen.line((self.left, y), (self.right, y), &MUTED, 1.2, &DOTS);
        }
        let reference_x = self.plot.reference_x.as_ref();
        if let Some((at, name)) = reference_x.filter(|(at, _)| self.x.holds(*at)) {
            let x = self.x_of(*at);
            pen.line(
                (x, self.top - 6.0),
                (x, self.bottom),
                &MUTED,
                1.4,
                &REFERENCE,
            );
            // The name stays above the axes even where the line is at their end.
            let half = text_width(name, TEXT - 1) / 2.0;
            let right = (self.right - half).max(self.left + half);
            let font = Font {
                size: TEXT - 1,
                color: &MUTED,
                ..Font::MIDDLE
            };
            pen.text(
                (x.clamp(self.left + half, right), self.top - 10.0),
                name,
                &font,
            );
        }
    }

    /// Bands below lines below markers: nothing hides the points that a line is drawn through.
    fn draw_series(&self, pen: &mut Pen) {
        let series = &self.plot.series;
        let drawn: Vec<(Look, Vec<Vec<Dot>>)> = series
            .iter()
            .map(|s| (Look::of(s.style), self.stretches(s)))
            .collect();
        let group = |class: &str, index: usize| {
            let key = page::key(&series[index], index);
            Some(format!("class=\"{class}\" data-m=\"{key}\""))
        };
        for (index, (look, stretches)) in drawn.iter().enumerate() {
            pen.begin(group("band", index), None);
            stretches
                .iter()
                .for_each(|dots| band(pen, dots, &look.color));
            pen.end();
        }
        for (index, (look, stretches)) in drawn.iter().enumerate() {
            pen.begin(group("line", index), Some(series[index].name.clone()));
            for dots in stretches {
                let line: Vec<Spot> = dots.iter().map(|d| d.at).collect();
                pen.polyline(&line, &look.color, 2.0, look.dash);
            }
            pen.end();
            self.draw_seeds(pen, &series[index], look, group("seed", index));
        }
        for (index, (look, stretches)) in drawn.iter().enumerate() {
            let dots: Vec<Spot> = stretches.iter().flatten().map(|d| d.at).collect();
            pen.begin(group("point", index), None);
            if self.plot.mark_points || dots.len() <= MOST_MARKERS {
                for dot in stretches.iter().flatten() {
                    let tip = series[index].tips.get(dot.index);
                    pen.begin(None, tip.cloned());
                    pen.marker(dot.at, look);
                    pen.end();
                }
            } else {
                // Staggered by the golden ratio, so that coinciding lines stay identifiable.
                let step = WIDTH / 4.0;
                let mut next = self.left + step * (0.15 + 0.7 * (index as f64 * 0.381_966).fract());
                for &at in dots.iter() {
                    if at.0 >= next {
                        pen.marker(at, look);
                        next += step;
                    }
                }
            }
            pen.end();
        }
        let corner = (self.left, self.bottom);
        pen.line(corner, (self.right, self.bottom), &FRAME, 1.2, &[]);
        pen.line((self.left, self.top), corner, &FRAME, 1.2, &[]);
    }

    /// The lines of the seeds, thin; in pages only.
    fn draw_seeds(&self, pen: &mut Pen, series: &Series, look: &Look, group: Option<String>) {
        if pen.is_page() && !series.seeds.is_empty() {
            pen.begin(group, None);
            for (tip, points) in &series.seeds {
                let line = Series {
                    points: points.clone(),
                    ..Series::default()
                };
                pen.begin(None, Some(tip.clone()));
                for dots in self.stretches(&line) {
                    let line: Vec<Spot> = dots.iter().map(|d| d.at).collect();
                    pen.polyline(&line, &look.color, 1.0, look.dash);
                    if self.plot.seed_dots {
                        line.iter().for_each(|at| pen.dot(*at, &look.color));
                    }
                }
                pen.end();
            }
            pen.end();
        }
    }

    /// The stretches of a line between values that cannot be drawn.
    fn stretches(&self, series: &Series) -> Vec<Vec<Dot>> {
        let mut out: Vec<Vec<Dot>> = vec![Vec::new()];
        for (i, &(x, y)) in series.points.iter().enumerate() {
            if !is_drawable(x, self.x.log) || !is_drawable(y, self.y.log) {
                out.push(Vec::new());
                continue;
            }
            let end = |v: f64| {
                // An interval may reach 0 or below, where a logarithmic axis has no place.
                if self.y.log && v <= 0.0 {
                    self.y_of(self.y.low)
                } else {
                    self.y_of(v)
                }
            };
            let band = series.band.get(i).copied().flatten();
            let band = band.filter(|b| b.0.is_finite() && b.1.is_finite());
            let dot = Dot {
                index: i,
                at: (self.x_of(x), self.y_of(y)),
                band: band.map(|(a, b)| (end(a), end(b))),
            };
            if let Some(stretch) = out.last_mut() {
                stretch.push(dot);
            }
        }
        out.retain(|stretch| !stretch.is_empty());
        out
    }
}

/// The band of a stretch: an area between neighbours, a bar at a point without any.
fn band(pen: &mut Pen, dots: &[Dot], color: &Color) {
    for piece in dots.split(|dot| dot.band.is_none()) {
        if let [single] = piece
            && let Some((a, b)) = single.band
        {
            pen.line((single.at.0, a), (single.at.0, b), color, 1.4, &[]);
        }
        if piece.len() < 2 {
            continue;
        }
        // Along the lower ends and back along the upper ones.
        let lower = piece.iter().filter_map(|d| Some((d.at.0, d.band?.0)));
        let upper = piece.iter().rev().filter_map(|d| Some((d.at.0, d.band?.1)));
        pen.outline(lower.chain(upper), color, (Color::None, 0.0), Some(0.14));
    }
}

fn x_axis(plot: &LinePlot) -> Axis {
    let usable = |v: &f64| is_drawable(*v, plot.log_x);
    let points = plot.series.iter().flat_map(|s| &s.points).map(|p| p.0);
    let reference = plot.reference_x.iter().map(|r| r.0);
    let all = points.chain(plot.x_ticks.iter().copied()).chain(reference);
    let Some((low, high)) = extent(all.filter(usable)) else {
        return Axis::linear((0.0, 1.0), 5);
    };
    let mut axis = if plot.log_x {
        Axis::log((low, high), 0.03)
    } else {
        // A count that starts near 0 starts at 0.
        let low = if low > 0.0 && low < 0.2 * high {
            0.0
        } else {
            low
        };
        let pad = if low == high {
            0.5
        } else {
            0.02 * (high - low)
        };
        Axis {
            low: low - pad,
            high: high + pad,
            ..Axis::linear((low, high), 6)
        }
    };
    if !plot.x_ticks.is_empty() {
        let given = plot.x_ticks.iter().copied().filter(usable);
        axis.ticks = given.map(Tick::new).collect();
    }
    axis.ticks.retain(|t| t.at >= axis.low && t.at <= axis.high);
    axis
}

/// `with_seeds`: whether it also holds the lines of seeds.
fn y_axis(plot: &LinePlot, with_seeds: bool) -> Axis {
    let usable = |v: &f64| is_drawable(*v, plot.log_y);
    let of_seeds = plot.series.iter().filter(|_| with_seeds);
    let of_seeds = of_seeds.flat_map(|s| &s.seeds);
    let of_seeds = of_seeds.flat_map(|(_, points)| points);
    let points = plot.series.iter().flat_map(|s| &s.points);
    let points = points.chain(of_seeds).map(|p| p.1);
    let fixed = plot.y_range.iter().flat_map(|r| [r.0, r.1]);
    let reference = plot.reference_y.iter().map(|r| r.0);
    let Some((low, high)) = extent(points.chain(fixed).chain(reference).filter(usable)) else {
        return Axis::linear((0.0, 1.0), 5);
    };
    // The wide interval of few seeds may extend the axis only this far beyond the means.
    let bands = plot.series.iter().flat_map(|s| &s.band).flatten();
    let ends = bands.flat_map(|b| [b.0, b.1]).filter(usable);
    let (band_low, band_high) = extent(ends).unwrap_or((low, high));
    if plot.log_y {
        let slack = (high / low).powf(0.15).max(1.2);
        let low_end = band_low.clamp(low / slack, low);
        let high_end = band_high.clamp(high, high * slack);
        return Axis::log((low_end, high_end), 0.04);
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
    let mut axis = Axis::linear((low - pad, high + pad), 6);
    // Ticks outside a fixed range would suggest scores above 1.
    if plot.y_range.is_some() {
        axis.ticks
            .retain(|t| t.at >= low - 1e-9 && t.at <= high + 1e-9);
    }
    axis
}
