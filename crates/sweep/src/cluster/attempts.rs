//! How often a run of a cluster was started, and how often without getting any further, by the
//! events of its task. A run that is requeued for ever costs more than one that fails.

use crate::cluster::events::{Process, Taken, What};
use std::collections::BTreeMap;
use support::exit::{Exit, Failure};

/// Attempts in a row without a new checkpoint after which a run has failed.
pub const MAX_IDLE: u32 = 5;

/// The attempts at a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempts {
    /// All attempts.
    pub count: u32,
    /// Where the first of them ran.
    pub first: Taken,
    /// How many of the last ones began where the one before had.
    idle: u32,
    /// The submission and the step that the last one began at.
    last: (usize, u64),
}

impl Attempts {
    /// These and one more of a process, which begins at the newest checkpoint.
    ///
    /// # Errors
    ///
    /// [`Exit::SomeFailed`] if too many have begun at the same step.
    pub fn with(&self, step: u64, here: &Taken) -> Result<Self, Failure> {
        let (before, began) = self.last;
        let is_anew = self.count == 0 || before != here.generation || step > began;
        let idle = if is_anew { 0 } else { self.idle + 1 };
        if idle >= MAX_IDLE {
            return Err(Failure::new(
                Exit::SomeFailed,
                format!(
                    "no progress: {MAX_IDLE} attempts began at step {step} and none wrote a new \
                     checkpoint"
                ),
            )
            .with_help(
                "`longreach submit --again DIR --only failed` tries other nodes; a longer --time \
                 or a shorter --checkpoint-every needs a submission into another directory",
            ));
        }
        let first = if self.count == 0 { here } else { &self.first };
        Ok(Self {
            count: self.count + 1,
            first: first.clone(),
            idle,
            last: (here.generation, step),
        })
    }
}

/// The attempts at the runs of a task that are not recorded, by the events of its processes.
pub fn of(processes: &[Process]) -> BTreeMap<String, Attempts> {
    let mut found: BTreeMap<String, Attempts> = BTreeMap::new();
    for process in processes {
        let taken = &process.taken;
        for entry in &process.entries {
            match &entry.what {
                What::Start { run, step, .. } => {
                    let attempts = found.entry(run.clone()).or_default();
                    if let Ok(next) = attempts.with(*step, taken) {
                        *attempts = next;
                    }
                }
                What::Done { run, .. } => drop(found.remove(run)),
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::events::Entry;

    #[test]
    fn five_attempts_without_a_new_checkpoint_are_the_last() {
        let of = |generation| Taken {
            generation,
            ..Taken::default()
        };
        let mut attempts = Attempts::default();
        for count in 1..=5 {
            attempts = attempts.with(0, &of(0)).unwrap();
            assert_eq!(attempts.count, count);
        }
        let failure = attempts.with(0, &of(0)).unwrap_err();
        assert!(
            failure
                .message
                .starts_with("no progress: 5 attempts began at step 0")
        );
        // A checkpoint, or another submission, begins a new count.
        assert_eq!(attempts.with(7, &of(0)).unwrap().idle, 0);
        assert_eq!(attempts.with(0, &of(1)).unwrap().idle, 0);
    }

    #[test]
    fn attempts_are_counted_from_events_and_the_first_says_where_it_was() {
        let process = |number, machine: &str, more: Vec<What>| {
            let taken = What::Task(Taken {
                machine: machine.to_owned(),
                ..Taken::default()
            });
            let entry = |what| Entry { time: 0.0, what };
            let events = std::iter::once(taken).chain(more).map(entry);
            Process::of(3, number, events.collect())
        };
        let start = |run: &str| What::Start {
            run: run.to_owned(),
            attempt: 1,
            step: 0,
            gpu: None,
        };
        let done = What::Done {
            run: "y".to_owned(),
            diverged: false,
        };
        let found = of(&[
            process(0, "a", vec![start("x"), start("y"), done]),
            process(1, "b", vec![start("x")]),
        ]);
        assert_eq!(found.len(), 1);
        let of_x = &found["x"];
        assert_eq!((of_x.count, of_x.idle), (2, 1));
        assert_eq!(of_x.first.machine, "a");
    }
}
