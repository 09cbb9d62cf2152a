//! Packing runs into tasks: long enough that starting them costs nothing, short enough that a
//! requeue is soon over, and no more of them than an array may have.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Seconds that a task should take: the middle of 30 and 60 minutes.
pub const TARGET_SECS: f64 = 2700.0;

/// How runs are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerTask {
    /// By their expected time.
    Auto,
    /// This number of runs in each task.
    Fixed(usize),
}

impl std::str::FromStr for PerTask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<usize>()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(n)) if n > 0 => Ok(Self::Fixed(n)),
            _ => Err(format!(
                "`{text}` is neither `auto` nor a number of runs from 1"
            )),
        }
    }
}

/// Divides runs among tasks by index, the longest runs first, and the longest tasks first. `secs`
/// are the expected seconds of the runs, `at_once` how many a task runs side by side, `most` how
/// many tasks there may be.
pub fn pack(secs: &[f64], per_task: PerTask, at_once: usize, most: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..secs.len()).collect();
    // Stable: runs of equal length keep the order of the plan.
    order.sort_by(|a, b| secs[*b].total_cmp(&secs[*a]));
    let tasks = match per_task {
        PerTask::Fixed(runs) => order.chunks(runs).map(<[usize]>::to_vec).collect(),
        PerTask::Auto => {
            let all: f64 = secs.iter().sum::<f64>() / at_once.max(1) as f64;
            let wanted = (all / TARGET_SECS).ceil().max(1.0);
            // Never more than there are runs, nor than the scheduler allows.
            let tasks = (wanted as usize).min(order.len()).min(most).max(1);
            balanced(&order, secs, tasks)
        }
    };
    let mut tasks: Vec<Vec<usize>> = tasks;
    let length = |task: &Vec<usize>| task.iter().map(|run| secs[*run]).sum::<f64>();
    tasks.sort_by(|a, b| length(b).total_cmp(&length(a)));
    tasks
}

/// Each run, the longest first, goes to the task that has least to do.
fn balanced(order: &[usize], secs: &[f64], tasks: usize) -> Vec<Vec<usize>> {
    let mut packed = vec![Vec::new(); tasks];
    // Nanoseconds, because floats have no total order of their own.
    let mut free: BinaryHeap<Reverse<(u128, usize)>> =
        (0..tasks).map(|task| Reverse((0, task))).collect();
    for run in order {
        if let Some(Reverse((load, task))) = free.pop() {
            packed[task].push(*run);
            let more = (secs[*run].max(0.0) * 1e9) as u128;
            free.push(Reverse((load + more, task)));
        }
    }
    packed.retain(|runs| !runs.is_empty());
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(packed: &[Vec<usize>], secs: &[f64]) -> Vec<f64> {
        let load = |task: &Vec<usize>| task.iter().map(|run| secs[*run]).sum();
        packed.iter().map(load).collect()
    }

    #[test]
    fn every_run_is_in_one_task_and_tasks_take_30_to_60_minutes() {
        let secs: Vec<f64> = (0..1000)
            .map(|run| 60.0 + (run * 7919 % 600) as f64)
            .collect();
        for at_once in [1, 4] {
            let packed = pack(&secs, PerTask::Auto, at_once, 1000);
            let mut all: Vec<usize> = packed.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..1000).collect::<Vec<_>>());
            for load in loads(&packed, &secs) {
                let takes = load / at_once as f64;
                assert!((1800.0..=3600.0).contains(&takes), "{takes}");
            }
        }
    }

    #[test]
    fn the_longest_come_first_and_an_array_is_never_too_large() {
        let secs: Vec<f64> = (0..5000).map(|run| 1000.0 + run as f64).collect();
        let packed = pack(&secs, PerTask::Auto, 1, 1001);
        assert_eq!(packed.len(), 1001);
        let loads = loads(&packed, &secs);
        assert!(loads.is_sorted_by(|a, b| a >= b));
        for task in &packed {
            assert!(task.is_sorted_by(|a, b| secs[*a] >= secs[*b]));
        }
    }

    #[test]
    fn a_fixed_number_of_runs_is_kept_and_short_sweeps_are_one_task() {
        let secs = [1.0, 5.0, 2.0, 4.0, 3.0];
        assert_eq!(
            pack(&secs, PerTask::Fixed(2), 1, 9),
            [vec![1, 3], vec![4, 2], vec![0]]
        );
        assert_eq!(pack(&secs, PerTask::Auto, 1, 9), [vec![1, 3, 4, 2, 0]]);
        assert_eq!(pack(&[7200.0, 7200.0], PerTask::Auto, 1, 9).len(), 2);
    }
}
