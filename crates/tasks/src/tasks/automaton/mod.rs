//! Automaton: whether a deterministic finite automaton accepts a word, or which states it passes.
//!
//! Examples (the language `flip_flop`): `BOS w1 i w0 w1 i SEP | 1 EOS`, and with `answer =
//! "states"` `BOS w1 i w0 w1 i | _ 1 1 0 1 1`: a state is predicted at its symbol. Without BOS a
//! relative encoding cannot count the first symbols of a word that begins with equal ones. The
//! automaton is one with a name ([`Language`]), or one of the table's own. Length n is that of the
//! word. Half of the words are accepted, the others rejected, and within either half words are
//! uniform. At lengths that have words of one answer only, all words have it; `accept` is refused
//! where a length of the config is one of these. Symbols and states share their token ids; under
//! `states` BOS is the id after the symbols.
//!
//! Up to 2^53 words of an answer are counted exactly, and a word is drawn by its number. Where
//! there are more, each symbol is drawn by the share of words that go on with it, rounded as f64
//! is.
//!
//! Held out: by choices (the number of the word) where an answer has at least twice as many words
//! as there are test rows; where it has fewer, its words are trained on and tested. With more than
//! 2^53 the first choice is held out; words practically never repeat.
//!
//! Source: the languages are those of formal-language studies: Tomita 1982, whose third is here as
//! in the code of Weiss et al. 2018 (an odd run of 0 anywhere after an odd run of 1 is rejected);
//! `(aa)*` and `(ab)*` of Bhattamishra et al. 2020 (arXiv 2009.11264), who ask for all symbols that
//! may follow, here for states; flip-flop and states at every symbol of Liu et al. 2023 (arXiv
//! 2210.10749). Balanced words and the other languages are this project's choice.

mod config;
mod counts;
mod dfa;
mod languages;
mod own;

pub use config::{AutomatonAnswer, AutomatonConfig};
pub use languages::Language;

use crate::symbols::{Balanced, Counted, Row, RowLayout, Rule, UNSCORED};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use counts::Counts;
use dfa::Dfa;
use schema::Invalid;
use std::sync::Arc;

/// The words of one answer.
struct Words {
    dfa: Arc<Dfa>,
    answer: AutomatonAnswer,
    accepted: bool,
    counts: Counts,
}

impl Words {
    fn new(dfa: &Arc<Dfa>, answer: AutomatonAnswer, accepted: bool, longest: usize) -> Self {
        Self {
            dfa: Arc::clone(dfa),
            answer,
            accepted,
            counts: Counts::new(dfa, accepted, longest),
        }
    }

    fn answers(&self) -> usize {
        match self.answer {
            AutomatonAnswer::Accept => 2,
            AutomatonAnswer::States => self.dfa.next.len(),
        }
    }
}

impl Rule for Words {
    fn kind(&self) -> &'static str {
        match self.accepted {
            true => "automaton/accepted",
            false => "automaton/rejected",
        }
    }
    fn symbols(&self) -> u64 {
        let symbols = self.dfa.symbols.len();
        let read = match self.answer {
            AutomatonAnswer::Accept => symbols,
            AutomatonAnswer::States => symbols + 1,
        };
        read.max(self.answers()) as u64
    }
    fn choices(&self, n: usize) -> Vec<u64> {
        self.counts.choices(&self.dfa, n)
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let word = self.counts.word(&self.dfa, n, choices);
        match self.answer {
            AutomatonAnswer::Accept => Row::new(word, vec![i32::from(self.accepted)]),
            AutomatonAnswer::States => {
                let states = self.dfa.states(&word);
                let bos = self.dfa.symbols.len() as i32;
                let after =
                    |first: i32, rest: Vec<i32>| std::iter::once(first).chain(rest).collect();
                Row::new(after(bos, word), after(UNSCORED, states))
            }
        }
    }
    fn question_len(&self, n: usize) -> usize {
        match self.answer {
            AutomatonAnswer::Accept => n,
            AutomatonAnswer::States => n + 1,
        }
    }
    fn answer_len(&self, n: usize) -> usize {
        match self.answer {
            AutomatonAnswer::Accept => 1,
            AutomatonAnswer::States => n + 1,
        }
    }
    fn guess(&self) -> f64 {
        1.0 / self.answers() as f64
    }
    fn layout(&self) -> RowLayout {
        match self.answer {
            AutomatonAnswer::Accept => RowLayout::Sequence,
            AutomatonAnswer::States => RowLayout::InPlace,
        }
    }
    fn primary_metric(&self) -> &'static str {
        match self.answer {
            AutomatonAnswer::Accept => "exact_match",
            AutomatonAnswer::States => "token_accuracy",
        }
    }
    fn counted(&self) -> Counted {
        match self.answer {
            AutomatonAnswer::Accept => Counted::ANSWER,
            AutomatonAnswer::States => Counted {
                whole: "states are",
                tokens: "states,",
                first: "each is scored at its symbol",
                ..Counted::ANSWER
            },
        }
    }
    fn remark(&self) -> Option<String> {
        let text = "these numbers hold for accepted and for rejected words, which take turns; words \
                    of an answer that has fewer repeat";
        Some(text.to_owned())
    }
}

/// Refuses a length of the config at which all words have one answer.
fn check_both(sides: &[Words; 2], ctx: &BuildContext<'_>) -> Result<(), Invalid> {
    let mut lengths = ctx.test_lens.iter().chain([&ctx.train_len]);
    let is_missing = |side: &&Words, n: usize| side.choices(n)[0] == 0;
    let found = lengths.find_map(|&n| Some((n, sides.iter().find(|side| is_missing(side, n))?)));
    let Some((n, missing)) = found else {
        return Ok(());
    };
    let what = if missing.accepted {
        "rejected"
    } else {
        "accepted"
    };
    Err(Invalid::new(
        "answer",
        "accept",
        format!("asks nothing at length {n}, where every word is {what}"),
        "lengths with accepted and rejected words",
        "change train.train_len or eval.test_lens, or write answer = \"states\"",
    ))
}

impl TaskSpec for AutomatonConfig {
    const SUMMARY: &'static str = "whether a finite automaton accepts a word, or its states";
    fn examples() -> Vec<String> {
        let Some(dfa) = Language::FlipFlop.dfa() else {
            return vec![];
        };
        let word = [1, 2, 0, 1, 2];
        let names = word.map(|symbol| dfa.symbols[symbol as usize].as_str());
        let states = dfa.states(&word).into_iter().map(|state| state.to_string());
        let (names, states) = (names.join(" "), states.collect::<Vec<_>>().join(" "));
        let answer = i32::from(dfa.accepts(&word));
        vec![
            format!("BOS {names} SEP | {answer} EOS"),
            format!("BOS {names} | _ {states}"),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let dfa = match (self.language.dfa(), self.own_key()) {
            (None, _) => own::read(self)?,
            (Some(dfa), None) => dfa,
            (Some(_), Some(key)) => {
                let name = serde_json::to_string(&self.language).unwrap_or_default();
                let problem = format!("is a key of language = \"own\", and `language` is {name}");
                let hint = format!("write language = \"own\", or remove {key}");
                let allowed = "a language with a name, or an automaton";
                return Err(Invalid::new(key, "", problem, allowed, hint).into());
            }
        };
        let longest = ctx
            .test_lens
            .iter()
            .copied()
            .fold(ctx.train_len, usize::max);
        let dfa = Arc::new(dfa);
        let sides = [true, false].map(|accepted| Words::new(&dfa, self.answer, accepted, longest));
        if self.answer == AutomatonAnswer::Accept {
            check_both(&sides, ctx)?;
        } else {
            let states = dfa.next.len();
            let hint = "one state is the same after every symbol";
            schema::in_range("states", states, 2.., hint)?;
        }
        let bytes = sides.iter().map(|side| side.counts.bytes()).sum();
        let task = Balanced::new("automaton", sides, self.test_rows, bytes, ctx)?;
        Ok(Box::new(task))
    }
}
