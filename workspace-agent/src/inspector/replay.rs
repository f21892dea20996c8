//! A request that the owner sends again: its bytes, made of a form. Pure.
//!
//! It is sent with the sign-in of the one who replays it: the fields that tell an app who asked are those that the gateway put into
//! the replay request itself. Credentials of the recorded request are not known, and are not sent.

use http::header::{HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use super::exchange::{Exchange, Kind, value};
use super::redact::REDACTED;

/// Fields that belong to one connection, or say how long a body is.
const FRAMING: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "content-length",
    "expect",
    "proxy-authorization",
];

/// Other spellings of fields that tell who asked.
const FORWARDING: [&str; 5] = ["forwarded", "forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip"];

/// Fields that tell an app who asked: they are the replayer's.
const IDENTITY: [&str; 2] = ["x-forwarded-for", "x-forwarded-proto"];

/// Fields that tell an app its own address: they are the recorded request's.
const ADDRESS: [&str; 3] = ["x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"];

/// Most bytes of fields in a form.
const FIELDS_BYTES_MAX: usize = 64 * 1024;

/// Edited parts of a request, as a form sends them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edited {
    /// The method.
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Fields, one on each line.
    pub(crate) fields: String,
    /// The body. Browsers send each line break in it as two characters.
    pub(crate) body: String,
}

/// The request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadReplay {
    /// No method, or one that is for proxies.
    #[error("the method is one word, such as GET or POST, and not CONNECT")]
    Method,
    /// No path.
    #[error("the path begins with / and has no space and no control character")]
    Target,
    /// A line that is no field.
    #[error("line {0} of the headers is not NAME: VALUE")]
    Field(usize),
    /// Too many of them.
    #[error("there are too many headers")]
    Fields,
    /// A WebSocket, or a connection of HTTP/2.
    #[error("only a request with one answer can be sent again")]
    Kind,
    /// A body that is not known whole.
    #[error("the recorded body is not whole, or is no text: write one, or none")]
    Body,
}

/// Returns whether a field is made anew for each request: framing, forwarding, and what the gateway says.
#[must_use]
pub(crate) fn is_own_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    FRAMING.contains(&name.as_str())
        || FORWARDING.contains(&name.as_str())
        || ["x-forwarded", "gateway-", "x-gateway-"].iter().any(|begin| name.starts_with(begin))
}

/// Returns the parts of a recorded request for the form, without what is not known of it.
#[must_use]
pub(crate) fn form(exchange: &Exchange) -> Edited {
    let head = &exchange.request;
    let fields = head.fields.iter().filter(|field| !field.is_redacted && !is_own_field(&field.name));
    let lines: Vec<_> = fields.map(|field| format!("{}: {}", field.name, field.value)).collect();
    Edited {
        method: head.method.to_string(),
        target: head.target.to_string(),
        fields: lines.join("\n"),
        body: recorded_text(exchange).unwrap_or_default().to_owned(),
    }
}

/// Returns the recorded body, if a form can show all of it.
#[must_use]
pub(crate) fn recorded_text(exchange: &Exchange) -> Option<&str> {
    let body = &exchange.request_body;
    let is_odd = |one: char| one.is_control() && !matches!(one, '\n' | '\r' | '\t');
    let text = std::str::from_utf8(&body.bytes).ok()?;
    (!body.is_cut() && !text.contains(is_odd)).then_some(text)
}

/// Makes the bytes of a request to the app of a recorded one. `replayer` has the fields that the gateway put into the replay request.
///
/// # Errors
/// [`BadReplay`].
pub(crate) fn request(recorded: &Exchange, edited: &Edited, replayer: &HeaderMap) -> Result<Vec<u8>, BadReplay> {
    match recorded.kind {
        Kind::Http => {}
        Kind::WebSocket | Kind::Switched | Kind::Http2 => return Err(BadReplay::Kind),
    }
    let method = Method::from_bytes(edited.method.trim().as_bytes()).map_err(|_| BadReplay::Method)?;
    if method == Method::CONNECT {
        return Err(BadReplay::Method);
    }
    let target = edited.target.trim();
    let path =
        Some(target).filter(|target| target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic()));
    let path = path.and_then(|path| PathAndQuery::try_from(path).ok()).ok_or(BadReplay::Target)?;
    let fields = fields(&edited.fields)?;
    let body = body(recorded, edited)?;
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let mut write = |name: &str, value: &[u8]| {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    };
    if !fields.contains_key("host") {
        let host = value(&recorded.request.fields, "host").map_or_else(|| "localhost".to_owned(), ToOwned::to_owned);
        write("host", host.as_bytes());
    }
    for (name, value) in &fields {
        write(name.as_str(), value.as_bytes());
    }
    for name in ADDRESS {
        if let Some(value) = value(&recorded.request.fields, name) {
            write(name, value.as_bytes());
        }
    }
    for name in IDENTITY {
        if let Some(value) = replayer.get(name) {
            write(name, value.as_bytes());
        }
    }
    if let Some(forwarded) = forwarded(recorded, replayer) {
        write("forwarded", forwarded.as_bytes());
    }
    if !body.is_empty() || ![Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(&method) {
        write("content-length", body.len().to_string().as_bytes());
    }
    write("connection", b"close");
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Returns the field of RFC 7239: who asked, by the replayer's, and for which host, by the recorded one's.
fn forwarded(recorded: &Exchange, replayer: &HeaderMap) -> Option<String> {
    let theirs = replayer.get("forwarded")?.to_str().ok()?;
    let mut parts: Vec<&str> = theirs.split(';').filter(|part| !part.trim_start().starts_with("host=")).collect();
    let host = value(&recorded.request.fields, "forwarded").unwrap_or_default();
    parts.extend(host.split(';').find(|part| part.trim_start().starts_with("host=")));
    Some(parts.join(";"))
}

fn fields(text: &str) -> Result<HeaderMap, BadReplay> {
    if text.len() > FIELDS_BYTES_MAX {
        return Err(BadReplay::Fields);
    }
    let mut fields = HeaderMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = BadReplay::Field(number + 1);
        let (name, value) = line.split_once(':').ok_or(bad.clone())?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad.clone())?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| bad)?;
        if !is_own_field(name.as_str()) && value != REDACTED {
            fields.try_append(name, value).map_err(|_| BadReplay::Fields)?;
        }
    }
    Ok(fields)
}

/// Returns the body to send: the recorded bytes, if the form has them as they were.
fn body(recorded: &Exchange, edited: &Edited) -> Result<Vec<u8>, BadReplay> {
    let plain = |text: &str| text.replace("\r\n", "\n");
    let written = plain(&edited.body);
    match recorded_text(recorded) {
        Some(text) if plain(text) == written => Ok(text.as_bytes().to_vec()),
        Some(_) => Ok(written.into_bytes()),
        // An empty form stands for the recorded bytes, where all of them are known.
        None if written.is_empty() && !recorded.request_body.is_cut() => Ok(recorded.request_body.bytes.clone()),
        None if written.is_empty() => Err(BadReplay::Body),
        None => Ok(written.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::exchange::{Field, Kept};
    use super::super::samples;
    use super::*;

    fn replayer() -> HeaderMap {
        let fields = [
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "60003-one.zone"),
            ("forwarded", "for=192.0.2.9;host=60003-one.zone;proto=https"),
            ("gateway-user", "dev"),
            ("cookie", "mine=1"),
        ];
        fields
            .into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn text(edited: &Edited) -> Result<String, BadReplay> {
        request(&samples::failed(), edited, &replayer()).map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn unedited_request_is_the_recorded_one_with_the_replayers_identity() {
        let sent = text(&form(&samples::failed())).expect("a request");
        let expected = "POST /orders?a=b%20c HTTP/1.1\r\nhost: 3000-one.zone\r\ncontent-type: application/json\r\n\
                        x-forwarded-host: 3000-one.zone\r\nx-forwarded-for: 192.0.2.9\r\nx-forwarded-proto: https\r\n\
                        forwarded: for=192.0.2.9;proto=https;host=3000-one.zone\r\ncontent-length: 10\r\n\
                        connection: close\r\n\r\n{\"item\":7}";
        assert_eq!(sent, expected);
    }

    #[test]
    fn identity_cannot_be_typed_and_own_credentials_can() {
        let typed = "X-Forwarded-For: 10.0.0.1\nx_forwarded_for: 10.0.0.1\nGateway-User: root\nForwarded: for=10.0.0.1\n\
                     X-Real-IP: 10.0.0.1\nTransfer-Encoding: chunked\nCookie: session=mine\nAuthorization: [redacted]";
        let edited = Edited { fields: typed.to_owned(), ..form(&samples::failed()) };
        let sent = text(&edited).expect("a request").to_ascii_lowercase();
        assert!(!sent.contains("10.0.0.1") && !sent.contains("root") && !sent.contains("chunked"), "{sent}");
        assert!(sent.contains("cookie: session=mine\r\n") && !sent.contains("authorization"), "{sent}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let with = |change: fn(&mut Edited)| {
            let mut edited = form(&samples::failed());
            change(&mut edited);
            text(&edited).map(|_| ())
        };
        assert_eq!(with(|edited| edited.method = "GET /\r\nx".to_owned()), Err(BadReplay::Method));
        assert_eq!(with(|edited| edited.method = "CONNECT".to_owned()), Err(BadReplay::Method));
        for target in ["", "a", "http://other/", "/a b", "/a\r\nb: c", "//\u{e9}"] {
            let edited = Edited { target: target.to_owned(), ..form(&samples::failed()) };
            assert_eq!(text(&edited), Err(BadReplay::Target), "{target}");
        }
        assert_eq!(with(|edited| edited.fields = "a: 1\nno field".to_owned()), Err(BadReplay::Field(2)));
        assert_eq!(with(|edited| edited.fields = "a b: 1".to_owned()), Err(BadReplay::Field(1)));
        assert_eq!(request(&samples::socket(), &Edited::default(), &replayer()), Err(BadReplay::Kind));
        assert_eq!(request(&samples::cut(), &form(&samples::cut()), &replayer()), Err(BadReplay::Body));
    }

    #[test]
    fn line_breaks_of_a_form_are_those_of_the_record() {
        let mut recorded = samples::failed();
        for (body, typed, sent) in
            [("a\nb", "a\r\nb", "a\nb"), ("a\r\nb", "a\r\nb", "a\r\nb"), ("a\r\nb", "a\r\nc", "a\nc")]
        {
            recorded.request_body = Kept { bytes: body.into(), length: body.len() as u64 };
            let edited = Edited { body: typed.to_owned(), ..form(&recorded) };
            let bytes = request(&recorded, &edited, &replayer()).expect("a request");
            assert!(bytes.ends_with(format!("\r\n\r\n{sent}").as_bytes()), "{body:?} {typed:?}");
        }
        let odd = Kept { bytes: vec![0, 255], length: 2 };
        let recorded = samples::with_body(odd);
        let bytes = request(&recorded, &form(&recorded), &replayer()).expect("a request");
        assert!(bytes.ends_with(b"\r\n\r\n\0\xff"), "bytes that no form can show are sent as they were");
    }

    proptest! {
        #[test]
        fn typed_text_is_one_request(method in any::<String>(), target in any::<String>(), fields in any::<String>(), body in any::<String>()) {
            let edited = Edited { method, target: format!("/{target}"), fields, body };
            if let Ok(bytes) = request(&samples::failed(), &edited, &replayer()) {
                let mut parsed = [httparse::EMPTY_HEADER; 64];
                let mut request = httparse::Request::new(&mut parsed);
                let head = request.parse(&bytes).expect("a head").unwrap();
                let length = Field::new("content-length", request.headers.iter().find(|field| field.name == "content-length").map_or(b"0", |field| field.value));
                prop_assert_eq!(length.value.parse::<usize>().expect("a length"), bytes.len() - head);
            }
        }
    }
}
