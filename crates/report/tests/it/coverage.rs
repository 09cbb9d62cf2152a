//! The intervals of shares hold the true share as often as they say, by simulation with few
//! replicates. `docs/evidence/coverage.md` has many.

#[path = "../../examples/coverage/simulation.rs"]
mod simulation;

use records::stats::{Estimate, OverText, Scale};
use simulation::{Crossed, Text, any_rejected, difference, geometric, mean, ratio, share, text};

const REPLICATES: usize = 500;
/// 95 % less three standard errors.
const LEAST: f64 = 0.95 - 3.0 * 0.009_747;

fn cells() -> Vec<Crossed> {
    let mut out = Vec::new();
    for seeds in [3, 5, 10] {
        for (correlation, hard_rows) in [(0.0, true), (0.3, false), (0.3, true)] {
            out.push(Crossed {
                seeds,
                rows: 200,
                correlation,
                hard_rows,
            });
        }
    }
    out
}

#[test]
fn intervals_of_shares_cover() {
    let interval = |values: &[f64], rows| Estimate::of_share(values, rows)?.interval;
    for (stream, crossed) in cells().iter().enumerate() {
        for truth in [0.01, 0.2, 0.5, 0.95, 0.99] {
            let got = share(crossed, truth, REPLICATES, stream as u64, interval);
            assert!(
                got.covered >= LEAST && got.width < 0.9,
                "{truth} {crossed:?}: {got:?}"
            );
        }
    }
}

/// The simulation can tell: Student's t, which reports used for shares, does not cover.
#[test]
fn student_t_does_not_cover_shares() {
    let interval = |values: &[f64], _| Estimate::of_mean(values)?.interval;
    let crossed = Crossed {
        seeds: 3,
        rows: 200,
        correlation: 0.3,
        hard_rows: true,
    };
    let got = share(&crossed, 0.99, REPLICATES, 0, interval);
    assert!(got.covered < 0.85, "{got:?}");
}

#[test]
fn intervals_of_differences_cover() {
    let interval =
        |pairs: &[(f64, f64)], rows| Estimate::of_share_difference(pairs, (rows, rows))?.interval;
    for (stream, crossed) in cells().iter().enumerate() {
        for truth in [(0.99, 0.95), (0.5, 0.5), (0.2, 0.05)] {
            let got = difference(crossed, truth, 0.7, REPLICATES, stream as u64, interval);
            assert!(got.covered >= LEAST, "{truth:?} {crossed:?}: {got:?}");
        }
    }
}

#[test]
fn intervals_of_ratios_of_shares_cover() {
    let interval =
        |pairs: &[(f64, f64)], rows| Estimate::of_share_ratio(pairs, (rows, rows))?.interval;
    for (stream, crossed) in cells().iter().enumerate() {
        for truth in [(0.99, 0.99), (0.9, 0.99), (0.5, 0.95), (0.05, 0.95)] {
            let got = ratio(crossed, truth, 0.7, REPLICATES, stream as u64, interval);
            assert!(got.covered >= LEAST, "{truth:?} {crossed:?}: {got:?}");
        }
    }
}

#[test]
fn intervals_of_means_cover() {
    for seeds in [3, 5, 10] {
        let got = mean(seeds, None, 10 * REPLICATES, 0, |values| {
            Estimate::of_mean(values)?.interval
        });
        assert!((got.covered - 0.95).abs() < 0.012, "{seeds}: {got:?}");
    }
}

#[test]
fn intervals_of_perplexities_cover() {
    for seeds in [3, 5, 10] {
        let interval = |values: &[f64]| Estimate::of(Scale::Log, values)?.interval;
        let got = geometric(seeds, 0.31, 10 * REPLICATES, 0, interval);
        assert!((got.covered - 0.95).abs() < 0.012, "{seeds}: {got:?}");
    }
}

/// With the text they cover; by the seeds alone they do not where most of the variance is the text's.
#[test]
fn intervals_of_differences_on_a_text_cover() {
    for (stream, seeds) in [3, 5, 10].into_iter().enumerate() {
        for share in [0.0, 0.5, 0.8] {
            let model = Text {
                seeds,
                blocks: 64,
                correlation: 0.3,
                share,
            };
            let both = |values: &[Vec<f64>]| over(values, true);
            let got = text(&model, REPLICATES, stream as u64, both);
            assert!(got.covered >= 0.91, "{model:?}: {got:?}");
            let alone = text(&model, REPLICATES, stream as u64, |values| {
                over(values, false)
            });
            assert!(share < 0.8 || alone.covered < 0.91, "{model:?}: {alone:?}");
        }
    }
}

fn over(values: &[Vec<f64>], with_text: bool) -> Option<(f64, f64)> {
    let (seeds, blocks) = (values.len() as f64, values[0].len());
    let means = values
        .iter()
        .map(|row| row.iter().sum::<f64>() / blocks as f64);
    let estimate = Estimate::of_mean(&means.collect::<Vec<_>>())?;
    let block = |at: usize| values.iter().map(|row| row[at]).sum::<f64>() / seeds;
    let by_block: Vec<f64> = (0..blocks).map(block).collect();
    if with_text {
        estimate.over(OverText::of(&by_block)?).interval
    } else {
        estimate.interval
    }
}

#[test]
fn true_claims_seldom_disagree() {
    let holm: fn(&[f64], usize) -> bool = |values, k| rejects(values, 0.05 / k as f64);
    let alone: fn(&[f64], usize) -> bool = |values, _| rejects(values, 0.05);
    for seeds in [3, 10] {
        assert!(any_rejected(12, seeds, 0.0, REPLICATES, 0, holm) < 0.05);
        assert!(any_rejected(12, seeds, 0.0, REPLICATES, 0, alone) > 0.15);
    }
}

fn rejects(values: &[f64], alpha: f64) -> bool {
    let interval = Estimate::of_mean(values).and_then(|e| e.interval_at(alpha));
    interval.is_some_and(|(low, _)| low > 0.0)
}
