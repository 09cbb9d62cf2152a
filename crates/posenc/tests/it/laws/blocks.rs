//! Blocks are slices of the whole, rows see no later key, and layers differ only by their tables.

use super::{bias_block, cut, device, input, prepare};
use crate::common::{
    Attention, SHAPE, all_configs, build_stirred, dot, host, largest_difference, random,
};
use burn::tensor::Tensor;
use posenc::{Bias, BiasBlocks, Block, Content, ModelShape, Positions, Prepared};
use std::ops::Range;
use std::panic::catch_unwind;

#[test]
fn decoding_one_token_equals_the_last_row() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let positions = Positions::from_offset(2, 9);
        let all = Attention::new(&encoding, &positions, 0, 0);
        let (q, k) = all.raw.clone();
        let one = Attention::of(
            &encoding,
            &positions.last(1),
            0,
            8,
            (q.slice_dim(2, 8..9), k),
            all.hidden.clone(),
        );
        assert_eq!(
            host(all.turned.0.clone().slice_dim(2, 8..9)),
            host(one.turned.0.clone()),
            "{name}: query"
        );
        assert_eq!(
            host(all.turned.1.clone()),
            host(one.turned.1.clone()),
            "{name}: keys"
        );
        let x = random(3, [1, 9, 32]);
        let (embedded, last) = (
            all.prepared.embed(x.clone()),
            one.prepared.embed(x.slice_dim(1, 8..9)),
        );
        assert_eq!(
            host(embedded.slice_dim(1, 8..9)),
            host(last),
            "{name}: input"
        );
        let same = |all: Option<Vec<f64>>, one: Option<Vec<f64>>, hook: &str| match (all, one) {
            (Some(all), Some(one)) => {
                let difference = largest_difference(&all, &one);
                assert!(difference < 2e-6, "{name}: {hook} differs by {difference}");
            }
            (all, one) => assert!(all.is_none() && one.is_none(), "{name}: {hook}"),
        };
        let bias = |attention: &Attention<'_>, row: usize| {
            attention
                .prepared
                .logits_bias(0)
                .map(|b| bias_block(&b, row..row + 1, 0..9))
        };
        same(bias(&all, 8), bias(&one, 0), "bias");
        same(
            all.content_bias(8..9, 0..9).map(host),
            one.content_bias(0..1, 0..9).map(host),
            "content bias",
        );
        same(
            all.output_bias(8..9, 0..9).map(host),
            one.output_bias(0..1, 0..9).map(host),
            "output",
        );
    }
}

#[test]
fn a_block_of_queries_is_a_slice_of_the_whole() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        // Twelve queries after four keys, as the last block of a long sequence has.
        let positions = Positions::contiguous(16).last(12);
        let attention = Attention::new(&encoding, &positions, 0, 4);
        let whole_bias = attention.content_bias(0..12, 0..16);
        let whole_output = attention.output_bias(0..12, 0..16);
        for queries in [0..12, 0..1, 3..7, 7..12] {
            let seen = 0..attention.first_query + queries.end;
            let block = attention.content_bias(queries.clone(), seen.clone());
            assert_eq!(block.is_some(), whole_bias.is_some(), "{name}");
            if let (Some(whole), Some(block)) = (&whole_bias, block) {
                let slice = whole
                    .clone()
                    .slice_dim(2, queries.clone())
                    .slice_dim(3, seen.clone());
                let difference = largest_difference(&host(slice), &host(block));
                assert!(
                    difference < 5e-6,
                    "{name}: {queries:?} differs by {difference}"
                );
            }
            if let Some(whole) = &whole_output {
                let block = attention
                    .output_bias(queries.clone(), seen)
                    .expect("whatever the block");
                let difference = largest_difference(
                    &host(whole.clone().slice_dim(2, queries.clone())),
                    &host(block),
                );
                assert!(
                    difference < 5e-6,
                    "{name}: output of {queries:?} differs by {difference}"
                );
            }
        }
        let Some(bias) = attention.prepared.logits_bias(0) else {
            continue;
        };
        let whole = bias_block(&bias, 0..12, 0..16);
        for (queries, keys) in [
            (0..12, 0..16),
            (0..1, 0..1),
            (2..9, 5..6),
            (11..12, 0..16),
            (3..7, 8..15),
        ] {
            let block = bias_block(&bias, queries.clone(), keys.clone());
            let difference = largest_difference(
                &cut(&whole, [12, 16], queries.clone(), keys.clone()),
                &block,
            );
            assert!(
                difference < 1e-6,
                "{name}: bias of {queries:?}, {keys:?} differs by {difference}"
            );
        }
    }
}

#[test]
fn a_row_does_not_see_the_keys_after_it() {
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let positions = Positions::contiguous(9);
        let with_later = |seed: u64, row: usize| {
            let replaced = |x: Tensor<4>| {
                Tensor::cat(
                    vec![x.slice_dim(2, 0..row + 1), random(seed, [1, 4, 8 - row, 8])],
                    2,
                )
            };
            let raw = (random(1, [1, 4, 9, 8]), replaced(random(2, [1, 4, 9, 8])));
            let hidden = Tensor::cat(
                vec![random(3, [1, row + 1, 32]), random(seed, [1, 8 - row, 32])],
                1,
            );
            Attention::of(&encoding, &positions, 0, 0, raw, hidden)
        };
        for row in [0, 3, 7] {
            let (one, other) = (with_later(11, row), with_later(12, row));
            let seen = |attention: &Attention<'_>| {
                let scores = attention
                    .scores(0..9, 0..9)
                    .slice_dim(2, row..row + 1)
                    .slice_dim(3, 0..row + 1);
                let output = attention
                    .output_bias(0..9, 0..9)
                    .map(|term| host(term.slice_dim(2, row..row + 1)));
                (host(scores), output)
            };
            assert_eq!(seen(&one), seen(&other), "{name}: row {row}");
            assert_ne!(
                host(one.turned.1.clone()),
                host(other.turned.1.clone()),
                "the later keys differ"
            );
        }
    }
}

#[test]
fn layers_without_tables_of_their_own_are_alike_and_those_with_are_not() {
    for (name, config) in all_configs() {
        if ["nope_layers", "by_layer"].contains(&config.kind()) {
            // Their layers differ by design.
            continue;
        }
        let (encoding, facts) = (build_stirred(&config, &SHAPE), config.facts(&SHAPE));
        let positions = Positions::contiguous(6);
        let [first, second] = [0, 1].map(|layer| {
            let attention = Attention::new(&encoding, &positions, layer, 0);
            (
                attention.logits(),
                attention.output_bias(0..6, 0..6).map(host),
            )
        });
        // A table per layer is one more parameter in a model with one more layer.
        let deeper = ModelShape {
            n_layers: SHAPE.n_layers + 1,
            ..SHAPE
        };
        let per_layer = config.facts(&deeper).parameters.len() > facts.parameters.len();
        assert_eq!(per_layer, first != second, "{name}");
    }
}

#[test]
fn any_order_and_repetition_of_positions_is_allowed() {
    for (name, config) in all_configs() {
        if config.facts(&SHAPE).ignores_positions {
            // Tokens count by their order in the sequence alone.
            continue;
        }
        let shuffled = [5.0, 0.0, 3.0, 3.0];
        let encoding = build_stirred(&config, &SHAPE);
        let whole = prepare(&encoding, &Positions::contiguous(6));
        let some = prepare(
            &encoding,
            &Positions::new(shuffled.to_vec(), shuffled.to_vec()),
        );
        let x = random(1, [1, 1, 32]);
        let whole_rows = host(whole.embed(x.clone().repeat_dim(1, 6)));
        let rows = host(some.embed(x.repeat_dim(1, 4)));
        let q = random(2, [1, 4, 1, 8]);
        let turned = |prepared: &dyn Prepared, count: usize| {
            let rows = || q.clone().repeat_dim(2, count);
            prepared.transform_qk(0, rows(), rows(), &input(count))
        };
        let (whole_q, whole_k) = turned(&*whole, 6);
        let (turned_q, turned_k) = turned(&*some, 4);
        for (i, p) in shuffled.map(|p| p as usize).into_iter().enumerate() {
            assert_eq!(rows[i * 32..][..32], whole_rows[p * 32..][..32], "{name}");
            for (turned, whole) in [(&turned_q, &whole_q), (&turned_k, &whole_k)] {
                let (turned, whole) = (
                    turned.clone().slice_dim(2, i..i + 1),
                    whole.clone().slice_dim(2, p..p + 1),
                );
                assert_eq!(host(turned), host(whole), "{name}");
            }
        }
        let Some(bias) = whole.logits_bias(0) else {
            continue;
        };
        let (whole, some) = (
            bias_block(&bias, 0..6, 0..6),
            bias_block(&some.logits_bias(0).expect("as before"), 0..4, 0..4),
        );
        for (i, m) in shuffled.map(|p| p as usize).into_iter().enumerate() {
            for (j, n) in shuffled.map(|p| p as usize).into_iter().enumerate() {
                let difference = largest_difference(
                    &cut(&whole, [6, 6], m..m + 1, n..n + 1),
                    &cut(&some, [4, 4], i..i + 1, j..j + 1),
                );
                assert!(
                    difference < 1e-6,
                    "{name}: bias of {m}, {n} differs by {difference}"
                );
            }
        }
    }
}

#[test]
fn a_bias_without_terms_panics() {
    struct Ones;
    impl BiasBlocks for Ones {
        fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
            Tensor::ones([1, 1, queries.len(), keys.len()], &device())
        }
    }
    assert_eq!(
        bias_block(&Bias::new(Ones).plus(Bias::new(Ones)), 0..2, 1..2),
        [2.0, 2.0]
    );
    assert!(catch_unwind(|| Bias::default().block(0..1, 0..1)).is_err());
}

#[test]
fn content_gives_logits_and_the_causal_mask_on_request() {
    let (q, k, hidden) = (
        random(1, [2, 3, 4, 8]),
        random(2, [2, 3, 6, 8]),
        random(3, [2, 6, 24]),
    );
    let raw = || unreachable!("nobody asks");
    let scale = 1.0 / 8f64.sqrt();
    let content = Content::new(
        [&q, &k],
        &raw,
        &hidden,
        Block {
            queries: 2..6,
            keys: 0..6,
            first_query: 2,
        },
        scale,
    );
    let logits = content.logits();
    assert_eq!(logits.dims(), [2, 3, 4, 6]);
    let mask: Vec<bool> = content
        .causal_mask()
        .into_data()
        .try_to_vec()
        .expect("booleans");
    assert_eq!(
        mask,
        (0..4)
            .flat_map(|row| (0..6).map(move |key| key > 2 + row))
            .collect::<Vec<bool>>()
    );
    let (q, k) = (host(q), host(k));
    let pairs = (0..6).flat_map(|bh| (0..4).flat_map(move |i| (0..6).map(move |j| (bh, i, j))));
    let expected = pairs
        .map(|(bh, i, j)| dot(&q[(bh * 4 + i) * 8..][..8], &k[(bh * 6 + j) * 8..][..8]) * scale);
    assert!(largest_difference(&host(logits), &expected.collect::<Vec<_>>()) < 1e-6);
}

#[test]
fn one_layer_of_a_model_is_enough_for_every_encoding() {
    let shape = ModelShape {
        n_layers: 1,
        ..SHAPE
    };
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &shape);
        let logits = Attention::new(&encoding, &Positions::contiguous(5), 0, 0).logits();
        assert!(logits.iter().all(|logit| !logit.is_nan()), "{name}");
    }
}
