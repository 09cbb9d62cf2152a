//! What a source claims, as data, and whether the records agree.
//!
//! A [`Claim`] is one sentence of a source with a check of it in terms of methods, lengths and a
//! metric. Each check is taken apart into [`Comparison`]s, one number with a 95 % interval over
//! seeds and the bound it is held against. A comparison *agrees* if the whole interval is on the
//! claim's side of the bound, *disagrees* if the whole interval is on the other side, and is
//! *undecided* if the bound lies inside the interval, if there is a single seed, or if a method has
//! not learned its task in length. A claim disagrees if one of its comparisons does, agrees if all
//! do, and is undecided otherwise: one counterexample settles what no example can.
//!
//! Methods are compared within one experiment and setting, where everything but the axes is the
//! same.

use crate::analysis::{self, Absent, Method, Point, Setting};
use crate::groups::TRAINED;
use crate::identity::MethodSpecs;
use crate::metric;
use crate::record::RunRecord;
use crate::stats::{Correlation, Estimate, spearman};
use crate::{order, text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Claims of one or more sources, their published numbers, and other names of the methods they
/// speak of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// What is claimed, `[[claim]]` in a file.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Tables of the source, for the correlation of our numbers with its own.
    #[serde(default)]
    pub published: Vec<Published>,
    /// By the name a claim uses: the names methods of ours may have, the first that is there being
    /// taken. `key=text` names the method whose only label that is.
    #[serde(default)]
    pub aliases: BTreeMap<String, Vec<String>>,
}

/// One sentence of a source and how it is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Who says so, and where.
    #[serde(default)]
    pub source: String,
    /// The claim in words.
    #[serde(default)]
    pub text: String,
    /// The kinds of task it is about; empty for every one.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// The training lengths it is about; empty for every one.
    #[serde(default)]
    pub train_lens: Vec<usize>,
    /// The metric it is about, stored or derived.
    pub metric: String,
    /// What is compared with what.
    pub kind: Kind,
    /// Methods it speaks of, by name.
    pub methods: Vec<String>,
    /// Methods that those are compared with, where the kind has two sides.
    #[serde(default)]
    pub than: Vec<String>,
    /// Test lengths.
    pub lengths: Vec<Length>,
    /// The bound, where the kind has one; for what is better: how much worse it may be and still
    /// agree (absent: not even as good).
    #[serde(default)]
    pub value: Option<f64>,
    /// A length that a method has no value for, such as past the end of a learned table, counts as
    /// agreeing.
    #[serde(default)]
    pub or_unsupported: bool,
}

/// What a claim compares. "Better" follows the metric's direction; differences and ratios are
/// paired by seed.
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

/// A test length: `512`, or in multiples of the training length `"2x"`, `">1x"` (every tested one
/// beyond), `">=4x"`, `"<=1x"`; `"in"` is the length at which the in-length score is taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawLength", into = "RawLength")]
pub enum Length {
    /// In the task's unit.
    Exactly(usize),
    /// The training length, or the longest one tested below it.
    In,
    /// A multiple of the training length.
    Times(f64),
    /// Every tested length longer than a multiple of the training length.
    Beyond(f64),
    /// Every tested length of at least a multiple.
    From(f64),
    /// Every tested length of at most a multiple.
    UpTo(f64),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RawLength {
    Number(usize),
    Text(String),
}

impl TryFrom<RawLength> for Length {
    type Error = String;

    fn try_from(raw: RawLength) -> Result<Self, String> {
        let text = match raw {
            RawLength::Number(0) => return Err("a length of 0".into()),
            RawLength::Number(n) => return Ok(Length::Exactly(n)),
            RawLength::Text(text) => text,
        };
        let wrong = || {
            format!(
                "the length {:?} is none; allowed: 512, \"in\", \"2x\", \">1x\", \">=4x\", \
                 \"<=1x\"",
                text::name(&text, 40)
            )
        };
        if text == "in" {
            return Ok(Length::In);
        }
        type Form = fn(f64) -> Length;
        let forms: [(&str, Form); 4] = [
            (">=", Length::From),
            ("<=", Length::UpTo),
            (">", Length::Beyond),
            ("", Length::Times),
        ];
        let (rest, form) = forms
            .iter()
            .find_map(|(prefix, form)| Some((text.strip_prefix(prefix)?, form)))
            .ok_or_else(wrong)?;
        let times = rest
            .strip_suffix('x')
            .and_then(|n| n.parse::<f64>().ok())
            .filter(|n| n.is_finite() && *n > 0.0);
        times.map(form).ok_or_else(wrong)
    }
}

impl From<Length> for RawLength {
    fn from(length: Length) -> Self {
        match length {
            Length::Exactly(n) => RawLength::Number(n),
            other => RawLength::Text(other.to_string()),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Exactly(n) => write!(f, "{n}"),
            Length::In => write!(f, "in"),
            Length::Times(x) => write!(f, "{x}x"),
            Length::Beyond(x) => write!(f, ">{x}x"),
            Length::From(x) => write!(f, ">={x}x"),
            Length::UpTo(x) => write!(f, "<={x}x"),
        }
    }
}

impl Length {
    fn of(self, setting: &Setting<'_>) -> Vec<usize> {
        let train = setting.task.train_len as f64;
        let tested = |is: &dyn Fn(usize) -> bool| {
            setting.lengths.iter().copied().filter(|&l| is(l)).collect()
        };
        match self {
            Length::Exactly(n) => tested(&|l| l == n),
            Length::In => setting.in_length.into_iter().collect(),
            Length::Times(x) => tested(&|l| l as f64 == (x * train).round()),
            Length::Beyond(x) => tested(&|l| l as f64 > x * train),
            Length::From(x) => tested(&|l| l as f64 >= x * train),
            Length::UpTo(x) => tested(&|l| l as f64 <= x * train),
        }
    }
}

/// A claim that cannot be held against anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} ({text:?}) {problem}; allowed: {allowed}")]
pub struct ClaimError {
    /// Dotted key in a file of claims: `claim.3.methods`.
    pub key: String,
    /// The claim's text, or the method of a number.
    pub text: String,
    /// What is wrong with the value.
    pub problem: &'static str,
    /// What may stand there.
    pub allowed: &'static str,
}

/// What the records say to a claim, or to one comparison of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is on the claim's side.
    Agrees,
    /// The whole interval is on the other side.
    Disagrees,
    /// Inside the interval, a single seed, or not converged.
    Undecided,
    /// No records, or none with such a number.
    NotTested,
}

impl Verdict {
    /// `agrees`, `disagrees`, `undecided`, `not tested`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Disagrees => "disagrees",
            Verdict::Undecided => "undecided",
            Verdict::NotTested => "not tested",
        }
    }
}

/// One number held against one bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What the number is: `rope at 256 over rope at 64`.
    pub what: String,
    /// The number, where there is one.
    pub estimate: Option<Estimate>,
    /// What it is held against: `at most 1.1`, `below 0`.
    pub needed: String,
    /// The result.
    pub verdict: Verdict,
    /// Whether the mean alone is on the claim's side; absent where there is no number.
    pub mean_agrees: Option<bool>,
    /// The sentence for people, numbers included.
    pub text: String,
}

/// A claim in one experiment and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Place of the claim among those given.
    pub claim: usize,
    /// `quickstart: text, trained at 64 bytes`; empty where there are no records for it at all.
    pub place: String,
    /// The result.
    pub verdict: Verdict,
    /// What it rests on.
    pub numbers: Vec<Comparison>,
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
    /// Our metric to compare it with: higher must mean the same in both.
    pub metric: String,
    /// Its training length. If given, lengths are compared as multiples of the training lengths;
    /// otherwise they must be equal.
    #[serde(default)]
    pub train_len: Option<usize>,
    /// The numbers.
    pub numbers: Vec<PublishedNumber>,
}

/// One number of a published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumber {
    /// The method, by the name a claim would use.
    pub method: String,
    /// The test length.
    pub length: usize,
    /// The number.
    pub value: f64,
}

/// Rank correlation over methods of one column of a published table with ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Where it is published.
    pub source: String,
    /// As in [`Outcome::place`].
    pub place: String,
    /// The metric.
    pub metric: String,
    /// The published length and ours.
    pub lengths: (usize, usize),
    /// Methods in both, with the published number and our mean over seeds.
    pub methods: Vec<(String, f64, f64)>,
    /// Of those; none for fewer than two methods or where one side is constant.
    pub correlation: Option<Correlation>,
}

/// The settings of each experiment alone: what claims are about.
pub(crate) struct Place<'a> {
    name: String,
    setting: Setting<'a>,
}

pub(crate) fn places(records: &[RunRecord]) -> Vec<Place<'_>> {
    let mut by_experiment: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    sorted.sort_by(|a, b| order::canonical(a, b));
    for run in sorted
        .into_iter()
        .filter(|run| seen.insert((&run.experiment, &run.run_id)))
    {
        by_experiment.entry(&run.experiment).or_default().push(run);
    }
    let all: Vec<&RunRecord> = records.iter().collect();
    let specs = MethodSpecs::new(&all);
    let mut out = Vec::new();
    for (experiment, runs) in by_experiment {
        let experiment = text::name(experiment, 60);
        for setting in analysis::settings(&runs, &[], &specs) {
            out.push(Place {
                name: format!("{experiment}: {}", setting.name),
                setting,
            });
        }
    }
    out
}

impl Outcome {
    /// How many numbers have a mean on the claim's side, and how many have one at all; `None` where
    /// none has.
    pub fn means(&self) -> Option<[usize; 2]> {
        let means: Vec<bool> = self.numbers.iter().filter_map(|n| n.mean_agrees).collect();
        (!means.is_empty()).then(|| [means.iter().filter(|agrees| **agrees).count(), means.len()])
    }
}

impl Claims {
    /// Whether each claim can be held against anything.
    ///
    /// # Errors
    ///
    /// The first claim or published number that cannot.
    pub fn check(&self) -> Result<(), ClaimError> {
        for (at, claim) in self.claims.iter().enumerate() {
            let needs_two = matches!(claim.kind, Kind::Order | Kind::SpreadBelow)
                || claim.kind == Kind::Better && claim.than.is_empty();
            let least = if needs_two { 2 } else { 1 };
            let (key, problem, allowed) = if claim.methods.len() < least {
                (
                    "methods",
                    "names too few methods",
                    if needs_two {
                        "two or more names"
                    } else {
                        "one or more names"
                    },
                )
            } else if claim.lengths.is_empty() {
                (
                    "lengths",
                    "is empty",
                    "one or more lengths, such as 512, \"in\", \"2x\" or \">1x\"",
                )
            } else if claim.value.is_none() && claim.kind.has_bound() {
                (
                    "value",
                    "is missing: this kind of claim has a bound",
                    "a number",
                )
            } else if claim.value.is_some_and(|v| !v.is_finite()) {
                ("value", "is not finite", "a finite number")
            } else {
                continue;
            };
            let text = text::name(&claim.text, 60);
            return Err(ClaimError {
                key: format!("claim.{at}.{key}"),
                text,
                problem,
                allowed,
            });
        }
        for (at, table) in self.published.iter().enumerate() {
            if let Some((i, number)) = table
                .numbers
                .iter()
                .enumerate()
                .find(|(_, n)| !n.value.is_finite())
            {
                let text = text::name(&number.method, 60);
                let key = format!("published.{at}.numbers.{i}.value");
                return Err(ClaimError {
                    key,
                    text,
                    problem: "is not finite",
                    allowed: "a finite number",
                });
            }
        }
        Ok(())
    }

    /// Every claim in every experiment and setting it can be held against; at least one outcome for
    /// each claim, in their order. The order of `records` does not matter.
    pub fn evaluate(&self, records: &[RunRecord]) -> Vec<Outcome> {
        self.evaluate_in(&places(records))
    }

    pub(crate) fn evaluate_in(&self, places: &[Place<'_>]) -> Vec<Outcome> {
        let mut out = Vec::new();
        for (at, claim) in self.claims.iter().enumerate() {
            let before = out.len();
            for place in places.iter().filter(|p| claim.is_about(&p.setting)) {
                let numbers = Checked {
                    setting: &place.setting,
                    claim,
                    aliases: &self.aliases,
                }
                .comparisons();
                let verdict = all_of(numbers.iter().map(|n| n.verdict));
                if verdict != Verdict::NotTested {
                    out.push(Outcome {
                        claim: at,
                        place: place.name.clone(),
                        verdict,
                        numbers,
                    });
                }
            }
            if out.len() == before {
                out.push(Outcome {
                    claim: at,
                    place: String::new(),
                    verdict: Verdict::NotTested,
                    numbers: Vec::new(),
                });
            }
        }
        out
    }

    /// Spearman's rank correlation over methods of each published column (one length of one table)
    /// with ours, in every experiment and setting with at least two of its methods. Methods
    /// that have not converged have no place beyond the training length.
    pub fn correlate(&self, records: &[RunRecord]) -> Vec<Column> {
        let places = places(records);
        let mut out = Vec::new();
        for table in &self.published {
            let lengths: BTreeSet<usize> = table.numbers.iter().map(|n| n.length).collect();
            for place in places.iter().filter(|p| is_task(&table.tasks, &p.setting)) {
                let setting = &place.setting;
                for &length in &lengths {
                    let ours = match table.train_len {
                        Some(train) => (length as f64 / train.max(1) as f64
                            * setting.task.train_len as f64)
                            .round() as usize,
                        None => length,
                    };
                    let numbers = table
                        .numbers
                        .iter()
                        .filter(|n| n.length == length && n.value.is_finite());
                    let methods: Vec<(String, f64, f64)> = numbers
                        .filter_map(|number| {
                            let method = find(setting, &number.method, &self.aliases)?;
                            let is_silent = setting.is_extrapolation_of_unconverged(method, ours);
                            let mean = setting
                                .point(method, &table.metric, ours)
                                .estimate
                                .filter(|_| !is_silent)?
                                .mean;
                            Some((method.name.clone(), number.value, mean))
                        })
                        .collect();
                    if methods.len() < 2 {
                        continue;
                    }
                    let sides: (Vec<f64>, Vec<f64>) = methods.iter().map(|m| (m.1, m.2)).unzip();
                    out.push(Column {
                        source: table.source.clone(),
                        place: place.name.clone(),
                        metric: table.metric.clone(),
                        lengths: (length, ours),
                        correlation: spearman(&sides.0, &sides.1),
                        methods,
                    });
                }
            }
        }
        out
    }
}

fn is_task(tasks: &[String], setting: &Setting<'_>) -> bool {
    tasks.is_empty() || tasks.contains(&setting.task.kind)
}

impl Claim {
    fn is_about(&self, setting: &Setting<'_>) -> bool {
        is_task(&self.tasks, setting)
            && (self.train_lens.is_empty() || self.train_lens.contains(&setting.task.train_len))
    }
}

/// One counterexample settles a claim about many; all must agree for it to agree.
fn all_of(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let all: BTreeSet<Verdict> = verdicts.collect();
    match all.iter().next() {
        None => Verdict::NotTested,
        _ if all.contains(&Verdict::Disagrees) => Verdict::Disagrees,
        Some(&one) if all.len() == 1 => one,
        _ => Verdict::Undecided,
    }
}

/// The method of that name, or of the first of its other names that is there.
fn find<'s>(
    setting: &'s Setting<'_>,
    name: &str,
    aliases: &BTreeMap<String, Vec<String>>,
) -> Option<&'s Method> {
    let names =
        std::iter::once(name).chain(aliases.get(name).into_iter().flatten().map(String::as_str));
    let is_only_label = |method: &Method, name: &str| {
        let labels = setting.groups[method.group]
            .runs
            .first()
            .map_or(&[][..], |run| &run.labels);
        method.variant == TRAINED
            && matches!(labels, [one] if format!("{}={}", one.key, one.text) == name)
    };
    names.into_iter().find_map(|name| {
        setting
            .method(name)
            .or_else(|| setting.methods.iter().find(|m| is_only_label(m, name)))
    })
}

/// A claim held against one setting.
struct Checked<'a, 'r> {
    setting: &'a Setting<'r>,
    claim: &'a Claim,
    aliases: &'a BTreeMap<String, Vec<String>>,
}

/// A bound on a number: which side is the claim's.
#[derive(Clone, Copy)]
enum Needed {
    AtMost(f64),
    AtLeast(f64),
    /// Strictly, with a difference of exactly nothing deciding nothing.
    Negative,
    Positive,
}

impl Needed {
    fn holds(self, value: f64) -> bool {
        // The mean of equal scores may be a rounding away from them, and bounds are scores a claim
        // names.
        let rounding = |bound: f64| 1e-12 * bound.abs().max(1.0);
        match self {
            Needed::AtMost(bound) => value <= bound + rounding(bound),
            Needed::AtLeast(bound) => value >= bound - rounding(bound),
            Needed::Negative => value < 0.0,
            Needed::Positive => value > 0.0,
        }
    }
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needed::AtMost(bound) => write!(f, "at most {bound}"),
            Needed::AtLeast(bound) => write!(f, "at least {bound}"),
            Needed::Negative => write!(f, "below 0"),
            Needed::Positive => write!(f, "above 0"),
        }
    }
}

impl<'s> Checked<'s, '_> {
    fn comparisons(&self) -> Vec<Comparison> {
        let claim = self.claim;
        let methods = || claim.methods.iter().map(String::as_str);
        let than = || claim.than.iter().map(String::as_str);
        let product = || methods().flat_map(|a| than().map(move |b| (a, b)));
        let rest = || {
            methods()
                .next()
                .into_iter()
                .flat_map(|first| methods().skip(1).map(move |other| (first, other)))
        };
        let bound = claim.value.unwrap_or(f64::NAN);
        if claim.value.is_none() && claim.kind.has_bound() {
            return vec![self.untested(&claim.metric, "no `value` is given")];
        }
        match claim.kind {
            Kind::Order => self.better(
                claim
                    .methods
                    .windows(2)
                    .map(|pair| (pair[0].as_str(), pair[1].as_str())),
            ),
            Kind::Better if claim.than.is_empty() => self.better(rest()),
            Kind::Better => self.better(product()),
            Kind::BestOf if claim.methods.len() > 1 => self.better(rest()),
            Kind::BestOf => {
                let first = methods().next().unwrap_or_default();
                let own = self.find(first).map(|m| m.name.as_str());
                let others = self
                    .setting
                    .methods
                    .iter()
                    .map(|m| m.name.as_str())
                    .filter(|name| Some(*name) != own);
                self.better(others.map(|other| (first, other)))
            }
            Kind::RatioBelow if claim.than.is_empty() => self.own_ratio(Needed::AtMost(bound)),
            Kind::RatioAbove if claim.than.is_empty() => self.own_ratio(Needed::AtLeast(bound)),
            Kind::RatioBelow => self.ratio(product(), Needed::AtMost(bound)),
            Kind::RatioAbove => self.ratio(product(), Needed::AtLeast(bound)),
            Kind::HoldsTo => self.holds_to(claim.value.unwrap_or(metric::KEPT)),
            Kind::Below => self.score(Needed::AtMost(bound), None),
            Kind::Above => self.score(Needed::AtLeast(bound), None),
            Kind::NearChance => match metric::chance(self.setting.task, &claim.metric) {
                None => vec![self.untested(&claim.metric, "guessing has no score")],
                Some(chance) => self.score(Needed::AtMost(bound), Some(chance)),
            },
            Kind::SpreadBelow => self.spread(bound),
            Kind::Improves => self.improves(),
        }
    }

    fn find(&self, name: &str) -> Option<&'s Method> {
        find(self.setting, name, self.aliases)
    }

    fn lengths(&self) -> Vec<usize> {
        let mut lengths: Vec<usize> = self
            .claim
            .lengths
            .iter()
            .flat_map(|l| l.of(self.setting))
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Lengths named one by one that were not tested.
    fn missing_lengths(&self) -> Vec<Comparison> {
        let missing = self
            .claim
            .lengths
            .iter()
            .filter(|l| l.of(self.setting).is_empty());
        missing
            .map(|l| self.untested(&format!("length {l}"), "not tested"))
            .collect()
    }

    fn untested(&self, what: &str, why: &str) -> Comparison {
        let what = text::name(what, 160);
        let text = format!("{what}: {why}");
        Comparison {
            what,
            estimate: None,
            needed: String::new(),
            verdict: Verdict::NotTested,
            mean_agrees: None,
            text,
        }
    }

    /// Of each method and length; a method that is not there is said to be missing once.
    fn each(&self, of: impl Fn(&Method, usize) -> Comparison) -> Vec<Comparison> {
        let mut out = Vec::new();
        for name in &self.claim.methods {
            match self.find(name) {
                None => out.push(self.untested(name, "not tested")),
                Some(method) => out.extend(self.lengths().into_iter().map(|len| of(method, len))),
            }
        }
        out.extend(self.missing_lengths());
        out
    }

    /// Of each pair and length.
    fn pairs<'n>(
        &self,
        pairs: impl Iterator<Item = (&'n str, &'n str)>,
        of: impl Fn(&Method, &Method, usize) -> Comparison,
    ) -> Vec<Comparison> {
        let mut out = Vec::new();
        let mut missing = BTreeSet::new();
        for (a, b) in pairs {
            if let (Some(a), Some(b)) = (self.find(a), self.find(b)) {
                out.extend(self.lengths().into_iter().map(|len| of(a, b, len)));
            }
            missing.extend([a, b].into_iter().filter(|name| self.find(name).is_none()));
        }
        out.extend(
            missing
                .into_iter()
                .map(|name| self.untested(name, "not tested")),
        );
        out.extend(self.missing_lengths());
        out
    }

    fn better<'n>(&self, pairs: impl Iterator<Item = (&'n str, &'n str)>) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let needed = match (metric::lower_is_better(metric), self.claim.value) {
            (true, None) => Needed::Negative,
            (false, None) => Needed::Positive,
            (true, Some(slack)) => Needed::AtMost(slack),
            (false, Some(slack)) => Needed::AtLeast(-slack),
        };
        self.pairs(pairs, |a, b, len| {
            let what = format!("{metric} of {} minus that of {} at {len}", a.name, b.name);
            self.judge(
                what,
                metric,
                &self.setting.difference(a, b, metric, len),
                needed,
            )
        })
    }

    fn ratio<'n>(
        &self,
        pairs: impl Iterator<Item = (&'n str, &'n str)>,
        needed: Needed,
    ) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        self.pairs(pairs, |a, b, len| {
            let what = format!("{metric} of {} over that of {} at {len}", a.name, b.name);
            self.judge(
                what,
                metric::RATIO,
                &self
                    .setting
                    .paired(a, b, metric, len, metric::extrapolation_ratio),
                needed,
            )
        })
    }

    fn own_ratio(&self, needed: Needed) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let at = self.setting.in_length.unwrap_or_default();
        self.each(|method, len| {
            let what = format!("{metric} of {} at {len} over that at {at}", method.name);
            self.judge(
                what,
                metric::RATIO,
                &self.setting.ratio(method, metric, len),
                needed,
            )
        })
    }

    fn holds_to(&self, share: f64) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let Some(longest) = self.lengths().last().copied() else {
            return self.missing_lengths();
        };
        let mut out = Vec::new();
        for name in &self.claim.methods {
            let Some(method) = self.find(name) else {
                out.push(self.untested(name, "not tested"));
                continue;
            };
            for len in self.setting.longer().take_while(|&len| len <= longest) {
                let what = format!(
                    "share of its in-length {metric} that {} keeps at {len}",
                    method.name
                );
                out.push(self.judge(
                    what,
                    metric::RATIO,
                    &self.setting.kept_share(method, metric, len),
                    Needed::AtLeast(share),
                ));
            }
        }
        out
    }

    /// The score itself, or its distance to the level of guessing.
    fn score(&self, needed: Needed, chance: Option<f64>) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        self.each(|method, len| {
            let (what, point) = match chance {
                None => (
                    format!("{metric} of {} at {len}", method.name),
                    self.setting.score(method, metric, len),
                ),
                Some(c) => (
                    format!(
                        "distance of {metric} of {} at {len} to chance ({})",
                        method.name,
                        metric::number(c, metric::decimals(metric, c))
                    ),
                    self.setting.distance(method, metric, len, c),
                ),
            };
            self.judge(what, metric, &point, needed)
        })
    }

    fn spread(&self, bound: f64) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let (found, missing): (Vec<_>, Vec<_>) = self
            .claim
            .methods
            .iter()
            .map(|name| (name, self.find(name)))
            .partition(|m| m.1.is_some());
        let methods: Vec<&Method> = found.into_iter().filter_map(|m| m.1).collect();
        let mut out: Vec<Comparison> = missing
            .into_iter()
            .map(|m| self.untested(m.0, "not tested"))
            .collect();
        if methods.len() > 1 {
            for len in self.lengths() {
                let names: Vec<&str> = methods.iter().map(|m| m.name.as_str()).collect();
                let what = format!(
                    "largest over smallest {metric} of {} at {len}",
                    names.join(", ")
                );
                out.push(self.judge(
                    what,
                    metric::RATIO,
                    &self.setting.spread(&methods, metric, len),
                    Needed::AtMost(bound),
                ));
            }
        }
        out.extend(self.missing_lengths());
        out
    }

    fn improves(&self) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let needed = if metric::lower_is_better(metric) {
            Needed::Negative
        } else {
            Needed::Positive
        };
        let mut out = Vec::new();
        for name in &self.claim.methods {
            let Some(method) = self.find(name) else {
                out.push(self.untested(name, "not tested"));
                continue;
            };
            for pair in self.lengths().windows(2) {
                let what = format!(
                    "{metric} of {} at {} minus that at {}",
                    method.name, pair[1], pair[0]
                );
                out.push(self.judge(
                    what,
                    metric,
                    &self.setting.step(method, metric, pair[0], pair[1]),
                    needed,
                ));
            }
        }
        out
    }

    fn judge(&self, what: String, metric: &str, point: &Point, needed: Needed) -> Comparison {
        let shown = crate::table::point_text(metric, point);
        let n = point.values.len();
        let mean_agrees = point
            .estimate
            .as_ref()
            .map(|estimate| needed.holds(estimate.mean));
        let side = if mean_agrees == Some(true) {
            "agrees"
        } else {
            "does not"
        };
        let (verdict, why) = match &point.estimate {
            None if self.claim.or_unsupported
                && point.absent.iter().all(|a| *a == Absent::Unsupported) =>
            {
                (Verdict::Agrees, "no value there".to_string())
            }
            None if point.absent.contains(&Absent::Unconverged) => {
                (Verdict::Undecided, "not converged".into())
            }
            None => (Verdict::NotTested, "no number".into()),
            Some(estimate) => match estimate.interval {
                None => (Verdict::Undecided, format!("a single seed, which {side}")),
                Some((0.0, 0.0)) if matches!(needed, Needed::Negative | Needed::Positive) => {
                    (Verdict::Undecided, format!("n = {n}, no difference"))
                }
                Some((low, high)) => match (needed.holds(low), needed.holds(high)) {
                    (true, true) => (Verdict::Agrees, format!("n = {n}")),
                    (false, false) => (Verdict::Disagrees, format!("n = {n}")),
                    _ => (
                        Verdict::Undecided,
                        format!("n = {n}, inside the interval; the mean {side}"),
                    ),
                },
            },
        };
        let text = format!("{what}: {shown}, needed {needed} ({why})");
        Comparison {
            what,
            estimate: point.estimate,
            needed: needed.to_string(),
            verdict,
            mean_agrees,
            text,
        }
    }
}

impl Kind {
    fn has_bound(self) -> bool {
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

/// How many claims came out how, in one sentence.
pub(crate) fn counts(outcomes: &[Outcome]) -> String {
    let count = |verdict: Verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let [agree, disagree, undecided, untested] = [
        Verdict::Agrees,
        Verdict::Disagrees,
        Verdict::Undecided,
        Verdict::NotTested,
    ]
    .map(count);
    let leaning = outcomes
        .iter()
        .filter(|o| {
            o.verdict == Verdict::Undecided && o.means().is_some_and(|[agree, all]| agree == all)
        })
        .count();
    let leaning = if undecided == 0 {
        String::new()
    } else {
        format!(" (by their means alone {leaning} would agree)")
    };
    format!(
        "{agree} agree, {disagree} disagree, {undecided} undecided{leaning}, {untested} not \
         tested."
    )
}
