//! Errors with their causes in one line, each cause once, and remedies for the usual ones.

use std::error::Error;
use std::io;

use rustls::{CertificateError, InvalidMessage};

/// Writes an error with its causes on one line. A cause whose words the line ends with already is left out: libraries
/// differ in whether an error repeats its cause.
#[must_use]
pub fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !words.is_empty() && !line.ends_with(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
        next = cause.source();
    }
    line
}

/// Returns the remedy for a failed TLS handshake, if there is one. `ca_option` is this program's option for an
/// authority to trust, such as `--ca-file`.
#[must_use]
pub fn tls_remedy(error: &(dyn Error + 'static), ca_option: &str) -> Option<String> {
    let error = tls_error(error)?;
    if matches!(error, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) {
        return Some(
            "the other side answers without TLS: begin the URL with http://, or name the port that has TLS".to_owned(),
        );
    }
    let is_unknown = matches!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
    is_unknown.then(|| format!("no trusted authority signed its certificate: name that authority with {ca_option}"))
}

/// Adds the remedy to the line of an error, if it is a known one of TLS.
#[must_use]
pub fn with_remedy(error: &(dyn Error + 'static), ca_option: &str) -> String {
    let line = one_line(error);
    match tls_remedy(error, ca_option) {
        Some(remedy) => format!("{line} ({remedy})"),
        None => line,
    }
}

/// Finds the TLS error among the causes. An I/O error that wraps another one does not name it as its source.
#[must_use]
pub fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("missing.token: {0}")]
    struct Repeats(#[source] io::Error);

    #[derive(Debug, Error)]
    #[error("the handshake failed")]
    struct Failed(#[source] io::Error);

    #[test]
    fn cause_that_is_in_the_line_already_is_not_repeated() {
        let error = Repeats(io::Error::from_raw_os_error(2));
        assert_eq!(one_line(&error), "missing.token: No such file or directory (os error 2)");
        let error = Failed(io::Error::other("broken"));
        assert_eq!(one_line(&error), "the handshake failed: broken");
    }

    #[test]
    fn usual_failures_of_tls_say_what_to_do() {
        let of = |error: rustls::Error| with_remedy(&Failed(io::Error::other(error)), "--ca-file");
        let line = of(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(line.starts_with("the handshake failed: ") && line.contains("http://"), "{line}");
        let line = of(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(line.ends_with("name that authority with --ca-file)"), "{line}");
        assert!(!of(rustls::Error::DecryptError).contains('('));
    }
}
