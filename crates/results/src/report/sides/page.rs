//! The comparison as Markdown.

use super::SideBySide;
use super::compared::{ComparedSetting, Score};
use super::text::about;
use super::verdict::Verdict;
use crate::report::render::escape;
use crate::text::printable;

impl SideBySide {
    /// GitHub-flavoured Markdown.
    pub fn markdown(&self) -> String {
        let mut lines = vec![
            format!(
                "# {} beside {}",
                md(&self.second.name),
                md(&self.first.name)
            ),
            String::new(),
            format!("**{}**", md(&self.summary())),
            String::new(),
            format!("- first: {}", md(&self.first.to_string())),
            format!("- second: {}", md(&self.second.to_string())),
            format!("- in both: {}", md(&self.common())),
        ];
        for (word, names) in [("first", &self.only_first), ("second", &self.only_second)] {
            let line = |name: &String| format!("- not compared, only in the {word}: {}", md(name));
            lines.extend(names.iter().map(line));
        }
        for setting in &self.settings {
            lines.extend(section(setting));
        }
        lines.extend(self.changes());
        lines.join("\n") + "\n"
    }

    /// The settings that differ.
    fn changes(&self) -> Vec<String> {
        let mut lines = vec![String::new(), "## Config".to_owned(), String::new()];
        let changes: Vec<_> = self.config.iter().chain(&self.environment).collect();
        if changes.is_empty() {
            lines.push("No setting differs.".to_owned());
            return lines;
        }
        let header = ["setting", "first", "second", "methods"].map(str::to_owned);
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
        let rows = changes.into_iter().map(|c| {
            let [first, second] = [&c.first, &c.second].map(value);
            vec![c.key.clone(), first, second, about(c)]
        });
        lines.extend(table(&header, rows.collect()));
        lines
    }
}

/// Differences by method and length, then the scores of each set.
fn section(setting: &ComparedSetting) -> Vec<String> {
    let mut lines = vec![String::new(), format!("## {}", md(&setting.title()))];
    type Of<'a> = &'a dyn Fn(&Score) -> String;
    let parts: [(&str, Of<'_>); 3] = [
        ("Second minus first", &shown_difference),
        ("First", &|score| score.first.clone()),
        ("Second", &|score| score.second.clone()),
    ];
    for (title, cell) in parts {
        lines.extend([String::new(), format!("### {title}"), String::new()]);
        let lengths = setting.headings.iter().cloned();
        let header: Vec<String> = std::iter::once("method".to_owned())
            .chain(lengths)
            .collect();
        let rows = rows(setting, cell, || "-".to_owned()).into_iter();
        let rows = rows.map(|(name, cells)| std::iter::once(name).chain(cells).collect());
        lines.extend(table(&header, rows.collect()));
    }
    lines.push(String::new());
    lines.push(md(&setting.how()));
    lines.extend(setting.only().iter().map(|line| format!("\n{}", md(line))));
    lines.push(format!(
        "\n{}: {}",
        md(&setting.metric),
        md(&setting.definition)
    ));
    lines
}

/// A difference, and what became of the score where anything did.
pub(super) fn shown_difference(score: &Score) -> String {
    match score.verdict {
        Verdict::NotShown | Verdict::Equal => score.difference.clone(),
        verdict => format!("{} {verdict}", score.difference)
            .trim_start()
            .to_owned(),
    }
}

/// The name of each method with a cell for each length.
pub(super) fn rows<T>(
    setting: &ComparedSetting,
    cell: impl Fn(&Score) -> T,
    empty: impl Fn() -> T,
) -> Vec<(String, Vec<T>)> {
    let mut rows: Vec<(String, Vec<T>)> = Vec::new();
    for score in &setting.scores {
        if rows.last().is_none_or(|(name, _)| *name != score.method) {
            let cells = setting.lengths.iter().map(|_| empty()).collect();
            rows.push((score.method.clone(), cells));
        }
        let mut lengths = setting.lengths.iter();
        let at = lengths.position(|len| *len == score.test_len);
        if let (Some(at), Some((_, cells))) = (at, rows.last_mut()) {
            cells[at] = cell(score);
        }
    }
    rows
}

fn table(header: &[String], rows: Vec<Vec<String>>) -> Vec<String> {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| md(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule = format!("| :--- |{}", " ---: |".repeat(header.len() - 1));
    let head = [line(header), rule];
    head.into_iter()
        .chain(rows.iter().map(|row| line(row)))
        .collect()
}

fn md(text: &str) -> String {
    escape::markdown(&printable(text))
}
