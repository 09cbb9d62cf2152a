//! Golden logits of one layer, from every file in `golden/logits`; `scripts/golden_encodings.py`
//! writes them.

use super::support::*;
use posenc::Positions;

/// The size of a nested list in each direction.
fn sizes(value: &serde_json::Value) -> Vec<usize> {
    match value.as_array() {
        None => vec![],
        Some(items) => [vec![items.len()], items.first().map_or(vec![], sizes)].concat(),
    }
}

fn agrees(case: &Case) {
    assert_eq!(case.kind, "logits", "{}", case.name);
    let [heads, tokens, head_dim] = sizes(&case.inputs["q"])[..] else {
        panic!("{}: q is no [H, tokens, head_dim]", case.name);
    };
    let d_model = sizes(&case.inputs["hidden"])[1];
    let named = case.inputs["parameters"].as_object().expect("by path");
    let parameters: Vec<(&str, Vec<f64>)> = named
        .iter()
        .map(|(path, values)| (path.as_str(), numbers(values)))
        .collect();
    let config = config(case.inputs["config"].clone());
    let encoding = build(&config, &shape(d_model, heads, head_dim), &parameters);
    let by_head = |key: &str| tensor(case.list(key), [1, heads, tokens, head_dim]);
    let inputs = Inputs {
        q: by_head("q"),
        k: by_head("k"),
        hidden: Some(tensor(case.list("hidden"), [1, tokens, d_model])),
        all_keys: false,
    };
    let pass = inputs.pass(&encoding, &Positions::same(case.list("positions")));
    let logits = visible(&pass.logits(), tokens);
    close(&case.name, &logits, &case.wanted(), 1e-6);
}

#[test]
fn of_every_file() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/logits");
    let files = std::fs::read_dir(folder).expect("golden files");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a golden file");
        let written = text.matches("\"kind\": \"logits\"").count();
        assert!(written > 0, "{}: no case", path.display());
        for mut case in cases(&text, written) {
            let file = path.file_stem().expect("a name").to_string_lossy();
            case.name = format!("{file}: {}", case.name);
            agrees(&case);
        }
    }
}
