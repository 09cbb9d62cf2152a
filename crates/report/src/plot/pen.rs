//! Drawing as SVG: a file by itself, or a figure inside a page.
//!
//! A page holds many figures and has a style sheet. Colours are its variables there, the look of
//! lines is said once, by classes of their groups, and markers and samples of lines are definitions
//! that the whole page shares ([`definitions`](super::definitions)). A file says the same by attributes.

use super::style::{Color, FONTS, GAP, GRID, INK, LONGEST, LineStyle, MUTED, TEXT, TITLE, WHITE};
use records::text::name;
use std::fmt::Write as _;

/// A point of the drawing: x to the right, y downwards.
pub(super) type Spot = (f64, f64);

/// From the centre of a line of text to its baseline.
pub(super) const TO_BASELINE: f64 = 4.2;

/// A group of cells, whose colours and inks are the same in the dark.
pub(super) const FIXED: &str = "class=\"cells\"";

/// The group of the horizontal reference.
pub(super) const REFERENCE_GROUP: &str = "class=\"ref\"";

/// Where a drawing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    File,
    /// A page has its own titles and legend, and can show and hide groups.
    Page,
}

/// Which point of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size, anchor and colour of a text.
pub(super) struct Font {
    pub size: u32,
    pub anchor: Anchor,
    pub color: Color,
}

impl Font {
    pub(super) const START: Font = Font {
        size: TEXT,
        anchor: Anchor::Start,
        color: INK,
    };
    pub(super) const MIDDLE: Font = Font {
        anchor: Anchor::Middle,
        ..Font::START
    };
    pub(super) const END: Font = Font {
        anchor: Anchor::End,
        ..Font::START
    };
    pub(super) const MUTED: Font = Font {
        color: MUTED,
        ..Font::START
    };
    /// A remark on a line or an axis, below or above its middle.
    pub(super) const NOTE: Font = Font {
        size: TEXT - 1,
        color: MUTED,
        ..Font::MIDDLE
    };
}

/// What has been drawn.
pub(super) struct Pen {
    target: Target,
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

impl Pen {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            out: String::new(),
            open: Vec::new(),
            straight: Vec::new(),
            is_fine: false,
        }
    }

    pub(super) fn is_page(&self) -> bool {
        self.target == Target::Page
    }

    /// What has been drawn, named to a screen reader. `attributes`: more of the root element in a
    /// page, each after a space.
    pub(super) fn svg(mut self, (width, height): Spot, name: &str, attributes: &str) -> String {
        self.flush();
        let (width, height) = (number(width), number(height));
        let size = format!(
            "width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\"",
            xml_text(name)
        );
        match self.target {
            Target::Page => format!("<svg class=\"chart\" {size}{attributes}>{}</svg>", self.out),
            Target::File => format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} font-family=\"{FONTS}\" \
                 font-size=\"{TEXT}\" fill=\"{INK}\" stroke-linejoin=\"round\">\
                 <rect width=\"100%\" height=\"100%\" fill=\"{WHITE}\"/>{}</svg>\n",
                self.out
            ),
        }
    }

    /// A whole drawing inside this one, its corner at `at`.
    pub(super) fn inside(&mut self, svg: &str, (x, y): Spot) {
        self.flush();
        let placed = format!("<svg x=\"{}\" y=\"{}\" ", number(x), number(y));
        self.out
            .push_str(&svg.trim_end().replacen("<svg ", &placed, 1));
    }

    /// What has been drawn.
    pub(super) fn elements(mut self) -> String {
        self.flush();
        self.out
    }

    /// Begins a group with these attributes; in pages only.
    pub(super) fn begin(&mut self, attributes: &str) {
        if !self.is_page() {
            return;
        }
        self.flush();
        let outer = self.group();
        self.open.push(Group {
            is_fixed: outer.is_fixed || attributes.starts_with(FIXED),
            is_line: outer.is_line || is_line(attributes),
        });
        let _ = write!(self.out, "<g {attributes}>");
    }

    /// Ends the last group.
    pub(super) fn end(&mut self) {
        if self.is_page() {
            self.flush();
            self.open.pop();
            self.out.push_str("</g>");
        }
    }

    fn group(&self) -> Group {
        self.open.last().copied().unwrap_or_default()
    }

    /// The straight lines so far.
    pub(super) fn flush(&mut self) {
        for (look, d) in std::mem::take(&mut self.straight) {
            let _ = write!(self.out, "<path d=\"{d}\"{look}/>");
        }
    }

    fn paint(&self, color: Color) -> String {
        // A gap is not a colour of the scale.
        let is_fixed = self.group().is_fixed && color != GAP;
        match color.variable().filter(|_| self.is_page() && !is_fixed) {
            Some(name) => format!("var(--{name})"),
            None => color.to_string(),
        }
    }

    /// ` stroke=".." stroke-width=".."`, and the dash.
    fn stroke(&self, color: Color, width: f64, dash: &[f64]) -> String {
        if self.is_page() && color == GRID && width <= 1.0 {
            return " class=\"grid\"".into();
        }
        let mut out = format!(
            " stroke=\"{}\" stroke-width=\"{}\"",
            self.paint(color),
            number(width)
        );
        if !dash.is_empty() {
            let dash: Vec<String> = dash.iter().map(f64::to_string).collect();
            let _ = write!(out, " stroke-dasharray=\"{}\"", dash.join(" "));
        }
        out
    }

    pub(super) fn line(&mut self, from: Spot, to: Spot, color: Color, width: f64, dash: &[f64]) {
        self.polyline(&[from, to], color, width, dash);
    }

    pub(super) fn polyline(&mut self, points: &[Spot], color: Color, width: f64, dash: &[f64]) {
        if points.len() < 2 {
            return;
        }
        let places = self.places(points);
        if self.group().is_line {
            self.flush();
            let _ = write!(self.out, "<polyline points=\"{places}\"/>");
            return;
        }
        let look = self.stroke(color, width, dash);
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
        // The style sheet of a page fills no polyline.
        let fill = if self.is_page() { "" } else { " fill=\"none\"" };
        let _ = write!(self.out, "<polyline points=\"{places}\"{fill}{look}/>");
    }

    /// The area of a band, painted by the class of its group in a page.
    pub(super) fn area(&mut self, corners: &[Spot], color: Color, opacity: f64) {
        self.flush();
        let places = self.places(corners);
        let fill = match self.target {
            Target::Page => String::new(),
            Target::File => format!(" fill=\"{color}\" opacity=\"{opacity}\""),
        };
        let _ = write!(self.out, "<polygon points=\"{places}\"{fill}/>");
    }

    /// Markers at some places, drawn by the class of their group in a page.
    pub(super) fn markers(&mut self, places: &[Spot], look: &LineStyle) {
        self.flush();
        match self.target {
            Target::File => places.iter().for_each(|at| self.marker(*at, look)),
            Target::Page => {
                // A line of one point has no markers.
                let twice = [places, places].concat();
                let places = if places.len() == 1 { &twice } else { places };
                let _ = write!(self.out, "<polyline points=\"{}\"/>", self.places(places));
            }
        }
    }

    /// One marker; its edge, where it has corners, is the style sheet's in a page.
    pub(super) fn marker(&mut self, (x, y): Spot, look: &LineStyle) {
        let corners = look.marker.corners();
        if corners.is_empty() {
            let (r, fill, stroke, width) = look.round();
            return self.circle((x, y), r, fill, (stroke, width));
        }
        let mut d = String::new();
        for (at, (dx, dy)) in corners.iter().enumerate() {
            let step = if at == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{step}{} {}", number(x + dx), number(y + dy));
        }
        let edge = match self.target {
            Target::Page => String::new(),
            Target::File => self.stroke(WHITE, 0.9, &[]),
        };
        let fill = self.paint(look.color);
        let _ = write!(self.out, "<path d=\"{d}Z\" fill=\"{fill}\"{edge}/>");
    }

    /// A disc; with a ring around it where `stroke` has a width.
    pub(super) fn circle(&mut self, (x, y): Spot, r: f64, fill: Color, stroke: (Color, f64)) {
        let [x, y, r] = [x, y, r].map(number);
        let fill = self.paint(fill);
        let edge = if stroke.1 > 0.0 {
            self.stroke(stroke.0, stroke.1, &[])
        } else {
            String::new()
        };
        let _ = write!(
            self.out,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\" fill=\"{fill}\"{edge}/>"
        );
    }

    /// A filled rectangle, its upper left corner at `at`.
    pub(super) fn rect(&mut self, (x, y): Spot, (width, height): Spot, fill: Color) {
        self.flush();
        let [x, y, width, height] = [x, y, width, height].map(number);
        let fill = self.paint(fill);
        let _ = write!(
            self.out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }

    /// Horizontal bars of one colour and height: the upper left corner of each, and its width. One
    /// path of strokes takes a quarter of the bytes of as many rectangles.
    pub(super) fn bars(&mut self, bars: &[(Spot, f64)], height: f64, fill: Color) {
        self.flush();
        let stroke = self.stroke(fill, height, &[]);
        let _ = write!(self.out, "<path{stroke} fill=\"none\" d=\"");
        for ((x, y), width) in bars {
            let [x, y, width] = [*x, y + height / 2.0, *width].map(number);
            let _ = write!(self.out, "M{x} {y}h{width}");
        }
        self.out.push_str("\"/>");
    }

    /// A text whose baseline passes through `at`.
    pub(super) fn text(&mut self, at: Spot, text: &str, font: &Font) {
        self.write(at, text, font, "");
    }

    /// The figure's title.
    pub(super) fn title(&mut self, at: Spot, text: &str) {
        let font = Font {
            size: TITLE,
            ..Font::START
        };
        self.write(at, text, &font, " font-weight=\"bold\"");
    }

    fn write(&mut self, (x, y): Spot, text: &str, font: &Font, weight: &str) {
        let anchor = match (font.anchor, self.target) {
            (Anchor::Start, _) => "",
            (Anchor::Middle, Target::Page) => " class=\"m\"",
            (Anchor::End, Target::Page) => " class=\"e\"",
            (Anchor::Middle, Target::File) => " text-anchor=\"middle\"",
            (Anchor::End, Target::File) => " text-anchor=\"end\"",
        };
        let (x, y) = (number(x), number(y));
        let _ = write!(self.out, "<text x=\"{x}\" y=\"{y}\"{anchor}{weight}");
        if font.size != TEXT {
            let _ = write!(self.out, " font-size=\"{}\"", font.size);
        }
        // The ink is that of the root element, but of no cell in a page.
        if font.color != INK || self.is_page() && self.group().is_fixed {
            let _ = write!(self.out, " fill=\"{}\"", self.paint(font.color));
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
    use crate::plot::style::DOTS;

    #[test]
    fn straight_lines_of_one_look_are_one_path() {
        let drawn = |target| {
            let mut pen = Pen::new(target);
            for y in [1.0, 2.0] {
                pen.line((0.0, y), (9.0, y), GRID, 1.0, &[]);
                pen.text((0.0, y), "a", &Font::END);
            }
            pen.elements()
        };
        assert_eq!(
            drawn(Target::Page),
            "<text x=\"0\" y=\"1\" class=\"e\">a</text><text x=\"0\" y=\"2\" class=\"e\">a</text>\
             <path d=\"M0 1H9M0 2H9\" class=\"grid\"/>"
        );
        assert!(drawn(Target::File).ends_with(
            "<text x=\"0\" y=\"2\" text-anchor=\"end\">a</text>\
             <path d=\"M0 1H9M0 2H9\" stroke=\"#e6e6e6\" stroke-width=\"1\"/>"
        ));
    }

    #[test]
    fn a_file_stands_alone_and_has_a_name() {
        let mut pen = Pen::new(Target::File);
        pen.begin("class=\"line c0\" data-m=\"m0\"");
        let points = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)];
        pen.polyline(&points, INK, 2.0, &DOTS);
        pen.end();
        let svg = pen.svg((10.0, 20.0), "a \"b\"", " data-x=\"page\"");
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("viewBox=\"0 0 10 20\" role=\"img\" aria-label=\"a &quot;b&quot;\""));
        assert!(svg.contains(
            "<polyline points=\"0,0 1,1 2,0\" fill=\"none\" stroke=\"#222222\" stroke-width=\"2\" \
             stroke-dasharray=\"2 3\"/>"
        ));
        // Neither classes nor variables, which need a style sheet.
        assert!(!svg.contains("class=") && !svg.contains("var(") && !svg.contains("data-"));
    }

    #[test]
    fn a_single_marker_is_a_line_of_two_points() {
        let mut pen = Pen::new(Target::Page);
        pen.is_fine = true;
        pen.begin("class=\"point k1\" data-m=\"m1\"");
        pen.markers(&[(1.26, 2.123)], &LineStyle::of(1));
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
}
