//! What every kernel of attention reads: the inputs of a call, and what the backward pass knows.

use super::settings::{BiasKind, Settings};
use super::tiles::{Four, LOWEST, load};
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// The inputs of a call. Queries, keys and values are `[B, H, L, E]`, each from an offset on.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Call {
    pub q: OwnedTensor<f32>,
    pub k: OwnedTensor<f32>,
    pub v: OwnedTensor<f32>,
    /// `[G, H, Q, K]`, `[G, H, 1, n]` or `[B, H, 1, L]`, with a stride of 0 where heads share it.
    /// Each of its G parts is for B / G sequences. Not read without a bias.
    pub bias: OwnedTensor<f32>,
    /// Cos and sin of queries, then of keys, `[4 G, 1, L, R]`, contiguous. Not read without a
    /// rotation.
    pub tables: OwnedTensor<f32>,
    pub scale: f32,
    pub first_query: u32,
    pub q_at: u32,
    pub k_at: u32,
    pub v_at: u32,
}

/// What the backward pass knows of the rows of the output.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Rows {
    /// The gradient of the output, `[B, H, Q, E]`.
    pub grad: OwnedTensor<f32>,
    /// The largest logit, and the inverse of the sum of the exponentials, `[B, H, Q, 2]`.
    pub stats: OwnedTensor<f32>,
    /// The sum of the output times its gradient, `[B, H, Q]`.
    pub deltas: OwnedTensor<f32>,
}

/// Table of the cosines of queries, and of keys. The sines follow.
pub(super) const QUERY_TABLE: Option<usize> = Some(0);
pub(super) const KEY_TABLE: Option<usize> = Some(2);

#[cube]
impl Call {
    /// Q.
    pub(super) fn queries(&self) -> usize {
        self.q.shape(2)
    }

    /// K.
    pub(super) fn keys(&self) -> usize {
        self.k.shape(2)
    }

    /// How many keys the queries before `end` see.
    pub(super) fn seen(&self, end: usize) -> usize {
        let end = select(end < self.queries(), end, self.queries());
        let seen = self.first_query as usize + end;
        select(seen < self.keys(), seen, self.keys())
    }

    /// Loads `count` queries of a batch and head from `first` on, rotated.
    pub(super) fn load_queries(
        &self,
        to: &mut Shared<[Four]>,
        place: (usize, usize),
        first: usize,
        #[comptime] count: usize,
        #[comptime] s: Settings,
    ) {
        let rows = (first, self.queries());
        let (from, tables, at) = (&self.q, &self.tables, self.q_at);
        load(to, from, tables, at, place, rows, count, QUERY_TABLE, s);
    }

    /// Loads `count` keys of a batch and head, rotated. `rows` are the first and the end: from
    /// there on none is read.
    pub(super) fn load_keys(
        &self,
        to: &mut Shared<[Four]>,
        place: (usize, usize),
        rows: (usize, usize),
        #[comptime] count: usize,
        #[comptime] s: Settings,
    ) {
        let (from, tables, at) = (&self.k, &self.tables, self.k_at);
        load(to, from, tables, at, place, rows, count, KEY_TABLE, s);
    }

    /// Loads `count` values, likewise.
    pub(super) fn load_values(
        &self,
        to: &mut Shared<[Four]>,
        place: (usize, usize),
        rows: (usize, usize),
        #[comptime] count: usize,
        #[comptime] s: Settings,
    ) {
        let (from, tables, at) = (&self.v, &self.tables, self.v_at);
        load(to, from, tables, at, place, rows, count, None, s);
    }

    /// The logit of a query and a key from their product: [`LOWEST`] where the key is hidden or
    /// does not exist.
    pub(super) fn logit(
        &self,
        product: f32,
        query: usize,
        key: usize,
        place: (usize, usize),
        #[comptime] s: Settings,
    ) -> f32 {
        let last = self.first_query as usize + query;
        let mut x = LOWEST.runtime();
        if query < self.queries() && key < self.keys() && key <= last {
            x = product * self.scale;
            if comptime![s.bias != BiasKind::None] {
                let group = place.0 * self.bias.shape(0) / self.q.shape(0);
                let mut at = group * self.bias.stride(0) + place.1 * self.bias.stride(1);
                if comptime![s.bias == BiasKind::Dense] {
                    at += query * self.bias.stride(2) + key * self.bias.stride(3);
                    x += self.bias[at];
                } else if comptime![s.bias == BiasKind::ByDistance] {
                    at += (last - key) * self.bias.stride(3);
                    x += self.bias[at];
                } else {
                    let step = self.bias.stride(3);
                    x += self.bias[at + last * step] - self.bias[at + key * step];
                }
            }
        }
        x
    }
}

#[cube]
impl Rows {
    /// Loads `count` gradients of the output of a batch and head from `first` on.
    pub(super) fn load(
        &self,
        to: &mut Shared<[Four]>,
        place: (usize, usize),
        first: usize,
        #[comptime] count: usize,
        #[comptime] s: Settings,
    ) {
        let rows = (first, self.grad.shape(2));
        load(to, &self.grad, &self.grad, 0, place, rows, count, None, s);
    }
}
