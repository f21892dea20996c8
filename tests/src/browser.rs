//! A browser in as far as tests need one: it keeps cookies by host and follows redirects. Every host is this machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use url::Url;

use crate::raw::{Message, Raw};

/// Redirects that are followed before a test fails.
const REDIRECTS_MAX: usize = 12;

/// What a navigation says about itself. Over plain HTTP browsers say it to local hosts only, which these are.
const NAVIGATION: &str =
    "accept: text/html\r\nsec-fetch-mode: navigate\r\nsec-fetch-dest: document\r\nsec-fetch-site: cross-site\r\n";

/// A browser.
#[derive(Clone, Debug, Default)]
pub struct Browser {
    /// By host, without the port, as browsers keep them; then by name.
    jar: BTreeMap<String, BTreeMap<String, String>>,
    /// Every address that it went to, in order.
    pub visited: Vec<String>,
    /// Replicas to which a balancer leads one request after the other.
    pub replicas: Vec<SocketAddr>,
    /// The balancer's port in addresses.
    balanced_port: u16,
}

impl Browser {
    /// Makes a browser behind a balancer, which leads what it asks at `port` to one replica after the other.
    #[must_use]
    pub fn balanced(port: u16, replicas: Vec<SocketAddr>) -> Self {
        Self { replicas, balanced_port: port, ..Self::default() }
    }

    /// Opens an address, and no other.
    pub async fn visit(&mut self, address: &str) -> Message {
        self.ask("GET", address, NAVIGATION, "").await
    }

    /// Opens an address and goes wherever that leads; returns the last address and its answer.
    pub async fn follow(&mut self, address: &str) -> (String, Message) {
        let mut address = address.to_owned();
        for _ in 0..REDIRECTS_MAX {
            let answer = self.visit(&address).await;
            let Some(location) = answer.header("location") else { return (address, answer) };
            address = Url::parse(&address).expect("an address").join(location).expect("an address").into();
        }
        panic!("redirected for ever: {:?}", self.visited);
    }

    /// Opens an address and follows redirects until one leads to an address that contains `until`, which it does not open.
    pub async fn follow_until(&mut self, address: &str, until: &str) -> String {
        let mut address = address.to_owned();
        for _ in 0..REDIRECTS_MAX {
            if address.contains(until) {
                return address;
            }
            let answer = self.visit(&address).await;
            let location = answer.header("location").unwrap_or_else(|| panic!("{address} leads nowhere: {answer:?}"));
            address = Url::parse(&address).expect("an address").join(location).expect("an address").into();
        }
        panic!("redirected for ever: {:?}", self.visited);
    }

    /// Asks with a method and fields of the test's choice; `fields` are whole lines.
    pub async fn ask(&mut self, method: &str, address: &str, fields: &str, body: &str) -> Message {
        let mut raw = self.send(method, address, fields, body).await;
        let answer = raw.message().await.expect("an answer");
        self.keep(address, &answer);
        answer
    }

    /// Sends a request without waiting for an answer.
    pub async fn send(&mut self, method: &str, address: &str, fields: &str, body: &str) -> Raw {
        let url = Url::parse(address).expect("an address");
        self.visited.push(address.to_owned());
        let port = url.port_or_known_default().expect("a port");
        let host = url.host_str().expect("a host");
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let pairs = self.jar.get(host).into_iter().flatten();
        let line = pairs.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
        let cookies = if line.is_empty() { String::new() } else { format!("cookie: {line}\r\n") };
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let own = SocketAddr::from(([127, 0, 0, 1], port));
        let to = if port == self.balanced_port { self.replicas.first().copied() } else { None };
        if to.is_some() {
            self.replicas.rotate_left(1);
        }
        let mut raw = Raw::connect(to.unwrap_or(own)).await;
        raw.send(format!("{method} {target} HTTP/1.1\r\nhost: {host}:{port}\r\n{fields}{cookies}{length}\r\n{body}"))
            .await;
        raw
    }

    fn keep(&mut self, address: &str, answer: &Message) {
        let host = Url::parse(address).expect("an address").host_str().expect("a host").to_owned();
        for (_, line) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let pair = line.split(';').next().expect("a pair");
            let (name, value) = pair.split_once('=').expect("a pair");
            let jar = self.jar.entry(host.clone()).or_default();
            if line.contains("Max-Age=0") {
                jar.remove(name);
            } else {
                jar.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// Returns a cookie of a host.
    pub fn cookie(&self, host: &str, name: &str) -> Option<&str> {
        self.jar.get(host)?.get(name).map(String::as_str)
    }

    /// Takes over a cookie that somebody else has, as one who stole or planted it would.
    pub fn plant(&mut self, host: &str, name: &str, value: &str) {
        self.jar.entry(host.to_owned()).or_default().insert(name.to_owned(), value.to_owned());
    }
}
