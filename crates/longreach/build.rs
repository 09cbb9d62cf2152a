//! Records the commit the binary is built from; `unknown` outside a checkout.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty());
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"])
        .is_some_and(|changes| !changes.is_empty());
    let commit = commit.map_or("unknown".to_owned(), |commit| {
        if dirty {
            format!("{commit}-dirty")
        } else {
            commit
        }
    });
    println!("cargo::rustc-env=LONGREACH_COMMIT={commit}");
    if let Some(directory) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo::rerun-if-changed={directory}/HEAD");
        println!("cargo::rerun-if-changed={directory}/index");
    }
}
