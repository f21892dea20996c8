//! The file that records are appended to: rotated by size here, or by another program that renames it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::AuditRecord;
use super::line::line;
use gateway_config::AuditLog;

/// An open log file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Distinguishes the file from another of the same name.
    identity: FileIdentity,
    bytes: u64,
    /// The last line has no end: the disk was full in the middle of it.
    is_torn: bool,
    rotate_bytes: u64,
    keep: u32,
}

/// Error of lines that are not in the file.
#[derive(Debug, Error)]
#[error("{path}: {error}", path = path.display())]
pub(super) struct NotAppended {
    path: PathBuf,
    /// The system's error.
    error: io::Error,
    /// Number of missing lines.
    pub(super) lines: u64,
}

/// Identity of a file in its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity(u64, u64);

impl LogFile {
    /// Opens the file to append to; creates it if there is none.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(path: &Path, config: &AuditLog) -> io::Result<Self> {
        let (file, identity, bytes) = open(path)?;
        let (rotate_bytes, keep) = (config.rotate_bytes, config.keep);
        Ok(Self { path: path.to_owned(), file, identity, bytes, is_torn: false, rotate_bytes, keep })
    }

    /// Appends whole lines. A file that was renamed or removed meanwhile is left alone and a new one begun; one that is
    /// full is put aside first.
    ///
    /// # Errors
    /// The system's error, and the number of missing lines.
    pub(super) fn append(&mut self, lines: &str) -> Result<(), NotAppended> {
        let mut written = 0;
        self.write(lines.as_bytes(), &mut written).map_err(|error| {
            let missing = lines.as_bytes().get(written..).unwrap_or_default();
            let count = missing.iter().filter(|byte| **byte == b'\n').count();
            NotAppended { path: self.path.clone(), error, lines: u64::try_from(count).unwrap_or(u64::MAX) }
        })
    }

    fn write(&mut self, lines: &[u8], written: &mut usize) -> io::Result<()> {
        if identity_of(&self.path).ok() != Some(self.identity) {
            self.reopen()?;
        }
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(length) > self.rotate_bytes {
            self.rotate()?;
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while let Some(rest) = lines.get(*written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    *written += count;
                    self.bytes = self.bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                    self.is_torn = lines.get(*written - 1) != Some(&b'\n');
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reopens the file by its name.
    ///
    /// # Errors
    /// The system's error; then the old one stays open.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.identity, self.bytes) = open(&self.path)?;
        self.is_torn = false;
        Ok(())
    }

    /// Puts the file aside as `.1`, the one that was `.1` as `.2`, and so on; the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.keep).rev() {
            rename_if_there(&self.aside(number), &self.aside(number + 1))?;
        }
        if self.keep == 0 {
            fs::remove_file(&self.path)?;
        } else {
            rename_if_there(&self.path, &self.aside(1))?;
        }
        self.reopen()
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Appends one record from another process than the gateway's: a command that works on the database.
///
/// # Errors
/// The system's error.
pub fn append(path: &Path, at_ms: u64, record: AuditRecord) -> io::Result<()> {
    let (mut file, ..) = open(path)?;
    // One write of one line to a file that is open for appending does not mix with others.
    file.write_all(format!("{}\n", line(at_ms, &record)).as_bytes())
}

/// Checks whether records can be appended.
///
/// # Errors
/// The system's error.
pub fn appendable(path: &Path) -> io::Result<()> {
    open(path).map(drop)
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn open(path: &Path) -> io::Result<(File, FileIdentity, u64)> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    Ok((file, identity(&metadata), metadata.len()))
}

fn identity_of(path: &Path) -> io::Result<FileIdentity> {
    Ok(identity(&fs::metadata(path)?))
}

#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> FileIdentity {
    use std::os::unix::fs::MetadataExt;
    FileIdentity(metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_metadata: &fs::Metadata) -> FileIdentity {
    FileIdentity(0, 0)
}
