//! The look of every figure: colours, markers, dashes and text sizes.
//!
//! Lines differ in colour, marker and dash, so they stay distinct in print and without
//! colour vision. Lengths are pixels of the SVG.

use records::palette::{COLORS, palette, rgb};
use std::fmt;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Color(pub u8, pub u8, pub u8);

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

pub(super) const FONTS: &str = "DejaVu Sans, Verdana, Segoe UI, Helvetica, Arial, sans-serif";
/// Size of a title.
pub(super) const TITLE: u32 = 15;
/// Size of all other text.
pub(super) const TEXT: u32 = 12;
/// Longest text drawn, in characters: the width of the picture depends on it.
pub(super) const LONGEST: usize = 120;

pub(super) const INK: Color = Color(0x22, 0x22, 0x22);
pub(super) const MUTED: Color = Color(0x5a, 0x5a, 0x5a);
pub(super) const FRAME: Color = Color(0x8a, 0x8a, 0x8a);
pub(super) const GRID: Color = Color(0xe6, 0xe6, 0xe6);
pub(super) const GAP: Color = Color(0xdd, 0xdd, 0xdd);
pub(super) const WHITE: Color = Color(0xff, 0xff, 0xff);

/// The colour of a place in the palette.
fn of_palette(at: usize) -> Color {
    let [r, g, b] = rgb(&palette().light[at % COLORS]);
    Color(r, g, b)
}

impl Color {
    /// The variable of a page's style sheet that stands for it, if there is one.
    pub(super) fn variable(self) -> Option<String> {
        let named = [
            (INK, "ink"),
            (MUTED, "muted"),
            (FRAME, "frame"),
            (GRID, "grid"),
            (GAP, "gap"),
            (WHITE, "card"),
        ];
        let own = named.iter().find(|(color, _)| *color == self);
        let own = own.map(|(_, name)| (*name).to_owned());
        let at = || (0..COLORS).find(|at| of_palette(*at) == self);
        own.or_else(|| Some(format!("s{}", at()?)))
    }
}

/// A dotted line: lengths of dash and gap.
pub(super) const DOTS: [f64; 2] = [2.0, 3.0];
/// A dashed reference line.
pub(super) const REFERENCE: [f64; 2] = [5.0, 4.0];
const DASHES: [&[f64]; 3] = [&[], &[7.0, 3.5], &DOTS];

/// Colour, marker and dash of a line.
pub(super) struct LineStyle {
    pub color: Color,
    pub marker: Marker,
    pub dash: &'static [f64],
}

/// Shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    TriangleDown,
    Ring,
    Cross,
    TriangleLeft,
}

impl Marker {
    // As `records::palette::marker` shows them on a terminal.
    const ALL: [Self; 8] = [
        Self::Disc,
        Self::Square,
        Self::Triangle,
        Self::Diamond,
        Self::TriangleDown,
        Self::Ring,
        Self::Cross,
        Self::TriangleLeft,
    ];

    /// Corners relative to the centre; empty for round markers.
    pub(super) fn corners(self) -> &'static [(f64, f64)] {
        match self {
            Self::Disc | Self::Ring => &[],
            Self::Square => &[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)],
            Self::Triangle => &[(0.0, -5.0), (4.6, 3.6), (-4.6, 3.6)],
            Self::Diamond => &[(0.0, -5.4), (5.0, 0.0), (0.0, 5.4), (-5.0, 0.0)],
            Self::TriangleDown => &[(0.0, 5.0), (4.6, -3.6), (-4.6, -3.6)],
            Self::Cross => &[
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
            ],
            Self::TriangleLeft => &[(-5.0, 0.0), (3.6, -4.6), (3.6, 4.6)],
        }
    }
}

/// Looks that differ.
pub(super) const STYLES: usize = COLORS * DASHES.len();

impl LineStyle {
    /// Radius, fill, and colour and width of the edge of a round marker.
    pub(super) fn round(&self) -> (f64, Color, Color, f64) {
        match self.marker {
            Marker::Ring => (3.8, WHITE, self.color, 1.8),
            _ => (4.2, self.color, WHITE, 1.0),
        }
    }

    /// The look of a style number. Numbers below [`STYLES`] all look different.
    pub(super) fn of(style: usize) -> Self {
        Self {
            color: of_palette(style),
            marker: Marker::ALL[style % Marker::ALL.len()],
            dash: DASHES[style / COLORS % DASHES.len()],
        }
    }
}

/// Estimated width of a text in DejaVu Sans, the widest of [`FONTS`].
pub(super) fn text_width(text: &str, size: u32) -> f64 {
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

/// Viridis at a share from 0 to 1, interpolated between nine of its colours.
pub(super) fn shade(share: f64) -> Color {
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
    Color(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// The colour of text that is legible on [`shade`] of the same share.
pub(super) fn ink_on(share: f64) -> Color {
    if luma(shade(share)) > 140.0 {
        INK
    } else {
        WHITE
    }
}

/// Perceived brightness from 0 to 255 (Rec. 601).
fn luma(Color(r, g, b): Color) -> f64 {
    0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sixteen_looks_differ_without_colour() {
        let looks: BTreeSet<_> = (0..16)
            .map(|style| {
                let look = LineStyle::of(style);
                let dash = DASHES.iter().position(|dash| *dash == look.dash);
                (look.marker, dash)
            })
            .collect();
        assert_eq!(looks.len(), 16);
    }

    #[test]
    fn ink_differs_from_its_ground() {
        for value in [0.0, 0.3, 0.6, 1.0] {
            let contrast = (luma(ink_on(value)) - luma(shade(value))).abs();
            assert!(contrast > 90.0, "{value}");
        }
    }
}
