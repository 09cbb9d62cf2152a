//! Gradients of parameters, summed over a fixed number of groups of rows and then over the groups
//! in order: equal for any number of threads.

use super::buffer_pool::Buffer;
use super::gemm::{Accumulate, Matrix, Panel, padded_groups};
use super::norm::Norm;
use super::tensors::tensor;
use super::threads::fill;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// Rows of a chunk: its normalised copy stays in L2.
pub(super) const CHUNK: usize = 128;
/// The most groups of rows with a partial sum each.
const GROUPS: usize = 8;

/// Rows of a group: whole chunks, whatever the number of threads.
pub(super) fn group_rows(rows: usize) -> usize {
    rows.div_ceil(GROUPS).next_multiple_of(CHUNK)
}

/// The parameters of a norm among the inputs of an operation, with a shift for a LayerNorm.
pub(super) struct NormTensors {
    pub(super) scale: FlexTensor,
    pub(super) shift: Option<FlexTensor>,
    pub(super) eps: f64,
}

impl NormTensors {
    pub(super) fn view(&self) -> Norm<'_> {
        Norm {
            scale: self.scale.storage(),
            shift: self.shift.as_ref().map(|shift| shift.storage()),
            eps: self.eps as f32,
        }
    }
}

/// The gradient of a weight, as one partial sum per group of rows, packed.
pub(super) struct PartialSums {
    values: Buffer,
    shape: [usize; 2],
    /// Columns after which panels restart.
    group: usize,
}

impl PartialSums {
    pub(super) fn new(groups: usize, shape: [usize; 2]) -> Self {
        Self::grouped(groups, shape, shape[1])
    }

    /// With panels that restart with every `group` of columns.
    pub(super) fn grouped(groups: usize, shape: [usize; 2], group: usize) -> Self {
        Self {
            values: Buffer::new(groups * shape[0] * padded_groups(shape[1], group)),
            shape,
            group,
        }
    }

    /// The partial sum of every group of rows.
    pub(super) fn groups(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values
            .chunks_mut((self.shape[0] * padded_groups(self.shape[1], self.group)).max(1))
    }

    /// The partial sums cut by columns: the group of rows, the columns, and their packed sum.
    pub(super) fn panels(&mut self) -> Vec<(usize, Panel, &mut [f32])> {
        let ([rows, cols], group) = (self.shape, self.group);
        let whole = group == cols;
        let mut panels = Vec::new();
        for (index, mut sum) in self.groups().enumerate() {
            let cut: Vec<Panel> = if whole {
                Panel::steps(cols).collect()
            } else {
                let firsts = (0..cols).step_by(group);
                firsts.map(|first| Panel::group(first, group)).collect()
            };
            for panel in cut {
                let (values, rest) = sum.split_at_mut(panel.range(rows).len());
                panels.push((index, panel, values));
                sum = rest;
            }
        }
        panels
    }

    /// Rows of the sum.
    pub(super) fn rows(&self) -> usize {
        self.shape[0]
    }

    /// The sum over the groups, in order.
    pub(super) fn total(self) -> FlexTensor {
        let [rows, cols] = self.shape;
        let size = rows * padded_groups(cols, self.group);
        let (sum, rest) = self.values.split_at(size.min(self.values.len()));
        let matrix = Matrix::grouped(sum, rows, cols, self.group);
        let output = fill::<1024>(rows * cols, self.values.len(), |first, mut block| {
            // A block may begin and end inside a row, and a row may cross panels.
            let mut index = first;
            while !block.is_empty() {
                let segment = matrix.segment(index % cols);
                let start = segment.start + index / cols * segment.stride;
                let (now, later) = block.split_at_mut(segment.count.min(block.len()));
                let here = start..start + now.len();
                now.copy_from_slice(&sum[here.clone()]);
                // Every element is summed in the order of the groups.
                for group in rest.chunks(size.max(1)) {
                    now.iter_mut()
                        .zip(&group[here.clone()])
                        .for_each(|(y, x)| *y += x);
                }
                index += now.len();
                block = later;
            }
        });
        tensor(output, self.shape)
    }
}

/// The gradients of scale and shift of a norm, as one partial sum per group of rows.
pub(super) struct NormPartialSums {
    values: Vec<f32>,
    width: usize,
    /// Length of scale and shift together.
    both: usize,
}

impl NormPartialSums {
    pub(super) fn new(groups: usize, norm: Option<Norm<'_>>) -> Self {
        let width = norm.map_or(0, |norm| norm.scale.len());
        let both = width
            * if norm.is_some_and(|norm| norm.shift.is_some()) {
                2
            } else {
                1
            };
        // One extra number per group, so that every group has a slice even without a norm.
        Self {
            values: vec![0.0; groups * (both + 1)],
            width,
            both,
        }
    }

    pub(super) fn groups(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_mut(self.both + 1).map(|group| {
            let end = group.len() - 1;
            &mut group[..end]
        })
    }

    /// The gradients of scale and shift, where they exist.
    pub(super) fn totals(self) -> [Option<FlexTensor>; 2] {
        let mut sum = vec![0.0; self.both];
        for group in self.values.chunks(self.both + 1) {
            sum.iter_mut().zip(group).for_each(|(sum, x)| *sum += x);
        }
        let mut parts = sum
            .chunks(self.width.max(1))
            .map(|part| tensor(part.to_vec(), [part.len()]));
        [parts.next(), parts.next()]
    }
}

/// `target = values`, or `target += values`.
pub(super) fn store(target: &mut [f32], values: &[f32], accumulate: Accumulate) {
    match accumulate {
        Accumulate::Overwrite => target.copy_from_slice(values),
        Accumulate::Add => target.iter_mut().zip(values).for_each(|(y, x)| *y += x),
    }
}

/// A weight as a row-major matrix.
pub(super) fn weight(w: &FlexTensor) -> Matrix<'_> {
    let [k, m] = w.shape().dims();
    Matrix::row_major(w.storage(), k, m, m)
}
