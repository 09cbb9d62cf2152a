//! Attention against its definition: values, gradients, hidden keys, threads, causality.

use crate::common::{Input, compare, differences, input, run, same_for_any_threads};
use burn::tensor::{DType, Tensor};
use longreach_kernels::reference;

/// Sizes of one case.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    head_dim: usize,
    first: usize,
    /// Batch and head dimension of the bias; 0 for no bias.
    bias: [usize; 2],
    /// Bias of -inf beyond this distance.
    window: usize,
}

const PLAIN: Case = Case {
    batch: 2,
    heads: 3,
    queries: 5,
    keys: 5,
    head_dim: 4,
    first: 0,
    bias: [0, 0],
    window: usize::MAX,
};

impl Case {
    /// q, k and v in the order `[B, L, H, E]`, then the bias.
    fn inputs(&self) -> Vec<Input> {
        let c = self;
        let mut inputs = vec![input(&[c.batch, c.queries, c.heads, c.head_dim], 1)];
        inputs.extend([2, 3].map(|seed| input(&[c.batch, c.keys, c.heads, c.head_dim], seed)));
        if c.bias[0] > 0 {
            let mut bias = input(&[c.bias[0], c.bias[1], c.queries, c.keys], 4);
            for (i, x) in bias.values.iter_mut().enumerate() {
                let (query, key) = (c.first + i / c.keys % c.queries, i % c.keys);
                if query.abs_diff(key) >= c.window {
                    *x = f64::NEG_INFINITY;
                }
            }
            inputs.push(bias);
        }
        inputs
    }

    /// Applies one of the two attentions to views of flat inputs.
    fn apply(&self, attention: Attention, x: &[Tensor<1>]) -> Tensor<1> {
        let c = self;
        let view = |x: &Tensor<1>, length| {
            x.clone()
                .reshape([c.batch, length, c.heads, c.head_dim])
                .swap_dims(1, 2)
        };
        let bias = x.get(3).map(|bias| {
            bias.clone()
                .reshape([c.bias[0], c.bias[1], c.queries, c.keys])
        });
        let scale = 1.0 / (c.head_dim as f64).sqrt();
        let y = attention(
            view(&x[0], c.queries),
            view(&x[1], c.keys),
            view(&x[2], c.keys),
            bias,
            scale,
            c.first,
        );
        y.swap_dims(1, 2)
            .reshape([c.batch * c.queries * c.heads * c.head_dim])
    }
}

type Attention = fn(Tensor<4>, Tensor<4>, Tensor<4>, Option<Tensor<4>>, f64, usize) -> Tensor<4>;

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let mut cases = vec![
        PLAIN,
        Case {
            queries: 1,
            keys: 1,
            ..PLAIN
        },
        Case {
            queries: 1,
            keys: 9,
            first: 8,
            ..PLAIN
        },
        Case {
            queries: 4,
            keys: 20,
            first: 3,
            ..PLAIN
        },
        Case {
            queries: 37,
            keys: 37,
            head_dim: 16,
            ..PLAIN
        },
        Case {
            batch: 1,
            heads: 1,
            queries: 300,
            keys: 300,
            head_dim: 20,
            ..PLAIN
        },
        Case {
            queries: 33,
            keys: 290,
            first: 257,
            head_dim: 1,
            ..PLAIN
        },
        Case {
            queries: 64,
            keys: 64,
            head_dim: 33,
            ..PLAIN
        },
        Case {
            queries: 19,
            keys: 19,
            head_dim: 64,
            ..PLAIN
        },
    ];
    for bias in [[1, 1], [2, 1], [1, 3], [2, 3]] {
        cases.push(Case {
            bias,
            queries: 35,
            keys: 35,
            head_dim: 7,
            ..PLAIN
        });
        cases.push(Case {
            bias,
            queries: 21,
            keys: 160,
            first: 130,
            window: 9,
            ..PLAIN
        });
        // Distance 0 is hidden as well: rows that see nothing.
        cases.push(Case {
            bias,
            queries: 18,
            keys: 18,
            window: 0,
            ..PLAIN
        });
    }
    // All keys come before the first query: every query sees every key.
    for (queries, keys, first) in [
        (1, 1, 1),
        (5, 5, 4),
        (5, 5, 5),
        (37, 37, 37),
        (33, 290, 290),
        (300, 140, 140),
        (3, 17, 1000),
    ] {
        for bias in [[0, 0], [1, 3], [2, 1]] {
            cases.push(Case {
                queries,
                keys,
                first,
                bias,
                head_dim: 9,
                ..PLAIN
            });
        }
    }
    // Some of the last queries see all keys.
    cases.push(Case {
        queries: 21,
        keys: 30,
        first: 17,
        bias: [1, 1],
        ..PLAIN
    });
    cases.push(Case {
        batch: 19,
        heads: 2,
        bias: [1, 2],
        queries: 17,
        keys: 17,
        ..PLAIN
    });
    cases
}

#[test]
fn fused_attention_agrees_with_its_definition() {
    for c in cases() {
        compare(
            1.0,
            &format!("{c:?}"),
            &c.inputs(),
            &|x| c.apply(longreach_kernels::attention, x),
            &|x| c.apply(reference::attention, x),
        );
    }
}

#[test]
fn gradients_of_the_definition_are_those_of_finite_differences() {
    let small = Case {
        batch: 2,
        heads: 2,
        queries: 3,
        keys: 5,
        head_dim: 2,
        first: 1,
        bias: [1, 2],
        window: 3,
    };
    for c in [
        small,
        Case {
            bias: [2, 1],
            window: 0,
            ..small
        },
    ] {
        differences(&format!("{c:?}"), &c.inputs(), &|x| {
            c.apply(reference::attention, x)
        });
    }
}

#[test]
fn a_row_that_sees_nothing_gives_zero_and_takes_no_gradient() {
    let c = Case {
        queries: 18,
        keys: 18,
        bias: [1, 1],
        window: 0,
        ..PLAIN
    };
    for attention in [
        longreach_kernels::attention as Attention,
        reference::attention,
    ] {
        let (output, grads) = run(&c.inputs(), DType::F32, &|x| c.apply(attention, x));
        assert!(
            output
                .iter()
                .chain(grads.iter().flatten())
                .all(|x| *x == 0.0)
        );
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    // Enough work for the operation to leave the calling thread.
    let large = Case {
        batch: 6,
        heads: 4,
        queries: 130,
        keys: 130,
        head_dim: 16,
        ..PLAIN
    };
    let long = Case {
        batch: 1,
        heads: 1,
        queries: 64,
        keys: 6000,
        first: 5936,
        head_dim: 16,
        ..PLAIN
    };
    for c in [
        large,
        Case {
            bias: [1, 1],
            ..large
        },
        Case {
            bias: [6, 4],
            ..large
        },
        long,
    ] {
        same_for_any_threads(&format!("{c:?}"), &c.inputs(), &move |x| {
            c.apply(longreach_kernels::attention, x)
        });
    }
}

#[test]
fn later_keys_and_values_change_nothing_earlier() {
    let c = Case {
        queries: 150,
        keys: 150,
        head_dim: 5,
        bias: [1, 1],
        ..PLAIN
    };
    let row = c.heads * c.head_dim;
    let (before, _) = run(&c.inputs(), DType::F32, &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    for changed in [1, 17, 64, 130, 149] {
        let mut inputs = c.inputs();
        for input in &mut inputs[1..3] {
            for batch in input.values.chunks_mut(c.keys * row) {
                batch[changed * row..]
                    .iter_mut()
                    .for_each(|x| *x = 3.0 - 2.0 * *x);
            }
        }
        let (after, _) = run(&inputs, DType::F32, &|x| {
            c.apply(longreach_kernels::attention, x)
        });
        for (before, after) in before
            .chunks(c.queries * row)
            .zip(after.chunks(c.queries * row))
        {
            assert!(
                before[..changed * row] == after[..changed * row],
                "key {changed} is seen too early"
            );
            assert!(
                before[changed * row..] != after[changed * row..],
                "key {changed} is not seen at all"
            );
        }
    }
}

#[test]
fn a_block_of_queries_gives_what_the_whole_gives() {
    let c = Case {
        queries: 200,
        keys: 200,
        head_dim: 16,
        ..PLAIN
    };
    let row = c.heads * c.head_dim;
    let (whole, _) = run(&c.inputs(), DType::F32, &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    for (first, queries) in [(0, 7), (7, 30), (131, 69)] {
        let part = Case {
            queries,
            first,
            ..c
        };
        let mut inputs = c.inputs();
        let cut = |batch: &[f64]| batch[first * row..(first + queries) * row].to_vec();
        inputs[0].values = inputs[0]
            .values
            .chunks(c.queries * row)
            .flat_map(cut)
            .collect();
        let (output, _) = run(&inputs, DType::F32, &|x| {
            part.apply(longreach_kernels::attention, x)
        });
        let expected: Vec<f64> = whole.chunks(c.queries * row).flat_map(cut).collect();
        assert!(output == expected, "queries {first}..{}", first + queries);
    }
}

#[test]
fn past_all_keys_every_query_sees_what_the_last_one_sees() {
    let c = Case {
        queries: 40,
        keys: 150,
        first: 150,
        head_dim: 16,
        bias: [1, 3],
        ..PLAIN
    };
    let row = c.heads * c.head_dim;
    let (whole, _) = run(&c.inputs(), DType::F32, &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    for query in [0, 1, 17, 39] {
        // The same query alone, as the last of a causal sequence.
        let last = Case {
            queries: 1,
            first: 149,
            ..c
        };
        let mut inputs = c.inputs();
        let cut = |batch: &[f64]| batch[query * row..(query + 1) * row].to_vec();
        inputs[0].values = inputs[0]
            .values
            .chunks(c.queries * row)
            .flat_map(cut)
            .collect();
        inputs[3].values = inputs[3]
            .values
            .chunks(c.queries * c.keys)
            .flat_map(|head| head[query * c.keys..][..c.keys].to_vec())
            .collect();
        let (output, _) = run(&inputs, DType::F32, &|x| {
            last.apply(longreach_kernels::attention, x)
        });
        let expected: Vec<f64> = whole.chunks(c.queries * row).flat_map(cut).collect();
        assert!(output == expected, "query {query}");
    }
}

#[test]
fn an_untracked_bias_changes_no_other_gradient() {
    let c = Case {
        bias: [1, 3],
        queries: 20,
        keys: 20,
        ..PLAIN
    };
    let inputs = c.inputs();
    let (_, all) = run(&inputs, DType::F32, &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    let detached = |x: &[Tensor<1>]| {
        c.apply(
            longreach_kernels::attention,
            &[
                x[0].clone(),
                x[1].clone(),
                x[2].clone(),
                x[3].clone().detach(),
            ],
        )
    };
    let with_leaf = |x: &[Tensor<1>]| detached(x) + x[3].clone().slice_dim(0, 0..1) * 0.0;
    let (_, some) = run(&inputs, DType::F32, &with_leaf);
    assert!(all[..3] == some[..3]);
}
