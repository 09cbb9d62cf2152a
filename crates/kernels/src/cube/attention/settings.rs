//! Sizes that the kernels of attention are compiled for.

/// Rows and columns of the grid of units (threads) of a cube: unit (i, j) owns the cells
/// `(i + 8 a, j + 8 b)` of a tile.
pub(super) const UNITS: usize = 8;
/// Units of one cube.
pub(super) const CUBE: usize = UNITS * UNITS;
/// Row stride of the scratch memory that holds one number per row and column of units.
pub(super) const SCRATCH: usize = UNITS + 1;

/// Tiles of which each unit owns at most 4 x 4 cells.
const SMALL: [(usize, usize); 5] = [(32, 32), (32, 16), (16, 16), (16, 8), (8, 8)];

/// What is added to the logits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum BiasKind {
    None,
    /// `[G, H, Q, K]`, with a stride of 0 where heads share it.
    Dense,
    /// `[G, H, 1, n]`, likewise.
    ByDistance,
    /// Running sums of a decay, `[B, H, 1, L]`.
    Decays,
}

/// The shape of what is added to the logits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BiasShape {
    /// `[G, 1 or H, Q, K]`, G a divisor of B.
    Dense([usize; 4]),
    /// `[G, 1 or H, n]`, likewise.
    ByDistance([usize; 3]),
    /// `[B, H, L]`.
    Decays([usize; 3]),
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Settings {
    /// E.
    pub head_dim: usize,
    /// E, rounded up to a multiple of [`UNITS`].
    pub padded: usize,
    /// Rows of a tile: those that a cube owns. A multiple of [`UNITS`].
    pub rows: usize,
    /// Columns of a tile: the rows of the other sequence, which a cube walks through. A multiple
    /// of [`UNITS`], and a divisor of `rows`.
    pub columns: usize,
    pub bias: BiasKind,
    /// Rotated pairs of dimensions; 0 without a rotation.
    pub pairs: usize,
    /// Whether pair i is `(2i, 2i + 1)`.
    pub interleaved: bool,
}

impl Settings {
    /// For the forward kernel: a tile of queries, and one that holds keys, then values.
    pub(super) fn forward(common: Common) -> Option<Self> {
        let tiles = common.large([(64, 64), (64, 32)]).chain(SMALL);
        Self::largest(common, tiles, |s| {
            4 * (s.rows + s.columns) * s.stride() + s.cells() + s.rows * SCRATCH
        })
    }

    /// For the backward kernels: two tiles of either sequence.
    pub(super) fn backward(common: Common) -> Option<Self> {
        // With a bias, registers do not suffice for larger ones.
        let large = (common.bias == BiasKind::None).then_some((64, 32));
        let tiles = common.large(large).chain(SMALL);
        Self::largest(common, tiles, |s| {
            8 * (s.rows + s.columns) * s.stride() + s.cells()
        })
    }

    /// With the largest tile for which the given number of shared floats fits.
    fn largest(
        common: Common,
        tiles: impl Iterator<Item = (usize, usize)>,
        floats: impl Fn(&Self) -> usize,
    ) -> Option<Self> {
        tiles
            .map(|(rows, columns)| Self {
                head_dim: common.head_dim,
                padded: common.head_dim.next_multiple_of(UNITS),
                rows,
                columns,
                bias: common.bias,
                pairs: common.pairs,
                interleaved: common.interleaved,
            })
            .find(|settings| size_of::<f32>() * floats(settings) <= common.shared_bytes)
    }

    /// Fours of dimensions in a row.
    pub(super) fn fours(&self) -> usize {
        self.padded / 4
    }

    /// Distance of the rows of a tile in shared memory, in fours: odd, so that units which read one
    /// place of their rows read different banks.
    pub(super) fn stride(&self) -> usize {
        self.fours() + 1
    }

    /// Row stride of a tile of logits in shared memory.
    pub(super) fn cell_stride(&self) -> usize {
        self.columns + 1
    }

    fn cells(&self) -> usize {
        self.rows * self.cell_stride()
    }

    /// Rows of a tile that one unit owns.
    pub(super) fn unit_rows(&self) -> usize {
        self.rows / UNITS
    }

    /// Columns of a tile that one unit owns.
    pub(super) fn unit_columns(&self) -> usize {
        self.columns / UNITS
    }

    /// Fours of dimensions of a row that one unit owns.
    pub(super) fn unit_fours(&self) -> usize {
        self.fours().div_ceil(UNITS)
    }

    /// Dimensions of a row that one unit owns.
    pub(super) fn unit_dims(&self) -> usize {
        4 * self.unit_fours()
    }
}

/// What the settings of all kernels of a call share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    /// The most shared memory that a kernel may use.
    pub shared_bytes: usize,
    /// Of the longer sequence.
    pub length: usize,
    pub head_dim: usize,
    pub bias: BiasKind,
    pub pairs: usize,
    pub interleaved: bool,
}

impl Common {
    /// Large tiles, where sequences fill more than half of one.
    fn large(
        self,
        tiles: impl IntoIterator<Item = (usize, usize)>,
    ) -> impl Iterator<Item = (usize, usize)> {
        let length = self.length;
        tiles
            .into_iter()
            .filter(move |(rows, _)| 2 * length > *rows)
    }
}

/// The most shared memory in bytes that a kernel uses: what NVIDIA's GPUs give without a request,
/// enough for tiles of 64 rows and columns of heads of up to 48 dimensions.
pub(super) const MOST_SHARED: usize = 48 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_grow_with_shared_memory_and_shrink_with_heads() {
        let tiles_of = |length: usize, kib: usize, head_dim| {
            let common = Common {
                shared_bytes: kib << 10,
                length,
                head_dim,
                bias: BiasKind::None,
                pairs: 0,
                interleaved: false,
            };
            let of = |s: Settings| (s.rows, s.columns);
            let [forward, backward] = [Settings::forward(common), Settings::backward(common)];
            (forward.map(of), backward.map(of))
        };
        let tiles = |kib, head_dim| tiles_of(1000, kib, head_dim);
        // What WebGPU guarantees, and what is used at most.
        assert_eq!(tiles(16, 16), (Some((32, 32)), Some((32, 32))));
        assert_eq!(tiles(16, 64), (Some((32, 16)), Some((16, 8))));
        assert_eq!(tiles(48, 32), (Some((64, 64)), Some((64, 32))));
        assert_eq!(tiles(48, 64), (Some((64, 32)), Some((32, 32))));
        assert_eq!(tiles_of(33, 48, 32), tiles(48, 32));
        assert_eq!(tiles_of(32, 48, 32), (Some((32, 32)), Some((32, 32))));
        assert_eq!(tiles(16, 120), (Some((16, 8)), Some((8, 8))));
        assert_eq!(tiles(16, 128).1, None);
    }
}
