//! Refusals that every section shares: values out of range, errors of other crates at their key.

use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::ConfigError;

/// The error of a table's value, at its key in the file.
pub(super) fn refused(cell: &Cell, table: &str, error: &ConfigError) -> Diagnostic {
    cell.error(
        &format!("{table}.{}", error.key),
        &error.problem,
        &error.allowed,
        &error.hint,
    )
    .with_value(&error.value)
}

/// Refuses a whole number outside `low..=high`.
pub(super) fn whole(
    cell: &Cell,
    key: &str,
    value: u64,
    low: u64,
    high: u64,
    help: &str,
) -> Result<(), Diagnostic> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let allowed = format!("a whole number from {low} to {high}");
    Err(cell
        .error(key, "is out of range", &allowed, help)
        .with_value(value))
}
