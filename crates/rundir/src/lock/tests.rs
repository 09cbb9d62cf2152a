//! Tests of locks.

use super::*;

#[test]
fn the_text_of_a_lock_is_read_back() {
    let text = text(123, "node7", 1_000);
    let read = |now, host, stopped| parse(&text, host, now, move |_| stopped).holder;
    let here = read(1_720, "node7", false);
    assert_eq!(here.to_string(), "process 123 on node7 for 12 min");
    let stopped = read(1_720, "node7", true);
    assert_eq!(
        stopped.to_string(),
        "process 123 on node7 for 12 min, stopped (SIGSTOP); `kill -CONT 123` continues it"
    );
    // A process of another host has another table of processes.
    assert_eq!(read(1_720, "node8", true).stopped, None);
    // Clocks of two hosts may differ.
    assert_eq!(
        read(900, "node8", false).to_string(),
        "process 123 on node7"
    );
}

#[test]
fn other_texts_are_shown_as_far_as_they_go() {
    let read = |text| parse(text, "node7", 1_000, |_| true).holder.to_string();
    assert_eq!(read(""), "another process");
    assert_eq!(read("process 9 on elsewhere"), "process 9 on elsewhere");
    assert_eq!(read("\u{1b}[2Jsomebody\nsince never\n"), "[2Jsomebody");
    assert_eq!(
        read("process 99999999999 on node7\nsince 940\n"),
        "process 99999999999 on node7 for 1 min"
    );
}

#[test]
fn durations_are_given_in_their_largest_units() {
    let shown = [0, 59, 60, 3_599, 3_600, 12_000, 86_400, 187_200].map(span);
    assert_eq!(
        shown,
        [
            "0 s",
            "59 s",
            "1 min",
            "59 min",
            "1 h 0 min",
            "3 h 20 min",
            "1 d 0 h",
            "2 d 4 h"
        ]
    );
}

#[test]
fn a_lock_that_is_held_names_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(holder(directory.path()), None);
    let held = take(directory.path()).unwrap();
    let found = holder(directory.path()).unwrap();
    assert!(
        found.who.contains(&std::process::id().to_string()),
        "{found}"
    );
    assert!(
        found
            .held
            .is_some_and(|held| held < Duration::from_secs(60))
            && found.stopped.is_none(),
        "{found:?}"
    );
    assert!(matches!(take(directory.path()), Err(Taken::By(_))));
    drop(held);
    assert_eq!(holder(directory.path()), None);
}

/// A machine with these processes: id, id in its own table, and whether it is stopped.
struct Machine(&'static [(u32, u32, bool)]);

impl Processes for Machine {
    fn is_alive(&self, process: u32) -> bool {
        self.0.iter().any(|(id, ..)| *id == process)
    }

    fn is_stopped(&self, process: u32) -> bool {
        self.0
            .iter()
            .any(|(id, _, stopped)| *id == process && *stopped)
    }

    fn inner_id(&self, process: u32) -> Option<u32> {
        let found = self.0.iter().find(|(id, ..)| *id == process)?;
        Some(found.1)
    }

    fn program(&self, _: u32) -> Option<String> {
        Some("flock".to_owned())
    }
}

#[test]
fn who_really_holds_a_lock_is_named() {
    let at = seconds(SystemTime::now());
    let read = |text: &str| parse(text, &hostname(), at, |_| false);
    let written = |process: u32| read(&text(process, &hostname(), at - 45));
    let machine = Machine(&[(12, 12, false), (700, 1, true)]);
    let shown = |text, entries: &[Entry]| identify(text, entries, &machine).to_string();
    let entry = |process, exclusive| Entry { process, exclusive };
    let host = hostname();
    // The process of the text, here and in a container.
    assert_eq!(
        shown(written(12), &[entry(12, true)]),
        format!("process 12 on {host} for 45 s")
    );
    assert_eq!(
        shown(written(1), &[entry(700, true)]),
        format!("process 1 on {host} for 45 s, stopped (SIGSTOP); `kill -CONT 700` continues it")
    );
    // Another one, for itself or with others.
    assert_eq!(shown(written(11), &[entry(12, true)]), "process 12 (flock)");
    let sharing = shown(written(12), &[entry(12, false)]);
    assert!(
        sharing.starts_with("process 12 (flock), which shares the lock of `lock`"),
        "{sharing}"
    );
    // One that cannot be seen: what the text names is dead, alive, or of another host.
    let unseen = shown(written(11), &[]);
    assert!(
        unseen.starts_with("a process that cannot be seen from here")
            && unseen.contains(&format!("process 11 on {host}, has ended")),
        "{unseen}"
    );
    assert_eq!(
        shown(written(12), &[]),
        format!("process 12 on {host} for 45 s")
    );
    let other = read("process 11 on elsewhere");
    assert_eq!(shown(other, &[]), "process 11 on elsewhere");
}
