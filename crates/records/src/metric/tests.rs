//! Tests of the registry.

use super::*;

#[test]
fn derived_metrics() {
    assert!((perplexity(0.0) - 1.0).abs() < 1e-15);
    assert!((bits_per_byte(std::f64::consts::LN_2, 1.0) - 1.0).abs() < 1e-15);
    assert!((bits_per_byte(std::f64::consts::LN_2, 4.0) - 0.25).abs() < 1e-15);
}

#[test]
fn kept_in_both_directions() {
    assert!(is_kept("exact_match", 0.9, 1.0) && !is_kept("exact_match", 0.89, 1.0));
    assert!(is_kept(PERPLEXITY, 4.4, 4.0) && !is_kept(PERPLEXITY, 4.5, 4.0));
    assert_eq!(extrapolation_ratio(1.0, 0.0), None);
    assert_eq!(extrapolation_ratio(1.0, 2.0), Some(0.5));
    assert_eq!(kept_share(EXACT_MATCH, 0.5, 1.0), Some(0.5));
    assert_eq!(kept_share(PERPLEXITY, 8.0, 4.0), Some(0.5));
    assert_eq!(kept_share(EXACT_MATCH, 0.5, 0.0), None);
}

#[test]
fn shares_by_name() {
    for name in ["exact_match", "token_accuracy", "exact_match_depth_0_20"] {
        assert!(is_share(name), "{name}");
    }
    for name in [
        "loss_nats",
        PERPLEXITY,
        RATIO,
        KEPT_AREA,
        "attention_distance_1_1",
        "exact_matches",
    ] {
        assert!(!is_share(name), "{name}");
    }
}

#[test]
fn scales_by_name() {
    assert_eq!(
        (scale(PERPLEXITY), of_difference(PERPLEXITY)),
        (Scale::Log, CHANGE)
    );
    for name in [
        LOSS_NATS,
        BITS_PER_BYTE,
        EXACT_MATCH,
        RATIO,
        CHANGE,
        "perplexities",
    ] {
        assert_eq!((scale(name), of_difference(name)), (Scale::Linear, name));
    }
}

#[test]
fn directions_by_name() {
    for name in [LOSS_NATS, LAST_LOSS_NATS, PERPLEXITY, BITS_PER_BYTE] {
        assert!(lower_is_better(name), "{name}");
    }
    for name in [
        EXACT_MATCH,
        "exact_match_depth_0_20",
        "error_free",
        "glossary",
    ] {
        assert!(!lower_is_better(name), "{name}");
    }
    assert_eq!(find("loss_natsx"), None);
}

#[test]
fn names_are_unique_and_definitions_are_sentences() {
    let names: BTreeSet<&str> = METRICS.iter().map(|def| def.name).collect();
    assert_eq!(names.len(), METRICS.len());
    let is_sentence =
        |def: &MetricDef| !def.definition.is_empty() && !def.definition.ends_with('.');
    assert!(METRICS.iter().all(is_sentence));
}

#[test]
fn heads_by_name() {
    assert_eq!(head("attention_distance_1_10"), Some((1, 10)));
    assert_eq!(head("semantic_score_2_3"), Some((2, 3)));
    assert_eq!(head_of(BLIND, "blind_2_3"), Some((2, 3)));
    assert_eq!(head_of(BLIND, "semantic_score_2_3"), None);
    for name in [
        "attention_distance",
        "attention_distance_1",
        "attention_distance_a_1",
        "exact_match",
        "attention_distance_1_2_3",
    ] {
        assert_eq!(head(name), None, "{name}");
    }
}

#[test]
fn what_heads_record_is_averaged_over_them() {
    let metrics = [
        ("attention_distance_1_1", 2.0, 8),
        ("attention_distance_2_1", 6.0, 4),
        ("blind_1_1", 0.5, 8),
        (LOSS_NATS, 1.0, 8),
    ];
    let row = EvalRow {
        metrics: metrics
            .map(|(name, value, n)| (name.to_owned(), Metric { value, n }))
            .into(),
        ..EvalRow::default()
    };
    let value = |name: &str| value(&TaskFacts::default(), &row, name);
    assert_eq!(value(ATTENTION_DISTANCE), Some((4.0, 4)));
    assert_eq!(value(BLIND), Some((0.5, 8)));
    assert_eq!(value(SEMANTIC_SCORE), None);
}

#[test]
fn depths_by_name() {
    assert_eq!(depth("exact_match_depth_20_40"), Some((20, 40)));
    for name in [
        "exact_match",
        "exact_match_depth_20",
        "token_accuracy_depth_20_40",
        "exact_match_depth_a_b",
    ] {
        assert_eq!(depth(name), None, "{name}");
    }
}
