//! Named ports of a new workspace: the devfile's, and those that the request names.

use std::collections::BTreeMap;

use super::WorkspaceError;
use gateway_types::{NAMED_PORTS_MAX, NamedPort, Port};
use workspace_spec::devfile::Devfile;

/// Puts the ports of a devfile and of a request together. What the request says of a port counts before the devfile's endpoint; the
/// devfile's proposal stays.
///
/// # Errors
/// [`WorkspaceError::Ports`] for a port that the devfile closes, one of the product's own, one that is named twice, or too many.
pub(super) fn name(devfile: &Devfile, asked: &[NamedPort]) -> Result<Vec<NamedPort>, WorkspaceError> {
    let mut named: BTreeMap<Port, NamedPort> =
        devfile.named_ports().into_iter().map(|named| (named.port, named)).collect();
    check(asked)?;
    for one in asked {
        if devfile.closes(one.port) {
            return Err(WorkspaceError::Ports(format!(
                "port {} is for the workspace's own pod alone: its endpoint in the devfile has `exposure: none`",
                one.port
            )));
        }
        let before = named.remove(&one.port);
        let name = one.name.clone().or_else(|| before.as_ref().and_then(|before| before.name.clone()));
        let proposed = before.and_then(|before| before.proposed);
        named.insert(one.port, NamedPort { name, proposed, ..one.clone() });
    }
    bounded(named.into_values().collect())
}

/// Checks the ports of a request for a workspace of any kind.
///
/// # Errors
/// As [`name`].
pub fn check(asked: &[NamedPort]) -> Result<(), WorkspaceError> {
    for (number, one) in asked.iter().enumerate() {
        if let Some(own) = one.port.label() {
            return Err(WorkspaceError::Ports(format!("port {} is the one of the {own}", one.port)));
        }
        if asked.iter().take(number).any(|before| before.port == one.port) {
            return Err(WorkspaceError::Ports(format!("port {} is named twice", one.port)));
        }
    }
    bounded(asked).map(drop)
}

fn bounded<T: AsRef<[NamedPort]>>(named: T) -> Result<T, WorkspaceError> {
    match named.as_ref().len() {
        0..=NAMED_PORTS_MAX => Ok(named),
        _ => Err(WorkspaceError::Ports(format!("at most {NAMED_PORTS_MAX} ports can be named"))),
    }
}

#[cfg(test)]
mod tests {
    use gateway_types::{Audience, PortHost, PortProtocol};

    use super::*;

    const DEVFILE: &str = "schemaVersion: 2.2.0\ncomponents:\n- name: main\n  attributes: {gateway/inject-editor: true}\n  container:\n    \
        image: a\n    endpoints:\n    - {name: web, targetPort: 3000, exposure: public}\n    \
        - {name: db, targetPort: 5432, exposure: none}\n    \
        - {name: admin, targetPort: 8443, protocol: https, attributes: {gateway/host: localhost}}\n";

    fn port(number: u16) -> NamedPort {
        NamedPort::new(Port::new(number).unwrap())
    }

    #[test]
    fn request_adds_ports_and_says_more_of_the_devfiles_own() {
        let devfile = workspace_spec::devfile::parse(DEVFILE.as_bytes()).unwrap();
        let asked = [NamedPort { protocol: PortProtocol::Http2, ..port(3000) }, port(9000)];
        let named = name(&devfile, &asked).unwrap();
        let web = Some("web".parse().unwrap());
        let admin = NamedPort {
            name: Some("admin".parse().unwrap()),
            protocol: PortProtocol::Https,
            host: PortHost::Localhost,
            ..port(8443)
        };
        let first =
            NamedPort { name: web, protocol: PortProtocol::Http2, proposed: Some(Audience::Public), ..port(3000) };
        assert_eq!(named, [first, admin, port(9000)]);
    }

    #[test]
    fn what_cannot_be_named_is_refused_with_its_reason() {
        let devfile = workspace_spec::devfile::parse(DEVFILE.as_bytes()).unwrap();
        let many: Vec<_> = (1..=200).map(port).collect();
        for (asked, wrong) in [
            (vec![port(5432)], "exposure: none"),
            (vec![port(60_002)], "terminal"),
            (vec![port(80), port(80)], "twice"),
            (many, "at most"),
        ] {
            let told = name(&devfile, &asked).unwrap_err().to_string();
            assert!(told.contains(wrong), "{told}");
        }
    }
}
