use super::*;

const HTTPS: &str = "https://gateway.example.com";
const HTTP: &str = "http://10.1.2.3:8081";

fn chosen(gateway: &str, environment: &[(&str, &str)]) -> Result<Option<Proxy>, BadProxy> {
    let find = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    choose(&gateway.parse().expect("a URL"), find)
}

#[track_caller]
fn check(gateway: &str, environment: &[(&str, &str)], expected: Option<&str>) {
    let proxy = chosen(gateway, environment).unwrap_or_else(|error| panic!("{environment:?}: {error}"));
    assert_eq!(proxy.map(|proxy| proxy.to_string()).as_deref(), expected, "{gateway} with {environment:?}");
}

#[test]
fn proxy_is_that_of_the_gateways_scheme_or_of_all() {
    check(HTTPS, &[], None);
    check(HTTPS, &[("HTTPS_PROXY", "http://proxy:3128")], Some("http://proxy:3128"));
    check(HTTPS, &[("https_proxy", "http://proxy:3128")], Some("http://proxy:3128"));
    check(HTTPS, &[("HTTP_PROXY", "http://proxy:3128")], None);
    check(HTTP, &[("HTTPS_PROXY", "http://proxy:3128")], None);
    check(HTTP, &[("HTTP_PROXY", "http://proxy:3128")], Some("http://proxy:3128"));
    check(HTTP, &[("http_proxy", "http://proxy:3128")], Some("http://proxy:3128"));
    for gateway in [HTTP, HTTPS] {
        check(gateway, &[("ALL_PROXY", "socks5h://proxy")], Some("socks5h://proxy:1080"));
        check(gateway, &[("all_proxy", "socks5://proxy:9")], Some("socks5://proxy:9"));
    }
    let both = [("ALL_PROXY", "socks5h://all"), ("HTTPS_PROXY", "http://own")];
    check(HTTPS, &both, Some("http://own:80"));
    check(HTTP, &both, Some("socks5h://all:1080"));
    check(HTTPS, &[("HTTPS_PROXY", "http://upper"), ("https_proxy", "http://lower")], Some("http://lower:80"));
    check(HTTPS, &[("HTTPS_PROXY", "http://upper"), ("https_proxy", "")], Some("http://upper:80"));
    check(HTTPS, &[("HTTPS_PROXY", " ")], None);
    // Set by a request's header in CGI.
    check(HTTP, &[("HTTP_PROXY", "http://evil"), ("REQUEST_METHOD", "GET")], None);
    check(HTTP, &[("http_proxy", "http://proxy"), ("REQUEST_METHOD", "GET")], Some("http://proxy:80"));
}

#[test]
fn forms_of_a_proxy_are_read() {
    for (value, expected) in [
        ("proxy:3128", "http://proxy:3128"),
        ("http://proxy:3128/", "http://proxy:3128"),
        ("https://proxy", "https://proxy:443"),
        ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
        ("socks5h://[::1]", "socks5h://[::1]:1080"),
        (" http://proxy:3128 ", "http://proxy:3128"),
        ("http://user:secret@proxy:3128", "http://proxy:3128"),
    ] {
        check(HTTPS, &[("HTTPS_PROXY", value)], Some(expected));
    }
}

#[test]
fn credentials_are_read_and_shown_nowhere() {
    for scheme in ["http", "https", "socks5", "socks5h"] {
        let value = format!("{scheme}://us%40er:p%3Ass%2Fword@proxy:9");
        let proxy = chosen(HTTPS, &[("HTTPS_PROXY", &value)]).expect("usable").expect("a proxy");
        match &proxy.kind {
            ProxyKind::Http { authorization, .. } => {
                let authorization = authorization.as_ref().expect("credentials");
                assert_eq!(authorization, "Basic dXNAZXI6cDpzcy93b3Jk");
                assert!(authorization.is_sensitive());
            }
            ProxyKind::Socks5 { credentials, .. } => {
                assert_eq!(credentials, &Some(("us@er".to_owned(), "p:ss/word".to_owned())));
            }
        }
        let shown = format!("{proxy} {proxy:?}");
        assert!(!shown.contains("er") && !shown.contains("word") && !shown.contains("dXN"), "{shown}");
    }
}

#[test]
fn proxy_that_cannot_be_used_is_named_by_its_variable_only() {
    for value in [
        "http://",
        "http://user:p/ss@proxy",
        "://proxy",
        "http://user:secret@",
        "a b",
        "http://:3128",
        "http://proxy:port",
        "http://proxy:0",
        "http://user:p?x@proxy",
    ] {
        let error = chosen(HTTPS, &[("HTTPS_PROXY", value)]).expect_err(value);
        assert_eq!(error, BadProxy::Url("HTTPS_PROXY"), "{value}");
    }
    for scheme in ["socks4", "socks4a", "socks", "ftp"] {
        let error = chosen(HTTPS, &[("all_proxy", &format!("{scheme}://user:secret@proxy"))]).expect_err(scheme);
        assert_eq!(error, BadProxy::Scheme { variable: "all_proxy", scheme: scheme.to_owned() });
        assert!(!error.to_string().contains("secret"));
    }
    // It is not asked for.
    assert_eq!(chosen(HTTPS, &[("HTTPS_PROXY", "http://"), ("NO_PROXY", "*")]), Ok(None));
}

#[test]
fn forms_of_no_proxy_are_understood() {
    let exempt = |gateway: &str, list: &str| {
        let environment = [("ALL_PROXY", "http://proxy"), ("NO_PROXY", list)];
        chosen(gateway, &environment).expect("usable").is_none()
    };
    let name = "https://gateway.example.com";
    for list in [
        "*",
        "gateway.example.com",
        "GATEWAY.example.COM",
        "example.com",
        ".example.com",
        "*.example.com",
        ".com",
        "localhost,gateway.example.com",
        "localhost, gateway.example.com ,",
        "localhost gateway.example.com",
        "gateway.example.com:443",
        "gateway.example.com.",
    ] {
        assert!(exempt(name, list), "{list}");
    }
    for list in ["", "example.org", "way.example.com", "ateway.example.com", "gateway.example.com:8443", "10.0.0.0/8"] {
        assert!(!exempt(name, list), "{list}");
    }
    for list in ["*", "10.1.2.3", "10.0.0.0/8", "10.1.2.3/32", "10.1.2.3:8081", "10.1.2.3,x"] {
        assert!(exempt(HTTP, list), "{list}");
    }
    for list in ["10.1.2.4", "11.0.0.0/8", "10.1.2.3:80", "1.2.3", "*.2.3"] {
        assert!(!exempt(HTTP, list), "{list}");
    }
    let six = "http://[fd00::7]:8081";
    for list in ["fd00::7", "[fd00::7]", "fd00::/8", "[fd00::7]:8081", "*"] {
        assert!(exempt(six, list), "{list}");
    }
    for list in ["fd00::8", "fe80::/10", "[fd00::7]:80", "::1"] {
        assert!(!exempt(six, list), "{list}");
    }
    // The lower-case name goes first here too.
    let both = [("ALL_PROXY", "http://proxy"), ("NO_PROXY", "*"), ("no_proxy", "example.org")];
    check(HTTPS, &both, Some("http://proxy:80"));
}
