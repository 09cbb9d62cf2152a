//! The weights of the feed-forward block, prepared panel by panel, and what is saved.

use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Panel, Rhs};
use crate::flex::partial_sums::{NormTensors, weight};
use crate::flex::threads::map;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// What the backward pass needs.
pub(crate) struct Saved {
    pub(super) x: FlexTensor,
    pub(super) norm: NormTensors,
    pub(super) weights: Weights<FlexTensor>,
    /// `norm(x) up` and, with a gate, `norm(x) gate`, each chunk of rows packed. Empty outside
    /// autodiff.
    pub(super) inner: Vec<Buffer>,
}

/// One value per weight.
pub(crate) struct Weights<T> {
    pub(super) up: T,
    pub(super) gate: Option<T>,
    pub(super) down: T,
}

/// `[d, ff]`.
pub(super) fn sizes(weights: &Weights<FlexTensor>) -> [usize; 2] {
    let [ff, d] = weights.down.shape().dims();
    [d, ff]
}

/// Rows of `up` and `gate`: d, and one more for a bias.
pub(super) fn inputs(weights: &Weights<FlexTensor>) -> usize {
    weights.up.shape()[0]
}

/// The share of a weight in the product for one panel of the activation.
#[derive(Clone, Copy)]
pub(super) enum Share {
    /// Columns of `up` and `gate`.
    Columns,
    ColumnsTransposed,
    /// Rows of `down`.
    Rows,
    RowsTransposed,
}

/// Prepares these weights panel by panel, in parallel; a missing weight gives no panels.
pub(super) fn by_panel<'a, const N: usize>(
    weights: [Option<(&'a FlexTensor, Share)>; N],
    [d, ff]: [usize; 2],
) -> [Vec<Rhs<'a>>; N] {
    let tasks = |(w, share)| Panel::steps(ff).map(move |panel| (w, share, panel));
    let made = map(
        weights.into_iter().flatten().flat_map(tasks).collect(),
        N * d * ff,
        |(w, share, panel): (&'a FlexTensor, Share, Panel)| {
            let (matrix, columns) = (weight(w), panel.columns());
            // The panel's columns of the activation are columns of up and gate, and rows of down.
            match share {
                Share::Columns => matrix.column_range(columns).as_rhs(panel.count),
                // A bias gives its input no gradient.
                Share::ColumnsTransposed => {
                    let matrix = matrix.row_range(0..d).column_range(columns);
                    matrix.as_rhs_transposed(d)
                }
                Share::Rows => matrix.row_range(columns).as_rhs(d),
                Share::RowsTransposed => matrix.row_range(columns).as_rhs_transposed(panel.count),
            }
        },
    );
    // `map` keeps the order, so the panels of each weight are the next ones.
    let (mut made, panels) = (made.into_iter(), Panel::steps(ff).count());
    weights.map(|weight| {
        made.by_ref()
            .take(if weight.is_some() { panels } else { 0 })
            .collect()
    })
}

/// Length of the widest panel.
pub(super) fn widest(rows: usize, cols: usize) -> usize {
    Panel::steps(cols)
        .next()
        .map_or(0, |panel| panel.range(rows).len())
}
