//! A file of claims: what a source says, to hold records against. Read as strictly as a
//! configuration.

use super::diagnose::{Diagnostic, deserialize};
use super::source::Source;
use results::Claims;
use std::path::Path;

/// Reads a file of claims and checks that each can be held against something.
///
/// # Errors
///
/// The first mistake, with its place.
pub fn read(path: &Path) -> Result<Claims, Diagnostic> {
    let source = Source::read(path)?;
    let claims: Claims = deserialize(source.table(), source.origins())?;
    if claims.claims.is_empty() && claims.published.is_empty() {
        let help = "write [[claim]] with metric, kind, methods and lengths, or [[published]] with \
                    metric and numbers";
        return Err(Diagnostic::new(
            source.document().whole(),
            "holds neither claims nor published numbers",
        )
        .with_help(help));
    }
    claims.check().map_err(|error| {
        let told = source.error(&error.key, error.problem, error.allowed, "");
        if error.text.is_empty() {
            told
        } else {
            told.with_note(format!("in {:?}", error.text))
        }
    })?;
    Ok(claims)
}
