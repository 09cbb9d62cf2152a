//! Notes on what the author of a config may not expect.

use super::blind::blind;
use super::planned::PlannedRun;
use super::sections::VariantSection;
use super::variants::{dropped, dropped_note, keeping, leaves};
use crate::spec::scores::unsupported;
use crate::spec::train::{LengthCurriculum, TrainSection};
use crate::spec::{RunSpec, TRAINED, VariantSpec};
use config::diagnostic::known_keys;
use posenc::{EncodingConfig, ModelShape, PositionsConfig, RopeScaling};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use support::units::first_of;
use tasks::Task;
use tiny_transformer::{AttentionKind, Normalizer};

/// The key of encodings whose table can be stretched.
const STRETCH: &str = "interpolate";

/// Most rows and tokens of sets that are compared. Longer rows have many questions.
const COMPARED: (usize, usize) = (4096, 64);

/// Selection rows that are enough, where the test has more.
const ENOUGH: usize = 32;

/// How few selection rows are not test rows: at short lengths a task has few questions.
pub(super) fn selection_note(
    selection: &dyn Task,
    tested: &dyn Task,
    length: usize,
) -> Option<String> {
    let most = selection.test_rows(length).max(tested.test_rows(length));
    if most > COMPARED.0 || selection.seq_len(length) > COMPARED.1 {
        return None;
    }
    let rows = |task: &dyn Task| -> HashSet<Vec<i32>> {
        let batch = task.test_batch(length, 0, task.test_rows(length));
        let rows = batch.inputs.chunks(batch.seq_len);
        rows.map(<[i32]>::to_vec).collect()
    };
    let (chosen, tested) = (rows(selection), rows(tested));
    let own = chosen.difference(&tested).count();
    let is_enough = own >= tested.len().min(ENOUGH) && 10 * own >= 9 * chosen.len();
    (!is_enough).then(|| {
        format!(
            "task `{}` at {length} {}: {} distinct selection rows, of which {} are test rows too; \
             [select] and train.stop decide by these. Set a longer train.train_len, or a smaller \
             task.test_rows",
            selection.kind(),
            selection.unit(),
            chosen.len(),
            chosen.len() - own
        )
    })
}

/// Trained kinds that variants evaluate without, by variant and how to keep them; and variants that
/// replace a scaling that was trained.
#[derive(Default)]
pub(super) struct DroppedEncodings(
    BTreeMap<(String, Option<String>), Vec<&'static str>>,
    BTreeSet<String>,
);

impl DroppedEncodings {
    /// Notes what one variant evaluates without.
    pub(super) fn note(
        &mut self,
        variant: &VariantSection,
        trained: &EncodingConfig,
        encoding: &EncodingConfig,
        shape: &ModelShape,
    ) {
        let json = |pe: &EncodingConfig| serde_json::to_value(pe).unwrap_or_default();
        let replaced = records::scaling::replaced(&json(trained), &json(encoding));
        self.1
            .extend(replaced.map(|how| format!("variant `{}`: {how}", variant.name)));
        let kinds = dropped(&variant.set, trained, encoding, shape);
        if kinds.is_empty() {
            return;
        }
        let keeping = match variant.add {
            None => keeping(&variant.set, trained, encoding, shape),
            Some(_) => None,
        };
        let noted = self.0.entry((variant.name.clone(), keeping)).or_default();
        noted.extend(kinds);
        let mut seen = HashSet::new();
        noted.retain(|kind| seen.insert(*kind));
    }

    /// A sentence for each variant.
    pub(super) fn texts(&self) -> Vec<String> {
        let texts = self.0.iter();
        texts
            .map(|((name, keeping), kinds)| dropped_note(name, kinds, keeping.as_deref()))
            .chain(self.1.iter().cloned())
            .collect()
    }
}

/// Where a run has no value, for the trained encoding and for variants that differ.
pub(super) fn unsupported_notes(spec: &RunSpec, task: &dyn Task) -> Vec<String> {
    let (mut notes, mut noted) = (Vec::new(), HashSet::new());
    for variant in &spec.eval.variants {
        let mut by_reason: BTreeMap<(&str, String), Vec<usize>> = BTreeMap::new();
        for (index, test_len) in spec.eval.test_lens.iter().enumerate() {
            if let Some(reason) = reason(spec, variant, index, *test_len, task) {
                by_reason.entry(reason).or_default().push(*test_len);
            }
        }
        for ((kind, reason), lengths) in by_reason {
            let text = format!(
                "`{kind}` has no value at {} {}: recorded as unsupported ({reason})",
                shown(lengths),
                task.unit()
            );
            // Variants that end where the trained encoding does would repeat its note.
            if noted.insert(text.clone()) {
                notes.push(match variant.name.as_str() {
                    TRAINED => text,
                    name => format!("variant `{name}`: {text}"),
                });
            }
        }
    }
    notes
}

/// Where biases by distance leave pairs without weight at the longest test length, each once.
pub(super) fn blind_notes(runs: &[PlannedRun]) -> Vec<String> {
    let (mut notes, mut looked_at) = (Vec::new(), HashSet::new());
    for run in runs {
        let spec = &run.job.spec;
        let (shape, lengths) = (spec.model.transformer.shape(), &run.sizes.seq_lens);
        let longest = lengths
            .iter()
            .enumerate()
            .max_by_key(|(_, length)| **length);
        let Some((index, seq_len)) = longest else {
            continue;
        };
        for variant in &spec.eval.variants {
            let pe = &variant.pe[index];
            let positions = variant.positions.get(index);
            let positions = positions.unwrap_or(&spec.model.positions);
            let has_weights = spec.model.transformer.attention == AttentionKind::Softmax
                && matches!(positions, PositionsConfig::Contiguous(_));
            let sizes = (shape.n_heads, shape.n_layers, seq_len);
            if !has_weights || !looked_at.insert((serde_json::to_string(pe).ok(), sizes)) {
                continue;
            }
            if let Some(blind) = blind(pe, &shape, *seq_len) {
                let text = format!("`{}`: {blind}", pe.kind());
                notes.push(match variant.name.as_str() {
                    TRAINED => text,
                    name => format!("variant `{name}`: {text}"),
                });
            }
        }
    }
    notes
}

/// Trained numbers that tests read although training never reaches them. Positions that are drawn
/// with gaps train on larger distances than the length has.
pub(super) fn untrained_notes(run: &PlannedRun) -> Vec<String> {
    let spec = &run.job.spec;
    let has_gaps = !matches!(
        spec.model.positions,
        PositionsConfig::Contiguous(_) | PositionsConfig::RandomOffset(_)
    );
    let longest = run.sizes.seq_lens.iter().max();
    let Some(longest) = longest.filter(|_| !has_gaps) else {
        return Vec::new();
    };
    let parts = leaves(&spec.model.pe).into_iter();
    let notes = parts.filter_map(|part| {
        let untrained = part.untrained(spec.train.seq_len, *longest)?;
        Some(format!("`{}`: {untrained}", part.kind()))
    });
    notes.collect()
}

/// A shortest length that nothing draws from.
pub(super) fn idle_min_len(train: &TrainSection) -> Option<String> {
    let name = match train.length {
        LengthCurriculum::Fixed => "fixed",
        LengthCurriculum::Staged => "staged",
        LengthCurriculum::Uniform | LengthCurriculum::Mixed => return None,
    };
    (train.min_len != 1).then(|| {
        format!(
            "train.min_len = {} has no effect with train.length = \"{name}\"",
            train.min_len
        )
    })
}

/// What a sweep could leave out: variants of no run, variants that change nothing, and test lengths
/// that are all past the training length, so that nothing says whether the task was learned.
pub(super) fn idle_notes(variants: &[String], runs: &[PlannedRun]) -> Vec<String> {
    let specs = || runs.iter().map(|run| &run.job.spec);
    let mut notes = Vec::new();
    for name in variants.iter().filter(|name| *name != TRAINED) {
        let of = specs()
            .filter_map(|spec| Some((spec, spec.eval.variants.iter().find(|v| v.name == *name)?)));
        let of: Vec<(&RunSpec, &VariantSpec)> = of.collect();
        let changes = |(spec, variant): &(&RunSpec, &VariantSpec)| {
            let mut moved = variant.positions.iter().zip(&variant.pe);
            let in_tests = |positions: &PositionsConfig, pe: &EncodingConfig| match positions {
                // It jumps in training alone.
                PositionsConfig::Pose(_) => seen(&PositionsConfig::default(), pe, spec),
                other => seen(other, pe, spec),
            };
            variant.pe.iter().any(|pe| *pe != spec.model.pe)
                || moved.any(|(own, pe)| in_tests(own, pe) != in_tests(&spec.model.positions, pe))
        };
        if of.is_empty() && !runs.is_empty() {
            notes.push(format!(
                "variant `{name}` applies to no run: no trained encoding matches its `when`"
            ));
        } else if !of.is_empty() && !of.iter().any(changes) {
            let what = match of.iter().all(|(_, variant)| variant.positions.is_empty()) {
                true => "of the trained encoding",
                false => "that its encoding sees of positions",
            };
            notes.push(format!("variant `{name}` changes nothing {what}"));
        }
    }
    let is_past = |spec: &RunSpec| {
        spec.eval
            .test_lens
            .iter()
            .all(|len| *len > spec.train.train_len)
    };
    if let Some(spec) = specs().find(|spec| is_past(spec)) {
        notes.push(format!(
            "no test length is at most the training length, {}: nothing will say whether the task \
             was learned there, so the report says nothing about longer lengths",
            spec.train.train_len
        ));
    }
    notes
}

/// What an encoding sees of positions: nothing, or a line where it reads no axis of a grid, or
/// distances only, which are the same from any start.
fn seen(
    positions: &PositionsConfig,
    pe: &EncodingConfig,
    spec: &RunSpec,
) -> Option<PositionsConfig> {
    let facts = pe.facts(&spec.model.transformer.shape());
    match positions {
        _ if facts.ignores_positions => None,
        PositionsConfig::Grid(_) if facts.axes == 0 => Some(PositionsConfig::default()),
        PositionsConfig::RandomOffset(_) if !positions.varies(&facts) => {
            Some(PositionsConfig::default())
        }
        other => Some(other.clone()),
    }
}

/// Positions of models that no encoding of the runs that have them sees.
pub(super) fn unseen_positions_notes(runs: &[PlannedRun]) -> Vec<String> {
    let is_seen = |spec: &RunSpec| {
        let positions = &spec.model.positions;
        let stages = spec.train.stages.iter();
        let stages = stages.filter_map(|stage| stage.pe.as_ref());
        let mut all = stages.chain(spec.eval.variants.iter().flat_map(|variant| &variant.pe));
        all.any(|pe| seen(positions, pe, spec).as_ref() == Some(positions))
    };
    // Of each positions, whether some run sees them.
    let mut found: Vec<(&PositionsConfig, bool)> = Vec::new();
    for spec in runs.iter().map(|run| &run.job.spec) {
        let positions = &spec.model.positions;
        let is_plain = *positions == PositionsConfig::default();
        match found.iter_mut().find(|(known, _)| *known == positions) {
            _ if is_plain => {}
            Some((_, any)) => *any |= is_seen(spec),
            None => found.push((positions, is_seen(spec))),
        }
    }
    let unseen = found.iter().filter(|(_, any)| !any);
    let note = |(positions, _): &(&PositionsConfig, bool)| {
        let kind = positions.kind();
        format!("no encoding here sees model.positions of kind `{kind}`")
    };
    unseen.map(note).collect()
}

/// Factors on queries that are meant for a softmax, which linear attention lacks.
pub(super) fn linear_factor_note(run: &PlannedRun) -> Option<String> {
    let spec = &run.job.spec;
    let transformer = &spec.model.transformer;
    if transformer.attention != AttentionKind::Linear {
        return None;
    }
    let (shape, longest) = (transformer.shape(), run.sizes.seq_lens.iter().max()?);
    let has_factor = |part: &&EncodingConfig| match part.rotary(&shape) {
        // What changes queries without a rotation multiplies them.
        None => {
            let facts = part.facts(&shape);
            facts.hooks.transform_qk && !facts.rotates_qk
        }
        Some(rotary) => {
            let scaling = rotary.scaling.as_ref();
            let on_tables = rotary.frequencies(*longest as f64);
            scaling.is_some_and(|scaling| scaling.logits_factor() != 1.0)
                || on_tables.is_ok_and(|tables| tables.attention_factor != 1.0)
        }
    };
    let all = spec.eval.variants.iter().flat_map(|variant| &variant.pe);
    let kind = all.flat_map(leaves).find(has_factor)?.kind();
    let (normalizer, effect) = match transformer.normalizer {
        Normalizer::Rotated => ("rotated", "a factor on all dimensions cancels"),
        Normalizer::Unrotated => ("unrotated", "it scales the output"),
        Normalizer::Cosine => ("cosine", "it scales the cosine in the weights"),
    };
    Some(format!(
        "the factor of `{kind}` on logits sharpens a softmax, and linear attention has none: with \
         normalizer = \"{normalizer}\" {effect}"
    ))
}

/// A training that `train.stop` cannot end.
pub(super) fn unstopped_note(run: &PlannedRun) -> Option<String> {
    let spec = &run.job.spec;
    let every = spec.train.stop.as_ref()?.every;
    let steps = spec.train.steps;
    (spec.stop_scores() == 0 && run.job.half_of.is_none()).then(|| {
        let place = match spec.train.stages.is_empty() {
            true => "",
            false => "in the last stage and ",
        };
        format!(
            "`train.stop` takes no score, so that training takes all its steps: no multiple of \
             every = {every} lies {place}before step {steps}"
        )
    })
}

/// A training under a scaling that does nothing at the training length.
pub(super) fn unscaled_note(run: &PlannedRun) -> Option<String> {
    let model = &run.job.spec.model;
    let pe = serde_json::to_value(&model.pe).ok()?;
    let scaling = pe.get("scaling")?;
    let kind = scaling.get("kind")?.as_str()?;
    // A scaling by a factor of one is the identity, at longer lengths if it does not read them.
    let is_identity = scaling.get("factor")?.as_f64()? == 1.0;
    let is_later = model.pe.facts(&model.transformer.shape()).reads_length;
    let tested = if is_later {
        ""
    } else {
        " and is tested as plain `rope`"
    };
    is_identity.then(|| {
        format!(
            "`rope` with the scaling `{kind}` trains the weights of plain `rope`{tested}: its \
             factor is 1, as at the training length; a variant with set = {{ scaling = {{ kind = \
             \"{kind}\" }} }} needs no training"
        )
    })
}

/// Factors on the logits that DeepSeek's models have beside their scaling, where they are left out.
pub(super) fn unscaled_logits_note(run: &PlannedRun) -> Option<String> {
    let spec = &run.job.spec;
    let shape = spec.model.transformer.shape();
    let all = spec.eval.variants.iter().flat_map(|variant| &variant.pe);
    let rotations = all.flat_map(leaves).filter_map(|part| part.rotary(&shape));
    let left_out = rotations.filter_map(|rotary| match rotary.scaling? {
        RopeScaling::Yarn(yarn) => yarn.left_out(),
        _ => None,
    });
    let factor = left_out.reduce(f64::max)?;
    Some(format!(
        "`mscale_all_dim` divides the factor on cos and sin only; the models of DeepSeek also \
         multiply the logits, here by up to {factor:.4}: scale_logits = true does so"
    ))
}

/// Which kind has no value at a test length, and why.
fn reason<'a>(
    spec: &'a RunSpec,
    variant: &'a VariantSpec,
    index: usize,
    test_len: usize,
    task: &dyn Task,
) -> Option<(&'a str, String)> {
    let shape = spec.model.transformer.shape();
    let positions = variant
        .positions
        .get(index)
        .unwrap_or(&spec.model.positions);
    let encoding = &variant.pe[index];
    let seq_len = task.seq_len(test_len);
    let largest = spec.model.coordinates.largest(task, test_len, positions);
    unsupported(spec, encoding, positions, seq_len, &largest)?;
    if let Some(longest) = positions.max_seq_len().filter(|longest| seq_len > *longest) {
        let reason = format!("positions are drawn out of {longest} tokens");
        return Some((positions.kind(), reason));
    }
    let ends = |part: &&EncodingConfig| part.facts(&shape).max_position;
    let limited = leaves(encoding)
        .into_iter()
        .filter(|part| ends(part).is_some());
    Some(match limited.min_by_key(ends) {
        Some(part) => {
            let end = ends(&part).unwrap_or(0);
            // Rows are read whole, and the last interpolated position lies behind the last row.
            let may_stretch =
                known_keys::<EncodingConfig>(part.kind()).contains(&STRETCH.to_owned());
            let stretched = match positions {
                PositionsConfig::Interpolated(_) if may_stretch => {
                    "; a variant with set = { interpolate = true } stretches the table instead"
                }
                _ => "",
            };
            (
                part.kind(),
                format!("max_position = {end} tokens{stretched}"),
            )
        }
        None => (encoding.kind(), "it has no value there".to_owned()),
    })
}

/// The shortest of some lengths, in order.
fn shown(mut lengths: Vec<usize>) -> String {
    lengths.sort_unstable();
    let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
    first_of(&lengths, 8)
}
