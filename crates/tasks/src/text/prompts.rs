//! Prompts and answers from files of JSON lines: reading them, and mistakes with file and line.

use super::parts::Reader;
use super::sources;
use crate::{BuildContext, TaskError};
use schema::text;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A line: prompt and answer as they are written, and where.
pub(crate) struct Line {
    pub prompt: String,
    pub answer: String,
    /// File and line.
    pub place: String,
}

/// What a line looks like, and how much is read.
pub(crate) struct Keys<'a> {
    /// Key of the prompt.
    pub prompt: &'a str,
    /// Key of the answer.
    pub answer: &'a str,
    /// Whether a token is a word, so that white space alone is none.
    pub words: bool,
    /// Most bytes of all files together.
    pub max_bytes: u64,
}

/// The lines of the files that one key names.
pub(crate) struct Prompts {
    pub lines: Vec<Line>,
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Keys<'_> {
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

    /// Reads the lines of a file; empty ones are left out.
    fn parse(
        &self,
        path: &Path,
        name: &str,
        bytes: &[u8],
        lines: &mut Vec<Line>,
    ) -> Result<(), TaskError> {
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = index + 1;
            let refused = |(problem, hint): (String, String)| {
                TaskError::input(path, format!("line {number}: {problem}"), hint)
            };
            let Ok(line) = std::str::from_utf8(line) else {
                let problem = "is no UTF-8 text".to_owned();
                return Err(refused((problem, "save the file as UTF-8".to_owned())));
            };
            if line.trim().is_empty() {
                continue;
            }
            let [prompt, answer] = self.texts(line).map_err(refused)?;
            lines.push(Line {
                prompt,
                answer,
                place: format!("{}:{number}", text::excerpt(name)),
            });
        }
        Ok(())
    }

    /// Prompt and answer of a line, or what is wrong with it and what to do.
    fn texts(&self, line: &str) -> Result<[String; 2], (String, String)> {
        let example = format!(
            "write {{\"{}\": \"...\", \"{}\": \"...\"}}",
            self.prompt, self.answer
        );
        let object: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(line).map_err(|error| {
                let why = text::excerpt(&error.to_string());
                (format!("is no JSON object: {why}"), example.clone())
            })?;
        let text = |key: &str| match object.get(key) {
            Some(serde_json::Value::String(text)) if self.is_empty(text) => {
                Err((format!("`{key}` is empty"), example.clone()))
            }
            Some(serde_json::Value::String(text)) => Ok(text.clone()),
            Some(_) => Err((format!("`{key}` is no string"), example.clone())),
            None => {
                let keys = object.keys().take(8).map(|key| text::excerpt(key));
                let found = keys.collect::<Vec<_>>().join(", ");
                Err((
                    format!("has no `{key}`; it has: {found}"),
                    "set task.prompt and task.answer to the keys of your lines".to_owned(),
                ))
            }
        };
        Ok([text(self.prompt)?, text(self.answer)?])
    }

    /// Whether a text has no token.
    fn is_empty(&self, text: &str) -> bool {
        text.is_empty() || self.words && text.trim().is_empty()
    }
}

/// Refuses a test prompt that is trained on.
pub(crate) fn refuse_common(train: &[Line], test: &[Line]) -> Result<(), TaskError> {
    let hint = "remove one of the two: what was learned by heart tests nothing";
    refuse_both(train, test, "is trained on", hint)
}

/// Refuses a prompt for selection that results are scored on.
pub(crate) fn refuse_tested(test: &[Line], select: &[Line]) -> Result<(), TaskError> {
    let hint = "remove one of the two: what chose a value must not score it";
    refuse_both(test, select, "is tested on", hint)
}

fn refuse_both(these: &[Line], those: &[Line], what: &str, hint: &str) -> Result<(), TaskError> {
    let known: HashMap<&str, &str> = these
        .iter()
        .map(|line| (&*line.prompt, &*line.place))
        .collect();
    let common = those
        .iter()
        .find_map(|line| Some((line, known.get(&*line.prompt)?)));
    common.map_or(Ok(()), |(line, at)| {
        let problem = format!("the prompt of {} {what}: it is also {at}", line.place);
        Err(TaskError::Input {
            path: None,
            problem,
            hint: hint.to_owned(),
        })
    })
}
