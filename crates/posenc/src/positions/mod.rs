//! Positions of queries and keys, and the samplers that draw them.
//!
//! Positions are a value made outside the encoding, so that randomized, shifted or interpolated
//! positions need no second version of any encoding.

pub mod samplers;

pub use samplers::PositionsConfig;

/// What differs from the source, by kind of sampler; as
/// [`About::deviations`](crate::spec::About).
pub const DEVIATIONS: &[(&str, &str)] = &[(
    "pose",
    "the text goes on where its positions jump; the authors take the second chunk from later in the \
     text",
)];

/// The positions of the queries and of the keys of one forward pass.
///
/// Positions are real numbers in units of tokens, 0 for the first. Queries and keys are separate,
/// so that decoding one token against a cache is `Positions::new(vec![t], (0..=t))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Positions {
    queries: Vec<f64>,
    keys: Vec<f64>,
    axes: Vec<Axis>,
    distances: Option<Vec<f64>>,
    /// Those of each row of a batch, where rows differ; the other fields are then those of the
    /// first.
    rows: Vec<Self>,
}

/// One coordinate of every query and of every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Coordinates of the queries.
    pub queries: Vec<f64>,
    /// Coordinates of the keys.
    pub keys: Vec<f64>,
}

impl Positions {
    /// Positions 0, 1, ..., `seq_len - 1` for queries and keys alike.
    pub fn contiguous(seq_len: usize) -> Self {
        Self::from_offset(0, seq_len)
    }

    /// Positions `offset`, `offset + 1`, ... for queries and keys alike.
    pub fn from_offset(offset: usize, seq_len: usize) -> Self {
        Self::same((offset..offset + seq_len).map(|p| p as f64).collect())
    }

    /// Queries and keys at the same positions.
    ///
    /// # Panics
    ///
    /// As [`Positions::new`].
    pub fn same(positions: Vec<f64>) -> Self {
        Self::new(positions.clone(), positions)
    }

    /// Any positions.
    ///
    /// # Panics
    ///
    /// If there is no key, or a position is negative or not finite.
    pub fn new(queries: Vec<f64>, keys: Vec<f64>) -> Self {
        assert!(!keys.is_empty(), "positions need at least one key");
        assert!(
            queries
                .iter()
                .chain(&keys)
                .all(|p| p.is_finite() && *p >= 0.0),
            "positions are finite and not negative"
        );
        Self {
            queries,
            keys,
            axes: Vec::new(),
            distances: None,
            rows: Vec::new(),
        }
    }

    /// Positions that differ from row to row of a batch, which must then have as many rows.
    ///
    /// # Panics
    ///
    /// If there is no row, if rows have different numbers of queries, keys or axes, or if one
    /// stands for several itself.
    pub fn of_rows(rows: Vec<Self>) -> Self {
        let size = |row: &Self| (row.queries.len(), row.keys.len(), row.axes.len());
        for row in &rows {
            assert_eq!(size(row), size(&rows[0]), "rows of one size");
            assert!(row.rows.is_empty(), "positions of one row");
        }
        Self {
            rows: rows.clone(),
            ..rows.into_iter().next().expect("positions of a row")
        }
    }

    /// The same positions, followed by the last one until there are `count` queries and keys: for
    /// rows that are padded at their end.
    ///
    /// # Panics
    ///
    /// If there are axes, or rows differ.
    #[must_use]
    pub fn padded(mut self, count: usize) -> Self {
        assert!(
            self.axes.is_empty() && self.rows.is_empty(),
            "positions of one row, without axes"
        );
        for places in [&mut self.queries, &mut self.keys] {
            if let Some(last) = places.last().copied() {
                places.resize(count, last);
            }
        }
        self
    }

    /// The same positions with coordinates on several axes, for encodings that read more than the
    /// sequence.
    ///
    /// # Panics
    ///
    /// Unless every axis has one finite coordinate per query and per key, or if rows differ.
    #[must_use]
    pub fn with_axes(mut self, axes: Vec<Axis>) -> Self {
        assert!(self.rows.is_empty(), "positions of one row");
        self.check_axes(&axes);
        self.axes = axes;
        self
    }

    /// The same positions with coordinates that differ from row to row of a batch: a list of axes
    /// for each row. The batch must then have as many rows.
    ///
    /// # Panics
    ///
    /// As [`Positions::with_axes`] and [`Positions::of_rows`], or if the rows that differ already
    /// are others in number.
    #[must_use]
    pub fn with_axes_by_row(self, axes: Vec<Vec<Axis>>) -> Self {
        let rows = if self.rows.is_empty() {
            vec![self; axes.len()]
        } else {
            self.rows
        };
        assert_eq!(rows.len(), axes.len(), "axes for every row");
        let rows = rows.into_iter().zip(axes);
        Self::of_rows(rows.map(|(row, axes)| row.with_axes(axes)).collect())
    }

    fn check_axes(&self, axes: &[Axis]) {
        for axis in axes {
            assert_eq!(
                (axis.queries.len(), axis.keys.len()),
                (self.queries.len(), self.keys.len()),
                "one coordinate per position"
            );
            assert!(
                axis.queries.iter().chain(&axis.keys).all(|p| p.is_finite()),
                "coordinates are finite"
            );
        }
    }

    /// The positions of each row of a batch, where rows differ; `None` where all rows share them.
    pub fn by_row(&self) -> Option<impl Iterator<Item = Self> + '_> {
        (!self.rows.is_empty()).then(|| self.rows.iter().cloned())
    }

    /// Positions of the queries of all rows, one row after the other: one where rows share them.
    pub(crate) fn queries_of_rows(&self) -> Vec<f64> {
        if self.rows.is_empty() {
            return self.queries.clone();
        }
        let rows = self.rows.iter();
        rows.flat_map(|row| row.queries.iter().copied()).collect()
    }

    /// Whether rows differ in more than their axes.
    pub(crate) fn places_differ(&self) -> bool {
        self.rows.iter().any(|row| {
            row.queries != self.queries || row.keys != self.keys || row.distances != self.distances
        })
    }

    /// The same positions with the distance `d` between a query and a key replaced by
    /// `distances[d]`, in both directions.
    ///
    /// Only encodings with [`Facts::by_distance`](crate::Facts::by_distance) read it; positions must
    /// then be whole numbers.
    ///
    /// # Panics
    ///
    /// If a distance between two of the positions has no replacement, or if rows differ.
    #[must_use]
    pub fn with_distances(mut self, distances: Vec<f64>) -> Self {
        assert!(self.rows.is_empty(), "positions of one row");
        // Distances run from 0 to the largest position less the smallest.
        let smallest = self
            .queries
            .iter()
            .chain(&self.keys)
            .copied()
            .fold(f64::INFINITY, f64::min);
        assert!(
            self.length() - smallest <= distances.len() as f64,
            "a replacement for every distance"
        );
        self.distances = Some(distances);
        self
    }

    /// The last `count` queries against all keys: what decoding with a cache prepares.
    ///
    /// # Panics
    ///
    /// If there are fewer queries.
    #[must_use]
    pub fn last(&self, count: usize) -> Self {
        let from = self.queries.len() - count;
        let axes = self.axes.iter().map(|axis| Axis {
            queries: axis.queries[from..].to_vec(),
            keys: axis.keys.clone(),
        });
        Self {
            queries: self.queries[from..].to_vec(),
            keys: self.keys.clone(),
            axes: axes.collect(),
            distances: self.distances.clone(),
            rows: self.rows.iter().map(|row| row.last(count)).collect(),
        }
    }

    /// Positions of the queries; where rows differ, of the first.
    pub fn queries(&self) -> &[f64] {
        &self.queries
    }

    /// Positions of the keys; where rows differ, of the first.
    pub fn keys(&self) -> &[f64] {
        &self.keys
    }

    /// The coordinates on axis `index`. Without axes, the coordinate on every axis is the position,
    /// as for text in multimodal rotary encodings.
    ///
    /// # Panics
    ///
    /// If there are axes, but fewer, or if rows differ: see [`Positions::by_row`].
    pub fn axis(&self, index: usize) -> (&[f64], &[f64]) {
        assert!(self.rows.is_empty(), "positions of one row");
        match self.axes.get(index) {
            Some(axis) => (&axis.queries, &axis.keys),
            None => {
                assert!(self.axes.is_empty(), "axis {index} of {}", self.axes.len());
                (&self.queries, &self.keys)
            }
        }
    }

    /// Number of axes with their own coordinates.
    pub fn num_axes(&self) -> usize {
        self.axes.len()
    }

    /// `query - key`, or the signed replacement of that distance.
    pub fn distance(&self, query: f64, key: f64) -> f64 {
        let distance = query - key;
        match &self.distances {
            None => distance,
            Some(replaced) => replaced[distance.abs().round() as usize].copysign(distance),
        }
    }

    /// Whether distances are replaced.
    pub fn replaces_distances(&self) -> bool {
        self.distances.is_some()
    }

    /// The length that length-dependent encodings read: one more than the largest position, as in
    /// Hugging Face's dynamic scaling.
    pub fn length(&self) -> f64 {
        let places = self.queries.iter().chain(&self.keys);
        let own = places.copied().fold(0.0, f64::max) + 1.0;
        self.rows.iter().map(Self::length).fold(own, f64::max)
    }

    /// One more than the largest position, as a number of table rows.
    pub fn rows(&self) -> usize {
        self.length().ceil() as usize
    }
}
