//! From nothing to a config, and from a config to every value in it.

use crate::common::{
    Scratch, TINY, exits, has, lacks, longreach, needs_axes, shows, stderr, stdout,
};
use experiment::plan;
use longreach::commands::new::{LENGTHS, SCHEMA_FILE, config};
use longreach::commands::schema::schema as json_schema;
use std::path::Path;
use std::process::Output;

fn new(directory: &Path, arguments: &[&str]) -> Output {
    longreach()
        .current_dir(directory)
        .arg("new")
        .args(arguments)
        .output()
        .unwrap()
}

/// The texts and the files that the config of `jsonl` reads.
fn files(directory: &Path) {
    let line = |n: usize, word: &str| {
        let prompt = vec![word; n].concat();
        format!("{{\"prompt\": \"{prompt}\", \"answer\": \"a\"}}\n")
    };
    for (name, word) in [("train.jsonl", "a"), ("test.jsonl", "b")] {
        let lines: String = (1..=64).map(|n| line(n, word)).collect();
        std::fs::write(directory.join(name), lines).unwrap();
    }
}

#[test]
fn a_new_config_runs_for_every_task_and_every_encoding() {
    let directory = tempfile::tempdir().unwrap();
    files(directory.path());
    let planned = |task: &str, pe: &[String], lengths| {
        let path = directory.path().join("x.toml");
        std::fs::write(&path, config("x", task, pe, lengths)).unwrap();
        plan(&path, &[])
    };
    for task in tasks::TaskConfig::KINDS {
        let fits = LENGTHS
            .iter()
            .any(|lengths| planned(task, &["rope".to_owned()], lengths).is_ok());
        assert!(
            fits,
            "{task}: {}",
            planned(task, &["rope".to_owned()], &LENGTHS[0])
                .err()
                .unwrap()
        );
    }
    for pe in posenc::EncodingConfig::KINDS {
        // Coordinates come from a task that has them.
        let task = if needs_axes(pe) {
            "multiplication"
        } else {
            "copy"
        };
        let plan = planned(task, &[(*pe).to_owned()], &LENGTHS[0]);
        let plan = plan.unwrap_or_else(|error| panic!("{pe}: {error}"));
        assert_eq!(
            (plan.runs.len(), plan.runs[0].job.spec.model.pe.kind()),
            (3, *pe)
        );
    }
    let all: Vec<String> = ["rope", "alibi", "stack"].map(str::to_owned).into();
    let plan = planned("copy", &all, &LENGTHS[0]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.runs.len(), 9);
}

#[test]
fn a_key_of_a_new_config_is_listed_with_its_default() {
    let text = config("x", "copy", &["rope".to_owned()], &LENGTHS[0]);
    // Without the marks of comments the file still says what it said: every default is the default.
    let directory = tempfile::tempdir().unwrap();
    let uncommented: String = text
        .lines()
        .filter(|line| {
            ![
                "# title",
                "# max_runs",
                "# head_dim",
                "# d_ff",
                "# matrix_std",
                "# start_from",
                "# warmup",
                "# last_tokens",
                "# every",
                "# during",
                "# [axes]",
                "# \"train.lr\"",
                "# claims",
                "# min_len",
                "# stop.",
            ]
            .iter()
            .any(|key| line.starts_with(key))
        })
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") || rest.starts_with('[') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .filter(|line| {
            !line.contains("yarn") && !line.starts_with("[[eval") && !line.starts_with("when")
        })
        .collect();
    let ids = |text: &str| {
        let path = directory.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        let plan = plan(&path, &[]).unwrap_or_else(|error| panic!("{text}\n{error}"));
        plan.runs
            .iter()
            .map(|run| run.job.run_id.clone())
            .collect::<Vec<_>>()
    };
    assert_ne!(uncommented, text);
    assert_eq!(ids(&uncommented), ids(&text));
}

#[test]
fn new_writes_a_config_and_its_schema_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = new(
        directory.path(),
        &["digits", "--task", "addition", "--pe", "rope,alibi"],
    );
    exits(&output, 0);
    let text = std::fs::read_to_string(directory.path().join("digits.toml")).unwrap();
    insta::assert_snapshot!(format!("{}\n\n{text}", stdout(&output)));
    let schema = std::fs::read_to_string(directory.path().join(SCHEMA_FILE)).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&schema).unwrap(),
        json_schema()
    );
    let printed = |arguments: &[&str]| {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("there.toml"), "").unwrap();
        let output = new(scratch.path(), arguments);
        exits(&output, 2);
        let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "something was written");
        format!("# {}\n{}", arguments.join(" "), stderr(&output))
    };
    let all = [
        printed(&["there"]),
        printed(&["Bad Name"]),
        printed(&["x", "--task", "kopy"]),
        printed(&["x", "--pe", "rope,yarn"]),
        printed(&["x", "--task", "masked_text", "--pe", "fox"]),
        printed(&["x", "--task", "masked_text", "--pe", "alibi,xpos"]),
        printed(&["x", "--pe", "on_axis"]),
    ];
    insta::assert_snapshot!("mistakes_of_new", all.join("\n"));
    // A directory that is not there yet.
    exits(&new(directory.path(), &["y", "--dir", "a/b"]), 0);
    assert!(
        directory.path().join("a/b/y.toml").is_file()
            && directory.path().join("a/b").join(SCHEMA_FILE).is_file()
    );
}

fn show(directory: &Path, arguments: &[&str]) -> Output {
    longreach()
        .current_dir(directory)
        .args(["config", "show"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn show_names_the_origin_of_every_value() {
    let scratch = Scratch::with(TINY);
    let directory = scratch.directory.path();
    let shown = show(
        directory,
        &[
            "x.toml",
            "train.lr=3e-3",
            "model.pe.base=500",
            "axes.\"model.pe\"=[{kind=\"rope\"}]",
            "axes.\"train.final_lr\"=[0.5,0.1]",
        ],
    );
    exits(&shown, 0);
    insta::assert_snapshot!(stdout(&shown));
    let json = show(directory, &["x.toml", "--json"]);
    exits(&json, 0);
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["runs"], 4);
    let id = |index: usize| {
        plan(&scratch.config, &[]).unwrap().runs[index]
            .job
            .run_id
            .clone()
    };
    assert_eq!(json["run_id"], id(0));
    // Two methods of two seeds, each at two rates, which are chosen from by one run.
    let select = "select={seeds=[9],over={\"train.lr\"=[1e-3,3e-3]}}";
    let chosen = show(directory, &["x.toml", select]);
    exits(&chosen, 0);
    shows(&chosen, "# 2 of 12 runs that [select] may need; --run");
    // Another run, by the beginning of its id.
    let last = show(directory, &["x.toml", "--run", &id(3)[..6]]);
    exits(&last, 0);
    shows(&last, "kind = \"learned\"");
    shows(&last, "seeds = [1]");
    let none = show(directory, &["x.toml", "--run", "zz"]);
    exits(&none, 2);
    insta::assert_snapshot!("no_such_run", stderr(&none));
}

#[test]
fn what_is_shown_is_a_config_of_the_same_run() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let scratch = tempfile::tempdir().unwrap();
    let again = scratch.path().join("again.toml");
    for entry in std::fs::read_dir(configs).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let output = show(scratch.path(), &[path.to_str().unwrap()]);
        exits(&output, 0);
        std::fs::write(&again, stdout(&output)).unwrap();
        let [planned, replanned] = [&path, &again].map(|path| {
            plan(path, &[]).unwrap_or_else(|error| panic!("{}\n{error}", path.display()))
        });
        let ids = [&planned, &replanned].map(|plan| plan.runs[0].job.run_id.clone());
        assert_eq!(
            (ids[0] == ids[1], replanned.runs.len()),
            (true, 1),
            "{}\n{}",
            path.display(),
            stdout(&output)
        );
    }
}

/// What a shell is offered after these words, in fish's form: a candidate and its help.
fn offered(directory: &Path, words: &[&str]) -> Vec<String> {
    let mut program = longreach();
    program
        .current_dir(directory)
        .env("LONGREACH_COMPLETE", "fish");
    let output = program
        .args(["--", "longreach"])
        .args(words)
        .output()
        .unwrap();
    exits(&output, 0);
    let lines = stdout(&output);
    let first = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    lines.lines().map(first).collect()
}

#[test]
fn completions_know_kinds_keys_devices_and_runs() {
    let scratch = Scratch::with(TINY);
    let directory = scratch.directory.path();
    let offered = |words: &[&str]| offered(directory, words);
    assert_eq!(offered(&["inspect", "ali"]), ["alibi"]);
    assert_eq!(offered(&["new", "x", "--task", "add"]), ["addition"]);
    assert_eq!(offered(&["new", "x", "--pe", "ker"]), ["kerple"]);
    assert_eq!(offered(&["new", "x", "--pe", "rope,ker"]), ["rope,kerple"]);
    assert_eq!(offered(&["run", "x.toml", "--device", "cu"]), ["cuda"]);
    assert_eq!(offered(&["run", "x.toml", "train.lr"]), ["train.lr="]);
    assert_eq!(offered(&["check", "x.toml", "eval.dec"]), ["eval.decode="]);
    assert_eq!(
        offered(&["check", "x.toml", "eval.decode=g"]),
        ["eval.decode=greedy"]
    );
    assert_eq!(
        offered(&["config", "show", "x.toml", "model.pe=ker"]),
        ["model.pe={kind=\"kerple\"}"]
    );
    assert_eq!(
        offered(&["check", "x.toml", "task.kind=cop"]),
        ["task.kind=copy"]
    );
    let keys = offered(&["run", "x.toml", "train."]);
    assert!(
        keys.len() > 10
            && keys
                .iter()
                .all(|key| key.starts_with("train.") && key.ends_with('=')),
        "{keys:?}"
    );
    // Runs are directories: their ids complete as paths.
    scratch.trains(&["seeds=[0]"]);
    let id = |index: usize| {
        plan(&scratch.config, &[]).unwrap().runs[index]
            .job
            .run_id
            .clone()
    };
    let wanted = format!("runs/tiny/{}", id(0));
    let runs = offered(&["eval", &wanted[..wanted.len() - 10]]);
    assert!(
        runs.iter().any(|path| path.trim_end_matches('/') == wanted),
        "{runs:?}"
    );
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = longreach().args(["completions", shell]).output().unwrap();
        exits(&output, 0);
        assert!(stdout(&output).contains("LONGREACH_COMPLETE"), "{shell}");
    }
}

#[test]
fn check_tells_what_a_limit_on_memory_leaves_out() {
    let scratch = Scratch::with(TINY);
    // One row that is longer than anything trained on.
    let long = ["eval.test_lens=[4,16000]", "task.test_rows=1"];
    let printed = |limit: &str| {
        let arguments = [&long[..], &["--memory-limit", limit]].concat();
        let output = scratch.longreach("check", &arguments);
        exits(&output, 0);
        stderr(&output)
    };
    has(&printed("1MiB"), "RoPE: would not train: it needs about");
    lacks(&printed("64GiB"), "would");
    let plan = plan(&scratch.config, &long.map(str::to_owned)).unwrap();
    let rows =
        longreach::commands::check::rows(&plan, experiment::plan::memory::Memory::Host, |_| false);
    let most = rows[0]
        .evaluations
        .iter()
        .map(|one| one.memory_bytes)
        .max()
        .unwrap();
    assert!(
        rows[0].train_memory_bytes < most,
        "evaluations are the larger part here"
    );
    let printed = printed(&(most - 1).to_string());
    has(&printed, "RoPE, trained: would be skipped at");
}

/// Encodings by layer are given layers for all of their parts.
#[test]
fn a_new_config_has_layers_enough_for_its_encodings() {
    let directory = tempfile::tempdir().unwrap();
    for (pe, layers) in [("rope", 2), ("nope_layers", 4), ("alibi,by_layer", 4)] {
        let path = directory.path().join(format!("{layers}.toml"));
        let _ = std::fs::remove_file(&path);
        let name = layers.to_string();
        exits(&new(directory.path(), &[&name, "--pe", pe]), 0);
        let plan = plan(&path, &[]).unwrap();
        let n_layers = plan.runs[0].job.spec.model.transformer.n_layers;
        assert_eq!((n_layers, plan.notes), (layers, Vec::new()), "{pe}");
    }
    // Coordinates are those of the task, whichever encoding reads them.
    let grid = ["x", "--task", "grid", "--pe", "rope,on_axis"];
    exits(&new(directory.path(), &grid), 0);
}

#[test]
fn what_a_sweep_could_leave_out_is_noted() {
    let scratch = Scratch::with(TINY);
    let notes = |keys: &[&str]| {
        let keys = [
            &["axes.\"model.pe\"=[{kind=\"rope\"},{kind=\"alibi\"}]"],
            keys,
        ]
        .concat();
        let output = scratch.longreach("check", &keys);
        exits(&output, 0);
        stderr(&output)
    };
    let variant = |keys: &str| format!("eval.variants=[{{name=\"v\",{keys}}}]");
    let said = notes(&[&variant("when={kind=\"rope\",base=500.0},set={base=9.0}")]);
    has(&said, "variant `v` applies to no run");
    let said = notes(&[&variant("when={kind=\"rope\"},set={base=10000.0}")]);
    has(&said, "variant `v` changes nothing");
    let said = notes(&[&variant("when={kind=\"rope\"},set={base=9.0}")]);
    lacks(&said, "variant `v`");
    let said = notes(&["eval.variants=[]", "eval.test_lens=[64]"]);
    has(&said, "no test length is at most the training length");
}

#[test]
fn a_scaling_that_trains_plain_rope_is_noted() {
    let scratch = Scratch::with(TINY);
    let axis = "axes.\"model.pe\"=[{kind=\"rope\"},{kind=\"rope\",scaling={kind=\"linear\"}},{kind=\"rope\",scaling={kind=\"linear\",factor=2}}]";
    let output = scratch.longreach("check", &[axis, "eval.variants=[]"]);
    exits(&output, 0);
    let notes = stderr(&output);
    assert_eq!(
        notes.matches("trains the weights of plain `rope`").count(),
        1,
        "{notes}"
    );
}

#[test]
fn what_tests_keep_of_the_training_length_is_noted() {
    let scratch = Scratch::with(TINY);
    let notes = |pe: &str, positions: &str| {
        let axis = format!("axes.\"model.pe\"=[{pe}]");
        let positions = format!("model.positions={{kind=\"{positions}\"}}");
        let output = scratch.longreach("check", &[&axis, &positions, "eval.variants=[]"]);
        exits(&output, 0);
        stderr(&output)
    };
    // Rows of copying have 2n + 2 tokens: 10 in training and 18 in the longest test.
    let kept = "of training, for 10 tokens; only in variants it follows the test length, to";
    let said = notes(
        "{kind=\"stack\",parts=[{kind=\"alibi\",factor=\"auto\"}]},{kind=\"self_extend\"},{kind=\"rope\"}",
        "contiguous",
    );
    for note in [
        format!("`alibi`: tests keep the factor {kept} 1.8 at 18 tokens"),
        format!("`self_extend`: tests keep the group {kept} 3 at 18 tokens"),
    ] {
        assert_eq!(said.matches(&note).count(), 1, "{said}");
    }
    assert_eq!(said.matches("tests keep").count(), 2, "{said}");
    let said = notes("{kind=\"rope\"}", "interpolated");
    let note = format!("`interpolated`: tests keep the factor {kept} 1.8 at 18 tokens");
    assert_eq!(said.matches(&note).count(), 1, "{said}");
    // Another note covers a scaling by 1; other factors are noted here.
    let linear = notes("{kind=\"rope\",scaling={kind=\"linear\"}}", "contiguous");
    has(&linear, "is tested as plain `rope`");
    lacks(&linear, "tests keep");
    let doubled = "{kind=\"rope\",scaling={kind=\"linear\",original_max_position_embeddings=5}}";
    let by_two = notes(doubled, "contiguous");
    let note = format!("`rope`: tests keep the scaling.factor {kept} 3.6 at 18 tokens");
    has(&by_two, &note);
}
