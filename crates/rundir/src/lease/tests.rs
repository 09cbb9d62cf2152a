//! Tests of leases.

use super::*;

fn here() -> Holder {
    Holder::here("n1", "7_3", Duration::from_millis(100))
}

/// A lease as a process of another machine would make it.
fn elsewhere() -> Holder {
    Holder {
        kernel: "another boot".to_owned(),
        host: "node9".to_owned(),
        node: String::new(),
        process: 12,
        ..here()
    }
}

#[test]
fn one_of_many_gets_a_lease_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| take(place, here(), None).ok().map(std::mem::forget)))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .count()
    });
    assert_eq!(wins, 1);
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 1);
}

#[test]
fn a_lease_names_its_holder_and_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let lease = take(directory.path(), here(), None).unwrap();
    let found = holder(directory.path()).unwrap();
    assert_eq!(
        found.who(),
        format!("process {} on n1, job 7_3", std::process::id())
    );
    assert!(lease.beat() && lease.beat());
    assert_eq!(holder(directory.path()).unwrap().beat, 2);
    assert_eq!(held_elsewhere(directory.path()), None);
    drop(lease);
    assert_eq!(holder(directory.path()), None);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_lease_is_dead_when_its_counter_stands_still_for_three_intervals() {
    let (mut sight, start) = (Observation::default(), Instant::now());
    let at = |millis| start + Duration::from_millis(millis);
    let mut other = elsewhere();
    assert!(!sight.dead_at(&other, at(0)));
    assert!(!sight.dead_at(&other, at(299)));
    other.beat += 1;
    assert!(!sight.dead_at(&other, at(400)));
    assert!(!sight.dead_at(&other, at(700)));
    assert!(sight.dead_at(&other, at(701)));
    // Another lease has another counter, and starts anew.
    assert!(!sight.dead_at(&elsewhere(), at(800)));
}

#[test]
fn a_process_of_this_machine_that_ended_is_dead_at_once() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let holder = Holder {
        process: child.id(),
        ticks: started(child.id()).unwrap(),
        ..here()
    };
    assert!(!Observation::default().dead(&holder));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(Observation::default().dead(&holder));
    // Under another boot, or in another table of processes, the same id says nothing.
    let other = Holder {
        kernel: "another boot".to_owned(),
        ..holder
    };
    assert!(!Observation::default().dead(&other));
}

#[test]
fn of_many_that_see_a_dead_lease_one_replaces_it_and_the_old_holder_notices() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let old = take(place, elsewhere(), None).unwrap();
    let dead = holder(place).unwrap();
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| {
                let dead = &dead;
                scope.spawn(move || take(place, here(), Some(dead)).ok())
            })
            .collect();
        let leases: Vec<_> = threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .collect();
        let count = leases.len();
        leases.into_iter().for_each(std::mem::forget);
        count
    });
    assert_eq!(wins, 1);
    let new = holder(place).unwrap();
    assert_eq!(new.node, "n1");
    // The old holder writes into its own file, and its end removes nothing.
    assert!(!old.beat());
    drop(old);
    assert_eq!(holder(place), Some(new));
}

#[test]
fn a_lease_that_is_alive_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let lease = take(directory.path(), elsewhere(), None).unwrap();
    let Err(NotTaken::By(other)) = take(directory.path(), here(), Some(&here())) else {
        panic!("it was taken");
    };
    assert_eq!(other.host, "node9");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    drop(lease);
}

#[test]
fn a_lease_that_says_nothing_is_held_by_somebody() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(LEASE_FILE), "{").unwrap();
    let found = held_elsewhere(directory.path()).unwrap();
    let mut sight = Observation::default();
    assert!(!sight.dead(&found));
    let later = Instant::now() + HEARTBEAT * PATIENCE + Duration::from_secs(1);
    assert!(sight.dead_at(&found, later));
    let lease = take(directory.path(), here(), Some(&found)).unwrap();
    assert!(lease.beat());
}

#[test]
fn what_killed_holders_left_is_removed_after_a_day() {
    let directory = tempfile::tempdir().unwrap();
    let [old, young] = ["aaaa", "bbbb"].map(|nonce| {
        let path = directory.path().join(format!(".{LEASE_FILE}.{nonce}.new"));
        std::fs::write(&path, "{}").unwrap();
        path
    });
    let file = File::options().write(true).open(&old).unwrap();
    let then = SystemTime::now() - Duration::from_secs(90_000);
    file.set_modified(then).unwrap();
    let lease = take(directory.path(), here(), None).unwrap();
    assert!(!old.exists() && young.exists() && lease.beat());
}

#[test]
fn a_lease_that_cannot_be_read_for_a_moment_is_not_lost() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join(LEASE_FILE);
    let lease = take(directory.path(), here(), None).unwrap();
    let kept = directory.path().join("kept");
    std::fs::rename(&name, &kept).unwrap();
    std::fs::create_dir(&name).unwrap();
    assert!(lease.beat(), "it cannot be read");
    std::fs::remove_dir(&name).unwrap();
    assert!(!lease.beat(), "it is gone");
    std::fs::rename(&kept, &name).unwrap();
    assert!(lease.beat());
}
