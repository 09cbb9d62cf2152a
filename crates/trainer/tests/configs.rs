//! Every config of the repository parses, plans, and says what it would cost.

mod common;

use common::{exits, longreach, stdout};
use std::path::Path;
use trainer::config::experiment::plan;

fn configs() -> Vec<std::path::PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_config_plans() {
    let paths = configs();
    let names: Vec<String> = paths.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    for wanted in ["quickstart", "copy", "reverse", "text-lengths", "theta-base", "catalogue", "randomized", "linear-attention", "smoke"] {
        assert!(names.iter().any(|name| name == wanted), "configs/{wanted}.toml is missing");
    }
    for path in paths {
        let plan = plan(&path, &[]).unwrap_or_else(|error| panic!("{}\n{error}", path.display()));
        assert!(!plan.runs.is_empty(), "{} plans nothing", path.display());
        assert_eq!(plan.name, path.file_stem().unwrap().to_string_lossy(), "a config is named after its file");
    }
}

#[test]
fn check_prints_runs_parameters_tokens_memory_and_time() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/copy.toml");
    let output = longreach().arg("check").arg(&config).args(["seeds=[7]", "--json"]).output().unwrap();
    exits(&output, 0);
    let plan: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let runs = plan["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert_eq!(run["seed"], 7);
        assert_eq!(run["recorded"], false);
        // 3000 steps of 64 rows of 2 * 16 + 2 tokens: BOS, 16 symbols, SEP, 16 symbols.
        assert_eq!(run["train_tokens"], 3000 * 64 * 34);
        assert!(run["parameters"].as_u64().unwrap() > 90_000);
        assert!(run["memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(run["estimated_secs"].as_f64().unwrap() > 0.0);
    }
    let rope = runs.iter().find(|run| run["labels"][0] == "rope").unwrap();
    assert_eq!(rope["variants"], serde_json::json!(["trained", "linear", "ntk", "yarn"]));
    let text = longreach().arg("check").arg(&config).output().unwrap();
    for part in ["parameters", "train tokens", "memory", "time", "18 runs"] {
        assert!(stdout(&text).contains(part), "{part} is missing:\n{}", stdout(&text));
    }
}

#[test]
fn the_identity_of_a_run_is_its_numbers_not_its_names() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/smoke.toml");
    let ids = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        plan(&config, &overrides).unwrap().runs.iter().map(|run| run.job.run_id.clone()).collect::<Vec<_>>()
    };
    let plain = ids(&[]);
    assert_eq!(plain, ids(&["name=other", "title=\"Other\""]));
    // A default written out is the same run; another value of anything is another.
    assert_eq!(plain, ids(&["train.grad_clip=1.0", "model.d_ff=64"]));
    for change in ["train.steps=31", "train.lr=1e-4", "model.d_ff=32", "eval.test_lens=[6,12]", "task.alphabet=9", "train.adamw.beta2=0.98"]
    {
        let changed = ids(&[change]);
        assert!(changed.iter().all(|id| !plain.contains(id)), "{change} left an identity as it was");
    }
}

#[test]
fn every_kind_of_the_list_is_in_the_catalogue_config() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/catalogue.toml");
    let plan = plan(&config, &["seeds=[0]".to_owned()]).unwrap();
    let specs: Vec<String> = plan.runs.iter().map(|run| serde_json::to_string(&run.job.spec).unwrap()).collect();
    for kind in posenc::EncodingConfig::KINDS {
        let named = format!("\"kind\":\"{kind}\"");
        assert!(specs.iter().any(|spec| spec.contains(&named)), "{kind} is neither trained nor evaluated");
    }
}
