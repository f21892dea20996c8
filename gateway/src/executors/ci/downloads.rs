//! The workspace agent's programs as jobs download them: files that the operator names (`ci.agent_files`), each under its SHA-256.
//!
//! They are hashed once, at the start, and kept open: a file that is replaced by another one is served as it was. What a job
//! got is compared with the hash in its definition before it runs, so that nothing has to be believed here. A program is
//! no secret.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::workspaces::pipeline::{AgentFile, Architecture};

/// Where the programs are below `public_url`, before their SHA-256 in hexadecimal.
pub const AGENTS_PATH: &str = "/api/v1/ci/agents/";

/// Downloads at a time. Whoever comes when all are under way is told to come again.
const DOWNLOADS_MAX: usize = 64;

/// What is read of a file at once, in bytes; each download has one of them in memory.
const CHUNK_BYTES: usize = 128 * 1024;

/// What the head of an ELF file has, in bytes (System V ABI, "ELF Header"): as far as the machine.
const HEAD_BYTES: usize = 20;

/// Why a file is no program of the agent.
#[derive(Debug, Error)]
pub enum DownloadError {
    /// It cannot be read.
    #[error("ci.agent_files: {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is none, or one for a machine that there are no agents for.
    #[error("ci.agent_files: {} is no program for Linux on x86_64 or aarch64", path.display())]
    NoProgram {
        /// The file.
        path: PathBuf,
    },
    /// There are two for one architecture.
    #[error("ci.agent_files: {} is for the same architecture as another one", path.display())]
    Twice {
        /// The second one.
        path: PathBuf,
    },
}

/// The programs.
#[derive(Debug)]
pub struct Downloads {
    files: BTreeMap<String, Arc<Download>>,
    permits: Arc<Semaphore>,
}

/// One program.
#[derive(Debug)]
pub struct Download {
    architecture: Architecture,
    sha256: [u8; 32],
    bytes: u64,
    file: File,
}

/// Too many are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many downloads at a time")]
pub struct Busy;

impl Downloads {
    /// Opens and hashes files.
    ///
    /// # Errors
    /// The first file that is no program, or one too many.
    pub fn open(paths: &[PathBuf]) -> Result<Self, DownloadError> {
        let mut files: BTreeMap<String, Arc<Download>> = BTreeMap::new();
        for path in paths {
            let download = Download::open(path)?;
            if files.values().any(|other| other.architecture == download.architecture) {
                return Err(DownloadError::Twice { path: path.clone() });
            }
            files.insert(hexadecimal(&download.sha256), Arc::new(download));
        }
        Ok(Self { files, permits: Arc::new(Semaphore::new(DOWNLOADS_MAX)) })
    }

    /// Returns where jobs get the programs, and what these have to be.
    #[must_use]
    pub fn agents(&self, public_url: &str) -> Vec<AgentFile> {
        let base = public_url.trim_end_matches('/');
        let agent = |(name, download): (&String, &Arc<Download>)| AgentFile {
            architecture: download.architecture,
            url: format!("{base}{AGENTS_PATH}{name}"),
            sha256: download.sha256,
        };
        self.files.iter().map(agent).collect()
    }

    /// Finds a program by its SHA-256 in lower-case hexadecimal.
    #[must_use]
    pub fn find(&self, sha256: &str) -> Option<Arc<Download>> {
        self.files.get(sha256).cloned()
    }

    /// Begins to read a program. The stream ends with an error if the file has become shorter.
    ///
    /// # Errors
    /// [`Busy`] while as many as there may be are under way.
    pub fn read(&self, download: Arc<Download>) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, Busy> {
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| Busy)?;
        let reading = Reading { download, at: 0, _permit: permit };
        Ok(stream::try_unfold(reading, Reading::next))
    }
}

impl Download {
    fn open(path: &Path) -> Result<Self, DownloadError> {
        let unreadable = |source| DownloadError::Unreadable { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut head = [0; HEAD_BYTES];
        let architecture = match file.read_exact_at(&mut head, 0) {
            Ok(()) => architecture(head),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(unreadable(error)),
        };
        let architecture = architecture.ok_or_else(|| DownloadError::NoProgram { path: path.to_owned() })?;
        let (sha256, bytes) = hash(&mut file).map_err(unreadable)?;
        Ok(Self { architecture, sha256, bytes, file })
    }

    /// Returns how long it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A download under way.
struct Reading {
    download: Arc<Download>,
    at: u64,
    _permit: OwnedSemaphorePermit,
}

impl Reading {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let left = self.download.bytes.saturating_sub(self.at);
        if left == 0 {
            return Ok(None);
        }
        let (download, at) = (self.download.clone(), self.at);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let chunk = tokio::task::spawn_blocking(move || {
            let mut chunk = BytesMut::zeroed(wanted);
            download.file.read_exact_at(&mut chunk, at).map(|()| chunk.freeze())
        });
        let chunk = chunk.await.map_err(io::Error::other)??;
        self.at += chunk.len() as u64;
        Ok(Some((chunk, self)))
    }
}

fn hash(file: &mut File) -> io::Result<([u8; 32], u64)> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { break };
        context.update(read);
        bytes += read.len() as u64;
    }
    let sha256 = context.finish().as_ref().try_into().map_err(io::Error::other)?;
    Ok((sha256, bytes))
}

/// Tells from the head of an ELF file what it runs on: 64 bits, least byte first, and a machine that there are agents for.
fn architecture(head: [u8; HEAD_BYTES]) -> Option<Architecture> {
    match head {
        [0x7f, b'E', b'L', b'F', 2, 1, .., machine, 0] => match machine {
            0x3e => Some(Architecture::Amd64),
            0xb7 => Some(Architecture::Arm64),
            _ => None,
        },
        _ => None,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;

    /// Makes a file that begins as a program does.
    fn program(folder: &Path, name: &str, machine: u8, body: &[u8]) -> PathBuf {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, machine, 0];
        bytes.extend_from_slice(body);
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn read(downloads: &Downloads, name: &str) -> Vec<u8> {
        let stream = downloads.read(downloads.find(name).unwrap()).unwrap();
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        chunks.concat()
    }

    fn name_of(agent: &AgentFile) -> String {
        agent.url.rsplit('/').next().unwrap().to_owned()
    }

    #[tokio::test]
    async fn programs_are_found_by_their_hash_and_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let body: Vec<u8> = (0..=250).cycle().take(3 * CHUNK_BYTES + 17).collect();
        let one = program(folder.path(), "one", 0x3e, &body);
        let other = program(folder.path(), "other", 0xb7, b"");
        let downloads = Downloads::open(&[one.clone(), other]).unwrap();
        let agents = downloads.agents("https://gateway.example.com/");
        let mut architectures: Vec<_> = agents.iter().map(|agent| agent.architecture).collect();
        architectures.sort();
        assert_eq!(architectures, [Architecture::Amd64, Architecture::Arm64]);
        let agent = agents.iter().find(|agent| agent.architecture == Architecture::Amd64).unwrap();
        let name = name_of(agent);
        assert_eq!(agent.url, format!("https://gateway.example.com/api/v1/ci/agents/{name}"));
        assert_eq!((name.clone(), name.len()), (hexadecimal(&agent.sha256), 64));
        let expected = std::fs::read(&one).unwrap();
        assert_eq!(downloads.find(&name).unwrap().bytes(), expected.len() as u64);
        assert!(read(&downloads, &name).await == expected);
        assert!(downloads.find(&name.to_uppercase()).is_none() && downloads.find("").is_none());
    }

    #[tokio::test]
    async fn file_that_is_replaced_is_served_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = program(folder.path(), "agent", 0x3e, b"as it was");
        let downloads = Downloads::open(std::slice::from_ref(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
        program(folder.path(), "agent", 0x3e, b"another");
        let name = name_of(&downloads.agents("http://localhost")[0]);
        assert!(read(&downloads, &name).await.ends_with(b"as it was"));
    }

    #[tokio::test]
    async fn downloads_at_a_time_are_bounded_and_a_dropped_one_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads::open(&[program(folder.path(), "agent", 0x3e, b"")]).unwrap();
        let name = name_of(&downloads.agents("http://localhost")[0]);
        let download = downloads.find(&name).unwrap();
        let mut held: Vec<_> =
            (0..DOWNLOADS_MAX).map(|_| Box::pin(downloads.read(download.clone()).unwrap())).collect();
        assert!(downloads.read(download.clone()).is_err());
        held.pop();
        assert!(downloads.read(download).is_ok());
    }

    #[test]
    fn what_is_no_program_of_ours_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let good = program(folder.path(), "good", 0x3e, b"");
        let again = program(folder.path(), "again", 0x3e, b"x");
        let strange = program(folder.path(), "strange", 0x28, b"");
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\nexit 0\n# and more than a head\n").unwrap();
        let short = folder.path().join("short");
        std::fs::write(&short, "\u{7f}ELF").unwrap();
        for (paths, said) in [
            (vec![good.clone(), again], "again is for the same architecture"),
            (vec![strange], "strange is no program"),
            (vec![script], "script is no program"),
            (vec![short], "short is no program"),
            (vec![folder.path().join("gone")], "gone cannot be read"),
            (vec![folder.path().to_owned()], "cannot be read"),
        ] {
            let error = Downloads::open(&paths).unwrap_err().to_string();
            assert!(error.starts_with("ci.agent_files: ") && error.contains(said), "{error}");
        }
        assert!(Downloads::open(&[]).unwrap().agents("http://localhost").is_empty());
    }
}
