//! Models side by side compared with each alone.

use super::{
    Weights, config, draw, encodings, gradients, host, ints, largest_difference, reach, seed_of,
    small, tokens, weights,
};
use burn::tensor::{Device, Tensor};
use posenc::{Distribution, EncodingConfig, Init, Positions};
use serde_json::json;
use tiny_transformer::{Activation, NormKind, Pass, Transformer, TransformerConfig};

pub const MODELS: usize = 3;
/// Rows of each model.
const ROWS: usize = 2;
/// Tokens of a row.
const LENGTH: usize = 12;

/// Model `g`, whose weights differ from those of the other models.
pub fn model(
    config: &TransformerConfig,
    encoding: &EncodingConfig,
    g: usize,
    device: &Device,
) -> Transformer {
    let source = |path: &str, shape: &[usize], distribution: Distribution| {
        // Drawn by path, rotated by a multiple of `g`, so that models differ.
        let mut values = draw(path, shape, distribution);
        let by = g * (1 + seed_of(path) as usize % 3) % values.len().max(1);
        values.rotate_left(by);
        values
    };
    Transformer::new(config, encoding, &Init::new(device, &source)).expect("a resolved encoding")
}

/// What a model gives: the loss of every token, and all gradients.
type Given = (Vec<f64>, Weights);

/// A stand-in for a loss: tokens have different weights.
fn loss(nll: &Tensor<2>) -> Tensor<1> {
    let [rows, length] = nll.dims();
    let count = ROWS * length;
    let factors = Tensor::arange(0..count as i64, &nll.device()).float();
    let factors = (factors.cast(nll.dtype()) / count as f64 + 0.5).repeat_dim(0, rows / ROWS);
    (nll.clone().reshape([rows * length]) * factors).sum()
}

/// The batch of model `g`: inputs, then targets.
fn batch(g: usize, length: usize) -> [Vec<i64>; 2] {
    [1, 2].map(|kind| tokens((10 * g + kind) as u64, ROWS, length, 11))
}

pub fn alone(
    device: &Device,
    models: &[Transformer],
    positions: &[Positions],
    length: usize,
) -> Vec<Given> {
    let each = models.iter().enumerate().map(|(g, model)| {
        let [inputs, targets] = batch(g, length).map(|ids| ints(&ids, ROWS, device));
        let positions = positions.get(g).unwrap_or(&positions[0]);
        let (nll, _) = model.nll(inputs, targets, positions, &pass());
        let gradients = gradients(model, &loss(&nll));
        (host(nll.inner()), gradients)
    });
    each.collect()
}

pub fn pass() -> Pass<'static> {
    Pass {
        max_logits: usize::MAX,
        ..Pass::default()
    }
}

pub fn together(
    device: &Device,
    models: &[Transformer],
    positions: &[Positions],
    length: usize,
    equal: bool,
) -> Vec<Given> {
    let joined = Transformer::join(models, equal);
    assert_eq!(joined.count(), models.len());
    for (g, model) in models.iter().enumerate() {
        assert_eq!(weights(&joined.part(g)), weights(model), "part {g}");
    }
    let all: Vec<_> = (0..models.len()).map(|g| batch(g, length)).collect();
    let [inputs, targets] = [0, 1].map(|kind| {
        let ids: Vec<i64> = all.iter().flat_map(|batch| batch[kind].clone()).collect();
        ints(&ids, ROWS * models.len(), device)
    });
    let nll = joined.nll_of_each(inputs, targets, positions, &pass());
    let gradients = gradients(&joined, &loss(&nll));
    let nll = host(nll.inner());
    let part = |x: &[f64], g: usize| {
        let size = x.len() / models.len();
        x[g * size..(g + 1) * size].to_vec()
    };
    let given = |g: usize| {
        let own = gradients.iter().filter_map(|(path, (shape, values))| {
            // Encodings may be kept apart; all else is joined along the first dimension.
            let Some(member) = path.strip_prefix("encoding.members.") else {
                let mut shape = shape.clone();
                shape[0] /= models.len();
                let path = path.replacen("encoding.joined.", "encoding.", 1);
                return Some((path, (shape, part(values, g))));
            };
            let inner = member.strip_prefix(&format!("{g}."))?;
            Some((format!("encoding.{inner}"), (shape.clone(), values.clone())))
        });
        (part(&nll, g), own.collect())
    };
    (0..models.len()).map(given).collect()
}

/// Compares models side by side with each alone, up to `off` in losses and relative to the largest
/// number of every gradient. Sums that are taken in another order may differ by rounding.
pub fn compare(
    device: &Device,
    off: f64,
    what: &str,
    configs: &[(&TransformerConfig, &EncodingConfig)],
    length: usize,
) {
    let device = device.clone().autodiff();
    let models = configs.iter().enumerate();
    let models = models.map(|(g, (config, encoding))| model(config, encoding, g, &device));
    let models: Vec<Transformer> = models.collect();
    let own = (0..models.len()).map(|g| Positions::from_offset(g, length));
    let own: Vec<Positions> = own.collect();
    let limits = configs.iter().map(|(config, encoding)| {
        let facts = encoding.facts(&config.shape());
        facts.max_position_without_axes().unwrap_or(usize::MAX)
    });
    // Positions of each, where the encodings have values there.
    let reaches = limits.min() >= Some(length + models.len());
    let first = [Positions::contiguous(length)];
    let mut cases = vec![(&first[..], false)];
    cases.extend(reaches.then_some((&own[..], false)));
    let equal = configs.iter().all(|config| config.1 == configs[0].1);
    cases.extend(equal.then_some((&first[..], true)));
    cases.extend((equal && reaches).then_some((&own[..], true)));
    compare_at(&device, off, what, &models, length, &cases);
}

/// Compares models at positions, and with one encoding for all where they have an equal one.
pub fn compare_at(
    device: &Device,
    off: f64,
    what: &str,
    models: &[Transformer],
    length: usize,
    cases: &[(&[Positions], bool)],
) {
    for (positions, equal) in cases {
        let alone = alone(device, models, positions, length);
        let together = together(device, models, positions, length, *equal);
        for (g, (a, b)) in together.iter().zip(&alone).enumerate() {
            let what = format!("{what}, equal {equal}, model {g}");
            compare_given(off, &what, a, b);
        }
    }
}

fn compare_given(off: f64, what: &str, a: &Given, b: &Given) {
    let worst = largest_difference(&a.0, &b.0);
    assert!(worst <= off, "{what}: losses differ by {worst:e}");
    let paths = |weights: &Weights| weights.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&a.1), paths(&b.1), "{what}");
    for (path, (shape, values)) in &a.1 {
        let (expected_shape, expected) = &b.1[path];
        assert_eq!(shape, expected_shape, "{what}: {path}");
        let largest = expected.iter().fold(0.1f64, |a, b| a.max(b.abs()));
        let worst = largest_difference(values, expected) / largest;
        assert!(worst <= off, "{what}: {path} differs by {worst:e}");
    }
}

/// Compares models with every encoding of the list.
pub fn compare_encodings(device: &Device, off: f64) {
    let gelu = small(NormKind::LayerNorm, Activation::Gelu, false);
    let swiglu = small(NormKind::RmsNorm, Activation::Swiglu, true);
    for (i, (name, encoding)) in encodings().into_iter().enumerate() {
        let config = [&gelu, &swiglu][i % 2];
        let length = reach(&encoding, LENGTH);
        compare(device, off, &name, &[(config, &encoding); MODELS], length);
    }
}

/// Compares models whose encodings differ.
pub fn compare_mixes(device: &Device, off: f64) {
    let plain = small(NormKind::LayerNorm, Activation::Gelu, false);
    let mixes = [
        // Another base: tables of each.
        [
            json!({"kind": "rope", "base": 100.0}),
            json!({"kind": "rope"}),
            json!({"kind": "rope", "base": 1e6}),
        ],
        // Another number of pairs, and none: no fused rotation.
        [
            json!({"kind": "rope"}),
            json!({"kind": "rope", "rotary_dim": 4}),
            json!({"kind": "nope"}),
        ],
        // A bias of some.
        [
            json!({"kind": "nope"}),
            json!({"kind": "alibi"}),
            json!({"kind": "t5", "init_std": 0.3}),
        ],
        // Biases by position, by content, and both.
        [
            json!({"kind": "alibi"}),
            json!({"kind": "fox"}),
            json!({"kind": "stack", "parts": [{"kind": "alibi"}, {"kind": "fox"}]}),
        ],
        // A term added to the output.
        [
            json!({"kind": "shaw", "init_std": 0.5}),
            json!({"kind": "rope"}),
            json!({"kind": "sinusoidal"}),
        ],
    ];
    for mix in mixes {
        let what = format!("{mix:?}");
        let mix = mix.map(config);
        let configs: Vec<(&TransformerConfig, &EncodingConfig)> =
            mix.iter().map(|encoding| (&plain, encoding)).collect();
        compare(device, off, &what, &configs, LENGTH);
    }
}
