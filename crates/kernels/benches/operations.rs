//! The cost of every operation beside its definition, the tensor library's product, or a copy of the
//! same number of bytes: `cargo bench --workspace --bench operations`, with `-- NAME` to select some
//! and `-- --test` to run each once.
//!
//! One thread and CPU time, so that other work on the machine matters little. Inputs are the same
//! every time. Sizes are those of a training step of the reference workload: 32 x 128 tokens,
//! d_model 128, d_ff 512, 4 heads. A backward pass begins by filling the gradient of the output with
//! ones. The library's products use the `gemm` crate, with AVX-512 under
//! `--features longreach-kernels/x86-v4`.

use burn::nn::RotaryEncodingConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group};
use longreach_kernels::{
    AdamWStep, AttentionWeights, Bias, Matmul, MlpWeights, Norm, Rotation, bench, reference,
};
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Duration;

#[path = "../tests/it/common/noise.rs"]
mod random;
/// As in the binary: what is measured is what runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TOKENS: usize = 4096;
const LENGTH: usize = 128;
const BATCH: usize = TOKENS / LENGTH;
const D: usize = 128;
const FF: usize = 512;
const HEADS: usize = 4;
const HEAD_DIM: usize = D / HEADS;
const VOCAB: usize = 64;

/// CPU time of this process; wall time on systems without it.
struct CpuTime(WallTime);

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        now()
    }
    fn end(&self, start: Duration) -> Duration {
        now() - start
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }
    fn zero(&self) -> Duration {
        Duration::ZERO
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        self.0.formatter()
    }
}

#[cfg(unix)]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn now() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

type Group<'a> = BenchmarkGroup<'a, CpuTime>;

fn group<'a>(c: &'a mut Criterion<CpuTime>, name: &str) -> Group<'a> {
    let mut group = c.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
}

/// Standard normal numbers.
fn noise<const N: usize>(shape: [usize; N], seed: u64) -> TensorData {
    let values: Vec<f32> = random::noise(shape.iter().product(), seed)
        .iter()
        .map(|x| *x as f32)
        .collect();
    TensorData::new(values, shape)
}

fn tensor<const N: usize>(shape: [usize; N], seed: u64) -> Tensor<N> {
    Tensor::from_data(noise(shape, seed), &Device::flex())
}

fn flat<const N: usize>(x: Tensor<N>) -> Tensor<1> {
    let n = x.dims().iter().product::<usize>();
    x.reshape([n])
}

type Op<'a> = &'a dyn Fn(&[Tensor<1>]) -> Tensor<1>;

/// The forward pass outside autodiff and the backward pass of an operation and its definition, over
/// flat inputs of these sizes.
fn pair(group: &mut Group<'_>, name: &str, sizes: &[usize], fused: Op<'_>, definition: Op<'_>) {
    let data = || sizes.iter().zip(1..).map(|(n, seed)| noise([*n], seed));
    let inputs: Vec<Tensor<1>> = data()
        .map(|x| Tensor::from_data(x, &Device::flex()))
        .collect();
    let device = Device::flex().autodiff();
    let leaves: Vec<Tensor<1>> = data()
        .map(|x| Tensor::<1>::from_data(x, &device).require_grad())
        .collect();
    for (who, op) in [("fused", fused), ("definition", definition)] {
        group.bench_function(format!("{name}, forward, {who}"), |b| {
            b.iter(|| op(&inputs))
        });
        group.bench_function(format!("{name}, backward, {who}"), |b| {
            b.iter_batched(
                || op(&leaves).sum_dim(0),
                |loss| loss.backward(),
                BatchSize::PerIteration,
            );
        });
    }
}

/// Matrix products as inside operations: the right-hand matrix is packed first, and nothing is
/// allocated.
fn products(c: &mut Criterion<CpuTime>) {
    let mut group = group(c, "product");
    // Count, n, k, m: chunks of linear layers, and the products of attention with 128 keys.
    let shapes = [
        [32, 128, 128, 384],
        [32, 128, 128, 512],
        [32, 128, 512, 128],
        [128, 128, 32, 128],
        [128, 128, 128, 32],
        [128, 32, 128, 32],
    ];
    for [count, n, k, m] in shapes {
        group.throughput(Throughput::Elements(2 * (count * n * k * m) as u64));
        let [a, b] = [noise([count, n, k], 1), noise([count, k, m], 2)];
        let [a_rows, b_rows] = [&a, &b].map(|x| x.as_slice::<f32>().expect("f32"));
        let (mut panels, mut y) = (vec![0.0; bench::packed_len(k, m)], vec![0.0; n * m]);
        group.bench_function(
            format!("{count} x [{n}, {k}] [{k}, {m}], ours"),
            |bencher| {
                bencher.iter(|| {
                    for (a, b) in a_rows.chunks(n * k).zip(b_rows.chunks(k * m)) {
                        bench::gemm(a, b, &mut y, [n, k, m], &mut panels);
                    }
                    black_box(&mut y);
                });
            },
        );
        group.bench_function(
            format!("{count} x [{n}, {k}]^T [{n}, {m}], ours"),
            |bencher| {
                // The gradient of a weight: `a^T` times as many rows.
                let b = vec![0.5; n * m];
                let (mut panels, mut y) = (vec![0.0; bench::packed_len(n, m)], vec![0.0; k * m]);
                bencher.iter(|| {
                    for a in a_rows.chunks(n * k) {
                        bench::gemm_transposed(a, &b, &mut y, [n, k, m], &mut panels);
                    }
                    black_box(&mut y);
                });
            },
        );
        let [a, b] = [a, b].map(|x| Tensor::<3>::from_data(x, &Device::flex()));
        group.bench_function(
            format!("{count} x [{n}, {k}] [{k}, {m}], gemm"),
            |bencher| {
                bencher.iter(|| a.clone().matmul(b.clone()));
            },
        );
    }
}

fn norm(scale: &Tensor<1>, shift: Option<&Tensor<1>>) -> Norm {
    Norm {
        scale: scale.clone(),
        shift: shift.cloned(),
        eps: 1e-5,
    }
}

fn linear(x: Tensor<2>, norm: Option<Norm>, w: Tensor<2>) -> Tensor<2> {
    longreach_kernels::linear(x, norm, w, Matmul::F32)
}

fn linear_layers(c: &mut Criterion<CpuTime>) {
    let mut group = group(c, "linear");
    for [k, m] in [[D, 3 * D], [D, D], [D, FF], [FF, D], [D, VOCAB]] {
        group.throughput(Throughput::Elements(2 * (TOKENS * k * m) as u64));
        let plain = |linear: fn(Tensor<2>, Option<Norm>, Tensor<2>) -> Tensor<2>| {
            move |x: &[Tensor<1>]| {
                flat(linear(
                    x[0].clone().reshape([TOKENS, k]),
                    None,
                    x[1].clone().reshape([k, m]),
                ))
            }
        };
        let sizes = [TOKENS * k, k * m];
        pair(
            &mut group,
            &format!("[{TOKENS}, {k}] [{k}, {m}]"),
            &sizes,
            &plain(linear),
            &plain(reference::linear),
        );
    }
    let normed = |linear: fn(Tensor<2>, Option<Norm>, Tensor<2>) -> Tensor<2>| {
        move |x: &[Tensor<1>]| {
            flat(linear(
                x[0].clone().reshape([TOKENS, D]),
                Some(norm(&x[1], Some(&x[2]))),
                x[3].clone().reshape([D, 3 * D]),
            ))
        }
    };
    group.throughput(Throughput::Elements(2 * (TOKENS * D * 3 * D) as u64));
    let sizes = [TOKENS * D, D, D, D * 3 * D];
    pair(
        &mut group,
        "after a LayerNorm, to 384",
        &sizes,
        &normed(linear),
        &normed(reference::linear),
    );
}

#[expect(clippy::too_many_lines, reason = "one list of blocks")]
fn model_blocks(c: &mut Criterion<CpuTime>) {
    let mut group = group(c, "block");
    for gated in [false, true] {
        let mlp = |mlp: fn(Tensor<2>, Norm, MlpWeights) -> Tensor<2>| {
            move |x: &[Tensor<1>]| {
                let [up, gate] = [3, 5].map(|i| x.get(i).map(|x| x.clone().reshape([D, FF]) * 0.1));
                let weights = MlpWeights {
                    up: up.expect("an input").into(),
                    gate: gate.map(Into::into),
                    down: (x[4].clone().reshape([FF, D]) * 0.1).into(),
                    matmul: Matmul::F32,
                };
                flat(mlp(
                    x[0].clone().reshape([TOKENS, D]),
                    norm(&x[1], Some(&x[2])),
                    weights,
                ))
            }
        };
        let mut sizes = vec![TOKENS * D, D, D, D * FF, FF * D];
        sizes.extend(gated.then_some(D * FF));
        let name = format!("feed-forward, {}", if gated { "SwiGLU" } else { "GELU" });
        pair(
            &mut group,
            &name,
            &sizes,
            &mlp(longreach_kernels::mlp),
            &mlp(reference::mlp),
        );
    }
    let [cos, sin] = tables(LENGTH, HEAD_DIM / 2);
    let rotation = || Rotation {
        queries: [cos.clone(), sin.clone()],
        keys: [cos.clone(), sin.clone()],
        interleaved: false,
    };
    for (name, rotated, biased) in [
        ("nothing", false, false),
        ("rotation", true, false),
        ("bias by distance", false, true),
    ] {
        let attention = |block: fn(
            Tensor<3>,
            Norm,
            AttentionWeights,
            Option<Rotation>,
            Option<Bias>,
            f64,
        ) -> Tensor<3>| {
            move |x: &[Tensor<1>]| {
                let [qkv, output] = [
                    x[3].clone().reshape([D, 3 * D]) * 0.1,
                    x[4].clone().reshape([D, D]) * 0.1,
                ];
                let weights = AttentionWeights {
                    qkv: qkv.into(),
                    output: output.into(),
                    heads: HEADS,
                    matmul: Matmul::F32,
                };
                let bias =
                    biased.then(|| Bias::ByDistance(x[5].clone().reshape([1, HEADS, LENGTH])));
                let x = (
                    x[0].clone().reshape([BATCH, LENGTH, D]),
                    norm(&x[1], Some(&x[2])),
                );
                flat(block(
                    x.0,
                    x.1,
                    weights,
                    rotated.then(rotation),
                    bias,
                    1.0 / (HEAD_DIM as f64).sqrt(),
                ))
            }
        };
        let mut sizes = vec![TOKENS * D, D, D, D * 3 * D, D * D];
        sizes.extend(biased.then_some(HEADS * LENGTH));
        pair(
            &mut group,
            &format!("attention, {name}"),
            &sizes,
            &attention(longreach_kernels::attention_block),
            &attention(reference::attention_block),
        );
    }
}

#[expect(clippy::too_many_lines, reason = "one list of operations")]
fn pieces(c: &mut Criterion<CpuTime>) {
    let mut group = group(c, "piece");
    let rows = |width: usize| move |x: &Tensor<1>| x.clone().reshape([TOKENS, width]);
    let (narrow, wide, classes) = (rows(D), rows(FF), rows(VOCAB));
    group.throughput(Throughput::Elements((TOKENS * D) as u64));
    pair(
        &mut group,
        "LayerNorm",
        &[TOKENS * D, D, D],
        &|x| {
            flat(longreach_kernels::layer_norm(
                narrow(&x[0]),
                x[1].clone(),
                x[2].clone(),
                1e-5,
            ))
        },
        &|x| {
            flat(reference::layer_norm(
                narrow(&x[0]),
                x[1].clone(),
                x[2].clone(),
                1e-5,
            ))
        },
    );
    pair(
        &mut group,
        "RMSNorm",
        &[TOKENS * D, D],
        &|x| {
            flat(longreach_kernels::rms_norm(
                narrow(&x[0]),
                x[1].clone(),
                1e-5,
            ))
        },
        &|x| flat(reference::rms_norm(narrow(&x[0]), x[1].clone(), 1e-5)),
    );
    group.throughput(Throughput::Elements((TOKENS * FF) as u64));
    let sizes = [TOKENS * FF];
    pair(
        &mut group,
        "GELU",
        &sizes,
        &|x| flat(longreach_kernels::gelu(wide(&x[0]))),
        &|x| flat(reference::gelu(wide(&x[0]))),
    );
    let swiglu = |swiglu: fn(Tensor<2>, Tensor<2>) -> Tensor<2>| {
        move |x: &[Tensor<1>]| flat(swiglu(wide(&x[0]), wide(&x[1])))
    };
    pair(
        &mut group,
        "SwiGLU",
        &[TOKENS * FF; 2],
        &swiglu(longreach_kernels::swiglu),
        &swiglu(reference::swiglu),
    );
    group.throughput(Throughput::Elements((TOKENS * VOCAB) as u64));
    let nll = |nll: fn(Tensor<2>, Tensor<1, Int>) -> Tensor<1>| {
        move |x: &[Tensor<1>]| {
            let targets: Vec<i32> = (0..TOKENS).map(|i| ((i * 7919) % VOCAB) as i32).collect();
            nll(
                classes(&x[0]),
                Tensor::from_data(TensorData::new(targets, [TOKENS]), &x[0].device()),
            )
        }
    };
    pair(
        &mut group,
        "softmax and loss",
        &[TOKENS * VOCAB],
        &nll(longreach_kernels::nll),
        &nll(reference::nll),
    );
    let attention = |attention: fn(
        Tensor<4>,
        Tensor<4>,
        Tensor<4>,
        Option<Tensor<4>>,
        f64,
        usize,
    ) -> Tensor<4>| {
        move |x: &[Tensor<1>]| {
            let head = |x: &Tensor<1>| {
                x.clone()
                    .reshape([BATCH, LENGTH, HEADS, HEAD_DIM])
                    .swap_dims(1, 2)
            };
            flat(
                attention(
                    head(&x[0]),
                    head(&x[1]),
                    head(&x[2]),
                    None,
                    1.0 / (HEAD_DIM as f64).sqrt(),
                    0,
                )
                .swap_dims(1, 2),
            )
        }
    };
    group.throughput(Throughput::Elements((TOKENS * D) as u64));
    pair(
        &mut group,
        "attention by itself",
        &[TOKENS * D; 3],
        &attention(longreach_kernels::attention),
        &attention(reference::attention),
    );
}

fn updates(c: &mut Criterion<CpuTime>) {
    let mut group = group(c, "update");
    let n = 813_000;
    group.throughput(Throughput::Elements(n as u64));
    let step = AdamWStep {
        grad_scale: 0.7,
        beta1: 0.9,
        beta2: 0.999,
        root: 0.3,
        eps: 1e-8,
        rate: 3e-3,
        keep: 0.999,
    };
    let data = [1, 2, 3, 4].map(|seed| noise([n], seed));
    type Update = fn(Tensor<1>, Tensor<1>, Option<[Tensor<1>; 2]>, &[AdamWStep]) -> [Tensor<1>; 3];
    for (who, adamw) in [
        ("fused", longreach_kernels::adamw as Update),
        ("definition", reference::adamw),
    ] {
        group.bench_function(format!("AdamW, {who}"), |b| {
            // Fresh tensors, which may be updated where they lie, as in training.
            let setup = || data.clone().map(|x| Tensor::from_data(x, &Device::flex()));
            let update = |[theta, grad, first, second]: [Tensor<1>; 4]| {
                adamw(theta, grad, Some([first, second.square()]), &[step])
            };
            b.iter_batched(setup, update, BatchSize::PerIteration);
        });
    }
}

/// Cos and sin of some angles.
fn tables(length: usize, pairs: usize) -> [Tensor<4>; 2] {
    let angle = |i: usize| (i / pairs) as f64 / 10_000f64.powf((i % pairs) as f64 / pairs as f64);
    [f64::cos, f64::sin].map(|f| {
        let values: Vec<f32> = (0..length * pairs).map(|i| f(angle(i)) as f32).collect();
        Tensor::from_data(
            TensorData::new(values, [1, 1, length, pairs]),
            &Device::flex(),
        )
    })
}

/// Rotation beside a copy, which reads and writes the same number of bytes.
fn rotations(c: &mut Criterion<CpuTime>) {
    let mut group = group(c, "rotation");
    for length in [4096, 16384] {
        let shape = [4, 4, length, 64];
        let n: usize = shape.iter().product();
        group.throughput(Throughput::Bytes(8 * n as u64));
        let data = noise(shape, 1);
        let values = data.as_slice::<f32>().expect("f32");
        let name = |who: &str| format!("[4, 4, {length}, 64], {who}");
        let mut target = vec![0.0f32; n];
        group.bench_function(name("copy to warm memory"), |b| {
            b.iter(|| {
                target.copy_from_slice(black_box(values));
                black_box(&mut target);
            });
        });
        group.bench_function(name("copy to new memory"), |b| {
            b.iter(|| black_box(values).to_vec())
        });
        let x = tensor(shape, 1);
        let joined = tensor([4, length, 4, 64], 1).swap_dims(1, 2);
        let [cos, sin] = tables(length, 32);
        for (layout, interleaved) in [("half", false), ("interleaved", true)] {
            for (lies, x) in [("by head", &x), ("by position", &joined)] {
                let run = |b: &mut criterion::Bencher<'_, CpuTime>, rotate: fn(Tensor<4>, Tensor<4>, Tensor<4>, bool) -> Tensor<4>| {
                    b.iter(|| rotate(x.clone(), cos.clone(), sin.clone(), interleaved));
                };
                group.bench_function(name(&format!("{layout}, {lies}, fused")), |b| {
                    run(b, longreach_kernels::rotate)
                });
                group.bench_function(name(&format!("{layout}, {lies}, definition")), |b| {
                    run(b, reference::rotate)
                });
            }
        }
        let library = RotaryEncodingConfig::new(length, 64).init(&Device::flex());
        group.bench_function(name("burn::nn::RotaryEncoding, by head"), |b| {
            b.iter(|| library.forward(x.clone()))
        });
    }
}

fn config() -> Criterion<CpuTime> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build_global()
        .expect("no thread has been asked for before");
    let (warm_up, measurement) = (Duration::from_millis(500), Duration::from_secs(2));
    Criterion::default()
        .with_measurement(CpuTime(WallTime))
        .warm_up_time(warm_up)
        .measurement_time(measurement)
        .sample_size(20)
}

criterion_group! { name = operations; config = config(); targets = products, linear_layers, model_blocks, pieces, updates, rotations }

/// Runs itself again with the allocator setting that `longreach run` gives its workers: freed memory
/// stays mapped. The allocator reads it before `main`.
fn main() -> ExitCode {
    const SETTING: &str = "MIMALLOC_PURGE_DELAY";
    if std::env::var_os(SETTING).is_none() {
        let program = std::env::current_exe().expect("this program has a place");
        let status = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(SETTING, "10000")
            .status();
        return if status.is_ok_and(|status| status.success()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    operations();
    Criterion::default().configure_from_args().final_summary();
    ExitCode::SUCCESS
}
