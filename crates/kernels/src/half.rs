//! The attention half of a block in one operation: norm, projection, attention, projection, and the
//! sum with its input.
//!
//! One sequence goes all the way before the next one does, where that keeps all threads busy, so
//! that it stays in the second cache. Queries, keys and values are turned as soon as they are
//! projected, and lie tile by tile, head by head; so do their gradients. Both live in memory that
//! is used again from layer to layer and from step to step.

use crate::Matmul;
use crate::attention::{Bias, Call, attend, pull, sinks};
use crate::flex::{Input, copied, dense, for_each, for_each_large, record, tensor};
use crate::heads::{Heads, InPlace, Rotation, TILE, Turn, View};
use crate::linear::{NormPartial, NormTensors, Partial, group_rows, put, weight};
use crate::memory::Buffer;
use crate::norm::Norm;
use crate::product::{From, Matrix, MatrixMut, Right, multiply, padded};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use std::ops::Range;

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
    /// How queries, keys and values of so many sequences lie.
    fn three(&self, sequences: usize) -> Heads {
        let [_, heads, length, head_dim] = self.shape;
        Heads {
            shape: [sequences, heads, length, head_dim],
            parts: 3,
        }
    }

    /// How the output of attention of so many sequences lies.
    fn one(&self, sequences: usize) -> Heads {
        self.three(sequences).alone()
    }

    /// Attention in some of the sequences.
    fn call<'a>(
        &'a self,
        sequences: Range<usize>,
        projected: &'a [f32],
        bias: Option<&'a Bias>,
    ) -> Call<'a> {
        let heads = self.three(sequences.len());
        let [q, k, v] = [0, 1, 2].map(|part| View {
            values: projected,
            heads,
            part,
        });
        let (first_sequence, rotation, scale) =
            (sequences.start, self.rotation.as_ref(), self.scale as f32);
        Call {
            q,
            k,
            v,
            bias,
            first_sequence,
            rotation,
            scale,
            first_query: 0,
        }
    }

    /// Queries, keys and values of the normalised rows of one sequence, the first two turned, the
    /// first also times the factor.
    fn project(&self, x: &[f32], norm: Norm<'_>, weight: &Right<'_>, projected: &mut [f32]) {
        let [_, heads, _, head_dim] = self.shape;
        let [d, columns] = weight.shape();
        let work = x.len() * columns / 32;
        for_each(self.three(1).tiles(projected), work, |(rows, tile)| {
            let (n, first) = (rows.len(), rows.start);
            let mut normed = Buffer::new(n * d);
            norm.rows(
                &x[rows.start * d..rows.end * d],
                &mut normed,
                &mut [[0.0; 2]; TILE][..n],
            );
            let normed = Matrix::rows(&normed, n, d, d).left(self.matmul);
            multiply(
                &normed,
                weight,
                MatrixMut::grouped(tile, n, columns, head_dim),
                From::Zero,
            );
            let turns = self.rotation.as_ref().map(|rotation| {
                [&rotation.queries, &rotation.keys].map(|by| Turn::new(by, rotation, 1.0))
            });
            for (index, tile) in tile
                .chunks_mut(n * padded(head_dim))
                .enumerate()
                .take(2 * heads)
            {
                let (part, factor) = if index < heads {
                    (0, self.scale as f32)
                } else {
                    (1, 1.0)
                };
                InPlace {
                    tile,
                    head_dim,
                    first,
                    turn: turns.map(|turns| turns[part]),
                    factor,
                }
                .run();
            }
        });
    }
}

/// What a sequence gives on its way through the half: in memory that is kept for the gradient, or,
/// where that is empty, in scratch.
struct Sequence<'a> {
    index: usize,
    x: &'a [f32],
    y: &'a mut [f32],
    projected: &'a mut [f32],
    attended: &'a mut [f32],
    log_sum: &'a mut [f32],
}

impl Sequence<'_> {
    /// Adds what the half gives to `y`.
    fn run(
        self,
        settings: &Settings,
        norm: Norm<'_>,
        [qkv, output]: [&Right<'_>; 2],
        bias: Option<&Bias>,
    ) {
        let [inner, d] = output.shape();
        let (three, one) = (settings.three(1), settings.one(1));
        let kept = !self.projected.is_empty();
        let mut scratch =
            [three.len(), one.len()].map(|len| Buffer::new(if kept { 0 } else { len }));
        let [projected, attended] = &mut scratch;
        let (projected, attended) = if kept {
            (self.projected, self.attended)
        } else {
            (&mut projected[..], &mut attended[..])
        };
        settings.project(self.x, norm, qkv, projected);
        attend(
            &settings.call(self.index..self.index + 1, projected, bias),
            attended,
            self.log_sum,
        );
        for_each(
            one.split(self.y, d),
            self.x.len() * inner / 32,
            |(rows, y)| {
                let y = MatrixMut::rows(y, rows.len(), d, d);
                multiply(
                    &one.rows(attended, rows).left(settings.matmul),
                    output,
                    y,
                    From::Target,
                );
            },
        );
    }
}

/// `x + attention(norm(x) qkv) output` of the inputs x, scale, shift, qkv, output and bias, of
/// which shift and bias may not exist.
pub(crate) fn attention_half<const N: usize>(inputs: [Input; N], settings: Settings) -> Input {
    record(
        inputs,
        |inputs, tracked| {
            let mut inputs = inputs.map(dense).into_iter();
            let mut next = || inputs.next().expect("as many inputs as there are");
            let x = next();
            let norm = NormTensors {
                scale: next(),
                shift: settings.shift.then(&mut next),
                eps: settings.eps,
            };
            let (qkv, output) = (next(), next());
            let bias = settings.bias.map(|by_distance| {
                if by_distance {
                    Bias::distances(&next())
                } else {
                    Bias::cells(&next(), 0)
                }
            });
            let [batch, heads, length, head_dim] = settings.shape;
            let ([n, d], inner, matmul) = (x.shape().dims(), heads * head_dim, settings.matmul);
            let (three, one) = (settings.three(1).len(), settings.one(1).len());
            let [mut projected, mut attended, mut log_sum] = [three, one, heads * length]
                .map(|len| Buffer::new(if tracked { batch * len } else { 0 }));
            let mut y = copied(x.storage());
            {
                let [mut projected, mut attended, mut log_sum] = [
                    (&mut projected, three),
                    (&mut attended, one),
                    (&mut log_sum, heads * length),
                ]
                .map(|(values, len)| values.chunks_mut(len.max(1)));
                let rows = (length * d).max(1);
                let task = |(index, (x, y))| {
                    let [projected, attended, log_sum] =
                        [&mut projected, &mut attended, &mut log_sum]
                            .map(|values| values.next().unwrap_or_default());
                    Sequence {
                        index,
                        x,
                        y,
                        projected,
                        attended,
                        log_sum,
                    }
                };
                let tasks = x
                    .storage::<f32>()
                    .chunks(rows)
                    .zip(y.chunks_mut(rows))
                    .enumerate()
                    .map(task)
                    .collect();
                let weights = [
                    weight(&qkv).right(head_dim, matmul).kept(),
                    weight(&output).right(d, matmul).kept(),
                ];
                for_each_large(tasks, n * d * inner / 8, |sequence: Sequence<'_>| {
                    sequence.run(&settings, norm.view(), weights.each_ref(), bias.as_ref());
                });
            }
            (
                tensor(y, [n, d]),
                Kept {
                    settings,
                    x,
                    norm,
                    qkv,
                    output,
                    bias,
                    projected,
                    attended,
                    log_sum,
                },
            )
        },
        |kept: &Kept, grad, wanted| {
            let mut grad = dense(grad);
            let bias_wanted = kept.bias.is_some() && wanted[N - 1];
            let (grads, bias_grad) = kept.pull(grad.storage_mut(), bias_wanted);
            let grads = std::iter::once(grad).chain(grads).map(Some);
            let mut grads = grads.chain(kept.bias.iter().map(|_| bias_grad.clone()));
            std::array::from_fn(|_| grads.next().flatten())
        },
    )
}

/// The transposed weights.
struct Transposed<'a> {
    qkv: Right<'a>,
    output: Right<'a>,
}

/// What some rows give to the gradients of the parameters.
struct Sums<'a> {
    qkv: &'a mut [f32],
    output: &'a mut [f32],
    norm: &'a mut [f32],
    /// What the first rows start from, then what is there.
    from: From,
}

impl Kept {
    /// The gradients of scale, shift, qkv and output, and, if asked for, of the bias; `grad`, that
    /// of the output, becomes that of `x`.
    fn pull(&self, grad: &mut [f32], bias_wanted: bool) -> (Vec<FlexTensor>, Option<FlexTensor>) {
        let settings = &self.settings;
        let [batch, _, length, head_dim] = settings.shape;
        let [inner, d] = self.output.shape().dims();
        let transposed = Transposed {
            qkv: weight(&self.qkv).right_transposed(d, settings.matmul),
            output: weight(&self.output).right_transposed(head_dim, settings.matmul),
        };
        let n = grad.len() / d.max(1);
        let rows = group_rows(n);
        let groups = n.div_ceil(rows.max(1));
        let mut qkv = Partial::grouped(groups, [d, 3 * inner], head_dim);
        let (mut output, mut norm) = (
            Partial::new(groups, [inner, d]),
            NormPartial::new(groups, Some(self.norm.view())),
        );
        let sums = qkv.groups().zip(output.groups()).zip(norm.groups());
        let sums = sums.map(|((qkv, output), norm)| Sums {
            qkv,
            output,
            norm,
            from: From::Zero,
        });
        let whole =
            rows.is_multiple_of(length) && groups >= rayon::current_num_threads() && !bias_wanted;
        // What one step gives to the next: for one sequence after the other, so that it stays in
        // the second cache, or for all.
        let scratch = |sequences: usize| {
            [settings.one(sequences), settings.three(sequences)]
                .map(|heads| Buffer::new(heads.len()))
        };
        let (mut shared, mut bias_grad) = (None, None);
        if !whole {
            let mut scratch = scratch(batch);
            bias_grad = self.pull_attention(0..batch, grad, &transposed, &mut scratch, bias_wanted);
            shared = Some(scratch);
        }
        let tasks = grad
            .chunks_mut((rows * d).max(1))
            .zip(sums)
            .enumerate()
            .collect();
        for_each(tasks, n * d * inner / 4, |(group, (grad, mut sums))| {
            let first = group * rows;
            if let Some([_, projected_grad]) = &shared {
                return self.pull_projections(
                    first,
                    grad,
                    projected_grad,
                    0..batch,
                    &transposed,
                    &mut sums,
                );
            }
            let mut scratch = scratch(1);
            for (index, grad) in grad.chunks_mut(length * d).enumerate() {
                let sequence = first / length + index;
                let sequences = sequence..sequence + 1;
                self.pull_attention(sequences.clone(), grad, &transposed, &mut scratch, false);
                self.pull_projections(
                    sequence * length,
                    grad,
                    &scratch[1],
                    sequences,
                    &transposed,
                    &mut sums,
                );
            }
        });
        let mut grads = norm.total();
        grads.extend([qkv.total(), output.total()]);
        (grads, bias_grad)
    }

    /// From the gradient of the output of some sequences those of what attention gave and of what
    /// was projected, into the two buffers, and, if asked for, that of the bias.
    fn pull_attention(
        &self,
        sequences: Range<usize>,
        grad: &[f32],
        transposed: &Transposed<'_>,
        [attended_grad, projected_grad]: &mut [Buffer; 2],
        bias_wanted: bool,
    ) -> Option<FlexTensor> {
        let settings = &self.settings;
        let [_, heads, length, head_dim] = settings.shape;
        let [inner, d] = self.output.shape().dims();
        let (three, one) = (
            settings.three(sequences.len()),
            settings.one(sequences.len()),
        );
        for_each(
            one.tiles(attended_grad),
            grad.len() * inner / 32,
            |(rows, tile)| {
                let grad =
                    Matrix::rows(&grad[rows.start * d..], rows.len(), d, d).left(settings.matmul);
                multiply(
                    &grad,
                    &transposed.output,
                    MatrixMut::grouped(tile, rows.len(), inner, head_dim),
                    From::Zero,
                );
            },
        );
        let of = |each: usize| sequences.start * each..sequences.end * each;
        let projected = &self.projected[of(settings.three(1).len())];
        let (attended, log_sum) = (
            &self.attended[of(settings.one(1).len())],
            &self.log_sum[of(heads * length)],
        );
        let parts = three
            .by_head(projected_grad)
            .try_into()
            .expect("queries, keys and values");
        let [output, output_grad] = [attended, attended_grad].map(|values| View {
            values,
            heads: one,
            part: 0,
        });
        let call = settings.call(sequences.clone(), projected, self.bias.as_ref());
        pull(
            &call,
            output,
            output_grad,
            log_sum,
            sinks(heads, parts),
            bias_wanted,
        )
    }

    /// From the gradients of what was projected of some sequences, and of the output of rows from
    /// `first` on, `grad`, what the parameters receive; `grad` becomes that of `x`.
    fn pull_projections(
        &self,
        first: usize,
        grad: &mut [f32],
        projected_grad: &[f32],
        sequences: Range<usize>,
        transposed: &Transposed<'_>,
        sums: &mut Sums<'_>,
    ) {
        let (settings, norm, x) = (&self.settings, self.norm.view(), self.x.storage::<f32>());
        let ([batch, _, length, head_dim], matmul) = (settings.shape, settings.matmul);
        let [inner, d] = self.output.shape().dims();
        let [mut normed, mut pulled] = [(); 2].map(|()| Buffer::new(TILE * d));
        for part in settings.one(batch).cut(first..first + grad.len() / d) {
            let count = part.len();
            let grad = &mut grad[(part.start - first) * d..(part.end - first) * d];
            let right = Matrix::rows(grad, count, d, d).right(d, matmul);
            let attended = settings
                .one(batch)
                .rows(&self.attended, part.clone())
                .left_transposed(matmul);
            multiply(
                &attended,
                &right,
                MatrixMut::panels(sums.output, inner, d),
                sums.from,
            );
            let (x, normed, pulled) = (
                &x[part.start * d..part.end * d],
                &mut normed[..count * d],
                &mut pulled[..count * d],
            );
            let mut stats = [[0.0; 2]; TILE];
            norm.rows(x, normed, &mut stats[..count]);
            let before = sequences.start * length;
            let projected = settings
                .three(sequences.len())
                .rows(projected_grad, part.start - before..part.end - before);
            let normed = Matrix::rows(normed, count, d, d).left_transposed(matmul);
            multiply(
                &normed,
                &projected.right(head_dim, matmul),
                MatrixMut::grouped(sums.qkv, d, 3 * inner, head_dim),
                sums.from,
            );
            multiply(
                &projected.left(matmul),
                &transposed.qkv,
                MatrixMut::rows(pulled, count, d, d),
                From::Zero,
            );
            norm.pull(x, &stats[..count], pulled, sums.norm);
            put(grad, pulled, From::Target);
            sums.from = From::Target;
        }
    }
}
