//! The files of a report, and writing them.

use std::io;
use std::path::{Path, PathBuf};

/// Files and a text for the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What to write, by name.
    pub files: Vec<ReportFile>,
    /// The finding and the main table of each setting.
    pub summary: String,
}

/// One file of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportFile {
    /// Name without a directory.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

impl ReportFile {
    /// A file of that name and content.
    pub(super) fn new(name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: content.into(),
        }
    }
}

impl Report {
    /// Writes every file into `dir`, creating the directory. Each file is replaced atomically, so
    /// that two sweeps that write the same report leave whole files. A link or a device with a
    /// file's name is an error, neither followed nor replaced.
    ///
    /// # Errors
    ///
    /// When the directory or a file cannot be written; the message names it. When a file's name is
    /// not a plain one.
    pub fn write(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let is_plain = |name: &str| {
            Path::new(name)
                .file_name()
                .is_some_and(|plain| plain == name)
        };
        if let Some(file) = self.files.iter().find(|file| !is_plain(&file.name)) {
            let message = format!(
                "{:?} is not a file's name; allowed: one without a directory",
                file.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        fs_err::create_dir_all(dir)?;
        // What a killed report left there.
        rundir::system().remove_abandoned(dir);
        let write = |file: &ReportFile| {
            let path = dir.join(&file.name);
            rundir::system()
                .write_whole(&path, &file.bytes)
                .map_err(|refused| io::Error::new(refused.error.kind(), refused.to_string()))?;
            Ok(path)
        };
        self.files.iter().map(write).collect()
    }

    /// A file's content by name.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|f| f.name == name)
            .map(|f| f.bytes.as_slice())
    }
}
