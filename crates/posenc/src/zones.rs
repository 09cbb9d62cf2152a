//! Rotary attention in two zones: near pairs turn by their distance, far pairs by other positions.
//! The far logits replace the near ones as a content-dependent bias, their difference.

use crate::encodings::upload;
use crate::frequencies::Frequencies;
use crate::rotation::{RotaryLayout, Turn};
use crate::{Content, Positions, Prepared};
use burn::tensor::{Device, Tensor};
use std::ops::Range;

/// What turns by what.
pub(crate) struct Zones {
    pub frequencies: Frequencies,
    pub layout: RotaryLayout,
    /// Positions of the queries and of the keys in the far zone.
    pub outer_queries: Vec<f64>,
    pub outer_keys: Vec<f64>,
    /// The smallest distance of the far zone.
    pub from: f64,
}

pub(crate) struct PreparedZones {
    layout: RotaryLayout,
    inner: [Turn; 2],
    outer: [Turn; 2],
    positions: Positions,
    from: f64,
    device: Device,
}

impl PreparedZones {
    pub fn new(zones: Zones, positions: &Positions, device: &Device) -> Self {
        let turn = |positions: &[f64]| Turn::new(positions, &zones.frequencies, device);
        Self {
            layout: zones.layout,
            inner: [turn(positions.queries()), turn(positions.keys())],
            outer: [turn(&zones.outer_queries), turn(&zones.outer_keys)],
            positions: positions.clone(),
            from: zones.from,
            device: device.clone(),
        }
    }

    /// 1 in the far zone and 0 elsewhere, `[1, 1, q_len, k_len]`.
    fn far(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let shape = [1, 1, queries.len(), keys.len()];
        let (q, k) = (
            &self.positions.queries()[queries],
            &self.positions.keys()[keys],
        );
        let far = q.iter().flat_map(|q| {
            k.iter()
                .map(move |k| f64::from(u8::from(q - k >= self.from)))
        });
        upload(far.collect(), shape, &self.device)
    }
}

impl Prepared for PreparedZones {
    fn transform_qk(&self, _layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        (
            self.inner[0].apply(q, self.layout),
            self.inner[1].apply(k, self.layout),
        )
    }

    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let (q, k) = (content.raw)();
        let q = self.outer[0]
            .apply(q, self.layout)
            .slice_dim(2, content.queries.clone());
        let k = self.outer[1]
            .apply(k, self.layout)
            .slice_dim(2, content.keys.clone());
        let outer = (q * content.scale).matmul(k.swap_dims(2, 3));
        Some((outer - content.logits()) * self.far(content.queries.clone(), content.keys.clone()))
    }
}
