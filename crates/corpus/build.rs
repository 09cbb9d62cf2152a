//! Packs the text `rust-2026` into the program: the `.rs` files of the crates that `rust-2026.txt`
//! names, in its versions, as Cargo unpacked them.
//!
//! A default build compiles these crates, so their sources are there. Once Cargo.lock has other
//! versions, Cargo fetches those of the list into its directory and compiles none of them. The
//! build fails unless the sources have the hashes of the list.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const LIST: &str = "rust-2026.txt";

/// A directory with a directory NAME-VERSION of each crate, as `cargo vendor --versioned-dirs`
/// writes it.
const SOURCES: &str = "LONGREACH_CORPUS_SOURCES";

/// A line of the list.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    blake3: &'a str,
}

impl Package<'_> {
    fn directory(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={LIST}");
    println!("cargo::rerun-if-env-changed={SOURCES}");
    if let Err(message) = pack() {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn pack() -> Result<(), String> {
    let list = read_text(Path::new(LIST))?;
    let packages = packages(&list)?;
    let mut files = Vec::new();
    for (package, directory) in find_all(&packages)? {
        let mut own = Vec::new();
        walk(&directory, &package.directory(), &mut own)?;
        own.sort();
        check(package, &directory, &own)?;
        files.extend(own);
    }
    // The order of the files is part of the text.
    files.sort();
    let mut index = String::new();
    for (name, bytes) in &files {
        index += &format!("{} {name}\n", bytes.len());
    }
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    let written = encoder.write_all(index.as_bytes());
    let written = written.and_then(|()| {
        files
            .iter()
            .try_for_each(|(_, text)| encoder.write_all(text))
    });
    let packed = written.and_then(|()| encoder.finish());
    let packed = packed.map_err(|error| format!("packing rust-2026: {error}"))?;
    let out = out_dir()?;
    write(&out.join("rust-2026"), &packed)?;
    let sizes = format!(
        "const INDEX: usize = {};\nconst BYTES: usize = {total};\n",
        index.len()
    );
    write(&out.join("sizes.rs"), sizes.as_bytes())
}

fn packages(list: &str) -> Result<Vec<Package<'_>>, String> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [name, version, blake3] => Ok(Package {
                name,
                version,
                blake3,
            }),
            _ => Err(format!("{LIST}: {line:?} is not `NAME VERSION HASH`")),
        })
        .collect()
}

/// The directory of each package, after Cargo has fetched those that are missing.
fn find_all<'a>(packages: &'a [Package<'a>]) -> Result<Vec<(&'a Package<'a>, PathBuf)>, String> {
    let missing: Vec<&Package<'_>> = packages.iter().filter(|p| find(p).is_none()).collect();
    let failed = match missing[..] {
        [] => String::new(),
        _ => fetch(&missing).err().unwrap_or_default(),
    };
    let found = packages.iter().map(|package| {
        let directory = find(package).ok_or_else(|| {
            format!(
                "rust-2026, the text that Longreach carries, needs the sources of {} {}, which are \
                 not in Cargo's directory\n{failed}\nbuild once with access to the registry, or \
                 set {SOURCES} to a directory that `cargo vendor --versioned-dirs` wrote and that \
                 has {}",
                package.name,
                package.version,
                package.directory()
            )
        })?;
        Ok((package, directory))
    });
    found.collect()
}

/// The unpacked sources of a package.
fn find(package: &Package<'_>) -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = env::var_os("HOME").or_else(|| env::var_os("USERPROFILE"))?;
        Some(PathBuf::from(home).join(".cargo"))
    });
    let registries = home.and_then(|home| fs::read_dir(home.join("registry").join("src")).ok());
    let registries = registries.into_iter().flatten().flatten();
    let mut roots: Vec<PathBuf> = registries.map(|entry| entry.path()).collect();
    roots.sort();
    roots.extend(env::var_os(SOURCES).map(PathBuf::from));
    let mut directories = roots.into_iter().map(|root| root.join(package.directory()));
    directories.find(|directory| directory.is_dir())
}

/// Has Cargo fetch packages in their versions: without the network if it can.
fn fetch(missing: &[&Package<'_>]) -> Result<(), String> {
    let place = out_dir()?.join("fetch");
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    // A package outside any workspace: nothing of it is compiled.
    let mut manifest = "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                        [lib]\npath = \"lib.rs\"\n[workspace]\n[dependencies]\n"
        .to_owned();
    for (index, package) in missing.iter().enumerate() {
        manifest += &format!(
            "p{index} = {{ package = \"{}\", version = \"={}\", default-features = false }}\n",
            package.name, package.version
        );
    }
    write(&place.join("Cargo.toml"), manifest.as_bytes())?;
    write(&place.join("lib.rs"), b"")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let attempt = |offline: &[&str]| {
        let mut fetch = Command::new(&cargo);
        fetch.arg("fetch").args(offline).arg("--manifest-path");
        let output = fetch.arg(place.join("Cargo.toml")).output();
        let output = output.map_err(|error| format!("cargo fetch: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    };
    attempt(&["--offline"]).or_else(|_| attempt(&[]))
}

/// The `.rs` files below a directory, links left out, with names that begin with `prefix`.
fn walk(directory: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        if kind.is_dir() {
            walk(&entry.path(), &name, files)?;
        } else if kind.is_file() && name.ends_with(".rs") {
            files.push((name, fs::read(entry.path()).map_err(failed)?));
        }
    }
    Ok(())
}

/// Refuses sources that are not those of the list.
fn check(
    package: &Package<'_>,
    directory: &Path,
    files: &[(String, Vec<u8>)],
) -> Result<(), String> {
    let mut hasher = blake3::Hasher::new();
    for (name, bytes) in files {
        for part in [name.as_bytes(), bytes] {
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part);
        }
    }
    let found = hasher.finalize().to_hex();
    if *found == *package.blake3 {
        return Ok(());
    }
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    Err(format!(
        "rust-2026, the text that Longreach carries: the sources of {} {} in {} were changed: {} \
         .rs files with {bytes} bytes have the hash {found}, and {LIST} says {}\nremove that \
         directory and build again: Cargo then unpacks the crate anew",
        package.name,
        package.version,
        directory.display(),
        files.len(),
        package.blake3
    ))
}

fn out_dir() -> Result<PathBuf, String> {
    let directory = env::var_os("OUT_DIR").ok_or("Cargo sets no OUT_DIR")?;
    Ok(directory.into())
}

fn read_text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}
