//! What a training step and an evaluation cost, by the code that runs train and evaluate with:
//! `cargo run --release -p longreach --example step -- --pe alibi`, `... -- --what eval --batch 4
//! --seq-len 2048`.
//!
//! `--what rotate` turns one tensor `[batch, n_heads, seq_len, d_model / n_heads]` instead.
//! `--what multiply-adds` measures a loop of them without memory access: the limit of this machine.
//!
//! `--device wgpu --launches`, with the feature of that device, also prints how often a step launches
//! each kernel.
//!
//! `--simulate 1,8,32` runs steps on one thread, times every parallel task, and prints an estimate
//! of the step time on 1, 8 and 32 threads, one JSON line each.
//!
//! Prints one JSON line with the median and the least time of a step, its mean CPU time and the
//! peak of the process's memory. `RAYON_NUM_THREADS` sets the threads; `scripts/bench` runs it in
//! turn with PyTorch.

use burn::tensor::Tensor;
use clap::{Parser, ValueEnum};
use experiment::device::{self, DeviceName};
use experiment::plan::memory;
use experiment::run::model::{initial_model, upload};
use experiment::run::train::{Member, Watch, train_together};
use experiment::spec::MAX_LOGITS;
use experiment::spec::RunSpec;
use kernels::Launches;
use kernels::bench::recording;
use posenc::{EncodingConfig, Lengths};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tasks::{Batch, Scoring, Stream, Task};
use tiny_transformer::Pass;

/// As in the binary: what is measured is what runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    Train,
    Eval,
    Rotate,
    MultiplyAdds,
}

impl What {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("none is hidden");
        value.get_name().to_owned()
    }
}

#[derive(Parser)]
struct Args {
    #[arg(long, value_enum, default_value = "train")]
    what: What,
    /// A kind of encoding with its defaults, or its table as JSON.
    #[arg(long, default_value = "rope")]
    pe: String,
    #[arg(long, default_value_t = 32)]
    batch: usize,
    #[arg(long, default_value_t = 128)]
    seq_len: usize,
    #[arg(long, default_value_t = 128)]
    d_model: usize,
    #[arg(long, default_value_t = 512)]
    d_ff: usize,
    #[arg(long, default_value_t = 4)]
    n_heads: usize,
    #[arg(long, default_value_t = 4)]
    n_layers: usize,
    #[arg(long, default_value_t = 64)]
    vocab: usize,
    #[arg(long, default_value = "gelu")]
    activation: String,
    #[arg(long, default_value = "softmax")]
    attention: String,
    #[arg(long, default_value = "f32")]
    matmul: String,
    /// Runs that are trained together, each with its own seed.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Steps measured.
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Steps before these.
    #[arg(long, default_value_t = 3)]
    warm_up: usize,
    /// As `--device` of the binary.
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// Also prints the kernels that a step launches on a device of CubeCL, most often first.
    #[arg(long)]
    launches: bool,
    /// Numbers of threads to work out the time of a step for.
    #[arg(long, value_delimiter = ',')]
    simulate: Vec<usize>,
    /// Microseconds it takes to wake and to join the threads of a parallel loop.
    #[arg(long, default_value_t = 10)]
    wake_us: u64,
    /// Also prints where the parallel loops of the last step are, longest first.
    #[arg(long)]
    loops: bool,
}

/// Random tokens, each of which is its own target.
struct Echo {
    vocab: usize,
}

impl Task for Echo {
    fn kind(&self) -> &'static str {
        "echo"
    }
    fn vocab_size(&self) -> usize {
        self.vocab
    }
    fn unit(&self) -> &'static str {
        "tokens"
    }
    fn seq_len(&self, length: usize) -> usize {
        length
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let mut stream = Stream::new(seed, "echo", step);
        let inputs: Vec<i32> = (0..rows * length)
            .map(|_| stream.below(self.vocab as u64) as i32)
            .collect();
        Batch {
            rows,
            seq_len: length,
            targets: inputs.clone(),
            counted: vec![true; inputs.len()],
            inputs,
        }
    }
    fn test_rows(&self, _length: usize) -> usize {
        0
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        self.train_batch(length, rows, 1, first_row as u64)
    }
    fn scoring(&self) -> Scoring {
        Scoring::LanguageModel
    }
    fn primary_metric(&self) -> &'static str {
        "loss_nats"
    }
    fn definitions(&self, _: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    fn chance(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}

fn spec(args: &Args) -> anyhow::Result<RunSpec> {
    let table = if args.pe.starts_with('{') {
        args.pe.clone()
    } else {
        json!({ "kind": args.pe }).to_string()
    };
    let mut encoding: EncodingConfig = serde_json::from_str(&table)?;
    encoding.resolve(&Lengths {
        train_len: args.seq_len,
        trained_len: args.seq_len,
        test_len: args.seq_len,
    });
    Ok(serde_json::from_value(json!({
        "task": { "kind": "copy" },
        "corpus_blake3": null,
        "model": {
            "vocab_size": args.vocab, "d_model": args.d_model, "n_layers": args.n_layers, "n_heads": args.n_heads,
            "head_dim": args.d_model / args.n_heads, "d_ff": args.d_ff, "norm": "layer_norm", "activation": args.activation, "attention": args.attention,
            "tied_head": false, "dropout": 0.0, "embedding_std": 0.02, "matmul": args.matmul,
            "pe": encoding,
        },
        "train": {
            "train_len": args.seq_len, "seq_len": args.seq_len, "steps": args.steps + args.warm_up, "batch_size": args.batch, "length": "fixed",
            "min_len": 1, "lr": 1e-3, "warmup_steps": 0, "final_lr": 1.0, "grad_clip": 1.0, "adamw": {},
        },
        "eval": { "test_lens": [], "seed": 0, "batch_tokens": 0, "variants": [] },
        "seed": 0,
    }))?)
}

/// Time this process has computed, on all threads; 0 where the system does not say.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    // User and system time, in hundredths of a second.
    fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.what == What::MultiplyAdds {
        println!("{}", json!({"gflops": multiply_adds()}));
        return Ok(());
    }
    if args.simulate.is_empty() {
        // As `longreach run` does.
        return kernels::on_threads(|| measure(&args))?;
    }
    // One thread also for the loops of the tensor library, which are not recorded.
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .stack_size(8 << 20)
        .build_global()?;
    kernels::on_threads(|| args.simulate.iter().try_for_each(|n| simulate(&args, *n)))?
}

/// Prints what a step takes on one thread, and what it would take on `threads`.
fn simulate(args: &Args, threads: usize) -> anyhow::Result<()> {
    let (mut one, mut many, mut loops) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::new();
    let overhead = Duration::from_micros(args.wake_us);
    recording::start(threads);
    steps(args, &mut || {
        if let Some((recording, took)) = recording::finish() {
            let parallel = recording.work();
            one.push(took);
            loops.push(parallel);
            many.push(took - parallel + recording.elapsed(overhead));
            places = recording.places();
        }
        recording::start(threads);
    })?;
    recording::finish();
    let [one, many, parallel] = [one, many, loops].map(|mut times| {
        // The least: on one thread a disturbance is waited for by all simulated ones.
        let least = times.drain(args.warm_up..).min().unwrap_or_default();
        least.as_secs_f64() * 1e3
    });
    println!(
        "{}",
        json!({
            "simulated_threads": threads, "what": args.what.name(), "pe": args.pe,
            "batch": args.batch, "seq_len": args.seq_len, "d_model": args.d_model, "matmul": args.matmul,
            "one_thread_ms": round(one), "of_which_parallel_ms": round(parallel), "simulated_ms": round(many),
            "speed_up": round(one / many),
        })
    );
    for place in places.iter().filter(|_| args.loops) {
        let times = [place.before, place.elapsed, place.work];
        let [before, elapsed, work] = times.map(|time| time.as_secs_f64() * 1e3);
        println!(
            "{before:8.3} ms before, {elapsed:8.3} ms for {work:8.3} ms, {:4} tasks of {:3} loops: {}",
            place.tasks, place.loops, place.at
        );
    }
    Ok(())
}

/// To the thousandth.
fn round(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

/// GFLOP/s of multiply-adds in registers on one thread: the median of nine loops.
fn multiply_adds() -> f64 {
    let mut speeds = [(); 9].map(|()| {
        let start = Instant::now();
        kernels::bench::multiply_adds(4_000_000) as f64 / start.elapsed().as_secs_f64() / 1e9
    });
    speeds.sort_by(f64::total_cmp);
    speeds[4]
}

fn measure(args: &Args) -> anyhow::Result<()> {
    let watched = if args.launches {
        Launches::watch()
    } else {
        None
    };
    let mut launches = BTreeMap::new();
    let (mut times, mut cpu, mut since) = (Vec::new(), cpu_time(), Instant::now());
    let losses = steps(args, &mut || {
        times.push(since.elapsed().as_secs_f64() * 1e3);
        if times.len() == args.warm_up {
            cpu = cpu_time();
        }
        let step = watched.as_ref().map_or_else(BTreeMap::new, Launches::take);
        // The first step of a model differs: its moments are 0.
        if times.len() > args.warm_up {
            for (kernel, count) in step {
                *launches.entry(kernel).or_insert(0) += count;
            }
        }
        since = Instant::now();
    })?;
    let mut times = times.split_off(args.warm_up);
    let cpu_ms = (cpu_time() - cpu) * 1e3 / times.len() as f64;
    times.sort_by(f64::total_cmp);
    let threads = std::env::var("RAYON_NUM_THREADS").ok();
    println!(
        "{}",
        json!({
            "peer": "longreach", "what": args.what.name(), "pe": args.pe, "threads": threads,
            "device": args.device.to_string(),
            "runs": args.runs, "batch": args.batch, "seq_len": args.seq_len, "d_model": args.d_model, "matmul": args.matmul,
            "median_ms": round(times[times.len() / 2]), "min_ms": round(times[0]), "cpu_ms": round(cpu_ms),
            "peak_mib": memory::peak_of_host().map(|bytes| bytes >> 20),
            "first_loss": losses.first(), "last_loss": losses.last(),
        })
    );
    if args.launches {
        print_launches(launches, times.len());
    }
    Ok(())
}

/// Prints launches per step, counted over `steps`.
fn print_launches(launches: BTreeMap<String, usize>, steps: usize) {
    let mut launches = Vec::from_iter(launches);
    // Kernels launched equally often stay sorted by name.
    launches.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let per_step = |count: usize| count as f64 / steps as f64;
    let total: usize = launches.iter().map(|(_, count)| count).sum();
    println!("{:8.1} launches in a step", per_step(total));
    for (kernel, count) in launches {
        println!("{:8.1} {kernel}", per_step(count));
    }
}

/// Runs all steps, calls `done` after each, and returns the losses of training.
fn steps(args: &Args, done: &mut dyn FnMut()) -> anyhow::Result<Vec<f64>> {
    let spec = spec(args)?;
    let task = Echo { vocab: args.vocab };
    let device = device::open(&args.device).map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    let mut losses = Vec::new();
    match args.what {
        What::Train => {
            let specs = (0..args.runs).map(|seed| RunSpec {
                seed,
                ..spec.clone()
            });
            let specs: Vec<RunSpec> = specs.collect();
            let seen = RefCell::new((&mut losses, done));
            let member = |spec: &'_ RunSpec| -> Box<Watch<'_>> {
                // The losses are those of the first run, and a step ends with the last.
                let (first, last) = (spec.seed == 0, spec.seed + 1 == args.runs);
                let seen = &seen;
                Box::new(move |step, _| {
                    let (losses, done) = &mut *seen.borrow_mut();
                    if first {
                        losses.push(step.loss_nats);
                    }
                    if last {
                        done();
                    }
                    Ok(true)
                })
            };
            let members = specs.iter().map(|spec| Member {
                spec,
                task: &task,
                start: None,
                watch: member(spec),
            });
            train_together(members.collect(), &device)
                .map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        }
        What::Eval => {
            let model = initial_model(&spec, &device).expect("a resolved spec");
            let pass = Pass {
                max_logits: MAX_LOGITS,
                ..Pass::default()
            };
            for step in 0..args.steps + args.warm_up {
                let batch = task.test_batch(args.seq_len, step, args.batch);
                let positions = spec.train_positions(args.seq_len, 0);
                let (inputs, targets) = upload(&batch, &device);
                drop(model.nll(inputs, targets, &positions, &pass).0.into_data());
                done();
            }
        }
        What::MultiplyAdds => unreachable!("measured before"),
        What::Rotate => {
            let (heads, head_dim) = (args.n_heads, args.d_model / args.n_heads);
            let x = Tensor::<4>::ones([args.batch, heads, args.seq_len, head_dim], &device);
            let table = Tensor::<4>::ones([1, 1, args.seq_len, head_dim / 2], &device) * 0.7;
            for _ in 0..args.steps + args.warm_up {
                drop(kernels::rotate(
                    x.clone(),
                    table.clone(),
                    table.clone(),
                    false,
                ));
                done();
            }
        }
    }
    Ok(losses)
}
