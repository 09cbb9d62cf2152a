//! The committed catalogue page is what the committed records and the code make of it.

use crate::common::{exits, longreach, needs_axes, stderr, stdout};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_committed_page_is_up_to_date() {
    let page = longreach::commands::catalogue_page::page(
        &root().join("experiments/002-catalogue/results.jsonl"),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let committed = std::fs::read_to_string(root().join("docs/catalogue/README.md"))
        .expect("the page is committed");
    let hint =
        "run `longreach catalogue experiments/002-catalogue/results.jsonl --out docs/catalogue`";
    for (line, (made, there)) in page.lines().zip(committed.lines()).enumerate() {
        assert_eq!(
            made,
            there,
            "line {} of docs/catalogue/README.md; {hint}",
            line + 1
        );
    }
    assert_eq!(page, committed, "{hint}");
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
            picture.starts_with("<svg")
                && picture.contains(&format!("{kind}: logits of equal tokens")),
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
fn a_page_is_written_where_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("page");
    let records = root().join("experiments/002-catalogue/results.jsonl");
    let output = longreach()
        .arg("catalogue")
        .arg(&records)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    exits(&output, 0);
    assert!(stdout(&output).contains("README.md") && out.join("rope.svg").exists());
    let output = longreach()
        .args(["catalogue", "nowhere.jsonl", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    exits(&output, 3);
    assert!(stderr(&output).contains("nowhere.jsonl"));
}
