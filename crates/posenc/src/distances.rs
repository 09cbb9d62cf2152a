//! Distances between queries and keys, for the encodings that read nothing else.

use crate::hooks::Content;
use crate::positions::Positions;
use crate::tensors::upload;
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::collections::HashMap;
use std::ops::Range;

/// The distances `query - key` of one forward pass, for any block of it.
pub(crate) struct Distances {
    positions: Positions,
    device: Device,
    /// Queries `[1, 1, Q, 1]` and keys `[1, 1, 1, K]` on the device.
    on_device: [Tensor<4>; 2],
    /// Whether both step by one, so that a distance is the difference of two indices and a
    /// constant.
    contiguous: bool,
}

/// The distinct distances of a block, and the index of each cell into them.
pub(crate) struct Distinct {
    /// `query - key`, each once, in no particular order.
    pub distances: Vec<f64>,
    /// For each cell, row by row, an index into `distances`.
    pub cells: Vec<i32>,
    shape: [usize; 2],
}

/// The tables of `groups` models, `[G N, H]`, head by row, so that a block gathers along rows:
/// `[G, H, N]`.
pub(crate) fn by_head(table: Tensor<2>, groups: usize) -> Tensor<3> {
    let [rows, heads] = table.dims();
    let tables = table.reshape([groups, rows / groups, heads]);
    tables.swap_dims(1, 2)
}

impl Distances {
    pub(crate) fn new(positions: &Positions, device: &Device) -> Self {
        let (queries, keys) = (positions.queries(), positions.keys());
        let on_device = [
            upload(queries.to_vec(), [1, 1, queries.len(), 1], device),
            upload(keys.to_vec(), [1, 1, 1, keys.len()], device),
        ];
        let steps = |x: &[f64]| x.windows(2).all(|pair| pair[1] - pair[0] == 1.0);
        let contiguous = steps(queries) && steps(keys);
        Self {
            positions: positions.clone(),
            device: device.clone(),
            on_device,
            contiguous,
        }
    }

    /// `query - key` of every cell, `[1, 1, q_len, k_len]`.
    pub(crate) fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        // Replacements are a table on the host. Differences of whole positions are exact on the
        // device up to 2^24.
        if !self.positions.replaces_distances() {
            let [q, k] = &self.on_device;
            return q.clone().slice_dim(2, queries) - k.clone().slice_dim(3, keys);
        }
        let shape = [1, 1, queries.len(), keys.len()];
        let (q, k) = (
            &self.positions.queries()[queries],
            &self.positions.keys()[keys],
        );
        let cells = q
            .iter()
            .flat_map(|q| k.iter().map(|k| self.positions.distance(*q, *k)));
        upload(cells.collect(), shape, &self.device)
    }

    /// Whether a distance depends on the difference of the indices of query and key only.
    pub(crate) fn by_index(&self) -> bool {
        self.contiguous
    }

    /// The different distances of a block: what a table has to be asked for.
    pub(crate) fn distinct(&self, queries: Range<usize>, keys: Range<usize>) -> Distinct {
        // A first query past all keys sees every key.
        let first_query = keys.len();
        self.distinct_visible(queries, keys, first_query)
    }

    /// The different distances from the queries of this block to the keys that they see.
    pub(crate) fn visible(&self, content: &Content<'_>) -> Distinct {
        let (queries, keys) = (content.queries.clone(), content.keys.clone());
        self.distinct_visible(queries, keys, content.first_query)
    }

    /// The different distances from the queries of a block to the keys that they see: row i sees
    /// the keys `0..=first_query + i`. The cells of other keys hold an index that means nothing.
    pub(crate) fn distinct_visible(
        &self,
        queries: Range<usize>,
        keys: Range<usize>,
        first_query: usize,
    ) -> Distinct {
        let shape = [queries.len(), keys.len()];
        let (q, k) = (
            &self.positions.queries()[queries],
            &self.positions.keys()[keys],
        );
        if self.contiguous && shape[0] > 0 && shape[1] > 0 {
            // From the first query and the last key that it sees, the smallest distance, upwards.
            // Rows after the first see one more key, at the same distance, or all keys.
            let last = first_query.min(shape[1] - 1);
            let smallest = q[0] - k[last];
            let distances = (0..shape[0] + last)
                .map(|i| self.positions.distance(smallest + i as f64, 0.0))
                .collect();
            // Cell (i, j) is step i + (last - j): a block has one distance per diagonal.
            let cells = (0..shape[0])
                .flat_map(|i| (0..shape[1]).map(move |j| (i + last).saturating_sub(j) as i32))
                .collect();
            return Distinct {
                distances,
                cells,
                shape,
            };
        }
        // Positions with gaps: distances are compared by their bits, and adding 0 makes -0 a 0.
        let (mut distances, mut seen) = (Vec::new(), HashMap::new());
        let mut cells = Vec::with_capacity(shape[0] * shape[1]);
        for (row, q) in q.iter().enumerate() {
            let visible = (first_query + row + 1).min(k.len());
            cells.extend(k[..visible].iter().map(|k| {
                let distance = self.positions.distance(*q, *k);
                *seen.entry((distance + 0.0).to_bits()).or_insert_with(|| {
                    distances.push(distance);
                    distances.len() as i32 - 1
                })
            }));
            cells.resize((row + 1) * k.len(), 0);
        }
        Distinct {
            distances,
            cells,
            shape,
        }
    }
}

impl Distinct {
    /// Spreads values per distance, `[G, H, distances]`, over the cells: `[G, H, q_len, k_len]`.
    pub(crate) fn spread(&self, values: Tensor<3>) -> Tensor<4> {
        let [groups, heads, _] = values.dims();
        let [rows, columns] = self.shape;
        let cells = self.cells(&values.device());
        let spread = values.select(2, cells);
        spread.reshape([groups, heads, rows, columns])
    }

    /// `of(distance)` of every cell, `[1, 1, q_len, k_len]`, computed once for each distance.
    pub(crate) fn each_cell(&self, device: &Device, of: impl Fn(f64) -> i32) -> Tensor<4, Int> {
        let of_distances: Vec<i32> = self
            .distances
            .iter()
            .map(|distance| of(*distance))
            .collect();
        let cells = self.cells.iter();
        let cells: Vec<i32> = cells.map(|cell| of_distances[*cell as usize]).collect();
        let [rows, columns] = self.shape;
        Tensor::from_data(TensorData::new(cells, [1, 1, rows, columns]), device)
    }

    /// Row of a table for each distance, as `row(distance)` says, in the order of `distances`.
    pub(crate) fn rows(&self, device: &Device, row: impl Fn(f64) -> usize) -> Tensor<1, Int> {
        let rows: Vec<i32> = self
            .distances
            .iter()
            .map(|distance| row(*distance) as i32)
            .collect();
        let count = rows.len();
        Tensor::from_data(TensorData::new(rows, [count]), device)
    }

    /// The cells' indices, `[q_len * k_len]`.
    pub(crate) fn cells(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(
            TensorData::new(self.cells.clone(), [self.cells.len()]),
            device,
        )
    }
}
