//! A tokenizer as the `tokenizer.json` of Hugging Face's tokenizers.

use super::bpe::{Bpe, PATTERN};
use serde_json::{Map, Value, json};

/// The file as JSON.
pub(super) fn tokenizer_json(bpe: &Bpe) -> Value {
    let names: Vec<String> = bpe.tokens().iter().map(|token| name(token)).collect();
    let ids = (0..).map(|id: u32| Value::from(id));
    let vocab: Map<String, Value> = names.iter().cloned().zip(ids).collect();
    let merges: Vec<String> = bpe
        .merges
        .iter()
        .map(|(left, right)| format!("{} {}", names[*left as usize], names[*right as usize]))
        .collect();
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            {
                "type": "Split", "pattern": { "Regex": PATTERN },
                "behavior": "Isolated", "invert": false,
            },
            bytes.clone(),
        ] },
        "post_processor": null,
        "decoder": bytes,
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

/// Bytes as characters that can be seen, as GPT-2 writes them: those that cannot, in their order,
/// are the characters from U+0100 on.
fn name(token: &[u8]) -> String {
    let is_seen = |byte: &u8| matches!(*byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    let of = |byte: u8| match is_seen(&byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|byte| !is_seen(byte)).count();
            char::from_u32(256 + before as u32).unwrap_or_default()
        }
    };
    token.iter().map(|byte| of(*byte)).collect()
}
