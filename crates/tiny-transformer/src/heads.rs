//! What attention shares with encodings: transforms of queries and keys, fused where they allow,
//! and fused operations.

use burn::tensor::{Device, Int, Tensor};
use kernels::Matmul;
use posenc::{Context, DiagonalNetwork, FusedQk, Ops, Prepared};

/// The tables of an encoding's rotation for the fused operations.
pub(crate) fn fused_rotation(rotation: posenc::Rotation) -> kernels::Rotation {
    kernels::Rotation {
        queries: rotation.queries,
        keys: rotation.keys,
        interleaved: rotation.interleaved,
    }
}

/// Whether a table of a rotation takes a gradient.
pub(crate) fn is_trained(rotation: &posenc::Rotation) -> bool {
    let mut tables = rotation.queries.iter().chain(&rotation.keys);
    tables.any(Tensor::is_tracked)
}

/// The network of an encoding for the fused operations.
pub(crate) fn fused_network(network: DiagonalNetwork) -> kernels::DiagonalNetwork {
    kernels::DiagonalNetwork {
        diagonals: network.diagonals,
        units: network.units,
        hidden: network.hidden,
        weights: network.weights,
        biases: network.biases,
    }
}

/// The result of [`Prepared::transform_qk`], by fused rotations where the encoding describes itself
/// as one.
pub(crate) fn transform_qk(
    encoding: &dyn Prepared,
    layer: usize,
    q: Tensor<4>,
    k: Tensor<4>,
    hidden: &Tensor<3>,
) -> (Tensor<4>, Tensor<4>) {
    let Some(FusedQk {
        rotation, factor, ..
    }) = encoding.fused_qk(layer)
    else {
        return encoding.transform_qk(layer, q, k, hidden);
    };
    let (q, k) = match rotation.map(fused_rotation) {
        None => (q, k),
        Some(tables) => {
            let rotate =
                |x, [cos, sin]: [Tensor<4>; 2]| kernels::rotate(x, cos, sin, tables.interleaved);
            (rotate(q, tables.queries), rotate(k, tables.keys))
        }
    };
    // A factor on q is a factor on every logit.
    (if factor == 1.0 { q } else { q * factor }, k)
}

/// [`kernels::attention`] for queries and keys that may be wider than the values.
pub(crate) fn wide_attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    let ([batch, heads, keys, width], wide) = (v.dims(), q.dims()[3]);
    if wide == width {
        return kernels::attention(q, k, v, bias, scale, first_query);
    }
    // Values padded with 0 give the same first columns.
    let padding = Tensor::zeros([batch, heads, keys, wide - width], (&v.device(), v.dtype()));
    let v = Tensor::cat(vec![v, padding], 3);
    kernels::attention(q, k, v, bias, scale, first_query).slice_dim(3, 0..width)
}

/// What encodings are prepared with.
pub(crate) fn context(device: &Device) -> Context {
    Context::new(device).with_ops(&FusedOps)
}

/// The operations that encodings ask for, fused where the backend has them.
pub(crate) struct FusedOps;

impl Ops for FusedOps {
    fn matmul(&self, a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
        kernels::matmul(a, b, Matmul::F32)
    }

    fn rotate(&self, x: Tensor<4>, [cos, sin]: [Tensor<4>; 2], interleaved: bool) -> Tensor<4> {
        kernels::rotate(x, cos, sin, interleaved)
    }

    fn gather_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
        kernels::gather_columns(x, columns)
    }

    fn scatter_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
        kernels::scatter_columns(x, columns, n)
    }

    fn interpolate_columns(&self, x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
        kernels::interpolate_columns(x, at)
    }

    fn count_open_keys(&self, logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
        kernels::count_open_keys(logits, first_query, limit)
    }

    fn diagonal_network(&self, network: DiagonalNetwork) -> Tensor<4> {
        kernels::diagonal_network(fused_network(network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device, TensorData};
    use posenc::PlainOps;

    /// Numbers from 0 to 1 in no order.
    fn numbers(count: usize) -> Vec<f64> {
        (0..count).map(|i| (i * 37 % 101) as f64 / 101.0).collect()
    }

    #[test]
    fn fused_operations_are_those_that_encodings_define() {
        for dtype in [DType::F32, DType::F64] {
            let device = Device::flex();
            let tensor = |shape: [usize; 4]| {
                let data = TensorData::new(numbers(shape.iter().product()), shape);
                Tensor::<4>::from_data(data, (&device, dtype))
            };
            let flat = |count: usize| -> Tensor<1> {
                let x = tensor([1, 1, 1, count]);
                x.reshape([count])
            };
            let columns: Vec<i32> = (0..5 * 6).map(|i| i * 7 % 4).collect();
            let columns =
                Tensor::<4, Int>::from_data(TensorData::new(columns, [1, 1, 5, 6]), &device);
            let of = |ops: &dyn Ops| {
                let pairs = tensor([2, 3, 5, 6]);
                [
                    ops.matmul(tensor([2, 1, 5, 4]), tensor([2, 3, 4, 6])),
                    ops.gather_columns(tensor([2, 3, 5, 4]), columns.clone()),
                    ops.scatter_columns(pairs.clone(), columns.clone(), 4),
                    ops.interpolate_columns(tensor([2, 3, 5, 4]), pairs.clone() * 3.0),
                    ops.count_open_keys(pairs * 4.0 - 2.0, 1, 1.7),
                    ops.diagonal_network(DiagonalNetwork {
                        diagonals: flat(19) * 3.0,
                        units: flat(7) + 0.5,
                        hidden: [flat(9) - 0.5, flat(9) - 0.3],
                        weights: flat(45).reshape([9, 5]) - 0.6,
                        biases: flat(5),
                    }),
                ]
                .map(|x| x.into_data().iter::<f64>().collect::<Vec<f64>>())
            };
            for (fused, plain) in of(&FusedOps).into_iter().zip(of(&PlainOps)) {
                assert_eq!(fused.len(), plain.len());
                let close = fused.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-6);
                assert!(close, "{dtype:?}: {fused:?} is not {plain:?}");
            }
        }
    }
}
