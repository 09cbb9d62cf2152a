//! Formats that round the factors of products, against products in f64.

use crate::common::rounded::{off, products};
use crate::common::{input, noise, run};
use burn::tensor::DType;
use longreach_kernels::{Matmul, linear};

#[test]
fn linear_layers_multiply_rounded_factors() {
    for [n, k, m] in [[1, 1, 1], [3, 7, 5], [70, 64, 33], [130, 200, 96]] {
        let inputs = [input(&[n, k], 1), input(&[k, m], 2)];
        let grad = noise(n * m, 99);
        let numbers = [&inputs[0].values[..], &inputs[1].values, &grad];
        let exact = products(Matmul::F32, numbers, [n, k, m]);
        for (matmul, least) in [
            (Matmul::F32, 0.0),
            (Matmul::Tf32, 1e-5),
            (Matmul::Bf16, 1e-4),
        ] {
            let (output, grads) = run(&inputs, DType::F32, &|x| {
                let (x, w) = (x[0].clone().reshape([n, k]), x[1].clone().reshape([k, m]));
                linear(x, None, w, matmul).reshape([n * m])
            });
            let results = [&output, &grads[0], &grads[1]];
            let expected = products(matmul, numbers, [n, k, m]);
            for (i, (result, expected)) in results.into_iter().zip(&expected).enumerate() {
                let what = format!("{matmul:?} {n} {k} {m}, result {i}");
                let error = off(result, expected);
                assert!(error < 2e-6, "{what}: off by {error:e}");
                // It is not the product of the factors themselves.
                let rounding = off(result, &exact[i]);
                assert!(rounding >= least, "{what}: off by only {rounding:e}");
            }
        }
    }
}
