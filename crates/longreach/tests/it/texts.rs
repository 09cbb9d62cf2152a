//! What commands print, as snapshots: a change of a text is reviewed like a change of code.
//! `INSTA_UPDATE=always` writes them.

use crate::common::{ONE, Scratch, TINY, longreach, words};
use std::path::Path;

/// Command lines with what they print and their exit codes, run in `place`.
fn transcript(place: &Path, commands: &str) -> String {
    let mut text = String::new();
    for line in commands.trim().lines() {
        let mut program = longreach();
        program.args(words(line)).current_dir(place);
        let output = program.output().unwrap();
        text.push_str(&format!("$ longreach {line}\n"));
        for bytes in [&output.stdout, &output.stderr] {
            text.push_str(&String::from_utf8_lossy(bytes));
        }
        let code = output.status.code().unwrap_or(-1);
        text.push_str(&format!("[exit code {code}]\n\n"));
    }
    neutral(&text, place)
}

/// A transcript without what differs between machines: paths, trailing blanks, durations, the
/// commit of the build.
fn neutral(text: &str, place: &Path) -> String {
    let text = text.replace(&place.display().to_string(), "DIR");
    let commit = env!("CARGO_PKG_VERSION");
    let mut text = text.replace(commit, "VERSION");
    // The id of a config hashes the directory that its paths are relative to.
    let configs = std::fs::read_dir(place.join("runs/tiny/configs"));
    for config in configs.into_iter().flatten().flatten() {
        if let Some(id) = config.path().file_stem().and_then(|stem| stem.to_str()) {
            text = text.replace(id, "CONFIG");
        }
    }
    let lines = text.lines().map(|line| seconds(line.trim_end()) + "\n");
    lines.collect()
}

/// `(0.1 s)` and `about 3 s left` with `N` in place of the number.
fn seconds(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut shown: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for index in 1..words.len() {
        if matches!(words[index], "s" | "s)" | "s," | "s;") {
            let number = words[index - 1].trim_start_matches('(');
            if number.parse::<f64>().is_ok() {
                shown[index - 1] = words[index - 1].replace(number, "N");
            }
        }
    }
    shown.join(" ")
}

#[test]
fn lists() {
    let place = tempfile::tempdir().unwrap();
    let commands = "
list encodings
list tasks
list configs
";
    insta::assert_snapshot!(transcript(place.path(), commands));
}

#[test]
fn inspections() {
    let place = tempfile::tempdir().unwrap();
    let commands = r#"
inspect rope base=500000 --positions 0,1,4095
inspect rope 'scaling={kind="yarn",factor=8}' --seq-len 4096
inspect alibi n_heads=12
inspect sinusoidal d_model=8 --positions 0,1,2
inspect alibi factor=4
inspect kerple
inspect axial_rope 'mode="interleaved"'
inspect pope head_dim=4
inspect t5
inspect deberta max_distance=40 buckets=8
inspect rerope leak=16
inspect self_extend --seq-len 2048
inspect dual_chunk --train-len 64 --seq-len 256
inspect log_scaling --seq-len 4096
inspect hard_alibi
inspect xpos
"#;
    insta::assert_snapshot!(transcript(place.path(), commands));
}

#[test]
fn mistakes_of_inspections() {
    let place = tempfile::tempdir().unwrap();
    let commands = r#"
inspect rpoe
inspect rope bsae=1
inspect rope 'base="x"'
inspect rope base=0.5
inspect rope base
inspect rope kind=alibi
inspect stack
inspect rope n_heads=5 d_model=64
inspect rope --positions 0,,1
inspect rope --positions x
inspect rope --positions -1
inspect rope --seq-len 0
inspect learned max_position=8 --positions 8
inspect learned max_position=8 --positions 0.5
inspect by_layer 'parts=[{kind="rope"}]' pattern=[0,1]
inspect by_layer 'parts=[{kind="rope"},{kind="nope"}]' pattern=[0]
inspect by_layer parts=[] pattern=[]
inspect dape
inspect dape 'part={kind="rope",base=0.5}'
inspect dape 'part={kind="rope"}' kernel=2
inspect string shift=4 window=5
inspect dual_chunk chunk_size=4 local_window=4
inspect log_scaling init_scale=1
inspect grape_ap width=3
inspect mobius fraction=2
inspect fope 'pad="zero"'
inspect rope 'scaling={kind="evq_cosh",tau=-1}'
inspect rope 'scaling={kind="mrrope",beta_fast=1,beta_slow=2}'
"#;
    insta::assert_snapshot!(transcript(place.path(), commands));
}

#[test]
fn exports_and_their_mistakes() {
    let place = tempfile::tempdir().unwrap();
    let commands = r#"
export-rows copy --length 3 --rows 2
export-rows parity --length 4 --rows 1 --test
export-rows copi
export-rows copy alphabte=4
export-rows copy alphabet=0
export-rows copy --length 0
export-rows copy --rows 0
export-rows copy test_rows=2 --test --rows 3
export-rows copy --test --step 1
export-rows text 'files=["nowhere.txt"]'
"#;
    insta::assert_snapshot!(transcript(place.path(), commands));
}

#[test]
fn a_plan() {
    let scratch = Scratch::with(TINY);
    let commands = r#"
check x.toml
check x.toml seeds=[0] 'axes."model.pe"=[{kind="rope"}]' --json
"#;
    insta::assert_snapshot!(transcript(scratch.directory.path(), commands));
}

#[test]
fn commands_without_anything_to_work_on() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("empty")).unwrap();
    std::fs::write(place.path().join("x.toml"), TINY).unwrap();
    let commands = "
run nowhere.toml
run x.toml --device tpu
run x.toml --device cpu:1
run x.toml --device cuda
run x.toml --checkpoint-every often
run x.toml --memory-limit much
run x.toml --memory-limit 1KiB
run x.toml --jobs 0
status
status empty
verify empty
report nowhere
report empty
report empty --format doc
gather empty --out x.jsonl
compare nowhere empty
compare empty empty
export empty --format tensorboard --out x
export empty --format excel --out x
export empty --format tensorboard --out x --lengths 8
verify empty --device wgpu
report empty --title ''
eval nowhere
eval empty
eval empty --lengths 0
worker empty
";
    insta::assert_snapshot!(transcript(place.path(), commands));
}

#[test]
fn a_trained_experiment() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let place = scratch.directory.path();
    let commands = r#"
run x.toml seeds=[0] 'axes."model.pe"=[{kind="rope"}]'
status
verify
compare runs runs
compare runs runs --metric speed
export runs --format tensorboard --out logs
export runs/tiny --format logits --out l.safetensors
report runs/tiny
report runs/tiny --baseline alibi
report runs/tiny --config nothing
report runs --config x.toml
gather runs/tiny --out records.jsonl
eval runs/tiny --lengths 4,4
eval runs/tiny --where pe
eval runs/tiny --where pe=alibi
eval runs/tiny --where base=3
eval runs/tiny --last-tokens 2
eval runs/tiny --variant 'scaling = 3'
eval runs/tiny --variant 'scaling = { kind = "yran" }'
eval runs/tiny --variant 'kind = "learned"'
eval runs/tiny --variant ''
eval runs/tiny --variant 'name = ""'
eval runs/tiny --variant 'add = { kind = "rope" }'
eval runs/tiny --variant 'add = { kind = "window", size = 0 }'
eval runs/zzzz
eval runs
"#;
    insta::assert_snapshot!(transcript(place, commands));
}

/// An explanation behind a command is a comment of the shell, so that the line can be pasted.
#[test]
fn examples_can_be_pasted_with_their_explanations() {
    let page = include_str!("../../../../docs/cli.md");
    let commands = ["longreach ", "srun "];
    let examples = page.lines().filter(|line| {
        let line = line.strip_prefix("  ").unwrap_or_default();
        commands.iter().any(|command| line.starts_with(command))
    });
    let mut explained = 0;
    for example in examples {
        let Some((_, explanation)) = example.trim().split_once("  ") else {
            continue;
        };
        assert!(explanation.trim().starts_with("# "), "{example}");
        explained += 1;
    }
    assert!(explained > 15, "{explained}");
}
