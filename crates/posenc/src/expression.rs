//! Formulas of one line over numbers and names: what `formula` reads.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = signed (("*" | "/") signed)*
//! signed  = "-" signed | power
//! power   = atom ("^" signed)?
//! atom    = number | name | name "(" sum ("," sum)? ")" | "(" sum ")"
//! ```
//!
//! So `-d^2` is `-(d^2)` and `2^-d` is `2^(-d)`. A formula is evaluated on the host in f64, or on
//! tensors, whose gradients are those of their operations. Both are NaN where it is undefined: at
//! the root, logarithm or power of a negative number, except for an exponent that is written as a
//! whole number of at most [`MOST_WHOLE`].

use crate::tensors::power;
use burn::tensor::Tensor;
use std::collections::BTreeSet;
use std::ops::{Add, Div, Mul, Neg};

/// Longest formula, in characters, and deepest nesting: reading one is recursive.
const LONGEST: usize = 500;
const DEEPEST: usize = 50;
/// Largest number, as f32 holds it.
const LARGEST: f64 = 3.4e38;
/// Largest whole exponent of a negative base: a product of as many factors.
const MOST_WHOLE: f64 = 16.0;

/// A function of one or two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Cos,
    Exp,
    Log,
    Max,
    Min,
    Sigmoid,
    Sin,
    Softplus,
    Sqrt,
    Tanh,
}

impl Function {
    const ALL: [(&'static str, Self); 12] = [
        ("abs", Self::Abs),
        ("cos", Self::Cos),
        ("exp", Self::Exp),
        ("ln", Self::Log),
        ("log", Self::Log),
        ("max", Self::Max),
        ("min", Self::Min),
        ("sigmoid", Self::Sigmoid),
        ("sin", Self::Sin),
        ("softplus", Self::Softplus),
        ("sqrt", Self::Sqrt),
        ("tanh", Self::Tanh),
    ];

    fn arguments(self) -> usize {
        1 + usize::from(matches!(self, Self::Max | Self::Min))
    }

    /// The names of all functions.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, _)| *name)
    }
}

/// The operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
}

/// A formula that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Number(f64),
    Name(String),
    Negative(Box<Self>),
    Two(Operator, Box<[Self; 2]>),
    Call(Function, Vec<Self>),
}

/// Why a text is not a formula: what is wrong, and where, as a number of characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misread {
    pub(crate) problem: String,
    pub(crate) at: usize,
}

impl Expression {
    /// Reads a formula.
    pub(crate) fn read(text: &str) -> Result<Self, Misread> {
        let characters: Vec<char> = text.chars().collect();
        let mut reader = Reader {
            characters: &characters,
            at: 0,
            depth: 0,
        };
        if characters.len() > LONGEST {
            reader.at = LONGEST;
            return Err(reader.misread(format!("is longer than {LONGEST} characters")));
        }
        let read = reader.sum()?;
        match reader.peek() {
            None => Ok(read),
            Some(')') => Err(reader.misread("closes a bracket that was not opened")),
            Some(c) => Err(reader.misread(format!("has `{c}` where an operator is expected"))),
        }
    }

    /// What it is made of.
    fn parts(&self) -> &[Self] {
        match self {
            Self::Number(_) | Self::Name(_) => &[],
            Self::Negative(inner) => std::slice::from_ref(inner),
            Self::Call(_, arguments) => arguments,
            Self::Two(_, pair) => &**pair,
        }
    }

    /// The names it reads.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let mut names: BTreeSet<&str> = self.parts().iter().flat_map(Self::names).collect();
        if let Self::Name(name) = self {
            names.insert(name);
        }
        names
    }

    /// How many values are held at once while it is evaluated.
    pub(crate) fn depth(&self) -> usize {
        1 + self.parts().iter().map(Self::depth).max().unwrap_or(0)
    }

    /// Its value, with numbers and names as these functions have them.
    pub(crate) fn value<V: Value>(&self, number: &dyn Fn(f64) -> V, name: &dyn Fn(&str) -> V) -> V {
        let of = |inner: &Self| inner.value(number, name);
        match self {
            Self::Number(value) => number(*value),
            Self::Name(text) => name(text),
            Self::Negative(inner) => -of(inner),
            Self::Two(operator, pair) => {
                let left = of(&pair[0]);
                match (operator, pair[1].whole()) {
                    (Operator::Add, _) => left + of(&pair[1]),
                    (Operator::Subtract, _) => left + -of(&pair[1]),
                    (Operator::Multiply, _) => left * of(&pair[1]),
                    (Operator::Divide, _) => left / of(&pair[1]),
                    // A whole number as it is written: defined for negative bases too.
                    (Operator::Power, Some(exponent)) => left.pow_whole(exponent),
                    (Operator::Power, None) => left.pow(of(&pair[1])),
                }
            }
            Self::Call(function, arguments) => {
                let mut values = arguments.iter().map(of);
                let first = values.next().expect("a function has an argument");
                match (function, values.next()) {
                    (Function::Max, Some(second)) => first.larger(second),
                    (Function::Min, Some(second)) => -(-first).larger(-second),
                    _ => first.apply(*function),
                }
            }
        }
    }

    fn whole(&self) -> Option<i32> {
        match self {
            Self::Number(value) if value.fract() == 0.0 && value.abs() <= MOST_WHOLE => {
                Some(*value as i32)
            }
            Self::Negative(inner) => Some(-inner.whole()?),
            _ => None,
        }
    }
}

/// What formulas compute with.
pub(crate) trait Value:
    Neg<Output = Self> + Add<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Sized
{
    /// A base of at least 0 to any exponent.
    fn pow(self, exponent: Self) -> Self;
    fn pow_whole(self, exponent: i32) -> Self;
    fn larger(self, other: Self) -> Self;
    /// A function of one argument.
    fn apply(self, function: Function) -> Self;
}

impl Value for f64 {
    fn pow(self, exponent: Self) -> Self {
        if self < 0.0 {
            f64::NAN
        } else {
            libm::pow(self, exponent)
        }
    }
    fn pow_whole(self, exponent: i32) -> Self {
        libm::pow(self, f64::from(exponent))
    }
    fn larger(self, other: Self) -> Self {
        if self.is_nan() || other.is_nan() {
            f64::NAN
        } else {
            self.max(other)
        }
    }
    fn apply(self, function: Function) -> Self {
        match function {
            Function::Abs => self.abs(),
            Function::Cos => libm::cos(self),
            Function::Exp => libm::exp(self),
            Function::Log => libm::log(self),
            Function::Sigmoid => 1.0 / (1.0 + libm::exp(-self)),
            Function::Sin => libm::sin(self),
            Function::Softplus => self.max(0.0) + libm::log1p(libm::exp(-self.abs())),
            Function::Sqrt => self.sqrt(),
            Function::Tanh => libm::tanh(self),
            Function::Max | Function::Min => self,
        }
    }
}

impl Value for Tensor<4> {
    fn pow(self, exponent: Self) -> Self {
        let undefined = self.clone().lower_elem(0.0);
        power(self, exponent).mask_fill(undefined, f64::NAN)
    }
    fn pow_whole(self, exponent: i32) -> Self {
        let product = (1..exponent.abs()).fold(self.clone(), |product, _| product * self.clone());
        match exponent {
            0 => self.zeros_like() + 1.0,
            1.. => product,
            _ => product.recip(),
        }
    }
    fn larger(self, other: Self) -> Self {
        // The larger of a number and NaN would be the number.
        let undefined = (self.clone() + other.clone()).is_nan();
        self.max_pair(other).mask_fill(undefined, f64::NAN)
    }
    fn apply(self, function: Function) -> Self {
        match function {
            Function::Abs => self.abs(),
            Function::Cos => self.cos(),
            Function::Exp => self.exp(),
            Function::Log => self.log(),
            Function::Sigmoid => burn::tensor::activation::sigmoid(self),
            Function::Sin => self.sin(),
            Function::Softplus => burn::tensor::activation::softplus(self, 1.0),
            // The root of 0 has no derivative, and a distance of 0 needs none.
            Function::Sqrt => {
                let half = self.zeros_like() + 0.5;
                self.pow(half)
            }
            Function::Tanh => self.tanh(),
            Function::Max | Function::Min => self,
        }
    }
}

struct Reader<'a> {
    characters: &'a [char],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn misread(&self, problem: impl Into<String>) -> Misread {
        Misread {
            problem: problem.into(),
            at: self.at + 1,
        }
    }

    /// The next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        while self
            .characters
            .get(self.at)
            .is_some_and(|c| c.is_whitespace())
        {
            self.at += 1;
        }
        self.characters.get(self.at).copied()
    }

    /// Whether the next character is this one, which is then read.
    fn takes(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// The characters from here on that a function accepts.
    fn word(&mut self, accepts: impl Fn(char) -> bool) -> String {
        let rest = &self.characters[self.at..];
        let word: String = rest.iter().take_while(|c| accepts(**c)).collect();
        self.at += word.chars().count();
        word
    }

    /// The operator here, if it is one of these, which is then read.
    fn operator(&mut self, of: [(char, Operator); 2]) -> Option<Operator> {
        let found = of.into_iter().find(|(sign, _)| self.takes(*sign));
        found.map(|(_, operator)| operator)
    }

    fn sum(&mut self) -> Result<Expression, Misread> {
        let mut left = self.product()?;
        while let Some(operator) = self.operator([('+', Operator::Add), ('-', Operator::Subtract)])
        {
            left = Expression::Two(operator, Box::new([left, self.product()?]));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, Misread> {
        let mut left = self.signed()?;
        while let Some(operator) =
            self.operator([('*', Operator::Multiply), ('/', Operator::Divide)])
        {
            left = Expression::Two(operator, Box::new([left, self.signed()?]));
        }
        Ok(left)
    }

    fn deeper(&mut self) -> Result<(), Misread> {
        self.depth += 1;
        if self.depth > DEEPEST {
            let within = "brackets, signs and powers within each other";
            return Err(self.misread(format!("has more than {DEEPEST} {within}")));
        }
        Ok(())
    }

    fn signed(&mut self) -> Result<Expression, Misread> {
        self.deeper()?;
        let read = if self.takes('-') {
            Expression::Negative(Box::new(self.signed()?))
        } else {
            let base = self.atom()?;
            if self.takes('^') {
                Expression::Two(Operator::Power, Box::new([base, self.signed()?]))
            } else {
                base
            }
        };
        self.depth -= 1;
        Ok(read)
    }

    fn atom(&mut self) -> Result<Expression, Misread> {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                let inner = self.sum()?;
                self.closed(inner)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => {
                let start = self.at;
                let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
                if !self.takes('(') {
                    return Ok(Expression::Name(name));
                }
                let known = Function::ALL.iter().find(|(known, _)| *known == name);
                let Some((_, function)) = known else {
                    self.at = start;
                    return Err(self.misread(format!("calls `{name}`, which is not a function")));
                };
                let mut arguments = vec![self.sum()?];
                while self.takes(',') {
                    arguments.push(self.sum()?);
                }
                if arguments.len() != function.arguments() {
                    let (given, wanted) = (arguments.len(), function.arguments());
                    self.at = start;
                    let problem = format!("gives `{name}` {given} arguments, it takes {wanted}");
                    return Err(self.misread(problem));
                }
                self.closed(Expression::Call(*function, arguments))
            }
            Some(c) => Err(self.misread(format!("has `{c}` where a value is expected"))),
            None => Err(self.misread("ends where a value is expected")),
        }
    }

    fn closed(&mut self, inner: Expression) -> Result<Expression, Misread> {
        if self.takes(')') {
            Ok(inner)
        } else {
            Err(self.misread("lacks a `)`"))
        }
    }

    fn number(&mut self) -> Result<Expression, Misread> {
        let start = self.at;
        let mut text = self.word(|c| c.is_ascii_digit() || c == '.');
        let has_exponent = matches!(self.characters.get(self.at), Some('e' | 'E'));
        let signed = usize::from(matches!(self.characters.get(self.at + 1), Some('-' | '+')));
        let digit = self.characters.get(self.at + 1 + signed);
        if has_exponent && digit.is_some_and(char::is_ascii_digit) {
            text.extend(&self.characters[self.at..=self.at + signed]);
            self.at += 1 + signed;
            text.push_str(&self.word(|c| c.is_ascii_digit()));
        }
        let problem = match text.parse() {
            Ok(value) if value <= LARGEST => return Ok(Expression::Number(value)),
            Ok(_) => format!("has `{text}`, and numbers go to {LARGEST:e}"),
            Err(_) => format!("has `{text}`, which is not a number"),
        };
        self.at = start;
        Err(self.misread(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::{to_host, upload};
    use burn::tensor::Device;

    /// Values on the host and as tensors compute them.
    fn both(text: &str, x: f64) -> [f64; 2] {
        let read = Expression::read(text).expect("a formula");
        let one = |value: f64| upload::<4>(vec![value], [1, 1, 1, 1], &Device::default());
        let tensor = read.value(&one, &|_| one(x));
        [read.value(&|v| v, &|_| x), to_host(tensor)[0]]
    }

    #[test]
    fn what_is_undefined_is_nan_on_the_host_and_on_tensors() {
        for text in [
            "x^0.5",
            "x^(0-2)",
            "sqrt(x)",
            "log(x)",
            "max(1, sqrt(x))",
            "x^17",
        ] {
            let values = both(text, -1.0);
            assert!(
                values.iter().all(|value| value.is_nan()),
                "{text}: {values:?}"
            );
        }
        for (text, expected) in [
            ("x^16", 65536.0),
            ("x^3", -8.0),
            ("x^-1", -0.5),
            ("x^0", 1.0),
        ] {
            assert_eq!(both(text, -2.0), [expected; 2], "{text}");
        }
        assert_eq!(both("sqrt(x)", 0.0), [0.0; 2]);
    }
}
