//! Every write as a named operation on a disk that can be replaced.

use crate::scratch;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One operation on the file system. A file's bytes survive a power cut after [`Sync`](Op::Sync), a
/// name after [`SyncDir`](Op::SyncDir) of the directory it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Creates a directory; that it is there already is an error.
    CreateDir(&'a Path),
    /// Creates a file with these bytes, or replaces all its bytes by them.
    Write(&'a Path, &'a [u8]),
    /// Adds bytes to a file that has `at` bytes.
    Append {
        /// The file.
        path: &'a Path,
        /// Its size before.
        at: u64,
        /// What is added.
        bytes: &'a [u8],
    },
    /// Truncates a file to this many bytes.
    Cut(&'a Path, u64),
    /// Makes the bytes of a file survive.
    Sync(&'a Path),
    /// Makes the names in a directory survive.
    SyncDir(&'a Path),
    /// Gives a file or a directory another name, in place of a file that has it.
    Rename(&'a Path, &'a Path),
    /// Removes a file.
    RemoveFile(&'a Path),
    /// Removes an empty directory.
    RemoveDir(&'a Path),
}

impl Op<'_> {
    /// The verb of a message.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::CreateDir(_) => "create",
            Self::Write(..) => "write",
            Self::Append { .. } => "append to",
            Self::Cut(..) => "cut",
            Self::Sync(_) => "sync",
            Self::SyncDir(_) => "sync",
            Self::Rename(..) => "rename",
            Self::RemoveFile(_) | Self::RemoveDir(_) => "remove",
        }
    }

    /// The file or directory that changes; for a rename, the new name.
    pub fn path(&self) -> &Path {
        match self {
            Self::CreateDir(path)
            | Self::Write(path, _)
            | Self::Append { path, .. }
            | Self::Cut(path, _) => path,
            Self::Sync(path)
            | Self::SyncDir(path)
            | Self::Rename(_, path)
            | Self::RemoveFile(path)
            | Self::RemoveDir(path) => path,
        }
    }

    /// The operation with the role of its file, the same in every run: `rename step-N`, `write
    /// manifest.json`.
    pub fn name(&self) -> String {
        let file = self
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let role = match file.trim_start_matches('.') {
            step if step.starts_with("step-") => {
                format!("{}step-N", if file.starts_with('.') { "." } else { "" })
            }
            // A scratch name ends in its process, which is another one in every run.
            scratch if file.starts_with('.') => format!(
                ".{}",
                scratch.rsplit_once('.').map_or(scratch, |(stem, _)| stem)
            ),
            // A run's directory is named by a hash.
            hash if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                "RUN".to_owned()
            }
            plain => plain.to_owned(),
        };
        format!("{} {role}", self.verb())
    }

    /// Bytes that are written.
    fn bytes(&self) -> usize {
        match self {
            Self::Write(_, bytes) | Self::Append { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }
}

/// An operation that failed. Displays what failed, where, why, and what to do.
#[derive(Debug)]
pub struct Refused {
    verb: &'static str,
    path: PathBuf,
    bytes: usize,
    /// The error of the system.
    pub error: io::Error,
}

impl Refused {
    /// Whether no file can be written at the path, however much space there is: something that is
    /// not replaced stands there, or the system allows no such name.
    pub fn is_in_the_way(&self) -> bool {
        use ErrorKind::*;
        let kind = self.error.kind();
        matches!(
            kind,
            AlreadyExists | InvalidFilename | InvalidInput | IsADirectory | NotADirectory
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            path,
            bytes,
            error,
        } = self;
        let asked_for = scratch::asked_for(path);
        write!(f, "cannot {verb} {}: {error}", asked_for.display())?;
        let of = if *bytes > 0 {
            format!(" ({bytes} bytes)")
        } else {
            String::new()
        };
        let help = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "make room there or give another directory"
            }
            ErrorKind::FileTooLarge => {
                "the limit on file sizes is too low (`ulimit -f`): raise it or give another directory"
            }
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                "give a writable directory, or copy this one to a writable place"
            }
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "a file is where a directory is to be: move it, or give another directory"
            }
            ErrorKind::InvalidFilename => "give a shorter name: most systems allow 255 bytes",
            ErrorKind::IsADirectory => "give the path of a file",
            ErrorKind::InvalidInput => "move it, or give another path",
            _ => return Ok(()),
        };
        if self.is_in_the_way() {
            return write!(f, "\n  = help: {help}");
        }
        write!(
            f,
            "{of}\n  = help: {help}; nothing recorded or saved before is lost, and the same \
             command continues from it"
        )
    }
}

impl std::error::Error for Refused {
    // The message holds that of the system already; printed as a chain, it must not follow again.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Refused>;

/// A file system that operations are applied to.
pub trait Disk: Sync {
    /// Applies one operation. After an error the operation has had no visible effect, or, for
    /// writes, part of its bytes.
    ///
    /// # Errors
    ///
    /// The error of the system.
    fn apply(&self, op: &Op<'_>) -> io::Result<()>;
}

/// The file system of the operating system.
pub struct System;

impl Disk for System {
    fn apply(&self, op: &Op<'_>) -> io::Result<()> {
        match *op {
            Op::CreateDir(path) => std::fs::create_dir(path),
            Op::Write(path, bytes) => {
                // A link could lead anywhere.
                if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
                    return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
                }
                File::create(path)?.write_all(bytes)
            }
            Op::Append { path, at, bytes } => {
                let mut file = existing(path)?;
                let end = file.seek(SeekFrom::End(0))?;
                if end != at {
                    return Err(io::Error::other(format!(
                        "it has {end} bytes instead of {at}: another process writes to it"
                    )));
                }
                file.write_all(bytes)
            }
            Op::Cut(path, length) => existing(path)?.set_len(length),
            Op::Sync(path) => existing(path)?.sync_all(),
            // Other systems have no such call.
            Op::SyncDir(path) if cfg!(unix) => File::open(path)?.sync_all(),
            Op::SyncDir(_) => Ok(()),
            Op::Rename(from, to) => {
                check_replaceable(to)?;
                std::fs::rename(from, to)
            }
            Op::RemoveFile(path) => std::fs::remove_file(path),
            Op::RemoveDir(path) => std::fs::remove_dir(path),
        }
    }
}

/// Refuses to replace anything but a regular file: as root, a rename would put a file in the place
/// of a device, and of a link that leads to the data of somebody else.
fn check_replaceable(path: &Path) -> io::Result<()> {
    let Ok(found) = path.symlink_metadata() else {
        return Ok(());
    };
    let kind = found.file_type();
    let (error, what) = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_symlink() => (ErrorKind::InvalidInput, "a link"),
        () if kind.is_dir() => (ErrorKind::IsADirectory, "a directory"),
        () => (ErrorKind::InvalidInput, "a device, a pipe or a socket"),
    };
    let message = format!("it is {what}, and only files are replaced");
    Err(io::Error::new(error, message))
}

/// Whether a path leads to a pipe, a terminal or another device that takes bytes one after the
/// other.
#[cfg(unix)]
fn is_stream(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device()
    })
}

#[cfg(not(unix))]
fn is_stream(_: &Path) -> bool {
    false
}

fn existing(path: &Path) -> io::Result<File> {
    // `symlink_metadata` follows no link, so a link is refused as well.
    if !path.symlink_metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
    }
    OpenOptions::new().write(true).open(path)
}

/// The disk of this process; [`System`] unless a program has chosen another one.
static CHOSEN: OnceLock<&'static dyn Disk> = OnceLock::new();

/// Chooses the disk that [`system`] returns. The first choice counts, so a program calls this
/// before it writes anything.
pub fn choose(disk: &'static dyn Disk) {
    let _ = CHOSEN.set(disk);
}

/// The disk of this process.
pub fn system() -> &'static dyn Disk {
    *CHOSEN.get().unwrap_or(&(&System as &dyn Disk))
}

impl dyn Disk + '_ {
    /// Applies an operation; an error names the operation and its file.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn run(&self, op: Op<'_>) -> Result<()> {
        self.apply(&op).map_err(|error| Refused {
            verb: op.verb(),
            path: op.path().to_owned(),
            bytes: op.bytes(),
            error,
        })
    }

    /// Writes a file, with its bytes synced.
    ///
    /// # Errors
    ///
    /// The error of the system; part of the file may exist then.
    pub fn write_synced(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.run(Op::Write(path, bytes))?;
        self.run(Op::Sync(path))
    }

    /// Writes a file atomically: after a crash it has its old bytes or all the new ones, and once
    /// this has returned it has the new ones.
    ///
    /// The bytes go to a scratch file first, under a name that no other write has
    /// ([`scratch::beside`]), so that threads and machines may write the same file. The holder of
    /// the directory's lock may remove the scratch files of other processes (`remove_scratch`).
    ///
    /// # Errors
    ///
    /// The error of the system, or that something other than a file has the name; nothing is
    /// changed then.
    pub fn write_whole(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let directory = directory_of(path);
        // Before the scratch file: a directory of devices is not a place for one.
        check_replaceable(path).map_err(|error| Refused {
            verb: "write",
            path: path.to_owned(),
            bytes: bytes.len(),
            error,
        })?;
        let scratch = scratch::beside(path);
        // Bytes are synced before the rename, or the name could survive a power cut without them.
        let written = self
            .write_synced(&scratch, bytes)
            .and_then(|()| self.run(Op::Rename(&scratch, path)));
        if let Err(mut refused) = written {
            let _ = self.run(Op::RemoveFile(&scratch));
            // The file that was asked for: nobody knows the name of the scratch file.
            path.clone_into(&mut refused.path);
            return Err(refused);
        }
        self.run(Op::SyncDir(directory))
    }

    /// Writes what a user asked for under this name: into a pipe, a terminal or `/dev/stdout` as
    /// any program does, and otherwise as `write_whole`, creating its directory. Removes what
    /// earlier writes left there.
    ///
    /// # Errors
    ///
    /// As `write_whole`.
    pub fn write_named(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        if !is_stream(path) {
            self.create_dirs(directory_of(path))?;
            self.remove_abandoned(directory_of(path));
            return self.write_whole(path, bytes);
        }
        let written = OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut stream| stream.write_all(bytes));
        written.map_err(|error| Refused {
            verb: "write",
            path: path.to_owned(),
            bytes: bytes.len(),
            error,
        })
    }

    /// Creates a directory and its parents, each of them synced.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn create_dirs(&self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let above = directory_of(path);
        self.create_dirs(above)?;
        match self.run(Op::CreateDir(path)) {
            // Another process created it meanwhile.
            Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {
                Ok(())
            }
            Err(refused) => Err(refused),
            Ok(()) => self.run(Op::SyncDir(above)),
        }
    }

    /// Removes a file, or a directory with its contents; links are removed, not followed. A missing
    /// path is not an error.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn remove_tree(&self, path: &Path) -> Result<()> {
        let Ok(found) = path.symlink_metadata() else {
            return Ok(());
        };
        if !found.is_dir() {
            return self.run(Op::RemoveFile(path));
        }
        let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        // Directories list in an order of their own; sorted, the Nth operation is always the same.
        entries.sort();
        entries
            .iter()
            .try_for_each(|entry| self.remove_tree(entry))?;
        self.run(Op::RemoveDir(path))
    }

    /// Removes all scratch files from a directory whose lock this process holds. Files that cannot
    /// be removed stay.
    pub fn remove_scratch(&self, directory: &Path) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if scratch::is_scratch(&entry.file_name().to_string_lossy()) {
                let _ = self.remove_tree(&entry.path());
            }
        }
    }

    /// Removes the scratch files that dead processes left in a directory
    /// ([`scratch::abandoned`]). Files that cannot be removed stay.
    pub fn remove_abandoned(&self, directory: &Path) {
        for path in scratch::abandoned(directory) {
            let _ = self.remove_tree(&path);
        }
    }

    /// Checks that a directory can be written: creates it, and writes, syncs, renames and removes a
    /// small file in it. Removes what processes that died at this left.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn probe(&self, directory: &Path) -> Result<()> {
        self.create_dirs(directory)?;
        self.remove_abandoned(directory);
        let probe = scratch::beside(&directory.join("probe"));
        let other = scratch::beside(&directory.join("probed"));
        let done = self
            .write_synced(&probe, &[0; 4096])
            .and_then(|()| self.run(Op::Rename(&probe, &other)));
        // The file is removed after a failure too, under the name it has by then.
        let removed = self.run(Op::RemoveFile(if done.is_ok() { &other } else { &probe }));
        done.and(removed)
            .and_then(|()| self.run(Op::SyncDir(directory)))
    }
}

/// The directory a file lies in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
