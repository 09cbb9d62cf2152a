//! One number of each method as a dot with its interval, a method a row.

use super::axis::Axis;
use super::frame::{Head, MARGIN, described};
use super::page::PageFigure;
use super::pen::{Font, Pen, Spot, TO_BASELINE, Target};
use super::style::{FRAME, GRID, INK, MUTED, REFERENCE, TEXT, TITLE, text_width};

/// From row to row.
const ROW: f64 = 22.0;
/// Width of the axis.
const WIDTH: f64 = 420.0;
/// Room for the labels of the axis.
const BELOW: f64 = 58.0;
/// Room for the name of the reference.
const ABOVE: f64 = 16.0;
/// Widths of texts are estimates.
const RESERVE: f64 = 1.06;

/// Rows of dots on one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dots {
    /// What they show.
    pub title: String,
    /// A second line, smaller.
    pub subtitle: String,
    /// Name of the axis.
    pub x_label: String,
    /// Whether the axis is logarithmic.
    pub is_log: bool,
    /// The rows, the first on top.
    pub rows: Vec<Dot>,
    /// A dashed line at a value, and its name.
    pub reference: Option<(f64, String)>,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dot {
    /// Its name.
    pub name: String,
    /// The mean.
    pub mean: f64,
    /// Both ends of its interval; none for a single seed.
    pub interval: Option<(f64, f64)>,
    /// The values behind the mean.
    pub seeds: Vec<f64>,
    /// Why there is no mean, where there is none; `no number` where that is not known.
    pub why: String,
    /// Drawn grey.
    pub is_muted: bool,
}

impl Dots {
    /// The figure as a self-contained SVG document.
    pub fn to_svg(&self) -> String {
        let (pen, size) = self.drawn(Target::File);
        pen.svg(size, &described(&self.title, &self.subtitle), "")
    }

    /// The figure for a page; it has no legend.
    pub(crate) fn to_page(&self) -> PageFigure {
        let (pen, size) = self.drawn(Target::Page);
        PageFigure {
            svg: pen.svg(size, &described(&self.title, &self.subtitle), ""),
            scales: vec![if self.is_log { "log" } else { "linear" }],
            heading: String::new(),
            entries: Vec::new(),
        }
    }

    /// An axis that holds all means and seeds, and the reference. An interval may leave it: one of
    /// few seeds would squeeze all others together.
    fn axis(&self) -> Axis {
        let of_rows = self
            .rows
            .iter()
            .flat_map(|row| row.seeds.iter().chain([&row.mean]));
        let all = of_rows.chain(self.reference.iter().map(|(at, _)| at));
        let all = all
            .copied()
            .filter(|v| v.is_finite() && (!self.is_log || *v > 0.0));
        let ends = |(low, high): (f64, f64), v: f64| (low.min(v), high.max(v));
        let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        if low > high {
            return Axis::linear((0.0, 1.0), 6);
        }
        if self.is_log {
            return Axis::log((low, high), 0.04);
        }
        // Numbers that are all equal have no range of their own: shares have theirs.
        if low == high && (0.0..=1.0).contains(&low) {
            return Axis::linear((0.0, 1.0), 6);
        }
        let pad = 0.04 * (high - low);
        Axis::linear((low - pad, high + pad), 6)
    }

    fn drawn(&self, target: Target) -> (Pen, Spot) {
        let is_page = target == Target::Page;
        let head = Head {
            title: if is_page { "" } else { &self.title },
            subtitle: if is_page { "" } else { &self.subtitle },
            y_label: "",
            has_reference: false,
        };
        let names = self
            .rows
            .iter()
            .map(|row| text_width(&row.name, TEXT) * RESERVE);
        let left = MARGIN + names.fold(24.0, f64::max) + 10.0;
        let top = head.height() + ABOVE;
        let bottom = top + ROW * self.rows.len().max(1) as f64;
        let width = (left + WIDTH + 2.0 * MARGIN)
            .max(text_width(head.title, TITLE) * 1.1 + 28.0)
            .max(text_width(head.subtitle, TEXT) * RESERVE + 28.0)
            .ceil();
        let axis = self.axis();
        let x = |value: f64| left + axis.share(value) * WIDTH;
        let mut pen = Pen::new(target);
        head.draw(&mut pen, left);
        for tick in &axis.ticks {
            pen.line((x(tick.at), top), (x(tick.at), bottom), GRID, 1.0, &[]);
            pen.text((x(tick.at), bottom + 17.0), &tick.label, &Font::MIDDLE);
        }
        pen.line((left, bottom), (left + WIDTH, bottom), FRAME, 1.0, &[]);
        if let Some((at, name)) = self.reference.as_ref().filter(|(at, _)| axis.holds(*at)) {
            pen.line((x(*at), top), (x(*at), bottom), INK, 1.2, &REFERENCE);
            pen.text((x(*at), top - 6.0), name, &Font::NOTE);
        }
        for (at, row) in self.rows.iter().enumerate() {
            row.draw(&mut pen, left, top + (at as f64 + 0.5) * ROW, x);
        }
        let label = (left + WIDTH / 2.0, bottom + BELOW - 16.0);
        pen.text(label, &self.x_label, &Font::MIDDLE);
        (pen, (width, (bottom + BELOW).ceil()))
    }
}

impl Dot {
    /// `y`: the middle of its row; `x`: the place of a value.
    fn draw(&self, pen: &mut Pen, left: f64, y: f64, x: impl Fn(f64) -> f64) {
        let color = if self.is_muted { MUTED } else { INK };
        let font = Font { color, ..Font::END };
        pen.text((left - 10.0, y + TO_BASELINE), &self.name, &font);
        if !self.mean.is_finite() {
            let why = Some(self.why.as_str()).filter(|why| !why.is_empty());
            pen.text(
                (left + 6.0, y + TO_BASELINE),
                why.unwrap_or("no number"),
                &Font::MUTED,
            );
            return;
        }
        if let Some((low, high)) = self.interval {
            pen.line((x(low), y), (x(high), y), color, 1.6, &[]);
            pen.flush();
        }
        for seed in self.seeds.iter().filter(|seed| seed.is_finite()) {
            pen.circle((x(*seed), y), 2.2, FRAME, (FRAME, 0.0));
        }
        pen.circle((x(self.mean), y), 4.2, color, (color, 0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_seeds_and_intervals_are_drawn() {
        let row = |name: &str, mean: f64, interval| Dot {
            name: name.into(),
            mean,
            interval,
            seeds: vec![mean * 0.9, mean * 1.1],
            ..Dot::default()
        };
        let dots = Dots {
            title: "ratio".into(),
            is_log: true,
            rows: vec![
                row("ALiBi", 1.0, Some((0.5, 1.5))),
                row("RoPE", 8.0, None),
                row("none", f64::NAN, None),
            ],
            reference: Some((1.0, "in length".into())),
            ..Dots::default()
        };
        let svg = dots.to_svg();
        // Two seeds and a mean for each of two rows.
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(
            svg.contains("no number") && svg.contains("in length"),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(Dots::default().to_svg().starts_with("<svg"));
        // No share is below 0, also where none is above it.
        let rows = vec![row("ALiBi", 0.0, Some((0.0, 0.05)))];
        let shares = Dots {
            rows,
            ..Dots::default()
        }
        .to_svg();
        assert!(
            shares.contains(">0.8<") && !shares.contains(">-0."),
            "{shares}"
        );
    }
}
