//! RoPE in an attention of your own: logits depend on the distance of query and key only.
//!
//!     cargo run --release --example rope_in_attention

use burn::tensor::{Device, Tensor, TensorData, activation};
use posenc::prelude::*;
use posenc::{Context, encodings::RopeConfig};
use std::error::Error;

const SHAPE: ModelShape = ModelShape {
    d_model: 32,
    n_layers: 1,
    n_heads: 2,
    head_dim: 16,
};
const LENGTH: usize = 6;

/// Causal attention weights `[1, H, L, L]` of queries and keys `[1, H, L, E]` in layer 0.
fn weights(encoding: &dyn Prepared, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Tensor<4> {
    let (q, k) = encoding.transform_qk(0, q, k, hidden);
    let logits = q.matmul(k.transpose()) / (SHAPE.head_dim as f64).sqrt();
    let mask = Tensor::<2>::ones([LENGTH, LENGTH], &logits.device()).triu(1);
    let masked = logits.mask_fill(mask.bool().unsqueeze::<4>(), f64::NEG_INFINITY);
    activation::softmax(masked, 3)
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::default();
    let config: EncodingConfig = RopeConfig::default().into();
    let encoding = config.init(&SHAPE, &Init::zeros(&device))?;

    // The same vector at every position and in every head.
    let row: Vec<f64> = (0..SHAPE.head_dim).map(|i| (i as f64).sin()).collect();
    let count = SHAPE.n_heads * LENGTH;
    let shape = [1, SHAPE.n_heads, LENGTH, SHAPE.head_dim];
    let x = Tensor::<4>::from_data(TensorData::new(row.repeat(count), shape), &device);

    // What q and k are projected from: encodings that turn by content read it, RoPE does not.
    let hidden = Tensor::<3>::zeros([1, LENGTH, SHAPE.d_model], &device);
    for offset in [0, 1000] {
        let positions = Positions::from_offset(offset, LENGTH);
        let prepared = encoding.prepare(&positions, &Context::new(&device))?;
        let weights = weights(prepared.as_ref(), x.clone(), x.clone(), &hidden);
        let last = weights.slice([0..1, 0..1, LENGTH - 1..LENGTH, 0..LENGTH]);
        println!("weights of the last query, positions from {offset}:");
        println!(
            "  {:.4?}",
            last.into_data().convert::<f32>().try_to_vec::<f32>()?
        );
    }
    println!("Both lines agree: rotation leaves the dot product to the distance.");
    Ok(())
}
