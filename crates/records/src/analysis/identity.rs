//! Identity of methods: which runs are seeds of one method.
//!
//! The identity of a method is the whole resolved spec of its runs without the seed
//! ([`RunRecord::method_spec`]), within one experiment. Two runs with the same identity and the
//! same seed have the same run id, so they are one run.

use crate::names::Names;
use crate::record::RunRecord;
use crate::spec::{Spec, warm_start, warm_start_mut};
use serde_json::Value;
use std::collections::HashMap;

/// Longest chain of warm starts that is followed.
const LONGEST_CHAIN: usize = 16;

/// Looks up method specs, resolving warm starts of records that do not hold their start's method.
pub struct MethodSpecs<'a> {
    by_id: HashMap<&'a str, &'a RunRecord>,
    /// Names of kinds for people.
    pub names: Names,
}

impl<'a> MethodSpecs<'a> {
    /// `records`: all records of the report.
    pub fn new(records: &[&'a RunRecord]) -> Self {
        let trained = records.iter().filter(|r| r.evaluation_of.is_none());
        Self {
            by_id: trained.map(|r| (r.run_id.as_str(), *r)).collect(),
            names: Names::default(),
        }
    }

    /// The same, for tables with these names.
    pub fn named(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// The method of a run.
    pub fn of(&self, run: &RunRecord) -> Spec {
        self.resolved(run, LONGEST_CHAIN)
    }

    fn resolved(&self, run: &RunRecord, depth: usize) -> Spec {
        let mut spec = run.method_spec();
        let id = warm_start(&run.spec).and_then(|start| start.get("run_id")?.as_str());
        let Some(start) = warm_start_mut(&mut spec) else {
            return spec;
        };
        // `depth` bounds the chain of starts, which made-up records could close to a circle.
        if let (None, Some(from)) = (start.get("from"), id.and_then(|id| self.by_id.get(id)))
            && depth > 0
        {
            start.insert("from".into(), Value::Object(self.resolved(from, depth - 1)));
        }
        spec
    }

    /// Whether a run started from another one whose method is unknown.
    pub fn lacks_start(&self, run: &RunRecord) -> bool {
        warm_start(&self.of(run)).is_some_and(|start| start.get("from").is_none())
    }
}
