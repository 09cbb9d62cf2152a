//! Biases by position of one pass: a bias that layers share is computed once.

use posenc::Prepared;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The biases that later layers of a pass need again.
pub struct LayerBiases {
    layers: usize,
    /// By the first layer that has them.
    made: RefCell<BTreeMap<usize, kernels::Bias>>,
}

impl LayerBiases {
    /// No biases yet, for a pass through `layers` layers.
    pub fn new(layers: usize) -> Self {
        Self {
            layers,
            made: RefCell::default(),
        }
    }

    /// The bias of this layer: that of an earlier one, or what `make` returns. It is held as long
    /// as a later layer has the same.
    pub(crate) fn of(
        &self,
        encoding: &dyn Prepared,
        layer: usize,
        make: impl FnOnce() -> Option<kernels::Bias>,
    ) -> Option<kernels::Bias> {
        let first = encoding.bias_layer(layer);
        let before = self.made.borrow_mut().remove(&first);
        let bias = before.or_else(make)?;
        let mut later = layer + 1..self.layers;
        if later.any(|later| encoding.bias_layer(later) == first) {
            self.made.borrow_mut().insert(first, bias.clone());
        }
        Some(bias)
    }
}
