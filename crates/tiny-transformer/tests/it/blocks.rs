//! Long sequences go block by block over queries, and short ones through fused operations: neither
//! changes the result.

use crate::common::hooks::Call;
use crate::common::{
    VARIANTS, encodings, gradients, host, ints, largest_difference, model, reach, small, tokens,
};
use crate::models::{BATCH, LENGTH, all_hooks, blocks_of, content_only, device, forward};
use burn::module::Module;
use posenc::{PositionalEncoding, Positions};
use tiny_transformer::{Activation, NormKind, Pass, Transformer};

fn blocks_change_nothing<E: Module + PositionalEncoding>(
    name: &str,
    model: &Transformer<E>,
    length: usize,
) {
    let tokens = tokens(8, BATCH, length, 11);
    let whole = forward(model, &tokens, BATCH, &blocks_of(usize::MAX));
    let row = BATCH * 3 * length;
    for max_logits in [0, row, row * 5, row * 7 + 1, row * length] {
        let difference = largest_difference(
            &whole,
            &forward(model, &tokens, BATCH, &blocks_of(max_logits)),
        );
        assert!(
            difference < 1e-5,
            "{name} with {max_logits} logits at once: {difference}"
        );
    }
}

#[test]
fn block_by_block_is_all_at_once() {
    let config = small(NormKind::RmsNorm, Activation::Swiglu, false);
    for (name, encoding) in encodings() {
        blocks_change_nothing(
            &name,
            &model(&config, &encoding, &device()),
            reach(&encoding, LENGTH),
        );
    }
    blocks_change_nothing("all hooks", &all_hooks(&config), LENGTH);
    blocks_change_nothing("content only", &content_only(&config), LENGTH);
}

#[test]
fn each_hook_is_called_for_its_layer_and_its_block() {
    let config = small(NormKind::LayerNorm, Activation::Gelu, true);
    let model = all_hooks(&config);
    let max_logits = BATCH * 3 * LENGTH * 5;
    forward(
        &model,
        &tokens(9, BATCH, LENGTH, 11),
        BATCH,
        &blocks_of(max_logits),
    );
    let calls = model
        .encoding()
        .calls
        .lock()
        .expect("no panic while noting")
        .clone();
    assert_eq!(
        calls[..2],
        [Call::Prepare, Call::Embed],
        "prepared once, embedded once"
    );
    let per_layer = calls[2..].chunks((calls.len() - 2) / 2);
    assert_eq!(per_layer.len(), 2);
    for (layer, calls) in per_layer.enumerate() {
        assert_eq!(calls[0], Call::TransformQk(layer), "once for all blocks");
        let of = |pick: &dyn Fn(&Call) -> bool| {
            calls
                .iter()
                .filter(|call| pick(call))
                .cloned()
                .collect::<Vec<_>>()
        };
        let blocks = [(0..5, 0..5), (5..10, 0..10), (10..12, 0..12)];
        let expected = |call: fn(usize, std::ops::Range<usize>, std::ops::Range<usize>) -> Call| {
            blocks
                .clone()
                .map(|(queries, keys)| call(layer, queries, keys))
                .to_vec()
        };
        assert_eq!(
            of(&|call| matches!(call, Call::ContentBias(..))),
            expected(Call::ContentBias)
        );
        assert_eq!(
            of(&|call| matches!(call, Call::OutputBias(..))),
            expected(Call::OutputBias)
        );
        assert_eq!(
            of(&|call| matches!(call, Call::Block(..))),
            expected(Call::Block)
        );
        assert!(
            of(&|call| matches!(call, Call::LogitsBias(_)))
                .iter()
                .all(|call| *call == Call::LogitsBias(layer))
        );
        assert_eq!(of(&|call| matches!(call, Call::TransformQk(_))).len(), 1);
        assert!(
            blocks
                .iter()
                .all(|(queries, keys)| BATCH * 3 * queries.len() * keys.len() <= max_logits)
        );
    }
}

#[test]
fn a_half_in_one_operation_gives_what_its_parts_give() {
    let device = device().autodiff();
    // Short enough for every limit in the list.
    let length = 8;
    let tokens = tokens(1, BATCH, length, 11);
    // Dropout keeps the halves apart, and factors of 1 keep what it multiplies.
    let ones = |_: usize, count: usize| vec![1.0; count];
    for (norm, activation, tied) in VARIANTS {
        let config = small(norm, activation, tied);
        for (name, encoding) in encodings() {
            let model = model(&config, &encoding, &device);
            let run = |pass: &Pass<'_>| {
                let inputs = || ints(&tokens, BATCH, &device);
                let (nll, logits) =
                    model.nll(inputs(), inputs(), &Positions::contiguous(length), pass);
                (host(logits), gradients(&model, &nll.mean()))
            };
            let (whole, whole_gradients) = run(&Pass::default());
            let (parts, part_gradients) = run(&Pass {
                dropout: Some(&ones),
                ..Pass::default()
            });
            assert!(largest_difference(&whole, &parts) < 1e-5, "{name}: logits");
            for (path, (_, gradient)) in &whole_gradients {
                let difference = largest_difference(gradient, &part_gradients[path].1);
                assert!(
                    difference < 1e-5,
                    "{name}: gradient of {path}: {difference}"
                );
            }
        }
    }
}
