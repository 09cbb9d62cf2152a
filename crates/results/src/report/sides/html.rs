//! The comparison as a page.

use super::SideBySide;
use super::compared::{ComparedSetting, Score};
use super::page::{rows, shown_difference};
use super::text::about;
use super::verdict::Verdict;
use crate::report::error::ReportError;
use crate::report::render::compared_page;
use crate::text::printable;
use minijinja::{Value, context};

impl SideBySide {
    /// One page that needs nothing else: regressions first, then the differences of every setting
    /// with their intervals, the scores of each set, and the configs as a diff.
    ///
    /// # Errors
    ///
    /// When the template fails, which is a bug.
    pub fn html(&self) -> Result<String, ReportError> {
        let title = format!("{} beside {}", self.second.name, self.first.name);
        let mut facts = vec![
            ("first".to_owned(), printable(&self.first.to_string())),
            ("second".to_owned(), printable(&self.second.to_string())),
            ("in both".to_owned(), printable(&self.common())),
        ];
        for (word, names) in [("first", &self.only_first), ("second", &self.only_second)] {
            let only = |name: &String| (format!("only in the {word}"), printable(name));
            facts.extend(names.iter().map(only));
        }
        let facts = facts.into_iter().map(|(name, text)| [name, text]);
        compared_page(context! {
            title => printable(&title),
            summary => printable(&self.summary()),
            facts => facts.collect::<Vec<_>>(),
            regressions => self.regressions(),
            settings => self.settings.iter().map(setting).collect::<Vec<_>>(),
            changes => self.change_lines(),
            names => [printable(&self.first.name), printable(&self.second.name)],
        })
    }

    /// Scores that became worse or were lost.
    fn regressions(&self) -> Vec<Value> {
        let all = self.settings.iter().flat_map(|setting| {
            let bad = setting.scores.iter().filter(|score| is_bad(score.verdict));
            bad.map(move |score| (setting, score))
        });
        let line = |(setting, score): (&ComparedSetting, &Score)| {
            context! {
                method => printable(&score.method),
                of => printable(&format!(
                    "{} at {} {}, {}",
                    setting.metric, score.test_len, setting.unit, setting.name
                )),
                first => printable(&score.first),
                second => printable(&score.second),
                difference => printable(&score.difference),
                verdict => score.verdict.to_string(),
            }
        };
        all.map(line).collect()
    }

    /// The lines of the diff: a class and a text each.
    fn change_lines(&self) -> Vec<[String; 2]> {
        let mut lines = Vec::new();
        let mut methods: Option<&[String]> = None;
        for change in self.config.iter().chain(&self.environment) {
            if methods != Some(change.methods.as_slice()) {
                methods = Some(&change.methods);
                lines.push([
                    "of".to_owned(),
                    printable(&format!("@@ {} @@", about(change))),
                ]);
            }
            let [first, second] = change.lines().map(|line| printable(&line));
            lines.extend([["less".to_owned(), first], ["more".to_owned(), second]]);
        }
        lines
    }
}

fn is_bad(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Worse | Verdict::Lost)
}

fn setting(setting: &ComparedSetting) -> Value {
    let difference = |score: &Score| {
        let class = match score.verdict {
            Verdict::Worse | Verdict::Lost => "bad",
            Verdict::Better | Verdict::Gained => "good",
            _ => "open",
        };
        cell(&shown_difference(score), class)
    };
    let of = |text: fn(&Score) -> &str| move |score: &Score| cell(text(score), "");
    let empty = || cell("-", "absent");
    let tables = [
        ("Second minus first", rows(setting, difference, empty)),
        ("First", rows(setting, of(|score| &score.first), empty)),
        ("Second", rows(setting, of(|score| &score.second), empty)),
    ];
    let row = |(name, cells): (String, Vec<Value>)| context! { name => printable(&name), cells };
    let table = |(title, rows): (&str, Vec<(String, Vec<Value>)>)| {
        context! { title, rows => rows.into_iter().map(row).collect::<Vec<_>>() }
    };
    let only = setting.only();
    context! {
        title => printable(&setting.title()),
        how => printable(&setting.how()),
        definition => printable(&format!("{}: {}", setting.metric, setting.definition)),
        only => only.iter().map(|line| printable(line)).collect::<Vec<_>>(),
        lengths => setting.headings.clone(),
        tables => tables.into_iter().map(table).collect::<Vec<_>>(),
    }
}

fn cell(text: &str, class: &str) -> Value {
    context! { text => printable(text), class }
}
