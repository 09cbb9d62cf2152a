//! The forward pass of the feed-forward block.

use super::weights::{Saved, Share, Weights, by_panel, inputs, sizes, widest};
use crate::flex::activation::{gelu_forward, swiglu_forward};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use crate::flex::norm::Norm;
use crate::flex::partial_sums::{CHUNK, NormTensors};
use crate::flex::residual;
use crate::flex::tensors::tensor;
use crate::flex::threads::for_each;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// The forward pass of a chunk of rows.
struct Chunk<'a> {
    x: &'a [f32],
    /// Holds `x` before, the output after.
    y: &'a mut [f32],
    /// Receive the inputs of the activation, if they are saved.
    up: Option<&'a mut [f32]>,
    gate: Option<&'a mut [f32]>,
}

impl Chunk<'_> {
    /// `panels` are those of up, gate and down.
    /// `inputs`: columns of what up and gate multiply.
    fn forward(
        mut self,
        norm: Norm<'_>,
        panels: &[Vec<Rhs<'_>>; 3],
        [d, ff]: [usize; 2],
        inputs: usize,
    ) {
        let [up_panels, gate_panels, down_panels] = panels;
        let rows = self.x.len() / d;
        let longest = widest(rows, ff);
        let (mut normed, mut active) = (Buffer::new(rows * inputs), Buffer::new(longest));
        // What is not saved needs room for one panel.
        let missing = [
            self.up.is_none(),
            self.gate.is_none() && !gate_panels.is_empty(),
        ];
        let [mut up_scratch, mut gate_scratch] =
            missing.map(|needed| Buffer::new(if needed { longest } else { 0 }));
        norm.forward(self.x, &mut normed, &mut [[0.0; 2]; CHUNK][..rows]);
        let normed = Matrix::row_major(&normed, rows, inputs, inputs).as_lhs();
        // Panel by panel, so that the activation is still in L1 for the second product.
        for (i, panel) in Panel::steps(ff).enumerate() {
            let range = panel.range(rows);
            let project = |weight: &Rhs<'_>, target: &mut [f32]| {
                multiply(
                    &normed,
                    weight,
                    MatrixMut::packed(target, rows, panel.count),
                    Accumulate::Overwrite,
                );
            };
            let (scratch, active) = (0..range.len(), &mut active[..range.len()]);
            let up = match &mut self.up {
                Some(up) => &mut up[range.clone()],
                None => &mut up_scratch[scratch.clone()],
            };
            project(&up_panels[i], up);
            match gate_panels.get(i) {
                Some(weight) => {
                    let gate = match &mut self.gate {
                        Some(gate) => &mut gate[range],
                        None => &mut gate_scratch[scratch],
                    };
                    project(weight, gate);
                    swiglu_forward(gate, up, active);
                }
                None => gelu_forward(up, active),
            }
            let active = Matrix::packed(&*active, rows, panel.count).as_lhs();
            multiply(
                &active,
                &down_panels[i],
                MatrixMut::row_major(self.y, rows, d, d),
                Accumulate::Add,
            );
        }
    }
}

pub(super) fn forward(
    x: FlexTensor,
    norm: NormTensors,
    weights: Weights<FlexTensor>,
    bias: Option<FlexTensor>,
    tracked: bool,
) -> (FlexTensor, Saved) {
    let ([d, ff], inputs) = (sizes(&weights), inputs(&weights));
    let shape: [usize; 2] = x.shape().dims();
    let gate = weights.gate.as_ref().map(|gate| (gate, Share::Columns));
    let shares = [
        Some((&weights.up, Share::Columns)),
        gate,
        Some((&weights.down, Share::Rows)),
    ];
    let panels = by_panel(shares, [d, ff]);
    let mut y = residual::start(&x, bias.as_ref());
    let saved = if tracked { shape[0] * padded(ff) } else { 0 };
    let mut inner: Vec<Buffer> = (0..if gate.is_some() { 2 } else { 1 })
        .map(|_| Buffer::new(saved))
        .collect();
    let mut parts = inner
        .iter_mut()
        .map(|buffer| buffer.chunks_mut((CHUNK * padded(ff)).max(1)));
    let (mut up, mut gate) = (parts.next().expect("there is always one"), parts.next());
    let tasks = x
        .storage::<f32>()
        .chunks(CHUNK * d)
        .zip(y.chunks_mut(CHUNK * d))
        .map(|(x, y)| Chunk {
            x,
            y,
            up: up.next(),
            gate: gate.as_mut().and_then(Iterator::next),
        })
        .collect();
    for_each(tasks, shape[0] * d * ff / 16, |chunk: Chunk<'_>| {
        chunk.forward(norm.view(), &panels, [d, ff], inputs);
    });
    drop(panels);
    let saved = Saved {
        x,
        norm,
        weights,
        inner,
    };
    (tensor(y, shape), saved)
}
