//! The numbers that define an encoding, computed by the code that trains, and pictures of them.
//!
//! Keys are read as in a config and refused with the same messages. Length-reading encodings and
//! `factor = "auto"` take the length from `--seq-len`, or from the largest position if that is
//! longer.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

mod catalogue;
mod checks;
mod columns;
mod defining;
mod digits;
mod drawing;
pub mod inspection;
mod numbers;
mod pictures;
pub mod published;
pub mod request;
mod rotary_pictures;
mod subject;
pub mod tables;
mod text;

use crate::inspection::{Inspection, Model};
use crate::numbers::RESPONSE_LENGTH;
use crate::request::{Command, Request, length, positions};
use crate::subject::Subject;
use experiment::device::{self, DeviceName};
use experiment::plan::memory::MemoryLimit;
use posenc::{EncodingConfig, Lengths, ModelShape};
use std::path::Path;
use support::exit::Failure;
use support::limits;
use support::units::bytes;

/// Computes the numbers, and writes pictures into a directory if there is one.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for an unknown encoding or a key, position or
/// length that cannot work; [`Exit::Resources`](support::exit::Exit::Resources) if there is too
/// little memory or the pictures cannot be written.
pub fn inspect(request: &Request, out: Option<&Path>) -> Result<Inspection, Failure> {
    let command = Command(request);
    let positions = positions(request.positions.as_deref())?;
    length("--train-len", request.train_len)?;
    request
        .seq_len
        .map_or(Ok(()), |seq_len| length("--seq-len", seq_len))?;
    let subject = command.subject(&positions)?;
    check_memory(&subject, &command.shown())?;
    let device = device::open(&DeviceName {
        kind: "cpu",
        index: None,
    })?;
    let numbers = numbers::gather(&subject, &positions, &device)?;
    let files = match out {
        None => None,
        Some(directory) => Some(pictures::write(
            &subject,
            &numbers,
            &command.shown(),
            directory,
            &device,
        )?),
    };
    let ModelShape {
        d_model,
        n_layers,
        n_heads,
        head_dim,
    } = subject.shape;
    let Lengths {
        train_len,
        test_len: seq_len,
        ..
    } = subject.lengths;
    let model = Model {
        d_model,
        n_heads,
        head_dim,
        n_layers,
    };
    Ok(Inspection {
        numbers,
        positions,
        train_len,
        seq_len,
        model,
        files,
    })
}

/// Refuses an encoding that does not fit into the memory of this machine or process.
fn check_memory(subject: &Subject, shown: &str) -> Result<(), Failure> {
    let needed = subject.memory(subject.reach(RESPONSE_LENGTH));
    let help = "a smaller d_model, n_heads or table needs less";
    let problem = match MemoryLimit::of_machine(1, 0).excess(needed) {
        Some(problem) => problem,
        None if !limits::has_memory(usize::try_from(needed).unwrap_or(usize::MAX)) => format!(
            "needs about {} of memory, more than this process gets",
            bytes(needed as f64)
        ),
        None => return Ok(()),
    };
    Err(Failure::resources(format!("{shown}: {problem}")).with_help(help))
}

/// The numbers as text for a terminal.
pub fn text(inspection: &Inspection) -> String {
    text::render(inspection)
}

/// An SVG with two figures of what is special about an encoding, at initial values of seed 0. All
/// have one size.
///
/// # Errors
///
/// [`Exit::Bug`](support::exit::Exit::Bug): a hook gave a tensor that cannot be read.
pub fn catalogue_svg(
    mut config: EncodingConfig,
    shape: ModelShape,
    train_len: usize,
    command: &str,
) -> Result<String, Failure> {
    let lengths = Lengths {
        train_len,
        trained_len: train_len,
        test_len: train_len,
    };
    config.resolve(&lengths);
    let subject = Subject {
        config,
        shape,
        lengths,
        path: vec!["encoding".to_owned()],
    };
    let device = device::open(&DeviceName {
        kind: "cpu",
        index: None,
    })?;
    let numbers = numbers::gather(&subject, &[0.0], &device)?;
    let drawing = drawing::Drawing {
        subject: &subject,
        numbers: &numbers,
        command,
        name: numbers.kind.to_owned(),
        device: &device,
    };
    drawing.catalogue()
}
