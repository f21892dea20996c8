use std::time::Duration;

use proptest::prelude::*;

use super::*;

const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const SECOND: Duration = Duration::from_secs(1);
const RESETS: u32 = 10;

#[expect(clippy::disallowed_methods, reason = "tests need some origin; only differences matter")]
fn start() -> Instant {
    Instant::now()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | 4, stream, b"some block")
}

fn reset(stream: u32, code: u8) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, code])
}

#[test]
fn resets_above_the_rate_end_the_connection_whoever_sends_them() {
    for is_ours in [false, true] {
        let now = start();
        let mut meter = Meter::new(RESETS, now);
        for number in 0..RESETS * RESET_SECONDS {
            meter.receive(&request(2 * number + 1), || now).expect("within the limit");
            if is_ours {
                meter.send(&reset(2 * number + 1, 1), || now);
            } else {
                meter.receive(&reset(2 * number + 1, 8), || now).expect("within the limit");
            }
        }
        // A second later there is a second's worth again, and no more.
        let later = now + SECOND;
        for _ in 0..RESETS {
            meter.send(&reset(1, 7), || later);
            meter.receive(&[], || later).expect("within the limit");
        }
        meter.send(&reset(1, 7), || later);
        assert_eq!(meter.receive(&[], || later), Err(Stop::Limit(Limit::Http2Resets)));
        let last = 2 * (RESETS * RESET_SECONDS - 1) + 1;
        let [.., a, b, c, d, _, _, _, code] = meter.goaway(Stop::Limit(Limit::Http2Resets))[..] else { panic!() };
        assert_eq!((u32::from_be_bytes([a, b, c, d]), code), (last, ENHANCE_YOUR_CALM));
    }
}

#[test]
fn resets_without_an_error_are_the_end_of_a_whole_answer() {
    let now = start();
    let mut meter = Meter::new(1, now);
    for _ in 0..1000 {
        meter.send(&reset(1, 0), || now);
    }
    assert_eq!(meter.receive(&[], || now), Ok(()));
}

#[test]
fn frames_that_carry_nothing_are_bounded_and_payload_is_not() {
    for light in [
        frame(PING, 0, 0, &[1; 8]),
        frame(4, 0, 0, &[]),
        frame(2, 0, 1, &[0; 5]),
        frame(9, 0, 1, &[]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(DATA, 0, 1, &[]),
        frame(0xee, 0, 0, b"unknown"),
    ] {
        let now = start();
        let mut meter = Meter::new(RESETS, now);
        let at_once = usize::try_from(LIGHT_AT_ONCE).expect("fits");
        assert_eq!(meter.receive(&light.repeat(at_once), || now), Ok(()));
        assert_eq!(meter.receive(&light, || now), Err(Stop::Limit(Limit::Http2Frames)));
    }
    let now = start();
    let mut meter = Meter::new(RESETS, now);
    for heavy in [frame(DATA, 0, 1, b"x"), frame(DATA, END_STREAM, 1, &[]), request(1)] {
        assert_eq!(meter.receive(&heavy.repeat(100_000), || now), Ok(()));
    }
}

#[test]
fn reader_who_gives_room_back_in_small_pieces_may_go_on_for_as_long_as_he_is_sent_to() {
    let now = start();
    let mut meter = Meter::new(RESETS, now);
    let payload = frame(DATA, 0, 1, &[0; 16 * 1024]);
    let room = frame(WINDOW_UPDATE, 0, 1, &[0, 0, 16, 0]).repeat(8);
    for _ in 0..100_000 {
        meter.send(&payload, || now);
        meter.receive(&room, || now).expect("paid for");
    }
    let for_nothing = (0..100).map(|_| meter.receive(&room.repeat(100), || now)).last();
    assert_eq!(for_nothing, Some(Err(Stop::Limit(Limit::Http2Frames))));
}

#[test]
fn nothing_may_be_said_in_the_middle_of_a_frame() {
    let now = start();
    let mut meter = Meter::new(RESETS, now);
    assert!(meter.is_between_frames());
    let bytes = [frame(DATA, 0, 1, b"payload"), reset(1, 8)].concat();
    for (index, byte) in bytes.iter().enumerate() {
        meter.send(&[*byte], || now);
        assert_eq!(meter.is_between_frames(), index == 9 + 6 || index == bytes.len() - 1, "{index}");
    }
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(vec![0; 4]),
        Just(vec![0, 0, 0, 8]),
        Just(vec![0; 300]),
    ];
    (0..12_u8, any::<u8>(), 0..9_u32, payload)
        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload))
}

proptest! {
    #[test]
    fn frames_are_the_same_wherever_the_bytes_are_cut(
        frames in prop::collection::vec(any_frame(), 0..30), cuts in prop::collection::vec(1..50_usize, 1..200)
    ) {
        let bytes = frames.concat();
        let mut whole = Heads::default();
        let (mut rest, mut expected) = (&bytes[..], Vec::new());
        while let Some(frame) = whole.next(&mut rest, |_| {}) {
            expected.push(frame);
        }
        prop_assert_eq!(expected.len(), frames.len());
        let (mut heads, mut found, mut at) = (Heads::default(), Vec::new(), 0);
        for cut in cuts.iter().cycle() {
            if at >= bytes.len() {
                break;
            }
            let end = bytes.len().min(at + cut);
            let mut piece = &bytes[at..end];
            while let Some(frame) = heads.next(&mut piece, |_| {}) {
                found.push(frame);
            }
            at = end;
        }
        let seen = |frames: &[FrameHead]| frames.iter().map(|frame| (frame.kind, frame.length, frame.stream)).collect::<Vec<_>>();
        prop_assert_eq!(seen(&found), seen(&expected));
        prop_assert_eq!((heads.filled, heads.left), (0, 0));
    }
}
