//! Where the queries and the keys stand: a value made outside the encoding, so that randomized, shifted or interpolated
//! positions need no second version of any encoding.

/// The positions of the queries and of the keys of one forward pass.
///
/// Positions are real numbers in units of tokens, 0 for the first. Queries and keys are held apart so that decoding one token
/// against a cache is `Positions::new(vec![t], (0..=t))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Positions {
    queries: Vec<f64>,
    keys: Vec<f64>,
}

impl Positions {
    /// Positions 0, 1, ..., `seq_len - 1` for queries and keys alike.
    pub fn contiguous(seq_len: usize) -> Self {
        Self::from_offset(0, seq_len)
    }

    /// Positions `offset`, `offset + 1`, ... for queries and keys alike.
    pub fn from_offset(offset: usize, seq_len: usize) -> Self {
        let all: Vec<f64> = (offset..offset + seq_len).map(|p| p as f64).collect();
        Self { queries: all.clone(), keys: all }
    }

    /// Any positions.
    ///
    /// # Panics
    ///
    /// If there is no key, or a position is negative or not finite: samplers are expected to make neither.
    pub fn new(queries: Vec<f64>, keys: Vec<f64>) -> Self {
        assert!(!keys.is_empty(), "positions need at least one key");
        assert!(queries.iter().chain(&keys).all(|p| p.is_finite() && *p >= 0.0), "positions are finite and not negative");
        Self { queries, keys }
    }

    /// Positions of the queries.
    pub fn queries(&self) -> &[f64] {
        &self.queries
    }

    /// Positions of the keys.
    pub fn keys(&self) -> &[f64] {
        &self.keys
    }

    /// The length that length-reading encodings see: one more than the largest position, as in Hugging Face's dynamic scaling.
    pub fn length(&self) -> f64 {
        self.queries.iter().chain(&self.keys).copied().fold(0.0, f64::max) + 1.0
    }

    /// One more than the largest position, as a number of table rows.
    pub fn rows(&self) -> usize {
        self.length().ceil() as usize
    }
}
