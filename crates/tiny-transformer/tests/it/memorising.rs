//! Every encoding can be trained: four sequences are memorised through it.

use crate::common::{Weights, encodings, gradients, host, ints, model, small, tokens, weights};
use crate::models::device;
use burn::tensor::Tensor;
use posenc::{Encoding, EncodingConfig, Init, Positions};
use std::collections::BTreeMap;
use tiny_transformer::{Activation, NormKind, Pass, Transformer, TransformerConfig};

/// Nats at which four sequences count as memorised.
const MEMORISED: f64 = 0.05;

/// Adam on the host, the model rebuilt from its weights at every step, until the sequences are
/// memorised. Returns the last loss and the weights. (How many steps it takes depends on the last
/// bits, and so on the machine.)
fn memorise(
    config: &TransformerConfig,
    encoding: &EncodingConfig,
    most_steps: i32,
) -> (f64, Weights) {
    let device = device().autodiff();
    let (batch, length) = (4, 8);
    let mut sequences = tokens(13, batch, length + 1, config.vocab_size);
    sequences
        .chunks_mut(length + 1)
        .enumerate()
        .for_each(|(i, row)| row[0] = i as i64);
    let cut = |from: usize| {
        sequences
            .chunks(length + 1)
            .flat_map(|row| row[from..from + length].to_vec())
            .collect::<Vec<i64>>()
    };
    let (inputs, targets) = (cut(0), cut(1));
    let mut current = weights(&model(config, encoding, &device));
    let mut moments: BTreeMap<String, Vec<(f64, f64)>> = current
        .iter()
        .map(|(path, (_, values))| (path.clone(), vec![(0.0, 0.0); values.len()]))
        .collect();
    let mut last = f64::NAN;
    for step in 1..=most_steps {
        let source = |path: &str, _: &[usize], _| current[path].1.clone();
        let model: Transformer<Encoding> =
            Transformer::new(config, encoding, &Init::new(&device, &source))
                .expect("a resolved encoding");
        let (inputs, targets) = (
            ints(&inputs, batch, &device),
            ints(&targets, batch, &device),
        );
        let (nll, _) = model.nll(
            inputs,
            targets,
            &Positions::contiguous(length),
            &Pass::default(),
        );
        let loss: Tensor<1> = nll.mean();
        let gradients = gradients(&model, &loss);
        last = host(loss)[0];
        if last < MEMORISED {
            break;
        }
        for (path, (_, gradient)) in &gradients {
            let (_, values) = current.get_mut(path).expect("a parameter");
            let moments = moments.get_mut(path).expect("one for each parameter");
            for ((value, (first, second)), gradient) in values.iter_mut().zip(moments).zip(gradient)
            {
                *first = 0.9 * *first + 0.1 * gradient;
                *second = 0.99 * *second + 0.01 * gradient * gradient;
                let (unbiased, root) = (
                    *first / (1.0 - 0.9f64.powi(step)),
                    (*second / (1.0 - 0.99f64.powi(step))).sqrt(),
                );
                *value -= 0.02 * unbiased / (root + 1e-8);
            }
        }
    }
    (last, current)
}

/// Memorises four sequences with every second encoding, then runs 8 times the training length.
fn memorises_and_survives(every_other: usize) {
    let config = small(NormKind::LayerNorm, Activation::Gelu, false)
        .with_d_model(16)
        .with_head_dim(8)
        .with_d_ff(32)
        .with_embedding_std(0.3);
    for (name, encoding) in encodings().into_iter().skip(every_other).step_by(2) {
        let (loss, trained) = memorise(&config, &encoding, 150);
        assert!(loss < MEMORISED, "{name}: {loss} nats after 150 steps");
        let length = 8 * 8;
        if encoding
            .facts(&config.shape())
            .max_position_without_axes()
            .is_some_and(|limit| limit < length)
        {
            continue;
        }
        let (device, source) = (device(), |path: &str, _: &[usize], _| {
            trained[path].1.clone()
        });
        let model: Transformer<Encoding> =
            Transformer::new(&config, &encoding, &Init::new(&device, &source))
                .expect("a resolved encoding");
        let [inputs, targets] =
            [14, 15].map(|seed| ints(&tokens(seed, 4, length, config.vocab_size), 4, &device));
        let (nll, _) = model.nll(
            inputs,
            targets,
            &Positions::contiguous(length),
            &Pass::default(),
        );
        let nll = host(nll);
        assert!(
            nll.iter().all(|nll| nll.is_finite() && *nll < 100.0),
            "{name} at eight times the training length"
        );
    }
}

#[test]
fn four_sequences_are_memorised_with_even_encodings() {
    memorises_and_survives(0);
}

#[test]
fn four_sequences_are_memorised_with_odd_encodings() {
    memorises_and_survives(1);
}
