//! Progress of a sweep: bars on a terminal, plain lines elsewhere.

use crate::live::sparkline::{Curve, sparkline};
use experiment::plan::cost::flops;
use experiment::plan::planner::Plan;
use experiment::run::protocol::Event;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use records::RunRecord;
use records::analysis::looks::styles;
use records::metric;
use records::palette::marker;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};
use support::console::{indented, tell, tells_colors};
use support::exit::{Exit, Failure};
use support::units::{count, duration};

/// Share of a run's progress that training has; evaluation is short.
const TRAIN_SHARE: f64 = 0.9;
/// Characters of a run's loss curve.
const CURVE: usize = 20;
/// Time between two lines about one run where there are no bars.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A run's place in the progress display.
struct Progress {
    bar: Option<ProgressBar>,
    /// Losses of the steps that were reported.
    losses: Curve,
    fraction: f64,
    /// The part of `fraction` that took no time of this sweep.
    given: f64,
    printed: Instant,
    /// Whether a worker of this sweep did anything.
    worked: bool,
    /// Whether its training diverged.
    diverged: bool,
    /// The latest scores while training.
    scores: String,
}

impl Progress {
    /// Reaches a fraction without work of this sweep: an earlier process did it, or nobody will.
    fn jump(&mut self, to: f64) {
        self.given += to - self.fraction;
        self.fraction = to;
    }
}

/// A run that another process has.
struct Waiting {
    /// When this sweep first met it.
    since: Instant,
    /// When the next line about it is due, in seconds after that.
    due: u64,
}

impl Waiting {
    /// The time waited so far, if a line about it is due: after 1 s, 10 s, 30 s, 1 min, then every
    /// 5 min.
    fn line_due(&mut self, waited: u64) -> Option<u64> {
        if waited < self.due {
            return None;
        }
        self.due = [10, 30, 60]
            .into_iter()
            .find(|due| waited < *due)
            .unwrap_or(waited + 300);
        Some(waited)
    }
}

/// Progress bars on a terminal, plain lines elsewhere.
pub struct Display<'a> {
    plan: &'a Plan,
    bars: Option<MultiProgress>,
    total: Option<ProgressBar>,
    /// The look of each run's method in the report's figures, by run id; none without colours.
    styles: HashMap<String, usize>,
    runs: Vec<Option<Progress>>,
    /// Runs that other processes have.
    waiting: BTreeMap<usize, Waiting>,
    /// Arithmetic of each run, to weigh their progress.
    work: Vec<f64>,
    all: f64,
    done: usize,
    count: usize,
    started: Instant,
    /// Runs that no worker was started for.
    pub not_started: usize,
}

impl<'a> Display<'a> {
    pub fn new(plan: &'a Plan, todo: &VecDeque<usize>, terminal: bool) -> Self {
        let work: Vec<f64> = plan.runs.iter().map(flops).collect();
        let all = todo.iter().map(|index| work[*index]).sum();
        let bars = terminal
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8)));
        let total = bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("{bar:12.green} {percent:>3} %  {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bars.add(ProgressBar::new(1000).with_style(style))
        });
        let runs = (0..plan.runs.len()).map(|_| None).collect();
        let waiting = BTreeMap::new();
        let styles = if terminal && tells_colors() {
            looks(plan)
        } else {
            HashMap::new()
        };
        Self {
            plan,
            bars,
            total,
            styles,
            runs,
            waiting,
            work,
            all,
            done: 0,
            count: todo.len(),
            started: Instant::now(),
            not_started: 0,
        }
    }

    pub fn started(&mut self, index: usize) {
        let bar = self
            .bars
            .as_ref()
            .zip(self.total.as_ref())
            .map(|(bars, total)| {
                // The message is cut at the width of the terminal, whatever that is now.
                let style = ProgressStyle::with_template("{bar:12} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                // The total stays below all runs.
                bars.insert_before(
                    total,
                    ProgressBar::new(1000)
                        .with_style(style)
                        .with_message(self.name(index)),
                )
            });
        self.runs[index] = Some(Progress {
            bar,
            losses: Curve::default(),
            fraction: 0.0,
            given: 0.0,
            printed: Instant::now(),
            worked: false,
            diverged: false,
            scores: String::new(),
        });
    }

    pub fn event(&mut self, index: usize, event: &Event) {
        let (fraction, text) = self.describe(index, event);
        let left = self.time_left();
        let name = self.name(index);
        let Some(progress) = self.runs[index].as_mut() else {
            return;
        };
        let elsewhere = matches!(event, Event::Elsewhere { .. });
        // `describe` prints about waiting at its own times.
        let due = progress.printed.elapsed() >= LINE_EVERY && !elsewhere;
        match event {
            Event::Resumed { .. }
            | Event::Diverged { .. }
            | Event::Failed { .. }
            | Event::Left { .. } => progress.jump(fraction),
            _ => progress.fraction = fraction,
        }
        progress.worked |= !elsewhere;
        progress.diverged |= matches!(event, Event::Diverged { .. });
        if let Some(bar) = &progress.bar {
            if let Event::Train { loss_nats, .. } = event {
                progress.losses.push(*loss_nats as f32);
            }
            let curve = sparkline(progress.losses.points(), CURVE);
            bar.set_position((1000.0 * fraction) as u64);
            bar.set_message(format!("{name}  {text}  {curve}"));
        } else if matches!(event, Event::Diverged { .. }) {
            tell(&format!("  {name}: {text}"));
        } else if due {
            progress.printed = Instant::now();
            tell(&format!("  {name}: {text}{left}"));
        }
        self.draw_total();
    }

    /// The progress of a run after an event, and a text for it; prints what deserves its own line.
    fn describe(&mut self, index: usize, event: &Event) -> (f64, String) {
        match event {
            Event::Train {
                step,
                steps,
                loss_nats,
            } => {
                let scores = self.runs[index].as_ref().map_or("", |run| &run.scores);
                let text = format!("step {step} of {steps}, loss {loss_nats:.3}{scores}");
                (TRAIN_SHARE * *step as f64 / *steps as f64, text)
            }
            Event::Scored {
                step,
                metric,
                values,
            } => {
                let steps = self.plan.runs[index].job.spec.train.steps;
                let scores = scores(metric, values);
                if let Some(run) = &mut self.runs[index] {
                    run.scores = format!("; step {step}: {scores}");
                }
                let text = format!("step {step} of {steps}, {scores}");
                (TRAIN_SHARE * *step as f64 / steps as f64, text)
            }
            Event::Resumed { step, notes } => {
                let steps = self.plan.runs[index].job.spec.train.steps;
                let name = self.name(index);
                for note in notes {
                    self.print(&format!("  {name}: {note}"));
                }
                if *step > 0 {
                    self.print(&format!("  {name}: resumes at step {step} of {steps}"));
                }
                let fraction = TRAIN_SHARE * *step as f64 / steps as f64;
                (fraction, format!("step {step} of {steps}"))
            }
            Event::Elsewhere { who } => {
                let waiting = self.waiting.entry(index).or_insert(Waiting {
                    since: Instant::now(),
                    due: 1,
                });
                if let Some(waited) = waiting.line_due(waiting.since.elapsed().as_secs()) {
                    let (name, waited) = (self.name(index), duration(waited as f64));
                    self.print(&format!("  {name}: {who}; waiting for {waited}"));
                }
                (0.0, who.clone())
            }
            Event::Eval { done, total } => {
                let share = *done as f64 / *total as f64;
                let text = format!("evaluated {done} of {total}");
                (TRAIN_SHARE + (1.0 - TRAIN_SHARE) * share, text)
            }
            Event::Diverged { step, what } => {
                let text = format!("diverged at step {step}: the {what} is not finite");
                (1.0, text)
            }
            Event::Failed { message } | Event::Left { message, .. } => (1.0, message.clone()),
        }
    }

    fn name(&self, index: usize) -> String {
        let job = &self.plan.runs[index].job;
        match self.styles.get(&job.run_id) {
            Some(style) => format!("{} {}", marker(*style), job.name()),
            None => job.name(),
        }
    }

    pub fn ended(&mut self, index: usize, ended: &Result<(), Failure>) {
        // Back in the queue, not ended: it is not counted.
        if ended
            .as_ref()
            .is_err_and(|failure| failure.exit == Exit::Busy)
        {
            if let Some(bar) = self.runs[index].take().and_then(|progress| progress.bar) {
                bar.finish_and_clear();
            }
            return;
        }
        self.waiting.remove(&index);
        self.done += 1;
        let text = match ended {
            // Asked to stop: it has saved, and is neither done nor failed.
            Err(failure) if failure.exit.on_request() => {
                format!("  {}: {}", self.name(index), failure.message)
            }
            Ok(()) => {
                let done = match &self.runs[index] {
                    Some(progress) if progress.diverged => "diverged",
                    Some(progress) if progress.worked => "done",
                    _ => "recorded by another process",
                };
                format!(
                    "[{}/{}] {}: {done}",
                    self.done,
                    self.count,
                    self.name(index)
                )
            }
            Err(failure) => format!(
                "[{}/{}] {}: FAILED\n  {}",
                self.done,
                self.count,
                self.name(index),
                indented(&failure.message)
            ),
        };
        if let Some(progress) = self.runs[index].as_mut() {
            match ended {
                Ok(()) if progress.worked => progress.fraction = 1.0,
                _ => progress.jump(1.0),
            }
            if let Some(bar) = progress.bar.take() {
                bar.finish_and_clear();
            }
        }
        match &self.bars {
            Some(_) => self.print(&text),
            // A time after the last line of an error would look like a part of it.
            None if ended.is_err() => tell(&text),
            None => tell(&format!("{text}{}", self.time_left())),
        }
        self.draw_total();
    }

    /// A line above the bars.
    pub fn print(&self, text: &str) {
        match &self.bars {
            Some(bars) => {
                let _ = bars.println(text);
            }
            None => tell(text),
        }
    }

    /// A share of the work of all runs.
    fn share(&self, of: impl Fn(&Progress) -> f64) -> f64 {
        // Runs count by their arithmetic: an average of runs would misjudge long ones.
        let done = |(run, work): (&Option<Progress>, &f64)| {
            run.as_ref().map_or(0.0, |progress| of(progress) * work)
        };
        self.runs.iter().zip(&self.work).map(done).sum::<f64>() / self.all.max(1.0)
    }

    fn fraction(&self) -> f64 {
        self.share(|progress| progress.fraction)
    }

    fn time_left(&self) -> String {
        let (fraction, elapsed) = (self.fraction(), self.started.elapsed().as_secs_f64());
        let (left, worked) = (
            1.0 - fraction,
            fraction - self.share(|progress| progress.given),
        );
        // Too early to extrapolate, or at the end.
        if left <= 0.0 || worked < 0.01 * (worked + left) {
            String::new()
        } else {
            format!(", about {} left", duration(elapsed / worked * left))
        }
    }

    fn draw_total(&self) {
        if let Some(total) = &self.total {
            total.set_position((1000.0 * self.fraction()) as u64);
            total.set_message(format!(
                "{} of {} done{}",
                self.done,
                count(self.count, "run"),
                self.time_left()
            ));
        }
    }

    pub fn finish(&self) {
        if let Some(total) = &self.total {
            total.finish_and_clear();
        }
    }
}

/// The look of each run's method in the report's figures, by run id.
fn looks(plan: &Plan) -> HashMap<String, usize> {
    let runs: Vec<RunRecord> = plan.runs.iter().map(|run| run.job.unscored()).collect();
    let order = [plan.order.as_slice(), &plan.variants].concat();
    styles(&runs, &order)
}

/// A score. One below 1 is not printed as 1, because `train.stop` may wait for the last row.
fn score(metric: &str, value: f64) -> String {
    let first = metric::decimals(metric, value);
    let text = |decimals: usize| metric::number(value, decimals);
    let is_exact = |text: &String| value == 1.0 || text.parse() != Ok(1.0);
    let exact = (first..first + 4).map(text).find(is_exact);
    exact.unwrap_or_else(|| text(first))
}

/// Scores at each length: `exact_match 0.998 at 16, 0.250 at 32`.
fn scores(metric: &str, values: &[(usize, Option<f64>)]) -> String {
    let at = |(length, value): &(usize, Option<f64>)| {
        format!(
            "{} at {length}",
            value.map_or("none".to_owned(), |value| score(metric, value))
        )
    };
    let all: Vec<String> = values.iter().map(at).collect();
    format!("{metric} {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"name = "tiny"
seeds = [0, 1, 2]
task = { kind = "copy", alphabet = 4, test_rows = 8 }
model = { d_model = 16, n_layers = 1, n_heads = 2, pe = { kind = "rope" } }
train = { train_len = 4, steps = 100, batch_size = 4, lr = 1e-3 }
eval = { test_lens = [4] }
"#;

    #[test]
    fn a_share_below_1_is_not_printed_as_1() {
        let text = |share| scores("exact_match", &[(50, Some(share))]);
        assert_eq!(text(0.9995), "exact_match 0.9995 at 50");
        assert_eq!(text(0.99996), "exact_match 0.99996 at 50");
        assert_eq!(text(1.0), "exact_match 1.000 at 50");
        assert_eq!(text(0.25), "exact_match 0.250 at 50");
    }

    #[test]
    fn the_time_left_is_at_the_pace_of_this_sweep() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("x.toml");
        std::fs::write(&config, CONFIG).unwrap();
        let plan = experiment::plan(&config, &[]).unwrap();
        let failed = Err(Failure::new(Exit::SomeFailed, "no"));
        let steps = |step| Event::Train {
            step,
            steps: 100,
            loss_nats: 1.0,
        };
        let resumed = |step| Event::Resumed {
            step,
            notes: Vec::new(),
        };
        let mut display = Display::new(&plan, &(0..3).collect(), false);
        (0..3).for_each(|index| display.started(index));
        display.started = Instant::now()
            .checked_sub(Duration::from_secs(100))
            .unwrap();
        // Nothing of the first 90 steps, nor of two other runs, was done in these 100 seconds.
        display.event(0, &resumed(90));
        assert_eq!(display.time_left(), "");
        display.ended(1, &Ok(()));
        display.ended(2, &failed);
        assert_eq!(display.time_left(), "");
        display.event(0, &steps(95));
        // 0.045 of the run took them, and 0.145 are left.
        assert_eq!(display.time_left(), ", about 5 min left");
        display.event(0, &steps(100));
        assert_eq!(display.time_left(), ", about 2 min left");
        display.ended(0, &Ok(()));
        assert_eq!(display.time_left(), "");
    }

    #[test]
    fn lines_about_waiting_come_at_growing_intervals() {
        let mut waiting = Waiting {
            since: Instant::now(),
            due: 1,
        };
        let printed: Vec<u64> = (0..1000)
            .filter_map(|waited| waiting.line_due(waited))
            .collect();
        assert_eq!(printed, [1, 10, 30, 60, 360, 660, 960]);
    }
}
