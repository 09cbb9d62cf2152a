//! Tensors of CubeCL backends: which ones the kernels can read, and running kernels on them.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Cube, DispatchTensorKind, TensorMetadata};
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::tensor::CubeTensor;
use std::any::TypeId;

/// What the backend makes of a float tensor: a tensor in memory, or one whose operations are still
/// collected in order to be fused.
pub(super) type Primitive = FloatTensor<Cube>;

/// Whether the kernels can read this tensor: `f32` and not empty, on a CubeCL backend, with
/// autodiff or without.
pub(super) fn is_supported<const D: usize>(x: &Tensor<D>) -> bool {
    let elements: usize = x.dims().iter().product();
    // Indices are 32 bits wide.
    x.dtype() == DType::F32 && (1..u32::MAX as usize).contains(&elements) && device(x).is_some()
}

/// The device of a tensor on a CubeCL backend on which kernels can be run.
pub(super) fn device<const D: usize>(x: &Tensor<D>) -> Option<CubeDevice> {
    fn device(kind: &DispatchTensorKind) -> Option<CubeDevice> {
        match kind {
            DispatchTensorKind::Cube(x) => Some(x.device()),
            DispatchTensorKind::Autodiff(inner) => device(inner),
            #[allow(unreachable_patterns, reason = "where CubeCL is the only backend")]
            _ => None,
        }
    }
    // A crate elsewhere in the build may enable Burn's `fusion` without that of this crate.
    let can_run =
        cfg!(feature = "fusion") || TypeId::of::<Primitive>() == TypeId::of::<CubeTensor>();
    can_run
        .then(|| device(&x.clone().into_dispatch().kind))
        .flatten()
}

/// Runs `kernels` on `inputs`. They make one `f32` tensor for each of `shapes`.
#[cfg(not(feature = "fusion"))]
pub(super) fn run(
    inputs: Vec<Primitive>,
    shapes: Vec<Shape>,
    kernels: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<Primitive> {
    fn cast<A: 'static, B: 'static>(x: A) -> B {
        let x: Box<dyn std::any::Any> = Box::new(x);
        *x.downcast().expect("checked by `can_run`")
    }
    let outputs = kernels(inputs.into_iter().map(cast).collect());
    debug_assert_eq!(outputs.len(), shapes.len(), "a tensor for each shape");
    outputs.into_iter().map(cast).collect()
}

/// Queues `kernels` on `inputs`, in order with what is queued already. They make one `f32` tensor
/// for each of `shapes`.
#[cfg(feature = "fusion")]
pub(super) fn run(
    inputs: Vec<Primitive>,
    shapes: Vec<Shape>,
    kernels: impl Fn(Vec<CubeTensor>) -> Vec<CubeTensor> + Send + Sync + 'static,
) -> Vec<Primitive> {
    use burn::backend::fusion::custom::{
        CustomOpIr, HandleContainer, OperationFn, OperationIr, StreamId, TensorIr,
    };
    use burn_cubecl::CubeBackend;
    use burn_cubecl::fusion::CubeFusionHandle;

    let client = inputs[0].client.clone();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(Primitive::into_ir).collect();
    let outputs: Vec<TensorIr> = shapes
        .into_iter()
        .map(|shape| TensorIr::uninit(client.create_empty_handle(), shape, DType::F32))
        .collect();
    let description = CustomOpIr::new("fused attention", &inputs, &outputs);
    let run = OperationFn(move |handles: &mut HandleContainer<CubeFusionHandle>| {
        let inputs = inputs
            .iter()
            .map(|x| handles.get_float_tensor::<CubeBackend>(x))
            .collect();
        for (output, x) in outputs.iter().zip(kernels(inputs)) {
            handles.register_float_tensor::<CubeBackend>(&output.id, x);
        }
        Ok(())
    });
    client.register(StreamId::current(), OperationIr::Custom(description), run)
}
