//! The attention half of a block in one operation: norm, projection, attention, projection, and the sum with its input.
//!
//! Queries, keys and values are turned as soon as they are projected, and lie tile by tile, head by head; so do their gradients.
//! Both live in memory that is used again from layer to layer and from step to step.

use crate::Matmul;
use crate::attention::{Bias, Call, attend, pull, sinks};
use crate::flex::{Input, copied, dense, for_each, record, tensor};
use crate::heads::{Heads, InPlace, Rotation, TILE, Turn, View};
use crate::linear::{NormPartial, NormTensors, Partial, group_rows, put, weight};
use crate::memory::Buffer;
use crate::norm::Norm;
use crate::product::{From, Matrix, MatrixMut, Right, multiply, padded};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// All there is to know beside the tensors.
pub(crate) struct Settings {
    /// `[B, H, L, E]`.
    pub(crate) shape: [usize; 4],
    pub(crate) eps: f64,
    pub(crate) shift: bool,
    /// Whether there is a bias, and if so, whether it is one by distance.
    pub(crate) bias: Option<bool>,
    pub(crate) rotation: Option<Rotation>,
    pub(crate) scale: f64,
    pub(crate) matmul: Matmul,
}

/// What the gradient needs.
struct Kept {
    settings: Settings,
    x: FlexTensor,
    norm: NormTensors,
    qkv: FlexTensor,
    output: FlexTensor,
    bias: Option<Bias>,
    /// Queries, keys and values.
    projected: Buffer,
    /// What attention gives.
    attended: Buffer,
    log_sum: Buffer,
}

impl Settings {
    /// How queries, keys and values lie.
    fn three(&self) -> Heads {
        Heads { shape: self.shape, parts: 3 }
    }

    /// How the output of attention lies.
    fn one(&self) -> Heads {
        self.three().alone()
    }

    fn call<'a>(&'a self, projected: &'a [f32], bias: Option<&'a Bias>) -> Call<'a> {
        let [q, k, v] = [0, 1, 2].map(|part| View { values: projected, heads: self.three(), part });
        Call { q, k, v, bias, rotation: self.rotation.as_ref(), scale: self.scale as f32, first_query: 0 }
    }

    /// Queries, keys and values of the normalised rows of `x`, the first two turned, the first also times the factor.
    fn project(&self, x: &[f32], norm: Norm<'_>, weight: &Right<'_>, projected: &mut [f32]) {
        let [_, heads, length, head_dim] = self.shape;
        let [d, columns] = weight.shape();
        let work = x.len() * columns / 32;
        for_each(self.three().tiles(projected), work, |(rows, tile)| {
            let (n, first) = (rows.len(), rows.start % length);
            let mut normed = Buffer::new(n * d);
            norm.rows(&x[rows.start * d..rows.end * d], &mut normed, &mut [[0.0; 2]; TILE][..n]);
            let normed = Matrix::rows(&normed, n, d, d).left(self.matmul);
            multiply(&normed, weight, MatrixMut::grouped(tile, n, columns, head_dim), From::Zero);
            let turns = self.rotation.as_ref().map(|rotation| [&rotation.queries, &rotation.keys].map(|by| Turn::new(by, rotation, 1.0)));
            for (index, tile) in tile.chunks_mut(n * padded(head_dim)).enumerate().take(2 * heads) {
                let (part, factor) = if index < heads { (0, self.scale as f32) } else { (1, 1.0) };
                InPlace { tile, head_dim, first, turn: turns.map(|turns| turns[part]), factor }.run();
            }
        });
    }
}

/// `x + attention(norm(x) qkv) output` of the inputs x, scale, shift, qkv, output and bias, of which shift and bias may not exist.
pub(crate) fn attention_half<const N: usize>(inputs: [Input; N], settings: Settings) -> Input {
    record(
        inputs,
        |inputs, tracked| {
            let mut inputs = inputs.map(dense).into_iter();
            let mut next = || inputs.next().expect("as many inputs as there are");
            let x = next();
            let norm = NormTensors { scale: next(), shift: settings.shift.then(&mut next), eps: settings.eps };
            let (qkv, output) = (next(), next());
            let bias = settings.bias.map(|by_distance| if by_distance { Bias::distances(&next()) } else { Bias::cells(&next(), 0) });
            let [batch, heads, length, head_dim] = settings.shape;
            let ([n, d], inner) = (x.shape().dims(), heads * head_dim);
            let mut projected = Buffer::new(settings.three().len());
            let matmul = settings.matmul;
            settings.project(x.storage(), norm.view(), &weight(&qkv).right(head_dim, matmul).kept(), &mut projected);
            let mut attended = Buffer::new(settings.one().len());
            let mut log_sum = Buffer::new(if tracked { batch * heads * length } else { 0 });
            attend(&settings.call(&projected, bias.as_ref()), &mut attended, &mut log_sum);
            let mut y = copied(x.storage());
            let weight = weight(&output).right(d, matmul).kept();
            for_each(settings.one().split(&mut y, d), n * d * inner / 32, |(rows, y)| {
                let y = MatrixMut::rows(y, rows.len(), d, d);
                multiply(&settings.one().rows(&attended, rows).left(matmul), &weight, y, From::Target);
            });
            (tensor(y, [n, d]), Kept { settings, x, norm, qkv, output, bias, projected, attended, log_sum })
        },
        |kept: &Kept, grad, wanted| {
            let Kept { settings, bias, projected, attended, log_sum, .. } = kept;
            let [_, heads, _, head_dim] = settings.shape;
            let [inner, d] = kept.output.shape().dims();
            let mut grad = dense(grad);
            let mut attended_grad = Buffer::new(attended.len());
            {
                let weight = weight(&kept.output).right_transposed(head_dim, settings.matmul);
                let grad = grad.storage::<f32>();
                for_each(settings.one().tiles(&mut attended_grad), grad.len() * inner / 32, |(rows, tile)| {
                    let grad = Matrix::rows(&grad[rows.start * d..], rows.len(), d, d).left(settings.matmul);
                    multiply(&grad, &weight, MatrixMut::grouped(tile, rows.len(), inner, head_dim), From::Zero);
                });
            }
            let mut projected_grad = Buffer::new(projected.len());
            let parts = settings.three().by_head(&mut projected_grad).try_into().expect("queries, keys and values");
            let [output, output_grad] = [attended, &attended_grad].map(|values| View { values, heads: settings.one(), part: 0 });
            let call = settings.call(projected, bias.as_ref());
            let bias_grad = pull(&call, output, output_grad, log_sum, sinks(heads, parts), bias.is_some() && wanted[N - 1]);
            let grads = kept.projections(&projected_grad, grad.storage_mut());
            let grads = std::iter::once(grad).chain(grads).map(Some);
            let mut grads = grads.chain(bias.iter().map(|_| bias_grad.clone()));
            std::array::from_fn(|_| grads.next().flatten())
        },
    )
}

impl Kept {
    /// The gradients of scale, shift, qkv and output from those of what was projected and of the sum, `grad`; that of `x` is added
    /// to the latter.
    fn projections(&self, projected_grad: &[f32], grad: &mut [f32]) -> Vec<FlexTensor> {
        let (settings, norm, x) = (&self.settings, self.norm.view(), self.x.storage::<f32>());
        let (head_dim, matmul) = (settings.shape[3], settings.matmul);
        let [inner, d] = self.output.shape().dims();
        let n = x.len() / d.max(1);
        let rows = group_rows(n);
        let groups = n.div_ceil(rows.max(1));
        let weight = weight(&self.qkv).right_transposed(d, matmul);
        let mut qkv = Partial::grouped(groups, [d, 3 * inner], head_dim);
        let (mut output, mut norm_sums) = (Partial::new(groups, [inner, d]), NormPartial::new(groups, Some(norm)));
        let sums = qkv.groups().zip(output.groups()).zip(norm_sums.groups());
        let tasks = grad.chunks_mut(rows * d).zip(sums).enumerate().collect();
        for_each(tasks, n * d * inner / 4, |(group, (grad, ((qkv, output), norm_sums)))| {
            let [mut normed, mut pulled] = [(); 2].map(|()| Buffer::new(TILE * d));
            let first = group * rows;
            for part in settings.three().cut(first..first + grad.len() / d) {
                let count = part.len();
                let grad = &mut grad[(part.start - first) * d..(part.end - first) * d];
                let from = if part.start == first { From::Zero } else { From::Target };
                let right = Matrix::rows(grad, count, d, d).right(d, matmul);
                let attended = settings.one().rows(&self.attended, part.clone()).left_transposed(matmul);
                multiply(&attended, &right, MatrixMut::panels(output, inner, d), from);
                let (x, normed, pulled) = (&x[part.start * d..part.end * d], &mut normed[..count * d], &mut pulled[..count * d]);
                let mut stats = [[0.0; 2]; TILE];
                norm.rows(x, normed, &mut stats[..count]);
                let projected = settings.three().rows(projected_grad, part);
                let normed = Matrix::rows(normed, count, d, d).left_transposed(matmul);
                multiply(&normed, &projected.right(head_dim, matmul), MatrixMut::grouped(qkv, d, 3 * inner, head_dim), from);
                multiply(&projected.left(matmul), &weight, MatrixMut::rows(pulled, count, d, d), From::Zero);
                norm.pull(x, &stats[..count], pulled, norm_sums);
                put(grad, pulled, From::Target);
            }
        });
        let mut grads = norm_sums.total();
        grads.extend([qkv.total(), output.total()]);
        grads
    }
}
