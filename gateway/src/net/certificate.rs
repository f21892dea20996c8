//! The few facts of a client's certificate that say who it is: its URIs, what it may be used for, and until when.
//!
//! TLS has verified the chain before anything is read here, so this only has to find the fields of RFC 5280. What it does
//! not understand it refuses: a certificate that two readers could read in two ways names nobody.

mod date;
mod der;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use self::der::{Der, Tag};
use crate::model::UnixSeconds;

/// Object identifiers of extensions (RFC 5280, sections 4.2.1.6, 4.2.1.9 and 4.2.1.12), without tag and length.
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];

/// `id-kp-clientAuth` (RFC 5280, section 4.2.1.12).
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// Longest URI that is looked at, in bytes: that of a SPIFFE ID.
const URI_BYTES_MAX: usize = 2048;

/// What a client's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The URIs among its alternative names, as they are written there.
    pub uris: Vec<Box<str>>,
    /// It names client authentication among its purposes. One that names no purpose is not for clients.
    pub is_for_clients: bool,
    /// It may sign others.
    pub is_authority: bool,
    /// The last second in which it counts.
    pub not_after: UnixSeconds,
    /// The beginning of its SHA-256, in hexadecimal: what audit records call it.
    pub fingerprint: Box<str>,
}

/// A certificate could not be read in one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the certificate's {0} cannot be read")]
pub struct BadCertificate(&'static str);

impl Certificate {
    /// Reads the leaf of a verified chain. It counts no longer than the certificates that came with it.
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
        let mut signed = whole(certificate, "outermost sequence")?;
        let mut fields = Der::new(signed.take(Tag::SEQUENCE).ok_or(BadCertificate("signed part"))?);
        let not_after = skip_to_validity(&mut fields).ok_or(BadCertificate("validity"))?;
        let mut read = Self {
            uris: Vec::new(),
            is_for_clients: false,
            is_authority: false,
            not_after,
            fingerprint: fingerprint(certificate),
        };
        // Subject and key, and the two optional identifiers that nobody uses.
        for tag in [Tag::SEQUENCE, Tag::SEQUENCE] {
            fields.take(tag).ok_or(BadCertificate("subject or key"))?;
        }
        fields.take(Tag::ISSUER_ID);
        fields.take(Tag::SUBJECT_ID);
        let Some(extensions) = fields.take(Tag::EXTENSIONS) else { return Ok(read) };
        let mut extensions = whole(extensions, "extensions")?;
        let mut seen = Vec::new();
        while !extensions.is_empty() {
            let extension = extensions.take(Tag::SEQUENCE).ok_or(BadCertificate("extensions"))?;
            let mut extension = Der::new(extension);
            let id = extension.take(Tag::OBJECT_ID).ok_or(BadCertificate("extensions"))?;
            extension.take(Tag::BOOLEAN);
            let value = extension.take(Tag::OCTETS).ok_or(BadCertificate("extensions"))?;
            // RFC 5280, section 4.2: none may come twice.
            if !extension.is_empty() || seen.contains(&id) {
                return Err(BadCertificate("extensions"));
            }
            seen.push(id);
            read.take_extension(id, value)?;
        }
        Ok(read)
    }

    fn take_extension(&mut self, id: &[u8], value: &[u8]) -> Result<(), BadCertificate> {
        match id {
            SUBJECT_ALTERNATIVE_NAME => {
                let bad = BadCertificate("alternative names");
                let mut names = whole(value, "alternative names")?;
                while !names.is_empty() {
                    let (tag, name) = names.next().ok_or(bad)?;
                    if tag == Tag::URI {
                        let is_text = name.len() <= URI_BYTES_MAX && name.iter().all(u8::is_ascii_graphic);
                        let uri = std::str::from_utf8(name).ok().filter(|_| is_text).ok_or(bad)?;
                        self.uris.push(uri.into());
                    }
                }
            }
            EXTENDED_KEY_USAGE => {
                let mut purposes = whole(value, "purposes")?;
                while !purposes.is_empty() {
                    let purpose = purposes.take(Tag::OBJECT_ID).ok_or(BadCertificate("purposes"))?;
                    self.is_for_clients |= purpose == CLIENT_AUTH;
                }
            }
            BASIC_CONSTRAINTS => {
                let mut constraints = whole(value, "basic constraints")?;
                self.is_authority = constraints.take(Tag::BOOLEAN).is_some_and(|is| is == [0xff]);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Opens a sequence behind which nothing may come.
fn whole<'a>(bytes: &'a [u8], what: &'static str) -> Result<Der<'a>, BadCertificate> {
    let mut outer = Der::new(bytes);
    let inside = outer.take(Tag::SEQUENCE).filter(|_| outer.is_empty()).ok_or(BadCertificate(what))?;
    Ok(Der::new(inside))
}

/// Passes over version, number, algorithm and issuer; returns the end of the validity.
fn skip_to_validity(fields: &mut Der<'_>) -> Option<UnixSeconds> {
    fields.take(Tag::VERSION);
    fields.take(Tag::INTEGER)?;
    fields.take(Tag::SEQUENCE)?;
    fields.take(Tag::SEQUENCE)?;
    let mut validity = Der::new(fields.take(Tag::SEQUENCE)?);
    time(validity.next()?)?;
    let not_after = time(validity.next()?)?;
    validity.is_empty().then_some(not_after)
}

/// Reads a time in one of the two spellings of RFC 5280, section 4.1.2.5, both of which end in `Z` and have seconds.
fn time((tag, text): (Tag, &[u8])) -> Option<UnixSeconds> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pairs: Vec<i64> = digits.chunks(2).map(number).collect();
    let (year, rest) = match (tag, pairs.as_slice()) {
        (Tag::UTC_TIME, [year, rest @ ..]) => (if *year < 50 { 2000 + year } else { 1900 + year }, rest),
        (Tag::GENERALIZED_TIME, [century, year, rest @ ..]) => (century * 100 + year, rest),
        _ => return None,
    };
    let [month, day, hour, minute, second] = *rest else { return None };
    if digits.len() % 2 != 0 {
        return None;
    }
    date::seconds([year, month, day], [hour, minute, second])
}

fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit.wrapping_sub(b'0')))
}

fn fingerprint(certificate: &[u8]) -> Box<str> {
    let hash = digest(&SHA256, certificate);
    hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
