//! Variable tracking: variables get a number or the value of another variable somewhere in long
//! filler, and the answer is every variable that has the number asked for.
//!
//! Example (1 chain of 2 copies, 1 digit, 3 filler tokens): `BOS set v4 7 f0 f1 set v2 v4 f2 set v6
//! v2 7 SEP | v4 v2 v6 EOS`. Length n is the number of filler tokens. A chain is a variable that
//! gets a number, and `hops` others that each copy the one before; its statements come in this
//! order, after numbers of filler tokens that are uniform from 0 to n. Chains share the filler, and
//! statements at one place keep the order of the chains. The number asked for comes last, and the
//! answer is its chain from the first variable to the last. The filler repeats the same few tokens
//! again and again, is random (`random_filler`), or is n consecutive bytes of a real text (`text`),
//! as in `passkey`.
//!
//! Held out: by hash (several draws make one row).
//!
//! Source: variable tracking of RULER (Hsieh et al. 2024, arXiv 2404.06654; NVIDIA/RULER,
//! `variable_tracking.py`): 4 hops, 1 chain and numbers of 5 digits there. In tokens instead of
//! English here, and always in one order, where RULER accepts any.

use super::filler::{FILLER, Filler, FillerKeys};
use super::needles::inserted;
use crate::symbols::{HeldOut, Row, Rule, distinct, show};
use crate::text::Haystack;
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Symbols 0 to 9 are the digits.
const SET: i32 = 10;
const FIRST_VARIABLE: i32 = 11;

struct VariableTracking {
    variables: u64,
    chains: usize,
    hops: usize,
    digits: usize,
    filler: Filler,
}

impl VariableTracking {
    /// Variables of a row.
    fn named(&self) -> usize {
        self.chains * (self.hops + 1)
    }
    fn first_filler(&self) -> i32 {
        FIRST_VARIABLE + self.variables as i32
    }
    /// A number as its digits, the first one first.
    fn digits_of(&self, number: u64) -> Vec<i32> {
        let digit = |place: usize| (number / 10u64.pow(place as u32) % 10) as i32;
        (0..self.digits).rev().map(digit).collect()
    }
}

impl Rule for VariableTracking {
    fn kind(&self) -> &'static str {
        "variable_tracking"
    }
    fn unit(&self) -> &'static str {
        self.filler.unit()
    }
    fn symbols(&self) -> u64 {
        FIRST_VARIABLE as u64 + self.variables + self.filler.symbols()
    }
    /// Variables, numbers, depths, the chain asked for, and the filler if it is drawn.
    fn choices(&self, n: usize) -> Vec<u64> {
        let numbers = 10u64.pow(self.digits as u32);
        // Without replacement: every choice is among one fewer (`distinct` turns them into ids).
        let mut choices: Vec<u64> = (0..self.named() as u64)
            .map(|taken| self.variables - taken)
            .collect();
        choices.extend((0..self.chains as u64).map(|taken| numbers - taken));
        choices.extend(vec![n as u64 + 1; self.named()]);
        choices.push(self.chains as u64);
        choices.extend(self.filler.choices(n));
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        n + self.chains * (2 + self.digits + 3 * self.hops) + self.digits
    }
    fn answer_len(&self, _: usize) -> usize {
        self.hops + 1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (variables, rest) = choices.split_at(self.named());
        let (numbers, rest) = rest.split_at(self.chains);
        let (depths, rest) = rest.split_at(self.named());
        let (asked, drawn) = (rest[0] as usize, &rest[1..]);
        let variables: Vec<i32> = distinct(variables)
            .into_iter()
            .map(|variable| FIRST_VARIABLE + variable as i32)
            .collect();
        let chains: Vec<&[i32]> = variables.chunks(self.hops + 1).collect();
        let numbers: Vec<Vec<i32>> = distinct(numbers)
            .into_iter()
            .map(|number| self.digits_of(number))
            .collect();
        let mut parts = Vec::new();
        for (chain, depths) in depths.chunks(self.hops + 1).enumerate() {
            let mut depths: Vec<usize> = depths.iter().map(|&depth| depth as usize).collect();
            depths.sort_unstable();
            for (at, depth) in depths.into_iter().enumerate() {
                let mut statement = vec![SET, chains[chain][at]];
                match at.checked_sub(1) {
                    None => statement.extend(&numbers[chain]),
                    Some(before) => statement.push(chains[chain][before]),
                }
                parts.push((depth, statement));
            }
        }
        let filler = self.filler.tokens(n, drawn, self.first_filler());
        let mut question = inserted(&filler, &parts);
        question.extend(&numbers[asked]);
        Row::new(question, chains[asked].to_vec())
    }
    fn guess(&self) -> f64 {
        1.0 / self.variables as f64
    }
    fn remark(&self) -> Option<String> {
        self.filler.remark()
    }
    fn name(&self, symbol: i32) -> String {
        let first_filler = self.first_filler();
        match symbol {
            SET => "set".to_string(),
            _ if symbol >= first_filler => self.filler.name(symbol - first_filler),
            FIRST_VARIABLE.. => format!("v{}", symbol - FIRST_VARIABLE),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "variable_tracking"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct VariableTrackingConfig {
    /// Number of different variables, 2 to 4096.
    #[default = 64]
    pub variables: u64,
    /// Number of chains in one example, 1 to 16.
    #[default = 1]
    pub chains: u64,
    /// Number of copies in a chain, 1 to 16; all chains together have at most `variables`.
    #[default = 4]
    pub hops: u64,
    /// Number of digits of a number, 2 to 9.
    #[default = 5]
    pub digits: u64,
    /// Number of different filler tokens, 1 to 4096.
    #[default(FILLER)]
    pub filler: u64,
    /// Whether every filler token is drawn, instead of all of them in turn again and again.
    pub random_filler: bool,
    /// Real text instead of filler tokens: a table with keys of the task `text` that say which;
    /// `{}` is the text that the program carries. Lengths then count bytes of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Haystack>,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl VariableTrackingConfig {
    fn filler(&self) -> FillerKeys<'_> {
        FillerKeys {
            filler: self.filler,
            random_filler: self.random_filler,
            text: self.text.as_ref(),
        }
    }
    fn rule(&self, filler: Filler) -> VariableTracking {
        VariableTracking {
            variables: self.variables,
            chains: self.chains as usize,
            hops: self.hops as usize,
            digits: self.digits as usize,
            filler,
        }
    }
}

impl TaskSpec for VariableTrackingConfig {
    const SUMMARY: &'static str =
        "all variables that hold a given number after a chain of assignments, in long filler";
    fn examples() -> Vec<String> {
        let row = |chains, hops, choices: &[u64]| {
            let config = Self {
                chains,
                hops,
                digits: 2,
                filler: 3,
                ..Self::default()
            };
            let rule = config.rule(config.filler().plain());
            show(&rule, &rule.row(3, choices))
        };
        vec![
            row(1, 2, &[4, 2, 6, 17, 3, 0, 2, 0]),
            row(2, 1, &[4, 2, 6, 7, 17, 20, 0, 2, 1, 3, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "the number of different variables";
        in_range("variables", self.variables, 2..=4096, hint)?;
        in_range("chains", self.chains, 1..=16, "chains share the filler")?;
        let most = (self.variables / self.chains)
            .saturating_sub(1)
            .clamp(1, 16);
        let hint = "every chain has one variable more than copies, and all are distinct";
        in_range("hops", self.hops, 1..=most, hint)?;
        let hint = "chains that do not fit have fewer copies; raise `variables`";
        let fitting = self.variables / (self.hops + 1);
        in_range("chains", self.chains, 1..=fitting.max(1), hint)?;
        in_range("digits", self.digits, 2..=9, "the digits of each number")?;
        let rule = |filler| self.rule(filler);
        self.filler().task(rule, self.test_rows, ctx)
    }
}
