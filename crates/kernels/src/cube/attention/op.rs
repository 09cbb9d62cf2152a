//! Attention as an operation on Burn's tensors, with its gradient.

use super::launch::{Grads, Inputs, backward, bias_grad, forward};
use super::settings::{BiasKind, BiasShape, CUBE, Common, MOST_SHARED, Settings, UNITS};
use crate::cube::tensors::{PerInput, Primitive, run};
use crate::op::FusedOp;
use burn::tensor::Shape;
use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;

/// The rotation of queries and keys.
#[derive(Clone)]
pub(crate) struct Rotated {
    /// Cos and sin of queries, then of keys, `[4 G, 1, L, R]`, G a divisor of B.
    pub(crate) tables: Primitive,
    /// R.
    pub(crate) pairs: usize,
    /// Whether pair i is `(2i, 2i + 1)`.
    pub(crate) interleaved: bool,
}

/// `softmax(scale q k^T + bias) v`, `[B, H, Q, E]`, of q, k, v and, optionally, a bias; or, if
/// `projected`, of a matrix `[B L, 3 H E]` of queries, keys and values, and a bias.
#[derive(Clone)]
pub(crate) struct Attention {
    pub(crate) projected: bool,
    /// B, H, Q, E.
    pub(crate) shape: [usize; 4],
    /// K.
    pub(crate) keys: usize,
    pub(crate) bias: Option<BiasShape>,
    pub(crate) rotation: Option<Rotated>,
    pub(crate) scale: f64,
    pub(crate) first_query: usize,
    /// Shared memory of the device, in bytes.
    pub(crate) shared_bytes: usize,
}

/// Shared memory of a device in bytes.
pub(crate) fn shared_bytes(device: &CubeDevice) -> usize {
    device.client().properties().hardware.max_shared_memory_size
}

impl Attention {
    /// Whether a device can run the kernels: tiles fit its shared memory, and all counts its
    /// limits.
    pub(crate) fn fits(&self, device: &CubeDevice) -> bool {
        let client = device.client();
        let hardware = &client.properties().hardware;
        let [batch, heads, queries, _] = self.shape;
        // Cubes in one dimension of a launch.
        let most = usize::from(u16::MAX);
        let bias = match self.bias {
            Some(BiasShape::Dense([groups, heads, ..])) => groups * heads,
            Some(BiasShape::ByDistance([groups, heads, _])) => groups * heads,
            Some(BiasShape::Decays([batch, ..])) => batch,
            None => 1,
        };
        let indices = self.first_query.saturating_add(queries + self.keys);
        self.settings().is_some()
            && hardware.max_units_per_cube as usize >= CUBE
            && batch.max(heads).max(bias) <= most
            && queries.max(self.keys).div_ceil(UNITS) <= most
            && indices < i32::MAX as usize
    }

    fn common(&self) -> Common {
        Common {
            shared_bytes: self.shared_bytes.min(MOST_SHARED),
            length: self.shape[2].max(self.keys),
            head_dim: self.shape[3],
            bias: match self.bias {
                None => BiasKind::None,
                Some(BiasShape::Dense(_)) => BiasKind::Dense,
                Some(BiasShape::ByDistance(_)) => BiasKind::ByDistance,
                Some(BiasShape::Decays(_)) => BiasKind::Decays,
            },
            pairs: self.rotation.as_ref().map_or(0, |rotation| rotation.pairs),
            interleaved: self.rotation.as_ref().is_some_and(|r| r.interleaved),
        }
    }

    /// Settings of the forward and of the backward kernels.
    fn settings(&self) -> Option<[Settings; 2]> {
        let common = self.common();
        Some([Settings::forward(common)?, Settings::backward(common)?])
    }

    /// A call without tensors, for kernels that run later.
    fn kernels(&self) -> Kernels {
        let [forward, backward] = self.settings().expect("checked by `fits`");
        Kernels {
            projected: self.projected,
            shape: self.shape,
            bias: self.bias.is_some(),
            rotated: self.rotation.is_some(),
            scale: self.scale as f32,
            first_query: self.first_query,
            forward,
            backward,
        }
    }

    /// The tensors that every kernel reads.
    fn inputs(&self, inputs: &PerInput<4>) -> Vec<Primitive> {
        let tables = self.rotation.as_ref().map(|r| r.tables.clone());
        inputs.iter().flatten().cloned().chain(tables).collect()
    }
}

/// [`Attention`] as far as kernels know it.
#[derive(Clone, Copy)]
struct Kernels {
    projected: bool,
    shape: [usize; 4],
    bias: bool,
    rotated: bool,
    scale: f32,
    first_query: usize,
    forward: Settings,
    backward: Settings,
}

impl Kernels {
    fn unpack(&self, tensors: &mut impl Iterator<Item = CubeTensor>) -> Inputs {
        let mut next = || tensors.next().expect("an input");
        let inputs = if self.projected {
            Inputs::projected(next(), self.shape)
        } else {
            Inputs::new([next(), next(), next()])
        };
        let bias = self.bias.then(&mut next);
        let tables = self.rotated.then(&mut next);
        inputs.with(bias, tables, self.scale, self.first_query)
    }
}

/// What the backward pass needs: the inputs, the output, and two numbers for each row.
pub(crate) struct Saved {
    inputs: PerInput<4>,
    output: Primitive,
    stats: Primitive,
}

impl FusedOp<4> for Attention {
    type Backend = burn::backend::Cube;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<4>, _: bool) -> (Primitive, Saved) {
        let [batch, heads, queries, _] = self.shape;
        let kernels = self.kernels();
        let shapes = vec![
            Shape::new(self.shape),
            Shape::new([batch, heads, queries, 2]),
        ];
        let outputs = run(self.inputs(&inputs), shapes, move |tensors| {
            let inputs = kernels.unpack(&mut tensors.into_iter());
            forward(&inputs, kernels.forward).into()
        });
        let [output, stats] = outputs.try_into().expect("two outputs");
        let saved = Saved {
            inputs,
            output: output.clone(),
            stats,
        };
        (output, saved)
    }

    fn backward(&self, saved: &Saved, grad: Primitive, wanted: [bool; 4]) -> PerInput<4> {
        let kernels = self.kernels();
        let [q, k, v, bias] = wanted;
        let bias = self.bias.filter(|_| bias);
        let [batch, heads, queries, head_dim] = self.shape;
        let mut shapes = Vec::new();
        let sources = q || k || v;
        if sources && self.projected {
            shapes.push(Shape::new([batch * queries, 3 * heads * head_dim]));
        } else if sources {
            let keys = [batch, heads, self.keys, head_dim];
            shapes.extend([self.shape, keys, keys].map(Shape::new));
        }
        shapes.extend(bias.map(|bias| match bias {
            BiasShape::Dense(shape) => Shape::new(shape),
            BiasShape::ByDistance(shape) | BiasShape::Decays(shape) => Shape::new(shape),
        }));
        let mut inputs = self.inputs(&saved.inputs);
        inputs.extend([saved.output.clone(), saved.stats.clone(), grad]);
        let grads = run(inputs, shapes, move |tensors| {
            let mut tensors = tensors.into_iter();
            let inputs = kernels.unpack(&mut tensors);
            let [output, stats, grad] = [(); 3].map(|()| tensors.next().expect("an input"));
            let rows = Grads::new(&inputs, output, stats, grad);
            if let Some(BiasShape::Decays(shape)) = bias {
                // The pass over keys gives that gradient last.
                let mut grads = backward(&inputs, &rows, Some(shape), kernels.backward);
                return grads.split_off(if sources { 0 } else { grads.len() - 1 });
            }
            let mut grads = Vec::new();
            if sources {
                grads = backward(&inputs, &rows, None, kernels.backward);
            }
            grads.extend(bias.map(|shape| bias_grad(&inputs, &rows, shape, kernels.backward)));
            grads
        });
        let mut grads = grads.into_iter();
        let mut take = |present: bool| if present { grads.next() } else { None };
        let separate = sources && !self.projected;
        [
            take(sources),
            take(separate),
            take(separate),
            take(bias.is_some()),
        ]
    }
}
