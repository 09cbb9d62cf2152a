//! A plot of lines, and one of its lines, as data.

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
    /// Width and height of the file; as its parts need where it is none.
    pub size: Option<(f64, f64)>,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points by ascending x. Those that are not finite, or beyond 1e150, are left out.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper end around each point, where known; as long as `points`, or empty.
    pub band: Vec<Option<(f64, f64)>>,
    /// Look of the line: the same number looks the same in every figure. Up to 24 differ.
    pub style: usize,
    /// Where each point is and its value, in words, for pages; as long as `points`, or empty.
    pub tips: Vec<(String, String)>,
    /// The line of each seed and its name, `seed 3`. Drawn in pages only.
    pub seeds: Vec<(String, Vec<(f64, f64)>)>,
    /// Name of the line for the script of a page, letters and digits; lines of one key are shown
    /// and hidden together. Empty: by its place.
    pub key: String,
}

impl Series {
    /// At most about `most` points, evenly picked, the last one among them.
    pub(super) fn thinned(&self, most: usize) -> Self {
        let every = self.points.len().div_ceil(most.max(1)).max(1);
        let last = self.points.len().saturating_sub(1);
        let is_kept = |i: &usize| i.is_multiple_of(every) || *i == last;
        fn picked<T: Clone>(items: &[T], is_kept: impl Fn(&usize) -> bool) -> Vec<T> {
            let kept = (0..items.len()).filter(is_kept);
            kept.map(|i| items[i].clone()).collect()
        }
        let seed = |(tip, points): &(String, Vec<(f64, f64)>)| {
            let every = points.len().div_ceil(most.max(1)).max(1);
            let last = points.len().saturating_sub(1);
            let points = picked(points, |i| i.is_multiple_of(every) || *i == last);
            (tip.clone(), points)
        };
        Self {
            points: picked(&self.points, is_kept),
            band: picked(&self.band, is_kept),
            tips: picked(&self.tips, is_kept),
            seeds: self.seeds.iter().map(seed).collect(),
            ..self.clone()
        }
    }
}
