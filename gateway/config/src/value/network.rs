//! Networks: addresses that share their first bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{ValueKind, off_or_list, show_off_or_list};

/// A network such as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    /// Number of leading bits that belong to the network.
    bits: u8,
}

impl IpNetwork {
    /// Returns whether an address is one of the network's. IPv4 written as IPv6 (RFC 4291, section 2.5.5.2) is IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                is_same(own.to_bits().into(), other.to_bits().into(), self.bits, 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => is_same(own.to_bits(), other.to_bits(), self.bits, 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Compares the first `bits` of numbers of `width` bits.
fn is_same(one: u128, other: u128, bits: u8, width: u32) -> bool {
    (one ^ other).checked_shr(width.saturating_sub(bits.into())).unwrap_or_default() == 0
}

impl FromStr for IpNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| format!("{address:?} is not an IP address"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(|| format!("{bits:?} is not a number of bits"))?,
        };
        let network = Self { address, bits };
        let own = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        // Most often a slip: either the address was meant, or another network.
        let host_bits = u32::from(width - bits);
        if host_bits > 0 && own & (u128::MAX >> (128 - host_bits)) != 0 {
            return Err(format!("{text:?} has bits of a host behind those of its network"));
        }
        Ok(network)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_address = self.bits == if self.address.is_ipv4() { 32 } else { 128 };
        if is_address { self.address.fmt(formatter) } else { write!(formatter, "{}/{}", self.address, self.bits) }
    }
}

pub(crate) const NETWORKS: ValueKind<Vec<IpNetwork>> = ValueKind::new(
    "`off`, or addresses and networks with commas between them: `10.0.0.0/8, 192.0.2.7, 2001:db8::/32`",
    |text| off_or_list(text, str::parse),
    |networks| show_off_or_list(networks, ToString::to_string),
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn network_contains_what_shares_its_first_bits() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
        ] {
            let network: IpNetwork = network.parse().expect(network);
            assert_eq!(network.contains(address.parse().expect(address)), expected, "{network} {address}");
        }
    }

    #[test]
    fn list_is_off_or_well_formed() {
        let shown = |text| (NETWORKS.parse)(text).map(|networks| (NETWORKS.show)(&networks));
        assert_eq!(shown("off").as_deref(), Ok("off"));
        assert_eq!(shown("10.0.0.0/8,192.0.2.7/32 , ::1").as_deref(), Ok("10.0.0.0/8, 192.0.2.7, ::1"));
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/8,", "localhost", "::1/-1", "::1/64"] {
            assert!(shown(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn network_survives_writing_and_reading(bits: u128, prefix in 0..=128_u8, is_v4: bool) {
            let width = if is_v4 { 32 } else { 128 };
            let prefix = prefix.min(width);
            let host = u32::from(width - prefix);
            let own = bits.checked_shr(host).unwrap_or_default().checked_shl(host).unwrap_or_default();
            let low = u32::try_from(own & u128::from(u32::MAX)).expect("32 bits");
            let address = if is_v4 { IpAddr::from(low.to_be_bytes()) } else { IpAddr::from(own.to_be_bytes()) };
            let network = IpNetwork { address, bits: prefix };
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            prop_assert!(network.contains(address));
        }
    }
}
