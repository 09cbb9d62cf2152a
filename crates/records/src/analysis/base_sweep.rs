//! Sweeps over the base of the rotary angles.

use super::naming::{Named, is_base};
use super::setting::{Method, Setting};
use crate::record::{RunRecord, encoding_fact};
use crate::spec::{Spec, canonical_text};
use serde_json::Value;

/// Methods that differ only in the base of the rotary angles.
pub struct BaseSweep<'s> {
    /// Key of the axis, `model.pe.base`.
    pub key: String,
    /// The other labels and the variant; empty where there are none.
    pub name: String,
    /// By ascending base.
    pub rows: Vec<BaseRow<'s>>,
}

impl BaseSweep<'_> {
    /// ` of NAME`, or nothing.
    pub fn of(&self) -> String {
        if self.name.is_empty() {
            String::new()
        } else {
            format!(" of {}", self.name)
        }
    }
}

/// A method of a sweep.
pub struct BaseRow<'s> {
    /// The base of the frequencies.
    pub base: f64,
    /// The method.
    pub method: &'s Method,
    /// Wavelengths of its pairs, where a run states them.
    pub wavelengths: Option<Wavelengths>,
}

/// Wavelengths of the rotary pairs before any scaling, as the record states them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wavelengths {
    /// Of the slowest pair, in tokens.
    pub longest: f64,
    /// Number of pairs.
    pub pairs: f64,
    /// Pairs whose wavelength exceeds the training length.
    pub pairs_beyond: f64,
}

impl Wavelengths {
    /// Those of the encoding whose base is at `key`: `model.pe.base`, or `model.pe.parts.0.base` in
    /// a stack, whose facts start with `parts.0.`.
    fn of(run: &RunRecord, key: &str) -> Option<Self> {
        let part = key.strip_prefix("model.pe.")?.strip_suffix("base")?;
        let fact = |name: &str| run.encoding_facts.get(&format!("{part}{name}")).copied();
        Some(Self {
            longest: fact(encoding_fact::LONGEST_WAVELENGTH)?,
            pairs: fact(encoding_fact::ROTARY_PAIRS)?,
            pairs_beyond: fact(encoding_fact::PAIRS_BEYOND_TRAINING)?,
        })
    }
}

/// Sweeps over an axis `*.base` with at least two values: methods that differ in nothing else.
pub fn base_sweeps<'s>(setting: &'s Setting<'_>) -> Vec<BaseSweep<'s>> {
    let mut sweeps: Vec<((String, &str), BaseSweep<'s>)> = Vec::new();
    for method in &setting.methods {
        let group = &setting.groups[method.group];
        let run: &RunRecord = &group.runs[0];
        let Some((key, base)) = base_label(run) else {
            continue;
        };
        let identity = (without_base(&group.spec, key), method.variant.as_str());
        // A base has one row in a sweep: a second method with it starts another sweep.
        let is_own = |sweep: &BaseSweep<'_>| sweep.rows.iter().all(|row| row.base != base);
        let at = sweeps
            .iter()
            .position(|(id, sweep)| *id == identity && is_own(sweep));
        let at = at.unwrap_or_else(|| {
            let sweep = BaseSweep {
                key: key.to_owned(),
                name: name_without(&group.named, method),
                rows: Vec::new(),
            };
            sweeps.push((identity, sweep));
            sweeps.len() - 1
        });
        sweeps[at].1.rows.push(BaseRow {
            base,
            method,
            wavelengths: Wavelengths::of(run, key),
        });
    }
    let sweeps = sweeps.into_iter().map(|(_, sweep)| sweep);
    let mut out: Vec<BaseSweep<'s>> = sweeps.filter(|s| s.rows.len() > 1).collect();
    for sweep in &mut out {
        sweep.rows.sort_by(|a, b| a.base.total_cmp(&b.base));
    }
    out
}

/// A base as a config writes it: `10000`, `0.5`.
pub fn base_text(base: f64) -> String {
    if base.fract() == 0.0 && base.abs() < 1e15 {
        format!("{base:.0}")
    } else {
        base.to_string()
    }
}

/// The title but the base: other labels, and the variant unless it is the trained encoding.
fn name_without(named: &Named, method: &Method) -> String {
    let variant = method.title.strip_prefix(named.title.as_str());
    let variant = variant.unwrap_or_default().trim_start_matches(" + ");
    let parts = [named.besides_base.as_str(), variant];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" + ")
}

/// One text for specs that agree in all but the base. Variants repeat the base, so only their names
/// count.
fn without_base(spec: &Spec, key: &str) -> String {
    let mut spec = Value::Object(spec.clone());
    if let Some(Value::Object(eval)) = spec.get_mut("eval") {
        eval.shift_remove("variants");
    }
    // Down to the base's table by keys, and by indices in a stack: `model.pe.parts.0`.
    let (parents, last) = key.rsplit_once('.').unwrap_or(("", key));
    let parent =
        parents
            .split('.')
            .filter(|part| !part.is_empty())
            .try_fold(&mut spec, |value, part| match value {
                Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
                value => value.get_mut(part),
            });
    if let Some(Value::Object(parent)) = parent {
        parent.shift_remove(last);
    }
    spec.as_object().map(canonical_text).unwrap_or_default()
}

fn base_label(run: &RunRecord) -> Option<(&str, f64)> {
    let mut bases = run.labels.iter().filter(|l| is_base(l));
    bases.find_map(|l| {
        let base = l.value.as_f64().or_else(|| l.text.parse().ok())?;
        Some((l.key.as_str(), base))
    })
}
