//! Free memory of NVIDIA GPUs, asked of the driver's `nvidia-smi` before runs start on them: a GPU
//! that another process fills would end every run in the middle of its first step.

use crate::cluster::allocation::on;
use crate::cluster::slurm::{Silent, ask};
use crate::options::Gpus;
use experiment::plan::memory::DRIVER_BYTES;
use std::time::Duration;
use support::exit::{Exit, Failure};

/// What a process needs on a GPU beside its tensors.
const CONTEXT_MIB: u64 = DRIVER_BYTES >> 20;
/// How long `nvidia-smi` may take: without a daemon it initialises the driver.
const PATIENCE: Duration = Duration::from_secs(30);
/// Looks at a GPU, and the time between two: the process of an earlier task may still be leaving.
const LOOKS: usize = 3;
const BETWEEN: Duration = Duration::from_secs(2);

/// What runs need at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Runs at a time on one GPU.
    pub runs: usize,
    /// Their processes.
    pub workers: usize,
    /// MiB that they are expected to need together, without their contexts.
    pub mib: u64,
}

impl Need {
    /// The largest of these runs, as many as there are at a time on one GPU: `per_worker` in each
    /// of `workers` processes.
    pub fn of(mut mib: Vec<u64>, workers: usize, per_worker: usize) -> Self {
        mib.sort_unstable_by(|a, b| b.cmp(a));
        mib.truncate((workers * per_worker).max(1));
        Self {
            runs: mib.len(),
            workers: workers.max(1).min(mib.len()),
            mib: mib.iter().sum(),
        }
    }

    fn with_contexts(self) -> u64 {
        self.mib + CONTEXT_MIB * self.workers as u64
    }
}

/// Checks that GPUs have room for runs. Returns a note if that cannot be known.
///
/// # Errors
///
/// [`Exit::Device`] if one has not, with what it has, what is needed, and who has the rest.
pub fn check(gpus: &[String], node: &str, need: Need) -> Result<Option<String>, Failure> {
    for gpu in gpus {
        let mut looks = 1;
        loop {
            let Memory { free, total } = match memory(gpu) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(Some(unknown(gpu, "nvidia-smi does not say"))),
                Err(why) => return Ok(Some(unknown(gpu, why))),
            };
            if free >= need.with_contexts() {
                break;
            }
            if looks == LOOKS || total < need.with_contexts() {
                return Err(refused(gpu, node, need, &Memory { free, total }));
            }
            looks += 1;
            std::thread::sleep(BETWEEN);
        }
    }
    Ok(None)
}

/// The GPUs whose free memory can be asked: those of `nvidia-smi`.
pub fn are_known(gpus: &Gpus) -> bool {
    gpus.variable == "CUDA_VISIBLE_DEVICES"
}

fn unknown(gpu: &str, why: &str) -> String {
    format!("note: free memory of GPU {gpu} was not checked: {why}")
}

fn refused(gpu: &str, node: &str, need: Need, memory: &Memory) -> Failure {
    let on = on(node);
    let (needed, runs) = (
        need.with_contexts(),
        support::units::count(need.runs, "run"),
    );
    let help = if memory.total < needed {
        "submit with a smaller --runs-per-gpu or --runs-per-worker, or ask the scheduler for GPUs \
         with more memory"
    } else {
        "the scheduler gave this GPU to others too, or a process was left behind; ask for GPUs of \
         your own, or keep this node out (sbatch --exclude)"
    };
    let failure = Failure::new(
        Exit::Device,
        format!(
            "GPU {gpu}{on} has {} of {} MiB free, and {runs} at a time need {needed} MiB",
            memory.free, memory.total
        ),
    );
    let others = others(gpu);
    let failure = match others.as_str() {
        "" => failure,
        others => failure.with_note(format!("processes on it: {others}")),
    };
    failure.with_help(help)
}

/// Free memory and all of it, in MiB.
#[derive(Debug, PartialEq, Eq)]
struct Memory {
    free: u64,
    total: u64,
}

fn query(gpu: &str, what: &str) -> Result<String, &'static str> {
    let id = format!("--id={gpu}");
    let arguments = [id.as_str(), what, "--format=csv,noheader,nounits"];
    ask("nvidia-smi", &arguments, PATIENCE).map_err(|silent| match silent {
        Silent::Missing => "nvidia-smi was not found",
        Silent::Failed => "nvidia-smi failed",
    })
}

fn memory(gpu: &str) -> Result<Option<Memory>, &'static str> {
    let text = query(gpu, "--query-gpu=memory.free,memory.total")?;
    Ok(memory_in(&text))
}

/// The memory in a line such as `79012, 81559`; none if the driver says `[N/A]`.
fn memory_in(text: &str) -> Option<Memory> {
    let (free, total) = text.lines().next()?.split_once(',')?;
    Some(Memory {
        free: free.trim().parse().ok()?,
        total: total.trim().parse().ok()?,
    })
}

/// The processes on a GPU, as `4242 (python, 1000 MiB)`.
fn others(gpu: &str) -> String {
    let text = query(gpu, "--query-compute-apps=pid,process_name,used_memory");
    let process = |line: &str| {
        let mut cells = line.split(',').map(str::trim);
        let (process, name, mib) = (cells.next()?, cells.next()?, cells.next()?);
        let name = name.rsplit('/').next().unwrap_or(name);
        Some(format!("{process} ({name}, {mib} MiB)"))
    };
    let found: Vec<String> = text
        .unwrap_or_default()
        .lines()
        .filter_map(process)
        .collect();
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_runs_that_meet_on_a_gpu_are_counted() {
        let need = Need::of(vec![10, 300, 20, 200], 2, 1);
        assert_eq!((need.runs, need.mib), (2, 500));
        assert_eq!(need.with_contexts(), 500 + 2 * CONTEXT_MIB);
        assert_eq!(Need::of(vec![10], 4, 1).runs, 1);
        assert_eq!(Need::of(Vec::new(), 4, 1).with_contexts(), 0);
        let together = Need::of(vec![10, 300, 20, 200], 1, 3);
        assert_eq!(
            (together.runs, together.with_contexts()),
            (3, 520 + CONTEXT_MIB)
        );
    }

    #[test]
    fn answers_of_nvidia_smi_are_read() {
        let known = Memory {
            free: 79_012,
            total: 81_559,
        };
        assert_eq!(memory_in("79012, 81559\n"), Some(known));
        assert_eq!(memory_in("[N/A], [N/A]\n"), None);
        assert_eq!(memory_in(""), None);
    }
}
