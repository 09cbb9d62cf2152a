//! Deterministic finite automata.

/// A total automaton.
pub(super) struct Dfa {
    /// Names of the symbols.
    pub symbols: Vec<String>,
    /// Where a word starts.
    pub start: usize,
    /// Whether each state accepts.
    pub accepting: Vec<bool>,
    /// The next state of each state by symbol.
    pub next: Vec<Vec<usize>>,
}

impl Dfa {
    /// The state after each symbol of a word.
    pub fn states(&self, word: &[i32]) -> Vec<i32> {
        let mut state = self.start;
        let after = word.iter().map(|&symbol| {
            state = self.next[state][symbol as usize];
            state as i32
        });
        after.collect()
    }

    /// Whether its language has the word.
    pub fn accepts(&self, word: &[i32]) -> bool {
        let last = self.states(word).last().copied();
        self.accepting[last.map_or(self.start, |state| state as usize)]
    }
}
