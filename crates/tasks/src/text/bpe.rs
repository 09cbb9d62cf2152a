//! Byte-pair encoding on bytes, as in GPT-2, trained on the training split (Gage 1994; Sennrich et
//! al. 2016, arXiv 1508.07909).
//!
//! Text is split into words first; merges stay inside a word. The words are those of [`PATTERN`]:
//! letters, digits or other signs with the space before them, and white space. Every byte of a
//! character outside ASCII is a letter, so that any bytes can be read. Tokens 0 to 255 are the
//! bytes, token 256 + i is merge i. A merge is the pair of tokens that occurs most often, of
//! several the one of the smallest tokens, and no two tokens are the same bytes. Words longer than
//! [`LONGEST`] bytes are encoded, not counted.
//!
//! A crate for this would bring about a hundred others, most of them for tokenizers of other kinds.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

/// The words as a regular expression.
pub(super) const PATTERN: &str = concat!(
    r" ?[^\x00-@\[-`{-\x7F]+",
    r"| ?[0-9]+",
    r"| ?[\x00-\x08\x0E-\x1F!-/:-@\[-`{-\x7F]+",
    r"|[\t-\r ]+(?![^\t-\r ])",
    r"|[\t-\r ]+",
);

/// The longest word that is counted in training, in bytes.
const LONGEST: usize = 1024;

/// A pair that occurs once is no pattern.
const LEAST: u64 = 2;

/// A trained tokenizer.
pub(super) struct Bpe {
    /// What each merge joins; its token is 256 + its place.
    pub merges: Vec<(u32, u32)>,
    ranks: HashMap<(u32, u32), u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Other,
}

fn class(byte: u8) -> Class {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | 0x80.. => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' => Class::Space,
        _ => Class::Other,
    }
}

/// Where the word that begins the text ends.
fn word(text: &[u8]) -> usize {
    let run = |from: usize, of: Class| {
        let rest = text[from..].iter();
        from + rest.take_while(|byte| class(**byte) == of).count()
    };
    let first = class(text[0]);
    if first != Class::Space {
        return run(0, first);
    }
    let spaces = run(0, Class::Space);
    match (spaces, text.get(spaces)) {
        (_, None) => spaces,
        // A space goes with what follows, other white space stands alone.
        (1, Some(next)) if text[0] == b' ' => run(1, class(*next)),
        (1, Some(_)) => 1,
        // The last one is left to what follows.
        (_, Some(_)) => spaces - 1,
    }
}

/// The words of a text in their order.
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (first, after) = rest.split_at(word(rest));
        rest = after;
        Some(first)
    })
}

/// A pair and how often it occurs; the greatest is merged next.
#[derive(PartialEq, Eq)]
struct Candidate {
    count: u64,
    pair: (u32, u32),
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let count = self.count.cmp(&other.count);
        count.then_with(|| other.pair.cmp(&self.pair))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a training: words as tokens, and where each pair occurs.
struct Trainer {
    words: Vec<(Vec<u32>, u64)>,
    counts: HashMap<(u32, u32), u64>,
    /// Words that had the pair at some time.
    places: HashMap<(u32, u32), Vec<u32>>,
    /// Counts as they were when they were pushed.
    heap: BinaryHeap<Candidate>,
}

impl Trainer {
    fn new(text: &[u8]) -> Self {
        let mut found: HashMap<&[u8], u64> = HashMap::new();
        for word in words(text).filter(|word| (2..=LONGEST).contains(&word.len())) {
            *found.entry(word).or_default() += 1;
        }
        // Sorted: nothing depends on the order of a hash table.
        let sorted: BTreeMap<&[u8], u64> = found.into_iter().collect();
        let tokens = |word: &[u8]| word.iter().map(|byte| u32::from(*byte)).collect();
        let words = sorted
            .into_iter()
            .map(|(word, count)| (tokens(word), count));
        let mut trainer = Self {
            words: words.collect(),
            counts: HashMap::new(),
            places: HashMap::new(),
            heap: BinaryHeap::new(),
        };
        for at in 0..trainer.words.len() {
            trainer.add(at);
        }
        trainer.heap = candidates(&trainer.counts, trainer.counts.keys().copied()).into();
        trainer
    }

    /// Counts the pairs of a word.
    fn add(&mut self, at: usize) {
        let (tokens, count) = &self.words[at];
        for pair in tokens.windows(2).map(|pair| (pair[0], pair[1])) {
            *self.counts.entry(pair).or_default() += count;
            let places = self.places.entry(pair).or_default();
            if places.last() != Some(&(at as u32)) {
                places.push(at as u32);
            }
        }
    }

    /// The pair that occurs most often.
    fn best(&mut self) -> Option<(u32, u32)> {
        while let Some(Candidate { count, pair }) = self.heap.pop() {
            let now = self.counts.get(&pair).copied().unwrap_or(0);
            if now == count {
                return (now >= LEAST).then_some(pair);
            }
            // Counts of a pair only fall after it was pushed, or it was pushed again.
            if now > 0 {
                self.heap.push(Candidate { count: now, pair });
            }
        }
        None
    }

    /// Replaces a pair by a token everywhere.
    fn merge(&mut self, pair: (u32, u32), token: u32) {
        let mut places = self.places.remove(&pair).unwrap_or_default();
        places.sort_unstable();
        places.dedup();
        let mut changed: Vec<(u32, u32)> = Vec::new();
        for at in places {
            let at = at as usize;
            let (tokens, count) = &self.words[at];
            let merged = replace(tokens, pair, token);
            if merged.len() == tokens.len() {
                continue;
            }
            for old in tokens.windows(2).map(|pair| (pair[0], pair[1])) {
                if let Some(held) = self.counts.get_mut(&old) {
                    *held -= count;
                }
            }
            changed.extend(merged.windows(2).map(|pair| (pair[0], pair[1])));
            self.words[at].0 = merged;
            self.add(at);
        }
        self.counts.remove(&pair);
        changed.retain(|(left, right)| *left == token || *right == token);
        changed.sort_unstable();
        changed.dedup();
        self.heap
            .extend(candidates(&self.counts, changed.into_iter()));
    }
}

fn candidates(
    counts: &HashMap<(u32, u32), u64>,
    pairs: impl Iterator<Item = (u32, u32)>,
) -> Vec<Candidate> {
    let of = |pair| Candidate {
        count: counts.get(&pair).copied().unwrap_or(0),
        pair,
    };
    pairs.map(of).collect()
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

impl Bpe {
    /// A tokenizer of at most `vocab` tokens: fewer where no pair occurs twice any more.
    pub(super) fn train(text: &[u8], vocab: usize) -> Self {
        let mut trainer = Trainer::new(text);
        let mut merges = Vec::new();
        let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
        let mut known: HashSet<Vec<u8>> = tokens.iter().cloned().collect();
        while merges.len() + 256 < vocab {
            let Some(pair) = trainer.best() else { break };
            let joined = [&*tokens[pair.0 as usize], &*tokens[pair.1 as usize]].concat();
            // Names of tokens are their bytes: another pair of the same bytes is left apart.
            if !known.insert(joined.clone()) {
                continue;
            }
            trainer.merge(pair, 256 + merges.len() as u32);
            merges.push(pair);
            tokens.push(joined);
        }
        let ranks = merges.iter().copied().zip(0..).collect();
        Self { merges, ranks }
    }

    /// Number of tokens.
    pub(super) fn vocab_size(&self) -> usize {
        256 + self.merges.len()
    }

    /// The bytes of every token.
    pub(super) fn tokens(&self) -> Vec<Vec<u8>> {
        let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
        for (left, right) in &self.merges {
            let joined = [&*tokens[*left as usize], &*tokens[*right as usize]].concat();
            tokens.push(joined);
        }
        tokens
    }

    /// A text as tokens.
    pub(super) fn encode(&self, text: &[u8]) -> Vec<i32> {
        let mut known: HashMap<&[u8], Vec<i32>> = HashMap::new();
        let mut tokens = Vec::new();
        for word in words(text) {
            let own = known.entry(word).or_insert_with(|| self.word(word));
            tokens.extend_from_slice(own);
        }
        tokens
    }

    /// A word as tokens: of the pairs that are there the earliest merge first, from the left.
    fn word(&self, word: &[u8]) -> Vec<i32> {
        const GONE: usize = usize::MAX;
        let mut tokens: Vec<u32> = word.iter().map(|byte| u32::from(*byte)).collect();
        let count = tokens.len();
        // Tokens as a chain, from which the right one of a pair is taken out.
        let mut next: Vec<usize> = (1..=count).collect();
        let mut before: Vec<usize> = (0..count).map(|at| at.wrapping_sub(1)).collect();
        let rank = |left: u32, right: u32| self.ranks.get(&(left, right)).copied();
        let mut heap: BinaryHeap<Reverse<(u32, usize)>> = (1..count)
            .filter_map(|at| Some(Reverse((rank(tokens[at - 1], tokens[at])?, at - 1))))
            .collect();
        while let Some(Reverse((of, left))) = heap.pop() {
            let right = next[left];
            // The pair may have been merged with a neighbour since.
            if right >= count || rank(tokens[left], tokens[right]) != Some(of) {
                continue;
            }
            tokens[left] = 256 + of;
            let after = next[right];
            next[left] = after;
            next[right] = GONE;
            if after < count {
                before[after] = left;
                let pair = rank(tokens[left], tokens[after]);
                heap.extend(pair.map(|of| Reverse((of, left))));
            }
            let earlier = before[left];
            if earlier < count {
                let pair = rank(tokens[earlier], tokens[left]);
                heap.extend(pair.map(|of| Reverse((of, earlier))));
            }
        }
        let kept = (0..count).filter(|at| next[*at] != GONE);
        kept.map(|at| tokens[at] as i32).collect()
    }
}

#[cfg(test)]
mod tests;
