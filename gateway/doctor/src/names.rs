//! Names: addresses of the public host, of hosts below the zone, and of the host of `paths_url`.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use doctor::judge::{self, list};
use doctor::{Check, Finding, FindingId, Outcome};
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::Installation;

/// Longest time for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Looks names up, as other programs on this machine do.
pub(crate) async fn look(it: Arc<Installation>) -> Vec<Check> {
    let config = &it.config;
    let host = config.public_url.host();
    let public = addresses(host).await;
    let zone = config.zone.to_string();
    let mut checks = vec![Check::new("name of the public host", host_check(host, &public))];
    let public = public.unwrap_or_default();
    checks.push(Check::new("names below the zone", wildcard(&zone, &public).await));
    checks.push(match &config.paths_url {
        None => Check::skipped("name of paths_url", "paths_url is not set"),
        Some(url) => {
            let found = addresses(url.host()).await;
            Check::new("name of paths_url", host_check(url.host(), &found))
        }
    });
    checks
}

fn host_check(host: &str, found: &Result<BTreeSet<IpAddr>, String>) -> Outcome {
    match found {
        Ok(found) => Outcome::Passed(format!("{host} has {}", list(found))),
        Err(why) => Finding::new(FindingId::DnsHostMissing, format!("{host}: {why}")).into(),
    }
}

async fn wildcard(zone: &str, public: &BTreeSet<IpAddr>) -> Outcome {
    if zone == "localhost" || zone.ends_with(".localhost") {
        return Outcome::Skipped(format!("browsers find *.{zone} on their own machine, without DNS"));
    }
    let label = made_up();
    match addresses(&format!("{label}.{zone}")).await {
        Err(why) => {
            Finding::new(FindingId::DnsWildcardMissing, format!("{label}.{zone}, made up just now: {why}")).into()
        }
        Ok(below) => {
            let found = judge::addresses(public, &below, zone).into_iter().collect();
            Outcome::of(found, format!("*.{zone} has {}", list(&below)))
        }
    }
}

/// Makes a label up that no record names by itself: the host of a port of a workspace that is not there.
pub(crate) fn made_up() -> String {
    format!("80-doctor-{:08x}", rand::random::<u32>())
}

/// Looks the addresses of a host up.
pub(crate) async fn addresses(host: &str) -> Result<BTreeSet<IpAddr>, String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // Any port: only the addresses count.
    let found = timeout(ANSWER_TIME, lookup_host((host, 443))).await;
    let found = found.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
    let found: BTreeSet<_> = found.map_err(|error| error.to_string())?.map(|address| address.ip()).collect();
    if found.is_empty() { Err("no address".to_owned()) } else { Ok(found) }
}
