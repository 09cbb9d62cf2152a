//! The verdict on one number and its bound.

use super::needed::Needed;
use super::verdict::Verdict;
use crate::analysis::point::{Absent, Point};

/// A verdict on a number and why.
pub(super) struct Judged {
    pub verdict: Verdict,
    pub why: String,
    /// Whether no number can decide.
    pub is_open: bool,
}

/// Whether an encoding has no value there. Of seeds that only one of two methods has, there is no
/// pair.
fn is_unsupported(point: &Point) -> bool {
    let mut told = point.absent.iter().filter(|a| **a != Absent::Missing);
    point.absent.contains(&Absent::Unsupported) && told.all(|a| *a == Absent::Unsupported)
}

/// What scores that are not numbers would make of a number, where that is known.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// A seed whose score is not finite.
    pub lost: Option<f64>,
    /// An encoding that has no value there; none where that decides nothing.
    pub unsupported: Option<f64>,
}

impl Limits {
    /// One limit for both.
    pub fn of(limit: Option<f64>) -> Self {
        Self {
            lost: limit,
            unsupported: limit,
        }
    }
}

/// `metric`: what the number is. `unconverged`: which methods have not learned their task, where
/// that is why there is no number.
pub(super) fn judged(
    point: &Point,
    needed: Needed,
    (metric, limits): (&str, Limits),
    unconverged: Option<String>,
) -> Judged {
    let given = point.values.len();
    let over = match point.estimate.and_then(|estimate| estimate.apart()) {
        Some(_) => ", over seeds and text",
        None => "",
    };
    let n = format!("n = {given}{over}");
    let decided = |verdict, why: String| Judged {
        verdict,
        why,
        is_open: false,
    };
    let open = |why: String| Judged {
        is_open: true,
        ..decided(Verdict::Undecided, why)
    };
    let Some(estimate) = point.estimate else {
        let agrees = limits.unsupported.is_some_and(|limit| needed.holds(limit));
        return if agrees && is_unsupported(point) {
            decided(Verdict::Agrees, "no value there".into())
        } else {
            unconverged.map_or_else(|| decided(Verdict::NotTested, "no number".into()), open)
        };
    };
    let mean = match needed.holds(estimate.mean) {
        true => "agrees",
        false => "does not",
    };
    match estimate
        .interval
        .map(|interval| (interval, needed.side(interval)))
    {
        None if given == 1 => {
            let why = format!("a single seed, which {mean}");
            decided(Verdict::Undecided, why)
        }
        None => {
            let why = format!("{n}, too wide an interval, the mean {mean}");
            decided(Verdict::Undecided, why)
        }
        Some((_, Some(side)))
            if point.absent.contains(&Absent::Undefined)
                || point.absent.iter().any(|absent| absent.is_lost())
                    && limits.lost.is_none_or(|limit| needed.holds(limit) != side) =>
        {
            open(format!(
                "{given} of {} seeds have a finite score",
                point.runs
            ))
        }
        Some((_, Some(true))) => decided(Verdict::Agrees, n),
        Some((interval, Some(false))) => {
            let small = needed.too_small(interval, metric);
            let small = small.map(|gain| format!(", any gain is below {gain}"));
            decided(Verdict::Disagrees, n + &small.unwrap_or_default())
        }
        Some((_, None)) => {
            let why = format!("{n}, the bound is in the interval, the mean {mean}");
            decided(Verdict::Undecided, why)
        }
    }
}
