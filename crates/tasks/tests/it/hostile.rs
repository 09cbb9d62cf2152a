//! Corpora by strangers: every one is read, or refused with its path and the cause; none hangs,
//! fills the memory or panics.
#![cfg(unix)]

use crate::common::{self, MustHave, corpus};
use longreach_tasks::{Task, TaskConfig, TaskError};
use proptest::prelude::*;
use schema::Invalid;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RANGE: &str = "split = { by = \"range\", valid_fraction = 0.5 }";

fn build_table(table: &str, dir: &Path, train_len: usize) -> Result<Box<dyn Task>, TaskError> {
    let ctx = common::ctx(dir, train_len, &[train_len, 2 * train_len], 0);
    toml::from_str::<TaskConfig>(&format!("kind = \"text\"\n{table}"))
        .unwrap()
        .build(&ctx)
}

fn build(files: &str, dir: &Path) -> Result<Box<dyn Task>, TaskError> {
    let quoted = toml::Value::from(files);
    build_table(&format!("files = [{quoted}]\n{RANGE}"), dir, 4)
}

/// The problem of an Input error that names `path`.
fn refused(result: Result<Box<dyn Task>, TaskError>, path: &Path) -> String {
    match result.err() {
        Some(TaskError::Input {
            path: Some(found),
            problem,
            hint,
        }) => {
            assert_eq!(found, path, "{problem}");
            assert!(!hint.is_empty());
            problem
        }
        other => panic!("{other:?}"),
    }
}

/// Reads every batch there is, once over.
fn exercise(task: &dyn Task) {
    for length in [4, 8] {
        for row in 0..task.test_rows(length) {
            let batch = task.test_batch(length, row, 1);
            assert!(
                batch
                    .inputs
                    .iter()
                    .chain(&batch.targets)
                    .all(|token| (0..256).contains(token))
            );
        }
    }
    assert_eq!(task.train_batch(4, 3, 1, 2).inputs.len(), 12);
}

#[test]
fn too_little_text() {
    let dir = corpus(&[
        ("empty", b""),
        ("one", b"x"),
        ("eight", b"12345678"),
        ("enough", b"12345678901234567890"),
        ("d/empty", b""),
    ]);
    let at = |name: &str| dir.path().join(name);
    assert_eq!(
        refused(build("empty", dir.path()), &at("empty")),
        "the corpus is empty: no byte in 1 file"
    );
    assert!(refused(build("d/*", dir.path()), &at("d/empty")).contains("empty"));
    assert_eq!(
        refused(build("one", dir.path()), &at("one")),
        "the training split is too short: it has 1 bytes in 1 file (the corpus has 1 in 1), and \
         one training window of length 4 needs 5"
    );
    let problem = refused(build("eight", dir.path()), &at("eight"));
    problem.must_have("has 4 bytes");
    problem.must_have("needs 5");
    exercise(&*build("enough", dir.path()).unwrap());
    // Empty files among others are not a fault.
    let task = build("**/*e*", dir.path()).unwrap();
    assert_eq!(task.corpus().unwrap().files, 5);
}

#[test]
fn any_bytes_are_text() {
    let every: Vec<u8> = (0..=255).cycle().take(4096).collect();
    for bytes in [
        vec![0; 4096],
        vec![0xff; 4096],
        vec![b'x'; 1 << 20],
        every,
        b"\xef\xbb\xbf\r\n\r\n\x1a\xc0\x80\xed\xa0\x80".repeat(10),
    ] {
        let dir = corpus(&[("x", &bytes)]);
        let task = build("x", dir.path()).unwrap();
        assert_eq!(
            task.corpus().unwrap().train_bytes + task.corpus().unwrap().valid_bytes,
            bytes.len() as u64
        );
        exercise(&*task);
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let dir = corpus(&[("d/a.txt", b"12345678901234567890"), ("e/x", b"")]);
    let fifo = dir.path().join("d/pipe.txt");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    symlink("/dev/zero", dir.path().join("d/zero.txt")).unwrap();
    symlink("self.txt", dir.path().join("self.txt")).unwrap();
    symlink("b.txt", dir.path().join("a.txt")).unwrap();
    symlink("a.txt", dir.path().join("b.txt")).unwrap();
    symlink("nowhere", dir.path().join("broken.txt")).unwrap();
    let start = Instant::now();
    for (name, problem) in [
        ("/dev/zero", "is not a regular file"),
        ("/dev/null", "is not a regular file"),
        ("d/pipe.txt", "is not a regular file"),
        ("d/zero.txt", "is not a regular file"),
        ("d", "is a directory"),
        (".", "is a directory"),
        ("self.txt", "cannot be read"),
        ("a.txt", "cannot be read"),
        ("broken.txt", "cannot be read"),
        ("no.txt", "cannot be read"),
        ("d/a.txt/x", "cannot be read"),
    ] {
        let printed = refused(build(name, dir.path()), &dir.path().join(name));
        assert!(printed.contains(problem), "{name}: {printed}");
    }
    // Among the matches of a pattern they are passed over.
    assert_eq!(
        build("d/*.txt", dir.path())
            .unwrap()
            .corpus()
            .unwrap()
            .files,
        1
    );
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// A regular file that cannot be read, for any user: the first page of a process's memory.
#[cfg(target_os = "linux")]
#[test]
fn unreadable_files_name_the_cause() {
    let path = Path::new("/proc/self/mem");
    if path.is_file() {
        let problem = refused(build("/proc/self/mem", Path::new("")), path);
        problem.must_have("cannot be read: ");
    }
    // Larger than its size of 0 says; read under the bound all the same.
    let table = format!("files = [\"/proc/self/maps\"]\nmax_bytes = 100\n{RANGE}");
    let error = common::invalid(&table, build_table(&table, Path::new(""), 4));
    assert_eq!(error.key, "max_bytes");
    error.problem.must_have("/proc/self/maps");
    error.problem.must_have("grew");
}

#[test]
fn the_size_is_asked_before_anything_is_read() {
    let dir = corpus(&[("a.txt", b"12345678901234567890")]);
    // A hole: no byte of it is on the disk.
    fs::File::create(dir.path().join("b.txt"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let start = Instant::now();
    let error = common::invalid("*.txt", build("*.txt", dir.path()));
    let of = (&*error.key, &*error.value);
    assert_eq!(of, ("max_bytes", "67108864"));
    error.problem.must_have("1099511627796 bytes in 2 files");
    error.problem.must_have("b.txt\" with");
    error.hint.must_have("name fewer files");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_file_that_changes_while_it_is_read() {
    let dir = corpus(&[("a.txt", &[b'a'; 1 << 16])]);
    let path = dir.path().join("a.txt");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0u64.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len([0, 1, 9, 1 << 12, 1 << 16, 1 << 18][(i * 7 % 6) as usize])
                    .unwrap();
            }
        });
        for _ in 0..300 {
            match build_table(
                &format!("files = [\"a.txt\"]\nmax_bytes = 100000\n{RANGE}"),
                dir.path(),
                4,
            ) {
                Ok(task) => exercise_few(&*task),
                Err(TaskError::Input { path: named, .. }) => {
                    assert_eq!(named.as_deref(), Some(&*path))
                }
                Err(TaskError::Config(Invalid { key, .. })) => assert_eq!(key, "max_bytes"),
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

fn exercise_few(task: &dyn Task) {
    assert!(task.test_rows(8) >= 1);
    task.test_batch(8, task.test_rows(8) - 1, 1);
    task.train_batch(4, 2, 0, 0);
}

#[test]
fn patterns_that_match_thousands_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..3000 {
        let sub = dir.path().join(format!("{}", i % 7));
        if i < 7 {
            fs::create_dir(&sub).unwrap();
        }
        fs::write(sub.join(format!("{i}.txt")), format!("{i:08}")).unwrap();
    }
    let start = Instant::now();
    let task = build("**/*.txt", dir.path()).unwrap();
    assert_eq!(
        (
            task.corpus().unwrap().files,
            task.corpus().unwrap().train_bytes
        ),
        (3000, 12_000)
    );
    assert!(start.elapsed() < Duration::from_secs(60));
    let problem = refused(build("**/*.rs", dir.path()), dir.path());
    problem.must_have("holds no file that matches \"**/*.rs\"");
    refused(build("9/*.txt", dir.path()), &dir.path().join("9/")).must_have("cannot be read");
}

#[test]
fn a_name_that_reads_as_a_pattern_is_answered_by_its_escape() {
    let dir = tempfile::tempdir().unwrap();
    let name = "my [1] *text?.txt";
    fs::write(dir.path().join(name), "12345678901234567890").unwrap();
    let escaped = "my [[]1[]] [*]text[?].txt";
    match build(name, dir.path()).err() {
        Some(TaskError::Input { hint, .. }) => {
            hint.must_have("a file has this name");
            hint.must_have(&format!("{escaped:?}"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        build(escaped, dir.path()).unwrap().corpus().unwrap().files,
        1
    );
}

#[test]
fn deep_trees_have_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let mut deep = dir.path().to_path_buf();
    (0..300).for_each(|_| deep.push("d"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(dir.path().join("d/a.txt"), "12345678901234567890").unwrap();
    match build("**/*.txt", dir.path()).err() {
        Some(TaskError::Input {
            path: Some(path),
            problem,
            ..
        }) => {
            assert!(path.starts_with(dir.path()), "{problem}");
            problem.must_have("more than 200 directories within each other");
        }
        other => panic!("{other:?}"),
    }
    // A pattern without `**` never goes there.
    assert!(build("*/*.txt", dir.path()).is_ok());
}

#[test]
fn patterns_end() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a".repeat(250)), "12345678901234567890").unwrap();
    let mut deep: PathBuf = dir.path().into();
    (0..150).for_each(|_| deep.push("a"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("a"), "12345678901234567890").unwrap();
    let start = Instant::now();
    for pattern in [
        "*a".repeat(60) + "b",
        "?*".repeat(100) + "b",
        "**/a/".repeat(30) + "b",
        "[a-z]*".repeat(40) + "1",
    ] {
        assert!(build(&pattern, dir.path()).is_err());
    }
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
    for pattern in [
        "",
        "\0",
        "a\0b",
        "[",
        "[a",
        "***",
        "a**",
        "[]",
        "x".repeat(100_000).as_str(),
        &"../".repeat(3000),
    ] {
        let error = build(pattern, dir.path()).err().unwrap().to_string();
        assert!(!error.contains('\0'), "{error:?}");
    }
}

#[test]
fn names_that_are_not_text() {
    let dir = tempfile::tempdir().unwrap();
    for (i, name) in [
        &b"\xff\xfe.txt"[..],
        b"\xff\xfd.txt",
        b"\x1b[2J.txt",
        "\u{202e}é.txt".as_bytes(),
    ]
    .iter()
    .enumerate()
    {
        fs::write(
            dir.path().join(std::ffi::OsStr::from_bytes(name)),
            vec![b'0' + i as u8; 10],
        )
        .unwrap();
    }
    let task = build("*.txt", dir.path()).unwrap();
    assert_eq!(
        (
            task.corpus().unwrap().files,
            task.corpus().unwrap().train_bytes
        ),
        (4, 20)
    );
    let again = build("*.txt", dir.path()).unwrap();
    assert_eq!(task.corpus(), again.corpus());
    let shown = build("\u{1b}[2J.md", dir.path()).err().unwrap().to_string();
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let shown = build("\u{1b}.md", dir.path()).err().unwrap().to_string();
    assert!(shown.contains("\\u{1b}"), "{shown:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_corpora_are_read_or_refused(
        files in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5),
        fraction in 0.001f64..0.999,
        train_len in 1usize..40,
    ) {
        let names = ["a", "b", "c", "d"];
        let listed: Vec<(&str, &[u8])> = names.iter().copied().zip(files.iter().map(Vec::as_slice)).collect();
        let dir = corpus(&listed);
        let total: usize = files.iter().map(Vec::len).sum();
        for split in [format!("{{ by = \"range\", valid_fraction = {fraction} }}"), "{ by = \"file\", every = 2 }".into()] {
            match build_table(&format!("files = [\"*\"]\nsplit = {split}"), dir.path(), train_len) {
                Ok(task) => {
                    let facts = task.corpus().unwrap();
                    prop_assert_eq!(facts.train_bytes + facts.valid_bytes, total as u64);
                    prop_assert!(task.test_rows(2 * train_len) >= 1 && task.test_rows(train_len) >= 1);
                    task.test_batch(2 * train_len, 0, task.test_rows(2 * train_len));
                    task.train_batch(train_len, 2, 0, 0);
                }
                Err(TaskError::Input { path, .. }) => prop_assert!(path.unwrap().starts_with(dir.path())),
                Err(TaskError::Config(Invalid { key, .. })) => prop_assert_eq!(key, "split.every"),
            }
        }
    }
}
