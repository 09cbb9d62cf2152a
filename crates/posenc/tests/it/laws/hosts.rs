//! What a host relies on: the mask an encoding allows, resolved keys, and the memory of a bias.

use super::device;
use crate::common::{Attention, LENGTHS, SHAPE, all_configs, build_stirred, config, host};
use posenc::{EncodingConfig, Facts, Hooks, Init, ModelShape, Positions, RopeScaling};
use serde_json::json;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Whether what an encoding does to a pair is well defined for keys after the query.
fn works_without_a_causal_mask(config: &EncodingConfig, facts: &Facts) -> bool {
    let encoding = build_stirred(config, &SHAPE);
    let step = facts
        .max_position_without_axes()
        .map_or(1000, |limit| ((limit - 1) / 5).min(1000));
    let positions = Positions::same((0..6).map(|i| (i * step) as f64).collect());
    let count = positions.queries().len();
    let logits = |first_query: usize| {
        let attention = || Attention::new(&encoding, &positions, 0, first_query).logits();
        catch_unwind(AssertUnwindSafe(attention)).ok()
    };
    let (Some(causal), Some(both)) = (logits(0), logits(count)) else {
        return false;
    };
    let pairs = (0..both.len()).map(|i| (i, i / count % count, i % count));
    // A pair that a causal mask shows must not depend on whether there is one.
    let same = pairs
        .clone()
        .all(|(i, query, key)| key > query || both[i] == causal[i]);
    // No logit may grow without bound as the key moves ahead of the query.
    let largest = |after: bool| {
        let side = pairs
            .clone()
            .filter(|(_, query, key)| (key > query) == after);
        let finite = side
            .map(|(i, _, _)| both[i])
            .filter(|logit| *logit != f64::NEG_INFINITY);
        finite.fold(0.0, |most: f64, logit| most.max(logit.abs()))
    };
    let bounded = largest(true) <= 10.0 * largest(false);
    // A bias that tells earlier keys apart must tell later ones apart.
    let prepared = super::prepare(&encoding, &Positions::contiguous(17));
    let sided = prepared.logits_bias(0).is_none_or(|bias| {
        let row = host(bias.block(8..9, 0..17));
        let varies = |range: std::ops::Range<usize>| {
            row.chunks(17)
                .any(|head| head[range.clone()].iter().any(|b| *b != head[range.start]))
        };
        !varies(0..8) || varies(9..17)
    });
    same && bounded && sided
}

#[test]
fn encodings_without_causal_only_work_under_a_bidirectional_mask() {
    let mut caught = BTreeSet::new();
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        if !works_without_a_causal_mask(&config, &facts) {
            assert!(facts.causal_only, "{name}: must be declared `causal_only`");
            caught.insert(config.kind());
        }
    }
    // Each of the ways to fail is seen: a panic, pairs that change, growth, one-sided buckets.
    assert!(
        caught.is_superset(&BTreeSet::from(["fox", "cope", "xpos", "t5"])),
        "{caught:?}"
    );
}

#[test]
fn a_layer_that_names_another_has_its_bias() {
    let mut shared = BTreeSet::new();
    for (name, config) in all_configs() {
        let encoding = build_stirred(&config, &SHAPE);
        let prepared = super::prepare(&encoding, &Positions::contiguous(7));
        let bias = |layer: usize| {
            let bias = prepared.logits_bias(layer)?;
            Some(host(bias.block(0..7, 0..7)))
        };
        for layer in 0..SHAPE.n_layers {
            let first = prepared.bias_layer(layer);
            assert!(first <= layer, "{name}, layer {layer}");
            assert_eq!(prepared.bias_layer(first), first, "{name}, layer {layer}");
            assert_eq!(bias(layer), bias(first), "{name}, layer {layer}");
            if first < layer && bias(layer).is_some() {
                shared.insert(config.kind());
            }
        }
    }
    let kinds = [
        "alibi",
        "t5",
        "kerple",
        "fire",
        "learned_bias",
        "xpos",
        "stack",
    ];
    assert!(shared.is_superset(&kinds.into()), "{shared:?}");
}

#[test]
fn layers_share_a_bias_only_where_all_parts_do() {
    let alibi = json!({"kind": "alibi"});
    let pair = |pattern: [usize; 2]| {
        let parts = [alibi.clone(), json!({"kind": "t5"})];
        json!({"kind": "by_layer", "parts": parts, "pattern": pattern})
    };
    let alternating = json!({"kind": "stack", "parts": [pair([0, 1]), alibi]});
    let of_each = json!({"kind": "stack", "parts": [alibi, {"kind": "fire", "shared": false}]});
    let every_other = json!({"kind": "nope_layers", "every": 2, "part": alibi});
    let deep = ModelShape {
        n_layers: 4,
        ..SHAPE
    };
    for (encoding, expected) in [
        (pair([1, 0]), [0, 1, 0, 1]),
        (alternating, [0, 1, 0, 1]),
        (of_each, [0, 1, 2, 3]),
        (every_other, [0, 1, 0, 1]),
    ] {
        let encoding = build_stirred(&config(encoding), &deep);
        let prepared = super::prepare(&encoding, &Positions::contiguous(7));
        assert_eq!(
            [0, 1, 2, 3].map(|layer| prepared.bias_layer(layer)),
            expected
        );
    }
}

#[test]
fn an_unresolved_key_is_named_and_not_built() {
    let device = device();
    let init = Init::zeros(&device);
    let mut configs: Vec<EncodingConfig> = EncodingConfig::KINDS
        .iter()
        .filter_map(|kind| EncodingConfig::example(kind))
        .collect();
    let scalings = RopeScaling::KINDS
        .iter()
        .filter_map(|kind| RopeScaling::default_of(kind));
    configs.extend(scalings.map(|scaling| config(json!({"kind": "rope", "scaling": scaling}))));
    configs.push(config(json!({"kind": "alibi", "factor": "auto"})));
    configs.push(config(
        json!({"kind": "stack", "parts": [{"kind": "nope"}, {"kind": "window"}]}),
    ));
    configs.push(config(
        json!({"kind": "nope_layers", "part": {"kind": "learned"}}),
    ));
    for config in configs {
        let mut resolved = config.clone();
        resolved.resolve(&LENGTHS);
        assert_eq!(resolved.unresolved(), None, "{resolved:?}");
        assert!(resolved.init(&SHAPE, &init).is_ok(), "{resolved:?}");
        match config.unresolved() {
            None => assert_eq!(config, resolved, "nothing to resolve"),
            Some(key) => {
                assert_ne!(config, resolved, "{key}");
                let error = config.init(&SHAPE, &init).expect_err("not built");
                assert_eq!(error.key, key);
            }
        }
    }
    let key = |value| config(value).unresolved();
    let learned = json!({"kind": "learned"});
    assert_eq!(key(learned.clone()).as_deref(), Some("max_position"));
    let stack = json!({"kind": "stack", "parts": [{"kind": "nope"}, learned]});
    assert_eq!(key(stack).as_deref(), Some("parts.1.max_position"));
    let scaled = json!({"kind": "rope", "scaling": {"kind": "linear"}});
    assert_eq!(key(scaled).as_deref(), Some("scaling.factor"));
    let dynamic = json!({"kind": "rope", "scaling": {"kind": "dynamic_ntk"}});
    let original = "scaling.original_max_position_embeddings";
    assert_eq!(key(dynamic).as_deref(), Some(original));
    let fixed = json!({"kind": "rope", "scaling": {"kind": "linear", "factor": 4.0}});
    assert_eq!(key(fixed), None, "a fixed factor needs no length");
}

#[test]
fn the_memory_of_a_bias_is_declared_and_a_stack_needs_that_of_its_parts() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        let Hooks {
            logits_bias,
            content_bias,
            output_bias,
            ..
        } = facts.hooks;
        let has_bias = logits_bias || content_bias || output_bias;
        assert_eq!(facts.bias_workspace > 0.0, has_bias, "{name}");
        let has_transform = facts.hooks.transform_qk;
        assert!(facts.transform_workspace == 0.0 || has_transform, "{name}");
        // Biases of channels, as those of PaTH and Wall, keep numbers for each channel.
        let of_channels = has_transform || content_bias;
        assert!(facts.transform_kept == 0.0 || of_channels, "{name}");
        assert!(facts.bias_kept == 0.0 || has_bias, "{name}");
        assert!(
            facts.bias_work == 0.0 || facts.bias_work > 0.0 && has_bias,
            "{name}"
        );
    }
    let workspace = |value| {
        let mut config = config(value);
        config.resolve(&LENGTHS);
        let facts = config.facts(&SHAPE);
        facts.bias_workspace + facts.bias_work
    };
    let (rope, alibi) = (json!({"kind": "rope"}), json!({"kind": "alibi"}));
    let (fire, cope) = (json!({"kind": "fire"}), json!({"kind": "cope"}));
    let stack = |parts: &[&serde_json::Value]| workspace(json!({"kind": "stack", "parts": parts}));
    assert_eq!(stack(&[&rope, &alibi]), 4.0, "as measured");
    assert_eq!(stack(&[&rope, &rope]), 0.0);
    for heavy in [&fire, &cope] {
        assert!(stack(&[&rope, heavy]) > workspace(heavy.clone()));
        assert!(stack(&[&alibi, heavy]) > stack(&[&rope, heavy]));
        let layers = json!({"kind": "nope_layers", "part": heavy});
        assert_eq!(workspace(layers), workspace(heavy.clone()));
    }
}

/// An encoding of another crate beside one of the catalogue.
mod foreign {
    use burn::module::Module;
    use burn::tensor::{Device, Tensor};
    use posenc::{
        Bias, BiasBlocks, Context, Encoding, PositionalEncoding, Positions, PrepareResult, Prepared,
    };
    use std::ops::Range;

    #[derive(Module, Debug)]
    pub struct Constant {
        pub value: f64,
    }

    #[derive(Module, Debug)]
    #[expect(clippy::large_enum_variant, reason = "a test holds two of them")]
    pub enum Mixed {
        Own(Constant),
        Catalogue(Encoding),
    }

    struct Everywhere(f64, Device);

    impl BiasBlocks for &Everywhere {
        fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
            Tensor::full([1, 1, queries.len(), keys.len()], self.0, &self.1)
        }
    }

    impl Prepared for Everywhere {
        fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
            Some(Bias::new(self))
        }
    }

    impl PositionalEncoding for Mixed {
        fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
            match self {
                Self::Own(own) => Ok(Box::new(Everywhere(own.value, context.device.clone()))),
                Self::Catalogue(encoding) => encoding.prepare(positions, context),
            }
        }
    }
}

#[test]
fn an_encoding_of_another_crate_fits_into_a_stack_and_into_layers() {
    use foreign::{Constant, Mixed};
    use posenc::PositionalEncoding;
    use posenc::encodings::{NopeLayers, Stack};
    let of = |value| {
        let config = config(value);
        let facts = config.facts(&SHAPE);
        (Mixed::Catalogue(build_stirred(&config, &SHAPE)), facts)
    };
    let own = || {
        (
            Mixed::Own(Constant { value: 3.0 }),
            Facts::new(Hooks::LOGITS_BIAS),
        )
    };
    let alibi = json!({"kind": "alibi"});
    let stack = Stack::new(vec![of(alibi.clone()), own()]).expect("two biases");
    let positions = Positions::contiguous(5);
    let bias = |encoding: &dyn PositionalEncoding, layer: usize| {
        let prepared = encoding
            .prepare(&positions, &posenc::Context::new(&device()))
            .expect("no limit");
        prepared
            .logits_bias(layer)
            .map(|bias| host(bias.block(0..5, 0..5)))
    };
    let plain = bias(&build_stirred(&config(alibi), &SHAPE), 0).expect("ALiBi");
    let raised: Vec<f64> = plain.iter().map(|bias| bias + 3.0).collect();
    assert_eq!(bias(&stack, 0), Some(raised.clone()));
    let layers = NopeLayers::new(stack, 2).expect("every second layer");
    assert_eq!((bias(&layers, 0), bias(&layers, 1)), (Some(raised), None));

    let exclusive = Stack::new(vec![
        of(json!({"kind": "pope"})),
        of(json!({"kind": "rope"})),
    ]);
    assert_eq!(exclusive.expect_err("both transform").key, "parts");
    assert_eq!(
        Stack::<Mixed>::new(vec![]).expect_err("no parts").key,
        "parts"
    );
    assert_eq!(
        NopeLayers::new(own().0, 1).expect_err("no layer").key,
        "every"
    );
}

#[test]
fn fused_attention_leaves_out_no_bias() {
    let (length, mut decaying) = (7, BTreeSet::new());
    let rotated = config(json!({"kind": "stack", "parts": [{"kind": "rope"}, {"kind": "fox"}]}));
    let all = all_configs().into_iter();
    for (name, config) in all.chain([("rope and fox".to_owned(), rotated)]) {
        let encoding = build_stirred(&config, &SHAPE);
        let facts = config.facts(&SHAPE);
        let (mut found, mut fused) = (false, false);
        for layer in 0..SHAPE.n_layers {
            let attention = Attention::new(&encoding, &Positions::contiguous(length), layer, 0);
            let prepared = attention.prepared.as_ref();
            let sums = prepared.decays(layer, &|| attention.hidden.clone());
            let [content, output] = attention.content(0..length, 0..length, |content| {
                let weights = || content.logits();
                [
                    prepared.content_bias(layer, content),
                    prepared.output_bias(layer, content, &weights),
                ]
            });
            if prepared.fused_qk(layer).is_none() {
                continue;
            }
            fused = true;
            let what = format!("{name}, layer {layer}");
            assert!(output.is_none(), "{what}: an output bias");
            assert_eq!(content.is_some(), sums.is_some(), "{what}: a content bias");
            let (Some(content), Some(sums)) = (content, sums) else {
                continue;
            };
            found = true;
            let (content, sums) = (host(content), host(sums));
            assert_eq!(sums.len() * length, content.len(), "{what}: shapes");
            for (i, bias) in content.iter().enumerate() {
                let (head, query, key) = (i / length / length, i / length % length, i % length);
                let sum = |at: usize| sums[head * length + at];
                // Later keys are hidden.
                let off = bias - (sum(query) - sum(key));
                assert!(key > query || off.abs() < 1e-5, "{what}: off by {off}");
            }
        }
        let alone = found && !facts.hooks.logits_bias;
        if fused {
            assert_eq!(alone, facts.decays, "{name}: declared `decays`");
        } else {
            // Not fused because of a transform: `transform_kept` is above 0.
            let transformed = facts.transform_kept > 0.0;
            assert!(transformed || !facts.decays, "{name}: declared `decays`");
        }
        decaying.extend(found.then_some(name));
    }
    assert!(decaying.contains("rope and fox"), "{decaying:?}");
}
