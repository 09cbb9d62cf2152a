//! What the report of a kept config should contain.

use experiment::runs_on_disk::kept_configs::Config;
use report::ReportSpec;

/// How `run` writes the report of a config.
pub fn spec_of(config: &Config) -> ReportSpec {
    let (title, order, claims, assertions) = config.reads();
    ReportSpec {
        title: title.to_owned(),
        order,
        claims: claims.clone(),
        assertions,
        names: experiment::spec::NAMES,
        width: support::console::width(),
        colors: support::console::has_colors(),
        ..ReportSpec::default()
    }
}
