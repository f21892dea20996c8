//! Serves the workspace agent's programs to jobs: files that the operator names (`ci.agent_files`), each under its
//! SHA-256.
//!
//! They are hashed once, at the start, and kept open: a file that is replaced by another one is served as it was. A job
//! compares its download with the hash in its definition before it runs, so this code need not be trusted. A program is
//! no secret.
//!
//! There may be any number of downloads, and slow ones delay no other: only shared resources are bounded. Of each part
//! of a file there is one copy in memory, for as long as a download sends it, and files are read a few parts at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Semaphore;

use gateway_types::hexadecimal;
use workspace_spec::pipeline::{AgentFile, Architecture};

/// Path of the programs below `public_url`, before their SHA-256 in hexadecimal.
pub const AGENTS_PATH: &str = "/api/v1/ci/agents/";

/// Parts of files that are read at a time. Other reads wait for their turn, which comes as fast as the disk is.
const READS_MAX: usize = 16;

/// Size of one part, in bytes: read from a file at once.
const CHUNK_BYTES: usize = 128 * 1024;

/// Bytes that are read of an ELF file's head (System V ABI, "ELF Header"): as far as the machine.
const HEAD_BYTES: usize = 20;

/// Reason for a file not to be a program of the agent.
#[derive(Debug, Error)]
pub enum DownloadError {
    /// The file cannot be read.
    #[error("ci.agent_files: {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The file is no program, or one for a machine that there are no agents for.
    #[error("ci.agent_files: {} is no program for Linux on x86_64 or aarch64", path.display())]
    NoProgram {
        /// The file.
        path: PathBuf,
    },
    /// Two files are for one architecture.
    #[error("ci.agent_files: {} is for the same architecture as another one", path.display())]
    Twice {
        /// The second one.
        path: PathBuf,
    },
}

/// All programs.
#[derive(Debug)]
pub struct Downloads {
    files: BTreeMap<String, Arc<Download>>,
    reads: Arc<Semaphore>,
}

/// One program.
#[derive(Debug)]
pub struct Download {
    architecture: Architecture,
    sha256: [u8; 32],
    bytes: u64,
    file: File,
    /// Parts that a download is sending.
    chunks: Mutex<Vec<Weak<Chunk>>>,
}

/// A part of a file.
#[derive(Debug)]
struct Chunk(Box<[u8]>);

/// A part that is being sent, perhaps by several downloads at a time.
struct PartInUse(Arc<Chunk>);

impl AsRef<[u8]> for PartInUse {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

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
        Ok(Self { files, reads: Arc::new(Semaphore::new(READS_MAX)) })
    }

    /// Returns the URLs of the programs and their hashes.
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

    /// Starts a download. The stream ends with an error if the file has become shorter. A stream that is not polled
    /// holds nothing that another one needs.
    pub fn read(&self, download: Arc<Download>) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        stream::try_unfold(Reading { download, number: 0, reads: self.reads.clone() }, Reading::next)
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
        let number = usize::try_from(bytes.div_ceil(CHUNK_BYTES as u64)).unwrap_or(usize::MAX);
        Ok(Self { architecture, sha256, bytes, file, chunks: Mutex::new((0..number).map(|_| Weak::new()).collect()) })
    }

    /// Returns the length, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a part that another download is sending.
    fn sent(&self, number: usize) -> Option<Arc<Chunk>> {
        self.chunks.lock().get(number)?.upgrade()
    }

    /// Reads a part from the file. Of two concurrent reads, the second one returns the part of the first.
    fn read(&self, number: usize) -> io::Result<Arc<Chunk>> {
        let at = number as u64 * CHUNK_BYTES as u64;
        let wanted = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut bytes = vec![0; wanted].into_boxed_slice();
        self.file.read_exact_at(&mut bytes, at)?;
        let read = Arc::new(Chunk(bytes));
        let mut chunks = self.chunks.lock();
        let Some(place) = chunks.get_mut(number) else { return Ok(read) };
        if let Some(there) = place.upgrade() {
            return Ok(there);
        }
        *place = Arc::downgrade(&read);
        Ok(read)
    }
}

/// A download under way.
struct Reading {
    download: Arc<Download>,
    /// Number of the next part.
    number: usize,
    reads: Arc<Semaphore>,
}

impl Reading {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.number as u64 * CHUNK_BYTES as u64 >= self.download.bytes {
            return Ok(None);
        }
        let chunk = match self.download.sent(self.number) {
            Some(chunk) => chunk,
            None => self.read().await?,
        };
        self.number += 1;
        Ok(Some((Bytes::from_owner(PartInUse(chunk)), self)))
    }

    /// Reads the next part.
    async fn read(&self) -> io::Result<Arc<Chunk>> {
        let turn = self.reads.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (download, number) = (self.download.clone(), self.number);
        let read = tokio::task::spawn_blocking(move || {
            // Another download may have read it meanwhile.
            let chunk = download.sent(number).map_or_else(|| download.read(number), Ok);
            drop(turn);
            chunk
        });
        read.await.map_err(io::Error::other)?
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

/// Reads the architecture from the head of an ELF file: 64 bits, least byte first, and a machine that there are agents
/// for.
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
        let stream = downloads.read(downloads.find(name).unwrap());
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
    async fn slow_downloads_keep_nobody_waiting_and_share_what_they_hold() {
        let folder = tempfile::tempdir().unwrap();
        let body: Vec<u8> = (0..=250).cycle().take(3 * CHUNK_BYTES).collect();
        let downloads = Downloads::open(&[program(folder.path(), "agent", 0x3e, &body)]).unwrap();
        let name = name_of(&downloads.agents("http://localhost")[0]);
        let download = downloads.find(&name).unwrap();
        let (mut slow, mut held) = (Vec::new(), Vec::new());
        for _ in 0..1_000 {
            let mut reading = Box::pin(downloads.read(download.clone()));
            held.push(reading.try_next().await.unwrap().unwrap());
            slow.push(reading);
        }
        assert!(held.iter().all(|chunk| chunk.as_ptr() == held[0].as_ptr()), "one copy for all");
        assert_eq!(read(&downloads, &name).await.len(), body.len() + HEAD_BYTES);
        let parts = || (0..4).map(|number| download.sent(number).is_some()).collect::<Vec<_>>();
        assert_eq!(parts(), [true, false, false, false], "what nobody sends is not kept");
        drop((slow, held));
        assert_eq!(parts(), [false; 4]);
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
