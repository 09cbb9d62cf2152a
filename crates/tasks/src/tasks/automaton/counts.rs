//! How many words of a length an automaton accepts or rejects, and words drawn uniformly among
//! them.

use super::dfa::Dfa;
use std::borrow::Cow;

/// Values of a choice that stands for a number in `[0, 1)`. Numbers of words up to it are exact.
pub(super) const UNIT: u64 = 1 << 53;

/// A number of words, `mantissa * UNIT^power`, with `power` 0 for numbers below [`UNIT`]. Such
/// numbers are exact; others are rounded as f64 is, and none overflows.
#[derive(Clone, Copy, Default)]
struct Count {
    mantissa: f64,
    power: u32,
}

impl Count {
    fn plus(self, other: Self) -> Self {
        let (large, small) = if self.power >= other.power {
            (self, other)
        } else {
            (other, self)
        };
        let mantissa = large.mantissa + small.mantissa * unit_to(large.power - small.power);
        if mantissa < UNIT as f64 {
            return Self { mantissa, ..large };
        }
        Self {
            mantissa: mantissa / UNIT as f64,
            power: large.power + 1,
        }
    }

    /// Its share of a number that is not smaller.
    fn share_of(self, whole: Self) -> f64 {
        self.mantissa / whole.mantissa * unit_to(whole.power - self.power)
    }
}

/// `UNIT^-power`.
fn unit_to(power: u32) -> f64 {
    // A power of two, 0 below the smallest f64.
    libm::ldexp(1.0, -53 * power.min(100) as i32)
}

/// By number of symbols left and state: how many words lead to an end that accepts, or to one that
/// does not.
pub(super) struct Counts {
    accepted: bool,
    by_left: Vec<Vec<Count>>,
}

impl Counts {
    /// Of words of up to `longest` symbols; longer ones are counted when they are asked for.
    pub fn new(dfa: &Dfa, accepted: bool, longest: usize) -> Self {
        let by_left = counted(dfa, accepted, longest);
        Self { accepted, by_left }
    }

    fn up_to(&self, dfa: &Dfa, n: usize) -> Cow<'_, [Vec<Count>]> {
        match self.by_left.get(..=n) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(counted(dfa, self.accepted, n)),
        }
    }

    /// Numbers of values of the choices that make a word of `n` symbols: the number of words, where
    /// it is below [`UNIT`], or a number in `[0, 1)` for each symbol.
    pub fn choices(&self, dfa: &Dfa, n: usize) -> Vec<u64> {
        match self.up_to(dfa, n)[n][dfa.start] {
            Count { mantissa, power: 0 } => vec![mantissa as u64],
            _ => vec![UNIT; n],
        }
    }

    /// The word of these choices: the one with this number in the order of the alphabet, or one
    /// whose symbols have each the probability of all words that go on with it.
    pub fn word(&self, dfa: &Dfa, n: usize, choices: &[u64]) -> Vec<i32> {
        let counts = self.up_to(dfa, n);
        let is_numbered = counts[n][dfa.start].power == 0;
        let (mut state, mut number) = (dfa.start, choices[0] as f64);
        let mut word = Vec::with_capacity(n);
        for left in (0..n).rev() {
            if !is_numbered {
                number = choices[word.len()] as f64 / UNIT as f64;
            }
            let all = counts[left + 1][state];
            let mut taken = 0;
            for (symbol, &to) in dfa.next[state].iter().enumerate() {
                let words = counts[left][to];
                let part = match is_numbered {
                    true => words.mantissa,
                    false => words.share_of(all),
                };
                if part == 0.0 {
                    continue;
                }
                // The last one that leads anywhere, should rounding leave a rest.
                taken = symbol;
                if number < part {
                    break;
                }
                number -= part;
            }
            word.push(taken as i32);
            state = dfa.next[state][taken];
        }
        word
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let states = self.by_left.first().map_or(0, Vec::len);
        (self.by_left.len() * (states * size_of::<Count>() + size_of::<Vec<Count>>())) as u64
    }
}

fn counted(dfa: &Dfa, accepted: bool, longest: usize) -> Vec<Vec<Count>> {
    let one_or_none = |accepts: &bool| Count {
        mantissa: f64::from(u8::from(*accepts == accepted)),
        power: 0,
    };
    let mut by_left: Vec<Vec<Count>> = vec![dfa.accepting.iter().map(one_or_none).collect()];
    for left in 0..longest {
        let after = &by_left[left];
        let sum = |row: &Vec<usize>| {
            let counts = row.iter().map(|&to| after[to]);
            counts.fold(Count::default(), Count::plus)
        };
        by_left.push(dfa.next.iter().map(sum).collect());
    }
    by_left
}
