//! The numbers that define an encoding, computed by the code that trains, and pictures of them.
//!
//! Keys are read as in a config and refused with the same messages. Length-reading encodings and
//! `factor = "auto"` take the length from `--seq-len`, or from the largest position if that is
//! longer.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

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
use crate::request::{Command, Request, length, positions};
use crate::subject::Subject;
use experiment::device::{self, DeviceName};
use posenc::{EncodingConfig, Lengths, ModelShape};
use std::path::Path;
use support::exit::Failure;

/// Computes the numbers, and writes pictures into a directory if there is one.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for an unknown encoding or a key, position or
/// length that cannot work; [`Exit::Resources`](support::exit::Exit::Resources) if the pictures
/// cannot be written.
pub fn inspect(request: &Request, out: Option<&Path>) -> Result<Inspection, Failure> {
    let command = Command(request);
    let positions = positions(request.positions.as_deref())?;
    length("--train-len", request.train_len)?;
    request
        .seq_len
        .map_or(Ok(()), |seq_len| length("--seq-len", seq_len))?;
    let subject = command.subject(&positions)?;
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

/// The numbers as text for a terminal.
pub fn text(inspection: &Inspection) -> String {
    text::render(inspection)
}

/// Logits of equal tokens by distance under an encoding with the initial values of seed 0: one of
/// its pictures, as SVG.
///
/// # Errors
///
/// [`Exit::Bug`](support::exit::Exit::Bug): a hook gave a tensor that cannot be read.
pub fn response_svg(
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
    Ok(pictures::response_svg(&subject, &numbers, command, &device))
}

/// The keys of an encoding as TOML, without null values.
pub fn keys(config: &serde_json::Value) -> String {
    text::keys(config)
}
