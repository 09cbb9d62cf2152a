//! One screen of all runs: text for a terminal of any size. No line is wider than the terminal, and
//! there are no more lines than fit.

use crate::live::board::RunView;
use crate::live::sparkline::sparkline;
use console::{Alignment, pad_str, truncate_str};
use experiment::runs_on_disk::state::{RunState, counts, counts_text};
use records::palette::marker;
use std::borrow::Cow;
use support::console::plain;
use support::units::{count, duration};

/// What a screen shows.
pub struct Screen<'a> {
    /// The directory.
    pub title: &'a str,
    /// Every run, in order of importance.
    pub runs: &'a [RunView],
    /// Share of all work that is done.
    pub fraction: f64,
    /// Seconds until all runs have ended.
    pub secs_left: Option<f64>,
    /// Whether each run has the marker of its method, in the colour of the report's figures.
    pub colors: bool,
}

/// Where a marker will be: one column wide, and in no name that [`plain`] lets through.
const PLACE: char = '\u{e000}';

impl Screen<'_> {
    /// The lines for a terminal of `width` columns and `height` lines.
    pub fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let mut lines = vec![self.heading(), self.total(width)];
        let mut state = None;
        let (mut shown, mut marked) = (0, Vec::new());
        for run in self.runs {
            let heading = (state != Some(run.state)).then(|| run.state.to_string());
            let needed = heading.iter().len() + 1;
            // One line stays for what does not fit.
            let last = usize::from(shown + 1 < self.runs.len());
            if lines.len() + needed + last > height {
                break;
            }
            state = Some(run.state);
            lines.extend(heading);
            marked.push((lines.len(), run.style));
            lines.push(line(run, width, self.colors));
            shown += 1;
        }
        if shown < self.runs.len() {
            lines.push(format!("and {}", state_counts(&self.runs[shown..])));
        }
        lines.truncate(height);
        let lines = lines
            .iter()
            .map(|line| cut(&plain(line), width).into_owned());
        let mut lines: Vec<String> = lines.collect();
        // Last, as colours take no columns.
        for (at, style) in marked.into_iter().filter(|_| self.colors) {
            let marker = style.map_or_else(|| " ".to_owned(), marker);
            lines
                .get_mut(at)
                .into_iter()
                .for_each(|line| *line = line.replacen(PLACE, &marker, 1));
        }
        lines
    }

    fn heading(&self) -> String {
        let runs = count(self.runs.len(), "run");
        format!("{}: {runs}: {}", self.title, state_counts(self.runs))
    }

    fn total(&self, width: usize) -> String {
        // Not 100 % before everything has ended.
        let percent = (100.0 * self.fraction).floor();
        let bar = bar(self.fraction, width.saturating_sub(24).clamp(4, 40));
        let left = self.secs_left.filter(|_| self.fraction < 1.0);
        let left = left.map(|secs| format!("  about {} left", duration(secs)));
        format!("{bar} {percent:>3} %{}", left.unwrap_or_default())
    }
}

/// `2 running, 3 done`
pub fn state_counts(runs: &[RunView]) -> String {
    counts_text(&counts(runs.iter().map(|run| run.state)))
}

/// One run. What is less important is left out on a narrow terminal.
fn line(run: &RunView, width: usize, colors: bool) -> String {
    let name_width = (width / 3).clamp(8, 40);
    let name = plain(&run.name);
    let name = pad_str(&name, name_width, Alignment::Left, Some("…"));
    let marker = if colors {
        format!("{PLACE} ")
    } else {
        String::new()
    };
    let mut parts = vec![format!(" {marker}{name}")];
    let running = run.state == RunState::Running;
    if matches!(
        run.state,
        RunState::Failed | RunState::Diverged | RunState::Stale | RunState::Unreadable
    ) {
        let note = run.note.as_deref().and_then(|note| note.lines().next());
        parts.push(note.unwrap_or_default().to_owned());
        return parts.join("  ");
    }
    if running && width >= 70 {
        parts.push(bar(run.fraction(), 10));
    }
    if run.state != RunState::Planned {
        let steps = run.steps.to_string();
        parts.push(format!("{:>w$} of {steps}", run.step, w = steps.len()));
    }
    if let Some(loss) = run.loss {
        parts.push(format!("loss {loss:<6.3}"));
    }
    if width >= 90 && !run.losses.is_empty() {
        let curve = sparkline(&run.losses, 20);
        parts.push(format!("{curve:<20}"));
    }
    if let Some(secs) = run.secs_left.filter(|_| running) {
        let left = if width < 60 { "" } else { " left" };
        parts.push(format!("{}{left}", duration(secs)));
    }
    parts.join("  ")
}

fn bar(fraction: f64, width: usize) -> String {
    let full = ((fraction * width as f64) as usize).min(width);
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// A text of at most `width` columns; what is cut ends in an ellipsis.
fn cut(text: &str, width: usize) -> Cow<'_, str> {
    truncate_str(text, width, if width > 0 { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use console::measure_text_width;

    fn run(name: &str, state: RunState, step: u64) -> RunView {
        let is_known = !matches!(state, RunState::Planned | RunState::Failed);
        RunView {
            name: name.to_owned(),
            state,
            step,
            steps: 2000,
            loss: is_known.then_some(2.3456),
            losses: if is_known {
                (0..200).map(|i| 5.0 - i as f32 / 80.0).collect()
            } else {
                Vec::new()
            },
            secs_left: (state == RunState::Running).then_some(42.0),
            note: (state == RunState::Failed)
                .then(|| "no space left on the disk\n  = help".to_owned()),
            style: (name.starts_with("rope")).then_some(1),
            work: 1.0,
        }
    }

    fn runs() -> Vec<RunView> {
        let mut runs = vec![
            run("rope, seed 0", RunState::Running, 1200),
            run(
                "rope(base=500000, scaling=yarn), 0.001, seed 1",
                RunState::Running,
                20,
            ),
            run("alibi, seed 0", RunState::Failed, 0),
            run("日本語の名前, seed 0", RunState::Done, 2000),
            run(
                "☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕☕",
                RunState::Unreadable,
                0,
            ),
        ];
        runs.extend((0..9).map(|seed| run(&format!("nope, seed {seed}"), RunState::Planned, 0)));
        runs
    }

    #[test]
    fn a_screen_fits_its_terminal_at_every_size() {
        let runs = runs();
        let screen = Screen {
            title: "runs/quickstart",
            runs: &runs,
            fraction: 0.237,
            secs_left: Some(600.0),
            colors: false,
        };
        for width in 1..140 {
            for height in 1..30 {
                let lines = screen.lines(width, height);
                assert!(lines.len() <= height && !lines.is_empty());
                assert!(
                    lines.iter().all(|line| measure_text_width(line) <= width),
                    "{width} x {height}"
                );
            }
        }
        let text = |width, height| screen.lines(width, height).join("\n");
        insta::assert_snapshot!(format!(
            "{}\n\n{}\n\n{}",
            text(110, 30),
            text(72, 12),
            text(40, 8)
        ));
    }

    #[test]
    fn runs_have_the_markers_of_their_methods_where_colours_are_shown() {
        let runs = runs();
        let screen = |colors| Screen {
            title: "runs/quickstart",
            runs: &runs,
            fraction: 0.237,
            secs_left: None,
            colors,
        };
        for width in 1..140 {
            let plain = screen(false).lines(width, 30);
            let colored = screen(true).lines(width, 30);
            assert_eq!(plain.len(), colored.len());
            let shown = colored.iter().map(|line| line.replace(&marker(1), "■"));
            assert!(
                shown
                    .into_iter()
                    .all(|line| measure_text_width(&line) <= width),
                "{width}"
            );
        }
        let lines = screen(true).lines(110, 30);
        assert!(
            lines[3].starts_with(&format!(" {} rope, seed 0", marker(1))),
            "{lines:?}"
        );
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("   alibi, seed 0")),
            "{lines:?}"
        );
    }

    #[test]
    fn nothing_of_a_name_reaches_the_terminal_as_a_command() {
        let runs = [run("a\u{1b}[2Jb, seed 0", RunState::Running, 1)];
        let screen = Screen {
            title: "x\u{7}",
            runs: &runs,
            fraction: 0.0,
            secs_left: None,
            colors: false,
        };
        assert!(
            !screen
                .lines(100, 10)
                .join("\n")
                .contains(|c: char| c.is_control() && c != '\n')
        );
    }
}
