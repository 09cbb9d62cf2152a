//! Grid: a square of symbols, read row by row, is transposed, flooded from its first cell, or asked
//! for one cell.
//!
//! Examples (2 x 2): `BOS a b c d SEP | a c b d EOS` (transpose: written column by column), with
//! `answer = "flood"` `BOS a a b a SEP | # # b # EOS` (all cells of the first cell's symbol that
//! are joined to it by their sides become `#`), and with `answer = "cell"` `BOS a a b a 1 0 SEP | b
//! EOS` (row 1, column 0, counted from 0). Length n is the side, so the grid has n * n symbols; a
//! cell's row and column have as many decimal digits each as n has. The model reads the grid as one
//! line. It must learn where rows end, or read it from an encoding of two axes. The task gives
//! every token a row and a column, as if written on squared paper: BOS in row 0, the grid from row
//! 1 on, the question's digits and SEP in the next row, the answer below.
//!
//! Held out: by choices (grid and cell).
//!
//! Source: this project, as a task for encodings of two axes.

use crate::symbols::{Row, Rule, SymbolTask, check_alphabet, digits, digits_len, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// What is asked about a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridAnswer {
    /// The grid with rows and columns exchanged.
    Transpose,
    /// The grid with the first cell's area marked.
    Flood,
    /// The symbol of one cell.
    Cell,
}

struct Grid {
    alphabet: u64,
    answer: GridAnswer,
}

impl Grid {
    /// Symbol of the first letter: symbols before are the digits of places.
    fn first(&self) -> i32 {
        if self.answer == GridAnswer::Cell {
            10
        } else {
            0
        }
    }
    /// The symbol of flooded cells.
    fn flooded(&self) -> i32 {
        self.alphabet as i32
    }
}

fn transpose(n: usize, grid: &[i32]) -> Vec<i32> {
    (0..n * n)
        .map(|place| grid[place % n * n + place / n])
        .collect()
}

fn flood(n: usize, grid: &[i32], mark: i32) -> Vec<i32> {
    let (mut flooded, mut open) = (grid.to_vec(), vec![0]);
    while let Some(place) = open.pop() {
        // A marked cell has another symbol than the first, so no cell is flooded twice.
        if flooded[place] != grid[0] {
            continue;
        }
        flooded[place] = mark;
        let (row, column) = (place / n, place % n);
        open.extend((row > 0).then(|| place - n));
        open.extend((row + 1 < n).then_some(place + n));
        open.extend((column > 0).then(|| place - 1));
        open.extend((column + 1 < n).then_some(place + 1));
    }
    flooded
}

impl Rule for Grid {
    fn kind(&self) -> &'static str {
        "grid"
    }
    fn unit(&self) -> &'static str {
        "rows"
    }
    fn symbols(&self) -> u64 {
        let marks = if self.answer == GridAnswer::Flood {
            1
        } else {
            0
        };
        self.first() as u64 + self.alphabet + marks
    }
    /// The grid, then the row and column where a cell is asked for.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![self.alphabet; n * n];
        if self.answer == GridAnswer::Cell {
            choices.extend([n as u64; 2]);
        }
        choices
    }
    fn question_len(&self, n: usize) -> usize {
        n * n
            + if self.answer == GridAnswer::Cell {
                2 * digits_len(n)
            } else {
                0
            }
    }
    fn answer_len(&self, n: usize) -> usize {
        if self.answer == GridAnswer::Cell {
            1
        } else {
            n * n
        }
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let mut question: Vec<i32> = choices[..n * n]
            .iter()
            .map(|&letter| self.first() + letter as i32)
            .collect();
        let answer = match (self.answer, &choices[n * n..]) {
            (GridAnswer::Cell, &[row, column]) => {
                let (row, column) = (row as usize, column as usize);
                let cell = question[row * n + column];
                question.extend(
                    [row, column]
                        .map(|place| digits(place, digits_len(n)))
                        .concat(),
                );
                vec![cell]
            }
            (GridAnswer::Flood, _) => flood(n, &question, self.flooded()),
            _ => transpose(n, &question),
        };
        Row::new(question, answer)
    }
    fn axes(&self, n: usize) -> Vec<Vec<f64>> {
        // The tokens read: BOS, the grid, digits with SEP, the answer. EOS is only predicted.
        let asked = self.question_len(n) - n * n + 1;
        let square =
            |first: usize, cells: usize| (0..cells).map(move |cell| (first + cell / n, cell % n));
        let line = |row: usize, cells: usize| (0..cells).map(move |column| (row, column));
        let places = line(0, 1)
            .chain(square(1, n * n))
            .chain(line(n + 1, asked))
            .chain(square(n + 2, self.answer_len(n)));
        let (rows, columns) = places
            .map(|(row, column)| (row as f64, column as f64))
            .unzip();
        vec![rows, columns]
    }
    fn guess(&self) -> f64 {
        match self.answer {
            GridAnswer::Flood => 1.0 / (self.alphabet + 1) as f64,
            GridAnswer::Transpose | GridAnswer::Cell => 1.0 / self.alphabet as f64,
        }
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.first() {
            letter if letter == self.flooded() => "#".to_string(),
            letter @ 0..26 => char::from(b'a' + letter as u8).to_string(),
            letter if letter >= 26 => format!("s{letter}"),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "grid"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct GridConfig {
    /// Number of different symbols in a grid, 2 to 4096.
    #[default = 4]
    pub alphabet: u64,
    /// What is asked about a grid.
    #[default(GridAnswer::Transpose)]
    pub answer: GridAnswer,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for GridConfig {
    const SUMMARY: &'static str = "a square of symbols: transpose it, flood it, or find a cell";
    fn examples() -> Vec<String> {
        let row = |answer, choices: &[u64]| {
            let rule = Grid {
                alphabet: 4,
                answer,
            };
            show(&rule, &rule.row(2, choices))
        };
        vec![
            row(GridAnswer::Transpose, &[0, 1, 2, 3]),
            row(GridAnswer::Flood, &[0, 0, 1, 0]),
            row(GridAnswer::Cell, &[0, 0, 1, 0, 1, 0]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        SymbolTask::boxed(
            Grid {
                alphabet: self.alphabet,
                answer: self.answer,
            },
            self.test_rows,
            ctx,
        )
    }
}
