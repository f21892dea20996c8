//! Messages of the recorded version by its own numbers. Nothing here uses the schema of today: if that changes, recorded
//! bytes have to stay what they are.

use bytes::{Bytes, BytesMut};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// Content of a field of a protobuf message; floats do not occur.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Bytes(Bytes),
}

/// Fields of a protobuf message, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) Vec<(u32, Value)>);

impl Fields {
    /// Reads a message.
    pub(crate) fn read(mut bytes: Bytes) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let (number, kind) = decode_key(&mut bytes).expect("a field");
            let value = match kind {
                WireType::Varint => Value::Number(decode_varint(&mut bytes).expect("a number")),
                WireType::LengthDelimited => {
                    let length = decode_varint(&mut bytes).expect("a length");
                    Value::Bytes(bytes.split_to(usize::try_from(length).unwrap()))
                }
                other => panic!("field {number} is {other:?}"),
            };
            fields.push((number, value));
        }
        Self(fields)
    }

    /// Writes the message.
    pub(crate) fn write(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        for (number, value) in &self.0 {
            match value {
                Value::Number(value) => {
                    encode_key(*number, WireType::Varint, &mut bytes);
                    encode_varint(*value, &mut bytes);
                }
                Value::Bytes(value) => {
                    encode_key(*number, WireType::LengthDelimited, &mut bytes);
                    encode_varint(value.len() as u64, &mut bytes);
                    bytes.extend_from_slice(value);
                }
            }
        }
        bytes.freeze()
    }

    /// Returns all contents of a field.
    pub(crate) fn all(&self, number: u32) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(other, _)| *other == number).map(|(_, value)| value)
    }

    /// Returns a number; 0 if the field is absent.
    pub(crate) fn number(&self, number: u32) -> u64 {
        match self.all(number).next() {
            Some(Value::Number(value)) => *value,
            None => 0,
            Some(Value::Bytes(_)) => panic!("field {number} is no number"),
        }
    }

    /// Returns bytes; empty if the field is absent.
    pub(crate) fn bytes(&self, number: u32) -> Bytes {
        match self.all(number).next() {
            Some(Value::Bytes(value)) => value.clone(),
            None => Bytes::new(),
            Some(Value::Number(_)) => panic!("field {number} is a number"),
        }
    }

    /// Returns the message in a field; an empty one if the field is absent.
    pub(crate) fn message(&self, number: u32) -> Self {
        Self::read(self.bytes(number))
    }

    /// Returns the messages in a field.
    pub(crate) fn messages(&self, number: u32) -> Vec<Self> {
        let read = |value: &Value| match value {
            Value::Bytes(bytes) => Self::read(bytes.clone()),
            Value::Number(_) => panic!("field {number} is a number"),
        };
        self.all(number).map(read).collect()
    }

    /// Changes a field that is there.
    pub(crate) fn change(&mut self, number: u32, change: impl Fn(Value) -> Value) {
        for (_, value) in self.0.iter_mut().filter(|(other, _)| *other == number) {
            *value = change(value.clone());
        }
    }

    /// Sets a number that is there.
    pub(crate) fn set(&mut self, number: u32, to: u64) {
        self.change(number, |_| Value::Number(to));
    }

    /// Changes the messages in a field.
    pub(crate) fn within(&mut self, number: u32, change: impl Fn(&mut Self)) {
        self.change(number, |value| {
            let Value::Bytes(bytes) = value else { panic!("field {number} is no message") };
            let mut message = Self::read(bytes);
            change(&mut message);
            Value::Bytes(message.write())
        });
    }
}

/// Numbers of a frame's fields.
pub(crate) const SEQUENCE: u32 = 1;
pub(crate) const ACKNOWLEDGED: u32 = 2;

/// Numbers of a frame's bodies.
pub(crate) const HELLO: u32 = 3;
pub(crate) const WELCOME: u32 = 4;
pub(crate) const OPEN: u32 = 5;
pub(crate) const ACCEPT: u32 = 6;
pub(crate) const DATA: u32 = 7;
pub(crate) const FINISH: u32 = 8;
pub(crate) const RESET: u32 = 9;
pub(crate) const CREDIT: u32 = 10;
pub(crate) const PING: u32 = 11;
pub(crate) const PONG: u32 = 12;
pub(crate) const DRAIN: u32 = 13;
pub(crate) const CLOSE: u32 = 14;

/// Numbers within bodies. The channel is first wherever there is one, and a grant's too.
pub(crate) const CHANNEL: u32 = 1;
pub(crate) const GRANTS: u32 = 1;
pub(crate) const GRANT_BYTES: u32 = 2;
pub(crate) const OPEN_PORT: u32 = 2;
pub(crate) const OPEN_CREDIT: u32 = 3;
pub(crate) const OPEN_PAYLOAD: u32 = 4;
pub(crate) const ACCEPT_CREDIT: u32 = 2;
pub(crate) const DATA_PAYLOAD: u32 = 2;
pub(crate) const TOKEN: u32 = 1;
pub(crate) const VERSION_MIN: u32 = 1;
pub(crate) const VERSION_MAX: u32 = 2;
pub(crate) const HELLO_FEATURES: u32 = 3;
pub(crate) const RESUME: u32 = 7;
pub(crate) const HELLO_CREDIT: u32 = 8;
pub(crate) const WELCOME_SESSION: u32 = 3;
pub(crate) const WELCOME_SECRET: u32 = 8;
pub(crate) const RESUMED: u32 = 11;
pub(crate) const RESUME_SESSION: u32 = 1;
pub(crate) const RESUME_SECRET: u32 = 2;
pub(crate) const RESUME_RECEIVED: u32 = 3;
pub(crate) const RESUMED_RECEIVED: u32 = 1;

/// A message by the path to it, and the highest field number in it that the recorded version knows.
const KNOWN: [(&[u32], u32); 15] = [
    (&[], CLOSE),
    (&[HELLO], 14),
    (&[HELLO, RESUME], 3),
    (&[WELCOME], 14),
    (&[WELCOME, 5], 2),
    (&[WELCOME, RESUMED], 1),
    (&[OPEN], 4),
    (&[ACCEPT], 2),
    (&[DATA], 2),
    (&[FINISH], 1),
    (&[RESET], 2),
    (&[DRAIN], 2),
    (&[CLOSE], 2),
    (&[PING], 1),
    (&[PONG], 1),
];

/// Fields that have to be there as they were, with any value: ids, secrets, addresses, times, bounds, texts for people.
const VARYING: [&[u32]; 21] = [
    &[SEQUENCE],
    &[HELLO, VERSION_MIN],
    &[HELLO, VERSION_MAX],
    &[HELLO, HELLO_FEATURES],
    &[HELLO, 4],
    &[HELLO, 6],
    &[HELLO, HELLO_CREDIT],
    &[WELCOME, WELCOME_SESSION],
    &[WELCOME, 4],
    &[WELCOME, 5, 1],
    &[WELCOME, 5, 2],
    &[WELCOME, 6],
    &[WELCOME, 7],
    &[WELCOME, WELCOME_SECRET],
    &[WELCOME, 10],
    &[WELCOME, 12],
    &[WELCOME, 13],
    &[WELCOME, 14],
    &[OPEN, OPEN_CREDIT],
    &[OPEN, OPEN_PAYLOAD],
    &[CLOSE, 2],
];

/// Fields that may also be absent, or new: what they say depends on the moment.
const FREE: [&[u32]; 4] = [&[ACKNOWLEDGED], &[ACCEPT, ACCEPT_CREDIT], &[DRAIN, 1], &[DRAIN, 2]];

/// Returns the differences that the recorded version would notice between a frame of its own peer and one of today.
pub(crate) fn differences(recorded: &Fields, live: &Fields) -> Vec<String> {
    let mut found = Vec::new();
    compare(&mut Vec::new(), recorded, live, &mut found);
    found
}

fn compare(path: &mut Vec<u32>, recorded: &Fields, live: &Fields, found: &mut Vec<String>) {
    let Some((_, last)) = KNOWN.iter().find(|(known, _)| known == path) else {
        panic!("{path:?} is no message");
    };
    for number in 1..=*last {
        let (theirs, ours): (Vec<_>, Vec<_>) = (recorded.all(number).collect(), live.all(number).collect());
        path.push(number);
        let is = |paths: &[&[u32]]| paths.contains(&path.as_slice());
        let is_message = KNOWN.iter().any(|(known, _)| *known == path.as_slice());
        match (theirs.as_slice(), ours.as_slice()) {
            _ if is(&FREE) => {}
            ([_, ..], [_, ..]) if is(&VARYING) => {}
            ([Value::Bytes(theirs)], [Value::Bytes(ours)]) if is_message => {
                compare(path, &Fields::read(theirs.clone()), &Fields::read(ours.clone()), found);
            }
            (theirs, ours) if theirs == ours => {}
            (theirs, ours) => found.push(format!("field {path:?} was {theirs:?} and is {ours:?}")),
        }
        path.pop();
    }
}
