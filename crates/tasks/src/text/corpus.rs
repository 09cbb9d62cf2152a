//! Reading a corpus and splitting it.

use super::config::{Split, TextConfig};
use super::first_bytes::FirstBytes;
use super::level::Level;
use super::origin::{CorpusKind, DEFAULT_CRATES};
use super::parts::{Part, Reader, Splits, too_large};
use super::published;
use super::sources::{self, Found};
use crate::{BuildContext, CarriedText, CorpusFacts, TaskError};
use schema::{Invalid, allowed, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A corpus in memory.
#[derive(Debug)]
pub(crate) struct Corpus {
    /// The first file, for messages about the whole.
    pub first: PathBuf,
    pub train: Part,
    pub valid: Part,
    pub facts: CorpusFacts,
    /// What the first bytes of the files said.
    pub seen: Seen,
    /// Whether selection has its own split, so that none of `valid` is kept.
    pub is_apart: bool,
    /// Whether the splits are cut between them, which may be inside a character, and whether
    /// `valid` ends so.
    pub cuts: [bool; 2],
}

/// What the first bytes of files said.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Formats of ids whose headers were taken away, plural.
    pub formats: BTreeSet<&'static str>,
    /// Formats that were read as bytes all the same: the first file, and how many there are.
    found: BTreeMap<FirstBytes, (String, usize)>,
    /// Files of the training and of the validation split with the same bytes: the first two, and
    /// how many there are of the latter.
    twins: Option<(String, String, usize)>,
}

impl Seen {
    /// Checks the file that begins at `from`, and takes away a header of ids.
    fn file(
        &mut self,
        config: &TextConfig,
        file: &Found,
        bytes: &mut Vec<u8>,
        from: usize,
    ) -> Result<(), TaskError> {
        if let Some(ids) = config.ids() {
            self.formats.extend(ids.unwrap(bytes, from, &file.path)?);
            return Ok(());
        }
        // Only the user's own files are checked: nobody can fix the sources of a package.
        let is_own = !config.files.is_empty();
        let Some(found) = FirstBytes::of(&bytes[from..]).filter(|_| is_own) else {
            return Ok(());
        };
        if found.is_ids() || config.level != Level::Bytes && !found.is_text() {
            let (problem, hint) = found.refused("text");
            return Err(TaskError::input(&file.path, problem, hint));
        }
        let noted = self.found.entry(found);
        noted.or_insert_with(|| (file.name.clone(), 0)).1 += 1;
        Ok(())
    }

    /// A sentence for each format that was read as bytes, and one for files in both splits.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.found.iter().map(|(found, (first, count))| {
            let more = match count - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (first, what, fix) = (text::excerpt(first), found.what, found.fix);
            format!(
                "{first}{more} begins as {what}, and its bytes are trained on as they are; {fix}"
            )
        });
        let twins = self.twins.iter().map(|(train, valid, count)| {
            let more = match count - 1 {
                0 => String::new(),
                more => format!("; so are {more} more"),
            };
            let (train, valid) = (text::excerpt(train), text::excerpt(valid));
            format!(
                "{valid} is validation text and has the same bytes as {train}, which is trained \
                 on{more}: remove one of the two, as memorised text tests nothing"
            )
        });
        notes.chain(twins).collect()
    }
}

/// Finds, reads and splits the corpus of a table that has passed its check.
pub(crate) fn load(config: &TextConfig, ctx: &BuildContext<'_>) -> Result<Corpus, TaskError> {
    let (mut files, source, carried) = match config.corpus {
        CorpusKind::Cargo | CorpusKind::Rust2026 => match carried(config, ctx) {
            Some(text) => {
                let named = |(name, _): &(String, usize)| Found {
                    name: name.clone(),
                    path: name.into(),
                };
                let source = format!("cargo: {}", text.packages.join(", "));
                (text.files.iter().map(named).collect(), source, Some(text))
            }
            None => {
                let (files, packages) = sources::find_crates(&config.crates, ctx)?;
                (files, format!("cargo: {}", packages.join(", ")), None)
            }
        },
        kind => {
            let files = sources::find(&config.files, "files", &ctx.config_dir)?;
            let source = format!("{}: {}", kind.name(), config.files.join(", "));
            (files, source, None)
        }
    };
    let mut seen = Seen::default();
    let splits = match published::get(config.corpus) {
        Some(published) => published.read(&files, config.max_bytes, ctx.rows)?,
        None => split(config, ctx, &mut files, carried, &mut seen)?,
    };
    let facts = CorpusFacts {
        source,
        files: files.len(),
        train_bytes: splits.train.bytes.len() as u64,
        valid_bytes: splits.valid.bytes.len() as u64,
        blake3: splits.hash,
        notes: seen.notes(),
    };
    Ok(Corpus {
        first: files.swap_remove(0).path,
        train: splits.train,
        valid: splits.valid,
        facts,
        seen,
        is_apart: splits.is_apart,
        cuts: splits.cuts,
    })
}

/// Splits files that have no published split of their own.
fn split(
    config: &TextConfig,
    ctx: &BuildContext<'_>,
    files: &mut Vec<Found>,
    carried: Option<CarriedText>,
    seen: &mut Seen,
) -> Result<Splits, TaskError> {
    let held_out = held_out(config, ctx, files)?;
    let (train, valid) = match carried {
        Some(text) => split_carried(config, text, &held_out)?,
        None => read_split(config, files, &held_out, seen)?,
    };
    check_any(&train, &valid, files)?;
    check_held_out(config, &held_out, files)?;
    seen.twins = train.twins(&valid);
    let valid = [valid];
    let hash = Splits::hash(&train, &valid);
    let [valid] = valid;
    Ok(Splits {
        train,
        valid,
        hash,
        is_apart: false,
        cuts: [matches!(config.split, Split::Range(_)), false],
    })
}

/// The text that the program carries, if the table asks for it: it is that of the default crates,
/// whatever versions Cargo.lock has by now.
fn carried(config: &TextConfig, ctx: &BuildContext<'_>) -> Option<CarriedText> {
    let is_default = config.crates.iter().eq(DEFAULT_CRATES.iter());
    ctx.carried.filter(|_| is_default).map(|text| text())
}

/// `1 file`, `2 files`.
fn files_in_words(n: usize) -> String {
    format!("{n} file{}", if n == 1 { "" } else { "s" })
}

/// Splits a text that is in memory, in place.
fn split_carried(
    config: &TextConfig,
    text: CarriedText,
    held_out: &BTreeSet<PathBuf>,
) -> Result<(Part, Part), TaskError> {
    let CarriedText {
        files, mut bytes, ..
    } = text;
    let total = bytes.len() as u64;
    if total > config.max_bytes {
        let n = files.len();
        let what = format!(
            "is too small: the corpus has {total} bytes in {}",
            files_in_words(n)
        );
        return Err(too_large(config.max_bytes, what, total));
    }
    if let Split::Range(by) = &config.split {
        return Ok(cut(files, bytes, by.valid_fraction));
    }
    let (mut train, mut valid) = (Part::default(), Part::default());
    let (mut at, mut kept) = (0, 0);
    for (name, len) in files {
        let here = at..at + len;
        at += len;
        if held_out.contains(Path::new(&name)) {
            valid.bytes.extend_from_slice(&bytes[here]);
            valid.pieces.push((name, len));
        } else {
            bytes.copy_within(here, kept);
            kept += len;
            train.pieces.push((name, len));
        }
    }
    bytes.truncate(kept);
    train.bytes = bytes;
    Ok((train, valid))
}

/// Cuts files that lie one after the other: a share of the bytes at the end is held out.
fn cut(files: Vec<(String, usize)>, mut bytes: Vec<u8>, share: f64) -> (Part, Part) {
    let (mut train, mut valid) = (Part::default(), Part::default());
    let total = bytes.len();
    let cut = total - (total as f64 * share) as usize;
    let mut at = 0;
    for (name, len) in files {
        // A file wholly on one side is not a piece of the other.
        if at < cut {
            train.pieces.push((name.clone(), len.min(cut - at)));
        }
        if at + len > cut {
            let piece = (at + len - cut).min(len);
            valid.pieces.push((name, piece));
        }
        at += len;
    }
    valid.bytes = bytes.split_off(cut);
    train.bytes = bytes;
    (train, valid)
}

/// Refuses a corpus without a byte.
fn check_any(train: &Part, valid: &Part, files: &[Found]) -> Result<(), TaskError> {
    if train.bytes.len() + valid.bytes.len() > 0 {
        return Ok(());
    }
    let problem = format!(
        "the corpus is empty: no byte in {}",
        files_in_words(files.len())
    );
    Err(TaskError::Input {
        path: files.first().map(|f| f.path.clone()),
        problem,
        hint: "name files with text in them".into(),
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
        (Split::Files(by), _) => {
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
        (Split::Range(_) | Split::Published(_), _) => BTreeSet::new(),
    })
}

/// Reads the files into a training and a validation split. Files are read into the splits
/// themselves: a corpus is in memory once.
fn read_split(
    config: &TextConfig,
    files: &[Found],
    held_out: &BTreeSet<PathBuf>,
    seen: &mut Seen,
) -> Result<(Part, Part), TaskError> {
    let (mut train, mut valid) = (Part::default(), Part::default());
    let mut read = |file: &Found, bytes: &mut Vec<u8>, reader: &mut Reader<'_>| {
        let from = bytes.len();
        reader.read(file, bytes)?;
        seen.file(config, file, bytes, from)?;
        Ok::<usize, TaskError>(bytes.len() - from)
    };
    let mut reader = Reader::new(files, config.max_bytes)?;
    if let Split::Range(by) = &config.split {
        let mut bytes = Vec::new();
        bytes.reserve_exact(reader.expected(|_| true));
        let mut sizes = Vec::with_capacity(files.len());
        for file in files {
            sizes.push((file.name.clone(), read(file, &mut bytes, &mut reader)?));
        }
        return Ok(cut(sizes, bytes, by.valid_fraction));
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
        let len = read(file, &mut part.bytes, &mut reader)?;
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
        Split::Range(_) | Split::Published(_) => return Ok(()),
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
                "the {split} split is too short: it has {have} bytes in {} (the corpus has \
                 {total} in {}), and one {window} window of length {length} needs {needed}",
                files_in_words(files),
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
