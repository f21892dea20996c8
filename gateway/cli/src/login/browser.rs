//! The desktop around a command, if there is one.

use std::process::{Command, Stdio};

/// Opens an address with the desktop's own program, if there is a desktop. It is neither waited for nor is its failure
/// reported: the address is printed all the same.
pub(crate) fn open(address: &str) {
    // A server's text is not handed to a desktop that might take it for a file or a program.
    let is_web = address.starts_with("http://") || address.starts_with("https://");
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'`' | b'\\'));
    let opener = if cfg!(target_os = "macos") {
        Some("open")
    } else if ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    {
        Some("xdg-open")
    } else {
        None
    };
    if let Some(opener) = opener.filter(|_| is_web && is_plain) {
        let mut command = Command::new(opener);
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(command.spawn());
    }
}

/// Returns a description of this machine: user, host and system, as far as they are known.
pub(super) fn machine() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).filter(|name| !name.is_empty());
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok().filter(|name| !name.is_empty());
    let named = match (user, host) {
        (Some(user), Some(host)) => format!("{user}@{host}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "a machine".to_owned(),
    };
    format!("{named} ({})", std::env::consts::OS)
}
