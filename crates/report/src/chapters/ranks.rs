//! Ranks of methods over several tasks, and how sure they are: bootstraps of tasks and seeds.

use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use std::cmp::Ordering;

/// Resamples of a bootstrap.
pub(super) const RESAMPLES: usize = 100_000;
/// Share of the resamples in which the leader of a group must be ahead of a method outside it.
pub(super) const AHEAD: f64 = 0.975;

/// The scores of all methods at one task.
pub(super) struct Scores {
    pub lower_is_better: bool,
    /// By seed, then by method: the score past the training length, none where the task was not
    /// learned. The same methods, in one order, at every task.
    pub by_seed: Vec<Vec<Option<f64>>>,
}

/// How a method stands over all tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standing {
    /// Mean reciprocal rank.
    pub mrr: f64,
    /// Share of the resamples in which it has the highest one; ties are split.
    pub best: f64,
    /// Its group, 0 for the first: the leader and all down to the last one by `mrr` that the leader
    /// is not clearly ahead of.
    pub group: usize,
}

/// The standing of each method. A resample draws tasks with replacement, and for each of them
/// seeds, the same ones for all methods; it repeats to the bit.
pub(super) fn standings(tasks: &[Scores]) -> Vec<Standing> {
    let methods = tasks[0].by_seed[0].len();
    let whole: Vec<Vec<f64>> = tasks
        .iter()
        .map(|task| reciprocals(task, 0..task.by_seed.len()))
        .collect();
    let mrr = mean_of(whole.iter(), methods);
    let mut best = vec![0.0; methods];
    // ahead[a][b]: resamples in which a is ahead of b, ties as halves.
    let mut ahead = vec![vec![0.0; methods]; methods];
    let mut rng = ChaCha8Rng::from_seed([0; 32]);
    for _ in 0..RESAMPLES {
        let drawn: Vec<Vec<f64>> = (0..tasks.len())
            .map(|_| {
                let task = &tasks[below(&mut rng, tasks.len())];
                let seeds = task.by_seed.len();
                let drawn: Vec<usize> = (0..seeds).map(|_| below(&mut rng, seeds)).collect();
                reciprocals(task, drawn.into_iter())
            })
            .collect();
        let scores = mean_of(drawn.iter(), methods);
        let most = scores.iter().copied().fold(0.0, f64::max);
        let first = scores.iter().filter(|score| **score == most).count() as f64;
        for (at, score) in scores.iter().enumerate() {
            best[at] += f64::from(u8::from(*score == most)) / first;
            for (other, theirs) in scores.iter().enumerate() {
                ahead[at][other] += match score.total_cmp(theirs) {
                    Ordering::Greater => 1.0,
                    Ordering::Equal => 0.5,
                    Ordering::Less => 0.0,
                };
            }
        }
    }
    let groups = groups(&mrr, &ahead);
    let standing = |at: usize| Standing {
        mrr: mrr[at],
        best: best[at] / RESAMPLES as f64,
        group: groups[at],
    };
    (0..methods).map(standing).collect()
}

/// By descending rank: the leader of those without a group, down to the last one that it is not
/// clearly ahead of, are the next group.
fn groups(mrr: &[f64], ahead: &[Vec<f64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..mrr.len()).collect();
    // Stable: equal methods stay in their order.
    order.sort_by(|a, b| mrr[*b].total_cmp(&mrr[*a]));
    let mut groups = vec![0; mrr.len()];
    let (mut left, mut group) = (&order[..], 0);
    while let Some(&leader) = left.first() {
        let is_behind = |at: &usize| ahead[leader][*at] >= AHEAD * RESAMPLES as f64;
        let last = left.iter().rposition(|at| *at == leader || !is_behind(at));
        let (own, rest) = left.split_at(last.map_or(1, |last| last + 1));
        own.iter().for_each(|at| groups[*at] = group);
        (left, group) = (rest, group + 1);
    }
    groups
}

/// One over the rank of each method by its mean score over some seeds; ties share their mean rank.
/// A method that fewer than half of the seeds learned comes after all that did.
fn reciprocals(task: &Scores, seeds: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
    let methods = task.by_seed[0].len();
    let score = |method: usize| {
        let all = seeds.clone().map(|seed| task.by_seed[seed][method]);
        let (mut sum, mut learned, mut count) = (0.0, 0, 0);
        for score in all {
            count += 1;
            if let Some(score) = score {
                sum += score;
                learned += 1;
            }
        }
        (learned > 0 && 2 * learned >= count).then(|| rounded(sum / f64::from(learned)))
    };
    let scores: Vec<Option<f64>> = (0..methods).map(score).collect();
    let order = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
        (Some(a), Some(b)) if task.lower_is_better => a.total_cmp(b),
        (Some(a), Some(b)) => b.total_cmp(a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    let reciprocal = |own: &Option<f64>| {
        let (mut before, mut equal) = (0.0, 0.0);
        for other in &scores {
            match order(other, own) {
                Ordering::Less => before += 1.0,
                Ordering::Equal => equal += 1.0,
                Ordering::Greater => {}
            }
        }
        // The equal ones include the method itself.
        1.0 / (1.0 + before + (equal - 1.0) / 2.0)
    };
    scores.iter().map(reciprocal).collect()
}

/// A mean without its last bits: sums of the same numbers in another order differ in them, and equal
/// means are ties.
fn rounded(mean: f64) -> f64 {
    (mean * 1e12).round() / 1e12
}

/// Means by method.
fn mean_of<'a>(all: impl ExactSizeIterator<Item = &'a Vec<f64>>, methods: usize) -> Vec<f64> {
    let count = all.len() as f64;
    let mut means = vec![0.0; methods];
    for values in all {
        for (mean, value) in means.iter_mut().zip(values) {
            *mean += value / count;
        }
    }
    means.into_iter().map(rounded).collect()
}

/// Uniform below `end`; the bias of 2^-64 times `end` is far below what is printed.
fn below(rng: &mut ChaCha8Rng, end: usize) -> usize {
    ((u128::from(rng.next_u64()) * end as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(by_seed: &[&[f64]]) -> Scores {
        let row = |row: &&[f64]| row.iter().map(|v| v.is_finite().then_some(*v)).collect();
        Scores {
            lower_is_better: true,
            by_seed: by_seed.iter().map(row).collect(),
        }
    }

    #[test]
    fn a_method_ahead_in_every_seed_of_every_task_is_the_best() {
        let tasks = [
            task(&[&[1.0, 2.0, 3.0], &[1.1, 3.0, 2.0]]),
            task(&[&[5.0, 6.0, 7.0], &[5.0, 7.0, 6.0]]),
        ];
        let all = standings(&tasks);
        assert_eq!((all[0].mrr, all[0].best, all[0].group), (1.0, 1.0, 0));
        // The other two change places from seed to seed.
        assert_eq!((all[1].best, all[2].best), (0.0, 0.0));
        assert_eq!((all[1].group, all[2].group), (1, 1));
    }

    #[test]
    fn chances_are_those_of_the_draws() {
        // Seed 0 says the first method, seed 1 the second, by as much: of the four draws of two
        // seeds one is only seed 0, one only seed 1, and two tie.
        let all = standings(&[task(&[&[1.0, 2.0], &[2.0, 1.0]])]);
        assert!((all[0].best - 0.5).abs() < 0.02, "{all:?}");
        // One task of three is the second method's: it is ahead if at least two of three drawn are
        // that one, 3 (1/3)^2 (2/3) + (1/3)^3 = 7/27.
        let first = || task(&[&[1.0, 2.0]]);
        let all = standings(&[first(), first(), task(&[&[2.0, 1.0]])]);
        assert!((all[1].best - 7.0 / 27.0).abs() < 0.02, "{all:?}");
        assert_eq!((all[0].group, all[1].group), (0, 0));
    }

    #[test]
    fn a_group_reaches_down_to_the_last_method_that_its_leader_is_not_ahead_of() {
        let all = RESAMPLES as f64;
        let mut ahead = vec![vec![0.0; 4]; 4];
        ahead[1] = vec![all, 0.0, 0.9 * all, all];
        ahead[3][0] = 0.5 * all;
        // In order of rank: 1, 0, 2, 3. 1 is ahead of 0, but not of 2 below it.
        assert_eq!(groups(&[0.5, 0.9, 0.4, 0.1], &ahead), [0, 0, 0, 1]);
    }

    #[test]
    fn equal_means_tie_in_whatever_order_they_are_summed() {
        // One over the ranks, 1, 1/2 and 1/3, in two orders: the second method is the first one's
        // mirror image, so the two are equal in the whole, and each is ahead as often.
        let tasks = [
            task(&[&[1.0, 3.0, 2.0]]),
            task(&[&[2.0, 1.0, 3.0]]),
            task(&[&[3.0, 2.0, 1.0]]),
        ];
        let all = standings(&tasks);
        assert!(all.iter().all(|s| s.mrr == all[0].mrr), "{all:?}");
        // Scores of the same seeds in another order are equal, too.
        let task = task(&[&[0.1, 0.3, 9.0], &[0.2, 0.2, 9.0], &[0.3, 0.1, 9.0]]);
        assert_ne!(0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, "the sums differ");
        assert_eq!(reciprocals(&task, 0..3), [1.0 / 1.5, 1.0 / 1.5, 1.0 / 3.0]);
    }

    #[test]
    fn methods_that_did_not_learn_come_last_and_tie() {
        let nan = f64::NAN;
        let task = task(&[
            &[2.0, nan, nan, 1.0],
            &[2.0, nan, 9.0, nan],
            &[2.0, 1.0, 8.0, nan],
        ]);
        // Learned by 3, 1, 2 and 1 of three seeds.
        let third = 1.0 / 3.5;
        assert_eq!(reciprocals(&task, 0..3), [1.0, third, 0.5, third]);
    }
}
