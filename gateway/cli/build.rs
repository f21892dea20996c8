//! Says which source a release was built from, where that is known: of the gateway and of the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let top = repository();
    println!("cargo::rerun-if-changed={}", top.join("gateway/cli/build.rs").display());
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    let commit = std::env::var("BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    // Only a release asks git: everything else would be compiled anew at each commit. A tarball has none to ask.
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = commit.or_else(|| if is_release { of_git(&top) } else { None });
    let version = env!("CARGO_PKG_VERSION");
    let long = commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({})", commit.trim()));
    println!("cargo::rustc-env=BUILT_VERSION={long}");
}

/// Returns the top of the repository: two packages, at different depths, have this script.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let top = here.ancestors().find(|folder| folder.join("Cargo.lock").exists());
    top.unwrap_or(here).to_owned()
}

/// Returns the commit and its day: both are the source's, so that two builds of it are the same.
fn of_git(top: &Path) -> Option<String> {
    let head = top.join(".git/HEAD");
    if !head.exists() {
        return None;
    }
    println!("cargo::rerun-if-changed={}", top.join(".git/logs/HEAD").display());
    println!("cargo::rerun-if-changed={}", head.display());
    let shown = Command::new("git").args(["show", "--no-patch", "--format=%h %cs", "--abbrev=12", "HEAD"]).output();
    let shown = shown.ok().filter(|shown| shown.status.success())?;
    String::from_utf8(shown.stdout).ok()
}
