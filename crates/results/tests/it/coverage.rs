//! The intervals of shares hold the true share as often as they say, by simulation with few
//! replicates. `docs/coverage.md` has many.

#[path = "../../examples/coverage/simulation.rs"]
mod simulation;

use longreach_results::stats::Estimate;
use simulation::{Crossed, difference, mean, share};

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
fn intervals_of_means_cover() {
    for seeds in [3, 5, 10] {
        let got = mean(seeds, None, 10 * REPLICATES, 0, |values| {
            Estimate::of_mean(values)?.interval
        });
        assert!((got.covered - 0.95).abs() < 0.012, "{seeds}: {got:?}");
    }
}
