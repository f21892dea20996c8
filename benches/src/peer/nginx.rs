//! nginx as a reverse proxy: once; twice in a row, which is the shape of any tunnel: two hops that route by host; and three times, the
//! shape of one behind several replicas.

use std::fmt::Write as _;
use std::net::SocketAddr;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::crew::Crew;
use super::program::{Invocation, PeerProgram, Programs, free_address, wait_for_listener};
use super::{HOST, Peer, RoutingKind};

/// Source of nginx.
pub(super) const NGINX_PROGRAM: PeerProgram =
    PeerProgram { name: "nginx", version: "-v", source: "Debian package nginx" };

/// The name in the certificate between two nginx.
const FAR_NAME: &str = "far.loadlab.test";

/// One nginx.
pub(super) const NGINX: Peer = Peer {
    name: "nginx",
    kind: RoutingKind::Host,
    encrypted: false,
    programs: Programs(&[NGINX_PROGRAM]),
    about: "one nginx, routing by host",
    raise: |crew| {
        async {
            let app = crew.over_link(crew.backend)?;
            front(crew, app).await
        }
        .boxed()
    },
};

/// Two nginx in a row.
pub(super) const NGINX_NGINX: Peer = Peer {
    name: "nginx-nginx",
    kind: RoutingKind::Host,
    encrypted: false,
    programs: Programs(&[NGINX_PROGRAM]),
    about: "two nginx in a row, plain HTTP between them",
    raise: |crew| row(crew, 2, false),
};

/// Two nginx in a row with TLS between them.
pub(super) const NGINX_NGINX_TLS: Peer = Peer {
    name: "nginx-nginx-tls",
    kind: RoutingKind::Host,
    encrypted: true,
    programs: Programs(&[NGINX_PROGRAM]),
    about: "two nginx in a row, TLS 1.3 between them",
    raise: |crew| row(crew, 2, true),
};

/// Three nginx in a row: a request that comes to another replica than the agent's has three hops too.
pub(super) const NGINX_THREE: Peer = Peer {
    name: "nginx-nginx-nginx",
    kind: RoutingKind::Host,
    encrypted: false,
    programs: Programs(&[NGINX_PROGRAM]),
    about: "three nginx in a row, plain HTTP between them",
    raise: |crew| row(crew, 3, false),
};

/// Three nginx in a row with TLS between the first two, as between replicas.
pub(super) const NGINX_THREE_TLS: Peer = Peer {
    name: "nginx-nginx-nginx-tls",
    kind: RoutingKind::Host,
    encrypted: true,
    programs: Programs(&[NGINX_PROGRAM]),
    about: "three nginx in a row, TLS 1.3 between the first two",
    raise: |crew| row(crew, 3, true),
};

/// Starts some nginx in a row, the last one beside the app, with or without TLS between the first two.
fn row(crew: &mut Crew, length: usize, encrypted: bool) -> BoxFuture<'_, anyhow::Result<SocketAddr>> {
    async move {
        let keys = if encrypted { Some(write_keys(crew)?) } else { None };
        let mut to = crew.backend;
        for place in (0..length).rev() {
            let listen = free_address()?;
            let hop = Hop {
                listen,
                to,
                accepts: keys.as_ref().filter(|_| place == 1),
                dials: keys.as_ref().filter(|_| place == 0),
            };
            let invocation = hop.invocation(crew, &format!("nginx-{place}"))?;
            let is_last = place + 1 == length;
            if is_last {
                crew.agent(invocation)?
            } else {
                crew.server(invocation)?
            }
            wait_for_listener(listen).await?;
            to = if is_last { crew.over_link(listen)? } else { listen };
        }
        Ok(to)
    }
    .boxed()
}

/// Puts an nginx that routes by host in front of a port, as people do with tunnels that only know ports.
///
/// # Errors
/// Fails if nginx does not start.
pub(super) async fn front(crew: &mut Crew, to: SocketAddr) -> anyhow::Result<SocketAddr> {
    wait_for_listener(to).await?;
    let listen = free_address()?;
    let invocation = Hop { listen, to, accepts: None, dials: None }.invocation(crew, "front")?;
    crew.server(invocation)?;
    wait_for_listener(listen).await?;
    Ok(listen)
}

/// Files of the certificate between two nginx.
struct NginxKeys {
    authority: String,
    certificate: String,
    key: String,
}

fn write_keys(crew: &Crew) -> anyhow::Result<NginxKeys> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // A name of its own: a certificate whose issuer has its own name counts as signed by itself.
    authority.distinguished_name.push(DnType::CommonName, "loadlab authority");
    let authority_text = authority.self_signed(&authority_key)?.pem();
    let key = KeyPair::generate()?;
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(vec![FAR_NAME.to_owned()])?.signed_by(&key, &issuer)?;
    let path = |name, text: String| Ok::<_, anyhow::Error>(crew.write(name, &text)?.display().to_string());
    Ok(NginxKeys {
        authority: path("authority.pem", authority_text)?,
        certificate: path("certificate.pem", certificate.pem())?,
        key: path("key.pem", key.serialize_pem())?,
    })
}

/// One nginx, with its listener and its next hop.
struct Hop<'a> {
    listen: SocketAddr,
    to: SocketAddr,
    /// TLS towards users.
    accepts: Option<&'a NginxKeys>,
    /// TLS towards the next hop.
    dials: Option<&'a NginxKeys>,
}

impl Hop<'_> {
    fn invocation(&self, crew: &Crew, name: &str) -> anyhow::Result<Invocation> {
        let folder = crew.directory().join(name);
        std::fs::create_dir_all(&folder)?;
        let folder = folder.display().to_string();
        let file = crew.write(&format!("{name}.conf"), &self.configuration(&folder))?;
        Ok(Invocation::new("nginx").arg("-p").arg(&folder).args(["-e", "stderr"]).arg("-c").arg(file))
    }

    /// Configuration as an operator who cares about speed writes it: connections to the next hop are kept, bodies are
    /// streamed both ways, nothing is logged or spooled to disk, two workers.
    fn configuration(&self, folder: &str) -> String {
        let Self { listen, to, accepts, dials } = self;
        let mut text = format!(
            "daemon off;\npid {folder}/pid;\nerror_log stderr error;\nworker_processes 2;\n\
             worker_rlimit_nofile 19000;\nevents {{ worker_connections 9000; }}\nhttp {{\n"
        );
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            // Writing to a string does not fail.
            writeln!(text, "  {kind}_temp_path {folder}/{kind};").ok();
        }
        text.push_str(
            "  access_log off;\n  tcp_nodelay on;\n  keepalive_timeout 900s;\n  keepalive_requests 1000000000;\n  \
             client_max_body_size 0;\n  server_names_hash_bucket_size 128;\n  proxy_http_version 1.1;\n  \
             proxy_request_buffering off;\n  proxy_max_temp_file_size 0;\n  proxy_read_timeout 900s;\n  \
             proxy_set_header Host $host;\n  proxy_set_header Upgrade $http_upgrade;\n  \
             proxy_set_header Connection $connection_next;\n  \
             map $http_upgrade $connection_next { default upgrade; '' ''; }\n",
        );
        let scheme = if dials.is_some() { "https" } else { "http" };
        if let Some(keys) = dials {
            let authority = &keys.authority;
            write!(
                text,
                "  proxy_ssl_protocols TLSv1.3;\n  proxy_ssl_verify on;\n  proxy_ssl_trusted_certificate {authority};\n  \
                 proxy_ssl_name {FAR_NAME};\n  proxy_ssl_server_name on;\n  proxy_ssl_session_reuse on;\n"
            )
            .ok();
        }
        writeln!(
            text,
            "  upstream next {{ server {to}; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 900s; }}"
        )
        .ok();
        let tls = accepts.map_or_else(String::new, |keys| {
            format!(" ssl_protocols TLSv1.3; ssl_certificate {}; ssl_certificate_key {};", keys.certificate, keys.key)
        });
        let ssl = if accepts.is_some() { " ssl" } else { "" };
        writeln!(
            text,
            "  server {{ listen {listen} backlog=4096{ssl};{tls} server_name {HOST}; \
             location / {{ proxy_pass {scheme}://next; }} }}\n}}"
        )
        .ok();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_encrypted_hops_speak_tls() {
        let keys = NginxKeys { authority: "/a".into(), certificate: "/c".into(), key: "/k".into() };
        let listen = "127.0.0.1:1".parse().unwrap();
        let to = "127.0.0.1:2".parse().unwrap();
        let plain = Hop { listen, to, accepts: None, dials: None }.configuration("/f");
        assert!(plain.contains("proxy_pass http://next") && !plain.contains("ssl"), "{plain}");

        let first = Hop { listen, to, accepts: None, dials: Some(&keys) }.configuration("/f");
        assert!(first.contains("proxy_pass https://next") && first.contains("proxy_ssl_verify on"), "{first}");
        let second = Hop { listen, to, accepts: Some(&keys), dials: None }.configuration("/f");
        assert!(second.contains("backlog=4096 ssl; ssl_protocols TLSv1.3"), "{second}");
    }
}
