use rustls::InvalidMessage;

use super::*;
use crate::finding::Severity;

fn kind(found: Option<&Finding>) -> Option<(FindingId, Severity)> {
    found.map(|found| (found.id, found.severity))
}

#[test]
fn clocks_may_differ_by_what_a_question_takes() {
    let reading = |before, after, other| ClockReading { before, after, other };
    for (reading, resolution, ahead) in [
        (reading(10_000, 10_100, 10_050), 0, 0),
        // A second of a `Date` that is cut off.
        (reading(10_900, 10_950, 10_000), 1000, 0),
        (reading(70_000, 70_100, 10_000), 0, 60_000),
        (reading(70_000, 70_100, 10_000), 1000, 59_000),
        (reading(10_000, 10_100, 70_100), 0, -60_000),
        // An answer that took long proves nothing.
        (reading(10_000, 60_000, 30_000), 0, 0),
    ] {
        assert_eq!(reading.ahead(resolution), ahead, "{reading:?}");
    }
}

#[test]
fn clock_is_worth_a_warning_and_from_a_minute_on_an_error() {
    for (ahead, expected) in [
        (0, None),
        (10_000, None),
        (10_001, Some(Severity::Warning)),
        (-10_001, Some(Severity::Warning)),
        (60_000, Some(Severity::Warning)),
        (60_001, Some(Severity::Error)),
        (-600_000, Some(Severity::Error)),
    ] {
        let expected = expected.map(|severity| (FindingId::ClockOff, severity));
        assert_eq!(kind(clock(ahead, "the other").as_ref()), expected, "{ahead}");
    }
    let behind = clock(-600_000, "the database").map(|found| found.what);
    assert_eq!(behind.as_deref(), Some("this machine is 600 s behind the database"));
}

#[test]
fn date_of_http_is_read() {
    assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
    assert_eq!(http_date("yesterday"), None);
}

#[test]
fn zone_and_public_host_share_an_address() {
    let set = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<BTreeSet<IpAddr>>();
    let (one, two, both) = (set(&["192.0.2.1"]), set(&["2001:db8::1"]), set(&["192.0.2.1", "2001:db8::1"]));
    assert_eq!(addresses(&one, &one, "ws.example"), None);
    assert_eq!(addresses(&both, &one, "ws.example"), None, "a balancer may give out some of its addresses");
    assert_eq!(addresses(&one, &set(&[]), "ws.example"), None, "that is another finding");
    let found = addresses(&one, &two, "ws.example").unwrap();
    assert_eq!(found.id, FindingId::DnsWildcardElsewhere);
    assert_eq!(found.what, "*.ws.example leads to 2001:db8::1, the public host to 192.0.2.1");
}

#[test]
fn certificate_ends_in_time_soon_or_before() {
    let day = 24 * 3600;
    for (left, expected) in [
        (90 * day, None),
        (14 * day, None),
        (14 * day - 1, Some((FindingId::CertificateExpiresSoon, Severity::Warning))),
        (0, Some((FindingId::CertificateExpired, Severity::Error))),
        (-day, Some((FindingId::CertificateExpired, Severity::Error))),
    ] {
        let found = certificate_end(1_700_000_000 + left, 1_700_000_000, "tls.pem");
        assert_eq!(kind(found.as_ref()), expected, "{left}");
    }
    let found = certificate_end(0, 1_700_000_000, "tls.pem").unwrap();
    assert_eq!(found.what, "tls.pem was valid until 1970-01-01T00:00:00Z");
}

#[test]
fn failed_handshake_is_one_of_five() {
    let of = |error: rustls::Error| tls(&io::Error::other(error), "here").id;
    let certificate = |wrong| of(rustls::Error::InvalidCertificate(wrong));
    assert_eq!(of(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)), FindingId::TlsToPlainPort);
    assert_eq!(certificate(CertificateError::Expired), FindingId::CertificateExpired);
    assert_eq!(certificate(CertificateError::NotValidYet), FindingId::CertificateExpired);
    assert_eq!(certificate(CertificateError::NotValidForName), FindingId::CertificateWrongName);
    assert_eq!(certificate(CertificateError::UnknownIssuer), FindingId::CertificateUntrusted);
    assert_eq!(certificate(CertificateError::BadSignature), FindingId::CertificateUntrusted);
    assert_eq!(of(rustls::Error::DecryptError), FindingId::TlsFailed);
    let closed = tls(&io::Error::from(io::ErrorKind::UnexpectedEof), "here");
    assert_eq!(closed.id, FindingId::TlsToPlainPort);
    assert!(wants_client_certificate(&io::Error::other(rustls::Error::AlertReceived(
        AlertDescription::CertificateRequired
    ))));
}

#[test]
fn disk_is_read_only_full_or_closed() {
    for (kind, expected) in [
        (io::ErrorKind::ReadOnlyFilesystem, FindingId::DiskReadOnly),
        (io::ErrorKind::StorageFull, FindingId::DiskFull),
        (io::ErrorKind::QuotaExceeded, FindingId::DiskFull),
        (io::ErrorKind::PermissionDenied, FindingId::DiskNotWritable),
        (io::ErrorKind::NotFound, FindingId::DiskNotWritable),
    ] {
        assert_eq!(unwritable(&kind.into(), "audit.path").id, expected, "{kind}");
    }
    assert_eq!(room(64 << 20, "store.url"), None);
    assert_eq!(kind(room(1 << 20, "store.url").as_ref()), Some((FindingId::DiskFull, Severity::Warning)));
}

#[test]
fn limits_have_a_least() {
    assert_eq!((latency(SLOW), somaxconn(4096), somaxconn(1024)), (None, None, None));
    assert_eq!(kind(latency(SLOW * 2).as_ref()), Some((FindingId::StoreSlow, Severity::Warning)));
    assert_eq!(kind(somaxconn(128).as_ref()), Some((FindingId::SomaxconnLow, Severity::Warning)));
}

#[test]
fn other_versions_are_named() {
    let others = [("replica 1".to_owned(), "0.1.0"), ("replica 2".to_owned(), "0.0.9")];
    let found = versions("0.1.0", others.into_iter());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].what, "replica 2 is version 0.0.9, this program 0.1.0");
    let all: Vec<_> = (0..8).map(|index| (format!("w{index}"), "0.0.9".to_owned())).collect();
    let found = agents("0.1.0", &all).unwrap().what;
    assert!(found.starts_with("8 of 8 agents: w0 (0.0.9), ") && found.ends_with("w4 (0.0.9) and 3 more"), "{found}");
    assert_eq!(agents("0.0.9", &all), None);
}
