//! The seal of a record: hashes that show whether it, or the step log of its training, was changed.
//!
//! It is part of the record and is copied with it, and is a function of the
//! content: reruns give the same bytes. It shows edits and damage; it is not a signature.

use crate::record::{RunRecord, Seal};
use crate::spec::canonical_text;
use serde_json::Value;

impl RunRecord {
    /// Seals the record as it is now, with the hash of its step log.
    pub fn set_seal(&mut self, steps_blake3: String) {
        self.seal = Some(Seal {
            record_blake3: String::new(),
            steps_blake3,
        });
        let hash = self.content_hash();
        if let Some(seal) = &mut self.seal {
            seal.record_blake3 = hash;
        }
    }

    /// Whether the content is the one that was sealed; `None` without a seal.
    pub fn seal_holds(&self) -> Option<bool> {
        let seal = self.seal.as_ref()?;
        Some(seal.record_blake3 == self.content_hash())
    }

    /// Changes the record as a program may, and seals it again if its seal held. A record that was
    /// edited by hand keeps its broken seal.
    pub fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let held = self.seal_holds() == Some(true);
        change(self);
        if held && let Some(seal) = self.seal.take() {
            self.set_seal(seal.steps_blake3);
        }
    }

    /// BLAKE3 of the content. Formatting and the order of keys do not matter.
    fn content_hash(&self) -> String {
        let Ok(Value::Object(mut content)) = serde_json::to_value(self) else {
            // Records come from JSON or are checked to survive it.
            return String::new();
        };
        if let Some(Value::Object(seal)) = content.get_mut("seal") {
            seal.shift_remove("record_blake3");
        }
        let text = canonical_text(&content);
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}
