//! The gateway's cookies stay the gateway's: apps neither see them nor set them. No answer of an app tosses cookies to its
//! neighbours either.
//!
//! Cookies that a page's own script sets (`document.cookie`) are seen by the browser alone: with `Domain=` the zone, or
//! a parent of it that is no public suffix, they reach every other workspace. Defences elsewhere keep that from harm:
//! the gateway's cookies are bound to their host by their prefix, a head that cookies made too large is answered with
//! how to get rid of them (`respond`), and a zone in the Public Suffix List has no such cookies at all.
//!
//! Names are compared exactly, in case, and every byte of the app's own cookies stays as it was: an app's cookie may use
//! any bytes.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use gateway_types::Zone;

/// Makes a browser bind the cookie to one host (RFC 6265bis, section 4.1.3.2).
pub const HOST_PREFIX: &str = "__Host-";

/// The names that are the gateway's, with and without [`HOST_PREFIX`]: over plain HTTP a browser takes only the latter.
#[derive(Clone, Debug)]
pub struct CookieNames {
    bases: [Box<str>; 2],
}

impl CookieNames {
    /// Takes the name of the session cookie and of the one that lives while a sign-in runs, with or without the prefix.
    #[must_use]
    pub fn new(session: &str, before_sign_in: &str) -> Self {
        let base = |name: &str| name.strip_prefix(HOST_PREFIX).unwrap_or(name).into();
        Self { bases: [base(session), base(before_sign_in)] }
    }

    /// Says whether a cookie name is reserved.
    #[must_use]
    pub fn is_reserved(&self, name: &[u8]) -> bool {
        let base = name.strip_prefix(HOST_PREFIX.as_bytes()).unwrap_or(name);
        self.bases.iter().any(|ours| ours.as_bytes() == base)
    }
}

/// Takes the gateway's cookies out of a request. Allocates only if there are any.
pub fn remove_own(headers: &mut HeaderMap, names: &CookieNames) {
    let is_ours = |pair: &[u8]| pair_name(pair).is_some_and(|name| names.is_reserved(name));
    let has_ours = |line: &HeaderValue| pairs(line).any(is_ours);
    if !headers.get_all(COOKIE).iter().any(has_ours) {
        return;
    }
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().filter_map(|line| without(line, is_ours)).collect();
    headers.remove(COOKIE);
    for line in lines {
        headers.append(COOKIE, line);
    }
}

/// Drops cookies that an app may not set: those under reserved names, and those for the zone or a parent of it, which
/// every other workspace would receive. Allocates only if there are any.
pub fn guard_set(headers: &mut HeaderMap, names: &CookieNames, zone: &Zone) {
    let is_refused = |value: &HeaderValue| sets_reserved(value, names) || tosses(value, zone);
    if !headers.get_all(SET_COOKIE).iter().any(is_refused) {
        return;
    }
    let kept: Vec<HeaderValue> =
        headers.get_all(SET_COOKIE).iter().filter(|value| !is_refused(value)).cloned().collect();
    headers.remove(SET_COOKIE);
    for value in kept {
        headers.append(SET_COOKIE, value);
    }
}

/// Removes `Domain` from cookies that an app set for `localhost`, the host that it was told is its own: the browser
/// knows it under another name, and would drop them. Without it, they belong to that host alone, as the app's cookies
/// do anyway. Allocates only if there are any.
pub fn unbind_localhost(headers: &mut HeaderMap) {
    if !headers.get_all(SET_COOKIE).iter().any(|value| pairs(value).skip(1).any(is_local_domain)) {
        return;
    }
    let lines = headers.get_all(SET_COOKIE).iter();
    let lines: Vec<HeaderValue> = lines.filter_map(|value| without_attributes(value, is_local_domain)).collect();
    headers.remove(SET_COOKIE);
    for line in lines {
        headers.append(SET_COOKIE, line);
    }
}

fn is_local_domain(attribute: &[u8]) -> bool {
    domain_of(attribute)
        .is_some_and(|domain| [&b"localhost"[..], b"127.0.0.1"].iter().any(|local| local.eq_ignore_ascii_case(domain)))
}

/// Returns the host that an attribute `Domain` names, without the dots around it.
pub(crate) fn domain_of(attribute: &[u8]) -> Option<&[u8]> {
    let name = pair_name(attribute)?;
    let domain = attribute.splitn(2, |byte| *byte == b'=').nth(1)?.trim_ascii();
    let domain = domain.strip_prefix(b".").unwrap_or(domain);
    let domain = domain.strip_suffix(b".").unwrap_or(domain);
    name.eq_ignore_ascii_case(b"domain").then_some(domain)
}

/// Returns a cookie without some of its attributes, every other byte as it was.
fn without_attributes(value: &HeaderValue, is_out: impl Fn(&[u8]) -> bool) -> Option<HeaderValue> {
    let kept = pairs(value).enumerate().filter(|(place, part)| *place == 0 || !is_out(part)).map(|(_, part)| part);
    let kept: Vec<&[u8]> = kept.collect();
    // Bytes taken from a field value are a field value again.
    HeaderValue::from_bytes(&kept.join(&b';')).ok()
}

pub(crate) fn pairs(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    line.as_bytes().split(|byte| *byte == b';')
}

pub(crate) fn pair_name(pair: &[u8]) -> Option<&[u8]> {
    let end = pair.iter().position(|byte| *byte == b'=')?;
    pair.get(..end).map(<[u8]>::trim_ascii)
}

/// Returns the line without some pairs, or `None` if nothing is left. The blank that followed the `;` of a removed first
/// pair goes with it.
fn without(line: &HeaderValue, is_ours: impl Fn(&[u8]) -> bool) -> Option<HeaderValue> {
    let mut kept = Vec::with_capacity(line.len());
    let mut is_first = true;
    for (place, pair) in pairs(line).enumerate() {
        if is_ours(pair) {
            continue;
        }
        if !is_first {
            kept.push(b';');
        }
        let moves_to_front = is_first && place > 0;
        kept.extend_from_slice(if moves_to_front { pair.trim_ascii_start() } else { pair });
        is_first = false;
    }
    if kept.trim_ascii().is_empty() {
        return None;
    }
    // Bytes taken from a field value are a field value again.
    HeaderValue::from_bytes(&kept).ok()
}

/// A nameless cookie `=NAME=VALUE` comes back from some browsers as `NAME=VALUE`, so leading `=` and blanks count as
/// nothing.
fn sets_reserved(value: &HeaderValue, names: &CookieNames) -> bool {
    let Some(pair) = pairs(value).next() else {
        return false;
    };
    let blank = |byte: &u8| *byte == b'=' || byte.is_ascii_whitespace();
    let start = pair.iter().position(|byte| !blank(byte)).unwrap_or(pair.len());
    let pair = pair.get(start..).unwrap_or_default();
    names.is_reserved(pair_name(pair).unwrap_or_else(|| pair.trim_ascii()))
}

fn tosses(value: &HeaderValue, zone: &Zone) -> bool {
    pairs(value).skip(1).any(|attribute| domain_of(attribute).is_some_and(|domain| is_zone_or_parent(domain, zone)))
}

fn is_zone_or_parent(domain: &[u8], zone: &Zone) -> bool {
    let zone = zone.as_str().as_bytes();
    let Some(start) = zone.len().checked_sub(domain.len()) else {
        return false;
    };
    let Some((head, tail)) = zone.split_at_checked(start) else {
        return false;
    };
    !domain.is_empty() && tail.eq_ignore_ascii_case(domain) && (head.is_empty() || head.ends_with(b"."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> CookieNames {
        CookieNames::new("__Host-gw", "gw-pre")
    }

    fn lines(headers: &HeaderMap) -> Vec<Vec<u8>> {
        headers.get_all(COOKIE).iter().map(|line| line.as_bytes().to_vec()).collect()
    }

    fn map(cookies: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in cookies {
            headers.append(COOKIE, HeaderValue::from_bytes(line).unwrap());
        }
        headers
    }

    #[track_caller]
    fn check_remove(cookies: &[&str], expected: &[&str]) {
        let mut headers = map(&cookies.iter().map(|line| line.as_bytes()).collect::<Vec<_>>());
        remove_own(&mut headers, &names());
        assert_eq!(lines(&headers), expected.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn own_cookies_are_removed_and_every_other_byte_stays() {
        check_remove(&["gw=1"], &[]);
        check_remove(&["a=1; gw=x; b=2"], &["a=1; b=2"]);
        check_remove(&["__Host-gw=x; a=1"], &["a=1"]);
        check_remove(&["a=1;gw-pre=x"], &["a=1"]);
        check_remove(&["a=1;  __Host-gw-pre = x ;b=2 ; "], &["a=1;b=2 ; "]);
        check_remove(&["gw=1; gw=2", "c=3", "gw=4;"], &["c=3"]);
        check_remove(&["a=\"q=gw=1\"; b=gw=2; gw=3"], &["a=\"q=gw=1\"; b=gw=2"]);
        for untouched in [
            "GW=1",
            "gwx=1",
            "xgw=1",
            "__host-gw=1",
            "gw",
            "__Host-__Host-gw=1",
            "",
            ";;",
            "=gw",
            "gw%3D=1; [x]={\"a\":1}",
        ] {
            check_remove(&[untouched], &[untouched]);
        }
    }

    #[track_caller]
    fn check_set(value: &str, is_kept: bool) {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, HeaderValue::from_static("first=1; Path=/"));
        headers.append(SET_COOKIE, value.parse().unwrap());
        guard_set(&mut headers, &names(), &"ws.example.com".parse().unwrap());
        assert_eq!(headers.get_all(SET_COOKIE).iter().count(), if is_kept { 2 } else { 1 }, "{value}");
        assert_eq!(headers.get(SET_COOKIE).unwrap(), "first=1; Path=/");
    }

    #[test]
    fn app_cannot_set_reserved_names_or_cookies_for_its_neighbours() {
        for kept in [
            "a=1",
            "a=1; Domain=8080-app.ws.example.com",
            "a=1; domain=",
            "a=1; Domain",
            "a=gw=1",
            "GW=1",
            "a=1; Path=/; Domain=other.org",
            "a=1; Domain=s.example.com",
            "a=1; Domain=xws.example.com",
            "a=1; notdomain=ws.example.com",
            "Domain=ws.example.com",
            "",
        ] {
            check_set(kept, true);
        }
        for dropped in [
            "gw=1",
            "__Host-gw=1; Path=/; Secure",
            "gw-pre=; Max-Age=0",
            " gw = 1",
            "=gw=1",
            "= =gw=1",
            "gw",
            "a=1; Domain=ws.example.com",
            "a=1; domain=.WS.Example.com",
            "a=1;DOMAIN = example.com ",
            "a=1; Domain=com",
            "a=1; Domain=ws.example.com.",
            "a=1; Domain=app.ws.example.com; Domain=ws.example.com",
        ] {
            check_set(dropped, false);
        }
    }

    #[track_caller]
    fn check_unbound(value: &str, expected: &str) {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, value.parse().unwrap());
        headers.append(SET_COOKIE, HeaderValue::from_static("b=2"));
        unbind_localhost(&mut headers);
        let all: Vec<_> = headers.get_all(SET_COOKIE).iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(all, [expected, "b=2"]);
    }

    #[test]
    fn cookie_for_the_host_that_the_app_was_told_is_for_the_real_one() {
        check_unbound("a=1; Domain=localhost; Path=/x; HttpOnly", "a=1; Path=/x; HttpOnly");
        check_unbound("a=1;domain = .LocalHost", "a=1");
        check_unbound("a=1; Path=/; Domain=127.0.0.1", "a=1; Path=/");
        for same in [
            "a=1; Domain=other.org",
            "a=1; Domain=x.localhost",
            "a=Domain=localhost",
            "Domain=localhost",
            "a=1; Domain",
        ] {
            check_unbound(same, same);
        }
    }

    /// Another way to say it: split everything, drop, join, and compare without looking at blanks.
    fn model(cookies: &[String]) -> Vec<String> {
        let ours = ["gw", "gw-pre", "__Host-gw", "__Host-gw-pre"];
        let mut kept = Vec::new();
        for line in cookies {
            for pair in line.split(';') {
                let name = pair.split_once('=').map(|(name, _)| name.trim());
                if !name.is_some_and(|name| ours.contains(&name)) {
                    kept.push(pair.trim().to_owned());
                }
            }
        }
        kept.retain(|pair| !pair.is_empty());
        kept
    }

    proptest! {
        #[test]
        fn removal_agrees_with_the_model(
            cookies in proptest::collection::vec("(( ?(gw|__Host-gw|gw-pre|__Host-gw-pre|a|GW|gwx)( ?= ?[a-z=\"]{0,3})?|[ =a-z\"]{0,4});?){0,6}", 0..4)
        ) {
            let mut headers = map(&cookies.iter().map(String::as_bytes).collect::<Vec<_>>());
            let before = lines(&headers);
            remove_own(&mut headers, &names());
            let after: Vec<String> = lines(&headers).into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
            let pairs: Vec<String> = after.iter().flat_map(|line| line.split(';')).map(|pair| pair.trim().to_owned())
                .filter(|pair| !pair.is_empty()).collect();
            prop_assert_eq!(&pairs, &model(&cookies));
            for line in lines(&headers) {
                // What is left is made of the old bytes in the old order.
                let is_from = |old: &Vec<u8>| { let mut rest = old.iter(); line.iter().all(|byte| rest.any(|other| other == byte)) };
                prop_assert!(before.iter().any(is_from));
            }
        }
    }
}
