//! Reasons of failed exchanges, as keys that can be counted.

use std::io;

/// Name of the header by which the gateway names its own failures.
const CODE_HEADER: &str = "gateway-error";

/// Codes of the gateway's failures.
const CODES: [&str; 15] = [
    "no_such_host",
    "sign_in_required",
    "port_not_allowed",
    "workspace_stopped",
    "agent_absent",
    "port_closed",
    "open_timeout",
    "response_timeout",
    "session_lost",
    "overloaded",
    "draining",
    "bad_request",
    "header_too_large",
    "misdirected",
    "internal",
];

/// A failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeFailure {
    /// Reason, as a key to count by.
    pub why: &'static str,
    /// Whether the connection is of no use any more.
    pub lost: bool,
}

impl ExchangeFailure {
    /// Makes a failure after which the connection is gone.
    #[must_use]
    pub const fn lost(why: &'static str) -> Self {
        Self { why, lost: true }
    }

    /// Makes a failure that leaves the connection usable.
    #[must_use]
    pub const fn kept(why: &'static str) -> Self {
        Self { why, lost: false }
    }

    /// Names a failure to connect.
    #[must_use]
    pub fn connecting(error: &io::Error) -> Self {
        // Only kinds that reports tell apart; everything else has the common name.
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's kinds grow")]
        Self::lost(match error.kind() {
            io::ErrorKind::ConnectionRefused => "connect_refused",
            io::ErrorKind::TimedOut => "connect_timeout",
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => "connect_reset",
            io::ErrorKind::AddrNotAvailable => "no_local_port_left",
            io::ErrorKind::InvalidData => match tls(error) {
                Some(rustls::Error::InvalidCertificate(_)) => "tls_refused",
                Some(_) | None => "tls",
            },
            _ => "connect",
        })
    }

    /// Names a failure of an open connection.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's kinds grow")]
        Self::lost(match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => "reset",
            io::ErrorKind::UnexpectedEof => "closed",
            io::ErrorKind::TimedOut => "timeout",
            _ => "io",
        })
    }

    /// Names a failed request of an HTTP connection.
    #[must_use]
    pub fn of_http(error: &hyper::Error) -> Self {
        let mut source: Option<&dyn std::error::Error> = Some(error);
        while let Some(cause) = source {
            if let Some(error) = cause.downcast_ref::<io::Error>() {
                return Self::of_io(error);
            }
            source = cause.source();
        }
        Self::lost(if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
            "closed"
        } else if error.is_parse() {
            "not_http"
        } else {
            "http"
        })
    }

    /// Names an answer that is not the app's: by the gateway's code, else by its status.
    #[must_use]
    pub fn of_answer(status: http::StatusCode, headers: &http::HeaderMap) -> Self {
        let code = headers.get(CODE_HEADER).and_then(|code| code.to_str().ok());
        let known = code.and_then(|code| CODES.into_iter().find(|known| *known == code));
        Self::kept(known.unwrap_or(match status.as_u16() {
            301 | 302 | 303 | 307 | 308 => "status_redirect",
            400 => "status_400",
            401 => "status_401",
            403 => "status_403",
            404 => "status_404",
            429 => "status_429",
            500 => "status_500",
            502 => "status_502",
            503 => "status_503",
            504 => "status_504",
            402 | 405..429 | 430..500 => "status_4xx",
            501 | 505..600 => "status_5xx",
            _ => "status_other",
        }))
    }

    /// Returns what to do about it, if that is known.
    #[must_use]
    pub fn advice(self) -> Option<&'static str> {
        Some(match self.why {
            "no_such_host" => {
                "check --workspace-url or --host: the name, the port, the zone, and whose workspace it is"
            }
            "sign_in_required" | "status_redirect" => {
                "give a user's token with --token-file or LOADLAB_TOKEN (`gateway token create --user NAME`)"
            }
            "port_not_allowed" => "the agent does not expose this port to this user",
            "agent_absent" => "no agent is connected for this workspace: start `workspace-agent run` there",
            "port_closed" => {
                "start `loadlab app --listen 127.0.0.1:PORT` in the workspace, on the port that the URL names"
            }
            "status_404" => "something else than `loadlab app` answers there",
            "connect_refused" => "nothing listens there: check --gateway",
            "tls_refused" => "the certificate is not trusted: give its authority with --ca-file",
            "tls" => "no TLS there: http instead of https, perhaps?",
            "not_http" => "no HTTP there: https instead of http, perhaps?",
            _ => return None,
        })
    }
}

/// Returns what went wrong with TLS.
fn tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    #[test]
    fn answer_is_named_by_the_gateways_code_before_its_status() {
        let mut headers = HeaderMap::new();
        assert_eq!(ExchangeFailure::of_answer(StatusCode::SERVICE_UNAVAILABLE, &headers).why, "status_503");
        headers.insert(CODE_HEADER, HeaderValue::from_static("agent_absent"));
        assert_eq!(ExchangeFailure::of_answer(StatusCode::SERVICE_UNAVAILABLE, &headers).why, "agent_absent");
        // A code from a newer gateway is not a key yet.
        headers.insert(CODE_HEADER, HeaderValue::from_static("moon_phase"));
        assert_eq!(ExchangeFailure::of_answer(StatusCode::IM_A_TEAPOT, &headers).why, "status_4xx");
    }
}
