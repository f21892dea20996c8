//! Recorded conversations as text: a line for each message, in hexadecimal digits, in the order in which both sides said them.

use std::fmt::Write as _;
use std::path::PathBuf;

use bytes::{BufMut as _, Bytes, BytesMut};

/// Shortest run of one byte that is written as such.
const RUN_MIN: usize = 16;

/// A side of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    Agent,
    Gateway,
}

/// One event of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The agent dials.
    Link,
    /// A message that arrived.
    Said(Speaker, Bytes),
    /// A message with which the link broke: it did not arrive.
    Lost(Speaker, Bytes),
    /// The gateway refuses the link with a status and message of gRPC.
    Refused(u16, String),
}

impl Speaker {
    /// Returns the word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Gateway => "gateway",
        }
    }

    fn read(word: &str) -> Self {
        match word {
            "agent" => Self::Agent,
            "gateway" => Self::Gateway,
            other => panic!("{other} is no side"),
        }
    }
}

impl Line {
    fn read(line: &str) -> Self {
        let words: Vec<_> = line.splitn(3, ' ').collect();
        match words.as_slice() {
            ["link"] => Self::Link,
            ["lost", side, digits] => Self::Lost(Speaker::read(side), bytes_of(digits)),
            ["refused", status, message] => Self::Refused(status.parse().unwrap(), (*message).to_owned()),
            [side, digits] => Self::Said(Speaker::read(side), bytes_of(digits)),
            other => panic!("no line: {other:?}"),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Link => "link".to_owned(),
            Self::Said(side, message) => format!("{} {}", side.word(), digits_of(message)),
            Self::Lost(side, message) => format!("lost {} {}", side.word(), digits_of(message)),
            Self::Refused(status, message) => format!("refused {status} {message}"),
        }
    }
}

/// Reads hexadecimal digits, and runs of one byte as `(78*16384)`.
fn bytes_of(digits: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    let mut rest = digits;
    while !rest.is_empty() {
        let (digits, count) = match rest.strip_prefix('(') {
            Some(run) => {
                let (run, behind) = run.split_once(')').expect("the end of a run");
                rest = behind;
                run.split_once('*').expect("a run")
            }
            None => {
                let (digits, behind) = rest.split_at(2);
                rest = behind;
                (digits, "1")
            }
        };
        bytes.put_bytes(u8::from_str_radix(digits, 16).expect("hexadecimal digits"), count.parse().expect("a count"));
    }
    bytes.freeze()
}

fn digits_of(bytes: &[u8]) -> String {
    let mut digits = String::new();
    for run in bytes.chunk_by(|one, next| one == next) {
        if run.len() < RUN_MIN {
            run.iter().for_each(|byte| write!(digits, "{byte:02x}").unwrap());
        } else {
            write!(digits, "({:02x}*{})", run[0], run.len()).unwrap();
        }
    }
    digits
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("recorded/N/{name}.txt"))
}

/// Reads a recording.
pub(crate) fn read(name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(path(name)).expect("a recording");
    text.lines().filter(|line| !line.starts_with('#')).map(Line::read).collect()
}

/// Writes a recording, with a comment above each message.
pub(crate) fn write(name: &str, what: &str, lines: &[(Line, String)]) {
    let mut text = format!("# {what}\n");
    for (line, comment) in lines {
        if !comment.is_empty() {
            writeln!(text, "# {}", comment.trim_end()).unwrap();
        }
        writeln!(text, "{}", line.write()).unwrap();
    }
    std::fs::create_dir_all(path(name).parent().unwrap()).expect("a folder");
    std::fs::write(path(name), text).expect("a file");
}

#[test]
fn lines_are_read_as_they_were_written() {
    let bytes = Bytes::from_static(&[0, 0x7f, 0xff]);
    for line in [
        Line::Link,
        Line::Said(Speaker::Agent, bytes.clone()),
        Line::Said(Speaker::Gateway, Bytes::new()),
        Line::Lost(Speaker::Gateway, bytes),
        Line::Said(Speaker::Agent, [&[1, 2][..], &[7; 300], &[0]].concat().into()),
        Line::Refused(16, "not known here".to_owned()),
    ] {
        assert_eq!(Line::read(&line.write()), line);
    }
}
