//! Gradients of parameters, summed over a fixed number of slabs of rows and then over the slabs
//! in order: equal for any number of threads.

use super::buffer_pool::Buffer;
use super::gemm::{Accumulate, Matrix, Panel, padded_bands};
use super::norm::Norm;
use super::tensors::{PerInput, tensor};
use super::threads::fill;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// Rows of a chunk: its normalised copy stays in L2.
pub(super) const CHUNK: usize = 128;
/// The most slabs of rows with a partial sum each.
const SLABS: usize = 8;

/// Rows of a slab: whole chunks, whatever the number of threads.
pub(super) fn slab_rows(rows: usize) -> usize {
    rows.div_ceil(SLABS).next_multiple_of(CHUNK)
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

/// The gradient of a weight, as one partial sum per slab of rows, packed.
pub(super) struct PartialSums {
    values: Buffer,
    shape: [usize; 2],
    /// Columns after which panels restart.
    band: usize,
}

impl PartialSums {
    pub(super) fn new(slabs: usize, shape: [usize; 2]) -> Self {
        Self::in_bands(slabs, shape, shape[1])
    }

    /// With panels that restart with every `band` of columns.
    pub(super) fn in_bands(slabs: usize, shape: [usize; 2], band: usize) -> Self {
        Self {
            values: Buffer::new(slabs * shape[0] * padded_bands(shape[1], band)),
            shape,
            band,
        }
    }

    /// The partial sum of every slab of rows.
    pub(super) fn slabs(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values
            .chunks_mut((self.shape[0] * padded_bands(self.shape[1], self.band)).max(1))
    }

    /// The partial sums cut by columns: the slab of rows, the columns, and their packed sum.
    pub(super) fn panels(&mut self) -> Vec<(usize, Panel, &mut [f32])> {
        let ([rows, cols], band) = (self.shape, self.band);
        let whole = band == cols;
        let mut panels = Vec::new();
        for (index, mut sum) in self.slabs().enumerate() {
            let cut: Vec<Panel> = if whole {
                Panel::steps(cols).collect()
            } else {
                let firsts = (0..cols).step_by(band);
                firsts.map(|first| Panel::band(first, band)).collect()
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

    /// The sum over the slabs, in order.
    pub(super) fn total(self) -> FlexTensor {
        let [rows, cols] = self.shape;
        let size = rows * padded_bands(cols, self.band);
        let (sum, rest) = self.values.split_at(size.min(self.values.len()));
        let matrix = Matrix::in_bands(sum, rows, cols, self.band);
        let output = fill::<1024>(rows * cols, self.values.len(), |first, mut block| {
            // A block may begin and end inside a row, and a row may cross panels.
            let mut index = first;
            while !block.is_empty() {
                let segment = matrix.segment(index % cols);
                let start = segment.start + index / cols * segment.stride;
                let (now, later) = block.split_at_mut(segment.count.min(block.len()));
                let here = start..start + now.len();
                now.copy_from_slice(&sum[here.clone()]);
                // Every element is summed in the order of the slabs.
                for slab in rest.chunks(size.max(1)) {
                    now.iter_mut()
                        .zip(&slab[here.clone()])
                        .for_each(|(y, x)| *y += x);
                }
                index += now.len();
                block = later;
            }
        });
        tensor(output, self.shape)
    }
}

/// The gradients of scale and shift of a norm, as one partial sum per slab of rows.
pub(super) struct NormPartialSums {
    values: Vec<f32>,
    width: usize,
    /// Length of scale and shift together.
    both: usize,
}

impl NormPartialSums {
    pub(super) fn new(slabs: usize, norm: Option<Norm<'_>>) -> Self {
        let width = norm.map_or(0, |norm| norm.scale.len());
        let both = width
            * if norm.is_some_and(|norm| norm.shift.is_some()) {
                2
            } else {
                1
            };
        // One extra number per slab, so that every slab has a slice even without a norm.
        Self {
            values: vec![0.0; slabs * (both + 1)],
            width,
            both,
        }
    }

    pub(super) fn slabs(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_mut(self.both + 1).map(|slab| {
            let end = slab.len() - 1;
            &mut slab[..end]
        })
    }

    /// The gradients of scale and shift, where they exist.
    pub(super) fn totals(self) -> PerInput<2> {
        let mut sum = vec![0.0; self.both];
        for slab in self.values.chunks(self.both + 1) {
            sum.iter_mut().zip(slab).for_each(|(sum, x)| *sum += x);
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

/// Gradients of the parameters of a network with one hidden layer.
pub(super) struct NetworkSums {
    pub(super) w1: Vec<f64>,
    pub(super) b1: Vec<f64>,
    pub(super) w2: Vec<f64>,
    pub(super) b2: Vec<f64>,
}

impl NetworkSums {
    /// Zeros for these parameters: `w1`, `b1`, `w2`, `b2`.
    pub(super) fn new(parameters: [&[f32]; 4]) -> Self {
        let [w1, b1, w2, b2] = parameters.map(|x| vec![0.0; x.len()]);
        Self { w1, b1, w2, b2 }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let sums = [&mut self.w1, &mut self.b1, &mut self.w2, &mut self.b2];
        let others = [&other.w1, &other.b1, &other.w2, &other.b2];
        for (sums, others) in sums.into_iter().zip(others) {
            for (sum, x) in sums.iter_mut().zip(others) {
                *sum += x;
            }
        }
    }

    /// The gradients of `w1`, of the given shape, of `b1`, `w2` and `b2`.
    pub(super) fn into_tensors<const D: usize>(self, w1: [usize; D]) -> PerInput<4> {
        let narrow = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
        let (units, heads) = (self.b1.len(), self.b2.len());
        [
            Some(tensor(narrow(self.w1), w1)),
            Some(tensor(narrow(self.b1), [units])),
            Some(tensor(narrow(self.w2), [units, heads])),
            Some(tensor(narrow(self.b2), [heads])),
        ]
    }
}
