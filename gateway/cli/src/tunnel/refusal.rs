//! Texts for people when a gateway does not open a stream, or ends one: its code in words. Pure.

use std::fmt;

use tunnel_link::raw::code;

use gateway_types::{Port, WorkspaceName};

/// A port of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortTarget {
    /// The workspace.
    pub(crate) workspace: WorkspaceName,
    /// The port.
    pub(crate) port: Port,
}

impl fmt::Display for PortTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "port {} of {}", self.port, self.workspace)
    }
}

/// A sentence that ends with the gateway's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TunnelRefusal {
    text: String,
    /// The gateway's code; empty where it gave none.
    code: String,
}

impl fmt::Display for TunnelRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl TunnelRefusal {
    /// Tells whether the gateway gave this code.
    pub(crate) fn is_of(&self, code: &str) -> bool {
        self.code == code
    }

    /// Words an answer to the request for a stream. `detail` is the gateway's own sentence, for codes that mean nothing
    /// special here; `name` is that of the limit or rule behind it.
    pub(crate) fn of_answer(target: &PortTarget, code: &str, detail: &str, name: Option<&str>) -> Self {
        let workspace = &target.workspace;
        let said = match code {
            "no_such_host" => format!("there is no workspace {workspace}, or it is not yours"),
            "sign_in_required" => "the gateway does not accept the token: sign in again with gateway login".to_owned(),
            "port_not_allowed" => format!("you may not reach {target}"),
            "workspace_stopped" => format!("{workspace} is not running"),
            "agent_absent" => format!("{workspace} has no connection to the gateway now"),
            "port_closed" if name == Some("ssh_not_started") => {
                format!("the SSH server of {workspace} does not start: the agent's log says why")
            }
            "port_closed" => format!("nothing listens on {target}"),
            "open_timeout" => format!("{workspace} did not open {target} in time"),
            "session_lost" => format!("{workspace} lost its connection to the gateway"),
            "draining" => "the gateway is restarting: try again".to_owned(),
            "overloaded" => "a limit of the gateway is reached: try again in a moment".to_owned(),
            _ if detail.is_empty() => format!("the gateway refuses {target}"),
            _ => plain(detail.trim_end_matches('.')),
        };
        Self::with_code(&said, code, name)
    }

    /// Words the end of a stream that was open.
    pub(crate) fn of_end(target: &PortTarget, close: u16, reason: &str) -> Self {
        let said = match (close, reason) {
            (code::RESET, _) => format!("{target} reset the connection"),
            (code::DRAINING, _) => "the gateway is restarting: connect again".to_owned(),
            (code::ACCESS_ENDED, _) => format!("access to {target} has ended"),
            (code::LOST, "session_lost") => format!("{} lost its connection to the gateway", target.workspace),
            (code::LOST, "silent") => "the gateway heard nothing from here for too long".to_owned(),
            _ => format!("the gateway closed the connection to {target}"),
        };
        if reason.is_empty() {
            return Self { text: format!("{said} (close code {close})"), code: String::new() };
        }
        Self::with_code(&said, reason, None)
    }

    fn with_code(said: &str, code: &str, name: Option<&str>) -> Self {
        let code = plain(code);
        let text = match name {
            Some(name) => format!("{said} ({code}: {})", plain(name)),
            None => format!("{said} ({code})"),
        };
        Self { text, code }
    }
}

/// Cuts a text from outside: it must not steer a terminal, nor fill it.
fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> PortTarget {
        PortTarget { workspace: "my-app".parse().expect("a name"), port: Port::new(22).expect("a port") }
    }

    #[track_caller]
    fn check(code: &str, expected: &str) {
        assert_eq!(TunnelRefusal::of_answer(&target(), code, "A sentence.", None).to_string(), expected);
    }

    #[test]
    fn codes_are_told_in_words_with_the_code_behind_them() {
        check("no_such_host", "there is no workspace my-app, or it is not yours (no_such_host)");
        check("port_not_allowed", "you may not reach port 22 of my-app (port_not_allowed)");
        check("agent_absent", "my-app has no connection to the gateway now (agent_absent)");
        check("port_closed", "nothing listens on port 22 of my-app (port_closed)");
        check("something_new", "A sentence (something_new)");
        let ssh = TunnelRefusal::of_answer(&target(), "port_closed", "", Some("ssh_not_started"));
        assert!(ssh.to_string().starts_with("the SSH server of my-app does not start: "), "{ssh}");
        let limit = TunnelRefusal::of_answer(&target(), "overloaded", "", Some("limits.requests_per_workspace"));
        assert!(limit.to_string().ends_with("(overloaded: limits.requests_per_workspace)"), "{limit}");
    }

    #[test]
    fn end_of_a_stream_is_told_in_words() {
        let told = |close, reason| TunnelRefusal::of_end(&target(), close, reason).to_string();
        assert_eq!(told(code::RESET, "app_reset"), "port 22 of my-app reset the connection (app_reset)");
        assert_eq!(told(code::ACCESS_ENDED, "no_such_host"), "access to port 22 of my-app has ended (no_such_host)");
        assert_eq!(told(code::LOST, "session_lost"), "my-app lost its connection to the gateway (session_lost)");
        assert_eq!(told(1011, ""), "the gateway closed the connection to port 22 of my-app (close code 1011)");
    }

    #[test]
    fn what_another_says_does_not_steer_the_terminal() {
        let text = TunnelRefusal::of_answer(&target(), "x\u{1b}[2J", &"long \u{7}".repeat(500), Some("\n")).to_string();
        assert!(text.len() < 500 && !text.contains(|character: char| character.is_control()), "{text}");
    }
}
