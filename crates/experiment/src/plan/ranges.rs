//! Refusals that every section shares: values out of range, errors of other crates at their key.

use super::keys;
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

/// Refuses a whole number outside the range that the list of keys gives.
pub(super) fn listed_whole(
    cell: &Cell,
    key: &str,
    value: u64,
    help: &str,
) -> Result<(), Diagnostic> {
    let (low, high) = keys::whole(key);
    whole(cell, key, value, low, high, help)
}

/// Refuses a number outside the range that the list of keys gives.
pub(super) fn listed_number(
    cell: &Cell,
    key: &str,
    value: f64,
    help: &str,
) -> Result<(), Diagnostic> {
    let (low, high) = keys::number(key);
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(());
    }
    let allowed = schema::allowed(&(low..=high));
    let error = cell.error(key, "is out of range", &allowed, help);
    Err(error.with_value(value))
}
