//! Against slow and obvious versions.

use super::words::{Pattern, Words};
use super::*;
use crate::text::tokenizer_json::{read, tokenizer_json};
use std::collections::{BTreeMap, BTreeSet};

fn split<'a>(words: &Words, text: &'a [u8]) -> Vec<&'a [u8]> {
    let mut found = Vec::new();
    words.each(text, |word| found.push(word));
    found
}

/// A word with a pair replaced by a token, from the left.
fn replace(tokens: &[u32], (left, right): (u32, u32), token: u32) -> Vec<u32> {
    let mut merged = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let is_pair = tokens[at] == left && tokens.get(at + 1) == Some(&right);
        merged.push(if is_pair { token } else { tokens[at] });
        at += if is_pair { 2 } else { 1 };
    }
    merged
}

/// Texts of every shape: words, white space at every place, bytes that are not UTF-8.
fn texts() -> Vec<Vec<u8>> {
    let signs: &[u8] = b"ab e\n  0\t1,.\xc3\xa9\xff\r";
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut texts: Vec<Vec<u8>> = vec![
        Vec::new(),
        b" ".to_vec(),
        b"  ".to_vec(),
        b"aaaaa aaaa aaa".to_vec(),
        b"the cat sat on the mat; the cat sat.\n\n  let x = 100;\n".repeat(3),
    ];
    for _ in 0..200 {
        let count = next(60);
        texts.push((0..count).map(|_| signs[next(signs.len())]).collect());
    }
    texts
}

/// The alternatives of the pattern one by one, each as long as it can be.
fn slow_words(text: &[u8]) -> Vec<Vec<u8>> {
    let space = |byte: u8| [b' ', b'\t', b'\n', 0x0b, 0x0c, b'\r'].contains(&byte);
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte >= 0x80;
    let kinds: [&dyn Fn(u8) -> bool; 3] =
        [&letter, &|byte: u8| byte.is_ascii_digit(), &|byte: u8| {
            !space(byte) && !letter(byte) && !byte.is_ascii_digit()
        }];
    let (mut words, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let with_space = kinds.iter().find_map(|kind| {
            let from = at + usize::from(text[at] == b' ');
            let length = text[from..].iter().take_while(|byte| kind(**byte)).count();
            (length > 0).then_some(from + length)
        });
        let spaces = text[at..].iter().take_while(|byte| space(**byte)).count();
        // The longest that no other sign follows.
        let ends = (1..=spaces).rev().map(|length| at + length);
        let free = |end: &usize| text.get(*end).is_none_or(|byte| space(*byte));
        let end = with_space
            .or_else(|| ends.clone().find(free))
            .unwrap_or(at + spaces);
        words.push(text[at..end].to_vec());
        at = end;
    }
    words
}

/// Every pair counted anew for every merge, except for pairs that were merged already: those count
/// what they did then, as in the tokenizers library, and what is new.
fn slow_merges(text: &[u8], vocab: usize) -> Vec<Merge> {
    let mut words: Vec<Vec<u32>> = slow_words(text)
        .iter()
        .map(|word| word.iter().map(|byte| u32::from(*byte)).collect())
        .collect();
    let mut merges: Vec<Merge> = Vec::new();
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let count = |words: &[Vec<u32>]| {
        let mut counts: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for pair in words.iter().flat_map(|word| word.windows(2)) {
            *counts.entry((pair[0], pair[1])).or_default() += 1;
        }
        counts
    };
    // Pairs that were merged, with what they counted then.
    let mut merged: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    while tokens.len() < vocab {
        let counts = count(&words);
        let total = |pair: &(u32, u32)| counts[pair] + merged.get(pair).copied().unwrap_or(0);
        let most = counts.keys().map(total).max().unwrap_or(0);
        // The first of the most frequent: pairs are in order.
        let Some(pair) = counts.keys().find(|pair| total(pair) == most && most >= 2) else {
            break;
        };
        let joined = [&*tokens[pair.0 as usize], &*tokens[pair.1 as usize]].concat();
        let known = tokens.iter().position(|token| *token == joined);
        let token = known.unwrap_or(tokens.len()) as u32;
        if known.is_none() {
            tokens.push(joined);
        }
        words = words
            .iter()
            .map(|word| replace(word, *pair, token))
            .collect();
        merged.insert(*pair, most);
        merges.retain(|(earlier, _)| earlier != pair);
        merges.push((*pair, token));
    }
    merges
}

#[test]
fn words_are_those_of_the_pattern() {
    for text in texts() {
        let found: Vec<Vec<u8>> = split(&Words::Ascii, &text)
            .into_iter()
            .map(<[u8]>::to_vec)
            .collect();
        assert_eq!(found, slow_words(&text), "{text:?}");
        assert_eq!(found.concat(), text);
    }
    let found = split(&Words::Ascii, b"let  x1 = 10;\n\tif a");
    let expected: [&[u8]; 11] = [
        b"let", b" ", b" x", b"1", b" =", b" 10", b";", b"\n", b"\t", b"if", b" a",
    ];
    assert_eq!(found, expected);
}

#[test]
fn merges_are_those_of_counting_everything_anew() {
    let all = texts().concat();
    for text in texts().iter().chain([&all]) {
        for vocab in [256, 257, 300, 400] {
            assert_eq!(
                train(text, vocab).merges,
                slow_merges(text, vocab),
                "{text:?}"
            );
        }
    }
}

#[test]
fn a_text_is_encoded_by_one_merge_after_the_other() {
    let all = texts().concat();
    let bpe = train(&all, 330);
    assert_eq!(bpe.tokens.len(), 330);
    let names = &bpe.tokens;
    for text in texts().iter().chain([&all]) {
        let mut expected = Vec::new();
        for word in slow_words(text) {
            let mut tokens: Vec<u32> = word.iter().map(|byte| u32::from(*byte)).collect();
            for (pair, token) in &bpe.merges {
                tokens = replace(&tokens, *pair, *token);
            }
            expected.extend(tokens.iter().map(|token| *token as i32));
        }
        let tokens = bpe.encode(text);
        assert_eq!(tokens, expected, "{text:?}");
        let bytes: Vec<&[u8]> = tokens
            .iter()
            .map(|token| &*names[*token as usize])
            .collect();
        assert_eq!(bytes.concat(), *text, "nothing is lost");
    }
}

fn train(text: &[u8], vocab: usize) -> Bpe {
    Bpe::train(text, WordKind::Ascii, vocab).expect("words of ASCII")
}

#[test]
fn words_of_any_length_are_counted_in_time_that_grows_with_it() {
    let long = b"ab".repeat(1 << 20);
    let bpe = train(&long, 270);
    // ab, abab, ...: each is as long as two of the one before.
    assert_eq!(bpe.tokens[269].len(), 2 << 13);
    let tokens = bpe.encode(&long);
    assert_eq!((tokens.len(), &tokens[..2]), (1 << 7, &[269, 269][..]));
}

#[test]
fn long_words_teach_nothing_where_the_others_are_enough() {
    let mut text = b"the cat sat on the mat; ".repeat(9);
    let expected = train(&text, 262).merges;
    text.extend(b"zq".repeat(600));
    assert_eq!(train(&text, 262).merges, expected);
    let bpe = Bpe::train(&text, WordKind::Unicode, 262).unwrap();
    assert_eq!(
        bpe.tokens[256], b"zq",
        "words of any script count whatever their length"
    );
}

/// What the tokenizers library makes of the same texts: scripts/golden_tokenizers.py.
fn golden() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tokenizers.json");
    let bytes = std::fs::read(path).expect("a golden file");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn merges_and_tokens_are_those_of_the_tokenizers_library() {
    let golden = golden();
    let sample = golden["sample"].as_str().unwrap();
    for trained in golden["trained"].as_array().unwrap() {
        let name = trained["name"].as_str().unwrap();
        let text = golden["texts"][name].as_str().unwrap().as_bytes();
        let vocab = trained["vocab"].as_u64().unwrap() as usize;
        for (kind, key) in [(WordKind::Ascii, "ascii"), (WordKind::Unicode, "unicode")] {
            let bpe = Bpe::train(text, kind, vocab).unwrap();
            let merges: Vec<(u32, u32)> = bpe.merges.iter().map(|(pair, _)| *pair).collect();
            let expected: Vec<(u32, u32)> = serde_json::from_value(trained[key].clone()).unwrap();
            assert_eq!(merges, expected, "{name} {vocab} {key}");
            let tokens = bpe.encode(sample.as_bytes());
            if kind == WordKind::Unicode {
                let expected: Vec<i32> = serde_json::from_value(trained["ids"].clone()).unwrap();
                assert_eq!(tokens, expected, "{name} {vocab}");
            }
            // Written and read again it is the same.
            let again = serde_json::to_vec(&tokenizer_json(&bpe, kind)).unwrap();
            let again = read(&again).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(
                again.encode(sample.as_bytes()),
                tokens,
                "{name} {vocab} {key}"
            );
            assert_eq!(again.encode(b"\xff a"), bpe.encode(b"\xff a"));
        }
    }
}

#[test]
fn a_tokenizer_of_others_gives_their_tokens() {
    let golden = golden();
    let of = |value: &serde_json::Value| read(&serde_json::to_vec(value).unwrap());
    let json = &golden["read"]["json"];
    let bpe = of(json).unwrap_or_else(|error| panic!("{error}"));
    for (text, key) in [(&golden["sample"], "ids"), (&golden["texts"]["all"], "all")] {
        let expected: Vec<i32> = serde_json::from_value(golden["read"][key].clone()).unwrap();
        let text = text.as_str().unwrap().as_bytes();
        let tokens = bpe.encode(text);
        assert_eq!(tokens, expected, "{key}");
        let spelled: Vec<&[u8]> = tokens.iter().map(|id| &*bpe.tokens[*id as usize]).collect();
        assert_eq!(spelled.concat(), text);
    }
    let with = |pointer: &str, value: serde_json::Value| {
        let mut changed = json.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        of(&changed)
            .err()
            .unwrap_or_else(|| panic!("{pointer} is refused"))
    };
    let text = serde_json::Value::from;
    for (error, said) in [
        (
            with("/model/type", text("Unigram")),
            "the model `Unigram`, and only BPE",
        ),
        (
            with("/normalizer", serde_json::json!({ "type": "NFC" })),
            "the normalizer `NFC`",
        ),
        (
            with("/pre_tokenizer", serde_json::Value::Null),
            "no `pre_tokenizer`",
        ),
        (
            with("/pre_tokenizer", serde_json::json!({ "type": "Metaspace" })),
            "the pre-tokenizer `Metaspace`",
        ),
        (
            with(
                "/pre_tokenizer/pretokenizers/1/add_prefix_space",
                true.into(),
            ),
            "a space before",
        ),
        (
            with(
                "/pre_tokenizer/pretokenizers/0/pattern/Regex",
                text("a(?=b)"),
            ),
            "an unsupported pattern",
        ),
        (
            with("/pre_tokenizer/pretokenizers/0/pattern/Regex", text("a*")),
            "it matches the empty text",
        ),
        (
            with("/pre_tokenizer/pretokenizers", Vec::<u8>::new().into()),
            "no step `ByteLevel`",
        ),
        (with("/model/dropout", 0.1.into()), "dropout"),
        (
            with("/model/end_of_word_suffix", text("</w>")),
            "`end_of_word_suffix`",
        ),
        (
            with("/model/merges/0", text("zz zz")),
            "a merge whose tokens are not in",
        ),
        (
            with("/model/vocab", serde_json::json!({ "a": 0 })),
            "a merge whose tokens",
        ),
    ] {
        assert!(error.contains(said), "{said}: {error}");
    }
    let added = serde_json::json!([{ "id": 300, "content": "of another size", "special": true }]);
    assert!(with("/added_tokens", added).contains("does not make the token"));
    let mut none = json.clone();
    none["model"]["merges"] = Vec::<u8>::new().into();
    none["model"]["vocab"] = serde_json::json!({ "a": 0 });
    assert!(of(&none).err().unwrap().contains("no token for the byte 0"));
    let error = read(b"{}").err().unwrap();
    assert!(error.contains("is not a tokenizer.json"));
}

#[test]
fn published_patterns_split_as_they_are_written() {
    let llama_3 = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s*[\r\n]+|\s+(?!\S)|\s+";
    let words = Words::Patterns(vec![Pattern::new(llama_3).unwrap()]);
    let text = "It'S  12345\n\n \tб\u{3000}\u{3000}x  ";
    let found: Vec<&str> = split(&words, text.as_bytes())
        .into_iter()
        .map(|word| std::str::from_utf8(word).unwrap())
        .collect();
    let expected = [
        "It",
        "'S",
        " ",
        " ",
        "123",
        "45",
        "\n\n",
        " ",
        "\tб",
        "\u{3000}",
        "\u{3000}x",
        "  ",
    ];
    assert_eq!(found, expected);
    let all: BTreeSet<&str> = found.into_iter().collect();
    assert!(all.len() > 9);
}
