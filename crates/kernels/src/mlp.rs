//! The feed-forward half of a block: norm, product, activation, product, and the sum with its
//! input, chunk by chunk.
//!
//! What a chunk of rows becomes on its way stays in the second cache. What goes into the activation
//! is kept for the gradient, in panels, unless products go through parts; everything else is
//! computed again, which costs less than fetching it from memory.

use crate::Matmul;
use crate::activation::{gelu_pull, gelu_rows, swiglu_pull, swiglu_rows};
use crate::flex::{Input, copied, dense, for_each, map, record, tensor};
use crate::linear::{CHUNK, NormPartial, NormTensors, Partial, group_rows, put, weight};
use crate::memory::Buffer;
use crate::product::{From, Left, Matrix, MatrixMut, Panel, Right, multiply, padded};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// What the gradient needs.
struct Kept {
    x: FlexTensor,
    norm: NormTensors,
    weights: Weights<FlexTensor>,
    /// Rows of `norm(x) up`, then of `norm(x) gate`; for each chunk of rows in panels. Empty where
    /// they are computed again.
    inner: Vec<Buffer>,
    matmul: Matmul,
}

/// One thing for each weight.
struct Weights<T> {
    up: T,
    gate: Option<T>,
    down: T,
}

/// Whether what goes into the activation is kept for the gradient: memory gives it back sooner than
/// multiply-adds would, but not sooner than products of parts.
fn keeps(matmul: Matmul) -> bool {
    matmul == Matmul::F32
}

/// `[d, ff]`.
fn sizes(weights: &Weights<FlexTensor>) -> [usize; 2] {
    weights.up.shape().dims()
}

/// What a product takes from a weight for each panel of what is activated.
#[derive(Clone, Copy)]
enum Share {
    /// Columns of `up` and `gate`.
    Columns,
    ColumnsTransposed,
    /// Rows of `down`.
    Rows,
    RowsTransposed,
}

/// These weights panel by panel, all of them side by side; nothing for those that do not exist.
fn by_panel<'a, const N: usize>(
    weights: [Option<(&'a FlexTensor, Share)>; N],
    [d, ff]: [usize; 2],
    matmul: Matmul,
) -> [Vec<Right<'a>>; N] {
    let tasks = |(w, share)| Panel::of(ff, matmul).map(move |panel| (w, share, panel));
    let made = map(
        weights.into_iter().flatten().flat_map(tasks).collect(),
        N * d * ff,
        |(w, share, panel): (&'a FlexTensor, Share, Panel)| {
            let (matrix, columns) = (weight(w), panel.columns());
            match share {
                Share::Columns => matrix.side(columns).right(panel.count, matmul).kept(),
                Share::ColumnsTransposed => matrix.side(columns).right_transposed(d, matmul),
                Share::Rows => matrix.part(columns).right(d, matmul).kept(),
                Share::RowsTransposed => matrix.part(columns).right_transposed(panel.count, matmul),
            }
        },
    );
    let (mut made, panels) = (made.into_iter(), Panel::of(ff, matmul).count());
    weights.map(|weight| {
        made.by_ref()
            .take(if weight.is_some() { panels } else { 0 })
            .collect()
    })
}

/// Numbers in the widest panel.
fn widest(rows: usize, cols: usize, matmul: Matmul) -> usize {
    Panel::of(cols, matmul)
        .next()
        .map_or(0, |panel| panel.range(rows).len())
}

fn forward(
    x: FlexTensor,
    norm: NormTensors,
    weights: Weights<FlexTensor>,
    tracked: bool,
    matmul: Matmul,
) -> (FlexTensor, Kept) {
    let [d, ff] = sizes(&weights);
    let shape: [usize; 2] = x.shape().dims();
    let gate = weights.gate.as_ref().map(|gate| (gate, Share::Columns));
    let shares = [
        Some((&weights.up, Share::Columns)),
        gate,
        Some((&weights.down, Share::Rows)),
    ];
    let [up_panels, gate_panels, down_panels] = by_panel(shares, [d, ff], matmul);
    let gated = gate.is_some();
    let view = norm.view();
    let mut y = copied(x.storage());
    // What is not kept stays in the second cache too.
    let kept = if tracked && keeps(matmul) {
        shape[0] * padded(ff)
    } else {
        0
    };
    let mut inner: Vec<Buffer> = (0..if gated { 2 } else { 1 })
        .map(|_| Buffer::new(kept))
        .collect();
    {
        let mut parts = inner
            .iter_mut()
            .map(|buffer| buffer.chunks_mut((CHUNK * padded(ff)).max(1)));
        let (mut up, mut gate) = (parts.next().expect("there is always one"), parts.next());
        let chunks = x
            .storage::<f32>()
            .chunks(CHUNK * d)
            .zip(y.chunks_mut(CHUNK * d));
        let tasks: Vec<_> = chunks
            .map(|chunk| (chunk, [up.next(), gate.as_mut().and_then(Iterator::next)]))
            .collect();
        for_each(tasks, shape[0] * d * ff / 16, |((x, y), [up, gate])| {
            let rows = x.len() / d;
            let (mut normed, mut active) =
                (Buffer::new(x.len()), Buffer::new(widest(rows, ff, matmul)));
            // What is not kept needs place for one panel.
            let [mut up_scratch, mut gate_scratch] = [up.is_none(), gate.is_none() && gated]
                .map(|needed| Buffer::new(if needed { widest(rows, ff, matmul) } else { 0 }));
            let (mut up, mut gate) = (up, gate);
            view.rows(x, &mut normed, &mut [[0.0; 2]; CHUNK][..rows]);
            let normed = Matrix::rows(&normed, rows, d, d).left(matmul).kept();
            // Panel by panel, so that what is activated is still in the first cache.
            for (i, panel) in Panel::of(ff, matmul).enumerate() {
                let range = panel.range(rows);
                let fill = |weight: &Right<'_>, target: &mut [f32]| {
                    multiply(
                        &normed,
                        weight,
                        MatrixMut::panels(target, rows, panel.count),
                        From::Zero,
                    );
                };
                let (scratch, active) = (0..range.len(), &mut active[..range.len()]);
                let up = match &mut up {
                    Some(up) => &mut up[range.clone()],
                    None => &mut up_scratch[scratch.clone()],
                };
                fill(&up_panels[i], up);
                match gate_panels.get(i) {
                    Some(weight) => {
                        let gate = match &mut gate {
                            Some(gate) => &mut gate[range],
                            None => &mut gate_scratch[scratch],
                        };
                        fill(weight, gate);
                        swiglu_rows(gate, up, active);
                    }
                    None => gelu_rows(up, active),
                }
                let active = Matrix::panels(active, rows, panel.count).left(matmul);
                multiply(
                    &active,
                    &down_panels[i],
                    MatrixMut::rows(y, rows, d, d),
                    From::Target,
                );
            }
        });
    }
    (
        tensor(y, shape),
        Kept {
            x,
            norm,
            weights,
            inner,
            matmul,
        },
    )
}

/// Gradients of x, scale, shift, up, gate and down, of which shift and gate may not exist.
fn backward(kept: &Kept, grad: FlexTensor) -> Vec<FlexTensor> {
    let [d, ff] = sizes(&kept.weights);
    let shape: [usize; 2] = kept.x.shape().dims();
    let norm = kept.norm.view();
    let matmul = kept.matmul;
    let (up, gate) = (Some(&kept.weights.up), kept.weights.gate.as_ref());
    let share = |w: Option<_>, share| w.map(|w| (w, share));
    let again = [up, gate].map(|w| share(w.filter(|_| !keeps(matmul)), Share::Columns));
    let transposed = [up, gate].map(|w| share(w, Share::ColumnsTransposed));
    let shares = [
        again[0],
        again[1],
        transposed[0],
        transposed[1],
        share(Some(&kept.weights.down), Share::RowsTransposed),
    ];
    let [up_again, gate_again, up, gate, down] = by_panel(shares, [d, ff], matmul);
    let weights = BothWays {
        again: [up_again, gate_again],
        up,
        gate,
        down,
    };
    let rows = group_rows(shape[0]);
    let groups = shape[0].div_ceil(rows.max(1));
    let mut grad = dense(grad);
    let mut sums = Weights {
        up: Partial::new(groups, [d, ff]),
        gate: kept
            .weights
            .gate
            .as_ref()
            .map(|_| Partial::new(groups, [d, ff])),
        down: Partial::new(groups, [ff, d]),
    };
    let mut norm_sums = NormPartial::new(groups, Some(norm));
    {
        let inner = |which: usize| {
            kept.inner
                .get(which)
                .map_or(&[][..], |inner| inner)
                .chunks((rows * padded(ff)).max(1))
        };
        let (mut up, mut gate) = (inner(0), inner(1));
        let mut gate_sums = sums.gate.as_mut().map(Partial::groups);
        let inputs = kept.x.storage::<f32>().chunks(rows * d);
        let outputs = grad
            .storage_mut::<f32>()
            .chunks_mut(rows * d)
            .zip(sums.up.groups())
            .zip(sums.down.groups())
            .zip(norm_sums.groups());
        let task = |(x, (((grad, up_sum), down_sum), norm_sum))| {
            let sums = Weights {
                up: up_sum,
                gate: gate_sums.as_mut().and_then(Iterator::next),
                down: down_sum,
            };
            Group {
                x,
                inner: [up.next(), gate.next()],
                grad,
                sums,
                norm_sum,
            }
        };
        let tasks = inputs.zip(outputs).map(task).collect();
        for_each(tasks, shape[0] * d * ff / 8, |group: Group<'_>| {
            group.run(norm, &weights, [d, ff], matmul)
        });
    }
    let mut grads = vec![grad];
    grads.extend(norm_sums.total());
    grads.push(sums.up.total());
    grads.extend(sums.gate.map(Partial::total));
    grads.push(sums.down.total());
    grads
}

/// The weights, transposed, panel by panel.
struct BothWays<'a> {
    /// `up` and `gate` as they are, panel by panel, where what they give was not kept.
    again: [Vec<Right<'a>>; 2],
    up: Vec<Right<'a>>,
    gate: Vec<Right<'a>>,
    down: Vec<Right<'a>>,
}

/// What goes into the activation for one panel, computed again in `scratch`, if there is such a
/// weight.
fn once_more<'b>(
    normed: Option<&Left<'_>>,
    weight: Option<&Right<'_>>,
    scratch: &'b mut [f32],
    [rows, cols]: [usize; 2],
) -> Option<&'b [f32]> {
    let (normed, weight) = normed.zip(weight)?;
    let scratch = &mut scratch[..rows * padded(cols)];
    multiply(
        normed,
        weight,
        MatrixMut::panels(scratch, rows, cols),
        From::Zero,
    );
    Some(scratch)
}

/// The rows that share one partial sum of every weight.
struct Group<'a> {
    x: &'a [f32],
    /// What `up` and `gate` gave, where it was kept.
    inner: [Option<&'a [f32]>; 2],
    /// The gradient of the output, to be turned into that of `x`.
    grad: &'a mut [f32],
    sums: Weights<&'a mut [f32]>,
    norm_sum: &'a mut [f32],
}

impl Group<'_> {
    fn run(
        mut self,
        norm: crate::norm::Norm<'_>,
        weights: &BothWays<'_>,
        [d, ff]: [usize; 2],
        matmul: Matmul,
    ) {
        let wide = padded(ff);
        let [mut normed, mut pulled] = [(); 2].map(|()| Buffer::new(CHUNK * d));
        let [mut active, mut slope] = [(); 2].map(|()| Buffer::new(widest(CHUNK, ff, matmul)));
        let mut gate_slope = Buffer::new(if !weights.gate.is_empty() {
            widest(CHUNK, ff, matmul)
        } else {
            0
        });
        let mut scratch = weights.again.each_ref().map(|again| {
            Buffer::new(if again.is_empty() {
                0
            } else {
                widest(CHUNK, ff, matmul)
            })
        });
        let mut inner = self
            .inner
            .map(|inner| inner.unwrap_or_default().chunks(CHUNK * wide));
        let mut first = From::Zero;
        for (x, grad) in self
            .x
            .chunks(CHUNK * d)
            .zip(self.grad.chunks_mut(CHUNK * d))
        {
            let rows = x.len() / d;
            let (normed, pulled) = (&mut normed[..x.len()], &mut pulled[..x.len()]);
            let mut stats = [[0.0; 2]; CHUNK];
            norm.rows(x, normed, &mut stats[..rows]);
            let normed = Matrix::rows(normed, rows, d, d);
            let again = (!keeps(matmul)).then(|| normed.left(matmul).kept());
            let normed = normed.left_transposed(matmul).kept();
            let (grad_left, grad_right) = {
                let grad = Matrix::rows(grad, rows, d, d);
                (grad.left(matmul).kept(), grad.right(d, matmul).kept())
            };
            let inner = inner.each_mut().map(Iterator::next);
            // Panel by panel, so that what comes out of one step is still in the first cache for
            // the next.
            for (i, panel) in Panel::of(ff, matmul).enumerate() {
                let (range, places) = (panel.range(rows), panel.range(d));
                let (active, slope) = (&mut active[..range.len()], &mut slope[..range.len()]);
                multiply(
                    &grad_left,
                    &weights.down[i],
                    MatrixMut::panels(slope, rows, panel.count),
                    From::Zero,
                );
                let shape = [rows, panel.count];
                let [up_scratch, gate_scratch] = &mut scratch;
                let kept = inner.map(|inner| inner.map(|inner| &inner[range.clone()]));
                let up = kept[0].or_else(|| {
                    once_more(again.as_ref(), weights.again[0].get(i), up_scratch, shape)
                });
                let gate = kept[1].or_else(|| {
                    once_more(again.as_ref(), weights.again[1].get(i), gate_scratch, shape)
                });
                let up = up.expect("there is always one");
                // What a weight receives, and what it passes on.
                let mut pull =
                    |slope: &[f32], sum: &mut [f32], transposed: &Right<'_>, from: From| {
                        let slope = Matrix::panels(slope, rows, panel.count);
                        let sum = MatrixMut::panels(&mut sum[places.clone()], d, panel.count);
                        multiply(&normed, &slope.right(panel.count, matmul), sum, first);
                        multiply(
                            &slope.left(matmul),
                            transposed,
                            MatrixMut::rows(pulled, rows, d, d),
                            from,
                        );
                    };
                let from = if i == 0 { From::Zero } else { From::Target };
                match gate {
                    None => {
                        gelu_pull(up, active, slope);
                        pull(slope, self.sums.up, &weights.up[i], from);
                    }
                    Some(gate) => {
                        let gate_slope = &mut gate_slope[..range.len()];
                        swiglu_rows(gate, up, active);
                        swiglu_pull(gate, up, slope, gate_slope);
                        pull(slope, self.sums.up, &weights.up[i], from);
                        let sum = self.sums.gate.as_mut().expect("a gate takes a gradient");
                        pull(gate_slope, sum, &weights.gate[i], From::Target);
                    }
                }
                let down = MatrixMut::panels(self.sums.down, ff, d).part(panel.columns());
                let active = Matrix::panels(active, rows, panel.count).left_transposed(matmul);
                multiply(&active, &grad_right, down, first);
            }
            norm.pull(x, &stats[..rows], pulled, self.norm_sum);
            put(grad, pulled, From::Target);
            first = From::Target;
        }
    }
}

/// `x + down(activation(up(norm(x))))` of the inputs x, scale, shift, up, gate and down, of which
/// shift and gate may not exist.
pub(crate) fn mlp<const N: usize>(
    inputs: [Input; N],
    eps: f64,
    shift: bool,
    gate: bool,
    matmul: Matmul,
) -> Input {
    record(
        inputs,
        |inputs, tracked| {
            let mut inputs = inputs.map(dense).into_iter();
            let mut next = || inputs.next().expect("as many inputs as there are");
            let x = next();
            let norm = NormTensors {
                scale: next(),
                shift: shift.then(&mut next),
                eps,
            };
            let weights = Weights {
                up: next(),
                gate: gate.then(&mut next),
                down: next(),
            };
            forward(x, norm, weights, tracked, matmul)
        },
        |kept: &Kept, grad, _| {
            let mut grads = backward(kept, grad).into_iter();
            std::array::from_fn(|_| grads.next())
        },
    )
}
