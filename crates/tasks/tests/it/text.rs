//! The text task over temporary directories and a made-up Cargo home.

use crate::common::{self, MustHave, corpus};
use longreach_tasks::{BuildContext, TEACHER_FORCED, Task, TaskConfig, TaskError};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn ctx(config_dir: &Path) -> BuildContext<'static> {
    common::ctx(config_dir, 4, &[4, 6], 0)
}

fn build(table: &str, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
    toml::from_str::<TaskConfig>(&format!("kind = \"text\"\n{table}"))
        .unwrap()
        .build(ctx)
}

fn hash(table: &str, dir: &Path) -> String {
    build(table, &ctx(dir))
        .unwrap()
        .corpus()
        .unwrap()
        .blake3
        .clone()
}

/// The problem of an Input error about `path`.
fn input_error(result: Result<Box<dyn Task>, TaskError>, path: Option<&Path>) -> String {
    match result.err() {
        Some(error @ TaskError::Input { .. }) => {
            let shown = error.to_string();
            let TaskError::Input {
                path: found,
                problem,
                hint,
            } = error
            else {
                unreachable!()
            };
            assert_eq!(found.as_deref(), path, "{problem}");
            assert!(
                !hint.is_empty() && path.is_none_or(|p| shown.contains(&p.display().to_string()))
            );
            problem
        }
        other => panic!("{other:?}"),
    }
}

/// All bytes scored at a length, in order.
fn scored(task: &dyn Task, length: usize) -> Vec<i32> {
    let batch = task.test_batch(length, 0, task.test_rows(length));
    batch
        .targets
        .iter()
        .zip(&batch.counted)
        .filter(|(_, counted)| **counted)
        .map(|(target, _)| *target)
        .collect()
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

#[test]
fn windows_of_both_splits() {
    let dir = corpus(&[("a.txt", LETTERS), ("b.txt", LETTERS)]);
    let table =
        "files = [\"*.txt\"]\nsplit = { by = \"range\", valid_fraction = 0.5 }\neval_tokens = 99";
    let task = build(table, &ctx(dir.path())).unwrap();
    let facts = task.corpus().unwrap();
    assert_eq!(
        (facts.files, facts.train_bytes, facts.valid_bytes),
        (2, 62, 62)
    );
    assert_eq!(facts.source, "files: *.txt");
    assert_eq!(
        (task.vocab_size(), task.unit(), task.seq_len(9)),
        (256, "bytes", 9)
    );
    // 61 bytes can be scored; the lcm of 4 and 6 divides 60. The same bytes at both lengths, each
    // once.
    let expected: Vec<i32> = LETTERS[1..61].iter().map(|&b| i32::from(b)).collect();
    assert_eq!(
        (scored(&*task, 4), scored(&*task, 6)),
        (expected.clone(), expected.clone())
    );
    let batch = task.test_batch(6, 2, 1);
    assert_eq!(batch.inputs, b"mnopqr".map(i32::from));
    assert_eq!(batch.targets, b"nopqrs".map(i32::from));
    for stride in [1, 3, 4] {
        let task = build(
            &format!("{table}\nwindows = {{ kind = \"sliding\", stride = {stride} }}"),
            &ctx(dir.path()),
        )
        .unwrap();
        assert_eq!(
            (scored(&*task, 4), scored(&*task, 6)),
            (expected.clone(), expected.clone())
        );
    }
    let mut starts = BTreeSet::new();
    for step in 0..200 {
        let batch = task.train_batch(4, 3, 9, step);
        assert_eq!((batch.inputs.len(), batch.targets.len()), (12, 12));
        assert!(batch.counted.iter().all(|c| *c));
        for r in 0..3 {
            let (x, y) = (
                &batch.inputs[r * 4..r * 4 + 4],
                &batch.targets[r * 4..r * 4 + 4],
            );
            assert_eq!(x[1..], y[..3]);
            let start = LETTERS.iter().position(|&b| i32::from(b) == x[0]).unwrap();
            assert_eq!(
                [x, &y[3..]].concat(),
                LETTERS[start..start + 5]
                    .iter()
                    .map(|&b| i32::from(b))
                    .collect::<Vec<_>>()
            );
            starts.insert(start);
        }
    }
    assert_eq!(
        starts,
        (0..58).collect(),
        "every window of 5 bytes in 62, the last included"
    );
}

#[test]
fn batches_are_functions_of_their_arguments() {
    let dir = corpus(&[("a.txt", LETTERS)]);
    let build = || {
        build(
            "files = [\"a.txt\"]\nsplit = { by = \"range\", valid_fraction = 0.4 }",
            &ctx(dir.path()),
        )
        .unwrap()
    };
    let (task, again) = (build(), build());
    let forward: Vec<_> = (0..5).map(|step| task.train_batch(4, 6, 1, step)).collect();
    let mut backward: Vec<_> = (0..5)
        .rev()
        .map(|step| again.train_batch(4, 6, 1, step))
        .collect();
    backward.reverse();
    assert_eq!(forward, backward);
    assert_ne!(task.train_batch(4, 6, 2, 0), forward[0]);
    let all = task.test_batch(4, 0, task.test_rows(4));
    for row in (0..all.rows).rev() {
        assert_eq!(
            task.test_batch(4, row, 1).inputs,
            all.inputs[row * 4..row * 4 + 4]
        );
    }
}

#[test]
fn split_by_every_file() {
    let names: Vec<String> = (0..7).map(|i| format!("sub/{i}.txt")).collect();
    let contents: Vec<Vec<u8>> = (0..7).map(|i| vec![b'0' + i; 10]).collect();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .zip(&contents)
        .map(|(n, c)| (n.as_str(), c.as_slice()))
        .collect();
    let dir = corpus(&files);
    let task = build(
        "files = [\"**/*.txt\"]\nsplit = { by = \"file\", every = 3 }",
        &ctx(dir.path()),
    )
    .unwrap();
    let facts = task.corpus().unwrap();
    assert_eq!(
        (facts.files, facts.train_bytes, facts.valid_bytes),
        (7, 50, 20)
    );
    let held_out: BTreeSet<i32> = scored(&*task, 4).into_iter().collect();
    assert_eq!(held_out, [b'2', b'5'].map(i32::from).into());
    let trained: BTreeSet<i32> = (0..100)
        .flat_map(|step| task.train_batch(4, 1, 0, step).inputs)
        .collect();
    assert_eq!(
        trained,
        [b'0', b'1', b'3', b'4', b'6'].map(i32::from).into()
    );
    for (files, allowed) in [
        ("**/*.txt", "a whole number from 2 to 7"),
        ("sub/1.txt", "none with a single file"),
    ] {
        let table = format!("files = [\"{files}\"]\nsplit = {{ by = \"file\" }}");
        let error = common::invalid(files, build(&table, &ctx(dir.path())));
        let found = [&error.key, &error.value, &error.allowed];
        assert_eq!(found, ["split.every", "10", allowed]);
    }
}

#[test]
fn named_files_hold_out_their_last_tenth_by_default() {
    let dir = corpus(&[("a.txt", &[b'a'; 60]), ("b.txt", &[b'b'; 40])]);
    let task = build("files = [\"*.txt\"]", &ctx(dir.path())).unwrap();
    let facts = task.corpus().unwrap();
    assert_eq!(
        (facts.files, facts.train_bytes, facts.valid_bytes),
        (2, 90, 10)
    );
}

#[test]
fn split_by_named_files() {
    let dir = corpus(&[
        ("train.txt", &[b'a'; 20]),
        ("valid.txt", &[b'b'; 20]),
        ("more.txt", &[b'c'; 20]),
    ]);
    for files in ["[\"*.txt\"]", "[\"train.txt\", \"more.txt\"]"] {
        let task = build(
            &format!("files = {files}\nsplit = {{ by = \"files\", valid = [\"v*.txt\"] }}"),
            &ctx(dir.path()),
        )
        .unwrap();
        let facts = task.corpus().unwrap();
        assert_eq!(
            (facts.files, facts.train_bytes, facts.valid_bytes),
            (3, 40, 20)
        );
        assert!(scored(&*task, 6).iter().all(|&b| b == i32::from(b'b')));
    }
    let valid = |name: &str| {
        let split = format!("split = {{ by = \"files\", valid = [\"{name}\"] }}");
        build(&format!("files = [\"*.txt\"]\n{split}"), &ctx(dir.path()))
    };
    let error = common::invalid("*", valid("*"));
    assert_eq!(error.key, "split.valid");
    error.problem.must_have("all 3 files");
    input_error(valid("w.txt"), Some(&dir.path().join("w.txt")));
}

#[test]
fn identity_follows_names_and_bytes_and_not_the_place() {
    let range = "split = { by = \"range\", valid_fraction = 0.3 }";
    let table = format!("files = [\"d/*.txt\"]\n{range}");
    let files: [(&str, &[u8]); 2] = [("d/a.txt", LETTERS), ("d/b.txt", LETTERS)];
    let (one, two) = (corpus(&files), corpus(&files));
    let base = hash(&table, one.path());
    assert_eq!(base.len(), 64);
    assert_eq!(hash(&table, two.path()), base);
    // The same files by an absolute glob have names relative to its literal part, wherever that is.
    let absolute = |root: &Path| format!("files = ['{}/*/*.txt']\n{range}", root.display());
    assert_eq!(hash(&absolute(one.path()), Path::new("/")), base);
    assert_eq!(hash(&absolute(two.path()), Path::new("/")), base);
    let nested = one.path().join("configs");
    fs::create_dir(&nested).unwrap();
    assert_eq!(
        hash(
            &format!("files = [\"../d/*.txt\", \"./../d/a.txt\"]\n{range}"),
            &nested
        ),
        base
    );
    let mut changed = LETTERS.to_vec();
    changed[30] ^= 1;
    fs::write(two.path().join("d/b.txt"), &changed).unwrap();
    assert_ne!(hash(&table, two.path()), base);
    fs::write(two.path().join("d/b.txt"), LETTERS).unwrap();
    assert_eq!(hash(&table, two.path()), base);
    fs::rename(two.path().join("d/b.txt"), two.path().join("d/c.txt")).unwrap();
    assert_ne!(hash(&table, two.path()), base);
    // Moving a byte over a file boundary keeps the concatenation and changes the identity.
    let moved = corpus(&[
        ("d/a.txt", &LETTERS[..61]),
        ("d/b.txt", &[b"9", LETTERS].concat()),
    ]);
    assert_ne!(hash(&table, moved.path()), base);
    // Another split of the same files is another corpus.
    assert_ne!(
        hash(
            "files = [\"d/*.txt\"]\nsplit = { by = \"file\", every = 2 }",
            one.path()
        ),
        base
    );
}

#[test]
fn any_bytes_are_text() {
    let bytes: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let dir = corpus(&[("x.bin", &bytes)]);
    let task = build(
        "files = [\"x.bin\"]\nsplit = { by = \"range\" }",
        &ctx(dir.path()),
    )
    .unwrap();
    let seen: BTreeSet<i32> = (0..400)
        .flat_map(|step| task.train_batch(4, 4, 0, step).inputs)
        .collect();
    assert_eq!(seen, (0..256).collect());
}

#[test]
fn unusable_corpora_name_their_path() {
    let dir = corpus(&[("a.txt", LETTERS)]);
    let at = |name: &str| dir.path().join(name);
    let range = "split = { by = \"range\", valid_fraction = 0.5 }";
    let long = BuildContext {
        test_lens: vec![4, 31],
        ..ctx(dir.path())
    };
    let problem = input_error(
        build(&format!("files = [\"a.txt\"]\n{range}"), &long),
        Some(&at("a.txt")),
    );
    problem.must_have("validation split");
    problem.must_have("31 bytes");
    problem.must_have("needs 32");
    let most = |bytes: usize| {
        let table = format!("files = [\"a.txt\"]\nmax_bytes = {bytes}\n{range}");
        build(&table, &ctx(dir.path()))
    };
    let error = common::invalid("61", most(61));
    assert_eq!((&*error.key, &*error.value), ("max_bytes", "61"));
    error.problem.must_have("62 bytes");
    error.problem.must_have("a.txt\" with 62");
    assert!(most(62).is_ok());
}

#[cfg(unix)]
#[test]
fn links_to_directories_are_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = corpus(&[("secret.txt", LETTERS)]);
    let dir = corpus(&[("in/a.txt", LETTERS)]);
    symlink(outside.path(), dir.path().join("in/out")).unwrap();
    symlink(dir.path(), dir.path().join("in/loop")).unwrap();
    symlink(dir.path().join("nowhere"), dir.path().join("in/broken.txt")).unwrap();
    let range = "split = { by = \"range\", valid_fraction = 0.5 }";
    let task = build(
        &format!("files = [\"in/**/*.txt\"]\n{range}"),
        &ctx(dir.path()),
    )
    .unwrap();
    assert_eq!(task.corpus().unwrap().files, 1);
    let broken = build(
        &format!("files = [\"in/broken.txt\"]\n{range}"),
        &ctx(dir.path()),
    );
    input_error(broken, Some(&dir.path().join("in/broken.txt")));
    // A link to a file that the user names is the user's choice.
    symlink(
        outside.path().join("secret.txt"),
        dir.path().join("in/linked.txt"),
    )
    .unwrap();
    assert_eq!(
        build(
            &format!("files = [\"in/*.txt\"]\n{range}"),
            &ctx(dir.path())
        )
        .unwrap()
        .corpus()
        .unwrap()
        .files,
        2
    );
    // In a crate no link is taken.
    let home = cargo_home("index-1");
    symlink(
        outside.path().join("secret.txt"),
        home.path()
            .join("registry/src/index-1/alpha-1.0.0+spec-1/src/linked.rs"),
    )
    .unwrap();
    let task = build(
        &format!("crates = [\"alpha\"]\n{range}"),
        &cargo_ctx(Some(home.path().into())),
    )
    .unwrap();
    assert_eq!(task.corpus().unwrap().files, 2);
}

const LOCK: &str = r#"
version = 4

[[package]]
name = "alpha"
version = "1.0.0+spec-1"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "aa"
dependencies = ["beta 2.0.0"]

[[package]]
name = "beta"
version = "1.0.0"
checksum = "bb"

[[package]]
name = "beta"
version = "2.0.0"
checksum = "cc"

[[package]]
name = "local"
version = "0.1.0"
"#;

fn cargo_home(registry: &str) -> TempDir {
    let name = |file: &str| format!("registry/src/{registry}/{file}");
    let files: Vec<(String, &[u8])> = vec![
        (name("alpha-1.0.0+spec-1/src/lib.rs"), LETTERS),
        (name("alpha-1.0.0+spec-1/src/deep/er.rs"), LETTERS),
        (name("alpha-1.0.0+spec-1/README.md"), b"not Rust"),
        (name("beta-2.0.0/build.rs"), LETTERS),
        (name("other-1.0.0/src/lib.rs"), LETTERS),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (n.as_str(), *b)).collect();
    corpus(&files)
}

fn cargo_ctx(home: Option<PathBuf>) -> BuildContext<'static> {
    BuildContext {
        lock: LOCK,
        cargo_home: home,
        ..ctx(Path::new("/nowhere"))
    }
}

#[test]
fn cargo_corpus_reads_the_locked_versions() {
    let (one, two) = (cargo_home("index-1"), cargo_home("mirror-2"));
    let table = "crates = [\"beta@2.0.0\", \"alpha\"]\nsplit = { by = \"file\", every = 3 }";
    let facts = |home: &TempDir, table: &str| {
        build(table, &cargo_ctx(Some(home.path().into())))
            .unwrap()
            .corpus()
            .unwrap()
            .clone()
    };
    let found = facts(&one, table);
    assert_eq!(
        (found.files, found.train_bytes, found.valid_bytes),
        (3, 124, 62)
    );
    assert_eq!(found.source, "cargo: alpha 1.0.0+spec-1, beta 2.0.0");
    assert_eq!(
        facts(&two, table),
        found,
        "the registry's directory is not part of the corpus"
    );
    let named =
        "crates = [\"alpha\", \"beta@2.0.0\"]\nsplit = { by = \"files\", valid = [\"beta-*/**\"] }";
    let named = facts(&one, named);
    assert_eq!((named.train_bytes, named.valid_bytes), (124, 62));
}

#[test]
fn cargo_corpus_errors_say_what_and_where() {
    let home = cargo_home("index-1");
    let crates =
        |list: &str, home: Option<PathBuf>| build(&format!("crates = [{list}]"), &cargo_ctx(home));
    let missing = crates("\"alpha\", \"beta@1.0.0\"", Some(home.path().into()));
    let place = home.path().join("registry/src/*/beta-1.0.0");
    assert!(input_error(missing, Some(&place)).contains("beta 1.0.0"));
    let no_home = crates("\"alpha\"", Some(home.path().join("no")));
    let place = home.path().join("no/registry/src/*/alpha-1.0.0+spec-1");
    input_error(no_home, Some(&place)).must_have("alpha");
    let unknown = crates("\"alpha\"", None);
    assert!(input_error(unknown, None).contains("Cargo's home"));
    let bad_lock = BuildContext {
        lock: "package = 3",
        ..cargo_ctx(Some(home.path().into()))
    };
    assert!(input_error(build("", &bad_lock), None).contains("Cargo.lock"));
    for (list, key, problem) in [
        ("\"alpha\", \"gamma\"", "crates.1", "not a registry package"),
        ("\"local\"", "crates.0", "not a registry package"),
        ("\"beta\"", "crates.0", "1.0.0, 2.0.0"),
        ("\"alpha@9.0.0\"", "crates.0", "1.0.0+spec-1"),
        ("\"alpha\", \"alpha\"", "crates.1", "twice"),
    ] {
        let error = common::invalid(list, crates(list, Some(home.path().into())));
        assert_eq!(error.key, key, "{list}");
        error.problem.must_have(problem);
    }
}

/// Needs the crates of the default list on this machine:
/// `cargo test -p longreach-tasks -- --ignored --nocapture`.
#[test]
#[ignore = "reads Cargo's real home directory"]
fn default_corpus_of_this_machine() {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let lock =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock")).unwrap();
    let ctx = BuildContext {
        lock: &lock,
        cargo_home: home,
        train_len: 128,
        test_lens: vec![128, 4096],
        ..ctx(Path::new(""))
    };
    let start = std::time::Instant::now();
    let task = build("", &ctx).unwrap();
    println!(
        "{:#?}\nin {:?}; {} windows of 128",
        task.corpus().unwrap(),
        start.elapsed(),
        task.test_rows(128)
    );
    assert!((5_000_000..12_000_000).contains(&task.corpus().unwrap().train_bytes));
    assert_eq!((task.test_rows(128), task.test_rows(4096)), (4986, 156));
}

#[test]
fn says_what_it_measures() {
    let dir = corpus(&[("a.txt", LETTERS)]);
    let range =
        "files = [\"a.txt\"]\neval_tokens = 99\nsplit = { by = \"range\", valid_fraction = 0.5 }";
    let definitions = |table: &str, lens: &[usize]| {
        let task = build(
            table,
            &BuildContext {
                test_lens: lens.into(),
                ..ctx(dir.path())
            },
        )
        .unwrap();
        assert!(
            task.definitions(TEACHER_FORCED)
                .contains_key(task.primary_metric())
        );
        task.definitions(TEACHER_FORCED)["loss_nats"].clone()
    };
    assert_eq!(
        definitions(range, &[4, 6]),
        "mean negative log-likelihood in nats per byte; every scored byte weighs the same; \
         teacher-forced; non-overlapping windows, stride = window, over the same 24 bytes at \
         every test length; each scores all its predictions; the first scored byte is the second \
         of the validation split."
    );
    assert!(definitions(range, &[7, 11, 13]).contains("no common multiple"));
    let sliding = format!("{range}\nwindows = {{ kind = \"sliding\", stride = 2 }}");
    definitions(&sliding, &[4, 6]).must_have("stride 2 over the same 24");
    let whole = definitions(&range.replace("eval_tokens = 99\n", ""), &[4, 6]);
    whole.must_have("the same 27 bytes at every test length; the last window is moved back");
    let task = build(range, &ctx(dir.path())).unwrap();
    assert_eq!(
        (task.chance()["bits_per_byte"], task.chance()["perplexity"]),
        (8.0, 256.0)
    );
    assert!((task.chance()["loss_nats"] - 256f64.ln()).abs() < 1e-12);
}

#[test]
fn characters_are_those_of_the_training_split() {
    // Characters of 1, 2, 3 and 4 bytes; the cut lies inside one.
    let (train, valid) = ("aé→𝄞".repeat(10), "→aé𝄞ß".repeat(10));
    let text = format!("{train}{valid}");
    let dir = corpus(&[("x.txt", text.as_bytes())]);
    let share = |bytes: usize| {
        format!(
            "level = \"chars\"\nfiles = [\"x.txt\"]\neval_tokens = 99\nsplit = {{ by = \"range\", \
             valid_fraction = {} }}",
            (bytes as f64 + 0.5) / text.len() as f64
        )
    };
    let task = build(&share(valid.len()), &ctx(dir.path())).unwrap();
    assert_eq!(
        (task.vocab_size(), task.unit(), task.kind()),
        (5, "characters", "text")
    );
    // By code point: a is 1, é 2, → 3, 𝄞 4; ß is not in the training split.
    assert_eq!(task.test_batch(4, 0, 1).inputs, [3, 1, 2, 4]);
    assert_eq!(task.test_batch(4, 0, 1).targets, [1, 2, 4, 0]);
    assert_eq!(scored(&*task, 4), scored(&*task, 6));
    // 49 can be scored, 48 are at both lengths: nine of each kind and three more.
    assert_eq!(scored(&*task, 4).len(), 48);
    let bytes: usize = valid.chars().skip(1).take(48).map(char::len_utf8).sum();
    assert!((task.bytes_per_token().unwrap() - bytes as f64 / 48.0).abs() < 1e-12);
    let definitions = task.definitions(TEACHER_FORCED);
    definitions["loss_nats"].must_have(
        "the 4 characters of the training split; 9 of the 48 scored characters are none of them",
    );
    assert!(
        definitions
            .values()
            .all(|text| !text.contains("byte ") && !text.contains("bytes at")),
        "{definitions:?}"
    );
    assert!((task.chance()["perplexity"] - 5.0).abs() < 1e-12);
    let batch = task.train_batch(4, 50, 0, 0);
    assert!(
        batch
            .inputs
            .chunks(4)
            .zip(batch.targets.chunks(4))
            .all(|(x, y)| x[1..] == y[..3] && y[3] == x[3] % 4 + 1)
    );
    // One byte more or less, and the character that is cut belongs to neither side.
    for cut in [
        valid.len() - 1,
        valid.len() - 2,
        valid.len() + 1,
        valid.len() + 3,
    ] {
        let task =
            build(&share(cut), &ctx(dir.path())).unwrap_or_else(|error| panic!("{cut}: {error}"));
        assert_eq!(task.vocab_size(), 5);
    }
    let bytes = build(
        &share(valid.len()).replace("chars", "bytes"),
        &ctx(dir.path()),
    )
    .unwrap();
    assert_eq!(
        (bytes.vocab_size(), bytes.unit(), bytes.bytes_per_token()),
        (256, "bytes", Some(1.0))
    );
}

#[test]
fn what_is_no_text_has_no_characters() {
    let dir = corpus(&[
        (
            "x.txt",
            &b"plenty of text here \xff\xfe and more of it, enough for both"[..],
        ),
        ("short.txt", "ééééééé".as_bytes()),
    ]);
    let table = |file: &str| {
        format!(
            "level = \"chars\"\nfiles = [\"{file}\"]\nsplit = {{ by = \"range\", valid_fraction = \
             0.5 }}"
        )
    };
    let problem = input_error(
        build(&table("x.txt"), &ctx(dir.path())),
        Some(&dir.path().join("x.txt")),
    );
    assert_eq!(
        problem,
        "the training split is not UTF-8: byte 20 begins no character"
    );
    let problem = input_error(
        build(&table("short.txt"), &ctx(dir.path())),
        Some(&dir.path().join("short.txt")),
    );
    assert!(
        problem.contains("has 3 characters") || problem.contains("has 4 characters"),
        "{problem}"
    );
}

#[test]
fn a_file_in_both_splits_is_noted() {
    let letters = "letters, one after the other\n".repeat(9);
    let other = letters.replace("one", "two");
    let dir = corpus(&[
        ("a.txt", letters.as_bytes()),
        ("b.txt", other.as_bytes()),
        ("copy.txt", letters.as_bytes()),
        ("empty.txt", b""),
        ("none.txt", b""),
    ]);
    let notes = |files: &str, valid: &str| {
        let table = format!("files = [{files}]\nsplit = {{ by = \"files\", valid = [{valid}] }}");
        let task = build(&table, &ctx(dir.path())).unwrap();
        task.corpus().unwrap().notes.join("|")
    };
    let all = "\"a.txt\", \"b.txt\", \"empty.txt\"";
    assert_eq!(notes(all, "\"b.txt\", \"none.txt\""), "");
    assert_eq!(
        notes(all, "\"b.txt\", \"copy.txt\""),
        "copy.txt is validation text and has the same bytes as a.txt, which is trained on: remove \
         one of the two, as memorised text tests nothing"
    );
}

#[test]
fn files_that_begin_as_something_else_are_noted_or_refused() {
    let letters = "letters, one after the other\n".repeat(9);
    let wide: Vec<u8> = letters.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = format!("\u{feff}{letters}").into_bytes();
    let gzip = [b"\x1f\x8b\x08\0", letters.as_bytes()].concat();
    let ids: Vec<u8> = (300..400u16).flat_map(u16::to_le_bytes).collect();
    let numpy = [b"\x93NUMPY\x01\0", letters.as_bytes()].concat();
    let dir = corpus(&[
        ("a.txt", letters.as_bytes()),
        ("b.gz", &gzip),
        ("c.gz", &gzip),
        ("wide.txt", &wide),
        ("marked.txt", &marked),
        ("ids.npy", &numpy),
        ("ids.bin", &ids),
    ]);
    let of = |files: &str, level: &str| {
        let table = format!("files = [{files}]\nlevel = \"{level}\"\nsplit = {{ by = \"range\" }}");
        let vocab = if level == "bpe" { "\nvocab = 258" } else { "" };
        build(&format!("{table}{vocab}"), &ctx(dir.path()))
    };
    let notes = |files: &str, level: &str| {
        let task = of(files, level).unwrap_or_else(|error| panic!("{files}: {error}"));
        task.corpus().unwrap().notes.join("|")
    };
    assert_eq!(notes("\"a.txt\"", "bytes"), "");
    assert_eq!(
        notes("\"a.txt\", \"b.gz\", \"c.gz\"", "bytes"),
        "b.gz and 1 more begins as a gzip file, and its bytes are trained on as they are; `gunzip \
         FILE` unpacks it"
    );
    assert!(notes("\"wide.txt\"", "bytes").contains("`iconv -f UTF-16LE -t UTF-8 FILE`"));
    // Ids of 16 bits, as nanoGPT writes them.
    assert!(notes("\"ids.bin\"", "bytes").contains("ids.bin begins as binary data"));
    for level in ["bytes", "chars", "bpe"] {
        notes("\"marked.txt\"", level).must_have("`tail -c +4 FILE`");
        let error = input_error(of("\"ids.npy\"", level), Some(&dir.path().join("ids.npy")));
        assert_eq!(error, "begins as a NumPy array, not as text");
    }
    for level in ["chars", "bpe"] {
        let error = input_error(of("\"b.gz\"", level), Some(&dir.path().join("b.gz")));
        assert_eq!(error, "begins as a gzip file, not as text");
        let error = input_error(
            of("\"wide.txt\"", level),
            Some(&dir.path().join("wide.txt")),
        );
        assert_eq!(error, "begins as text in UTF-16, not as text");
    }
}
