//! What this program was built from.

/// Version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Short hash of the commit, with `-dirty` after changes; `unknown` outside a checkout.
pub const COMMIT: &str = env!("LONGREACH_COMMIT");

/// Version of Burn.
pub const BURN: &str = env!("LONGREACH_BURN");
