//! Trainings that start from a file of weights.

use crate::common::{Scratch, TINY, command, exits, fails, says, shows, stderr, stdout};
use rundir::{HostTensor, Weights};
use std::path::{Path, PathBuf};

/// An encoding with parameters, so that they must come along.
const ONE: &str = "axes.\"model.pe\"=[{kind=\"kerple\"}]";

fn runs(scratch: &Scratch) -> Vec<PathBuf> {
    let record = |(path, _): (PathBuf, _)| scratch.runs().join(path.parent().unwrap());
    scratch.records().into_iter().map(record).collect()
}

fn json(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn from(place: &Path) -> String {
    format!("train.start_from={:?}", place.display().to_string())
}

/// A finished run, and its weights as a file elsewhere.
fn base(scratch: &Scratch) -> (PathBuf, PathBuf) {
    scratch.trains(&["seeds=[0]", ONE]);
    let run = runs(scratch).remove(0);
    let file = scratch.directory.path().join("mine.safetensors");
    std::fs::copy(run.join("weights.safetensors"), &file).unwrap();
    (run, file)
}

#[test]
fn a_file_gives_the_numbers_of_the_run_that_wrote_it() {
    let scratch = Scratch::with(TINY);
    let (run, file) = base(&scratch);
    let [by_run, by_file] = [&run, &file].map(|place| {
        let scratch = Scratch::with(TINY);
        let arguments = ["seeds=[0]", ONE, &from(place)];
        scratch.trains(&arguments);
        scratch
    });
    let both = [&by_run, &by_file].map(|scratch| runs(scratch).remove(0));
    // From the first loss to the last weight.
    for name in ["steps.jsonl", "weights.safetensors"] {
        let [a, b] = both
            .each_ref()
            .map(|run| std::fs::read(run.join(name)).unwrap());
        assert!(a == b, "{name} differs");
    }
    let [a, b] = both
        .each_ref()
        .map(|run| json(&run.join("record.json"))["evals"].clone());
    assert_eq!(a, b);
    // The file, and not the run, is what the second one is of.
    let jobs = both.each_ref().map(|run| json(&run.join("job.json")));
    let [a, b] = jobs
        .each_ref()
        .map(|job| &job["spec"]["train"]["start_from"]);
    assert_eq!(a["weights_blake3"], b["weights_blake3"]);
    assert!(a["run_id"].is_string() && b["run_id"].is_null());
    assert_ne!(jobs[0]["run_id"], jobs[1]["run_id"]);
    assert_eq!(
        json(&both[1].join("record.json"))["spec"],
        jobs[1]["spec"],
        "the record says what its run started from"
    );
    let verified = command("verify", &by_file.runs(), &["--retrain"]);
    exits(&verified, 0);
    shows(&verified, "1 run verified: nothing wrong");
}

#[test]
fn a_changed_file_is_another_run_and_does_not_pass_as_the_first() {
    let scratch = Scratch::with(TINY);
    let (_, file) = base(&scratch);
    let warm = Scratch::with(TINY);
    let start = from(&file);
    let arguments = ["seeds=[0, 1]", ONE, &start];
    warm.trains(&arguments);
    // All seeds start from the same file; so they are seeds of one method.
    assert_eq!(runs(&warm).len(), 2);
    let again = warm.trains(&arguments);
    says(&again, "0 to do");
    let mut weights = Weights::from_bytes(&std::fs::read(&file).unwrap()).unwrap();
    weights.0.get_mut("embedding").unwrap().values[0] += 1.0;
    std::fs::write(&file, weights.to_bytes().unwrap()).unwrap();
    let retrained = command("verify", &warm.runs(), &["--retrain"]);
    // Both runs are named, and counted.
    exits(&retrained, 1);
    let text = stdout(&retrained);
    for (part, times) in [
        ("cannot be trained again: the weights to start from: ", 2),
        ("mine.safetensors does not hold the weights", 2),
        ("WRONG", 2),
        ("2 runs verified: 2 with something wrong", 1),
    ] {
        assert_eq!(text.matches(part).count(), times, "{part}: {text}");
    }
    warm.trains(&arguments);
    assert_eq!(runs(&warm).len(), 4, "two runs of each file");
}

/// A change of the weights of a file, and what is said about it.
type Damage = (fn(&mut Weights), &'static str);

#[test]
fn files_that_do_not_fit_are_refused_by_tensor() {
    let scratch = Scratch::with(TINY);
    let (_, file) = base(&scratch);
    let whole = std::fs::read(&file).unwrap();
    let start = from(&file);
    let refused = |bytes: &[u8], more: &[&str], said: &str| {
        std::fs::write(&file, bytes).unwrap();
        let arguments = [&["seeds=[0]", ONE, &start], more].concat();
        let output = scratch.longreach("check", &arguments);
        exits(&output, 3);
        let text = stderr(&output);
        let names = ["train.start_from", "mine.safetensors", said];
        assert!(
            names.iter().all(|name| text.contains(name)),
            "{said}: {text}"
        );
    };
    let damages: [Damage; 5] = [
        (
            |weights| drop(weights.0.remove("blocks.0.mlp.up")),
            "blocks.0.mlp.up [16, 64] is not there",
        ),
        (
            |weights| drop(weights.0.remove("encoding.r1")),
            "encoding.r1 [2] is not there",
        ),
        (
            |weights| {
                let extra = HostTensor {
                    shape: vec![2],
                    values: vec![0.0; 2],
                };
                weights.0.insert("blocks.1.bias".into(), extra);
            },
            "\"blocks.1.bias\" [2] is none of the model's",
        ),
        (
            // As torch.nn.Linear has it.
            |weights| {
                weights
                    .0
                    .get_mut("blocks.0.attention.qkv")
                    .unwrap()
                    .shape
                    .reverse()
            },
            "blocks.0.attention.qkv has shape [48, 16]; the model has [16, 48]",
        ),
        (
            |weights| weights.0.get_mut("head").unwrap().values[3] = f32::NAN,
            "\"head\" has 1 values that are not finite",
        ),
    ];
    for (damage, said) in damages {
        let mut weights = Weights::from_bytes(&whole).unwrap();
        damage(&mut weights);
        refused(&weights.to_bytes().unwrap(), &[], said);
    }
    let half = String::from_utf8_lossy(&whole[8..]).find("F32").unwrap() + 8;
    let mut other = whole.clone();
    other[half..half + 3].copy_from_slice(b"I32");
    refused(&other, &[], "is I32, not F32");
    refused(&whole[..whole.len() - 4], &[], "not a safetensors file");
    let said = "not a safetensors file but a zip archive, as torch.save writes";
    refused(b"PK\x03\x04\0\0\x08\x08", &[], said);
    refused(
        &whole,
        &["model.d_model=32"],
        "the model has [32, 96]; blocks.0.attention_norm",
    );
    refused(
        &whole,
        &["axes.\"model.pe\"=[{kind=\"rope\"}]"],
        "\"encoding.r1\" [2] is none",
    );
    std::fs::remove_file(&file).unwrap();
    let gone = scratch.longreach("check", &["seeds=[0]", ONE, &start]);
    fails(&gone, 3, "mine.safetensors: No such file");
}
