//! The step log: a JSON line per applied step, append-only, cut back to a checkpoint's place when a
//! run goes on from there.

use crate::checkpoint::State;
use crate::disk::{Disk, Op};
use crate::read;
use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the file.
pub const LOG_FILE: &str = "steps.jsonl";
/// No line is longer.
const MAX_LINE_BYTES: u64 = 256;
/// Lines are written when so many bytes have come together.
const BUFFERED: usize = 1 << 13;

/// A step that was applied; a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its number, counted from 1.
    pub step: u64,
    /// Loss of its batch before it, nats per counted token.
    pub loss_nats: f64,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the whole gradient before clipping.
    pub grad_norm: f64,
    /// Tokens seen so far.
    pub tokens: u64,
}

/// A log that is being written.
pub struct StepLog<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    hasher: blake3::Hasher,
    /// Bytes of the file.
    written: u64,
    /// Bytes to come.
    buffer: Vec<u8>,
}

impl<'a> StepLog<'a> {
    /// Begins anew.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn create(disk: &'a dyn Disk, directory: &Path) -> Result<Self> {
        let path = directory.join(LOG_FILE);
        disk.run(Op::Write(&path, &[]))?;
        disk.run(Op::SyncDir(directory))?;
        Ok(Self {
            disk,
            path,
            hasher: blake3::Hasher::new(),
            written: 0,
            buffer: Vec::new(),
        })
    }

    /// Goes on from a checkpoint, whose part of the log must be there; gives the steps it tells.
    /// What comes after is cut off.
    ///
    /// # Errors
    ///
    /// If the log is shorter or another one, or does not tell what the checkpoint says.
    pub fn resume(
        disk: &'a dyn Disk,
        directory: &Path,
        state: &State,
    ) -> Result<(Self, Vec<Step>)> {
        let State {
            step: steps,
            log_bytes: bytes,
            tokens,
            ..
        } = *state;
        let path = directory.join(LOG_FILE);
        ensure!(
            bytes <= steps.saturating_mul(MAX_LINE_BYTES),
            "the step log is said to have {bytes} bytes for {steps} steps"
        );
        let text = read::start(&path, bytes)?;
        ensure!(
            text.len() as u64 == bytes,
            "the step log is shorter than the checkpoint"
        );
        let mut hasher = blake3::Hasher::new();
        hasher.update(&text);
        ensure!(
            hasher.finalize().to_hex().as_str() == state.log_blake3,
            "the step log is not the one that the checkpoint belongs to"
        );
        let told = parse(&text)?;
        ensure!(
            told.len() as u64 == steps,
            "the step log tells {} steps, the checkpoint {steps}",
            told.len()
        );
        let counted = told.last().map_or(0, |last| last.tokens);
        ensure!(
            counted == tokens,
            "the step log counts {counted} tokens, the checkpoint {tokens}"
        );
        disk.run(Op::Cut(&path, bytes))?;
        Ok((
            Self {
                disk,
                path,
                hasher,
                written: bytes,
                buffer: Vec::new(),
            },
            told,
        ))
    }

    /// Appends a step.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn append(&mut self, step: &Step) -> Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        self.hasher.update(&line);
        self.buffer.extend(line);
        if self.buffer.len() >= BUFFERED {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Makes everything so far survive, and gives its size and hash.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn sync(&mut self) -> Result<(u64, String)> {
        self.write()?;
        self.disk.run(Op::Sync(&self.path))?;
        Ok((self.written, self.hasher.finalize().to_hex().to_string()))
    }

    fn write(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.disk.run(Op::Append {
                path: &self.path,
                at: self.written,
                bytes: &self.buffer,
            })?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// The whole log of a run that has ended after so many steps.
///
/// # Errors
///
/// If it is not there, is larger than such a log can be, or a line is not one of a log.
pub fn read_whole(directory: &Path, steps: u64) -> Result<Vec<Step>> {
    let path = directory.join(LOG_FILE);
    let text = read::bounded(&path, steps.saturating_mul(MAX_LINE_BYTES))?;
    parse(&text).with_context(|| path.display().to_string())
}

/// The steps that the lines of a log tell.
///
/// # Errors
///
/// If a line is not one of a log, is torn, or the steps are not 1, 2, 3, ...
pub fn parse(text: &[u8]) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        ensure!(
            line.ends_with(b"\n"),
            "line {} of the step log is torn",
            index + 1
        );
        // What the parser says may quote the line.
        let step: Step = serde_json::from_slice(line).map_err(|error| {
            anyhow!(
                "line {} of the step log: {}",
                index + 1,
                read::shown(&error.to_string())
            )
        })?;
        ensure!(
            step.step == index as u64 + 1,
            "line {} of the step log is of step {}",
            index + 1,
            step.step
        );
        steps.push(step);
    }
    Ok(steps)
}
