//! All mistakes of a file are reported together, and no others.

use crate::common::{TINY, exits, longreach, stderr};
use experiment::plan;
use experiment::plan::mistakes::Mistakes;

fn mistakes(text: &str, overrides: &[&str]) -> Option<Mistakes> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    std::fs::write(&path, text).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    plan(&path, &overrides).err()
}

/// What the program says about a file.
fn printed(text: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("x.toml"), text).unwrap();
    let mut program = longreach();
    program
        .current_dir(directory.path())
        .arg("check")
        .arg("x.toml")
        .args(arguments);
    let output = program.output().unwrap();
    exits(&output, 2);
    stderr(&output)
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = r#"
name = "Bad Name"
seeds = 3
sweep = 4

[task]
kind = "kopy"

[model]
d_model = "64"
n_layers = 0
n_heads = 4

[train]
train_len = 8
stepz = 5
weight_decay = 0.1
positions = { kind = "randomized" }

[eval]
test_lens = [8, 16]
batch_tokens = 0

[axes]
"train.lr" = []
"model.dropout" = [0.1, 0.1]
"#;
    insta::assert_snapshot!(printed(text, &[]));
}

#[test]
fn hints() {
    let with = |from: &str, to: &str| {
        assert!(TINY.contains(from), "{from}");
        TINY.replace(from, to)
    };
    let cases = [
        (
            "a key of a table inside",
            with("lr = 1e-3", "weight_decay = 0.1"),
        ),
        (
            "a key of another section",
            with("lr = 1e-3", "positions = { kind = \"randomized\" }"),
        ),
        ("a key of the top level", with("lr = 1e-3", "seeds = [0]")),
        (
            "an encoding without a kind",
            with("[{ kind = \"rope\" }, ", "[{ base = 5 }, "),
        ),
        ("a task without a kind", with("kind = \"copy\"\n", "")),
        (
            "a split without `by`",
            with(
                "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
                "kind = \"text\"\nsplit = { valid_fraction = 0.2 }",
            ),
        ),
        ("one seed for a list", with("lr = 1e-3", "seed = 0")),
        (
            "a key of two sections",
            with("lr = 1e-3", "stop = { steps = 3 }"),
        ),
        (
            "a key of the encoding",
            with("n_heads = 2", "n_heads = 2\nbase = 500"),
        ),
        (
            "an option of the encoding",
            with("n_heads = 2", "n_heads = 2\nscaling = { kind = \"ntk\" }"),
        ),
        (
            "a key of the task",
            with("test_lens = [4, 8]", "test_lens = [4, 8]\nalphabet = 3"),
        ),
        (
            "a kind that is a number",
            with("kind = \"copy\"", "kind = 5"),
        ),
        (
            "a scaling as an encoding",
            with("pe = { kind = \"rope\" }", "pe = { kind = \"yarn\" }")
                .replace("[axes]", "")
                .replace("\"model.pe\" =", "# "),
        ),
        (
            "a scaling as an encoding, without its table",
            with("pe = { kind = \"rope\" }", "pe = \"yarn\"")
                .replace("[axes]", "")
                .replace("\"model.pe\" =", "# "),
        ),
        (
            "a scaling as an encoding of an axis",
            with("{ kind = \"learned\" }", "{ kind = \"ntk\" }"),
        ),
        (
            "positions as an encoding",
            with("{ kind = \"learned\" }", "{ kind = \"randomized\" }"),
        ),
        ("a number of seeds", with("seeds = [0, 1]", "seeds = 3")),
        ("one seed", with("seeds = [0, 1]", "seeds = 1")),
        ("a large seed", with("seeds = [0, 1]", "seeds = 1234")),
        (
            "no encoding",
            with("pe = { kind = \"rope\" }\n", "").replace("[axes]\n\"model.pe\" =", "# "),
        ),
        ("no section", with("[train]", "[report.train]")),
        (
            "no task",
            with("[task]\nkind = \"copy\"\nalphabet = 4\ntest_rows = 8", ""),
        ),
        ("an axis as a section", with("[axes]", "[axis]")),
        ("a number for a string", with("name = \"tiny\"", "name = 5")),
        ("a string for a number", with("steps = 6", "steps = \"6\"")),
    ];
    let all = cases.map(|(name, text)| format!("## {name}\n{}", printed(&text, &[])));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn what_no_axis_varies_is_a_mistake_of_no_single_run() {
    for (from, to, of_one_run) in [
        ("name = \"tiny\"", "name = \"Bad Name\"", false),
        ("seeds = [0, 1]", "seeds = [1, 1]", false),
        ("n_heads = 2", "n_heads = 3", true),
    ] {
        let text = printed(&TINY.replace(from, to), &[]);
        assert_eq!(text.contains("in the run with"), of_one_run, "{text}");
    }
}

/// Single mistakes, as overrides of a good file, and whether nothing else can hide them.
const SINGLE: &[(&str, bool)] = &[
    ("train.stepz=5", true),
    ("model.colour=1", true),
    ("model.d_model=\"wide\"", true),
    ("task.kind=kopy", true),
    ("train.length=\"sometimes\"", true),
    ("eval.seed=[1]", true),
    ("name=\"No Name\"", true),
    ("seeds=[1,1]", true),
    ("train.steps=0", true),
    ("train.lr=-1", true),
    ("eval.batch_tokens=0", true),
    ("model.n_heads=3", false),
    ("train.warmup_steps=7", false),
    ("eval.test_lens=[4,4]", false),
    ("eval.every=7", false),
    ("task.alphabet=1", false),
    ("axes.\"train.final_lr\"=[]", true),
    ("report.claims=\"/none.toml\"", true),
];

#[test]
fn of_two_mistakes_both_are_reported_and_no_third() {
    let problem = |mistake: &config::diagnostic::Diagnostic| mistake.problem.to_string();
    let alone: Vec<String> = SINGLE
        .iter()
        .map(|(text, _)| {
            let mistakes = mistakes(TINY, &[text]).unwrap_or_else(|| panic!("{text} is none"));
            let all: Vec<String> = mistakes.iter().map(problem).collect();
            assert_eq!(all.len(), 1, "{text}: {all:?}");
            all[0].clone()
        })
        .collect();
    for (i, (one, sure)) in SINGLE.iter().enumerate() {
        for (j, (other, also_sure)) in SINGLE.iter().enumerate().skip(i + 1) {
            let found = mistakes(TINY, &[one, other]).unwrap();
            let found: Vec<String> = found.iter().map(problem).collect();
            for printed in &found {
                assert!(
                    *printed == alone[i] || *printed == alone[j],
                    "{one} and {other}: {printed}"
                );
            }
            let wanted = [(sure, &alone[i]), (also_sure, &alone[j])];
            for (_, wanted) in wanted.iter().filter(|(sure, _)| **sure) {
                assert!(found.contains(wanted), "{one} and {other}: {found:?}");
            }
        }
    }
}

#[test]
fn mistakes_of_several_values_of_an_axis() {
    let axis = "axes.\"model.pe\"=[{kind=\"rope\",bas=1},{kind=\"alibi\"},{kind=\"t5\",num_buckets=0},{kind=\"rope\",bas=2}]";
    let found = mistakes(TINY, &[axis]).unwrap();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    // An override is one place, so the same mistake in it is reported once.
    assert_eq!(found.len(), 2, "{found:#?}");
    let text = TINY.replace(
        "{ kind = \"learned\" }]",
        "{ kind = \"learned\" }, { kind = \"alibi\", bas = 1 },\n{ kind = \"t5\", bas = 1 }]",
    );
    let found = mistakes(&text, &[]).unwrap();
    assert_eq!(found.iter().count(), 2, "{found}");
}

#[test]
fn no_more_than_twenty() {
    let text = (0..40).fold(TINY.to_owned(), |text, i| {
        text.replace("[model]", &format!("[model]\nextra_{i} = 1"))
    });
    let found = mistakes(&text, &[]).unwrap();
    assert_eq!(found.iter().count(), 20);
    assert!(
        found
            .to_string()
            .ends_with("20 mistakes, and there may be more"),
        "{found}"
    );
}
