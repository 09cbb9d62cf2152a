//! Between Burn's tensors and slices: takes Flex tensors out of their wrappers, gives results back,
//! and records gradients.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, Flex,
    TensorMetadata,
};
use burn::tensor::{DType, TensorData};
use burn_flex::FlexTensor;
use rayon::prelude::*;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// A tensor with its place in a graph of gradients.
type Tracked = FloatTensor<Autodiff<Flex>>;

/// An input of a fused operation.
pub(crate) enum Input {
    /// Outside autodiff, or a constant in it.
    Plain(FlexTensor),
    /// Inside autodiff, tracked or not.
    Autodiff(Tracked),
}

/// What autodiff context an output belongs to.
pub(crate) type Context = DispatchAutodiffContext;

/// All inputs, if every one is `f32` on Flex, and the context they share; else the tensors as they
/// came.
pub(crate) fn take<const N: usize>(
    tensors: [DispatchTensor; N],
) -> Result<([Input; N], Context), [DispatchTensor; N]> {
    if !tensors.iter().all(is_flex_f32) {
        return Err(tensors);
    }
    let context = tensors.iter().fold(Context::Disabled, |context, tensor| {
        context.merge(tensor.autodiff)
    });
    let open = |tensor: DispatchTensor| match tensor.kind {
        DispatchTensorKind::Flex(BackendTensor::Float(x)) => Input::Plain(x),
        DispatchTensorKind::Autodiff(inner) => match *inner {
            DispatchTensorKind::Flex(BackendTensor::Autodiff(x)) => Input::Autodiff(x),
            _ => unreachable!("checked above"),
        },
        _ => unreachable!("checked above"),
    };
    Ok((tensors.map(open), context))
}

fn is_flex_f32(tensor: &DispatchTensor) -> bool {
    let flex = match &tensor.kind {
        DispatchTensorKind::Flex(BackendTensor::Float(_)) => true,
        DispatchTensorKind::Autodiff(inner) => matches!(
            **inner,
            DispatchTensorKind::Flex(BackendTensor::Autodiff(_))
        ),
        _ => false,
    };
    flex && tensor.dtype() == DType::F32
}

/// Whether a gradient of this tensor may be asked for.
pub(crate) fn is_tracked(tensor: &DispatchTensor) -> bool {
    match &tensor.kind {
        DispatchTensorKind::Autodiff(inner) => match &**inner {
            DispatchTensorKind::Flex(BackendTensor::Autodiff(x)) => x.is_tracked(),
            _ => true,
        },
        _ => false,
    }
}

/// A tensor that takes no gradient, if it is `f32` on Flex.
pub(crate) fn constant(tensor: &DispatchTensor) -> Option<FlexTensor> {
    if !is_flex_f32(tensor) || is_tracked(tensor) {
        return None;
    }
    take([tensor.clone()]).ok().map(|([input], _)| match input {
        Input::Plain(x) => x.to_contiguous(),
        Input::Autodiff(x) => x.into_primitive().to_contiguous(),
    })
}

/// The values of an integer tensor, if it is one on Flex; those below 0 become the largest index.
pub(crate) fn indices(tensor: &DispatchTensor) -> Option<Vec<usize>> {
    let DispatchTensorKind::Flex(BackendTensor::Int(x)) = &tensor.kind else {
        return None;
    };
    let x = x.to_contiguous();
    match x.dtype() {
        DType::I64 => Some(
            x.storage::<i64>()
                .iter()
                .map(|i| usize::try_from(*i).unwrap_or(usize::MAX))
                .collect(),
        ),
        DType::I32 => Some(
            x.storage::<i32>()
                .iter()
                .map(|i| usize::try_from(*i).unwrap_or(usize::MAX))
                .collect(),
        ),
        _ => None,
    }
}

/// Wraps an output.
pub(crate) fn give(output: Input, autodiff: Context) -> DispatchTensor {
    let kind = match output {
        Input::Plain(x) => DispatchTensorKind::Flex(BackendTensor::Float(x)),
        Input::Autodiff(x) => DispatchTensorKind::Autodiff(Box::new(DispatchTensorKind::Flex(
            BackendTensor::Autodiff(x),
        ))),
    };
    DispatchTensor { kind, autodiff }
}

/// From the gradient of an output and which inputs want one, the gradients of the inputs.
type Pull<const N: usize> =
    Arc<dyn Fn(FlexTensor, [bool; N]) -> [Option<FlexTensor>; N] + Send + Sync>;

#[derive(Clone)]
struct Saved<const N: usize>(Pull<N>);

impl<const N: usize> fmt::Debug for Saved<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Saved")
    }
}

#[derive(Debug)]
struct Fused;

impl<const N: usize> Backward<Flex, N> for Fused {
    type State = Saved<N>;

    fn backward(self, ops: Ops<Saved<N>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Flex>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        for (parent, grad) in ops.parents.iter().zip(ops.state.0(grad, wanted)) {
            if let (Some(parent), Some(grad)) = (parent, grad) {
                grads.register::<Flex>(parent.id, grad);
            }
        }
    }
}

/// Runs a fused operation and, if an input is tracked, records its gradient.
///
/// `run` is given the inputs and whether a gradient may be asked for; what it returns beside the
/// output goes to `pull` with the output's gradient and which inputs want theirs.
pub(crate) fn record<const N: usize, T: Send + Sync + 'static>(
    inputs: [Input; N],
    run: impl FnOnce([FlexTensor; N], bool) -> (FlexTensor, T),
    pull: impl Fn(&T, FlexTensor, [bool; N]) -> [Option<FlexTensor>; N] + Send + Sync + 'static,
) -> Input {
    if inputs.iter().all(|input| matches!(input, Input::Plain(_))) {
        let plain = inputs.map(|input| match input {
            Input::Plain(x) => x,
            Input::Autodiff(_) => unreachable!("checked above"),
        });
        return Input::Plain(run(plain, false).0);
    }
    let tracked = inputs.map(|input| match input {
        Input::Plain(x) => Tracked::new(x),
        Input::Autodiff(x) => x,
    });
    let nodes = tracked.each_ref().map(Tracked::node);
    let plain = tracked.map(Tracked::into_primitive);
    Input::Autodiff(
        match Backward::<Flex, N>::prepare::<NoCheckpointing>(Fused, nodes)
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(prepared) => {
                let (output, saved) = run(plain, true);
                prepared.finish(
                    Saved(Arc::new(move |grad, wanted| pull(&saved, grad, wanted))),
                    output,
                )
            }
            OpsKind::UnTracked(prepared) => prepared.finish(run(plain, false).0),
        },
    )
}

/// A tensor that is contiguous, starts where its storage starts and ends where it ends.
pub(crate) fn dense(x: FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

/// A new dense tensor.
pub(crate) fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

thread_local! {
    /// Whether this thread is at work on a task of [`for_each`] or [`map`].
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Keeps [`BUSY`] until it is dropped, also by a panic.
struct Busy;

impl Busy {
    fn new() -> Self {
        BUSY.set(true);
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

/// Whether `elements` of work, about a nanosecond each, are worth waking other threads for. Inside
/// of a task they never are: the others have tasks of their own.
pub(crate) fn parallel(elements: usize) -> bool {
    elements >= 1 << 15 && !BUSY.get() && rayon::current_num_threads() > 1
}

/// Runs `f` on every task, on several threads if there is enough work.
pub(crate) fn for_each<T: Send>(tasks: Vec<T>, elements: usize, f: impl Fn(T) + Sync + Send) {
    if !parallel(elements) {
        return tasks.into_iter().for_each(f);
    }
    tasks.into_par_iter().for_each(|task| {
        let _busy = Busy::new();
        f(task);
    });
}

/// What `f` makes of every task, in order, on several threads if there is enough work.
pub(crate) fn map<T: Send, R: Send>(
    tasks: Vec<T>,
    elements: usize,
    f: impl Fn(T) -> R + Sync + Send,
) -> Vec<R> {
    if !parallel(elements) {
        return tasks.into_iter().map(f).collect();
    }
    let f = |task| {
        let _busy = Busy::new();
        f(task)
    };
    tasks.into_par_iter().map(f).collect()
}

/// [`for_each`] for a few large tasks that are made of smaller ones: side by side where that keeps
/// all threads busy, else one after the other, each of them on all threads.
pub(crate) fn for_each_large<T: Send>(tasks: Vec<T>, elements: usize, f: impl Fn(T) + Sync + Send) {
    let threads = rayon::current_num_threads();
    if tasks.len().is_multiple_of(threads) || tasks.len() >= 4 * threads {
        for_each(tasks, elements, f);
    } else {
        tasks.into_iter().for_each(f);
    }
}

/// As large as that of the main thread on common systems.
const STACK: usize = 8 << 20;

/// Runs `f` on one of the threads that share the work of [`for_each`].
pub(crate) fn on_threads<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    // Whoever has made the threads before has chosen their stack.
    let _ = rayon::ThreadPoolBuilder::new()
        .stack_size(STACK)
        .build_global();
    rayon::scope(|_| f())
}

/// `n` numbers, made `BLOCK` at a time: `write` is given the index of the first and the place of
/// all. Several threads work if `elements` are enough. New memory is written once, whereas a vector
/// of zeros would first be written with these.
pub(crate) fn fill<const BLOCK: usize>(
    n: usize,
    elements: usize,
    write: impl Fn(usize, &mut [f32]) + Sync + Send,
) -> Vec<f32> {
    let mut values = if parallel(elements) {
        let block = |index: usize| {
            let mut block = [0.0; BLOCK];
            write(index * BLOCK, &mut block[..BLOCK.min(n - index * BLOCK)]);
            block
        };
        let blocks: Vec<[f32; BLOCK]> = (0..n.div_ceil(BLOCK)).into_par_iter().map(block).collect();
        blocks.into_flattened()
    } else {
        let (mut values, mut block) = (Vec::with_capacity(n), [0.0; BLOCK]);
        for start in (0..n).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(n - start)];
            write(start, block);
            values.extend_from_slice(block);
        }
        values
    };
    values.truncate(n);
    values
}

/// A copy, made by several threads where it is large.
pub(crate) fn copied(x: &[f32]) -> Vec<f32> {
    fill::<1024>(x.len(), x.len(), |first, block| {
        block.copy_from_slice(&x[first..][..block.len()])
    })
}

/// Read access to a tensor of four dimensions whose innermost elements are adjacent.
pub(crate) struct Strided<'a> {
    pub(crate) shape: [usize; 4],
    values: Cow<'a>,
    strides: [usize; 3],
    start: usize,
}

enum Cow<'a> {
    Borrowed(&'a [f32]),
    Owned(FlexTensor),
}

impl<'a> Strided<'a> {
    /// Copies only tensors with gaps between innermost elements or with dimensions that run
    /// backwards.
    pub(crate) fn new(x: &'a FlexTensor) -> Self {
        let shape = x.shape().dims();
        let of = |x: &FlexTensor| -> Option<[usize; 3]> {
            let strides = x.layout().strides();
            let outer: Vec<usize> = strides[..3]
                .iter()
                .map_while(|s| usize::try_from(*s).ok())
                .collect();
            if strides[3] == 1 || shape[3] == 1 {
                outer.try_into().ok()
            } else {
                None
            }
        };
        match of(x) {
            Some(strides) => Self {
                shape,
                values: Cow::Borrowed(x.storage()),
                strides,
                start: x.layout().start_offset(),
            },
            None => {
                let x = x.to_contiguous();
                let strides = of(&x).expect("a contiguous tensor has positive strides");
                Self {
                    shape,
                    strides,
                    start: x.layout().start_offset(),
                    values: Cow::Owned(x),
                }
            }
        }
    }

    /// The whole storage, the index in it of row 0 of a batch and head, and the distance between
    /// rows.
    #[inline(always)]
    pub(crate) fn rows(&self, batch: usize, head: usize) -> (&[f32], usize, usize) {
        let values = match &self.values {
            Cow::Borrowed(values) => values,
            Cow::Owned(x) => x.storage(),
        };
        (
            values,
            self.start + batch * self.strides[0] + head * self.strides[1],
            self.strides[2],
        )
    }

    /// The elements of one row.
    #[inline(always)]
    pub(crate) fn row(&self, batch: usize, head: usize, row: usize) -> &[f32] {
        let (values, start, stride) = self.rows(batch, head);
        &values[start + row * stride..][..self.shape[3]]
    }
}

/// A tensor of shape `[B, H, L, E]` whose values lie in the order `[B, L, H, E]`.
pub(crate) fn strided_output(
    values: Vec<f32>,
    [batch, heads, length, head_dim]: [usize; 4],
) -> FlexTensor {
    let x = tensor(values, [batch, length, heads, head_dim]);
    let layout = x.layout().transpose(1, 2);
    x.with_layout(layout)
}
