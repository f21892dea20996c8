//! Advice about configurations that work and could be better: logged at the start and shown by `config check`, and
//! refused by neither.

use super::Config;
use gateway_types::Zone;

/// Labels under a country's domain that are known to be for many owners, such as `co` in `co.uk`. The list of all of them
/// (publicsuffix.org) is long and changes; these are most of those that two registered names share.
const SECOND_LEVELS: [&str; 17] =
    ["ac", "asn", "co", "com", "edu", "go", "gob", "gouv", "gov", "id", "ltd", "me", "ne", "net", "or", "org", "plc"];

/// Returns advice for the operator of a valid configuration.
#[must_use]
pub fn advice(config: &Config) -> Vec<String> {
    shared_parent(config.public_url.host(), &config.zone).into_iter().map(|parent| words(&parent, config)).collect()
}

fn words(parent: &str, config: &Config) -> String {
    format!(
        "public_url and zone share the parent {parent}: a page of any workspace can set cookies for {parent}, which browsers then \
         send to {} too, until its requests are too large. Use a registrable domain of its own for zone; and have {} entered in \
         the Public Suffix List (publicsuffix.org), so that workspaces cannot do the same to each other",
        config.public_url.host(),
        config.zone
    )
}

/// Returns the longest domain that contains both, if any: a host below it could set cookies for it. It has two labels
/// or more, and is no public suffix as far as that is known.
fn shared_parent(host: &str, zone: &Zone) -> Option<String> {
    let labels = |name: &str| -> Vec<String> { name.rsplit('.').map(str::to_ascii_lowercase).collect() };
    let (host, zone) = (labels(host), labels(zone.as_str()));
    let mut shared: Vec<&str> =
        host.iter().zip(&zone).take_while(|(one, other)| one == other).map(|(one, _)| one.as_str()).collect();
    let is_public = match shared.as_slice() {
        [] | [_] => true,
        [top, second] => top.len() == 2 && SECOND_LEVELS.contains(second),
        [_, _, ..] => false,
    };
    if is_public {
        return None;
    }
    shared.reverse();
    Some(shared.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_that_a_page_could_set_cookies_for_is_told() {
        for (host, zone, expected) in [
            ("gw.example.com", "ws.example.com", Some("example.com")),
            ("GW.example.com", "example.com", Some("example.com")),
            ("gw.a.example.com", "ws.a.example.com", Some("a.example.com")),
            ("gw.example.co.uk", "ws.example.co.uk", Some("example.co.uk")),
            ("gw.example.com", "example.dev", None),
            ("example.com", "example-workspaces.com", None),
            ("example.co.uk", "workspaces.co.uk", None),
            ("localhost", "localhost", None),
            ("127.0.0.1", "localhost", None),
        ] {
            let found = shared_parent(host, &zone.parse().unwrap());
            assert_eq!(found.as_deref(), expected, "{host} {zone}");
        }
    }

    #[test]
    fn defaults_need_no_advice() {
        assert_eq!(advice(&Config::default()), Vec::<String>::new());
    }
}
