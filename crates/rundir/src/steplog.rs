//! The step log: one JSON line per applied step, append-only, truncated to a checkpoint's length
//! when a run resumes from it.

use crate::checkpoint::State;
use crate::disk::{Disk, Op};
use crate::read;
use anyhow::{Context, Result, anyhow, ensure};
use schema::text::excerpt;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Name of the file.
pub const LOG_FILE: &str = "steps.jsonl";
/// Longest line.
const MAX_LINE_BYTES: u64 = 256;
/// Lines are written in blocks of at least this many bytes.
const BUFFERED: usize = 1 << 13;

/// An applied step, one line of the log.
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

/// A log open for writing.
pub struct StepLog<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    hasher: blake3::Hasher,
    /// Bytes of the file.
    written: u64,
    /// Bytes not written yet.
    buffer: Vec<u8>,
}

impl<'a> StepLog<'a> {
    /// Creates an empty log.
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

    /// Resumes from a checkpoint and returns the steps of its part of the log. Later lines are cut
    /// off.
    ///
    /// # Errors
    ///
    /// If the log is shorter than the checkpoint's part, or has another hash, number of steps or
    /// number of tokens.
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
            "the step log claims to have {bytes} bytes for {steps} steps"
        );
        // Only the checkpoint's part: what follows was written after it and may be torn.
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
        let logged = parse(&text)?;
        ensure!(
            logged.len() as u64 == steps,
            "the step log has {} steps, the checkpoint {steps}",
            logged.len()
        );
        let counted = logged.last().map_or(0, |last| last.tokens);
        ensure!(
            counted == tokens,
            "the step log counts {counted} tokens, the checkpoint {tokens}"
        );
        // The file is cut only after every check has passed.
        disk.run(Op::Cut(&path, bytes))?;
        Ok((
            Self {
                disk,
                path,
                hasher,
                written: bytes,
                buffer: Vec::new(),
            },
            logged,
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
        // The hash runs ahead of the file by the buffer; `sync` writes that before it reads the
        // hash.
        self.hasher.update(&line);
        self.buffer.extend(line);
        if self.buffer.len() >= BUFFERED {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Syncs the log and returns its size and hash.
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

/// The whole log of a run that ended after `steps` steps.
///
/// # Errors
///
/// If it is missing, is larger than such a log can be, or holds a line that is not a step.
pub fn read_whole(directory: &Path, steps: u64) -> Result<Vec<Step>> {
    let path = directory.join(LOG_FILE);
    let text = read::bounded(&path, steps.saturating_mul(MAX_LINE_BYTES))?;
    parse(&text).with_context(|| path.display().to_string())
}

/// Parses the lines of a log.
///
/// # Errors
///
/// If a line is not a step or is torn, or the steps are not 1, 2, 3, ...
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
                excerpt(&error.to_string())
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
