//! Lines over a numeric axis.

use super::axis::{Axis, is_drawable, with_room};
use super::bands::{self, Dot, fills, is_cut};
use super::ends::Ends;
use super::frame::{Head, Legend, MARGIN, described};
use super::page::{self, PageFigure, classes, marker_class};
use super::pen::{
    Font, Pen, REFERENCE_GROUP, Spot, TO_BASELINE, Target, letters, number, xml_text,
};
use super::ranges::{other_axis, scale, x_axis, y_axis};
use super::series::{LinePlot, Series};
use super::style::{DOTS, FRAME, GRID, LineStyle, MUTED, REFERENCE, TEXT, TITLE, text_width};

/// Width and height of the axes of a file, and of a figure that fills the column of a page.
const FILE: Spot = (560.0, 330.0);
const PAGE: Spot = (640.0, 340.0);
/// Room for the labels of x.
const BELOW: f64 = 58.0;
/// How much larger than elsewhere text is set on a phone, where figures are narrow.
const ON_PHONES: f64 = 1.6;
/// Points of a line in a page, which holds many figures.
const MOST_PAGE_POINTS: usize = 48;
/// Lines with at most this many points have a marker at each.
const MOST_MARKERS: usize = 12;

impl LinePlot {
    /// The figure as a self-contained SVG document.
    pub fn to_svg(&self) -> String {
        let name = described(&self.title, &self.subtitle);
        let drawing = self.drawn(Target::File);
        drawing.pen.svg(drawing.size, &name, "")
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
        let note = if self.log_y { "; log scale" } else { "" };
        let drawing = plot.drawn(Target::Page);
        let other = drawing.has_other.then(|| scale(!self.log_y));
        PageFigure {
            svg: drawing
                .pen
                .svg(drawing.size, &(name + note), &drawing.attributes),
            scales: std::iter::once(scale(self.log_y)).chain(other).collect(),
            heading: self.legend.clone(),
            entries: page::entries(&plot.series, reference.map(|(_, name)| name)),
        }
    }

    /// Name of the y axis with its notes. `axis`: the one whose ends cut bands.
    fn y_name(&self, log: bool, axis: &Axis) -> String {
        let cuts_bands = self.series.iter().any(|line| is_cut(line, axis));
        let mut bands = self.series.iter().flat_map(|line| &line.band).flatten();
        let notes = [
            (!self.y_note.is_empty(), self.y_note.as_str()),
            (log && !self.y_note.is_empty(), "log scale"),
            (cuts_bands, bands::CUT),
            (bands.any(|band| fills(*band, axis)), bands::LEFT_OUT),
        ];
        let notes: Vec<&str> = notes.iter().filter(|n| n.0).map(|n| n.1).collect();
        match notes.as_slice() {
            [] => self.y_label.clone(),
            notes => format!("{} ({})", self.y_label, notes.join(", ")),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one figure, part by part")]
    fn drawn(&self, target: Target) -> Drawing {
        let is_page = target == Target::Page;
        let (x, y) = (x_axis(self), y_axis(self, is_page));
        let other = if is_page { other_axis(self, &y) } else { None };
        let y_name = self.y_name(self.log_y, &y);
        let head = Head {
            title: if is_page { "" } else { &self.title },
            subtitle: if is_page { "" } else { &self.subtitle },
            y_label: &y_name,
            has_reference: self.reference_x.is_some(),
        };
        let ticks = y.ticks.iter().chain(other.iter().flat_map(|o| &o.ticks));
        let labels = ticks
            .map(|t| text_width(&t.label, TEXT))
            .fold(24.0, f64::max);
        let ((width, height), room) = if is_page {
            (PAGE, ON_PHONES)
        } else {
            (FILE, 1.0)
        };
        let left = MARGIN + room * labels + 8.0;
        let top = head.height();
        let mut area = Area {
            plot: self,
            x,
            y,
            left,
            right: left + width,
            top,
            bottom: top + height,
        };
        let reference = area.reference_y().map(|(_, name)| name);
        let ends = area.ends(is_page);
        // A page sets its legend as text.
        let in_legend = |line: &usize| !is_page && !ends.names(*line);
        let in_legend = (0..self.series.len()).filter(in_legend);
        let in_legend = in_legend.map(|line| &self.series[line]).collect();
        let reference = reference.filter(|_| !is_page && !ends.names_reference());
        // What the names are values of stands over them.
        let (over_names, over_legend) = match ends.width() > 0.0 && !is_page {
            true => (self.legend.as_str(), ""),
            false => ("", self.legend.as_str()),
        };
        let legend = Legend::new(over_legend, in_legend, reference);
        let beside_axes = match is_page || ends.width() == 0.0 {
            true => 0.0,
            false => ends.width().max(22.0 + text_width(over_names, TEXT)),
        };
        if let Some((width, height)) = self.size {
            area.right = (width - beside_axes - legend.width() - 24.0).max(left + 100.0);
            area.bottom = (height - BELOW).max(top + 50.0);
        }
        let ends = area.ends(is_page);
        let width = (area.right + beside_axes + legend.width() + 24.0)
            .max(left + text_width(head.title, TITLE) * 1.1 + MARGIN)
            .max(text_width(&y_name, TEXT) * 1.1 + 2.0 * MARGIN)
            .ceil();
        let height = (area.bottom + BELOW)
            .max(top + 12.0 + legend.height() + 12.0)
            .ceil();

        let mut pen = Pen::new(target);
        head.draw(&mut pen, left);
        if is_page {
            // Heights of points are read back for the other scale.
            pen.is_fine = other.is_some();
            let both = [(Some(&area.y), self.log_y), (other.as_ref(), !self.log_y)];
            for (axis, log) in both {
                let Some(axis) = axis else { continue };
                let class = if log == self.log_y { "y" } else { "y other" };
                pen.begin(&format!("class=\"{class}\""));
                head.name_y(&mut pen, left, &self.y_name(log, &area.y));
                area.draw_y(&mut pen, axis);
                pen.end();
            }
        } else {
            area.draw_y(&mut pen, &area.y);
        }
        area.draw_x(&mut pen);
        area.draw_references(&mut pen);
        let places = area.draw_series(&mut pen);
        if !over_names.is_empty() {
            pen.text((area.right + 22.0, top - 10.0), over_names, &Font::MUTED);
        }
        ends.draw(&mut pen, area.right, (area.top, area.bottom));
        legend.draw(&mut pen, area.right + beside_axes + 22.0, top + 10.0);
        if self.series.iter().all(|s| s.points.is_empty()) {
            let middle = ((left + area.right) / 2.0, (top + area.bottom) / 2.0);
            let font = Font {
                size: TITLE,
                color: MUTED,
                ..Font::MIDDLE
            };
            pen.text(middle, "no numbers", &font);
        }
        Drawing {
            pen,
            size: self.size.filter(|_| !is_page).unwrap_or((width, height)),
            attributes: area.attributes(other.as_ref(), &places) + &ends.beside(width),
            has_other: other.is_some(),
        }
    }
}

/// A drawn plot.
struct Drawing {
    pen: Pen,
    size: Spot,
    /// What the script of a page reads.
    attributes: String,
    /// Whether it has another scale.
    has_other: bool,
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

impl<'a> Area<'a> {
    /// The names at the ends of lines; in a file also that of the reference.
    fn ends(&self, is_page: bool) -> Ends<'a> {
        let last = |series: &Series| Some(self.stretches(series).last()?.last()?.at);
        let last: Vec<Option<Spot>> = self.plot.series.iter().map(last).collect();
        let reference = self.plot.reference_y.as_ref().filter(|_| !is_page);
        let reference = reference.filter(|(at, _)| self.y.holds(*at));
        let reference = reference.map(|(at, name)| (name.as_str(), self.y_of(*at)));
        Ends::new(&self.plot.series, &last, self.right).with_reference(reference)
    }

    fn x_of(&self, value: f64) -> f64 {
        self.left + self.x.share(value) * (self.right - self.left)
    }

    fn y_of(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }

    fn reference_y(&self) -> Option<(f64, &str)> {
        let (at, name) = self.plot.reference_y.as_ref()?;
        self.y.holds(*at).then_some((*at, name.as_str()))
    }

    /// What the script of a page reads: the rectangle, the axes, and where points are, in words.
    fn attributes(&self, other: Option<&Axis>, places: &[String]) -> String {
        let sides = [self.left, self.right, self.top, self.bottom];
        let [left, right, top, bottom] = sides.map(number);
        let axis = |axis: &Axis| format!("{} {:e} {:e}", scale(axis.log), axis.low, axis.high);
        let other = other.map_or(String::new(), |other| {
            format!(" data-other=\"{}\"", axis(other))
        });
        let columns = self.columns();
        let columns: Vec<String> = columns.iter().map(|x| number(self.x_of(*x))).collect();
        let columns = match columns.as_slice() {
            [] => String::new(),
            columns => format!(" data-c=\"{}\"", columns.join(" ")),
        };
        let dots = match self.plot.mark_points {
            true => " data-dots=\"yes\"",
            false => "",
        };
        format!(
            "{columns}{dots} data-box=\"{left} {right} {top} {bottom}\" data-x=\"{}\" \
             data-y=\"{}\"{other} data-of=\"{}\" data-p=\"{}\"",
            axis(&self.x),
            axis(&self.y),
            xml_text(&self.plot.x_label),
            places.join("|")
        )
    }

    /// Grid and labels of y on one of its scales.
    fn draw_y(&self, pen: &mut Pen, axis: &Axis) {
        for tick in &axis.ticks {
            let y = self.bottom - axis.share(tick.at) * (self.bottom - self.top);
            pen.line((self.left, y), (self.right, y), GRID, 1.0, &[]);
            pen.text((self.left - 8.0, y + TO_BASELINE), &tick.label, &Font::END);
        }
    }

    fn draw_x(&self, pen: &mut Pen) {
        for tick in &self.x.ticks {
            let x = self.x_of(tick.at);
            pen.line((x, self.top), (x, self.bottom), GRID, 1.0, &[]);
            pen.line((x, self.bottom), (x, self.bottom + 5.0), FRAME, 1.0, &[]);
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
            pen.begin(REFERENCE_GROUP);
            pen.line((self.left, y), (self.right, y), MUTED, 1.2, &DOTS);
            pen.end();
        }
        let reference_x = self.plot.reference_x.as_ref();
        if let Some((at, name)) = reference_x.filter(|(at, _)| self.x.holds(*at)) {
            let x = self.x_of(*at);
            pen.line(
                (x, self.top - 6.0),
                (x, self.bottom),
                MUTED,
                1.4,
                &REFERENCE,
            );
            // The name stays above the axes even where the line is at their end.
            let half = text_width(name, TEXT - 1) / 2.0;
            let right = (self.right - half).max(self.left + half);
            pen.text(
                (x.clamp(self.left + half, right), self.top - 10.0),
                name,
                &Font::NOTE,
            );
        }
    }

    /// Bands below lines below markers: nothing hides the points that a line is drawn through.
    /// Returns where points are, in words that the tips of a page refer to.
    fn draw_series(&self, pen: &mut Pen) -> Vec<String> {
        let series = &self.plot.series;
        let drawn: Vec<(LineStyle, Vec<Vec<Dot>>)> = series
            .iter()
            .map(|s| (LineStyle::of(s.style), self.stretches(s)))
            .collect();
        let group = |class: &str, look: &str, index: usize, more: &str| {
            let key = page::key(&series[index], index);
            format!("class=\"{class} {look}\" data-m=\"{key}\"{more}")
        };
        for (index, (look, stretches)) in drawn.iter().enumerate() {
            if stretches.iter().flatten().any(|dot| dot.band.is_some()) {
                let classes = classes(series[index].style);
                let is_cut = is_cut(&series[index], &self.y);
                let class = if is_cut { "cut band" } else { "band" };
                pen.begin(&group(class, &classes, index, ""));
                for dots in stretches {
                    bands::draw(pen, dots, look.color, is_cut);
                }
                pen.end();
            }
        }
        let columns = self.columns();
        for (index, (look, stretches)) in drawn.iter().enumerate() {
            let classes = classes(series[index].style);
            let seeds = if pen.is_page() {
                self.seeds(&series[index], &columns)
            } else {
                String::new()
            };
            pen.begin(&group("line", &classes, index, &seeds));
            for dots in stretches {
                let line: Vec<Spot> = dots.iter().map(|d| d.at).collect();
                pen.polyline(&line, look.color, 2.0, look.dash);
            }
            pen.end();
        }
        let mut places = Vec::new();
        for (index, (look, stretches)) in drawn.iter().enumerate() {
            let dots: Vec<&Dot> = stretches.iter().flatten().collect();
            let is_each = self.plot.mark_points || dots.len() <= MOST_MARKERS;
            let marked: Vec<Spot> = if is_each {
                dots.iter().map(|d| d.at).collect()
            } else {
                self.spread(&dots, index)
            };
            let tips = tips(&series[index], &dots, &mut places);
            let tips = tips.filter(|_| is_each).unwrap_or_default();
            let class = marker_class(series[index].style);
            pen.begin(&group("point", &class, index, &tips));
            pen.markers(&marked, look);
            pen.end();
        }
        let corner = (self.left, self.bottom);
        pen.line(corner, (self.right, self.bottom), FRAME, 1.2, &[]);
        pen.line((self.left, self.top), corner, FRAME, 1.2, &[]);
        places
    }

    /// Some points of a line, staggered by the golden ratio, so that coinciding lines stay
    /// identifiable.
    fn spread(&self, dots: &[&Dot], index: usize) -> Vec<Spot> {
        let step = (self.right - self.left) / 4.0;
        let mut next = self.left + step * (0.15 + 0.7 * (index as f64 * 0.381_966).fract());
        let mut kept = Vec::new();
        for dot in dots {
            if dot.at.0 >= next {
                kept.push(dot.at);
                next += step;
            }
        }
        kept
    }

    /// Places of all points of seeds, ascending.
    fn columns(&self) -> Vec<f64> {
        let seeds = self.plot.series.iter().flat_map(|s| &s.seeds);
        let points = seeds.flat_map(|(_, points)| points).map(|p| p.0);
        let mut columns: Vec<f64> = points.filter(|x| is_drawable(*x, self.x.log)).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        columns
    }

    /// The attribute with the lines of a method's seeds, which the script draws when they are asked
    /// for: for each seed its name and two letters for each of the columns, its height or none.
    fn seeds(&self, series: &Series, columns: &[f64]) -> String {
        let one = |(name, points): &(String, Vec<(f64, f64)>)| {
            let height = |x: &f64| {
                let at = points.iter().find(|p| p.0 == *x)?.1;
                is_drawable(at, self.y.log).then(|| self.y.share(at))
            };
            let heights: String = columns.iter().map(|x| letters(height(x))).collect();
            let name = xml_text(name.trim_start_matches("seed "));
            format!("{} {heights}", name.replace([' ', '|'], "-"))
        };
        if series.seeds.is_empty() {
            return String::new();
        }
        let all: Vec<String> = series.seeds.iter().map(one).collect();
        format!(" data-s=\"{}\"", all.join("|"))
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
            let is_drawn = |b: &(f64, f64)| b.0.is_finite() && b.1.is_finite();
            let band = band.filter(|b| is_drawn(b) && !fills(*b, &self.y));
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

/// The attribute that says where the points of a line are and what their values are: for each point
/// the index of its place and its value.
fn tips(series: &Series, dots: &[&Dot], places: &mut Vec<String>) -> Option<String> {
    let plain = |text: &str| xml_text(text).replace('|', "/");
    let mut all = Vec::new();
    for dot in dots {
        let (place, value) = series.tips.get(dot.index)?;
        let place = plain(place);
        let at = places.iter().position(|known| *known == place);
        let at = at.unwrap_or_else(|| {
            places.push(place);
            places.len() - 1
        });
        all.push(format!("{at} {}", plain(value)));
    }
    Some(format!(" data-t=\"{}\"", all.join("|")))
}
