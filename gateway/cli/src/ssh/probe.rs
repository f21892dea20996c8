//! Whether the agent of a workspace offers SSH.

use std::str::FromStr;

use serde::Deserialize;

use super::super::client::GatewayClient;
use super::super::credentials::SignedIn;
use super::super::forward::parse_workspace;
use gateway_types::{BadPort, BadWorkspaceName, Port, SSH_PORT, WorkspaceName};

/// A workspace, and the port of it that ssh would take by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The workspace.
    pub workspace: WorkspaceName,
    /// The port; `None` if none is known.
    pub port: Option<Port>,
}

/// The text is not `NAME[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProbe {
    /// No name of a workspace.
    #[error(transparent)]
    Name(#[from] BadWorkspaceName),
    /// No port.
    #[error(transparent)]
    Port(#[from] BadPort),
}

impl FromStr for Probe {
    type Err = BadProbe;

    fn from_str(text: &str) -> Result<Self, BadProbe> {
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.parse()?)),
            None => (text, None),
        };
        Ok(Self { workspace: parse_workspace(name)?, port })
    }
}

impl Probe {
    /// Returns whether the agent's server could be meant: another port than that of every SSH server was chosen by the user.
    fn is_open(&self) -> bool {
        self.port.is_none_or(|port| port.get() == 22 || port.is_ssh())
    }
}

/// What counts here of a workspace.
#[derive(Deserialize)]
struct Probed {
    agent: Option<ProbedAgent>,
}

#[derive(Deserialize)]
struct ProbedAgent {
    #[serde(default)]
    listening: Option<Vec<ProbedPort>>,
}

#[derive(Deserialize)]
struct ProbedPort {
    port: u16,
}

impl Probed {
    fn offers_ssh(&self) -> bool {
        let listening = self.agent.as_ref().and_then(|agent| agent.listening.as_ref());
        listening.is_some_and(|ports| ports.iter().any(|row| row.port == SSH_PORT))
    }
}

/// Asks the gateway. A gateway that does not answer has none: what is wrong is told by the connection itself, on the usual port.
///
/// Cancel safety: safe.
pub(super) async fn has_server(signed_in: &SignedIn, probe: &Probe) -> bool {
    if !probe.is_open() {
        return false;
    }
    let SignedIn { gateway, token, ca_file } = signed_in;
    let Ok(client) = GatewayClient::new(gateway, Some(token), ca_file.as_deref()) else { return false };
    let asked = client.get::<Probed>(&format!("/workspaces/{}", probe.workspace)).await;
    asked.is_ok_and(|probed| probed.offers_ssh())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_read_as_ssh_writes_them() {
        let read = |text: &str| text.parse::<Probe>().map(|probe| (probe.workspace.to_string(), probe.is_open()));
        for (text, is_open) in [
            ("my-app", true),
            ("my-app.gateway:22", true),
            ("my-app.gateway:60022", true),
            ("my-app.gateway:2222", false),
        ] {
            assert_eq!(read(text), Ok(("my-app".to_owned(), is_open)), "{text}");
        }
        for text in ["", ":22", "my-app:", "my-app:0", "-x:22", "a.b:22"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn server_is_there_if_the_agent_lists_its_port() {
        let offers = |text: &str| serde_json::from_str::<Probed>(text).expect("a workspace").offers_ssh();
        assert!(offers(r#"{"agent":{"listening":[{"port":22,"url":""},{"port":60022,"label":"ssh"}]},"name":"a"}"#));
        for without in
            [r#"{"agent":null}"#, r#"{"agent":{"listening":null}}"#, r#"{"agent":{"listening":[{"port":22}]}}"#]
        {
            assert!(!offers(without), "{without}");
        }
    }
}
