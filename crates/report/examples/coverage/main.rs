//! Simulated coverage of every interval of a report, as the Markdown of `docs/evidence/coverage.md`:
//!
//! ```text
//! cargo run --release --locked -p longreach-report --example coverage > docs/evidence/coverage.md
//! ```
//!
//! `coverage REPLICATES` takes that many for every cell instead of 4,000, and `coverage REPLICATES
//! comparisons` prints the chapters from the one on perplexities on. The same number gives the same
//! text on any number of threads.

mod comparisons;
mod simulation;

use rayon::prelude::*;
use records::stats::Estimate;
use simulation::{Coverage, Crossed, ShareInterval};
use statrs::distribution::{Beta, ContinuousCDF, StudentsT};
use std::process::ExitCode;

const SHARES: [f64; 7] = [0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99];
const PAIRS: [(f64, f64); 7] = [
    (0.05, 0.01),
    (0.2, 0.05),
    (0.5, 0.2),
    (0.5, 0.5),
    (0.8, 0.5),
    (0.95, 0.8),
    (0.99, 0.95),
];
/// A share far out and one in length, which a task that was learned keeps near 1.
const RATIOS: [(f64, f64); 5] = [
    (0.99, 0.99),
    (0.9, 0.99),
    (0.5, 0.95),
    (0.2, 0.95),
    (0.05, 0.95),
];
const SEEDS: [usize; 3] = [3, 5, 10];
const ROWS: [u64; 2] = [100, 1000];
/// Correlations for which 95 % is required.
const REQUIRED: [f64; 4] = [0.0, 0.1, 0.2, 0.3];
/// Correlations that show where the intervals fall short; 1: each seed answers all rows right, or
/// all wrong.
const BEYOND: [f64; 3] = [0.4, 0.6, 1.0];

fn of_share(values: &[f64], rows: u64) -> Option<(f64, f64)> {
    Estimate::of_share(values, rows)?.interval
}

fn of_difference(pairs: &[(f64, f64)], rows: u64) -> Option<(f64, f64)> {
    Estimate::of_share_difference(pairs, (rows, rows))?.interval
}

fn of_ratio(pairs: &[(f64, f64)], rows: u64) -> Option<(f64, f64)> {
    Estimate::of_share_ratio(pairs, (rows, rows))?.interval
}

fn of_mean(values: &[f64]) -> Option<(f64, f64)> {
    Estimate::of_mean(values)?.interval
}

fn t_975(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975))
}

fn student_t(values: &[f64], _: u64) -> Option<(f64, f64)> {
    of_mean(values)
}

/// Korn and Graubard (1998) with the rows as the most that a sample can be worth.
fn korn_graubard(values: &[f64], rows: u64) -> Option<(f64, f64)> {
    let estimate = Estimate::of_mean(values)?;
    let (mean, sd, m, n) = (
        estimate.mean,
        estimate.sd?,
        values.len() as f64,
        rows as f64,
    );
    let of_a_row = mean * (1.0 - mean);
    let effective = if sd > 0.0 {
        of_a_row / (sd * sd / m)
    } else {
        m * n
    };
    let effective = (effective * (t_975(n - 1.0)? / t_975(m - 1.0)?).powi(2)).min(n);
    let (right, wrong) = (mean * effective, (1.0 - mean) * effective);
    let low = if right < 1e-9 {
        0.0
    } else {
        Beta::new(right, wrong + 1.0).ok()?.inverse_cdf(0.025)
    };
    let high = if wrong < 1e-9 {
        1.0
    } else {
        Beta::new(right + 1.0, wrong).ok()?.inverse_cdf(0.975)
    };
    Some((low, high))
}

/// Student's t on the logits of the seeds, no narrower than Wilson's interval over the rows.
fn logit_t(values: &[f64], rows: u64) -> Option<(f64, f64)> {
    let n = rows as f64;
    let logits: Vec<f64> = values
        .iter()
        .map(|p| ((p * n + 0.5) / (n - p * n + 0.5)).ln())
        .collect();
    let (low, high) = of_mean(&logits)?;
    let share = |logit: f64| 1.0 / (1.0 + (-logit).exp());
    let (mean, z) = (Estimate::of_mean(values)?.mean, 1.959_964);
    let centre = (mean + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (mean * (1.0 - mean) / n + z * z / (4.0 * n * n)).sqrt();
    Some((
        share(low).min(centre - half),
        share(high).max(centre + half),
    ))
}

/// A simulated cell of a table: what it is about, and what came out.
struct Cell {
    crossed: Crossed,
    shares: (f64, f64),
    coverage: Coverage,
}

/// Every combination of rows and difficulty at some correlations, of each share or pair.
fn grid(shares: &[(f64, f64)], correlations: &[f64]) -> Vec<((f64, f64), Crossed)> {
    let mut out = Vec::new();
    for &pair in shares {
        for &correlation in correlations {
            for seeds in SEEDS {
                for rows in ROWS {
                    // Rows make no difference where a seed answers all alike.
                    for hard_rows in if correlation < 1.0 {
                        &[false, true][..]
                    } else {
                        &[false]
                    } {
                        out.push((
                            pair,
                            Crossed {
                                seeds,
                                rows,
                                correlation,
                                hard_rows: *hard_rows,
                            },
                        ));
                    }
                }
            }
        }
    }
    out
}

fn of_shares(correlations: &[f64], replicates: usize, interval: ShareInterval) -> Vec<Cell> {
    let one = |share: f64| (share, share);
    let cells = grid(&SHARES.map(one), correlations)
        .into_par_iter()
        .enumerate();
    let run = |(stream, (shares, crossed)): (usize, ((f64, f64), Crossed))| {
        let coverage = simulation::share(&crossed, shares.0, replicates, stream as u64, interval);
        Cell {
            crossed,
            shares,
            coverage,
        }
    };
    cells.map(run).collect()
}

fn of_differences(correlations: &[f64], replicates: usize) -> Vec<Cell> {
    of_pairs(&PAIRS, correlations, |stream, crossed, shares, pairing| {
        let stream = (1 << 32) + stream;
        simulation::difference(crossed, shares, pairing, replicates, stream, of_difference)
    })
}

fn of_ratios(correlations: &[f64], replicates: usize) -> Vec<Cell> {
    of_pairs(&RATIOS, correlations, |stream, crossed, shares, pairing| {
        let stream = (3 << 32) + stream;
        simulation::ratio(crossed, shares, pairing, replicates, stream, of_ratio)
    })
}

/// Every combination for some pairs of shares, the seeds' deviates unpaired and paired.
fn of_pairs(
    pairs: &[(f64, f64)],
    correlations: &[f64],
    simulate: impl Fn(u64, &Crossed, (f64, f64), f64) -> Coverage + Sync,
) -> Vec<Cell> {
    let both = |(shares, crossed)| [0.0, 0.7].map(|pairing| (shares, crossed, pairing));
    let cells: Vec<_> = grid(pairs, correlations)
        .into_iter()
        .flat_map(both)
        .collect();
    let run = |(stream, (shares, crossed, pairing)): (usize, ((f64, f64), Crossed, f64))| Cell {
        coverage: simulate(stream as u64, &crossed, shares, pairing),
        crossed,
        shares,
    };
    cells.into_par_iter().enumerate().map(run).collect()
}

/// The least coverage and the mean width of some cells.
fn summary<'a>(cells: impl Iterator<Item = &'a Cell>) -> (f64, f64) {
    let (mut least, mut width, mut count) = (1.0_f64, 0.0, 0);
    for cell in cells {
        least = least.min(cell.coverage.covered);
        width += cell.coverage.width;
        count += 1;
    }
    (least, width / f64::from(count.max(1)))
}

fn text((least, width): (f64, f64)) -> String {
    format!("{:.1} ({width:.3})", 100.0 * least)
}

/// A row for each correlation and share or pair, a column for each number of seeds.
fn table(
    cells: &[Cell],
    correlations: &[f64],
    shares: &[(f64, f64)],
    name: &dyn Fn((f64, f64)) -> String,
) {
    println!("| correlation | true value | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|---|");
    for &correlation in correlations {
        for &pair in shares {
            let of = |seeds| {
                cells.iter().filter(move |c| {
                    c.crossed.correlation == correlation
                        && c.shares == pair
                        && c.crossed.seeds == seeds
                })
            };
            let row = SEEDS.map(|seeds| text(summary(of(seeds))));
            let correlation = if correlation < 1.0 {
                correlation.to_string()
            } else {
                "all or nothing".into()
            };
            println!("| {correlation} | {} | {} |", name(pair), row.join(" | "));
        }
    }
}

fn main() -> ExitCode {
    let replicates = match std::env::args().nth(1).map(|text| text.parse::<usize>()) {
        None => 4000,
        Some(Ok(replicates)) if replicates > 0 => replicates,
        Some(_) => {
            eprintln!("usage: coverage [REPLICATES [comparisons]]");
            return ExitCode::from(2);
        }
    };
    if std::env::args()
        .nth(2)
        .is_some_and(|part| part == "comparisons")
    {
        comparisons::all(replicates);
        return ExitCode::SUCCESS;
    }
    let of_all = replicates;
    let error = (0.95 * 0.05 / replicates as f64).sqrt();
    println!(
        "<!-- Written by `cargo run --release --locked -p longreach-report --example \
         coverage`. Do not edit. -->\n"
    );
    println!("# Simulated coverage of the intervals\n");
    println!(
        "How often a nominal 95 % interval of a report holds the true value, by simulation, \
         {replicates} replicates in every cell"
    );
    println!(
        "(standard error {:.2} points at 95 %). The methods and the model are in \
         [evaluation.md](../evaluation.md).\n",
        100.0 * error
    );
    println!(
        "Cells of the tables of shares: the **least coverage in percent** over 100 and 1000 test \
         rows, rows of equal and of unequal"
    );
    println!(
        "difficulty, and in brackets the mean width of the interval. Correlation: of two answers \
         of one seed, on the probit scale."
    );
    println!(
        "A cell is required to reach 95 % less three standard errors, {:.1} %.\n",
        100.0 * (0.95 - 3.0 * error)
    );

    let required = of_shares(&REQUIRED, replicates, of_share);
    let one = |pair: (f64, f64)| pair.0.to_string();
    let singles = SHARES.map(|share| (share, share));
    println!("## A share: required\n");
    table(&required, &REQUIRED, &singles, &one);
    println!("\n## A share: stronger spread between seeds\n");
    println!(
        "Seeds that agree by chance show no spread, and an interval cannot know of it. The last \
         rows are the limit.\n"
    );
    table(
        &of_shares(&BEYOND, replicates, of_share),
        &BEYOND,
        &singles,
        &one,
    );

    println!("\n## A share: methods compared\n\nOver all required cells.\n");
    println!(
        "| method | least coverage | cells below {:.1} % | mean width |\n|---|---|---|---|",
        100.0 * (0.95 - 3.0 * error)
    );
    let methods: [(&str, ShareInterval); 4] = [
        ("in use", of_share),
        ("Student t over seeds", student_t),
        (
            "Korn and Graubard as published, at most n rows",
            korn_graubard,
        ),
        ("Student t of logits, at least Wilson's interval", logit_t),
    ];
    for (name, interval) in methods {
        let cells = of_shares(&REQUIRED, replicates, interval);
        let (least, width) = summary(cells.iter());
        let below = cells
            .iter()
            .filter(|c| c.coverage.covered < 0.95 - 3.0 * error)
            .count();
        println!(
            "| {name} | {:.1} | {below} of {} | {width:.3} |",
            100.0 * least,
            cells.len()
        );
    }

    let pair = |pair: (f64, f64)| format!("{} - {}", pair.0, pair.1);
    println!("\n## A difference of shares, paired by seed: required\n");
    println!("Also over a correlation of a seed's two deviates of 0 and 0.7.\n");
    let replicates = replicates.div_ceil(2);
    println!("{replicates} replicates in every cell.\n");
    table(
        &of_differences(&REQUIRED, replicates),
        &REQUIRED,
        &PAIRS,
        &pair,
    );
    println!("\n## A difference of shares: stronger spread between seeds\n");
    table(&of_differences(&BEYOND, replicates), &BEYOND, &PAIRS, &pair);

    println!("\n## A ratio of shares, paired by seed\n");
    println!("{replicates} replicates in every cell, as for differences.\n");
    let ratio = |pair: (f64, f64)| format!("{} / {}", pair.0, pair.1);
    let correlations = [&REQUIRED[..], &BEYOND[..]].concat();
    let cells = of_ratios(&correlations, replicates);
    table(&cells, &correlations, &RATIOS, &ratio);

    println!("\n## A mean: Student t over seeds\n");
    println!(
        "Exact for normal values. Perplexities, their ratios and reaches are skewed: the rows are \
         values whose logarithm is normal.\n"
    );
    println!("| values | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|");
    let replicates = 20 * replicates;
    for (name, log_sd) in [
        ("normal", None),
        ("log sd 0.05", Some(0.05)),
        ("log sd 0.25", Some(0.25)),
        ("log sd 0.5", Some(0.5)),
        ("log sd 1", Some(1.0)),
    ] {
        let row = SEEDS.map(|seeds| {
            format!(
                "{:.1}",
                100.0 * simulation::mean(seeds, log_sd, replicates, 1 << 33, of_mean).covered
            )
        });
        println!("| {name} | {} |", row.join(" | "));
    }
    comparisons::all(of_all);
    ExitCode::SUCCESS
}
