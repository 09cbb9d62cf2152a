//! Encodings of coordinates that differ from row to row of a batch: each row is prepared alone.

use crate::hooks::{Bias, BiasBlocks, Block, Content, FusedQk, PrepareError, Prepared};
use crate::ops::{Ops, PlainOps};
use crate::positions::Positions;
use burn::tensor::Tensor;
use std::ops::Range;

/// Prepares an encoding with `read` for the coordinates that all rows share, or for one row after
/// the other.
///
/// # Errors
///
/// The first one of `read`.
pub(crate) fn prepare<'a>(
    positions: &Positions,
    read: impl Fn(&Positions) -> Result<Box<dyn Prepared + 'a>, PrepareError>,
) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
    let Some(rows) = positions.by_row() else {
        return read(positions);
    };
    let rows = rows.map(|row| read(&row)).collect::<Result<_, _>>()?;
    Ok(Box::new(PreparedRows { rows }))
}

/// An encoding prepared for every row of a batch. Every hook is that of the rows, one after the
/// other.
struct PreparedRows<'a> {
    rows: Vec<Box<dyn Prepared + 'a>>,
}

impl PreparedRows<'_> {
    /// What `hook` returns for each row, as one batch; `None` if it does for any row.
    fn each<const D: usize>(
        &self,
        mut hook: impl FnMut(usize, &dyn Prepared) -> Option<Tensor<D>>,
    ) -> Option<Tensor<D>> {
        let rows = self.rows.iter().enumerate();
        let rows: Option<Vec<_>> = rows.map(|(at, row)| hook(at, row.as_ref())).collect();
        rows.map(|rows| Tensor::cat(rows, 0))
    }

    /// Hands `hook` what each row of a block may read.
    fn each_content(
        &self,
        content: &Content<'_>,
        hook: impl Fn(usize, &dyn Prepared, &Content<'_>) -> Option<Tensor<4>>,
    ) -> Option<Tensor<4>> {
        self.each(|at, prepared| {
            let (q, k, hidden) = (
                row(content.q, at),
                row(content.k, at),
                row(content.hidden, at),
            );
            let raw = || {
                let (q, k) = (content.raw)();
                (row(&q, at), row(&k, at))
            };
            let block = Block {
                queries: content.queries.clone(),
                keys: content.keys.clone(),
                first_query: content.first_query,
            };
            let content =
                Content::new([&q, &k], &raw, &hidden, block, content.scale).with_ops(content.ops);
            hook(at, prepared, &content)
        })
    }
}

/// Row `at` of a batch, as a batch of one.
fn row<const D: usize>(batch: &Tensor<D>, at: usize) -> Tensor<D> {
    batch.clone().slice_dim(0, at..at + 1)
}

impl Prepared for PreparedRows<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.each(|at, prepared| Some(prepared.embed(row(&x, at))))
            .expect("every row is embedded")
    }

    fn transform_qk(
        &self,
        layer: usize,
        q: Tensor<4>,
        k: Tensor<4>,
        hidden: &Tensor<3>,
    ) -> (Tensor<4>, Tensor<4>) {
        let rows = self.rows.iter().enumerate().map(|(at, prepared)| {
            prepared.transform_qk(layer, row(&q, at), row(&k, at), &row(hidden, at))
        });
        let (q, k): (Vec<_>, Vec<_>) = rows.unzip();
        (Tensor::cat(q, 0), Tensor::cat(k, 0))
    }

    /// Rotations and biases of rows differ. Only a factor on the logits can be fused.
    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        let rows = self.rows.iter().map(|row| {
            let plain = row.logits_bias(layer).is_none();
            row.fused_qk(layer)
                .filter(|fused| plain && fused.rotation.is_none())
                .map(|fused| fused.factor)
        });
        let factors = rows.collect::<Option<Vec<f64>>>()?;
        let alike = factors.iter().all(|factor| *factor == factors[0]);
        alike.then(|| FusedQk::new(None, factors[0]))
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let rows = self.rows.iter().map(|row| row.logits_bias(layer));
        let rows = rows.collect::<Option<Vec<_>>>()?;
        Some(Bias::new(BiasByRow(rows)))
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.each_content(content, |_, prepared, content| {
            prepared.content_bias(layer, content)
        })
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        self.each_content(content, |at, prepared, content| {
            prepared.output_bias(layer, content, &|| row(&weights(), at))
        })
    }
}

/// A bias for each row: its blocks are `[B, H or 1, q_len, k_len]`.
struct BiasByRow<'a>(Vec<Bias<'a>>);

impl BiasBlocks for BiasByRow<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        self.block_with(&PlainOps, queries, keys)
    }

    fn block_with(&self, ops: &dyn Ops, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let rows = self.0.iter();
        let rows = rows.map(|bias| bias.block_with(ops, queries.clone(), keys.clone()));
        Tensor::cat(rows.collect(), 0)
    }

    fn is_decay(&self) -> bool {
        self.0.iter().all(Bias::is_decay)
    }
}
