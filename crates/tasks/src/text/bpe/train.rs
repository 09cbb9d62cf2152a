//! Training: the pair that occurs most often becomes a token, until there are enough of them.
//!
//! The pairs and where they occur are in an index, and their counts in a heap, as in every fast
//! trainer. The merges are those of Hugging Face's tokenizers, also where a pair spells a token
//! that there is already: it is merged into that token.

use super::symbols::{END, Symbols};
use super::words::Words;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// A pair that occurs once is not a pattern.
const LEAST: u64 = 2;

/// A pair of tokens, and the token that it becomes.
pub(in crate::text) type Merge = ((u32, u32), u32);

/// Where a pair occurs.
#[derive(Default)]
struct Occurrences {
    count: u64,
    /// Places where it began at some time.
    places: Vec<u32>,
    /// The merge that last made it more frequent.
    grown: u32,
}

/// Mixes pairs, whose bits are far from random.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u32(u32::from(*byte)));
    }
    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

type Index = HashMap<(u32, u32), Occurrences, BuildHasherDefault<PairHasher>>;

/// Pairs by how often they occur; of several the one of the smallest tokens is the greatest.
type Heap = BinaryHeap<(u64, Reverse<(u32, u32)>)>;

struct Trainer {
    symbols: Symbols<Vec<u32>>,
    /// Where words begin that occur this often; by place.
    weights: Vec<(usize, u64)>,
    index: Index,
    heap: Heap,
}

/// The merges that make a vocabulary of at most `vocab` tokens, and the bytes of its tokens. Words
/// of more than `longest` bytes are not counted.
pub(super) fn train(
    text: &[u8],
    words: &Words,
    mut tokens: Vec<Vec<u8>>,
    (vocab, longest): (usize, usize),
) -> (Vec<Merge>, Vec<Vec<u8>>) {
    let mut start = [0; 256];
    for (token, byte) in (0..).zip(&tokens) {
        start[usize::from(byte[0])] = token;
    }
    let mut known: HashMap<Vec<u8>, u32> = tokens.iter().cloned().zip(0..).collect();
    let mut trainer = Trainer::new(text, words, &start, longest);
    let mut merges: Vec<Merge> = Vec::new();
    while tokens.len() < vocab {
        let Some(pair) = trainer.best() else { break };
        let joined = [&*tokens[pair.0 as usize], &*tokens[pair.1 as usize]].concat();
        let token = *known.entry(joined.clone()).or_insert(tokens.len() as u32);
        if token as usize == tokens.len() {
            trainer.symbols.sizes.push(joined.len() as u32);
            tokens.push(joined);
        }
        merges.push((pair, token));
        trainer.merge(pair, token, merges.len() as u32);
    }
    // A pair that came back is merged when it did so last.
    let last: HashMap<(u32, u32), usize> = (0..)
        .zip(&merges)
        .map(|(at, (pair, _))| (*pair, at))
        .collect();
    let mut at = 0..;
    merges.retain(|(pair, _)| at.next() == last.get(pair).copied());
    (merges, tokens)
}

impl Trainer {
    fn new(text: &[u8], words: &Words, start: &[u32; 256], longest: usize) -> Self {
        let mut found: HashMap<&[u8], u64> = HashMap::new();
        words.each(text, |word| {
            if (2..=longest).contains(&word.len()) {
                *found.entry(word).or_default() += 1;
            }
        });
        // By count: a place then has the weight of its range.
        let mut found: Vec<(&[u8], u64)> = found.into_iter().collect();
        found.sort_unstable_by_key(|(word, count)| (*count, *word));
        let places = found.iter().map(|(word, _)| word.len() + 1).sum::<usize>();
        let mut symbols = Symbols::new(vec![1; 256], places + 1);
        let mut weights: Vec<(usize, u64)> = Vec::new();
        for (word, count) in found {
            if weights.last().is_none_or(|(_, last)| *last != count) {
                weights.push((symbols.len(), count));
            }
            symbols.push(word.iter().map(|byte| start[usize::from(*byte)]));
        }
        let mut trainer = Self {
            symbols,
            weights,
            index: Index::default(),
            heap: Heap::new(),
        };
        trainer.count();
        trainer
    }

    /// Counts the pairs of bytes.
    fn count(&mut self) {
        let mut table: Vec<Occurrences> = Vec::new();
        table.resize_with(1 << 16, Occurrences::default);
        let symbols = &self.symbols;
        let mut ranges = self.weights.iter().peekable();
        let mut weight = 0;
        for place in 1..symbols.len().saturating_sub(1) {
            if let Some((_, next)) = ranges.next_if(|(start, _)| *start == place) {
                weight = *next;
            }
            let (left, right) = (symbols.at(place), symbols.at(place + 1));
            if left != END && right != END {
                let found = &mut table[(left as usize) << 8 | right as usize];
                found.count += weight;
                found.places.push(place as u32);
            }
        }
        let found = (0u32..).zip(table).filter(|(_, found)| found.count > 0);
        self.index = found
            .map(|(pair, found)| ((pair >> 8, pair & 255), found))
            .collect();
        let pairs = self.index.iter();
        self.heap = pairs
            .map(|(pair, found)| (found.count, Reverse(*pair)))
            .collect();
    }

    /// How often the word at a place occurs.
    fn weight(&self, place: usize) -> u64 {
        let range = self.weights.partition_point(|(start, _)| *start <= place);
        self.weights[range - 1].1
    }

    /// The pair that occurs most often.
    fn best(&mut self) -> Option<(u32, u32)> {
        while let Some((count, Reverse(pair))) = self.heap.pop() {
            let now = self.index.get(&pair).map_or(0, |found| found.count);
            if now == count {
                return (now >= LEAST).then_some(pair);
            }
            // A pair that became more frequent was pushed again.
            if now > 0 && now < count {
                self.heap.push((now, Reverse(pair)));
            }
        }
        None
    }

    /// Replaces a pair by a token everywhere.
    fn merge(&mut self, pair: (u32, u32), token: u32, merge: u32) {
        let Some(found) = self.index.get_mut(&pair) else {
            return;
        };
        let mut places = std::mem::take(&mut found.places);
        // From the left, as in a word of equal tokens; those of one merge are in order already.
        places.sort_unstable();
        let mut grown: Vec<(u32, u32)> = Vec::new();
        for place in places.into_iter().map(|place| place as usize) {
            if !self.symbols.is_pair(place, pair) {
                continue;
            }
            let weight = self.weight(place);
            let before = self.symbols.at(place - 1);
            let after = self
                .symbols
                .at(self.symbols.after(self.symbols.after(place)));
            self.symbols.join(place, token);
            if before != END {
                let start = self.symbols.before(place);
                self.sub((before, pair.0), weight);
                self.add((before, token), weight, start, (merge, &mut grown));
            }
            if after != END {
                self.sub((pair.1, after), weight);
                self.add((token, after), weight, place, (merge, &mut grown));
            }
        }
        for pair in grown {
            let count = self.index.get(&pair).map_or(0, |found| found.count);
            if count > 0 {
                self.heap.push((count, Reverse(pair)));
            }
        }
    }

    fn sub(&mut self, pair: (u32, u32), weight: u64) {
        if let Some(found) = self.index.get_mut(&pair) {
            found.count = found.count.saturating_sub(weight);
        }
    }

    fn add(
        &mut self,
        pair: (u32, u32),
        weight: u64,
        place: usize,
        (merge, grown): (u32, &mut Vec<(u32, u32)>),
    ) {
        let found = self.index.entry(pair).or_default();
        found.count += weight;
        found.places.push(place as u32);
        if found.grown != merge {
            found.grown = merge;
            grown.push(pair);
        }
    }
}
