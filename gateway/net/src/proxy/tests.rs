use proptest::prelude::*;

use super::*;

fn whole(bytes: &[u8]) -> Option<SocketAddr> {
    match parse(bytes) {
        Ok(Parsed::Whole { length, source }) if length == bytes.len() => source,
        other => panic!("{other:?} of {:?}", String::from_utf8_lossy(bytes)),
    }
}

/// Writes what a balancer says in version 2, with so many bytes of its own at the end.
fn version_2(source: SocketAddr, target: SocketAddr, own: usize) -> Vec<u8> {
    let (family, mut addresses) = match (source.ip(), target.ip()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => (0x11, [source.octets(), target.octets()].concat()),
        (IpAddr::V6(source), IpAddr::V6(target)) => (0x21, [source.octets(), target.octets()].concat()),
        other => panic!("{other:?}"),
    };
    addresses.extend([source.port().to_be_bytes(), target.port().to_be_bytes()].concat());
    addresses.extend(vec![0x04; own]);
    let length = u16::try_from(addresses.len()).expect("short").to_be_bytes();
    [&SIGNATURE[..], &[0x21, family], &length, &addresses].concat()
}

fn version_1(source: SocketAddr, target: SocketAddr) -> Vec<u8> {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), target.ip());
    format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), target.port()).into_bytes()
}

#[test]
fn balancer_that_speaks_for_itself_names_nobody() {
    for bytes in [
        &b"PROXY UNKNOWN\r\n"[..],
        b"PROXY UNKNOWN ff ff 1 2\r\n",
        &[&SIGNATURE[..], &[0x20, 0, 0, 0]].concat(),
        &[&SIGNATURE[..], &[0x20, 0x11, 0, 3, 1, 2, 3]].concat(),
        &[&SIGNATURE[..], &[0x21, 0, 0, 0]].concat(),
        &[&SIGNATURE[..], &[0x21, 0x12, 0, 1, 9]].concat(),
    ] {
        assert_eq!(whole(bytes), None);
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_BYTES_MAX));
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n",
        b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY tcp4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        b"PROXY TCP4 1.2.3.4\n5.6.7.8 1 2\r\n",
        long.as_bytes(),
        &[&SIGNATURE[..], &[0x11, 0x11, 0, 12], &[0; 12]].concat(),
        &[&SIGNATURE[..], &[0x22, 0x11, 0, 12], &[0; 12]].concat(),
        // Too short for what it says that it holds, and too long for anything.
        &[&SIGNATURE[..], &[0x21, 0x11, 0, 11], &[0; 11]].concat(),
        &[&SIGNATURE[..], &[0x21, 0x21, 0, 35], &[0; 35]].concat(),
        &[&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat(),
    ] {
        assert_eq!(parse(bytes), Err(NoHeader), "{:?}", String::from_utf8_lossy(bytes));
    }
}

fn pair() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = (any::<u32>(), any::<u16>()).prop_map(|(bits, port)| (Ipv4Addr::from(bits), port).into());
    let v6 = (any::<u128>(), any::<u16>()).prop_map(|(bits, port)| (Ipv6Addr::from(bits), port).into());
    prop_oneof![(v4.clone(), v4), (v6.clone(), v6)]
}

proptest! {
    #[test]
    fn source_is_found_wherever_the_bytes_are_cut_and_what_follows_is_left(
        (source, target) in pair(), own in 0..200_usize, rest in prop::collection::vec(any::<u8>(), 0..40)
    ) {
        for header in [version_1(source, target), version_2(source, target, own)] {
            for cut in 0..header.len() {
                prop_assert_eq!(parse(&header[..cut]), Ok(Parsed::Partial), "{} bytes", cut);
            }
            let bytes = [&header[..], &rest].concat();
            prop_assert_eq!(parse(&bytes), Ok(Parsed::Whole { length: header.len(), source: Some(source) }));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_no_header_is_longer_than_the_bound(
        begin in 0..3_usize, bytes in prop::collection::vec(any::<u8>(), 0..2000)
    ) {
        let bytes = [[&b""[..], SIGNATURE, WORD][begin], &bytes].concat();
        match parse(&bytes) {
            Ok(Parsed::Whole { length, .. }) => prop_assert!(length <= bytes.len() && length <= HEADER_BYTES_MAX),
            Ok(Parsed::Partial) => prop_assert!(bytes.len() < HEADER_BYTES_MAX),
            Err(NoHeader) => {}
        }
    }
}
