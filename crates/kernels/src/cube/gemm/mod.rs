//! Matrix products whose factors have a stated precision.
//!
//! Burn's products try tensor cores first, and round factors of `f32` to TF32 where a device has
//! them. The operation here rounds only if it is asked to. A device without the tensor cores for a
//! format rounds the factors itself and multiplies in `f32`: the same numbers up to the order of
//! sums.
//!
//! Products in `f32` have a kernel of their own. That of the library, cubek-matmul 0.3.1, takes
//! tiles of up to 256 x 128 and does not split sums: the gradients of a small model's weights are 1
//! to 4 cubes there, on GPUs with more than a hundred multiprocessors.

mod settings;
mod tiles;

use super::sums::sum_of_parts;
use super::tensors::{PerInput, Primitive, elements, empty, in_order, run};
use crate::Matmul;
use crate::op::FusedOp;
use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::{ElemType, FloatKind};
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::cubecl::zspace::Strides;
use burn_cubecl::cubecl::zspace::metadata::Metadata;
use burn_cubecl::kernel::cast;
use burn_cubecl::ops::permute;
use burn_cubecl::tensor::CubeTensor;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;
use settings::equal_splits;

/// The numbers that factors are rounded to. Sums are in `f32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Factors {
    /// All 24 significant bits of `f32`.
    F32,
    /// 11 significant bits and the exponents of `f32`; halves away from zero, as NVIDIA converts.
    Tf32,
    /// 8 significant bits and the exponents of `f32`; halves to even.
    Bf16,
}

impl Factors {
    pub(super) fn of(matmul: Matmul) -> Self {
        match matmul {
            Matmul::F32 => Self::F32,
            Matmul::Tf32 => Self::Tf32,
            Matmul::Bf16 => Self::Bf16,
        }
    }

    /// What tensor cores call the format.
    fn kind(self) -> Option<FloatKind> {
        match self {
            Self::F32 => None,
            Self::Tf32 => Some(FloatKind::TF32),
            Self::Bf16 => Some(FloatKind::BF16),
        }
    }

    /// Whether tensor cores of a device multiply numbers of this format and add in `f32`.
    fn on_tensor_cores(self, client: &Client) -> bool {
        let Some(kind) = self.kind().map(ElemType::Float) else {
            return false;
        };
        let mut formats = client.properties().features.matmul.cmma.iter();
        formats.any(|format| {
            let factors = format.a_type == kind && format.b_type == kind;
            factors && format.cd_type == ElemType::Float(FloatKind::F32)
        })
    }
}

/// `a b`, `[.., N, M]`, of `a`, `[.., N, K]`, and `b`, `[.., K, M]`, with the same leading
/// dimensions.
pub(super) struct Product {
    /// Shapes of `a` and `b`.
    pub shapes: [Vec<usize>; 2],
    pub factors: Factors,
}

impl FusedOp<2> for Product {
    type Backend = burn::backend::Cube;
    type Saved = [Primitive; 2];

    fn forward(&self, inputs: PerInput<2>, _: bool) -> (Primitive, Self::Saved) {
        let inputs = inputs.map(|x| x.expect("both factors"));
        let [a, b] = inputs.clone();
        (self.queue([a, b], [false, false]), inputs)
    }

    fn backward(&self, [a, b]: &[Primitive; 2], grad: Primitive, wanted: [bool; 2]) -> PerInput<2> {
        let of_a = wanted[0].then(|| self.queue([grad.clone(), b.clone()], [false, true]));
        let of_b = wanted[1].then(|| self.queue([a.clone(), grad], [true, false]));
        [of_a, of_b]
    }
}

impl Product {
    /// The product of two matrices, each one transposed or not.
    fn queue(&self, inputs: [Primitive; 2], transposed: [bool; 2]) -> Primitive {
        let [a, b] = &self.shapes;
        let (rank, factors) = (a.len(), self.factors);
        let (n, k, m) = (a[rank - 2], a[rank - 1], b[rank - 1]);
        let [rows, columns] = match transposed {
            [false, false] => [n, m],
            [false, true] => [n, k],
            _ => [k, m],
        };
        let mut shape = a[..rank - 2].to_vec();
        shape.extend([rows, columns]);
        let shape = Shape::from(shape);
        let outputs = run(inputs.into(), vec![shape.clone()], move |inputs| {
            let mut inputs = inputs.into_iter().zip(transposed);
            let [a, b] = [(); 2].map(|()| {
                let (x, transposed) = inputs.next().expect("two factors");
                if transposed { swapped(x) } else { x }
            });
            vec![multiply([a, b], shape.clone(), factors)]
        });
        outputs.into_iter().next().expect("one output")
    }
}

/// The transposes of all matrices.
fn swapped(x: CubeTensor) -> CubeTensor {
    let rank = x.meta.num_dims();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(rank - 2, rank - 1);
    permute(x, &axes)
}

/// The product of two tensors of matrices.
fn multiply(inputs: [CubeTensor; 2], shape: Shape, factors: Factors) -> CubeTensor {
    if factors.on_tensor_cores(&inputs[0].client) {
        let inputs = inputs.clone().map(|x| match factors {
            Factors::Bf16 => cast(own_rows(x), DType::BF16),
            // Loading rounds.
            _ => own_rows(x),
        });
        let strategy = Strategy::SimpleCyclicCmma(Default::default());
        match by_library(&strategy, inputs, &shape) {
            Ok(product) => return product,
            // Tiles of these shapes do not fit the device.
            Err(MatmulSetupError::Unavailable(_)) => {}
            Err(error) => panic!("a product on tensor cores: {error:?}"),
        }
    }
    let inputs = match factors {
        Factors::F32 => inputs,
        _ => inputs.map(|x| rounded(x, factors)),
    };
    if tiles::fits(&shape) {
        return tiles::product(inputs, shape);
    }
    let strategy = Strategy::SimpleUnit(Default::default());
    let product = by_library(&strategy, inputs.map(own_rows), &shape);
    product.unwrap_or_else(|error| panic!("a product: {error:?}"))
}

/// A tensor without dimensions that are repeated by a stride of 0.
fn own_rows(x: CubeTensor) -> CubeTensor {
    let repeated = (x.meta.strides().iter().zip(x.meta.shape().iter()))
        .any(|(stride, size)| *stride == 0 && *size > 1);
    if repeated { in_order(x) } else { x }
}

/// A product of the library, of factors in `f32` or bfloat16. It splits no sums: parts of a long
/// one are matrices of their own here.
fn by_library(
    strategy: &Strategy,
    [a, b]: [CubeTensor; 2],
    shape: &Shape,
) -> Result<CubeTensor, MatmulSetupError> {
    let rank = shape.num_dims();
    let terms = a.meta.shape()[rank - 1];
    let splits = equal_splits(&shape.to_vec(), terms);
    let mut of_parts = shape.to_vec();
    if splits > 1 {
        of_parts.insert(0, splits);
    }
    let parts = empty(&a, of_parts);
    let f32 = ElemType::Float(FloatKind::F32);
    let factor = match a.dtype {
        DType::BF16 => ElemType::Float(FloatKind::BF16),
        _ => f32,
    };
    let mut types = MatmulElems::from_globals(&MatmulGlobalElems {
        lhs: factor,
        rhs: factor,
        out: f32,
    });
    let inputs = match splits {
        1 => [a, b],
        _ => [split(a, rank - 1, splits), split(b, rank - 2, splits)],
    };
    let [a, b] = inputs.map(|x| InputBinding::new(x.binding(), factor));
    let (client, output) = (&parts.client, parts.clone().binding());
    launch_ref(&strategy.clone().into(), client, a, b, output, &mut types)?;
    Ok(sum_of_parts(parts, shape.clone()))
}

/// The matrices with dimension `i` cut into equal parts, which come first.
fn split(mut x: CubeTensor, i: usize, splits: usize) -> CubeTensor {
    let (mut shape, mut strides) = (x.meta.shape().to_vec(), x.meta.strides().to_vec());
    shape[i] /= splits;
    strides.insert(0, shape[i] * strides[i]);
    shape.insert(0, splits);
    *x.meta = Metadata::new(Shape::from(shape), Strides::new(&strides));
    x
}

/// Numbers rounded to a shorter format, stored row by row.
fn rounded(x: CubeTensor, factors: Factors) -> CubeTensor {
    let x = in_order(x);
    let output = empty(&x, x.meta.shape().clone());
    let (cubes, dim) = elements(&output, output.meta.num_elements());
    let client = output.client.clone();
    round_kernel::launch(
        &client,
        cubes,
        dim,
        x.into_tensor_arg(),
        output.clone().into_tensor_arg(),
        factors == Factors::Tf32,
    );
    output
}

/// Drops the last 13 bits of a number for TF32, the last 16 for bfloat16. Infinities and NaN stay.
#[cube(launch)]
fn round_kernel(x: &Tensor<f32>, y: &mut Tensor<f32>, #[comptime] tf32: bool) {
    let i = ABSOLUTE_POS;
    if i < y.len() {
        let bits = u32::reinterpret(x[i]);
        let finite = bits & 0x7f80_0000u32 != 0x7f80_0000u32;
        let mut result = bits;
        if finite {
            if comptime!(tf32) {
                result = (bits + 0x1000u32) & 0xffff_e000u32;
            } else {
                // Just below a half, and the lowest bit that stays: halves go to even.
                result = (bits + 0x7fffu32 + ((bits >> 16u32) & 1u32)) & 0xffff_0000u32;
            }
        }
        y[i] = f32::reinterpret(result);
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::cube::tensors::tensor;
    use crate::op::values;
    use burn::backend::Cube;
    use burn::tensor::{Device, Distribution, Tensor};

    /// On a device without tensor cores: the splits are the same, and the library's other kernel
    /// multiplies.
    #[test]
    fn sums_that_are_split_for_the_library_are_those_of_the_kernel() {
        let device = std::panic::catch_unwind(|| {
            let device = Device::wgpu(Default::default());
            Tensor::<1>::ones([1], &device).into_scalar::<f32>();
            device
        });
        let Ok(device) = device else {
            println!("SKIPPED: no wgpu adapter was found, nothing was compared");
            return;
        };
        // Gradients of weights, of one model and of three.
        for (groups, [k, n, m]) in [(1, [2048, 64, 96]), (3, [1600, 32, 64])] {
            let random =
                |width| Tensor::<3>::random([groups, k, width], Distribution::Default, &device);
            let inputs = [random(n), random(m)].map(|x| values::<Cube>(x.into_dispatch()));
            let shape = Shape::new([groups, n, m]);
            let product = |of: fn([CubeTensor; 2], Shape) -> CubeTensor| {
                let own = shape.clone();
                let outputs = run(inputs.to_vec(), vec![shape.clone()], move |inputs| {
                    let [x, y] = inputs.try_into().expect("two factors");
                    vec![of([swapped(x), y], own.clone())]
                });
                let output = outputs.into_iter().next().expect("one output");
                tensor::<3>(output)
                    .into_data()
                    .iter::<f32>()
                    .collect::<Vec<_>>()
            };
            let by_kernel = product(tiles::product);
            let by_library = product(|inputs, shape| {
                let strategy = Strategy::SimpleUnit(Default::default());
                by_library(&strategy, inputs, &shape).expect("a product")
            });
            assert!(equal_splits(&[groups, n, m], k) > 1);
            for (a, b) in by_kernel.iter().zip(&by_library) {
                assert!((a - b).abs() < 1e-5 * a.abs().max(1.0), "{a} is not {b}");
            }
        }
    }
}
