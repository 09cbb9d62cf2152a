//! Coverage of what perplexities, differences on a text and claims are judged by.

use crate::simulation::{Draws, Text, TextInterval, any_rejected, geometric, mean, text};
use rayon::prelude::*;
use records::stats::{Estimate, OverText, Scale, run_length};

const SEEDS: [usize; 3] = [3, 5, 10];
/// Standard deviation of the loss of RoPE at 16 times its training length over eight seeds.
const LOG_SD: f64 = 0.31;

fn in_nats(values: &[f64]) -> Option<(f64, f64)> {
    Estimate::of(Scale::Log, values)?.interval
}

fn of_mean(values: &[f64]) -> Option<(f64, f64)> {
    Estimate::of_mean(values)?.interval
}

/// An interval that holds 0 or less, as the truth of 0 is then "covered".
fn reaches_0(values: &[f64]) -> Option<(f64, f64)> {
    let (low, _) = of_mean(values)?;
    Some(if low <= 0.0 { (1.0, 1.0) } else { (2.0, 2.0) })
}

/// Every chapter of this file. `replicates`: those of a cell of the tables of shares; normal values
/// are drawn faster and get more.
pub fn all(replicates: usize) {
    perplexities(10 * replicates);
    text_differences(replicates.div_ceil(2));
    claims(2 * replicates);
}

/// Perplexities whose logarithm is normal.
fn perplexities(replicates: usize) {
    println!("\n## A perplexity\n");
    println!(
        "Values whose logarithm is normal with a standard deviation of {LOG_SD}. In use: Student's t \
         in nats, for the geometric mean.\n"
    );
    println!("| interval | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|");
    let percent =
        |of: &dyn Fn(usize) -> f64| SEEDS.map(|seeds| format!("{:.1}", 100.0 * of(seeds)));
    let stream = 1 << 34;
    let rows = [
        (
            "in use",
            percent(&|n| geometric(n, LOG_SD, replicates, stream, in_nats).covered),
        ),
        (
            "Student t of perplexities, for their mean",
            percent(&|n| mean(n, Some(LOG_SD), replicates, stream, of_mean).covered),
        ),
        (
            "of these, reaching 0 or below",
            percent(&|n| geometric(n, LOG_SD, replicates, stream, reaches_0).covered),
        ),
    ];
    for (name, cells) in rows {
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn over_seeds(values: &[Vec<f64>]) -> Option<Estimate> {
    let means = values
        .iter()
        .map(|row| row.iter().sum::<f64>() / row.len() as f64);
    Estimate::of_mean(&means.collect::<Vec<_>>())
}

fn seeds_alone(values: &[Vec<f64>]) -> Option<(f64, f64)> {
    over_seeds(values)?.interval
}

fn blocks(values: &[Vec<f64>]) -> Vec<f64> {
    let n = values.len() as f64;
    let block = |at: usize| values.iter().map(|row| row[at]).sum::<f64>() / n;
    (0..values[0].len()).map(block).collect()
}

fn in_use(values: &[Vec<f64>]) -> Option<(f64, f64)> {
    over_seeds(values)?
        .over(OverText::of(&blocks(values))?)
        .interval
}

/// Percentile interval of a bootstrap that resamples seeds and runs of blocks together, with 2000
/// resamples.
fn joint_bootstrap(values: &[Vec<f64>], run: usize) -> Option<(f64, f64)> {
    let mut draws = Draws::new(u64::MAX);
    let (seeds, blocks) = (values.len(), values.first()?.len());
    // Means of runs by seed and start.
    let of_run = |row: &Vec<f64>, start: usize| {
        let all = (start..start + run).map(|at| row[at % blocks]);
        all.sum::<f64>() / run as f64
    };
    let runs: Vec<Vec<f64>> = values
        .iter()
        .map(|row| (0..blocks).map(|start| of_run(row, start)).collect())
        .collect();
    let mut pick = |count: usize, of: usize| -> Vec<usize> {
        (0..count)
            .map(|_| (draws.uniform() * of as f64) as usize)
            .collect()
    };
    let mut means: Vec<f64> = (0..2000)
        .map(|_| {
            let (rows, starts) = (pick(seeds, seeds), pick(blocks / run, blocks));
            let sums = rows
                .iter()
                .map(|row| starts.iter().map(|at| runs[*row][*at]).sum::<f64>());
            sums.sum::<f64>() / (rows.len() * starts.len()) as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some((means[49], means[1950]))
}

fn joint(values: &[Vec<f64>]) -> Option<(f64, f64)> {
    joint_bootstrap(values, run_length(values[0].len()))
}

fn wider(values: &[Vec<f64>]) -> Option<(f64, f64)> {
    let (a, b) = (seeds_alone(values)?, joint(values)?);
    Some(if a.1 - a.0 > b.1 - b.0 { a } else { b })
}

/// Differences between two methods on one text.
fn text_differences(replicates: usize) {
    println!("\n## A difference between two methods on one text\n");
    println!(
        "64 blocks of the text, both methods on the same ones. Share: that of the text in the variance \
         of the mean difference, the rest\nis between seeds. Correlation: of neighbouring blocks. \
         {replicates} replicates in every cell.\n"
    );
    println!("| correlation | share | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|---|");
    let cells = |replicates: usize, interval: TextInterval| -> Vec<(f64, f64, usize, f64, f64)> {
        let mut all = Vec::new();
        for correlation in [0.0, 0.3, 0.6] {
            for share in [0.0, 0.2, 0.5, 0.8] {
                all.extend(SEEDS.map(|seeds| (correlation, share, seeds)));
            }
        }
        let run = |(at, (correlation, share, seeds)): (usize, (f64, f64, usize))| {
            let model = Text {
                seeds,
                blocks: 64,
                correlation,
                share,
            };
            let found = text(&model, replicates, (1 << 35) + at as u64, interval);
            (correlation, share, seeds, found.covered, found.width)
        };
        all.into_par_iter().enumerate().map(run).collect()
    };
    let found = cells(replicates, in_use);
    for row in found.chunks(SEEDS.len()) {
        let each: Vec<String> = row
            .iter()
            .map(|(.., covered, width)| format!("{:.1} ({width:.2})", 100.0 * covered))
            .collect();
        println!("| {} | {} | {} |", row[0].0, row[0].1, each.join(" | "));
    }
    let few = (replicates / 10).max(1);
    println!(
        "\nMethods compared, {few} replicates: least coverage over the cells, and mean width.\n"
    );
    println!("| method | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|");
    let methods: [(&str, TextInterval); 4] = [
        ("in use", in_use),
        ("Student t over seeds", seeds_alone),
        ("bootstrap of seeds and runs of blocks together", joint),
        ("the wider of these two", wider),
    ];
    for (name, interval) in methods {
        let found = cells(few, interval);
        let of = |seeds: usize| {
            let own = found.iter().filter(|cell| cell.2 == seeds);
            let least = own.clone().map(|cell| cell.3).fold(1.0, f64::min);
            let width = own.clone().map(|cell| cell.4).sum::<f64>() / own.count() as f64;
            format!("{:.1} ({width:.2})", 100.0 * least)
        };
        println!("| {name} | {} |", SEEDS.map(of).join(" | "));
    }
}

fn is_above(values: &[f64], alpha: f64) -> bool {
    let interval = Estimate::of_mean(values).and_then(|e| e.interval_at(alpha));
    interval.is_some_and(|(low, _)| low > 0.0)
}

/// True claims of several comparisons that are said to disagree.
fn claims(replicates: usize) {
    println!("\n## A claim of several comparisons\n");
    println!(
        "How often, in percent, a true claim of k comparisons is said to disagree: every mean is its \
         bound. Correlation: of the\nvalues of one seed. Holm's procedure rejects any if and only if \
         its first step does, at 5 % / k.\n"
    );
    println!(
        "| procedure | correlation | seeds | k = 1 | k = 4 | k = 12 |\n|---|---|---|---|---|---|"
    );
    let alone: fn(&[f64], usize) -> bool = |values, _| is_above(values, 0.05);
    let holm: fn(&[f64], usize) -> bool = |values, k| is_above(values, 0.05 / k as f64);
    for (name, rejects) in [("Holm", holm), ("each at 5 %", alone)] {
        for correlation in [0.0, 0.5] {
            for seeds in SEEDS {
                let of = |k: usize| {
                    let stream = (1 << 36) + seeds as u64;
                    let found = any_rejected(k, seeds, correlation, replicates, stream, rejects);
                    format!("{:.1}", 100.0 * found)
                };
                let cells = [1, 4, 12].map(of).join(" | ");
                println!("| {name} | {correlation} | {seeds} | {cells} |");
            }
        }
    }
}
