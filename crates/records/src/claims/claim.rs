//! Claims and published numbers as data.

use super::length::Length;
use crate::metric;
use crate::record::TestLength;
use crate::text;
use schema::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Claims of one or more sources, their published numbers, and other names of their methods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// What is claimed, `[[claim]]` in a file.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Tables of the source, for the correlation of our numbers with its own.
    #[serde(default)]
    pub published: Vec<Published>,
    /// By the name a claim uses: names that a method of the records may have. The first one found
    /// is taken. `key=text` names the method whose only label that is.
    #[serde(default)]
    pub aliases: BTreeMap<String, Vec<String>>,
}

/// One sentence of a source and how it is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Who claims it, and where.
    #[serde(default)]
    pub source: String,
    /// The claim in words.
    #[serde(default)]
    pub text: String,
    /// Kinds of task it applies to; empty for all.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// The experiment it applies to; none for every one.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Training lengths it applies to; empty for all.
    #[serde(default)]
    pub train_lens: Vec<usize>,
    /// The metric, stored or derived.
    pub metric: String,
    /// The kind of comparison.
    pub kind: Kind,
    /// Methods, by name.
    pub methods: Vec<String>,
    /// Methods to compare with, for kinds with two sides.
    #[serde(default)]
    pub than: Vec<String>,
    /// Test lengths.
    pub lengths: Vec<Length>,
    /// The bound, for kinds that have one. For `better` and its like: how much worse the method may
    /// be and still agree, for perplexity as a share of the other's (0.01: by 1 %); without it, it
    /// must be strictly better.
    #[serde(default)]
    pub value: Option<f64>,
    /// Whether a length without a value, such as past the end of a learned table, counts as the
    /// worst score.
    #[serde(default)]
    pub or_unsupported: bool,
}

/// What a claim compares. "Better" follows the metric's direction; differences and ratios are
/// paired by seed, those of perplexities averaged in nats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Each of `methods` is better than the next.
    Order,
    /// Each of `methods` is better than each of `than`; without `than` the first is better than
    /// each of the others.
    Better,
    /// The first of `methods` is better than each of the others; if it is the only one, than every
    /// method of the setting.
    BestOf,
    /// Each of `methods` over each of `than` is at most `value`; without `than` each of `methods`
    /// over its own in-length score.
    RatioBelow,
    /// The same, at least `value`.
    RatioAbove,
    /// Each of `methods` keeps the share `value` (0.9 if absent) of its in-length score at every
    /// length tested up to the one named.
    HoldsTo,
    /// The score is at most `value`.
    Below,
    /// The score is at least `value`.
    Above,
    /// The score is within `value` of guessing.
    NearChance,
    /// The largest score of `methods` over the smallest is at most `value`.
    SpreadBelow,
    /// Each of `methods` is better at every further one of the lengths than at the one before.
    Improves,
}

/// A published table: numbers of several methods at several lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where it is printed.
    pub source: String,
    /// The kinds of task to compare it with; empty for every one.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// The experiment to compare it with; none for every one.
    #[serde(default)]
    pub experiment: Option<String>,
    /// Our metric to compare it with: higher must mean the same in both.
    pub metric: String,
    /// Its training length. If given, lengths and both ends of ranges are compared as multiples of
    /// the training lengths; otherwise they must be equal.
    #[serde(default)]
    pub train_len: Option<usize>,
    /// Where the source counts only seeds that fit the training length: the score that the last one
    /// of `train.stop` or the final one at the training length has to reach. None if it counts all.
    #[serde(default)]
    pub fitted: Option<f64>,
    /// The numbers.
    pub numbers: Vec<PublishedNumber>,
}

/// One number of a published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumber {
    /// The method, by the name a claim would use.
    pub method: String,
    /// The test length, or the range of them.
    pub length: TestLength,
    /// The number.
    pub value: f64,
    /// The scores of the seeds that it is the mean of, where the source gives them.
    #[serde(default)]
    pub seeds: Vec<f64>,
}

impl Claims {
    /// Checks that every claim can be evaluated.
    ///
    /// # Errors
    ///
    /// The first claim or published number that cannot, with its key, such as `claim.3.methods`,
    /// and the claim's text or the number's method as the hint.
    pub fn check(&self) -> Result<(), Invalid> {
        for (at, claim) in self.claims.iter().enumerate() {
            claim
                .check()
                .map_err(|error| error.within(&format!("claim.{at}")))?;
        }
        for (at, table) in self.published.iter().enumerate() {
            if table.numbers.is_empty() {
                let allowed = "one or more numbers";
                let hint = within_text(&table.source);
                let error = Invalid::new("numbers", "", "is empty", allowed, &hint);
                return Err(error.within(&format!("published.{at}")));
            }
            table
                .check()
                .map_err(|error| error.within(&format!("published.{at}")))?;
            let mut seen = BTreeSet::new();
            for (i, number) in table.numbers.iter().enumerate() {
                let hint = within_text(&number.method);
                let within = |error: Invalid| error.within(&format!("published.{at}.numbers.{i}"));
                finite(number.value, &hint).map_err(within)?;
                let is_share = metric::is_share(&table.metric);
                let seeds = number.seeds.iter().map(|seed| ("seeds", seed));
                let mut all = [("value", &number.value)].into_iter().chain(seeds);
                let percent = all.find(|(_, v)| is_share && !(0.0..=1.0).contains(*v));
                if let Some((key, value)) = percent {
                    let allowed = "shares, from 0 to 1";
                    let error = Invalid::new(key, *value, "is not a share", allowed, &hint);
                    return Err(within(error));
                }
                number.check_seeds(is_share, &hint).map_err(within)?;
                if !seen.insert((&number.method, number.length)) {
                    let problem = format!("has two numbers at {}", number.length);
                    let method = number.method.as_str();
                    let allowed = "one number of a method at a length";
                    return Err(within(Invalid::new(
                        "method", method, &problem, allowed, "",
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Published {
    /// Checks its training length and the score that counts as fitted.
    fn check(&self) -> Result<(), Invalid> {
        let hint = within_text(&self.source);
        if self.train_len == Some(0) {
            let allowed = "whole numbers from 1";
            return Err(Invalid::new("train_len", 0, "is 0", allowed, &hint));
        }
        let Some(fitted) = self.fitted else {
            return Ok(());
        };
        if !metric::is_share(&self.metric) {
            let problem = format!(
                "is the score of a fit, and `{}` is not a share",
                self.metric
            );
            let allowed = "none, or a metric from 0 to 1 such as exact_match";
            return Err(Invalid::new("fitted", fitted, &problem, allowed, &hint));
        }
        if !(0.0..=1.0).contains(&fitted) {
            let allowed = "numbers from 0 to 1";
            return Err(Invalid::new(
                "fitted",
                fitted,
                "is not a share",
                allowed,
                &hint,
            ));
        }
        Ok(())
    }
}

impl PublishedNumber {
    /// Checks that the number can be the mean of its seeds.
    fn check_seeds(&self, is_share: bool, hint: &str) -> Result<(), Invalid> {
        if self.seeds.is_empty() {
            return Ok(());
        }
        let mean = self.seeds.iter().sum::<f64>() / self.seeds.len() as f64;
        // The value may be rounded, shares to two decimals at least, or be the mean of scores that
        // were not.
        let written = self.value.to_string();
        let decimals = written
            .split_once('.')
            .map_or(0, |(_, digits)| digits.len());
        let decimals = decimals.clamp(if is_share { 2 } else { 1 }, 9);
        let close = (0.51 / 10f64.powi(decimals as i32)).max(0.0005 * mean.abs());
        if (mean - self.value).abs() <= close {
            return Ok(());
        }
        let problem = format!("have the mean {mean:.4}, which is not {}", self.value);
        let allowed = "scores whose mean is `value`, up to rounding";
        Err(Invalid::new("seeds", "", &problem, allowed, hint))
    }
}

impl Claim {
    fn check(&self) -> Result<(), Invalid> {
        let hint = within_text(&self.text);
        let wrong = |key: &str, problem: &str, allowed: &str| {
            Err(Invalid::new(key, "", problem, allowed, hint.as_str()))
        };
        let is_comparison = matches!(self.kind, Kind::Order | Kind::SpreadBelow)
            || self.kind == Kind::Better && self.than.is_empty();
        let few = "names too few methods";
        match self.methods.len() {
            0 if !is_comparison => return wrong("methods", few, "one or more names"),
            0 | 1 if is_comparison => {
                let allowed = match self.kind {
                    Kind::Better => "two or more names, or one and `than` with others",
                    _ => "two or more names",
                };
                return wrong("methods", few, allowed);
            }
            _ => {}
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.methods.iter().find(|name| !seen.insert(*name)) {
            let problem = format!("names {twice:?} twice");
            return wrong("methods", &problem, "different names");
        }
        if let Some(both) = self.than.iter().find(|name| !seen.insert(*name)) {
            let problem = format!("names {both:?}, which is in `methods` or named before");
            return wrong("than", &problem, "names of other methods");
        }
        if !self.than.is_empty() && !self.kind.has_others() {
            let problem = "has no meaning in this kind of claim";
            return wrong(
                "than",
                problem,
                "`than` with better, ratio_below or ratio_above",
            );
        }
        if self.or_unsupported && !self.kind.may_have_no_value() {
            let problem = "has no meaning in this kind of claim";
            let allowed = "`or_unsupported` where no value can agree: not with holds_to, improves \
                           or spread_below";
            return wrong("or_unsupported", problem, allowed);
        }
        if self.lengths.is_empty() {
            let allowed = "one or more lengths, such as 512, \"in\", \"2x\" or \">1x\"";
            return wrong("lengths", "is empty", allowed);
        }
        if let ([length], Kind::Improves) = (self.lengths.as_slice(), self.kind)
            && !length.may_be_several()
        {
            let allowed = "two or more lengths, or several in one, such as \">1x\"";
            return wrong(
                "lengths",
                "names one length: none is better than itself",
                allowed,
            );
        }
        self.check_value(&hint)
    }

    /// Checks that a bound is there where the kind has one, and can be met.
    fn check_value(&self, hint: &str) -> Result<(), Invalid> {
        let wrong =
            |problem: &str, allowed: &str| Err(Invalid::new("value", "", problem, allowed, hint));
        match self.value {
            None if self.kind.has_bound() => {
                wrong("is missing: this kind of claim has a bound", "a number")
            }
            None => Ok(()),
            Some(_) if self.kind == Kind::Improves => wrong(
                "has no meaning in this kind of claim",
                "no value with improves",
            ),
            Some(value) => {
                finite(value, hint)?;
                let (is_inside, allowed) = match self.kind {
                    Kind::RatioBelow | Kind::RatioAbove => {
                        (value > 0.0, "a ratio, which is above 0")
                    }
                    Kind::SpreadBelow => (value >= 1.0, "a ratio of at least 1"),
                    Kind::NearChance => (value >= 0.0, "0 or more"),
                    Kind::HoldsTo => (value > 0.0 && value <= 1.0, "a share above 0 and up to 1"),
                    Kind::Below | Kind::Above if metric::is_share(&self.metric) => {
                        ((0.0..=1.0).contains(&value), "a share, from 0 to 1")
                    }
                    Kind::Below | Kind::Above if metric::lower_is_better(&self.metric) => {
                        (value >= 0.0, "0 or more")
                    }
                    _ => return Ok(()),
                };
                match is_inside {
                    true => Ok(()),
                    false => Err(Invalid::new(
                        "value",
                        value,
                        "is out of range",
                        allowed,
                        hint,
                    )),
                }
            }
        }
    }
}

fn finite(value: f64, hint: &str) -> Result<(), Invalid> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Invalid::new(
        "value",
        value,
        "is not finite",
        "a finite number",
        hint,
    ))
}

/// Names the claim or method that a value belongs to.
fn within_text(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("in {:?}", text::name(text, 60))
    }
}
impl Kind {
    /// Whether the kind compares with [`Claim::than`].
    fn has_others(self) -> bool {
        matches!(self, Kind::Better | Kind::RatioBelow | Kind::RatioAbove)
    }

    /// Whether a length without a value can agree.
    fn may_have_no_value(self) -> bool {
        !matches!(self, Kind::HoldsTo | Kind::Improves | Kind::SpreadBelow)
    }

    /// Whether the kind compares with [`Claim::value`].
    pub(super) fn has_bound(self) -> bool {
        matches!(
            self,
            Kind::RatioBelow
                | Kind::RatioAbove
                | Kind::Below
                | Kind::Above
                | Kind::NearChance
                | Kind::SpreadBelow
        )
    }
}
