//! What a workspace's agent says of its workspace when a gateway asks: the ports on which something listens, with a label for those of
//! which it knows one, and what became of the commands that began with it.
//!
//! The gateway opens a channel to [`LISTENING_PORT`], and the agent answers with one message and ends the channel. So nothing is
//! sent while it is not asked for, and no answer is older than its question.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;
use thiserror::Error;

use crate::wire;

/// The port of a workspace agent's session that is no port: the question of this module. No user's address has it.
pub const LISTENING_PORT: u16 = 0;

/// Most ports that an agent says and a gateway takes; those with the lowest numbers.
pub const LISTENING_MAX: usize = 256;

/// Largest encoded message that a gateway reads, in bytes: [`LISTENING_MAX`] ports take six each today, and commands the rest.
pub const LISTENING_BYTES_MAX: usize = 4096;

/// Most of them that ports and their labels take, in bytes; the rest is for commands.
const PORTS_BYTES_MAX: usize = 3072;

/// Longest label of a port, in bytes; longer ones are cut.
pub const LABEL_BYTES_MAX: usize = 48;

/// Most commands that an agent says and a gateway takes.
pub const COMMANDS_MAX: usize = 32;

/// Longest text of a command, in bytes; longer ones are cut.
pub const COMMAND_TEXT_BYTES_MAX: usize = 160;

/// The bytes are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a list of listening ports that cannot be read")]
pub struct BadListening;

/// A command that began with the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartCommand {
    /// The container that it ran in.
    pub container: String,
    /// Its id in the devfile.
    pub id: String,
    /// Its exit status once it has ended, 128 and the signal's number for one that a signal ended.
    pub status: Option<u32>,
    /// What it wrote last, of one that failed.
    pub last_line: String,
}

impl StartCommand {
    /// Returns whether it ended with anything but success.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| status != 0)
    }

    /// Makes its texts short, and plain: they are shown on terminals and pages.
    fn plain(self) -> Self {
        let plain = |text: &str| plain(text, COMMAND_TEXT_BYTES_MAX);
        Self { container: plain(&self.container), id: plain(&self.id), last_line: plain(&self.last_line), ..self }
    }

    fn to_wire(&self) -> wire::StartCommand {
        let Self { container, id, status, last_line } = self.clone().plain();
        wire::StartCommand { container, id, status, last_line }
    }
}

/// Makes a text plain, and at most `bytes_max` long: it is shown on terminals and pages.
fn plain(text: &str, bytes_max: usize) -> String {
    let mut plain = String::new();
    for one in text.chars() {
        if plain.len() + one.len_utf8() > bytes_max {
            break;
        }
        plain.push(if one.is_control() { ' ' } else { one });
    }
    plain
}

/// Makes a label of any text: plain, at most [`LABEL_BYTES_MAX`] long; `None` if nothing is left.
#[must_use]
pub fn label(text: &str) -> Option<String> {
    let label = plain(text.trim(), LABEL_BYTES_MAX);
    (!label.is_empty()).then_some(label)
}

/// What an agent says of its workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// The ports on which something listens, in the order of their numbers, each once.
    pub ports: Vec<u16>,
    /// Labels of some of them: a name that a person gave the port, or that of the program that listens.
    pub labels: BTreeMap<u16, String>,
    /// The commands that began with it, those that failed first.
    pub commands: Vec<StartCommand>,
    /// Seconds since which a command in it wants to be waited for; of several, the youngest's. An older peer skips it.
    pub busy_seconds: Option<u32>,
}

impl Listening {
    /// Makes one of ports alone.
    #[must_use]
    pub fn of_ports(ports: impl IntoIterator<Item = u16>) -> Self {
        Self { ports: ports.into_iter().collect(), ..Self::default() }
    }

    /// Writes the message: the first [`LISTENING_MAX`] ports, and as many labels and commands as there is room for in
    /// [`LISTENING_BYTES_MAX`], those that failed first.
    #[must_use]
    pub fn encode(mut self) -> Bytes {
        let one = |number: u16| wire::ListeningPort { number: u32::from(number), label: String::new() };
        let ports = self.ports.into_iter().take(LISTENING_MAX).map(one).collect();
        let mut message = wire::Listening { ports, commands: Vec::new(), busy_seconds: self.busy_seconds };
        let mut length = message.encoded_len();
        for port in &mut message.ports {
            let known = u16::try_from(port.number).ok().and_then(|number| self.labels.get(&number));
            let Some(label) = known.and_then(|text| label(text)) else { continue };
            // Its tag, its length, and the length of the port's own message may each take one byte more.
            length += label.len() + 3;
            if length > PORTS_BYTES_MAX {
                break;
            }
            port.label = label;
        }
        self.commands.sort_by_key(|command| !command.has_failed());
        for command in self.commands.iter().take(COMMANDS_MAX) {
            message.commands.push(command.to_wire());
            if message.encoded_len() > LISTENING_BYTES_MAX {
                message.commands.pop();
                break;
            }
        }
        message.encode_to_vec().into()
    }

    /// Reads the message: ports in the order of their numbers, each once, and no more than [`LISTENING_MAX`].
    ///
    /// # Errors
    /// [`BadListening`] for bytes that are no such message, are longer than [`LISTENING_BYTES_MAX`], or name no port.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadListening> {
        if bytes.len() > LISTENING_BYTES_MAX {
            return Err(BadListening);
        }
        let message = wire::Listening::decode(bytes).map_err(|_malformed| BadListening)?;
        let mut ports = Vec::with_capacity(message.ports.len().min(LISTENING_MAX));
        let mut labels = BTreeMap::new();
        for port in message.ports {
            match u16::try_from(port.number) {
                Ok(number) if number > 0 => {
                    ports.push(number);
                    labels.extend(label(&port.label).map(|label| (number, label)));
                }
                Ok(_) | Err(_) => return Err(BadListening),
            }
        }
        ports.sort_unstable();
        ports.dedup();
        ports.truncate(LISTENING_MAX);
        labels.retain(|port, _| ports.binary_search(port).is_ok());
        let command = |command: wire::StartCommand| {
            let wire::StartCommand { container, id, status, last_line } = command;
            StartCommand { container, id, status, last_line }.plain()
        };
        let commands = message.commands.into_iter().take(COMMANDS_MAX).map(command).collect();
        Ok(Self { ports, labels, commands, busy_seconds: message.busy_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_back_sorted_and_each_once() {
        assert_eq!(
            Listening::decode(&Listening::of_ports([8080, 22, 8080, 65535]).encode()),
            Ok(Listening::of_ports([22, 8080, 65535]))
        );
        assert_eq!(Listening::decode(&Listening::of_ports([]).encode()), Ok(Listening::of_ports([])));
    }

    #[test]
    fn no_peer_makes_it_keep_more_than_the_bound() {
        let all = Listening::of_ports(1..=u16::MAX).encode();
        assert!(all.len() <= LISTENING_BYTES_MAX, "{} bytes", all.len());
        assert_eq!(Listening::decode(&all).map(|said| said.ports.len()), Ok(LISTENING_MAX));
        // A peer that knows no bound: two bytes for a port without a number's value beyond one byte.
        let many = [0x0a, 0x02, 0x08, 0x50].repeat(LISTENING_BYTES_MAX / 4);
        assert_eq!(Listening::decode(&many), Ok(Listening::of_ports([80])));
        let mut more = many.clone();
        more.extend_from_slice(&[0x0a, 0x02, 0x08, 0x50]);
        assert_eq!(Listening::decode(&more), Err(BadListening));
        // Commands without a text: two bytes each.
        let many = [0x12, 0x00].repeat(LISTENING_BYTES_MAX / 2);
        assert_eq!(Listening::decode(&many).map(|said| said.commands.len()), Ok(COMMANDS_MAX));
    }

    #[test]
    fn labels_are_plain_and_leave_room_for_commands() {
        let labels = BTreeMap::from([(80, "web\u{1b}[31m".to_owned()), (81, "  ".to_owned()), (82, "é".repeat(99))]);
        let bytes = Listening { labels, ..Listening::of_ports([80, 81, 82]) }.encode();
        let said = Listening::decode(&bytes).expect("a message");
        let expected = BTreeMap::from([(80, "web [31m".to_owned()), (82, "é".repeat(LABEL_BYTES_MAX / 2))]);
        assert_eq!((said.ports, said.labels), (vec![80, 81, 82], expected));
        let labels = (1..=256).map(|port| (port, "x".repeat(LABEL_BYTES_MAX))).collect();
        let many = Listening { labels, ..Listening::of_ports(1..=256) }.encode();
        assert!(many.len() <= PORTS_BYTES_MAX, "{} bytes", many.len());
        let said = Listening::decode(&many).expect("a message");
        assert!(said.ports.len() == 256 && said.labels.len() > 20, "{}", said.labels.len());
    }

    #[test]
    fn what_is_no_port_and_no_message_is_refused() {
        let one = |number| wire::Listening {
            ports: vec![wire::ListeningPort { number, label: String::new() }],
            ..wire::Listening::default()
        };
        for bytes in
            [one(0).encode_to_vec(), one(65_536).encode_to_vec(), vec![0x0a, 0xff], b"HTTP/1.1 200 OK".to_vec()]
        {
            assert_eq!(Listening::decode(&bytes), Err(BadListening), "{bytes:?}");
        }
    }

    #[test]
    fn commands_that_failed_come_first_and_all_that_fit_and_are_plain() {
        let command = |number: usize, status| StartCommand {
            container: "main".to_owned(),
            id: format!("command-{number}"),
            status,
            last_line: format!("\u{1b}[31m{}\n", "é".repeat(200)),
        };
        let commands = (0..40).map(|number| command(number, (number % 2 == 1).then_some(243))).collect();
        let bytes =
            Listening { ports: (1..=256).collect(), commands, busy_seconds: Some(u32::MAX), ..Listening::default() }
                .encode();
        assert!(bytes.len() <= LISTENING_BYTES_MAX, "{} bytes", bytes.len());
        let said = Listening::decode(&bytes).expect("a message");
        assert_eq!(said.ports.len(), 256);
        assert!(said.commands.len() > 8 && said.commands.iter().all(StartCommand::has_failed), "{:?}", said.commands);
        let line = &said.commands[0].last_line;
        assert!(line.len() <= COMMAND_TEXT_BYTES_MAX && line.starts_with(" [31mé"), "{line:?}");
        let running = Listening { commands: vec![command(0, None)], busy_seconds: Some(7), ..Listening::default() };
        assert_eq!(Listening::decode(&running.encode()).expect("a message").commands[0].status, None);
    }
}
