//! Passes to the compiler the commit that the binary is built from (`unknown` outside a checkout)
//! and the version of Burn in `Cargo.lock`.

use std::path::Path;
use std::process::Command;

const LOCK: &str = "../../Cargo.lock";
const REPOSITORY: &str = "../../.git";

fn git(arguments: &[&str]) -> Option<String> {
    // `git status` would otherwise write the index, whose change runs this script again.
    let output = Command::new("git")
        .arg("--no-optional-locks")
        .args(arguments)
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> String {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty());
    if commit.is_none() && Path::new(REPOSITORY).exists() {
        println!("cargo::warning=git could not read the commit: records will say `unknown`");
        // A path that never exists: the next build asks git again.
        println!("cargo::rerun-if-changed={REPOSITORY}/unread");
    }
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|changes| !changes.is_empty());
    let suffix = if dirty { "-dirty" } else { "" };
    commit.map_or("unknown".to_owned(), |commit| commit + suffix)
}

/// The version of a package in the text of a lock file.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    rest.split('"').next()
}

fn main() {
    println!("cargo::rustc-env=LONGREACH_COMMIT={}", commit());
    if let Some(directory) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo::rerun-if-changed={directory}/HEAD");
        println!("cargo::rerun-if-changed={directory}/index");
    }
    let lock = std::fs::read_to_string(LOCK).unwrap_or_default();
    let burn = version(&lock, "burn").unwrap_or("unknown");
    println!("cargo::rustc-env=LONGREACH_BURN={burn}");
    println!("cargo::rerun-if-changed={LOCK}");
}
