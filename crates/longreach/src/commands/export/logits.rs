//! Tokens and logits of a trained run: what a model rebuilt elsewhere must reproduce.

use crate::commands::export::{Args, only_run, write_file};
use crate::commands::records::check_seal;
use experiment::device;
use experiment::run::model::{rebuild, rebuild_encoding, upload};
use experiment::run::score::Test;
use experiment::run::task::build_task;
use experiment::runs_on_disk::files::{RECORD_FILE, WEIGHTS_FILE};
use experiment::spec::EvalSpec;
use experiment::spec::MAX_LOGITS;
use experiment::spec::scores::unsupported;
use records::read_record;
use records::record::RunStatus;
use rundir::Weights;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::{BTreeMap, HashMap};
use support::console;
use support::exit::Failure;
use support::units::count;

/// Tensors of one file: name, type, shape and little-endian bytes.
type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// Writes `VARIANT.LENGTH.tokens`, `[rows, tokens]`, and `VARIANT.LENGTH.logits`, `[rows, tokens,
/// vocab_size]`, for the first rows of every test set; returns a line about the file.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for several runs;
/// [`Exit::Input`](support::exit::Exit::Input) if the run is not finished, diverged, or its weights
/// or corpus are damaged; [`Exit::Device`](support::exit::Exit::Device);
/// [`Exit::Resources`](support::exit::Exit::Resources).
#[expect(
    clippy::too_many_lines,
    reason = "checks of one run, then one test set after the other"
)]
pub fn write(request: &Args) -> Result<String, Failure> {
    let run = only_run(request, "logits")?;
    let job = run.job.clone()?;
    let record = read_record(&run.directory.join(RECORD_FILE)).map_err(|error| {
        Failure::input(format!(
            "{error}\n  = help: finish the run first: `longreach run` with its config"
        ))
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
    .map_err(|error| Failure::input(format!("{error:#}")))?;
    let task = build_task(&job, &job.spec.eval.test_lens)?;
    let device = device::open(&request.device)?;
    let spec = &job.spec;
    let built = |error: anyhow::Error| Failure::bug(format!("{error:#}"));
    let mut model = rebuild(spec, &spec.model.pe, &weights, &device).map_err(built)?;
    let mut tensors = Tensors::new();
    for variant in &spec.eval.variants {
        let at_lengths = spec.eval.test_lens.iter().zip(&variant.pe);
        for (index, (&test_len, encoding)) in at_lengths.enumerate() {
            let positions = variant
                .positions
                .get(index)
                .unwrap_or(&spec.model.positions);
            let seq_len = task.seq_len(test_len);
            let largest = spec
                .model
                .coordinates
                .largest(task.as_ref(), test_len, positions);
            if unsupported(spec, encoding, positions, seq_len, &largest).is_some() {
                continue;
            }
            let eval = EvalSpec {
                batch_tokens: usize::from(request.rows) * seq_len,
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
            let Some(part) = test.parts(task.as_ref()).next() else {
                continue;
            };
            let (batch, positions) = (part.batch, part.positions);
            let encoding = rebuild_encoding(spec, encoding, &weights, &device).map_err(built)?;
            model = model.with_encoding(encoding);
            let pass = tiny_transformer::Pass {
                max_logits: MAX_LOGITS,
                ..tiny_transformer::Pass::default()
            };
            let logits = model.forward(upload(&batch, &device).0, &positions, &pass);
            let shape = logits.dims().to_vec();
            let logits = logits.into_data().convert::<f32>();
            let logits = logits
                .try_to_vec::<f32>()
                .map_err(|error| Failure::bug(format!("{error:?}")))?;
            let name = |part: &str| format!("{}.{test_len}.{part}", variant.name);
            let bytes = batch
                .inputs
                .iter()
                .flat_map(|id| id.to_le_bytes())
                .collect();
            let rows = vec![batch.rows, batch.seq_len];
            tensors.insert(name("tokens"), (Dtype::I32, rows, bytes));
            let bytes = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
            tensors.insert(name("logits"), (Dtype::F32, shape, bytes));
        }
    }
    write_file(&request.out, &file(&tensors, &record.run_id)?)?;
    Ok(format!(
        "wrote {}: tokens and logits of {}, {}",
        request.out.display(),
        run.name(),
        count(tensors.len() / 2, "test set")
    ))
}

/// The bytes of the file; its metadata names the run.
fn file(tensors: &Tensors, run_id: &str) -> Result<Vec<u8>, Failure> {
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(Failure::bug)?;
        Ok((name.clone(), view))
    });
    let views = views.collect::<Result<Vec<_>, Failure>>()?;
    let metadata = HashMap::from([("run_id".to_owned(), run_id.to_owned())]);
    safetensors::serialize(views, Some(metadata)).map_err(Failure::bug)
}
