//! Checks of each object by its kind.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::schema::{
    ClaimSpec, ConfigMap, IpBlock, PolicySpec, QuotaSpec, Secret, Selector, ServiceAccount, ServiceSpec, Specified,
    Texts,
};
use super::{Common, FrozenFindings, is_said, is_service_name, pod};
use crate::frozen::names::{CLUSTER_LABEL, WORKSPACE_LABEL};
use crate::frozen::role::Role;
use crate::syntax::{Quantity, is_annotation_key, is_dns_subdomain, is_label_value};

/// Longest key of a `ConfigMap` (Kubernetes documentation, "ConfigMaps").
const KEY_BYTES_MAX: usize = 253;

/// Amounts that a quota can bound.
const BOUNDED: [&str; 4] = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Checks an object of a role.
pub(super) fn check(role: Role, value: &Value, place: &str, common: &Common, findings: &mut FrozenFindings) {
    match role {
        Role::CoreInventory | Role::SecretsInventory => {
            if let Some(map) = typed::<ConfigMap>(value, place, findings) {
                // The program that applies an inventory writes what it tracks.
                findings.require(
                    place,
                    map.data.is_none() && map.immutable.is_none(),
                    "an inventory is stored without data",
                );
            }
        }
        Role::Scripts => {
            if let Some(map) = typed::<ConfigMap>(value, place, findings) {
                scripts(&map, place, findings);
            }
        }
        Role::EnvSecret | Role::FileSecret => {
            if let Some(secret) = typed::<Secret>(value, place, findings) {
                findings.require(place, secret.r#type == "Opaque", "must be of the type Opaque");
            }
        }
        Role::ServiceAccount => {
            if let Some(account) = typed::<ServiceAccount>(value, place, findings) {
                service_account(&account, place, findings);
            }
        }
        Role::ResourceQuota => {
            if let Some(Specified { spec, .. }) = typed::<Specified<QuotaSpec>>(value, place, findings) {
                let unknown = spec.hard.keys().find(|name| !BOUNDED.contains(&name.as_str()));
                findings.require(
                    place,
                    unknown.is_none() && !spec.hard.is_empty(),
                    "bounds something else than CPU and memory",
                );
                quantities(&spec.hard, place, findings);
            }
        }
        Role::Volume => {
            if let Some(Specified { spec, .. }) = typed::<Specified<ClaimSpec>>(value, place, findings) {
                claim(&spec, place, findings);
            }
        }
        Role::Service => {
            if let Some(Specified { spec, .. }) = typed::<Specified<ServiceSpec>>(value, place, findings) {
                service(&spec, place, common, findings);
            }
        }
        Role::NetworkPolicy => {
            if let Some(Specified { spec, .. }) = typed::<Specified<PolicySpec>>(value, place, findings) {
                network_policy(&spec, place, common, findings);
            }
        }
        Role::Deployment => {
            if let Some(Specified { spec, .. }) = typed(value, place, findings) {
                pod::deployment(&spec, place, common, findings);
            }
        }
    }
}

/// Reads an object; notes problems of its shape.
fn typed<T: DeserializeOwned>(value: &Value, place: &str, findings: &mut FrozenFindings) -> Option<T> {
    match T::deserialize(value) {
        Ok(typed) => Some(typed),
        Err(error) => {
            findings.tell(place, error.to_string());
            None
        }
    }
}

/// Checks keys and values of labels.
pub(super) fn labels(labels: &Texts, place: &str, findings: &mut FrozenFindings) {
    for (key, value) in labels {
        let is_sound = is_annotation_key(key) && is_label_value(value);
        findings.require(place, is_sound, format!("{key:?}: {value:?} is no label"));
    }
}

/// Checks that a selector finds this workspace's pod, and no other's.
pub(super) fn selector(labels: &Texts, place: &str, common: &Common, findings: &mut FrozenFindings) {
    let finds = labels.iter().all(|(key, value)| match key.as_str() {
        WORKSPACE_LABEL => *value == common.names.workspace,
        CLUSTER_LABEL => *value == common.cluster,
        _ => false,
    });
    findings.require(
        place,
        finds && labels.contains_key(WORKSPACE_LABEL),
        "does not select the workspace's pod by its labels",
    );
}

/// Checks amounts by name.
pub(super) fn quantities(amounts: &Texts, place: &str, findings: &mut FrozenFindings) {
    for (name, text) in amounts {
        if let Err(error) = text.parse::<Quantity>() {
            findings.tell(place, format!("{name} {error}"));
        }
    }
}

/// Checks ports of one list: each has a name and number of its own.
pub(super) fn ports<'p>(
    ports: impl Iterator<Item = (&'p str, u16, &'p str)>,
    place: &str,
    findings: &mut FrozenFindings,
) {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (name, number, protocol) in ports {
        let is_new = names.insert(name) && numbers.insert((number, protocol));
        findings.require(place, is_new, format!("port {number} is there twice"));
        let is_named = is_dns_label_of_port(name) && matches!(protocol, "TCP" | "UDP") && number > 0;
        findings.require(place, is_named, format!("port {name:?} is none: {number}, {protocol:?}"));
    }
}

/// Names of ports (RFC 6335, section 5.1).
fn is_dns_label_of_port(name: &str) -> bool {
    name.len() <= 15
        && crate::syntax::is_dns_label(name)
        && !name.contains("--")
        && name.contains(|letter: char| letter.is_ascii_lowercase())
}

fn scripts(map: &ConfigMap, place: &str, findings: &mut FrozenFindings) {
    findings.require(place, map.data.as_ref().is_some_and(|data| !data.is_empty()), "has no scripts");
    let is_key = |key: &str| {
        (1..=KEY_BYTES_MAX).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && !key.starts_with("..")
            && key != "."
    };
    for key in map.data.iter().flat_map(Texts::keys).filter(|key| !is_key(key)) {
        findings.tell(place, format!("{key:?} is no name of a file"));
    }
}

fn service_account(account: &ServiceAccount, place: &str, findings: &mut FrozenFindings) {
    findings.require(place, !account.automount_service_account_token, "must not give pods its token");
    let mut seen = BTreeSet::new();
    for secret in account.image_pull_secrets.iter().flatten() {
        let is_sound = is_dns_subdomain(&secret.name) && seen.insert(&secret.name);
        findings.require(place, is_sound, format!("{:?} is no name of a secret, or there twice", secret.name));
    }
}

fn claim(spec: &ClaimSpec, place: &str, findings: &mut FrozenFindings) {
    findings.require(place, spec.access_modes == ["ReadWriteOnce"], "must be ReadWriteOnce");
    let size = spec.resources.requests.storage.parse::<Quantity>();
    findings.require(place, size.is_ok_and(|size| size > Quantity::default()), "has no size");
    let class = spec.storage_class_name.as_deref();
    findings.require(place, class.is_none_or(is_dns_subdomain), "names no storage class");
}

fn service(spec: &ServiceSpec, place: &str, common: &Common, findings: &mut FrozenFindings) {
    findings.require(place, is_service_name(&common.names.workspace), "its name is none of a Service");
    let address = spec.cluster_ip.as_deref();
    findings.require(place, address.is_none_or(|address| address == "None"), "must not ask for an address");
    // Kubernetes takes a Service without ports only if it has no address.
    findings.require(place, address.is_some() || spec.ports.is_some(), "has neither ports nor clusterIP: None");
    selector(&spec.selector, place, common, findings);
    let list = spec.ports.iter().flatten();
    ports(list.clone().map(|port| (port.name.as_str(), port.port, port.protocol.as_str())), place, findings);
    findings.require(place, list.clone().all(|port| port.target_port > 0), "a port leads to none");
}

fn network_policy(spec: &PolicySpec, place: &str, common: &Common, findings: &mut FrozenFindings) {
    let Selector { match_labels } = &spec.pod_selector;
    selector(match_labels, place, common, findings);
    findings.require(place, spec.policy_types == ["Ingress", "Egress"], "must be about ingress and egress");
    for rule in &spec.egress {
        for port in rule.ports.iter().flatten() {
            let is_sound = port.port > 0 && matches!(port.protocol.as_str(), "TCP" | "UDP");
            findings.require(place, is_sound, "a port of a rule is none");
        }
        for peer in &rule.to {
            match (&peer.ip_block, &peer.namespace_selector) {
                (Some(block), None) => {
                    let message = format!("{:?} is no block of addresses with blocks inside it", block.cidr);
                    findings.require(place, is_block(block), message);
                }
                (None, Some(selector)) => {
                    findings.require(
                        place,
                        selector.match_labels.values().all(|value| is_said(value)),
                        "selects every namespace",
                    );
                    labels(&selector.match_labels, place, findings);
                }
                (Some(_), Some(_)) | (None, None) => findings.tell(place, "a peer must be addresses or namespaces"),
            }
        }
    }
}

/// Returns whether a block is valid, and its exceptions are in it and smaller.
fn is_block(block: &IpBlock) -> bool {
    let Some((address, bits)) = read_block(&block.cidr) else {
        return false;
    };
    block.except.iter().all(|text| {
        read_block(text).is_some_and(|(inner, inner_bits)| {
            inner.is_ipv4() == address.is_ipv4() && inner_bits > bits && network(inner, bits) == network(address, bits)
        })
    })
}

fn read_block(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits = bits.parse().ok().filter(|bits| *bits <= if address.is_ipv4() { 32 } else { 128 })?;
    Some((address, bits))
}

/// Returns the first bits of an address as a number.
fn network(address: IpAddr, bits: u32) -> u128 {
    let (number, width) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    number.checked_shr(width - bits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_is_taken_out_of_them() {
        let check = |cidr: &str, except: &[&str]| {
            is_block(&IpBlock { cidr: cidr.to_owned(), except: except.iter().map(|one| (*one).to_owned()).collect() })
        };
        assert!(check("0.0.0.0/0", &["10.0.0.0/8", "192.168.0.0/16"]));
        assert!(check("::/0", &["fd00::/8"]) && check("1.2.3.4/32", &[]));
        for (cidr, except) in [
            ("0.0.0.0", &[][..]),
            ("0.0.0.0/33", &[]),
            ("localhost/8", &[]),
            ("10.0.0.0/8", &["11.0.0.0/16"]),
            ("10.0.0.0/8", &["10.0.0.0/8"]),
            ("10.0.0.0/8", &["::/16"]),
        ] {
            assert!(!check(cidr, except), "{cidr} {except:?}");
        }
    }
}
