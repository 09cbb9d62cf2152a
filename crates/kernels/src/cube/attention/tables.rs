//! The four tables of a rotation in one.

use crate::cube::tensors::{Primitive, elements, empty, in_order, run};
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// One unit copies one element of each table.
#[cube(launch)]
fn pack_kernel(
    a: &Tensor<f32>,
    b: &Tensor<f32>,
    c: &Tensor<f32>,
    d: &Tensor<f32>,
    all: &mut Tensor<f32>,
) {
    let n = a.len();
    let i = ABSOLUTE_POS;
    if i < n {
        all[i] = a[i];
        all[n + i] = b[i];
        all[2 * n + i] = c[i];
        all[3 * n + i] = d[i];
    }
}

/// Four tables, `[G, 1, L, R]`, as one, `[4 G, 1, L, R]`.
pub(crate) fn pack(tables: Vec<Primitive>, [groups, length, pairs]: [usize; 3]) -> Primitive {
    let shape = [4 * groups, 1, length, pairs];
    let outputs = run(tables, vec![Shape::new(shape)], move |tables| {
        let output = empty(&tables[0], shape);
        let client = output.client.clone();
        let (count, dim) = elements(&output, groups * length * pairs);
        let tables: [CubeTensor; 4] = tables.try_into().expect("four tables");
        let [a, b, c, d] = tables.map(|table| in_order(table).into_tensor_arg());
        let all = output.clone().into_tensor_arg();
        pack_kernel::launch(&client, count, dim, a, b, c, d, all);
        vec![output]
    });
    outputs.into_iter().next().expect("one output")
}
