//! The whole path: train, evaluate, record, skip, report, evaluate again; the same bytes for any
//! number of threads.

use crate::common::{
    Scratch, TINY, command, exits, fails, has, lacks, longreach, says, shows, stderr, stdout,
};
use burn::tensor::Device;
use experiment::run::model::initial_model;
use experiment::run::parameters;
use serde_json::Value;

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn a_sweep_records_every_run_reports_and_skips_what_is_done() {
    let scratch = Scratch::with(TINY);
    shows(&scratch.trains(&[]), "RoPE + YaRN");
    let records = scratch.records();
    assert_eq!(records.len(), 4);
    for (path, bytes) in &records {
        let record = parse(bytes);
        assert_eq!(record["status"], "ok", "{}", path.display());
        assert_eq!(record["train"]["steps"], 6);
        assert_eq!(record["train"]["tokens"], 6 * 4 * 10);
        let learned = record["labels"][0]["text"] == "learned";
        let evals = record["evals"].as_array().unwrap();
        assert_eq!(evals.len(), if learned { 2 } else { 4 });
        for row in evals {
            let past_the_table = learned && row["test_len"] == 8;
            assert_eq!(
                row["status"],
                if past_the_table { "unsupported" } else { "ok" },
                "{row}"
            );
            assert_eq!(
                row["metrics"].as_object().unwrap().is_empty(),
                past_the_table
            );
        }
        // At its own training length every scaling with factor "auto" has factor 1 and changes
        // nothing.
        if !learned {
            assert_eq!(evals[0]["metrics"], evals[2]["metrics"]);
            assert_ne!(
                evals[1]["metrics"]["loss_nats"],
                evals[3]["metrics"]["loss_nats"]
            );
        }
    }
    let report = scratch.runs().join("tiny/report");
    for file in ["report.md", "report.html", "results.csv", "tables.tex"] {
        assert!(report.join(file).metadata().unwrap().len() > 100, "{file}");
    }
    // A second run does nothing; a lost record is made again, with the same bytes.
    let again = scratch.trains(&[]);
    says(&again, "0 to do");
    says(&again, "4 recorded already");
    std::fs::remove_file(scratch.runs().join(&records[2].0)).unwrap();
    says(&scratch.trains(&[]), "1 to do");
    assert_eq!(scratch.records(), records);
}

#[test]
fn records_are_the_same_bytes_for_any_number_of_threads() {
    // Wide enough that the backend splits its work: 32 rows of 34 tokens, 64 wide.
    let overrides = [
        "model.d_model=64",
        "train.train_len=16",
        "train.batch_size=32",
        "train.length=\"uniform\"",
        "model.dropout=0.1",
        "seeds=[3]",
    ];
    let runs = [1, 2, 4].map(|threads| {
        let scratch = Scratch::with(TINY);
        let mut program = scratch.program("run", &[&overrides[..], &["--jobs", "1"]].concat());
        program.env("RAYON_NUM_THREADS", threads.to_string());
        exits(&program.output().unwrap(), 0);
        scratch.records()
    });
    assert_eq!(runs[0].len(), 2);
    assert_eq!(runs[0], runs[1], "1 and 2 threads differ");
    assert_eq!(runs[0], runs[2], "1 and 4 threads differ");
}

/// Trains with the widest vectors of this machine and with those of AVX2, in rows that are no
/// multiple of either.
#[cfg(target_arch = "x86_64")]
#[test]
fn vectors_of_any_width_train_the_same_model() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return;
    }
    same_for_any_width(
        &[
            "model.d_model=88",
            "model.n_heads=4",
            "model.d_ff=136",
            "train.train_len=19",
            "train.batch_size=11",
            "train.steps=12",
            "seeds=[3]",
            "axes.\"model.norm\"=[\"layer_norm\",\"rms_norm\"]",
            "axes.\"model.pe\"=[{kind=\"rope\"},{kind=\"kerple\"},{kind=\"fire\"},{kind=\"shaw\"},{kind=\"cope\"}]",
        ],
        10,
    );
    // Long enough for a bias that is computed tile by tile in training.
    same_for_any_width(
        &[
            "model.n_heads=4",
            "train.train_len=280",
            "train.batch_size=2",
            "train.steps=3",
            "seeds=[3]",
            "eval.test_lens=[16]",
            "axes.\"model.pe\"=[{kind=\"fire\",threshold=64.0}]",
        ],
        1,
    );
}

#[cfg(target_arch = "x86_64")]
fn same_for_any_width(overrides: &[&str], count: usize) {
    let runs = [None, Some("256")].map(|bits| {
        let scratch = Scratch::with(TINY);
        let mut program = scratch.program("run", overrides);
        match bits {
            None => program.env_remove("LONGREACH_VECTOR_BITS"),
            Some(bits) => program.env("LONGREACH_VECTOR_BITS", bits),
        };
        exits(&program.output().unwrap(), 0);
        scratch.records()
    });
    assert_eq!(runs[0].len(), count);
    assert_eq!(runs[0], runs[1], "the width of vectors changes a bit");
}

/// A width of vectors that is none is an error before any work.
#[test]
fn a_width_of_vectors_that_does_not_exist_is_refused() {
    let scratch = Scratch::with(TINY);
    let mut program = scratch.program("run", &[]);
    let output = program.env("LONGREACH_VECTOR_BITS", "128").output();
    let part = "LONGREACH_VECTOR_BITS is `128`, and may only be 256";
    fails(&output.unwrap(), 2, part);
}

#[test]
fn reduced_formats_of_products_change_nothing_on_a_cpu() {
    let overrides = [
        "seeds=[3]",
        "model.pe={kind=\"rope\"}",
        "axes.\"model.matmul\"=[\"f32\",\"tf32\",\"bf16\"]",
    ];
    let scratch = Scratch::with(TINY);
    for command in ["check", "run"] {
        let output = scratch.longreach(command, &overrides);
        exits(&output, 0);
        for format in ["tf32", "bf16"] {
            let note = format!("model.matmul = \"{format}\" has no effect on cpu");
            says(&output, &note);
        }
    }
    let loss = |bytes: &[u8]| parse(bytes)["evals"][0]["metrics"]["loss_nats"]["value"].clone();
    let losses: Vec<Value> = scratch.records().iter().map(|(_, b)| loss(b)).collect();
    assert_eq!(
        losses,
        [losses[0].clone(), losses[0].clone(), losses[0].clone()]
    );
}

#[test]
fn encodings_of_a_seed_share_every_common_weight_and_seeds_do_not() {
    let scratch = Scratch::with(TINY);
    let axis = "axes.\"model.pe\"=[{kind=\"nope\"},{kind=\"learned\"},{kind=\"stack\",\
                parts=[{kind=\"alibi\"},{kind=\"learned\"}]}]"
        .to_owned();
    let plan = experiment::plan(&scratch.config, &[axis]).unwrap();
    let weights = |index: usize| {
        let run: &experiment::plan::planner::PlannedRun = &plan.runs[index];
        let weights =
            parameters::of(&initial_model(&run.job.spec, &Device::flex()).expect("a planned spec"));
        assert_eq!(
            weights.count(""),
            run.parameters,
            "the plan promised another number of parameters"
        );
        weights
    };
    let common = |weights: &rundir::Weights| {
        weights
            .0
            .iter()
            .filter(|(path, _)| !path.starts_with("encoding."))
            .map(|(p, t)| (p.clone(), t.clone()))
            .collect::<Vec<_>>()
    };
    let (nope, other_seed, learned, stack) = (weights(0), weights(1), weights(2), weights(4));
    assert_eq!(common(&nope), common(&learned));
    assert_eq!(common(&nope), common(&stack));
    assert_ne!(common(&nope), common(&other_seed));
    assert_eq!(
        learned
            .0
            .keys()
            .filter(|path| path.starts_with("encoding."))
            .collect::<Vec<_>>(),
        ["encoding.table"]
    );
    assert_eq!(
        stack
            .0
            .keys()
            .filter(|path| path.starts_with("encoding."))
            .collect::<Vec<_>>(),
        ["encoding.parts.1.table"]
    );
}

#[test]
fn a_diverged_run_is_recorded_with_its_step_and_the_sweep_goes_on() {
    let scratch = Scratch::with(TINY);
    let sweep = [
        "axes.\"train.lr\"=[1e9,1e-3]",
        "seeds=[0]",
        "train.warmup_steps=0",
        "train.grad_clip=0",
        "train.steps=30",
        "model.norm=\"rms_norm\"",
    ];
    let output = scratch.trains(&sweep);
    let records: Vec<Value> = scratch
        .records()
        .iter()
        .map(|(_, bytes)| parse(bytes))
        .collect();
    assert_eq!(records.len(), 4);
    let diverged: Vec<&Value> = records
        .iter()
        .filter(|record| record["status"] == "diverged")
        .collect();
    assert_eq!(diverged.len(), 2, "a learning rate of 1e9 must diverge");
    for record in diverged {
        assert!(record["diverged"]["step"].as_u64().unwrap() < 30);
        assert_eq!(
            record["train"]["steps"], record["diverged"]["step"],
            "the bad step is not applied"
        );
        assert!(!record["diverged"]["what"].as_str().unwrap().is_empty());
        assert!(record["evals"].as_array().unwrap().iter().all(
            |row| row["status"] == "diverged" && row["metrics"].as_object().unwrap().is_empty()
        ));
    }
    shows(&output, "diverged");
    let said = stderr(&output);
    let ended = |how: &str| {
        let lines = said.lines().filter(|line| line.starts_with('['));
        lines.filter(|line| line.contains(how)).count()
    };
    assert_eq!((ended(": diverged"), ended(": done")), (2, 2), "{said}");
    // When nothing survives, the exit code says so.
    let alone = Scratch::with(TINY);
    exits(
        &alone.longreach(
            "run",
            &[
                "train.lr=1e9",
                "seeds=[0]",
                "train.warmup_steps=0",
                "train.grad_clip=0",
                "train.steps=30",
                "model.norm=\"rms_norm\"",
            ],
        ),
        5,
    );
}

#[test]
fn eval_repeats_the_records_numbers_and_adds_lengths_and_variants() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&["seeds=[0]"]);
    let (path, bytes) = scratch
        .records()
        .into_iter()
        .find(|(_, bytes)| parse(bytes)["labels"][0]["text"] == "rope")
        .unwrap();
    let record = parse(&bytes);
    let run = scratch.runs().join(path.parent().unwrap());
    let arguments = [
        "--lengths",
        "8,16",
        "--variant",
        "scaling={kind=\"yarn\"}",
        "--variant",
        "name=\"none\"\nkind=\"nope\"",
        "--json",
    ];
    let output = command("eval", &run, &arguments);
    exits(&output, 0);
    let again: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let find = |record: &Value, variant: &str, test_len: u64| {
        record["evals"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["variant"] == variant && row["test_len"] == test_len)
            .cloned()
            .unwrap()["metrics"]
            .clone()
    };
    assert_eq!(find(&record, "trained", 8), find(&again, "trained", 8));
    assert_eq!(find(&record, "yarn", 8), find(&again, "yarn", 8));
    assert!(
        find(&again, "none", 16)["loss_nats"]["value"]
            .as_f64()
            .unwrap()
            .is_finite()
    );
    // The record itself is untouched.
    assert_eq!(std::fs::read(scratch.runs().join(&path)).unwrap(), bytes);
    // Damaged weights are refused.
    let weights = run.join("weights.safetensors");
    let mut damaged = std::fs::read(&weights).unwrap();
    let last = damaged.len() - 2;
    damaged[last] ^= 1;
    std::fs::write(&weights, damaged).unwrap();
    fails(&command("eval", &run, &[]), 3, "digest");
}

#[test]
fn a_report_of_a_directory_is_the_report_of_the_run() {
    let scratch = Scratch::with(TINY);
    scratch.trains(&[]);
    let out = scratch.directory.path().join("out");
    let arguments = ["--format", "md,csv", "--out", out.to_str().unwrap()];
    let output = command("report", &scratch.runs(), &arguments);
    exits(&output, 0);
    assert!(!out.join("report.html").exists());
    let csv = |directory: &std::path::Path| {
        let mut lines: Vec<String> = std::fs::read_to_string(directory.join("results.csv"))
            .unwrap()
            .lines()
            .map(ToOwned::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(csv(&out), csv(&scratch.runs().join("tiny/report")));
}

#[test]
fn a_report_holds_the_records_against_claims_and_assertions() {
    let scratch = Scratch::with(&format!(
        "{TINY}\n[report]\nclaims = \"claims.toml\"\nassertions = true\n"
    ));
    let claims = scratch.directory.path().join("claims.toml");
    let text = "[[claim]]\nsource = \"Somebody\"\ntext = \"Guessing gets nothing\"\nmetric = \
                \"exact_match\"\nkind = \"above\"\nmethods = [\"rope\"]\nlengths = \
                [\"in\"]\nvalue = 1.0\n";
    std::fs::write(&claims, text).unwrap();
    scratch.trains(&[]);
    let read = |out: &std::path::Path| std::fs::read_to_string(out.join("report.md")).unwrap();
    let first = read(&scratch.runs().join("tiny/report"));
    for part in [
        "## Against the source",
        "Guessing gets nothing",
        "disagrees",
        "## Expectations from the literature",
    ] {
        has(&first, part);
    }
    // The same by hand, and neither without being asked for.
    // Beside the first, since links to runs are relative.
    let out = scratch.runs().join("tiny/again");
    let report = |more: &[&str]| {
        let arguments = [more, &["--out", out.to_str().unwrap()]].concat();
        exits(&command("report", &scratch.runs(), &arguments), 0);
        read(&out)
    };
    let by_hand = report(&["--claims", claims.to_str().unwrap(), "--assertions"]);
    assert_eq!(by_hand, first);

    let plain = report(&[]);
    lacks(&plain, "Against the source");
    lacks(&plain, "must show");
}

#[test]
fn a_report_on_several_experiments_has_the_order_of_their_configs() {
    let scratch = Scratch::with(TINY);
    let axes = "axes.\"model.pe\"=[{kind=\"t5\"},{kind=\"alibi\"},{kind=\"rope\"}]";
    for name in ["name=\"first\"", "name=\"second\""] {
        scratch.trains(&[name, axes, "seeds=[0]"]);
    }
    let report = |order: &[&str]| {
        let mut command = longreach();
        command.arg("report");
        command.args(["first", "second"].map(|name| scratch.runs().join(name)));
        command
            .args(order)
            .arg("--out")
            .arg(scratch.runs().join("both"));
        exits(&command.output().unwrap(), 0);
        let page = std::fs::read_to_string(scratch.runs().join("both/report.md")).unwrap();
        let rows = page
            .lines()
            .filter_map(|line| line.strip_prefix("| first: "));
        let names = rows.filter_map(|row| row.split(' ').next());
        names.take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(report(&[]), ["T5", "ALiBi", "RoPE"]);
    // `--order` wins.
    let config = scratch.config.to_str().unwrap();
    assert_ne!(report(&["--order", config])[0], "T5");
}

#[test]
fn text_is_trained_on_and_its_loss_falls() {
    let config = TINY.replace(
        "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
        "kind = \"text\"\nfiles = [\"*.txt\"]\neval_tokens = 512\nsplit = { by = \"range\", \
         valid_fraction = 0.2 }",
    );
    let scratch = Scratch::with(&config);
    let text: String = (0..400)
        .map(|i| {
            format!(
                "line {} says that {} follows {}.\n",
                i % 7,
                i % 5 + 1,
                i % 5
            )
        })
        .collect();
    scratch.write("a.txt", text);
    let overrides = [
        "train.train_len=32",
        "train.steps=80",
        "train.lr=1e-2",
        "eval.test_lens=[32,64]",
        "seeds=[0]",
    ];
    scratch.trains(&overrides);
    for (_, bytes) in scratch.records() {
        let record = parse(&bytes);
        let curve = record["train"]["loss_curve"].as_array().unwrap();
        let (first, last) = (
            curve[0]["loss_nats"].as_f64().unwrap(),
            curve.last().unwrap()["loss_nats"].as_f64().unwrap(),
        );
        assert!(
            (first - 256f64.ln()).abs() < 0.5,
            "an untrained byte model guesses among 256: {first}"
        );
        assert!(last < 2.5, "80 steps on a text of seven lines: {last}");
        assert_eq!(record["task"]["corpus"]["files"], 1);
        let row = &record["evals"][0];
        assert_eq!(row["metrics"]["loss_nats"]["n"], 512);
        assert_eq!(row["loss_by_position"].as_array().unwrap().len(), 32);
    }
    // Another text is another run, and a text that changes under a run is noticed.
    scratch.write("b.txt", "more of the same ".repeat(100));
    says(&scratch.trains(&overrides), "2 to do");
}
