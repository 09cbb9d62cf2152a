//! Published corpora by name: which files they are, how large, and how they are split.
//!
//! Sizes and splits are those that are published or that were measured on the files: text8 has
//! 100,000,000 bytes and 17,005,207 words, enwik8 10^8 bytes (Mahoney, "About the test data"); both
//! are split 90, 5 and 5 MB (Al-Rfou et al., arXiv 1808.04444). The tokens of WikiText, line ends
//! among them, are those of table 1 of Merity et al. (arXiv 1609.07843). enwik8 begins as an export
//! of MediaWiki, which tells it from text8. Tiny Shakespeare is cut at nine tenths, as in nanoGPT.
//! BLAKE3 hashes were taken of the files; a file without one is checked by its size, its tokens or
//! its first bytes alone.

use super::origin::CorpusKind;
use super::parts::{Part, Reader, Splits};
use super::sources::Found;
use crate::{Rows, TaskError};
use schema::Invalid;

/// A published corpus.
pub(super) struct Published {
    name: &'static str,
    /// The page that says where to get it.
    page: &'static str,
    files: &'static [File],
    /// Ends of the splits of a corpus of one file, in bytes; none where every file is a split.
    ends: &'static [usize],
}

/// One of its files. What is not known is not checked.
struct File {
    /// As it is named where it is published.
    name: &'static str,
    /// What a file name holds, where there are several.
    part: &'static str,
    bytes: Option<usize>,
    /// Words between white space, and line ends.
    tokens: Option<u64>,
    blake3: Option<&'static str>,
    /// Its first bytes.
    start: &'static [u8],
}

const WHOLE: File = File {
    name: "",
    part: "",
    bytes: None,
    tokens: None,
    blake3: None,
    start: b"",
};

const WIKITEXT: &str = "the WikiText pages of Salesforce Research, as words (`wiki.*.tokens`)";
const MAHONEY: &str = "mattmahoney.net/dc/textdata.html";

/// The training, validation and test file of a WikiText, whose test and validation texts have the
/// same number of tokens in both.
const fn wikitext(
    tokens: u64,
    valid: (Option<usize>, Option<&'static str>),
    test: (Option<usize>, Option<&'static str>),
) -> [File; 3] {
    [
        File {
            name: "wiki.train.tokens",
            part: "train",
            tokens: Some(tokens),
            ..WHOLE
        },
        File {
            name: "wiki.valid.tokens",
            part: "valid",
            bytes: valid.0,
            tokens: Some(217_646),
            blake3: valid.1,
            ..WHOLE
        },
        File {
            name: "wiki.test.tokens",
            part: "test",
            bytes: test.0,
            tokens: Some(245_569),
            blake3: test.1,
            ..WHOLE
        },
    ]
}

static TEXT8: Published = Published {
    name: "text8",
    page: MAHONEY,
    files: &[File {
        name: "text8",
        bytes: Some(100_000_000),
        tokens: Some(17_005_207),
        ..WHOLE
    }],
    ends: &[90_000_000, 95_000_000],
};

static ENWIK8: Published = Published {
    name: "enwik8",
    page: MAHONEY,
    files: &[File {
        name: "enwik8",
        bytes: Some(100_000_000),
        start: b"<mediawiki ",
        ..WHOLE
    }],
    ends: &[90_000_000, 95_000_000],
};

static WIKITEXT_2: Published = Published {
    name: "wikitext-2",
    page: WIKITEXT,
    files: &wikitext(
        2_088_628,
        (
            Some(1_121_681),
            Some("d9a007fef6aefd7ed7b1789efbd7f7794e6ecd51351f969572c0ed8e5645ec9d"),
        ),
        (
            Some(1_256_449),
            Some("0bd5183e215f7705f779b1f9da7e4ad7683c16e003212e3e840fe6d4680de32a"),
        ),
    ),
    ends: &[],
};

static WIKITEXT_103: Published = Published {
    name: "wikitext-103",
    page: WIKITEXT,
    files: &wikitext(103_227_021, (None, None), (None, None)),
    ends: &[],
};

static TINYSHAKESPEARE: Published = Published {
    name: "tinyshakespeare",
    page: "the data of github.com/karpathy/char-rnn",
    files: &[File {
        name: "input.txt",
        bytes: Some(1_115_394),
        blake3: Some("5bd8f6749d3cda816828aabf1aebdc595f673de8102e521bbd8369ad4b7917e9"),
        ..WHOLE
    }],
    ends: &[1_003_854],
};

/// The published corpus of this name.
pub(super) fn get(corpus: CorpusKind) -> Option<&'static Published> {
    match corpus {
        CorpusKind::Cargo | CorpusKind::Files | CorpusKind::Rust2026 => None,
        CorpusKind::Text8 => Some(&TEXT8),
        CorpusKind::Enwik8 => Some(&ENWIK8),
        CorpusKind::Wikitext2 => Some(&WIKITEXT_2),
        CorpusKind::Wikitext103 => Some(&WIKITEXT_103),
        CorpusKind::Tinyshakespeare => Some(&TINYSHAKESPEARE),
    }
}

/// What a file is: bytes, tokens, hash.
struct Measured<'a> {
    text: &'a [u8],
    tokens: u64,
    blake3: String,
}

impl<'a> Measured<'a> {
    fn of(text: &'a [u8]) -> Self {
        let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
        let words = text
            .split(|byte| is_space(*byte))
            .filter(|word| !word.is_empty());
        let lines = text.iter().filter(|byte| **byte == b'\n');
        Self {
            text,
            tokens: (words.count() + lines.count()) as u64,
            blake3: blake3::hash(text).to_hex().to_string(),
        }
    }

    /// What a published file is known to be, and the same of this one, if they differ.
    fn differs(&self, file: &File) -> Option<[String; 2]> {
        let is_same = file.bytes.is_none_or(|bytes| bytes == self.text.len())
            && self.text.starts_with(file.start)
            && file.tokens.is_none_or(|tokens| tokens == self.tokens)
            && file.blake3.is_none_or(|hash| hash == self.blake3);
        if is_same {
            return None;
        }
        let words = |start, bytes: Option<usize>, tokens: Option<u64>, hash: Option<&str>| {
            let start = String::from_utf8_lossy(start);
            let known = [
                (!start.is_empty()).then(|| format!("{start:?} in front")),
                bytes.map(|bytes| format!("{bytes} bytes")),
                tokens.map(|tokens| format!("{tokens} words and line ends")),
                hash.map(|hash| format!("BLAKE3 {hash}")),
            ];
            known.into_iter().flatten().collect::<Vec<_>>().join(", ")
        };
        Some([
            words(file.start, file.bytes, file.tokens, file.blake3),
            words(
                &self.text[..file.start.len().min(self.text.len())],
                Some(self.text.len()),
                file.tokens.map(|_| self.tokens),
                Some(&self.blake3),
            ),
        ])
    }
}

impl Published {
    /// What to get, for hints.
    pub(super) fn where_to_get(&self) -> String {
        let names: Vec<&str> = self.files.iter().map(|file| file.name).collect();
        let (names, page) = (names.join(", "), self.page);
        format!("get {names} from {page}, and say in `files` where they lie")
    }

    /// Reads the files and splits them as published. Results are scored on the test split and
    /// values chosen on the validation split, where the corpus has both.
    pub(super) fn read(
        &self,
        found: &[Found],
        max_bytes: u64,
        rows: Rows,
    ) -> Result<Splits, TaskError> {
        let files = self.in_order(found)?;
        let mut reader = Reader::new(&files, max_bytes)?;
        let mut texts = Vec::new();
        for (file, known) in files.iter().zip(self.files) {
            let mut text = Vec::new();
            reader.read(file, &mut text)?;
            if let Some([expected, has]) = Measured::of(&text).differs(known) {
                let (name, of) = (known.name, self.name);
                let of = match name == of {
                    true => String::new(),
                    false => format!(" of {of}"),
                };
                let problem = format!("is not {name}{of}: it has {has}; published: {expected}");
                let hint = format!(
                    "{}; another text is corpus = \"files\", and what it is trained on is named \
                     by it",
                    self.where_to_get()
                );
                return Err(TaskError::input(&file.path, problem, hint));
            }
            texts.push((file.name.clone(), text));
        }
        let is_cut = !self.ends.is_empty();
        let mut parts: Vec<Part> = match texts.len() {
            1 if is_cut => self.cut(texts.swap_remove(0)),
            _ => texts.into_iter().map(|file| Part::of(vec![file])).collect(),
        };
        let train = parts.remove(0);
        let is_apart = parts.len() > 1;
        let scored = match rows {
            Rows::Test => parts.len() - 1,
            Rows::Selection => 0,
        };
        let hash = Splits::hash(&train, &parts);
        let ends_cut = is_cut && scored + 1 < parts.len();
        Ok(Splits {
            train,
            valid: parts.swap_remove(scored),
            hash,
            is_apart,
            cuts: [is_cut, ends_cut],
        })
    }

    /// The files in the order of the list.
    fn in_order(&self, found: &[Found]) -> Result<Vec<Found>, TaskError> {
        let names: Vec<&str> = found.iter().map(|file| &*file.name).collect();
        let wrong = |problem: String| {
            let most = self.files.iter().map(|file| file.name).collect::<Vec<_>>();
            let allowed = match self.files.len() {
                1 => format!("the file {}", most.join("")),
                _ => format!(
                    "files with train, valid and test in their names: {}",
                    most.join(", ")
                ),
            };
            let hint = format!(
                "{}; another text is corpus = \"files\" and a `split` table",
                self.where_to_get()
            );
            Invalid::new("files", format!("{names:?}"), problem, allowed, hint)
        };
        if let ([_], [one]) = (self.files, found) {
            return Ok(vec![one.clone()]);
        }
        let of_part = |file: &File| {
            let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
            let fits = |found: &&Found| last(&found.name).contains(file.part);
            let mut fitting = found.iter().filter(fits);
            match (fitting.next(), fitting.next()) {
                (Some(only), None) => Ok(only.clone()),
                (None, _) => Err(wrong(format!("has no {} of {}", file.name, self.name))),
                (Some(one), Some(other)) => Err(wrong(format!(
                    "has more than one {} of {}: {} and {}",
                    file.name, self.name, one.name, other.name
                ))),
            }
        };
        let ordered = self
            .files
            .iter()
            .map(of_part)
            .collect::<Result<Vec<_>, _>>()?;
        match found.len() == ordered.len() {
            true => Ok(ordered),
            false => Err(wrong(format!("has files that {} does not have", self.name)).into()),
        }
    }

    /// The splits of a file.
    fn cut(&self, (name, mut text): (String, Vec<u8>)) -> Vec<Part> {
        let mut parts = Vec::new();
        for end in self.ends.iter().rev() {
            parts.push(Part::of(vec![(name.clone(), text.split_off(*end))]));
        }
        parts.push(Part::of(vec![(name, text)]));
        parts.reverse();
        parts
    }
}

/// Checks that `files` and `crates` fit the kind of the corpus.
pub(super) fn check_source(
    corpus: CorpusKind,
    files: &[String],
    crates: &[String],
) -> Result<(), Invalid> {
    let name = corpus.name();
    let reads_files = corpus == CorpusKind::Files || corpus.is_published();
    let (key, value, problem, allowed, hint) = match (files, crates) {
        ([_, ..], _) if !reads_files => (
            "files",
            format!("{files:?}"),
            format!("cannot be given with corpus = {name:?}, which reads no named files"),
            "absent",
            "remove `corpus` or `files`".to_owned(),
        ),
        ([], _) if reads_files => (
            "files",
            format!("{files:?}"),
            format!("names no file, and corpus = {name:?} reads named files"),
            "at least one path or glob",
            match get(corpus) {
                Some(published) => published.where_to_get(),
                None => "name your files".to_owned(),
            },
        ),
        (_, []) if corpus == CorpusKind::Cargo => (
            "crates",
            format!("{crates:?}"),
            format!("names no crate, and corpus = {name:?} needs one"),
            "at least one registry package",
            "remove `crates` for the default list".to_owned(),
        ),
        (_, [_, ..]) if reads_files => (
            "crates",
            format!("{crates:?}"),
            "belongs to corpus = \"cargo\", and `files` is given".to_owned(),
            "absent",
            "remove `crates` or `files`".to_owned(),
        ),
        (_, [_, ..]) if corpus == CorpusKind::Rust2026 => (
            "crates",
            format!("{crates:?}"),
            "belongs to corpus = \"cargo\": the crates of rust-2026 are always the same".to_owned(),
            "absent",
            "remove `crates`, or write corpus = \"cargo\"".to_owned(),
        ),
        _ => return Ok(()),
    };
    Err(Invalid::new(key, value, problem, allowed, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    static SMALL: Published = Published {
        name: "small",
        page: "a page",
        files: &[File {
            name: "small.txt",
            bytes: Some(20),
            tokens: Some(6),
            ..WHOLE
        }],
        ends: &[12, 16],
    };

    const PARTS: Published = Published {
        name: "parts",
        page: "a page",
        files: &wikitext(3, (Some(2), None), (None, None)),
        ends: &[],
    };

    const LARGE: Published = Published {
        files: &wikitext(3, (Some(435_292), None), (Some(491_138), None)),
        ..PARTS
    };

    fn found(directory: &std::path::Path, files: &[(&str, &str)]) -> Vec<Found> {
        let of = |(name, text): &(&str, &str)| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("a file");
            let name = (*name).to_owned();
            Found { name, path }
        };
        files.iter().map(of).collect()
    }

    #[test]
    fn a_file_is_cut_where_its_splits_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = found(directory.path(), &[("any", "one two three\nfour f")]);
        let read = |rows| SMALL.read(&files, 100, rows).expect("as published");
        let [test, selection] = [Rows::Test, Rows::Selection].map(read);
        assert_eq!(test.train.bytes, b"one two thre");
        assert_eq!(test.valid.bytes, b"ur f");
        assert_eq!(selection.valid.bytes, b"e\nfo");
        assert_eq!(selection.train.bytes, test.train.bytes);
        assert_eq!(
            selection.hash, test.hash,
            "one corpus, whichever rows are asked for"
        );
        assert_eq!((test.cuts, selection.cuts), ([true, false], [true, true]));
        assert!(test.is_apart);
        // A byte, a word or a line more or less is another file.
        for text in [
            "one two three\nfour ",
            "one two three four f",
            "one two threes\nfourf",
        ] {
            let files = found(directory.path(), &[("any", text)]);
            let error = SMALL
                .read(&files, 100, Rows::Test)
                .err()
                .expect(text)
                .to_string();
            assert!(
                error.contains("published: 20 bytes, 6 words and line ends"),
                "{error}"
            );
        }
    }

    #[test]
    fn text8_is_not_enwik8() {
        let known = |text: &'static str| File {
            bytes: Some(text.len()),
            start: b"<mediawiki ",
            ..WHOLE
        };
        let differs = |text: &'static str| Measured::of(text.as_bytes()).differs(&known(text));
        assert_eq!(differs("<mediawiki xmlns"), None);
        let [published, found] = differs(" anarchism originated").expect("another file");
        assert_eq!(published, "\"<mediawiki \" in front, 21 bytes");
        assert!(found.starts_with("\" anarchism \" in front, 21 bytes, BLAKE3 "));
        assert_eq!(ENWIK8.files[0].start, b"<mediawiki ");
    }

    #[test]
    fn files_are_splits_by_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let long = "a ".repeat(217_646);
        let test = "b ".repeat(245_569);
        let files = [
            ("x.Test", &*test),
            ("x.train", "a b\n"),
            ("x.valid", &*long),
        ];
        let files = found(directory.path(), &files);
        let read = |rows| LARGE.read(&files, 1 << 20, rows).expect("as published");
        assert_eq!(read(Rows::Test).train.bytes, b"a b\n");
        assert_eq!(read(Rows::Test).valid.bytes, test.as_bytes());
        assert_eq!(read(Rows::Selection).valid.bytes, long.as_bytes());
        assert_eq!(read(Rows::Selection).cuts, [false, false]);
        let error = PARTS
            .read(&files, 1 << 20, Rows::Test)
            .err()
            .expect("larger");
        assert!(
            error
                .to_string()
                .contains("is not wiki.valid.tokens of parts"),
            "{error}"
        );
    }

    #[test]
    fn words_are_counted_as_they_were_published() {
        let of = |text: &str| Measured::of(text.as_bytes()).tokens;
        assert_eq!(["", " \n \n", "a", " a  b\t\u{b}c\n"].map(of), [0, 2, 1, 4]);
    }
}
