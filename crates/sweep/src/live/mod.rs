//! `longreach status --watch`: all runs below a directory on one screen, or as plain lines where
//! there is no terminal.

pub mod board;
mod losses;
pub mod screen;
pub mod sparkline;
mod tail;
pub mod tensorboard;

use crate::live::board::{Board, RunView};
use crate::live::screen::{Screen, state_counts};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use experiment::runs_on_disk::state::RunState;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use support::console;
use support::exit::{Exit, Failure};
use support::signals;
use support::units::duration;

/// Time between two looks at the runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the size of the terminal and at signals.
const TICK: Duration = Duration::from_millis(100);
/// Time between two lines about a run where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows the runs until all have ended or a signal asks to stop.
///
/// # Errors
///
/// [`Exit::Input`] if the directory cannot be read or holds no run.
pub fn watch(directory: &Path) -> Result<Exit, Failure> {
    signals::listen()?;
    let mut board = Board::new(directory);
    board.look(Instant::now())?;
    if board.views().is_empty() {
        return Err(
            Failure::input(format!("{} holds no run", directory.display())).with_help(
                "name a directory that `longreach run` wrote, such as runs or runs/quickstart",
            ),
        );
    }
    if std::io::stdout().is_terminal() {
        on_terminal(&mut board, directory)
    } else {
        as_lines(&mut board)
    }
}

/// How the watching ends: by a signal, or with the last run.
fn end(views: &[RunView]) -> Option<Exit> {
    if let Some(asked) = signals::asked() {
        return Some(asked);
    }
    let failed = views.iter().any(|run| run.state.is_failure());
    let done = if failed { Exit::SomeFailed } else { Exit::Done };
    views.iter().all(RunView::has_ended).then_some(done)
}

fn on_terminal(board: &mut Board, directory: &Path) -> Result<Exit, Failure> {
    let title = directory.display().to_string();
    let colors = console::has_colors();
    let frame = |board: &Board, (width, height): (u16, u16)| {
        let views = board.views();
        let screen = Screen {
            title: &title,
            runs: &views,
            fraction: board.fraction(),
            secs_left: board.secs_left(Instant::now()),
            colors,
        };
        screen.lines(usize::from(width), usize::from(height))
    };
    let alternate = Alternate::enter();
    let (mut looked, mut drawn) = (Instant::now(), None);
    let exit = loop {
        // The size is read again and again: a terminal may be resized at any time.
        let size = crossterm::terminal::size().unwrap_or((80, 24));
        let is_due = looked.elapsed() >= LOOK_EVERY;
        if is_due {
            looked = Instant::now();
            board.look(looked)?;
        }
        if is_due || drawn != Some(size) {
            draw(&frame(board, size));
            drawn = Some(size);
        }
        if let Some(exit) = end(&board.views()) {
            break exit;
        }
        std::thread::sleep(TICK);
    };
    drop(alternate);
    // What was on the screen stays in the terminal.
    let (width, _) = crossterm::terminal::size().unwrap_or((80, 24));
    console::print_colored(&frame(board, (width, u16::MAX)).join("\n"));
    Ok(exit)
}

/// Replaces the whole screen at once.
fn draw(lines: &[String]) {
    let mut out = std::io::stdout().lock();
    // A terminal that is gone ends the process by HUP, not here.
    let _ = queue!(out, BeginSynchronizedUpdate);
    for (row, line) in lines.iter().enumerate() {
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        let _ = queue!(out, MoveTo(0, row), Clear(ClearType::UntilNewLine));
        let _ = write!(out, "{line}");
    }
    let _ = queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate);
    let _ = out.flush();
}

/// The second screen of a terminal; leaving it brings back what was there before.
struct Alternate;

impl Alternate {
    fn enter() -> Self {
        let _ = execute!(
            std::io::stdout(),
            EnterAlternateScreen,
            Hide,
            Clear(ClearType::All)
        );
        Self
    }
}

impl Drop for Alternate {
    fn drop(&mut self) {
        let _ = execute!(std::io::stdout(), Show, LeaveAlternateScreen);
    }
}

/// A line for every change of a state, and every few seconds one for each running run.
fn as_lines(board: &mut Board) -> Result<Exit, Failure> {
    let mut known: BTreeMap<String, (RunState, Instant)> = BTreeMap::new();
    console::print(&state_counts(&board.views()));
    loop {
        let now = Instant::now();
        board.look(now)?;
        let views = board.views();
        for run in &views {
            let before = known.get(&run.name);
            let is_new = before.is_none_or(|(state, _)| *state != run.state);
            let is_due = before.is_some_and(|(_, at)| at.elapsed() >= LINE_EVERY);
            // What was so from the start is in the first line.
            let is_told = matches!(run.state, RunState::Running | RunState::Unreadable);
            let is_news = is_new && (before.is_some() || is_told);
            if is_news || is_due && run.state == RunState::Running {
                console::print(&console::plain(&line(run)));
            }
            if is_new || is_due {
                known.insert(run.name.clone(), (run.state, now));
            }
        }
        if let Some(exit) = end(&views) {
            let left = if exit.on_request() {
                " when the watching ended"
            } else {
                ""
            };
            console::print(&format!("{}{left}", state_counts(&views)));
            return Ok(exit);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// `rope, seed 0: running, step 120 of 2000, loss 2.310, about 40 s left`
fn line(run: &RunView) -> String {
    let mut parts = vec![format!("{}: {}", run.name, run.state)];
    if run.state == RunState::Running {
        parts.push(format!("step {} of {}", run.step, run.steps));
    }
    parts.extend(run.loss.map(|loss| format!("loss {loss:.3}")));
    parts.extend(
        run.secs_left
            .map(|secs| format!("about {} left", duration(secs))),
    );
    parts.extend(
        run.note
            .as_deref()
            .and_then(|note| note.lines().next())
            .map(str::to_owned),
    );
    parts.join(", ")
}
