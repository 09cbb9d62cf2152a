//! What is recorded of every head, and where `check` says that a bias goes blind.

use crate::common::{Scratch, TINY, exits, lacks, stderr, stdout};
use burn::tensor::{Device, Int, Tensor, TensorData};
use experiment::plan::blind::blind;
use experiment::run::attention_distance::Profile;
use experiment::run::rope_scores::{Sample, Scorer, Turns};
use posenc::{
    Context, Distribution, EncodingConfig, Init, Lengths, ModelShape, PositionalEncoding, Positions,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tasks::Stream;
use tiny_transformer::{Transformer, TransformerConfig};

/// Every number of f32 counts.
const EXACT: f32 = f32::NEG_INFINITY;
/// Numbers below 2^-126, nearly, are 0, as in the kernels of the CPU.
const NORMAL: f32 = -87.3;

fn config(json: Value) -> EncodingConfig {
    let mut config: EncodingConfig = serde_json::from_value(json).unwrap();
    config.resolve(&Lengths {
        train_len: 64,
        trained_len: 64,
        test_len: 64,
    });
    config
}

fn shape(n_heads: usize) -> ModelShape {
    ModelShape {
        d_model: 8 * n_heads,
        n_layers: 2,
        n_heads,
        head_dim: 8,
    }
}

/// Pairs of weight 0 in a softmax of f32 of a head with this bias by distance, where e^x is 0 below
/// `floor`. Pairs that the bias masks do not count.
fn without_weight(bias: &[f32], floor: f32) -> usize {
    let query = |query: usize| {
        let seen = &bias[..=query];
        let max = seen.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let power = |x: f32| if x < floor { 0.0 } else { x.exp() };
        let powers: Vec<f32> = seen.iter().map(|b| power(b - max)).collect();
        let sum: f32 = powers.iter().sum();
        let empty = powers.iter().zip(seen);
        empty
            .filter(|(power, b)| **power / sum == 0.0 && b.is_finite())
            .count()
    };
    (0..bias.len()).map(query).sum()
}

/// The bias of every head by distance.
fn rows(pe: &EncodingConfig, shape: &ModelShape, length: usize) -> Vec<Vec<f32>> {
    let device = Device::default();
    let encoding = pe.init(shape, &Init::zeros(&device)).unwrap();
    let positions = Positions::contiguous(length);
    let prepared = encoding
        .prepare(&positions, &Context::new(&device))
        .unwrap();
    let bias = prepared
        .logits_bias(0)
        .unwrap()
        .by_distance(length)
        .unwrap();
    let bias: Vec<f32> = bias.into_data().try_to_vec().unwrap();
    bias.chunks(length).map(<[f32]>::to_vec).collect()
}

#[test]
fn pairs_without_weight_are_those_of_a_softmax() {
    let formula = |bias: &str| json!({"kind": "formula", "bias": bias});
    for (pe, n_heads, length) in [
        (json!({"kind": "alibi"}), 8, 700),
        (json!({"kind": "alibi", "slope_scale": 512.0}), 1, 300),
        // Far keys over near ones, a hill between them, waves.
        (formula("d / 2"), 2, 400),
        (formula("-abs(d - 200)"), 2, 400),
        (formula("90 * sin(d / 9)"), 2, 400),
    ] {
        let (pe, shape) = (config(pe), shape(n_heads));
        let rows = rows(&pe, &shape, length);
        let hidden: usize = rows.iter().map(|row| without_weight(row, EXACT)).sum();
        let share = hidden as f64 / (rows.len() * length * (length + 1) / 2) as f64;
        let found = blind(&pe, &shape, length).unwrap();
        assert!(
            found.share > 0.05 && (found.share - share).abs() < 1e-12,
            "{found} {share}"
        );
    }
}

#[test]
fn alibi_with_four_heads_loses_two_fifths_of_all_pairs_at_8192() {
    let alibi = config(json!({"kind": "alibi"}));
    let found = blind(&alibi, &shape(4), 8192).unwrap();
    // e^x is 0 below ln(2^-150) = -104, and after the division by a row's sum of 4.5 below -102.4;
    // the slope is 1/4.
    assert_eq!((found.head, found.heads, found.beyond), (0, 4, 409));
    assert_eq!(found.seq_len, 8192);
    for (heads, length, share) in [(4, 8192, 0.399), (4, 1024, 0.091), (12, 2048, 0.346)] {
        let found = blind(&alibi, &shape(heads), length).unwrap();
        assert!((found.share - share).abs() < 0.002, "{found}");
    }
}

#[test]
fn biases_that_leave_weight_or_are_masks_say_nothing() {
    for pe in [
        json!({"kind": "alibi", "log_distance": true}),
        json!({"kind": "sandwich"}),
        json!({"kind": "window", "size": 64}),
        json!({"kind": "t5"}),
        json!({"kind": "rope"}),
    ] {
        assert_eq!(blind(&config(pe.clone()), &shape(4), 2048), None, "{pe}");
    }
    assert_eq!(
        blind(&config(json!({"kind": "alibi"})), &shape(4), 256),
        None
    );
}

#[test]
fn check_says_where_a_bias_goes_blind() {
    let scratch = Scratch::with(TINY);
    let arguments = |length: &str, heads: &str| {
        let lengths = format!("eval.test_lens=[4,{length}]");
        let heads = format!("model.n_heads={heads}");
        let more = [
            "axes.\"model.pe\"=[{kind=\"alibi\"},{kind=\"rope\"}]",
            "eval.variants=[]",
        ];
        let output = scratch.longreach("check", &[&more[..], &[&lengths, &heads]].concat());
        exits(&output, 0);
        stdout(&output) + &stderr(&output)
    };
    let said = arguments("4000", "4");
    let part = "`alibi`: head 0 (of 0 to 3) gives exactly 0 to pairs more than ";
    assert_eq!(said.matches(part).count(), 1, "{said}");
    lacks(&arguments("100", "4"), "exactly 0");
}

#[test]
fn check_says_what_tests_read_and_training_does_not_reach() {
    let scratch = Scratch::with(TINY);
    let said = |pe: &str, positions: &str| {
        let axis = format!("axes.\"model.pe\"=[{pe}]");
        let positions = format!("model.positions={{kind=\"{positions}\"}}");
        let more = [&axis, &positions, "eval.variants=[]", "seeds=[0,1]"];
        let output = scratch.longreach("check", &more);
        exits(&output, 0);
        stdout(&output) + &stderr(&output)
    };
    // Rows of copying have 2n + 2 tokens: 10 in training and 18 in tests.
    let t5 = "{kind=\"t5\",num_buckets=4}";
    let cope = "{kind=\"stack\",parts=[{kind=\"cope\"}]}";
    let both = said(&format!("{t5},{cope}"), "contiguous");
    let notes = [
        "`t5`: training never reads its buckets for distances of 10 tokens and more, and tests do: \
         `max_distance = 5`, half the training length, trains all",
        "`cope`: tests of 18 tokens count further in its table of 10 than training on 10 does: \
         `max_position = 5`, half the training length, trains all",
    ];
    for note in notes {
        assert_eq!(both.matches(note).count(), 1, "{both}");
    }
    let half = t5.replace('}', ",max_distance=5}");
    lacks(&said(&half, "contiguous"), "never reads");
    let half = cope.replace("cope\"", "cope\",max_position=5");
    lacks(&said(&half, "contiguous"), "count further");
    // Drawn with gaps, positions train on larger distances.
    lacks(&said(t5, "randomized"), "never reads");
}

/// What a model with these encodings records of its heads over two batches.
fn profile(pe: &Value, rows: usize, length: usize, random: bool) -> BTreeMap<String, f64> {
    filled(pe, &vec![length; rows], length, random)
}

/// As [`profile`], of rows of these lengths that are filled up to one.
fn filled(pe: &Value, lengths: &[usize], length: usize, random: bool) -> BTreeMap<String, f64> {
    let (pe, device) = (config(pe.clone()), Device::default());
    let model = TransformerConfig::new(16).with_d_model(32).with_layers(2);
    let weights = |path: &str, shape: &[usize], distribution| {
        let count = shape.iter().product();
        let mut stream = Stream::new(0, path, 0);
        match distribution {
            Distribution::Constant(value) => vec![value; count],
            _ if random => (0..count).map(|_| 0.5 * stream.normal()).collect(),
            _ => vec![0.0; count],
        }
    };
    let init = Init::new(&device, &weights);
    let encoding = || pe.init(&model.shape(), &init.scope("encoding")).unwrap();
    let mut profile = Profile::new(Transformer::new(&model, &pe, &init).unwrap(), encoding());
    for batch in 0..2 {
        let mut stream = Stream::new(1, "tokens", batch);
        let rows = lengths.len();
        let tokens: Vec<i64> = (0..rows * length)
            .map(|_| stream.below(16) as i64)
            .collect();
        let tokens = TensorData::new(tokens, [rows, length]);
        let tokens = Tensor::<2, Int>::from_data(tokens, &device);
        profile.add(tokens, lengths.to_vec(), &Positions::contiguous(length));
    }
    let metrics = profile.metrics().into_iter();
    metrics.map(|(name, metric)| (name, metric.value)).collect()
}

#[test]
fn the_blind_share_of_a_model_is_that_of_its_softmax() {
    // Logits are all alike under weights of 0, and 1500 tokens go in more than one block.
    let (pe, length) = (json!({"kind": "alibi"}), 1500);
    let metrics = profile(&pe, 1, length, false);
    let shape = ModelShape {
        d_model: 32,
        ..shape(4)
    };
    for (head, row) in rows(&config(pe), &shape, length).iter().enumerate() {
        // Devices differ in whether they have numbers below 2^-126.
        let shares = [EXACT, NORMAL]
            .map(|floor| without_weight(row, floor) as f64 / (length * (length + 1) / 2) as f64);
        for layer in [1, 2] {
            let found = metrics[&format!("blind_{layer}_{}", head + 1)];
            let is_one = shares.iter().any(|share| (found - share).abs() < 1e-4);
            assert!(is_one, "{layer} {head}: {found} {shares:?}");
            assert!(if head == 0 {
                found > 0.3
            } else {
                head == 1 || found == 0.0
            });
        }
    }
    let masked = profile(&json!({"kind": "window", "size": 3}), 2, 40, true);
    let (pairs, seen) = (40 * 41 / 2, 3 * 40 - 3);
    let share = f64::from(pairs - seen) / f64::from(pairs);
    assert!((masked["blind_2_1"] - share).abs() < 1e-12, "{masked:?}");
    assert_eq!(
        profile(&json!({"kind": "nope"}), 2, 40, true)["blind_1_1"],
        0.0
    );
}

#[test]
fn padding_after_a_row_is_left_out_of_every_number() {
    for pe in [
        json!({"kind": "rope"}),
        json!({"kind": "window", "size": 3}),
    ] {
        let of = |lengths: &[usize], length| filled(&pe, lengths, length, true);
        let (short, alone) = (of(&[5], 40), of(&[5], 5));
        assert!(short.keys().eq(alone.keys()) && short.len() >= 16, "{pe}");
        for (name, value) in &short {
            let apart = (value - alone[name]).abs();
            assert!(apart < 1e-5, "{pe} {name}: {value} {}", alone[name]);
        }
        // The lengths of a batch are those of its rows, in order.
        let (first, both) = (of(&[40], 40), of(&[5, 5], 40));
        for (name, found) in of(&[40, 5], 40) {
            if name.starts_with("attention_distance") {
                let second = 10.0 * both[&name] - 5.0 * short[&name];
                let expected = (40.0 * first[&name] + second) / 45.0;
                assert!(
                    (found - expected).abs() < 1e-4,
                    "{pe} {name}: {found} {expected}"
                );
            }
        }
    }
}

#[test]
fn rope_scores_are_those_of_the_authors_program() {
    let file: Value = serde_json::from_str(include_str!("../golden/rope_scores.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    for case in cases {
        let (inputs, expected) = (&case["inputs"], &case["expected"]);
        let read = |value: &Value| -> Vec<Vec<Vec<f64>>> {
            serde_json::from_value(value.clone()).unwrap()
        };
        let (q, k) = (read(&inputs["q"]), read(&inputs["k"]));
        let turns = Turns {
            inv_freq: serde_json::from_value(inputs["inv_freq"].clone()).unwrap(),
            factor: inputs["factor"].as_f64().unwrap(),
            interleaved: inputs["interleaved"].as_bool().unwrap(),
        };
        let window = inputs["window"].as_u64().unwrap() as usize;
        let sample = Sample {
            window,
            queries: (0..q[0].len()).collect(),
            keys: (0..k[0].len()).collect(),
            triplets: serde_json::from_value(inputs["triplets"].clone()).unwrap(),
            distances: (0..window - 1).collect(),
        };
        let scorer = Scorer::new(&turns, &sample);
        for (head, (q, k)) in q.iter().zip(&k).enumerate() {
            let scores = scorer.scores(q, k);
            let pairs = [
                (scores.semantic, &expected["semantic"][head]),
                (scores.positional, &expected["positional"][head]),
            ];
            for (found, expected) in pairs {
                let expected = expected.as_f64();
                assert_eq!(found.is_some(), expected.is_some(), "{}", case["name"]);
                let apart = found.unwrap_or(0.0) - expected.unwrap_or(0.0);
                assert!(
                    apart.abs() < 1e-12,
                    "{}: {found:?} {expected:?}",
                    case["name"]
                );
            }
        }
    }
}

#[test]
fn samples_are_of_keys_before_their_queries() {
    for window in [3, 4, 33, 5000] {
        let mut stream = Stream::new(0, "samples", window as u64);
        let sample = Sample::draw(window, &mut stream).unwrap();
        let first = *sample.queries.iter().min().unwrap();
        assert!(sample.queries.iter().all(|query| *query < window));
        assert!(sample.keys.len() >= 2 && sample.keys.iter().all(|key| *key < first));
        let compared = sample.queries.len() * (sample.keys.len() / 2);
        assert_eq!(sample.triplets.len(), compared);
        assert_eq!(sample.distances.len(), (window - 1).min(256));
        assert!(sample.distances.iter().all(|d| *d < window - 1));
    }
    assert!(Sample::draw(2, &mut Stream::new(0, "samples", 2)).is_none());
}

#[test]
fn rotary_heads_alone_have_scores() {
    let names = |pe: Value| {
        let metrics = profile(&pe, 2, 24, true);
        let scores = metrics.keys().filter(|name| name.contains("_score_"));
        scores.cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(json!({"kind": "rope"})).len(), 2 * 2 * 4);
    for pe in [
        json!({"kind": "nope"}),
        json!({"kind": "alibi"}),
        // Logits that are more than products of rotated queries and keys.
        json!({"kind": "xpos"}),
        json!({"kind": "rerope", "window": 4}),
        json!({"kind": "stack", "parts": [{"kind": "rope"}, {"kind": "alibi"}]}),
        json!({"kind": "stack", "parts": [{"kind": "rope"}, {"kind": "fox"}]}),
        json!({"kind": "stack", "parts": [{"kind": "rope"}, {"kind": "cable"}]}),
    ] {
        assert_eq!(names(pe.clone()), Vec::<String>::new(), "{pe}");
    }
}

#[test]
fn pairs_that_stand_still_keep_every_order_and_tell_no_position() {
    let of = |scaling: Value| {
        let pe = json!({"kind": "rope", "base": 100.0, "scaling": scaling});
        profile(&pe, 20, 48, true)
    };
    let still = of(json!({"kind": "hope", "original_max_position_embeddings": 2}));
    let turning = of(json!({"kind": "linear", "factor": 1.0}));
    let slower = of(json!({"kind": "linear", "factor": 4.0}));
    for head in ["1_1", "1_2", "2_3", "2_4"] {
        let [semantic, positional] =
            ["semantic", "positional"].map(|of| format!("{of}_score_{head}"));
        assert_eq!((still[&semantic], still[&positional]), (1.0, 0.0), "{head}");
        assert!(
            turning[&semantic] < 1.0 && turning[&semantic] > 0.4,
            "{head}"
        );
        assert!(slower[&positional] < turning[&positional], "{head}");
    }
}
