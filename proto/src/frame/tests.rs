//! The hand-written encoding against the generated one, and hostile bytes.

use proptest::prelude::*;

use super::*;
use crate::hello::{AppProtocol, HostMode, Join, Port, RelayTicket, Resume, Resumed, Role};
use crate::id::{Generation, SessionId};
use crate::limit::OPEN_CREDIT_BYTES;
use crate::version;

fn encode(frame: Frame) -> Bytes {
    let mut head = BytesMut::new();
    let payload = frame.encode(&mut head);
    head.extend_from_slice(&payload);
    head.freeze()
}

fn hello() -> Hello {
    Hello {
        versions: version::OURS,
        features: vec!["resume".into()],
        agent_version: "0.1.0".into(),
        role: Role::Workspace,
        instance: 7,
        resume: Some(Resume { session: SessionId::new(3), secret: Bytes::from_static(b"secret"), received: 9 }),
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: vec![Port { number: 5173, protocol: AppProtocol::Http2, host: HostMode::Localhost, tls: true }],
        default_port: Some(5173),
        join: Some(Join { session: SessionId::new(3), secret: Bytes::from_static(b"join") }),
        lanes: 1,
        apps: vec![Port { number: 3000, protocol: AppProtocol::Http1, host: HostMode::Original, tls: false }],
        host: HostMode::Localhost,
        relay: Some(relay()),
        seal: Bytes::from_static(b"seal"),
    }
}

fn relay() -> RelayTicket {
    RelayTicket { replica: 5, ticket: Bytes::from_static(b"ticket") }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: Vec::new(),
        session: SessionId::new(3),
        generation: Generation::new(4),
        channels_max: 16,
        payload_bytes_max: 1024,
        keepalive_interval: std::time::Duration::from_secs(20),
        keepalive_timeout: std::time::Duration::from_secs(10),
        resume_secret: Bytes::new(),
        workspace: "demo".into(),
        resume_grace: std::time::Duration::from_secs(30),
        resumed: Some(Resumed { received: 0 }),
        lanes: 4,
        join_secret: Bytes::from_static(b"join"),
        workspace_url: "https://demo.example.com/".into(),
        seal: Bytes::from_static(b"another seal"),
    }
}

fn any_body() -> impl Strategy<Value = Body> {
    let channel = (1_u64..=u64::MAX).prop_map(ChannelId::new);
    let payload = proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    let reason = proptest::sample::select(Reason::ALL);
    let grant = (channel.clone(), 1_u32..).prop_map(|(channel, bytes)| Grant { channel, bytes });
    let tls = proptest::sample::select(vec![AppTls::None, AppTls::Http1, AppTls::Http2]);
    prop_oneof![
        Just(Body::Acknowledge),
        Just(Body::Hello(Box::new(hello()))),
        Just(Body::Welcome(Box::new(welcome()))),
        (channel.clone(), 1_u16.., tls, any::<u32>(), payload.clone()).prop_map(
            |(channel, port, tls, credit_bytes, payload)| {
                Body::Open(Open { channel, port, tls, credit_bytes, payload })
            }
        ),
        (channel.clone(), any::<u32>()).prop_map(|(channel, credit_bytes)| Body::Accept { channel, credit_bytes }),
        (channel.clone(), payload).prop_map(|(channel, payload)| Body::Data { channel, payload }),
        channel.clone().prop_map(|channel| Body::Finish { channel }),
        (channel, reason).prop_map(|(channel, reason)| Body::Reset { channel, reason }),
        proptest::collection::vec(grant, 1..=GRANTS_PER_FRAME_MAX).prop_map(|grants| Body::Credit { grants }),
        any::<u64>().prop_map(|token| Body::Ping { token }),
        any::<u64>().prop_map(|token| Body::Pong { token }),
        (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(deadline_ms, redial_after_ms, moves)| Body::Drain {
            deadline_ms,
            redial_after_ms,
            moves
        }),
        Just(Body::OpenLane(relay())),
        Just(Body::Seal(Bytes::from_static(b"a newer seal"))),
        reason_and_text().prop_map(|(reason, detail)| Body::Close { reason, detail }),
    ]
}

fn reason_and_text() -> impl Strategy<Value = (Reason, String)> {
    (proptest::sample::select(Reason::ALL), "[a-z ]{0,40}")
}

fn any_frame() -> impl Strategy<Value = Frame> {
    (1_u64.., any::<u64>(), any_body()).prop_map(|(sequence, acknowledged, body)| Frame {
        sequence: if body.is_numbered() { sequence } else { 0 },
        acknowledged,
        body,
    })
}

proptest! {
    #[test]
    fn frame_survives_the_wire_and_announces_its_length(frame in any_frame()) {
        let announced = frame.encoded_len();
        let bytes = encode(frame.clone());
        prop_assert_eq!(bytes.len(), announced);
        prop_assert_eq!(Frame::decode(bytes), Ok(frame));
    }

    #[test]
    fn own_encoding_equals_the_generated_one(frame in any_frame()) {
        let generated = frame.to_wire().encode_to_vec();
        prop_assert_eq!(&encode(frame.clone())[..], &generated[..]);
        let read = wire::Frame::decode(&generated[..]).map(Frame::from_wire);
        prop_assert_eq!(read, Ok(Ok(frame)));
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_frame_that_encodes_again(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(frame) = Frame::decode(bytes.into()) {
            prop_assert_eq!(Frame::decode(encode(frame.clone())), Ok(frame));
        }
    }

    #[test]
    fn damaged_frames_never_panic(frame in any_frame(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = encode(frame).to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        drop(Frame::decode(bytes.into()));
    }
}

#[test]
fn data_payload_is_a_slice_of_the_message_and_not_a_copy() {
    let payload = Bytes::from(vec![7; 4096]);
    let bytes =
        encode(Frame { sequence: 1, acknowledged: 0, body: Body::Data { channel: ChannelId::new(1), payload } });
    let Ok(Frame { body: Body::Data { payload, .. }, .. }) = Frame::decode(bytes.clone()) else {
        panic!("a data frame");
    };
    let range = bytes.as_ptr_range();
    assert!(range.contains(&payload.as_ptr()));
}

#[test]
fn data_frame_has_these_bytes() {
    // A change here is a change of the protocol: CHANGELOG, and a thought about version skew.
    let frame = Frame {
        sequence: 300,
        acknowledged: 2,
        body: Body::Data { channel: ChannelId::new(5), payload: Bytes::from_static(b"hi") },
    };
    assert_eq!(
        encode(frame)[..],
        [
            0x08, 0xac, 0x02, // sequence 300
            0x10, 0x02, // acknowledged 2
            0x3a, 0x06, // data, 6 bytes
            0x08, 0x05, // channel 5
            0x12, 0x02, b'h', b'i', // payload
        ]
    );
}

#[track_caller]
fn check_refused(frame: &wire::Frame, expected: &FrameError) {
    assert_eq!(Frame::decode(frame.encode_to_vec().into()).as_ref(), Err(expected));
}

#[test]
fn fields_out_of_range_are_named() {
    use wire::frame::Body as Wire;
    let numbered = |body| wire::Frame { sequence: 1, acknowledged: 0, body: Some(body) };
    let field = |field| FrameError::Field { field };
    check_refused(&numbered(Wire::Data(wire::Data { channel: 0, payload: Bytes::new() })), &field("channel"));
    let open = wire::Open { channel: 1, port: 0, credit_bytes: 1, payload: Bytes::new(), tls: 0 };
    check_refused(&numbered(Wire::Open(wire::Open { port: 1, tls: 3, ..open.clone() })), &field("tls"));
    check_refused(&numbered(Wire::Open(wire::Open { port: 65_536, ..open.clone() })), &field("port"));
    let long = wire::Open { port: 1, payload: vec![0; PAYLOAD_BYTES_MAX + 1].into(), ..open };
    check_refused(&numbered(Wire::Open(long)), &field("payload"));
    check_refused(&numbered(Wire::Credit(wire::Credit { grants: Vec::new() })), &field("grants"));
    let nothing = wire::Grant { channel: 1, bytes: 0 };
    check_refused(&numbered(Wire::Credit(wire::Credit { grants: vec![nothing] })), &field("grant bytes"));
    check_refused(&numbered(Wire::Ping(wire::Ping { token: 1 })), &field("sequence"));
    let data = Wire::Data(wire::Data { channel: 1, payload: Bytes::from_static(b"x") });
    check_refused(&wire::Frame { sequence: 0, acknowledged: 0, body: Some(data) }, &field("sequence"));
    check_refused(&wire::Frame { sequence: 1, acknowledged: 0, body: None }, &FrameError::UnknownBody);
    let detail = wire::Close { reason: 1, detail: "x".repeat(TEXT_BYTES_MAX + 1) };
    check_refused(&wire::Frame { sequence: 0, acknowledged: 0, body: Some(Wire::Close(detail)) }, &field("detail"));
}

#[test]
fn text_that_could_write_lines_into_a_log_is_refused() {
    use wire::frame::Body as Wire;
    for text in ["a\nb", "a\rb", "\u{1b}[31mred", "a\tb", "\0", "\u{7f}", "\u{85}", "\u{9b}31m"] {
        let close = wire::Close { reason: 1, detail: text.into() };
        let close = wire::Frame { sequence: 0, acknowledged: 0, body: Some(Wire::Close(close)) };
        check_refused(&close, &FrameError::Field { field: "detail" });
        let hello = wire::Hello { agent_version: text.into(), ..hello().to_wire() };
        let hello = wire::Frame { sequence: 0, acknowledged: 0, body: Some(Wire::Hello(hello)) };
        check_refused(&hello, &FrameError::Field { field: "agent_version" });
    }
}

#[test]
fn oversized_frame_is_refused_before_it_is_read() {
    let bytes = Bytes::from(vec![0xff; FRAME_BYTES_MAX + 1]);
    assert_eq!(Frame::decode(bytes), Err(FrameError::TooLarge { bytes: FRAME_BYTES_MAX + 1 }));
}
