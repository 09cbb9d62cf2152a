//! Elements of rows picked by column, and the sums that undo it: each is the gradient of the other.

use super::tensors::{PerInput, Strided, tensor};
use super::threads::for_each;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use std::sync::Arc;

/// A column for every row and place, `[1 or B, 1 or H, Q, K]`.
#[derive(Clone)]
pub(super) struct Columns {
    /// Shared with the backward pass.
    values: Arc<[u32]>,
    shape: [usize; 4],
}

impl Columns {
    /// # Panics
    ///
    /// If a column is not in `0..n`.
    pub(super) fn new(columns: Vec<usize>, shape: [usize; 4], n: usize) -> Self {
        let largest = columns.iter().max();
        assert!(largest.is_none_or(|c| *c < n), "columns below {n}");
        assert!(u32::try_from(n).is_ok(), "rows of fewer than 2^32 columns");
        Self {
            values: columns.into_iter().map(|column| column as u32).collect(),
            shape,
        }
    }

    /// The columns of all rows of one batch and head.
    fn of(&self, batch: usize, head: usize) -> &[u32] {
        let [batches, heads, rows, places] = self.shape;
        // A broadcast dimension has one slice for all.
        let slice =
            (if batches == 1 { 0 } else { batch }) * heads + if heads == 1 { 0 } else { head };
        &self.values[slice * rows * places..][..rows * places]
    }

    /// `f` on every row of `x`, its columns, and the row of the result, `width` wide.
    fn map_rows(
        &self,
        x: &FlexTensor,
        width: usize,
        f: impl Fn(&[f32], &[u32], &mut [f32]) + Sync + Send,
    ) -> FlexTensor {
        let x = Strided::new(x);
        let ([batch, heads, rows, _], places) = (x.shape, self.shape[3]);
        let mut y = vec![0.0; batch * heads * rows * width];
        let work = batch * heads * rows * places;
        // One batch and head is a task.
        let tasks = y.chunks_mut((rows * width).max(1)).enumerate().collect();
        for_each(tasks, work, |(index, y)| {
            let (batch, head) = (index / heads, index % heads);
            let columns = self.of(batch, head).chunks_exact(places.max(1));
            for (row, (columns, y)) in columns.zip(y.chunks_mut(width.max(1))).enumerate() {
                f(x.row(batch, head, row), columns, y);
            }
        });
        tensor(y, [batch, heads, rows, width])
    }

    fn gather(&self, x: &FlexTensor) -> FlexTensor {
        self.map_rows(x, self.shape[3], |x, columns, y| {
            for (y, column) in y.iter_mut().zip(columns) {
                *y = x[*column as usize];
            }
        })
    }

    fn scatter(&self, x: &FlexTensor, n: usize) -> FlexTensor {
        // A sum runs in the order of the places.
        self.map_rows(x, n, |x, columns, y| {
            for (x, column) in x.iter().zip(columns) {
                y[*column as usize] += x;
            }
        })
    }
}

/// [`crate::gather_columns`].
pub(super) struct Gather {
    pub(super) columns: Columns,
}

impl FusedOp<1> for Gather {
    type Backend = burn::backend::Flex;
    /// Columns of the input.
    type Saved = usize;

    fn forward(&self, inputs: PerInput<1>, _: bool) -> (FlexTensor, usize) {
        let [x] = inputs.map(required);
        let [.., n] = x.shape().dims::<4>();
        (self.columns.gather(&x), n)
    }

    fn backward(&self, n: &usize, grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        [Some(self.columns.scatter(&grad, *n))]
    }
}

/// [`crate::scatter_columns`].
pub(super) struct Scatter {
    pub(super) columns: Columns,
    pub(super) n: usize,
}

impl FusedOp<1> for Scatter {
    type Backend = burn::backend::Flex;
    type Saved = ();

    fn forward(&self, inputs: PerInput<1>, _: bool) -> (FlexTensor, ()) {
        let [x] = inputs.map(required);
        (self.columns.scatter(&x, self.n), ())
    }

    fn backward(&self, _: &(), grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        [Some(self.columns.gather(&grad))]
    }
}

/// [`crate::interpolate_columns`] of numbers and places.
pub(super) struct Interpolate;

/// A place between two of `n` columns: the lower, the upper, and the share of the upper.
#[inline(always)]
fn neighbours(at: f32, n: usize) -> (usize, usize, f32) {
    // Places are not negative: truncation is the floor.
    let below = at as usize;
    (below, (below + 1).min(n - 1), at - below as f32)
}

/// `f` on every row of `x` and the others, and the rows of the results, which are `widths` wide.
fn map_pairs<const R: usize>(
    x: [&FlexTensor; 3],
    widths: [usize; R],
    f: impl Fn([&[f32]; 3], [&mut [f32]; R]) + Sync + Send,
) -> [FlexTensor; R] {
    let x = x.map(Strided::new);
    let [batch, heads, rows, _] = x[0].shape;
    let mut results = widths.map(|width| vec![0.0; batch * heads * rows * width]);
    {
        let mut cut = results.iter_mut().zip(widths);
        let mut cut: [_; R] = std::array::from_fn(|_| {
            let (values, width) = cut.next().expect("a width for every result");
            values.chunks_mut((rows * width).max(1))
        });
        let tasks = (0..batch * heads).map(|index| {
            (
                index,
                cut.each_mut().map(|cut| cut.next().unwrap_or_default()),
            )
        });
        let work = batch * heads * rows * x[1].shape[3];
        for_each(tasks.collect(), work, |(index, results)| {
            let (batch, head) = (index / heads, index % heads);
            let mut each = results.into_iter().zip(widths);
            let mut each: [_; R] = std::array::from_fn(|_| {
                let (values, width) = each.next().expect("a width for every result");
                values.chunks_mut(width.max(1))
            });
            for row in 0..rows {
                let inputs = x.each_ref().map(|x| x.row(batch, head, row));
                f(
                    inputs,
                    each.each_mut().map(|each| each.next().unwrap_or_default()),
                );
            }
        });
    }
    let mut widths = widths.into_iter();
    results.map(|values| tensor(values, [batch, heads, rows, widths.next().unwrap_or(0)]))
}

impl FusedOp<2> for Interpolate {
    type Backend = burn::backend::Flex;
    /// Numbers and places.
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: PerInput<2>, _: bool) -> (FlexTensor, Self::Saved) {
        let [x, at] = inputs.map(required);
        let places = at.shape()[3];
        let [y] = map_pairs([&x, &at, &at], [places], |[x, at, _], [y]| {
            for (y, at) in y.iter_mut().zip(at) {
                let (lower, upper, share) = neighbours(*at, x.len());
                *y = x[lower] + (x[upper] - x[lower]) * share;
            }
        });
        (y, [x, at])
    }

    fn backward(&self, [x, at]: &Self::Saved, grad: FlexTensor, _: [bool; 2]) -> PerInput<2> {
        let (n, places) = (x.shape()[3], at.shape()[3]);
        let row = |[x, at, grad]: [&[f32]; 3], [of_x, of_upper, of_at]: [&mut [f32]; 3]| {
            for ((at, grad), of_at) in at.iter().zip(grad).zip(of_at) {
                let (lower, upper, share) = neighbours(*at, n);
                *of_at = (x[upper] - x[lower]) * grad;
                of_x[lower] += grad - grad * share;
                of_upper[upper] += grad * share;
            }
            // Sums of lower and of upper neighbours by themselves, as the definition has them.
            of_x.iter_mut()
                .zip(of_upper)
                .for_each(|(x, upper)| *x += *upper);
        };
        let [of_x, _, of_at] = map_pairs([x, at, &grad], [n, n, places], row);
        [Some(of_x), Some(of_at)]
    }
}
