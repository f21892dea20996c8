//! `gateway replicas certificate`: a certificate for `tls.peers`, of an authority whose key is at hand.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{CertificateArgs, Cli, Console, Exit};
use gateway_net::peers::issue;

/// Reads the authority, and writes certificate, key and authority into the folder.
pub(super) fn make(cli: &Cli, args: &CertificateArgs, env: &BTreeMap<String, String>, console: &mut Console) -> Exit {
    let config = match cli.load_config(env) {
        Ok(config) => config,
        Err(bad) => {
            console.complain(bad);
            return Exit::BadConfig;
        }
    };
    let CertificateArgs { ca, ca_key, out } = args;
    // `ca.crt` alone may be where the authority's certificate is already.
    let mut given =
        vec![(ca_key, "tls.crt"), (ca_key, "tls.key"), (ca_key, "ca.crt"), (ca, "tls.crt"), (ca, "tls.key")];
    given.retain(|(file, name)| is_one(file, &out.join(name)));
    if let Some((_, name)) = given.first() {
        console.complain(format_args!("{name} in {} is the authority's own file: name another folder", out.display()));
        return Exit::Failed;
    }
    let made = read(ca).and_then(|authority| {
        let key = read(ca_key)?;
        let issued = issue(&authority, &key, &config.zone).map_err(|error| format!("{}: {error}", ca.display()))?;
        write(&out.join("tls.crt"), &issued.certificate)?;
        write(&out.join("tls.key"), &issued.key)?;
        write(&out.join("ca.crt"), &authority)
    });
    match made {
        Ok(()) => {
            console.hint(format_args!("tls.crt, tls.key and ca.crt are in {}", out.display()));
            Exit::Success
        }
        Err(wrong) => {
            console.complain(wrong);
            Exit::Failed
        }
    }
}

/// Returns whether two paths lead to one file.
fn is_one(path: &Path, other: &Path) -> bool {
    matches!((path.canonicalize(), other.canonicalize()), (Ok(path), Ok(other)) if path == other)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Puts a file in place as a whole, which only its user can read.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = path.with_extension("new");
    let put = || -> io::Result<()> {
        // One that is there may be readable for others, or a link.
        match fs::remove_file(&written) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&written)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&written, path)
    };
    put().map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
