//! The one way from Burn's tensors to a fused operation and back, with its gradient.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
};
use burn::tensor::Tensor;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A backend with fused operations, as one of those that Burn chooses from.
pub(crate) trait FusedBackend: Backend {
    fn into_kind(x: BackendTensor<Self>) -> DispatchTensorKind;

    /// `None` for a tensor of another backend.
    fn from_kind(kind: DispatchTensorKind) -> Option<BackendTensor<Self>>;
}

#[cfg(feature = "flex")]
impl FusedBackend for burn::backend::Flex {
    fn into_kind(x: BackendTensor<Self>) -> DispatchTensorKind {
        DispatchTensorKind::Flex(x)
    }

    fn from_kind(kind: DispatchTensorKind) -> Option<BackendTensor<Self>> {
        match kind {
            DispatchTensorKind::Flex(x) => Some(x),
            _ => None,
        }
    }
}

#[cfg(feature = "cube")]
impl FusedBackend for burn::backend::Cube {
    fn into_kind(x: BackendTensor<Self>) -> DispatchTensorKind {
        DispatchTensorKind::Cube(x)
    }

    fn from_kind(kind: DispatchTensorKind) -> Option<BackendTensor<Self>> {
        match kind {
            DispatchTensorKind::Cube(x) => Some(x),
            _ => None,
        }
    }
}

/// A fused operation on at most `N` tensors, with one output. Its other settings are its fields.
pub(crate) trait FusedOp<const N: usize>: Send + Sync + 'static {
    /// Where the tensors are.
    type Backend: FusedBackend;
    /// What the backward pass needs of the forward pass.
    type Saved: Send + Sync + 'static;

    /// The output, and what is saved; `tracked` where a gradient may be asked for. An optional
    /// input that is missing is `None`.
    fn forward(
        &self,
        inputs: [Option<FloatTensor<Self::Backend>>; N],
        tracked: bool,
    ) -> (FloatTensor<Self::Backend>, Self::Saved);

    /// The gradients of the inputs from that of the output. Those not `wanted` are ignored.
    fn backward(
        &self,
        saved: &Self::Saved,
        grad: FloatTensor<Self::Backend>,
        wanted: [bool; N],
    ) -> [Option<FloatTensor<Self::Backend>>; N];
}

/// An input that every call of the operation has.
#[cfg(feature = "flex")]
pub(crate) fn required<T>(input: Option<T>) -> T {
    input.expect("a required input")
}

/// Runs a fused operation and, if an input is tracked, records its backward pass. The first input
/// is never missing.
///
/// # Panics
///
/// If an input is not on the operation's backend.
pub(crate) fn apply<const N: usize, const D: usize, Op: FusedOp<N>>(
    op: Op,
    inputs: [Option<DispatchTensor>; N],
) -> Tensor<D> {
    let context = inputs
        .iter()
        .flatten()
        .fold(DispatchAutodiffContext::Disabled, |context, input| {
            context.merge(input.autodiff)
        });
    let inputs = inputs.map(|input| input.map(Input::<Op::Backend>::from));
    let autodiff = inputs
        .iter()
        .flatten()
        .any(|input| matches!(input, Input::Autodiff(_)));
    let kind = if autodiff {
        let output = BackendTensor::Autodiff(record(op, inputs));
        DispatchTensorKind::Autodiff(Box::new(Op::Backend::into_kind(output)))
    } else {
        let inputs = inputs.map(|input| input.map(Input::into_values));
        Op::Backend::into_kind(BackendTensor::Float(op.forward(inputs, false).0))
    };
    Tensor::from_dispatch(DispatchTensor {
        kind,
        autodiff: context,
    })
}

/// The values of a tensor outside autodiff.
#[cfg(feature = "cube")]
pub(crate) fn values<B: FusedBackend>(tensor: DispatchTensor) -> FloatTensor<B> {
    Input::<B>::from(tensor).into_values()
}

/// A tensor with its place in a graph of gradients.
type Tracked<B> = FloatTensor<Autodiff<B>>;

enum Input<B: FusedBackend> {
    /// Outside autodiff.
    Plain(FloatTensor<B>),
    /// Inside autodiff, tracked or not.
    Autodiff(Tracked<B>),
}

impl<B: FusedBackend> From<DispatchTensor> for Input<B> {
    fn from(tensor: DispatchTensor) -> Self {
        let found = match tensor.kind {
            DispatchTensorKind::Autodiff(inner) => B::from_kind(*inner),
            kind => B::from_kind(kind),
        };
        match found {
            Some(BackendTensor::Float(x)) => Self::Plain(x),
            Some(BackendTensor::Autodiff(x)) => Self::Autodiff(x),
            _ => unreachable!("callers check that inputs are supported"),
        }
    }
}

impl<B: FusedBackend> Input<B> {
    fn into_values(self) -> FloatTensor<B> {
        match self {
            Self::Plain(x) => x,
            Self::Autodiff(x) => x.into_primitive(),
        }
    }

    fn into_tracked(self) -> Tracked<B> {
        match self {
            Self::Plain(x) => Tracked::<B>::new(x),
            Self::Autodiff(x) => x,
        }
    }
}

/// The backward pass of an operation, with what it saved.
struct Recorded<Op: FusedOp<N>, const N: usize>(Arc<(Op, Op::Saved)>);

impl<Op: FusedOp<N>, const N: usize> Clone for Recorded<Op, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Op: FusedOp<N>, const N: usize> fmt::Debug for Recorded<Op, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorded")
    }
}

/// The backward step of a fused operation.
struct FusedBackward<Op>(PhantomData<fn() -> Op>);

impl<Op> fmt::Debug for FusedBackward<Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FusedBackward")
    }
}

impl<Op: FusedOp<N>, const N: usize> Backward<Op::Backend, N> for FusedBackward<Op> {
    type State = Recorded<Op, N>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Op::Backend>(&ops.node);
        // A parent without a gradient is `None`.
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let (op, saved) = &*ops.state.0;
        for (parent, grad) in ops.parents.iter().zip(op.backward(saved, grad, wanted)) {
            if let (Some(parent), Some(grad)) = (parent, grad) {
                grads.register::<Op::Backend>(parent.id, grad);
            }
        }
    }
}

/// Runs an operation inside autodiff.
fn record<const N: usize, Op: FusedOp<N>>(
    op: Op,
    inputs: [Option<Input<Op::Backend>>; N],
) -> Tracked<Op::Backend> {
    let inputs = inputs.map(|input| input.map(Input::into_tracked));
    // The graph wants N parents: the first input, untracked, stands for a missing one.
    let first = inputs[0].clone().expect("the first input");
    let first = first.into_primitive();
    let nodes = inputs.each_ref().map(|input| match input {
        Some(x) => x.node(),
        None => Tracked::<Op::Backend>::new(first.clone()).node(),
    });
    drop(first);
    let values = inputs.map(|input| input.map(Tracked::<Op::Backend>::into_primitive));
    let step = FusedBackward::<Op>(PhantomData);
    match Backward::<Op::Backend, N>::prepare::<NoCheckpointing>(step, nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = op.forward(values, true);
            prepared.finish(Recorded(Arc::new((op, saved))), output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(op.forward(values, false).0),
    }
}
