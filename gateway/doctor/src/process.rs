//! Limits of the system, and the gateway that runs here.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use doctor::ask;
use doctor::judge;
use doctor::{Check, Finding, FindingId, Outcome};
use rustix::process::{Resource, getrlimit};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Installation;
use gateway_cli::files::{Shortage, notable_shortage};
use gateway_config::Config;

const FILES: &str = "limit of open files";
const QUEUE: &str = "queue of new connections";
const VERSION: &str = "version of the gateway that runs";
const AGENTS: &str = "versions of agents";

/// Longest time for an answer of the gateway that runs.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// The used part of a row of `/debug/sessions`.
#[derive(Deserialize)]
struct SessionRow {
    workspace: Option<String>,
    cluster: Option<String>,
    agent_version: String,
}

/// Looks at this machine, and asks the gateway that runs here at its listener for the operator.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    let config = &it.config;
    let asked = match config.listen.admin {
        None => Err("listen.admin is off: there is nothing to ask".to_owned()),
        Some(address) => told(here(address), "/metrics").await.map(|text| (address, text)),
    };
    let metrics = asked.as_ref().ok().map(|(_, text)| text.as_str());
    let mut checks = vec![files(config, metrics), queue()];
    match &asked {
        Err(why) => {
            checks.extend([VERSION, AGENTS].map(|name| Check::skipped(name, why.clone())));
        }
        Ok((address, metrics)) => {
            checks.push(version(metrics));
            checks.push(agents(told(here(*address), "/debug/sessions").await));
        }
    }
    checks
}

/// Returns the address at which this machine reaches a listener.
fn here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        one @ (IpAddr::V4(_) | IpAddr::V6(_)) => one,
    };
    SocketAddr::new(ip, address.port())
}

async fn told(address: SocketAddr, path: &'static str) -> Result<String, String> {
    let asked = async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        ask::text(Box::new(stream), path, &address.to_string()).await
    };
    let asked = timeout(ANSWER_TIME, asked).await.unwrap_or_else(|_elapsed| Err("no answer came in time".to_owned()));
    asked.map_err(|why| format!("no gateway answers at {address} (listen.admin): {why}"))
}

/// Compares the limit of the gateway that runs, or else of this process, with the configured limits.
fn files(config: &Config, metrics: Option<&str>) -> Check {
    let of_gateway = metrics.and_then(|metrics| number(metrics, "process_max_fds"));
    let (allowed, of) = match of_gateway {
        Some(most) => (Some(most), "the gateway that runs"),
        // It raises its limit as far as it may.
        None => (getrlimit(Resource::Nofile).maximum, "this command, since no gateway runs here"),
    };
    let shown = allowed.map_or_else(|| "any number".to_owned(), |allowed| allowed.to_string());
    match notable_shortage(config, allowed) {
        Some(Shortage { allowed, needed }) => {
            let what = format!("{of} may open {allowed} files, the configured limits may need {needed}");
            Check::new(FILES, Finding::new(FindingId::FilesLimitLow, what))
        }
        None => Check::new(FILES, Outcome::Passed(format!("{of} may open {shown}"))),
    }
}

fn queue() -> Check {
    let read = fs::read_to_string("/proc/sys/net/core/somaxconn");
    match read.ok().and_then(|text| text.trim().parse().ok()) {
        None => Check::skipped(QUEUE, "this system does not say"),
        Some(queue) => {
            let found = judge::somaxconn(queue).into_iter().collect();
            Check::new(QUEUE, Outcome::of(found, format!("net.core.somaxconn is {queue}")))
        }
    }
}

fn version(metrics: &str) -> Check {
    let Some(version) = label(metrics, "gateway_build_info", "version") else {
        return Check::skipped(VERSION, "it does not say");
    };
    let own = env!("CARGO_PKG_VERSION");
    let found = judge::versions(own, std::iter::once(("the gateway that runs".to_owned(), version)));
    Check::new(VERSION, Outcome::of(found, format!("{version}, as this program")))
}

fn agents(told: Result<String, String>) -> Check {
    let rows = told.and_then(|text| serde_json::from_str::<Vec<SessionRow>>(&text).map_err(|error| error.to_string()));
    match rows {
        Err(why) => Check::skipped(AGENTS, why),
        Ok(rows) if rows.is_empty() => Check::skipped(AGENTS, "no agent is connected here"),
        Ok(rows) => {
            let named = rows.into_iter().map(|row| {
                let name = row.workspace.or(row.cluster.map(|name| format!("cluster {name}"))).unwrap_or_default();
                (name, row.agent_version)
            });
            let named: Vec<_> = named.collect();
            let found = judge::agents(env!("CARGO_PKG_VERSION"), &named).into_iter().collect();
            Check::new(AGENTS, Outcome::of(found, format!("{} of this version", named.len())))
        }
    }
}

/// Reads a number of a text of Prometheus' format.
fn number(metrics: &str, name: &str) -> Option<u64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Reads a label of such a text.
fn label<'a>(metrics: &'a str, name: &str, label: &str) -> Option<&'a str> {
    let labels = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('{'))?;
    let value = labels.split(',').find_map(|pair| pair.strip_prefix(label)?.strip_prefix("=\""))?;
    value.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_their_names() {
        let text = "# TYPE process_max_fds gauge\nprocess_max_fds 1024\nprocess_max_fds_x 1\n\
                    gateway_build_info{version=\"0.1.0\"} 1\n";
        assert_eq!(number(text, "process_max_fds"), Some(1024));
        assert_eq!(number(text, "process_open_fds"), None);
        assert_eq!(label(text, "gateway_build_info", "version"), Some("0.1.0"));
        assert_eq!(label(text, "gateway_build_info", "commit"), None);
    }

    #[test]
    fn listener_on_all_addresses_is_asked_on_this_machine() {
        assert_eq!(here("0.0.0.0:8082".parse().unwrap()), "127.0.0.1:8082".parse().unwrap());
        assert_eq!(here("[::]:8082".parse().unwrap()), "[::1]:8082".parse().unwrap());
        assert_eq!(here("10.0.0.5:8082".parse().unwrap()), "10.0.0.5:8082".parse().unwrap());
    }

    #[test]
    fn agents_of_other_versions_are_named() {
        let rows = r#"[{"workspace":"w1","agent_version":"0.0.9"},{"cluster":"prod","agent_version":"0.0.8"}]"#;
        let Outcome::Found(found) = agents(Ok(rows.to_owned())).outcome else { panic!("none") };
        assert!(found[0].what.contains("w1 (0.0.9), cluster prod (0.0.8)"), "{}", found[0].what);
        assert!(matches!(agents(Ok("[]".to_owned())).outcome, Outcome::Skipped(_)));
    }
}
