//! The ports of this machine on which something listens, as the kernel's tables have them (proc_net_tcp, proc(5)), and the
//! words in which they are announced.
//!
//! Pure: [`crate::ports::listening`] reads the tables.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use tunnel_proto::inspector::INSPECTOR_PORT;
use tunnel_proto::ssh::SSH_PORT;
use tunnel_proto::terminal::{EDITOR_PORT, TERMINAL_PORT};

/// State of a socket that listens (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const LISTEN: &str = "0A";

/// Most ports in one announcement: a person reads no more of them, so the rest is only counted.
const SHOWN_MAX: usize = 20;

/// Reads `/proc/net/tcp` or `/proc/net/tcp6`: the ports with a listener that a connection to 127.0.0.1 or ::1 reaches. Lines
/// of another form are left out.
pub fn listeners(table: &str) -> impl Iterator<Item = u16> + '_ {
    listening_sockets(table).map(|(port, _inode)| port)
}

/// The same, each with the number of its socket; 0 for a line that ends before it.
pub(crate) fn listening_sockets(table: &str) -> impl Iterator<Item = (u16, u64)> + '_ {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        // Behind queues, timer, retransmissions, user and timeout.
        let inode = fields.nth(5).and_then(|inode| inode.parse().ok()).unwrap_or_default();
        if state != LISTEN {
            return None;
        }
        let (address, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok().filter(|port| *port > 0)?;
        is_reached(address)?.then_some((port, inode))
    })
}

/// Returns whether a listener on this address takes connections to 127.0.0.1 or ::1. Each group of eight digits is a word in
/// the machine's own byte order.
fn is_reached(address: &str) -> Option<bool> {
    let mut bytes = [0; 16];
    if !address.is_ascii() || !matches!(address.len(), 8 | 32) {
        return None;
    }
    for (word, place) in address.as_bytes().chunks(8).zip(bytes.chunks_mut(4)) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let is_loopback = |address: Ipv4Addr| address.is_unspecified() || address == Ipv4Addr::LOCALHOST;
    if address.len() == 8 {
        let [a, b, c, d, ..] = bytes;
        return Some(is_loopback(Ipv4Addr::new(a, b, c, d)));
    }
    let address = Ipv6Addr::from(bytes);
    let is_mapped = address.to_ipv4_mapped().is_some_and(is_loopback);
    Some(is_mapped || address.is_unspecified() || address == Ipv6Addr::LOCALHOST)
}

/// The ports that were announced so far.
#[derive(Clone, Debug, Default)]
pub struct AnnouncedPorts {
    ports: BTreeSet<u16>,
}

impl AnnouncedPorts {
    /// Returns the ports that were not there at the last call.
    pub fn appeared(&mut self, ports: &[u16]) -> Vec<u16> {
        let now: BTreeSet<u16> = ports.iter().copied().collect();
        let appeared = now.difference(&self.ports).copied().collect();
        self.ports = now;
        appeared
    }
}

/// Address of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Its name.
    pub workspace: String,
    /// Its URL as the gateway says it; empty from a gateway that does not.
    pub url: String,
}

impl LocalAddress {
    /// Writes the greeting for the owner once the workspace is connected: its address, the ports that listen, what to
    /// do next. `ports` is `None` if the machine does not tell.
    #[must_use]
    pub fn greeting(&self, ports: Option<&[u16]>) -> String {
        let Self { workspace, url } = self;
        let mut text = match url.is_empty() {
            true => format!("{workspace} is connected.\n"),
            false => format!("{workspace} is connected: {url}\n"),
        };
        match ports {
            None => {}
            Some([]) => text.push_str("Nothing listens on a port yet.\n"),
            Some(ports) => {
                text.push_str("These ports listen:\n");
                text.push_str(&self.list(ports));
            }
        }
        let pattern = self.url_of("PORT").unwrap_or_else(|| "its address with PORT- before it".to_owned());
        text.push_str(&format!("Start an app on any port, and open {pattern} in a browser.\n"));
        text.push_str(&format!("To let others in: gateway workspace share {workspace} PORT --with user:NAME\n"));
        text
    }

    /// Writes a line for each of some ports.
    #[must_use]
    pub fn list(&self, ports: &[u16]) -> String {
        let mut text = String::new();
        for port in ports.iter().take(SHOWN_MAX) {
            let address = self.url_of(&port.to_string()).unwrap_or_default();
            let line =
                format!("  {port:<5}  {address}{}", label(*port).map(|label| format!("  {label}")).unwrap_or_default());
            text.push_str(line.trim_end());
            text.push('\n');
        }
        if let more @ 1.. = ports.len().saturating_sub(SHOWN_MAX) {
            text.push_str(&format!("  and {more} more\n"));
        }
        text
    }

    fn url_of(&self, port: &str) -> Option<String> {
        let (scheme, rest) = self.url.split_once("://")?;
        Some(format!("{scheme}://{port}-{rest}"))
    }
}

/// Returns the name of the service behind a port of this product's own.
fn label(port: u16) -> Option<&'static str> {
    match port {
        EDITOR_PORT => Some("editor"),
        TERMINAL_PORT => Some("terminal"),
        INSPECTOR_PORT => Some("requests"),
        SSH_PORT => Some("gateway ssh"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an address as this machine's kernel does.
    fn word(bytes: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(bytes))
    }

    fn four(address: [u8; 4], port: u16, state: &str) -> String {
        format!(
            "   0: {}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0 0 23 1 f 100 0\n",
            word(address)
        )
    }

    fn six(address: Ipv6Addr, port: u16) -> String {
        let words: String = address.octets().chunks(4).map(|part| word(part.try_into().unwrap())).collect();
        format!("   1: {words}:{port:04X} {:032}:0000 0A 00000000:00000000 00:00000000 00000000  0 0 24 1 f\n", 0)
    }

    fn read(lines: &[String]) -> Vec<u16> {
        let table = format!("  sl  local_address rem_address   st tx_queue\n{}", lines.concat());
        listeners(&table).collect()
    }

    #[test]
    fn listeners_on_loopback_and_on_any_address_are_found() {
        let lines = [
            four([0, 0, 0, 0], 8080, "0A"),
            four([127, 0, 0, 1], 5173, "0A"),
            six(Ipv6Addr::UNSPECIFIED, 8888),
            six(Ipv6Addr::LOCALHOST, 3000),
            six(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 9229),
        ];
        assert_eq!(read(&lines), [8080, 5173, 8888, 3000, 9229]);
    }

    #[test]
    fn what_a_channel_would_not_reach_is_left_out() {
        let lines = [
            // The name server of systemd, another address of the machine, a connection, one that ends.
            four([127, 0, 0, 53], 53, "0A"),
            four([10, 0, 0, 7], 80, "0A"),
            four([127, 0, 0, 1], 22, "01"),
            four([0, 0, 0, 0], 23, "06"),
            four([0, 0, 0, 0], 0, "0A"),
            six("fe80::1".parse().unwrap(), 81),
            six("::ffff:10.0.0.7".parse().unwrap(), 82),
        ];
        assert_eq!(read(&lines), [0; 0]);
    }

    #[test]
    fn any_text_is_read_without_an_end_of_the_process() {
        for table in
            ["", "\n\n", "a\nb c d", "h\n 0: zz:1 0 0A", "h\n 0: 0100007F:FFFFF 0 0A", "h\n 0: 0100007é:1F90 0 0A"]
        {
            assert_eq!(listeners(table).count(), 0, "{table:?}");
        }
    }

    #[test]
    fn person_is_told_of_each_port_when_it_appears_and_again_when_it_comes_back() {
        let mut announced = AnnouncedPorts::default();
        assert_eq!(announced.appeared(&[22, 80]), [22, 80]);
        assert_eq!(announced.appeared(&[22, 80, 3000]), [3000]);
        assert_eq!(announced.appeared(&[22]), [0; 0]);
        assert_eq!(announced.appeared(&[22, 80]), [80]);
    }

    #[test]
    fn greeting_has_the_address_the_ports_and_what_to_do() {
        let place = LocalAddress { workspace: "my-app".into(), url: "https://my-app.ws.test:8443/".into() };
        assert_eq!(
            place.greeting(Some(&[3000, 60_001, 60_002])),
            "my-app is connected: https://my-app.ws.test:8443/\n\
             These ports listen:\n  \
               3000   https://3000-my-app.ws.test:8443/\n  \
               60001  https://60001-my-app.ws.test:8443/  editor\n  \
               60002  https://60002-my-app.ws.test:8443/  terminal\n\
             Start an app on any port, and open https://PORT-my-app.ws.test:8443/ in a browser.\n\
             To let others in: gateway workspace share my-app PORT --with user:NAME\n"
        );
        assert!(place.greeting(Some(&[])).contains("Nothing listens on a port yet."));
        let many: Vec<u16> = (1..).take(SHOWN_MAX + 3).collect();
        assert!(place.greeting(Some(&many)).contains("  and 3 more\n"));
    }

    #[test]
    fn greeting_does_without_what_is_not_known() {
        let place = LocalAddress { workspace: "my-app".into(), url: String::new() };
        let text = place.greeting(None);
        assert!(text.starts_with("my-app is connected.\nStart an app on any port"), "{text}");
        assert_eq!(place.list(&[80]), "  80\n");
    }
}
