//! The scores of a setting as differences to each of its methods, for the script of a page.

use super::baseline::{difference_text, side};
use crate::captions::key;
use crate::document::Differences;
use records::analysis::setting::Setting;

/// Differences of every metric to every method, paired by seed. `most`: the number of differences
/// that a page has room for; beyond it the leading metric alone, and then the first methods.
pub(crate) fn differences(setting: &Setting<'_>, most: usize) -> Vec<Differences> {
    let (methods, lengths) = (setting.methods.len(), setting.lengths.len().max(1));
    if methods < 2 {
        return Vec::new();
    }
    let of_metric = methods * methods * lengths;
    let metrics = (most / of_metric).clamp(1, setting.metrics.len());
    let baselines = (most / (methods * lengths)).min(methods);
    let pairs = setting.metrics[..metrics]
        .iter()
        .flat_map(|metric| (0..baselines).map(move |base| (metric.as_str(), base)));
    pairs
        .map(|(metric, base)| to(setting, metric, base))
        .collect()
}

fn to(setting: &Setting<'_>, metric: &str, base: usize) -> Differences {
    let baseline = &setting.methods[base];
    let others = (0..setting.methods.len()).filter(|&method| method != base);
    let row = |method: usize| {
        let cell = |&len: &usize| {
            let point = setting.difference(&setting.methods[method], baseline, metric, len);
            (
                difference_text(metric, &point),
                side(metric, &point).is_some(),
            )
        };
        (key(method), setting.lengths.iter().map(cell).collect())
    };
    Differences {
        metric: metric.into(),
        baseline: (key(base), baseline.title.clone()),
        rows: others.map(row).collect(),
    }
}
