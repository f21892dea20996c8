//! Metadata of a provider (`OpenID` Connect Discovery 1.0, section 3).

use serde_json::Value;
use thiserror::Error;

use gateway_types::{BadEndpoint, Endpoint};

/// The fields of a provider's metadata that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// `jwks_uri`.
    pub keys: Endpoint,
    /// `authorization_endpoint`: sign-in page for browsers. Issuers for machines have none.
    pub authorization: Option<Endpoint>,
    /// `token_endpoint`: exchanges codes.
    pub token: Option<Endpoint>,
    /// `userinfo_endpoint`: serves the claims that the ID token leaves out.
    pub user_info: Option<Endpoint>,
    /// `end_session_endpoint`: sign-out page for browsers.
    pub end_session: Option<Endpoint>,
    /// `authorization_response_iss_parameter_supported`: each answer names its issuer (RFC 9207, section 3).
    pub answers_name_issuer: bool,
    /// `token_endpoint_auth_methods_supported`; `client_secret_basic` alone if it is not there.
    pub token_auth_methods: Vec<String>,
}

/// Reason why metadata cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMetadata {
    /// It is another's: the server at the address is not the issuer named in the configuration.
    #[error("the provider's issuer differs from the configured one")]
    OtherIssuer,
    /// A field is not there.
    #[error("the provider's description has no `{0}`")]
    Missing(&'static str),
    /// A field has another type than it must have.
    #[error("the provider's description has a `{0}` of the wrong type")]
    Type(&'static str),
    /// An address is invalid.
    #[error("the provider's `{0}`: {1}")]
    Address(&'static str, BadEndpoint),
}

impl Metadata {
    /// Reads the metadata of the provider that is configured as `issuer`.
    ///
    /// # Errors
    ///
    /// [`BadMetadata`] names the field.
    pub fn parse(document: &Value, issuer: &Endpoint) -> Result<Self, BadMetadata> {
        let named = text(document, "issuer")?.ok_or(BadMetadata::Missing("issuer"))?;
        if named != issuer.as_str() {
            return Err(BadMetadata::OtherIssuer);
        }
        Ok(Self {
            keys: address(document, "jwks_uri")?.ok_or(BadMetadata::Missing("jwks_uri"))?,
            authorization: address(document, "authorization_endpoint")?,
            token: address(document, "token_endpoint")?,
            user_info: address(document, "userinfo_endpoint")?,
            end_session: address(document, "end_session_endpoint")?,
            answers_name_issuer: truth(document, "authorization_response_iss_parameter_supported")?,
            token_auth_methods: methods(document)?,
        })
    }
}

fn text<'d>(document: &'d Value, name: &'static str) -> Result<Option<&'d str>, BadMetadata> {
    match document.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(BadMetadata::Type(name)),
    }
}

fn truth(document: &Value, name: &'static str) -> Result<bool, BadMetadata> {
    match document.get(name) {
        None => Ok(false),
        Some(Value::Bool(truth)) => Ok(*truth),
        Some(_) => Err(BadMetadata::Type(name)),
    }
}

fn address(document: &Value, name: &'static str) -> Result<Option<Endpoint>, BadMetadata> {
    let parse = |text: &str| text.parse().map_err(|bad| BadMetadata::Address(name, bad));
    text(document, name)?.map(parse).transpose()
}

fn methods(document: &Value) -> Result<Vec<String>, BadMetadata> {
    const NAME: &str = "token_endpoint_auth_methods_supported";
    let wrong = || BadMetadata::Type(NAME);
    match document.get(NAME) {
        None => Ok(vec!["client_secret_basic".to_owned()]),
        Some(Value::Array(listed)) => {
            listed.iter().map(|method| method.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn issuer() -> Endpoint {
        "https://id.example.com".parse().unwrap()
    }

    #[test]
    fn description_of_a_machine_issuer_needs_keys_only() {
        let document = json!({"issuer": "https://id.example.com", "jwks_uri": "https://keys.example.com/k"});
        let read = Metadata::parse(&document, &issuer()).unwrap();
        assert_eq!(read.keys.as_str(), "https://keys.example.com/k");
        assert_eq!((read.authorization, read.answers_name_issuer), (None, false));
        assert_eq!(read.token_auth_methods, ["client_secret_basic"]);
    }

    #[test]
    fn issuer_has_to_be_the_configured_one_to_the_last_character() {
        for other in ["https://id.example.com/", "https://ID.example.com", "https://id.example.com:443", "https://evil"]
        {
            let document = json!({"issuer": other, "jwks_uri": "https://id.example.com/k"});
            assert_eq!(Metadata::parse(&document, &issuer()), Err(BadMetadata::OtherIssuer), "{other}");
        }
    }

    #[test]
    fn fields_of_a_wrong_type_and_addresses_in_plain_text_are_refused_by_name() {
        let good = json!({"issuer": "https://id.example.com", "jwks_uri": "https://id.example.com/k"});
        for (name, value, expected) in [
            ("issuer", json!(1), BadMetadata::Type("issuer")),
            ("jwks_uri", json!(null), BadMetadata::Type("jwks_uri")),
            (
                "token_endpoint",
                json!("http://id.example.com"),
                BadMetadata::Address("token_endpoint", BadEndpoint::Scheme),
            ),
            (
                "authorization_response_iss_parameter_supported",
                json!("true"),
                BadMetadata::Type("authorization_response_iss_parameter_supported"),
            ),
            (
                "token_endpoint_auth_methods_supported",
                json!([1]),
                BadMetadata::Type("token_endpoint_auth_methods_supported"),
            ),
        ] {
            let mut document = good.clone();
            document[name] = value;
            assert_eq!(Metadata::parse(&document, &issuer()), Err(expected), "{name}");
        }
        assert_eq!(Metadata::parse(&json!([]), &issuer()), Err(BadMetadata::Missing("issuer")));
    }
}
