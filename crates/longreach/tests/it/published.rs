//! Published models: their config.json as an encoding, against frequencies of transformers.

use crate::common::{exits, fails, has, longreach, stdout};
use inspect::published::{self, Published};
use posenc::encodings::RopeConfig;
use posenc::{EncodingConfig, Lengths, ModelShape};
use serde_json::{Value, json};
use std::path::Path;

fn golden() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../golden/published.json")).unwrap();
    file["models"].as_array().unwrap().clone()
}

fn size(model: &Published, name: &str) -> usize {
    let found = model.sizes.iter().find(|(key, _)| *key == name);
    found.unwrap().1
}

/// The encoding, resolved and checked for the model's own sizes.
fn encoding(model: &Published, length: usize) -> EncodingConfig {
    let mut encoding: EncodingConfig = serde_json::from_value(model.pe.clone()).unwrap();
    let trained = model.train_len.unwrap_or(length);
    encoding.resolve(&Lengths {
        train_len: trained,
        trained_len: trained,
        test_len: length,
    });
    let [d_model, n_heads, head_dim, n_layers] =
        ["d_model", "n_heads", "head_dim", "n_layers"].map(|name| size(model, name));
    let shape = ModelShape {
        d_model,
        n_heads,
        head_dim,
        n_layers,
    };
    encoding.check(&shape).unwrap();
    encoding
}

/// The rotations in an encoding, with whether a window stands beside them.
fn rotations(encoding: &EncodingConfig, windowed: bool) -> Vec<(RopeConfig, bool)> {
    if let EncodingConfig::Rope(rope) = encoding {
        return vec![(rope.clone(), windowed)];
    }
    let parts = encoding.parts();
    let windowed = parts.iter().any(|part| part.config.kind() == "window");
    let of = |part: &EncodingConfig| rotations(part, windowed);
    parts.iter().flat_map(|part| of(part.config)).collect()
}

#[test]
fn rotations_of_published_models_are_those_of_transformers() {
    let golden = golden();
    assert!(golden.len() >= 25);
    for case in &golden {
        let name = case["name"].as_str().unwrap();
        let model =
            published::read(&case["config"]).unwrap_or_else(|error| panic!("{name} {error}"));
        let length = case["length"].as_u64().unwrap() as usize;
        let encoding = encoding(&model, length);
        let rotations = rotations(&encoding, false);
        let expected = case["expected"].as_object().unwrap();
        assert!(!rotations.is_empty(), "{name}");
        for (rope, windowed) in &rotations {
            let expected = match expected.get("") {
                Some(all) => all,
                None if *windowed => &expected["sliding_attention"],
                None => &expected["full_attention"],
            };
            let found = rope
                .frequencies(size(&model, "head_dim"), length as f64)
                .unwrap();
            let theirs = expected["inv_freq"].as_array().unwrap();
            assert_eq!(found.inv_freq.len(), theirs.len(), "{name}");
            for (i, (ours, theirs)) in found.inv_freq.iter().zip(theirs).enumerate() {
                let theirs = theirs.as_f64().unwrap();
                assert!(
                    (ours / theirs - 1.0).abs() < 2e-6,
                    "{name}, pair {i}: {ours} {theirs}"
                );
            }
            let theirs = expected["attention_factor"].as_f64().unwrap();
            assert!(
                (found.attention_factor / theirs - 1.0).abs() < 1e-12,
                "{name}"
            );
        }
        // Both types of layers are there where the model has two.
        let kinds = expected.len();
        let windows: Vec<bool> = rotations.iter().map(|(_, windowed)| *windowed).collect();
        assert!(
            kinds == 1 || windows.contains(&true) && windows.contains(&false),
            "{name}"
        );
    }
}

#[test]
fn layers_of_published_models_have_the_window_and_the_rotation_that_the_file_says() {
    let golden = golden();
    let of = |name: &str| {
        let case = golden.iter().find(|case| case["name"] == name).unwrap();
        published::read(&case["config"]).unwrap()
    };
    assert_eq!(
        of("google/gemma-3-4b-pt").pe,
        json!({"kind": "by_layer", "parts": [
            {"kind": "stack", "parts": [{"kind": "rope", "base": 10000.0}, {"kind": "window", "size": 1024}]},
            {"kind": "rope", "base": 1e6, "scaling": {"kind": "linear", "factor": 8.0}},
        ], "pattern": by_six()})
    );
    assert_eq!(
        of("HuggingFaceTB/SmolLM3-3B").pe,
        json!({"kind": "by_layer", "parts": [{"kind": "rope", "base": 5e6}, {"kind": "nope"}], "pattern": [0, 0, 0, 1]})
    );
    assert_eq!(
        of("CohereForAI/c4ai-command-r7b-12-2024").pe,
        json!({"kind": "by_layer", "parts": [
            {"kind": "stack", "parts": [{"kind": "rope", "base": 50000.0, "layout": "interleaved"}, {"kind": "window", "size": 4096}]},
            {"kind": "nope"},
        ], "pattern": [0, 0, 0, 1]})
    );
    let deepseek = of("deepseek-ai/DeepSeek-V3");
    assert_eq!(
        (size(&deepseek, "head_dim"), &deepseek.pe["rotary_dim"]),
        (192, &json!(64))
    );
    assert_eq!(deepseek.pe["scaling"]["scale_logits"], true);
    let ministral = of("mistralai/Ministral-3-8B-Base-2512");
    has(&ministral.notes[0], "llama_4_scaling_beta");
    assert_eq!(ministral.train_len, Some(16384));
    has(&of("meta-llama/Llama-2-7b-hf").notes[0], "rope_theta");
}

/// Gemma 4: heads of two sizes.
#[test]
fn qwens_windows_begin_at_a_layer() {
    let model = published::read(&json!({
        "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
        "rope_theta": 1e6, "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 3
    }));
    let rope = json!({"kind": "rope", "base": 1e6});
    let windowed = json!({"kind": "stack", "parts": [rope, {"kind": "window", "size": 16}]});
    let expected = json!({"kind": "by_layer", "parts": [rope, windowed], "pattern": [0, 0, 0, 1]});
    assert_eq!(model.unwrap().pe, expected);
}

#[test]
fn what_an_encoding_cannot_stand_for_is_noted() {
    let file = json!({
        "model_type": "gemma4_text", "hidden_size": 2304, "num_attention_heads": 8,
        "num_hidden_layers": 6, "head_dim": 256, "global_head_dim": 512,
        "max_position_embeddings": 131_072, "sliding_window": 512,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
            "full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {
                "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6
            },
        },
    });
    let model = published::read(&file).unwrap();
    has(&model.notes.join("\n"), "global_head_dim");
    let parts = model.pe["parts"].as_array().unwrap();
    assert_eq!(
        parts[1],
        json!({"kind": "rope", "base": 1e6, "scaling": {"kind": "proportional", "fraction": 0.25}})
    );
}

/// Gemma 3 4B has 34 layers, and every sixth sees everything.
fn by_six() -> Vec<usize> {
    vec![0, 0, 0, 0, 0, 1]
}

#[test]
fn every_recipe_is_what_the_file_of_its_model_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let golden = golden();
    let mut count = 0;
    for block in page.split("```toml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let name = block
            .lines()
            .next()
            .unwrap()
            .strip_prefix("[model.pe] # ")
            .unwrap();
        let case = golden.iter().find(|case| case["name"] == name).unwrap();
        let table: toml::Table = toml::from_str(block).unwrap();
        let mut written = serde_json::to_value(&table["model"]["pe"]).unwrap();
        let mut read = published::read(&case["config"]).unwrap().pe;
        // Whole numbers and others are one in these keys.
        for value in [&mut written, &mut read] {
            as_floats(value);
        }
        assert_eq!(written, read, "{name}");
        count += 1;
    }
    assert!(count >= 15, "{count}");
}

fn as_floats(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(values) => values.iter_mut().for_each(as_floats),
        Value::Object(table) => table.values_mut().for_each(as_floats),
        _ => {}
    }
}

#[test]
fn models_without_a_rotation_and_files_that_are_none() {
    let sizes = json!({"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2});
    let with = |more: Value| {
        let mut config = sizes.clone();
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        published::read(&config)
    };
    for (config, pe) in [
        (json!({"model_type": "bloom"}), json!({"kind": "alibi"})),
        (
            json!({"model_type": "gpt2", "n_positions": 1024}),
            json!({"kind": "learned", "max_position": 1024}),
        ),
        (
            json!({"model_type": "t5"}),
            json!({"kind": "t5", "num_buckets": 32, "max_distance": 128, "scaled": false}),
        ),
        // Of head_dim 16, whose root divides the bias too.
        (
            json!({"model_type": "falcon", "alibi": true}),
            json!({"kind": "alibi", "slope_scale": 0.25}),
        ),
    ] {
        assert_eq!(with(config).unwrap().pe, pe);
    }
    let mpt = json!({"model_type": "mpt", "max_seq_len": 2048, "attn_config": {"alibi": true}});
    let mpt = with(mpt).unwrap();
    assert_eq!(
        (mpt.pe, mpt.train_len),
        (json!({"kind": "alibi"}), Some(2048))
    );
    let bloom = with(json!({"model_type": "bloom", "seq_length": 2048})).unwrap();
    assert_eq!(bloom.train_len, Some(2048));
    let old = with(json!({"model_type": "llama"})).unwrap();
    assert_eq!((old.pe, old.notes.len()), (json!({"kind": "rope"}), 1));
    let unknown = with(json!({"model_type": "roberta"})).unwrap_err();
    has(&unknown, "`roberta`");
    has(&unknown, "d_model=64 n_heads=4");
    let spiral = with(json!({"rope_scaling": {"rope_type": "spiral"}})).unwrap_err();
    has(&spiral, "`spiral`");
    has(&spiral, "allowed: default");
    let no_factor = with(json!({"rope_scaling": {"rope_type": "linear"}})).unwrap_err();
    has(&no_factor, "no `factor`");
    assert!(published::read(&json!([1])).is_err());
    let no_sizes = published::read(&json!({"model_type": "llama"})).unwrap_err();
    has(&no_sizes, "hidden_size");
}

/// transformers' `build_mpt_alibi_tensor`: slopes of the next power of two heads, every second one
/// first.
fn slopes_in_transformers(n_heads: usize, bias_max: f64) -> Vec<f64> {
    let power = n_heads.next_power_of_two();
    let all = (1..=power).map(|h| 1.0 / 2f64.powf(h as f64 * bias_max / power as f64));
    let all: Vec<f64> = all.collect();
    if power == n_heads {
        return all;
    }
    let second = all.iter().skip(1).step_by(2);
    let mixed = second.chain(all.iter().step_by(2));
    mixed.copied().take(n_heads).collect()
}

#[test]
fn mpts_largest_bias_sets_the_slopes() {
    for (n_heads, most) in [(4, 16.0), (12, 6.0), (12, 8.0), (32, 8.0), (40, 4.0)] {
        let model = published::read(&json!({
            "model_type": "mpt", "d_model": 16 * n_heads, "n_heads": n_heads, "n_layers": 2,
            "attn_config": {"alibi": true, "alibi_bias_max": most}
        }));
        let model = model.unwrap();
        let EncodingConfig::Alibi(alibi) = encoding(&model, 64) else {
            panic!("{:?}", model.pe)
        };
        assert_eq!(alibi.slopes.is_none(), most == 8.0);
        let shape = ModelShape {
            d_model: 16 * n_heads,
            n_heads,
            head_dim: 16,
            n_layers: 2,
        };
        let ours = EncodingConfig::from(alibi).slopes(&shape).unwrap();
        let theirs = slopes_in_transformers(n_heads, most);
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!(
                (ours / theirs - 1.0).abs() < 1e-12,
                "{n_heads}: {ours} {theirs}"
            );
        }
    }
}

#[test]
fn a_value_of_another_type_is_not_an_absent_one() {
    for (key, value, kind) in [
        ("rope_theta", json!("x"), "a number above 0"),
        ("rope_theta", json!(0), "a number above 0"),
        ("num_attention_heads", json!(0), "a whole number above 0"),
        ("head_dim", json!(0), "a whole number above 0"),
        ("sliding_window", json!(4.5), "a whole number"),
        ("alibi", json!("true"), "true or false"),
        ("alibi_bias_max", json!(0), "a number above 0"),
        ("rope_scaling", json!([4]), "a table"),
    ] {
        let mut config =
            json!({"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2});
        config[key] = value.clone();
        let problem = format!("has `{key}` = {value}, which is not {kind}");
        assert_eq!(published::read(&config), Err(problem));
        config[key] = Value::Null;
        for table in ["rope_scaling", "rope_parameters"] {
            config[table] = json!({"full_attention": {"factor": "4"}, "rope_type": "linear"});
            let error = published::read(&config).unwrap_err();
            has(&error, "has `factor` = \"4\"");
        }
    }
}

/// What is read as another encoding would be wrong without a word.
#[test]
fn distances_of_bert_and_scalings_without_a_factor_are_refused() {
    let sizes = json!({"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
                       "max_position_embeddings": 512});
    let error = |more: Value| {
        let mut config = sizes.clone();
        let more = more.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(more);
        published::read(&config).unwrap_err()
    };
    for kind in ["relative_key", "relative_key_query"] {
        let found = error(json!({"model_type": "bert", "position_embedding_type": kind}));
        has(&found, &format!("position_embedding_type `{kind}`"));
    }
    for kind in ["linear", "dynamic", "yarn"] {
        let found = error(json!({"model_type": "llama", "rope_scaling": {"type": kind}}));
        assert!(found.contains("has no `factor`"), "{kind}: {found}");
    }
}

#[test]
fn inspect_reads_the_file_of_a_model() {
    let directory = tempfile::tempdir().unwrap();
    let run = |text: &str, more: &[&str]| {
        std::fs::write(directory.path().join("config.json"), text).unwrap();
        let mut program = longreach();
        program.current_dir(directory.path());
        program
            .args(["inspect", "--model-config", "config.json"])
            .args(more);
        program.output().unwrap()
    };
    // Every part of the list; the programs take a second each.
    for case in golden().into_iter().step_by(5) {
        let output = run(&case["config"].to_string(), &["--json"]);
        exits(&output, 0);
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            shown["model"]["d_model"], case["config"]["hidden_size"],
            "{}",
            case["name"]
        );
    }
    let llama = golden()
        .into_iter()
        .find(|case| case["name"] == "meta-llama/Llama-3.1-8B");
    let llama = llama.unwrap()["config"].to_string();
    let output = run(&llama, &["--positions", "0,1"]);
    exits(&output, 0);
    assert!(
        stdout(&output).starts_with("pe = { kind = \"rope\", base = 500000.0, scaling = {"),
        "{}",
        stdout(&output)
    );
    for (text, part) in [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ("{}", "hidden_size"),
    ] {
        fails(&run(text, &[]), 2, part);
    }
    exits(&run(&llama, &["rope"]), 2);
}

/// The page on claims: its examples are read, and it has every kind.
#[test]
fn the_page_on_claims_is_true() {
    let page = include_str!("../../../../docs/claims.md");
    let parts = page.split("```toml\n").skip(1);
    let examples: Vec<&str> = parts
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let claims: records::claims::Claims = toml::from_str(example).unwrap();
        assert_eq!(claims.check(), Ok(()));
    }
    let wrong = json!({ "metric": "m", "kind": "worse", "methods": ["a"], "lengths": [1] });
    let error = serde_json::from_value::<records::claims::Claim>(wrong)
        .unwrap_err()
        .to_string();
    let kinds = error.split("expected one of ").nth(1).unwrap();
    for kind in kinds.split(", ") {
        let kind = kind.trim_end_matches(|c| c != '`');
        assert!(
            page.contains(&format!("| {kind}")) || page.contains(&format!(", {kind} |")),
            "{kind}"
        );
    }
}
