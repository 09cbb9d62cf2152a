//! How far each seed of a method keeps its own score.

use super::groups::Run;
use super::point::{Absent, value_at};
use super::setting::{Method, Setting};
use crate::metric;

/// How far one run keeps its in-length score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeedReach {
    /// The longest test length up to which every score is kept, over the training length: 1 where
    /// the first longer length loses it, 0 for a variant that has lost it in length.
    pub times: f64,
    /// Whether it was tested at no longer length.
    pub is_longest: bool,
}

impl Setting<'_> {
    /// The reach of each seed that learned the task, from least to most, over the lengths at which
    /// it was tested. As in [`reach`](Self::reach), a length at which a seed diverged, or that the
    /// encoding does not support, is lost. A seed without a number in length is left out.
    fn reach_by_seed(&self, method: &Method) -> Vec<SeedReach> {
        let failed = self.failed(method);
        let runs = self.groups[method.group].runs.iter();
        let learned = runs.filter(|run| !failed.contains(&run.seed));
        let mut all: Vec<SeedReach> = learned
            .filter_map(|run| self.reach_of(run, method))
            .collect();
        let order = |a: &SeedReach, b: &SeedReach| {
            let by_times = a.times.total_cmp(&b.times);
            by_times.then(a.is_longest.cmp(&b.is_longest))
        };
        all.sort_by(order);
        all
    }

    fn reach_of(&self, run: &Run<'_>, method: &Method) -> Option<SeedReach> {
        let metric = self.lead();
        let at = |method: &Method, len| value_at(run, &method.variant, metric, len).ok();
        let base = at(self.trained(method), self.in_length?)?;
        let own = at(method, self.in_length?)?;
        if !metric::is_kept(metric, own, base) {
            return Some(SeedReach {
                times: 0.0,
                is_longest: false,
            });
        }
        let mut times = 1.0;
        for len in self.longer() {
            let is_kept = match value_at(run, &method.variant, metric, len) {
                Err(absent) if absent.is_untested() => continue,
                Err(_) => false,
                Ok(there) => metric::is_kept(metric, there, base),
            };
            if !is_kept {
                return Some(SeedReach {
                    times,
                    is_longest: false,
                });
            }
            times = len as f64 / self.task.train_len.max(1) as f64;
        }
        Some(SeedReach {
            times,
            is_longest: true,
        })
    }

    /// The reach by seed as text: `4x` where all seeds agree, else the median (of an even number
    /// the lower one of the middle), the least and the most, `4x [2x, ≥ 16x]`; with `, 4 of 5`
    /// where not every seed learned the task.
    pub fn reach_by_seed_text(&self, method: &Method) -> String {
        let all = self.reach_by_seed(method);
        let learned = self.learned(method);
        if 2 * learned.count() < learned.seeds.len() {
            return format!("{} ({})", Absent::Unconverged.name(), learned.ratio());
        }
        let [Some(least), Some(most)] = [all.first(), all.last()] else {
            return "-".into();
        };
        let text = |reach: &SeedReach| match reach {
            SeedReach { times, .. } if *times == 0.0 => "none".into(),
            SeedReach { is_longest, times } => {
                let least = if *is_longest { "≥ " } else { "" };
                format!("{least}{}", crate::text::times(*times))
            }
        };
        let median = &all[(all.len() - 1) / 2];
        let spread = match least == most {
            true => String::new(),
            false => format!(" [{}, {}]", text(least), text(most)),
        };
        let count = match learned.is_partial() {
            true => format!(", {}", learned.ratio()),
            false => String::new(),
        };
        text(median) + &spread + &count
    }
}
