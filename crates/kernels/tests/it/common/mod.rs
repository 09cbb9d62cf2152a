//! What the tests share: numbers to work on, and comparison of an operation and its gradients with
//! its definition.

mod noise;

use burn::tensor::{DType, Device, Tensor, TensorData};
pub use noise::noise;

/// An input: its numbers. Operations give it its shape.
#[derive(Clone)]
pub struct Input {
    pub values: Vec<f64>,
}

/// A random input.
pub fn input(shape: &[usize], seed: u64) -> Input {
    Input {
        values: noise(shape.iter().product(), seed),
    }
}

impl Input {
    /// On the device, of one type, flat; the operation reshapes it.
    fn tensor(&self, device: &Device, dtype: DType) -> Tensor<1> {
        Tensor::from_data(
            TensorData::new(self.values.clone(), [self.values.len()]),
            (device, dtype),
        )
    }
}

pub fn to_f64<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

/// The output of `op` and the gradients of the sum of its products with fixed random numbers.
pub fn run(
    inputs: &[Input],
    dtype: DType,
    op: &dyn Fn(&[Tensor<1>]) -> Tensor<1>,
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let device = Device::flex().autodiff();
    let leaves: Vec<Tensor<1>> = inputs
        .iter()
        .map(|x| x.tensor(&device, dtype).require_grad())
        .collect();
    let output = op(&leaves);
    let n = output.dims()[0];
    let factors = Tensor::<1>::from_data(TensorData::new(noise(n, 99), [n]), (&device, dtype));
    let grads = (output.clone() * factors).sum_dim(0).backward();
    (
        to_f64(output.inner()),
        leaves
            .iter()
            .map(|x| to_f64(x.grad(&grads).expect("a gradient")))
            .collect(),
    )
}

/// Panics unless `|a - b| <= absolute + relative |b|` everywhere.
pub fn assert_close(what: &str, a: &[f64], b: &[f64], relative: f64, absolute: f64) {
    assert_eq!(a.len(), b.len(), "{what}: length");
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(
            (a - b).abs() <= absolute + relative * b.abs(),
            "{what}[{i}]: {a} is not {b}"
        );
    }
}

/// Compares a fused operation in f32 with its definition in f32 and f64, outputs and gradients, and
/// without autodiff. `leeway` scales the tolerance.
pub fn compare(
    leeway: f64,
    what: &str,
    inputs: &[Input],
    fused: &dyn Fn(&[Tensor<1>]) -> Tensor<1>,
    definition: &dyn Fn(&[Tensor<1>]) -> Tensor<1>,
) {
    let (output, grads) = run(inputs, DType::F32, fused);
    for dtype in [DType::F32, DType::F64] {
        let (expected, expected_grads) = run(inputs, dtype, definition);
        assert_close(
            &format!("{what} {dtype:?}"),
            &output,
            &expected,
            leeway * 1e-5,
            leeway * 2e-6,
        );
        for (i, (grad, expected)) in grads.iter().zip(&expected_grads).enumerate() {
            let largest = expected.iter().fold(0.0f64, |a, b| a.max(b.abs()));
            let absolute = leeway * 1e-5 * largest.max(0.1);
            assert_close(
                &format!("{what} {dtype:?} gradient {i}"),
                grad,
                expected,
                leeway * 1e-4,
                absolute,
            );
        }
    }
    let device = Device::flex();
    let plain: Vec<Tensor<1>> = inputs
        .iter()
        .map(|x| x.tensor(&device, DType::F32))
        .collect();
    assert_eq!(
        to_f64(fused(&plain)),
        output,
        "{what}: the same outside autodiff"
    );
    // The f64 path is the definition itself.
    assert_eq!(
        run(inputs, DType::F64, fused),
        run(inputs, DType::F64, definition),
        "{what}: f64"
    );
}

/// Compares the gradients of a definition in f64 with finite differences.
pub fn differences(what: &str, inputs: &[Input], definition: &dyn Fn(&[Tensor<1>]) -> Tensor<1>) {
    let device = Device::flex();
    let value = |inputs: &[Input]| -> f64 {
        let tensors: Vec<Tensor<1>> = inputs
            .iter()
            .map(|x| x.tensor(&device, DType::F64))
            .collect();
        let output = to_f64(definition(&tensors));
        output
            .iter()
            .zip(noise(output.len(), 99))
            .map(|(a, b)| a * b)
            .sum()
    };
    let (_, grads) = run(inputs, DType::F64, definition);
    for (which, grad) in grads.iter().enumerate() {
        for (i, grad) in grad
            .iter()
            .enumerate()
            .filter(|(i, _)| inputs[which].values[*i].is_finite())
        {
            let step = 1e-5;
            let [up, down] = [step, -step].map(|step| {
                let mut inputs = inputs.to_vec();
                inputs[which].values[i] += step;
                value(&inputs)
            });
            let slope = (up - down) / (2.0 * step);
            assert!(
                (slope - grad).abs() < 1e-7 + 1e-6 * grad.abs(),
                "{what}: input {which}[{i}]: {grad} is not {slope}"
            );
        }
    }
}

/// Runs an operation with 1, 2, 3 and 12 threads and checks that outputs and gradients agree in
/// every bit. The last is more than there are partial sums of a gradient.
pub fn same_for_any_threads(
    what: &str,
    inputs: &[Input],
    fused: &(dyn Fn(&[Tensor<1>]) -> Tensor<1> + Sync),
) {
    let mut results = [1, 2, 3, 12].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a thread pool");
        let (output, grads) = pool.install(|| run(inputs, DType::F32, fused));
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        (
            bits(output),
            grads.into_iter().map(bits).collect::<Vec<_>>(),
        )
    });
    let first = std::mem::take(&mut results[0]);
    for other in &results[1..] {
        assert!(
            first == *other,
            "{what}: not the same for every number of threads"
        );
    }
}
