//! Remarks on methods, as letters behind their names in the leading table: what distinguishes their
//! records from those beside them, and variants that replace a scaling that was trained.

use super::document::Table;
use records::analysis::groups::{Group, TRAINED};
use records::analysis::setting::Setting;
use records::record::{Environment, RunRecord};
use records::scaling;
use records::text;
use std::collections::BTreeMap;

/// A sentence and the methods that it is about, by index.
struct Remark {
    text: String,
    methods: Vec<usize>,
}

/// The table with a letter for each remark behind the names of its methods, and what the letters
/// mean in its caption.
pub(super) fn with_remarks(mut table: Table, setting: &Setting<'_>) -> Table {
    let remarks = remarks(setting);
    for (row, index) in table.rows.iter_mut().zip(&table.methods) {
        let numbered = remarks.iter().enumerate();
        let letters: Vec<String> = numbered
            .filter(|(_, remark)| index.is_some_and(|index| remark.methods.contains(&index)))
            .map(|(at, _)| letter(at))
            .collect();
        if let (Some(name), false) = (row.first_mut(), letters.is_empty()) {
            *name = format!("{} [{}]", name.text, letters.join(", ")).into();
        }
    }
    let numbered = remarks.iter().enumerate();
    table.remarks = numbered
        .map(|(at, remark)| format!("[{}] {}.", letter(at), remark.text))
        .collect();
    for remark in &table.remarks {
        table.caption = format!("{} {remark}", table.caption);
    }
    table
}

/// `a`, `b`, ...; a number where letters end.
fn letter(at: usize) -> String {
    let letter = u8::try_from(at).ok().filter(|at| *at < 26);
    letter.map_or(at.to_string(), |at| char::from(b'a' + at).to_string())
}

fn remarks(setting: &Setting<'_>) -> Vec<Remark> {
    let mut by_text: BTreeMap<(u8, String), Vec<usize>> = BTreeMap::new();
    let unsealed = setting
        .groups
        .iter()
        .flat_map(|group| &group.runs)
        .all(|run| run.seal.is_none());
    let usual = usual(setting);
    for (index, method) in setting.methods.iter().enumerate() {
        let group = &setting.groups[method.group];
        let mut add = |order: u8, text: Option<String>| {
            if let Some(text) = text {
                by_text.entry((order, text)).or_default().push(index);
            }
        };
        if method.variant != TRAINED {
            add(0, replaced(group, &method.variant));
        }
        // Where no record has a seal, the conditions say it.
        add(1, (!unsealed).then(|| without_seal(group)).flatten());
        add(2, with_broken_seal(group));
        for run in &group.runs {
            if let Some(usual) = usual {
                add(3, other_program(usual, &run.environment));
            }
        }
    }
    let remarks = by_text.into_iter().map(|((_, text), mut methods)| {
        methods.dedup();
        Remark { text, methods }
    });
    remarks.collect()
}

/// The scaling that a variant replaces, in words.
fn replaced(group: &Group<'_>, variant: &str) -> Option<String> {
    let of = |name: &str| group.variants.iter().find(|variant| variant.name == name);
    let encoding = |name: &str| Some(of(name)?.by_len.values().last()?.encoding);
    scaling::replaced(encoding(TRAINED)?, encoding(variant)?)
}

fn without_seal(group: &Group<'_>) -> Option<String> {
    counted(
        group,
        |run| run.seal.is_none(),
        "without a seal, so that an edit would not show",
    )
}

fn with_broken_seal(group: &Group<'_>) -> Option<String> {
    let is_broken = |run: &RunRecord| run.seal_holds() == Some(false);
    counted(
        group,
        is_broken,
        "changed after it was written: its seal does not fit",
    )
}

fn counted(group: &Group<'_>, is_it: impl Fn(&RunRecord) -> bool, what: &str) -> Option<String> {
    let count = group.runs.iter().filter(|run| is_it(run)).count();
    let of = match (count, group.runs.len()) {
        (0, _) => return None,
        (1, 1) => "its record".to_owned(),
        (count, all) => format!("{count} of {all} records"),
    };
    Some(format!("{of} {what}"))
}

/// The program and device of most records of a setting; none without records.
fn usual<'s>(setting: &'s Setting<'_>) -> Option<&'s Environment> {
    let runs = setting.groups.iter().flat_map(|group| &group.runs);
    let mut counted: Vec<(&Environment, usize)> = Vec::new();
    for run in runs {
        let environment = &run.environment;
        let known = counted
            .iter_mut()
            .find(|(known, _)| other_program(known, environment).is_none());
        match known {
            Some((_, count)) => *count += 1,
            None => counted.push((environment, 1)),
        }
    }
    // Of equally many the first.
    let most = counted.iter().map(|(_, count)| *count).max()?;
    let usual = counted.into_iter().find(|(_, count)| *count == most)?;
    Some(usual.0)
}

/// What another program or device than the usual one is; none for the same.
fn other_program(usual: &Environment, own: &Environment) -> Option<String> {
    let short = |commit: &str| text::name(commit.get(..9).unwrap_or(commit), 9);
    let dirty = |commit: &str| {
        if commit.ends_with("-dirty") {
            "-dirty"
        } else {
            ""
        }
    };
    let commit = |commit: &str| format!("commit {}{}", short(commit), dirty(commit));
    let name = |what: &str, text: &str| format!("{what}{}", text::name(text, 20));
    // A record that Burn did not train says what did: `none: pytorch 2.9.0`.
    let trainer = |of: &Environment, burn: &str| match of.burn.strip_prefix("none: ") {
        Some(other) => text::name(other, 32),
        None => name(burn, &of.burn),
    };
    let is_burn = !own.burn.starts_with("none: ");
    let fields = [
        (
            usual.commit != own.commit,
            commit(&own.commit),
            commit(&usual.commit),
        ),
        (
            usual.version != own.version,
            name("version ", &own.version),
            name("", &usual.version),
        ),
        (
            usual.burn != own.burn,
            trainer(own, "Burn "),
            trainer(usual, if is_burn { "" } else { "Burn " }),
        ),
        (
            usual.device != own.device,
            name("", &own.device),
            name("", &usual.device),
        ),
    ];
    let differ: Vec<(String, String)> = fields
        .into_iter()
        .filter_map(|(differs, own, usual)| differs.then_some((own, usual)))
        .collect();
    let (own, usual): (Vec<String>, Vec<String>) = differ.into_iter().unzip();
    (!own.is_empty()).then(|| {
        format!(
            "has runs recorded by {}, most others by {}",
            own.join(", "),
            usual.join(", ")
        )
    })
}
