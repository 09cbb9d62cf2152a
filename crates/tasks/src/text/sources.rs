//! Finding the files of a corpus: paths and globs, or the crates that Cargo has unpacked. Nothing
//! here reads a file's content.
//!
//! Directories are walked in sorted order and links to directories are never followed. A found file
//! has a name with `/` between its parts that does not depend on where the corpus lies: as written,
//! without `..`, for relative patterns; relative to the part of the pattern before its first
//! wildcard for absolute ones; and `NAME-VERSION/...` for crates.

use crate::{BuildContext, TaskError};
use schema::Invalid;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// More files and directories than this are refused: a pattern like `/**` is a mistake.
const MAX_ENTRIES: usize = 200_000;
/// Directories within directories; the walk goes down by recursion.
const MAX_DEPTH: usize = 200;
const MATCH: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A file of a corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub name: String,
    pub path: PathBuf,
}

/// How a failed system call is reported.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error, hint: &str) -> TaskError {
    TaskError::input(path, format!("cannot be read: {error}"), hint)
}

/// The files of a list of paths and globs, sorted by name. A file found twice is taken once, under
/// its first name. `key` is the list's place in the task table.
pub(crate) fn find(
    patterns: &[String],
    key: &str,
    config_dir: &Path,
) -> Result<Vec<Found>, TaskError> {
    let mut by_file = BTreeMap::new();
    let mut found = vec![];
    for (i, pattern) in patterns.iter().enumerate() {
        for file in find_one(pattern, &format!("{key}.{i}"), config_dir)? {
            let place = file
                .path
                .canonicalize()
                .map_err(|e| unreadable(&file.path, &e, "name an existing file"))?;
            if by_file.insert(place, ()).is_none() {
                found.push(file);
            }
        }
    }
    // Stable: files of the same name keep the order of their patterns.
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn find_one(pattern: &str, key: &str, config_dir: &Path) -> Result<Vec<Found>, TaskError> {
    let invalid = |problem: String| {
        let allowed = "a path or a glob with `*`, `?`, `[...]` or `**`";
        let hint = "write `[[]` for a bracket";
        TaskError::from(Invalid::new(
            key,
            format!("{pattern:?}"),
            problem,
            allowed,
            hint,
        ))
    };
    if pattern.is_empty() || pattern.contains('\0') {
        return Err(invalid("is not a path".into()));
    }
    // The part before the first wildcard's directory is a path, the rest a glob below it.
    let (literal, wild) = match pattern.find(['*', '?', '[']) {
        Some(first) => pattern.split_at(pattern[..first].rfind('/').map_or(0, |slash| slash + 1)),
        None => (pattern, ""),
    };
    if wild.is_empty() {
        return named_file(literal, config_dir).map(|file| vec![file]);
    }
    let matcher = glob::Pattern::new(wild).map_err(|e| invalid(format!("is not a glob: {e}")))?;
    let depth = if wild.contains("**") {
        usize::MAX
    } else {
        wild.split('/').count()
    };
    let start = config_dir.join(literal);
    let root = match (literal, config_dir.as_os_str().is_empty()) {
        ("", true) => Path::new("."),
        ("", false) => config_dir,
        _ => &start,
    };
    let mut files = Walk::files(root, "", depth, true)?;
    files.retain(|file| matcher.matches_with(&file.name, MATCH));
    if files.is_empty() {
        let problem = format!("holds no file that matches {wild:?} (from {pattern:?})");
        let hint = match config_dir.join(pattern).is_file() {
            true => format!(
                "a file has this name: write {:?}, which matches it literally",
                glob::Pattern::escape(pattern)
            ),
            false => {
                "check the pattern; relative ones start at the configuration's directory".into()
            }
        };
        return Err(TaskError::input(root, problem, hint));
    }
    if !Path::new(literal).is_absolute() {
        for file in &mut files {
            file.name = normal_name(&Path::new(literal).join(&file.name));
        }
    }
    Ok(files)
}

/// A file named without wildcards.
fn named_file(pattern: &str, config_dir: &Path) -> Result<Found, TaskError> {
    let path = config_dir.join(pattern);
    let hint = "name an existing file; relative paths start at the configuration's directory";
    let meta = std::fs::metadata(&path).map_err(|e| unreadable(&path, &e, hint))?;
    if meta.is_dir() {
        let hint = "add `/**/*.txt` or the like";
        return Err(TaskError::input(path, "is a directory, not a file", hint));
    }
    let last = path.file_name().unwrap_or_default().to_string_lossy();
    let name = match Path::new(pattern).is_absolute() {
        true => last.into_owned(),
        false => normal_name(Path::new(pattern)),
    };
    Ok(Found { name, path })
}

/// `/` between the parts, without `.` and `..`: the same data gets the same names from
/// configurations at different depths.
fn normal_name(path: &Path) -> String {
    let parts = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)));
    parts
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join("/")
}

/// What a walk has found.
struct Walk {
    /// Whether links to files are taken; links to directories never are.
    links: bool,
    entries: usize,
    files: Vec<Found>,
}

impl Walk {
    /// The files below `dir`, at most `depth` levels down, their names after `prefix`.
    fn files(dir: &Path, prefix: &str, depth: usize, links: bool) -> Result<Vec<Found>, TaskError> {
        let mut walk = Self {
            links,
            entries: 0,
            files: vec![],
        };
        walk.enter(dir, prefix, depth, 0)?;
        Ok(walk.files)
    }

    fn enter(
        &mut self,
        dir: &Path,
        prefix: &str,
        depth: usize,
        level: usize,
    ) -> Result<(), TaskError> {
        let hint = "name an existing directory that can be read";
        let narrower =
            |problem: String| Err(TaskError::input(dir, problem, "use a narrower pattern"));
        if level > MAX_DEPTH {
            return narrower(format!(
                "more than {MAX_DEPTH} directories within each other"
            ));
        }
        // One entry past the limit is enough to refuse; a huge directory is not read to its end.
        let most = MAX_ENTRIES - self.entries;
        let entries = std::fs::read_dir(dir)
            .and_then(|entries| entries.take(most + 1).collect::<Result<Vec<_>, _>>());
        let mut entries = entries.map_err(|e| unreadable(dir, &e, hint))?;
        if entries.len() > most {
            return narrower(format!("more than {MAX_ENTRIES} files and directories"));
        }
        self.entries += entries.len();
        // Directories list their entries in the order of the file system.
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().map_err(|e| unreadable(&path, &e, hint))?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            // The type of the entry itself: a link is not a directory, so the walk meets no circle.
            if kind.is_dir() {
                if depth > 1 {
                    self.enter(
                        &path,
                        &format!("{name}/"),
                        depth.saturating_sub(1),
                        level + 1,
                    )?;
                }
            } else if kind.is_file() || self.links && kind.is_symlink() && path.is_file() {
                self.files.push(Found { name, path });
            }
        }
        Ok(())
    }
}

/// Whether one of `patterns` matches `name`; used where files are chosen among names already found.
pub(crate) fn matchers(patterns: &[String], key: &str) -> Result<Vec<glob::Pattern>, TaskError> {
    let compile = |(i, pattern): (usize, &String)| {
        glob::Pattern::new(pattern).map_err(|e| {
            Invalid::new(
                format!("{key}.{i}"),
                format!("{pattern:?}"),
                format!("is not a glob: {e}"),
                "a glob such as `burn-nn-*/**`",
                "fix the glob",
            )
            .into()
        })
    };
    patterns.iter().enumerate().map(compile).collect()
}

pub(crate) fn matches_any(matchers: &[glob::Pattern], name: &str) -> bool {
    matchers
        .iter()
        .any(|matcher| matcher.matches_with(name, MATCH))
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Package>,
}

/// A package of Cargo.lock; keys of no interest are ignored, the format belongs to Cargo.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// Present for registry packages only.
    checksum: Option<String>,
}

/// What to do about a crate whose sources are missing.
const FETCH: &str = "run `cargo fetch --locked` in Longreach's source directory, or name your own \
                     files with `files`";

/// The `.rs` files of `crates` as Cargo unpacked them, sorted by name, and the crates as `NAME
/// VERSION`.
pub(crate) fn find_crates(
    crates: &[String],
    ctx: &BuildContext<'_>,
) -> Result<(Vec<Found>, Vec<String>), TaskError> {
    let without_path = |problem, hint: &str| TaskError::Input {
        path: None,
        problem,
        hint: hint.into(),
    };
    let lock: Lock = toml::from_str(ctx.lock).map_err(|e| {
        let problem = format!("the embedded Cargo.lock cannot be read: {}", e.message());
        without_path(problem, FETCH)
    })?;
    let home = ctx.cargo_home.as_ref().ok_or_else(|| {
        let problem = "the cargo corpus needs Cargo's home directory, and none is known".into();
        without_path(
            problem,
            "set CARGO_HOME, or name your own files with `files`",
        )
    })?;
    let sources = home.join("registry").join("src");
    let (mut found, mut packages) = (vec![], vec![]);
    for (i, wanted) in crates.iter().enumerate() {
        let key = format!("crates.{i}");
        let package = resolve(&lock, wanted, &key)?;
        let label = format!("{} {}", package.name, package.version);
        if packages.contains(&label) {
            let (problem, allowed) = ("is listed twice", "each crate once");
            let wanted = format!("{wanted:?}");
            return Err(Invalid::new(key, wanted, problem, allowed, "remove one").into());
        }
        found.extend(sources_of(package, &label, &sources)?);
        packages.push(label);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    packages.sort();
    Ok((found, packages))
}

/// The `.rs` files of one package below Cargo's unpacked registries.
fn sources_of(package: &Package, label: &str, sources: &Path) -> Result<Vec<Found>, TaskError> {
    let dir_name = format!("{}-{}", package.name, package.version);
    let candidates = registries(sources)?.into_iter().map(|r| r.join(&dir_name));
    let Some(dir) = candidates.into_iter().find(|dir| dir.is_dir()) else {
        let place = sources.join("*").join(&dir_name);
        let problem = format!("crate {label} of the cargo corpus is missing");
        return Err(TaskError::input(place, problem, FETCH));
    };
    let mut files = Walk::files(&dir, &format!("{dir_name}/"), usize::MAX, false)?;
    files.retain(|file| file.name.ends_with(".rs"));
    if files.is_empty() {
        return Err(TaskError::input(
            dir,
            format!("crate {label} holds no .rs file"),
            FETCH,
        ));
    }
    Ok(files)
}

/// The directories of the registries that Cargo has unpacked crates of, sorted; none if there is no
/// such directory.
fn registries(sources: &Path) -> Result<Vec<PathBuf>, TaskError> {
    if !sources.is_dir() {
        return Ok(vec![]);
    }
    let entries = std::fs::read_dir(sources).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut dirs: Vec<_> = entries
        .map_err(|e| unreadable(sources, &e, "check its permissions"))?
        .into_iter()
        .map(|e| e.path())
        .collect();
    // The first registry with a crate must not depend on the order of the file system.
    dirs.sort();
    Ok(dirs)
}

fn resolve<'a>(lock: &'a Lock, wanted: &str, key: &str) -> Result<&'a Package, TaskError> {
    let (name, version) = wanted
        .split_once('@')
        .map_or((wanted, None), |(name, version)| (name, Some(version)));
    let wrong = |problem: String, hint: &str| {
        Err(Invalid::new(
            key,
            format!("{wanted:?}"),
            problem,
            "`name` or `name@version` of a registry package in Cargo.lock",
            hint,
        )
        .into())
    };
    let all: Vec<_> = lock
        .package
        .iter()
        .filter(|p| p.name == name && p.checksum.is_some())
        .collect();
    match all
        .iter()
        .filter(|p| version.is_none_or(|v| v == p.version))
        .collect::<Vec<_>>()[..]
    {
        [package] => Ok(package),
        [] if all.is_empty() => wrong(
            "is not a registry package of Cargo.lock".into(),
            "check the spelling",
        ),
        _ => {
            let versions = all
                .iter()
                .map(|p| p.version.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            wrong(
                format!("is not in Cargo.lock, which has the versions {versions}"),
                "name one of them",
            )
        }
    }
}
