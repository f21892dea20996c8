//! The server as processes: scripts play OpenSSH, which the suite `workspace-ssh` runs.

use tokio::io::AsyncWriteExt;

use super::*;

/// The longest that anything here may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// Plays a server: says its first word, and then repeats what it hears until the end.
const ECHO: &str = "printf SSH-2.0-x; exec cat";

/// Tools of which these lines are the server, and one that makes a key with a new text each time.
fn tools(sshd: &str) -> (tempfile::TempDir, SshServer) {
    let folder = tempfile::tempdir().expect("a folder");
    let keygen = "for last; do :; done; (umask 077; date +%N >\"$last\"); echo public >\"$last.pub\"";
    for (name, text) in [("sshd", sshd), ("ssh-keygen", keygen), ("shell", "exec \"$SHELL\" \"$@\"")] {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode");
    }
    let keys = Some(folder.path().join("keys"));
    let server = SshServer::of(SshOptions { tools: folder.path().to_owned(), keys });
    (folder, server)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

async fn read(connection: &mut SshConnection, bytes: usize) -> String {
    let mut text = vec![0; bytes];
    connection.stream.read_exact(&mut text).await.expect("bytes");
    String::from_utf8(text).expect("text")
}

#[tokio::test]
async fn each_channel_has_a_server_of_its_own_and_nothing_is_lost() {
    let (_folder, server) = tools(ECHO);
    let mut one = soon(server.open()).await.expect("a server");
    let mut two = soon(server.open()).await.expect("another");
    for (connection, word) in [(&mut one, "one"), (&mut two, "two")] {
        assert_eq!(soon(read(connection, 9)).await, "SSH-2.0-x");
        connection.stream.write_all(word.as_bytes()).await.expect("written");
        assert_eq!(soon(read(connection, 3)).await, word);
    }
    assert_eq!(server.inner.connections.load(Ordering::Relaxed), 2);
    // A server whose connection is gone ends, and its place is free.
    drop((one, two));
    soon(async {
        while server.inner.connections.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn server_that_does_not_start_is_told_at_once() {
    for broken in ["echo no such option >&2; exit 1", "exit 0", "exec /no/such/program"] {
        let (_folder, server) = tools(broken);
        assert_eq!(soon(server.open()).await.err(), Some(Reason::AppReset), "{broken}");
    }
    let (folder, server) = tools(ECHO);
    fs::remove_file(folder.path().join("sshd")).expect("removed");
    assert_eq!(soon(server.open()).await.err(), Some(Reason::AppReset));
    let options = SshOptions { tools: folder.path().to_owned(), keys: None };
    // As root there is no server, and as another user none that is missing.
    assert!(SshServer::new(options).is_err());
}

#[tokio::test]
async fn connections_are_bounded() {
    let (_folder, server) = tools(ECHO);
    let mut open = Vec::new();
    for _ in 0..SSH_CONNECTIONS_MAX {
        open.push(soon(server.open()).await.expect("a server"));
    }
    assert_eq!(soon(server.open()).await.err(), Some(Reason::Overloaded));
}

#[tokio::test]
async fn agent_that_ends_ends_its_servers_also_those_that_hear_nothing() {
    let (_folder, server) = tools("trap '' HUP; printf SSH-2.0-x; exec sleep 1000");
    let mut connection = soon(server.open()).await.expect("a server");
    assert_eq!(soon(read(&mut connection, 9)).await, "SSH-2.0-x");
    soon(server.close()).await;
    assert_eq!(connection.stream.read(&mut [0; 1]).await.expect("the end"), 0);
    assert_eq!(soon(server.open()).await.err(), Some(Reason::PortClosed));
}

#[tokio::test]
async fn server_that_goes_on_without_its_connection_is_ended() {
    let (_folder, server) = tools("printf SSH-2.0-x; trap '' TERM; while :; do sleep 0.1; done");
    drop(soon(server.open()).await.expect("a server"));
    server.inner.tasks.close();
    soon(server.inner.tasks.wait()).await;
}

#[tokio::test]
async fn key_is_made_once_and_is_private_again_whatever_its_volume_did() {
    let (folder, server) = tools(ECHO);
    drop(soon(server.open()).await.expect("a server"));
    let key = folder.path().join("keys").join(KEY_FILE);
    let made = fs::read(&key).expect("a key");
    fs::set_permissions(&key, Permissions::from_mode(0o660)).expect("a mode");
    let again = SshServer::of(server.inner.options.clone());
    drop(soon(again.open()).await.expect("a server"));
    assert_eq!(fs::read(&key).expect("a key"), made);
    assert_eq!(fs::metadata(&key).expect("a key").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path().join("keys")).expect("a folder").count(), 1, "nothing else is left");
}

#[tokio::test]
async fn server_sees_files_that_are_nowhere_else() {
    let show =
        "printf SSH-2.0-x; for last; do :; done; cat \"$last\" \"$NSS_WRAPPER_PASSWD\" \"$NSS_WRAPPER_GROUP\"; env";
    let (_folder, server) = tools(show);
    let mut connection = soon(server.open()).await.expect("a server");
    let mut text = String::new();
    soon(connection.stream.read_to_string(&mut text)).await.expect("text");
    for there in ["\nAuthenticationMethods none\n", "\nworkspace::", "root:x:0:", "CARGO_MANIFEST_DIR="] {
        assert!(text.contains(there), "{there}: {text}");
    }
    // What sessions get is in the configuration, and not in the environment of the server.
    assert_eq!(text.matches("CARGO_MANIFEST_DIR=").count(), 1, "{text}");
}
