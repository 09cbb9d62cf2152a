//! A trained run and its test sets, one for each variant and test length.

use crate::commands::export::{Args, only_run};
use crate::commands::records::check_seal;
use burn::tensor::Device;
use experiment::device::{self, DeviceName};
use experiment::run::model::rebuild_encoding;
use experiment::run::score::{Part, Test};
use experiment::run::task::build_task;
use experiment::runs_on_disk::files::{RECORD_FILE, WEIGHTS_FILE};
use experiment::runs_on_disk::recorded::no_weights;
use experiment::runs_on_disk::selection::Run;
use experiment::spec::scores::unsupported;
use experiment::spec::{EvalSpec, RunSpec};
use posenc::{Encoding, EncodingConfig};
use records::read_record;
use records::record::RunStatus;
use rundir::Weights;
use std::rc::Rc;
use support::console;
use support::exit::Failure;
use tasks::Task;

/// A run that has ended, with what it trained.
pub(super) struct Trained {
    pub(super) run: Run,
    pub(super) run_id: String,
    pub(super) spec: RunSpec,
    pub(super) weights: Weights,
    pub(super) device: Device,
    task: Rc<dyn Task>,
    variant: Option<String>,
    lengths: Vec<usize>,
}

/// The first rows of a test set under the encoding of a variant.
pub(super) struct TestSet<'a> {
    /// `VARIANT.LENGTH`.
    pub(super) name: String,
    pub(super) config: &'a EncodingConfig,
    pub(super) encoding: Encoding,
    pub(super) part: Part,
}

impl Trained {
    /// The run that a command names.
    ///
    /// # Errors
    ///
    /// [`Exit::Config`](support::exit::Exit::Config) for several runs;
    /// [`Exit::Input`](support::exit::Exit::Input) if the run is not finished, diverged, or its
    /// weights or corpus are damaged; [`Exit::Device`](support::exit::Exit::Device).
    pub(super) fn open(request: &Args, format: &str) -> Result<Self, Failure> {
        let run = only_run(request, format)?;
        let job = run.job.clone()?;
        let record = read_record(&run.directory.join(RECORD_FILE)).map_err(|error| {
            Failure::input(error).with_help("finish the run first: `longreach run` with its config")
        })?;
        let unsealed = check_seal(&record, &run.directory)?;
        console::notes(&unsealed.into_iter().collect::<Vec<_>>());
        if record.status == RunStatus::Diverged {
            return Err(Failure::input(format!(
                "{} diverged in training: it has no weights to export",
                run.directory.display()
            )));
        }
        let weights = Weights::load(
            &run.directory.join(WEIGHTS_FILE),
            record.model.parameters,
            &record.model.weights_blake3,
        )
        .map_err(|error| no_weights(&run.directory, &error))?;
        let named: Vec<&str> = (job.spec.eval.variants.iter().map(|v| &*v.name)).collect();
        if let Some(name) = &request.variant
            && !named.contains(&name.as_str())
        {
            return Err(unknown("--variant", name, &named.join(", ")));
        }
        let tested: Vec<usize> = job.spec.eval.test_lens.iter().copied().collect();
        if let Some(length) = request
            .lengths
            .iter()
            .find(|length| !tested.contains(length))
        {
            let tested: Vec<String> = tested.iter().map(usize::to_string).collect();
            return Err(unknown(
                "--lengths",
                &length.to_string(),
                &tested.join(", "),
            ));
        }
        Ok(Self {
            variant: request.variant.clone(),
            lengths: request.lengths.clone(),
            task: build_task(&job, &job.spec.eval.test_lens)?,
            device: device::open(request.device.as_ref().unwrap_or(&DeviceName::CPU))?,
            run_id: job.run_id.clone(),
            spec: job.spec,
            weights,
            run,
        })
    }

    /// Every test set that the encoding of its variant reaches, cut to `rows` rows.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](support::exit::Exit::Bug) if the weights do not fit the spec.
    pub(super) fn test_sets(
        &self,
        rows: u16,
    ) -> impl Iterator<Item = Result<TestSet<'_>, Failure>> {
        let is_asked = |name: &str| self.variant.as_deref().is_none_or(|asked| asked == name);
        let variants = self.spec.eval.variants.iter();
        let variants = variants.filter(move |variant| is_asked(&variant.name));
        variants.flat_map(move |variant| {
            let at_lengths = self.spec.eval.test_lens.iter().zip(&variant.pe).enumerate();
            at_lengths.filter_map(move |(index, (&test_len, config))| {
                if !self.lengths.is_empty() && !self.lengths.contains(&test_len) {
                    return None;
                }
                let positions = variant.positions.get(index);
                let positions = positions.unwrap_or(&self.spec.model.positions);
                let seq_len = self.task.seq_len(test_len);
                let (spec, task) = (&self.spec, self.task.as_ref());
                let largest = spec.model.coordinates.largest(task, test_len, positions);
                if unsupported(spec, config, positions, seq_len, &largest).is_some() {
                    return None;
                }
                let eval = EvalSpec {
                    batch_tokens: usize::from(rows) * seq_len,
                    ..spec.eval.clone()
                };
                let test = Test {
                    variant: &variant.name,
                    test_len,
                    // Of a range the rows of its upper end.
                    from_len: None,
                    eval: &eval,
                    positions,
                    seed: spec.seed,
                    coordinates: spec.model.coordinates,
                    denominators: false,
                    greedy: false,
                    cached: false,
                };
                let part = test.parts(task).next()?;
                let encoding = rebuild_encoding(spec, config, &self.weights, &self.device);
                Some(match encoding {
                    Ok(encoding) => Ok(TestSet {
                        name: format!("{}.{test_len}", variant.name),
                        config,
                        encoding,
                        part,
                    }),
                    Err(error) => Err(Failure::bug(format!("{error:#}"))),
                })
            })
        })
    }
}

fn unknown(option: &str, value: &str, allowed: &str) -> Failure {
    Failure::config(format!(
        "{option} {value}: the config of the run does not have it, and what `longreach eval` adds \
         is not exported"
    ))
    .with_allowed(allowed)
}
