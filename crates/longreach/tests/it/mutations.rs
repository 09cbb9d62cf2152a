//! Mutated configs are refused by name, or valid for a written reason; `scripts/mutate-configs`
//! tries more of them.

#[path = "../../examples/mutate_configs/harness/mod.rs"]
mod harness;

use crate::common::{command, stderr};
use experiment::plan;
use harness::{Harness, Report, bases};

#[test]
fn every_key_of_the_schema_is_in_some_valid_config() {
    let scratch = tempfile::tempdir().unwrap();
    let bases = bases::all(scratch.path());
    for base in &bases {
        let path = scratch.path().join("base.toml");
        std::fs::write(&path, &base.text).unwrap();
        plan(&path, &[])
            .unwrap_or_else(|error| panic!("{} is not a valid base\n{error}", base.name));
    }
    let (known, held) = bases::known_and_held(&bases, scratch.path());
    assert!(known.len() > 150, "only {} keys are known", known.len());
    let elsewhere = bases::ELSEWHERE;
    let missing: Vec<_> = known
        .difference(&held)
        .filter(|key| !elsewhere.contains(&key.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "add these keys to a table in harness/bases.rs, so that they are mutated: {missing:?}"
    );
    for kind in posenc::EncodingConfig::KINDS {
        assert!(
            held.contains(&format!("pe:{kind}.kind")),
            "the encoding {kind} is in no base"
        );
    }
    for kind in posenc::RopeScaling::KINDS {
        assert!(
            held.contains(&format!("scaling:{kind}.kind")),
            "the scaling {kind} is in no base"
        );
    }
    for kind in posenc::PositionsConfig::KINDS {
        assert!(
            held.contains(&format!("positions:{kind}.kind")),
            "the positions {kind} are in no base"
        );
    }
    for kind in tasks::TaskConfig::KINDS {
        assert!(
            held.contains(&format!("task:{kind}.kind")),
            "the task {kind} is in no base"
        );
    }
    assert!(harness::mutators::MUTATORS.len() >= 12);
}

#[test]
fn mutants_are_refused_by_name_or_valid_for_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let harness = Harness::new(scratch.path());
    let mut report = Report::default();
    harness.keys(1600, &mut report);
    harness.texts(400, &mut report);
    let sum = report.sum();
    assert_eq!(sum.wrong, 0, "{}", report.violations.join("\n\n"));
    assert!(
        sum.tried == 2000 && sum.refused > 1500 && sum.accepted > 50,
        "{sum:?}"
    );
}

/// What the harness asks within its own process is what the program answers.
#[test]
fn the_program_ends_with_the_code_of_the_answer() {
    let scratch = tempfile::tempdir().unwrap();
    let config = scratch.path().join("x.toml");
    let most = bases::all(scratch.path()).swap_remove(0).text;
    for (text, arguments, code, key) in [
        (most.clone(), vec![], 0, ""),
        (
            most.replace("d_model", "d_mdoel"),
            vec![],
            2,
            "model.d_mdoel",
        ),
        (
            most.replace("steps = 60", "steps = 60\nsteps = 60"),
            vec![],
            2,
            "train.steps",
        ),
        (most.clone(), vec!["train.adamw=[]"], 2, "train.adamw"),
        (
            most.clone(),
            vec!["eval.variants.0.when.knid=rope"],
            2,
            "eval.variants.0.when.knid",
        ),
        (
            most.clone(),
            vec!["task={kind=\"text\",files=[\"nowhere\"]}"],
            3,
            "task.files",
        ),
        (
            format!("{most}\n{}", "[".repeat(100_000)),
            vec![],
            2,
            "x.toml",
        ),
    ] {
        std::fs::write(&config, text).unwrap();
        let output = command("check", &config, &arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(key),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}
