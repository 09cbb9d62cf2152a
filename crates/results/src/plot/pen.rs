//! Drawing primitives on a kuva scene, and the scene as SVG and PNG; or in a page.

use super::compact::Compact;
pub(super) use super::compact::{FIXED, Spot, xml_text};
use super::style::{FONTS, INK, LONGEST, Look, TEXT, TITLE, WHITE};
use crate::text::printable;
use kuva::RasterBackend;
use kuva::backend::svg::SvgBackend;
use kuva::render::color::Color;
use kuva::render::render::{PathData, Primitive, Scene, TextAnchor};
use schema::text::shorten;
use std::fmt::Write as _;

/// Pixels per unit of the PNG: sharp on dense displays and in print at column width.
const PNG_SCALE: f32 = 2.0;
/// From the centre of a line of text to its baseline.
pub(super) const TO_BASELINE: f64 = 4.2;

/// The figure could not be encoded as an image.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the figure \"{title}\": {reason}")]
pub struct PlotError {
    title: String,
    reason: String,
}

/// Where a drawing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Svg,
    Png,
    /// SVG inside a page, which has its own titles and legend and can show and hide groups.
    Page,
}

/// Size, anchor and colour of a text.
pub(super) struct Font<'a> {
    pub size: u32,
    pub anchor: TextAnchor,
    pub color: &'a Color,
}

impl Font<'_> {
    pub(super) const START: Font<'static> = Font {
        size: TEXT,
        anchor: TextAnchor::Start,
        color: &INK,
    };
    pub(super) const MIDDLE: Font<'static> = Font {
        size: TEXT,
        anchor: TextAnchor::Middle,
        color: &INK,
    };
    pub(super) const END: Font<'static> = Font {
        size: TEXT,
        anchor: TextAnchor::End,
        color: &INK,
    };
}

/// Draws on a scene, or in a page.
pub(super) struct Pen {
    scene: Scene,
    target: Target,
    page: Compact,
}

impl Pen {
    pub(super) fn new(width: f64, height: f64, target: Target) -> Self {
        let mut scene = Scene::new(width, height);
        scene.font_family = Some(FONTS.into());
        scene.text_color = Some("#222222".into());
        Self {
            scene,
            target,
            page: Compact::default(),
        }
    }

    pub(super) fn is_page(&self) -> bool {
        self.target == Target::Page
    }

    /// What has been drawn for an SVG file or a PNG.
    pub(super) fn into_scene(self) -> Scene {
        self.scene
    }

    /// What has been drawn for a page, named to a screen reader. `attributes`: more of them, each
    /// after a space.
    pub(super) fn into_page(self, name: &str, attributes: &str) -> String {
        let size = (self.scene.width, self.scene.height);
        self.page.svg(size, name, attributes)
    }

    /// Where a page is drawn.
    pub(super) fn page(&mut self) -> &mut Compact {
        &mut self.page
    }

    pub(super) fn push(&mut self, primitive: Primitive) {
        self.scene.elements.push(primitive);
    }

    /// Begins a group with these attributes and this tooltip; in pages only.
    pub(super) fn begin(&mut self, attributes: Option<&str>, title: Option<&str>) {
        if self.is_page() {
            self.page.begin(attributes, title);
        }
    }

    /// Ends the last group.
    pub(super) fn end(&mut self) {
        if self.is_page() {
            self.page.end();
        }
    }

    pub(super) fn line(&mut self, from: Spot, to: Spot, color: &Color, width: f64, dash: &[f64]) {
        self.polyline(&[from, to], color, width, dash);
    }

    pub(super) fn polyline(&mut self, points: &[Spot], color: &Color, width: f64, dash: &[f64]) {
        if points.len() < 2 {
            return;
        }
        if self.is_page() {
            return self.page.polyline(points, color, width, dash);
        }
        let one = |points: Vec<Spot>, dash: Option<String>| Primitive::PolyLine {
            points,
            stroke: color.clone(),
            stroke_width: width,
            stroke_dasharray: dash,
        };
        if dash.is_empty() {
            self.push(one(points.to_vec(), None));
        } else if self.target == Target::Png {
            // kuva's raster backend restarts the dash pattern at every segment, so each dash is
            // drawn as a separate line.
            let pieces = dashes(points, dash).into_iter();
            self.scene
                .elements
                .extend(pieces.map(|piece| one(piece, None)));
        } else {
            let text: Vec<String> = dash.iter().map(f64::to_string).collect();
            self.push(one(points.to_vec(), Some(text.join(" "))));
        }
    }

    /// A filled rectangle, its upper left corner at `at`.
    pub(super) fn rect(&mut self, at: Spot, (width, height): (f64, f64), fill: Color) {
        if self.is_page() {
            return self.page.rect(at, (width, height), &fill);
        }
        self.push(Primitive::Rect {
            x: at.0,
            y: at.1,
            width,
            height,
            fill,
            stroke: None,
            stroke_width: None,
            opacity: None,
        });
    }

    /// A text whose baseline passes through `at`.
    pub(super) fn text(&mut self, at: Spot, text: &str, font: &Font<'_>) {
        self.write(at, text, font, false);
    }

    /// The figure's title.
    pub(super) fn title(&mut self, at: Spot, text: &str) {
        let font = Font {
            size: TITLE,
            ..Font::START
        };
        self.write(at, text, &font, true);
    }

    fn write(&mut self, at: Spot, text: &str, font: &Font<'_>, bold: bool) {
        if self.is_page() {
            let look = (font.size, font.anchor, bold);
            return self.page.text(at, text, look, font.color);
        }
        // kuva reads `$...$` as mathematics.
        let content = printable(&shorten(text, LONGEST)).replace('$', "\\$");
        self.push(Primitive::Text {
            x: at.0,
            y: at.1,
            content,
            size: font.size,
            anchor: font.anchor,
            rotate: None,
            bold,
            color: Some(font.color.clone()),
        });
    }

    /// A closed, filled outline.
    pub(super) fn outline(
        &mut self,
        corners: impl Iterator<Item = Spot>,
        fill: &Color,
        stroke: (Color, f64),
        opacity: Option<f64>,
    ) {
        if self.is_page() {
            return self.page.outline(corners, fill, opacity);
        }
        let mut d = String::new();
        for (i, (x, y)) in corners.enumerate() {
            let step = if i == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{step}{x:.2} {y:.2} ");
        }
        d.push('Z');
        let data = PathData {
            d,
            fill: Some(fill.clone()),
            stroke: stroke.0,
            stroke_width: stroke.1,
            opacity,
            stroke_dasharray: None,
        };
        self.push(Primitive::Path(Box::new(data)));
    }

    pub(super) fn marker(&mut self, (x, y): Spot, look: &Look) {
        let corners = look.marker.corners();
        if !corners.is_empty() {
            let corners = corners.iter().map(|(dx, dy)| (x + dx, y + dy));
            return self.outline(corners, &look.color, (WHITE, 0.9), None);
        }
        let (r, fill, stroke, stroke_width) = look.round();
        if self.is_page() {
            return self.page.circle((x, y), r, &fill, (&stroke, stroke_width));
        }
        self.push(Primitive::Circle {
            cx: x,
            cy: y,
            r,
            fill,
            fill_opacity: None,
            stroke: Some(stroke),
            stroke_width: Some(stroke_width),
        });
    }
}

/// The dashes of a dashed line, the pattern carried across its corners.
fn dashes(points: &[Spot], pattern: &[f64]) -> Vec<Vec<Spot>> {
    let mut out = Vec::new();
    // Place in the pattern, and what is left of the dash or gap there.
    let (mut index, mut left) = (0, pattern[0]);
    let mut piece = vec![points[0]];
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let is_dash = index % 2 == 0;
            // The segment ends within this dash or gap, which goes on in the next segment.
            if length <= left {
                left -= length;
                if is_dash {
                    piece.push(to);
                }
                break;
            }
            // The dash or gap ends within the segment, and the next one starts there.
            let share = left / length;
            from = (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            );
            if is_dash {
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

/// Scalable in a page, named to a screen reader, and without the library's version.
///
/// kuva 0.6 has no switch for any of the three (`docs/plots-upstream.md`): its version comment,
/// which would change every committed figure with each release, is removed as the text it is, and
/// `viewBox` and name are added to the opening tag, which ends at the first `>` because kuva
/// escapes attribute values.
pub(super) fn to_svg(scene: &Scene, title: &str) -> String {
    let svg = SvgBackend::new().render_scene(scene);
    let stamp = format!("<!-- Generated by kuva {} -->", kuva::VERSION);
    let end_of_tag = format!(
        " viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        scene.width,
        scene.height,
        xml_text(title)
    );
    // The first `>` is the end of the opening tag.
    svg.replacen(&stamp, "", 1).replacen('>', &end_of_tag, 1) + "\n"
}

pub(super) fn to_png(scene: &Scene, title: &str) -> Result<Vec<u8>, PlotError> {
    RasterBackend::new()
        .with_scale(PNG_SCALE)
        .render_scene(scene)
        .map_err(|reason| PlotError {
            title: title.into(),
            reason,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dash_pattern_runs_across_corners() {
        let pieces = dashes(&[(0.0, 0.0), (5.0, 0.0), (5.0, 9.0)], &[4.0, 2.0]);
        let starts: Vec<Spot> = pieces.iter().map(|p| p[0]).collect();
        assert_eq!(starts, [(0.0, 0.0), (5.0, 1.0), (5.0, 7.0)]);
    }

    #[test]
    fn svg_has_a_name_and_no_version() {
        let svg = to_svg(&Scene::new(10.0, 20.0), "a \"b\"");
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(svg.contains("viewBox=\"0 0 10 20\" role=\"img\" aria-label=\"a &quot;b&quot;\">"));
        assert!(
            !svg.contains("<!--") && !svg.contains(kuva::VERSION),
            "{svg}"
        );
    }
}
