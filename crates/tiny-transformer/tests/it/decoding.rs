//! A cache changes nothing: tokens that continue it get the logits they have in a forward pass over
//! everything.

use crate::common::{
    AllHooks, ContentOnly, draw, encodings, host, ints, largest_difference, linear, model, reach,
    small, tokens,
};
use burn::module::Module;
use burn::tensor::Device;
use posenc::{EncodingConfig, Init, PositionalEncoding, Positions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tiny_transformer::{
    Activation, Cache, FeatureMap, NormKind, Normalizer, Pass, Transformer, TransformerConfig,
};

const BATCH: usize = 2;
const VOCAB: usize = 11;

fn device() -> Device {
    Device::flex()
}

fn softmax() -> TransformerConfig {
    small(NormKind::LayerNorm, Activation::Gelu, false)
}

/// Softmax attention, and linear attention where it can host the encoding.
fn kinds(encoding: &EncodingConfig) -> Vec<TransformerConfig> {
    let mut kinds = vec![softmax()];
    if encoding.facts(&softmax().shape()).linear {
        let each = [
            Normalizer::Unrotated,
            Normalizer::Rotated,
            Normalizer::Cosine,
        ];
        kinds.extend(each.map(|normalizer| linear(softmax(), FeatureMap::Elu, normalizer)));
    }
    kinds
}

fn reads_length(encoding: &EncodingConfig) -> bool {
    encoding.facts(&softmax().shape()).reads_length
}

/// Rows `from..to` of every sequence.
fn cut(sequences: &[i64], from: usize, to: usize) -> Vec<i64> {
    sequences
        .chunks(sequences.len() / BATCH)
        .flat_map(|row| row[from..to].to_vec())
        .collect()
}

fn forward<E: Module + PositionalEncoding>(
    model: &Transformer<E>,
    sequences: &[i64],
    offset: usize,
) -> Vec<f64> {
    let positions = Positions::from_offset(offset, sequences.len() / BATCH);
    host(model.forward(
        ints(sequences, BATCH, &device()),
        &positions,
        &Pass::default(),
    ))
}

/// Logits of every row, row by row of each sequence, from chunks of these sizes one after the
/// other.
fn extended<E: Module + PositionalEncoding>(
    model: &Transformer<E>,
    sequences: &[i64],
    offset: usize,
    chunks: &[usize],
    pass: &Pass<'_>,
) -> Vec<f64> {
    let (mut cache, mut rows) = (Cache::default(), vec![vec![]; BATCH]);
    assert!(cache.is_empty());
    for chunk in chunks {
        let (from, to) = (cache.len(), cache.len() + chunk);
        let tokens = ints(&cut(sequences, from, to), BATCH, &device());
        let logits = host(model.extend(
            tokens,
            &Positions::from_offset(offset, to),
            &mut cache,
            pass,
        ));
        assert_eq!(
            (cache.len(), logits.len()),
            (to, BATCH * chunk * VOCAB),
            "one row per token of the chunk"
        );
        rows.iter_mut()
            .zip(logits.chunks(chunk * VOCAB))
            .for_each(|(rows, logits)| rows.extend_from_slice(logits));
    }
    assert_eq!(cache.len() * BATCH, sequences.len(), "all tokens");
    rows.concat()
}

fn same(name: &str, got: &[f64], expected: &[f64]) {
    let size = expected.iter().fold(1.0f64, |size, x| size.max(x.abs()));
    let difference = largest_difference(got, expected);
    assert!(difference <= 1e-4 * size, "{name}: {difference} of {size}");
}

/// One by one after a start, and in chunks, at these positions.
fn agrees<E: Module + PositionalEncoding>(
    name: &str,
    model: &Transformer<E>,
    length: usize,
    offset: usize,
) {
    let sequences = tokens(21, BATCH, length, VOCAB);
    let whole = forward(model, &sequences, offset);
    let one_by_one: Vec<usize> = std::iter::once(length / 2)
        .chain(vec![1; length - length / 2])
        .collect();
    let mut chunks = vec![3.min(length), 4.min(length - 3.min(length))];
    chunks.resize(2 + length - chunks.iter().sum::<usize>(), 1);
    chunks.retain(|chunk| *chunk > 0);
    for sizes in [vec![length], one_by_one, vec![1; length], chunks] {
        for max_logits in [usize::MAX, BATCH * 3 * length * 2] {
            let pass = Pass {
                max_logits,
                ..Pass::default()
            };
            let got = extended(model, &sequences, offset, &sizes, &pass);
            same(
                &format!("{name} from {offset} in chunks {sizes:?}"),
                &got,
                &whole,
            );
        }
    }
}

#[test]
fn tokens_that_continue_a_cache_get_the_logits_of_the_whole() {
    for (name, encoding) in encodings()
        .into_iter()
        .filter(|(_, encoding)| !reads_length(encoding))
    {
        for config in kinds(&encoding) {
            let model = model(&config, &encoding, &device());
            let name = format!("{name}, {:?}, {:?}", config.attention, config.normalizer);
            agrees(&name, &model, reach(&encoding, 13), 0);
            let length = reach(&encoding, 16) - 5;
            agrees(&name, &model, length, 5);
        }
    }
    let (device, config) = (device(), softmax());
    let init = Init::new(&device, &draw);
    let encoding = init.scope("encoding");
    agrees(
        "all hooks",
        &Transformer::with(&config, AllHooks::new(&encoding), &init),
        13,
        0,
    );
    agrees(
        "all hooks",
        &Transformer::with(&config, AllHooks::new(&encoding), &init),
        11,
        5,
    );
    agrees(
        "content only",
        &Transformer::with(&config, ContentOnly::new(&encoding), &init),
        13,
        0,
    );
}

/// Chunks and states of linear attention are 64 rows long inside; here they meet at every possible
/// place.
#[test]
fn long_caches_of_linear_attention_are_exact_too() {
    for encoding in ["nope", "rope", "xpos", "alibi"] {
        let encoding = crate::common::config(serde_json::json!({"kind": encoding}));
        for config in kinds(&encoding).into_iter().skip(1) {
            let model = model(&config, &encoding, &device());
            let sequences = tokens(22, BATCH, 150, VOCAB);
            let whole = forward(&model, &sequences, 0);
            for chunks in [
                vec![70, 80],
                vec![1, 64, 65, 20],
                vec![149, 1],
                vec![64, 86],
            ] {
                let got = extended(&model, &sequences, 0, &chunks, &Pass::default());
                same(
                    &format!("{} in chunks {chunks:?}", encoding.kind()),
                    &got,
                    &whole,
                );
            }
        }
    }
}

/// Up to the length from which on they differ, encodings that read it are like any other.
#[test]
fn encodings_that_read_the_length_are_exact_up_to_the_training_length() {
    for (name, encoding) in encodings()
        .into_iter()
        .filter(|(_, encoding)| reads_length(encoding))
    {
        for config in kinds(&encoding) {
            agrees(&name, &model(&config, &encoding, &device()), 8, 0);
        }
    }
}

/// Where an encoding reads the length, a token's logits are those of the sequence that ended with
/// it, not of a longer one. A cache holds keys before they are turned, so that one layer of a
/// rotation is exact at every length; a second layer attends to what the first made of earlier
/// tokens at their length, and an embedded position is part of that too.
#[test]
fn a_cache_is_never_stale_where_rotations_read_the_length() {
    let mut checked = 0;
    for (name, encoding) in encodings() {
        let facts = encoding.facts(&softmax().shape());
        if !facts.reads_length || facts.hooks.embed {
            continue;
        }
        checked += 1;
        for config in kinds(&encoding) {
            let config = config.with_layers(1);
            let model = model(&config, &encoding, &device());
            let length = reach(&encoding, 24);
            let sequences = tokens(23, BATCH, length, VOCAB);
            for start in [3, 6] {
                let mut chunks = vec![start];
                chunks.resize(1 + length - start, 1);
                let got = extended(&model, &sequences, 0, &chunks, &Pass::default());
                for end in start..=length {
                    let fresh = forward(&model, &cut(&sequences, 0, end), 0);
                    let last = |logits: &[f64], length: usize| -> Vec<f64> {
                        logits
                            .chunks(length * VOCAB)
                            .flat_map(|rows| rows[(end - 1) * VOCAB..end * VOCAB].to_vec())
                            .collect()
                    };
                    same(
                        &format!("{name}, {:?}, after {end} tokens", config.attention),
                        &last(&got, length),
                        &last(&fresh, end),
                    );
                }
            }
        }
    }
    assert!(checked > 2, "some rotations read the length");
}

#[test]
fn a_cache_refuses_what_does_not_continue_it() {
    let (_, encoding) = encodings()
        .into_iter()
        .find(|(_, encoding)| encoding.kind() == "rope")
        .expect("rope");
    let model = model(&softmax(), &encoding, &device());
    let works = |positions: Positions, batch: usize| {
        let mut cache = Cache::default();
        model.extend(
            ints(&tokens(1, 2, 4, VOCAB), 2, &device()),
            &Positions::contiguous(4),
            &mut cache,
            &Pass::default(),
        );
        let next = ints(&tokens(2, batch, 3, VOCAB), batch, &device());
        catch_unwind(AssertUnwindSafe(|| {
            model.extend(next, &positions, &mut cache, &Pass::default())
        }))
        .is_ok()
    };
    assert!(works(Positions::contiguous(7), 2));
    assert!(
        !works(Positions::contiguous(3), 2) && !works(Positions::contiguous(8), 2),
        "positions of all tokens"
    );
    assert!(!works(Positions::contiguous(7), 1), "another batch");
}

#[test]
fn a_cloned_cache_goes_its_own_way() {
    let (_, encoding) = encodings()
        .into_iter()
        .find(|(_, encoding)| encoding.kind() == "fox")
        .expect("fox");
    let model = model(&softmax(), &encoding, &device());
    let [common, a, b] =
        [(31, 6), (32, 3), (33, 3)].map(|(seed, length)| tokens(seed, BATCH, length, VOCAB));
    let step = |tokens: &[i64], cache: &mut Cache| {
        let positions = Positions::contiguous(cache.len() + tokens.len() / BATCH);
        host(model.extend(
            ints(tokens, BATCH, &device()),
            &positions,
            cache,
            &Pass::default(),
        ))
    };
    let mut first = Cache::default();
    step(&common, &mut first);
    let mut second = first.clone();
    let (got_a, got_b) = (step(&a, &mut first), step(&b, &mut second));
    for (next, got) in [(a, got_a), (b, got_b)] {
        let rows = common
            .chunks(6)
            .zip(next.chunks(3))
            .flat_map(|(x, y)| [x, y].concat())
            .collect::<Vec<i64>>();
        let whole: Vec<f64> = forward(&model, &rows, 0)
            .chunks(9 * VOCAB)
            .flat_map(|rows| rows[6 * VOCAB..].to_vec())
            .collect();
        same("a branch", &got, &whole);
    }
}
