//! SVG inside a page, written as the pen draws: short, since a page holds many figures.
//!
//! Colours are variables of the page's style sheet. What the lines of a figure look like is said
//! once, by classes of their groups; markers and samples of lines are definitions that the whole
//! page shares ([`definitions`]).

use super::style::{DOTS, GAP, GRID, LONGEST, Look, MUTED, STYLES, TEXT, variable};
use crate::text::name;
use kuva::render::color::Color;
use kuva::render::render::TextAnchor;
use std::fmt::Write as _;

/// A point on the page: x to the right, y downwards.
pub(super) type Spot = (f64, f64);

/// A group of cells, whose colours and inks are the same in the dark.
pub(super) const FIXED: &str = "class=\"cells\"";

/// What has been drawn.
#[derive(Default)]
pub(super) struct Compact {
    out: String,
    /// Groups that are open.
    open: Vec<Group>,
    /// Straight lines of the same look, one path each.
    straight: Vec<(String, String)>,
    /// Whether heights have a second decimal: other scales are computed from them.
    pub(super) is_fine: bool,
}

/// What holds for the shapes of a group.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Group {
    /// Colours are as drawn, in the dark too.
    is_fixed: bool,
    /// Classes say what its lines look like.
    is_line: bool,
}

/// Whether attributes are those of a line or of the horizontal reference, whose points the script
/// reads.
fn is_line(attributes: &str) -> bool {
    attributes.contains("data-m=") || attributes == REFERENCE_GROUP
}

/// The group of the horizontal reference.
pub(super) const REFERENCE_GROUP: &str = "class=\"ref\"";

impl Compact {
    /// What has been drawn, as an element named to a screen reader. `attributes`: more of them.
    pub(super) fn svg(mut self, (width, height): Spot, name: &str, attributes: &str) -> String {
        self.flush();
        let (width, height) = (number(width), number(height));
        format!(
            "<svg class=\"chart\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" role=\"img\" aria-label=\"{}\"{attributes}>{}</svg>",
            xml_text(name),
            self.out
        )
    }

    /// What has been drawn.
    fn elements(mut self) -> String {
        self.flush();
        self.out
    }

    pub(super) fn begin(&mut self, attributes: Option<&str>, title: Option<&str>) {
        self.flush();
        let outer = self.open.last().copied().unwrap_or_default();
        self.open.push(Group {
            is_fixed: outer.is_fixed || attributes.is_some_and(|all| all.starts_with(FIXED)),
            is_line: outer.is_line || attributes.is_some_and(is_line),
        });
        match attributes {
            Some(attributes) => {
                let _ = write!(self.out, "<g {attributes}>");
            }
            None => self.out.push_str("<g>"),
        }
        if let Some(title) = title {
            let _ = write!(self.out, "<title>{}</title>", xml_text(title));
        }
    }

    pub(super) fn end(&mut self) {
        self.flush();
        self.open.pop();
        self.out.push_str("</g>");
    }

    fn group(&self) -> Group {
        self.open.last().copied().unwrap_or_default()
    }

    /// The straight lines so far.
    fn flush(&mut self) {
        for (look, d) in std::mem::take(&mut self.straight) {
            let _ = write!(self.out, "<path d=\"{d}\"{look}/>");
        }
    }

    fn paint(&self, color: &Color) -> String {
        // A gap is no colour of the scale.
        let is_fixed = self.group().is_fixed && variable(color) != variable(&GAP);
        match variable(color).filter(|_| !is_fixed) {
            Some(name) => format!("var(--{name})"),
            None => color.to_svg_string(),
        }
    }

    pub(super) fn polyline(&mut self, points: &[Spot], color: &Color, width: f64, dash: &[f64]) {
        if self.group().is_line {
            self.flush();
            let _ = write!(self.out, "<polyline points=\"{}\"/>", self.places(points));
            return;
        }
        let mut look = if variable(color) == variable(&GRID) && width <= 1.0 {
            " class=\"grid\"".to_owned()
        } else {
            format!(
                " stroke=\"{}\" stroke-width=\"{}\"",
                self.paint(color),
                number(width)
            )
        };
        if !dash.is_empty() {
            let dash: Vec<String> = dash.iter().map(f64::to_string).collect();
            let _ = write!(look, " stroke-dasharray=\"{}\"", dash.join(" "));
        }
        if let [(x, y), (to_x, to_y)] = *points {
            let [x, y, to_x, to_y] = [x, y, to_x, to_y].map(number);
            let d = match () {
                () if x == to_x => format!("M{x} {y}V{to_y}"),
                () if y == to_y => format!("M{x} {y}H{to_x}"),
                () => format!("M{x} {y}L{to_x} {to_y}"),
            };
            match self.straight.iter_mut().find(|(other, _)| *other == look) {
                Some((_, all)) => all.push_str(&d),
                None => self.straight.push((look, d)),
            }
            return;
        }
        self.flush();
        let places = self.places(points);
        let _ = write!(self.out, "<polyline points=\"{places}\"{look}/>");
    }

    /// The area of a band, painted by the class of its group.
    pub(super) fn area(&mut self, corners: &[Spot]) {
        self.flush();
        let _ = write!(self.out, "<polygon points=\"{}\"/>", self.places(corners));
    }

    /// Markers at some places, drawn by the class of their group.
    pub(super) fn markers(&mut self, places: &[Spot]) {
        self.flush();
        // A line of one point has no markers.
        let twice = [places, places].concat();
        let places = if places.len() == 1 { &twice } else { places };
        let _ = write!(self.out, "<polyline points=\"{}\"/>", self.places(places));
    }

    pub(super) fn outline(
        &mut self,
        corners: impl Iterator<Item = Spot>,
        fill: &Color,
        opacity: Option<f64>,
    ) {
        self.flush();
        let mut d = String::new();
        for (at, (x, y)) in corners.enumerate() {
            let step = if at == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{step}{} {}", number(x), number(y));
        }
        let _ = write!(self.out, "<path d=\"{d}Z\" fill=\"{}\"", self.paint(fill));
        if let Some(opacity) = opacity {
            let _ = write!(self.out, " opacity=\"{opacity}\"");
        }
        self.out.push_str("/>");
    }

    /// A disc; with a ring around it where `stroke` has a width.
    pub(super) fn circle(&mut self, (x, y): Spot, r: f64, fill: &Color, stroke: (&Color, f64)) {
        self.flush();
        let [x, y, r] = [x, y, r].map(number);
        let fill = self.paint(fill);
        let _ = write!(
            self.out,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{fill}\""
        );
        if stroke.1 > 0.0 {
            let _ = write!(
                self.out,
                " stroke=\"{}\" stroke-width=\"{}\"",
                self.paint(stroke.0),
                number(stroke.1)
            );
        }
        self.out.push_str("/>");
    }

    pub(super) fn rect(&mut self, (x, y): Spot, (width, height): Spot, fill: &Color) {
        self.flush();
        let [x, y, width, height] = [x, y, width, height].map(number);
        let fill = self.paint(fill);
        let _ = write!(
            self.out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }

    pub(super) fn text(
        &mut self,
        (x, y): Spot,
        text: &str,
        (size, anchor, is_bold): (u32, TextAnchor, bool),
        color: &Color,
    ) {
        let _ = write!(self.out, "<text x=\"{}\" y=\"{}\"", number(x), number(y));
        match anchor {
            TextAnchor::Middle => self.out.push_str(" class=\"m\""),
            TextAnchor::End => self.out.push_str(" class=\"e\""),
            TextAnchor::Start => {}
        }
        if size != TEXT {
            let _ = write!(self.out, " font-size=\"{size}\"");
        }
        if is_bold {
            self.out.push_str(" font-weight=\"bold\"");
        }
        let paint = self.paint(color);
        if paint != "var(--ink)" {
            let _ = write!(self.out, " fill=\"{paint}\"");
        }
        let _ = write!(self.out, ">{}</text>", xml_text(text));
    }

    fn places(&self, points: &[Spot]) -> String {
        let place = |(x, y): &Spot| {
            let y = if self.is_fine {
                decimals(*y, 2)
            } else {
                number(*y)
            };
            format!("{},{y}", number(*x))
        };
        points.iter().map(place).collect::<Vec<_>>().join(" ")
    }
}

/// The classes of the group of a line: colour and dash, which the style sheet knows.
pub(super) fn classes(style: usize) -> String {
    let style = style % STYLES;
    let (color, dash) = (style % 8, style / 8);
    match dash {
        0 => format!("c{color}"),
        _ => format!("c{color} d{dash}"),
    }
}

/// The class of the group of a line's markers.
pub(super) fn marker_class(style: usize) -> String {
    format!("k{}", style % 8)
}

/// Size of the sample of a line, in pixels.
const SAMPLE: Spot = (30.0, 14.0);

/// Markers, dots and samples of all lines, once in a page. Their names have an underscore, which no
/// anchor has.
pub(crate) fn definitions() -> String {
    let mut out =
        String::from("<svg width=\"0\" height=\"0\" aria-hidden=\"true\" class=\"defs\"><defs>");
    for index in 0..8 {
        let look = Look::of(index);
        let marker = drawn(|pen| marker(pen, (6.0, 6.0), &look));
        let dot = drawn(|pen| pen.circle((2.0, 2.0), 1.8, &look.color, (&look.color, 0.0)));
        for (id, size, drawing) in [("k", 12, marker), ("d", 4, dot)] {
            let _ = write!(
                out,
                "<marker id=\"{id}_{index}\" markerUnits=\"userSpaceOnUse\" \
                 markerWidth=\"{size}\" markerHeight=\"{size}\" refX=\"{0}\" refY=\"{0}\">\
                 {drawing}</marker>",
                size / 2
            );
        }
    }
    let middle = SAMPLE.1 / 2.0;
    let ends = [(0.0, middle), (SAMPLE.0, middle)];
    for style in 0..STYLES {
        let look = Look::of(style);
        let sample = drawn(|pen| {
            pen.polyline(&ends, &look.color, 2.0, look.dash);
            pen.flush();
            marker(pen, (SAMPLE.0 / 2.0, middle), &look);
        });
        let _ = write!(out, "<g id=\"l_{style}\">{sample}</g>");
    }
    let reference = drawn(|pen| pen.polyline(&ends, &MUTED, 1.2, &DOTS));
    let _ = write!(out, "<g id=\"l_r\">{reference}</g></defs></svg>");
    out
}

fn drawn(draw: impl FnOnce(&mut Compact)) -> String {
    let mut pen = Compact::default();
    draw(&mut pen);
    pen.elements()
}

fn marker(pen: &mut Compact, (x, y): Spot, look: &Look) {
    let corners = look.marker.corners();
    if corners.is_empty() {
        let (r, fill, stroke, width) = look.round();
        return pen.circle((x, y), r, &fill, (&stroke, width));
    }
    let corners = corners.iter().map(|(dx, dy)| (x + dx, y + dy));
    pen.outline(corners, &look.color, None);
}

/// A piece of the line of a style, for a legend; of the horizontal reference where it is none.
pub(super) fn sample(style: Option<usize>) -> String {
    let name = style.map_or("r".to_owned(), |style| (style % STYLES).to_string());
    format!("<svg class=\"k\" aria-hidden=\"true\"><use href=\"#l_{name}\"/></svg>")
}

/// Printable text of bounded length as the content of an element or attribute.
pub(super) fn xml_text(text: &str) -> String {
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

/// Digits of a height as a share, 64 to a letter.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A height from 0 to 1 in two letters; none is `..`.
pub(super) fn letters(height: Option<f64>) -> String {
    let Some(height) = height.filter(|height| height.is_finite()) else {
        return "..".into();
    };
    let level = (height.clamp(0.0, 1.0) * 4095.0).round() as usize;
    [level / 64, level % 64]
        .map(|digit| char::from(DIGITS[digit.min(63)]))
        .into_iter()
        .collect()
}

/// A coordinate: one decimal is a tenth of a pixel.
pub(super) fn number(value: f64) -> String {
    decimals(value, 1)
}

fn decimals(value: f64, most: usize) -> String {
    let text = format!("{value:.most$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::style::INK;

    #[test]
    fn straight_lines_of_one_look_are_one_path() {
        let mut pen = Compact::default();
        for y in [1.0, 2.0] {
            pen.polyline(&[(0.0, y), (9.0, y)], &GRID, 1.0, &[]);
            pen.text((0.0, y), "a", (TEXT, TextAnchor::End, false), &INK);
        }
        assert_eq!(
            pen.elements(),
            "<text x=\"0\" y=\"1\" class=\"e\">a</text><text x=\"0\" y=\"2\" class=\"e\">a</text>\
             <path d=\"M0 1H9M0 2H9\" class=\"grid\"/>"
        );
    }

    #[test]
    fn a_single_marker_is_a_line_of_two_points() {
        let mut pen = Compact {
            is_fine: true,
            ..Compact::default()
        };
        pen.begin(Some("class=\"point k1\" data-m=\"m1\""), None);
        pen.markers(&[(1.26, 2.123)]);
        pen.end();
        assert_eq!(
            pen.elements(),
            "<g class=\"point k1\" data-m=\"m1\"><polyline points=\"1.3,2.12 1.3,2.12\"/></g>"
        );
    }

    #[test]
    fn heights_are_two_letters() {
        let text = |height| letters(Some(height));
        assert_eq!([text(0.0), text(1.0), text(2.0)], ["AA", "__", "__"]);
        assert_eq!(text(64.0 / 4095.0), "BA");
        assert_eq!([letters(None), letters(Some(f64::NAN))], ["..", ".."]);
    }

    #[test]
    fn every_style_has_a_sample_and_a_marker() {
        let definitions = definitions();
        for style in 0..STYLES {
            assert!(
                definitions.contains(&format!("id=\"l_{style}\"")),
                "{style}"
            );
        }
        assert_eq!(definitions.matches("<marker ").count(), 16);
        assert_eq!(sample(Some(STYLES)), sample(Some(0)));
    }
}
