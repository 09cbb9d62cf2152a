//! Reading Flex tensors as slices, and making new ones.

use burn::backend::{BackendTensor, DispatchTensorKind, TensorMetadata};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_flex::FlexTensor;

/// A tensor for each input of an operation, its value or its gradient, where there is one.
pub(super) type PerInput<const N: usize> = [Option<FlexTensor>; N];

/// Whether the fused operations can read this tensor: `f32` on Flex, with autodiff or without.
pub(super) fn is_supported<const D: usize>(x: &Tensor<D>) -> bool {
    // Devices compare by hardware, whether they record gradients or not.
    x.dtype() == DType::F32 && x.device() == Device::flex()
}

/// The values of a tensor that takes no gradient, if it is supported.
pub(super) fn constant<const D: usize>(x: &Tensor<D>) -> Option<FlexTensor> {
    if !is_supported(x) || x.is_tracked() {
        return None;
    }
    match x.clone().inner().into_dispatch().kind {
        DispatchTensorKind::Flex(BackendTensor::Float(x)) => Some(x.to_contiguous()),
        _ => unreachable!("a float tensor on Flex without autodiff"),
    }
}

/// The values of an integer tensor, if it lies on Flex. Negative ones become the largest index, so
/// that a range check refuses them.
pub(super) fn indices<const D: usize>(tensor: Tensor<D, Int>) -> Option<Vec<usize>> {
    let DispatchTensorKind::Flex(BackendTensor::Int(x)) = tensor.into_dispatch().kind else {
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

/// A tensor that is contiguous, starts where its storage starts and ends where it ends.
pub(super) fn contiguous(x: FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

/// A new contiguous tensor.
pub(super) fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// Read access to a tensor of four dimensions whose innermost elements are adjacent in memory.
pub(super) struct Strided<'a> {
    pub(super) shape: [usize; 4],
    values: Cow<'a>,
    strides: [usize; 3],
    start: usize,
}

enum Cow<'a> {
    Borrowed(&'a [f32]),
    Owned(FlexTensor),
}

impl<'a> Strided<'a> {
    /// Borrows; copies only tensors with gaps between innermost elements or negative strides.
    pub(super) fn new(x: &'a FlexTensor) -> Self {
        let shape = x.shape().dims();
        let of = |x: &FlexTensor| -> Option<[usize; 3]> {
            let strides = x.layout().strides();
            let outer: Vec<usize> = strides[..3]
                .iter()
                .map_while(|s| usize::try_from(*s).ok())
                .collect();
            // A single element is adjacent to itself, whatever its stride.
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

    /// The whole storage, the index of row 0 of a batch and head in it, and the row stride.
    #[inline(always)]
    pub(super) fn rows(&self, batch: usize, head: usize) -> (&[f32], usize, usize) {
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

    /// One row.
    #[inline(always)]
    pub(super) fn row(&self, batch: usize, head: usize, row: usize) -> &[f32] {
        let (values, start, stride) = self.rows(batch, head);
        &values[start + row * stride..][..self.shape[3]]
    }
}

/// A tensor of shape `[B, H, L, E]` whose values are laid out as `[B, L, H, E]`.
pub(super) fn strided_output(
    values: Vec<f32>,
    [batch, heads, length, head_dim]: [usize; 4],
) -> FlexTensor {
    let x = tensor(values, [batch, length, heads, head_dim]);
    // Only strides are swapped, no number moves.
    let layout = x.layout().transpose(1, 2);
    x.with_layout(layout)
}
