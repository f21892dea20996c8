//! The link that dev mode prints.

use std::fmt;

use crate::sign_in::SIGN_IN_PATH;
use crate::sign_in::path::ReturnPath;
use crate::site::Site;
use gateway_types::opaque::Opaque;

/// A link that signs its opener in. `Display` shows it whole, for the operator; `Debug` masks it.
pub struct SignInLink(String);

impl SignInLink {
    pub(super) fn new(site: &Site, code: &Opaque) -> Self {
        Self(site.public(&format!("{SIGN_IN_PATH}?code={}", code.reveal())))
    }

    /// Makes the link go on to `path` of a workspace host after sign-in, instead of to the public host.
    #[must_use]
    pub fn to_workspace(&self, host: &str, path: &ReturnPath) -> Self {
        let more = form_urlencoded::Serializer::new(String::new())
            .append_pair("host", host)
            .append_pair("return", path.as_str())
            .finish();
        Self(format!("{}&{more}", self.0))
    }
}

impl fmt::Display for SignInLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SignInLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SignInLink(..)")
    }
}
