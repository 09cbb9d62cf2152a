//! Reading a corpus, splitting it, and its identity.
//!
//! Identity: BLAKE3 over `longreach corpus v1`, then for each split its name and number of pieces,
//! then for each piece its length of name, name, number of bytes, bytes (numbers as 8 bytes,
//! little-endian). A piece is a file, or the part of a file in that split.

use super::config::{CorpusKind, Split, TextConfig};
use super::sources::{self, Found};
use crate::{BuildContext, CorpusFacts, TaskError};
use schema::{Invalid, allowed};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// One half of a corpus: concatenated bytes and where they came from.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub bytes: Vec<u8>,
    pieces: Vec<(String, usize)>,
}

/// A corpus in memory.
#[derive(Debug)]
pub(crate) struct Corpus {
    /// The first file, for messages about the whole.
    pub first: PathBuf,
    pub train: Part,
    pub valid: Part,
    pub facts: CorpusFacts,
}

impl Part {
    /// Names of the files and how many of their bytes are in this split.
    pub(super) fn pieces(&self) -> &[(String, usize)] {
        &self.pieces
    }

    fn hash(&self, name: &str, hasher: &mut blake3::Hasher) {
        // Lengths come before contents, so that no two corpora give the same bytes to hash.
        let number = |n: usize| (n as u64).to_le_bytes();
        hasher
            .update(name.as_bytes())
            .update(&number(self.pieces.len()));
        let mut at = 0;
        for (name, len) in &self.pieces {
            hasher
                .update(&number(name.len()))
                .update(name.as_bytes())
                .update(&number(*len))
                .update(&self.bytes[at..at + len]);
            at += len;
        }
    }
}

/// Finds, reads and splits the corpus of a table that has passed its check.
pub(crate) fn load(config: &TextConfig, ctx: &BuildContext<'_>) -> Result<Corpus, TaskError> {
    let (mut files, source) = match config.corpus {
        CorpusKind::Cargo => {
            let (files, packages) = sources::find_crates(&config.crates, ctx)?;
            (files, format!("cargo: {}", packages.join(", ")))
        }
        CorpusKind::Files => (
            sources::find(&config.files, "files", &ctx.config_dir)?,
            format!("files: {}", config.files.join(", ")),
        ),
    };
    let held_out = held_out(config, ctx, &mut files)?;
    let (train, valid) = read_split(config, &files, &held_out)?;
    let total = train.bytes.len() + valid.bytes.len();
    if total == 0 {
        let problem = format!(
            "the corpus is empty: {} files with 0 bytes together",
            files.len()
        );
        return Err(TaskError::Input {
            path: files.first().map(|f| f.path.clone()),
            problem,
            hint: "name files with text in them".into(),
        });
    }
    check_held_out(config, &held_out, &files)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"longreach corpus v1");
    train.hash("train", &mut hasher);
    valid.hash("valid", &mut hasher);
    let facts = CorpusFacts {
        source,
        files: files.len(),
        train_bytes: train.bytes.len() as u64,
        valid_bytes: valid.bytes.len() as u64,
        blake3: hasher.finalize().to_hex().to_string(),
    };
    Ok(Corpus {
        first: files.swap_remove(0).path,
        train,
        valid,
        facts,
    })
}

/// The files held out, which a split by named files may add to the corpus.
fn held_out(
    config: &TextConfig,
    ctx: &BuildContext<'_>,
    files: &mut Vec<Found>,
) -> Result<BTreeSet<PathBuf>, TaskError> {
    Ok(match (&config.split, config.corpus) {
        (Split::Files(by), CorpusKind::Files) => {
            let valid = sources::find(&by.valid, "split.valid", &ctx.config_dir)?;
            add_missing(files, valid)?
        }
        (Split::Files(by), CorpusKind::Cargo) => {
            let matchers = sources::matchers(&by.valid, "split.valid")?;
            files
                .iter()
                .filter(|f| sources::matches_any(&matchers, &f.name))
                .map(|f| f.path.clone())
                .collect()
        }
        (Split::File(by), _) => files
            .iter()
            .skip(by.every - 1)
            .step_by(by.every)
            .map(|f| f.path.clone())
            .collect(),
        (Split::Range(_), _) => BTreeSet::new(),
    })
}

/// Reads the files into a training and a validation split. Files are read into the splits
/// themselves: a corpus is in memory once.
fn read_split(
    config: &TextConfig,
    files: &[Found],
    held_out: &BTreeSet<PathBuf>,
) -> Result<(Part, Part), TaskError> {
    let (mut train, mut valid) = (Part::default(), Part::default());
    let mut reader = Reader::new(files, config.max_bytes)?;
    if let Split::Range(by) = &config.split {
        let mut bytes = Vec::new();
        bytes.reserve_exact(reader.expected(|_| true));
        let mut lens = Vec::with_capacity(files.len());
        for file in files {
            lens.push(reader.read(file, &mut bytes)?);
        }
        let total = bytes.len();
        let cut = total - (total as f64 * by.valid_fraction) as usize;
        let mut at = 0;
        for (file, len) in files.iter().zip(lens) {
            // A file wholly on one side is no piece of the other.
            if at < cut {
                train.pieces.push((file.name.clone(), len.min(cut - at)));
            }
            if at + len > cut {
                let piece = (at + len - cut).min(len);
                valid.pieces.push((file.name.clone(), piece));
            }
            at += len;
        }
        valid.bytes = bytes.split_off(cut);
        train.bytes = bytes;
        return Ok((train, valid));
    }
    let is_held_out = |file: &Found| held_out.contains(&file.path);
    valid.bytes.reserve_exact(reader.expected(is_held_out));
    train
        .bytes
        .reserve_exact(reader.expected(|file| !is_held_out(file)));
    for file in files {
        let part = if is_held_out(file) {
            &mut valid
        } else {
            &mut train
        };
        let len = reader.read(file, &mut part.bytes)?;
        part.pieces.push((file.name.clone(), len));
    }
    Ok((train, valid))
}

/// Adds the validation files that the corpus did not name itself; returns the paths of all of them.
fn add_missing(files: &mut Vec<Found>, valid: Vec<Found>) -> Result<BTreeSet<PathBuf>, TaskError> {
    let place = |file: &Found| {
        file.path
            .canonicalize()
            .map_err(|e| sources::unreadable(&file.path, &e, "name an existing file"))
    };
    // By canonical path: the two lists may name one file differently.
    let known = files
        .iter()
        .map(|f| Ok((place(f)?, f.path.clone())))
        .collect::<Result<std::collections::BTreeMap<_, _>, TaskError>>()?;
    let mut held_out = BTreeSet::new();
    for file in valid {
        match known.get(&place(&file)?) {
            Some(path) => held_out.insert(path.clone()),
            None => {
                held_out.insert(file.path.clone());
                files.push(file);
                true
            }
        };
    }
    // The order of files is part of the corpus and of its hash.
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(held_out)
}

/// Checks that a split by files leaves a file on either side.
fn check_held_out(
    config: &TextConfig,
    held_out: &BTreeSet<PathBuf>,
    files: &[Found],
) -> Result<(), TaskError> {
    let (key, value) = match &config.split {
        Split::Range(_) => return Ok(()),
        Split::File(by) => ("split.every", by.every.to_string()),
        Split::Files(by) => ("split.valid", format!("{:?}", by.valid)),
    };
    let n = files.len();
    let problem = match held_out.len() {
        0 => format!("holds out no file of {n}"),
        all if all == n => format!("holds out all {n} files and leaves none to train on"),
        _ => return Ok(()),
    };
    let allowed = match (&config.split, n) {
        (Split::File(_), 2..) => allowed(&(2..=n)),
        (Split::File(_), _) => "none with a single file".into(),
        _ => "patterns that match some files and not all".into(),
    };
    let hint =
        "hold out part of the bytes instead: split = { by = \"range\", valid_fraction = 0.1 }";
    Err(Invalid::new(key, value, problem, allowed, hint).into())
}

/// Reads files, at most `max_bytes` together. Sizes are checked first, so that a corpus that is too
/// large is refused before it is read. Reading has the same bound, because a file may grow
/// meanwhile. Of a file that shrinks, the corpus holds and hashes the bytes that were read.
pub(super) struct Reader<'a> {
    files: &'a [Found],
    sizes: Vec<u64>,
    max_bytes: u64,
    left: u64,
}

const NAME_A_FILE: &str = "name a regular file that can be read";

impl<'a> Reader<'a> {
    pub(super) fn new(files: &'a [Found], max_bytes: u64) -> Result<Self, TaskError> {
        let (mut total, mut largest) = (0u64, (0, Path::new("")));
        let mut sizes = Vec::with_capacity(files.len());
        for file in files {
            let meta = std::fs::metadata(&file.path)
                .map_err(|e| sources::unreadable(&file.path, &e, NAME_A_FILE))?;
            // Checked before opening: opening a pipe waits for its writer, and a device has no end.
            if !meta.is_file() {
                let problem = "is not a regular file";
                return Err(TaskError::input(&file.path, problem, NAME_A_FILE));
            }
            total = total.saturating_add(meta.len());
            largest = largest.max((meta.len(), &file.path));
            sizes.push(meta.len());
        }
        if total > max_bytes {
            let (bytes, path) = largest;
            let what = format!(
                "is too small: the corpus has {total} bytes in {} files, the largest {path:?} with \
                 {bytes}",
                files.len()
            );
            return Err(too_large(max_bytes, what, total));
        }
        Ok(Self {
            files,
            sizes,
            max_bytes,
            left: max_bytes,
        })
    }

    /// Bytes of the files that `chosen` chooses, by their sizes, and a little room to find their
    /// end.
    fn expected(&self, chosen: impl Fn(&Found) -> bool) -> usize {
        let sizes = self.files.iter().zip(&self.sizes);
        let sizes = sizes.filter(|(file, _)| chosen(file)).map(|(_, size)| size);
        sizes.sum::<u64>() as usize + 64
    }

    /// Appends a file to `bytes` and returns how many it has.
    pub(super) fn read(&mut self, file: &Found, bytes: &mut Vec<u8>) -> Result<usize, TaskError> {
        // One byte more than is left, so that a file that grew is noticed.
        let read = std::fs::File::open(&file.path)
            .and_then(|open| open.take(self.left + 1).read_to_end(bytes))
            .map_err(|e| sources::unreadable(&file.path, &e, NAME_A_FILE))?;
        let grown = || {
            let what = format!(
                "is too small: {:?} is larger than its size says, or grew while it was read",
                file.path
            );
            too_large(self.max_bytes, what, self.max_bytes + 1)
        };
        self.left = self.left.checked_sub(read as u64).ok_or_else(grown)?;
        Ok(read)
    }
}

fn too_large(max_bytes: u64, what: String, least: u64) -> TaskError {
    let (allowed, hint) = (
        allowed(&(least..=1 << 32)),
        "raise `max_bytes` or name fewer files",
    );
    Invalid::new("max_bytes", max_bytes, what, allowed, hint).into()
}

/// Checks that each split holds one of its windows and the byte after it.
pub(crate) fn check_long_enough(
    corpus: &Corpus,
    train_len: usize,
    longest_test: usize,
) -> Result<(), TaskError> {
    let halves = [
        ("training", &corpus.train, "training", train_len),
        ("validation", &corpus.valid, "test", longest_test),
    ];
    for (split, part, window, length) in halves {
        let (have, files) = (part.bytes.len(), part.pieces.len());
        if have <= length {
            let total = corpus.facts.train_bytes + corpus.facts.valid_bytes;
            let needed = length.saturating_add(1);
            let problem = format!(
                "the {split} split is too short: it has {have} bytes in {files} files (the corpus \
                 has {total} in {}), and one {window} window of length {length} needs {needed}",
                corpus.facts.files
            );
            return Err(TaskError::input(
                &corpus.first,
                problem,
                "add files, hold out another share with `split`, or use shorter lengths",
            ));
        }
    }
    Ok(())
}
