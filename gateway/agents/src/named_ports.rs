//! What the gateway knows of an agent's ports beside what the agent says: from the devfile, or from the request for the workspace.

use tunnel_proto::hello::{AppProtocol, Hello, HostMode, Port as PortSettings};
use tunnel_proto::limit::PORTS_MAX;

use gateway_types::{NamedPort, PortHost, PortProtocol};

/// Adds named ports to an agent's Hello: what a person told the agent counts before, setting by setting. It exposes nothing.
pub(crate) fn add(hello: &mut Hello, named: &[NamedPort]) {
    for named in named {
        let known = settings(named);
        let is_it = |said: &&mut PortSettings| said.number == known.number;
        if let Some(said) = hello.ports.iter_mut().find(is_it).or_else(|| hello.apps.iter_mut().find(is_it)) {
            fill(said, known);
        } else if hello.apps.len() < PORTS_MAX {
            hello.apps.push(known);
        }
    }
}

fn fill(said: &mut PortSettings, known: PortSettings) {
    if said.protocol == AppProtocol::default() && !said.tls {
        (said.protocol, said.tls) = (known.protocol, known.tls);
    }
    if said.host == HostMode::Auto {
        said.host = known.host;
    }
}

fn settings(named: &NamedPort) -> PortSettings {
    let (protocol, tls) = match named.protocol {
        PortProtocol::Http1 | PortProtocol::Tcp => (AppProtocol::Http1, false),
        PortProtocol::Http2 => (AppProtocol::Http2, false),
        PortProtocol::Https => (AppProtocol::Http1, true),
        PortProtocol::Http2Tls => (AppProtocol::Http2, true),
    };
    let host = match named.host {
        PortHost::Auto => HostMode::Auto,
        PortHost::Original => HostMode::Original,
        PortHost::Localhost => HostMode::Localhost,
    };
    PortSettings { number: named.port.get(), protocol, host, tls }
}

#[cfg(test)]
mod tests {
    use gateway_types::Port;
    use tunnel_proto::hello::Role;
    use tunnel_proto::version;

    use super::*;

    fn hello() -> Hello {
        Hello {
            versions: version::OURS,
            features: Vec::new(),
            agent_version: String::new(),
            role: Role::Workspace,
            instance: 1,
            resume: None,
            open_credit_bytes: 0,
            ports: Vec::new(),
            default_port: None,
            join: None,
            lanes: 1,
            apps: Vec::new(),
            host: HostMode::Auto,
            relay: None,
            seal: bytes::Bytes::new(),
        }
    }

    #[test]
    fn what_the_agent_says_counts_before_what_the_gateway_knows() {
        let said = |number, protocol, host, tls| PortSettings { number, protocol, host, tls };
        let named = |number, protocol, host| NamedPort { protocol, host, ..NamedPort::new(Port::new(number).unwrap()) };
        let mut hello = Hello {
            ports: vec![
                said(1, AppProtocol::Http1, HostMode::Auto, false),
                said(2, AppProtocol::Http2, HostMode::Auto, false),
            ],
            apps: vec![said(3, AppProtocol::Http1, HostMode::Original, false)],
            ..hello()
        };
        let all: Vec<_> = (1..=4).map(|number| named(number, PortProtocol::Https, PortHost::Localhost)).collect();
        add(&mut hello, &all);
        let (tls, local) = (AppProtocol::Http1, HostMode::Localhost);
        assert_eq!(hello.ports, [said(1, tls, local, true), said(2, AppProtocol::Http2, local, false)]);
        assert_eq!(hello.apps, [said(3, tls, HostMode::Original, true), said(4, tls, local, true)]);
    }

    #[test]
    fn no_number_of_named_ports_makes_a_hello_larger_than_one_may_be() {
        let mut hello = hello();
        add(&mut hello, &(1..=1000).map(|number| NamedPort::new(Port::new(number).unwrap())).collect::<Vec<_>>());
        assert_eq!(hello.apps.len(), PORTS_MAX);
    }
}
