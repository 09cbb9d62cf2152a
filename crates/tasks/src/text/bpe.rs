//! Byte-pair encoding on bytes, as in GPT-2 (Gage 1994; Sennrich et al. 2016, arXiv 1508.07909),
//! trained on the training split or read from a `tokenizer.json`.
//!
//! Text is split into words first (`words.rs`); merges stay inside a word. Tokens 0 to 255 are the
//! bytes: in their order with words of ASCII, in the order of GPT-2 with words of any script. A
//! merge is the pair of tokens that occurs most often, of several the one of the smallest tokens.
//!
//! A crate for this would bring 25 others, most of them for tokenizers of other kinds
//! (`docs/design/own-code.md`).

mod symbols;
mod train;
pub(super) mod words;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use symbols::{END, Symbols};
pub(super) use train::Merge;
use words::{Added, Words};

/// ASCII words above this many bytes are counted only where the others give too few tokens, as in
/// DNA. Trained tokenizers that left them out keep their merges.
const LONGEST: usize = 1024;

/// Words up to this many bytes are encoded once and remembered.
const REMEMBERED: usize = 64;

/// How a text is split into words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordKind {
    /// By ASCII; bytes of other characters are letters.
    #[default]
    Ascii,
    /// By the letters, digits and signs of any script, as GPT-2 does.
    Unicode,
}

/// A tokenizer.
pub(super) struct Bpe {
    words: Words,
    /// The bytes of every token; none where an id is unused.
    pub tokens: Vec<Vec<u8>>,
    sizes: Vec<u32>,
    /// What each merge joins, and the token of it.
    pub merges: Vec<Merge>,
    /// Place and token of each merge.
    ranks: HashMap<(u32, u32), (u32, u32)>,
    /// The tokens of the bytes.
    start: [u32; 256],
    /// Words that are tokens whatever the merges say.
    whole: HashMap<Vec<u8>, u32>,
    added: Option<Added>,
}

impl Bpe {
    /// A tokenizer of these parts, or the byte that has no token.
    pub fn of(
        words: Words,
        tokens: Vec<Vec<u8>>,
        merges: Vec<Merge>,
        (is_whole_first, added): (bool, Vec<(String, u32)>),
    ) -> Result<Self, u8> {
        let ids: HashMap<Vec<u8>, u32> = tokens.iter().cloned().zip(0..).collect();
        let mut start = [0; 256];
        for byte in 0..=255u8 {
            start[usize::from(byte)] = *ids.get(&[byte][..]).ok_or(byte)?;
        }
        let ranked = (0..).zip(&merges);
        Ok(Self {
            words,
            ranks: ranked
                .map(|(rank, (pair, token))| (*pair, (rank, *token)))
                .collect(),
            sizes: tokens.iter().map(|token| token.len() as u32).collect(),
            tokens,
            merges,
            start,
            whole: if is_whole_first { ids } else { HashMap::new() },
            added: Added::new(added),
        })
    }

    /// A tokenizer of at most `vocab` tokens: fewer where no pair occurs twice any more. Words of
    /// any script are those of UTF-8.
    pub fn train(text: &[u8], kind: WordKind, vocab: usize) -> Result<Self, String> {
        let (words, alphabet) = match kind {
            WordKind::Ascii => (Words::Ascii, (0..=255).collect()),
            WordKind::Unicode => (Words::gpt_2()?, super::tokenizer_json::alphabet()),
        };
        let bytes: Vec<Vec<u8>> = alphabet.into_iter().map(|byte| vec![byte]).collect();
        let longest = match kind {
            WordKind::Ascii => LONGEST,
            WordKind::Unicode => usize::MAX,
        };
        let trained = |longest| train::train(text, &words, bytes.clone(), (vocab, longest));
        let (mut merges, mut tokens) = trained(longest);
        if tokens.len() < vocab && longest < usize::MAX {
            (merges, tokens) = trained(usize::MAX);
        }
        let more = (false, Vec::new());
        Self::of(words, tokens, merges, more).map_err(|byte| format!("no token for byte {byte}"))
    }

    /// A text as tokens.
    pub fn encode(&self, mut text: &[u8]) -> Vec<i32> {
        let mut encoder = Encoder {
            bpe: self,
            known: HashMap::new(),
            places: vec![Vec::new(); self.merges.len()],
            waiting: BinaryHeap::new(),
            tokens: Vec::new(),
        };
        let first = |text| self.added.as_ref()?.first(text);
        while let Some((start, end, token)) = first(text) {
            self.words.each(&text[..start], |word| encoder.push(word));
            encoder.tokens.push(token as i32);
            text = &text[end..];
        }
        self.words.each(text, |word| encoder.push(word));
        encoder.tokens
    }
}

/// A text on its way to tokens.
struct Encoder<'a> {
    bpe: &'a Bpe,
    /// Short words that were met, with their tokens.
    known: HashMap<&'a [u8], Vec<i32>>,
    /// Where the pair of each merge begins in the word at hand.
    places: Vec<Vec<u32>>,
    /// Merges that have places.
    waiting: BinaryHeap<Reverse<u32>>,
    tokens: Vec<i32>,
}

impl<'a> Encoder<'a> {
    fn push(&mut self, word: &'a [u8]) {
        if let Some(token) = self.bpe.whole.get(word) {
            self.tokens.push(*token as i32);
        } else if let Some(tokens) = self.known.get(word) {
            self.tokens.extend_from_slice(tokens);
        } else {
            let from = self.tokens.len();
            self.word(word);
            if word.len() <= REMEMBERED {
                self.known.insert(word, self.tokens[from..].to_vec());
            }
        }
    }

    /// Notes that a pair begins here, if it is merged; returns the place of its merge.
    fn note(&mut self, pair: (u32, u32), place: usize) -> Option<u32> {
        let (merge, _) = *self.bpe.ranks.get(&pair)?;
        let places = &mut self.places[merge as usize];
        if places.is_empty() {
            self.waiting.push(Reverse(merge));
        }
        places.push(place as u32);
        Some(merge)
    }

    /// Appends the tokens of a word: of the pairs that are there the earliest merge first, from the
    /// left.
    fn word(&mut self, word: &[u8]) {
        let mut symbols = Symbols::new(&*self.bpe.sizes, word.len() + 2);
        symbols.push(word.iter().map(|byte| self.bpe.start[usize::from(*byte)]));
        for place in 1..word.len() {
            self.note((symbols.at(place), symbols.at(place + 1)), place);
        }
        while let Some(Reverse(merge)) = self.waiting.pop() {
            let mut places = std::mem::take(&mut self.places[merge as usize]);
            places.sort_unstable();
            let (pair, token) = self.bpe.merges[merge as usize];
            let mut left = places.iter();
            while let Some(place) = left.next().map(|place| *place as usize) {
                // A token of the pair may have been merged with a neighbour since.
                if !symbols.is_pair(place, pair) {
                    continue;
                }
                symbols.join(place, token);
                let (after, before) = (symbols.at(symbols.after(place)), symbols.at(place - 1));
                let mut next = None;
                if after != END {
                    next = self.note((token, after), place);
                }
                if before != END {
                    let start = symbols.before(place);
                    next = next
                        .into_iter()
                        .chain(self.note((before, token), start))
                        .min();
                }
                // A token that is made in two ways may be in a pair that comes first.
                if next.is_some_and(|next| next < merge) {
                    break;
                }
            }
            if !left.as_slice().is_empty() {
                self.places[merge as usize].extend(left);
                self.waiting.push(Reverse(merge));
            }
        }
        self.tokens
            .extend(symbols.tokens().map(|token| token as i32));
    }
}

#[cfg(test)]
mod tests;
