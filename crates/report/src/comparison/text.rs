//! The comparison as text for a terminal.

use super::changes::Change;
use super::compared::{ComparedSetting, Score, SeedsLearned};
use super::verdict::Verdict;
use super::{RecordSet, ScoreComparison};
use crate::captions::{direction, interval_text};
use comfy_table::{CellAlignment, ContentArrangement};
use records::record::{TestLength, length_text};
use records::stats::TEXT_INTERVAL;
use records::text::{self, list, printable};
use std::fmt;

/// Scores of a setting that are all printed; of more, those that changed.
const MOST_SCORES: usize = 60;
/// Names in a list.
const MOST_NAMED: usize = 8;

impl ScoreComparison {
    /// The comparison as text: all scores, or of many those that changed.
    pub fn text(&self, all: bool) -> String {
        let mut out = vec![self.heading()];
        out.extend(self.config_text());
        for setting in &self.settings {
            out.push(setting.text(all));
        }
        out.push(self.closing());
        out.join("\n\n")
    }

    fn heading(&self) -> String {
        let lines = [("first ", &self.first), ("second", &self.second)];
        let lines = lines.map(|(word, side)| format!("{word}  {side}"));
        format!("{}\nin both: {}", lines.join("\n"), self.common())
    }

    /// What both have in common, in one line.
    fn common(&self) -> String {
        let seeds: Vec<String> = self
            .first
            .seeds
            .iter()
            .filter(|s| self.second.seeds.contains(s))
            .map(u64::to_string)
            .collect();
        let seeds = match seeds.as_slice() {
            [] => "no seed".to_owned(),
            [seed] => format!("seed {seed}"),
            seeds => format!("seeds {}", list(seeds, 12)),
        };
        let settings: Vec<String> = self.settings.iter().map(|s| s.name.clone()).collect();
        let settings = match settings.as_slice() {
            [] => "no task, text and metric".to_owned(),
            names => list(names, MOST_NAMED),
        };
        format!(
            "{}, {} settings of the config, {seeds}; {settings}",
            runs(self.runs_in_both),
            self.equal_settings
        )
    }

    /// The differences of config and build as a diff; none where there are none.
    fn config_text(&self) -> Option<String> {
        let mut lines = vec![
            format!("--- {}", self.first.name),
            format!("+++ {}", self.second.name),
        ];
        let mut methods: &[String] = &[];
        for change in self.config.iter().chain(&self.environment) {
            if change.methods != methods {
                methods = &change.methods;
                lines.push(format!("@@ {} @@", about(change)));
            }
            lines.extend(change.lines());
        }
        (lines.len() > 2).then(|| lines.join("\n"))
    }

    fn closing(&self) -> String {
        let mut lines = Vec::new();
        for (word, names) in [("first", &self.only_first), ("second", &self.only_second)] {
            if !names.is_empty() {
                let names = list(names, MOST_NAMED);
                lines.push(format!("not compared, only in the {word}: {names}"));
            }
        }
        lines.push(self.summary());
        lines.join("\n")
    }

    /// How many scores have which verdict.
    fn summary(&self) -> String {
        let counted = Verdict::ALL.iter().filter_map(|verdict| {
            let count = self.count(*verdict);
            (count > 0).then(|| format!("{count} {}", verdict.to_string().to_lowercase()))
        });
        let counted: Vec<String> = counted.collect();
        let total: usize = self.settings.iter().map(|s| s.scores.len()).sum();
        match total {
            0 => "no score in both".to_owned(),
            1 => format!("1 score: {}", counted.join("; ")),
            _ => format!("{total} scores: {}", counted.join("; ")),
        }
    }
}

/// `1 run`, `3 runs`
fn runs(count: usize) -> String {
    format!("{count} {}", if count == 1 { "run" } else { "runs" })
}

impl fmt::Display for RecordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {}, commit {}",
            self.name,
            runs(self.runs),
            list(&self.experiments, MOST_NAMED),
            list(&self.commits, 4)
        )
    }
}

impl Change {
    /// `-key = value` and `+key = value`.
    fn lines(&self) -> [String; 2] {
        [('-', &self.first), ('+', &self.second)].map(|(sign, value)| match value {
            Some(value) => format!("{sign}{} = {value}", self.key),
            None => format!("{sign}{} is not set", self.key),
        })
    }
}

/// Which methods a change is about.
fn about(change: &Change) -> String {
    if change.methods.is_empty() {
        "all methods".to_owned()
    } else {
        list(&change.methods, MOST_NAMED)
    }
}

impl ComparedSetting {
    /// `perplexity (lower is better), text, trained at 64 bytes`
    fn title(&self) -> String {
        let direction = direction(&self.metric);
        format!("{} ({direction}), {}", printable(&self.metric), self.name)
    }

    /// How a difference is to be read.
    fn how(&self) -> String {
        let interval = interval_text(&self.metric);
        let text = match self.scores.iter().any(|score| score.over_text) {
            true => format!(", that of a difference {TEXT_INTERVAL}"),
            false => String::new(),
        };
        format!(
            "Second minus first, paired by seed, {interval}{text}, each interval by itself. Better \
             and worse: the interval excludes 0."
        )
    }

    /// What is in one of both only, a line each.
    fn only(&self) -> Vec<String> {
        let lengths = |lens: &[TestLength]| {
            let lens: Vec<String> = lens.iter().map(TestLength::to_string).collect();
            let word = if lens.len() == 1 { "length" } else { "lengths" };
            (!lens.is_empty()).then(|| format!("{word} {}", list(&lens, 12)))
        };
        let methods = |names: &[String]| (!names.is_empty()).then(|| list(names, MOST_NAMED));
        let sides = [
            (
                "first",
                methods(&self.only_first),
                lengths(&self.lengths_only_first),
            ),
            (
                "second",
                methods(&self.only_second),
                lengths(&self.lengths_only_second),
            ),
        ];
        let lines = sides.into_iter().filter_map(|(word, methods, lengths)| {
            let parts: Vec<String> = methods.into_iter().chain(lengths).collect();
            (!parts.is_empty()).then(|| format!("only in the {word}: {}", parts.join("; ")))
        });
        lines.collect()
    }

    /// How many seeds learned the task, where not all did.
    fn learned_text(&self) -> Option<String> {
        let of = |s: &SeedsLearned| format!("{} {} -> {}", s.method, s.first, s.second);
        let each: Vec<String> = self.learned.iter().map(of).collect();
        (!each.is_empty()).then(|| {
            format!(
                "seeds that learned the task in length: {} (every seed with a score counts above)",
                list(&each, MOST_NAMED)
            )
        })
    }

    fn text(&self, all: bool) -> String {
        let is_equal = |score: &&Score| score.verdict == Verdict::Equal;
        let equal = self.scores.iter().filter(is_equal).count();
        let is_many = self.scores.len() - equal > MOST_SCORES;
        let is_shown = |score: &&Score| all || !(is_equal(score) || is_many && !score.is_news());
        let shown: Vec<&Score> = self.scores.iter().filter(is_shown).collect();
        let mut lines = vec![self.title()];
        lines.extend(self.task.iter().map(|change| {
            let [before, after] =
                [&change.first, &change.second].map(|value| value.as_deref().unwrap_or("not set"));
            format!(
                "another task: {} is {before} in the first, {after} in the second",
                change.key
            )
        }));
        if !shown.is_empty() {
            lines.push(table(&shown));
        }
        if !all && equal > 0 {
            lines.push(format!("{} equal", count(equal)));
        }
        let quiet = self.scores.len() - shown.len();
        if !all && is_many && quiet > equal {
            let quiet = count(quiet - equal);
            lines.push(format!(
                "{quiet} neither better nor worse; --all prints them"
            ));
        }
        lines.extend(self.only());
        lines.extend(self.learned_text());
        if !shown.is_empty() {
            lines.push(self.how());
        }
        lines.join("\n")
    }
}

/// `1 score is`, `3 scores are`
fn count(scores: usize) -> String {
    match scores {
        1 => "1 score is".to_owned(),
        _ => format!("{scores} scores are"),
    }
}

impl Score {
    /// Whether it became better or worse.
    fn is_news(&self) -> bool {
        use Verdict::{Better, Gained, Lost, Worse};
        matches!(self.verdict, Better | Gained | Lost | Worse)
    }
}

fn table(scores: &[&Score]) -> String {
    let mut table = text::ruled_table();
    table.force_no_tty();
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["method", "length", "first", "second", "difference", ""]);
    let mut before = "";
    for score in scores {
        // A name once for all its lengths.
        let method = if score.method == before {
            ""
        } else {
            &score.method
        };
        before = &score.method;
        table.add_row([
            text::printable(method),
            length_text(score.from_len, score.test_len),
            score.first.clone(),
            score.second.clone(),
            score.difference.clone(),
            score.verdict.to_string(),
        ]);
    }
    for at in 1..=4 {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
