//! Writes what follows from the program.
//!
//! ```text
//! pages DOCS RECORDS   the generated pages into DOCS, the catalogue from RECORDS
//! pages --man OUT      a man page for every command
//! ```
#![forbid(unsafe_code)]

use longreach_pages::{catalogue, docs};
use std::path::PathBuf;
use std::process::ExitCode;
use support::console;
use support::exit::Failure;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let written = match arguments.as_slice() {
        [option, out] if option.as_os_str() == "--man" => docs::write_man(out),
        [out, records] => docs::write(out)
            .and_then(|()| catalogue::write(records, &out.join("catalogue")).map(drop)),
        _ => Err(Failure::config(
            "usage: pages DOCS RECORDS, or pages --man OUT",
        )),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::error(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}
