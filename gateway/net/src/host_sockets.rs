//! Unix sockets by which the gateways of one host reach each other. They are in a folder that only the gateway's user may enter,
//! and each end checks the user of the other (unix(7), `SO_PEERCRED`).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net as blocking;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::geteuid;
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};

/// Scheme of the address of such a socket.
const SCHEME: &str = "unix:";

/// Extension of the files of sockets.
const EXTENSION: &str = "sock";

/// Permissions of the folder: its user's alone.
const FOLDER_MODE: u32 = 0o700;

/// Failure to make a socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The folder cannot be made or used.
    #[error("the folder {} cannot be used for sockets: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
    /// The socket cannot be made. Its path may be too long: a system takes about a hundred bytes.
    #[error("cannot listen on {}: {error}", path.display())]
    Bind {
        /// The socket's file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
}

/// The folder of the sockets of one host's gateways.
#[derive(Clone, Debug)]
pub struct HostSockets {
    folder: PathBuf,
}

/// A socket that listens.
#[derive(Debug)]
pub struct HostListener {
    socket: UnixListener,
    path: PathBuf,
    /// Whether the file goes with the socket. One whose name others take over is theirs by then.
    is_of_own_name: bool,
}

impl HostSockets {
    /// Makes the folder, and removes the sockets of processes that are gone.
    ///
    /// # Errors
    /// [`SocketError::Folder`].
    pub fn open(folder: &Path) -> Result<Self, SocketError> {
        let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
        // One that was there may have been made by hand.
        let private = made.and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE)));
        private
            .and_then(|()| remove_stale(folder))
            .map_err(|error| SocketError::Folder { path: folder.to_owned(), error })?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Listens on a socket with a name of its own, which begins with the number of this process.
    ///
    /// # Errors
    /// [`SocketError::Bind`].
    pub fn bind_own(&self) -> Result<HostListener, SocketError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = socket_path(&self.folder, &format!("{}-{count}", std::process::id()));
        let bound = remove_if_there(&path).and_then(|()| UnixListener::bind(&path));
        let socket = bound.map_err(|error| SocketError::Bind { path: path.clone(), error })?;
        Ok(HostListener { socket, path, is_of_own_name: true })
    }

    /// Counts the processes that listen on sockets of their own names.
    ///
    /// # Errors
    /// The system's, for the folder.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn living(&self) -> io::Result<usize> {
        let mut living = 0;
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if is_of_own_name(&path) && connect_path(&path).await.is_ok() {
                living += 1;
            }
        }
        Ok(living)
    }

    /// Listens on the socket with a name, in the place of the one that is there.
    ///
    /// # Errors
    /// [`SocketError::Bind`].
    pub fn take_over(&self, name: &str) -> Result<HostListener, SocketError> {
        let path = socket_path(&self.folder, name);
        let fresh = socket_path(&self.folder, &format!("{name}-{}", std::process::id()));
        let bound = remove_if_there(&fresh).and_then(|()| UnixListener::bind(&fresh)).and_then(|socket| {
            // In one step, so that the name always leads to a process.
            fs::rename(&fresh, &path)?;
            Ok(socket)
        });
        let socket = bound.map_err(|error| SocketError::Bind { path: path.clone(), error })?;
        Ok(HostListener { socket, path, is_of_own_name: false })
    }
}

impl HostListener {
    /// Returns the address at which others reach it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{SCHEME}{}", self.path.display())
    }

    /// Accepts a connection of the gateway's user; others are closed.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.socket.accept().await?;
            match check_user(&stream) {
                Ok(()) => return Ok(stream),
                Err(error) => tracing::warn!(socket = %self.path.display(), %error, "a connection was refused"),
            }
        }
    }
}

impl Drop for HostListener {
    fn drop(&mut self) {
        if self.is_of_own_name {
            // Another process removes it otherwise.
            fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}

/// Connects to the socket with a name in a folder.
///
/// # Errors
/// The system's, and `PermissionDenied` for a process of another user.
///
/// # Cancel safety
/// Safe.
pub async fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    connect_path(&socket_path(folder, name)).await
}

/// Connects to the socket at an address; `None` if it is not the address of a socket.
///
/// # Cancel safety
/// Safe.
pub async fn dial(url: &str) -> Option<io::Result<UnixStream>> {
    let path = url.strip_prefix(SCHEME)?;
    Some(connect_path(Path::new(path)).await)
}

async fn connect_path(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    check_user(&stream)?;
    Ok(stream)
}

/// Checks that the other end is of this process' user, or of the system's administrator.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    if user == geteuid().as_raw() || user == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it is of user {user}")))
}

fn socket_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{EXTENSION}"))
}

/// Returns whether a path is that of a socket which [`HostSockets::bind_own`] made.
fn is_of_own_name(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    path.extension().is_some_and(|extension| extension == EXTENSION)
        && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes sockets on which no process listens any more.
fn remove_stale(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_socket = path.extension().is_some_and(|extension| extension == EXTENSION);
        let is_stale = || {
            blocking::UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_socket && is_stale() {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn name_leads_to_the_process_that_took_it_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("sockets");
        let sockets = HostSockets::open(&folder).expect("a folder");
        assert_eq!(folder.metadata().expect("it is there").permissions().mode() & 0o777, FOLDER_MODE);
        let (first, own) = (sockets.take_over("replace").expect("bound"), sockets.bind_own().expect("bound"));
        let second = sockets.take_over("replace").expect("bound");
        drop(first);
        let (connected, accepted) = tokio::join!(connect(&folder, "replace"), second.accept());
        assert!(connected.is_ok() && accepted.is_ok());
        let url = own.url();
        let (dialed, accepted) = tokio::join!(dial(&url), own.accept());
        assert!(dialed.expect("a socket").is_ok() && accepted.is_ok());
        assert!(dial("https://127.0.0.1:1").await.is_none());
        assert_eq!(sockets.living().await.expect("a folder"), 1, "the other one is named for what it is for");
        drop(own);
        assert_eq!(sockets.living().await.expect("a folder"), 0);
        assert!(dial(&url).await.expect("a socket").is_err());
    }

    #[tokio::test]
    async fn socket_of_a_process_that_is_gone_is_removed_and_one_in_use_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let sockets = HostSockets::open(folder.path()).expect("a folder");
        let live = sockets.take_over("live").expect("bound");
        drop(sockets.take_over("gone").expect("bound"));
        fs::write(folder.path().join("note.txt"), "not a socket").expect("written");
        HostSockets::open(folder.path()).expect("a folder");
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
        left.sort();
        assert_eq!(left, ["live.sock", "note.txt"]);
        drop(live);
    }

    #[tokio::test]
    async fn path_that_is_too_long_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let sockets = HostSockets::open(&folder.path().join("x".repeat(120))).expect("a folder");
        let told = sockets.bind_own().expect_err("too long").to_string();
        assert!(told.contains("xxx") && told.contains("cannot listen on"), "{told}");
    }
}
