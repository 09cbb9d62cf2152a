//! Times of the fused operations beside their definitions on the device, forward and backward, at
//! the sizes of training steps that people run:
//! `cargo test --release -p longreach-kernels --test cube --features wgpu -- --ignored --nocapture`,
//! with `SIZES=R` for one size.
//!
//! A definition of a product is the tensor library's, which rounds factors to TF32 where a device
//! has tensor cores.

use super::*;
use std::time::Instant;

/// A training step: tokens in rows, width of the model and of its MLP, heads, symbols.
struct Size {
    name: &'static str,
    batch: usize,
    length: usize,
    width: usize,
    inner: usize,
    heads: usize,
    vocab: usize,
}

/// Names and sizes, in the order of the fields.
const SIZES: [(&str, [usize; 6]); 4] = [
    ("small", [32, 64, 64, 256, 4, 64]),
    ("R", [32, 128, 128, 512, 4, 64]),
    ("32R", [64, 512, 512, 2048, 8, 64]),
    ("125M", [16, 512, 768, 3072, 12, 26000]),
];

/// The least time of a call in milliseconds, over several rows of calls. A row ends when its last
/// number is on the host.
fn least_ms(f: &dyn Fn() -> Tensor<4>) -> f64 {
    let row = |calls: usize| {
        let start = Instant::now();
        let mut last = f();
        for _ in 1..calls {
            last = f();
        }
        last.slice([0..1, 0..1, 0..1, 0..1]).into_scalar::<f32>();
        start.elapsed().as_secs_f64() * 1e3 / calls as f64
    };
    row(3);
    (0..5).map(|_| row(10)).fold(f64::INFINITY, f64::min)
}

/// The same with the backward pass; a call gives the gradient of its first leaf.
fn both_ways_ms(device: &Device, shapes: &[Vec<usize>], op: Op) -> f64 {
    let device = device.clone().autodiff();
    let inputs: Vec<Input> = shapes.iter().zip(1..).map(|(x, i)| input(x, i)).collect();
    let leaves = leaves(&device, &inputs);
    least_ms(&|| {
        let grads = op(&leaves).sum().backward();
        leaves[0].grad(&grads).expect("a gradient")
    })
}

fn print(size: &Size, what: &str, [fused, definition, around]: [f64; 3]) {
    let ratio = (definition - around).max(0.0) / (fused - around).max(1e-6);
    println!(
        "| {} | {what} | {fused:.3} | {definition:.3} | {around:.3} | {ratio:.2} |",
        size.name
    );
}

/// Both, and the sum of the output with its gradient, which both have around them.
fn time(device: &Device, size: &Size, what: &str, shapes: &[Vec<usize>], ops: [Op; 2]) {
    let [fused, definition] = ops.map(|op| both_ways_ms(device, shapes, op));
    let around = both_ways_ms(device, &shapes[..1], &|x| x[0].clone());
    print(size, what, [fused, definition, around]);
}

#[test]
#[ignore = "prints times; run it alone on an idle device"]
fn times_beside_definitions() {
    let Some(device) = &*DEVICE else { return };
    let asked = std::env::var("SIZES").ok();
    println!(
        "| size | operation | fused, ms | definition, ms | around both, ms | ratio without that |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, [batch, length, width, inner, heads, vocab]) in SIZES {
        let size = &Size {
            name,
            batch,
            length,
            width,
            inner,
            heads,
            vocab,
        };
        if asked
            .as_ref()
            .is_none_or(|names| names.split(',').any(|name| name == size.name))
        {
            attentions(device, size);
            products(device, size);
            others(device, size);
        }
    }
}

fn attentions(device: &Device, size: &Size) {
    let (b, h, l, e) = (size.batch, size.heads, size.length, size.width / size.heads);
    let x = vec![b, h, l, e];
    let scale = 1.0 / (e as f64).sqrt();
    for bias in [false, true] {
        let mut shapes = vec![x.clone(); 3];
        shapes.extend(bias.then(|| vec![1, h, l, l]));
        let apply = |attention: Attention, x: &[Tensor<4>]| {
            let [q, k, v] = [0, 1, 2].map(|i| x[i].clone());
            attention(q, k, v, x.get(3).cloned(), scale, 0)
        };
        let what = if bias {
            "attention with a trained bias"
        } else {
            "attention"
        };
        time(
            device,
            size,
            what,
            &shapes,
            [&|x| apply(longreach_kernels::attention, x), &|x| {
                apply(reference::attention, x)
            }],
        );
    }
    type Rotate = fn(Tensor<4>, Tensor<4>, Tensor<4>, bool) -> Tensor<4>;
    let table = vec![1, 1, l, e / 2];
    let rotate = |f: Rotate, x: &[Tensor<4>]| {
        f(
            x[0].clone(),
            x[1].clone().detach(),
            x[2].clone().detach(),
            false,
        )
    };
    time(
        device,
        size,
        "rotate",
        &[x, table.clone(), table],
        [&|x| rotate(longreach_kernels::rotate, x), &|x| {
            rotate(reference::rotate, x)
        }],
    );
}

fn products(device: &Device, size: &Size) {
    let tokens = size.batch * size.length;
    for [k, m] in [
        [size.width, 3 * size.width],
        [size.width, size.inner],
        [size.inner, size.width],
    ] {
        for (format, matmul) in [
            ("f32", Matmul::F32),
            ("tf32", Matmul::Tf32),
            ("bf16", Matmul::Bf16),
        ] {
            let shapes = [vec![1, 1, tokens, k], vec![1, 1, k, m]];
            let what = format!("product {tokens} x {k} x {m}, {format}");
            time(
                device,
                size,
                &what,
                &shapes,
                [
                    &|x| longreach_kernels::matmul(rows(&x[0]), rows(&x[1]), matmul).unsqueeze(),
                    &|x| reference::matmul(rows(&x[0]), rows(&x[1])).unsqueeze(),
                ],
            );
        }
    }
}

fn others(device: &Device, size: &Size) {
    let tokens = size.batch * size.length;
    let (x, hidden) = (
        vec![1, 1, tokens, size.width],
        vec![1, 1, tokens, size.inner],
    );
    let scale = vec![1, 1, 1, size.width];
    let norms = [x.clone(), scale.clone(), scale.clone()];
    time(
        device,
        size,
        "layer norm",
        &norms,
        [
            &|x| {
                longreach_kernels::layer_norm(rows(&x[0]), vector(&x[1]), vector(&x[2]), 1e-5)
                    .unsqueeze()
            },
            &|x| reference::layer_norm(rows(&x[0]), vector(&x[1]), vector(&x[2]), 1e-5).unsqueeze(),
        ],
    );
    time(
        device,
        size,
        "RMS norm",
        &norms[..2],
        [
            &|x| longreach_kernels::rms_norm(rows(&x[0]), vector(&x[1]), 1e-5).unsqueeze(),
            &|x| reference::rms_norm(rows(&x[0]), vector(&x[1]), 1e-5).unsqueeze(),
        ],
    );
    time(
        device,
        size,
        "GELU",
        std::slice::from_ref(&hidden),
        [
            &|x| longreach_kernels::gelu(rows(&x[0])).unsqueeze(),
            &|x| reference::gelu(rows(&x[0])).unsqueeze(),
        ],
    );
    time(
        device,
        size,
        "SwiGLU",
        &[hidden.clone(), hidden],
        [
            &|x| longreach_kernels::swiglu(rows(&x[0]), rows(&x[1])).unsqueeze(),
            &|x| reference::swiglu(rows(&x[0]), rows(&x[1])).unsqueeze(),
        ],
    );
    let ids = |shape: [usize; 2]| {
        let values: Vec<i32> = (0..tokens)
            .map(|i| (i * 7919 % size.vocab) as i32)
            .collect();
        Tensor::<2, Int>::from_data(TensorData::new(values, shape), &device.clone().autodiff())
    };
    let targets = ids([1, tokens]).reshape([tokens]);
    time(
        device,
        size,
        "loss",
        &[vec![1, 1, tokens, size.vocab]],
        [
            &|x| longreach_kernels::nll(rows(&x[0]), targets.clone()).unsqueeze(),
            &|x| reference::nll(rows(&x[0]), targets.clone()).unsqueeze(),
        ],
    );
    let text = ids([size.batch, size.length]);
    time(
        device,
        size,
        "embedding",
        &[vec![1, 1, size.vocab, size.width]],
        [
            &|x| longreach_kernels::embedding(rows(&x[0]), text.clone(), 1).unsqueeze(),
            &|x| reference::embedding(rows(&x[0]), text.clone(), 1).unsqueeze(),
        ],
    );
    updates(device, size);
}

/// AdamW and squared norms over the weights of four layers.
fn updates(device: &Device, size: &Size) {
    let w = size.width;
    let of_layer = [4 * w * w, 2 * w * size.inner, w, w];
    let lengths: Vec<usize> = (0..4).flat_map(|_| of_layer).collect();
    let ones = |n: &usize| Tensor::<1>::ones([*n], device);
    let [theta, grad, first, second] =
        [(); 4].map(|()| lengths.iter().map(ones).collect::<Vec<_>>());
    let all = || {
        let update = |i: usize| AdamWUpdate {
            theta: theta[i].clone(),
            grad: grad[i].clone(),
            moments: Some([first[i].clone(), second[i].clone()]),
            steps: vec![step(0)],
        };
        (0..lengths.len()).map(update).collect()
    };
    let [fused, definition] = [longreach_kernels::adamw_all, reference::adamw_all]
        .map(|update| least_ms(&|| update(all())[0][0].clone().unsqueeze()));
    print(size, "AdamW, four layers", [fused, definition, 0.0]);
    let [fused, definition] = [longreach_kernels::square_sums, reference::square_sums]
        .map(|sums| least_ms(&|| sums(grad.clone(), 1).unsqueeze()));
    print(size, "square sums, four layers", [fused, definition, 0.0]);
}
