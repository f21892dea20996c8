//! Certificates of another program's making, and bytes of nobody's.

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};

use super::*;

fn uri(text: &str) -> SanType {
    SanType::URI(text.to_owned().try_into().expect("ASCII"))
}

fn made(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2030, 2, 3);
    change(&mut params);
    params.self_signed(&KeyPair::generate().expect("a key")).expect("signed").der().clone()
}

fn read(change: impl FnOnce(&mut CertificateParams)) -> Certificate {
    Certificate::read(&made(change)).expect("a certificate")
}

#[test]
fn what_counts_of_a_certificate_is_found() {
    let certificate = read(|params| {
        params.subject_alt_names.push(uri("spiffe://a/workspace/b"));
        params.subject_alt_names.push(uri("https://example.com/x"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert_eq!(certificate.uris, ["spiffe://a/workspace/b".into(), "https://example.com/x".into()]);
    assert!(certificate.is_for_clients && !certificate.is_authority);
    assert_eq!(certificate.not_after.to_string(), "2030-02-03T00:00:00Z");
    assert_eq!(certificate.fingerprint.len(), 32);
}

#[test]
fn purpose_that_is_not_named_is_none() {
    assert!(!read(|_| {}).is_for_clients, "no purpose");
    assert!(!read(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]).is_for_clients);
    assert!(!read(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any]).is_for_clients);
}

#[test]
fn authority_is_told_from_a_leaf() {
    assert!(read(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)).is_authority);
    assert!(read(|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))).is_authority);
    assert!(!read(|params| params.is_ca = IsCa::ExplicitNoCa).is_authority);
}

/// Writes an extension of a certificate by its object identifier.
fn extension(id: &[u64], value: &[u8]) -> CustomExtension {
    CustomExtension::from_oid_content(id, value.to_vec())
}

const ALTERNATIVE_NAMES: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const PURPOSES: &[u64] = &[2, 5, 29, 37];

#[test]
fn both_spellings_of_time_are_read() {
    let until = |year, month, day| {
        let read = read(|params| params.not_after = rcgen::date_time_ymd(year, month, day));
        read.not_after.to_string()
    };
    // The first is written with two digits of its year, the others with four (RFC 5280, section 4.1.2.5).
    assert_eq!(until(2049, 12, 31), "2049-12-31T00:00:00Z");
    assert_eq!(until(2050, 1, 1), "2050-01-01T00:00:00Z");
    assert_eq!(until(2051, 1, 1), "2051-01-01T00:00:00Z");
    assert_eq!(until(2400, 2, 29), "2400-02-29T00:00:00Z");
    assert_eq!(until(9999, 12, 31), "9999-12-31T00:00:00Z");
}

/// Writes the end of the validity of a certificate anew, in as many bytes.
fn until(text: &[u8]) -> Option<String> {
    let mut bytes = made(|_| {}).to_vec();
    let written = b"300203000000Z";
    let at = bytes.windows(written.len()).position(|window| window == written).expect("the time");
    bytes[at..at + written.len()].copy_from_slice(text);
    Certificate::read(&bytes).ok().map(|read| read.not_after.to_string())
}

#[test]
fn times_of_no_calendar_are_refused() {
    assert_eq!(until(b"491231235959Z").as_deref(), Some("2049-12-31T23:59:59Z"));
    assert_eq!(until(b"500101000000Z").as_deref(), Some("1950-01-01T00:00:00Z"));
    for text in
        [b"491331235959Z", b"490230000000Z", b"490100000000Z", b"491231240000Z", b"491231235959X", b"4912312359x9Z"]
    {
        assert_eq!(until(text), None, "{}", String::from_utf8_lossy(text));
    }
}

#[test]
fn extension_that_is_there_twice_names_nobody() {
    let twice =
        made(|params| params.custom_extensions = vec![extension(&[1, 2, 3], &[5, 0]), extension(&[1, 2, 3], &[5, 0])]);
    assert_eq!(Certificate::read(&twice), Err(BadCertificate("extensions")));
}

#[test]
fn extension_that_counts_and_cannot_be_read_is_refused_by_name() {
    let refused = |id, value| {
        let bytes = made(|params| {
            params.subject_alt_names.clear();
            params.custom_extensions = vec![extension(id, value)];
        });
        Certificate::read(&bytes).map_err(|bad| bad.0)
    };
    assert_eq!(refused(PURPOSES, &[0x04, 1, 0]), Err("purposes"));
    assert_eq!(refused(BASIC_CONSTRAINTS, &[0x04, 1, 0]), Err("basic constraints"));
    assert_eq!(refused(ALTERNATIVE_NAMES, &[0x04, 1, 0]), Err("alternative names"));
    // Names with a space, and with a byte that is no text.
    assert_eq!(refused(ALTERNATIVE_NAMES, &[0x30, 5, 0x86, 3, b'a', b' ', b'b']), Err("alternative names"));
    assert_eq!(refused(ALTERNATIVE_NAMES, &[0x30, 5, 0x86, 3, b'a', 0xff, b'b']), Err("alternative names"));
    let long = [&[0x30, 0x82, 0x08, 0x05, 0x86, 0x82, 0x08, 0x01][..], &[b'a'; 2049]].concat();
    assert_eq!(refused(ALTERNATIVE_NAMES, &long), Err("alternative names"));
    // What does not count is not looked into.
    assert!(refused(&[1, 2, 3], &[0xff]).is_ok());
}

#[test]
fn bytes_behind_a_certificate_are_refused() {
    let mut bytes = made(|_| {}).to_vec();
    bytes.push(0);
    assert_eq!(Certificate::read(&bytes), Err(BadCertificate("outermost sequence")));
}

#[test]
fn chain_counts_for_as_long_as_its_shortest_part() {
    let chain = [made(|_| {}), made(|params| params.not_after = rcgen::date_time_ymd(2025, 1, 1))];
    let leaf = Certificate::of_chain(&chain).expect("readable").expect("a leaf");
    assert_eq!(leaf.not_after.to_string(), "2025-01-01T00:00:00Z");
    assert_eq!(Certificate::of_chain(&[]), Ok(None));
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes: Vec<u8>) {
        drop(Certificate::read(&bytes));
    }

    #[test]
    fn any_change_of_a_certificate_is_answered(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = made(|params| params.subject_alt_names.push(uri("spiffe://a/workspace/b"))).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        drop(Certificate::read(&bytes));
        bytes.truncate(cut.index(bytes.len()));
        drop(Certificate::read(&bytes));
    }
}
