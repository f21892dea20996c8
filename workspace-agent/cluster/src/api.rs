//! Client of the Kubernetes API, as much of it as is needed: objects as plain JSON, each request with a deadline,
//! answers with a bound, and retries of what time may heal.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::object::LiveObject;
use crate::retry::{self, ApiError};

/// Longest time for one request, answer included.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest answer, in bytes: an object of Kubernetes has at most 1.5 MiB (etcd's bound), a page of a list some hundred of
/// them without their insides.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// Pages of a list that are read: more workspaces than one cluster agent looks after.
const PAGES_MAX: u32 = 100;

/// Media type that asks for an object's metadata alone (Kubernetes, "Alternate representations of resources").
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Client that gives up once its answers are not wanted any more.
#[derive(Clone)]
pub(crate) struct CancelableApi {
    client: Client,
    manager: Arc<str>,
    stop: CancellationToken,
    /// Header fields of every request: the user that it is made as, if not the agent itself.
    headers: Arc<HeaderMap>,
}

/// Expected state of the object under an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over<'a> {
    /// No object: one that was made meanwhile is a conflict, whatever it says.
    Nothing,
    /// Any object or none; fields that other managers set are taken over.
    Anything,
    /// The same object, in this version alone: one that was changed meanwhile is a conflict.
    Version(&'a str),
}

/// A version that no object has: etcd counts from it, and it is the version of an empty store. Server-side apply of an
/// object that names its version makes one if there is none, and is a conflict if one is in another version.
const NO_VERSION: &str = "1";

/// One request.
pub(crate) struct Call {
    method: Method,
    path: String,
    accept: &'static str,
    body: Option<(&'static str, Bytes)>,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, accept: "application/json", body: None }
    }

    fn with(self, content_type: &'static str, body: &Value) -> Self {
        Self { body: Some((content_type, Bytes::from(body.to_string()))), ..self }
    }

    fn request(&self, headers: &HeaderMap) -> Result<Request<Body>, ApiError> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.path);
        if let Some(map) = request.headers_mut() {
            map.extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        request = request.header(header::ACCEPT, self.accept);
        let body = match &self.body {
            Some((content_type, bytes)) => {
                request = request.header(header::CONTENT_TYPE, *content_type);
                Body::from(bytes.clone())
            }
            None => Body::empty(),
        };
        request.body(body).map_err(|error| ApiError::Invalid(error.to_string()))
    }
}

impl CancelableApi {
    /// Makes a client that writes as `manager` (Kubernetes, "Server-Side Apply": field managers).
    pub(crate) fn new(client: Client, manager: &str) -> Self {
        Self { client, manager: manager.into(), stop: CancellationToken::new(), headers: Arc::default() }
    }

    /// Makes a client that gives up between two requests once `stop` is cancelled. A request that was sent is waited
    /// for: it may still be carried out, and must not come after what is sent next.
    pub(crate) fn until(&self, stop: CancellationToken) -> Self {
        Self { stop, ..self.clone() }
    }

    /// Makes a client whose requests are made as another user.
    pub(crate) fn acting_as(&self, headers: HeaderMap) -> Self {
        Self { headers: Arc::new(headers), ..self.clone() }
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Reads discovery information (Kubernetes API, discovery).
    pub(crate) async fn discover(&self, path: &str) -> Result<Value, ApiError> {
        self.call(&Call::new(Method::GET, path.to_owned())).await
    }

    /// Reads an object.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        found(self.call(&Call::new(Method::GET, path.to_owned())).await)
    }

    /// Reads an object's metadata.
    pub(crate) async fn metadata(&self, path: &str) -> Result<Option<LiveObject>, ApiError> {
        let call = Call { accept: METADATA_ONLY, ..Call::new(Method::GET, path.to_owned()) };
        Ok(found(self.call(&call).await)?.as_ref().map(LiveObject::read))
    }

    /// Reads the metadata of all objects with some labels.
    pub(crate) async fn list_metadata(&self, path: &str, labels: &str) -> Result<Vec<LiveObject>, ApiError> {
        Ok(self.pages(path, labels, METADATA_LIST_ONLY).await?.iter().map(LiveObject::read).collect())
    }

    /// Reads all objects with some labels, which are few.
    pub(crate) async fn list(&self, path: &str, labels: &str) -> Result<Vec<Value>, ApiError> {
        self.pages(path, labels, "application/json").await
    }

    async fn pages(&self, path: &str, labels: &str, accept: &'static str) -> Result<Vec<Value>, ApiError> {
        let mut listed = Vec::new();
        let mut from = String::new();
        for _ in 0..PAGES_MAX {
            let path = format!("{path}?labelSelector={}&limit={PAGE}{from}", escape(labels));
            let call = Call { accept, ..Call::new(Method::GET, path) };
            let mut page = self.call(&call).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                listed.extend(items);
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(token) if !token.is_empty() => from = format!("&continue={}", escape(token)),
                Some(_) | None => return Ok(listed),
            }
        }
        Ok(listed)
    }

    /// Applies an object (Kubernetes, "Server-Side Apply").
    pub(crate) async fn apply(&self, path: &str, object: &Value, over: Over<'_>) -> Result<Value, ApiError> {
        let manager = escape(&self.manager);
        let is_forced = over != Over::Nothing;
        let path = format!("{path}?fieldManager={manager}&fieldValidation=Strict&force={is_forced}");
        let version = match over {
            Over::Nothing => Some(NO_VERSION),
            Over::Anything => None,
            Over::Version(version) => Some(version),
        };
        let mut applied = Cow::Borrowed(object);
        if let Some(version) = version
            && let Some(metadata) = applied.to_mut().get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        // JSON is YAML, and this type is what every version knows.
        self.call(&Call::new(Method::PATCH, path).with("application/apply-patch+yaml", &applied)).await
    }

    /// Makes an object in a collection.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager={}", escape(&self.manager));
        self.call(&Call::new(Method::POST, path).with("application/json", object)).await
    }

    /// Writes an object over the version that it names.
    pub(crate) async fn replace(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        let path = format!("{path}?fieldManager={}", escape(&self.manager));
        self.call(&Call::new(Method::PUT, path).with("application/json", object)).await
    }

    /// Deletes an object if it still is what was seen; with its dependents, before it is gone itself, if that is asked
    /// for.
    pub(crate) async fn delete(
        &self,
        path: &str,
        uid: &str,
        resource_version: &str,
        with_dependents: bool,
    ) -> Result<(), ApiError> {
        let propagation = if with_dependents { "Foreground" } else { "Background" };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation,
            "preconditions": {"uid": uid, "resourceVersion": resource_version}});
        self.call(&Call::new(Method::DELETE, path.to_owned()).with("application/json", &options)).await.map(drop)
    }

    async fn call(&self, call: &Call) -> Result<Value, ApiError> {
        let mut attempts = 0;
        loop {
            if self.stop.is_cancelled() {
                return Err(ApiError::Superseded);
            }
            attempts += 1;
            let error = match self.once(call, CALL_TIMEOUT).await {
                Err(error) => error,
                answered => return answered,
            };
            let Some(wait) = retry::wait(&error, attempts, rand::random()) else { return Err(error) };
            debug!(method = %call.method, path = call.path, %error, ?wait, "asking the Kubernetes API again");
            self.unless_stopped(tokio::time::sleep(wait)).await?;
        }
    }

    /// Waits for something other than a request.
    ///
    /// # Errors
    /// [`ApiError::Superseded`] as soon as answers are not wanted any more.
    pub(crate) async fn unless_stopped<T>(&self, waiting: impl Future<Output = T>) -> Result<T, ApiError> {
        self.stop.run_until_cancelled(waiting).await.ok_or(ApiError::Superseded)
    }

    /// Sends a request once.
    ///
    /// Cancel safety: the request may be carried out all the same.
    pub(crate) async fn once(&self, call: &Call, patience: Duration) -> Result<Value, ApiError> {
        let asking = async {
            let answer = self.client.send(call.request(&self.headers)?).await.map_err(|error| unavailable(&error))?;
            let (head, body) = answer.into_parts();
            let bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let bytes = bytes.map_err(|error| unavailable(&*error))?.to_bytes();
            if head.status.is_success() {
                return serde_json::from_slice(&bytes).map_err(|error| unavailable(&error));
            }
            Err(refusal(head.status.as_u16(), &head.headers, &bytes, &call.path))
        };
        let late = |_elapsed| ApiError::Unavailable { message: format!("no answer within {patience:?}"), after: None };
        timeout(patience, asking).await.map_err(late)?
    }
}

/// Requests for a Lease, which are not repeated: a leader has no time for that.
impl CancelableApi {
    /// Reads an object, once.
    pub(crate) async fn get_once(&self, path: &str, patience: Duration) -> Result<Option<Value>, ApiError> {
        found(self.once(&Call::new(Method::GET, path.to_owned()), patience).await)
    }

    /// Writes an object, once: over the version that it names, or a new one in a collection.
    pub(crate) async fn write_once(
        &self,
        path: &str,
        object: &Value,
        is_new: bool,
        patience: Duration,
    ) -> Result<Value, ApiError> {
        let method = if is_new { Method::POST } else { Method::PUT };
        let path = format!("{path}?fieldManager={}", escape(&self.manager));
        self.once(&Call::new(method, path).with("application/json", object), patience).await
    }
}

/// Turns the absence of an object into `None`. No other 404 is one.
fn found(answer: Result<Value, ApiError>) -> Result<Option<Value>, ApiError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(ApiError::Absent(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn unavailable(error: &(dyn std::error::Error + 'static)) -> ApiError {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        source = error.source();
    }
    ApiError::Unavailable { message, after: None }
}

/// Reads a refusal: its body is a Status (Kubernetes API, meta/v1), unless something in between answered.
fn refusal(code: u16, headers: &HeaderMap, body: &[u8], path: &str) -> ApiError {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str);
    let message = text("/message").unwrap_or("no message").to_owned();
    if let (404, Some("NotFound"), Some(kind), Some(name)) =
        (code, text("/reason"), text("/details/kind"), text("/details/name"))
    {
        return if names(path, kind, name) { ApiError::Absent(message) } else { ApiError::NotFound(message) };
    }
    let header = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let seconds = header.or_else(|| status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64));
    ApiError::of(code, message, seconds.map(Duration::from_secs))
}

/// Returns whether a path is that of the object of a kind, in the plural as paths have it, and a name.
fn names(path: &str, kind: &str, name: &str) -> bool {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    path.strip_suffix(name)
        .and_then(|path| path.strip_suffix('/')?.strip_suffix(kind))
        .is_some_and(|path| path.ends_with('/'))
}

/// Writes a text into a query or the name of a header field (RFC 3986, section 2.1).
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_with_their_wish_for_peace() {
        let body = br#"{"kind":"Status","message":"too many","details":{"retryAfterSeconds":3}}"#;
        let after = |seconds| Some(Duration::from_secs(seconds));
        let error = |after| ApiError::Unavailable { message: "too many (429)".into(), after };
        let refusal = |code, headers: &HeaderMap, body: &[u8]| refusal(code, headers, body, "/api/v1/namespaces/a");
        assert_eq!(refusal(429, &HeaderMap::new(), body), error(after(3)));
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, "7".parse().expect("a value"))]);
        assert_eq!(refusal(429, &headers, body), error(after(7)));
        assert_eq!(refusal(403, &headers, b"<html>"), ApiError::Forbidden("no message".into()));
    }

    #[test]
    fn object_is_absent_only_if_the_answer_names_it() {
        let read = |body: &str, path: &str| refusal(404, &HeaderMap::new(), body.as_bytes(), path);
        let status = |reason: &str, kind: &str, name: &str| {
            json!({"kind": "Status", "message": "no", "reason": reason, "details": {"kind": kind, "name": name}})
                .to_string()
        };
        let accounts = "/api/v1/namespaces/app/serviceaccounts";
        for path in [format!("{accounts}/app"), format!("{accounts}/app?fieldManager=x&force=true")] {
            assert_eq!(read(&status("NotFound", "serviceaccounts", "app"), &path), ApiError::Absent("no".into()));
            // The object that it is in, or refers to.
            for (kind, name) in
                [("namespaces", "app"), ("serviceaccounts", "ap"), ("serviceaccounts", "p"), ("accounts", "app")]
            {
                assert_eq!(
                    read(&status("NotFound", kind, name), &path),
                    ApiError::NotFound("no".into()),
                    "{kind} {name}"
                );
            }
            assert_eq!(read(&status("Other", "serviceaccounts", "app"), &path), ApiError::NotServed("no".into()));
            for body in ["404 page not found\n", "<html>", "", r#"{"kind":"Status","reason":"NotFound","details":{}}"#]
            {
                assert_eq!(read(body, &path), ApiError::NotServed("no message".into()), "{body}");
            }
        }
        // An object is made in its collection.
        assert_eq!(read(&status("NotFound", "serviceaccounts", "app"), accounts), ApiError::NotFound("no".into()));
    }

    #[test]
    fn selectors_are_written_so_that_they_stay_one_value() {
        assert_eq!(escape("a.b/c=d,e&f"), "a.b%2Fc%3Dd%2Ce%26f");
    }
}
