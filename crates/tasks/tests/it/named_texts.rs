//! Texts with a name: the one that the program carries, and published corpora.

use crate::common::{self, MustHave};
use longreach_tasks::{
    BuildContext, CarriedText, DEFAULT_CRATES, Rows, Task, TaskConfig, TaskError,
};
use std::collections::BTreeSet;
use std::path::Path;

fn build(table: &str, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
    let table = format!("kind = \"text\"\n{table}");
    toml::from_str::<TaskConfig>(&table)
        .expect("a table")
        .build(ctx)
}

fn ctx(directory: &Path, rows: Rows) -> BuildContext<'static> {
    BuildContext {
        rows,
        ..common::ctx(directory, 8, &[8, 20], 0)
    }
}

/// Twelve crates of two files each; a byte says which file it is of.
fn carried() -> CarriedText {
    let packages = DEFAULT_CRATES.map(|name| format!("{name} 1.0.0")).to_vec();
    let mut files: Vec<(String, usize)> = Vec::new();
    for name in DEFAULT_CRATES {
        for file in ["build.rs", "src/lib.rs"] {
            files.push((format!("{name}-1.0.0/{file}"), 100 + files.len()));
        }
    }
    let bytes = files.iter().enumerate();
    let bytes = bytes
        .flat_map(|(at, (_, len))| vec![at as u8; *len])
        .collect();
    CarriedText {
        packages,
        files,
        bytes,
    }
}

fn facts(task: &dyn Task) -> longreach_tasks::CorpusFacts {
    task.corpus().expect("a corpus").clone()
}

/// Cargo's directory and a lock file with the same files.
fn unpacked(directory: &Path) -> String {
    let text = carried();
    let mut at = 0;
    for (name, len) in &text.files {
        let path = directory.join("registry/src/index-1").join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, &text.bytes[at..at + len]).expect("a file");
        at += len;
    }
    DEFAULT_CRATES
        .map(|name| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nchecksum = \"aa\"\n")
        })
        .concat()
}

#[test]
fn the_text_that_is_carried_is_that_of_cargos_directory() {
    let home = tempfile::tempdir().expect("a directory");
    let lock = unpacked(home.path());
    let from_cargo = BuildContext {
        lock: &lock,
        cargo_home: Some(home.path().to_owned()),
        ..ctx(Path::new("/nowhere"), Rows::Test)
    };
    // Neither a lock file nor a directory of Cargo's.
    let from_program = BuildContext {
        carried: Some(carried),
        ..ctx(Path::new("/nowhere"), Rows::Test)
    };
    for table in [
        "",
        "split = { by = \"file\", every = 4 }",
        "split = { by = \"range\", valid_fraction = 0.3 }",
        "split = { by = \"files\", valid = [\"rayon-*/**\", \"statrs-*/**\"] }",
        "level = \"chars\"\nsplit = { by = \"file\", every = 2 }",
    ] {
        let [cargo, program] = [&from_cargo, &from_program]
            .map(|ctx| build(table, ctx).unwrap_or_else(|error| panic!("{table}: {error}")));
        assert_eq!(facts(&*cargo), facts(&*program), "{table}");
        for length in [8, 20] {
            let rows = cargo.test_rows(length);
            assert_eq!(
                cargo.test_batch(length, 0, rows),
                program.test_batch(length, 0, rows)
            );
            let batch = |task: &dyn Task| task.train_batch(length, 50, 1, 2);
            assert_eq!(batch(&*cargo), batch(&*program), "{table}");
        }
    }
    // Other crates still come from Cargo's directory.
    let two = "crates = [\"rayon\", \"statrs\"]\nsplit = { by = \"file\", every = 2 }";
    assert_eq!(
        facts(&*build(two, &from_cargo).expect("two crates")).files,
        4
    );
    assert!(build(two, &from_program).is_err());
    let both = BuildContext {
        carried: Some(|| panic!("not asked for")),
        ..from_cargo.clone()
    };
    assert!(build(two, &both).is_ok());
    let small = build("max_bytes = 1000", &from_program)
        .err()
        .expect("too large");
    small.to_string().must_have("2676 bytes in 24 files");
}

/// A resolved table has one name for one text, which is the one of runs that are recorded.
#[test]
fn the_name_of_the_default_text_resolves_to_the_default() {
    let resolved = |text: &str| {
        let table: TaskConfig = toml::from_str(text).expect(text);
        serde_json::to_string(&table).expect("JSON")
    };
    let expected = "{\"kind\":\"text\",\"corpus\":\"cargo\",\"files\":[],\"crates\":[\
                    \"burn-autodiff\",\"burn-backend\",\"burn-core\",\"burn-flex\",\"burn-nn\",\
                    \"burn-std\",\"burn-tensor\",\"clap_builder\",\"minijinja\",\"rayon\",\
                    \"serde_json\",\"statrs\"],\"split\":{\"by\":\"file\",\"every\":10},\
                    \"eval_tokens\":32768,\"windows\":{\"kind\":\"non_overlapping\"},\
                    \"max_bytes\":67108864}";
    for corpus in ["", "corpus = \"cargo\"", "corpus = \"rust-2026\""] {
        let text = format!("kind = \"text\"\neval_tokens = 32768\n{corpus}");
        assert_eq!(resolved(&text), expected, "{corpus}");
    }
    let masked = |corpus: &str| resolved(&format!("kind = \"masked_text\"\n{corpus}"));
    assert_eq!(masked("corpus = \"rust-2026\""), masked(""));
}

/// Tables, `; ` for a line break, the key at fault, and a part of the hint.
const MISNAMED: &str = r#"
corpus = "rust-2026"; files = ["a"] | files | remove `corpus` or `files`
corpus = "rust-2026"; crates = ["rayon"] | crates | corpus = "cargo"
corpus = "text8" | files | get text8 from mattmahoney.net/dc/textdata.html
corpus = "wikitext-2" | files | wiki.train.tokens, wiki.valid.tokens
corpus = "enwik8"; files = ["a"]; crates = ["b"] | crates | remove
corpus = "enwik8"; files = ["a"]; split = { by = "range" } | split | remove `split`
corpus = "enwik8"; files = ["a"]; level = "u16"; vocab = 9 | level | corpus = "files"
files = ["a"]; split = { by = "published" } | split.by | name the corpus
"#;

#[test]
fn names_of_texts_go_with_their_keys() {
    let nowhere = ctx(Path::new("/nowhere"), Rows::Test);
    for row in common::lines(MISNAMED) {
        let [table, key, help] = common::cells(row);
        let error = common::invalid(table, build(&common::by_lines(table), &nowhere));
        assert_eq!(error.key, key, "{table}");
        assert!(error.hint.contains(help), "{table}: {}", error.hint);
    }
}

/// Files named for wikitext-103, and what is wrong with them.
const OTHER_FILES: &str = r#"
["input.txt"] | has no wiki.train.tokens of wikitext-103
["train.txt", "a.valid", "b.valid"] | has more than one wiki.valid.tokens
["train.txt", "a.valid", "test.txt", "input.txt"] | has files that wikitext-103 does not have
"#;

#[test]
fn a_file_that_is_another_says_what_it_is_and_what_it_should_be() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("input.txt"), "to be\nor not").expect("a file");
    let table = "corpus = \"tinyshakespeare\"\nfiles = [\"input.txt\"]";
    let error = build(table, &ctx(directory.path(), Rows::Test))
        .err()
        .expect("another file");
    let hash = blake3::hash(b"to be\nor not").to_hex().to_string();
    let published = "5bd8f6749d3cda816828aabf1aebdc595f673de8102e521bbd8369ad4b7917e9";
    let text = error.to_string();
    for part in [
        &*format!("it has 12 bytes, BLAKE3 {hash}; published: 1115394 bytes, BLAKE3 {published}"),
        "input.txt: is not input.txt of tinyshakespeare",
        "github.com/karpathy/char-rnn",
    ] {
        text.must_have(part);
    }
    for row in common::lines(OTHER_FILES) {
        let [files, problem] = common::cells(row);
        for name in ["train.txt", "a.valid", "b.valid", "test.txt"] {
            std::fs::write(directory.path().join(name), name).expect("a file");
        }
        let table = format!("corpus = \"wikitext-103\"\nfiles = {files}");
        let built = build(&table, &ctx(directory.path(), Rows::Test));
        let error = common::invalid(files, built);
        assert_eq!(error.key, "files");
        assert!(error.problem.starts_with(problem), "{}", error.problem);
    }
    let table = "corpus = \"wikitext-103\"\nfiles = [\"train.txt\", \"a.valid\", \"test.txt\"]";
    let error = build(table, &ctx(directory.path(), Rows::Test))
        .err()
        .expect("small files");
    let text = error.to_string();
    text.must_have("it has 9 bytes, 1 words and line ends, BLAKE3");
    text.must_have("published: 103227021 words and line ends;");
}

/// Needs the published files, which are not in the repository.
#[test]
fn published_files_are_known_and_split_as_published() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !data.join("tinyshakespeare.txt").exists() {
        return;
    }
    let table = "corpus = \"tinyshakespeare\"\nfiles = [\"tinyshakespeare.txt\"]";
    let task = |rows| build(table, &ctx(&data, rows)).expect("the published file");
    let [test, selection] = [Rows::Test, Rows::Selection].map(task);
    let found = facts(&*test);
    assert_eq!((found.train_bytes, found.valid_bytes), (1_003_854, 111_540));
    assert_eq!(found.source, "tinyshakespeare: tinyshakespeare.txt");
    assert_eq!(found.blake3, facts(&*selection).blake3);
    // An eighth of the validation split is kept: 13,942 bytes.
    let scored = [&test, &selection].map(|task| task.scored_text().expect("all of it").tokens);
    assert_eq!(scored, [97_536, 13_888]);
    // Its training file is not there: what is trained on instead must be named as such.
    let table =
        "corpus = \"wikitext-2\"\nfiles = [\"wikitext2-valid.txt\", \"wikitext2-test.txt\"]";
    let error = common::invalid(table, build(table, &ctx(&data, Rows::Test)));
    error.problem.must_have("has no wiki.train.tokens");
    error.hint.must_have("corpus = \"files\"");
}

#[test]
fn default_crates_are_sorted_and_differ() {
    let set: BTreeSet<&str> = DEFAULT_CRATES.into_iter().collect();
    assert!(set.into_iter().eq(DEFAULT_CRATES));
}
