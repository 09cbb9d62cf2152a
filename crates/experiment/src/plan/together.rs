//! Which runs may be trained together, as one batched model: those of one shape.

use super::memory::{self, Memory, MemoryLimit, TaskSizes};
use super::planned::PlannedRun;
use crate::spec::{LengthCurriculum, RunSpec};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Runs that one worker trains together, by index into the plan.
pub type Group = Vec<usize>;

/// Keys of a spec that runs trained together may differ in. Evaluations follow one after the other,
/// and every run has its own optimizer and its own weights to start from.
const OWN: [(&str, &[&str]); 3] = [
    ("", &["seed", "eval"]),
    (
        "train",
        &[
            "steps",
            "start_from",
            "stop",
            "lr",
            "warmup_steps",
            "schedule",
            "final_lr",
            "grad_clip",
            "adamw",
        ],
    ),
    ("model", &["pe"]),
];

/// The shape of a run: runs of equal shapes may be trained together. `None` where a run is trained
/// alone, because its batches change their size from step to step.
///
/// The shape is the spec without what is each run's own. Encodings are of one shape if they agree
/// in all but their numbers and have parameters of the same shapes.
pub fn shape(spec: &RunSpec) -> Option<String> {
    use LengthCurriculum::{Fixed, Mixed};
    if !matches!(spec.train.length, Fixed | Mixed) {
        return None;
    }
    // All keys that are not named above have to agree, also those that are added later.
    let mut whole = serde_json::to_value(spec).ok()?;
    for (table, keys) in OWN {
        let table = match table {
            "" => Some(&mut whole),
            name => whole.get_mut(name),
        };
        let table = table?.as_object_mut()?;
        for key in keys {
            table.remove(*key);
        }
    }
    let pe = &spec.model.pe;
    let parameters = pe.facts(&spec.model.transformer.shape()).parameters;
    let pe = without_numbers(serde_json::to_value(pe).ok()?);
    serde_json::to_string(&(whole, pe, parameters)).ok()
}

fn without_numbers(value: Value) -> Value {
    match value {
        // Not null, which is a number that is not there.
        Value::Number(_) => Value::from(0),
        Value::Array(items) => items.into_iter().map(without_numbers).collect(),
        Value::Object(table) => {
            let entries = table.into_iter();
            entries
                .map(|(key, value)| (key, without_numbers(value)))
                .collect()
        }
        other => other,
    }
}

/// Memory of trainings in one process: what each needs beside the program and the corpus, which are
/// there once.
pub fn training_memory<'a>(
    of: Memory,
    trainings: impl IntoIterator<Item = (&'a RunSpec, u64, &'a TaskSizes)>,
) -> u64 {
    let (mut resident, mut beside) = (0, 0_u64);
    for (spec, parameters, sizes) in trainings {
        let own = memory::resident(of, sizes);
        resident = resident.max(own);
        beside = beside.saturating_add(memory::training(of, spec, parameters, sizes) - own);
    }
    beside.saturating_add(resident)
}

/// Divides runs among workers, each of which trains at most `most` of one shape together, and no
/// more than fit into `limit`. A group stands where its first run stands in the queue.
pub fn groups(
    runs: &[PlannedRun],
    todo: &VecDeque<usize>,
    most: usize,
    limit: MemoryLimit,
) -> VecDeque<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // The group of each shape that still takes runs.
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    let memory = |group: &[usize]| {
        let runs = group.iter().map(|index| &runs[*index]);
        let sized = runs.map(|run| (&run.job.spec, run.parameters, &run.sizes));
        training_memory(limit.memory, sized)
    };
    for index in todo {
        let shape = match most {
            0 | 1 => None,
            _ => shape(&runs[*index].job.spec),
        };
        let Some(shape) = shape else {
            groups.push(vec![*index]);
            continue;
        };
        if let Some(place) = open.get(&shape) {
            let group = &mut groups[*place];
            group.push(*index);
            if group.len() <= most && limit.excess(memory(group)).is_none() {
                continue;
            }
            group.pop();
        }
        open.insert(shape, groups.len());
        groups.push(vec![*index]);
    }
    groups.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use crate::plan::planner::Plan;

    const CONFIG: &str = r#"name = "together"
seeds = [0, 1, 2]

[task]
kind = "copy"

[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }

[train]
train_len = 4
steps = 20
batch_size = 4

[eval]
test_lens = [4, 8]
"#;

    fn planned(overrides: &[&str]) -> Plan {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(&path, CONFIG).unwrap();
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        plan(&path, &overrides).unwrap()
    }

    fn grouped(plan: &Plan, most: usize, limit: MemoryLimit) -> Vec<Group> {
        groups(&plan.runs, &(0..plan.runs.len()).collect(), most, limit).into()
    }

    /// Whether the runs of these values of an axis have one shape.
    fn alike(key: &str, values: &str) -> bool {
        let axis = format!("axes.\"{key}\"=[{values}]");
        let plan = planned(&["seeds=[0]", &axis]);
        assert!(plan.runs.len() >= 2, "{key}: {values}");
        let shapes = plan.runs.iter().map(|run| shape(&run.job.spec));
        let shapes: Vec<Option<String>> = shapes.collect();
        shapes
            .iter()
            .all(|shape| shape.is_some() && *shape == shapes[0])
    }

    #[test]
    fn seeds_rates_and_numbers_of_encodings_may_differ_and_sizes_may_not() {
        for (key, values) in [
            ("train.lr", "1e-3,1e-4"),
            ("train.steps", "20,30"),
            ("train.warmup_steps", "1,2"),
            ("train.schedule", r#""cosine","linear""#),
            ("train.final_lr", "0.0,0.1"),
            ("train.grad_clip", "0.0,1.0"),
            ("train.adamw.weight_decay", "0.0,0.1"),
            ("model.pe.base", "100,10000"),
            ("eval.test_lens", "[8],[4,8]"),
        ] {
            assert!(alike(key, values), "{key}: {values}");
        }
        for (key, values) in [
            ("model.pe", r#"{kind="rope"},{kind="alibi"}"#),
            (
                "model.pe",
                r#"{kind="learned",max_position=12},{kind="learned",max_position=14}"#,
            ),
            (
                "model.pe",
                r#"{kind="rope"},{kind="rope",scaling={kind="linear",factor=2.0}}"#,
            ),
            ("model.d_model", "16,32"),
            ("model.norm", r#""layer_norm","rms_norm""#),
            (
                "model.positions",
                r#"{kind="contiguous"},{kind="randomized",max_position=64}"#,
            ),
            ("train.batch_size", "4,8"),
            ("train.train_len", "4,8"),
            ("task.alphabet", "4,8"),
        ] {
            assert!(!alike(key, values), "{key}: {values}");
        }
    }

    #[test]
    fn runs_whose_batches_change_are_trained_alone() {
        let plan = planned(&["train.length=uniform", "train.min_len=2"]);
        assert_eq!(shape(&plan.runs[0].job.spec), None);
        assert_eq!(grouped(&plan, 3, MemoryLimit::NONE), [[0], [1], [2]]);
    }

    #[test]
    fn a_group_takes_the_next_runs_of_its_shape_and_keeps_the_order_of_the_queue() {
        let axis = r#"axes."model.pe"=[{kind="rope"},{kind="alibi"}]"#;
        let plan = planned(&[axis]);
        let kind = |index: usize| plan.runs[index].job.spec.model.pe.kind();
        let is_first = |index: usize| kind(index) == kind(0);
        assert!((0..3).all(is_first) && !(3..6).any(is_first));
        let all = MemoryLimit::NONE;
        let one: Vec<Group> = (0..6).map(|index| vec![index]).collect();
        assert_eq!(grouped(&plan, 1, all), one);
        assert_eq!(
            grouped(&plan, 2, all),
            [vec![0, 1], vec![2], vec![3, 4], vec![5]]
        );
        assert_eq!(grouped(&plan, 9, all), [vec![0, 1, 2], vec![3, 4, 5]]);
        let mixed = VecDeque::from([4, 0, 5, 2, 1]);
        let mixed = groups(&plan.runs, &mixed, 2, all);
        assert_eq!(mixed, [vec![4, 5], vec![0, 2], vec![1]]);
    }

    #[test]
    fn groups_fit_into_the_memory_and_count_program_and_corpus_once() {
        let plan = planned(&[]);
        let of = |count: usize| {
            let runs = plan.runs[..count].iter();
            let sized = runs.map(|run| (&run.job.spec, run.parameters, &run.sizes));
            training_memory(Memory::Host, sized)
        };
        let run = &plan.runs[0];
        assert_eq!(
            of(1),
            memory::training(Memory::Host, &run.job.spec, run.parameters, &run.sizes)
        );
        assert_eq!(
            of(3) - of(2),
            of(1) - memory::resident(Memory::Host, &run.sizes)
        );
        assert_eq!(grouped(&plan, 3, MemoryLimit::host(of(3))), [[0, 1, 2]]);
        assert_eq!(
            grouped(&plan, 3, MemoryLimit::host(of(3) - 1)),
            [vec![0, 1], vec![2]]
        );
        assert_eq!(grouped(&plan, 3, MemoryLimit::host(0)), [[0], [1], [2]]);
    }
}
