//! Destination of a token's text: standard output, or a file that only its user can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use thiserror::Error;

/// Flags of the commands that make tokens.
#[derive(Clone, Debug, Default, Args)]
pub struct OutArgs {
    /// Put the token into this file, which only you can read, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file of --out if it is there.
    #[arg(long, requires = "out")]
    pub force: bool,
}

/// Reason why a file cannot take a token. Nothing was made then.
#[derive(Debug, Error)]
pub(super) enum NoFile {
    #[error("{} is there already: name another file, or replace it with --force", .0.display())]
    Exists(PathBuf),
    #[error("{} cannot be written: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

/// A file that is ready to take a token. Dropped without one, it leaves nothing behind.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// File that is written first, to be put in the place of `path` as a whole.
    written: PathBuf,
    file: File,
    is_kept: bool,
}

impl TokenFile {
    /// Makes the file, before the token is: so no token is made that finds no place. `None` without `--out`.
    ///
    /// # Errors
    /// [`NoFile`] names the path and what to do.
    pub(super) fn prepare(args: &OutArgs) -> Result<Option<Self>, NoFile> {
        let Some(path) = &args.out else { return Ok(None) };
        let written = if args.force { beside(path) } else { path.clone() };
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&written);
        let file = opened.map_err(|source| {
            let path = written.clone();
            let is_there = source.kind() == io::ErrorKind::AlreadyExists;
            if is_there { NoFile::Exists(path) } else { NoFile::Unwritable { path, source } }
        })?;
        Ok(Some(Self { path: path.clone(), written, file, is_kept: false }))
    }

    /// Writes the token, and puts the file in its place.
    ///
    /// # Errors
    /// Error of the system; then there is no file, or the one that was there before.
    pub(super) fn keep(mut self, token: &str) -> io::Result<()> {
        writeln!(self.file, "{token}")?;
        self.file.sync_all()?;
        if self.written != self.path {
            fs::rename(&self.written, &self.path)?;
        }
        self.is_kept = true;
        Ok(())
    }

    /// Returns the path that was named.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // An empty file, or half of a token, is no loss.
            fs::remove_file(&self.written).unwrap_or_default();
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn prepare(path: &Path, force: bool) -> Result<TokenFile, NoFile> {
        TokenFile::prepare(&OutArgs { out: Some(path.to_owned()), force }).map(|file| file.unwrap())
    }

    #[test]
    fn file_is_private_whole_and_replaced_only_when_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.token");
        prepare(&path, false).unwrap().keep("one").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = prepare(&path, false).unwrap_err().to_string();
        assert!(refused.contains("agent.token is there already") && refused.contains("--force"), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        prepare(&path, true).unwrap().keep("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(prepare(&path, true).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
        let refused = prepare(&folder.path().join("no/where"), false).unwrap_err().to_string();
        assert!(refused.contains("no/where cannot be written: "), "{refused}");
    }
}
