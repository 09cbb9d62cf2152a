//! What lengths of a scaling mean that are left out: the length trained on before the encoding came
//! in. Four symbols of `copy` are 10 tokens, eight are 18.

use crate::common::{Scratch, command, exits, has, says};
use experiment::plan;
use experiment::plan::planned::Plan;
use serde_json::Value;
use std::process::Output;

fn config(name: &str, pe: &str, train: &str, variants: &str) -> String {
    format!(
        "name = \"{name}\"\nseeds = [0, 1]\n[task]\nkind = \"copy\"\nalphabet = 4\ntest_rows = 8\n\
         [model]\nd_model = 16\nn_layers = 1\nn_heads = 2\npe = {pe}\n[train]\nbatch_size = 4\n\
         lr = 1e-3\n{train}\n[eval]\ntest_lens = [4, 8, 16]\n{variants}"
    )
}

/// A directory with a plain run of four symbols in `runs/base`.
fn base() -> Scratch {
    let scratch = Scratch::with(&config("base", ROPE, "train_len = 4\nsteps = 4", ""));
    scratch.trains(&[]);
    scratch
}

/// Writes another config beside the first and plans it.
fn planned(scratch: &Scratch, text: &str) -> Plan {
    let path = scratch.directory.path().join("next.toml");
    std::fs::write(&path, text).unwrap();
    plan(&path, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Trains that config.
#[track_caller]
fn trained(scratch: &Scratch) -> Output {
    let path = scratch.directory.path().join("next.toml");
    let output = command("run", &path, &["--runs", scratch.runs().to_str().unwrap()]);
    exits(&output, 0);
    output
}

/// The resolved encoding of the model.
fn encoding(plan: &Plan) -> Value {
    serde_json::to_value(&plan.runs[0].job.spec.model.pe).unwrap()
}

fn variant(plan: &Plan, name: &str) -> Value {
    let variants = &plan.runs[0].job.spec.eval.variants;
    let variant = variants
        .iter()
        .find(|variant| variant.name == name)
        .unwrap();
    serde_json::to_value(&variant.pe[2]).unwrap()
}

const ROPE: &str = "{ kind = \"rope\" }";
const YARN: &str = "{ kind = \"rope\", scaling = { kind = \"yarn\", factor = 4 } }";
const FROM_BASE: &str = "train_len = 8\nsteps = 4\nstart_from = \"runs/base\"";
const ORIGINAL: &str = "original_max_position_embeddings";

#[test]
fn without_a_training_before_the_training_length_is_meant() {
    let scratch = Scratch::with("");
    let plan = planned(
        &scratch,
        &config("next", YARN, "train_len = 8\nsteps = 4", ""),
    );
    assert_eq!(encoding(&plan)["scaling"][ORIGINAL], 18);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
}

#[test]
fn a_start_from_other_weights_means_the_length_of_their_run() {
    let scratch = base();
    let variants = "[[eval.variants]]\nname = \"base\"\nset = { base = 500 }\n\
                    [[eval.variants]]\nname = \"parts\"\n\
                    set = { scaling = { kind = \"ntk_by_parts\" } }\n";
    let plan = planned(&scratch, &config("next", YARN, FROM_BASE, variants));
    assert_eq!(encoding(&plan)["scaling"][ORIGINAL], 10);
    // A variant that leaves the scaling has it as it was trained; a new one follows all training.
    assert_eq!(variant(&plan, "base")["scaling"][ORIGINAL], 10);
    assert_eq!(variant(&plan, "parts")["scaling"][ORIGINAL], 18);
    let said = "default to the 10 tokens trained on by the run that it starts from, not 18";
    has(&plan.notes.join("\n"), said);
    let replaced = "variant `parts`: trained under the scaling yarn, evaluated under ntk_by_parts";
    let replaced = replaced.to_owned();
    assert!(plan.notes.contains(&replaced), "{:?}", plan.notes);
    // Jobs are read back as configurations.
    says(&trained(&scratch), said);
    exits(&command("verify", &scratch.runs(), &[]), 0);

    // The ratio of lengths, and every other length that is left out.
    let auto = "{ kind = \"rope\", scaling = { kind = \"linear\", factor = \"auto\" } }";
    let plan = planned(&scratch, &config("third", auto, FROM_BASE, ""));
    assert_eq!(encoding(&plan)["scaling"]["factor"], 1.8);
    let plan = planned(
        &scratch,
        &config("third", "{ kind = \"string\" }", FROM_BASE, ""),
    );
    assert_eq!(encoding(&plan)["shift"], 3);
    // What is written stays, and a plain encoding has nothing to mean.
    for pe in [
        ROPE,
        &YARN.replace("factor = 4", &format!("factor = 4, {ORIGINAL} = 18")),
    ] {
        let plan = planned(&scratch, &config("third", pe, FROM_BASE, ""));
        assert!(plan.notes.is_empty(), "{pe}: {:?}", plan.notes);
    }
    // The run before was trained under the same scaling with another length.
    let from_next = FROM_BASE.replace("runs/base", "runs/next");
    let plan = planned(&scratch, &config("third", YARN, &from_next, ""));
    assert_eq!(encoding(&plan)["scaling"][ORIGINAL], 18);
    let said = format!("scaling.{ORIGINAL} = 10 there and 18 here");
    has(&plan.notes.join("\n"), &said);
}

#[test]
fn an_encoding_of_a_later_stage_means_the_length_of_the_stages_before() {
    let scratch = Scratch::with("");
    let staged = |stages: &str| {
        format!("train_len = 8\nsteps = 6\nlength = \"staged\"\nstages = [{stages}]")
    };
    let stages =
        format!("{{ steps = 3, train_len = 4 }}, {{ steps = 3, train_len = 8, pe = {YARN} }}");
    let plan = planned(&scratch, &config("staged", ROPE, &staged(&stages), ""));
    assert_eq!(encoding(&plan)["scaling"][ORIGINAL], 10);
    let said = "default to the 10 tokens trained on before its first stage, not 18";
    has(&plan.notes.join("\n"), said);
    trained(&scratch);
    // One encoding of all stages means the longest of them, and says so.
    let stages = "{ steps = 3, train_len = 4 }, { steps = 3, train_len = 8 }";
    let plan = planned(&scratch, &config("staged", YARN, &staged(stages), ""));
    assert_eq!(encoding(&plan)["scaling"][ORIGINAL], 18);
    let said = "default to the 18 tokens of the longest stage, not 10";
    has(&plan.notes.join("\n"), said);
    let plan = planned(&scratch, &config("staged", ROPE, &staged(stages), ""));
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
}
