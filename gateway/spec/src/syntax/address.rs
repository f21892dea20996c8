//! Addresses of workspaces, for the processes in them.

use url::Url;

/// Returns whether a text is the URL of a server of web pages, or of a gateway.
#[must_use]
pub fn is_web_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Returns the URL of a workspace's port for a browser, with `{port}` for it: hosts of workspaces have scheme and port
/// of the public URL. Empty if that is none.
#[must_use]
pub fn url_template(public_url: &str, workspace: &str, zone: &str) -> String {
    let Ok(url) = Url::parse(public_url) else {
        return String::new();
    };
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{{port}}-{workspace}.{zone}{port}", url.scheme())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_has_scheme_and_port_of_the_public_url() {
        let of = |url| url_template(url, "shop", "ws.example.com");
        assert_eq!(of("https://gateway.example.com"), "https://{port}-shop.ws.example.com");
        assert_eq!(of("http://localhost:8080"), "http://{port}-shop.ws.example.com:8080");
        assert_eq!(of("nothing"), "");
    }

    #[test]
    fn web_urls_are_told_from_other_text() {
        assert!(is_web_url("https://a.example.com/x") && is_web_url("http://127.0.0.1:1"));
        for text in ["", "a", "ftp://a", "https://", "file:///etc/passwd", "-o", "ext::sh"] {
            assert!(!is_web_url(text), "{text}");
        }
    }
}
