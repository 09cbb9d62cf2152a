//! A table by columns.

/// A table; all columns have the same number of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnTable {
    /// What it is called; the name of its file without an extension.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<Column>,
}

/// A named column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, unique in its table.
    pub name: String,
    /// Its values, none where there is no value.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers.
    Int(Vec<Option<i64>>),
    /// Numbers.
    Float(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ColumnTable {
    /// A table without columns.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            columns: Vec::new(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    pub(super) fn ints(&mut self, name: &str, values: impl Iterator<Item = Option<u64>>) {
        let whole = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        self.push(name, Values::Int(values.map(whole).collect()));
    }

    pub(super) fn floats(&mut self, name: &str, values: impl Iterator<Item = Option<f64>>) {
        self.push(name, Values::Float(values.collect()));
    }

    pub(super) fn texts(&mut self, name: &str, values: impl Iterator<Item = Option<String>>) {
        self.push(name, Values::Text(values.collect()));
    }

    fn push(&mut self, name: &str, values: Values) {
        self.columns.push(Column {
            name: name.to_owned(),
            values,
        });
    }
}
