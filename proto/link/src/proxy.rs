//! Connects through a proxy: CONNECT (RFC 9110, section 9.3.6) or SOCKS5 (RFC 1928 and 1929), to a stream that is the
//! gateway's.

mod choose;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, USER_AGENT};
use http::uri::Authority;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_socks::TargetAddr;
use tokio_socks::tcp::Socks5Stream;

pub use self::choose::{BadProxy, Proxy, choose};
use self::choose::{NameLookup, ProxyKind};
use crate::connect::{DialedStream, HANDSHAKE_TIMEOUT, Tune, tcp};
use crate::switch::{SwitchAnswer, ask};

/// Longest time for a proxy to reach the gateway.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Reason why a proxy did not lead to the gateway. The texts say which step failed, and what can be done.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// The proxy itself is not reached.
    #[error("cannot be reached")]
    Connect(#[source] io::Error),
    /// It did not answer in time.
    #[error("did not answer in time")]
    TimedOut,
    /// TLS with the proxy failed.
    #[error("failed the TLS handshake")]
    Tls(#[source] io::Error),
    /// It wants credentials and got none.
    #[error("requires authentication{status}: put USER:PASSWORD@ before the host in {variable}")]
    Unauthenticated {
        /// Its answer.
        status: &'static str,
        /// Variable that names the proxy.
        variable: &'static str,
    },
    /// It does not take the credentials.
    #[error("does not accept the user and password in {variable}{status}: check them, special characters as %XX")]
    Credentials {
        /// Its answer.
        status: &'static str,
        /// Variable that names the proxy.
        variable: &'static str,
    },
    /// It wants another kind of credentials.
    #[error("asks for credentials of another kind than Basic (407, {offered}): ask its operator for a way without")]
    Scheme {
        /// Names of the kinds that it offers.
        offered: String,
    },
    /// Its rules say no.
    #[error("does not allow connections to {target}{status}: ask its operator to allow this host and port")]
    Forbidden {
        /// Its answer.
        status: &'static str,
        /// Host and port that it was to lead to.
        target: String,
    },
    /// It tried, and could not.
    #[error("cannot reach {target} ({answer}): is the address right as seen from the proxy?")]
    Unreachable {
        /// Host and port that it was to lead to.
        target: String,
        /// Its answer.
        answer: String,
    },
    /// It speaks something else.
    #[error("does not speak {0}: check scheme and port")]
    NotProxy(&'static str, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The gateway's name is not known here.
    #[error("gets only addresses with socks5, and {host} is not known here: use socks5h to let the proxy look it up")]
    Name {
        /// The name.
        host: String,
        /// Cause.
        #[source]
        error: io::Error,
    },
}

impl Proxy {
    /// Returns whether the proxy is spoken to over TLS.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        matches!(self.kind, ProxyKind::Http { tls: true, .. })
    }

    /// Connects to a gateway through it; `tune` sets the options of the socket towards the proxy.
    ///
    /// # Errors
    /// [`ProxyError`] says which step failed, and what can be done.
    ///
    /// Cancel safety: safe; a half-made connection is closed.
    pub async fn connect(
        &self,
        host: &str,
        port: u16,
        tls: Option<&Arc<ClientConfig>>,
        tune: Tune,
    ) -> Result<Box<dyn DialedStream>, ProxyError> {
        let stream = tcp(&self.host, self.port, tune).await.map_err(|error| {
            let is_late = error.kind() == io::ErrorKind::TimedOut;
            if is_late { ProxyError::TimedOut } else { ProxyError::Connect(error) }
        })?;
        let stream: Box<dyn DialedStream> = match tls.filter(|_| self.needs_tls()) {
            None => Box::new(stream),
            Some(config) => Box::new(self.secure(stream, config).await?),
        };
        let led = async {
            match &self.kind {
                ProxyKind::Http { authorization, .. } => {
                    self.connect_http(stream, host, port, authorization.as_ref()).await
                }
                ProxyKind::Socks5 { names, credentials } => {
                    self.connect_socks(stream, host, port, *names, credentials.as_ref()).await
                }
            }
        };
        timeout(ANSWER_TIMEOUT, led).await.map_err(|_elapsed| ProxyError::TimedOut)?
    }

    async fn secure(
        &self,
        stream: TcpStream,
        config: &Arc<ClientConfig>,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ProxyError> {
        let name = ServerName::try_from(self.host.clone()).map_err(|error| ProxyError::Tls(io::Error::other(error)))?;
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
        timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(|_elapsed| ProxyError::TimedOut)?.map_err(ProxyError::Tls)
    }

    async fn connect_http(
        &self,
        stream: Box<dyn DialedStream>,
        host: &str,
        port: u16,
        authorization: Option<&HeaderValue>,
    ) -> Result<Box<dyn DialedStream>, ProxyError> {
        let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let request = connect_request(&target, authorization)
            .map_err(|error| ProxyError::Unreachable { target: target.clone(), answer: error.to_string() })?;
        let answer = ask(stream, request).await.map_err(|error| ProxyError::NotProxy("HTTP", error.into()))?;
        match answer {
            SwitchAnswer::Switched(_, stream) => Ok(Box::new(stream)),
            SwitchAnswer::Refused(answer) => {
                Err(self.refused(answer.status, &answer.headers, target, authorization.is_some()))
            }
        }
    }

    fn refused(&self, status: StatusCode, headers: &HeaderMap, target: String, identified: bool) -> ProxyError {
        let variable = self.variable;
        match status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => match other_schemes(headers) {
                Some(offered) => ProxyError::Scheme { offered },
                None if identified => ProxyError::Credentials { status: " (407)", variable },
                None => ProxyError::Unauthenticated { status: " (407)", variable },
            },
            StatusCode::UNAUTHORIZED => ProxyError::Credentials { status: " (401)", variable },
            StatusCode::FORBIDDEN => ProxyError::Forbidden { status: " (403)", target },
            StatusCode::METHOD_NOT_ALLOWED => ProxyError::Forbidden { status: " (405)", target },
            status => ProxyError::Unreachable { target, answer: format!("HTTP {}", status.as_u16()) },
        }
    }

    async fn connect_socks(
        &self,
        stream: Box<dyn DialedStream>,
        host: &str,
        port: u16,
        names: NameLookup,
        credentials: Option<&(String, String)>,
    ) -> Result<Box<dyn DialedStream>, ProxyError> {
        let target = match (host.parse::<IpAddr>(), names) {
            (Ok(address), _) => TargetAddr::Ip((address, port).into()),
            (Err(_), NameLookup::AtProxy) => TargetAddr::Domain(host.into(), port),
            (Err(_), NameLookup::Here) => TargetAddr::Ip(look_up(host, port).await?),
        };
        let text = target.to_string();
        let connected = match credentials {
            None => Socks5Stream::connect_with_socket(stream, target).await,
            Some((user, password)) => {
                Socks5Stream::connect_with_password_and_socket(stream, target, user, password).await
            }
        };
        match connected {
            Ok(stream) => Ok(Box::new(stream.into_inner())),
            Err(error) => Err(self.refused_socks(error, text, credentials.is_some())),
        }
    }

    fn refused_socks(&self, error: tokio_socks::Error, target: String, identified: bool) -> ProxyError {
        use tokio_socks::Error;
        let (status, variable) = ("", self.variable);
        match error {
            Error::NoAcceptableAuthMethods if identified => ProxyError::Credentials { status, variable },
            Error::NoAcceptableAuthMethods => ProxyError::Unauthenticated { status, variable },
            Error::PasswordAuthFailure(_) | Error::InvalidAuthValues(_) => ProxyError::Credentials { status, variable },
            Error::ConnectionNotAllowedByRuleset => ProxyError::Forbidden { status, target },
            Error::GeneralSocksServerFailure
            | Error::NetworkUnreachable
            | Error::HostUnreachable
            | Error::ConnectionRefused
            | Error::TtlExpired
            | Error::CommandNotSupported
            | Error::AddressTypeNotSupported
            | Error::InvalidTargetAddress(_) => ProxyError::Unreachable { target, answer: error.to_string() },
            // A server that closes without an answer mostly does so about credentials; it does not say.
            other @ (Error::Io(_)
            | Error::ParseError(_)
            | Error::ProxyServerUnreachable
            | Error::InvalidResponseVersion
            | Error::UnknownAuthMethod
            | Error::UnknownError
            | Error::InvalidReservedByte
            | Error::UnknownAddressType
            | Error::AuthorizationRequired
            | Error::IdentdAuthFailure
            | Error::InvalidUserIdAuthFailure) => ProxyError::NotProxy("SOCKS5", other.into()),
        }
    }
}

fn connect_request(target: &str, authorization: Option<&HeaderValue>) -> Result<Request<Empty<Bytes>>, http::Error> {
    let authority: Authority = target.parse()?;
    let mut request = Request::new(Empty::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = Uri::from(authority);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::try_from(target)?);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("workspace-gateway/", env!("CARGO_PKG_VERSION"))));
    if let Some(authorization) = authorization {
        headers.insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}

/// Returns the kinds of credentials that a proxy asks for; `None` if Basic is among them, or it does not say.
fn other_schemes(headers: &HeaderMap) -> Option<String> {
    let names = headers.get_all(PROXY_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let names: Vec<_> = names
        .filter_map(|challenge| challenge.split([' ', ',']).next())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .collect();
    let has_basic = names.iter().any(|name| name.eq_ignore_ascii_case("basic"));
    (!has_basic && !names.is_empty()).then(|| names.join(", "))
}

async fn look_up(host: &str, port: u16) -> Result<std::net::SocketAddr, ProxyError> {
    let unknown = |error| ProxyError::Name { host: host.to_owned(), error };
    let mut addresses = tokio::net::lookup_host((host, port)).await.map_err(unknown)?;
    addresses.next().ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests;
