//! Automata that have a name.

use super::dfa::Dfa;
use serde::{Deserialize, Serialize};

/// A language by its name, or an automaton of the table's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// The automaton that `symbols`, `states`, `start`, `accepting` and `transitions` define.
    Own,
    /// `(aa)*`: an even number of a.
    AaStar,
    /// `(ab)*`.
    AbStar,
    /// `Σ*a` over a and b.
    EndsInA,
    /// `aΣ*` over a and b.
    BeginsWithA,
    /// `Σ*abΣ*` over a and b.
    ContainsAb,
    /// `c*aΣ*` over a, b and c: of the letters a and b, a comes first. R-trivial.
    AFirst,
    /// Whether the last write wrote 1: `w0` and `w1` write a bit, `i` is ignored. 0 at the start.
    FlipFlop,
    /// `1*`.
    #[serde(rename = "tomita_1")]
    Tomita1,
    /// `(10)*`.
    #[serde(rename = "tomita_2")]
    Tomita2,
    /// No odd run of 1 with an odd run of 0 somewhere after it.
    #[serde(rename = "tomita_3")]
    Tomita3,
    /// No 000.
    #[serde(rename = "tomita_4")]
    Tomita4,
    /// An even number of 0 and an even number of 1.
    #[serde(rename = "tomita_5")]
    Tomita5,
    /// The numbers of 0 and 1 differ by a multiple of 3.
    #[serde(rename = "tomita_6")]
    Tomita6,
    /// `0*1*0*1*`.
    #[serde(rename = "tomita_7")]
    Tomita7,
}

impl Language {
    /// Its automaton, whose states are numbers; none for one of the table's own.
    pub(super) fn dfa(self) -> Option<Dfa> {
        const BITS: &[&str] = &["0", "1"];
        const AB: &[&str] = &["a", "b"];
        // Symbols; the next state of each state by symbol, from the start state on; what accepts.
        let (symbols, next, accepting): (&[&str], &[&[usize]], &[usize]) = match self {
            Self::Own => return None,
            Self::AaStar => (&["a"], &[&[1], &[0]], &[0]),
            Self::AbStar => (AB, &[&[1, 2], &[2, 0], &[2, 2]], &[0]),
            Self::EndsInA => (AB, &[&[1, 0], &[1, 0]], &[1]),
            Self::BeginsWithA => (AB, &[&[1, 2], &[1, 1], &[2, 2]], &[1]),
            Self::ContainsAb => (AB, &[&[1, 0], &[1, 2], &[2, 2]], &[2]),
            Self::AFirst => (
                &["a", "b", "c"],
                &[&[1, 2, 0], &[1, 1, 1], &[2, 2, 2]],
                &[1],
            ),
            Self::FlipFlop => (&["w0", "w1", "i"], &[&[0, 1, 0], &[0, 1, 1]], &[1]),
            Self::Tomita1 => (BITS, &[&[1, 0], &[1, 1]], &[0]),
            Self::Tomita2 => (BITS, &[&[2, 1], &[0, 2], &[2, 2]], &[0]),
            // Runs of 1 so far are even or this one may become so; this one is odd; an odd one has
            // been, and this run of 0 is odd; no such run; one of them has ended.
            Self::Tomita3 => (
                BITS,
                &[&[0, 1], &[2, 0], &[3, 4], &[2, 3], &[4, 4]],
                &[0, 1, 3],
            ),
            Self::Tomita4 => (BITS, &[&[1, 0], &[2, 0], &[3, 0], &[3, 3]], &[0, 1, 2]),
            Self::Tomita5 => (BITS, &[&[1, 2], &[0, 3], &[3, 0], &[2, 1]], &[0]),
            Self::Tomita6 => (BITS, &[&[1, 2], &[2, 0], &[0, 1]], &[0]),
            Self::Tomita7 => (
                BITS,
                &[&[0, 1], &[2, 1], &[2, 3], &[4, 3], &[4, 4]],
                &[0, 1, 2, 3],
            ),
        };
        Some(Dfa {
            symbols: symbols.iter().map(ToString::to_string).collect(),
            start: 0,
            accepting: (0..next.len()).map(|q| accepting.contains(&q)).collect(),
            next: next.iter().map(|row| row.to_vec()).collect(),
        })
    }
}
