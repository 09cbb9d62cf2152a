//! The one way from Burn's tensors to a fused operation on a CubeCL backend and back, with its
//! gradient.

use super::tensors::Primitive;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, BackendTensor, Cube, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
};
use burn::tensor::Tensor;
use std::fmt;
use std::sync::Arc;

/// A fused operation on at most `N` tensors, with one output. Its other settings are its fields.
pub(super) trait FusedOp<const N: usize>: Send + Sync + 'static {
    /// What the backward pass needs of the forward pass.
    type Saved: Send + Sync + 'static;

    /// The output, and what is saved. An optional input that is missing is `None`.
    fn forward(&self, inputs: [Option<Primitive>; N]) -> (Primitive, Self::Saved);

    /// The gradients of the inputs from that of the output. Those not `wanted` are ignored.
    fn backward(
        &self,
        saved: &Self::Saved,
        grad: Primitive,
        wanted: [bool; N],
    ) -> [Option<Primitive>; N];
}

/// Runs a fused operation and, if an input is tracked, records its backward pass. The first input
/// is never missing.
///
/// # Panics
///
/// If an input is not [supported](super::tensors::is_supported).
pub(super) fn apply<const N: usize, const D: usize, Op: FusedOp<N>>(
    op: Op,
    inputs: [Option<DispatchTensor>; N],
) -> Tensor<D> {
    let context = inputs
        .iter()
        .flatten()
        .fold(DispatchAutodiffContext::Disabled, |context, input| {
            context.merge(input.autodiff)
        });
    let inputs = inputs.map(|input| input.map(Input::from));
    let autodiff = inputs
        .iter()
        .flatten()
        .any(|input| matches!(input, Input::Autodiff(_)));
    let kind = if autodiff {
        DispatchTensorKind::Autodiff(Box::new(DispatchTensorKind::Cube(BackendTensor::Autodiff(
            record(op, inputs),
        ))))
    } else {
        let inputs = inputs.map(|input| input.map(Input::into_values));
        DispatchTensorKind::Cube(BackendTensor::Float(op.forward(inputs).0))
    };
    Tensor::from_dispatch(DispatchTensor {
        kind,
        autodiff: context,
    })
}

/// The values of a tensor outside autodiff.
pub(super) fn values(tensor: DispatchTensor) -> Primitive {
    Input::from(tensor).into_values()
}

/// A tensor with its place in a graph of gradients.
type Tracked = FloatTensor<Autodiff<Cube>>;

enum Input {
    /// Outside autodiff.
    Plain(Primitive),
    /// Inside autodiff, tracked or not.
    Autodiff(Tracked),
}

impl From<DispatchTensor> for Input {
    fn from(tensor: DispatchTensor) -> Self {
        match tensor.kind {
            DispatchTensorKind::Cube(BackendTensor::Float(x)) => Self::Plain(x),
            DispatchTensorKind::Autodiff(inner) => match *inner {
                DispatchTensorKind::Cube(BackendTensor::Autodiff(x)) => Self::Autodiff(x),
                _ => unreachable!("callers check that inputs are supported"),
            },
            _ => unreachable!("callers check that inputs are supported"),
        }
    }
}

impl Input {
    fn into_values(self) -> Primitive {
        match self {
            Self::Plain(x) => x,
            Self::Autodiff(x) => x.into_primitive(),
        }
    }

    fn into_tracked(self) -> Tracked {
        match self {
            Self::Plain(x) => Tracked::new(x),
            Self::Autodiff(x) => x,
        }
    }
}

/// The gradients of the inputs, from that of the output and which of them are wanted.
type Pullback<const N: usize> =
    Arc<dyn Fn(Primitive, [bool; N]) -> [Option<Primitive>; N] + Send + Sync>;

#[derive(Clone)]
struct State<const N: usize>(Pullback<N>);

impl<const N: usize> fmt::Debug for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

/// The backward step of every fused operation.
#[derive(Debug)]
struct FusedBackward;

impl<const N: usize> Backward<Cube, N> for FusedBackward {
    type State = State<N>;

    fn backward(self, ops: Ops<State<N>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Cube>(&ops.node);
        // A parent without a gradient is `None`.
        let wanted = ops.parents.each_ref().map(Option::is_some);
        for (parent, grad) in ops.parents.iter().zip(ops.state.0(grad, wanted)) {
            if let (Some(parent), Some(grad)) = (parent, grad) {
                grads.register::<Cube>(parent.id, grad);
            }
        }
    }
}

/// Runs an operation inside autodiff.
fn record<const N: usize, Op: FusedOp<N>>(op: Op, inputs: [Option<Input>; N]) -> Tracked {
    let inputs = inputs.map(|input| input.map(Input::into_tracked));
    // The graph wants N parents: the first input, untracked, stands for a missing one.
    let nodes = inputs.each_ref().map(|input| match input {
        Some(x) => x.node(),
        None => Tracked::new(primitive(&inputs[0])).node(),
    });
    let values = inputs.map(|input| input.map(Tracked::into_primitive));
    match Backward::<Cube, N>::prepare::<NoCheckpointing>(FusedBackward, nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = op.forward(values);
            let pullback = move |grad, wanted| op.backward(&saved, grad, wanted);
            prepared.finish(State(Arc::new(pullback)), output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(op.forward(values).0),
    }
}

fn primitive(x: &Option<Tracked>) -> Primitive {
    let x = x.clone().expect("the first input");
    x.into_primitive()
}
