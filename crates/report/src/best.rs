//! The sentence on the method with the best score at a length, and how sure that is.

use super::captions::{MOST_NAMED, several, words};
use records::analysis::learned::InLength;
use records::analysis::point::{Point, point_text};
use records::analysis::setting::{Method, Setting};
use records::metric::{self, better_first};
use records::stats::Estimate;

/// Which method is best at a length past training, and how sure that is. None is called best where
/// there is nothing to choose from, where all are at chance, and where the first ones print the
/// same mean.
pub(super) fn best(setting: &Setting<'_>, len: usize) -> String {
    let metric = setting.lead();
    // Nothing is said of methods that have not converged, so they are not rivals either.
    let methods = setting.methods.iter();
    let points: Vec<Point> = methods.map(|m| setting.score(m, metric, len)).collect();
    let at_len = at(setting, len);
    let numbered = points.iter().enumerate();
    let mut rows: Vec<(usize, Estimate)> = numbered
        .filter_map(|(i, p)| Some((i, p.estimate?)))
        .collect();
    rows.sort_by(|a, b| better_first(metric, a.1.mean, b.1.mean));
    let name = |at: usize| setting.methods[at].title.clone();
    let text = |at: usize| point_text(metric, &points[at]);
    let number = |value: f64| metric::number(value, metric::decimals(metric, value));
    match rows[..] {
        _ if setting.methods.len() < 2 || rows.is_empty() => return String::new(),
        [(only, _)] => {
            let why = why_alone(setting, only);
            return format!(". At {at_len} {} has {}; {why}", name(only), text(only));
        }
        _ => {}
    }
    let is_at_chance =
        |(at, e): &(usize, Estimate)| setting.is_at_chance(&setting.methods[*at], metric, e);
    if rows.iter().all(is_at_chance) {
        if metric::chance(setting.task, metric).is_none() {
            return format!(". At {at_len} every {} is {}", words(metric), number(0.0));
        }
        // Methods of several tasks have several levels.
        let chance = setting.chance(metric).map(|c| format!(" ({})", number(c)));
        return format!(
            ". At {at_len} no method is shown to have a better {} than chance{}",
            words(metric),
            chance.unwrap_or_default()
        );
    }
    let (first, estimate) = rows[0];
    let tied = rows
        .iter()
        .take_while(|(_, e)| number(e.mean) == number(estimate.mean));
    let tied: Vec<String> = tied.map(|(at, _)| name(*at)).collect();
    if tied.len() > 1 {
        return format!(
            ". At {at_len} the {} {}, {}, is that of {}",
            extreme(metric),
            words(metric),
            number(estimate.mean),
            several(&tied)
        );
    }
    let (sign, why) = certainty(setting, len, &rows, points[first].is_whole());
    format!(
        ". At {at_len} the {sign} {} is that of {} ({}; {why})",
        words(metric),
        name(first),
        text(first)
    )
}

/// A length, and how many methods were tested there if not all were.
fn at(setting: &Setting<'_>, len: usize) -> String {
    let (tested, all) = (tested(setting, len), setting.methods.len());
    match tested < all {
        true => format!("{} ({tested} of {all} methods tested)", setting.length(len)),
        false => setting.length(len),
    }
}

/// How many methods were tested at a length.
fn tested(setting: &Setting<'_>, len: usize) -> usize {
    let is_tested = |m: &&Method| !setting.point(m, setting.lead(), len).is_untested();
    setting.methods.iter().filter(is_tested).count()
}

/// Why only one method has a score.
fn why_alone(setting: &Setting<'_>, only: usize) -> &'static str {
    let others = setting.methods.iter().enumerate();
    let mut others = others.filter(|(at, _)| *at != only);
    let is_unlearned = |m| matches!(setting.converged(m), InLength::Unconverged(_));
    match others.all(|(_, m)| is_unlearned(m)) {
        true => "no other method has learned the task in length",
        false => "no other method has a score there",
    }
}

/// Which end of a metric is its best.
pub(super) fn extreme(metric: &str) -> &'static str {
    if metric::lower_is_better(metric) {
        "lowest"
    } else {
        "highest"
    }
}

/// Whether the first method is called best or only lowest or highest, and why. `rows`: best first,
/// not empty; `is_whole`: whether every seed of the first gave a number.
fn certainty(
    setting: &Setting<'_>,
    len: usize,
    rows: &[(usize, Estimate)],
    is_whole: bool,
) -> (&'static str, String) {
    let metric = setting.lead();
    let name = |at: usize| setting.methods[at].title.clone();
    let estimate = rows[0].1;
    let rivals: Vec<&(usize, Estimate)> = rows[1..]
        .iter()
        .filter(|(_, e)| !estimate.is_separated_from(e))
        .collect();
    let why = if estimate.interval.is_none() {
        format!("{}: no ranking", without_interval(estimate))
    } else if !is_whole {
        "not all of its seeds gave a number: no ranking".into()
    } else if setting.is_at_chance(&setting.methods[rows[0].0], metric, &estimate) {
        "its interval holds chance".into()
    } else if let Some((rival, of)) = rivals.iter().find(|(_, e)| e.interval.is_none()) {
        format!("{} has {}: no ranking", name(*rival), without_interval(*of))
    } else if rivals.is_empty() {
        let mut methods = setting.methods.iter();
        let of = match methods.any(|m| setting.is_extrapolation_of_unconverged(m, len)) {
            true => " of the methods that learned the task",
            false => "",
        };
        let why = format!("its 95 % interval touches no other{of}");
        // One that was not tested there may be better.
        return match tested(setting, len) == setting.methods.len() {
            true => ("best", why),
            false => (extreme(metric), why),
        };
    } else {
        let names: Vec<String> = rivals.iter().map(|(at, _)| name(*at)).collect();
        let which = if names.len() > 1 { "those" } else { "that" };
        // The table marks them.
        let of = match names.len() {
            0..=MOST_NAMED => several(&names),
            more => format!("{more} others"),
        };
        format!("its 95 % interval touches {which} of {of}")
    };
    (extreme(metric), why)
}

/// Why a mean has no interval.
fn without_interval(estimate: Estimate) -> &'static str {
    match estimate.n {
        1 => "one seed",
        _ => "too wide an interval",
    }
}
