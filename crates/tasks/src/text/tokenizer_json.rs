//! Reads and writes the `tokenizer.json` of Hugging Face's tokenizers; reads byte-level BPE only,
//! such as that of GPT-2, Llama 3 and Qwen.

use super::bpe::words::{ASCII, GPT_2, Pattern, Words};
use super::bpe::{Bpe, Merge, WordKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The file as JSON.
pub(super) fn tokenizer_json(bpe: &Bpe, words: WordKind) -> Value {
    let names: Vec<String> = bpe.tokens.iter().map(|token| name(token)).collect();
    let ids = (0..).map(|id: u32| Value::from(id));
    let vocab: Map<String, Value> = names.iter().cloned().zip(ids).collect();
    let merges: Vec<String> = bpe
        .merges
        .iter()
        .map(|((left, right), _)| format!("{} {}", names[*left as usize], names[*right as usize]))
        .collect();
    let bytes = |use_regex: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": use_regex,
        })
    };
    let pre_tokenizer = match words {
        WordKind::Unicode => bytes(true),
        WordKind::Ascii => json!({ "type": "Sequence", "pretokenizers": [
            {
                "type": "Split", "pattern": { "Regex": ASCII },
                "behavior": "Isolated", "invert": false,
            },
            bytes(false),
        ] }),
    };
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": bytes(false),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocab,
            "merges": merges,
        },
    })
}

/// What is read of a file; the rest says nothing of how text becomes tokens.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<Step>,
    pre_tokenizer: Option<Step>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

/// A step before the model.
#[derive(Deserialize)]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    pretokenizers: Vec<Step>,
    pattern: Option<HashMap<String, String>>,
    behavior: Option<String>,
    #[serde(default)]
    invert: bool,
    #[serde(default)]
    add_prefix_space: bool,
    use_regex: Option<bool>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    ignore_merges: bool,
    vocab: Value,
    merges: Option<Vec<Pair>>,
}

/// A merge, as newer and as older files write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Two([String; 2]),
    One(String),
}

impl Pair {
    fn names(&self) -> Option<(&str, &str)> {
        match self {
            Self::Two([left, right]) => Some((left, right)),
            Self::One(both) => both.split_once(' '),
        }
    }
}

/// The tokenizer of a file, or what of it is not supported.
pub(super) fn read(json: &[u8]) -> Result<Bpe, String> {
    let file: File = serde_json::from_slice(json)
        .map_err(|error| format!("is not a tokenizer.json: {error}"))?;
    let model = file.model;
    if model.kind.as_deref() != Some("BPE") {
        let kind = model.kind.as_deref().unwrap_or("none");
        return Err(format!("has the model `{kind}`, and only BPE is read"));
    }
    let is_plain = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let has = match () {
        () if model.dropout.is_some_and(|share| share > 0.0) => Some("dropout".to_owned()),
        () if !is_plain(&model.continuing_subword_prefix) => {
            Some("a `continuing_subword_prefix`".to_owned())
        }
        () if !is_plain(&model.end_of_word_suffix) => Some("an `end_of_word_suffix`".to_owned()),
        () => file
            .normalizer
            .map(|step| format!("the normalizer `{}`", step.kind)),
    };
    if let Some(has) = has {
        return Err(format!("has {has}: not supported"));
    }
    let words = words(file.pre_tokenizer)?;
    let vocab: HashMap<String, u32> = serde_json::from_value(model.vocab)
        .map_err(|error| format!("has an unsupported vocabulary: {error}"))?;
    let added = file.added_tokens.iter();
    let named = vocab.iter().map(|(name, id)| (*id, bytes(name)));
    let texts = added.map(|token| (token.id, token.content.clone().into_bytes()));
    let named: Vec<(u32, Vec<u8>)> = named.chain(texts).collect();
    let most = named.iter().map(|(id, _)| *id).max().unwrap_or(0);
    if most >= 1 << 24 {
        return Err(format!("has the id {most}, more than 16777215"));
    }
    let mut tokens = vec![Vec::new(); most as usize + 1];
    for (id, bytes) in named {
        tokens[id as usize] = bytes;
    }
    let id = |name: &str| vocab.get(name).copied();
    let merge = |pair: &Pair| {
        let (left, right) = pair.names()?;
        Some(((id(left)?, id(right)?), id(&format!("{left}{right}"))?))
    };
    let merges = model.merges.ok_or("has no `merges`")?;
    let merges: Option<Vec<_>> = merges.iter().map(merge).collect();
    let merges = merges.ok_or("has a merge whose tokens are not in its vocabulary")?;
    let size = |id: u32| tokens[id as usize].len();
    let is_whole = |((left, right), token): &Merge| {
        size(*left) > 0 && size(*right) > 0 && size(*left) + size(*right) == size(*token)
    };
    if !merges.iter().all(is_whole) {
        return Err("has a merge that does not make the token it names".to_owned());
    }
    let added = file
        .added_tokens
        .into_iter()
        .filter(|token| !token.content.is_empty());
    let added = added.map(|token| (token.content, token.id)).collect();
    Bpe::of(words, tokens, merges, (model.ignore_merges, added)).map_err(|byte| {
        format!("has no token for the byte {byte}: it is not a tokenizer of bytes (`ByteLevel`)")
    })
}

/// How a text is split into words.
fn words(step: Option<Step>) -> Result<Words, String> {
    let step =
        step.ok_or("has no `pre_tokenizer`, and only byte-level BPE (`ByteLevel`) is read")?;
    let steps = match &*step.kind {
        "Sequence" => step.pretokenizers,
        _ => vec![step],
    };
    let (mut patterns, mut is_on_bytes) = (Vec::new(), false);
    for step in steps {
        let pattern = match (&*step.kind, step.pattern.unwrap_or_default()) {
            ("ByteLevel", _) if step.add_prefix_space => {
                return Err(
                    "puts a space before the text (`add_prefix_space`): not supported".to_owned(),
                );
            }
            ("ByteLevel", _) => {
                is_on_bytes = true;
                step.use_regex.unwrap_or(true).then(|| GPT_2.to_owned())
            }
            ("Split", mut pattern)
                if !step.invert && step.behavior.as_deref() == Some("Isolated") =>
            {
                Some(
                    pattern
                        .remove("Regex")
                        .ok_or("splits by a pattern that is not a `Regex`")?,
                )
            }
            (kind, _) => {
                return Err(format!(
                    "has the pre-tokenizer `{kind}` in a form that is not supported"
                ));
            }
        };
        if pattern.as_deref() == Some(ASCII) {
            return Ok(Words::Ascii);
        }
        let compiled = pattern.map(|pattern| {
            Pattern::new(&pattern).map_err(|why| format!("splits by an unsupported pattern: {why}"))
        });
        patterns.extend(compiled.transpose()?);
    }
    match is_on_bytes {
        true => Ok(Words::Patterns(patterns)),
        false => Err("has no step `ByteLevel`, and only byte-level BPE is read".to_owned()),
    }
}

/// Whether a byte is its own name.
fn is_seen(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..)
}

/// The bytes in the order of GPT-2's tokens.
pub(super) fn alphabet() -> Vec<u8> {
    let (mut seen, hidden): (Vec<u8>, Vec<u8>) = (0..=255u8).partition(|byte| is_seen(*byte));
    seen.extend(hidden);
    seen
}

/// Bytes as characters that can be seen, as GPT-2 writes them: those that cannot, in their order,
/// are the characters from U+0100 on.
fn name(token: &[u8]) -> String {
    let of = |byte: u8| match is_seen(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|byte| !is_seen(*byte)).count();
            char::from_u32(256 + before as u32).unwrap_or_default()
        }
    };
    token.iter().map(|byte| of(*byte)).collect()
}

/// The bytes that a name stands for; a name of other characters stands for itself.
fn bytes(name: &str) -> Vec<u8> {
    let hidden: Vec<u8> = (0..=255u8).filter(|byte| !is_seen(*byte)).collect();
    let of = |c: char| match u8::try_from(c) {
        Ok(byte) => is_seen(byte).then_some(byte),
        Err(_) => hidden.get((c as usize).checked_sub(256)?).copied(),
    };
    let bytes: Option<Vec<u8>> = name.chars().map(of).collect();
    bytes.unwrap_or_else(|| name.as_bytes().to_vec())
}
