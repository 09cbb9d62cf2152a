//! LayerNorm and RMSNorm over rows: one launch forward, two backward.

mod kernels;

use super::rows::{CUBE, Rows, fits};
use super::tensors::{PerInput, Primitive, count, empty, in_order, run, units};
use crate::op::FusedOp;
use burn::tensor::Shape;
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl::prelude::CubeDim;
use burn_cubecl::tensor::CubeTensor;
use kernels::{SUM_COLUMNS, Settings, norm_grad_kernel, norm_kernel, norm_sum_kernel};

/// The widest rows: each unit keeps two sums for each of its columns.
const WIDEST: usize = 2048;

/// At most this many rows of units share the rows of a part, and each keeps partial sums: enough to
/// fill a large GPU. The number depends on nothing else, so a part has the same bits alone and
/// beside others.
const MOST_PLACES: usize = 1024;

/// A norm of `[N, W]` by a scale, `[G W]`, and in a LayerNorm a shift, `[G W]`. Rows of part g,
/// `N / G` in a row, take part g of these.
#[derive(Clone, Copy)]
pub(super) struct RowNorm {
    pub(super) rows: usize,
    pub(super) width: usize,
    /// G.
    pub(super) parts: usize,
    pub(super) shift: bool,
    pub(super) eps: f32,
}

/// Inputs, and mean and factor of every row, `[N, 2]`.
pub(super) struct Saved {
    x: Primitive,
    scale: Primitive,
    stats: Primitive,
}

impl RowNorm {
    /// Whether a device can run the kernels.
    pub(super) fn fits(&self, device: &CubeDevice) -> bool {
        self.width <= WIDEST
            && self.parts <= usize::from(u16::MAX)
            && self.rows.is_multiple_of(self.parts)
            && fits(device)
    }

    fn settings(&self) -> Settings {
        Settings {
            rows: Rows::new(self.width),
            centred: self.shift,
        }
    }

    /// The output, and the numbers of its rows.
    fn run_forward(&self, inputs: Vec<CubeTensor>) -> Vec<CubeTensor> {
        let inputs: Vec<CubeTensor> = inputs.into_iter().map(in_order).collect();
        let settings = self.settings();
        let x = &inputs[0];
        let y = empty(x, [self.rows, self.width]);
        let stats = empty(x, [self.rows, 2]);
        // Without a shift any tensor, which is not read.
        let [x_arg, scale, shift] = [0, 1, inputs.len() - 1].map(|i| inputs[i].clone());
        norm_kernel::launch(
            &x.client,
            units(x, self.rows * settings.rows.lanes, CUBE),
            CubeDim::new_1d(CUBE as u32),
            x_arg.into_tensor_arg(),
            scale.into_tensor_arg(),
            shift.into_tensor_arg(),
            y.clone().into_tensor_arg(),
            stats.clone().into_tensor_arg(),
            self.eps,
            (self.rows / self.parts) as u32,
            settings,
        );
        vec![y, stats]
    }

    /// The gradients of the input and, if they are wanted, of scale and shift.
    fn run_backward(&self, inputs: Vec<CubeTensor>, parameters: bool) -> Vec<CubeTensor> {
        let inputs: Vec<CubeTensor> = inputs.into_iter().map(in_order).collect();
        let settings = self.settings();
        let part = self.rows / self.parts;
        let count_of_cube = settings.rows.count();
        let cubes = part
            .div_ceil(count_of_cube)
            .min(MOST_PLACES / count_of_cube);
        let places = cubes * count_of_cube;
        let x_grad = empty(&inputs[0], [self.rows, self.width]);
        let partial = empty(&inputs[0], [self.parts, places, 2, self.width]);
        let client = inputs[0].client.clone();
        let dim = CubeDim::new_1d(CUBE as u32);
        let [x, scale, stats, grad]: [CubeTensor; 4] = inputs.try_into().expect("four inputs");
        norm_grad_kernel::launch(
            &client,
            count([cubes, self.parts, 1]),
            dim,
            x.into_tensor_arg(),
            scale.into_tensor_arg(),
            stats.into_tensor_arg(),
            grad.into_tensor_arg(),
            x_grad.clone().into_tensor_arg(),
            partial.clone().into_tensor_arg(),
            part as u32,
            settings,
        );
        if !parameters {
            return vec![x_grad];
        }
        let sums = self.parts * self.width;
        let scale_grad = empty(&x_grad, [sums]);
        // Without a shift one number, which is not written.
        let shift_grad = empty(&x_grad, [if self.shift { sums } else { 1 }]);
        norm_sum_kernel::launch(
            &client,
            units(&x_grad, 2 * sums, SUM_COLUMNS),
            dim,
            partial.into_tensor_arg(),
            scale_grad.clone().into_tensor_arg(),
            shift_grad.clone().into_tensor_arg(),
            settings,
        );
        let mut grads = vec![x_grad, scale_grad];
        grads.extend(self.shift.then_some(shift_grad));
        grads
    }
}

impl FusedOp<3> for RowNorm {
    type Backend = burn::backend::Cube;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<3>, _: bool) -> (Primitive, Saved) {
        let op = *self;
        let shapes = vec![
            Shape::new([self.rows, self.width]),
            Shape::new([self.rows, 2]),
        ];
        let tensors = inputs.iter().flatten().cloned().collect();
        let outputs = run(tensors, shapes, move |inputs| op.run_forward(inputs));
        let [y, stats] = outputs.try_into().expect("two outputs");
        let [x, scale, _] = inputs;
        let saved = Saved {
            x: x.expect("an input"),
            scale: scale.expect("a scale"),
            stats,
        };
        (y, saved)
    }

    fn backward(
        &self,
        saved: &Saved,
        grad: Primitive,
        [_, scale, shift]: [bool; 3],
    ) -> PerInput<3> {
        let (op, parameters) = (*self, scale || shift);
        let mut shapes = vec![Shape::new([self.rows, self.width])];
        if parameters {
            let vectors = 1 + usize::from(self.shift);
            shapes.extend(vec![Shape::new([self.parts * self.width]); vectors]);
        }
        let tensors = vec![
            saved.x.clone(),
            saved.scale.clone(),
            saved.stats.clone(),
            grad,
        ];
        let grads = run(tensors, shapes, move |inputs| {
            op.run_backward(inputs, parameters)
        });
        let mut grads = grads.into_iter();
        [(); 3].map(|()| grads.next())
    }
}
