//! Points of a setting: scores, ratios and differences of methods at test lengths.

use super::groups::Run;
use super::point::{Absent, Point, value_at};
use super::setting::{Method, Setting};
use crate::metric;
use crate::stats::{self, Estimate, OverText, Scale};
use std::collections::BTreeSet;

impl Setting<'_> {
    /// A metric of a method at a test length, over its seeds.
    pub fn point(&self, method: &Method, metric: &str, len: usize) -> Point {
        let scale = metric::scale(metric);
        self.with_rows(
            self.point_by(method, scale, |run| {
                value_at(run, &method.variant, metric, len)
            }),
            method,
            metric,
            len,
        )
    }

    /// Gives the mean of a share the interval over seeds and test rows.
    fn with_rows(&self, mut point: Point, method: &Method, metric: &str, len: usize) -> Point {
        if metric::is_share(metric) {
            let values: Vec<f64> = point.values.iter().map(|&(_, value)| value).collect();
            point.estimate = Estimate::of_share(&values, self.rows(method, metric, len));
        }
        point
    }

    /// Test rows behind a share: all seeds are tested on the same ones. If records differ, the
    /// fewest.
    pub fn rows(&self, method: &Method, metric: &str, len: usize) -> u64 {
        let runs = self.groups[method.group].runs.iter();
        runs.filter_map(|run| metric::rows(run.row(&method.variant, len)?, metric))
            .min()
            .unwrap_or(1)
    }

    /// Metric relative to the in-length value of the same run's trained encoding.
    pub fn ratio(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.to_in_length(method, metric, len, metric::extrapolation_ratio)
    }

    /// The share of the in-length score of its trained encoding that a run keeps.
    pub fn kept_share(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.to_in_length(method, metric, len, |there, here| {
            metric::kept_share(metric, there, here)
        })
    }

    /// `of` a run's score at a length and that of its trained encoding in length.
    fn to_in_length(
        &self,
        method: &Method,
        metric: &str,
        len: usize,
        of: impl Fn(f64, f64) -> Option<f64>,
    ) -> Point {
        let point = self.extrapolated(method, len, metric::scale(metric), |run| {
            let there = value_at(run, &method.variant, metric, len)?;
            of(there, self.value_in_length(run, method, metric)?).ok_or(Absent::Undefined)
        });
        let trained = self.trained(method);
        match self.in_length {
            Some(here) => self.with_ratio(point, metric, (method, len), (trained, here)),
            None => point,
        }
    }

    /// Mean over log2 of the length, from the in-length one to the longest tested, of the share of
    /// the in-length score.
    pub fn kept_area(&self, method: &Method) -> Point {
        let metric = self.lead();
        self.extrapolated(method, usize::MAX, Scale::Linear, |run| {
            let here = self.value_in_length(run, method, metric)?;
            let shares: Result<Vec<(f64, f64)>, Absent> = self
                .lengths_from_in_length()
                .map(|len| {
                    let there = value_at(run, &method.variant, metric, len)?;
                    metric::kept_share(metric, there, here)
                        .map(|share| (len as f64, share))
                        .ok_or(Absent::Undefined)
                })
                .collect();
            stats::mean_over_log2(&shares?).ok_or(Absent::Missing)
        })
    }

    /// One method less another, seed by seed, for the seeds that both have, by
    /// [`Estimate::of_difference`] on the metric's scale.
    pub fn difference(&self, method: &Method, other: &Method, metric: &str, len: usize) -> Point {
        let point = self.paired(method, other, metric, len, |a, b| Some(a - b));
        self.with_difference(point, metric, (method, len), (other, len))
    }

    /// The difference of two scores, each of a method at a length; that of shares with the interval
    /// over seeds and test rows.
    fn with_difference(
        &self,
        mut point: Point,
        metric: &str,
        of: (&Method, usize),
        than: (&Method, usize),
    ) -> Point {
        let (pairs, rows) = self.pairs(&point, metric, of, than);
        point.estimate = difference_of(metric, &pairs, rows);
        over_text(
            &mut point,
            metric,
            (self, of.0, of.1),
            (self, than.0, than.1),
        );
        point
    }

    /// The scores of each seed of a point, and the test rows behind either side.
    fn pairs(
        &self,
        point: &Point,
        metric: &str,
        of: (&Method, usize),
        than: (&Method, usize),
    ) -> (Vec<(f64, f64)>, (u64, u64)) {
        let value = |seed: u64, (method, len): (&Method, usize)| {
            let run = self.groups[method.group].run_of(seed)?;
            value_at(run, &method.variant, metric, len).ok()
        };
        let seeds = point.values.iter();
        let pairs = seeds.filter_map(|&(seed, _)| Some((value(seed, of)?, value(seed, than)?)));
        let rows = |(method, len): (&Method, usize)| self.rows(method, metric, len);
        (pairs.collect(), (rows(of), rows(than)))
    }

    /// One method over another, seed by seed, for the seeds that both have.
    pub fn over(&self, method: &Method, other: &Method, metric: &str, len: usize) -> Point {
        let point = self.paired(method, other, metric, len, metric::extrapolation_ratio);
        self.with_ratio(point, metric, (method, len), (other, len))
    }

    /// The ratio of two scores, each of a method at a length: that of shares with the interval over
    /// seeds and test rows, and what is a difference in nats with that over seeds and text.
    fn with_ratio(
        &self,
        mut point: Point,
        metric: &str,
        of: (&Method, usize),
        than: (&Method, usize),
    ) -> Point {
        // No share is better if it is smaller, so this is also what a run keeps.
        if metric::is_share(metric) {
            let (pairs, rows) = self.pairs(&point, metric, of, than);
            if self.is_one_test(of, than) {
                return point;
            }
            point.estimate = Estimate::of_share_ratio(&pairs, rows);
        } else if metric::scale(metric) == Scale::Log {
            over_text(
                &mut point,
                metric,
                (self, of.0, of.1),
                (self, than.0, than.1),
            );
        }
        point
    }

    /// Whether two scores are one test of the same weights: a variant may change nothing.
    fn is_one_test(&self, of: (&Method, usize), than: (&Method, usize)) -> bool {
        let variants = &self.groups[of.0.group].variants;
        let tested = |(method, len): (&Method, usize)| {
            let variant = variants.iter().find(|one| one.name == method.variant);
            let definition = variant.and_then(|one| one.by_len.get(&len));
            definition.map(|one| (one.encoding, one.positions))
        };
        let is_equal = |a: (&Method, usize), b: (&Method, usize)| {
            a.0.variant == b.0.variant || tested(a).is_some() && tested(a) == tested(b)
        };
        of.0.group == than.0.group && of.1 == than.1 && is_equal(of, than)
    }

    /// `of` the values of two methods for each seed that both have.
    pub fn paired(
        &self,
        method: &Method,
        other: &Method,
        metric: &str,
        len: usize,
        of: impl Fn(f64, f64) -> Option<f64>,
    ) -> Point {
        let others = &self.groups[other.group];
        let scale = metric::scale(metric);
        // `extrapolated` checks the first method only.
        if self.is_extrapolation_of_unconverged(other, len) {
            return self.point_by(method, scale, |_| Err(Absent::Unconverged));
        }
        let failed = if len > self.task.train_len {
            &self.failed(method) | &self.failed(other)
        } else {
            BTreeSet::new()
        };
        let mut point = self.extrapolated(method, len, scale, |run| {
            let beside = others
                .run_of(run.seed)
                .filter(|run| !failed.contains(&run.seed))
                .ok_or(Absent::Missing)?;
            let there = value_at(run, &method.variant, metric, len)?;
            of(there, value_at(beside, &other.variant, metric, len)?).ok_or(Absent::Undefined)
        });
        // Runs that could give a value: one for each seed of both methods.
        let seeds = |method: &Method| {
            let runs = self.groups[method.group].runs.iter();
            runs.map(|r| r.seed).collect::<BTreeSet<u64>>()
        };
        let (own, theirs) = (seeds(method), seeds(other));
        let both = own.intersection(&theirs);
        let (left_out, counted): (Vec<u64>, Vec<u64>) = both.partition(|s| failed.contains(s));
        (point.runs, point.failed) = (counted.len(), left_out.len());
        point
    }

    /// The score, which a method that has not converged does not have past the training length.
    pub fn score(&self, method: &Method, metric: &str, len: usize) -> Point {
        let point = self.extrapolated(method, len, metric::scale(metric), |run| {
            value_at(run, &method.variant, metric, len)
        });
        self.with_rows(point, method, metric, len)
    }

    /// Distance of the score to a fixed value: of the mean for shares and on a logarithmic scale,
    /// of each run otherwise.
    pub fn distance(&self, method: &Method, metric: &str, len: usize, to: f64) -> Point {
        let scale = metric::scale(metric);
        if scale == Scale::Linear && !metric::is_share(metric) {
            return self.extrapolated(method, len, scale, |run| {
                Ok((value_at(run, &method.variant, metric, len)? - to).abs())
            });
        }
        let mut point = self.score(method, metric, len);
        point.estimate = point.estimate.map(|estimate| estimate.distance_to(to));
        point
    }

    /// A run's score at one length minus that at another.
    pub fn step(&self, method: &Method, metric: &str, from: usize, to: usize) -> Point {
        let point = self.extrapolated(method, to.max(from), Scale::Linear, |run| {
            Ok(value_at(run, &method.variant, metric, to)?
                - value_at(run, &method.variant, metric, from)?)
        });
        self.with_difference(point, metric, (method, to), (method, from))
    }

    /// The in-length score's length and every longer one.
    fn lengths_from_in_length(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let from = self.in_length.unwrap_or(usize::MAX);
        self.lengths.iter().copied().filter(move |&l| l >= from)
    }

    /// The in-length value that all variants of the same weights are measured against.
    fn value_in_length(&self, run: &Run<'_>, method: &Method, metric: &str) -> Result<f64, Absent> {
        self.in_length.map_or(Err(Absent::Missing), |len| {
            value_at(run, &self.trained(method).variant, metric, len)
        })
    }

    /// A point about a length past training, which methods that have not learned the task do not
    /// have. For other methods, the seeds that have not learned it are left out.
    fn extrapolated(
        &self,
        method: &Method,
        len: usize,
        scale: Scale,
        value: impl Fn(&Run<'_>) -> Result<f64, Absent>,
    ) -> Point {
        if len <= self.task.train_len {
            return self.point_by(method, scale, value);
        }
        if self.is_extrapolation_of_unconverged(method, len) {
            return self.point_by(method, scale, |_| Err(Absent::Unconverged));
        }
        let failed = self.failed(method);
        self.point_without(&failed, method, scale, value)
    }

    /// The score of the seeds that have learned the task, at any length.
    pub fn of_learned(&self, method: &Method, metric: &str, len: usize) -> Point {
        let failed = self.failed(method);
        let point = self.point_without(&failed, method, metric::scale(metric), |run| {
            value_at(run, &method.variant, metric, len)
        });
        self.with_rows(point, method, metric, len)
    }

    fn point_by(
        &self,
        method: &Method,
        scale: Scale,
        value: impl Fn(&Run<'_>) -> Result<f64, Absent>,
    ) -> Point {
        self.point_without(&BTreeSet::new(), method, scale, value)
    }

    /// A point of all runs but those of some seeds.
    fn point_without(
        &self,
        failed: &BTreeSet<u64>,
        method: &Method,
        scale: Scale,
        value: impl Fn(&Run<'_>) -> Result<f64, Absent>,
    ) -> Point {
        let runs = &self.groups[method.group].runs;
        let mut point = Point::default();
        for run in runs {
            if failed.contains(&run.seed) {
                point.failed += 1;
                continue;
            }
            point.runs += 1;
            match value(run) {
                Ok(value) => point.values.push((run.seed, value)),
                Err(absent) => {
                    point.absent.insert(absent);
                }
            }
        }
        let values: Vec<f64> = point.values.iter().map(|&(_, value)| value).collect();
        point.estimate = Estimate::of(scale, &values);
        point
    }
}

/// The mean difference of pairs of scores: on the metric's scale, and for shares with the interval
/// over seeds and `rows` of each side.
pub fn difference_of(metric: &str, pairs: &[(f64, f64)], rows: (u64, u64)) -> Option<Estimate> {
    if metric::is_share(metric) {
        Estimate::of_share_difference(pairs, rows)
    } else {
        Estimate::of_difference(metric::scale(metric), pairs)
    }
}

/// A method of a setting at a test length.
pub type Scored<'s, 'a> = (&'s Setting<'a>, &'s Method, usize);

/// Gives a difference between two scores on the same text the interval over seeds and text, where
/// the losses of its blocks are recorded for both and every seed of the point. Blocks of tokens of
/// different sizes are not the same text.
pub fn over_text(point: &mut Point, metric: &str, of: Scored<'_, '_>, than: Scored<'_, '_>) {
    let [own, other] = [of, than].map(|(setting, m, _)| &setting.groups[m.group].runs[0].task);
    let is_same = own.bytes_per_token == other.bytes_per_token;
    let per_nat = metric::per_nat(own, metric).filter(|_| is_same);
    let text = per_nat.and_then(|per_nat| {
        let blocks = block_differences(point, of, than)?;
        OverText::of(&blocks.iter().map(|nats| per_nat * nats).collect::<Vec<_>>())
    });
    if let Some(text) = text {
        point.estimate = point.estimate.map(|estimate| estimate.over(text));
    }
}

/// By block of the text, one loss less the other, the mean over the seeds of a point.
fn block_differences(point: &Point, of: Scored<'_, '_>, than: Scored<'_, '_>) -> Option<Vec<f64>> {
    let seeds = point.values.len() as f64;
    let mut sums: Vec<f64> = Vec::new();
    for &(seed, _) in &point.values {
        let (a, b) = (blocks(seed, of)?, blocks(seed, than)?);
        if sums.is_empty() {
            sums = vec![0.0; a.len()];
        }
        if a.len() != sums.len() || b.len() != sums.len() {
            return None;
        }
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += (a - b) / seeds;
        }
    }
    Some(sums)
}

fn blocks<'s>(seed: u64, (setting, method, len): Scored<'s, '_>) -> Option<&'s [f64]> {
    let run = setting.groups[method.group].run_of(seed)?;
    Some(&run.row(&method.variant, len)?.loss_by_block)
}
