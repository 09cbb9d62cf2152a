//! Rotation against its definition: values, gradients, threads.

use crate::common::{self, compare, differences, input, same_for_any_threads};
use burn::tensor::Tensor;
use longreach_kernels::reference;

type Rotate = fn(Tensor<4>, Tensor<4>, Tensor<4>, bool) -> Tensor<4>;

/// What is turned: the shape of x, how many tables there are for sequences and heads, and pairs.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 4],
    tables: [usize; 2],
    pairs: usize,
    interleaved: bool,
    /// Whether x lies by head, `[batch, heads, length, head_dim]`, instead of by position.
    by_head: bool,
}

impl Case {
    fn table(&self) -> [usize; 4] {
        let [groups, heads] = self.tables;
        [groups, heads, self.sizes[2], self.pairs]
    }

    /// x alone, or x and tables that take a gradient.
    fn inputs(&self, trained: bool) -> Vec<common::Input> {
        let table = self.table();
        let tables = [7, 8].map(|seed| input(&table, seed));
        let tables = tables.into_iter().filter(|_| trained);
        [input(&self.sizes, 1)].into_iter().chain(tables).collect()
    }

    fn turned(&self, rotate: Rotate, inputs: &[Tensor<1>]) -> Tensor<1> {
        let [batch, heads, length, head_dim] = self.sizes;
        let x = inputs[0].clone();
        let constant = |seed| {
            let values = input(&self.table(), seed).values;
            let count = values.len();
            let values = burn::tensor::TensorData::new(values, [count]);
            Tensor::<1>::from_data(values, (&x.device(), x.dtype()))
        };
        let table = |at: usize, seed| {
            let table = inputs.get(at).cloned().unwrap_or_else(|| constant(seed));
            table.reshape(self.table())
        };
        let (cos, sin) = (table(1, 7), table(2, 8));
        let x = if self.by_head {
            x.reshape(self.sizes)
        } else {
            x.reshape([batch, length, heads, head_dim]).swap_dims(1, 2)
        };
        rotate(x, cos, sin, self.interleaved).reshape([batch * length * heads * head_dim])
    }
}

/// Every layout with these sizes.
fn layouts(sizes: [usize; 4], tables: [usize; 2], pairs: usize) -> impl Iterator<Item = Case> {
    let layouts = [[false, false], [false, true], [true, false], [true, true]];
    layouts.into_iter().map(move |[interleaved, by_head]| Case {
        sizes,
        tables,
        pairs,
        interleaved,
        by_head,
    })
}

fn agrees(case: Case, trained: bool) {
    compare(
        1.0,
        &format!("{case:?}, trained: {trained}"),
        &case.inputs(trained),
        &|x| case.turned(longreach_kernels::rotate, x),
        &|x| case.turned(reference::rotate, x),
    );
}

#[test]
fn fused_rotation_agrees_with_its_definition() {
    for (head_dim, pairs) in [
        (2, 1),
        (6, 3),
        (16, 8),
        (9, 2),
        (64, 32),
        (20, 7),
        (1100, 3),
    ] {
        for case in layouts([2, 3, 11, head_dim], [1, 1], pairs) {
            agrees(case, false);
        }
    }
}

#[test]
fn tables_may_differ_by_head_and_by_sequence_and_be_trained() {
    for tables in [[1, 1], [1, 3], [2, 1], [2, 3], [4, 1], [4, 3]] {
        for case in layouts([4, 3, 5, 9], tables, 3) {
            agrees(case, false);
            agrees(case, true);
        }
    }
}

#[test]
fn gradients_of_the_defined_rotation_are_those_of_finite_differences() {
    for tables in [[1, 1], [2, 1], [2, 3], [4, 1]] {
        for case in layouts([4, 3, 2, 5], tables, 2) {
            differences("rotation", &case.inputs(true), &|x| {
                case.turned(reference::rotate, x)
            });
        }
    }
}

#[test]
fn rotation_does_not_depend_on_the_number_of_threads() {
    // Heads of which a task has whole ones, and others.
    for head_dim in [16, 20] {
        for tables in [[1, 1], [3, 4]] {
            let case = Case {
                sizes: [3, 4, 211, head_dim],
                tables,
                pairs: 7,
                interleaved: false,
                by_head: false,
            };
            same_for_any_threads("rotation", &case.inputs(true), &move |x| {
                case.turned(longreach_kernels::rotate, x)
            });
        }
    }
}
