//! Counting launches of kernels.

use burn_cubecl::cubecl::config::{TypeNameFormatLevel, type_name_format};
use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver};
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the kernels that backends of CubeCL launch, those of Burn included, on all threads of the
/// process for as long as it lives.
pub struct Launches {
    counts: Arc<Counts>,
    _watching: LaunchObservation,
}

#[derive(Default)]
struct Counts(Mutex<BTreeMap<&'static str, usize>>);

impl LaunchObserver for Counts {
    fn launched(&self, kernel: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(kernel).or_default() += 1;
    }
}

impl Launches {
    /// Begins to count. `None` where no backend of CubeCL is compiled in.
    pub fn watch() -> Option<Self> {
        let counts = Arc::<Counts>::default();
        Some(Self {
            _watching: LaunchObservation::new(counts.clone()),
            counts,
        })
    }

    /// How often each kernel was launched since the last call, by its name with its types.
    pub fn take(&self) -> BTreeMap<String, usize> {
        let counts = take(&mut *self.counts.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut named = BTreeMap::new();
        for (name, count) in counts {
            let name = type_name_format(name, TypeNameFormatLevel::Balanced);
            *named.entry(name).or_default() += count;
        }
        named
    }
}
