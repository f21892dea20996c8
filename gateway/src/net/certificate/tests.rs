//! Certificates of another program's making, and bytes of nobody's.

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};

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

#[test]
fn both_spellings_of_time_are_read() {
    let late = read(|params| params.not_after = rcgen::date_time_ymd(2051, 1, 1));
    assert_eq!(late.not_after.to_string(), "2051-01-01T00:00:00Z");
    let at = |tag, text: &str| time((tag, text.as_bytes())).map(|time| time.to_string());
    assert_eq!(at(Tag::UTC_TIME, "491231235959Z").as_deref(), Some("2049-12-31T23:59:59Z"));
    assert_eq!(at(Tag::UTC_TIME, "500101000000Z").as_deref(), Some("1950-01-01T00:00:00Z"));
    assert_eq!(at(Tag::GENERALIZED_TIME, "99991231235959Z").as_deref(), Some("9999-12-31T23:59:59Z"));
    for text in ["491231235959", "4912312359Z", "491331235959Z", "49123123595Z", "+91231235959Z", "", "Z"] {
        assert_eq!(at(Tag::UTC_TIME, text), None, "{text:?}");
    }
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
