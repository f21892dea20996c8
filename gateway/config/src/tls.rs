//! Keys of `tls`: certificate files of the two listeners.

use std::path::PathBuf;

use super::Acme;
use super::agents::MTLS;
use super::keys::{Key, keys};
use super::reader::Reader;
use super::value::FILE_PATH;

/// Certificates per listener; `None` means plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// For `listen.public`.
    pub public: Option<TlsFiles>,
    /// For `listen.agents`.
    pub agents: Option<TlsFiles>,
    /// Certificates for `public` that the gateway gets for itself.
    pub acme: Option<Acme>,
}

/// PEM files of one TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// A folder with more pairs of them.
    pub certs_dir: Option<PathBuf>,
    /// Authorities whose client certificates count; only for agents.
    pub client_ca: Option<ClientCa>,
}

/// The authorities of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCa {
    /// Their certificates.
    pub file: PathBuf,
    /// Refuses connections without a client certificate.
    pub required: bool,
}

keys! {
    TLS_PUBLIC: TlsPublicKeys below "tls.public." {
        /// Certificate of `listen.public`, leaf first, for the host of `public_url` and `*.ZONE`. Read again when it
        /// changes.
        cert: PathBuf = FILE_PATH, optional;
        /// Private key of the certificate.
        key: PathBuf = FILE_PATH, optional;
        /// Folder with more certificates: each `NAME.crt` or `NAME.pem` with its `NAME.key`, used for the names in it.
        certs_dir: PathBuf = FILE_PATH, optional;
    }
}

keys! {
    TLS_AGENTS: TlsAgentsKeys below "tls.agents." {
        /// Certificate of `listen.agents`. Read again when it changes.
        cert: PathBuf = FILE_PATH, optional;
        /// Private key of the certificate.
        key: PathBuf = FILE_PATH, optional;
        /// Folder with more certificates, as for `tls.public.certs_dir`.
        certs_dir: PathBuf = FILE_PATH, optional;
        /// Authorities whose client certificates prove the identity of agents.
        client_ca: PathBuf = FILE_PATH, optional;
    }
}

type PathKey = Key<PathBuf, Option<PathBuf>>;

/// Reads the keys.
pub(super) fn read(reader: &mut Reader) -> Tls {
    Tls {
        public: read_files(reader, [&TLS_PUBLIC.cert, &TLS_PUBLIC.key, &TLS_PUBLIC.certs_dir], None),
        agents: read_files(
            reader,
            [&TLS_AGENTS.cert, &TLS_AGENTS.key, &TLS_AGENTS.certs_dir],
            Some(&TLS_AGENTS.client_ca),
        ),
        acme: None,
    }
}

fn read_files(
    reader: &mut Reader,
    [cert_key, key_key, dir_key]: [&PathKey; 3],
    client_ca_key: Option<&PathKey>,
) -> Option<TlsFiles> {
    let cert = reader.take(cert_key);
    let key = reader.take(key_key);
    let certs_dir = reader.take(dir_key);
    let client_ca = client_ca_key.and_then(|key| read_client_ca(reader, key));
    if !reader.is_sound(&[&cert_key.name, &key_key.name]) {
        return None;
    }
    match (cert, key) {
        (Some(cert), Some(key)) => return Some(TlsFiles { cert, key, certs_dir, client_ca }),
        (Some(_), None) => reader.object(cert_key, format!("needs {key_key} beside it")),
        (None, Some(_)) => reader.object(key_key, format!("needs {cert_key} beside it")),
        (None, None) => {
            let alone = client_ca_key.filter(|_| client_ca.is_some()).or(certs_dir.map(|_| dir_key));
            if let Some(alone) = alone {
                reader.object(alone, format!("needs {cert_key} and {key_key} beside it"));
            }
        }
    }
    None
}

fn read_client_ca(reader: &mut Reader, key: &PathKey) -> Option<ClientCa> {
    let file = reader.take(key);
    let required = reader.take(&MTLS.required);
    if required && file.is_none() {
        reader.object(&MTLS.required, format!("needs {key}: no authority says which certificates count"));
    }
    Some(ClientCa { file: file?, required })
}
