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

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Puts a file in place as a whole, which only its user can read.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let written = path.with_extension("new");
    let put = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&written)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&written, path)
    };
    put().map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
