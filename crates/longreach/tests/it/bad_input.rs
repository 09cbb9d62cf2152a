//! Every mistake is refused before any work, with the key named, what is allowed, and the right
//! exit code.

use crate::common::{
    Scratch, TINY, cases, command, exits, fails, has, lacks, longreach, says, shows, stderr, stdout,
};

/// Overrides that cannot work, and what the message must name, as [`cases`] reads them.
const WRONG: &str = r#"
# unknown, misspelt, wrong type
train.stepz=5 -> stepz | steps | command line: train.stepz=5
modle.d_model=8 -> modle | model
train.steps="many" -> train.steps | many | a whole number from 1 to 100000000
train.steps=1.5 -> train.steps | 1.5
train.stages=[{steps="x",train_len=4}] -> train.stages.0.steps | a whole number from 1 to 100000000
train.schedule=3 -> train.schedule | must be a string | one of `cosine`, `linear`
model.pe.tehta=1 -> tehta | base
model.pe.kind=rpoe -> rpoe | rope
# of another kind
model.pe={kind="nope",base=500} -> model.pe | `base` is a key of | , not of nope
model.pe.scaling={kind="linear",beta_fast=32} -> `beta_fast` is a key of | , not of linear
task={kind="sort",modulus=4} -> `modulus` is a key of | summation | , not of sort
task={kind="text",windows={kind="non_overlapping",window=3}} -> window | no keys
model.pe={kind="formula",bias="-m*log(1+d)",m=[0.5,1.0]}
    -> model.pe | `m` | write `values = { m = .. }`
task.kind=kopy -> kopy | copy
# several values in the place of one
train.lr=[1e-3,3e-3] -> put them on an axis | "train.lr" = [0.001, 0.003]
seeds=3 -> seeds
train.length="sometimes" -> train.length | fixed | uniform
# zero, negative, huge, nan, inf
train.steps=0 -> train.steps | 1 to
train.steps=-4 -> train.steps | -4
train.steps=99999999999999999999 -> train.steps
train.lr=nan -> train.lr
train.lr=inf -> train.lr
train.lr=0 -> train.lr
train.batch_size=0 -> train.batch_size
train.train_len=0 -> train.train_len
train.warmup_steps=7 -> train.warmup_steps | 0 to 6
train.adamw.beta2=1.0 -> train.adamw.beta2
train.min_len=5 -> train.min_len | 1 to 4
model.d_model=0 -> model.d_model
model.d_model=100000000 -> model.d_model
model.dropout=1.0 -> model.dropout
model.n_layers=0 -> model.n_layers
eval.test_lens=[] -> eval.test_lens
eval.test_lens=[4,4] -> eval.test_lens.1 | twice
eval.test_lens=[0] -> eval.test_lens.0
eval.test_lens=[5000000] -> eval.test_lens
seeds=[] -> seeds | empty
seeds=[1,1] -> seeds.1 | twice
task.alphabet=1 -> task.alphabet
name="../x" -> name
name="" -> name
# sizes that do not fit together
model.n_heads=3 -> model.n_heads | divide d_model = 16 | 1, 2, 4, 8, 16
model.head_dim=7 -> rotary_dim | odd
model.pe.rotary_dim=3 -> model.pe.rotary_dim | 2 to head_dim = 8
model.pe.rotary_dim=10 -> model.pe.rotary_dim
model.pe.base=0 -> model.pe.base
model.pe.scaling={kind="ntk",factor=0.5} -> model.pe.scaling.factor | 0.5
model.pe={kind="rope",rotary_dim=2,scaling={kind="ntk"}} -> model.pe.scaling | d/(d-2)
model.pe.scaling={kind="yarn",beta_fast=1,beta_slow=32} -> model.pe.scaling.beta_fast | beta_slow
model.pe={kind="learned",max_position=3} -> model.pe.max_position | 10
model.pe={kind="stack",parts=[]} -> model.pe.parts
model.pe={kind="stack",parts=[{kind="alibi"},{kind="rope",bas=1}]} -> model.pe.parts.1 | bas | base
# the catalogue
model.pe={kind="t5",num_buckets=32,max_distance=16} -> model.pe.max_distance | above 16
model.pe={kind="rope",scaling={kind="longrope",short_factor=[1],long_factor=[1]}}
    -> scaling.short_factor | 4 numbers
model.pe={kind="axial_rope",sections=[3,5]} -> model.pe.sections | even numbers
model.pe={kind="hard_alibi",masked_heads=3} -> model.pe.masked_heads | n_heads = 2
model.pe={kind="nope_layers",every=1,part={kind="rope"}} -> model.pe.every | nope
model.pe={kind="nope_layers",part={kind="rope",bas=1}} -> model.pe.part | bas | base
model.pe={kind="stack",parts=[{kind="pope"},{kind="rope"}]} -> model.pe.parts | rope and pope
# positions and linear attention
model.positions.kind=randomised -> randomised | randomized
model.positions={kind="randomized",max_position=5} -> model.positions.max_position | 10 or more
model.positions={kind="randomized_distances"} -> model.positions.kind | distances only
model.positions={kind="grid",sizes=[]} -> model.positions.sizes
model.normalizer="cosine" -> model.normalizer | value: cosine | attention = "linear"
model.attention="quadratic" -> model.attention | softmax | linear
# models that see both sides
model.mask="both" -> model.mask | causal | bidirectional
train.schedule="step" -> train.schedule | cosine | linear
model.mlp="small" -> model.mlp | dense | none
model={mlp="none",d_ff=32,d_model=16,n_layers=1,n_heads=2,pe={kind="rope"}}
    -> model.d_ff | value: 32 | mlp = "none" | remove d_ff
task={kind="copy",alphabet=6,distinct=true}
    -> task.alphabet | strings of 8 distinct ones | 8 or more
task={kind="majority",alphabet=3,draw="balanced"} -> task.draw | `alphabet` is 3 | uniform
task={kind="flip_flop",ignore=1.0} -> task.ignore | 0 to 0.999
task={kind="automaton",language="aa_star"}
    -> task.answer | at length 4, where every word is accepted | answer = "states"
task={kind="automaton",language="own",answer="states",symbols=["a"],states=["p","q"],start="p",
    transitions={p={a="q"},q={a="s"}}} -> task.transitions.q.a | s | p, q
task={kind="automaton",language="tomita_8"} -> task.language | tomita_7
task={kind="masked_text",files=["long.txt"],rate=0} -> task.rate | above 0
task={kind="masked_text",files=["long.txt"],rate=nan} -> task.rate
task={kind="masked_text",files=["long.txt"],mask=1.5} -> task.mask | 0 to 1
task={kind="masked_text",files=["long.txt"],random=0.3} -> task.random | `mask` = 0.8 leaves
task={kind="masked_text",files=["long.txt"],rate=1e-9} -> task.rate | none of the
task={kind="masked_text",files=["long.txt"],windows={kind="sliding"}} -> windows
task={kind="needles",text={files=["long.txt"],level="bpe"}}
    -> task.text.level | corpus, files, crates, split, max_bytes
# coordinates
model.coordinate_shift=3 -> model.coordinate_shift | moves the task's coordinates
model.pe={kind="on_axis",part={kind="rope"}} -> model.coordinates | without coordinates
model.pe={kind="on_axis",part={kind="fox"}} -> model.pe.part.kind | reads no positions
# segments
task={kind="text",files=["long.txt"],segment_ends=["e","no end"]}
    -> segment_ends | ends no token | no end
task={kind="text",files=["long.txt"],segment_ends=[""]} -> segment_ends | ends no token
task={kind="text",files=["long.txt"],segment_end_ids=[13]}
    -> segment_end_ids | files of token ids | segment_ends
task={kind="text",files=["long.txt"],level="u16",vocab=9,segment_ends=["."]}
    -> segment_ends | ids | segment_end_ids
task={kind="text",files=["ids.bin"],level="u16",vocab=65536,segment_end_ids=[65536]}
    -> segment_end_ids | is not a token | 65535
model.coordinates="task" -> model.coordinates | `copy` has none | grid
model.coordinates="map" -> model.coordinates | positions | task
# characters
task={kind="text",files=["long.txt"],level="words"} -> level | words | bytes | chars
# axes
axes."model.pe"=[] -> axis `model.pe` has no values
axes."train.lr"=0.1 -> axes | list
axes."train.lr"=[0.1,0.1] -> axes
max_runs=2 -> max_runs
# what the report holds records against
report.claims="nowhere.toml" -> nowhere.toml | report.claims
report.claims="x.toml" -> is a key of a config, but a file of claims is expected here | report.claims
report.assertion=true -> assertion | assertions
report=[true] -> report | table
axes.report=[{},{assertions=true}] -> report | cannot be an axis
# variants
eval.variants=[{name="a",set={scaling={kind="yarn"}}}] -> eval.variants.0.set | learned
eval.variants=[{name="a",set={kind="learned",max_position=64}}]
    -> eval.variants.0.set | table | parameters
eval.variants=[{name="trained",set={kind="nope"}}] -> eval.variants.0.name
# overrides that are none
train.steps -> train.steps | =
=5 -> =5
"#;

/// Those of files that are not there or cannot be read.
const UNREADABLE: &str = r#"
task={kind="masked_text",files=["empty.txt"]} -> empty.txt
task={kind="passkey",text={files=["nowhere.txt"]}} -> task.text.files | nowhere.txt
task={kind="text",files=["binary"],level="chars"} -> binary | not UTF-8 | byte 3
task={kind="text",files=["nowhere/*.txt"]} -> nowhere
task={kind="text",files=["empty.txt"]} -> empty.txt
task={kind="text",files=["short.txt"],split={by="range",valid_fraction=0.5}} -> bytes
"#;

/// Lengths of training that a task has no rows of: overrides, separated by a space.
const UNTRAINABLE: &str = r#"
task={kind="selective_copy",data=4} train.length="mixed"
    -> train.min_len | rows of length 1, and task `selective_copy` | allowed: 4 | = 4
task={kind="dup_key_recall",occurrences=3} train.length="uniform" train.min_len=2
    -> train.min_len | rows of length 2, and task `dup_key_recall` | from 3 to 4 | = 3
task={kind="mqar",pairs=1} train.length="staged" train.stages=[{steps=2,train_len=3},{steps=4,train_len=4}]
    -> train.stages.0.train_len | task `mqar` has no rows of | value: 3
task={kind="flip_flop"} train.length="uniform" -> train.min_len | set train.min_len = 2
task={kind="frequent_words"} train.length="uniform" train.train_len=64 train.min_len=30 eval.test_lens=[64]
    -> train.min_len | rows of length 42, | from 53 to 64 | set train.min_len = 53
task={kind="induction"} train.stop={metric="exact_match",at_least=1,every=2,min_len=1}
    -> train.stop.min_len | rows of length 1, | set train.stop.min_len = 2
"#;

#[test]
fn lengths_of_training_that_a_task_has_no_rows_of_are_refused() {
    let scratch = Scratch::with(TINY);
    for (arguments, names) in cases(UNTRAINABLE) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = scratch.longreach("check", &arguments);
        exits(&output, 2);
        for name in &names {
            says(&output, name);
        }
    }
}

#[test]
fn overrides_that_cannot_work_are_refused_by_name() {
    let scratch = Scratch::with(TINY);
    scratch.write("empty.txt", "");
    scratch.write("short.txt", "too short");
    scratch.write("binary", b"abc\xff".repeat(100));
    scratch.write("long.txt", "long enough for every length. ".repeat(100));
    scratch.write("ids.bin", [0_u8; 3000]);
    let mut wrong = Vec::new();
    let wrong_ones = cases(WRONG).into_iter().map(|case| (case, 2));
    let unreadable = cases(UNREADABLE).into_iter().map(|case| (case, 3));
    for ((argument, names), code) in wrong_ones.chain(unreadable) {
        for command in ["check", "run"] {
            // An axis would hide what is wrong with model.pe: fix it first.
            let pe: &[&str] = if argument.starts_with("model.") {
                &["model.pe={kind=\"rope\"}"]
            } else {
                &[]
            };
            let output = scratch.longreach(command, &[pe, &[argument.as_str()]].concat());
            let said = stderr(&output);
            let named = names.iter().all(|name| said.contains(name));
            let clean = said.starts_with("error: ") && !said.contains("panicked");
            if output.status.code() != Some(code) || !named || !clean {
                wrong.push(format!(
                    "{command} {argument}: wanted exit {code} and {names:?}\n{said}{}",
                    stdout(&output)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        !scratch.runs().exists(),
        "something was written before the mistake was found"
    );
}

#[test]
fn a_mistake_in_the_file_is_shown_with_its_line() {
    let scratch = Scratch::with(&TINY.replace("steps = 6", "step = 6"));
    let output = scratch.longreach("run", &[]);
    exits(&output, 2);
    let said = stderr(&output);
    for part in [
        "unknown key `step` in `train`",
        "x.toml:17:1",
        "17 | step = 6",
        "did you mean `steps`?",
    ] {
        has(&said, part);
    }
    let scratch = Scratch::with(&format!("{TINY}\n[train]\nlr = 1\n"));
    let output = scratch.longreach("check", &[]);
    fails(&output, 2, "x.toml:");
    let output = command("run", "no-such-config.toml".as_ref(), &[]);
    fails(&output, 2, "no-such-config.toml");
}

#[test]
fn a_device_that_is_not_there_is_refused_before_any_work() {
    let scratch = Scratch::with(TINY);
    for (device, code, names) in [
        (
            "cuda",
            7,
            ["cuda", "not compiled in", "--features cuda", "cpu"],
        ),
        (
            "rocm:1",
            7,
            ["rocm:1", "not compiled in", "--features rocm", "cpu"],
        ),
        ("gpu", 2, ["gpu", "allowed", "cpu", "wgpu"]),
        ("cpu:3", 2, ["cpu:3", "there is one cpu", "number", "cpu"]),
    ] {
        if cfg!(feature = "cuda") || cfg!(feature = "rocm") {
            continue;
        }
        let output = scratch.longreach("run", &["--device", device]);
        exits(&output, code);
        for name in names {
            assert!(
                stderr(&output).contains(name),
                "{device} does not name `{name}`: {}",
                stderr(&output)
            );
        }
    }
    assert!(!scratch.runs().exists());
}

#[test]
fn other_commands_refuse_what_is_not_there() {
    let scratch = Scratch::with(TINY);
    let nowhere = scratch.directory.path().join("nowhere");
    let empty = scratch.directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let run = |arguments: &[&str]| longreach().args(arguments).output().unwrap();
    for directory in [&nowhere, &empty] {
        let directory = directory.to_str().unwrap();
        exits(&run(&["report", directory]), 3);
        exits(&run(&["eval", directory]), 3);
    }
    let ended = run(&["report", empty.to_str().unwrap(), "--format", "pdf"]);
    exits(&ended, 2);
    exits(&run(&["list", "optimizers"]), 2);
    exits(&run(&["completions", "tcsh"]), 2);
    exits(&run(&[]), 2);
    for shell in ["bash", "zsh", "fish"] {
        shows(&run(&["completions", shell]), "longreach");
    }
    // Results cannot be written where a file stands in the way.
    let blocked = scratch.directory.path().join("blocked");
    std::fs::write(&blocked, "a file").unwrap();
    let arguments = ["--runs", blocked.to_str().unwrap()];
    let output = command("run", &scratch.config, &arguments);
    fails(&output, 2, "blocked");
}

#[test]
fn lists_are_the_same_as_json() {
    for (what, keys) in [
        ("encodings", ["kind", "formula", "hooks"]),
        ("tasks", ["kind", "summary", "examples"]),
        ("devices", ["device", "compiled_in", "works"]),
    ] {
        let text = stdout(&longreach().args(["list", what]).output().unwrap());
        let json = stdout(&longreach().args(["list", what, "--json"]).output().unwrap());
        let lines: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert!(!lines.is_empty());
        for line in lines {
            for key in keys {
                assert!(
                    line.get(key).is_some(),
                    "{what}: {key} is missing in {line}"
                );
            }
            let name = line[keys[0]].as_str().unwrap();
            has(&text, name);
        }
    }
}

#[test]
fn claims_that_cannot_be_checked_are_refused_with_their_line() {
    let good = "[[claim]]\nmetric = \"exact_match\"\nkind = \"order\"\nmethods = [\"rope\", \
                \"learned\"]\nlengths = [\"in\"]\n";
    for (from, to, names) in [
        (
            "\"order\"",
            "\"orders\"",
            ["claim.0.kind", "claims.toml:3:8", "`order`"],
        ),
        (
            "\"rope\", ",
            "",
            ["claim.0.methods", "claims.toml:4:11", "two or more"],
        ),
        (
            "\"in\"",
            "\"two\"",
            ["claim.0.lengths", "claims.toml:5:12", "\"2x\""],
        ),
        ("metric", "matric", ["matric", "claims.toml:2", "metric"]),
        (
            good,
            "claim = []",
            [
                "neither claims nor published numbers",
                "claims.toml",
                "[[claim]]",
            ],
        ),
    ] {
        let scratch = Scratch::with(&format!("{TINY}\n[report]\nclaims = \"claims.toml\"\n"));
        scratch.write("claims.toml", good.replace(from, to));
        for command in ["check", "run"] {
            let output = scratch.longreach(command, &[]);
            exits(&output, 2);
            for name in names.iter().chain(&["report.claims"]) {
                says(&output, name);
            }
        }
        assert!(
            !scratch.runs().exists(),
            "something was written before the mistake was found"
        );
    }
}

/// A full disk under standard output.
#[cfg(target_os = "linux")]
#[test]
fn output_that_is_lost_is_a_failure() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let listed = longreach()
        .args(["list", "tasks"])
        .stdout(full)
        .output()
        .unwrap();
    fails(&listed, 6, "standard output: ");
}

#[test]
fn a_negative_number_is_the_value_of_its_option() {
    let scratch = Scratch::with(TINY);
    let config = scratch.config.to_str().unwrap();
    for (command, option, allowed) in [
        ("run", "--jobs", "must be a whole number from 1 to 1024"),
        ("eval", "--lengths", "'-1' for '--lengths <N,N,...>'"),
        (
            "export-rows",
            "--rows",
            "must be a whole number of at least 1",
        ),
        (
            "export-rows",
            "--seed",
            "must be a whole number of at least 0",
        ),
        (
            "export-rows",
            "--step",
            "must be a whole number of at least 0",
        ),
        ("export-rows", "--length", "whole number from 1 to 1048576"),
        ("inspect", "--seq-len", "whole number from 1 to 1000000000"),
        ("gather", "--bins", "must be a whole number from 1 to 65535"),
    ] {
        let word = longreach()
            .args([command, config, option, "x"])
            .output()
            .unwrap();
        exits(&word, 2);
        assert!(option == "--lengths" || stderr(&word).contains(allowed));
        let arguments = [command, config, option, "-1"];
        let refused = longreach().args(arguments).output().unwrap();
        exits(&refused, 2);
        let said = stderr(&refused);
        has(&said, allowed);
        lacks(&said, "tip");
    }
}

#[test]
fn a_file_that_is_not_of_a_run_is_named() {
    let scratch = Scratch::with(TINY);
    let config = scratch.config.to_str().unwrap();
    let evaluated = longreach().args(["eval", config]).output().unwrap();
    exits(&evaluated, 3);
    let problem = format!("{config} is not a file of a run");
    says(&evaluated, &problem);
}
