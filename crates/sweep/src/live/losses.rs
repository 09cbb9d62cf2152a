//! The losses of a run while it trains, read from the end of its step log.

use crate::live::sparkline::Curve;
use crate::live::tail::Tail;
use rundir::steplog::Step;
use std::path::Path;

/// The losses of a step log as far as it was read.
#[derive(Default)]
pub struct Losses {
    tail: Tail,
    /// Losses by step.
    curve: Curve,
    /// The last whole line.
    last: Option<Step>,
}

impl Losses {
    /// Reads what is new. A log that is missing or damaged has no new lines.
    pub fn look(&mut self, run: &Path) {
        let (steps, is_cut) = self.tail.look(run);
        if is_cut {
            self.curve = Curve::default();
            self.last = None;
        }
        for step in steps {
            self.add(step);
        }
    }

    /// The last step that was logged.
    pub fn last(&self) -> Option<Step> {
        self.last
    }

    /// The losses, thinned, first to last.
    pub fn points(&self) -> &[f32] {
        self.curve.points()
    }

    fn add(&mut self, step: Step) {
        self.last = Some(step);
        self.curve.push(step.loss_nats as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::sparkline::MOST_POINTS;
    use rundir::steplog::LOG_FILE;
    use std::io::Write;

    fn line(step: u64) -> String {
        let loss_nats = 5.0 - step as f64 / 10_000.0;
        let step = Step {
            step,
            loss_nats,
            lr: 1e-3,
            grad_norm: 1.0,
            tokens: step,
        };
        serde_json::to_string(&step).unwrap()
    }

    #[test]
    fn a_growing_log_is_read_once_and_a_cut_one_again() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join(LOG_FILE);
        let mut losses = Losses::default();
        losses.look(run.path());
        assert!(losses.last().is_none() && losses.points().is_empty());
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "{}\n{}", line(1), &line(2)[..9]).unwrap();
        losses.look(run.path());
        assert_eq!(losses.last().unwrap().step, 1);
        writeln!(file, "{}", &line(2)[9..]).unwrap();
        losses.look(run.path());
        assert_eq!((losses.last().unwrap().step, losses.points().len()), (2, 2));
        for step in 3..=9000 {
            writeln!(file, "{}", line(step)).unwrap();
        }
        losses.look(run.path());
        assert_eq!(losses.last().unwrap().step, 9000);
        assert!(losses.points().len() < MOST_POINTS);
        assert!(losses.points().is_sorted_by(|a, b| a >= b));
        std::fs::write(&path, line(1) + "\n").unwrap();
        losses.look(run.path());
        assert_eq!((losses.last().unwrap().step, losses.points().len()), (1, 1));
    }
}
