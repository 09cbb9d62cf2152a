//! What a scheduler gave to this process: its index, cores, GPUs and time, from the variables that
//! Slurm, HyperQueue, GNU parallel and Kubernetes set.

use crate::cluster::directory::{Scheduler, TaskHow};
use crate::cluster::slurm;
use crate::options::Gpus;
use experiment::device::DeviceName;
use experiment::runs_on_disk::hold::Identity;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::exit::{Exit, Failure};

/// Reads the environment; tests read a table.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of this process. An empty variable counts as none.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The variables with a task's index, the innermost scheduler first: HyperQueue and GNU parallel
/// also run inside an allocation of Slurm, whose own variables they pass on.
const INDICES: [(&str, usize); 4] = [
    ("HQ_TASK_ID", 0),
    // Counted from 1.
    ("PARALLEL_SEQ", 1),
    ("JOB_COMPLETION_INDEX", 0),
    ("SLURM_ARRAY_TASK_ID", 0),
];

/// The index of a task, and where it was found: `--task`, or a scheduler's variable.
///
/// # Errors
///
/// [`Exit::Config`] if there is none, or it is not a number.
pub fn index(asked: Option<usize>, env: Env<'_>) -> Result<(usize, String), Failure> {
    if let Some(index) = asked {
        return Ok((index, format!("--task {index}")));
    }
    let found = INDICES
        .iter()
        .find_map(|(name, first)| Some((name, first, env(name)?)));
    let Some((name, first, value)) = found else {
        let names: Vec<&str> = INDICES.iter().map(|(name, _)| *name).collect();
        return Err(Failure::config("no task was named")
            .with_allowed(format!(
                "--task I, or one of the variables {}",
                names.join(", ")
            ))
            .with_help("schedulers set them; by hand, give --task 0"));
    };
    let source = format!("{name}={value}");
    let index = value.trim().parse::<usize>().ok();
    match index.and_then(|index| index.checked_sub(*first)) {
        Some(index) => Ok((index, source)),
        None => Err(
            Failure::config(format!("{source} is not the index of a task"))
                .with_allowed(format!("a number from {first}")),
        ),
    }
}

/// CPUs of this task: those that Slurm granted to it, or those that were asked for, but never more
/// than this process can use.
pub fn cores(how: &TaskHow, scheduler: Scheduler, env: Env<'_>) -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    // Tasks of another scheduler inside an allocation see the CPUs of the whole node there.
    let variables = match scheduler {
        Scheduler::Slurm => &["SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"][..],
        Scheduler::Hq | Scheduler::Parallel => &[],
    };
    let granted = variables
        .iter()
        .find_map(|name| env(name)?.parse::<usize>().ok());
    granted.unwrap_or(how.cpus_per_task).clamp(1, usable)
}

/// The variables that name the GPUs of a process, for a kind of device.
fn gpu_variables(device: &DeviceName) -> &'static [&'static str] {
    match device.kind {
        "rocm" => &["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"],
        _ => &["CUDA_VISIBLE_DEVICES"],
    }
}

/// The GPUs that the scheduler gave to this task; none if it asked for none.
///
/// # Errors
///
/// [`Exit::Device`] if GPUs are needed and the scheduler gave none or too few.
pub fn gpus(how: &TaskHow, device: &DeviceName, env: Env<'_>) -> Result<Option<Gpus>, Failure> {
    if how.gpus_per_task == 0 && !matches!(device.kind, "cuda" | "rocm") {
        return Ok(None);
    }
    let variables = gpu_variables(device);
    let found = variables.iter().find_map(|name| Some((*name, env(name)?)));
    let names = |value: &str| -> Vec<String> {
        let names = value.split(',').map(|name| name.trim().to_owned());
        // Slurm writes `NoDevFiles` where a job got no GPU; -1 hides all that follow it.
        names
            .take_while(|name| name != "-1" && name != "NoDevFiles" && !name.is_empty())
            .collect()
    };
    let refuse = |problem: String, help: &str| {
        let on = on(&node(env));
        Err(Failure::new(Exit::Device, format!("this task{on} {problem}")).with_help(help))
    };
    match found.map(|(variable, value)| (variable, names(&value))) {
        Some((variable, names)) if !names.is_empty() => {
            if names.len() < how.gpus_per_task {
                let problem = format!(
                    "got {} of {} GPUs ({variable}={})",
                    names.len(),
                    how.gpus_per_task,
                    names.join(",")
                );
                return refuse(
                    problem,
                    "ask the scheduler for as many as --gpus-per-task says",
                );
            }
            Ok(Some(Gpus { variable, names }))
        }
        _ => refuse(
            format!("got no GPU: {} names none", variables.join(" or ")),
            "submit with --gpus-per-task 1, or where the scheduler does not set the variable, set it \
             in the script",
        ),
    }
}

/// The node's name in its cluster; empty outside one.
pub fn node(env: Env<'_>) -> String {
    env("SLURMD_NODENAME").unwrap_or_default()
}

/// The node's name, or that of the host.
pub fn node_or_host(env: Env<'_>) -> String {
    let name = node(env);
    if name.is_empty() {
        rundir::lock::hostname()
    } else {
        name
    }
}

/// ` on n1`; nothing for a node without a name.
pub fn on(node: &str) -> String {
    match node {
        "" => String::new(),
        node => format!(" on {node}"),
    }
}

/// The scheduler's id of this task: `12_3`.
pub fn job(env: Env<'_>) -> String {
    let slurm = || match (env("SLURM_ARRAY_JOB_ID"), env("SLURM_ARRAY_TASK_ID")) {
        (Some(job), Some(task)) => Some(format!("{job}_{task}")),
        _ => env("SLURM_JOB_ID"),
    };
    slurm().unwrap_or_default()
}

/// Who this task is in leases.
pub fn identity(how: &TaskHow, env: Env<'_>) -> Identity {
    Identity {
        node: node(env),
        job: job(env),
        interval: Duration::from_millis(how.heartbeat_ms.max(1)),
    }
}

/// How long this task may still run: until the end that Slurm gives, or the time that was
/// submitted, counted from now. None if neither is known: HyperQueue and GNU parallel end no task.
pub fn time_left(how: &TaskHow, scheduler: Scheduler, env: Env<'_>) -> Option<Duration> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let end = env("SLURM_JOB_END_TIME").and_then(|end| end.parse::<u64>().ok());
    let left = match end {
        Some(end) => Some(end.saturating_sub(now)),
        None => asked_slurm(env),
    };
    let submitted = Some(how.time_secs).filter(|secs| *secs > 0);
    let secs = match scheduler {
        // A person may have written another time into the script.
        Scheduler::Slurm => left.or(submitted),
        // The end is that of the allocation.
        Scheduler::Hq | Scheduler::Parallel => left.into_iter().chain(submitted).min(),
    };
    secs.map(Duration::from_secs)
}

/// The seconds that Slurm's controller says are left, for versions that set no variable. It may be
/// down: then nothing is known.
fn asked_slurm(env: Env<'_>) -> Option<u64> {
    seconds(&slurm::time_left(&env("SLURM_JOB_ID")?)?)
}

/// A duration as Slurm writes it: `2-03:04:05`, `2-03:04`, `03:04:05`, `04:05`. Minutes and seconds
/// behind another unit are below 60, hours behind days below 24.
pub fn seconds(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(u64::from(days.parse::<u32>().ok()?)), clock),
        None => (None, text),
    };
    let parts = clock
        .split(':')
        .map(|part| Some(part.parse::<u32>().ok()?.into()));
    let parts: Vec<u64> = parts.collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes, seconds]) => return (*seconds < 60).then(|| minutes * 60 + seconds),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let is_clock = minutes < 60 && seconds < 60 && (days.is_none() || hours < 24);
    is_clock.then(|| days.unwrap_or(0) * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(gpus: usize) -> TaskHow {
        TaskHow {
            device: "cuda".to_owned(),
            checkpoint_every: "30s".to_owned(),
            memory_limit: None,
            cpus_per_task: 1,
            task_mib: 1000,
            gpus_per_task: gpus,
            runs_per_gpu: 2,
            runs_per_worker: 1,
            max_parallel: None,
            time_secs: 3600,
            lead_secs: 120,
            heartbeat_ms: 30_000,
            scheduler_options: Vec::new(),
        }
    }

    fn cuda() -> DeviceName {
        "cuda".parse().unwrap()
    }

    fn with(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found
                .map(|(_, value)| (*value).to_owned())
                .filter(|value| !value.is_empty())
        }
    }

    #[test]
    fn the_index_comes_from_the_flag_or_the_innermost_engine() {
        let slurm = with(&[("SLURM_ARRAY_TASK_ID", "5")]);
        assert_eq!(index(Some(3), &slurm).unwrap().0, 3);
        assert_eq!(index(None, &slurm).unwrap().0, 5);
        let inner = with(&[("SLURM_ARRAY_TASK_ID", "5"), ("PARALLEL_SEQ", "8")]);
        assert_eq!(
            index(None, &inner).unwrap(),
            (7, "PARALLEL_SEQ=8".to_owned())
        );
        let hq = with(&[("SLURM_ARRAY_TASK_ID", "5"), ("HQ_TASK_ID", "2")]);
        assert_eq!(index(None, &hq).unwrap().0, 2);
        for wrong in [
            with(&[]),
            with(&[("PARALLEL_SEQ", "0")]),
            with(&[("HQ_TASK_ID", "x")]),
        ] {
            assert_eq!(index(None, &wrong).unwrap_err().exit, Exit::Config);
        }
    }

    #[test]
    fn cpus_and_time_of_an_allocation_are_those_of_a_task_of_slurm_only() {
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        let env = with(&[
            ("SLURM_CPUS_PER_TASK", ""),
            ("SLURM_CPUS_ON_NODE", "1000000"),
            ("SLURM_JOB_END_TIME", "99999999999"),
        ]);
        let hour = Some(Duration::from_secs(3600));
        let no_limit = TaskHow {
            time_secs: 0,
            ..how(0)
        };
        assert_eq!(cores(&how(0), Scheduler::Slurm, &env), usable);
        assert!(time_left(&how(0), Scheduler::Slurm, &env) > hour);
        for scheduler in [Scheduler::Hq, Scheduler::Parallel] {
            assert_eq!(cores(&how(0), scheduler, &env), 1);
            assert_eq!(time_left(&how(0), scheduler, &env), hour);
            assert!(time_left(&no_limit, scheduler, &env) > hour);
            assert_eq!(time_left(&no_limit, scheduler, &with(&[])), None);
        }
        assert_eq!(time_left(&how(0), Scheduler::Slurm, &with(&[])), hour);
    }

    #[test]
    fn gpus_are_those_of_the_variable_and_none_is_refused() {
        let two = gpus(
            &how(2),
            &cuda(),
            &with(&[("CUDA_VISIBLE_DEVICES", "3,GPU-a1")]),
        );
        let two = two.unwrap().unwrap();
        assert_eq!([two.of(0), two.of(1), two.of(2)], ["3", "GPU-a1", "3"]);
        for (count, value) in [(1, ""), (1, "NoDevFiles"), (1, "-1"), (2, "0")] {
            let env = move |_: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
            let refused = gpus(&how(count), &cuda(), &env).unwrap_err();
            assert_eq!(refused.exit, Exit::Device, "{value}");
        }
        let cpu = "cpu".parse().unwrap();
        assert_eq!(gpus(&how(0), &cpu, &with(&[])).unwrap(), None);
        let rocm = "rocm".parse().unwrap();
        let found = gpus(&how(1), &rocm, &with(&[("ROCR_VISIBLE_DEVICES", "1")]));
        assert_eq!(found.unwrap().unwrap().variable, "ROCR_VISIBLE_DEVICES");
    }

    #[test]
    fn durations_of_slurm_are_read() {
        assert_eq!(seconds("2-03:04:05"), Some(183_845));
        assert_eq!(seconds("4:05"), Some(245));
        assert_eq!(seconds("2-03:04"), Some(183_840));
        assert_eq!(seconds("100:59:59"), Some(363_599));
        for wrong in [
            "99:99:99",
            "1:60:00",
            "1:00:60",
            "90:99",
            "1-24:00:00",
            "1--1:00",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        let longest = format!("{0}-{0}:{0}:{0}", u64::MAX);
        assert_eq!(seconds(&longest), None);
        assert_eq!(seconds("UNLIMITED"), None);
        assert_eq!(seconds(""), None);
    }
}
