//! Linear layers, with or without a norm before them.
//!
//! Rows are taken in chunks whose normalised copy stays in the second cache. The gradient of the
//! weights is summed over a fixed number of groups of rows, and then over the groups in order, so
//! that it is one for any number of threads.

use crate::Matmul;
use crate::flex::{Input, dense, fill, for_each, record, tensor};
use crate::memory::Buffer;
use crate::norm::Norm;
use crate::product::{From, Matrix, MatrixMut, Right, multiply, padded_groups};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// Rows of a chunk.
pub(crate) const CHUNK: usize = 128;
/// Groups of rows with a partial sum each, at most.
const GROUPS: usize = 8;

/// Rows of a group: whole chunks, whatever the number of threads.
pub(crate) fn group_rows(rows: usize) -> usize {
    rows.div_ceil(GROUPS).next_multiple_of(CHUNK)
}

/// The parameters of a norm among the inputs of an operation.
pub(crate) struct NormTensors {
    pub(crate) scale: FlexTensor,
    pub(crate) shift: Option<FlexTensor>,
    pub(crate) eps: f64,
}

impl NormTensors {
    pub(crate) fn view(&self) -> Norm<'_> {
        Norm {
            scale: self.scale.storage(),
            shift: self.shift.as_ref().map(|shift| shift.storage()),
            eps: self.eps as f32,
        }
    }
}

/// Sums over groups of rows of what a weight receives, in panels.
pub(crate) struct Partial {
    values: Buffer,
    shape: [usize; 2],
    /// Columns of a group.
    group: usize,
}

impl Partial {
    pub(crate) fn new(groups: usize, shape: [usize; 2]) -> Self {
        Self::grouped(groups, shape, shape[1])
    }

    /// With columns that come in groups.
    pub(crate) fn grouped(groups: usize, shape: [usize; 2], group: usize) -> Self {
        Self {
            values: Buffer::new(groups * shape[0] * padded_groups(shape[1], group)),
            shape,
            group,
        }
    }

    /// The partial sum of every group.
    pub(crate) fn groups(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values
            .chunks_mut((self.shape[0] * padded_groups(self.shape[1], self.group)).max(1))
    }

    /// The sum over the groups, in order.
    pub(crate) fn total(self) -> FlexTensor {
        let [rows, cols] = self.shape;
        let size = rows * padded_groups(cols, self.group);
        let (sum, rest) = self.values.split_at(size.min(self.values.len()));
        let matrix = Matrix::grouped(sum, rows, cols, self.group);
        let output = fill::<1024>(rows * cols, self.values.len(), |first, mut block| {
            let mut index = first;
            while !block.is_empty() {
                let (start, stride, count) = matrix.columns(index % cols);
                let start = start + index / cols * stride;
                let (now, later) = block.split_at_mut(count.min(block.len()));
                let here = start..start + now.len();
                now.copy_from_slice(&sum[here.clone()]);
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

/// Sums over groups of rows of what scale and shift of a norm receive.
pub(crate) struct NormPartial {
    values: Vec<f32>,
    width: usize,
    both: usize,
}

impl NormPartial {
    pub(crate) fn new(groups: usize, norm: Option<Norm<'_>>) -> Self {
        let width = norm.map_or(0, |norm| norm.scale.len());
        let both = width
            * if norm.is_some_and(|norm| norm.shift.is_some()) {
                2
            } else {
                1
            };
        // One number too many, so that there is a slice for every group even where there is no
        // norm.
        Self {
            values: vec![0.0; groups * (both + 1)],
            width,
            both,
        }
    }

    pub(crate) fn groups(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_mut(self.both + 1).map(|group| {
            let end = group.len() - 1;
            &mut group[..end]
        })
    }

    /// Gradients of scale and shift.
    pub(crate) fn total(self) -> Vec<FlexTensor> {
        let mut sum = vec![0.0; self.both];
        for group in self.values.chunks(self.both + 1) {
            sum.iter_mut().zip(group).for_each(|(sum, x)| *sum += x);
        }
        sum.chunks(self.width.max(1))
            .map(|part| tensor(part.to_vec(), [part.len()]))
            .collect()
    }
}

/// `y = norm(x) w`, or `y += norm(x) w`; without a norm `x w`. `x` is `[n, k]`, `w` is `[k, m]`.
pub(crate) fn forward(
    x: &[f32],
    norm: Option<Norm<'_>>,
    w: &Right<'_>,
    y: &mut [f32],
    from: From,
    matmul: Matmul,
) {
    let [k, m] = w.shape();
    let chunks = x
        .chunks(CHUNK * k.max(1))
        .zip(y.chunks_mut(CHUNK * m.max(1)));
    for_each(chunks.collect(), x.len() * m / 32, |(x, y)| {
        let rows = x.len() / k;
        let y = MatrixMut::rows(y, rows, m, m);
        match norm {
            None => multiply(&Matrix::rows(x, rows, k, k).left(matmul), w, y, from),
            Some(norm) => {
                let mut normed = Buffer::new(x.len());
                norm.rows(x, &mut normed, &mut [[0.0; 2]; CHUNK][..rows]);
                multiply(&Matrix::rows(&normed, rows, k, k).left(matmul), w, y, from);
            }
        }
    });
}

/// Where the gradient of the input goes.
pub(crate) struct InputGrad<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) from: From,
}

/// The gradients of `w`, and of scale and shift, from that of `y`; that of `x` goes where `target`
/// says. `transposed` is the transposed `w`, `[m, k]`.
pub(crate) fn backward(
    x: &[f32],
    norm: Option<Norm<'_>>,
    transposed: &Right<'_>,
    grad: &[f32],
    target: InputGrad<'_>,
    matmul: Matmul,
) -> Vec<FlexTensor> {
    let [m, k] = transposed.shape();
    let n = x.len() / k.max(1);
    let rows = group_rows(n);
    let groups = n.div_ceil(rows.max(1));
    let (mut weight, mut norm_sums) =
        (Partial::new(groups, [k, m]), NormPartial::new(groups, norm));
    let inputs = x.chunks(rows * k).zip(grad.chunks(rows * m));
    let outputs = target
        .values
        .chunks_mut(rows * k)
        .zip(weight.groups())
        .zip(norm_sums.groups());
    let from = target.from;
    for_each(
        inputs.zip(outputs).collect(),
        x.len() * m / 16,
        |((x, grad), ((target, weight), norm_sums))| {
            let (mut normed, mut pulled) = (Buffer::new(CHUNK * k), Buffer::new(CHUNK * k));
            let mut first = From::Zero;
            for ((x, grad), target) in x
                .chunks(CHUNK * k)
                .zip(grad.chunks(CHUNK * m))
                .zip(target.chunks_mut(CHUNK * k))
            {
                let rows = x.len() / k;
                let mut stats = [[0.0; 2]; CHUNK];
                let normed = &mut normed[..x.len()];
                let input = match norm {
                    None => x,
                    Some(norm) => {
                        norm.rows(x, normed, &mut stats[..rows]);
                        normed
                    }
                };
                let grad = Matrix::rows(grad, rows, m, m);
                let input = Matrix::rows(input, rows, k, k).left_transposed(matmul);
                multiply(
                    &input,
                    &grad.right(m, matmul),
                    MatrixMut::panels(weight, k, m),
                    first,
                );
                let grad = grad.left(matmul);
                match norm {
                    None => multiply(&grad, transposed, MatrixMut::rows(target, rows, k, k), from),
                    Some(norm) => {
                        let pulled = &mut pulled[..x.len()];
                        multiply(
                            &grad,
                            transposed,
                            MatrixMut::rows(pulled, rows, k, k),
                            From::Zero,
                        );
                        norm.pull(x, &stats[..rows], pulled, norm_sums);
                        put(target, pulled, from);
                    }
                }
                first = From::Target;
            }
        },
    );
    let mut grads = norm_sums.total();
    grads.push(weight.total());
    grads
}

/// Adds to the target, or overwrites it.
pub(crate) fn put(target: &mut [f32], values: &[f32], from: From) {
    match from {
        From::Zero => target.copy_from_slice(values),
        From::Target => target.iter_mut().zip(values).for_each(|(y, x)| *y += x),
    }
}

/// What the gradient needs.
struct Kept {
    x: FlexTensor,
    norm: Option<NormTensors>,
    w: FlexTensor,
}

/// A weight as it lies.
pub(crate) fn weight(w: &FlexTensor) -> Matrix<'_> {
    let [k, m] = w.shape().dims();
    Matrix::rows(w.storage(), k, m, m)
}

/// `norm(x) w` of the inputs x, then scale and shift where there are such, then w.
pub(crate) fn linear<const N: usize>(inputs: [Input; N], eps: f64, matmul: Matmul) -> Input {
    record(
        inputs,
        |inputs, _| {
            let mut inputs = inputs.map(dense).into_iter();
            let mut next = || inputs.next().expect("as many inputs as there are");
            let x = next();
            let norm = (N > 2).then(|| NormTensors {
                scale: next(),
                shift: (N > 3).then(&mut next),
                eps,
            });
            let w = next();
            let ([n, _], [_, m]) = (x.shape().dims(), w.shape().dims());
            let mut y = vec![0.0; n * m];
            let right = weight(&w).right(m, matmul).kept();
            forward(
                x.storage(),
                norm.as_ref().map(NormTensors::view),
                &right,
                &mut y,
                From::Zero,
                matmul,
            );
            (tensor(y, [n, m]), Kept { x, norm, w })
        },
        move |Kept { x, norm, w }: &Kept, grad, _| {
            let grad = dense(grad);
            let shape: [usize; 2] = x.shape().dims();
            let mut target = vec![0.0; shape[0] * shape[1]];
            let transposed = weight(w).right_transposed(shape[1], matmul);
            let values = InputGrad {
                values: &mut target,
                from: From::Zero,
            };
            let grads = backward(
                x.storage(),
                norm.as_ref().map(NormTensors::view),
                &transposed,
                grad.storage(),
                values,
                matmul,
            );
            let mut grads = std::iter::once(tensor(target, shape)).chain(grads);
            std::array::from_fn(|_| grads.next())
        },
    )
}
