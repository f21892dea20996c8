//! Network access of containers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::document::{Problems, ValueAt, show};

/// Networks that a workspace reaches only if the configuration says so: private networks (RFC 1918), and the link-local
/// address of clouds' metadata services, which tell any caller on a machine what that machine is and may. The rest of
/// the link-local network stays: name servers on the node are there. No IPv6 address is reached by default, so that the
/// one for the same (`fd00:ec2::254`) needs no exception.
const CLOSED: [&str; 4] = ["10.0.0.0/8", "169.254.169.254/32", "172.16.0.0/12", "192.168.0.0/16"];

/// Network access of containers. With a policy, nothing but the tunnel connects to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkPolicy {
    /// Whether there is a policy at all.
    pub enabled: bool,
    /// Allowed destinations besides the cluster's names (DNS).
    pub egress: Vec<Egress>,
}

/// Addresses that may be connected to, in canonical form (RFC 4632, RFC 4291).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Egress {
    /// These.
    pub allow: String,
    /// But not these, which are among the allowed.
    #[serde(default)]
    pub except: Vec<String>,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        let except = CLOSED.map(str::to_owned).to_vec();
        Self { enabled: true, egress: vec![Egress { allow: "0.0.0.0/0".to_owned(), except }] }
    }
}

/// Reads the policy.
pub(super) fn read(at: &ValueAt<'_>, problems: &mut Problems) -> NetworkPolicy {
    let mut policy = NetworkPolicy::default();
    let Some(mut fields) = at.fields(problems) else {
        return policy;
    };
    if let Some(enabled) = fields.take("enabled").and_then(|at| at.boolean(problems)) {
        policy.enabled = enabled;
    }
    if let Some(at) = fields.take("egress") {
        policy.egress = at.items(problems).iter().filter_map(|item| read_egress(item, problems)).collect();
    }
    fields.finish(problems);
    policy
}

fn read_egress(at: &ValueAt<'_>, problems: &mut Problems) -> Option<Egress> {
    let mut fields = at.fields(problems)?;
    let allow = fields.require("allow", problems).and_then(|at| read_block(&at, problems));
    let mut except = Vec::new();
    for item in fields.take("except").map(|at| at.items(problems)).unwrap_or_default() {
        let Some(block) = read_block(&item, problems) else {
            continue;
        };
        if let Some(allow) = &allow
            && !allow.has_inside(&block)
        {
            item.object(problems, format!("must be a part of {}", allow.text));
        }
        except.push(block.text);
    }
    fields.finish(problems);
    Some(Egress { allow: allow?.text, except })
}

/// A block of addresses (CIDR).
struct Block {
    text: String,
    /// IPv4 in the upper 32 bits.
    bits: u128,
    is_v6: bool,
    length: u32,
}

impl Block {
    /// Returns whether another block is a part of this one, and not all of it.
    fn has_inside(&self, other: &Self) -> bool {
        self.is_v6 == other.is_v6 && self.length < other.length && self.bits == other.bits & mask(self.length)
    }
}

fn read_block(at: &ValueAt<'_>, problems: &mut Problems) -> Option<Block> {
    let text = at.text(problems)?;
    let parsed = parse_block(text);
    if parsed.is_none() {
        let message = "must be a block of addresses such as 10.0.0.0/8 or 2001:db8::/32, without bits after its length";
        at.object(problems, format!("{message}; it is {}", show(text)));
    }
    parsed
}

fn parse_block(text: &str) -> Option<Block> {
    let (address, length) = text.split_once('/')?;
    let is_plain = length == "0" || !length.starts_with('0');
    if !is_plain || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: u32 = length.parse().ok()?;
    let (bits, most, is_v6) = match address.parse().ok()? {
        IpAddr::V4(address) => (u128::from(Ipv4Addr::to_bits(address)) << 96, 32, false),
        IpAddr::V6(address) => (Ipv6Addr::to_bits(address), 128, true),
    };
    let is_sound = length <= most && bits & !mask(length) == 0;
    is_sound.then(|| Block { text: text.to_owned(), bits, is_v6, length })
}

fn mask(length: u32) -> u128 {
    // A shift by all bits leaves nothing.
    u128::MAX.checked_shl(128 - length).unwrap_or_default()
}
