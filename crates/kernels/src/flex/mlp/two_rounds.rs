//! The backward pass of the feed-forward block with more threads than slabs of rows.

use super::panel_grads::{Chunk, PanelGrads, PreparedWeights};
use super::weights::{Saved, Weights, inputs, sizes};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Matrix, Panel, padded};
use crate::flex::norm::Norm;
use crate::flex::partial_sums::{CHUNK, NormPartialSums, PartialSums};
use crate::flex::threads::for_each;
use crate::flex::two_rounds::{Chunks, NormRound, SecondRound, add};
use burn::backend::TensorMetadata;

/// What the first round leaves to the second.
struct Kept {
    normed: Buffer,
    /// Mean and factor of every row.
    stats: Vec<[f32; 2]>,
    /// The output of the activation and the gradients of its inputs, each chunk of rows packed.
    active: Buffer,
    grad_up: Buffer,
    grad_gate: Buffer,
}

impl Kept {
    fn new(n: usize, [inputs, ff]: [usize; 2], gate: bool) -> Self {
        let wide = |needed: bool| Buffer::new(if needed { n * padded(ff) } else { 0 });
        Self {
            normed: Buffer::new(n * inputs),
            stats: vec![[0.0; 2]; n],
            active: wide(true),
            grad_up: wide(true),
            grad_gate: wide(gate),
        }
    }
}

/// `grad`, that of the output, becomes that of x; those of the parameters go to the sums of slabs
/// of `slab` rows.
pub(super) fn backward_in_two_rounds(
    saved: &Saved,
    grad: &mut [f32],
    weights: &PreparedWeights<'_>,
    slab: usize,
    (sums, norm_sums): (&mut Weights<PartialSums>, &mut NormPartialSums),
) {
    let ([d, ff], inputs) = (sizes(&saved.weights), inputs(&saved.weights));
    let [n, _]: [usize; 2] = saved.x.shape().dims();
    let chunks = Chunks::of(n, slab, CHUNK);
    let mut kept = Kept::new(n, [inputs, ff], sums.gate.is_some());
    let mut grad_normed = Buffer::new(n * d);
    let tasks = first_round(saved, grad, &chunks, &mut kept, &mut grad_normed);
    for_each(tasks, n * d * ff / 16, |rows: Rows<'_>| {
        rows.run(saved.norm.view(), weights, [d, ff]);
    });

    let rows_of = |chunk: usize| chunks.rows[chunk].len();
    let normed = chunks.transposed(|chunk| chunks.row_major(&kept.normed, chunk, inputs));
    let active = chunks.transposed(|chunk| {
        Matrix::packed(chunks.packed(&kept.active, chunk, ff), rows_of(chunk), ff)
    });
    let mut second = SecondRound::new(&chunks);
    // grad down = activation^T grad.
    second.weight(&mut sums.down, &active, |chunk, panel| {
        let grad = chunks.row_major(grad, chunk, d);
        grad.column_range(panel.columns()).as_rhs(panel.count)
    });
    // grad up = norm(x)^T grad, and of the gate.
    let columns = |values, chunk, panel: &Panel| {
        let values = &chunks.packed(values, chunk, ff)[panel.range(rows_of(chunk))];
        Matrix::packed(values, rows_of(chunk), panel.count).as_rhs(panel.count)
    };
    second.weight(&mut sums.up, &normed, |chunk, panel| {
        columns(&kept.grad_up, chunk, panel)
    });
    if let Some(gate) = &mut sums.gate {
        second.weight(gate, &normed, |chunk, panel| {
            columns(&kept.grad_gate, chunk, panel)
        });
    }
    let round = NormRound {
        norm: saved.norm.view(),
        x: saved.x.storage(),
        stats: &kept.stats,
    };
    second.norm(round, &mut grad_normed, norm_sums);
    second.run(n * d * ff / 8);
    // The residual sum: `grad` also reaches x directly.
    add(grad, &grad_normed);
}

/// The first round of a chunk of rows.
struct Rows<'a> {
    x: &'a [f32],
    grad: &'a [f32],
    inner: [Option<&'a [f32]>; 2],
    normed: &'a mut [f32],
    stats: &'a mut [[f32; 2]],
    grad_normed: &'a mut [f32],
    grads: PanelGrads<'a>,
}

fn first_round<'a>(
    saved: &'a Saved,
    grad: &'a [f32],
    chunks: &Chunks,
    kept: &'a mut Kept,
    grad_normed: &'a mut [f32],
) -> Vec<Rows<'a>> {
    let [d, ff] = sizes(&saved.weights);
    let rows = chunks
        .split(&mut kept.normed, inputs(&saved.weights))
        .into_iter();
    let rows = rows.zip(chunks.split(grad_normed, d));
    let rows = rows.zip(kept.stats.chunks_mut(CHUNK));
    let given = saved.x.storage::<f32>().chunks(CHUNK * d);
    let given = given
        .zip(grad.chunks(CHUNK * d))
        .zip(saved.inner(CHUNK, ff));
    let [mut active, mut up, mut gate] = [&mut kept.active, &mut kept.grad_up, &mut kept.grad_gate]
        .map(|values| values.chunks_mut((CHUNK * padded(ff)).max(1)));
    let task = |(((x, grad), inner), ((normed, grad_normed), stats))| Rows {
        x,
        grad,
        inner,
        normed,
        stats,
        grad_normed,
        grads: PanelGrads {
            active: active.next().unwrap_or_default(),
            up: up.next().unwrap_or_default(),
            gate: gate.next().unwrap_or_default(),
        },
    };
    given.zip(rows).map(task).collect()
}

impl Rows<'_> {
    fn run(self, norm: Norm<'_>, weights: &PreparedWeights<'_>, [d, ff]: [usize; 2]) {
        let rows = self.x.len() / d;
        norm.forward(self.x, self.normed, self.stats);
        let grad = Matrix::row_major(self.grad, rows, d, d);
        let chunk = Chunk::new(grad, self.inner);
        let all = self.grads;
        for (i, panel) in Panel::steps(ff).enumerate() {
            let range = panel.range(rows);
            let mut grads = PanelGrads {
                active: &mut all.active[range.clone()],
                up: &mut all.up[range.clone()],
                gate: all.gate.get_mut(range).unwrap_or_default(),
            };
            let at = (i, &panel);
            chunk.panel(at, weights, &mut grads, self.grad_normed);
        }
    }
}
