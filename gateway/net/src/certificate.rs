//! Identity of a client's certificate: its URIs, its purposes, and its last second.
//!
//! TLS has verified the chain before anything is read here, so this only finds the fields of RFC 5280. Unreadable or
//! duplicate fields are refused: a certificate that two readers could read in two ways identifies no client.

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_X509_EXT_BASIC_CONSTRAINTS;
use x509_parser::prelude::{FromDer, X509Certificate};

use gateway_types::{UnixSeconds, hexadecimal};

/// Longest URI that is read, in bytes: that of a SPIFFE ID.
const URI_BYTES_MAX: usize = 2048;

/// Fields of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// URIs among its alternative names, as they are written there.
    pub uris: Vec<Box<str>>,
    /// Whether its purposes include client authentication. One without purposes is not for clients.
    pub is_for_clients: bool,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// Last second in which it is valid.
    pub not_after: UnixSeconds,
    /// Beginning of its SHA-256, in hexadecimal; its name in audit records.
    pub fingerprint: Box<str>,
}

/// A certificate could not be read in one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the certificate's {0} cannot be read")]
pub struct BadCertificate(&'static str);

impl Certificate {
    /// Reads the leaf of a verified chain. It is valid no longer than the certificates that came with it.
    ///
    /// # Errors
    /// [`BadCertificate`] names the field.
    pub fn of_chain(chain: &[CertificateDer<'_>]) -> Result<Option<Self>, BadCertificate> {
        let Some((leaf, above)) = chain.split_first() else { return Ok(None) };
        let mut read = Self::read(leaf)?;
        for certificate in above {
            read.not_after = read.not_after.min(Self::read(certificate)?.not_after);
        }
        Ok(Some(read))
    }

    /// Reads one certificate.
    ///
    /// # Errors
    /// [`BadCertificate`] names the field.
    pub fn read(certificate: &[u8]) -> Result<Self, BadCertificate> {
        let parsed = X509Certificate::from_der(certificate).ok().filter(|(rest, _)| rest.is_empty());
        let (_, parsed) = parsed.ok_or(BadCertificate("outermost sequence"))?;
        // RFC 5280, section 4.2: no extension may occur twice.
        parsed.extensions_map().map_err(|_| BadCertificate("extensions"))?;
        let purposes = parsed.extended_key_usage().map_err(|_| BadCertificate("purposes"))?;
        Ok(Self {
            uris: uris(&parsed)?,
            is_for_clients: purposes.is_some_and(|purposes| purposes.value.client_auth),
            is_authority: is_authority(&parsed)?,
            not_after: UnixSeconds::new(parsed.validity().not_after.timestamp()),
            fingerprint: fingerprint(certificate),
        })
    }
}

/// Reads the URIs of the alternative names (RFC 5280, section 4.2.1.6).
fn uris(certificate: &X509Certificate<'_>) -> Result<Vec<Box<str>>, BadCertificate> {
    let bad = BadCertificate("alternative names");
    let Some(names) = certificate.subject_alternative_name().map_err(|_| bad)? else { return Ok(Vec::new()) };
    let mut uris = Vec::new();
    for name in &names.value.general_names {
        match name {
            GeneralName::URI(uri) => {
                let is_text = uri.len() <= URI_BYTES_MAX && uri.bytes().all(|byte| byte.is_ascii_graphic());
                uris.push(is_text.then(|| (*uri).into()).ok_or(bad)?);
            }
            GeneralName::Invalid(..) => return Err(bad),
            GeneralName::OtherName(..)
            | GeneralName::RFC822Name(_)
            | GeneralName::DNSName(_)
            | GeneralName::X400Address(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EDIPartyName(_)
            | GeneralName::IPAddress(_)
            | GeneralName::RegisteredID(_) => {}
        }
    }
    Ok(uris)
}

/// Reads the basic constraints (RFC 5280, section 4.2.1.9). The library's own look-up takes unreadable constraints for
/// absent ones.
fn is_authority(certificate: &X509Certificate<'_>) -> Result<bool, BadCertificate> {
    let bad = BadCertificate("basic constraints");
    let constraints = certificate.get_extension_unique(&OID_X509_EXT_BASIC_CONSTRAINTS).map_err(|_| bad)?;
    let Some(constraints) = constraints else { return Ok(false) };
    let ParsedExtension::BasicConstraints(constraints) = constraints.parsed_extension() else { return Err(bad) };
    Ok(constraints.ca)
}

fn fingerprint(certificate: &[u8]) -> Box<str> {
    let hash = digest(&SHA256, certificate);
    hexadecimal(hash.as_ref().get(..16).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests;
