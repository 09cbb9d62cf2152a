//! Tensors of CubeCL backends: which ones the kernels can read, and running kernels on them.

use burn::backend::tensor::FloatTensor;
use burn::backend::{
    BackendTensor, Cube, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    TensorMetadata,
};
use burn::tensor::{DType, Int, Shape, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::cubecl::prelude::{CubeCount, CubeDim};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use std::any::TypeId;

/// What the backend makes of a float tensor: a tensor in memory, or one whose operations are still
/// collected in order to be fused.
pub(super) type Primitive = FloatTensor<Cube>;

/// A tensor for each input of an operation, its value or its gradient, where there is one.
pub(super) type PerInput<const N: usize> = [Option<Primitive>; N];

/// Whether the kernels can read this tensor: `f32` and not empty, on a CubeCL backend, with
/// autodiff or without.
pub(super) fn is_supported<const D: usize>(x: &Tensor<D>) -> bool {
    let elements: usize = x.dims().iter().product();
    // Indices are 32 bits wide.
    x.dtype() == DType::F32 && (1..u32::MAX as usize).contains(&elements) && device(x).is_some()
}

/// The values of 32-bit integers on a CubeCL backend.
pub(super) fn integers<const D: usize>(x: &Tensor<D, Int>) -> Option<Primitive> {
    fn values(kind: DispatchTensorKind) -> Option<Primitive> {
        match kind {
            DispatchTensorKind::Cube(BackendTensor::Int(x)) => Some(x),
            DispatchTensorKind::Autodiff(inner) => values(*inner),
            _ => None,
        }
    }
    (x.dtype() == DType::I32)
        .then(|| values(x.clone().into_dispatch().kind))
        .flatten()
}

/// A float tensor outside autodiff.
pub(super) fn tensor<const D: usize>(x: Primitive) -> Tensor<D> {
    Tensor::from_dispatch(DispatchTensor {
        kind: DispatchTensorKind::Cube(BackendTensor::Float(x)),
        autodiff: DispatchAutodiffContext::Disabled,
    })
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
    let description = CustomOpIr::new("fused operation", &inputs, &outputs);
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

/// A tensor that is stored row by row, without gaps.
pub(super) fn in_order(x: CubeTensor) -> CubeTensor {
    into_contiguous(x)
}

/// A tensor that is stored row by row, in any order of dimensions.
pub(super) fn in_rows(x: CubeTensor) -> CubeTensor {
    if x.meta.is_tiled() {
        into_contiguous(x)
    } else {
        x
    }
}

/// Two tensors, stored row by row.
pub(super) fn pair(tensors: Vec<CubeTensor>) -> [CubeTensor; 2] {
    let pair: [CubeTensor; 2] = tensors.try_into().expect("two inputs");
    pair.map(in_order)
}

/// A tensor for the output of a kernel, stored row by row.
pub(super) fn empty(like: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), DType::F32)
}

/// An output `[B, H, L, E]` of a kernel that is laid out as `[B, L, H, E]`.
pub(super) fn empty_by_position(
    like: &CubeTensor,
    [batch, heads, length, head_dim]: [usize; 4],
) -> CubeTensor {
    let mut x = empty(like, [batch, length, heads, head_dim]);
    x.meta.swap(1, 2);
    x
}

/// A vector of numbers on the device of `like`.
pub(super) fn upload(like: &CubeTensor, values: &[f32]) -> CubeTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let (client, device) = (like.client.clone(), like.device.clone());
    let handle = client.create_from_slice(&bytes);
    CubeTensor::new_contiguous(
        client,
        device,
        Shape::new([values.len()]),
        handle,
        DType::F32,
    )
}

/// A number of cubes in each dimension.
pub(super) fn count([x, y, z]: [usize; 3]) -> CubeCount {
    CubeCount::Static(x as u32, y as u32, z as u32)
}

/// Enough cubes for `n` things, of which each cube does `each`.
pub(super) fn units(like: &CubeTensor, n: usize, each: usize) -> CubeCount {
    calculate_cube_count_elemwise(&like.client, n, CubeDim::new_1d(each as u32))
}

/// Cubes with one unit for each of `n` elements.
pub(super) fn elements(like: &CubeTensor, n: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(&like.client, n);
    (calculate_cube_count_elemwise(&like.client, n, dim), dim)
}
