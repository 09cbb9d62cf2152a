//! The finding of a setting: what its numbers say, in at most three sentences that need no other
//! word of the report; and what to hold against them.

use super::best::{best, extreme};
use super::captions::{kept_percent, several, words};
use super::sections::{baseline, denominators};
use super::spec::ReportSpec;
use records::analysis::learned::InLength;
use records::analysis::outcome::Reach;
use records::analysis::point::{absent_text, estimate_text};
use records::analysis::setting::{Method, Setting};
use records::metric::{self, better_first};
use records::stats::Estimate;
use records::text::{and, times};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// What else is to be known: how other methods differ from a baseline, which are still learning,
/// and which denominators of linear attention were not sums of weights; a sentence each.
pub(super) fn caveats(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<String> {
    let base = baseline::baseline(setting, spec);
    let difference = base.and_then(|base| baseline::finding(setting, base));
    let all = difference
        .into_iter()
        .chain(setting.learning_note())
        .chain(denominators::finding(setting));
    let without = spec.baseline.as_deref().filter(|_| base.is_none());
    let without =
        without.map(|name| format!("No method here is named \"{name}\": no differences."));
    without.into_iter().chain(all).collect()
}

/// Methods of which not every seed has learned the task in length, with the scores that show it.
pub(super) fn unconverged(setting: &Setting<'_>) -> Vec<String> {
    let methods = setting.methods.iter();
    // Variants are tested with the same weights.
    let each = methods
        .filter(|m| !setting.is_variant(m))
        .filter_map(|method| {
            let why = setting.learned(method).why_not()?;
            let counted = match setting.converged(method) {
                InLength::Converged => "; past the training length the seeds that learned count",
                InLength::Unconverged(_) | InLength::Untested => "",
            };
            Some(format!(
                "{}: {}: {why}{counted}",
                setting.name, method.title
            ))
        });
    each.collect()
}

/// What the numbers say.
pub(super) fn finding(setting: &Setting<'_>) -> String {
    let trained = setting.trained_at();
    let Some(longest) = setting.longer().last() else {
        return format!(
            "Trained at {trained}, and no longer length was tested: there is no extrapolation to \
             report."
        );
    };
    format!(
        "Trained at {trained}, {}{}{}.",
        reach(setting, longest),
        best(setting, longest),
        another_metric(setting)
    )
}

/// A method and how far it keeps its in-length score.
struct Reached<'s> {
    method: &'s Method,
    /// Its name, with the count of its seeds where some have no score in length, and whether it was
    /// tested no further than it holds.
    name: String,
    /// The longest test length, 0 for none past training.
    len: usize,
    /// Whether it was tested at no longer length.
    is_bound: bool,
}

/// Which methods keep their in-length score, and how far.
fn reach(setting: &Setting<'_>, longest: usize) -> String {
    let metric = setting.lead();
    let mut reached: Vec<Reached<'_>> = Vec::new();
    for method in &setting.methods {
        let is_tested = |reach: &Reach| reach.test_len.is_some() || !reach.is_longest;
        if let Some(reach) = setting.reach(method).filter(is_tested) {
            let name = match reach.seeds {
                (k, n) if k < n => format!("{} ({k} of {n} seeds)", method.title),
                _ => method.title.clone(),
            };
            let name = match reach.test_len {
                Some(len) if reach.is_longest && len < longest => {
                    format!("{name} (not tested further)")
                }
                _ => name,
            };
            reached.push(Reached {
                method,
                name,
                len: reach.test_len.unwrap_or(0),
                is_bound: reach.is_longest,
            });
        }
    }
    let at_longest = |r: &Reached<'_>| mean_at_longest(setting, r.method);
    reached.sort_by(|a, b| {
        let better = better_first(metric, at_longest(a), at_longest(b));
        b.len.cmp(&a.len).then(better)
    });
    match reached.first() {
        None if setting.is_later() && setting.in_length != Some(setting.task.train_len) => {
            "which this evaluation leaves out: the report on its runs has the scores there".into()
        }
        None if setting.in_length.is_none() => format!(
            "but not tested there, so no {} is known to be kept",
            words(metric)
        ),
        None => match untested(setting) {
            Some(why) => format!(
                "no method has a score in length ({why}), so there is no extrapolation to report"
            ),
            None => format!(
                "no method has learned the task in length{}, so there is no extrapolation to report",
                averaged(setting)
            ),
        },
        Some(Reached { len: 0, .. }) => none_holds(setting, &reached),
        Some(_) => leaders(setting, longest, &reached),
    }
}

/// Over which lengths the score is averaged that shows whether a task was learned, if these are
/// several, or at which one if it is not the training length.
fn averaged(setting: &Setting<'_>) -> String {
    let lengths = setting.lengths.iter();
    let lengths = lengths.filter(|len| **len <= setting.task.train_len);
    let lengths: Vec<String> = lengths.map(|len| setting.length(*len)).collect();
    let is_share = setting.task.primary_metric != metric::LOSS_NATS;
    match lengths.as_slice() {
        [one] if setting.in_length != Some(setting.task.train_len) => format!(" (at {one})"),
        [_, _, ..] if is_share => format!(" (mean over {})", and(&lengths)),
        _ => String::new(),
    }
}

/// Where every method loses its score at the first length past training at which it was tested.
fn none_holds(setting: &Setting<'_>, reached: &[Reached<'_>]) -> String {
    let metric = setting.lead();
    let next = reached
        .iter()
        .filter_map(|r| next_tested(setting, r.method));
    let lengths: BTreeSet<usize> = next.collect();
    let at = match (lengths.len(), lengths.first()) {
        (1, Some(len)) => format!("the next tested length, {}", setting.unit_count(*len)),
        _ => "the next length at which it was tested".into(),
    };
    let has_score = |r: &&Reached<'_>| {
        let score = |len| setting.score(r.method, metric, len).estimate.is_some();
        next_tested(setting, r.method).is_some_and(score)
    };
    let (sign, than) = match metric::lower_is_better(metric) {
        true => ("more", "above"),
        false => ("less", "of"),
    };
    let lost = format!(
        "its {} there is {sign} than {} {than} that at {}",
        words(metric),
        kept_percent(metric),
        in_length(setting)
    );
    let why = match reached.iter().filter(has_score).count() {
        0 => "none has a score there".to_owned(),
        scored if scored < reached.len() => format!("{lost}, or it has none there"),
        _ => lost,
    };
    format!("no method holds at {at}: {why}")
}

/// The first length past training at which all runs of a method were tested that learned the task.
fn next_tested(setting: &Setting<'_>, method: &Method) -> Option<usize> {
    setting.longer().find(|len| setting.is_tested(method, *len))
}

/// The methods with the longest reach and the next one. `reached`: longest first, not empty.
fn leaders(setting: &Setting<'_>, longest: usize, reached: &[Reached<'_>]) -> String {
    let train = setting.task.train_len.max(1) as f64;
    let best = reached[0].len;
    let tied = reached.iter().filter(|r| r.len == best);
    let leaders: Vec<String> = tied.clone().map(|r| r.name.clone()).collect();
    let end = match best == longest {
        true => ", the longest tested",
        false => "",
    };
    let to = format!(
        "up to {} ({} that length{end})",
        setting.unit_count(best),
        times(best as f64 / train)
    );
    let next = reached.iter().find(|r| r.len < best);
    let tail = match next {
        None => String::new(),
        Some(Reached { len: 0, .. }) => ". No other method holds past the training length".into(),
        Some(Reached { len, .. }) => {
            let names = reached.iter().filter(|r| r.len == *len);
            let names: Vec<String> = names.map(|r| r.name.clone()).collect();
            let verb = if names.len() == 1 { "is" } else { "are" };
            let to = times(*len as f64 / train);
            format!(". Next {verb} {}, up to {to}", several(&names))
        }
    };
    let further = further(setting, reached, next.map_or(0, |next| next.len));
    let leading: Vec<&Method> = tied.map(|r| r.method).collect();
    let next = next.filter(|next| next.len > 0).map(|next| next.method);
    let beaten = beaten(setting, &leading, next);
    let (verb, whose) = match leaders.len() {
        1 => ("holds", "its"),
        2 if setting.methods.len() == 2 => ("both hold", "their"),
        n if n == setting.methods.len() => ("all hold", "their"),
        _ => ("hold", "their"),
    };
    let metric = setting.lead();
    let (bound, than) = match metric::lower_is_better(metric) {
        true => ("at most", "above"),
        false => ("at least", "of"),
    };
    format!(
        "{} {verb} {to}: {whose} {} there is {bound} {} {than} that at {}{tail}{beaten}{further}",
        several(&leaders),
        words(metric),
        kept_percent(metric),
        in_length(setting)
    )
}

/// Methods behind the next one that may hold further than it: they still hold at the longest length
/// that they were tested at.
fn further(setting: &Setting<'_>, reached: &[Reached<'_>], next: usize) -> String {
    let train = setting.task.train_len.max(1) as f64;
    let unknown = reached.iter().filter(|r| r.is_bound && r.len < next);
    let names = unknown.map(|r| {
        let to = times(r.len as f64 / train);
        format!("{} (tested to {to})", r.method.title)
    });
    let names: Vec<String> = names.collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(". {} may hold further", several(&names)),
    }
}

/// The length of the score in length.
fn in_length(setting: &Setting<'_>) -> String {
    setting.length(setting.in_length.unwrap_or_default())
}

/// The mean at the longest length, for an order.
fn mean_at_longest(setting: &Setting<'_>, method: &Method) -> f64 {
    let longest = setting.lengths.last().copied().unwrap_or_default();
    let mean = setting.score(method, setting.lead(), longest).estimate;
    mean.map_or(f64::NAN, |mean| mean.mean)
}

/// Which of the leading methods, and the next one, another method beats at every tested length: how
/// far a score is kept says nothing of how good it is. That the next one is beaten by a leading one
/// is not news.
fn beaten(setting: &Setting<'_>, leading: &[&Method], next: Option<&Method>) -> String {
    let metric = setting.lead();
    let at_longest = |method: &Method| mean_at_longest(setting, method);
    let leads = |method: &Method| leading.iter().any(|other| other.title == method.title);
    let winner = |method: &Method| {
        let others = setting.methods.iter();
        let others = others.filter(|other| beats_everywhere(setting, other, method));
        let best = others.min_by(|a, b| better_first(metric, at_longest(a), at_longest(b)))?;
        (leads(method) || !leads(best)).then_some(best)
    };
    let mut by_winner: Vec<(&Method, Vec<String>)> = Vec::new();
    for method in leading.iter().copied().chain(next) {
        let Some(best) = winner(method) else { continue };
        let known = by_winner
            .iter_mut()
            .find(|(winner, _)| winner.title == best.title);
        match known {
            Some((_, beaten)) => beaten.push(method.title.clone()),
            None => by_winner.push((best, vec![method.title.clone()])),
        }
    }
    let better = if metric::lower_is_better(metric) {
        "lower"
    } else {
        "higher"
    };
    // One that beats all other leading ones needs no list of them.
    if let [(winner, beaten)] = by_winner.as_slice()
        && leads(winner)
        && beaten.len() + 1 == leading.len()
        && beaten.len() > 1
    {
        let (of, best) = (words(metric), extreme(metric));
        return format!(
            "; {} has the {best} {of} of them at every tested length",
            winner.title
        );
    }
    let each = by_winner.iter().map(|(winner, beaten)| {
        format!(
            "; the {} of {} is {better} than that of {} at every tested length",
            words(metric),
            winner.title,
            several(beaten)
        )
    });
    each.collect()
}

/// Whether a method has the better score at every length at which the other has one, from all its
/// seeds, with intervals that do not touch.
fn beats_everywhere(setting: &Setting<'_>, method: &Method, other: &Method) -> bool {
    let metric = setting.lead();
    let mut lengths = 0;
    let is_better = setting.lengths.iter().all(|&len| {
        let Some(theirs) = setting.score(other, metric, len).estimate else {
            return true;
        };
        lengths += 1;
        let ours = setting.score(method, metric, len);
        let ours = ours.estimate.filter(|_| ours.is_whole());
        ours.is_some_and(|ours| {
            better_first(metric, ours.mean, theirs.mean) == Ordering::Less
                && ours.is_separated_from(&theirs)
        })
    });
    is_better && lengths > 0
}

/// Where no method does better than chance in length by the leading metric: another share that
/// distinguishes the methods there.
fn another_metric(setting: &Setting<'_>) -> String {
    let (lead, Some(len)) = (setting.lead(), setting.in_length) else {
        return String::new();
    };
    let points = |metric: &str| -> Vec<(&Method, Estimate)> {
        let methods = setting.methods.iter();
        methods
            .filter_map(|m| Some((m, setting.point(m, metric, len).estimate?)))
            .collect()
    };
    let leading = points(lead);
    let is_at_chance = |(m, e): &(&Method, Estimate)| setting.is_at_chance(m, lead, e);
    if leading.len() < 2 || !leading.iter().all(is_at_chance) {
        return String::new();
    }
    let others = setting.metrics.iter();
    for metric in others.filter(|m| *m != lead && metric::is_share(m)) {
        let mut rows = points(metric);
        rows.sort_by(|a, b| better_first(metric, a.1.mean, b.1.mean));
        let [first, .., last] = &rows[..] else {
            continue;
        };
        let score = |(_, estimate): &(&Method, Estimate)| estimate_text(metric, estimate);
        let text = |row: &(&Method, Estimate)| format!("{} ({})", row.0.title, score(row));
        if first.1.is_separated_from(&last.1) {
            return format!(
                "; {} at {len} does not distinguish the methods, {} does: from {} down to {}",
                words(lead),
                words(metric),
                text(first),
                text(last)
            );
        }
    }
    String::new()
}

/// Why no method has a score in length; none where one has.
fn untested(setting: &Setting<'_>) -> Option<String> {
    let has_score = |m: &Method| {
        let seeds = setting.learned(m).seeds;
        seeds.iter().any(|(_, score, _)| !score.is_nan())
    };
    if setting.methods.iter().any(has_score) {
        return None;
    }
    let len = setting.in_length?;
    let lead = setting.lead();
    let methods = setting.methods.iter();
    let absent = methods.flat_map(|m| setting.point(m, lead, len).absent);
    Some(absent_text(&absent.collect()))
}
