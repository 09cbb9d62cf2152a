//! Prompts and answers from files of JSON lines: reading them, and mistakes with file and line.

use super::first_bytes::{BYTE_ORDER_MARK, FirstBytes};
use super::parts::Reader;
use super::sources;
use crate::{BuildContext, TaskError};
use schema::{Invalid, text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Lengths that a message lists.
const SHOWN: usize = 12;

/// A line: prompt and answer as they are written, and where.
pub(crate) struct Line {
    pub prompt: String,
    pub answer: String,
    /// What the field of lengths says, if there is one.
    pub length: Option<usize>,
    /// File and line.
    pub place: String,
}

/// What a line looks like, and how much is read.
pub(crate) struct Keys<'a> {
    /// Key of the prompt.
    pub prompt: &'a str,
    /// Key of the answer.
    pub answer: &'a str,
    /// Key of the length, if lengths are not counted in tokens.
    pub length: Option<&'a str>,
    /// Whether a token is a word, so that white space alone is none.
    pub words: bool,
    /// Most bytes of all files together.
    pub max_bytes: u64,
}

/// What is wrong with a line, and what to do.
type Refused = (String, String);

/// The lines of the files that one key names.
pub(crate) struct Prompts {
    pub lines: Vec<Line>,
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

/// What can be trained on and tested, and yet cannot be learned or scored. `is_new`: whether the
/// answer of a line has a token that no line to train on has.
pub(crate) fn line_notes(
    train: &[Line],
    test: &[Line],
    is_new: impl Fn(&Line) -> bool,
) -> Vec<String> {
    let is_new = |line: &&Line| is_new(line);
    let new = test.iter().find(is_new).map(|line| {
        let (count, of) = (test.iter().filter(is_new).count(), test.len());
        format!(
            "{count} of {of} answers to test have a token that no line to train on has, the first \
             at {}: no model can get them right",
            line.place
        )
    });
    let mut known: HashMap<&str, &Line> = HashMap::new();
    let twice = train.iter().find_map(|line| {
        let first = *known.entry(&line.prompt).or_insert(line);
        let (place, first_place) = (&line.place, &first.place);
        (first.answer != line.answer).then(|| {
            format!(
                "the prompt of {place} has another answer at {first_place}: a model can learn one \
                 of them at most"
            )
        })
    });
    new.into_iter().chain(twice).collect()
}

impl Keys<'_> {
    /// Refuses keys that no line has.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let length = self.length.unwrap_or("length");
        let keys = [
            ("prompt", self.prompt),
            ("answer", self.answer),
            ("length", length),
        ];
        let Some((key, _)) = keys.iter().find(|(_, name)| name.is_empty()) else {
            return Ok(());
        };
        let hint = format!("write {key} = \"{key}\", or what your lines call it");
        Err(Invalid::new(
            *key,
            "\"\"",
            "is empty",
            "a key of your lines",
            hint,
        ))
    }

    /// Reads the files that `key` names, and adds their bytes to the identity of the task.
    pub(crate) fn read(
        &self,
        key: &str,
        patterns: &[String],
        ctx: &BuildContext<'_>,
        hasher: &mut blake3::Hasher,
    ) -> Result<Prompts, TaskError> {
        let files = sources::find(patterns, key, &ctx.config_dir)?;
        let mut reader = Reader::new(&files, self.max_bytes)?;
        // Lengths come before contents, so that no two sets of files give the same bytes to hash.
        let number = |n: usize| (n as u64).to_le_bytes();
        hasher.update(key.as_bytes()).update(&number(files.len()));
        let mut part = Prompts {
            lines: Vec::new(),
            files: files.len(),
            bytes: 0,
        };
        for file in &files {
            let mut bytes = Vec::new();
            reader.read(file, &mut bytes)?;
            hasher.update(&number(bytes.len())).update(&bytes);
            part.bytes += bytes.len() as u64;
            self.parse(&file.path, &file.name, &bytes, &mut part.lines)?;
        }
        if part.lines.is_empty() {
            let (path, hint) = (&files[0].path, "write one JSON object on each line");
            return Err(TaskError::input(path, "holds no line", hint));
        }
        Ok(part)
    }

    /// Reads the lines of a file; empty ones are left out. A file that is one JSON array has its
    /// rows for lines.
    fn parse(
        &self,
        path: &Path,
        name: &str,
        bytes: &[u8],
        lines: &mut Vec<Line>,
    ) -> Result<(), TaskError> {
        let refused = |(problem, hint): Refused| TaskError::input(path, problem, hint);
        if let Some(found) = FirstBytes::of(bytes).filter(|found| !found.is_text()) {
            return Err(refused(found.refused("JSON lines")));
        }
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let mut push = |(number, line): (usize, &str), what: &str| {
            let (prompt, answer, length) = self
                .texts(line)
                .map_err(|(problem, hint)| refused((format!("{what}{number}: {problem}"), hint)))?;
            lines.push(Line {
                prompt,
                answer,
                length,
                place: format!("{}:{number}", text::excerpt(name)),
            });
            Ok(())
        };
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            let rows = array(bytes).map_err(|why| {
                let problem = format!("begins with `[` but is not a JSON array of objects: {why}");
                refused((problem, format!("write one on each line: {}", self.row())))
            })?;
            let mut numbered = (1..).zip(rows);
            return numbered.try_for_each(|row| push(row, "row "));
        }
        for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let Ok(line) = std::str::from_utf8(line) else {
                let problem = format!("line {number}: is not UTF-8");
                return Err(refused((problem, "save the file as UTF-8".to_owned())));
            };
            if !line.trim().is_empty() {
                push((number, line), "line ")?;
            }
        }
        Ok(())
    }

    /// What a line looks like.
    fn row(&self) -> String {
        let length = self.length.map(|key| format!(", \"{key}\": 1"));
        format!(
            "{{\"{}\": \"...\", \"{}\": \"...\"{}}}",
            self.prompt,
            self.answer,
            length.unwrap_or_default()
        )
    }

    /// Prompt, answer and length of a line.
    fn texts(&self, line: &str) -> Result<(String, String, Option<usize>), Refused> {
        let object: BTreeMap<String, Value> = serde_json::from_str(line).map_err(|error| {
            // Of the one line that was given.
            let why = text::excerpt(&error.to_string().replace(" at line 1 column", " at column"));
            let hint = match error.is_eof() {
                true => "write a whole object on each line: `jq -c .` does".to_owned(),
                false => format!("write {}", self.row()),
            };
            (format!("is not a JSON object: {why}"), hint)
        })?;
        let value = |key: &str| {
            object.get(key).ok_or_else(|| {
                let keys = object.keys().take(8).map(|key| text::excerpt(key));
                let found = keys.collect::<Vec<_>>().join(", ");
                let hint = match self.length {
                    Some(length) if length == key => "set task.length to a key of your lines",
                    _ => "set task.prompt and task.answer to the keys of your lines",
                };
                (format!("has no `{key}`; it has: {found}"), hint.to_owned())
            })
        };
        let text = |key: &str| match words(value(key)?, line) {
            Ok(text) if self.is_empty(&text) => {
                Err((format!("`{key}` is empty"), format!("write {}", self.row())))
            }
            Ok(text) => Ok(text),
            Err(what) => Err((
                format!("`{key}` is {what}"),
                "write a text, a number, or a list of them".to_owned(),
            )),
        };
        let length = |key: &str| {
            let written = words(value(key)?, line).unwrap_or_default();
            written.trim().parse().map_err(|_| {
                let problem = format!("`{key}` is not a whole number: {}", text::excerpt(&written));
                (problem, "task.length names a field of numbers".to_owned())
            })
        };
        Ok((
            text(self.prompt)?,
            text(self.answer)?,
            self.length.map(length).transpose()?,
        ))
    }

    /// Whether a text has no token.
    fn is_empty(&self, text: &str) -> bool {
        text.is_empty() || self.words && text.trim().is_empty()
    }
}

/// The texts of the objects of an array, or what is wrong with it.
fn array(bytes: &[u8]) -> Result<Vec<&str>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut rest = text.trim_start().strip_prefix('[').unwrap_or_default();
    let mut rows = Vec::new();
    loop {
        rest = rest.trim_start();
        if rows.is_empty() && rest.trim_end() == "]" {
            return Ok(rows);
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
        match values.next() {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let why = text::excerpt(&error.to_string());
                return Err(format!("row {}: {why}", rows.len() + 1));
            }
            None => return Err("it ends without `]`".to_owned()),
        }
        let (row, after) = rest.split_at(values.byte_offset());
        rows.push(row);
        rest = match after.trim_start().split_at_checked(1) {
            Some((",", after)) => after,
            Some(("]", after)) if after.trim().is_empty() => return Ok(rows),
            _ => return Err(format!("no `,` or `]` after row {}", rows.len())),
        };
    }
}

/// A value as a text: numbers as they are written in `line`, lists as words; or what else it is.
fn words(value: &Value, line: &str) -> Result<String, &'static str> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(items) => {
            let items = items.iter().map(|item| match item {
                Value::Array(_) => Err("a list of lists"),
                item => words(item, line),
            });
            Ok(items.collect::<Result<Vec<_>, _>>()?.join(" "))
        }
        Value::Object(_) => Err("an object"),
        Value::Null => Err("null"),
        Value::Bool(_) | Value::Number(_) => {
            let text = value.to_string();
            // The parser keeps no digits beyond those of a double, and no zeros at the end.
            let is_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
            let is_kept =
                !value.is_f64() || line.split(|c| !is_number(c)).any(|written| written == text);
            is_kept
                .then_some(text)
                .ok_or("a number that needs quotes to keep its digits")
        }
    }
}

/// What becomes of prompts that are in the training and in the test files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// They are refused.
    #[default]
    Refuse,
    /// They are not trained on.
    Drop,
}

impl Overlap {
    /// Holds the files apart: returns how many lines of the training files were left out. `words`:
    /// prompts that differ only in the space between words are one.
    pub(crate) fn part(
        self,
        (train, test, select): (&mut Vec<Line>, &[Line], Option<&mut Vec<Line>>),
        words: bool,
        length: impl Fn(&Line) -> usize + Copy,
    ) -> Result<usize, TaskError> {
        let drop = |lines: &mut Vec<Line>, others: &[Line]| {
            let found = common(lines, others, words);
            for (at, _) in found.iter().rev() {
                lines.remove(*at);
            }
            found.len()
        };
        let mut dropped = 0;
        let trained = "is trained on";
        let memorised = "remove one of the two: memorised prompts test nothing; overlap = \"drop\" \
                         does not train on them";
        let chose = "remove one of the two: prompts that chose a value must not score it; overlap \
                     = \"drop\" leaves them out of the selection";
        if let Some(select) = select {
            match self {
                Overlap::Refuse => {
                    let refuse = |others: &[Line], why| {
                        refuse_common(("select", select), others, why, words, length)
                    };
                    refuse(train, (trained, memorised))?;
                    refuse(test, ("is tested on", chose))?;
                }
                Overlap::Drop => {
                    drop(select, test);
                    dropped += drop(train, select);
                }
            }
        }
        match self {
            Overlap::Refuse => {
                let why = (trained, memorised);
                refuse_common(("test", test), train, why, words, length)?;
            }
            Overlap::Drop => dropped += drop(train, test),
        }
        Ok(dropped)
    }
}

/// What is read of a prompt: of words not the space between them.
fn read(line: &Line, words: bool) -> Cow<'_, str> {
    match words {
        true => line
            .prompt
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .into(),
        false => (&*line.prompt).into(),
    }
}

/// The prompts of `lines` that are among `others` too: which lines, and where the other one is.
fn common<'a>(lines: &[Line], others: &'a [Line], words: bool) -> Vec<(usize, &'a str)> {
    let known: HashMap<Cow<'_, str>, &str> = others
        .iter()
        .map(|line| (read(line, words), &*line.place))
        .collect();
    let places = lines.iter().map(|line| known.get(&*read(line, words)));
    let found = places.enumerate();
    found
        .filter_map(|(at, place)| Some((at, *place?)))
        .collect()
}

/// Refuses prompts of `lines`, the files of `key`, that are among `others`, with their number at
/// each length.
fn refuse_common(
    (key, lines): (&str, &[Line]),
    others: &[Line],
    (what, hint): (&str, &str),
    words: bool,
    length: impl Fn(&Line) -> usize,
) -> Result<(), TaskError> {
    let found = common(lines, others, words);
    let Some((first, at)) = found.first() else {
        return Ok(());
    };
    let mut by_length: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, _) in &found {
        *by_length.entry(length(&lines[*at])).or_default() += 1;
    }
    let shown = by_length.iter().take(SHOWN);
    let mut shown: Vec<String> = shown
        .map(|(n, count)| format!("{count} of length {n}"))
        .collect();
    if by_length.len() > SHOWN {
        shown.push("...".to_owned());
    }
    let problem = format!(
        "the prompt of {} {what}: it is also {at}; {} of {} prompts in all ({})",
        lines[*first].place,
        found.len(),
        lines.len(),
        shown.join(", ")
    );
    Err(Invalid::new(key, "", problem, "", hint).into())
}
