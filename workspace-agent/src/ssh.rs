//! An SSH server for the workspace's owner, of real OpenSSH: one `sshd -i` for each channel to [`SSH_PORT`], at the other end of a
//! pair of sockets.
//!
//! The gateway lets the owner alone through to that port, so the server asks for nothing. It comes in a folder with all that it
//! needs, and runs as the agent's user in any image; what its user is called and which shell it has are said by files that only the
//! server sees, since an image may have no line for that user.

mod files;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, getegid, geteuid, kill_process_group};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};
use tunnel_proto::reason::Reason;
#[allow(unused_imports, reason = "for the links of this documentation")]
use tunnel_proto::ssh::SSH_PORT;

use self::files::{SshFacts, Unwritable};
use crate::terminal::{choose_shell, is_foreign};

/// Most connections at a time, each with a server process of its own: about 8 MiB.
pub const SSH_CONNECTIONS_MAX: usize = 64;

/// Longest time until a server's first word.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a server has for its end once its connection is gone, or the agent ends.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Most bytes of the machine's lists of users and groups.
const LIST_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes of a server's last words that are kept.
const WORDS_BYTES_MAX: usize = 1024;

/// File of the server's key, in the folder for it.
const KEY_FILE: &str = "ssh_host_ed25519_key";

/// Folder of the server's key, in the home.
const KEY_FOLDER: &str = ".local/share/workspace-gateway";

/// Programs that a newer server starts by their paths, and the options that say where they are.
const PARTS: [(&str, &str); 2] = [("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth")];

/// Options of the server.
#[derive(Clone, Debug)]
pub struct SshOptions {
    /// Folder with `sshd`, `ssh-keygen`, `shell` and `bin`, as `deploy/images/ssh-tools.sh` makes it.
    pub tools: PathBuf,
    /// Folder of the server's key; `None` for one in the home.
    pub keys: Option<PathBuf>,
}

/// The folder has no SSH server.
#[derive(Debug, thiserror::Error)]
pub enum NoSshServer {
    /// A program is missing.
    #[error("{} cannot be used: {error}", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Root has a password that counts.
    #[error("the SSH server runs as an ordinary user, and this is root")]
    Root,
}

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error("the server's key cannot be made in {}", folder.display())]
    Key { folder: PathBuf, source: io::Error },
    #[error("the server's key cannot be made: {0}")]
    KeyProgram(String),
    #[error("the server's files cannot be made")]
    Files(#[source] io::Error),
    #[error(transparent)]
    Unwritable(#[from] Unwritable),
    #[error("the server cannot be run")]
    Spawn(#[source] io::Error),
    #[error("the server said nothing within {} s", START_TIMEOUT.as_secs())]
    Silent,
    #[error("the server ended at once")]
    Ended,
}

/// The SSH server of this machine. Clones are the same one; dropping the last one ends its connections.
#[derive(Clone, Debug)]
pub struct SshServer {
    inner: Arc<SshShared>,
}

#[derive(Debug)]
struct SshShared {
    options: SshOptions,
    files: OnceCell<ServerFiles>,
    connections: AtomicUsize,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Drop for SshShared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Files of all servers, in memory: the environment of sessions may have secrets, and a volume would keep them.
#[derive(Debug)]
struct ServerFiles {
    configuration: OwnedFd,
    users: OwnedFd,
    groups: OwnedFd,
}

/// A channel's end: the server's connection, until it is dropped.
#[derive(Debug)]
pub struct SshConnection {
    /// The socket.
    pub stream: UnixStream,
    _open: DropGuard,
}

impl SshServer {
    /// Makes a server, after a look at whether its programs are there.
    ///
    /// # Errors
    /// [`NoSshServer`].
    pub fn new(options: SshOptions) -> Result<Self, NoSshServer> {
        if geteuid().is_root() {
            return Err(NoSshServer::Root);
        }
        for program in ["sshd", "ssh-keygen", "shell"] {
            let path = options.tools.join(program);
            let found = fs::metadata(&path).and_then(|found| match found.permissions().mode() & 0o111 {
                0 => Err(io::ErrorKind::PermissionDenied.into()),
                _ => Ok(()),
            });
            found.map_err(|error| NoSshServer::Program { path, error })?;
        }
        Ok(Self::of(options))
    }

    fn of(options: SshOptions) -> Self {
        let inner = SshShared {
            options,
            files: OnceCell::new(),
            connections: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts a server for one channel, and waits for its first word.
    ///
    /// # Errors
    /// [`Reason::Overloaded`] beyond [`SSH_CONNECTIONS_MAX`], [`Reason::PortClosed`] when the agent ends, [`Reason::AppReset`] when
    /// it does not start, and then the log says why.
    ///
    /// Cancel safety: dropping it ends the server.
    pub async fn open(&self) -> Result<SshConnection, Reason> {
        if self.inner.stop.is_cancelled() {
            return Err(Reason::PortClosed);
        }
        let place = SshPermit::take(&self.inner).ok_or(Reason::Overloaded)?;
        self.start(place).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            warn!(%error, cause, "an SSH server does not start");
            Reason::AppReset
        })
    }

    async fn start(&self, place: SshPermit) -> Result<SshConnection, NotStarted> {
        let inner = &self.inner;
        let files = inner.files.get_or_try_init(|| prepare(inner.options.clone())).await?;
        let (near, far) = BlockingStream::pair().map_err(NotStarted::Spawn)?;
        let child = spawn(&inner.options.tools, files, far.into()).map_err(NotStarted::Spawn)?;
        near.set_nonblocking(true).map_err(NotStarted::Spawn)?;
        let stream = UnixStream::from_std(near).map_err(NotStarted::Spawn)?;
        let (open, has_started) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let attended = attend(child, open.clone(), inner.stop.clone(), has_started.clone());
        drop(inner.tasks.spawn(async move {
            let _place = place;
            attended.await;
        }));
        let connection = SshConnection { stream, _open: open.drop_guard() };
        let first = tokio::time::timeout(START_TIMEOUT, first_word(&connection.stream)).await;
        if !first.map_err(|_elapsed| NotStarted::Silent)?.map_err(NotStarted::Spawn)? {
            return Err(NotStarted::Ended);
        }
        has_started.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    /// Ends all servers and waits for them, for a bounded time.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(2 * END_TIMEOUT, self.inner.tasks.wait()).await.is_err() {
            debug!("SSH servers were left behind");
        }
    }
}

/// Place for one of [`SSH_CONNECTIONS_MAX`] connections.
#[derive(Debug)]
struct SshPermit(Arc<SshShared>);

impl SshPermit {
    fn take(inner: &Arc<SshShared>) -> Option<Self> {
        let place = Self(inner.clone());
        (inner.connections.fetch_add(1, Ordering::Relaxed) < SSH_CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for SshPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts one server.
fn spawn(tools: &Path, files: &ServerFiles, socket: OwnedFd) -> io::Result<Child> {
    let output = socket.try_clone()?;
    Command::new(tools.join("sshd"))
        .args(["-i", "-e", "-f"])
        .arg(path_of(&files.configuration))
        // What sessions get is in the configuration.
        .env_clear()
        .envs([("NSS_WRAPPER_PASSWD", path_of(&files.users)), ("NSS_WRAPPER_GROUP", path_of(&files.groups))])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::from(output))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Returns a path by which a process of the same user can open a file of this one.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// Waits until there is something to read, and leaves it there. False at the end of the connection.
async fn first_word(stream: &UnixStream) -> io::Result<bool> {
    loop {
        stream.readable().await?;
        let peeked = stream.try_io(Interest::READABLE, || {
            let mut byte = [0; 1];
            Ok(rustix::net::recv(stream, &mut byte[..], RecvFlags::PEEK)?.1)
        });
        match peeked {
            Ok(bytes) => return Ok(bytes > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Attends a server to its end. It ends by itself once its connection is gone, or is made to.
async fn attend(mut child: Child, open: CancellationToken, stop: CancellationToken, has_started: Arc<AtomicBool>) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let words = child.stderr.take();
    let mut ended = std::pin::pin!(async move {
        let said = match words {
            Some(words) => last_words(words).await,
            None => String::new(),
        };
        (said, child.wait().await)
    });
    let gone = async {
        open.cancelled().await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    let (said, status) = tokio::select! {
        ended = ended.as_mut() => ended,
        () = async { tokio::select! { () = gone => {}, () = stop.cancelled() => {} } } => {
            signal(group, Signal::TERM);
            match tokio::time::timeout(END_TIMEOUT, ended.as_mut()).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    signal(group, Signal::KILL);
                    ended.await
                }
            }
        }
    };
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    if has_started.load(Ordering::Relaxed) {
        debug!(status, said, "an SSH server ended");
    } else {
        warn!(status, said, "an SSH server ended before it began");
    }
}

/// Sends a signal to a server and its parts; each command of a session is in a group of its own, and hears of the end as over a
/// network.
fn signal(group: Option<Pid>, signal: Signal) {
    match group.map(|group| kill_process_group(group, signal)) {
        Some(Err(error)) if error != Errno::SRCH => debug!(%error, "an SSH server cannot be told to end"),
        Some(_) | None => {}
    }
}

/// Reads what a server says to its end, and returns what came last, as one line.
async fn last_words(mut words: ChildStderr) -> String {
    let (mut kept, mut chunk) = (Vec::new(), [0; 512]);
    while let Ok(bytes @ 1..) = words.read(&mut chunk).await {
        kept.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
        kept.drain(..kept.len().saturating_sub(WORDS_BYTES_MAX));
    }
    let text = String::from_utf8_lossy(&kept);
    text.split(|character: char| character.is_control()).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Makes the files of all servers, and the key if there is none yet.
async fn prepare(options: SshOptions) -> Result<ServerFiles, NotStarted> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.unwrap_or_else(|| PathBuf::from("/"));
    let keys = options.keys.unwrap_or_else(|| home.join(KEY_FOLDER));
    let shell = choose_shell(None, std::env::var_os("SHELL"));
    let host_key = keys.join(KEY_FILE);
    let parts = PARTS.map(|(option, name)| (option, options.tools.join(name)));
    let parts: Vec<_> = parts.into_iter().filter(|(_, program)| program.exists()).collect();
    let facts = SshFacts {
        tools: &options.tools,
        host_key: &host_key,
        home: &home,
        shell: &shell,
        user: (geteuid().as_raw(), getegid().as_raw()),
        parts: &parts,
    };
    let list = |path: &str| {
        let mut list = Vec::new();
        // A machine without a list has one of the server's own.
        let read = File::open(path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_end(&mut list));
        read.map(|_bytes| list).unwrap_or_default()
    };
    let files = ServerFiles {
        users: in_memory("users", &files::users(&facts, &list("/etc/passwd"))?)?,
        groups: in_memory("groups", &files::groups(&list("/etc/group")))?,
        configuration: in_memory("configuration", &files::configuration(&facts, environment())?)?,
    };
    make_key(&options.tools, &files, &keys).await?;
    Ok(files)
}

/// Returns the variables of sessions: this process's, without its settings and secrets.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !is_foreign(name, &[]))
}

/// Makes a file that only this process and those of its user can read, and that is gone with this process.
fn in_memory(name: &str, bytes: &[u8]) -> Result<OwnedFd, NotStarted> {
    let write = || {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR)?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        Ok(OwnedFd::from(file))
    };
    write().map_err(NotStarted::Files)
}

/// Makes the server's key, unless there is one: it stays with the volume, so that clients know the workspace again. Whatever a
/// volume's mount made of its mode, it is private again.
async fn make_key(tools: &Path, files: &ServerFiles, folder: &Path) -> Result<(), NotStarted> {
    let failed = |source| NotStarted::Key { folder: folder.to_owned(), source };
    let key = folder.join(KEY_FILE);
    if !key.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let new = folder.join(format!("{KEY_FILE}.{:016x}", rand::random::<u64>()));
        let made = Command::new(tools.join("ssh-keygen"))
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "workspace", "-f"])
            .arg(&new)
            .envs([("NSS_WRAPPER_PASSWD", path_of(&files.users)), ("NSS_WRAPPER_GROUP", path_of(&files.groups))])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(failed)?;
        if !made.status.success() {
            return Err(NotStarted::KeyProgram(String::from_utf8_lossy(&made.stderr).trim().to_owned()));
        }
        // The first one counts, if two agents make one.
        let linked = fs::hard_link(&new, &key);
        let public = PathBuf::from(format!("{}.pub", new.display()));
        for left in [&new, &public] {
            drop(fs::remove_file(left));
        }
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => info!(path = %key.display(), "a key of the SSH server was made"),
        }
    }
    fs::set_permissions(&key, Permissions::from_mode(0o600)).map_err(failed)
}

#[cfg(test)]
mod tests;
