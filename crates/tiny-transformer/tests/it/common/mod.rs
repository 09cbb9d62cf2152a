//! What the tests of this crate share: weights by path, a list of encodings, gradients, and
//! encodings that only tests need.

pub mod hooks;
pub mod reference;
pub mod side_by_side;

pub use hooks::{AllHooks, ContentOnly};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Int, Tensor, TensorData};
use posenc::{Distribution, Encoding, EncodingConfig, Init, Lengths};
use serde_json::Value;
use std::collections::BTreeMap;
use tiny_transformer::{
    Activation, AttentionKind, FeatureMap, MlpKind, NormKind, Normalizer, Transformer,
    TransformerConfig,
};

/// A small model whose heads do not add up to its width.
pub fn small(norm: NormKind, activation: Activation, tied_head: bool) -> TransformerConfig {
    TransformerConfig::new(11)
        .with_d_model(10)
        .with_heads(3)
        .with_layers(2)
        .with_head_dim(8)
        .with_d_ff(14)
        .with_norm(norm)
        .with_activation(activation)
        .with_tied_head(tied_head)
        .with_embedding_std(0.8)
}

/// The same model with linear attention.
pub fn linear(
    config: TransformerConfig,
    feature_map: FeatureMap,
    normalizer: Normalizer,
) -> TransformerConfig {
    config
        .with_attention(AttentionKind::Linear)
        .with_feature_map(feature_map)
        .with_normalizer(normalizer)
}

/// The small model with attention alone.
pub fn attention_only() -> TransformerConfig {
    small(NormKind::LayerNorm, Activation::Gelu, true).with_mlp(MlpKind::None)
}

pub const VARIANTS: [(NormKind, Activation, bool); 2] = [
    (NormKind::LayerNorm, Activation::Gelu, false),
    (NormKind::RmsNorm, Activation::Swiglu, true),
];

/// Numbers in -1..1 that depend on `seed` alone (splitmix64).
pub fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 11
    };
    (0..count)
        .map(|_| next() as f64 / (1u64 << 52) as f64 - 1.0)
        .collect()
}

pub fn seed_of(path: &str) -> u64 {
    path.bytes().fold(7u64, |hash, byte| {
        hash.wrapping_mul(1_099_511_628_211) ^ u64::from(byte)
    })
}

/// Values that depend on the path alone. Constants are disturbed, so that a scale or shift that is
/// never applied shows.
pub fn draw(path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let values = noise(seed_of(path), shape.iter().product());
    match distribution {
        // A phase is read between -2 pi and 0; outside, its gradient points back inside and is not
        // the slope of anything.
        Distribution::Constant(value) if path.ends_with("delta") => {
            values.iter().map(|v| value - 0.3 * v.abs()).collect()
        }
        Distribution::Constant(value) => values.iter().map(|v| value + 0.3 * v).collect(),
        Distribution::Normal(std) => values.iter().map(|v| std * 3f64.sqrt() * v).collect(),
        // Away from the ends, at which some parameters are held.
        Distribution::Uniform(low, high) => values
            .iter()
            .map(|v| low + (high - low) * (0.5 + 0.4 * v))
            .collect(),
    }
}

pub fn tokens(seed: u64, batch: usize, length: usize, vocab: usize) -> Vec<i64> {
    noise(seed, batch * length)
        .iter()
        .map(|v| ((v + 1.0) / 2.0 * vocab as f64) as i64)
        .collect()
}

pub fn ints(values: &[i64], batch: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(
        TensorData::new(values.to_vec(), [batch, values.len() / batch]),
        device,
    )
}

/// Reads a tensor back as f64, which loses nothing.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor
        .into_data_dtype(DType::F64)
        .try_to_vec()
        .expect("just converted to f64")
}

pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

pub fn config(value: Value) -> EncodingConfig {
    let mut config: EncodingConfig =
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"));
    config.resolve(&Lengths {
        train_len: 8,
        trained_len: 8,
        test_len: 32,
    });
    config
}

/// The list of encodings that all crates share, every kind among them, resolved for a training
/// length of 8 and a test length of 32.
pub fn encodings() -> Vec<(String, EncodingConfig)> {
    let list: Vec<Value> =
        serde_json::from_str(include_str!("../../../../posenc/tests/encodings.json"))
            .expect("a list");
    let list: Vec<_> = list
        .into_iter()
        .map(|value| (value.to_string(), config(value)))
        .collect();
    for kind in EncodingConfig::KINDS {
        assert!(
            list.iter().any(|(_, config)| config.kind() == *kind),
            "{kind} is missing from the list"
        );
    }
    list
}

/// `wanted` tokens, or as many as the encoding has positions for.
pub fn reach(encoding: &EncodingConfig, wanted: usize) -> usize {
    let shape = small(NormKind::LayerNorm, Activation::Gelu, true).shape();
    encoding
        .facts(&shape)
        .max_position_without_axes()
        .map_or(wanted, |limit| limit.min(wanted))
}

pub fn model(
    config: &TransformerConfig,
    encoding: &EncodingConfig,
    device: &Device,
) -> Transformer<Encoding> {
    config.check().expect("sizes that work");
    encoding
        .check(&config.shape())
        .expect("an encoding that works");
    Transformer::new(config, encoding, &Init::new(device, &draw)).expect("a resolved encoding")
}

/// Shape and values of one parameter.
pub type Weight = (Vec<usize>, Vec<f64>);
/// Every parameter by path.
pub type Weights = BTreeMap<String, Weight>;

struct Walk<'a> {
    path: Vec<String>,
    gradients: Option<&'a Gradients>,
    found: Vec<(String, Weight)>,
}

impl ModuleVisitor for Walk<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(if container.starts_with("Enum") {
            String::new()
        } else {
            name.to_owned()
        });
    }
    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path: Vec<&str> = self
            .path
            .iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        let path = path.join(".");
        let tensor = match self.gradients {
            None => Some(param.val()),
            Some(gradients) => param.val().grad(gradients),
        };
        let found = tensor.map(|tensor| (path, (tensor.dims().to_vec(), host(tensor))));
        self.found.extend(found);
    }
}

fn walk(module: &impl Module, gradients: Option<&Gradients>) -> Weights {
    let mut walk = Walk {
        path: vec![],
        gradients,
        found: vec![],
    };
    module.visit(&mut walk);
    let count = walk.found.len();
    let found: Weights = walk.found.into_iter().collect();
    assert_eq!(found.len(), count, "paths are unique");
    found
}

pub fn weights(module: &impl Module) -> Weights {
    walk(module, None)
}

/// Gradients of `loss` by path, of the parameters that have one. The f64 tests of gradients check
/// that these are all that are trained.
pub fn gradients(module: &impl Module, loss: &Tensor<1>) -> Weights {
    walk(module, Some(&loss.backward()))
}
