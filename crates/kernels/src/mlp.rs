//! The feed-forward half of a block: norm, product, activation, product, and the sum with its input, chunk by chunk.
//!
//! What a chunk of rows becomes on its way stays in the second cache. Only what goes into the activation is kept for the gradient,
//! in panels; everything else is computed again, which costs less than fetching it from memory.

use crate::activation::{gelu_pull, gelu_rows, swiglu_pull, swiglu_rows};
use crate::flex::{Input, dense, for_each, record, tensor};
use crate::linear::{CHUNK, NormPartial, NormTensors, Partial, group_rows, packed, packed_transposed, put};
use crate::memory::Buffer;
use crate::product::{From, Matrix, MatrixMut, Panel, padded, product, product_transposed};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// What the gradient needs.
struct Kept {
    x: FlexTensor,
    norm: NormTensors,
    weights: Weights<FlexTensor>,
    /// Rows of `norm(x) up`, then of `norm(x) gate`; for each chunk of rows in panels.
    inner: Vec<Buffer>,
}

/// One thing for each weight.
struct Weights<T> {
    up: T,
    gate: Option<T>,
    down: T,
}

impl<T> Weights<T> {
    fn map<U>(&self, f: impl Fn(&T) -> U) -> Weights<U> {
        Weights { up: f(&self.up), gate: self.gate.as_ref().map(&f), down: f(&self.down) }
    }
}

/// `[d, ff]`.
fn sizes(weights: &Weights<FlexTensor>) -> [usize; 2] {
    weights.up.shape().dims()
}

/// A weight in panels.
fn whole(w: &FlexTensor) -> Buffer {
    packed(w, w.shape()[1])
}

/// A weight, transposed, in panels.
fn whole_transposed(w: &FlexTensor) -> Buffer {
    packed_transposed(w, w.shape()[0])
}

fn forward(x: FlexTensor, norm: NormTensors, weights: Weights<FlexTensor>, tracked: bool) -> (FlexTensor, Kept) {
    let [d, ff] = sizes(&weights);
    let shape: [usize; 2] = x.shape().dims();
    let panels = weights.map(whole);
    let view = norm.view();
    let mut y = x.storage::<f32>().to_vec();
    // Without a gradient to come nothing is kept, and what goes into the activation stays in the second cache too.
    let kept = if tracked { shape[0] * padded(ff) } else { 0 };
    let mut inner: Vec<Buffer> = (0..if panels.gate.is_some() { 2 } else { 1 }).map(|_| Buffer::new(kept)).collect();
    {
        let mut parts = inner.iter_mut().map(|buffer| buffer.chunks_mut((CHUNK * padded(ff)).max(1)));
        let (mut up, mut gate) = (parts.next().expect("there is always one"), parts.next());
        let chunks = x.storage::<f32>().chunks(CHUNK * d).zip(y.chunks_mut(CHUNK * d));
        let tasks: Vec<_> = chunks.map(|chunk| (chunk, [up.next(), gate.as_mut().and_then(Iterator::next)])).collect();
        for_each(tasks, shape[0] * d * ff / 16, |((x, y), [up, gate])| {
            let rows = x.len() / d;
            let size = rows * padded(ff);
            let (mut normed, mut active) = (Buffer::new(x.len()), Buffer::new(size));
            let [mut up_scratch, mut gate_scratch] =
                [up.is_none(), gate.is_none() && panels.gate.is_some()].map(|needed| Buffer::new(if needed { size } else { 0 }));
            let (up, gate) = (up.unwrap_or(&mut up_scratch), gate.unwrap_or(&mut gate_scratch));
            view.rows(x, &mut normed, &mut [[0.0; 2]; CHUNK][..rows]);
            let normed = Matrix::rows(&normed, rows, d, d);
            // Panel by panel, so that what is activated is still in the first cache.
            for panel in Panel::of(ff) {
                let (range, weights) = (panel.range(rows), panel.range(d));
                let fill = |weight: &[f32], target: &mut [f32]| {
                    let weight = Matrix::panels(&weight[weights.clone()], d, panel.count);
                    product(normed, weight, MatrixMut::panels(target, rows, panel.count), From::Zero);
                };
                let (up, active) = (&mut up[range.clone()], &mut active[range.clone()]);
                fill(&panels.up, up);
                match &panels.gate {
                    Some(weight) => {
                        let gate = &mut gate[range];
                        fill(weight, gate);
                        swiglu_rows(gate, up, active);
                    }
                    None => gelu_rows(up, active),
                }
            }
            let y = MatrixMut::rows(y, rows, d, d);
            product(Matrix::panels(&active, rows, ff), Matrix::panels(&panels.down, ff, d), y, From::Target);
        });
    }
    (tensor(y, shape), Kept { x, norm, weights, inner })
}

/// Gradients of x, scale, shift, up, gate and down, of which shift and gate may not exist.
fn backward(kept: &Kept, grad: FlexTensor) -> Vec<FlexTensor> {
    let [d, ff] = sizes(&kept.weights);
    let shape: [usize; 2] = kept.x.shape().dims();
    let norm = kept.norm.view();
    let transposed = kept.weights.map(whole_transposed);
    let rows = group_rows(shape[0]);
    let groups = shape[0].div_ceil(rows.max(1));
    let mut grad = dense(grad);
    let mut sums = Weights {
        up: Partial::new(groups, [d, ff]),
        gate: kept.weights.gate.as_ref().map(|_| Partial::new(groups, [d, ff])),
        down: Partial::new(groups, [ff, d]),
    };
    let mut norm_sums = NormPartial::new(groups, Some(norm));
    {
        let inner = |which: usize| kept.inner.get(which).map(|inner| inner.chunks((rows * padded(ff)).max(1)));
        let mut gate = inner(1);
        let mut gate_sums = sums.gate.as_mut().map(Partial::groups);
        let inputs = kept.x.storage::<f32>().chunks(rows * d).zip(inner(0).expect("there is always one"));
        let outputs = grad.storage_mut::<f32>().chunks_mut(rows * d).zip(sums.up.groups()).zip(sums.down.groups()).zip(norm_sums.groups());
        let task = |((x, up), (((grad, up_sum), down_sum), norm_sum))| {
            let gate = gate.as_mut().and_then(Iterator::next).zip(gate_sums.as_mut().and_then(Iterator::next));
            let (gate, gate_sum) = gate.unzip();
            Group { x, up, gate, grad, sums: Weights { up: up_sum, gate: gate_sum, down: down_sum }, norm_sum }
        };
        let tasks = inputs.zip(outputs).map(task).collect();
        for_each(tasks, shape[0] * d * ff / 8, |group: Group<'_>| group.run(norm, &transposed, [d, ff]));
    }
    let mut grads = vec![grad];
    grads.extend(norm_sums.total());
    grads.push(sums.up.total());
    grads.extend(sums.gate.map(Partial::total));
    grads.push(sums.down.total());
    grads
}

/// The rows that share one partial sum of every weight.
struct Group<'a> {
    x: &'a [f32],
    up: &'a [f32],
    gate: Option<&'a [f32]>,
    /// The gradient of the output, to be turned into that of `x`.
    grad: &'a mut [f32],
    sums: Weights<&'a mut [f32]>,
    norm_sum: &'a mut [f32],
}

impl Group<'_> {
    fn run(mut self, norm: crate::norm::Norm<'_>, transposed: &Weights<Buffer>, [d, ff]: [usize; 2]) {
        let wide = padded(ff);
        let [mut normed, mut pulled] = [(); 2].map(|()| Buffer::new(CHUNK * d));
        let mut slope = Buffer::new(CHUNK * wide);
        let mut active = Buffer::new(Panel::of(ff).next().map_or(0, |panel| panel.range(CHUNK).len()));
        let mut gate_slope = self.gate.map(|_| Buffer::new(CHUNK * wide));
        let mut grad_panels = Buffer::new(CHUNK * padded(d));
        let mut gates = self.gate.map(|gate| gate.chunks(CHUNK * wide));
        let mut first = From::Zero;
        for ((x, up), grad) in self.x.chunks(CHUNK * d).zip(self.up.chunks(CHUNK * wide)).zip(self.grad.chunks_mut(CHUNK * d)) {
            let rows = x.len() / d;
            let (normed, pulled) = (&mut normed[..x.len()], &mut pulled[..x.len()]);
            let slope = &mut slope[..up.len()];
            let mut stats = [[0.0; 2]; CHUNK];
            norm.rows(x, normed, &mut stats[..rows]);
            let normed = Matrix::rows(normed, rows, d, d);
            let grad_rows = Matrix::rows(grad, rows, d, d);
            let grad_panels = &mut grad_panels[..rows * padded(d)];
            grad_rows.pack(grad_panels, d);
            let mut gate = gates.as_mut().and_then(Iterator::next).zip(gate_slope.as_mut()).map(|(gate, slope)| {
                let slope = &mut slope[..gate.len()];
                (gate, slope)
            });
            // Panel by panel, so that what comes out of one step is still in the first cache for the next.
            for panel in Panel::of(ff) {
                let (range, weights) = (panel.range(rows), panel.range(d));
                let (up, active, slope) = (&up[range.clone()], &mut active[..range.len()], &mut slope[range.clone()]);
                let weight = Matrix::panels(&transposed.down[weights.clone()], d, panel.count);
                product(grad_rows, weight, MatrixMut::panels(slope, rows, panel.count), From::Zero);
                let sum = |slope: &[f32], sum: &mut [f32]| {
                    let sum = MatrixMut::panels(&mut sum[weights.clone()], d, panel.count);
                    product_transposed(normed, Matrix::panels(slope, rows, panel.count), sum, first);
                };
                match &mut gate {
                    None => gelu_pull(up, active, slope),
                    Some((gate, gate_slope)) => {
                        let (gate, gate_slope) = (&gate[range.clone()], &mut gate_slope[range.clone()]);
                        swiglu_rows(gate, up, active);
                        swiglu_pull(gate, up, slope, gate_slope);
                        sum(gate_slope, self.sums.gate.as_mut().expect("a gate takes a gradient"));
                    }
                }
                sum(slope, self.sums.up);
                let down = MatrixMut::panels(self.sums.down, ff, d).part(panel.columns());
                product_transposed(Matrix::panels(active, rows, panel.count), Matrix::panels(grad_panels, rows, d), down, first);
            }
            let parts = [(Some(&*slope), Some(&transposed.up)), (gate.as_ref().map(|(_, slope)| &**slope), transposed.gate.as_ref())];
            let mut from = From::Zero;
            for (slope, weight) in parts.into_iter().filter_map(|(slope, weight)| slope.zip(weight)) {
                let slope = Matrix::panels(slope, rows, ff);
                product(slope, Matrix::panels(weight, ff, d), MatrixMut::rows(pulled, rows, d, d), from);
                from = From::Target;
            }
            norm.pull(x, &stats[..rows], pulled, self.norm_sum);
            put(grad, pulled, From::Target);
            first = From::Target;
        }
    }
}

/// `x + down(activation(up(norm(x))))` of the inputs x, scale, shift, up, gate and down, of which shift and gate may not exist.
pub(crate) fn mlp<const N: usize>(inputs: [Input; N], eps: f64, shift: bool, gate: bool) -> Input {
    record(
        inputs,
        |inputs, tracked| {
            let mut inputs = inputs.map(dense).into_iter();
            let mut next = || inputs.next().expect("as many inputs as there are");
            let x = next();
            let norm = NormTensors { scale: next(), shift: shift.then(&mut next), eps };
            let weights = Weights { up: next(), gate: gate.then(&mut next), down: next() };
            forward(x, norm, weights, tracked)
        },
        |kept: &Kept, grad, _| {
            let mut grads = backward(kept, grad).into_iter();
            std::array::from_fn(|_| grads.next())
        },
    )
}
