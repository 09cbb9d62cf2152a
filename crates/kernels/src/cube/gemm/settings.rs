//! Sizes of a product: tiles, and splits of long sums.

/// Rows and columns of the cells that one unit owns: 4 in each half of the rows and columns of a
/// tile.
pub(super) const CELLS: usize = 8;
/// Cubes of large tiles that a product should have: about two for each multiprocessor of a large
/// GPU.
const LARGE_CUBES: usize = 256;
/// Cubes of small tiles, of which a multiprocessor runs several at a time, that a product should
/// have: long sums are split for them.
const SMALL_CUBES: usize = 1024;
/// The most splits of a sum, which bounds the memory of their parts.
const MOST_SPLITS: usize = 256;
/// Terms that are multiplied between two tests of a loop: shared memory is read ahead in registers.
pub(super) const UNROLLED: usize = 8;
/// The most matrices of a product that are taken for models side by side.
const MOST_MODELS: usize = 256;
/// The fewest terms of a split: shorter splits write more than they compute.
const LEAST_CHUNK: usize = 256;

/// What the kernel is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Tile {
    /// Rows and columns of a tile of the product.
    pub size: usize,
    /// Whether numbers of `a` that follow each other in memory are terms of one sum, and not rows.
    pub a_by_term: bool,
    /// The same for `b`, whose other direction is that of columns.
    pub b_by_term: bool,
    /// Numbers that are read at once, 1 or 4, of `a` and of `b`, and written at once.
    pub at_once: [usize; 3],
}

impl Tile {
    /// Rows and columns of the two sizes of tiles.
    const SIZES: [usize; 2] = [64, 128];
    /// Bytes of shared memory of a kernel with large tiles: two, of 32 terms.
    pub(super) const LARGE_BYTES: usize = 2 * 32 * (128 + 4) * size_of::<f32>();

    /// Units in each direction of a tile.
    pub(super) fn side(&self) -> usize {
        self.size / CELLS
    }

    /// Units of a cube.
    pub(super) fn units(&self) -> usize {
        self.side() * self.side()
    }

    /// Terms of the sums that a tile in shared memory holds. Each unit reads 16 numbers of each
    /// factor.
    pub(super) fn depth(&self) -> usize {
        16 * self.units() / self.size
    }

    /// Stride between the terms of a tile in shared memory, in vectors of 4. One vector of padding
    /// keeps terms in different banks.
    pub(super) fn stride(&self) -> usize {
        self.size / 4 + 1
    }
}

/// The size of the tiles of `count` products `[rows, columns]`. Large tiles read less memory, small
/// tiles give more cubes. The bits of the result are the same.
pub(super) fn size(count: usize, rows: usize, columns: usize, most_units: usize) -> usize {
    let [small, large] = Tile::SIZES;
    let cubes = count * rows.div_ceil(large) * columns.div_ceil(large);
    let has_units = most_units >= (large / CELLS).pow(2);
    if has_units && cubes >= LARGE_CUBES {
        large
    } else {
        small
    }
}

/// The terms that one cube adds up, of products of this shape with `terms`. Long sums of few
/// elements are split, such as the gradients of weights: one cube for each tile would leave most of
/// a GPU idle.
///
/// It depends on one product only: several models side by side have the bits of each alone.
pub(super) fn chunk(shape: &[usize], terms: usize) -> usize {
    match splits(shape, terms) {
        1 => terms,
        // Numbers that are read at once belong to one split.
        splits => terms.div_ceil(splits).next_multiple_of(32),
    }
}

/// The number of equal splits of such a sum, each of a multiple of 32 terms.
pub(super) fn equal_splits(shape: &[usize], terms: usize) -> usize {
    let most = splits(shape, terms);
    let equal = (2..=most)
        .rev()
        .find(|splits| terms.is_multiple_of(32 * splits));
    equal.unwrap_or(1)
}

fn splits(shape: &[usize], terms: usize) -> usize {
    let (rows, columns) = match *shape {
        [rows, columns] => (rows, columns),
        [models, rows, columns] if models <= MOST_MODELS => (rows, columns),
        // Heads and sequences are many: they fill a GPU.
        _ => return 1,
    };
    let [small, _] = Tile::SIZES;
    let tiles = rows.div_ceil(small) * columns.div_ceil(small);
    let most = (SMALL_CUBES / tiles).min(MOST_SPLITS);
    let splits = most.min(terms / LEAST_CHUNK);
    if splits < 4 { 1 } else { splits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sums_of_few_cells_are_split() {
        // Gradients of weights, `d_model` 128 and 64, 4096 rows.
        assert_eq!(chunk(&[128, 384], 4096), 256);
        assert_eq!(chunk(&[128, 512], 4096), 256);
        assert_eq!(chunk(&[64, 192], 2048), 256);
        assert_eq!(chunk(&[32, 64, 192], 2048), 256);
        assert_eq!(chunk(&[512, 2048], 32_768), 8192);
        // Outputs of layers, and gradients of weights that have enough tiles.
        assert_eq!(chunk(&[4096, 384], 128), 128);
        assert_eq!(chunk(&[4096, 128], 512), 512);
        assert_eq!(chunk(&[768, 3072], 8192), 8192);
        // Heads of sequences.
        assert_eq!(chunk(&[32, 4, 64, 32], 2048), 2048);
        assert_eq!(chunk(&[512, 64, 32], 2048), 2048);
        assert_eq!(equal_splits(&[128, 384], 4096), 16);
        assert_eq!(equal_splits(&[128, 384], 4800), 15);
        assert_eq!(equal_splits(&[128, 384], 4801), 1);
        assert_eq!(equal_splits(&[4096, 384], 128), 1);
        for terms in [1024, 1025, 4095, 100_000] {
            let chunk = chunk(&[64, 64], terms);
            assert!(chunk.is_multiple_of(4) && terms.div_ceil(chunk) * 64 * 64 < 1 << 20);
        }
    }

    #[test]
    fn large_tiles_are_for_products_that_fill_a_device() {
        assert_eq!(size(1, 32_768, 512, 1024), 128);
        assert_eq!(size(1, 4096, 384, 1024), 64);
        assert_eq!(size(8, 4096, 384, 1024), 128);
        assert_eq!(size(8, 4096, 384, 128), 64);
    }
}
