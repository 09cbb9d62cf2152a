//! Against slow and obvious versions.

use super::*;

/// Texts of every shape: words, white space at every place, bytes that are no UTF-8.
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

/// Every pair counted anew for every merge.
fn slow_merges(text: &[u8], vocab: usize) -> Vec<(u32, u32)> {
    let mut words: Vec<Vec<u32>> = slow_words(text)
        .iter()
        .map(|word| word.iter().map(|byte| u32::from(*byte)).collect())
        .collect();
    let mut merges = Vec::new();
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    while merges.len() + 256 < vocab {
        let mut counts: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for pair in words.iter().flat_map(|word| word.windows(2)) {
            let joined = [&*tokens[pair[0] as usize], &*tokens[pair[1] as usize]].concat();
            if !tokens.contains(&joined) {
                *counts.entry((pair[0], pair[1])).or_default() += 1;
            }
        }
        // The first of the most frequent: pairs are in order.
        let most = counts.values().copied().max().unwrap_or(0);
        let Some((pair, _)) = counts
            .iter()
            .find(|(_, count)| **count == most && most >= 2)
        else {
            break;
        };
        let token = 256 + merges.len() as u32;
        words = words
            .iter()
            .map(|word| replace(word, *pair, token))
            .collect();
        tokens.push([&*tokens[pair.0 as usize], &*tokens[pair.1 as usize]].concat());
        merges.push(*pair);
    }
    merges
}

#[test]
fn words_are_those_of_the_pattern() {
    for text in texts() {
        let found: Vec<Vec<u8>> = words(&text).map(<[u8]>::to_vec).collect();
        assert_eq!(found, slow_words(&text), "{text:?}");
        assert_eq!(found.concat(), text);
    }
    let split: Vec<&[u8]> = words(b"let  x1 = 10;\n\tif a").collect();
    let expected: [&[u8]; 11] = [
        b"let", b" ", b" x", b"1", b" =", b" 10", b";", b"\n", b"\t", b"if", b" a",
    ];
    assert_eq!(split, expected);
}

#[test]
fn merges_are_those_of_counting_everything_anew() {
    let all = texts().concat();
    for text in texts().iter().chain([&all]) {
        for vocab in [256, 257, 300, 400] {
            assert_eq!(
                Bpe::train(text, vocab).merges,
                slow_merges(text, vocab),
                "{text:?}"
            );
        }
    }
}

#[test]
fn a_text_is_encoded_by_one_merge_after_the_other() {
    let all = texts().concat();
    let bpe = Bpe::train(&all, 330);
    assert_eq!(bpe.vocab_size(), 330);
    let names = bpe.tokens();
    for text in texts().iter().chain([&all]) {
        let mut expected = Vec::new();
        for word in slow_words(text) {
            let mut tokens: Vec<u32> = word.iter().map(|byte| u32::from(*byte)).collect();
            for (pair, token) in bpe.merges.iter().zip(256..) {
                tokens = replace(&tokens, *pair, token);
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

#[test]
fn long_words_are_encoded_in_time_that_grows_with_their_length() {
    let long = b"ab".repeat(1 << 19);
    // Too long to be counted, so that it teaches nothing.
    assert!(Bpe::train(&long, 300).merges.is_empty());
    let short: Vec<u8> = b"abab ab abababab ".repeat(40);
    let tokens = Bpe::train(&short, 260).encode(&long);
    assert!(tokens.len() < long.len() / 2, "{}", tokens.len());
}
