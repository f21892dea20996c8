//! What is in each image, and how it is run.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;

use crate::layout::Settings;
use crate::tree::{Owner, PROGRAM, ROOT, TEXT, Tree};

/// User of gateway and agent. It has no rights, and owns nothing but the gateway's folder.
const USER: Owner = Owner { user: 65532, group: 65532 };

/// Authorities that programs on Debian and most other systems find by themselves.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Columns of a certificate as text.
const PEM_COLUMNS: usize = 64;

/// An image that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// The gateway.
    Gateway,
    /// The agent of a machine, a CI job or a cluster.
    Agent,
    /// Agent, editor and SSH server, for pods of workspaces, on a base with a shell and git.
    Tools,
}

impl Kind {
    /// Returns the name of the image.
    pub(crate) fn image(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Agent => "workspace-agent",
            Self::Tools => "workspace-tools",
        }
    }

    /// Returns the package of the program in it.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Agent | Self::Tools => "workspace-agent",
        }
    }

    /// Returns the program in it.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Agent => "workspace-agent",
            // Pods have no use for a client of Kubernetes.
            Self::Tools => "workspace-agent-slim",
        }
    }

    /// Returns what the image is for, in one sentence.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Gateway => "Signs users in and routes their traffic through reverse tunnels into workspaces",
            Self::Agent => "Dials a gateway and forwards channels to loopback ports, or makes a cluster's workspaces",
            Self::Tools => "Agent, editor and SSH server that are placed beside the image of a workspace",
        }
    }

    /// Returns how it is run.
    pub(crate) fn settings(self) -> Settings {
        const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        match self {
            // In a container it listens on all addresses, since the published ports decide who reaches it.
            Self::Gateway => Settings {
                user: "65532:65532",
                entrypoint: &["/usr/local/bin/gateway"],
                command: &["serve", "--config", "/etc/gateway/gateway.toml"],
                environment: &[
                    PATH,
                    "GATEWAY_LISTEN__PUBLIC=0.0.0.0:8080",
                    "GATEWAY_LISTEN__AGENTS=0.0.0.0:8081",
                    "GATEWAY_LISTEN__ADMIN=0.0.0.0:8082",
                    "GATEWAY_STORE__URL=sqlite:///var/lib/gateway/gateway.db",
                ],
                ports: &[8080, 8081],
                folder: "/var/lib/gateway",
            },
            Self::Agent => Settings {
                user: "65532:65532",
                entrypoint: &["/usr/local/bin/workspace-agent"],
                command: &["--help"],
                environment: &[PATH],
                ports: &[],
                folder: "/",
            },
            Self::Tools => Settings {
                user: "5001:0",
                entrypoint: &[],
                command: &["/bin/sh", "/workspace-gateway/scripts/prepare.sh"],
                environment: &[PATH],
                ports: &[],
                folder: "/",
            },
        }
    }
}

/// Returns the root of the image of the gateway or the agent: one program, authorities, a user, and no shell.
///
/// # Errors
/// Names the file of authorities that cannot be read.
pub(crate) fn alone(kind: Kind, program: &Path, authorities: Option<&Path>) -> io::Result<Tree> {
    let mut tree = Tree::default();
    let home = if kind == Kind::Gateway { "/var/lib/gateway" } else { "/" };
    let passwd = format!("root:x:0:0:root:/:/sbin/nologin\ngateway:x:65532:65532::{home}:/sbin/nologin\n");
    tree.text("etc/passwd", TEXT, passwd);
    tree.text("etc/group", TEXT, "root:x:0:\ngateway:x:65532:\n");
    // A static program has these two ways to look names up, and no others.
    tree.text("etc/nsswitch.conf", TEXT, "hosts: files dns\n");
    let authorities = authorities.map_or_else(|| Ok(mozillas_authorities().into_bytes()), fs::read)?;
    tree.text(AUTHORITIES, TEXT, authorities);
    tree.copy(&format!("usr/local/bin/{}", kind.program()), PROGRAM, program);
    tree.folder("tmp", 0o1777, ROOT);
    if kind == Kind::Gateway {
        tree.text("etc/gateway/gateway.toml", TEXT, "");
        tree.folder("var/lib/gateway", 0o700, USER);
    }
    Ok(tree)
}

/// Returns Mozilla's list of authorities as text: that of the library, whose version is in Cargo.lock.
fn mozillas_authorities() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let digits = STANDARD.encode(certificate);
        let mut rest = digits.as_str();
        while let Some((line, behind)) = rest.split_at_checked(PEM_COLUMNS) {
            text.extend([line, "\n"]);
            rest = behind;
        }
        if !rest.is_empty() {
            text.extend([rest, "\n"]);
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Folder of the tools in their image.
const TOOLS: &str = "workspace-tools";

/// Returns the layers of the tools above their base: the editor, which seldom changes, then agent and SSH server.
///
/// # Errors
/// Names what cannot be read, or what is missing of `files`, the list of what has to be there.
pub(crate) fn tools(parts: &Tools<'_>, files: &str) -> io::Result<Vec<Tree>> {
    let mut below = Tree::default();
    below.copy_folder(&format!("{TOOLS}/lib/code-server"), parts.editor)?;
    // Relative, so that it leads to the same once it was copied elsewhere.
    below.link(&format!("{TOOLS}/bin/code-server"), "../lib/code-server/bin/code-server");
    let mut above = Tree::default();
    above.copy(&format!("{TOOLS}/bin/workspace-agent"), PROGRAM, parts.agent);
    above.copy_folder(&format!("{TOOLS}/ssh"), parts.ssh)?;
    above.text(&format!("{TOOLS}/files"), TEXT, files);
    for file in files.lines() {
        let path = format!("{TOOLS}/{file}");
        if !above.has_program(&path) && !below.has_program(&path) {
            return Err(io::Error::other(format!("the tools lack {file}, or it is not to be run")));
        }
    }
    Ok(vec![below, above])
}

/// Parts of the tools.
#[derive(Debug)]
pub(crate) struct Tools<'t> {
    pub(crate) agent: &'t Path,
    /// Folder of an unpacked code-server.
    pub(crate) editor: &'t Path,
    /// Folder that `deploy/images/ssh-tools.sh` has filled.
    pub(crate) ssh: &'t Path,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn repository(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        fs::read_to_string(root.join(path)).unwrap()
    }

    #[test]
    fn authorities_are_certificates_as_text() {
        let text = mozillas_authorities();
        let count = webpki_root_certs::TLS_SERVER_ROOT_CERTS.len();
        assert!(count > 100, "{count}");
        assert_eq!(text.matches("-----BEGIN CERTIFICATE-----\n").count(), count);
        assert!(text.lines().all(|line| line.len() <= PEM_COLUMNS && !line.is_empty()));
        let first = text.split("-----").nth(2).unwrap().replace('\n', "");
        assert_eq!(STANDARD.decode(first).unwrap(), webpki_root_certs::TLS_SERVER_ROOT_CERTS[0].as_ref());
    }

    #[test]
    fn variables_of_the_gateway_are_keys_of_its_configuration() {
        let reference = repository("docs/reference/configuration.md");
        for variable in Kind::Gateway.settings().environment.iter().filter(|one| one.starts_with("GATEWAY_")) {
            let (name, _) = variable.split_once('=').unwrap();
            let name = name["GATEWAY_".len()..].to_lowercase();
            let (section, key) = name.split_once("__").unwrap();
            let (_, behind) = reference.split_once(&format!("\n## `[{section}]`\n")).unwrap();
            let table = behind.split("\n## ").next().unwrap();
            assert!(table.contains(&format!("\n| `{key}` |")), "{variable}");
        }
    }

    #[test]
    fn agents_image_is_what_the_manifest_of_the_cluster_agent_runs() {
        let manifest = repository("deploy/cluster-agent.yaml");
        assert!(manifest.contains(&format!("image: {}\n", Kind::Agent.image())), "{manifest}");
        // It names no command, so it is the entry point that gets its arguments.
        assert!(manifest.contains("args: [cluster,") && !manifest.contains("command:"), "{manifest}");
        let user = Kind::Agent.settings().user;
        let (user, group) = user.split_once(':').unwrap();
        assert!(manifest.contains(&format!("runAsUser: {user}\n")), "{manifest}");
        assert!(manifest.contains(&format!("runAsGroup: {group}\n")), "{manifest}");
    }

    #[test]
    fn tools_lack_nothing_of_their_list() {
        let folder = tempfile::tempdir().unwrap();
        let files = repository("deploy/images/tools.files");
        for file in files.lines().filter(|file| !file.starts_with("bin/")) {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let [editor, ssh] = ["lib/code-server", "ssh"].map(|part| folder.path().join(part));
        let parts = Tools { agent: &editor.join("lib/node"), editor: &editor, ssh: &ssh };
        assert_eq!(tools(&parts, &files).unwrap().len(), 2);
        fs::set_permissions(ssh.join("sshd"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(tools(&parts, &files).unwrap_err().to_string().contains("ssh/sshd"));
    }
}
