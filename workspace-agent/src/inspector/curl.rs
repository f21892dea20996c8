//! A request as a command for a shell in the workspace. Pure.

use super::exchange::Exchange;
use super::replay::is_own_field;

/// Writes the command; `None` if there is none that says the same: its body is not whole, or no text.
#[must_use]
pub(crate) fn command(exchange: &Exchange) -> Option<String> {
    let head = &exchange.request;
    let scheme = if exchange.is_tls { "https" } else { "http" };
    let mut lines = vec![format!("curl {}", quoted(&format!("{scheme}://127.0.0.1:{}{}", exchange.port, head.target)))];
    if exchange.is_tls {
        lines.push("--insecure".to_owned());
    }
    lines.push(format!("-X {}", quoted(&head.method)));
    let fields = head.fields.iter().filter(|field| !field.is_redacted && !is_own_field(&field.name));
    lines.extend(fields.map(|field| format!("-H {}", quoted(&format!("{}: {}", field.name, field.value)))));
    let body = &exchange.request_body;
    if body.length > 0 {
        let text = std::str::from_utf8(&body.bytes).ok().filter(|text| !body.is_cut() && !text.contains('\0'))?;
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
        let expected = "curl 'http://127.0.0.1:3000/orders?a=b%20c' \\\n  -X 'POST' \\\n  -H 'host: 3000-one.zone' \\\n  \
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
    fn request_that_is_not_known_whole_has_no_command() {
        assert_eq!(command(&samples::cut()), None);
    }
}
