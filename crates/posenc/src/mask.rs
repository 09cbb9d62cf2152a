//! Biases of minus infinity, which mask pairs of a query and a key.

use crate::hooks::BiasBlocks;
use crate::positions::Positions;
use crate::tensors::upload;
use burn::tensor::{Device, Tensor};
use std::ops::Range;

/// Masks every key for which `seen(query, key)` is false, in all heads.
pub(crate) struct Window {
    positions: Positions,
    device: Device,
    seen: Box<dyn Fn(f64, f64) -> bool>,
}

impl Window {
    pub(crate) fn new(
        positions: &Positions,
        device: &Device,
        seen: impl Fn(f64, f64) -> bool + 'static,
    ) -> Self {
        Self {
            positions: positions.clone(),
            device: device.clone(),
            seen: Box::new(seen),
        }
    }
}

impl BiasBlocks for &Window {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let shape = [1, 1, queries.len(), keys.len()];
        let (queries, keys) = (
            &self.positions.queries()[queries],
            &self.positions.keys()[keys],
        );
        let bias = |query: f64, key: f64| {
            if (self.seen)(query, key) {
                0.0
            } else {
                f64::NEG_INFINITY
            }
        };
        upload(
            queries
                .iter()
                .flat_map(|q| keys.iter().map(move |k| bias(*q, *k)))
                .collect(),
            shape,
            &self.device,
        )
    }
}
