//! What every test builds a task with.

use longreach_tasks::BuildContext;
use std::path::PathBuf;

/// A context without Cargo.
pub fn ctx(
    config_dir: impl Into<PathBuf>,
    train_len: usize,
    test_lens: &[usize],
    eval_seed: u64,
) -> BuildContext<'static> {
    BuildContext {
        config_dir: config_dir.into(),
        lock: "",
        cargo_home: None,
        train_len,
        test_lens: test_lens.to_vec(),
        eval_seed,
        rows: longreach_tasks::Rows::Test,
        bidirectional: false,
        carried: None,
    }
}
