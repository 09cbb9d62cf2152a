//! What the tests of this crate share: host numbers, modules by parameter path, the list of configurations.
#![allow(dead_code)]

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use posenc::{Distribution, Encoding, EncodingConfig, Init, Lengths, ModelShape, PositionalEncoding, Positions};
use serde_json::{Value, json};

pub const SHAPE: ModelShape = ModelShape { d_model: 32, n_layers: 2, n_heads: 4, head_dim: 8 };
pub const LENGTHS: Lengths = Lengths { train_len: 64, test_len: 256 };

/// Reads a tensor back as f64, which loses nothing.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data_dtype(DType::F64).try_to_vec().expect("just converted to f64")
}

pub fn tensor<const D: usize>(values: Vec<f64>, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

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
    (0..count).map(|_| next() as f64 / (1u64 << 52) as f64 - 1.0).collect()
}

pub fn random<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
    tensor(noise(seed, shape.iter().product()), shape)
}

/// Values that depend on the path alone.
pub fn draw(path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let count = shape.iter().product();
    match distribution {
        Distribution::Constant(value) => vec![value; count],
        Distribution::Normal(std) => {
            let seed = path.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(1_099_511_628_211) ^ u64::from(byte));
            noise(seed, count).iter().map(|v| v * std * 3f64.sqrt()).collect()
        }
    }
}

pub fn build(config: &EncodingConfig, shape: &ModelShape) -> Encoding {
    config.check(shape).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    config.init(shape, &Init::new(&Device::flex(), &draw))
}

pub fn config(value: Value) -> EncodingConfig {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// Path and shape of every parameter, in the order of a visit; variants of enums leave no trace.
pub fn parameters(module: &impl Module) -> Vec<(String, Vec<usize>)> {
    #[derive(Default)]
    struct Walk {
        path: Vec<String>,
        found: Vec<(String, Vec<usize>)>,
    }
    impl ModuleVisitor for Walk {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.push(if container.starts_with("Enum") { String::new() } else { name.to_owned() });
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let path: Vec<&str> = self.path.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            self.found.push((path.join("."), param.val().dims().to_vec()));
        }
    }
    let mut walk = Walk::default();
    module.visit(&mut walk);
    walk.found
}

/// Every kind with its defaults, and variations of every option, with lengths resolved.
pub fn all_configs() -> Vec<(String, EncodingConfig)> {
    let scaled = |scaling: Value| json!({"kind": "rope", "scaling": scaling});
    let mut list: Vec<Value> = EncodingConfig::KINDS
        .iter()
        .filter_map(|kind| EncodingConfig::default_of(kind))
        .map(|config| serde_json::to_value(config).expect("configurations are plain data"))
        .collect();
    list.extend([
        json!({"kind": "sinusoidal", "order": "half", "base": 100.0, "scale": 0.25}),
        json!({"kind": "sinusoidal", "order": "tensor2tensor"}),
        json!({"kind": "learned", "max_position": 300, "init_std": 0.5}),
        json!({"kind": "rope", "layout": "interleaved", "base": 500000.0}),
        json!({"kind": "rope", "layout": "half", "rotary_dim": 4}),
        json!({"kind": "rope", "layout": "interleaved", "rotary_dim": 6}),
        scaled(json!({"kind": "linear"})),
        scaled(json!({"kind": "linear", "factor": 3.0})),
        scaled(json!({"kind": "ntk"})),
        scaled(json!({"kind": "ntk", "factor": 8.0, "original_max_position_embeddings": 32})),
        scaled(json!({"kind": "dynamic_ntk"})),
        scaled(json!({"kind": "dynamic_ntk", "factor": 2.0, "original_max_position_embeddings": 16})),
        scaled(json!({"kind": "yarn"})),
        scaled(json!({"kind": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": false})),
        scaled(json!({"kind": "yarn", "factor": 4.0, "mscale": 0.707, "mscale_all_dim": 1.0})),
        scaled(json!({"kind": "yarn", "factor": 4.0, "attention_factor": 1.0})),
        json!({"kind": "stack", "parts": [{"kind": "nope"}]}),
        json!({"kind": "stack", "parts": [{"kind": "rope"}, {"kind": "alibi"}]}),
        json!({"kind": "stack", "parts": [{"kind": "alibi"}, {"kind": "alibi"}]}),
        json!({"kind": "stack", "parts": [{"kind": "sinusoidal"}, {"kind": "rope", "scaling": {"kind": "dynamic_ntk"}}]}),
        json!({"kind": "stack", "parts": [
            {"kind": "learned"}, {"kind": "stack", "parts": [{"kind": "learned", "max_position": 40}, {"kind": "alibi"}]}, {"kind": "rope"}]}),
    ]);
    list.into_iter()
        .map(|value| {
            let mut config = config(value.clone());
            config.resolve(&LENGTHS);
            (value.to_string(), config)
        })
        .collect()
}

/// Attention logits `[1, H, Q, K]` of an encoding used on its own: random inputs, identity projections, all hooks that need no
/// content.
pub fn logits(config: &EncodingConfig, positions: &Positions) -> Vec<f64> {
    let ModelShape { d_model, n_heads, head_dim, .. } = SHAPE;
    assert_eq!(d_model, n_heads * head_dim);
    let encoding = build(config, &SHAPE);
    let (q_len, k_len) = (positions.queries().len(), positions.keys().len());
    let heads = |x: Tensor<3>, length: usize| x.reshape([1, length, n_heads, head_dim]).swap_dims(1, 2);
    let embedded = |seed: u64, at: &[f64]| {
        let at = Positions::new(at.to_vec(), positions.queries().iter().chain(positions.keys()).copied().collect());
        let prepared = encoding.prepare(&at, &Device::flex());
        prepared.embed(random(seed, [1, at.queries().len(), d_model]))
    };
    let (q, k) = (heads(embedded(1, positions.queries()), q_len), heads(embedded(2, positions.keys()), k_len));
    let prepared = encoding.prepare(positions, &Device::flex());
    let (q, k) = prepared.transform_qk(0, q, k);
    let (q, k) = (host(q), host(k));
    let bias = prepared.logits_bias(0).map(|bias| {
        let bias = bias.block(0..q_len, 0..k_len);
        host(bias.expand([1, n_heads, q_len, k_len]))
    });
    let row = |t: &[f64], length: usize, h: usize, i: usize| t[(h * length + i) * head_dim..][..head_dim].to_vec();
    let mut logits = Vec::new();
    for h in 0..n_heads {
        for i in 0..q_len {
            for j in 0..k_len {
                let dot: f64 = row(&q, q_len, h, i).iter().zip(row(&k, k_len, h, j)).map(|(a, b)| a * b).sum();
                let bias = bias.as_ref().map_or(0.0, |bias| bias[(h * q_len + i) * k_len + j]);
                logits.push(dot / (head_dim as f64).sqrt() + bias);
            }
        }
    }
    logits
}

pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
