//! Two figures beside each other on a canvas of one size.

use super::frame::{MARGIN, described};
use super::pen::{Font, Pen, Target};

/// Width and height of each figure.
pub const PANEL: (f64, f64) = (480.0, 372.0);
/// Height of the title and the line below it.
const HEAD: f64 = 56.0;

/// The figures, each of the size [`PANEL`], under a title and a smaller line, as a self-contained
/// SVG document.
pub fn side_by_side(title: &str, subtitle: &str, panels: [String; 2]) -> String {
    let mut pen = Pen::new(Target::File);
    pen.title((MARGIN, 26.0), title);
    pen.text((MARGIN, 45.0), subtitle, &Font::MUTED);
    for (at, panel) in panels.iter().enumerate() {
        pen.inside(panel, (at as f64 * PANEL.0, HEAD));
    }
    let size = (2.0 * PANEL.0, HEAD + PANEL.1);
    pen.svg(size, &described(title, subtitle), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Heatmap, LinePlot};

    #[test]
    fn every_figure_of_a_size_has_it() {
        let size = Some(PANEL);
        let lines = LinePlot {
            title: "lines".into(),
            size,
            ..LinePlot::default()
        };
        let map = Heatmap {
            values: vec![vec![0.0; 200]; 3],
            size,
            ..Heatmap::default()
        };
        let both = side_by_side("a & b", "c", [lines.to_svg(), map.to_svg()]);
        assert_eq!(both.matches("viewBox=\"0 0 480 372\"").count(), 2);
        assert!(both.contains("viewBox=\"0 0 960 428\" role=\"img\" aria-label=\"a &amp; b: c\""));
        assert!(both.contains("<svg x=\"480\" y=\"56\" xmlns="));
    }
}
