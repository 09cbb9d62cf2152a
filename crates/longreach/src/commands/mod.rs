//! The commands of `longreach`, one module each: arguments, help and `run`.

pub mod catalogue_page;
pub mod check;
pub mod compare;
pub mod completions;
pub mod docs;
pub mod eval;
pub mod gather;
pub mod inspect;
pub mod list;
pub mod records;
pub mod report;
pub mod run;
pub mod status;
pub mod verify;
pub mod worker;

use crate::config::diagnose::Diagnostic;
use crate::exit::{Exit, Failure};

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        let exit = if diagnostic.exit == Exit::Input as u8 {
            Exit::Input
        } else {
            Exit::Config
        };
        let text = diagnostic.to_string();
        Failure::new(exit, text.strip_prefix("error: ").unwrap_or(&text))
    }
}
