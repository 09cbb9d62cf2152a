//! Files of claims of a source, read as strictly as a configuration.

use super::diagnostic::{Diagnostic, deserialize};
use super::source::Source;
use records::Claims;
use std::path::Path;

/// Reads a file of claims and checks that each can be evaluated.
///
/// # Errors
///
/// The first mistake, with its place.
pub fn read(path: &Path) -> Result<Claims, Diagnostic> {
    let source = Source::read(path)?;
    if let Some(key) = ["task", "model", "train"]
        .iter()
        .find(|key| source.get(key).is_some())
    {
        let allowed = "[[claim]], [[published]] and [aliases]";
        let help = "name a file of claims: docs/claims.md shows one";
        let problem = "is a key of a config, but a file of claims is expected here";
        return Err(source.error(key, problem, allowed, help));
    }
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
        let diagnostic = source.error(&error.key, &error.problem, &error.allowed, "");
        if error.hint.is_empty() {
            diagnostic
        } else {
            diagnostic.with_note(error.hint)
        }
    })?;
    Ok(claims)
}
