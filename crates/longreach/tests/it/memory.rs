//! Estimates of memory: what they count. `scripts/memory` compares them with measured peaks.

use crate::common::{ONE, Scratch, TINY, exits, has, lacks, says, stdout};

/// The estimates of a plan in bytes: of its training, and of each evaluation.
fn estimates(scratch: &Scratch, more: &[&str]) -> (u64, Vec<u64>) {
    let output = scratch.longreach("check", &[&ONE[..], &["--json"], more].concat());
    exits(&output, 0);
    let plan: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let run = &plan["runs"][0];
    let evaluations = run["evaluations"].as_array().unwrap().iter();
    let bytes = evaluations.map(|one| one["memory_bytes"].as_u64().unwrap());
    (run["train_memory_bytes"].as_u64().unwrap(), bytes.collect())
}

fn largest(scratch: &Scratch, more: &[&str]) -> u64 {
    estimates(scratch, more).1.into_iter().max().unwrap()
}

#[test]
fn a_corpus_counts_with_every_byte() {
    let text = TINY.replace(
        "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
        "kind = \"text\"\nfiles = [\"c.txt\"]\neval_tokens = 64",
    );
    let scratch = Scratch::with(&text);
    let [small, large] = [1 << 20, 21 << 20].map(|size| {
        scratch.write("c.txt", vec![b'a'; size]);
        estimates(&scratch, &[])
    });
    assert_eq!(large.0 - small.0, 20 << 20);
    assert_eq!(large.1[0] - small.1[0], 20 << 20);
}

#[test]
fn what_only_reading_a_corpus_needs_is_free_again_while_training() {
    let text = TINY.replace(
        "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
        "kind = \"text\"\nlevel = \"chars\"\nfiles = [\"c.txt\"]\neval_tokens = 64",
    );
    let scratch = Scratch::with(&text);
    let sizes: [usize; 2] = [1 << 20, 21 << 20];
    let [small, large] = sizes.map(|size| {
        scratch.write("c.txt", vec![b'a'; size]);
        estimates(&scratch, &[])
    });
    // Four bytes for each character while training, one more while the text is read.
    assert_eq!(large.0 - small.0, 4 * (20 << 20));
    assert_eq!(large.1[0] - small.1[0], 5 * (20 << 20));
}

#[test]
fn a_device_holds_tensors_and_no_corpus() {
    let text = TINY.replace(
        "kind = \"copy\"\nalphabet = 4\ntest_rows = 8",
        "kind = \"text\"\nfiles = [\"c.txt\"]\neval_tokens = 64",
    );
    let scratch = Scratch::with(&text);
    // It need not be there: estimates are for machines that have none, too.
    let cuda = ["--device", "cuda"];
    let [small, large] = [1 << 20, 21 << 20].map(|size| {
        scratch.write("c.txt", vec![b'a'; size]);
        estimates(&scratch, &cuda)
    });
    assert_eq!(small, large);
    let wide = ["model.d_model=512", "train.batch_size=64"];
    let of = |more: &[&str]| estimates(&scratch, &[&cuda, &wide[..], more].concat());
    let plain = of(&[]);
    let twice = of(&["train.batch_size=128"]);
    assert!(
        twice.0 > plain.0 && twice.1 == plain.1,
        "{twice:?} {plain:?}"
    );
    let long = of(&["eval.test_lens=[512]", "task.eval_tokens=512"]);
    assert!(long.1[0] > plain.1[0], "{long:?} {plain:?}");
    // What reads content is outside fused attention, and so is a network of positions.
    for kind in ["cope", "fire"] {
        let other = of(&[&format!("axes.\"model.pe\"=[{{kind=\"{kind}\"}}]")]);
        assert!(
            other.0 > plain.0 && other.1 > plain.1,
            "{kind}: {other:?} {plain:?}"
        );
    }
    let limited = scratch.longreach(
        "check",
        &[&ONE[..], &cuda, &["--memory-limit", "1MiB"]].concat(),
    );
    exits(&limited, 0);
    says(&limited, "would not train");
    says(&limited, "of the device's memory");
}

#[test]
fn what_an_evaluation_keeps_beside_its_batch_counts() {
    let scratch = Scratch::with(TINY);
    let long = "eval.test_lens=[512]";
    let plain = largest(&scratch, &[long]);
    let mib = 1 << 20;
    let greedy = largest(&scratch, &[long, "eval.decode=\"greedy\""]);
    assert!(
        greedy > plain + mib / 2,
        "the cache of a decoder: {greedy} {plain}"
    );
    // Attention to a cache is not fused: biases that it would add are blocks of logits.
    for kind in ["fox", "alibi"] {
        let encoding = format!("axes.\"model.pe\"=[{{kind=\"{kind}\"}}]");
        let [scored, decoded] = ["teacher_forced", "greedy"].map(|decode| {
            largest(
                &scratch,
                &[long, &encoding, &format!("eval.decode=\"{decode}\"")],
            )
        });
        assert!(
            decoded > scored + 16 * mib,
            "{kind}, decoded: {decoded} {scored}"
        );
    }
    let watched = largest(&scratch, &[long, "eval.attention_distance=true"]);
    assert!(
        watched > plain + 16 * mib,
        "watched weights: {watched} {plain}"
    );
    let alibi = "axes.\"model.pe\"=[{kind=\"alibi\"}]";
    let drawn = "model.positions={kind=\"randomized\",max_position=2048}";
    let [line, random] = [vec![long, alibi], vec![long, alibi, drawn]]
        .map(|arguments| largest(&scratch, &arguments));
    assert!(random > line + 16 * mib, "a dense bias: {random} {line}");
    // One query over a million keys is more than a block of logits may hold otherwise.
    let cope = "axes.\"model.pe\"=[{kind=\"cope\"}]";
    let million = ["eval.test_lens=[500000]", "task.test_rows=1"];
    let [plain, content] = [&million[..], &[&million[..], &[cope]].concat()]
        .map(|arguments| largest(&scratch, arguments));
    assert!(
        content > plain + 64 * mib,
        "a bias by content: {content} {plain}"
    );
}

#[test]
fn run_admits_by_what_check_prints() {
    let scratch = Scratch::with(TINY);
    let lens = ["eval.test_lens=[4,16000]", "task.test_rows=1"];
    let (training, evaluations) = estimates(&scratch, &lens);
    let most = evaluations.into_iter().max().unwrap();
    assert!(training < most);
    let run = |limit: u64| {
        let limit = limit.to_string();
        let arguments = [&ONE[..], &lens, &["--memory-limit", &limit]].concat();
        scratch.longreach("run", &arguments)
    };
    exits(&run(training - 1), 6);
    exits(&run(most - 1), 0);
    let record = std::fs::read_to_string(scratch.runs().join(&scratch.records()[0].0)).unwrap();
    has(&record, "\"skipped\"");
    let check = |limit: u64| {
        let limit = limit.to_string();
        let arguments = [&ONE[..], &lens, &["--memory-limit", &limit]].concat();
        let output = scratch.longreach("check", &arguments);
        exits(&output, 0);
        stdout(&output)
    };
    // Only the evaluation is left where the length fits now, and nothing elsewhere.
    let left = check(most);
    has(&left, " evaluation ");
    has(&left, "to do: 1 run, 0 tokens trained on");
    lacks(&check(most - 1), "of memory per process");
    exits(&run(most), 0);
    let record = std::fs::read_to_string(scratch.runs().join(&scratch.records()[0].0)).unwrap();
    lacks(&record, "\"skipped\"");
}
