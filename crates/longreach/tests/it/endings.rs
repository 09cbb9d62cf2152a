//! How commands end where not everything is as asked: runs that cannot be recorded, retries that
//! select nothing, trainings whose last step ruins the weights, limits that are too low.
#![cfg(unix)]

use crate::common::{ONE, Scratch, TINY, exits, fails, longreach, says, shows, stderr, wait_for};
use experiment::plan;
use std::process::Stdio;

/// A config of text with this many lengths from 64 on, and variants.
fn wide(lengths: usize, variants: usize) -> Scratch {
    let lengths: Vec<usize> = (64..64 + lengths).collect();
    let mut text = format!(
        "name = \"wide\"\n[task]\nkind = \"text\"\nfiles = [\"corpus.txt\"]\neval_tokens = \
         200\n[model]\nd_model = 16\nn_layers = 1\nn_heads = 2\npe = {{ kind = \"rope\" \
         }}\n[train]\ntrain_len = 64\nsteps = 2\nbatch_size = 2\n[eval]\ntest_lens = {lengths:?}\n"
    );
    for index in 0..variants {
        text.push_str(&format!(
            "[[eval.variants]]\nname = \"v{index}\"\nset = {{ scaling = {{ kind = \"yarn\", factor = \
             {} }} }}\n",
            index + 2
        ));
    }
    let scratch = Scratch::with(&text);
    let corpus: String = (0..8000).map(|line| format!("{line} and more\n")).collect();
    scratch.write("corpus.txt", corpus);
    scratch
}

#[test]
fn what_cannot_be_recorded_is_refused_by_the_plan() {
    let refused = |scratch: Scratch, overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        plan(&scratch.config, &overrides)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let said = [
        refused(wide(100, 29), &[]),
        refused(wide(101, 99), &[]),
        refused(
            wide(2, 0),
            &[
                "eval.attention_distance=true",
                "model.d_model=32",
                "model.n_layers=64",
                "model.n_heads=16",
            ],
        ),
    ];
    // The lines of the file differ with the place of the corpus; the rest does not.
    let said: Vec<String> = said
        .iter()
        .map(|text| {
            let kept = text
                .lines()
                .filter(|line| !line.contains('|') && !line.contains("-->"));
            kept.collect::<Vec<_>>().join("\n")
        })
        .collect();
    insta::assert_snapshot!("records_that_cannot_be_written", said.join("\n\n"));
}

#[test]
fn the_size_of_a_record_is_estimated_from_above_and_closely() {
    let scratch = wide(12, 5);
    scratch.trains(&[]);
    let bytes = scratch.records()[0].1.len() as f64;
    let config = std::fs::read_to_string(&scratch.config).unwrap();
    let estimated = |lengths: usize| {
        // The estimate is printed only where it is too much.
        let other = wide(lengths, 99);
        plan(&other.config, &[])
            .err()
            .map(|error| error.to_string())
    };
    assert!(config.contains("v4"));
    // Rows of this size: those of 16 MiB are between these two numbers of lengths.
    let row = bytes / (12.0 * 6.0);
    let fit = (16.0 * 1024.0 * 1024.0 / row / 100.0) as usize;
    assert_eq!(estimated(fit * 8 / 10), None);
    assert!(estimated(fit + 1).is_some_and(|said| said.contains("asks for a record of about")));
}

#[test]
fn a_sweep_whose_records_cannot_be_read_is_not_done() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&["--jobs", "1", ONE[1]]);
    let [first, second] = [0, 1].map(|index| scratch.runs().join(&scratch.records()[index].0));
    let held = second.parent().expect("a record lies in its run");
    // The sweep waits for its second run while this process holds it.
    let held = rundir::lock::take(held).expect("nobody holds it");
    std::fs::remove_file(&first).unwrap();
    std::fs::remove_file(&second).unwrap();
    let mut program = scratch.program("run", &["--jobs", "1", ONE[1]]);
    program.stderr(Stdio::piped()).stdout(Stdio::piped());
    let sweep = program.spawn().unwrap();
    wait_for("the first record", || first.exists());
    std::fs::write(&first, "{").unwrap();
    drop(held);
    let output = sweep.wait_with_output().unwrap();
    exits(&output, 1);
    let part = "its worker ended well, but it has no record that can be read";
    says(&output, part);
    says(&output, "1 of 2 runs failed");
}

#[test]
fn a_retry_that_selects_nothing_says_what_is_missing() {
    let scratch = Scratch::with(TINY);
    for which in ["failed", "diverged"] {
        let output = scratch.longreach("run", &[&ONE[..], &["--retry", which]].concat());
        exits(&output, 2);
        let part = format!("--retry {which}: none of the 1 run has {which}");
        says(&output, &part);
        says(&output, "1 are not recorded yet");
        says(&output, "leave --retry out");
    }
    scratch.trains(&ONE);
    scratch.trains(&[&ONE[..], &["--retry", "failed"]].concat());
}

#[test]
fn weights_that_the_last_step_ruins_count_as_diverged() {
    let scratch = Scratch::with(TINY);
    let ruined = [
        "train.steps=1",
        "train.lr=1e9",
        "train.adamw.weight_decay=1000",
        "train.warmup_steps=0",
        "train.grad_clip=0",
    ];
    exits(&scratch.longreach("run", &[&ONE[..], &ruined].concat()), 5);
    let record: serde_json::Value = serde_json::from_slice(&scratch.records()[0].1).unwrap();
    assert_eq!(record["status"], "ok");
    assert_eq!(record["evals"][0]["status"], "diverged");
}

#[test]
fn a_limit_below_any_memory_is_printed_in_bytes() {
    let scratch = Scratch::with(TINY);
    for (limit, said) in [
        ("1", "the limit of 1 byte\n"),
        ("1000", "the limit of 1000 bytes\n"),
    ] {
        let output = scratch.longreach("run", &["--memory-limit", limit]);
        fails(&output, 6, said);
    }
}

#[test]
fn a_directory_that_does_not_exist_is_named_with_what_to_name() {
    for command in ["status", "verify", "report"] {
        let output = longreach().args([command, "no/where"]).output().unwrap();
        fails(&output, 3, "no/where does not exist");
        let part = "  = help: name a directory that `longreach run` wrote";
        says(&output, part);
    }
}

#[test]
fn a_config_without_a_free_descriptor_exits_with_resources() {
    let scratch = Scratch::with(TINY);
    // Of few descriptors those that listen for signals take some, and reading a config one.
    let limited = |descriptors: u32| {
        let mut program = std::process::Command::new("sh");
        let script = format!("ulimit -n {descriptors}; exec \"$@\"");
        program
            .args(["-c", &script, "sh"])
            .arg(longreach().get_program());
        program.arg("run").arg(&scratch.config).arg("--runs");
        program.arg(scratch.runs()).output().unwrap()
    };
    let refused = (4..12).map(limited).find(|output| {
        let said = stderr(output);
        said.contains("x.toml") && said.contains("Too many open files")
    });
    let refused = refused.expect("one of them is just too few");
    fails(&refused, 6, "ulimit -n");
}

#[test]
fn the_table_is_printed_where_the_report_cannot_be_written() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let report = scratch.runs().join("tiny/report");
    std::fs::remove_dir_all(&report).unwrap();
    std::fs::write(&report, "a file").unwrap();
    let output = scratch.longreach("run", &ONE);
    exits(&output, 2);
    shows(&output, "exact_match by test length");
    says(&output, "0 to do");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "a file");
}
