//! Certificates of replicas, made where the key of their authority is at hand: each process start may have one of its own.

use gateway_types::Zone;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::replica_uri;
use crate::certificate::Certificate;

/// A replica's certificate and its key, in PEM.
#[derive(Debug)]
pub struct IssuedCertificate {
    /// The certificate. It is valid for as long as its authority.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Reason why no certificate is made.
#[derive(Debug, Error)]
pub enum IssueError {
    /// The authority's file holds no certificate.
    #[error("the authority holds no certificate in PEM")]
    NoCertificate,
    /// What was given as the authority may not sign.
    #[error("the authority's certificate is not one that may sign others")]
    NotAuthority,
    /// The key cannot be read.
    #[error("the authority's key cannot be used: {0}")]
    Key(rcgen::Error),
    /// The key belongs to another certificate.
    #[error("the key is not that of the authority's certificate")]
    OtherKey,
    /// The certificate cannot be made.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// Makes a certificate with a new key for a replica of this zone. `authority` and `key` are in PEM.
///
/// # Errors
/// [`IssueError`] says which of the two is wrong.
pub fn issue(authority: &str, key: &str, zone: &Zone) -> Result<IssuedCertificate, IssueError> {
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).map_err(|_| IssueError::NoCertificate)?;
    let (_, parsed) = X509Certificate::from_der(&authority).map_err(|_| IssueError::NoCertificate)?;
    if !Certificate::read(&authority).is_ok_and(|read| read.is_authority) {
        return Err(IssueError::NotAuthority);
    }
    let key = KeyPair::from_pem(key).map_err(IssueError::Key)?;
    if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
        return Err(IssueError::OtherKey);
    }
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "replica");
    params.subject_alt_names = vec![SanType::URI(replica_uri(zone).as_str().try_into()?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = parsed.validity().not_before.to_datetime();
    params.not_after = parsed.validity().not_after.to_datetime();
    let own = KeyPair::generate()?;
    let signed = params.signed_by(&own, &Issuer::from_ca_cert_der(&authority, key)?)?;
    Ok(IssuedCertificate { certificate: signed.pem(), key: own.serialize_pem() })
}
