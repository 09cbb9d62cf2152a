//! An encoding defined outside posenc, trained to count, by itself and in a stack with RoPE.
//!
//! `LogDistance` is the bias `-exp(s_h) ln(1 + |query - key|)` with one trained `s_h` per head, as in
//! logarithmic KERPLE. Run it with `cargo run --release --example custom_encoding`: it takes a few
//! seconds, prints the loss of every tenth step, and fails if training does not halve the loss.
//! `examples/outside` builds the same file as a crate outside the workspace.

use burn::module::{Module, ModuleDisplay, ModuleMapper, Param};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use posenc::encodings::Stack;
use posenc::{
    Bias, BiasBlocks, Context, Distribution, Encoding, EncodingConfig, Facts, Init,
    PositionalEncoding, Positions, PrepareResult, Prepared,
};
use std::ops::Range;
use tiny_transformer::{Pass, Transformer, TransformerConfig};

const VOCAB: usize = 16;
const ROWS: usize = 16;
const LENGTH: usize = 32;
const STEPS: u64 = 60;

/// The trained module: `[n_heads]` logarithms of the slopes.
#[derive(Module, Debug)]
struct LogDistance {
    log_slopes: Param<Tensor<1>>,
}

/// The encoding for the positions of one forward pass.
struct PreparedLogDistance {
    /// `[1, H, 1, 1]`.
    slopes: Tensor<4>,
    /// `-ln(1 + distance)` of all queries and keys, `[1, 1, Q, K]`.
    table: Tensor<4>,
}

impl PositionalEncoding for LogDistance {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let (queries, keys) = (positions.queries(), positions.keys());
        let table: Vec<f64> = queries
            .iter()
            .flat_map(|query| keys.iter().map(move |key| -(query - key).abs().ln_1p()))
            .collect();
        let table = TensorData::new(table, [1, 1, queries.len(), keys.len()]);
        let heads = self.log_slopes.dims()[0];
        Ok(Box::new(PreparedLogDistance {
            slopes: self.log_slopes.val().exp().reshape([1, heads, 1, 1]),
            table: Tensor::from_data(table, &context.device),
        }))
    }
}

impl Prepared for PreparedLogDistance {
    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(self))
    }
}

impl BiasBlocks for &PreparedLogDistance {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        self.table.clone().slice([0..1, 0..1, queries, keys]) * self.slopes.clone()
    }
}

/// A part of a mixed stack: an encoding of posenc, or ours.
#[derive(Module, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a model holds one encoding; a box would be no module"
)]
enum Part {
    Posenc(Encoding),
    LogDistance(LogDistance),
}

impl PositionalEncoding for Part {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        match self {
            Self::Posenc(encoding) => encoding.prepare(positions, context),
            Self::LogDistance(encoding) => encoding.prepare(positions, context),
        }
    }
}

/// Uniform numbers in [0, 1) from a counter (SplitMix64).
fn uniform(counter: &mut u64) -> f64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *counter;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Rows that count up from a random token: `[ROWS, LENGTH + 1]`.
fn batch(step: u64, device: &Device) -> Tensor<2, Int> {
    let mut counter = step;
    let mut tokens: Vec<i32> = Vec::with_capacity(ROWS * (LENGTH + 1));
    for _ in 0..ROWS {
        let first = (uniform(&mut counter) * VOCAB as f64) as usize;
        tokens.extend((first..=first + LENGTH).map(|token| (token % VOCAB) as i32));
    }
    Tensor::from_data(TensorData::new(tokens, [ROWS, LENGTH + 1]), device)
}

/// Gradient descent with gradients scaled to a norm of at most 1 per parameter.
struct Descent {
    gradients: Gradients,
    lr: f32,
}

impl ModuleMapper for Descent {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| match tensor.grad_remove(&mut self.gradients) {
            None => tensor,
            Some(gradient) => {
                let norm: f32 = gradient.clone().square().sum().sqrt().into_scalar();
                let step = gradient * (self.lr / norm.max(1.0));
                Tensor::from_inner(tensor.inner() - step).require_grad()
            }
        })
    }
}

/// Initial weights, from their path alone.
fn draw(path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let hash = |hash: u64, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte));
    let mut counter = path.bytes().fold(7, hash);
    let value = |_| match distribution {
        Distribution::Constant(value) => value,
        Distribution::Normal(std) => std * 12.0f64.sqrt() * (uniform(&mut counter) - 0.5),
        Distribution::Uniform(low, high) => low + (high - low) * uniform(&mut counter),
    };
    (0..shape.iter().product()).map(value).collect()
}

/// Trains a model and prints its loss at every tenth step.
fn train<E: Module + ModuleDisplay + PositionalEncoding>(
    name: &str,
    mut model: Transformer<E>,
    device: &Device,
) {
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let tokens = batch(step, device);
        let inputs = tokens.clone().slice([0..ROWS, 0..LENGTH]);
        let targets = tokens.slice([0..ROWS, 1..LENGTH + 1]);
        let positions = Positions::contiguous(LENGTH);
        let (nll, _) = model.nll(inputs, targets, &positions, &Pass::default());
        let loss = nll.mean();
        losses.push(loss.clone().inner().into_scalar::<f32>());
        let gradients = loss.backward();
        model = model.map(&mut Descent { gradients, lr: 0.3 });
        if (step + 1) % 10 == 0 {
            println!(
                "{name}, step {}: {:.3} nats",
                step + 1,
                losses[step as usize]
            );
        }
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(
        last < first / 2.0,
        "{name}: the loss went from {first} to {last}"
    );
}

fn main() {
    let device = Device::flex().autodiff();
    let config = TransformerConfig::new(VOCAB)
        .with_d_model(64)
        .with_layers(2);
    let init = Init::new(&device, &draw);
    let log_distance = || LogDistance {
        log_slopes: init.param("log_slopes", [config.n_heads], Distribution::Constant(0.0)),
    };
    let model = Transformer::with(&config, log_distance(), &init);
    train("log distance", model, &device);

    let (rope, shape) = (EncodingConfig::default_of("rope"), config.shape());
    let rope = rope.expect("rope needs no keys");
    let rotary = rope
        .init(&shape, &init.scope("rope"))
        .expect("rope fits the model");
    let parts = vec![
        (Part::Posenc(rotary), rope.facts(&shape)),
        (Part::LogDistance(log_distance()), Facts::default()),
    ];
    let stack = Stack::new(parts).expect("a rotation and a bias go together");
    train(
        "rope and log distance",
        Transformer::with(&config, stack, &init),
        &device,
    );
}
