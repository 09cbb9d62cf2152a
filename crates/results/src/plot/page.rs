//! Figures inside a page: compact SVG whose colours are variables of the page's style sheet, and
//! the entries of a legend that the page sets as text.

use super::axis::extent;
use super::pen::{FIXED, Pen, Target, xml_text};
use super::series::Series;
use super::style::{DOTS, Look, MUTED, variable};
use crate::metric;
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};
use std::fmt::Write as _;

/// A figure of a page.
pub(crate) struct PageFigure {
    /// The drawing.
    pub svg: String,
    /// What the names of the lines are values of; may be empty.
    pub heading: String,
    /// The legend; empty for figures without one.
    pub entries: Vec<PageEntry>,
}

/// One line of a legend.
pub(crate) struct PageEntry {
    /// As in `data-m` of the line's groups; empty for a reference.
    pub key: String,
    pub name: String,
    /// A drawing of a piece of the line.
    pub sample: String,
}

/// The name of a line for the script.
pub(super) fn key(series: &Series, index: usize) -> String {
    if series.key.is_empty() {
        format!("s{index}")
    } else {
        series.key.clone()
    }
}

/// The legend of a figure: its lines and the horizontal reference.
pub(super) fn entries(series: &[Series], reference: Option<&str>) -> Vec<PageEntry> {
    let line = |(index, series): (usize, &Series)| {
        let look = Look::of(series.style);
        PageEntry {
            key: key(series, index),
            name: series.name.clone(),
            sample: sample(|pen| {
                pen.polyline(&ENDS, &look.color, 2.0, look.dash);
                pen.marker((WIDTH / 2.0, HEIGHT / 2.0), &look);
            }),
        }
    };
    let reference = reference.map(|name| PageEntry {
        key: String::new(),
        name: name.into(),
        sample: sample(|pen| pen.polyline(&ENDS, &MUTED, 1.2, &DOTS)),
    });
    series
        .iter()
        .enumerate()
        .map(line)
        .chain(reference)
        .collect()
}

/// Size of the sample of a line, in pixels.
const WIDTH: f64 = 30.0;
const HEIGHT: f64 = 14.0;
const ENDS: [(f64, f64); 2] = [(0.0, HEIGHT / 2.0), (WIDTH, HEIGHT / 2.0)];

fn sample(draw: impl FnOnce(&mut Pen)) -> String {
    let mut pen = Pen::new(WIDTH, HEIGHT, Target::Page);
    draw(&mut pen);
    let mut out = format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" aria-hidden=\"true\">");
    write_elements(&mut out, &pen.into_scene());
    out + "</svg>"
}

/// A scene as SVG inside HTML, named to a screen reader.
pub(super) fn svg(scene: &Scene, name: &str) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut out = format!(
        "<svg class=\"chart\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\" role=\"img\" aria-label=\"{}\">",
        xml_text(name)
    );
    write_elements(&mut out, scene);
    out + "</svg>"
}

fn write_elements(out: &mut String, scene: &Scene) {
    // Groups that are open, and how many of them have fixed colours.
    let (mut open, mut fixed) = (Vec::new(), 0_usize);
    for element in &scene.elements {
        match element {
            Primitive::GroupStart {
                title, extra_attrs, ..
            } => {
                let is_fixed = extra_attrs.as_deref() == Some(FIXED);
                fixed += usize::from(is_fixed);
                open.push(is_fixed);
                match extra_attrs {
                    Some(attributes) => {
                        let _ = write!(out, "<g {attributes}>");
                    }
                    None => out.push_str("<g>"),
                }
                if let Some(title) = title {
                    let _ = write!(out, "<title>{}</title>", xml_text(title));
                }
            }
            Primitive::GroupEnd => {
                fixed -= usize::from(open.pop().unwrap_or(false));
                out.push_str("</g>");
            }
            other => write_shape(out, other, fixed > 0),
        }
    }
}

#[expect(clippy::too_many_lines, reason = "one case per shape")]
fn write_shape(out: &mut String, shape: &Primitive, is_fixed: bool) {
    let paint = |color: &Color| match variable(color).filter(|_| !is_fixed) {
        Some(name) => format!("var(--{name})"),
        None => color.to_svg_string(),
    };
    match shape {
        Primitive::PolyLine {
            points,
            stroke,
            stroke_width,
            stroke_dasharray,
        } => {
            let points: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{},{}", number(*x), number(*y)))
                .collect();
            let _ = write!(
                out,
                "<polyline points=\"{}\" stroke=\"{}\" stroke-width=\"{}\"",
                points.join(" "),
                paint(stroke),
                number(*stroke_width)
            );
            if let Some(dash) = stroke_dasharray {
                let _ = write!(out, " stroke-dasharray=\"{dash}\"");
            }
            out.push_str("/>");
        }
        Primitive::Path(path) => {
            let _ = write!(out, "<path d=\"{}\"", path.d);
            // A white edge is that of a marker, which the style sheet draws.
            let is_marker = variable(&path.stroke).as_deref() == Some("card");
            if let Some(fill) = &path.fill {
                let _ = write!(out, " fill=\"{}\"", paint(fill));
            }
            if path.stroke_width > 0.0 && !is_marker {
                let _ = write!(
                    out,
                    " stroke=\"{}\" stroke-width=\"{}\"",
                    paint(&path.stroke),
                    number(path.stroke_width)
                );
            }
            if let Some(opacity) = path.opacity {
                let _ = write!(out, " opacity=\"{opacity}\"");
            }
            out.push_str("/>");
        }
        Primitive::Circle {
            cx,
            cy,
            r,
            fill,
            stroke,
            stroke_width,
            ..
        } => {
            let _ = write!(
                out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"",
                number(*cx),
                number(*cy),
                number(*r),
                paint(fill)
            );
            if let (Some(stroke), Some(width)) = (stroke, stroke_width) {
                let _ = write!(
                    out,
                    " stroke=\"{}\" stroke-width=\"{}\"",
                    paint(stroke),
                    number(*width)
                );
            }
            out.push_str("/>");
        }
        Primitive::Rect {
            x,
            y,
            width,
            height,
            fill,
            ..
        } => {
            let _ = write!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                number(*x),
                number(*y),
                number(*width),
                number(*height),
                paint(fill)
            );
        }
        Primitive::Text {
            x,
            y,
            content,
            size,
            anchor,
            bold,
            color,
            ..
        } => {
            let _ = write!(out, "<text x=\"{}\" y=\"{}\"", number(*x), number(*y));
            match anchor {
                TextAnchor::Middle => out.push_str(" text-anchor=\"middle\""),
                TextAnchor::End => out.push_str(" text-anchor=\"end\""),
                TextAnchor::Start => {}
            }
            if *size != super::style::TEXT {
                let _ = write!(out, " font-size=\"{size}\"");
            }
            if *bold {
                out.push_str(" font-weight=\"bold\"");
            }
            if let Some(color) = color {
                let _ = write!(out, " fill=\"{}\"", paint(color));
            }
            // The pen has escaped what kuva reads as mathematics.
            let _ = write!(out, ">{}</text>", xml_text(&content.replace("\\$", "$")));
        }
        // The pen draws nothing else in pages.
        _ => {}
    }
}

/// A coordinate: one decimal is a tenth of a pixel.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".into(),
        Some(whole) => whole.into(),
        None => text,
    }
}

/// Size of a small curve, in pixels, and its room for numbers.
const SPARK: (f64, f64) = (190.0, 70.0);
const SPARK_LEFT: f64 = 44.0;
const SPARK_BELOW: f64 = 16.0;

/// A small curve with the numbers at the ends of its axes. `points`: finite, at least two; `x`:
/// what they are over.
pub(crate) fn sparkline(points: &[(f64, f64)], x: &str) -> String {
    let range = |of: fn(&(f64, f64)) -> f64| extent(points.iter().map(of)).unwrap_or((0.0, 1.0));
    let (x_range, y_range) = (range(|p| p.0), range(|p| p.1));
    let share = |(low, high): (f64, f64), v: f64| {
        if high > low {
            (v - low) / (high - low)
        } else {
            0.5
        }
    };
    let place = |&(px, py): &(f64, f64)| {
        let x = SPARK_LEFT + share(x_range, px) * SPARK.0;
        let y = 4.0 + (1.0 - share(y_range, py)) * SPARK.1;
        format!("{x:.0},{y:.0}")
    };
    let line: Vec<String> = points.iter().map(place).collect();
    let (width, height) = (SPARK_LEFT + SPARK.0 + 8.0, SPARK.1 + SPARK_BELOW + 4.0);
    let text = |value: f64| metric::number(value, metric::significant(value));
    let at = |x: f64, y: f64, anchor: &str, text: &str| {
        format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            xml_text(text)
        )
    };
    let (left, right) = (SPARK_LEFT - 4.0, SPARK_LEFT + SPARK.0);
    let below = height - 2.0;
    [
        format!("<svg width=\"{width}\" height=\"{height}\" aria-hidden=\"true\">"),
        format!(
            "<polyline points=\"{}\" stroke=\"var(--s0)\" stroke-width=\"1.5\"/>",
            line.join(" ")
        ),
        at(left, 12.0, "end", &text(y_range.1)),
        at(left, 4.0 + SPARK.1, "end", &text(y_range.0)),
        at(SPARK_LEFT, below, "start", &text_of_count(x_range.0)),
        at(
            right,
            below,
            "end",
            &format!("{x} {}", text_of_count(x_range.1)),
        ),
        "</svg>".into(),
    ]
    .concat()
}

/// A step or a position, which may be the middle of a bin.
fn text_of_count(value: f64) -> String {
    metric::number(value, usize::from(value.fract() != 0.0))
}
