//! Rules between keys. A check is skipped while one of its keys is bad by itself: a second message about a default that
//! the operator did not choose would only confuse.

use std::net::SocketAddr;

use super::auth::AUTH;
use super::ci::COMMAND;
use super::directory::LISTEN_PEERS;
use super::keys::last;
use super::reader::{ContradictedKey, DottedKey, Reader};
use super::sections::{LISTEN, SITE, TUNNEL};
use super::{AuthMode, CiSystem, Config, Directory, auth, ci};
use gateway_types::{Port, WorkspaceName, Zone};

/// Notes every contradiction between keys.
pub(super) fn across_keys(config: &Config, reader: &mut Reader) {
    listeners_are_distinct(config, reader);
    public_url_is_not_a_workspace(config, reader);
    paths_url_is_apart(config, reader);
    auth::public_url_is_private(&config.auth, &config.public_url, reader);
    jobs_of_others_are_isolated(config, reader);
    budgets_contain_windows(config, reader);
    for (key, wrong) in of_one_gateway(config) {
        if reader.is_sound(&[&key]) {
            reader.object(key, wrong);
        }
    }
}

/// Returns what only one gateway for each database can have, with the reason why several cannot.
pub(super) fn of_one_gateway(config: &Config) -> Vec<(DottedKey, String)> {
    match &config.directory {
        // The processes of one host see each other's jobs.
        Directory::Memory | Directory::Host(_) => return Vec::new(),
        Directory::Store(_) => {}
    }
    let mut wrong = Vec::new();
    if config.ci.enabled {
        for provider in &config.ci.providers {
            if matches!(provider.system, CiSystem::Command(_)) {
                let why = "is `command` while `directory` is `store`: jobs are processes of the machine on which they began, \
                           and another replica could neither see nor end them. Use `gitlab`, or one gateway";
                wrong.push((ci::kind_of(&provider.name), why.to_owned()));
            }
        }
    }
    wrong
}

/// Requires isolated jobs if users other than the operator sign in. A command runs as the gateway's own account: a
/// user's job would read the gateway's database, keys and every other job's secrets.
fn jobs_of_others_are_isolated(config: &Config, reader: &mut Reader) {
    if config.auth.mode != AuthMode::Oidc || !config.ci.enabled || !reader.is_sound(&[&AUTH.mode.name]) {
        return;
    }
    for provider in &config.ci.providers {
        let CiSystem::Command(command) = &provider.system else { continue };
        let kind = ci::kind_of(&provider.name);
        if !command.isolates_jobs && reader.is_sound(&[&kind]) {
            let wrong = format!(
                "is `command` while {} is `oidc`: each user who makes a workspace there would have a shell as the \
                 gateway's own account. Use `gitlab`, or, if the program runs each job in a container or machine of its \
                 own, say {} = true beside it",
                AUTH.mode,
                last(&COMMAND.isolates_jobs.name)
            );
            reader.object(kind, wrong);
        }
    }
}

fn listeners_are_distinct(config: &Config, reader: &mut Reader) {
    let listen = &config.listen;
    let public = (&*LISTEN.public.name, Some(listen.public));
    let agents = (&*LISTEN.agents.name, Some(listen.agents));
    let admin = (&*LISTEN.admin.name, listen.admin);
    let peers = match &config.directory {
        Directory::Store(peers) => (&*LISTEN_PEERS.peers.name, Some(peers.listen)),
        Directory::Memory | Directory::Host(_) => (&*LISTEN_PEERS.peers.name, None),
    };
    let pairs = [(agents, public), (admin, public), (admin, agents), (peers, public), (peers, agents), (peers, admin)];
    for ((key, address), (other_key, other)) in pairs {
        let (Some(address), Some(other)) = (address, other) else { continue };
        if reader.is_sound(&[key, other_key]) && collide(address, other) {
            reader.object_to_pair(
                ContradictedKey { key, wrong: "collides with" },
                ContradictedKey { key: other_key, wrong: "collides with" },
            );
        }
    }
}

/// Tells whether the addresses cannot both be bound. Port 0 asks for any free port, so it collides with nothing.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let covers =
        |a: SocketAddr, b: SocketAddr| a.ip() == b.ip() || (a.ip().is_unspecified() && a.is_ipv4() == b.is_ipv4());
    one.port() != 0 && one.port() == other.port() && (covers(one, other) || covers(other, one))
}

/// The pages of `public_url` carry the user's session; no workspace may be able to stand in their place, and no cookie
/// that a workspace sets for the zone may reach them.
fn public_url_is_not_a_workspace(config: &Config, reader: &mut Reader) {
    if !reader.is_sound(&[&SITE.zone.name, &SITE.public_url.name]) {
        return;
    }
    let (host, zone) = (config.public_url.host(), &config.zone);
    if is_workspace_host(host, zone) {
        reader.object(
            &SITE.public_url,
            format!("the host would be a workspace's inside zone {zone}; choose one outside"),
        );
    } else if host == zone.as_str() && host != "localhost" && !host.ends_with(".localhost") {
        reader.object(&SITE.public_url, format!("the host is the zone {zone} itself, which only localhost may be"));
    }
}

/// Pages on the origin of `paths_url` are apps', so it has neither the origin nor the host of `public_url`: cookies know no
/// ports. The listeners for users serve both, so scheme and port are the same.
fn paths_url_is_apart(config: &Config, reader: &mut Reader) {
    let Some(paths) = &config.paths_url else { return };
    if !reader.is_sound(&[&SITE.zone.name, &SITE.public_url.name, &SITE.paths_url.name]) {
        return;
    }
    let (public, zone) = (&config.public_url, &config.zone);
    // Port 0 stands for any that is free.
    let is_same_port = public.port() == 0 || public.port() == paths.port();
    if paths.host() == public.host() {
        let wrong = format!(
            "has the host of {}, so that apps there would share its cookies: choose another host for workspaces by path",
            SITE.public_url
        );
        reader.object(&SITE.paths_url, wrong);
    } else if is_workspace_host(paths.host(), zone) {
        reader
            .object(&SITE.paths_url, format!("the host would be a workspace's inside zone {zone}; choose one outside"));
    } else if is_above_or_below(paths.host(), zone.as_str()) || is_above_or_below(paths.host(), public.host()) {
        let wrong = format!(
            "the host is above or below that of {} or the zone {zone}: a page of one could set cookies for the other",
            SITE.public_url
        );
        reader.object(&SITE.paths_url, wrong);
    } else if paths.host().starts_with('[') {
        reader.object(&SITE.paths_url, "needs a name or an IPv4 address as host".to_owned());
    } else if paths.scheme() != public.scheme() || !is_same_port {
        let wrong = format!("needs the scheme and the port of {}: the same listener serves both", SITE.public_url);
        reader.object(&SITE.paths_url, wrong);
    }
}

/// Tells whether one name is the other one, or a parent of it.
fn is_above_or_below(one: &str, other: &str) -> bool {
    let is_below =
        |name: &str, parent: &str| name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    is_below(one, other) || is_below(other, one)
}

/// Tells whether `host` is `{port}-{name}.{zone}` or `{name}.{zone}`.
fn is_workspace_host(host: &str, zone: &Zone) -> bool {
    let label = host.strip_suffix(zone.as_str()).and_then(|rest| rest.strip_suffix('.'));
    let Some(label) = label else { return false };
    let is_name = |text: &str| text.parse::<WorkspaceName>().is_ok();
    let with_port = label.split_once('-').is_some_and(|(port, name)| port.parse::<Port>().is_ok() && is_name(name));
    with_port || is_name(label)
}

fn budgets_contain_windows(config: &Config, reader: &mut Reader) {
    let tunnel = &config.tunnel;
    let chain = [
        (&*TUNNEL.window_initial.name, tunnel.window_initial),
        (&*TUNNEL.window_max.name, tunnel.window_max),
        (&*TUNNEL.session_budget.name, tunnel.session_budget),
        (&*TUNNEL.replica_budget.name, tunnel.replica_budget),
    ];
    for pair in chain.windows(2) {
        let [(small_key, small), (large_key, large)] = pair else { continue };
        if reader.is_sound(&[small_key, large_key]) && small > large {
            reader.object_to_pair(
                ContradictedKey { key: small_key, wrong: "must not be above" },
                ContradictedKey { key: large_key, wrong: "must not be below" },
            );
        }
    }
    // Without a value of its own it lies between the two.
    let owner = (&*TUNNEL.owner_budget.name, tunnel.owner_budget);
    let around =
        [(&*TUNNEL.session_budget.name, tunnel.session_budget), (&*TUNNEL.replica_budget.name, tunnel.replica_budget)];
    let [(session_key, session), (replica_key, replica)] = around;
    if session > replica || !reader.is_sound(&[session_key, owner.0, replica_key]) {
        return;
    }
    if owner.1 < session {
        reader.object_to_pair(
            ContradictedKey { key: owner.0, wrong: "must not be below" },
            ContradictedKey { key: session_key, wrong: "must not be above" },
        );
    } else if owner.1 > replica {
        reader.object_to_pair(
            ContradictedKey { key: owner.0, wrong: "must not be above" },
            ContradictedKey { key: replica_key, wrong: "must not be below" },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_collide_on_the_same_port_of_overlapping_hosts() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "[::1]:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(collide(one.parse().unwrap(), other.parse().unwrap()), expected, "{one} {other}");
        }
    }

    #[test]
    fn workspace_hosts_are_one_label_below_the_zone() {
        let zone: Zone = "ws.example.com".parse().unwrap();
        for host in ["app.ws.example.com", "8080-app.ws.example.com", "8080.ws.example.com"] {
            assert!(is_workspace_host(host, &zone), "{host}");
        }
        for host in ["ws.example.com", "a.b.ws.example.com", "xws.example.com", "080-app.ws.example.com", "example.com"]
        {
            assert!(!is_workspace_host(host, &zone), "{host}");
        }
    }
}
