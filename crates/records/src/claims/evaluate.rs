//! Evaluation of claims: each claim becomes comparisons of a number with a bound.

mod spread;

use super::claim::{Claim, Claims, Kind};
use super::experiment_setting::{ExperimentSetting, find_method, is_experiment, is_task};
use super::judged::{Limits, judged};
use super::limits;
use super::needed::Needed;
use super::verdict::{Comparison, Outcome, Verdict, all_of, step_down};
use crate::analysis::point::{Absent, Point, point_text, point_text_beside};
use crate::analysis::setting::{Method, Setting};
use crate::metric;
use crate::stats::Scale;
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

impl Claims {
    /// Evaluates every claim in every experiment and setting that has its methods. At least one
    /// outcome for each claim, in their order.
    pub fn evaluate(&self, settings: &[ExperimentSetting<'_>]) -> Vec<Outcome> {
        let mut out = Vec::new();
        for (at, claim) in self.claims.iter().enumerate() {
            let before = out.len();
            let mut unanswered = Vec::new();
            let has_metric = |setting: &Setting<'_>| {
                let mut known = setting.all_metrics.iter();
                known.any(|metric| *metric == claim.metric)
            };
            let is_here =
                |p: &&ExperimentSetting<'_>| claim.is_about(&p.setting) && has_metric(&p.setting);
            for place in settings.iter().filter(is_here) {
                let evaluation = Evaluation {
                    setting: &place.setting,
                    claim,
                    aliases: &self.aliases,
                };
                let mut numbers = evaluation.comparisons();
                step_down(&mut numbers);
                let verdict = all_of(numbers.iter().map(|n| n.verdict));
                let has_number = numbers.iter().any(|n| n.estimate.is_some());
                if verdict != Verdict::NotTested || has_number {
                    out.push(Outcome {
                        claim: at,
                        place: place.name.clone(),
                        verdict,
                        numbers,
                    });
                } else {
                    // Of several places the first says why.
                    unanswered = if unanswered.is_empty() {
                        numbers
                    } else {
                        unanswered
                    };
                }
            }
            if out.len() == before {
                if let Some(lacks) = claim.lacks(settings, &self.aliases) {
                    unanswered = vec![untested(&lacks, "")];
                } else if unanswered.is_empty() {
                    unanswered = vec![untested("no number", "")];
                }
                out.push(Outcome {
                    claim: at,
                    place: String::new(),
                    verdict: Verdict::NotTested,
                    numbers: unanswered,
                });
            }
        }
        out
    }
}

/// No number; `why` is empty where the records lack the method or the length.
pub(super) fn untested(what: &str, why: &str) -> Comparison {
    Comparison {
        what: text::name(what, 160),
        words: text::name(what, 160),
        estimate: None,
        needed: String::new(),
        verdict: Verdict::NotTested,
        mean_agrees: None,
        impossible: None,
        shown: String::new(),
        why: why.to_owned(),
        bound: None,
    }
}

impl Claim {
    pub(super) fn is_about(&self, setting: &Setting<'_>) -> bool {
        is_task(&self.tasks, setting)
            && is_experiment(self.experiment.as_ref(), setting)
            && (self.train_lens.is_empty() || self.train_lens.contains(&setting.task.train_len))
    }
}

/// The evaluation of a claim in one setting.
pub(super) struct Evaluation<'a, 'r> {
    pub(super) setting: &'a Setting<'r>,
    pub(super) claim: &'a Claim,
    aliases: &'a BTreeMap<String, Vec<String>>,
}

/// The name of a method: for programs, or for people.
type Name = fn(&Method) -> &str;

/// How a difference of a metric is named: `minus that`.
fn than(metric: &str) -> &'static str {
    match metric::scale(metric) {
        Scale::Linear => "minus that",
        Scale::Log => "relative to that",
    }
}

impl<'s> Evaluation<'s, '_> {
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
        // NaN is compared with nothing: a kind with a bound and no value is untested.
        let bound = claim.value.unwrap_or(f64::NAN);
        if claim.value.is_none() && claim.kind.has_bound() {
            return vec![untested(&claim.metric, "no `value` is given")];
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
            Kind::Below => self.score(Needed::AtMost(bound), |_| None),
            Kind::Above => self.score(Needed::AtLeast(bound), |_| None),
            Kind::NearChance if self.has_chance() => self.score(Needed::AtMost(bound), |method| {
                self.setting.chance_of(method, &claim.metric)
            }),
            Kind::NearChance => vec![untested(&claim.metric, "guessing has no score")],
            Kind::SpreadBelow => self.spread(bound),
            Kind::Improves => self.improves(),
        }
    }

    fn find(&self, name: &str) -> Option<&'s Method> {
        find_method(self.setting, name, self.aliases)
    }

    /// A comparison of each method and length.
    fn each(&self, of: impl Fn(&Method, usize) -> Comparison) -> Vec<Comparison> {
        self.each_method(|method| {
            let lengths = self.lengths(&[method]).into_iter();
            lengths.map(|len| of(method, len)).collect()
        })
    }

    /// The comparisons of each method, then the lengths that were not tested; a missing method is
    /// named once.
    fn each_method(&self, of: impl Fn(&Method) -> Vec<Comparison>) -> Vec<Comparison> {
        let names = self.claim.methods.iter();
        let comparisons = names.flat_map(|name| match self.find(name) {
            None => vec![untested(name, "")],
            Some(method) => of(method),
        });
        comparisons.chain(self.missing_lengths()).collect()
    }

    /// A comparison of each pair and length.
    fn pairs<'n>(
        &self,
        pairs: impl Iterator<Item = (&'n str, &'n str)>,
        of: impl Fn(&Method, &Method, usize) -> Comparison,
    ) -> Vec<Comparison> {
        let mut out = Vec::new();
        let mut missing = BTreeSet::new();
        for (a, b) in pairs {
            if let (Some(first), Some(second)) = (self.find(a), self.find(b))
                && std::ptr::eq(first, second)
            {
                let what = format!("{a} and {b}");
                out.push(untested(&what, "both names are of one method"));
            } else if let (Some(a), Some(b)) = (self.find(a), self.find(b)) {
                let lengths = self.lengths(&[a, b]).into_iter();
                let lengths = lengths.filter(|len| !self.is_rival_itself(a, b, *len));
                out.extend(lengths.map(|len| of(a, b, len)));
            }
            missing.extend([a, b].into_iter().filter(|name| self.find(name).is_none()));
        }
        out.extend(missing.into_iter().map(|name| untested(name, "")));
        out.extend(self.missing_lengths());
        out
    }

    /// Whether `b` is `a` itself: a variant of the same weights with the same scores, such as a
    /// scaling that does not scale at this length. No method is better than itself.
    fn is_rival_itself(&self, a: &Method, b: &Method, len: usize) -> bool {
        let values = |method| self.setting.point(method, &self.claim.metric, len).values;
        self.claim.kind == Kind::BestOf && a.group == b.group && values(a) == values(b)
    }

    fn better<'n>(&self, pairs: impl Iterator<Item = (&'n str, &'n str)>) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        // A value is slack: by so much the first method may be worse.
        let needed = match (metric::lower_is_better(metric), self.claim.value) {
            (_, None) => Needed::better(metric),
            (true, Some(slack)) => Needed::AtMost(slack),
            (false, Some(slack)) => Needed::AtLeast(-slack),
        };
        let score = |method: &Method, len: usize| {
            let point = self.setting.score(method, metric, len);
            (point, self.setting.rows(method, metric, len))
        };
        self.pairs(pairs, |a, b, len| {
            let than = than(metric);
            let comparison = self.judge(
                &[a, b],
                &|of| {
                    format!(
                        "{metric} of {} {than} of {} at {}",
                        of(a),
                        of(b),
                        self.at(len)
                    )
                },
                (metric::of_difference(metric), self.limits(a, b, len)),
                &self.setting.difference(a, b, metric, len),
                needed,
            );
            let is_too_easy = comparison.verdict == Verdict::Undecided
                && [a, b].iter().all(|of| {
                    let (point, rows) = score(of, len);
                    limits::is_at_ceiling(metric, &point, rows)
                });
            match is_too_easy && self.claim.value.is_none() {
                true => comparison.too_easy(),
                false => comparison,
            }
        })
    }

    fn ratio<'n>(
        &self,
        pairs: impl Iterator<Item = (&'n str, &'n str)>,
        needed: Needed,
    ) -> Vec<Comparison> {
        self.pairs(pairs, |a, b, len| {
            self.ratio_at(a, b, len, needed, self.limits(a, b, len))
        })
    }

    fn ratio_at(
        &self,
        a: &Method,
        b: &Method,
        len: usize,
        needed: Needed,
        limits: Limits,
    ) -> Comparison {
        let metric = &self.claim.metric;
        self.judge(
            &[a, b],
            &|of| {
                format!(
                    "{metric} of {} over that of {} at {}",
                    of(a),
                    of(b),
                    self.at(len)
                )
            },
            (metric::RATIO, limits),
            &self.setting.over(a, b, metric, len),
            needed,
        )
    }

    fn own_ratio(&self, needed: Needed) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let at = self.setting.in_length.unwrap_or_default();
        self.each(|method, len| {
            let trained = self.setting.trained(method);
            let whose = |of: Name| match self.setting.is_variant(method) {
                true => format!(" of {}", of(trained)),
                false => String::new(),
            };
            self.judge(
                &[method],
                &|of| {
                    let whose = whose(of);
                    format!(
                        "{metric} of {} at {} over that{whose} at {}",
                        of(method),
                        self.at(len),
                        self.at(at)
                    )
                },
                (metric::RATIO, Limits::of(Some(self.worst()))),
                &self.setting.ratio(method, metric, len),
                needed,
            )
        })
    }

    fn holds_to(&self, share: f64) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let kept = |method: &Method, len: usize| {
            self.judge(
                &[method],
                &|of| {
                    let of = of(method);
                    format!(
                        "share of its in-length {metric} that {of} keeps at {}",
                        self.at(len)
                    )
                },
                (metric::RATIO, Limits::of(Some(f64::NEG_INFINITY))),
                &self.setting.kept_share(method, metric, len),
                Needed::AtLeast(share),
            )
        };
        self.each_method(|method| {
            // Every tested length up to the longest one named, also those between.
            let longest = self.lengths(&[method]).last().copied().unwrap_or(0);
            let lengths = self.setting.longer().take_while(|&len| len <= longest);
            let lengths = lengths.filter(|&len| len == longest || self.is_tested(method, len));
            lengths.map(|len| kept(method, len)).collect()
        })
    }

    /// Whether the score of guessing is known for every method.
    fn has_chance(&self) -> bool {
        let mut methods = self.setting.methods.iter();
        let metric = &self.claim.metric;
        methods.all(|method| self.setting.chance_of(method, metric).is_some())
    }

    /// The score of each method, or its distance to the score of guessing where `chance` has one.
    fn score(&self, needed: Needed, chance: impl Fn(&Method) -> Option<f64>) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        self.each(|method, len| {
            let chance = chance(method);
            let point = match chance {
                None => self.setting.score(method, metric, len),
                Some(chance) => self.setting.distance(method, metric, len, chance),
            };
            let what = |of: Name| {
                let score = format!("{metric} of {} at {}", of(method), self.at(len));
                let level = |chance| metric::number(chance, metric::decimals(metric, chance));
                chance.map_or(score.clone(), |chance| {
                    format!("distance of {score} to chance ({})", level(chance))
                })
            };
            let rows = self.setting.rows(method, metric, len);
            // No share is farther from guessing than that of a model that is never right.
            let unsupported = match chance {
                None => self.worst(),
                Some(chance) if metric::is_share(metric) => chance,
                Some(_) => f64::INFINITY,
            };
            let limits = Limits {
                lost: chance.is_none().then(|| self.worst()),
                unsupported: Some(unsupported),
            };
            Comparison {
                impossible: limits::impossible((metric, rows), &point, needed, chance),
                ..self.judge(&[method], &what, (metric, limits), &point, needed)
            }
        })
    }

    fn improves(&self) -> Vec<Comparison> {
        let metric = &self.claim.metric;
        let needed = Needed::better(metric);
        let step = |method: &Method, shorter: usize, longer: usize| {
            let than = than(metric);
            self.judge(
                &[method],
                &|of| {
                    let of = of(method);
                    format!(
                        "{metric} of {of} at {} {than} at {}",
                        self.at(longer),
                        self.at(shorter)
                    )
                },
                (metric::of_difference(metric), Limits::of(None)),
                &self.setting.step(method, metric, shorter, longer),
                needed,
            )
        };
        self.each_method(|method| {
            let lengths = self.written(&[method]);
            let pairs = lengths.windows(2);
            pairs.map(|pair| step(method, pair[0], pair[1])).collect()
        })
    }

    /// The worst that a score can be.
    fn worst(&self) -> f64 {
        match metric::lower_is_better(&self.claim.metric) {
            true => f64::INFINITY,
            false => f64::NEG_INFINITY,
        }
    }

    /// What scores of `a` and `b` that are not numbers would make of a score of `a` against one of
    /// `b`; nothing where both have such scores.
    fn limits(&self, a: &Method, b: &Method, len: usize) -> Limits {
        let absent = |method| self.setting.score(method, &self.claim.metric, len).absent;
        let (of_a, of_b) = (absent(a), absent(b));
        let side =
            |has: &dyn Fn(&Absent) -> bool| match (of_a.iter().any(has), of_b.iter().any(has)) {
                (true, false) => Some(self.worst()),
                (false, true) => Some(-self.worst()),
                _ => None,
            };
        Limits {
            lost: side(&|absent| absent.is_lost()),
            unsupported: side(&|absent| *absent == Absent::Unsupported),
        }
    }

    /// The verdict on a number about `methods`. `what` returns the description of the number, given
    /// how to name a method.
    fn judge(
        &self,
        methods: &[&Method],
        what: &dyn Fn(Name) -> String,
        (metric, limits): (&str, Limits),
        point: &Point,
        needed: Needed,
    ) -> Comparison {
        let has_metric = self.setting.all_metrics.contains(&self.claim.metric);
        let unconverged = (has_metric && point.absent.contains(&Absent::Unconverged))
            .then(|| self.setting.unconverged(methods));
        let limits = Limits {
            unsupported: limits.unsupported.filter(|_| self.claim.or_unsupported),
            ..limits
        };
        let judged = judged(point, needed, (metric, limits), unconverged);
        Comparison {
            what: what(|method| &method.name),
            words: what(|method| &method.title),
            estimate: point.estimate,
            needed: needed.text(metric),
            verdict: judged.verdict,
            mean_agrees: point.estimate.map(|estimate| needed.holds(estimate.mean)),
            impossible: None,
            shown: match needed {
                Needed::AtMost(bound) | Needed::AtLeast(bound) => {
                    point_text_beside(metric, point, bound)
                }
                Needed::Negative(_) | Needed::Positive(_) => point_text(metric, point),
            },
            why: judged.why,
            bound: (!judged.is_open).then_some(needed),
        }
    }
}
