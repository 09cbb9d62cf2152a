//! One line of a plot, as data.

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
}
