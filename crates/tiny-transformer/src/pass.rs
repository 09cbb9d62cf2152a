//! What a forward pass is given and what it remembers: limits, dropout, observers, the cache.

use crate::denominators::Denominators;
use burn::tensor::{Tensor, TensorData};

/// The options of one forward pass.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// The most attention logits (batch x heads x queries x keys) held at once. Longer sequences go
    /// block by block over queries.
    pub max_logits: usize,
    /// Dropout factors of a site, one per element: 0 for a dropped element, `1 / (1 - dropout)` for
    /// the others. Called with the site, `0..=2 n_layers`, and the number of elements. `None`
    /// outside training.
    pub dropout: Option<&'a dyn Fn(usize, usize) -> Vec<f32>>,
    /// Receives the residual stream after the embedding and after every block, and the logits, each
    /// with its name.
    pub observe: Option<&'a Observe<'a>>,
    /// Counts the denominators of linear attention, which costs a transfer from the device for each
    /// layer.
    pub denominators: Option<&'a Denominators>,
}

/// Looks at a named tensor on its way through a model.
pub type Observe<'a> = dyn Fn(&str, &Tensor<3>) + 'a;

impl Default for Pass<'_> {
    /// Evaluation, with about 16 MiB of logits at a time.
    fn default() -> Self {
        Self {
            max_logits: 1 << 22,
            dropout: None,
            observe: None,
            denominators: None,
        }
    }
}

impl Pass<'_> {
    pub(crate) fn show(&self, name: impl FnOnce() -> String, x: &Tensor<3>) {
        if let Some(observe) = self.observe {
            observe(&name(), x);
        }
    }

    /// `x` times the dropout factors of a site; `x` itself outside training.
    pub(crate) fn apply_dropout(&self, site: usize, x: Tensor<3>) -> Tensor<3> {
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

/// Keys and values of the tokens a model has seen, so that later tokens need not see them again.
///
/// See [`Transformer::extend`](crate::Transformer::extend).
#[derive(Clone, Debug, Default)]
pub struct Cache {
    pub(crate) layers: Vec<Past>,
    pub(crate) length: usize,
}

impl Cache {
    /// Number of tokens seen so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no token has been seen.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// What one layer keeps of earlier tokens.
///
/// Keys are kept *before* `transform_qk`: encodings that read the length then stay right when it
/// grows.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Keys, values, and the input of both.
    held: Option<(Tensor<4>, Tensor<4>, Tensor<3>)>,
}

impl Past {
    /// Puts the earlier keys, values and inputs in front of these, and keeps them all.
    pub(crate) fn extend(
        &mut self,
        mut keys: Tensor<4>,
        mut values: Tensor<4>,
        mut hidden: Tensor<3>,
    ) -> (Tensor<4>, Tensor<4>, Tensor<3>) {
        // Positions are dimension 2 of keys and values, [B, H, L, E], and dimension 1 of `hidden`.
        if let Some((old_keys, old_values, old_hidden)) = self.held.take() {
            keys = Tensor::cat(vec![old_keys, keys], 2);
            values = Tensor::cat(vec![old_values, values], 2);
            hidden = Tensor::cat(vec![old_hidden, hidden], 1);
        }
        self.held = Some((keys.clone(), values.clone(), hidden.clone()));
        (keys, values, hidden)
    }
}
