//! What the tests of this crate share: host numbers, modules by parameter path, the list of
//! configurations.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, DType, Device, Gradients, Tensor, TensorData, activation};
use posenc::{
    Block, Content, Context, Distribution, Encoding, EncodingConfig, Init, Lengths, ModelShape,
    PositionalEncoding, Positions, Prepared, Qk,
};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

pub const SHAPE: ModelShape = ModelShape {
    d_model: 32,
    n_layers: 2,
    n_heads: 4,
    head_dim: 8,
};
pub const LENGTHS: Lengths = Lengths {
    train_len: 64,
    trained_len: 64,
    test_len: 256,
};

/// The rows of a table in text: its lines, except empty ones and comments.
pub fn lines(table: &str) -> impl Iterator<Item = &str> {
    let lines = table.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The cells of a row of a table in text, between ` | `.
pub fn cells<const N: usize>(row: &str) -> [&str; N] {
    let cells: Vec<&str> = row.split(" | ").collect();
    cells
        .try_into()
        .unwrap_or_else(|_| panic!("{N} cells wanted: {row}"))
}

/// Reads a tensor back as f64, which loses nothing.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor
        .into_data_dtype(DType::F64)
        .try_to_vec()
        .expect("just converted to f64")
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
    (0..count)
        .map(|_| next() as f64 / (1u64 << 52) as f64 - 1.0)
        .collect()
}

/// Whole numbers under n, as samplers of positions ask for them.
pub fn below(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut drawn = 0;
    move |n| {
        drawn += 1;
        let unit = (noise(seed ^ (drawn << 20), 1)[0] + 1.0) / 2.0;
        (unit * n as f64) as u64
    }
}

pub fn random<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
    tensor(noise(seed, shape.iter().product()), shape)
}

/// Values that depend on the path alone.
pub fn draw(path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let count = shape.iter().product();
    match distribution {
        Distribution::Constant(value) => vec![value; count],
        Distribution::Normal(std) => noise(seed_of(path), count)
            .iter()
            .map(|v| v * std * 3f64.sqrt())
            .collect(),
        Distribution::Uniform(low, high) => noise(seed_of(path), count)
            .iter()
            .map(|v| low + (high - low) * (v + 1.0) / 2.0)
            .collect(),
    }
}

fn seed_of(path: &str) -> u64 {
    path.bytes().fold(7u64, |hash, byte| {
        hash.wrapping_mul(1_099_511_628_211) ^ u64::from(byte)
    })
}

/// As `draw`, but what starts from a constant has moved away from it, as after training.
pub fn stirred(path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let values = draw(path, shape, distribution);
    let Distribution::Constant(_) = distribution else {
        return values;
    };
    let moves = noise(!seed_of(path), values.len());
    values
        .iter()
        .zip(moves)
        .map(|(value, moved)| value + 0.3 * moved)
        .collect()
}

pub fn build(config: &EncodingConfig, shape: &ModelShape) -> Encoding {
    config
        .check(shape)
        .unwrap_or_else(|error| panic!("{config:?}: {error}"));
    config
        .init(shape, &Init::new(&Device::flex(), &draw))
        .expect("a resolved configuration")
}

pub fn build_stirred(config: &EncodingConfig, shape: &ModelShape) -> Encoding {
    build_recorded(config, shape).0
}

/// The stirred encoding, and every parameter's values by path, rounded to f32 as the device holds
/// them.
pub fn build_recorded(
    config: &EncodingConfig,
    shape: &ModelShape,
) -> (Encoding, HashMap<String, Vec<f64>>) {
    config
        .check(shape)
        .unwrap_or_else(|error| panic!("{config:?}: {error}"));
    let drawn = RefCell::new(HashMap::new());
    let source = |path: &str, shape: &[usize], distribution| {
        let values: Vec<f64> = stirred(path, shape, distribution)
            .iter()
            .map(|v| f64::from(*v as f32))
            .collect();
        drawn.borrow_mut().insert(path.to_owned(), values.clone());
        values
    };
    let encoding = config
        .init(shape, &Init::new(&Device::flex(), &source))
        .expect("a resolved configuration");
    (encoding, drawn.into_inner())
}

pub fn config(value: Value) -> EncodingConfig {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// Visits the parameters of a module by path; variants of enums leave no trace in it. With
/// gradients, a parameter without one fails.
struct Walk {
    path: Vec<String>,
    gradients: Option<Gradients>,
    shapes: Vec<(String, Vec<usize>)>,
    found: HashMap<String, Vec<f64>>,
}

impl Walk {
    fn over(module: &impl Module, gradients: Option<Gradients>) -> Self {
        let mut walk = Self {
            path: vec![],
            gradients,
            shapes: vec![],
            found: HashMap::new(),
        };
        module.visit(&mut walk);
        walk
    }
}

impl ModuleVisitor for Walk {
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
        if let Some(gradients) = &self.gradients {
            let gradient = param
                .val()
                .grad(gradients)
                .unwrap_or_else(|| panic!("{path} has no gradient"));
            self.found.insert(path.clone(), host(gradient));
        }
        self.shapes.push((path, param.val().dims().to_vec()));
    }
}

/// Path and shape of every parameter, in the order of a visit.
pub fn parameters(module: &impl Module) -> Vec<(String, Vec<usize>)> {
    Walk::over(module, None).shapes
}

/// The gradient of `loss` for every parameter, by path; a parameter without one fails.
pub fn gradients(module: &impl Module, loss: &Tensor<1>) -> HashMap<String, Vec<f64>> {
    Walk::over(module, Some(loss.backward())).found
}

/// The list of example configurations, which tests of other crates share: every kind, every
/// scaling, every option.
pub fn all_values() -> Vec<Value> {
    serde_json::from_str(include_str!("../../encodings.json")).expect("a list of configurations")
}

/// The list with lengths resolved.
pub fn all_configs() -> Vec<(String, EncodingConfig)> {
    let resolved = |value: Value| {
        let mut config = config(value.clone());
        config.resolve(&LENGTHS);
        (value.to_string(), config)
    };
    all_values().into_iter().map(resolved).collect()
}

/// The attention of one layer around an encoding: identity projections of random inputs.
pub struct Attention<'a> {
    pub prepared: Box<dyn Prepared + 'a>,
    pub layer: usize,
    /// Queries and keys before `transform_qk`.
    pub raw: Qk,
    /// Queries and keys after it.
    pub turned: Qk,
    pub hidden: Tensor<3>,
    pub first_query: usize,
    pub scale: f64,
}

impl<'a> Attention<'a> {
    /// Queries from one random input and keys from another, so that every pair differs;
    /// `first_query` is its index among the keys.
    pub fn new(
        encoding: &'a Encoding,
        positions: &Positions,
        layer: usize,
        first_query: usize,
    ) -> Self {
        let ModelShape {
            d_model,
            n_heads,
            head_dim,
            ..
        } = SHAPE;
        assert_eq!(d_model, n_heads * head_dim);
        let heads = |x: Tensor<3>| {
            let length = x.dims()[1];
            x.reshape([1, length, n_heads, head_dim]).swap_dims(1, 2)
        };
        let embedded = |seed: u64, at: &[f64]| {
            let at = Positions::new(
                at.to_vec(),
                positions
                    .queries()
                    .iter()
                    .chain(positions.keys())
                    .copied()
                    .collect(),
            );
            encoding
                .prepare(&at, &Context::new(&Device::flex()))
                .expect("positions in range")
                .embed(random(seed, [1, at.queries().len(), d_model]))
        };
        let (queries, keys) = (
            embedded(1, positions.queries()),
            embedded(2, positions.keys()),
        );
        Self::of(
            encoding,
            positions,
            layer,
            first_query,
            (heads(queries), heads(keys.clone())),
            keys,
        )
    }

    /// Given queries, keys and hidden states.
    pub fn of(
        encoding: &'a Encoding,
        positions: &Positions,
        layer: usize,
        first_query: usize,
        raw: Qk,
        hidden: Tensor<3>,
    ) -> Self {
        let prepared = encoding
            .prepare(positions, &Context::new(&Device::flex()))
            .expect("positions in range");
        let turned = prepared.transform_qk(layer, raw.0.clone(), raw.1.clone(), &hidden);
        let scale = 1.0 / (SHAPE.head_dim as f64).sqrt();
        Self {
            prepared,
            layer,
            raw,
            turned,
            hidden,
            first_query,
            scale,
        }
    }

    pub fn q_len(&self) -> usize {
        self.raw.0.dims()[2]
    }

    pub fn k_len(&self) -> usize {
        self.raw.1.dims()[2]
    }

    /// What the encoding is shown of a block.
    pub fn content<R>(
        &self,
        queries: Range<usize>,
        keys: Range<usize>,
        look: impl FnOnce(&Content<'_>) -> R,
    ) -> R {
        let q = self.turned.0.clone().slice_dim(2, queries.clone());
        let k = self.turned.1.clone().slice_dim(2, keys.clone());
        let raw = || self.raw.clone();
        let (hidden, scale, first_query) =
            (&self.hidden, self.scale, self.first_query + queries.start);
        look(&Content::new(
            [&q, &k],
            &raw,
            hidden,
            Block {
                queries,
                keys,
                first_query,
            },
            scale,
        ))
    }

    pub fn content_bias(&self, queries: Range<usize>, keys: Range<usize>) -> Option<Tensor<4>> {
        self.content(queries, keys, |content| {
            self.prepared.content_bias(self.layer, content)
        })
    }

    pub fn output_bias(&self, queries: Range<usize>, keys: Range<usize>) -> Option<Tensor<4>> {
        let weights = || self.weights(queries.clone(), keys.clone());
        self.content(queries.clone(), keys.clone(), |content| {
            self.prepared.output_bias(self.layer, content, &weights)
        })
    }

    /// Product and biases of a block, `[1, H, q_len, k_len]`, computed by the device.
    pub fn scores(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let product = self.content(queries.clone(), keys.clone(), |content| content.logits());
        let shape = product.dims();
        let position = self
            .prepared
            .logits_bias(self.layer)
            .map(|bias| bias.block(queries.clone(), keys.clone()));
        let biases = [position, self.content_bias(queries, keys)];
        biases
            .into_iter()
            .flatten()
            .fold(product, |sum, bias| sum + bias.expand(shape))
    }

    /// The causal softmax of a block.
    pub fn weights(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let scores = self.scores(queries.clone(), keys.clone());
        let mask: Tensor<4, Bool> = self.content(queries, keys, |content| content.causal_mask());
        let shape = scores.dims();
        activation::softmax(scores.mask_fill(mask.expand(shape), f64::NEG_INFINITY), 3)
    }

    /// Logits of all pairs, `[1, H, Q, K]`: the product in f64, so that no error of a long sum
    /// hides one of the encoding.
    pub fn logits(&self) -> Vec<f64> {
        let (q_len, k_len, heads) = (self.q_len(), self.k_len(), SHAPE.n_heads);
        let width = self.turned.0.dims()[3];
        let (q, k) = (host(self.turned.0.clone()), host(self.turned.1.clone()));
        let mut logits: Vec<f64> = Vec::new();
        for head in 0..heads {
            for i in 0..q_len {
                let q = &q[(head * q_len + i) * width..][..width];
                logits.extend(
                    (0..k_len)
                        .map(|j| dot(q, &k[(head * k_len + j) * width..][..width]) * self.scale),
                );
            }
        }
        let position = self
            .prepared
            .logits_bias(self.layer)
            .map(|bias| bias.block(0..q_len, 0..k_len));
        for bias in [position, self.content_bias(0..q_len, 0..k_len)]
            .into_iter()
            .flatten()
        {
            let bias = host(bias.expand([1, heads, q_len, k_len]));
            logits
                .iter_mut()
                .zip(bias)
                .for_each(|(logit, bias)| *logit += bias);
        }
        logits
    }
}

/// Attention logits `[1, H, Q, K]` of a stirred encoding used on its own, in layer 0, through all
/// hooks; row i of the queries sees the keys up to i.
pub fn logits(config: &EncodingConfig, positions: &Positions) -> Vec<f64> {
    Attention::new(&build_stirred(config, &SHAPE), positions, 0, 0).logits()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Infinite where only one of two is, or one is not a number.
pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let difference = |a: f64, b: f64| if a == b { 0.0 } else { (a - b).abs() };
    let differences = a.iter().zip(b).map(|(a, b)| difference(*a, *b));
    differences
        .map(|d| if d.is_nan() { f64::INFINITY } else { d })
        .fold(0.0, f64::max)
}
