//! Keys of certificates that the gateway gets for itself (RFC 8555).

use super::agents::YES_OR_NO;
use super::reader::Reader;
use super::value::ValueKind;
use super::{Acme, TlsFiles};
use gateway_types::PublicUrl;
use gateway_types::Zone;

const SWITCH: &str = "tls.acme.directory";

const DIRECTORY: ValueKind<String> = ValueKind {
    accepted: "the https URL of an ACME directory such as `https://acme-v02.api.letsencrypt.org/directory`",
    parse: |text| match url::Url::parse(text) {
        Ok(url) if url.scheme() == "https" && url.has_host() => Ok(url.into()),
        Ok(_) => Err("not an https URL".to_owned()),
        Err(error) => Err(error.to_string()),
    },
    show: ToString::to_string,
    secret: false,
};

const EMAIL: ValueKind<String> = ValueKind {
    accepted: "an e-mail address",
    parse: |text| match text.split_once('@') {
        Some((name, host)) if !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace) => {
            Ok(text.to_owned())
        }
        Some(_) | None => Err("not an e-mail address".to_owned()),
    },
    show: ToString::to_string,
    secret: false,
};

const NAMES: ValueKind<Vec<String>> = ValueKind {
    accepted: "DNS names with commas between them, perhaps beginning with `*.`",
    parse: |text| text.split(',').map(|name| parse_name(name.trim())).collect(),
    show: |names| names.join(", "),
    secret: false,
};

/// Reads the keys; `None` while no directory is named.
pub(super) fn read(reader: &mut Reader, public_url: &PublicUrl, zone: &Zone) -> Option<Acme> {
    let directory = reader.take_optional(SWITCH, &DIRECTORY);
    let email = reader.take_optional("tls.acme.email", &EMAIL);
    let names = reader.take_optional("tls.acme.names", &NAMES);
    let dns_hook = reader.take_path("tls.acme.dns_hook");
    let folder = reader.take_path_or("tls.acme.folder", "acme");
    let ca_file = reader.take_path("tls.acme.ca_file");
    let accepts_terms = reader.take("tls.acme.accept_terms", false, &YES_OR_NO);
    let others = [("tls.acme.email", email.is_some()), ("tls.acme.names", names.is_some())];
    let others = others.into_iter().chain([("tls.acme.dns_hook", dns_hook.is_some())]);
    let Some(directory) = directory else {
        if reader.is_sound(&[SWITCH]) {
            for (key, _) in others.filter(|(_, is_set)| *is_set) {
                reader.object(key, format!("needs {SWITCH} beside it"));
            }
        }
        return None;
    };
    if !accepts_terms && reader.is_sound(&["tls.acme.accept_terms"]) {
        reader.object("tls.acme.accept_terms", "must be true: read the authority's terms of service, then accept them");
    }
    let Some(dns_hook) = dns_hook else {
        if reader.is_sound(&["tls.acme.dns_hook"]) {
            reader.object(SWITCH, "needs tls.acme.dns_hook beside it, a program that sets DNS records");
        }
        return None;
    };
    let is_local = |host: &str| host == "localhost" || host.ends_with(".localhost");
    if names.is_none() && (is_local(public_url.host()) || is_local(zone.as_str())) {
        reader.object(SWITCH, "needs public_url and zone, or tls.acme.names: no authority vouches for localhost");
    }
    let names = names.unwrap_or_else(|| vec![public_url.host().to_owned(), format!("*.{zone}")]);
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
