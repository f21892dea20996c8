//! Keys of `tls.acme`: certificates that the gateway gets for itself (RFC 8555).

use std::path::PathBuf;

use super::TlsFiles;
use super::keys::{keys, section};
use super::reader::Reader;
use super::sections::SITE;
use super::value::{FILE_PATH, ValueKind, YES_OR_NO};
use gateway_types::{PublicUrl, Zone};

const DIRECTORY: ValueKind<String> = ValueKind::new(
    "the https URL of an ACME directory such as `https://acme-v02.api.letsencrypt.org/directory`",
    |text| match url::Url::parse(text) {
        Ok(url) if url.scheme() == "https" && url.has_host() => Ok(url.into()),
        Ok(_) => Err("not an https URL".to_owned()),
        Err(error) => Err(error.to_string()),
    },
    ToString::to_string,
);

const EMAIL: ValueKind<String> = ValueKind::new(
    "an e-mail address",
    |text| match text.split_once('@') {
        Some((name, host)) if !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace) => {
            Ok(text.to_owned())
        }
        Some(_) | None => Err("not an e-mail address".to_owned()),
    },
    ToString::to_string,
);

const NAMES: ValueKind<Vec<String>> = ValueKind::new(
    "DNS names with commas between them, perhaps beginning with `*.`",
    |text| text.split(',').map(|name| parse_name(name.trim())).collect(),
    |names| names.join(", "),
);

section! {
    /// Certificates that the gateway obtains for itself (RFC 8555), with the challenge `dns-01`.
    pub struct Acme, ACME: AcmeKeys below "tls.acme." {
        /// Directory of the authority from which the gateway gets its own certificates (RFC 8555), with the challenge
        /// `dns-01`.
        directory: String = DIRECTORY, open;
        /// Contact address for the authority.
        email: String = EMAIL, optional;
        /// Names of the certificate; the hosts of `public_url` and `paths_url`, and `*.ZONE`, unless set.
        names: Vec<String> = NAMES, open;
        /// Program that is called with `present` or `cleanup`, a name and a value, and sets or removes that TXT record.
        dns_hook: PathBuf = FILE_PATH, open;
        /// Folder of the account and the certificate.
        folder: PathBuf = FILE_PATH, or PathBuf::from("acme");
        /// Trust anchors for the authority's own server, beside the system's.
        ca_file: PathBuf = FILE_PATH, optional;
    } also {}
}

keys! {
    TERMS: TermsKeys below "tls.acme." {
        /// Confirmation that the authority's terms of service were read and accepted.
        accept_terms: bool = YES_OR_NO, or false;
    }
}

/// Reads the keys; `None` while no directory is named.
pub(super) fn read(
    reader: &mut Reader,
    public_url: &PublicUrl,
    paths_url: Option<&PublicUrl>,
    zone: &Zone,
) -> Option<Acme> {
    let directory = reader.take(&ACME.directory);
    let email = reader.take(&ACME.email);
    let names = reader.take(&ACME.names);
    let dns_hook = reader.take(&ACME.dns_hook);
    let folder = reader.take(&ACME.folder);
    let ca_file = reader.take(&ACME.ca_file);
    let accepts_terms = reader.take(&TERMS.accept_terms);
    let Some(directory) = directory else {
        if reader.is_sound(&[&ACME.directory.name]) {
            let others = [&ACME.email.name, &ACME.names.name, &ACME.dns_hook.name];
            reader.object_to_set(&others, &format!("needs {} beside it", ACME.directory));
        }
        return None;
    };
    if !accepts_terms && reader.is_sound(&[&TERMS.accept_terms.name]) {
        reader.object(&TERMS.accept_terms, "must be true: read the authority's terms of service, then accept them");
    }
    let Some(dns_hook) = dns_hook else {
        if reader.is_sound(&[&ACME.dns_hook.name]) {
            let wrong = format!("needs {} beside it, a program that sets DNS records", ACME.dns_hook);
            reader.object(&ACME.directory, wrong);
        }
        return None;
    };
    let is_local = |host: &str| host == "localhost" || host.ends_with(".localhost");
    if names.is_none() && (is_local(public_url.host()) || is_local(zone.as_str())) {
        let wrong = format!(
            "needs {} and {}, or {}: no authority vouches for localhost",
            SITE.public_url, SITE.zone, ACME.names
        );
        reader.object(&ACME.directory, wrong);
    }
    let names = names.unwrap_or_else(|| {
        let mut names = vec![public_url.host().to_owned(), format!("*.{zone}")];
        names.extend(paths_url.map(|url| url.host().to_owned()));
        names
    });
    Some(Acme { directory, email, names, dns_hook, folder, ca_file })
}

/// Returns the future paths of the certificate and its key.
pub(super) fn files(acme: &Acme) -> TlsFiles {
    TlsFiles { cert: acme.folder.join("cert.pem"), key: acme.folder.join("key.pem"), certs_dir: None, client_ca: None }
}

fn parse_name(name: &str) -> Result<String, String> {
    let zone: Result<Zone, _> = name.strip_prefix("*.").unwrap_or(name).parse();
    zone.map(|_| name.to_owned()).map_err(|_| format!("{name:?} is not a DNS name"))
}
