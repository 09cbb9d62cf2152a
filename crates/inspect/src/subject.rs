//! An encoding with the sizes and lengths it is inspected for, and what its hooks return.

use burn::tensor::{DType, Device, Tensor, TensorData};
use experiment::run::parameters::draw;
use posenc::{
    Block, Content, Context, Encoding, EncodingConfig, Facts, Hooks, Init, Lengths, ModelShape,
    PositionalEncoding, Positions, Prepared,
};
use std::collections::BTreeMap;
use support::exit::{Exit, Failure};
use tasks::Stream;

/// Seed of initial values and of the vectors that checks turn.
pub const SEED: u64 = 0;

/// Most numbers of a parameter whose initial values are shown.
const SMALL: usize = 64;

/// Random inputs that are averaged.
const RESPONSE_DRAWS: usize = 16;

/// An encoding and what it is built for.
pub struct Subject {
    pub config: EncodingConfig,
    pub shape: ModelShape,
    pub lengths: Lengths,
    /// Steps from the model down to the encoding: initial values are drawn by path, so these are
    /// the ones that training starts from.
    pub path: Vec<String>,
}

impl Subject {
    /// What the configured encoding declares.
    pub fn facts(&self) -> Facts {
        self.config.facts(&self.shape)
    }

    /// Whether it rotates queries and keys by one set of frequencies and does nothing else with
    /// them, so that the laws of rotations hold.
    pub fn only_rotates(&self) -> bool {
        let facts = self.facts();
        self.config.rotary(&self.shape).is_some()
            && facts.hooks == Hooks::TRANSFORM_QK
            && !facts.exclusive_in_stack
            && self.scaling_factor() == 1.0
    }

    /// What a scaling multiplies the logits by, beside the factor on cos and sin.
    fn scaling_factor(&self) -> f64 {
        let rotary = self.config.rotary(&self.shape);
        let scaling = rotary.and_then(|rotary| rotary.scaling);
        scaling.map_or(1.0, |scaling| scaling.logits_factor())
    }

    /// Estimated count of numbers printed for `positions` positions.
    pub fn count(&self, positions: usize) -> usize {
        let hooks = self.facts().hooks;
        let times = |on: bool, n: usize| if on { positions.saturating_mul(n) } else { 0 };
        let own = times(hooks.embed, self.shape.d_model)
            .saturating_add(times(hooks.transform_qk, self.shape.head_dim))
            .saturating_add(times(
                hooks.logits_bias,
                positions.saturating_mul(self.shape.n_heads),
            ));
        self.parts()
            .iter()
            .fold(own, |sum, part| sum.saturating_add(part.count(positions)))
    }

    /// Estimated memory of [`logits`](Self::logits) over `length` tokens and of the parameters, in
    /// bytes. PaTH, which multiplies keys by each other, takes three times as much.
    pub fn memory(&self, length: usize) -> u64 {
        let ModelShape {
            d_model,
            n_heads,
            head_dim,
            ..
        } = self.shape;
        let [length, d_model, heads, head_dim] =
            [length, d_model, n_heads, head_dim].map(|size| size as u64);
        let inner = heads.saturating_mul(head_dim);
        let vectors = d_model
            .saturating_mul(2)
            .saturating_add(inner.saturating_mul(6));
        let logits = heads.saturating_mul(length).saturating_mul(3);
        let rows = length.saturating_mul(vectors.saturating_add(logits));
        let numbers = |(_, sizes): &(String, Vec<usize>)| sizes.iter().product::<usize>() as u64;
        let parameters: u64 = self.facts().parameters.iter().map(numbers).sum();
        rows.saturating_add(parameters.saturating_mul(2))
            .saturating_mul(4)
    }

    /// The parts of an encoding made of others; nothing otherwise.
    pub fn parts(&self) -> Vec<Subject> {
        let subject = |(i, part): (usize, posenc::spec::Part<'_>)| {
            let steps = part.path.split('.').map(str::to_owned);
            Subject {
                config: part.config.clone(),
                shape: self.config.part_shape(i, &self.shape),
                path: self.path.iter().cloned().chain(steps).collect(),
                ..*self
            }
        };
        let parts = self.config.parts().into_iter().enumerate();
        parts.map(subject).collect()
    }

    /// The module that training with seed 0 starts from.
    ///
    /// # Errors
    ///
    /// A bug: the configuration was resolved and checked when it was read.
    pub fn encoding(&self, device: &Device) -> Result<Encoding, Failure> {
        let source =
            |path: &str, shape: &[usize], distribution| draw(SEED, path, shape, distribution);
        let init = self
            .path
            .iter()
            .fold(Init::new(device, &source), |init, step| init.scope(step));
        let encoding = self.config.init(&self.shape, &init);
        encoding.map_err(Failure::bug)
    }

    /// The initial values of parameters of few numbers, by path.
    pub fn small_parameters(&self) -> BTreeMap<String, Vec<f64>> {
        let declared = self.config.parameters(&self.shape).into_iter();
        let small = declared.filter(|spec| spec.shape.iter().product::<usize>() <= SMALL);
        small
            .map(|spec| {
                let path = [&self.path[..], std::slice::from_ref(&spec.path)].concat();
                let values = draw(SEED, &path.join("."), &spec.shape, spec.init);
                (spec.path, values)
            })
            .collect()
    }

    /// Positions with one more key at the end of the test length, for encodings that read the
    /// length of the sequence.
    fn positions(&self, queries: &[f64], keys: &[f64]) -> Positions {
        let mut keys = keys.to_vec();
        if self.facts().reads_length {
            keys.push((self.lengths.test_len as f64 - 1.0).max(0.0));
        }
        Positions::new(queries.to_vec(), keys)
    }

    /// What the first hook adds to an input of zeros.
    pub fn embedding(
        &self,
        encoding: &Encoding,
        positions: &[f64],
        device: &Device,
    ) -> Result<Option<Vec<Vec<f32>>>, Failure> {
        if !self.facts().hooks.embed {
            return Ok(None);
        }
        let zeros = Tensor::<3>::zeros([1, positions.len(), self.shape.d_model], device);
        let added =
            host(prepared(encoding, &self.positions(positions, positions), device)?.embed(zeros))?;
        Ok(Some(
            added
                .chunks(self.shape.d_model)
                .map(<[f32]>::to_vec)
                .collect(),
        ))
    }

    /// The bias of layer 0, `[head][query][key]`.
    pub fn bias(
        &self,
        encoding: &Encoding,
        queries: &[f64],
        keys: &[f64],
        device: &Device,
    ) -> Result<Option<Vec<Vec<Vec<f32>>>>, Failure> {
        let prepared = prepared(encoding, &self.positions(queries, keys), device)?;
        let Some(bias) = prepared.logits_bias(0) else {
            return Ok(None);
        };
        // A key that only sets the length lies behind these and is cut off.
        let values = host(bias.block(0..queries.len(), 0..keys.len()))?;
        let head = |head: &[f32]| head.chunks(keys.len()).map(<[f32]>::to_vec).collect();
        let mut heads: Vec<Vec<Vec<f32>>> = values
            .chunks(queries.len() * keys.len())
            .map(head)
            .collect();
        // One matrix for all heads comes with a head dimension of 1.
        if let [shared] = heads.as_slice() {
            heads = vec![shared.clone(); self.shape.n_heads];
        }
        Ok(Some(heads))
    }

    /// Mean logits of layer 0, `[head][query][key]`, of sequences of `length` equal tokens;
    /// -infinity where a key is hidden.
    pub fn logits(
        &self,
        encoding: &Encoding,
        length: usize,
        device: &Device,
    ) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
        self.logits_of(Text::Equal, encoding, length, device)
    }

    /// [`logits`](Self::logits) of another text.
    pub fn logits_of(
        &self,
        text: Text,
        encoding: &Encoding,
        length: usize,
        device: &Device,
    ) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
        let prepared = prepared(encoding, &Positions::contiguous(length), device)?;
        let [tokens, contents] = self.drawn(text, device);
        // At every position the first vector, from the middle on the second: [1, length, width].
        let along = |vectors: &[Tensor<2>; 2], draw: usize| {
            let [first, second] = vectors.each_ref().map(|all| {
                all.clone()
                    .slice_dim(0, draw..draw + 1)
                    .unsqueeze_dim::<3>(1)
            });
            let first = first.repeat_dim(1, length - length / 2);
            match length / 2 {
                0 => first,
                half => Tensor::cat(vec![first, second.repeat_dim(1, half)], 1),
            }
        };
        // One draw at a time: all together need as many times the memory.
        let mut sum = None;
        for draw in 0..RESPONSE_DRAWS {
            let [token, content] = [&tokens, &contents].map(|vectors| along(vectors, draw));
            let logits = self.logits_of_draw(&*prepared, text, token, content);
            sum = Some(match sum {
                None => logits,
                Some(sum) => sum + logits,
            });
        }
        // [1, n_heads, length, length]; biases by position are the same in every draw.
        let mut mean = sum.expect("there are draws") / RESPONSE_DRAWS as f64;
        if let Some(bias) = prepared.logits_bias(0) {
            mean = mean + bias.block(0..length, 0..length);
        }
        let values = host(mean)?;
        let row = |row: &[f32]| row.iter().map(|v| f64::from(*v)).collect();
        Ok(values
            .chunks(length * length)
            .map(|head| head.chunks(length).map(row).collect())
            .collect())
    }

    /// Logits of layer 0 without the bias by position, `[1, n_heads, length, length]`, for an input
    /// `[1, length, d_model]` and the queries and keys made of it, `[1, length, n_heads *
    /// head_dim]`.
    fn logits_of_draw(
        &self,
        prepared: &dyn Prepared,
        text: Text,
        token: Tensor<3>,
        content: Tensor<3>,
    ) -> Tensor<4> {
        let ModelShape {
            d_model,
            n_heads,
            head_dim,
            ..
        } = self.shape;
        let (length, inner) = (token.dims()[1], n_heads * head_dim);
        // An encoding that adds to the input gives every position its own hidden vector; otherwise
        // queries and keys are one vector.
        let hidden = prepared.embed(token.clone());
        let added = hidden.clone() - token;
        // What was added, cut or padded with zeros to [1, length, n_heads * head_dim].
        let added = if d_model < inner {
            let rest = Tensor::zeros([1, length, inner - d_model], &added.device());
            Tensor::cat(vec![added, rest], 2)
        } else {
            added.slice_dim(2, 0..inner)
        };
        // [1, n_heads, length, head_dim]
        let heads = |x: Tensor<3>| x.reshape([1, length, n_heads, head_dim]).swap_dims(1, 2);
        let plain = heads(content.clone());
        let x = heads(content + added);
        let raw = || (x.clone(), x.clone());
        let (q, k) = prepared.transform_qk(0, x.clone(), x.clone(), &hidden);
        let scale = 1.0 / (head_dim as f64).sqrt();
        let block = Block {
            queries: 0..length,
            keys: 0..length,
            first_query: 0,
        };
        let content = Content::new([&q, &k], &raw, &hidden, block, scale);
        let mut logits = content.logits();
        if let Some(bias) = prepared.content_bias(0, &content) {
            logits = logits + bias;
        }
        if matches!(text, Text::Turn) {
            let keys = plain.clone().swap_dims(2, 3);
            logits = logits - plain.matmul(keys).mul_scalar(scale);
        }
        logits
    }

    /// Two tokens of a text, `[draws, d_model]`, and the two vectors that are their queries and
    /// keys, `[draws, n_heads * head_dim]`.
    fn drawn(&self, text: Text, device: &Device) -> [[Tensor<2>; 2]; 2] {
        let (d_model, head_dim) = (self.shape.d_model, self.shape.head_dim);
        let inner = self.shape.n_heads * head_dim;
        let mut stream = Stream::new(SEED, "inspect response", 0);
        let mut draw = |width: usize| {
            let values: Vec<f32> = (0..RESPONSE_DRAWS * width)
                .map(|_| stream.normal() as f32)
                .collect();
            Tensor::<2>::from_data(TensorData::new(values, [RESPONSE_DRAWS, width]), device)
        };
        let twice = |vector: Tensor<2>| [vector.clone(), vector];
        // The product of a vector with itself in a head is the root of head_dim, 1 as a logit; of
        // a drawn one in expectation.
        let unit = (head_dim as f64).powf(-0.25);
        match text {
            Text::Equal => [twice(draw(d_model)), twice(draw(inner))],
            Text::Unit => {
                let ones = Tensor::ones([RESPONSE_DRAWS, inner], device).mul_scalar(unit);
                [twice(draw(d_model)), twice(ones)]
            }
            Text::Turn => {
                let content = [draw(inner), draw(inner)];
                let content = content.map(|vector| vector.mul_scalar(unit));
                [[draw(d_model), draw(d_model)], content]
            }
        }
    }

    /// The longest sequence up to `most` that the encoding reaches.
    pub fn reach(&self, most: usize) -> usize {
        self.facts()
            .max_position_without_axes()
            .unwrap_or(most)
            .clamp(1, most)
    }

    /// Turns `x`, row-major `[vectors, positions, head_dim]`, by the hook for queries or the one
    /// for keys. The other side is one vector at `top`, which sets the length that
    /// length-reading scalings see.
    pub fn turn(
        &self,
        encoding: &Encoding,
        side: Side,
        x: &[f32],
        positions: &[f64],
        top: f64,
        device: &Device,
    ) -> Result<Vec<f32>, Failure> {
        let head_dim = self.shape.head_dim;
        let vectors = x.len() / (positions.len() * head_dim);
        // Each vector is one sequence with one head: [vectors, 1, positions, head_dim].
        let x = Tensor::<4>::from_data(
            TensorData::new(x.to_vec(), [vectors, 1, positions.len(), head_dim]),
            device,
        );
        let other = Tensor::<4>::zeros([vectors, 1, 1, head_dim], device);
        // Only rotations by position come here: none reads what q and k are projected from.
        let input = Tensor::<3>::zeros([vectors, 1, self.shape.d_model], device);
        let (mine, other_positions) = (positions.to_vec(), vec![top]);
        match side {
            Side::Query => host(
                prepared(encoding, &Positions::new(mine, other_positions), device)?
                    .transform_qk(0, x, other, &input)
                    .0,
            ),
            Side::Key => host(
                prepared(encoding, &Positions::new(other_positions, mine), device)?
                    .transform_qk(0, other, x, &input)
                    .1,
            ),
        }
    }
}

/// The encoding at these positions.
pub fn prepared<'a>(
    encoding: &'a Encoding,
    positions: &Positions,
    device: &Device,
) -> Result<Box<dyn Prepared + 'a>, Failure> {
    let prepared = encoding.prepare(positions, &Context::new(device));
    prepared.map_err(Failure::bug)
}

/// A text whose logits are computed.
#[derive(Clone, Copy)]
pub enum Text {
    /// Equal tokens, their vectors drawn at random.
    Equal,
    /// Equal tokens whose queries and keys have a product of 1 with themselves, in all heads.
    Unit,
    /// Equal tokens up to the middle, and another one from there on; of the logits, what the
    /// encoding changes in them.
    Turn,
}

/// Which of the two a vector is.
#[derive(Clone, Copy)]
pub enum Side {
    Query,
    Key,
}

/// The product of two vectors, summed in f64.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum()
}

/// A tensor on the host, in f32.
///
/// # Errors
///
/// [`Exit::Bug`] if it cannot be read back.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, Failure> {
    let data = tensor.into_data_dtype(DType::F32).try_to_vec::<f32>();
    data.map_err(|error| {
        Failure::new(
            Exit::Bug,
            format!("a tensor cannot be read back: {error:?}"),
        )
    })
}
