//! Rotary attention in two zones: near pairs rotate by distance, far pairs by mapped positions.
//!
//! Queries and keys are rotated as usual, so that fused attention computes the near zone. The far
//! zone is a content-dependent bias: far logits minus near logits.

use crate::hooks::{Content, Prepared};
use crate::positions::Positions;
use crate::rotary::{Frequencies, RotaryLayout};
use crate::rotary_tables::RotaryTables;
use crate::tensors::upload;
use burn::tensor::{Device, Tensor};
use std::ops::Range;

/// Rotations for the near and far zones.
pub(crate) struct Zones {
    pub frequencies: Frequencies,
    pub layout: RotaryLayout,
    /// Mapped positions of queries and keys in the far zone.
    pub far_queries: Vec<f64>,
    pub far_keys: Vec<f64>,
    /// The smallest distance of the far zone.
    pub from: f64,
}

pub(crate) struct PreparedZones {
    layout: RotaryLayout,
    near: [RotaryTables; 2],
    far: [RotaryTables; 2],
    positions: Positions,
    from: f64,
    device: Device,
}

impl PreparedZones {
    pub(crate) fn new(zones: Zones, positions: &Positions, device: &Device) -> Self {
        let tables = |positions: &[f64]| RotaryTables::new(positions, &zones.frequencies, device);
        Self {
            layout: zones.layout,
            near: [tables(positions.queries()), tables(positions.keys())],
            far: [tables(&zones.far_queries), tables(&zones.far_keys)],
            positions: positions.clone(),
            from: zones.from,
            device: device.clone(),
        }
    }

    /// 1 in the far zone and 0 elsewhere, `[1, 1, q_len, k_len]`.
    fn far_mask(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
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
            self.near[0].apply(q, self.layout),
            self.near[1].apply(k, self.layout),
        )
    }

    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        // `raw` holds all rows, as the far tables do: they rotate first, then the block is cut out.
        let (q, k) = (content.raw)();
        let q = self.far[0]
            .apply(q, self.layout)
            .slice_dim(2, content.queries.clone());
        let k = self.far[1]
            .apply(k, self.layout)
            .slice_dim(2, content.keys.clone());
        let far = (q * content.scale).matmul(k.swap_dims(2, 3));
        Some(
            (far - content.logits()) * self.far_mask(content.queries.clone(), content.keys.clone()),
        )
    }
}
