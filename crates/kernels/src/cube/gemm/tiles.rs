//! The kernel of products in `f32`: tiles in shared memory, 8 x 8 sums in the registers of a unit.
//!
//! The next tiles are read into registers while the present ones are multiplied.

use super::settings::{CELLS, Tile, UNROLLED, chunk, size};
use crate::cube::rows::zeros;
use crate::cube::sums::sum_of_parts;
use crate::cube::tensors::{count, empty, in_order};
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::zspace::metadata::Metadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Numbers that are read from shared memory at once.
type Four = Vector<f32, Const<4>>;

/// The part of a factor that a cube reads: lines are rows of `a` or columns of `b`.
#[derive(CubeType)]
struct Part {
    /// Element of the first line and term of the matrix.
    start: usize,
    line_stride: usize,
    term_stride: usize,
    first_line: usize,
    lines: usize,
    /// One past the last term.
    end: usize,
}

/// The part of a matrix (batch and head) whose lines are along dimension `axis`, 2 or 3.
#[cube]
fn part<N: Size>(
    x: &Tensor<Vector<f32, N>>,
    matrix: (usize, usize),
    first_line: usize,
    end: usize,
    #[comptime] axis: usize,
) -> Part {
    Part {
        start: matrix.0 * x.stride(0) + matrix.1 * x.stride(1),
        line_stride: x.stride(axis),
        term_stride: x.stride(comptime![5 - axis]),
        first_line,
        lines: x.shape(axis),
        end,
    }
}

/// One cube computes one tile (x, y) of one matrix and split (z): `out`, `[S, B, H, N, M]`, is `a
/// b` of `a`, `[B, H, N, K]`, and `b`, `[B, H, K, M]`, over `chunk` of the K terms.
#[cube(launch)]
pub(super) fn product_kernel<InA: Size, InB: Size, InOut: Size>(
    a: &Tensor<Vector<f32, InA>>,
    b: &Tensor<Vector<f32, InB>>,
    out: &mut Tensor<Vector<f32, InOut>>,
    chunk: u32,
    #[comptime] s: Tile,
) {
    let (rows, columns, terms) = (a.shape(2), b.shape(3), a.shape(3));
    let (outer, inner) = (a.shape(0), a.shape(1));
    let z = CUBE_POS_Z as usize;
    let (matrix, split) = (z % (outer * inner), z / (outer * inner));
    let (i, j) = (matrix / inner, matrix % inner);
    let first_row = CUBE_POS_X as usize * s.size;
    let first_column = CUBE_POS_Y as usize * s.size;
    let first = split * chunk as usize;
    let end = select(
        first + (chunk as usize) < terms,
        first + chunk as usize,
        terms,
    );
    let a_part = part(a, (i, j), first_row, end, 2usize);
    let b_part = part(b, (i, j), first_column, end, 3usize);
    let mut a_next = Array::<Four>::new(4usize);
    let mut b_next = Array::<Four>::new(4usize);
    let mut a_tile = Shared::<[Four]>::new_slice(comptime![s.depth() * s.stride()]);
    let mut b_tile = Shared::<[Four]>::new_slice(comptime![s.depth() * s.stride()]);
    let mut cells = zeros(comptime![CELLS * CELLS]);
    read(a, &mut a_next, &a_part, first, s.a_by_term, s.at_once[0], s);
    read(b, &mut b_next, &b_part, first, s.b_by_term, s.at_once[1], s);
    for step in 0..(end - first).div_ceil(s.depth()) {
        put(&a_next, &mut a_tile, s.a_by_term, s);
        put(&b_next, &mut b_tile, s.b_by_term, s);
        sync_cube();
        // Past the end nothing is read.
        let next = first + (step + 1) * s.depth();
        read(a, &mut a_next, &a_part, next, s.a_by_term, s.at_once[0], s);
        read(b, &mut b_next, &b_part, next, s.b_by_term, s.at_once[1], s);
        multiply(&a_tile, &b_tile, &mut cells, s);
        sync_cube();
    }
    let start = z * rows * columns;
    let first = (first_row, first_column);
    write(&cells, out, start, first, (rows, columns), s);
}

/// The first line and term of the 4 x 4 numbers of a tile that this unit reads. Units beside each
/// other read numbers that follow each other in memory.
#[cube]
fn block(#[comptime] by_term: bool, #[comptime] s: Tile) -> (usize, usize) {
    let unit = UNIT_POS as usize;
    if comptime![by_term] {
        let each = comptime![s.depth() / 4];
        (unit / each * 4, unit % each * 4)
    } else {
        let each = comptime![s.size / 4];
        (unit % each * 4, unit / each * 4)
    }
}

/// Reads 4 x 4 numbers of the tile whose first term is `first`: 4 terms of each of 4 lines, or the
/// same term of 4 lines 4 times. What is outside the matrix or the split is 0.
#[cube]
fn read<N: Size>(
    from: &Tensor<Vector<f32, N>>,
    to: &mut Array<Four>,
    part: &Part,
    first: usize,
    #[comptime] by_term: bool,
    #[comptime] at_once: usize,
    #[comptime] s: Tile,
) {
    let (line, term) = block(by_term, s);
    let (line, term) = (part.first_line + line, first + term);
    #[unroll]
    for i in 0..4usize {
        let mut four = Four::new(0.0);
        #[unroll]
        for j in 0..comptime![4 / at_once] {
            // The lines and terms of these numbers: those that follow, then those beside.
            let (along, beside) = comptime![(j * at_once, i)];
            let (line, term) = if comptime![by_term] {
                (line + beside, term + along)
            } else {
                (line + along, term + beside)
            };
            if line < part.lines && term < part.end {
                let at = part.start + line * part.line_stride + term * part.term_stride;
                let x = from[at / at_once];
                #[unroll]
                for n in 0..at_once {
                    four.insert(comptime![j * at_once + n], x.extract(n));
                }
            }
        }
        to[i] = four;
    }
}

/// Puts the numbers of this unit into shared memory, 4 lines of each term.
#[cube]
fn put(
    from: &Array<Four>,
    to: &mut Shared<[Four]>,
    #[comptime] by_term: bool,
    #[comptime] s: Tile,
) {
    let (line, term) = block(by_term, s);
    let start = term * s.stride() + line / 4;
    #[unroll]
    for i in 0..4usize {
        let mut four = from[i];
        if comptime![by_term] {
            #[unroll]
            for j in 0..4usize {
                four.insert(j, from[j].extract(i));
            }
        }
        to[start + comptime![i * s.stride()]] = four;
    }
}

/// Where this unit's cells begin, in fours of rows and columns of the first half of a tile.
#[cube]
fn corner(#[comptime] s: Tile) -> (usize, usize) {
    let unit = UNIT_POS as usize;
    (unit / s.side(), unit % s.side())
}

/// Adds the products of two tiles to the cells of this unit.
#[cube]
fn multiply(a: &Shared<[Four]>, b: &Shared<[Four]>, cells: &mut Array<f32>, #[comptime] s: Tile) {
    let (row, column) = corner(s);
    for step in 0..comptime![s.depth() / UNROLLED] {
        let first = step * comptime![UNROLLED * s.stride()];
        #[unroll]
        for term in 0..UNROLLED {
            let start = first + comptime![term * s.stride()];
            #[unroll]
            for i in 0..2usize {
                let of_a = a[start + row + comptime![i * s.side()]];
                #[unroll]
                for j in 0..2usize {
                    let of_b = b[start + column + comptime![j * s.side()]];
                    #[unroll]
                    for m in 0..4usize {
                        #[unroll]
                        for n in 0..4usize {
                            let cell = comptime![(4 * i + m) * CELLS + 4 * j + n];
                            cells[cell] = fma(of_a.extract(m), of_b.extract(n), cells[cell]);
                        }
                    }
                }
            }
        }
    }
}

/// The distance from a unit's corner to its row or column `i`.
fn offset(i: usize, s: Tile) -> usize {
    i % 4 + i / 4 * (s.size / 2)
}

/// Writes the cells of this unit that are inside the matrix, which begins at element `start`.
#[cube]
fn write<N: Size>(
    cells: &Array<f32>,
    out: &mut Tensor<Vector<f32, N>>,
    start: usize,
    first: (usize, usize),
    shape: (usize, usize),
    #[comptime] s: Tile,
) {
    let at_once = comptime![s.at_once[2]];
    let (row, column) = corner(s);
    #[unroll]
    for i in 0..CELLS {
        let row = first.0 + 4 * row + comptime![offset(i, s)];
        #[unroll]
        for part in 0..comptime![CELLS / at_once] {
            let column = first.1 + 4 * column + comptime![offset(part * at_once, s)];
            if row < shape.0 && column < shape.1 {
                let mut x = Vector::<f32, N>::new(0.0);
                #[unroll]
                for j in 0..at_once {
                    x.insert(j, cells[comptime![i * CELLS + part * at_once + j]]);
                }
                out[(start + row * shape.1 + column) / at_once] = x;
            }
        }
    }
}

/// Whether a launch has as many cubes in each dimension as a product of this shape takes.
pub(super) fn fits(shape: &Shape) -> bool {
    let rank = shape.num_dims();
    let matrices: usize = shape[..rank - 2].iter().product();
    // Only products of few matrices are split.
    let cubes = [
        matrices,
        shape[rank - 2].div_ceil(64),
        shape[rank - 1].div_ceil(64),
    ];
    cubes.iter().all(|count| *count <= usize::from(u16::MAX))
}

/// `a b`, of this shape, of tensors of matrices with the same leading dimensions, in any order in
/// memory.
pub(super) fn product([a, b]: [CubeTensor; 2], shape: Shape) -> CubeTensor {
    let rank = shape.num_dims();
    let (rows, columns, terms) = (shape[rank - 2], shape[rank - 1], a.meta.shape()[rank - 1]);
    let client = a.client.clone();
    let [(a, a_by_term), (b, b_by_term)] = [(a, true), (b, false)].map(|(x, is_a)| {
        let x = four_dimensions(x);
        // Which of the last two dimensions is that of the terms, and which one is contiguous.
        let last = x.meta.strides()[3] == 1 || x.meta.strides()[2] != 1;
        (x, last == is_a)
    });
    let [outer, inner, _, _] = a.meta.shape().dims();
    let matrices = outer * inner;
    let chunk = chunk(&shape.to_vec(), terms);
    let splits = terms.div_ceil(chunk);
    let hardware = &client.properties().hardware;
    let most_units = match hardware.max_shared_memory_size {
        bytes if bytes < Tile::LARGE_BYTES => 0,
        _ => hardware.max_units_per_cube as usize,
    };
    let s = Tile {
        size: size(matrices * splits, rows, columns, most_units),
        a_by_term,
        b_by_term,
        at_once: [
            at_once(&a),
            at_once(&b),
            if columns.is_multiple_of(4) { 4 } else { 1 },
        ],
    };
    let parts = empty(&a, [splits, matrices, rows, columns]);
    product_kernel::launch(
        &client,
        count([
            rows.div_ceil(s.size),
            columns.div_ceil(s.size),
            matrices * splits,
        ]),
        CubeDim::new_1d(s.units() as u32),
        s.at_once[0],
        s.at_once[1],
        s.at_once[2],
        a.into_tensor_arg(),
        b.into_tensor_arg(),
        parts.clone().into_tensor_arg(),
        chunk as u32,
        s,
    );
    sum_of_parts(parts, shape)
}

/// `[B, H, ..]`, with leading dimensions of 1 before fewer than two, and one of all before more.
fn four_dimensions(mut x: CubeTensor) -> CubeTensor {
    if x.meta.is_tiled() || x.meta.num_dims() > 4 {
        x = in_order(x);
    }
    let (mut shape, mut strides) = (x.meta.shape().to_vec(), x.meta.strides().to_vec());
    while shape.len() > 4 {
        // In order, so that the dimensions before the last three are one.
        let size = shape.remove(0);
        shape[0] *= size;
        strides.remove(0);
    }
    while shape.len() < 4 {
        shape.insert(0, 1);
        strides.insert(0, 0);
    }
    let dims = |x: Vec<usize>| <[usize; 4]>::try_from(x).expect("four dimensions");
    *x.meta = Metadata::new(dims(shape), dims(strides));
    x
}

/// How many numbers of a tensor can be read at once: 4 where rows are contiguous in one direction
/// and begin at multiples of 4 in all others.
fn at_once(x: &CubeTensor) -> usize {
    let (shape, strides) = (x.meta.shape(), x.meta.strides());
    let contiguous = if strides[3] == 1 || strides[2] != 1 {
        3
    } else {
        2
    };
    let others = (0..4).filter(|i| *i != contiguous);
    let is_aligned = strides[contiguous] == 1
        && shape[contiguous].is_multiple_of(4)
        && others.into_iter().all(|i| strides[i].is_multiple_of(4))
        && x.handle.offset_start.unwrap_or(0).is_multiple_of(16);
    if is_aligned { 4 } else { 1 }
}
