//! Finding the files of a corpus: paths and globs, or the crates that Cargo has unpacked. Nothing
//! here reads a file's content.
//!
//! Directories are walked in sorted order and links to directories are never followed. A found file
//! has a name with `/` between its parts that does not depend on where the corpus lies: as written,
//! without `..`, for relative patterns; relative to the part of the pattern before its first
//! wildcard for absolute ones; and `NAME-VERSION/...` for crates.

use crate::{BuildContext, TaskError};
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
        for file in find_one(pattern, &format!("{key}[{i}]"), config_dir)? {
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
        TaskError::config(
            key,
            format!("{pattern:?}"),
            problem,
            "a path or a glob with `*`, `?`, `[...]` or `**`",
            "write `[[]` for a bracket",
        )
    };
    if pattern.is_empty() || pattern.contains('\0') {
        return Err(invalid("not a path".into()));
    }
    let (literal, wild) = match pattern.find(['*', '?', '[']) {
        Some(first) => pattern.split_at(pattern[..first].rfind('/').map_or(0, |slash| slash + 1)),
        None => (pattern, ""),
    };
    let start = config_dir.join(literal);
    let named = |relative: &str| match (Path::new(literal).is_absolute(), wild.is_empty()) {
        (true, true) => start
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        (true, false) => relative.to_string(),
        (false, _) => normal_name(&Path::new(literal).join(relative)),
    };
    if wild.is_empty() {
        let hint = "name an existing file; relative paths start at the configuration's directory";
        let meta = std::fs::metadata(&start).map_err(|e| unreadable(&start, &e, hint))?;
        if meta.is_dir() {
            return Err(TaskError::input(
                start,
                "is a directory, not a file",
                "add `/**/*.txt` or the like",
            ));
        }
        return Ok(vec![Found {
            name: named(""),
            path: start,
        }]);
    }
    let matcher = glob::Pattern::new(wild).map_err(|e| invalid(e.to_string()))?;
    let depth = if wild.contains("**") {
        usize::MAX
    } else {
        wild.split('/').count()
    };
    let from = if literal.is_empty() {
        config_dir
    } else {
        &start
    };
    let root = if from.as_os_str().is_empty() {
        Path::new(".")
    } else {
        from
    };
    let mut files = Walk::files(root, "", depth, true)?;
    files.retain(|file| matcher.matches_with(&file.name, MATCH));
    if files.is_empty() {
        let problem = format!("holds no file that matches {wild:?} (from {pattern:?})");
        return Err(TaskError::input(
            root,
            problem,
            "check the pattern; relative ones start at the configuration's directory",
        ));
    }
    files
        .iter_mut()
        .for_each(|file| file.name = named(&file.name));
    Ok(files)
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
        let most = MAX_ENTRIES - self.entries;
        let entries = std::fs::read_dir(dir)
            .and_then(|entries| entries.take(most + 1).collect::<Result<Vec<_>, _>>());
        let mut entries = entries.map_err(|e| unreadable(dir, &e, hint))?;
        if entries.len() > most {
            return narrower(format!("more than {MAX_ENTRIES} files and directories"));
        }
        self.entries += entries.len();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().map_err(|e| unreadable(&path, &e, hint))?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
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
            TaskError::config(
                format!("{key}[{i}]"),
                format!("{pattern:?}"),
                e.to_string(),
                "a glob such as `burn-nn-*/**`",
                "fix the glob",
            )
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

/// The `.rs` files of `crates` as Cargo unpacked them, sorted by name, and the crates as `NAME
/// VERSION`.
pub(crate) fn find_crates(
    crates: &[String],
    ctx: &BuildContext<'_>,
) -> Result<(Vec<Found>, Vec<String>), TaskError> {
    const FIX: &str = "run `cargo fetch --locked` in Longreach's source directory, or name your \
                       own files with `files`";
    let lock: Lock = toml::from_str(ctx.lock).map_err(|e| TaskError::Input {
        path: None,
        problem: format!("the embedded Cargo.lock cannot be read: {}", e.message()),
        hint: FIX.into(),
    })?;
    let home = ctx.cargo_home.as_ref().ok_or_else(|| TaskError::Input {
        path: None,
        problem: "the cargo corpus needs Cargo's home directory, and none is known".into(),
        hint: "set CARGO_HOME, or name your own files with `files`".into(),
    })?;
    let sources = home.join("registry").join("src");
    let (mut found, mut packages) = (vec![], vec![]);
    for (i, wanted) in crates.iter().enumerate() {
        let package = resolve(&lock, wanted, &format!("crates[{i}]"))?;
        let dir_name = format!("{}-{}", package.name, package.version);
        let label = format!("{} {}", package.name, package.version);
        if packages.contains(&label) {
            let problem = "the same crate is listed twice";
            return Err(TaskError::config(
                format!("crates[{i}]"),
                format!("{wanted:?}"),
                problem,
                "each crate once",
                "remove one",
            ));
        }
        let Some(dir) = registries(&sources)?
            .into_iter()
            .map(|r| r.join(&dir_name))
            .find(|dir| dir.is_dir())
        else {
            let place = sources.join("*").join(&dir_name);
            return Err(TaskError::input(
                place,
                format!("crate {label} of the cargo corpus is not there"),
                FIX,
            ));
        };
        let before = found.len();
        let files = Walk::files(&dir, &format!("{dir_name}/"), usize::MAX, false)?;
        found.extend(files.into_iter().filter(|file| file.name.ends_with(".rs")));
        if found.len() == before {
            return Err(TaskError::input(
                dir,
                format!("crate {label} holds no .rs file"),
                FIX,
            ));
        }
        packages.push(label);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    packages.sort();
    Ok((found, packages))
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
    dirs.sort();
    Ok(dirs)
}

fn resolve<'a>(lock: &'a Lock, wanted: &str, key: &str) -> Result<&'a Package, TaskError> {
    let (name, version) = wanted
        .split_once('@')
        .map_or((wanted, None), |(name, version)| (name, Some(version)));
    let wrong = |problem: String, hint: &str| {
        Err(TaskError::config(
            key,
            format!("{wanted:?}"),
            problem,
            "`name` or `name@version` of a registry package in Cargo.lock",
            hint,
        ))
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
            "no registry package of that name in Cargo.lock".into(),
            "check the spelling",
        ),
        _ => {
            let versions = all
                .iter()
                .map(|p| p.version.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            wrong(
                format!("Cargo.lock has the versions {versions}"),
                "name one of them",
            )
        }
    }
}
