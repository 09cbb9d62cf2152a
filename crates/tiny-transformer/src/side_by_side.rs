//! Models side by side: several models of one shape as one, whose parameters hold those of all.

use crate::heads::context;
use crate::members::Members;
use crate::model::Transformer;
use crate::pass::Pass;
use burn::module::{Module, ModuleDisplay, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Int, Tensor};
use posenc::{PositionalEncoding, Positions};

impl<E: Module + ModuleDisplay> Transformer<E> {
    /// Several models as one. Its batches are theirs, one after the other, and so are its
    /// parameters, along their first dimensions: see the groups of [`kernels`]. With
    /// `shared_encoding`, the first model's encoding is that of all: right where they are equal and
    /// have no parameters, and faster.
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
    pub fn join(models: &[Self], shared_encoding: bool) -> Transformer<Members<E>> {
        let encodings = if shared_encoding { 1 } else { models.len() };
        let encodings = models.iter().take(encodings);
        let encodings = encodings.map(|model| model.encoding().clone());
        let parameters = models.iter().map(|model| {
            let mut all = Flat::default();
            model.body().visit(&mut all);
            all.0.into_iter()
        });
        let mut join = Join(parameters.collect());
        let body = models[0].body().map(&mut join);
        let rest = join.0.iter_mut().map(Iterator::count);
        assert_eq!(rest.sum::<usize>(), 0, "models of one shape");
        models[0].with_body(body, Members::new(encodings.collect()), models.len())
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
        let body = self.body().map(&mut Part { g, groups });
        self.with_body(body, self.encoding().of(g).clone(), 1)
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
        let prepared = self
            .encoding()
            .prepare(positions, groups, &context(&tokens.device()));
        let prepared = prepared.unwrap_or_else(|error| panic!("{error}"));
        let logits = self.run(tokens, prepared.as_ref(), pass, None);
        crate::model::nll(logits, targets).0
    }
}

/// The parameters of a module in their order, flat.
#[derive(Default)]
struct Flat(Vec<Tensor<1>>);

impl ModuleVisitor for Flat {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let count = value.dims().iter().product::<usize>();
        self.0.push(value.reshape([count]));
    }
}

/// Replaces every parameter by those of all models.
struct Join(Vec<std::vec::IntoIter<Tensor<1>>>);

impl ModuleMapper for Join {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let mut shape = param.val().dims();
        shape[0] *= self.0.len();
        let next = |model: &mut std::vec::IntoIter<_>| model.next().expect("a parameter");
        let values = Tensor::cat(self.0.iter_mut().map(next).collect(), 0);
        Param::from_tensor(values.reshape(shape).detach())
    }
}

/// Replaces every parameter by that of one model.
struct Part {
    g: usize,
    groups: usize,
}

impl ModuleMapper for Part {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let values = param.val();
        let size = values.dims()[0] / self.groups;
        let own = values.slice_dim(0, self.g * size..(self.g + 1) * size);
        Param::from_tensor(own.detach())
    }
}
