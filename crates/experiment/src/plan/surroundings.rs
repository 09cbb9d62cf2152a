//! Where a task finds its texts: the directory of the config and Cargo's.

use std::path::{Path, PathBuf};
use tasks::{BuildContext, CarriedText, Rows, Task, TaskConfig, TaskError};
use tiny_transformer::Mask;

/// The lock file this binary was built with: it names the versions of `corpus = "cargo"`.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// Where corpora and relative paths come from.
pub struct Surroundings {
    config_dir: PathBuf,
    cargo_home: Option<PathBuf>,
}

impl Surroundings {
    /// Paths in a config are relative to the config's directory.
    pub fn of(config_dir: &Path) -> Self {
        let home = || std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(home()?).join(".cargo")));
        Self {
            config_dir: config_dir.to_owned(),
            cargo_home,
        }
    }

    /// Builds a task for these lengths and for a model with this mask.
    ///
    /// # Errors
    ///
    /// If a key cannot work or a corpus cannot be used.
    pub fn build(
        &self,
        task: &TaskConfig,
        train_len: usize,
        test_lens: &[usize],
        eval_seed: u64,
        rows: Rows,
        mask: Mask,
    ) -> Result<Box<dyn Task>, TaskError> {
        task.build(&BuildContext {
            config_dir: self.config_dir.clone(),
            lock: LOCK,
            cargo_home: self.cargo_home.clone(),
            train_len,
            test_lens: test_lens.to_vec(),
            eval_seed,
            rows,
            bidirectional: mask == Mask::Bidirectional,
            carried: Some(carried),
        })
    }
}

/// The text of this program.
fn carried() -> CarriedText {
    let corpus::Text {
        packages,
        files,
        bytes,
    } = corpus::rust_2026();
    CarriedText {
        packages,
        files,
        bytes,
    }
}
