//! The model: embedding, encoding, blocks, head.

use crate::attention::{Past, fan_in};
use crate::block::Block;
use crate::config::{Mask, TransformerConfig};
use crate::norm::Norm;
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};
use kernels::Matmul;
use posenc::{
    ConfigError, Distribution, Encoding, EncodingConfig, Init, PositionalEncoding, Positions,
};

/// A decoder-only transformer, or an encoder, around the encoding `E`.
#[derive(Module, Debug)]
pub struct Transformer<E: Module = Encoding> {
    /// `[vocab_size, d_model]`.
    embedding: Param<Tensor<2>>,
    encoding: E,
    blocks: Vec<Block>,
    final_norm: Norm,
    /// `[d_model, vocab_size]`; absent where the head is the transposed embedding.
    head: Option<Param<Tensor<2>>>,
    #[module(skip)]
    mask: Mask,
    #[module(skip)]
    matmul: Matmul,
}

/// What a model keeps of the tokens it has seen, so that the next ones need not see them again.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    layers: Vec<Past>,
    length: usize,
}

impl Cache {
    /// Tokens seen so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no token has been seen.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// What one forward pass may use: how many logits at once, and which elements dropout keeps.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// Most attention logits (batch x heads x queries x keys) held at once.
    pub max_logits: usize,
    /// Factors by which to multiply the output of site `0..=2 n_layers`: 0 for what is dropped, `1
    /// / (1 - dropout)` for the rest. Given the site and the number of elements; `None`
    /// outside training.
    pub dropout: Option<&'a dyn Fn(usize, usize) -> Vec<f32>>,
    /// Is shown the residual stream after the embedding and after every block, and the logits, by
    /// name.
    pub observe: Option<&'a Observe<'a>>,
}

/// Looks at a tensor on its way through a model.
pub type Observe<'a> = dyn Fn(&str, &Tensor<3>) + 'a;

impl Default for Pass<'_> {
    /// Evaluation, with about 16 MiB of logits at a time.
    fn default() -> Self {
        Self {
            max_logits: 1 << 22,
            dropout: None,
            observe: None,
        }
    }
}

impl Pass<'_> {
    fn show(&self, name: impl FnOnce() -> String, x: &Tensor<3>) {
        if let Some(observe) = self.observe {
            observe(&name(), x);
        }
    }

    pub(crate) fn drop(&self, site: usize, x: Tensor<3>) -> Tensor<3> {
        match self.dropout {
            None => x,
            Some(factors) => {
                let (shape, device) = (x.dims(), x.device());
                let factors = factors(site, shape.iter().product());
                x * Tensor::<3>::from_data(TensorData::new(factors, shape), &device)
            }
        }
    }
}

impl Transformer<Encoding> {
    /// Draws a model with an encoding of the catalogue. `config` must have passed its check.
    ///
    /// # Errors
    ///
    /// If the encoding fails its check, or one of its keys depends on lengths and is not resolved.
    pub fn new(
        config: &TransformerConfig,
        encoding: &EncodingConfig,
        init: &Init<'_>,
    ) -> Result<Self, ConfigError> {
        let encoding = encoding.init(&config.shape(), &init.scope("encoding"))?;
        Ok(Self::with(config, encoding, init))
    }
}

impl<E: Module + PositionalEncoding> Transformer<E> {
    /// Draws a model around an encoding that is already there.
    pub fn with(config: &TransformerConfig, encoding: E, init: &Init<'_>) -> Self {
        let blocks = init.scope("blocks");
        let (vocab, d) = (config.vocab_size, config.d_model);
        Self {
            embedding: init.param(
                "embedding",
                [vocab, d],
                Distribution::Normal(config.embedding_std),
            ),
            encoding,
            blocks: (0..config.n_layers)
                .map(|layer| Block::new(config, &blocks.scope(layer)))
                .collect(),
            final_norm: Norm::new(config.norm, d, &init.scope("final_norm")),
            head: (!config.tied_head)
                .then(|| init.param("head", [d, vocab], Distribution::Normal(fan_in(d)))),
            mask: config.mask,
            matmul: config.matmul,
        }
    }

    /// The same weights around another encoding: train once, test under another scaling.
    pub fn with_encoding<F: Module + PositionalEncoding>(self, encoding: F) -> Transformer<F> {
        let Self {
            embedding,
            blocks,
            final_norm,
            head,
            mask,
            matmul,
            ..
        } = self;
        Transformer {
            embedding,
            encoding,
            blocks,
            final_norm,
            head,
            mask,
            matmul,
        }
    }

    /// The encoding.
    pub fn encoding(&self) -> &E {
        &self.encoding
    }

    /// Logits `[B, L, vocab_size]` of the token after each of `tokens`, `[B, L]`, or of the token
    /// itself, as the model was trained.
    ///
    /// # Panics
    ///
    /// If there are not as many positions as tokens in a row, or a position lies past the
    /// encoding's `max_position`.
    pub fn forward(
        &self,
        tokens: Tensor<2, Int>,
        positions: &Positions,
        pass: &Pass<'_>,
    ) -> Tensor<3> {
        let length = tokens.dims()[1];
        assert_eq!(
            (positions.queries().len(), positions.keys().len()),
            (length, length),
            "one position per token"
        );
        self.run(
            tokens,
            positions,
            pass,
            &mut self.blocks.iter().map(|_| None).collect::<Vec<_>>(),
        )
    }

    /// The same for tokens that continue what `cache` holds: `positions` are those of *all* tokens,
    /// the last of them these. The cache holds these tokens afterwards too.
    ///
    /// Positions are prepared anew for every call, and keys are kept before the encoding transforms
    /// them, so that rotations that read the length turn all keys by the true one. What the
    /// layers below made of earlier tokens stays as it was at their length: for an encoding
    /// that reads the length ([`Facts::reads_length`](posenc::Facts)) only a single layer without
    /// an embedded position gives what [`forward`](Self::forward) gives.
    ///
    /// # Panics
    ///
    /// If the positions are not as many as the cache's tokens and these, the batch has changed, or
    /// attention is bidirectional: then earlier tokens see later ones.
    pub fn extend(
        &self,
        tokens: Tensor<2, Int>,
        positions: &Positions,
        cache: &mut Cache,
        pass: &Pass<'_>,
    ) -> Tensor<3> {
        let length = tokens.dims()[1];
        let all = cache.length + length;
        assert_eq!(
            self.mask,
            Mask::Causal,
            "what a token sees must not change with the tokens after it"
        );
        assert_eq!(
            (positions.queries().len(), positions.keys().len()),
            (all, all),
            "one position per token, those in the cache included"
        );
        cache.layers.resize_with(self.blocks.len(), Past::default);
        cache.length = all;
        self.run(
            tokens,
            &positions.last(length),
            pass,
            &mut cache.layers.iter_mut().map(Some).collect::<Vec<_>>(),
        )
    }

    fn run(
        &self,
        tokens: Tensor<2, Int>,
        positions: &Positions,
        pass: &Pass<'_>,
        past: &mut [Option<&mut Past>],
    ) -> Tensor<3> {
        let [batch, length] = tokens.dims();
        let embedding = self.embedding.val();
        let [vocab, d_model] = embedding.dims();
        let prepared = self
            .encoding
            .prepare(positions, &embedding.device())
            .unwrap_or_else(|error| panic!("{error}"));
        let embedded = burn::tensor::module::embedding(embedding.clone(), tokens);
        let mut x = pass.drop(0, prepared.embed(embedded));
        pass.show(|| "embedding".to_owned(), &x);
        for (layer, (block, past)) in self.blocks.iter().zip(past).enumerate() {
            x = block.forward(x, layer, prepared.as_ref(), pass, past.as_deref_mut());
            pass.show(|| format!("blocks.{layer}"), &x);
        }
        let head = self
            .head
            .as_ref()
            .map_or_else(|| embedding.transpose(), Param::val);
        let x = x.reshape([batch * length, d_model]);
        let logits = kernels::linear(x, Some(self.final_norm.parameters()), head, self.matmul)
            .reshape([batch, length, vocab]);
        pass.show(|| "head".to_owned(), &logits);
        logits
    }

    /// Negative log-likelihood in nats of each target, `[B, L]`, and the logits it comes from.
    pub fn nll(
        &self,
        tokens: Tensor<2, Int>,
        targets: Tensor<2, Int>,
        positions: &Positions,
        pass: &Pass<'_>,
    ) -> (Tensor<2>, Tensor<3>) {
        let logits = self.forward(tokens, positions, pass);
        let [batch, length, vocab] = logits.dims();
        let nll = kernels::nll(
            logits.clone().reshape([batch * length, vocab]),
            targets.reshape([batch * length]),
        );
        (nll.reshape([batch, length]), logits)
    }
}
