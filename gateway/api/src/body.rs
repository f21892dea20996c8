//! Reads the body of a request: JSON, bounded in size and time, and all of its mistakes at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Map, Value};

use super::BODY_BYTES_MAX;
use super::permits::{ApiPermit, PermitPool};
use super::problem::{ApiProblem, Mistake, ProblemRow};
use gateway_types::UserName;

/// Time limit for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest body with a devfile, in bytes: 3 MB of one, twice as long where JSON escapes it, and variables.
const LARGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Time limit for a large body to arrive.
const LARGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes of a body.
///
/// # Errors
/// `too_large` above the bound, `bad_request` if it does not arrive in time or as a whole.
pub async fn read(body: Body) -> Result<Bytes, ProblemRow> {
    read_within(body, BODY_BYTES_MAX, BODY_TIMEOUT).await
}

/// Reads a form that may be large, for a user who is known; see [`read_large`].
///
/// # Errors
/// As [`read`], and `overloaded` with too many of these under way.
pub async fn read_large_form(
    request: Request,
    permits: &Arc<PermitPool>,
    user: &UserName,
) -> Result<(Bytes, ApiPermit), ProblemRow> {
    let permit = permits.take(user)?;
    Ok((read_within(request.into_body(), LARGE_BYTES_MAX, LARGE_TIMEOUT).await?, permit))
}

/// Reads an object that may be large, for a user who is known. No more than `permits` allows may be under way; the permit
/// is to be held for as long as the object.
pub(super) async fn read_large(
    request: Request,
    permits: &Arc<PermitPool>,
    user: &UserName,
) -> Result<(JsonObject, ApiPermit), ProblemRow> {
    let is_json = is_json(&request);
    let (bytes, permit) = read_large_form(request, permits, user).await?;
    Ok((JsonObject::parse(&bytes, is_json)?, permit))
}

async fn read_within(body: Body, bytes_max: usize, time_max: Duration) -> Result<Bytes, ProblemRow> {
    // A body that its announced length rules out need not be sent.
    if usize::try_from(body.size_hint().lower()).is_ok_and(|least| least > bytes_max) {
        return Err(ApiProblem::TooLarge.into());
    }
    let read = tokio::time::timeout(time_max, Limited::new(body, bytes_max).collect()).await;
    let read = read.map_err(|_elapsed| ApiProblem::BadRequest { reason: "body_timeout" })?;
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiProblem::TooLarge.into()),
        Err(_) => Err(ApiProblem::BadRequest { reason: "body_incomplete" }.into()),
    }
}

/// A JSON object. An empty body counts as one without members.
#[derive(Debug)]
pub(super) struct JsonObject(Map<String, Value>);

impl<S: Sync> FromRequest<S> for JsonObject {
    type Rejection = ProblemRow;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ProblemRow> {
        let is_json = is_json(&request);
        let bytes = read(request.into_body()).await?;
        Self::parse(&bytes, is_json)
    }
}

impl JsonObject {
    /// Makes one of members that were not read from JSON.
    pub(super) fn of(members: Map<String, Value>) -> Self {
        Self(members)
    }

    fn parse(bytes: &[u8], is_json: bool) -> Result<Self, ProblemRow> {
        if bytes.is_empty() {
            return Ok(Self(Map::new()));
        }
        // A form or a text can be sent from any page without asking first; JSON cannot.
        if !is_json {
            return Err(ApiProblem::NotJson.into());
        }
        // The parser bounds how deep values may be nested.
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(ApiProblem::BadRequest { reason: "not_an_object" }.into()),
            Err(_) => Err(ApiProblem::BadRequest { reason: "malformed_json" }.into()),
        }
    }
}

fn is_json(request: &Request) -> bool {
    let value = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media.trim().eq_ignore_ascii_case("application/json")
}

impl JsonObject {
    /// Reads the members with `read`, and then complains of all mistakes together.
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut JsonFields<'_>) -> Option<T>) -> Result<T, ProblemRow> {
        let mut mistakes = Vec::new();
        let mut fields = JsonFields::new(&self.0, String::new(), &mut mistakes);
        let value = read(&mut fields);
        fields.finish();
        match value {
            Some(value) if mistakes.is_empty() => Ok(value),
            Some(_) | None => Err(ProblemRow::invalid(mistakes)),
        }
    }
}

/// The members of one object, while they are read.
#[derive(Debug)]
pub(super) struct JsonFields<'a> {
    members: &'a Map<String, Value>,
    pointer: String,
    asked: Vec<&'static str>,
    mistakes: &'a mut Vec<Mistake>,
}

impl<'a> JsonFields<'a> {
    fn new(members: &'a Map<String, Value>, pointer: String, mistakes: &'a mut Vec<Mistake>) -> Self {
        Self { members, pointer, asked: Vec::new(), mistakes }
    }

    /// Reads a member that may be missing or `null`; a mistake is noted and gives `None` too.
    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.asked.push(name);
        let value = self.members.get(name).filter(|value| !value.is_null())?;
        match parse(value) {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.object(name, wrong);
                None
            }
        }
    }

    /// Reads a member that has to be there.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        if self.members.get(name).is_none_or(Value::is_null) {
            self.asked.push(name);
            self.object(name, "is missing");
            return None;
        }
        self.optional(name, parse)
    }

    /// Reads a member that is a list of objects.
    pub(super) fn objects<T>(
        &mut self,
        name: &'static str,
        items_max: usize,
        mut read: impl FnMut(&mut JsonFields<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.asked.push(name);
        let Some(Value::Array(items)) = self.members.get(name) else {
            self.object(name, "has to be a list");
            return None;
        };
        if items.len() > items_max {
            self.object(name, format!("has more than {items_max} items"));
            return None;
        }
        let mut values = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let pointer = format!("{}/{name}/{number}", self.pointer);
            let Value::Object(members) = item else {
                self.mistakes.push(Mistake { pointer, detail: "has to be an object".to_owned() });
                continue;
            };
            let mut fields = JsonFields::new(members, pointer, self.mistakes);
            values.extend(read(&mut fields));
            fields.finish();
        }
        Some(values)
    }

    /// Reads a member that has to be an object. One that may be missing is asked for with [`JsonFields::has`] first.
    pub(super) fn nested<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut JsonFields<'_>) -> Option<T>,
    ) -> Option<T> {
        self.asked.push(name);
        let Some(Value::Object(members)) = self.members.get(name) else {
            self.object(name, "has to be an object");
            return None;
        };
        let mut fields = JsonFields::new(members, format!("{}/{name}", self.pointer), self.mistakes);
        let value = read(&mut fields);
        fields.finish();
        value
    }

    /// Reads a member that may be missing or `null`, and else has to be an object.
    pub(super) fn maybe_nested<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut JsonFields<'_>) -> Option<T>,
    ) -> Option<T> {
        self.asked.push(name);
        if self.has(name) { self.nested(name, read) } else { None }
    }

    /// Returns whether a member is there, whatever its value.
    pub(super) fn has(&self, name: &'static str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Returns whether a member is there, also as `null`.
    pub(super) fn names(&self, name: &'static str) -> bool {
        self.members.contains_key(name)
    }

    /// Notes a mistake of a member.
    pub(super) fn object(&mut self, name: &'static str, wrong: impl Into<String>) {
        self.mistakes.push(Mistake { pointer: format!("{}/{name}", self.pointer), detail: wrong.into() });
    }

    /// Notes a mistake of something below the object.
    pub(super) fn at(&mut self, pointer: String, wrong: String) {
        self.mistakes.push(Mistake { pointer: format!("{}{pointer}", self.pointer), detail: wrong });
    }

    /// Notes unknown members, without repeating their names.
    fn finish(self) {
        if self.members.keys().any(|name| !self.asked.iter().any(|asked| asked == name)) {
            let detail = format!("has an unknown member; known are {}", self.asked.join(", "));
            self.mistakes.push(Mistake { pointer: self.pointer, detail });
        }
    }
}

/// Reads a text with a parser of the domain, whose errors repeat nothing.
pub(super) fn text<T>(value: &Value) -> Result<T, String>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    value.as_str().ok_or("has to be a text")?.parse().map_err(|error: T::Err| error.to_string())
}

/// Reads a number of seconds within bounds.
pub(super) fn seconds(value: &Value, least: u64, most: u64) -> Result<Duration, String> {
    let number = value.as_u64().filter(|number| (least..=most).contains(number));
    number.map(Duration::from_secs).ok_or_else(|| format!("has to be a whole number of seconds from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> JsonObject {
        let Value::Object(members) = value else { panic!("an object") };
        JsonObject(members)
    }

    fn read_both(value: Value) -> Result<(u16, Option<bool>), ProblemRow> {
        object(value).read(|fields| {
            let port = fields.required("port", text::<gateway_types::Port>);
            let flag = fields.optional("flag", |value| value.as_bool().ok_or_else(|| "no".to_owned()));
            Some((port?.get(), flag))
        })
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_nothing_is_repeated() {
        assert_eq!(read_both(json!({"port": "80"})), Ok((80, None)));
        assert_eq!(read_both(json!({"port": "80", "flag": true})), Ok((80, Some(true))));
        let mistakes = read_both(json!({"port": "secret-port", "flag": 1, "secret-name": 1})).unwrap_err();
        let shown = format!("{mistakes:?}");
        assert!(shown.contains("/port") && shown.contains("/flag") && shown.contains("unknown member"), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
        assert!(read_both(json!({})).is_err() && read_both(json!({"port": null})).is_err());
    }

    #[test]
    fn mistakes_in_a_list_say_which_item() {
        let value = object(json!({"list": [{"port": "1"}, {"port": "x"}, 3, {"port": "2", "more": 1}]}));
        let ports = value
            .read(|fields| fields.objects("list", 9, |item| item.required("port", text::<gateway_types::Port>)))
            .unwrap_err();
        let shown = format!("{ports:?}");
        for pointer in ["/list/1/port", "/list/2\"", "/list/3\""] {
            assert!(shown.contains(pointer), "{pointer}: {shown}");
        }
    }

    proptest! {
        #[test]
        fn any_number_of_seconds_is_answered(number: f64, whole: u64) {
            let within = |value: &Value| seconds(value, 60, 3600);
            prop_assert_eq!(within(&json!(whole)).is_ok(), (60..=3600).contains(&whole));
            prop_assert!(within(&json!(number)).is_err());
        }
    }
}
