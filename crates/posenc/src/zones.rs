//! Rotary attention in zones. A query and a key close to each other are rotated by their true
//! distance; in every other zone they are rotated by positions that the zone maps them to.
//!
//! Queries and keys are rotated as usual, so that fused attention computes the near zone. The
//! others are a content-dependent bias: their logits minus the near ones.

use crate::facts::{Facts, Hooks, Lengths};
use crate::hooks::{Content, Context, Prepared, Qk, RotaryZones};
use crate::positions::Positions;
use crate::rotary::{Frequencies, RotaryLayout};
use crate::rotary_tables::RotaryTables;
use crate::spec::NumberTable;
use crate::tensors::upload;
use burn::tensor::{Device, Tensor};
use std::ops::Range;

/// Whether a query and a key at these positions belong to a zone.
type Holds = Box<dyn Fn(f64, f64) -> bool>;

/// One zone beside the near one.
pub(crate) struct Zone {
    /// Mapped positions of the queries.
    pub queries: Vec<f64>,
    /// Mapped positions of the keys.
    pub keys: Vec<f64>,
    /// Which queries and keys, by their positions before the mapping, belong to the zone; zones are
    /// disjoint.
    pub holds: Holds,
}

impl Zone {
    /// All queries and keys at least `from` apart.
    pub(crate) fn far(queries: Vec<f64>, keys: Vec<f64>, from: f64) -> Self {
        Self {
            queries,
            keys,
            holds: Box::new(move |query, key| query - key >= from),
        }
    }
}

/// What an encoding with one zone beside the near one declares.
pub(crate) fn two_zones() -> Facts {
    Facts {
        causal_only: true,
        rotates_qk: true,
        bias_workspace: 5.5,
        bias_kept: 3.5,
        bias_work: 3.5,
        ..Facts::new(Hooks::TRANSFORM_QK | Hooks::CONTENT_BIAS)
    }
}

/// A table of `mapped(last position, distance)`: what the pairs of the last query are rotated by.
pub(crate) fn mapped_distances(
    title: &'static str,
    lengths: &Lengths,
    mapped: impl Fn(f64, f64) -> f64,
) -> Vec<NumberTable> {
    let last = lengths.test_len.saturating_sub(1);
    let mapped = |distance| mapped(last as f64, distance);
    let columns = ["distance", "rotated by"];
    vec![NumberTable::of_function(title, columns, last, mapped)]
}

struct PreparedZone {
    queries: RotaryTables,
    keys: RotaryTables,
    holds: Holds,
}

pub(crate) struct PreparedZones {
    layout: RotaryLayout,
    near: [RotaryTables; 2],
    zones: Vec<PreparedZone>,
    positions: Positions,
    device: Device,
}

impl PreparedZones {
    pub(crate) fn new(
        frequencies: &Frequencies,
        layout: RotaryLayout,
        zones: Vec<Zone>,
        positions: &Positions,
        context: &Context,
    ) -> Self {
        let tables = |positions: &[f64]| RotaryTables::new(positions, frequencies, context);
        let prepared = zones.into_iter().map(|zone| PreparedZone {
            queries: tables(&zone.queries),
            keys: tables(&zone.keys),
            holds: zone.holds,
        });
        Self {
            layout,
            near: [tables(positions.queries()), tables(positions.keys())],
            zones: prepared.collect(),
            positions: positions.clone(),
            device: context.device.clone(),
        }
    }

    /// 1 in the zone and 0 elsewhere, `[1, 1, q_len, k_len]`.
    fn mask(&self, holds: &Holds, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let shape = [1, 1, queries.len(), keys.len()];
        let (q, k) = (
            &self.positions.queries()[queries],
            &self.positions.keys()[keys],
        );
        let inside = q
            .iter()
            .flat_map(|q| k.iter().map(move |k| f64::from(u8::from(holds(*q, *k)))));
        upload(inside.collect(), shape, &self.device)
    }
}

impl Prepared for PreparedZones {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        (
            self.near[0].apply(q, self.layout),
            self.near[1].apply(k, self.layout),
        )
    }

    fn zones(&self, _layer: usize) -> Option<RotaryZones> {
        let [queries, keys] = &self.near;
        let near = RotaryTables::fused_qk(queries, keys, self.layout)?.rotation?;
        let mut rotations = vec![near];
        for zone in &self.zones {
            let far = RotaryTables::fused_qk(&zone.queries, &zone.keys, self.layout)?;
            rotations.push(far.rotation?);
        }
        let zone = |query: f64, key: f64| {
            let far = self.zones.iter().position(|zone| (zone.holds)(query, key));
            far.map_or(0, |far| far + 1)
        };
        let keys = self.positions.keys();
        let queries = self.positions.queries().iter();
        let of = queries.flat_map(|query| keys.iter().map(move |key| zone(*query, *key)));
        Some(RotaryZones {
            rotations,
            of: of.collect(),
        })
    }

    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        // `raw` holds all rows, as the tables do: they rotate first, then the block is cut out.
        let (q, k) = (content.raw)();
        let near = content.logits();
        let biases = self.zones.iter().map(|zone| {
            let q = zone
                .queries
                .apply(q.clone(), self.layout)
                .slice_dim(2, content.queries.clone());
            let k = zone
                .keys
                .apply(k.clone(), self.layout)
                .slice_dim(2, content.keys.clone());
            let logits = content.ops.matmul(q * content.scale, k.swap_dims(2, 3));
            let mask = self.mask(&zone.holds, content.queries.clone(), content.keys.clone());
            (logits - near.clone()) * mask
        });
        biases.reduce(|sum, bias| sum + bias)
    }
}
