//! Models side by side: several models of one shape as one, whose parameters hold those of all.

use crate::heads::context;
use crate::join::{join, part};
use crate::members::Members;
use crate::model::Transformer;
use crate::pass::Pass;
use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Int, Tensor};
use posenc::{PositionalEncoding, Positions};

impl<E: Module + ModuleDisplay + PositionalEncoding> Transformer<E> {
    /// Several models as one. Its batches are theirs, one after the other, and so are its
    /// parameters, along their first dimensions: see the groups of [`kernels`]. With
    /// `equal_encodings`, which says that encodings differ in nothing but their parameters, one
    /// encoding acts for all models if it can: right for equal configurations, and faster.
    ///
    /// ```
    /// use burn::module::Module;
    /// use burn::tensor::{Device, Int, Tensor};
    /// use posenc::{EncodingConfig, Init, Positions};
    /// use tiny_transformer::{Pass, Transformer, TransformerConfig};
    ///
    /// let config = TransformerConfig::new(11).with_d_model(16).with_heads(2).with_d_ff(32);
    /// let kind = EncodingConfig::KINDS[0];
    /// let encoding = EncodingConfig::default_of(kind).expect("this kind needs no keys");
    /// let device = Device::default();
    /// let draw = |value: f64| {
    ///     let source = |_: &str, shape: &[usize], _| vec![value; shape.iter().product()];
    ///     Transformer::new(&config, &encoding, &Init::new(&device, &source)).expect("it fits")
    /// };
    ///
    /// let both = Transformer::join(&[draw(0.1), draw(0.2)], false);
    /// // The batch of the first, then that of the second.
    /// let tokens = Tensor::<2, Int>::from_data([[1, 2, 3], [4, 5, 6]], &device);
    /// let positions = [Positions::contiguous(3)];
    /// let nll = both.nll_of_each(tokens.clone(), tokens, &positions, &Pass::default());
    /// assert_eq!(nll.dims(), [2, 3]);
    /// assert_eq!(both.part(1).num_params(), draw(0.2).num_params());
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no model, or they differ in shape.
    pub fn join(models: &[Self], equal_encodings: bool) -> Transformer<Members<E>> {
        let bodies: Vec<_> = models.iter().map(Self::body).collect();
        let encodings = models.iter().map(|model| model.encoding().clone());
        let members = Members::new(encodings.collect(), equal_encodings);
        models[0].with_body(join(&bodies), members, models.len())
    }
}

impl<E: Module + ModuleDisplay + PositionalEncoding> Transformer<Members<E>> {
    /// How many models there are.
    pub fn count(&self) -> usize {
        self.groups()
    }

    /// Model `g`, as it was before it was joined.
    ///
    /// # Panics
    ///
    /// If there are not as many.
    pub fn part(&self, g: usize) -> Transformer<E> {
        let groups = self.groups();
        assert!(g < groups, "model {g} of {groups}");
        let body = part(&self.body(), g, groups);
        self.with_body(body, self.encoding().part(g, groups), 1)
    }

    /// Negative log-likelihood of each target in nats, `[G B, L]`: the rows of the first model,
    /// then those of the second, and so on. `positions` are those of all models, or those of each.
    ///
    /// # Panics
    ///
    /// If there are not as many rows for each model, or not one position per token in a row, or a
    /// position lies past the encoding's `max_position`.
    pub fn nll_of_each(
        &self,
        tokens: Tensor<2, Int>,
        targets: Tensor<2, Int>,
        positions: &[Positions],
        pass: &Pass<'_>,
    ) -> Tensor<2> {
        let ([rows, length], groups) = (tokens.dims(), self.groups());
        assert!(
            [1, groups].contains(&positions.len()) && rows.is_multiple_of(groups),
            "rows and positions for {groups} models"
        );
        for positions in positions {
            let counts = (positions.queries().len(), positions.keys().len());
            assert_eq!(counts, (length, length), "one position per token");
        }
        let apart = self.encoding().apart(positions, groups);
        let members = apart.as_ref().unwrap_or(self.encoding());
        let prepared = members.prepare(positions, groups, &context(&tokens.device()));
        let prepared = prepared.unwrap_or_else(|error| panic!("{error}"));
        let logits = self.run(tokens, prepared.as_ref(), pass, None);
        crate::model::nll(logits, targets).0
    }
}
