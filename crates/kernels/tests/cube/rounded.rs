//! Products of rounded factors in f64: what formats of tensor cores mean.

use longreach_kernels::Matmul;

/// The nearest number of a format.
fn rounded(matmul: Matmul, x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    let bits = match matmul {
        Matmul::F32 => bits,
        // Halves away from zero, as NVIDIA converts.
        Matmul::Tf32 => (bits + 0x1000) & 0xffff_e000,
        // Halves to even.
        Matmul::Bf16 => (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000,
    };
    f64::from(f32::from_bits(bits))
}

/// `x w` of `[n, k]` and `[k, m]`, and the gradients of `x` and `w` for that of the product.
pub fn products(matmul: Matmul, [x, w, grad]: [&[f64]; 3], [n, k, m]: [usize; 3]) -> [Vec<f64>; 3] {
    let [x, w, grad] =
        [x, w, grad].map(|x| x.iter().map(|x| rounded(matmul, *x)).collect::<Vec<f64>>());
    let sums = |[rows, columns, summed]: [usize; 3], term: &dyn Fn(usize, usize, usize) -> f64| {
        (0..rows * columns)
            .map(|at| {
                let (i, j) = (at / columns, at % columns);
                (0..summed).map(|l| term(i, j, l)).sum()
            })
            .collect()
    };
    [
        sums([n, m, k], &|i, j, l| x[i * k + l] * w[l * m + j]),
        sums([n, k, m], &|i, j, l| grad[i * m + l] * w[j * m + l]),
        sums([k, m, n], &|i, j, l| x[l * k + i] * grad[l * m + j]),
    ]
}

/// The largest difference, relative to the largest number.
pub fn off(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let off = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    off.fold(0.0, f64::max) / largest
}
