//! Every config of the repository parses, plans, and says what it would cost.

use crate::common::{command, exits, fails, longreach, needs_axes, says, shows, stdout};
use config::shipped::SHIPPED;
use experiment::plan;
use experiment::plan::cost::flops;
use std::path::{Path, PathBuf};

fn configs() -> Vec<std::path::PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut paths: Vec<_> = [directory.clone(), directory.join("published")]
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_config_plans() {
    for path in configs() {
        let plan = plan(&path, &[]).unwrap_or_else(|error| panic!("{}\n{error}", path.display()));
        assert!(!plan.runs.is_empty(), "{} plans nothing", path.display());
        assert_eq!(
            plan.name,
            path.file_stem().unwrap().to_string_lossy(),
            "a config is named after its file"
        );
    }
}

#[test]
fn configs_come_with_the_program_if_they_need_nothing_else() {
    // `smoke` is for CI, and `ten-million` reads files of its user.
    let left_out = ["smoke", "ten-million"];
    let is_published = |path: &Path| path.parent().unwrap().ends_with("published");
    let files = configs().into_iter().filter(|path| !is_published(path));
    let names = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let mut expected: Vec<String> = names.filter(|name| !left_out.contains(&&**name)).collect();
    let mut shipped: Vec<&str> = SHIPPED.iter().map(|config| config.name).collect();
    shipped.sort();
    expected.sort();
    assert_eq!(
        shipped, expected,
        "crates/config/src/shipped.rs lists the configs"
    );
}

#[test]
fn a_config_that_comes_with_the_program_runs_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = longreach();
        command
            .current_dir(place.path())
            .args(arguments)
            .output()
            .unwrap()
    };
    let small = [
        "train.steps=2",
        "task.eval_tokens=64",
        "eval.test_lens=[64]",
        "model.d_model=16",
    ];
    let report = place.path().join("runs/quickstart/report");
    exits(&run(&[&["run", "quickstart"], &small[..]].concat()), 0);
    assert!(report.join("report.html").is_file());
    // A folder of that name does not hide it: `--runs .` makes one.
    std::fs::create_dir(place.path().join("quickstart")).unwrap();
    exits(&run(&[&["check", "quickstart"], &small[..]].concat()), 0);
    // The same runs as those of the file.
    exits(&run(&["new", "--from", "quickstart"]), 0);
    // The name of a file is that of its experiment.
    exits(&run(&["new", "mine.toml"]), 0);
    assert!(place.path().join("mine.toml").is_file());
    let again = run(&[&["run", "quickstart.toml"], &small[..]].concat());
    exits(&again, 0);
    says(&again, "0 to do");
    // A file of that name comes first.
    std::fs::write(place.path().join("copy"), "name = 3").unwrap();
    fails(&run(&["check", "copy"]), 2, "--> copy:1");
    // A mistake has its place in the text, and a misspelt folder is answered by the name alone.
    exits(&run(&["check", "quickstart", "train.lr=0"]), 2);
    let refused = run(&["run", "configs/quickstart.toml"]);
    fails(&refused, 2, "longreach new --from quickstart");
    let submit = ["submit", "reverse", "--cluster", "parallel"];
    let refused = run(&[&submit[..], &["--out", "sweep"]].concat());
    fails(&refused, 2, "longreach new --from reverse");
    assert!(!place.path().join("sweep").exists());
}

#[test]
fn check_prints_runs_parameters_tokens_memory_and_time() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/copy.toml");
    let output = command("check", &config, &["seeds=[7]", "--json"]);
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
    assert_eq!(
        rope["variants"],
        serde_json::json!(["trained", "linear", "ntk", "yarn"])
    );
    let text = command("check", &config, &[]);
    for part in ["parameters", "train tokens", "memory", "time", "18 runs"] {
        shows(&text, part);
    }
}

#[test]
fn the_identity_of_a_run_is_its_numbers_not_its_names() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/smoke.toml");
    let ids = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        plan(&config, &overrides)
            .unwrap()
            .runs
            .iter()
            .map(|run| run.job.run_id.clone())
            .collect::<Vec<_>>()
    };
    let plain = ids(&[]);
    assert_eq!(plain, ids(&["name=other", "title=\"Other\""]));
    // A default written out is the same run; another value of anything is another.
    assert_eq!(plain, ids(&["train.grad_clip=1.0", "model.d_ff=64"]));
    let defaults = ["train.schedule=\"cosine\"", "model.mlp=\"dense\""];
    assert_eq!(plain, ids(&defaults));
    for change in [
        "train.steps=31",
        "train.lr=1e-4",
        "model.d_ff=32",
        "eval.test_lens=[6,12]",
        "task.alphabet=9",
        "train.adamw.beta2=0.98",
        "train.schedule=\"linear\"",
        "model.mlp=\"none\"",
    ] {
        let changed = ids(&[change]);
        assert!(
            changed.iter().all(|id| !plain.contains(id)),
            "{change} left an identity as it was"
        );
    }
}

#[test]
fn every_kind_of_the_list_is_in_the_catalogue_config() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/catalogue.toml");
    let plan = plan(&config, &["seeds=[0]".to_owned()]).unwrap();
    let specs: Vec<String> = plan
        .runs
        .iter()
        .map(|run| serde_json::to_string(&run.job.spec).unwrap())
        .collect();
    for kind in posenc::EncodingConfig::KINDS {
        let named = format!("\"kind\":\"{kind}\"");
        // Text has no coordinates.
        assert!(
            specs.iter().any(|spec| spec.contains(&named)) || needs_axes(kind),
            "{kind} is neither trained nor evaluated"
        );
    }
}

/// The Markdown files that people read.
fn documents() -> Vec<(String, String)> {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path());
        for path in entries.filter(|path| !path.ends_with("target")) {
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    let root = repository();
    let mut paths: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(|name| root.join(name))
        .to_vec();
    for directory in ["docs", "experiments", "crates"] {
        collect(&root.join(directory), &mut paths);
    }
    paths
        .into_iter()
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read_to_string(&path).unwrap(),
            )
        })
        .collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of every block between "```LANGUAGE" and "```".
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    text.split(start.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

/// A whole config for a fragment: one that holds the keys the fragment sets in `[model]` or in a
/// variant, or its tables in place of the base's.
fn whole(fragment: &str) -> Vec<String> {
    const BASE: &str = "name = \"x\"\n[task]\nkind = \"copy\"\n[train]\ntrain_len = 64\nsteps = \
                        2\n[eval]\ntest_lens = [64]\n";
    const MODEL: &str = "[model]\nd_model = 64\nn_layers = 4\nn_heads = 4\n";
    if fragment.contains("[model]") {
        return vec![fragment.to_owned()];
    }
    if fragment.starts_with("[model.pe]") {
        // Heads as wide as those of published models.
        return vec![format!("{BASE}{MODEL}head_dim = 256\n{fragment}")];
    }
    // Claims are not configs; another test reads their page.
    if ["[[claim]]", "[[published]]", "[aliases]"]
        .iter()
        .any(|start| fragment.starts_with(start))
    {
        return Vec::new();
    }
    if fragment.starts_with("seeds = ") {
        let top = format!("name = \"x\"\n{fragment}");
        let rest = BASE.replace("name = \"x\"\n", &top);
        return vec![format!("{rest}{MODEL}pe = {{ kind = \"rope\" }}\n")];
    }
    if fragment.starts_with("[select]") {
        return vec![format!(
            "{BASE}{MODEL}pe = {{ kind = \"rope\" }}\n{fragment}"
        )];
    }
    if fragment.starts_with("[task]") {
        return vec![format!(
            "{}{MODEL}pe = {{ kind = \"rope\" }}\n{fragment}",
            BASE.replace("[task]\nkind = \"copy\"\n", "")
        )];
    }
    if fragment.trim_start().starts_with("[train]") {
        return vec![format!(
            "{}{MODEL}pe = {{ kind = \"rope\" }}\n{fragment}",
            BASE.replace("[train]\ntrain_len = 64\nsteps = 2\n", "")
        )];
    }
    let lines = fragment
        .lines()
        .filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    const ROPE: &str = "pe = { kind = \"rope\" }\n";
    const VARIANT: &str = "[[eval.variants]]\nname = \"v\"\n";
    let with = |line: &str| match line.split_once(' ').map_or("", |(key, _)| key) {
        "pe" => format!("{BASE}{MODEL}{line}\n"),
        "set" | "add" => format!("{BASE}{MODEL}{ROPE}{VARIANT}{line}\n"),
        _ => format!("{BASE}{MODEL}{ROPE}{line}\n"),
    };
    lines.map(with).collect()
}

#[test]
fn every_config_and_fragment_of_the_documents_plans() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("x.toml");
    // What the fragments on prompts and answers read.
    for (name, word) in [("train", "a"), ("test", "b")] {
        let line = |prompt: String| format!("{{\"prompt\": \"{prompt}\", \"answer\": \"c\"}}\n");
        // 64 words, and 64 characters.
        let lines = line(format!("{word} ").repeat(64)) + &line(word.repeat(64));
        for file in [format!("{name}.jsonl"), format!("sums-{name}.jsonl")] {
            std::fs::write(scratch.path().join(file), &lines).unwrap();
        }
    }
    // What those on texts and token ids read.
    for name in ["train.txt", "validation.txt"] {
        std::fs::write(scratch.path().join(name), "a text of words\n".repeat(64)).unwrap();
    }
    for name in ["fineweb_train_1.bin", "fineweb_val_1.bin"] {
        std::fs::write(scratch.path().join(name), [1, 0].repeat(1024)).unwrap();
    }
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (name, text) in documents() {
        for block in blocks(&text, "toml") {
            for config in whole(block) {
                std::fs::write(&path, &config).unwrap();
                tried += 1;
                if let Err(error) = plan(&path, &[]) {
                    wrong.push(format!("{name}:\n{config}\n{error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried >= 6, "{tried} configs in the documents");
}

/// The words of a command line, with single and double quotes as in a shell.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote, mut within) = (vec![String::new()], None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ') => words.extend(within.then(String::new)),
            _ => words.last_mut().unwrap().push(c),
        }
        within = c != ' ' || quote.is_some();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Every command of the documents and of the program's own help that names a config of the
/// repository, with its overrides.
#[test]
fn every_command_of_the_documents_plans() {
    let mut texts = documents();
    for command in [&["--help"][..], &["run", "--help"], &["check", "--help"]] {
        texts.push((
            command.join(" "),
            stdout(&longreach().args(command).output().unwrap()),
        ));
    }
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (name, text) in texts {
        for start in ["longreach run ", "longreach check ", "-- run ", "-- check "] {
            for rest in text.split(start).skip(1) {
                // In Markdown a command ends with its backtick, in a help text at a wide gap or a
                // comment.
                let end = rest.find(['`', '\n']).unwrap_or(rest.len());
                let line = rest[..end].split("  ").next().unwrap();
                let words = words(line.split(" #").next().unwrap());
                let Some(config) = words.first().filter(|config| {
                    config.starts_with("configs/") || config.starts_with("experiments/")
                }) else {
                    continue;
                };
                let mut overrides = Vec::new();
                let mut rest = words[1..].iter();
                while let Some(word) = rest.next() {
                    match word.strip_prefix("--") {
                        Some("json" | "fail-fast") => {}
                        Some(_) => drop(rest.next()),
                        None => overrides.push(word.clone()),
                    }
                }
                tried += 1;
                if let Err(error) = plan(&repository().join(config), &overrides) {
                    wrong.push(format!("{name}: {line}\n{error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried >= 8, "{tried} commands in the documents");
}

/// Times of training steps over that of RoPE at the catalogue's setting and at four times its
/// length, in user seconds of one thread.
const MEASURED: [(&str, &str, f64, f64); 13] = [
    ("dape", "{kind=\"dape\",part={kind=\"kerple\"}}", 3.2, 8.6),
    (
        "dape of 3 keys",
        "{kind=\"dape\",kernel=3,part={kind=\"kerple\"}}",
        11.1,
        35.8,
    ),
    ("path", "{kind=\"path\"}", 3.7, 5.3),
    ("wall", "{kind=\"wall\"}", 4.9, 6.2),
    ("shaw", "{kind=\"shaw\"}", 1.9, 3.3),
    ("stick_breaking", "{kind=\"stick_breaking\"}", 1.65, 2.85),
    ("fire", "{kind=\"fire\",threshold=64.0}", 1.05, 1.25),
    ("cope", "{kind=\"cope\"}", 1.95, 2.85),
    ("transformer_xl", "{kind=\"transformer_xl\"}", 1.55, 2.4),
    ("deberta", "{kind=\"deberta\"}", 1.8, 3.5),
    ("grape_ap", "{kind=\"grape_ap\"}", 3.2, 7.0),
    (
        "relative_projection",
        "{kind=\"relative_projection\"}",
        1.5,
        2.4,
    ),
    ("alibi", "{kind=\"alibi\"}", 1.05, 1.2),
];

#[test]
fn the_time_of_a_bias_is_estimated_within_a_factor_of_two() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/catalogue.toml");
    let work = |encoding: &str, more: &[&str]| -> f64 {
        let axis = format!("axes.\"model.pe\"=[{encoding}]");
        let fixed = [
            "seeds=[0]",
            "eval.variants=[]",
            "eval.test_lens=[64]",
            &axis,
        ];
        let overrides = fixed.iter().chain(more).map(ToString::to_string);
        flops(&plan(&config, &overrides.collect::<Vec<_>>()).unwrap().runs[0])
    };
    for more in [&[][..], &["train.train_len=256", "train.batch_size=8"]] {
        let rope = work("{kind=\"rope\"}", more);
        for (name, encoding, short, long) in MEASURED {
            let measured = if more.is_empty() { short } else { long };
            let share = work(encoding, more) / rope / measured;
            assert!(
                (0.5..=2.0).contains(&share),
                "{name} {more:?}: {share} of {measured}"
            );
        }
    }
}
