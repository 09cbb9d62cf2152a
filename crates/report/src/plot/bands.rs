//! Bands around lines.

use super::axis::Axis;
use super::pen::{Pen, Spot};
use super::series::Series;
use super::style::Color;

/// A point of a line on the page, with its band's ends.
pub(super) struct Dot {
    /// Its place in the series.
    pub index: usize,
    pub at: Spot,
    pub band: Option<(f64, f64)>,
}

/// Follows the name of y where [`is_cut`] holds for a line.
pub(super) const CUT: &str = "lighter bands are cut";
/// Follows the name of y where a band [`fills`] the axis.
pub(super) const LEFT_OUT: &str = "bands wider than the axis are left out";

/// Whether a band goes on beyond the axis. It is drawn lighter then: it hides other bands and lines.
pub(super) fn is_cut(series: &Series, axis: &Axis) -> bool {
    let bands = series.band.iter().flatten();
    let drawn = bands.filter(|band| !fills(**band, axis));
    let mut ends = drawn.flat_map(|b| [b.0, b.1]).filter(|e| e.is_finite());
    ends.any(|end| !axis.holds(end))
}

/// Whether a band goes beyond both ends of the axis. It is not drawn: it would say nothing and
/// cover everything.
pub(super) fn fills((low, high): (f64, f64), axis: &Axis) -> bool {
    low < axis.low && high > axis.high
}

/// The band of a stretch: an area between neighbours, a bar at a point without any.
pub(super) fn draw(pen: &mut Pen, dots: &[Dot], color: Color, is_cut: bool) {
    let (opacity, width) = if is_cut { (0.08, 0.5) } else { (0.14, 1.4) };
    for piece in dots.split(|dot| dot.band.is_none()) {
        if let [single] = piece
            && let Some((a, b)) = single.band
        {
            pen.line((single.at.0, a), (single.at.0, b), color, width, &[]);
        }
        if piece.len() < 2 {
            continue;
        }
        // Along the lower ends and back along the upper ones.
        let lower = piece.iter().filter_map(|d| Some((d.at.0, d.band?.0)));
        let upper = piece.iter().rev().filter_map(|d| Some((d.at.0, d.band?.1)));
        let corners: Vec<Spot> = lower.chain(upper).collect();
        pen.area(&corners, color, opacity);
    }
}
