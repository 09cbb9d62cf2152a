//! The generated pages of `docs/` are what the program and the committed records make of them.

use longreach_pages::docs::cli_page;
use longreach_pages::{catalogue, config_page, tasks_page};
use std::path::{Path, PathBuf};

#[track_caller]
fn compare(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let hint = format!("run `scripts/pages` and read the changes of docs/{name}");
    for (line, (generated, committed)) in generated.lines().zip(committed.lines()).enumerate() {
        assert_eq!(generated, committed, "docs/{name}:{}: {hint}", line + 1);
    }
    assert!(
        generated == committed,
        "docs/{name} has another length: {hint}"
    );
}

#[test]
fn the_page_of_commands_is_the_help_of_the_program() {
    compare("cli.md", &cli_page());
}

#[test]
fn the_page_of_tasks_is_the_list_of_tasks() {
    compare("tasks.md", &tasks_page().unwrap());
}

#[test]
fn the_page_of_keys_is_that_of_the_list() {
    compare("config.md", &config_page().unwrap());
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_catalogue_is_what_the_committed_records_make_of_it() {
    let page = catalogue::page(&root().join("experiments/002-catalogue/results.jsonl"))
        .unwrap_or_else(|error| panic!("{error}"));
    compare("catalogue/README.md", &page);
}

/// The report of the experiment has the same means and intervals: both average in nats.
#[test]
fn perplexities_are_those_of_the_report() {
    let experiment = root().join("experiments/002-catalogue");
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("it is committed");
    let report = read(experiment.join("report/report.md")).replace('\\', "");
    let page = read(root().join("docs/catalogue/README.md"));
    for (kind, method) in [
        ("nope", "NoPE"),
        ("alibi", "ALiBi"),
        ("xpos", "xPos"),
        ("darope", "DaRoPE"),
    ] {
        let row = |text: &str, start: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(start));
            let cells = line
                .unwrap_or_else(|| panic!("{start}"))
                .trim_matches('|')
                .split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        };
        let (ours, theirs) = (
            row(&page, &format!("| [`{kind}`]")),
            row(&report, &format!("| {method} [")),
        );
        assert_eq!(ours[3..5], [theirs[1].clone(), theirs[4].clone()], "{kind}");
    }
}

#[test]
fn every_kind_has_a_picture_and_a_line_and_is_measured_or_waits_in_the_config() {
    let config = std::fs::read_to_string(root().join("configs/catalogue.toml"))
        .expect("the config is committed");
    let page = std::fs::read_to_string(root().join("docs/catalogue/README.md"))
        .expect("the page is committed");
    for kind in posenc::EncodingConfig::KINDS {
        let picture = std::fs::read_to_string(root().join(format!("docs/catalogue/{kind}.svg")))
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(
            picture.starts_with("<svg") && picture.contains(" viewBox=\"0 0 960 428\""),
            "{kind}"
        );
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("| [`{kind}`]")))
            .unwrap_or_else(|| panic!("{kind} has no line"));
        let waits = config.contains(&format!("kind = \"{kind}\""));
        assert!(
            !line.contains("| - |") || waits || needs_axes(kind),
            "{kind} was not measured and is not going to be: {line}"
        );
    }
}

#[test]
fn pages_are_written_where_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("catalogue");
    let records = root().join("experiments/002-catalogue/results.jsonl");
    let written = catalogue::write(&records, &out).unwrap();
    assert!(written[0].ends_with("README.md") && out.join("rope.svg").exists());
    let error = catalogue::write(Path::new("nowhere.jsonl"), &out).unwrap_err();
    assert!(error.to_string().contains("nowhere.jsonl"));
}

/// Whether an encoding has no meaning without coordinates, which only some tasks give.
fn needs_axes(kind: &str) -> bool {
    let mut config = posenc::EncodingConfig::example(kind).expect("a kind of the list");
    config.resolve(&posenc::Lengths {
        train_len: 16,
        trained_len: 16,
        test_len: 16,
    });
    let shape = posenc::ModelShape {
        d_model: 64,
        n_layers: 2,
        n_heads: 4,
        head_dim: 16,
    };
    config.facts(&shape).needs_axes()
}
