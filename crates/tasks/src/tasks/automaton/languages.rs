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
            // 0: runs of 1 are even so far; 1: in an odd run of 1; 2: after one, in an odd run of
            // 0; 3: after one, not in an odd run of 0; 4: rejected for good.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Where words take each state: one function for each element of the transition monoid.
    fn monoid(dfa: &Dfa) -> BTreeSet<Vec<usize>> {
        let states = dfa.next.len();
        let mut found = BTreeSet::new();
        let mut fresh = vec![(0..states).collect::<Vec<_>>()];
        while let Some(word) = fresh.pop() {
            if found.insert(word.clone()) {
                let longer = |symbol| word.iter().map(move |&q| (q, symbol));
                let longer = (0..dfa.symbols.len()).map(longer);
                fresh.extend(longer.map(|w| w.map(|(q, symbol)| dfa.next[q][symbol]).collect()));
            }
        }
        found
    }

    /// Whether no repeated word leads round a cycle of states: the language is star-free.
    fn is_aperiodic(dfa: &Dfa) -> bool {
        monoid(dfa).iter().all(|word| {
            let again = |q: usize, times: usize| (0..times).fold(q, |q, _| word[q]);
            let states = word.len();
            (0..states).all(|q| again(q, states) == again(q, states + 1))
        })
    }

    /// Whether no state is left and entered again.
    fn is_partially_ordered(dfa: &Dfa) -> bool {
        let words = monoid(dfa);
        (0..dfa.next.len()).all(|q| {
            let after: BTreeSet<usize> = words.iter().map(|word| word[q]).collect();
            let returns = |p: &usize| words.iter().any(|word| word[*p] == q);
            after.iter().all(|p| *p == q || !returns(p))
        })
    }

    /// The classes that docs/config.md names.
    #[test]
    fn classes_are_those_of_the_transition_monoids() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `\""));
        let mut named = 0;
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let Some(class) = cells.get(3).filter(|class| !class.is_empty()) else {
                continue;
            };
            for name in cells[1].split(", ") {
                let name = serde_json::from_str::<Language>(name.trim_matches('`'));
                let Ok(dfa) = name.map(|language| language.dfa()) else {
                    continue;
                };
                let Some(dfa) = dfa else { continue };
                let found = match (is_partially_ordered(&dfa), is_aperiodic(&dfa)) {
                    (true, true) => "R-trivial",
                    (false, true) => "star-free",
                    (false, false) => "modular",
                    (true, false) => unreachable!("a cycle is not an order"),
                };
                assert_eq!(found, *class, "{row}");
                named += 1;
            }
        }
        assert_eq!(named, 14);
    }
}
