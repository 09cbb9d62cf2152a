//! The same document in four markups and on the terminal, each with its own escaping.

use crate::analysis::{Point, Setting};
use crate::methods;
use crate::metric;
use crate::plot::described;
use crate::record::{EvalStatus, RunStatus};
use crate::report::{Document, ReportError, ReportSpec};
use crate::table::{self, Cell, Table};
use crate::text::printable;
use comfy_table::{LineStyle, TableStyle};
use minijinja::{Environment, Value, context};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const PAGE: &str = include_str!("report.html.j2");

// ---------------------------------------------------------------------------------------------------------------- Markdown

/// GitHub-flavoured Markdown.
pub(crate) fn markdown(document: &Document) -> String {
    let mut out = format!("# {}\n", md(&document.title));
    for finding in &document.findings {
        let _ = write!(out, "\n**{}**\n", md(finding));
    }
    for section in &document.sections {
        let _ = write!(out, "\n## {}\n", md(&section.name));
        let mut figures = section.figures.iter().map(|f| {
            let name = described(f.plot.title(), f.plot.subtitle());
            format!("\n![{}]({}.svg)\n\n{}\n", md(&name), f.slug, md(&f.caption))
        });
        out.extend(figures.next());
        out.push_str(&md_table(&section.lead));
        section
            .tables
            .iter()
            .for_each(|t| out.push_str(&md_table(t)));
        out.extend(figures);
        out.push_str("\n### Definitions\n\n");
        for (name, text) in &section.definitions {
            let _ = writeln!(out, "- {}: {}", md(name), md(text));
        }
    }
    for chapter in &document.chapters {
        let _ = write!(out, "\n## {}\n", md(&chapter.name));
        if !chapter.summary.is_empty() {
            let _ = write!(out, "\n{}\n", md(&chapter.summary));
        }
        chapter
            .tables
            .iter()
            .for_each(|t| out.push_str(&md_table(t)));
    }
    out.push_str("\n## Conditions\n\n");
    for (name, text) in &document.conditions {
        let _ = writeln!(out, "- {}: {}", md(name), md(text));
    }
    for config in &document.configs {
        let ticks = config
            .toml
            .split(|c| c != '`')
            .map(str::len)
            .max()
            .unwrap_or(0);
        let fence = "`".repeat(ticks.max(2) + 1);
        let _ = write!(
            out,
            "\n### Config of {}\n\n{}\n\n{fence}toml\n{}{fence}\n",
            md(&config.experiment),
            config.about(),
            config.toml
        );
    }
    let lists = [
        ("Diverged runs", &document.diverged),
        ("Not converged", &document.unconverged),
        ("Left out", &document.excluded),
        ("Notes", &document.notes),
    ];
    for (name, items) in lists.iter().filter(|(_, items)| !items.is_empty()) {
        let _ = write!(out, "\n## {name}\n\n");
        items.iter().for_each(|item| {
            let _ = writeln!(out, "- {}", md(item));
        });
    }
    out
}

fn md_table(table: &Table) -> String {
    let mut out = format!("\n### {}\n\n", md(&table.title));
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    out.push_str(&row(table.columns.iter().map(|c| md(c)).collect()));
    out.push_str(&row(table
        .columns
        .iter()
        .enumerate()
        .map(|(i, _)| {
            if i == 0 || table.prose {
                ":---"
            } else {
                "---:"
            }
            .to_string()
        })
        .collect()));
    for cells in &table.rows {
        out.push_str(&row(cells.iter().map(md_cell).collect()));
    }
    let _ = write!(out, "\n{}\n", md(&table.caption));
    out
}

fn md_cell(cell: &Cell) -> String {
    let part = |(text, link): &(String, Option<String>)| match link {
        Some(link) => format!("[{}]({})", md(text), address(link)),
        None => md(text),
    };
    match &cell.links[..] {
        [] if cell.bold => format!("**{}**", md(&cell.text)),
        [] => md(&cell.text),
        links => links.iter().map(part).collect::<Vec<_>>().join(", "),
    }
}

/// A relative address: everything but the characters of plain names is percent-encoded, so that no
/// scheme, quote or bracket is left.
fn address(link: &str) -> String {
    let mut out = String::with_capacity(link.len());
    for byte in link.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                out.push(char::from(byte))
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    // Two slashes at the start would name another host.
    if out.starts_with("//") {
        format!(".{out}")
    } else {
        out
    }
}

/// Escapes what Markdown, HTML or GitHub (mathematics, bare addresses) would read as markup.
fn md(text: &str) -> String {
    let chars: Vec<char> = printable(text).chars().collect();
    let mut out = String::with_capacity(text.len());
    for (i, &c) in chars.iter().enumerate() {
        // Inside a word an underscore is itself, and metric names are full of them.
        let inside = |at: Option<usize>| {
            at.and_then(|at| chars.get(at))
                .is_some_and(|c| c.is_alphanumeric())
        };
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            ':' if chars[i + 1..].starts_with(&['/', '/']) => out.push_str("\\:"),
            '.' if is_www(&chars[..i]) => out.push_str("\\."),
            '_' if inside(i.checked_sub(1)) && inside(Some(i + 1)) => out.push('_'),
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn is_www(before: &[char]) -> bool {
    before.len() >= 3
        && before[before.len() - 3..]
            .iter()
            .all(|c| c.eq_ignore_ascii_case(&'w'))
}

// ------------------------------------------------------------------------------------------------------------------- LaTeX

/// Table floats to include in a document that loads `booktabs`.
pub(crate) fn latex(document: &Document) -> String {
    let mut out = format!(
        "% {}\n% Needs \\usepackage{{booktabs}} and UTF-8 input.\n",
        tex_comment(&document.title)
    );
    for config in &document.configs {
        let _ = write!(
            out,
            "\n% Config of {}: {}\n",
            tex_comment(&config.experiment),
            config.about()
        );
        config.toml.lines().for_each(|line| {
            let _ = writeln!(out, "%   {}", printable(line));
        });
    }
    for section in &document.sections {
        let _ = write!(out, "\n% {}\n", tex_comment(&section.name));
        // What the names stand for is a comment: its sentences do not fit into a column of a page.
        let (methods, tables): (Vec<&Table>, Vec<&Table>) = section
            .tables
            .iter()
            .partition(|t| t.title == methods::TITLE);
        for row in methods.iter().flat_map(|t| &t.rows) {
            let cells: Vec<&str> = row.iter().map(|cell| cell.text.as_str()).collect();
            let _ = writeln!(out, "%   {}", tex_comment(&cells.join(" | ")));
        }
        std::iter::once(&section.lead)
            .chain(tables)
            .for_each(|t| out.push_str(&tex_table(t)));
    }
    for chapter in &document.chapters {
        let _ = write!(out, "\n% {}\n", tex_comment(&chapter.name));
        chapter
            .tables
            .iter()
            .for_each(|t| out.push_str(&tex_table(t)));
    }
    out
}

fn tex_table(table: &Table) -> String {
    // Sentences break within columns of equal width, but for the gaps between them.
    let columns: String = match table.prose {
        true => format!(
            "p{{{:.3}\\linewidth}}",
            0.9 / table.columns.len().max(1) as f64
        )
        .repeat(table.columns.len()),
        false => table
            .columns
            .iter()
            .enumerate()
            .map(|(i, _)| if i == 0 { 'l' } else { 'r' })
            .collect(),
    };
    let mut out = format!(
        "\n\\begin{{table}}[t]\n  \\centering\n  \\small\n  \\caption{{{}}}\n  \
         \\label{{tab:{}}}\n  \\begin{{tabular}}{{@{{}}{columns}@{{}}}}\n    \\toprule\n",
        tex(&table.caption),
        table.slug
    );
    let row = |cells: Vec<String>| format!("    {} \\\\\n", cells.join(" & "));
    out.push_str(&row(table.columns.iter().map(|c| tex(c)).collect()));
    out.push_str("    \\midrule\n");
    let cell = |c: &Cell| {
        let text = tex(&c.text);
        // boldmath reaches the sign between mean and interval; the braces keep a leading bracket
        // from being read as an option.
        if c.bold {
            format!("{{\\boldmath\\textbf{{{text}}}}}")
        } else if text.starts_with('[') {
            format!("{{}}{text}")
        } else {
            text
        }
    };
    table
        .rows
        .iter()
        .for_each(|cells| out.push_str(&row(cells.iter().map(cell).collect())));
    out.push_str("    \\bottomrule\n  \\end{tabular}\n\\end{table}\n");
    out
}

/// Escapes LaTeX's special characters and sets the few signs we use in mathematics.
fn tex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '|' => out.push_str("\\textbar{}"),
            '"' => out.push_str("\\textquotedbl{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '±' => out.push_str("$\\pm$"),
            '≥' => out.push_str("$\\geq$"),
            'π' => out.push_str("$\\pi$"),
            c => out.push(c),
        }
    }
    // T1's quotation mark needs a font encoding of its own; two primes do not.
    out.replace("\\textquotedbl{}", "''")
}

/// Without a line's end no comment ends; without a backslash nothing in it looks like a command.
fn tex_comment(text: &str) -> String {
    printable(text).replace('\\', "/")
}

// --------------------------------------------------------------------------------------------------------------------- CSV

/// One row for each method, seed, variant, test length and metric, in the units of the records.
pub(crate) fn long_csv(settings: &[Setting<'_>]) -> Result<String, ReportError> {
    let failed = |e: &dyn std::fmt::Display| ReportError::Render {
        file: "results.csv",
        reason: e.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = [
        "experiment",
        "task",
        "unit",
        "train_len",
        "method",
        "labels",
        "variant",
        "seed",
        "run_id",
        "test_len",
        "metric",
        "value",
        "n",
        "status",
        "reason",
        "encoding",
        "positions",
    ];
    writer.write_record(head).map_err(|e| failed(&e))?;
    for setting in settings {
        for group in &setting.groups {
            for run in &group.runs {
                let labels: Vec<String> = run
                    .labels
                    .iter()
                    .map(|l| format!("{}={}", l.key, l.text))
                    .collect();
                let labels = labels.join("; ");
                let mut row = |variant: &str,
                               test_len: &str,
                               metric: &str,
                               value: &str,
                               n: &str,
                               status: &str,
                               reason: &str| {
                    let (train_len, seed) =
                        (setting.task.train_len.to_string(), run.seed.to_string());
                    let cells = [
                        &run.experiment,
                        &setting.task.kind,
                        &setting.task.unit,
                        &train_len,
                        &group.name,
                        &labels,
                        variant,
                        &seed,
                        &run.run_id,
                        test_len,
                        metric,
                        value,
                        n,
                        status,
                        reason,
                        &methods::encoding(group, variant),
                        &methods::positions(group, variant),
                    ];
                    writer
                        .write_record(cells.map(safe_cell))
                        .map_err(|e| failed(&e))
                };
                let stopped = run.diverged.as_ref().map_or(String::new(), |d| {
                    format!("step {}: {} not finite", d.step, d.what)
                });
                let rows = run.rows();
                if rows.is_empty() {
                    let status = if run.status == RunStatus::Diverged {
                        "diverged"
                    } else {
                        "missing"
                    };
                    row("", "", "", "", "", status, &stopped)?;
                }
                for (variant, eval) in rows {
                    let len = eval.test_len.to_string();
                    let reason = eval.reason.clone().unwrap_or_default();
                    if eval.status != EvalStatus::Ok {
                        let status = match eval.status {
                            EvalStatus::Diverged => "diverged",
                            EvalStatus::Unsupported => "unsupported",
                            EvalStatus::Ok | EvalStatus::Skipped => "skipped",
                        };
                        let reason = if reason.is_empty() && eval.status == EvalStatus::Diverged {
                            stopped.clone()
                        } else {
                            reason
                        };
                        row(variant, &len, setting.lead(), "", "", status, &reason)?;
                        continue;
                    }
                    for name in &setting.all_metrics {
                        let Some((value, n)) = metric::value(setting.task, eval, name) else {
                            continue;
                        };
                        if value.is_finite() {
                            row(
                                variant,
                                &len,
                                name,
                                &value.to_string(),
                                &n.to_string(),
                                "ok",
                                &reason,
                            )?;
                        } else {
                            row(
                                variant,
                                &len,
                                name,
                                "",
                                &n.to_string(),
                                "diverged",
                                "not finite",
                            )?;
                        }
                    }
                }
            }
        }
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}

/// One row for each summary over seeds: how far and how much of the in-length score is kept, and
/// the differences to the baseline.
pub(crate) fn summaries_csv(
    settings: &[Setting<'_>],
    spec: &ReportSpec,
) -> Result<String, ReportError> {
    let head = [
        "setting",
        "method",
        "baseline",
        "quantity",
        "test_len",
        "mean",
        "half_width_95",
        "low_95",
        "high_95",
        "n",
        "runs",
        "status",
    ];
    let mut rows = Vec::new();
    for setting in settings {
        let base = table::baseline(setting, spec);
        for method in &setting.methods {
            let mut row = |baseline: &str, quantity: &str, len: String, point: &Point| {
                let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
                let absent: Vec<&str> = point.absent.iter().map(|a| a.name()).collect();
                rows.push(vec![
                    setting.name.clone(),
                    method.name.clone(),
                    baseline.into(),
                    quantity.into(),
                    len,
                    number(point.estimate.map(|e| e.mean)),
                    number(point.estimate.and_then(|e| e.half_width)),
                    number(point.estimate.and_then(|e| e.interval).map(|i| i.0)),
                    number(point.estimate.and_then(|e| e.interval).map(|i| i.1)),
                    point.values.len().to_string(),
                    point.runs.to_string(),
                    if point.is_whole() {
                        "ok".into()
                    } else {
                        absent.join(" / ").replace('-', "missing")
                    },
                ]);
            };
            if setting.in_length.is_some() && setting.longer().next().is_some() {
                row("", metric::KEPT_TO, String::new(), &setting.kept_to(method));
                row(
                    "",
                    metric::KEPT_AREA,
                    String::new(),
                    &setting.kept_area(method),
                );
            }
            for base in base.iter().filter(|base| base.name != method.name) {
                for &len in &setting.lengths {
                    let point = setting.difference(method, base, setting.lead(), len);
                    row(
                        &base.name,
                        &format!("{} difference", setting.lead()),
                        len.to_string(),
                        &point,
                    );
                }
            }
        }
    }
    csv_text("summaries.csv", &head, &rows)
}

pub(crate) fn csv_text(
    file: &'static str,
    head: &[&str],
    rows: &[Vec<String>],
) -> Result<String, ReportError> {
    let failed = |e: &dyn std::fmt::Display| ReportError::Render {
        file,
        reason: e.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head).map_err(|e| failed(&e))?;
    for row in rows {
        writer
            .write_record(row.iter().map(safe_cell))
            .map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}

/// A spreadsheet runs a cell that starts like a formula; a quote before it makes it text. Numbers
/// stay numbers. What follows a separator is treated as a start too: which of them divides cells
/// depends on the reader's country.
fn safe_cell(text: impl AsRef<str>) -> String {
    let text = printable(text.as_ref());
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 1);
    let mut at_start = true;
    for c in text.chars() {
        // The full-width forms count as well in some locales.
        if at_start && matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠') {
            out.push('\'');
        }
        at_start = matches!(c, ',' | ';' | '"') || at_start && c.is_whitespace();
        out.push(c);
    }
    out
}

// -------------------------------------------------------------------------------------------------------------------- HTML

/// One page without scripts or anything to load; the figures are inline.
pub(crate) fn html(
    document: &Document,
    svgs: &BTreeMap<&str, &str>,
) -> Result<String, ReportError> {
    let failed = |e: minijinja::Error| ReportError::Render {
        file: "report.html",
        reason: format!("{e:#}"),
    };
    let each = |list: &[String]| list.iter().map(|text| printable(text)).collect::<Vec<_>>();
    let table = |t: &Table| {
        let rows: Vec<Vec<Value>> = t
            .rows
            .iter()
            .map(|r| {
                r.iter().map(|c| context! { text => printable(&c.text), bold => c.bold, kind => kind(&c.text), links => links(c) }).collect()
            })
            .collect();
        context! { slug => t.slug.clone(), prose => t.prose, title => printable(&t.title), caption => printable(&t.caption), columns => each(&t.columns), rows }
    };
    let configs = document.configs.iter().map(|config| {
        let lines: Vec<String> = config.toml.lines().map(printable).collect();
        context! { experiment => printable(&config.experiment), about => config.about(), toml => lines.join("\n") }
    });
    let configs: Vec<Value> = configs.collect();
    let pairs = |list: &[(String, String)]| {
        list.iter()
            .map(|(a, b)| vec![printable(a), printable(b)])
            .collect::<Vec<_>>()
    };
    let sections: Vec<Value> = document
        .sections
        .iter()
        .map(|s| {
            let figures: Vec<Value> = s
                .figures
                .iter()
                .map(|f| {
                    let svg = svgs.get(f.slug.as_str()).copied().unwrap_or_default();
                    context! { slug => f.slug.clone(), caption => printable(&f.caption), svg => Value::from_safe_string(svg.into()) }
                })
                .collect();
            let tables: Vec<Value> = s.tables.iter().map(table).collect();
            let (lead, definitions) = (table(&s.lead), pairs(&s.definitions));
            context! { name => printable(&s.name), slug => s.slug.clone(), lead, tables, figures, definitions }
        })
        .collect();
    let chapters: Vec<Value> = document
        .chapters
        .iter()
        .map(|c| {
            let tables: Vec<Value> = c.tables.iter().map(table).collect();
            context! { name => printable(&c.name), slug => c.slug.clone(), summary => printable(&c.summary), tables }
        })
        .collect();
    let mut env = Environment::new();
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    env.set_syntax(
        minijinja::syntax::SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()
            .map_err(failed)?,
    );
    env.add_template("report.html", PAGE).map_err(failed)?;
    let page = env.get_template("report.html").map_err(failed)?;
    page.render(context! {
        title => printable(&document.title),
        findings => each(&document.findings),
        sections,
        chapters,
        conditions => pairs(&document.conditions),
        configs,
        diverged => each(&document.diverged),
        unconverged => each(&document.unconverged),
        excluded => each(&document.excluded),
        notes => each(&document.notes),
    })
    .map_err(failed)
}

fn links(cell: &Cell) -> Vec<Value> {
    let part = |(text, link): &(String, Option<String>)| context! { text => printable(text), href => link.as_deref().map(address) };
    cell.links.iter().map(part).collect()
}

/// How a cell looks: numbers are aligned, the absence of one is muted.
fn kind(text: &str) -> &'static str {
    match text {
        "-" | "none" => "absent",
        _ if ["diverged", "unsupported", "skipped", "not converged"]
            .iter()
            .any(|s| text.starts_with(s)) =>
        {
            "absent"
        }
        _ => "",
    }
}

// ---------------------------------------------------------------------------------------------------------------- Terminal

/// The finding and the leading table of each setting.
pub(crate) fn terminal(document: &Document) -> String {
    let mut out = String::new();
    for (section, finding) in document.sections.iter().zip(&document.findings) {
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "{}, {}",
            printable(&section.lead.title),
            printable(&section.name)
        );
        let mut table = comfy_table::Table::new();
        let rule = LineStyle::none().fill('─').junction('─');
        table
            .load_style(
                TableStyle::new()
                    .top_border(rule)
                    .header_separator(rule)
                    .bottom_border(rule),
            )
            .force_no_tty();
        table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
        table.set_header(section.lead.columns.iter().map(|c| printable(c)));
        for row in &section.lead.rows {
            table.add_row(row.iter().map(|c| {
                if c.bold {
                    format!("{} *", printable(&c.text))
                } else {
                    printable(&c.text)
                }
            }));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        let _ = writeln!(out, "{}", table.trim_fmt());
        if section.lead.rows.iter().flatten().any(|c| c.bold) {
            out.push_str(
                "* best of its column: better than chance, its 95 % interval touches no other\n",
            );
        }
        let _ = writeln!(out, "{}", printable(finding));
    }
    for chapter in document.chapters.iter().filter(|c| !c.summary.is_empty()) {
        let _ = write!(out, "\n{}\n", printable(&chapter.summary));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formula_cells_are_text_and_numbers_are_numbers() {
        for text in [
            "=1+1", "+x", "-x", "@a", "-1+cmd", "-inf", "+nan", "＝1", "-",
        ] {
            assert_eq!(safe_cell(text), format!("'{text}"));
        }
        for text in [
            "-1.5",
            "+3",
            "rope",
            "1e-9",
            "",
            "model.pe=rope; task.x=-1",
            "a - b",
        ] {
            assert_eq!(safe_cell(text), text);
        }
        assert_eq!(safe_cell("\t=cmd"), " '=cmd");
        assert_eq!(safe_cell("rope;=cmd|x, +1"), "rope;'=cmd|x, '+1");
        assert_eq!(safe_cell("\u{feff}=1"), "\\u{feff}=1");
    }

    #[test]
    fn latex_specials_are_escaped() {
        assert_eq!(
            tex(r"a_b & 50% {x} \ ~^ ±"),
            r"a\_b \& 50\% \{x\} \textbackslash{} \textasciitilde{}\textasciicircum{} $\pm$"
        );
    }

    #[test]
    fn markdown_specials_are_escaped() {
        assert_eq!(
            md("exact_match | _x_ <b>\n*"),
            "exact_match \\| \\_x\\_ &lt;b&gt; \\*"
        );
        assert_eq!(
            md("[a](http://b.c) $x$ Www.d"),
            "\\[a\\](http\\://b.c) \\$x\\$ Www\\.d"
        );
    }
}
