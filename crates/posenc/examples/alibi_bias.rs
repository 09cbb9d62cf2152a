//! ALiBi as a bias on the logits, one block of queries and keys at a time.
//!
//!     cargo run --release --example alibi_bias

use burn::tensor::Device;
use posenc::encodings::alibi::slopes;
use posenc::prelude::*;
use posenc::{Context, encodings::AlibiConfig};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::default();
    let shape = ModelShape {
        d_model: 32,
        n_layers: 1,
        n_heads: 4,
        head_dim: 8,
    };
    let config: EncodingConfig = AlibiConfig::default().into();
    let encoding = config.init(&shape, &Init::zeros(&device))?;
    println!("slopes: {:?}", slopes(shape.n_heads));

    // A million positions: no tensor of [H, L, L] is ever needed.
    let length = 1_000_000;
    let prepared = encoding.prepare(&Positions::contiguous(length), &Context::new(&device))?;
    let bias = prepared.logits_bias(0).ok_or("ALiBi has a bias")?;
    let block = bias.block(length - 1..length, length - 5..length);
    let values = block.into_data().convert::<f32>().try_to_vec::<f32>()?;
    for (head, row) in values.chunks(5).enumerate() {
        println!("head {head}, last query, last five keys: {row:?}");
    }
    Ok(())
}
