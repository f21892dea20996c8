//! Host names under which the operator's listener answers. It has no sign-in, so a page in the operator's browser whose
//! own name resolves to this address could read it; such a page can choose any name, but no address and not
//! `localhost`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns whether an authority cannot belong to a foreign page: an address, `localhost`, or a name that the operator
/// configured.
pub(super) fn is_own(authority: &str, names: &[String]) -> bool {
    if let Some(address) = authority.strip_prefix('[') {
        return address.split_once(']').is_some_and(|(address, rest)| {
            address.parse::<Ipv6Addr>().is_ok() && (rest.is_empty() || rest.starts_with(':'))
        });
    }
    let host = authority.split(':').next().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host);
    host.parse::<Ipv4Addr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_configured_names_are_answered() {
        let names = ["gateway-admin.internal".to_owned()];
        for (authority, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8082", true),
            ("10.1.2.3:8082", true),
            ("[::1]:8082", true),
            ("[fd00::1]", true),
            ("localhost", true),
            ("LOCALHOST:8082", true),
            ("localhost.:8082", true),
            ("Gateway-Admin.internal:8082", true),
            ("evil.example", false),
            ("evil.example:8082", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("gateway-admin.internal.evil.example", false),
            ("[::1]evil.example", false),
            ("[evil.example]", false),
            ("", false),
            (":8082", false),
        ] {
            assert_eq!(is_own(authority, &names), expected, "{authority:?}");
        }
    }
}
