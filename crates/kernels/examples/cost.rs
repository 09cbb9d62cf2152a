//! What each fused operation costs, forward and backward, beside its definition: `cargo run --release -p kernels --example cost`.
//!
//! Minimum over many repetitions; set `RAYON_NUM_THREADS=1` for one thread. An argument selects operations by the start of
//! their name.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use kernels::reference;
use std::time::Instant;

type Op<'a> = Box<dyn Fn(&[Tensor<1>]) -> Tensor<1> + 'a>;

fn flat<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let n = x.dims().iter().product::<usize>();
    x.reshape([n])
}

fn measure(name: &str, sizes: &[usize], ops: [Op<'_>; 2]) {
    if !std::env::args().nth(1).is_none_or(|prefix| name.starts_with(&prefix)) {
        return;
    }
    let device = Device::flex().autodiff();
    let inputs: Vec<Tensor<1>> = sizes.iter().map(|n| Tensor::random([*n], Distribution::Normal(0.0, 1.0), &device)).collect();
    let mut columns = Vec::new();
    for op in ops {
        let (mut forward, mut backward) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..repetitions() {
            let leaves: Vec<Tensor<1>> = inputs.iter().map(|x| x.clone().require_grad()).collect();
            let start = Instant::now();
            let output = op(&leaves);
            forward = forward.min(start.elapsed().as_secs_f64());
            let loss = output.sum_dim(0);
            let start = Instant::now();
            drop(loss.backward());
            backward = backward.min(start.elapsed().as_secs_f64());
        }
        columns.push(format!("{:8.3} {:8.3}", 1e3 * forward, 1e3 * backward));
    }
    println!("{name:44} fused {}   definition {}  ms forward, backward", columns[0], columns[1]);
}

fn repetitions() -> usize {
    std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(30)
}

fn rows(n: usize, width: usize) -> impl Fn(&Tensor<1>) -> Tensor<2> {
    move |x| x.clone().reshape([n, width])
}

fn attention(batch: usize, heads: usize, length: usize, head_dim: usize, biased: bool) {
    let view = move |x: &Tensor<1>| x.clone().reshape([batch, length, heads, head_dim]).swap_dims(1, 2);
    let bias = move |x: &[Tensor<1>]| x.get(3).map(|x| x.clone().reshape([1, heads, length, length]));
    let n = batch * heads * length * head_dim;
    let mut sizes = vec![n; 3];
    if biased {
        sizes.push(heads * length * length);
    }
    let scale = 1.0 / (head_dim as f64).sqrt();
    let join = |x: Tensor<4>| flat(x.swap_dims(1, 2));
    measure(
        &format!("attention [{batch}, {heads}, {length}, {head_dim}]{}", if biased { " + bias" } else { "" }),
        &sizes,
        [
            Box::new(|x| join(kernels::attention(view(&x[0]), view(&x[1]), view(&x[2]), bias(x), scale, 0))),
            Box::new(|x| join(reference::attention(view(&x[0]), view(&x[1]), view(&x[2]), bias(x), scale, 0))),
        ],
    );
}

fn main() {
    let n = 2048;
    let (d, ff, vocab) = (64, 256, 256);
    let targets = |x: &Tensor<1>| {
        let targets: Vec<i32> = (0..n).map(|i| ((i * 7919) % vocab) as i32).collect();
        Tensor::<1, Int>::from_data(TensorData::new(targets, [n]), &x.device())
    };
    let logits = rows(n, vocab);
    measure(
        "nll [2048, 256]",
        &[n * vocab],
        [Box::new(|x| kernels::nll(logits(&x[0]), targets(&x[0]))), Box::new(|x| reference::nll(logits(&x[0]), targets(&x[0])))],
    );
    let narrow = rows(n, d);
    measure(
        "layer_norm [2048, 64]",
        &[n * d, d, d],
        [
            Box::new(|x| flat(kernels::layer_norm(narrow(&x[0]), x[1].clone(), x[2].clone(), 1e-5))),
            Box::new(|x| flat(reference::layer_norm(narrow(&x[0]), x[1].clone(), x[2].clone(), 1e-5))),
        ],
    );
    measure(
        "rms_norm [2048, 64]",
        &[n * d, d],
        [
            Box::new(|x| flat(kernels::rms_norm(narrow(&x[0]), x[1].clone(), 1e-5))),
            Box::new(|x| flat(reference::rms_norm(narrow(&x[0]), x[1].clone(), 1e-5))),
        ],
    );
    let wide = rows(n, ff);
    measure(
        "gelu [2048, 256]",
        &[n * ff],
        [Box::new(|x| flat(kernels::gelu(wide(&x[0])))), Box::new(|x| flat(reference::gelu(wide(&x[0]))))],
    );
    measure(
        "swiglu [2048, 256]",
        &[n * ff; 2],
        [Box::new(|x| flat(kernels::swiglu(wide(&x[0]), wide(&x[1])))), Box::new(|x| flat(reference::swiglu(wide(&x[0]), wide(&x[1]))))],
    );
    attention(32, 4, 64, 16, false);
    attention(32, 4, 64, 16, true);
    attention(32, 4, 128, 32, false);
    attention(4, 4, 512, 32, true);
    attention(1, 4, 2048, 32, false);
    let view = |x: &Tensor<1>| x.clone().reshape([32, 64, 4, 16]).swap_dims(1, 2);
    for interleaved in [false, true] {
        let angles = |x: &Tensor<1>| Tensor::<4>::ones([1, 1, 64, 8], &x.device()) * 0.5;
        measure(
            &format!("rotate [32, 4, 64, 16] {}", if interleaved { "interleaved" } else { "half" }),
            &[n * d],
            [
                Box::new(move |x| flat(kernels::rotate(view(&x[0]), angles(&x[0]), angles(&x[0]), interleaved).swap_dims(1, 2))),
                Box::new(move |x| flat(reference::rotate(view(&x[0]), angles(&x[0]), angles(&x[0]), interleaved).swap_dims(1, 2))),
            ],
        );
    }
}
