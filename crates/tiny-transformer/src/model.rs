//! The model: embedding, encoding, blocks, head.

use crate::block::Block;
use crate::config::{Mask, TransformerConfig};
use crate::heads::context;
use crate::init::matrix_std;
use crate::layer_biases::LayerBiases;
use crate::norm::Norm;
use crate::pass::{Cache, Pass, Past};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use kernels::Matmul;
use posenc::{
    ConfigError, Distribution, Encoding, EncodingConfig, Init, PositionalEncoding, Positions,
    Prepared,
};

/// A decoder-only transformer, or an encoder with [`Mask::Bidirectional`], around the encoding `E`.
#[derive(Module, Debug)]
pub struct Transformer<E: Module = Encoding> {
    /// `[vocab_size, d_model]`.
    embedding: Param<Tensor<2>>,
    encoding: E,
    blocks: Vec<Block>,
    final_norm: Norm,
    /// `[d_model, vocab_size]`; absent where the head is the transposed embedding.
    head: Option<Param<Tensor<2>>>,
    /// How many models these are, side by side. Parameters have as many times the rows.
    #[module(skip)]
    groups: usize,
    #[module(skip)]
    mask: Mask,
    #[module(skip)]
    matmul: Matmul,
}

/// The parameters that are not those of the encoding: embedding, blocks, final norm and head.
pub(crate) type Body = (Param<Tensor<2>>, Vec<Block>, Norm, Option<Param<Tensor<2>>>);

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
    /// Draws a model around an encoding that exists already, of posenc or of your own.
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
            head: (!config.tied_head).then(|| {
                init.param(
                    "head",
                    [d, vocab],
                    Distribution::Normal(matrix_std(config, d)),
                )
            }),
            groups: 1,
            mask: config.mask,
            matmul: config.matmul,
        }
    }

    /// The same weights around another encoding, to test a trained model under another scaling.
    pub fn with_encoding<F: Module + PositionalEncoding>(self, encoding: F) -> Transformer<F> {
        self.with_body(self.body(), encoding, self.groups)
    }

    /// Logits `[B, L, vocab_size]` at each of `tokens`, `[B, L]`: of the next token in a language
    /// model.
    ///
    /// ```
    /// use burn::tensor::{Device, Int, Tensor};
    /// use posenc::{EncodingConfig, Init, Positions};
    /// use tiny_transformer::{Cache, Pass, Transformer, TransformerConfig};
    ///
    /// let config = TransformerConfig::new(11).with_d_model(16).with_heads(2).with_d_ff(32);
    /// let kind = EncodingConfig::KINDS[0];
    /// let encoding = EncodingConfig::default_of(kind).expect("this kind needs no keys");
    /// let (device, pass) = (Device::default(), Pass::default());
    /// let model = Transformer::new(&config, &encoding, &Init::zeros(&device)).expect("it fits");
    ///
    /// let tokens = Tensor::<2, Int>::from_data([[1, 2, 3], [4, 5, 6]], &device);
    /// let logits = model.forward(tokens.clone(), &Positions::contiguous(3), &pass);
    /// assert_eq!(logits.dims(), [2, 3, 11]);
    ///
    /// // Token by token, with earlier keys and values from a cache.
    /// let mut cache = Cache::default();
    /// for i in 0..3 {
    ///     let next = tokens.clone().slice_dim(1, i..i + 1);
    ///     model.extend(next, &Positions::contiguous(i + 1), &mut cache, &pass);
    /// }
    /// assert_eq!(cache.len(), 3);
    ///
    /// // The loss of every token, in nats.
    /// let targets = tokens.clone();
    /// let (nll, _) = model.nll(tokens, targets, &Positions::contiguous(3), &pass);
    /// assert_eq!(nll.dims(), [2, 3]);
    /// ```
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
        // Once per pass: all layers share the tables.
        self.run(tokens, self.prepared(positions).as_ref(), pass, None)
    }

    /// Logits of tokens that continue those in `cache`. `positions` covers cached and new tokens;
    /// the new ones are appended to `cache`. See the example of [`forward`](Self::forward).
    ///
    /// Every call prepares all positions, and the cache holds keys before the encoding transforms
    /// them: rotations that read the length use the current one for all keys. The outputs of lower
    /// layers for earlier tokens are not recomputed. For an encoding that reads the length
    /// ([`Facts::reads_length`](posenc::Facts)), the logits therefore equal those of
    /// [`forward`](Self::forward) only in a single layer without an embedded position.
    ///
    /// # Panics
    ///
    /// If `positions` does not cover cached and new tokens, the batch size has changed, or
    /// attention is bidirectional: earlier tokens would see later ones.
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
            "a cache needs causal attention: earlier tokens must not see later ones"
        );
        assert_eq!(
            (positions.queries().len(), positions.keys().len()),
            (all, all),
            "one position per token, those in the cache included"
        );
        // The first call adds an empty past per layer. Later calls find them.
        cache.layers.resize_with(self.blocks.len(), Past::default);
        cache.length = all;
        let prepared = self.prepared(&positions.last(length));
        self.run(tokens, prepared.as_ref(), pass, Some(&mut cache.layers))
    }

    /// Negative log-likelihood of each target in nats, `[B, L]`, and the logits, `[B, L,
    /// vocab_size]`.
    pub fn nll(
        &self,
        tokens: Tensor<2, Int>,
        targets: Tensor<2, Int>,
        positions: &Positions,
        pass: &Pass<'_>,
    ) -> (Tensor<2>, Tensor<3>) {
        nll(self.forward(tokens, positions, pass), targets)
    }

    fn prepared(&self, positions: &Positions) -> Box<dyn Prepared + '_> {
        let device = self.embedding.val().device();
        let prepared = self.encoding.prepare(positions, &context(&device));
        prepared.unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<E: Module> Transformer<E> {
    /// The encoding.
    pub fn encoding(&self) -> &E {
        &self.encoding
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    pub(crate) fn body(&self) -> Body {
        (
            self.embedding.clone(),
            self.blocks.clone(),
            self.final_norm.clone(),
            self.head.clone(),
        )
    }

    /// `groups` models with these parameters and another encoding.
    pub(crate) fn with_body<F: Module>(
        &self,
        (embedding, blocks, final_norm, head): Body,
        encoding: F,
        groups: usize,
    ) -> Transformer<F> {
        Transformer {
            embedding,
            encoding,
            blocks,
            final_norm,
            head,
            groups,
            mask: self.mask,
            matmul: self.matmul,
        }
    }

    /// Logits of `tokens` with a prepared encoding. `past` holds the earlier tokens of every layer.
    pub(crate) fn run(
        &self,
        tokens: Tensor<2, Int>,
        prepared: &dyn Prepared,
        pass: &Pass<'_>,
        past: Option<&mut [Past]>,
    ) -> Tensor<3> {
        let ([batch, length], groups) = (tokens.dims(), self.groups);
        let embedding = self.embedding.val();
        let [rows, d_model] = embedding.dims();
        let vocab = rows / groups;
        let embedded = kernels::embedding(embedding.clone(), tokens, groups);
        let mut x = pass.apply_dropout(0, prepared.embed(embedded));
        pass.show(|| "embedding".to_owned(), &x);
        let mut past = past.map(|past| past.iter_mut());
        let biases = LayerBiases::new(self.blocks.len());
        for (layer, block) in self.blocks.iter().enumerate() {
            let past = past.as_mut().and_then(Iterator::next);
            x = block.forward(x, layer, prepared, &biases, pass, past);
            pass.show(|| format!("blocks.{layer}"), &x);
        }
        let head = match &self.head {
            Some(head) => head.val(),
            None if groups == 1 => embedding.transpose(),
            None => {
                let each: Tensor<3> = embedding.reshape([groups, vocab, d_model]);
                each.swap_dims(1, 2).reshape([groups * d_model, vocab])
            }
        };
        // The final norm runs inside the product with the head.
        let x = x.reshape([batch * length, d_model]);
        let logits = kernels::linear(x, Some(self.final_norm.parameters()), head, self.matmul)
            .reshape([batch, length, vocab]);
        pass.show(|| "head".to_owned(), &logits);
        logits
    }
}

/// Negative log-likelihood of each target in nats, `[B, L]`, and the logits themselves.
pub(crate) fn nll(logits: Tensor<3>, targets: Tensor<2, Int>) -> (Tensor<2>, Tensor<3>) {
    let [batch, length, vocab] = logits.dims();
    let nll = kernels::nll(
        logits.clone().reshape([batch * length, vocab]),
        targets.reshape([batch * length]),
    );
    (nll.reshape([batch, length]), logits)
}
