//! Positions and the rules they are drawn by.

use crate::common::{
    LENGTHS, SHAPE, all_configs, below, build_stirred, cells, config, largest_difference, lines,
    logits,
};
use posenc::{
    Axis, EncodingConfig, Facts, Lengths, PositionalEncoding, Positions, PositionsConfig,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::panic::catch_unwind;

fn sampler(value: Value) -> PositionsConfig {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[test]
fn positions_hold_what_they_are_given() {
    let contiguous = Positions::contiguous(4);
    assert_eq!(
        (contiguous.queries(), contiguous.keys()),
        (&[0.0, 1.0, 2.0, 3.0][..], &[0.0, 1.0, 2.0, 3.0][..])
    );
    assert_eq!((contiguous.length(), contiguous.rows()), (4.0, 4));
    assert_eq!(Positions::from_offset(3, 2).queries(), [3.0, 4.0]);
    let decode = Positions::new(vec![7.0], (0..8).map(f64::from).collect());
    assert_eq!(
        (decode.queries().len(), decode.keys().len(), decode.length()),
        (1, 8, 8.0)
    );
    assert_eq!(decode, Positions::contiguous(8).last(1));
    assert_eq!(
        Positions::new(vec![0.0], vec![2.5]).rows(),
        4,
        "a position between two rows needs both"
    );
    for (queries, keys) in [
        (vec![1.0], vec![]),
        (vec![-1.0], vec![0.0]),
        (vec![0.0], vec![f64::NAN]),
        (vec![f64::INFINITY], vec![0.0]),
    ] {
        assert!(catch_unwind(|| Positions::new(queries, keys)).is_err());
    }
}

#[test]
fn the_last_queries_keep_all_keys_with_their_coordinates_and_distances() {
    let axis = |from: usize| {
        let all: Vec<f64> = (from..from + 5).map(|p| p as f64).collect();
        Axis {
            queries: all.clone(),
            keys: all,
        }
    };
    let whole = Positions::from_offset(2, 5)
        .with_axes(vec![axis(10), axis(20)])
        .with_distances((0..7).map(|d| f64::from(d * d)).collect());
    let last = whole.last(2);
    assert_eq!(
        (last.queries(), last.keys()),
        (&[5.0, 6.0][..], whole.keys())
    );
    assert_eq!(last.axis(1), (&[23.0, 24.0][..], whole.axis(1).1));
    assert_eq!(
        (
            last.num_axes(),
            last.distance(6.0, 3.0),
            last.distance(3.0, 6.0)
        ),
        (2, 9.0, -9.0)
    );
    assert_eq!(whole.last(5), whole);
    assert!(catch_unwind(|| whole.last(6)).is_err());
}

#[test]
fn a_sequence_without_axes_stands_at_its_position_on_each() {
    let plain = Positions::from_offset(7, 3);
    assert_eq!(
        (plain.axis(0), plain.axis(2), plain.num_axes()),
        (
            (plain.queries(), plain.keys()),
            (plain.queries(), plain.keys()),
            0
        )
    );
    let one = |length: usize| Axis {
        queries: vec![0.0; length],
        keys: vec![-1.0; length],
    };
    let with = Positions::from_offset(7, 3).with_axes(vec![one(3)]);
    assert_eq!(with.axis(0), (&[0.0; 3][..], &[-1.0; 3][..]));
    assert_eq!(
        with.queries(),
        plain.queries(),
        "the position in the sequence stays"
    );
    assert!(
        catch_unwind(|| with.axis(1)).is_err(),
        "an axis that is missing is not made up"
    );
    assert!(catch_unwind(|| Positions::contiguous(3).with_axes(vec![one(2)])).is_err());
    assert!(
        catch_unwind(|| Positions::contiguous(1).with_axes(vec![Axis {
            queries: vec![f64::NAN],
            keys: vec![0.0]
        }]))
        .is_err()
    );
}

#[test]
fn every_distance_needs_a_replacement() {
    let replaced = Positions::from_offset(100, 4).with_distances(vec![0.0, 5.0, 6.0, 9.0]);
    assert!(replaced.replaces_distances() && !Positions::contiguous(4).replaces_distances());
    assert_eq!(
        (
            replaced.distance(103.0, 100.0),
            replaced.distance(100.0, 101.0),
            replaced.distance(101.0, 101.0)
        ),
        (9.0, -5.0, 0.0)
    );
    assert!(
        catch_unwind(|| Positions::contiguous(5).with_distances(vec![0.0, 1.0, 2.0, 3.0])).is_err()
    );
}

// Rules

#[test]
fn rules_survive_json_and_refuse_what_they_do_not_know() {
    for kind in PositionsConfig::KINDS {
        let Some(rule) = PositionsConfig::default_of(kind) else {
            assert_eq!(*kind, "grid", "only a grid has sizes to give");
            continue;
        };
        let text = serde_json::to_string(&rule).expect("plain data");
        assert_eq!(
            serde_json::from_str::<PositionsConfig>(&text).expect("what was written"),
            rule
        );
        let refused = serde_json::from_value::<PositionsConfig>(json!({"kind": kind, "lenght": 1}));
        assert!(
            refused
                .expect_err("a typo")
                .to_string()
                .contains("unknown field `lenght`"),
            "{kind}"
        );
    }
    assert_eq!(
        PositionsConfig::default(),
        sampler(json!({"kind": "contiguous"}))
    );
    let error = serde_json::from_value::<PositionsConfig>(json!({"kind": "random"}))
        .expect_err("unknown")
        .to_string();
    let kinds = "`contiguous`, `random_offset`, `randomized`, `randomized_distances`, \
                 `interpolated`, `grid`";
    assert!(
        error.contains(&format!(
            "unknown variant `random`, expected one of {kinds}"
        )),
        "{error}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of samplers and lengths")]
fn room_is_four_training_lengths_or_the_longest_sequence() {
    let lengths = Lengths {
        train_len: 64,
        trained_len: 64,
        test_len: 128,
    };
    for (kind, key) in [
        ("random_offset", "max_position"),
        ("randomized", "max_position"),
        ("randomized_distances", "max_distance"),
    ] {
        for (given, longest, room) in [
            (Value::Null, 200, 256),
            (Value::Null, 1000, 1000),
            (json!(70), 1000, 70),
        ] {
            let mut rule = sampler(json!({"kind": kind, key: given}));
            rule.resolve(&lengths, longest);
            assert_eq!(rule.max_seq_len(), Some(room), "{kind}");
            let once = rule.clone();
            rule.resolve(
                &Lengths {
                    train_len: 1,
                    trained_len: 1,
                    test_len: 9,
                },
                9,
            );
            assert_eq!(rule, once, "resolving twice changes nothing");
            assert_eq!(
                rule.rows(50),
                if kind == "randomized_distances" {
                    50
                } else {
                    room
                },
                "{kind}"
            );
        }
    }
    for (value, rows) in [
        (json!({"kind": "contiguous"}), 50),
        (json!({"kind": "grid", "sizes": [8]}), 50),
        (json!({"kind": "interpolated", "factor": 1.0}), 50),
        (json!({"kind": "interpolated", "factor": 7.0}), 8),
        (json!({"kind": "interpolated", "factor": 4.0}), 14),
    ] {
        let rule = sampler(value.clone());
        assert_eq!((rule.max_seq_len(), rule.rows(50)), (None, rows), "{value}");
        assert_eq!(rule.sample(50, &mut below(1)).rows(), rows, "{value}");
    }
    let mut auto = sampler(json!({"kind": "interpolated"}));
    auto.resolve(
        &Lengths {
            train_len: 64,
            trained_len: 64,
            test_len: 256,
        },
        256,
    );
    assert_eq!(
        auto,
        sampler(json!({"kind": "interpolated", "factor": 4.0}))
    );
    let mut training = sampler(json!({"kind": "interpolated"}));
    training.resolve(
        &Lengths {
            train_len: 64,
            trained_len: 64,
            test_len: 64,
        },
        256,
    );
    assert_eq!(
        training.sample(5, &mut below(1)),
        Positions::contiguous(5),
        "nothing is squeezed in training"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn drawn_positions_rise_and_stay_in_their_room(seed: u64, length in 1usize..60, spare in 0usize..100) {
        let room = length + spare;
        let draw = |value: Value| sampler(value).sample(length, &mut below(seed));
        let rises = |x: &[f64]| x.windows(2).all(|pair| pair[1] > pair[0]) && x.iter().all(|p| p.fract() == 0.0);
        let inside = |x: &[f64]| x.iter().all(|p| *p >= 0.0 && *p < room as f64);

        let offset = draw(json!({"kind": "random_offset", "max_position": room}));
        prop_assert!(inside(offset.queries()) && offset.queries().windows(2).all(|pair| pair[1] == pair[0] + 1.0));
        let randomized = draw(json!({"kind": "randomized", "max_position": room}));
        prop_assert!(inside(randomized.queries()) && rises(randomized.queries()));
        for positions in [&offset, &randomized] {
            prop_assert_eq!(positions.queries().len(), length);
            prop_assert_eq!(positions.queries(), positions.keys());
            prop_assert!(!positions.replaces_distances() && positions.num_axes() == 0);
        }
        let distances = draw(json!({"kind": "randomized_distances", "max_distance": room}));
        let contiguous = Positions::contiguous(length);
        prop_assert_eq!(distances.queries(), contiguous.queries());
        let drawn: Vec<f64> = (0..length).map(|d| distances.distance(d as f64, 0.0)).collect();
        prop_assert!(drawn[0] == 0.0 && inside(&drawn) && rises(&drawn));
        prop_assert_eq!(&draw(json!({"kind": "randomized", "max_position": room})), &randomized, "the same numbers, the same draw");
    }
}

#[test]
fn a_full_room_leaves_nothing_to_chance() {
    for length in [1, 2, 17] {
        let draw = |kind: &str, key: &str| {
            sampler(json!({"kind": kind, key: length})).sample(length, &mut below(3))
        };
        assert_eq!(
            draw("random_offset", "max_position"),
            Positions::contiguous(length)
        );
        assert_eq!(
            draw("randomized", "max_position"),
            Positions::contiguous(length)
        );
        let distances = draw("randomized_distances", "max_distance");
        assert!((0..length).all(|d| distances.distance(d as f64, 0.0) == d as f64));
        for (kind, key) in [
            ("random_offset", "max_position"),
            ("randomized", "max_position"),
            ("randomized_distances", "max_distance"),
        ] {
            let rule = sampler(json!({"kind": kind, key: length}));
            assert!(
                catch_unwind(|| rule.sample(length + 1, &mut below(3))).is_err(),
                "{kind}: one more does not fit"
            );
        }
    }
}

/// Means over draws of what `read` makes of each; `count` numbers.
fn means(
    rule: &PositionsConfig,
    length: usize,
    draws: u64,
    count: usize,
    read: impl Fn(&Positions) -> Vec<f64>,
) -> Vec<f64> {
    let mut sums = vec![0.0; count];
    for seed in 0..draws {
        let positions = rule.sample(length, &mut below(seed.wrapping_mul(0x9e37_79b9)));
        sums.iter_mut()
            .zip(read(&positions))
            .for_each(|(sum, value)| *sum += value);
    }
    sums.iter().map(|sum| sum / draws as f64).collect()
}

#[test]
fn order_statistics_are_those_of_a_uniform_sample_without_replacement() {
    let (n, room, draws) = (10, 200, 4000);
    // Mean of the k-th of n out of 0..L: k (L + 1)/(n + 1) - 1; the deviation of a mean is under L
    // / 4 sqrt(draws).
    let expected = |k: usize, room: f64, n: f64| k as f64 * (room + 1.0) / (n + 1.0) - 1.0;
    let allowed = 4.0 * room as f64 / (4.0 * (draws as f64).sqrt());
    let randomized = sampler(json!({"kind": "randomized", "max_position": room}));
    for (k, mean) in means(&randomized, n, draws, n, |positions| {
        positions.queries().to_vec()
    })
    .into_iter()
    .enumerate()
    {
        let expected = expected(k + 1, room as f64, n as f64);
        assert!(
            (mean - expected).abs() < allowed,
            "position {k}: {mean} for {expected}"
        );
    }
    // Distances 1.. are a sample of 1..L, so that the k-th has the mean of n - 1 out of L - 1, one
    // higher.
    let distances = sampler(json!({"kind": "randomized_distances", "max_distance": room}));
    let read = |positions: &Positions| (0..n).map(|d| positions.distance(d as f64, 0.0)).collect();
    for (k, mean) in means(&distances, n, draws, n, read)
        .into_iter()
        .enumerate()
        .skip(1)
    {
        let expected = expected(k, room as f64 - 1.0, n as f64 - 1.0) + 1.0;
        assert!(
            (mean - expected).abs() < allowed,
            "distance {k}: {mean} for {expected}"
        );
    }
    // Every position is as likely as any other.
    let hits = |positions: &Positions| {
        let mut hits = vec![0.0; 20];
        positions
            .queries()
            .iter()
            .for_each(|p| hits[*p as usize] += 1.0);
        hits
    };
    let small = sampler(json!({"kind": "randomized", "max_position": 20}));
    assert!(
        means(&small, 5, 4000, 20, hits)
            .iter()
            .all(|share| (share - 0.25).abs() < 0.04)
    );
}

#[test]
fn offsets_are_uniform_over_what_leaves_room() {
    let rule = sampler(json!({"kind": "random_offset", "max_position": 24}));
    let first = |positions: &Positions| {
        let mut hits = vec![0.0; 24];
        hits[positions.queries()[0] as usize] = 1.0;
        hits
    };
    let shares = means(&rule, 15, 4000, 24, first);
    assert!(
        shares[..10].iter().all(|share| (share - 0.1).abs() < 0.025),
        "{shares:?}"
    );
    assert!(
        shares[10..].iter().all(|share| *share == 0.0),
        "an offset of 10 leaves no room for the last"
    );
}

#[test]
fn pose_jumps_once_in_training_and_never_in_tests() {
    let rule = sampler(json!({"kind": "pose", "max_position": 40}));
    let (mut starts, mut largest) = (BTreeSet::new(), 0.0f64);
    for seed in 0..400 {
        let drawn = rule.sample(11, &mut below(seed));
        let at = drawn.queries();
        assert!(at[0] == 0.0 && at[10] < 40.0, "{at:?}");
        let jumps: Vec<usize> = (1..11).filter(|i| at[*i] != at[i - 1] + 1.0).collect();
        assert!(jumps.len() <= 1, "{at:?}");
        starts.extend(jumps);
        largest = largest.max(at[10]);
    }
    // The first chunk has from one token to half of them.
    assert_eq!(starts.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(largest > 35.0, "{largest}");
    assert_eq!(
        rule.sample_test(50, &mut below(1)),
        Positions::contiguous(50)
    );
    assert_eq!((rule.max_seq_len(), rule.max_train_len()), (None, Some(40)));
    assert_eq!((rule.rows(11), rule.test_rows(11)), (40, 11));
    assert_eq!(rule.sample(1, &mut below(3)).queries().len(), 1);
}

#[test]
fn a_grid_is_walked_row_by_row() {
    let columns = |positions: &Positions, axis: usize| positions.axis(axis).0.to_vec();
    let flat = sampler(json!({"kind": "grid", "sizes": [3]})).sample(8, &mut below(0));
    assert_eq!(flat.num_axes(), 2);
    assert_eq!(columns(&flat, 0), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0]);
    assert_eq!(columns(&flat, 1), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0]);
    assert_eq!(
        flat.queries(),
        Positions::contiguous(8).queries(),
        "the position in the sequence stays"
    );
    assert_eq!(flat.axis(0).0, flat.axis(0).1);
    let deep = sampler(json!({"kind": "grid", "sizes": [2, 3]})).sample(14, &mut below(0));
    assert_eq!(deep.num_axes(), 3);
    for p in 0..14 {
        let cell = [p / 6, p / 3 % 2, p % 3].map(|c| c as f64);
        assert_eq!(
            [0, 1, 2].map(|axis| deep.axis(axis).0[p]),
            cell,
            "token {p}"
        );
    }
}

#[test]
fn squeezed_positions_are_linear_scaling_for_rope() {
    let squeezed = sampler(json!({"kind": "interpolated", "factor": 4.0})).sample(9, &mut below(0));
    assert_eq!(squeezed.queries()[..3], [0.0, 0.25, 0.5]);
    let scaled = config(json!({"kind": "rope", "scaling": {"kind": "linear", "factor": 4.0}}));
    let difference = largest_difference(
        &logits(&config(json!({"kind": "rope"})), &squeezed),
        &logits(&scaled, &Positions::contiguous(9)),
    );
    assert!(difference < 1e-6, "{difference}");
}

#[test]
fn every_encoding_takes_every_draw_that_its_check_lets_pass() {
    for (name, config) in all_configs() {
        let facts = config.facts(&SHAPE);
        let room = facts.max_position_without_axes().unwrap_or(300).min(300);
        for value in [
            json!({"kind": "contiguous"}),
            json!({"kind": "random_offset", "max_position": room}),
            json!({"kind": "randomized", "max_position": room}),
            json!({"kind": "randomized_distances", "max_distance": room}),
            json!({"kind": "interpolated", "factor": 3.0}),
            json!({"kind": "grid", "sizes": [3, 2]}),
            json!({"kind": "pose", "max_position": room}),
        ] {
            let rule = sampler(value.clone());
            if rule.check(&facts).is_err() {
                assert_eq!(
                    (value["kind"].as_str(), facts.by_distance),
                    (Some("randomized_distances"), false),
                    "{name}"
                );
                continue;
            }
            let positions = rule.sample(20, &mut below(5));
            assert!(rule.rows(20) <= room.max(20));
            // Encodings of two axes ignore the third.
            let logits = logits(&config, &positions);
            assert!(
                logits.iter().all(|logit| !logit.is_nan()),
                "{name} at {value}"
            );
            assert!(
                build_stirred(&config, &SHAPE)
                    .max_position()
                    .is_none_or(|limit| rule.rows(20) <= limit)
            );
        }
    }
}

/// Rules of positions, and the key at fault.
const REFUSED: &str = r#"
{"kind": "random_offset", "max_position": 0} | max_position
{"kind": "randomized", "max_position": 0} | max_position
{"kind": "randomized", "max_position": 2000000000} | max_position
{"kind": "randomized_distances", "max_distance": 0} | max_distance
{"kind": "interpolated", "factor": 0.5} | factor
{"kind": "interpolated", "factor": 1e7} | factor
{"kind": "grid", "sizes": []} | sizes
{"kind": "grid", "sizes": [2, 2, 2]} | sizes
{"kind": "grid", "sizes": [0]} | sizes.0
{"kind": "grid", "sizes": [3, 0]} | sizes.1
{"kind": "grid", "sizes": [3, 10000000]} | sizes.1
"#;

#[test]
fn refusals_of_rules_name_their_key() {
    let alibi = config(json!({"kind": "alibi"})).facts(&SHAPE);
    for row in lines(REFUSED) {
        let [text, key] = cells(row);
        let rule = sampler(serde_json::from_str(text).expect(text));
        let error = rule.check(&alibi).expect_err(text);
        assert_eq!(error.key, key, "{text}: {error}");
    }
    let sampled = sampler(json!({"kind": "randomized_distances"}));
    let of = |kind: &str| {
        let mut config = EncodingConfig::default_of(kind)?;
        config.resolve(&LENGTHS);
        Some(config)
    };
    let error = sampled
        .check(&of("rope").expect("has defaults").facts(&SHAPE))
        .expect_err("angles are not distances");
    assert_eq!(
        (error.key.as_str(), error.value.as_str()),
        ("kind", "randomized_distances")
    );
    // The refusal names some of those that read distances, and read positions at all.
    let mut named = 0;
    for kind in EncodingConfig::KINDS {
        let Some(config) = of(kind) else { continue };
        let facts: Facts = config.facts(&SHAPE);
        let is_named = error.allowed.contains(&format!("`{kind}`"));
        named += usize::from(is_named);
        assert!(
            !is_named || facts.by_distance && !facts.ignores_positions,
            "{kind}"
        );
        assert_eq!(sampled.check(&facts).is_ok(), facts.by_distance, "{kind}");
    }
    assert!(named > 0, "{}", error.allowed);
}
