//! Flip-flop: one bit of memory. Instructions write a bit, read it, or are to be ignored; the
//! answer to a read is the bit that was written last.
//!
//! Example: `w 1 i 0 r 1 i 1 w 0 r | _ _ _ _ 1 _ _ _ _ _ 0`, where `_` does not count: there is no
//! BOS, SEP or EOS, a bit is predicted at its read, and is then the next token. With `answer =
//! "last"` only the last read is asked for: `BOS w 1 i 0 r 1 i 1 w 0 r SEP | 0 EOS`. Length n is
//! the number of instructions, at least 2; the question has 2n - 1 symbols. The first instruction
//! writes and the last one reads. The others ignore with probability `ignore` and write or read
//! with equal chance otherwise. The bits of writes and of what is ignored are uniform.
//!
//! Held out: by hash (several draws make one row).
//!
//! Source: flip-flop language modeling of Liu et al. 2023 (arXiv 2306.00946), FFL(p) with p =
//! `ignore`: trained at 0.8, the default here, tested at 0.8, 0.98 and 0.1, with 512 tokens, which
//! are 256 instructions; the error of reads is reported. There every token is a target in training,
//! here the bits of reads alone.

use crate::symbols::{
    Counted, HeldOut, Row, RowLayout, Rule, SymbolTask, UNSCORED, check_shortest, show,
};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

const WRITE: i32 = 2;
const READ: i32 = 3;
const IGNORE: i32 = 4;
/// Values of a choice that stands for a number in `[0, 1)`.
const UNIT: u64 = 1 << 53;

/// Which reads are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlipFlopAnswer {
    /// Each of them, where it stands.
    All,
    /// The last one, after the whole string.
    Last,
}

struct FlipFlop {
    ignore: f64,
    answer: FlipFlopAnswer,
}

impl FlipFlop {
    fn instructions(n: usize) -> usize {
        n.max(2)
    }

    /// The row of these instructions, each with a bit; the bits of reads are not looked at.
    fn of(&self, instructions: &[(i32, i32)]) -> Row {
        let (mut question, mut labels, mut memory) = (Vec::new(), Vec::new(), 0);
        for &(instruction, bit) in instructions {
            let is_read = instruction == READ;
            if instruction == WRITE {
                memory = bit;
            }
            question.extend([instruction, if is_read { memory } else { bit }]);
            labels.extend([if is_read { memory } else { UNSCORED }, UNSCORED]);
        }
        // The bit after the last read is only a label.
        question.pop();
        labels.pop();
        let answer = match self.answer {
            FlipFlopAnswer::All => labels,
            FlipFlopAnswer::Last => vec![memory],
        };
        Row::new(question, answer)
    }
}

impl Rule for FlipFlop {
    fn kind(&self) -> &'static str {
        "flip_flop"
    }
    fn unit(&self) -> &'static str {
        "instructions"
    }
    fn symbols(&self) -> u64 {
        5
    }
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        check_shortest("flip_flop", 2, n)
    }
    /// The bit of the first write, then an instruction and a bit for each but the last.
    fn choices(&self, n: usize) -> Vec<u64> {
        let between = [UNIT, 2].repeat(Self::instructions(n) - 2);
        [2].into_iter().chain(between).collect()
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        2 * Self::instructions(n) - 1
    }
    fn answer_len(&self, n: usize) -> usize {
        match self.answer {
            FlipFlopAnswer::All => self.question_len(n),
            FlipFlopAnswer::Last => 1,
        }
    }
    fn row(&self, _: usize, choices: &[u64]) -> Row {
        let between = choices[1..].chunks(2).map(|choice| {
            let number = choice[0] as f64 / UNIT as f64;
            let instruction = if number < self.ignore {
                IGNORE
            } else if number < 0.5 * (1.0 + self.ignore) {
                WRITE
            } else {
                READ
            };
            (instruction, choice[1] as i32)
        });
        let first = [(WRITE, choices[0] as i32)].into_iter();
        let all: Vec<_> = first.chain(between).chain([(READ, 0)]).collect();
        self.of(&all)
    }
    fn guess(&self) -> f64 {
        0.5
    }
    fn layout(&self) -> RowLayout {
        match self.answer {
            FlipFlopAnswer::All => RowLayout::Within,
            FlipFlopAnswer::Last => RowLayout::Sequence,
        }
    }
    fn primary_metric(&self) -> &'static str {
        match self.answer {
            FlipFlopAnswer::All => "token_accuracy",
            FlipFlopAnswer::Last => "exact_match",
        }
    }
    fn counted(&self) -> Counted {
        match self.answer {
            FlipFlopAnswer::All => Counted {
                whole: "bits after reads are",
                tokens: "bits after reads,",
                first: "each is scored at its read",
                ..Counted::ANSWER
            },
            FlipFlopAnswer::Last => Counted::ANSWER,
        }
    }
    fn name(&self, symbol: i32) -> String {
        match symbol {
            WRITE => "w".to_string(),
            READ => "r".to_string(),
            IGNORE => "i".to_string(),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "flip_flop"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct FlipFlopConfig {
    /// Probability that an instruction between the first and the last is to be ignored, 0 to 0.999.
    #[default = 0.8]
    pub ignore: f64,
    /// Which reads are answered.
    #[default(FlipFlopAnswer::All)]
    pub answer: FlipFlopAnswer,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for FlipFlopConfig {
    const SUMMARY: &'static str = "the bit that was written last, at every read";
    fn examples() -> Vec<String> {
        let instructions = [
            (WRITE, 1),
            (IGNORE, 0),
            (READ, 0),
            (IGNORE, 1),
            (WRITE, 0),
            (READ, 0),
        ];
        let rule = |answer| FlipFlop {
            ignore: 0.8,
            answer,
        };
        let (all, last) = (rule(FlipFlopAnswer::All), rule(FlipFlopAnswer::Last));
        let row = all.of(&instructions);
        let names = |symbols: &[i32]| {
            let name = |&symbol: &i32| match symbol {
                UNSCORED => "_".to_string(),
                _ => all.name(symbol),
            };
            symbols.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        vec![
            format!("{} | {}", names(&row.question), names(&row.answer)),
            show(&last, &last.of(&instructions)),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "published strings have 0.8, 0.98 and 0.1";
        in_range("ignore", self.ignore, 0.0..=0.999, hint)?;
        let rule = FlipFlop {
            ignore: self.ignore,
            answer: self.answer,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
