//! OpenSSH's remote forward.

use std::net::SocketAddr;

use futures_util::FutureExt as _;

use super::crew::Crew;
use super::nginx::{NGINX_PROGRAM, front};
use super::program::{Invocation, PeerProgram, Programs, free_address, locate, wait_for_listener};
use super::{Peer, RoutingKind};

const SSHD: PeerProgram = PeerProgram { name: "sshd", version: "", source: "Debian package openssh-server" };
const SSH_CLIENT: PeerProgram = PeerProgram { name: "ssh", version: "-V", source: "Debian package openssh-client" };
const KEYGEN: PeerProgram = PeerProgram { name: "ssh-keygen", version: "", source: "Debian package openssh-client" };

/// `ssh -R`.
pub(super) const SSH: Peer = Peer {
    name: "ssh-R",
    kind: RoutingKind::Port,
    encrypted: true,
    programs: Programs(&[SSHD, SSH_CLIENT, KEYGEN]),
    about: "OpenSSH remote forward, its default cipher",
    raise: |crew| forward(crew).boxed(),
};

/// nginx in front of `ssh -R`.
pub(super) const NGINX_SSH: Peer = Peer {
    name: "nginx+ssh-R",
    kind: RoutingKind::Host,
    encrypted: true,
    programs: Programs(&[NGINX_PROGRAM, SSHD, SSH_CLIENT, KEYGEN]),
    about: "nginx routing by host in front of ssh -R",
    raise: |crew| {
        async {
            let port = forward(crew).await?;
            front(crew, port).await
        }
        .boxed()
    },
};

async fn forward(crew: &mut Crew) -> anyhow::Result<SocketAddr> {
    let directory = crew.directory().to_path_buf();
    for name in ["host-key", "user-key"] {
        let keygen = Invocation::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", name]);
        keygen.output(&directory).await?;
    }
    let server = free_address()?;
    let folder = directory.display();
    let text = format!(
        "ListenAddress {}\nPort {}\nHostKey {folder}/host-key\nAuthorizedKeysFile {folder}/user-key.pub\n\
         StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nAllowTcpForwarding yes\nGatewayPorts no\n\
         MaxStartups 4000\nPidFile none\nPrintMotd no\nLogLevel ERROR\n",
        server.ip(),
        server.port()
    );
    let file = crew.write("sshd_config", &text)?;
    make_separation_folder(crew).await;
    crew.server(Invocation::new("sshd").arg("-D").arg("-e").arg("-f").arg(file))?;
    wait_for_listener(server).await?;
    let far = crew.over_link(server)?;
    let listen = free_address()?;
    let user = Invocation::new("id").arg("-un").output(&directory).await?;
    let mut client = Invocation::new("ssh").args(["-F", "none", "-N", "-i", "user-key"]);
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=known",
        "ExitOnForwardFailure=yes",
        "Compression=no",
    ] {
        client = client.arg("-o").arg(option);
    }
    let client = client
        .arg("-R")
        .arg(format!("{listen}:{}", crew.backend))
        .arg("-p")
        .arg(far.port().to_string())
        .arg(format!("{}@{}", user.trim(), far.ip()));
    crew.agent(client)?;
    wait_for_listener(listen).await?;
    Ok(listen)
}

/// Makes the folder sshd wants for its unprivileged half: a package makes it when its service starts, which may never
/// have happened here.
async fn make_separation_folder(crew: &Crew) {
    if locate("sshd").is_none() {
        return;
    }
    let test = Invocation::new("sshd").arg("-t").arg("-f").arg(crew.directory().join("sshd_config"));
    let Err(error) = test.output(crew.directory()).await else { return };
    let words = error.to_string();
    if let Some((_, folder)) = words.rsplit_once("separation directory: ")
        && let Err(error) = std::fs::create_dir_all(folder.trim())
    {
        tracing::debug!(%error, folder, "the folder that sshd wants could not be made");
    }
}
