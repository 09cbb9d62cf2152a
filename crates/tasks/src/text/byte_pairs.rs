//! Text by tokens of a byte-pair encoding.

use super::bpe::{Bpe, WordKind};
use super::config::TextConfig;
use super::level::Level;
use super::windows::Plan;
use super::{Tokens, chars, check_tokens, corpus, parts, sources, tokenizer_json};
use crate::{BuildContext, Task, TaskError};
use schema::Invalid;

/// Places in a training split of byte pairs are numbers of 32 bits.
const MOST_BYTES: usize = 1 << 31;

/// Most bytes of a tokenizer.json; the largest that are published have some 30 MB.
const MOST_TOKENIZER: u64 = 256 << 20;

/// The task by tokens of a byte-pair encoding, which is trained here or read from a file.
pub(super) fn task(
    config: &TextConfig,
    mut corpus: corpus::Corpus,
    ctx: &BuildContext<'_>,
    plan: &dyn Fn(usize, &str) -> Result<Plan, TaskError>,
) -> Result<Box<dyn Task>, TaskError> {
    let is_any = config.level == Level::Bpe && config.words == WordKind::Ascii;
    let mut splits = [&*corpus.train.bytes, &*corpus.valid.bytes];
    if !is_any {
        splits = chars::texts(&corpus.train, &corpus.valid, &corpus.first, corpus.cuts)?;
    }
    let (bpe, note) = match (config.vocab, &config.tokenizer) {
        (Some(vocab), _) => trained(config, splits[0], vocab)?,
        (None, named) => {
            let named = named.as_deref().unwrap_or_default();
            let (bpe, hash) = read(named, ctx)?;
            let facts = &mut corpus.facts;
            let mut hasher = blake3::Hasher::new();
            hasher.update(b"longreach tokenized text v1");
            hasher
                .update(facts.blake3.as_bytes())
                .update(hash.as_bytes());
            facts.blake3 = hasher.finalize().to_hex().to_string();
            (bpe, "tokens are those of a tokenizer.json".to_owned())
        }
    };
    let [train, valid] = splits.map(|text| bpe.encode(text));
    check_tokens(&corpus, "tokens", [train.len(), valid.len()], ctx)?;
    let plan = plan(valid.len(), "tokens")?;
    let names = &bpe.tokens;
    let scored = &valid[plan.scored()];
    let bytes: usize = scored.iter().map(|id| names[*id as usize].len()).sum();
    let tokens = Tokens {
        unit: "tokens",
        one: "token",
        vocab_size: names.len(),
        bytes_per_token: Some(bytes as f64 / scored.len() as f64),
        is_counted: true,
        note: Some(note),
        bpe: None,
    };
    let names = names.clone();
    let text = |id: usize| names[id].clone();
    let tokens = Tokens {
        bpe: (config.level == Level::Bpe).then_some((bpe, config.words)),
        ..tokens
    };
    config.task([train, valid], plan, corpus.facts, tokens, (ctx, &text))
}

/// A byte-pair encoding of a training split, and what to say of it.
fn trained(config: &TextConfig, text: &[u8], vocab: usize) -> Result<(Bpe, String), TaskError> {
    if text.len() > MOST_BYTES {
        let problem = format!("makes a training split of {} bytes", text.len());
        let (allowed, hint) = ("at most 2 GiB for byte pairs", "name fewer files");
        return Err(Invalid::new("files", "", problem, allowed, hint).into());
    }
    let bpe = Bpe::train(text, config.words, vocab)
        .map_err(|why| Invalid::new("words", "", why, "", "remove it"))?;
    let most = bpe.tokens.len();
    if most < vocab {
        let problem = "is more than the training split gives: no other pair of tokens occurs twice";
        let allowed = match most {
            256 => "none for this text".to_owned(),
            most => schema::allowed(&(257..=most)),
        };
        let hint = "lower it, or add files";
        return Err(Invalid::new("vocab", vocab, problem, allowed, hint).into());
    }
    let note = format!(
        "tokens are those of a byte-pair encoding of {vocab} tokens that was trained on the \
         training split"
    );
    Ok((bpe, note))
}

/// A tokenizer that a configuration names, and the hash of its file.
fn read(named: &str, ctx: &BuildContext<'_>) -> Result<(Bpe, blake3::Hash), TaskError> {
    let found = sources::find(&[named.to_owned()], "tokenizer", &ctx.config_dir)?;
    let mut json = Vec::new();
    parts::Reader::new(&found, MOST_TOKENIZER)?.read(&found[0], &mut json)?;
    let bpe = tokenizer_json::read(&json).map_err(|problem| {
        let hint = "name another, or write the text as ids with its own library and read them with \
                    level = \"u32\"";
        TaskError::input(&found[0].path, problem, hint)
    })?;
    Ok((bpe, blake3::hash(&json)))
}
