//! Page for a workspace's address without a port, while its agent names no port for it: lists the ports that there are.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};

use super::{PAGE_POLICY, PublicLinks};
use gateway_types::markup::escape;
use gateway_types::{Port, WorkspaceName};
use page_look::LonePage;

/// Reload interval of the page of a workspace on which nothing listens yet, in seconds.
const AGAIN_SECONDS: u16 = 5;

/// One port that the visitor may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLink {
    /// The port.
    pub port: Port,
    /// Its address for the visitor.
    pub url: String,
    /// Whether something listens there, if that is known.
    pub listens: Option<bool>,
    /// Its name, or that of the program there.
    pub label: Option<String>,
    /// The protocol of the app, as one word.
    pub protocol: &'static str,
    /// Its audiences beside the owner, for the owner; for others none is said.
    pub open_to: Vec<String>,
}

/// The ports of a workspace to choose from.
#[derive(Clone, Debug)]
pub struct PortList<'a> {
    /// The workspace.
    pub workspace: &'a WorkspaceName,
    /// Ports to choose from.
    pub links: Vec<PortLink>,
    /// Address of any port, with `PORT` as the placeholder, for visitors who may reach each port.
    pub pattern: Option<String>,
}

/// Makes the page, which leads to `public` too. Names and addresses come from the gateway; nothing of the request is in it.
pub fn page(list: &PortList<'_>, public: &PublicLinks, method_is_head: bool) -> Response<Bytes> {
    let name = escape(list.workspace.as_str());
    let rows: String = list.links.iter().map(row).collect();
    let (text, again) = match (list.links.iter().any(|link| link.listens == Some(true)), list.links.is_empty()) {
        (true, _) => ("It is connected. These ports can be opened:".to_owned(), String::new()),
        (false, false) => ("It is connected. These ports are named, and may have an app:".to_owned(), String::new()),
        (false, true) => {
            let again = format!("<meta http-equiv=\"refresh\" content=\"{AGAIN_SECONDS}\">\n");
            (
                "It is connected, and nothing that you may open listens on a port. This page looks again.".to_owned(),
                again,
            )
        }
    };
    let list_of = if rows.is_empty() { String::new() } else { format!("<ul class=\"ports\">{rows}</ul>") };
    let pattern = list.pattern.as_deref().map(escape).map(|pattern| {
        format!("<p class=\"hint\">Any other port is at <code>{pattern}</code>. For an app at this address itself, start the \
                 agent with <code>--default-port PORT</code>.</p>")
    });
    let body = format!("<p>{text}</p>\n{list_of}{}\n{}", pattern.unwrap_or_default(), public.line());
    let page = LonePage { title: &name, head: &again, body: &body, home: Some(&public.home) }.to_html();
    let mut response = Response::new(if method_is_head { Bytes::new() } else { Bytes::from(page) });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(policy) = HeaderValue::from_str(&PAGE_POLICY) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Adds the ports to the problem document that programs get instead of the page.
pub fn add_to_problem(response: &mut Response<Bytes>, list: &PortList<'_>) {
    let Ok(mut problem) = serde_json::from_slice::<serde_json::Value>(response.body()) else { return };
    let Some(members) = problem.as_object_mut() else { return };
    let one = |link: &PortLink| {
        serde_json::json!({
            "port": link.port.get(), "url": link.url, "listens": link.listens, "label": link.label,
            "protocol": link.protocol, "open_to": link.open_to,
        })
    };
    members.insert("ports".to_owned(), list.links.iter().map(one).collect());
    *response.body_mut() = Bytes::from(problem.to_string());
}

fn row(link: &PortLink) -> String {
    // Names of programs come from the workspace.
    let hint = |text: &str| format!(" <span class=\"hint\">{}</span>", escape(text));
    let label = link.label.as_deref().map(hint);
    // What most ports are is not worth a word.
    let protocol = Some(link.protocol).filter(|protocol| *protocol != "http1").map(hint);
    let open_to = Some(link.open_to.join(", ")).filter(|open_to| !open_to.is_empty());
    let open_to = open_to.map(|open_to| hint(&format!("open to {open_to}")));
    let closed = match link.listens {
        Some(false) => " <span class=\"hint\">nothing listens yet</span>",
        Some(true) | None => "",
    };
    let hints: String = [label, protocol, open_to].into_iter().flatten().collect();
    format!("<li><a href=\"{}\">port {}</a>{hints}{closed}</li>", escape(&link.url), link.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(number: u16, listens: Option<bool>) -> PortLink {
        let port = Port::new(number).unwrap();
        let (url, label) = (format!("http://{port}-my-app.localhost:8080/"), port.label().map(str::to_owned));
        PortLink { port, url, listens, label, protocol: "http1", open_to: Vec::new() }
    }

    fn public() -> PublicLinks {
        PublicLinks::new("http://localhost:8080/", "http://localhost:8080/help")
    }

    fn text(links: Vec<PortLink>) -> String {
        let workspace = "my-app".parse().unwrap();
        let pattern = Some("http://PORT-my-app.localhost:8080/".to_owned());
        let response = page(&PortList { workspace: &workspace, links, pattern }, &public(), false);
        String::from_utf8(response.into_body().to_vec()).unwrap()
    }

    #[test]
    fn each_port_is_a_link_and_those_of_the_product_say_what_they_are() {
        let text = text(vec![link(3000, Some(true)), link(60_001, Some(true)), link(60_002, Some(false))]);
        assert!(text.contains("<a href=\"http://3000-my-app.localhost:8080/\">port 3000</a></li>"), "{text}");
        assert!(text.contains("port 60001</a> <span class=\"hint\">editor</span></li>"), "{text}");
        assert!(text.contains("terminal</span> <span class=\"hint\">nothing listens yet</span>"), "{text}");
        assert!(!text.contains("http-equiv"), "nothing is waited for");
    }

    #[test]
    fn what_is_known_of_a_port_is_beside_it_and_is_text() {
        let link = PortLink {
            label: Some("<b>app</b>".to_owned()),
            protocol: "https",
            open_to: vec!["public".to_owned(), "user:ann".to_owned()],
            ..link(8443, Some(true))
        };
        let text = text(vec![link]);
        for hint in ["&lt;b&gt;app&lt;/b&gt;", "https", "open to public, user:ann"] {
            assert!(text.contains(&format!("<span class=\"hint\">{hint}</span>")), "{hint}: {text}");
        }
    }

    #[test]
    fn page_leads_to_help_and_to_all_workspaces_at_the_public_address() {
        let text = text(Vec::new());
        for link in
            ["<a class=\"brand\" href=\"http://localhost:8080/\">", "<a href=\"http://localhost:8080/help\">Help</a>"]
        {
            assert!(text.contains(link), "{link}: {text}");
        }
    }

    #[test]
    fn page_without_a_port_looks_again() {
        assert!(text(Vec::new()).contains("http-equiv=\"refresh\" content=\"5\""));
    }

    #[test]
    fn page_may_run_nothing_and_no_page_may_frame_it() {
        let workspace = "my-app".parse().unwrap();
        let response = page(&PortList { workspace: &workspace, links: Vec::new(), pattern: None }, &public(), true);
        let policy = response.headers().get(CONTENT_SECURITY_POLICY).and_then(|value| value.to_str().ok()).unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(response.body().is_empty());
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    }
}
