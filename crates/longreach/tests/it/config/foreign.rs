//! Words of other programs are answered with what stands for them here, and that is accepted.

use crate::common::{has, lacks};
use config::diagnostic::{FOREIGN_KEYS, FOREIGN_KINDS, Of};
use experiment::plan;
use experiment::plan::keys::KEYS;
use posenc::{EncodingConfig, Lengths, ModelShape, RopeScaling};
use serde_json::json;
use tasks::TaskConfig;

const BASE: &str = r#"
name = "x"
task = { kind = "copy" }
model = { d_model = 16, n_layers = 2, n_heads = 2, pe = { kind = "rope" } }
train = { train_len = 8, steps = 2000 }
eval = { test_lens = [8, 16] }
"#;

/// The error of a config with one key set, if there is one.
fn refused(argument: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    std::fs::write(&path, BASE).unwrap();
    let error = plan(&path, &[argument.to_owned()]).err()?;
    Some(error.to_string())
}

/// An argument that sets a key of an encoding.
fn encoding_with(key: &str) -> &'static str {
    match key {
        "model.pe" | "model.pe.kind" => "model.pe={kind='alibi'}",
        "model.pe.base" => "model.pe={kind='rope',base=500000}",
        "model.pe.rotary_dim" => "model.pe={kind='rope',rotary_dim=4}",
        "model.pe.layout" => "model.pe={kind='rope',layout='interleaved'}",
        "model.pe.scaling" | "model.pe.scaling.kind" | "model.pe.scaling.factor" => {
            "model.pe={kind='rope',scaling={kind='yarn',factor=4}}"
        }
        "model.pe.scaling.original_max_position_embeddings" => {
            "model.pe={kind='rope',scaling={kind='yarn',original_max_position_embeddings=8}}"
        }
        "model.pe.scaling.beta_fast" => "model.pe={kind='rope',scaling={kind='yarn',beta_fast=9}}",
        "model.pe.scaling.beta_slow" => "model.pe={kind='rope',scaling={kind='yarn',beta_slow=2}}",
        "model.pe.scaling.attention_factor" => {
            "model.pe={kind='rope',scaling={kind='yarn',attention_factor=1.2}}"
        }
        "model.pe.group" => "model.pe={kind='self_extend',group=4,window=4}",
        "model.pe.num_buckets" => "model.pe={kind='t5',num_buckets=8}",
        "model.pe.max_distance" => "model.pe={kind='t5',max_distance=64}",
        "model.pe.slopes" => "model.pe={kind='alibi',slopes=[0.5,0.25]}",
        other => panic!("no example of {other}"),
    }
}

#[test]
fn every_key_of_another_program_is_answered_with_one_that_is_accepted() {
    for foreign in FOREIGN_KEYS {
        let (word, key) = (foreign.word, foreign.key);
        // These stand in tables of their own: `axes`, `kind` and `add`.
        if !key.is_empty() && !key.contains('.') {
            assert!(foreign.same, "{word}");
            continue;
        }
        let table = key.rsplit_once('.').map_or("model", |(table, _)| table);
        let asked = match table {
            "model.pe.scaling" => {
                format!("model.pe={{kind='rope',scaling={{kind='yarn',{word}=1}}}}")
            }
            "model.pe" => format!("model.pe={{kind='rope',{word}=1}}"),
            table => format!("{table}.{word}=1"),
        };
        let said = refused(&asked).unwrap_or_else(|| panic!("{asked} is accepted"));
        let help = said
            .split("help: ")
            .nth(1)
            .unwrap_or_else(|| panic!("{said}"));
        if key.is_empty() {
            let begins = format!("`{word}` has no key here: {}", foreign.means);
            assert!(help.starts_with(&begins), "{said}");
            continue;
        }
        let last = key.rsplit('.').next().unwrap();
        let named = [
            format!("`{word}` is `{last}` here"),
            format!("`{word}` is `{key}` here"),
        ];
        assert!(named.iter().any(|named| help.starts_with(named)), "{said}");
        assert!(help.contains(foreign.means), "{said}");
        let accepted = match KEYS.iter().find(|known| known.path == key) {
            _ if key.starts_with("model.pe") => encoding_with(key).to_owned(),
            Some(_) if key == "model.n_heads" => "model.n_heads=4".to_owned(),
            Some(known) => format!("{key}={}", known.example),
            None => panic!("{key} is not a key"),
        };
        assert_eq!(refused(&accepted), None, "{word}: {accepted}");
        // A key that means something else is never one of the words.
        assert!(
            !KEYS
                .iter()
                .any(|known| known.path.rsplit('.').next() == Some(word)),
            "{word}"
        );
    }
}

#[test]
fn every_kind_of_another_program_is_answered_with_one_there_is() {
    for foreign in FOREIGN_KINDS {
        let (word, kind) = (foreign.word, foreign.kind);
        let (asked, kinds) = match foreign.of {
            Of::Encoding => (format!("model.pe={{kind='{word}'}}"), EncodingConfig::KINDS),
            Of::Scaling => {
                let asked = format!("model.pe={{kind='rope',scaling={{kind='{word}'}}}}");
                (asked, RopeScaling::KINDS)
            }
            Of::Task => (format!("task={{kind='{word}'}}"), TaskConfig::KINDS),
        };
        let said = refused(&asked).unwrap_or_else(|| panic!("{asked} is accepted"));
        let help = match kind {
            "" => format!("help: `{word}` is {}", foreign.means),
            kind => format!("help: `{word}` is `{kind}` here"),
        };
        has(&said, &help);
        if !foreign.means.is_empty() {
            has(&said, foreign.means);
        }
        assert!(kind.is_empty() || kinds.contains(&kind), "{kind}");
    }
    let said = refused("model.pe={kind='dynamic'}").unwrap();
    let part = "{ kind = \"rope\", scaling = { kind = \"dynamic_ntk\" } }";
    has(&said, part);
    let said = refused("model.pe={kind='rope',scaling={type='yarn'}}").unwrap();
    has(&said, "is `type` meant to be `kind`?");
}

const SHAPE: ModelShape = ModelShape {
    d_model: 64,
    n_heads: 8,
    head_dim: 8,
    n_layers: 1,
};

fn encoding(table: serde_json::Value) -> EncodingConfig {
    let mut encoding: EncodingConfig = serde_json::from_value(table).unwrap();
    encoding.resolve(&Lengths {
        train_len: 64,
        trained_len: 64,
        test_len: 256,
    });
    encoding.check(&SHAPE).unwrap();
    encoding
}

fn frequencies(scaling: serde_json::Value) -> (Vec<f64>, f64) {
    let rope = encoding(json!({"kind": "rope", "scaling": scaling}));
    let frequencies = rope.rotary(&SHAPE).unwrap().frequencies(256.0).unwrap();
    (frequencies.inv_freq, frequencies.attention_factor)
}

#[test]
fn the_conversions_in_the_answers_give_the_numbers_of_the_other_programs() {
    let close = |ours: &[f64], theirs: &[f64]| {
        assert_eq!(ours.len(), theirs.len());
        let mut pairs = ours.iter().zip(theirs);
        assert!(
            pairs.all(|(a, b)| (a / b - 1.0).abs() < 1e-12),
            "{ours:?} {theirs:?}"
        );
    };
    // vLLM, llama.cpp: mscale = attn_factor (0.1 ln s + 1).
    let (_, default) = frequencies(json!({"kind": "yarn", "factor": 4.0}));
    let attention_factor = 0.8 * (0.1 * 4f64.ln() + 1.0);
    let given = json!({"kind": "yarn", "factor": 4.0, "attention_factor": attention_factor});
    close(&[frequencies(given).1], &[0.8 * default]);
    // llama.cpp: freq_scale multiplies the angles.
    let plain: Vec<f64> = (0..4)
        .map(|i| 1e4f64.powf(-2.0 * f64::from(i) / 8.0))
        .collect();
    let linear = frequencies(json!({"kind": "linear", "factor": 1.0 / 0.25})).0;
    close(
        &linear,
        &plain.iter().map(|theta| theta * 0.25).collect::<Vec<_>>(),
    );
    // x-transformers: base *= rescale ** (dim / (dim - 2)).
    let base = 1e4 * 4f64.powf(8.0 / 6.0);
    let theirs: Vec<f64> = (0..4)
        .map(|i| base.powf(-2.0 * f64::from(i) / 8.0))
        .collect();
    close(
        &frequencies(json!({"kind": "ntk", "factor": 4.0})).0,
        &theirs,
    );
    // MPT: 2^(-alibi_bias_max h / H); 8 is the paper's.
    let mpt = |most: f64| {
        (1..=8)
            .map(|h| 2f64.powf(-most * f64::from(h) / 8.0))
            .collect::<Vec<_>>()
    };
    let given = encoding(json!({"kind": "alibi", "slopes": mpt(16.0)}));
    close(&given.slopes(&SHAPE).unwrap(), &mpt(16.0));
    close(
        &encoding(json!({"kind": "alibi"})).slopes(&SHAPE).unwrap(),
        &mpt(8.0),
    );
}

/// The notes of a config with these keys set.
fn notes(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    std::fs::write(&path, BASE).unwrap();
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    plan(&path, &arguments).unwrap().notes.join("\n")
}

#[test]
fn a_shortest_length_that_nothing_draws_from_is_noted() {
    let shortest = "train.min_len=2";
    let said = notes(&["train.length='fixed'", shortest]);
    let part = "train.min_len = 2 has no effect with train.length = \"fixed\"";
    has(&said, part);
    lacks(&notes(&["train.length='uniform'", shortest]), "no effect");
}

#[test]
fn positions_that_an_encoding_cannot_see_are_noted() {
    let grid = "positions={kind='grid',sizes=[4]}";
    let randomized = "positions={kind='randomized'}";
    let offset = "positions={kind='random_offset'}";
    for (pe, positions, are_seen) in [
        ("nope", randomized, false),
        ("rope", randomized, true),
        ("rope", offset, false),
        ("sinusoidal", offset, true),
        ("rope", grid, false),
        ("axial_rope", grid, true),
    ] {
        let pe = format!("model.pe={{kind='{pe}'}}");
        let trained = notes(&[&pe, &format!("model.{positions}")]);
        let note = "no encoding here sees model.positions of kind `";
        assert_eq!(
            trained.contains(note),
            !are_seen,
            "{pe} {positions}: {trained}"
        );
        let variants = format!("eval.variants=[{{name='v',{positions}}}]");
        let note = "variant `v` changes nothing that its encoding sees of positions";
        let tested = notes(&[&pe, &variants]);
        assert_eq!(
            tested.contains(note),
            !are_seen,
            "{pe} {positions}: {tested}"
        );
    }
}

#[test]
fn positions_that_some_runs_see_are_noted_by_value() {
    let all = "axes.\"model.positions\"=[{kind='contiguous'},{kind='random_offset'},\
               {kind='randomized'},{kind='grid',sizes=[4]}]";
    let said = notes(&["model.pe={kind='rope'}", all]);
    for (kind, is_noted) in [
        ("random_offset", true),
        ("grid", true),
        ("randomized", false),
    ] {
        let note = format!("no encoding here sees model.positions of kind `{kind}`");
        assert_eq!(said.contains(&note), is_noted, "{said}");
    }
}

#[test]
fn factors_on_logits_are_noted_in_linear_attention() {
    let yarn = "eval.variants=[{name='y',set={scaling={kind='yarn'}}}]";
    let linear = "model.attention='linear'";
    for (pe, normalizer, variants, effect) in [
        (
            "log_scaling",
            "rotated",
            "eval.variants=[]",
            "a factor on all dimensions cancels",
        ),
        ("rope", "unrotated", yarn, "it scales the output"),
        (
            "rope",
            "cosine",
            yarn,
            "it scales the cosine in the weights",
        ),
    ] {
        let pe = format!("model.pe={{kind='{pe}'}}");
        let normalizer = format!("model.normalizer='{normalizer}'");
        has(&notes(&[&pe, linear, &normalizer, variants]), effect);
        lacks(&notes(&[&pe, variants]), "linear attention");
        lacks(&notes(&[linear, &normalizer]), "linear attention");
    }
}

#[test]
fn a_factor_that_deepseek_has_and_a_table_that_ends_are_noted() {
    let block = |more: &str| {
        format!(
            "model.pe={{kind='rope',scaling={{kind='yarn',factor=40,original_max_position_embeddings\
             =4096,mscale=1,mscale_all_dim=1{more}}}}}"
        )
    };
    let said = notes(&[&block("")]);
    has(&said, "here by up to 1.8739");
    assert_eq!(notes(&[&block(",scale_logits=true")]), "");
    let interpolated = "eval.variants=[{name='i',positions={kind='interpolated'}}]";
    let said = notes(&["model.pe={kind='learned'}", interpolated]);
    has(&said, "variant `i`");
    has(&said, "interpolate = true");
    lacks(&notes(&["model.pe={kind='learned'}"]), "interpolate");
}
