//! Which files there are, and what is in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that no check looks into where git is not there to say what is ignored.
const IGNORED: [&str; 6] = ["target", "node_modules", ".git", ".cache", "cache", "out"];

/// Files that are not text.
const BINARY: [&str; 7] = ["binpb", "gz", "png", "ico", "woff2", "pem", "der"];

/// Texts that other programs write, or that other people wrote. Corpora of fuzz targets are left out too.
const FOREIGN: [&str; 3] = ["Cargo.lock", "package-lock.json", "LICENSE"];

/// The files that are, or are about to be, part of the repository.
#[derive(Debug)]
pub(crate) struct Repository {
    root: PathBuf,
    files: BTreeSet<String>,
}

/// Returns the top of the repository.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("the crate is inside the repository")
}

impl Repository {
    /// Lists the files of this repository: those that git tracks and those that it would add.
    pub(crate) fn open() -> Self {
        let root = root().to_owned();
        let listed = if root.join(".git").exists() { git_files(&root) } else { None };
        let files = listed.unwrap_or_else(|| walk(&root));
        assert!(files.contains("Cargo.toml"), "{} is not the repository", root.display());
        Self { root, files }
    }

    /// Makes one for a test of a check.
    #[cfg(test)]
    pub(crate) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), files: walk(root) }
    }

    /// Returns the paths, from the top of the repository.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Returns whether a file or folder is part of the repository.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.files.contains(path) || self.files.iter().any(|file| file.starts_with(&folder))
    }

    /// Reads a text.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_else(|error| format!("cannot read {path}: {error}"))
    }

    /// Reads ARCHITECTURE.md.
    pub(crate) fn architecture(&self) -> String {
        self.read("ARCHITECTURE.md")
    }

    /// Runs a check over every text that we wrote.
    pub(crate) fn check_texts(&self, check: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
        let own = |path: &&str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let is_binary = BINARY.iter().any(|end| name.ends_with(&format!(".{end}")));
            !is_binary && !FOREIGN.contains(&name) && !path.contains("/corpus/")
        };
        self.files().filter(own).flat_map(|path| check(path, &self.read(path))).collect()
    }

    /// Runs a check over every Rust file that we wrote.
    pub(crate) fn check_sources(&self, check: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
        let own = |path: &&str| path.ends_with(".rs") && !is_generated(path);
        self.files().filter(own).flat_map(|path| check(path, &self.read(path))).collect()
    }
}

/// Returns whether a program writes this Rust file.
pub(crate) fn is_generated(path: &str) -> bool {
    ["proto/src/wire/", "gateway/api/src/grpc/wire/", "gateway/replicas/src/wire/"]
        .iter()
        .any(|folder| path.starts_with(folder))
}

fn git_files(root: &Path) -> Option<BTreeSet<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // A file that was deleted stays listed until that is committed.
    let there = text.split('\0').filter(|path| !path.is_empty() && root.join(path).is_file());
    output.status.success().then(|| there.map(str::to_owned).collect())
}

fn walk(root: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_ignored = IGNORED.iter().any(|name| entry.file_name() == *name);
            if path.is_dir() {
                if !is_ignored {
                    folders.push(path);
                }
            } else if let Ok(path) = path.strip_prefix(root) {
                files.insert(path.display().to_string());
            }
        }
    }
    files
}

/// A folder with some files, gone when it is dropped.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

#[cfg(test)]
impl Scratch {
    /// Makes a folder of this name in the tests' own scratch space.
    pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tidy-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("folder");
            fs::write(path, text).expect("file");
        }
        Self(folder)
    }

    /// Opens it as a repository.
    pub(crate) fn open(&self) -> Repository {
        Repository::of(&self.0)
    }
}

#[cfg(test)]
impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is in the build folder.
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_sees_what_git_would_and_skips_what_is_built() {
        let files = [("Cargo.toml", ""), ("a/src/lib.rs", ""), ("target/debug/x.rs", ""), ("a/node_modules/y.rs", "")];
        let scratch = Scratch::new("walk", &files);
        let repository = scratch.open();
        assert_eq!(repository.files().collect::<Vec<_>>(), ["Cargo.toml", "a/src/lib.rs"]);
        assert!(repository.has("a/src/") && repository.has("a/src/lib.rs") && !repository.has("a/sr"));
    }
}
