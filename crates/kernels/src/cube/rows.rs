//! Units of a cube that share rows, their sums, and arrays of their own.

use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// Units of one cube.
pub(super) const CUBE: usize = 128;

/// How the units of a cube share rows of a matrix: unit u works on row `u / lanes`, columns
/// `u % lanes + lanes i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Rows {
    /// Columns of the matrix.
    pub width: usize,
    /// Units of one row: a divisor of [`CUBE`].
    pub lanes: usize,
}

impl Rows {
    pub(super) fn new(width: usize) -> Self {
        // Few lanes have few numbers to exchange, many keep few columns each.
        let lanes = if width <= 256 { 16 } else { 64 };
        Self { width, lanes }
    }

    /// Rows that a cube works on at a time.
    pub(super) fn count(&self) -> usize {
        CUBE / self.lanes
    }

    /// Columns of one unit.
    pub(super) fn columns(&self) -> usize {
        self.width.div_ceil(self.lanes)
    }
}

/// Whether a device has cubes of this size.
pub(super) fn fits(device: &CubeDevice) -> bool {
    let client = device.client();
    client.properties().hardware.max_units_per_cube as usize >= CUBE
}

/// The sum of `x` over the units of a row, in their order. `scratch` has a number for each unit of
/// the cube. All units have to call this.
#[cube]
pub(super) fn row_sum(scratch: &mut Shared<[f32]>, x: f32, #[comptime] s: Rows) -> f32 {
    let unit = UNIT_POS as usize;
    // Units may still be reading the numbers of the last call.
    sync_cube();
    scratch[unit] = x;
    sync_cube();
    let first = unit / s.lanes * s.lanes;
    let mut sum = 0.0f32;
    for lane in 0..s.lanes {
        sum += scratch[first + lane];
    }
    sum
}

/// The largest `x` of the units of a row. As [`row_sum`].
#[cube]
pub(super) fn row_max(scratch: &mut Shared<[f32]>, x: f32, #[comptime] s: Rows) -> f32 {
    let unit = UNIT_POS as usize;
    sync_cube();
    scratch[unit] = x;
    sync_cube();
    let first = unit / s.lanes * s.lanes;
    let mut most = scratch[first];
    for lane in 1..s.lanes {
        most = max(most, scratch[first + lane]);
    }
    most
}

/// An array of zeros.
#[cube]
pub(crate) fn zeros(#[comptime] length: usize) -> Array<f32> {
    let mut x = Array::<f32>::new(length);
    #[unroll]
    for i in 0..length {
        x[i] = 0.0;
    }
    x
}
